//! Export and import: a whole store as JSON lines, for another device, another format, or a look.
//!
//! The first line names the store (salt, counters, endpoints), then one line per event that is still needed with the
//! state of its deliveries, then one line per remembered identity; the last line counts them, so a cut file is seen.
//! An imported store keeps sequences, event ids, keys, bodies, attempts, dead letters and counters. Both work on a
//! store that no appliance has open.

use std::io::{self, BufRead, Write};
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::OpenError;
use super::home::{FORMAT, Format, io_error};
use super::keys::Known;
use super::records::{EndpointState, Event, Header, Held, Letter, Moved, Slip};
use super::recover::{self, Offline};
use super::shared::Tuning;
use super::types::{EndpointRecord, EventHead, Ledger, StoreConfig};
use super::writer::Request;
use crate::clock::{Clock, Watermark};
use crate::core::delivery::{DeadReason, Progress};
use crate::core::event::Dedup;
use crate::core::ids::{
    BodyDigest, Device, EndpointId, EndpointName, EventId, EventType, IdempotencyKey, Identity, Seq,
    StoreSalt,
};
use crate::core::time::{StoreTime, UnixMillis};

/// Version of the lines.
const EXPORT_VERSION: u32 = 1;
/// Lines handed to the store at once.
const BATCH: usize = 256;

/// Why an export or import did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The target is not empty.
    #[error("{0} holds a store already; import into a directory that does not exist yet")]
    NotEmpty(std::path::PathBuf),
    /// A line is not of an export.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// The store stopped taking it.
    #[error("the store could not be written; is the disk full?")]
    Refused,
    /// The last line is missing or counts otherwise.
    #[error(
        "the file is cut: it holds {found_events} events and {found_keys} keys, its end is missing or says otherwise"
    )]
    Cut {
        /// Events in it.
        found_events: u64,
        /// Keys in it.
        found_keys: u64,
    },
}

/// What went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ported {
    /// Events.
    pub events: u64,
    /// Identities.
    pub keys: u64,
    /// Needed events whose bytes were damaged; they stay behind and are counted as lost in the target.
    pub unreadable: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Store {
        version: u32,
        salt: u64,
        next_seq: u64,
        store_ms: u64,
        wall_ms: i64,
        wall_trusted: bool,
        endpoints: Vec<EndpointLine>,
    },
    Event(Box<EventLine>),
    Key {
        identity: String,
        seq: u64,
        accepted: u64,
        accepted_at: i64,
        digest: String,
        window: bool,
    },
    End {
        events: u64,
        keys: u64,
    },
}

#[derive(Serialize, Deserialize)]
struct EndpointLine {
    id: u32,
    name: String,
    paused: Option<bool>,
    disabled: Option<bool>,
    budget_tokens: Option<f64>,
    ledger: Ledger,
}

#[derive(Serialize, Deserialize)]
struct EventLine {
    seq: u64,
    id: String,
    key: String,
    device: String,
    event_type: String,
    accepted: u64,
    accepted_at: i64,
    clock_trusted: bool,
    observed_at: Option<i64>,
    bbox: Option<[f64; 4]>,
    identity: String,
    digest: String,
    window: bool,
    held: Vec<HeldLine>,
    body: String,
}

