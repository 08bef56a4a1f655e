//! Pane 1: the state of the gateway in five seconds.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::core::classify::VerdictKind;
use crate::core::history::{Sample, Span as TimeSpan};
use crate::core::text::{self, Align};
use crate::wire::{EndpointState, EndpointView, StatusView};

use super::super::headline::headline;
use super::super::model::Model;
use super::super::words::{bytes, count, duration, percent, rate, short_count, short_duration};
use super::frame::mood_style;
use super::parts::{Column, Pen, first_row, flow, gauge, sparkline, table_head, table_row, widen, wrap};
use super::state_word;

/// Height of the pane from which there is room for blank lines.
const ROOMY_LINES: u16 = 19;
/// Tallest sparkline: beyond it the eye gains nothing.
const SPARK_ROWS_MAX: usize = 10;

/// Endpoints that pass the filter.
fn rows(model: &Model) -> Vec<&EndpointView> {
    let passes = |one: &&EndpointView| {
        let reason = one.hold_reason.as_deref().unwrap_or("");
        model.filter.passes(&[&one.name, &one.url, state_word(one.state), reason])
    };
    model.status.iter().flat_map(|status| status.endpoints.iter()).filter(passes).collect()
}

/// Number of rows of the endpoints table, for moving in it.
pub fn overview_rows(model: &Model) -> usize {
    rows(model).len()
}

pub(super) fn draw(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let (theme, glyphs, width) = (pen.theme, pen.glyphs, pen.width());
    let (mood, sentence) = headline(model);
    pen.lines(wrap(&sentence, mood_style(model, mood), width, 3, glyphs));
    let Some(status) = &model.status else { return };
    let roomy = area.height >= ROOMY_LINES;
    for warning in status.warnings.iter().take(if roomy { 4 } else { 1 }) {
        pen.text(&format!("warning: {warning}"), theme.warn);
    }
    let bottom = bottom_lines(status, &pen);
    let shown = rows(model);
    // Everything that must be there: rates, the table with its heading, the bottom. The sparklines take the rest.
    let must = 1 + 1 + shown.len().max(1) + bottom.len() + if roomy { 4 } else { 0 };
    let spark_rows = pen.room().saturating_sub(must).clamp(1, SPARK_ROWS_MAX);
    let gap = u16::from(roomy);
    pen.skip(gap);
    sparklines(model, status, &mut pen, spark_rows, roomy);
    rates(status, &mut pen);
    pen.skip(gap);
    let height = (shown.len().max(1) + 1).min(pen.room().saturating_sub(bottom.len())).max(2);
    let table = Rect { height: u16::try_from(height).unwrap_or(u16::MAX).min(pen.area.height), ..pen.area };
    endpoints(model, &shown, &mut Pen::new(model, table, pen.buf));
    pen.skip(table.height + gap);
    pen.lines(bottom);
}

fn sparklines(model: &Model, status: &StatusView, pen: &mut Pen<'_>, rows: usize, label: bool) {
    let oldest_s = status.endpoints.iter().map(|one| one.oldest_pending_age_s).max().unwrap_or(0);
    let label_width = 17;
    let half = pen.width() / 2 - 1;
    let pairs = [
        (format!("pending {}", short_count(status.ledger.pending)), true),
        (format!("oldest {}", duration(oldest_s)), false),
    ];
    let columns = half.saturating_sub(label_width);
    let samples = model.history.columns(model.span, columns);
    let mut lines: Vec<Vec<Span<'static>>> = vec![Vec::new(); rows];
    for (name, depth) in pairs {
        let value = |sample: &Sample| if depth { sample.pending } else { sample.oldest_s };
        let max = samples.iter().flatten().map(value).max().unwrap_or(0);
        let top =
            if depth { format!("max {}", short_count(max)) } else { format!("max {}", short_duration(max)) };
        for (row, drawn) in sparkline(&samples, value, rows, pen.glyphs).into_iter().enumerate() {
            let words = match (row + 1 == rows, row) {
                (true, _) => name.as_str(),
                (false, 0) => top.as_str(),
                (false, _) => "",
            };
            let style = if row + 1 == rows { pen.theme.title } else { pen.theme.dim };
            lines[row]
                .push(Span::styled(text::fit(words, label_width, Align::Left, pen.glyphs.ellipsis), style));
            lines[row].push(Span::styled(drawn, pen.theme.pending));
            lines[row].push(Span::raw("  "));
        }
    }
    for line in lines {
        pen.line(Line::from(line));
    }
    if label {
        pen.text(&span_words(model.span, status.uptime_s), pen.theme.dim);
    }
}

