//! What a receiver answers: a function of the request, so a test can say anything, and ready-made ones for trials.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};

use super::Cut;
use super::record::Seen;
use super::tap::Fault;

/// Status of a request whose signature is missing or wrong, when a secret is set.
pub const UNSIGNED_STATUS: u16 = 401;

/// What to do with a request; called with its head, before the body is read.
pub type Script = Arc<dyn Fn(&Seen) -> Act + Send + Sync>;

/// What to do with one request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Read it and answer.
    Answer(Answer),
    /// Read so much of the body and reset the connection; `u64::MAX` for all of it.
    Reset {
        /// Bytes of the body.
        after_body_bytes: u64,
    },
    /// Read it and never answer.
    Hang,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Wait before it.
    pub delay: Duration,
    /// `Retry-After` as it is sent.
    pub retry_after: Option<String>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Bytes,
    /// What goes wrong while it is sent.
    pub fault: Fault,
}

impl Answer {
    /// A bare status.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            delay: Duration::ZERO,
            retry_after: None,
            headers: Vec::new(),
            body: Bytes::new(),
            fault: Fault::None,
        }
    }

    pub(super) fn response(&self, status: u16) -> Response<UnsyncBoxBody<Bytes, Cut>> {
        let body = Full::new(self.body.clone()).map_err(Cut::from).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
        let headers = response.headers_mut();
        if !self.body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(value)) =
                (hyper::header::HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                headers.append(name, value);
            }
        }
        if let Some(value) = self.retry_after.as_ref().and_then(|text| HeaderValue::try_from(text).ok()) {
            headers.insert(RETRY_AFTER, value);
        }
        response
    }
}

/// Every request gets this status.
pub fn always(status: u16) -> Script {
    Arc::new(move |_| Act::Answer(Answer::status(status)))
}

/// These acts in turn, then the last of them for ever.
pub fn in_turn(acts: Vec<Act>) -> Script {
    let next = AtomicU64::new(0);
    Arc::new(move |_| {
        let number = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
        acts.get(number).or(acts.last()).cloned().unwrap_or(Act::Answer(Answer::status(200)))
    })
}

/// A trial: one answer, and every n-th request a failure.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The usual answer.
    pub answer: Answer,
    /// Every n-th request gets [`Trial::failure`] instead; 0: none does.
    pub fail_every: u64,
    /// The answer to those.
    pub failure: Answer,
}

impl Trial {
    /// The script that does it.
    pub fn script(self) -> Script {
        let count = AtomicU64::new(0);
        Arc::new(move |_| {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            let fails = self.fail_every > 0 && number.is_multiple_of(self.fail_every);
            Act::Answer(if fails { self.failure.clone() } else { self.answer.clone() })
        })
    }
}
