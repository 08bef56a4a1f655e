//! A disk that forgets what was not synced, fills up, and fails on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rand::{Rng, RngExt};

use crate::store::disk::{Disk, SegmentFile};

/// What reaches the platter as one.
const SECTOR: usize = 512;

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

struct MemoryFile {
    segment: u64,
    content: Mutex<Content>,
    power: Arc<Power>,
}

/// A call that changes something; of writes also what stands first in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Create,
    Remove,
    Truncate,
    Sync,
    /// A segment's first record.
    Header,
    /// A segment's last record.
    Index,
    /// Live events on their way to the tail.
    Copy,
    /// Everything else.
    Write,
}

impl Call {
    fn of_write(bytes: &[u8]) -> Self {
        // The kind in the first frame's head.
        match bytes.get(24) {
            Some(1) => Call::Header,
            Some(7) => Call::Copy,
            Some(9) => Call::Index,
            _ => Call::Write,
        }
    }
}

type OpenHook = Box<dyn FnOnce() + Send>;
type Hook = Box<dyn FnOnce(Call) + Send>;

/// Switches of the whole disk.
#[derive(Default)]
pub(super) struct Power {
    /// Calls that change something until the power goes; negative: never.
    pub(super) fuse: AtomicI64,
    /// Which calls burn the fuse; all if `None`.
    pub(super) fuse_for: Mutex<Option<Call>>,
    /// Called once, when the power goes.
    pub(super) on_cut: Mutex<Option<Hook>>,
    pub(super) off: AtomicBool,
    pub(super) capacity: AtomicU64,
    /// The next sync fails and drops what it should have written.
    pub(super) fail_sync: AtomicBool,
    /// So does the next sync after a write of this kind.
    pub(super) fail_sync_after: Mutex<Option<Call>>,
    /// Called once, when this segment is opened.
    pub(super) on_open: Mutex<Option<(u64, OpenHook)>>,
    /// What opening a file gives, if not zero: an error number.
    pub(super) open_error: AtomicI32,
    /// From here a read fails as on a bad sector, if not zero: (segment << 32) | sector.
    pub(super) bad_sector: AtomicU64,
}

impl Power {
    fn spend(&self, call: Call) -> io::Result<()> {
        let burns = self.fuse_for.lock().unwrap().is_none_or(|only| only == call);
        if burns && self.fuse.load(Ordering::SeqCst) >= 0 && self.fuse.fetch_sub(1, Ordering::SeqCst) <= 0 {
            self.cut_off(call);
        }
        if self.off.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    pub(super) fn cut_off(&self, call: Call) {
        self.off.store(true, Ordering::SeqCst);
        if let Some(hook) = self.on_cut.lock().unwrap().take() {
            hook(call);
        }
    }
}

impl MemoryFile {
    fn put(&self, bytes: &[u8], offset: u64) {
        let mut content = self.content.lock().unwrap();
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        assert!(to <= content.now.len(), "written beyond the segment's room");
        content.now[from..to].copy_from_slice(bytes);
        content.dirty.extend(from / SECTOR..=(to.max(1) - 1) / SECTOR);
    }
}

type Files = BTreeMap<u64, Arc<MemoryFile>>;
type Graves = Vec<(u64, Arc<MemoryFile>)>;

/// The disk.
#[derive(Clone)]
pub(super) struct MemoryDisk {
    files: Arc<Mutex<Files>>,
    /// Deleted files: their names may come back after a power cut.
    graves: Arc<Mutex<Graves>>,
    pub(super) power: Arc<Power>,
}

impl MemoryDisk {
    pub(super) fn new() -> Self {
        let power =
            Power { fuse: AtomicI64::new(-1), capacity: AtomicU64::new(u64::MAX), ..Power::default() };
        Self { files: Arc::default(), graves: Arc::default(), power: Arc::new(power) }
    }

    /// Loses a random part of what was not synced, and puts the power back on.
    pub(super) fn cut(&self, rng: &mut impl Rng) {
        let mut files = self.files.lock().unwrap();
        // Names go in the order in which they were deleted (journals keep it), so the last ones come back.
        let graves = std::mem::take(&mut *self.graves.lock().unwrap());
        let back = rng.random_range(0..=graves.len());
        files.extend(graves.into_iter().rev().take(back));
        for file in files.values() {
            let mut content = file.content.lock().unwrap();
            let survive = rng.random_range(0.0..=1.0);
            let Content { now, durable, dirty } = &mut *content;
            durable.resize(now.len(), 0);
            for &sector in &*dirty {
                if rng.random_bool(survive) {
                    let (from, to) = (sector * SECTOR, ((sector + 1) * SECTOR).min(now.len()));
                    if from < to {
                        durable[from..to].copy_from_slice(&now[from..to]);
                    }
                }
            }
            dirty.clear();
            now.clone_from(durable);
        }
        self.on();
    }

