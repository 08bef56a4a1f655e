//! Outcome of an attempt to verdict: two tables, and the rules for bodies that lie.
//!
//! An [`Outcome`] is what the sender saw, as a value; nothing here searches error text.

use serde::{Deserialize, Serialize};

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
