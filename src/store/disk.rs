//! The seam between the log and the file system, so that a test can cut the power, fill the disk or fail a sync.
//!
//! Only the log goes through it. sled has its own files; it is an index that can be rebuilt, so its faults are tested
//! by replacing its directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;

/// Directory of log segments.
pub(super) trait Disk: Send + Sync {
    /// Segments with their sizes, ascending.
    fn list(&self) -> io::Result<Vec<(u64, u64)>>;
    /// Makes a segment with room for `capacity` bytes; both its name and its room are durable when this returns.
    fn create(&self, segment: u64, capacity: u64) -> io::Result<Arc<dyn SegmentFile>>;
    fn open(&self, segment: u64) -> io::Result<Arc<dyn SegmentFile>>;
    fn remove(&self, segment: u64) -> io::Result<()>;
    /// Gives back the room behind `len`.
    fn truncate(&self, segment: u64, len: u64) -> io::Result<()>;
    /// Free bytes of the file system for this user.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One segment.
pub(super) trait SegmentFile: Send + Sync {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns when everything written is on the device.
    fn sync(&self) -> io::Result<()>;
    /// Fills as much of `bytes` as there is; gives how much.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// Mode of data files: only the user that runs waypost reads them.
pub(super) const FILE_MODE: u32 = 0o600;

/// The real one.
pub(super) struct FileDisk {
    dir: PathBuf,
}

impl FileDisk {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.dir.join(segment_name(segment))
    }
}

/// File name of a segment.
pub(super) fn segment_name(segment: u64) -> String {
    format!("{segment:08}.seg")
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

impl Disk for FileDisk {
    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".seg")?.parse().ok());
            if let Some(number) = number {
                found.push((number, entry.metadata()?.len()));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn create(&self, segment: u64, capacity: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let path = self.path(segment);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        let room = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, capacity) {
            // File systems without it: the log grows by writing, each sync then costs a little more.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            other => other.map_err(io::Error::from),
        };
        if let Err(error) = room.and_then(|()| file.sync_all()).and_then(|()| sync_dir(&self.dir)) {
            // Half a segment is of no use; recovery would skip it too.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, segment: u64) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(Arc::new(File::open(self.path(segment))?))
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        // Not synced: a file that comes back after a power cut is older than the head and is deleted again.
        fs::remove_file(self.path(segment))
    }

    fn truncate(&self, segment: u64, len: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.path(segment))?.set_len(len)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl SegmentFile for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match FileExt::read_at(self, &mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}
