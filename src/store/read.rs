//! Reading events back: where one stands, its bytes, and pages of many in one read.
//!
//! A segment's table says where its events are. That of the active segment is in memory; those of full segments are
//! read from the index record at their end (or, after a crash, made by a scan), a few of them kept. Everything here
//! may block on the disk, so async code calls it through `spawn_blocking`.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::disk::{Disk, SegmentFile};
use super::frame::{Frame, Home, Kind, Piece, scan};
use super::records::{Event, IndexEntry, Record};
use super::state::{Place, Segment};
use super::types::StoredEvent;
use crate::core::ids::{Seq, StoreSalt};

/// Tables of full segments kept: a page's segment, its neighbours and some for random look-ups; about 128 KiB each.
const TABLES: usize = 12;
/// Open segment files kept; far below the usual limit of 1,024 and that of small systems, 256.
const FILES: usize = 48;
/// Bytes of one read for a page.
const WINDOW: u32 = 256 << 10;

/// Why an event cannot be read.
#[derive(Debug)]
pub(super) enum ReadFault {
    /// Its bytes are gone or wrong, for good.
    Damaged,
    /// Its segment has been freed meanwhile.
    Gone,
    /// The system would not read now (no file handle left, no memory): this says nothing of the bytes.
    Unable(io::Error),
}

impl ReadFault {
    fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            // What a bad sector gives; kinds have no name for it.
            _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Self::Damaged,
            _ => Self::Unable(error),
        }
    }
}

type Table = Arc<Vec<IndexEntry>>;

#[derive(Default)]
struct Cached {
    tables: VecDeque<(u64, Table)>,
    files: VecDeque<(u64, Arc<dyn SegmentFile>)>,
    /// Segments below have been deleted.
    head: u64,
    active: Option<u64>,
    growing: Vec<IndexEntry>,
}

/// The reading end of the log.
pub(super) struct Reader {
    disk: Arc<dyn Disk>,
    salt: StoreSalt,
    cached: Mutex<Cached>,
}

