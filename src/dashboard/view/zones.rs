//! The areas of routes on the map: a frame, the endpoint's name, and how much lies in it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::core::text;
use crate::wire::ZoneView;

use super::super::model::Model;
use super::super::words::short_count;

/// Columns or rows of one edge to the other, as cells of the map; they may lie outside of it.
#[derive(Clone, Copy)]
struct Frame {
    left: i64,
    right: i64,
    top: i64,
    bottom: i64,
}

pub(super) fn draw(model: &Model, zone: &ZoneView, bounds: [f64; 4], canvas: Rect, buf: &mut Buffer) {
    let name = format!("{} {}", zone.endpoint, short_count(inside(model, zone.bbox)));
    for [west, south, east, north] in halves(zone.bbox) {
        if canvas.is_empty() || ![west, south, east, north].iter().all(|edge| edge.is_finite()) {
            continue;
        }
        let column = |lon: f64| (lon - bounds[0]) / (bounds[2] - bounds[0]) * f64::from(canvas.width);
        let row = |lat: f64| (bounds[3] - lat) / (bounds[3] - bounds[1]) * f64::from(canvas.height);
        let frame = Frame {
            left: column(west).floor() as i64,
            right: column(east).floor() as i64,
            top: row(north).floor() as i64,
            bottom: row(south).floor() as i64,
        };
        edges(model, frame, canvas, buf);
        label(model, &name, frame, canvas, buf);
    }
}

/// An area over the antimeridian is two on a map that ends there.
fn halves([west, south, east, north]: [f64; 4]) -> Vec<[f64; 4]> {
    if west <= east {
        vec![[west, south, east, north]]
    } else {
        vec![[west, south, 180.0, north], [-180.0, south, east, north]]
    }
}

/// Pending and dead in the area, as far as the map knows.
fn inside(model: &Model, bbox: [f64; 4]) -> u64 {
    let within = |lon: f64, lat: f64| {
        halves(bbox).iter().any(|[w, s, e, n]| (*w..=*e).contains(&lon) && (*s..=*n).contains(&lat))
    };
    let cells = model.map.data.cells.iter().filter(|cell| within(cell.lon, cell.lat));
    cells.map(|cell| cell.pending + cell.dead).sum()
}

fn edges(model: &Model, frame: Frame, canvas: Rect, buf: &mut Buffer) {
    let Frame { left, right, top, bottom } = frame;
    let glyphs = model.settings.glyphs;
    // Only what is in sight is walked over, however large the frame is.
    let columns = left.max(0)..=right.min(i64::from(canvas.width) - 1);
    let rows = top.max(0)..=bottom.min(i64::from(canvas.height) - 1);
    for column in columns {
        set(model, (column, top), glyphs.line, canvas, buf);
        set(model, (column, bottom), glyphs.line, canvas, buf);
    }
    for row in rows {
        set(model, (left, row), glyphs.bar, canvas, buf);
        set(model, (right, row), glyphs.bar, canvas, buf);
    }
    let [top_left, top_right, bottom_left, bottom_right] = glyphs.corners;
    set(model, (right, bottom), bottom_right, canvas, buf);
    set(model, (left, bottom), bottom_left, canvas, buf);
    set(model, (right, top), top_right, canvas, buf);
    set(model, (left, top), top_left, canvas, buf);
}

fn set(model: &Model, (column, row): (i64, i64), glyph: char, canvas: Rect, buf: &mut Buffer) {
    let (Ok(column), Ok(row)) = (u16::try_from(column), u16::try_from(row)) else { return };
    if column < canvas.width && row < canvas.height {
        buf[(canvas.x + column, canvas.y + row)].set_char(glyph).set_style(model.settings.theme.accent);
    }
}

/// The name on the upper edge, or on the first line in sight of a frame that begins above it.
fn label(model: &Model, name: &str, frame: Frame, canvas: Rect, buf: &mut Buffer) {
    let (left, row) = (frame.left.max(-1) + 1, frame.top.max(0));
    let (Ok(column), Ok(row)) = (u16::try_from(left), u16::try_from(row)) else { return };
    let in_sight = frame.right >= 0 && frame.bottom >= 0 && column < canvas.width && row < canvas.height;
    if !in_sight {
        return;
    }
    let room = usize::from(canvas.width - column);
    let shown = text::truncate(name, room, model.settings.glyphs.ellipsis);
    buf.set_stringn(canvas.x + column, canvas.y + row, shown, room, model.settings.theme.accent);
}
