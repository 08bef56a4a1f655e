//! The text of a `geometry` value to a [`Geometry`], strictly by RFC 7946, or a refusal that names member and place.
//!
//! How it fits: intake calls [`geometry`] on the exact bytes of the `geometry` member, then [`super::check`] on what
//! comes back. Two kinds of "no" are kept apart: text that is no GeoJSON geometry is refused; text that is one, yet
//! that no receiver built on shapely / GEOS can take (see [`GeometryRefusal::defect`]), is a terminal defect.
//!
//! Invariants: every number of the result is finite and the double nearest to its text; every position had two numbers
//! at least; the depth of the text is bounded before anything recurses; work is linear in the text.
//!
//! What it does not do: it keeps no altitude (validity is planar), it never closes a ring or mends anything, and it
//! accepts any longitude and latitude.
//!
//! Decisions where RFC 7946 leaves room, each equal to what shapely does with the text:
//! * `coordinates: []` is an empty geometry for every type, and so is a polygon of empty rings; a line of one position,
//!   a ring of one or two, an empty part of a Multi* geometry and holes without a shell are refused.
//! * 2D and 3D positions mixed within one line, ring, or MultiPoint, and positions of more than three numbers, parse
//!   as GeoJSON (RFC 7946 does not forbid them) but are a terminal defect: shapely cannot read them.
//! * members of Features inside a geometry (section 7.1), duplicate defining members, and a wrong `bbox` are refused.

use serde::de::IgnoredAny;

use super::{Defect, DefectKind, Geometry};

/// Bounds on one geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Positions in all parts together; more is [`DefectKind::TooManyVertices`].
    pub vertices_max: usize,
    /// Arrays and objects open at once, the geometry itself being the first.
    pub depth_max: usize,
}

impl Default for Limits {
    /// `vertices_max` is the default of `[ingest] vertices_max`; 128 levels are what `serde_json` reads.
    fn default() -> Self {
        Limits { vertices_max: 250_000, depth_max: 128 }
    }
}

/// Why a text is no acceptable geometry, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{kind} at {}", place(.pointer, *.offset))]
pub struct GeometryRefusal {
    /// What is wrong.
    pub kind: RefusalKind,
    /// JSON pointer, relative to the geometry; empty for the geometry itself.
    pub pointer: String,
    /// Byte offset in the text.
    pub offset: usize,
    /// The position concerned, where its numbers could be read.
    pub location: Option<[f64; 2]>,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalKind {
    /// The text is no JSON (cut off, NaN, …).
    #[error("not JSON ({message})")]
    NotJson {
        /// The JSON parser's words.
        message: String,
    },
    /// Deeper than [`Limits::depth_max`].
    #[error("nested deeper than {depth_max} levels")]
    TooDeep {
        /// The limit.
        depth_max: usize,
    },
    /// Something else stands where a geometry object belongs.
    #[error("a geometry must be an object")]
    NotAnObject,
    /// No `type`, or one that is no string.
    #[error("a geometry needs a \"type\" string")]
    NoType,
    /// A `type` that RFC 7946 does not know.
    #[error("unknown geometry type {0:?}")]
    UnknownType(String),
    /// The defining member is not there.
    #[error("member {0:?} is missing")]
    MemberMissing(&'static str),
    /// A defining member stands there twice: two readers would see two geometries.
    #[error("member {0:?} is duplicated")]
    MemberDuplicated(&'static str),
    /// A member that must not stand in this geometry (RFC 7946 section 7.1).
    #[error("member {0:?} does not belong in this geometry")]
    MemberMisplaced(&'static str),
    /// `bbox` is no array of 4 or 6 numbers (section 5).
    #[error("bbox must be an array of 2n numbers")]
    BadBbox,
    /// Something else stands where an array belongs.
    #[error("an array is expected")]
    NotAnArray,
    /// Something else stands where a number belongs.
    #[error("a position holds something that is no number")]
    NotANumber,
    /// A number too large for a double.
    #[error("a coordinate is not finite as a double")]
    NotFinite,
    /// A position of fewer than two numbers.
    #[error("a position needs two numbers, this one has {0}")]
    PositionTooShort(usize),
    /// A line of one position.
    #[error("a line needs two positions, this one has one")]
    LineTooShort,
    /// A ring of one or two positions.
    #[error("a ring needs four positions, this one has {0}")]
    RingTooShort(usize),
    /// An empty line or polygon among others.
    #[error("a part of a Multi* geometry is empty")]
    EmptyPart,
    /// The shell is empty, yet there are holes.
    #[error("the shell is empty, yet there are holes")]
    HolesWithoutShell,
    /// More positions than [`Limits::vertices_max`]: a terminal defect.
    #[error("more than {vertices_max} vertices")]
    TooManyVertices {
        /// The limit.
        vertices_max: usize,
    },
    /// 2D and 3D positions in one line, ring or MultiPoint: a terminal defect.
    #[error("2D and 3D positions are mixed")]
    MixedDimensions,
    /// A position of four numbers or more: a terminal defect.
    #[error("a position has more than three numbers")]
    TooManyNumbers,
}

impl GeometryRefusal {
    /// The terminal defect, if the text is a GeoJSON geometry that no shapely / GEOS based receiver could take; `None`
    /// if it is no GeoJSON geometry at all.
    pub fn defect(&self) -> Option<Defect> {
        let kind = match self.kind {
            RefusalKind::TooManyVertices { .. } => DefectKind::TooManyVertices,
            RefusalKind::MixedDimensions => DefectKind::MixedDimensions,
            RefusalKind::TooManyNumbers => DefectKind::TooManyNumbers,
            _ => return None,
        };
        Some(Defect { kind, location: self.location })
    }
}

fn place(pointer: &str, offset: usize) -> String {
    if pointer.is_empty() { format!("byte {offset}") } else { format!("{pointer} (byte {offset})") }
}

/// Parses the text of a `geometry` value. `null` is refused here: a null geometry is the Feature's business.
pub fn geometry(text: &str, limits: &Limits) -> Result<Geometry, GeometryRefusal> {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        let kind = RefusalKind::NotJson { message: error.to_string() };
        return Err(GeometryRefusal { kind, pointer: String::new(), offset: 0, location: None });
    }
    let mut scan = Scan { text, at: 0, vertices: 0, oddity: None, limits };
    scan.bound_depth()?;
    let geometry = scan.geometry(&Path::Root)?;
    match scan.oddity {
        Some(oddity) => Err(oddity),
        None => Ok(geometry),
    }
}

/// Where the scan is, as a list on the stack; a pointer is written only when something is refused.
enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'static str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn pointer(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Member(parent, name) => format!("{}/{name}", parent.pointer()),
            Path::Index(parent, index) => format!("{}/{index}", parent.pointer()),
        }
    }
}

