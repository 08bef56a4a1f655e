//! `GET /v1/map?bbox=w,s,e,n`: where pending events and dead letters lie, by cells, and the areas of the routes.
//!
//! Cells are half a degree wide; of a part of the world that is asked for they are as fine as a screen can show. Both
//! what is looked at and what is answered is bounded, so a map costs the same over a thousand events as over a million.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;

use super::AppState;
use super::dead_letters::parse_bbox;
use super::problem::{Failure, Kind};
use super::views::Names;
use crate::core::ids::{EndpointId, Seq};
use crate::store::DeadFilter;
use crate::wire::{MapCell, MapView, ZoneView};

/// Cells of an answer, at most; when there are more the cells get twice as wide.
const CELLS_MAX: usize = 4_000;
/// Width of the cells of the whole world, in degrees.
const CELL_DEGREES: f64 = 0.5;
/// A part of the world is cut into at least so many columns, until cells are a metre wide.
const COLUMNS: f64 = 256.0;
/// Halvings of a cell: 0.5° / 2^16 is about a metre.
const HALVINGS_MAX: i32 = 16;
/// Pending deliveries of an endpoint that are looked at; the rest is counted as not placed.
const PENDING_MAX: usize = 2_000;
/// Dead letters that are looked at.
const DEAD_MAX: usize = 5_000;
/// Read at once.
const PAGE: usize = 250;

/// Query of `GET /v1/map`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MapQuery {
    bbox: Option<String>,
}

pub(super) async fn map(
    State(state): State<AppState>,
    query: Result<Query<MapQuery>, QueryRejection>,
) -> Result<Json<MapView>, Failure> {
    let Query(query) = query.map_err(|err| Kind::BadRequest.because(err.body_text()))?;
    let part = query.bbox.as_deref().map(parse_bbox).transpose()?;
    let mut counts = Counts::of(part);
    let stats = state.outbox.stats();
    let total: u64 = stats.ledgers.values().map(|ledger| ledger.pending + ledger.dead).sum();
    for endpoint in Names::of(&state).ids() {
        count_pending(&state, endpoint, &mut counts).await?;
    }
    count_dead(&state, &mut counts).await?;
    let unplaced = total.saturating_sub(counts.placed);
    let extent = counts.extent;
    let (cell_degrees, cells) = counts.cells();
    Ok(Json(MapView { cells, unplaced, cell_degrees, extent, zones: zones(&state) }))
}

/// The areas that routes name, each once per endpoint.
fn zones(state: &AppState) -> Vec<ZoneView> {
    let mut zones: Vec<ZoneView> = Vec::new();
    for route in &state.config.routes {
        let Some(bbox) = route.bbox else { continue };
        let zone = ZoneView { endpoint: route.endpoint.clone(), bbox };
        if !zones.contains(&zone) {
            zones.push(zone);
        }
    }
    zones
}

async fn count_pending(state: &AppState, endpoint: EndpointId, counts: &mut Counts) -> Result<(), Failure> {
    let (mut after, mut seen) = (Seq(0), 0);
    while seen < PENDING_MAX {
        let page = state.outbox.pending_page(endpoint, after, PAGE).await?;
        seen += page.deliveries.len();
        for delivery in &page.deliveries {
            counts.add(delivery.event.head.bbox, (1, 0));
        }
        after = page.scanned_to;
        if page.end {
            break;
        }
    }
    Ok(())
}

