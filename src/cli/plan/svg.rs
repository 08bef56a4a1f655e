//! The plan's charts as one SVG image: backlog, load on the receiver, delays of the three laws.

use std::fmt::Write as _;

use super::plot::{longest, scale, until_s};
use super::time;
use crate::sim::plan::{Plan, Point, Row};

/// Size of the image and of a panel's inner area, in pixels.
const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const INNER: (f64, f64) = (660.0, 170.0);
const GAP: f64 = 62.0;
const TOP: f64 = 90.0;
/// Lines of policies, in their order: colours that differ for the colour-blind too.
const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#7a7a7a"];

/// Draws the longest outage.
pub fn draw(plan: &Plan, title: &str) -> String {
    let rows = longest(plan);
    let height = TOP + 3.0 * (INNER.1 + GAP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    text(&mut out, LEFT, 22.0, "start", "#111111", title);
    legend(&mut out, &rows);
    lines(&mut out, 0, "deliveries that wait", &rows, |point| point.open, false);
    lines(
        &mut out,
        1,
        "most requests in one second / capacity (logarithmic)",
        &rows,
        |point| point.load,
        true,
    );
    bands(&mut out, plan);
    out += "</svg>\n";
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{words}</text>"
    );
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn legend(out: &mut String, rows: &[&Row]) {
    for (index, (row, colour)) in rows.iter().zip(COLOURS).enumerate() {
        let drained = row.drained_s.map_or("not drained".to_owned(), |s| format!("drained in {}", time(s)));
        let words = format!(
            "{}: {:.1} % dead, {drained}, peak {:.1} x",
            row.policy, row.dead_percent, row.peak_per_capacity
        );
        text(out, LEFT, 40.0 + 16.0 * index as f64, "start", colour, &words);
    }
}

fn frame(out: &mut String, top: f64, title: &str) {
    text(out, LEFT, top - 6.0, "start", "#111111", title);
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#999999\"/>",
        INNER.0, INNER.1
    );
}

/// A panel with one line per policy over time.
fn lines(
    out: &mut String,
    panel: usize,
    title: &str,
    rows: &[&Row],
    of: impl Fn(&Point) -> f64,
    logarithmic: bool,
) {
    let top = TOP + panel as f64 * (INNER.1 + GAP) + 12.0;
    frame(out, top, title);
    let until = until_s(rows);
    let seen = |row: &&Row| row.chart.iter().filter(|point| point.at_s <= until).copied().collect::<Vec<_>>();
    let high = rows.iter().flat_map(&seen).map(|point| of(&point)).fold(0.0, f64::max).max(1e-9);
    let low = 0.001;
    let share = |value: f64| {
        if logarithmic {
            (value.max(low) / low).ln() / (high.max(low * 10.0) / low).ln()
        } else {
            value / high
        }
    };
    let x = |at_s: f64| LEFT + at_s / until * INNER.0;
    let y = |value: f64| top + INNER.1 * (1.0 - share(value));
    let outage = rows.first().map_or(0.0, |row| row.outage_s);
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"#d55e00\" fill-opacity=\"0.08\"/>",
        outage / until * INNER.0,
        INNER.1
    );
    let marks = if logarithmic {
        [0.01, 0.1, 1.0, 10.0, 100.0].into_iter().filter(|mark| *mark <= high).collect()
    } else {
        vec![high]
    };
    for mark in marks {
        line(out, (LEFT - 4.0, y(mark)), (LEFT, y(mark)), "#999999");
        if logarithmic && mark == 1.0 {
            line(out, (LEFT, y(mark)), (LEFT + INNER.0, y(mark)), "#cccccc");
        }
        let words = if logarithmic { format!("{mark} x") } else { super::count(mark as u64) };
        text(out, LEFT - 7.0, y(mark) + 4.0, "end", "#444444", &words);
    }
    for (row, colour) in rows.iter().zip(COLOURS) {
        let points: Vec<String> =
            seen(row).iter().map(|point| format!("{:.1},{:.1}", x(point.at_s), y(of(point)))).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            points.join(" ")
        );
    }
    let below = top + INNER.1 + 16.0;
    text(out, LEFT, below, "start", "#444444", "down");
    text(out, x(outage), below, "middle", "#444444", &format!("up after {}", time(outage)));
    text(out, LEFT + INNER.0, below, "end", "#444444", &time(until));
}

/// The envelopes, side by side.
fn bands(out: &mut String, plan: &Plan) {
    let top = TOP + 2.0 * (INNER.1 + GAP) + 12.0;
    frame(
        out,
        top,
        "delay after each failed attempt: nine in ten lie in the bar, the dash is the median (logarithmic)",
    );
    let (low, high) = scale(&plan.envelopes);
    let y = |seconds: f64| top + INNER.1 * (1.0 - (seconds.max(low) / low).ln() / (high / low).ln());
    let width = INNER.0 / plan.envelopes.len().max(1) as f64;
    for mark in [0.1, 1.0, 10.0, 60.0, 600.0, 3600.0].into_iter().filter(|mark| *mark >= low && *mark <= high)
    {
        line(out, (LEFT, y(mark)), (LEFT + INNER.0, y(mark)), "#e5e5e5");
        text(out, LEFT - 7.0, y(mark) + 4.0, "end", "#444444", &time(mark));
    }
    for (index, envelope) in plan.envelopes.iter().enumerate() {
        let left = LEFT + width * index as f64;
        let step = (width - 24.0) / envelope.bands.len().max(1) as f64;
        for (place, band) in envelope.bands.iter().enumerate() {
            let x = left + 12.0 + step * place as f64;
            let (upper, lower) = (y(band.p95_s), y(band.p5_s));
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{upper:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#0072b2\" \
                 fill-opacity=\"0.35\"/>",
                step * 0.7,
                (lower - upper).max(1.0)
            );
            line(out, (x, y(band.median_s)), (x + step * 0.7, y(band.median_s)), "#003f63");
        }
        let words = format!("{}, 6 attempts take {}", envelope.jitter, time(envelope.six_attempts_s));
        text(out, left + width / 2.0, top + INNER.1 + 16.0, "middle", "#444444", &words);
    }
}
