//! Version 1 of everything stored. Never edit a struct here: its bytes are on disks. Add a version instead.

use bincode::{BorrowDecode, Encode};

use super::{TEXT_BYTES_MAX, clip, clip_history};
use crate::clock::Watermark;
use crate::core::classify::VerdictKind;
use crate::core::delivery::{
    ANSWER_BYTES_MAX, AttemptRecord, DeadReason, End, FailureClass, Progress, Stage,
};
use crate::core::event::Dedup;
use crate::core::ids::{EndpointId, Seq, StoreSalt};
use crate::core::time::{StoreTime, UnixMillis};
use crate::store::types::{EndpointRecord, Ledger};
use std::time::Duration;

#[derive(Encode, BorrowDecode)]
#[expect(clippy::struct_field_names, reason = "the words of the design")]
pub(super) struct Event<'a> {
    pub(super) seq: u64,
    pub(super) accepted: u64,
    pub(super) accepted_at: i64,
    pub(super) clock_trusted: bool,
    pub(super) observed_at: Option<i64>,
    pub(super) device: &'a str,
    pub(super) event_type: &'a str,
    pub(super) key: &'a str,
    pub(super) identity: [u8; 16],
    pub(super) digest: [u8; 8],
    pub(super) window: bool,
    pub(super) bbox: Option<[f64; 4]>,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Accepted<'a> {
    pub(super) event: Event<'a>,
    pub(super) deliver: Vec<u32>,
    pub(super) dead: Vec<(u32, Reason<'a>)>,
    pub(super) body: &'a [u8],
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Moved<'a> {
    pub(super) event: Event<'a>,
    pub(super) held: Vec<(u32, Held<'a>)>,
    pub(super) body: &'a [u8],
}

#[derive(Encode, BorrowDecode)]
pub(super) enum Held<'a> {
    Pending(Slip<'a>),
    Dead(Letter<'a>),
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Ended {
    pub(super) endpoint: u32,
    pub(super) seq: u64,
    pub(super) end: u8,
    pub(super) was_dead: bool,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct SlipOf<'a> {
    pub(super) endpoint: u32,
    pub(super) seq: u64,
    pub(super) slip: Slip<'a>,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct DeadOf<'a> {
    pub(super) endpoint: u32,
    pub(super) seq: u64,
    pub(super) letter: Letter<'a>,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Slip<'a> {
    due: Option<u64>,
    progress: Progresses<'a>,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Letter<'a> {
    reason: Reason<'a>,
    progress: Progresses<'a>,
    dead_at: i64,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Progresses<'a> {
    attempts: u32,
    charged: u32,
    redrives: u32,
    previous_delay_ms: u64,
    history: Vec<Attempt<'a>>,
}

#[derive(Encode, BorrowDecode)]
struct Attempt<'a> {
    number: u32,
    at: i64,
    verdict: u8,
    reason: &'a str,
    status: Option<u16>,
    latency_ms: u32,
    delay_ms: Option<u64>,
    bytes_sent: bool,
    charged: bool,
    answer: &'a str,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Reason<'a> {
    class: u8,
    stage: u8,
    message: &'a str,
    location: Option<[f64; 2]>,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Endpoint<'a> {
    pub(super) id: u32,
    pub(super) name: &'a str,
    pub(super) record: Option<EndpointSettings>,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct EndpointSettings {
    paused: bool,
    disabled: bool,
    budget_tokens: f64,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Header<'a> {
    salt: u64,
    segment: u64,
    head: u64,
    next_seq: u64,
    store_ms: u64,
    wall_ms: i64,
    wall_trusted: bool,
    endpoints: Vec<(Endpoint<'a>, [u64; 10])>,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Index {
    pub(super) deltas: Vec<(u64, u32, u32)>,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Checkpoint<'a> {
    lsn: u64,
    offset: u64,
    header: Header<'a>,
    clean: bool,
}

#[derive(Encode, BorrowDecode)]
pub(super) struct Segment {
    first_seq: u64,
    count: u32,
    event_bytes: u64,
    used: u64,
    index_at: u64,
    last_lsn: u64,
}

/// Codes of closed sets are written out, so that reordering a type of `core` changes no byte on disk.
macro_rules! codes {
    ($type:ty, $code:ident, $of:ident, { $($variant:path = $number:literal),+ $(,)? }) => {
        pub(super) fn $code(value: $type) -> u8 {
            match value { $($variant => $number),+ }
        }

        pub(super) fn $of(code: u8) -> Option<$type> {
            match code { $($number => Some($variant),)+ _ => None }
        }
    };
}

codes!(End, end_code, end_of, {
    End::Delivered = 0, End::Expired = 1, End::Discarded = 2, End::Dropped = 3, End::Superseded = 4, End::Lost = 5,
});
codes!(FailureClass, class_code, class_of, {
    FailureClass::Transient = 0, FailureClass::InvalidGeometry = 1, FailureClass::SchemaViolation = 2,
    FailureClass::CrsMismatch = 3, FailureClass::Rejected = 4, FailureClass::Expired = 5, FailureClass::Poison = 6,
    FailureClass::Unrouted = 7, FailureClass::Unknown = 8,
});
codes!(Stage, stage_code, stage_of, {
    Stage::Parse = 0, Stage::Crs = 1, Stage::Geometry = 2, Stage::Route = 3, Stage::Delivery = 4,
});
codes!(VerdictKind, verdict_code, verdict_of, {
    VerdictKind::Delivered = 0, VerdictKind::Retry = 1, VerdictKind::Throttle = 2, VerdictKind::Hold = 3,
    VerdictKind::HoldAuth = 4, VerdictKind::HoldConfig = 5, VerdictKind::HoldLocal = 6, VerdictKind::Terminal = 7,
    VerdictKind::Poison = 8, VerdictKind::Disabled = 9,
});

pub(super) fn event(event: &super::Event) -> Event<'_> {
    let head = &event.head;
    Event {
        seq: head.seq.0,
        accepted: head.accepted.0,
        accepted_at: head.accepted_at.0,
        clock_trusted: head.clock_trusted,
        observed_at: head.observed_at.map(|at| at.0),
        device: head.device.as_str(),
        event_type: head.event_type.as_str(),
        key: head.key.as_str(),
        identity: head.identity.0,
        digest: head.digest.0,
        window: event.dedup == Dedup::Window,
        bbox: head.bbox,
    }
}

impl Event<'_> {
    pub(super) fn into_event(self, salt: StoreSalt, body_bytes: usize) -> super::Event {
        super::Event::of(&self, salt, body_bytes)
    }
}

impl<'a> From<&'a DeadReason> for Reason<'a> {
    fn from(reason: &'a DeadReason) -> Self {
        Self {
            class: class_code(reason.class),
            stage: stage_code(reason.stage),
            message: clip(&reason.message, 2 * TEXT_BYTES_MAX),
            location: reason.location,
        }
    }
}

impl Reason<'_> {
    pub(super) fn into_reason(self) -> Option<DeadReason> {
        Some(DeadReason {
            class: class_of(self.class)?,
            stage: stage_of(self.stage)?,
            message: self.message.to_owned(),
            location: self.location,
        })
    }
}

impl<'a> From<&'a Progress> for Progresses<'a> {
    fn from(progress: &'a Progress) -> Self {
        let last = progress.history.len().saturating_sub(1);
        let answer_of = |one: &'a AttemptRecord| {
            let is_last = progress.history.get(last).is_some_and(|it| std::ptr::eq(it, one));
            if is_last { clip(&one.answer, ANSWER_BYTES_MAX) } else { "" }
        };
        Self {
            attempts: progress.attempts,
            charged: progress.charged,
            redrives: progress.redrives,
            previous_delay_ms: u64::try_from(progress.previous_delay.as_millis()).unwrap_or(u64::MAX),
            history: clip_history(&progress.history)
                .map(|one| Attempt {
                    number: one.number,
                    at: one.at.0,
                    verdict: verdict_code(one.verdict),
                    reason: clip(&one.reason, TEXT_BYTES_MAX),
                    status: one.status,
                    latency_ms: one.latency_ms,
                    delay_ms: one.delay_ms,
                    bytes_sent: one.bytes_sent,
                    charged: one.charged,
                    answer: answer_of(one),
                })
                .collect(),
        }
    }
}

impl Progresses<'_> {
    fn into_progress(self) -> Option<Progress> {
        let history = self.history.into_iter().map(|one| {
            Some(AttemptRecord {
                number: one.number,
                at: UnixMillis(one.at),
                verdict: verdict_of(one.verdict)?,
                reason: one.reason.to_owned(),
                status: one.status,
                latency_ms: one.latency_ms,
                delay_ms: one.delay_ms,
                bytes_sent: one.bytes_sent,
                charged: one.charged,
                answer: one.answer.to_owned(),
            })
        });
        Some(Progress {
            attempts: self.attempts,
            charged: self.charged,
            redrives: self.redrives,
            previous_delay: Duration::from_millis(self.previous_delay_ms),
            history: history.collect::<Option<_>>()?,
        })
    }
}

impl<'a> From<&'a super::Slip> for Slip<'a> {
    fn from(slip: &'a super::Slip) -> Self {
        Self { due: slip.due.map(|due| due.0), progress: (&slip.progress).into() }
    }
}

