//! Signals to a token: SIGTERM and SIGINT start a clean stop, a second one ends the process at once.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How long running attempts may still take after a stop began. With the store's last checkpoint it keeps a clean
/// stop under the ten seconds that service managers and people wait.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(5);

/// Exit code after a second signal: the store is safe (every accepted event is synced), but the stop was not clean.
const SECOND_SIGNAL: i32 = 1;

/// Listens for SIGTERM and SIGINT and cancels `stop` at the first one.
///
/// # Errors
/// If the handlers cannot be installed.
pub fn on_signal(stop: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for round in 0.. {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if round == 0 {
                tracing::info!(
                    signal = name,
                    "stopping: finishing attempts that run, then the last checkpoint"
                );
                stop.cancel();
            } else if name == "SIGINT" {
                // A person insists. A service manager that repeats SIGTERM gets its clean stop all the same.
                std::process::exit(SECOND_SIGNAL);
            }
        }
    });
    Ok(())
}
