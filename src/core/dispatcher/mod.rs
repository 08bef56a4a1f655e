//! The dispatcher: a state machine that says which attempt to make next, and never makes one itself.
//!
//! In the style of quinn-proto: `handle_*` tells it what happened, [`Dispatcher::poll`] is called until it gives
//! `None` and each [`Action`] is carried out by the driver (or by the simulated world), [`Dispatcher::next_wake`] says when
//! to poll again though nothing happened. Time and randomness come in as arguments.
//!
//! **The caller's duty.** After any `handle_*` and at `next_wake`, poll until `None`. Every action has exactly one
//! answer: `Attempt` → [`Dispatcher::handle_outcome`] (or [`Dispatcher::handle_lost`], or
//! [`Dispatcher::handle_unread`]), then write the settlement it
//! returns and call [`Dispatcher::handle_settled`]; `Settle` → write it, then `handle_settled`; `LoadPage` →
//! [`Dispatcher::handle_page`] (or [`Dispatcher::handle_page_failed`]); `LoadScheduled` →
//! [`Dispatcher::handle_scheduled`] (or `handle_scheduled_failed`); `Redrive` → [`Dispatcher::handle_redrive`].
//! `Persist` has none.
//!
//! Invariants: a delivery has at most one attempt running and is never offered again before its settlement is
//! written; at most [`READY_MAX`] first attempts and [`WAITING_MAX`] waits are in memory per endpoint; endpoints
//! share nothing.

mod endpoint;
mod lanes;
mod pace;
mod queue;
mod recent;
mod record;
mod redrive;
mod silence;

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;

use super::classify::{Outcome, VerdictKind};
use super::delivery::{Progress, Settlement};
use super::hold::HoldReason;
use super::ids::{EndpointId, Seq};
use super::policy::EndpointPolicy;
use super::route::Terms;
use super::time::{Now, StoreTime};
use endpoint::Endpoint;

/// Ready deliveries of an endpoint in memory: some seconds of work at full speed, about 0.5 MiB.
pub const READY_MAX: usize = 1024;
/// Waiting deliveries of an endpoint in memory; the rest stays in the persisted schedule.
pub const WAITING_MAX: usize = 2048;
/// Times one dead letter is sent again (RETRY 1.4).
pub const REDRIVES_MAX: u32 = 3;
/// Between tries of a read that the store refused.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Buckets of attempts by number: 1 to 7, and "8 and more".
pub const ATTEMPT_BUCKETS: usize = 8;

/// A pending delivery from a page of the backlog.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Which event.
    pub seq: Seq,
    /// When it was accepted: the retry window counts from there.
    pub accepted: StoreTime,
    /// Attempts so far.
    pub progress: Progress,
    /// What the rules say of it.
    pub terms: Terms,
}

/// A delivery between attempts from the persisted schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedWaiting {
    /// Which event.
    pub seq: Seq,
    /// When its next attempt may start.
    pub due: StoreTime,
    /// When it was accepted.
    pub accepted: StoreTime,
    /// Attempts so far.
    pub progress: Progress,
    /// What the rules say of it.
    pub terms: Terms,
}

/// What survives a restart of an endpoint, and what [`Action::Persist`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct EndpointMemory {
    /// Level of the retry budget; `None` for an endpoint that is new.
    pub budget_tokens: Option<f64>,
    /// An operator stopped it.
    pub paused: bool,
    /// It answered 410.
    pub disabled: bool,
}

/// What the driver must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send this delivery now.
    Attempt {
        /// To which endpoint.
        endpoint: EndpointId,
        /// Which event.
        seq: Seq,
        /// Number for `Waypost-Attempt`, from 1.
        number: u32,
        /// The endpoint is held and this attempt finds out whether it still must be.
        probe: bool,
    },
    /// Read pending deliveries after `after`.
    LoadPage {
        /// Of which endpoint.
        endpoint: EndpointId,
        /// Exclusive.
        after: Seq,
        /// At most so many.
        limit: usize,
    },
    /// Read the schedule in due order up to `until`.
    LoadScheduled {
        /// Of which endpoint.
        endpoint: EndpointId,
        /// Inclusive.
        until: StoreTime,
        /// At most so many.
        limit: usize,
    },
    /// Write a settlement that no running attempt asked for: the retry window is over, or a trip gives attempts back.
    Settle {
        /// Of which endpoint.
        endpoint: EndpointId,
        /// Which event.
        seq: Seq,
        /// What to write.
        settlement: Settlement,
    },
    /// Send the oldest dead letter again whose class is transient and that was redriven fewer than [`REDRIVES_MAX`]
    /// times.
    Redrive {
        /// Of which endpoint.
        endpoint: EndpointId,
    },
    /// Remember this across restarts.
    Persist {
        /// Which endpoint.
        endpoint: EndpointId,
        /// What.
        memory: EndpointMemory,
    },
}

