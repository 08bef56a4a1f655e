//! The policy's leaves against reference vectors: given the same numbers they give the same results.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use waypost::core::backoff;
use waypost::core::budget::Budget;
use waypost::core::classify::{Answer, Outcome, VerdictKind, classify};
use waypost::core::policy::{BudgetPolicy, EndpointPolicy, Jitter, PolicyKind, RetryPolicy, WhenEmpty};
use waypost::core::time::{Now, StoreTime, UnixMillis};

use crate::support::shared;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn close(found: f64, expected: f64, what: &str) {
    let tolerance = 1e-12 * expected.abs().max(1e-300);
    assert!((found - expected).abs() <= tolerance, "{what}: {found} instead of {expected}");
}

/// Draws per law and attempt.
const DRAWS: u32 = 20_000;

/// Each law gives the reference delays for given uniform numbers, and its milliseconds stay beside them.
#[test]
fn delays_equal_the_reference_given_the_uniform_numbers() {
    let Some(file) = shared("golden/jitter.json") else { return };
    let golden: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let cases = golden["given_u"]["cases"].as_array().unwrap();
    assert!(cases.len() >= 100);
    for case in cases {
        let (base, cap) = (case["base"].as_f64().unwrap(), case["cap"].as_f64().unwrap());
        let (full, equal) = (numbers(&case["full"]), numbers(&case["equal"]));
        let decorrelated = numbers(&case["decorrelated"]);
        let mut previous = base;
        for (index, u) in numbers(&case["u"]).into_iter().enumerate() {
            let n = index as u32 + 1;
            close(backoff::full_s(base, cap, n, u), full[index], "full");
            close(backoff::equal_s(base, cap, n, u), equal[index], "equal");
            let delay = backoff::decorrelated_s(base, cap, previous, u);
            close(delay, decorrelated[index], "decorrelated");
            for (jitter, expected) in [(Jitter::Full, full[index]), (Jitter::Equal, equal[index])] {
                let policy = RetryPolicy {
                    jitter,
                    base: Duration::from_secs_f64(base),
                    cap: Duration::from_secs_f64(cap),
                    ..EndpointPolicy::default().retry
                };
                let found = backoff::delay_given(&policy, n, Duration::ZERO, u).as_secs_f64();
                assert!((found - expected).abs() <= 0.000_5 + 1e-9, "{jitter:?}: {found} for {expected}");
            }
            previous = delay;
        }
    }
}

/// Bounds of each attempt and moments of a sample agree with the reference.
#[test]
fn sampled_delays_have_the_reference_bounds_and_means() {
    use rand::{RngExt, SeedableRng};
    let Some(file) = shared("golden/jitter.json") else { return };
    let golden: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let seed: u64 = rand::random();
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    for setting in golden["settings"].as_array().unwrap() {
        let (base, cap) = (setting["base"].as_f64().unwrap(), setting["cap"].as_f64().unwrap());
        for law in ["full", "equal"] {
            for row in setting["strategies"][law]["per_attempt"].as_array().unwrap() {
                let n = row["attempt"].as_u64().unwrap() as u32;
                let (lower, upper) = (row["lower"].as_f64().unwrap(), row["upper"].as_f64().unwrap());
                let mut sum = 0.0;
                for _ in 0..DRAWS {
                    let u = rng.random::<f64>();
                    let delay = match law {
                        "full" => backoff::full_s(base, cap, n, u),
                        _ => backoff::equal_s(base, cap, n, u),
                    };
                    assert!((lower..=upper).contains(&delay), "{law} {n}: {delay} (seed {seed})");
                    sum += delay;
                }
                let (mean, stdev) =
                    (row["exact"]["mean"].as_f64().unwrap(), row["exact"]["stdev"].as_f64().unwrap());
                let error = (sum / f64::from(DRAWS) - mean).abs();
                // Six standard errors: one false alarm in 500 million.
                assert!(
                    error <= 6.0 * stdev / f64::from(DRAWS).sqrt(),
                    "{law} {n}: mean off by {error} (seed {seed})"
                );
            }
        }
    }
}

/// Levels and answers of the retry budget equal the reference traces to the last bit.
#[test]
fn budgets_equal_the_reference_traces_to_the_last_bit() {
    let Some(file) = shared("golden/budget.jsonl") else { return };
    let mut traces = 0;
    for line in fs::read_to_string(file).unwrap().lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let name = trace["name"].as_str().unwrap();
        let number = |field: &str| trace[field].as_f64().unwrap();
        let policy = BudgetPolicy {
            ratio: number("ratio"),
            ceiling: number("ceiling"),
            min_per_sec: number("min_per_sec"),
            when_empty: WhenEmpty::Defer,
        };
        let mut budget = Budget::new(&policy, None, number("t0"));
        assert_eq!(budget.tokens().to_bits(), number("initial_tokens").to_bits(), "{name}");
        let (mut allowed, mut denied) = (0, 0);
        let events = trace["events"].as_array().unwrap().iter();
        for (step, (event, result)) in events.zip(trace["results"].as_array().unwrap()).enumerate() {
            let at_s = event[0].as_f64().unwrap();
            let answer = if event[1] == "success" {
                budget.success(at_s);
                Value::Null
            } else if budget.try_take(at_s) {
                allowed += 1;
                "allow".into()
            } else {
                denied += 1;
                "deny".into()
            };
            assert_eq!(answer, result[0], "{name}, step {step}");
            let tokens = result[1].as_f64().unwrap();
            assert_eq!(budget.tokens().to_bits(), tokens.to_bits(), "{name}, step {step}: {tokens}");
        }
        assert_eq!(
            (Some(allowed), Some(denied)),
            (trace["allowed"].as_u64(), trace["denied"].as_u64()),
            "{name}"
        );
        traces += 1;
    }
    assert!(traces >= 100);
}

/// The article's table equals the reference for every status.
#[test]
fn the_article_classifies_every_status_as_the_reference_does() {
    let Some(file) = shared("golden/classification.csv") else { return };
    let policy = EndpointPolicy { kind: PolicyKind::Article, ..EndpointPolicy::default() };
    let now = Now { store: StoreTime(0), wall: UnixMillis(0), wall_trusted: true };
    let mut rows = 0;
    for line in fs::read_to_string(file).unwrap().lines().skip(1) {
        let mut fields = line.split(',');
        let status = fields.next().unwrap().parse().unwrap();
        let expected = match fields.next().unwrap() {
            "SUCCESS" => VerdictKind::Delivered,
            "RETRYABLE" => VerdictKind::Retry,
            "TERMINAL" => VerdictKind::Terminal,
            other => panic!("unknown outcome {other}"),
        };
        let outcome = Outcome::Response(Answer { status, ..Answer::default() });
        assert_eq!(classify(&outcome, &policy, now).kind, expected, "{status}");
        rows += 1;
    }
    assert_eq!(rows, 500);
}
