//! Pane 6: recent notable lines, newest at the bottom.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::core::text;

use super::super::model::Model;
use super::super::words::clock;
use super::parts::Pen;

pub(super) fn draw(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let theme = pen.theme;
    let rows = model.log_rows();
    let back = if model.log_back > 0 { format!(", {} newer below", model.log_back) } else { String::new() };
    pen.heading("Log", &format!("{} of {} lines, UTC{back}", rows.len(), model.log.lines.len()));
    if rows.is_empty() {
        let words =
            if model.log.lines.is_empty() { "nothing notable yet" } else { "no line passes the filter" };
        pen.text(words, theme.dim);
        return;
    }
    let last = rows.len() - model.log_back.min(rows.len() - 1);
    let first = last.saturating_sub(pen.room());
    for row in &rows[first..last] {
        let style = match row.level.as_str() {
            "error" => theme.bad,
            "warn" => theme.warn,
            _ => theme.text,
        };
        let lead = format!(
            "{} {} ",
            clock(row.at_ms),
            text::fit(&row.level, 5, text::Align::Left, pen.glyphs.ellipsis)
        );
        let room = pen.width().saturating_sub(text::width(&lead));
        let words = text::truncate(&row.text, room, pen.glyphs.ellipsis);
        pen.line(Line::from(vec![Span::styled(lead, theme.dim), Span::styled(words, style)]));
    }
}
