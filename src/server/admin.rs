//! Reads and endpoint actions of the admin API.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::{Stream, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::problem::{Failure, Kind};
use super::{AppState, Stopping};
use crate::driver::handle::EndpointAction;
use crate::wire::{AccessView, EndpointActionView, HistoryView, LogView, StatusView};

/// Event streams at once; each is a dashboard.
const STREAMS_MAX: usize = 16;
/// Between two events of a stream.
const STREAM_EVERY: Duration = Duration::from_secs(1);

static STREAMS: std::sync::LazyLock<Arc<Semaphore>> =
    std::sync::LazyLock::new(|| Arc::new(Semaphore::new(STREAMS_MAX)));

pub(super) async fn status(State(state): State<AppState>) -> Response {
    Json(&*state.driver.fresh_status().await).into_response()
}

pub(super) async fn attempts(State(state): State<AppState>) -> Response {
    Json(&*state.driver.attempts()).into_response()
}

/// What this caller may do, as the guard has just decided.
pub(super) async fn access(Extension(access): Extension<AccessView>) -> Json<AccessView> {
    Json(access)
}

pub(super) async fn history(State(state): State<AppState>) -> Json<HistoryView> {
    Json(state.driver.history(state.clock.now().store))
}

pub(super) async fn log(State(state): State<AppState>) -> Json<LogView> {
    Json(state.recent.view())
}

pub(super) async fn metrics(State(state): State<AppState>) -> Response {
    let status = state.driver.fresh_status().await;
    let text = state.metrics.render(&status);
    let media = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    ([(header::CONTENT_TYPE, media)], text).into_response()
}

/// The process lives and its runtime turns.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// 503 while not accepting or when due work does not move, with the reason.
pub(super) async fn readyz(State(state): State<AppState>) -> Response {
    let status = state.driver.status();
    match &status.not_ready_reason {
        None => format!("ready\n{}", damage(&status)).into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// What damage has cost, as a line of its own: an appliance that lost something is ready, and says so for good.
fn damage(status: &StatusView) -> String {
    match (status.ledger.lost, status.store.quarantined_bytes) {
        (0, 0) => String::new(),
        (lost, bytes) => format!("lost to damage: {lost}; set aside in quarantine/: {bytes} bytes\n"),
    }
}

pub(super) async fn endpoint(
    State(state): State<AppState>,
    Path((name, action)): Path<(String, String)>,
) -> Result<Json<EndpointActionView>, Failure> {
    let action = match action.as_str() {
        "pause" => EndpointAction::Pause,
        "resume" => EndpointAction::Resume,
        "probe" => EndpointAction::Probe,
        other => {
            return Err(Kind::NotFound.because(format!(
                "\"{}\" is no action; there is pause, resume and probe",
                other.escape_debug()
            )));
        }
    };
    match state.driver.endpoint(&name, action).await {
        Ok(state) => Ok(Json(EndpointActionView { name, state })),
        Err(unknown) => Err(Kind::NotFound.because(unknown.to_string())),
    }
}

/// A status a second as server-sent events.
pub(super) async fn stream(
    State(state): State<AppState>,
    Extension(stopping): Extension<Stopping>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Failure> {
    let permit = Arc::clone(&STREAMS).try_acquire_owned().map_err(|_| Failure {
        retry_after: Some(STREAM_EVERY * 5),
        ..Kind::Unavailable.because(format!("{STREAMS_MAX} streams are open already; close a dashboard"))
    })?;
    let changes = state.driver.status_changes();
    let start = (changes, Instant::now(), permit);
    let events = futures_util::stream::unfold(start, |(mut changes, next, permit)| async move {
        sleep_until(next).await;
        changes.changed().await.ok()?;
        let view = Arc::clone(&changes.borrow_and_update());
        let event = Event::default().data(serde_json::to_string(&*view).ok()?);
        let permit: OwnedSemaphorePermit = permit; // held as long as the stream
        Some((Ok(event), (changes, Instant::now() + STREAM_EVERY, permit)))
    });
    Ok(Sse::new(events.take_until(stopping.0.cancelled_owned())))
}

pub(super) async fn not_found() -> Failure {
    Kind::NotFound.because("there is no such path; events go to POST /v1/events")
}

pub(super) async fn method_not_allowed() -> Failure {
    Kind::MethodNotAllowed.because("this path takes another method")
}
