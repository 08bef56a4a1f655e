//! How fast what must be kept grows, for the forecast of a full disk.
//!
//! The files themselves say nothing: they grow by what is delivered too, until a checkpoint gives it back. Nor does a
//! single look at the live bytes: what is in flight comes and goes. So the least of the newer half of a window is
//! compared with the least of its older half: what is always there, and more of it now than before, will stay.

use std::collections::VecDeque;
use std::time::Duration;

use crate::core::time::StoreTime;

/// Span that is looked at.
const SPAN: Duration = Duration::from_mins(1);
/// Shorter ones make no forecast.
const SPAN_MIN: Duration = Duration::from_secs(10);
/// Between two samples.
const EVERY: Duration = Duration::from_secs(1);
/// Growth slower than this, in bytes a second, makes no forecast.
const PER_S_MIN: f64 = 16.0;

/// Samples of the live bytes, one a second.
#[derive(Debug, Default)]
pub(super) struct Growth {
    samples: VecDeque<(StoreTime, u64)>,
}

impl Growth {
    /// Takes a sample; bytes a second by which the store fills, if it does.
    pub fn per_s(&mut self, live_bytes: u64, now: StoreTime) -> Option<f64> {
        if self.samples.back().is_none_or(|(at, _)| now.since(*at) >= EVERY) {
            self.samples.push_back((now, live_bytes));
        }
        while self.samples.len() > 2 && now.since(self.samples[1].0) >= SPAN {
            self.samples.pop_front();
        }
        let half = self.samples.len() / 2;
        let least = |(at, least): (StoreTime, u64), (next_at, next): &(StoreTime, u64)| {
            if *next < least { (*next_at, *next) } else { (at, least) }
        };
        let first = *self.samples.front()?;
        let (before_at, before) = self.samples.iter().take(half).fold(first, least);
        let (after_at, after) = self.samples.iter().skip(half).fold((now, live_bytes), least);
        let seconds = after_at.since(before_at).as_secs_f64();
        let growth = after.saturating_sub(before) as f64 / seconds.max(1.0);
        (now.since(first.0) >= SPAN_MIN && growth > PER_S_MIN).then_some(growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The growth told after so many seconds of the given live bytes.
    fn after(seconds: u64, live: impl Fn(u64) -> u64) -> Option<f64> {
        let mut growth = Growth::default();
        (0..=seconds).map(|second| growth.per_s(live(second), StoreTime(second * 1000))).last().flatten()
    }

    #[test]
    fn a_backlog_that_grows_is_told_at_its_rate() {
        for seconds in [12, 60, 600] {
            let told = after(seconds, |second| 1_000_000 + second * 5_000).unwrap();
            assert!((told - 5_000.0).abs() < 500.0, "{told} after {seconds} s");
        }
    }

    #[test]
    fn what_comes_and_goes_fills_nothing() {
        assert_eq!(after(300, |second| (second * 7_919) % 20 * 10_000), None);
        assert_eq!(after(300, |_| 5_000_000), None);
        assert_eq!(after(300, |second| 5_000_000 - second * 1_000), None, "a drain");
        assert_eq!(after(5, |second| second * 1_000_000), None, "too early to tell");
    }
}
