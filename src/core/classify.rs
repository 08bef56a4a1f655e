//! Outcome of an attempt to verdict: two tables, and the transport failures.
//!
//! An [`Outcome`] is what the sender saw, as a value; nothing here searches error text. A [`Verdict`] says what kind
//! of thing it was and carries its evidence; what follows from it is [`super::decide`]'s business. Bodies that lie
//! about their status are read in [`super::body`], `Retry-After` in [`super::retry_after`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::body::{self, Belief};
use super::hold::HoldReason;
use super::policy::{EndpointPolicy, Override, PolicyKind};
use super::retry_after::retry_after;
use super::time::Now;

/// What an attempt came to, as the sender saw it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// An HTTP answer, read to the end or to the bound.
    Response(Answer),
    /// No usable answer.
    Transport {
        /// What went wrong.
        kind: TransportKind,
        /// Whether any byte of the request may have reached the receiver.
        bytes_sent: bool,
        /// Whether a kept connection was used again (a reset on one is not the receiver's fault).
        reused: bool,
    },
}

/// The parts of an HTTP answer that decisions need.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Every `Retry-After` field value, as sent.
    pub retry_after: Vec<String>,
    /// The `Date` field as Unix seconds, if it parsed.
    pub date_unix_s: Option<i64>,
    /// `RateLimit` field: remaining and seconds to reset.
    pub rate_limit: Option<RateLimit>,
    /// Media type without parameters, lower case.
    pub content_type: String,
    /// Start of the body, bounded.
    pub body: Vec<u8>,
}

/// What a `RateLimit` field says (draft-ietf-httpapi-ratelimit-headers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests left.
    pub remaining: u64,
    /// Seconds until the quota is new.
    pub reset_s: u64,
}

/// Kinds of transport failure, from typed errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportKind {
    /// Name lookup failed or timed out.
    Dns,
    /// No route, network unreachable, interface down.
    NoNetwork,
    /// The peer refused the connection.
    Refused,
    /// No connection within `connect_timeout`.
    ConnectTimeout,
    /// Signatures are wanted and this box's clock cannot be trusted with their stamp; nothing was sent.
    ClockUntrusted,
    /// TLS: the certificate is not valid yet (a wrong clock looks so).
    TlsNotYetValid,
    /// TLS: the certificate has expired.
    TlsExpired,
    /// TLS: any other handshake failure.
    Tls,
    /// Connection reset or closed before a whole answer.
    Reset,
    /// No whole answer within `timeout`.
    Timeout,
    /// The answer is not HTTP.
    Protocol,
}

/// The kind of thing that happened (DESIGN 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// The receiver has it.
    Delivered,
    /// Try again, the event pays.
    Retry,
    /// The receiver asks for less.
    Throttle,
    /// Evidence that the endpoint is down.
    Hold,
    /// Credentials are wrong.
    HoldAuth,
    /// The endpoint's address or set-up is wrong.
    HoldConfig,
    /// This box's own network or clock.
    HoldLocal,
    /// Will never pass.
    Terminal,
    /// Failed while others passed.
    Poison,
    /// The receiver says it is gone for good.
    Disabled,
}

/// A classified outcome, with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What kind of thing happened.
    pub kind: VerdictKind,
    /// Short cause in words, for example `http 503` or `connection refused`.
    pub reason: String,
    /// HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// What a hold on this evidence would be called.
    pub hold: Option<HoldReason>,
    /// Whether it blames the event and counts towards `attempts_max`.
    pub charged: bool,
    /// Whether the same attempt may be repeated at once: a kept connection was closed under it.
    pub free_repeat: bool,
    /// The receiver asks for less than it gets (429, 503, a timeout): the window shrinks.
    pub congestion: bool,
    /// What the receiver asks to wait before anything else is sent to it.
    pub pause: Option<Duration>,
    /// Whether any byte of the request may have reached the receiver.
    pub bytes_sent: bool,
}

