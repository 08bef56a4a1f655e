//! The witness: how far the log has been synced, in a small file of its own, `SYNCED`.
//!
//! The end of the log proves itself only up to the last record that can be read. When the newest segment is emptied,
//! cut short or deleted, nothing else knows what stood in it, and the ledger would not miss it. So after each sync the
//! next sequence and what each endpoint had taken on are written here, before the answer. The file is never synced: a
//! kill cannot undo it, and after a power cut it is at most older than the log, never newer, which is no evidence and
//! changes nothing. It costs two microseconds a group and a page of flash now and then.
//!
//! It decides nothing but what is counted as lost; without it, everything works.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::disk::FILE_MODE;
use super::state::State;
use crate::core::ids::{EndpointId, Seq, StoreSalt};

/// Name in the data directory.
pub(super) const WITNESS: &str = "SYNCED";
const MAGIC: &[u8; 8] = b"waypost1";
/// Bytes before the endpoints: magic, salt, next sequence, number of endpoints.
const HEAD: usize = 28;
const ENTRY: usize = 12;
/// No store has as many endpoints; a larger file is not ours.
const BYTES_MAX: u64 = 1 << 20;

/// What had been synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Witness {
    pub(super) next_seq: Seq,
    /// Deliveries that each endpoint had taken on.
    pub(super) accepted: Vec<(EndpointId, i64)>,
}

impl Witness {
    pub(super) fn of(state: &State) -> Self {
        let accepted = state.endpoints.iter().map(|(&id, one)| (id, one.counts.accepted));
        Self { next_seq: state.next_seq, accepted: accepted.collect() }
    }

    fn to_bytes(&self, salt: StoreSalt) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(salt.0.to_le_bytes());
        bytes.extend(self.next_seq.0.to_le_bytes());
        bytes.extend((self.accepted.len() as u32).to_le_bytes());
        for (id, accepted) in &self.accepted {
            bytes.extend(id.0.to_le_bytes());
            bytes.extend(accepted.to_le_bytes());
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// `None` for a file that is torn, of another store, or no witness.
    fn from_bytes(bytes: &[u8], salt: StoreSalt) -> Option<Self> {
        let eight = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let four = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let end = HEAD + ENTRY * four(HEAD - 4)? as usize;
        let sound = bytes.starts_with(MAGIC)
            && eight(8)? == salt.0
            && four(end)? == crc32c::crc32c(bytes.get(..end)?);
        let entry = |at: usize| Some((EndpointId(four(at)?), eight(at + 4)?.cast_signed()));
        let accepted = (HEAD..end).step_by(ENTRY).map(entry).collect::<Option<Vec<_>>>()?;
        sound.then_some(Self { next_seq: Seq(eight(16)?), accepted })
    }

    /// Reads it, if there is one that can be believed.
    pub(super) fn read(dir: &Path, salt: StoreSalt) -> Option<Self> {
        let path = dir.join(WITNESS);
        if std::fs::metadata(&path).ok()?.len() > BYTES_MAX {
            return None;
        }
        Self::from_bytes(&std::fs::read(path).ok()?, salt)
    }
}

/// Where it is written.
pub(super) struct WitnessFile {
    file: Option<File>,
    bytes: usize,
}

impl WitnessFile {
    /// Opens it. If that cannot be done there is none, and nothing else is different.
    pub(super) fn open(dir: &Path) -> Self {
        let open = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(dir.join(WITNESS));
        Self { file: open.ok(), bytes: 0 }
    }

    /// Writes what has been synced. A full disk does not matter: the page is there already.
    pub(super) fn write(&mut self, witness: &Witness, salt: StoreSalt) {
        let Some(file) = &self.file else { return };
        let bytes = witness.to_bytes(salt);
        let written = file.write_all_at(&bytes, 0).and_then(|()| {
            if self.bytes == bytes.len() { io::Result::Ok(()) } else { file.set_len(bytes.len() as u64) }
        });
        self.bytes = if written.is_ok() { bytes.len() } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_is_believed_whole_and_of_this_store_or_not_at_all() {
        let witness = Witness { next_seq: Seq(77), accepted: vec![(EndpointId(1), 70), (EndpointId(9), 3)] };
        let bytes = witness.to_bytes(StoreSalt(5));
        assert_eq!(Witness::from_bytes(&bytes, StoreSalt(5)), Some(witness.clone()));
        assert_eq!(Witness::from_bytes(&bytes, StoreSalt(6)), None);
        for len in 0..bytes.len() {
            assert_eq!(Witness::from_bytes(&bytes[..len], StoreSalt(5)), None, "{len}");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert_eq!(Witness::from_bytes(&flipped, StoreSalt(5)), None, "{at}");
        }
        let dir = tempfile::tempdir().unwrap();
        let mut file = WitnessFile::open(dir.path());
        file.write(&witness, StoreSalt(5));
        let short = Witness { accepted: Vec::new(), ..witness };
        file.write(&short, StoreSalt(5));
        assert_eq!(Witness::read(dir.path(), StoreSalt(5)), Some(short), "a shorter one replaces it whole");
    }
}
