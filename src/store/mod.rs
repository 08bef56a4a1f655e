//! The durable outbox: a segment log that is the truth, and sled trees that index what stays.

pub use error::{OpenError, StoreError};
pub use types::*;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Clock;
use crate::core::delivery::Settlement;
use crate::core::event::NewEvent;
use crate::core::ids::{EndpointId, EndpointName, Seq, StoreSalt};
use crate::core::time::StoreTime;

mod error;
mod types;

/// Handle of an open store; clones share it.
#[derive(Clone)]
pub struct Outbox {
    appended: Arc<tokio::sync::watch::Sender<Seq>>,
}

#[expect(clippy::unused_async, reason = "signatures first; the bodies follow")]
impl Outbox {
    /// Opens or creates the store in `config.dir`: takes the lock, replays the log, sets damage aside. Blocking.
    pub fn open(config: StoreConfig, clock: Clock) -> Result<(Self, Recovery), OpenError> {
        let _ = (config, clock);
        let outbox = Self { appended: Arc::new(tokio::sync::watch::Sender::new(Seq(0))) };
        Ok((outbox, Recovery::default()))
    }

    /// Deduplicates and stores events; when it returns they are on the device. All or nothing, in order.
    pub async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        let _ = events;
        Err(AppendError::Closed)
    }

    /// Writes what an attempt came to. Written, not yet synced, when it returns (synced within a second).
    pub async fn settle(
        &self,
        endpoint: EndpointId,
        seq: Seq,
        settlement: Settlement,
    ) -> Result<(), StoreError> {
        let _ = (endpoint, seq, settlement);
        Err(StoreError::Closed)
    }

    /// Pending deliveries that are not between attempts, after `after`, in sequence order.
    pub async fn pending_page(
        &self,
        endpoint: EndpointId,
        after: Seq,
        limit: usize,
    ) -> Result<PendingPage, StoreError> {
        let _ = (endpoint, after, limit);
        Err(StoreError::Closed)
    }

    /// Deliveries between attempts that are due up to `until`, in due order.
    pub async fn scheduled(
        &self,
        endpoint: EndpointId,
        until: StoreTime,
        limit: usize,
    ) -> Result<Vec<Scheduled>, StoreError> {
        let _ = (endpoint, until, limit);
        Err(StoreError::Closed)
    }

    /// An event, if its bytes are still kept (those of ended events go with their log segment).
    pub async fn event(&self, seq: Seq) -> Result<Option<Arc<StoredEvent>>, StoreError> {
        let _ = seq;
        Err(StoreError::Closed)
    }

    /// The deliveries of an event, by endpoint.
    pub async fn deliveries(&self, seq: Seq) -> Result<Vec<DeliveryState>, StoreError> {
        let _ = seq;
        Err(StoreError::Closed)
    }

    /// A page of dead letters after `after`.
    pub async fn dead_letters(
        &self,
        filter: DeadFilter,
        after: Option<(Seq, EndpointId)>,
        limit: usize,
    ) -> Result<DeadPage, StoreError> {
        let _ = (filter, after, limit);
        Err(StoreError::Closed)
    }

    /// One dead letter.
    pub async fn dead_letter(
        &self,
        seq: Seq,
        endpoint: EndpointId,
    ) -> Result<Option<DeadLetter>, StoreError> {
        let _ = (seq, endpoint);
        Err(StoreError::Closed)
    }

    /// Puts dead letters back to pending: one redrive more, nothing charged, history kept. Gives how many were dead.
    pub async fn redrive(&self, deliveries: Vec<(Seq, EndpointId)>) -> Result<u64, StoreError> {
        let _ = deliveries;
        Err(StoreError::Closed)
    }

    /// Ends deliveries for good. Gives how many were not ended before.
    pub async fn end(&self, requests: Vec<EndRequest>) -> Result<u64, StoreError> {
        let _ = requests;
        Err(StoreError::Closed)
    }

    /// Keeps what should survive a restart of an endpoint.
    pub async fn set_endpoint(&self, endpoint: EndpointId, record: EndpointRecord) -> Result<(), StoreError> {
        let _ = (endpoint, record);
        Err(StoreError::Closed)
    }

    /// What was kept of an endpoint; `None` if nothing ever was.
    pub fn endpoint_record(&self, endpoint: EndpointId) -> Option<EndpointRecord> {
        let _ = endpoint;
        None
    }

    /// Numbers of the configured endpoints.
    pub fn endpoint_ids(&self) -> BTreeMap<EndpointName, EndpointId> {
        BTreeMap::new()
    }

    /// The salt of event ids of this store.
    pub fn salt(&self) -> StoreSalt {
        StoreSalt(0)
    }

    /// Counters and sizes, from memory.
    pub fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    /// Newest durable sequence; changes with every group commit that stored something.
    pub fn appended(&self) -> tokio::sync::watch::Receiver<Seq> {
        self.appended.subscribe()
    }

    /// How long the store has been inside one call to the operating system, if longer than usual. Beyond ten seconds
    /// the process should end with a clear word: a restart is safe.
    pub fn stalled_for(&self) -> Option<std::time::Duration> {
        None
    }

    /// Checkpoints, syncs and releases the directory. Later calls give `Closed`.
    pub async fn close(&self) {}
}
