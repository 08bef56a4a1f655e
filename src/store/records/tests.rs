//! The bytes of version 1. They stand on disks: a change here is a broken store. Add goldens, never edit them.

use std::time::Duration;

use super::super::frame::Kind;
use super::*;
use crate::core::classify::VerdictKind;
use crate::core::delivery::{AttemptRecord, End, FailureClass, Stage};

const SALT: StoreSalt = StoreSalt(0x0123_4567_89ab_cdef);
const BODY: &[u8] = b"{\"type\":\"Feature\"}";

fn event() -> Event {
    Event {
        head: EventHead {
            seq: Seq(300),
            id: EventId::new(1_793_491_200_123, Seq(300), SALT),
            key: IdempotencyKey::from("idem:v2:ab"),
            device: Device::from("gw-ä"),
            event_type: EventType::from("feature"),
            accepted: StoreTime(70_000),
            accepted_at: UnixMillis(1_793_491_200_123),
            clock_trusted: true,
            observed_at: Some(UnixMillis(-5)),
            bbox: Some([8.5, 47.25, 8.5, 47.25]),
            identity: Identity([7; 16]),
            digest: BodyDigest([9; 8]),
            body_bytes: BODY.len() as u32,
        },
        dedup: Dedup::Window,
    }
}

fn progress() -> Progress {
    Progress {
        attempts: 2,
        charged: 1,
        redrives: 0,
        previous_delay: Duration::from_millis(1_500),
        history: vec![AttemptRecord {
            number: 2,
            at: UnixMillis(1_793_491_201_000),
            verdict: VerdictKind::Throttle,
            reason: "http 429".to_owned(),
            status: Some(429),
            latency_ms: 31,
            delay_ms: Some(1_500),
            bytes_sent: true,
            charged: false,
            answer: "slow down".to_owned(),
        }],
    }
}

fn reason() -> DeadReason {
    DeadReason {
        class: FailureClass::InvalidGeometry,
        stage: Stage::Geometry,
        message: "Self-intersection".to_owned(),
        location: Some([0.5, -1.0]),
    }
}

fn letter() -> Letter {
    Letter { reason: reason(), progress: progress(), dead_at: UnixMillis(1_793_491_202_000) }
}

fn slip() -> Slip {
    Slip { due: Some(StoreTime(90_000)), progress: progress() }
}

fn header() -> Header {
    Header {
        salt: SALT,
        segment: 42,
        head: 40,
        next_seq: Seq(301),
        watermark: Watermark {
            store: StoreTime(70_001),
            wall: UnixMillis(1_793_491_200_124),
            wall_trusted: false,
        },
        endpoints: vec![EndpointState {
            id: EndpointId(1),
            name: "default".into(),
            record: Some(EndpointRecord { paused: true, disabled: false, budget_tokens: 99.5 }),
            ledger: Ledger {
                accepted: 300,
                delivered: 290,
                pending: 4,
                dead: 1,
                expired: 1,
                discarded: 1,
                dropped: 1,
                superseded: 1,
                lost: 1,
                duplicates: 7,
            },
        }],
    }
}

fn records() -> Vec<(&'static str, Record)> {
    let (endpoint, seq) = (EndpointId(3), Seq(300));
    let (deliver, dead) = (vec![EndpointId(1), EndpointId(2)], vec![(EndpointId(0), reason())]);
    vec![
        ("header", Record::Header(Box::new(header()))),
        ("accepted", Record::Accepted(Box::new(Accepted { event: event(), deliver, dead }))),
        ("ended", Record::Ended { endpoint, seq, end: End::Discarded, was_dead: true }),
        ("slip", Record::Slip { endpoint, seq, slip: slip() }),
        ("dead", Record::Dead { endpoint, seq, letter: letter() }),
        ("redriven", Record::Redriven { endpoint, seq, slip: Slip::default() }),
        (
            "moved",
            Record::Moved(Box::new(Moved {
                event: event(),
                held: vec![(endpoint, Held::Pending(slip())), (EndpointId(4), Held::Dead(letter()))],
            })),
        ),
        ("endpoint", Record::Endpoint { id: endpoint, name: "b".into(), record: None }),
        (
            "index",
            Record::Index(vec![
                IndexEntry { seq: Seq(299), offset: 200, bytes: 400 },
                IndexEntry { seq: Seq(300), offset: 700, bytes: 90 },
            ]),
        ),
        ("mark", Record::Mark { next_seq: Seq(301) }),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn golden(name: &str) -> &'static str {
    let line = include_str!("golden_v1.txt").lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.split(' ').nth(1)).unwrap_or("")
}

#[test]
fn records_of_version_1_keep_their_bytes() {
    for (name, record) in records() {
        let mut bytes = Vec::new();
        record.encode(BODY, &mut bytes);
        assert_eq!(hex(&bytes), golden(name), "{name}");
        let stored = unhex(golden(name));
        let (read, body) = Record::decode(record.kind(), 1, &stored, SALT).unwrap();
        assert_eq!(read, record, "{name}");
        let has_body = matches!(record.kind(), Kind::Accepted | Kind::Moved);
        assert_eq!(body, if has_body { BODY } else { b"" });
        assert_eq!(Record::decode(record.kind(), 2, &stored, SALT), None, "of a later version");
    }
}

#[test]
fn values_of_version_1_keep_their_bytes() {
    fn check<T: Value + PartialEq + std::fmt::Debug>(name: &str, value: &T) {
        assert_eq!(hex(&value.to_value()), golden(name), "{name}");
        assert_eq!(T::from_value(&unhex(golden(name))).as_ref(), Some(value), "{name}");
    }
    check("value.slip", &slip());
    check("value.letter", &letter());
    check("value.checkpoint", &Checkpoint { lsn: 9, offset: 4_096, header: header(), clean: true });
    check(
        "value.segment",
        &SegmentEntry {
            first_seq: Seq(1),
            count: 2,
            event_bytes: 3_000,
            used: 70_000,
            index_at: 69_000,
            last_lsn: 12,
        },
    );
}

#[test]
fn rubbish_is_never_a_record() {
    for (name, record) in records() {
        let bytes = unhex(golden(name));
        for end in 0..bytes.len() {
            if record.kind() != Kind::Mark {
                assert_eq!(
                    Record::decode(record.kind(), 1, &bytes[..end], SALT),
                    None,
                    "{name} cut at {end}"
                );
            }
        }
    }
}

#[test]
fn an_index_value_stays_under_4_kib_whatever_the_receiver_says() {
    let long = "é".repeat(5_000);
    let one = AttemptRecord { reason: long.clone(), answer: long.clone(), ..progress().history.remove(0) };
    let progress = Progress { history: vec![one; 20], ..progress() };
    let letter = Letter { reason: DeadReason { message: long, ..reason() }, progress, ..letter() };
    let value = letter.to_value();
    assert!(value.len() < 4_096, "{} bytes", value.len());
    let read = Letter::from_value(&value).unwrap();
    assert_eq!(read.progress.history.len(), HISTORY_MAX);
    assert!(read.progress.history[0].answer.is_empty() && read.progress.history[7].answer.len() >= 1_000);
}
