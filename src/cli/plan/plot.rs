//! The plan's charts for a terminal, as plain text in braille.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use super::time;
use crate::dashboard::plain;
use crate::sim::plan::envelope::Envelope;
use crate::sim::plan::{Plan, Point, Row};

const WIDTH: u16 = 96;
const HEIGHT: u16 = 12;
/// Columns of one law's envelope.
const BAND: usize = 26;

/// Rows of the longest outage.
pub fn longest(plan: &Plan) -> Vec<&Row> {
    let longest = plan.rows.iter().map(|row| row.outage_s).fold(0.0, f64::max);
    plan.rows.iter().filter(|row| row.outage_s == longest).collect()
}

/// The latest moment that the charts of these rows show: ladders that never end do not squeeze the others.
pub fn until_s(rows: &[&Row]) -> f64 {
    let drained = rows.iter().filter_map(|row| Some(row.outage_s + row.drained_s?)).fold(0.0, f64::max);
    let outage = rows.iter().map(|row| row.outage_s).fold(0.0, f64::max);
    f64::max(drained, outage * 1.05) * 1.05
}

/// Deliveries that wait, over time, one panel per policy: one line would hide the other.
pub fn backlog(plan: &Plan) -> String {
    panels(plan, "waiting", |point| point.open, |top| super::count(top as u64))
}

/// Requests at the receiver as a multiple of its capacity.
pub fn load(plan: &Plan) -> String {
    panels(plan, "most requests in a second / capacity", |point| point.load, |top| format!("{top:.2} x"))
}

fn panels(plan: &Plan, what: &str, of: impl Fn(&Point) -> f64, label: impl Fn(f64) -> String) -> String {
    let rows = longest(plan);
    let until_s = until_s(&rows);
    rows.iter().map(|row| panel(row, what, until_s, &of, &label)).collect::<Vec<_>>().join("\n")
}

fn panel(
    row: &Row,
    what: &str,
    until_s: f64,
    of: impl Fn(&Point) -> f64,
    label: impl Fn(f64) -> String,
) -> String {
    let points: Vec<(f64, f64)> =
        row.chart.iter().filter(|point| point.at_s <= until_s).map(|point| (point.at_s, of(point))).collect();
    let top = points.iter().map(|(_, value)| *value).fold(1e-9, f64::max);
    let data = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).data(&points);
    let middle = format!("{} up again", time(row.outage_s));
    let chart = Chart::new(vec![data])
        .x_axis(Axis::default().bounds([0.0, until_s]).labels([
            Line::from("0 down"),
            Line::from(middle),
            Line::from(time(until_s)),
        ]))
        .y_axis(Axis::default().bounds([0.0, top]).labels([Line::from("0"), Line::from(label(top))]));
    let area = Rect { x: 0, y: 0, width: WIDTH, height: HEIGHT };
    let mut buf = Buffer::empty(area);
    chart.render(area, &mut buf);
    format!("{} - {what}\n{}", row.policy, plain::text(&buf))
}

/// The laws side by side on one logarithmic scale: `-` a delay of one in ten, `=` nine in ten, `#` the median.
pub fn envelopes(plan: &Plan) -> String {
    let (low, high) = scale(&plan.envelopes);
    let mut out = format!(
        "delays after each failed attempt, {} to {} on a logarithmic scale (= nine in ten, # median)\n",
        time(low),
        time(high)
    );
    let mut head = String::from("   ");
    for envelope in &plan.envelopes {
        let name = format!("{} (6 attempts: {})", envelope.jitter, time(envelope.six_attempts_s));
        head += &format!("{name:<width$}", width = BAND + 8);
    }
    out += head.trim_end();
    out.push('\n');
    let attempts = plan.envelopes.first().map_or(0, |envelope| envelope.bands.len());
    for index in 0..attempts {
        let mut line = format!("{:>2} ", index + 1);
        for envelope in &plan.envelopes {
            let band = envelope.bands[index];
            let place = |seconds: f64| {
                let share = (seconds.max(low) / low).ln() / (high / low).ln();
                ((share * (BAND - 1) as f64).round() as usize).min(BAND - 1)
            };
            let (from, median, to) = (place(band.p5_s), place(band.median_s), place(band.p95_s));
            let bar: String = (0..BAND)
                .map(|column| match column {
                    _ if column == median => '#',
                    _ if column >= from && column <= to => '=',
                    _ => '.',
                })
                .collect();
            line += &format!("{bar} {:<6} ", time(band.median_s));
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Smallest and largest delay that the charts show.
pub fn scale(envelopes: &[Envelope]) -> (f64, f64) {
    let bands = || envelopes.iter().flat_map(|envelope| &envelope.bands);
    let low = bands().map(|band| band.p5_s).fold(f64::INFINITY, f64::min).max(0.01);
    let high = bands().map(|band| band.p95_s).fold(0.0, f64::max).max(low * 2.0);
    (low, high)
}
