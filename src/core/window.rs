//! How many attempts of one endpoint may run at once: additive increase, multiplicative decrease.
//!
//! After an outage the window starts at one and grows by one per window of successes, at most one step per
//! [`STEP_EVERY`], so that a receiver that has just come back is not run over. When it asks for less (429, 503, a
//! timeout) the window is halved, once per round of attempts. A pause comes on top only when it says so outright or
//! when several of the last attempts went that way: a stray 503 among a thousand must not stop a healthy stream.

use std::time::Duration;

use rand::Rng;

use super::backoff;
use super::time::StoreTime;

/// Fastest growth (DESIGN 5.6); from 1 to 32 takes 8 s.
pub const STEP_EVERY: Duration = Duration::from_millis(250);
/// Attempts that are looked back on to tell a stray failure from an overload.
const LOOK_BACK: u32 = 20;
/// So many congested ones among them are an overload: at 1 % stray failures this comes by less than once a minute.
const OVERLOAD: u32 = 3;
/// A window that is hardly one: a stream that only meets stray failures keeps a larger one.
const SMALL: u32 = 2;
/// Pause of an overload without a Retry-After. 1 to 5 s (RETRY R12) refuses one request in six when a fleet drains and
/// peaks at 1.4 times the capacity; with these it is one in eight and 1.3.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(8));

/// Times that the longest pause is doubled while no attempt passes in between: 200 boxes with windows of one are still
/// too many for 50 requests a second. No longer than half a minute: an endpoint that is not held yet must find out within a
/// minute that its receiver is back.
const PAUSE_DOUBLINGS: u32 = 2;

/// The window of one endpoint.
#[derive(Clone, Debug)]
pub struct Window {
    limit: u32,
    limit_max: u32,
    successes: u32,
    stepped_at: StoreTime,
    cut_at: StoreTime,
    /// One bit per recent attempt, newest lowest; set if it met congestion.
    recent: u32,
    /// Pauses since the last success.
    pauses: u32,
    /// Whether the window is open without limit (the article has none).
    fixed: bool,
}

impl Window {
    /// A window of one, as after a restart with a backlog.
    pub fn new(limit_max: u32, fixed: bool, now: StoreTime) -> Self {
        let limit_max = limit_max.max(1);
        let limit = if fixed { limit_max } else { 1 };
        Self {
            limit,
            limit_max,
            successes: 0,
            stepped_at: now,
            cut_at: StoreTime(0),
            recent: 0,
            pauses: 0,
            fixed,
        }
    }

    /// Attempts that may run at once.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Nothing was pending: there is no herd to hold back.
    pub fn open(&mut self) {
        self.limit = self.limit_max;
    }

    /// Back to one, after a hold.
    pub fn restart(&mut self, now: StoreTime) {
        if !self.fixed {
            self.limit = 1;
            self.successes = 0;
            self.stepped_at = now;
            self.recent = 0;
        }
    }

    /// An attempt was answered without a sign of congestion.
    pub fn passed(&mut self, now: StoreTime) {
        self.recent <<= 1;
        self.pauses = 0;
        self.successes = self.successes.saturating_add(1);
        let step_due = now >= self.stepped_at + STEP_EVERY;
        if self.limit < self.limit_max && self.successes >= self.limit && step_due {
            self.limit += 1;
            self.successes = 0;
            self.stepped_at = now;
        }
    }

    /// An attempt that began at `started` met congestion. Gives a pause if it is an overload.
    pub fn congested(&mut self, started: StoreTime, now: StoreTime, rng: &mut impl Rng) -> Option<Duration> {
        if self.fixed {
            return None;
        }
        self.recent = self.recent << 1 | 1;
        if started < self.cut_at {
            return None; // it was under way when the window was cut: the same congestion
        }
        // A window this small cannot shrink much: waiting is the only way left to ask for less.
        let at_least = self.limit <= SMALL;
        self.limit = (self.limit / 2).max(1);
        self.successes = 0;
        self.stepped_at = now;
        self.cut_at = now;
        let met = (self.recent & ((1 << LOOK_BACK) - 1)).count_ones();
        (met >= OVERLOAD || at_least).then(|| {
            let longer = 1 << self.pauses.min(PAUSE_DOUBLINGS);
            self.pauses += 1;
            backoff::uniform(PAUSE.0, PAUSE.1 * longer, rng)
        })
    }

    /// The pause of a receiver that says "too many" without saying how long.
    pub fn pause(rng: &mut impl Rng) -> Duration {
        backoff::uniform(PAUSE.0, PAUSE.1, rng)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    use super::*;

    #[test]
    fn the_ramp_takes_one_step_per_quarter_second_at_most() {
        let mut window = Window::new(32, false, StoreTime(0));
        let mut largest = 0;
        for ms in 0..1000 {
            window.passed(StoreTime(ms)); // a thousand successes a second
            largest = largest.max(window.limit());
        }
        assert!(largest <= 5, "{largest} in flight in the first second of a drain");
        for ms in 1000..9000 {
            window.passed(StoreTime(ms));
        }
        assert_eq!(window.limit(), 32);
    }

    #[test]
    fn a_round_of_refusals_halves_once() {
        let mut rng = Pcg64::seed_from_u64(1);
        let mut window = Window::new(32, false, StoreTime(0));
        window.open();
        assert_eq!(window.congested(StoreTime(90), StoreTime(100), &mut rng), None);
        for _ in 0..31 {
            assert_eq!(window.congested(StoreTime(90), StoreTime(105), &mut rng), None);
        }
        assert_eq!(window.limit(), 16);
        let pause = window.congested(StoreTime(110), StoreTime(120), &mut rng).unwrap();
        assert!(pause >= PAUSE.0 && pause <= PAUSE.1);
        assert_eq!(window.limit(), 8);
    }

    #[test]
    fn stray_failures_do_not_stop_a_healthy_stream() {
        let mut rng = Pcg64::seed_from_u64(2);
        let mut window = Window::new(32, false, StoreTime(0));
        let (mut pauses, mut limits) = (0, 0);
        for n in 0..6000u64 {
            let now = StoreTime(n * 10);
            if n % 100 == 99 {
                pauses += u32::from(window.congested(now, now, &mut rng).is_some());
            } else {
                window.passed(now);
            }
            limits += window.limit();
        }
        assert_eq!(pauses, 0);
        assert!(limits / 6000 >= 3, "{} on average", limits / 6000);
    }
}
