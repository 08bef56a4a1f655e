//! A feature to the event that the store appends: labels, time, place, verdict of the gate, endpoints, key.

use std::borrow::Cow;

use bytes::Bytes;

use crate::core::delivery::{DeadReason, FailureClass, Stage};
use crate::core::geometry::parse::{Limits, geometry as parse_geometry};
use crate::core::geometry::{Defect, Geometry, GeometryVerdict, bbox, check};
use crate::core::ids::{Device, EndpointId, EventType};
use crate::core::json::{DEPTH_MAX, Kind, Scanner, Span, SyntaxError, unescape};
use crate::core::key::{self, Parts, Recipe};
use crate::core::route::Subject;
use crate::core::time::UnixMillis;

use super::document::{Feature, duplicate, repeated};
use super::observed::observed;
use super::pointer::{Lookup, Pointer};
use super::reject::{Place, Rejection};
use super::settings::{EventMeta, GeometryGate, IntakeSettings, InvalidGeometry, within_limit};
use super::{Dedup, KeyPlan, NewEvent, crs};

/// Makes an event of a feature, or says why there is none.
///
/// Work grows with the feature's length, and n log n with its vertices; the caller takes heavy ones off the async
/// threads. The event owns its bytes: it keeps no larger buffer alive that the feature was cut from.
pub fn prepare(
    settings: &IntakeSettings,
    feature: &Feature,
    meta: &EventMeta,
) -> Result<NewEvent, Rejection> {
    let text = feature.text();
    if text.len() > settings.body_bytes_max {
        return Err(Rejection::TooLarge { bytes_max: settings.body_bytes_max });
    }
    let said = Said::read(settings, feature, meta)?;
    let place = Where::read(settings, feature)?;
    let subject = Subject { device: &said.device, event_type: &said.event_type, bbox: place.bbox };
    let endpoints = settings.routes.endpoints_for(&subject);
    let (deliver, dead) = place.judge(settings, endpoints)?;
    let keyed = Keyed::make(settings, feature, meta, &said)?;
    Ok(NewEvent {
        body: Bytes::copy_from_slice(feature.bytes()),
        digest: key::body_digest(feature.bytes()),
        identity: key::identity(keyed.digest),
        dedup: keyed.dedup,
        producer_keyed: meta.producer_key.is_some(),
        key: keyed.plan,
        deliver,
        dead,
        bbox: place.bbox,
        observed_at: said.observed_at,
        device: meta.device.clone().unwrap_or_else(|| Device::from(&*said.device)),
        event_type: meta.event_type.clone().unwrap_or_else(|| EventType::from(&*said.event_type)),
    })
}

/// The text whose SHA-256 is the identity of a feature (recipe `event`).
pub fn identity_text(
    settings: &IntakeSettings,
    feature: &Feature,
    meta: &EventMeta,
) -> Result<String, Rejection> {
    Said::read(settings, feature, meta)?.identity_text(settings, feature)
}

/// Device and type of a feature, as [`prepare`] would find them.
pub fn labels(
    settings: &IntakeSettings,
    feature: &Feature,
    meta: &EventMeta,
) -> Result<(Device, EventType), Rejection> {
    let said = Said::read(settings, feature, meta)?;
    Ok((Device::from(&*said.device), EventType::from(&*said.event_type)))
}

fn broken(text: &str) -> impl Fn(SyntaxError) -> Rejection {
    move |error| Rejection::syntax(text, error)
}

/// What headers and members say about an event.
struct Said<'a> {
    device: Cow<'a, str>,
    event_type: Cow<'a, str>,
    observed_at: Option<UnixMillis>,
    /// It has a time or a sequence: two equal events are one.
    told_apart: bool,
}

