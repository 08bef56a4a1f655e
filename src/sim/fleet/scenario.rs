//! What a fleet goes through, and what it came to.

use std::time::Duration;

use crate::core::policy::{EndpointPolicy, PolicyKind, WhenEmpty};

/// How the receiver fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outage {
    /// Connections are refused.
    Refuses,
    /// It answers 503.
    Answers503,
    /// It takes the request and never answers.
    Hangs,
    /// It serves on with this share of its capacity.
    Brownout(f64),
    /// It stands still and answers after the thaw, also those who have given up by then.
    Freezes,
}

/// A failure besides the outage that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trouble {
    /// After the beginning of the run.
    pub from: Duration,
    /// For how long.
    pub length: Duration,
    /// How it fails.
    pub kind: Outage,
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Boxes.
    pub appliances: u32,
    /// Events a second and box, on average.
    pub rate_per_s: f64,
    /// Whether events come at equal distances rather than at random.
    pub regular: bool,
    /// Healthy time before the outage.
    pub warm_up: Duration,
    /// Length of the outage.
    pub outage: Duration,
    /// How it fails.
    pub outage_kind: Outage,
    /// What else goes wrong. Where several overlap the first one counts, the measured outage before all.
    pub troubles: Vec<Trouble>,
    /// Requests a second that the receiver can serve.
    pub capacity_per_s: f64,
    /// Work of a refusal, as a share of serving.
    pub refusal_cost: f64,
    /// Longest wait in the receiver before it refuses.
    pub queue: Duration,
    /// Network round trip.
    pub round_trip: Duration,
    /// Give up on the drain after this.
    pub drain_max: Duration,
    /// Go on after the drain until so much time has passed since the beginning.
    pub run_for: Duration,
    /// Stop after so many attempts, for policies that would go on for ever.
    pub attempts_max: u64,
    /// Delivery policy of every box.
    pub policy: EndpointPolicy,
    /// Attempt timeout.
    pub timeout: Duration,
    /// Seed of everything.
    pub seed: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            appliances: 1,
            rate_per_s: 10.0,
            regular: false,
            warm_up: Duration::from_secs(30),
            outage: Duration::from_mins(10),
            outage_kind: Outage::Refuses,
            troubles: Vec::new(),
            capacity_per_s: 500.0,
            refusal_cost: 0.1,
            queue: Duration::from_millis(250),
            round_trip: Duration::from_millis(20),
            drain_max: Duration::from_hours(1),
            run_for: Duration::ZERO,
            attempts_max: u64::MAX,
            policy: EndpointPolicy::default(),
            timeout: Duration::from_secs(10),
            seed: 1,
        }
    }
}

/// One second of a run, for charts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Attempts that began in it.
    pub sent: u32,
    /// Of them, served.
    pub served: u32,
    /// Deliveries that were neither done nor dead at its end.
    pub open: u64,
}

/// What it came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Events taken on in all.
    pub accepted: u64,
    /// Events accepted during the outage.
    pub accepted_in_outage: u64,
    /// Delivered in all.
    pub delivered: u64,
    /// Dead letters in all.
    pub dead: u64,
    /// Dead because the retry budget was empty, of events accepted in the outage.
    pub shed_in_outage: u64,
    /// Dead because their attempts were used up, of events accepted in the outage.
    pub exhausted_in_outage: u64,
    /// From the beginning of the outage to the first dead letter.
    pub first_death_after: Option<Duration>,
    /// Attempts during the outage.
    pub attempts_in_outage: u64,
    /// Of them, those that sent a body.
    pub bodies_in_outage: u64,
    /// Attempts in all.
    pub attempts: u64,
    /// Of them, those that sent a body.
    pub bodies: u64,
    /// Pending at the end of the outage.
    pub backlog: u64,
    /// From the end of the outage to the first success.
    pub noticed_after: Option<Duration>,
    /// The same for the mean of the boxes that noticed.
    pub noticed_mean: Option<Duration>,
    /// And for the last of them.
    pub noticed_last: Option<Duration>,
    /// From the end of the outage until 2 % of the backlog is left.
    pub drained_after: Option<Duration>,
    /// From the end of the outage until nothing is left of it.
    pub empty_after: Option<Duration>,
    /// The shortest possible drain: backlog over what the capacity leaves beside new events.
    pub ideal: Duration,
    /// Most requests in one second of the drain.
    pub peak_per_s: u64,
    /// Most attempts of one box in flight in the first second after it noticed.
    pub first_second_in_flight: u32,
    /// Requests served and refused in the drain.
    pub served: u64,
    /// See `served`.
    pub refused: u64,
    /// Whether [`Scenario::attempts_max`] ended it.
    pub cut_short: bool,
    /// The run second by second.
    pub seconds: Vec<Second>,
    /// Hash of everything that happened.
    pub trace: u64,
}

/// The article's policy with its numbers, as one dispatcher without a limit on attempts at once.
pub fn article() -> EndpointPolicy {
    let mut policy =
        EndpointPolicy { kind: PolicyKind::Article, in_flight_max: 1_000_000, ..EndpointPolicy::default() };
    policy.budget.when_empty = WhenEmpty::DeadLetter;
    policy.retry.retrying_max = usize::MAX;
    policy
}

/// The usual queue with retries: every event on its own ladder of jittered delays until it is delivered; no hold, no
/// budget, no window.
pub fn ladder() -> EndpointPolicy {
    let mut policy = article();
    policy.retry.attempts_max = u32::MAX;
    policy.budget.when_empty = WhenEmpty::Defer;
    policy.budget.ceiling = f64::MAX;
    policy
}
