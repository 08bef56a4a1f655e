//! Keys against the reference: the article's blobs and keys byte for byte, and the texts of recipe `event` pinned.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;
use waypost::core::event::{
    Dedup, Document, EventMeta, Feature, IntakeSettings, KeyPlan, Pointers, document, identity_text, prepare,
};
use waypost::core::ids::{EndpointId, Seq, StoreSalt};
use waypost::core::key::{
    Recipe, article_blob, article_key, event_key, producer_digest, sha256, with_sequence,
};
use waypost::core::route::Routes;

use crate::support::shared;

fn feature(text: &str) -> Option<Feature> {
    match document(text.as_bytes().to_vec().into()) {
        Ok(Document::Feature(feature)) => Some(feature),
        _ => None,
    }
}

fn article(text: &str, device: &str, event_type: &str, precision: u8) -> Option<(String, String)> {
    let blob = article_blob(feature(text)?.geometry_text(), precision).ok()?;
    let key = article_key(device, event_type, &blob).to_string();
    Some((blob, key))
}

#[derive(Deserialize)]
struct Case {
    name: String,
    category: String,
    feature: String,
    device_id: String,
    event_type: String,
    precision: u8,
    canonical_blob: Option<String>,
    key: Option<String>,
}

/// Where we refuse what the reference keys: no JSON, or no GeoJSON. `types`, `dims`, `empty`, … must all match.
fn may_be_refused(case: &Case) -> Option<&'static str> {
    match case.category.as_str() {
        "nonfinite" => Some("NaN and Infinity are no JSON; 1e400 has no double"),
        "bad-coordinates" => Some("true, {} and strings are no coordinates"),
        "structure" => Some("no `type`, an unknown type, a lone surrogate, or a member twice"),
        "nesting" => Some("128 levels and more"),
        "empty" if case.feature.contains("{}}") && case.name.ends_with("{}") => Some("{} is no array"),
        _ => None,
    }
}

#[test]
fn article_keys_equal_the_reference() {
    let Some(path) = shared("golden/idempotency.jsonl") else { return };
    let (mut matched, mut refused) = (0, BTreeMap::<String, u32>::new());
    for line in fs::read_to_string(path).unwrap().lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let ours = article(&case.feature, &case.device_id, &case.event_type, case.precision);
        match (&case.canonical_blob, ours) {
            (Some(blob), Some((our_blob, our_key))) => {
                assert_eq!(&our_blob, blob, "{}", case.name);
                assert_eq!(Some(our_key), case.key, "{}", case.name);
                matched += 1;
            }
            (Some(_), None) => {
                assert!(
                    may_be_refused(&case).is_some(),
                    "{} has a key in the reference: {}",
                    case.name,
                    case.feature
                );
                *refused.entry(case.category.clone()).or_default() += 1;
            }
            // The reference wants a Feature; a bare geometry is made one here.
            (None, Some(_)) => assert_eq!(case.name, "structure/25"),
            (None, None) => {}
        }
    }
    println!("{matched} article keys equal; refused though the reference has a key: {refused:?}");
    assert!(matched >= 574, "{matched}");
}

#[derive(Deserialize)]
struct Side {
    feature: String,
    device_id: String,
    event_type: String,
    precision: u8,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    property: String,
    relation: String,
    a: Side,
    b: Side,
    key_a: String,
    key_b: String,
}

#[test]
fn article_properties_hold_and_recipe_event_keeps_what_it_should() {
    let Some(path) = shared("golden/idempotency_properties.jsonl") else { return };
    let mut matched = 0;
    for line in fs::read_to_string(path).unwrap().lines() {
        let pair: Pair = serde_json::from_str(line).unwrap();
        // `true` as a coordinate and `point` as a type are refused.
        if matches!(pair.property.as_str(), "bool-as-number" | "type-case") {
            let both = article(&pair.a.feature, "", "", 7).and(article(&pair.b.feature, "", "", 7));
            assert!(both.is_none(), "{}", pair.name);
            continue;
        }
        let key = |side: &Side| {
            article(&side.feature, &side.device_id, &side.event_type, side.precision).map(|(_, key)| key)
        };
        assert_eq!(key(&pair.a).as_ref(), Some(&pair.key_a), "{} a", pair.name);
        assert_eq!(key(&pair.b).as_ref(), Some(&pair.key_b), "{} b", pair.name);
        matched += 2;
        let event = |side: &Side| {
            let settings = IntakeSettings { precision: side.precision, ..IntakeSettings::default() };
            let meta = EventMeta::from_headers(
                Some(side.device_id.as_bytes()),
                Some(side.event_type.as_bytes()),
                None,
            );
            identity_text(&settings, &feature(&side.feature).unwrap(), &meta.unwrap()).unwrap()
        };
        // Where the article merges events that differ, recipe `event` does not; where only the writing differs, both
        // agree.
        match pair.property.as_str() {
            "drift-below-half-unit" | "trailing-zeros-and-exponent" | "negative-zero-int" => {
                assert_eq!(event(&pair.a), event(&pair.b), "{}", pair.name);
            }
            "colon-ambiguity" | "stationary-sensor-new-reading" | "revisit" => {
                assert_ne!(event(&pair.a), event(&pair.b), "{}", pair.name);
            }
            _ if pair.relation == "different_key" => {
                assert_ne!(event(&pair.a), event(&pair.b), "{}", pair.name);
            }
            _ => {}
        }
    }
    println!("{matched} keys of pairs equal");
    assert_eq!(matched, 246);
}

