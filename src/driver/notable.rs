//! Lines for the log when the state of the box or of an endpoint changes: what a person looks for there.

use std::time::Duration;

use crate::wire::{EndpointState, EndpointView, StatusView};

/// Says what is different between two snapshots.
pub(super) fn log_changes(before: &StatusView, after: &StatusView) {
    for now in &after.endpoints {
        let then = before.endpoints.iter().find(|then| then.name == now.name);
        log_endpoint(then, now);
    }
    match (&before.not_ready_reason, &after.not_ready_reason) {
        (None, Some(reason)) => tracing::warn!(reason, "not ready"),
        (Some(_), None) => tracing::info!("ready"),
        _ => {}
    }
    if before.ledger.balanced && !after.ledger.balanced {
        tracing::error!("the ledger does not balance");
    }
    if after.ledger.lost > before.ledger.lost && !before.endpoints.is_empty() {
        tracing::error!(lost = after.ledger.lost, "events were destroyed by damage");
    }
}

fn log_endpoint(then: Option<&EndpointView>, now: &EndpointView) {
    let before = then.map_or(EndpointState::Up, |then| then.state);
    let reason = |one: &EndpointView| one.hold_reason.clone();
    if now.state == before && then.and_then(reason) == reason(now) {
        return;
    }
    let endpoint = now.name.escape_debug();
    let why = now.hold_detail.as_deref().or(now.hold_reason.as_deref()).unwrap_or("no reason given");
    let why = why.escape_debug();
    let pending = now.pending;
    match now.state {
        EndpointState::Up if before != EndpointState::Up => {
            let for_s = then.and_then(|then| then.held_for_s).map(Duration::from_secs);
            tracing::info!(%endpoint, pending, after = ?for_s.unwrap_or_default(), "endpoint up again");
        }
        EndpointState::Up => {}
        EndpointState::Held => tracing::warn!(%endpoint, pending, %why, "endpoint held"),
        EndpointState::Paused => tracing::warn!(%endpoint, pending, "endpoint paused by an operator"),
        EndpointState::Disabled => {
            tracing::error!(%endpoint, pending, "endpoint disabled: it answered 410 gone");
        }
    }
}
