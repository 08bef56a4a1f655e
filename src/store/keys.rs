//! The memory of identities: which event came first, for how long it counts.
//!
//! Owned by the log thread alone, so looking up and appending are one step without a lock.

use std::collections::HashMap;
use std::time::Duration;

use crate::core::event::Dedup;
use crate::core::ids::{BodyDigest, EventId, Identity, Seq, StoreSalt};
use crate::core::time::{StoreTime, UnixMillis};

/// What is remembered of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) seq: Seq,
    pub(super) accepted: StoreTime,
    pub(super) accepted_at: UnixMillis,
    pub(super) digest: BodyDigest,
    pub(super) dedup: Dedup,
}

impl Known {
    pub(super) fn id(&self, salt: StoreSalt) -> EventId {
        EventId::new(self.accepted_at.0, self.seq, salt)
    }
}

/// The memory.
pub(super) struct Keys {
    current: HashMap<Identity, Known>,
    ttl: Duration,
    window: Duration,
}

impl Keys {
    pub(super) fn new(ttl: Duration, window: Duration) -> Self {
        Self { current: HashMap::new(), ttl, window }
    }

    /// The first event of this identity, if it still counts for an event of this kind.
    pub(super) fn find(&self, identity: Identity, dedup: Dedup, now: StoreTime) -> Option<Known> {
        let known = *self.current.get(&identity)?;
        let memory = match dedup {
            Dedup::Ttl => self.ttl,
            Dedup::Window => self.window,
        };
        (now.since(known.accepted) <= memory).then_some(known)
    }

    pub(super) fn insert(&mut self, identity: Identity, known: Known) {
        self.current.insert(identity, known);
    }

    /// Forgets events from `from` on: they were never acknowledged.
    pub(super) fn undo_from(&mut self, from: Seq) {
        self.current.retain(|_, known| known.seq < from);
    }

    pub(super) fn len(&self) -> u64 {
        self.current.len() as u64
    }
}
