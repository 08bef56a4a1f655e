//! Depth and oldest age over five minutes, an hour and a day: what sparklines are drawn from.
//!
//! Three rings of the same length, each cell the worst value of its time, so that a short peak is still seen a day
//! later. Times without a value stay gaps: a line that goes on while nothing is known would lie. The appliance keeps
//! one and gives it as [`Trace`]s; the dashboard merges those into its own, so it shows the past from its first frame
//! and keeps what it saw when the appliance is started again.

use serde::{Deserialize, Serialize};

/// Cells of a ring: more than any sensible window is wide, and 5 min / 300 is one second.
const CELLS: usize = 300;
/// Added to every time, so that a past longer than a program has run has cell numbers too.
const BEFORE_MS: u64 = 2 * 24 * 60 * 60 * 1000;

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

    /// Its whole length in milliseconds.
    pub fn length_ms(self) -> u64 {
        match self {
            Self::Minutes => 5 * 60 * 1000,
            Self::Hour => 60 * 60 * 1000,
            Self::Day => 24 * 60 * 60 * 1000,
        }
    }

    fn cell_ms(self) -> u64 {
        self.length_ms() / CELLS as u64
    }
}

/// One value of each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Deliveries waiting.
    pub pending: u64,
    /// Age of the oldest of them, in seconds.
    pub oldest_s: u64,
}

impl Sample {
    fn worst(self, other: Self) -> Self {
        Self { pending: self.pending.max(other.pending), oldest_s: self.oldest_s.max(other.oldest_s) }
    }
}

/// One ring on its way to another program, whose clock is another: times are ages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Length of a cell in milliseconds; says which span it is.
    pub cell_ms: u64,
    /// How long ago the newest cell began, in milliseconds.
    pub newest_age_ms: u64,
    /// Deliveries waiting, oldest cell first; null where nothing is known. Leading gaps are left out.
    pub pending: Vec<Option<u64>>,
    /// Age of the oldest of them in seconds, cell by cell.
    pub oldest_s: Vec<Option<u64>>,
}

#[derive(Clone, Debug)]
struct Ring {
    /// The cell of number `n` lies at `n % CELLS`; `None` where nothing is known.
    cells: Vec<Option<Sample>>,
    /// Number of the newest cell.
    newest: u64,
}

impl Default for Ring {
    fn default() -> Self {
        Self { cells: vec![None; CELLS], newest: 0 }
    }
}

impl Ring {
    fn slot(number: u64) -> usize {
        (number % CELLS as u64) as usize
    }

    fn record(&mut self, number: u64, sample: Sample) {
        let steps = number.saturating_sub(self.newest).min(CELLS as u64);
        for passed in 0..steps {
            self.cells[Self::slot(number - passed)] = None;
        }
        self.newest = self.newest.max(number);
        if self.newest - number < CELLS as u64 {
            let cell = &mut self.cells[Self::slot(number)];
            *cell = Some(cell.map_or(sample, |known| known.worst(sample)));
        }
    }

    /// The cell `back` before the newest.
    fn back(&self, back: usize) -> Option<Sample> {
        let number = self.newest.checked_sub(back as u64)?;
        self.cells[Self::slot(number)]
    }

    /// Oldest first, from the first one that is known.
    fn known(&self) -> impl Iterator<Item = Option<Sample>> + '_ {
        (0..CELLS).rev().map(|back| self.back(back)).skip_while(Option::is_none)
    }
}

/// The three rings.
#[derive(Clone, Debug, Default)]
pub struct History {
    rings: [Ring; 3],
}

impl History {
    /// Adds what was known at `at_ms`, on any clock that does not step back.
    pub fn record(&mut self, at_ms: u64, sample: Sample) {
        for (ring, span) in self.rings.iter_mut().zip(Span::ALL) {
            ring.record(at_ms.saturating_add(BEFORE_MS) / span.cell_ms(), sample);
        }
    }

