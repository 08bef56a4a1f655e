//! The simulated world: the real dispatcher under every fault, from fixed seeds.
//!
//! `WAYPOST_SIM_SEEDS=100000 cargo test --release sim` for a long run; a failure prints the seed that replays it:
//! `WAYPOST_SIM_SEED=… cargo test sim`.

use waypost::sim::world;

/// Seeds of the default run.
const SEEDS: u64 = 64;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
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
