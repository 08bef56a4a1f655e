//! What the sparklines show: depth and oldest age over five minutes, an hour and a day, kept by the dashboard itself.
//!
//! Three rings of the same length, each cell the worst value of its time, so that a short peak is still seen a day
//! later. Times without an answer stay gaps: a line that goes on while nothing is known would lie.

use std::collections::VecDeque;

/// Cells of a ring: more than any sensible window is wide, and 5 min / 300 is one second.
const CELLS: usize = 300;

/// How far back a sparkline reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Five minutes.
    Minutes,
    /// One hour.
    Hour,
    /// One day.
    Day,
}

impl Span {
    /// All, in the order in which a key goes through them.
    pub const ALL: [Self; 3] = [Self::Minutes, Self::Hour, Self::Day];

    /// As shown.
    pub fn label(self) -> &'static str {
        match self {
            Self::Minutes => "5 min",
            Self::Hour => "1 h",
            Self::Day => "24 h",
        }
    }

    /// The next one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Minutes => Self::Hour,
            Self::Hour => Self::Day,
            Self::Day => Self::Minutes,
        }
    }

    fn cell_ms(self) -> u64 {
        let span_ms = match self {
            Self::Minutes => 5 * 60 * 1000,
            Self::Hour => 60 * 60 * 1000,
            Self::Day => 24 * 60 * 60 * 1000,
        };
        span_ms / CELLS as u64
    }
}

/// One value of each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Deliveries waiting.
    pub pending: u64,
    /// Age of the oldest of them.
    pub oldest_s: u64,
}

impl Sample {
    fn worst(self, other: Self) -> Self {
        Self { pending: self.pending.max(other.pending), oldest_s: self.oldest_s.max(other.oldest_s) }
    }
}

#[derive(Clone, Debug, Default)]
struct Ring {
    /// Oldest first; `None` where nothing was known.
    cells: VecDeque<Option<Sample>>,
    /// Number of the newest cell since the start.
    newest: u64,
}

impl Ring {
    fn advance(&mut self, cell: u64) {
        if self.cells.is_empty() {
            self.newest = cell;
            self.cells.push_back(None);
        }
        let steps = cell.saturating_sub(self.newest).min(CELLS as u64);
        for _ in 0..steps {
            self.cells.push_back(None);
            if self.cells.len() > CELLS {
                self.cells.pop_front();
            }
        }
        self.newest = self.newest.max(cell);
    }

    fn record(&mut self, cell: u64, sample: Sample) {
        self.advance(cell);
        if let Some(last) = self.cells.back_mut() {
            *last = Some(last.map_or(sample, |known| known.worst(sample)));
        }
    }
}

/// The three rings.
#[derive(Clone, Debug, Default)]
pub struct History {
    rings: [Ring; 3],
}

impl History {
    /// Adds what was known at `at_ms`.
    pub fn record(&mut self, at_ms: u64, sample: Sample) {
        for (ring, span) in self.rings.iter_mut().zip(Span::ALL) {
            ring.record(at_ms / span.cell_ms(), sample);
        }
    }

    /// The last `columns` columns of a span, oldest first, the span scaled to them; `None` is a gap.
    pub fn columns(&self, span: Span, columns: usize) -> Vec<Option<Sample>> {
        let ring = &self.rings[Span::ALL.iter().position(|known| *known == span).unwrap_or(0)];
        let padded = CELLS - ring.cells.len().min(CELLS);
        (0..columns)
            .map(|column| {
                let from = column * CELLS / columns;
                let to = ((column + 1) * CELLS / columns).max(from + 1);
                (from..to)
                    .filter_map(|cell| ring.cells.get(cell.checked_sub(padded)?).copied().flatten())
                    .reduce(Sample::worst)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pending(columns: &[Option<Sample>]) -> Vec<Option<u64>> {
        columns.iter().map(|sample| sample.map(|known| known.pending)).collect()
    }

    #[test]
    fn the_newest_value_is_on_the_right_and_gaps_stay_gaps() {
        let mut history = History::default();
        history.record(0, Sample { pending: 5, oldest_s: 1 });
        history.record(150_000, Sample { pending: 9, oldest_s: 2 });
        let columns = pending(&history.columns(Span::Minutes, 4));
        assert_eq!(columns, [None, Some(5), None, Some(9)]);
    }

    #[test]
    fn a_peak_is_kept_in_the_long_spans() {
        let mut history = History::default();
        for second in 0..7200u64 {
            let peak = if second == 6000 { 1000 } else { 1 };
            history.record(second * 1000, Sample { pending: peak, oldest_s: 0 });
        }
        assert!(pending(&history.columns(Span::Hour, 20)).contains(&Some(1000)));
        assert!(pending(&history.columns(Span::Day, 20)).contains(&Some(1000)));
        assert!(!pending(&history.columns(Span::Minutes, 20)).contains(&Some(1000)));
    }

    proptest! {
        #[test]
        fn any_times_and_widths_are_fine(times in prop::collection::vec(any::<u64>(), 0..50), columns in 0usize..700) {
            let mut history = History::default();
            for at_ms in times {
                history.record(at_ms, Sample { pending: at_ms, oldest_s: at_ms });
            }
            for span in Span::ALL {
                prop_assert_eq!(history.columns(span, columns).len(), columns);
            }
        }
    }
}
