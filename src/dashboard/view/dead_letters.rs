//! Pane 3, the list: one page of dead letters, sorted and filtered.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::wire::DeadLetterView;

use super::super::model::{Model, SortBy, class_word};
use super::super::words::{age_s, count, middle, place, short_duration};
use super::area_words;
use super::parts::{Column, Pen, first_row, table_head, table_row, widen};

/// The restriction in words: what the appliance was asked for.
fn restriction(model: &Model) -> String {
    let mut parts = Vec::new();
    parts.push(format!("class {}", model.dead.class.map_or("any", class_word)));
    parts.push(format!("endpoint {}", model.dead.endpoint.as_deref().unwrap_or("any")));
    if let Some(area) = &model.area {
        parts.push(format!("area {}", area_words(area)));
    }
    parts.join(", ")
}

fn sort_word(sort: SortBy) -> &'static str {
    match sort {
        SortBy::Age => "age",
        SortBy::Class => "class",
        SortBy::Endpoint => "endpoint",
        SortBy::Place => "place",
        SortBy::Reason => "reason",
    }
}

/// Where this page stands, and what is selected. A page is sorted and searched in itself; that is said, because a
/// row that is "missing" may be on another page.
fn position(model: &Model, shown: usize) -> String {
    let page = &model.dead.page;
    let last = page.before + page.rows.len() as u64;
    if page.rows.is_empty() {
        return String::new();
    }
    let mut text = format!("rows {} to {}", count(page.before + 1), count(last));
    if model.dead.class.is_none() && model.dead.endpoint.is_none() && model.area.is_none() {
        text.push_str(&format!(" of {}", count(model.dead.total)));
    } else if page.next.is_some() {
        text.push_str(" and more");
    }
    if !model.filter.is_empty() {
        text.push_str(&format!(", {} of them pass the filter", count(shown as u64)));
    }
    let whole = page.next.is_none() && page.before == 0;
    text.push_str(&format!(
        ", by {}{}",
        sort_word(model.dead.sort),
        if whole { "" } else { " within this page" }
    ));
    if model.dead.all {
        text.push_str("; ALL matching are selected");
    } else if !model.dead.marked.is_empty() {
        text.push_str(&format!("; {} marked", count(model.dead.marked.len() as u64)));
    }
    text
}

pub(super) fn draw(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let (theme, glyphs) = (pen.theme, pen.glyphs);
    let rows = model.dead_rows();
    pen.heading("Dead letters", &restriction(model));
    pen.text(&position(model, rows.len()), theme.text);
    let wide = pen.width() >= 110;
    let columns = if wide {
        vec![
            Column::left("class", 16),
            Column::left("endpoint", 14),
            Column::right("age", 5),
            Column::left("place", 16),
            Column::left("device", 16),
            Column::right("att", 4),
            Column::right("rdv", 3),
            Column::left("reason", 8),
        ]
    } else {
        vec![
            Column::left("class", 9),
            Column::left("endpoint", 8),
            Column::right("age", 4),
            Column::left("place", 14),
            Column::left("reason", 8),
        ]
    };
    let columns = widen(columns, 2, pen.width());
    let mut head = table_head(&columns, 2, &theme);
    mark_sorted(&mut head, model);
    pen.line(head);
    if rows.is_empty() {
        pen.text(empty_words(model), theme.dim);
        return;
    }
    let height = pen.room();
    let first = first_row(model.dead.page.at, rows.len(), height);
    for (index, row) in rows.iter().enumerate().skip(first).take(height) {
        let under = index == model.dead.page.at;
        let marked = model.dead.all || model.dead.marked.contains(&row.id);
        let pointer = if under { glyphs.pointer } else { " " };
        let lead = format!("{pointer}{}", if marked { "*" } else { " " });
        let cells = columns.iter().map(|column| (cell(model, row, column.title), theme.text)).collect();
        let mut spans = vec![Span::styled(lead, theme.accent)];
        spans.extend(table_row(&columns, cells, glyphs));
        let line = Line::from(spans);
        pen.line(if under { line.style(theme.selected) } else { line });
    }
}

fn empty_words(model: &Model) -> &'static str {
    if !model.dead.page.loaded {
        "  asking ..."
    } else if model.dead.page.rows.is_empty() && model.dead.page.next.is_some() {
        "  none so far of this class, endpoint and area; page down looks further"
    } else if !model.dead.page.rows.is_empty() {
        "  none on this page passes the filter"
    } else if model.dead.total > 0 {
        "  none of this class, endpoint and area"
    } else {
        "  no dead letters: everything accepted was delivered or waits"
    }
}

/// Puts an arrow before the title of the column that the page is sorted by.
fn mark_sorted(head: &mut Line<'_>, model: &Model) {
    let word = sort_word(model.dead.sort);
    let arrows = model.settings.glyphs.arrows;
    let arrow = if model.dead.reverse { arrows.1 } else { arrows.0 };
    if let Some(span) = head.spans.first_mut()
        && let Some(at) = span.content.find(word).filter(|at| *at > 0)
    {
        // The space before a title is always free.
        let mut text = span.content.to_string();
        text.replace_range(at - 1..at, arrow);
        span.content = text.into();
    }
}

fn cell(model: &Model, row: &DeadLetterView, title: &str) -> String {
    match title {
        "class" => class_word(row.failure_class).to_owned(),
        "endpoint" => row.endpoint.clone(),
        "age" => model
            .wall_ms()
            .and_then(|now_ms| age_s(&row.dead_lettered_at, now_ms))
            .map_or_else(|| "-".to_owned(), short_duration),
        "place" => row.bbox.as_ref().map_or_else(
            || "-".to_owned(),
            |bbox| {
                let (lon, lat) = middle(bbox);
                place(lon, lat)
            },
        ),
        "device" => row.device.clone(),
        "att" => row.attempts.to_string(),
        "rdv" => row.redrive_count.to_string(),
        _ => row.error_message.clone(),
    }
}
