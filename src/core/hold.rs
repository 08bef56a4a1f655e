//! Health of one endpoint: when it counts as down, why, and when it is probed (a circuit breaker, said once).
//!
//! Evidence comes in verdict by verdict. A hold trips on faults that belong to the endpoint or to this box, never on
//! those of one event; one success takes all evidence back. While it lasts nothing is charged and only probes run:
//! decorrelated delays from `probe_base` to `probe_cap`, never sooner than the receiver asked for.
//!
//! It counts and keeps times. What becomes of a delivery is [`super::decide`]'s branch, which delivery is the probe is
//! the [`super::dispatcher`]'s.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::backoff;
use super::classify::{Verdict, VerdictKind};
use super::ids::Seq;
use super::policy::HoldPolicy;
use super::time::StoreTime;

/// Distinct events that must fail before an endpoint is blamed (DESIGN 5.6).
const EVENTS_MIN: usize = 3;
/// Consecutive refusals of the credentials (DESIGN 5.6).
const AUTH_FAULTS: u32 = 3;
/// Consecutive failed lookups: one may be a lost packet.
const DNS_FAULTS: u32 = 2;
/// Failures without one success inside [`RUN_WITHIN`] (DESIGN 5.6).
const RUN_MAX: usize = 10;
/// See [`RUN_MAX`].
const RUN_WITHIN: Duration = Duration::from_secs(30);
/// Events of a streak that are remembered, to give their attempts back. A trip comes far earlier.
const STREAK_MAX: usize = 64;
/// Terminal answers of one kind in a row, after earlier success, that are a storm (RETRY R8).
const STORM_RUN: u32 = 20;
/// Or at least so many within [`STORM_WITHIN`], if they are half of what ended in it.
const STORM_MIN: usize = 10;
/// See [`STORM_MIN`].
const STORM_WITHIN: Duration = Duration::from_secs(60);
/// Ends that the storm guard looks back on; bounds memory and work.
const STORM_LOOK_BACK: usize = 256;
/// Spread of probes after a link change, so that a fleet behind one uplink does not come as one (RETRY 3.5).
const LINK_SPREAD: Duration = Duration::from_secs(5);

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

/// A hold that lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// Why.
    pub reason: HoldReason,
    /// The same in a sentence, with the last cause.
    pub detail: String,
    /// Since when.
    pub since: StoreTime,
    /// When the next probe may start.
    pub next_probe: StoreTime,
    /// Terminal answers of this status caused it: such an answer does not end it and kills no event.
    pub storm: Option<u16>,
    /// State of the decorrelated delay.
    previous_delay: Duration,
}

/// Evidence since the last success.
#[derive(Clone, Debug, Default)]
struct Streak {
    /// Faults in a row; a terminal answer ends the row, for it shows that the endpoint works.
    faults: u32,
    /// Distinct events among them.
    events: Vec<Seq>,
    /// Refused credentials in a row.
    auth: u32,
    /// Failed lookups in a row.
    dns: u32,
    /// Distinct events that met a wrong set-up.
    config: Vec<Seq>,
    /// Times of the last faults.
    run: VecDeque<StoreTime>,
    /// Terminal answers of one status in a row.
    terminal: Option<(u16, u32)>,
}

/// Health of one endpoint.
#[derive(Clone, Debug)]
pub struct Health {
    policy: HoldPolicy,
    ever_succeeded: bool,
    streak: Streak,
    /// Number of the streak; a success starts the next.
    streak_number: u64,
    /// Deliveries that ended lately: when, and the status if terminal.
    ends: VecDeque<(StoreTime, Option<u16>)>,
    hold: Option<Hold>,
}

impl Health {
    /// A healthy endpoint without history.
    pub fn new(policy: HoldPolicy) -> Self {
        Self {
            policy,
            ever_succeeded: false,
            streak: Streak::default(),
            streak_number: 1,
            ends: VecDeque::new(),
            hold: None,
        }
    }

    /// The hold, while it lasts.
    pub fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Whether it has ever taken an event since start.
    pub fn ever_succeeded(&self) -> bool {
        self.ever_succeeded
    }

