//! What must hold for any bytes, whoever makes them up: the fuzzer, or `tests/it/geometry/corpus.rs`.

use bytes::Bytes;
use waypost::core::event::{EventMeta, IntakeSettings, NotMended, document, mend, prepare};
use waypost::core::geometry::parse::{self, Limits};
use waypost::core::geometry::repair::{Unmendable, repair};
use waypost::core::geometry::{Geometry, GeometryVerdict, bbox, check};
use waypost::core::ids::EndpointId;
use waypost::core::route::Routes;

/// Keeps one input short in time; the bounds of the work have tests of their own.
const VERTICES_MAX: usize = 5_000;

/// The text of a geometry, and the body of a post, judged and mended: no panic, and no answer contradicts another.
pub fn geometry(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return post(data) };
    let limits = Limits { vertices_max: VERTICES_MAX, ..Limits::default() };
    match parse::geometry(text, &limits) {
        Ok(geometry) => {
            judged(&geometry, &limits);
            post(format!(r#"{{"type":"Feature","geometry":{text},"properties":null}}"#).as_bytes());
        }
        Err(refusal) => {
            assert!(refusal.offset <= text.len());
            assert!(!refusal.to_string().is_empty());
            post(data);
        }
    }
}

fn judged(geometry: &Geometry, limits: &Limits) {
    geometry.for_each_position(&mut |[x, y]| {
        assert!(x.is_finite() && y.is_finite(), "only finite numbers come in");
    });
    let verdict = check(geometry);
    assert_eq!(verdict, check(geometry), "the same twice");
    match &verdict {
        GeometryVerdict::Empty => assert_eq!(bbox(geometry), None),
        GeometryVerdict::Valid => {
            assert_eq!(repair(geometry).map(|done| done.geometry).as_ref(), Ok(geometry));
        }
        GeometryVerdict::Invalid(defect) => {
            assert_ne!(defect.kind.as_str(), "geometry check failed", "the check panicked: {geometry:?}");
            // Within the extent, but for what rounding a crossing may do.
            let ([x, y], [west, south, east, north]) = (defect.location.unwrap(), bbox(geometry).unwrap());
            assert!((west..=east).contains(&x) && (south..=north).contains(&y), "{defect:?} {geometry:?}");
        }
    }
    let again = parse::geometry(&geometry.to_json(), limits);
    // What parses is written so that it parses; empty parts between others are written away by no one.
    assert_eq!(again.as_ref(), Ok(geometry), "reads back as it was written");
    if let Ok(done) = repair(geometry) {
        assert_eq!(check(&done.geometry), GeometryVerdict::Valid, "mended is valid: {geometry:?}");
        assert!(done.changes.is_empty() == (verdict == GeometryVerdict::Valid), "changes are stated");
    }
}

fn post(data: &[u8]) {
    let endpoint = EndpointId(1);
    let settings = IntakeSettings {
        vertices_max: VERTICES_MAX,
        routes: Routes::new(vec![endpoint], Vec::new()),
        ..IntakeSettings::default()
    };
    let meta = EventMeta::default();
    let Ok(document) = document(Bytes::copy_from_slice(data)) else { return };
    for feature in document.into_iter().flatten() {
        let Ok(event) = prepare(&settings, &feature, &meta) else { continue };
        let mended = mend(&settings, &event.body, &meta, "letter", endpoint);
        match event.dead.first() {
            // Delivered: nothing to mend.
            None => {
                assert!(matches!(mended, Err(NotMended::ValidAlready | NotMended::NoGeometry)), "{mended:?}");
            }
            Some(_) => match mended {
                Ok(mended) => {
                    assert_eq!(mended.event.deliver, [endpoint]);
                    assert_ne!(mended.event.identity, event.identity);
                    assert_ne!(mended.event.body, event.body);
                }
                Err(NotMended::Unmendable(Unmendable::NotFinite)) => panic!("only finite numbers come in"),
                Err(_) => {}
            },
        }
    }
}
