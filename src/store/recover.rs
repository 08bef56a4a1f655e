//! Opening a store: whatever is on the disk, it starts.
//!
//! The index gives the state at its last checkpoint; the log behind it is replayed through [`State::apply`]. Without
//! a usable index the whole log is replayed, which gives the same state, because the log is freed from its head only
//! and every segment header repeats the counters. Bytes that are no record are copied to `quarantine/`. In the end
//! the counters must agree with what is there: what they have more is what damage took, and is counted as `lost`.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use super::disk::{Disk, FileDisk};
use super::error::OpenError;
use super::frame::{self, Frame, Kind, Piece, scan};
use super::home::{Format, Home, dir_bytes, io_error};
use super::keys::{Keys, Known};
use super::log::Log;
use super::read::Reader;
use super::records::{Accepted, Record};
use super::shared::{Shared, Tuning};
use super::state::{Place, Segment, State};
use super::types::{Recovery, StoreConfig};
use super::writer::{NOWHERE, Timers, Writer};
use super::{LINE_REQUESTS, Outbox};
use crate::clock::{Clock, Watermark};
use crate::core::delivery::End;
use crate::core::ids::{EndpointId, EndpointName, Seq, StoreSalt};

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
    let segments = disk.list().map_err(|source| io_error("read", &home.log_dir(), source))?;
    let mut recovery = Recovery::default();
    let salt = establish_salt(&home, &*disk, &segments, &mut recovery)?;
    let mut replay = Replay {
        home: &home,
        disk: &*disk,
        state: State::new(salt),
        keys: Keys::new(config.key_ttl, config.window_without_time),
        recovery,
        lsn: 0,
        watermark: None,
        damaged: false,
        neighbours: Vec::new(),
    };
    replay.state.overlay.recovering = true;
    replay.run(&segments);
    let newest_segment = segments.last().map_or(0, |(id, _)| *id);
    let (lsn, watermark) = (replay.lsn, replay.watermark);
    let Replay { mut state, keys, mut recovery, .. } = replay;
    let reader = Reader::new(Arc::clone(&disk), salt);
    settle_books(&mut state, &reader, &mut recovery);
    state.overlay.recovering = false;
    if let Some(watermark) = watermark {
        clock.resume(watermark);
    }
    let log = Log::new(disk, salt, newest_segment + 1, lsn + 1, tuning.segment_bytes);
    let quarantined = dir_bytes(&home.dir.join("quarantine"));
    let shared = Arc::new(Shared::new(config, clock, tuning, reader, state, None));
    shared.figures.quarantined_bytes.store(quarantined, std::sync::atomic::Ordering::Relaxed);
    recovery.warnings.iter().for_each(|text| shared.warn(text.clone()));
    // As many places as permits, and some for requests that need none (close).
    let (line, requests) = sync_channel(LINE_REQUESTS + 16);
    let mut writer =
        Writer { shared: Arc::clone(&shared), log, keys, requests, timers: Timers::default(), home };
    writer.begin();
    std::thread::Builder::new().name("waypost-log".to_owned()).spawn(move || writer.run()).map_err(
        |source| OpenError::Io { doing: "start a thread for", path: shared.config.dir.clone(), source },
    )?;
    Ok((Outbox::new(shared, line), recovery))
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
    let salt = match salt {
        Some(salt) => {
            recovery.warnings.push("the FORMAT file was missing or damaged; it was written again".to_owned());
            salt
        }
        None => {
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
            StoreSalt(rand::random())
        }
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
    let file = disk.open(id).ok()?;
    let mut head = vec![0; 64 << 10];
    let read = file.read_at(&mut head, 0).ok()?;
    let bytes = &head[..read];
    let len = frame::content_bytes(bytes)?;
    let content = bytes.get(frame::FRAME_HEAD..frame::FRAME_HEAD + len)?;
    let (Record::Header(header), _) = Record::decode(Kind::Header, bytes[25], content, StoreSalt(0))? else {
        return None;
    };
    frame::Home { salt: header.salt.0, segment: id }.open(bytes, 0).map(|_| header.salt)
}

/// A replay of the log.
struct Replay<'a> {
    home: &'a Home,
    disk: &'a dyn Disk,
    state: State,
    keys: Keys,
    recovery: Recovery,
    /// Newest record seen.
    lsn: u64,
    watermark: Option<Watermark>,
    /// Whether bytes were unreadable since the last good record, and the last good LSN before them.
    damaged: bool,
    /// Endpoints of the last accepted event: for whom lost ones probably were.
    neighbours: Vec<EndpointId>,
}

impl Replay<'_> {
    fn run(&mut self, segments: &[(u64, u64)]) {
        for &(id, bytes) in segments {
            self.segment(id, bytes);
        }
    }

    fn segment(&mut self, id: u64, bytes: u64) {
        self.state.segments.insert(id, Segment { capacity: bytes, ..Segment::default() });
        let mut buffer = vec![0; bytes as usize];
        let read = self.disk.open(id).and_then(|file| file.read_at(&mut buffer, 0));
        let read = match read {
            Ok(read) => read,
            Err(error) => {
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
        }
        if let Some(segment) = self.state.segments.get_mut(&id) {
            segment.used = used;
            segment.last_lsn = self.lsn;
        }
        if used < bytes
            && self.disk.truncate(id, used).is_ok()
            && let Some(segment) = self.state.segments.get_mut(&id)
        {
            segment.capacity = used;
        }
    }

    fn bad(&mut self, segment: u64, offset: u64, bytes: &[u8]) {
        self.damaged = true;
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
fn settle_books(state: &mut State, reader: &Reader, recovery: &mut Recovery) {
    sweep(state);
    for endpoint in state.endpoints.values_mut() {
        let (pending, dead) = (endpoint.pending.len() as i64, endpoint.dead.len() as i64);
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
fn sweep(state: &mut State) {
    let ids: Vec<EndpointId> = state.endpoints.keys().copied().collect();
    for id in ids {
        let one = &state.endpoints[&id];
        let lost: Vec<Seq> = one
            .pending
            .iter_from(Seq(0))
            .chain(one.dead.iter_from(Seq(0)))
            .filter(|&seq| {
                state.locate(seq).is_none_or(|(segment, _)| !state.segments.contains_key(&segment))
            })
            .collect();
        for seq in lost {
            state.clear(id, seq);
        }
    }
}

/// Counts what is live in each segment.
fn measure(state: &mut State, reader: &Reader) {
    let mut live: Vec<Seq> = Vec::new();
    for endpoint in state.endpoints.values() {
        live.extend(endpoint.pending.iter_from(Seq(0)));
        live.extend(endpoint.dead.iter_from(Seq(0)));
    }
    live.sort_unstable();
    live.dedup();
    let live_set: std::collections::HashSet<Seq> = live.iter().copied().collect();
    state.moved.retain(|seq, _| live_set.contains(seq));
    for seq in live {
        let Some((id, known)) = state.locate(seq) else { continue };
        let Some(segment) = state.segments.get(&id).copied() else { continue };
        let place =
            known.or_else(|| reader.find(id, &segment, seq)).unwrap_or(Place { segment: id, ..NOWHERE });
        let is = state.need(seq);
        state.account(super::state::Effect { seq, was: super::state::Need::default(), is }, place, 0);
    }
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

/// Whether a directory holds a store at all.
pub(super) fn is_store(dir: &Path) -> bool {
    dir.join("FORMAT").exists() || dir.join("log").exists()
}
