//! The writing end of the log: groups of records into the active segment, one write and at most one sync each.
//!
//! A group is encoded first, so its size is known, then placed: it never spans two segments. LSNs are given out when
//! a group is placed and never again, even if its write fails; so what a failed write left behind the tail can never
//! be taken for what came later (the scan wants growing LSNs).

use std::io;
use std::sync::Arc;

use super::disk::{Disk, SegmentFile};
use super::frame::{FRAME_HEAD, Home, Kind};
use super::records::{Header, Record, VERSION};
use super::state::Place;
use crate::core::ids::StoreSalt;

/// Bytes per event that are kept free for the segment's index record (an entry takes about six).
const INDEX_ENTRY_BYTES: u64 = 16;
/// A header and the frame around an index.
const SEGMENT_SLACK: u64 = 4096;

/// Records that are written together.
#[derive(Default)]
pub(super) struct Group {
    bytes: Vec<u8>,
    /// Start of each frame in `bytes`, and its kind.
    frames: Vec<(usize, Kind)>,
}

impl Group {
    pub(super) fn push(&mut self, record: &Record, body: &[u8]) {
        let start = self.bytes.len();
        self.frames.push((start, record.kind()));
        self.bytes.resize(start + FRAME_HEAD, 0);
        record.encode(body, &mut self.bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Where a record of a group was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) lsn: u64,
    pub(super) place: Place,
}

struct Active {
    segment: u64,
    file: Arc<dyn SegmentFile>,
    tail: u64,
    capacity: u64,
    events: u64,
}

/// The writing end.
pub(super) struct Log {
    disk: Arc<dyn Disk>,
    salt: StoreSalt,
    active: Option<Active>,
    next_segment: u64,
    next_lsn: u64,
    /// Everything up to here is on the device.
    synced_lsn: u64,
    dirty: bool,
    segment_bytes: u64,
    /// Bytes written and syncs done by this process.
    pub(super) written_bytes: u64,
    pub(super) syncs: u64,
}

impl Log {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        salt: StoreSalt,
        next_segment: u64,
        next_lsn: u64,
        segment_bytes: u64,
    ) -> Self {
        Self {
            disk,
            salt,
            active: None,
            next_segment,
            next_lsn,
            synced_lsn: next_lsn - 1,
            dirty: false,
            segment_bytes,
            written_bytes: 0,
            syncs: 0,
        }
    }

    pub(super) fn last_lsn(&self) -> u64 {
        self.next_lsn - 1
    }

    pub(super) fn dirty(&self) -> bool {
        self.dirty
    }

    /// The mark that was just written does not make the log dirty: it needs no sync of its own.
    pub(super) fn marked(&mut self) {
        self.dirty = false;
    }

    /// Active segment with its tail and capacity.
    pub(super) fn position(&self) -> Option<(u64, u64, u64)> {
        self.active.as_ref().map(|active| (active.segment, active.tail, active.capacity))
    }

    pub(super) fn next_segment(&self) -> u64 {
        self.next_segment
    }

    /// Whether a group fits the active segment, with the segment's index behind it.
    pub(super) fn fits(&self, group: &Group) -> bool {
        self.active.as_ref().is_some_and(|active| {
            let events = active.events + group.frames.len() as u64;
            active.tail + group.bytes() + events * INDEX_ENTRY_BYTES + SEGMENT_SLACK <= active.capacity
        })
    }

    /// Begins a segment that has room for `group`, with `header` in front. What the old one held must be synced and
    /// its index written.
    pub(super) fn begin_segment(&mut self, header: Header, group: &Group) -> io::Result<Written> {
        let needed = group.bytes() + group.frames.len() as u64 * INDEX_ENTRY_BYTES + 4 * SEGMENT_SLACK;
        let capacity = self.segment_bytes.max(needed);
        let segment = self.next_segment;
        // A number is used once, so that an old file that comes back after a power cut is never mistaken for it.
        self.next_segment += 1;
        let file = self.disk.create(segment, capacity)?;
        self.active = Some(Active { segment, file, tail: 0, capacity, events: 0 });
        let mut first = Group::default();
        first.push(&Record::Header(Box::new(header)), &[]);
        match self.write(&mut first) {
            Ok(written) => Ok(written[0]),
            Err(error) => {
                self.active = None;
                let _ = self.disk.remove(segment);
                Err(error)
            }
        }
    }

    /// Gives up the active segment; the next group begins a new one.
    pub(super) fn abandon_segment(&mut self) -> Option<(u64, u64)> {
        self.dirty = false;
        self.active.take().map(|active| (active.segment, active.tail))
    }

    /// Deletes a segment.
    pub(super) fn remove(&self, segment: u64) -> io::Result<()> {
        self.disk.remove(segment)
    }

    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    /// Gives back the room behind the end of a segment that is not written any more.
    pub(super) fn truncate(&self, segment: u64, len: u64) {
        // It is only room: what fails here is tried again at the next start.
        let _ = self.disk.truncate(segment, len);
    }

    /// Writes a group at the tail. After an error nothing of it counts.
    pub(super) fn write(&mut self, group: &mut Group) -> io::Result<Vec<Written>> {
        let Some(active) = &mut self.active else { return Err(io::ErrorKind::NotFound.into()) };
        let home = Home { salt: self.salt.0, segment: active.segment };
        let mut written = Vec::with_capacity(group.frames.len());
        for (index, &(start, kind)) in group.frames.iter().enumerate() {
            let end = group.frames.get(index + 1).map_or(group.bytes.len(), |&(next, _)| next);
            let lsn = self.next_lsn;
            self.next_lsn += 1;
            let offset = active.tail + start as u64;
            let unsynced = u32::try_from(lsn - self.synced_lsn).unwrap_or(u32::MAX);
            home.seal(&mut group.bytes[start..end], offset, lsn, unsynced, kind, VERSION);
            let place = Place { segment: active.segment, offset: offset as u32, bytes: (end - start) as u32 };
            written.push(Written { lsn, place });
        }
        active.file.write_at(&group.bytes, active.tail)?;
        self.dirty = true;
        active.tail += group.bytes.len() as u64;
        active.events += group.frames.iter().filter(|(_, kind)| *kind == Kind::Accepted).count() as u64;
        self.written_bytes += group.bytes.len() as u64;
        Ok(written)
    }

    /// Syncs what was written. After an error the pages may be gone: the caller gives up the segment.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Some(active) = &self.active
            && self.dirty
        {
            active.file.sync()?;
            self.syncs += 1;
            self.dirty = false;
            self.synced_lsn = self.next_lsn - 1;
        }
        Ok(())
    }
}
