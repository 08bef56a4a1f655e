//! The JSON of the HTTP interface, shared by server, client, command line and dashboard. Names follow CONTRACT; adding
//! a member is free, renaming one breaks scripts. No `flatten`, no `untagged`: messages stay clear and unknown
//! members are ignored by older clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::core::classify::VerdictKind;
use crate::core::delivery::{AttemptRecord, FailureClass, Stage};
use crate::core::history::Trace;

/// Fate of one feature of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IngestStatus {
    /// Stored.
    Accepted,
    /// An equal event was stored before.
    Duplicate,
    /// Stored as a dead letter.
    DeadLettered,
    /// Not stored.
    Rejected,
}

/// One feature's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IngestResult {
    /// Position in the post, from 0 (line or member).
    pub index: u64,
    /// What became of it.
    pub status: IngestStatus,
    /// Id of the event (of the first one, for a duplicate).
    pub id: Option<String>,
    /// Wire key.
    pub key: Option<String>,
    /// Why not accepted.
    pub reason: Option<String>,
}

/// Answer to `POST /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IngestResponse {
    /// Features stored.
    pub accepted: u64,
    /// Features known already.
    pub duplicates: u64,
    /// Features stored as dead letters.
    pub dead_lettered: u64,
    /// Features refused.
    pub rejected: u64,
    /// One entry per feature; above 10,000 features only those not accepted.
    pub results: Vec<IngestResult>,
    /// Accepted features that `results` leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results_omitted: Option<u64>,
}

/// `application/problem+json` (RFC 9457).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Stable slug, for example `/problems/not-geojson`.
    #[serde(rename = "type")]
    pub kind: String,
    /// One short line.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What, where, what to do.
    pub detail: String,
    /// Per-feature results, when a post was refused whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<IngestResult>,
}

/// Ledger of `/v1/status`: deliveries since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerView {
    /// Deliveries taken on.
    pub accepted: u64,
    /// Done.
    pub delivered: u64,
    /// Waiting for an attempt.
    pub pending: u64,
    /// In the dead-letter queue now.
    pub dead: u64,
    /// Dropped by a route's TTL.
    pub expired: u64,
    /// Given up by a person.
    pub discarded: u64,
    /// Dropped by a full store's policy.
    pub dropped: u64,
    /// Replaced by a newer event: a later ping, or the repaired one of a dead letter.
    pub superseded: u64,
    /// Destroyed by damage.
    pub lost: u64,
    /// Posts answered as duplicates; not part of the balance.
    pub duplicates: u64,
    /// Whether accepted equals the sum of the others.
    pub balanced: bool,
}

/// State of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointState {
    /// Attempts are made.
    Up,
    /// Only probes.
    Held,
    /// An operator stopped it; its data is kept.
    Paused,
    /// It answered 410; its data is kept.
    Disabled,
}

/// Retry budget gauge.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetView {
    /// Level now.
    pub tokens: f64,
    /// Largest level.
    pub ceiling: f64,
}

/// Latency of attempts over the last minutes, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyView {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Attempts it is made of.
    pub count: u64,
}

/// One endpoint in `/v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointView {
    /// Name in the config.
    pub name: String,
    /// Scheme, host and port only.
    pub url: String,
    /// State.
    pub state: EndpointState,
    /// Why held: refused, timeout, dns, tls, http_5xx, throttled, auth, config, network, captive, clock, operator.
    pub hold_reason: Option<String>,
    /// The same in a sentence, with the last error.
    #[serde(default)]
    pub hold_detail: Option<String>,
    /// For how long it has been held.
    #[serde(default)]
    pub held_for_s: Option<u64>,
    /// Until the next probe.
    #[serde(default)]
    pub next_probe_in_s: Option<f64>,
    /// Deliveries waiting.
    pub pending: u64,
    /// Of them, between attempts.
    #[serde(default)]
    pub retrying: u64,
    /// Age of the oldest waiting delivery.
    pub oldest_pending_age_s: u64,
    /// Attempts running.
    pub in_flight: u32,
    /// Attempts allowed at once now.
    pub window: u32,
    /// Retry budget.
    pub budget: BudgetView,
    /// Attempts since start.
    pub attempts: u64,
    /// Deliveries done since the store was made.
    pub delivered: u64,
    /// Dead letters now.
    pub dead: u64,
    /// Attempts since start by verdict.
    pub verdicts: BTreeMap<VerdictKind, u64>,
    /// Attempts since start by attempt number; the last bucket is "and more".
    #[serde(default)]
    pub attempts_by_number: Vec<u64>,
    /// Attempt latency of the last five minutes.
    #[serde(default)]
    pub latency_ms: LatencyView,
    /// Last outcome in words, for example `http 200` or `connection refused`.
    #[serde(default)]
    pub last_outcome: Option<String>,
    /// Seconds until the backlog is gone, at the present rate or, while no attempts are made, once they are again; when
    /// that can be told.
    #[serde(default)]
    pub drained_in_s: Option<u64>,
    /// Settings of the delay law, for the envelope drawing.
    #[serde(default)]
    pub backoff: Option<BackoffView>,
}

