//! The geometry gate: whether a geometry can ever be stored by a spatial receiver, judged as shapely / GEOS would.
//!
//! The seam is [`check`]: parsed positions in, verdict with reason and place out; [`parse::geometry`] makes them of text.

mod basic;
pub mod parse;

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

/// Judges a geometry. Never panics: a panic in a routine below becomes [`DefectKind::CheckFailed`].
pub fn check(geometry: &Geometry) -> GeometryVerdict {
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| basic::judge(geometry)));
    judged.unwrap_or(GeometryVerdict::Invalid(Defect { kind: DefectKind::CheckFailed, location: None }))
}
