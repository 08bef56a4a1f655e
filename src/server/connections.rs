//! How many connections there may be, and which one gives way when there are too many.
//!
//! A connection that waits for its next request, or has sent only part of one's headers, holds a place that costs its
//! owner nothing. When all places are taken the one that has waited longest is closed for the newcomer, so ten thousand
//! silent connections do not keep a working producer out (field fault 57). A request that runs is never cut for it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The places of a listener.
pub(super) struct Connections {
    max: usize,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    open: usize,
    next_ticket: u64,
    /// Connections between requests, the one that has waited longest first.
    waiting: BTreeMap<u64, CancellationToken>,
}

/// A connection's place; given back when dropped.
pub(super) struct Place {
    connections: Arc<Connections>,
    evicted: CancellationToken,
    ticket: Mutex<Option<u64>>,
}

impl Connections {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default(), freed: Notify::new() })
    }

    /// A place, as soon as there is one; asks the longest-waiting connection to give up its own.
    pub async fn admit(self: &Arc<Self>) -> Place {
        loop {
            {
                let mut state = self.state();
                if state.open < self.max {
                    state.open += 1;
                    break;
                }
                if let Some((_, longest)) = state.waiting.pop_first() {
                    longest.cancel();
                }
            }
            self.freed.notified().await;
        }
        let place = Place {
            connections: Arc::clone(self),
            evicted: CancellationToken::new(),
            ticket: Mutex::new(None),
        };
        place.waits();
        place
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Between requests: may be asked to give way.
    pub fn waits(&self) {
        let mut state = self.connections.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.insert(ticket, self.evicted.clone());
        *self.ticket.lock().unwrap_or_else(PoisonError::into_inner) = Some(ticket);
    }

    /// A request runs: keeps its place.
    pub fn works(&self) {
        let ticket = self.ticket.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ticket) = ticket {
            self.connections.state().waiting.remove(&ticket);
        }
    }

    /// Whether it is between requests.
    pub fn is_waiting(&self) -> bool {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Ends when the place is wanted.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.works();
        self.connections.state().open -= 1;
        self.connections.freed.notify_one();
    }
}

/// Keeps a place at work until an answer's body is done with.
struct Working(Arc<Place>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.waits();
    }
}

/// The body of an answer, whose connection does not wait before it has ended.
struct Answering {
    body: Body,
    _working: Working,
}

/// Ties an answer's body to the place of its connection.
pub(super) fn answering(body: Body, place: Arc<Place>) -> Body {
    Body::new(Answering { body, _working: Working(place) })
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_waiting_gives_way_and_a_working_one_never_does() {
        let connections = Connections::new(2);
        let first = connections.admit().await;
        let second = connections.admit().await;
        first.works();
        let newcomer = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move { connections.admit().await }
        });
        second.evicted().await;
        assert!(!first.evicted.is_cancelled());
        drop(second);
        let third = newcomer.await.unwrap();
        first.waits();
        let newcomer = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move { connections.admit().await }
        });
        third.evicted().await;
        assert!(!first.evicted.is_cancelled(), "it has waited for a shorter time");
        drop(third);
        drop(newcomer.await.unwrap());
        drop(first);
        assert_eq!(connections.state().open, 0);
        assert!(connections.state().waiting.is_empty());
    }
}
