//! Errors of the HTTP interface as `application/problem+json` (RFC 9457): one table of stable slugs.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::store::{AppendError, StoreError};
use crate::wire::{IngestResponse, IngestResult, Problem};

/// Kinds of problem: slug, status, title. The slug is what scripts match; it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing in the body can be used.
    NotGeoJson,
    /// A header or parameter cannot be used.
    BadRequest,
    /// No token, or a wrong one.
    Unauthorized,
    /// Not from here, or not over this way.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// Longer than a limit.
    TooLarge,
    /// A media type or encoding that is not taken.
    UnsupportedMedia,
    /// The geometry can never be delivered and `invalid_geometry = "reject"`.
    InvalidGeometry,
    /// A producer's key came again with another body.
    KeyReused,
    /// The client was too slow.
    TooSlow,
    /// Others take what there is at the moment.
    Busy,
    /// Stopping, or the store cannot be written.
    Unavailable,
    /// A limit or the disk is full.
    Full,
    /// Something of ours went wrong.
    Internal,
}

impl Kind {
    fn entry(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Kind::NotGeoJson => ("not-geojson", StatusCode::BAD_REQUEST, "nothing in the body can be used"),
            Kind::BadRequest => ("bad-request", StatusCode::BAD_REQUEST, "the request cannot be understood"),
            Kind::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "a valid token is needed"),
            Kind::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "not allowed this way"),
            Kind::NotFound => ("not-found", StatusCode::NOT_FOUND, "there is no such thing"),
            Kind::MethodNotAllowed => {
                ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "the path does not take this method")
            }
            Kind::TooLarge => ("too-large", StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
            Kind::UnsupportedMedia => {
                ("unsupported-media", StatusCode::UNSUPPORTED_MEDIA_TYPE, "this media type is not taken")
            }
            Kind::InvalidGeometry => {
                ("invalid-geometry", StatusCode::UNPROCESSABLE_ENTITY, "the geometry can never be delivered")
            }
            Kind::KeyReused => (
                "key-reused",
                StatusCode::UNPROCESSABLE_ENTITY,
                "the Idempotency-Key came with another body before",
            ),
            Kind::TooSlow => ("too-slow", StatusCode::REQUEST_TIMEOUT, "the body came too slowly"),
            Kind::Busy => ("busy", StatusCode::TOO_MANY_REQUESTS, "too much at once"),
            Kind::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "not now"),
            Kind::Full => ("full", StatusCode::INSUFFICIENT_STORAGE, "there is no room"),
            Kind::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, "an error of waypost itself"),
        }
    }

    /// The problem with its particulars.
    pub fn because(self, detail: impl Into<String>) -> Failure {
        Failure { kind: self, detail: detail.into(), retry_after: None, results: Vec::new() }
    }
}

/// A problem on its way to the client.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub kind: Kind,
    /// What, where, what to do.
    pub detail: String,
    /// `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Per-feature results, when a post was refused whole.
    pub results: Vec<IngestResult>,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (slug, status, title) = self.kind.entry();
        let problem = Problem {
            kind: format!("/problems/{slug}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: self.detail,
            results: self.results,
        };
        let body = serde_json::to_vec(&problem).unwrap_or_default(); // plain strings serialise
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(delay) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(delay.as_secs().max(1)));
        }
        if self.kind == Kind::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl Failure {
    /// The same in the middle of a post: it tells what of the post was kept before it.
    #[must_use]
    pub fn after(mut self, kept: &IngestResponse) -> Self {
        let features = kept.accepted + kept.dead_lettered + kept.duplicates;
        if features > 0 {
            self.detail += &format!(
                "; {features} features of this post are kept (sent again they are duplicates if they carry a time or a sequence)"
            );
        }
        self
    }
}

impl From<AppendError> for Failure {
    fn from(err: AppendError) -> Self {
        match err {
            AppendError::Full { what, retry_after } => Self {
                retry_after: Some(retry_after),
                ..Kind::Full.because(format!("the {what} is full; send it again later"))
            },
            AppendError::Busy => Self {
                retry_after: Some(Duration::from_secs(1)),
                ..Kind::Unavailable.because("the store is behind; send it again")
            },
            AppendError::Closed => Self {
                retry_after: Some(Duration::from_secs(5)),
                ..Kind::Unavailable.because("the appliance is stopping; send it again")
            },
            AppendError::Io(err) => Self {
                retry_after: Some(Duration::from_secs(5)),
                ..Kind::Unavailable.because(format!("the store cannot be written: {err}"))
            },
        }
    }
}

impl From<StoreError> for Failure {
    fn from(err: StoreError) -> Self {
        Self {
            retry_after: Some(Duration::from_secs(5)),
            ..Kind::Unavailable.because(format!("the store cannot answer: {err}"))
        }
    }
}
