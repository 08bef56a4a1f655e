//! Everything the screen knows. Views read it, only [`super::update::update`] changes it.
//!
//! **Invariants.** Nothing here reads a clock: `now_ms` is told by each message. Lists are bounded (a page of the
//! appliance, 500 lines of log), so the dashboard needs the same memory over 100,000 dead letters as over ten.

use std::collections::BTreeSet;

use crate::core::delivery::FailureClass;
use crate::core::history::{History, Span};
use crate::wire::{
    AccessView, AttemptsView, DeadLetterView, EventStory, LogView, MapView, OutboxEntry, RecentAttempt,
    StatusView, Way,
};

use super::filter::Filter;
use super::keymap::Keymap;
use super::message::{DeadQuery, Kind, Request};
use super::theme::{Glyphs, Theme};
use super::viewport::Viewport;

/// Rows asked for in one page of dead letters or pending events.
pub const PAGE_ROWS: u64 = 500;
/// Widest view of the map, in degrees, for which finer cells are asked: half a degree is a column there.
const MAP_DETAIL_SPAN: f64 = 40.0;
/// Recent attempts kept for the drawing of delays: what the appliance keeps too.
pub const RECENT_MAX: usize = 500;

/// The six panes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pane {
    /// State of the gateway at a glance.
    Overview,
    /// What attempts come to.
    Attempts,
    /// What can never be delivered without a person.
    DeadLetters,
    /// Where it is.
    Map,
    /// What waits, and one event's story.
    Events,
    /// Recent notable lines.
    Log,
}

impl Pane {
    /// In the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Overview, Self::Attempts, Self::DeadLetters, Self::Map, Self::Events, Self::Log];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Attempts => "Attempts",
            Self::DeadLetters => "Dead letters",
            Self::Map => "Map",
            Self::Events => "Events",
            Self::Log => "Log",
        }
    }

    /// Its title where there is little room.
    pub fn short_title(self) -> &'static str {
        match self {
            Self::Overview => "Over",
            Self::Attempts => "Att",
            Self::DeadLetters => "Dead",
            other => other.title(),
        }
    }

    /// The pane `steps` further, round the end.
    #[must_use]
    pub fn step(self, steps: isize) -> Self {
        let at = Self::ALL.iter().position(|pane| *pane == self).unwrap_or(0) as isize;
        Self::ALL[(at + steps).rem_euclid(Self::ALL.len() as isize) as usize]
    }
}

/// What stays the same while the dashboard runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether orders may be given.
    pub allow_actions: bool,
    /// Time between two questions for the status.
    pub refresh_ms: u64,
    /// Styles.
    pub theme: Theme,
    /// Character set.
    pub glyphs: Glyphs,
    /// Keys.
    pub keymap: Keymap,
    /// Whether the data is made up.
    pub demo: bool,
}

/// The connection to the appliance.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Failures in a row.
    pub failures: u32,
    /// The last failure in words.
    pub fault: Option<String>,
    /// Whether that was the appliance's own no, to a token for example, and not silence.
    pub refused: bool,
    /// When the next question may be asked.
    pub retry_at_ms: u64,
    /// When the appliance last answered.
    pub answered_at_ms: Option<u64>,
}

/// Columns that dead letters can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// Time of death.
    Age,
    /// Failure class.
    Class,
    /// Endpoint.
    Endpoint,
    /// Place, from west to east.
    Place,
    /// Reason in words.
    Reason,
}

impl SortBy {
    /// In the order in which a key goes through them.
    pub const ALL: [Self; 5] = [Self::Age, Self::Class, Self::Endpoint, Self::Place, Self::Reason];
}

/// Something opened from a list, with its own scroll position.
#[derive(Clone, Debug)]
pub struct Opened<T> {
    /// Of what.
    pub id: String,
    /// Once it has come.
    pub content: Option<Box<T>>,
    /// Why it did not come.
    pub fault: Option<String>,
    /// Lines scrolled down.
    pub scroll: usize,
}

impl<T> Opened<T> {
    /// Just asked for.
    pub fn new(id: String) -> Self {
        Self { id, content: None, fault: None, scroll: 0 }
    }
}

