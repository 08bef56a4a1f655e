//! A JSON text to its features, each with its exact bytes and the places of the members that matter.
//!
//! A text is a Feature, a FeatureCollection (each member stands alone from here on) or a bare geometry, which becomes
//! a Feature round its bytes. The whole text is checked to be JSON before anything is given out.
//!
//! What RFC 7946 leaves open, and what we do: `id: null` counts as no id and a missing `properties` as null, because
//! many producers write so and nothing depends on them; a missing `geometry` is refused, because a misspelt name
//! would silently make an event without a place; members of other GeoJSON types (section 7.1) are foreign members.

use std::borrow::Cow;

use bytes::Bytes;

use crate::core::json::{Kind, Scanner, Span, SyntaxError, unescape};
use crate::core::key::geometry::TYPES;

use super::reject::{NotGeoJson, Place, Rejection};
use super::split::BOM;

/// Characters of a wrong `type` that a message shows.
const SHOWN_MAX: usize = 40;

/// What stands round a bare geometry when it is sent.
const WRAP: (&str, &str) = ("{\"type\":\"Feature\",\"geometry\":", ",\"properties\":null}");

/// One Feature: its bytes, and where its members stand in them.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    text: Bytes,
    wrapped: bool,
    pub(super) id: Option<Span>,
    pub(super) geometry: Span,
    pub(super) properties: Option<Span>,
    pub(super) crs: Option<Span>,
    /// Name and value of every other member but `type` and `bbox`.
    pub(super) others: Vec<(Span, Span)>,
    /// `crs` member of the collection it came in.
    pub(super) collection_crs: Option<Box<str>>,
}

impl Feature {
    /// The exact bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.text
    }

    /// The same as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.text).expect("invariant: `document` lets only UTF-8 pass")
    }

    /// Whether it came as a bare geometry.
    pub fn is_wrapped(&self) -> bool {
        self.wrapped
    }

    /// The text of the `geometry` member; `null` for an event without a place.
    pub fn geometry_text(&self) -> &str {
        self.geometry.of(self.text())
    }
}

/// A text's features.
#[derive(Clone, Debug)]
pub enum Document {
    /// A Feature, or a bare geometry made one.
    Feature(Feature),
    /// The members of a FeatureCollection.
    Collection(Members),
}

impl Document {
    /// Whether it is a FeatureCollection: an empty one is a good document without events.
    pub fn is_collection(&self) -> bool {
        matches!(self, Document::Collection(_))
    }
}

impl IntoIterator for Document {
    type Item = Result<Feature, Rejection>;
    type IntoIter = Features;

    fn into_iter(self) -> Features {
        Features(match self {
            Document::Feature(feature) => Inner::One(Some(feature)),
            Document::Collection(members) => Inner::Many(members),
        })
    }
}

/// Features of a document, in order.
#[derive(Debug)]
pub struct Features(Inner);

#[derive(Debug)]
enum Inner {
    One(Option<Feature>),
    Many(Members),
}

impl Iterator for Features {
    type Item = Result<Feature, Rejection>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Inner::One(feature) => feature.take().map(Ok),
            Inner::Many(members) => members.next(),
        }
    }
}

/// The members of a FeatureCollection, read one by one: however many there are, only the text is held.
#[derive(Clone, Debug)]
pub struct Members {
    text: Bytes,
    /// Where the next member, comma or bracket stands; past the text at the end.
    at: usize,
    first: bool,
    crs: Option<Box<str>>,
}

impl Iterator for Members {
    type Item = Result<Feature, Rejection>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = std::str::from_utf8(self.text.get(self.at..)?).expect("invariant: cut between characters");
        let mut scanner = Scanner::new(text);
        // The text was checked as a whole, so this cannot fail; if it did, the walk would end.
        let more = if std::mem::replace(&mut self.first, false) {
            scanner.enter_array().and_then(|()| scanner.next_element(true))
        } else {
            scanner.next_element(false)
        };
        let span = more.and_then(|more| if more { scanner.value().map(Some) } else { Ok(None) });
        let Ok(Some(span)) = span else {
            self.at = usize::MAX;
            return None;
        };
        let member = self.text.slice(self.at + span.start..self.at + span.end);
        self.at += scanner.position();
        Some(self.member(&member, span))
    }
}

