//! One text for each JSON value: sorted members, one writing of each string and number.

use std::borrow::Cow;

use crate::core::json::{Kind, Scanner, SyntaxError, unescape};

use super::number::push_exact;

/// A path of member names (and array indices) below the value at hand.
pub type Path<'a> = &'a [String];

/// Appends a string as JSON with the fewest escapes.
pub fn push_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            byte @ (b'"' | b'\\') => {
                out.push('\\');
                out.push(char::from(byte));
            }
            byte => {
                out.push_str("\\u00");
                out.push(char::from(b'0' + (byte >> 4)));
                out.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
            }
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

/// Appends the canonical text of the value before the scanner, without what `left_out` names.
///
/// Members are sorted by name (bytes of UTF-8; equal names keep their order), numbers are exact decimals.
/// Recursion is bounded by [`crate::core::json::DEPTH_MAX`].
pub fn push_value(
    scanner: &mut Scanner<'_>,
    left_out: &[Path<'_>],
    out: &mut String,
) -> Result<(), SyntaxError> {
    match scanner.peek() {
        Some(b'{') => push_object(scanner, left_out, out),
        Some(b'[') => push_array(scanner, left_out, out),
        _ => {
            let span = scanner.value()?;
            push_scalar(span.kind, span.of(scanner.text()), out);
            Ok(())
        }
    }
}

/// Appends a string, number or word.
pub fn push_scalar(kind: Kind, text: &str, out: &mut String) {
    match kind {
        Kind::String if text.contains('\\') => push_string(&unescape(text), out),
        Kind::Number => push_exact(text, out),
        // A string without a backslash is in its shortest form already.
        _ => out.push_str(text),
    }
}

fn push_array(scanner: &mut Scanner<'_>, left_out: &[Path<'_>], out: &mut String) -> Result<(), SyntaxError> {
    let mut index: usize = 0;
    out.push('[');
    scanner.array(|scanner| {
        if index > 0 {
            out.push(',');
        }
        if left_out.is_empty() {
            push_value(scanner, &[], out)?;
        } else {
            let below = below(left_out, &index.to_string());
            // An element that is left out keeps its place, so that those after it do not move.
            if below.iter().any(|path| path.is_empty()) {
                scanner.value()?;
                out.push_str("null");
            } else {
                push_value(scanner, &below, out)?;
            }
        }
        index += 1;
        Ok::<(), SyntaxError>(())
    })?;
    out.push(']');
    Ok(())
}

fn push_object(
    scanner: &mut Scanner<'_>,
    left_out: &[Path<'_>],
    out: &mut String,
) -> Result<(), SyntaxError> {
    let text = scanner.text();
    let base = out.len();
    let mut members: Vec<(Cow<'_, str>, usize, usize)> = Vec::with_capacity(8);
    out.push('{');
    scanner.object(|scanner, name| {
        let name = unescape(name.of(text));
        let below = below(left_out, &name);
        if below.iter().any(|path| path.is_empty()) {
            return scanner.value().map(|_| ());
        }
        let start = out.len();
        push_string(&name, out);
        out.push(':');
        push_value(scanner, &below, out)?;
        out.push(',');
        members.push((name, start, out.len()));
        Ok(())
    })?;
    if !members.is_sorted_by(|a, b| a.0 <= b.0) {
        let unsorted = out[base..].to_owned();
        out.truncate(base + 1);
        members.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, start, end) in &members {
            out.push_str(&unsorted[start - base..end - base]);
        }
    }
    if !members.is_empty() {
        out.pop();
    }
    out.push('}');
    Ok(())
}

/// Those of `paths` that go through `name`, from there on.
fn below<'p>(paths: &[Path<'p>], name: &str) -> Vec<Path<'p>> {
    if paths.is_empty() {
        return Vec::new();
    }
    paths
        .iter()
        .filter_map(|path| path.split_first().filter(|(head, _)| *head == name).map(|(_, tail)| tail))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str, left_out: &[&[&str]]) -> String {
        let owned: Vec<Vec<String>> =
            left_out.iter().map(|path| path.iter().map(|s| (*s).to_owned()).collect()).collect();
        let paths: Vec<Path<'_>> = owned.iter().map(Vec::as_slice).collect();
        let mut out = String::new();
        push_value(&mut Scanner::new(text), &paths, &mut out).unwrap();
        out
    }

    #[test]
    fn order_white_space_and_writing_do_not_matter() {
        let want = r#"{"a":[1,2e2,null,"ä\""],"b":{"x":true,"y":15e-1}}"#;
        for text in [
            r#"{"a":[1,200,null,"ä\""],"b":{"x":true,"y":1.5}}"#,
            r#" { "b" : { "y" : 1.50 , "x" : true } , "\u0061" : [ 1.0 , 2e2 , null , "\u00e4\u0022" ] } "#,
        ] {
            assert_eq!(canonical(text, &[]), want);
        }
        assert_eq!(canonical("{}", &[]), "{}");
        assert_eq!(canonical(r#"{"b":1,"a":2,"b":3}"#, &[]), r#"{"a":2,"b":1,"b":3}"#);
    }

    #[test]
    fn volatile_members_are_left_out_at_any_depth() {
        let text = r#"{"rssi":-70,"m":{"hops":2,"v":1},"r":[{"t":1,"v":2},{"t":3,"v":4}]}"#;
        assert_eq!(
            canonical(text, &[&["rssi"], &["m", "hops"], &["r", "1", "t"], &["absent"]]),
            r#"{"m":{"v":1},"r":[{"t":1,"v":2},{"v":4}]}"#
        );
        assert_eq!(canonical("[1,2]", &[&["0"]]), "[null,2]");
        assert_eq!(canonical(r#"{"a":1}"#, &[&["a"]]), "{}");
    }
}
