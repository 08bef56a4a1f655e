//! The deliveries of one endpoint that are in memory, and where in their life they are.
//!
//! Every known delivery is one [`Item`] with one [`Place`]; the sets beside them are indexes in the order in which they
//! are taken. That a sequence is known at all is what makes pages and schedules safe to read again and again.
//!
//! Two lanes read the backlog: the main one from the oldest on, and, while that one is far behind, a fresh one from
//! the newest, so that live data is not stuck behind hours of drain. What the fresh lane has taken and forgotten the main
//! one meets later; what is known it skips.
//!
//! **Answers that are older than what is known.** A page was read before it is handled; meanwhile a delivery may have
//! been settled. Sequences that leave memory while a read is under way are remembered until it is handled
//! (`left_page`, `left_schedule`), so that no settled delivery comes back to life.

use std::collections::{BTreeMap, BTreeSet};

use super::super::delivery::Progress;
use super::super::ids::Seq;
use super::super::route::Terms;
use super::super::time::StoreTime;
use super::super::wheel::{TimerId, Wheel};
use super::lanes::Lanes;
use super::{Loaded, LoadedWaiting, READY_MAX, WAITING_MAX};

/// Below this a lane reads its next page.
const READY_LOW: usize = READY_MAX / 4;
/// Ready deliveries of the fresh lane; it only has to bridge the time of one read.
const FRESH_MAX: usize = READY_MAX / 4;
/// The same for an endpoint whose deliveries depend on each other: it looks further ahead, so that one device that
/// waits does not stop the others, and newer events are found that replace older ones. About 4 MiB.
const LOOK_AHEAD_MAX: usize = 8 * READY_MAX;
/// Below this the schedule is read again, if it holds more.
const WAITING_LOW: usize = WAITING_MAX / 2;
/// A main lane this far behind the newest event gets a fresh lane beside it; so does a fresh lane a new start.
const FRESH_BEHIND: u64 = 2 * READY_MAX as u64;

/// What follows when a settlement is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits.
    Wait(StoreTime),
    /// Back in line.
    Back,
    /// It has ended or is dead.
    Gone,
}

/// Where a known delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the main lane.
    Ready,
    /// In the fresh lane.
    Fresh,
    /// In the wheel.
    Waiting(TimerId, StoreTime),
    /// Its wait is over since then.
    Due(StoreTime),
    /// Its attempt runs.
    InFlight {
        /// As a probe.
        probe: bool,
    },
    /// Its settlement is being written.
    Settling(Next),
}

impl Place {
    /// Nothing is under way for it.
    fn in_line(self) -> bool {
        matches!(self, Place::Ready | Place::Fresh | Place::Waiting(..) | Place::Due(_))
    }
}

/// A known delivery.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) accepted: StoreTime,
    pub(super) progress: Progress,
    pub(super) terms: Terms,
    pub(super) place: Place,
    /// Hold number at its last attempt: an older one means that its first attempt after a hold pays nothing.
    pub(super) hold_number: u64,
    /// Its next attempt needs no token.
    pub(super) paid: bool,
    /// Free repeats since its last ordinary attempt.
    pub(super) free_repeats: u32,
    /// Streak in which `streak_charged` was charged.
    pub(super) streak_number: u64,
    /// Charges that a trip gives back.
    pub(super) streak_charged: u32,
    /// A trip wants it back as soon as its settlement is written.
    pub(super) give_back: bool,
    /// Deliveries of the endpoint that had been taken when this one first failed.
    pub(super) passed_before: Option<u64>,
    /// Its failures since.
    pub(super) failures: u32,
    /// Numbers of the last of them among the endpoint's attempts.
    pub(super) failures_noted: Vec<u64>,
    /// A person ended it while its attempt ran.
    pub(super) ended: bool,
    /// A page showed it while its last settlement was being written: it may have been redriven.
    pub(super) seen_again: bool,
}

impl Item {
    fn new(accepted: StoreTime, progress: Progress, terms: Terms, place: Place, hold_number: u64) -> Self {
        Self {
            accepted,
            progress,
            terms,
            place,
            hold_number,
            paid: false,
            free_repeats: 0,
            streak_number: 0,
            streak_charged: 0,
            give_back: false,
            passed_before: None,
            failures: 0,
            failures_noted: Vec::new(),
            ended: false,
            seen_again: false,
        }
    }
}