impl Members {
    fn member(&self, bytes: &Bytes, span: Span) -> Result<Feature, Rejection> {
        let text = std::str::from_utf8(bytes).expect("invariant: cut between characters");
        let top = Top::read(text, span.kind)?;
        let kind = top.kind(text)?;
        if kind != "Feature" {
            return Err(unknown_type(&kind, "Feature"));
        }
        let mut feature = top.feature(text, bytes)?;
        feature.collection_crs.clone_from(&self.crs);
        Ok(feature)
    }
}

/// Reads one JSON text. A byte order mark before it is passed over.
pub fn document(bytes: Bytes) -> Result<Document, Rejection> {
    let bytes = if bytes.starts_with(BOM) { bytes.slice(BOM.len()..) } else { bytes };
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| Rejection::NotUtf8 { place: Place::of(&bytes, error.valid_up_to()) })?;
    let mut scanner = Scanner::new(text);
    let value = match scanner.peek() {
        None => Err(SyntaxError { fault: crate::core::json::Fault::NoValue, at: 0 }),
        Some(b'{') => Ok(Kind::Object),
        Some(_) => scanner.value().and_then(|value| scanner.finish().map(|()| value.kind)),
    };
    let top = Top::read(text, value.map_err(|error| Rejection::syntax(text, error))?)?;
    let kind = top.kind(text)?;
    match &*kind {
        "Feature" => Ok(Document::Feature(top.feature(text, &bytes)?)),
        "FeatureCollection" => Ok(Document::Collection(top.collection(text, &bytes)?)),
        known if TYPES.contains(&known) => Ok(Document::Feature(top.wrapped(text))),
        other => Err(unknown_type(other, "Feature, FeatureCollection or a geometry type")),
    }
}

fn unknown_type(found: &str, wanted: &'static str) -> Rejection {
    Rejection::NotGeoJson(NotGeoJson::UnknownType { found: found.chars().take(SHOWN_MAX).collect(), wanted })
}

/// Members of the outermost object.
#[derive(Debug, Default)]
struct Top {
    object: Option<Span>,
    kind: Option<Span>,
    id: Option<Span>,
    geometry: Option<Span>,
    properties: Option<Span>,
    /// Name and value: in a Feature it is a foreign member.
    features: Option<(Span, Span)>,
    crs: Option<Span>,
    bbox: Option<Span>,
    others: Vec<(Span, Span)>,
}

impl Top {
    /// Reads the whole text and refuses duplicate names at the top.
    fn read(text: &str, kind: Kind) -> Result<Top, Rejection> {
        let found = match kind {
            Kind::Object => return Self::read_object(text),
            Kind::Array => "an array",
            Kind::String => "a string",
            Kind::Number => "a number",
            Kind::Bool => "true or false",
            Kind::Null => "null",
        };
        Err(Rejection::NotGeoJson(NotGeoJson::NotAnObject(found)))
    }

    fn read_object(text: &str) -> Result<Top, Rejection> {
        let mut top = Top::default();
        let mut scanner = Scanner::new(text);
        let _ = scanner.peek();
        let start = scanner.position();
        // Remembered, not returned: a text that is no JSON further on is refused as such first.
        let mut twice: Option<Span> = None;
        let walked = scanner.object(|scanner, name| {
            let value = scanner.value()?;
            let slot = match &*unescape(name.of(text)) {
                "type" => &mut top.kind,
                "id" => &mut top.id,
                "geometry" => &mut top.geometry,
                "properties" => &mut top.properties,
                "features" => {
                    if top.features.replace((name, value)).is_some() {
                        twice.get_or_insert(name);
                    }
                    return Ok(());
                }
                "crs" => &mut top.crs,
                "bbox" => &mut top.bbox,
                _ => {
                    top.others.push((name, value));
                    return Ok(());
                }
            };
            if slot.replace(value).is_some() {
                twice.get_or_insert(name);
            }
            Ok::<(), SyntaxError>(())
        });
        let end = scanner.position();
        walked.and_then(|()| scanner.finish()).map_err(|error| Rejection::syntax(text, error))?;
        top.object = Some(Span { start, end, kind: Kind::Object });
        if let Some(name) = twice.or_else(|| repeated(text, top.others.iter().map(|(name, _)| *name))) {
            return Err(duplicate(text, name, "document", 0, text));
        }
        Ok(top)
    }

