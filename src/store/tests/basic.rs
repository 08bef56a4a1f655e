//! The plain path, and what a restart keeps.

use super::*;

fn seq_of(appended: &Appended) -> u64 {
    match appended {
        Appended::Accepted { seq, .. } | Appended::DeadLettered { seq, .. } => seq.0,
        other => panic!("not stored: {other:?}"),
    }
}

#[tokio::test]
async fn what_goes_in_comes_out_byte_for_byte_and_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, recovery, _hand) = opened(dir.path(), small());
    assert!(recovery.created);
    assert_eq!(outbox.endpoint_ids().into_values().collect::<Vec<_>>(), [A, B]);
    for number in 0..200 {
        let appended = outbox.append(vec![event(number, 100, &[A, B])]).await.unwrap();
        assert_eq!(seq_of(&appended[0]), number + 1);
    }
    for seq in 1..=150 {
        outbox.settle(A, Seq(seq), delivered()).await.unwrap();
    }
    outbox.crash().await;
    assert!(matches!(outbox.settle(A, Seq(160), delivered()).await, Err(StoreError::Closed)));
    let (outbox, recovery, _hand) = opened(dir.path(), small());
    assert_eq!((recovery.lost, recovery.warnings), (0, vec![]));
    assert_eq!(outbox.pending(A).await, (151..=200).collect::<Vec<_>>());
    assert_eq!(outbox.pending(B).await, (1..=200).collect::<Vec<_>>());
    let ledger = outbox.ledger(A);
    assert_eq!((ledger.accepted, ledger.delivered, ledger.pending), (200, 150, 50));
    assert!(ledger.balanced());
    let stored = outbox.event(Seq(42)).await.unwrap().unwrap();
    assert_eq!(stored.body, event(41, 100, &[]).body);
    assert_eq!(stored.head.key.as_str(), "idem:v2:41");
    assert_eq!(stored.head.id.seq(outbox.salt()), Some(Seq(42)));
    outbox.close().await;
}

#[tokio::test]
async fn an_identity_is_stored_once_within_a_call_a_group_and_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(dir.path(), small());
    let appended = outbox.append(vec![event(7, 10, &[A]), event(7, 10, &[A])]).await.unwrap();
    let Appended::Accepted { id, .. } = &appended[0] else { panic!() };
    assert!(matches!(&appended[1], Appended::Duplicate { id: first, .. } if first == id));
    let both = tokio::join!(outbox.append(vec![event(8, 10, &[A])]), outbox.append(vec![event(8, 10, &[A])]));
    assert!(matches!(both.0.unwrap()[0], Appended::Accepted { .. }));
    assert!(matches!(both.1.unwrap()[0], Appended::Duplicate { .. }));
    outbox.crash().await;
    let (outbox, _, hand) = opened(dir.path(), small());
    let again = outbox.append(vec![event(7, 10, &[A])]).await.unwrap();
    assert!(matches!(&again[0], Appended::Duplicate { id: first, .. } if first == id));
    let reused = NewEvent { producer_keyed: true, digest: BodyDigest([9; 8]), ..event(7, 10, &[A]) };
    assert!(
        matches!(&outbox.append(vec![reused]).await.unwrap()[0], Appended::KeyReused { id: first } if first == id)
    );
    let heartbeat = NewEvent { dedup: Dedup::Window, ..event(9, 10, &[A]) };
    outbox.append(vec![heartbeat.clone()]).await.unwrap();
    hand.advance(Duration::from_secs(59));
    assert!(matches!(outbox.append(vec![heartbeat.clone()]).await.unwrap()[0], Appended::Duplicate { .. }));
    hand.advance(Duration::from_secs(2));
    assert!(matches!(outbox.append(vec![heartbeat]).await.unwrap()[0], Appended::Accepted { .. }));
    assert_eq!(outbox.ledger(A).accepted, 4);
    outbox.close().await;
}

