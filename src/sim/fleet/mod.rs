//! Many appliances and one receiver with a capacity: what an outage and the drain after it cost under a policy.
//!
//! Events come at random moments at a fixed mean rate. The receiver serves one request after another; a request that
//! would have to wait longer than [`Scenario::queue`] is refused with 503, which costs it a part of the work of serving one
//! (that part is what keeps an overloaded server down). During the outage it fails in the way the scenario says, and more
//! may go wrong besides. Storage takes no time here; the dispatcher is the appliance's own.

mod scenario;
mod server;
mod shelf;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

pub use scenario::{Outage, Report, Scenario, Second, Trouble, article, ladder};

use super::Trace;
use crate::core::classify::{Answer, Outcome, TransportKind};
use crate::core::delivery::{FailureClass, Settlement};
use crate::core::dispatcher::{Action, Dispatcher, EndpointMemory};
use crate::core::ids::{EndpointId, Seq};
use crate::core::time::{Now, StoreTime, UnixMillis};
use server::{Reply, Server};
use shelf::Shelf;

/// The one endpoint of each appliance.
const ENDPOINT: EndpointId = EndpointId(1);
/// Backlog share that counts as drained (RETRY 3.5: the finish line is 2 % left).
const DRAINED_SHARE: f64 = 0.02;
/// What is looked at after the drain: does it stay drained?
const AFTERMATH_MS: u64 = 120_000;

#[derive(Clone, Copy, Debug)]
enum Happening {
    Arrival,
    Outcome { seq: Seq, reply: Reply, latency: Duration },
    Wake,
}

/// Something at a moment; those of one moment in the order in which they were planned.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at_ms: u64,
    serial: u64,
    index: usize,
    what: Happening,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Planned {}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ms, self.serial).cmp(&(other.at_ms, other.serial))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
struct Appliance {
    dispatcher: Dispatcher,
    shelf: Shelf,
    wake_at: Option<u64>,
    noticed_at: Option<u64>,
    /// First and last event of the outage.
    in_outage: (Seq, Seq),
}

