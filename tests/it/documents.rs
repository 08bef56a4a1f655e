//! Documents against the collected cases, and the laws of the splitter and of `prepare`.

use std::collections::BTreeMap;
use std::fs;

use base64::Engine as _;
use bytes::Bytes;
use proptest::prelude::*;
use serde::Deserialize;
use waypost::core::delivery::FailureClass;
use waypost::core::event::{
    Element, EventMeta, Framing, GeometryGate, IntakeSettings, InvalidGeometry, NewEvent, Rejection,
    SequenceSplitter, SplitError, document, identity_text, prepare,
};
use waypost::core::ids::EndpointId;
use waypost::core::route::{Route, Routes, glob_matches};

use crate::support::shared;

const ENDPOINT: EndpointId = EndpointId(1);

fn settings() -> IntakeSettings {
    IntakeSettings { routes: Routes::new(vec![ENDPOINT], Vec::new()), ..IntakeSettings::default() }
}

/// Every feature of one text.
fn intake(settings: &IntakeSettings, text: Bytes) -> Result<Vec<Result<NewEvent, Rejection>>, Rejection> {
    let meta = EventMeta::default();
    Ok(document(text)?.into_iter().map(|feature| prepare(settings, &feature?, &meta)).collect())
}

fn one(text: &str) -> Result<NewEvent, Rejection> {
    intake(&settings(), Bytes::copy_from_slice(text.as_bytes()))?.pop().unwrap()
}

fn split(framing: Framing, bytes_max: usize, chunks: &[&[u8]]) -> Vec<Element> {
    let mut splitter = SequenceSplitter::new(framing, bytes_max);
    let mut elements = Vec::new();
    for chunk in chunks {
        splitter.push(Bytes::copy_from_slice(chunk));
        elements.extend(splitter.by_ref());
    }
    splitter.finish();
    elements.extend(splitter);
    elements
}

#[derive(Deserialize)]
struct Case {
    name: String,
    media: String,
    text: Option<String>,
    base64: Option<String>,
    expected: String,
    features: Option<usize>,
    malformed: Option<usize>,
    level: String,
}

#[derive(Debug, Default, PartialEq)]
struct Found {
    deliverable: usize,
    dead: usize,
    refused: usize,
    /// The text as a whole was refused.
    whole: bool,
}

impl Found {
    fn count(&mut self, results: Result<Vec<Result<NewEvent, Rejection>>, Rejection>) {
        match results {
            Err(_) => self.whole = true,
            Ok(results) => {
                for result in results {
                    match result {
                        Err(_) => self.refused += 1,
                        Ok(event) if event.deliver.is_empty() => self.dead += 1,
                        Ok(_) => self.deliverable += 1,
                    }
                }
            }
        }
    }
}

fn run(case: &Case) -> Found {
    let bytes = match (&case.text, &case.base64) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(text)) => base64::engine::general_purpose::STANDARD.decode(text).unwrap(),
        (None, None) => Vec::new(),
    };
    let mut found = Found::default();
    let framing = match case.media.as_str() {
        "application/geo+json-seq" => Framing::TextSequence,
        "application/x-ndjson" => Framing::Lines,
        _ => {
            found.count(intake(&settings(), bytes.into()));
            return found;
        }
    };
    for element in split(framing, 8 << 20, &[&bytes]) {
        match element.text {
            Err(_) => found.refused += 1,
            Ok(text) => match intake(&settings(), text) {
                Err(_) => found.refused += 1,
                results => found.count(results),
            },
        }
    }
    found
}

/// Where the standards leave room and we decide otherwise than the collection: name and reason.
const OUR_CHOICE: &[(&str, &str)] = &[
    ("bbox/null", "null counts as absent: many write it, nothing depends on it"),
    ("id/null", "null counts as no id: many producers write it"),
    ("check-geojson/badfeature-no-properties", "missing properties count as null: nothing depends on them"),
    ("collection/one-bad-member", "members of a collection stand alone (DESIGN 5.1)"),
    ("collection/null-member", "members of a collection stand alone (DESIGN 5.1)"),
    ("crs/string", "a string \"EPSG:4326\" names EPSG:4326, whatever form the member should have"),
    (
        "duplicate-key/in-properties",
        "below the top and outside the geometry they pass untouched (DESIGN 5.1)",
    ),
    ("geojsonhint/feature_changed_semantics", "members of other types are foreign members of a Feature"),
    ("geojsonhint/featurecollection_changed_semantics", "the same on a collection; frequent in real feeds"),
    ("semantics/collection-with-properties", "the same"),
    ("semantics/feature-with-*", "the same"),
    ("seq/geometry-element", "a bare geometry is an event (DESIGN 5.1)"),
];

