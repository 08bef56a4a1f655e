//! Checkpoints: what changed goes from memory into the index, on a thread of its own, so that no accept waits for it.
//!
//! The log thread syncs the log, takes a snapshot of the changes and hands it over; it goes on while the index thread
//! writes. When the checkpoint is durable, segments that nothing needs any more are deleted from the head of the log.
//! Until then they stay, because recovery would start from the checkpoint before.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::home::dir_bytes;
use super::index::{Index, IndexFault, Op};
use super::keys::KeyJob;
use super::records::{Checkpoint, Letter, Slip};
use super::shared::Shared;
use super::state::{Place, Segment, State};
use super::writer::Writer;
use crate::core::ids::{EndpointId, Seq};

/// A key with its new value; `None` is a removal.
type Changed<K, T> = (K, Option<Arc<T>>);

/// Changes taken from memory.
#[derive(Default)]
pub(super) struct Changes {
    /// Chunks of the sets, and segments.
    ops: Vec<Op>,
    slips: Vec<Changed<(EndpointId, Seq), Slip>>,
    letters: Vec<Changed<(Seq, EndpointId), Letter>>,
    moved: Vec<(Seq, Place)>,
    freed: Vec<u64>,
    lsn: u64,
}

/// A checkpoint on its way to the index.
pub(super) struct Job {
    changes: Changes,
    checkpoint: Checkpoint,
    keys: KeyJob,
}

/// A checkpoint that came back.
pub(super) struct Done {
    job: Job,
    result: Result<(), IndexFault>,
}

impl Changes {
    /// Takes the changes since the last snapshot; they stay visible to look-ups until the overlay is told `written`.
    pub(super) fn take(state: &mut State, since_lsn: u64, freed: Vec<u64>) -> Self {
        let lsn = state.lsn;
        let State { overlay, endpoints, segments, .. } = state;
        let (layer, moved) = overlay.snapshot();
        let chunk = |id: &EndpointId, chunk: u64, dead: bool| {
            let one = endpoints.get(id)?;
            if dead { one.dead.chunk_bytes(chunk) } else { one.pending.chunk_bytes(chunk) }
        };
        let mut ops = Vec::with_capacity(layer.pending.len() + layer.dead.len());
        ops.extend(layer.pending.iter().map(|(id, at)| Op::pending(*id, *at, chunk(id, *at, false))));
        ops.extend(layer.dead.iter().map(|(id, at)| Op::dead(*id, *at, chunk(id, *at, true))));
        let touched = |one: &Segment| one.last_lsn == 0 || one.last_lsn > since_lsn;
        ops.extend(
            segments.iter().filter(|(_, one)| touched(one)).map(|(id, one)| Op::segment(*id, Some(one))),
        );
        Self {
            ops,
            slips: layer.slips.iter().map(|(key, change)| (*key, change.value.clone())).collect(),
            letters: layer.letters.iter().map(|(key, change)| (*key, change.value.clone())).collect(),
            moved,
            freed,
            lsn,
        }
    }

    /// Writes them to the index, not yet durable.
    pub(super) fn write(&self, index: &Index, keys: &KeyJob) -> Result<u64, IndexFault> {
        let mut ops = self.ops.clone();
        ops.extend(self.slips.iter().map(|((id, seq), slip)| Op::slip(*id, *seq, slip.as_deref())));
        ops.extend(self.letters.iter().map(|((seq, id), letter)| Op::letter(*seq, *id, letter.as_deref())));
        let mut rest = &self.moved[..];
        while let Some((_, first)) = rest.first() {
            let (same, other) =
                rest.split_at(rest.partition_point(|(_, place)| place.segment == first.segment));
            ops.extend(Op::moved(first.segment, self.lsn, same));
            rest = other;
        }
        ops.extend(keys.ops(index)?);
        for &segment in &self.freed {
            ops.extend(index.segment_ops(segment));
        }
        index.write(&ops)?;
        Ok(ops.iter().map(Op::bytes).sum())
    }

    pub(super) fn into_moved(self) -> Vec<(Seq, Place)> {
        self.moved
    }
}

/// The thread that owns sled's writes.
struct IndexThread {
    shared: Arc<Shared>,
    dir: PathBuf,
    jobs: Receiver<Job>,
    done: SyncSender<Done>,
}

/// Starts it; gives where jobs go and where they come back.
pub(super) fn spawn(shared: Arc<Shared>, dir: PathBuf) -> std::io::Result<(SyncSender<Job>, Receiver<Done>)> {
    // One checkpoint at a time.
    let (jobs_in, jobs) = sync_channel(1);
    let (done, done_out) = sync_channel(1);
    let thread = IndexThread { shared, dir, jobs, done };
    std::thread::Builder::new().name("waypost-index".to_owned()).spawn(move || thread.run())?;
    Ok((jobs_in, done_out))
}

impl IndexThread {
    fn run(self) {
        while let Ok(job) = self.jobs.recv() {
            let result = self.write(&job);
            if result.is_err() {
                // sled is poisoned after an error (a full disk, for one) until it is opened anew.
                self.shared.set_index(None);
            }
            let bytes = dir_bytes(&self.dir);
            self.shared.figures.index_bytes.store(bytes, Ordering::Relaxed);
            if self.done.send(Done { job, result }).is_err() {
                return;
            }
        }
    }