/// State of an endpoint, as the core sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointStatus {
    /// Attempts are made.
    Up,
    /// Only probes.
    Held,
    /// An operator stopped it.
    Paused,
    /// It answered 410; an operator's resume starts it again.
    Disabled,
}

/// What a status page needs to know of an endpoint; cheap to take.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSnapshot {
    /// State.
    pub status: EndpointStatus,
    /// Why held or paused.
    pub hold_reason: Option<HoldReason>,
    /// The same in a sentence, with the last cause.
    pub hold_detail: Option<String>,
    /// Since when.
    pub held_since: Option<StoreTime>,
    /// When the next probe may start.
    pub next_probe: Option<StoreTime>,
    /// Attempts running.
    pub in_flight: u32,
    /// Attempts allowed at once now.
    pub window: u32,
    /// Level of the retry budget now.
    pub budget_tokens: f64,
    /// Its largest level.
    pub budget_ceiling: f64,
    /// Deliveries between attempts that are known.
    pub retrying: u64,
    /// Ready deliveries in memory.
    pub ready: u64,
    /// Attempts since start.
    pub attempts: u64,
    /// Attempts since start by verdict.
    pub verdicts: BTreeMap<VerdictKind, u64>,
    /// Attempts since start by attempt number; the last bucket is "and more".
    pub attempts_by_number: [u64; ATTEMPT_BUCKETS],
    /// Last outcome in words.
    pub last_outcome: Option<String>,
}

/// The machine. See the module's documentation.
#[derive(Debug, Default)]
pub struct Dispatcher {
    endpoints: BTreeMap<EndpointId, Endpoint>,
    /// Endpoint to be asked first at the next poll, so that none is always last.
    turn: Option<EndpointId>,
}

impl Dispatcher {
    /// A dispatcher without endpoints.
    pub fn new() -> Self {
        Self::default()
    }

    /// Take an endpoint on. Its backlog and schedule are asked for on the next poll.
    pub fn add_endpoint(
        &mut self,
        id: EndpointId,
        policy: EndpointPolicy,
        restored: EndpointMemory,
        now: StoreTime,
    ) {
        self.endpoints.insert(id, Endpoint::new(id, policy, restored, now));
    }

    /// Whether ages can be believed; until told so, nothing expires. Outcomes tell it too.
    pub fn handle_clock(&mut self, trusted: bool) {
        for endpoint in self.endpoints.values_mut() {
            endpoint.handle_clock(trusted);
        }
    }

    /// Events up to `newest` are durable; any endpoint may have new deliveries.
    pub fn handle_appended(&mut self, newest: Seq, _now: StoreTime) {
        for endpoint in self.endpoints.values_mut() {
            endpoint.queue.appended(newest);
        }
    }