impl<'a> Said<'a> {
    fn read(settings: &IntakeSettings, feature: &'a Feature, meta: &'a EventMeta) -> Result<Self, Rejection> {
        let text = feature.text();
        let lookup = Lookup::new(text, feature.properties).map_err(broken(text))?;
        let pointers = &settings.pointers;
        let label = |header: Option<&'a str>, what, pointers: &[Pointer], fallback| {
            let found = match header {
                Some(text) => Cow::Borrowed(text),
                None => {
                    lookup.first(pointers).map_or(Cow::Borrowed(fallback), super::pointer::Scalar::into_text)
                }
            };
            within_limit(what, &found)?;
            Ok::<_, Rejection>(found)
        };
        let device =
            label(meta.device.as_ref().map(Device::as_str), "the device", &pointers.device, "unknown")?;
        let event_type = label(
            meta.event_type.as_ref().map(EventType::as_str),
            "the event type",
            &pointers.event_type,
            "feature",
        )?;
        // A member that the identity leaves out tells nothing apart.
        let counts = |pointer: &Pointer| {
            !pointers.volatile.iter().any(|left_out| pointer.tokens().starts_with(left_out.tokens()))
        };
        let (mut observed_at, mut told_apart) = (None, false);
        for pointer in &pointers.time {
            if let Some(time) = lookup.scalar(pointer).as_ref().and_then(observed) {
                observed_at = observed_at.or(time.at);
                told_apart |= counts(pointer);
            }
            if observed_at.is_some() && told_apart {
                break;
            }
        }
        told_apart |=
            pointers.sequence.iter().any(|pointer| counts(pointer) && lookup.scalar(pointer).is_some());
        Ok(Self { device, event_type, observed_at, told_apart })
    }

    fn identity_text(&self, settings: &IntakeSettings, feature: &Feature) -> Result<String, Rejection> {
        let text = feature.text();
        let others: Vec<(&str, &str)> =
            feature.others.iter().map(|(name, value)| (name.of(text), value.of(text))).collect();
        let parts = Parts {
            device: &self.device,
            event_type: &self.event_type,
            id: feature.id.map(|id| id.of(text)),
            geometry: feature.geometry.of(text),
            properties: feature.properties.map_or("null", |properties| properties.of(text)),
            others: &others,
        };
        let volatile: Vec<&[String]> = settings.pointers.volatile.iter().map(Pointer::tokens).collect();
        key::event_text(&parts, settings.precision, &volatile).map_err(broken(text))
    }
}

/// Identity and wire key.
struct Keyed {
    digest: key::Digest32,
    dedup: Dedup,
    plan: KeyPlan,
}

impl Keyed {
    fn make(
        settings: &IntakeSettings,
        feature: &Feature,
        meta: &EventMeta,
        said: &Said<'_>,
    ) -> Result<Self, Rejection> {
        if let Some(own) = &meta.producer_key {
            let digest = key::producer_digest(&said.device, own);
            let verbatim = settings.forward_producer_key;
            let key = if verbatim { (&**own).into() } else { key::event_key(digest) };
            return Ok(Self { digest, dedup: Dedup::Ttl, plan: KeyPlan::Fixed(key) });
        }
        let digest = key::sha256(said.identity_text(settings, feature)?.as_bytes());
        let dedup = if said.told_apart { Dedup::Ttl } else { Dedup::Window };
        let article = match settings.recipe {
            Recipe::Event => None,
            // What the article cannot key gets the other recipe's key.
            Recipe::Article => key::article_blob(feature.geometry_text(), settings.precision).ok(),
        };
        let plan = match article {
            Some(blob) => KeyPlan::Fixed(key::article_key(&said.device, &said.event_type, &blob)),
            None if said.told_apart => KeyPlan::Fixed(key::event_key(digest)),
            None => KeyPlan::WithSequence(digest),
        };
        Ok(Self { digest, dedup, plan })
    }
}

/// The place of an event and what the gate needs to know of it.
struct Where {
    geometry: Shape,
    bbox: Option<[f64; 4]>,
    /// A `crs` that is not WGS 84, by name.
    foreign_crs: Option<String>,
}

enum Shape {
    /// `geometry: null`
    None,
    /// Readable, not yet judged.
    Geometry(Geometry),
    /// Readable, and terminal already.
    Defective(Defect),
    /// No GeoJSON geometry.
    Unreadable(Rejection),
}

impl Where {
    fn read(settings: &IntakeSettings, feature: &Feature) -> Result<Self, Rejection> {
        let text = feature.text();
        let mut foreign = feature.collection_crs.as_deref().and_then(crs::foreign);
        foreign = foreign.or_else(|| feature.crs.and_then(|span| crs::foreign(span.of(text))));
        if feature.geometry.kind == Kind::Null {
            return Ok(Self { geometry: Shape::None, bbox: None, foreign_crs: foreign });
        }
        let own = members(&mut Scanner::at(text, feature.geometry.start))?;
        foreign = foreign.or_else(|| own.and_then(|span| crs::foreign(span.of(text))));
        let limits = Limits { vertices_max: settings.vertices_max, depth_max: DEPTH_MAX as usize };
        let geometry = match parse_geometry(feature.geometry.of(text), &limits) {
            Ok(geometry) => Shape::Geometry(geometry),
            Err(refusal) => {
                let place = Place::of(text.as_bytes(), feature.geometry.start + refusal.offset);
                let unreadable =
                    |refusal| Shape::Unreadable(Rejection::Geometry { refusal: Box::new(refusal), place });
                refusal.defect().map_or_else(|| unreadable(refusal), Shape::Defective)
            }
        };
        let bbox = if let Shape::Geometry(geometry) = &geometry { bbox(geometry) } else { None };
        Ok(Self { geometry, bbox, foreign_crs: foreign })
    }

