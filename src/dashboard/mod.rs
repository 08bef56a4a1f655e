//! `waypost dash`: the state of a gateway in five seconds, over SSH, on any terminal.
//!
//! A client of the admin API like the command line, so it attaches to a running appliance and can never hurt it.
//! Built as model, update, view: [`model`] is everything the screen knows, [`update`] the only function that changes
//! it (pure, so its tests need no terminal), [`view`] turns it into cells; [`feed`] is what can be asked,
//! `screen` the loop between them, `terminal` what takes the terminal over and gives it back.
//!
//! **Invariants.** Nothing is changed at the appliance without permission (`--allow-actions`, or an admin's token) and
//! a confirmed question that states the count. No control character from data reaches the terminal. What is shown says its age once it is not the
//! present. The process ends within two seconds of a signal or of losing its terminal.
//!
//! Not here: history from before the appliance was started (it keeps none on disk), and changes of configuration.

#![allow(clippy::cast_possible_wrap, reason = "rows, columns and seconds are far below 2^31")]
#![allow(clippy::format_push_string, reason = "sentences are put together once a frame; plain reading wins")]

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

pub mod demo;
pub mod feed;
mod filter;
pub mod headline;
mod input;
pub mod keymap;
pub mod live;
pub mod message;
pub mod model;
pub mod plain;
mod screen;
mod sixteen;
pub mod terminal;
pub mod theme;
pub mod update;
pub mod view;
mod viewport;
mod words;

use crate::client::{AdminClient, Target};

use demo::Demo;
use feed::Source;
use live::Live;
use message::{Command, Message, Request};
use model::{Model, Pane, Settings};
use screen::Ended;

/// Settings of the dashboard that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DashError {
    /// Key file.
    #[error("key file: {0}")]
    Keys(String),
    /// Theme file.
    #[error("theme file: {0}")]
    Theme(String),
    /// No screen to draw on.
    #[error("standard output is no terminal; use `waypost dash --once` or `waypost status --watch`")]
    NoTerminal,
    /// A terminal without cursor addressing.
    #[error("TERM={0} cannot place text; use `waypost dash --once` or `waypost status --watch`")]
    DumbTerminal(String),
}

/// A pane to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "named as the panes")]
pub enum PaneName {
    Overview,
    Attempts,
    DeadLetters,
    Map,
    Events,
    Log,
}

impl From<PaneName> for Pane {
    fn from(name: PaneName) -> Self {
        match name {
            PaneName::Overview => Self::Overview,
            PaneName::Attempts => Self::Attempts,
            PaneName::DeadLetters => Self::DeadLetters,
            PaneName::Map => Self::Map,
            PaneName::Events => Self::Events,
            PaneName::Log => Self::Log,
        }
    }
}

/// Options of `waypost dash`.
#[derive(Clone, Debug, clap::Args)]
pub struct DashArgs {
    /// Print one frame as text and exit
    #[arg(long)]
    pub once: bool,
    /// Print that frame as an SVG image
    #[arg(long, requires = "once")]
    pub svg: bool,
    /// Columns of that frame [default: those of the terminal, else 80]
    #[arg(long, requires = "once", value_parser = clap::value_parser!(u16).range(1..=500))]
    pub width: Option<u16>,
    /// Lines of that frame [default: those of the terminal, else 24]
    #[arg(long, requires = "once", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub height: Option<u16>,
    /// Pane to begin with
    #[arg(long, value_enum, default_value = "overview")]
    pub pane: PaneName,
    /// Show made-up data, for documentation and trying keys
    #[arg(long)]
    pub demo: bool,
    /// Draw with ASCII only [default: by TERM and locale]
    #[arg(long)]
    pub ascii: bool,
    /// Allow orders: redrive, discard, repair, pause, resume, probe
    #[arg(long)]
    pub allow_actions: bool,
    /// Use the mouse: tabs, wheel, a box on the map
    #[arg(long)]
    pub mouse: bool,
    /// TOML file of keys: `action = ["key", "ctrl-key"]`, action names as in the help
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// TOML file of colours: `role = "bold red"`
    #[arg(long, value_name = "FILE")]
    pub theme: Option<PathBuf>,
    /// Seconds between two questions for the state
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = refresh)]
    pub refresh: f64,
}

fn refresh(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.2..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0.2 to 3600 seconds".to_owned()) }
}

impl Default for DashArgs {
    fn default() -> Self {
        Self {
            once: false,
            svg: false,
            width: None,
            height: None,
            pane: PaneName::Overview,
            demo: false,
            ascii: false,
            allow_actions: false,
            mouse: false,
            keys: None,
            theme: None,
            refresh: 1.0,
        }
    }
}

