//! All reference data sets through the real binary: results equal the expected ones, the ledger balances, and the
//! receiver has every deliverable event once, byte for byte.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::process::{Process, run, stdout, wait_status};
use crate::support::{receiver, shared};

const SETS: &[&str] = &[
    "vehicle_fleet.ndjson",
    "region_bursts.geojsonseq",
    "air_quality.ndjson",
    "boundaries_10m.ndjson",
    "boundaries_50m.ndjson",
    "boundaries_50m_defects.ndjson",
    "mixed_stream.ndjson",
];

/// The elements of a data file, as they stand.
fn elements(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let separator =
        if path.extension().is_some_and(|extension| extension == "geojsonseq") { '\u{1e}' } else { '\n' };
    text.split(separator)
        .map(|element| element.trim_matches('\n'))
        .filter(|element| !element.is_empty())
        .map(str::to_owned)
        .collect()
}

fn expected(path: &Path) -> Vec<Value> {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(path.with_file_name(format!("{name}.expected.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the reference says of an element, in our words: whether it must be delivered.
fn deliverable(element: &str, expected: &Value) -> bool {
    match expected["outcome"].as_str().unwrap() {
        // The reference closes an open ring by itself; RFC 7946 (3.1.6) wants it closed, so it is a dead letter here.
        "valid" => !has_open_ring(element),
        // The reference raises for a null geometry, which RFC 7946 allows.
        "exception" => serde_json::from_str::<Value>(element).is_ok_and(|feature| {
            feature["type"] == "Feature" && feature.get("geometry") == Some(&Value::Null)
        }),
        _ => false,
    }
}

fn has_open_ring(element: &str) -> bool {
    let feature: Value = serde_json::from_str(element).unwrap();
    feature["properties"]["change"] == "open-ring"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_data_set_comes_out_as_the_reference_says() {
    for name in SETS {
        let Some(path) = shared(&format!("data/{name}")) else { return };
        let elements = elements(&path);
        let expected = expected(&path);
        assert_eq!(elements.len(), expected.len(), "{name}");
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let receiver = receiver::keeping().await;
        let config = dir.path().join("waypost.toml");
        std::fs::write(
            &config,
            format!(
                "data_dir = {data:?}\n[ingest]\nlisten = \"127.0.0.1:0\"\n[idempotency]\nrecipe = \"article\"\n[[endpoint]]\nname = \"hq\"\nurl = \"{}\"\n",
                receiver.url()
            ),
        )
        .unwrap();
        let process = Process::start_config(&config, &data);
        let dir_text = data.to_str().unwrap();
        let output = run(&["send", "--json", "--data-dir", dir_text, path.to_str().unwrap()]);
        let totals: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let status = wait_status(&process.client(), Duration::from_secs(60), |s| s.ledger.pending == 0).await;
        assert!(status.ledger.balanced, "{name}: {:?}", status.ledger);
        let count = |key: &str| totals[key].as_u64().unwrap();
        assert_eq!(
            count("accepted") + count("duplicates") + count("dead_lettered") + count("rejected"),
            elements.len() as u64,
            "{name}: {totals}"
        );
        assert_eq!(status.ledger.delivered, count("accepted"), "{name}");
        assert_eq!(status.ledger.dead, count("dead_lettered"), "{name}");

        // Bodies that must arrive, and their reference key.
        let mut wanted: HashMap<&str, Option<&str>> = HashMap::new();
        for (element, expected) in elements.iter().zip(&expected) {
            if deliverable(element, expected) {
                wanted.insert(element, expected["key"].as_str());
            }
        }
        let mut arrived = 0;
        let mut texts = HashSet::new();
        for seen in receiver.book().seen() {
            let body = String::from_utf8(seen.body.clone().unwrap().to_vec()).unwrap();
            let key =
                wanted.get(body.as_str()).unwrap_or_else(|| panic!("{name}: not to be delivered: {body}"));
            if let Some(key) = key {
                assert_eq!(seen.key, *key, "{name}: {body}");
            }
            texts.insert(body);
            arrived += 1;
        }
        // A repeat is answered as a duplicate and sent once; nothing else that is deliverable is missing.
        let missing: Vec<_> = wanted.keys().filter(|text| !texts.contains(**text)).collect();
        assert!(
            missing.is_empty(),
            "{name}: {} deliverable events missing: {:?}",
            missing.len(),
            missing.first()
        );
        assert_eq!(arrived, count("accepted"), "{name}: every accepted event once");
        assert_eq!(receiver.book().totals().requests, count("accepted"), "{name}");
        println!("{name}: {totals}");
        assert!(process.terminate().success());
    }
}
