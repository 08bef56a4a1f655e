//! A power cut of the real binary, replayed from its system calls.
//!
//! The binary runs under strace through segment roll-over, checkpoints, copying, a kill and a recovery. Then the disk is
//! rebuilt as a power cut at some call would leave it, the binary is started on that, and what it had acknowledged before
//! the cut must arrive. Nothing of the store is asked: only files, answers and deliveries count.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use waypost::client::{EndpointAction, EventMedia, PostOptions, Posted};
use waypost::receiver::Receiver;
use waypost::receiver::record::{Keep, Seen};
use waypost::receiver::script::{self, Act, Answer, Script};
use waypost::wire::DeadLetterSelection;

use crate::support::cut_disk::{Cut, Unsynced, files, rebuild};
use crate::support::process::{Process, binary, wait_status, waypost};
use crate::support::receiver;
use crate::support::trace::{CALLS, NameOp, Reader, Step, What};

/// Cuts by default; `WAYPOST_CUTS` asks for more.
const CUTS: u64 = 6;
/// What may be repeated beside what was in flight: what was settled in so much time before the cut.
const REPEATED_S_MAX: f64 = 1.0;
/// Bytes of a body; enough of them go through for segments to roll over and for live events to be copied.
const PAD_BYTES: usize = 60_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    let seed = number("WAYPOST_SEED").unwrap_or_else(rand::random);
    println!("replay with WAYPOST_SEED={seed}");
    seed
}

fn config(dir: &Path, main: &str, stay: &str) -> PathBuf {
    let more = "timeout = \"5s\"\nretry = { base = \"50ms\", cap = \"500ms\" }\nbudget = { min_per_sec = 100.0 }\nredrive = { auto = false }\nhold = { probe_base = \"200ms\", probe_cap = \"1s\" }";
    let text = format!(
        "data_dir = \"{}\"\nclock_trust = \"always\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n[[endpoint]]\nname = \"main\"\nurl = \"{main}\"\n{more}\n[[endpoint]]\nname = \"stay\"\nurl = \"{stay}\"\n{more}\n[[route]]\nendpoint = \"stay\"\ndevices = [\"stay*\"]\n[[route]]\nendpoint = \"main\"\ndevices = [\"go*\", \"bad*\"]\n",
        dir.join("box/data").display()
    );
    let file = dir.join("waypost.toml");
    std::fs::write(&file, text).unwrap();
    file
}

/// Under strace, its trace in `trace`.
fn traced(config: &Path, trace: &Path, data: &Path) -> Process {
    let mut command = Command::new("strace");
    command.args(["-f", "-ttt", "-y", "-s", "16777216", "-e", CALLS, "-o"]).arg(trace);
    command.arg(waypost().get_program()).args(["run", "--config"]).arg(config);
    command.env_remove("WAYPOST_LOG").env_remove("WAYPOST_TOKEN");
    Process::spawn_logged(command, data, &config.with_extension("stderr"))
}

async fn post(process: &Process, device: &str, seq: u64, pad: usize) -> bool {
    let body = Bytes::from(format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},"properties":{{"device_id":"{device}","seq":{seq},"pad":"{}"}}}}"#,
        "x".repeat(pad)
    ));
    let posted = process.client().post_events(body, EventMedia::Document, &PostOptions::default()).await;
    matches!(posted, Ok(Posted::Done(_)))
}

/// Four clients, so many events of changing size.
async fn load(process: &Arc<Process>, next: &Arc<AtomicU64>, events: u64) {
    let until = next.load(Ordering::Relaxed) + events;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..4 {
        let (process, next) = (Arc::clone(process), Arc::clone(next));
        clients.spawn(async move {
            loop {
                let seq = next.fetch_add(1, Ordering::Relaxed);
                if seq >= until {
                    return;
                }
                let (device, pad) = match seq % 24 {
                    0 => ("bad", 200),
                    1 => ("stay-more", 500),
                    _ => ("go", PAD_BYTES / (1 + seq as usize % 3)),
                };
                assert!(post(&process, &format!("{device}-{client}"), seq, pad).await);
            }
        });
    }
    clients.join_all().await;
}

