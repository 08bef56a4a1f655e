//! What the records of the log and the values of the index say, and their bytes.
//!
//! A log record is a *decision with absolute state*: replay applies it, it never decides again. Its kind and format
//! version stand in its frame ([`super::frame`]); a value of the index starts with its version byte. The content is
//! `bincode` (little-endian, variable-length integers) of the structs in [`v1`], which are kept apart from the types
//! of `core` so that those can change freely. The golden bytes in the tests pin version 1; a later version adds
//! structs and goldens and keeps reading these.

mod v1;

#[cfg(test)]
mod tests;

use super::frame::Kind;
use super::types::{EndpointRecord, EventHead, Ledger};
use crate::clock::Watermark;
use crate::core::delivery::{DeadReason, End, HISTORY_MAX, Progress};
use crate::core::event::Dedup;
use crate::core::ids::{
    BodyDigest, Device, EndpointId, EndpointName, EventId, EventType, IdempotencyKey, Identity, Seq,
    StoreSalt,
};
use crate::core::time::{StoreTime, UnixMillis};

/// Version of every record and value that this program writes.
pub(super) const VERSION: u8 = 1;

/// An event and how its identity counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) head: EventHead,
    pub(super) dedup: Dedup,
}

/// An event that came in.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Accepted {
    pub(super) event: Event,
    pub(super) deliver: Vec<EndpointId>,
    pub(super) dead: Vec<(EndpointId, DeadReason)>,
}

/// A dead letter without its event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Letter {
    pub(super) reason: DeadReason,
    pub(super) progress: Progress,
    pub(super) dead_at: UnixMillis,
}

/// Attempts of a pending delivery, and when the next one is due if it waits.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Slip {
    pub(super) due: Option<StoreTime>,
    pub(super) progress: Progress,
}

/// State of a delivery that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Held {
    Pending(Slip),
    Dead(Letter),
}

/// An event copied to the tail.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moved {
    pub(super) event: Event,
    pub(super) held: Vec<(EndpointId, Held)>,
}

/// One registered endpoint with its counters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EndpointState {
    pub(super) id: EndpointId,
    pub(super) name: EndpointName,
    pub(super) record: Option<EndpointRecord>,
    pub(super) ledger: Ledger,
}

/// Absolute state at the start of a segment, and at a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) salt: StoreSalt,
    pub(super) segment: u64,
    /// Oldest segment that was still needed.
    pub(super) head: u64,
    pub(super) next_seq: Seq,
    pub(super) watermark: Watermark,
    pub(super) endpoints: Vec<EndpointState>,
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    Header(Box<Header>),
    Accepted(Box<Accepted>),
    Ended {
        endpoint: EndpointId,
        seq: Seq,
        end: End,
        was_dead: bool,
    },
    Slip {
        endpoint: EndpointId,
        seq: Seq,
        slip: Slip,
    },
    Dead {
        endpoint: EndpointId,
        seq: Seq,
        letter: Letter,
    },
    Redriven {
        endpoint: EndpointId,
        seq: Seq,
        slip: Slip,
    },
    Moved(Box<Moved>),
    Endpoint {
        id: EndpointId,
        name: EndpointName,
        record: Option<EndpointRecord>,
    },
    Index(Vec<IndexEntry>),
    /// Proves by its frame what was synced, and says which sequences had been given out.
    Mark {
        next_seq: Seq,
    },
}

/// Where an event stands in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) seq: Seq,
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

/// What a checkpoint says of the log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checkpoint {
    /// Newest record that the index covers.
    pub(super) lsn: u64,
    /// Where the log goes on after it.
    pub(super) offset: u64,
    /// Absolute state; `segment` is the one that goes on.
    pub(super) header: Header,
    /// Whether the program ended with it.
    pub(super) clean: bool,
}

/// A segment as the index remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentEntry {
    pub(super) first_seq: Seq,
    pub(super) count: u32,
    pub(super) event_bytes: u64,
    pub(super) used: u64,
    pub(super) index_at: u64,
    pub(super) last_lsn: u64,
}

