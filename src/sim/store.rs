//! A model of the durable outbox: what the real store promises, in a few maps.
//!
//! Every change goes through the core's own transition function, so an impossible settlement stops the run. Writes may be
//! undone by [`ModelStore::power_cut`], as those of the last second may be in the real store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::core::delivery::{DeadReason, End, Progress, Settlement, State, Transition};
use crate::core::dispatcher::{EndpointMemory, Loaded, LoadedWaiting};
use crate::core::ids::{EndpointId, Seq};
use crate::core::route::Terms;
use crate::core::time::StoreTime;

/// One delivery as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Where in its life it is.
    pub state: State,
    /// Counts and history.
    pub progress: Progress,
    /// When its event was accepted.
    pub accepted: StoreTime,
    /// Why it is dead, if it is.
    pub reason: Option<DeadReason>,
}

#[derive(Clone, Debug, Default)]
struct Shelf {
    deliveries: BTreeMap<Seq, Stored>,
    pending: BTreeSet<Seq>,
    waiting: BTreeSet<(StoreTime, Seq)>,
    memory: EndpointMemory,
    delivered: u64,
    dead: u64,
}

/// What a settlement replaced, so that a power cut can take it back.
#[derive(Clone, Debug)]
struct Undo {
    at: StoreTime,
    endpoint: EndpointId,
    seq: Seq,
    before: Stored,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct ModelStore {
    shelves: BTreeMap<EndpointId, Shelf>,
    newest: Seq,
    /// Settlements that are not synced yet; empty unless [`ModelStore::keep_undo`].
    undo: VecDeque<Undo>,
    keep_undo: bool,
    /// Drop deliveries that have ended, to bound memory in long runs.
    forget_ended: bool,
}

/// Settlements of the last second may be lost in a power cut (DESIGN P3).
const SYNC_EVERY_MS: u64 = 1000;

impl ModelStore {
    /// A store with these endpoints. `careful` keeps everything: ended deliveries, and what a power cut may undo.
    pub fn new(endpoints: &[EndpointId], careful: bool) -> Self {
        Self {
            shelves: endpoints.iter().map(|id| (*id, Shelf::default())).collect(),
            keep_undo: careful,
            forget_ended: !careful,
            ..Self::default()
        }
    }

    /// Newest sequence.
    pub fn newest(&self) -> Seq {
        self.newest
    }

    /// Take an event on for every endpoint.
    pub fn append(&mut self, now: StoreTime) -> Seq {
        self.newest = Seq(self.newest.0 + 1);
        for shelf in self.shelves.values_mut() {
            let stored =
                Stored { state: State::Pending, progress: Progress::default(), accepted: now, reason: None };
            shelf.deliveries.insert(self.newest, stored);
            shelf.pending.insert(self.newest);
        }
        self.newest
    }

    /// Pending deliveries that do not wait, in sequence order; where the scan ended; whether nothing lies beyond.
    pub fn page(&self, endpoint: EndpointId, after: Seq, limit: usize) -> (Vec<Loaded>, Seq, bool) {
        let Some(shelf) = self.shelves.get(&endpoint) else { return (Vec::new(), after, true) };
        let page: Vec<Loaded> = shelf
            .pending
            .range(Seq(after.0 + 1)..)
            .take(limit)
            .filter_map(|seq| {
                let stored = shelf.deliveries.get(seq)?;
                Some(Loaded {
                    seq: *seq,
                    accepted: stored.accepted,
                    progress: stored.progress.clone(),
                    terms: Terms::default(),
                })
            })
            .collect();
        let end = page.len() < limit;
        let scanned_to = if end { self.newest } else { page.last().map_or(after, |loaded| loaded.seq) };
        (page, scanned_to, end)
    }

    /// Waits in due order up to `until`, and up to when the answer is complete.
    pub fn scheduled(
        &self,
        endpoint: EndpointId,
        until: StoreTime,
        limit: usize,
    ) -> (Vec<LoadedWaiting>, StoreTime) {
        let Some(shelf) = self.shelves.get(&endpoint) else { return (Vec::new(), until) };
        let waits: Vec<LoadedWaiting> = shelf
            .waiting
            .range(..=(until, Seq(u64::MAX)))
            .take(limit)
            .filter_map(|(due, seq)| {
                let stored = shelf.deliveries.get(seq)?;
                let progress = stored.progress.clone();
                Some(LoadedWaiting {
                    seq: *seq,
                    due: *due,
                    accepted: stored.accepted,
                    progress,
                    terms: Terms::default(),
                })
            })
            .collect();
        let complete = if waits.len() < limit { until } else { waits.last().map_or(until, |wait| wait.due) };
        (waits, complete)
    }

    /// Write a settlement.
    pub fn settle(&mut self, endpoint: EndpointId, seq: Seq, settlement: Settlement, now: StoreTime) {
        let (transition, progress, reason) = match settlement {
            Settlement::Delivered { progress } => (Transition::End(End::Delivered), Some(progress), None),
            Settlement::RetryAt { due, progress } => (Transition::RetryAt(due), Some(progress), None),
            Settlement::Returned { progress } => (Transition::Returned, Some(progress), None),
            Settlement::Dead { reason, progress } => (Transition::Dead, Some(progress), Some(reason)),
            Settlement::Expired => (Transition::End(End::Expired), None, None),
            Settlement::Superseded => (Transition::End(End::Superseded), None, None),
        };
        self.change(endpoint, seq, transition, progress, reason, now);
    }

