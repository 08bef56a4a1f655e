//! `waypost plan`: what an outage costs under each policy, from runs of [`super::fleet`].
//!
//! Every figure about attempts, deaths, time and load is counted in a run; only what follows from it by multiplication
//! (bytes, disk, share of a link) is arithmetic here. A fleet that is too large to simulate is made smaller together with
//! its receiver, and the plan says so.

pub mod envelope;

use std::time::Duration;

use serde::Serialize;

use super::fleet::{self, Outage, Report, Scenario, Second};
use crate::core::policy::EndpointPolicy;

/// Disk of an event beside its body: frame, identity, index (485 bytes for a body of 240, docs/PERFORMANCE.md).
pub const DISK_BESIDE_BODY: u64 = 250;
/// What stays free for settlements and copies, as a part of the disk limit (`store::space`).
const DISK_RESERVE_PART: u64 = 16;
/// Bytes of a connection that is refused: its packets there and back.
const REFUSED_BYTES: u64 = 120;
/// Margin of the key's lifetime over the retry window (DESIGN 5.7).
pub const TTL_MARGIN: Duration = Duration::from_hours(6);
/// Healthy time before each outage.
const WARM_UP: Duration = Duration::from_secs(30);
/// Attempts per event after which a run is cut short: ladders would go on for ever.
const ATTEMPTS_PER_EVENT: u64 = 20;
/// Points of a chart's line.
const CHART_POINTS: usize = 240;

/// A policy under its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// As it was asked for.
    pub name: String,
    /// Its settings.
    pub policy: EndpointPolicy,
}

/// What is planned for.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Events a second and box.
    pub rate_per_s: f64,
    /// Boxes.
    pub boxes: u32,
    /// Bytes of an event.
    pub event_bytes: u64,
    /// Bytes of a request and its answer beside the event: headers and a share of TLS.
    pub request_bytes: u64,
    /// Requests a second that the receiver serves.
    pub capacity_per_s: f64,
    /// How it fails.
    pub kind: Outage,
    /// For how long, one after the other.
    pub outages: Vec<Duration>,
    /// Attempt timeout.
    pub timeout: Duration,
    /// Which policies.
    pub policies: Vec<Named>,
    /// Limit on the data directory of a box.
    pub disk_bytes_max: u64,
    /// What a metered link carries in a day.
    pub link_bytes_per_day: Option<u64>,
    /// How long the receiver remembers a key.
    pub key_ttl: Duration,
    /// Seed of the runs.
    pub seed: u64,
    /// Most events of one run.
    pub events_max: u64,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The receiver cannot take even what comes on a good day.
    #[error(
        "the receiver serves {capacity} requests/s and {boxes} boxes bring {offered} events/s: no backlog ever goes; \
         raise --capacity, or lower --rate or --boxes"
    )]
    Overloaded {
        /// Given.
        capacity: f64,
        /// Given.
        boxes: u32,
        /// Their product.
        offered: f64,
    },
    /// One box alone is too much.
    #[error(
        "an outage of {outage_s} s at {rate} events/s is {events} events of one box, more than the {events_max} of a \
         run; raise --events-max (a million takes about 3 s and 20 MB), or lower --rate or --outage"
    )]
    TooLarge {
        /// Given.
        outage_s: u64,
        /// Given.
        rate: f64,
        /// Their product.
        events: u64,
        /// Given.
        events_max: u64,
    },
}

/// One policy in one outage. Counts are those of the whole fleet, also if a smaller one was simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the policy.
    pub policy: String,
    /// Length of the outage.
    pub outage_s: f64,
    /// Boxes that were simulated.
    pub boxes_simulated: u32,
    /// Events accepted in the outage.
    pub events: u64,
    /// Attempts in the outage.
    pub attempts_in_outage: u64,
    /// Bytes sent and received for them.
    pub bytes_in_outage: u64,
    /// Attempts until the end of the run.
    pub attempts: u64,
    /// Bytes for them.
    pub bytes: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// The same in per cent of the events accepted in the outage.
    pub dead_percent: f64,
    /// From the beginning of the outage to the first dead letter.
    pub first_dead_after_s: Option<f64>,
    /// From the end of the outage to the first delivery, the mean of all boxes.
    pub noticed_mean_s: Option<f64>,
    /// The same for the last box.
    pub noticed_last_s: Option<f64>,
    /// Waiting at the end of the outage.
    pub backlog: u64,
    /// From the end of the outage until 2 % of the backlog are left; none: not within the run.
    pub drained_s: Option<f64>,
    /// The shortest time that the receiver's capacity allows.
    pub drain_ideal_s: f64,
    /// The shortest time that the link allows; none: no limit was given, or the link never catches up.
    pub drain_link_s: Option<f64>,
    /// Most requests in a second of the drain.
    pub peak_per_s: u64,
    /// The same as a multiple of the capacity.
    pub peak_per_capacity: f64,
    /// Disk that a box needs for what waits or is dead at the end of the outage.
    pub disk_bytes_needed: u64,
    /// Whether it has that.
    pub disk_suffices: bool,
    /// Whether the run was stopped because it made too many attempts.
    pub cut_short: bool,
    /// Lines of a chart.
    #[serde(skip)]
    pub chart: Vec<Point>,
}

