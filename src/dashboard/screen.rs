//! The loop: wait for a key, an answer or time; update; draw if something changed, at most ten times a second.

use std::io;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::feed::{Source, ask};
use super::input::{self, Input};
use super::message::{Command, Message, Reply};
use super::model::Model;
use super::sixteen::Sixteen;
use super::terminal::{Guard, Stop, Watch, inside};
use super::update::update;
use super::view;

/// Shortest time between two frames: ten a second is as fast as a person reads.
const FRAME: Duration = Duration::from_millis(100);
/// Between two looks at the time, for ages that are shown and questions that are due.
const TICK: Duration = Duration::from_millis(250);
/// One frame of 200 columns by 50 lines with colours, written in one piece.
const OUT_BYTES: usize = 64 * 1024;

/// How the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A person left.
    Quit,
    /// A signal asked for it.
    Signal(&'static str),
    /// The terminal is gone.
    Lost,
}

type Screen = Terminal<CrosstermBackend<io::BufWriter<Sixteen<io::Stdout>>>>;

/// What happened next.
enum Next {
    Message(Message),
    End(Ended),
    /// Only time for the next frame.
    Draw,
}

/// Shows the model until a person leaves, a signal comes or the terminal is gone. The terminal is as before when
/// this returns, and when it panics.
pub async fn run<S: Source>(mut model: Model, source: S, mouse: bool) -> io::Result<Ended> {
    let (stop_sender, mut stop) = mpsc::channel(1);
    let _watch = Watch::start(stop_sender)?;
    let _guard = Guard::enter(mouse)?;
    let mut screen = Terminal::new(CrosstermBackend::new(io::BufWriter::with_capacity(
        OUT_BYTES,
        Sixteen::new(io::stdout()),
    )))?;
    let size = screen.size()?;
    model.size = (size.width, size.height);
    let mut input = input::start()?;
    let mut sizes = signal(SignalKind::window_change())?;
    let mut answers: JoinSet<Reply> = JoinSet::new();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (started, began_ms) = (Instant::now(), model.now_ms);
    let mut frame_at = started;
    loop {
        if model.changed && Instant::now() >= frame_at {
            draw(&mut screen, &mut model)?;
            frame_at = Instant::now() + FRAME;
        }
        let next = tokio::select! {
            biased;
            reason = stop.recv() => match reason {
                Some(Stop::Signal(name)) => Next::End(Ended::Signal(name)),
                Some(Stop::Hangup) | None => Next::End(Ended::Lost),
            },
            event = input.recv() => match event {
                Some(Input::Key(key)) => Next::Message(Message::Key(key)),
                Some(Input::Mouse(mouse)) => Next::Message(Message::Mouse(mouse)),
                Some(Input::End) | None => Next::End(Ended::Lost),
            },
            _ = sizes.recv() => {
                let size = screen.size()?;
                Next::Message(Message::Resize(size.width, size.height))
            }
            Some(answer) = answers.join_next(), if !answers.is_empty() => match answer {
                Ok(reply) => Next::Message(Message::Reply(Box::new(reply))),
                // A question that broke is asked again like one that timed out; see `panic` in the log on exit.
                Err(_) => Next::Message(Message::Tick),
            },
            _ = tick.tick() => Next::Message(Message::Tick),
            () = tokio::time::sleep_until(frame_at), if model.changed => Next::Draw,
        };
        let message = match next {
            Next::Message(message) => message,
            Next::End(ended) => return Ok(ended),
            Next::Draw => continue,
        };
        let now_ms = began_ms.saturating_add(started.elapsed().as_millis() as u64);
        for command in inside(|| update(&mut model, now_ms, message)) {
            match command {
                Command::Quit => return Ok(Ended::Quit),
                Command::Repaint => screen.clear()?,
                Command::Fetch(request) => {
                    answers.spawn(ask(source.clone(), request));
                }
            }
        }
    }
}

fn draw(screen: &mut Screen, model: &mut Model) -> io::Result<()> {
    inside(|| {
        screen.draw(|frame| {
            let area = frame.area();
            view::draw(model, area, frame.buffer_mut());
        })
    })?;
    model.changed = false;
    Ok(())
}
