//! A stored event with an invalid geometry to a new event with a mended one.
//!
//! The new event is linked to the old by a foreign member `repaired_from` of the Feature (RFC 7946 section 6.1), which
//! holds the id of the dead letter. It has its own bytes, so its own key; and because the id goes into the identity,
//! mending the same letter twice gives the same event: the store answers "duplicate". Everything but the geometry and
//! that member stays byte for byte, a `bbox` member too: areas only shrink to what they enclose.

use bytes::Bytes;

use crate::core::geometry::parse::{GeometryRefusal, Limits, geometry as parse_geometry};
use crate::core::geometry::repair::{Change, Repaired, Unmendable, repair};
use crate::core::ids::EndpointId;
use crate::core::json::{DEPTH_MAX, unescape};
use crate::core::key;

use super::document::{Feature, document};
use super::prepare::prepare;
use super::reject::Rejection;
use super::settings::{EventMeta, IntakeSettings};
use super::{Dedup, KeyPlan, NewEvent};

/// Member that names the dead letter which an event replaces.
pub const REPAIRED_FROM: &str = "repaired_from";

/// A dead letter's replacement.
#[derive(Clone, Debug, PartialEq)]
pub struct Mended {
    /// What the store appends.
    pub event: NewEvent,
    /// What was done to the geometry.
    pub changes: Vec<Change>,
    /// GeoJSON type before and after.
    pub types: (&'static str, &'static str),
}

