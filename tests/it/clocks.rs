//! Clocks that lie, on the real binary: libfaketime moves its wall clock while it runs. The boot clock is the kernel's
//! and stays true, as on a box whose wall clock is set. Skipped with a word where libfaketime is not installed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use waypost::receiver::Power;
use waypost::receiver::record::Keep;
use waypost::receiver::script;
use waypost::wire::{EndpointState, StatusView};

use crate::support::appliance::http;
use crate::support::process::{Process, wait_status, waypost};
use crate::support::{misbehave, receiver};

const SOON: Duration = Duration::from_secs(30);

/// A wall clock that the test sets.
struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// `start` as libfaketime reads it: `@1970-01-01 00:00:10` or an offset like `-1d`.
    fn new(dir: &Path, start: &str) -> Option<Self> {
        let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"];
        let library = places
            .iter()
            .map(|place| Path::new(place).join("faketime/libfaketimeMT.so.1"))
            .find(|library| library.exists());
        let Some(library) = library else {
            println!("skipped: libfaketime is not installed");
            return None;
        };
        let clock = Self { library, file: dir.join("wall-clock") };
        clock.set(start);
        Some(clock)
    }

    fn set(&self, to: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{to}\n")).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }

    fn start(&self, dir: &Path, url: &str, more: &str) -> Process {
        let data = dir.join("data");
        let config = dir.join("waypost.toml");
        let text = format!(
            "data_dir = \"{}\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n[[endpoint]]\nname = \"default\"\nurl = \"{url}\"\nhold = {{ probe_base = \"100ms\", probe_cap = \"1s\" }}\n{more}\n",
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = waypost();
        command
            .args(["run", "--config"])
            .arg(&config)
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Process::spawn(command, &data)
    }
}

async fn post(process: &Process, range: std::ops::Range<u64>) {
    for number in range {
        let body = format!("{{\"type\":\"Feature\",\"geometry\":null,\"properties\":{{\"seq\":{number}}}}}");
        let request = http().post(format!("http://{}/v1/events", process.address)).body(body);
        let request = request.header("content-type", "application/geo+json").header("waypost-device", "d");
        assert_eq!(request.send().await.unwrap().status(), 202);
    }
}

fn whole(status: &StatusView, pending: u64) -> bool {
    let ledger = &status.ledger;
    ledger.pending == pending && ledger.dead + ledger.expired + ledger.dropped + ledger.lost == 0
}

/// Fault 27: a box wakes in 1970 and its receiver's certificate looks not valid yet. It is held for the clock, nothing
/// dies, and when the time is set everything goes out without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boot_in_1970_holds_tls_and_releases_it_when_the_time_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let Some(clock) = WallClock::new(dir.path(), "@1970-01-01 00:00:10") else { return };
    let address = misbehave::tls_server("good.pem", false).await;
    let ca = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/tls/ca.pem");
    let url = format!("https://localhost:{}/hook", address.port());
    let process = clock.start(dir.path(), &url, &format!("tls = {{ ca_file = \"{ca}\" }}"));
    let client = process.client();
    post(&process, 0..100).await;
    let held = wait_status(&client, SOON, |status| status.endpoints[0].state == EndpointState::Held).await;
    assert_eq!(held.endpoints[0].hold_reason.as_deref(), Some("clock"));
    assert!(!held.clock.trusted);
    assert!(whole(&held, 100), "{:?}", held.ledger);
    clock.set("+0");
    let end = wait_status(&client, SOON, |status| whole(status, 0)).await;
    assert_eq!(end.ledger.delivered, 100);
    assert!(!end.clock.trusted, "it has just been stepped");
    assert!(process.terminate().success());
}

/// Fault 26: the clock goes back a day, forward a day and ten years, and back to the truth, with a restart in between.
/// Nothing expires, nothing is released as a herd, keys stay, and first attempts keep the order of arrival.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jumps_of_the_clock_expire_nothing_release_no_herd_and_keep_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let Some(clock) = WallClock::new(dir.path(), "+0") else { return };
    let receiver = receiver::scripted(script::always(502), Keep::Bodies).await;
    let more =
        "in_flight_max = 1\nretry = { window = \"2h\" }\n[[route]]\nendpoint = \"default\"\nttl = \"1h\"";
    let mut process = clock.start(dir.path(), &receiver.url(), more);
    post(&process, 0..100).await;
    wait_status(&process.client(), SOON, |status| status.endpoints[0].state == EndpointState::Held).await;
    for (number, jump) in ["-1d", "+1d", "+3650d", "+0"].into_iter().enumerate() {
        clock.set(jump);
        let before = receiver.book().totals().requests;
        let from = 100 * (number as u64 + 1);
        post(&process, from..from + 100).await;
        tokio::time::timeout(SOON, receiver.wait(|totals| totals.requests >= before + 3))
            .await
            .expect("probes go on");
        let status = process.client().status().await.unwrap();
        assert!(whole(&status, from + 100), "{jump}: {:?}", status.ledger);
        assert!(!status.clock.trusted, "{jump}: it has just been stepped");
        if number == 1 {
            process.kill();
            process = clock.start(dir.path(), &receiver.url(), more);
        }
    }
    let requests = receiver.book().totals().requests;
    assert!(requests <= 100, "{requests} requests: no herd");
    receiver::set_ok(&receiver);
    let end = wait_status(&process.client(), Duration::from_secs(60), |status| whole(status, 0)).await;
    assert_eq!(end.ledger.delivered, 500);
    let seen = receiver.book().seen();
    let keys: HashSet<_> = seen.iter().map(|request| &request.key).collect();
    assert_eq!(keys.len(), 500);
    let mut met = HashSet::new();
    let first = seen.iter().filter(|request| request.attempt == Some(1) && met.insert(&request.key));
    let order: Vec<u64> = first
        .map(|request| {
            let body: serde_json::Value = serde_json::from_slice(request.body.as_ref().unwrap()).unwrap();
            body["properties"]["seq"].as_u64().unwrap()
        })
        .collect();
    assert!(order.is_sorted(), "first attempts in the order of arrival: {order:?}");
}

/// A box that was stopped for a while (suspended) goes on where it was: its wait is over, nothing else has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_box_that_was_suspended_goes_on() {
    use rustix::process::{Pid, Signal, kill_process};
    let receiver = receiver::ok().await;
    receiver.set_power(Power::Hanging);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let process = Process::start(&receiver.url(), &data);
    post(&process, 0..50).await;
    let client = process.client();
    wait_status(&client, SOON, |status| status.endpoints[0].in_flight > 0).await;
    let pid = Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    receiver.set_power(Power::Down); // its connections die while it sleeps
    let _ = tokio::time::timeout(Duration::from_secs(3), receiver.wait(|totals| totals.distinct > 0)).await;
    receiver.set_power(Power::Up);
    kill_process(pid, Signal::CONT).unwrap();
    let end = wait_status(&client, SOON, |status| whole(status, 0)).await;
    assert_eq!(end.ledger.delivered, 50);
    assert!(process.terminate().success());
}
