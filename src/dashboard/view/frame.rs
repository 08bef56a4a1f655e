//! What surrounds every pane: header, tabs, footer, and the note of a window that is too small.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::core::text;

use super::super::headline::{Mood, headline};
use super::super::keymap::Action;
use super::super::model::{Model, Pane};
use super::super::words::{duration, short_count};
use super::SIZE_MIN;
use super::parts::{Pen, wrap};

/// Row of the tabs, for mouse clicks.
pub const TABS_ROW: u16 = 1;

/// Style of a mood.
pub(super) fn mood_style(model: &Model, mood: Mood) -> Style {
    let theme = &model.settings.theme;
    match mood {
        Mood::Well => theme.title,
        Mood::Watch => theme.warn,
        Mood::Bad => theme.bad,
    }
}

/// Is what is shown the present? If not, how old is it?
fn liveness(model: &Model) -> (String, Style) {
    let theme = &model.settings.theme;
    let age = model.age_s().map(duration).unwrap_or_default();
    if model.status.is_none() {
        let word = match model.link.failures {
            0 => "connecting",
            _ if model.link.refused => "REFUSED",
            _ => "NO ANSWER",
        };
        (word.to_owned(), theme.warn)
    } else if model.link.failures > 0 {
        let word = if model.link.refused { "REFUSED" } else { "LOST" };
        (format!("{word}, shown is {age} old"), theme.bad)
    } else if model.frozen_at_ms.is_some() {
        (format!("FROZEN, {age} old"), theme.warn)
    } else if model.age_s().is_some() {
        (format!("LATE, shown is {age} old"), theme.warn)
    } else {
        ("live".to_owned(), theme.good)
    }
}

pub(super) fn header(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let theme = pen.theme;
    let (state, style) = liveness(model);
    let room = pen.width().saturating_sub(text::width(&state) + 1);
    let mut left = "waypost".to_owned();
    if let Some(status) = &model.status {
        let dot = pen.glyphs.dot;
        let ready = if status.ready { "ready" } else { "NOT READY" };
        left = format!(
            "waypost {} {}{dot}up {}{dot}{ready}",
            status.node,
            status.version,
            duration(status.uptime_s)
        );
    }
    if !model.may_act() {
        left.push_str(pen.glyphs.dot);
        left.push_str("read-only");
    }
    if model.settings.demo {
        left.push_str(pen.glyphs.dot);
        left.push_str("made-up data");
    }
    let left = text::fit(&left, room, text::Align::Left, pen.glyphs.ellipsis);
    pen.line(Line::from(vec![Span::styled(left, theme.title), Span::raw(" "), Span::styled(state, style)]));
}

/// Tabs with the columns they take, for drawing and for clicks.
fn tab_texts(model: &Model, width: u16) -> Vec<(Pane, String)> {
    let dead = model.status.as_ref().map_or(0, |status| status.ledger.dead);
    let texts = |short: bool| -> Vec<(Pane, String)> {
        Pane::ALL
            .iter()
            .enumerate()
            .map(|(index, pane)| {
                let title = if short { pane.short_title() } else { pane.title() };
                let mut label = format!(" {} {title} ", index + 1);
                if *pane == Pane::DeadLetters && dead > 0 {
                    label = format!(" {} {title} {} ", index + 1, short_count(dead));
                }
                (*pane, label)
            })
            .collect()
    };
    let long = texts(false);
    let columns: usize = long.iter().map(|(_, label)| label.len()).sum();
    if columns <= usize::from(width) { long } else { texts(true) }
}

/// The pane whose tab is at a column.
pub fn tab_at(model: &Model, column: u16) -> Option<Pane> {
    let mut right = 0;
    tab_texts(model, model.size.0).into_iter().find_map(|(pane, label)| {
        right += label.len();
        (usize::from(column) < right).then_some(pane)
    })
}

pub(super) fn tabs(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let theme = pen.theme;
    let mut used = 0;
    let mut spans: Vec<Span<'_>> = tab_texts(model, area.width)
        .into_iter()
        .map(|(pane, label)| {
            used += label.len();
            let style = if pane == model.pane { theme.selected } else { theme.text };
            Span::styled(label, style)
        })
        .collect();
    let rest = pen.width().saturating_sub(used);
    spans.push(Span::styled(pen.glyphs.line.to_string().repeat(rest), theme.dim));
    pen.line(Line::from(spans));
}

/// Whether an action is about the rows of a list: of no use while one of them is open.
fn of_list(action: Action) -> bool {
    matches!(
        action,
        Action::Open
            | Action::Sort
            | Action::Mark
            | Action::All
            | Action::Class
            | Action::Endpoint
            | Action::Filter
    )
}

pub(super) fn footer(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let theme = pen.theme;
    if model.typing {
        let fault = if model.filter.is_faulty() { "  not an expression yet" } else { "" };
        let line = format!("filter: {}_{fault}   enter keeps it, esc clears it", model.filter.text());
        pen.text(&line, theme.accent);
        return;
    }
    if let Some(notice) = &model.notice {
        pen.text(&notice.text, if notice.bad { theme.bad } else { theme.accent });
        return;
    }
    let mut spans = Vec::new();
    let mut room = pen.width();
    if !model.filter.is_empty() {
        let shown = format!("filter {} ", text::truncate(model.filter.text(), 24, pen.glyphs.ellipsis));
        room = room.saturating_sub(text::width(&shown));
        spans.push(Span::styled(shown, theme.warn));
    }
    let opened = model.has_opened();
    // What leads out and to the help must always be there; the rest in the order of the table while it fits.
    let always = ["help", "quit"];
    let bindings: Vec<(String, &str)> = model
        .settings
        .keymap
        .of_pane(model.pane)
        .filter(|binding| !binding.acts || model.may_act())
        .filter(|binding| !(opened && of_list(binding.action)))
        .filter_map(|binding| binding.footer.map(|word| (binding.key(), word)))
        .collect();
    let cost = |(key, word): &(String, &str)| text::width(key) + text::width(word) + 3;
    let mut left = room.saturating_sub(bindings.iter().filter(|one| always.contains(&one.1)).map(cost).sum());
    for binding in &bindings {
        if !always.contains(&binding.1) {
            if cost(binding) > left {
                continue;
            }
            left -= cost(binding);
        }
        spans.push(Span::styled(binding.0.clone(), theme.accent));
        spans.push(Span::raw(format!(" {}  ", binding.1)));
    }
    pen.line(Line::from(spans));
}

/// For windows below [`SIZE_MIN`]: the headline, and what to do.
pub(super) fn too_small(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let (theme, glyphs, width) = (pen.theme, pen.glyphs, pen.width());
    let note =
        format!("window {}x{}: {}x{} needed, q quits", area.width, area.height, SIZE_MIN.0, SIZE_MIN.1);
    pen.lines(wrap(&note, theme.accent, width, 3, glyphs));
    let (mood, text) = headline(model);
    let lines = pen.room();
    pen.lines(wrap(&text, mood_style(model, mood), width, lines, glyphs));
}
