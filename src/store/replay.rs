//! Replay: the index as it was at its checkpoint, then every record of the log behind it, through the function that
//! live traffic uses. Without an index, every record there is.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::books::settle_books;
use super::checkpoint::Changes;
use super::disk::Disk;
use super::frame::{self, Frame, Kind, Piece, scan};
use super::home::{Home, dir_bytes};
use super::index::{Index, IndexFault};
use super::keys::{KeyLimits, Keys, Known};
use super::read::{Reader, salvage};
use super::records::{Accepted, Header, Record};
use super::state::{Place, Segment, State, signed};
use super::types::Recovery;
use super::witness::Witness;
use crate::clock::Watermark;
use crate::core::ids::{EndpointId, Seq, StoreSalt};
use crate::core::time::StoreTime;

/// What recovery comes to.
pub(super) struct Recovered {
    pub(super) state: State,
    pub(super) keys: Keys,
    pub(super) recovery: Recovery,
    pub(super) reader: Reader,
    pub(super) index: Option<Index>,
    pub(super) lsn: u64,
    pub(super) checkpoint_lsn: u64,
    /// Newest segment that the index knows of: its number is not used again.
    pub(super) covered_segment: u64,
    pub(super) watermark: Option<Watermark>,
}

/// The index and the log behind its checkpoint, or the whole log.
pub(super) fn recover(
    home: &Home,
    disk: &Arc<dyn Disk>,
    salt: StoreSalt,
    limits: KeyLimits,
    segments: &[(u64, u64)],
    recovery: Recovery,
) -> Recovered {
    let fresh = recovery.created;
    let mut replay = Replay::new(home, disk, salt, limits, recovery);
    let from_index = if fresh { Err(IndexFault::NoCheckpoint) } else { replay.load_index(segments) };
    let fault = match from_index {
        Ok(()) => return replay.finish(),
        Err(fault) => fault,
    };
    let recovery = replay.recovery;
    let mut replay = Replay::new(home, disk, salt, limits, recovery);
    if !fresh {
        replay.give_up_index(&fault);
    }
    match Index::open(&home.index_dir()) {
        Ok(index) => replay.index = Some(index),
        Err(error) => replay.recovery.warnings.push(format!("the index cannot be opened: {error}")),
    }
    replay.whole_log(segments);
    replay.finish()
}

/// A segment header names its salt; the checksum with it proves it.
pub(super) fn salt_of_segment(disk: &dyn Disk, id: u64) -> Option<StoreSalt> {
    read_header(disk, id, None).map(|header| header.salt)
}

fn header_of_segment(disk: &dyn Disk, id: u64, salt: StoreSalt) -> Option<Header> {
    read_header(disk, id, Some(salt))
}

pub(super) fn read_header(disk: &dyn Disk, id: u64, salt: Option<StoreSalt>) -> Option<Header> {
    let file = disk.open(id).ok()?;
    let mut head = vec![0; 256 << 10];
    let read = file.read_at(&mut head, 0).ok()?;
    let bytes = &head[..read];
    let len = frame::content_bytes(bytes)?;
    let content = bytes.get(frame::FRAME_HEAD..frame::FRAME_HEAD + len)?;
    let (Record::Header(header), _) = Record::decode(Kind::Header, bytes[25], content, StoreSalt(0))? else {
        return None;
    };
    frame::Home { salt: header.salt.0, segment: id }.open(bytes, 0)?;
    salt.is_none_or(|salt| salt == header.salt).then_some(*header)
}

/// Changes that recovery keeps in memory before it writes them to the index.
const SPILL_CHANGES: usize = 20_000;

/// What a slip or letter takes in the index, with a few attempts in it.
const VALUE_BYTES: u64 = 600;
/// From when on the index is rewritten at a start (STORAGE section 2).
const SLIM_ABOVE_BYTES: u64 = 64 << 20;
const SLIM_ABOVE_TIMES: u64 = 4;

/// A replay of the log.
struct Replay<'a> {
    home: &'a Home,
    disk: Arc<dyn Disk>,
    index: Option<Index>,
    reader: Reader,
    state: State,
    keys: Keys,
    recovery: Recovery,
    /// Newest record seen.
    lsn: u64,
    /// What the index covers: records up to here are not applied.
    covered_lsn: u64,
    covered_segment: u64,
    watermark: Option<Watermark>,
    /// Whether bytes were unreadable since the last good record.
    damaged: bool,
    /// Segments in which records may be missing.
    hurt: BTreeSet<u64>,
    /// Endpoints of the last accepted event: for whom lost ones probably were.
    neighbours: Vec<EndpointId>,
}

