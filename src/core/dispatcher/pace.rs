//! How soon the next attempt may start: the operator's limits on requests and bytes a second, and what the receiver's
//! `RateLimit` field leaves of its quota, spread over the time to its reset.
//!
//! Attempts are spaced evenly: what a limit leaves unused is not saved up for a burst.

use std::time::Duration;

use super::super::classify::{Outcome, RateLimit};
use super::super::policy::RatePolicy;
use super::super::time::StoreTime;

/// Rough size of a request's head and of what carries it.
const HEAD_BYTES: u32 = 700;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Pace {
    policy: RatePolicy,
    next_at: StoreTime,
    last_at: StoreTime,
    /// Distance between attempts that the receiver's quota leaves, and until when.
    quota: Option<(Duration, StoreTime)>,
}

impl Pace {
    pub(super) fn new(policy: RatePolicy) -> Self {
        Self { policy, next_at: StoreTime(0), last_at: StoreTime(0), quota: None }
    }

    /// An attempt with a body of so many bytes starts.
    pub(super) fn started(&mut self, body_bytes: u32, now: StoreTime) {
        let bytes = f64::from(body_bytes.saturating_add(HEAD_BYTES));
        let by_requests = self.policy.requests_per_s.map_or(0.0, |rate| 1.0 / rate);
        let by_bytes = self.policy.bytes_per_s.map_or(0.0, |rate| bytes / rate);
        let distance = Duration::from_secs_f64(by_requests.max(by_bytes));
        self.last_at = now;
        // From when it might have started, not from when it did: waking late must not add up.
        self.next_at =
            if distance.is_zero() { now } else { self.next_at.max(now - distance.min(SLIP)) + distance };
    }

    /// An answer tells what is left of a quota; an answer without the field has forgotten it.
    pub(super) fn ended(&mut self, outcome: &Outcome, now: StoreTime) {
        let Outcome::Response(answer) = outcome else { return };
        self.quota = answer.rate_limit.and_then(|RateLimit { remaining, reset_s }| {
            // Nothing left is a pause of its own; an hour is as far as a quota is believed.
            let reset = Duration::from_secs(reset_s.min(3_600));
            let shares = u32::try_from(remaining).unwrap_or(u32::MAX);
            (shares > 0 && reset_s > 0).then(|| (reset / shares, now + reset))
        });
    }

    /// When the next attempt may start.
    pub(super) fn next_at(&self, now: StoreTime) -> StoreTime {
        match self.quota.filter(|(_, until)| now < *until) {
            Some((distance, _)) => self.next_at.max(self.last_at + distance),
            None => self.next_at,
        }
    }
}

/// Time that an attempt may have been woken late and still counts as in time.
const SLIP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::super::super::classify::Answer;
    use super::*;

    /// Attempts that start within a time if each starts as soon as it may.
    fn count(pace: &mut Pace, body_bytes: u32, within: Duration) -> u64 {
        let mut started = 0;
        let mut now = StoreTime(1_000_000);
        let end = now + within;
        while now < end {
            pace.started(body_bytes, now);
            started += 1;
            now = pace.next_at(now).max(now + Duration::from_millis(1));
        }
        started
    }

    #[test]
    fn requests_and_bytes_a_second_are_kept_to() {
        let minute = Duration::from_mins(1);
        let requests = RatePolicy { requests_per_s: Some(20.0), bytes_per_s: None };
        assert!((1_195..=1_205).contains(&count(&mut Pace::new(requests), 0, minute)));
        let bytes = RatePolicy { requests_per_s: Some(1e3), bytes_per_s: Some(10_000.0) };
        let sent = count(&mut Pace::new(bytes), 1_300, minute) * 2_000;
        assert!((590_000..=610_000).contains(&sent), "{sent} bytes");
        assert!(count(&mut Pace::new(RatePolicy::default()), 0, minute) > 50_000, "no limit");
    }

    #[test]
    fn what_is_left_of_a_quota_is_spread_to_its_reset() {
        let answer = |remaining, reset_s| {
            let rate_limit = Some(RateLimit { remaining, reset_s });
            Outcome::Response(Answer { rate_limit, ..Answer::default() })
        };
        let mut pace = Pace::new(RatePolicy::default());
        let now = StoreTime(1_000_000);
        pace.started(0, now);
        pace.ended(&answer(10, 60), now);
        assert_eq!(pace.next_at(now), now + Duration::from_secs(6));
        pace.ended(&answer(0, 60), now);
        assert_eq!(pace.next_at(now), now, "an empty quota is a pause, not a pace");
        pace.ended(&answer(10, 60), now);
        pace.ended(&Outcome::Response(Answer::default()), now);
        assert_eq!(pace.next_at(now), now, "an answer without the field has forgotten it");
        pace.ended(&answer(1, 60), now);
        assert!(pace.next_at(now + Duration::from_secs(61)) <= now + Duration::from_secs(61));
    }
}