/// What the sparklines show; the appliance remembers nothing of before its start.
fn span_words(span: TimeSpan, uptime_s: u64) -> String {
    if uptime_s * 1000 < span.length_ms() {
        format!("last {}, the appliance is up for {}", span.label(), duration(uptime_s))
    } else {
        format!("last {}", span.label())
    }
}

fn rates(status: &StatusView, pen: &mut Pen<'_>) {
    let theme = pen.theme;
    let pieces = vec![
        ("in".to_owned(), theme.dim),
        (rate(status.rates.accepted_per_s), theme.title),
        ("out".to_owned(), theme.dim),
        (rate(status.rates.delivered_per_s), theme.title),
        ("attempts".to_owned(), theme.dim),
        (rate(status.rates.attempts_per_s), theme.title),
        ("duplicates".to_owned(), theme.dim),
        (count(status.ledger.duplicates), theme.text),
    ];
    let lines = flow(pieces, pen.width(), pen.glyphs.ellipsis);
    pen.lines(lines);
}

/// Columns of the endpoints table by the width of the window.
fn columns(width: usize) -> Vec<Column> {
    let columns = if width < 80 {
        vec![
            Column::left("endpoint", 9),
            Column::left("state", 13),
            Column::right("pending", 7),
            Column::right("fl/win", 6),
            Column::left("budget", 3),
            Column::right("ok", 4),
            Column::left("last", 6),
        ]
    } else if width < 120 {
        vec![
            Column::left("endpoint", 10),
            Column::left("state", 14),
            Column::right("pending", 7),
            Column::right("fl/win", 6),
            Column::left("budget", 6),
            Column::right("ok", 4),
            Column::right("p50/p99 ms", 10),
            Column::left("last", 4),
        ]
    } else {
        vec![
            Column::left("endpoint", 14),
            Column::left("state", 30),
            Column::right("pending", 9),
            Column::right("retrying", 8),
            Column::right("oldest", 7),
            Column::right("fl/win", 7),
            Column::left("budget", 14),
            Column::right("ok", 5),
            Column::right("p50/p99 ms", 11),
            Column::right("dead", 6),
            Column::left("last", 4),
        ]
    };
    widen(columns, 2, width)
}

fn state_style(pen: &Pen<'_>, state: EndpointState) -> Style {
    match state {
        EndpointState::Up => pen.theme.good,
        EndpointState::Held | EndpointState::Disabled => pen.theme.bad,
        EndpointState::Paused => pen.theme.warn,
    }
}

fn state_cell(one: &EndpointView, wide: bool) -> String {
    let mut text = state_word(one.state).to_owned();
    if let Some(reason) = one.hold_reason.as_deref().filter(|_| one.state == EndpointState::Held) {
        text = format!("{text} {reason}");
    }
    if wide && one.state == EndpointState::Held {
        if let Some(held_s) = one.held_for_s {
            text = format!("{text} {}", short_duration(held_s));
        }
        if let Some(probe_s) = one.next_probe_in_s {
            text = format!("{text}, probe in {}", short_duration(probe_s.max(0.0).ceil() as u64));
        }
    }
    text
}

fn cell(one: &EndpointView, column: &Column, pen: &Pen<'_>) -> (String, Style) {
    let theme = pen.theme;
    let text = match column.title {
        "endpoint" => one.name.clone(),
        "state" => {
            return (state_cell(one, column.width >= 28), state_style(pen, one.state));
        }
        "pending" => short_count(one.pending),
        "retrying" => short_count(one.retrying),
        "oldest" => short_duration(one.oldest_pending_age_s),
        "fl/win" => format!("{}/{}", one.in_flight, one.window),
        "budget" => return (budget_cell(one, column.width, pen), budget_style(one, pen)),
        "ok" => {
            let good = one.verdicts.get(&VerdictKind::Delivered).copied().unwrap_or(0);
            percent(good.min(one.attempts), one.attempts)
        }
        "p50/p99 ms" if one.latency_ms.count > 0 => {
            format!("{:.0}/{:.0}", one.latency_ms.p50, one.latency_ms.p99)
        }
        "p50/p99 ms" => "-".to_owned(),
        "dead" => short_count(one.dead),
        _ => one.last_outcome.clone().unwrap_or_else(|| "-".to_owned()),
    };
    (text, theme.text)
}

fn budget_cell(one: &EndpointView, width: usize, pen: &Pen<'_>) -> String {
    let share = if one.budget.ceiling > 0.0 { one.budget.tokens / one.budget.ceiling } else { 0.0 };
    if width < 12 {
        return gauge(share, width, pen.glyphs);
    }
    format!("{} {:>5.0}", gauge(share, width - 6, pen.glyphs), one.budget.tokens)
}

