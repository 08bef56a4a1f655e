//! Outages on the real binary, with a receiver that has a capacity: ten events a second, the receiver goes away, comes
//! back, and the backlog drains. `WAYPOST_BIN=target/release/waypost` runs them on that binary.
//!
//! `WAYPOST_OUTAGE=full cargo test outage` takes the full ten minutes with the settings of a new install; otherwise time
//! is shortened by [`SHORTER`], and so are the settings that follow it.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use waypost::receiver::record::Keep;
use waypost::receiver::script::{Act, Answer, Script};
use waypost::receiver::{Power, Receiver};
use waypost::wire::StatusView;

use crate::support::appliance::http;
use crate::support::process::{Process, wait_status};
use crate::support::receiver;

/// How much shorter than ten minutes the outage of the default run is.
const SHORTER: u32 = 40;
/// Events a second.
const RATE: f64 = 10.0;

/// Sizes of a run.
struct Scale {
    warm_up: Duration,
    outage: Duration,
    timeout: Duration,
    probe_base: Duration,
    probe_cap: Duration,
    /// Requests a second that the receiver serves, one after another.
    capacity: f64,
    /// What a busy machine may take on top of times in seconds.
    slack: Duration,
}

fn full() -> bool {
    std::env::var_os("WAYPOST_OUTAGE").is_some_and(|value| value == "full")
}

fn scale() -> Scale {
    // A debug build is no match for a receiver of 500 a second.
    let release = std::env::var_os("WAYPOST_BIN").is_some();
    let (shorter, capacity) = if full() { (1, if release { 500.0 } else { 100.0 }) } else { (SHORTER, 40.0) };
    Scale {
        warm_up: Duration::from_secs(2),
        outage: Duration::from_mins(10) / shorter,
        timeout: (Duration::from_secs(10) / shorter).max(Duration::from_millis(400)),
        probe_base: Duration::from_secs(5) / shorter,
        probe_cap: Duration::from_secs(60) / shorter,
        capacity,
        slack: Duration::from_millis(500),
    }
}

/// What the receiver does with a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    No,
    With503,
    Hangs,
}

/// A receiver that serves one request after another and remembers what came when.
struct Desk {
    work: Duration,
    fails: Fails,
    free_at: Instant,
    /// When each request in hand will have been answered.
    in_hand: VecDeque<Instant>,
    up_at: Option<Instant>,
    noticed_at: Option<Instant>,
    in_flight_first_second: usize,
    /// Events of the backlog that have been taken, and when the last one was.
    backlog: HashSet<String>,
    backlog_at: Option<Instant>,
}

impl Desk {
    fn new(capacity: f64) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            work: Duration::from_secs_f64(1.0 / capacity),
            fails: Fails::No,
            free_at: Instant::now(),
            in_hand: VecDeque::new(),
            up_at: None,
            noticed_at: None,
            in_flight_first_second: 0,
            backlog: HashSet::new(),
            backlog_at: None,
        }))
    }

    fn take(&mut self, key: &str, device: &str) -> Act {
        let now = Instant::now();
        match self.fails {
            Fails::With503 => return Act::Answer(Answer::status(503)),
            Fails::Hangs => return Act::Hang,
            Fails::No => {}
        }
        self.free_at = self.free_at.max(now) + self.work;
        while self.in_hand.front().is_some_and(|end| *end <= now) {
            self.in_hand.pop_front();
        }
        self.in_hand.push_back(self.free_at);
        if self.up_at.is_some() {
            let noticed = *self.noticed_at.get_or_insert(now);
            if now <= noticed + Duration::from_secs(1) {
                self.in_flight_first_second = self.in_flight_first_second.max(self.in_hand.len());
            }
            if device == "backlog" && self.backlog.insert(key.to_owned()) {
                self.backlog_at = Some(self.free_at);
            }
        }
        Act::Answer(Answer { delay: self.free_at - now, ..Answer::status(200) })
    }

    fn script(desk: &Arc<Mutex<Self>>) -> Script {
        let desk = Arc::clone(desk);
        Arc::new(move |seen| desk.lock().unwrap().take(&seen.key, &seen.device))
    }
}

