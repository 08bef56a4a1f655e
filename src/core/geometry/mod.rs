//! The geometry gate: whether a geometry can ever be stored by a spatial receiver, judged as shapely / GEOS would.
//!
//! The seam is [`check`]: parsed positions in, verdict with reason and place out; [`parse::geometry`] makes them of text.

pub mod parse;
pub mod repair;

mod areas;
mod boxes;
mod explain;
mod orient;
mod status;
mod sweep;

use std::panic::{AssertUnwindSafe, catch_unwind};

use areas::Areas;
use serde_json::json;

/// A parsed GeoJSON geometry, positions as doubles (third and further numbers are kept out: validity is planar).
/// Rings are as received, closed or not: closure is [`check`]'s business.
#[derive(Clone, Debug, PartialEq)]
pub enum Geometry {
    /// `Point`; `None` for an empty coordinates array.
    Point(Option<[f64; 2]>),
    /// `MultiPoint`
    MultiPoint(Vec<[f64; 2]>),
    /// `LineString`
    LineString(Vec<[f64; 2]>),
    /// `MultiLineString`
    MultiLineString(Vec<Vec<[f64; 2]>>),
    /// `Polygon`: shell first
    Polygon(Vec<Vec<[f64; 2]>>),
    /// `MultiPolygon`
    MultiPolygon(Vec<Vec<Vec<[f64; 2]>>>),
    /// `GeometryCollection`
    GeometryCollection(Vec<Geometry>),
}

/// What the gate says.
#[derive(Clone, Debug, PartialEq)]
pub enum GeometryVerdict {
    /// Deliverable.
    Valid,
    /// No coordinates anywhere in it: terminal.
    Empty,
    /// Topologically invalid: terminal.
    Invalid(Defect),
}

/// A defect and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Defect {
    /// Kind of defect.
    pub kind: DefectKind,
    /// A position on the defect.
    pub location: Option<[f64; 2]>,
}

/// Kinds of defect, in GEOS's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DefectKind {
    /// "Self-intersection"
    SelfIntersection,
    /// "Ring Self-intersection"
    RingSelfIntersection,
    /// "Hole lies outside shell"
    HoleOutsideShell,
    /// "Holes are nested"
    NestedHoles,
    /// "Nested shells"
    NestedShells,
    /// "Duplicate Rings"
    DuplicateRings,
    /// "Interior is disconnected"
    DisconnectedInterior,
    /// "Too few points in geometry component"
    TooFewPoints,
    /// "Invalid Coordinate"
    InvalidCoordinate,
    /// "Ring is not closed"
    RingNotClosed,
    /// More vertices than `vertices_max`.
    TooManyVertices,
    /// 2D and 3D positions in one line, ring or MultiPoint: legal GeoJSON that shapely cannot read.
    MixedDimensions,
    /// A position of more than three numbers: legal GeoJSON that shapely cannot read.
    TooManyNumbers,
    /// The check itself panicked: the geometry is not trusted.
    CheckFailed,
}

impl DefectKind {
    /// The reason text, as GEOS words it where it has a word.
    pub fn as_str(self) -> &'static str {
        match self {
            DefectKind::SelfIntersection => "Self-intersection",
            DefectKind::RingSelfIntersection => "Ring Self-intersection",
            DefectKind::HoleOutsideShell => "Hole lies outside shell",
            DefectKind::NestedHoles => "Holes are nested",
            DefectKind::NestedShells => "Nested shells",
            DefectKind::DuplicateRings => "Duplicate Rings",
            DefectKind::DisconnectedInterior => "Interior is disconnected",
            DefectKind::TooFewPoints => "Too few points in geometry component",
            DefectKind::InvalidCoordinate => "Invalid Coordinate",
            DefectKind::RingNotClosed => "Ring is not closed",
            DefectKind::TooManyVertices => "Too many vertices",
            DefectKind::MixedDimensions => "2D and 3D positions are mixed",
            DefectKind::TooManyNumbers => "More than three numbers in a position",
            DefectKind::CheckFailed => "geometry check failed",
        }
    }
}

/// `[west, south, east, north]` over all positions, `None` without any. Antimeridian shapes are taken as given.
pub fn bbox(geometry: &Geometry) -> Option<[f64; 4]> {
    let mut bounds: Option<[f64; 4]> = None;
    geometry.for_each_position(&mut |[x, y]| {
        bounds = Some(match bounds {
            None => [x, y, x, y],
            Some([west, south, east, north]) => [west.min(x), south.min(y), east.max(x), north.max(y)],
        });
    });
    bounds
}

impl Geometry {
    /// Calls `f` with every position, in the order of the text.
    pub fn for_each_position(&self, f: &mut impl FnMut([f64; 2])) {
        match self {
            Geometry::Point(position) => position.iter().copied().for_each(f),
            Geometry::MultiPoint(line) | Geometry::LineString(line) => line.iter().copied().for_each(f),
            Geometry::MultiLineString(lines) | Geometry::Polygon(lines) => {
                lines.iter().flatten().copied().for_each(f);
            }
            Geometry::MultiPolygon(polygons) => polygons.iter().flatten().flatten().copied().for_each(f),
            Geometry::GeometryCollection(members) => {
                for member in members {
                    member.for_each_position(f);
                }
            }
        }
    }
}

