//! Many clients, a long time, and what it costs the flash: the real binary measured from outside. The long forms run by
//! variable; by default the load is a few seconds and the others are skipped.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use tokio::time::Instant;
use waypost::client::EndpointAction;
use waypost::receiver::record::{Keep, Seen};
use waypost::receiver::script::{self, Act, Answer};
use waypost::receiver::{Power, Receiver};
use waypost::wire::DeadLetterSelection;

use crate::support::appliance::http;
use crate::support::process::{Process, wait_status};
use crate::support::receiver;

/// Longest that any request may take, and what all but one in a thousand stay under.
const REQUEST_MAX: Duration = Duration::from_secs(5);
const REQUEST_P999_MAX: Duration = Duration::from_secs(2);
/// What a timer inside the process may be late by; looser in the short form, which shares the machine with other tests.
const TIMER_LATE_MAX_S: f64 = 0.2;
const TIMER_LATE_BESIDE_OTHERS_MAX_S: f64 = 2.0;

fn seconds(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok().filter(|seconds| *seconds > 0)
}

fn feature(seq: u64, pad: usize) -> String {
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},"properties":{{"device_id":"d{}","seq":{seq},"pad":"{}"}}}}"#,
        seq % 50,
        "x".repeat(pad)
    )
}

fn start(dir: &Path, url: &str) -> Process {
    let data = dir.join("data");
    let text = format!(
        "data_dir = \"{}\"\nclock_trust = \"always\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n[store]\ndisk_bytes_max = \"256MiB\"\n[[endpoint]]\nname = \"default\"\nurl = \"{url}\"\ntimeout = \"2s\"\nretry = {{ base = \"50ms\", cap = \"1s\", attempts_max = 3 }}\nbudget = {{ min_per_sec = 50.0 }}\nhold = {{ probe_base = \"200ms\", probe_cap = \"1s\" }}\nredrive = {{ auto = false }}\n",
        data.display()
    );
    std::fs::write(dir.join("waypost.toml"), text).unwrap();
    Process::start_config(&dir.join("waypost.toml"), &data)
}

/// Closed loops of so many clients; the time of each request, sorted, and how many were accepted.
async fn load(
    url: String,
    clients: u64,
    length: Duration,
    pad: usize,
    next: Arc<AtomicU64>,
) -> (Vec<Duration>, u64) {
    let (client, end) = (http(), Instant::now() + length);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let (client, url, next) = (client.clone(), url.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            let (mut times, mut accepted) = (Vec::new(), 0);
            while Instant::now() < end {
                let (body, begun) = (feature(next.fetch_add(1, Ordering::Relaxed), pad), Instant::now());
                let request = client.post(&url).header("content-type", "application/geo+json").body(body);
                let status = request.send().await.unwrap().status().as_u16();
                times.push(begun.elapsed());
                assert!([202, 429, 503, 507].contains(&status), "{status}");
                accepted += u64::from(status == 202);
            }
            (times, accepted)
        });
    }
    let (mut times, mut accepted) = (Vec::new(), 0);
    for (some, count) in tasks.join_all().await {
        times.extend(some);
        accepted += count;
    }
    times.sort_unstable();
    (times, accepted)
}

