//! Numbers as text: the article's rounding in Python's words, and exact decimals for properties.

use std::fmt::Write as _;

/// Largest count of significant digits at which every decimal reads back from its double unchanged (IEEE 754
/// binary64: `DBL_DIG`).
const DIGITS_EXACT: usize = 15;

/// Digits of the longest integer that the article's Python reads (`sys.int_info.default_max_str_digits`).
const INTEGER_DIGITS_MAX: usize = 4_300;

/// A coordinate that has no finite double, or an integer beyond Python's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFinite;

/// Appends a JSON number as the article's Python writes it after `round(x, precision)`.
///
/// Without `.`, `e` or `E` it is an integer there: digits kept, any size, `-0` becomes `0`. Else it is a double,
/// rounded in decimal on its exact binary value with ties to even, then written by `repr`.
pub fn push_rounded(text: &str, precision: u8, out: &mut String) -> Result<(), NotFinite> {
    if !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        if text.trim_start_matches('-').len() > INTEGER_DIGITS_MAX {
            return Err(NotFinite);
        }
        out.push_str(if text == "-0" { "0" } else { text });
        return Ok(());
    }
    if let Some(plain) = already_rounded(text, precision) {
        out.push_str(plain);
        return Ok(());
    }
    push_rounded_double(text, precision, out)
}

/// The part of a plain decimal that `repr` would give, if rounding leaves its value alone: at most `precision`
/// places, at most [`DIGITS_EXACT`] digits, and not so small that `repr` takes an exponent. Most coordinates are
/// such, and this saves their two conversions.
fn already_rounded(text: &str, precision: u8) -> Option<&str> {
    let point = text.find('.')?;
    let whole = text[..point].trim_start_matches('-');
    let fraction = text[point + 1..].trim_end_matches('0');
    if whole.len() + fraction.len() > DIGITS_EXACT
        || fraction.len() > usize::from(precision)
        || !fraction.bytes().all(|byte| byte.is_ascii_digit())
        || (whole == "0" && fraction.starts_with("0000"))
    {
        return None;
    }
    // `5.000` keeps one zero.
    Some(&text[..point + 1 + fraction.len().max(1)])
}

fn push_rounded_double(text: &str, precision: u8, out: &mut String) -> Result<(), NotFinite> {
    let value: f64 = text.parse().map_err(|_| NotFinite)?;
    if !value.is_finite() {
        return Err(NotFinite);
    }
    // `{:.p}` rounds the exact binary value, ties to even, as Python does.
    let rounded = format!("{value:.0$}", usize::from(precision)).parse().unwrap_or(value);
    push_repr(rounded, out);
    Ok(())
}

/// Appends a finite double as Python's `repr`: shortest digits that read back; an exponent of at least two digits
/// when it is below -4 or at least 16; otherwise always a point.
fn push_repr(value: f64, out: &mut String) {
    // Rust's `{:e}` has the same shortest digits, laid out as `d[.ddd]e[-]x`.
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    out.push_str(sign);
    if !(-4..16).contains(&exponent) {
        out.push_str(mantissa);
        let (sign, size) = (if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs());
        let _ = write!(out, "e{sign}{size:02}");
        return;
    }
    let digits = mantissa.bytes().filter(|byte| *byte != b'.').map(char::from);
    if exponent < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', exponent.unsigned_abs() as usize - 1));
        out.extend(digits);
        return;
    }
    let whole = exponent as usize + 1;
    let mut written = 0;
    for digit in digits {
        if written == whole {
            out.push('.');
        }
        out.push(digit);
        written += 1;
    }
    if written <= whole {
        out.extend(std::iter::repeat_n('0', whole - written));
        out.push_str(".0");
    }
}

