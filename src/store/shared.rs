//! What the log thread, the index thread and the handles share.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::index::Index;
use super::read::{ReadFault, Reader};
use super::records::{Event, Letter, Slip};
use super::state::{Place, State};
use super::types::{StoreConfig, StoredEvent};
use crate::clock::Clock;
use crate::core::ids::{EndpointId, Seq};

/// Sizes and times that tests make small. The values of [`Tuning::default`] are what the appliance runs with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    /// Size of a segment. 8 MiB: a free granule small beside the 64 MiB of slack, and seconds of full load.
    pub(super) segment_bytes: u64,
    /// Requests in one group; beyond 128 a group gains nothing (STORAGE section 1).
    pub(super) group_requests: usize,
    /// Bytes in one group; bounds its memory and its time on slow flash.
    pub(super) group_bytes: u64,
    /// A checkpoint after so many bytes of log: bounds replay, and what a delivered event may hold on disk.
    pub(super) checkpoint_bytes: u64,
    /// A checkpoint after so many changes of the index: bounds the overlay's memory.
    pub(super) checkpoint_changes: usize,
    /// A checkpoint after so long, if anything changed.
    pub(super) checkpoint_ms: u64,
    /// Settlements are synced within this time (the promise is one second).
    pub(super) sync_ms: u64,
    /// Dead space that is not worth copying for (DESIGN 4: disk ≤ 2 × live + 64 MiB; the rest of it is for the index,
    /// the active segment and what the next checkpoint frees).
    pub(super) slack_bytes: u64,
    /// Identities in one generation of the key memory.
    pub(super) generation_keys: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            group_requests: 128,
            group_bytes: 4 << 20,
            checkpoint_bytes: 8 << 20,
            checkpoint_changes: 20_000,
            checkpoint_ms: 10_000,
            sync_ms: 500,
            slack_bytes: 24 << 20,
            generation_keys: 1 << 16,
        }
    }
}

/// Bodies of recent events, so that the healthy path reads nothing back.
#[derive(Default)]
pub(super) struct Recent {
    events: HashMap<Seq, Arc<StoredEvent>>,
    order: VecDeque<Seq>,
    bytes: u64,
}

/// What an event costs beside its body: head, map entry, texts.
const EVENT_OVERHEAD: u64 = 512;

impl Recent {
    pub(super) fn get(&self, seq: Seq) -> Option<Arc<StoredEvent>> {
        self.events.get(&seq).cloned()
    }

    fn put(&mut self, event: Arc<StoredEvent>, bytes_max: u64) {
        let seq = event.head.seq;
        self.bytes += event.body.len() as u64 + EVENT_OVERHEAD;
        self.events.insert(seq, event);
        self.order.push_back(seq);
        while self.bytes > bytes_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, seq: Seq) {
        if let Some(event) = self.events.remove(&seq) {
            self.bytes -= event.body.len() as u64 + EVENT_OVERHEAD;
        }
        // Sequences of removed events go when they come to the front; they must not pile up behind a live one.
        if self.order.len() > 64 && self.order.len() > 2 * self.events.len() {
            let events = &self.events;
            self.order.retain(|seq| events.contains_key(seq));
        }
    }
}

/// Numbers for `stats`, written by the threads that know them.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) disk_bytes: AtomicU64,
    pub(super) free_bytes: AtomicU64,
    pub(super) quarantined_bytes: AtomicU64,
    pub(super) index_bytes: AtomicU64,
    pub(super) ballast_bytes: AtomicU64,
    pub(super) log_written_bytes: AtomicU64,
    pub(super) index_written_bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) keys: AtomicU64,
    /// Store time at which the log thread went into a call to the system, plus one; zero when it is not in one.
    pub(super) busy_since_ms: AtomicU64,
}

/// Shared parts of an open store.
pub(super) struct Shared {
    pub(super) config: StoreConfig,
    pub(super) clock: Clock,
    pub(super) tuning: Tuning,
    pub(super) reader: Reader,
    pub(super) appended: watch::Sender<Seq>,
    pub(super) figures: Figures,
    pub(super) closed: AtomicBool,
    /// Which limit refuses accepts now.
    pub(super) full: Mutex<Option<&'static str>>,
    pub(super) index: Mutex<Option<Index>>,
    state: Mutex<State>,
    recent: Mutex<Recent>,
    warnings: Mutex<Vec<String>>,
}

