//! From TOML to checked settings.
//!
//! Two stages: [`raw`] is what the file says, [`check`] turns it into [`Config`], whose values are in range and fit
//! together. Neither touches the network; secrets are read from their files and from the environment here, so that a
//! wrong one is known before anything listens. Every error names file, line, key and what would be right.
//!
//! Zero never means "without limit": where 0 is allowed its meaning is written beside the key in
//! `examples/waypost.toml`.

pub mod check;
pub mod raw;
pub mod secret;
pub mod units;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::ClockTrust;
use crate::core::ids::EndpointName;
use crate::core::policy::{EndpointPolicy, WhenFull};
use raw::{Raw, RawGate, RawIdempotencyHeader, RawInvalidGeometry, RawRecipe, RawRoute};
use secret::Secret;

/// Checked settings of an appliance.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of this box.
    pub node: String,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Whether the wall clock may be believed.
    pub clock_trust: ClockTrust,
    /// Intake.
    pub ingest: Ingest,
    /// Keys.
    pub idempotency: Idempotency,
    /// Disk and memory.
    pub store: Store,
    /// Receivers, at least one, names unique.
    pub endpoints: Vec<Endpoint>,
    /// Routes; none: every endpoint gets every event.
    pub routes: Vec<RawRoute>,
}

/// Intake settings.
#[derive(Clone, Debug)]
pub struct Ingest {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Token of producers.
    pub token: Option<Secret>,
    /// Token of the admin API.
    pub admin_token: Option<Secret>,
    /// Token that may read the admin API and change nothing.
    pub read_token: Option<Secret>,
    /// Bytes of one document, or of one feature of a sequence.
    pub body_bytes_max: usize,
    /// Vertices of one geometry.
    pub vertices_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// Memory for bodies that are being read, of all requests together.
    pub memory_bytes_max: usize,
    /// What happens to invalid geometry.
    pub invalid_geometry: RawInvalidGeometry,
    /// JSON pointers to the device.
    pub device_pointers: Vec<String>,
    /// JSON pointers to the type.
    pub type_pointers: Vec<String>,
    /// JSON pointers to the observation time.
    pub time_pointers: Vec<String>,
    /// JSON pointers to a sequence number.
    pub sequence_pointers: Vec<String>,
}

/// Key settings.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// Which recipe.
    pub recipe: RawRecipe,
    /// Decimal places of coordinates.
    pub precision: usize,
    /// How long an identity is remembered.
    pub ttl: Duration,
    /// The same for events without a time.
    pub window_without_time: Duration,
    /// Send a producer's key as it is.
    pub forward_producer_key: bool,
    /// Disk for remembered keys.
    pub keys_bytes_max: u64,
    /// JSON pointers left out of the identity.
    pub volatile_pointers: Vec<String>,
}

/// Disk and memory settings.
#[derive(Clone, Debug)]
pub struct Store {
    /// Limit on the data directory.
    pub disk_bytes_max: u64,
    /// Free space that is left alone.
    pub disk_free_reserve: u64,
    /// Share for dead letters.
    pub dead_letter_share: f64,
    /// Memory for bodies on their way.
    pub memory_bytes_max: u64,
    /// What a full store does.
    pub when_full: WhenFull,
}

/// One receiver.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Unique name.
    pub name: EndpointName,
    /// Where to POST, user part and query included: never shown.
    pub url: Secret,
    /// Scheme, host and port: what is shown.
    pub url_shown: String,
    /// Delivery policy.
    pub policy: EndpointPolicy,
    /// One attempt from start to end.
    pub timeout: Duration,
    /// Connection and TLS.
    pub connect_timeout: Duration,
    /// Which geometries may go out.
    pub geometry_gate: RawGate,
    /// Extra request headers.
    pub headers: BTreeMap<String, String>,
    /// Credentials.
    pub auth: Option<Auth>,
    /// Secrets that sign, newest first.
    pub signing: Vec<Secret>,
    /// TLS settings.
    pub tls: Tls,
    /// Form of the Idempotency-Key header.
    pub idempotency_header: RawIdempotencyHeader,
}

/// Credentials of an endpoint.
#[derive(Clone, Debug)]
pub enum Auth {
    /// `Authorization: Bearer …`
    Bearer(Secret),
    /// `Authorization: Basic …`
    Basic {
        /// User name.
        user: String,
        /// Password.
        password: Secret,
    },
}

