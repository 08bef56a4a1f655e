//! Limits: what may come in, what gives way, and how dead space between live events is won back.
//!
//! The log is a ring that is freed from its head. An event that stays (a dead letter, a long hold) would keep the head
//! for ever, so when the log is larger than twice what is live plus some slack, live events of the head are copied to
//! the tail, keeping their sequence.
//!
//! Accepts stop early enough that settlements and checkpoints always have room; a ballast file of one segment's size
//! is given up when the file system is full in spite of that.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;

use super::disk::FILE_MODE;
use super::log::Group;
use super::read::ReadFault;
use super::records::{Event, Held, Letter, Moved, Record};
use super::types::{AppendError, WhenFull};
use super::writer::{RETRY_AFTER, Request, Writer};
use crate::core::delivery::{End, State as DeliveryState};
use crate::core::event::NewEvent;
use crate::core::ids::{EndpointId, Seq};

/// What the frame, the head and the identity of an event take beside its body.
const EVENT_OVERHEAD: u64 = 400;
/// Part of `disk_bytes_max` that accepts leave to settlements, checkpoints and copies, within bounds.
const RESERVE_PART: u64 = 16;
const RESERVE_MIN: u64 = 1 << 20;
const RESERVE_MAX: u64 = 32 << 20;
/// How often the file system is asked for its free space.
const LOOK_EVERY_MS: u64 = 1_000;
/// Bytes and events that one round of copying moves; between rounds others get their turn.
const COPY_BYTES: u64 = 1 << 20;
const COPY_EVENTS: usize = 256;
/// What the directory may take beside twice the live bytes and what keys are reckoned at (DESIGN section 4).
const REST_BYTES: u64 = 64 << 20;
/// Deliveries that one round of dropping ends.
const DROP_ROUND: usize = 1_024;

/// Sizes of the log, from memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    /// Bytes written to segments that exist.
    pub(super) used: u64,
    /// Bytes of their files.
    pub(super) files: u64,
    /// Of `used`, what the next checkpoint frees.
    pub(super) finished_used: u64,
}

impl Writer {
    pub(super) fn sizes(&self) -> Sizes {
        let active = self.log.position();
        let state = self.shared.state();
        let mut sizes = Sizes::default();
        let mut finished = true;
        for (&id, segment) in &state.segments {
            let is_active = active.is_some_and(|(active, _, _)| active == id);
            let used = active.filter(|_| is_active).map_or(segment.used, |(_, tail, _)| tail);
            sizes.used += used;
            sizes.files += segment.capacity.max(used);
            finished &= segment.live == 0 && !is_active;
            if finished {
                sizes.finished_used += used;
            }
        }
        sizes
    }

    fn reserve(&self) -> u64 {
        (self.shared.config.disk_bytes_max / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX)
    }

    /// Bytes that count against `disk_bytes_max`.
    fn counted(&self, sizes: Sizes) -> u64 {
        let figures = &self.shared.figures;
        let others = [&figures.index_bytes, &figures.quarantined_bytes, &figures.ballast_bytes];
        sizes.used + others.iter().map(|figure| figure.load(Ordering::Relaxed)).sum::<u64>()
    }

    /// Whether these events may come in.
    pub(super) fn admit(&mut self, events: &[NewEvent]) -> Result<(), AppendError> {
        let bytes = events.iter().map(|event| event.body.len() as u64 + EVENT_OVERHEAD).sum();
        let what = self.limit_reached(bytes);
        self.shared.set_full(what);
        match what {
            None => {
                self.admitted_bytes += bytes;
                Ok(())
            }
            Some(what) => {
                // A checkpoint may be all that stands between a finished segment and its deletion.
                self.checkpoints.urgent |= self.sizes().finished_used > 0;
                Err(AppendError::Full { what, retry_after: RETRY_AFTER })
            }
        }
    }

