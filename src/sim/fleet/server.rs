//! The receiver of a fleet: one request after another, and what is wrong with it at which time.

use std::time::Duration;

use super::scenario::{Outage, Scenario, Trouble};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// 200.
    Served,
    /// 503.
    Refused,
    /// Nobody listens.
    NoConnection,
    /// No answer in time.
    TimedOut,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Server {
    troubles: Vec<Trouble>,
    work_s: f64,
    refusal_cost: f64,
    queue_s: f64,
    round_trip: Duration,
    timeout: Duration,
    /// Work that it has taken on, as the moment when it is done, in seconds.
    busy_until_s: f64,
}

impl Server {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let outage = Trouble { from: scenario.warm_up, length: scenario.outage, kind: scenario.outage_kind };
        Self {
            troubles: std::iter::once(outage).chain(scenario.troubles.iter().copied()).collect(),
            work_s: 1.0 / scenario.capacity_per_s,
            refusal_cost: scenario.refusal_cost,
            queue_s: scenario.queue.as_secs_f64(),
            round_trip: scenario.round_trip,
            timeout: scenario.timeout,
            busy_until_s: 0.0,
        }
    }

    /// A request arrives: what becomes of it, and after how long the caller knows.
    pub(super) fn take(&mut self, now: Duration) -> (Reply, Duration) {
        let trouble =
            self.troubles.iter().find(|trouble| now >= trouble.from && now < trouble.from + trouble.length);
        match trouble.map(|trouble| (trouble.kind, trouble.from + trouble.length)) {
            Some((Outage::Refuses, _)) => (Reply::NoConnection, self.round_trip),
            Some((Outage::Answers503, _)) => (Reply::Refused, self.round_trip),
            Some((Outage::Hangs, _)) => (Reply::TimedOut, self.timeout),
            Some((Outage::Freezes, thaw)) => {
                self.busy_until_s = self.busy_until_s.max(thaw.as_secs_f64());
                self.serve(now, 1.0, f64::INFINITY)
            }
            Some((Outage::Brownout(share), _)) => self.serve(now, share.max(1e-6), self.queue_s),
            None => self.serve(now, 1.0, self.queue_s),
        }
    }

    fn serve(&mut self, now: Duration, share: f64, queue_s: f64) -> (Reply, Duration) {
        let now_s = now.as_secs_f64();
        let wait_s = (self.busy_until_s - now_s).max(0.0);
        let refuse = wait_s > queue_s;
        let work_s = self.work_s / share * if refuse { self.refusal_cost } else { 1.0 };
        self.busy_until_s = self.busy_until_s.max(now_s) + work_s;
        if refuse {
            return (Reply::Refused, self.round_trip);
        }
        let latency = self.round_trip + Duration::from_secs_f64(wait_s + work_s);
        if latency > self.timeout { (Reply::TimedOut, self.timeout) } else { (Reply::Served, latency) }
    }
}
