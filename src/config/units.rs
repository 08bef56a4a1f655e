//! Sizes and durations as people write them: `"8MiB"`, `"30s"`, `"72h"`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A size in bytes; reads `"64MiB"`, `"1GiB"`, `"512KiB"`, `"100MB"`, `"4096B"` or a plain number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A length of time; reads `"500ms"`, `"30s"`, `"5m"`, `"72h"`, `"3d"`. A bare number is refused: its unit would be a
/// guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

const SIZES: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

const SPANS: &[(&str, f64)] = &[("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// Splits `"1.5 MiB"` into the number and the unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\" is not a size; write for example \"512KiB\", \"64MiB\" or \"1GiB\"");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        if unit.is_empty() {
            return text.trim().parse().map(Size).map_err(|_| wrong());
        }
        let (_, factor) = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
        Ok(Size((number * *factor as f64) as u64))
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("\"{text}\" is not a duration; write for example \"500ms\", \"30s\", \"5m\" or \"72h\"")
        };
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let (_, factor) = SPANS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        Duration::try_from_secs_f64(number * factor).map(Span).map_err(|_| wrong())
    }
}

/// Writes a duration in the largest unit that keeps it whole.
pub fn duration_text(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit, in_ms) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms >= in_ms && ms.is_multiple_of(in_ms) {
            return format!("{}{unit}", ms / in_ms);
        }
    }
    format!("{ms}ms")
}

/// Writes a size in the largest unit that keeps it whole.
pub fn size_text(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

struct SizeVisitor;

impl de::Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a size such as \"64MiB\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpanVisitor;
        impl de::Visitor<'_> for SpanVisitor {
            type Value = Span;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration with its unit, such as \"30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SpanVisitor)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&size_text(self.0))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&duration_text(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_read_and_write() {
        for (text, bytes) in
            [("8MiB", 8 << 20), ("1GiB", 1 << 30), ("100MB", 100_000_000), ("17", 17), ("1.5KiB", 1536)]
        {
            assert_eq!(text.parse::<Size>().unwrap(), Size(bytes), "{text}");
        }
        for (text, ms) in
            [("500ms", 500), ("30s", 30_000), ("72h", 259_200_000), ("1.5m", 90_000), ("2d", 172_800_000)]
        {
            assert_eq!(text.parse::<Span>().unwrap(), Span(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "30", "s", "-5s", "30 parsec", "1e9h", "nan s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert!("12 elephants".parse::<Size>().is_err());
        assert_eq!(duration_text(Duration::from_hours(72)), "72h");
        assert_eq!(duration_text(Duration::from_millis(1500)), "1500ms");
        assert_eq!(size_text(8 << 20), "8MiB");
    }
}