impl<'a> Replay<'a> {
    fn new(
        home: &'a Home,
        disk: &Arc<dyn Disk>,
        salt: StoreSalt,
        limits: KeyLimits,
        recovery: Recovery,
    ) -> Self {
        let mut state = State::new(salt);
        state.overlay.recovering = true;
        Self {
            home,
            disk: Arc::clone(disk),
            index: None,
            reader: Reader::new(Arc::clone(disk), salt),
            state,
            keys: Keys::new(limits),
            recovery,
            lsn: 0,
            covered_lsn: 0,
            covered_segment: 0,
            watermark: None,
            damaged: false,
            hurt: BTreeSet::new(),
            neighbours: Vec::new(),
        }
    }

    /// Loads the index and replays what it does not cover.
    fn load_index(&mut self, files: &[(u64, u64)]) -> Result<(), IndexFault> {
        if !self.home.index_dir().exists() {
            return Err(IndexFault::NoCheckpoint);
        }
        let index = match Index::open(&self.home.index_dir()) {
            Err(error) if error.is_full() => {
                // sled writes when it opens; the ballast is for this.
                let _ = std::fs::remove_file(self.home.dir.join("BALLAST"));
                Index::open(&self.home.index_dir())?
            }
            other => other?,
        };
        let checkpoint = index.checkpoint()?;
        if checkpoint.header.salt != self.state.salt {
            return Err(IndexFault::Foreign);
        }
        let resume = checkpoint.header.segment;
        if files.first().is_some_and(|(id, _)| *id > resume) {
            return Err(IndexFault::Stale);
        }
        index.load(&checkpoint, &mut self.state)?;
        self.keys.load(&index)?;
        self.index = Some(self.slimmed(index)?);
        (self.lsn, self.covered_lsn, self.covered_segment) = (0, checkpoint.lsn, resume);
        self.watermark = Some(checkpoint.header.watermark);
        self.recovery.clean = checkpoint.clean;
        let mut damaged = self.check_files(files, checkpoint.header.head, resume);
        for &(id, bytes) in files.iter().filter(|(id, _)| *id >= resume) {
            self.segment(id, bytes);
        }
        self.lsn = self.lsn.max(checkpoint.lsn);
        damaged |= !self.hurt.is_empty();
        let agrees = self.state.endpoints.values().all(|one| {
            one.counts.pending == signed(one.pending.len()) && one.counts.dead == signed(one.dead.len())
        });
        if agrees || damaged { Ok(()) } else { Err(IndexFault::Disagrees) }
    }

    /// The index without its dead space, if it has much: sled gives it back only to a fresh copy.
    fn slimmed(&self, index: Index) -> Result<Index, IndexFault> {
        let endpoints = self.state.endpoints.values();
        let values: u64 =
            endpoints.map(|one| one.dead.len() + one.waiting.len() as u64 + one.returned.len()).sum();
        let expected = self.keys.bytes() + values * VALUE_BYTES + (1 << 20);
        let size = dir_bytes(&self.home.index_dir());
        if size <= SLIM_ABOVE_BYTES || size <= SLIM_ABOVE_TIMES * expected {
            return Ok(index);
        }
        drop(index);
        if let Err(error) = self.home.rewrite_index() {
            tracing::warn!(%error, "the index could not be rewritten without its dead space");
        }
        Index::open(&self.home.index_dir())
    }

