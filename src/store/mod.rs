//! The durable outbox: a segment log that is the truth, and sled trees that index what stays.
//!
//! ```text
//! data/
//!   LOCK                 one instance
//!   FORMAT               format version and salt of the store
//!   log/00000042.seg     append-only segments (frame.rs, records.rs)
//!   sled/                index of what stays (index.rs)
//!   quarantine/          what recovery set aside
//! ```
//!
//! **Life of an event.** `append` hands it to the log thread (`writer`), which deduplicates, numbers and writes it
//! with others, syncs once, and answers. `settle` writes a short record; the sync follows within a second. About
//! every 8 MiB of log a checkpoint moves what is still pending or dead into the index, and segments at the head of
//! the log of which nothing is needed are deleted. Recovery loads the index and replays the log behind its last
//! checkpoint through the same function as live traffic (`State::apply`).
//!
//! **Invariants.** Only the log thread changes state and files of the log. The log is freed from its head only and
//! a decision always stands after its event, so the log alone can rebuild everything. The ledger moves once per
//! record. No async code touches a file or sled.
//!
//! It does not decide about attempts, and it never looks into a body.

pub use error::{OpenError, StoreError};
pub use port::{PortError, Ported, compact, export, import};
pub use types::*;
pub use verify::{Damage, EndpointInfo, StoreInfo, VerifyReport, info, verify};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot, watch};

use crate::clock::Clock;
use crate::core::delivery::Settlement;
use crate::core::event::NewEvent;
use crate::core::ids::{EndpointId, EndpointName, Seq, StoreSalt};
use crate::core::time::StoreTime;
use shared::{Shared, Tuning};
use writer::{Queued, Request};

mod bloom;
mod books;
mod checkpoint;
mod disk;
mod error;
mod frame;
mod home;
mod index;
mod keys;
mod log;
mod overlay;
mod port;
mod query;
mod read;
mod records;
mod recover;
mod replay;
mod seqset;
mod shared;
mod space;
mod state;
mod types;
mod upkeep;
mod verify;
mod witness;
mod writer;

#[cfg(test)]
mod tests;

/// Requests in line for the log thread; more wait in their own tasks.
const LINE_REQUESTS: usize = 1024;
/// Body bytes in line, in units of [`LINE_UNIT`]: 32 MiB.
const LINE_UNITS: u32 = 8192;
const LINE_UNIT: usize = 4096;

/// Handle of an open store; clones share it.
#[derive(Clone)]
pub struct Outbox {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    line: SyncSender<Queued>,
    slots: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    salt: StoreSalt,
}

impl Outbox {
    /// Opens or creates the store in `config.dir`: takes the lock, replays the log, sets damage aside. Blocking.
    pub fn open(config: StoreConfig, clock: Clock) -> Result<(Self, Recovery), OpenError> {
        recover::open(config, clock, Tuning::default(), None)
    }

    fn new(shared: Arc<Shared>, line: SyncSender<Queued>) -> Self {
        let salt = shared.state().salt;
        let slots = Arc::new(Semaphore::new(LINE_REQUESTS));
        let bytes = Arc::new(Semaphore::new(LINE_UNITS as usize));
        Self { inner: Arc::new(Inner { shared, line, slots, bytes, salt }) }
    }

    /// Puts a request in line. `None` once the store is closed.
    async fn send(&self, request: Request, body_bytes: usize) -> Option<()> {
        let slot = Arc::clone(&self.inner.slots).acquire_owned().await.ok()?;
        let mut permits = vec![slot];
        let units = u32::try_from(body_bytes.div_ceil(LINE_UNIT)).unwrap_or(LINE_UNITS).min(LINE_UNITS);
        if units > 0 {
            permits.push(Arc::clone(&self.inner.bytes).acquire_many_owned(units).await.ok()?);
        }
        if self.inner.shared.closed.load(Ordering::SeqCst) {
            return None;
        }
        // As many places as permits, and one for each of the few that need none: never full.
        self.inner.line.try_send(Queued { request, permits }).ok()
    }

    /// Puts a request in line from a thread that may block.
    fn send_blocking(&self, request: Request) -> Option<()> {
        self.inner.line.send(Queued { request, permits: Vec::new() }).ok()
    }