fn budget_style(one: &EndpointView, pen: &Pen<'_>) -> Style {
    if one.budget.tokens < 1.0 { pen.theme.bad } else { pen.theme.text }
}

fn endpoints(model: &Model, shown: &[&EndpointView], pen: &mut Pen<'_>) {
    let columns = columns(pen.width());
    let (theme, glyphs) = (pen.theme, pen.glyphs);
    let head = table_head(&columns, 2, &theme);
    pen.line(head);
    if shown.is_empty() {
        let words = if model.filter.is_empty() {
            "  no endpoint is configured"
        } else {
            "  no endpoint passes the filter"
        };
        pen.text(words, theme.dim);
        return;
    }
    let height = pen.room();
    let first = first_row(model.endpoint_at, shown.len(), height);
    for (index, one) in shown.iter().enumerate().skip(first).take(height) {
        let chosen = index == model.endpoint_at && shown.len() > 1;
        let mark = if chosen { format!("{} ", glyphs.pointer) } else { "  ".to_owned() };
        let mut spans = vec![Span::styled(mark, theme.accent)];
        let cells = columns.iter().map(|column| cell(one, column, pen)).collect();
        spans.extend(table_row(&columns, cells, glyphs));
        pen.line(Line::from(spans));
    }
}

/// Ledger, disk, memory and clock.
fn bottom_lines(status: &StatusView, pen: &Pen<'_>) -> Vec<Line<'static>> {
    let mut lines = flow(ledger(status, pen), pen.width(), pen.glyphs.ellipsis);
    lines.extend(flow(disk(status, pen), pen.width(), pen.glyphs.ellipsis));
    lines
}

fn ledger(status: &StatusView, pen: &Pen<'_>) -> Vec<(String, Style)> {
    let (theme, ledger) = (pen.theme, &status.ledger);
    let mark = if ledger.balanced {
        (format!("ledger {} balanced:", pen.glyphs.tick), theme.good)
    } else {
        (format!("ledger {} NOT BALANCED:", pen.glyphs.cross), theme.bad)
    };
    let mut pieces = vec![mark, (format!("accepted {}", count(ledger.accepted)), theme.text)];
    let parts = [
        ("delivered", ledger.delivered, true),
        ("pending", ledger.pending, true),
        ("dead", ledger.dead, true),
        ("expired", ledger.expired, false),
        ("discarded", ledger.discarded, false),
        ("dropped", ledger.dropped, false),
        ("superseded", ledger.superseded, false),
        ("lost", ledger.lost, false),
    ];
    let mut sign = "=";
    for (word, value, always) in parts {
        if always || value > 0 {
            let style = if word == "lost" { theme.bad } else { theme.text };
            pieces.push((format!("{sign} {word} {}", count(value)), style));
            sign = "+";
        }
    }
    pieces
}

fn disk(status: &StatusView, pen: &Pen<'_>) -> Vec<(String, Style)> {
    let (theme, store) = (pen.theme, &status.store);
    let share =
        if store.disk_bytes_max > 0 { store.disk_bytes as f64 / store.disk_bytes_max as f64 } else { 0.0 };
    let mut pieces = vec![(format!("disk {}", gauge(share, 8, pen.glyphs)), theme.text)];
    let of =
        if store.disk_bytes_max > 0 { format!(" of {}", bytes(store.disk_bytes_max)) } else { String::new() };
    pieces.push((format!("{}{of},", bytes(store.disk_bytes)), theme.text));
    pieces.push((format!("live {},", bytes(store.live_bytes)), theme.text));
    // Before the first look at the file system there is no figure; nothing free would not be "ready".
    let free = if store.disk_free_bytes == 0 && status.ready {
        "?".to_owned()
    } else {
        bytes(store.disk_free_bytes)
    };
    pieces.push((format!("free {free},"), theme.text));
    match store.full_in_s {
        Some(in_s) => pieces.push((format!("full in {};", duration(in_s)), theme.warn)),
        None => pieces.push(("not filling;".to_owned(), theme.text)),
    }
    if store.quarantined_bytes > 0 {
        pieces.push((format!("QUARANTINED {};", bytes(store.quarantined_bytes)), theme.bad));
    }
    pieces.push((format!("memory {};", bytes(status.resident_bytes)), theme.text));
    let (clock, style) =
        if status.clock.trusted { ("clock trusted", theme.good) } else { ("clock NOT TRUSTED", theme.warn) };
    pieces.push((clock.to_owned(), style));
    pieces
}
