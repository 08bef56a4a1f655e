//! The event's own time, from whatever producers write.
//!
//! Two questions are answered apart. **When was it?** RFC 3339 with an offset, or a Unix time in seconds, milli-,
//! micro- or nanoseconds (told by size). **Does it tell two readings apart?** Any of those does, and so does a date
//! and time without an offset; then an equal identity is a duplicate for the whole TTL.
//!
//! What does neither: text that is no time (`"n/a"`, `"unknown"` would turn every heartbeat of such a device into a
//! duplicate for days), and a time before [`BELIEVED_FROM_MS`]: a clock that was never set starts there at every boot, or
//! the number counts seconds since then. Losing a reading is worse than sending one twice.

use crate::core::time::UnixMillis;

use super::pointer::Scalar;

/// 2001-01-01T00:00:00Z. Clocks without a battery start at 1970-01-01 or 2000-01-01 and count on from there; readings
/// older than this do not come from sensors that post GeoJSON.
pub const BELIEVED_FROM_MS: i64 = 978_307_200_000;

/// What a member that should be a time says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The instant, if it is a definite one.
    pub at: Option<UnixMillis>,
}

/// Reads a time; `None` if it does not tell two readings apart.
pub fn observed(value: &Scalar<'_>) -> Option<Observed> {
    let text = value.as_str().trim();
    // SensorThings writes intervals as start/end.
    let text = text.split_once('/').map_or(text, |(start, _)| start);
    if let Some(ms) = unix_ms(text) {
        return believed(ms);
    }
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return believed(instant.as_millisecond());
    }
    let has_clock = text.contains(':');
    text.parse::<jiff::civil::DateTime>().ok().filter(|_| has_clock).map(|_| Observed { at: None })
}

fn believed(ms: i64) -> Option<Observed> {
    (ms >= BELIEVED_FROM_MS).then_some(Observed { at: Some(UnixMillis(ms)) })
}

/// A Unix time of unknown unit. The bounds between the units lie at the year 5138 of each, so that no present time
/// is ambiguous.
fn unix_ms(text: &str) -> Option<i64> {
    // Not `inf` or `nan`, which would parse too.
    let number: f64 = text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()))?;
    let ms = match number {
        n if !(0.0..1e20).contains(&n) => return None,
        n if n < 1e11 => n * 1e3,
        n if n < 1e14 => n,
        n if n < 1e17 => n / 1e3,
        n => n / 1e6,
    };
    Some(ms as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_producers_write_them() {
        let at = |ms| Some(Observed { at: Some(UnixMillis(ms)) });
        for (text, want) in [
            ("2026-03-02T06:00:00.087Z", at(1_772_431_200_087)),
            ("2026-03-02 07:00:00+01:00", at(1_772_431_200_000)),
            ("2026-03-02T06:00:00Z/2026-03-02T07:00:00Z", at(1_772_431_200_000)),
            ("1772431200", at(1_772_431_200_000)),
            ("1772431200.5", at(1_772_431_200_500)),
            ("1772431200087", at(1_772_431_200_087)),
            ("1772431200087000", at(1_772_431_200_087)),
            ("1772431200087000000", at(1_772_431_200_087)),
            ("2026-03-02T06:00:00", Some(Observed { at: None })),
            ("2026-03-02", None),
            ("1970-01-01T00:00:07Z", None),
            ("2000-01-01T00:00:07Z", None),
            ("12345.6", None),
            ("0", None),
            ("-5", None),
            ("n/a", None),
            ("unknown", None),
            ("-", None),
        ] {
            assert_eq!(observed(&Scalar::Text(text.into())), want, "{text}");
        }
        assert_eq!(observed(&Scalar::Number("1772431200")), at(1_772_431_200_000));
    }
}
