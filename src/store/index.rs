//! The sled trees: what stays.

use super::records::{Letter, Slip};
use crate::core::ids::{EndpointId, Seq};

/// Open trees.
#[derive(Clone)]
pub(super) struct Index {}

impl Index {
    pub(super) fn slip(&self, _endpoint: EndpointId, _seq: Seq) -> Option<Slip> {
        None
    }

    pub(super) fn letter(&self, _seq: Seq, _endpoint: EndpointId) -> Option<Letter> {
        None
    }
}
