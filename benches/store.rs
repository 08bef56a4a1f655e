//! Figures of the store: `cargo bench --bench store`. Each part prints one line per case; `docs/PERFORMANCE.md` keeps
//! them with the machine. Parts: `accepts`, `written`, `backlog` (default: all).
//!
//! Raw sled in the same run is the yardstick of accepts: one batch per group on trees for bodies, schedule and
//! identities, then `flush` and an fdatasync of its file, which is what it takes to survive a power cut.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use waypost::clock::{Clock, ClockTrust};
use waypost::core::delivery::{Progress, Settlement};
use waypost::core::event::{Dedup, KeyPlan, NewEvent};
use waypost::core::ids::{BodyDigest, Device, EndpointId, EventType, IdempotencyKey, Identity, Seq};
use waypost::store::{Outbox, StoreConfig, WhenFull};

const GROUP: u64 = 128;
const ENDPOINT: EndpointId = EndpointId(1);

fn config(dir: &Path) -> StoreConfig {
    StoreConfig {
        dir: dir.to_owned(),
        disk_bytes_max: 16 << 30,
        disk_free_reserve: 64 << 20,
        dead_letter_share: 0.25,
        cache_bytes_max: 16 << 20,
        when_full: WhenFull::Reject,
        key_ttl: Duration::from_hours(78),
        window_without_time: Duration::from_mins(1),
        keys_bytes_max: 256 << 20,
        endpoints: vec!["default".into()],
    }
}

fn open(dir: &Path) -> Outbox {
    let (outbox, recovery) = Outbox::open(config(dir), Clock::system(ClockTrust::Always)).unwrap();
    assert_eq!(recovery.lost, 0, "{recovery:?}");
    outbox
}

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn identity(number: u64) -> [u8; 16] {
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&mix(number).to_be_bytes());
    identity[8..].copy_from_slice(&mix(!number).to_be_bytes());
    identity
}

fn event(number: u64, body: &Bytes) -> NewEvent {
    NewEvent {
        body: body.clone(),
        device: Device::from("bench-device-17"),
        event_type: EventType::from("reading"),
        identity: Identity(identity(number)),
        digest: BodyDigest(number.to_be_bytes()),
        dedup: Dedup::Ttl,
        producer_keyed: false,
        key: KeyPlan::Fixed(IdempotencyKey::from(format!("idem:v2:{number:064x}").as_str())),
        deliver: vec![ENDPOINT],
        dead: Vec::new(),
        bbox: Some([8.0, 47.0, 8.1, 47.1]),
        observed_at: None,
    }
}

/// Not all zeros, so that no layer can be clever about it.
fn body(bytes: usize) -> Bytes {
    (0..=bytes as u64 / 8).flat_map(|word| mix(word).to_le_bytes()).take(bytes).collect::<Vec<u8>>().into()
}

fn delivered() -> Settlement {
    Settlement::Delivered { progress: Progress { attempts: 1, ..Progress::default() } }
}

async fn accepts_of_waypost(bytes: usize, groups: u64) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let outbox = open(dir.path());
    let body = body(bytes);
    let start = Instant::now();
    for group in 0..groups {
        let events = (0..GROUP).map(|one| event(group * GROUP + one, &body)).collect();
        outbox.append(events).await.unwrap();
    }
    let rate = (groups * GROUP) as f64 / start.elapsed().as_secs_f64();
    outbox.close().await;
    rate
}

fn accepts_of_sled(bytes: usize, groups: u64) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let db = sled::Config::new()
        .path(dir.path().join("s"))
        .cache_capacity(64 << 20)
        .flush_every_ms(None)
        .open()
        .unwrap();
    let file = std::fs::File::open(dir.path().join("s/db")).unwrap();
    let body = body(bytes);
    let start = Instant::now();
    for group in 0..groups {
        let mut batch = sled::Batch::default();
        for one in 0..GROUP {
            let number = group * GROUP + one;
            let seq = number.to_be_bytes();
            batch.insert([&b"o"[..], &seq].concat(), &body[..]);
            batch.insert([&b"s"[..], &seq, &seq].concat(), &[0_u8; 24]);
            batch.insert([&b"i"[..], &identity(number)].concat(), &[0_u8; 24]);
        }
        db.apply_batch(batch).unwrap();
        db.flush().unwrap();
        file.sync_data().unwrap();
    }
    (groups * GROUP) as f64 / start.elapsed().as_secs_f64()
}

async fn accepts() {
    println!("durable accepts/s, groups of {GROUP}, one writer");
    for (bytes, groups) in [(512, 1_500), (8 << 10, 300), (128 << 10, 30)] {
        let (mut own, mut raw) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            own.push(accepts_of_waypost(bytes, groups).await);
            raw.push(accepts_of_sled(bytes, groups));
        }
        let median = |rates: &mut Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[1]
        };
        let (own, raw) = (median(&mut own), median(&mut raw));
        println!("  {bytes:>7} B  waypost {own:>8.0}  raw sled {raw:>8.0}  ratio {:.2}", own / raw);
    }
}