/// Posts `RATE` events a second as `device` until `until`; how many were accepted.
async fn produce(process: &Process, device: &str, until: Instant, first: u64) -> u64 {
    let client = http();
    let url = format!("http://{}/v1/events", process.address);
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / RATE));
    let mut number = first;
    while Instant::now() < until {
        tick.tick().await;
        let body = format!(
            "{{\"type\":\"Feature\",\"geometry\":{{\"type\":\"Point\",\"coordinates\":[7.1,51.2]}},\"properties\":{{\"seq\":{number}}}}}"
        );
        let request = client.post(&url).header("content-type", "application/geo+json");
        let response = request.header("waypost-device", device).body(body).send().await.unwrap();
        assert_eq!(response.status(), 202);
        number += 1;
    }
    number - first
}

/// A config file with one endpoint; `more` are further lines of it.
fn config(dir: &Path, url: &str, more: &str) -> std::path::PathBuf {
    let file = dir.join("waypost.toml");
    let data = dir.join("data");
    let text = format!(
        "data_dir = \"{}\"\nclock_trust = \"always\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n[[endpoint]]\nname = \"default\"\nurl = \"{url}\"\n{more}\n",
        data.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn attempts(status: &StatusView) -> u64 {
    status.endpoints[0].attempts
}

/// What a run showed.
#[derive(Debug)]
struct Run {
    accepted_in_outage: u64,
    attempts_in_outage: u64,
    noticed_after: Duration,
    in_flight_first_second: usize,
    drained_after: Duration,
    ideal: Duration,
    end: StatusView,
}

/// Takes the receiver away and back; `down` and `up` do it.
async fn outage(
    scale: &Scale,
    more: &str,
    desk: &Arc<Mutex<Desk>>,
    receiver: &Receiver,
    down: impl Fn(&mut Desk),
    settle_within: Duration,
) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let file = config(dir.path(), &receiver.url(), more);
    let process = Process::start_config(&file, &dir.path().join("data"));
    let client = process.client();
    let before = produce(&process, "before", Instant::now() + scale.warm_up, 1).await;
    let calm =
        wait_status(&client, Duration::from_secs(20), |status| status.ledger.delivered == before).await;
    down(&mut desk.lock().unwrap());
    let backlog = produce(&process, "backlog", Instant::now() + scale.outage, 1).await;
    let end_of_outage = client.status().await.unwrap();
    let up_at = {
        let mut desk = desk.lock().unwrap();
        desk.fails = Fails::No;
        desk.up_at = Some(Instant::now());
        Instant::now()
    };
    receiver.set_power(Power::Up);
    let ideal = Duration::from_secs_f64(end_of_outage.ledger.pending as f64 / (scale.capacity - RATE));
    let until = up_at + scale.probe_cap + ideal * 2;
    let after = produce(&process, "after", until, 1).await;
    let total = before + backlog + after;
    let end = wait_status(&client, settle_within, |status| status.ledger.pending == 0).await;
    assert_eq!(end.ledger.accepted, total);
    assert!(end.ledger.balanced);
    assert!(process.terminate().success());
    let desk = desk.lock().unwrap();
    let noticed = desk.noticed_at.unwrap();
    Run {
        accepted_in_outage: backlog,
        attempts_in_outage: attempts(&end_of_outage) - attempts(&calm),
        noticed_after: noticed - up_at,
        in_flight_first_second: desk.in_flight_first_second,
        drained_after: desk.backlog_at.map_or(Duration::ZERO, |at| at - noticed),
        ideal,
        end,
    }
}

async fn held_outage(kind: &str, down: impl Fn(&mut Desk), power: impl Fn(&Receiver)) {
    let scale = scale();
    let desk = Desk::new(scale.capacity);
    let receiver = receiver::scripted(Desk::script(&desk), Keep::Nothing).await;
    let ms = |duration: Duration| format!("\"{}ms\"", duration.as_millis());
    let more = format!(
        "timeout = {}\nhold = {{ faults = 5, probe_base = {}, probe_cap = {} }}",
        ms(scale.timeout),
        ms(scale.probe_base),
        ms(scale.probe_cap)
    );
    let off = |desk: &mut Desk| {
        down(desk);
        power(&receiver);
    };
    let run = outage(&scale, &more, &desk, &receiver, off, Duration::from_secs(30)).await;
    println!(
        "{kind}: {} accepted in the outage, {} attempts, noticed after {:?}, {} in flight in the first second, drained in {:?} (ideal {:?})",
        run.accepted_in_outage,
        run.attempts_in_outage,
        run.noticed_after,
        run.in_flight_first_second,
        run.drained_after,
        run.ideal
    );
    assert_eq!(run.end.ledger.dead, 0);
    assert_eq!(run.end.ledger.delivered, run.end.ledger.accepted);
    assert!(run.attempts_in_outage <= 35, "{} attempts", run.attempts_in_outage);
    // A receiver that says 503 is given pauses of up to half a minute before it counts as down, and those are not made
    // shorter with the outage: then the promise itself is the limit.
    let noticed_within = if kind == "503" { Duration::from_mins(1) } else { scale.probe_cap + scale.slack };
    assert!(run.noticed_after <= noticed_within, "{:?}", run.noticed_after);
    assert!(run.in_flight_first_second <= 5, "{}", run.in_flight_first_second);
    assert!(run.drained_after <= run.ideal.mul_f64(1.3) + scale.slack, "{:?}", run.drained_after);
    assert_eq!(desk.lock().unwrap().backlog.len() as u64, run.accepted_in_outage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_refuses_connections_costs_little_and_loses_nothing() {
    held_outage("refused", |_| {}, |receiver| receiver.set_power(Power::Down)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_answers_503_costs_little_and_loses_nothing() {
    held_outage("503", |desk| desk.fails = Fails::With503, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_costs_little_and_loses_nothing() {
    held_outage("hangs", |desk| desk.fails = Fails::Hangs, |_| {}).await;
}

/// The same with the article's policy shows the article's numbers (RETRY 3.3): all but a few events of the outage are
/// dead letters, and each of them was sent into it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_articles_policy_sheds_what_the_outage_brings() {
    let mut scale = scale();
    if !full() {
        scale.outage = Duration::from_secs(10); // its delays and its budget have their own time
    }
    let desk = Desk::new(scale.capacity);
    let receiver = receiver::scripted(Desk::script(&desk), Keep::Nothing).await;
    let more = "policy = \"article\"\nin_flight_max = 1024";
    let down = |desk: &mut Desk| desk.fails = Fails::With503;
    let run = outage(&scale, more, &desk, &receiver, down, Duration::from_secs(100)).await;
    let share = run.end.ledger.dead as f64 / run.accepted_in_outage as f64;
    println!(
        "article: {} accepted in the outage, {} attempts, {:.1} % dead",
        run.accepted_in_outage,
        run.attempts_in_outage,
        share * 100.0
    );
    assert!(run.attempts_in_outage >= run.accepted_in_outage, "every event is sent into the outage");
    let least = if full() { 0.998 } else { 0.95 };
    assert!(share >= least, "{share}");
}

/// A route of pings: while the receiver is away a newer one replaces the older of its device, and what nobody waits for
/// any more is dropped. Both are counted, and the ledger balances over a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_are_replaced_by_newer_ones_and_expire_only_where_a_route_says_so() {
    let receiver = receiver::keeping().await;
    receiver.set_power(Power::Down);
    let dir = tempfile::tempdir().unwrap();
    let more = "hold = { faults = 5, probe_base = \"100ms\", probe_cap = \"500ms\" }\n[[route]]\nendpoint = \"default\"\ntypes = [\"ping\"]\nsupersede = \"latest-per-device\"\n[[route]]\nendpoint = \"default\"\ntypes = [\"mood\"]\nttl = \"1s\"\n[[route]]\nendpoint = \"default\"\ntypes = [\"alarm\"]";
    let file = config(dir.path(), &receiver.url(), more);
    let data = dir.path().join("data");
    let process = Process::start_config(&file, &data);
    let client = http();
    for number in 0..150 {
        let kind = ["ping", "alarm", "mood"][number % 3];
        let body = format!("{{\"type\":\"Feature\",\"geometry\":null,\"properties\":{{\"seq\":{number}}}}}");
        let request = client.post(format!("http://{}/v1/events", process.address));
        let request =
            request.header("content-type", "application/geo+json").header("waypost-device", "boat-1");
        let response = request.header("waypost-event-type", kind).body(body).send().await.unwrap();
        assert_eq!(response.status(), 202);
    }
    let settled = |status: &StatusView| {
        let ledger = &status.ledger;
        ledger.balanced && (ledger.pending, ledger.superseded, ledger.expired) == (51, 49, 50)
    };
    wait_status(&process.client(), Duration::from_secs(20), settled).await;
    process.kill();
    let process = Process::start_config(&file, &data);
    wait_status(&process.client(), Duration::from_secs(20), settled).await;
    receiver.set_power(Power::Up);
    let end =
        wait_status(&process.client(), Duration::from_secs(20), |status| status.ledger.pending == 0).await;
    assert_eq!((end.ledger.delivered, end.ledger.dead), (51, 0));
    let seen = receiver.book().seen();
    let pings: Vec<_> = seen.iter().filter(|request| request.event_type == "ping").collect();
    assert!(
        String::from_utf8_lossy(pings[0].body.as_ref().unwrap()).contains("\"seq\":147"),
        "the newest ping"
    );
    assert_eq!(seen.iter().filter(|request| request.event_type == "alarm").count(), 50);
    assert!(process.terminate().success());
}

/// Dead letters of a bad spell go again by themselves once the receiver is well, under their first key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transient_dead_letters_go_again_by_themselves() {
    let bad = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let spell = Arc::clone(&bad);
    let script: Script = Arc::new(move |seen| {
        let fails = spell.load(std::sync::atomic::Ordering::Relaxed) && seen.device == "unlucky";
        Act::Answer(Answer::status(if fails { 500 } else { 200 }))
    });
    let receiver = receiver::scripted(script, Keep::Heads).await;
    let dir = tempfile::tempdir().unwrap();
    let more = "retry = { base = \"10ms\", cap = \"20ms\", attempts_max = 2 }\nredrive = { per_s = 20 }\nhold = { faults = 1000 }";
    let file = config(dir.path(), &receiver.url(), more);
    let process = Process::start_config(&file, &dir.path().join("data"));
    let client = process.client();
    produce(&process, "lucky", Instant::now() + Duration::from_millis(400), 1).await;
    produce(&process, "unlucky", Instant::now() + Duration::from_millis(300), 1).await;
    let dead = wait_status(&client, Duration::from_secs(10), |status| {
        status.ledger.pending == 0 && status.ledger.dead > 0
    })
    .await
    .ledger
    .dead;
    bad.store(false, std::sync::atomic::Ordering::Relaxed);
    produce(&process, "lucky", Instant::now() + Duration::from_millis(2_500), 100).await;
    let end = wait_status(&client, Duration::from_secs(20), |status| status.ledger.dead == 0).await;
    assert!(end.ledger.balanced);
    let seen = receiver.book().seen();
    let unlucky = seen.iter().filter(|request| request.device == "unlucky" && request.status == Some(200));
    assert_eq!(unlucky.count() as u64, dead);
    let keys: HashSet<_> =
        seen.iter().filter(|request| request.device == "unlucky").map(|request| &request.key).collect();
    assert_eq!(keys.len() as u64, dead, "one key for ever");
    assert!(process.terminate().success());
}
