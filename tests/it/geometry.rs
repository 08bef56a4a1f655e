//! The geometry gate against the reference: what shapely / GEOS says of the same texts.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use waypost::core::geometry::parse::{self, Limits, RefusalKind};
use waypost::core::geometry::repair::{Change, repair};
use waypost::core::geometry::{DefectKind, Geometry, GeometryVerdict, bbox, check};

use crate::support::shared;

mod corpus;
mod oracle;
mod recipes;

/// Texts of the vectors that shapely takes although they are no strict RFC 7946 GeoJSON, and why we do not.
const LAX: &[(&str, &str)] = &[
    ("gen/s/polygon/unclosed-", "rings must be closed (section 3.1.6); shapely closes them"),
    ("gen/s/polygon/ring-of-3-points", "an open ring of three positions"),
    ("gen/s/polygon/hole-of-3-points-open", "an open ring of three positions"),
    ("gen/s/empty/MultiPoint-[[]]", "a position without numbers (section 3.1.1)"),
    ("gen/s/empty/LineString-[[]]", "a position without numbers"),
    ("gen/s/empty/Point-[[]]", "a position that holds an array"),
    ("gen/s/null/polygon-coordinates", "coordinates must be an array (section 3.1)"),
    ("gen/s/badtype/linestring-[[1,2],[\"3\",\"4\"]]", "numbers as strings"),
    ("gen/s/badtype/multipoint-3-deep", "brackets too deep"),
    ("gen/s/type/point", "type names are case-sensitive (section 1.4)"),
    ("gen/s/type/LinearRing", "no GeoJSON type"),
    ("gen/s/type/linearring-bow-tie", "no GeoJSON type"),
    (
        "gen/s/nonfinite/",
        "1e400 is a JSON number that no double holds: refused on parsing, so infinity never comes in",
    ),
    ("gen/s/type/feature-inside-geometry", "a Feature is no geometry"),
    ("gen/s/depth/nested-collections-100", "deeper than 128 levels: a named limit"),
    ("gen/s/depth/nested-collections-300", "deeper than 128 levels: a named limit"),
    ("gen/s/depth/coordinates-50", "brackets too deep"),
    ("gen/s/duplicate-key/type", "two types in one geometry"),
];

/// Of the vectors' 378 defects, how many may be called by another name than GEOS's: several are there, and another one is
/// met first.
const KINDS_DIFFERENT_MAX: usize = 4;

/// A text as judged by us: class, reason, place.
fn judge(text: &str) -> (&'static str, String, Option<[f64; 2]>) {
    let geometry = match parse::geometry(text, &Limits::default()) {
        Ok(geometry) => geometry,
        Err(refusal) => return ("exception", refusal.to_string(), None),
    };
    judge_geometry(&geometry)
}

fn judge_geometry(geometry: &Geometry) -> (&'static str, String, Option<[f64; 2]>) {
    match check(geometry) {
        GeometryVerdict::Valid => ("valid", String::new(), None),
        GeometryVerdict::Empty => ("empty", String::new(), None),
        GeometryVerdict::Invalid(defect) => ("invalid", defect.kind.as_str().to_owned(), defect.location),
    }
}

/// Class and kind of an outcome text of the reference.
fn outcome(text: &str) -> (&str, &str) {
    if let Some(reason) = text.strip_prefix("invalid topology: ") {
        return ("invalid", reason.split('[').next().unwrap_or(reason));
    }
    match text {
        "valid" => ("valid", ""),
        "empty geometry" => ("empty", ""),
        _ => ("exception", ""),
    }
}

fn segments(geometry: &Geometry, out: &mut Vec<[[f64; 2]; 2]>) {
    let mut line = |line: &Vec<[f64; 2]>| {
        out.extend(line.windows(2).map(|pair| [pair[0], pair[1]]));
        out.extend(line.first().map(|point| [*point, *point]));
    };
    match geometry {
        Geometry::Point(point) => out.extend(point.map(|point| [point, point])),
        Geometry::MultiPoint(points) | Geometry::LineString(points) => line(points),
        Geometry::MultiLineString(lines) | Geometry::Polygon(lines) => lines.iter().for_each(line),
        Geometry::MultiPolygon(polygons) => polygons.iter().flatten().for_each(line),
        Geometry::GeometryCollection(members) => members.iter().for_each(|member| segments(member, out)),
    }
}