    /// Which limit stands against `bytes` more, if one does.
    pub(super) fn limit_reached(&self, bytes: u64) -> Option<&'static str> {
        let config = &self.shared.config;
        // What this group has let in already counts too, so a burst cannot pass the limit together.
        let counted = self.counted(self.sizes()) + self.admitted_bytes + bytes;
        let dead_bytes = self.shared.state().dead_bytes;
        let free = self.shared.figures.free_bytes.load(Ordering::Relaxed);
        if counted + self.reserve() > config.disk_bytes_max {
            Some("store")
        } else if free < config.disk_free_reserve.saturating_add(self.room_to_make(bytes)) {
            Some("disk")
        } else if dead_bytes as f64 > config.dead_letter_share * config.disk_bytes_max as f64 {
            Some("dead letters")
        } else {
            None
        }
    }

    /// What the file system must still give for `bytes` more: nothing while the active segment, which has its room
    /// already, can take them.
    fn room_to_make(&self, bytes: u64) -> u64 {
        let wanted = self.admitted_bytes + bytes;
        let fits = self.log.position().is_some_and(|(_, tail, capacity)| tail + wanted < capacity);
        if fits { 0 } else { wanted + self.shared.tuning.segment_bytes }
    }

    /// Looks at the disk now and then, and opens the intake again when there is room.
    pub(super) fn look_at_disk(&mut self, now_ms: u64) {
        let due = self.timers.looked_at_disk_ms.is_none_or(|at| now_ms.saturating_sub(at) >= LOOK_EVERY_MS);
        let sizes = self.sizes();
        let figures = &self.shared.figures;
        let rest = self.counted(sizes) - sizes.used;
        figures.disk_bytes.store(sizes.files + rest, Ordering::Relaxed);
        if !due {
            return;
        }
        self.timers.looked_at_disk_ms = Some(now_ms);
        let shared = Arc::clone(&self.shared);
        if let Ok(free) = shared.busy(|| self.log.free_bytes()) {
            shared.figures.free_bytes.store(free, Ordering::Relaxed);
            if free > shared.config.disk_free_reserve + 2 * shared.tuning.segment_bytes {
                self.lay_ballast();
            }
        }
        if shared.full().is_some() {
            shared.set_full(self.limit_reached(0));
        }
    }

    /// Makes the ballast if it is not there.
    pub(super) fn lay_ballast(&self) {
        let path = self.home.dir.join("BALLAST");
        let figures = &self.shared.figures;
        if figures.ballast_bytes.load(Ordering::Relaxed) > 0 {
            return;
        }
        let bytes = self.shared.tuning.segment_bytes + (self.shared.tuning.segment_bytes >> 2);
        let made =
            OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(&path).and_then(
                |file| {
                    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from)
                },
            );
        match made {
            Ok(()) => figures.ballast_bytes.store(bytes, Ordering::Relaxed),
            Err(_) => drop(std::fs::remove_file(&path)),
        }
    }

    /// Gives up the ballast; says whether there was any.
    pub(super) fn drop_ballast(&self) -> bool {
        let had = std::fs::remove_file(self.home.dir.join("BALLAST")).is_ok();
        self.shared.figures.ballast_bytes.store(0, Ordering::Relaxed);
        had
    }

    /// Wins space back: drops what policy says may go, copies what keeps a mostly dead head.
    pub(super) fn make_room(&mut self) {
        let sizes = self.sizes();
        let counted = self.counted(sizes) - sizes.finished_used;
        let max = self.shared.config.disk_bytes_max;
        let nearly = counted + 2 * self.reserve() > max;
        if nearly && self.shared.config.when_full == WhenFull::DropOldest {
            self.drop_oldest();
        }
        let needed = sizes.used - sizes.finished_used;
        if needed > self.log_bytes_max(nearly) {
            self.copy_head();
        }
    }

    /// How large the log may become before dead space in it is won back: twice what is live and some slack, less where
    /// the index takes more than its share of the promise (disk ≤ 2 × live + 64 MiB + 64 B a key) or the disk is nearly
    /// full, but never so little that every new byte costs several copied ones.
    fn log_bytes_max(&self, nearly: bool) -> u64 {
        let live = self.shared.state().live_bytes;
        let figures = &self.shared.figures;
        let tuning = &self.shared.tuning;
        let (usual, least) = (2 * live + tuning.slack_bytes, live + live / 4 + tuning.slack_bytes);
        if nearly {
            return least;
        }
        let promised = 2 * live + REST_BYTES + super::keys::COST * figures.keys.load(Ordering::Relaxed);
        let others =
            figures.index_bytes.load(Ordering::Relaxed) + figures.ballast_bytes.load(Ordering::Relaxed);
        // Two segments: the active one's room made in advance, and what the next checkpoint frees.
        promised.saturating_sub(others + 2 * tuning.segment_bytes).clamp(least, usual)
    }

    /// Oldest segment that still has live events and is not the active one.
    fn live_head(&self) -> Option<(u64, Vec<Seq>)> {
        let active = self.log.position().map(|(segment, _, _)| segment);
        let state = self.shared.state();
        let (&id, segment) = state.segments.iter().find(|(_, segment)| segment.live > 0)?;
        if Some(id) == active {
            return None;
        }
        let end = Seq(segment.first_seq.0 + u64::from(segment.count));
        let mut seqs: Vec<Seq> = Vec::new();
        if segment.count > 0 {
            for one in state.endpoints.values() {
                seqs.extend(one.pending.range(segment.first_seq, end));
                seqs.extend(one.dead.range(segment.first_seq, end));
            }
            seqs.retain(|seq| !state.moved.contains_key(seq));
        }
        let copied_here = state.moved.iter().filter(|(_, place)| place.segment == id).map(|(seq, _)| *seq);
        seqs.extend(copied_here.take(COPY_EVENTS));
        seqs.sort_unstable();
        seqs.dedup();
        Some((id, seqs))
    }

    /// Copies a round of live events of the head to the tail.
    fn copy_head(&mut self) {
        let Some((_, seqs)) = self.live_head() else { return };
        let (mut group, mut moves, mut damaged) = (Group::default(), Vec::new(), Vec::new());
        for seq in seqs.into_iter().take(COPY_EVENTS) {
            if group.bytes() >= COPY_BYTES {
                break;
            }
            let read = self.shared.place(seq).and_then(|from| Ok((from, self.shared.reader.read(from)?)));
            match read {
                Ok((from, (event, body))) => {
                    let record = Record::Moved(Box::new(self.moved(event)));
                    group.push(&record, &body);
                    moves.push((record, from));
                }
                Err(ReadFault::Damaged | ReadFault::Gone) => damaged.push(seq),
                Err(ReadFault::Unable(error)) => {
                    tracing::debug!(%error, "live events cannot be read now, so none are copied");
                    break;
                }
            }
        }
        for seq in damaged {
            self.lose(seq);
        }
        if group.is_empty() {
            return;
        }
        let written = match self.write(&mut group) {
            Ok(written) => written,
            Err(error) => {
                tracing::debug!(%error, "no room to copy live events to the tail");
                return;
            }
        };
        // A sync that failed later would drop these pages while the next checkpoint frees the originals.
        if self.sync().is_err() {
            return;
        }
        let mut state = self.shared.state();
        for ((record, from), at) in moves.iter().zip(written) {
            state.apply(at.lsn, record, at.place);
            if let Record::Moved(moved) = record {
                state.account_move(moved.event.head.seq, *from, at.place, at.lsn);
            }
        }
    }

    /// An event with the absolute state of its deliveries.
    pub(super) fn moved(&self, event: Event) -> Moved {
        let seq = event.head.seq;
        let states: Vec<(EndpointId, DeliveryState)> = {
            let state = self.shared.state();
            let ids = state.endpoints.keys();
            ids.filter_map(|&id| Some((id, state.delivery(id, seq)?))).collect()
        };
        let held = states.into_iter().filter_map(|(id, state)| match state {
            DeliveryState::Pending | DeliveryState::Waiting(_) => {
                Some((id, Held::Pending(self.shared.slip(id, seq))))
            }
            DeliveryState::Dead => {
                Some((id, Held::Dead(self.shared.letter(seq, id).unwrap_or_else(Letter::unknown))))
            }
            DeliveryState::Ended(_) => None,
        });
        Moved { held: held.collect(), event }
    }

    /// Ends the oldest pending deliveries, one round, as `when_full = "drop-oldest"` says.
    fn drop_oldest(&mut self) {
        let Some((_, seqs)) = self.live_head() else { return };
        let mut requests = Vec::new();
        {
            let state = self.shared.state();
            for seq in seqs {
                for (&endpoint, one) in &state.endpoints {
                    if one.pending.contains(seq) {
                        requests.push(super::types::EndRequest { seq, endpoint, end: End::Dropped });
                    }
                }
                if requests.len() >= DROP_ROUND {
                    break;
                }
            }
        }
        if !requests.is_empty() {
            let (reply, _nobody) = tokio::sync::oneshot::channel();
            self.now(Request::End { requests, reply });
        }
    }

    /// Counts what is left of an unreadable event as lost.
    fn lose(&mut self, seq: Seq) {
        self.now(Request::Damaged { seq, reply: None });
    }
}