#[test]
fn documents_of_the_collection_are_taken_or_refused_as_stated() {
    let Some(path) = shared("golden/geojson_docs.jsonl") else { return };
    let mut counts = BTreeMap::<(String, &str), u32>::new();
    let mut faults = Vec::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let found = run(&case);
        let accepted = match case.expected.as_str() {
            "accept" => {
                let features = case.features.unwrap_or(0);
                // A bare geometry has no Feature in it and is one event here; an empty geometry of level `rfc` or
                // `policy` is kept as a dead letter, which is no refusal.
                let wanted = if features == 0 && !case.media.contains("seq") && !case.media.contains("ndjson")
                {
                    found.deliverable + found.dead <= 1
                } else {
                    found.deliverable + found.dead == features
                };
                !found.whole && wanted && found.refused == case.malformed.unwrap_or(0)
            }
            // Refused, or terminal: a crs that is not WGS 84 and a broken geometry become dead letters.
            _ => {
                found.deliverable == 0
                    && (found.dead == 0
                        || case.level == "geometry"
                        || case.name.starts_with("crs/")
                        || case.name.contains("Topology"))
            }
        };
        let chosen = OUR_CHOICE.iter().any(|(name, _)| glob_matches(name, &case.name));
        let word = match (accepted, chosen) {
            (true, false) => "as stated",
            (false, true) if matches!(case.level.as_str(), "policy" | "rfc-lenient") => "our choice",
            (true, true) => {
                faults.push(format!("{}: listed as our choice, yet as stated", case.name));
                continue;
            }
            _ => {
                faults.push(format!("{} ({} {}): {found:?}", case.name, case.level, case.expected));
                continue;
            }
        };
        *counts.entry((case.level, word)).or_default() += 1;
    }
    println!("{counts:?}");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

const POINT: &str =
    r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1.5,2.5]},"properties":{"n":1}}"#;

#[test]
fn refusals_say_what_and_where() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (text, status, want) in [
        ("", 400, "not JSON: there is no value at line 1, column 1"),
        (
            "{\n \"type\": \"Feature\",\n \"x\": tru }",
            400,
            "not JSON: unexpected character at line 3, column 7",
        ),
        ("{\"ä\":01}", 400, "not JSON: not a JSON number at line 1, column 7"),
        ("{\"type\":\"Feature\"", 400, "not JSON: the text is cut off at line 1, column 18"),
        ("[]", 400, "not GeoJSON: an array instead of an object"),
        ("{}", 400, "not GeoJSON: member \"type\" is missing or no string"),
        (
            r#"{"type":"Topology","arcs":[]}"#,
            400,
            "not GeoJSON: \"type\" is \"Topology\"; Feature, FeatureCollection or a geometry type is wanted",
        ),
        (
            r#"{"type":"Feature","properties":{}}"#,
            400,
            "member \"geometry\" is missing; an event without a place says null",
        ),
        (
            r#"{"type":"Feature","geometry":null,"x":1,"\u0078":2}"#,
            400,
            "member \"x\" stands twice in the document (second at line 1, column 41)",
        ),
        (
            r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2],"a":1,"a":2}}"#,
            400,
            "member \"a\" stands twice in the geometry (second at line 1, column 72)",
        ),
        (
            &POINT.replace("[1.5,2.5]", "[1.5]"),
            400,
            "geometry: a position needs two numbers, this one has 1 in geometry/coordinates at line 1, column 60",
        ),
        (&deep, 400, "not JSON: nested more than 127 levels deep at line 1, column 128"),
        (
            &POINT.replace("\"n\":1", &format!("\"n\":{deep}")),
            400,
            "not JSON: nested more than 127 levels deep at line 1, column 214",
        ),
    ] {
        let rejection = one(text).unwrap_err();
        assert_eq!(rejection.to_string(), want);
        assert_eq!(rejection.http_status(), status, "{want}");
    }
    let rejection = intake(&settings(), Bytes::from_static(b"{\"a\":\"\xff\"}")).unwrap_err();
    assert_eq!(rejection.to_string(), "not UTF-8 at line 1, column 7");
}

