//! Opening a store: whatever is on the disk, it starts.
//!
//! The index gives the state at its last checkpoint; the log behind it is replayed through [`State::apply`]. Without
//! a usable index the whole log is replayed, which gives the same state, because the log is freed from its head only
//! and every segment header repeats the counters. Bytes that are no record are copied to `quarantine/`. In the end
//! the counters must agree with what is there: what they have more is what damage took, and is counted as `lost`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use super::checkpoint::{self, Changes, Checkpoints};
use super::disk::{Disk, FileDisk};
use super::error::OpenError;
use super::frame::{self, Frame, Kind, Piece, scan};
use super::home::{Format, Home, dir_bytes, io_error};
use super::index::{Index, IndexFault};
use super::keys::{KeyLimits, Keys, Known};
use super::log::Log;
use super::read::Reader;
use super::records::{Accepted, Header, Record};
use super::shared::{Shared, Tuning};
use super::state::{Effect, Need, Place, Segment, State, signed};
use super::types::{Recovery, StoreConfig};
use super::writer::{NOWHERE, Timers, Writer};
use super::{LINE_REQUESTS, Outbox};
use crate::clock::{Clock, Watermark};
use crate::core::delivery::End;
use crate::core::ids::{EndpointId, EndpointName, Seq, StoreSalt};
use crate::core::time::StoreTime;

/// Name of the endpoint of events that no route wants; no config can name one so.
const UNROUTED_NAME: &str = "(unrouted)";

/// Opens a store; a test brings its own disk.
pub(super) fn open(
    config: StoreConfig,
    clock: Clock,
    tuning: Tuning,
    disk: Option<Arc<dyn Disk>>,
) -> Result<(Outbox, Recovery), OpenError> {
    let home = Home::enter(&config.dir)?;
    let disk = disk.unwrap_or_else(|| Arc::new(FileDisk::new(&home.log_dir())));
    let listed = |disk: &dyn Disk| disk.list().map_err(|source| io_error("read", &home.log_dir(), source));
    let mut recovery = Recovery::default();
    let salt = establish_salt(&home, &*disk, &listed(&*disk)?, &mut recovery)?;
    let segments = listed(&*disk)?;
    let limits = KeyLimits {
        ttl: config.key_ttl,
        window: config.window_without_time,
        bytes_max: config.keys_bytes_max,
        generation_keys: tuning.generation_keys,
    };
    let recovered = recover(&home, &disk, salt, limits, &segments, recovery);
    let Recovered {
        mut state,
        keys,
        mut recovery,
        reader,
        index,
        lsn,
        checkpoint_lsn,
        covered_segment,
        watermark,
    } = recovered;
    state.overlay.recovering = false;
    if let Some(watermark) = watermark {
        clock.resume(watermark);
    }
    let newest_segment = segments.last().map_or(0, |(id, _)| *id).max(covered_segment);
    let log = Log::new(disk, salt, newest_segment + 1, lsn + 1, tuning.segment_bytes);
    let (quarantined, index_dir) = (dir_bytes(&home.dir.join("quarantine")), home.index_dir());
    let shared = Arc::new(Shared::new(config, clock, tuning, reader, state, index));
    shared.figures.quarantined_bytes.store(quarantined, Ordering::Relaxed);
    shared.figures.index_bytes.store(dir_bytes(&index_dir), Ordering::Relaxed);
    recovery.warnings.dedup();
    recovery.warnings.iter().for_each(|text| shared.warn(text.clone()));
    let thread_fault =
        |source| OpenError::Io { doing: "start a thread for", path: shared.config.dir.clone(), source };
    let (jobs, done) = checkpoint::spawn(Arc::clone(&shared), index_dir).map_err(thread_fault)?;
    // As many places as permits, and some for requests that need none (close).
    let (line, requests) = sync_channel(LINE_REQUESTS + 16);
    let checkpoints = Checkpoints {
        jobs,
        done,
        running: false,
        lsn: checkpoint_lsn,
        log_bytes: 0,
        at_ms: shared.clock.now().store.0,
        freed: Vec::new(),
        failed: false,
        urgent: false,
    };
    let mut writer = Writer {
        shared: Arc::clone(&shared),
        log,
        keys,
        requests,
        timers: Timers::default(),
        checkpoints,
        admitted_bytes: 0,
        home,
    };
    writer.begin(recovery.created || recovery.rebuilt || recovery.replayed > 0);
    std::thread::Builder::new()
        .name("waypost-log".to_owned())
        .spawn(move || writer.run())
        .map_err(thread_fault)?;
    Ok((Outbox::new(shared, line), recovery))
}

