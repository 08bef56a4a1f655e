//! The simulator against what is known: each table of RETRY that it must reproduce, from fixed seeds.
//!
//! `WAYPOST_SLOW=1 cargo test --release models` runs every row with more trials.

use waypost::sim::fleet;
use waypost::sim::models::contention::{self, Law};
use waypost::sim::models::fate::{self, Fate};
use waypost::sim::models::metastable::{self, Callers, Pays};

fn slow() -> bool {
    std::env::var_os("WAYPOST_SLOW").is_some()
}

/// RETRY 2.1: clients, then completion time in ms and write calls without backoff and for each law of jitter.
const CONTENTION: [(u32, [(f64, f64); 5]); 7] = [
    (10, [(380., 50.), (3553., 50.), (736., 42.), (458., 38.), (435., 37.)]),
    (20, [(605., 152.), (14101., 149.), (1632., 107.), (1057., 100.), (832., 101.)]),
    (50, [(1138., 690.), (36033., 618.), (4234., 346.), (2868., 332.), (2137., 375.)]),
    (100, [(2023., 2415.), (63881., 1854.), (6642., 811.), (4956., 796.), (4471., 1001.)]),
    (130, [(2536., 3933.), (77120., 2841.), (7636., 1113.), (5881., 1102.), (5727., 1444.)]),
    (150, [(2873., 5139.), (85402., 3541.), (8272., 1324.), (6342., 1316.), (6560., 1759.)]),
    (190, [(3534., 8002.), (101_010., 5163.), (9315., 1761.), (7392., 1771.), (7909., 2427.)]),
];

/// Trials that the table's figures are means of.
const TABLE_TRIALS: f64 = 100.0;

/// Write calls within 5 %, completion time within 5 % or three standard errors: the time of the last of few clients differs
/// so much between trials that the table's own means of 100 are not better known than that.
#[test]
fn contention_for_one_row_costs_what_the_published_experiment_found() {
    let laws = [Law::None, Law::Exponential, Law::Equal, Law::Full, Law::Decorrelated];
    let trials = if slow() { 400 } else { 30 };
    for (clients, row) in CONTENTION {
        if !slow() && ![50, 100, 190].contains(&clients) {
            continue;
        }
        for (law, (done_ms, calls)) in laws.into_iter().zip(row) {
            let found = contention::run(law, clients, trials, 1);
            let error_ms = found.done_sd_ms * (1.0 / TABLE_TRIALS + 1.0 / f64::from(trials)).sqrt();
            let what = format!("{clients} clients, {law:?}: {found:.0?} for {done_ms} ms and {calls} calls");
            println!("{what}");
            assert!((found.calls - calls).abs() <= 0.05 * calls, "{what}");
            assert!((found.done_ms - done_ms).abs() <= f64::max(0.05 * done_ms, 3.0 * error_ms), "{what}");
        }
    }
}

/// RETRY 3.3: events a second, seconds of outage; per cent delivered, shed and exhausted; points that the dead-letter share
/// and the split may be off. One point, but for rows of which RETRY has a single run of 60 or 600 events, and for rows
/// in which the budget only just runs out: there one run differs from the next by 10 to 25 points.
const FATE: [(f64, f64, [f64; 3], f64, f64); 24] = [
    (0.1, 600.0, [0.0, 0.0, 100.0], 3.0, 3.0),
    (0.1, 21_600.0, [0.09, 0.0, 99.9], 1.0, 1.0),
    (0.1, 259_200.0, [0.004, 0.0, 100.0], 1.0, 1.0),
    (1.0, 5.0, [99.4, 0.0, 0.6], 1.0, 1.0),
    (1.0, 10.0, [89.3, 0.0, 10.7], 1.0, 1.0),
    (1.0, 30.0, [34.8, 16.8, 48.4], 1.0, 3.0),
    (1.0, 60.0, [4.3, 59.0, 36.7], 1.0, 3.0),
    (1.0, 600.0, [0.5, 94.2, 5.3], 1.0, 2.5),
    (1.0, 21_600.0, [0.005, 96.0, 4.0], 1.0, 1.0),
    (1.0, 259_200.0, [0.0, 96.2, 3.8], 1.0, 1.0),
    (10.0, 5.0, [60.2, 39.2, 0.6], 3.0, 3.0),
    (10.0, 10.0, [1.5, 97.3, 1.1], 1.0, 1.0),
    (10.0, 30.0, [0.3, 99.3, 0.4], 1.0, 1.0),
    (10.0, 60.0, [0.13, 99.7, 0.2], 1.0, 1.0),
    (10.0, 600.0, [0.0, 100.0, 0.0], 1.0, 1.0),
    (10.0, 21_600.0, [0.0, 100.0, 0.0], 1.0, 1.0),
    (10.0, 259_200.0, [0.0, 100.0, 0.001], 1.0, 1.0),
    (100.0, 5.0, [0.15, 99.9, 0.0], 1.0, 1.0),
    (100.0, 10.0, [0.05, 99.9, 0.0], 1.0, 1.0),
    (100.0, 30.0, [0.02, 100.0, 0.0], 1.0, 1.0),
    (100.0, 60.0, [0.01, 100.0, 0.0], 1.0, 1.0),
    (100.0, 600.0, [0.0, 100.0, 0.0], 1.0, 1.0),
    (100.0, 21_600.0, [0.0, 100.0, 0.0], 1.0, 1.0),
    (100.0, 259_200.0, [0.0, 100.0, 0.0], 1.0, 1.0),
];