/// Settings of the delay law.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackoffView {
    /// full, equal, decorrelated or additive.
    pub jitter: String,
    /// Smallest delay.
    pub base_ms: u64,
    /// Largest delay.
    pub cap_ms: u64,
    /// Attempts that blame the event.
    pub attempts_max: u32,
}

/// Store figures of `/v1/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreView {
    /// Size of the data directory.
    pub disk_bytes: u64,
    /// Bytes of events still needed.
    pub live_bytes: u64,
    /// Events still needed.
    pub events: u64,
    /// Bytes set aside after damage.
    pub quarantined_bytes: u64,
    /// Free bytes of the file system.
    pub disk_free_bytes: u64,
    /// The configured limit.
    #[serde(default)]
    pub disk_bytes_max: u64,
    /// Bytes written since start.
    #[serde(default)]
    pub written_bytes: u64,
    /// fdatasync calls since start.
    #[serde(default)]
    pub syncs: u64,
    /// Identities remembered.
    #[serde(default)]
    pub keys: u64,
    /// Seconds until full at the present rate, when that can be told.
    #[serde(default)]
    pub full_in_s: Option<u64>,
}

/// Clock figures of `/v1/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockView {
    /// Whether stamps can be believed.
    pub trusted: bool,
}

/// Rates over the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RatesView {
    /// Events accepted a second.
    pub accepted_per_s: f64,
    /// Deliveries a second.
    pub delivered_per_s: f64,
    /// Attempts a second.
    pub attempts_per_s: f64,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// Name of this box.
    pub node: String,
    /// Version of the program.
    pub version: String,
    /// Same as `/readyz`.
    pub ready: bool,
    /// Why not ready.
    #[serde(default)]
    pub not_ready_reason: Option<String>,
    /// Since start.
    pub uptime_s: u64,
    /// All endpoints together.
    pub ledger: LedgerView,
    /// Each endpoint.
    pub endpoints: Vec<EndpointView>,
    /// Disk.
    pub store: StoreView,
    /// Clock.
    pub clock: ClockView,
    /// Resident memory of the process.
    #[serde(default)]
    pub resident_bytes: u64,
    /// Present rates.
    #[serde(default)]
    pub rates: RatesView,
    /// Stamp of this snapshot, Unix milliseconds.
    #[serde(default)]
    pub at_ms: i64,
    /// Notices a person should read.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// An event without its body, as lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    /// Public id.
    pub id: String,
    /// Sequence in this store.
    pub seq: u64,
    /// Wire key.
    pub key: String,
    /// Who made it.
    pub device: String,
    /// What it is.
    pub event_type: String,
    /// RFC 3339.
    pub accepted_at: String,
    /// RFC 3339, if the event says.
    pub observed_at: Option<String>,
    /// Extent.
    pub bbox: Option<[f64; 4]>,
    /// Length of the body.
    pub body_bytes: u64,
}

/// One delivery of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryView {
    /// Which endpoint.
    pub endpoint: String,
    /// pending, waiting, in_flight, dead, delivered, expired, discarded, dropped, superseded, lost, or ended (details no longer kept).
    pub state: String,
    /// Attempts made.
    pub attempts: u32,
    /// Attempts that count, and their limit.
    pub charged: u32,
    /// Limit on those.
    pub attempts_max: u32,
    /// Milliseconds until the next attempt may start.
    pub due_in_ms: Option<u64>,
    /// Attempts, oldest first.
    pub history: Vec<AttemptRecord>,
    /// Why dead.
    pub reason: Option<String>,
}

/// `GET /v1/events/{id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventStory {
    /// The event.
    pub event: EventView,
    /// Each endpoint's delivery.
    pub deliveries: Vec<DeliveryView>,
    /// The exact bytes, as text.
    pub body: Option<String>,
}

