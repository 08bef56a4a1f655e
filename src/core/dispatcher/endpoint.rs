//! One endpoint of the dispatcher: what is taken next, and what an outcome changes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::Rng;

use super::super::backoff;
use super::super::budget::{self, Budget};
use super::super::classify::{Outcome, Verdict, VerdictKind, classify};
use super::super::decide::{self, Decision, Facts, decide};
use super::super::delivery::{AttemptRecord, FailureClass, Settlement};
use super::super::hold::Health;
use super::super::ids::{EndpointId, Seq};
use super::super::policy::{EndpointPolicy, OrderedBy, PolicyKind, RedrivePolicy};
use super::super::time::{Now, StoreTime};
use super::super::window::Window;
use super::pace::Pace;
use super::queue::{Next, Place, Queue};
use super::recent::Recent;
use super::record::{answer_text, remember};
use super::redrive::{Redrive, WELL_RUN};
use super::silence::Silence;
use super::{ATTEMPT_BUCKETS, Action, EndpointMemory, EndpointStatus, Loaded, LoadedWaiting};

#[path = "snapshot.rs"]
mod snapshot;
#[path = "wake.rs"]
mod wake;

/// How far ahead the schedule is kept in memory; no ordinary delay is longer, only what a Retry-After asks for.
const HORIZON: Duration = Duration::from_mins(10);
/// An endpoint that keeps order knows its whole schedule: which device waits decides what may be taken.
const HORIZON_ORDERED: Duration = Duration::from_hours(24 * 366);
/// And it has no more between attempts than memory can hold.
const RETRYING_MAX_ORDERED: u64 = super::WAITING_MAX as u64 / 2;
/// Settlements that may be under way per slot of the largest window before no more attempts are started: a slow card
/// slows the endpoint down instead of filling memory.
const SETTLING_PER_SLOT: usize = 4;
/// Spread on top of a Retry-After, as a share of it: a fleet that was told the same time does not come as one.
const RETRY_AFTER_SPREAD: f64 = 0.15;

/// State of one endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    id: EndpointId,
    policy: EndpointPolicy,
    pub(super) queue: Queue,
    health: Health,
    window: Window,
    budget: Budget,
    paused: bool,
    disabled: bool,
    paused_since: Option<StoreTime>,
    /// No attempts before: the receiver asked for it, or is overloaded.
    pause_until: StoreTime,
    /// Number of the present or last hold.
    hold_number: u64,
    probe_running: bool,
    probed: Option<Seq>,
    probes: u64,
    in_flight: usize,
    settling: usize,
    silence: Silence,
    pace: Pace,
    redrive: Redrive,
    clock_trusted: bool,
    /// Settlements that no running attempt asked for.
    queued: VecDeque<Action>,
    persisted: EndpointMemory,
    persisted_at: StoreTime,
    budget_changed: bool,
    /// Latest time seen.
    now: StoreTime,
    passed: u64,
    recent: Recent,
    attempts: u64,
    verdicts: BTreeMap<VerdictKind, u64>,
    attempts_by_number: [u64; ATTEMPT_BUCKETS],
    last_outcome: Option<String>,
}

impl Endpoint {
    pub(super) fn new(
        id: EndpointId,
        policy: EndpointPolicy,
        restored: EndpointMemory,
        now: StoreTime,
    ) -> Self {
        let fixed = policy.kind == PolicyKind::Article;
        let budget = Budget::new(&policy.budget, restored.budget_tokens, budget::seconds(now));
        Self {
            id,
            queue: Queue::new(now, policy.ordered_by == OrderedBy::Device),
            health: Health::new(policy.hold.clone()),
            window: Window::new(policy.in_flight_max, fixed, now),
            paused: restored.paused,
            disabled: restored.disabled,
            paused_since: (restored.paused || restored.disabled).then_some(now),
            pause_until: StoreTime(0),
            hold_number: 0,
            probe_running: false,
            probed: None,
            probes: 0,
            in_flight: 0,
            settling: 0,
            silence: Silence::new(now),
            pace: Pace::new(policy.rate),
            // The article knows no redrive.
            redrive: Redrive::new(RedrivePolicy { auto: policy.redrive.auto && !fixed, ..policy.redrive }),
            clock_trusted: false,
            queued: VecDeque::new(),
            persisted: EndpointMemory { budget_tokens: Some(budget.tokens()), ..restored },
            persisted_at: now,
            budget_changed: false,
            now,
            passed: 0,
            recent: Recent::default(),
            attempts: 0,
            verdicts: BTreeMap::new(),
            attempts_by_number: [0; ATTEMPT_BUCKETS],
            last_outcome: None,
            budget,
            policy,
        }
    }

