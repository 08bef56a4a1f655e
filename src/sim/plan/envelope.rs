//! Delays of the laws of jitter, attempt by attempt: between what and what they lie.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use crate::core::backoff;
use crate::core::policy::{Jitter, RetryPolicy};

/// Failed attempts that are looked at.
pub const ATTEMPTS: u32 = 10;
/// Ladders that are drawn for the quantiles.
const LADDERS: usize = 2000;

/// Delay after one failed attempt, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Band {
    /// Number of the failed attempt, from 1.
    pub attempt: u32,
    /// One in twenty is shorter.
    pub p5_s: f64,
    /// Half are shorter.
    pub median_s: f64,
    /// One in twenty is longer.
    pub p95_s: f64,
}

/// One law.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Envelope {
    /// Its name in the config.
    pub jitter: &'static str,
    /// Attempt by attempt.
    pub bands: Vec<Band>,
    /// From the first attempt to the sixth, if each fails at once: the median.
    pub six_attempts_s: f64,
}

/// Full, equal and decorrelated with this base and cap.
pub fn all(retry: &RetryPolicy, seed: u64) -> Vec<Envelope> {
    [("full", Jitter::Full), ("equal", Jitter::Equal), ("decorrelated", Jitter::Decorrelated)]
        .into_iter()
        .map(|(name, jitter)| of(name, &RetryPolicy { jitter, ..retry.clone() }, seed))
        .collect()
}

fn of(name: &'static str, retry: &RetryPolicy, seed: u64) -> Envelope {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut delays = vec![Vec::with_capacity(LADDERS); ATTEMPTS as usize];
    let mut totals = Vec::with_capacity(LADDERS);
    for _ in 0..LADDERS {
        let (mut previous, mut total) = (Duration::ZERO, 0.0);
        for attempt in 1..=ATTEMPTS {
            previous = backoff::delay_given(retry, attempt, previous, rng.random());
            delays[attempt as usize - 1].push(previous.as_secs_f64());
            total += if attempt < 6 { previous.as_secs_f64() } else { 0.0 };
        }
        totals.push(total);
    }
    let bands = (1..=ATTEMPTS)
        .zip(&mut delays)
        .map(|(attempt, delays)| Band {
            attempt,
            p5_s: quantile(delays, 0.05),
            median_s: quantile(delays, 0.5),
            p95_s: quantile(delays, 0.95),
        })
        .collect();
    Envelope { jitter: name, bands, six_attempts_s: quantile(&mut totals, 0.5) }
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get((values.len() as f64 * share) as usize).copied().unwrap_or(0.0)
}
