//! Many appliances and one receiver with a capacity: what an outage and the drain after it cost under a policy.
//!
//! Events come at random moments at a fixed mean rate. The receiver serves one request after another; a request that
//! would have to wait longer than [`Scenario::queue`] is refused with 503, which costs it a part of the work of serving one
//! (that part is what keeps an overloaded server down). During the outage it fails in the way the scenario says.
//! Storage takes no time here; the dispatcher is the appliance's own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::store::ModelStore;
use crate::core::classify::{Answer, Outcome, TransportKind};
use crate::core::delivery::{FailureClass, Settlement};
use crate::core::dispatcher::{Action, Dispatcher, EndpointMemory};
use crate::core::ids::{EndpointId, Seq};
use crate::core::policy::{EndpointPolicy, PolicyKind, WhenEmpty};
use crate::core::time::{Now, StoreTime, UnixMillis};

/// The one endpoint of each appliance.
const ENDPOINT: EndpointId = EndpointId(1);
/// Backlog share that counts as drained (RETRY 3.5: the finish line is 2 % left).
const DRAINED_SHARE: f64 = 0.02;

/// How the receiver fails during the outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections are refused.
    Refuses,
    /// It answers 503.
    Answers503,
    /// It takes the request and never answers.
    Hangs,
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Boxes.
    pub appliances: u32,
    /// Events a second and box, on average.
    pub rate_per_s: f64,
    /// Whether events come at equal distances rather than at random.
    pub regular: bool,
    /// Healthy time before the outage.
    pub warm_up: Duration,
    /// Length of the outage.
    pub outage: Duration,
    /// How it fails.
    pub outage_kind: Outage,
    /// Requests a second that the receiver can serve.
    pub capacity_per_s: f64,
    /// Work of a refusal, as a share of serving.
    pub refusal_cost: f64,
    /// Longest wait in the receiver before it refuses.
    pub queue: Duration,
    /// Network round trip.
    pub round_trip: Duration,
    /// Give up on the drain after this.
    pub drain_max: Duration,
    /// Delivery policy of every box.
    pub policy: EndpointPolicy,
    /// Attempt timeout.
    pub timeout: Duration,
    /// Seed of everything.
    pub seed: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            appliances: 1,
            rate_per_s: 10.0,
            regular: false,
            warm_up: Duration::from_secs(30),
            outage: Duration::from_mins(10),
            outage_kind: Outage::Refuses,
            capacity_per_s: 500.0,
            refusal_cost: 0.1,
            queue: Duration::from_millis(250),
            round_trip: Duration::from_millis(20),
            drain_max: Duration::from_hours(1),
            policy: EndpointPolicy::default(),
            timeout: Duration::from_secs(10),
            seed: 1,
        }
    }
}

/// What it came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Events taken on before the end of the outage, during it, and in all.
    pub accepted: u64,
    /// Events accepted during the outage.
    pub accepted_in_outage: u64,
    /// Delivered in all.
    pub delivered: u64,
    /// Dead letters in all.
    pub dead: u64,
    /// Dead because the retry budget was empty, of events accepted in the outage.
    pub shed_in_outage: u64,
    /// Dead because their attempts were used up, of events accepted in the outage.
    pub exhausted_in_outage: u64,
    /// Attempts during the outage.
    pub attempts_in_outage: u64,
    /// Attempts in all.
    pub attempts: u64,
    /// Pending at the end of the outage.
    pub backlog: u64,
    /// From the end of the outage to the first success.
    pub noticed_after: Option<Duration>,
    /// From the end of the outage until 2 % of the backlog is left.
    pub drained_after: Option<Duration>,
    /// From the end of the outage until nothing is left of it.
    pub empty_after: Option<Duration>,
    /// The shortest possible drain: backlog over what the capacity leaves beside new events.
    pub ideal: Duration,
    /// Most requests in one second of the drain.
    pub peak_per_s: u64,
    /// Most attempts of one box in flight in the first second after it noticed.
    pub first_second_in_flight: u32,
    /// Requests served and refused in the drain.
    pub served: u64,
    /// See `served`.
    pub refused: u64,
}

