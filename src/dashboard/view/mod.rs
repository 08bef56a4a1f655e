//! From the model to cells. One small file per pane; each gets `&Model` and a rectangle, and changes nothing.
//!
//! ```text
//! waypost gw-017 0.1.0 · up 3 h · ready                       live    header
//! 1 Overview  2 Attempts  3 Dead letters  4 Map  5 Events  6 Log      tabs
//! hq held 12 min: connection refused; 4 180 pending …                 the pane
//! …
//! / filter  f freeze  ? help  q quit                                  footer
//! ```
//!
//! **Invariants.** Text from outside passes [`crate::core::text`] before it is measured. Whatever a pane does, the
//! last step looks at every cell: no control character and, with `--ascii`, nothing but ASCII leaves this module.
//! Every size is drawn, 0×0 to 500×200; below 60×16 it is a note and the headline.

mod attempts;
mod dead_detail;
mod dead_letters;
mod events;
mod frame;
mod geometry;
mod log;
mod map;
mod overlay;
mod overview;
mod parts;
mod story;
mod zones;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::core::text;
use crate::wire::EndpointState;

use super::model::{Model, Pane};
use super::words;

pub use frame::{TABS_ROW, tab_at};
pub use map::{map_cell_at, map_cells};
pub use overview::overview_rows;

/// Smallest terminal with full use of every pane: a serial console with a few lines lost to its program.
pub const SIZE_MIN: (u16, u16) = (60, 16);
/// Bound of scrolling in an opened letter or event; bodies are cut at as many lines.
pub const DETAIL_LINES_MAX: usize = 10_000;

/// Draws one frame.
pub fn draw(model: &Model, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    if area.width < SIZE_MIN.0 || area.height < SIZE_MIN.1 {
        frame::too_small(model, area, buf);
    } else {
        frame::header(model, Rect { height: 1, ..area }, buf);
        frame::tabs(model, Rect { y: area.y + TABS_ROW, height: 1, ..area }, buf);
        pane(model, body(area), buf);
        frame::footer(model, Rect { y: area.bottom() - 1, height: 1, ..area }, buf);
        overlay::draw(model, area, buf);
    }
    gate(model, area, buf);
}

/// What is left of the screen for the pane.
fn body(area: Rect) -> Rect {
    Rect { y: area.y + 2, height: area.height.saturating_sub(3), ..area }
}

fn pane(model: &Model, area: Rect, buf: &mut Buffer) {
    match model.pane {
        Pane::Overview => overview::draw(model, area, buf),
        Pane::Attempts => attempts::draw(model, area, buf),
        Pane::DeadLetters => match &model.dead.open {
            Some(open) => dead_detail::draw(model, open, area, buf),
            None => dead_letters::draw(model, area, buf),
        },
        Pane::Map => map::draw(model, area, buf),
        Pane::Events => match &model.events.open {
            Some(open) => story::draw(model, open, area, buf),
            None => events::draw(model, area, buf),
        },
        Pane::Log => log::draw(model, area, buf),
    }
}

/// The last gate: nothing that acts on a terminal passes, whoever forgot to make it visible.
fn gate(model: &Model, area: Rect, buf: &mut Buffer) {
    let ascii = model.settings.glyphs.ascii;
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            let cell = &mut buf[(x, y)];
            let symbol = cell.symbol();
            if symbol.chars().any(text::is_hidden) || (ascii && !symbol.is_ascii()) {
                cell.set_symbol("?");
            }
        }
    }
}

/// A state as a word; states that need a person are in capitals, so that they are seen without colour.
pub fn state_word(state: EndpointState) -> &'static str {
    match state {
        EndpointState::Up => "up",
        EndpointState::Held => "HELD",
        EndpointState::Paused => "paused",
        EndpointState::Disabled => "DISABLED",
    }
}

/// An area in words: south-west and north-east corner.
pub fn area_words(area: &[f64; 4]) -> String {
    format!("{} to {}", words::place(area[0], area[1]), words::place(area[2], area[3]))
}
