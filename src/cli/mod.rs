//! To be written.

pub mod key;