/// Events of one row that the default run spends.
const FATE_EVENTS: f64 = 10_000.0;

#[test]
fn the_articles_policy_gives_up_what_an_outage_brings() {
    let policy = fleet::article();
    for (rate, outage_s, expected, dead_within, split_within) in FATE {
        let events = rate * outage_s;
        if !slow() && events > FATE_EVENTS * 10.0 {
            continue;
        }
        let spend = if slow() { 100.0 * FATE_EVENTS } else { FATE_EVENTS };
        let mut sum = Fate::default();
        for seed in 0..(spend / events).ceil() as u64 {
            let one = fate::run(&policy.retry, &policy.budget, rate, outage_s, seed);
            sum.delivered += one.delivered;
            sum.shed += one.shed;
            sum.exhausted += one.exhausted;
        }
        let found = sum.shares();
        let what = format!("{rate}/s, {outage_s} s: {found:.2?} for {expected:?}");
        println!("{what}");
        assert!((found[0] - expected[0]).abs() <= dead_within, "dead letters of {what}");
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() <= split_within, "{what}");
        }
    }
}

/// RETRY 2.4: with 140, 200 and 280 of 300 requests a second, who ever comes back from a freeze of ten seconds.
#[test]
fn retries_keep_a_server_down_and_budgets_and_store_and_forward_do_not() {
    let retry = |retries, spread_s, pays| Callers::Retry { retries, spread_s, pays };
    let per_success =
        |ratio, min_per_s| retry(5, 30.0, Pays::PerSuccess { ratio, min_per_s, ceiling: 100.0 });
    let rows = [
        ("no retries", retry(0, 0.0, Pays::Nothing), [true, true, true]),
        ("1 retry at once", retry(1, 0.0, Pays::Nothing), [true, false, false]),
        ("1 retry, jitter", retry(1, 10.0, Pays::Nothing), [true, false, false]),
        ("5 retries, jitter", retry(5, 30.0, Pays::Nothing), [false, false, false]),
        ("5 retries, the article's budget", per_success(0.1, 1.0), [true, true, true]),
        (
            "5 retries, 20 % per first try",
            retry(5, 30.0, Pays::PerFirstTry { ratio: 0.2, ceiling: 100.0 }),
            [true, true, false],
        ),
        ("5 retries, 20 % per success", per_success(0.2, 0.0), [true, true, true]),
        (
            "store and forward, 64 in flight",
            Callers::StoreAndForward { in_flight_max: 64 },
            [true, true, true],
        ),
    ];
    for (name, callers, recovers) in rows {
        for (rate, recovers) in [140.0, 200.0, 280.0].into_iter().zip(recovers) {
            if !slow() && rate == 200.0 {
                continue;
            }
            // RETRY's slowest recovery takes 269 s.
            let thaw = metastable::run(callers, rate, 400.0, 1);
            println!("{name}, {rate}/s: {thaw:?}");
            assert_eq!(thaw.recovered_s.is_some(), recovers, "{name}, {rate}/s: {thaw:?}");
            if matches!(callers, Callers::StoreAndForward { .. }) {
                assert_eq!(thaw.recovered_s, Some(0.0), "{rate}/s");
            }
        }
    }
}
