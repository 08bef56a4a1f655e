//! Which part of the world the map shows, as arithmetic: pan, zoom, fit, and from screen cells to degrees.
//!
//! Plate carrée, like the data: a degree is as wide as high. A braille dot is as wide as high on common fonts (a cell
//! is twice as high as wide and holds 2 × 4 dots), so shapes keep their form.

/// Narrowest view, in degrees of longitude: a city block is about 0.002.
const SPAN_MIN: f64 = 0.002;
/// Widest view.
const SPAN_MAX: f64 = 360.0;

/// A view: its centre and its width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Viewport {
    /// Longitude of the centre.
    pub lon: f64,
    /// Latitude of the centre.
    pub lat: f64,
    /// Width in degrees.
    pub span: f64,
}

impl Default for Viewport {
    fn default() -> Self {
        Self { lon: 0.0, lat: 0.0, span: SPAN_MAX }
    }
}

/// Degrees per column and per row on a map of the given cells.
fn degrees_per_cell(span: f64, cells: (u16, u16)) -> (f64, f64) {
    let columns = f64::from(cells.0.max(1));
    let rows = f64::from(cells.1.max(1));
    // The whole world must fit in height too, so a low, wide map leaves its sides empty.
    let per_column = (span / columns).max(if span >= SPAN_MAX { 180.0 / rows / 2.0 } else { 0.0 });
    (per_column, per_column * 2.0)
}

impl Viewport {
    /// `[west, south, east, north]` that a map of `cells` (columns, rows) shows; may reach beyond the world.
    pub fn bounds(&self, cells: (u16, u16)) -> [f64; 4] {
        let (per_column, per_row) = degrees_per_cell(self.span, cells);
        let half_width = per_column * f64::from(cells.0.max(1)) / 2.0;
        let half_height = per_row * f64::from(cells.1.max(1)) / 2.0;
        [self.lon - half_width, self.lat - half_height, self.lon + half_width, self.lat + half_height]
    }

    /// The part of the world in view, as a filter: cut at its edges.
    pub fn area(&self, cells: (u16, u16)) -> [f64; 4] {
        clip(self.bounds(cells))
    }

    /// The extent of a box of cells, given by two opposite ones.
    pub fn area_of(&self, cells: (u16, u16), one: (u16, u16), other: (u16, u16)) -> [f64; 4] {
        let [west, _, _, north] = self.bounds(cells);
        let (per_column, per_row) = degrees_per_cell(self.span, cells);
        let (left, right) = (one.0.min(other.0), one.0.max(other.0));
        let (top, bottom) = (one.1.min(other.1), one.1.max(other.1));
        clip([
            west + f64::from(left) * per_column,
            north - (f64::from(bottom) + 1.0) * per_row,
            west + (f64::from(right) + 1.0) * per_column,
            north - f64::from(top) * per_row,
        ])
    }

    /// Moves by parts of the view: east and north positive.
    #[must_use]
    pub fn pan(self, east: f64, north: f64) -> Self {
        let step = self.span / 8.0;
        Self {
            lon: (self.lon + east * step).clamp(-180.0, 180.0),
            lat: (self.lat + north * step).clamp(-90.0, 90.0),
            ..self
        }
    }

    /// Narrower by a factor; below 1 wider.
    #[must_use]
    pub fn zoom(self, factor: f64) -> Self {
        Self { span: (self.span / factor).clamp(SPAN_MIN, SPAN_MAX), ..self }
    }

    /// The view that shows all positions with some margin; the world if there are none.
    pub fn fit(positions: impl Iterator<Item = (f64, f64)>, cells: (u16, u16)) -> Self {
        let mut bounds: Option<[f64; 4]> = None;
        for (lon, lat) in positions.filter(|(lon, lat)| lon.is_finite() && lat.is_finite()) {
            let [west, south, east, north] = bounds.unwrap_or([lon, lat, lon, lat]);
            bounds = Some([west.min(lon), south.min(lat), east.max(lon), north.max(lat)]);
        }
        let Some([west, south, east, north]) = bounds.map(clip) else { return Self::default() };
        let wide_for_height = (north - south) / 2.0 * f64::from(cells.0.max(1)) / f64::from(cells.1.max(1));
        // A tenth of margin on each side; a single place is shown with half a degree round it.
        let span = ((east - west).max(wide_for_height) * 1.2).clamp(0.5, SPAN_MAX);
        Self { lon: f64::midpoint(west, east), lat: f64::midpoint(south, north), span }
    }
}

fn clip(area: [f64; 4]) -> [f64; 4] {
    [
        area[0].clamp(-180.0, 180.0),
        area[1].clamp(-90.0, 90.0),
        area[2].clamp(-180.0, 180.0),
        area[3].clamp(-90.0, 90.0),
    ]
}

/// Whether two extents have a point in common.
pub fn meets(one: &[f64; 4], other: &[f64; 4]) -> bool {
    one[0] <= other[2] && other[0] <= one[2] && one[1] <= other[3] && other[1] <= one[3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_world_fits_whatever_the_form_of_the_window() {
        for cells in [(80, 20), (140, 45), (20, 40), (500, 10), (1, 1), (0, 0)] {
            let [west, south, east, north] = Viewport::default().bounds(cells);
            assert!(west <= -179.9 && east >= 179.9, "{cells:?}");
            if cells.1 * 4 <= cells.0 {
                assert!(south <= -89.9 && north >= 89.9, "{cells:?}: {south} {north}");
            }
        }
    }

    #[test]
    fn a_dragged_box_is_where_it_was_drawn() {
        let view = Viewport { lon: 10.0, lat: 50.0, span: 40.0 };
        let all = view.area_of((40, 10), (0, 0), (39, 9));
        assert_eq!(all, view.area((40, 10)));
        assert_eq!(view.area_of((40, 10), (20, 5), (20, 5)), [10.0, 48.0, 11.0, 50.0]);
    }

    proptest! {
        #[test]
        fn any_play_stays_on_the_globe(steps in prop::collection::vec((-9.0f64..9.0, -9.0f64..9.0, 0.1f64..9.0), 0..40), cells in any::<(u16, u16)>()) {
            let mut view = Viewport::default();
            for (east, north, factor) in steps {
                view = view.pan(east, north).zoom(factor);
            }
            let area = view.area(cells);
            prop_assert!(area[0] <= area[2] && area[1] <= area[3]);
            prop_assert!(area[0] >= -180.0 && area[2] <= 180.0 && area[1] >= -90.0 && area[3] <= 90.0);
        }
    }
}
