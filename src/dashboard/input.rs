//! Keys and mouse from the terminal: a thread that reads, and a parser that has no terminal.
//!
//! crossterm's own reader is not used: it waits for edges, so a key that arrives together with a change of size is
//! not seen before the next key; and at the end of a dead terminal it reads for ever. Here every wait is by level, and
//! the end of the input, a hang-up or an error is an [`Input::End`].
//!
//! The parser knows what the dashboard uses: characters, control characters, the sequences of cursor keys in their
//! usual spellings, and mouse reports (SGR form). Anything else, also with Alt, is dropped as a whole, so that no part of
//! an unknown key is taken for a letter.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

/// Longest wait of the reader before it looks whether anybody still listens.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// An escape that is followed by nothing for so long is the key; a sequence at 9600 baud has its next byte in 1 ms.
const ESCAPE_ALONE: Duration = Duration::from_millis(60);
/// Events that may wait for the loop; a reader that finds it full waits, and so does the person.
const EVENTS_MAX: usize = 256;
/// Longest sequence that is waited for; the longest known, a mouse report, has 20 bytes.
const SEQUENCE_BYTES_MAX: usize = 64;

/// What came from the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A key.
    Key(KeyEvent),
    /// The mouse.
    Mouse(MouseEvent),
    /// Nothing will come any more.
    End,
}

/// Starts reading. The thread ends with the terminal, or soon after the receiver is dropped.
pub fn start() -> io::Result<mpsc::Receiver<Input>> {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    // Input may be a file or a pipe while the terminal is still there.
    let terminal: OwnedFd = if io::stdin().is_terminal() {
        io::stdin().as_fd().try_clone_to_owned()?
    } else {
        File::open("/dev/tty")?.into()
    };
    thread::Builder::new()
        .name("terminal-input".to_owned())
        .spawn(move || read(terminal.as_fd(), &sender))?;
    Ok(receiver)
}

