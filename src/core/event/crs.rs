//! The `crs` member of GeoJSON 2008: whether it names longitude and latitude on WGS 84, as RFC 7946 assumes.
//!
//! The numbers are never converted: a document in another system is kept as a dead letter for a person.

use std::borrow::Cow;

use crate::core::json::{Kind, Scanner, SyntaxError, unescape};

/// Characters of a foreign `crs` that a message shows.
const SHOWN_MAX: usize = 80;

/// What a `crs` value names, if it is not WGS 84: the name, or the start of its text where it names nothing.
pub fn foreign(crs: &str) -> Option<String> {
    let name = name(crs);
    if name.as_deref().is_some_and(is_wgs84) {
        return None;
    }
    Some(name.as_deref().unwrap_or(crs).chars().take(SHOWN_MAX).collect())
}

/// `{"type":"name","properties":{"name":"…"}}`, or just a string, which no standard has and many write.
fn name(crs: &str) -> Option<Cow<'_, str>> {
    let member = |of: &str, wanted: &str| {
        let mut found = None;
        let mut scanner = Scanner::new(of);
        scanner
            .object(|scanner, name| {
                let value = scanner.value()?;
                if unescape(name.of(of)) == wanted {
                    found = Some(value);
                }
                Ok::<(), SyntaxError>(())
            })
            .ok()?;
        found
    };
    if crs.starts_with('"') {
        return Some(unescape(crs));
    }
    let properties = member(crs, "properties").filter(|value| value.kind == Kind::Object)?.of(crs);
    let name = member(properties, "name").filter(|value| value.kind == Kind::String)?.of(properties);
    Some(unescape(name))
}

/// `EPSG:4326` and `CRS84` in the forms of URN, URL and short name. The axis order that EPSG gives 4326 is ignored,
/// as every GeoJSON writer does.
fn is_wgs84(name: &str) -> bool {
    let mut parts = name.split([':', '/', '#']).filter(|part| !part.is_empty());
    let Some(last) = parts.next_back() else {
        return false;
    };
    let authority = |wanted: &str| name.to_ascii_lowercase().contains(wanted);
    match last.to_ascii_uppercase().as_str() {
        "4326" => authority("epsg"),
        "CRS84" | "CRS84H" => parts.next_back().is_none() || authority("ogc"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_wgs84_pass_and_others_are_named() {
        let named = |name: &str| foreign(&format!(r#"{{"type":"name","properties":{{"name":"{name}"}}}}"#));
        for name in [
            "EPSG:4326",
            "epsg:4326",
            "OGC:CRS84",
            "CRS84",
            "urn:ogc:def:crs:OGC:1.3:CRS84",
            "urn:ogc:def:crs:OGC::CRS84h",
            "urn:ogc:def:crs:EPSG::4326",
            "urn:ogc:def:crs:EPSG:9.8:4326",
            "http://www.opengis.net/def/crs/EPSG/0/4326",
            "http://www.opengis.net/def/crs/OGC/1.3/CRS84",
            "http://www.opengis.net/gml/srs/epsg.xml#4326",
        ] {
            assert_eq!(named(name), None, "{name}");
        }
        for name in
            ["EPSG:3857", "urn:ogc:def:crs:EPSG::27700", "EPSG:14326", "4326", "", "nonsense", "X:CRS84"]
        {
            assert_eq!(named(name).as_deref(), Some(name));
        }
        assert_eq!(foreign("\"EPSG:4326\""), None);
        assert_eq!(foreign("7").as_deref(), Some("7"));
        assert!(foreign(r#"{"type":"link","properties":{"href":"http://x/4326"}}"#).is_some());
    }
}
