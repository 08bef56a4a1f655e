//! Faults of receivers and networks that were seen in the field, on the real binary. Each test names what must hold.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use waypost::core::classify::VerdictKind;
use waypost::receiver::record::{Keep, Options};
use waypost::receiver::script::{self, Act, Answer, Script};
use waypost::receiver::{Fault, Power, Receiver};
use waypost::wire::{DeadLetterSelection, EndpointState, StatusView};

use crate::support::appliance::http;
use crate::support::process::{Process, wait_status};
use crate::support::{misbehave, receiver};

/// How long anything may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Starts the binary with endpoints given as `(name, url, more lines)`.
fn start(dir: &Path, endpoints: &[(&str, &str, &str)]) -> Process {
    let data = dir.join("data");
    let mut text = format!(
        "data_dir = \"{}\"\nclock_trust = \"always\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n",
        data.display()
    );
    for (name, url, more) in endpoints {
        text.push_str(&format!("[[endpoint]]\nname = \"{name}\"\nurl = \"{url}\"\n{more}\n"));
    }
    let file = dir.join("waypost.toml");
    std::fs::write(&file, text).unwrap();
    Process::start_config(&file, &data)
}

/// Short times, so that a test does not wait for what an operator would.
const QUICK: &str = "timeout = \"1s\"\nretry = { base = \"50ms\", cap = \"500ms\", attempts_max = 5 }\nhold = { probe_base = \"100ms\", probe_cap = \"1s\" }";

/// Posts events `range` of a device as lines.
async fn post(process: &Process, device: &str, range: std::ops::Range<u64>) {
    let mut lines = String::new();
    for number in range {
        lines.push_str(&format!(
            "{{\"type\":\"Feature\",\"geometry\":null,\"properties\":{{\"seq\":{number},\"pad\":\"{}\"}}}}\n",
            "x".repeat(200)
        ));
    }
    let request = http().post(format!("http://{}/v1/events", process.address)).body(lines);
    let request = request.header("content-type", "application/x-ndjson").header("waypost-device", device);
    assert_eq!(request.send().await.unwrap().status(), 202);
}

fn empty(status: &StatusView) -> bool {
    status.ledger.pending == 0
}

/// Requests by key: each key has one body and each event one key.
fn keys(receiver: &Receiver) -> HashMap<String, u32> {
    let mut keys = HashMap::new();
    for seen in receiver.book().seen() {
        assert!(!seen.conflict, "one body for ever");
        *keys.entry(seen.key).or_default() += 1;
    }
    keys
}

/// Fault 10: a destination that never answers takes nothing from another, nor from the intake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_hangs_starves_no_other() {
    let (hangs, good) = (receiver::ok().await, receiver::ok().await);
    hangs.set_power(Power::Hanging);
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), &[("hangs", &hangs.url(), ""), ("good", &good.url(), "")]);
    let mut slowest = Duration::ZERO;
    for number in 0..100 {
        let begin = Instant::now();
        post(&process, "d", number * 5..number * 5 + 5).await;
        slowest = slowest.max(begin.elapsed());
    }
    tokio::time::timeout(SOON, good.wait_distinct(500)).await.unwrap();
    let status = process.client().status().await.unwrap();
    let pending: Vec<_> = status.endpoints.iter().map(|one| (one.name.as_str(), one.pending)).collect();
    assert!(pending.contains(&("hangs", 500)), "{pending:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?} for five events");
    assert!(process.terminate().success());
}

/// Fault 11: what was in flight when the process died is sent after the restart, under its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_with_attempts_in_flight_leaves_no_mark() {
    let receiver = receiver::ok().await;
    receiver.set_power(Power::Hanging);
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), &[("default", &receiver.url(), "in_flight_max = 8")]);
    post(&process, "d", 0..100).await;
    wait_status(&process.client(), SOON, |status| status.endpoints[0].in_flight == 8).await;
    process.kill();
    receiver.set_power(Power::Up);
    let process = start(dir.path(), &[("default", &receiver.url(), "in_flight_max = 8")]);
    let end = wait_status(&process.client(), SOON, empty).await;
    assert_eq!((end.ledger.delivered, end.endpoints[0].in_flight), (100, 0));
    let keys = keys(&receiver);
    assert_eq!(keys.len(), 100);
    assert!(keys.values().filter(|times| **times > 1).count() <= 8);
}

