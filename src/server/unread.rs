//! A request body that is read to its end even when its handler has refused it.
//!
//! Many clients send all of a body before they look at the answer. Closing while they send turns our 413 or 401 into a
//! reset that they cannot read. So the rest of a body that a handler drops is read and thrown away in the background,
//! within bounds, while the answer is on its way (field fault 41).

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, timeout_at};

/// For how long a refused body is read on; a client that sends longer gets its reset.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// A client that falls silent has had its chance to read the answer.
const DRAIN_SILENCE_MAX: Duration = Duration::from_secs(5);
/// Bytes that are read on.
const DRAIN_BYTES_MAX: u64 = 1 << 30;

/// The body of a request, read on when it is dropped.
pub(super) struct Unread {
    body: Option<Incoming>,
    /// The client waits for a word before it sends, and nobody has asked yet: a refusal is that word.
    held_back: bool,
}

impl Unread {
    pub fn new(body: Incoming, headers: &HeaderMap) -> Self {
        Self { held_back: headers.contains_key(header::EXPECT), body: Some(body) }
    }
}

impl Body for Unread {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.held_back = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        if self.held_back || body.is_end_stream() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(drain(body));
        }
    }
}

async fn drain(mut body: Incoming) {
    let end = Instant::now() + DRAIN_MAX;
    let mut left = DRAIN_BYTES_MAX;
    while left > 0 {
        match timeout_at(end.min(Instant::now() + DRAIN_SILENCE_MAX), body.frame()).await {
            Ok(Some(Ok(frame))) => {
                left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
            }
            _ => return,
        }
    }
}