    // --- what happened ---

    pub(super) fn handle_clock(&mut self, trusted: bool) {
        self.clock_trusted = trusted;
    }

    pub(super) fn handle_page(&mut self, page: Vec<Loaded>, scanned_to: Seq, end: bool, now: StoreTime) {
        let first = !self.queue.looked;
        self.queue.page(page, scanned_to, end, self.hold_number);
        self.open_if_idle(first, now);
    }

    pub(super) fn handle_scheduled(&mut self, waits: Vec<LoadedWaiting>, until: StoreTime, now: StoreTime) {
        self.now = self.now.max(now);
        self.queue.scheduled(waits, until, self.hold_number);
    }

    /// A start without a backlog needs no ramp.
    fn open_if_idle(&mut self, first_page: bool, now: StoreTime) {
        self.now = self.now.max(now);
        if first_page && self.queue.ready_len() == 0 && self.queue.waiting_len() == 0 {
            self.window.open();
        }
    }

    pub(super) fn handle_outcome(
        &mut self,
        seq: Seq,
        outcome: &Outcome,
        latency: Duration,
        now: Now,
        rng: &mut impl Rng,
    ) -> Option<Settlement> {
        let Place::InFlight { probe } = self.queue.get(seq)?.place else { return None };
        self.now = self.now.max(now.store);
        self.clock_trusted = now.wall_trusted;
        self.in_flight -= 1;
        self.silence.ended(outcome, latency, self.now);
        self.pace.ended(outcome, self.now);
        let verdict = classify(outcome, &self.policy, now);
        if probe {
            self.probe_running = false;
        }
        let free = verdict.free_repeat && self.queue.get(seq)?.free_repeats == 0;
        self.feel(seq, &verdict, probe, free, now.store - latency, rng);
        if self.queue.get(seq)?.ended {
            self.count(&verdict, verdict.kind, self.queue.get(seq)?.progress.attempts + 1);
            self.queue.remove(seq);
            return None;
        }
        let decision = self.decide(seq, &verdict, rng)?;
        Some(self.settle(seq, &verdict, decision, outcome, latency, now))
    }

