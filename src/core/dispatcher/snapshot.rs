//! What a status page is told of an endpoint.

use super::super::super::budget;
use super::super::super::hold::HoldReason;
use super::super::super::time::StoreTime;
use super::super::{EndpointSnapshot, EndpointStatus};
use super::Endpoint;

impl Endpoint {
    pub(super) fn status(&self) -> EndpointStatus {
        if self.disabled {
            EndpointStatus::Disabled
        } else if self.paused {
            EndpointStatus::Paused
        } else if self.health.hold().is_some() {
            EndpointStatus::Held
        } else {
            EndpointStatus::Up
        }
    }

    pub(in super::super) fn snapshot(&self, now: StoreTime) -> EndpointSnapshot {
        let status = self.status();
        let hold = self.health.hold().filter(|_| status == EndpointStatus::Held);
        let (hold_reason, hold_detail) = match status {
            EndpointStatus::Up => (None, None),
            EndpointStatus::Held => (hold.map(|hold| hold.reason), hold.map(|hold| hold.detail.clone())),
            EndpointStatus::Paused => {
                (Some(HoldReason::Operator), Some("an operator paused it; its data is kept".to_owned()))
            }
            EndpointStatus::Disabled => (
                Some(HoldReason::Config),
                Some("it answered 410 Gone; its data is kept until an operator resumes it".to_owned()),
            ),
        };
        EndpointSnapshot {
            status,
            hold_reason,
            hold_detail,
            held_since: hold.map(|hold| hold.since).or(self.paused_since),
            next_probe: hold.map(|hold| hold.next_probe),
            in_flight: u32::try_from(self.in_flight).unwrap_or(u32::MAX),
            window: self.window.limit(),
            budget_tokens: self.budget.level(budget::seconds(now.max(self.now))),
            budget_ceiling: self.budget.ceiling(),
            retrying: self.queue.retrying(),
            ready: self.queue.ready_len() as u64,
            attempts: self.attempts,
            verdicts: self.verdicts.clone(),
            attempts_by_number: self.attempts_by_number,
            last_outcome: self.last_outcome.clone(),
        }
    }
}