impl Geometry {
    /// Its name in GeoJSON.
    pub fn type_name(&self) -> &'static str {
        match self {
            Geometry::Point(_) => "Point",
            Geometry::MultiPoint(_) => "MultiPoint",
            Geometry::LineString(_) => "LineString",
            Geometry::MultiLineString(_) => "MultiLineString",
            Geometry::Polygon(_) => "Polygon",
            Geometry::MultiPolygon(_) => "MultiPolygon",
            Geometry::GeometryCollection(_) => "GeometryCollection",
        }
    }

    /// As GeoJSON text; numbers are the shortest that read back.
    pub fn to_json(&self) -> String {
        let coordinates = match self {
            Geometry::Point(position) => position.map_or(json!([]), |position| json!(position)),
            Geometry::MultiPoint(line) | Geometry::LineString(line) => json!(line),
            Geometry::MultiLineString(lines) | Geometry::Polygon(lines) => json!(lines),
            Geometry::MultiPolygon(polygons) => json!(polygons),
            Geometry::GeometryCollection(members) => {
                let members: Vec<String> = members.iter().map(Geometry::to_json).collect();
                return format!(r#"{{"type":"GeometryCollection","geometries":[{}]}}"#, members.join(","));
            }
        };
        format!(r#"{{"type":"{}","coordinates":{coordinates}}}"#, self.type_name())
    }
}

/// Judges a geometry. Never panics; work grows as n log n.
///
/// The order of the rules is GEOS's: empty, coordinates, closure, number of points, intersections, holes, shells,
/// connected interior. Members of a collection are judged one by one, in order.
pub fn check(geometry: &Geometry) -> GeometryVerdict {
    if is_empty(geometry) {
        return GeometryVerdict::Empty;
    }
    // No panic is known to be reachable; if one is, this geometry is not trusted and the rest goes on.
    let judged = catch_unwind(AssertUnwindSafe(|| defect_of(geometry)));
    match judged {
        Ok(None) => GeometryVerdict::Valid,
        Ok(Some(defect)) => GeometryVerdict::Invalid(defect),
        Err(_) => GeometryVerdict::Invalid(Defect { kind: DefectKind::CheckFailed, location: None }),
    }
}

/// Whether there is no position in it at all.
fn is_empty(geometry: &Geometry) -> bool {
    match geometry {
        Geometry::Point(position) => position.is_none(),
        Geometry::MultiPoint(line) | Geometry::LineString(line) => line.is_empty(),
        Geometry::MultiLineString(lines) | Geometry::Polygon(lines) => lines.iter().all(Vec::is_empty),
        Geometry::MultiPolygon(polygons) => polygons.iter().flatten().all(Vec::is_empty),
        Geometry::GeometryCollection(members) => members.iter().all(is_empty),
    }
}

fn defect_of(geometry: &Geometry) -> Option<Defect> {
    match geometry {
        Geometry::Point(position) => not_finite(position.as_slice()),
        Geometry::MultiPoint(points) => not_finite(points),
        Geometry::LineString(line) => lines_defect(std::slice::from_ref(line)),
        Geometry::MultiLineString(lines) => lines_defect(lines),
        Geometry::Polygon(rings) => areas_defect(std::slice::from_ref(rings)),
        Geometry::MultiPolygon(polygons) => areas_defect(polygons),
        Geometry::GeometryCollection(members) => members.iter().find_map(defect_of),
    }
}

fn at(kind: DefectKind, location: [f64; 2]) -> Defect {
    Defect { kind, location: Some(location) }
}

fn not_finite(positions: &[[f64; 2]]) -> Option<Defect> {
    let wrong = positions.iter().find(|[x, y]| !x.is_finite() || !y.is_finite())?;
    Some(at(DefectKind::InvalidCoordinate, *wrong))
}

/// Lines need two different points each; they may cross and overlap as they like.
fn lines_defect(lines: &[Vec<[f64; 2]>]) -> Option<Defect> {
    lines.iter().find_map(|line| not_finite(line)).or_else(|| {
        let flat =
            |line: &&Vec<[f64; 2]>| line.first().is_some_and(|first| line.iter().all(|point| point == first));
        lines.iter().find(flat).map(|line| at(DefectKind::TooFewPoints, line[0]))
    })
}

fn areas_defect(polygons: &[Vec<Vec<[f64; 2]>>]) -> Option<Defect> {
    let rings = || polygons.iter().flatten().filter(|ring| !ring.is_empty());
    rings()
        .find_map(|ring| not_finite(ring))
        .or_else(|| rings().find_map(|ring| ring_defect(ring)))
        .or_else(|| areas::judge(&Areas::of(polygons)))
}

/// A ring ends where it began and has three corners at least, repeats not counted.
fn ring_defect(ring: &[[f64; 2]]) -> Option<Defect> {
    let (first, last) = (ring.first()?, ring.last()?);
    if ring.len() < 3 {
        return Some(at(DefectKind::TooFewPoints, *first));
    }
    if first != last {
        return Some(at(DefectKind::RingNotClosed, *last));
    }
    let steps = ring.windows(2).filter(|pair| pair[0] != pair[1]).take(3).count();
    if steps < 3 { Some(at(DefectKind::TooFewPoints, *first)) } else { None }
}