/// Refuses what is bad for good, and now and then what is good for a moment.
fn script() -> Script {
    let count = AtomicU64::new(0);
    Arc::new(move |seen: &Seen| {
        let turn = count.fetch_add(1, Ordering::Relaxed);
        let status = match () {
            () if seen.device.starts_with("bad") => 422,
            () if turn.is_multiple_of(61) => 500,
            () => 200,
        };
        Act::Answer(Answer::status(status))
    })
}

/// What the trace and the first receiver tell.
struct Story {
    steps: Vec<Step>,
    times: Vec<f64>,
    /// Key and digest of each event that the receiver saw before.
    before: HashMap<String, (String, [u8; 32])>,
}

/// Where nobody listens.
fn closed_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/", listener.local_addr().unwrap())
}

/// The traced runs: load, backlog, kill; recovery, drain, load, an orderly stop.
async fn record(dir: &Path) -> Story {
    let root = dir.join("box");
    let data = root.join("data");
    std::fs::create_dir(&root).unwrap();
    let stay = closed_port();
    let receiver = receiver::scripted(script(), Keep::Heads).await;
    let config = config(dir, &receiver.url(), &stay);
    let traces = [dir.join("trace.1"), dir.join("trace.2")];
    let next = Arc::new(AtomicU64::new(0));

    let process = Arc::new(traced(&config, &traces[0], &data));
    for seq in 0..20 {
        assert!(post(&process, "stay", 1_000_000 + seq, 20_000).await);
    }
    load(&process, &next, 1_100).await;
    receiver.set_script(script::always(503));
    load(&process, &next, 60).await;
    let process = Arc::into_inner(process).unwrap();
    process.kill_child();

    receiver.set_script(script());
    let process = Arc::new(traced(&config, &traces[1], &data));
    load(&process, &next, 200).await;
    wait_status(&process.client(), Duration::from_secs(60), |status| {
        status.endpoints.iter().any(|one| one.name == "main" && one.pending == 0)
    })
    .await;
    Arc::into_inner(process).unwrap().terminate_child();

    Story::read(&root, &traces, &receiver)
}

impl Story {
    fn read(root: &Path, traces: &[PathBuf], receiver: &Receiver) -> Self {
        let mut reader = Reader::new(root);
        for trace in traces {
            reader.read(&std::fs::read(trace).unwrap());
            std::fs::remove_file(trace).unwrap();
        }
        let before = receiver.book().seen().into_iter().map(|seen| (seen.id, (seen.key, seen.sha256)));
        Self { before: before.collect(), steps: reader.steps, times: reader.times }
    }
}

fn strace_is_here() -> bool {
    let here = Command::new("strace").arg("-V").output().is_ok();
    if !here {
        println!("skipped: strace is not on this machine");
    }
    here
}

/// A new data directory has a name of its own to lose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_after_the_first_answer_of_a_first_start_takes_no_directory_away() {
    if !strace_is_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (root, trace) = (dir.path().join("box"), dir.path().join("trace"));
    std::fs::create_dir(&root).unwrap();
    let receiver = receiver::always(503).await;
    let config = config(dir.path(), &receiver.url(), &closed_port());
    let process = traced(&config, &trace, &root.join("data"));
    assert!(post(&process, "go", 1, 100).await);
    process.kill_child();
    let story = Story::read(&root, &[trace], &receiver);
    let answer = story.steps.iter().find(|step| matches!(step.what, What::Acknowledged(_))).unwrap();
    let cut = Cut { line: answer.begun, names: Unsynced::Gone, data: Unsynced::Gone };
    survive(&story, cut, 0).await;
}