/// One page of a longer list at the appliance.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Its rows, in the appliance's order.
    pub rows: Vec<T>,
    /// Cursors of the pages before this one and, last, of this one.
    pub trail: Vec<Option<String>>,
    /// Cursor of the page after it.
    pub next: Option<String>,
    /// Rows on the pages before.
    pub before: u64,
    /// Rows on each of them.
    pub sizes: Vec<u64>,
    /// The row under the cursor, counted in the order shown.
    pub at: usize,
    /// Whether it has come at all.
    pub loaded: bool,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            trail: vec![None],
            next: None,
            before: 0,
            sizes: Vec::new(),
            at: 0,
            loaded: false,
        }
    }
}

impl<T> Page<T> {
    /// The cursor that this page was asked with.
    pub fn cursor(&self) -> Option<String> {
        self.trail.last().cloned().flatten()
    }
}

/// State of the dead letters pane.
#[derive(Clone, Debug)]
pub struct DeadPane {
    /// Only this class.
    pub class: Option<FailureClass>,
    /// Only this endpoint.
    pub endpoint: Option<String>,
    /// The page.
    pub page: Page<DeadLetterView>,
    /// Dead letters in all, unfiltered.
    pub total: u64,
    /// Order of the page.
    pub sort: SortBy,
    /// Turned round.
    pub reverse: bool,
    /// Marked rows, by id; they stay marked on other pages.
    pub marked: BTreeSet<String>,
    /// Orders mean everything that class, endpoint and area let through.
    pub all: bool,
    /// The opened one.
    pub open: Option<Opened<DeadLetterView>>,
}

impl Default for DeadPane {
    fn default() -> Self {
        Self {
            class: None,
            endpoint: None,
            page: Page::default(),
            total: 0,
            sort: SortBy::Age,
            reverse: true,
            marked: BTreeSet::new(),
            all: false,
            open: None,
        }
    }
}

/// State of the events pane.
#[derive(Clone, Debug, Default)]
pub struct EventsPane {
    /// Only this endpoint.
    pub endpoint: Option<String>,
    /// The page.
    pub page: Page<OutboxEntry>,
    /// The opened one.
    pub open: Option<Opened<EventStory>>,
}

/// What the map shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// Pending and dead; where both are, the dead.
    #[default]
    Both,
    /// Only what waits.
    Pending,
    /// Only dead letters.
    Dead,
}

/// State of the map pane.
#[derive(Clone, Debug, Default)]
pub struct MapPane {
    /// What is known.
    pub data: MapView,
    /// Which part is shown.
    pub view: Viewport,
    /// What it shows.
    pub layer: Layer,
    /// The part of the world that the data is of; all of it if none.
    pub part: Option<[f64; 4]>,
    /// Whether the view was fitted to the first data.
    pub fitted: bool,
    /// Corners of the box being dragged: column and row.
    pub drag: Option<((u16, u16), (u16, u16))>,
}

/// A question before an order is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirm {
    /// The order.
    pub request: Request,
    /// What it will do, with the count.
    pub text: String,
    /// What must be typed; `y` is enough if none.
    pub needs: Option<String>,
    /// What was typed.
    pub typed: String,
}

/// A passing line in the footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The line.
    pub text: String,
    /// Whether it is about a failure.
    pub bad: bool,
    /// When it goes.
    pub until_ms: u64,
}

