//! Looks at a store without changing a byte: `waypost store verify` and `info`, with the appliance stopped or running.
//!
//! Every record of every segment is read and its checksum tried. With the appliance stopped the index is opened too
//! (as a copy in a temporary directory, because sled writes when it opens) and held against the log: a pending or
//! dead delivery without a readable event is damage.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::Serialize;

use super::disk::{Disk, FileDisk, segment_name};
use super::error::OpenError;
use super::frame::{self, Piece, scan};
use super::home::{FORMAT, Format, dir_bytes};
use super::index::Index;
use super::keys::{KeyLimits, Keys};
use super::read::salvage;
use super::records::{Header, Record};
use super::replay::read_header;
use super::state::State;
use super::types::Ledger;
use super::witness::Witness;
use crate::core::ids::{Seq, StoreSalt};

/// What `verify` found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Log segments read.
    pub segments: u64,
    /// Good records in them.
    pub records: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Whether an appliance had the store open: then its index was not looked at, and the end of the log moves.
    pub running: bool,
    /// Whether the index was compared with the log.
    pub index_checked: bool,
    /// Events that the index says are needed.
    pub events: u64,
    /// Next sequence, by the newest record that tells it.
    pub next_seq: u64,
    /// Each damage.
    pub damages: Vec<Damage>,
}

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// In which file, relative to the data directory.
    pub file: String,
    /// Where, if it is a place.
    pub offset: Option<u64>,
    /// How many bytes.
    pub bytes: u64,
    /// What is wrong.
    pub what: String,
}

impl VerifyReport {
    /// Whether everything is as it should be.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }

    fn damage(&mut self, file: &str, offset: Option<u64>, bytes: u64, what: impl Into<String>) {
        self.damages.push(Damage { file: file.to_owned(), offset, bytes, what: what.into() });
    }
}

/// What `info` tells from the files alone.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StoreInfo {
    /// Format version.
    pub format: u32,
    /// Size of the directory.
    pub disk_bytes: u64,
    /// Of it, the log.
    pub log_bytes: u64,
    /// Of it, the index.
    pub index_bytes: u64,
    /// Of it, bytes set aside.
    pub quarantined_bytes: u64,
    /// Log segments.
    pub segments: u64,
    /// Whether an appliance has it open.
    pub running: bool,
    /// Next sequence when the newest segment began.
    pub next_seq: u64,
    /// Endpoints with their counters at that moment.
    pub endpoints: Vec<EndpointInfo>,
}

/// An endpoint in [`StoreInfo`].
#[derive(Clone, Debug, Serialize)]
pub struct EndpointInfo {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its counters.
    pub ledger: Ledger,
}

fn not_a_store(dir: &Path) -> OpenError {
    let source = io::Error::new(io::ErrorKind::NotFound, "there is no store in it");
    OpenError::Io { doing: "read", path: dir.to_owned(), source }
}

