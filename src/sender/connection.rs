//! What an attempt can learn of its own connection: whether it was a kept one, and whether the request went out.
//!
//! reqwest tells neither. A layer around the connector marks the attempt in whose task a new connection was finished;
//! a body of our own knows whether the connection asked for it. hyper asks for the body when it has taken up the
//! request and writes head and body together, so "not asked" means that no byte left this box.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

tokio::task_local! {
    /// Whether the attempt that runs in this scope made a connection.
    static CONNECTED: Cell<bool>;
}

/// Runs one exchange and says whether it made a new connection.
pub async fn watch_connection<F: Future>(exchange: F) -> (F::Output, bool) {
    CONNECTED
        .scope(Cell::new(false), async {
            let output = exchange.await;
            (output, CONNECTED.with(Cell::get))
        })
        .await
}

/// Marks attempts that connect.
#[derive(Clone)]
pub struct ConnectLayer;

impl<S> Layer<S> for ConnectLayer {
    type Service = ConnectService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ConnectService(inner)
    }
}

/// The connector inside [`ConnectLayer`].
#[derive(Clone)]
pub struct ConnectService<S>(S);

impl<S, R> Service<R> for ConnectService<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connecting = self.0.call(request);
        Box::pin(async move {
            let connection = connecting.await?;
            // A connection that lost the race against a kept one is finished in a task of its own, out of scope.
            let _ = CONNECTED.try_with(|connected| connected.set(true));
            Ok(connection)
        })
    }
}

/// The bytes of an event, and a flag that tells whether they were asked for.
pub struct WatchedBody {
    bytes: Option<Bytes>,
    taken: Arc<AtomicBool>,
}

impl WatchedBody {
    /// The body, and the flag that stays behind.
    pub fn new(bytes: Bytes) -> (Self, Arc<AtomicBool>) {
        let taken = Arc::new(AtomicBool::new(false));
        (Self { bytes: Some(bytes), taken: Arc::clone(&taken) }, taken)
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.taken.store(true, Ordering::Relaxed);
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
