//! When transient dead letters send themselves again: once the endpoint is well, one after another, at a fixed pace.
//!
//! A *pass* goes through the dead letters from the oldest on and ends when the store has no more that may go. It begins
//! after a recovery, after a start, and after transient deaths without a hold; it pauses while the endpoint is unwell.

use std::time::Duration;

use super::super::policy::RedrivePolicy;
use super::super::time::StoreTime;

/// Between two passes: what failed again has some time before it uses its next redrive.
const REST: Duration = Duration::from_mins(10);
/// The same if the pass found nothing that may go: a walk through the dead letters is not free.
const REST_EMPTY: Duration = Duration::from_secs(5);
/// Attempts of late that must all have passed for an endpoint to be well.
pub(super) const WELL_RUN: u32 = 20;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Redrive {
    policy: RedrivePolicy,
    wanted: bool,
    /// The present pass has sent one.
    sent: bool,
    /// The store is being asked for the next one.
    asked: bool,
    next_at: StoreTime,
}

impl Redrive {
    pub(super) fn new(policy: RedrivePolicy) -> Self {
        // There may be some from before the start.
        Self { policy, wanted: policy.auto, sent: false, asked: false, next_at: StoreTime(0) }
    }

    /// There may be transient dead letters that could go now.
    pub(super) fn want(&mut self) {
        self.wanted = self.policy.auto;
    }

    /// A recovery is reason enough not to rest.
    pub(super) fn recovered(&mut self, now: StoreTime) {
        self.want();
        self.next_at = self.next_at.min(now);
    }

    /// Whether the next one should go now.
    pub(super) fn take(&mut self, now: StoreTime) -> bool {
        let go = self.wanted && !self.asked && now >= self.next_at;
        self.asked |= go;
        go
    }

    /// The store has sent one again, or has none.
    pub(super) fn answered(&mut self, found: bool, now: StoreTime) {
        self.asked = false;
        self.wanted = found;
        let rest = if self.sent { REST } else { REST_EMPTY };
        self.next_at = now + if found { Duration::from_secs_f64(1.0 / self.policy.per_s) } else { rest };
        self.sent = found;
    }

    /// When the next one should go.
    pub(super) fn next_at(&self) -> Option<StoreTime> {
        (self.wanted && !self.asked).then_some(self.next_at)
    }
}