/// Appends a JSON number as one text for each exact decimal value: `1`, `1.0` and `10e-1` are `1`, `1.10` is
/// `11e-1`, both zeros are `0`. No double is involved, so numbers that differ in the twentieth digit stay apart.
pub fn push_exact(text: &str, out: &mut String) {
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.bytes().chain(fraction.bytes()).all(|digit| digit == b'0') {
        out.push('0');
        return;
    }
    // An exponent beyond 64 bits cannot be shifted; its text is taken as it is (in one case of `e`).
    let Some(exponent) = exponent.parse::<i64>().ok().map(|e| i128::from(e) - fraction.len() as i128) else {
        out.extend(text.chars().map(|c| c.to_ascii_lowercase()));
        return;
    };
    out.push_str(sign);
    let start = out.len();
    if whole == "0" {
        out.push_str(fraction.trim_start_matches('0'));
    } else {
        out.push_str(whole);
        out.push_str(fraction);
    }
    let digits = out.len();
    let kept = out[start..].trim_end_matches('0').len();
    out.truncate(start + kept);
    match exponent + (digits - start - kept) as i128 {
        0 => {}
        exponent => {
            let _ = write!(out, "e{exponent}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rounded(text: &str, precision: u8) -> String {
        let mut out = String::new();
        push_rounded(text, precision, &mut out).unwrap();
        out
    }

    fn exact(text: &str) -> String {
        let mut out = String::new();
        push_exact(text, &mut out);
        out
    }

    #[test]
    fn rounding_is_decimal_on_the_binary_value_and_written_as_python_does() {
        for (text, precision, want) in [
            ("0.00000005", 7, "0.0"),
            ("1.00000015", 7, "1.0000001"),
            ("0.00390625", 7, "0.0039062"),
            ("1e-7", 7, "1e-07"),
            ("0.000015", 7, "1.5e-05"),
            ("0.0001", 7, "0.0001"),
            ("1e15", 7, "1000000000000000.0"),
            ("1e16", 7, "1e+16"),
            ("1.7976931348623157e308", 7, "1.7976931348623157e+308"),
            ("-0.0", 7, "-0.0"),
            ("-1e-9", 7, "-0.0"),
            ("-0", 7, "0"),
            ("5", 7, "5"),
            ("5.0", 7, "5.0"),
            ("5.000", 0, "5.0"),
            ("2.5", 0, "2.0"),
            ("100e0", 7, "100.0"),
            ("1.5e10", 7, "15000000000.0"),
            ("13.4049540", 7, "13.404954"),
            ("0.00009", 7, "9e-05"),
        ] {
            assert_eq!(rounded(text, precision), want, "{text}");
        }
        assert_eq!(push_rounded("1e400", 7, &mut String::new()), Err(NotFinite));
    }

    #[test]
    fn exact_decimals_have_one_text_each() {
        for (texts, want) in [
            (&["1", "1.0", "10e-1", "0.1e1", "1E0", "1e+0"][..], "1"),
            (&["1.10", "11e-1", "0.11e1", "0.0110e2"], "11e-1"),
            (&["0", "-0", "0.0", "-0.000e7"], "0"),
            (&["1200", "12e2", "1.2E3"], "12e2"),
            (&["-0.05", "-5e-2"], "-5e-2"),
            (&["12345678901234567890123"], "12345678901234567890123"),
        ] {
            for text in texts {
                assert_eq!(exact(text), want, "{text}");
            }
        }
        assert_ne!(exact("1e99999999999999999999"), exact("2e99999999999999999999"));
    }

    proptest! {
        #[test]
        fn the_short_way_gives_what_the_conversion_gives(
            sign in "-?", whole in "0|[1-9][0-9]{0,8}", fraction in "[0-9]{1,12}", precision in 0u8..13,
        ) {
            let text = format!("{sign}{whole}.{fraction}");
            let mut long = String::new();
            push_rounded_double(&text, precision, &mut long).unwrap();
            prop_assert_eq!(rounded(&text, precision), long);
        }

        #[test]
        fn exact_text_reads_back_to_the_same_double(value in proptest::num::f64::NORMAL) {
            for text in [format!("{value}"), format!("{value:e}")] {
                prop_assert_eq!(exact(&text).parse::<f64>().unwrap().to_bits(), value.to_bits(), "{}", text);
            }
        }
    }
}