/// Reading position in the backlog.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    scanned_to: Seq,
    end: bool,
}

/// Which lane a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Main,
    Fresh,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Queue {
    items: BTreeMap<Seq, Item>,
    lanes: Lanes,
    /// Whether deliveries depend on each other: they are ordered by device, or newer ones replace older ones.
    linked: bool,
    /// Whether they are ordered by device.
    ordered: bool,
    ready: BTreeSet<Seq>,
    /// Ready, but an older delivery of their device goes first.
    blocked: BTreeSet<Seq>,
    fresh: BTreeSet<Seq>,
    due: BTreeSet<(StoreTime, Seq)>,
    wheel: Wheel<Seq>,
    /// Waits in the schedule that memory had no room for.
    forgotten: u64,
    main: Lane,
    fresh_lane: Option<Lane>,
    newest: Seq,
    loading: Option<Which>,
    rescan_from: Option<Seq>,
    left_page: BTreeSet<Seq>,
    loading_schedule: bool,
    left_schedule: BTreeSet<Seq>,
    /// Waits due up to here are all known.
    schedule_known_to: Option<StoreTime>,
    /// Nothing is read before, because the last read failed.
    read_again_at: StoreTime,
    /// Whether the first page has come.
    pub(super) looked: bool,
    taken: u64,
}

