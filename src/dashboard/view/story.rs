//! Pane 5, one event's story: what it is, and each endpoint's attempts.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::wire::EventStory;

use super::super::model::{Model, Opened};
use super::super::words::{bytes, millis};
use super::dead_detail::{attempt_lines, body_lines, field_line};
use super::parts::Pen;

pub(super) fn draw(model: &Model, open: &Opened<EventStory>, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    pen.heading("Event", &format!("{} (esc: back to the list)", open.id));
    let Some(story) = &open.content else {
        let words = open.fault.as_deref().unwrap_or("asking ...");
        pen.text(words, pen.theme.warn);
        return;
    };
    let lines = lines(story, &pen);
    let scroll = open.scroll.min(lines.len().saturating_sub(pen.room()));
    let room = pen.room();
    pen.lines(lines.into_iter().skip(scroll).take(room).collect());
}

fn lines(story: &EventStory, pen: &Pen<'_>) -> Vec<Line<'static>> {
    let (event, theme) = (&story.event, pen.theme);
    let mut lines = Vec::new();
    let mut field = |name: &str, value: &str| lines.push(field_line(pen, name, value, theme.text));
    field("device", &format!("{}, type {}", event.device, event.event_type));
    field("accepted", &event.accepted_at);
    field("observed", event.observed_at.as_deref().unwrap_or("not said"));
    field("key", &event.key);
    for delivery in &story.deliveries {
        let due = delivery.due_in_ms.map_or_else(String::new, |ms| format!(", due in {}", millis(ms as f64)));
        let title = format!(
            "{}: {}, {} attempts, {} of {} charged{due}",
            delivery.endpoint, delivery.state, delivery.attempts, delivery.charged, delivery.attempts_max
        );
        let title = crate::core::text::truncate(&title, pen.width(), pen.glyphs.ellipsis);
        lines.push(Line::styled(title, theme.title));
        if let Some(reason) = &delivery.reason {
            lines.push(field_line(pen, "reason", reason, theme.bad));
        }
        for attempt in &delivery.history {
            lines.extend(attempt_lines(attempt, pen));
        }
    }
    lines.push(Line::styled(format!("body: {}", bytes(event.body_bytes)), theme.title));
    lines.extend(body_lines(story.body.as_deref(), pen));
    lines
}