#[test]
fn bytes_are_what_came_in() {
    let odd = "{ \"x\" : 1e2, \"type\":\"Feature\",\"properties\":{\"n\":[9007199254740993,12345678901234567890,1.10,-0.0,0.12345678901234567890],\
        \"a\":1,\"a\":2,\"\\u00e4\":\"\\u00e4\"},\"geometry\":{\"coordinates\":[1.50,2e0],\"type\":\"Point\"} }";
    assert_eq!(one(odd).unwrap().body, odd);
    let spaced = format!(" \n{POINT}\r\n");
    assert_eq!(one(&spaced).unwrap().body, spaced, "a whole body is kept whole");
    assert_eq!(
        one(&format!("\u{feff}{POINT}")).unwrap().body,
        POINT,
        "a byte order mark is no part of the text"
    );
    let collection = format!(
        "{{\"features\":[ {POINT} ,\n{odd}, 7, {{\"type\":\"Point\"}}],\"type\":\"FeatureCollection\"}}"
    );
    let members = intake(&settings(), collection.into()).unwrap();
    assert_eq!(members.len(), 4);
    assert_eq!(members[0].as_ref().unwrap().body, POINT);
    assert_eq!(members[1].as_ref().unwrap().body, odd);
    assert!(members[2].is_err() && members[3].is_err());
    let bare = " {\"type\":\"Point\", \"coordinates\":[1,2]} ";
    assert_eq!(
        one(bare).unwrap().body,
        "{\"type\":\"Feature\",\"geometry\":{\"type\":\"Point\", \"coordinates\":[1,2]},\"properties\":null}"
    );
    assert_eq!(
        intake(&settings(), Bytes::from_static(b"{\"type\":\"FeatureCollection\",\"features\":[]}")),
        Ok(vec![])
    );
}

const BOW_TIE: &str = r#"{"type":"Feature","geometry":{"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]},"properties":{}}"#;
const B: EndpointId = EndpointId(2);

#[test]
fn gates_part_the_endpoints() {
    let event = |settings: &IntakeSettings, text: &str| {
        intake(settings, Bytes::copy_from_slice(text.as_bytes())).unwrap().pop().unwrap()
    };
    let both =
        IntakeSettings { routes: Routes::new(vec![ENDPOINT, B], Vec::new()), ..IntakeSettings::default() };
    let mixed = IntakeSettings { gates: vec![(B, GeometryGate::Parse)], ..both.clone() };
    let found = event(&mixed, BOW_TIE).unwrap();
    assert_eq!(found.deliver, [B]);
    let (endpoint, reason) = &found.dead[0];
    assert_eq!((*endpoint, reason.class), (ENDPOINT, FailureClass::InvalidGeometry));
    assert_eq!((reason.message.as_str(), reason.location), ("Self-intersection", Some([1.0, 1.0])));
    let reject = IntakeSettings { invalid_geometry: InvalidGeometry::Reject, ..both.clone() };
    let rejection = event(&reject, BOW_TIE).unwrap_err();
    assert_eq!(
        (rejection.http_status(), rejection.to_string().as_str()),
        (422, "invalid geometry: Self-intersection at [1, 1]")
    );

    let curve = POINT.replace("Point", "CircularString");
    let off =
        IntakeSettings { gates: vec![(ENDPOINT, GeometryGate::Off), (B, GeometryGate::Off)], ..both.clone() };
    assert_eq!(event(&off, &curve).unwrap().deliver, [ENDPOINT, B]);
    assert!(event(&mixed, &curve).is_err());

    let crs = POINT.replace(
        "\"type\":\"Feature\"",
        r#""type":"Feature","crs":{"type":"name","properties":{"name":"EPSG:3857"}}"#,
    );
    let found = event(&off, &crs).unwrap();
    assert_eq!(found.dead.len(), 2);
    assert_eq!(found.dead[0].1.class, FailureClass::CrsMismatch);
    assert!(found.dead[0].1.message.contains("EPSG:3857"));

    let small = IntakeSettings { vertices_max: 4, ..both.clone() };
    assert_eq!(event(&small, BOW_TIE).unwrap().dead[0].1.message, "Too many vertices");

    let nobody = IntakeSettings {
        routes: Routes::new(
            vec![ENDPOINT],
            vec![Route { types: vec!["alarm".into()], ..Route::all(ENDPOINT) }],
        ),
        ..IntakeSettings::default()
    };
    let found = event(&nobody, POINT).unwrap();
    assert_eq!((found.dead[0].0, found.dead[0].1.class), (EndpointId::UNROUTED, FailureClass::Unrouted));
    let tiny = IntakeSettings { body_bytes_max: POINT.len() - 1, ..both };
    assert_eq!(event(&tiny, POINT).unwrap_err().http_status(), 413);
    assert!(event(&IntakeSettings { body_bytes_max: POINT.len(), ..tiny }, POINT).is_ok());
}

