//! `POST /v1/events`.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::AppState;
use super::body::{Form, Plain, form, plain};
use super::intake::Intake;
use super::problem::{Failure, Kind};
use crate::core::event::{EventMeta, Framing, SequenceSplitter};
use crate::wire::IngestResponse;

/// Takes a post in: 202 with one result per feature, or a problem.
pub(super) async fn post_events(State(state): State<AppState>, headers: HeaderMap, body: Body) -> Response {
    match take(state, &headers, body).await {
        Ok(response) => {
            let body = serde_json::to_vec(&response).unwrap_or_default(); // plain strings serialise
            let media = HeaderValue::from_static("application/json");
            (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, media)], body).into_response()
        }
        Err(failure) => failure.into_response(),
    }
}

async fn take(state: AppState, headers: &HeaderMap, body: Body) -> Result<IngestResponse, Failure> {
    let form = form(headers)?;
    let one = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let meta =
        EventMeta::from_headers(one("waypost-device"), one("waypost-event-type"), one("idempotency-key"))
            .map_err(|rejection| Kind::BadRequest.because(rejection.to_string()))?;
    let mut body = plain(headers, body)?;
    match form {
        Form::Document => document(state, meta, &mut body).await,
        Form::Sequence(framing) => sequence(state, meta, &mut body, framing).await,
    }
}

async fn document(state: AppState, meta: EventMeta, body: &mut Plain) -> Result<IngestResponse, Failure> {
    let mut share = state.room.share();
    let text = body.whole(state.intake.body_bytes_max, &mut share).await?;
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(Kind::NotGeoJson.because("the body is empty"));
    }
    Intake::new(state, meta).document(text).await
}

async fn sequence(
    state: AppState,
    meta: EventMeta,
    body: &mut Plain,
    framing: Framing,
) -> Result<IngestResponse, Failure> {
    if meta.producer_key.is_some() {
        return Err(Kind::BadRequest
            .because("header Idempotency-Key is for a single feature; leave it out for a sequence"));
    }
    let mut splitter = SequenceSplitter::new(framing, state.intake.body_bytes_max);
    let mut share = state.room.share();
    let mut intake = Intake::new(state, meta);
    loop {
        let chunk = body.chunk().await;
        let held = share.set(splitter.held_bytes());
        let chunk = match held.and(chunk) {
            Ok(chunk) => chunk,
            // A client that is cut off, or has come to a feature too long for the moment, has sent whole elements
            // before: they are kept, and it hears of it if it can.
            Err(failure) => {
                return Err(match intake.finish().await {
                    Ok(kept) => failure.after(&kept),
                    Err(_) => failure,
                });
            }
        };
        let end = chunk.is_none();
        match chunk {
            Some(chunk) => splitter.push(chunk),
            None => splitter.finish(),
        }
        for element in splitter.by_ref() {
            intake.push(element).await?;
        }
        if end {
            return intake.finish().await;
        }
    }
}
