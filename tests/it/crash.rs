//! The real binary, killed: every event that was answered 2xx arrives, under one key with one body.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use waypost::client::{EventMedia, PostOptions, Posted};
use waypost::receiver::Receiver;
use waypost::receiver::record::SEEN_MAX;
use waypost::wire::IngestStatus;

use crate::support::process::{Process, wait_status};
use crate::support::receiver;

fn rounds() -> u64 {
    std::env::var("WAYPOST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

fn seed() -> u64 {
    let seed = std::env::var("WAYPOST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("replay with WAYPOST_SEED={seed}");
    seed
}

fn feature(writer: u64, number: u64, size: usize) -> Bytes {
    Bytes::from(format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},"properties":{{"device_id":"w{writer}","seq":{number},"pad":"{}"}}}}"#,
        "x".repeat(size)
    ))
}

/// Adds the keys that have arrived since `requests`: a long run sends more than the receiver remembers.
fn collect(receiver: &Receiver, delivered: &mut BTreeSet<String>, requests: &mut u64) {
    let now = receiver.book().totals().requests;
    assert!(now - *requests <= SEEN_MAX as u64, "{} requests in one round", now - *requests);
    *requests = now;
    delivered.extend(receiver::answered(receiver));
}

/// `WAYPOST_KILLS=500 cargo test --release --test it -- crash` is the long form.
///
/// Killed at random moments under load, restarted each time: nothing answered 2xx is missing at the end, no key has two
/// bodies, and at most what was in flight is repeated per kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_under_load_nothing_acknowledged_is_lost() {
    let mut rng = Pcg64::seed_from_u64(seed());
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = receiver::ok().await;
    let acknowledged: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (mut delivered, mut requests) = (BTreeSet::new(), 0);
    let mut slowest = Duration::ZERO;
    for round in 0..rounds() {
        let begun = tokio::time::Instant::now();
        let process = Process::start(&receiver.url(), &data);
        slowest = slowest.max(begun.elapsed());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..4 {
            let client = process.client();
            let acknowledged = Arc::clone(&acknowledged);
            writers.spawn(async move {
                for number in 0.. {
                    let body = feature(writer, round * 1_000_000 + number, (number % 7) as usize * 300);
                    let Ok(posted) =
                        client.post_events(body, EventMedia::Document, &PostOptions::default()).await
                    else {
                        return; // killed
                    };
                    let Posted::Done(response) = posted else { continue };
                    let accepted =
                        response.results.iter().filter(|result| result.status == IngestStatus::Accepted);
                    acknowledged.lock().unwrap().extend(accepted.filter_map(|result| result.key.clone()));
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..250))).await;
        process.kill();
        while writers.join_next().await.is_some() {}
        collect(&receiver, &mut delivered, &mut requests);
    }
    println!("ready at most {slowest:?} after a kill");
    assert!(slowest <= Duration::from_secs(10), "{slowest:?}");
    let process = Process::start(&receiver.url(), &data);
    let status =
        wait_status(&process.client(), Duration::from_secs(60), |status| status.ledger.pending == 0).await;
    assert!(status.ledger.balanced, "{:?}", status.ledger);
    assert_eq!(status.ledger.lost, 0);
    let acknowledged = acknowledged.lock().unwrap().clone();
    assert!(acknowledged.len() > 100, "only {} events were acknowledged", acknowledged.len());
    let totals = receiver.book().totals();
    collect(&receiver, &mut delivered, &mut requests);
    let missing: Vec<_> = acknowledged.difference(&delivered).collect();
    assert!(missing.is_empty(), "{} acknowledged events never arrived: {missing:?}", missing.len());
    assert_eq!(totals.conflicts, 0, "a key came with two bodies");
    // 32 in flight, and what was settled in the last moment before a kill is in the page cache, so it survives.
    assert!(totals.duplicates <= 32 * rounds(), "{} repeats in {} kills", totals.duplicates, rounds());
    assert!(process.terminate().success());
}

/// What was between attempts before a restart is still there after it: same counts, same key, and its wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_and_waits_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = receiver::always(500).await;
    let process = Process::start(&receiver.url(), &data);
    let client = process.client();
    let posted =
        client.post_events(feature(1, 1, 0), EventMedia::Document, &PostOptions::default()).await.unwrap();
    let Posted::Done(response) = posted else { panic!("not accepted") };
    let id = response.results[0].id.clone().unwrap();
    receiver.wait(|totals| totals.requests >= 2).await;
    let before = loop {
        let story = client.event(&id).await.unwrap();
        if story.deliveries[0].attempts >= 2 {
            break story;
        }
        tokio::task::yield_now().await;
    };
    process.kill();
    let process = Process::start(&receiver.url(), &data);
    let after = process.client().event(&id).await.unwrap();
    assert!(after.deliveries[0].attempts >= before.deliveries[0].attempts);
    assert_eq!(after.event.key, before.event.key);
    receiver::set_ok(&receiver);
    wait_status(&process.client(), Duration::from_secs(60), |status| status.ledger.delivered == 1).await;
    let seen = receiver.book().seen();
    assert!(seen.iter().all(|request| request.key == before.event.key), "one key for ever");
    let numbers: Vec<_> = seen.iter().filter_map(|request| request.attempt).collect();
    assert!(numbers.is_sorted(), "attempt numbers go on after the restart: {numbers:?}");
    assert!(process.terminate().success());
}
