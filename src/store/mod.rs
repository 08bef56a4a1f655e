//! The durable outbox. To be written; this is the seam.

pub use types::*;

mod types;
