//! The dispatcher against a store that is a list: what it asks for and in which order. The simulated world tests the
//! same machine under faults.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::super::classify::{Answer, TransportKind};
use super::super::delivery::State;
use super::super::time::UnixMillis;
use super::*;

const ENDPOINT: EndpointId = EndpointId(1);

/// One endpoint, a list for a store, and a clock that the test moves.
struct Bench {
    dispatcher: Dispatcher,
    rng: Pcg64,
    now: StoreTime,
    store: BTreeMap<Seq, (State, Progress)>,
    dead: BTreeMap<Seq, String>,
    terms: BTreeMap<Seq, Terms>,
    ended: BTreeMap<Seq, Settlement>,
    redriven: Vec<(StoreTime, Seq)>,
    newest: u64,
}

impl Bench {
    fn new(policy: EndpointPolicy) -> Self {
        let mut dispatcher = Dispatcher::new();
        let now = StoreTime(1_000_000);
        dispatcher.add_endpoint(ENDPOINT, policy, EndpointMemory::default(), now);
        let mut bench = Self {
            dispatcher,
            rng: Pcg64::seed_from_u64(7),
            now,
            store: BTreeMap::new(),
            dead: BTreeMap::new(),
            terms: BTreeMap::new(),
            ended: BTreeMap::new(),
            redriven: Vec::new(),
            newest: 0,
        };
        assert!(bench.attempts().is_empty());
        bench
    }

    fn append(&mut self, count: u64) {
        for _ in 0..count {
            self.newest += 1;
            self.store.insert(Seq(self.newest), (State::Pending, Progress::default()));
        }
        self.dispatcher.handle_appended(Seq(self.newest), self.now);
    }

    /// Poll until nothing is left to do; carries out all but attempts and returns those.
    fn attempts(&mut self) -> Vec<(Seq, u32, bool)> {
        let mut attempts = Vec::new();
        while let Some(action) = self.dispatcher.poll(self.now, &mut self.rng) {
            match action {
                Action::Attempt { seq, number, probe, .. } => attempts.push((seq, number, probe)),
                Action::LoadPage { after, limit, .. } => {
                    let pending: Vec<Loaded> = self
                        .store
                        .range(Seq(after.0 + 1)..)
                        .filter(|(_, (state, _))| *state == State::Pending)
                        .take(limit)
                        .map(|(seq, (_, progress))| Loaded {
                            seq: *seq,
                            accepted: StoreTime(1_000_000),
                            progress: progress.clone(),
                            terms: self.terms.get(seq).copied().unwrap_or_default(),
                        })
                        .collect();
                    let end = pending.len() < limit;
                    let to = if end { Seq(self.newest) } else { pending.last().unwrap().seq };
                    self.dispatcher.handle_page(ENDPOINT, pending, to, end, self.now);
                }
                Action::LoadScheduled { until, .. } => {
                    self.dispatcher.handle_scheduled(ENDPOINT, Vec::new(), until, self.now);
                }
                Action::Settle { seq, settlement, .. } => self.write(seq, settlement),
                Action::Redrive { .. } => self.redrive(),
                Action::Persist { .. } => {}
            }
        }
        attempts
    }

    fn write(&mut self, seq: Seq, settlement: Settlement) {
        match settlement {
            Settlement::RetryAt { due, progress } => {
                self.store.insert(seq, (State::Waiting(due), progress));
            }
            Settlement::Returned { progress } => {
                self.store.insert(seq, (State::Pending, progress));
            }
            Settlement::Dead { reason, .. } => {
                self.store.remove(&seq);
                self.dead.insert(seq, reason.message);
            }
            Settlement::Delivered { .. } | Settlement::Expired | Settlement::Superseded => {
                self.store.remove(&seq);
                self.ended.insert(seq, settlement);
            }
        }
        self.dispatcher.handle_settled(ENDPOINT, seq, self.now);
    }

