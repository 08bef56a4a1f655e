//! What goes in and out of the store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::core::delivery::{DeadReason, End, Progress, State};
use crate::core::ids::{
    BodyDigest, Device, EndpointId, EndpointName, EventId, EventType, IdempotencyKey, Identity, Seq,
};
use crate::core::time::{StoreTime, UnixMillis};

pub use crate::core::policy::WhenFull;

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Directory that holds `LOCK`, `log/`, `sled/`, `quarantine/`.
    pub dir: PathBuf,
    /// Limit on the directory's size.
    pub disk_bytes_max: u64,
    /// Free space of the file system that is left alone.
    pub disk_free_reserve: u64,
    /// Share of `disk_bytes_max` that dead letters may take.
    pub dead_letter_share: f64,
    /// Bytes of recent bodies kept in memory, so that the healthy path reads nothing back.
    pub cache_bytes_max: u64,
    /// What an accept does on a full store.
    pub when_full: WhenFull,
    /// How long an identity is remembered.
    pub key_ttl: Duration,
    /// The same for events without a time.
    pub window_without_time: Duration,
    /// Disk for remembered keys.
    pub keys_bytes_max: u64,
    /// Configured endpoints by name; the store gives each a number that is never reused.
    pub endpoints: Vec<EndpointName>,
}

/// Fate of one appended event.
#[derive(Clone, Debug, PartialEq)]
pub enum Appended {
    /// Stored; at least one endpoint will get it.
    Accepted {
        /// Its sequence.
        seq: Seq,
        /// Its id.
        id: EventId,
        /// Its wire key.
        key: IdempotencyKey,
    },
    /// Stored, dead for every endpoint.
    DeadLettered {
        /// Its sequence.
        seq: Seq,
        /// Its id.
        id: EventId,
        /// Its wire key.
        key: IdempotencyKey,
    },
    /// An equal identity was stored before.
    Duplicate {
        /// Id of the first event.
        id: EventId,
        /// Wire key of the first event, if it could be told (fixed keys and made ones can).
        key: Option<IdempotencyKey>,
    },
    /// A producer's key came again with another body; nothing stored.
    KeyReused {
        /// Id of the first event.
        id: EventId,
    },
}

/// Why an append stored nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// A limit or the disk is full; try later.
    #[error("{what} is full")]
    Full {
        /// Which limit: `disk`, `store`, `dead letters`.
        what: &'static str,
        /// What to tell the producer to wait.
        retry_after: Duration,
    },
    /// The writer is behind; try later.
    #[error("the store is busy")]
    Busy,
    /// The store is stopping or has failed.
    #[error("the store is closed")]
    Closed,
    /// The disk refused.
    #[error("cannot write to the store: {0}")]
    Io(Arc<std::io::Error>),
}

/// A stored event without its body.
#[derive(Clone, Debug, PartialEq)]
pub struct EventHead {
    /// Sequence.
    pub seq: Seq,
    /// Public id.
    pub id: EventId,
    /// Wire key.
    pub key: IdempotencyKey,
    /// Who made it.
    pub device: Device,
    /// What it is.
    pub event_type: EventType,
    /// Store time of acceptance: ages and windows.
    pub accepted: StoreTime,
    /// Stamp of acceptance.
    pub accepted_at: UnixMillis,
    /// Whether the clock was trusted at that stamp.
    pub clock_trusted: bool,
    /// The event's own time.
    pub observed_at: Option<UnixMillis>,
    /// Extent of its geometry.
    pub bbox: Option<[f64; 4]>,
    /// Identity and digest.
    pub identity: Identity,
    /// Digest of the body.
    pub digest: BodyDigest,
    /// Length of the body.
    pub body_bytes: u32,
}

/// A stored event with its exact bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// Everything but the body.
    pub head: EventHead,
    /// Exact bytes to send.
    pub body: Bytes,
}

/// A delivery taken from the backlog.
#[derive(Clone, Debug)]
pub struct PendingDelivery {
    /// The event; shared among its endpoints while cached.
    pub event: Arc<StoredEvent>,
    /// Attempts so far (of deliveries that were returned or redriven).
    pub progress: Progress,
}

/// A page of pending deliveries that are not between attempts, in sequence order. A page also ends at about 4 MiB of
/// bodies, whatever its limit in events.
#[derive(Clone, Debug)]
pub struct PendingPage {
    /// The deliveries.
    pub deliveries: Vec<PendingDelivery>,
    /// Sequence up to which the page has looked; ask again after it.
    pub scanned_to: Seq,
    /// Whether there was nothing beyond.
    pub end: bool,
}

/// A delivery between attempts, as persisted in the schedule.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// Which event.
    pub head: EventHead,
    /// Size of its body.
    pub body_bytes: usize,
    /// When its next attempt may start.
    pub due: StoreTime,
    /// Attempts so far.
    pub progress: Progress,
}