/// Recipe `event`, version 2 of the wire key: these never change. A new text gets a new version and new cases.
const PINNED: &[(&str, &str, &str)] = &[
    (
        r#"{"type":"Feature","id":"truck-0023/0","geometry":{"type":"Point","coordinates":[13.46518720000001,52.4717067]},"properties":{"device_id":"truck-0023","event_type":"position","ts":"2026-03-02T06:00:00.087Z","seq":0,"speed_mps":7.50}}"#,
        r#"["idem:v2","event","truck-0023","position","truck-0023/0",{"coordinates":[13.4651872,52.4717067],"type":"Point"},{"device_id":"truck-0023","event_type":"position","seq":0,"speed_mps":75e-1,"ts":"2026-03-02T06:00:00.087Z"},{}]"#,
        "idem:v2:2c017587228d2f912fd0e92d99ec2fe903b0f09fc4f0d8b383cb9133602c1619",
    ),
    (
        r#"{"properties":null,"geometry":null,"type":"Feature","id":7.0}"#,
        r#"["idem:v2","event","unknown","feature",7,null,null,{}]"#,
        "idem:v2:339b0c1cd5a1269be50c373c37db62faa9b87a069b908d7830ba48fe3c40de6e",
    ),
    (
        r#"{"type":"Feature","bbox":[0,0,1,1],"title":"\u0041 \"b\"\n","geometry":{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,-0.0,3]},{"type":"LineString","coordinates":[[0.00000005,1e-7],[2e0,-0]]}]},"properties":{"b":[1.10,null,{"z":1,"a":true}],"a":"\u00e4"},"when":{"t":1e3}}"#,
        r#"["idem:v2","event","unknown","feature",null,{"geometries":[{"coordinates":[1,-0.0,3],"type":"Point"},{"coordinates":[[0.0,1e-07],[2.0,0]],"type":"LineString"}],"type":"GeometryCollection"},{"a":"ä","b":[11e-1,null,{"a":true,"z":1}]},{"title":"A \"b\"\u000a","when":{"t":1e3}}]"#,
        "idem:v2:d9ae6b73b6e4528de847a4074e36027d07eeb1f9910e1145bc06feeb274025b1",
    ),
];

#[test]
fn recipe_event_is_pinned() {
    let settings = IntakeSettings::default();
    for (text, canonical, key) in PINNED {
        let found = identity_text(&settings, &feature(text).unwrap(), &EventMeta::default()).unwrap();
        assert_eq!(&found, canonical);
        assert_eq!(event_key(sha256(found.as_bytes())).as_str(), *key, "{text}");
    }
}

#[test]
fn other_texts_are_pinned() {
    let digest = sha256(b"waypost");
    // sha256 of ["idem:v2","sequence","<hex of digest>",7,42] and of ["idem:v2","producer","a:b","k\"1"].
    assert_eq!(
        with_sequence(digest, StoreSalt(7), Seq(42)).as_str(),
        "idem:v2:79698a497062be42a32404cfb738d8876b2123538dfda6fa2872292d9206584c"
    );
    assert_eq!(
        event_key(producer_digest("a:b", "k\"1")).as_str(),
        "idem:v2:8b2be6776dacaf8e660001bf278056e9204051a87bc859dfef927b609a537e2e"
    );
}

fn one_endpoint() -> IntakeSettings {
    IntakeSettings { routes: Routes::new(vec![EndpointId(1)], Vec::new()), ..IntakeSettings::default() }
}

fn meta(device: &str, event_type: &str, key: Option<&str>) -> EventMeta {
    EventMeta::from_headers(Some(device.as_bytes()), Some(event_type.as_bytes()), key.map(str::as_bytes))
        .unwrap()
}

const HEARTBEAT: &str =
    r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1.5,2.5]},"properties":{}}"#;
const READING: &str = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1.5,2.5]},"properties":{"ts":"2026-03-02T06:00:00Z","v":1}}"#;

