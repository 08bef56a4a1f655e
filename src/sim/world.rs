//! One appliance among receivers that fail in every way, with crashes, power cuts and clocks that step.
//!
//! A seed picks the endpoints, their faults (some kinds are switched off altogether in each run, so that rare
//! combinations occur) and every moment. After each step the promises are checked; a broken one comes back as a
//! [`Violation`]. Then the faults stop, and everything must settle within [`SETTLE_WITHIN`] of virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::Trace;
use super::receiver::{KINDS, Mood, Receiver};
use super::store::{ModelStore, Stored};
use crate::core::classify::Outcome;
use crate::core::delivery::{End, FailureClass, Settlement, State};
use crate::core::dispatcher::{
    Action, Dispatcher, EndpointStatus, Loaded, LoadedWaiting, READY_MAX, REDRIVES_MAX, WAITING_MAX,
};
use crate::core::ids::{EndpointId, Seq};
use crate::core::policy::PolicyKind;
use crate::core::time::{Now, StoreTime, UnixMillis};

/// Virtual time after the faults in which everything must have settled.
pub const SETTLE_WITHIN: Duration = Duration::from_hours(3);
/// Most steps of one run; more means that it spins.
const STEPS_MAX: u64 = 400_000;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {at_ms} ms: {what}")]
pub struct Violation {
    /// Virtual time.
    pub at_ms: u64,
    /// Which promise, with its numbers.
    pub what: String,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Hash of everything that happened.
    pub trace: u64,
    /// Deliveries taken on.
    pub accepted: u64,
    /// Deliveries done.
    pub delivered: u64,
    /// Dead letters at the end.
    pub dead: u64,
    /// Attempts made.
    pub attempts: u64,
    /// Crashes.
    pub crashes: u64,
    /// Holds seen.
    pub holds: u64,
    /// Virtual time it took to settle after the faults.
    pub settled_after_ms: u64,
}

#[derive(Clone, Debug)]
enum Happening {
    Append {
        count: u64,
    },
    Mood {
        endpoint: EndpointId,
        mood: Mood,
    },
    Page {
        boot: u64,
        endpoint: EndpointId,
        page: Vec<Loaded>,
        scanned_to: Seq,
        end: bool,
    },
    Scheduled {
        boot: u64,
        endpoint: EndpointId,
        waits: Vec<LoadedWaiting>,
        complete: StoreTime,
    },
    ReadFailed {
        boot: u64,
        endpoint: EndpointId,
        page: bool,
    },
    Outcome {
        boot: u64,
        endpoint: EndpointId,
        seq: Seq,
        outcome: Outcome,
        latency_ms: u64,
    },
    Written {
        boot: u64,
        endpoint: EndpointId,
        seq: Seq,
        settlement: Settlement,
    },
    Crash {
        power: bool,
    },
    /// The process is up again; store time has missed so much.
    Boot {
        missed_ms: u64,
    },
    Clock {
        step_ms: i64,
        trusted: bool,
    },
    Operator {
        endpoint: EndpointId,
        what: u32,
    },
    Redrive {
        endpoint: EndpointId,
    },
    Discard {
        endpoint: EndpointId,
    },
    FaultsStop,
}

/// The world. See the module's documentation.
#[derive(Debug)]
pub struct World {
    rng: Pcg64,
    dispatcher: Option<Dispatcher>,
    store: ModelStore,
    receivers: BTreeMap<EndpointId, Receiver>,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    serial: u64,
    now_ms: u64,
    /// Virtual time minus store time.
    store_behind_ms: u64,
    wall_ahead_ms: i64,
    wall_trusted: bool,
    boot: u64,
    running: BTreeMap<(EndpointId, Seq), bool>,
    calm: bool,
    trace: Trace,
    attempts: u64,
    crashes: u64,
    holds: u64,
    settle_since_ms: u64,
}