#[test]
fn sequences_are_cut_by_their_rules() {
    let texts = |framing, bytes: &str| -> Vec<Result<String, SplitError>> {
        split(framing, 8, &[bytes.as_bytes()])
            .into_iter()
            .map(|element| element.text.map(|text| String::from_utf8(text.to_vec()).unwrap()))
            .collect()
    };
    let ok = |text: &str| Ok(text.to_owned());
    let long = || Err(SplitError::TooLarge { bytes_max: 8 });
    assert_eq!(texts(Framing::Lines, "a\n\n \r\n b \r\nc"), [ok("a"), ok(" b "), ok("c")]);
    assert_eq!(texts(Framing::Lines, "\u{feff}a\n\u{1e}b\n"), [ok("a"), ok("b")]);
    assert_eq!(texts(Framing::Lines, "12345678\r\n123456789\n1\n"), [ok("12345678"), long(), ok("1")]);
    assert_eq!(texts(Framing::Lines, &"x".repeat(1000)), [long()]);
    assert_eq!(texts(Framing::Lines, ""), []);
    assert_eq!(
        texts(Framing::TextSequence, "\u{1e}\u{1e}{\n}\n\u{1e}b\r\n\u{1e}\n\u{1e}c"),
        [ok("{\n}"), ok("b"), ok("c")]
    );
    assert_eq!(texts(Framing::TextSequence, "junk\u{1e}a\n"), [Err(SplitError::NoSeparator), ok("a")]);
    assert_eq!(texts(Framing::TextSequence, "\u{feff} \n\u{1e}a"), [ok("a")]);
    assert_eq!(texts(Framing::TextSequence, &format!("\u{1e}{}\u{1e}b", "x".repeat(99))), [long(), ok("b")]);
    assert_eq!(split(Framing::Lines, 8, &[b"\na\n\nb"]).iter().map(|e| e.index).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn an_endless_line_needs_no_memory() {
    let mut splitter = SequenceSplitter::new(Framing::Lines, 1 << 20);
    let chunk = Bytes::from(vec![b'x'; 64 << 10]);
    let mut held_max = 0;
    for _ in 0..1_000 {
        splitter.push(chunk.clone());
        assert_eq!(splitter.next(), None);
        held_max = held_max.max(splitter.held_bytes());
    }
    splitter.push(Bytes::from_static(b"\n{}\n"));
    assert_eq!(splitter.next().unwrap().text, Err(SplitError::TooLarge { bytes_max: 1 << 20 }));
    assert_eq!(splitter.next().unwrap().text.unwrap(), "{}");
    assert!(held_max <= 3 << 20, "{held_max}");
}

/// Bytes in which delimiters, marks and long runs are frequent.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\x1e".to_vec()),
        Just(b"\xef\xbb\xbf".to_vec()),
        Just(b" ".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(b"{\"a\":1}".to_vec()),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// JSON values with everything that canonical text must see through.
fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(Into::into),
        ".{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            proptest::collection::btree_map("[a-c\"\\\\ä\u{1f}]{0,3}", inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The same value written another way: members reversed, white space, escapes.
fn rewritten(value: &serde_json::Value) -> String {
    let string = |text: &str| {
        let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        format!("\"{}\"", units.concat())
    };
    match value {
        serde_json::Value::Object(map) => {
            let members: Vec<_> = map
                .iter()
                .rev()
                .map(|(name, value)| format!(" {} : {}", string(name), rewritten(value)))
                .collect();
            format!("{{{} \n}}", members.join(","))
        }
        serde_json::Value::Array(list) => {
            format!("[{}\t]", list.iter().map(rewritten).collect::<Vec<_>>().join(" , "))
        }
        serde_json::Value::String(text) => string(text),
        // The same decimal number written otherwise. Not through `{:e}` of the float: of two shortest texts that give
        // one float (…647.2 and …647.3) the libraries choose differently, and as decimals they are not equal.
        serde_json::Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            if text.contains('e') { text.replace('e', "00E") } else { text + "00E+0" }
        }
        other => other.to_string(),
    }
}

fn text_of(feature: &str) -> String {
    let feature =
        document(Bytes::copy_from_slice(feature.as_bytes())).unwrap().into_iter().next().unwrap().unwrap();
    identity_text(&IntakeSettings::default(), &feature, &EventMeta::default()).unwrap()
}

proptest! {
    #[test]
    fn elements_do_not_depend_on_the_chunks(
        bytes in stream(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        lines in any::<bool>(),
    ) {
        let framing = if lines { Framing::Lines } else { Framing::TextSequence };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(split(framing, 30, &chunks), split(framing, 30, &[&bytes]));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = intake(&settings(), bytes.into());
    }

    #[test]
    fn no_damage_panics_and_what_passes_keeps_its_bytes(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        for text in [POINT, BOW_TIE] {
            let mut bytes = text.as_bytes().to_vec();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            if let Ok(results) = intake(&settings(), bytes.clone().into()) {
                for event in results.into_iter().flatten() {
                    prop_assert_eq!(&event.body, &bytes);
                }
            }
            bytes.truncate(cut.index(bytes.len()));
            prop_assert!(intake(&settings(), bytes.into()).is_err());
        }
    }

    #[test]
    fn the_scanner_takes_what_serde_json_takes(value in json()) {
        let plain = format!(r#"{{"type":"Feature","geometry":null,"properties":{{"v":{value}}}}}"#);
        let event = one(&plain);
        prop_assert!(event.is_ok(), "{:?}", event);
        prop_assert_eq!(event.unwrap().body, plain);
    }

    #[test]
    fn the_identity_sees_through_order_white_space_escapes_and_drift(
        value in json(), lon in -180.0..180.0f64, lat in -90.0..90.0f64, drift in -4e-8..4e-8f64,
    ) {
        let round = |x: f64| format!("{x:.7}").parse::<f64>().unwrap();
        let (lon, lat) = (round(lon), round(lat));
        let plain = format!(
            r#"{{"type":"Feature","id":7,"geometry":{{"type":"Point","coordinates":[{lon:?},{lat:?}]}},"properties":{{"v":{value}}},"z":{value}}}"#
        );
        let other = format!(
            "{{\"z\":{v} ,\"properties\" : {{ \"\\u0076\":{v}}},\"bbox\":[0,0,1,1],\"geometry\":{{\"coordinates\": [ {:?} , {:?} ] , \"type\":\"\\u0050oint\"}},\"id\":7.0,\"type\":\"Feature\"}}",
            lon + drift, lat + drift, v = rewritten(&value),
        );
        prop_assert_eq!(text_of(&plain), text_of(&other));
        let text = text_of(&plain);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "canonical text is JSON: {}", text);
    }

    #[test]
    fn different_values_have_different_identities(a in json(), b in json()) {
        // Numbers of equal value are equal: 1 and 1.0. Compare by what a reader would see.
        fn seen(value: &serde_json::Value) -> String {
            match value {
                serde_json::Value::Number(number) if number.as_f64() == Some(0.0) => "0".to_owned(),
                serde_json::Value::Number(number) => format!("{:?}", number.as_f64()),
                serde_json::Value::Array(list) => format!("[{}]", list.iter().map(seen).collect::<Vec<_>>().join(",")),
                serde_json::Value::Object(map) => {
                    format!("{{{}}}", map.iter().map(|(k, v)| format!("{k:?}:{}", seen(v))).collect::<Vec<_>>().join(","))
                }
                other => other.to_string(),
            }
        }
        let feature = |v: &serde_json::Value| text_of(&format!(r#"{{"type":"Feature","geometry":null,"properties":{{"v":{v}}}}}"#));
        if seen(&a) != seen(&b) {
            prop_assert_ne!(feature(&a), feature(&b));
        }
    }
}
