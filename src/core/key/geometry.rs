//! The geometry's text in a key: the article's canonical blob, and what stands in for it where the article has none.

use crate::core::json::{Kind, Scanner, Span, SyntaxError, unescape};

use super::canonical::push_value;
use super::number::{NotFinite, push_rounded};

/// Types a GeoJSON geometry may have (RFC 7946 section 1.4), `GeometryCollection` last.
pub const TYPES: [&str; 7] =
    ["Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon", "GeometryCollection"];

/// Why the article's recipe makes no text of a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoText {
    /// `geometry: null`.
    #[error("there is no geometry")]
    Null,
    /// A `GeometryCollection`, or `coordinates` are missing.
    #[error("the geometry has no coordinates")]
    NoCoordinates,
    /// The type is not one of GeoJSON.
    #[error("the geometry's type is not one of GeoJSON")]
    UnknownType,
    /// Something in `coordinates` is neither a number nor an array, or they are mixed.
    #[error("coordinates hold something other than arrays of numbers")]
    NotNumbers,
    /// A coordinate that no double can hold.
    #[error("a coordinate is too large for a double")]
    NotFinite,
    /// The text is no JSON.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
}

impl NoText {
    /// Whether the feature is good all the same, and keyed by the recipe `event`.
    pub fn has_event_key(self) -> bool {
        matches!(self, NoText::Null | NoText::NoCoordinates)
    }
}

impl From<NotFinite> for NoText {
    fn from(_: NotFinite) -> Self {
        NoText::NotFinite
    }
}

/// The three members of a geometry that make its shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// `type`, where it is one of [`TYPES`].
    pub kind: Option<&'static str>,
    /// `coordinates`
    pub coordinates: Option<Span>,
    /// `geometries`
    pub geometries: Option<Span>,
}

impl Shape {
    /// Reads the object before the scanner. Of duplicate names the last one counts.
    pub fn read(scanner: &mut Scanner<'_>) -> Result<Shape, SyntaxError> {
        let text = scanner.text();
        let mut shape = Shape::default();
        scanner.object(|scanner, name| {
            let value = scanner.value()?;
            match &*unescape(name.of(text)) {
                "type" if value.kind == Kind::String => {
                    let kind = unescape(value.of(text));
                    shape.kind = TYPES.into_iter().find(|known| **known == *kind);
                }
                "coordinates" => shape.coordinates = Some(value),
                "geometries" => shape.geometries = Some(value),
                _ => {}
            }
            Ok::<(), SyntaxError>(())
        })?;
        Ok(shape)
    }
}

/// Appends the article's blob of a geometry: `{"coordinates":C,"type":"T"}`.
pub fn push_article(geometry: &str, precision: u8, out: &mut String) -> Result<(), NoText> {
    let mut scanner = Scanner::new(geometry);
    if scanner.peek() != Some(b'{') {
        return Err(NoText::Null);
    }
    let shape = Shape::read(&mut scanner)?;
    push_shape(geometry, shape, precision, out)
}

fn push_shape(text: &str, shape: Shape, precision: u8, out: &mut String) -> Result<(), NoText> {
    let kind = shape.kind.ok_or(NoText::UnknownType)?;
    let coordinates = shape.coordinates.ok_or(NoText::NoCoordinates)?;
    if coordinates.kind != Kind::Array {
        return Err(NoText::NotNumbers);
    }
    out.push_str("{\"coordinates\":");
    push_coordinates(&mut Scanner::at(text, coordinates.start), precision, out)?;
    out.push_str(",\"type\":\"");
    out.push_str(kind);
    out.push_str("\"}");
    Ok(())
}

/// An array holds numbers only or arrays only; depth and lengths are the geometry parser's business.
fn push_coordinates(scanner: &mut Scanner<'_>, precision: u8, out: &mut String) -> Result<(), NoText> {
    let text = scanner.text();
    let mut numbers = None;
    out.push('[');
    scanner.array(|scanner| {
        let number = scanner.peek() != Some(b'[');
        match numbers.replace(number) {
            None => {}
            Some(before) if before == number => out.push(','),
            Some(_) => return Err(NoText::NotNumbers),
        }
        if !number {
            return push_coordinates(scanner, precision, out);
        }
        let value = scanner.value()?;
        if value.kind != Kind::Number {
            return Err(NoText::NotNumbers);
        }
        Ok(push_rounded(value.of(text), precision, out)?)
    })?;
    out.push(']');
    Ok(())
}

/// Appends the geometry's text for the recipe `event`: the article's blob; a collection as its members' texts;
/// `null`; and for anything else (only an endpoint without a gate takes such) its canonical JSON, not rounded.
pub fn push_event(geometry: &str, precision: u8, out: &mut String) -> Result<(), SyntaxError> {
    let start = out.len();
    match push_any(&mut Scanner::new(geometry), precision, out) {
        Ok(()) => Ok(()),
        Err(NoText::Syntax(error)) => Err(error),
        Err(_) => {
            out.truncate(start);
            push_value(&mut Scanner::new(geometry), &[], out)
        }
    }
}

fn push_any(scanner: &mut Scanner<'_>, precision: u8, out: &mut String) -> Result<(), NoText> {
    let text = scanner.text();
    if scanner.peek() != Some(b'{') {
        return match scanner.value()?.kind {
            Kind::Null => {
                out.push_str("null");
                Ok(())
            }
            _ => Err(NoText::UnknownType),
        };
    }
    let shape = Shape::read(scanner)?;
    let Some(members) = shape.geometries.filter(|_| shape.kind == Some("GeometryCollection")) else {
        return push_shape(text, shape, precision, out);
    };
    if members.kind != Kind::Array {
        return Err(NoText::NotNumbers);
    }
    out.push_str("{\"geometries\":[");
    let mut first = true;
    Scanner::at(text, members.start).array(|scanner| {
        if !std::mem::replace(&mut first, false) {
            out.push(',');
        }
        push_any(scanner, precision, out)
    })?;
    out.push_str("],\"type\":\"GeometryCollection\"}");
    Ok(())
}
