//! Each branch of the decision, as a table of facts and what becomes of the delivery.

use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::super::classify::{Answer, Outcome, classify};
use super::super::policy::BudgetPolicy;
use super::super::time::{Now, UnixMillis};
use super::*;

/// Facts of a failed first attempt that the tests change.
struct Case {
    policy: EndpointPolicy,
    status: u16,
    progress: Progress,
    held: bool,
    storm: bool,
    poison: bool,
    trusted: bool,
    now: StoreTime,
    tokens: f64,
}

fn case(status: u16) -> Case {
    Case {
        policy: EndpointPolicy::default(),
        status,
        progress: Progress::default(),
        held: false,
        storm: false,
        poison: false,
        trusted: true,
        now: StoreTime(0),
        tokens: 100.0,
    }
}

fn article(status: u16) -> Case {
    let mut case = case(status);
    case.policy.kind = PolicyKind::Article;
    case.policy.budget.when_empty = WhenEmpty::DeadLetter;
    case
}

impl Case {
    fn decide(&self) -> Decision {
        let now = Now { store: self.now, wall: UnixMillis(0), wall_trusted: self.trusted };
        let answer = Answer { status: self.status, ..Answer::default() };
        let verdict = classify(&Outcome::Response(answer), &self.policy, now);
        let facts = Facts {
            policy: &self.policy,
            verdict: &verdict,
            progress: &self.progress,
            accepted: StoreTime(0),
            held: self.held,
            storm: self.storm,
            free_repeats: 0,
            poison: self.poison,
            clock_trusted: self.trusted,
            now: self.now,
        };
        let settings = BudgetPolicy { min_per_sec: 0.0, ..self.policy.budget.clone() };
        let mut budget = Budget::new(&settings, Some(self.tokens), 0.0);
        decide(&facts, &mut budget, &mut Pcg64::seed_from_u64(1))
    }

    fn dead(&self) -> (VerdictKind, FailureClass) {
        match self.decide() {
            Decision::Dead { kind, reason, .. } => (kind, reason.class),
            other => panic!("not dead: {other:?}"),
        }
    }

    fn retried(&self) -> (bool, bool) {
        match self.decide() {
            Decision::Retry { charged, paid, .. } => (charged, paid),
            other => panic!("not retried: {other:?}"),
        }
    }
}

#[test]
fn delivered_and_refused_need_no_other_fact() {
    assert_eq!(case(204).decide(), Decision::Delivered);
    assert_eq!(Case { held: true, ..case(204) }.decide(), Decision::Delivered);
    assert_eq!(case(422).dead(), (VerdictKind::Terminal, FailureClass::Rejected));
    assert_eq!(Case { held: true, ..case(422) }.dead().1, FailureClass::Rejected, "a probe may be refused");
    assert_eq!(Case { held: true, storm: true, ..case(422) }.decide(), Decision::Return);
}

#[test]
fn nothing_is_charged_while_the_endpoint_is_held() {
    for status in [500, 503, 429, 401, 404, 302, 511] {
        assert_eq!(Case { held: true, poison: true, ..case(status) }.decide(), Decision::Return, "{status}");
    }
    assert_eq!(case(410).decide(), Decision::Return);
}

#[test]
fn only_failures_that_blame_the_event_are_charged() {
    assert_eq!(case(500).retried(), (true, false));
    for status in [503, 429, 401, 511] {
        assert_eq!(case(status).retried(), (false, false), "{status}");
    }
    assert_eq!(case(404).dead().1, FailureClass::Rejected, "an endpoint that works otherwise");
}

#[test]
fn the_last_attempt_ends_in_the_dead_letters() {
    let used = |charged| Progress { attempts: charged, charged, ..Progress::default() };
    assert!(Case { progress: used(4), ..case(500) }.retried().0);
    assert_eq!(Case { progress: used(5), ..case(500) }.dead(), (VerdictKind::Retry, FailureClass::Transient));
    assert!(!Case { progress: used(5), ..case(503) }.retried().0, "503 never uses attempts up");
    assert_eq!(Case { progress: used(5), ..article(503) }.dead().1, FailureClass::Transient);
}

#[test]
fn an_empty_budget_kills_only_where_the_policy_says_so() {
    assert_eq!(Case { tokens: 0.0, ..case(500) }.retried(), (true, false));
    assert_eq!(Case { tokens: 0.9, ..article(500) }.dead().1, FailureClass::Transient);
    assert_eq!(Case { tokens: 1.0, ..article(500) }.retried(), (true, true), "the token is taken already");
}

#[test]
fn the_retry_window_counts_with_a_trusted_clock_only() {
    let hours = |hours: u64| StoreTime(hours * 3_600_000);
    assert!(Case { now: hours(71), ..case(500) }.retried().0);
    assert_eq!(Case { now: hours(72), ..case(500) }.dead().1, FailureClass::Expired);
    assert!(Case { now: hours(72), trusted: false, ..case(500) }.retried().0);
    assert!(Case { now: hours(72), ..article(500) }.retried().0, "the article knows no window");
}

#[test]
fn poison_is_an_event_that_fails_while_others_pass() {
    assert_eq!(Case { poison: true, ..case(503) }.dead(), (VerdictKind::Poison, FailureClass::Poison));
    assert!(is_poison(3, 5, 0.0, false));
    assert!(!is_poison(2, 500, 0.0, false));
    assert!(!is_poison(3, 4, 0.0, false));
    // A receiver that drops half of everything: three failures are ordinary, twenty are not.
    assert!(!is_poison(3, 50, 0.5, false));
    assert!(!is_poison(19, 500, 0.5, false));
    assert!(is_poison(20, 500, 0.5, false));
    assert!(!is_poison(u32::MAX, 500, 1.0, false));
    // A receiver that says it is overloaded is believed for longer.
    assert!(is_poison(5, 500, 0.05, false));
    assert!(!is_poison(5, 500, 0.05, true));
    assert!(is_poison(7, 500, 0.05, true));
    assert!(!is_poison(100, 500, 0.3, true));
}
