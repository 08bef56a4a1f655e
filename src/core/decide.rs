//! The one place that branches about an attempt that has ended.
//!
//! [`decide`] takes what is known (verdict, counts, the endpoint's standing) and says what becomes of the delivery.
//! The leaves it calls are arithmetic; the [`super::dispatcher`] carries the answer out. In the order of the branches:
//! delivered; the endpoint is down, so nothing is charged; the receiver refuses the event for good; a kept connection
//! was closed under it; it fails while others pass; its attempts are used up; the retry budget is empty; its retry
//! window would be over before the next attempt; else it waits.

use std::time::Duration;

use rand::Rng;

use super::backoff;
use super::budget::{self, Budget};
use super::classify::{Verdict, VerdictKind};
use super::delivery::{DeadReason, FailureClass, Progress, Stage};
use super::policy::{EndpointPolicy, PolicyKind, WhenEmpty};
use super::time::StoreTime;

/// What is known when an attempt has ended.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Settings of the endpoint.
    pub policy: &'a EndpointPolicy,
    /// What the attempt came to.
    pub verdict: &'a Verdict,
    /// Counts before this attempt.
    pub progress: &'a Progress,
    /// When the event was accepted.
    pub accepted: StoreTime,
    /// Whether the endpoint is held, disabled, or was tripped by this very attempt.
    pub held: bool,
    /// It is held because it refuses event after event for one reason.
    pub storm: bool,
    /// Free repeats that this delivery has had since its last ordinary attempt.
    pub free_repeats: u32,
    /// Whether the delivery fails while others pass ([`is_poison`]).
    pub poison: bool,
    /// Whether ages can be believed (DESIGN 5.9: while they cannot, nothing expires).
    pub clock_trusted: bool,
    /// Store time.
    pub now: StoreTime,
}

/// What becomes of the delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The receiver has it.
    Delivered,
    /// Back in line without a charge: the endpoint is held.
    Return,
    /// Another attempt after `delay`.
    Retry {
        /// At least so long.
        delay: Duration,
        /// Whether this attempt counts.
        charged: bool,
        /// Whether the next attempt needs no token of the budget: it is a free repeat, or has its token already.
        paid: bool,
    },
    /// To the dead letters.
    Dead {
        /// What the attempt is remembered as.
        kind: VerdictKind,
        /// Whether this attempt counts.
        charged: bool,
        /// Why.
        reason: DeadReason,
    },
}

/// Failures of one delivery that make it suspect (DESIGN 5.6).
const POISON_FAILURES: u32 = 3;
/// Others that must have passed meanwhile.
const POISON_OTHERS: u64 = 5;
/// And the chance that a delivery fails that often by bad luck alone, at the failure rate of the others. Without it a
/// receiver that drops half of everything would make one event in eight a suspect.
const POISON_CHANCE: f64 = 1e-6;
/// The same while the receiver refuses others too with answers that blame itself (429, 503): refusals of a receiver at its
/// limit come in clusters. With 1e-6 a fleet that drains into one (one refusal in seven) lost one or two of 240,000
/// events in the simulation, with this none.
const POISON_CHANCE_OVERLOADED: f64 = 1e-9;
/// An overloaded receiver that refuses more than this tells nothing about one event: in the simulation one in two million
/// was refused twenty times over an hour.
const OVERLOADED_SHARE: f64 = 0.25;

/// Whether a delivery that failed `failures` times is poison: so many others passed since its first failure, and that
/// share of the endpoint's last attempts failed, its own left out. `overloaded`: it refuses others too.
pub fn is_poison(failures: u32, others_passed: u64, others_failed_share: f64, overloaded: bool) -> bool {
    if failures < POISON_FAILURES || others_passed < POISON_OTHERS {
        return false;
    }
    let rate = others_failed_share.clamp(0.0, 1.0);
    if overloaded && rate > OVERLOADED_SHARE {
        return false;
    }
    let chance = if overloaded { POISON_CHANCE_OVERLOADED } else { POISON_CHANCE };
    rate.powi(failures.min(1000).cast_signed()) <= chance
}

/// What becomes of a delivery after an attempt. Takes a token from `budget` only where an empty one means death.
pub fn decide(facts: &Facts<'_>, budget: &mut Budget, rng: &mut impl Rng) -> Decision {
    let verdict = facts.verdict;
    let article = facts.policy.kind == PolicyKind::Article;
    match verdict.kind {
        VerdictKind::Delivered => return Decision::Delivered,
        VerdictKind::Terminal if !(facts.held && facts.storm) => return refused(verdict),
        _ if facts.held => return Decision::Return,
        // An endpoint that works otherwise answers so to this event only.
        VerdictKind::HoldConfig => return refused(verdict),
        VerdictKind::Disabled => return Decision::Return,
        _ => {}
    }
    if verdict.free_repeat && facts.free_repeats == 0 {
        return Decision::Retry { delay: Duration::ZERO, charged: false, paid: true };
    }
    if facts.poison {
        let message =
            format!("failed {} times while others passed: {}", facts.progress.attempts + 1, verdict.reason);
        return dead(VerdictKind::Poison, FailureClass::Poison, message, verdict.charged);
    }
    let charged_before = facts.progress.charged;
    if verdict.charged && charged_before + 1 >= facts.policy.retry.attempts_max {
        let message = format!("{} attempts used up: {}", charged_before + 1, verdict.reason);
        return dead(verdict.kind, FailureClass::Transient, message, true);
    }
    let delay = backoff::draw(
        &facts.policy.retry,
        facts.progress.attempts.saturating_add(1),
        facts.progress.previous_delay,
        rng,
    );
    let delay = delay.max(verdict.pause.unwrap_or_default());
    if !article && expired(facts.policy, facts.accepted, facts.now + delay, facts.clock_trusted) {
        return dead(verdict.kind, FailureClass::Expired, window_over(facts.policy), verdict.charged);
    }
    let mut paid = false;
    if facts.policy.budget.when_empty == WhenEmpty::DeadLetter {
        if !budget.try_take(budget::seconds(facts.now)) {
            let message = format!("the retry budget is empty: {}", verdict.reason);
            return dead(verdict.kind, FailureClass::Transient, message, verdict.charged);
        }
        paid = true;
    }
    Decision::Retry { delay, charged: verdict.charged, paid }
}

/// Whether the retry window of an event accepted at `accepted` is over at `at`.
pub fn expired(policy: &EndpointPolicy, accepted: StoreTime, at: StoreTime, clock_trusted: bool) -> bool {
    clock_trusted && policy.kind == PolicyKind::Edge && at > accepted + policy.retry.window
}

/// Why a delivery is dead whose retry window is over.
pub fn window_over_reason(policy: &EndpointPolicy) -> DeadReason {
    reason(FailureClass::Expired, window_over(policy))
}

fn window_over(policy: &EndpointPolicy) -> String {
    format!("not delivered within the retry window of {} h", policy.retry.window.as_secs() / 3600)
}

fn refused(verdict: &Verdict) -> Decision {
    let message = format!("the receiver refuses it: {}", verdict.reason);
    dead(VerdictKind::Terminal, FailureClass::Rejected, message, true)
}

fn dead(kind: VerdictKind, class: FailureClass, message: String, charged: bool) -> Decision {
    Decision::Dead { kind, charged, reason: reason(class, message) }
}

fn reason(class: FailureClass, message: String) -> DeadReason {
    DeadReason { class, stage: Stage::Delivery, message, location: None }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
