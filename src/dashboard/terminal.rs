//! The terminal: taken over, and given back whatever happens.
//!
//! Three things can go wrong and each has its own answer. A panic or an error: [`Guard`] gives the terminal back, the
//! panic hook does so before the message is printed. A signal: [`Watch`] tells the loop to end. A terminal that is
//! gone, or that no longer takes output: [`Watch`] looks at it from a thread that no blocked write can stop, and if the
//! loop has not ended soon after, it ends the process.
//!
//! **Invariant.** Terminal settings are put back first (that never blocks), then the sequences are written.

use std::cell::Cell;
use std::io::{self, Write as _};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{Notify, mpsc};

/// Whether the terminal is taken over now.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether mouse reports were switched on.
static MOUSE: AtomicBool = AtomicBool::new(false);
/// Panics of other threads while the screen was up: printed after it, never into it.
static OTHER_PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Of them are kept.
const OTHER_PANICS_MAX: usize = 20;

/// Between two looks at the terminal: a link that broke is noticed well within the two seconds it may take to end.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the loop may take to end once told to.
const END_WITHIN: Duration = Duration::from_millis(1_200);
/// How long a terminal that takes no output may delay the end.
const RESTORE_WITHIN: Duration = Duration::from_millis(300);

thread_local! {
    /// Whether this thread is inside the dashboard's own code.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Why the dashboard should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM, SIGINT or SIGHUP, by name.
    Signal(&'static str),
    /// The terminal is gone.
    Hangup,
}

/// Holds the terminal; dropping it gives it back.
#[derive(Debug)]
pub struct Guard {
    _private: (),
}

impl Guard {
    /// Takes the terminal over: raw mode, other screen, no cursor. On an error it is as before.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        install_panic_hook();
        TAKEN.store(true, Ordering::SeqCst);
        let guard = Self { _private: () };
        enable_raw_mode()?;
        let mut out = io::stdout();
        crossterm::execute!(out, EnterAlternateScreen, Hide)?;
        if mouse {
            MOUSE.store(true, Ordering::SeqCst);
            crossterm::execute!(out, EnableMouseCapture)?;
        }
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
        let mut panics = OTHER_PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        for text in panics.drain(..) {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// Gives the terminal back; does nothing if it is not taken. Errors are of no use to anybody here.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = disable_raw_mode();
    let mut out = io::stdout();
    if MOUSE.swap(false, Ordering::SeqCst) {
        let _ = crossterm::execute!(out, DisableMouseCapture);
    }
    let _ = crossterm::execute!(out, LeaveAlternateScreen, Show);
}

/// Runs the dashboard's own code: a panic in it gives the terminal back before it is reported.
pub fn inside<T>(work: impl FnOnce() -> T) -> T {
    INSIDE.set(true);
    let done = work();
    INSIDE.set(false);
    done
}

/// A panic inside the dashboard restores the terminal, then is reported as usual. One elsewhere in the process (the
/// appliance of `waypost demo`, a caught one) must not tear the screen down: it is kept for later.
fn install_panic_hook() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::SeqCst) {
        return;
    }
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if INSIDE.get() {
            restore();
        }
        if TAKEN.load(Ordering::SeqCst) {
            let mut panics = OTHER_PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            if panics.len() < OTHER_PANICS_MAX {
                panics.push(info.to_string());
            }
        } else {
            usual(info);
        }
    }));
}

/// Whether the terminal behind standard output, or input, has been hung up.
fn is_gone() -> bool {
    let (input, output) = (io::stdin(), io::stdout());
    let mut ends = [PollFd::new(&output, PollFlags::empty()), PollFd::new(&input, PollFlags::empty())];
    // Input from a file or a closed pipe is no terminal, and says nothing about one.
    let looked_at = if io::IsTerminal::is_terminal(&input) { 2 } else { 1 };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut ends[..looked_at], Some(&now)).is_ok()
        && ends[..looked_at].iter().any(|end| end.revents().intersects(gone))
}

/// Watches for signals and for the end of the terminal, on a thread of its own.
#[derive(Debug)]
pub struct Watch {
    ended: Arc<Notify>,
}

impl Watch {
    /// Starts watching; what is seen goes to `stop`.
    pub fn start(stop: mpsc::Sender<Stop>) -> io::Result<Self> {
        let ended = Arc::new(Notify::new());
        let seen = Arc::clone(&ended);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("terminal-watch".to_owned()).spawn(move || {
            runtime.block_on(watch(stop, &seen));
        })?;
        Ok(Self { ended })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Stored if nobody waits yet, so it cannot be missed.
        self.ended.notify_one();
    }
}

async fn watch(stop: mpsc::Sender<Stop>, ended: &Notify) {
    let Ok(reason) = first_reason(ended).await else { return };
    let Some(reason) = reason else { return };
    // Full means it has been told already.
    let _ = stop.try_send(reason);
    if tokio::time::timeout(END_WITHIN, ended.notified()).await.is_ok() {
        return;
    }
    // The loop hangs, most likely in a write that nobody reads. Settings first; the sequences only if they get through.
    let _ = disable_raw_mode();
    let (written_sender, written) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        restore();
        let _ = written_sender.send(());
    });
    let _ = tokio::time::timeout(RESTORE_WITHIN, written).await;
    std::process::exit(1);
}

/// Waits for the first reason to end; `None` if the dashboard ended by itself.
async fn first_reason(ended: &Notify) -> io::Result<Option<Stop>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            () = ended.notified() => return Ok(None),
            _ = terminate.recv() => return Ok(Some(Stop::Signal("SIGTERM"))),
            _ = interrupt.recv() => return Ok(Some(Stop::Signal("SIGINT"))),
            _ = hangup.recv() => return Ok(Some(Stop::Signal("SIGHUP"))),
            _ = look.tick() => if is_gone() { return Ok(Some(Stop::Hangup)); },
        }
    }
}
