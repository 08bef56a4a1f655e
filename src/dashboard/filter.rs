//! The `/` filter: a substring without regard to case, or a regular expression between slashes.

use regex::{Regex, RegexBuilder};

/// Largest compiled expression: a person typed it, and a gateway has little memory.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Longest text that may be typed into the line.
pub const FILTER_CHARS_MAX: usize = 200;

/// A filter as typed, and as applied.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    text: String,
    regex: Option<Regex>,
    fault: bool,
}

impl Filter {
    /// Reads a filter. Each change compiles anew, so the list follows while a person types.
    pub fn new(text: String) -> Self {
        let pattern = text.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let (regex, fault) = match pattern {
            None | Some("") => (None, false),
            Some(pattern) => {
                match RegexBuilder::new(pattern).case_insensitive(true).size_limit(REGEX_BYTES_MAX).build() {
                    Ok(regex) => (Some(regex), false),
                    Err(_) => (None, true),
                }
            }
        };
        Self { text, regex, fault }
    }

    /// As typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() || self.text == "/" || self.text == "//"
    }

    /// Whether it is an expression that does not compile (yet); it then hides nothing.
    pub fn is_faulty(&self) -> bool {
        self.fault
    }

    /// Whether one of the texts passes.
    pub fn passes(&self, texts: &[&str]) -> bool {
        if self.is_empty() || self.fault {
            return true;
        }
        if let Some(regex) = &self.regex {
            return texts.iter().any(|text| regex.is_match(text));
        }
        let wanted = self.text.to_lowercase();
        texts.iter().any(|text| text.to_lowercase().contains(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substring_regex_and_half_typed_regex() {
        for (filter, text, passes) in [
            ("", "anything", true),
            ("HQ", "https://hq.example", true),
            ("hq", "dc", false),
            ("/^hq$/", "hq", true),
            ("/^hq$/", "hq2", false),
            ("/^h", "hq", true),
            ("/(", "hq", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(Filter::new(filter.to_owned()).passes(&[text]), passes, "{filter}");
        }
        assert!(Filter::new("/(".to_owned()).is_faulty());
    }
}