/// TLS settings of an endpoint; PEM contents, read already.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Private CA.
    pub ca_pem: Option<Vec<u8>>,
    /// Client certificate and key.
    pub client_pem: Option<(Vec<u8>, Secret)>,
    /// Oldest protocol version: 1.2 (false) or 1.3 (true).
    pub tls13_only: bool,
}

/// Why a config cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it should be; one or more sentences with their places.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Fault>),
}

/// One thing that is wrong in a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// File and line, `waypost.toml:12`, or where the setting came from.
    pub place: String,
    /// Path of the key, `endpoint[0].retry.cap`.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.place, self.message)
        } else {
            write!(f, "{}: {}: {}", self.place, self.key, self.message)
        }
    }
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: shown.clone(), source })?;
        Self::parse(&text, &shown)
    }

    /// Reads and checks the text of a file that is called `shown` in messages.
    pub fn parse(text: &str, shown: &str) -> Result<Self, ConfigError> {
        let raw = read(text, shown)?;
        let lines = Lines::new(text, shown);
        check::check(raw, &|key| lines.place(key))
    }

    /// Settings for `run --to URL`: one endpoint `default`, everything else as it is by default.
    pub fn for_endpoint(
        url: &str,
        listen: Option<&str>,
        data_dir: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let mut raw = Raw::default();
        raw.endpoint.push(raw::RawEndpoint { url: url.to_owned(), ..Default::default() });
        if let Some(listen) = listen {
            listen.clone_into(&mut raw.ingest.listen);
        }
        if let Some(dir) = data_dir {
            dir.clone_into(&mut raw.data_dir);
        }
        check::check(raw, &|key| {
            let flag = match key {
                "ingest.listen" => "--listen",
                "endpoint[0].url" => "--to",
                _ => "the defaults",
            };
            flag.to_owned()
        })
    }
}

/// Deserialises, turning serde's errors into a [`Fault`] with place, key and the nearest known key.
fn read(text: &str, shown: &str) -> Result<Raw, ConfigError> {
    let wrong = |offset: Option<usize>, key: String, message: String| {
        let place =
            offset.map_or_else(|| shown.to_owned(), |offset| format!("{shown}:{}", line_of(text, offset)));
        ConfigError::Wrong(vec![Fault { place, key, message }])
    };
    let deserializer = toml::Deserializer::parse(text)
        .map_err(|err| wrong(err.span().map(|span| span.start), String::new(), err.message().to_owned()))?;
    serde_path_to_error::deserialize(deserializer).map_err(|err| {
        let key = err.path().to_string().replace(".[", "[");
        let inner = err.into_inner();
        let message = with_suggestion(inner.message());
        let key = if key == "." { String::new() } else { key };
        wrong(inner.span().map(|span| span.start), key, message)
    })
}

/// serde lists the expected names in its own message; the nearest one is put first.
fn with_suggestion(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let (Some(unknown), true) = (quoted.next(), message.starts_with("unknown ")) else {
        return message.lines().collect::<Vec<_>>().join(" ");
    };
    let nearest = quoted
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min();
    match nearest {
        Some((_, name)) => format!("unknown key `{unknown}`; did you mean `{name}`?"),
        None => message.replace("unknown field", "unknown key"),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Finds the line of a key path such as `endpoint[1].retry.cap` in the file.
struct Lines<'a> {
    text: &'a str,
    shown: &'a str,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, shown: &'a str) -> Self {
        Self { text, shown }
    }

    fn place(&self, key: &str) -> String {
        match self.offset(key) {
            Some(offset) => format!("{}:{}", self.shown, line_of(self.text, offset)),
            None => self.shown.to_owned(),
        }
    }

    /// Walks the spanned document as deep as the path goes; the deepest span found is the place.
    fn offset(&self, key: &str) -> Option<usize> {
        let document = toml::de::DeTable::parse(self.text).ok()?;
        let mut table = document.get_ref();
        let mut found = None;
        for part in key.split('.') {
            let (name, index) = match part.split_once('[') {
                Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
                None => (part, None),
            };
            let Some((spanned_key, mut value)) = table.iter().find(|(k, _)| k.get_ref() == name) else {
                break;
            };
            found = Some(spanned_key.span().start);
            if let (Some(index), toml::de::DeValue::Array(items)) = (index, value.get_ref())
                && let Some(item) = items.get(index)
            {
                found = Some(item.span().start);
                value = item;
            }
            match value.get_ref() {
                toml::de::DeValue::Table(next) => table = next,
                _ => break,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
