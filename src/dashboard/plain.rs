//! A frame as text, for tickets and pipes, and as an SVG image, for documents. Same renderer, no terminal.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use crate::core::text;

use super::model::Model;
use super::view;

/// Draws the model into a buffer of its size.
pub fn render(model: &Model) -> Buffer {
    let mut buf = Buffer::empty(Rect { x: 0, y: 0, width: model.size.0, height: model.size.1 });
    view::draw(model, buf.area, &mut buf);
    buf
}

/// Cells of one line that hold something of their own: a wide character hides the cell after it.
fn cells(buf: &Buffer, y: u16) -> Vec<(u16, &Cell)> {
    let mut out = Vec::new();
    let mut x = buf.area.left();
    while x < buf.area.right() {
        let cell = &buf[(x, y)];
        out.push((x, cell));
        x += u16::try_from(text::width(cell.symbol())).unwrap_or(1).max(1);
    }
    out
}

/// The buffer as lines of text without trailing blanks.
pub fn text(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in buf.area.top()..buf.area.bottom() {
        let line: String = cells(buf, y).into_iter().map(|(_, cell)| cell.symbol()).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Cell size of the image, in pixels: the form of common fonts at 14 px.
const CELL: (f64, f64) = (8.4, 17.0);

/// The sixteen colours as drawn in the image; a terminal has its own.
fn hex(colour: Color, otherwise: &'static str) -> &'static str {
    match colour {
        Color::Black => "#1d1f21",
        Color::Red | Color::LightRed => "#e06c75",
        Color::Green | Color::LightGreen => "#98c379",
        Color::Yellow | Color::LightYellow => "#e5c07b",
        Color::Blue | Color::LightBlue => "#61afef",
        Color::Magenta | Color::LightMagenta => "#d792e8",
        Color::Cyan | Color::LightCyan => "#56b6c2",
        Color::DarkGray => "#6b7280",
        Color::White => "#ffffff",
        _ => otherwise,
    }
}

/// The buffer as an SVG image.
pub fn svg(buf: &Buffer) -> String {
    let (width, height) =
        (f64::from(buf.area.width) * CELL.0 + 16.0, f64::from(buf.area.height) * CELL.1 + 16.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#16181d\"/>\n"
    );
    for y in buf.area.top()..buf.area.bottom() {
        let mut run: Vec<(u16, &Cell)> = Vec::new();
        for (x, cell) in cells(buf, y) {
            if run.last().is_some_and(|(_, last)| last.style() != cell.style()) {
                svg_run(&run, y, &mut out);
                run.clear();
            }
            run.push((x, cell));
        }
        svg_run(&run, y, &mut out);
    }
    out.push_str("</svg>\n");
    out
}

/// One run of equally styled cells.
fn svg_run(run: &[(u16, &Cell)], y: u16, out: &mut String) {
    let (Some((x, first)), words) =
        (run.first(), run.iter().map(|(_, cell)| cell.symbol()).collect::<String>())
    else {
        return;
    };
    let reversed = first.modifier.contains(Modifier::REVERSED);
    let (left, top) = (8.0 + f64::from(*x) * CELL.0, 8.0 + f64::from(y) * CELL.1);
    let width = text::width(&words) as f64 * CELL.0;
    let ink = if reversed { "#16181d" } else { hex(first.fg, "#d7dae0") };
    if reversed {
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"#d7dae0\"/>",
            CELL.1
        );
    }
    if words.trim().is_empty() {
        return;
    }
    let weight = if first.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let faint = if first.modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
    let escaped = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{:.1}\" fill=\"{ink}\"{weight}{faint} textLength=\"{width:.1}\" xml:space=\"preserve\">{escaped}</text>",
        top + 13.0
    );
}
