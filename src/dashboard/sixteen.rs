//! The sixteen colours in the form that every terminal with colours knows.
//!
//! crossterm writes them as places of a palette of 256 (`38;5;1`). A serial console that has no such palette takes the
//! numbers one by one, and 5 means blink. Here they become `31`, `91` and the like on their way out; what is not
//! such a sequence passes as it is.

use std::io::{self, Write};

/// Longest sequence that is waited for; colours and attributes together have some thirty bytes.
const SEQUENCE_BYTES_MAX: usize = 64;

/// A writer that puts colours into their short form.
#[derive(Debug)]
pub(super) struct Sixteen<W> {
    inner: W,
    /// The beginning of a sequence whose end has not been written yet.
    held: Vec<u8>,
}

impl<W: Write> Sixteen<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, held: Vec::new() }
    }

    fn take(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.held.is_empty() && byte != 0x1b {
            out.push(byte);
            return;
        }
        self.held.push(byte);
        let goes_on = match self.held.len() {
            1 => true,
            2 => byte == b'[',
            length => !(0x40..=0x7e).contains(&byte) && length < SEQUENCE_BYTES_MAX,
        };
        if !goes_on {
            out.extend(shortened(&self.held));
            self.held.clear();
        }
    }
}

impl<W: Write> Write for Sixteen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = Vec::with_capacity(bytes.len() + SEQUENCE_BYTES_MAX);
        for byte in bytes {
            self.take(*byte, &mut out);
        }
        self.inner.write_all(&out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A whole sequence with its colours in short form.
fn shortened(sequence: &[u8]) -> Vec<u8> {
    let numbers = sequence.strip_prefix(b"\x1b[").and_then(|rest| rest.strip_suffix(b"m"));
    let Some(numbers) = numbers.and_then(|numbers| std::str::from_utf8(numbers).ok()) else {
        return sequence.to_vec();
    };
    let mut parts = numbers.split(';').peekable();
    let mut short: Vec<String> = Vec::new();
    while let Some(part) = parts.next() {
        let base = match part {
            "38" => 30,
            "48" => 40,
            _ => {
                short.push(part.to_owned());
                continue;
            }
        };
        let mut rest = parts.clone();
        let colour = (rest.next() == Some("5")).then(|| rest.next()?.parse::<u16>().ok()).flatten();
        match colour {
            Some(colour @ 0..8) => short.push((base + colour).to_string()),
            Some(colour @ 8..16) => short.push((base + 60 + colour - 8).to_string()),
            _ => {
                short.push(part.to_owned());
                continue;
            }
        }
        parts = rest;
    }
    format!("\x1b[{}m", short.join(";")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn through(chunks: &[&[u8]]) -> String {
        let mut writer = Sixteen::new(Vec::new());
        for chunk in chunks {
            writer.write_all(chunk).unwrap();
        }
        String::from_utf8_lossy(&writer.inner).into_owned()
    }

    #[test]
    fn colours_of_the_palette_become_short_and_the_rest_stays() {
        for (written, sent) in [
            ("\x1b[38;5;1mred", "\x1b[31mred"),
            ("\x1b[38;5;13;48;5;0mboth", "\x1b[95;40mboth"),
            ("\x1b[1;38;5;9;49m", "\x1b[1;91;49m"),
            ("\x1b[38;5;200m\x1b[38;2;1;5;9m", "\x1b[38;5;200m\x1b[38;2;1;5;9m"),
            ("\x1b[12;38H\x1b[?1049h\x1bM\x1b[mä", "\x1b[12;38H\x1b[?1049h\x1bM\x1b[mä"),
        ] {
            assert_eq!(through(&[written.as_bytes()]), sent);
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter_and_nothing_else_is_touched(
            bytes in prop::collection::vec(prop::sample::select(b"q\x1b[3845;;m0H".to_vec()), 0..80),
            cut in 0usize..80,
        ) {
            let (one, other) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(through(&[one, other]), through(&[&bytes]));
            let plain: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0x1b).collect();
            prop_assert_eq!(through(&[&plain]), String::from_utf8_lossy(&plain));
        }
    }
}
