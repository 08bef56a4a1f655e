//! A strict JSON reader that gives back places instead of a tree: every value is a span of the text it came in.
//!
//! Events are sent with the bytes they came in, so what is needed of a document is where its members stand, not a
//! copy of them. [`Scanner`] walks a text once, without recursion and without allocation; its callers take the
//! spans they want and walk those again.
//!
//! **Invariants.** A value that [`Scanner::value`] has passed is RFC 8259 to the letter, nests at most [`DEPTH_MAX`]
//! deep (so recursion over it is safe) and holds no lone surrogate escape (I-JSON; strict receivers cannot read
//! them). Text is valid UTF-8 because it is a `&str`.
//!
//! It does not know numbers as doubles: their text is passed on ([`crate::core::key`] reads it).

use std::borrow::Cow;

/// Levels of arrays and objects that a document may have; one more is refused. `serde_json` and what is built on it
/// stop at the same depth, so a deeper document would be poison to many receivers.
pub const DEPTH_MAX: u32 = 127;

/// Why a text is no JSON that can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text ends inside a value.
    #[error("the text is cut off")]
    CutOff,
    /// Nothing but white space.
    #[error("there is no value")]
    NoValue,
    /// A character that cannot stand there.
    #[error("unexpected character")]
    Unexpected,
    /// Something other than white space follows the value.
    #[error("text after the end of the value")]
    Trailing,
    /// `NaN`, `Infinity`, `01`, `1.`, `+1` and the like.
    #[error("not a JSON number")]
    Number,
    /// A control character that should be escaped.
    #[error("unescaped control character in a string")]
    Control,
    /// A backslash sequence JSON does not have.
    #[error("unknown escape in a string")]
    Escape,
    /// Half of a surrogate pair.
    #[error("half of a surrogate pair in a string")]
    Surrogate,
    /// More than [`DEPTH_MAX`] levels.
    #[error("nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
}

/// A [`Fault`] and the byte where it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {at}")]
pub struct SyntaxError {
    /// What is wrong.
    pub fault: Fault,
    /// Offset from the start of the scanned text.
    pub at: usize,
}

/// Kinds of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

/// Where a value stands in the scanned text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Kind of the value.
    pub kind: Kind,
}

impl Span {
    /// The span's text.
    pub fn of(self, text: &str) -> &str {
        &text[self.start..self.end]
    }
}

/// Walks a text value by value.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// Brackets entered and not yet left.
    level: u32,
}

/// What may stand in a string without a second look: everything but `"`, `\` and controls.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    plain[b'"' as usize] = false;
    plain[b'\\' as usize] = false;
    plain
};