    /// Sends the oldest dead letter again.
    fn redrive(&mut self) {
        let found = self.dead.pop_first().map(|(seq, _)| seq);
        if let Some(seq) = found {
            let progress = Progress { attempts: 6, redrives: 1, ..Progress::default() };
            self.store.insert(seq, (State::Pending, progress));
            self.redriven.push((self.now, seq));
        }
        self.dispatcher.handle_redrive(ENDPOINT, found, self.now);
    }

    fn outcome(&mut self, seq: Seq, outcome: &Outcome) {
        let now = Now { store: self.now, wall: UnixMillis(0), wall_trusted: true };
        let latency = Duration::from_millis(5);
        let settlement =
            self.dispatcher.handle_outcome(ENDPOINT, seq, outcome, latency, now, &mut self.rng).unwrap();
        self.write(seq, settlement);
    }

    fn answer(&mut self, seq: Seq, status: u16) {
        self.outcome(seq, &Outcome::Response(Answer { status, ..Answer::default() }));
    }

    /// Let time pass to the next wake-up.
    fn wake(&mut self) {
        let at = self.dispatcher.next_wake().expect("something is due");
        assert!(at > self.now, "a wake-up that is due already was not polled");
        self.now = at;
    }

    fn snapshot(&self) -> EndpointSnapshot {
        self.dispatcher.snapshot(ENDPOINT, self.now).unwrap()
    }

    /// Advance until an attempt comes; gives up after an hour.
    fn next_attempts(&mut self) -> Vec<(Seq, u32, bool)> {
        let give_up = self.now + Duration::from_hours(1);
        loop {
            let attempts = self.attempts();
            if !attempts.is_empty() {
                return attempts;
            }
            self.wake();
            assert!(self.now < give_up, "no attempt for an hour");
        }
    }
}

#[test]
fn new_events_go_out_at_once_in_order_up_to_the_window() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(40);
    let attempts = bench.attempts();
    assert_eq!(attempts.len(), 32, "an idle start needs no ramp");
    assert!(attempts.iter().map(|(seq, ..)| seq.0).eq(1..=32));
    for seq in 1..=32 {
        bench.answer(Seq(seq), 200);
    }
    assert!(bench.attempts().iter().map(|(seq, ..)| seq.0).eq(33..=40));
}

#[test]
fn five_faults_over_three_events_hold_and_charge_nothing() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(5);
    for (seq, ..) in bench.attempts() {
        bench.answer(seq, 500);
    }
    let snapshot = bench.snapshot();
    assert_eq!(snapshot.status, EndpointStatus::Held);
    assert_eq!(snapshot.hold_reason, Some(HoldReason::Http5xx));
    assert!(bench.attempts().is_empty(), "no attempts but a probe");
    for (state, progress) in bench.store.values() {
        assert_eq!(*state, State::Pending, "attempts of the trip are given back");
        assert_eq!((progress.attempts, progress.charged), (1, 0));
    }
    let first = bench.next_attempts();
    assert_eq!(first, [(Seq(1), 2, true)], "one probe, the oldest event");
    bench.answer(Seq(1), 503);
    let second = bench.next_attempts();
    assert_eq!(second, [(Seq(2), 2, true)], "another event each time");
    bench.answer(Seq(2), 200);
    assert_eq!(bench.snapshot().status, EndpointStatus::Up);
    assert_eq!(bench.snapshot().window, 1);
    assert_eq!(bench.attempts().len(), 1, "a ramp, not a flood");
}

#[test]
fn an_event_that_fails_while_others_pass_uses_its_attempts_up() {
    let mut policy = EndpointPolicy::default();
    policy.retry.attempts_max = 3;
    let mut bench = Bench::new(policy);
    bench.append(1);
    for round in 1..=3 {
        assert_eq!(bench.next_attempts(), [(Seq(1), round, false)]);
        bench.answer(Seq(1), 500);
    }
    assert_eq!(bench.dead[&Seq(1)], "3 attempts used up: http 500");
}

