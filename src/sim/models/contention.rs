//! Many clients that want to write one row: the experiment behind the usual advice on jitter (AWS, 2015; RETRY 2.1).
//!
//! Each client reads the row's version, then writes under the condition that it has not changed. Who comes late backs
//! off and starts over. Every message takes a hop of |N(10, 2)| ms, the server none. What is counted are write calls and
//! the time until the last client is done. It is a closed population that contends, not an outage: see the module's
//! parent for what that is worth.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::At;
use crate::core::backoff;

/// Base and cap of the experiment, in seconds.
const BASE_S: f64 = 0.005;
/// See [`BASE_S`].
const CAP_S: f64 = 2.0;
/// Mean and standard deviation of a hop, in seconds.
const HOP_S: (f64, f64) = (0.010, 0.002);

/// What a client does between two tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Tries again at once.
    None,
    /// `min(cap, base * 2^n)` without jitter.
    Exponential,
    /// See [`crate::core::policy::Jitter`].
    Equal,
    /// See [`crate::core::policy::Jitter`].
    Full,
    /// See [`crate::core::policy::Jitter`].
    Decorrelated,
}

impl Law {
    fn delay_s(self, n: u32, previous_s: f64, u: f64) -> f64 {
        match self {
            Law::None => 0.0,
            Law::Exponential => backoff::ceiling_s(BASE_S, CAP_S, n),
            Law::Equal => backoff::equal_s(BASE_S, CAP_S, n, u),
            Law::Full => backoff::full_s(BASE_S, CAP_S, n, u),
            Law::Decorrelated => backoff::decorrelated_s(BASE_S, CAP_S, previous_s, u),
        }
    }
}

/// What a run came to, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Until the last client was done, in milliseconds.
    pub done_ms: f64,
    /// Standard deviation of that between trials.
    pub done_sd_ms: f64,
    /// Conditional writes, successful or not.
    pub calls: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    /// Read request reaches the server.
    Read,
    /// The version reaches the client, which writes at once.
    Write(u64),
    /// The answer to a write that came late reaches the client.
    Refused,
}

/// Mean of so many trials.
pub fn run(law: Law, clients: u32, trials: u32, seed: u64) -> Contention {
    let mut rng = Pcg64::seed_from_u64(seed);
    let (mut done, mut done_squares, mut calls) = (0.0, 0.0, 0.0);
    for _ in 0..trials {
        let (done_s, calls_made) = trial(law, clients as usize, &mut rng);
        let done_ms = done_s * 1000.0;
        done += done_ms;
        done_squares += done_ms * done_ms;
        calls += f64::from(calls_made);
    }
    let trials = f64::from(trials.max(1));
    let done_ms = done / trials;
    let done_sd_ms = (done_squares / trials - done_ms * done_ms).max(0.0).sqrt();
    Contention { done_ms, done_sd_ms, calls: calls / trials }
}

/// One trial: seconds until the last client was done, and write calls.
fn trial(law: Law, clients: usize, rng: &mut Pcg64) -> (f64, u32) {
    let mut heap = BinaryHeap::new();
    let mut failures = vec![0; clients];
    let mut delays = vec![BASE_S; clients];
    for client in 0..clients {
        heap.push(Reverse((At(hop_s(rng)), client, Message::Read)));
    }
    let (mut version, mut calls, mut done_s) = (0, 0, 0.0);
    while let Some(Reverse((At(now), client, message))) = heap.pop() {
        let next = match message {
            // The version travels to the client and the write back: two hops.
            Message::Read => (now + hop_s(rng) + hop_s(rng), Message::Write(version)),
            Message::Write(seen) => {
                calls += 1;
                let answered = now + hop_s(rng);
                if seen == version {
                    version += 1;
                    done_s = f64::max(done_s, answered);
                    continue;
                }
                (answered, Message::Refused)
            }
            Message::Refused => {
                failures[client] += 1;
                delays[client] = law.delay_s(failures[client], delays[client], rng.random());
                (now + delays[client] + hop_s(rng), Message::Read)
            }
        };
        heap.push(Reverse((At(next.0), client, next.1)));
    }
    (done_s, calls)
}

/// |N(10, 2)| ms, by the Box-Muller transform.
fn hop_s(rng: &mut Pcg64) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    (HOP_S.0 + HOP_S.1 * normal).abs()
}