/// An entry of `GET /v1/outbox`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboxEntry {
    /// The event.
    pub event: EventView,
    /// Its delivery at this endpoint.
    pub delivery: DeliveryView,
}

/// `GET /v1/outbox?endpoint=&limit=&cursor=`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutboxPage {
    /// Entries in sequence order.
    pub entries: Vec<OutboxEntry>,
    /// Give it back to read on; null at the end.
    pub cursor: Option<String>,
}

/// Offending place of a geometry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeometryError {
    /// In words.
    pub reason: String,
    /// `[longitude, latitude]`.
    pub location: Option<[f64; 2]>,
    /// Always 4326.
    pub epsg: u32,
}

/// Reference to the geometry's bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeometryRef {
    /// Length of the event's bytes.
    pub byte_size: u64,
    /// Their SHA-256, hex.
    pub sha256: String,
}

/// The `dlq.v1` envelope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetterView {
    /// `dlq.v1`.
    pub schema: String,
    /// Id in the queue: `<event id>.<endpoint>`; the event id alone stands for all its endpoints.
    pub id: String,
    /// Public id of the event.
    pub event_id: String,
    /// Verbatim.
    pub idempotency_key: String,
    /// Class.
    pub failure_class: FailureClass,
    /// Stage.
    pub failed_stage: Stage,
    /// One sentence.
    pub error_message: String,
    /// Place, for geometry.
    pub geometry_error: Option<GeometryError>,
    /// `EPSG:4326`, or what the document named.
    pub source_crs: String,
    /// Size and digest.
    pub geometry: Option<GeometryRef>,
    /// The exact bytes as text (in `show` and `export`, not in lists).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_payload: Option<String>,
    /// For which endpoint.
    pub endpoint: String,
    /// Who made it.
    pub device: String,
    /// What it is.
    pub event_type: String,
    /// Attempts made.
    pub attempts: u32,
    /// Their history.
    pub history: Vec<AttemptRecord>,
    /// Extent.
    pub bbox: Option<[f64; 4]>,
    /// RFC 3339, acceptance.
    pub first_seen_at: String,
    /// RFC 3339.
    pub dead_lettered_at: String,
    /// Times it was sent again.
    pub redrive_count: u32,
    /// Length of the body.
    pub body_bytes: u64,
}

impl DeadLetterView {
    /// As a feature of a GIS layer.
    ///
    /// The event's own geometry and properties, with what happened to it under names of ours. A body whose geometry a GIS
    /// would not read is exported without one, the bytes as text beside it.
    pub fn to_feature(&self) -> Value {
        let raw = self.raw_payload.as_deref().unwrap_or_default();
        let source: Value = serde_json::from_str(raw).unwrap_or(Value::Null);
        let mut properties = match source.get("properties") {
            Some(Value::Object(members)) => members.clone(),
            _ => serde_json::Map::new(),
        };
        let location = self.geometry_error.as_ref().and_then(|error| error.location);
        for (name, value) in [
            ("dlq_id", json!(self.id)),
            ("dlq_endpoint", json!(self.endpoint)),
            ("dlq_class", json!(self.failure_class)),
            ("dlq_stage", json!(self.failed_stage)),
            ("dlq_reason", json!(self.error_message)),
            ("dlq_defect_lon", json!(location.map(|[lon, _]| lon))),
            ("dlq_defect_lat", json!(location.map(|[_, lat]| lat))),
            ("dlq_attempts", json!(self.attempts)),
            ("dlq_key", json!(self.idempotency_key)),
            ("dlq_device", json!(self.device)),
            ("dlq_event_type", json!(self.event_type)),
            ("dlq_first_seen_at", json!(self.first_seen_at)),
            ("dlq_died_at", json!(self.dead_lettered_at)),
        ] {
            properties.insert(name.to_owned(), value);
        }
        let geometry = source.get("geometry").cloned().unwrap_or(Value::Null);
        if geometry.is_null() && self.raw_payload.is_some() && source.is_null() {
            properties.insert("dlq_raw".to_owned(), json!(raw));
        }
        json!({ "type": "Feature", "id": self.id, "geometry": geometry, "properties": properties })
    }
}

