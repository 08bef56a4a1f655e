//! The status snapshot: store counters, dispatcher state, rates and forecasts put together four times a second.
//!
//! Everything on a screen comes from here, so that no two surfaces can disagree.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::growth::Growth;
use crate::core::dispatcher::{EndpointSnapshot, EndpointStatus};
use crate::core::ids::{EndpointId, Seq};
use crate::core::time::{Now, StoreTime};
use crate::driver::Target;
use crate::store::{Ledger, StoreStats};
use crate::wire::{
    BackoffView, BudgetView, ClockView, EndpointState, EndpointView, LatencyView, LedgerView, RatesView,
    StatusView, StoreView,
};

/// Span over which rates are taken.
const RATE_SPAN: Duration = Duration::from_secs(10);
/// Due work of an endpoint that is up and does not move for so long makes the box not ready (field fault 51).
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// Rates slower than this a second make no forecast of a drain.
const DRAIN_MIN: f64 = 0.01;
/// A forecast of a drain counts on nothing faster: the store and the receiver have their limits too.
const LATENCY_MIN_MS: f64 = 10.0;
/// After a hold the window grows by one step in this time (DESIGN 5.6).
const RAMP_STEP: Duration = Duration::from_millis(250);

/// Counters at one moment, for rates.
#[derive(Clone, Copy)]
struct Sample {
    at: StoreTime,
    accepted: u64,
    delivered: u64,
    attempts: u64,
}

/// Makes [`StatusView`]s; remembers enough for rates and for telling a standstill.
pub(super) struct Reporter {
    node: String,
    started: StoreTime,
    disk_bytes_max: u64,
    disk_free_reserve: u64,
    samples: VecDeque<Sample>,
    growth: Growth,
    /// Median latency of each endpoint when it was last up, in milliseconds: what a drain will go by.
    healthy_ms: BTreeMap<EndpointId, f64>,
    moved_at: StoreTime,
    last_attempts: u64,
}

/// One endpoint's part of a snapshot.
pub(super) struct EndpointPart<'a> {
    pub target: &'a Target,
    pub snapshot: EndpointSnapshot,
    pub latency: LatencyView,
}

impl Reporter {
    pub fn new(node: String, disk_bytes_max: u64, disk_free_reserve: u64, now: StoreTime) -> Self {
        Self {
            node,
            started: now,
            disk_bytes_max,
            disk_free_reserve,
            samples: VecDeque::new(),
            growth: Growth::default(),
            healthy_ms: BTreeMap::new(),
            moved_at: now,
            last_attempts: 0,
        }
    }

    /// The snapshot now. `newest` is the newest durable sequence.
    pub fn view(
        &mut self,
        stats: &StoreStats,
        newest: Seq,
        parts: &[EndpointPart<'_>],
        stopping: bool,
        now: Now,
    ) -> StatusView {
        let ledger = total(stats.ledgers.values());
        let attempts: u64 = parts.iter().map(|part| part.snapshot.attempts).sum();
        let sample = Sample { at: now.store, accepted: newest.0, delivered: ledger.delivered, attempts };
        let rates = self.rates(sample);
        let not_ready_reason = self.not_ready(stats, parts, attempts, stopping, now.store);
        let endpoints: Vec<_> = parts
            .iter()
            .map(|part| {
                let mut view = endpoint_view(part, stats, now.store);
                view.drained_in_s = self.drained_in_s(part, view.pending, &rates);
                view
            })
            .collect();
        StatusView {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: not_ready_reason.is_none(),
            not_ready_reason,
            uptime_s: now.store.since(self.started).as_secs(),
            ledger: ledger_view(&ledger),
            endpoints,
            store: self.store_view(stats, now.store),
            clock: ClockView { trusted: now.wall_trusted },
            resident_bytes: resident_bytes(),
            rates,
            at_ms: now.wall.0,
            warnings: warnings(stats, now),
        }
    }

    fn rates(&mut self, sample: Sample) -> RatesView {
        self.samples.push_back(sample);
        while self.samples.len() > 2 && sample.at.since(self.samples[1].at) >= RATE_SPAN {
            self.samples.pop_front();
        }
        let first = self.samples[0];
        let seconds = sample.at.since(first.at).as_secs_f64();
        let rate =
            |now: u64, then: u64| if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 };
        RatesView {
            accepted_per_s: rate(sample.accepted, first.accepted),
            delivered_per_s: rate(sample.delivered, first.delivered),
            attempts_per_s: rate(sample.attempts, first.attempts),
        }
    }

