//! Pane 5, the list: what waits, in the order in which it was accepted.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::wire::OutboxEntry;

use super::super::model::Model;
use super::super::words::{age_s, count, middle, millis, place, short_duration};
use super::area_words;
use super::parts::{Column, Pen, first_row, table_head, table_row, widen};

/// Where this page stands, and how much of it is shown.
fn position(model: &Model, shown: usize) -> String {
    let page = &model.events.page;
    if page.rows.is_empty() {
        return String::new();
    }
    let last = page.before + page.rows.len() as u64;
    let more = if page.next.is_some() { " and more (page down)" } else { "" };
    let passing = if shown < page.rows.len() { format!(", {shown} of them pass") } else { String::new() };
    format!("rows {} to {}{more}{passing}", count(page.before + 1), count(last))
}

pub(super) fn draw(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let (theme, glyphs) = (pen.theme, pen.glyphs);
    let rows = model.event_rows();
    let page = &model.events.page;
    let of = model.events.endpoint.as_deref().unwrap_or("all endpoints");
    let mut note = format!("{of} (e: next endpoint)");
    if let Some(area) = &model.area {
        note.push_str(&format!(", area {}", area_words(area)));
    }
    pen.heading("Pending events", &note);
    pen.text(&position(model, rows.len()), theme.text);
    let columns = if pen.width() >= 110 {
        vec![
            Column::left("event", 36),
            Column::left("endpoint", 12),
            Column::left("state", 9),
            Column::right("age", 5),
            Column::right("att", 5),
            Column::right("due in", 8),
            Column::left("place", 16),
            Column::left("device", 8),
        ]
    } else {
        vec![
            Column::left("event", 13),
            Column::left("endpoint", 9),
            Column::left("state", 8),
            Column::right("age", 4),
            Column::right("att", 4),
            Column::right("due in", 6),
            Column::left("device", 5),
        ]
    };
    let columns = widen(columns, 2, pen.width());
    pen.line(table_head(&columns, 2, &theme));
    if rows.is_empty() {
        let words = match (page.loaded, page.rows.is_empty()) {
            (false, _) => "  asking ...",
            (true, true) if page.next.is_some() => "  none so far in the area; page down looks further",
            (true, true) if model.area.is_some() => "  nothing waits in the area",
            (true, true) => "  nothing waits",
            (true, false) => "  none on this page passes filter and area",
        };
        pen.text(words, theme.dim);
        return;
    }
    let height = pen.room();
    let first = first_row(page.at, rows.len(), height);
    for (index, row) in rows.iter().enumerate().skip(first).take(height) {
        let under = index == page.at;
        let lead = format!("{} ", if under { glyphs.pointer } else { " " });
        let mut spans = vec![Span::styled(lead, theme.accent)];
        let cells = columns.iter().map(|column| (cell(model, row, column), theme.text)).collect();
        spans.extend(table_row(&columns, cells, glyphs));
        let line = Line::from(spans);
        pen.line(if under { line.style(theme.selected) } else { line });
    }
}

fn cell(model: &Model, row: &OutboxEntry, column: &Column) -> String {
    let (event, delivery) = (&row.event, &row.delivery);
    match column.title {
        // The first part of an id is its time; what tells neighbours apart is its end.
        "event" if event.id.is_ascii() && event.id.len() > column.width => {
            event.id[event.id.len() - column.width..].to_owned()
        }
        "event" => event.id.clone(),
        "endpoint" => delivery.endpoint.clone(),
        "state" => delivery.state.clone(),
        "age" => model
            .wall_ms()
            .and_then(|now_ms| age_s(&event.accepted_at, now_ms))
            .map_or_else(|| "-".to_owned(), short_duration),
        "att" => format!("{}/{}", delivery.charged, delivery.attempts_max),
        "due in" => delivery.due_in_ms.map_or_else(|| "-".to_owned(), |ms| millis(ms as f64)),
        "place" => event.bbox.as_ref().map_or_else(
            || "-".to_owned(),
            |bbox| {
                let (lon, lat) = middle(bbox);
                place(lon, lat)
            },
        ),
        _ => event.device.clone(),
    }
}
