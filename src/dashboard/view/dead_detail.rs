//! Pane 3, one dead letter: why, where, what was tried, and the bytes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::core::delivery::AttemptRecord;
use crate::core::text;
use crate::wire::DeadLetterView;

use super::super::model::{Model, Opened, class_word};
use super::super::words::{bytes, clock, millis};
use super::DETAIL_LINES_MAX;
use super::attempts::verdict_word;
use super::geometry;
use super::parts::{Pen, wrap};

/// Width from which the drawing stands beside the text.
const BESIDE_COLUMNS: u16 = 76;

pub(super) fn draw(model: &Model, open: &Opened<DeadLetterView>, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    pen.heading("Dead letter", &format!("{} (esc: back to the list)", open.id));
    let Some(letter) = &open.content else {
        let words = open.fault.as_deref().unwrap_or("asking ...");
        pen.text(words, pen.theme.warn);
        return;
    };
    let body = letter.raw_payload.as_deref().unwrap_or("");
    let offending = letter.geometry_error.as_ref().and_then(|error| error.location);
    let rest = pen.area;
    let (text_area, drawing) = if rest.width >= BESIDE_COLUMNS {
        let (left, right) = pen.split(usize::from(rest.width) * 3 / 5);
        (left, right)
    } else {
        // Below each other: a third of the height, at most six lines, for the drawing.
        let height = (rest.height / 3).min(6);
        let top = Rect { height: rest.height - height, ..rest };
        (top, Rect { y: rest.y + top.height, height, ..rest })
    };
    geometry::draw(model, body, offending, drawing, pen.buf);
    let mut pen = Pen::new(model, text_area, pen.buf);
    let lines = lines(letter, &pen);
    let scroll = open.scroll.min(lines.len().saturating_sub(pen.room()));
    pen.lines(lines.into_iter().skip(scroll).take(text_area.height.into()).collect());
}

/// The whole text, as lines of the pen's width.
fn lines(letter: &DeadLetterView, pen: &Pen<'_>) -> Vec<Line<'static>> {
    let theme = pen.theme;
    let mut lines = wrap(&letter.error_message, theme.bad, pen.width(), 4, pen.glyphs);
    let mut field = |name: &str, value: String| lines.push(field_line(pen, name, &value, theme.text));
    field("class", format!("{} at stage {}", class_word(letter.failure_class), stage_word(letter)));
    if let Some(error) = &letter.geometry_error {
        let at = error.location.map_or_else(String::new, |[lon, lat]| format!(" at {lon} {lat} (X)"));
        field("geometry", format!("{}{at}", error.reason));
    }
    field("endpoint", letter.endpoint.clone());
    field("device", format!("{}, type {}", letter.device, letter.event_type));
    field("accepted", letter.first_seen_at.clone());
    field("died", letter.dead_lettered_at.clone());
    field("redriven", format!("{} times", letter.redrive_count));
    field("key", letter.idempotency_key.clone());
    field("crs", letter.source_crs.clone());
    lines.push(Line::styled(format!("attempts: {}", letter.attempts), theme.title));
    for attempt in &letter.history {
        lines.extend(attempt_lines(attempt, pen));
    }
    lines.push(Line::styled(format!("body: {}", bytes(letter.body_bytes)), theme.title));
    lines.extend(body_lines(letter.raw_payload.as_deref(), pen));
    lines
}

fn stage_word(letter: &DeadLetterView) -> String {
    format!("{:?}", letter.failed_stage).to_lowercase()
}

pub(super) fn field_line(pen: &Pen<'_>, name: &str, value: &str, style: Style) -> Line<'static> {
    let value = text::truncate(value, pen.width().saturating_sub(10), pen.glyphs.ellipsis);
    Line::from(vec![Span::styled(format!("{name:<9} "), pen.theme.dim), Span::styled(value, style)])
}

/// One attempt: a line of facts, and the receiver's words if there are any.
pub(super) fn attempt_lines(attempt: &AttemptRecord, pen: &Pen<'_>) -> Vec<Line<'static>> {
    let mut facts = format!(
        "{:>3} {} {} {} in {}",
        attempt.number,
        clock(attempt.at.0),
        verdict_word(attempt.verdict),
        attempt.reason,
        millis(f64::from(attempt.latency_ms)),
    );
    if let Some(delay_ms) = attempt.delay_ms {
        facts.push_str(&format!(", next after {}", millis(delay_ms as f64)));
    }
    if !attempt.charged {
        facts.push_str(", not charged");
    }
    let mut lines =
        vec![Line::styled(text::truncate(&facts, pen.width(), pen.glyphs.ellipsis), pen.theme.text)];
    if !attempt.answer.is_empty() {
        let answer = format!("answer: {}", attempt.answer);
        lines.extend(wrap(&answer, pen.theme.dim, pen.width(), 6, pen.glyphs));
    }
    lines
}

/// The body, indented if it is JSON (the bytes themselves are never changed), cut at the width of the pane.
pub(super) fn body_lines(body: Option<&str>, pen: &Pen<'_>) -> Vec<Line<'static>> {
    let Some(body) = body else {
        return vec![Line::styled("not kept", pen.theme.dim)];
    };
    pretty(body)
        .lines()
        .take(DETAIL_LINES_MAX)
        .map(|line| Line::styled(text::truncate(line, pen.width(), pen.glyphs.ellipsis), pen.theme.text))
        .collect()
}

/// JSON set out over lines, without parsing: members keep their order, numbers their text, and positions stay on one
/// line. What is not JSON stays as it is.
pub(super) fn pretty(body: &str) -> String {
    let mut out = String::with_capacity(body.len() * 2);
    let mut indent = 0usize;
    let (mut in_string, mut escaped) = (false, false);
    // Whether each open array is being kept on one line.
    let mut arrays: Vec<bool> = Vec::new();
    let newline = |out: &mut String, indent: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", indent.min(40)));
    };
    for (at, c) in body.char_indices() {
        if in_string {
            out.push(c);
            (in_string, escaped) = match c {
                '\\' if !escaped => (true, true),
                '"' if !escaped => (false, false),
                _ => (true, false),
            };
            continue;
        }
        let flat = arrays.last().copied().unwrap_or(false);
        match c {
            '"' => {
                in_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                let short =
                    c == '[' && body[at + 1..].chars().take(60).find(|c| "[]{\"".contains(*c)) == Some(']');
                arrays.push(short);
                if !short {
                    indent += 1;
                    newline(&mut out, indent);
                }
            }
            '}' | ']' => {
                if !arrays.pop().unwrap_or(false) {
                    indent = indent.saturating_sub(1);
                    newline(&mut out, indent);
                }
                out.push(c);
            }
            ',' => {
                out.push(c);
                if flat { out.push(' ') } else { newline(&mut out, indent) }
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_set_out_and_keeps_its_text() {
        let shown = pretty(r#"{"b":1.50,"a":[1,2],"s":"x,{\"y\"}","n":[[0,0],[1,1]]}"#);
        assert_eq!(
            shown,
            "{\n  \"b\": 1.50,\n  \"a\": [1, 2],\n  \"s\": \"x,{\\\"y\\\"}\",\n  \"n\": [\n    [0, 0],\n    [1, 1]\n  ]\n}"
        );
        assert_eq!(pretty(""), "");
        assert_eq!(pretty("]]}"), "\n]\n]\n}");
    }
}
