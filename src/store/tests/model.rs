//! The store against a plain model: random work, random kills and power cuts, random loss of the index. Nothing
//! acknowledged is ever missing, every state is one that was asked for, the ledger always balances.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::memory_disk::MemoryDisk;
use super::*;

/// State of a delivery as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending,
    Waiting(u64),
    Dead,
    Ended,
}

impl Fate {
    fn of(state: Option<State>) -> Self {
        match state {
            Some(State::Pending) => Fate::Pending,
            Some(State::Waiting(due)) => Fate::Waiting(due.0),
            Some(State::Dead) => Fate::Dead,
            Some(State::Ended(_)) | None => Fate::Ended,
        }
    }
}

/// What happened, for a seed that failed.
fn trace(text: impl FnOnce() -> String) {
    if std::env::var_os("WAYPOST_STORE_SEED").is_some() {
        println!("{}", text());
    }
}

struct World {
    rng: Pcg64,
    dir: tempfile::TempDir,
    disk: MemoryDisk,
    outbox: Outbox,
    /// By sequence and endpoint: the states since the last sync, newest last.
    fates: BTreeMap<(u64, EndpointId), Vec<Fate>>,
    /// Number by sequence, of acknowledged events.
    events: BTreeMap<u64, (u64, usize)>,
    next_number: u64,
    /// Numbers of events whose append failed: they may be there or not.
    doubtful: BTreeMap<u64, usize>,
    cuts: u32,
    /// Writes or syncs of the log have failed. What was settled since the sync before may then come back when the
    /// power or the index goes too, at any later time; so states stay allowed.
    failed: bool,
}

