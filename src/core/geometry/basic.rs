//! The gate by `geo`'s validation, with what it lacks: recursive emptiness, closure, flat rings, and a place.
//!

use geo::algorithm::Validation;
use geo::algorithm::validation::{InvalidMultiPolygon, InvalidPolygon};
use geo::line_intersection::{LineIntersection, line_intersection};
use geo::{Coord, Line, LineString, MultiPolygon, Polygon};

use super::{Defect, DefectKind, Geometry, GeometryVerdict};

/// Judges a geometry of any type.
pub(super) fn judge(geometry: &Geometry) -> GeometryVerdict {
    if is_empty(geometry) {
        return GeometryVerdict::Empty;
    }
    match defect(geometry) {
        None => GeometryVerdict::Valid,
        Some(defect) => GeometryVerdict::Invalid(defect),
    }
}

fn is_empty(geometry: &Geometry) -> bool {
    let mut any = false;
    geometry.for_each_position(&mut |_| any = true);
    !any
}

fn defect(geometry: &Geometry) -> Option<Defect> {
    match geometry {
        Geometry::Point(_) | Geometry::MultiPoint(_) => None,
        Geometry::LineString(line) => line_defect(line),
        Geometry::MultiLineString(lines) => lines.iter().find_map(|line| line_defect(line)),
        Geometry::Polygon(rings) => polygon_defect(rings),
        Geometry::MultiPolygon(polygons) => {
            polygons.iter().find_map(|rings| polygon_defect(rings)).or_else(|| parts_defect(polygons))
        }
        Geometry::GeometryCollection(members) => members.iter().find_map(defect),
    }
}

fn found(kind: DefectKind, location: Option<[f64; 2]>) -> Option<Defect> {
    Some(Defect { kind, location })
}

fn line_defect(line: &[[f64; 2]]) -> Option<Defect> {
    let first = line.first()?;
    if line.iter().all(|position| position == first) {
        return found(DefectKind::TooFewPoints, Some(*first));
    }
    None
}

fn polygon_defect(rings: &[Vec<[f64; 2]>]) -> Option<Defect> {
    for ring in rings.iter().filter(|ring| !ring.is_empty()) {
        if ring.first() != ring.last() {
            return found(DefectKind::RingNotClosed, ring.first().copied());
        }
        let mut distinct: Vec<[f64; 2]> = Vec::new();
        for position in ring {
            if distinct.len() < 3 && !distinct.contains(position) {
                distinct.push(*position);
            }
        }
        if distinct.len() < 3 {
            return found(DefectKind::TooFewPoints, ring.first().copied());
        }
        let flat = ring.iter().all(|position| {
            robust::orient2d(coord(distinct[0]), coord(distinct[1]), coord(*position)) == 0.0
        });
        if flat {
            return found(DefectKind::SelfIntersection, Some(distinct[0]));
        }
    }
    match polygon(rings).check_validation() {
        Ok(()) => None,
        Err(error) => found(kind(&error), place(&error, rings)),
    }
}

fn kind(error: &InvalidPolygon) -> DefectKind {
    match error {
        InvalidPolygon::TooFewPointsInRing(_) => DefectKind::TooFewPoints,
        InvalidPolygon::NonFiniteCoord(..) => DefectKind::InvalidCoordinate,
        InvalidPolygon::InteriorRingNotContainedInExteriorRing(_) => DefectKind::HoleOutsideShell,
        InvalidPolygon::SelfIntersection(_)
        | InvalidPolygon::IntersectingRingsOnALine(..)
        | InvalidPolygon::IntersectingRingsOnAnArea(..) => DefectKind::SelfIntersection,
    }
}

fn place(error: &InvalidPolygon, rings: &[Vec<[f64; 2]>]) -> Option<[f64; 2]> {
    match error {
        InvalidPolygon::InteriorRingNotContainedInExteriorRing(_) => rings.get(1)?.first().copied(),
        _ => crossing(rings),
    }
}

/// Where two segments meet in another way than as neighbours.
fn crossing(rings: &[Vec<[f64; 2]>]) -> Option<[f64; 2]> {
    let segments: Vec<Line> = rings
        .iter()
        .flat_map(|ring| ring.windows(2))
        .filter(|pair| pair[0] != pair[1])
        .map(|pair| Line::new(xy(pair[0]), xy(pair[1])))
        .collect();
    let mut touch = None;
    for (index, a) in segments.iter().enumerate() {
        for b in &segments[index + 1..] {
            match line_intersection(*a, *b) {
                Some(LineIntersection::SinglePoint { intersection, is_proper: true }) => {
                    return Some([intersection.x, intersection.y]);
                }
                Some(LineIntersection::Collinear { intersection }) => {
                    return Some([intersection.start.x, intersection.start.y]);
                }
                Some(LineIntersection::SinglePoint { intersection, .. })
                    if a.end != b.start && a.start != b.end =>
                {
                    touch.get_or_insert([intersection.x, intersection.y]);
                }
                _ => {}
            }
        }
    }
    touch
}

fn parts_defect(polygons: &[Vec<Vec<[f64; 2]>>]) -> Option<Defect> {
    let parts: Vec<Polygon> =
        polygons.iter().filter(|rings| !rings.is_empty()).map(|rings| polygon(rings)).collect();
    let rings: Vec<_> = polygons.iter().flatten().cloned().collect();
    match MultiPolygon(parts).check_validation() {
        Ok(()) => None,
        Err(InvalidMultiPolygon::InvalidPolygon(_, error)) => found(kind(&error), place(&error, &rings)),
        Err(_) => {
            found(DefectKind::SelfIntersection, crossing(&rings).or_else(|| rings.last()?.first().copied()))
        }
    }
}

fn polygon(rings: &[Vec<[f64; 2]>]) -> Polygon {
    let mut lines = rings
        .iter()
        .filter(|ring| !ring.is_empty())
        .map(|ring| LineString(ring.iter().map(|position| xy(*position)).collect()));
    let shell = lines.next().unwrap_or_else(|| LineString(Vec::new()));
    Polygon::new(shell, lines.collect())
}

fn xy([x, y]: [f64; 2]) -> Coord {
    Coord { x, y }
}

fn coord([x, y]: [f64; 2]) -> robust::Coord<f64> {
    robust::Coord { x, y }
}
