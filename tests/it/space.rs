//! Disk of the real binary while large events go through it: space comes back, with and without events that stay.
//!
//! The long form: `WAYPOST_DISK_EVENTS=1000000 WAYPOST_BIN=target/release/waypost cargo test --test it -- space --nocapture`

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, interval, sleep};
use waypost::client::{AdminClient, EventMedia, PostOptions, Posted};
use waypost::receiver::record::{Keep, Options};
use waypost::receiver::script::{Act, Answer};

use crate::support::process::{Process, wait_status};
use crate::support::receiver;

const MB: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
/// Largest directory while events go through.
const DIRECTORY_MAX: u64 = 512 * MB;
/// What it may keep at rest, and for each remembered key.
const REST: u64 = 64 * MIB;
const KEY: u64 = 64;
const LINES: u64 = 25;
const PENDING_MAX: u64 = 100;

fn events() -> u64 {
    std::env::var("WAYPOST_DISK_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

/// Bytes that a directory takes on the device.
fn directory(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => directory(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0, // deleted meanwhile
    };
    entries.filter_map(Result::ok).map(size).sum()
}

fn event(number: u64, device: &str, pad: usize) -> String {
    format!(
        "{{\"type\":\"Feature\",\"geometry\":{{\"type\":\"Point\",\"coordinates\":[13.4,52.5]}},\"properties\":{{\"device_id\":\"{device}\",\"seq\":{number},\"time\":\"2026-12-01T10:00:00Z\",\"pad\":\"{}\"}}}}\n",
        "x".repeat(pad)
    )
}

async fn post(client: &AdminClient, body: String) {
    let body = Bytes::from(body);
    loop {
        match client.post_events(body.clone(), EventMedia::Ndjson, &PostOptions::default()).await.unwrap() {
            Posted::Done(_) => return,
            Posted::Later { retry_after, .. } => sleep(retry_after).await,
        }
    }
}

/// Sends them all through, one in a hundred to stay as a dead letter if `some_stay`; the directory at rest is measured after
/// `rest` without traffic.
async fn all_through(events: u64, some_stay: bool) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let script = |seen: &waypost::receiver::record::Seen| {
        Act::Answer(Answer::status(if seen.device == "stays" { 422 } else { 200 }))
    };
    let receiver =
        receiver::with(Arc::new(script), Options { keep: Keep::Nothing, ..Options::default() }).await;
    let process = Process::start(&receiver.url(), &data);
    let client = process.client();
    let (begun, mut tick) = (Instant::now(), interval(Duration::from_millis(500)));
    let (mut sent, mut largest, mut large) = (0, 0, 0);
    while sent < events {
        let device = |number: u64| if some_stay && number % 100 == 7 { "stays" } else { "goes" };
        let lines: String =
            (sent..(sent + LINES).min(events)).map(|number| event(number, device(number), 9_800)).collect();
        post(&client, lines).await;
        sent += LINES.min(events - sent);
        if sent % 500 < LINES {
            post(&client, event(sent, "large", 1_000_000)).await;
            large += 1;
        }
        let all = sent + large;
        receiver.wait(|totals| totals.requests + PENDING_MAX - LINES >= all).await;
        if std::future::poll_fn(|cx| std::task::Poll::Ready(tick.poll_tick(cx).is_ready())).await {
            largest = largest.max(directory(&data));
            assert!(largest <= DIRECTORY_MAX, "{} MB after {sent} events", largest / MB);
        }
        if sent % (events / 10).max(LINES) < LINES {
            println!("{sent} + {large}: {} MB on disk", directory(&data) / MB);
        }
    }
    let status = wait_status(&client, Duration::from_secs(60), |status| status.ledger.pending == 0).await;
    println!("{sent} + {large} in {:?}, largest {} MB", begun.elapsed(), largest / MB);
    let stay = if some_stay { events.div_ceil(100) } else { 0 };
    assert_eq!((status.ledger.dead, status.ledger.delivered), (stay, sent + large - stay));
    let allowed = REST + KEY * status.store.keys + 2 * status.store.live_bytes;
    let idle = Instant::now();
    let rest = loop {
        let rest = directory(&data);
        if rest <= allowed {
            break rest;
        }
        assert!(idle.elapsed() <= Duration::from_secs(60), "{} MB, allowed {}", rest / MB, allowed / MB);
        tick.tick().await;
    };
    println!(
        "at rest {} MB after {:?}; allowed {} MB ({} MB live, {} keys)",
        rest / MB,
        idle.elapsed(),
        allowed / MB,
        status.store.live_bytes / MB,
        status.store.keys
    );
    assert!(process.terminate().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_comes_back_when_events_are_delivered() {
    all_through(events(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_in_a_hundred_that_stays_keeps_little_more_than_itself() {
    all_through(events(), true).await;
}
