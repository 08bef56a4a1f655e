//! Delays between attempts: four laws of jitter, as arithmetic.
//!
//! Each law is a function of a uniform number `u` in `[0, 1)`, so that its exact value can be tested; [`draw`] takes
//! the number from a generator. Delays are computed in seconds as doubles and leave here as whole milliseconds,
//! rounded so that they never leave the law's bounds.
//!
//! Invariants: full stays in `[0, cap]`, equal in `[base/2, cap]`, decorrelated in `[base, cap]`, additive in
//! `[base, cap + 1 s]`; no attempt number overflows. Budget, `Retry-After` and limits are not known here.

use std::time::Duration;

use rand::{Rng, RngExt};

use super::policy::{Jitter, RetryPolicy};

/// Width of the random part of [`Jitter::Additive`], in seconds (second source article).
const ADDITIVE_SPREAD_S: f64 = 1.0;
/// How much further than the previous delay decorrelated jitter may draw (source article).
const DECORRELATED_FACTOR: f64 = 3.0;
/// `2^1023` is the largest power of two a double holds; beyond it every exponent means "the cap".
const EXPONENT_MAX: u32 = 1023;

/// `base * 2^n`, at most `cap`; `n` of any size.
pub fn ceiling_s(base_s: f64, cap_s: f64, n: u32) -> f64 {
    let power = 2f64.powi(n.min(EXPONENT_MAX) as i32);
    (base_s * power).min(cap_s)
}

/// Full jitter: `uniform(0, min(cap, base * 2^n))`.
pub fn full_s(base_s: f64, cap_s: f64, n: u32, u: f64) -> f64 {
    ceiling_s(base_s, cap_s, n) * u
}

/// Equal jitter: `half + uniform(0, half)` with `half = min(cap, base * 2^n) / 2`.
pub fn equal_s(base_s: f64, cap_s: f64, n: u32, u: f64) -> f64 {
    let half = ceiling_s(base_s, cap_s, n) / 2.0;
    half + half * u
}

/// Decorrelated jitter: `min(cap, uniform(base, previous * 3))`; `previous` is the last delay, `base` before the first.
pub fn decorrelated_s(base_s: f64, cap_s: f64, previous_s: f64, u: f64) -> f64 {
    let top = (previous_s.max(base_s) * DECORRELATED_FACTOR).max(base_s);
    (base_s + (top - base_s) * u).min(cap_s)
}

/// Additive jitter: `min(cap, base * 2^n) + uniform(0, 1 s)`; the only law that may pass its cap, by its spread.
pub fn additive_s(base_s: f64, cap_s: f64, n: u32, u: f64) -> f64 {
    ceiling_s(base_s, cap_s, n) + ADDITIVE_SPREAD_S * u
}

/// The delay before the retry that follows failed attempt number `attempt` (from 1), given a uniform number.
///
/// `previous` is the delay drawn before that attempt, zero if there was none. Full and equal use `n = attempt`, as
/// the source article does; additive counts its exponent from zero, as its own article does.
pub fn delay_given(policy: &RetryPolicy, attempt: u32, previous: Duration, u: f64) -> Duration {
    let base_s = policy.base.as_secs_f64();
    let cap_s = policy.cap.as_secs_f64().max(base_s);
    let (delay_s, floor_s, top_s) = match policy.jitter {
        Jitter::Full => (full_s(base_s, cap_s, attempt, u), 0.0, cap_s),
        Jitter::Equal => (equal_s(base_s, cap_s, attempt, u), 0.0, cap_s),
        Jitter::Decorrelated => (decorrelated_s(base_s, cap_s, previous.as_secs_f64(), u), base_s, cap_s),
        Jitter::Additive => {
            (additive_s(base_s, cap_s, attempt.saturating_sub(1), u), base_s, cap_s + ADDITIVE_SPREAD_S)
        }
    };
    millis(delay_s.clamp(floor_s, top_s))
}

/// The same with a number drawn from `rng`.
pub fn draw(policy: &RetryPolicy, attempt: u32, previous: Duration, rng: &mut impl Rng) -> Duration {
    delay_given(policy, attempt, previous, rng.random::<f64>())
}

/// Decorrelated step between two probes of a held endpoint.
pub fn probe_delay(base: Duration, cap: Duration, previous: Duration, rng: &mut impl Rng) -> Duration {
    let (base_s, cap_s) = (base.as_secs_f64(), cap.as_secs_f64().max(base.as_secs_f64()));
    millis(decorrelated_s(base_s, cap_s, previous.as_secs_f64(), rng.random::<f64>()))
}

/// Uniform duration in `[low, high)`, for pauses.
pub fn uniform(low: Duration, high: Duration, rng: &mut impl Rng) -> Duration {
    let (low_s, high_s) = (low.as_secs_f64(), high.as_secs_f64());
    millis(low_s + (high_s - low_s).max(0.0) * rng.random::<f64>())
}

/// Seconds to the nearest whole millisecond. Bounds that are whole milliseconds themselves are never crossed.
fn millis(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1000.0).round() as u64)
}
