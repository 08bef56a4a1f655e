//! Durable before 2xx, shown on the real binary with strace: between the write of an event's bytes and the 202 that
//! answers for it stands a finished fdatasync of the segment that holds them.

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use waypost::client::{EventMedia, PostOptions, Posted};

use crate::support::process::{Process, wait_status, waypost};
use crate::support::receiver;

/// One system call of the trace, with the times of its start and end.
#[derive(Debug)]
struct Call {
    start: f64,
    end: f64,
    name: String,
    text: String,
}

/// Reads `strace -f -ttt -T -y -s …`: resumed calls are joined with their beginning.
fn calls(trace: &str) -> Vec<Call> {
    let mut unfinished: HashMap<String, (f64, String)> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        // Short process ids are padded.
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let Some((at, rest)) = rest.trim_start().split_once(' ') else { continue };
        let Ok(at) = at.parse::<f64>() else { continue };
        if let Some(beginning) = rest.strip_suffix("<unfinished ...>") {
            unfinished.insert(pid.to_owned(), (at, beginning.to_owned()));
            continue;
        }
        let (start, text) = if rest.starts_with("<...") {
            let Some((start, beginning)) = unfinished.remove(pid) else { continue };
            (start, beginning + rest.split_once('>').map_or("", |(_, tail)| tail))
        } else {
            (at, rest.to_owned())
        };
        let took: f64 =
            text.rsplit('<').next().and_then(|tail| tail.trim_end_matches('>').parse().ok()).unwrap_or(0.0);
        // A resumed line carries the time of its end; a whole one that of its start.
        let end = if start == at { at + took } else { at };
        let name = text.split('(').next().unwrap_or_default().to_owned();
        calls.push(Call { start, end, name, text });
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_2xx_is_preceded_by_a_finished_fdatasync_of_its_bytes() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: strace is not on this machine");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let trace = dir.path().join("trace");
    let receiver = receiver::ok().await;
    let mut command = Command::new("strace");
    command
        .args([
            "-f",
            "-ttt",
            "-T",
            "-y",
            "-s",
            "65536",
            "-e",
            "trace=pwrite64,pwritev,write,writev,sendto,sendmsg,fdatasync,fsync",
            "-o",
        ])
        .arg(&trace)
        .arg(waypost().get_program())
        .args(["run", "--to", &receiver.url(), "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data);
    let process = Process::spawn(command, &data);
    let mut posts = tokio::task::JoinSet::new();
    for writer in 0..4u32 {
        let client = process.client();
        posts.spawn(async move {
            for number in 0..10u32 {
                // The mark stands in the body and, as the event's id would not, in the answer: the producer's reason to
                // believe. The answer is told apart by the connection's order: one request at a time per writer.
                let body = Bytes::from(format!(
                    r#"{{"type":"Feature","id":"mark-{writer}-{number}-end","geometry":null,"properties":{{"device_id":"d{writer}","seq":{number}}}}}"#
                ));
                let posted = client.post_events(body, EventMedia::Document, &PostOptions::default()).await.unwrap();
                let Posted::Done(response) = posted else { panic!("not accepted") };
                assert_eq!(response.accepted, 1);
            }
        });
    }
    posts.join_all().await;
    let keys: Vec<(String, String)> = {
        receiver.wait_distinct(40).await;
        let seen = receiver.book().seen();
        seen.iter().map(|request| (request.key.clone(), request.id.clone())).collect()
    };
    assert_eq!(keys.len(), 40);
    wait_status(&process.client(), Duration::from_secs(10), |status| status.ledger.delivered == 40).await;
    process.terminate_child(); // strace ends with its child and then has written everything
    let text = String::from_utf8_lossy(&std::fs::read(&trace).unwrap()).into_owned();
    let calls = calls(&text);
    let mut proven = 0;
    for (key, _) in &keys {
        // The 202 carries the key; so does the log record. Both are found by it.
        let answer = calls.iter().find(|call| {
            ["write", "writev", "sendto", "sendmsg"].contains(&call.name.as_str())
                && call.text.contains("202 Accepted")
                && call.text.contains(key.as_str())
        });
        let Some(answer) = answer else { panic!("no 202 for {key} in the trace") };
        let written = calls.iter().find(|call| {
            call.name.starts_with("pwrite") && call.text.contains(".seg>") && call.text.contains(key.as_str())
        });
        let Some(written) = written else { panic!("no write of {key} to the log in the trace") };
        let synced = calls.iter().any(|call| {
            (call.name == "fdatasync" || call.name == "fsync")
                && call.text.contains(".seg>")
                && call.text.contains("= 0")
                && call.start >= written.start
                && call.end <= answer.end
                && call.end >= written.end
        });
        assert!(synced, "the 202 for {key} was sent before its bytes were synced");
        proven += 1;
    }
    assert_eq!(proven, 40);
}
