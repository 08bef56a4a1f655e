//! The data directory: its lock, its format, and where damaged bytes go.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::disk::{FILE_MODE, sync_dir};
use super::error::OpenError;
use super::index::{Index, IndexFault};
use crate::core::ids::StoreSalt;

/// Format of the store that this program writes and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
/// How long a start waits for a predecessor that is just ending (a supervisor restarts at once).
const LOCK_PATIENCE: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Copies of damaged indexes that are kept; they hold nothing that the log does not.
const INDEX_COPIES: usize = 2;

/// A locked data directory.
pub(super) struct Home {
    pub(super) dir: PathBuf,
    _lock: File,
}

/// What stands in `FORMAT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) version: u32,
    pub(super) salt: StoreSalt,
}

impl Format {
    fn text(self) -> String {
        format!("waypost store\nformat {}\nsalt {:016x}\n", self.version, self.salt.0)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != "waypost store" {
            return None;
        }
        let version = lines.next()?.strip_prefix("format ")?.parse().ok()?;
        let salt = lines.next().and_then(|line| u64::from_str_radix(line.strip_prefix("salt ")?, 16).ok());
        // A later format may say its salt otherwise; its number must be readable all the same.
        match salt {
            Some(salt) => Some(Self { version, salt: StoreSalt(salt) }),
            None if version > FORMAT => Some(Self { version, salt: StoreSalt(0) }),
            None => None,
        }
    }

    /// Reads `FORMAT`; `None` if it is missing or unreadable (the segments then tell the salt).
    pub(super) fn read(dir: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(dir.join("FORMAT")).ok()?)
    }

    /// Writes `FORMAT` so that it is there whole or not at all.
    pub(super) fn write(self, dir: &Path) -> Result<(), OpenError> {
        let (path, new) = (dir.join("FORMAT"), dir.join("FORMAT.new"));
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&new)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_dir(dir)
        };
        write().map_err(|source| io_error("write", &path, source))
    }
}

pub(super) fn io_error(doing: &'static str, path: &Path, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenError::NotWritable { path: path.to_owned(), source }
        }
        _ => OpenError::Io { doing, path: path.to_owned(), source },
    }
}

fn make_dir(path: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| io_error("create", path, source))
}

/// Makes the names of the last `levels` directories of a path durable. Without it a power cut could take a new data
/// directory away whole, with everything synced in it. Done at every start, as the one before may have been cut short.
fn sync_names(dir: &Path, levels: usize) -> io::Result<()> {
    for parent in dir.ancestors().skip(1).take(levels) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match sync_dir(parent) {
            // A parent that this user may not read was not made by this user, so its names are old.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    Ok(())
}

impl Home {
    /// Makes the directories and takes the lock. A store of a later format is refused before anything is touched.
    pub(super) fn enter(dir: &Path) -> Result<Self, OpenError> {
        match fs::metadata(dir) {
            Ok(meta) if !meta.is_dir() => return Err(OpenError::NotADirectory { path: dir.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(OpenError::NotADirectory { path: dir.to_owned() });
            }
            _ => {}
        }
        if let Some(format) = Format::read(dir)
            && format.version > FORMAT
        {
            return Err(OpenError::NewerFormat { dir: dir.to_owned(), found: format.version, known: FORMAT });
        }
        let missing = dir.ancestors().take_while(|one| !one.as_os_str().is_empty() && !one.exists()).count();
        make_dir(dir)?;
        sync_names(dir, missing.max(1)).map_err(|source| io_error("sync the name of", dir, source))?;
        let lock = take_lock(dir)?;
        for part in ["log", "quarantine"] {
            make_dir(&dir.join(part))?;
        }
        let home = Self { dir: dir.to_owned(), _lock: lock };
        home.finish_rewrite();
        Ok(home)
    }

    pub(super) fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(super) fn index_dir(&self) -> PathBuf {
        self.dir.join("sled")
    }

    /// Copies the index into a fresh one, which has no dead space, and puts it in place of the old. If the process
    /// dies between the two renames, the next start puts the old one back.
    pub(super) fn rewrite_index(&self) -> Result<(), IndexFault> {
        let (path, new, old) = (self.index_dir(), self.dir.join("sled.new"), self.dir.join("sled.old"));
        for left_over in [&new, &old] {
            if left_over.exists() {
                fs::remove_dir_all(left_over)?;
            }
        }
        Index::open(&path)?.copy_to(&new)?;
        fs::rename(&path, &old)?;
        fs::rename(&new, &path)?;
        sync_dir(&self.dir)?;
        fs::remove_dir_all(&old)?;
        Ok(())
    }

    /// Puts an index back that a rewrite had moved out of the way when the process died.
    fn finish_rewrite(&self) {
        let (path, old) = (self.index_dir(), self.dir.join("sled.old"));
        if !path.exists() && old.exists() {
            let _ = fs::rename(&old, &path);
        }
        for left_over in ["sled.new", "sled.old"] {
            let _ = fs::remove_dir_all(self.dir.join(left_over));
        }
    }

    /// Copies damaged bytes aside; gives how many.
    pub(super) fn set_aside(&self, segment: u64, offset: u64, bytes: &[u8]) -> u64 {
        let path = self.dir.join("quarantine").join(format!("{segment:08}-{offset}.bin"));
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&path)?;
            file.write_all(bytes)
        };
        match write() {
            Ok(()) => bytes.len() as u64,
            Err(error) => {
                // A full disk must not stop the start; the bytes stay where they are until their segment goes.
                tracing::warn!(path = %path.display(), %error, "damaged bytes could not be copied aside");
                0
            }
        }
    }

    /// Moves a whole file or directory aside.
    pub(super) fn move_aside(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("unnamed");
        let aside = self.dir.join("quarantine");
        let taken = |number: &u32| aside.join(format!("{name}.{number}")).exists();
        let number = (1..u32::MAX).find(|number| !taken(number)).unwrap_or(u32::MAX);
        fs::rename(path, aside.join(format!("{name}.{number}")))?;
        self.prune_indexes();
        Ok(())
    }

    fn prune_indexes(&self) {
        let aside = self.dir.join("quarantine");
        let Ok(entries) = fs::read_dir(&aside) else { return };
        let mut numbers: Vec<u32> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("sled.")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        for old in numbers.iter().rev().skip(INDEX_COPIES) {
            let _ = fs::remove_dir_all(aside.join(format!("sled.{old}")));
        }
    }
}

fn take_lock(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join("LOCK");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(&path)
        .map_err(|source| io_error("write", &path, source))?;
    let (_never, pause) = channel::<()>();
    for attempt in 0.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(fs::TryLockError::WouldBlock) if attempt < LOCK_PATIENCE => {
                let _ = pause.recv_timeout(LOCK_PAUSE);
            }
            Err(fs::TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let holder = pid.trim().parse::<u32>();
                let holder = holder.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                return Err(OpenError::Locked { dir: dir.to_owned(), holder });
            }
            Err(fs::TryLockError::Error(source)) => return Err(io_error("lock", &path, source)),
        }
    }
    // Only for the message of the next one; the lock itself is the kernel's. A full disk is no reason to stop.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Bytes of everything below a directory.
pub(super) fn dir_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => dir_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
