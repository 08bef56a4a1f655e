//! Numbers in words: durations, counts, sizes, places, short enough for a column.

use std::fmt::Write as _;

/// `7 s`, `12 min`, `3 h 12 min`, `31 h`, `4 d 2 h`: two units at most, and one where the second says nothing.
pub fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..36_000 if minutes % 60 > 0 => format!("{hours} h {} min", minutes % 60),
        3600..172_800 => format!("{hours} h"),
        _ if hours % 24 > 0 && days < 10 => format!("{days} d {} h", hours % 24),
        _ => format!("{days} d"),
    }
}

/// The same in at most five columns: `7s`, `12m`, `31h`, `400d`.
pub fn short_duration(seconds: u64) -> String {
    match seconds {
        0..100 => format!("{seconds}s"),
        100..6000 => format!("{}m", seconds / 60),
        6000..360_000 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Milliseconds: `8 ms`, `1.2 s`, `35 s`.
pub fn millis(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        "-".to_owned()
    } else if value < 999.5 {
        format!("{value:.0} ms")
    } else if value < 9_950.0 {
        format!("{:.1} s", value / 1000.0)
    } else {
        format!("{:.0} s", value / 1000.0)
    }
}

/// With a thin gap every three digits: `4 180`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// In at most six columns: `999`, `12.3k`, `4.1M`.
pub fn short_count(value: u64) -> String {
    const STEPS: [(u64, &str); 4] =
        [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    if value < 100_000 {
        return value.to_string();
    }
    for (step, unit) in STEPS {
        if value >= step {
            let scaled = value as f64 / step as f64;
            return if scaled < 99.95 { format!("{scaled:.1}{unit}") } else { format!("{scaled:.0}{unit}") };
        }
    }
    value.to_string()
}

/// `512 B`, `12.0 MiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if scaled < 99.95 {
        format!("{scaled:.1} {}", UNITS[unit])
    } else {
        format!("{scaled:.0} {}", UNITS[unit])
    }
}

/// `12.3/s`, `0/s`, `5200/s`.
pub fn rate(value: f64) -> String {
    if !value.is_finite() || value <= 0.0 {
        "0/s".to_owned()
    } else if value < 9.95 {
        format!("{value:.1}/s")
    } else {
        format!("{value:.0}/s")
    }
}

/// A share as a whole per cent; what is there is never shown as 0, nor what is short of all as 100.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let value = (part as f64 * 100.0 / whole as f64).round() as u64;
    match (part, value) {
        (1.., 0) => "<1%".to_owned(),
        _ if part < whole => format!("{}%", value.min(99)),
        _ => format!("{value}%"),
    }
}

/// A position as `52.5200 13.4050` would be read by nobody: `52.52N 13.41E`.
pub fn place(lon: f64, lat: f64) -> String {
    let mut out = String::new();
    let _ = write!(out, "{:.2}{}", lat.abs(), if lat < 0.0 { 'S' } else { 'N' });
    let _ = write!(out, " {:.2}{}", lon.abs(), if lon < 0.0 { 'W' } else { 'E' });
    out
}

/// The middle of an extent.
pub fn middle(bbox: &[f64; 4]) -> (f64, f64) {
    (f64::midpoint(bbox[0], bbox[2]), f64::midpoint(bbox[1], bbox[3]))
}

/// How long ago an RFC 3339 stamp was, seen from Unix milliseconds; `None` if it is none.
pub fn age_s(stamp: &str, now_ms: i64) -> Option<u64> {
    let then: jiff::Timestamp = stamp.parse().ok()?;
    Some(u64::try_from(now_ms.saturating_sub(then.as_millisecond()).max(0)).unwrap_or(0) / 1000)
}

/// `01:23:45` of Unix milliseconds, UTC.
pub fn clock(at_ms: i64) -> String {
    let second = at_ms.div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_say_them() {
        for (seconds, words) in [
            (0, "0 s"),
            (59, "59 s"),
            (720, "12 min"),
            (3600, "1 h"),
            (11_520, "3 h 12 min"),
            (111_600, "31 h"),
            (180_000, "2 d 2 h"),
            (u64::MAX, "213503982334601 d"),
        ] {
            assert_eq!(duration(seconds), words);
        }
        for (value, words) in
            [(0, "0"), (999, "999"), (4180, "4 180"), (104_233, "104 233"), (1_000_000, "1 000 000")]
        {
            assert_eq!(count(value), words);
        }
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(12 << 20), "12.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(short_count(99_999), "99999");
        assert_eq!(short_count(104_233), "104k");
        assert_eq!(short_count(4_100_000), "4.1M");
        assert_eq!(percent(999, 1000), "99%");
        assert_eq!(percent(1000, 1000), "100%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(1, 1000), "<1%");
        assert_eq!(percent(0, 1000), "0%");
        assert_eq!(rate(f64::NAN), "0/s");
        assert_eq!(millis(1234.0), "1.2 s");
        assert_eq!(place(-58.381, -34.6), "34.60S 58.38W");
        assert_eq!(clock(-1000), "23:59:59");
        assert_eq!(age_s("2026-08-01T00:00:10Z", 1_785_542_420_000), Some(10));
    }
}