impl<'a> Scanner<'a> {
    /// At the start of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, level: 0 }
    }

    /// At byte `at` of `text`, where a value or white space before one must begin.
    pub fn at(text: &'a str, at: usize) -> Self {
        Self { text, at, level: 0 }
    }

    /// The whole text it walks.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The byte it stands at.
    pub fn position(&self) -> usize {
        self.at
    }

    fn fail<T>(&self, fault: Fault) -> Result<T, SyntaxError> {
        Err(SyntaxError { fault, at: self.at })
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is no white space, without passing it.
    pub fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Passes `byte` and white space before it.
    pub fn expect(&mut self, byte: u8) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            Some(_) => self.fail(Fault::Unexpected),
            None => self.fail(Fault::CutOff),
        }
    }

    /// Nothing but white space may follow.
    pub fn finish(&mut self) -> Result<(), SyntaxError> {
        if self.peek().is_some() { self.fail(Fault::Trailing) } else { Ok(()) }
    }

    /// Passes one value of any depth and gives its place.
    pub fn value(&mut self) -> Result<Span, SyntaxError> {
        let Some(first) = self.peek() else {
            return self.fail(Fault::CutOff);
        };
        let start = self.at;
        let kind = match first {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::String,
            b't' | b'f' => Kind::Bool,
            b'n' => Kind::Null,
            _ => Kind::Number,
        };
        self.pass()?;
        Ok(Span { start, end: self.at, kind })
    }

    /// Passes one value. `open` holds one bit for each bracket opened here, 1 for an object: [`DEPTH_MAX`] of them fit.
    fn pass(&mut self) -> Result<(), SyntaxError> {
        let mut open: u128 = 0;
        let mut depth: u32 = 0;
        loop {
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    if self.level + depth == DEPTH_MAX {
                        return self.fail(Fault::TooDeep);
                    }
                    self.at += 1;
                    let object = bracket == b'{';
                    if self.peek() == Some(bracket + 2) {
                        self.at += 1;
                    } else {
                        open = (open << 1) | u128::from(object);
                        depth += 1;
                        if object {
                            self.name()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            while depth > 0 {
                let object = open & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.name()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    Some(_) => return self.fail(Fault::Unexpected),
                    None => return self.fail(Fault::CutOff),
                }
                self.at += 1;
                open >>= 1;
                depth -= 1;
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn scalar(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'+' | b'.' | b'N' | b'I') => self.fail(Fault::Number),
            Some(_) => self.fail(Fault::Unexpected),
            None => self.fail(Fault::CutOff),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), SyntaxError> {
        let rest = &self.text.as_bytes()[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        self.fail(if word.as_bytes().starts_with(rest) { Fault::CutOff } else { Fault::Unexpected })
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
        if self.at > start {
            return Ok(());
        }
        self.fail(if self.byte().is_none() { Fault::CutOff } else { Fault::Number })
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        match self.byte() {
            // `01`, `0x1F`, `1_000`, `1.2.3`: say what it looks like, not that a comma is missing.
            Some(b'0'..=b'9' | b'.' | b'_' | b'x' | b'X' | b'e' | b'E' | b'+' | b'-') => {
                self.fail(Fault::Number)
            }
            _ => Ok(()),
        }
    }

    /// Passes a string and gives its place, quotes included.
    pub fn string(&mut self) -> Result<Span, SyntaxError> {
        self.expect(b'"')?;
        let start = self.at - 1;
        let bytes = self.text.as_bytes();
        loop {
            self.at += bytes[self.at..].iter().take_while(|byte| PLAIN[usize::from(**byte)]).count();
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Span { start, end: self.at, kind: Kind::String });
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return self.fail(Fault::Control),
                None => return self.fail(Fault::CutOff),
            }
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        self.at += 1;
        match self.byte() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let first = self.hex4()?;
                let lone = SyntaxError { fault: Fault::Surrogate, at: start };
                match first {
                    0xd800..=0xdbff => {
                        if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                            return Err(lone);
                        }
                        self.at += 1;
                        if !matches!(self.hex4()?, 0xdc00..=0xdfff) {
                            return Err(lone);
                        }
                    }
                    0xdc00..=0xdfff => return Err(lone),
                    _ => {}
                }
            }
            Some(_) => return self.fail(Fault::Escape),
            None => return self.fail(Fault::CutOff),
        }
        Ok(())
    }

    /// Passes `uXXXX`.
    fn hex4(&mut self) -> Result<u32, SyntaxError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let Some(byte) = self.byte() else {
                return self.fail(Fault::CutOff);
            };
            let Some(digit) = char::from(byte).to_digit(16) else {
                return self.fail(Fault::Escape);
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    /// Passes a member name and its colon, and gives the name's place, quotes included.
    fn name(&mut self) -> Result<Span, SyntaxError> {
        let name = self.string()?;
        self.expect(b':')?;
        Ok(name)
    }

    fn enter(&mut self, bracket: u8) -> Result<(), SyntaxError> {
        self.expect(bracket)?;
        self.level += 1;
        if self.level > DEPTH_MAX {
            self.at -= 1;
            return self.fail(Fault::TooDeep);
        }
        Ok(())
    }

    /// Walks an object: `each` gets the place of a name, quotes included, and must pass the value.
    pub fn object<E: From<SyntaxError>>(
        &mut self,
        mut each: impl FnMut(&mut Self, Span) -> Result<(), E>,
    ) -> Result<(), E> {
        self.enter(b'{')?;
        let mut first = true;
        while self.next_in(b'}', first)? {
            first = false;
            let name = self.name()?;
            each(self, name)?;
        }
        Ok(())
    }

    /// Walks an array: `each` must pass one element.
    pub fn array<E: From<SyntaxError>>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.enter_array()?;
        let mut first = true;
        while self.next_element(first)? {
            first = false;
            each(self)?;
        }
        Ok(())
    }

    /// Steps into an array whose walk will be interrupted; see [`Scanner::next_element`].
    pub fn enter_array(&mut self) -> Result<(), SyntaxError> {
        self.enter(b'[')
    }

    /// Whether an element comes next; false past the `]`. `first`: none has been passed yet.
    pub fn next_element(&mut self, first: bool) -> Result<bool, SyntaxError> {
        self.next_in(b']', first)
    }

    fn next_in(&mut self, close: u8, first: bool) -> Result<bool, SyntaxError> {
        match self.peek() {
            Some(b',') if !first => {
                self.at += 1;
                return Ok(true);
            }
            Some(byte) if byte == close => {}
            Some(_) if first => return Ok(true),
            Some(_) => return self.fail(Fault::Unexpected),
            None => return self.fail(Fault::CutOff),
        }
        self.at += 1;
        self.level = self.level.saturating_sub(1);
        Ok(false)
    }
}

