//! How the real binary ends: in order as the first process of a container, and with a word when the disk hangs.

use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;

use crate::support::appliance::http;
use crate::support::process::{Process, waypost};
use crate::support::receiver;

fn feature(seq: u64) -> String {
    format!(r#"{{"type":"Feature","geometry":null,"properties":{{"device_id":"d","seq":{seq}}}}}"#)
}

/// Starts the binary behind another program's command line.
fn behind(program: &str, args: &[&str], to: &str, data: &std::path::Path) -> Process {
    let mut command = Command::new(program);
    command.args(args).arg(waypost().get_program());
    command.args(["run", "--to", to, "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command.env_remove("WAYPOST_LOG").env_remove("WAYPOST_TOKEN");
    Process::spawn(command, data)
}

/// Fault 29: the kernel keeps signals without a handler from process 1, so an orderly stop there is one of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_process_1_of_a_container_it_stops_in_order() {
    let isolate = ["--pid", "--fork", "--mount-proc"];
    let can = Command::new("unshare")
        .args(isolate)
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success());
    if !can {
        println!("skipped: no process namespace can be made here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = receiver::ok().await;
    for round in 0..2 {
        let process = behind("unshare", &isolate, &receiver.url(), &data);
        let url = format!("http://{}/v1/events", process.address);
        assert_eq!(http().post(url).body(feature(round)).send().await.unwrap().status(), 202);
        receiver.wait_distinct(round + 1).await;
        let begun = Instant::now();
        let status = process.terminate_child();
        assert!(status.success(), "{status}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    let log = std::fs::read_to_string(data.with_extension("stderr")).unwrap();
    assert!(log.contains("clean=true"), "the second start found no clean stop: {log}");
}

/// Fault 51: a store that does not come back from a sync is no appliance, whatever the intake would still say. strace holds
/// the sync up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_hangs_ends_the_process_with_a_clear_word() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: strace is not on this machine");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, trace) = (dir.path().join("data"), dir.path().join("trace"));
    let receiver = receiver::ok().await;
    // The first syncs belong to the start; each thread counts its own.
    let hold = [
        "-f",
        "-o",
        trace.to_str().unwrap(),
        "-e",
        "trace=fdatasync",
        "-e",
        "inject=fdatasync:delay_enter=60s:when=6+",
    ];
    let process = behind("strace", &hold, &receiver.url(), &data);
    let url = format!("http://{}/v1/events", process.address);
    let begun = Instant::now();
    let posts = tokio::spawn(async move {
        let client = http();
        let mut accepted = 0;
        for seq in 0..100 {
            match client.post(&url).body(feature(seq)).send().await {
                Ok(answer) if answer.status() == 202 => accepted += 1,
                _ => break,
            }
        }
        accepted
    });
    // strace keeps waiting for the thread that it holds, so its own end tells nothing; what it has written does.
    let ended = || std::fs::read_to_string(&trace).unwrap_or_default().contains("+++ exited with 1 +++");
    while !ended() {
        assert!(begun.elapsed() < Duration::from_secs(40), "it goes on though the disk hangs");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("ended after {:?}", begun.elapsed());
    process.kill(); // which also lets go of the connections
    let accepted = posts.await.unwrap();
    assert!(accepted < 100, "no sync was held up");
    let log = std::fs::read_to_string(data.with_extension("stderr")).unwrap();
    assert!(log.contains("the disk has not answered for"), "{log}");
    // A start after it has everything.
    let process = Process::start(&receiver.url(), &data);
    receiver.wait_distinct(accepted).await;
    assert!(process.terminate().success());
}
