//! Promises of the store, each shown from outside through [`Outbox`].

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::clock::ManualClock;
use crate::core::delivery::{DeadReason, End, FailureClass, Progress, Stage, State};
use crate::core::event::{Dedup, KeyPlan};
use crate::core::ids::{BodyDigest, Device, EventType, IdempotencyKey, Identity};
use crate::core::time::StoreTime;

mod basic;
mod damage;
mod fixture;
mod memory_disk;
mod model;
mod port;
mod power;
mod space;

pub(super) fn config(dir: &Path) -> StoreConfig {
    StoreConfig {
        dir: dir.to_owned(),
        disk_bytes_max: 1 << 30,
        disk_free_reserve: 0,
        dead_letter_share: 0.25,
        cache_bytes_max: 1 << 20,
        when_full: WhenFull::Reject,
        key_ttl: Duration::from_hours(78),
        window_without_time: Duration::from_mins(1),
        keys_bytes_max: 64 << 20,
        endpoints: vec!["a".into(), "b".into()],
    }
}

/// A small segment and frequent checkpoints, so that every turn of the log happens within a short test.
pub(super) fn small() -> Tuning {
    Tuning {
        segment_bytes: 16 << 10,
        checkpoint_bytes: 24 << 10,
        checkpoint_changes: 200,
        slack_bytes: 48 << 10,
        generation_keys: 64,
        ..Tuning::default()
    }
}

pub(super) const A: EndpointId = EndpointId(1);
pub(super) const B: EndpointId = EndpointId(2);

/// An event whose every part follows from its number.
pub(super) fn event(number: u64, bytes: usize, deliver: &[EndpointId]) -> NewEvent {
    let mut body = format!("{{\"n\":{number},\"pad\":\"").into_bytes();
    body.resize(body.len() + bytes, b'x');
    body.extend(b"\"}");
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    identity[8..].copy_from_slice(&number.to_be_bytes());
    NewEvent {
        body: Bytes::from(body),
        device: Device::from("probe"),
        event_type: EventType::from("reading"),
        identity: Identity(identity),
        digest: BodyDigest(number.to_be_bytes()),
        dedup: Dedup::Ttl,
        producer_keyed: false,
        key: KeyPlan::Fixed(IdempotencyKey::from(format!("idem:v2:{number}").as_str())),
        deliver: deliver.to_vec(),
        dead: Vec::new(),
        bbox: Some([1.0, 2.0, 3.0, 4.0]),
        observed_at: None,
    }
}

pub(super) fn reason(message: &str) -> DeadReason {
    DeadReason {
        class: FailureClass::Rejected,
        stage: Stage::Delivery,
        message: message.to_owned(),
        location: None,
    }
}

pub(super) fn opened(dir: &Path, tuning: Tuning) -> (Outbox, Recovery, ManualClock) {
    let (clock, hand) = Clock::manual();
    let (outbox, recovery) = recover::open(config(dir), clock, tuning, None).unwrap();
    (outbox, recovery, hand)
}

impl Outbox {
    /// Ends the log thread without a sync or a checkpoint, as a kill does.
    pub(super) async fn crash(&self) {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Crash { reply }, 0).await.unwrap();
        let _ = answer.await;
    }

    pub(super) async fn pending(&self, endpoint: EndpointId) -> Vec<u64> {
        let (mut after, mut seqs) = (Seq(0), Vec::new());
        loop {
            let page = self.pending_page(endpoint, after, 100).await.unwrap();
            seqs.extend(page.deliveries.iter().map(|one| one.event.head.seq.0));
            after = page.scanned_to;
            if page.end {
                return seqs;
            }
        }
    }

    pub(super) fn ledger(&self, endpoint: EndpointId) -> Ledger {
        self.stats().ledgers.get(&endpoint.0).copied().unwrap_or_default()
    }
}

pub(super) fn delivered() -> Settlement {
    Settlement::Delivered { progress: Progress { attempts: 1, ..Progress::default() } }
}

pub(super) fn ended(seq: u64, endpoint: EndpointId, end: End) -> EndRequest {
    EndRequest { seq: Seq(seq), endpoint, end }
}