    /// What an outcome means for the endpoint as a whole: window, pause, hold.
    fn feel(
        &mut self,
        seq: Seq,
        verdict: &Verdict,
        probe: bool,
        free: bool,
        started: StoreTime,
        rng: &mut impl Rng,
    ) {
        let now = self.now;
        if self.policy.kind == PolicyKind::Article {
            if verdict.kind == VerdictKind::Delivered {
                self.budget.success(budget::seconds(now));
                self.budget_changed = true;
            }
            return;
        }
        if let Some(asked) = verdict.pause {
            let spread = backoff::uniform(Duration::ZERO, asked.mul_f64(RETRY_AFTER_SPREAD), rng);
            self.pause_until = self.pause_until.max(now + asked + spread);
        }
        if verdict.kind == VerdictKind::Delivered {
            self.passed += 1;
            self.recent.note(false);
            self.budget.success(budget::seconds(now));
            self.budget_changed = true;
            self.window.passed(now);
            if self.health.succeeded(now) {
                self.recovered();
            }
            return;
        }
        if free {
            return;
        }
        // A held endpoint has its own delays between probes: a pause of the window would only find it out later.
        if verdict.congestion && self.health.hold().is_none() {
            let mut pause = self.window.congested(started, now, rng);
            if verdict.kind == VerdictKind::Throttle && verdict.pause.is_none() {
                pause = pause.or_else(|| Some(Window::pause(rng)));
            }
            if let Some(pause) = pause {
                self.pause_until = self.pause_until.max(now + pause);
            }
        }
        if let Some(hold) = self.health.hold() {
            if verdict.kind == VerdictKind::Terminal && hold.storm != verdict.status {
                self.health.answered();
                self.recovered();
            } else if probe {
                self.health.probe_failed(verdict, started, now, rng);
            }
            self.health.postpone(self.pause_until);
            return;
        }
        if verdict.kind == VerdictKind::Terminal {
            self.window.passed(now); // it took the event well enough to refuse it
        } else {
            self.recent.note(true);
        }
        if verdict.kind == VerdictKind::Disabled {
            self.disabled = true;
            self.paused_since = Some(now);
            return;
        }
        let (known, complete) = self.queue.all_known();
        let in_streak = self.health.streak_events();
        let failing = in_streak.len() + usize::from(!in_streak.contains(&seq));
        if self.health.failed(seq, verdict, complete && known <= failing, now, rng) {
            self.tripped(seq);
        }
    }

    /// The endpoint takes events again: one attempt, then a ramp.
    fn recovered(&mut self) {
        self.window.restart(self.now);
        self.pause_until = self.pause_until.min(self.now);
        self.redrive.recovered(self.now);
    }

    /// The endpoint counts as down. Attempts of the streak are given back: their deliveries go back in line.
    fn tripped(&mut self, current: Seq) {
        self.hold_number += 1;
        self.probed = None;
        self.probes = 0;
        self.health.postpone(self.pause_until);
        let events = self.health.streak_events().to_vec();
        for seq in events.into_iter().filter(|seq| *seq != current) {
            self.give_back(seq);
        }
    }

    fn give_back(&mut self, seq: Seq) {
        let streak_number = self.health.streak_number();
        let Some(item) = self.queue.get_mut(seq) else { return };
        match item.place {
            Place::Settling(Next::Wait(_)) => item.give_back = true,
            Place::Waiting(..) | Place::Due(_) => {
                let settlement = Settlement::Returned { progress: item.return_progress(streak_number) };
                self.queue.place(seq, Place::Settling(Next::Back));
                self.settling += 1;
                self.queued.push_back(Action::Settle { endpoint: self.id, seq, settlement });
            }
            Place::Ready | Place::Fresh | Place::InFlight { .. } | Place::Settling(_) => {}
        }
    }

    fn decide(&mut self, seq: Seq, verdict: &Verdict, rng: &mut impl Rng) -> Option<Decision> {
        let passed = self.passed;
        let noted = self.recent.number();
        let hold = self.health.hold();
        let held = hold.is_some() || self.disabled;
        let storm = hold.is_some_and(|hold| hold.storm.is_some() && hold.storm == verdict.status);
        let item = self.queue.get_mut(seq)?;
        let failure = verdict.kind != VerdictKind::Delivered && !held;
        if failure && !(verdict.free_repeat && item.free_repeats == 0) {
            item.failed(noted);
            item.passed_before.get_or_insert(passed);
        }
        let refused = matches!(verdict.kind, VerdictKind::Throttle | VerdictKind::Hold);
        let overloaded = refused && self.recent.overloaded(seq);
        let others_failed_share = self.recent.failed_share(&self.queue.get(seq)?.failures_noted, overloaded);
        let item = self.queue.get_mut(seq)?;
        let others_passed = item.passed_before.map_or(0, |before| passed - before);
        let poison = self.policy.kind == PolicyKind::Edge
            && decide::is_poison(item.failures, others_passed, others_failed_share, overloaded);
        let facts = Facts {
            policy: &self.policy,
            verdict,
            progress: &item.progress,
            accepted: item.accepted,
            held,
            storm,
            free_repeats: item.free_repeats,
            poison,
            clock_trusted: self.clock_trusted,
            now: self.now,
        };
        Some(decide(&facts, &mut self.budget, rng))
    }

