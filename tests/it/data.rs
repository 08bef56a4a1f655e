//! The seven data sets through intake, compared line by line with what the reference functions say of them.

use std::fs;

use bytes::Bytes;
use serde::Deserialize;
use waypost::core::delivery::FailureClass;
use waypost::core::event::{
    EventMeta, Framing, IntakeSettings, KeyPlan, NewEvent, Rejection, SequenceSplitter, document, prepare,
};
use waypost::core::geometry::DefectKind;
use waypost::core::ids::EndpointId;
use waypost::core::key::Recipe;
use waypost::core::route::Routes;

use crate::support::shared;

#[derive(Deserialize)]
struct Expected {
    line: u64,
    outcome: String,
    key: Option<String>,
    reason: Option<String>,
}

/// As the server does it: chunk by chunk, text by text.
fn intake(settings: &IntakeSettings, framing: Framing, bytes: &[u8]) -> Vec<Result<NewEvent, Rejection>> {
    let mut splitter = SequenceSplitter::new(framing, settings.body_bytes_max);
    let mut results = Vec::new();
    let one = |text: Bytes| {
        let feature = document(text)?.into_iter().next().expect("one feature a line")?;
        prepare(settings, &feature, &EventMeta::default())
    };
    for chunk in bytes.chunks(16 << 10) {
        splitter.push(Bytes::copy_from_slice(chunk));
        results.extend(splitter.by_ref().map(|element| element.text.map_err(Rejection::from).and_then(one)));
    }
    splitter.finish();
    results.extend(splitter.map(|element| element.text.map_err(Rejection::from).and_then(one)));
    results
}

/// What the reference calls the outcome, read off ours. `exception` is refused or dead, except that a null geometry is legal.
fn agrees(expected: &Expected, found: &Result<NewEvent, Rejection>) -> bool {
    let dead = found.as_ref().ok().and_then(|event| event.dead.first()).map(|(_, reason)| reason);
    let geometry = dead.filter(|reason| reason.class == FailureClass::InvalidGeometry);
    match expected.outcome.as_str() {
        // The reference closes open rings by itself; RFC 7946 (3.1.6) wants them closed, so they are terminal here.
        "valid" => match geometry {
            Some(reason) => reason.message == DefectKind::RingNotClosed.as_str(),
            None => found.as_ref().is_ok_and(|event| event.dead.is_empty()),
        },
        "empty" => geometry.is_some_and(|reason| reason.message == "empty geometry"),
        // NaN is no JSON for us; the reference reads it and calls the coordinate invalid.
        "invalid"
            if expected.reason.as_deref().is_some_and(|reason| reason.contains("Invalid Coordinate")) =>
        {
            found.is_err() || geometry.is_some()
        }
        "invalid" => geometry.is_some(),
        "not JSON" => matches!(found, Err(Rejection::Syntax { .. } | Rejection::NotUtf8 { .. })),
        "exception" => {
            let null = expected.reason.as_deref().is_some_and(|reason| reason.contains("NoneType"));
            found.is_err() || geometry.is_some() || (null && dead.is_none())
        }
        other => panic!("unknown outcome {other}"),
    }
}

/// Runs one set and wants every outcome and key to be the reference's.
fn compare(name: &str, framing: Framing) {
    let stem = name.split('.').next().unwrap();
    let (Some(data), Some(expected)) =
        (shared(&format!("data/{name}")), shared(&format!("data/{stem}.expected.jsonl")))
    else {
        return;
    };
    let settings = IntakeSettings {
        recipe: Recipe::Article,
        routes: Routes::new(vec![EndpointId(1)], Vec::new()),
        ..IntakeSettings::default()
    };
    let expected = fs::read_to_string(expected).unwrap();
    let expected: Vec<Expected> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found = intake(&settings, framing, &fs::read(data).unwrap());
    assert_eq!(found.len(), expected.len(), "{name}");
    let (mut keys, mut faults) = (0, Vec::new());
    for (expected, found) in expected.iter().zip(&found) {
        if !agrees(expected, found) {
            let ours = found.as_ref().map(|event| &event.dead);
            faults.push(format!(
                "{}: {} {:?}, ours {ours:?}",
                expected.line, expected.outcome, expected.reason
            ));
        }
        if let (Some(key), Ok(event)) = (&expected.key, found) {
            assert_eq!(event.key, KeyPlan::Fixed(key.as_str().into()), "{name}:{}", expected.line);
            keys += 1;
        }
    }
    println!("{name}: {} outcomes and {keys} keys equal", found.len() - faults.len());
    assert!(
        faults.is_empty(),
        "{name}: {} faults\n{}",
        faults.len(),
        faults[..faults.len().min(10)].join("\n")
    );
}

#[test]
fn vehicle_fleet() {
    compare("vehicle_fleet.ndjson", Framing::Lines);
}

#[test]
fn region_bursts() {
    compare("region_bursts.geojsonseq", Framing::TextSequence);
}

#[test]
fn air_quality() {
    compare("air_quality.ndjson", Framing::Lines);
}

#[test]
fn boundaries_10m() {
    compare("boundaries_10m.ndjson", Framing::Lines);
}

#[test]
fn boundaries_50m() {
    compare("boundaries_50m.ndjson", Framing::Lines);
}

#[test]
fn boundaries_50m_defects() {
    compare("boundaries_50m_defects.ndjson", Framing::Lines);
}

#[test]
fn mixed_stream() {
    compare("mixed_stream.ndjson", Framing::Lines);
}
