//! Verify sees damage and changes nothing; export and import carry a store over whole.

use std::fs;

use super::*;

async fn busy_store(dir: &Path) -> Outbox {
    let (outbox, _, _hand) = opened(dir, small());
    for number in 0..150 {
        let mut one = event(number, 200, &[A, B]);
        if number % 30 == 0 {
            (one.deliver, one.dead) = (vec![A], vec![(B, reason("at intake"))]);
        }
        outbox.append(vec![one]).await.unwrap();
    }
    let progress = Progress { attempts: 2, charged: 2, ..Progress::default() };
    for seq in 1..=60 {
        outbox.settle(A, Seq(seq), delivered()).await.unwrap();
    }
    let due = StoreTime(777);
    outbox.settle(A, Seq(61), Settlement::RetryAt { due, progress: progress.clone() }).await.unwrap();
    outbox.settle(A, Seq(62), Settlement::Dead { reason: reason("no"), progress }).await.unwrap();
    let record = EndpointRecord { paused: true, disabled: false, budget_tokens: 12.5 };
    outbox.set_endpoint(B, record).await.unwrap();
    outbox
}

/// Everything that a store shows of its content.
async fn content(outbox: &Outbox) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for id in [A, B] {
        let ledger = outbox.ledger(id);
        writeln!(text, "{id:?} {ledger:?} {:?} {:?}", outbox.endpoint_record(id), outbox.pending(id).await)
            .unwrap();
        writeln!(text, "{:?}", outbox.scheduled(id, StoreTime(1 << 40), 100).await.unwrap()).unwrap();
    }
    let dead = outbox.dead_letters(DeadFilter::default(), None, 1_000).await.unwrap();
    writeln!(text, "{:?}", dead.letters).unwrap();
    for seq in 1..=150 {
        if !outbox.deliveries(Seq(seq)).await.unwrap().iter().all(|one| matches!(one.state, State::Ended(_)))
        {
            writeln!(text, "{:?}", outbox.event(Seq(seq)).await.unwrap().unwrap()).unwrap();
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_imported_store_is_the_exported_one() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let outbox = busy_store(from.path()).await;
    let before = content(&outbox).await;
    outbox.crash().await;
    let mut lines = Vec::new();
    let exported = export(from.path(), &mut lines).unwrap();
    assert_eq!((exported.events, exported.keys, exported.unreadable), (150, 150, 0));
    let target = to.path().join("new");
    let imported =
        tokio::task::block_in_place(|| import(config(&target), Clock::manual().0, &mut &lines[..]).unwrap());
    assert_eq!(imported, exported);
    let (outbox, recovery, _hand) = opened(&target, small());
    assert_eq!((recovery.lost, recovery.clean), (0, true), "{recovery:?}");
    assert_eq!(content(&outbox).await, before);
    assert!(matches!(outbox.append(vec![event(7, 200, &[A])]).await.unwrap()[0], Appended::Duplicate { .. }));
    let next = outbox.append(vec![event(9_000, 10, &[A])]).await.unwrap();
    assert!(matches!(next[0], Appended::Accepted { seq: Seq(151), .. }));
    outbox.close().await;
    fs::remove_dir_all(target.join("sled")).unwrap();
    let (outbox, recovery, _hand) = opened(&target, small());
    assert_eq!(recovery.lost, 0, "{recovery:?}");
    assert!(outbox.ledger(A).balanced());
    outbox.close().await;
    let cut = &lines[..lines.len() - 40];
    let cut = &cut[..=cut.iter().rposition(|&byte| byte == b'\n').unwrap()];
    let refused = tokio::task::block_in_place(|| {
        import(config(&to.path().join("cut")), Clock::manual().0, &mut &cut[..]).unwrap_err()
    });
    assert!(matches!(refused, PortError::Cut { .. }), "{refused}");
    let refused = import(config(&target), Clock::manual().0, &mut &lines[..]).unwrap_err();
    assert!(matches!(refused, PortError::NotEmpty(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_finds_damage_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let outbox = busy_store(dir.path()).await;
    let running = verify(dir.path()).unwrap();
    assert!(running.running && running.is_sound(), "{running:?}");
    outbox.close().await;
    let sound = verify(dir.path()).unwrap();
    assert!(sound.is_sound() && sound.index_checked && !sound.running, "{sound:?}");
    assert_eq!(sound.events, 150);
    assert_eq!(info(dir.path()).unwrap().endpoints.len(), 3);
    let log = dir.path().join("log");
    let mut segments: Vec<_> = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    for (at, path) in segments.iter().enumerate() {
        let whole = fs::read(path).unwrap();
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 4;
        for bad in [flipped, Vec::new(), whole[..whole.len() - 9].to_vec()] {
            fs::write(path, bad).unwrap();
            assert!(!verify(dir.path()).unwrap().is_sound(), "segment {at}");
        }
        fs::write(path, whole).unwrap();
    }
    assert!(verify(dir.path()).unwrap().is_sound());
    let db = dir.path().join("sled/db");
    let whole = fs::read(&db).unwrap();
    fs::write(&db, b"").unwrap();
    assert!(!verify(dir.path()).unwrap().is_sound());
    fs::write(&db, whole).unwrap();
    let (before, after) =
        tokio::task::block_in_place(|| compact(config(dir.path()), Clock::manual().0).unwrap());
    assert!(after <= before + (2 << 20), "{before} -> {after}");
    assert!(verify(dir.path()).unwrap().is_sound());
    let (outbox, recovery, _hand) = opened(dir.path(), small());
    assert!(recovery.clean && recovery.warnings.is_empty(), "{recovery:?}");
    outbox.close().await;
}
