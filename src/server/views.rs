//! What the store knows, in the words of the wire.

use sha2::{Digest, Sha256};

use super::AppState;
use crate::clock::rfc3339;
use crate::core::delivery::{End, FailureClass, State};
use crate::core::ids::{EndpointId, Seq};
use crate::core::time::UnixMillis;
use crate::store::{DeadLetter, DeliveryState, EventHead, StoreStats, StoredEvent};
use crate::wire::{DeadLetterView, DeliveryView, EventView, GeometryError, GeometryRef};

/// Schema of the envelope.
const SCHEMA: &str = "dlq.v1";
/// The only reference system that is taken: WGS 84 longitude, latitude (RFC 7946).
const EPSG: u32 = 4326;
/// Name of [`EndpointId::UNROUTED`] on the outside.
const UNROUTED: &str = "(unrouted)";

/// Names of endpoints by number, for one answer.
pub(super) struct Names(StoreStats);

impl Names {
    pub fn of(state: &AppState) -> Self {
        Self(state.outbox.stats())
    }

    pub fn name(&self, id: EndpointId) -> String {
        if id == EndpointId::UNROUTED {
            return UNROUTED.to_owned();
        }
        self.0.names.get(&id.0).cloned().unwrap_or_else(|| format!("endpoint-{}", id.0))
    }

    pub fn id(&self, name: &str) -> Option<EndpointId> {
        if name == UNROUTED {
            return Some(EndpointId::UNROUTED);
        }
        self.0.names.iter().find(|(_, known)| *known == name).map(|(id, _)| EndpointId(*id))
    }

    pub fn known(&self) -> String {
        self.0.names.values().cloned().collect::<Vec<_>>().join(", ")
    }

    /// Every endpoint that ever was, the one of unrouted events first.
    pub fn ids(&self) -> Vec<EndpointId> {
        self.0.names.keys().map(|id| EndpointId(*id)).collect()
    }
}

pub(super) fn event(head: &EventHead) -> EventView {
    EventView {
        id: head.id.to_string(),
        seq: head.seq.0,
        key: head.key.to_string(),
        device: head.device.to_string(),
        event_type: head.event_type.to_string(),
        accepted_at: rfc3339(head.accepted_at),
        observed_at: head.observed_at.map(rfc3339),
        bbox: head.bbox,
        body_bytes: head.body_bytes.into(),
    }
}

/// The word for a state, and the wait if there is one.
fn state_word(state: State, now: crate::core::time::StoreTime) -> (&'static str, Option<u64>) {
    match state {
        State::Pending => ("pending", None),
        State::Waiting(due) => ("waiting", u64::try_from(due.since(now).as_millis()).ok()),
        State::Dead => ("dead", None),
        State::Ended(End::Delivered) => ("delivered", None),
        State::Ended(End::Expired) => ("expired", None),
        State::Ended(End::Discarded) => ("discarded", None),
        State::Ended(End::Dropped) => ("dropped", None),
        State::Ended(End::Superseded) => ("superseded", None),
        State::Ended(End::Lost) => ("lost", None),
    }
}

pub(super) fn delivery(state: &AppState, names: &Names, delivery: DeliveryState) -> DeliveryView {
    let (word, due_in_ms) = state_word(delivery.state, state.clock.now().store);
    let endpoint = names.name(delivery.endpoint);
    let policy = state.config.endpoints.iter().find(|known| known.name.as_str() == endpoint);
    DeliveryView {
        endpoint,
        state: word.to_owned(),
        attempts: delivery.progress.attempts,
        charged: delivery.progress.charged,
        attempts_max: policy.map_or(0, |endpoint| endpoint.policy.retry.attempts_max),
        due_in_ms,
        history: delivery.progress.history,
        reason: delivery.reason.map(|reason| reason.message),
    }
}

/// Id of a dead letter: the event's id and the endpoint.
pub(super) fn dead_letter_id(letter: &DeadLetter, names: &Names) -> String {
    format!("{}.{}", letter.head.id, names.name(letter.endpoint))
}

/// The `dlq.v1` envelope; with the event's bytes if they are given.
pub(super) fn dead_letter(letter: &DeadLetter, names: &Names, body: Option<&StoredEvent>) -> DeadLetterView {
    let reason = &letter.reason;
    let is_geometry = reason.class == FailureClass::InvalidGeometry;
    let sha256 = body.map(|event| hex(&Sha256::digest(&event.body)));
    DeadLetterView {
        schema: SCHEMA.to_owned(),
        id: dead_letter_id(letter, names),
        event_id: letter.head.id.to_string(),
        idempotency_key: letter.head.key.to_string(),
        failure_class: reason.class,
        failed_stage: reason.stage,
        error_message: reason.message.clone(),
        geometry_error: is_geometry.then(|| GeometryError {
            reason: reason.message.clone(),
            location: reason.location,
            epsg: EPSG,
        }),
        source_crs: format!("EPSG:{EPSG}"),
        geometry: sha256.map(|sha256| GeometryRef { byte_size: letter.head.body_bytes.into(), sha256 }),
        raw_payload: body.map(|event| String::from_utf8_lossy(&event.body).into_owned()),
        endpoint: names.name(letter.endpoint),
        device: letter.head.device.to_string(),
        event_type: letter.head.event_type.to_string(),
        attempts: letter.progress.attempts,
        history: letter.progress.history.clone(),
        bbox: letter.head.bbox,
        first_seen_at: rfc3339(letter.head.accepted_at),
        dead_lettered_at: rfc3339(letter.dead_at),
        redrive_count: letter.progress.redrives,
        body_bytes: letter.head.body_bytes.into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An RFC 3339 time of a query.
pub(super) fn stamp(text: &str) -> Option<UnixMillis> {
    text.parse::<jiff::Timestamp>().ok().map(|time| UnixMillis(time.as_millisecond()))
}

/// Sequence of an event id of this store.
pub(super) fn seq(state: &AppState, id: &str) -> Option<Seq> {
    id.parse::<crate::core::ids::EventId>().ok()?.seq(state.outbox.salt())
}