    /// Parts the endpoints into those that get the event and those for which it is dead, with the reason.
    #[expect(clippy::type_complexity, reason = "the two lists of NewEvent")]
    fn judge(
        &self,
        settings: &IntakeSettings,
        endpoints: Vec<EndpointId>,
    ) -> Result<(Vec<EndpointId>, Vec<(EndpointId, DeadReason)>), Rejection> {
        let strictest = |gate| endpoints.iter().any(|id| settings.gate(*id) == gate);
        if let Shape::Unreadable(rejection) = &self.geometry
            && (endpoints.is_empty() || strictest(GeometryGate::Valid) || strictest(GeometryGate::Parse))
        {
            return Err(rejection.clone());
        }
        if endpoints.is_empty() {
            let message = "no route wants it".to_owned();
            return Ok((
                Vec::new(),
                vec![(EndpointId::UNROUTED, dead(FailureClass::Unrouted, Stage::Route, message))],
            ));
        }
        if let Some(name) = &self.foreign_crs {
            let message = format!("crs is {name:?}, not longitude and latitude on WGS 84");
            let reason = dead(FailureClass::CrsMismatch, Stage::Crs, message);
            return Ok((Vec::new(), endpoints.into_iter().map(|id| (id, reason.clone())).collect()));
        }
        if !strictest(GeometryGate::Valid) {
            return Ok((endpoints, Vec::new()));
        }
        let (reason, location) = match &self.geometry {
            Shape::None | Shape::Unreadable(_) => return Ok((endpoints, Vec::new())),
            Shape::Defective(defect) => (defect.kind.as_str(), defect.location),
            Shape::Geometry(geometry) => match check(geometry) {
                GeometryVerdict::Valid => return Ok((endpoints, Vec::new())),
                GeometryVerdict::Empty => ("empty geometry", None),
                GeometryVerdict::Invalid(defect) => (defect.kind.as_str(), defect.location),
            },
        };
        if settings.invalid_geometry == InvalidGeometry::Reject {
            return Err(Rejection::InvalidGeometry { reason, location });
        }
        let (gated, open): (Vec<_>, Vec<_>) =
            endpoints.into_iter().partition(|id| settings.gate(*id) == GeometryGate::Valid);
        let reason = DeadReason {
            location,
            ..dead(FailureClass::InvalidGeometry, Stage::Geometry, reason.to_owned())
        };
        Ok((open, gated.into_iter().map(|id| (id, reason.clone())).collect()))
    }
}

fn dead(class: FailureClass, stage: Stage, message: String) -> DeadReason {
    DeadReason { class, stage, message, location: None }
}

/// Refuses names that stand twice in a geometry or in one inside it, and finds the first `crs` member.
fn members(scanner: &mut Scanner<'_>) -> Result<Option<Span>, Rejection> {
    let text = scanner.text();
    let (mut names, mut found): (Vec<Span>, Option<Span>) = (Vec::with_capacity(4), None);
    let mut geometries = None;
    let walked = scanner.object(|scanner, name| {
        let value = scanner.value()?;
        names.push(name);
        match &*unescape(name.of(text)) {
            "crs" if value.kind != Kind::Null => found = Some(value),
            "geometries" if value.kind == Kind::Array => geometries = Some(value),
            _ => {}
        }
        Ok::<(), SyntaxError>(())
    });
    walked.map_err(broken(text))?;
    if let Some(name) = repeated(text, names.into_iter()) {
        return Err(duplicate(text, name, "geometry", 0, text));
    }
    if let Some(list) = geometries {
        let mut failed = None;
        let walked = Scanner::at(text, list.start).array(|scanner| {
            if scanner.peek() == Some(b'{') && failed.is_none() {
                match members(scanner) {
                    Ok(inner) => found = found.or(inner),
                    Err(rejection) => failed = Some(rejection),
                }
                return Ok(());
            }
            scanner.value().map(|_| ())
        });
        if let Some(rejection) = failed {
            return Err(rejection);
        }
        walked.map_err(broken(text))?;
    }
    Ok(found)
}