/// Fault 12: the last event of a burst does not wait for the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_event_waits_for_no_other() {
    let receiver = receiver::ok().await;
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), &[("default", &receiver.url(), "")]);
    for number in 0..30 {
        post(&process, "d", number..number + 1).await;
        let two = Duration::from_secs(2);
        tokio::time::timeout(two, receiver.wait_distinct(number + 1)).await.expect("within two seconds");
    }
}

/// Fault 13: an event that is refused for good stops nothing behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_event_stops_nothing() {
    let script: Script =
        Arc::new(|seen| Act::Answer(Answer::status(if seen.device == "bad" { 400 } else { 200 })));
    let receiver = receiver::scripted(script, Keep::Heads).await;
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), &[("default", &receiver.url(), "in_flight_max = 1")]);
    post(&process, "bad", 0..1).await;
    post(&process, "good", 0..199).await;
    let end = wait_status(&process.client(), SOON, empty).await;
    assert_eq!((end.ledger.delivered, end.ledger.dead), (199, 1));
    let letters = process.client().newest_dead_letters(&DeadLetterSelection::default(), None).await.unwrap();
    assert_eq!(letters.entries[0].attempts, 1);
    assert!(letters.entries[0].error_message.contains("http 400"));
}

/// Fault 14: the time limit of an attempt begins with its request, not with its place in the line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_slot_is_no_timeout() {
    let slow = Answer { delay: Duration::from_millis(250), ..Answer::status(200) };
    let receiver = receiver::scripted(Arc::new(move |_| Act::Answer(slow.clone())), Keep::Heads).await;
    let dir = tempfile::tempdir().unwrap();
    let more = "timeout = \"2s\"\nin_flight_max = 8";
    let process = start(dir.path(), &[("default", &receiver.url(), more)]);
    let begin = Instant::now();
    post(&process, "d", 0..160).await;
    let end = wait_status(&process.client(), SOON, empty).await;
    assert_eq!(end.endpoints[0].verdicts, [(VerdictKind::Delivered, 160)].into());
    assert!(begin.elapsed() < Duration::from_secs(10), "5 s is ideal: {:?}", begin.elapsed());
}

/// Fault 18: a receiver that refuses connections costs few attempts, few lines of log and no event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_port_makes_no_tight_loop_and_no_flood_of_logs() {
    let receiver = receiver::ok().await;
    receiver.set_power(Power::Down);
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), &[("default", &receiver.url(), "")]);
    let begin = Instant::now();
    let mut posted = 0;
    while begin.elapsed() < Duration::from_secs(8) {
        post(&process, "d", posted..posted + 50).await;
        posted += 50;
        let _ = tokio::time::timeout(Duration::from_millis(500), receiver.wait(|totals| totals.requests > 0))
            .await;
    }
    let status = process.client().status().await.unwrap();
    assert_eq!((status.ledger.pending, status.ledger.dead), (posted, 0));
    assert_eq!(status.endpoints[0].hold_reason.as_deref(), Some("refused"));
    assert!(status.endpoints[0].attempts <= 40, "{} attempts", status.endpoints[0].attempts);
    let log = std::fs::read_to_string(process.data_dir.with_extension("stderr")).unwrap();
    assert!(log.lines().count() <= 20, "{log}");
}

/// Fault 32: credentials or an address that are wrong for a while kill no event, and the cause is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_and_addresses_hold_and_kill_nothing() {
    for (status, reason) in [(401, "auth"), (403, "auth"), (404, "config"), (405, "config")] {
        let receiver = receiver::always(status).await;
        let dir = tempfile::tempdir().unwrap();
        let process = start(dir.path(), &[("default", &receiver.url(), QUICK)]);
        post(&process, "d", 0..200).await;
        let held =
            wait_status(&process.client(), SOON, |status| status.endpoints[0].state == EndpointState::Held)
                .await;
        assert_eq!(held.endpoints[0].hold_reason.as_deref(), Some(reason), "{status}");
        receiver::set_ok(&receiver);
        let end = wait_status(&process.client(), SOON, empty).await;
        assert_eq!((end.ledger.delivered, end.ledger.dead), (200, 0), "{status}");
        assert_eq!(keys(&receiver).len(), 200);
    }
}

