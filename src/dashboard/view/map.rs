//! Pane 4: the world, with what waits and what is dead, by place.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Map, MapResolution};

use crate::wire::MapCell;

use super::super::model::{Layer, Model};
use super::super::words::count;
use super::geometry::{colour, marker};
use super::parts::Pen;
use super::{area_words, body, zones};

/// The rectangle of the map itself: below the heading, above the legend.
fn canvas(area: Rect) -> Rect {
    Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area }
}

fn canvas_of(size: (u16, u16)) -> Rect {
    canvas(body(Rect { x: 0, y: 0, width: size.0, height: size.1 }))
}

/// Columns and rows of the map in a terminal of the given size.
pub fn map_cells(size: (u16, u16)) -> (u16, u16) {
    let area = canvas_of(size);
    (area.width, area.height)
}

/// The map's cell under a screen position.
pub fn map_cell_at(size: (u16, u16), at: (u16, u16)) -> Option<(u16, u16)> {
    let area = canvas_of(size);
    area.contains(at.into()).then(|| (at.0 - area.x, at.1 - area.y))
}

/// Letters for how much lies in a cell of the screen: more than a glance at colours tells.
fn density(value: u64) -> char {
    match value {
        0 => ' ',
        1..10 => '1',
        10..100 => '2',
        100..1_000 => '3',
        1_000..10_000 => '4',
        _ => '5',
    }
}

/// What lies in each cell of the screen: (column, row) to pending and dead.
fn gather(
    cells: &[MapCell],
    bounds: [f64; 4],
    area: Rect,
) -> std::collections::BTreeMap<(u16, u16), (u64, u64)> {
    let [west, south, east, north] = bounds;
    let mut found = std::collections::BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.lon.is_finite() && cell.lat.is_finite()) {
        let x = (cell.lon - west) / (east - west) * f64::from(area.width);
        let y = (north - cell.lat) / (north - south) * f64::from(area.height);
        if (0.0..f64::from(area.width)).contains(&x) && (0.0..f64::from(area.height)).contains(&y) {
            let sums: &mut (u64, u64) = found.entry((x as u16, y as u16)).or_default();
            sums.0 += cell.pending;
            sums.1 += cell.dead;
        }
    }
    found
}

pub(super) fn draw(model: &Model, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::new(model, area, buf);
    let view = model.map.view;
    let canvas = canvas(area).intersection(pen.buf.area);
    let bounds = view.bounds((canvas.width, canvas.height));
    let sums = |pick: fn(&MapCell) -> u64| model.map.data.cells.iter().map(pick).sum::<u64>();
    pen.heading(
        "Map",
        &format!(
            "{} pending, {} dead {}; {} not placed; view {}",
            count(sums(|cell| cell.pending)),
            count(sums(|cell| cell.dead)),
            if model.map.part.is_some() { "in view" } else { "placed" },
            count(model.map.data.unplaced),
            area_words(&view.area((canvas.width, canvas.height))),
        ),
    );
    world(model, bounds, canvas, pen.buf);
    for zone in &model.map.data.zones {
        zones::draw(model, zone, bounds, canvas, pen.buf);
    }
    for ((column, row), (pending, dead)) in gather(&model.map.data.cells, bounds, canvas) {
        let (pending, dead) = match model.map.layer {
            Layer::Both => (pending, dead),
            Layer::Pending => (pending, 0),
            Layer::Dead => (0, dead),
        };
        if pending + dead == 0 {
            continue;
        }
        let cell = &mut pen.buf[(canvas.x + column, canvas.y + row)];
        let (glyph, style) = mark(model, pending, dead);
        cell.set_char(glyph).set_style(style);
    }
    dragged(model, canvas, &mut pen);
    let line = legend(model, area.width);
    Pen::new(model, Rect { y: area.bottom().saturating_sub(1), height: 1, ..area }, pen.buf).line(line);
}

/// What the marks mean, as much as there is room for; an area filter is said before anything else.
fn legend(model: &Model, width: u16) -> Line<'static> {
    let theme = &model.settings.theme;
    let mut legend = Vec::new();
    if let Some(filter) = &model.area {
        legend.push(Span::styled(format!("area filter {}  ", area_words(filter)), theme.warn));
    }
    let long = width >= 76;
    let pending = if long { "pending 1 <10 2 <100 3 <1k 4 <10k 5 more" } else { "pending 1-5 by tens" };
    legend.push(Span::styled(pending, theme.pending));
    legend.push(Span::styled("  dead x <10 X more", theme.dead));
    legend.push(Span::raw(match model.map.layer {
        Layer::Both => "  (over pending: t)",
        Layer::Pending => "  (only pending: t)",
        Layer::Dead => "  (only dead: t)",
    }));
    Line::from(legend)
}

/// Dead letters hide what is pending under them: they are what a person looks for here.
fn mark(model: &Model, pending: u64, dead: u64) -> (char, Style) {
    let theme = &model.settings.theme;
    match dead {
        0 => (density(pending), theme.pending.add_modifier(ratatui::style::Modifier::BOLD)),
        1..10 => ('x', theme.dead),
        _ => ('X', theme.dead.add_modifier(ratatui::style::Modifier::BOLD)),
    }
}

fn world(model: &Model, [west, south, east, north]: [f64; 4], area: Rect, buf: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let land = model.settings.theme.land;
    Canvas::default()
        .marker(marker(model))
        .x_bounds([west, east])
        .y_bounds([south, north])
        .paint(|context| context.draw(&Map { resolution: MapResolution::High, color: colour(land) }))
        .render(area, buf);
    buf.set_style(area, land);
}

/// The box under the mouse button.
fn dragged(model: &Model, canvas: Rect, pen: &mut Pen<'_>) {
    let Some((one, other)) = model.map.drag else { return };
    let rect = Rect {
        x: canvas.x + one.0.min(other.0),
        y: canvas.y + one.1.min(other.1),
        width: one.0.abs_diff(other.0) + 1,
        height: one.1.abs_diff(other.1) + 1,
    };
    pen.buf.set_style(rect.intersection(canvas), pen.theme.selected);
}