#[tokio::test]
async fn waits_dead_letters_and_redrives_keep_their_story() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(dir.path(), small());
    let refused = NewEvent { deliver: vec![A], dead: vec![(B, reason("bow tie"))], ..event(1, 10, &[]) };
    outbox.append(vec![refused, event(2, 10, &[A]), event(3, 10, &[A])]).await.unwrap();
    let progress =
        Progress { attempts: 3, charged: 2, previous_delay: Duration::from_secs(4), ..Progress::default() };
    let due = StoreTime(90_000);
    outbox.settle(A, Seq(2), Settlement::RetryAt { due, progress: progress.clone() }).await.unwrap();
    outbox
        .settle(A, Seq(3), Settlement::Dead { reason: reason("http 400"), progress: progress.clone() })
        .await
        .unwrap();
    for kill in [true, false] {
        if kill {
            outbox.crash().await;
        }
    }
    let (outbox, _, _hand) = opened(dir.path(), small());
    assert_eq!(outbox.pending(A).await, [1]);
    let waits = outbox.scheduled(A, due, 10).await.unwrap();
    assert_eq!((waits[0].head.seq, waits[0].due, &waits[0].progress), (Seq(2), due, &progress));
    assert!(outbox.scheduled(A, StoreTime(89_999), 10).await.unwrap().is_empty());
    let page = outbox.dead_letters(DeadFilter::default(), None, 10).await.unwrap();
    let listed: Vec<_> =
        page.letters.iter().map(|one| (one.head.seq.0, one.endpoint, one.reason.message.as_str())).collect();
    assert_eq!(listed, [(1, B, "bow tie"), (3, A, "http 400")]);
    assert_eq!(page.total, 2);
    assert_eq!(outbox.redrive(vec![(Seq(3), A), (Seq(3), A), (Seq(2), A)]).await.unwrap(), 1);
    assert_eq!(outbox.pending(A).await, [1, 3]);
    let states = outbox.deliveries(Seq(3)).await.unwrap();
    let redriven = Progress { charged: 0, redrives: 1, previous_delay: Duration::ZERO, ..progress };
    assert_eq!((states[0].state, &states[0].progress), (State::Pending, &redriven));
    assert_eq!(outbox.end(vec![ended(1, B, End::Discarded), ended(2, A, End::Discarded)]).await.unwrap(), 2);
    // Late settlements of ended deliveries change nothing.
    outbox.settle(A, Seq(2), delivered()).await.unwrap();
    let (a, b) = (outbox.ledger(A), outbox.ledger(B));
    assert_eq!((a.accepted, a.pending, a.discarded, a.dead), (3, 2, 1, 0));
    assert_eq!((b.accepted, b.discarded, b.dead), (1, 1, 0));
    outbox.close().await;
}

#[tokio::test]
async fn a_second_instance_is_told_who_holds_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(dir.path(), small());
    let second = Outbox::open(config(dir.path()), Clock::manual().0);
    let text = second.err().unwrap().to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    outbox.close().await;
}

/// A filter that hardly anything passes reads a bounded number of dead letters at a time, in both directions, and finds
/// what there is by going on.
#[tokio::test]
async fn a_rare_dead_letter_is_found_page_by_page() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _, _hand) = opened(dir.path(), small());
    let refused = |number: u64| {
        let bbox = (number == 5_000).then_some([13.0, 52.0, 13.0, 52.0]);
        let mut event = event(number, 10, &[]);
        event.dead = vec![(B, reason("bow tie"))];
        event.bbox = bbox;
        event
    };
    for first in (0..10_000).step_by(1_000) {
        outbox.append((first..first + 1_000).map(refused).collect()).await.unwrap();
    }
    for newest_first in [false, true] {
        let area = Some([12.0, 51.0, 14.0, 53.0]);
        let filter = DeadFilter { bbox: area, newest_first, ..DeadFilter::default() };
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = outbox.dead_letters(filter.clone(), after, 100).await.unwrap();
            found.extend(page.letters.iter().map(|one| one.head.seq.0));
            (after, pages) = (page.next, pages + 1);
            if after.is_none() {
                break;
            }
        }
        assert_eq!((found, pages), (vec![5_001], 2), "newest first: {newest_first}");
    }
    outbox.close().await;
}
