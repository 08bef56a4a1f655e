//! Memory of the real binary under a backlog: while it comes in, at a start, while it drains.
//!
//! The long form, on a release binary and, with the rights for it, in a control group of 256 MiB:
//! `WAYPOST_BACKLOG=2000000 WAYPOST_BIN=target/release/waypost cargo test --test it -- memory --nocapture`

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use waypost::client::{AdminClient, EventMedia, PostOptions, Posted};
use waypost::receiver::record::Keep;
use waypost::receiver::script;

use crate::support::cgroup::MemoryGroup;
use crate::support::process::{Process, binary, wait_status, waypost};
use crate::support::receiver;

const MIB: u64 = 1 << 20;
const GROUP_BYTES: u64 = 256 * MIB;
const LINES: u64 = 500;
/// Largest resident memory with up to a million events pending, and with more.
const RESIDENT_MILLION: u64 = 96 * MIB;
const RESIDENT_MAX: u64 = 128 * MIB;

fn backlog() -> u64 {
    std::env::var("WAYPOST_BACKLOG").ok().and_then(|text| text.parse().ok()).unwrap_or(8_000)
}

fn allowed(pending: u64) -> u64 {
    if pending <= 1_000_000 { RESIDENT_MILLION } else { RESIDENT_MAX }
}

/// `VmRSS` or `VmHWM` of a process.
fn resident(process: &Process, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn lines(from: u64) -> Bytes {
    let pad = "x".repeat(820);
    let line = |number| {
        format!(
            "{{\"type\":\"Feature\",\"geometry\":{{\"type\":\"Point\",\"coordinates\":[13.4,52.5]}},\"properties\":{{\"device_id\":\"d{}\",\"seq\":{number},\"time\":\"2026-12-01T10:00:00Z\",\"pad\":\"{pad}\"}}}}\n",
            number % 50
        )
    };
    Bytes::from((from..from + LINES).map(line).collect::<String>())
}

async fn post(client: &AdminClient, from: u64) {
    loop {
        match client.post_events(lines(from), EventMedia::Ndjson, &PostOptions::default()).await.unwrap() {
            Posted::Done(_) => return,
            Posted::Later { retry_after, .. } => tokio::time::sleep(retry_after).await,
        }
    }
}

struct Run {
    group: Option<MemoryGroup>,
    config: std::path::PathBuf,
    data: std::path::PathBuf,
}

impl Run {
    fn new(dir: &Path, url: &str) -> Self {
        let (config, data) = (dir.join("waypost.toml"), dir.join("data"));
        let text = format!(
            "data_dir = \"{}\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n[store]\ndisk_bytes_max = \"8GiB\"\n[[endpoint]]\nname = \"default\"\nurl = \"{url}\"\n",
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let group = MemoryGroup::new(GROUP_BYTES);
        println!("memory group of 256 MiB: {}", if group.is_some() { "yes" } else { "not here" });
        Self { group, config, data }
    }

    fn start(&self) -> (Process, Duration) {
        let begun = Instant::now();
        let mut command: Command = self.group.as_ref().map_or_else(waypost, |group| group.command(&binary()));
        command.args(["run", "--config"]).arg(&self.config);
        (Process::spawn(command, &self.data), begun.elapsed())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_fits_a_small_gateway_coming_in_at_a_start_and_going_out() {
    let backlog = backlog().div_ceil(LINES) * LINES;
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver::with(
        script::always(503),
        waypost::receiver::record::Options { keep: Keep::Nothing, ..Default::default() },
    )
    .await;
    let run = Run::new(dir.path(), &receiver.url());
    let (process, _) = run.start();
    let client = process.client();
    for from in (0..backlog).step_by(LINES as usize) {
        post(&client, from).await;
        if (from + LINES).is_multiple_of(backlog / 4) {
            let now = resident(&process, "VmRSS");
            println!("{} pending: {} MiB", from + LINES, now / MIB);
            assert!(now <= allowed(from + LINES), "{now} bytes resident");
        }
    }
    let peak = resident(&process, "VmHWM");
    println!("peak while {backlog} came in: {} MiB", peak / MIB);
    assert!(peak <= allowed(backlog), "{peak} bytes resident");
    assert!(process.terminate().success());
    let (process, ready) = run.start();
    println!("ready {ready:?} after a clean stop, {} MiB", resident(&process, "VmRSS") / MIB);
    assert!(ready <= Duration::from_secs(2), "{ready:?}");
    process.kill();
    let (process, ready) = run.start();
    println!("ready {ready:?} after a kill, {} MiB", resident(&process, "VmRSS") / MIB);
    assert!(ready <= Duration::from_secs(5), "{ready:?}");
    let client = process.client();
    post(&client, backlog).await;
    receiver::set_ok(&receiver);
    client.endpoint("default", waypost::client::EndpointAction::Resume).await.unwrap();
    let begun = Instant::now();
    let at_most = Duration::from_secs(60) + Duration::from_millis(backlog);
    let mut samples = Vec::new();
    wait_status(&client, at_most, |status| {
        samples.push(resident(&process, "VmRSS"));
        status.ledger.pending == 0
    })
    .await;
    println!(
        "drained in {:?}: {} MiB in the middle, {} at the end, {} at most",
        begun.elapsed(),
        samples[samples.len() / 2] / MIB,
        samples[samples.len() - 1] / MIB,
        resident(&process, "VmHWM") / MIB
    );
    assert!(resident(&process, "VmHWM") <= RESIDENT_MILLION);
    // Flat: what the last third adds to the middle one is small.
    let third = samples.len() / 3;
    let most = |part: &[u64]| part.iter().copied().max().unwrap_or(0);
    let (before, last) = (most(&samples[third..2 * third]), most(&samples[2 * third..]));
    assert!(
        third < 10 || last <= before + before / 20 + 2 * MIB,
        "grows while it drains: {before} then {last} bytes"
    );
    let status = client.status().await.unwrap();
    assert!(status.ledger.balanced, "{:?}", status.ledger);
    assert_eq!(status.ledger.delivered, backlog + LINES);
    assert!(process.terminate().success());
    assert_eq!(run.group.as_ref().map_or(0, MemoryGroup::kills), 0);
}

/// glibc's heaps come from its environment, which `run` sets by starting itself once more in the same process; what a
/// person has set stands.
#[cfg(target_env = "gnu")]
#[test]
fn the_heap_is_told_to_give_memory_back() {
    let heap = |command: Command, data: &Path| {
        let process = Process::spawn(command, data);
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid())).unwrap();
        let arguments = std::fs::read(format!("/proc/{}/cmdline", process.pid())).unwrap();
        assert!(arguments.starts_with(binary().as_bytes()), "the command line stays as it was");
        let vars = environment.split(|byte| *byte == 0).map(|var| String::from_utf8_lossy(var).into_owned());
        vars.filter(|var| var.starts_with("MALLOC_")).collect::<Vec<_>>()
    };
    let dir = tempfile::tempdir().unwrap();
    let command = |data: &Path| {
        let mut command = waypost();
        command.args(["run", "--to", "http://127.0.0.1:9/", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(data);
        command
    };
    let data = dir.path().join("one");
    assert_eq!(heap(command(&data), &data), ["MALLOC_ARENA_MAX=2", "MALLOC_MMAP_THRESHOLD_=131072"]);
    let data = dir.path().join("two");
    let mut own = command(&data);
    own.env("MALLOC_ARENA_MAX", "5");
    assert_eq!(heap(own, &data), ["MALLOC_ARENA_MAX=5"]);
}
