//! The sled trees: what stays.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `outbox` | `p` endpoint chunk | which of 1,024 sequences are pending ([`super::seqset`]) |
//! | | `d` endpoint chunk | which are dead |
//! | | `s` segment | where its events are ([`SegmentEntry`]) |
//! | | `m` segment LSN | events copied to that segment's place |
//! | `schedule` | endpoint sequence | attempts, and when the next is due ([`Slip`]) |
//! | `dead_letters` | sequence endpoint | why, and the attempts ([`Letter`]) |
//! | `idempotency` | generation kind … | remembered identities ([`super::keys`]) |
//! | `meta` | `checkpoint` | LSN, counters, registry ([`Checkpoint`]) |
//!
//! Numbers in keys are big-endian. Values stay under 4 KiB, so that sled keeps them inline; its larger ones are never
//! synced. Batches hold at most 400 operations (memory), nothing calls `flush_async` (it deadlocks), and durability is
//! `flush` plus our own fdatasync of its file, because `flush` alone does not survive a power cut.
//!
//! The checkpoint record is written last and alone. A checkpoint that was cut off leaves parts of a later state under
//! an older checkpoint record; replaying the log from there ends in the same state.

use std::fs::{self, File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::disk::sync_dir;
use super::records::{Checkpoint, Letter, SegmentEntry, Slip, Value};
use super::state::{Place, Segment, State};
use crate::core::ids::{EndpointId, Seq};

/// Operations in one batch. sled keeps every replaced page of a batch until its end, so that large batches explode memory
/// (STORAGE section 1.10); 100 of our values are 100 KiB at most.
const BATCH_MAX: usize = 100;
/// sled's page cache; it does not bound its memory, but what we keep in it is small.
const CACHE_BYTES: u64 = 8 << 20;
/// sled's own flusher: it also reclaims space.
const FLUSH_EVERY_MS: u64 = 5_000;
/// Moved events in one value: 16 bytes each, under 4 KiB.
const MOVED_PER_VALUE: usize = 200;

/// An opening waits ten seconds at most for the lock on sled's file.
const RELEASE_TRIES_MAX: u32 = 2_000;
const RELEASE_TRY_EVERY: Duration = Duration::from_millis(5);

const CHECKPOINT: &[u8] = b"checkpoint";

/// Why the index is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexFault {
    #[error(transparent)]
    Sled(#[from] sled::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("sled panicked")]
    Panicked,
    #[error("it has no checkpoint")]
    NoCheckpoint,
    #[error("it belongs to another store")]
    Foreign,
    #[error("a value in {0} cannot be read")]
    Unreadable(&'static str),
    #[error("its checkpoint points before the oldest log segment")]
    Stale,
    #[error("it does not agree with the log")]
    Disagrees,
}

impl IndexFault {
    /// Whether space is all that is missing.
    pub(super) fn is_full(&self) -> bool {
        let kind = match self {
            IndexFault::Sled(sled::Error::Io(error)) | IndexFault::Io(error) => error.kind(),
            _ => return false,
        };
        matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// Trees that changes go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    Outbox,
    Schedule,
    Letters,
    Identities,
}

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) tree: Tree,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

/// Open trees; clones share them.
#[derive(Clone)]
pub(super) struct Index {
    db: sled::Db,
    outbox: sled::Tree,
    schedule: sled::Tree,
    letters: sled::Tree,
    identities: sled::Tree,
    meta: sled::Tree,
    file: Arc<File>,
}

/// Runs what may panic inside sled on damaged files.
fn guarded<T>(call: impl FnOnce() -> Result<T, IndexFault>) -> Result<T, IndexFault> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(IndexFault::Panicked))
}

fn be(endpoint: EndpointId, rest: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&endpoint.0.to_be_bytes());
    key[4..].copy_from_slice(&rest.to_be_bytes());
    key
}

fn tagged(tag: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + rest.len());
    key.push(tag);
    key.extend_from_slice(rest);
    key
}

fn letter_key(seq: Seq, endpoint: EndpointId) -> Vec<u8> {
    let mut key = seq.0.to_be_bytes().to_vec();
    key.extend(endpoint.0.to_be_bytes());
    key
}

/// Eight or four big-endian bytes at a place of a key.
fn number(key: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(at..at + 8)?.try_into().ok()?))
}

fn endpoint_at(key: &[u8], at: usize) -> Option<EndpointId> {
    Some(EndpointId(u32::from_be_bytes(key.get(at..at + 4)?.try_into().ok()?)))
}

/// Waits until nobody holds sled's lock on its file. Work that sled left to its own threads keeps the lock for a moment
/// after the last handle is dropped; opening again right then would look like damage. `LOCK` of the data directory keeps
/// other processes out, so what is waited for here always ends; the bound is for the case that it does not.
#[expect(clippy::disallowed_methods, reason = "a lock of the system tells nobody when it is free")]
fn wait_until_released(file: &Path) {
    let Ok(file) = File::open(file) else { return };
    for _ in 0..RELEASE_TRIES_MAX {
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return;
        }
        std::thread::sleep(RELEASE_TRY_EVERY);
    }
}

