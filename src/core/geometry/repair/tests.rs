//! The common defects, one by one.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::super::parse::{self, Limits};
use super::*;

fn mended(text: &str) -> (Geometry, Vec<Change>) {
    let repaired = repair(&parse::geometry(text, &Limits::default()).unwrap()).unwrap();
    (repaired.geometry, repaired.changes)
}

fn refused(text: &str) -> Unmendable {
    repair(&parse::geometry(text, &Limits::default()).unwrap()).unwrap_err()
}

#[test]
fn a_bow_tie_becomes_two_polygons() {
    let (geometry, changes) = mended(r#"{"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]}"#);
    let triangles = vec![
        vec![vec![[0.0, 0.0], [1.0, 1.0], [0.0, 2.0], [0.0, 0.0]]],
        vec![vec![[1.0, 1.0], [2.0, 0.0], [2.0, 2.0], [1.0, 1.0]]],
    ];
    assert_eq!(geometry, Geometry::MultiPolygon(triangles));
    assert_eq!(changes, [Change::Rebuilt, Change::TypeChanged]);
}

#[test]
fn spikes_open_rings_and_holes_outside_are_mended() {
    let (geometry, changes) =
        mended(r#"{"type":"Polygon","coordinates":[[[0,0],[2,0],[5,0],[2,0],[2,2],[0,2],[0,0]]]}"#);
    assert_eq!(
        geometry,
        Geometry::Polygon(vec![vec![[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0], [0.0, 0.0]]])
    );
    assert_eq!(changes, [Change::Rebuilt]);
    let (geometry, changes) = mended(r#"{"type":"Polygon","coordinates":[[[0,0],[0,2],[2,2],[2,0]]]}"#);
    // A ring that only had to be closed keeps its direction.
    assert_eq!(
        geometry,
        Geometry::Polygon(vec![vec![[0.0, 0.0], [0.0, 2.0], [2.0, 2.0], [2.0, 0.0], [0.0, 0.0]]])
    );
    assert_eq!(changes, [Change::RingClosed]);
    let (geometry, _) = mended(
        r#"{"type":"Polygon","coordinates":[[[0,0],[2,0],[2,2],[0,2],[0,0]],[[5,5],[6,5],[6,6],[5,5]]]}"#,
    );
    assert!(matches!(geometry, Geometry::MultiPolygon(parts) if parts.len() == 2));
    let (geometry, _) = mended(
        r#"{"type":"MultiPolygon","coordinates":[[[[0,0],[9,0],[9,9],[0,9],[0,0]]],[[[2,2],[4,2],[4,4],[2,2]]]]}"#,
    );
    // A part within a part is cut out of it, as GEOS does.
    assert!(matches!(geometry, Geometry::MultiPolygon(parts) if parts.len() == 1 && parts[0].len() == 2));
}

#[test]
fn a_ring_that_touches_itself_becomes_shell_and_hole() {
    let (geometry, _) = mended(
        r#"{"type":"Polygon","coordinates":[[[0,0],[4,0],[8,0],[8,8],[0,8],[0,0]],[[4,0],[6,3],[4,2],[2,3],[4,0]],[[4,2],[5,6],[3,6],[4,2]]]}"#,
    );
    assert_eq!(check(&geometry), GeometryVerdict::Valid);
    let (geometry, _) = mended(
        r#"{"type":"Polygon","coordinates":[[[0,0],[4,0],[6,4],[2,4],[4,0],[8,0],[8,8],[0,8],[0,0]]]}"#,
    );
    assert!(matches!(geometry, Geometry::Polygon(rings) if rings.len() == 2));
}

#[test]
fn what_cannot_be_mended_says_so() {
    assert_eq!(refused(r#"{"type":"LineString","coordinates":[[1,1],[1,1]]}"#), Unmendable::Collapsed);
    assert_eq!(
        refused(r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[2,2],[0,0]]]}"#),
        Unmendable::Collapsed
    );
    assert_eq!(refused(r#"{"type":"Polygon","coordinates":[]}"#), Unmendable::Empty);
    assert_eq!(repair(&Geometry::Point(Some([f64::NAN, 1.0]))).unwrap_err(), Unmendable::NotFinite);
    let (geometry, changes) =
        mended(r#"{"type":"MultiLineString","coordinates":[[[1,1],[1,1]],[[0,0],[1,1]]]}"#);
    assert_eq!(geometry, Geometry::MultiLineString(vec![vec![[0.0, 0.0], [1.0, 1.0]]]));
    assert_eq!(changes, [Change::PartDropped]);
}