fn open_on(dir: &Path, disk: &MemoryDisk) -> (Outbox, Recovery) {
    let (clock, _hand) = Clock::manual();
    recover::open(config(dir), clock, small(), Some(Arc::new(disk.clone()))).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let (dir, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::new());
        let (outbox, _) = open_on(dir.path(), &disk);
        Self {
            rng: Pcg64::seed_from_u64(seed),
            dir,
            disk,
            outbox,
            fates: BTreeMap::new(),
            events: BTreeMap::new(),
            next_number: 0,
            doubtful: BTreeMap::new(),
            cuts: 0,
            failed: false,
        }
    }

    async fn append(&mut self) {
        let count = self.rng.random_range(1..5);
        let mut new = Vec::new();
        let mut sizes = Vec::new();
        for _ in 0..count {
            let size = if self.rng.random_bool(0.05) { 9_000 } else { self.rng.random_range(0..600) };
            let mut one = event(self.next_number, size, &[A, B]);
            if self.rng.random_bool(0.1) {
                one.deliver = vec![A];
                one.dead = vec![(B, reason("at intake"))];
            }
            sizes.push((self.next_number, size));
            self.next_number += 1;
            new.push(one);
        }
        let dead_at_b: Vec<bool> = new.iter().map(|one| !one.dead.is_empty()).collect();
        match self.outbox.append(new).await {
            Ok(appended) => {
                trace(|| format!("append {sizes:?}"));
                for ((one, (number, size)), dead) in appended.iter().zip(sizes).zip(dead_at_b) {
                    let Appended::Accepted { seq, .. } = one else { panic!("{one:?}") };
                    self.events.insert(seq.0, (number, size));
                    self.fates.insert((seq.0, A), vec![Fate::Pending]);
                    self.fates.insert((seq.0, B), vec![if dead { Fate::Dead } else { Fate::Pending }]);
                }
                // Its sync took all that was written before along.
                if !self.failed {
                    for states in self.fates.values_mut() {
                        states.drain(..states.len() - 1);
                    }
                }
            }
            Err(error) => {
                trace(|| format!("append {sizes:?}: {error}"));
                self.doubtful.extend(sizes);
            }
        }
    }

    fn pick(&mut self, wanted: impl Fn(Fate) -> bool) -> Option<(u64, EndpointId)> {
        let all: Vec<_> = self
            .fates
            .iter()
            .filter(|(_, states)| wanted(states[states.len() - 1]))
            .map(|(key, _)| *key)
            .collect();
        (!all.is_empty()).then(|| all[self.rng.random_range(0..all.len().min(12))])
    }

    async fn change(&mut self) {
        let kind = self.rng.random_range(0..10);
        let open = |fate| matches!(fate, Fate::Pending | Fate::Waiting(_));
        let dead = |fate| fate == Fate::Dead;
        let Some((seq, id)) = (if kind < 8 { self.pick(open) } else { self.pick(dead) }) else { return };
        let progress = Progress { attempts: self.rng.random_range(1..9), ..Progress::default() };
        let due = self.rng.random_range(1..1_000);
        let (fate, done) = match kind {
            0..=3 => (Fate::Ended, self.outbox.settle(id, Seq(seq), delivered()).await),
            4 | 5 => {
                let retry = Settlement::RetryAt { due: StoreTime(due), progress };
                (Fate::Waiting(due), self.outbox.settle(id, Seq(seq), retry).await)
            }
            6 => (Fate::Pending, self.outbox.settle(id, Seq(seq), Settlement::Returned { progress }).await),
            7 => {
                let dead = Settlement::Dead { reason: reason("no"), progress };
                (Fate::Dead, self.outbox.settle(id, Seq(seq), dead).await)
            }
            8 => (Fate::Pending, self.outbox.redrive(vec![(Seq(seq), id)]).await.map(drop)),
            _ => (Fate::Ended, self.outbox.end(vec![ended(seq, id, End::Discarded)]).await.map(drop)),
        };
        trace(|| format!("change {seq} {id:?} -> {fate:?}: {done:?}"));
        let states = self.fates.get_mut(&(seq, id)).unwrap();
        match done {
            Ok(()) => states.push(fate),
            // Not acknowledged: it may have reached the disk all the same.
            Err(_) => states.insert(states.len() - 1, fate),
        }
    }

    /// Ends the process in some way, does something to the disk, and starts again.
    async fn restart(&mut self) {
        let way = self.rng.random_range(0..10);
        if way < 3 {
            self.disk.on();
            self.outbox.close().await;
        } else {
            self.outbox.crash().await;
        }
        let mut certain = way < 5;
        if way >= 5 {
            self.disk.cut(&mut self.rng);
            self.cuts += 1;
        }
        self.disk.on();
        self.disk.power.fail_sync.store(false, Ordering::SeqCst);
        let sled = self.dir.path().join("sled");
        let harm = self.rng.random_range(0..12);
        trace(|| format!("harm {harm}"));
        match harm {
            0 => std::fs::remove_dir_all(&sled).unwrap(),
            1 => std::fs::write(sled.join("db"), vec![0xAB; 70_000]).unwrap(),
            2 => std::fs::write(sled.join("db"), b"").unwrap(),
            _ => {}
        }
        if self.rng.random_bool(0.3) {
            // The power goes again while the store starts.
            self.disk.power.fuse.store(self.rng.random_range(0..12), Ordering::SeqCst);
            let (outbox, _) = open_on(self.dir.path(), &self.disk);
            outbox.crash().await;
            self.disk.cut(&mut self.rng);
            (certain, self.cuts) = (false, self.cuts + 1);
        }
        let (outbox, recovery) = open_on(self.dir.path(), &self.disk);
        self.outbox = outbox;
        trace(|| format!("restart way {way} certain {certain}: {recovery:?}"));
        assert_eq!(recovery.lost, 0, "{recovery:?}");
        self.compare(certain).await;
    }

    /// Compares, then takes what is there as the truth (among what was allowed).
    async fn compare(&mut self, certain: bool) {
        let newest = self.outbox.appended().borrow().0;
        for (&seq, &(number, size)) in &self.events {
            let mut live = false;
            let actual: BTreeMap<EndpointId, State> = self
                .outbox
                .deliveries(Seq(seq))
                .await
                .unwrap()
                .into_iter()
                .map(|one| (one.endpoint, one.state))
                .collect();
            for id in [A, B] {
                let states = self.fates.get_mut(&(seq, id)).unwrap();
                let fate = Fate::of(actual.get(&id).copied());
                let allowed = if certain && !self.failed { &states[states.len() - 1..] } else { &states[..] };
                assert!(
                    allowed.contains(&fate),
                    "{seq} {id:?}: is {fate:?}, allowed {states:?} (certain {certain})"
                );
                if self.failed {
                    states.push(fate);
                } else {
                    *states = vec![fate];
                }
                live |= fate != Fate::Ended;
            }
            if live {
                let stored = self.outbox.event(Seq(seq)).await.unwrap().unwrap();
                assert_eq!(stored.body, event(number, size, &[]).body);
            }
        }
        self.adopt_doubtful(newest).await;
        self.check_ledgers().await;
    }

    /// Events that were never acknowledged may be there; from now on they are as good as any.
    async fn adopt_doubtful(&mut self, newest: u64) {
        for seq in (1..=newest).filter(|seq| !self.events.contains_key(seq)).collect::<Vec<_>>() {
            let deliveries = self.outbox.deliveries(Seq(seq)).await.unwrap();
            if deliveries.is_empty() {
                continue;
            }
            let stored = self.outbox.event(Seq(seq)).await.unwrap();
            let stored = stored.unwrap_or_else(|| {
                let shared = &self.outbox.inner.shared;
                let state = shared.state();
                panic!("{seq} cannot be read: {:?} of {:?}", state.locate(Seq(seq)), state.segments)
            });
            let number: u64 = stored.head.key.as_str().trim_start_matches("idem:v2:").parse().unwrap();
            let size =
                self.doubtful.remove(&number).unwrap_or_else(|| panic!("event {number} is there twice"));
            self.events.insert(seq, (number, size));
            for id in [A, B] {
                let state = deliveries.iter().find(|one| one.endpoint == id).map(|one| one.state);
                self.fates.insert((seq, id), vec![Fate::of(state)]);
            }
        }
    }

    async fn check_ledgers(&self) {
        for id in [A, B] {
            let ledger = self.outbox.ledger(id);
            assert!(ledger.balanced(), "{ledger:?}");
            let fates = || self.fates.iter().filter(|((_, endpoint), _)| *endpoint == id);
            let count = |wanted: &dyn Fn(Fate) -> bool| {
                fates().filter(|(_, states)| wanted(states[states.len() - 1])).count() as u64
            };
            assert_eq!(
                ledger.pending,
                count(&|fate| matches!(fate, Fate::Pending | Fate::Waiting(_))),
                "{id:?}"
            );
            assert_eq!(ledger.dead, count(&|fate| fate == Fate::Dead), "{id:?}");
            assert_eq!(ledger.lost, 0);
            let expected: Vec<u64> = fates()
                .filter(|(_, states)| states[states.len() - 1] == Fate::Pending)
                .map(|((seq, _), _)| *seq)
                .collect();
            assert_eq!(self.outbox.pending(id).await, expected);
        }
        assert_eq!(
            self.outbox.stats().warnings.iter().filter(|text| text.contains("lost to damage")).count(),
            0
        );
    }

    async fn check_dedup(&mut self) {
        let Some((&seq, &(number, size))) = self.events.iter().next_back() else { return };
        let again = self.outbox.append(vec![event(number, size, &[A, B])]).await;
        if let Ok(again) = again {
            let Appended::Duplicate { id, .. } = &again[0] else { panic!("stored twice: {again:?}") };
            assert_eq!(id.seq(self.outbox.salt()), Some(Seq(seq)));
        }
    }
}