impl Record {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Record::Header(_) => Kind::Header,
            Record::Accepted(_) => Kind::Accepted,
            Record::Ended { .. } => Kind::Ended,
            Record::Slip { .. } => Kind::Slip,
            Record::Dead { .. } => Kind::Dead,
            Record::Redriven { .. } => Kind::Redriven,
            Record::Moved(_) => Kind::Moved,
            Record::Endpoint { .. } => Kind::Endpoint,
            Record::Index(_) => Kind::Index,
            Record::Mark { .. } => Kind::Mark,
        }
    }

    /// Appends the content; `body` is that of an accepted or moved event.
    pub(super) fn encode(&self, body: &[u8], out: &mut Vec<u8>) {
        match self {
            Record::Header(header) => put(&v1::Header::from(&**header), out),
            Record::Accepted(accepted) => put(
                &v1::Accepted {
                    event: v1::event(&accepted.event),
                    deliver: accepted.deliver.iter().map(|id| id.0).collect(),
                    dead: accepted.dead.iter().map(|(id, why)| (id.0, v1::Reason::from(why))).collect(),
                    body,
                },
                out,
            ),
            Record::Ended { endpoint, seq, end, was_dead } => {
                put(
                    &v1::Ended {
                        endpoint: endpoint.0,
                        seq: seq.0,
                        end: v1::end_code(*end),
                        was_dead: *was_dead,
                    },
                    out,
                );
            }
            Record::Slip { endpoint, seq, slip } | Record::Redriven { endpoint, seq, slip } => {
                put(&v1::SlipOf { endpoint: endpoint.0, seq: seq.0, slip: slip.into() }, out);
            }
            Record::Dead { endpoint, seq, letter } => {
                put(&v1::DeadOf { endpoint: endpoint.0, seq: seq.0, letter: letter.into() }, out);
            }
            Record::Moved(moved) => put(
                &v1::Moved {
                    event: v1::event(&moved.event),
                    held: moved.held.iter().map(|(id, held)| (id.0, v1::Held::from(held))).collect(),
                    body,
                },
                out,
            ),
            Record::Endpoint { id, name, record } => put(
                &v1::Endpoint { id: id.0, name: name.as_str(), record: record.as_ref().map(Into::into) },
                out,
            ),
            Record::Index(entries) => {
                // Differences, so that an entry takes about six bytes.
                let mut last = (0, 0);
                let deltas = entries.iter().map(|entry| {
                    let delta = (entry.seq.0 - last.0, entry.offset - last.1, entry.bytes);
                    last = (entry.seq.0, entry.offset);
                    delta
                });
                put(&v1::Index { deltas: deltas.collect() }, out);
            }
            Record::Mark { next_seq } => put(&next_seq.0, out),
        }
    }

    /// Reads a content back, with the body of an accepted or moved event (empty otherwise). `None` if the bytes are
    /// not what their kind and version promise.
    pub(super) fn decode(
        kind: Kind,
        version: u8,
        content: &[u8],
        salt: StoreSalt,
    ) -> Option<(Record, &[u8])> {
        if version != VERSION {
            return None;
        }
        let none: &[u8] = &[];
        Some(match kind {
            Kind::Header => (Record::Header(Box::new(take::<v1::Header>(content)?.into_header()?)), none),
            Kind::Accepted => {
                let v1::Accepted { event, deliver, dead, body } = take(content)?;
                let event = event.into_event(salt, body.len());
                let deliver = deliver.into_iter().map(EndpointId).collect();
                let dead = dead
                    .into_iter()
                    .map(|(id, reason)| Some((EndpointId(id), reason.into_reason()?)))
                    .collect::<Option<_>>()?;
                (Record::Accepted(Box::new(Accepted { event, deliver, dead })), body)
            }
            Kind::Ended => {
                let v1::Ended { endpoint, seq, end, was_dead } = take(content)?;
                let end = v1::end_of(end)?;
                (Record::Ended { endpoint: EndpointId(endpoint), seq: Seq(seq), end, was_dead }, none)
            }
            Kind::Slip | Kind::Redriven => {
                let v1::SlipOf { endpoint, seq, slip } = take(content)?;
                let (endpoint, seq, slip) = (EndpointId(endpoint), Seq(seq), slip.into_slip()?);
                let record = if kind == Kind::Slip {
                    Record::Slip { endpoint, seq, slip }
                } else {
                    Record::Redriven { endpoint, seq, slip }
                };
                (record, none)
            }
            Kind::Dead => {
                let v1::DeadOf { endpoint, seq, letter } = take(content)?;
                let letter = letter.into_letter()?;
                (Record::Dead { endpoint: EndpointId(endpoint), seq: Seq(seq), letter }, none)
            }
            Kind::Moved => {
                let v1::Moved { event, held, body } = take(content)?;
                let event = event.into_event(salt, body.len());
                let held = held
                    .into_iter()
                    .map(|(id, held)| Some((EndpointId(id), held.into_held()?)))
                    .collect::<Option<_>>()?;
                (Record::Moved(Box::new(Moved { event, held })), body)
            }
            Kind::Endpoint => {
                let v1::Endpoint { id, name, record } = take(content)?;
                let record = record.map(v1::EndpointSettings::into_record);
                (Record::Endpoint { id: EndpointId(id), name: name.into(), record }, none)
            }
            Kind::Index => {
                let mut last = (0_u64, 0_u32);
                let entries = take::<v1::Index>(content)?
                    .deltas
                    .into_iter()
                    .map(|(seq, offset, bytes)| {
                        last = (last.0.checked_add(seq)?, last.1.checked_add(offset)?);
                        Some(IndexEntry { seq: Seq(last.0), offset: last.1, bytes })
                    })
                    .collect::<Option<_>>()?;
                (Record::Index(entries), none)
            }
            Kind::Mark => (Record::Mark { next_seq: Seq(take(content)?) }, none),
        })
    }
}

