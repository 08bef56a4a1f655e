//! Pane 2: what attempts come to: by number, by verdict, their latency, and the delays drawn against their law.

use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::core::backoff::delay_given;
use crate::core::classify::VerdictKind;
use crate::core::policy::{EndpointPolicy, Jitter, RetryPolicy};
use crate::core::text::{self, Align};
use crate::wire::{BackoffView, EndpointView};

use super::super::model::Model;
use super::super::words::{count, millis, percent, short_count};
use super::parts::{Column, Pen, bar, table_head, table_row, widen};

/// A verdict as the wire names it.
pub(super) fn verdict_word(verdict: VerdictKind) -> &'static str {
    match verdict {
        VerdictKind::Delivered => "delivered",
        VerdictKind::Retry => "retry",
        VerdictKind::Throttle => "throttle",
        VerdictKind::Hold => "hold",
        VerdictKind::HoldAuth => "hold_auth",
        VerdictKind::HoldConfig => "hold_config",
        VerdictKind::HoldLocal => "hold_local",
        VerdictKind::Terminal => "terminal",
        VerdictKind::Poison => "poison",
        VerdictKind::Disabled => "disabled",
    }
}

/// Endpoints that the pane is about.
fn chosen(model: &Model) -> Vec<&EndpointView> {
    let wanted = |one: &&EndpointView| model.attempts_endpoint.as_ref().is_none_or(|name| *name == one.name);
    model.status.iter().flat_map(|status| status.endpoints.iter()).filter(wanted).collect()
}

pub(super) fn draw(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let endpoints = chosen(model);
    let of = model.attempts_endpoint.as_deref().unwrap_or("all endpoints");
    let total: u64 = endpoints.iter().map(|one| one.attempts).sum();
    pen.heading("Attempts", &format!("{of}, {} since start (e: next endpoint)", count(total)));
    if total == 0 {
        pen.text("no attempt yet", pen.theme.dim);
        return;
    }
    let by_number = by_number(&endpoints);
    let by_verdict = by_verdict(&endpoints);
    let (left, right) = pen.split(pen.width() / 2 - 1);
    // The delays below want at least four lines; the histograms share the rest.
    let height = (pen.room().saturating_sub(8)).clamp(3, 14).min(by_number.len().max(by_verdict.len()) + 1);
    let cut = |rect: Rect| Rect { height: u16::try_from(height).unwrap_or(0).min(rect.height), ..rect };
    histogram(&mut Pen::new(model, cut(left), pen.buf), "by number", &by_number);
    histogram(&mut Pen::new(model, cut(right), pen.buf), "by verdict", &by_verdict);
    pen.skip(cut(left).height);
    latency(&mut pen, &endpoints);
    delays(model, &mut pen, &endpoints);
}

fn by_number(endpoints: &[&EndpointView]) -> Vec<(String, u64)> {
    let buckets = endpoints.iter().map(|one| one.attempts_by_number.len()).max().unwrap_or(0);
    (0..buckets)
        .map(|index| {
            let sum = endpoints.iter().filter_map(|one| one.attempts_by_number.get(index)).sum();
            let more = if index + 1 == buckets && buckets > 1 { "+" } else { "" };
            (format!("{}{more}", index + 1), sum)
        })
        .collect()
}

fn by_verdict(endpoints: &[&EndpointView]) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<VerdictKind, u64> = BTreeMap::new();
    for (verdict, value) in endpoints.iter().flat_map(|one| &one.verdicts) {
        *sums.entry(*verdict).or_default() += value;
    }
    let known = sums.into_iter().filter(|(_, value)| *value > 0);
    known.map(|(verdict, value)| (verdict_word(verdict).to_owned(), value)).collect()
}