fn read(terminal: BorrowedFd<'_>, sender: &mpsc::Sender<Input>) {
    let mut parser = Parser::default();
    let mut found = Vec::new();
    let mut buffer = [0; 1024];
    while !sender.is_closed() {
        let wait = if parser.is_waiting() { ESCAPE_ALONE } else { LOOK_EVERY };
        match wait_readable(terminal, wait) {
            Ok(true) => match rustix::io::read(terminal, &mut buffer) {
                Ok(0) => break,
                Ok(count) => parser.feed(&buffer[..count], &mut found),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(_) => break,
            },
            Ok(false) => parser.flush(&mut found),
            Err(()) => break,
        }
        for event in found.drain(..) {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    }
    let _ = sender.blocking_send(Input::End);
}

/// Whether there is something to read; an error if there never will be again.
fn wait_readable(terminal: BorrowedFd<'_>, at_most: Duration) -> Result<bool, ()> {
    let mut ends = [PollFd::from_borrowed_fd(terminal, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(at_most.subsec_nanos()) };
    match poll(&mut ends, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
        Ok(_) if ends[0].revents().contains(PollFlags::IN) => Ok(true),
        Ok(_) | Err(_) => Err(()),
    }
}

/// Bytes to events; keeps what is not complete yet.
#[derive(Debug, Default)]
struct Parser {
    pending: Vec<u8>,
}

/// What the start of the pending bytes is.
enum Step {
    /// So many bytes are this event, or nothing.
    Took(usize, Option<Input>),
    /// More is needed to tell.
    Incomplete,
}

impl Parser {
    fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    fn feed(&mut self, bytes: &[u8], found: &mut Vec<Input>) {
        self.pending.extend_from_slice(bytes);
        loop {
            match step(&self.pending) {
                Step::Took(0, _) => break,
                Step::Took(count, event) => {
                    self.pending.drain(..count);
                    found.extend(event);
                }
                Step::Incomplete if self.pending.len() > SEQUENCE_BYTES_MAX => self.pending.clear(),
                Step::Incomplete => break,
            }
        }
    }

    /// Nothing more came: an escape alone is the key, the start of anything else is given up.
    fn flush(&mut self, found: &mut Vec<Input>) {
        if self.pending == [0x1b] {
            found.push(key(KeyCode::Esc));
        }
        self.pending.clear();
    }
}

fn key(code: KeyCode) -> Input {
    Input::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn control(code: KeyCode) -> Input {
    Input::Key(KeyEvent::new(code, KeyModifiers::CONTROL))
}

fn step(bytes: &[u8]) -> Step {
    let Some(&first) = bytes.first() else { return Step::Took(0, None) };
    match first {
        0x1b => escape(bytes),
        b'\r' | b'\n' => Step::Took(1, Some(key(KeyCode::Enter))),
        b'\t' => Step::Took(1, Some(key(KeyCode::Tab))),
        0x08 | 0x7f => Step::Took(1, Some(key(KeyCode::Backspace))),
        0x00 => Step::Took(1, None),
        0x01..=0x1a => Step::Took(1, Some(control(KeyCode::Char(char::from(first - 1 + b'a'))))),
        0x1c..=0x1f => Step::Took(1, None),
        _ => character(bytes, first),
    }
}

fn character(bytes: &[u8], first: u8) -> Step {
    let length = match first {
        0x20..=0x7e => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        // No UTF-8, or the middle of it.
        _ => return Step::Took(1, None),
    };
    let Some(whole) = bytes.get(..length) else { return Step::Incomplete };
    match std::str::from_utf8(whole).ok().and_then(|text| text.chars().next()) {
        Some(c) => Step::Took(length, Some(key(KeyCode::Char(c)))),
        None => Step::Took(1, None),
    }
}

fn escape(bytes: &[u8]) -> Step {
    match bytes.get(1) {
        None => Step::Incomplete,
        Some(b'[') => sequence(bytes),
        Some(b'O') => match bytes.get(2) {
            None => Step::Incomplete,
            Some(last) => Step::Took(3, cursor_key(*last).map(key)),
        },
        // Escape pressed twice, or before another sequence.
        Some(0x1b) => Step::Took(1, Some(key(KeyCode::Esc))),
        // Alt and a key.
        Some(_) => match step(&bytes[1..]) {
            Step::Took(count, _) => Step::Took(count + 1, None),
            Step::Incomplete => Step::Incomplete,
        },
    }
}

/// `ESC [ parameters final` (ECMA-48 5.4).
fn sequence(bytes: &[u8]) -> Step {
    // The Linux console spells its function keys `ESC [ [ A`.
    if bytes.get(2) == Some(&b'[') {
        return if bytes.len() > 3 { Step::Took(4, None) } else { Step::Incomplete };
    }
    let Some(end) = bytes[2..].iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        return Step::Incomplete;
    };
    let (parameters, last) = (&bytes[2..2 + end], bytes[2 + end]);
    if !(0x40..=0x7e).contains(&last) {
        // Broken off by something that is no part of it: read that anew.
        return Step::Took(2 + end, None);
    }
    let text = std::str::from_utf8(parameters).unwrap_or("");
    let event = match text.strip_prefix('<') {
        Some(report) => mouse(report, last).map(Input::Mouse),
        None => named(text, last),
    };
    Step::Took(3 + end, event)
}

fn cursor_key(last: u8) -> Option<KeyCode> {
    Some(match last {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'M' => KeyCode::Enter,
        b'Z' => KeyCode::BackTab,
        _ => return None,
    })
}

fn named(parameters: &str, last: u8) -> Option<Input> {
    let mut numbers = parameters.split(';').map(|text| text.parse::<u16>().ok());
    let first = numbers.next().flatten();
    // xterm adds the modifiers as a second number: 1 and a sum of shift 1, alt 2, control 4.
    let modifiers = numbers.next().flatten().unwrap_or(1).saturating_sub(1);
    let code = match (last, first) {
        (b'~', Some(1 | 7)) => KeyCode::Home,
        (b'~', Some(4 | 8)) => KeyCode::End,
        (b'~', Some(3)) => KeyCode::Delete,
        (b'~', Some(5)) => KeyCode::PageUp,
        (b'~', Some(6)) => KeyCode::PageDown,
        (b'~', _) => return None,
        (last, _) => cursor_key(last)?,
    };
    match modifiers {
        0 | 1 => Some(key(code)),
        4 | 5 => Some(control(code)),
        _ => None,
    }
}

/// `button ; column ; row` and `M` for down, `m` for up (xterm, SGR mouse mode).
fn mouse(report: &str, last: u8) -> Option<MouseEvent> {
    let mut numbers = report.split(';').map(|text| text.parse::<u16>().ok());
    let (button, column, row) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let kind = match (button, last) {
        (0, b'M') => MouseEventKind::Down(MouseButton::Left),
        (0, b'm') => MouseEventKind::Up(MouseButton::Left),
        (32, b'M') => MouseEventKind::Drag(MouseButton::Left),
        (64, b'M') => MouseEventKind::ScrollUp,
        (65, b'M') => MouseEventKind::ScrollDown,
        _ => return None,
    };
    let (column, row) = (column.saturating_sub(1), row.saturating_sub(1));
    Some(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Vec<Input> {
        let (mut parser, mut found) = (Parser::default(), Vec::new());
        parser.feed(bytes, &mut found);
        parser.flush(&mut found);
        found
    }

    #[test]
    fn keys_in_their_usual_spellings() {
        for (bytes, code) in [
            (&b"q"[..], KeyCode::Char('q')),
            ("ß".as_bytes(), KeyCode::Char('ß')),
            ("東".as_bytes(), KeyCode::Char('東')),
            (b"\r", KeyCode::Enter),
            (b"\t", KeyCode::Tab),
            (b"\x7f", KeyCode::Backspace),
            (b"\x1b", KeyCode::Esc),
            (b"\x1b[A", KeyCode::Up),
            (b"\x1bOB", KeyCode::Down),
            (b"\x1b[Z", KeyCode::BackTab),
            (b"\x1b[5~", KeyCode::PageUp),
            (b"\x1b[6~", KeyCode::PageDown),
            (b"\x1b[1~", KeyCode::Home),
            (b"\x1b[8~", KeyCode::End),
            (b"\x1b[1;2C", KeyCode::Right),
        ] {
            assert_eq!(parse(bytes), [key(code)], "{bytes:?}");
        }
        assert_eq!(parse(b"\x03"), [control(KeyCode::Char('c'))]);
        assert_eq!(parse(b"\x1b[1;5C"), [control(KeyCode::Right)]);
        assert_eq!(parse(b"\x1b\x1b[A"), [key(KeyCode::Esc), key(KeyCode::Up)]);
    }

    #[test]
    fn unknown_sequences_leave_no_letters_behind() {
        for bytes in [
            &b"\x1bq"[..],
            b"\x1b[15~",
            b"\x1b[?1;2c",
            b"\x1b[[A",
            b"\x1b[1;3A",
            b"\x1b[",
            b"\x1b[12",
            b"\xff\xfe",
            b"\xe6\x9d",
            b"\x1b[<35;1;1M",
        ] {
            assert_eq!(parse(bytes), [], "{bytes:?}");
        }
        assert_eq!(parse(b"\x1b[1\x1bOA"), [key(KeyCode::Up)], "a broken sequence costs only itself");
    }

    #[test]
    fn mouse_reports() {
        let at =
            |kind, column, row| Input::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE });
        assert_eq!(
            parse(b"\x1b[<0;10;5M\x1b[<32;11;6M\x1b[<0;11;6m\x1b[<64;1;1M"),
            [
                at(MouseEventKind::Down(MouseButton::Left), 9, 4),
                at(MouseEventKind::Drag(MouseButton::Left), 10, 5),
                at(MouseEventKind::Up(MouseButton::Left), 10, 5),
                at(MouseEventKind::ScrollUp, 0, 0),
            ]
        );
    }

    proptest! {
        /// However a line cuts the bytes, the events are the same; and no bytes are kept for ever.
        #[test]
        fn cuts_do_not_matter(bytes in prop::collection::vec(prop::sample::select(b"q\x1b[O<;0159~AMmZ\xc3\x9f\r\x03".to_vec()), 0..60), cut in 0usize..60) {
            let whole = parse(&bytes);
            let (mut parser, mut found) = (Parser::default(), Vec::new());
            let cut = cut.min(bytes.len());
            parser.feed(&bytes[..cut], &mut found);
            parser.feed(&bytes[cut..], &mut found);
            prop_assert!(parser.pending.len() <= SEQUENCE_BYTES_MAX);
            parser.flush(&mut found);
            prop_assert_eq!(found, whole);
        }

        #[test]
        fn any_bytes_are_fine(bytes in any::<Vec<u8>>()) {
            parse(&bytes);
        }
    }
}