/// The text of a string, escapes resolved. `quoted` is a span that [`Scanner`] gave, quotes included.
pub fn unescape(quoted: &str) -> Cow<'_, str> {
    let inner = &quoted[1..quoted.len() - 1];
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes()[at + 1];
        rest = &rest[at + 2..];
        match escape {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let first = code_unit(rest);
                rest = &rest[4..];
                let code = if (0xd800..0xdc00).contains(&first) {
                    let second = code_unit(&rest[2..]);
                    rest = &rest[6..];
                    0x10000 + ((first - 0xd800) << 10) + (second & 0x3ff)
                } else {
                    first
                };
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            other => out.push(char::from(other)),
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn code_unit(text: &str) -> u32 {
    text.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0xfffd)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    fn scan(text: &str) -> Result<Span, SyntaxError> {
        let mut scanner = Scanner::new(text);
        let span = scanner.value()?;
        scanner.finish()?;
        Ok(span)
    }

    #[test]
    fn values_are_found_with_their_place_and_kind() {
        for (text, kind) in [
            (" {\"a\":[1,{}],\"b\":[[],{\"c\":null}]} ", Kind::Object),
            ("[ ]", Kind::Array),
            ("\"\\ud83d\\ude00\\n\"", Kind::String),
            ("-0.5E+7", Kind::Number),
            ("false", Kind::Bool),
            ("null", Kind::Null),
        ] {
            let span = scan(text).unwrap();
            assert_eq!((span.of(text), span.kind), (text.trim(), kind));
        }
    }

    #[test]
    fn faults_are_told_apart() {
        for (text, fault, at) in [
            ("", Fault::CutOff, 0),
            ("[1,]", Fault::Unexpected, 3),
            ("[1 2]", Fault::Unexpected, 3),
            ("{\"a\":1,}", Fault::Unexpected, 7),
            ("[1}", Fault::Unexpected, 2),
            ("{\"a\"", Fault::CutOff, 4),
            ("tru", Fault::CutOff, 0),
            ("NaN", Fault::Number, 0),
            ("01", Fault::Number, 1),
            ("1.", Fault::CutOff, 2),
            ("[1.]", Fault::Number, 3),
            ("1e", Fault::CutOff, 2),
            ("0x1", Fault::Number, 1),
            ("\"\t\"", Fault::Control, 1),
            ("\"\\x\"", Fault::Escape, 2),
            ("\"\\ud800\"", Fault::Surrogate, 1),
            ("\"\\udc00\\ud800\"", Fault::Surrogate, 1),
            ("{} {}", Fault::Trailing, 3),
        ] {
            assert_eq!(scan(text), Err(SyntaxError { fault, at }), "{text}");
        }
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let limit = DEPTH_MAX as usize;
        assert!(scan(&deep(limit)).is_ok());
        for depth in [limit + 1, 100_000] {
            assert_eq!(scan(&deep(depth)), Err(SyntaxError { fault: Fault::TooDeep, at: limit }));
        }
        let mut scanner = Scanner::new("[[1]]");
        scanner.level = DEPTH_MAX - 1;
        let walked = scanner.array(|scanner| scanner.value().map(|_| ()));
        assert_eq!(walked, Err(SyntaxError { fault: Fault::TooDeep, at: 1 }));
    }

    /// Texts near JSON: pieces of it in any order.
    fn nearly_json() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"\\u00e4\"",
            "\"\\n\"",
            "\"\\uD83D\\uDE00\"",
            "1",
            "-0",
            "2.5e-7",
            "0.",
            "-",
            "01",
            "true",
            "nul",
            "null",
            " ",
            "\n",
            "\"",
            "\\",
            "{\"k\":",
            "[1,",
            "]",
            "}",
        ]);
        prop::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn it_takes_what_serde_json_takes(text in nearly_json()) {
            let theirs = serde_json::from_str::<IgnoredAny>(&text);
            prop_assert_eq!(scan(&text).is_ok(), theirs.is_ok(), "{:?} {:?}", text, scan(&text));
        }

        #[test]
        fn strings_read_as_serde_json_reads_them(text in "\\PC{0,12}") {
            let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            for quoted in [serde_json::to_string(&text).unwrap(), format!("\"{}\"", units.concat())] {
                prop_assert!(scan(&quoted).is_ok());
                prop_assert_eq!(unescape(&quoted), text.as_str());
            }
        }
    }
}
