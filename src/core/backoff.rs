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
    let power = 2f64.powi(n.min(EXPONENT_MAX).cast_signed());
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
    let cap_s = policy.cap.as_secs_f64();
    let least_s = base_s.min(cap_s); // the config refuses a cap below the base; the formulas do not mind one
    let (delay_s, floor_s, top_s) = match policy.jitter {
        Jitter::Full => (full_s(base_s, cap_s, attempt, u), 0.0, cap_s),
        Jitter::Equal => (equal_s(base_s, cap_s, attempt, u), 0.0, cap_s),
        Jitter::Decorrelated => (decorrelated_s(base_s, cap_s, previous.as_secs_f64(), u), least_s, cap_s),
        Jitter::Additive => {
            (additive_s(base_s, cap_s, attempt.saturating_sub(1), u), least_s, cap_s + ADDITIVE_SPREAD_S)
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
    let (base_s, cap_s) = (base.as_secs_f64(), cap.as_secs_f64());
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    use super::super::policy::EndpointPolicy;
    use super::*;

    fn policy(jitter: Jitter, base_ms: u64, cap_ms: u64) -> RetryPolicy {
        RetryPolicy {
            jitter,
            base: Duration::from_millis(base_ms),
            cap: Duration::from_millis(cap_ms),
            ..EndpointPolicy::default().retry
        }
    }

    fn bounds(policy: &RetryPolicy) -> (Duration, Duration) {
        match policy.jitter {
            Jitter::Full => (Duration::ZERO, policy.cap),
            Jitter::Equal => (policy.base.min(policy.cap) / 2, policy.cap),
            Jitter::Decorrelated => (policy.base, policy.cap),
            Jitter::Additive => (policy.base, policy.cap + Duration::from_secs(1)),
        }
    }

    const LAWS: [Jitter; 4] = [Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::Additive];

    proptest! {
        #[test]
        fn every_delay_is_within_its_law(
            base_ms in 1u64..10_000,
            factor in 1u64..1000,
            attempt in 1u32..=u32::MAX,
            previous_ms in 0u64..10_000_000,
            u in 0.0f64..1.0,
        ) {
            for jitter in LAWS {
                let policy = policy(jitter, base_ms, base_ms * factor);
                let delay = delay_given(&policy, attempt, Duration::from_millis(previous_ms), u);
                let (low, high) = bounds(&policy);
                prop_assert!(delay >= low && delay <= high, "{jitter:?}: {delay:?} not in {low:?}..={high:?}");
            }
        }

        #[test]
        fn the_ceiling_never_shrinks_with_the_attempt(base in 0.001f64..100.0, factor in 1.0f64..1000.0) {
            let cap = base * factor;
            let mut last = 0.0;
            for n in 0..1100 {
                let ceiling = ceiling_s(base, cap, n);
                prop_assert!(ceiling >= last && ceiling <= cap);
                last = ceiling;
            }
        }
    }

    /// Ten thousand failures in a row: no overflow, and after the first twenty no single value makes up over half.
    #[test]
    fn ten_thousand_attempts_stay_jittered() {
        for seed in 0..100 {
            let mut rng = Pcg64::seed_from_u64(seed);
            let policy = policy(Jitter::Decorrelated, 100, 10_000);
            let mut previous = Duration::ZERO;
            let mut at_cap = 0;
            for attempt in 1..=10_000 {
                // What is persisted between attempts is whole milliseconds: reloading it changes nothing.
                previous =
                    draw(&policy, attempt, Duration::from_millis(previous.as_millis() as u64), &mut rng);
                assert!(previous >= policy.base && previous <= policy.cap);
                at_cap += usize::from(attempt > 20 && previous == policy.cap);
            }
            assert!(at_cap < 5_000, "{at_cap} of 10,000 delays are the cap");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_delays_and_another_does_not() {
        let ladder = |seed| {
            let mut rng = Pcg64::seed_from_u64(seed);
            let policy = EndpointPolicy::default().retry;
            (1..20).map(|attempt| draw(&policy, attempt, policy.base, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(ladder(1), ladder(1));
        assert_ne!(ladder(1), ladder(2));
    }
}
