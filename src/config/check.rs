//! Raw settings to checked ones: ranges, names, cross-field rules, secrets. All faults are collected, so one look at
//! the message is enough.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::raw::{Raw, RawAuth, RawEndpoint, RawSigning, RawTls};
use super::secret::{self, Secret, SecretError};
use super::units::{duration_text, size_text};
use super::{Auth, Config, ConfigError, Endpoint, Fault, Idempotency, Ingest, Store, Tls};
use crate::core::ids::EndpointName;
use crate::core::policy::{
    BudgetPolicy, EndpointPolicy, HoldPolicy, PolicyKind, RatePolicy, RedrivePolicy, RetryPolicy, WhenEmpty,
};

/// A key must be remembered longer than a delivery can be retried (RETRY 1.2: window + 6 h).
const TTL_MARGIN: Duration = Duration::from_hours(6);
/// Two segments, their checkpoint and a reserve need this much (issue "never lost").
const DISK_BYTES_MIN: u64 = 128 << 20;
/// Longest waiting time any setting may ask for.
const YEAR: Duration = Duration::from_hours(24 * 366);

/// Collects faults while values are taken over.
struct Checker<'a> {
    place: &'a dyn Fn(&str) -> String,
    faults: Vec<Fault>,
}

impl Checker<'_> {
    fn fault(&mut self, key: impl Into<String>, message: impl Into<String>) {
        let key = key.into();
        let place = (self.place)(&key);
        self.faults.push(Fault { place, key, message: message.into() });
    }

    fn number(&mut self, key: &str, value: u64, low: u64, high: u64) -> u64 {
        if value < low || value > high {
            self.fault(key, format!("{value} is out of range; use {low} to {high}"));
        }
        value
    }

    fn real(&mut self, key: &str, value: f64, low: f64, high: f64) -> f64 {
        if !(low..=high).contains(&value) {
            self.fault(key, format!("{value} is out of range; use {low} to {high}"));
        }
        value
    }

    fn time(&mut self, key: &str, value: Duration, low: Duration, high: Duration) -> Duration {
        if value < low || value > high {
            self.fault(
                key,
                format!(
                    "{} is out of range; use {} to {}",
                    duration_text(value),
                    duration_text(low),
                    duration_text(high)
                ),
            );
        }
        value
    }

    fn size(&mut self, key: &str, value: u64, low: u64, high: u64) -> u64 {
        if value < low || value > high {
            self.fault(
                key,
                format!(
                    "{} is out of range; use {} to {}",
                    size_text(value),
                    size_text(low),
                    size_text(high)
                ),
            );
        }
        value
    }

    fn secret(&mut self, key: &str, secret: Result<Secret, SecretError>) -> Option<Secret> {
        match secret {
            Ok(secret) => Some(secret),
            Err(err) => {
                self.fault(key, err.to_string());
                None
            }
        }
    }

    fn token(&mut self, key: &str, path: &Path) -> Option<Secret> {
        if path.as_os_str().is_empty() {
            return None;
        }
        self.secret(key, secret::from_file(path))
    }

    fn pem(&mut self, key: &str, path: &Path) -> Option<Vec<u8>> {
        match std::fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(err) => {
                self.fault(key, format!("cannot read {}: {err}", path.display()));
                None
            }
        }
    }
}