/// Run one seed from beginning to end.
pub fn run(seed: u64) -> Result<Summary, Violation> {
    let mut world = World::new(seed);
    world.play()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        let ids: Vec<EndpointId> = (1..=rng.random_range(1..=3)).map(EndpointId).collect();
        let receivers = ids.iter().map(|id| (*id, Receiver::draw(&mut rng))).collect();
        let mut world = Self {
            dispatcher: None,
            store: ModelStore::new(&ids, true),
            receivers,
            heap: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            serial: 0,
            now_ms: 0,
            store_behind_ms: 0,
            wall_ahead_ms: 0,
            wall_trusted: rng.random(),
            boot: 0,
            running: BTreeMap::new(),
            calm: false,
            trace: Trace::default(),
            attempts: 0,
            crashes: 0,
            holds: 0,
            settle_since_ms: 0,
            rng,
        };
        world.script();
        world
    }

    /// Draw everything that will happen from outside.
    fn script(&mut self) {
        let length_ms = self.rng.random_range(60_000..3_600_000);
        let switched_on: u32 = self.rng.random();
        let kinds: Vec<u32> = (0..KINDS).filter(|kind| switched_on >> kind & 1 == 1).collect();
        self.at(0, Happening::Boot { missed_ms: 0 });
        for _ in 0..self.rng.random_range(5..60) {
            let at = self.rng.random_range(0..length_ms);
            let count = if self.rng.random_range(0..10) == 0 {
                self.rng.random_range(20..150)
            } else {
                self.rng.random_range(1..10)
            };
            self.at(at, Happening::Append { count });
        }
        for endpoint in self.receivers.keys().copied().collect::<Vec<_>>() {
            for _ in 0..self.rng.random_range(0..8) {
                let start = self.rng.random_range(0..length_ms);
                let end = start + self.rng.random_range(1_000..900_000);
                if kinds.is_empty() {
                    break;
                }
                let kind = kinds[self.rng.random_range(0..kinds.len())];
                let mood = Mood::of(kind, &mut self.rng);
                self.at(start, Happening::Mood { endpoint, mood });
                self.at(end.min(length_ms), Happening::Mood { endpoint, mood: Mood::Well });
            }
            for _ in 0..self.rng.random_range(0..4) {
                let at = self.rng.random_range(0..length_ms);
                let what = self.rng.random_range(0..4);
                self.at(at, Happening::Operator { endpoint, what });
            }
            for _ in 0..self.rng.random_range(0..3) {
                let at = self.rng.random_range(0..length_ms);
                self.at(at, Happening::Redrive { endpoint });
                let at = self.rng.random_range(0..length_ms);
                self.at(at, Happening::Discard { endpoint });
            }
        }
        for _ in 0..self.rng.random_range(0..4) {
            let at = self.rng.random_range(0..length_ms);
            let power = self.rng.random();
            self.at(at, Happening::Crash { power });
            let step_ms = self.rng.random_range(-86_400_000..315_360_000_000);
            let trusted = self.rng.random();
            let at = self.rng.random_range(0..length_ms);
            self.at(at, Happening::Clock { step_ms, trusted });
        }
        self.at(length_ms, Happening::FaultsStop);
    }

    fn at(&mut self, at_ms: u64, happening: Happening) {
        self.serial += 1;
        self.heap.push(Reverse((at_ms.max(self.now_ms), self.serial)));
        self.happenings.insert(self.serial, happening);
    }

    fn after(&mut self, from: u64, to: u64, happening: Happening) {
        let delay = if self.calm { from } else { self.rng.random_range(from..to) };
        self.at(self.now_ms + delay, happening);
    }

    fn play(&mut self) -> Result<Summary, Violation> {
        let mut steps = 0;
        while !self.done() {
            steps += 1;
            if steps > STEPS_MAX {
                return Err(self.broken("the run spins".to_owned()));
            }
            self.step()?;
            self.carry_out()?;
            self.check()?;
            let limit = self.settle_since_ms + SETTLE_WITHIN.as_millis() as u64;
            if self.calm && self.now_ms > limit {
                let open: usize = self.receivers.keys().map(|id| self.store.open(*id)).sum();
                return Err(self.broken(format!("{open} deliveries have not settled after the faults")));
            }
        }
        self.check_ends()?;
        Ok(self.summary())
    }

    fn done(&self) -> bool {
        self.calm && self.running.is_empty() && self.receivers.keys().all(|id| self.store.open(*id) == 0)
    }

    /// Go to the next happening or wake-up, whichever is first.
    fn step(&mut self) -> Result<(), Violation> {
        let wake = self
            .dispatcher
            .as_ref()
            .and_then(Dispatcher::next_wake)
            .map(|at| at.0.saturating_add(self.store_behind_ms));
        let next = self.heap.peek().map(|Reverse((at, _))| *at);
        if let Some(wake) = wake
            && next.is_none_or(|next| wake < next)
        {
            if wake <= self.now_ms {
                return Err(self.broken("a wake-up is due though everything was polled".to_owned()));
            }
            self.now_ms = wake;
            return Ok(());
        }
        let Some(Reverse((at, serial))) = self.heap.pop() else {
            return Err(self.broken("nothing will ever happen again".to_owned()));
        };
        self.now_ms = at;
        self.trace.note(at);
        if let Some(happening) = self.happenings.remove(&serial) {
            self.happen(happening);
        }
        Ok(())
    }

    fn store_now(&self) -> StoreTime {
        StoreTime(self.now_ms - self.store_behind_ms)
    }

    fn now(&self) -> Now {
        let wall = UnixMillis(1_764_547_200_000 + self.now_ms.cast_signed() + self.wall_ahead_ms);
        Now { store: self.store_now(), wall, wall_trusted: self.wall_trusted }
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.store_now();
        match happening {
            Happening::Append { .. } | Happening::Redrive { .. } | Happening::Discard { .. }
                if self.dispatcher.is_none() => {} // nobody is there to take it
            Happening::Append { count } => {
                for _ in 0..count {
                    let seq = self.store.append(now);
                    self.maybe_poison(seq);
                }
                if let Some(dispatcher) = &mut self.dispatcher {
                    dispatcher.handle_appended(self.store.newest(), now);
                }
            }
            Happening::Mood { endpoint, mood } => {
                if let Some(receiver) = self.receivers.get_mut(&endpoint).filter(|_| !self.calm) {
                    receiver.mood = mood;
                }
            }
            Happening::Page { boot, endpoint, page, scanned_to, end } if boot == self.boot => {
                if let Some(dispatcher) = &mut self.dispatcher {
                    dispatcher.handle_page(endpoint, page, scanned_to, end, now);
                }
            }
            Happening::Scheduled { boot, endpoint, waits, complete } if boot == self.boot => {
                if let Some(dispatcher) = &mut self.dispatcher {
                    dispatcher.handle_scheduled(endpoint, waits, complete, now);
                }
            }
            Happening::ReadFailed { boot, endpoint, page } if boot == self.boot => {
                if let Some(dispatcher) = &mut self.dispatcher {
                    if page {
                        dispatcher.handle_page_failed(endpoint, now);
                    } else {
                        dispatcher.handle_scheduled_failed(endpoint, now);
                    }
                }
            }
            Happening::Outcome { boot, endpoint, seq, outcome, latency_ms } => {
                self.outcome(boot, endpoint, seq, &outcome, latency_ms);
            }
            Happening::Written { boot, endpoint, seq, settlement } if boot == self.boot => {
                let alive = self
                    .store
                    .get(endpoint, seq)
                    .is_some_and(|stored| !matches!(stored.state, State::Ended(_)));
                if alive {
                    self.store.settle(endpoint, seq, settlement, now);
                }
                if let Some(dispatcher) = &mut self.dispatcher {
                    dispatcher.handle_settled(endpoint, seq, now);
                }
            }
            Happening::Page { .. }
            | Happening::Scheduled { .. }
            | Happening::ReadFailed { .. }
            | Happening::Written { .. } => {} // of a process that has crashed since
            Happening::Crash { power } => self.crash(power),
            Happening::Boot { missed_ms } => {
                self.store_behind_ms += missed_ms;
                self.boot();
            }
            Happening::Clock { step_ms, trusted } => {
                self.wall_ahead_ms += step_ms;
                self.wall_trusted = trusted;
            }
            Happening::Operator { endpoint, what } => self.operate(endpoint, what),
            Happening::Redrive { endpoint } => self.redrive(endpoint),
            Happening::Discard { endpoint } => self.discard(endpoint),
            Happening::FaultsStop if self.dispatcher.is_none() => {
                self.at(self.now_ms + 1000, Happening::FaultsStop);
            }
            Happening::FaultsStop => self.calm_down(),
        }
    }

    fn maybe_poison(&mut self, seq: Seq) {
        if self.calm {
            return;
        }
        for receiver in self.receivers.values_mut() {
            if self.rng.random_range(0..60) == 0 {
                let statuses = [400, 500, 503, 429, 403];
                let status = statuses[self.rng.random_range(0..statuses.len())];
                receiver.poison.insert(seq, status);
            }
        }
    }

    fn outcome(&mut self, boot: u64, endpoint: EndpointId, seq: Seq, outcome: &Outcome, latency_ms: u64) {
        if let (Outcome::Response(answer), Some(receiver)) = (outcome, self.receivers.get_mut(&endpoint))
            && (200..300).contains(&answer.status)
            && answer.content_type.is_empty()
        {
            receiver.taken.insert(seq);
        }
        if boot != self.boot {
            return;
        }
        self.running.remove(&(endpoint, seq));
        let now = self.now();
        let latency = Duration::from_millis(latency_ms);
        let Some(dispatcher) = &mut self.dispatcher else { return };
        if let Some(settlement) =
            dispatcher.handle_outcome(endpoint, seq, outcome, latency, now, &mut self.rng)
        {
            self.write(endpoint, seq, settlement);
        }
    }

    fn write(&mut self, endpoint: EndpointId, seq: Seq, settlement: Settlement) {
        let boot = self.boot;
        self.after(0, 30, Happening::Written { boot, endpoint, seq, settlement });
    }

    fn crash(&mut self, power: bool) {
        if self.dispatcher.take().is_none() {
            return;
        }
        self.crashes += 1;
        self.boot += 1;
        self.running.clear();
        if power {
            let now = self.store_now();
            let rng = &mut self.rng;
            self.store.power_cut(now, || rng.random());
        }
        let down_ms = if self.calm { 1000 } else { self.rng.random_range(100..600_000) };
        // Store time goes on by the gap only if the clock could be trusted at both ends.
        let missed_ms = if self.wall_trusted { 0 } else { down_ms };
        self.at(self.now_ms + down_ms, Happening::Boot { missed_ms });
    }

    fn boot(&mut self) {
        let now = self.store_now();
        let mut dispatcher = Dispatcher::new();
        for (id, receiver) in &self.receivers {
            dispatcher.add_endpoint(*id, receiver.policy.clone(), self.store.memory(*id), now);
        }
        dispatcher.handle_clock(self.wall_trusted);
        dispatcher.handle_appended(self.store.newest(), now);
        self.dispatcher = Some(dispatcher);
    }

    fn operate(&mut self, endpoint: EndpointId, what: u32) {
        let now = self.store_now();
        let Some(dispatcher) = &mut self.dispatcher else { return };
        match what {
            0 => drop(dispatcher.handle_pause(endpoint, now)),
            1 => drop(dispatcher.handle_resume(endpoint, now)),
            2 => drop(dispatcher.handle_probe(endpoint, now)),
            _ => dispatcher.handle_link_change(now, &mut self.rng),
        }
    }

    fn redrive(&mut self, endpoint: EndpointId) {
        let dead: Vec<Seq> = self
            .store
            .deliveries(endpoint)
            .filter(|(_, stored)| stored.state == State::Dead && stored.progress.redrives < 3)
            .map(|(seq, _)| seq)
            .collect();
        let now = self.store_now();
        for seq in &dead {
            self.store.redrive(endpoint, *seq, now);
        }
        if let (Some(lowest), Some(dispatcher)) = (dead.first(), &mut self.dispatcher) {
            dispatcher.handle_redriven(endpoint, *lowest, now);
        }
    }

    /// The oldest transient dead letter goes again, if there is one that may.
    fn redrive_next(&mut self, endpoint: EndpointId) {
        let now = self.store_now();
        let may = |stored: &Stored| {
            let transient =
                stored.reason.as_ref().is_some_and(|reason| reason.class == FailureClass::Transient);
            stored.state == State::Dead && transient && stored.progress.redrives < REDRIVES_MAX
        };
        let found = self.store.deliveries(endpoint).find(|(_, stored)| may(stored)).map(|(seq, _)| seq);
        if let Some(seq) = found {
            self.store.redrive(endpoint, seq, now);
        }
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.handle_redrive(endpoint, found, now);
        }
    }

    fn discard(&mut self, endpoint: EndpointId) {
        let newest = self.store.newest().0;
        if newest == 0 {
            return;
        }
        let seq = Seq(self.rng.random_range(1..=newest));
        let now = self.store_now();
        if self.store.discard(endpoint, seq, now)
            && let Some(dispatcher) = &mut self.dispatcher
        {
            dispatcher.handle_ended(endpoint, seq);
        }
    }

    fn calm_down(&mut self) {
        self.calm = true;
        self.wall_trusted = true;
        self.settle_since_ms = self.now_ms;
        for receiver in self.receivers.values_mut() {
            receiver.mood = Mood::Well;
            receiver.poison.clear();
            receiver.latency_ms = 20;
        }
        for endpoint in self.receivers.keys().copied().collect::<Vec<_>>() {
            self.operate(endpoint, 1);
        }
    }

    /// Carry out what the dispatcher asks for, as the driver would.
    fn carry_out(&mut self) -> Result<(), Violation> {
        let now = self.store_now();
        let boot = self.boot;
        while let Some(dispatcher) = &mut self.dispatcher {
            let Some(action) = dispatcher.poll(now, &mut self.rng) else { break };
            match action {
                Action::Attempt { endpoint, seq, number, probe } => {
                    self.attempt(endpoint, seq, number, probe)?;
                }
                Action::LoadPage { endpoint, after, limit } => {
                    if !self.calm && self.rng.random_range(0..50) == 0 {
                        self.after(0, 20, Happening::ReadFailed { boot, endpoint, page: true });
                        continue;
                    }
                    // Read now, handled later: what happens in between must not confuse it.
                    let (page, scanned_to, end) = self.store.page(endpoint, after, limit);
                    self.after(0, 40, Happening::Page { boot, endpoint, page, scanned_to, end });
                }
                Action::LoadScheduled { endpoint, until, limit } => {
                    if !self.calm && self.rng.random_range(0..50) == 0 {
                        self.after(0, 20, Happening::ReadFailed { boot, endpoint, page: false });
                        continue;
                    }
                    let (waits, complete) = self.store.scheduled(endpoint, until, limit);
                    self.after(0, 40, Happening::Scheduled { boot, endpoint, waits, complete });
                }
                Action::Settle { endpoint, seq, settlement } => self.write(endpoint, seq, settlement),
                Action::Redrive { endpoint } => self.redrive_next(endpoint),
                Action::Persist { endpoint, memory } => self.store.remember(endpoint, memory),
            }
        }
        Ok(())
    }

    fn attempt(&mut self, endpoint: EndpointId, seq: Seq, number: u32, probe: bool) -> Result<(), Violation> {
        self.trace.note(u64::from(endpoint.0) << 32 | u64::from(number));
        self.trace.note(seq.0);
        self.attempts += 1;
        self.check_attempt(endpoint, seq, number, probe)?;
        self.running.insert((endpoint, seq), probe);
        let boot = self.boot;
        let calm = self.calm;
        let Some(receiver) = self.receivers.get_mut(&endpoint) else { return Ok(()) };
        let latency_ms = self.rng.random_range(1..=receiver.latency_ms);
        let (outcome, latency_ms) = receiver.answer(seq, latency_ms, calm, &mut self.rng);
        let at = self.now_ms + latency_ms;
        self.at(at, Happening::Outcome { boot, endpoint, seq, outcome, latency_ms });
        Ok(())
    }

    // --- promises ---

    fn broken(&self, what: String) -> Violation {
        Violation { at_ms: self.now_ms, what }
    }

    /// What must hold when an attempt starts.
    fn check_attempt(
        &self,
        endpoint: EndpointId,
        seq: Seq,
        number: u32,
        probe: bool,
    ) -> Result<(), Violation> {
        let of = format!("attempt {number} of {} at {}", seq.0, endpoint.0);
        if self.running.contains_key(&(endpoint, seq)) {
            return Err(self.broken(format!("{of} overlaps another")));
        }
        let Some(stored) = self.store.get(endpoint, seq) else {
            return Err(self.broken(format!("{of}: no such delivery")));
        };
        match stored.state {
            State::Pending => {}
            State::Waiting(due) if due <= self.store_now() => {}
            state => return Err(self.broken(format!("{of} though it is {state:?}"))),
        }
        let snapshot = self.dispatcher.as_ref().and_then(|it| it.snapshot(endpoint, self.store_now()));
        let Some(snapshot) = snapshot else { return Ok(()) };
        match snapshot.status {
            EndpointStatus::Up if probe => Err(self.broken(format!("{of} is a probe without a hold"))),
            EndpointStatus::Up if snapshot.in_flight > snapshot.window => {
                Err(self
                    .broken(format!("{of}: {} in flight, window {}", snapshot.in_flight, snapshot.window)))
            }
            EndpointStatus::Up => Ok(()),
            EndpointStatus::Held if probe => {
                let other = self.running.iter().any(|((id, _), probe)| *id == endpoint && *probe);
                if other { Err(self.broken(format!("{of}: a second probe"))) } else { Ok(()) }
            }
            status => Err(self.broken(format!("{of} while {status:?}"))),
        }
    }

    /// What must hold after every step.
    fn check(&mut self) -> Result<(), Violation> {
        let Some(dispatcher) = &self.dispatcher else { return Ok(()) };
        let now = self.store_now();
        let mut fault = None;
        for (id, receiver) in &mut self.receivers {
            let Some(snapshot) = dispatcher.snapshot(*id, now) else { continue };
            let held = snapshot.status == EndpointStatus::Held;
            self.holds += u64::from(held && !receiver.held);
            receiver.held = held;
            if snapshot.ready > (READY_MAX * 3 / 2) as u64 {
                fault = Some(format!("{} ready deliveries in memory", snapshot.ready));
            }
            if snapshot.retrying > (WAITING_MAX * 2) as u64 + self.store.open(*id) as u64 {
                fault = Some(format!("{} waits counted", snapshot.retrying));
            }
        }
        fault.map_or(Ok(()), |what| Err(self.broken(what)))
    }

    /// What must hold at the end.
    fn check_ends(&self) -> Result<(), Violation> {
        for (id, receiver) in &self.receivers {
            for (seq, stored) in self.store.deliveries(*id) {
                let of = format!("{} at {}", seq.0, id.0);
                if stored.progress.charged > receiver.policy.retry.attempts_max
                    && receiver.policy.kind == PolicyKind::Edge
                {
                    return Err(self.broken(format!("{of} was charged {} attempts", stored.progress.charged)));
                }
                match stored.state {
                    State::Ended(End::Delivered) if !receiver.taken.contains(&seq) => {
                        return Err(self.broken(format!("{of} counts as delivered, its receiver lacks it")));
                    }
                    State::Dead => {
                        let class = stored.reason.as_ref().map(|reason| reason.class);
                        if !matches!(
                            class,
                            Some(
                                FailureClass::Transient
                                    | FailureClass::Rejected
                                    | FailureClass::Poison
                                    | FailureClass::Expired
                            )
                        ) {
                            return Err(self.broken(format!("{of} is dead without a reason")));
                        }
                    }
                    State::Pending | State::Waiting(_) => {
                        return Err(self.broken(format!("{of} is still open")));
                    }
                    State::Ended(_) => {}
                }
            }
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary {
            trace: self.trace.hash(),
            accepted: self.store.newest().0 * self.receivers.len() as u64,
            delivered: 0,
            dead: 0,
            attempts: self.attempts,
            crashes: self.crashes,
            holds: self.holds,
            settled_after_ms: self.now_ms - self.settle_since_ms,
        };
        for id in self.receivers.keys() {
            let (delivered, dead) = self.store.ends(*id);
            summary.delivered += delivered;
            summary.dead += dead;
        }
        summary
    }
}