    fn write(&self, job: &Job) -> Result<(), IndexFault> {
        let index = if let Some(index) = self.shared.index() {
            index
        } else {
            let index = Index::open(&self.dir)?;
            self.shared.set_index(Some(index.clone()));
            index
        };
        let bytes = job.changes.write(&index, &job.keys)?;
        self.shared.figures.index_written_bytes.fetch_add(bytes, Ordering::Relaxed);
        index.commit(&job.checkpoint)
    }
}

/// The log thread's side.
pub(super) struct Checkpoints {
    pub(super) jobs: SyncSender<Job>,
    pub(super) done: Receiver<Done>,
    pub(super) running: bool,
    /// Newest LSN that a durable checkpoint covers.
    pub(super) lsn: u64,
    /// Bytes of log written when the last one started, and its store time.
    pub(super) log_bytes: u64,
    pub(super) at_ms: u64,
    /// Segments deleted since the last one.
    pub(super) freed: Vec<u64>,
    pub(super) failed: bool,
    /// To be done without waiting for its usual time.
    pub(super) urgent: bool,
}

impl Writer {
    /// Starts a checkpoint if one is due.
    pub(super) fn checkpoint_if_due(&mut self, now_ms: u64) {
        self.collect_checkpoint(false);
        if self.checkpoints.running {
            return;
        }
        let tuning = &self.shared.tuning;
        let changes = self.shared.state().overlay.len();
        let since_ms = now_ms.saturating_sub(self.checkpoints.at_ms);
        let bytes = self.log.written_bytes - self.checkpoints.log_bytes;
        let many = bytes >= tuning.checkpoint_bytes || changes >= tuning.checkpoint_changes;
        // After a failure not at once again: the disk is full, or worse.
        let due = if self.checkpoints.failed { since_ms >= 1_000 } else { many || self.checkpoints.urgent };
        if due || (self.log.last_lsn() > self.checkpoints.lsn && since_ms >= tuning.checkpoint_ms) {
            self.start_checkpoint(false);
        }
    }

    /// Hands the changes so far to the index thread.
    pub(super) fn start_checkpoint(&mut self, clean: bool) {
        // The index must never know more than the log on the device.
        if self.sync().is_err() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let now = shared.clock.now();
        self.checkpoints.at_ms = now.store.0;
        self.checkpoints.urgent = false;
        self.checkpoints.log_bytes = self.log.written_bytes;
        let (keys, early) = self.keys.job(now.store);
        if early {
            shared.warn(
                "the memory of idempotency keys is full (keys_bytes_max): the oldest are forgotten before their ttl"
                    .to_owned(),
            );
        }
        let (segment, offset) =
            self.log.position().map_or((self.log.next_segment(), 0), |(segment, tail, _)| (segment, tail));
        let (changes, header) = {
            let mut state = shared.state();
            if let Some(active) = state.segments.get_mut(&segment) {
                (active.used, active.last_lsn) = (offset, self.log.last_lsn());
            }
            let changes =
                Changes::take(&mut state, self.checkpoints.lsn, std::mem::take(&mut self.checkpoints.freed));
            (changes, state.header(segment, shared.clock.watermark()))
        };
        let checkpoint = Checkpoint { lsn: self.log.last_lsn(), offset, header, clean };
        match self.checkpoints.jobs.try_send(Job { changes, checkpoint, keys }) {
            Ok(()) => self.checkpoints.running = true,
            Err(_) => self.shared.warn("the index thread has ended; a restart is needed".to_owned()),
        }
    }

    /// Takes back a checkpoint that is done; waits for it if `wait`.
    pub(super) fn collect_checkpoint(&mut self, wait: bool) {
        if !self.checkpoints.running {
            return;
        }
        let done =
            if wait { self.checkpoints.done.recv().ok() } else { self.checkpoints.done.try_recv().ok() };
        let Some(Done { job, result }) = done else { return };
        self.checkpoints.running = false;
        match result {
            Ok(()) => {
                self.checkpoints.failed = false;
                self.checkpoints.lsn = job.checkpoint.lsn;
                self.keys.written(&job.keys);
                self.shared.state().overlay.written();
                self.free_head();
            }
            Err(error) => {
                if !self.checkpoints.failed {
                    tracing::warn!(%error, "the index could not be written; trying again, the log goes on");
                }
                self.checkpoints.failed = true;
                self.checkpoints.freed.extend(&job.changes.freed);
                self.shared.state().overlay.not_written(job.changes.into_moved());
            }
        }
    }

    /// Deletes segments at the head of the log that nothing needs: no event of theirs is live, and the checkpoint
    /// covers both their records and those that ended their events.
    pub(super) fn free_head(&mut self) {
        let active = self.log.position().map(|(segment, _, _)| segment);
        loop {
            let head = {
                let state = self.shared.state();
                let Some((&id, segment)) = state.segments.first_key_value() else { return };
                let covered = segment.last_lsn.max(segment.ended_lsn) <= self.checkpoints.lsn;
                // The newest one stays even when it is finished: without the index its header is all that remembers.
                if Some(id) == active || segment.live > 0 || !covered || state.segments.len() == 1 {
                    return;
                }
                id
            };
            if let Err(error) = self.log.remove(head)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(segment = head, %error, "a finished log segment could not be deleted");
                return;
            }
            self.timers.looked_at_disk_ms = None; // the file system has room again
            self.shared.reader.forget(head);
            self.shared.state().free_segment(head);
            self.checkpoints.freed.push(head);
        }
    }
}