/// Checks everything; `place` tells where a key stands.
pub fn check(raw: Raw, place: &dyn Fn(&str) -> String) -> Result<Config, ConfigError> {
    let mut checker = Checker { place, faults: Vec::new() };
    let c = &mut checker;
    let ingest = ingest(c, &raw);
    let idempotency = idempotency(c, &raw);
    let store = store(c, &raw);
    let endpoints = endpoints(c, &raw.endpoint);
    routes(c, &raw);
    if raw.data_dir.as_os_str().is_empty() {
        c.fault("data_dir", "is empty; name a directory");
    }
    let window = raw.endpoint.iter().map(|endpoint| endpoint.retry.window.0).max().unwrap_or_default();
    if idempotency.ttl < window + TTL_MARGIN {
        c.fault(
            "idempotency.ttl",
            format!(
                "{} is shorter than the longest retry window + 6h; use at least {}, or a receiver could take a late retry for a new event",
                duration_text(idempotency.ttl),
                duration_text(window + TTL_MARGIN)
            ),
        );
    }
    match (ingest, checker.faults) {
        (Some(ingest), faults) if faults.is_empty() => Ok(Config {
            node: if raw.node.is_empty() { host_name() } else { raw.node },
            data_dir: raw.data_dir,
            clock_trust: raw.clock_trust,
            ingest,
            idempotency,
            store,
            endpoints,
            routes: raw.route,
        }),
        (_, faults) => Err(ConfigError::Wrong(faults)),
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn ingest(c: &mut Checker<'_>, raw: &Raw) -> Option<Ingest> {
    let settings = &raw.ingest;
    let listen: Option<SocketAddr> = settings.listen.parse().ok();
    if listen.is_none() {
        c.fault(
            "ingest.listen",
            format!(
                "\"{}\" is not an address and port; write for example \"127.0.0.1:8070\"",
                settings.listen
            ),
        );
    }
    let token = c.token("ingest.token_file", &settings.token_file);
    let admin_token = c.token("ingest.admin_token_file", &settings.admin_token_file);
    let read_token = c.token("ingest.read_token_file", &settings.read_token_file);
    if let Some(listen) = listen
        && !listen.ip().is_loopback()
        && settings.token_file.as_os_str().is_empty()
    {
        c.fault(
            "ingest.listen",
            format!("{listen} can be reached by others, so producers need a token; set ingest.token_file"),
        );
    }
    if admin_token.is_some() && token == admin_token {
        c.fault("ingest.admin_token_file", "holds the producers' token; admins need one of their own");
    }
    if read_token.is_some() && (read_token == token || read_token == admin_token) {
        c.fault("ingest.read_token_file", "holds another role's token; readers need one of their own");
    }
    for (key, pointers) in [
        ("ingest.device_pointers", &settings.device_pointers),
        ("ingest.type_pointers", &settings.type_pointers),
        ("ingest.time_pointers", &settings.time_pointers),
        ("ingest.sequence_pointers", &settings.sequence_pointers),
        ("idempotency.volatile_pointers", &raw.idempotency.volatile_pointers),
    ] {
        for pointer in pointers {
            if !pointer.starts_with('/') {
                c.fault(
                    key,
                    format!("\"{pointer}\" is not a JSON pointer; write for example \"/properties/ts\""),
                );
            }
        }
    }
    let body_bytes_max = c.size("ingest.body_bytes_max", settings.body_bytes_max.0, 1 << 10, 64 << 20);
    let vertices_max = c.number("ingest.vertices_max", settings.vertices_max.into(), 4, 5_000_000);
    let connections_max = c.number("ingest.connections_max", settings.connections_max.into(), 1, 100_000);
    let memory_bytes_max = c.size("ingest.memory_bytes_max", settings.memory_bytes_max.0, 1 << 20, 16 << 30);
    if memory_bytes_max < body_bytes_max {
        c.fault(
            "ingest.memory_bytes_max",
            "is less than ingest.body_bytes_max, so the longest body could never be read",
        );
    }
    Some(Ingest {
        listen: listen?,
        token,
        admin_token,
        read_token,
        body_bytes_max: body_bytes_max as usize,
        vertices_max: vertices_max as usize,
        connections_max: connections_max as usize,
        memory_bytes_max: memory_bytes_max as usize,
        invalid_geometry: settings.invalid_geometry,
        device_pointers: settings.device_pointers.clone(),
        type_pointers: settings.type_pointers.clone(),
        time_pointers: settings.time_pointers.clone(),
        sequence_pointers: settings.sequence_pointers.clone(),
    })
}

fn idempotency(c: &mut Checker<'_>, raw: &Raw) -> Idempotency {
    let settings = &raw.idempotency;
    Idempotency {
        recipe: settings.recipe,
        precision: c.number("idempotency.precision", settings.precision.into(), 0, 12) as usize,
        ttl: c.time("idempotency.ttl", settings.ttl.0, Duration::from_mins(1), YEAR),
        window_without_time: c.time(
            "idempotency.window_without_time",
            settings.window_without_time.0,
            Duration::ZERO,
            Duration::from_hours(24),
        ),
        forward_producer_key: settings.forward_producer_key,
        keys_bytes_max: c.size("idempotency.keys_bytes_max", settings.keys_bytes_max.0, 1 << 20, 64 << 30),
        volatile_pointers: settings.volatile_pointers.clone(),
    }
}

fn store(c: &mut Checker<'_>, raw: &Raw) -> Store {
    let settings = &raw.store;
    Store {
        disk_bytes_max: c.size("store.disk_bytes_max", settings.disk_bytes_max.0, DISK_BYTES_MIN, 16 << 40),
        disk_free_reserve: c.size("store.disk_free_reserve", settings.disk_free_reserve.0, 0, 1 << 40),
        dead_letter_share: c.real("store.dead_letter_share", settings.dead_letter_share, 0.01, 0.9),
        memory_bytes_max: c.size("store.memory_bytes_max", settings.memory_bytes_max.0, 4 << 20, 16 << 30),
        when_full: settings.when_full,
    }
}

fn endpoints(c: &mut Checker<'_>, raw: &[RawEndpoint]) -> Vec<Endpoint> {
    if raw.is_empty() {
        c.fault("endpoint", "there is no [[endpoint]]; add one with a name and a url");
    }
    let mut names = BTreeSet::new();
    let mut checked = Vec::new();
    for (index, settings) in raw.iter().enumerate() {
        let at = |key: &str| format!("endpoint[{index}].{key}");
        if !names.insert(settings.name.clone()) {
            c.fault(at("name"), format!("\"{}\" is the name of another endpoint too", settings.name));
        }
        if let Some(endpoint) = endpoint(c, settings, &at) {
            checked.push(endpoint);
        }
    }
    checked
}

fn endpoint(c: &mut Checker<'_>, raw: &RawEndpoint, at: &dyn Fn(&str) -> String) -> Option<Endpoint> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if raw.name.is_empty() || raw.name.len() > 64 || !raw.name.chars().all(fits) {
        c.fault(at("name"), "use 1 to 64 of A-Z a-z 0-9 _ . -");
    }
    let url_shown = url_shown(c, raw, at);
    let policy = policy(c, raw, at);
    let timeout = c.time(&at("timeout"), raw.timeout.0, Duration::from_millis(100), Duration::from_hours(1));
    let connect_timeout = c.time(
        &at("connect_timeout"),
        raw.connect_timeout.0,
        Duration::from_millis(50),
        Duration::from_mins(10),
    );
    for (name, value) in &raw.headers {
        if !name.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte))
            || name.is_empty()
            || !value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        {
            c.fault(at("headers"), format!("\"{name}\" is not a header name with a printable value"));
        }
        if reserved_header(name) {
            c.fault(at("headers"), format!("\"{name}\" is set by waypost itself; leave it out"));
        }
    }
    let auth = auth(c, &raw.auth, at);
    let signing = signing(c, &raw.signing, at);
    let tls = tls(c, &raw.tls, at);
    Some(Endpoint {
        name: EndpointName::from(raw.name.as_str()),
        url: Secret::new(raw.url.clone()),
        url_shown: url_shown?,
        policy,
        timeout,
        connect_timeout,
        geometry_gate: raw.geometry_gate,
        headers: raw.headers.clone(),
        auth,
        signing,
        tls,
        idempotency_header: raw.idempotency_header,
    })
}