/// `GET /v1/dead-letters?endpoint=&class=&since=&until=&bbox=&limit=&cursor=&order=oldest|newest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeadLetterPage {
    /// Entries, in the order of acceptance, or against it if asked so.
    pub entries: Vec<DeadLetterView>,
    /// Give it back to read on; null at the end.
    pub cursor: Option<String>,
    /// Dead letters in all, unfiltered.
    pub total: u64,
}

/// `GET /v1/dead-letters/count`, with the filter members of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterCount {
    /// Dead letters that the filter means.
    pub matched: u64,
}

/// Which dead letters an action means: ids, or a filter, or (with neither) all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetterSelection {
    /// Ids of the queue or of events.
    pub ids: Vec<String>,
    /// Endpoint name.
    pub endpoint: Option<String>,
    /// Class.
    pub class: Option<FailureClass>,
    /// RFC 3339.
    pub since: Option<String>,
    /// RFC 3339.
    pub until: Option<String>,
    /// `[west, south, east, north]`.
    pub bbox: Option<[f64; 4]>,
    /// At most so many.
    pub limit: Option<u64>,
    /// Only count.
    pub dry_run: bool,
}

/// A dead letter that a new event replaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RepairedLetter {
    /// Id of the dead letter.
    pub id: String,
    /// Id of the new event; empty in a dry run.
    pub event_id: String,
    /// Its key; empty in a dry run.
    pub key: String,
    /// What was done to the geometry, in words.
    pub changes: Vec<String>,
    /// GeoJSON type before.
    pub type_before: String,
    /// GeoJSON type after.
    pub type_after: String,
}

/// Answer to a redrive, discard or repair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeadLetterActionView {
    /// Selected.
    pub matched: u64,
    /// Done.
    pub done: u64,
    /// Left alone, with the reason (for example the redrive limit).
    pub skipped: u64,
    /// Why some were skipped.
    pub skipped_reason: Option<String>,
    /// Echo.
    pub dry_run: bool,
    /// What was repaired, or would be: the first 10,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<RepairedLetter>,
}

/// A cell of the map: counts of events whose extent's centre lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapCell {
    /// Longitude of the centre.
    pub lon: f64,
    /// Latitude of the centre.
    pub lat: f64,
    /// Pending deliveries.
    pub pending: u64,
    /// Dead letters.
    pub dead: u64,
}

/// An area that a route names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneView {
    /// Who gets what touches it.
    pub endpoint: String,
    /// `[west, south, east, north]`; west > east crosses the antimeridian.
    pub bbox: [f64; 4],
}

/// `GET /v1/map?bbox=w,s,e,n`: at most 4,000 cells, of half a degree, or finer ones of the part asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapView {
    /// Cells that hold something.
    pub cells: Vec<MapCell>,
    /// Deliveries without a place, or beyond what was sampled.
    pub unplaced: u64,
    /// Width of a cell in degrees.
    #[serde(default)]
    pub cell_degrees: f64,
    /// Extent of all that was sampled, whatever part was asked for.
    #[serde(default)]
    pub extent: Option<[f64; 4]>,
    /// Areas of the routes.
    #[serde(default)]
    pub zones: Vec<ZoneView>,
}

/// A recent notable line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Unix milliseconds.
    pub at_ms: i64,
    /// error, warn or info.
    pub level: String,
    /// The text.
    pub text: String,
}

/// `GET /v1/log`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogView {
    /// Oldest first, at most 500.
    pub lines: Vec<LogLine>,
}

/// A recent attempt, for the dashboard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecentAttempt {
    /// Which endpoint.
    pub endpoint: String,
    /// Which event.
    pub event_id: String,
    /// The attempt.
    pub attempt: AttemptRecord,
}

/// `GET /v1/attempts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptsView {
    /// Oldest first, at most 500.
    pub recent: Vec<RecentAttempt>,
}

/// `GET /v1/history`: depth and oldest age since the appliance started, at most a day back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryView {
    /// Five minutes, an hour, a day.
    pub spans: Vec<Trace>,
}

/// How a caller of the admin API came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The Unix socket in the data directory.
    Socket,
    /// With a bearer token.
    Token,
    /// From this machine, without a token.
    Loopback,
}

/// `GET /v1/access`: what this caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessView {
    /// How it came in.
    pub way: Way,
    /// Whether it may change anything.
    pub changes: bool,
}

/// Answer to an endpoint action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointActionView {
    /// Name.
    pub name: String,
    /// State after it.
    pub state: EndpointState,
}