fn process_figure(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The healthy path: accepted, delivered at once.
async fn written() {
    let dir = tempfile::tempdir().unwrap();
    let outbox = open(dir.path());
    let body = body(1_000);
    let before = process_figure("io", "write_bytes:");
    let (events, start) = (200_000, Instant::now());
    let mut settles = tokio::task::JoinSet::new();
    for group in 0..events / 32 {
        let new = (0..32).map(|one| event(group * 32 + one, &body)).collect();
        outbox.append(new).await.unwrap();
        for seq in group * 32 + 1..=group * 32 + 32 {
            let outbox = outbox.clone();
            settles.spawn(async move { outbox.settle(ENDPOINT, Seq(seq), delivered()).await.unwrap() });
        }
        while settles.join_next().await.is_some() {}
    }
    let rate = events as f64 / start.elapsed().as_secs_f64();
    let disk = outbox.stats().disk_bytes;
    outbox.close().await;
    let written = process_figure("io", "write_bytes:") - before;
    println!(
        "healthy path, 1,000 B events, groups of 32: {rate:.0} accepted and delivered/s, {:.0} bytes written per event, disk {:.1} MiB, resident {:.1} MiB",
        written as f64 / events as f64,
        disk as f64 / f64::from(1 << 20),
        process_figure("status", "VmRSS:") as f64 / 1024.0,
    );
}

/// One step of the backlog run in a process of its own, so that its memory is its own.
fn child(step: &str, dir: &Path) {
    let status =
        Command::new(std::env::current_exe().unwrap()).args([step, dir.to_str().unwrap()]).status().unwrap();
    assert!(status.success() || step == "append-and-die");
}

const BACKLOG: u64 = 1_000_000;

async fn fill(dir: &Path) {
    let outbox = open(dir);
    let body = body(1_000);
    let start = Instant::now();
    for group in 0..BACKLOG / GROUP {
        outbox.append((0..GROUP).map(|one| event(group * GROUP + one, &body)).collect()).await.unwrap();
    }
    let rate = BACKLOG as f64 / start.elapsed().as_secs_f64();
    println!(
        "  filled at {rate:.0}/s; resident {} MiB (peak {}), disk {} MiB, keys {}",
        process_figure("status", "VmRSS:") >> 10,
        process_figure("status", "VmHWM:") >> 10,
        outbox.stats().disk_bytes >> 20,
        outbox.stats().keys,
    );
    let start = Instant::now();
    outbox.close().await;
    println!("  clean stop took {:.2} s", start.elapsed().as_secs_f64());
}

async fn append_and_die(dir: &Path) {
    let outbox = open(dir);
    let body = body(1_000);
    for group in 0..400 {
        outbox
            .append((0..GROUP).map(|one| event(BACKLOG * 2 + group * GROUP + one, &body)).collect())
            .await
            .unwrap();
    }
    std::process::abort();
}

async fn start_and_read(dir: &Path) {
    let start = Instant::now();
    let outbox = open(dir);
    let ready = start.elapsed();
    let resident = process_figure("status", "VmRSS:") >> 10;
    let (mut after, mut read, start) = (Seq(0), 0_u64, Instant::now());
    loop {
        let page = outbox.pending_page(ENDPOINT, after, 1_024).await.unwrap();
        (after, read) = (page.scanned_to, read + page.deliveries.len() as u64);
        if page.end {
            break;
        }
    }
    println!(
        "  ready in {:.2} s with {read} pending; resident {resident} MiB, {} MiB after reading them all at {:.0}/s",
        ready.as_secs_f64(),
        process_figure("status", "VmRSS:") >> 10,
        read as f64 / start.elapsed().as_secs_f64(),
    );
    outbox.close().await;
}

async fn drain(dir: &Path) {
    let outbox = open(dir);
    let (mut after, mut done, start) = (Seq(0), 0_u64, Instant::now());
    loop {
        let page = outbox.pending_page(ENDPOINT, after, 1_024).await.unwrap();
        after = page.scanned_to;
        let mut settles = tokio::task::JoinSet::new();
        for one in page.deliveries {
            let (outbox, seq) = (outbox.clone(), one.event.head.seq);
            settles.spawn(async move { outbox.settle(ENDPOINT, seq, delivered()).await.unwrap() });
            done += 1;
        }
        while settles.join_next().await.is_some() {}
        if page.end {
            break;
        }
    }
    let rate = done as f64 / start.elapsed().as_secs_f64();
    let peak = process_figure("status", "VmHWM:") >> 10;
    outbox.close().await;
    let disk = Command::new("du").args(["-sm", dir.to_str().unwrap()]).output().unwrap().stdout;
    println!(
        "  read and settled {done} at {rate:.0}/s; peak resident {peak} MiB; disk after it {}",
        String::from_utf8_lossy(&disk).trim()
    );
}

fn backlog() {
    let dir = tempfile::tempdir().unwrap();
    println!("{BACKLOG} pending events of 1,000 B");
    child("fill", dir.path());
    println!(" after a clean stop:");
    child("start-and-read", dir.path());
    child("append-and-die", dir.path());
    println!(" after a kill, 51,200 events later:");
    child("start-and-read", dir.path());
    std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
    println!(" without its index:");
    child("start-and-read", dir.path());
    child("drain", dir.path());
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let part = arguments.first().map_or("all", String::as_str);
    let dir = arguments.get(1).map(PathBuf::from);
    runtime.block_on(async {
        match (part, dir) {
            ("fill", Some(dir)) => fill(&dir).await,
            ("append-and-die", Some(dir)) => append_and_die(&dir).await,
            ("start-and-read", Some(dir)) => start_and_read(&dir).await,
            ("drain", Some(dir)) => drain(&dir).await,
            _ => {
                if matches!(part, "all" | "accepts") {
                    accepts().await;
                }
                if matches!(part, "all" | "written") {
                    written().await;
                }
                if matches!(part, "all" | "backlog") {
                    backlog();
                }
            }
        }
    });
}