impl Slip<'_> {
    pub(super) fn into_slip(self) -> Option<super::Slip> {
        Some(super::Slip { due: self.due.map(StoreTime), progress: self.progress.into_progress()? })
    }
}

impl<'a> From<&'a super::Letter> for Letter<'a> {
    fn from(letter: &'a super::Letter) -> Self {
        Self {
            reason: (&letter.reason).into(),
            progress: (&letter.progress).into(),
            dead_at: letter.dead_at.0,
        }
    }
}

impl Letter<'_> {
    pub(super) fn into_letter(self) -> Option<super::Letter> {
        Some(super::Letter {
            reason: self.reason.into_reason()?,
            progress: self.progress.into_progress()?,
            dead_at: UnixMillis(self.dead_at),
        })
    }
}

impl<'a> From<&'a super::Held> for Held<'a> {
    fn from(held: &'a super::Held) -> Self {
        match held {
            super::Held::Pending(slip) => Held::Pending(slip.into()),
            super::Held::Dead(letter) => Held::Dead(letter.into()),
        }
    }
}

impl Held<'_> {
    pub(super) fn into_held(self) -> Option<super::Held> {
        Some(match self {
            Held::Pending(slip) => super::Held::Pending(slip.into_slip()?),
            Held::Dead(letter) => super::Held::Dead(letter.into_letter()?),
        })
    }
}