#[derive(Debug)]
enum Happening {
    Arrival(usize),
    Outcome { index: usize, seq: Seq, outcome: Outcome, latency: Duration },
    Wake(usize),
}

#[derive(Debug)]
struct Appliance {
    dispatcher: Dispatcher,
    store: ModelStore,
    wake_at: Option<u64>,
    noticed_at: Option<u64>,
}

struct Fleet<'a> {
    scenario: &'a Scenario,
    rng: Pcg64,
    boxes: Vec<Appliance>,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: std::collections::HashMap<u64, Happening>,
    serial: u64,
    now_ms: u64,
    down_ms: u64,
    up_ms: u64,
    /// Work that the receiver has taken on, as the moment when it is done, in seconds.
    busy_until_s: f64,
    bin: (u64, u64),
    report: Report,
    open: u64,
    newest_of_outage: Vec<(Seq, Seq)>,
}

/// The article's policy with its numbers, as one dispatcher without a limit on attempts at once.
pub fn article() -> EndpointPolicy {
    let mut policy =
        EndpointPolicy { kind: PolicyKind::Article, in_flight_max: 1_000_000, ..EndpointPolicy::default() };
    policy.budget.when_empty = WhenEmpty::DeadLetter;
    policy.retry.retrying_max = usize::MAX;
    policy
}