#[test]
fn a_terminal_answer_is_final_at_once() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(2);
    bench.attempts();
    bench.answer(Seq(1), 422);
    bench.answer(Seq(2), 200);
    assert_eq!(bench.dead[&Seq(1)], "the receiver refuses it: http 422");
    assert!(bench.store.is_empty());
}

#[test]
fn wrong_credentials_hold_at_the_third_refusal_and_kill_nothing() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(20);
    for (seq, ..) in bench.attempts() {
        bench.answer(seq, 401);
    }
    assert_eq!(bench.snapshot().hold_reason, Some(HoldReason::Auth));
    assert!(bench.dead.is_empty());
}

#[test]
fn a_storm_of_terminal_answers_holds_instead_of_flooding_the_dead_letters() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(200);
    let mut sent = 0;
    for _ in 0..20 {
        for (seq, _, probe) in bench.attempts() {
            assert!(!probe);
            sent += 1;
            bench.answer(seq, if sent <= 60 { 200 } else { 422 });
        }
    }
    assert_eq!(bench.snapshot().hold_reason, Some(HoldReason::Config));
    assert!(bench.dead.len() < 20, "{} dead", bench.dead.len());
    for _ in 0..5 {
        let (seq, _, probe) = bench.next_attempts()[0];
        assert!(probe);
        bench.answer(seq, 422);
    }
    assert!(bench.dead.len() < 20, "a probe that meets the storm kills nothing");
    let (seq, ..) = bench.next_attempts()[0];
    bench.answer(seq, 200);
    assert_eq!(bench.snapshot().status, EndpointStatus::Up);
}

#[test]
fn a_poison_event_dies_after_three_failures_while_others_pass() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(1);
    let mut rounds = 0;
    while bench.dead.is_empty() {
        bench.append(3);
        bench.now = bench.now + Duration::from_secs(1);
        for (seq, ..) in bench.attempts() {
            bench.answer(seq, if seq == Seq(1) { 503 } else { 200 });
        }
        rounds += 1;
        assert!(rounds < 50);
    }
    assert_eq!(bench.dead[&Seq(1)], "failed 3 times while others passed: http 503");
}

#[test]
fn a_hanging_receiver_is_held_before_one_event_has_used_up_its_attempts() {
    // A window of one, as after the first two timeouts.
    let mut bench = Bench::new(EndpointPolicy { in_flight_max: 1, ..EndpointPolicy::default() });
    bench.append(5);
    let mut tried = 0;
    while bench.snapshot().status == EndpointStatus::Up {
        bench.append(1);
        for (seq, ..) in bench.next_attempts() {
            bench.now = bench.now + Duration::from_secs(10);
            bench.outcome(
                seq,
                &Outcome::Transport { kind: TransportKind::Timeout, bytes_sent: true, reused: false },
            );
            tried += 1;
        }
        assert!(tried < 10, "not held after {tried} attempts");
    }
    assert!(bench.dead.is_empty());
}

#[test]
fn a_reset_on_a_kept_connection_is_repeated_at_once_and_free() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(1);
    bench.attempts();
    let reset = Outcome::Transport { kind: TransportKind::Reset, bytes_sent: true, reused: true };
    bench.outcome(Seq(1), &reset);
    let before = bench.now;
    assert_eq!(bench.next_attempts(), [(Seq(1), 2, false)]);
    assert!(bench.now.since(before) <= Duration::from_millis(1));
    assert_eq!(bench.snapshot().budget_tokens, 100.0);
    bench.outcome(Seq(1), &reset);
    assert!(bench.attempts().is_empty(), "only one is free");
}