    /// Compares the files with what the index says of full segments; says whether something is missing.
    fn check_files(&mut self, files: &[(u64, u64)], head: u64, resume: u64) -> bool {
        for &(id, _) in files.iter().filter(|(id, _)| *id < resume) {
            if id < head || !self.state.segments.contains_key(&id) {
                // Freed before the checkpoint; a power cut brought its name back.
                let _ = self.disk.remove(id);
            }
        }
        let mut missing = Vec::new();
        for (&id, segment) in self.state.segments.range_mut(..=resume) {
            match files.iter().find(|(file, _)| *file == id) {
                Some(_) if id == resume => {} // will be read again
                Some(&(_, bytes)) => {
                    segment.capacity = bytes;
                    if bytes < segment.used {
                        self.hurt.insert(id);
                    }
                }
                None => missing.push(id),
            }
        }
        let mut needed = false;
        for id in missing {
            let live = self.state.segments.get(&id).is_some_and(|one| {
                let end = Seq(one.first_seq.0 + u64::from(one.count));
                let sets = self.state.endpoints.values().flat_map(|one| [&one.pending, &one.dead]);
                one.count > 0 && sets.into_iter().any(|set| set.range(one.first_seq, end).next().is_some())
            });
            if live {
                self.recovery.warnings.push(format!("log segment {id} is missing"));
                needed = true;
            }
            self.state.free_segment(id);
        }
        for id in &self.hurt {
            self.recovery.warnings.push(format!("log segment {id} is shorter than it was"));
        }
        needed || !self.hurt.is_empty()
    }

    /// Moves an index that is of no use aside.
    fn give_up_index(&mut self, fault: &IndexFault) {
        let path = self.home.index_dir();
        self.recovery.rebuilt = true;
        self.recovery.warnings.push(format!(
            "the index was rebuilt from the log ({fault}); idempotency keys of events that have left the log are forgotten"
        ));
        if path.exists() && self.home.move_aside(&path).is_err() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }

    /// Replays everything there is.
    fn whole_log(&mut self, files: &[(u64, u64)]) {
        let head = files
            .iter()
            .rev()
            .find_map(|&(id, _)| Some(header_of_segment(&*self.disk, id, self.state.salt)?.head));
        for &(id, bytes) in files {
            if head.is_some_and(|head| id < head) {
                // A file that a power cut brought back: what ended its events may be gone.
                let _ = self.disk.remove(id);
            } else {
                self.segment(id, bytes);
            }
        }
    }

