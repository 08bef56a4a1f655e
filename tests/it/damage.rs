//! The real binary on damaged copies of a store that was killed at work: it starts, counts what is gone, keeps the bad
//! bytes, delivers everything else and takes on new events.
//!
//! The long form: `WAYPOST_DAMAGES=40 WAYPOST_BIN=target/release/waypost cargo test --test it -- damage --nocapture`

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tokio::time::Instant;
use waypost::client::{AdminClient, EventMedia, PostOptions, Posted};
use waypost::receiver::Receiver;

use crate::support::appliance::http;
use crate::support::process::{Process, run, wait_status};
use crate::support::receiver;

/// From being started on a damaged store to ready with the new events delivered.
const START_MAX: Duration = Duration::from_secs(30);
const NEW: u64 = 10;

/// Variants of the short form: the newest segment's end, then whole files.
const SHORT: [usize; 6] = [0, 1, 3, 8, 11, 17];

/// Numbers of the variants to try.
fn variants() -> Vec<usize> {
    let many = std::env::var("WAYPOST_DAMAGES").ok().and_then(|text| text.parse().ok());
    many.map_or(SHORT.to_vec(), |many| (0..many).collect())
}

/// Events of the store: 10,000 in the long form.
fn events() -> u64 {
    if variants().len() > SHORT.len() { 10_000 } else { 1_000 }
}

