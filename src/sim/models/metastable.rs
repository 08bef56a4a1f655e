//! A server that stands still for ten seconds, and callers whose retries may keep it down (RETRY 2.4).
//!
//! The server takes one request after another, 300 a second, also those whose caller has given up after its timeout of
//! one second: that waste is what sustains the failure. Callers come at random, an open stream that no backoff makes
//! smaller. The one exception is store and forward: it keeps what it cannot send, and never has more than so many
//! requests out.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::At;
use crate::core::budget::Budget;
use crate::core::policy::{BudgetPolicy, WhenEmpty};

/// Requests a second that the server takes.
const CAPACITY_PER_S: f64 = 300.0;
/// After which a caller has given up.
const TIMEOUT_S: f64 = 1.0;
/// Healthy seconds before the freeze.
const WARM_UP_S: f64 = 20.0;
/// How long the server stands still.
const FREEZE_S: f64 = 10.0;
/// Recovered means this share of what is offered is answered in time, for [`STEADY_S`] seconds in a row.
const GOOD_SHARE: f64 = 0.9;
/// See [`GOOD_SHARE`].
const STEADY_S: usize = 5;

/// Which retries are paid for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pays {
    /// None: every failure is tried again.
    Nothing,
    /// A token of a bucket that successes refill.
    PerSuccess {
        /// Tokens per success.
        ratio: f64,
        /// Tokens per second.
        min_per_s: f64,
        /// Largest level, and the first.
        ceiling: f64,
    },
    /// A token of a bucket that every first try refills, whatever comes of it.
    PerFirstTry {
        /// Tokens per first try.
        ratio: f64,
        /// Largest level, and the first.
        ceiling: f64,
    },
}

/// How callers behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Callers {
    /// So many retries, each after a uniform delay.
    Retry {
        /// At most, per event.
        retries: u32,
        /// Longest delay in seconds.
        spread_s: f64,
        /// What a retry costs.
        pays: Pays,
    },
    /// Everything is kept; at most so many requests are out, each until it is answered.
    StoreAndForward {
        /// Requests out at most.
        in_flight_max: usize,
    },
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thaw {
    /// From the thaw until callers are served again, in seconds; `None`: not within the time that was looked at.
    pub recovered_s: Option<f64>,
    /// Most requests sent in one second.
    pub peak_per_s: u64,
}

struct Server {
    busy_until_s: f64,
}

impl Server {
    /// When a request that is sent now will be answered.
    fn take(&mut self, now: f64) -> f64 {
        let thaw = WARM_UP_S + FREEZE_S;
        let mut begin = self.busy_until_s.max(now);
        if begin >= WARM_UP_S && begin < thaw {
            begin = thaw;
        }
        self.busy_until_s = begin + 1.0 / CAPACITY_PER_S;
        self.busy_until_s
    }
}

/// Requests and useful answers by second.
struct Seconds {
    sent: Vec<u64>,
    good: Vec<u64>,
}

impl Seconds {
    fn count(bins: &mut [u64], at_s: f64) {
        if let Some(bin) = bins.get_mut(at_s as usize) {
            *bin += 1;
        }
    }
}

/// `rate_per_s` callers a second, looked at until `look_s` seconds after the thaw.
pub fn run(callers: Callers, rate_per_s: f64, look_s: f64, seed: u64) -> Thaw {
    let mut rng = Pcg64::seed_from_u64(seed);
    let end_s = WARM_UP_S + FREEZE_S + look_s;
    let bins = end_s as usize + 1;
    let mut seconds = Seconds { sent: vec![0; bins], good: vec![0; bins] };
    match callers {
        Callers::Retry { retries, spread_s, pays } => {
            retry(retries, spread_s, pays, rate_per_s, end_s, &mut seconds, &mut rng);
        }
        Callers::StoreAndForward { in_flight_max } => {
            forward(in_flight_max, rate_per_s, end_s, &mut seconds, &mut rng);
        }
    }
    let from = (WARM_UP_S + FREEZE_S) as usize;
    let steady =
        |window: &[u64]| window.iter().sum::<u64>() as f64 >= rate_per_s * GOOD_SHARE * STEADY_S as f64;
    let found = seconds.good[from..bins - 1].windows(STEADY_S).position(steady);
    Thaw {
        recovered_s: found.map(|second| second as f64),
        peak_per_s: seconds.sent.iter().copied().max().unwrap_or(0),
    }
}

/// What will happen to callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A request goes out, so many retries before it.
    Send(u32),
    /// An answer came in time.
    Good,
    /// None came in time.
    Failed(u32),
}

fn retry(
    retries: u32,
    spread_s: f64,
    pays: Pays,
    rate_per_s: f64,
    end_s: f64,
    seconds: &mut Seconds,
    rng: &mut Pcg64,
) {
    let (ratio, min_per_sec, ceiling) = match pays {
        Pays::Nothing => (0.0, 0.0, 0.0),
        Pays::PerSuccess { ratio, min_per_s, ceiling } => (ratio, min_per_s, ceiling),
        Pays::PerFirstTry { ratio, ceiling } => (ratio, 0.0, ceiling),
    };
    let policy = BudgetPolicy { ratio, ceiling, min_per_sec, when_empty: WhenEmpty::DeadLetter };
    let mut budget = Budget::new(&policy, None, 0.0);
    let mut server = Server { busy_until_s: 0.0 };
    let mut heap = BinaryHeap::from([Reverse((At(0.0), Step::Send(0)))]);
    while let Some(Reverse((At(now), step))) = heap.pop() {
        if now >= end_s {
            break;
        }
        match step {
            Step::Send(before) => {
                if before == 0 {
                    let gap = -(1.0 - rng.random::<f64>()).ln() / rate_per_s;
                    heap.push(Reverse((At(now + gap), Step::Send(0))));
                    if matches!(pays, Pays::PerFirstTry { .. }) {
                        budget.success(now);
                    }
                }
                Seconds::count(&mut seconds.sent, now);
                let answered = server.take(now);
                let in_time = answered <= now + TIMEOUT_S;
                let next =
                    if in_time { (answered, Step::Good) } else { (now + TIMEOUT_S, Step::Failed(before)) };
                heap.push(Reverse((At(next.0), next.1)));
            }
            Step::Good => {
                Seconds::count(&mut seconds.good, now);
                if matches!(pays, Pays::PerSuccess { .. }) {
                    budget.success(now);
                }
            }
            Step::Failed(before) => {
                if before < retries && (pays == Pays::Nothing || budget.try_take(now)) {
                    let delay = spread_s * rng.random::<f64>();
                    heap.push(Reverse((At(now + delay), Step::Send(before + 1))));
                }
            }
        }
    }
}

fn forward(in_flight_max: usize, rate_per_s: f64, end_s: f64, seconds: &mut Seconds, rng: &mut Pcg64) {
    let mut server = Server { busy_until_s: 0.0 };
    let mut kept = 0u64;
    let mut out = VecDeque::new();
    let mut arrival = 0.0;
    loop {
        let answer = out.front().copied().unwrap_or(f64::INFINITY);
        let now = f64::min(arrival, answer);
        if now >= end_s {
            return;
        }
        if answer <= arrival {
            out.pop_front();
            Seconds::count(&mut seconds.good, now);
        } else {
            kept += 1;
            arrival += -(1.0 - rng.random::<f64>()).ln() / rate_per_s;
        }
        while kept > 0 && out.len() < in_flight_max {
            kept -= 1;
            Seconds::count(&mut seconds.sent, now);
            out.push_back(server.take(now));
        }
    }
}
