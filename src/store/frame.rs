//! The frame around every log record, and the scan that finds records again in a damaged file.
//!
//! ```text
//! offset size
//!      0    4  magic
//!      4    4  length of the content
//!      8    8  LSN
//!     16    4  crc32c
//!     20    4  how many LSNs before this one were not known to be synced when it was written
//!     24    1  kind
//!     25    1  format version of the content
//!     26    2  zero
//!     28    -  content
//! ```
//!
//! All numbers are little-endian. The checksum covers the store's salt, segment number, offset, the fields above and
//! the content, so a record is only ever good at the place for which it was written: neither an old record nor one
//! that a producer forges inside a body can be taken for real. LSNs only grow; a smaller one is a left-over.

/// Bytes before the content.
pub(super) const FRAME_HEAD: usize = 28;
/// Start of every record; not text, so a GeoJSON body cannot hold it (0xFF never occurs in UTF-8).
const MAGIC: [u8; 4] = [0xFF, b'w', b'p', 0xFE];
/// Longest content that is believed (bodies are bounded far below).
const CONTENT_MAX: u32 = 1 << 30;

/// What a record is; numbers are for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Kind {
    /// First in a segment: absolute counters and registry.
    Header = 1,
    /// An event and whom it is for.
    Accepted = 2,
    /// An end of a delivery.
    Ended = 3,
    /// A delivery's attempts and, if it waits, when it is due.
    Slip = 4,
    /// A delivery became a dead letter.
    Dead = 5,
    /// A dead letter went back to pending.
    Redriven = 6,
    /// An event copied to the tail with the absolute state of its deliveries.
    Moved = 7,
    /// An endpoint registered or changed.
    Endpoint = 8,
    /// Last in a full segment: where its events are.
    Index = 9,
    /// Nothing but the proof, by its frame, of what was synced.
    Mark = 10,
}

impl Kind {
    fn from_u8(byte: u8) -> Option<Self> {
        use Kind::{Accepted, Dead, Ended, Endpoint, Header, Index, Mark, Moved, Redriven, Slip};
        [Header, Accepted, Ended, Slip, Dead, Redriven, Moved, Endpoint, Index, Mark]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A frame whose checksum was right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame<'a> {
    pub(super) lsn: u64,
    /// Everything up to this LSN had been synced when the frame was written.
    pub(super) synced_lsn: u64,
    pub(super) kind: Kind,
    pub(super) version: u8,
    pub(super) content: &'a [u8],
}

impl Frame<'_> {
    pub(super) fn bytes(&self) -> usize {
        FRAME_HEAD + self.content.len()
    }
}

/// Where frames are good: the store and the segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) salt: u64,
    pub(super) segment: u64,
}

impl Home {
    fn crc(self, offset: u64, head: &[u8], content: &[u8]) -> u32 {
        let mut place = [0; 24];
        place[..8].copy_from_slice(&self.salt.to_le_bytes());
        place[8..16].copy_from_slice(&self.segment.to_le_bytes());
        place[16..].copy_from_slice(&offset.to_le_bytes());
        let crc = crc32c::crc32c(&place);
        let crc = crc32c::crc32c_append(crc, &head[4..16]);
        let crc = crc32c::crc32c_append(crc, &head[20..FRAME_HEAD]);
        crc32c::crc32c_append(crc, content)
    }

    /// Fills the head of a frame whose content stands in `frame[FRAME_HEAD..]`.
    pub(super) fn seal(
        self,
        frame: &mut [u8],
        offset: u64,
        lsn: u64,
        unsynced: u32,
        kind: Kind,
        version: u8,
    ) {
        let (head, content) = frame.split_at_mut(FRAME_HEAD);
        head[..4].copy_from_slice(&MAGIC);
        head[4..8].copy_from_slice(&(content.len() as u32).to_le_bytes());
        head[8..16].copy_from_slice(&lsn.to_le_bytes());
        head[20..24].copy_from_slice(&unsynced.to_le_bytes());
        head[24] = kind as u8;
        head[25] = version;
        head[26..].fill(0);
        let crc = self.crc(offset, head, content);
        head[16..20].copy_from_slice(&crc.to_le_bytes());
    }

    /// The frame at the start of `bytes`, which stand at `offset` of the segment; `None` if there is no good one.
    pub(super) fn open(self, bytes: &[u8], offset: u64) -> Option<Frame<'_>> {
        let len = content_bytes(bytes)?;
        let (head, content) = (&bytes[..FRAME_HEAD], bytes.get(FRAME_HEAD..FRAME_HEAD + len)?);
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        if word(16) != self.crc(offset, head, content) {
            return None;
        }
        let lsn = u64::from_le_bytes(head[8..16].try_into().ok()?);
        Some(Frame {
            lsn,
            synced_lsn: lsn.saturating_sub(u64::from(word(20))),
            kind: Kind::from_u8(head[24])?,
            version: head[25],
            content,
        })
    }
}