/// What recovery comes to.
struct Recovered {
    state: State,
    keys: Keys,
    recovery: Recovery,
    reader: Reader,
    index: Option<Index>,
    lsn: u64,
    checkpoint_lsn: u64,
    /// Newest segment that the index knows of: its number is not used again.
    covered_segment: u64,
    watermark: Option<Watermark>,
}

/// The index and the log behind its checkpoint, or the whole log.
fn recover(
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

/// The salt from `FORMAT`, else from a segment, else a new one. Old files without a readable salt are set aside.
fn establish_salt(
    home: &Home,
    disk: &dyn Disk,
    segments: &[(u64, u64)],
    recovery: &mut Recovery,
) -> Result<StoreSalt, OpenError> {
    if let Some(format) = Format::read(&home.dir) {
        return Ok(format.salt);
    }
    let salt = segments.iter().find_map(|&(id, _)| salt_of_segment(disk, id));
    let has_index = home.index_dir().exists();
    let salt = if let Some(salt) = salt {
        recovery.warnings.push("the FORMAT file was missing or damaged; it was written again".to_owned());
        salt
    } else {
        if segments.is_empty() && !has_index {
            recovery.created = true;
        } else {
            recovery.warnings.push(
                    "no file of the store could be read; the old files are in quarantine/ and the store starts empty"
                        .to_owned(),
                );
            for &(id, bytes) in segments {
                recovery.quarantined_bytes += bytes;
                move_segment_aside(home, id)?;
            }
            if has_index {
                let path = home.index_dir();
                home.move_aside(&path).map_err(|source| io_error("move", &path, source))?;
            }
        }
        StoreSalt(crate::entropy::random_u64())
    };
    Format { version: super::home::FORMAT, salt }.write(&home.dir)?;
    Ok(salt)
}

fn move_segment_aside(home: &Home, id: u64) -> Result<(), OpenError> {
    let path = home.log_dir().join(super::disk::segment_name(id));
    home.move_aside(&path).map_err(|source| io_error("move", &path, source))
}

/// A segment header names its salt; the checksum with it proves it.
fn salt_of_segment(disk: &dyn Disk, id: u64) -> Option<StoreSalt> {
    read_header(disk, id, None).map(|header| header.salt)
}

fn header_of_segment(disk: &dyn Disk, id: u64, salt: StoreSalt) -> Option<Header> {
    read_header(disk, id, Some(salt))
}

fn read_header(disk: &dyn Disk, id: u64, salt: Option<StoreSalt>) -> Option<Header> {
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

/// A replay of the log.
struct Replay<'a> {
    home: &'a Home,
    disk: Arc<dyn Disk>,
    index: Option<Index>,
    reader: Reader,
    state: State,
    keys: Keys,
    limits: KeyLimits,
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
            limits,
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
        self.index = Some(index);
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

    /// Compares the files with what the index says of full segments; says whether something is missing.
    fn check_files(&mut self, files: &[(u64, u64)], head: u64, resume: u64) -> bool {
        for &(id, _) in files.iter().filter(|(id, _)| *id < resume) {
            if id < head || !self.state.segments.contains_key(&id) {
                // Freed before the checkpoint; a power cut brought its name back.
                let _ = self.disk.remove(id);
            }
        }
        let mut missing = Vec::new();
        for (&id, segment) in self.state.segments.range_mut(..resume) {
            match files.iter().find(|(file, _)| *file == id) {
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
            file.read_at(&mut buffer, 0)
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
        settle_books(&mut self.state, &self.reader, &self.hurt, &mut self.recovery);
        let replayed = self.lsn > self.covered_lsn;
        self.recovery.clean &= !replayed && !self.recovery.rebuilt;
        let _ = self.limits;
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

/// Takes out what has no bytes, makes the counters agree with what is there, and measures it.
fn settle_books(state: &mut State, reader: &Reader, hurt: &BTreeSet<u64>, recovery: &mut Recovery) {
    sweep(state, reader, hurt);
    for endpoint in state.endpoints.values_mut() {
        let (pending, dead) = (signed(endpoint.pending.len()), signed(endpoint.dead.len()));
        let counts = &mut endpoint.counts;
        (counts.pending, counts.dead) = (pending, dead);
        let missing = counts.accepted - counts.pending - counts.dead - counts.ended.iter().sum::<i64>();
        if missing > 0 {
            *counts.ended(End::Lost) += missing;
            recovery.lost += missing as u64;
        } else if missing < 0 {
            // Settlements were lost: their deliveries are pending again and will be repeated under their key.
            let delivered = counts.ended(End::Delivered);
            *delivered += missing;
            let short = (-*delivered).max(0);
            *delivered += short;
            counts.accepted += short;
        }
    }
    if recovery.lost > 0 {
        recovery
            .warnings
            .push(format!("{} deliveries were lost to damage and are counted as lost", recovery.lost));
    }
    measure(state, reader);
}

/// Clears what is pending or dead without a record in the log.
fn sweep(state: &mut State, reader: &Reader, hurt: &BTreeSet<u64>) {
    let ends = |one: &Segment| (one.first_seq, Seq(one.first_seq.0 + u64::from(one.count)));
    let mut lost: Vec<(EndpointId, Seq)> = Vec::new();
    for (&id, one) in &state.endpoints {
        for set in [&one.pending, &one.dead] {
            let whole = state.segments.iter().filter(|(number, one)| one.count > 0 && !hurt.contains(number));
            let covered: usize =
                whole.map(|(_, one)| ends(one)).map(|(from, to)| set.range(from, to).count()).sum();
            if covered as u64 == set.len() {
                continue;
            }
            lost.extend(
                set.iter_from(Seq(0))
                    .filter(|&seq| !has_record(state, reader, hurt, seq))
                    .map(|seq| (id, seq)),
            );
        }
    }
    for (id, seq) in lost {
        state.clear(id, seq);
    }
}

fn has_record(state: &State, reader: &Reader, hurt: &BTreeSet<u64>, seq: Seq) -> bool {
    let Some((id, known)) = state.locate(seq) else { return false };
    let Some(segment) = state.segments.get(&id) else { return false };
    match known {
        Some(place) => u64::from(place.offset) + u64::from(place.bytes) <= segment.capacity,
        None if hurt.contains(&id) => {
            reader.find(id, segment, seq).is_some_and(|place| reader.read(place).is_ok())
        }
        None => true,
    }
}

/// Counts what is live in each segment.
fn measure(state: &mut State, reader: &Reader) {
    let ids: Vec<u64> = state.segments.keys().copied().collect();
    for id in ids {
        let segment = state.segments[&id];
        if segment.count == 0 {
            continue;
        }
        let end = Seq(segment.first_seq.0 + u64::from(segment.count));
        let mut live: Vec<Seq> = Vec::new();
        for endpoint in state.endpoints.values() {
            live.extend(endpoint.pending.range(segment.first_seq, end));
            live.extend(endpoint.dead.range(segment.first_seq, end));
        }
        live.sort_unstable();
        live.dedup();
        let any_dead =
            state.endpoints.values().any(|one| one.dead.range(segment.first_seq, end).next().is_some());
        let any_moved = state.moved.range(segment.first_seq..end).next().is_some();
        if live.len() == segment.count as usize && !any_dead && !any_moved {
            count_live(state, id, segment.count, segment.event_bytes);
            continue;
        }
        for seq in live.into_iter().filter(|seq| !state.moved.contains_key(seq)).collect::<Vec<_>>() {
            let place = reader.find(id, &segment, seq).unwrap_or(Place { segment: id, ..NOWHERE });
            let effect = Effect { seq, was: Need::default(), is: state.need(seq) };
            state.account(effect, place, 0);
        }
    }
    let moved: Vec<(Seq, Place)> = state.moved.iter().map(|(&seq, &place)| (seq, place)).collect();
    for (seq, place) in moved {
        let is = state.need(seq);
        if is.live {
            state.account(Effect { seq, was: Need::default(), is }, place, 0);
        } else {
            state.moved.remove(&seq);
        }
    }
}

fn count_live(state: &mut State, id: u64, events: u32, bytes: u64) {
    if let Some(segment) = state.segments.get_mut(&id) {
        segment.live += events;
        segment.live_bytes += bytes;
    }
    state.live += u64::from(events);
    state.live_bytes += bytes;
}

/// The configured endpoints that the store does not know yet, with their new numbers.
pub(super) fn new_endpoints(state: &State, configured: &[EndpointName]) -> Vec<(EndpointId, EndpointName)> {
    let known = |name: &EndpointName| state.endpoints.values().any(|one| one.name.as_ref() == Some(name));
    let mut next = state.endpoints.keys().next_back().map_or(1, |id| id.0 + 1);
    let unrouted = EndpointName::from(UNROUTED_NAME);
    let mut new = Vec::new();
    if !known(&unrouted) {
        new.push((EndpointId::UNROUTED, unrouted));
    }
    for name in configured {
        if !known(name) {
            new.push((EndpointId(next), name.clone()));
            next += 1;
        }
    }
    new
}
