//! `waypost dlq repair`: an invalid geometry is mended as a new event that replaces its dead letter.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use waypost::core::delivery::FailureClass;
use waypost::core::event::{EventMeta, IntakeSettings, mend};
use waypost::core::ids::{Device, EndpointId, EventType};
use waypost::core::route::Routes;
use waypost::wire::DeadLetterSelection;

use crate::support::appliance::{Running, SOON};
use crate::support::process::{Process, run, stdout, wait_status};
use crate::support::receiver;

fn feature(n: u32, geometry: &str) -> String {
    format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{{"device_id":"d","seq":{n}}}}}"#)
}

const BOW_TIE: &str = r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}"#;
/// No length: it would become a point, so it cannot be mended.
const SPECK: &str = r#"{"type":"LineString","coordinates":[[2,2],[2,2]]}"#;
const VALID: &str = r#"{"type":"Point","coordinates":[3,3]}"#;

fn all() -> DeadLetterSelection {
    DeadLetterSelection::default()
}

/// Three dead letters, two of which can be mended: a dry run says so and changes nothing; the repair delivers two new
/// events under their own keys, linked to the letters, and the ledger balances.
#[tokio::test]
async fn a_repair_replaces_dead_letters_by_new_events() {
    let receiver = receiver::keeping().await;
    let running = Running::start(&receiver.url(), "", "").await;
    let admin = running.admin();
    let body = [feature(1, BOW_TIE), feature(2, SPECK), feature(3, VALID), feature(4, BOW_TIE)].join("\n");
    assert_eq!(running.post("application/x-ndjson", body).await.status, 202);
    running.status(|view| view.ledger.dead == 3 && view.ledger.delivered == 1).await;
    let letters = admin.dead_letters(&all(), None).await.unwrap().entries;

    let dry =
        admin.dead_letter_action("repair", &DeadLetterSelection { dry_run: true, ..all() }).await.unwrap();
    assert_eq!((dry.matched, dry.done, dry.skipped, dry.repaired.len()), (3, 0, 1, 2));
    assert_eq!(dry.repaired[0].id, letters[0].id);
    assert_eq!((&*dry.repaired[0].type_before, &*dry.repaired[0].type_after), ("Polygon", "MultiPolygon"));
    assert!(dry.repaired[0].changes.contains(&"geometry type changed".to_owned()), "{dry:?}");
    assert!(dry.skipped_reason.unwrap().contains("no length or area"));
    let status = admin.status().await.unwrap();
    assert_eq!((status.ledger.accepted, status.ledger.dead), (4, 3), "a dry run changes nothing");

    let done = admin.dead_letter_action("repair", &all()).await.unwrap();
    assert_eq!((done.matched, done.done, done.skipped, done.repaired.len()), (3, 2, 1, 2));
    tokio::time::timeout(SOON, receiver.wait_distinct(3)).await.unwrap();
    let seen = receiver.book().seen();
    for (said, letter) in done.repaired.iter().zip([&letters[0], &letters[2]]) {
        assert_eq!(said.id, letter.id);
        assert_ne!(said.key, letter.idempotency_key, "its own key");
        let request = seen.iter().find(|request| request.key == said.key).unwrap();
        assert_eq!(request.id, said.event_id);
        let sent: Value = serde_json::from_slice(request.body.as_ref().unwrap()).unwrap();
        assert_eq!(sent["repaired_from"], letter.id.as_str());
        assert_eq!(sent["geometry"]["type"], "MultiPolygon");
        let old = admin.event(&letter.event_id).await.unwrap();
        assert_eq!(old.deliveries[0].state, "superseded");
    }
    let view = running.status(|view| view.ledger.delivered == 3).await;
    let ledger = view.ledger;
    assert_eq!((ledger.accepted, ledger.delivered, ledger.superseded, ledger.dead), (6, 3, 2, 1));
    assert!(ledger.balanced);

    let by_id = DeadLetterSelection { ids: vec![letters[0].id.clone()], ..all() };
    assert!(admin.dead_letter_action("repair", &by_id).await.is_err(), "it is no dead letter any more");
    let again = admin.dead_letter_action("repair", &all()).await.unwrap();
    assert_eq!((again.matched, again.done, again.skipped), (1, 0, 1));
    running.stop().await;
}

/// A repair that was cut off after the new event was stored: the next one finds it there, sends nothing twice and ends
/// the letter.
#[tokio::test]
async fn a_repair_that_was_cut_off_is_finished_by_the_next() {
    let receiver = receiver::ok().await;
    let running = Running::start(&receiver.url(), "", "").await;
    let admin = running.admin();
    let text = feature(1, BOW_TIE);
    assert_eq!(running.post("application/geo+json", text.clone()).await.status, 202);
    running.status(|view| view.ledger.dead == 1).await;
    let letter = admin.dead_letters(&all(), None).await.unwrap().entries.remove(0);
    let endpoint = EndpointId(1);
    let settings =
        IntakeSettings { routes: Routes::new(vec![endpoint], Vec::new()), ..IntakeSettings::default() };
    let meta = EventMeta {
        device: Some(Device::from("d")),
        event_type: Some(EventType::from("feature")),
        producer_key: None,
    };
    let new = mend(&settings, &Bytes::from(text), &meta, &letter.id, endpoint).unwrap();
    assert_eq!(running.post("application/geo+json", new.event.body).await.status, 202);
    running.status(|view| view.ledger.delivered == 1).await;

    let done = admin.dead_letter_action("repair", &all()).await.unwrap();
    assert_eq!((done.matched, done.done), (1, 1));
    let view = running.status(|view| view.ledger.superseded == 1).await;
    assert_eq!((view.ledger.accepted, view.ledger.delivered, view.ledger.dead), (2, 1, 0));
    assert!(view.ledger.balanced);
    assert_eq!(done.repaired[0].key, receiver.book().seen()[0].key);
    assert_eq!(receiver.book().totals().requests, 1);
    running.stop().await;
}

