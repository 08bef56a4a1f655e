//! `/metrics` in the Prometheus text format.
//!
//! Counters and gauges are set from the status snapshot at the moment of a scrape, so they can never disagree with
//! `/v1/status`; only histograms are fed as things happen. Labels come from closed sets (endpoint, verdict).

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::wire::{EndpointState, StatusView};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEndpoint {
    endpoint: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByVerdict {
    endpoint: String,
    verdict: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

/// Labels of a gauge that has none but may be absent.
type NoLabels = Vec<(&'static str, &'static str)>;

type FloatGauge = Gauge<f64, AtomicU64>;

/// The registry and what is fed into it.
pub struct Metrics {
    registry: Mutex<Registry>,
    deliveries: Family<ByState, Gauge<i64>>,
    duplicates: Counter,
    balanced: Gauge,
    attempts: Family<ByVerdict, Counter>,
    pending: Family<ByEndpoint, Gauge<i64>>,
    dead: Family<ByEndpoint, Gauge<i64>>,
    oldest: Family<ByEndpoint, Gauge<i64>>,
    in_flight: Family<ByEndpoint, Gauge<i64>>,
    window: Family<ByEndpoint, Gauge<i64>>,
    budget: Family<ByEndpoint, FloatGauge>,
    held: Family<ByEndpoint, Gauge<i64>>,
    /// Has no entry while nothing can be told.
    drained_in: Family<ByEndpoint, Gauge<i64>>,
    /// The same; without labels.
    full_in: Family<NoLabels, Gauge<i64>>,
    ready: Gauge,
    disk: Gauge,
    disk_free: Gauge,
    disk_written: Counter,
    syncs: Counter,
    quarantined: Gauge,
    resident: Gauge,
    clock_trusted: Gauge,
    attempt_seconds: Family<ByEndpoint, Histogram>,
    append_seconds: Histogram,
    appends: AtomicU64,
    timer_late: FloatGauge,
    late: Mutex<Late>,
}

/// The largest lateness of this span and of the one before, so that a scrape sees at least the last minute.
#[derive(Default)]
struct Late {
    since: Option<Instant>,
    now: Duration,
    before: Duration,
}

/// A scrape that comes more often than this misses no late timer; older ones are forgotten, so an alert ends.
const LATE_SPAN: Duration = Duration::from_mins(1);

/// Upper bounds of latency buckets in seconds: a LAN answer to a timeout.
const LATENCY_BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

fn latency_histogram() -> Histogram {
    Histogram::new(LATENCY_BUCKETS)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with every metric at its start.
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("waypost")),
            deliveries: Family::default(),
            duplicates: Counter::default(),
            balanced: Gauge::default(),
            attempts: Family::default(),
            pending: Family::default(),
            dead: Family::default(),
            oldest: Family::default(),
            in_flight: Family::default(),
            window: Family::default(),
            budget: Family::default(),
            held: Family::default(),
            drained_in: Family::default(),
            full_in: Family::default(),
            ready: Gauge::default(),
            disk: Gauge::default(),
            disk_free: Gauge::default(),
            disk_written: Counter::default(),
            syncs: Counter::default(),
            quarantined: Gauge::default(),
            resident: Gauge::default(),
            clock_trusted: Gauge::default(),
            attempt_seconds: Family::new_with_constructor(latency_histogram),
            append_seconds: latency_histogram(),
            appends: AtomicU64::new(0),
            timer_late: FloatGauge::default(),
            late: Mutex::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut r = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        r.register(
            "ledger_deliveries",
            "Deliveries since the store was made, by what became of them",
            self.deliveries.clone(),
        );
        r.register(
            "duplicates",
            "Posts answered as duplicates since the store was made",
            self.duplicates.clone(),
        );
        r.register("ledger_balanced", "1 if accepted equals the sum of all fates", self.balanced.clone());
        r.register("attempts", "Attempts since start", self.attempts.clone());
        r.register("outbox_pending", "Deliveries waiting", self.pending.clone());
        r.register("dead_letters", "Dead letters now", self.dead.clone());
        r.register_with_unit(
            "oldest_pending_age",
            "Age of the oldest waiting delivery",
            Unit::Seconds,
            self.oldest.clone(),
        );
        r.register("in_flight", "Attempts running", self.in_flight.clone());
        r.register("window", "Attempts allowed at once now", self.window.clone());
        r.register("retry_budget_tokens", "Level of the retry budget", self.budget.clone());
        r.register("endpoint_held", "1 while an endpoint is held, paused or disabled", self.held.clone());
        r.register_with_unit(
            "drained_in",
            "Until the backlog is gone, from when the endpoint is up; absent while it cannot be told",
            Unit::Seconds,
            self.drained_in.clone(),
        );
        r.register_with_unit(
            "store_full_in",
            "Until the store is full at the present growth; absent while it does not grow",
            Unit::Seconds,
            self.full_in.clone(),
        );
        r.register("ready", "1 while ready", self.ready.clone());
        r.register_with_unit("disk", "Size of the data directory", Unit::Bytes, self.disk.clone());
        r.register_with_unit(
            "disk_free",
            "Free space of the file system",
            Unit::Bytes,
            self.disk_free.clone(),
        );
        r.register_with_unit(
            "disk_written",
            "Written to the store since start",
            Unit::Bytes,
            self.disk_written.clone(),
        );
        r.register("log_syncs", "fdatasync calls on the log since start", self.syncs.clone());
        r.register_with_unit("quarantined", "Set aside after damage", Unit::Bytes, self.quarantined.clone());
        r.register_with_unit("resident", "Resident memory", Unit::Bytes, self.resident.clone());
        r.register("clock_trusted", "1 while the wall clock is believed", self.clock_trusted.clone());
        r.register_with_unit("attempt", "Duration of attempts", Unit::Seconds, self.attempt_seconds.clone());
        r.register_with_unit(
            "append",
            "From a parsed post to its sync",
            Unit::Seconds,
            self.append_seconds.clone(),
        );
        r.register_with_unit(
            "timer_late_max",
            "Largest lateness of a timer inside the process in the last one to two minutes",
            Unit::Seconds,
            self.timer_late.clone(),
        );
    }

    /// An attempt has ended.
    pub fn attempt_ended(&self, endpoint: &str, latency: Duration) {
        let label = ByEndpoint { endpoint: endpoint.to_owned() };
        self.attempt_seconds.get_or_create(&label).observe(latency.as_secs_f64());
    }

    /// An append has been synced.
    pub fn append_synced(&self, latency: Duration) {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.append_seconds.observe(latency.as_secs_f64());
    }

    /// Appends so far.
    pub fn appends(&self) -> u64 {
        self.appends.load(Ordering::Relaxed)
    }

    /// A timer inside the process came so late.
    pub fn timer_was_late(&self, by: Duration) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *late.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= LATE_SPAN {
            *late = Late { since: Some(Instant::now()), now: Duration::ZERO, before: late.now };
        }
        late.now = late.now.max(by);
    }

    /// The largest lateness in the last one to two minutes.
    pub fn timer_late_max(&self) -> Duration {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.now.max(late.before)
    }

    /// The text of a scrape, with every figure as `status` has it.
    pub fn render(&self, status: &StatusView) -> String {
        self.take(status);
        let mut out = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        match text::encode(&mut out, &registry) {
            Ok(()) => out,
            Err(_) => String::new(), // writing to a String cannot fail
        }
    }

    fn take(&self, status: &StatusView) {
        let ledger = &status.ledger;
        for (state, count) in [
            ("accepted", ledger.accepted),
            ("delivered", ledger.delivered),
            ("pending", ledger.pending),
            ("dead", ledger.dead),
            ("expired", ledger.expired),
            ("discarded", ledger.discarded),
            ("dropped", ledger.dropped),
            ("superseded", ledger.superseded),
            ("lost", ledger.lost),
        ] {
            self.deliveries.get_or_create(&ByState { state }).set(signed(count));
        }
        self.duplicates.inner().store(ledger.duplicates, Ordering::Relaxed);
        self.balanced.set(ledger.balanced.into());
        for endpoint in &status.endpoints {
            let label = ByEndpoint { endpoint: endpoint.name.clone() };
            self.pending.get_or_create(&label).set(signed(endpoint.pending));
            self.dead.get_or_create(&label).set(signed(endpoint.dead));
            self.oldest.get_or_create(&label).set(signed(endpoint.oldest_pending_age_s));
            self.in_flight.get_or_create(&label).set(endpoint.in_flight.into());
            self.window.get_or_create(&label).set(endpoint.window.into());
            self.budget.get_or_create(&label).set(endpoint.budget.tokens);
            self.held.get_or_create(&label).set((endpoint.state != EndpointState::Up).into());
            match endpoint.drained_in_s {
                Some(seconds) => drop(self.drained_in.get_or_create(&label).set(signed(seconds))),
                None => drop(self.drained_in.remove(&label)),
            }
            for (verdict, count) in &endpoint.verdicts {
                let verdict = format!("{verdict:?}").to_ascii_lowercase();
                let label = ByVerdict { endpoint: endpoint.name.clone(), verdict };
                self.attempts.get_or_create(&label).inner().store(*count, Ordering::Relaxed);
            }
        }
        match status.store.full_in_s {
            Some(seconds) => drop(self.full_in.get_or_create(&NoLabels::new()).set(signed(seconds))),
            None => self.full_in.clear(),
        }
        self.ready.set(status.ready.into());
        self.disk.set(signed(status.store.disk_bytes));
        self.disk_free.set(signed(status.store.disk_free_bytes));
        self.disk_written.inner().store(status.store.written_bytes, Ordering::Relaxed);
        self.syncs.inner().store(status.store.syncs, Ordering::Relaxed);
        self.quarantined.set(signed(status.store.quarantined_bytes));
        self.resident.set(signed(status.resident_bytes));
        self.clock_trusted.set(status.clock.trusted.into());
        self.timer_late.set(self.timer_late_max().as_secs_f64());
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{BudgetView, EndpointView, LatencyView};

    /// A forecast is there while it can be told, and gone when it cannot: an alert never works on an old one.
    #[test]
    fn forecasts_come_and_go() {
        let metrics = Metrics::new();
        let endpoint: EndpointView = serde_json::from_value(serde_json::json!({
            "name": "hq", "url": "http://hq", "state": "held", "hold_reason": "refused", "pending": 9,
            "oldest_pending_age_s": 5, "in_flight": 0, "window": 1, "budget": BudgetView { tokens: 1.0, ceiling: 1.0 },
            "attempts": 0, "delivered": 0, "dead": 0, "verdicts": {}, "latency_ms": LatencyView::default(),
            "drained_in_s": 7200,
        }))
        .unwrap();
        let mut status: StatusView = serde_json::from_value(serde_json::json!({
            "node": "gw", "version": "0", "ready": true, "uptime_s": 1, "ledger": crate::wire::LedgerView::default(),
            "endpoints": [endpoint], "store": crate::wire::StoreView::default(), "clock": { "trusted": true },
        }))
        .unwrap();
        status.store.full_in_s = Some(36_000);
        let text = metrics.render(&status);
        assert!(text.contains("waypost_drained_in_seconds{endpoint=\"hq\"} 7200"), "{text}");
        assert!(text.contains("waypost_store_full_in_seconds 36000"), "{text}");
        status.store.full_in_s = None;
        status.endpoints[0].drained_in_s = None;
        let text = metrics.render(&status);
        assert!(!text.contains("drained_in_seconds{") && !text.contains("full_in_seconds 3"), "{text}");
    }
}
