//! The config file as serde reads it: every key, its default, nothing checked. Unknown keys are refused.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::units::{Size, Span};
use crate::clock::ClockTrust;
use crate::core::policy::{BodyCheck, Jitter, OrderedBy, Override, PolicyKind, WhenEmpty, WhenFull};
use crate::core::route::Supersede;

fn span(text: &str) -> Span {
    text.parse().expect("invariant: defaults are well-formed")
}

fn size(text: &str) -> Size {
    text.parse().expect("invariant: defaults are well-formed")
}

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Raw {
    /// Name of this box; the host name by default.
    pub node: String,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Whether the wall clock may be believed.
    pub clock_trust: ClockTrust,
    /// Intake.
    pub ingest: RawIngest,
    /// Keys.
    pub idempotency: RawIdempotency,
    /// Disk and memory.
    pub store: RawStore,
    /// Receivers.
    pub endpoint: Vec<RawEndpoint>,
    /// Which events go where; none: every endpoint gets every event.
    pub route: Vec<RawRoute>,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            node: String::new(),
            data_dir: PathBuf::from("./waypost-data"),
            clock_trust: ClockTrust::Auto,
            ingest: RawIngest::default(),
            idempotency: RawIdempotency::default(),
            store: RawStore::default(),
            endpoint: Vec::new(),
            route: Vec::new(),
        }
    }
}

/// `[ingest]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawIngest {
    /// Address and port.
    pub listen: String,
    /// Bearer token of producers; empty: none.
    pub token_file: PathBuf,
    /// Bearer token of the admin API; empty: none, changes only over the Unix socket.
    pub admin_token_file: PathBuf,
    /// Bearer token for reading the admin API, for dashboards and scrapers; empty: none.
    pub read_token_file: PathBuf,
    /// One document, or one feature of a sequence.
    pub body_bytes_max: Size,
    /// Vertices of one geometry.
    pub vertices_max: u32,
    /// Connections at once.
    pub connections_max: u32,
    /// Memory for bodies that are being read, of all requests together.
    pub memory_bytes_max: Size,
    /// `dead-letter` or `reject`.
    pub invalid_geometry: RawInvalidGeometry,
    /// Where the device is written.
    pub device_pointers: Vec<String>,
    /// Where the event type is written.
    pub type_pointers: Vec<String>,
    /// Where the observation time is written.
    pub time_pointers: Vec<String>,
    /// Where a sequence number is written.
    pub sequence_pointers: Vec<String>,
}

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

impl Default for RawIngest {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8070".to_owned(),
            token_file: PathBuf::new(),
            admin_token_file: PathBuf::new(),
            read_token_file: PathBuf::new(),
            body_bytes_max: size("8MiB"),
            vertices_max: 250_000,
            connections_max: 4_096,
            memory_bytes_max: size("32MiB"),
            invalid_geometry: RawInvalidGeometry::DeadLetter,
            device_pointers: texts(&["/properties/device_id", "/properties/sensor_id", "/properties/device"]),
            type_pointers: texts(&["/properties/event_type", "/properties/type"]),
            time_pointers: texts(&[
                "/properties/observed_at",
                "/properties/ts",
                "/properties/timestamp",
                "/properties/time",
                "/properties/datetime",
                "/properties/phenomenonTime",
                "/properties/resultTime",
            ]),
            sequence_pointers: texts(&["/properties/seq", "/properties/sequence"]),
        }
    }
}

/// What happens to a feature whose geometry can never be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawInvalidGeometry {
    /// Kept as a dead letter.
    DeadLetter,
    /// 422 to the producer.
    Reject,
}

/// `[idempotency]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawIdempotency {
    /// `event` or `article`.
    pub recipe: RawRecipe,
    /// Decimal places of coordinates in keys.
    pub precision: u32,
    /// How long an identity is remembered; at least every retry window + 6 h.
    pub ttl: Span,
    /// The same for events without a time.
    pub window_without_time: Span,
    /// Send a producer's key as it is.
    pub forward_producer_key: bool,
    /// Disk for remembered keys.
    pub keys_bytes_max: Size,
    /// Members left out of the identity.
    pub volatile_pointers: Vec<String>,
}

impl Default for RawIdempotency {
    fn default() -> Self {
        Self {
            recipe: RawRecipe::Event,
            precision: 7,
            ttl: span("78h"),
            window_without_time: span("1m"),
            forward_producer_key: false,
            keys_bytes_max: size("256MiB"),
            volatile_pointers: Vec::new(),
        }
    }
}

/// Key recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawRecipe {
    /// Device, type, id, place, properties.
    Event,
    /// The source article's Python, bit for bit.
    Article,
}

/// `[store]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawStore {
    /// Limit on the data directory.
    pub disk_bytes_max: Size,
    /// Free space that is left alone.
    pub disk_free_reserve: Size,
    /// Share of it for dead letters.
    pub dead_letter_share: f64,
    /// Memory for bodies on their way.
    pub memory_bytes_max: Size,
    /// `reject` or `drop-oldest`.
    pub when_full: WhenFull,
}

impl Default for RawStore {
    fn default() -> Self {
        Self {
            disk_bytes_max: size("1GiB"),
            disk_free_reserve: size("64MiB"),
            dead_letter_share: 0.25,
            memory_bytes_max: size("32MiB"),
            when_full: WhenFull::Reject,
        }
    }
}