/// The whole.
#[derive(Clone, Debug)]
pub struct Model {
    /// Set at start.
    pub settings: Settings,
    /// Milliseconds since start, as of the last message.
    pub now_ms: u64,
    /// Size of the terminal.
    pub size: (u16, u16),
    /// The pane shown.
    pub pane: Pane,
    /// The connection.
    pub link: Link,
    /// Kinds of request that are out.
    pub asked: BTreeSet<Kind>,
    /// When each kind was last answered; missing means: ask as soon as it is looked at.
    pub fresh: std::collections::BTreeMap<Kind, u64>,
    /// What the appliance lets this dashboard do, once it has said so.
    pub access: Option<AccessView>,
    /// The status shown.
    pub status: Option<Box<StatusView>>,
    /// When it came.
    pub status_at_ms: u64,
    /// When the screen was frozen.
    pub frozen_at_ms: Option<u64>,
    /// Sparkline data.
    pub history: History,
    /// Their span.
    pub span: Span,
    /// Selected endpoint of the overview, as an index.
    pub endpoint_at: usize,
    /// Endpoint of the attempts pane; all if none.
    pub attempts_endpoint: Option<String>,
    /// Recent attempts, oldest first.
    pub recent: Vec<RecentAttempt>,
    /// Dead letters.
    pub dead: DeadPane,
    /// Map.
    pub map: MapPane,
    /// Area that dead letters and events are restricted to.
    pub area: Option<[f64; 4]>,
    /// Pending events.
    pub events: EventsPane,
    /// Log.
    pub log: LogView,
    /// Lines scrolled up from the newest.
    pub log_back: usize,
    /// The filter.
    pub filter: Filter,
    /// Whether it is being typed.
    pub typing: bool,
    /// Whether the help is shown, and how far it is scrolled.
    pub help: Option<usize>,
    /// The open question.
    pub confirm: Option<Confirm>,
    /// The passing line.
    pub notice: Option<Notice>,
    /// Whether anything that can be seen has changed since the last drawing.
    pub changed: bool,
    /// The age last shown, to redraw when it moves on.
    pub shown_age_s: Option<u64>,
}

impl Model {
    /// Before anything is known.
    pub fn new(settings: Settings, size: (u16, u16)) -> Self {
        Self {
            settings,
            now_ms: 0,
            size,
            pane: Pane::Overview,
            link: Link::default(),
            asked: BTreeSet::new(),
            fresh: std::collections::BTreeMap::new(),
            access: None,
            status: None,
            status_at_ms: 0,
            frozen_at_ms: None,
            history: History::default(),
            span: Span::Minutes,
            endpoint_at: 0,
            attempts_endpoint: None,
            recent: Vec::new(),
            dead: DeadPane::default(),
            map: MapPane::default(),
            area: None,
            events: EventsPane::default(),
            log: LogView::default(),
            log_back: 0,
            filter: Filter::default(),
            typing: false,
            help: None,
            confirm: None,
            notice: None,
            changed: true,
            shown_age_s: None,
        }
    }

    /// Seconds since the status shown was true, if a person must be told: the appliance does not answer, or the
    /// screen is frozen.
    pub fn age_s(&self) -> Option<u64> {
        let shown = self.status.as_ref().map(|_| self.status_at_ms);
        let since = self.frozen_at_ms.or(shown).or(Some(0))?;
        // Two missed answers, and never less than three seconds: a slow link is not a lost one.
        let late_ms = (3 * self.settings.refresh_ms).max(3_000);
        let age_ms = self.now_ms.saturating_sub(since);
        let tell = self.link.failures > 0 || self.frozen_at_ms.is_some() || age_ms >= late_ms;
        tell.then_some(age_ms / 1000)
    }

    /// Whether orders may be given: asked for at the start and not forbidden, or allowed by a token. The socket alone does
    /// not allow them: whoever watches there has not asked for anything.
    pub fn may_act(&self) -> bool {
        match self.access {
            Some(access) => access.changes && (self.settings.allow_actions || access.way == Way::Token),
            None => self.settings.allow_actions,
        }
    }

    /// The part of the world that the map should know in detail: what is in view, unless that is most of it.
    pub fn map_part(&self) -> Option<[f64; 4]> {
        let view = &self.map.view;
        (view.span <= MAP_DETAIL_SPAN).then(|| view.area(super::view::map_cells(self.size)))
    }

    /// Wall clock of the appliance, Unix milliseconds, as of the status shown.
    pub fn wall_ms(&self) -> Option<i64> {
        self.status.as_ref().map(|status| status.at_ms).filter(|at_ms| *at_ms > 0)
    }

    /// Names of the endpoints, in the appliance's order.
    pub fn endpoints(&self) -> Vec<String> {
        self.status.iter().flat_map(|status| status.endpoints.iter().map(|one| one.name.clone())).collect()
    }

