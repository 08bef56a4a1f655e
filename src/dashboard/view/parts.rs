//! The small things that panes are made of: a pen that stays in its rectangle, flowing words, columns, gauges,
//! sparklines.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::core::history::Sample;
use crate::core::text::{self, Align};

use super::super::model::Model;
use super::super::theme::{Glyphs, Theme};

/// Writes lines from the top of a rectangle down; what does not fit is not written.
pub(super) struct Pen<'a> {
    pub(super) buf: &'a mut Buffer,
    pub(super) area: Rect,
    pub(super) theme: Theme,
    pub(super) glyphs: Glyphs,
}

impl<'a> Pen<'a> {
    pub(super) fn new(model: &Model, area: Rect, buf: &'a mut Buffer) -> Self {
        let area = area.intersection(buf.area);
        Self { buf, area, theme: model.settings.theme, glyphs: model.settings.glyphs }
    }

    /// Lines left.
    pub(super) fn room(&self) -> usize {
        usize::from(self.area.height)
    }

    pub(super) fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// One line; the pen moves on.
    #[expect(clippy::needless_pass_by_value, reason = "lines are made to be drawn once")]
    pub(super) fn line(&mut self, line: Line<'_>) {
        if self.area.height > 0 && self.area.width > 0 {
            self.buf.set_line(self.area.x, self.area.y, &line, self.area.width);
        }
        self.skip(1);
    }

    /// One line in one style.
    pub(super) fn text(&mut self, text: &str, style: Style) {
        let shown = text::truncate(text, self.width(), self.glyphs.ellipsis);
        self.line(Line::styled(shown, style));
    }

    pub(super) fn lines(&mut self, lines: Vec<Line<'_>>) {
        for line in lines {
            self.line(line);
        }
    }

    pub(super) fn skip(&mut self, lines: u16) {
        let lines = lines.min(self.area.height);
        self.area.y += lines;
        self.area.height -= lines;
    }

    /// A heading with a line to the right edge.
    pub(super) fn heading(&mut self, title: &str, note: &str) {
        let mut spans = vec![Span::styled(format!("{title} "), self.theme.title)];
        let mut used = text::width(title) + 1;
        if !note.is_empty() {
            let note = text::truncate(note, self.width().saturating_sub(used + 1), self.glyphs.ellipsis);
            used += text::width(&note) + 1;
            spans.push(Span::styled(format!("{note} "), self.theme.dim));
        }
        let rest = self.width().saturating_sub(used);
        spans.push(Span::styled(self.glyphs.line.to_string().repeat(rest), self.theme.dim));
        self.line(Line::from(spans));
    }

    /// Cuts the rest into two pens side by side, `left` columns and a gap of two for the first.
    pub(super) fn split(&mut self, left: usize) -> (Rect, Rect) {
        let left = u16::try_from(left).unwrap_or(u16::MAX).min(self.area.width);
        let gap = 2.min(self.area.width - left);
        let right = self.area.width - left - gap;
        (Rect { width: left, ..self.area }, Rect { x: self.area.x + left + gap, width: right, ..self.area })
    }
}

/// Pieces set one after the other, each whole, with a space between, broken into lines of a width.
pub(super) fn flow(pieces: Vec<(String, Style)>, width: usize, ellipsis: char) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut line: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    for (piece, style) in pieces {
        let piece = text::truncate(&piece, width, ellipsis);
        let columns = text::width(&piece);
        if used > 0 && used + 1 + columns > width {
            lines.push(Line::from(std::mem::take(&mut line)));
            used = 0;
        }
        match line.last_mut() {
            // Words of one style are one span: less to draw, and whole sentences in an image.
            Some(last) if last.style == style => {
                last.content = format!("{} {piece}", last.content).into();
                used += 1;
            }
            Some(_) => {
                line.push(Span::raw(" "));
                line.push(Span::styled(piece, style));
                used += 1;
            }
            None => line.push(Span::styled(piece, style)),
        }
        used += columns;
    }
    if !line.is_empty() {
        lines.push(Line::from(line));
    }
    lines
}

