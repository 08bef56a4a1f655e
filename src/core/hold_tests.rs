//! What trips a hold and what does not, and how probes are timed.

use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::super::classify::{Answer, Outcome, TransportKind, classify};
use super::super::policy::EndpointPolicy;
use super::super::time::{Now, UnixMillis};
use super::*;

struct Bench {
    health: Health,
    rng: Pcg64,
    now: StoreTime,
}

impl Bench {
    fn new() -> Self {
        let health = Health::new(EndpointPolicy::default().hold);
        Self { health, rng: Pcg64::seed_from_u64(3), now: StoreTime(1_000_000) }
    }

    /// A bench whose endpoint has taken an event before.
    fn proven() -> Self {
        let mut bench = Self::new();
        bench.health.succeeded(bench.now);
        bench
    }

    fn verdict(outcome: &Outcome) -> Verdict {
        let now = Now { store: StoreTime(0), wall: UnixMillis(0), wall_trusted: true };
        classify(outcome, &EndpointPolicy::default(), now)
    }

    fn fails(&mut self, seq: u64, outcome: &Outcome) -> Option<HoldReason> {
        let verdict = Self::verdict(outcome);
        self.health.failed(Seq(seq), &verdict, false, self.now, &mut self.rng);
        self.health.hold().map(|hold| hold.reason)
    }

    fn status(&mut self, seq: u64, status: u16) -> Option<HoldReason> {
        self.fails(seq, &Outcome::Response(Answer { status, ..Answer::default() }))
    }

    fn transport(&mut self, seq: u64, kind: TransportKind) -> Option<HoldReason> {
        self.fails(seq, &Outcome::Transport { kind, bytes_sent: false, reused: false })
    }
}

#[test]
fn five_faults_need_three_events() {
    let mut bench = Bench::new();
    for _ in 0..8 {
        assert_eq!(bench.status(1, 500), None, "one event alone is not the endpoint's fault");
        bench.now = bench.now + Duration::from_secs(10);
    }
    assert_eq!(bench.status(2, 500), None);
    assert_eq!(bench.status(3, 503), Some(HoldReason::Http5xx));
}

#[test]
fn ten_faults_in_half_a_minute_need_no_third_event() {
    let mut bench = Bench::new();
    for _ in 0..9 {
        assert_eq!(bench.status(1, 500), None);
    }
    assert_eq!(bench.status(1, 500), Some(HoldReason::Http5xx));
}

#[test]
fn all_that_is_pending_may_be_one_event() {
    let mut bench = Bench::new();
    let verdict = Bench::verdict(&Outcome::Response(Answer { status: 500, ..Answer::default() }));
    for n in 1..=5 {
        let tripped = bench.health.failed(Seq(1), &verdict, true, bench.now, &mut bench.rng);
        assert_eq!(tripped, n == 5);
    }
}

#[test]
fn one_success_takes_all_evidence_back() {
    let mut bench = Bench::new();
    for round in 0..10 {
        for seq in 0..4 {
            assert_eq!(bench.status(round * 10 + seq, 503), None);
        }
        bench.health.succeeded(bench.now);
    }
}

#[test]
fn each_cause_is_named() {
    let name = |kind, times: u64| {
        let mut bench = Bench::new();
        (0..times).find_map(|seq| bench.transport(seq, kind))
    };
    assert_eq!(name(TransportKind::Refused, 5), Some(HoldReason::Refused));
    assert_eq!(name(TransportKind::ConnectTimeout, 5), Some(HoldReason::Timeout));
    assert_eq!(name(TransportKind::Timeout, 5), Some(HoldReason::Timeout));
    assert_eq!(name(TransportKind::Tls, 5), Some(HoldReason::Tls));
    assert_eq!(name(TransportKind::NoNetwork, 1), Some(HoldReason::Network));
    assert_eq!(name(TransportKind::Dns, 1), None);
    assert_eq!(name(TransportKind::Dns, 2), Some(HoldReason::Dns));
    let mut bench = Bench::new();
    assert_eq!(bench.status(1, 511), Some(HoldReason::Captive));
    assert_eq!(HoldReason::Http5xx.to_string(), "http_5xx");
    assert_eq!(serde_json::to_string(&HoldReason::Http5xx).unwrap(), "\"http_5xx\"");
}

#[test]
fn credentials_hold_at_the_third_refusal_in_a_row() {
    let mut bench = Bench::proven();
    assert_eq!(bench.status(1, 401), None);
    assert_eq!(bench.status(2, 403), None);
    assert_eq!(bench.status(3, 500), None);
    assert_eq!(bench.status(4, 401), None, "the row was broken");
    let mut bench = Bench::proven();
    let reasons: Vec<_> = (1..=3).map(|seq| bench.status(seq, 401)).collect();
    assert_eq!(reasons, [None, None, Some(HoldReason::Auth)]);
}

#[test]
fn a_wrong_address_holds_at_once_if_it_never_worked_and_at_the_third_event_if_it_did() {
    assert_eq!(Bench::new().status(1, 404), Some(HoldReason::Config));
    let mut bench = Bench::proven();
    let reasons: Vec<_> = (1..=3).map(|seq| bench.status(seq, 301)).collect();
    assert_eq!(reasons, [None, None, Some(HoldReason::Config)]);
}

#[test]
fn terminal_answers_trip_only_as_a_storm_after_success() {
    let mut bench = Bench::new();
    for seq in 0..500 {
        assert_eq!(bench.status(seq, 400), None, "it never worked: the documents may all be wrong");
    }
    let mut bench = Bench::proven();
    let first = (1..100).find(|seq| bench.status(*seq, 400).is_some());
    assert_eq!(first, Some(10), "half of the minute's ends, at least ten");
    let mut bench = Bench::proven();
    for n in 0..3000 {
        bench.now = bench.now + Duration::from_millis(30);
        if n % 100 == 0 {
            assert_eq!(bench.status(n, 422), None, "one bad event in a hundred is no storm");
        } else {
            bench.health.succeeded(bench.now);
        }
    }
}

#[test]
fn a_terminal_answer_shows_that_the_endpoint_works() {
    let mut bench = Bench::proven();
    for round in 0..3 {
        for seq in 0..3 {
            assert_eq!(bench.status(round * 10 + seq, 503), None);
        }
        assert_eq!(bench.status(round * 10 + 9, 422), None);
    }
}

#[test]
fn probes_come_at_decorrelated_delays_within_their_bounds() {
    let mut bench = Bench::new();
    bench.transport(1, TransportKind::NoNetwork);
    let verdict = Bench::verdict(&Outcome::Transport {
        kind: TransportKind::NoNetwork,
        bytes_sent: false,
        reused: false,
    });
    let mut delays = Vec::new();
    for _ in 0..500 {
        let next = bench.health.hold().unwrap().next_probe;
        delays.push(next.since(bench.now).as_secs_f64());
        bench.now = next;
        bench.health.probe_failed(&verdict, bench.now, bench.now, &mut bench.rng);
    }
    assert!(delays.iter().all(|delay| (5.0..=60.0).contains(delay)));
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    assert!((38.0..48.0).contains(&mean), "about 43 s between probes, found {mean}");
}

#[test]
fn a_link_change_wakes_the_probe_within_five_seconds() {
    let mut bench = Bench::new();
    bench.transport(1, TransportKind::NoNetwork);
    bench.health.postpone(bench.now + Duration::from_hours(1));
    bench.health.link_changed(bench.now, &mut bench.rng);
    assert!(bench.health.hold().unwrap().next_probe <= bench.now + Duration::from_secs(5));
}