impl From<&EndpointRecord> for EndpointSettings {
    fn from(record: &EndpointRecord) -> Self {
        Self { paused: record.paused, disabled: record.disabled, budget_tokens: record.budget_tokens }
    }
}

impl EndpointSettings {
    pub(super) fn into_record(self) -> EndpointRecord {
        EndpointRecord { paused: self.paused, disabled: self.disabled, budget_tokens: self.budget_tokens }
    }
}

impl<'a> From<&'a super::Header> for Header<'a> {
    fn from(header: &'a super::Header) -> Self {
        let endpoints = header.endpoints.iter().map(|one| {
            let record = one.record.as_ref().map(Into::into);
            let l = &one.ledger;
            let counts = [
                l.accepted,
                l.delivered,
                l.pending,
                l.dead,
                l.expired,
                l.discarded,
                l.dropped,
                l.superseded,
                l.lost,
                l.duplicates,
            ];
            (Endpoint { id: one.id.0, name: one.name.as_str(), record }, counts)
        });
        Self {
            salt: header.salt.0,
            segment: header.segment,
            head: header.head,
            next_seq: header.next_seq.0,
            store_ms: header.watermark.store.0,
            wall_ms: header.watermark.wall.0,
            wall_trusted: header.watermark.wall_trusted,
            endpoints: endpoints.collect(),
        }
    }
}

impl Header<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "one shape for all values")]
    pub(super) fn into_header(self) -> Option<super::Header> {
        let endpoints = self.endpoints.into_iter().map(|(one, counts)| {
            let [
                accepted,
                delivered,
                pending,
                dead,
                expired,
                discarded,
                dropped,
                superseded,
                lost,
                duplicates,
            ] = counts;
            super::EndpointState {
                id: EndpointId(one.id),
                name: one.name.into(),
                record: one.record.map(EndpointSettings::into_record),
                ledger: Ledger {
                    accepted,
                    delivered,
                    pending,
                    dead,
                    expired,
                    discarded,
                    dropped,
                    superseded,
                    lost,
                    duplicates,
                },
            }
        });
        Some(super::Header {
            salt: StoreSalt(self.salt),
            segment: self.segment,
            head: self.head,
            next_seq: Seq(self.next_seq),
            watermark: Watermark {
                store: StoreTime(self.store_ms),
                wall: UnixMillis(self.wall_ms),
                wall_trusted: self.wall_trusted,
            },
            endpoints: endpoints.collect(),
        })
    }
}

impl<'a> From<&'a super::Checkpoint> for Checkpoint<'a> {
    fn from(checkpoint: &'a super::Checkpoint) -> Self {
        Self {
            lsn: checkpoint.lsn,
            offset: checkpoint.offset,
            header: (&checkpoint.header).into(),
            clean: checkpoint.clean,
        }
    }
}

impl Checkpoint<'_> {
    pub(super) fn into_checkpoint(self) -> Option<super::Checkpoint> {
        Some(super::Checkpoint {
            lsn: self.lsn,
            offset: self.offset,
            header: self.header.into_header()?,
            clean: self.clean,
        })
    }
}

impl From<&super::SegmentEntry> for Segment {
    fn from(entry: &super::SegmentEntry) -> Self {
        Self {
            first_seq: entry.first_seq.0,
            count: entry.count,
            event_bytes: entry.event_bytes,
            used: entry.used,
            index_at: entry.index_at,
            last_lsn: entry.last_lsn,
        }
    }
}

impl Segment {
    #[expect(clippy::unnecessary_wraps, reason = "one shape for all values")]
    pub(super) fn into_segment(self) -> Option<super::SegmentEntry> {
        Some(super::SegmentEntry {
            first_seq: Seq(self.first_seq),
            count: self.count,
            event_bytes: self.event_bytes,
            used: self.used,
            index_at: self.index_at,
            last_lsn: self.last_lsn,
        })
    }
}