/// Fault 45: a redirect is neither followed nor a success, and nobody else gets the event or the credentials.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_no_delivery() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = receiver::ok().await;
        let headers = vec![("location".to_owned(), elsewhere.url())];
        let answer = Answer { headers, ..Answer::status(status) };
        let receiver = receiver::scripted(Arc::new(move |_| Act::Answer(answer.clone())), Keep::Heads).await;
        let dir = tempfile::tempdir().unwrap();
        let process = start(dir.path(), &[("default", &receiver.url(), QUICK)]);
        post(&process, "d", 0..10).await;
        let held =
            wait_status(&process.client(), SOON, |status| status.endpoints[0].state == EndpointState::Held)
                .await;
        assert_eq!(held.endpoints[0].hold_reason.as_deref(), Some("config"));
        assert_eq!((held.ledger.delivered, held.ledger.dead, held.ledger.pending), (0, 0, 10), "{status}");
        assert_eq!(elsewhere.book().totals().requests, 0, "{status}");
        assert!(receiver.book().seen().iter().all(|request| request.method == "POST"));
    }
}

/// Fault 46: no answer and passing answers are never final, whatever the cause, and the cause is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passing_answers_are_never_final() {
    let more = QUICK.replace("attempts_max = 5", "attempts_max = 1000");
    for status in [502, 503, 504, 408, 425, 429, 409, 500] {
        let receiver = receiver::always(status).await;
        let dir = tempfile::tempdir().unwrap();
        let process = start(dir.path(), &[("default", &receiver.url(), &more)]);
        post(&process, "d", 0..50).await;
        tokio::time::timeout(SOON, receiver.wait(|totals| totals.requests >= 12)).await.unwrap();
        let during = process.client().status().await.unwrap();
        assert_eq!((during.ledger.pending, during.ledger.dead), (50, 0), "{status}");
        assert_eq!(during.endpoints[0].last_outcome.as_deref(), Some(format!("http {status}").as_str()));
        receiver::set_ok(&receiver);
        let end = wait_status(&process.client(), SOON, empty).await;
        assert_eq!((end.ledger.delivered, end.ledger.dead), (50, 0), "{status}");
    }
}

/// Faults 46 and 47: a name that does not resolve, at the start and for as long as it lasts, loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_name_lookup_takes_events_on_and_waits() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), &[("default", "http://receiver.invalid/hook", QUICK)]);
    post(&process, "d", 0..100).await;
    let held =
        wait_status(&process.client(), SOON, |status| status.endpoints[0].state == EndpointState::Held).await;
    assert_eq!(held.endpoints[0].hold_reason.as_deref(), Some("dns"));
    assert_eq!((held.ledger.pending, held.ledger.dead), (100, 0));
    assert!(process.terminate().success());
}

/// Fault 48: a kept connection that the receiver closes at the moment of use costs nobody anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_closed_at_the_moment_of_use_is_no_failure() {
    let idle = Duration::from_millis(200);
    let options = Options { keep: Keep::Heads, idle_close: Some(idle), ..Options::default() };
    let receiver = receiver::with(script::always(200), options).await;
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), &[("default", &receiver.url(), "")]);
    let mut tick = tokio::time::interval(idle);
    for number in 0..60 {
        tick.tick().await;
        post(&process, "d", number..number + 1).await;
    }
    let end = wait_status(&process.client(), SOON, empty).await;
    assert_eq!((end.ledger.delivered, end.ledger.dead), (60, 0));
    assert_eq!(end.endpoints[0].state, EndpointState::Up);
    assert_eq!(end.endpoints[0].budget.tokens, 100.0, "a free repeat takes no token");
}