    /// The last `columns` columns of a span, oldest first, the span scaled to them; `None` is a gap.
    pub fn columns(&self, span: Span, columns: usize) -> Vec<Option<Sample>> {
        let ring = &self.rings[Span::ALL.iter().position(|known| *known == span).unwrap_or(0)];
        (0..columns)
            .map(|column| {
                let from = column * CELLS / columns;
                let to = ((column + 1) * CELLS / columns).max(from + 1);
                (from..to).filter_map(|cell| ring.back(CELLS - 1 - cell)).reduce(Sample::worst)
            })
            .collect()
    }

    /// All of it for another program, as of `now_ms`.
    pub fn traces(&self, now_ms: u64) -> Vec<Trace> {
        let trace = |(ring, span): (&Ring, Span)| Trace {
            cell_ms: span.cell_ms(),
            newest_age_ms: now_ms
                .saturating_add(BEFORE_MS)
                .saturating_sub(ring.newest.saturating_mul(span.cell_ms())),
            pending: ring.known().map(|cell| cell.map(|known| known.pending)).collect(),
            oldest_s: ring.known().map(|cell| cell.map(|known| known.oldest_s)).collect(),
        };
        self.rings.iter().zip(Span::ALL).map(trace).collect()
    }

    /// Adds what another program knows, received at `now_ms` of this one's clock. Spans of other lengths are ignored.
    pub fn merge(&mut self, now_ms: u64, traces: &[Trace]) {
        for (ring, span) in self.rings.iter_mut().zip(Span::ALL) {
            let Some(trace) = traces.iter().find(|trace| trace.cell_ms == span.cell_ms()) else { continue };
            let newest_ms = now_ms.saturating_add(BEFORE_MS).saturating_sub(trace.newest_age_ms);
            let newest = newest_ms / span.cell_ms();
            let cells = trace.pending.iter().zip(&trace.oldest_s).rev().take(CELLS);
            for (back, (pending, oldest_s)) in cells.enumerate() {
                if let (Some(pending), Some(oldest_s), Some(number)) =
                    (*pending, *oldest_s, newest.checked_sub(back as u64))
                {
                    ring.record(number, Sample { pending, oldest_s });
                }
            }
        }
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

    /// A program that has just started, with a clock at zero, shows the day that the other one has seen.
    #[test]
    fn the_past_is_handed_over_to_another_clock() {
        let mut appliance = History::default();
        let begin_ms = 77_000_000_123;
        for second in 0..20_000u64 {
            let sample = Sample { pending: second, oldest_s: second / 2 };
            appliance.record(begin_ms + second * 1000, sample);
        }
        let mut screen = History::default();
        screen.merge(0, &appliance.traces(begin_ms + 19_999_000));
        for span in Span::ALL {
            assert_eq!(screen.columns(span, 300), appliance.columns(span, 300), "{span:?}");
        }
        assert_eq!(pending(&screen.columns(Span::Minutes, 300))[0], Some(19_700));
    }

    /// The appliance started again knows nothing of before; the screen that saw it does, and keeps it.
    #[test]
    fn what_the_screen_saw_is_kept_when_the_appliance_forgot() {
        let mut screen = History::default();
        screen.record(60_000, Sample { pending: 7, oldest_s: 1 });
        let mut appliance = History::default();
        appliance.record(5_000, Sample { pending: 3, oldest_s: 1 });
        screen.merge(200_000, &appliance.traces(6_000));
        let columns = pending(&screen.columns(Span::Minutes, 300));
        assert_eq!(columns.iter().flatten().copied().collect::<Vec<_>>(), [7, 3]);
        screen.merge(200_000, &[Trace { cell_ms: 0, ..Trace::default() }]);
    }

    proptest! {
        #[test]
        fn any_times_and_widths_are_fine(times in prop::collection::vec(any::<u64>(), 0..50), columns in 0usize..700) {
            let mut history = History::default();
            for at_ms in &times {
                history.record(*at_ms, Sample { pending: *at_ms, oldest_s: *at_ms });
            }
            let mut other = History::default();
            other.merge(times.first().copied().unwrap_or(0), &history.traces(times.last().copied().unwrap_or(0)));
            for span in Span::ALL {
                prop_assert_eq!(history.columns(span, columns).len(), columns);
                prop_assert_eq!(other.columns(span, columns).len(), columns);
            }
        }
    }
}
