//! Why a text makes no event: one sentence that names what and where, and the status it deserves alone.

use crate::core::geometry::parse::GeometryRefusal;
use crate::core::json::{Fault, SyntaxError};

use super::split::SplitError;

/// A place in a text, from 1, as editors count: lines and characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

impl Place {
    /// The place of byte `at` in `text`.
    pub fn of(text: &[u8], at: usize) -> Self {
        let before = &text[..at.min(text.len())];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        // Bytes that go on with a character (10xxxxxx) are no new column.
        let column = before[line_start..].iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1;
        Self { line: before.iter().filter(|byte| **byte == b'\n').count() + 1, column }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a text, or one of its features, is refused. Nothing of it is stored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// No JSON.
    #[error("not JSON: {fault} at {place}")]
    Syntax {
        /// What is wrong.
        fault: Fault,
        /// Where.
        place: Place,
    },
    /// A byte that UTF-8 does not have.
    #[error("not UTF-8 at {place}")]
    NotUtf8 {
        /// Where.
        place: Place,
    },
    /// JSON, but no GeoJSON object.
    #[error("not GeoJSON: {0}")]
    NotGeoJson(NotGeoJson),
    /// One member name twice: two readers would see two documents.
    #[error("member {name:?} stands twice in the {within} (second at {place})")]
    Duplicate {
        /// The name.
        name: String,
        /// `feature`, `collection` or `geometry`.
        within: &'static str,
        /// Where the second one stands.
        place: Place,
    },
    /// A member that is missing or has the wrong form.
    #[error("member {member:?} {problem}")]
    Member {
        /// Its name.
        member: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The geometry is no GeoJSON geometry.
    #[error("geometry: {} in geometry{} at {place}", .refusal.kind, .refusal.pointer)]
    Geometry {
        /// The parser's words.
        refusal: Box<GeometryRefusal>,
        /// Where in the text.
        place: Place,
    },
    /// Well-formed, but empty or topologically invalid, and `invalid_geometry = "reject"`.
    #[error("invalid geometry: {reason}{}", at(*.location))]
    InvalidGeometry {
        /// In GEOS's words.
        reason: &'static str,
        /// Where on the map.
        location: Option<[f64; 2]>,
    },
    /// Longer than `body_bytes_max`.
    #[error("longer than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// Text before the first record separator of a text sequence.
    #[error("{0}")]
    NoSeparator(SplitError),
    /// A device, type or key that cannot be used.
    #[error("{what} {problem}")]
    Label {
        /// Which, for example ``header `Waypost-Device` ``.
        what: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// What was found where a GeoJSON object should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotGeoJson {
    /// Another kind of JSON value.
    #[error("{0} instead of an object")]
    NotAnObject(&'static str),
    /// No `type`, or one that is no string.
    #[error("member \"type\" is missing or no string")]
    NoType,
    /// A `type` that cannot stand there.
    #[error("\"type\" is {found:?}; {wanted} is wanted")]
    UnknownType {
        /// Start of the type's text.
        found: String,
        /// What could stand there.
        wanted: &'static str,
    },
}

fn at(location: Option<[f64; 2]>) -> String {
    location.map_or_else(String::new, |[x, y]| format!(" at [{x}, {y}]"))
}

impl Rejection {
    /// A syntax error with its place in `text`.
    pub fn syntax(text: &str, error: SyntaxError) -> Self {
        Self::Syntax { fault: error.fault, place: Place::of(text.as_bytes(), error.at) }
    }

    /// The HTTP status this deserves when nothing else of the request was of use.
    pub fn http_status(&self) -> u16 {
        match self {
            Rejection::TooLarge { .. } => 413,
            Rejection::InvalidGeometry { .. } => 422,
            _ => 400,
        }
    }

    /// A stable word for problem types and counters.
    pub fn slug(&self) -> &'static str {
        match self {
            Rejection::Syntax { .. } | Rejection::NotUtf8 { .. } | Rejection::NoSeparator(_) => "not-json",
            Rejection::NotGeoJson(_)
            | Rejection::Duplicate { .. }
            | Rejection::Member { .. }
            | Rejection::Geometry { .. } => "not-geojson",
            Rejection::InvalidGeometry { .. } => "invalid-geometry",
            Rejection::TooLarge { .. } => "too-large",
            Rejection::Label { .. } => "bad-label",
        }
    }
}

impl From<SplitError> for Rejection {
    fn from(error: SplitError) -> Self {
        match error {
            SplitError::TooLarge { bytes_max } => Rejection::TooLarge { bytes_max },
            SplitError::NoSeparator => Rejection::NoSeparator(error),
        }
    }
}
