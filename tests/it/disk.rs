//! The real binary on a file system of 64 MiB that gets full: refused in words, never accepted and lost; deliveries go on;
//! it starts while full; the intake opens again by itself. Needs to mount a tmpfs, which takes root.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use waypost::client::{EndpointAction, EventMedia, PostOptions, Posted};
use waypost::wire::IngestStatus;

use crate::support::process::{Process, wait_status};
use crate::support::receiver;

/// A mounted tmpfs.
struct Small {
    at: PathBuf,
}

impl Small {
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self { at: at.to_owned() })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

fn feature(number: u64) -> Bytes {
    Bytes::from(format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},"properties":{{"device_id":"d","seq":{number},"pad":"{}"}}}}"#,
        "x".repeat(100_000)
    ))
}

/// Posts; the key of what was accepted, or how long to wait.
async fn post(process: &Process, number: u64) -> Result<String, Duration> {
    let options = PostOptions::default();
    match process.client().post_events(feature(number), EventMedia::Document, &options).await.unwrap() {
        Posted::Done(response) => {
            assert_eq!(response.results[0].status, IngestStatus::Accepted);
            Ok(response.results[0].key.clone().unwrap())
        }
        Posted::Later { retry_after, problem } => {
            assert!([503, 507].contains(&problem.status), "{problem:?}");
            Err(retry_after)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_system_refuses_delivers_starts_and_opens_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(&dir.path().join("small")) else {
        println!("skipped: no tmpfs can be mounted here");
        return;
    };
    let (data, config) = (small.at.join("data"), dir.path().join("waypost.toml"));
    let receiver = receiver::always(503).await;
    let text = format!(
        "data_dir = \"{}\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n[store]\ndisk_free_reserve = \"1MiB\"\n[[endpoint]]\nname = \"default\"\nurl = \"{}\"\n",
        data.display(),
        receiver.url()
    );
    std::fs::write(&config, text).unwrap();
    let process = Process::start_config(&config, &data);
    let mut accepted = BTreeSet::new();
    let mut number = 0;
    while let Ok(key) = post(&process, number).await {
        accepted.insert(key);
        number += 1;
        assert!(number < 1_000, "64 MiB never got full");
    }
    assert!(accepted.len() > 100, "only {} of 100 KB fitted in", accepted.len());
    let mut refused = 0;
    for more in 0..200 {
        match post(&process, 10_000 + more).await {
            // A checkpoint may win a little room; then it is accepted in earnest.
            Ok(key) => drop(accepted.insert(key)),
            Err(wait) => {
                assert!(wait >= Duration::from_secs(1), "Retry-After {wait:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "only {refused} of 200 refused");
    process.kill();
    let begun = tokio::time::Instant::now();
    let process = Process::start_config(&config, &data);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let status = process.client().status().await.unwrap();
    assert_eq!((status.ledger.pending, status.ledger.lost), (accepted.len() as u64, 0));
    receiver::set_ok(&receiver);
    process.client().endpoint("default", EndpointAction::Resume).await.unwrap();
    wait_status(&process.client(), Duration::from_secs(90), |status| status.ledger.pending == 0).await;
    let drained = tokio::time::Instant::now();
    let key = loop {
        match post(&process, 30_000).await {
            Ok(key) => break key,
            Err(_) => assert!(drained.elapsed() < Duration::from_secs(60), "still refused"),
        }
        tokio::task::yield_now().await;
    };
    println!("{} events fitted in; open again {:?} after the drain", accepted.len(), drained.elapsed());
    accepted.insert(key);
    receiver.wait_distinct(accepted.len() as u64).await;
    let delivered = receiver::delivered(&receiver);
    assert_eq!(accepted.difference(&delivered).count(), 0);
    assert!(process.terminate().success());
}
