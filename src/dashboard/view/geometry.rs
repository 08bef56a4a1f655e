//! A small drawing of one geometry with the offending position marked.
//!
//! Reads positions straight from the event's JSON, because what is drawn here is mostly what the geometry gate
//! refused: rings that cross themselves, coordinates that are not. Whatever has no numbers is left out.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Line};
use serde_json::Value;

use super::super::model::Model;
use super::parts::Pen;

/// Positions drawn of one geometry: a window has far fewer dots.
const POSITIONS_MAX: usize = 20_000;

/// A run of positions; single ones are drawn as points.
type Path = Vec<(f64, f64)>;

/// Every run of positions in a document, whatever its type.
pub(super) fn paths(body: &str) -> Vec<Path> {
    let Ok(document) = serde_json::from_str::<Value>(body) else { return Vec::new() };
    let geometry = document.get("geometry").unwrap_or(&document);
    let mut found = Vec::new();
    let mut left = POSITIONS_MAX;
    collect_geometry(geometry, &mut found, &mut left);
    found
}

fn collect_geometry(geometry: &Value, found: &mut Vec<Path>, left: &mut usize) {
    if let Some(members) = geometry.get("geometries").and_then(Value::as_array) {
        for member in members {
            collect_geometry(member, found, left);
        }
    }
    let Some(coordinates) = geometry.get("coordinates") else { return };
    if geometry.get("type").and_then(Value::as_str) == Some("MultiPoint") {
        // Nothing joins its positions, so nothing is drawn between them.
        for point in coordinates.as_array().into_iter().flatten() {
            collect(point, found, left);
        }
    } else {
        collect(coordinates, found, left);
    }
}

/// serde_json bounds the depth to 128, so this recursion is bounded too.
fn collect(value: &Value, found: &mut Vec<Path>, left: &mut usize) {
    let Some(items) = value.as_array() else { return };
    if let Some(position) = position(value) {
        found.push(vec![position]);
        *left = left.saturating_sub(1);
        return;
    }
    let path: Path = items.iter().filter_map(position).take(*left).collect();
    if path.is_empty() {
        for item in items {
            collect(item, found, left);
        }
    } else {
        *left = left.saturating_sub(path.len());
        found.push(path);
    }
}

fn position(value: &Value) -> Option<(f64, f64)> {
    let items = value.as_array()?;
    let (lon, lat) = (items.first()?.as_f64()?, items.get(1)?.as_f64()?);
    (lon.is_finite() && lat.is_finite()).then_some((lon, lat))
}

/// Bounds of everything drawn, with a margin and the form of the window; a dot is as high as wide.
fn bounds(paths: &[Path], offending: Option<(f64, f64)>, area: Rect) -> Option<[f64; 4]> {
    let mut all = paths.iter().flatten().copied().chain(offending);
    let (lon, lat) = all.next()?;
    let [west, south, east, north] = all.fold([lon, lat, lon, lat], |[w, s, e, n], (lon, lat)| {
        [w.min(lon), s.min(lat), e.max(lon), n.max(lat)]
    });
    let per_row = (north - south) / f64::from(area.height.max(1));
    let per_column = ((east - west) / f64::from(area.width.max(1))).max(per_row / 2.0);
    // A geometry without extent still needs a window round it: about a hundred metres.
    let per_column = (per_column * 1.15).max(0.001 / f64::from(area.width.max(1)));
    let half_width = per_column * f64::from(area.width) / 2.0;
    let half_height = per_column * 2.0 * f64::from(area.height) / 2.0;
    let (x, y) = (f64::midpoint(west, east), f64::midpoint(south, north));
    let found = [x - half_width, y - half_height, x + half_width, y + half_height];
    (found.iter().all(|v| v.is_finite()) && half_width > 0.0 && half_height > 0.0).then_some(found)
}

/// The colour of a role; canvases take no style.
pub(super) fn colour(style: ratatui::style::Style) -> Color {
    style.fg.unwrap_or(Color::Reset)
}

/// The marker of the character set.
pub(super) fn marker(model: &Model) -> Marker {
    if model.settings.glyphs.ascii { Marker::Custom('.') } else { Marker::Braille }
}

pub(super) fn draw(model: &Model, body: &str, offending: Option<[f64; 2]>, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    let theme = model.settings.theme;
    let paths = paths(body);
    let offending =
        offending.map(|[lon, lat]| (lon, lat)).filter(|(lon, lat)| lon.is_finite() && lat.is_finite());
    let Some([west, south, east, north]) = bounds(&paths, offending, area).filter(|_| !area.is_empty())
    else {
        Pen::new(model, area, buf).text("nothing to draw", theme.dim);
        return;
    };
    let point = model.settings.glyphs.point.to_string();
    Canvas::default()
        .marker(marker(model))
        .x_bounds([west, east])
        .y_bounds([south, north])
        .paint(|context| {
            for path in &paths {
                if let [only] = path.as_slice() {
                    context.print(only.0, only.1, ratatui::text::Line::styled(point.clone(), theme.pending));
                }
                for pair in path.windows(2) {
                    let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
                    context.draw(&Line { x1, y1, x2, y2, color: colour(theme.pending) });
                }
            }
            if let Some((lon, lat)) = offending {
                context.print(lon, lat, ratatui::text::Line::styled("X", theme.bad));
            }
        })
        .render(area, buf);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_found_in_every_type_and_in_none() {
        for (body, runs) in [
            (r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]}}"#, vec![1]),
            (
                r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[0,1],[1,0],[0,0]],[[2,2],[3,3]]]}"#,
                vec![5, 2],
            ),
            (r#"{"type":"MultiPoint","coordinates":[[0,0],[1,1]]}"#, vec![1, 1]),
            (r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]}]}"#, vec![1]),
            (r#"{"type":"Feature","geometry":null}"#, vec![]),
            (r#"{"type":"Point","coordinates":["a",null]}"#, vec![]),
            ("not json", vec![]),
        ] {
            let found: Vec<usize> = paths(body).iter().map(Vec::len).collect();
            assert_eq!(found, runs, "{body}");
        }
    }
}