/// A point of a chart's lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Seconds since the beginning of the outage.
    pub at_s: f64,
    /// Deliveries that wait.
    pub open: f64,
    /// Most requests in one second since the last point, as a multiple of the capacity.
    pub load: f64,
}

/// One thing that must hold between settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// For which policy.
    pub policy: String,
    /// Whether it holds.
    pub ok: bool,
    /// What it is about, with the numbers.
    pub text: String,
}

/// The plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Each policy in each outage.
    pub rows: Vec<Row>,
    /// Hours until a box is full if nothing leaves it.
    pub full_after_h: f64,
    /// Share of the link that fresh events take, in per cent.
    pub link_fresh_percent: Option<f64>,
    /// Windows and lifetimes.
    pub checks: Vec<Check>,
    /// Delays of the three laws with the first policy's base and cap.
    pub envelopes: Vec<envelope::Envelope>,
}

/// Simulate everything that was asked for.
pub fn run(inputs: &Inputs) -> Result<Plan, PlanError> {
    let offered = inputs.rate_per_s * f64::from(inputs.boxes);
    if offered >= inputs.capacity_per_s {
        let (capacity, boxes) = (inputs.capacity_per_s, inputs.boxes);
        return Err(PlanError::Overloaded { capacity, boxes, offered });
    }
    let mut rows = Vec::new();
    for outage in &inputs.outages {
        let boxes = boxes_simulated(inputs, *outage)?;
        for named in &inputs.policies {
            rows.push(row(inputs, named, *outage, boxes));
        }
    }
    let per_day = inputs.rate_per_s * 86_400.0 * (inputs.event_bytes + inputs.request_bytes) as f64;
    Ok(Plan {
        rows,
        full_after_h: room(inputs) as f64 / (inputs.rate_per_s * stored(inputs) as f64) / 3600.0,
        link_fresh_percent: inputs.link_bytes_per_day.map(|link| per_day / link.max(1) as f64 * 100.0),
        checks: inputs.policies.iter().flat_map(|named| checks(inputs, named)).collect(),
        envelopes: inputs
            .policies
            .first()
            .map(|named| envelope::all(&named.policy.retry, inputs.seed))
            .unwrap_or_default(),
    })
}

fn stored(inputs: &Inputs) -> u64 {
    inputs.event_bytes + DISK_BESIDE_BODY
}

fn room(inputs: &Inputs) -> u64 {
    inputs.disk_bytes_max - inputs.disk_bytes_max / DISK_RESERVE_PART
}

/// Events of one box in outage and drain: what comes while the backlog goes counts too.
fn expected_events(inputs: &Inputs, outage: Duration) -> f64 {
    let share = inputs.rate_per_s * f64::from(inputs.boxes) / inputs.capacity_per_s;
    inputs.rate_per_s * (WARM_UP + outage).as_secs_f64() / (1.0 - share).max(0.05)
}

/// As many boxes as a run of this outage can hold.
fn boxes_simulated(inputs: &Inputs, outage: Duration) -> Result<u32, PlanError> {
    let of_one = expected_events(inputs, outage);
    let boxes = (inputs.events_max as f64 / of_one.max(1.0)) as u32;
    if boxes == 0 {
        let events = of_one as u64;
        let (rate, events_max) = (inputs.rate_per_s, inputs.events_max);
        return Err(PlanError::TooLarge { outage_s: outage.as_secs(), rate, events, events_max });
    }
    Ok(boxes.min(inputs.boxes))
}

