//! How fast what must be kept grows, for the forecast of a full disk.
//!
//! The files themselves say nothing: they grow by what is delivered too, until a checkpoint gives it back. Nor does a
//! single look at the live bytes: what is in flight comes and goes. So the least of the newer half of a window is
//! compared with the least of its older half: what is always there, and more of it now than before, will stay.

use std::collections::VecDeque;
use std::time::Duration;

use crate::core::time::StoreTime;

/// How far is looked back, how far at least, and how often: a minute tells of a busy box soon, half an hour of one that has
/// an event now and then.
const SHORT: (Duration, Duration, Duration) =
    (Duration::from_mins(1), Duration::from_secs(10), Duration::from_secs(1));
/// See [`SHORT`].
const LONG: (Duration, Duration, Duration) =
    (Duration::from_mins(30), Duration::from_mins(5), Duration::from_secs(20));
/// Slower growth, in bytes a second, makes no forecast: one small event in twenty minutes.
const PER_S_MIN: f64 = 0.4;
/// The same for the short look: below it a minute holds too few events to tell a rate from.
const SHORT_PER_S_MIN: f64 = 64.0;

/// Samples of the live bytes over two spans.
#[derive(Debug, Default)]
pub(super) struct Growth {
    short: Look,
    long: Look,
}

impl Growth {
    /// Takes a sample; bytes a second by which the store fills, if it does.
    pub fn per_s(&mut self, live_bytes: u64, now: StoreTime) -> Option<f64> {
        let short = self.short.per_s(SHORT, live_bytes, now).filter(|growth| *growth > SHORT_PER_S_MIN);
        let long = self.long.per_s(LONG, live_bytes, now).filter(|growth| *growth > PER_S_MIN);
        short.or(long)
    }
}

#[derive(Debug, Default)]
struct Look {
    samples: VecDeque<(StoreTime, u64)>,
}

impl Look {
    fn per_s(
        &mut self,
        (span, span_min, every): (Duration, Duration, Duration),
        live_bytes: u64,
        now: StoreTime,
    ) -> Option<f64> {
        if self.samples.back().is_none_or(|(at, _)| now.since(*at) >= every) {
            self.samples.push_back((now, live_bytes));
        }
        while self.samples.len() > 2 && now.since(self.samples[1].0) >= span {
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
        (now.since(first.0) >= span_min).then_some(growth)
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
    fn an_event_now_and_then_is_told_after_minutes() {
        let sparse = |second: u64| second / 60 * 500;
        assert_eq!(after(120, sparse), None);
        let told = after(1800, sparse).unwrap();
        assert!((told - 500.0 / 60.0).abs() < 1.0, "{told}");
    }

    #[test]
    fn what_comes_and_goes_fills_nothing() {
        assert_eq!(after(300, |second| (second * 7_919) % 20 * 10_000), None);
        assert_eq!(after(300, |_| 5_000_000), None);
        assert_eq!(after(300, |second| 5_000_000 - second * 1_000), None, "a drain");
        assert_eq!(after(5, |second| second * 1_000_000), None, "too early to tell");
    }
}