#[test]
fn a_time_or_sequence_fixes_the_key_and_without_one_the_acceptance_decides() {
    let settings = one_endpoint();
    let plan = |text: &str| {
        let event = prepare(&settings, &feature(text).unwrap(), &meta("d", "t", None)).unwrap();
        (event.dedup, event.key, event.identity)
    };
    let (dedup, key, _) = plan(READING);
    assert!(matches!((dedup, key), (Dedup::Ttl, KeyPlan::Fixed(_))));
    let (dedup, key, _) = plan(HEARTBEAT);
    let (Dedup::Window, KeyPlan::WithSequence(digest)) = (dedup, key) else {
        panic!("a heartbeat has no time")
    };
    let salt = StoreSalt(7);
    assert_ne!(with_sequence(digest, salt, Seq(1)), with_sequence(digest, salt, Seq(2)));
    assert_ne!(with_sequence(digest, salt, Seq(1)), with_sequence(digest, StoreSalt(8), Seq(1)));
    // A clock that was never set, and words instead of a time, tell nothing apart.
    for member in
        [r#""ts":"1970-01-01T00:00:03Z""#, r#""ts":17.5"#, r#""ts":"n/a""#, r#""ts":null"#, r#""seq":null"#]
    {
        assert_eq!(plan(&HEARTBEAT.replace("{}", &format!("{{{member}}}"))).0, Dedup::Window, "{member}");
    }
    for member in [r#""ts":1772431200"#, r#""seq":0"#, r#""seq":"a-7""#, r#""time":"2026-03-02T06:00:00""#] {
        assert_eq!(plan(&HEARTBEAT.replace("{}", &format!("{{{member}}}"))).0, Dedup::Ttl, "{member}");
    }
    let volatile = IntakeSettings {
        pointers: Pointers { volatile: vec!["/properties/ts".parse().unwrap()], ..Pointers::default() },
        ..one_endpoint()
    };
    let event = prepare(&volatile, &feature(READING).unwrap(), &EventMeta::default()).unwrap();
    assert_eq!(event.dedup, Dedup::Window, "a time that the identity leaves out tells nothing apart");
    assert!(event.observed_at.is_some());
    assert_ne!(plan(READING).2, plan(&READING.replace("\"v\":1", "\"v\":2")).2, "two readings at one place");
    assert_ne!(
        plan(&HEARTBEAT.replace("}}", "},\"when\":1}")).2,
        plan(&HEARTBEAT.replace("}}", "},\"when\":2}")).2,
        "foreign members count"
    );
}

#[test]
fn a_producers_key_is_the_identity_within_its_device() {
    let settings = one_endpoint();
    let event = |device: &str, key: &str, text: &str| {
        prepare(&settings, &feature(text).unwrap(), &meta(device, "t", Some(key))).unwrap()
    };
    let first = event("d", "k-1", READING);
    assert!(first.producer_keyed);
    assert_eq!(first.dedup, Dedup::Ttl);
    let other_body = event("d", "k-1", HEARTBEAT);
    assert_eq!((first.identity, &first.key), (other_body.identity, &other_body.key));
    assert_ne!(first.digest, other_body.digest);
    assert_ne!(first.identity, event("e", "k-1", READING).identity);
    assert_ne!(event("a", "b:c", READING).identity, event("a:b", "c", READING).identity);
    let KeyPlan::Fixed(key) = &first.key else { panic!("a producer's key is fixed") };
    assert!(key.as_str().starts_with("idem:v2:") && key.as_str().len() == 72);
    let verbatim = IntakeSettings { forward_producer_key: true, ..one_endpoint() };
    let event = prepare(&verbatim, &feature(READING).unwrap(), &meta("d", "t", Some("k-1"))).unwrap();
    assert_eq!(event.key, KeyPlan::Fixed("k-1".into()));
}

#[test]
fn recipe_article_changes_the_wire_key_only() {
    let article = IntakeSettings { recipe: Recipe::Article, ..one_endpoint() };
    let both = |text: &str| {
        [&one_endpoint(), &article]
            .map(|settings| prepare(settings, &feature(text).unwrap(), &EventMeta::default()).unwrap())
    };
    let [event, by_article] = both(READING);
    assert_eq!((event.identity, event.dedup), (by_article.identity, by_article.dedup));
    let KeyPlan::Fixed(key) = &by_article.key else { panic!("the article's key is fixed") };
    assert!(key.as_str().starts_with("idem:v1:"));
    // What the article cannot key gets an `event` key.
    for geometry in
        ["null", r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]}]}"#]
    {
        let [event, by_article] =
            both(&READING.replace(r#"{"type":"Point","coordinates":[1.5,2.5]}"#, geometry));
        assert_eq!(event.key, by_article.key);
    }
}

#[test]
fn labels_come_from_headers_then_members_then_defaults() {
    let settings = one_endpoint();
    let labels = |text: &str, meta: &EventMeta| {
        let event = prepare(&settings, &feature(text).unwrap(), meta).unwrap();
        (event.device.to_string(), event.event_type.to_string())
    };
    let own = HEARTBEAT.replace("{}", r#"{"sensor_id":17,"type":"alarm"}"#);
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(labels(HEARTBEAT, &EventMeta::default()), pair("unknown", "feature"));
    assert_eq!(labels(&own, &EventMeta::default()), pair("17", "alarm"));
    assert_eq!(labels(&own, &meta("d", "", None)), pair("d", "alarm"));
    assert!(EventMeta::from_headers(Some(&[0xff]), None, None).is_err());
    assert!(EventMeta::from_headers(None, None, Some(b"  ")).is_err());
    assert!(EventMeta::from_headers(Some(&[b'x'; 1025]), None, None).is_err());
    let long = HEARTBEAT.replace("{}", &format!(r#"{{"device_id":"{}"}}"#, "x".repeat(1025)));
    assert!(prepare(&settings, &feature(&long).unwrap(), &EventMeta::default()).is_err());
}
