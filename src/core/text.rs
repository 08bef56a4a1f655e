//! Text from outside, made safe to show: one place for screens, logs and command output.
//!
//! Ids, devices, properties and receivers' answers come from strangers. Drawn as they come they could move the
//! cursor, set the title, reverse the reading direction or fake lines. [`visible`] shows every such character as
//! an escape that a person can read; [`fit`] also brings the text to a width in terminal columns.
//!
//! **Invariants.** The result of [`visible`] holds no control character (C0, DEL, C1), no line or paragraph
//! separator, no bidirectional mark and no invisible format character; applied twice it changes nothing more. What
//! is stored, sent and exported is never touched: this is for eyes only.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Combining marks let through after one base character; real scripts need at most three, and a tower of hundreds
/// in one cell would be redrawn for ever.
const COMBINING_MAX: usize = 3;

/// Whether a character is shown as an escape.
///
/// Controls act on the terminal; bidirectional marks reorder what stands around them; joiners, variation selectors
/// and tags make a width that terminals disagree about, so columns would not stay aligned.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text with everything that acts on a terminal shown as an escape (`\n`, `\u{1b}`, …).
///
/// Borrows when there is nothing to do, which is nearly always.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.is_ascii() && !text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut marks = 0;
    for c in text.chars() {
        let zero_width = c.width() == Some(0);
        marks = if zero_width { marks + 1 } else { 0 };
        if is_hidden(c) || marks > COMBINING_MAX || (zero_width && out.is_empty()) {
            escape(c, &mut out);
        } else {
            out.push(c);
        }
    }
    if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

fn escape(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ => {
            let _ = write!(out, "\\u{{{:x}}}", c as u32);
        }
    }
}

/// Columns that a text takes on a terminal, once [`visible`].
pub fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>().max(text.width())
}

/// The text [`visible`] and at most `columns` wide; what is cut off is announced by `ellipsis`.
pub fn truncate(text: &str, columns: usize, ellipsis: char) -> String {
    let text = visible(text);
    if width(&text) <= columns {
        return text.into_owned();
    }
    let room = columns.saturating_sub(ellipsis.width().unwrap_or(1));
    let mut used = 0;
    let mut out: String = text
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= room
        })
        .collect();
    if columns > 0 {
        out.push(ellipsis);
    }
    out
}

/// On which side a column is flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// The text [`visible`] and exactly `columns` wide: cut or padded.
pub fn fit(text: &str, columns: usize, align: Align, ellipsis: char) -> String {
    let mut out = truncate(text, columns, ellipsis);
    let pad = columns.saturating_sub(width(&out));
    match align {
        Align::Left => out.extend(std::iter::repeat_n(' ', pad)),
        Align::Right => out.insert_str(0, &" ".repeat(pad)),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown_as_an_escape() {
        for (text, shown) in [
            ("plain", "plain"),
            ("Zürich 東京", "Zürich 東京"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("bell\u{7}", "bell\\u{7}"),
            ("csi \u{9b}31m", "csi \\u{9b}31m"),
            ("del\u{7f}", "del\\u{7f}"),
            ("rtl \u{202e}txt", "rtl \\u{202e}txt"),
            ("iso \u{2066}x\u{2069}", "iso \\u{2066}x\\u{2069}"),
            ("\u{feff}bom", "\\u{feff}bom"),
            ("👨\u{200d}👩", "👨\\u{200d}👩"),
            ("e\u{301}", "e\u{301}"),
            ("\u{301}first", "\\u{301}first"),
            ("z\u{301}\u{301}\u{301}\u{301}", "z\u{301}\u{301}\u{301}\\u{301}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn clean_text_is_borrowed() {
        assert!(matches!(visible("gw-017"), Cow::Borrowed(_)));
        assert!(matches!(visible("Zürich"), Cow::Borrowed(_)));
    }

    #[test]
    fn columns_count_and_cuts_are_announced() {
        assert_eq!(fit("東京都", 5, Align::Left, '…'), "東京…");
        assert_eq!(fit("東京都", 4, Align::Left, '…'), "東… ");
        assert_eq!(fit("7", 4, Align::Right, '…'), "   7");
        assert_eq!(fit("long", 0, Align::Left, '…'), "");
        assert_eq!(truncate("a\u{1b}b", 4, '~'), "a\\u~");
    }

    proptest! {
        #[test]
        fn no_text_reaches_the_terminal_raw(text in any::<String>(), columns in 0usize..40) {
            let shown = visible(&text).into_owned();
            prop_assert!(!shown.chars().any(is_hidden));
            prop_assert_eq!(visible(&shown), shown.as_str());
            prop_assert_eq!(width(&fit(&text, columns, Align::Left, '…')), columns);
        }
    }
}
