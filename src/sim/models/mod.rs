//! Small models of retry policies from the literature, to prove the simulator's numbers against known ones.
//!
//! Each is one page of arithmetic over the core's own leaves ([`crate::core::backoff`], [`crate::core::budget`]): what
//! they reproduce is RETRY 2.1, 2.4 and 3.3, and `tests/it/models.rs` pins it. None of them knows the dispatcher; that is
//! [`super::fleet`]'s part.

pub mod contention;
pub mod fate;
pub mod metastable;

/// A moment of a model in seconds, in an order that a heap can use.
#[derive(Clone, Copy, Debug, PartialEq)]
struct At(f64);

impl Eq for At {}

impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