/// A reader over text that is known to be one JSON value.
struct Scan<'t> {
    text: &'t str,
    at: usize,
    vertices: usize,
    /// The first terminal defect: remembered, so that text that is no GeoJSON further on is still refused as such.
    oddity: Option<GeometryRefusal>,
    limits: &'t Limits,
}

/// What a line-like array of positions is, for its least length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Points,
    Line,
    Ring,
}

/// Members that belong to Features and collections of them: never in a geometry (RFC 7946 section 7.1).
const FEATURE_MEMBERS: [&str; 3] = ["geometry", "properties", "features"];

impl<'t> Scan<'t> {
    fn refuse<T>(&self, kind: RefusalKind, path: &Path<'_>) -> Result<T, GeometryRefusal> {
        Err(GeometryRefusal { kind, pointer: path.pointer(), offset: self.at, location: None })
    }

    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or(0)
    }

    /// Takes the byte if it is the next one.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    /// Whether another element follows in an array or object that ends with `close`; takes the comma or the close.
    fn more(&mut self, first: bool, close: u8) -> bool {
        if self.take(close) {
            return false;
        }
        first || self.take(b',')
    }

    /// The text of a string, quotes included; `at` stands on its first quote.
    fn string(&mut self) -> &'t str {
        let bytes = self.text.as_bytes();
        let start = self.at;
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => self.at += 1,
                _ => {}
            }
        }
        &self.text[start..self.at]
    }

    /// Passes over one value of any kind, without recursion.
    fn skip(&mut self) {
        let mut open = 0_usize;
        loop {
            match self.peek() {
                b'"' => {
                    self.string();
                }
                b'[' | b'{' => {
                    open += 1;
                    self.at += 1;
                }
                b']' | b'}' => {
                    open = open.saturating_sub(1);
                    self.at += 1;
                }
                b',' | b':' => self.at += 1,
                0 => return,
                _ => {
                    self.scalar();
                }
            }
            if open == 0 {
                return;
            }
        }
    }

    /// The text of a number or literal.
    fn scalar(&mut self) -> &'t str {
        let start = self.at;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r') {
                break;
            }
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// Refuses text that is nested too deeply, before anything recurses into it.
    fn bound_depth(&mut self) -> Result<(), GeometryRefusal> {
        let (mut depth, depth_max) = (0_usize, self.limits.depth_max);
        loop {
            match self.peek() {
                0 => break,
                b'"' => {
                    self.string();
                }
                byte => {
                    match byte {
                        b'[' | b'{' => depth += 1,
                        b']' | b'}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    if depth > depth_max {
                        return self.refuse(RefusalKind::TooDeep { depth_max }, &Path::Root);
                    }
                    self.at += 1;
                }
            }
        }
        self.at = 0;
        Ok(())
    }

    fn geometry(&mut self, path: &Path<'_>) -> Result<Geometry, GeometryRefusal> {
        if self.peek() != b'{' {
            return self.refuse(RefusalKind::NotAnObject, path);
        }
        let start = self.at;
        self.at += 1;
        let mut kind: Option<String> = None;
        let mut coordinates: Option<usize> = None;
        let mut geometries: Option<Vec<Geometry>> = None;
        let mut first = true;
        while self.more(first, b'}') {
            first = false;
            self.peek();
            let name_at = self.at;
            let name = unescape(self.string());
            self.take(b':');
            self.peek();
            match name.as_deref() {
                Some("type") => {
                    if kind.is_some() {
                        return self.refuse(RefusalKind::MemberDuplicated("type"), path);
                    }
                    if self.peek() != b'"' {
                        return self.refuse(RefusalKind::NoType, &Path::Member(path, "type"));
                    }
                    kind = unescape(self.string());
                    if kind.is_none() {
                        return self.refuse(RefusalKind::NoType, &Path::Member(path, "type"));
                    }
                }
                Some("coordinates") => {
                    if coordinates.replace(self.at).is_some() {
                        return self.refuse(RefusalKind::MemberDuplicated("coordinates"), path);
                    }
                    self.skip();
                }
                Some("geometries") => {
                    if geometries.is_some() {
                        return self.refuse(RefusalKind::MemberDuplicated("geometries"), path);
                    }
                    geometries = Some(self.geometries(&Path::Member(path, "geometries"))?);
                }
                Some("bbox") => self.bbox(&Path::Member(path, "bbox"))?,
                Some(other) => {
                    if let Some(member) = FEATURE_MEMBERS.iter().find(|member| **member == other) {
                        self.at = name_at;
                        return self.refuse(RefusalKind::MemberMisplaced(member), path);
                    }
                    self.skip();
                }
                None => self.skip(),
            }
        }
        let end = self.at;
        self.at = start;
        let Some(kind) = kind else {
            return self.refuse(RefusalKind::NoType, path);
        };
        let geometry = self.typed(&kind, coordinates, geometries, path)?;
        self.at = end;
        Ok(geometry)
    }

    /// Puts a geometry together once its type is known: `type` may be the last member.
    fn typed(
        &mut self,
        kind: &str,
        coordinates: Option<usize>,
        geometries: Option<Vec<Geometry>>,
        path: &Path<'_>,
    ) -> Result<Geometry, GeometryRefusal> {
        if kind == "GeometryCollection" {
            return match (coordinates, geometries) {
                (None, Some(members)) => Ok(Geometry::GeometryCollection(members)),
                (Some(_), _) => self.refuse(RefusalKind::MemberMisplaced("coordinates"), path),
                (None, None) => self.refuse(RefusalKind::MemberMissing("geometries"), path),
            };
        }
        let known = ["Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon"];
        if !known.contains(&kind) {
            return self.refuse(RefusalKind::UnknownType(kind.to_owned()), &Path::Member(path, "type"));
        }
        if geometries.is_some() {
            return self.refuse(RefusalKind::MemberMisplaced("geometries"), path);
        }
        let Some(at) = coordinates else {
            return self.refuse(RefusalKind::MemberMissing("coordinates"), path);
        };
        self.at = at;
        let path = Path::Member(path, "coordinates");
        Ok(match kind {
            "Point" => Geometry::Point(self.point(&path)?),
            "MultiPoint" => Geometry::MultiPoint(self.run(Run::Points, &path)?),
            "LineString" => Geometry::LineString(self.run(Run::Line, &path)?),
            "MultiLineString" => Geometry::MultiLineString(self.parts(&path, |scan, path| {
                let line = scan.run(Run::Line, path)?;
                if line.is_empty() { scan.refuse(RefusalKind::EmptyPart, path) } else { Ok(line) }
            })?),
            "Polygon" => Geometry::Polygon(self.rings(&path)?),
            _ => Geometry::MultiPolygon(self.parts(&path, |scan, path| {
                let rings = scan.rings(path)?;
                if rings.is_empty() { scan.refuse(RefusalKind::EmptyPart, path) } else { Ok(rings) }
            })?),
        })
    }

    fn geometries(&mut self, path: &Path<'_>) -> Result<Vec<Geometry>, GeometryRefusal> {
        self.parts(path, Scan::geometry)
    }

    /// An array of anything.
    fn parts<T>(
        &mut self,
        path: &Path<'_>,
        mut part: impl FnMut(&mut Self, &Path<'_>) -> Result<T, GeometryRefusal>,
    ) -> Result<Vec<T>, GeometryRefusal> {
        if self.peek() != b'[' {
            return self.refuse(RefusalKind::NotAnArray, path);
        }
        self.at += 1;
        let mut parts = Vec::new();
        while self.more(parts.is_empty(), b']') {
            let path = Path::Index(path, parts.len());
            parts.push(part(self, &path)?);
        }
        Ok(parts)
    }

    fn rings(&mut self, path: &Path<'_>) -> Result<Vec<Vec<[f64; 2]>>, GeometryRefusal> {
        let rings = self.parts(path, |scan, path| scan.run(Run::Ring, path))?;
        let without_shell =
            rings.first().is_some_and(Vec::is_empty) && rings.iter().any(|ring| !ring.is_empty());
        if without_shell { self.refuse(RefusalKind::HolesWithoutShell, path) } else { Ok(rings) }
    }

    /// A point's coordinates: one position, or an empty array.
    fn point(&mut self, path: &Path<'_>) -> Result<Option<[f64; 2]>, GeometryRefusal> {
        if self.peek() != b'[' {
            return self.refuse(RefusalKind::NotAnArray, path);
        }
        let start = self.at;
        self.at += 1;
        if self.take(b']') {
            return Ok(None);
        }
        self.at = start;
        Ok(Some(self.position(path)?.0))
    }

    /// An array of positions.
    fn run(&mut self, run: Run, path: &Path<'_>) -> Result<Vec<[f64; 2]>, GeometryRefusal> {
        let start = self.at;
        let mut dimensions: Option<usize> = None;
        let positions = self.parts(path, |scan, path| {
            let (position, numbers) = scan.position(path)?;
            if numbers != *dimensions.get_or_insert(numbers) {
                scan.odd(RefusalKind::MixedDimensions, path, position);
            }
            Ok(position)
        })?;
        let refusal = match (run, positions.len()) {
            (Run::Line, 1) => RefusalKind::LineTooShort,
            (Run::Ring, count @ 1..=2) => RefusalKind::RingTooShort(count),
            _ => return Ok(positions),
        };
        self.at = start;
        self.refuse(refusal, path)
    }

    /// One position and how many numbers it has.
    fn position(&mut self, path: &Path<'_>) -> Result<([f64; 2], usize), GeometryRefusal> {
        if self.peek() != b'[' {
            return self.refuse(RefusalKind::NotAnArray, path);
        }
        let start = self.at;
        self.at += 1;
        let mut position = [0.0; 2];
        let mut numbers = 0;
        while self.more(numbers == 0, b']') {
            if !matches!(self.peek(), b'-' | b'0'..=b'9') {
                return self.refuse(RefusalKind::NotANumber, &Path::Index(path, numbers));
            }
            let at = self.at;
            // The grammar of JSON numbers is a subset of what the standard library parses, correctly rounded.
            let value = self.scalar().parse::<f64>().unwrap_or(f64::NAN);
            if !value.is_finite() {
                self.at = at;
                return self.refuse(RefusalKind::NotFinite, &Path::Index(path, numbers));
            }
            if let Some(slot) = position.get_mut(numbers) {
                *slot = value;
            }
            numbers += 1;
        }
        if numbers < 2 {
            self.at = start;
            return self.refuse(RefusalKind::PositionTooShort(numbers), path);
        }
        if numbers > 3 {
            self.odd(RefusalKind::TooManyNumbers, path, position);
        }
        self.vertices += 1;
        if self.vertices > self.limits.vertices_max {
            let kind = RefusalKind::TooManyVertices { vertices_max: self.limits.vertices_max };
            let pointer = path.pointer();
            return Err(GeometryRefusal { kind, pointer, offset: start, location: Some(position) });
        }
        Ok((position, numbers))
    }

    fn odd(&mut self, kind: RefusalKind, path: &Path<'_>, position: [f64; 2]) {
        let offset = self.at;
        self.oddity.get_or_insert_with(|| GeometryRefusal {
            kind,
            pointer: path.pointer(),
            offset,
            location: Some(position),
        });
    }

    fn bbox(&mut self, path: &Path<'_>) -> Result<(), GeometryRefusal> {
        let start = self.at;
        let mut numbers = 0_usize;
        let mut good = self.take(b'[');
        while good && self.more(numbers == 0, b']') {
            good = matches!(self.peek(), b'-' | b'0'..=b'9');
            self.scalar();
            numbers += 1;
        }
        if good && numbers >= 4 && numbers.is_multiple_of(2) {
            return Ok(());
        }
        self.at = start;
        self.refuse(RefusalKind::BadBbox, path)
    }
}

/// The characters of a JSON string; `None` where an escape stands for no character (a lone surrogate).
fn unescape(quoted: &str) -> Option<String> {
    if quoted.contains('\\') {
        serde_json::from_str(quoted).ok()
    } else {
        quoted.get(1..quoted.len().saturating_sub(1)).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests;