async fn timer_late_max_s(process: &Process) -> f64 {
    let text =
        http().get(format!("http://{}/metrics", process.address)).send().await.unwrap().text().await.unwrap();
    let line = text.lines().find(|line| line.starts_with("waypost_timer_late_max_seconds ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// `WAYPOST_LOAD_SECONDS=600 WAYPOST_BIN=$PWD/target/release/waypost cargo test --test it -- load_long --nocapture`: so
/// long with deliveries on, paused and hanging, for 64 and then 256 clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_long_no_request_waits_and_no_timer_is_late() {
    let long = seconds("WAYPOST_LOAD_SECONDS");
    let length = Duration::from_millis(long.map_or(1_000, |seconds| seconds * 1_000 / 6));
    let late_max = if long.is_some() { TIMER_LATE_MAX_S } else { TIMER_LATE_BESIDE_OTHERS_MAX_S };
    for clients in if long.is_some() { &[64, 256][..] } else { &[64] } {
        for mode in ["on", "paused", "hanging"] {
            let dir = tempfile::tempdir().unwrap();
            let receiver = receiver::scripted(script::always(200), Keep::Nothing).await;
            let process = start(dir.path(), &receiver.url());
            match mode {
                "paused" => drop(process.client().endpoint("default", EndpointAction::Pause).await.unwrap()),
                "hanging" => receiver.set_power(Power::Hanging),
                _ => {}
            }
            let url = format!("http://{}/v1/events", process.address);
            let running = tokio::spawn(load(url, *clients, length, 500, Arc::default()));
            let (mut late, mut tick) = (0.0_f64, tokio::time::interval(Duration::from_secs(1)));
            while !running.is_finished() {
                tick.tick().await;
                late = late.max(timer_late_max_s(&process).await);
            }
            let (times, accepted) = running.await.unwrap();
            let (p999, max) = (times[times.len() * 999 / 1_000], times[times.len() - 1]);
            println!(
                "{clients} clients, deliveries {mode}: {accepted} of {} accepted, p99.9 {p999:?}, at most {max:?}, timer at most {:.1} ms late",
                times.len(),
                late * 1_000.0
            );
            assert!(max <= REQUEST_MAX && p999 <= REQUEST_P999_MAX, "{p999:?} {max:?}");
            assert!(late <= late_max, "a timer came {late} s late");
            let status = process.client().status().await.unwrap();
            assert!(status.ledger.balanced && status.ledger.accepted == accepted, "{:?}", status.ledger);
        }
    }
}

/// Answers of all kinds, by seed.
fn moody(seed: u64) -> script::Script {
    let rng = std::sync::Mutex::new(Pcg64::seed_from_u64(seed));
    Arc::new(move |_: &Seen| {
        let (dice, delay) = {
            let mut rng = rng.lock().unwrap();
            (rng.random_range(0..1_000), Duration::from_millis(rng.random_range(0..20)))
        };
        match dice {
            0..3 => Act::Reset { after_body_bytes: 10 },
            3..6 => Act::Answer(Answer::status(503)),
            6..20 => Act::Answer(Answer::status(422)),
            20..30 => Act::Answer(Answer::status(500)),
            30 => Act::Hang,
            _ => Act::Answer(Answer { delay, ..Answer::status(200) }),
        }
    })
}

/// Takes all but one in fifty, which it refuses for good.
fn calm() -> script::Script {
    let count = AtomicU64::new(0);
    Arc::new(move |_: &Seen| {
        let refused = count.fetch_add(1, Ordering::Relaxed) % 50 == 49;
        Act::Answer(Answer::status(if refused { 422 } else { 200 }))
    })
}

fn resident_kib(process: &Process) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Blocks that a directory really takes.
fn taken_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?; // a segment may go while it is counted
            Some(if meta.is_dir() { taken_bytes(&entry.path()) } else { meta.blocks() * 512 })
        })
        .sum()
}

/// `WAYPOST_SOAK_SECONDS=3600 WAYPOST_BIN=$PWD/target/release/waypost cargo test --test it -- soak --nocapture`
///
/// Mixed load with a moody receiver: kills in the first third, outages in the second, dead letters redriven and discarded all
/// the time; in the last third memory must be flat. The disk stays within its limit and the ledger balances throughout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_memory_is_flat_and_the_disk_stays_bounded() {
    let Some(length_s) = seconds("WAYPOST_SOAK_SECONDS") else {
        println!("skipped: WAYPOST_SOAK_SECONDS says how long a soak shall take");
        return;
    };
    let seed = seconds("WAYPOST_SEED").unwrap_or_else(rand::random);
    println!("replay with WAYPOST_SEED={seed}");
    let mut rng = Pcg64::seed_from_u64(seed);
    let (dir, receiver) =
        (tempfile::tempdir().unwrap(), receiver::scripted(moody(seed), Keep::Nothing).await);
    let address = Arc::new(std::sync::Mutex::new(None));
    let (next, stop, acknowledged) =
        (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8_u64 {
        let (address, next, stop, acknowledged) =
            (Arc::clone(&address), Arc::clone(&next), Arc::clone(&stop), Arc::clone(&acknowledged));
        clients.spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(40));
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let http = http();
            while !stop.load(Ordering::Relaxed) {
                tick.tick().await;
                let Some(at) = *address.lock().unwrap() else { continue };
                let body =
                    feature(next.fetch_add(1, Ordering::Relaxed), [100, 1_000, 8_000][client as usize % 3]);
                let request = http
                    .post(format!("http://{at}/v1/events"))
                    .header("content-type", "application/geo+json");
                // A kill cuts requests off; those were not answered, so nothing was promised.
                if request.body(body).send().await.is_ok_and(|answer| answer.status() == 202) {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let (begun, length) = (Instant::now(), Duration::from_secs(length_s));
    let mut process = start(dir.path(), &receiver.url());
    *address.lock().unwrap() = Some(process.address);
    let (mut samples, mut most_disk, mut kills, mut tick) =
        (VecDeque::new(), 0, 0, tokio::time::interval(Duration::from_secs(2)));
    while begun.elapsed() < length {
        tick.tick().await;
        let third = begun.elapsed().as_secs_f64() / length.as_secs_f64() * 3.0;
        if third < 1.0 && rng.random_bool(0.15) {
            *address.lock().unwrap() = None;
            process.kill();
            kills += 1;
            process = start(dir.path(), &receiver.url());
            *address.lock().unwrap() = Some(process.address);
        }
        if (1.0..2.0).contains(&third) && rng.random_bool(0.2) {
            receiver.set_power(if rng.random_bool(0.5) { Power::Hanging } else { Power::Up });
        } else if third >= 2.0 {
            // Calm enough to keep up with: a backlog that grows takes memory, which would be no leak.
            receiver.set_power(Power::Up);
            receiver.set_script(calm());
        }
        let client = process.client();
        for (verb, limit) in [("discard", 2), ("redrive", 20)] {
            let some = DeadLetterSelection { limit: Some(limit), ..DeadLetterSelection::default() };
            client.dead_letter_action(verb, &some).await.unwrap();
        }
        let status = client.status().await.unwrap();
        assert!(status.ledger.balanced && status.ledger.lost == 0, "{:?}", status.ledger);
        let disk = taken_bytes(&dir.path().join("data"));
        most_disk = most_disk.max(disk);
        assert!(disk <= (256 << 20) / 10 * 11, "{disk} bytes on disk");
        if third >= 2.0 {
            samples.push_back(resident_kib(&process));
        }
        println!(
            "{:>6.0} s: {:.0} KiB resident, {disk} bytes on disk, {} accepted, {} pending, {} dead, {kills} kills",
            begun.elapsed().as_secs_f64(),
            resident_kib(&process),
            status.ledger.accepted,
            status.ledger.pending,
            status.ledger.dead
        );
    }
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    receiver.set_script(script::always(200));
    let end =
        wait_status(&process.client(), Duration::from_secs(300), |status| status.ledger.pending == 0).await;
    assert!(
        end.ledger.balanced && end.ledger.accepted >= acknowledged.load(Ordering::Relaxed),
        "{:?}",
        end.ledger
    );
    assert_eq!((end.ledger.lost, receiver.book().totals().conflicts), (0, 0));
    // A minute's noise is more than 5 % of a small process, so a short soak says nothing of growth.
    let half = samples.len() / 2;
    let mean = |part: &mut dyn Iterator<Item = &f64>| part.sum::<f64>() / half.max(1) as f64;
    let (before, after) =
        (mean(&mut samples.iter().take(half)), mean(&mut samples.iter().skip(samples.len() - half)));
    println!(
        "last third: {before:.0} then {after:.0} KiB resident; {most_disk} bytes on disk at most; {kills} kills; {:?}",
        end.ledger
    );
    assert!(length_s < 120 || after <= before * 1.05, "memory grew from {before} to {after} KiB");
    assert!(process.terminate().success());
}

/// Bytes that a process has had written to devices.
fn written_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok()).unwrap()
}

