//! Cuts a stream of bytes into the texts of a sequence: NDJSON lines, or GeoJSON text sequences (RFC 8142).
//!
//! Push chunks as they arrive, pull whole elements; what is not yet complete waits inside, never more than one
//! element. An upload of any length needs the memory of its longest element. An element inside one chunk is a slice
//! of it, without a copy.
//!
//! **Invariants.** The elements do not depend on how the stream was chunked. An element that is too long is reported
//! once, at its place in the numbering, and what follows is read as if it had been short. Delimiters are no part of
//! an element; everything else is, byte for byte.
//!
//! **Rules.** NDJSON: LF or CRLF ends a line, the last line needs none, blank lines are passed over and not counted.
//! Record separators before a line are passed over too, so that a text sequence with one-line texts can be read as lines.
//! RFC 8142: RS begins an element and one LF or CRLF at its end belongs to the delimiter; empty elements (several RS)
//! are passed over; text before the first RS is no element and is reported once. A text that was cut off is an
//! element like any other and fails when it is parsed: a GeoJSON object shows its own end. A byte order mark may
//! begin the stream.

use bytes::{Buf, Bytes, BytesMut};

/// How the elements of a stream are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One text a line (`application/x-ndjson`).
    Lines,
    /// Record separator, text, line feed (`application/geo+json-seq`).
    TextSequence,
}

impl Framing {
    fn delimiter(self) -> u8 {
        match self {
            Framing::Lines => b'\n',
            Framing::TextSequence => RS,
        }
    }
}

/// ASCII record separator (RFC 7464).
const RS: u8 = 0x1e;

/// UTF-8 byte order mark.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Bytes that may stand round an element beyond its limit: CR LF, a record separator, a byte order mark.
const MARGIN: usize = 8;

/// Why a part of the stream is no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Longer than the limit; its bytes were passed over.
    #[error("longer than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// Text before the first record separator of a text sequence.
    #[error("text before the first record separator (RS, 0x1E)")]
    NoSeparator,
}

/// One element, or what stands in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Position in the stream, from 0; blank ones are not counted.
    pub index: u64,
    /// Its exact bytes without delimiters.
    pub text: Result<Bytes, SplitError>,
}

/// The splitter; see the module.
#[derive(Debug)]
pub struct SequenceSplitter {
    framing: Framing,
    bytes_max: usize,
    /// Not yet looked at.
    chunk: Bytes,
    /// Start of an element whose end has not come yet.
    partial: BytesMut,
    /// The element at hand is too long: its bytes are passed over.
    skipping: bool,
    /// No delimiter has come yet: the segment at hand is what stands before the first.
    opening: bool,
    finished: bool,
    next_index: u64,
}

impl SequenceSplitter {
    /// Elements of at most `bytes_max` bytes.
    pub fn new(framing: Framing, bytes_max: usize) -> Self {
        Self {
            framing,
            bytes_max,
            chunk: Bytes::new(),
            partial: BytesMut::new(),
            skipping: false,
            opening: true,
            finished: false,
            next_index: 0,
        }
    }

    /// Takes the next bytes of the stream. Pull until `None` first: a chunk that still holds bytes is joined with
    /// the new one by a copy.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.chunk = [&self.chunk[..], &chunk[..]].concat().into();
        }
    }

    /// The stream has ended: the rest is an element. Not to be called when the other side hung up before the end:
    /// then the rest is no one's whole event.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Bytes held for an element whose end has not come yet.
    pub fn held_bytes(&self) -> usize {
        self.partial.capacity() + self.chunk.len()
    }

    fn take_segment(&mut self) -> Option<Segment> {
        let delimiter = self.framing.delimiter();
        let found = self.chunk.iter().position(|byte| *byte == delimiter);
        let (bytes, ended) = match found {
            Some(at) => {
                let bytes = self.chunk.split_to(at);
                self.chunk.advance(1);
                (bytes, true)
            }
            None => (std::mem::take(&mut self.chunk), self.finished),
        };
        if !self.skipping && self.partial.len() + bytes.len() > self.bytes_max.saturating_add(MARGIN) {
            self.skipping = true;
            self.partial = BytesMut::new();
        }
        if !ended {
            if !self.skipping {
                self.partial.extend_from_slice(&bytes);
            }
            return None;
        }
        if std::mem::take(&mut self.skipping) {
            return Some(Segment::TooLong);
        }
        if self.partial.is_empty() {
            return Some(Segment::Text(bytes));
        }
        self.partial.extend_from_slice(&bytes);
        Some(Segment::Text(std::mem::take(&mut self.partial).freeze()))
    }

    /// The bytes of an element out of what stood between two delimiters; `None` if there is nothing in it.
    fn element(&self, mut text: Bytes, first: bool) -> Option<Bytes> {
        if first && text.starts_with(BOM) {
            text.advance(BOM.len());
        }
        match self.framing {
            Framing::Lines => {
                if text.ends_with(b"\r") {
                    text.truncate(text.len() - 1);
                }
                let marks = text.iter().take_while(|byte| **byte == RS).count();
                text.advance(marks);
            }
            Framing::TextSequence => {
                for end in [b'\n', b'\r'] {
                    if text.ends_with(&[end]) {
                        text.truncate(text.len() - 1);
                    } else {
                        break;
                    }
                }
            }
        }
        let blank = text.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        (!blank).then_some(text)
    }

    fn number(&mut self, text: Result<Bytes, SplitError>) -> Element {
        let index = self.next_index;
        self.next_index += 1;
        Element { index, text }
    }
}

enum Segment {
    Text(Bytes),
    TooLong,
}

impl Iterator for SequenceSplitter {
    type Item = Element;

    /// The next complete element; `None`: push more, or, after [`SequenceSplitter::finish`], the end.
    fn next(&mut self) -> Option<Element> {
        loop {
            let rest =
                !self.chunk.is_empty() || (self.finished && (!self.partial.is_empty() || self.skipping));
            if !rest {
                return None;
            }
            let segment = self.take_segment()?;
            let first = std::mem::replace(&mut self.opening, false);
            let outside = first && self.framing == Framing::TextSequence;
            let bytes_max = self.bytes_max;
            let text = match segment {
                Segment::TooLong if outside => Err(SplitError::NoSeparator),
                Segment::TooLong => Err(SplitError::TooLarge { bytes_max }),
                Segment::Text(text) => match self.element(text, first) {
                    None => continue,
                    Some(_) if outside => Err(SplitError::NoSeparator),
                    Some(text) if text.len() > bytes_max => Err(SplitError::TooLarge { bytes_max }),
                    Some(text) => Ok(text),
                },
            };
            return Some(self.number(text));
        }
    }
}