#[test]
fn a_retry_after_holds_the_whole_endpoint_and_costs_no_attempt() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(3);
    bench.attempts();
    let answer = Answer { status: 429, retry_after: vec!["60".to_owned()], ..Answer::default() };
    bench.outcome(Seq(1), &Outcome::Response(answer));
    bench.answer(Seq(2), 200);
    bench.answer(Seq(3), 200);
    bench.append(5);
    let asked = bench.now;
    bench.next_attempts();
    let waited = bench.now.since(asked).as_secs_f64();
    assert!((60.0..72.0).contains(&waited), "waited {waited} s");
    assert_eq!(bench.store[&Seq(1)].1.charged, 0);
}

#[test]
fn an_empty_budget_defers_retries_and_lets_first_attempts_pass() {
    let mut policy = EndpointPolicy::default();
    policy.budget.ceiling = 2.0;
    policy.budget.ratio = 0.0;
    policy.budget.min_per_sec = 0.1;
    policy.hold.faults = 1000;
    policy.retry.attempts_max = 1000;
    let mut bench = Bench::new(policy);
    bench.append(4);
    let mut retries = Vec::new();
    let start = bench.now;
    while bench.now.since(start) < Duration::from_secs(60) {
        for (seq, number, _) in bench.next_attempts() {
            if number > 1 {
                retries.push(bench.now);
            }
            bench.answer(seq, 425);
            if number == 1 && seq.0 % 3 == 0 {
                bench.append(1);
            }
        }
    }
    assert!((5..=9).contains(&retries.len()), "{} retries: 2 at once, then one per 10 s", retries.len());
    assert!(bench.dead.is_empty());
}

#[test]
fn gone_disables_and_keeps_the_data_until_an_operator_resumes() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(3);
    for (seq, ..) in bench.attempts() {
        bench.answer(seq, 410);
    }
    assert_eq!(bench.snapshot().status, EndpointStatus::Disabled);
    bench.now = bench.now + Duration::from_hours(100);
    assert!(bench.attempts().is_empty());
    assert_eq!(bench.store.len(), 3);
    assert_eq!(bench.dispatcher.handle_resume(ENDPOINT, bench.now), Some(EndpointStatus::Up));
}

#[test]
fn the_retry_window_ends_a_delivery_only_with_a_clock_that_is_trusted() {
    for trusted in [false, true] {
        let mut bench = Bench::new(EndpointPolicy::default());
        bench.append(5);
        for (seq, ..) in bench.attempts() {
            bench.answer(seq, 503);
        }
        bench.dispatcher.handle_clock(trusted);
        bench.now = bench.now + Duration::from_hours(73);
        bench.attempts();
        assert_eq!(bench.dead.len(), if trusted { 5 } else { 0 });
    }
}

#[test]
fn a_backlog_shares_the_window_with_fresh_events_three_to_one() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(10_000);
    let mut order = Vec::new();
    while order.len() < 400 {
        for (seq, ..) in bench.next_attempts() {
            order.push(seq.0);
            bench.now = bench.now + Duration::from_millis(5);
            bench.answer(seq, 200);
            bench.append(1);
        }
    }
    let fresh = order.iter().skip(100).filter(|seq| **seq > 10_000).count();
    assert!((70..=80).contains(&fresh), "{fresh} of 300 were fresh");
}

#[test]
fn an_attempt_of_a_settled_delivery_is_never_made_again() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(1);
    bench.attempts();
    // A page is asked for and read while the delivery is still pending ...
    bench.dispatcher.handle_appended(Seq(1), bench.now);
    bench.dispatcher.handle_redriven(ENDPOINT, Seq(1), bench.now);
    let action = bench.dispatcher.poll(bench.now, &mut bench.rng);
    assert!(matches!(action, Some(Action::LoadPage { .. })), "{action:?}");
    // ... but handled only after it has been delivered.
    bench.answer(Seq(1), 200);
    let stale =
        Loaded { seq: Seq(1), accepted: bench.now, progress: Progress::default(), terms: Terms::default() };
    bench.dispatcher.handle_page(ENDPOINT, vec![stale], Seq(1), true, bench.now);
    assert!(bench.attempts().is_empty());
}