struct Fleet<'a> {
    scenario: &'a Scenario,
    rng: Pcg64,
    server: Server,
    boxes: Vec<Appliance>,
    heap: BinaryHeap<Reverse<Planned>>,
    serial: u64,
    now_ms: u64,
    down_ms: u64,
    up_ms: u64,
    second: Second,
    report: Report,
    open: u64,
    trace: Trace,
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
        let boxes = (0..scenario.appliances)
            .map(|_| {
                let mut dispatcher = Dispatcher::new();
                let memory = EndpointMemory::default();
                dispatcher.add_endpoint(ENDPOINT, scenario.policy.clone(), memory, StoreTime(0));
                dispatcher.handle_clock(true);
                Appliance {
                    dispatcher,
                    shelf: Shelf::default(),
                    wake_at: None,
                    noticed_at: None,
                    in_outage: (Seq(0), Seq(0)),
                }
            })
            .collect();
        let down_ms = millis(scenario.warm_up);
        let mut fleet = Self {
            scenario,
            rng: Pcg64::seed_from_u64(scenario.seed),
            server: Server::new(scenario),
            boxes,
            heap: BinaryHeap::new(),
            serial: 0,
            now_ms: 0,
            down_ms,
            up_ms: down_ms + millis(scenario.outage),
            second: Second::default(),
            report: Report::default(),
            open: 0,
            trace: Trace::default(),
        };
        for index in 0..fleet.boxes.len() {
            fleet.pump(index);
            fleet.next_arrival(index);
        }
        fleet
    }

    fn at(&mut self, at_ms: u64, index: usize, what: Happening) {
        self.serial += 1;
        self.heap.push(Reverse(Planned { at_ms, serial: self.serial, index, what }));
    }

    fn next_arrival(&mut self, index: usize) {
        // Exponential gaps: arrivals are independent of each other.
        let u: f64 = self.rng.random();
        let first = self.boxes[index].shelf.newest() == Seq(0);
        let gap = match (self.scenario.regular, first) {
            (true, true) => u, // at a random phase
            (true, false) => 1.0,
            (false, _) => -(1.0 - u).ln(),
        };
        let gap_ms = gap / self.scenario.rate_per_s * 1000.0;
        self.at(self.now_ms + (gap_ms as u64).max(1), index, Happening::Arrival);
    }

    fn play(mut self) -> Report {
        let end_ms = (self.up_ms + millis(self.scenario.drain_max)).max(millis(self.scenario.run_for));
        let mut seen_up = false;
        while let Some(Reverse(next)) = self.heap.pop() {
            if !seen_up && next.at_ms >= self.up_ms {
                seen_up = true;
                self.recovered();
            }
            self.go_to(next.at_ms);
            self.report.cut_short = self.report.attempts >= self.scenario.attempts_max;
            if next.at_ms > end_ms || self.report.cut_short || self.drained() {
                break;
            }
            match next.what {
                Happening::Arrival => self.arrive(next.index),
                Happening::Outcome { seq, reply, latency } => self.outcome(next.index, seq, reply, latency),
                Happening::Wake if self.boxes[next.index].wake_at == Some(next.at_ms) => {
                    self.boxes[next.index].wake_at = None;
                    self.pump(next.index);
                }
                Happening::Wake => {}
            }
        }
        self.sum_up()
    }

    /// Time goes on; seconds that are over go into the report.
    fn go_to(&mut self, at_ms: u64) {
        self.now_ms = at_ms;
        while (self.report.seconds.len() as u64) < at_ms / 1000 {
            self.second.open = self.open;
            self.report.seconds.push(std::mem::take(&mut self.second));
        }
    }

    fn sum_up(mut self) -> Report {
        self.second.open = self.open;
        self.report.seconds.push(self.second);
        let drain = self.report.seconds.iter().skip((self.up_ms / 1000) as usize);
        self.report.peak_per_s = drain.map(|second| u64::from(second.sent)).max().unwrap_or(0);
        let noticed: Vec<u64> = self.boxes.iter().filter_map(|one| one.noticed_at).collect();
        let after = |at_ms: u64| Duration::from_millis(at_ms - self.up_ms);
        self.report.noticed_after = noticed.iter().copied().min().map(after);
        self.report.noticed_last = noticed.iter().copied().max().map(after);
        self.report.noticed_mean =
            (!noticed.is_empty()).then(|| after(noticed.iter().sum::<u64>() / noticed.len() as u64));
        self.report.trace = self.trace.hash();
        self.report
    }

    fn recovered(&mut self) {
        self.report.backlog = self.open;
        let spare = self.scenario.capacity_per_s - self.scenario.rate_per_s * self.boxes.len() as f64;
        self.report.ideal = Duration::from_secs_f64(self.open as f64 / spare.max(1e-3));
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
        rest && self.now_ms > self.up_ms + AFTERMATH_MS && self.now_ms >= millis(self.scenario.run_for)
    }

    fn in_outage(&self) -> bool {
        self.now_ms >= self.down_ms && self.now_ms < self.up_ms
    }

    fn arrive(&mut self, index: usize) {
        let now = StoreTime(self.now_ms);
        let in_outage = self.in_outage();
        let appliance = &mut self.boxes[index];
        let seq = appliance.shelf.append(now);
        self.report.accepted += 1;
        self.open += 1;
        if in_outage {
            self.report.accepted_in_outage += 1;
            if appliance.in_outage.0 == Seq(0) {
                appliance.in_outage.0 = seq;
            }
            appliance.in_outage.1 = seq;
        }
        appliance.dispatcher.handle_appended(seq, now);
        self.pump(index);
        self.next_arrival(index);
    }

    fn outcome(&mut self, index: usize, seq: Seq, reply: Reply, latency: Duration) {
        let transport = |kind, bytes_sent| Outcome::Transport { kind, bytes_sent, reused: false };
        let answer = |status| Outcome::Response(Answer { status, ..Answer::default() });
        let outcome = match reply {
            Reply::Served => answer(200),
            Reply::Refused => answer(503),
            Reply::NoConnection => transport(TransportKind::Refused, false),
            Reply::TimedOut => transport(TransportKind::Timeout, true),
        };
        let store = StoreTime(self.now_ms);
        let wall = UnixMillis(1_764_547_200_000 + self.now_ms.cast_signed());
        let now = Now { store, wall, wall_trusted: true };
        let appliance = &mut self.boxes[index];
        let settlement =
            appliance.dispatcher.handle_outcome(ENDPOINT, seq, &outcome, latency, now, &mut self.rng);
        if let Some(settlement) = settlement {
            if matches!(settlement, Settlement::Delivered { .. }) && self.now_ms >= self.up_ms {
                appliance.noticed_at.get_or_insert(self.now_ms);
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
                self.report.dead += 1;
                self.open -= 1;
                let since = Duration::from_millis(self.now_ms.saturating_sub(self.down_ms));
                self.report.first_death_after.get_or_insert(since);
                let (first, last) = self.boxes[index].in_outage;
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
        appliance.shelf.settle(seq, settlement);
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
                    let (page, scanned_to, end) = appliance.shelf.page(after, limit);
                    appliance.dispatcher.handle_page(ENDPOINT, page, scanned_to, end, now);
                }
                Action::LoadScheduled { until, limit, .. } => {
                    let (waits, complete) = appliance.shelf.scheduled(until, limit);
                    appliance.dispatcher.handle_scheduled(ENDPOINT, waits, complete, now);
                }
                Action::Settle { seq, settlement, .. } => self.write(index, seq, settlement),
                // A fleet forgets its dead letters.
                Action::Redrive { .. } => appliance.dispatcher.handle_redrive(ENDPOINT, None, now),
                Action::Persist { .. } => {}
            }
        }
        let appliance = &mut self.boxes[index];
        if let Some(wake) = appliance.dispatcher.next_wake()
            && appliance.wake_at.is_none_or(|at| wake.0 < at)
        {
            appliance.wake_at = Some(wake.0);
            self.at(wake.0, index, Happening::Wake);
        }
    }

    fn attempt(&mut self, index: usize, seq: Seq) {
        let (reply, latency) = self.server.take(Duration::from_millis(self.now_ms));
        self.trace.note(self.now_ms);
        self.trace.note((index as u64) << 40 | seq.0);
        self.report.attempts += 1;
        self.second.sent += 1;
        self.second.served += u32::from(reply == Reply::Served);
        let body = u64::from(reply != Reply::NoConnection);
        self.report.bodies += body;
        if self.in_outage() {
            self.report.attempts_in_outage += 1;
            self.report.bodies_in_outage += body;
        } else if self.now_ms >= self.up_ms {
            self.report.refused += u64::from(reply == Reply::Refused);
            self.report.served += u64::from(reply == Reply::Served);
            let appliance = &self.boxes[index];
            if appliance.noticed_at.is_some_and(|at| self.now_ms <= at + 1000) {
                let running = u32::try_from(appliance.dispatcher.in_flight()).unwrap_or(u32::MAX);
                self.report.first_second_in_flight = self.report.first_second_in_flight.max(running);
            }
        }
        let at_ms = self.now_ms + millis(latency).max(1);
        self.at(at_ms, index, Happening::Outcome { seq, reply, latency });
    }
}