async fn run(seed: u64, steps: u32) -> u32 {
    let mut world = World::new(seed);
    for _ in 0..steps {
        match world.rng.random_range(0..100) {
            0..35 => world.append().await,
            35..94 => world.change().await,
            94 => world.check_dedup().await,
            // Some worlds keep a disk that works until it is cut.
            95 if seed.is_multiple_of(3) => {
                let fuse = world.rng.random_range(0..25);
                world.failed = true;
                world.disk.power.fuse.store(fuse, Ordering::SeqCst);
            }
            96 if seed.is_multiple_of(3) => {
                world.failed = true;
                world.disk.power.fail_sync.store(true, Ordering::SeqCst);
            }
            95 | 96 => {}
            _ => world.restart().await,
        }
    }
    world.restart().await;
    world.cuts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_over_power_cuts_kills_and_lost_indexes() {
    let only: Option<u64> = std::env::var("WAYPOST_STORE_SEED").ok().map(|seed| seed.parse().unwrap());
    let worlds = std::env::var("WAYPOST_STORE_SEEDS").map_or(2, |count| count.parse().unwrap());
    let mut cuts = 0;
    for seed in only.map_or(0..worlds, |seed| seed..seed + 1) {
        println!("WAYPOST_STORE_SEED={seed} cargo test --lib store::tests::model");
        cuts += run(seed, 400).await;
    }
    println!("{cuts} power cuts survived");
}