/// Headers that carry the contract; a config must not change them.
fn reserved_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("waypost-")
        || name.starts_with("webhook-")
        || ["idempotency-key", "content-length", "transfer-encoding", "host", "connection", "authorization"]
            .contains(&name.as_str())
}

fn url_shown(c: &mut Checker<'_>, raw: &RawEndpoint, at: &dyn Fn(&str) -> String) -> Option<String> {
    let Ok(url) = reqwest::Url::parse(&raw.url) else {
        c.fault(at("url"), "is not a URL; write for example \"https://example.org/hook\"");
        return None;
    };
    let Some(host) = url.host_str().filter(|_| ["http", "https"].contains(&url.scheme())) else {
        c.fault(at("url"), "must begin with http:// or https:// and name a host");
        return None;
    };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}", url.scheme()))
}

fn policy(c: &mut Checker<'_>, raw: &RawEndpoint, at: &dyn Fn(&str) -> String) -> EndpointPolicy {
    let ms = Duration::from_millis;
    let retry = RetryPolicy {
        jitter: raw.retry.jitter,
        base: c.time(&at("retry.base"), raw.retry.base.0, ms(10), Duration::from_hours(24)),
        cap: c.time(&at("retry.cap"), raw.retry.cap.0, ms(10), Duration::from_hours(24)),
        attempts_max: c.number(&at("retry.attempts_max"), raw.retry.attempts_max.into(), 1, 10_000) as u32,
        window: c.time(&at("retry.window"), raw.retry.window.0, Duration::from_secs(1), YEAR),
        retry_after_max: c.time(
            &at("retry.retry_after_max"),
            raw.retry.retry_after_max.0,
            Duration::from_secs(1),
            Duration::from_hours(24 * 31),
        ),
        retrying_max: c.number(&at("retry.retrying_max"), raw.retry.retrying_max.into(), 1, 1_000_000)
            as usize,
    };
    if retry.cap < retry.base {
        c.fault(at("retry.cap"), "is shorter than retry.base; the cap is the largest delay");
    }
    let when_empty = raw.budget.when_empty.unwrap_or(match raw.policy {
        PolicyKind::Edge => WhenEmpty::Defer,
        PolicyKind::Article => WhenEmpty::DeadLetter,
    });
    let budget = BudgetPolicy {
        ratio: c.real(&at("budget.ratio"), raw.budget.ratio, 0.0, 100.0),
        ceiling: c.real(&at("budget.ceiling"), raw.budget.ceiling, 1.0, 1e6),
        // Without a floor a budget that only successes refill never recovers from a long outage.
        min_per_sec: c.real(&at("budget.min_per_sec"), raw.budget.min_per_sec, 0.01, 1e6),
        when_empty,
    };
    let hold = HoldPolicy {
        faults: c.number(&at("hold.faults"), raw.hold.faults.into(), 1, 1_000) as u32,
        probe_base: c.time(&at("hold.probe_base"), raw.hold.probe_base.0, ms(100), Duration::from_hours(1)),
        probe_cap: c.time(&at("hold.probe_cap"), raw.hold.probe_cap.0, ms(100), Duration::from_hours(24)),
    };
    if hold.probe_cap < hold.probe_base {
        c.fault(at("hold.probe_cap"), "is shorter than hold.probe_base");
    }
    let mut overrides = std::collections::BTreeMap::new();
    for (status, verdict) in &raw.verdicts {
        match status.parse::<u16>() {
            Ok(status @ 200..=599) => {
                overrides.insert(status, *verdict);
            }
            _ => c.fault(at("verdicts"), format!("\"{status}\" is not a status from 200 to 599")),
        }
    }
    EndpointPolicy {
        kind: raw.policy,
        in_flight_max: c.number(&at("in_flight_max"), raw.in_flight_max.into(), 1, 1_024) as u32,
        retry,
        budget,
        hold,
        ordered_by: raw.ordered_by,
        redrive: RedrivePolicy {
            auto: raw.redrive.auto,
            per_s: c.real(&at("redrive.per_s"), raw.redrive.per_s, 0.01, 1_000.0),
        },
        rate: RatePolicy {
            requests_per_s: raw
                .rate
                .requests_per_s
                .map(|rate| c.real(&at("rate.requests_per_s"), rate, 0.001, 1e6)),
            bytes_per_s: raw
                .rate
                .bytes_per_s
                .map(|rate| c.size(&at("rate.bytes_per_s"), rate.0, 64, 16 << 30) as f64),
        },
        body_check: raw.body_check,
        overrides,
    }
}

