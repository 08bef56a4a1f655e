//! The simulated world: the real dispatcher under every fault, from fixed seeds.
//!
//! `WAYPOST_SIM_SEEDS=100000 cargo test --release sim` for a long run; a failure prints the seed that replays it:
//! `WAYPOST_SIM_SEED=… cargo test sim`.

use std::time::Duration;

use waypost::core::policy::EndpointPolicy;
use waypost::sim::fleet::{self, Outage, Scenario, Trouble};
use waypost::sim::world;

/// Seeds of the default run.
const SEEDS: u64 = 64;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn slow() -> bool {
    std::env::var_os("WAYPOST_SLOW").is_some()
}

/// Nothing is lost, nothing overlaps, nothing is attempted against a hold, and when the faults stop all settles.
#[test]
fn every_seed_keeps_its_promises_and_settles() {
    let seeds = match number("WAYPOST_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WAYPOST_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let (mut attempts, mut holds, mut crashes, mut dead, mut delivered) = (0, 0, 0, 0, 0);
    let mut slowest = (0, 0);
    for seed in seeds {
        let summary = match world::run(seed) {
            Ok(summary) => summary,
            Err(violation) => panic!("{violation}\nreplay: WAYPOST_SIM_SEED={seed} cargo test sim"),
        };
        attempts += summary.attempts;
        holds += summary.holds;
        crashes += summary.crashes;
        dead += summary.dead;
        delivered += summary.delivered;
        slowest = slowest.max((summary.settled_after_ms, seed));
    }
    println!(
        "{delivered} delivered, {dead} dead, {attempts} attempts, {holds} holds, {crashes} crashes; slowest to settle: {} s (seed {})",
        slowest.0 / 1000,
        slowest.1
    );
}

/// The same seed gives the same run, another seed another one.
#[test]
fn a_seed_replays() {
    let trace = |seed| world::run(seed).map(|summary| summary.trace);
    for seed in [1, 7, 42] {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
    assert_ne!(trace(1), trace(2));
}

/// 10 events/s and a receiver that is down for ten minutes: no event dies, few attempts are made against it, its return
/// is noticed within a minute, the drain begins gently and takes little more than it must.
#[test]
fn a_ten_minute_outage_costs_little_and_loses_nothing() {
    let kinds = [Outage::Refuses, Outage::Answers503, Outage::Hangs];
    for (seed, outage_kind) in (0..4).flat_map(|seed| kinds.map(|kind| (seed, kind))) {
        let report = fleet::run(&Scenario { seed, outage_kind, ..Scenario::default() });
        println!("{outage_kind:?}: noticed {:?}, drained {:?}", report.noticed_after, report.drained_after);
        assert_eq!(report.dead, 0, "seed {seed}");
        assert!(report.attempts_in_outage <= 35, "seed {seed}: {} attempts", report.attempts_in_outage);
        let noticed = report.noticed_after.unwrap();
        assert!(noticed <= Duration::from_millis(60_100), "seed {seed}: noticed after {noticed:?}");
        assert!(report.first_second_in_flight <= 5, "seed {seed}: {}", report.first_second_in_flight);
        let drained = report.drained_after.unwrap().as_secs_f64() - noticed.as_secs_f64();
        let ideal = report.ideal.as_secs_f64();
        assert!(drained <= 1.3 * ideal, "seed {seed}: drained in {drained} s, ideal {ideal} s");
    }
}

/// A fleet comes back to one receiver: it is not run over, and little of its capacity is wasted.
#[test]
fn a_fleet_does_not_run_its_receiver_over() {
    // The full size of 200 boxes and 20 minutes takes half a minute in a debug build.
    let (boxes, outage) = if slow() { (200, Duration::from_mins(20)) } else { (100, Duration::from_mins(5)) };
    let capacity = f64::from(boxes) * 2.5;
    for seed in 0..if slow() { 12 } else { 1 } {
        let report = fleet::run(&Scenario {
            appliances: boxes,
            rate_per_s: 1.0,
            outage,
            capacity_per_s: capacity,
            seed,
            ..Scenario::default()
        });
        let peak = report.peak_per_s as f64 / capacity;
        let drained = report.drained_after.unwrap().as_secs_f64() / report.ideal.as_secs_f64();
        println!("seed {seed}: peak {peak:.2} x capacity, drained in {drained:.2} x the ideal");
        assert!(peak <= 1.3, "seed {seed}: peak {peak}");
        assert!(drained <= 1.1, "seed {seed}: drained in {drained} x the ideal");
        assert_eq!(report.dead, 0, "seed {seed}");
    }
}

/// The usual queue, where each event climbs its own ladder of retries, comes back as a herd that the receiver never
/// recovers from; the hold and its ramp stay within half of the capacity on top and lose nothing.
#[test]
fn a_drain_that_kills_a_receiver_does_not_happen_under_hold() {
    let scenario = |policy, drain_max| Scenario {
        appliances: 10,
        rate_per_s: 1.0,
        capacity_per_s: 25.0,
        policy,
        drain_max,
        ..Scenario::default()
    };
    let ladder = fleet::run(&scenario(fleet::ladder(), Duration::from_secs(60)));
    let peak = ladder.peak_per_s as f64 / 25.0;
    println!("ladder: {peak:.1} x capacity, drained {:?}", ladder.drained_after);
    assert!(peak > 10.0, "{peak}");
    assert_eq!(ladder.drained_after, None);
    let held = fleet::run(&scenario(EndpointPolicy::default(), Duration::from_hours(1)));
    let peak = held.peak_per_s as f64 / 25.0;
    println!("hold: {peak:.1} x capacity, drained {:?}", held.drained_after);
    assert!(peak <= 1.5, "{peak}");
    assert!(held.drained_after.is_some());
    assert_eq!(held.dead, 0, "nothing is shed");
}

/// A day with an outage, a brown-out, a freeze, an hour of hanging connections and a quarter of refusals: nothing dies,
/// every backlog goes, and the same seed gives the same day.
#[test]
fn a_day_of_trouble_of_every_kind_loses_nothing() {
    // 200 boxes take eight seconds in a release build.
    let boxes = if slow() { 200 } else { 5 };
    let hours = Duration::from_hours;
    let trouble = |from, length, kind| Trouble { from, length, kind };
    let scenario = Scenario {
        appliances: boxes,
        rate_per_s: if slow() { 0.1 } else { 0.05 },
        warm_up: hours(2),
        outage: hours(2),
        drain_max: hours(22),
        run_for: hours(24),
        capacity_per_s: if slow() { 100.0 } else { 20.0 },
        troubles: vec![
            trouble(hours(8), Duration::from_mins(10), Outage::Brownout(0.3)),
            trouble(hours(12), Duration::from_mins(1), Outage::Freezes),
            trouble(hours(16), hours(1), Outage::Hangs),
            trouble(hours(20), Duration::from_mins(15), Outage::Answers503),
        ],
        ..Scenario::default()
    };
    let report = fleet::run(&scenario);
    let open = report.seconds.last().unwrap().open;
    println!("{} accepted, {} attempts, {open} open at the end", report.accepted, report.attempts);
    assert_eq!(report.dead, 0);
    assert_eq!(report.accepted, report.delivered + open);
    assert!(open <= u64::from(boxes), "{open} open at the end of the day");
    for hour in [1, 7, 11, 15, 19] {
        let open = report.seconds[hour * 3600 + 3500].open;
        assert!(open <= u64::from(boxes), "{open} open before hour {}", hour + 1);
    }
    if !slow() {
        assert_eq!(fleet::run(&scenario).trace, report.trace);
        assert_ne!(fleet::run(&Scenario { seed: 2, ..scenario }).trace, report.trace);
    }
}

/// The article's own policy on a stored event, as RETRY 3.3 has it: delivered, shed and exhausted shares of the events
/// accepted during an outage, within one point. Rows in which the budget only just runs out are left out: what is shed
/// there hangs on how regular the arrivals are (6 % or 20 % of the events of 30 s at 1/s).
#[test]
fn the_article_sheds_what_an_outage_brings() {
    let rows = [
        (1.0, 10, [89.3, 0.0, 10.7], 200),
        (10.0, 10, [1.5, 97.3, 1.1], 60),
        (10.0, 30, [0.3, 99.3, 0.4], 20),
        (10.0, 60, [0.13, 99.7, 0.2], 10),
    ];
    for (rate_per_s, outage_s, expected, runs) in rows {
        let (mut accepted, mut shed, mut exhausted) = (0, 0, 0);
        for seed in 0..runs {
            let report = fleet::run(&Scenario {
                rate_per_s,
                warm_up: Duration::from_secs(2),
                outage: Duration::from_secs(outage_s),
                outage_kind: Outage::Answers503,
                capacity_per_s: 1e6,
                drain_max: Duration::from_secs(90),
                policy: fleet::article(),
                seed,
                ..Scenario::default()
            });
            accepted += report.accepted_in_outage;
            shed += report.shed_in_outage;
            exhausted += report.exhausted_in_outage;
        }
        let share = |count: u64| count as f64 * 100.0 / accepted as f64;
        let found = [share(accepted - shed - exhausted), share(shed), share(exhausted)];
        println!("{rate_per_s}/s, {outage_s} s: {found:.1?}, expected {expected:.1?}");
        for (found, expected) in found.into_iter().zip(expected) {
            assert!(
                (found - expected).abs() <= 1.0,
                "{rate_per_s}/s, {outage_s} s: {found:.2} for {expected}"
            );
        }
    }
}
