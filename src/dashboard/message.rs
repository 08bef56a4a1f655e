//! What can happen to the dashboard, and what it can ask for: two closed lists.
//!
//! [`Message`] is everything [`super::update::update`] may be told; [`Command`] everything it may want done. A
//! [`Request`] travels to the feed and comes back inside its [`Reply`], so an answer to a question that is no longer
//! asked can be told from a current one.

use crossterm::event::{KeyEvent, MouseEvent};

use crate::core::delivery::FailureClass;
use crate::wire::{
    AccessView, AttemptsView, DeadLetterActionView, DeadLetterCount, DeadLetterPage, DeadLetterSelection,
    DeadLetterView, EndpointActionView, EventStory, HistoryView, LogView, MapView, OutboxPage, StatusView,
};

/// Something happened.
#[derive(Clone, Debug)]
pub enum Message {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something (only with `--mouse`).
    Mouse(MouseEvent),
    /// The terminal has a new size.
    Resize(u16, u16),
    /// Time passed.
    Tick,
    /// The feed has an answer, or a failure.
    Reply(Box<Reply>),
}

/// Something is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Ask the appliance.
    Fetch(Request),
    /// Draw everything anew, whatever the terminal is thought to show.
    Repaint,
    /// Leave.
    Quit,
}

/// Which dead letters a page is of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadQuery {
    /// Only this class.
    pub class: Option<FailureClass>,
    /// Only this endpoint.
    pub endpoint: Option<String>,
    /// Only those whose extent meets `[west, south, east, north]`.
    pub bbox: Option<[f64; 4]>,
    /// From here on.
    pub cursor: Option<String>,
}

/// What a person may do to dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadVerb {
    /// Send again.
    Redrive,
    /// Drop for good.
    Discard,
    /// Mend the geometry, as a new event.
    Repair,
}

/// What a person may do to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointVerb {
    /// No attempts.
    Pause,
    /// Attempts again.
    Resume,
    /// One probe now.
    Probe,
}

/// A question or an order to the appliance.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `GET /v1/status`.
    Status,
    /// `GET /v1/access`.
    Access,
    /// `GET /v1/history`.
    History,
    /// `GET /v1/attempts`.
    Attempts,
    /// `GET /v1/log`.
    Log,
    /// `GET /v1/map`: of a part of the world, or of all of it.
    Map(Option<[f64; 4]>),
    /// One page of dead letters.
    DeadLetters(DeadQuery),
    /// One dead letter with its bytes.
    DeadLetter(String),
    /// One page of pending events: endpoint, cursor.
    Outbox {
        /// Whose.
        endpoint: Option<String>,
        /// Only those whose extent meets it.
        area: Option<[f64; 4]>,
        /// From here on.
        cursor: Option<String>,
    },
    /// One event's story.
    Story(String),
    /// How many dead letters an order would touch (a dry run), asked before its confirmation.
    Count(DeadVerb, Box<DeadLetterSelection>),
    /// How many dead letters an export would write, asked before its confirmation.
    CountExport(Box<DeadLetterSelection>),
    /// Do it.
    Dead(DeadVerb, Box<DeadLetterSelection>),
    /// Write the selection to a file here.
    Export(Box<DeadLetterSelection>),
    /// Pause, resume or probe an endpoint.
    Endpoint(EndpointVerb, String),
}

/// The kinds of request of which one at a time is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as the requests")]
pub enum Kind {
    Status,
    Access,
    History,
    Attempts,
    Log,
    Map,
    DeadLetters,
    DeadLetter,
    Outbox,
    Story,
    Order,
}

impl Request {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Status => Kind::Status,
            Self::Access => Kind::Access,
            Self::History => Kind::History,
            Self::Attempts => Kind::Attempts,
            Self::Log => Kind::Log,
            Self::Map(_) => Kind::Map,
            Self::DeadLetters(_) => Kind::DeadLetters,
            Self::DeadLetter(_) => Kind::DeadLetter,
            Self::Outbox { .. } => Kind::Outbox,
            Self::Story(_) => Kind::Story,
            Self::Count(..)
            | Self::CountExport(_)
            | Self::Dead(..)
            | Self::Export(_)
            | Self::Endpoint(..) => Kind::Order,
        }
    }
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as the requests")]
pub enum Answer {
    Status(Box<StatusView>),
    Access(AccessView),
    History(HistoryView),
    Attempts(AttemptsView),
    Log(LogView),
    Map(MapView),
    DeadLetters(DeadLetterPage),
    DeadLetter(Box<DeadLetterView>),
    Outbox(OutboxPage),
    Story(Box<EventStory>),
    Dead(DeadLetterActionView),
    Counted(DeadLetterCount),
    Exported { file: String, count: u64 },
    Endpoint(EndpointActionView),
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The appliance did not answer: what is shown grows old.
    #[error("{0}")]
    Unreachable(String),
    /// The appliance answered no.
    #[error("{0}")]
    Refused(String),
}

/// An answer with its question.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What was asked.
    pub request: Request,
    /// What came of it.
    pub answer: Result<Answer, FetchError>,
}
