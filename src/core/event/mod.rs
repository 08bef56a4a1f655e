//! GeoJSON bytes to events: what a request body holds, feature by feature, with each feature's exact bytes.
//!
//! The way of a body: a sequence goes through [`SequenceSplitter`], which cuts it into texts; each text (or a whole
//! body that is no sequence) through [`document()`], which checks it to be JSON and gives its features; each feature
//! through [`prepare()`], which labels, judges, routes and keys it. What fails on the way is a [`Rejection`] of that
//! feature, line or text alone.
//!
//! ```text
//! for feature in document(text)? {
//!     match feature.and_then(|feature| prepare(&settings, &feature, &meta)) { … }
//! }
//! ```
//!
//! **Invariants.** The bytes of an event are bytes of the request: a Feature as it stood there (a whole body with the
//! white space round it; a line or element without its delimiters; a collection's member from `{` to `}`), a bare
//! geometry inside a fixed frame. No text, however nested, long or malformed, panics or recurses beyond
//! [`crate::core::json::DEPTH_MAX`].

mod crs;
mod document;
mod mend;
mod observed;
mod pointer;
mod prepare;
mod reject;
mod settings;
mod split;

use bytes::Bytes;

use super::delivery::DeadReason;
use super::ids::{BodyDigest, Device, EndpointId, EventType, IdempotencyKey, Identity};
use super::time::UnixMillis;

pub use document::{Document, Feature, Features, Members, document};
pub use mend::{Mended, NotMended, REPAIRED_FROM, mend};
pub use pointer::{Pointer, PointerError};
pub use prepare::{identity_text, labels, prepare};
pub use reject::{NotGeoJson, Place, Rejection};
pub use settings::{
    DEVICE_POINTERS, EventMeta, GeometryGate, IntakeSettings, InvalidGeometry, LABEL_BYTES_MAX, Pointers,
    SEQUENCE_POINTERS, TIME_POINTERS, TYPE_POINTERS,
};
pub use split::{Element, Framing, SequenceSplitter, SplitError};

/// How the wire key comes about.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyPlan {
    /// Known already: identity with a time or sequence, a producer's key, recipe `article`.
    Fixed(IdempotencyKey),
    /// The acceptance sequence goes in too (no observation time): see [`crate::core::key::with_sequence`].
    WithSequence([u8; 32]),
}

/// For how long an equal identity is a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedup {
    /// For the whole key TTL.
    Ttl,
    /// For `window_without_time` only: equal posts may be two heartbeats.
    Window,
}

/// A feature that has been parsed, judged, keyed and routed: what the store appends.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Exact bytes that every attempt sends.
    pub body: Bytes,
    /// Who made it.
    pub device: Device,
    /// What it is.
    pub event_type: EventType,
    /// What deduplication compares.
    pub identity: Identity,
    /// Tells a repeat from a reused producer key.
    pub digest: BodyDigest,
    /// For how long it does so.
    pub dedup: Dedup,
    /// The identity is a producer's `Idempotency-Key`: same identity with another digest is a conflict (422).
    pub producer_keyed: bool,
    /// The wire key, or how to make it.
    pub key: KeyPlan,
    /// Endpoints that get it.
    pub deliver: Vec<EndpointId>,
    /// Endpoints for which it is dead at intake, with the reason ([`EndpointId::UNROUTED`] if no route wants it).
    pub dead: Vec<(EndpointId, DeadReason)>,
    /// `[west, south, east, north]` of the geometry.
    pub bbox: Option<[f64; 4]>,
    /// The event's own time, if a pointer found one.
    pub observed_at: Option<UnixMillis>,
}