async fn count_dead(state: &AppState, counts: &mut Counts) -> Result<(), Failure> {
    let (mut after, mut seen) = (None, 0);
    while seen < DEAD_MAX {
        let page = state.outbox.dead_letters(DeadFilter::default(), after, PAGE).await?;
        seen += page.letters.len();
        for letter in &page.letters {
            counts.add(letter.head.bbox, (0, 1));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

/// Pending and dead by cell; each event counts where its extent's centre lies.
struct Counts {
    part: Option<[f64; 4]>,
    width: f64,
    cells: HashMap<(i32, i32), (u64, u64)>,
    placed: u64,
    extent: Option<[f64; 4]>,
}

impl Counts {
    fn of(part: Option<[f64; 4]>) -> Self {
        let mut width = CELL_DEGREES;
        if let Some([west, _, east, _]) = part {
            let wanted = ((east - west).abs() / COLUMNS).clamp(f64::MIN_POSITIVE, CELL_DEGREES);
            let halvings = (CELL_DEGREES / wanted).log2().ceil() as i32;
            width = CELL_DEGREES / 2f64.powi(halvings.clamp(0, HALVINGS_MAX));
        }
        Self { part, width, cells: HashMap::new(), placed: 0, extent: None }
    }

    fn add(&mut self, bbox: Option<[f64; 4]>, (pending, dead): (u64, u64)) {
        let Some([west, south, east, north]) = bbox else { return };
        let (lon, lat) = (f64::midpoint(west, east), f64::midpoint(south, north));
        self.placed += pending + dead;
        let [left, bottom, right, top] = self.extent.unwrap_or([lon, lat, lon, lat]);
        self.extent = Some([left.min(lon), bottom.min(lat), right.max(lon), top.max(lat)]);
        if self.part.is_some_and(|[w, s, e, n]| !(w..=e).contains(&lon) || !(s..=n).contains(&lat)) {
            return;
        }
        let index = |degrees: f64| (degrees.clamp(-360.0, 360.0) / self.width).floor() as i32;
        let entry = self.cells.entry((index(lon), index(lat))).or_default();
        entry.0 += pending;
        entry.1 += dead;
    }

    /// Their width and what lies in each, not more than an answer may hold.
    fn cells(mut self) -> (f64, Vec<MapCell>) {
        while self.cells.len() > CELLS_MAX {
            let mut coarser: HashMap<(i32, i32), (u64, u64)> = HashMap::new();
            for ((x, y), (pending, dead)) in self.cells {
                let entry = coarser.entry((x.div_euclid(2), y.div_euclid(2))).or_default();
                entry.0 += pending;
                entry.1 += dead;
            }
            self.cells = coarser;
            self.width *= 2.0;
        }
        let centre = |index: i32| (f64::from(index) + 0.5) * self.width;
        // In order, so that equal maps are equal answers.
        let sorted: BTreeMap<_, _> = self.cells.into_iter().collect();
        let cells = sorted
            .into_iter()
            .map(|((x, y), (pending, dead))| MapCell { lon: centre(x), lat: centre(y), pending, dead })
            .collect();
        (self.width, cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_world_is_cut_finer_and_nothing_is_counted_twice() {
        let mut world = Counts::of(None);
        let mut city = Counts::of(Some([13.0, 52.0, 14.0, 53.0]));
        for step in 0..100 {
            let lon = 13.0 + f64::from(step) * 0.009;
            for counts in [&mut world, &mut city] {
                counts.add(Some([lon, 52.5, lon, 52.5]), (1, 0));
                counts.add(Some([-70.0, 10.0, -70.0, 10.0]), (0, 1));
                counts.add(None, (1, 0));
            }
        }
        assert_eq!((world.placed, city.placed), (200, 200));
        assert_eq!(city.extent, Some([-70.0, 10.0, 13.0 + 99.0 * 0.009, 52.5]));
        let (width, cells) = world.cells();
        assert_eq!((width, cells.len()), (0.5, 3));
        let (width, cells) = city.cells();
        assert!(width < 0.004 && cells.len() == 100, "{width} {}", cells.len());
        assert_eq!(cells.iter().map(|cell| cell.pending + cell.dead).sum::<u64>(), 100);
    }

    #[test]
    fn any_part_and_many_places_stay_bounded() {
        for part in [None, Some([0.0, 0.0, 0.0, 0.0]), Some([180.0, 90.0, -180.0, -90.0])] {
            let mut counts = Counts::of(part);
            for x in 0..200 {
                for y in 0..100 {
                    let (lon, lat) = (f64::from(x) * 1.7 - 170.0, f64::from(y) * 1.7 - 85.0);
                    counts.add(Some([lon, lat, lon, lat]), (1, 1));
                }
            }
            assert!(counts.cells().1.len() <= CELLS_MAX);
        }
    }
}
