//! Damaged, missing and foreign files: the store always starts, sets bad bytes aside, counts what is gone, and gives
//! out everything else byte for byte.

use std::fs;
use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

/// Events of the store that is damaged.
const EVENTS: u64 = 240;
const DELIVERED: u64 = 40;

/// A store in the middle of its work, killed.
async fn killed_store(dir: &Path) {
    let (outbox, _, hand) = opened(dir, small());
    for number in 0..EVENTS {
        let mut one = event(number, 300, &[A, B]);
        if number % 20 == 0 {
            (one.deliver, one.dead) = (vec![A], vec![(B, reason("at intake"))]);
        }
        outbox.append(vec![one]).await.unwrap();
    }
    for seq in 1..=DELIVERED {
        outbox.settle(A, Seq(seq), delivered()).await.unwrap();
    }
    // Idle for a moment: what was written is synced, and the log says so.
    let syncs = outbox.stats().syncs;
    hand.advance(Duration::from_secs(1));
    while outbox.stats().syncs == syncs {
        tokio::task::yield_now().await;
    }
    outbox.crash().await;
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.metadata().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Checks a store after damage; gives (lost, quarantined bytes).
async fn check(dir: &Path, what: &str) -> (u64, u64) {
    let (outbox, recovery, _hand) = opened(dir, small());
    for number in 0..10 {
        let appended = outbox.append(vec![event(10_000 + number, 50, &[A, B])]).await.unwrap();
        assert!(matches!(appended[0], Appended::Accepted { .. }), "{what}");
    }
    let mut present = [0, 0];
    for (at, id) in [A, B].into_iter().enumerate() {
        let pending = outbox.pending(id).await;
        for &seq in &pending {
            let stored = outbox.event(Seq(seq)).await.unwrap().unwrap();
            let number: u64 = stored.head.key.as_str().trim_start_matches("idem:v2:").parse().unwrap();
            let bytes = if number >= 10_000 { 50 } else { 300 };
            assert_eq!(stored.body, event(number, bytes, &[]).body, "{what}");
        }
        let filter = DeadFilter { endpoint: Some(id), ..DeadFilter::default() };
        let dead = outbox.dead_letters(filter, None, 4_000).await.unwrap();
        let ledger = outbox.ledger(id);
        assert!(ledger.balanced(), "{what}: {ledger:?}");
        assert_eq!(ledger.pending, pending.len() as u64, "{what}");
        assert_eq!(ledger.dead, dead.letters.len() as u64, "{what}");
        present[at] = ledger.pending + ledger.dead + ledger.delivered;
    }
    let lost: u64 = [A, B].iter().map(|&id| outbox.ledger(id).lost).sum();
    let gone = 2 * (EVENTS + 10) - present[0] - present[1];
    assert_eq!(lost, gone, "{what}: {recovery:?}");
    let stats = outbox.stats();
    if lost > 0 || stats.quarantined_bytes > 0 {
        assert!(!stats.warnings.is_empty(), "{what}");
    }
    outbox.close().await;
    // And a second start finds nothing new.
    let (outbox, recovery, _hand) = opened(dir, small());
    assert_eq!((recovery.lost, recovery.clean), (0, true), "{what}: {recovery:?}");
    let after: u64 = [A, B].iter().map(|&id| outbox.ledger(id).lost).sum();
    assert_eq!(after, lost, "{what}");
    outbox.close().await;
    (lost, stats.quarantined_bytes)
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(dir).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

struct Bench {
    whole: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let whole = tempfile::tempdir().unwrap();
        killed_store(whole.path()).await;
        Self { whole }
    }

    async fn damaged(&self, what: &str, damage: impl FnOnce(&Path)) -> (u64, u64) {
        let dir = tempfile::tempdir().unwrap();
        copy(self.whole.path(), dir.path());
        let sound = verify(dir.path()).unwrap();
        damage(dir.path());
        let before = contents(dir.path());
        let found = verify(dir.path()).unwrap();
        assert!(contents(dir.path()) == before, "{what}: verify changed something");
        let new = found.damages.iter().any(|one| !sound.damages.contains(one));
        let result = check(dir.path(), what).await;
        // A cut that takes only spare room hurts nothing, and nothing is found.
        let hurts = result != (0, 0) || what.starts_with("FORMAT") || what.starts_with("sled/db");
        assert!(new || !hurts, "{what}: verify did not find it: {:?}", found.damages);
        println!("{what}: lost {}, set aside {} bytes", result.0, result.1);
        result
    }

    fn segments(&self) -> Vec<String> {
        let log = self.whole.path().join("log");
        files(&log)
            .iter()
            .map(|path| path.strip_prefix(self.whole.path()).unwrap().display().to_string())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_may_be_emptied_or_deleted() {
    let bench = Bench::new().await;
    assert_eq!(bench.damaged("nothing", |_| {}).await, (0, 0));
    for path in files(bench.whole.path()) {
        let name = path.strip_prefix(bench.whole.path()).unwrap().display().to_string();
        let (emptied, _) =
            bench.damaged(&format!("{name} emptied"), |dir| fs::write(dir.join(&name), b"").unwrap()).await;
        let (deleted, _) =
            bench.damaged(&format!("{name} deleted"), |dir| fs::remove_file(dir.join(&name)).unwrap()).await;
        assert_eq!(emptied > 0, name.starts_with("log/") && deleted > 0, "{name}");
    }
    let (lost, _) = bench.damaged("sled deleted", |dir| fs::remove_dir_all(dir.join("sled")).unwrap()).await;
    assert_eq!(lost, 0);
    let (lost, aside) = bench
        .damaged("sled is rubbish", |dir| fs::write(dir.join("sled/db"), vec![0x5A; 100_000]).unwrap())
        .await;
    assert!(lost == 0 && aside > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flips_zeros_and_cuts_hurt_only_what_they_touch() {
    let bench = Bench::new().await;
    let segments = bench.segments();
    let mut rng = Pcg64::seed_from_u64(7);
    for number in 0..24 {
        let name = &segments[rng.random_range(0..segments.len())];
        let at = rng.random_range(0.0..1.0);
        let bit = rng.random_range(0..8);
        let (lost, _) = bench
            .damaged(&format!("flip {number} in {name}"), |dir| {
                let mut bytes = fs::read(dir.join(name)).unwrap();
                let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
                bytes[(used as f64 * at) as usize] ^= 1 << bit;
                fs::write(dir.join(name), bytes).unwrap();
            })
            .await;
        assert!(lost <= 2, "one flip, one record, two deliveries");
    }
    let newest = segments.last().unwrap();
    for cut in [1, 7, 4_096] {
        bench
            .damaged(&format!("{newest} shorter by {cut}"), |dir| {
                let file = fs::OpenOptions::new().write(true).open(dir.join(newest)).unwrap();
                let bytes = file.metadata().unwrap().len();
                file.set_len(bytes.saturating_sub(cut)).unwrap();
            })
            .await;
    }
    for name in &segments {
        let (lost, _) = bench
            .damaged(&format!("4 KiB of {name} zeroed"), |dir| {
                let mut bytes = fs::read(dir.join(name)).unwrap();
                let to = bytes.len().min(6_096);
                bytes[2_000.min(to)..to].fill(0);
                fs::write(dir.join(name), bytes).unwrap();
            })
            .await;
        assert!(lost <= 24, "{name}: {lost}");
    }
    bench
        .damaged("a rubbish segment", |dir| {
            fs::write(dir.join("log/00000999.seg"), vec![0xEE; 9_000]).unwrap();
        })
        .await;
}

#[tokio::test]
async fn a_newer_format_is_refused_and_no_byte_changes() {
    let dir = tempfile::tempdir().unwrap();
    killed_store(dir.path()).await;
    let format = dir.path().join("FORMAT");
    let newer = fs::read_to_string(&format).unwrap().replace("format 1", "format 2");
    fs::write(&format, newer).unwrap();
    let before: Vec<_> = files(dir.path()).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    let refused = Outbox::open(config(dir.path()), Clock::manual().0).err().unwrap();
    assert!(matches!(refused, OpenError::NewerFormat { found: 2, known: 1, .. }), "{refused}");
    let after: Vec<_> = files(dir.path()).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    assert!(before == after);
}

#[tokio::test]
async fn a_path_that_is_no_directory_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plain");
    fs::write(&file, b"hello").unwrap();
    for path in [file.clone(), file.join("below")] {
        let refused = Outbox::open(config(&path), Clock::manual().0).err().unwrap();
        assert!(matches!(refused, OpenError::NotADirectory { .. }), "{refused}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"hello");
}

#[tokio::test]
async fn damage_found_when_a_body_is_read_is_counted_then() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(dir.path(), small());
    for number in 0..100 {
        outbox.append(vec![event(number, 300, &[A])]).await.unwrap();
    }
    outbox.close().await;
    let first = dir.path().join("log/00000001.seg");
    let mut bytes = fs::read(&first).unwrap();
    bytes[3_000] ^= 1;
    fs::write(&first, bytes).unwrap();
    let (outbox, recovery, _hand) = opened(dir.path(), small());
    assert!(recovery.clean, "full segments are not read at a clean start");
    assert_eq!(outbox.pending(A).await.len(), 99);
    let ledger = outbox.ledger(A);
    assert_eq!((ledger.lost, ledger.pending), (1, 99));
    assert!(ledger.balanced());
    assert!(outbox.stats().warnings.iter().any(|text| text.contains("damaged")));
    outbox.close().await;
}

/// The symptom: "left: 210, right: 200", the ledger had ten deliveries pending that the page before had left out as
/// damaged. A page that leaves out damage is answered after the ledger has counted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_never_shows_less_than_the_ledger_counts_as_pending() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(dir.path(), small());
    for number in 0..400 {
        outbox.append(vec![event(number, 300, &[A, B])]).await.unwrap();
    }
    outbox.close().await;
    for path in files(&dir.path().join("log")) {
        let mut bytes = fs::read(&path).unwrap();
        let to = bytes.len().min(6_096);
        bytes[2_000.min(to)..to].fill(0);
        fs::write(path, bytes).unwrap();
    }
    let (outbox, _, _hand) = opened(dir.path(), small());
    for id in [A, B] {
        let mut after = Seq(0);
        loop {
            let page = outbox.pending_page(id, after, 7).await.unwrap();
            let (seen, ledger) = (page.deliveries.len() as u64, outbox.ledger(id));
            let before = outbox.inner.shared.state().endpoints[&id]
                .pending
                .range(Seq(after.0 + 1), Seq(page.scanned_to.0 + 1))
                .count();
            assert_eq!(seen, before as u64, "{ledger:?}");
            assert!(ledger.balanced());
            after = page.scanned_to;
            if page.end {
                break;
            }
        }
        assert!(outbox.ledger(id).lost > 50);
    }
    outbox.close().await;
}

/// sled's own threads may hold its lock for a moment after the last handle is gone; a start then waits, and does not
/// take a healthy index for a damaged one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_still_locked_by_what_went_before_is_not_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    killed_store(dir.path()).await;
    let held = fs::File::open(dir.path().join("sled/db")).unwrap();
    held.lock().unwrap();
    let path = dir.path().to_owned();
    let (sender, receiver) = std::sync::mpsc::channel();
    let opening = std::thread::spawn(move || sender.send(opened(&path, small())).unwrap());
    assert!(
        receiver.recv_timeout(Duration::from_millis(200)).is_err(),
        "the start did not wait for the lock"
    );
    drop(held);
    let (outbox, recovery, _hand) = receiver.recv().unwrap();
    opening.join().unwrap();
    assert!(!recovery.rebuilt && recovery.warnings.is_empty(), "{recovery:?}");
    outbox.close().await;
}

/// A store on a disk in memory with 100 events of `A` in full segments, opened anew so that nothing is cached.
async fn reopened(dir: &Path, disk: &super::memory_disk::MemoryDisk) -> Outbox {
    let open = || {
        let disk = Arc::new(disk.clone());
        recover::open(config(dir), Clock::manual().0, small(), Some(disk)).unwrap().0
    };
    let outbox = open();
    for number in 0..100 {
        outbox.append(vec![event(number, 300, &[A])]).await.unwrap();
    }
    outbox.close().await;
    open()
}

/// "Too many open files" says nothing of the bytes: the answer is an error, and later everything is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_opened_now_loses_nothing() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), super::memory_disk::MemoryDisk::new());
    let outbox = reopened(dir.path(), &disk).await;
    disk.power.open_error.store(24, Ordering::SeqCst);
    let refused = outbox.pending_page(A, Seq(0), 100).await.unwrap_err();
    assert!(matches!(refused, StoreError::Io(_)), "{refused}");
    assert!(outbox.event(Seq(50)).await.is_err());
    assert_eq!(outbox.ledger(A).lost, 0);
    disk.power.open_error.store(0, Ordering::SeqCst);
    assert_eq!(outbox.pending(A).await.len(), 100);
    assert_eq!(outbox.ledger(A).lost, 0);
    outbox.close().await;
}

/// A bad sector costs the events that stand on it, when it is met in a page and when it is met in a replay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_sector_takes_no_neighbours_along() {
    for replayed in [false, true] {
        let (dir, disk) = (tempfile::tempdir().unwrap(), super::memory_disk::MemoryDisk::new());
        let outbox = reopened(dir.path(), &disk).await;
        if replayed {
            outbox.crash().await;
            std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
        }
        disk.power.bad_sector.store((1 << 32) + 12, Ordering::SeqCst);
        let outbox = if replayed {
            let disk = Arc::new(disk.clone());
            recover::open(config(dir.path()), Clock::manual().0, small(), Some(disk)).unwrap().0
        } else {
            outbox
        };
        let present = outbox.pending(A).await.len() as u64;
        let ledger = outbox.ledger(A);
        assert_eq!((ledger.pending, ledger.lost), (present, 100 - present), "replayed {replayed}");
        // Of a replay the 4 KiB around the sector are given up.
        assert!(
            (1..=if replayed { 12 } else { 3 }).contains(&ledger.lost),
            "replayed {replayed}: {ledger:?}"
        );
        assert!(ledger.balanced());
        outbox.close().await;
    }
}

/// The newest segment is all that knows of the newest events. When it is destroyed, the witness tells how many they were.
#[tokio::test]
async fn a_destroyed_end_of_the_log_is_counted_to_the_last_event() {
    let whole = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(whole.path(), small());
    for number in 0..EVENTS {
        let endpoints: &[EndpointId] = if number % 3 == 0 { &[A] } else { &[A, B] };
        outbox.append(vec![event(number, 300, endpoints)]).await.unwrap();
    }
    outbox.crash().await;
    let newest = files(&whole.path().join("log")).pop().unwrap();
    let newest = newest.strip_prefix(whole.path()).unwrap();
    for what in ["emptied", "shortened", "deleted"] {
        let dir = tempfile::tempdir().unwrap();
        copy(whole.path(), dir.path());
        let file = dir.path().join(newest);
        match what {
            "emptied" => fs::write(&file, []).unwrap(),
            "shortened" => fs::File::options().write(true).open(&file).unwrap().set_len(700).unwrap(),
            _ => fs::remove_file(&file).unwrap(),
        }
        assert!(!verify(dir.path()).unwrap().is_sound(), "{what}: verify found nothing");
        let (outbox, recovery, _hand) = opened(dir.path(), small());
        let (a, b) = (outbox.ledger(A), outbox.ledger(B));
        assert!(a.balanced() && b.balanced(), "{what}: {a:?} {b:?}");
        assert_eq!((a.accepted, b.accepted), (EVENTS, EVENTS - EVENTS.div_ceil(3)), "{what}");
        assert_eq!(recovery.lost, a.lost + b.lost, "{what}: {recovery:?} {a:?} {b:?}");
        assert_eq!(a.lost, EVENTS - outbox.pending(A).await.len() as u64, "{what}");
        assert!(a.lost > 0 && b.lost > 0, "{what}");
        // New events do not take the numbers of those that are gone.
        outbox.append(vec![event(10_000, 50, &[A])]).await.unwrap();
        assert_eq!(outbox.pending(A).await.last(), Some(&(EVENTS + 1)), "{what}");
        outbox.close().await;
        let (outbox, recovery, _hand) = opened(dir.path(), small());
        assert_eq!(
            (recovery.lost, outbox.ledger(A).lost),
            (0, a.lost),
            "{what}: a second start adds nothing"
        );
        outbox.close().await;
    }
}