    fn kind<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, Rejection> {
        match self.kind {
            Some(kind) if kind.kind == Kind::String => Ok(unescape(kind.of(text))),
            _ => Err(Rejection::NotGeoJson(NotGeoJson::NoType)),
        }
    }

    fn feature(self, text: &str, bytes: &Bytes) -> Result<Feature, Rejection> {
        let wrong = |member, problem| Err(Rejection::Member { member, problem });
        let Some(geometry) = self.geometry else {
            return wrong("geometry", "is missing; an event without a place says null");
        };
        if !matches!(geometry.kind, Kind::Object | Kind::Null) {
            return wrong("geometry", "is neither an object nor null");
        }
        if self.properties.is_some_and(|value| !matches!(value.kind, Kind::Object | Kind::Null)) {
            return wrong("properties", "is neither an object nor null");
        }
        if self.id.is_some_and(|value| !matches!(value.kind, Kind::String | Kind::Number | Kind::Null)) {
            return wrong("id", "is neither a string nor a number");
        }
        if self.bbox.is_some_and(|value| !is_bbox(text, value)) {
            return wrong("bbox", "is no array of 4 or 6 numbers");
        }
        let mut others = self.others;
        others.extend(self.features);
        Ok(Feature {
            text: bytes.clone(),
            wrapped: false,
            id: self.id.filter(|id| id.kind != Kind::Null),
            geometry,
            properties: self.properties,
            crs: self.crs.filter(|crs| crs.kind != Kind::Null),
            others,
            collection_crs: None,
        })
    }

    fn collection(self, text: &str, bytes: &Bytes) -> Result<Members, Rejection> {
        let Some((_, features)) = self.features.filter(|(_, value)| value.kind == Kind::Array) else {
            return Err(Rejection::Member { member: "features", problem: "is missing or no array" });
        };
        let crs = self.crs.filter(|crs| crs.kind != Kind::Null).map(|crs| crs.of(text).into());
        Ok(Members { text: bytes.clone(), at: features.start, first: true, crs })
    }

    /// A Feature round a bare geometry.
    fn wrapped(&self, text: &str) -> Feature {
        let object = self.object.expect("invariant: set when the object was read");
        let bare = object.of(text);
        let wrapped = [WRAP.0, bare, WRAP.1].concat();
        let start = WRAP.0.len();
        Feature {
            text: wrapped.into(),
            wrapped: true,
            id: None,
            geometry: Span { start, end: start + bare.len(), kind: Kind::Object },
            properties: None,
            crs: None,
            others: Vec::new(),
            collection_crs: None,
        }
    }
}

/// `null` passes, as if it were absent; anything else must be 2n numbers (RFC 7946 section 5).
fn is_bbox(text: &str, value: Span) -> bool {
    if value.kind == Kind::Null {
        return true;
    }
    let mut numbers = 0_usize;
    let mut good = value.kind == Kind::Array;
    let walked = good
        && Scanner::at(text, value.start)
            .array(|scanner| {
                good &= scanner.value()?.kind == Kind::Number;
                numbers += 1;
                Ok::<(), SyntaxError>(())
            })
            .is_ok();
    walked && good && matches!(numbers, 4 | 6)
}

/// The first name that stands twice, compared with escapes resolved.
pub(super) fn repeated(text: &str, names: impl Iterator<Item = Span>) -> Option<Span> {
    let mut names: Vec<_> = names.map(|span| (unescape(span.of(text)), span.start, span)).collect();
    if names.len() < 2 {
        return None;
    }
    names.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    names.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].2).min_by_key(|span| span.start)
}

/// The refusal of a repeated name. `inner` holds the name and itself stands at `offset` of the `whole` text.
pub(super) fn duplicate(
    inner: &str,
    name: Span,
    within: &'static str,
    offset: usize,
    whole: &str,
) -> Rejection {
    Rejection::Duplicate {
        name: unescape(name.of(inner)).chars().take(SHOWN_MAX).collect(),
        within,
        place: Place::of(whole.as_bytes(), offset + name.start),
    }
}