fn seed() -> u64 {
    let seed = std::env::var("WAYPOST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("replay with WAYPOST_SEED={seed}");
    seed
}

/// Posts events and gives the keys of those accepted; ends early when the appliance is gone.
async fn post(client: &AdminClient, numbers: std::ops::Range<u64>) -> BTreeSet<String> {
    let pad = "x".repeat(900);
    let line = |number| {
        format!(
            "{{\"type\":\"Feature\",\"geometry\":{{\"type\":\"Point\",\"coordinates\":[13.4,52.5]}},\"properties\":{{\"device_id\":\"d\",\"seq\":{number},\"pad\":\"{pad}\"}}}}\n"
        )
    };
    let mut keys = BTreeSet::new();
    let numbers: Vec<u64> = numbers.collect();
    for part in numbers.chunks(50) {
        let body = Bytes::from(part.iter().map(|&number| line(number)).collect::<String>());
        let Ok(Posted::Done(response)) =
            client.post_events(body, EventMedia::Ndjson, &PostOptions::default()).await
        else {
            break;
        };
        keys.extend(response.results.into_iter().filter_map(|result| result.key));
    }
    keys
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(dir).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// One way to damage a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Shorten(u64),
    /// One bit in the last 64 KiB of what is written.
    Flip,
    Zero,
    Empty,
    Delete,
    /// A further segment of rubbish.
    Rubbish,
}

/// Bytes of a segment that hold records; the rest is room made in advance.
fn written(file: &Path) -> u64 {
    let bytes = fs::read(file).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
}

fn hurt(file: &Path, damage: Damage, rng: &mut Pcg64) {
    let open = || fs::OpenOptions::new().write(true).read(true).open(file).unwrap();
    let size = written(file);
    match damage {
        Damage::Shorten(bytes) => open().set_len(size.saturating_sub(bytes)).unwrap(),
        Damage::Flip if size > 0 => {
            let at = size - 1 - rng.random_range(0..size.min(65_536));
            let mut byte = [0];
            open().read_exact_at(&mut byte, at).unwrap();
            open().write_all_at(&[byte[0] ^ (1 << rng.random_range(0..8))], at).unwrap();
        }
        Damage::Zero => {
            let at = rng.random_range(0..size.max(1));
            open().write_all_at(&vec![0; 4096.min(size - at) as usize], at).unwrap();
        }
        Damage::Flip | Damage::Empty => open().set_len(0).unwrap(),
        Damage::Delete => fs::remove_file(file).unwrap(),
        Damage::Rubbish => {
            let rubbish: Vec<u8> = (0..100_000).map(|_| rng.random()).collect();
            let name = file.file_name().unwrap().to_str().unwrap().replace("000", "009");
            fs::write(file.with_file_name(name), rubbish).unwrap();
        }
    }
}

/// The newest log segment of `store`, as a path in a copy of it.
fn newest_segment(store: &Path, copy: &Path) -> PathBuf {
    let newest = files(&store.join("log")).pop().unwrap();
    copy.join(newest.strip_prefix(store).unwrap())
}

/// Which damage a variant does to which file: first all that the newest segment can suffer, then each file in turn.
fn variant(number: usize, dir: &Path) -> (PathBuf, Damage) {
    let mut all = files(dir);
    all.reverse(); // sled's and the log's come first
    let tail = [
        Damage::Shorten(1),
        Damage::Flip,
        Damage::Shorten(4096),
        Damage::Zero,
        Damage::Shorten(7),
        Damage::Rubbish,
        Damage::Flip,
    ];
    if let Some(damage) = tail.get(number) {
        return (newest_segment(dir, dir), *damage);
    }
    let rest = number - tail.len();
    let damages = [Damage::Empty, Damage::Delete, Damage::Zero, Damage::Flip];
    let file = &all[(rest / damages.len()) % all.len()];
    (file.clone(), damages[rest % damages.len()])
}

struct Whole {
    dir: tempfile::TempDir,
    accepted: BTreeSet<String>,
}

/// A store with a backlog, killed while events came in.
async fn killed_store(receiver: &Receiver) -> Whole {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let process = Process::start(&receiver.url(), &data);
    let mut accepted = post(&process.client(), 0..events()).await;
    let client = process.client();
    let more = tokio::spawn(async move { post(&client, 1_000_000..1_000_000 + events()).await });
    wait_status(&process.client(), Duration::from_secs(30), |status| status.ledger.accepted > events() + 100)
        .await;
    process.kill();
    accepted.extend(more.await.unwrap());
    let _ = fs::remove_file(data.join("admin.sock"));
    Whole { dir, accepted }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_store_starts_counts_what_is_gone_and_delivers_the_rest() {
    let mut rng = Pcg64::seed_from_u64(seed());
    let receiver = receiver::always(503).await;
    let whole = killed_store(&receiver).await;
    let mut slowest = Duration::ZERO;
    let (mut lost_somewhere, mut worst) = (0, 0);
    for number in variants() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        copy(&whole.dir.path().join("data"), &data);
        let (file, damage) = variant(number, &data);
        hurt(&file, damage, &mut rng);
        let what = format!("{number}: {damage:?} {}", file.strip_prefix(&data).unwrap().display());
        let before = contents(&data);
        let verified = run(&["store", "verify", "--data-dir", data.to_str().unwrap()]);
        assert!(contents(&data) == before, "{what}: verify changed something");
        let receiver = receiver::ok().await;
        let begun = Instant::now();
        let process = Process::start(&receiver.url(), &data);
        let client = process.client();
        let new = post(&client, 2_000_000..2_000_000 + NEW).await;
        assert_eq!(new.len() as u64, NEW, "{what}");
        let delivered = |status: &waypost::wire::StatusView| status.ledger.pending == 0;
        let status = wait_status(&client, START_MAX, delivered).await;
        slowest = slowest.max(begun.elapsed());
        let arrived = receiver::delivered(&receiver);
        assert!(new.is_subset(&arrived), "{what}: new events are missing");
        let missing = whole.accepted.difference(&arrived).count() as u64;
        assert!(status.ledger.balanced, "{what}: {:?}", status.ledger);
        // The end of the newest segment looks like one that was being written when the power went: what is torn there
        // may or may not have been acknowledged. It is set aside and said; only what is known to be gone is counted.
        let torn = file == newest_segment(&whole.dir.path().join("data"), &data);
        assert!(
            status.ledger.lost >= missing || torn && missing <= 50 && status.store.quarantined_bytes > 0,
            "{what}: {missing} missing, {} counted",
            status.ledger.lost
        );
        if missing > 0 || status.ledger.lost > 0 {
            lost_somewhere += 1;
            assert!(!verified.status.success(), "{what}: verify found nothing");
            assert!(!status.warnings.is_empty(), "{what}: no warning");
            let get = |path: &str| http().get(format!("http://{}{path}", process.address)).send();
            let metrics = get("/metrics").await.unwrap().text().await.unwrap();
            let line = format!("state=\"lost\"}} {}", status.ledger.lost);
            assert!(metrics.contains(&line), "{what}: no metric {line}");
            let ready = get("/readyz").await.unwrap();
            assert!(ready.status().is_success(), "{what}");
            let text = ready.text().await.unwrap();
            assert!(text.contains(&format!("lost to damage: {}", status.ledger.lost)), "{what}: {text}");
        }
        worst = worst.max(status.ledger.lost);
        println!("{what}: lost {}, set aside {} bytes", status.ledger.lost, status.store.quarantined_bytes);
        assert!(process.terminate().success(), "{what}");
    }
    println!(
        "{} variants, {lost_somewhere} with loss, {worst} at most; slowest {slowest:?}",
        variants().len()
    );
}