impl Queue {
    pub(super) fn new(now: StoreTime, ordered: bool) -> Self {
        Self {
            items: BTreeMap::new(),
            lanes: Lanes::default(),
            linked: ordered,
            ordered,
            ready: BTreeSet::new(),
            blocked: BTreeSet::new(),
            fresh: BTreeSet::new(),
            due: BTreeSet::new(),
            wheel: Wheel::new(now),
            forgotten: 0,
            main: Lane::default(),
            fresh_lane: None,
            newest: Seq(0),
            loading: None,
            rescan_from: None,
            left_page: BTreeSet::new(),
            loading_schedule: false,
            left_schedule: BTreeSet::new(),
            schedule_known_to: None,
            read_again_at: StoreTime(0),
            looked: false,
            taken: 0,
        }
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&Item> {
        self.items.get(&seq)
    }

    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Item> {
        self.items.get_mut(&seq)
    }

    pub(super) fn ready_len(&self) -> usize {
        self.ready.len() + self.blocked.len() + self.fresh.len()
    }

    /// Ready deliveries of the main lane that may be in memory.
    fn ready_max(&self) -> usize {
        if self.linked { LOOK_AHEAD_MAX } else { READY_MAX }
    }

    /// Whether the main lane should be read on: it never waits for room longer than for a quarter of it.
    fn ready_low(&self) -> bool {
        let held = self.ready.len() + self.blocked.len();
        if self.linked { held < LOOK_AHEAD_MAX - READY_MAX } else { held < READY_LOW }
    }

    /// Deliveries between attempts that are known of.
    pub(super) fn waiting_len(&self) -> usize {
        self.wheel.len() + self.due.len()
    }

    pub(super) fn retrying(&self) -> u64 {
        self.waiting_len() as u64 + self.forgotten
    }

    /// Deliveries known, and whether there are no others.
    pub(super) fn all_known(&self) -> (usize, bool) {
        let main_done = self.main.end && self.fresh_lane.is_none();
        (self.items.len(), main_done && self.forgotten == 0)
    }

    // --- reading ---

    pub(super) fn appended(&mut self, newest: Seq) {
        self.newest = self.newest.max(newest);
        self.more();
    }

    pub(super) fn more(&mut self) {
        self.main.end = false;
        if let Some(lane) = &mut self.fresh_lane {
            lane.end = false;
        }
    }

    pub(super) fn redriven(&mut self, lowest: Seq) {
        let before = Seq(lowest.0.saturating_sub(1));
        self.main.scanned_to = self.main.scanned_to.min(before);
        self.main.end = false;
        if self.loading.is_some() {
            self.rescan_from = Some(self.rescan_from.map_or(before, |other| other.min(before)));
        }
    }

    /// The page to read next, if any: after which sequence, and how many.
    pub(super) fn next_page(&mut self, now: StoreTime, up: bool) -> Option<(Seq, usize)> {
        if self.loading.is_some() || now < self.read_again_at {
            return None;
        }
        self.steer_fresh(up);
        let (which, after, limit) = match self.fresh_lane {
            Some(lane) if !lane.end && self.fresh.len() < FRESH_MAX / 2 => {
                (Which::Fresh, lane.scanned_to, FRESH_MAX - self.fresh.len())
            }
            _ if !self.main.end && self.ready_low() => {
                let room = self.ready_max().saturating_sub(self.ready.len() + self.blocked.len());
                (Which::Main, self.main.scanned_to, room.clamp(1, READY_MAX))
            }
            _ => return None,
        };
        self.loading = Some(which);
        self.left_page.clear();
        Some((after, limit))
    }

    /// Open, move or close the fresh lane. A held endpoint needs none.
    fn steer_fresh(&mut self, up: bool) {
        match &mut self.fresh_lane {
            None => {
                let behind = self.newest.0.saturating_sub(self.main.scanned_to.0);
                if up && !self.ordered && self.looked && !self.main.end && behind > FRESH_BEHIND {
                    self.fresh_lane = Some(Lane { scanned_to: self.newest, end: true });
                }
            }
            Some(lane) if self.main.scanned_to >= lane.scanned_to => self.close_fresh(),
            Some(lane) if self.newest.0.saturating_sub(lane.scanned_to.0) > FRESH_BEHIND => {
                // Too much arrives for its share: what it read is left to the main lane, it starts again at the top.
                *lane = Lane { scanned_to: self.newest, end: true };
                for seq in std::mem::take(&mut self.fresh) {
                    if seq > self.main.scanned_to {
                        if let Some(item) = self.items.remove(&seq) {
                            self.lanes.leave(seq, item.accepted, &item.terms);
                        }
                    } else {
                        self.ready.insert(seq);
                        if let Some(item) = self.items.get_mut(&seq) {
                            item.place = Place::Ready;
                        }
                    }
                }
            }
            Some(_) => {}
        }
    }

    fn close_fresh(&mut self) {
        self.fresh_lane = None;
        for seq in std::mem::take(&mut self.fresh) {
            self.ready.insert(seq);
            if let Some(item) = self.items.get_mut(&seq) {
                item.place = Place::Ready;
            }
        }
    }

    pub(super) fn page(&mut self, page: Vec<Loaded>, scanned_to: Seq, end: bool, hold_number: u64) {
        let Some(which) = self.loading.take() else { return };
        self.looked = true;
        let place = if which == Which::Main { Place::Ready } else { Place::Fresh };
        for loaded in page {
            if let Some(item) = self.items.get_mut(&loaded.seq) {
                item.seen_again |= item.place == Place::Settling(Next::Gone);
            } else if !self.left_page.contains(&loaded.seq) {
                self.admit(loaded.seq, loaded.accepted, loaded.progress, loaded.terms, place, hold_number);
            }
        }
        self.left_page.clear();
        let newest = self.newest;
        let lane = match which {
            Which::Main => Some(&mut self.main),
            Which::Fresh => self.fresh_lane.as_mut(),
        };
        if let Some(lane) = lane {
            lane.scanned_to = lane.scanned_to.max(scanned_to);
            // An append that was announced while the page was read may not be in it.
            lane.end = end && lane.scanned_to >= newest;
        }
        if end {
            self.newest = self.newest.max(scanned_to);
        }
        if let Some(from) = self.rescan_from.take() {
            self.main.scanned_to = self.main.scanned_to.min(from);
            self.main.end = false;
        }
    }

    pub(super) fn page_failed(&mut self, again_at: StoreTime) {
        self.loading = None;
        self.rescan_from = None;
        self.read_again_at = again_at;
    }

    /// The part of the schedule to read next: up to when, and how many.
    pub(super) fn next_schedule(
        &mut self,
        now: StoreTime,
        horizon: std::time::Duration,
    ) -> Option<(StoreTime, usize)> {
        if self.loading_schedule || now < self.read_again_at || self.schedule_refill_at(horizon)? > now {
            return None;
        }
        self.loading_schedule = true;
        self.left_schedule.clear();
        Some((now + horizon, WAITING_MAX))
    }

    /// When the schedule must be read again; `None` while memory has no room for more of it.
    fn schedule_refill_at(&self, horizon: std::time::Duration) -> Option<StoreTime> {
        if self.waiting_len() >= WAITING_LOW {
            return None;
        }
        Some(self.schedule_known_to.map_or(StoreTime(0), |known| known - horizon / 2))
    }

    pub(super) fn scheduled(
        &mut self,
        waits: Vec<LoadedWaiting>,
        complete_until: StoreTime,
        hold_number: u64,
    ) {
        if !std::mem::take(&mut self.loading_schedule) {
            return;
        }
        self.schedule_known_to = Some(complete_until);
        for wait in waits {
            if self.items.contains_key(&wait.seq) || self.left_schedule.contains(&wait.seq) {
                continue;
            }
            self.forgotten = self.forgotten.saturating_sub(1);
            let timer = self.wheel.insert(wait.due, wait.seq);
            let place = Place::Waiting(timer, wait.due);
            self.admit(wait.seq, wait.accepted, wait.progress, wait.terms, place, hold_number);
        }
        self.left_schedule.clear();
    }

    pub(super) fn schedule_failed(&mut self, again_at: StoreTime) {
        self.loading_schedule = false;
        self.read_again_at = again_at;
    }

    /// Whether every wait of the schedule has been read once; an ordered endpoint starts nothing before.
    pub(super) fn order_known(&self) -> bool {
        !self.ordered || self.schedule_known_to.is_some()
    }

    // --- moving ---

    fn admit(
        &mut self,
        seq: Seq,
        accepted: StoreTime,
        progress: Progress,
        terms: Terms,
        place: Place,
        hold_number: u64,
    ) {
        let order = terms.order.filter(|_| self.ordered && progress.redrives == 0);
        let terms = Terms { order, ..terms };
        self.linked |= terms.replaces.is_some();
        // An older delivery of the device that comes late (its wait was read after its page) takes the head's place.
        let head = if self.ordered { self.lanes.head(&terms).filter(|head| *head > seq) } else { None };
        self.lanes.enter(seq, accepted, &terms);
        self.items.insert(seq, Item::new(accepted, progress, terms, place, hold_number));
        self.index(seq, place);
        if let Some(head) = head
            && self.ready.remove(&head)
        {
            self.blocked.insert(head);
        }
    }

    /// Waits that are over become due.
    pub(super) fn advance(&mut self, now: StoreTime) {
        if self.wheel.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        let mut fired = Vec::new();
        self.wheel.advance(now, &mut fired);
        for (due, seq) in fired {
            self.place(seq, Place::Due(due));
        }
    }

    fn index(&mut self, seq: Seq, place: Place) {
        match place {
            Place::Ready if self.items.get(&seq).is_some_and(|item| self.lanes.blocked(seq, &item.terms)) => {
                self.blocked.insert(seq);
            }
            Place::Ready => drop(self.ready.insert(seq)),
            Place::Fresh => drop(self.fresh.insert(seq)),
            Place::Due(due) => drop(self.due.insert((due, seq))),
            Place::Waiting(..) | Place::InFlight { .. } | Place::Settling(_) => {}
        }
    }

    /// Put a known delivery somewhere else.
    pub(super) fn place(&mut self, seq: Seq, place: Place) {
        let Some(item) = self.items.get_mut(&seq) else { return };
        match std::mem::replace(&mut item.place, place) {
            Place::Ready => drop(self.ready.remove(&seq) || self.blocked.remove(&seq)),
            Place::Fresh => drop(self.fresh.remove(&seq)),
            Place::Due(due) => drop(self.due.remove(&(due, seq))),
            Place::Waiting(timer, _) => drop(self.wheel.cancel(timer)),
            Place::InFlight { .. } | Place::Settling(_) => {}
        }
        self.index(seq, place);
    }

    /// Its settlement is written and says that it waits. It may have to leave memory for the schedule.
    pub(super) fn wait(&mut self, seq: Seq, due: StoreTime) {
        if self.waiting_len() >= WAITING_MAX {
            self.remove(seq);
            self.forgotten += 1;
            let before = StoreTime(due.0.saturating_sub(1));
            self.schedule_known_to = self.schedule_known_to.map(|known| known.min(before));
            return;
        }
        let timer = self.wheel.insert(due, seq);
        self.place(seq, Place::Waiting(timer, due));
    }

    /// Forget a delivery.
    pub(super) fn remove(&mut self, seq: Seq) {
        self.place(seq, Place::Settling(Next::Gone));
        let Some(item) = self.items.remove(&seq) else { return };
        if let Some(next) = self.lanes.leave(seq, item.accepted, &item.terms)
            && self.blocked.remove(&next)
        {
            self.ready.insert(next);
        }
        if self.loading.is_some() {
            self.left_page.insert(seq);
        }
        if self.loading_schedule {
            self.left_schedule.insert(seq);
        }
        if item.seen_again {
            self.redriven(seq);
        }
    }

    // --- ending by themselves ---

    /// A delivery in line that a newer one has replaced. One that runs is seen to when it comes back.
    pub(super) fn next_replaced(&mut self) -> Option<Seq> {
        while let Some(seq) = self.lanes.next_replaced() {
            if self.items.get(&seq).is_some_and(|item| item.place.in_line()) {
                return Some(seq);
            }
        }
        None
    }

    /// A delivery in line that is worth nothing any more.
    pub(super) fn next_outlived(&mut self, now: StoreTime) -> Option<Seq> {
        while let Some((at, seq)) = self.lanes.first_end().filter(|(at, _)| *at < now) {
            self.lanes.end_seen(at, seq);
            if self.items.get(&seq).is_some_and(|item| item.place.in_line()) {
                return Some(seq);
            }
        }
        None
    }

    /// When the next delivery is worth nothing any more.
    pub(super) fn first_end(&self) -> Option<StoreTime> {
        self.lanes.first_end().map(|(at, _)| at)
    }

    /// It is in line again: what was put off while its attempt ran may be due now.
    pub(super) fn back_in_line(&mut self, seq: Seq) {
        let Some(item) = self.items.get(&seq) else { return };
        let (accepted, terms) = (item.accepted, item.terms);
        self.lanes.watch_end(seq, accepted, &terms);
        if self.lanes.is_replaced(seq, &terms) {
            self.lanes.replaced_again(seq);
        }
    }

    // --- choosing ---

    /// The first wait that is over, in order of due time.
    pub(super) fn first_due(&self) -> Option<Seq> {
        self.due.first().map(|(_, seq)| *seq)
    }

    /// The next first attempt: three of the backlog for each fresh one (DESIGN 5.6), oldest first in each lane.
    pub(super) fn next_ready(&mut self) -> Option<Seq> {
        let (main, fresh) = (self.ready.first().copied(), self.fresh.first().copied());
        let chosen = match (main, fresh) {
            (Some(main), Some(fresh)) => {
                if self.taken.is_multiple_of(4) {
                    fresh
                } else {
                    main
                }
            }
            (main, fresh) => main.or(fresh)?,
        };
        self.taken += 1;
        Some(chosen)
    }

    /// The oldest ready delivery: the first to outlive its retry window.
    pub(super) fn oldest_ready(&self) -> Option<(Seq, StoreTime)> {
        let seq = *self.ready.first()?;
        Some((seq, self.items.get(&seq)?.accepted))
    }

    /// The next candidate of a probe after `last`, in order of acceptance and round about; from the newest if `newest`.
    pub(super) fn candidate(&self, last: Option<Seq>, newest: bool) -> Option<Seq> {
        if newest {
            return self
                .ready
                .last()
                .copied()
                .filter(|seq| Some(*seq) != last)
                .or_else(|| self.candidate(last, false));
        }
        let after = last.map_or(Seq(0), |seq| Seq(seq.0 + 1));
        let pick = |from: Seq| {
            let ready = self.ready.range(from..).next().copied();
            let fresh = self.fresh.range(from..).next().copied();
            // Due waits are few beside a backlog; those of the streak have been given back.
            let due = self.due.iter().map(|(_, seq)| *seq).filter(|seq| *seq >= from).min();
            [ready, fresh, due].into_iter().flatten().min()
        };
        pick(after).or_else(|| pick(Seq(0)))
    }

    /// Whether anything could be attempted now.
    pub(super) fn has_candidate(&self) -> bool {
        !(self.ready.is_empty() && self.fresh.is_empty() && self.due.is_empty())
    }

    /// When something changes here by time alone.
    pub(super) fn next_wake(&self, horizon: std::time::Duration, stopped: bool) -> Option<StoreTime> {
        let refill = if self.loading_schedule { None } else { self.schedule_refill_at(horizon) };
        let unread = !stopped && self.loading.is_none() && !self.main.end && self.ready_low();
        let again = unread.then_some(self.read_again_at);
        [self.wheel.next_deadline(), refill.map(|at| at.max(self.read_again_at)), again]
            .into_iter()
            .flatten()
            .min()
    }
}