fn auth(c: &mut Checker<'_>, raw: &RawAuth, at: &dyn Fn(&str) -> String) -> Option<Auth> {
    match raw {
        RawAuth {
            bearer_file: Some(path),
            bearer_env: None,
            basic_user: None,
            basic_password_file: None,
        } => c.secret(&at("auth.bearer_file"), secret::from_file(path)).map(Auth::Bearer),
        RawAuth {
            bearer_file: None,
            bearer_env: Some(name),
            basic_user: None,
            basic_password_file: None,
        } => c.secret(&at("auth.bearer_env"), secret::from_env(name)).map(Auth::Bearer),
        RawAuth {
            bearer_file: None,
            bearer_env: None,
            basic_user: Some(user),
            basic_password_file: Some(path),
        } => c
            .secret(&at("auth.basic_password_file"), secret::from_file(path))
            .map(|password| Auth::Basic { user: user.clone(), password }),
        RawAuth { bearer_file: None, bearer_env: None, basic_user: None, basic_password_file: None } => None,
        _ => {
            c.fault(at("auth"), "set bearer_file, or bearer_env, or basic_user with basic_password_file");
            None
        }
    }
}

fn signing(c: &mut Checker<'_>, raw: &RawSigning, at: &dyn Fn(&str) -> String) -> Vec<Secret> {
    let mut secrets = Vec::new();
    if raw.secret_file.is_none() && raw.previous_secret_file.is_some() {
        c.fault(at("signing.previous_secret_file"), "needs signing.secret_file beside it");
    }
    for (key, path) in [
        ("signing.secret_file", &raw.secret_file),
        ("signing.previous_secret_file", &raw.previous_secret_file),
    ] {
        let Some(path) = path else { continue };
        if let Some(secret) = c.secret(&at(key), secret::from_file(path)) {
            if !secret.expose().starts_with("whsec_") {
                c.fault(at(key), "does not hold a signing secret; one begins with whsec_");
            }
            secrets.push(secret);
        }
    }
    secrets
}