/// An endpoint that took the event as it was does not get the repaired one too; a letter of an endpoint that judges for
/// itself is mended as well.
#[tokio::test]
async fn a_repair_goes_to_the_endpoint_of_the_letter_only() {
    let (strict, lax, picky) = (receiver::ok().await, receiver::ok().await, receiver::always(422).await);
    let rest = format!(
        "[[endpoint]]\nname = \"lax\"\nurl = \"{}\"\ngeometry_gate = \"off\"\n[[endpoint]]\nname = \"picky\"\nurl = \"{}\"\ngeometry_gate = \"parse\"\n",
        lax.url(),
        picky.url()
    );
    let running = Running::start(&strict.url(), "", &rest).await;
    let admin = running.admin();
    assert_eq!(running.post("application/geo+json", feature(1, BOW_TIE)).await.status, 202);
    running.status(|view| view.ledger.dead == 2 && view.ledger.delivered == 1).await;
    receiver::set_ok(&picky);
    let strict_only = DeadLetterSelection { endpoint: Some("default".to_owned()), ..all() };
    let done = admin.dead_letter_action("repair", &strict_only).await.unwrap();
    assert_eq!((done.matched, done.done), (1, 1));
    let class = DeadLetterSelection { class: Some(FailureClass::InvalidGeometry), ..all() };
    assert_eq!(admin.dead_letter_action("repair", &class).await.unwrap().matched, 0);
    let rest = admin.dead_letter_action("repair", &all()).await.unwrap();
    assert_eq!((rest.matched, rest.done), (1, 1), "{rest:?}");
    let view = running.status(|view| view.ledger.delivered == 3).await;
    assert_eq!((view.ledger.accepted, view.ledger.superseded, view.ledger.dead), (5, 2, 0));
    assert!(view.ledger.balanced);
    assert_eq!(lax.book().totals().requests, 1);
    running.stop().await;
}

/// The real binary: a dry run, the question that needs a terminal, the repair, and its JSON.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repair_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver::keeping().await;
    let process = Process::start(&receiver.url(), &dir.path().join("data"));
    let data = dir.path().join("data");
    let data_dir = data.to_str().unwrap();
    let file = dir.path().join("events.ndjson");
    std::fs::write(&file, [feature(1, BOW_TIE), feature(2, SPECK), feature(3, BOW_TIE)].join("\n")).unwrap();
    run(&["send", "--data-dir", data_dir, file.to_str().unwrap()]);
    wait_status(&process.client(), Duration::from_secs(10), |status| status.ledger.dead == 3).await;
    let repair = |args: &[&str]| run(&[&["dlq", "repair", "--data-dir", data_dir], args].concat());
    let code = |output: &std::process::Output| output.status.code().unwrap();

    assert_eq!(code(&repair(&[])), 2, "nothing is chosen");
    let dry = repair(&["--all", "--dry-run"]);
    assert_eq!(code(&dry), 0);
    assert!(
        stdout(&dry)
            .contains("2 dead letters would be repaired; 1 left alone: its geometry cannot be mended"),
        "{}",
        stdout(&dry)
    );
    assert!(stdout(&dry).contains("(Polygon to MultiPolygon)"), "{}", stdout(&dry));
    assert_eq!(code(&repair(&["--all"])), 2, "without --yes and without a terminal nothing is done");
    let letters = process.client().dead_letters(&all(), None).await.unwrap().entries;
    let one = repair(&[&letters[0].id, "--yes", "--json"]);
    assert_eq!(code(&one), 0);
    let said: Value = serde_json::from_str(&stdout(&one)).unwrap();
    assert_eq!((&said["done"], &said["repaired"][0]["id"]), (&json!(1), &json!(letters[0].id)));
    let rest = repair(&["--class", "invalid_geometry", "--yes"]);
    assert_eq!(code(&rest), 1, "one cannot be mended");
    assert!(stdout(&rest).contains("1 of 2 dead letters repaired"), "{}", stdout(&rest));
    let status =
        wait_status(&process.client(), Duration::from_secs(10), |status| status.ledger.delivered == 2).await;
    assert_eq!((status.ledger.superseded, status.ledger.dead, status.ledger.balanced), (2, 1, true));
    let ids: Vec<String> = receiver
        .book()
        .seen()
        .iter()
        .map(|request| serde_json::from_slice::<Value>(request.body.as_ref().unwrap()).unwrap())
        .map(|sent| sent["repaired_from"].as_str().unwrap().to_owned())
        .collect();
    assert!(ids.contains(&letters[0].id) && ids.contains(&letters[2].id), "{ids:?}");
    assert!(process.terminate().success());
}
