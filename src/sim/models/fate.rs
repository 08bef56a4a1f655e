//! What becomes of the events of an outage under the source article's policy (RETRY 3.3).
//!
//! Events come at random. Every attempt before the end of the outage fails, the first one after it succeeds. A failed
//! attempt is the last one if it was the sixth; else it takes a token of the budget or the event is given up; else the
//! next follows after a decorrelated delay. Answers take no time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::At;
use crate::core::backoff;
use crate::core::budget::Budget;
use crate::core::policy::{BudgetPolicy, RetryPolicy};

/// Events of an outage by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fate {
    /// Delivered after it.
    pub delivered: u64,
    /// Given up because the budget was empty.
    pub shed: u64,
    /// Given up because all attempts were used.
    pub exhausted: u64,
    /// When the first was shed, in seconds after the beginning.
    pub first_shed_s: Option<f64>,
}

impl Fate {
    /// All of them.
    pub fn events(&self) -> u64 {
        self.delivered + self.shed + self.exhausted
    }

    /// Delivered, shed and exhausted in per cent.
    pub fn shares(&self) -> [f64; 3] {
        let all = self.events().max(1) as f64;
        [self.delivered, self.shed, self.exhausted].map(|count| count as f64 * 100.0 / all)
    }
}

/// One outage of `outage_s` seconds at `rate_per_s` events a second; the budget is full when it begins.
pub fn run(retry: &RetryPolicy, budget: &BudgetPolicy, rate_per_s: f64, outage_s: f64, seed: u64) -> Fate {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut budget = Budget::new(budget, None, 0.0);
    let (base_s, cap_s) = (retry.base.as_secs_f64(), retry.cap.as_secs_f64());
    let mut fate = Fate::default();
    // Waiting deliveries: when, failed attempts so far, the delay before.
    let mut waits: BinaryHeap<Reverse<(At, u32, At)>> = BinaryHeap::new();
    let mut arrival = gap_s(rate_per_s, &mut rng);
    loop {
        let due = waits.peek().map(|Reverse((At(at), ..))| *at);
        let (now, failed, previous) = match due {
            Some(due) if due <= arrival || arrival >= outage_s => {
                let Some(Reverse((At(at), failed, At(previous)))) = waits.pop() else { break };
                (at, failed, previous)
            }
            _ if arrival < outage_s => {
                let at = arrival;
                arrival += gap_s(rate_per_s, &mut rng);
                (at, 0, base_s)
            }
            _ => break,
        };
        if now >= outage_s {
            fate.delivered += 1;
        } else if failed + 1 >= retry.attempts_max {
            fate.exhausted += 1;
        } else if budget.try_take(now) {
            let delay = backoff::decorrelated_s(base_s, cap_s, previous, rng.random());
            waits.push(Reverse((At(now + delay), failed + 1, At(delay))));
        } else {
            fate.shed += 1;
            fate.first_shed_s.get_or_insert(now);
        }
    }
    fate
}

/// Gap to the next of independent arrivals.
fn gap_s(rate_per_s: f64, rng: &mut Pcg64) -> f64 {
    -(1.0 - rng.random::<f64>()).ln() / rate_per_s
}