/// The calls at which a power cut is most likely to hurt, and any others.
fn place<R: Rng>(story: &Story, rng: &mut R) -> usize {
    if rng.random_bool(0.3) {
        return rng.random_range(0..story.times.len());
    }
    let kind = rng.random_range(0..4);
    let wanted: Vec<&Step> = story
        .steps
        .iter()
        .filter(|step| {
            matches!(
                (&step.what, kind),
                (What::Name(_), 0) | (What::Sync(_), 1 | 2) | (What::Acknowledged(_), 3)
            )
        })
        .collect();
    let step = wanted[rng.random_range(0..wanted.len())];
    // While it runs, when it has just ended, or one line later.
    let lines = [step.begun, step.done.saturating_sub(1).max(step.begun), step.done, step.done + 1];
    lines[rng.random_range(0..lines.len())].min(story.times.len() - 1)
}

/// What becomes of the index beside the cut.
fn spoil_index<R: Rng>(data: &Path, rng: &mut R) -> &'static str {
    let sled = data.join("sled");
    match rng.random_range(0..6) {
        0 => {
            let _ = std::fs::remove_dir_all(&sled);
            "index deleted"
        }
        1 => {
            for name in files(&sled_or_empty(&sled)).keys() {
                let mut rubbish = vec![0; 4096];
                rng.fill_bytes(&mut rubbish);
                std::fs::write(sled.join(name), rubbish).unwrap();
            }
            "index rubbish"
        }
        _ => "index as it was",
    }
}

fn sled_or_empty(sled: &Path) -> PathBuf {
    std::fs::create_dir_all(sled).unwrap();
    sled.to_owned()
}

/// A cut by seed.
async fn survive_any(story: &Story, seed: u64) -> usize {
    let mut rng = Pcg64::seed_from_u64(seed);
    let line = place(story, &mut rng);
    let modes = [Unsynced::Gone, Unsynced::Kept, Unsynced::Part, Unsynced::Writes, Unsynced::Sectors];
    let mut mode = || modes[rng.random_range(0..modes.len())];
    let cut = Cut { line, names: mode(), data: mode() };
    survive(story, cut, seed).await
}

/// Rebuilds, starts, drains, compares. Gives what was repeated.
async fn survive(story: &Story, cut: Cut, seed: u64) -> usize {
    let mut rng = Pcg64::seed_from_u64(seed);
    let line = cut.line;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("box");
    std::fs::create_dir(&root).unwrap();
    rebuild(&story.steps, cut, &mut rng, &root);
    let data = root.join("data");
    let index = if data.exists() { spoil_index(&data, &mut rng) } else { "no data directory" };
    let told = format!("cut {seed}: {cut:?}, {index}");

    let mut acknowledged: BTreeMap<&str, &str> = BTreeMap::new();
    let mut settled: HashMap<&str, f64> = HashMap::new();
    for step in &story.steps {
        match &step.what {
            What::Acknowledged(events) if step.begun <= line => {
                acknowledged.extend(events.iter().map(|(id, key)| (id.as_str(), key.as_str())));
            }
            What::Answered(id) if step.done <= line => drop(settled.insert(id, step.at)),
            _ => {}
        }
    }
    let receiver = receiver::scripted(script::always(200), Keep::Heads).await;
    let config = config(dir.path(), &receiver.url(), &receiver.url());
    let mut command = waypost();
    command.args(["run", "--config"]).arg(&config);
    let begun = tokio::time::Instant::now();
    let process = Process::spawn_logged(command, &data, &config.with_extension("stderr"));
    assert!(begun.elapsed() < Duration::from_secs(20), "{told}: ready after {:?}", begun.elapsed());
    let client = process.client();
    for endpoint in ["main", "stay"] {
        client.endpoint(endpoint, EndpointAction::Resume).await.unwrap();
    }
    client.dead_letter_action("redrive", &DeadLetterSelection::default()).await.unwrap();
    let status = wait_status(&client, Duration::from_secs(60), |status| status.ledger.pending == 0).await;
    let stderr = std::fs::read_to_string(config.with_extension("stderr")).unwrap();
    assert!(status.ledger.balanced, "{told}: {:?}\n{stderr}", status.ledger);
    assert_eq!((status.ledger.lost, status.ledger.dead), (0, 0), "{told}: {:?}\n{stderr}", status.ledger);
    check(&told, story, &receiver, &acknowledged, &settled, story.times[line]);
    let repeated =
        receiver.book().seen().iter().filter(|seen| settled.contains_key(seen.id.as_str())).count();
    println!(
        "{told}: {} acknowledged, {} answered, {} arrived after it, {repeated} of them again",
        acknowledged.len(),
        settled.len(),
        receiver.book().totals().distinct
    );
    assert!(process.terminate().success(), "{told}");
    repeated
}

