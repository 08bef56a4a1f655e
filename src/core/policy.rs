//! Checked settings of one endpoint's delivery policy: what `config` makes from TOML and what `decide` reads.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which status table and which answer to an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Store and forward: hold the endpoint, probe, drain (DESIGN 5.3 to 5.6).
    #[default]
    Edge,
    /// The source article to the letter: its table, no hold, an empty budget dead-letters.
    Article,
}

/// Law of the random delay (formulas in [`crate::core::backoff`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Jitter {
    /// `uniform(0, min(cap, base * 2^n))`
    Full,
    /// `half + uniform(0, half)`, `half = min(cap, base * 2^n) / 2`
    Equal,
    /// `min(cap, uniform(base, previous * 3))`
    #[default]
    Decorrelated,
    /// `min(cap, base * 2^n) + uniform(0, 1 s)`
    Additive,
}

/// What an empty retry budget does to a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenEmpty {
    /// The retry waits for a token.
    #[default]
    Defer,
    /// The delivery becomes a dead letter (the article's shedding).
    DeadLetter,
}

/// Delays and limits of retries.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Law of the delay.
    pub jitter: Jitter,
    /// First and smallest delay.
    pub base: Duration,
    /// Largest delay.
    pub cap: Duration,
    /// Attempts that blame the event, the first included.
    pub attempts_max: u32,
    /// From acceptance; after it the delivery is dead, class `expired`.
    pub window: Duration,
    /// Upper bound on what a server may ask for in Retry-After.
    pub retry_after_max: Duration,
    /// Deliveries of one endpoint that may be between attempts; beyond it no first attempts are made.
    pub retrying_max: usize,
}

/// Token bucket that retries spend and successes refill (DESIGN 5.5).
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetPolicy {
    /// Tokens per success.
    pub ratio: f64,
    /// Largest level, and the level of a new store.
    pub ceiling: f64,
    /// Tokens per second.
    pub min_per_sec: f64,
    /// What happens to a retry that finds it empty.
    pub when_empty: WhenEmpty,
}

/// When an endpoint counts as down and how it is probed (DESIGN 5.6).
#[derive(Clone, Debug, PartialEq)]
pub struct HoldPolicy {
    /// Consecutive faults that trip a hold.
    pub faults: u32,
    /// First delay between probes.
    pub probe_base: Duration,
    /// Largest delay between probes.
    pub probe_cap: Duration,
}

/// How a 2xx answer is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BodyCheck {
    /// Anything but `text/html` is success.
    #[default]
    Default,
    /// Any 2xx is success, whatever the body.
    None,
    /// The body must be JSON without a top-level `error` member.
    Json,
    /// Esri REST: errors arrive as 200 with `{"error":…}` or `success:false`.
    Esri,
    /// OGC WFS: errors arrive as 200 with an ExceptionReport.
    Wfs,
    /// SensorThings: batches answer 201 with error strings per item.
    Sta,
}

/// Whether deliveries wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderedBy {
    /// They do not.
    #[default]
    None,
    /// Those of one device go out one after another, in the order they were accepted.
    Device,
}

/// When dead letters send themselves again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedrivePolicy {
    /// Whether transient ones do, once the endpoint is well again.
    pub auto: bool,
    /// At most so many a second.
    pub per_s: f64,
}

/// Limits on what is sent, for receivers and links that cannot take more.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct RatePolicy {
    /// Requests a second.
    pub requests_per_s: Option<f64>,
    /// Bytes a second, requests with their headers.
    pub bytes_per_s: Option<f64>,
}

/// A verdict that an operator pins to a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Override {
    /// Count as delivered.
    Delivered,
    /// Retry with backoff, blame the event.
    Retry,
    /// Evidence that the endpoint is down.
    Hold,
    /// Dead letter at once.
    Terminal,
}

/// Everything that decides about attempts at one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointPolicy {
    /// Status table and outage behaviour.
    pub kind: PolicyKind,
    /// Attempts that may run at once.
    pub in_flight_max: u32,
    /// Delays and limits.
    pub retry: RetryPolicy,
    /// Retry budget.
    pub budget: BudgetPolicy,
    /// Hold and probe.
    pub hold: HoldPolicy,
    /// Order of deliveries.
    pub ordered_by: OrderedBy,
    /// Dead letters that send themselves again.
    pub redrive: RedrivePolicy,
    /// Limits on the sending rate.
    pub rate: RatePolicy,
    /// Belief in 2xx.
    pub body_check: BodyCheck,
    /// Pinned verdicts by status.
    pub overrides: BTreeMap<u16, Override>,
}

/// What an accept does on a full store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// 507 with Retry-After.
    #[default]
    Reject,
    /// The oldest pending deliveries are dropped and counted.
    DropOldest,
}

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self {
            kind: PolicyKind::Edge,
            in_flight_max: 32,
            retry: RetryPolicy {
                jitter: Jitter::Decorrelated,
                base: Duration::from_millis(500),
                cap: Duration::from_secs(30),
                attempts_max: 6,
                window: Duration::from_hours(72),
                retry_after_max: Duration::from_hours(24),
                retrying_max: 10_000,
            },
            budget: BudgetPolicy {
                ratio: 0.1,
                ceiling: 100.0,
                min_per_sec: 1.0,
                when_empty: WhenEmpty::Defer,
            },
            hold: HoldPolicy {
                faults: 5,
                probe_base: Duration::from_secs(5),
                probe_cap: Duration::from_mins(1),
            },
            ordered_by: OrderedBy::None,
            redrive: RedrivePolicy { auto: true, per_s: 5.0 },
            rate: RatePolicy::default(),
            body_check: BodyCheck::Default,
            overrides: BTreeMap::new(),
        }
    }
}
