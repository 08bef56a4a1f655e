//! `Retry-After` (RFC 9110, 10.2.3): what a receiver asks to be waited for.
//!
//! Two forms: delay-seconds, and an HTTP date in any of its three spellings, counted from the answer's own `Date` so
//! that neither clock matters; only without a `Date` the box's wall clock is used, and only if it is trusted. Anything
//! else (signs, fractions, units, nothing) is ignored, and whatever is asked is capped. The result only ever lengthens
//! a delay.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::fmt::strtime;

use super::time::Now;

/// The longest valid wait that the field values ask for, at most `wait_max`; `None` if none of them is valid or asks
/// for any wait.
pub fn retry_after(
    values: &[String],
    date_unix_s: Option<i64>,
    now: Now,
    wait_max: Duration,
) -> Option<Duration> {
    // The field should come once. If it comes more often, obeying the longest can offend nobody.
    values
        .iter()
        .filter_map(|value| wait(value.trim_matches([' ', '\t']), date_unix_s, now))
        .max()
        .filter(|wait| !wait.is_zero())
        .map(|wait| wait.min(wait_max))
}

fn wait(value: &str, date_unix_s: Option<i64>, now: Now) -> Option<Duration> {
    if value.is_empty() {
        return None;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a u64 holds are still a valid, if silly, number of seconds.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until_s = http_date_unix_s(value)?;
    let from_s = match date_unix_s {
        Some(date_s) => date_s,
        None if now.wall_trusted => now.wall.0.div_euclid(1000),
        None => return None,
    };
    Some(Duration::from_secs(u64::try_from(until_s.saturating_sub(from_s)).unwrap_or(0)))
}

/// An HTTP date as Unix seconds: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or
/// `Sun Nov  6 08:49:37 1994`. The day of the week is not believed and not checked.
pub fn http_date_unix_s(text: &str) -> Option<i64> {
    let parsed = if let Some((_, rest)) = text.split_once(", ") {
        let rest = rest.strip_suffix(" GMT")?;
        let format =
            if rest.as_bytes().get(2) == Some(&b'-') { "%d-%b-%y %H:%M:%S" } else { "%d %b %Y %H:%M:%S" };
        strtime::parse(format, rest).ok()?
    } else {
        let (_, rest) = text.split_once(' ')?;
        strtime::parse("%b %e %H:%M:%S %Y", rest).ok()?
    };
    let at: DateTime = parsed.to_datetime().ok()?;
    // Not a timestamp: those of the library end a day before the largest date that HTTP can write.
    Some(at.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::time::{StoreTime, UnixMillis};
    use super::*;

    const NOV_1994: i64 = 784_111_777;
    const HOUR: Duration = Duration::from_secs(3600);

    fn now(wall_s: i64, wall_trusted: bool) -> Now {
        Now { store: StoreTime(0), wall: UnixMillis(wall_s * 1000), wall_trusted }
    }

    fn check(value: &str, expected_s: Option<u64>) {
        let wait = retry_after(&[value.to_owned()], Some(NOV_1994), now(NOV_1994 + 500, true), HOUR);
        assert_eq!(wait, expected_s.map(Duration::from_secs), "Retry-After: {value:?}");
    }

    #[test]
    fn misreadings_seen_in_the_field() {
        check("0", None); // valid, and means the ordinary delay
        check("5", Some(5));
        check(" 5\t", Some(5));
        check("-3", None);
        check("+3", None);
        check("1.5", None);
        check("120x", None);
        check("1e3", None);
        check("9223372037", Some(3600));
        check("18446744073709551616", Some(3600));
        check(&"9".repeat(400), Some(3600));
        check("Sun, 06 Nov 1994 08:49:47 GMT", Some(10));
        check("Sun, 06 Nov 1994 08:49:27 GMT", None);
        check("Fri, 31 Dec 9999 23:59:59 GMT", Some(3600));
        check("", None);
        check("tomorrow", None);
        check("Sun, 06 Nov 1994 08:49:47", None);
        check("Sun, 31 Feb 1994 08:49:47 GMT", None);
        check("٣", None);
    }

    #[test]
    fn all_three_spellings_of_a_date() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(http_date_unix_s(text), Some(NOV_1994), "{text}");
        }
        assert_eq!(http_date_unix_s("Sun Nov 16 08:49:37 1994"), Some(NOV_1994 + 864_000));
    }

    #[test]
    fn two_fields_give_the_longer_valid_one() {
        let both = |a: &str, b: &str| {
            retry_after(&[a.to_owned(), b.to_owned()], None, now(0, true), HOUR).map(|wait| wait.as_secs())
        };
        assert_eq!(both("5", "7"), Some(7));
        assert_eq!(both("junk", "7"), Some(7));
        assert_eq!(both("junk", ""), None);
    }

    #[test]
    fn without_a_date_only_a_trusted_clock_counts() {
        let value = ["Sun, 06 Nov 1994 08:49:47 GMT".to_owned()];
        let wait = |trusted| retry_after(&value, None, now(NOV_1994, trusted), HOUR);
        assert_eq!(wait(true), Some(Duration::from_secs(10)));
        assert_eq!(wait(false), None);
    }
}