    /// Number of the present streak: tells whether an item's charges belong to it.
    pub fn streak_number(&self) -> u64 {
        self.streak_number
    }

    /// Events that failed in the present streak.
    pub fn streak_events(&self) -> &[Seq] {
        &self.streak.events
    }

    /// Whether this event has failed in the present streak and too few others have been tried to tell whose fault it is.
    pub fn in_doubt(&self, seq: Seq) -> bool {
        self.streak.events.len() < EVENTS_MIN && self.streak.events.contains(&seq)
    }

    /// A delivery was taken. True if that ends a hold.
    pub fn succeeded(&mut self, now: StoreTime) -> bool {
        self.ever_succeeded = true;
        self.ended(now, None);
        self.forget();
        self.hold.take().is_some()
    }

    /// A probe was refused for its own fault, so the endpoint works: the hold ends.
    pub fn answered(&mut self) {
        self.hold = None;
        self.forget();
    }

    /// An operator ends the hold. The storm guard stays off until the next success: the operator has decided.
    pub fn resume(&mut self) {
        if self.hold.take().is_some_and(|hold| hold.storm.is_some()) {
            self.ever_succeeded = false;
        }
        self.ends.clear();
        self.forget();
    }

    fn forget(&mut self) {
        self.streak = Streak::default();
        self.streak_number += 1;
    }

    fn ended(&mut self, now: StoreTime, terminal: Option<u16>) {
        if self.ends.len() == STORM_LOOK_BACK {
            self.ends.pop_front();
        }
        self.ends.push_back((now, terminal));
    }

    /// An attempt failed. `all_pending`: no delivery is known beyond those that failed. True if that trips a hold.
    pub fn failed(
        &mut self,
        seq: Seq,
        verdict: &Verdict,
        all_pending: bool,
        now: StoreTime,
        rng: &mut impl Rng,
    ) -> bool {
        if self.hold.is_some() {
            return false;
        }
        let Some(reason) = self.evidence(seq, verdict, all_pending, now) else { return false };
        let storm = (verdict.kind == VerdictKind::Terminal).then_some(verdict.status.unwrap_or_default());
        let delay = backoff::probe_delay(self.policy.probe_base, self.policy.probe_cap, Duration::ZERO, rng);
        self.hold = Some(Hold {
            reason,
            detail: verdict.reason.clone(),
            since: now,
            next_probe: now + delay.max(verdict.pause.unwrap_or_default()),
            storm,
            previous_delay: delay,
        });
        true
    }

    /// Add evidence; the reason of a hold if it is enough.
    fn evidence(
        &mut self,
        seq: Seq,
        verdict: &Verdict,
        all_pending: bool,
        now: StoreTime,
    ) -> Option<HoldReason> {
        let streak = &mut self.streak;
        if verdict.kind != VerdictKind::HoldAuth {
            streak.auth = 0;
        }
        if verdict.hold != Some(HoldReason::Dns) {
            streak.dns = 0;
        }
        match verdict.kind {
            VerdictKind::Delivered | VerdictKind::Disabled | VerdictKind::Poison => return None,
            VerdictKind::Terminal => return self.terminal(verdict.status.unwrap_or_default(), now),
            VerdictKind::HoldConfig => {
                remember(&mut streak.config, seq);
                let proven = streak.config.len() >= EVENTS_MIN || !self.ever_succeeded;
                return proven.then_some(HoldReason::Config);
            }
            VerdictKind::HoldAuth => {
                streak.auth += 1;
                remember(&mut streak.events, seq);
                if streak.auth >= AUTH_FAULTS {
                    return Some(HoldReason::Auth);
                }
            }
            VerdictKind::HoldLocal => match verdict.hold {
                Some(HoldReason::Dns) => {
                    streak.dns += 1;
                    remember(&mut streak.events, seq);
                    if streak.dns >= DNS_FAULTS {
                        return Some(HoldReason::Dns);
                    }
                }
                // A page with 200 may be one odd answer; 511, no route and a wrong clock speak for themselves.
                Some(HoldReason::Captive) if verdict.status != Some(511) => {}
                local => {
                    remember(&mut streak.events, seq);
                    return local;
                }
            },
            VerdictKind::Retry | VerdictKind::Throttle | VerdictKind::Hold => {}
        }
        let enough = self.fault(seq, all_pending, now);
        enough.then(|| verdict.hold.unwrap_or(HoldReason::Http5xx))
    }