fn lock(cached: &Mutex<Cached>) -> std::sync::MutexGuard<'_, Cached> {
    cached.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reader {
    pub(super) fn new(disk: Arc<dyn Disk>, salt: StoreSalt) -> Self {
        Self { disk, salt, cached: Mutex::default() }
    }

    /// A new active segment; gives the table of the one before.
    pub(super) fn begin(&self, segment: u64) -> Vec<IndexEntry> {
        let mut cached = lock(&self.cached);
        let table = std::mem::take(&mut cached.growing);
        if let Some(old) = cached.active.replace(segment) {
            cached.tables.push_front((old, Arc::new(table.clone())));
            cached.tables.truncate(TABLES);
        }
        table
    }

    /// The active segment's table so far.
    pub(super) fn growing(&self) -> Vec<IndexEntry> {
        lock(&self.cached).growing.clone()
    }

    /// An event was written to the active segment.
    pub(super) fn note(&self, seq: Seq, place: Place) {
        lock(&self.cached).growing.push(IndexEntry { seq, offset: place.offset, bytes: place.bytes });
    }

    pub(super) fn forget(&self, segment: u64) {
        let mut cached = lock(&self.cached);
        cached.head = cached.head.max(segment + 1);
        cached.tables.retain(|(id, _)| *id != segment);
        cached.files.retain(|(id, _)| *id != segment);
    }

    fn file(&self, segment: u64) -> io::Result<Arc<dyn SegmentFile>> {
        if let Some((_, file)) = lock(&self.cached).files.iter().find(|(id, _)| *id == segment) {
            return Ok(Arc::clone(file));
        }
        // Not under the lock: a slow disk must not hold up the log thread, which notes every event here.
        let file = self.disk.open(segment)?;
        let mut cached = lock(&self.cached);
        // A handle of a segment deleted meanwhile would keep its space.
        if segment >= cached.head {
            cached.files.push_front((segment, Arc::clone(&file)));
            cached.files.truncate(FILES);
        }
        Ok(file)
    }

    /// Where an event stands in its segment.
    pub(super) fn find(&self, id: u64, segment: &Segment, seq: Seq) -> Result<Place, ReadFault> {
        let search = |table: &[IndexEntry]| {
            let found = table.binary_search_by_key(&seq, |entry| entry.seq);
            let IndexEntry { offset, bytes, .. } = table[found.map_err(|_| ReadFault::Damaged)?];
            Ok(Place { segment: id, offset, bytes })
        };
        {
            let cached = lock(&self.cached);
            if cached.active == Some(id) {
                return search(&cached.growing);
            }
        }
        search(&self.table(id, segment)?)
    }

    /// The table of a full segment.
    fn table(&self, id: u64, segment: &Segment) -> Result<Table, ReadFault> {
        if let Some((_, table)) = lock(&self.cached).tables.iter().find(|(known, _)| *known == id) {
            return Ok(Arc::clone(table));
        }
        let file = self.file(id).map_err(ReadFault::of)?;
        let table = match self.stored_table(&*file, id, segment) {
            Some(table) => table,
            None => self.scanned_table(&*file, id, segment)?,
        };
        let table = Arc::new(table);
        let mut cached = lock(&self.cached);
        cached.tables.push_front((id, Arc::clone(&table)));
        cached.tables.truncate(TABLES);
        Ok(table)
    }

    fn stored_table(&self, file: &dyn SegmentFile, id: u64, segment: &Segment) -> Option<Vec<IndexEntry>> {
        if segment.index_at == 0 {
            return None;
        }
        let bytes = usize::try_from(segment.used.checked_sub(segment.index_at)?).ok()?;
        let mut buffer = vec![0; bytes];
        let read = file.read_at(&mut buffer, segment.index_at).ok()?;
        let frame = Home { salt: self.salt.0, segment: id }.open(&buffer[..read], segment.index_at)?;
        match Record::decode(frame.kind, frame.version, frame.content, self.salt)? {
            (Record::Index(entries), _) => Some(entries),
            _ => None,
        }
    }

    fn scanned_table(
        &self,
        file: &dyn SegmentFile,
        id: u64,
        segment: &Segment,
    ) -> Result<Vec<IndexEntry>, ReadFault> {
        let mut buffer = vec![0; usize::try_from(segment.used).map_err(|_| ReadFault::Damaged)?];
        let read = salvage(file, &mut buffer).map_err(ReadFault::of)?;
        let mut table = Vec::new();
        for piece in scan(Home { salt: self.salt.0, segment: id }, &buffer[..read], 0, 0) {
            if let Piece::Good(offset, frame) = piece
                && frame.kind == Kind::Accepted
                && let Some((Record::Accepted(accepted), _)) = self.decode(&frame)
            {
                table.push(IndexEntry {
                    seq: accepted.event.head.seq,
                    offset: offset as u32,
                    bytes: frame.bytes() as u32,
                });
            }
        }
        table.sort_by_key(|entry| entry.seq);
        Ok(table)
    }

    pub(super) fn decode<'a>(&self, frame: &Frame<'a>) -> Option<(Record, &'a [u8])> {
        Record::decode(frame.kind, frame.version, frame.content, self.salt)
    }

    /// The bytes at a place, good or not.
    pub(super) fn raw(&self, place: Place) -> Option<Vec<u8>> {
        let mut bytes = vec![0; place.bytes as usize];
        let read = self.file(place.segment).ok()?.read_at(&mut bytes, u64::from(place.offset)).ok()?;
        bytes.truncate(read);
        Some(bytes)
    }

    /// Reads one event.
    pub(super) fn read(&self, place: Place) -> Result<(Event, Bytes), ReadFault> {
        self.read_many(&[place]).pop().unwrap_or(Err(ReadFault::Damaged))
    }

    /// Reads events; those that stand close together come in one read.
    pub(super) fn read_many(&self, places: &[Place]) -> Vec<Result<(Event, Bytes), ReadFault>> {
        let mut events = Vec::with_capacity(places.len());
        let mut from = 0;
        while let Some(first) = places.get(from) {
            let mut to = from + 1;
            let mut end = first.offset + first.bytes;
            while let Some(next) = places.get(to)
                && next.segment == first.segment
                && next.offset >= end
                && next.offset + next.bytes - first.offset <= WINDOW
            {
                end = next.offset + next.bytes;
                to += 1;
            }
            self.read_window(&places[from..to], end, &mut events);
            from = to;
        }
        events
    }

    fn read_window(&self, places: &[Place], end: u32, events: &mut Vec<Result<(Event, Bytes), ReadFault>>) {
        let first = places[0];
        let file = match self.file(first.segment) {
            Ok(file) => file,
            Err(error) => {
                let raw = error.raw_os_error();
                let again = || raw.map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                events.extend(places.iter().map(|_| Err(ReadFault::of(again()))));
                return;
            }
        };
        let mut buffer = vec![0; (end - first.offset) as usize];
        let read = file.read_at(&mut buffer, u64::from(first.offset));
        if read.is_err() && places.len() > 1 {
            // A bad sector must not take its neighbours along.
            for place in places {
                self.read_window(std::slice::from_ref(place), place.offset + place.bytes, events);
            }
            return;
        }
        let read = match read.map_err(ReadFault::of) {
            Err(fault @ ReadFault::Unable(_)) => return events.push(Err(fault)),
            read => read.unwrap_or(0),
        };
        let home = Home { salt: self.salt.0, segment: first.segment };
        for place in places {
            let from = (place.offset - first.offset) as usize;
            let frame =
                buffer[..read].get(from..).and_then(|bytes| home.open(bytes, u64::from(place.offset)));
            let event = frame.and_then(|frame| {
                let (record, body) = self.decode(&frame)?;
                let event = match record {
                    Record::Accepted(accepted) => accepted.event,
                    Record::Moved(moved) => moved.event,
                    _ => return None,
                };
                Some((event, Bytes::copy_from_slice(body)))
            });
            events.push(event.ok_or(ReadFault::Damaged));
        }
    }
}

/// Bytes around a bad sector that are given up with it.
const SECTORS: usize = 4096;

/// Reads a file from its start, as much as fits `buffer`. What the device cannot read stays zero, so that a bad sector
/// takes no more along than what stands on it.
pub(super) fn salvage(file: &dyn SegmentFile, buffer: &mut [u8]) -> io::Result<usize> {
    let whole = file.read_at(buffer, 0);
    if !whole.as_ref().is_err_and(|error| error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()))
    {
        return whole;
    }
    let mut at = 0;
    for part in buffer.chunks_mut(SECTORS) {
        match file.read_at(part, at as u64) {
            Ok(read) if read < part.len() => return Ok(at + read),
            Ok(_) => {}
            Err(_) => part.fill(0),
        }
        at += part.len();
    }
    Ok(at)
}

/// Puts event and body together.
pub(super) fn stored((event, body): (Event, Bytes)) -> Arc<StoredEvent> {
    Arc::new(StoredEvent { head: event.head, body })
}