/// `[[endpoint]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawEndpoint {
    /// Name; unique.
    pub name: String,
    /// Where to POST.
    pub url: String,
    /// `edge` or `article`.
    pub policy: PolicyKind,
    /// One attempt from start to end.
    pub timeout: Span,
    /// Connection and TLS.
    pub connect_timeout: Span,
    /// Attempts at once.
    pub in_flight_max: u32,
    /// Delays and limits.
    pub retry: RawRetry,
    /// Retry budget.
    pub budget: RawBudget,
    /// Hold and probe.
    pub hold: RawHold,
    /// `none` or `device`.
    pub ordered_by: OrderedBy,
    /// Dead letters that send themselves again.
    pub redrive: RawRedrive,
    /// Limits on the sending rate.
    pub rate: RawRate,
    /// Which geometries may go out.
    pub geometry_gate: RawGate,
    /// How a 2xx is believed.
    pub body_check: BodyCheck,
    /// Verdicts pinned by status.
    pub verdicts: BTreeMap<String, Override>,
    /// Extra request headers.
    pub headers: BTreeMap<String, String>,
    /// Credentials.
    pub auth: RawAuth,
    /// Standard Webhooks signatures.
    pub signing: RawSigning,
    /// TLS.
    pub tls: RawTls,
    /// `bare` or `quoted`.
    pub idempotency_header: RawIdempotencyHeader,
}

impl Default for RawEndpoint {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            url: "http://127.0.0.1:9000/hook".to_owned(),
            policy: PolicyKind::Edge,
            timeout: span("10s"),
            connect_timeout: span("5s"),
            in_flight_max: 32,
            retry: RawRetry::default(),
            budget: RawBudget::default(),
            hold: RawHold::default(),
            ordered_by: OrderedBy::None,
            redrive: RawRedrive::default(),
            rate: RawRate::default(),
            geometry_gate: RawGate::Valid,
            body_check: BodyCheck::Default,
            verdicts: BTreeMap::new(),
            headers: BTreeMap::new(),
            auth: RawAuth::default(),
            signing: RawSigning::default(),
            tls: RawTls::default(),
            idempotency_header: RawIdempotencyHeader::Bare,
        }
    }
}

/// `retry = { … }`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawRetry {
    /// Law of the delay.
    pub jitter: Jitter,
    /// Smallest delay.
    pub base: Span,
    /// Largest delay.
    pub cap: Span,
    /// Attempts that blame the event.
    pub attempts_max: u32,
    /// From acceptance.
    pub window: Span,
    /// Bound on Retry-After.
    pub retry_after_max: Span,
    /// Deliveries between attempts.
    pub retrying_max: u32,
}

impl Default for RawRetry {
    fn default() -> Self {
        Self {
            jitter: Jitter::Decorrelated,
            base: span("500ms"),
            cap: span("30s"),
            attempts_max: 6,
            window: span("72h"),
            retry_after_max: span("24h"),
            retrying_max: 10_000,
        }
    }
}

/// `budget = { … }`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawBudget {
    /// Tokens per success.
    pub ratio: f64,
    /// Largest level.
    pub ceiling: f64,
    /// Tokens per second.
    pub min_per_sec: f64,
    /// `defer` or `dead-letter`; by default what the policy says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_empty: Option<WhenEmpty>,
}

impl Default for RawBudget {
    fn default() -> Self {
        Self { ratio: 0.1, ceiling: 100.0, min_per_sec: 1.0, when_empty: None }
    }
}

/// `hold = { … }`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawHold {
    /// Consecutive faults that trip it.
    pub faults: u32,
    /// First probe delay.
    pub probe_base: Span,
    /// Largest probe delay.
    pub probe_cap: Span,
}

impl Default for RawHold {
    fn default() -> Self {
        Self { faults: 5, probe_base: span("5s"), probe_cap: span("60s") }
    }
}

/// `redrive = { … }`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawRedrive {
    /// Transient dead letters go again by themselves.
    pub auto: bool,
    /// So many a second.
    pub per_s: f64,
}

impl Default for RawRedrive {
    fn default() -> Self {
        Self { auto: true, per_s: 5.0 }
    }
}

/// `rate = { … }`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawRate {
    /// Requests a second; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<f64>,
    /// Bytes a second; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<Size>,
}

/// Which geometries may go out to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawGate {
    /// Only valid ones.
    Valid,
    /// Whatever parses.
    Parse,
    /// Everything that is a Feature.
    Off,
}

/// Form of the Idempotency-Key header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawIdempotencyHeader {
    /// The key itself.
    Bare,
    /// A structured-field string (the IETF draft).
    Quoted,
}

/// `auth = { … }`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawAuth {
    /// File with a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_file: Option<PathBuf>,
    /// Environment variable with a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_env: Option<String>,
    /// User of basic authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_user: Option<String>,
    /// File with its password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_password_file: Option<PathBuf>,
}

/// `signing = { … }`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawSigning {
    /// File with `whsec_…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The secret before, during a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_secret_file: Option<PathBuf>,
}

/// `tls = { … }`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawTls {
    /// A private CA, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Client certificate, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert_file: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_file: Option<PathBuf>,
    /// `1.2` or `1.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<String>,
}

/// `[[route]]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawRoute {
    /// The endpoint that gets what matches.
    pub endpoint: String,
    /// Globs on the device; none: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Globs on the event type; none: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// `[west, south, east, north]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bbox: Option<[f64; 4]>,
    /// How long an event is worth sending; after it it is dropped, counted as expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// `latest-per-device`: a newer event replaces pending ones of the same device and type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersede: Option<Supersede>,
}