    fn segment(&mut self, id: u64, bytes: u64) {
        self.state.free_segment(id);
        self.state.segments.insert(id, Segment { capacity: bytes, ..Segment::default() });
        let mut buffer = vec![0; bytes as usize];
        let read = self.disk.open(id).and_then(|file| {
            // What is read now must not be gone after a power cut: from here on it counts. If the disk cannot even do
            // that, nothing better is left than to go on with what it gives.
            let _ = file.sync();
            salvage(&*file, &mut buffer)
        });
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.hurt.insert(id);
                self.recovery.warnings.push(format!("log segment {id} could not be read: {error}"));
                0
            }
        };
        let home = frame::Home { salt: self.state.salt.0, segment: id };
        let mut used = 0;
        for piece in scan(home, &buffer[..read], 0, self.lsn) {
            match piece {
                Piece::Good(offset, frame) => {
                    used = offset + frame.bytes() as u64;
                    self.record(id, offset, &frame);
                }
                Piece::Bad(offset, bad) => self.bad(id, offset, bad),
            }
            if self.state.overlay.len() >= SPILL_CHANGES || self.keys.is_large() {
                self.spill();
            }
        }
        if let Some(segment) = self.state.segments.get_mut(&id) {
            (segment.used, segment.last_lsn) = (used, self.lsn);
            if used < bytes && self.disk.truncate(id, used).is_ok() {
                segment.capacity = used;
            }
        }
    }

    /// Writes changes to the index on the way, so that memory does not grow with the log. Not a checkpoint: if the
    /// process dies now, the replay is done again and comes to the same.
    fn spill(&mut self) {
        let Some(index) = &self.index else { return };
        let now = self.watermark.map_or(StoreTime(0), |mark| mark.store);
        let (job, _) = self.keys.job(now);
        let changes = Changes::take(&mut self.state, 0, Vec::new());
        match changes.write(index, &job) {
            Ok(_) => {
                self.state.overlay.written();
                self.keys.written(&job);
            }
            Err(error) => {
                self.recovery.warnings.push(format!("the index could not be written: {error}"));
                self.state.overlay.not_written(changes.into_moved());
                self.index = None;
            }
        }
    }

    fn finish(mut self) -> Recovered {
        self.heed_witness();
        settle_books(&mut self.state, &self.reader, &self.hurt, &mut self.recovery);
        let replayed = self.lsn > self.covered_lsn;
        self.recovery.clean &= !replayed && !self.recovery.rebuilt;
        Recovered {
            state: self.state,
            keys: self.keys,
            recovery: self.recovery,
            reader: self.reader,
            index: self.index,
            lsn: self.lsn,
            checkpoint_lsn: self.covered_lsn,
            covered_segment: self.covered_segment,
            watermark: self.watermark,
        }
    }

    fn bad(&mut self, segment: u64, offset: u64, bytes: &[u8]) {
        self.damaged = true;
        self.hurt.insert(segment);
        self.recovery.quarantined_bytes += self.home.set_aside(segment, offset, bytes);
        self.recovery.warnings.push(format!(
            "log segment {segment}: {} unreadable bytes at {offset} were set aside in quarantine/",
            bytes.len()
        ));
    }

    fn record(&mut self, segment: u64, offset: u64, frame: &Frame<'_>) {
        let before = std::mem::replace(&mut self.lsn, frame.lsn);
        let Some((record, _)) = Record::decode(frame.kind, frame.version, frame.content, self.state.salt)
        else {
            self.bad(segment, offset, frame.content);
            return;
        };
        let place = Place { segment, offset: offset as u32, bytes: frame.bytes() as u32 };
        if frame.lsn <= self.covered_lsn {
            self.covered(&record, place);
            self.damaged = false;
            return;
        }
        match &record {
            Record::Header(header) => {
                self.keys.undo_from(header.next_seq);
                self.state.reset_to(header);
                self.watermark = Some(header.watermark);
            }
            Record::Accepted(accepted) => {
                if self.damaged && frame.synced_lsn > before {
                    self.count_gap(accepted.event.head.seq, &accepted.deliver);
                }
                self.accepted(accepted);
            }
            Record::Mark { next_seq } if self.damaged && frame.synced_lsn > before => {
                let neighbours = std::mem::take(&mut self.neighbours);
                self.count_gap(*next_seq, &neighbours);
                self.state.next_seq = self.state.next_seq.max(*next_seq);
            }
            Record::Index(_) => {
                if let Some(segment) = self.state.segments.get_mut(&segment) {
                    segment.index_at = offset;
                }
            }
            _ => {}
        }
        if !matches!(record, Record::Header(_) | Record::Index(_) | Record::Mark { .. }) {
            self.recovery.replayed += 1;
        }
        self.damaged = false;
        self.state.apply(frame.lsn, &record, place);
    }

    /// A record of the segment in which the checkpoint lies, before it: only the segment's own figures are wanted.
    fn covered(&mut self, record: &Record, place: Place) {
        match record {
            Record::Accepted(accepted) => self.state.note_event(accepted.event.head.seq, place),
            Record::Index(_) => {
                if let Some(segment) = self.state.segments.get_mut(&place.segment) {
                    segment.index_at = u64::from(place.offset);
                }
            }
            _ => {}
        }
    }

    /// Sequences are dense: those missing before `seq` were accepted and are lost.
    fn count_gap(&mut self, seq: Seq, endpoints: &[EndpointId]) {
        let gap = i64::try_from(seq.0.saturating_sub(self.state.next_seq.0)).unwrap_or(0);
        for id in endpoints {
            let counts = &mut self.state.endpoints.entry(*id).or_default().counts;
            counts.accepted += gap;
            counts.pending += gap;
        }
    }

    /// Counts what the witness saw synced and the log does not have any more: its end was destroyed.
    fn heed_witness(&mut self) {
        let Some(witness) = Witness::read(&self.home.dir, self.state.salt) else { return };
        let gone = signed(witness.next_seq.0.saturating_sub(self.state.next_seq.0));
        if gone == 0 {
            return;
        }
        for (id, accepted) in witness.accepted {
            let counts = &mut self.state.endpoints.entry(id).or_default().counts;
            counts.accepted += (accepted - counts.accepted).clamp(0, gone);
        }
        self.state.next_seq = witness.next_seq;
        self.recovery.clean = false;
        self.recovery.warnings.push(format!("the end of the log is gone: {gone} events that were synced"));
    }

    fn accepted(&mut self, accepted: &Accepted) {
        let head = &accepted.event.head;
        self.keys.insert(
            head.identity,
            Known {
                seq: head.seq,
                accepted: head.accepted,
                accepted_at: head.accepted_at,
                digest: head.digest,
                dedup: accepted.event.dedup,
            },
        );
        self.watermark = Some(Watermark {
            store: head.accepted,
            wall: head.accepted_at,
            wall_trusted: head.clock_trusted,
        });
        self.neighbours.clone_from(&accepted.deliver);
    }
}