    fn insert(&self, segment: u64, bytes: u64) -> Arc<MemoryFile> {
        let room = vec![0; bytes as usize];
        let content = Content { now: room.clone(), durable: room, dirty: BTreeSet::new() };
        let (content, power) = (Mutex::new(content), Arc::clone(&self.power));
        let file = Arc::new(MemoryFile { segment, content, power });
        let before = self.files.lock().unwrap().insert(segment, Arc::clone(&file));
        assert!(before.is_none(), "segment number {segment} used twice");
        file
    }

    pub(super) fn on(&self) {
        self.power.fuse.store(-1, Ordering::SeqCst);
        *self.power.fuse_for.lock().unwrap() = None;
        *self.power.on_cut.lock().unwrap() = None;
        self.power.off.store(false, Ordering::SeqCst);
    }
}

impl Disk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        let files = self.files.lock().unwrap();
        Ok(files.iter().map(|(&id, file)| (id, file.content.lock().unwrap().now.len() as u64)).collect())
    }

    fn create(&self, segment: u64, capacity: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let was_off = self.power.off.load(Ordering::SeqCst);
        if let Err(error) = self.power.spend(Call::Create) {
            // The name of a file that the cut hits may be there, with nothing in it or with zeros.
            if !was_off && segment.is_multiple_of(3) {
                self.insert(segment, if segment.is_multiple_of(2) { 0 } else { capacity });
            }
            return Err(error);
        }
        let used: u64 = self.list()?.iter().map(|(_, bytes)| bytes).sum();
        if used + capacity > self.power.capacity.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(28));
        }
        let file = self.insert(segment, capacity);
        // The directory is synced with it.
        self.graves.lock().unwrap().clear();
        Ok(file)
    }

    fn open(&self, segment: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let hook = self.power.on_open.lock().unwrap().take_if(|(wanted, _)| *wanted == segment);
        if let Some((_, hook)) = hook {
            hook();
        }
        match self.power.open_error.load(Ordering::SeqCst) {
            0 => {}
            number => return Err(io::Error::from_raw_os_error(number)),
        }
        let files = self.files.lock().unwrap();
        let file = files.get(&segment).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::clone(file) as Arc<dyn SegmentFile>)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.power.spend(Call::Remove)?;
        let file = self.files.lock().unwrap().remove(&segment).ok_or(io::ErrorKind::NotFound)?;
        self.graves.lock().unwrap().push((segment, file));
        Ok(())
    }

    fn truncate(&self, segment: u64, len: u64) -> io::Result<()> {
        self.power.spend(Call::Truncate)?;
        let files = self.files.lock().unwrap();
        let file = files.get(&segment).ok_or(io::ErrorKind::NotFound)?;
        let mut content = file.content.lock().unwrap();
        content.now.resize(len as usize, 0);
        content.durable.resize(len as usize, 0);
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let used: u64 = self.list()?.iter().map(|(_, bytes)| bytes).sum();
        Ok(self.power.capacity.load(Ordering::SeqCst).saturating_sub(used))
    }
}

impl SegmentFile for MemoryFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let was_off = self.power.off.load(Ordering::SeqCst);
        let call = Call::of_write(bytes);
        if self.power.fail_sync_after.lock().unwrap().take_if(|wanted| *wanted == call).is_some() {
            self.power.fail_sync.store(true, Ordering::SeqCst);
        }
        let spent = self.power.spend(call);
        // A write that the cut hits may have got to the page cache, and from there anywhere.
        if !was_off {
            self.put(bytes, offset);
        }
        spent
    }

    fn sync(&self) -> io::Result<()> {
        self.power.spend(Call::Sync)?;
        let mut content = self.content.lock().unwrap();
        let Content { now, durable, dirty } = &mut *content;
        if self.power.fail_sync.swap(false, Ordering::SeqCst) {
            // As Linux does it: the pages are dropped and the next sync says all is well.
            dirty.clear();
            return Err(io::Error::from_raw_os_error(5));
        }
        durable.resize(now.len(), 0);
        for sector in std::mem::take(dirty) {
            let (from, to) = (sector * SECTOR, ((sector + 1) * SECTOR).min(now.len()));
            if from < to {
                durable[from..to].copy_from_slice(&now[from..to]);
            }
        }
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let bad = self.power.bad_sector.load(Ordering::SeqCst);
        if bad != 0 && bad >> 32 == self.segment {
            let at = (bad & 0xffff_ffff) * SECTOR as u64;
            if offset < at + SECTOR as u64 && offset + bytes.len() as u64 > at {
                return Err(io::Error::from_raw_os_error(5));
            }
        }
        let content = self.content.lock().unwrap();
        let from = (offset as usize).min(content.now.len());
        let count = bytes.len().min(content.now.len() - from);
        bytes[..count].copy_from_slice(&content.now[from..from + count]);
        Ok(count)
    }
}
