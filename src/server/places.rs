//! `GET /v1/map`: where pending events and dead letters lie, by cells of half a degree or coarser.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;

use super::AppState;
use super::problem::Failure;
use super::views::Names;
use crate::core::ids::Seq;
use crate::store::DeadFilter;
use crate::wire::{MapCell, MapView};

/// Cells of an answer, at most; when there are more the cells get twice as wide.
const CELLS_MAX: usize = 4_000;
/// Width of the finest cells in degrees.
const CELL_DEGREES: f64 = 0.5;
/// Pending deliveries of an endpoint that are looked at; the rest is counted as not placed.
const PENDING_MAX: usize = 2_000;
/// Dead letters that are looked at.
const DEAD_MAX: usize = 5_000;
/// Read at once.
const PAGE: usize = 250;

type Counts = HashMap<(i32, i32), (u64, u64)>;

pub(super) async fn map(State(state): State<AppState>) -> Result<Json<MapView>, Failure> {
    let names = Names::of(&state);
    let mut counts = Counts::new();
    let stats = state.outbox.stats();
    let total: u64 = stats.ledgers.values().map(|ledger| ledger.pending + ledger.dead).sum();
    let mut placed = 0;
    for endpoint in names.ids() {
        let (mut after, mut seen) = (Seq(0), 0);
        while seen < PENDING_MAX {
            let page = state.outbox.pending_page(endpoint, after, PAGE).await?;
            seen += page.deliveries.len();
            for delivery in &page.deliveries {
                placed += u64::from(count(&mut counts, delivery.event.head.bbox, false));
            }
            after = page.scanned_to;
            if page.end {
                break;
            }
        }
    }
    let (mut after, mut seen) = (None, 0);
    while seen < DEAD_MAX {
        let page = state.outbox.dead_letters(DeadFilter::default(), after, PAGE).await?;
        seen += page.letters.len();
        for letter in &page.letters {
            placed += u64::from(count(&mut counts, letter.head.bbox, true));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(Json(MapView { cells: cells(counts), unplaced: total.saturating_sub(placed) }))
}

/// Counts an event in the cell of its centre; whether it has one.
fn count(counts: &mut Counts, bbox: Option<[f64; 4]>, dead: bool) -> bool {
    let Some([west, south, east, north]) = bbox else { return false };
    let cell =
        |low: f64, high: f64| (f64::midpoint(low, high).clamp(-360.0, 360.0) / CELL_DEGREES).floor() as i32;
    let entry = counts.entry((cell(west, east), cell(south, north))).or_default();
    if dead {
        entry.1 += 1;
    } else {
        entry.0 += 1;
    }
    true
}

fn cells(mut counts: Counts) -> Vec<MapCell> {
    let mut width = CELL_DEGREES;
    while counts.len() > CELLS_MAX {
        let mut coarser = Counts::new();
        for ((x, y), (pending, dead)) in counts {
            let entry = coarser.entry((x.div_euclid(2), y.div_euclid(2))).or_default();
            entry.0 += pending;
            entry.1 += dead;
        }
        counts = coarser;
        width *= 2.0;
    }
    let centre = |index: i32| (f64::from(index) + 0.5) * width;
    counts
        .into_iter()
        .map(|((x, y), (pending, dead))| MapCell { lon: centre(x), lat: centre(y), pending, dead })
        .collect()
}