    /// Deduplicates and stores events; when it returns they are on the device. All or nothing, in order.
    pub async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        let bytes = events.iter().map(|event| event.body.len()).sum();
        let (reply, answer) = oneshot::channel();
        self.send(Request::Append { events, reply }, bytes).await.ok_or(AppendError::Closed)?;
        answer.await.unwrap_or(Err(AppendError::Closed))
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply), 0).await.ok_or(StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Writes what an attempt came to. Written, not yet synced, when it returns (synced within a second). A delivery
    /// that has ended or died meanwhile (a person discarded it while its attempt ran) stays as it is.
    pub async fn settle(
        &self,
        endpoint: EndpointId,
        seq: Seq,
        settlement: Settlement,
    ) -> Result<(), StoreError> {
        self.ask(|reply| Request::Settle { endpoint, seq, settlement, reply }).await
    }

    /// Puts dead letters back to pending: one redrive more, nothing charged, history kept. Gives how many were dead.
    pub async fn redrive(&self, deliveries: Vec<(Seq, EndpointId)>) -> Result<u64, StoreError> {
        self.ask(|reply| Request::Redrive { deliveries, reply }).await
    }

    /// Ends deliveries for good. Gives how many were not ended before.
    pub async fn end(&self, requests: Vec<EndRequest>) -> Result<u64, StoreError> {
        self.ask(|reply| Request::End { requests, reply }).await
    }

    /// Keeps what should survive a restart of an endpoint.
    pub async fn set_endpoint(&self, endpoint: EndpointId, record: EndpointRecord) -> Result<(), StoreError> {
        self.ask(|reply| Request::SetEndpoint { endpoint, record, reply }).await
    }

    /// Runs a query where it may block.
    async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.inner.shared.closed.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        let shared = Arc::clone(&self.inner.shared);
        tokio::task::spawn_blocking(move || query(&shared)).await.map_err(|_| StoreError::Closed)
    }

    /// Has what is left of unreadable events counted as lost, before the answer that leaves them out is given: who sees
    /// the gap finds it in the ledger too. If that cannot be written now, the next read finds the same damage.
    async fn report(&self, damaged: Vec<Seq>) {
        for seq in damaged {
            let _ = self.ask(|reply| Request::Damaged { seq, reply: Some(reply) }).await;
        }
    }

    /// Pending deliveries that are not between attempts, after `after`, in sequence order.
    pub async fn pending_page(
        &self,
        endpoint: EndpointId,
        after: Seq,
        limit: usize,
    ) -> Result<PendingPage, StoreError> {
        let (page, damaged) = self.query(move |shared| shared.pending_page(endpoint, after, limit)).await??;
        self.report(damaged).await;
        Ok(page)
    }

    /// Deliveries between attempts that are due up to `until`, in due order.
    pub async fn scheduled(
        &self,
        endpoint: EndpointId,
        until: StoreTime,
        limit: usize,
    ) -> Result<Vec<Scheduled>, StoreError> {
        let (page, damaged) = self.query(move |shared| shared.scheduled(endpoint, until, limit)).await??;
        self.report(damaged).await;
        Ok(page)
    }

    /// An event, if its bytes are still kept (those of ended events go with their log segment).
    pub async fn event(&self, seq: Seq) -> Result<Option<Arc<StoredEvent>>, StoreError> {
        if let Some(event) = self.inner.shared.recent(seq) {
            return Ok(Some(event));
        }
        let (event, damaged) = self.query(move |shared| shared.event(seq)).await??;
        self.report(damaged).await;
        Ok(event)
    }

    /// The deliveries of an event, by endpoint.
    pub async fn deliveries(&self, seq: Seq) -> Result<Vec<DeliveryState>, StoreError> {
        self.query(move |shared| shared.deliveries(seq)).await
    }

    /// A page of dead letters after `after`. It may be short, or empty, and still have a next one.
    pub async fn dead_letters(
        &self,
        filter: DeadFilter,
        after: Option<(Seq, EndpointId)>,
        limit: usize,
    ) -> Result<DeadPage, StoreError> {
        let (page, damaged) = self.query(move |shared| shared.dead_letters(&filter, after, limit)).await??;
        self.report(damaged).await;
        Ok(page)
    }

    /// One dead letter.
    pub async fn dead_letter(
        &self,
        seq: Seq,
        endpoint: EndpointId,
    ) -> Result<Option<DeadLetter>, StoreError> {
        let (letter, damaged) = self.query(move |shared| shared.dead_letter(seq, endpoint)).await??;
        self.report(damaged).await;
        Ok(letter)
    }

    /// What was kept of an endpoint; `None` if nothing ever was.
    pub fn endpoint_record(&self, endpoint: EndpointId) -> Option<EndpointRecord> {
        self.inner.shared.state().endpoints.get(&endpoint)?.record
    }

    /// Numbers of the configured endpoints.
    pub fn endpoint_ids(&self) -> BTreeMap<EndpointName, EndpointId> {
        let state = self.inner.shared.state();
        let configured = &self.inner.shared.config.endpoints;
        let numbered = state.endpoints.iter().filter_map(|(&id, one)| Some((one.name.clone()?, id)));
        numbered.filter(|(name, _)| configured.contains(name)).collect()
    }

    /// The salt of event ids of this store.
    pub fn salt(&self) -> StoreSalt {
        self.inner.salt
    }

    /// Counters and sizes, from memory.
    pub fn stats(&self) -> StoreStats {
        self.inner.shared.stats()
    }

    /// Newest durable sequence; changes with every group commit that stored something.
    pub fn appended(&self) -> watch::Receiver<Seq> {
        self.inner.shared.appended.subscribe()
    }

    /// How long the log thread has been inside one call to the operating system, if it is in one. Beyond ten seconds
    /// the process should end with a clear word: a restart is safe, a zombie is not.
    pub fn stalled_for(&self) -> Option<Duration> {
        let since = self.inner.shared.figures.busy_since_ms.load(Ordering::Relaxed);
        let now = self.inner.shared.clock.now().store.0;
        (since > 0).then(|| Duration::from_millis((now + 1).saturating_sub(since)))
    }

    /// Checkpoints, syncs and releases the directory. Later calls give `Closed`.
    pub async fn close(&self) {
        let (reply, answer) = oneshot::channel();
        if self.send(Request::Close { reply }, 0).await.is_some() {
            let _ = answer.await;
        }
    }
}
