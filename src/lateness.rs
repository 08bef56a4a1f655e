//! How late a timer of the runtime is: the sign that something holds a worker which should have waited on another thread.
//!
//! A stall of the process shows in every request, but not which process stalled; a timer inside it tells. It must cost
//! next to nothing where there is a battery: while nothing is appended it ticks ten times a second, as the log thread
//! does anyway, and sees a stall of S as at least S less 100 ms; under load a hundred times a second, and 10 ms.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Between looks while events come in.
const BUSY: Duration = Duration::from_millis(10);
/// Between looks while none do.
const IDLE: Duration = Duration::from_millis(100);

/// Tells the metrics how late each tick was, until `stop`.
pub async fn watch(metrics: Arc<Metrics>, stop: CancellationToken) {
    let mut appends = metrics.appends();
    loop {
        let before = std::mem::replace(&mut appends, metrics.appends());
        let due = Instant::now() + if appends == before { IDLE } else { BUSY };
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep_until(due) => {}
        }
        metrics.timer_was_late(due.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that is held for 300 ms shows as a timer that came late.
    #[tokio::test]
    async fn a_worker_that_is_held_is_seen() {
        let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
        let watch = tokio::spawn(watch(Arc::clone(&metrics), stop.clone()));
        tokio::task::yield_now().await;
        assert!(metrics.timer_late_max() < Duration::from_millis(50));
        std::thread::park_timeout(Duration::from_millis(300));
        while metrics.timer_late_max() < Duration::from_millis(150) {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        watch.await.unwrap();
    }
}