/// Whether someone holds the lock. Taken for a moment, shared, so it changes nothing.
fn is_running(dir: &Path) -> bool {
    File::open(dir.join("LOCK"))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

fn format_of(dir: &Path) -> Result<Option<Format>, OpenError> {
    let format = Format::read(dir);
    match format {
        Some(Format { version, .. }) if version > FORMAT => {
            Err(OpenError::NewerFormat { dir: dir.to_owned(), found: version, known: FORMAT })
        }
        other => Ok(other),
    }
}

/// Sizes and counters from the files, without opening the store.
pub fn info(dir: &Path) -> Result<StoreInfo, OpenError> {
    let format = format_of(dir)?;
    let disk = FileDisk::new(&dir.join("log"));
    let files = disk.list().map_err(|_| not_a_store(dir))?;
    let newest = files.iter().rev().find_map(|&(id, _)| read_header(&disk, id, None));
    let describe = |header: Header| {
        let endpoints = header.endpoints.into_iter();
        endpoints
            .map(|one| EndpointInfo { id: one.id.0, name: one.name.to_string(), ledger: one.ledger })
            .collect()
    };
    Ok(StoreInfo {
        format: format.map_or(0, |format| format.version),
        disk_bytes: dir_bytes(dir),
        log_bytes: dir_bytes(&dir.join("log")),
        index_bytes: dir_bytes(&dir.join("sled")),
        quarantined_bytes: dir_bytes(&dir.join("quarantine")),
        segments: files.len() as u64,
        running: is_running(dir),
        next_seq: newest.as_ref().map_or(1, |header| header.next_seq.0),
        endpoints: newest.map(describe).unwrap_or_default(),
    })
}

/// Reads everything and reports each damage; changes nothing.
pub fn verify(dir: &Path) -> Result<VerifyReport, OpenError> {
    let format = format_of(dir)?;
    let disk = FileDisk::new(&dir.join("log"));
    let files = disk.list().map_err(|_| not_a_store(dir))?;
    let mut report = VerifyReport { running: is_running(dir), ..VerifyReport::default() };
    let salt = if let Some(format) = format {
        Some(format.salt)
    } else {
        report.damage("FORMAT", None, 0, "missing or unreadable");
        files.iter().find_map(|&(id, _)| read_header(&disk, id, None)).map(|header| header.salt)
    };
    let Some(salt) = salt else {
        report.damage("log", None, 0, "no segment tells the store's salt: nothing can be read");
        return Ok(report);
    };
    // Before the log: of a running appliance it must not be newer than what is read of it.
    let witness = Witness::read(dir, salt);
    let mut events = BTreeSet::new();
    let mut lsn = 0;
    for (at, &(id, bytes)) in files.iter().enumerate() {
        let last = at + 1 == files.len();
        check_segment(&disk, salt, (id, bytes), last, &mut lsn, &mut events, &mut report);
    }
    let next_seq = report.next_seq.max(events.last().map_or(0, |newest| newest.0 + 1));
    if let Some(witness) = witness.filter(|witness| witness.next_seq.0 > next_seq.max(1)) {
        let gone = witness.next_seq.0 - next_seq.max(1);
        report.damage("log", None, 0, format!("its end is gone: {gone} events that were synced"));
    }
    if !report.running {
        check_index(dir, salt, &files, &events, &mut report);
    }
    Ok(report)
}

fn check_segment(
    disk: &FileDisk,
    salt: StoreSalt,
    (id, bytes): (u64, u64),
    last: bool,
    lsn: &mut u64,
    events: &mut BTreeSet<Seq>,
    report: &mut VerifyReport,
) {
    let name = format!("log/{}", segment_name(id));
    let mut buffer = vec![0; bytes as usize];
    let read = match disk.open(id).and_then(|file| salvage(&*file, &mut buffer)) {
        Ok(read) => read,
        // Freed while we looked.
        Err(error) if error.kind() == io::ErrorKind::NotFound && report.running => return,
        Err(error) => return report.damage(&name, None, bytes, error.to_string()),
    };
    report.segments += 1;
    report.log_bytes += bytes;
    let pieces = scan(frame::Home { salt: salt.0, segment: id }, &buffer[..read], 0, *lsn);
    if pieces.is_empty() {
        report.damage(&name, None, bytes, "holds no record");
    }
    let count = pieces.len();
    for (at, piece) in pieces.into_iter().enumerate() {
        match piece {
            Piece::Good(_, frame) => {
                *lsn = frame.lsn;
                report.records += 1;
                match Record::decode(frame.kind, frame.version, frame.content, salt) {
                    Some((Record::Accepted(accepted), _)) => drop(events.insert(accepted.event.head.seq)),
                    Some((Record::Moved(moved), _)) => drop(events.insert(moved.event.head.seq)),
                    Some((Record::Header(header), _)) => report.next_seq = header.next_seq.0,
                    Some((Record::Mark { next_seq }, _)) => report.next_seq = next_seq.0,
                    Some(_) => {}
                    None => {
                        report.damage(
                            &name,
                            None,
                            frame.bytes() as u64,
                            "a record that cannot be understood",
                        );
                    }
                }
            }
            Piece::Bad(offset, bad) => {
                let end = last && at + 1 == count;
                if end && report.running {
                    continue; // being written right now
                }
                let what = if end {
                    "an incomplete record at the end of the log (a power cut leaves such; it was not acknowledged)"
                } else {
                    "unreadable bytes between records"
                };
                report.damage(&name, Some(offset), bad.len() as u64, what);
            }
        }
    }
}

/// Opens a copy of the index and holds it against the log.
fn check_index(
    dir: &Path,
    salt: StoreSalt,
    files: &[(u64, u64)],
    events: &BTreeSet<Seq>,
    report: &mut VerifyReport,
) {
    let copy = match tempfile::tempdir()
        .and_then(|copy| copy_dir(&dir.join("sled"), &copy.path().join("sled")).map(|()| copy))
    {
        Ok(copy) => copy,
        Err(error) => return report.damage("sled", None, 0, format!("cannot be read: {error}")),
    };
    let limits = KeyLimits {
        ttl: std::time::Duration::MAX,
        window: std::time::Duration::MAX,
        bytes_max: u64::MAX,
        generation_keys: usize::MAX,
    };
    let mut state = State::new(salt);
    let opened = Index::open(&copy.path().join("sled")).and_then(|index| {
        let checkpoint = index.checkpoint()?;
        index.load(&checkpoint, &mut state)?;
        Keys::new(limits).load(&index)?;
        Ok(checkpoint)
    });
    let checkpoint = match opened {
        Ok(checkpoint) => checkpoint,
        Err(error) => return report.damage("sled", None, dir_bytes(&dir.join("sled")), error.to_string()),
    };
    report.index_checked = true;
    if checkpoint.header.salt != salt {
        return report.damage("sled", None, 0, "belongs to another store");
    }
    for (id, segment) in state.segments.range(..checkpoint.header.segment) {
        let name = format!("log/{}", segment_name(*id));
        match files.iter().find(|(file, _)| file == id) {
            Some((_, bytes)) if *bytes < segment.used => {
                report.damage(&name, Some(*bytes), segment.used - bytes, "shorter than it was");
            }
            Some(_) => {}
            None if segment.count > 0 => report.damage(&name, None, segment.used, "missing"),
            None => {}
        }
    }
    let mut needed = BTreeSet::new();
    for one in state.endpoints.values() {
        needed.extend(one.pending.iter_from(Seq(0)));
        needed.extend(one.dead.iter_from(Seq(0)));
    }
    report.events = needed.len() as u64;
    let gone = needed.difference(events).count() as u64;
    if gone > 0 {
        report.damage("log", None, 0, format!("{gone} needed events have no readable record"));
    }
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.metadata()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
