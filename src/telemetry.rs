//! Logs: tracing to stderr as text or JSON, and the last notable lines kept for `/v1/log`.
//!
//! One summary line per ten seconds takes the place of a line per event; single attempts are at debug. The `log`
//! bridge is on, because sled reports background failures only there. Control characters in fields come out escaped.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::clock::Clock;
use crate::wire::{LogLine, LogView};

/// Lines kept for the dashboard.
const LINES_MAX: usize = 500;
/// Characters kept of one line.
const LINE_CHARS_MAX: usize = 400;

/// Form of the log on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The last notable lines.
#[derive(Clone, Default)]
pub struct RecentLog(Arc<Mutex<VecDeque<LogLine>>>);

impl RecentLog {
    /// Oldest first.
    pub fn view(&self) -> LogView {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        LogView { lines: lines.iter().cloned().collect() }
    }

    fn push(&self, line: LogLine) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Installs the global subscriber. `stderr` is the form of the log there; `None` where a screen is drawn and a line would
/// be written across it, then only `/v1/log` has them. `filter` is a tracing filter such as `info` or `waypost=debug`; a
/// filter that does not parse falls back to `info`. Called once per process; a second call changes nothing.
pub fn init(stderr: Option<LogFormat>, filter: &str, clock: Clock) -> RecentLog {
    let recent = RecentLog::default();
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let keep = Keep { recent: recent.clone(), clock };
    let text = (stderr == Some(LogFormat::Text)).then(|| {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()) && no_color_unset())
            .with_target(false)
    });
    let json = (stderr == Some(LogFormat::Json))
        .then(|| tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr));
    let done = tracing_subscriber::registry().with(filter).with(keep).with(text).with(json).try_init();
    if done.is_err() {
        tracing::debug!("logging was set up already");
    }
    recent
}

fn no_color_unset() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A layer that keeps info and above.
struct Keep {
    recent: RecentLog,
    clock: Clock,
}

impl<S: Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level > Level::INFO {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let text = text.message.unwrap_or_default() + &text.fields;
        self.recent.push(LogLine {
            at_ms: self.clock.now().wall.0,
            level: level.as_str().to_ascii_lowercase(),
            text: text.chars().take(LINE_CHARS_MAX).collect(),
        });
    }
}

#[derive(Default)]
struct Text {
    message: Option<String>,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = Some(format!("{value:?}"));
        } else if !field.name().starts_with("log.") {
            let _ = write!(self.fields, " {}={value:?}", field.name());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = Some(value.escape_debug().to_string());
        } else {
            let _ = write!(self.fields, " {}={}", field.name(), value.escape_debug());
        }
    }
}