/// A sentence broken at spaces, at most `lines` lines; the last one says if there was more.
pub(super) fn wrap(
    sentence: &str,
    style: Style,
    width: usize,
    lines: usize,
    glyphs: Glyphs,
) -> Vec<Line<'static>> {
    let words = text::visible(sentence);
    let words = words.split(' ').filter(|word| !word.is_empty());
    let pieces = words.flat_map(|word| chunks(word, width)).map(|piece| (piece, style));
    let mut out = flow(pieces.collect(), width, glyphs.ellipsis);
    if out.len() > lines && width > 0 {
        out.truncate(lines);
        if let Some(last) = out.last_mut() {
            let mut shown: String = last.spans.iter().map(|span| span.content.as_ref()).collect();
            // One more column than fits, so that the cut is always made and announced.
            shown.push_str(&" ".repeat(width + 1));
            *last = Line::styled(
                text::truncate(&shown, text::width(shown.trim_end()).min(width - 1) + 1, glyphs.ellipsis),
                style,
            );
        }
    }
    out
}

/// A word in pieces that fit: JSON without blanks and long addresses are words too.
fn chunks(word: &str, width: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for c in word.chars() {
        let columns = text::width(c.encode_utf8(&mut [0; 4]));
        if used + columns > width.max(1) && used > 0 {
            pieces.push(String::new());
            used = 0;
        }
        used += columns;
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

/// One column of a table.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: usize,
    pub(super) align: Align,
}

impl Column {
    pub(super) const fn left(title: &'static str, width: usize) -> Self {
        Self { title, width, align: Align::Left }
    }

    pub(super) const fn right(title: &'static str, width: usize) -> Self {
        Self { title, width, align: Align::Right }
    }
}

/// The heading line of a table; the last column takes what is left.
pub(super) fn table_head(columns: &[Column], lead: usize, theme: &Theme) -> Line<'static> {
    let mut line = " ".repeat(lead);
    for column in columns {
        line.push_str(&text::fit(column.title, column.width, column.align, '.'));
        line.push(' ');
    }
    Line::styled(line, theme.dim)
}

/// One row of a table; each cell cut and padded to its column.
pub(super) fn table_row(
    columns: &[Column],
    cells: Vec<(String, Style)>,
    glyphs: Glyphs,
) -> Vec<Span<'static>> {
    let mut spans = Vec::with_capacity(cells.len() * 2);
    for (column, (cell, style)) in columns.iter().zip(cells) {
        spans.push(Span::styled(text::fit(&cell, column.width, column.align, glyphs.ellipsis), style));
        spans.push(Span::raw(" "));
    }
    spans
}

/// Columns whose last one is widened to fill `width` (with `lead` columns before the first).
pub(super) fn widen(mut columns: Vec<Column>, lead: usize, width: usize) -> Vec<Column> {
    let used: usize = lead + columns.iter().map(|column| column.width + 1).sum::<usize>();
    if let Some(last) = columns.last_mut() {
        // The space after the last column is not needed.
        last.width += (width + 1).saturating_sub(used);
    }
    columns
}

/// `███░░` of a share.
pub(super) fn gauge(share: f64, width: usize, glyphs: Glyphs) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * width as f64).round() as usize;
    // A level that is not nothing is never drawn as nothing.
    let full = if share > 0.0 { full.max(1) } else { full }.min(width);
    std::iter::repeat_n(glyphs.full, full).chain(std::iter::repeat_n(glyphs.empty, width - full)).collect()
}

/// A bar without an empty part.
pub(super) fn bar(value: u64, max: u64, width: usize, glyphs: Glyphs) -> String {
    if max == 0 || value == 0 {
        return String::new();
    }
    let full = (value as f64 / max as f64 * width as f64).round() as usize;
    std::iter::repeat_n(glyphs.full, full.clamp(1, width.max(1))).collect()
}

/// Sparkline of `rows` lines, top line first. A gap is blank, a zero a line at the bottom: not the same thing.
pub(super) fn sparkline(
    samples: &[Option<Sample>],
    value: impl Fn(&Sample) -> u64,
    rows: usize,
    glyphs: Glyphs,
) -> Vec<String> {
    let max = samples.iter().flatten().map(&value).max().unwrap_or(0);
    let steps = rows * 8;
    let heights: Vec<usize> = samples
        .iter()
        .map(|sample| match sample.as_ref().map(&value) {
            None => 0,
            Some(0) => 1,
            Some(known) => {
                // From 2 to all steps: one is what zero looks like.
                2 + (known as f64 / max as f64 * (steps - 2) as f64).round() as usize
            }
        })
        .collect();
    (0..rows)
        .rev()
        .map(|row| {
            heights.iter().map(|height| glyphs.levels[height.saturating_sub(row * 8).min(8)]).collect()
        })
        .collect()
}

/// First row to show so that the row under the cursor is in sight, about the middle.
pub(super) fn first_row(at: usize, rows: usize, height: usize) -> usize {
    at.saturating_sub(height / 2).min(rows.saturating_sub(height))
}