fn histogram(pen: &mut Pen<'_>, title: &str, bars: &[(String, u64)]) {
    let theme = pen.theme;
    pen.text(title, theme.title);
    let max = bars.iter().map(|(_, value)| *value).max().unwrap_or(0);
    let all: u64 = bars.iter().map(|(_, value)| *value).sum();
    let label_width = bars.iter().map(|(label, _)| text::width(label)).max().unwrap_or(0).min(12);
    for (label, value) in bars {
        let numbers = format!("{:>6} {:>4}", short_count(*value), percent(*value, all));
        let room = pen.width().saturating_sub(label_width + text::width(&numbers) + 2);
        let line = Line::from(vec![
            Span::styled(text::fit(label, label_width, Align::Right, pen.glyphs.ellipsis), theme.text),
            Span::raw(" "),
            Span::styled(
                text::fit(&bar(*value, max, room, pen.glyphs), room, Align::Left, ' '),
                theme.pending,
            ),
            Span::raw(" "),
            Span::styled(numbers, theme.text),
        ]);
        pen.line(line);
    }
}

fn latency(pen: &mut Pen<'_>, endpoints: &[&EndpointView]) {
    let theme = pen.theme;
    let columns = widen(
        vec![
            Column::left("latency, 5 min", 16),
            Column::right("p50", 8),
            Column::right("p90", 8),
            Column::right("p99", 8),
            Column::right("attempts", 10),
            Column::left("", 0),
        ],
        0,
        pen.width(),
    );
    pen.line(table_head(&columns, 0, &theme));
    // Room for the delays is worth more than the tenth endpoint's latency.
    for one in endpoints.iter().take((pen.room() / 3).max(1)) {
        let shown = |value: f64| if one.latency_ms.count == 0 { "-".to_owned() } else { millis(value) };
        let cells = [
            one.name.clone(),
            shown(one.latency_ms.p50),
            shown(one.latency_ms.p90),
            shown(one.latency_ms.p99),
            count(one.latency_ms.count),
        ];
        let cells = cells.into_iter().map(|cell| (cell, theme.text)).collect();
        pen.line(Line::from(table_row(&columns, cells, pen.glyphs)));
    }
}

/// The delay law of an endpoint, as far as the wire tells it.
fn law(view: &BackoffView) -> Option<RetryPolicy> {
    let jitter = match view.jitter.as_str() {
        "full" => Jitter::Full,
        "equal" => Jitter::Equal,
        "decorrelated" => Jitter::Decorrelated,
        "additive" => Jitter::Additive,
        _ => return None,
    };
    Some(RetryPolicy {
        jitter,
        base: Duration::from_millis(view.base_ms),
        cap: Duration::from_millis(view.cap_ms),
        attempts_max: view.attempts_max,
        ..EndpointPolicy::default().retry
    })
}

/// Lowest and highest delay after each attempt from 1, in milliseconds. For decorrelated jitter the highest is what
/// follows the highest before it.
pub(super) fn envelope(view: &BackoffView, attempts: u32) -> Vec<(u64, u64)> {
    let Some(policy) = law(view) else { return Vec::new() };
    // The largest number below one: the upper end of a draw.
    let top = 1.0 - f64::EPSILON;
    let mut highest = Duration::ZERO;
    (1..=attempts)
        .map(|attempt| {
            let low = delay_given(&policy, attempt, Duration::ZERO, 0.0);
            highest = delay_given(&policy, attempt, highest, top);
            (low.as_millis() as u64, highest.as_millis() as u64)
        })
        .collect()
}

/// Columns of a delay on a logarithmic axis from 10 ms to an hour: laws differ by powers, and so do delays.
fn axis(delay_ms: u64, width: usize) -> usize {
    let (low, high) = (10f64.log10(), 3_600_000f64.log10());
    let at = ((delay_ms.max(10) as f64).log10() - low) / (high - low);
    ((at.clamp(0.0, 1.0)) * width.saturating_sub(1) as f64).round() as usize
}

