//! Bodies of loaded deliveries, bounded by bytes: what does not fit is read again when its attempt starts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::core::ids::{EndpointId, Seq};
use crate::store::StoredEvent;

/// Rough cost of an entry beside its body: head, texts, map slot.
const ENTRY_BYTES: u64 = 512;

pub(super) struct Bodies {
    held: HashMap<(EndpointId, Seq), Arc<StoredEvent>>,
    bytes: u64,
    bytes_max: u64,
}

impl Bodies {
    pub fn new(bytes_max: u64) -> Self {
        Self { held: HashMap::new(), bytes: 0, bytes_max }
    }

    /// Keeps an event for its attempt if there is room.
    pub fn keep(&mut self, endpoint: EndpointId, event: Arc<StoredEvent>) {
        let added = cost(&event);
        if self.bytes + added > self.bytes_max {
            return;
        }
        if let Some(old) = self.held.insert((endpoint, event.head.seq), event) {
            self.bytes -= cost(&old);
        }
        self.bytes += added;
    }

    /// Gives an event to its attempt.
    pub fn take(&mut self, endpoint: EndpointId, seq: Seq) -> Option<Arc<StoredEvent>> {
        let event = self.held.remove(&(endpoint, seq))?;
        self.bytes -= cost(&event);
        Some(event)
    }
}

fn cost(event: &StoredEvent) -> u64 {
    event.body.len() as u64 + ENTRY_BYTES
}