impl Op {
    pub(super) fn pending(endpoint: EndpointId, chunk: u64, value: Option<Vec<u8>>) -> Self {
        Self { tree: Tree::Outbox, key: tagged(b'p', &be(endpoint, chunk)), value }
    }

    pub(super) fn dead(endpoint: EndpointId, chunk: u64, value: Option<Vec<u8>>) -> Self {
        Self { tree: Tree::Outbox, key: tagged(b'd', &be(endpoint, chunk)), value }
    }

    pub(super) fn segment(id: u64, segment: Option<&Segment>) -> Self {
        let value = segment.map(|one| {
            let Segment { first_seq, count, event_bytes, used, index_at, last_lsn, .. } = *one;
            SegmentEntry { first_seq, count, event_bytes, used, index_at, last_lsn }.to_value()
        });
        Self { tree: Tree::Outbox, key: tagged(b's', &id.to_be_bytes()), value }
    }

    pub(super) fn slip(endpoint: EndpointId, seq: Seq, slip: Option<&Slip>) -> Self {
        Self { tree: Tree::Schedule, key: be(endpoint, seq.0).to_vec(), value: slip.map(Value::to_value) }
    }

    pub(super) fn letter(seq: Seq, endpoint: EndpointId, letter: Option<&Letter>) -> Self {
        Self { tree: Tree::Letters, key: letter_key(seq, endpoint), value: letter.map(Value::to_value) }
    }

    /// Events copied to one segment. The LSN makes the key unique, and the same when a replay writes it again.
    pub(super) fn moved(segment: u64, lsn: u64, moved: &[(Seq, Place)]) -> Vec<Self> {
        let parts = moved.chunks(MOVED_PER_VALUE).enumerate();
        parts
            .map(|(part, events)| {
                let mut key = tagged(b'm', &segment.to_be_bytes());
                key.extend(lsn.to_be_bytes());
                key.extend((part as u32).to_be_bytes());
                let mut value = vec![super::records::VERSION];
                for (seq, place) in events {
                    value.extend(seq.0.to_le_bytes());
                    value.extend(place.offset.to_le_bytes());
                    value.extend(place.bytes.to_le_bytes());
                }
                Self { tree: Tree::Outbox, key, value: Some(value) }
            })
            .collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.key.len() + self.value.as_ref().map_or(0, Vec::len)) as u64
    }
}

impl Index {
    /// Opens or creates the trees.
    pub(super) fn open(dir: &Path) -> Result<Self, IndexFault> {
        guarded(|| {
            let new = !dir.exists();
            remove_torn_snapshots(dir);
            wait_until_released(&dir.join("db"));
            let db = sled::Config::new()
                .path(dir)
                .cache_capacity(CACHE_BYTES)
                .flush_every_ms(Some(FLUSH_EVERY_MS))
                .open()?;
            let file = Arc::new(File::open(dir.join("db"))?);
            if new {
                // sled syncs neither its `conf` nor any directory.
                File::open(dir.join("conf"))?.sync_all()?;
                sync_dir(dir)?;
                if let Some(parent) = dir.parent() {
                    sync_dir(parent)?;
                }
            }
            Ok(Self {
                outbox: db.open_tree("outbox")?,
                schedule: db.open_tree("schedule")?,
                letters: db.open_tree("dead_letters")?,
                identities: db.open_tree("idempotency")?,
                meta: db.open_tree("meta")?,
                db,
                file,
            })
        })
    }

    /// Writes everything into a new index.
    pub(super) fn copy_to(&self, dir: &Path) -> Result<(), IndexFault> {
        let checkpoint = self.checkpoint()?;
        let copy = Self::open(dir)?;
        for tree in [Tree::Outbox, Tree::Schedule, Tree::Letters, Tree::Identities] {
            let mut ops = Vec::with_capacity(BATCH_MAX);
            for entry in self.tree(tree) {
                let (key, value) = entry?;
                ops.push(Op { tree, key: key.to_vec(), value: Some(value.to_vec()) });
                if ops.len() == BATCH_MAX {
                    copy.write(&ops)?;
                    ops.clear();
                }
            }
            copy.write(&ops)?;
        }
        copy.commit(&checkpoint)
    }

    fn tree(&self, tree: Tree) -> &sled::Tree {
        match tree {
            Tree::Outbox => &self.outbox,
            Tree::Schedule => &self.schedule,
            Tree::Letters => &self.letters,
            Tree::Identities => &self.identities,
        }
    }