    /// This endpoint may have pending deliveries that the last page did not show.
    pub fn handle_backlog(&mut self, endpoint: EndpointId) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.queue.more();
        }
    }

    /// Answer to [`Action::LoadPage`].
    pub fn handle_page(
        &mut self,
        endpoint: EndpointId,
        page: Vec<Loaded>,
        scanned_to: Seq,
        end: bool,
        now: StoreTime,
    ) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.handle_page(page, scanned_to, end, now);
        }
    }

    /// The page could not be read; it is asked for again after a second.
    pub fn handle_page_failed(&mut self, endpoint: EndpointId, now: StoreTime) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.queue.page_failed(now + READ_AGAIN);
        }
    }

    /// Answer to [`Action::LoadScheduled`]: every wait due up to `complete_until` is in `waits` (so it is `until`, or
    /// the last due time in `waits` if the limit cut it short).
    pub fn handle_scheduled(
        &mut self,
        endpoint: EndpointId,
        waits: Vec<LoadedWaiting>,
        complete_until: StoreTime,
        now: StoreTime,
    ) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.handle_scheduled(waits, complete_until, now);
        }
    }

    /// The schedule could not be read; it is asked for again after a second.
    pub fn handle_scheduled_failed(&mut self, endpoint: EndpointId, now: StoreTime) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.queue.schedule_failed(now + READ_AGAIN);
        }
    }

    /// An attempt has ended. Returns what to write; its last history entry is this attempt. `None` for an attempt that
    /// was not asked for, or whose delivery a person has ended meanwhile.
    pub fn handle_outcome(
        &mut self,
        endpoint: EndpointId,
        seq: Seq,
        outcome: &Outcome,
        latency: Duration,
        now: Now,
        rng: &mut impl Rng,
    ) -> Option<Settlement> {
        self.endpoints.get_mut(&endpoint)?.handle_outcome(seq, outcome, latency, now, rng)
    }

    /// The settlement of this delivery is written.
    pub fn handle_settled(&mut self, endpoint: EndpointId, seq: Seq, now: StoreTime) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.handle_settled(seq, now);
        }
    }

    /// The event's bytes could not be read; the store counts it as lost. The attempt that asked for it never ran.
    pub fn handle_lost(&mut self, endpoint: EndpointId, seq: Seq, _now: StoreTime) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.handle_lost(seq);
        }
    }

    /// The event's bytes could not be read for now; the attempt never ran and is asked for again after a second.
    pub fn handle_unread(&mut self, endpoint: EndpointId, seq: Seq, now: StoreTime) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.handle_unread(seq, now + READ_AGAIN);
        }
    }

    /// The delivery ended by other means: a person discarded it, a policy dropped it.
    pub fn handle_ended(&mut self, endpoint: EndpointId, seq: Seq) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.handle_ended(seq);
        }
    }

    /// An operator stops the endpoint; running attempts finish, data is kept.
    pub fn handle_pause(&mut self, endpoint: EndpointId, now: StoreTime) -> Option<EndpointStatus> {
        self.endpoints.get_mut(&endpoint).map(|endpoint| endpoint.handle_pause(now))
    }

    /// An operator lifts pause, disablement and hold; attempts start again with a window of one.
    pub fn handle_resume(&mut self, endpoint: EndpointId, now: StoreTime) -> Option<EndpointStatus> {
        self.endpoints.get_mut(&endpoint).map(|endpoint| endpoint.handle_resume(now))
    }

    /// An operator wants the held endpoint probed now.
    pub fn handle_probe(&mut self, endpoint: EndpointId, now: StoreTime) -> Option<EndpointStatus> {
        self.endpoints.get_mut(&endpoint).map(|endpoint| endpoint.handle_probe(now))
    }

    /// Dead letters from `lowest` on are pending again.
    pub fn handle_redriven(&mut self, endpoint: EndpointId, lowest: Seq, _now: StoreTime) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.queue.redriven(lowest);
        }
    }

    /// Answer to [`Action::Redrive`]: which one is pending again, if there was one.
    pub fn handle_redrive(&mut self, endpoint: EndpointId, found: Option<Seq>, now: StoreTime) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.handle_redrive(found, now);
        }
    }

    /// The box's network changed: held endpoints probe soon.
    pub fn handle_link_change(&mut self, now: StoreTime, rng: &mut impl Rng) {
        for endpoint in self.endpoints.values_mut() {
            endpoint.handle_link_change(now, rng);
        }
    }

    /// What to do next; call until `None`.
    pub fn poll(&mut self, now: StoreTime, rng: &mut impl Rng) -> Option<Action> {
        let from = self.turn.unwrap_or(EndpointId(0));
        let later = self.endpoints.range_mut(from..);
        for (id, endpoint) in later {
            if let Some(action) = endpoint.poll(now, rng) {
                self.turn = Some(EndpointId(id.0 + 1));
                return Some(action);
            }
        }
        for (id, endpoint) in self.endpoints.range_mut(..from) {
            if let Some(action) = endpoint.poll(now, rng) {
                self.turn = Some(EndpointId(id.0 + 1));
                return Some(action);
            }
        }
        None
    }

    /// When to poll again if nothing happens before.
    pub fn next_wake(&self) -> Option<StoreTime> {
        self.endpoints.values().filter_map(Endpoint::next_wake).min()
    }

    /// Attempts running at all endpoints.
    pub fn in_flight(&self) -> usize {
        self.endpoints.values().map(Endpoint::in_flight).sum()
    }

    /// What a status page needs to know.
    pub fn snapshot(&self, endpoint: EndpointId, now: StoreTime) -> Option<EndpointSnapshot> {
        self.endpoints.get(&endpoint).map(|endpoint| endpoint.snapshot(now))
    }
}

#[cfg(test)]
mod tests;
