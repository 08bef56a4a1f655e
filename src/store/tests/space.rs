//! Disk: it comes back, it is bounded, and a full one loses nothing.

use std::sync::atomic::Ordering;

use super::disk::Disk;
use super::memory_disk::{Call, MemoryDisk};
use super::*;

const KIB: u64 = 1 << 10;

fn log_bytes(dir: &Path) -> u64 {
    home::dir_bytes(&dir.join("log"))
}

fn with(config: StoreConfig, disk: Option<&MemoryDisk>) -> Outbox {
    let disk = disk.map(|disk| Arc::new(disk.clone()) as Arc<dyn disk::Disk>);
    recover::open(config, Clock::manual().0, small(), disk).unwrap().0
}

#[tokio::test]
async fn space_of_delivered_events_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(dir.path(), small());
    let mut most = 0;
    for number in 0..2_000 {
        outbox.append(vec![event(number, 700, &[A])]).await.unwrap();
        if number >= 20 {
            outbox.settle(A, Seq(number - 19), delivered()).await.unwrap();
        }
        most = most.max(log_bytes(dir.path()));
    }
    // 20 live events of 1 KB; 2 MB went through.
    assert!(most <= 2 * 20 * KIB + 300 * KIB, "{most} bytes of log at most");
    outbox.close().await;
    assert!(log_bytes(dir.path()) < 64 * KIB);
    let (outbox, recovery, _hand) = opened(dir.path(), small());
    assert!(recovery.clean);
    assert_eq!(outbox.pending(A).await.len(), 20);
    assert_eq!(outbox.stats().events, 20);
    outbox.close().await;
}

#[tokio::test]
async fn events_that_stay_do_not_keep_the_log_of_those_that_went() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(dir.path(), small());
    let mut stay = Vec::new();
    for number in 0..2_500 {
        outbox.append(vec![event(number, 700, &[A, B])]).await.unwrap();
        let seq = Seq(number + 1);
        outbox.settle(A, seq, delivered()).await.unwrap();
        if number % 50 == 0 {
            let progress = Progress { attempts: 6, ..Progress::default() };
            outbox.settle(B, seq, Settlement::Dead { reason: reason("no"), progress }).await.unwrap();
            stay.push(seq.0);
        } else {
            outbox.settle(B, seq, delivered()).await.unwrap();
        }
    }
    let stats = outbox.stats();
    assert_eq!((stats.events, stats.dead_bytes), (50, stats.live_bytes));
    assert!(log_bytes(dir.path()) <= 2 * stats.live_bytes + 300 * KIB, "{} bytes", log_bytes(dir.path()));
    outbox.crash().await;
    std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
    let (outbox, recovery, _hand) = opened(dir.path(), small());
    assert!(recovery.rebuilt);
    let page = outbox.dead_letters(DeadFilter::default(), None, 1_000).await.unwrap();
    assert_eq!(page.letters.iter().map(|one| one.head.seq.0).collect::<Vec<_>>(), stay);
    assert!(page.letters.iter().all(|one| one.progress.attempts == 6 && one.reason.message == "no"));
    for seq in stay {
        let stored = outbox.event(Seq(seq)).await.unwrap().unwrap();
        assert_eq!(stored.body, event(seq - 1, 700, &[]).body);
    }
    assert!(outbox.ledger(A).balanced() && outbox.ledger(B).balanced());
    assert_eq!((outbox.ledger(B).delivered, outbox.ledger(B).dead), (2_450, 50));
    outbox.close().await;
}

/// A sync that fails may drop the pages of a copy, while its original goes with the head of the log.
#[tokio::test]
async fn a_failed_sync_behind_a_copy_to_the_tail_loses_no_event() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::new());
    let outbox = with(config(dir.path()), Some(&disk));
    *disk.power.fail_sync_after.lock().unwrap() = Some(Call::Copy);
    for number in 0..20 {
        outbox.append(vec![event(number, 700, &[B])]).await.unwrap();
    }
    let stays: Vec<u64> = (1..=20).collect();
    // Until the originals are gone, and not until the copies have been copied on.
    for number in 20.. {
        outbox.append(vec![event(number, 700, &[A])]).await.unwrap();
        outbox.settle(A, Seq(number + 1), delivered()).await.unwrap();
        if disk.list().unwrap()[0].0 > 2 {
            break;
        }
        assert!(number < 1_000, "nothing was copied");
    }
    assert!(!disk.power.fail_sync.load(Ordering::SeqCst), "nothing was synced after it");
    outbox.crash().await;
    disk.cut(&mut <rand_pcg::Pcg64 as rand::SeedableRng>::seed_from_u64(1));
    let outbox = with(config(dir.path()), Some(&disk));
    assert_eq!(outbox.pending(B).await, stays);
    for seq in stays {
        let stored = outbox.event(Seq(seq)).await.unwrap().expect("an event that is pending");
        assert_eq!(stored.body, event(seq - 1, 700, &[]).body);
    }
    assert_eq!(outbox.ledger(B).lost, 0);
    outbox.close().await;
}

#[tokio::test]
async fn a_full_disk_refuses_accepts_lets_settlements_through_and_heals_by_itself() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::new());
    disk.power.capacity.store(256 * KIB, Ordering::SeqCst);
    let reserved = || StoreConfig { disk_free_reserve: 40 * KIB, ..config(dir.path()) };
    let outbox = with(reserved(), Some(&disk));
    let mut accepted = 0;
    let full = loop {
        match outbox.append(vec![event(accepted, 900, &[A])]).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, AppendError::Full { what: "disk", .. }), "{full}");
    assert!(accepted > 100);
    // It also starts while full.
    outbox.crash().await;
    let outbox = with(reserved(), Some(&disk));
    assert_eq!(outbox.pending(A).await.len() as u64, accepted);
    for seq in 1..=accepted {
        // Settlements may have to wait for the checkpoint that frees the first segment, never longer.
        while outbox.settle(A, Seq(seq), delivered()).await.is_err() {}
    }
    while outbox.append(vec![event(9_999, 900, &[A])]).await.is_err() {}
    let ledger = outbox.ledger(A);
    assert_eq!((ledger.accepted, ledger.delivered, ledger.lost), (accepted + 1, accepted, 0));
    assert!(outbox.stats().full.is_none());
    outbox.close().await;
}