    /// When the backlog will be gone: at the present rate while the endpoint is up, else from the moment it is back, as
    /// the ramp and its last healthy latency allow.
    fn drained_in_s(&mut self, part: &EndpointPart<'_>, pending: u64, rates: &RatesView) -> Option<u64> {
        let (up, latency) = (part.snapshot.status == EndpointStatus::Up, part.latency);
        if up && part.snapshot.hold_reason.is_none() && latency.count > 0 && latency.p50 > 0.0 {
            self.healthy_ms.insert(part.target.id, latency.p50);
        }
        if pending == 0 {
            return None;
        }
        let (per_s, ramp_s) = if up {
            (rates.delivered_per_s, 0.0)
        } else {
            let window = f64::from(part.target.policy.in_flight_max);
            let per_s = window * 1_000.0 / self.healthy_ms.get(&part.target.id)?.max(LATENCY_MIN_MS);
            (per_s, window * RAMP_STEP.as_secs_f64())
        };
        let net = per_s - rates.accepted_per_s;
        (net > DRAIN_MIN).then(|| (ramp_s + pending as f64 / net).ceil() as u64)
    }

    fn store_view(&mut self, stats: &StoreStats, now: StoreTime) -> StoreView {
        let room = room(self.disk_bytes_max, self.disk_free_reserve, stats);
        let full_in_s = self.growth.per_s(stats.live_bytes, now).map(|growth| (room as f64 / growth) as u64);
        StoreView {
            disk_bytes: stats.disk_bytes,
            live_bytes: stats.live_bytes,
            events: stats.events,
            quarantined_bytes: stats.quarantined_bytes,
            disk_free_bytes: stats.disk_free_bytes,
            disk_bytes_max: self.disk_bytes_max,
            written_bytes: stats.written_bytes,
            syncs: stats.syncs,
            keys: stats.keys,
            full_in_s,
        }
    }

    fn not_ready(
        &mut self,
        stats: &StoreStats,
        parts: &[EndpointPart<'_>],
        attempts: u64,
        stopping: bool,
        now: StoreTime,
    ) -> Option<String> {
        if stopping {
            return Some("stopping".to_owned());
        }
        let stuck = |part: &EndpointPart<'_>| {
            part.snapshot.status == EndpointStatus::Up
                && part.snapshot.ready > 0
                && part.snapshot.in_flight == 0
        };
        if attempts != self.last_attempts || !parts.iter().any(stuck) {
            self.moved_at = now;
            self.last_attempts = attempts;
        }
        if let Some(what) = stats.full {
            return Some(format!("not accepting: the {what} is full"));
        }
        (now.since(self.moved_at) >= STUCK_AFTER).then(|| {
            format!("deliveries are due and none has been tried for {} s", now.since(self.moved_at).as_secs())
        })
    }
}

fn warnings(stats: &StoreStats, now: Now) -> Vec<String> {
    let mut warnings = stats.warnings.clone();
    if !now.wall_trusted {
        warnings.push("the clock is not trusted: nothing expires until it is".to_owned());
    }
    warnings
}

/// Sum over endpoints.
pub(super) fn total<'a>(ledgers: impl Iterator<Item = &'a Ledger>) -> Ledger {
    ledgers.fold(Ledger::default(), |sum, one| Ledger {
        accepted: sum.accepted + one.accepted,
        delivered: sum.delivered + one.delivered,
        pending: sum.pending + one.pending,
        dead: sum.dead + one.dead,
        expired: sum.expired + one.expired,
        discarded: sum.discarded + one.discarded,
        dropped: sum.dropped + one.dropped,
        superseded: sum.superseded + one.superseded,
        lost: sum.lost + one.lost,
        duplicates: sum.duplicates + one.duplicates,
    })
}

