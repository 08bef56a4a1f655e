//! Retry budget of one endpoint: a token bucket that retries spend, successes refill, and time refills slowly.
//!
//! Plain double arithmetic in the source article's order (leak, cap, then add or take), so it equals its traces to the
//! last bit: ten successes at ratio 0.1 give 0.9999999999999999 tokens and the next retry is denied.
//!
//! It only counts. What an empty budget means (wait or dead letter) is [`super::decide`]'s branch.

use std::time::Duration;

use super::policy::BudgetPolicy;
use super::time::StoreTime;

/// A token bucket. Time is given in seconds, so that traces with fractions of milliseconds can be replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    ratio: f64,
    ceiling: f64,
    min_per_sec: f64,
    tokens: f64,
    at_s: f64,
}

impl Budget {
    /// A bucket at `tokens` (full if `None`), as of `now_s`.
    pub fn new(policy: &BudgetPolicy, tokens: Option<f64>, now_s: f64) -> Self {
        let ceiling = policy.ceiling;
        // A level that was stored is believed only inside its bounds: settings may have changed since.
        let tokens =
            tokens.filter(|level| level.is_finite()).map_or(ceiling, |level| level.clamp(0.0, ceiling));
        Self { ratio: policy.ratio, ceiling, min_per_sec: policy.min_per_sec, tokens, at_s: now_s }
    }

    /// Refill by the time since the last call; time that goes back refills nothing.
    fn leak(&mut self, now_s: f64) {
        let elapsed = (now_s - self.at_s).max(0.0);
        self.tokens = (self.tokens + elapsed * self.min_per_sec).min(self.ceiling);
        self.at_s = self.at_s.max(now_s);
    }

    /// A success refills `ratio` tokens.
    pub fn success(&mut self, now_s: f64) {
        self.leak(now_s);
        self.tokens = (self.tokens + self.ratio).min(self.ceiling);
    }

    /// Spend one token for a retry; false (and nothing spent) if there is less than one.
    pub fn try_take(&mut self, now_s: f64) -> bool {
        self.leak(now_s);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    /// Level after the last call, without the refill since.
    pub fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Level at `now_s`.
    pub fn level(&self, now_s: f64) -> f64 {
        let elapsed = (now_s - self.at_s).max(0.0);
        (self.tokens + elapsed * self.min_per_sec).min(self.ceiling)
    }

    /// Largest level.
    pub fn ceiling(&self) -> f64 {
        self.ceiling
    }

    /// How long until a token is there, if time alone can bring one.
    pub fn wait_for_token(&self, now_s: f64) -> Option<Duration> {
        let missing = 1.0 - self.level(now_s);
        if missing <= 0.0 {
            return Some(Duration::ZERO);
        }
        if self.min_per_sec <= 0.0 || self.ceiling < 1.0 {
            return None;
        }
        // Rounded up to a millisecond, so that whoever wakes then finds the token.
        Some(Duration::from_millis((missing / self.min_per_sec * 1000.0).ceil().min(1e15) as u64 + 1))
    }
}

/// Store time as the seconds that a [`Budget`] counts in.
pub fn seconds(at: StoreTime) -> f64 {
    at.0 as f64 / 1000.0
}
