//! What a receiver saw: the last requests, totals, and which keys it has taken already.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::clock::{Clock, rfc3339};
use crate::core::time::UnixMillis;
use crate::sender::SigningKey;
use crate::sender::request::{
    ATTEMPT, DEVICE, EVENT_TYPE, IDEMPOTENCY_KEY, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP,
};

/// Requests kept for a look back.
pub const SEEN_MAX: usize = 100_000;
/// Keys kept in each of two generations: some 150 MB at most, a day of 50 events a second at least.
const KEYS_MAX: usize = 2_000_000;
/// How often the log file is brought up to date.
pub const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// Age of a signature that is still taken, and the skew allowed (RETRY 1.7).
const SIGNATURE_AGE_MAX_S: i64 = 330;

/// How much of each request is kept for a look back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Keep {
    /// Nothing; totals are kept always.
    #[default]
    Nothing,
    /// Everything but the body.
    Heads,
    /// The body too.
    Bodies,
}

/// Settings of a receiver's memory.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// One JSON line per request goes here.
    pub log: Option<PathBuf>,
    /// Any of them must have signed; none: signatures are not looked at.
    pub secrets: Vec<SigningKey>,
    /// What is kept of each request.
    pub keep: Keep,
    /// Close connections that were idle for so long.
    pub idle_close: Option<Duration>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `Idempotency-Key`, empty if there was none.
    pub key: String,
    /// `webhook-id`.
    pub id: String,
    /// `Waypost-Device`.
    pub device: String,
    /// `Waypost-Event-Type`.
    pub event_type: String,
    /// `Waypost-Attempt`.
    pub attempt: Option<u32>,
    /// Method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// SHA-256 of the body.
    pub sha256: [u8; 32],
    /// Length of the body.
    pub body_bytes: u64,
    /// Connection it came over, from 1.
    pub connection: u64,
    /// When it was answered (or given up).
    pub at: UnixMillis,
    /// Status it got; none if it was cut or left hanging.
    pub status: Option<u16>,
    /// Its key had been answered with success before.
    pub duplicate: bool,
    /// Its key had come before with another body: never right.
    pub conflict: bool,
    /// Whether the signature was right, if signatures are looked at.
    pub signature: Option<bool>,
    /// All headers, if kept.
    pub headers: HeaderMap,
    /// The body, if kept.
    pub body: Option<Bytes>,
}