fn ledger_view(ledger: &Ledger) -> LedgerView {
    LedgerView {
        accepted: ledger.accepted,
        delivered: ledger.delivered,
        pending: ledger.pending,
        dead: ledger.dead,
        expired: ledger.expired,
        discarded: ledger.discarded,
        dropped: ledger.dropped,
        superseded: ledger.superseded,
        lost: ledger.lost,
        duplicates: ledger.duplicates,
        balanced: ledger.balanced(),
    }
}

fn endpoint_view(part: &EndpointPart<'_>, stats: &StoreStats, now: StoreTime) -> EndpointView {
    let EndpointId(id) = part.target.id;
    let snapshot = &part.snapshot;
    let ledger = stats.ledgers.get(&id).copied().unwrap_or_default();
    let oldest = stats.oldest_pending.get(&id);
    EndpointView {
        name: part.target.name.to_string(),
        url: part.target.url_shown.clone(),
        state: state_view(snapshot.status),
        hold_reason: snapshot.hold_reason.map(|reason| reason.as_str().to_owned()),
        hold_detail: snapshot.hold_detail.clone(),
        held_for_s: snapshot.held_since.map(|since| now.since(since).as_secs()),
        next_probe_in_s: snapshot.next_probe.map(|at| at.since(now).as_secs_f64()),
        pending: ledger.pending,
        retrying: snapshot.retrying,
        oldest_pending_age_s: oldest.map_or(0, |accepted| now.since(*accepted).as_secs()),
        in_flight: snapshot.in_flight,
        window: snapshot.window,
        budget: BudgetView { tokens: snapshot.budget_tokens, ceiling: snapshot.budget_ceiling },
        attempts: snapshot.attempts,
        delivered: ledger.delivered,
        dead: ledger.dead,
        verdicts: snapshot.verdicts.clone(),
        attempts_by_number: snapshot.attempts_by_number.to_vec(),
        latency_ms: part.latency,
        last_outcome: snapshot.last_outcome.clone(),
        drained_in_s: None, // by the reporter, which knows the past
        backoff: Some(BackoffView {
            jitter: format!("{:?}", part.target.policy.retry.jitter).to_ascii_lowercase(),
            base_ms: u64::try_from(part.target.policy.retry.base.as_millis()).unwrap_or(u64::MAX),
            cap_ms: u64::try_from(part.target.policy.retry.cap.as_millis()).unwrap_or(u64::MAX),
            attempts_max: part.target.policy.retry.attempts_max,
        }),
    }
}

/// The wire's word for a state.
pub(super) fn state_view(status: EndpointStatus) -> EndpointState {
    match status {
        EndpointStatus::Up => EndpointState::Up,
        EndpointStatus::Held => EndpointState::Held,
        EndpointStatus::Paused => EndpointState::Paused,
        EndpointStatus::Disabled => EndpointState::Disabled,
    }
}

/// Resident memory from /proc/self/statm; zero where there is none.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// The empty status before the first snapshot.
pub(super) fn starting(node: &str) -> Arc<StatusView> {
    Arc::new(StatusView {
        node: node.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: false,
        not_ready_reason: Some("starting".to_owned()),
        uptime_s: 0,
        ledger: LedgerView { balanced: true, ..LedgerView::default() },
        endpoints: Vec::new(),
        store: StoreView::default(),
        clock: ClockView::default(),
        resident_bytes: 0,
        rates: RatesView::default(),
        at_ms: 0,
        warnings: Vec::new(),
    })
}

/// Bytes that may still come in: what the limit leaves, and the file system beyond its reserve.
fn room(disk_bytes_max: u64, disk_free_reserve: u64, stats: &StoreStats) -> u64 {
    let free = stats.disk_free_bytes.saturating_sub(disk_free_reserve);
    disk_bytes_max.saturating_sub(stats.disk_bytes).min(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forecast once counted on the free space that the intake leaves alone, and so told a time that was too late.
    #[test]
    fn the_forecast_of_a_full_disk_leaves_the_reserve_alone() {
        let stats = StoreStats { disk_bytes: 300, disk_free_bytes: 500, ..StoreStats::default() };
        assert_eq!(room(1_000, 200, &stats), 300);
        assert_eq!(room(1_000, 600, &stats), 0);
        assert_eq!(room(400, 0, &stats), 100);
    }
}
