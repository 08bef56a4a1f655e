//! Stores written by released versions stay readable: fixtures are only added, never written again.
//!
//! `WAYPOST_WRITE_FIXTURE=tests/fixtures/store-vN cargo test --lib store::tests::fixture` writes one for a new format.

use std::fs;

use super::damage::copy;
use super::*;

const EVENTS: u64 = 60;

async fn written(dir: &Path) {
    let (outbox, _) = Outbox::open(config(dir), Clock::manual().0).unwrap();
    for number in 0..EVENTS {
        let mut one = event(number, 120, &[A, B]);
        if number % 20 == 0 {
            (one.deliver, one.dead) = (vec![A], vec![(B, reason("at intake"))]);
        }
        outbox.append(vec![one]).await.unwrap();
    }
    for seq in 1..=30 {
        outbox.settle(A, Seq(seq), delivered()).await.unwrap();
    }
    let progress = Progress { attempts: 2, charged: 2, ..Progress::default() };
    let due = StoreTime(777);
    outbox.settle(A, Seq(31), Settlement::RetryAt { due, progress: progress.clone() }).await.unwrap();
    outbox.settle(A, Seq(32), Settlement::Dead { reason: reason("no"), progress }).await.unwrap();
    let record = EndpointRecord { paused: true, disabled: false, budget_tokens: 12.5 };
    outbox.set_endpoint(B, record).await.unwrap();
    outbox.close().await;
    for left_over in ["LOCK", "quarantine"] {
        let path = dir.join(left_over);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

async fn check(dir: &Path, what: &str) {
    let (outbox, recovery) = Outbox::open(config(dir), Clock::manual().0).unwrap();
    assert_eq!((recovery.lost, recovery.quarantined_bytes), (0, 0), "{what}: {recovery:?}");
    let (a, b) = (outbox.ledger(A), outbox.ledger(B));
    assert_eq!((a.accepted, a.delivered, a.pending, a.dead), (EVENTS, 30, 29, 1), "{what}");
    assert_eq!((b.accepted, b.delivered, b.pending, b.dead), (EVENTS, 0, 57, 3), "{what}");
    assert_eq!(outbox.pending(A).await, (33..=EVENTS).collect::<Vec<_>>(), "{what}");
    let waits = outbox.scheduled(A, StoreTime(1_000), 10).await.unwrap();
    assert_eq!(
        (waits[0].head.seq, waits[0].due, waits[0].progress.attempts),
        (Seq(31), StoreTime(777), 2),
        "{what}"
    );
    let dead = outbox.dead_letters(DeadFilter::default(), None, 10).await.unwrap();
    let messages: Vec<_> =
        dead.letters.iter().map(|one| (one.head.seq.0, one.reason.message.as_str())).collect();
    assert_eq!(messages, [(1, "at intake"), (21, "at intake"), (32, "no"), (41, "at intake")], "{what}");
    for seq in 31..=EVENTS {
        let stored = outbox.event(Seq(seq)).await.unwrap().unwrap();
        assert_eq!(stored.body, event(seq - 1, 120, &[]).body, "{what}");
        assert_eq!(stored.head.key.as_str(), format!("idem:v2:{}", seq - 1), "{what}");
    }
    assert!(outbox.endpoint_record(B).is_some_and(|record| record.paused), "{what}");
    let again = outbox.append(vec![event(5, 120, &[A, B])]).await.unwrap();
    assert!(matches!(again[0], Appended::Duplicate { .. }), "{what}: {again:?}");
    outbox.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_of_released_versions_open_with_everything_in_them() {
    if let Some(path) = std::env::var_os("WAYPOST_WRITE_FIXTURE") {
        return written(Path::new(&path)).await;
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for version in ["store-v1"] {
        let dir = tempfile::tempdir().unwrap();
        copy(&fixtures.join(version), dir.path());
        assert!(verify(dir.path()).unwrap().is_sound(), "{version}");
        check(dir.path(), version).await;
        // Its log alone says the same.
        let dir = tempfile::tempdir().unwrap();
        copy(&fixtures.join(version), dir.path());
        fs::remove_dir_all(dir.path().join("sled")).unwrap();
        check(dir.path(), &format!("{version} without its index")).await;
    }
}