/// Why there is no replacement.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotMended {
    /// The bytes cannot be read as a feature, or the new ones are refused.
    #[error("{0}")]
    Feature(#[from] Rejection),
    /// There is no geometry.
    #[error("it has no geometry")]
    NoGeometry,
    /// The geometry cannot be read.
    #[error("its geometry cannot be read: {0}")]
    Unreadable(#[from] Box<GeometryRefusal>),
    /// It died of something else.
    #[error("its geometry is valid; there is nothing to repair")]
    ValidAlready,
    /// There is no valid geometry close to this one.
    #[error("its geometry cannot be mended: {0}")]
    Unmendable(#[from] Unmendable),
    /// The routes do not lead to the endpoint of the letter any more.
    #[error("no route leads to its endpoint any more")]
    Unrouted,
}

/// Makes the replacement of a dead letter for `endpoint`, which is called `letter`; `meta` holds the labels of the old
/// event. Heavy for large geometries: n log n and more where lines cross.
pub fn mend(
    settings: &IntakeSettings,
    body: &Bytes,
    meta: &EventMeta,
    letter: &str,
    endpoint: EndpointId,
) -> Result<Mended, NotMended> {
    let old = one_feature(body.clone())?;
    if old.geometry_text() == "null" {
        return Err(NotMended::NoGeometry);
    }
    let limits = Limits { vertices_max: settings.vertices_max, depth_max: DEPTH_MAX as usize };
    let geometry = parse_geometry(old.geometry_text(), &limits).map_err(Box::new)?;
    let Repaired { geometry: mended, changes } = repair(&geometry)?;
    if changes.is_empty() {
        return Err(NotMended::ValidAlready);
    }
    let text = old.linked(&mended.to_json(), letter);
    let mut event = prepare(settings, &one_feature(text.into())?, meta)?;
    event.deliver.retain(|id| *id == endpoint);
    if event.deliver.is_empty() {
        return Err(NotMended::Unrouted);
    }
    event.dead.clear();
    // The letter's id tells it apart from everything else, with or without a time of its own.
    event.dedup = Dedup::Ttl;
    if let KeyPlan::WithSequence(digest) = event.key {
        event.key = KeyPlan::Fixed(key::event_key(digest));
    }
    Ok(Mended { event, changes, types: (geometry.type_name(), mended.type_name()) })
}

/// A stored body: one Feature.
fn one_feature(body: Bytes) -> Result<Feature, NotMended> {
    let first = document(body)?.into_iter().next();
    Ok(first.ok_or(NotMended::NoGeometry)??)
}

impl Feature {
    /// The text with another geometry, all else as it was.
    pub fn with_geometry(&self, geometry: &str) -> String {
        let text = self.text();
        [&text[..self.geometry.start], geometry, &text[self.geometry.end..]].concat()
    }

    /// The text with another geometry and a `repaired_from`; an earlier one gives way.
    fn linked(&self, geometry: &str, letter: &str) -> String {
        let text = self.text();
        let letter = serde_json::Value::from(letter).to_string();
        let earlier = self.others.iter().find(|(name, _)| unescape(name.of(text)) == REPAIRED_FROM);
        let Some((_, earlier)) = earlier else {
            return self.with_geometry(&format!("{geometry},\"{REPAIRED_FROM}\":{letter}"));
        };
        let mut edits = [(self.geometry, geometry), (*earlier, &*letter)];
        edits.sort_by_key(|(span, _)| span.start);
        let [(first, a), (second, b)] = edits;
        [&text[..first.start], a, &text[first.end..second.start], b, &text[second.end..]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::delivery::FailureClass;

    const ENDPOINT: EndpointId = EndpointId(1);
    const BOW_TIE: &str = r#"{ "type":"Feature","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}, "properties":{"device_id":"d"} }"#;

    fn settings() -> IntakeSettings {
        IntakeSettings {
            routes: crate::core::route::Routes::new(vec![ENDPOINT], Vec::new()),
            ..IntakeSettings::default()
        }
    }

    fn mended(body: &str, letter: &str) -> Result<Mended, NotMended> {
        mend(&settings(), &Bytes::copy_from_slice(body.as_bytes()), &EventMeta::default(), letter, ENDPOINT)
    }

    #[test]
    fn a_bow_tie_becomes_a_new_event_of_its_own_key() {
        let old = document(Bytes::from(BOW_TIE)).unwrap().into_iter().next().unwrap().unwrap();
        let old = prepare(&settings(), &old, &EventMeta::default()).unwrap();
        assert_eq!(old.dead[0].1.class, FailureClass::InvalidGeometry);
        let new = mended(BOW_TIE, "e.hq").unwrap();
        assert_eq!(new.types, ("Polygon", "MultiPolygon"));
        assert_eq!(new.changes, [Change::Rebuilt, Change::TypeChanged]);
        assert_eq!(new.event.deliver, [ENDPOINT]);
        assert_eq!(new.event.dead, []);
        assert_ne!(new.event.identity, old.identity);
        let text = std::str::from_utf8(&new.event.body).unwrap();
        assert!(text.starts_with(r#"{ "type":"Feature","geometry":{"type":"MultiPolygon","#), "{text}");
        assert!(text.ends_with(r#","repaired_from":"e.hq", "properties":{"device_id":"d"} }"#), "{text}");
        assert_eq!(mended(BOW_TIE, "e.hq").unwrap(), new, "the same letter gives the same event");
        assert!(matches!(new.event.key, KeyPlan::Fixed(_)));
        let other = mended(BOW_TIE, "f.hq").unwrap();
        assert_ne!(
            other.event.identity, new.event.identity,
            "equal bytes of another letter are another event"
        );
    }

    #[test]
    fn an_earlier_link_gives_way_wherever_it_stands() {
        for body in [
            BOW_TIE.replace(r#""geometry""#, r#""repaired_from":"old","geometry""#),
            BOW_TIE.replace(r#""properties""#, r#""repaired\u005ffrom" : 7,"properties""#),
        ] {
            let text = mended(&body, "a\"b").unwrap().event.body;
            let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(value["repaired_from"], "a\"b", "{body}");
            assert_eq!(value["geometry"]["type"], "MultiPolygon");
        }
    }

    #[test]
    fn what_cannot_be_mended_says_why() {
        let with = |geometry: &str| {
            let body = format!(r#"{{"type":"Feature","geometry":{geometry},"properties":null}}"#);
            mended(&body, "e.hq").unwrap_err()
        };
        assert_eq!(with("null"), NotMended::NoGeometry);
        assert_eq!(with(r#"{"type":"Point","coordinates":[1,2]}"#), NotMended::ValidAlready);
        assert_eq!(
            with(r#"{"type":"LineString","coordinates":[[1,2],[1,2]]}"#),
            NotMended::Unmendable(Unmendable::Collapsed)
        );
        assert_eq!(with(r#"{"type":"Polygon","coordinates":[]}"#), NotMended::Unmendable(Unmendable::Empty));
        assert!(matches!(
            with(r#"{"type":"LineString","coordinates":[[1,2],[1,2,3]]}"#),
            NotMended::Unreadable(_)
        ));
        assert!(matches!(mended("{", "e.hq"), Err(NotMended::Feature(_))));
        let settings = IntakeSettings::default();
        let body = Bytes::from(BOW_TIE);
        let lost = mend(&settings, &body, &EventMeta::default(), "e.hq", ENDPOINT);
        assert_eq!(lost, Err(NotMended::Unrouted));
    }
}
