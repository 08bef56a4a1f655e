//! Health of one endpoint: when it counts as down, when it is probed, and how fast it may be driven.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an endpoint is held (`hold_reason` in `/v1/status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldReason {
    /// The peer refuses connections.
    Refused,
    /// No connection or no answer in time.
    Timeout,
    /// Its name does not resolve.
    Dns,
    /// TLS fails.
    Tls,
    /// It answers 5xx.
    #[serde(rename = "http_5xx")]
    Http5xx,
    /// It asks for less.
    Throttled,
    /// It refuses the credentials.
    Auth,
    /// Its address or set-up is wrong, or it refuses one event after another for the same reason.
    Config,
    /// This box has no network.
    Network,
    /// A captive portal answers in its place.
    Captive,
    /// This box's clock is wrong.
    Clock,
    /// A person stopped it.
    Operator,
}

impl HoldReason {
    /// The word used in status, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            HoldReason::Refused => "refused",
            HoldReason::Timeout => "timeout",
            HoldReason::Dns => "dns",
            HoldReason::Tls => "tls",
            HoldReason::Http5xx => "http_5xx",
            HoldReason::Throttled => "throttled",
            HoldReason::Auth => "auth",
            HoldReason::Config => "config",
            HoldReason::Network => "network",
            HoldReason::Captive => "captive",
            HoldReason::Clock => "clock",
            HoldReason::Operator => "operator",
        }
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