fn check(
    told: &str,
    story: &Story,
    receiver: &Receiver,
    acknowledged: &BTreeMap<&str, &str>,
    settled: &HashMap<&str, f64>,
    cut_at: f64,
) {
    let seen = receiver.book().seen();
    let arrived: HashSet<&str> = seen.iter().map(|seen| seen.id.as_str()).collect();
    let missing: Vec<_> =
        acknowledged.iter().filter(|(id, _)| !arrived.contains(*id) && !settled.contains_key(*id)).collect();
    assert!(missing.is_empty(), "{told}: {} acknowledged events are gone: {missing:?}", missing.len());
    for one in &seen {
        if let Some(key) = acknowledged.get(one.id.as_str()) {
            assert_eq!(one.key, *key, "{told}: another key than the one that was acknowledged");
        }
        if let Some((key, digest)) = story.before.get(&one.id) {
            assert_eq!((&one.key, &one.sha256), (key, digest), "{told}: another key or body than before");
        }
        let age_s = settled.get(one.id.as_str()).map_or(0.0, |at| cut_at - at);
        assert!(
            age_s <= REPEATED_S_MAX,
            "{told}: {} was answered {age_s} s before the cut and came again",
            one.id
        );
    }
    assert_eq!(receiver.book().totals().conflicts, 0, "{told}");
}

/// `WAYPOST_CUTS=200 cargo test --release --test it -- replay_cut` is the long form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_at_any_system_call_loses_nothing_that_was_acknowledged() {
    if !strace_is_here() {
        return;
    }
    println!("binary {}", binary());
    let seed = seed();
    let dir = tempfile::tempdir().unwrap();
    let story = record(dir.path()).await;
    // The model of the disk is right if without a cut it gives the very files that are there.
    let whole = tempfile::tempdir().unwrap();
    rebuild(&story.steps, Cut::none(), &mut Pcg64::seed_from_u64(0), whole.path());
    let (real, model) = (files(&dir.path().join("box")), files(whole.path()));
    assert_eq!(real.keys().collect::<Vec<_>>(), model.keys().collect::<Vec<_>>());
    for (name, bytes) in &real {
        assert!(*bytes == model[name], "the replayed calls give another {name}");
    }
    let count = |wanted: fn(&What) -> bool| story.steps.iter().filter(|step| wanted(&step.what)).count();
    // Events of the first segment are pending to the end, so it can only have gone by copying them.
    let gone = |name: &str| {
        story
            .steps
            .iter()
            .any(|step| matches!(&step.what, What::Name(NameOp::Unlink { name: gone, .. }) if gone == name))
    };
    assert!(gone("00000001.seg"), "the load was too short for copying");
    println!(
        "{} lines: {} changes of names, {} of data, {} syncs, {} answers",
        story.times.len(),
        count(|what| matches!(what, What::Name(_))),
        count(|what| matches!(what, What::Data(..))),
        count(|what| matches!(what, What::Sync(_))),
        count(|what| matches!(what, What::Acknowledged(_))),
    );
    let story = Arc::new(story);
    let cuts = number("WAYPOST_CUTS").unwrap_or(CUTS);
    let mut repeated = Vec::new();
    let mut running = tokio::task::JoinSet::new();
    for cut in 0..cuts {
        if running.len() >= 3 {
            repeated.push(running.join_next().await.unwrap().unwrap());
        }
        let story = Arc::clone(&story);
        running.spawn(async move { survive_any(&story, seed.wrapping_add(cut)).await });
    }
    repeated.extend(running.join_all().await);
    println!("{cuts} cuts survived; at most {} repeats", repeated.iter().max().unwrap());
}