    /// Turn a decision into what is written, and note what follows once it is.
    fn settle(
        &mut self,
        seq: Seq,
        verdict: &Verdict,
        decision: Decision,
        outcome: &Outcome,
        latency: Duration,
        now: Now,
    ) -> Settlement {
        let streak_number = self.health.streak_number();
        let hold_number = self.hold_number;
        let item = self.queue.get_mut(seq).expect("invariant: the caller has found the item");
        let (kind, charged, delay) = match &decision {
            Decision::Delivered => (VerdictKind::Delivered, true, None),
            Decision::Return => (verdict.kind, false, None),
            Decision::Retry { delay, charged, .. } => (verdict.kind, *charged, Some(*delay)),
            Decision::Dead { kind, charged, .. } => (*kind, *charged, None),
        };
        let number = item.progress.attempts + 1;
        let record = AttemptRecord {
            number,
            at: now.wall,
            verdict: kind,
            reason: verdict.reason.clone(),
            status: verdict.status,
            latency_ms: u32::try_from(latency.as_millis()).unwrap_or(u32::MAX),
            delay_ms: delay.map(|delay| delay.as_millis() as u64),
            bytes_sent: verdict.bytes_sent,
            charged,
            answer: answer_text(outcome),
        };
        remember(&mut item.progress, record);
        item.progress.charged += u32::from(charged);
        item.hold_number = hold_number;
        item.paid = false;
        let (settlement, next) = match decision {
            Decision::Delivered => (Settlement::Delivered { progress: item.progress.clone() }, Next::Gone),
            Decision::Return => {
                let progress = item.return_progress(streak_number);
                (Settlement::Returned { progress }, Next::Back)
            }
            Decision::Retry { delay, charged, paid } => {
                if item.streak_number != streak_number {
                    (item.streak_number, item.streak_charged) = (streak_number, 0);
                }
                item.streak_charged += u32::from(charged);
                item.paid = paid;
                if delay.is_zero() && !charged {
                    item.free_repeats += 1;
                } else {
                    item.free_repeats = 0;
                    item.progress.previous_delay = delay;
                }
                let due = self.now + delay;
                (Settlement::RetryAt { due, progress: item.progress.clone() }, Next::Wait(due))
            }
            Decision::Dead { reason, .. } => {
                if reason.class == FailureClass::Transient {
                    self.redrive.want();
                }
                (Settlement::Dead { reason, progress: item.progress.clone() }, Next::Gone)
            }
        };
        self.queue.place(seq, Place::Settling(next));
        self.settling += 1;
        self.count(verdict, kind, number);
        settlement
    }

    fn count(&mut self, verdict: &Verdict, kind: VerdictKind, number: u32) {
        self.attempts += 1;
        *self.verdicts.entry(kind).or_default() += 1;
        let bucket = (number.max(1) as usize - 1).min(ATTEMPT_BUCKETS - 1);
        self.attempts_by_number[bucket] += 1;
        if self.last_outcome.as_deref() != Some(&verdict.reason) {
            self.last_outcome = Some(verdict.reason.clone());
        }
    }

    pub(super) fn handle_settled(&mut self, seq: Seq, now: StoreTime) {
        self.now = self.now.max(now);
        let Some(item) = self.queue.get_mut(seq) else { return };
        let Place::Settling(next) = item.place else { return };
        self.settling -= 1;
        let give_back = std::mem::take(&mut item.give_back);
        if item.ended {
            self.queue.remove(seq);
            return;
        }
        match next {
            Next::Gone => self.queue.remove(seq),
            Next::Back => {
                self.queue.place(seq, Place::Ready);
                self.queue.back_in_line(seq);
            }
            Next::Wait(due) => {
                self.queue.wait(seq, due);
                self.queue.back_in_line(seq);
                if give_back {
                    self.give_back(seq);
                }
            }
        }
    }

