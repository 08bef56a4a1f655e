//! To be written.

pub mod key;
pub mod receive;