async fn wear(receiver: &Receiver, per_s: u64, length: Duration) -> (f64, f64) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap(); // not a tmpfs
    let process = start(dir.path(), &receiver.url());
    let client = http();
    let before = written_bytes(process.pid());
    let (begun, total) = (Instant::now(), per_s * length.as_secs());
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (client, next, url) =
            (client.clone(), Arc::clone(&next), format!("http://{}/v1/events", process.address));
        tasks.spawn(async move {
            loop {
                let seq = next.fetch_add(1, Ordering::Relaxed);
                if seq >= total {
                    return;
                }
                tokio::time::sleep_until(begun + Duration::from_secs_f64(seq as f64 / per_s as f64)).await;
                let request = client.post(&url).header("content-type", "application/geo+json");
                assert_eq!(request.body(feature(seq, 870)).send().await.unwrap().status(), 202);
            }
        });
    }
    tasks.join_all().await;
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    wait_status(&process.client(), Duration::from_secs(60), |status| status.ledger.delivered == total).await;
    let written = written_bytes(process.pid()) - before;
    assert!(process.terminate().success());
    (rate, written as f64 / total as f64)
}

/// `WAYPOST_WEAR_SECONDS=20 WAYPOST_BIN=$PWD/target/release/waypost cargo test --test it -- wear --nocapture`
///
/// Bytes to the device for each event of 1 KB that is posted alone and delivered on the healthy path. Where syncs share
/// events it is at most three times its size; where a disk syncs faster than events come, each event is a group of its own
/// and costs the pages that it and its settlement touch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wear_of_a_delivered_event_is_bounded() {
    let Some(length_s) = seconds("WAYPOST_WEAR_SECONDS") else {
        println!("skipped: WAYPOST_WEAR_SECONDS says how long to measure");
        return;
    };
    let receiver = receiver::scripted(script::always(200), Keep::Nothing).await;
    let size = feature(123_456, 870).len();
    for per_s in [10, 100, 1_000, 5_000] {
        let (rate, each) = wear(&receiver, per_s, Duration::from_secs(length_s)).await;
        println!(
            "{rate:.0}/s of {size} bytes: {each:.0} bytes written for each, {:.2} times its size",
            each / size as f64
        );
        let times = if rate > 3_000.0 { 3.0 } else { 6.0 };
        assert!(each <= times * size as f64, "{each} bytes for each event at {rate}/s");
    }
}