    pub(super) fn handle_lost(&mut self, seq: Seq) {
        if let Some(Place::InFlight { probe }) = self.queue.get(seq).map(|item| item.place) {
            self.in_flight -= 1;
            if probe {
                self.probe_running = false;
                self.health.probe_now(self.now);
            }
            self.queue.remove(seq);
        }
    }

    pub(super) fn handle_unread(&mut self, seq: Seq, again_at: StoreTime) {
        if let Some(Place::InFlight { probe }) = self.queue.get(seq).map(|item| item.place) {
            self.in_flight -= 1;
            if probe {
                self.probe_running = false;
            }
            if let Some(item) = self.queue.get_mut(seq) {
                item.paid = true;
            }
            self.queue.wait(seq, again_at);
        }
    }

    pub(super) fn handle_ended(&mut self, seq: Seq) {
        let Some(item) = self.queue.get_mut(seq) else { return };
        match item.place {
            Place::InFlight { .. } | Place::Settling(_) => item.ended = true,
            Place::Ready | Place::Fresh | Place::Waiting(..) | Place::Due(_) => self.queue.remove(seq),
        }
    }

    pub(super) fn handle_redrive(&mut self, found: Option<Seq>, now: StoreTime) {
        self.now = self.now.max(now);
        self.redrive.answered(found.is_some(), self.now);
        if let Some(seq) = found {
            self.queue.redriven(seq);
        }
    }

    pub(super) fn handle_pause(&mut self, now: StoreTime) -> EndpointStatus {
        self.now = self.now.max(now);
        self.paused = true;
        self.paused_since.get_or_insert(now);
        self.status()
    }

    pub(super) fn handle_resume(&mut self, now: StoreTime) -> EndpointStatus {
        self.now = self.now.max(now);
        if self.paused || self.disabled || self.health.hold().is_some() {
            self.hold_number += 1; // the first attempts after it pay nothing either
            self.window.restart(now);
        }
        self.paused = false;
        self.disabled = false;
        self.paused_since = None;
        self.pause_until = now;
        self.health.resume();
        self.status()
    }

    pub(super) fn handle_probe(&mut self, now: StoreTime) -> EndpointStatus {
        self.now = self.now.max(now);
        self.health.probe_now(now);
        self.status()
    }

    pub(super) fn handle_link_change(&mut self, now: StoreTime, rng: &mut impl Rng) {
        self.now = self.now.max(now);
        self.health.link_changed(now, rng);
    }

    // --- what next ---

    pub(super) fn poll(&mut self, now: StoreTime, _rng: &mut impl Rng) -> Option<Action> {
        self.now = self.now.max(now);
        let endpoint = self.id;
        self.queue.advance(self.now);
        if let Some(action) = self.queued.pop_front() {
            return Some(action);
        }
        if let Some(action) = self.persist() {
            return Some(action);
        }
        let stopped = self.paused || self.disabled;
        if let Some((until, limit)) = self.queue.next_schedule(self.now, self.horizon()) {
            return Some(Action::LoadScheduled { endpoint, until, limit });
        }
        let up = !stopped && self.health.hold().is_none();
        if !stopped && let Some((after, limit)) = self.queue.next_page(self.now, up) {
            return Some(Action::LoadPage { endpoint, after, limit });
        }
        if stopped {
            return None;
        }
        if let Some(seq) = self.queue.next_replaced() {
            return Some(self.end_unsent(seq, Settlement::Superseded));
        }
        if self.clock_trusted
            && let Some(seq) = self.queue.next_outlived(self.now)
        {
            return Some(self.end_unsent(seq, Settlement::Expired));
        }
        if up && self.is_well() && self.redrive.take(self.now) {
            return Some(Action::Redrive { endpoint });
        }
        if let Some((seq, accepted)) = self.queue.oldest_ready()
            && decide::expired(&self.policy, accepted, self.now, self.clock_trusted)
        {
            return self.expire(seq);
        }
        if self.settling > self.policy.in_flight_max as usize * SETTLING_PER_SLOT {
            return None;
        }
        if up { self.poll_up() } else { self.poll_probe() }
    }