/// Distance of a point from the geometry's lines, as a share of 1 or of the size of its coordinates if that is larger
/// (doubles near 1e7 are 1e-9 apart).
fn distance(geometry: &Geometry, [x, y]: [f64; 2]) -> f64 {
    let mut all = Vec::new();
    segments(geometry, &mut all);
    let size = all.iter().flatten().flatten().fold(1.0_f64, |size, number| size.max(number.abs()));
    for number in all.iter_mut().flatten().flatten() {
        *number /= size;
    }
    let (x, y) = (x / size, y / size);
    let near = all.iter().map(|[a, b]| {
        let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
        let length = dx * dx + dy * dy;
        let t =
            if length > 0.0 { (((x - a[0]) * dx + (y - a[1]) * dy) / length).clamp(0.0, 1.0) } else { 0.0 };
        (a[0] + t * dx - x).hypot(a[1] + t * dy - y)
    });
    near.fold(f64::INFINITY, f64::min)
}

#[test]
fn agrees_with_the_reference_on_every_strict_vector() {
    let (mut strict, mut lax, mut kinds, mut same_kind, mut places) = (0, 0, 0, 0, 0);
    let mut faults = Vec::new();
    for file in ["golden/geometry_validity.jsonl", "golden/geometry_validity_more.jsonl"] {
        let Some(path) = shared(file) else { return };
        for line in fs::read_to_string(path).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let name = case["name"].as_str().unwrap();
            let mut outcomes = vec![case["shapely_outcome"].as_str().unwrap()];
            let others = case["other_versions"].as_object().into_iter().flatten();
            outcomes.extend(others.filter_map(|(_, outcome)| outcome.as_str()));
            let wanted: Vec<_> = outcomes.iter().map(|text| outcome(text)).collect();
            let (geometry, (class, reason, place)) = if let Some(recipe) = case.get("recipe") {
                let geometry = recipes::build(recipe);
                let judged = judge_geometry(&geometry);
                (Some(geometry), judged)
            } else {
                let text = case["geojson_text"].as_str().unwrap();
                (parse::geometry(text, &Limits::default()).ok(), judge(text))
            };
            if case["strict_json"] == false {
                // NaN and the like: terminal for the reference, no JSON for us.
                assert_eq!(class, "exception", "{name}");
                continue;
            }
            if LAX.iter().any(|(prefix, _)| name.starts_with(prefix)) {
                lax += 1;
                assert_ne!(class, "valid", "{name}: {reason}");
                continue;
            }
            strict += 1;
            if !wanted.iter().any(|(other, _)| *other == class) {
                faults.push(format!("{name}: {class} {reason} {place:?}, wanted {outcomes:?}"));
            } else if class == "invalid" {
                kinds += 1;
                if wanted.iter().any(|(_, kind)| *kind == reason) {
                    same_kind += 1;
                } else {
                    println!("kind differs: {name}: {reason} {place:?}, wanted {outcomes:?}");
                }
                let off = distance(geometry.as_ref().unwrap(), place.unwrap());
                places += usize::from(off <= 1e-9);
                if off > 1e-9 {
                    println!("place off by {off}: {name} {place:?}, wanted {outcomes:?}");
                }
            }
        }
    }
    println!(
        "{strict} strict, {lax} lax; of {kinds} defects {same_kind} of the same kind, {places} places on the geometry"
    );
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(same_kind + KINDS_DIFFERENT_MAX >= kinds, "kinds: {same_kind} of {kinds}");
    assert_eq!(places, kinds, "every place lies on the geometry");
}

