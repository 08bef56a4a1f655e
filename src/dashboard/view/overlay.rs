//! What lies over the pane: the question before an order, and the help.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use crate::core::text::{self, Align};

use super::super::model::{Confirm, Model};
use super::body;
use super::parts::{Pen, wrap};

pub(super) fn draw(model: &Model, area: Rect, buf: &mut Buffer) {
    if let Some(confirm) = &model.confirm {
        question(model, confirm, body(area), buf);
    } else if let Some(scroll) = model.help {
        help(model, scroll, body(area), buf);
    }
}

fn question(model: &Model, confirm: &Confirm, area: Rect, buf: &mut Buffer) {
    let glyphs = model.settings.glyphs;
    let width = area.width.saturating_sub(4).min(70);
    let lines =
        wrap(&confirm.text, model.settings.theme.title, usize::from(width.saturating_sub(4)), 6, glyphs);
    let height = u16::try_from(lines.len() + 4).unwrap_or(10).min(area.height);
    let outer =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(outer, buf);
    let mut pen = Pen::new(model, outer, buf);
    let (theme, rule) = (pen.theme, glyphs.line.to_string().repeat(usize::from(width)));
    pen.text(&rule, theme.warn);
    let mut inner =
        Pen::new(model, Rect { x: outer.x + 2, width: width.saturating_sub(4), ..pen.area }, pen.buf);
    inner.lines(lines);
    let how = match &confirm.needs {
        None => "y: yes   any other key: no".to_owned(),
        Some(needs) => format!("type {needs} and enter: {}_   esc: no", confirm.typed),
    };
    inner.skip(1);
    inner.text(&how, theme.accent);
    let last = Rect { y: outer.bottom().saturating_sub(1), height: 1, ..outer };
    Pen::new(model, last, inner.buf).text(&rule, theme.warn);
}

/// Every binding, those of the pane shown first; made from the same table as the dispatch.
fn help(model: &Model, scroll: usize, area: Rect, buf: &mut Buffer) {
    Clear.render(area, buf);
    let mut pen = Pen::new(model, area, buf);
    let theme = pen.theme;
    let pane = model.pane;
    let orders = if model.may_act() { "orders allowed" } else { "read-only: orders need --allow-actions" };
    pen.heading("Help", &format!("keys of {} first; {orders}; ? or esc closes", pane.title()));
    let all = model.settings.keymap.all();
    let (own, rest): (Vec<_>, Vec<_>) =
        all.iter().partition(|binding| !binding.panes.is_empty() && binding.panes.contains(&pane));
    let bindings: Vec<_> = own.into_iter().chain(rest).collect();
    let scroll = scroll.min(bindings.len().saturating_sub(pen.room()));
    for binding in bindings.into_iter().skip(scroll) {
        let keys: Vec<String> = binding.keys.iter().map(|key| key.name()).collect();
        let keys = text::fit(&keys.join(" "), 14, Align::Left, pen.glyphs.ellipsis);
        let order = if binding.acts { " (order)" } else { "" };
        let panes: Vec<&str> = binding.panes.iter().map(|pane| pane.short_title()).collect();
        let panes = if panes.is_empty() { String::new() } else { format!(" [{}]", panes.join(" ")) };
        let room = pen.width().saturating_sub(15);
        let words = text::truncate(&format!("{}{order}{panes}", binding.help), room, pen.glyphs.ellipsis);
        pen.line(Line::from(vec![Span::styled(keys, theme.accent), Span::raw(" "), Span::raw(words)]));
    }
}