/// A value of the index: its version, then the content.
pub(super) trait Value: Sized {
    fn to_value(&self) -> Vec<u8>;
    fn from_value(bytes: &[u8]) -> Option<Self>;
}

macro_rules! value {
    ($type:ty, $stored:ty, $into:ident) => {
        impl Value for $type {
            fn to_value(&self) -> Vec<u8> {
                let mut bytes = vec![VERSION];
                put(&<$stored>::from(self), &mut bytes);
                bytes
            }

            fn from_value(bytes: &[u8]) -> Option<Self> {
                match bytes.split_first()? {
                    (&VERSION, rest) => take::<$stored>(rest)?.$into(),
                    _ => None,
                }
            }
        }
    };
}

value!(Slip, v1::Slip, into_slip);
value!(Letter, v1::Letter, into_letter);
value!(Checkpoint, v1::Checkpoint, into_checkpoint);
value!(SegmentEntry, v1::Segment, into_segment);

fn put<T: bincode::Encode>(value: &T, out: &mut Vec<u8>) {
    bincode::encode_into_std_write(value, out, bincode::config::standard())
        .expect("invariant: encoding into memory cannot fail");
}

fn take<'a, T: bincode::BorrowDecode<'a, ()>>(bytes: &'a [u8]) -> Option<T> {
    let (value, used) = bincode::borrow_decode_from_slice(bytes, bincode::config::standard()).ok()?;
    (used == bytes.len()).then_some(value)
}

/// Longest text of a reason or cause that is kept; an index value must stay under 4 KiB (sled keeps it inline).
const TEXT_BYTES_MAX: usize = 192;

/// The start of a text, at most `max` bytes.
fn clip(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// The first attempt and the latest, at most [`HISTORY_MAX`].
fn clip_history<T>(history: &[T]) -> impl Iterator<Item = &T> {
    let skip = history.len().saturating_sub(HISTORY_MAX);
    history.iter().enumerate().filter(move |(index, _)| *index == 0 || *index > skip).map(|(_, one)| one)
}

impl Event {
    fn of(parts: &v1::Event<'_>, salt: StoreSalt, body_bytes: usize) -> Self {
        let (seq, accepted_at) = (Seq(parts.seq), UnixMillis(parts.accepted_at));
        Event {
            head: EventHead {
                seq,
                id: EventId::new(accepted_at.0, seq, salt),
                key: IdempotencyKey::from(parts.key),
                device: Device::from(parts.device),
                event_type: EventType::from(parts.event_type),
                accepted: StoreTime(parts.accepted),
                accepted_at,
                clock_trusted: parts.clock_trusted,
                observed_at: parts.observed_at.map(UnixMillis),
                bbox: parts.bbox,
                identity: Identity(parts.identity),
                digest: BodyDigest(parts.digest),
                body_bytes: body_bytes as u32,
            },
            dedup: if parts.window { Dedup::Window } else { Dedup::Ttl },
        }
    }
}

impl Letter {
    /// Stands for a letter whose details were lost with the index.
    pub(super) fn unknown() -> Self {
        Self {
            reason: DeadReason {
                class: crate::core::delivery::FailureClass::Unknown,
                stage: crate::core::delivery::Stage::Delivery,
                message: "the details of this dead letter were lost with a damaged index".to_owned(),
                location: None,
            },
            progress: Progress::default(),
            dead_at: UnixMillis(0),
        }
    }
}
