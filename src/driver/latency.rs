//! Latency percentiles of the last minutes in a few hundred bytes: a histogram over powers of two, two windows deep.

use std::time::Duration;

use crate::core::time::StoreTime;
use crate::wire::LatencyView;

/// Buckets per doubling; four keep the error of a percentile under 10 %.
const PER_DOUBLING: f64 = 4.0;
/// Smallest latency that is told apart, in milliseconds.
const FLOOR_MS: f64 = 0.1;
/// 0.1 ms to 0.1 ms × 2^20, about 100 s: longer than any attempt's timeout by default.
const BUCKETS: usize = 80;
/// Half of the span that a percentile looks back on.
const WINDOW: Duration = Duration::from_secs(150);

/// Latencies of the last two and a half to five minutes.
#[derive(Debug)]
pub struct Latency {
    current: [u32; BUCKETS],
    previous: [u32; BUCKETS],
    since: StoreTime,
}

impl Latency {
    /// Empty.
    pub fn new(now: StoreTime) -> Self {
        Self { current: [0; BUCKETS], previous: [0; BUCKETS], since: now }
    }

    /// One attempt took so long.
    pub fn record(&mut self, latency: Duration, now: StoreTime) {
        self.turn(now);
        let doublings = (latency.as_secs_f64() * 1_000.0 / FLOOR_MS).max(1.0).log2();
        let bucket = ((doublings * PER_DOUBLING) as usize).min(BUCKETS - 1);
        self.current[bucket] = self.current[bucket].saturating_add(1);
    }

    fn turn(&mut self, now: StoreTime) {
        let age = now.since(self.since);
        if age >= WINDOW {
            self.previous = if age >= WINDOW * 2 { [0; BUCKETS] } else { self.current };
            self.current = [0; BUCKETS];
            self.since = now;
        }
    }

    /// Percentiles now.
    pub fn view(&mut self, now: StoreTime) -> LatencyView {
        self.turn(now);
        let counts: Vec<u64> =
            self.current.iter().zip(&self.previous).map(|(a, b)| u64::from(*a) + u64::from(*b)).collect();
        let count: u64 = counts.iter().sum();
        let at = |quantile: f64| percentile(&counts, count, quantile);
        LatencyView { p50: at(0.5), p90: at(0.9), p99: at(0.99), count }
    }
}

/// The geometric middle of the bucket in which the quantile lies, in milliseconds.
fn percentile(counts: &[u64], count: u64, quantile: f64) -> f64 {
    let wanted = (count as f64 * quantile).ceil() as u64;
    let mut seen = 0;
    for (bucket, here) in counts.iter().enumerate() {
        seen += here;
        if seen >= wanted && *here > 0 {
            return FLOOR_MS * ((bucket as f64 + 0.5) / PER_DOUBLING).exp2();
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_ten_percent_and_old_ones_fade() {
        let mut latency = Latency::new(StoreTime(0));
        for ms in 1..=1000 {
            latency.record(Duration::from_millis(ms), StoreTime(1));
        }
        let view = latency.view(StoreTime(2));
        assert_eq!(view.count, 1000);
        assert!((view.p50 - 500.0).abs() < 50.0, "{view:?}");
        assert!((view.p99 - 990.0).abs() < 99.0, "{view:?}");
        assert_eq!(latency.view(StoreTime(160_000)).count, 1000, "still in the window before");
        assert_eq!(latency.view(StoreTime(500_000)).count, 0);
    }
}