fn delays(model: &Model, pen: &mut Pen<'_>, endpoints: &[&EndpointView]) {
    let theme = pen.theme;
    let Some((endpoint, backoff)) =
        endpoints.iter().find_map(|one| one.backoff.as_ref().map(|backoff| (*one, backoff)))
    else {
        return;
    };
    let rows = backoff.attempts_max.clamp(1, 12).min(pen.room().saturating_sub(2).max(1) as u32);
    let bounds = envelope(backoff, rows);
    if bounds.is_empty() {
        return;
    }
    let title = format!(
        "{}, {} {} to {}; [ law ], {} drawn, ! by Retry-After",
        endpoint.name,
        backoff.jitter,
        millis(backoff.base_ms as f64),
        millis(backoff.cap_ms as f64),
        pen.glyphs.point,
    );
    pen.heading("Delays", &title);
    let label_width = 9;
    let width = pen.width().saturating_sub(label_width + 18);
    for (index, (low, high)) in bounds.iter().enumerate() {
        let number = index as u32 + 1;
        let drawn: Vec<u64> = model
            .recent
            .iter()
            .filter(|one| one.endpoint == endpoint.name && one.attempt.number == number)
            .filter_map(|one| one.attempt.delay_ms)
            .collect();
        let mut line = vec![Span::styled(
            text::fit(&format!("after {number}"), label_width, Align::Left, ' '),
            theme.text,
        )];
        line.extend(delay_row(pen, *low, *high, &drawn, width));
        let range = format!("{:>7} to {}", millis(*low as f64), millis(*high as f64));
        line.push(Span::styled(range, theme.dim));
        pen.line(Line::from(line));
    }
    pen.text(&scale(label_width, width), theme.dim);
}

fn delay_row(pen: &Pen<'_>, low: u64, high: u64, drawn: &[u64], width: usize) -> Vec<Span<'static>> {
    let theme = pen.theme;
    let mut cells: Vec<(char, Style)> = vec![(' ', theme.text); width];
    let (from, to) = (axis(low, width), axis(high, width));
    for (column, cell) in cells.iter_mut().enumerate().take(to + 1).skip(from) {
        let glyph = match column {
            _ if column == from => pen.glyphs.ends.0,
            _ if column == to => pen.glyphs.ends.1,
            _ => pen.glyphs.line,
        };
        *cell = (glyph, theme.dim);
    }
    for delay in drawn {
        if let Some(cell) = cells.get_mut(axis(*delay, width)) {
            let inside = (low..=high).contains(delay);
            *cell = if inside { (pen.glyphs.point, theme.pending) } else { ('!', theme.warn) };
        }
    }
    cells.into_iter().map(|(glyph, style)| Span::styled(glyph.to_string(), style)).collect()
}

/// The labels under the axis.
fn scale(lead: usize, width: usize) -> String {
    let mut line = vec![' '; lead + width + 6];
    for (delay_ms, label) in
        [(10, "10ms"), (100, "100ms"), (1_000, "1s"), (10_000, "10s"), (60_000, "1m"), (600_000, "10m")]
    {
        let at = lead + axis(delay_ms, width);
        for (offset, c) in label.chars().enumerate() {
            if let Some(cell) = line.get_mut(at + offset) {
                *cell = c;
            }
        }
    }
    line.into_iter().collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_is_that_of_the_law() {
        let view = |jitter: &str| BackoffView {
            jitter: jitter.to_owned(),
            base_ms: 500,
            cap_ms: 30_000,
            attempts_max: 6,
        };
        let decorrelated = envelope(&view("decorrelated"), 6);
        assert_eq!(decorrelated[0].0, 500);
        assert!(decorrelated[0].1.abs_diff(1500) <= 1, "{decorrelated:?}");
        assert!(decorrelated[1].1.abs_diff(4500) <= 2, "{decorrelated:?}");
        assert!(decorrelated[5].1.abs_diff(30_000) <= 1, "{decorrelated:?}");
        assert!(envelope(&view("full"), 6).iter().all(|(low, _)| *low == 0));
        assert!(envelope(&view("unheard-of"), 6).is_empty());
    }

    #[test]
    fn the_axis_stays_inside() {
        for width in [0, 1, 40] {
            for delay_ms in [0, 10, 500, u64::MAX] {
                assert!(axis(delay_ms, width) < width.max(1));
            }
        }
    }
}
