//! What an endpoint does by time alone: what it asks to remember, and when it wants to be polled.

use std::time::Duration;

use super::super::super::budget;
use super::super::super::time::StoreTime;
use super::super::{Action, EndpointMemory};
use super::Endpoint;

/// Between two writes of the budget level (RETRY R15).
const PERSIST_EVERY: Duration = Duration::from_secs(5);

impl Endpoint {
    fn memory(&self) -> EndpointMemory {
        EndpointMemory {
            budget_tokens: Some(self.budget.level(budget::seconds(self.now))),
            paused: self.paused,
            disabled: self.disabled,
        }
    }

    pub(super) fn persist(&mut self) -> Option<Action> {
        let flags = (self.paused, self.disabled) != (self.persisted.paused, self.persisted.disabled);
        let level_due = self.budget_changed && self.now >= self.persisted_at + PERSIST_EVERY;
        if !flags && !level_due {
            return None;
        }
        let memory = self.memory();
        self.budget_changed = false;
        self.persisted_at = self.now;
        let before = self.persisted.budget_tokens.unwrap_or_default();
        if !flags && (memory.budget_tokens.unwrap_or_default() - before).abs() < 1.0 {
            return None;
        }
        self.persisted = memory;
        Some(Action::Persist { endpoint: self.id, memory })
    }

    pub(in super::super) fn next_wake(&self) -> Option<StoreTime> {
        let mut wake = self.queue.next_wake(self.horizon(), self.paused || self.disabled);
        let mut at = |time: StoreTime| wake = Some(wake.map_or(time, |other: StoreTime| other.min(time)));
        if self.budget_changed {
            at(self.persisted_at + PERSIST_EVERY);
        }
        if self.paused || self.disabled {
            return wake.map(|time| time.max(self.now + Duration::from_millis(1)));
        }
        if let Some((_, accepted)) = self.queue.oldest_ready().filter(|_| self.clock_trusted) {
            at(accepted + self.policy.retry.window + Duration::from_millis(1));
        }
        if let Some(end) = self.queue.first_end().filter(|_| self.clock_trusted) {
            at(end + Duration::from_millis(1));
        }
        if self.health.hold().is_none()
            && self.is_well()
            && let Some(next) = self.redrive.next_at()
        {
            at(next);
        }
        if let Some(hold) = self.health.hold() {
            if !self.probe_running && self.queue.has_candidate() {
                at(hold.next_probe);
            }
        } else if self.has_room() && self.queue.has_candidate() {
            if self.open_at() > self.now {
                at(self.open_at());
            } else if self.queue.first_due().is_some()
                && let Some(wait) = self.budget.wait_for_token(budget::seconds(self.now))
            {
                at(self.now + wait);
            }
        }
        // Never now again: whatever could be done now has been polled already.
        wake.map(|time| time.max(self.now + Duration::from_millis(1)))
    }
}