/// The article's clamp on `Retry-After`.
const ARTICLE_RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Verdict of one attempt under the endpoint's policy.
pub fn classify(outcome: &Outcome, policy: &EndpointPolicy, now: Now) -> Verdict {
    match outcome {
        Outcome::Response(answer) => response(answer, policy, now),
        Outcome::Transport { kind, bytes_sent, reused } => {
            let mut verdict = transport(*kind, *bytes_sent, *reused, now.wall_trusted);
            if policy.kind == PolicyKind::Article {
                // The article retries every connection error and timeout, and each costs an attempt.
                verdict = Verdict {
                    kind: VerdictKind::Retry,
                    hold: None,
                    charged: true,
                    free_repeat: false,
                    ..verdict
                };
            }
            verdict
        }
    }
}

fn response(answer: &Answer, policy: &EndpointPolicy, now: Now) -> Verdict {
    let status = answer.status;
    let mut reason = format!("http {status}");
    let row = if let Some(pinned) = policy.overrides.get(&status) {
        pinned_row(*pinned)
    } else {
        match policy.kind {
            PolicyKind::Article => article_row(status),
            PolicyKind::Edge if (200..300).contains(&status) => match body::belief(answer, policy.body_check)
            {
                Belief::Delivered => Row::plain(VerdictKind::Delivered),
                Belief::Captive => {
                    reason.push_str(", but the answer is a web page");
                    Row::local(HoldReason::Captive)
                }
                Belief::Status(inner) => {
                    reason = format!("http {status}, error {inner} in the body");
                    edge_row(inner)
                }
                Belief::Refused(what) => {
                    reason = format!("http {status}, {what}");
                    Row::plain(VerdictKind::Terminal)
                }
                Belief::Doubtful(what) => {
                    reason = format!("http {status}, {what}");
                    Row::charged(VerdictKind::Retry)
                }
            },
            PolicyKind::Edge => edge_row(status),
        }
    };
    let mut verdict = row.verdict(reason, Some(status));
    let asked = match policy.kind {
        PolicyKind::Article => article_retry_after(&answer.retry_after),
        PolicyKind::Edge => {
            retry_after(&answer.retry_after, answer.date_unix_s, now, policy.retry.retry_after_max)
        }
    };
    if verdict.kind != VerdictKind::Delivered {
        verdict.pause = asked;
    }
    if policy.kind == PolicyKind::Edge {
        spent_quota(answer, &mut verdict, policy.retry.retry_after_max);
        // 413 is final, unless the receiver says when it would take the same document.
        if status == 413 && asked.is_some() && verdict.kind == VerdictKind::Terminal {
            verdict.kind = VerdictKind::Throttle;
            verdict.hold = Some(HoldReason::Throttled);
        }
    }
    verdict
}

/// `RateLimit: r=0` forbids requests until its reset; `Retry-After` wins over it.
fn spent_quota(answer: &Answer, verdict: &mut Verdict, pause_max: Duration) {
    let Some(limit) = answer.rate_limit.filter(|limit| limit.remaining == 0) else {
        return;
    };
    if verdict.pause.is_none() && limit.reset_s > 0 {
        verdict.pause = Some(Duration::from_secs(limit.reset_s).min(pause_max));
    }
    if matches!(answer.status, 403 | 503) {
        verdict.kind = VerdictKind::Throttle;
        verdict.hold = Some(HoldReason::Throttled);
        verdict.congestion = true;
    }
}

/// The article reads digits only and never waits longer than its cap.
fn article_retry_after(values: &[String]) -> Option<Duration> {
    let value = values.first()?;
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds = value.parse().unwrap_or(u64::MAX);
    Some(Duration::from_secs(seconds).min(ARTICLE_RETRY_AFTER_MAX))
}

/// What a table says of a status.
#[derive(Clone, Copy)]
struct Row {
    kind: VerdictKind,
    hold: Option<HoldReason>,
    charged: bool,
    congestion: bool,
}

impl Row {
    fn plain(kind: VerdictKind) -> Self {
        Self { kind, hold: None, charged: false, congestion: false }
    }

    fn charged(kind: VerdictKind) -> Self {
        Self { charged: true, hold: Some(HoldReason::Http5xx), ..Self::plain(kind) }
    }

    fn held(kind: VerdictKind, hold: HoldReason) -> Self {
        Self { hold: Some(hold), ..Self::plain(kind) }
    }

    fn local(hold: HoldReason) -> Self {
        Self::held(VerdictKind::HoldLocal, hold)
    }