    /// Applies changes in small batches; not durable before [`Index::persist`].
    pub(super) fn write(&self, ops: &[Op]) -> Result<(), IndexFault> {
        guarded(|| {
            for part in ops.chunks(BATCH_MAX) {
                for tree in [Tree::Outbox, Tree::Schedule, Tree::Letters, Tree::Identities] {
                    let mut batch = sled::Batch::default();
                    let mut any = false;
                    for op in part.iter().filter(|op| op.tree == tree) {
                        any = true;
                        match &op.value {
                            Some(value) => batch.insert(op.key.as_slice(), value.as_slice()),
                            None => batch.remove(op.key.as_slice()),
                        }
                    }
                    if any {
                        self.tree(tree).apply_batch(batch)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Makes everything written durable.
    pub(super) fn persist(&self) -> Result<(), IndexFault> {
        guarded(|| {
            self.db.flush()?;
            self.file.sync_data()?;
            Ok(())
        })
    }

    /// Writes the checkpoint record; durable when it returns.
    pub(super) fn commit(&self, checkpoint: &Checkpoint) -> Result<(), IndexFault> {
        self.persist()?;
        guarded(|| {
            self.meta.insert(CHECKPOINT, checkpoint.to_value())?;
            Ok(())
        })?;
        self.persist()
    }

    pub(super) fn checkpoint(&self) -> Result<Checkpoint, IndexFault> {
        guarded(|| {
            let value = self.meta.get(CHECKPOINT)?.ok_or(IndexFault::NoCheckpoint)?;
            Checkpoint::from_value(&value).ok_or(IndexFault::Unreadable("meta"))
        })
    }

    /// Loads everything but identities and out-of-line details.
    pub(super) fn load(&self, checkpoint: &Checkpoint, state: &mut State) -> Result<(), IndexFault> {
        guarded(|| {
            state.reset_to(&checkpoint.header);
            state.lsn = checkpoint.lsn;
            for entry in &self.outbox {
                let (key, value) = entry?;
                load_outbox(&key, &value, state).ok_or(IndexFault::Unreadable("outbox"))?;
            }
            for entry in &self.schedule {
                let (key, value) = entry?;
                let slip = Slip::from_value(&value);
                let (endpoint, seq, slip) = endpoint_at(&key, 0)
                    .zip(number(&key, 4))
                    .zip(slip)
                    .map(|((endpoint, seq), slip)| (endpoint, Seq(seq), slip))
                    .ok_or(IndexFault::Unreadable("schedule"))?;
                let known = state.endpoints.entry(endpoint).or_default();
                if known.pending.contains(seq) {
                    known.place_slip(seq, slip.due);
                }
            }
            Ok(())
        })
    }

    pub(super) fn slip(&self, endpoint: EndpointId, seq: Seq) -> Option<Slip> {
        Slip::from_value(&self.schedule.get(be(endpoint, seq.0)).ok()??)
    }

    pub(super) fn letter(&self, seq: Seq, endpoint: EndpointId) -> Option<Letter> {
        Letter::from_value(&self.letters.get(letter_key(seq, endpoint)).ok()??)
    }

    /// Keys under which a freed segment left something.
    pub(super) fn segment_ops(&self, segment: u64) -> Vec<Op> {
        let prefix = tagged(b'm', &segment.to_be_bytes());
        let moved = self.outbox.scan_prefix(prefix).keys().filter_map(Result::ok);
        let remove = |key: Vec<u8>| Op { tree: Tree::Outbox, key, value: None };
        let mut ops: Vec<Op> = moved.map(|key| remove(key.to_vec())).collect();
        ops.push(Op::segment(segment, None));
        ops
    }

    /// The identities tree, for [`super::keys`].
    pub(super) fn identities(&self) -> &sled::Tree {
        &self.identities
    }
}

/// A snapshot that was being written when the process died; torn, it would make sled refuse to open.
fn remove_torn_snapshots(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("snap.") && name.ends_with(".generating")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn load_outbox(key: &[u8], value: &[u8], state: &mut State) -> Option<()> {
    match key.first()? {
        b'p' => {
            let endpoint = state.endpoints.entry(endpoint_at(key, 1)?).or_default();
            endpoint.pending.load_chunk(number(key, 5)?, value)
        }
        b'd' => {
            let endpoint = state.endpoints.entry(endpoint_at(key, 1)?).or_default();
            endpoint.dead.load_chunk(number(key, 5)?, value)
        }
        b's' => {
            let id = number(key, 1)?;
            let SegmentEntry { first_seq, count, event_bytes, used, index_at, last_lsn } =
                SegmentEntry::from_value(value)?;
            let segment =
                Segment { first_seq, count, event_bytes, used, index_at, last_lsn, ..Segment::default() };
            state.segments.insert(id, segment);
            if count > 0 {
                state.by_seq.insert(first_seq, id);
            }
            Some(())
        }
        b'm' => {
            let segment = number(key, 1)?;
            let (version, entries) = value.split_first()?;
            if *version != super::records::VERSION || entries.len() % 16 != 0 {
                return None;
            }
            for one in entries.chunks_exact(16) {
                let seq = Seq(u64::from_le_bytes(one[..8].try_into().ok()?));
                let offset = u32::from_le_bytes(one[8..12].try_into().ok()?);
                let bytes = u32::from_le_bytes(one[12..].try_into().ok()?);
                // Keys ascend by segment, so the newest copy comes last.
                state.moved.insert(seq, Place { segment, offset, bytes });
            }
            Some(())
        }
        _ => None,
    }
}