fn row(inputs: &Inputs, named: &Named, outage: Duration, boxes: u32) -> Row {
    let scale = f64::from(inputs.boxes) / f64::from(boxes);
    let capacity_per_s = inputs.capacity_per_s / scale;
    let offered = inputs.rate_per_s * f64::from(boxes);
    let ideal_s = offered * outage.as_secs_f64() / (capacity_per_s - offered);
    let report = fleet::run(&Scenario {
        appliances: boxes,
        rate_per_s: inputs.rate_per_s,
        warm_up: WARM_UP,
        outage,
        outage_kind: inputs.kind,
        capacity_per_s,
        drain_max: Duration::from_secs_f64(ideal_s * 3.0) + Duration::from_mins(4),
        attempts_max: (expected_events(inputs, outage) * f64::from(boxes)) as u64 * ATTEMPTS_PER_EVENT,
        policy: named.policy.clone(),
        timeout: inputs.timeout,
        seed: inputs.seed,
        ..Scenario::default()
    });
    let all = |count: u64| (count as f64 * scale).round() as u64;
    let bytes = |attempts: u64, bodies: u64| {
        all(bodies) * (inputs.event_bytes + inputs.request_bytes) + all(attempts - bodies) * REFUSED_BYTES
    };
    let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
    let kept = report.backlog + report.dead;
    let disk_bytes_needed = (kept as f64 / f64::from(boxes) * stored(inputs) as f64) as u64;
    Row {
        policy: named.name.clone(),
        outage_s: outage.as_secs_f64(),
        boxes_simulated: boxes,
        events: all(report.accepted_in_outage),
        attempts_in_outage: all(report.attempts_in_outage),
        bytes_in_outage: bytes(report.attempts_in_outage, report.bodies_in_outage),
        attempts: all(report.attempts),
        bytes: bytes(report.attempts, report.bodies),
        dead_letters: all(report.dead),
        dead_percent: report.dead as f64 * 100.0 / report.accepted_in_outage.max(1) as f64,
        first_dead_after_s: seconds(report.first_death_after),
        noticed_mean_s: seconds(report.noticed_mean),
        noticed_last_s: seconds(report.noticed_last),
        backlog: all(report.backlog),
        drained_s: seconds(report.drained_after),
        drain_ideal_s: report.ideal.as_secs_f64(),
        drain_link_s: drain_link_s(inputs, report.backlog as f64 / f64::from(boxes)),
        peak_per_s: all(report.peak_per_s),
        peak_per_capacity: report.peak_per_s as f64 / capacity_per_s,
        disk_bytes_needed,
        disk_suffices: disk_bytes_needed <= room(inputs),
        cut_short: report.cut_short,
        chart: chart(&report, scale, capacity_per_s),
    }
}

/// How long a box's link needs for its backlog beside new events.
fn drain_link_s(inputs: &Inputs, backlog: f64) -> Option<f64> {
    let link_per_s = inputs.link_bytes_per_day? as f64 / 86_400.0;
    let request = (inputs.event_bytes + inputs.request_bytes) as f64;
    let spare = link_per_s - inputs.rate_per_s * request;
    (spare > 0.0).then(|| backlog * request / spare)
}

fn checks(inputs: &Inputs, named: &Named) -> Vec<Check> {
    let hours = |duration: Duration| duration.as_secs_f64() / 3600.0;
    let window = named.policy.retry.window;
    let longest = inputs.outages.iter().max().copied().unwrap_or_default();
    let check = |ok, text| Check { policy: named.name.clone(), ok, text };
    if named.policy.kind == crate::core::policy::PolicyKind::Article {
        return Vec::new(); // it knows attempts, no window
    }
    vec![
        check(
            window + TTL_MARGIN <= inputs.key_ttl,
            format!(
                "retry window {:.1} h + 6 h for redrives must be within the receiver's key lifetime of {:.1} h, else \
                 a late repeat is taken as new",
                hours(window),
                hours(inputs.key_ttl)
            ),
        ),
        check(
            window > longest,
            format!(
                "retry window {:.1} h must outlast the longest outage of {:.1} h, else its first events expire",
                hours(window),
                hours(longest)
            ),
        ),
    ]
}

/// The run from the beginning of the outage in [`CHART_POINTS`] steps: peaks stay peaks.
fn chart(report: &Report, scale: f64, capacity_per_s: f64) -> Vec<Point> {
    let from = WARM_UP.as_secs() as usize;
    let seconds: &[Second] = report.seconds.get(from..).unwrap_or_default();
    let step = seconds.len().div_ceil(CHART_POINTS).max(1);
    seconds
        .chunks(step)
        .enumerate()
        .map(|(index, chunk)| Point {
            at_s: (index * step) as f64,
            open: chunk.iter().map(|second| second.open).max().unwrap_or(0) as f64 * scale,
            load: f64::from(chunk.iter().map(|second| second.sent).max().unwrap_or(0)) / capacity_per_s,
        })
        .collect()
}
