//! The loop between the core and the world; see the parts.

pub mod handle;

pub use handle::{Handle, UnknownEndpoint};
