//! The scripted receiver does what its script says: tests and trials rely on it.

use std::time::Duration;

use waypost::receiver::record::{Keep, Options};
use waypost::receiver::script::{self, Act, Answer};
use waypost::receiver::{Power, Receiver};
use waypost::sender::SigningKey;

use crate::support::receiver;

/// Long enough for any of these steps on a busy machine.
const SOON: Duration = Duration::from_secs(5);

async fn post(receiver: &Receiver, key: &str, body: &'static str) -> reqwest::Result<u16> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(waypost::sender::tls_config(&waypost::sender::Tls::default()).unwrap())
        .build()
        .unwrap();
    let request = client.post(receiver.url()).header("idempotency-key", key).body(body);
    Ok(request.timeout(SOON).send().await?.status().as_u16())
}

/// Repeats are collapsed by key once one was answered with success, and a changed body under a key is seen.
#[tokio::test]
async fn keys_are_collapsed_and_a_changed_body_is_a_conflict() {
    let acts = [503, 200].map(|status| Act::Answer(Answer::status(status))).to_vec();
    let receiver = receiver::scripted(script::in_turn(acts), Keep::Bodies).await;
    for (key, body) in [("a", "1"), ("a", "1"), ("a", "1"), ("b", "2"), ("b", "other")] {
        post(&receiver, key, body).await.unwrap();
    }
    let totals = receiver.book().totals();
    assert_eq!((totals.requests, totals.distinct, totals.duplicates), (5, 2, 2));
    assert_eq!((totals.refused, totals.conflicts), (1, 1));
    let seen = receiver.book().seen();
    assert_eq!(seen[0].body.as_deref(), Some(&b"1"[..]));
    assert_eq!(seen.iter().map(|seen| seen.duplicate).collect::<Vec<_>>(), [false, false, true, false, true]);
    assert!(seen[4].conflict);
    assert_eq!(receiver.stop().await.unwrap().requests, 5);
}

/// Down means refused, and up is the same port again.
#[tokio::test]
async fn it_goes_down_and_comes_back_on_its_port() {
    let receiver = receiver::ok().await;
    assert_eq!(post(&receiver, "a", "1").await.unwrap(), 200);
    receiver.set_power(Power::Down);
    // The change takes a moment to reach the listener; each round is a connection, so this is no busy loop.
    let refused = async { while post(&receiver, "b", "1").await.is_ok() {} };
    tokio::time::timeout(SOON, refused).await.unwrap();
    receiver.set_power(Power::Up);
    let accepted = async { while post(&receiver, "c", "1").await.is_err() {} };
    tokio::time::timeout(SOON, accepted).await.unwrap();
    receiver.set_power(Power::Hanging);
    let hanging = tokio::time::timeout(Duration::from_millis(200), post(&receiver, "d", "1")).await;
    assert!(hanging.is_err(), "no answer comes");
    receiver.stop().await.unwrap();
}

/// Without the right signature there is no success, when a secret is set.
#[tokio::test]
async fn unsigned_requests_are_refused() {
    let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let options = Options { secrets: vec![key], ..Options::default() };
    let receiver = receiver::with(script::always(200), options).await;
    assert_eq!(post(&receiver, "a", "1").await.unwrap(), 401);
    assert_eq!(receiver.book().totals().bad_signatures, 1);
}

/// The log has one JSON line per request, readable while the receiver runs on.
#[tokio::test]
async fn each_request_is_a_line_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("seen.jsonl");
    let options = Options { log: Some(log.clone()), ..Options::default() };
    let receiver = receiver::with(script::always(200), options).await;
    for key in ["a", "b", "a"] {
        post(&receiver, key, "body").await.unwrap();
    }
    receiver.stop().await.unwrap();
    let text = std::fs::read_to_string(log).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let facts: Vec<_> = lines
        .iter()
        .map(|line| (line["key"].as_str().unwrap(), line["duplicate"].as_bool().unwrap()))
        .collect();
    assert_eq!(facts, [("a", false), ("b", false), ("a", true)]);
    assert_eq!(lines[0]["status"], 200);
    assert_eq!(lines[0]["body_bytes"], 4);
    assert_eq!(lines[0]["sha256"], "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5");
}
