//! `waypost lint` on the real binary: lines, sequences, documents, streams, defect layers, mending.

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::support::process::{stdout, waypost};
use crate::support::shared;

/// Runs `lint` with arguments on an input.
fn lint(args: &[&str], input: &str) -> Output {
    let mut child = waypost()
        .arg("lint")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    output
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn feature(geometry: &str) -> String {
    format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{{"a":"b\n"}}}}"#)
}

const POINT: &str = r#"{"type":"Point","coordinates":[1,2]}"#;
const BOW_TIE: &str = r#"{"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]}"#;

#[test]
fn each_line_stands_alone_and_keeps_its_number() {
    let cut = &feature(POINT)[..50];
    let input = [
        &feature(POINT),
        "",
        &feature(BOW_TIE),
        cut,
        &feature(r#"{"type":"Point","coordinates":[NaN,2]}"#),
        &feature("null"),
        &feature(r#"{"type":"LineString","coordinates":[]}"#),
        &feature(r#"{"type":"Point","coordinates":[200,2]}"#),
        POINT,
    ]
    .join("\n");
    let output = lint(&["-"], &input);
    assert_eq!(output.status.code(), Some(1));
    let said = lines(&stdout(&output));
    let seen: Vec<_> =
        said.iter().map(|line| (line["line"].as_u64().unwrap(), line["verdict"].as_str().unwrap())).collect();
    let wanted = [
        (1, "valid"),
        (3, "invalid"),
        (4, "reject"),
        (5, "reject"),
        (6, "valid"),
        (7, "empty"),
        (8, "valid"),
        (9, "valid"),
    ];
    assert_eq!(seen, wanted);
    let wanted =
        json!({"line": 3, "verdict": "invalid", "reason": "Self-intersection", "location": [1.0, 1.0]});
    assert_eq!(said[1], wanted);
    assert_eq!(said[0], json!({"line": 1, "verdict": "valid", "reason": null, "location": null}));
    assert!(said[6]["warning"].as_str().unwrap().contains("180"));
    let quiet = lint(&["--no-range-warning"], &feature(r#"{"type":"Point","coordinates":[200,2]}"#));
    assert_eq!(quiet.status.code(), Some(0));
    assert!(!stdout(&quiet).contains("warning"));
    assert!(output.stderr.is_empty(), "the summary is for terminals");
}

#[test]
fn sequences_and_documents_are_told_apart() {
    let sequence = format!("\u{1e}{}\n\u{1e}\n\u{1e}{}\n", feature(POINT), feature(BOW_TIE));
    let said = lines(&stdout(&lint(&[], &sequence)));
    assert_eq!((&said[0]["line"], &said[1]["line"]), (&json!(1), &json!(3)));
    assert_eq!(said[1]["verdict"], "invalid");
    let document = format!(
        "{{\n\"type\": \"FeatureCollection\",\n\"features\": [\n{},\n{}\n]}}\n",
        feature(POINT),
        feature(BOW_TIE)
    );
    let said = lines(&stdout(&lint(&[], &document)));
    assert_eq!(said.len(), 2);
    assert_eq!(said[1]["verdict"], "invalid");
}

#[test]
fn an_answer_comes_before_the_stream_ends() {
    let mut child = waypost()
        .args(["lint", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // More than what is buffered on the way, far less than "the whole". The pipe stays open until an answer is here.
    let line = feature(POINT) + "\n";
    let count = (2 << 20) / line.len();
    let (answered, wait) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        pipe.write_all(line.repeat(count).as_bytes()).unwrap();
        let _ = wait.recv();
    });
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = answers.next().unwrap().unwrap();
    assert!(first.starts_with(r#"{"line":1,"#) || first.contains(r#""line":1,"#), "{first}");
    drop(answered);
    assert_eq!(answers.count() + 1, count);
    writer.join().unwrap();
    child.wait().unwrap();
}

#[test]
fn defects_become_a_layer_of_points() {
    let dir = tempfile::tempdir().unwrap();
    let layer = dir.path().join("defects.geojson");
    let input = format!("{}\n{}\nx\n", feature(POINT), feature(BOW_TIE));
    lint(&["--geojson", layer.to_str().unwrap()], &input);
    let layer: Value = serde_json::from_str(&std::fs::read_to_string(layer).unwrap()).unwrap();
    assert_eq!(layer["type"], "FeatureCollection");
    let features = layer["features"].as_array().unwrap();
    assert_eq!(features.len(), 2);
    assert_eq!(features[0]["geometry"], json!({"type": "Point", "coordinates": [1.0, 1.0]}));
    assert_eq!(features[0]["properties"]["reason"], "Self-intersection");
    assert!(features[1]["geometry"].is_null());
}

#[test]
fn fix_prints_features_that_are_valid() {
    let open = r#"{"type":"Polygon","coordinates":[[[0,0],[2,0],[2,2],[0,2]]]}"#;
    let flat = r#"{"type":"LineString","coordinates":[[1,1],[1,1]]}"#;
    let input = [feature(POINT), feature(BOW_TIE), feature(flat), feature(open)].join("\n");
    let output = lint(&["--fix"], &input);
    assert_eq!(output.status.code(), Some(1), "one was not mended");
    let fixed = stdout(&output);
    assert_eq!(fixed.lines().next().unwrap(), feature(POINT), "what is valid is not touched");
    let said = lines(&fixed);
    assert_eq!(said.len(), 3);
    assert_eq!(said[1]["geometry"]["type"], "MultiPolygon");
    assert_eq!(said[1]["properties"]["a"], "b\n");
    let told = lines(&String::from_utf8(output.stderr).unwrap());
    assert_eq!(told.len(), 3);
    assert_eq!(told[0]["mended"], json!(["areas rebuilt from their lines", "geometry type changed"]));
    assert_eq!(told[1]["not_mended"], "it has no length or area");
    assert_eq!(told[2]["mended"], json!(["ring closed"]));
    assert_eq!(lint(&[], &fixed).status.code(), Some(0), "mended features pass");
}

#[test]
fn a_data_set_with_defects_is_mended() {
    let Some(path) = shared("data/boundaries_50m_defects.ndjson") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let output = lint(&["--fix"], &text);
    let fixed = stdout(&output);
    let told = String::from_utf8(output.stderr).unwrap();
    let mended = told.lines().filter(|line| line.contains("\"mended\"")).count();
    let (out, all) = (fixed.lines().count(), text.lines().count());
    println!("{out} of {all} features come out, {mended} of them mended");
    assert!(mended > 100);
    assert_eq!(lint(&[], &fixed).status.code(), Some(0));
}