fn tls(c: &mut Checker<'_>, raw: &RawTls, at: &dyn Fn(&str) -> String) -> Tls {
    let ca_pem = raw.ca_file.as_ref().and_then(|path| c.pem(&at("tls.ca_file"), path));
    let client_pem = match (&raw.client_cert_file, &raw.client_key_file) {
        (Some(cert), Some(key)) => {
            let cert = c.pem(&at("tls.client_cert_file"), cert);
            let key = c.secret(&at("tls.client_key_file"), secret::from_file(key));
            cert.zip(key)
        }
        (None, None) => None,
        _ => {
            c.fault(at("tls"), "client_cert_file and client_key_file go together");
            None
        }
    };
    let tls13_only = match raw.min_version.as_deref() {
        None | Some("1.2") => false,
        Some("1.3") => true,
        Some(other) => {
            c.fault(at("tls.min_version"), format!("\"{other}\" is not known; use \"1.2\" or \"1.3\""));
            false
        }
    };
    Tls { ca_pem, client_pem, tls13_only }
}

fn routes(c: &mut Checker<'_>, raw: &Raw) {
    for (index, route) in raw.route.iter().enumerate() {
        let key = format!("route[{index}].endpoint");
        if !raw.endpoint.iter().any(|endpoint| endpoint.name == route.endpoint) {
            let names: Vec<_> = raw.endpoint.iter().map(|endpoint| endpoint.name.as_str()).collect();
            c.fault(key, format!("\"{}\" is no endpoint; there is {}", route.endpoint, names.join(", ")));
        }
        if let Some(ttl) = route.ttl {
            c.time(&format!("route[{index}].ttl"), ttl.0, Duration::from_secs(1), YEAR);
        }
        if let Some([west, south, east, north]) = route.bbox {
            let lon = -180.0..=180.0;
            let lat = -90.0..=90.0;
            if !lon.contains(&west)
                || !lon.contains(&east)
                || !lat.contains(&south)
                || !lat.contains(&north)
                || south > north
            {
                c.fault(
                    format!("route[{index}].bbox"),
                    "must be [west, south, east, north] in degrees; west may be greater than east across the antimeridian",
                );
            }
        }
    }
}
