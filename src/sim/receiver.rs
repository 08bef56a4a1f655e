//! The receivers of the simulated world: what each is like, and what it answers.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::core::classify::{Answer, Outcome, TransportKind};
use crate::core::ids::Seq;
use crate::core::policy::{EndpointPolicy, Jitter};

/// An endpoint's timeout.
pub(super) const TIMEOUT_MS: u64 = 10_000;

/// How a receiver behaves for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mood {
    Well,
    Refuses,
    Answers(u16),
    Throttles { retry_after_s: u64 },
    Hangs,
    Resets { reused: bool },
    Flaky { percent: u32, status: u16 },
    NoNetwork,
    NoDns,
    BadClock,
    Page,
}

/// Kinds of trouble that a seed may switch on, one bit each.
pub(super) const KINDS: u32 = 18;

impl Mood {
    pub(super) fn of(kind: u32, rng: &mut Pcg64) -> Self {
        match kind {
            0 => Mood::Refuses,
            1 => Mood::Answers(503),
            2 => Mood::Answers(500),
            3 => Mood::Throttles { retry_after_s: rng.random_range(0..120) },
            4 => Mood::Hangs,
            5 => Mood::Resets { reused: rng.random() },
            6 => Mood::Flaky { percent: rng.random_range(5..95), status: 503 },
            7 => Mood::Flaky { percent: rng.random_range(5..60), status: 500 },
            8 => Mood::Answers(401),
            9 => Mood::Answers(404),
            10 => Mood::Answers(422),
            11 => Mood::NoNetwork,
            12 => Mood::NoDns,
            13 => Mood::BadClock,
            14 => Mood::Page,
            15 => Mood::Answers(410),
            16 => Mood::Answers(302),
            _ => Mood::Flaky { percent: rng.random_range(5..60), status: 429 },
        }
    }
}

/// One receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) policy: EndpointPolicy,
    pub(super) mood: Mood,
    pub(super) poison: BTreeMap<Seq, u16>,
    pub(super) taken: BTreeSet<Seq>,
    pub(super) latency_ms: u64,
    pub(super) held: bool,
}

impl Receiver {
    pub(super) fn draw(rng: &mut Pcg64) -> Self {
        let mut policy = EndpointPolicy::default();
        let laws = [Jitter::Decorrelated, Jitter::Full, Jitter::Equal, Jitter::Additive];
        policy.retry.jitter = laws[rng.random_range(0..laws.len())];
        policy.in_flight_max = [1, 2, 8, 32][rng.random_range(0..4)];
        policy.retry.attempts_max = rng.random_range(2..8);
        policy.budget.ceiling = [1.0, 10.0, 100.0][rng.random_range(0..3)];
        Self {
            policy,
            mood: Mood::Well,
            poison: BTreeMap::new(),
            taken: BTreeSet::new(),
            latency_ms: rng.random_range(2..500),
            held: false,
        }
    }

    /// What an attempt comes to, and after how long.
    pub(super) fn answer(&self, seq: Seq, latency_ms: u64, calm: bool, rng: &mut Pcg64) -> (Outcome, u64) {
        let answer = |status| Outcome::Response(Answer { status, ..Answer::default() });
        let transport = |kind, bytes_sent, reused| Outcome::Transport { kind, bytes_sent, reused };
        let poisoned = self.poison.get(&seq).copied().filter(|_| !calm);
        match self.mood {
            Mood::Well => (answer(poisoned.unwrap_or(200)), latency_ms),
            Mood::Refuses => (transport(TransportKind::Refused, false, false), 1),
            Mood::Answers(status) => (answer(status), latency_ms),
            Mood::Throttles { retry_after_s } => {
                let retry_after = vec![retry_after_s.to_string()];
                (Outcome::Response(Answer { status: 429, retry_after, ..Answer::default() }), latency_ms)
            }
            Mood::Hangs => (transport(TransportKind::Timeout, true, false), TIMEOUT_MS),
            Mood::Resets { reused } => (transport(TransportKind::Reset, true, reused), latency_ms),
            Mood::Flaky { percent, status } if rng.random_range(0..100) < percent => {
                (answer(status), latency_ms)
            }
            Mood::Flaky { .. } => (answer(poisoned.unwrap_or(200)), latency_ms),
            Mood::NoNetwork => (transport(TransportKind::NoNetwork, false, false), 1),
            Mood::NoDns => (transport(TransportKind::Dns, false, false), 50),
            Mood::BadClock => (transport(TransportKind::TlsNotYetValid, false, false), latency_ms),
            Mood::Page => {
                let content_type = "text/html".to_owned();
                (Outcome::Response(Answer { status: 200, content_type, ..Answer::default() }), latency_ms)
            }
        }
    }
}