    /// The question that the dead letters pane shows the answer to.
    pub fn dead_query(&self) -> DeadQuery {
        DeadQuery {
            class: self.dead.class,
            endpoint: self.dead.endpoint.clone(),
            bbox: self.area,
            cursor: self.dead.page.cursor(),
        }
    }

    /// Dead letters of the page that pass the filter, in the order shown.
    pub fn dead_rows(&self) -> Vec<&DeadLetterView> {
        let mut rows: Vec<&DeadLetterView> = self
            .dead
            .page
            .rows
            .iter()
            .filter(|row| {
                self.filter.passes(&[
                    &row.event_id,
                    &row.device,
                    &row.event_type,
                    &row.endpoint,
                    class_word(row.failure_class),
                    &row.error_message,
                ])
            })
            .collect();
        let west = |row: &DeadLetterView| row.bbox.map_or(f64::INFINITY, |bbox| bbox[0]);
        rows.sort_by(|a, b| match self.dead.sort {
            SortBy::Age => a.dead_lettered_at.cmp(&b.dead_lettered_at),
            SortBy::Class => a.failure_class.cmp(&b.failure_class),
            SortBy::Endpoint => a.endpoint.cmp(&b.endpoint),
            SortBy::Place => west(a).total_cmp(&west(b)),
            SortBy::Reason => a.error_message.cmp(&b.error_message),
        });
        if self.dead.reverse {
            rows.reverse();
        }
        rows
    }

    /// Pending events of the page that pass filter and area.
    pub fn event_rows(&self) -> Vec<&OutboxEntry> {
        self.events
            .page
            .rows
            .iter()
            .filter(|row| {
                let event = &row.event;
                let inside = self
                    .area
                    .is_none_or(|area| event.bbox.is_some_and(|bbox| super::viewport::meets(&area, &bbox)));
                inside
                    && self.filter.passes(&[
                        &event.id,
                        &event.device,
                        &event.event_type,
                        &row.delivery.endpoint,
                        &row.delivery.state,
                    ])
            })
            .collect()
    }

    /// Lines of the log that pass the filter, oldest first.
    pub fn log_rows(&self) -> Vec<&crate::wire::LogLine> {
        self.log.lines.iter().filter(|line| self.filter.passes(&[&line.level, &line.text])).collect()
    }

    /// Whether the pane shows one opened thing rather than its list.
    pub fn has_opened(&self) -> bool {
        match self.pane {
            Pane::DeadLetters => self.dead.open.is_some(),
            Pane::Events => self.events.open.is_some(),
            Pane::Overview | Pane::Attempts | Pane::Map | Pane::Log => false,
        }
    }

    /// Takes over recent attempts.
    pub fn set_recent(&mut self, view: AttemptsView) {
        self.recent = view.recent;
        let surplus = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..surplus);
    }

    /// Rows of a list that fit on the screen, for paging.
    pub fn list_height(&self) -> usize {
        // Header, tabs, footer, the pane's own headings: six lines in every list pane.
        usize::from(self.size.1.saturating_sub(6)).max(1)
    }
}

/// A class as the wire names it.
pub fn class_word(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Transient => "transient",
        FailureClass::InvalidGeometry => "invalid_geometry",
        FailureClass::SchemaViolation => "schema_violation",
        FailureClass::CrsMismatch => "crs_mismatch",
        FailureClass::Rejected => "rejected",
        FailureClass::Expired => "expired",
        FailureClass::Poison => "poison",
        FailureClass::Unrouted => "unrouted",
        FailureClass::Unknown => "unknown",
    }
}

/// All classes, in the order in which a key goes through them.
pub const CLASSES: [FailureClass; 9] = [
    FailureClass::Transient,
    FailureClass::InvalidGeometry,
    FailureClass::SchemaViolation,
    FailureClass::CrsMismatch,
    FailureClass::Rejected,
    FailureClass::Expired,
    FailureClass::Poison,
    FailureClass::Unrouted,
    FailureClass::Unknown,
];