    fn congested(self) -> Self {
        Self { congestion: true, ..self }
    }

    fn verdict(self, reason: String, status: Option<u16>) -> Verdict {
        Verdict {
            kind: self.kind,
            reason,
            status,
            hold: self.hold,
            charged: self.charged,
            free_repeat: false,
            congestion: self.congestion,
            pause: None,
            bytes_sent: true,
        }
    }
}

fn pinned_row(pinned: Override) -> Row {
    match pinned {
        Override::Delivered => Row::plain(VerdictKind::Delivered),
        Override::Retry => Row::charged(VerdictKind::Retry),
        Override::Hold => Row::held(VerdictKind::Hold, HoldReason::Http5xx),
        Override::Terminal => Row::plain(VerdictKind::Terminal),
    }
}

/// The article's table: 2xx, then 429 and 5xx, and everything else is final.
fn article_row(status: u16) -> Row {
    match status {
        200..=299 => Row::plain(VerdictKind::Delivered),
        429 | 500..=599 => Row { hold: None, ..Row::charged(VerdictKind::Retry) },
        _ => Row::plain(VerdictKind::Terminal),
    }
}

/// The store-and-forward table (DESIGN 5.3). A status below 100 or above 599 is no HTTP and is tried again.
fn edge_row(status: u16) -> Row {
    use HoldReason::{Auth, Captive, Config, Http5xx, Throttled};
    match status {
        200..=299 => Row::plain(VerdictKind::Delivered),
        300..=399 | 404 | 405 | 415 | 501 | 505 => Row::held(VerdictKind::HoldConfig, Config),
        401 | 403 | 407 | 498 | 499 => Row::held(VerdictKind::HoldAuth, Auth),
        410 => Row::plain(VerdictKind::Disabled),
        408 | 409 | 417 | 421 | 423..=425 => Row { hold: None, ..Row::charged(VerdictKind::Retry) },
        429 => Row::held(VerdictKind::Throttle, Throttled).congested(),
        400..=499 => Row::plain(VerdictKind::Terminal),
        503 => Row::held(VerdictKind::Hold, Http5xx).congested(),
        502 | 504 | 507 | 520..=524 | 530 => Row::held(VerdictKind::Hold, Http5xx),
        511 => Row::local(Captive),
        _ => Row::charged(VerdictKind::Retry),
    }
}

fn transport(kind: TransportKind, bytes_sent: bool, reused: bool, clock_trusted: bool) -> Verdict {
    use TransportKind as T;
    use VerdictKind::{Hold, HoldLocal, Retry};
    let (verdict, hold, reason) = match kind {
        T::Dns => (HoldLocal, HoldReason::Dns, "name lookup failed"),
        T::NoNetwork => (HoldLocal, HoldReason::Network, "no route to the network"),
        T::Refused => (Hold, HoldReason::Refused, "connection refused"),
        T::ConnectTimeout => (Hold, HoldReason::Timeout, "connect timeout"),
        T::ClockUntrusted => (HoldLocal, HoldReason::Clock, "the clock is not trusted to sign"),
        T::TlsNotYetValid if !clock_trusted => (HoldLocal, HoldReason::Clock, "certificate not valid yet"),
        T::TlsNotYetValid => (Hold, HoldReason::Tls, "certificate not valid yet"),
        T::TlsExpired if !clock_trusted => (HoldLocal, HoldReason::Clock, "certificate expired"),
        T::TlsExpired => (Hold, HoldReason::Tls, "certificate expired"),
        T::Tls => (Hold, HoldReason::Tls, "tls handshake failed"),
        T::Reset => (Retry, HoldReason::Refused, "connection reset"),
        T::Timeout => (Retry, HoldReason::Timeout, "timeout"),
        T::Protocol => (Retry, HoldReason::Http5xx, "answer is not http"),
    };
    Verdict {
        kind: verdict,
        reason: reason.to_owned(),
        status: None,
        hold: Some(hold),
        // Before a byte has left nothing can have happened to the event, so it pays nothing.
        charged: verdict == Retry && bytes_sent,
        free_repeat: kind == T::Reset && reused,
        congestion: kind == T::Timeout,
        pause: None,
        bytes_sent,
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
