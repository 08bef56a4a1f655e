//! The HTTP interface: intake, and the admin API, on a listener and on a Unix socket.
//!
//! Our own accept loop over hyper: connections are counted and bounded, headers and bodies have deadlines, and a stop
//! finishes requests that run. Handlers parse, ask the store or the driver, and answer; they decide nothing about
//! attempts, and no handler is cancelled between a store's word and its answer when a client hangs up, because
//! appends run in tasks of their own.

mod admin;
mod body;
mod connections;
mod dead_letters;
mod export;
mod guard;
mod ingest;
mod intake;
mod outbox;
mod places;
pub mod problem;
mod repair;
mod room;
mod unread;
mod views;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use crate::clock::Clock;
use crate::config::Config;
use crate::core::event::IntakeSettings;
use crate::driver::Handle;
use crate::metrics::Metrics;
use crate::store::Outbox;
use crate::telemetry::RecentLog;

use connections::{Connections, Place, answering};
use guard::Via;
pub use room::Room;
use unread::Unread;

/// Time for the headers of a request, and for a kept connection to send the next one (field fault 57).
const HEADER_MAX: Duration = Duration::from_secs(20);
/// Bytes of headers and the read buffer of a connection; hyper's smallest is 8 KiB.
const CONNECTION_BUFFER_BYTES: usize = 32 << 10;
/// After a stop: time for a request that runs. The whole stop has ten seconds.
const LAST_REQUEST_MAX: Duration = Duration::from_secs(3);
/// After a stop: time for an answer that is being written.
const LAST_ANSWER_MAX: Duration = Duration::from_millis(250);
/// After an accept that failed (out of descriptors), before the next.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Everything handlers need; cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// The store.
    pub outbox: Outbox,
    /// The driver.
    pub driver: Handle,
    /// Time.
    pub clock: Clock,
    /// How bodies become events.
    pub intake: Arc<IntakeSettings>,
    /// Memory for bodies that are being read.
    pub room: Room,
    /// `/metrics`.
    pub metrics: Arc<Metrics>,
    /// `/v1/log`.
    pub recent: RecentLog,
    /// Names, tokens, limits.
    pub config: Arc<Config>,
}

/// Tells handlers that never end by themselves that the server stops.
#[derive(Clone)]
struct Stopping(CancellationToken);

/// Where to listen.
pub struct Listeners {
    /// The listener.
    pub tcp: TcpListener,
    /// The admin socket.
    pub socket: UnixListener,
}

/// Every path.
fn router(state: &AppState) -> Router {
    let intake = Router::new()
        .route("/v1/events", post(ingest::post_events))
        .route_layer(from_fn_with_state(state.clone(), guard::producer));
    let admin = Router::new()
        .route("/v1/status", get(admin::status))
        .route("/v1/stream", get(admin::stream))
        .route("/v1/attempts", get(admin::attempts))
        .route("/v1/history", get(admin::history))
        .route("/v1/access", get(admin::access))
        .route("/v1/map", get(places::map))
        .route("/v1/log", get(admin::log))
        .route("/v1/events/{id}", get(outbox::event))
        .route("/v1/outbox", get(outbox::list))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/count", get(dead_letters::count))
        .route("/v1/dead-letters/export", get(export::export))
        .route("/v1/dead-letters/redrive", post(dead_letters::redrive))
        .route("/v1/dead-letters/discard", post(dead_letters::discard))
        .route("/v1/dead-letters/repair", post(repair::repair))
        .route("/v1/dead-letters/{id}", get(dead_letters::show))
        .route("/v1/endpoints/{name}/{action}", post(admin::endpoint))
        .route("/metrics", get(admin::metrics))
        .route_layer(from_fn_with_state(state.clone(), guard::admin));
    Router::new()
        .merge(intake)
        .merge(admin)
        .route("/healthz", get(admin::healthz))
        .route("/readyz", get(admin::readyz))
        .fallback(admin::not_found)
        .method_not_allowed_fallback(admin::method_not_allowed)
        .with_state(state.clone())
}

/// Serves both listeners until `stop`, then finishes requests that run.
pub async fn serve(listeners: Listeners, state: AppState, stop: CancellationToken) {
    let router = router(&state);
    let connections = Connections::new(state.config.ingest.connections_max);
    let tasks = TaskTracker::new();
    let tcp = accept_tcp(listeners.tcp, router.clone(), connections, tasks.clone(), stop.clone());
    let socket = accept_socket(listeners.socket, router, tasks.clone(), stop.clone());
    tokio::join!(tcp, socket);
    tasks.close();
    tasks.wait().await;
}

async fn accept_tcp(
    listener: TcpListener,
    router: Router,
    connections: Arc<Connections>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(err) => {
                refused(&err, &stop).await;
                continue;
            }
        };
        // Connections beyond the limit wait in the kernel's queue, not in our memory.
        let place = tokio::select! {
            () = stop.cancelled() => return,
            place = connections.admit() => place,
        };
        let _ = stream.set_nodelay(true); // small answers must not wait for an acknowledgement
        let (router, stop) = (router.clone(), stop.clone());
        tasks.spawn(async move {
            let mut first = [0];
            // The first byte before the buffers: a connection that says nothing costs next to nothing.
            tokio::select! {
                peeked = tokio::time::timeout(HEADER_MAX, stream.peek(&mut first)) => {
                    if !matches!(peeked, Ok(Ok(1))) {
                        return;
                    }
                }
                () = place.evicted() => return,
                () = stop.cancelled() => return,
            }
            connection(stream, Via::Tcp(peer), router, stop, Some(Arc::new(place))).await;
        });
    }
}

async fn accept_socket(listener: UnixListener, router: Router, tasks: TaskTracker, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connection(stream, Via::Socket, router.clone(), stop.clone(), None));
            }
            Err(err) => refused(&err, &stop).await,
        }
    }
}

async fn refused(err: &std::io::Error, stop: &CancellationToken) {
    tracing::warn!(error = %err, "a connection could not be accepted");
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(ACCEPT_AGAIN) => {}
    }
}

/// Serves one connection to its end; a stop lets the request that runs finish.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    via: Via,
    router: Router,
    stop: CancellationToken,
    place: Option<Arc<Place>>,
) {
    let service = service_fn(|request: hyper::Request<Incoming>| {
        if let Some(place) = &place {
            place.works();
        }
        let (mut head, body) = request.into_parts();
        head.extensions.insert(via);
        head.extensions.insert(Stopping(stop.clone()));
        let body = Body::new(Unread::new(body, &head.headers));
        let answer = router.clone().call(hyper::Request::from_parts(head, body)); // always ready
        let place = place.clone();
        async move {
            let answer = answer.await?;
            Ok::<_, Infallible>(match place {
                Some(place) => answer.map(|body| answering(body, place)),
                None => answer,
            })
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_MAX)
        .max_buf_size(CONNECTION_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let evicted = async {
        match &place {
            Some(place) => place.evicted().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // A client that goes away or talks nonsense is its own problem.
        _ = connection.as_mut() => return,
        () = evicted => return,
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let waits = place.as_ref().is_some_and(|place| place.is_waiting());
    // Between requests there is at most an answer to be written out; half a head is nothing to wait for.
    let last = if waits { LAST_ANSWER_MAX } else { LAST_REQUEST_MAX };
    let _ = tokio::time::timeout(last, connection).await;
}
