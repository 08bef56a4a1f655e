//! What intake needs to know: checked settings, and what a request says about its events.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::core::ids::{Device, EndpointId, EventType};
use crate::core::key::Recipe;
use crate::core::route::Routes;

use super::pointer::Pointer;
use super::reject::Rejection;

/// Longest device, type or producer key. They go into headers, percent-encoded at up to three bytes for one, and
/// many servers take 8 KiB of headers in all.
pub const LABEL_BYTES_MAX: usize = 1024;

/// What becomes of an empty or invalid geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidGeometry {
    /// It is kept, as a dead letter with reason and place.
    #[default]
    DeadLetter,
    /// The producer is told (422) and nothing is stored.
    Reject,
}

/// How much an endpoint asks of a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GeometryGate {
    /// Valid as shapely / GEOS would judge it.
    #[default]
    Valid,
    /// A GeoJSON geometry, valid or not.
    Parse,
    /// Any JSON object. Only if every endpoint of an event says so is an unreadable geometry accepted.
    Off,
}

/// Where in a feature things are looked for; the first pointer that leads to a number or to text wins.
#[derive(Clone, Debug, PartialEq)]
pub struct Pointers {
    /// Who made it.
    pub device: Vec<Pointer>,
    /// What it is.
    pub event_type: Vec<Pointer>,
    /// When it was observed.
    pub time: Vec<Pointer>,
    /// Its number in the producer's own count.
    pub sequence: Vec<Pointer>,
    /// Members left out of the identity.
    pub volatile: Vec<Pointer>,
}

/// Default of `ingest.device_pointers`.
pub const DEVICE_POINTERS: &[&str] =
    &["/properties/device_id", "/properties/sensor_id", "/properties/device"];
/// Default of `ingest.type_pointers`.
pub const TYPE_POINTERS: &[&str] = &["/properties/event_type", "/properties/type"];
/// Default of `ingest.time_pointers`.
pub const TIME_POINTERS: &[&str] = &[
    "/properties/observed_at",
    "/properties/ts",
    "/properties/timestamp",
    "/properties/time",
    "/properties/datetime",
    "/properties/phenomenonTime",
    "/properties/resultTime",
];
/// Default of `ingest.sequence_pointers`.
pub const SEQUENCE_POINTERS: &[&str] = &["/properties/seq", "/properties/sequence"];

impl Default for Pointers {
    fn default() -> Self {
        let parsed = |texts: &[&str]| texts.iter().filter_map(|text| text.parse().ok()).collect();
        Self {
            device: parsed(DEVICE_POINTERS),
            event_type: parsed(TYPE_POINTERS),
            time: parsed(TIME_POINTERS),
            sequence: parsed(SEQUENCE_POINTERS),
            volatile: Vec::new(),
        }
    }
}

/// Settings of intake.
#[derive(Clone, Debug, PartialEq)]
pub struct IntakeSettings {
    /// What makes the wire key.
    pub recipe: Recipe,
    /// Decimal places of coordinates in keys.
    pub precision: u8,
    /// Where things are looked for.
    pub pointers: Pointers,
    /// Limit on one geometry.
    pub vertices_max: usize,
    /// Limit on one feature.
    pub body_bytes_max: usize,
    /// What becomes of an invalid geometry.
    pub invalid_geometry: InvalidGeometry,
    /// Send a producer's key as it came.
    pub forward_producer_key: bool,
    /// Gates of endpoints; one that is not listed has [`GeometryGate::Valid`].
    pub gates: Vec<(EndpointId, GeometryGate)>,
    /// Who gets what.
    pub routes: Routes,
}

impl Default for IntakeSettings {
    /// The defaults of the configuration, without endpoints.
    fn default() -> Self {
        Self {
            recipe: Recipe::Event,
            precision: 7,
            pointers: Pointers::default(),
            vertices_max: 250_000,
            body_bytes_max: 8 << 20,
            invalid_geometry: InvalidGeometry::DeadLetter,
            forward_producer_key: false,
            gates: Vec::new(),
            routes: Routes::default(),
        }
    }
}

impl IntakeSettings {
    /// The gate of an endpoint.
    pub fn gate(&self, endpoint: EndpointId) -> GeometryGate {
        self.gates.iter().find(|(id, _)| *id == endpoint).map_or(GeometryGate::Valid, |(_, gate)| *gate)
    }
}

/// What a request says about all its events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventMeta {
    /// `Waypost-Device`
    pub device: Option<Device>,
    /// `Waypost-Event-Type`
    pub event_type: Option<EventType>,
    /// `Idempotency-Key`; meant for one event only, which the caller sees to.
    pub producer_key: Option<Arc<str>>,
}

impl EventMeta {
    /// From header values as they came: UTF-8, at most [`LABEL_BYTES_MAX`] bytes. White space round them goes; a
    /// device or type with nothing left is as if absent, an empty key is refused (a producer that sends the header
    /// means to be protected by it).
    pub fn from_headers(
        device: Option<&[u8]>,
        event_type: Option<&[u8]>,
        producer_key: Option<&[u8]>,
    ) -> Result<Self, Rejection> {
        let device = device.map(|bytes| label("header Waypost-Device", bytes)).transpose()?;
        let event_type = event_type.map(|bytes| label("header Waypost-Event-Type", bytes)).transpose()?;
        let key = producer_key.map(|bytes| label("header Idempotency-Key", bytes)).transpose()?;
        if key.is_some_and(str::is_empty) {
            return Err(Rejection::Label { what: "header Idempotency-Key", problem: "is empty" });
        }
        Ok(Self {
            device: device.filter(|text| !text.is_empty()).map(Device::from),
            event_type: event_type.filter(|text| !text.is_empty()).map(EventType::from),
            producer_key: key.map(Arc::from),
        })
    }
}

fn label<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a str, Rejection> {
    let text = std::str::from_utf8(bytes).map_err(|_| Rejection::Label { what, problem: "is not UTF-8" })?;
    within_limit(what, text.trim())
}

/// Refuses a label that is too long.
pub(super) fn within_limit<'a>(what: &'static str, text: &'a str) -> Result<&'a str, Rejection> {
    if text.len() > LABEL_BYTES_MAX {
        return Err(Rejection::Label { what, problem: "is longer than 1024 bytes" });
    }
    Ok(text)
}