/// Copies of one event to the tail that may happen while it is being read.
const COPIES_MAX: u32 = 3;
/// Notices kept for `warnings`; each stands for a fault that a person should know of.
const WARNINGS_MAX: usize = 32;

impl Shared {
    pub(super) fn new(
        config: StoreConfig,
        clock: Clock,
        tuning: Tuning,
        reader: Reader,
        state: State,
        index: Option<Index>,
    ) -> Self {
        let appended = watch::Sender::new(Seq(state.next_seq.0 - 1));
        Self {
            config,
            clock,
            tuning,
            reader,
            appended,
            figures: Figures::default(),
            closed: AtomicBool::new(false),
            full: Mutex::new(None),
            index: Mutex::new(index),
            state: Mutex::new(state),
            recent: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// The state, for a moment: never held over I/O.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn recent(&self, seq: Seq) -> Option<Arc<StoredEvent>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).get(seq)
    }

    pub(super) fn remember(&self, event: Arc<StoredEvent>) {
        let bytes_max = self.config.cache_bytes_max;
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).put(event, bytes_max);
    }

    pub(super) fn forget(&self, seq: Seq) {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).remove(seq);
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says a fault once: in the log, and in `warnings` until the next start.
    pub(super) fn warn(&self, text: String) {
        tracing::warn!("{text}");
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    pub(super) fn index(&self) -> Option<Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_index(&self, index: Option<Index>) {
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = index;
    }

    pub(super) fn full(&self) -> Option<&'static str> {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_full(&self, what: Option<&'static str>) {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// Marks that the log thread is inside the system, for [`super::Outbox::stalled_for`].
    pub(super) fn busy<T>(&self, call: impl FnOnce() -> T) -> T {
        let now = self.clock.now().store.0 + 1;
        self.figures.busy_since_ms.store(now, Ordering::Relaxed);
        let result = call();
        self.figures.busy_since_ms.store(0, Ordering::Relaxed);
        result
    }

    /// Where the current copy of an event stands.
    pub(super) fn place(&self, seq: Seq) -> Result<Place, ReadFault> {
        self.following(seq, || self.place_once(seq))
    }

    fn place_once(&self, seq: Seq) -> Result<Place, ReadFault> {
        let (id, known, segment) = {
            let state = self.state();
            let (id, known) = state.locate(seq).ok_or(ReadFault::Gone)?;
            (id, known, *state.segments.get(&id).ok_or(ReadFault::Gone)?)
        };
        known.map_or_else(|| self.reader.find(id, &segment, seq), Ok)
    }

    /// An event as it is stored.
    pub(super) fn read(&self, seq: Seq) -> Result<(Event, Bytes), ReadFault> {
        self.following(seq, || self.reader.read(self.place_once(seq)?))
    }

    /// Looks once more while an event that is needed seems gone: between the look at the books and that at the file, the
    /// log thread may have copied it to the tail and deleted the segment. It cannot do so again and again, so what stays
    /// gone is gone.
    fn following<T>(&self, seq: Seq, look: impl Fn() -> Result<T, ReadFault>) -> Result<T, ReadFault> {
        for _ in 0..COPIES_MAX {
            match look() {
                Err(ReadFault::Gone) if self.state().need(seq).live => {}
                other => return other,
            }
        }
        look()
    }

    /// The attempts of a pending delivery.
    pub(super) fn slip(&self, endpoint: EndpointId, seq: Seq) -> Slip {
        let (due, newest) = {
            let state = self.state();
            let Some(one) = state.endpoints.get(&endpoint) else { return Slip::default() };
            let due = one.waiting.get(&seq).copied();
            if due.is_none() && !one.returned.contains(seq) {
                return Slip::default();
            }
            (due, state.overlay.slip(endpoint, seq))
        };
        let slip = match newest {
            Some(slip) => slip.map(|slip| (*slip).clone()),
            None => self.index().and_then(|index| index.slip(endpoint, seq)),
        };
        slip.unwrap_or(Slip { due, ..Slip::default() })
    }

    /// Why a delivery is dead, and its attempts.
    pub(super) fn letter(&self, seq: Seq, endpoint: EndpointId) -> Option<Letter> {
        let newest = self.state().overlay.letter(seq, endpoint);
        match newest {
            Some(letter) => letter.map(|letter| (*letter).clone()),
            None => self.index().and_then(|index| index.letter(seq, endpoint)),
        }
    }
}