#[derive(Serialize, Deserialize)]
struct HeldLine {
    endpoint: u32,
    due: Option<u64>,
    progress: Progress,
    dead: Option<DeadReason>,
    dead_at: Option<i64>,
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

fn write(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Writes everything that a store keeps. The store must not be open elsewhere.
pub fn export(dir: &Path, out: &mut dyn Write) -> Result<Ported, PortError> {
    if !dir.join("log").exists() {
        let source = io::Error::new(io::ErrorKind::NotFound, "there is no store in it");
        return Err(OpenError::Io { doing: "read", path: dir.to_owned(), source }.into());
    }
    let offline = Offline::open(dir)?;
    let header = offline.header();
    write(
        out,
        &Line::Store {
            version: EXPORT_VERSION,
            salt: header.salt.0,
            next_seq: header.next_seq.0,
            store_ms: header.watermark.store.0,
            wall_ms: header.watermark.wall.0,
            wall_trusted: header.watermark.wall_trusted,
            endpoints: header.endpoints.iter().map(endpoint_line).collect(),
        },
    )?;
    let mut ported = Ported::default();
    for seq in offline.needed() {
        let Some((moved, body)) = offline.event(seq) else {
            ported.unreadable += 1;
            continue;
        };
        write(out, &Line::Event(Box::new(event_line(&moved, &body))))?;
        ported.events += 1;
    }
    let mut failed = None;
    offline.each_key(&mut |identity, known| {
        let line = Line::Key {
            identity: hex(&identity.0),
            seq: known.seq.0,
            accepted: known.accepted.0,
            accepted_at: known.accepted_at.0,
            digest: hex(&known.digest.0),
            window: known.dedup == Dedup::Window,
        };
        match write(out, &line) {
            Ok(()) => ported.keys += 1,
            Err(error) => failed = Some(error),
        }
        failed.is_none()
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    write(out, &Line::End { events: ported.events, keys: ported.keys })?;
    out.flush()?;
    Ok(ported)
}

fn endpoint_line(one: &EndpointState) -> EndpointLine {
    EndpointLine {
        id: one.id.0,
        name: one.name.to_string(),
        paused: one.record.map(|record| record.paused),
        disabled: one.record.map(|record| record.disabled),
        budget_tokens: one.record.map(|record| record.budget_tokens),
        ledger: one.ledger,
    }
}

fn event_line(moved: &Moved, body: &[u8]) -> EventLine {
    let head = &moved.event.head;
    let held = moved.held.iter().map(|(endpoint, held)| match held {
        Held::Pending(slip) => HeldLine {
            endpoint: endpoint.0,
            due: slip.due.map(|due| due.0),
            progress: slip.progress.clone(),
            dead: None,
            dead_at: None,
        },
        Held::Dead(letter) => HeldLine {
            endpoint: endpoint.0,
            due: None,
            progress: letter.progress.clone(),
            dead: Some(letter.reason.clone()),
            dead_at: Some(letter.dead_at.0),
        },
    });
    EventLine {
        seq: head.seq.0,
        id: head.id.to_string(),
        key: head.key.to_string(),
        device: head.device.to_string(),
        event_type: head.event_type.to_string(),
        accepted: head.accepted.0,
        accepted_at: head.accepted_at.0,
        clock_trusted: head.clock_trusted,
        observed_at: head.observed_at.map(|at| at.0),
        bbox: head.bbox,
        identity: hex(&head.identity.0),
        digest: hex(&head.digest.0),
        window: moved.event.dedup == Dedup::Window,
        held: held.collect(),
        // Bodies are JSON, so they are UTF-8.
        body: String::from_utf8_lossy(body).into_owned(),
    }
}

impl EventLine {
    fn into_event(self, salt: StoreSalt) -> Option<(Moved, Bytes)> {
        let (seq, accepted_at) = (Seq(self.seq), UnixMillis(self.accepted_at));
        let held = self.held.into_iter().map(|one| {
            let held = match one.dead {
                Some(reason) => Held::Dead(Letter {
                    reason,
                    progress: one.progress,
                    dead_at: UnixMillis(one.dead_at.unwrap_or(0)),
                }),
                None => Held::Pending(Slip { due: one.due.map(StoreTime), progress: one.progress }),
            };
            (EndpointId(one.endpoint), held)
        });
        let head = EventHead {
            seq,
            id: EventId::new(accepted_at.0, seq, salt),
            key: IdempotencyKey::from(self.key.as_str()),
            device: Device::from(self.device.as_str()),
            event_type: EventType::from(self.event_type.as_str()),
            accepted: StoreTime(self.accepted),
            accepted_at,
            clock_trusted: self.clock_trusted,
            observed_at: self.observed_at.map(UnixMillis),
            bbox: self.bbox,
            identity: Identity(unhex(&self.identity)?),
            digest: BodyDigest(unhex(&self.digest)?),
            body_bytes: u32::try_from(self.body.len()).ok()?,
        };
        let dedup = if self.window { Dedup::Window } else { Dedup::Ttl };
        Some((Moved { event: Event { head, dedup }, held: held.collect() }, Bytes::from(self.body)))
    }
}

/// Makes a new store in `config.dir` of an export. Blocking.
#[expect(clippy::needless_pass_by_value, reason = "a clock is a handle, given away as to `Outbox::open`")]
pub fn import(config: StoreConfig, clock: Clock, input: &mut dyn BufRead) -> Result<Ported, PortError> {
    let dir = config.dir.clone();
    if dir.join("log").exists() || dir.join("FORMAT").exists() {
        return Err(PortError::NotEmpty(dir));
    }
    let mut lines = input.lines().zip(1..);
    let bad = |line: u64, what: &str| PortError::Line { line, what: what.to_owned() };
    let (first, _) = lines.next().ok_or_else(|| bad(1, "the file is empty"))?;
    let parse = |text: &str, line: u64| {
        serde_json::from_str::<Line>(text).map_err(|error| bad(line, &error.to_string()))
    };
    let Line::Store { version, salt, next_seq, store_ms, wall_ms, wall_trusted, endpoints } =
        parse(&first?, 1)?
    else {
        return Err(bad(1, "is not the start of an export"));
    };
    if version > EXPORT_VERSION {
        return Err(bad(1, "is of a newer version of waypost"));
    }
    let salt = StoreSalt(salt);
    std::fs::create_dir_all(&dir).map_err(|source| io_error("create", &dir, source))?;
    Format { version: FORMAT, salt }.write(&dir)?;
    let watermark = Watermark { store: StoreTime(store_ms), wall: UnixMillis(wall_ms), wall_trusted };
    let header = Header {
        salt,
        segment: 0,
        head: 0,
        next_seq: Seq(next_seq),
        watermark,
        endpoints: endpoints.iter().map(endpoint_state).collect(),
    };
    let (outbox, _) = recover::open(config, clock.clone(), Tuning::default(), None)?;
    clock.resume(watermark);
    let send = |request| outbox.send_blocking(request).ok_or(PortError::Refused);
    let ask = |make: &dyn Fn(tokio::sync::oneshot::Sender<bool>) -> Request| {
        let (reply, answer) = tokio::sync::oneshot::channel();
        send(make(reply))?;
        answer.blocking_recv().unwrap_or(false).then_some(()).ok_or(PortError::Refused)
    };
    ask(&|reply| Request::Adopt { header: Box::new(header.clone()), reply })?;
    let (mut events, mut keys, mut ported, mut end) = (Vec::new(), Vec::new(), Ported::default(), None);
    for (text, number) in lines {
        match parse(&text?, number)? {
            Line::Event(line) => {
                events
                    .push(line.into_event(salt).ok_or_else(|| bad(number, "an event that cannot be read"))?);
                ported.events += 1;
            }
            Line::Key { identity, seq, accepted, accepted_at, digest, window } => {
                let known = unhex(&identity).zip(unhex(&digest)).map(|(identity, digest)| {
                    let dedup = if window { Dedup::Window } else { Dedup::Ttl };
                    let (accepted, accepted_at) = (StoreTime(accepted), UnixMillis(accepted_at));
                    let digest = BodyDigest(digest);
                    (Identity(identity), Known { seq: Seq(seq), accepted, accepted_at, digest, dedup })
                });
                keys.push(known.ok_or_else(|| bad(number, "a key that cannot be read"))?);
                ported.keys += 1;
            }
            Line::End { events, keys } => end = Some((events, keys)),
            Line::Store { .. } => return Err(bad(number, "a second start")),
        }
        if events.len() >= BATCH || keys.len() >= BATCH || end.is_some() {
            let batch = std::cell::RefCell::new((std::mem::take(&mut events), std::mem::take(&mut keys)));
            ask(&|reply| {
                let (events, keys) = batch.take();
                Request::Restore { events, keys, reply }
            })?;
        }
    }
    let (reply, closed) = tokio::sync::oneshot::channel();
    send(Request::Close { reply })?;
    let _ = closed.blocking_recv();
    if end != Some((ported.events, ported.keys)) {
        return Err(PortError::Cut { found_events: ported.events, found_keys: ported.keys });
    }
    Ok(ported)
}

fn endpoint_state(line: &EndpointLine) -> EndpointState {
    let record = line.paused.map(|paused| EndpointRecord {
        paused,
        disabled: line.disabled.unwrap_or(false),
        budget_tokens: line.budget_tokens.unwrap_or(0.0),
    });
    EndpointState {
        id: EndpointId(line.id),
        name: EndpointName::from(line.name.as_str()),
        record,
        ledger: line.ledger,
    }
}

/// Opens a store, writes a checkpoint, frees what can be freed, and rewrites the index without its dead space.
/// Gives the sizes before and after. The store must not be open elsewhere.
pub fn compact(config: StoreConfig, clock: Clock) -> Result<(u64, u64), PortError> {
    let dir = config.dir.clone();
    if !dir.join("log").exists() {
        let source = io::Error::new(io::ErrorKind::NotFound, "there is no store in it");
        return Err(OpenError::Io { doing: "read", path: dir, source }.into());
    }
    let before = super::home::dir_bytes(&dir);
    let (outbox, _) = recover::open(config, clock, Tuning::default(), None)?;
    let (reply, closed) = tokio::sync::oneshot::channel();
    outbox.send_blocking(Request::Close { reply }).ok_or(PortError::Refused)?;
    let _ = closed.blocking_recv();
    drop(outbox);
    recover::rewrite_index(&dir)?;
    Ok((before, super::home::dir_bytes(&dir)))
}