/// Terms as the routes give them, with numbers for devices.
fn terms(device: u64, ttl: Option<Duration>, supersede: bool) -> Terms {
    use super::super::route::Lane;
    Terms { ttl, replaces: supersede.then_some(Lane(device)), order: Some(Lane(device)), body_bytes: 100 }
}

fn ordered() -> EndpointPolicy {
    EndpointPolicy { ordered_by: super::super::policy::OrderedBy::Device, ..EndpointPolicy::default() }
}

#[test]
fn events_of_a_device_go_out_one_after_another_and_devices_do_not_wait_for_each_other() {
    let mut bench = Bench::new(ordered());
    for seq in 1..=6 {
        bench.terms.insert(Seq(seq), terms(seq % 2, None, false));
    }
    bench.append(6);
    let numbers =
        |attempts: Vec<(Seq, u32, bool)>| attempts.iter().map(|(seq, ..)| seq.0).collect::<Vec<_>>();
    assert_eq!(numbers(bench.attempts()), [1, 2]);
    bench.answer(Seq(2), 200);
    assert_eq!(numbers(bench.attempts()), [4]);
    bench.answer(Seq(1), 425);
    bench.answer(Seq(4), 200);
    assert_eq!(numbers(bench.attempts()), [6], "the device of 1 waits for its retry");
    bench.answer(Seq(6), 200);
    assert_eq!(numbers(bench.next_attempts()), [1]);
    bench.answer(Seq(1), 422);
    assert_eq!(bench.dead.len(), 1);
    assert_eq!(numbers(bench.attempts()), [3], "what is refused for good leaves its lane");
    bench.answer(Seq(3), 200);
    assert_eq!(numbers(bench.attempts()), [5]);
}

#[test]
fn order_holds_over_an_outage() {
    let mut bench = Bench::new(ordered());
    for seq in 1..=300 {
        bench.terms.insert(Seq(seq), terms(seq % 3, None, false));
    }
    bench.append(300);
    let mut delivered: [Vec<u64>; 3] = Default::default();
    let start = bench.now;
    while !bench.store.is_empty() {
        let down = bench.now.since(start) < Duration::from_mins(5);
        for (seq, ..) in bench.next_attempts() {
            bench.now = bench.now + Duration::from_millis(3);
            bench.answer(seq, if down { 503 } else { 200 });
            if !down {
                delivered[seq.0 as usize % 3].push(seq.0);
            }
        }
    }
    for line in &delivered {
        assert_eq!(line.len(), 100);
        assert!(line.is_sorted(), "{line:?}");
    }
}

#[test]
fn a_newer_event_replaces_the_pending_one_of_its_device_and_no_other() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.append(5);
    for (seq, ..) in bench.attempts() {
        bench.answer(seq, 503);
    }
    assert_eq!(bench.snapshot().status, EndpointStatus::Held);
    for seq in 6..=3005 {
        // Ten devices send pings; every hundredth event is none.
        let ping = seq % 100 != 0;
        bench.terms.insert(Seq(seq), terms(seq % 10, None, ping));
    }
    bench.append(3000);
    bench.attempts();
    let left: Vec<u64> = bench.store.keys().map(|seq| seq.0).collect();
    assert_eq!(left.len(), 5 + 30 + 10, "{left:?}");
    assert_eq!(left[left.len() - 5..], [3001, 3002, 3003, 3004, 3005]);
    assert!(bench.ended.values().all(|end| *end == Settlement::Superseded));
    assert_eq!(bench.ended.len(), 3005 - left.len());
}

#[test]
fn a_ping_that_was_replaced_while_it_ran_is_not_sent_again() {
    let mut bench = Bench::new(EndpointPolicy::default());
    bench.terms.insert(Seq(1), terms(1, None, true));
    bench.terms.insert(Seq(2), terms(1, None, true));
    bench.append(1);
    assert_eq!(bench.attempts().len(), 1);
    bench.append(1);
    assert_eq!(bench.attempts().len(), 1);
    bench.answer(Seq(1), 500);
    bench.attempts();
    assert_eq!(bench.ended.get(&Seq(1)), Some(&Settlement::Superseded));
    bench.answer(Seq(2), 200);
    assert!(bench.store.is_empty());
}