/// Fault 49: a reset at any place of the request or the answer loses nothing and stops nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_at_any_byte_are_retried_under_the_same_key() {
    let reset = |after| Act::Reset { after_body_bytes: after };
    let cut = Act::Answer(Answer { fault: Fault::ResetAfter(17), ..Answer::status(200) });
    for act in [reset(0), reset(1), reset(130), reset(259), reset(u64::MAX), cut] {
        let met = std::sync::Mutex::new(HashSet::new());
        let first = act.clone();
        // The first request of every tenth event is cut.
        let script: Script = Arc::new(move |seen| {
            let cut = seen.device == "cut" && met.lock().unwrap().insert(seen.key.clone());
            if cut { first.clone() } else { Act::Answer(Answer::status(200)) }
        });
        let receiver = receiver::scripted(script, Keep::Heads).await;
        let dir = tempfile::tempdir().unwrap();
        let process = start(dir.path(), &[("default", &receiver.url(), QUICK)]);
        for round in 0..10 {
            post(&process, "cut", round..round + 1).await;
            post(&process, "whole", round * 9..round * 9 + 9).await;
        }
        let end = wait_status(&process.client(), SOON, empty).await;
        assert_eq!((end.ledger.delivered, end.ledger.dead), (100, 0), "{act:?}");
        assert_eq!(keys(&receiver).len(), 100, "{act:?}");
    }
}

/// Fault 43: an answer that trickles ends with the attempt's time limit, and another destination does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_trickles_ends_with_its_time_limit() {
    let every = Duration::from_millis(200);
    for after in [0, 40] {
        let answer = Answer {
            fault: Fault::Trickle { after, every },
            body: vec![b'x'; 200].into(),
            ..Answer::status(200)
        };
        let trickles = receiver::scripted(Arc::new(move |_| Act::Answer(answer.clone())), Keep::Heads).await;
        let good = receiver::ok().await;
        let dir = tempfile::tempdir().unwrap();
        let process = start(dir.path(), &[("trickles", &trickles.url(), QUICK), ("good", &good.url(), "")]);
        post(&process, "d", 0..100).await;
        tokio::time::timeout(SOON, good.wait_distinct(100)).await.unwrap();
        let status = wait_status(&process.client(), SOON, |status| {
            status.endpoints.iter().any(|one| one.name == "trickles" && one.state == EndpointState::Held)
        })
        .await;
        let one = status.endpoints.iter().find(|one| one.name == "trickles").unwrap();
        assert_eq!((one.pending, one.dead, one.hold_reason.as_deref()), (100, 0, Some("timeout")));
        assert!(one.latency_ms.p99 <= 2_000.0, "{:?}", one.latency_ms);
    }
}

/// Carries bytes to `to` until its connections are frozen; those made later work.
async fn proxy(to: std::net::SocketAddr) -> (std::net::SocketAddr, watch::Sender<u64>) {
    let (freeze, frozen) = watch::channel(0);
    let addr = misbehave::server(move |mut inbound: TcpStream| {
        let mut frozen = frozen.clone();
        frozen.mark_unchanged();
        async move {
            let Ok(mut outbound) = TcpStream::connect(to).await else { return };
            let (mut a, mut b) = ([0; 4096], [0; 4096]);
            loop {
                tokio::select! {
                    // From now on packets are swallowed: nothing is read, nothing is closed.
                    _ = frozen.changed() => std::future::pending().await,
                    read = inbound.read(&mut a) => match read {
                        Ok(1..) if outbound.write_all(&a[..read.unwrap()]).await.is_ok() => {}
                        _ => return,
                    },
                    read = outbound.read(&mut b) => match read {
                        Ok(1..) if inbound.write_all(&b[..read.unwrap()]).await.is_ok() => {}
                        _ => return,
                    },
                }
            }
        }
    })
    .await;
    (addr, freeze)
}

/// Fault 44: a route that swallows the packets of its old connections: new ones are made, little is lost to waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_swallow_packets_are_left_behind() {
    let receiver = receiver::ok().await;
    let (addr, freeze) = proxy(receiver.addr()).await;
    let dir = tempfile::tempdir().unwrap();
    let more = QUICK.replace("timeout = \"1s\"", "timeout = \"2s\"\nin_flight_max = 8");
    let process = start(dir.path(), &[("default", &format!("http://{addr}/hook"), &more)]);
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    for number in 0..75 {
        tick.tick().await;
        post(&process, "d", number..number + 1).await;
        if number == 25 {
            freeze.send_modify(|times| *times += 1);
        }
    }
    let end = wait_status(&process.client(), Duration::from_secs(15), empty).await;
    assert_eq!((end.ledger.delivered, end.ledger.dead), (75, 0));
    let timeouts = end.endpoints[0].verdicts.get(&VerdictKind::Retry).copied().unwrap_or_default();
    assert!(timeouts <= 8, "{timeouts} timeouts");
    assert_eq!(keys(&receiver).len(), 75);
}