impl Seen {
    pub(super) fn of(head: &Parts, connection: u64) -> Self {
        let text = |name| {
            head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        Self {
            key: text(IDEMPOTENCY_KEY),
            id: text(WEBHOOK_ID),
            device: text(DEVICE),
            event_type: text(EVENT_TYPE),
            attempt: text(ATTEMPT).parse().ok(),
            method: head.method.to_string(),
            path: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            sha256: [0; 32],
            body_bytes: 0,
            connection,
            at: UnixMillis::default(),
            status: None,
            duplicate: false,
            conflict: false,
            signature: None,
            headers: HeaderMap::new(),
            body: None,
        }
    }

    pub(super) fn take_body(&mut self, body: &[u8]) {
        self.sha256 = Sha256::digest(body).into();
        self.body_bytes = body.len() as u64;
    }

    fn success(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Requests of any fate.
    pub requests: u64,
    /// Distinct keys that were answered with success.
    pub distinct: u64,
    /// Requests answered with success whose key had been so before: collapsed.
    pub duplicates: u64,
    /// Requests answered without success.
    pub refused: u64,
    /// Requests cut or left hanging.
    pub unanswered: u64,
    /// Requests whose key came with two bodies: must stay 0.
    pub conflicts: u64,
    /// Requests without a key.
    pub without_key: u64,
    /// Signatures that were missing or wrong.
    pub bad_signatures: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
}

/// What was seen.
pub struct Book {
    state: Mutex<State>,
    totals: watch::Sender<Totals>,
    secrets: Vec<SigningKey>,
    keep: Keep,
    clock: Clock,
}

struct State {
    keys: Keys,
    seen: VecDeque<Seen>,
    log: Option<BufWriter<File>>,
}

/// Keys in two generations: when the younger is full the older is forgotten, so memory stays bounded.
#[derive(Default)]
struct Keys {
    young: HashMap<[u8; 16], Known>,
    old: HashMap<[u8; 16], Known>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    /// Start of the digest of the first whole body.
    body: Option<[u8; 8]>,
    taken: bool,
}

impl Keys {
    /// What is known of the key, made known now if nothing was.
    fn entry(&mut self, key: &str) -> &mut Known {
        let digest = Sha256::digest(key.as_bytes());
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        if self.young.len() >= KEYS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let old = &self.old;
        self.young.entry(short).or_insert_with(|| old.get(&short).copied().unwrap_or_default())
    }
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'a> {
    at: String,
    key: &'a str,
    id: &'a str,
    device: &'a str,
    event_type: &'a str,
    attempt: Option<u32>,
    sha256: String,
    body_bytes: u64,
    status: Option<u16>,
    duplicate: bool,
    conflict: bool,
    signature: Option<bool>,
    connection: u64,
}

impl Book {
    pub(super) fn new(options: Options, clock: Clock) -> io::Result<Self> {
        let log = options.log.as_ref().map(File::create).transpose()?.map(BufWriter::new);
        Ok(Self {
            state: Mutex::new(State { keys: Keys::default(), seen: VecDeque::new(), log }),
            totals: watch::Sender::default(),
            secrets: options.secrets,
            keep: options.keep,
            clock,
        })
    }

    /// Counts since the start.
    pub fn totals(&self) -> Totals {
        *self.totals.borrow()
    }

    /// The last requests, oldest first; empty unless they are kept.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).seen.iter().cloned().collect()
    }

    /// Waits until the totals are as wanted.
    pub async fn wait(&self, wanted: impl FnMut(&Totals) -> bool) -> Totals {
        let mut changes = self.totals.subscribe();
        // The sender lives as long as this book, so the wait ends only when the totals are as wanted.
        changes.wait_for(wanted).await.map_or_else(|_| self.totals(), |totals| *totals)
    }

    /// Whether the request may be taken: signed by a known secret, not too old, or no secret is set.
    pub(super) fn check_signature(&self, seen: &mut Seen, headers: &HeaderMap) -> bool {
        if self.secrets.is_empty() {
            return true;
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let good = match (text(WEBHOOK_SIGNATURE), text(WEBHOOK_TIMESTAMP).and_then(|s| s.parse().ok())) {
            (Some(signature), Some(stamp_s)) => {
                let now_s = self.clock.now().wall.0.div_euclid(1_000);
                let body = seen.body.as_deref().unwrap_or_default();
                now_s.abs_diff(stamp_s) <= SIGNATURE_AGE_MAX_S.unsigned_abs()
                    && self.secrets.iter().any(|key| key.verify(signature, &seen.id, stamp_s, body))
            }
            _ => false,
        };
        seen.signature = Some(good);
        good
    }

    /// Writes a request down with the status it gets.
    pub(super) fn enter(&self, mut seen: Seen, headers: &HeaderMap, status: Option<u16>) {
        seen.status = status;
        seen.at = self.clock.now().wall;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.key.is_empty() {
            let mut body = [0; 8];
            body.copy_from_slice(&seen.sha256[..8]);
            let known = state.keys.entry(&seen.key);
            // A body that was cut on its way says nothing about its sender.
            if status.is_some() {
                seen.conflict = *known.body.get_or_insert(body) != body;
            }
            if seen.success() {
                seen.duplicate = known.taken;
                known.taken = true;
            }
        }
        if let Some(log) = &mut state.log {
            // A log that cannot be written shows at the next flush, which returns the error.
            let _ = write_line(log, &seen);
        }
        self.totals.send_modify(|totals| totals.count(&seen));
        if self.keep != Keep::Nothing {
            if self.keep == Keep::Heads {
                seen.body = None;
            }
            if state.seen.len() == SEEN_MAX {
                state.seen.pop_front();
            }
            seen.headers.clone_from(headers);
            state.seen.push_back(seen);
        }
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.log.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

impl Totals {
    fn count(&mut self, seen: &Seen) {
        self.requests += 1;
        self.body_bytes += seen.body_bytes;
        self.conflicts += u64::from(seen.conflict);
        self.without_key += u64::from(seen.key.is_empty());
        self.bad_signatures += u64::from(seen.signature == Some(false));
        match seen.status {
            None => self.unanswered += 1,
            Some(_) if seen.duplicate => self.duplicates += 1,
            Some(_) if seen.success() => self.distinct += 1,
            Some(_) => self.refused += 1,
        }
    }
}

fn write_line(log: &mut BufWriter<File>, seen: &Seen) -> io::Result<()> {
    let line = Line {
        at: rfc3339(seen.at),
        key: &seen.key,
        id: &seen.id,
        device: &seen.device,
        event_type: &seen.event_type,
        attempt: seen.attempt,
        sha256: hex(&seen.sha256),
        body_bytes: seen.body_bytes,
        status: seen.status,
        duplicate: seen.duplicate,
        conflict: seen.conflict,
        signature: seen.signature,
        connection: seen.connection,
    };
    serde_json::to_writer(&mut *log, &line)?;
    log.write_all(b"\n")
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}