/// One entry of the dead-letter queue, without the body.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The event.
    pub head: EventHead,
    /// For which endpoint it is dead.
    pub endpoint: EndpointId,
    /// Why.
    pub reason: DeadReason,
    /// Attempts and history.
    pub progress: Progress,
    /// Stamp of its death.
    pub dead_at: UnixMillis,
}

/// Which dead letters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadFilter {
    /// Of this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Of this class.
    pub class: Option<crate::core::delivery::FailureClass>,
    /// Died at or after.
    pub since: Option<UnixMillis>,
    /// Died before.
    pub until: Option<UnixMillis>,
    /// Extent meets `[west, south, east, north]`; west > east spans the antimeridian.
    pub bbox: Option<[f64; 4]>,
    /// Newest events first instead of oldest.
    pub newest_first: bool,
}

/// Counters of one endpoint since the store was made. `pending` and `dead` are gauges, counted and never derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Deliveries taken on, dead at intake included.
    pub accepted: u64,
    /// Ended: a receiver has it.
    pub delivered: u64,
    /// Not ended, not dead.
    pub pending: u64,
    /// In the dead-letter queue now.
    pub dead: u64,
    /// Ended: a route's TTL.
    pub expired: u64,
    /// Ended: a person.
    pub discarded: u64,
    /// Ended: a full store with a dropping policy.
    pub dropped: u64,
    /// Ended: replaced by a newer event, a later ping or the repaired one of a dead letter.
    pub superseded: u64,
    /// Ended: damage.
    pub lost: u64,
    /// Posts answered as `duplicate` (not part of the balance).
    pub duplicates: u64,
}

impl Ledger {
    /// The promise P2.
    pub fn balanced(&self) -> bool {
        self.accepted
            == self.delivered
                + self.pending
                + self.dead
                + self.expired
                + self.discarded
                + self.dropped
                + self.superseded
                + self.lost
    }
}

/// What the store can say of itself at any moment, from memory.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Counters by endpoint, removed endpoints included.
    pub ledgers: BTreeMap<u32, Ledger>,
    /// Names by number.
    pub names: BTreeMap<u32, String>,
    /// Store time of the oldest pending delivery, by endpoint.
    pub oldest_pending: BTreeMap<u32, StoreTime>,
    /// Size of the directory.
    pub disk_bytes: u64,
    /// Bytes of events that are still needed.
    pub live_bytes: u64,
    /// Bytes of dead letters among them.
    pub dead_bytes: u64,
    /// Events that are still needed.
    pub events: u64,
    /// Bytes set aside.
    pub quarantined_bytes: u64,
    /// Free bytes of the file system.
    pub disk_free_bytes: u64,
    /// Bytes written by this process to the store.
    pub written_bytes: u64,
    /// fdatasync calls on the log.
    pub syncs: u64,
    /// Identities remembered.
    pub keys: u64,
    /// Damage and other notices for `warnings`.
    pub warnings: Vec<String>,
    /// Which limit refuses accepts now, if one does.
    pub full: Option<&'static str>,
}

/// An end that a person or a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRequest {
    /// Which event.
    pub seq: Seq,
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// Which end.
    pub end: End,
}

/// One endpoint's delivery of an event, as the store knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeliveryState {
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// Its state. Details of ended deliveries are kept for the most recent ones only; older ones are left out.
    pub state: State,
    /// Attempts so far.
    pub progress: Progress,
    /// Why it is dead.
    pub reason: Option<DeadReason>,
}

/// A page of the dead-letter queue in the order of (sequence, endpoint).
#[derive(Clone, Debug, Default)]
pub struct DeadPage {
    /// The entries.
    pub letters: Vec<DeadLetter>,
    /// Ask again after this; `None` at the end.
    pub next: Option<(Seq, EndpointId)>,
    /// Dead letters in all, unfiltered.
    pub total: u64,
}

/// What survives a restart of an endpoint besides its deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct EndpointRecord {
    /// An operator stopped it.
    pub paused: bool,
    /// It answered 410.
    pub disabled: bool,
    /// Level of its retry budget.
    pub budget_tokens: f64,
}

/// What opening the store came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovery {
    /// Whether this is a new store.
    pub created: bool,
    /// Whether the last stop was clean: nothing had to be replayed.
    pub clean: bool,
    /// Log records replayed.
    pub replayed: u64,
    /// Whether the index had to be rebuilt from the log.
    pub rebuilt: bool,
    /// Deliveries counted as lost at this start.
    pub lost: u64,
    /// Bytes set aside at this start.
    pub quarantined_bytes: u64,
    /// The same in words, for the log and for `warnings`.
    pub warnings: Vec<String>,
}