    fn horizon(&self) -> Duration {
        if self.policy.ordered_by == OrderedBy::Device { HORIZON_ORDERED } else { HORIZON }
    }

    fn retrying_max(&self) -> u64 {
        let max = self.policy.retry.retrying_max as u64;
        if self.policy.ordered_by == OrderedBy::Device { max.min(RETRYING_MAX_ORDERED) } else { max }
    }

    /// It takes events, and has of late refused none.
    fn is_well(&self) -> bool {
        self.passed > 0 && self.recent.passes_in_a_row() >= WELL_RUN.min(self.recent.len())
    }

    /// When the next attempt may start, as far as the receiver and the limits have a say.
    fn open_at(&self) -> StoreTime {
        self.pause_until.max(self.pace.next_at(self.now))
    }

    fn poll_up(&mut self) -> Option<Action> {
        if self.now < self.open_at() || !self.has_room() {
            return None;
        }
        if let Some(seq) = self.queue.first_due() {
            let item = self.queue.get(seq)?;
            if decide::expired(&self.policy, item.accepted, self.now, self.clock_trusted) {
                return self.expire(seq);
            }
            // With a window of one the first event to meet a hanging receiver would use up its attempts alone, before
            // two others could show that it is not to blame.
            if self.policy.kind == PolicyKind::Edge
                && self.health.in_doubt(seq)
                && self.queue.retrying() < self.policy.retry.retrying_max as u64
                && let Some(other) = self.queue.next_ready()
            {
                return self.start(other, false);
            }
            let item = self.queue.get(seq)?;
            let free = item.paid || item.hold_number < self.hold_number;
            if free || self.take_token() {
                return self.start(seq, false);
            }
        }
        if self.queue.retrying() >= self.retrying_max() || !self.queue.order_known() {
            return None;
        }
        let seq = self.queue.next_ready()?;
        self.start(seq, false)
    }

    fn has_room(&self) -> bool {
        let silent = self.policy.kind == PolicyKind::Edge && self.silence.lasts(self.in_flight, self.now);
        self.in_flight < self.window.limit() as usize && !silent
    }

    fn take_token(&mut self) -> bool {
        let taken = self.budget.try_take(budget::seconds(self.now));
        self.budget_changed |= taken;
        taken
    }

    fn poll_probe(&mut self) -> Option<Action> {
        let hold = self.health.hold()?;
        if self.probe_running || self.now < hold.next_probe {
            return None;
        }
        // In a storm the oldest may all be bad, so every other probe looks at the newest.
        let newest = hold.storm.is_some() && self.probes % 2 == 1;
        let seq = self.queue.candidate(self.probed, newest)?;
        self.probe_running = true;
        self.probed = Some(seq);
        self.probes += 1;
        self.start(seq, true)
    }

    fn start(&mut self, seq: Seq, probe: bool) -> Option<Action> {
        self.queue.place(seq, Place::InFlight { probe });
        self.silence.started(self.in_flight, self.now);
        self.in_flight += 1;
        let item = self.queue.get(seq)?;
        self.pace.started(item.terms.body_bytes, self.now);
        let number = item.progress.attempts + 1;
        Some(Action::Attempt { endpoint: self.id, seq, number, probe })
    }

    /// A delivery that has not run ends by itself.
    fn end_unsent(&mut self, seq: Seq, settlement: Settlement) -> Action {
        self.queue.place(seq, Place::Settling(Next::Gone));
        self.settling += 1;
        Action::Settle { endpoint: self.id, seq, settlement }
    }

    fn expire(&mut self, seq: Seq) -> Option<Action> {
        let progress = self.queue.get(seq)?.progress.clone();
        let reason = decide::window_over_reason(&self.policy);
        Some(self.end_unsent(seq, Settlement::Dead { reason, progress }))
    }

    // --- looking ---

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }
}