    /// A person ends a delivery. False if it has ended already.
    pub fn discard(&mut self, endpoint: EndpointId, seq: Seq, now: StoreTime) -> bool {
        let alive = self.get(endpoint, seq).is_some_and(|stored| !matches!(stored.state, State::Ended(_)));
        if alive {
            self.change(endpoint, seq, Transition::End(End::Discarded), None, None, now);
        }
        alive
    }

    /// A person sends a dead letter again.
    pub fn redrive(&mut self, endpoint: EndpointId, seq: Seq, now: StoreTime) {
        let progress = self.get(endpoint, seq).map(|stored| Progress {
            charged: 0,
            redrives: stored.progress.redrives + 1,
            previous_delay: std::time::Duration::ZERO,
            ..stored.progress.clone()
        });
        self.change(endpoint, seq, Transition::Redriven, progress, None, now);
    }

    fn change(
        &mut self,
        endpoint: EndpointId,
        seq: Seq,
        transition: Transition,
        progress: Option<Progress>,
        reason: Option<DeadReason>,
        now: StoreTime,
    ) {
        let Some(shelf) = self.shelves.get_mut(&endpoint) else { return };
        let Some(stored) = shelf.deliveries.get_mut(&seq) else { return };
        if self.keep_undo {
            while self.undo.front().is_some_and(|undo| now.0 >= undo.at.0 + SYNC_EVERY_MS) {
                self.undo.pop_front();
            }
            self.undo.push_back(Undo { at: now, endpoint, seq, before: stored.clone() });
        }
        let after = stored.state.apply(transition).expect("invariant: only drawn transitions are settled");
        let mut changed = stored.clone();
        changed.state = after;
        changed.reason = reason;
        if let Some(progress) = progress {
            changed.progress = progress;
        }
        let forget = self.forget_ended && matches!(after, State::Ended(_));
        shelf.put(seq, Some(changed));
        if forget {
            shelf.deliveries.remove(&seq);
        }
    }

    /// The box loses power: settlements that were not synced are gone, each with the given fate.
    pub fn power_cut(&mut self, now: StoreTime, mut lost: impl FnMut() -> bool) {
        let undo = std::mem::take(&mut self.undo);
        // What is lost is a tail of the log, so the newest go first and the first survivor ends it.
        for Undo { at, endpoint, seq, before } in undo.into_iter().rev() {
            if now.0 >= at.0 + SYNC_EVERY_MS || !lost() {
                break;
            }
            if let Some(shelf) = self.shelves.get_mut(&endpoint) {
                shelf.put(seq, Some(before));
            }
        }
    }

    /// One delivery.
    pub fn get(&self, endpoint: EndpointId, seq: Seq) -> Option<&Stored> {
        self.shelves.get(&endpoint)?.deliveries.get(&seq)
    }

    /// All deliveries of an endpoint that are kept.
    pub fn deliveries(&self, endpoint: EndpointId) -> impl Iterator<Item = (Seq, &Stored)> {
        self.shelves
            .get(&endpoint)
            .into_iter()
            .flat_map(|shelf| &shelf.deliveries)
            .map(|(seq, stored)| (*seq, stored))
    }

    /// Deliveries that have neither ended nor died.
    pub fn open(&self, endpoint: EndpointId) -> usize {
        self.shelves.get(&endpoint).map_or(0, |shelf| shelf.pending.len() + shelf.waiting.len())
    }

    /// Deliveries that ended well, and those that are dead.
    pub fn ends(&self, endpoint: EndpointId) -> (u64, u64) {
        self.shelves.get(&endpoint).map_or((0, 0), |shelf| (shelf.delivered, shelf.dead))
    }

    /// What the dispatcher asked to remember.
    pub fn remember(&mut self, endpoint: EndpointId, memory: EndpointMemory) {
        if let Some(shelf) = self.shelves.get_mut(&endpoint) {
            shelf.memory = memory;
        }
    }

    /// What it remembers.
    pub fn memory(&self, endpoint: EndpointId) -> EndpointMemory {
        self.shelves.get(&endpoint).map_or_else(EndpointMemory::default, |shelf| shelf.memory)
    }
}

impl Shelf {
    /// Replace a delivery and keep the indexes and counts in step.
    fn put(&mut self, seq: Seq, stored: Option<Stored>) {
        if let Some(before) = self.deliveries.get(&seq) {
            match before.state {
                State::Pending => drop(self.pending.remove(&seq)),
                State::Waiting(due) => drop(self.waiting.remove(&(due, seq))),
                State::Dead => self.dead -= 1,
                State::Ended(End::Delivered) => self.delivered -= 1,
                State::Ended(_) => {}
            }
        }
        let Some(stored) = stored else { return };
        match stored.state {
            State::Pending => drop(self.pending.insert(seq)),
            State::Waiting(due) => drop(self.waiting.insert((due, seq))),
            State::Dead => self.dead += 1,
            State::Ended(End::Delivered) => self.delivered += 1,
            State::Ended(_) => {}
        }
        self.deliveries.insert(seq, stored);
    }
}