    /// A fault that may be the endpoint's: enough of them in a row, or in a short time, trip.
    fn fault(&mut self, seq: Seq, all_pending: bool, now: StoreTime) -> bool {
        let streak = &mut self.streak;
        streak.faults += 1;
        streak.terminal = None;
        remember(&mut streak.events, seq);
        if streak.run.len() == RUN_MAX {
            streak.run.pop_front();
        }
        streak.run.push_back(now);
        let row = streak.faults >= self.policy.faults && (streak.events.len() >= EVENTS_MIN || all_pending);
        let dense = streak.run.len() == RUN_MAX
            && streak.run.front().is_some_and(|first| now.since(*first) <= RUN_WITHIN);
        row || dense
    }

    /// A terminal answer shows that the endpoint works, unless all events meet the same one.
    fn terminal(&mut self, status: u16, now: StoreTime) -> Option<HoldReason> {
        self.streak.faults = 0;
        self.streak.events.clear();
        let run = match self.streak.terminal {
            Some((last, count)) if last == status => count + 1,
            _ => 1,
        };
        self.streak.terminal = Some((status, run));
        self.ended(now, Some(status));
        if !self.ever_succeeded {
            return None;
        }
        let (mut same, mut all) = (0, 0);
        for (at, end) in self.ends.iter().rev() {
            if now.since(*at) > STORM_WITHIN {
                break;
            }
            all += 1;
            same += usize::from(*end == Some(status));
        }
        let storm = run >= STORM_RUN || (same >= STORM_MIN && same * 2 >= all);
        storm.then_some(HoldReason::Config)
    }

    /// The probe that began at `started` failed: the hold goes on, the next probe comes later. Its delay counts from the
    /// start of this one, so that a receiver that lets probes hang is not found out later than one that refuses them.
    pub fn probe_failed(
        &mut self,
        verdict: &Verdict,
        started: StoreTime,
        now: StoreTime,
        rng: &mut impl Rng,
    ) {
        let Some(hold) = &mut self.hold else { return };
        let (base, cap) = (self.policy.probe_base, self.policy.probe_cap);
        hold.previous_delay = backoff::probe_delay(base, cap, hold.previous_delay, rng);
        let asked = now + base.min(hold.previous_delay).max(verdict.pause.unwrap_or_default());
        hold.next_probe = asked.max(started + hold.previous_delay);
        hold.detail.clone_from(&verdict.reason);
        if let Some(reason) = verdict.hold {
            hold.reason = reason;
            hold.storm = None;
        }
    }

    /// No probe sooner than this.
    pub fn postpone(&mut self, until: StoreTime) {
        if let Some(hold) = &mut self.hold {
            hold.next_probe = hold.next_probe.max(until);
        }
    }

    /// A probe may start at once.
    pub fn probe_now(&mut self, now: StoreTime) {
        if let Some(hold) = &mut self.hold {
            hold.next_probe = hold.next_probe.min(now);
        }
    }

    /// The network changed: probe soon, and start over with short delays.
    pub fn link_changed(&mut self, now: StoreTime, rng: &mut impl Rng) {
        let spread = backoff::uniform(Duration::ZERO, LINK_SPREAD, rng);
        if let Some(hold) = &mut self.hold {
            hold.next_probe = hold.next_probe.min(now + spread);
            hold.previous_delay = Duration::ZERO;
        }
    }
}

fn remember(events: &mut Vec<Seq>, seq: Seq) {
    if events.len() < STREAK_MAX && !events.contains(&seq) {
        events.push(seq);
    }
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