/// Whether the terminal is to be spared everything but ASCII: the Linux console has no braille in its font, and a
/// locale that is set and is not UTF-8 says that the terminal is not either. No locale at all says nothing.
fn wants_ascii(term: &str, locale: Option<&str>) -> bool {
    let utf8 = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.contains("utf-8") || name.contains("utf8")
    };
    term == "linux" || term == "dumb" || locale.is_some_and(|name| !utf8(name))
}

fn locale() -> Option<String> {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty())
}

fn settings(args: &DashArgs) -> anyhow::Result<Settings> {
    let read =
        |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let keymap = match &args.keys {
        Some(path) => keymap::Keymap::from_toml(&read(path)?)?,
        None => keymap::Keymap::default(),
    };
    // https://no-color.org: set and not empty.
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let theme = match &args.theme {
        Some(path) if !no_colour => theme::Theme::from_toml(&read(path)?)?,
        _ if no_colour => theme::Theme::plain(),
        _ => theme::Theme::colour(),
    };
    let term = std::env::var("TERM").unwrap_or_default();
    let ascii = args.ascii || wants_ascii(&term, locale().as_deref());
    Ok(Settings {
        allow_actions: args.allow_actions,
        refresh_ms: (args.refresh * 1000.0) as u64,
        theme,
        glyphs: if ascii { theme::ASCII } else { theme::UNICODE },
        keymap,
        demo: args.demo,
    })
}

/// `waypost dash`: attaches to the appliance at `target` (or to made-up data).
pub async fn run(args: &DashArgs, target: Target) -> anyhow::Result<ExitCode> {
    if args.demo {
        return run_on(args, if args.once { Demo::still() } else { Demo::new() }).await;
    }
    run_with(args, AdminClient::new(target)?).await
}

/// The dashboard over a client that is there already, as `waypost demo` has one.
pub async fn run_with(args: &DashArgs, client: AdminClient) -> anyhow::Result<ExitCode> {
    run_on(args, Live::new(client)).await
}

/// Runs the dashboard, or prints one frame, on whatever answers.
pub async fn run_on<S: Source>(args: &DashArgs, source: S) -> anyhow::Result<ExitCode> {
    let settings = settings(args)?;
    if args.once {
        return once_on(args, settings, source).await;
    }
    if !io::stdout().is_terminal() {
        return Err(DashError::NoTerminal.into());
    }
    let term = std::env::var("TERM").unwrap_or_default();
    if term == "dumb" {
        return Err(DashError::DumbTerminal(term).into());
    }
    let mut model = Model::new(settings, (0, 0));
    model.pane = args.pane.into();
    match screen::run(model, source, args.mouse).await.context("terminal")? {
        Ended::Quit => Ok(ExitCode::SUCCESS),
        Ended::Signal(name) => {
            let _ = writeln!(io::stderr(), "waypost dash: ended by {name}");
            Ok(ExitCode::FAILURE)
        }
        Ended::Lost => {
            let _ = writeln!(io::stderr(), "waypost dash: the terminal is gone");
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn once_on<S: Source>(args: &DashArgs, settings: Settings, source: S) -> anyhow::Result<ExitCode> {
    let terminal = crossterm::terminal::size().ok().filter(|_| io::stdout().is_terminal());
    let (width, height) = terminal.unwrap_or((80, 24));
    let mut model = Model::new(settings, (args.width.unwrap_or(width), args.height.unwrap_or(height)));
    model.pane = args.pane.into();
    settle(&mut model, &source).await;
    let buf = plain::render(&model);
    let frame = if args.svg { plain::svg(&buf) } else { plain::text(&buf) };
    io::stdout().write_all(frame.as_bytes()).context("write the frame")?;
    Ok(if model.status.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks until nothing more is wanted, or the first failure.
async fn settle<S: Source>(model: &mut Model, source: &S) {
    let now_ms = model.now_ms;
    let mut commands = update::update(model, now_ms, Message::Tick);
    while let Some(command) = commands.pop() {
        let Command::Fetch(request) = command else { continue };
        let status = request == Request::Status;
        let reply = feed::ask(source.clone(), request).await;
        let failed = reply.answer.is_err();
        commands.extend(update::update(model, now_ms, Message::Reply(Box::new(reply))));
        if failed && status {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_chosen_where_nothing_else_can_be_shown() {
        assert!(wants_ascii("linux", Some("en_US.UTF-8")));
        assert!(wants_ascii("xterm", Some("C")));
        assert!(!wants_ascii("xterm", Some("de_DE.utf8")));
        assert!(!wants_ascii("xterm-256color", None));
    }
}