#[test]
fn agrees_with_the_reference_on_every_data_set() {
    const SETS: [(&str, &str); 7] = [
        ("vehicle_fleet", "ndjson"),
        ("region_bursts", "geojsonseq"),
        ("air_quality", "ndjson"),
        ("boundaries_10m", "ndjson"),
        ("boundaries_50m", "ndjson"),
        ("boundaries_50m_defects", "ndjson"),
        ("mixed_stream", "ndjson"),
    ];
    let mut counts: BTreeMap<(&str, String, String), usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for (set, form) in SETS {
        let (Some(data), Some(expected)) =
            (shared(&format!("data/{set}.{form}")), shared(&format!("data/{set}.expected.jsonl")))
        else {
            return;
        };
        let (data, expected) = (fs::read_to_string(data).unwrap(), fs::read_to_string(expected).unwrap());
        for (number, (line, wanted)) in data.lines().zip(expected.lines()).enumerate() {
            let wanted: Value = serde_json::from_str(wanted).unwrap();
            let wanted_class = wanted["outcome"].as_str().unwrap();
            let wanted_kind = outcome(wanted["reason"].as_str().unwrap_or_default()).1;
            let feature: Option<Value> = serde_json::from_str(line.trim_start_matches('\u{1e}')).ok();
            let (class, reason, _) = match &feature {
                None => ("not JSON", String::new(), None),
                Some(feature) if feature["geometry"].is_null() => ("exception", "null".to_owned(), None),
                Some(feature) => judge(&feature["geometry"].to_string()),
            };
            // What differs on purpose: we ask for closed rings, and NaN is no JSON.
            let open = reason == "Ring is not closed" && wanted_class == "valid";
            let nan = class == "not JSON" && wanted_kind == "Invalid Coordinate";
            let note = if open {
                "open ring"
            } else if nan {
                "NaN"
            } else {
                ""
            };
            if class != wanted_class && note.is_empty() {
                faults.push(format!("{set}:{}: {class} {reason}, wanted {wanted}", number + 1));
            }
            if class == "invalid" && note.is_empty() && reason != wanted_kind {
                println!("kind differs: {set}:{}: {reason}, wanted {wanted_kind}", number + 1);
            }
            *counts.entry((set, class.to_owned(), note.to_owned())).or_default() += 1;
        }
    }
    for (key, count) in counts {
        println!("{key:?}: {count}");
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_recipe_is_judged_at_every_size() {
    for n in [100, 1_000, if cfg!(debug_assertions) { 5_000 } else { 1_000_000 }] {
        for recipe in recipes::ALL {
            let geometry = recipes::make(recipe, n);
            let class = judge_geometry(&geometry).0;
            assert_eq!(class, if recipe.valid { "valid" } else { "invalid" }, "{recipe:?} {n}");
        }
    }
}

/// Twice the signed area of a ring, from its first corner so that large coordinates cost no digits.
fn doubled_area(ring: &[[f64; 2]]) -> f64 {
    let [x, y] = ring[0];
    ring.windows(2).map(|p| (p[0][0] - x) * (p[1][1] - y) - (p[1][0] - x) * (p[0][1] - y)).sum()
}

fn area(geometry: &Geometry) -> f64 {
    let polygon = |rings: &Vec<Vec<[f64; 2]>>| {
        let sizes = rings.iter().enumerate().map(|(at, ring)| {
            let size = doubled_area(ring).abs() / 2.0;
            if at == 0 { size } else { -size }
        });
        sizes.sum::<f64>()
    };
    match geometry {
        Geometry::Polygon(rings) => polygon(rings),
        Geometry::MultiPolygon(polygons) => polygons.iter().map(polygon).sum(),
        _ => 0.0,
    }
}

#[test]
fn what_is_mended_is_as_large_as_geos_makes_it() {
    let areas: BTreeMap<String, Option<f64>> =
        serde_json::from_str(include_str!("geometry/make_valid_areas.json")).unwrap();
    let (mut both, mut same, mut ours_only, mut theirs_only, mut types) = (0, 0, 0, 0, 0);
    for file in ["golden/geometry_validity.jsonl", "golden/geometry_validity_more.jsonl"] {
        let Some(path) = shared(file) else { return };
        for line in fs::read_to_string(path).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let name = case["name"].as_str().unwrap();
            let Some(theirs) = areas.get(name) else { continue };
            let text = case["geojson_text"].as_str().unwrap();
            let Ok(geometry) = parse::geometry(text, &Limits::default()) else { continue };
            match (repair(&geometry), theirs) {
                (Ok(mended), Some(theirs)) => {
                    assert_eq!(check(&mended.geometry), GeometryVerdict::Valid, "{name}");
                    let retyped = mended.geometry.type_name() != geometry.type_name();
                    assert_eq!(mended.changes.contains(&Change::TypeChanged), retyped, "{name}");
                    types += usize::from(retyped);
                    let ours = area(&mended.geometry);
                    both += 1;
                    let equal = (ours - theirs).abs() <= 1e-9 * theirs.abs();
                    same += usize::from(equal);
                    if !equal {
                        println!("area differs: {name}: {ours}, GEOS {theirs}");
                    }
                }
                (Ok(mended), None) => {
                    ours_only += 1;
                    println!("GEOS leaves no area: {name}: {:?}", area(&mended.geometry));
                }
                (Err(why), Some(theirs)) => {
                    theirs_only += 1;
                    println!("not mended: {name}: {why}, GEOS {theirs}");
                }
                (Err(_), None) => {}
            }
        }
    }
    println!(
        "{both} mended by both, {same} of the same area, {types} of another type now; {ours_only} by us only, {theirs_only} by GEOS only"
    );
    assert_eq!(same, both, "every area is as large as GEOS makes it");
    assert_eq!(theirs_only, 0, "what GEOS mends, we mend");
}

/// What the issue's limits are called, and what is not refused: places no Earth has, and shapes over the antimeridian, which
/// are judged as given.
#[test]
fn limits_have_names_and_odd_places_are_taken_as_given() {
    let tight = Limits { vertices_max: 4, ..Limits::default() };
    let square = r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1],[0,0]]]}"#;
    let refusal = parse::geometry(square, &tight).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::TooManyVertices { vertices_max: 4 });
    assert_eq!(refusal.defect().map(|defect| defect.kind), Some(DefectKind::TooManyVertices));
    let deep = r#"{"type":"GeometryCollection","geometries":["#.repeat(200) + &"]}".repeat(200);
    let deep = parse::geometry(&deep, &Limits::default()).unwrap_err();
    assert_eq!(deep.kind, RefusalKind::TooDeep { depth_max: 128 });

    for (number, finite) in
        [("NaN", false), ("Infinity", false), ("-Infinity", false), ("1e400", false), ("1e308", true)]
    {
        let parsed =
            parse::geometry(&format!(r#"{{"type":"Point","coordinates":[0,{number}]}}"#), &Limits::default());
        match parsed {
            Ok(_) => assert!(finite, "{number}"),
            Err(refusal) => {
                let named = matches!(refusal.kind, RefusalKind::NotJson { .. } | RefusalKind::NotFinite);
                assert!(!finite && named, "{number}: {refusal}");
            }
        }
    }

    let given = [
        // From 170 east to 170 west: 340 degrees wide as given.
        r#"{"type":"Polygon","coordinates":[[[170,0],[-170,0],[-170,9],[170,9],[170,0]]]}"#,
        // Beyond 180, as some producers write it.
        r#"{"type":"Polygon","coordinates":[[[170,0],[190,0],[190,9],[170,9],[170,0]]]}"#,
        // Cut as RFC 7946 section 3.1.9 asks for.
        r#"{"type":"MultiPolygon","coordinates":[[[[170,0],[180,0],[180,9],[170,9],[170,0]]],[[[-180,0],[-170,0],[-170,9],[-180,9],[-180,0]]]]}"#,
        // Web Mercator metres.
        r#"{"type":"Point","coordinates":[1495000,6894000]}"#,
    ];
    let extents = [
        [-170.0, 0.0, 170.0, 9.0],
        [170.0, 0.0, 190.0, 9.0],
        [-180.0, 0.0, 180.0, 9.0],
        [1_495_000.0, 6_894_000.0, 1_495_000.0, 6_894_000.0],
    ];
    for (text, extent) in given.iter().zip(extents) {
        let geometry = parse::geometry(text, &Limits::default()).unwrap();
        assert_eq!(check(&geometry), GeometryVerdict::Valid, "{text}");
        assert_eq!(bbox(&geometry), Some(extent), "{text}");
        assert_eq!(repair(&geometry).unwrap().geometry, geometry, "never \"fixed\"");
    }
}
