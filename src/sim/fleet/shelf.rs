//! The outbox of one box of a fleet: what [`super::super::store`] models, in eight bytes per event.
//!
//! Days of events of hundreds of boxes must fit into memory, so an event that nothing has happened to is its time of
//! acceptance and a mark; only what has been attempted keeps its counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::core::delivery::{End, Progress, Settlement, State, Transition};
use crate::core::dispatcher::{Loaded, LoadedWaiting};
use crate::core::ids::Seq;
use crate::core::route::Terms;
use crate::core::time::StoreTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Pending,
    Waiting,
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Milliseconds; a run is far shorter than the 49 days that fit.
    accepted_ms: u32,
    mark: Mark,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    /// Sequences up to this one are gone and forgotten.
    forgotten: u64,
    events: VecDeque<Entry>,
    /// Counts of those that have been attempted, and when they are due if they wait.
    attempted: BTreeMap<Seq, (Progress, Option<StoreTime>)>,
    waiting: BTreeSet<(StoreTime, Seq)>,
}

impl Shelf {
    /// Take an event on.
    pub(super) fn append(&mut self, now: StoreTime) -> Seq {
        let accepted_ms = u32::try_from(now.0).unwrap_or(u32::MAX);
        self.events.push_back(Entry { accepted_ms, mark: Mark::Pending });
        self.newest()
    }

    /// Newest sequence.
    pub(super) fn newest(&self) -> Seq {
        Seq(self.forgotten + self.events.len() as u64)
    }

    fn entry_mut(&mut self, seq: Seq) -> Option<&mut Entry> {
        self.events.get_mut(seq.0.checked_sub(self.forgotten + 1)? as usize)
    }

    fn accepted(&self, seq: Seq) -> StoreTime {
        let entry = seq.0.checked_sub(self.forgotten + 1).and_then(|index| self.events.get(index as usize));
        StoreTime(entry.map_or(0, |entry| u64::from(entry.accepted_ms)))
    }

    fn progress(&self, seq: Seq) -> Progress {
        self.attempted.get(&seq).map(|(progress, _)| progress.clone()).unwrap_or_default()
    }

    /// Pending deliveries after `after`, where the scan ended, and whether nothing lies beyond.
    pub(super) fn page(&self, after: Seq, limit: usize) -> (Vec<Loaded>, Seq, bool) {
        let from = after.0.max(self.forgotten);
        let skip = ((from - self.forgotten) as usize).min(self.events.len());
        let page: Vec<Loaded> = (from + 1..)
            .zip(self.events.range(skip..))
            .filter(|(_, entry)| entry.mark == Mark::Pending)
            .take(limit)
            .map(|(seq, entry)| Loaded {
                seq: Seq(seq),
                accepted: StoreTime(u64::from(entry.accepted_ms)),
                progress: self.progress(Seq(seq)),
                terms: Terms::default(),
            })
            .collect();
        let end = page.len() < limit;
        let scanned_to = if end { self.newest() } else { page.last().map_or(after, |loaded| loaded.seq) };
        (page, scanned_to, end)
    }

    /// Waits in due order up to `until`, and up to when the answer is complete.
    pub(super) fn scheduled(&self, until: StoreTime, limit: usize) -> (Vec<LoadedWaiting>, StoreTime) {
        let waits: Vec<LoadedWaiting> = self
            .waiting
            .range(..=(until, Seq(u64::MAX)))
            .take(limit)
            .map(|(due, seq)| LoadedWaiting {
                seq: *seq,
                due: *due,
                accepted: self.accepted(*seq),
                progress: self.progress(*seq),
                terms: Terms::default(),
            })
            .collect();
        let complete = if waits.len() < limit { until } else { waits.last().map_or(until, |wait| wait.due) };
        (waits, complete)
    }

    /// Write a settlement; impossible ones stop the run, as everywhere.
    pub(super) fn settle(&mut self, seq: Seq, settlement: Settlement) {
        let due = self.attempted.get(&seq).and_then(|(_, due)| *due);
        let before = due.map_or(State::Pending, State::Waiting);
        if let Some(due) = due {
            self.waiting.remove(&(due, seq));
        }
        let (transition, progress) = match settlement {
            Settlement::RetryAt { due, progress } => (Transition::RetryAt(due), Some(progress)),
            Settlement::Returned { progress } => (Transition::Returned, Some(progress)),
            Settlement::Delivered { .. } => (Transition::End(End::Delivered), None),
            Settlement::Dead { .. } => (Transition::Dead, None),
            Settlement::Expired => (Transition::End(End::Expired), None),
            Settlement::Superseded => (Transition::End(End::Superseded), None),
        };
        let after = before.apply(transition).expect("invariant: only drawn transitions are settled");
        let mark = match after {
            State::Pending => Mark::Pending,
            State::Waiting(due) => {
                self.waiting.insert((due, seq));
                Mark::Waiting
            }
            State::Dead | State::Ended(_) => Mark::Gone,
        };
        match progress {
            Some(progress) => {
                let due = if let State::Waiting(due) = after { Some(due) } else { None };
                self.attempted.insert(seq, (progress, due));
            }
            None => drop(self.attempted.remove(&seq)),
        }
        if let Some(entry) = self.entry_mut(seq) {
            entry.mark = mark;
        }
        while self.events.front().is_some_and(|entry| entry.mark == Mark::Gone) {
            self.events.pop_front();
            self.forgotten += 1;
        }
    }
}