/// Length of the content that a frame's head claims; `None` if it does not look like a head.
pub(super) fn content_bytes(head: &[u8]) -> Option<usize> {
    if head.get(..4)? != MAGIC || head.len() < FRAME_HEAD {
        return None;
    }
    let len = u32::from_le_bytes(head[4..8].try_into().ok()?);
    (len <= CONTENT_MAX).then_some(len as usize)
}

/// A piece of a scanned segment.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// A good record at an offset.
    Good(u64, Frame<'a>),
    /// Bytes from an offset that belong to no good record though good ones follow, or that are not zero.
    Bad(u64, &'a [u8]),
}

/// Splits the bytes of a segment from `offset` on into good records and what lies between. Zeros after the last good
/// record (pre-allocated space) are no piece. LSNs must grow beyond `lsn_floor`.
pub(super) fn scan(home: Home, bytes: &[u8], mut offset: usize, mut lsn_floor: u64) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut bad_from = None;
    while offset < bytes.len() {
        let good = home.open(&bytes[offset..], offset as u64).filter(|frame| frame.lsn > lsn_floor);
        if let Some(frame) = good {
            if let Some(from) = bad_from.take() {
                pieces.push(Piece::Bad(from as u64, &bytes[from..offset]));
            }
            pieces.push(Piece::Good(offset as u64, frame));
            lsn_floor = frame.lsn;
            offset += frame.bytes();
        } else {
            bad_from.get_or_insert(offset);
            offset = next_magic(bytes, offset + 1);
        }
    }
    if let Some(from) = bad_from {
        let tail = &bytes[from..];
        let used = tail.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if used > 0 {
            pieces.push(Piece::Bad(from as u64, &tail[..used]));
        }
    }
    pieces
}

fn next_magic(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == MAGIC[0])) {
        if bytes[at + found..].starts_with(&MAGIC) {
            return at + found;
        }
        at += found + 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOME: Home = Home { salt: 7, segment: 3 };

    fn log(contents: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for (index, content) in contents.iter().enumerate() {
            let start = bytes.len();
            starts.push(start);
            bytes.resize(start + FRAME_HEAD, 0);
            bytes.extend(content);
            HOME.seal(&mut bytes[start..], start as u64, index as u64 + 1, 1, Kind::Mark, 1);
        }
        bytes.resize(bytes.len() + 300, 0);
        (bytes, starts)
    }

    fn good_lsns(pieces: &[Piece<'_>]) -> Vec<u64> {
        pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Good(_, frame) => Some(frame.lsn),
                Piece::Bad(..) => None,
            })
            .collect()
    }

    #[test]
    fn a_frame_is_good_only_at_its_own_place() {
        let mut frame = vec![0; FRAME_HEAD + 5];
        HOME.seal(&mut frame, 64, 9, 2, Kind::Ended, 1);
        let read = HOME.open(&frame, 64).unwrap();
        assert_eq!((read.lsn, read.synced_lsn, read.kind, read.version), (9, 7, Kind::Ended, 1));
        assert_eq!(HOME.open(&frame, 65), None);
        assert_eq!(Home { segment: 4, ..HOME }.open(&frame, 64), None);
        assert_eq!(Home { salt: 8, ..HOME }.open(&frame, 64), None);
    }

    #[test]
    fn a_stale_record_behind_the_tail_is_not_taken() {
        let (bytes, starts) = log(&vec![vec![1; 10]; 3]);
        assert_eq!(good_lsns(&scan(HOME, &bytes, 0, 0)), [1, 2, 3]);
        assert_eq!(good_lsns(&scan(HOME, &bytes, starts[1], 2)), [3], "LSN 2 is a left-over");
    }

    proptest! {
        #[test]
        fn one_damage_hurts_only_the_records_it_touches(
            contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..30),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let (mut bytes, starts) = log(&contents);
            let end = bytes.len() - 300;
            let at = at.index(end);
            bytes[at] ^= flip;
            let hurt = starts.iter().rposition(|&start| start <= at).unwrap() as u64 + 1;
            let expected: Vec<u64> = (1..=contents.len() as u64).filter(|&lsn| lsn != hurt).collect();
            let pieces = scan(HOME, &bytes, 0, 0);
            prop_assert_eq!(good_lsns(&pieces), expected);
            let bad = pieces.iter().filter(|piece| matches!(piece, Piece::Bad(..))).count();
            prop_assert_eq!(bad, 1);
        }
    }
}