#[tokio::test]
async fn the_configured_limit_holds_and_the_intake_opens_again() {
    let dir = tempfile::tempdir().unwrap();
    let max = 12 << 20;
    let outbox = with(StoreConfig { disk_bytes_max: max, ..config(dir.path()) }, None);
    let mut accepted = 0;
    let full = loop {
        match outbox.append(vec![event(accepted, 4_000, &[A])]).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(home::dir_bytes(dir.path()) <= max + max / 10);
    };
    assert!(matches!(full, AppendError::Full { what: "store", .. }), "{full}");
    assert_eq!(outbox.stats().full, Some("store"));
    for seq in 1..=accepted {
        outbox.settle(A, Seq(seq), delivered()).await.unwrap();
    }
    while outbox.append(vec![event(9_999, 900, &[A])]).await.is_err() {}
    assert!(home::dir_bytes(dir.path()) <= max + max / 10);
    outbox.close().await;
}

#[tokio::test]
async fn drop_oldest_drops_in_order_and_counts_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let limited =
        StoreConfig { disk_bytes_max: 3 << 20, when_full: WhenFull::DropOldest, ..config(dir.path()) };
    let outbox = with(limited, None);
    let mut accepted = 0;
    for number in 0..1_500 {
        accepted += u64::from(outbox.append(vec![event(number, 4_000, &[A])]).await.is_ok());
    }
    // The log thread drops on its own time: looked at when nothing moved meanwhile.
    let (ledger, pending) = loop {
        let before = outbox.ledger(A);
        let pending = outbox.pending(A).await;
        if outbox.ledger(A) == before {
            break (before, pending);
        }
    };
    assert!(accepted > 1_000, "only {accepted} of 1500 accepted");
    assert!(ledger.dropped > 0 && ledger.balanced());
    assert_eq!(ledger.accepted, accepted);
    assert_eq!(ledger.dropped + pending.len() as u64, accepted);
    assert_eq!(pending, (accepted - pending.len() as u64 + 1..=accepted).collect::<Vec<_>>());
    outbox.close().await;
}

#[tokio::test]
async fn dead_letters_have_a_share_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let limited = StoreConfig { disk_bytes_max: 4 << 20, dead_letter_share: 0.05, ..config(dir.path()) };
    let outbox = with(limited, None);
    let refused = |number| NewEvent { dead: vec![(A, reason("bow tie"))], ..event(number, 4_000, &[]) };
    let mut dead = 0;
    let full = loop {
        match outbox.append(vec![refused(dead)]).await {
            Ok(_) => dead += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, AppendError::Full { what: "dead letters", .. }), "{full}");
    assert!((45..=52).contains(&dead), "{dead} of 4 KB in 5 % of 4 MiB");
    outbox.end((1..=dead).map(|seq| ended(seq, A, End::Discarded)).collect()).await.unwrap();
    outbox.append(vec![refused(9_999)]).await.unwrap();
    assert_eq!(outbox.ledger(A).dead, 1);
    outbox.close().await;
}

/// The symptom: "event 20 could not be read back: its bytes are damaged", of an event that had only been copied to the
/// tail, its old segment deleted, between the look at the books and that at the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_event_that_is_copied_to_the_tail_while_it_is_read_is_not_lost() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::new());
    let outbox = with(config(dir.path()), Some(&disk));
    for number in 0..100 {
        outbox.append(vec![event(number, 300, &[A])]).await.unwrap();
    }
    outbox.close().await;
    let outbox = with(config(dir.path()), Some(&disk));
    // The page has looked at the books and now opens the second segment, which then goes.
    let (opening, opened) = tokio::sync::oneshot::channel();
    let gone = disk.clone();
    let hook = move || {
        let _ = opening.send(());
        while gone.list().unwrap().iter().any(|(segment, _)| *segment == 2) {
            std::thread::yield_now();
        }
    };
    *disk.power.on_open.lock().unwrap() = Some((2, Box::new(hook)));
    let page = {
        let outbox = outbox.clone();
        tokio::spawn(async move { outbox.pending_page(A, Seq(40), 1).await.unwrap() })
    };
    opened.await.unwrap();
    for seq in 1..=600 {
        if seq > 100 {
            outbox.append(vec![event(seq, 300, &[A])]).await.unwrap();
        }
        if !(38..=44).contains(&seq) {
            outbox.settle(A, Seq(seq), delivered()).await.unwrap();
        }
    }
    let page = page.await.unwrap();
    assert_eq!(page.deliveries[0].event.body, event(40, 300, &[]).body);
    assert_eq!(outbox.ledger(A).lost, 0, "{:?}", outbox.stats().warnings);
    assert_eq!(outbox.pending(A).await, (38..=44).collect::<Vec<_>>());
    outbox.close().await;
}

#[tokio::test]
async fn an_idle_store_knows_the_free_space_from_its_start() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::new());
    disk.power.capacity.store(1 << 30, Ordering::SeqCst);
    for _ in 0..2 {
        let outbox = with(config(dir.path()), Some(&disk));
        let free = outbox.stats().disk_free_bytes;
        assert!((1 << 29..=1 << 30).contains(&free), "{free}");
        outbox.close().await;
    }
}