/// Run a scenario.
pub fn run(scenario: &Scenario) -> Report {
    Fleet::new(scenario).play()
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

impl<'a> Fleet<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let count = scenario.appliances as usize;
        let boxes = (0..count)
            .map(|_| {
                let mut dispatcher = Dispatcher::new();
                let memory = EndpointMemory::default();
                dispatcher.add_endpoint(ENDPOINT, scenario.policy.clone(), memory, StoreTime(0));
                dispatcher.handle_clock(true);
                let store = ModelStore::new(&[ENDPOINT], false);
                Appliance { dispatcher, store, wake_at: None, noticed_at: None }
            })
            .collect();
        let down_ms = millis(scenario.warm_up);
        let mut fleet = Self {
            scenario,
            rng: Pcg64::seed_from_u64(scenario.seed),
            boxes,
            heap: BinaryHeap::new(),
            happenings: std::collections::HashMap::new(),
            serial: 0,
            now_ms: 0,
            down_ms,
            up_ms: down_ms + millis(scenario.outage),
            busy_until_s: 0.0,
            bin: (0, 0),
            report: Report::default(),
            open: 0,
            newest_of_outage: vec![(Seq(0), Seq(0)); count],
        };
        for index in 0..count {
            fleet.pump(index);
            fleet.next_arrival(index);
        }
        fleet
    }

    fn at(&mut self, at_ms: u64, happening: Happening) {
        self.serial += 1;
        self.heap.push(Reverse((at_ms, self.serial)));
        self.happenings.insert(self.serial, happening);
    }

    fn next_arrival(&mut self, index: usize) {
        // Exponential gaps: arrivals are independent of each other.
        let u: f64 = self.rng.random();
        let first = self.boxes[index].store.newest() == Seq(0);
        let gap = match (self.scenario.regular, first) {
            (true, true) => u, // at a random phase
            (true, false) => 1.0,
            (false, _) => -(1.0 - u).ln(),
        };
        let gap_ms = gap / self.scenario.rate_per_s * 1000.0;
        self.at(self.now_ms + (gap_ms as u64).max(1), Happening::Arrival(index));
    }

    fn play(mut self) -> Report {
        let end_ms = self.up_ms + millis(self.scenario.drain_max);
        let mut seen_up = false;
        while let Some(Reverse((at_ms, serial))) = self.heap.pop() {
            if !seen_up && at_ms >= self.up_ms {
                seen_up = true;
                self.recovered();
            }
            self.now_ms = at_ms;
            if at_ms > end_ms || self.drained() {
                break;
            }
            match self.happenings.remove(&serial) {
                Some(Happening::Arrival(index)) => self.arrive(index),
                Some(Happening::Outcome { index, seq, outcome, latency }) => {
                    self.outcome(index, seq, &outcome, latency);
                }
                Some(Happening::Wake(index)) if self.boxes[index].wake_at == Some(at_ms) => {
                    self.boxes[index].wake_at = None;
                    self.pump(index);
                }
                Some(Happening::Wake(_)) | None => {}
            }
        }
        self.flush_bin();
        for appliance in &self.boxes {
            let (delivered, dead) = appliance.store.ends(ENDPOINT);
            self.report.dead += dead;
            let _ = delivered;
        }
        self.report
    }

    fn recovered(&mut self) {
        self.report.backlog = self.open;
        let spare = self.scenario.capacity_per_s - self.scenario.rate_per_s * self.boxes.len() as f64;
        self.report.ideal = Duration::from_secs_f64(self.open as f64 / spare.max(1e-3));
        self.bin = (self.up_ms / 1000, 0);
    }

    /// Note how far the drain has come; true when there is nothing left to see.
    fn drained(&mut self) -> bool {
        if self.now_ms < self.up_ms {
            return false;
        }
        let since = Duration::from_millis(self.now_ms - self.up_ms);
        if self.report.drained_after.is_none()
            && self.open as f64 <= (self.report.backlog as f64 * DRAINED_SHARE).max(1.0)
        {
            self.report.drained_after = Some(since);
        }
        if self.open == 0 {
            self.report.empty_after.get_or_insert(since);
        }
        // What the receiver has in hand at any moment counts as gone.
        let in_hand = self.scenario.rate_per_s * self.boxes.len() as f64;
        let rest = self.report.drained_after.is_some() && self.open as f64 <= in_hand.max(1.0);
        rest && self.now_ms > self.up_ms + 120_000
    }

    fn arrive(&mut self, index: usize) {
        let now = StoreTime(self.now_ms);
        let seq = self.boxes[index].store.append(now);
        self.report.accepted += 1;
        self.open += 1;
        if self.now_ms >= self.down_ms && self.now_ms < self.up_ms {
            self.report.accepted_in_outage += 1;
            let range = &mut self.newest_of_outage[index];
            if range.0 == Seq(0) {
                range.0 = seq;
            }
            range.1 = seq;
        }
        self.boxes[index].dispatcher.handle_appended(seq, now);
        self.pump(index);
        self.next_arrival(index);
    }

    fn outcome(&mut self, index: usize, seq: Seq, outcome: &Outcome, latency: Duration) {
        let store = StoreTime(self.now_ms);
        let wall = UnixMillis(1_764_547_200_000 + self.now_ms.cast_signed());
        let now = Now { store, wall, wall_trusted: true };
        let appliance = &mut self.boxes[index];
        let settlement =
            appliance.dispatcher.handle_outcome(ENDPOINT, seq, outcome, latency, now, &mut self.rng);
        if let Some(settlement) = settlement {
            if matches!(settlement, Settlement::Delivered { .. })
                && self.now_ms >= self.up_ms
                && appliance.noticed_at.is_none()
            {
                appliance.noticed_at = Some(self.now_ms);
                let after = Duration::from_millis(self.now_ms - self.up_ms);
                self.report.noticed_after.get_or_insert(after);
            }
            self.write(index, seq, settlement);
        }
        self.pump(index);
    }

    fn write(&mut self, index: usize, seq: Seq, settlement: Settlement) {
        match &settlement {
            Settlement::Delivered { .. } => {
                self.report.delivered += 1;
                self.open -= 1;
            }
            Settlement::Dead { reason, progress } => {
                self.open -= 1;
                let (first, last) = self.newest_of_outage[index];
                if seq >= first && seq <= last && reason.class == FailureClass::Transient {
                    if progress.charged >= self.scenario.policy.retry.attempts_max {
                        self.report.exhausted_in_outage += 1;
                    } else {
                        self.report.shed_in_outage += 1;
                    }
                }
            }
            _ => {}
        }
        let now = StoreTime(self.now_ms);
        let appliance = &mut self.boxes[index];
        appliance.store.settle(ENDPOINT, seq, settlement, now);
        appliance.dispatcher.handle_settled(ENDPOINT, seq, now);
    }

    /// Poll one box dry.
    fn pump(&mut self, index: usize) {
        let now = StoreTime(self.now_ms);
        while let Some(action) = self.boxes[index].dispatcher.poll(now, &mut self.rng) {
            let appliance = &mut self.boxes[index];
            match action {
                Action::Attempt { seq, .. } => self.attempt(index, seq),
                Action::LoadPage { after, limit, .. } => {
                    let (page, scanned_to, end) = appliance.store.page(ENDPOINT, after, limit);
                    appliance.dispatcher.handle_page(ENDPOINT, page, scanned_to, end, now);
                }
                Action::LoadScheduled { until, limit, .. } => {
                    let (waits, complete) = appliance.store.scheduled(ENDPOINT, until, limit);
                    appliance.dispatcher.handle_scheduled(ENDPOINT, waits, complete, now);
                }
                Action::Settle { seq, settlement, .. } => self.write(index, seq, settlement),
                Action::Persist { .. } => {}
            }
        }
        let appliance = &mut self.boxes[index];
        if let Some(wake) = appliance.dispatcher.next_wake()
            && appliance.wake_at.is_none_or(|at| wake.0 < at)
        {
            appliance.wake_at = Some(wake.0);
            self.at(wake.0, Happening::Wake(index));
        }
    }

    fn attempt(&mut self, index: usize, seq: Seq) {
        self.report.attempts += 1;
        let (outcome, latency) = if self.now_ms >= self.down_ms && self.now_ms < self.up_ms {
            self.report.attempts_in_outage += 1;
            self.fail()
        } else {
            self.serve(index)
        };
        let at_ms = self.now_ms + millis(latency).max(1);
        self.at(at_ms, Happening::Outcome { index, seq, outcome, latency });
    }

    fn fail(&self) -> (Outcome, Duration) {
        let transport = |kind, bytes_sent| Outcome::Transport { kind, bytes_sent, reused: false };
        match self.scenario.outage_kind {
            Outage::Refuses => (transport(TransportKind::Refused, false), self.scenario.round_trip),
            Outage::Answers503 => {
                (Outcome::Response(Answer { status: 503, ..Answer::default() }), self.scenario.round_trip)
            }
            Outage::Hangs => (transport(TransportKind::Timeout, true), self.scenario.timeout),
        }
    }

    fn serve(&mut self, index: usize) -> (Outcome, Duration) {
        if self.now_ms >= self.up_ms {
            self.count(index);
        }
        let now_s = self.now_ms as f64 / 1000.0;
        let work_s = 1.0 / self.scenario.capacity_per_s;
        let wait_s = (self.busy_until_s - now_s).max(0.0);
        let busy_from = self.busy_until_s.max(now_s);
        let refuse = wait_s > self.scenario.queue.as_secs_f64();
        let (status, work_s) =
            if refuse { (503, work_s * self.scenario.refusal_cost) } else { (200, work_s) };
        self.busy_until_s = busy_from + work_s;
        if self.now_ms >= self.up_ms {
            self.report.refused += u64::from(refuse);
            self.report.served += u64::from(!refuse);
        }
        let in_server = if refuse { 0.0 } else { wait_s + work_s };
        let latency = self.scenario.round_trip + Duration::from_secs_f64(in_server);
        (Outcome::Response(Answer { status, ..Answer::default() }), latency)
    }

    /// Count a request of the drain.
    fn count(&mut self, index: usize) {
        let second = self.now_ms / 1000;
        if second != self.bin.0 {
            self.flush_bin();
            self.bin = (second, 0);
        }
        self.bin.1 += 1;
        let appliance = &self.boxes[index];
        if appliance.noticed_at.is_some_and(|at| self.now_ms <= at + 1000) {
            let running = u32::try_from(appliance.dispatcher.in_flight()).unwrap_or(u32::MAX);
            self.report.first_second_in_flight = self.report.first_second_in_flight.max(running);
        }
    }

    fn flush_bin(&mut self) {
        self.report.peak_per_s = self.report.peak_per_s.max(self.bin.1);
    }
}