#[test]
fn an_event_that_is_older_than_its_route_allows_is_dropped_with_a_trusted_clock_only() {
    for trusted in [true, false] {
        let mut bench = Bench::new(EndpointPolicy::default());
        bench.dispatcher.handle_clock(trusted);
        for seq in 1..=5 {
            let ttl = (seq <= 3).then_some(Duration::from_mins(1));
            bench.terms.insert(Seq(seq), terms(seq, ttl, false));
        }
        bench.append(5);
        let probes = bench.attempts();
        bench.dispatcher.handle_clock(trusted);
        for (seq, ..) in probes {
            let now = Now { store: bench.now, wall: UnixMillis(0), wall_trusted: trusted };
            let refused =
                Outcome::Transport { kind: TransportKind::Refused, bytes_sent: false, reused: false };
            let latency = Duration::from_millis(1);
            let settlement =
                bench.dispatcher.handle_outcome(ENDPOINT, seq, &refused, latency, now, &mut bench.rng);
            bench.write(seq, settlement.unwrap());
        }
        bench.now = StoreTime(1_000_000) + Duration::from_secs(59);
        bench.dispatcher.handle_pause(ENDPOINT, bench.now);
        assert!(bench.attempts().is_empty() && bench.ended.is_empty());
        bench.dispatcher.handle_resume(ENDPOINT, bench.now);
        bench.now = StoreTime(1_000_000) + Duration::from_secs(61);
        bench.attempts();
        let expired = bench.ended.values().filter(|end| **end == Settlement::Expired).count();
        assert_eq!(expired, if trusted { 3 } else { 0 });
    }
}

#[test]
fn transient_dead_letters_go_again_once_the_endpoint_is_well_at_five_a_second() {
    let mut policy = EndpointPolicy::default();
    policy.retry.attempts_max = 1;
    policy.hold.faults = 1000;
    let mut bench = Bench::new(policy);
    bench.append(27);
    bench.attempts();
    for seq in 1..=8 {
        bench.answer(Seq(seq), 500);
    }
    for seq in 9..=27 {
        bench.answer(Seq(seq), 200);
    }
    assert!(bench.attempts().is_empty());
    assert_eq!(bench.dead.len(), 8);
    assert!(bench.redriven.is_empty(), "19 in a row passed: it may still be unwell");
    bench.append(1);
    bench.attempts();
    bench.answer(Seq(28), 200);
    let before = bench.now;
    while !bench.store.is_empty() || !bench.dead.is_empty() {
        for (seq, number, _) in bench.next_attempts() {
            assert_eq!(number, 7, "attempts are counted on");
            bench.answer(seq, 200);
        }
    }
    let (times, letters): (Vec<_>, Vec<_>) = bench.redriven.iter().map(|(at, seq)| (*at, seq.0)).unzip();
    assert_eq!(letters, [1, 2, 3, 4, 5, 6, 7, 8], "the oldest first");
    assert!(times[0].since(before) <= Duration::from_millis(1));
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= Duration::from_millis(199)), "{times:?}");
}

#[test]
fn a_rate_limit_is_kept_to_in_a_drain_too() {
    let mut policy = EndpointPolicy::default();
    policy.rate.requests_per_s = Some(20.0);
    let mut bench = Bench::new(policy);
    bench.append(2000);
    let start = bench.now;
    let mut sent = 0;
    while bench.now.since(start) < Duration::from_secs(30) {
        for (seq, ..) in bench.next_attempts() {
            sent += 1;
            bench.answer(seq, 200);
        }
    }
    assert!((595..=605).contains(&sent), "{sent} in 30 s at 20/s");
}
