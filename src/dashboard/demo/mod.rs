//! Made-up data: the same for the same seed and time, for documentation, trying keys, and screen tests.
//!
//! A gateway with three endpoints lives through a cycle: all well, one endpoint down for twelve minutes, the drain,
//! all well again. Names, places and numbers are invented.

mod lists;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::core::classify::VerdictKind;
use crate::core::delivery::AttemptRecord;
use crate::core::history::{History, Sample};
use crate::core::time::UnixMillis;
use crate::wire::{
    AccessView, AttemptsView, BackoffView, BudgetView, ClockView, DeadLetterCount, EndpointActionView,
    EndpointState, EndpointView, HistoryView, LatencyView, LedgerView, LogLine, LogView, MapCell, MapView,
    RatesView, RecentAttempt, StatusView, StoreView, Way, ZoneView,
};

use super::feed::Source;
use super::message::{Answer, EndpointVerb, FetchError, Request};
use super::viewport::meets;
use lists::dead_traits;

/// Noon of a summer's day, Unix milliseconds: demo frames do not change with the calendar.
const EPOCH_MS: i64 = 1_785_585_600_000;
/// The outage begins so many seconds into the cycle, and ends so many later.
const OUTAGE_AT_S: u64 = 600;
/// Length of the outage.
const OUTAGE_S: u64 = 725;
/// Time until the backlog is gone again.
const DRAIN_S: u64 = 150;
/// A whole cycle.
const CYCLE_S: u64 = 1_800;
/// Where in the cycle the demo begins: ten minutes into the outage, two before its end.
const BEGIN_S: u64 = OUTAGE_AT_S + 600;
/// Where the printed frame stands: the outage is twelve minutes old.
const ONCE_S: u64 = OUTAGE_AT_S + 721;
/// Dead letters unless told otherwise.
const DEAD_TOTAL: u64 = 1_284;

/// What the gateway is going through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Just started, nothing accepted.
    Empty,
    /// All well.
    Healthy,
    /// One endpoint down.
    Held,
    /// It is back, the backlog goes out.
    Draining,
    /// The disk is full.
    FullDisk,
}

/// Made-up data as a source.
#[derive(Clone, Debug)]
pub struct Demo {
    started: Instant,
    begin_s: u64,
    scene: Option<Scene>,
    dead_total: u64,
    /// Dead letters that were redriven or discarded here.
    gone: Arc<Mutex<BTreeSet<u64>>>,
    /// Endpoints that were paused here.
    paused: Arc<Mutex<BTreeSet<String>>>,
}

/// A number that looks random, the same for the same input (splitmix64's finaliser).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The same in `0.0..1.0`.
fn share(value: u64) -> f64 {
    (mix(value) >> 11) as f64 / (1u64 << 53) as f64
}

/// Places that the made-up fleet drives through: longitude, latitude, weight.
const PLACES: [(f64, f64); 12] = [
    (13.40, 52.52),
    (9.99, 53.55),
    (11.58, 48.14),
    (6.96, 50.94),
    (16.37, 48.21),
    (8.54, 47.37),
    (2.35, 48.86),
    (4.90, 52.37),
    (21.01, 52.23),
    (-74.00, 40.71),
    (139.69, 35.69),
    (151.21, -33.87),
];

fn place(index: u64) -> (f64, f64) {
    // Most of the fleet is in the first few places.
    let at = (share(index) * share(index + 7_000) * PLACES.len() as f64) as usize;
    let (lon, lat) = PLACES[at.min(PLACES.len() - 1)];
    (lon + (share(index + 1_000) - 0.5) * 2.0, lat + (share(index + 2_000) - 0.5))
}

fn rfc3339(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms).map(|stamp| stamp.to_string()).unwrap_or_default()
}

fn id(index: u64) -> String {
    format!(
        "019f1a2b-{:04x}-7{:03x}-8{:03x}-{:012x}",
        index & 0xffff,
        mix(index) & 0xfff,
        mix(index + 1) & 0xfff,
        mix(index + 2) & 0xffff_ffff_ffff
    )
}

impl Demo {
    /// Begins in the middle of an outage and goes on in real time.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            begin_s: BEGIN_S,
            scene: None,
            dead_total: DEAD_TOTAL,
            gone: Arc::default(),
            paused: Arc::default(),
        }
    }

    /// Stands still at the moment that is printed.
    pub fn still() -> Self {
        Self { begin_s: ONCE_S, ..Self::of_scene(Scene::Held) }
    }

    /// Stands still in one scene.
    pub fn of_scene(scene: Scene) -> Self {
        let begin_s = match scene {
            Scene::Empty => 0,
            Scene::Healthy | Scene::FullDisk => OUTAGE_AT_S - 60,
            Scene::Held => ONCE_S,
            Scene::Draining => OUTAGE_AT_S + OUTAGE_S + DRAIN_S / 3,
        };
        Self { scene: Some(scene), begin_s, ..Self::new() }
    }

    /// With another number of dead letters.
    #[must_use]
    pub fn with_dead(self, dead_total: u64) -> Self {
        Self { dead_total, ..self }
    }

    fn now_s(&self) -> u64 {
        let elapsed_s = if self.scene.is_some() { 0 } else { self.started.elapsed().as_secs() };
        self.begin_s + elapsed_s
    }

    fn dead_count(&self) -> u64 {
        if self.scene == Some(Scene::Empty) {
            return 0;
        }
        self.dead_total - self.gone.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// Where the cycle stands at a second, as a scene and the seconds into it.
    fn scene_at(&self, second: u64) -> (Scene, u64) {
        let in_cycle = second % CYCLE_S;
        match in_cycle {
            _ if self.scene == Some(Scene::FullDisk) => (Scene::FullDisk, in_cycle),
            _ if self.scene == Some(Scene::Empty) => (Scene::Empty, in_cycle),
            0..OUTAGE_AT_S => (Scene::Healthy, in_cycle),
            _ if in_cycle < OUTAGE_AT_S + OUTAGE_S => (Scene::Held, in_cycle - OUTAGE_AT_S),
            _ if in_cycle < OUTAGE_AT_S + OUTAGE_S + DRAIN_S => {
                (Scene::Draining, in_cycle - OUTAGE_AT_S - OUTAGE_S)
            }
            _ => (Scene::Healthy, in_cycle - OUTAGE_AT_S - OUTAGE_S - DRAIN_S),
        }
    }

    /// The state at a second of the story.
    pub fn status(&self, second: u64) -> StatusView {
        let (scene, into_s) = self.scene_at(second);
        let endpoints = if scene == Scene::Empty {
            vec![endpoint("hq", "https://hq.example", 0, EndpointState::Up, 0, 0)]
        } else {
            self.endpoints(scene, into_s, second)
        };
        let pending: u64 = endpoints.iter().map(|one| one.pending).sum();
        let dead = self.dead_count();
        let delivered: u64 = endpoints.iter().map(|one| one.delivered).sum();
        let discarded = u64::from(scene != Scene::Empty) * 12;
        let full = scene == Scene::FullDisk;
        StatusView {
            node: "gw-017".to_owned(),
            version: "0.1.0".to_owned(),
            ready: !full,
            not_ready_reason: full.then(|| "the store is at its limit of 1.0 GiB".to_owned()),
            uptime_s: if scene == Scene::Empty { 4 } else { 11_520 + second },
            ledger: LedgerView {
                accepted: delivered + pending + dead + discarded,
                delivered,
                pending,
                dead,
                discarded,
                duplicates: delivered / 800,
                balanced: true,
                ..LedgerView::default()
            },
            endpoints,
            store: store(scene, pending + dead),
            clock: ClockView { trusted: true },
            resident_bytes: 41 << 20,
            rates: rates(scene, second),
            at_ms: EPOCH_MS + second as i64 * 1000,
            warnings: if full {
                vec!["intake answers 507 until space is free".to_owned()]
            } else {
                Vec::new()
            },
        }
    }

    fn endpoints(&self, scene: Scene, into_s: u64, second: u64) -> Vec<EndpointView> {
        let flicker = mix(second) % 5;
        let dead = self.dead_count();
        let mut hq =
            endpoint("hq", "https://hq.example", 181_240, EndpointState::Up, 2 + flicker, dead * 3 / 4);
        match scene {
            Scene::Held => hold(&mut hq, into_s),
            Scene::Draining => {
                hq.pending = (OUTAGE_S * 58 / 10).saturating_sub(into_s * 28);
                hq.oldest_pending_age_s = OUTAGE_S.saturating_sub(into_s * 4);
                hq.in_flight = 18;
                hq.window = 18;
                hq.drained_in_s = Some(hq.pending / 28);
                hq.budget.tokens = 34.0 + into_s as f64 / 4.0;
            }
            Scene::Empty | Scene::Healthy | Scene::FullDisk => {}
        }
        let archive = endpoint(
            "archive",
            "https://archive.example",
            184_031,
            EndpointState::Up,
            1 + flicker / 2,
            dead / 4,
        );
        let city = endpoint("city", "https://city.example", 91_877, EndpointState::Up, flicker / 3, 0);
        let mut all = vec![hq, archive, city];
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        for one in all.iter_mut().filter(|one| paused.contains(&one.name)) {
            one.state = EndpointState::Paused;
            one.in_flight = 0;
        }
        all
    }
}

impl Default for Demo {
    fn default() -> Self {
        Self::new()
    }
}

fn endpoint(
    name: &str,
    url: &str,
    delivered: u64,
    state: EndpointState,
    pending: u64,
    dead: u64,
) -> EndpointView {
    let mut verdicts = BTreeMap::new();
    let mut by_number = Vec::new();
    if delivered > 0 {
        verdicts.insert(VerdictKind::Delivered, delivered);
        verdicts.insert(VerdictKind::Retry, delivered / 90);
        verdicts.insert(VerdictKind::Throttle, delivered / 700);
        verdicts.insert(VerdictKind::Hold, delivered / 1_500);
        verdicts.insert(VerdictKind::Terminal, dead / 2);
        by_number = vec![
            delivered,
            delivered / 70,
            delivered / 300,
            delivered / 900,
            delivered / 2_500,
            delivered / 6_000,
            3,
        ];
    }
    EndpointView {
        name: name.to_owned(),
        url: url.to_owned(),
        state,
        hold_reason: None,
        hold_detail: None,
        held_for_s: None,
        next_probe_in_s: None,
        pending,
        retrying: pending / 3,
        oldest_pending_age_s: u64::from(pending > 0),
        in_flight: u32::try_from(pending.min(32)).unwrap_or(32),
        window: 32,
        budget: BudgetView { tokens: 97.0, ceiling: 100.0 },
        attempts: verdicts.values().sum(),
        delivered,
        dead,
        verdicts,
        attempts_by_number: by_number,
        latency_ms: if delivered > 0 {
            LatencyView { p50: 38.0, p90: 84.0, p99: 412.0, count: delivered / 40 }
        } else {
            LatencyView::default()
        },
        last_outcome: (delivered > 0).then(|| "http 200".to_owned()),
        drained_in_s: None,
        backoff: Some(BackoffView {
            jitter: "decorrelated".to_owned(),
            base_ms: 500,
            cap_ms: 30_000,
            attempts_max: 6,
        }),
    }
}

fn hold(one: &mut EndpointView, into_s: u64) {
    one.state = EndpointState::Held;
    one.hold_reason = Some("refused".to_owned());
    one.hold_detail = Some("connection refused".to_owned());
    one.held_for_s = Some(into_s);
    one.next_probe_in_s = Some(60.0 - (into_s % 60) as f64);
    one.pending = into_s * 58 / 10;
    one.oldest_pending_age_s = into_s;
    one.in_flight = u32::from(into_s.is_multiple_of(60));
    one.window = 1;
    one.budget.tokens = 61.0;
    one.last_outcome = Some("connection refused".to_owned());
    one.drained_in_s = Some(one.pending / 17);
}

fn store(scene: Scene, live: u64) -> StoreView {
    let live_bytes = live * 640;
    let max = 1u64 << 30;
    StoreView {
        disk_bytes: if scene == Scene::FullDisk { max } else { live_bytes + (48 << 20) },
        live_bytes: if scene == Scene::FullDisk { max - (40 << 20) } else { live_bytes },
        events: live,
        quarantined_bytes: 0,
        disk_free_bytes: if scene == Scene::FullDisk { 66 << 20 } else { 21 << 30 },
        disk_bytes_max: max,
        written_bytes: 912 << 20,
        syncs: 184_000,
        keys: 402_311,
        full_in_s: match scene {
            Scene::Held => Some(111_600),
            Scene::FullDisk => Some(0),
            _ => None,
        },
    }
}

fn rates(scene: Scene, second: u64) -> RatesView {
    let wobble = share(second) * 2.0;
    let (accepted_per_s, delivered_per_s, attempts_per_s) = match scene {
        Scene::Empty => (0.0, 0.0, 0.0),
        Scene::Healthy => (16.0 + wobble, 16.0 + wobble, 16.4 + wobble),
        Scene::Held => (16.0 + wobble, 10.2 + wobble, 10.3 + wobble),
        Scene::Draining => (16.0 + wobble, 44.0 + wobble, 44.9 + wobble),
        Scene::FullDisk => (0.0, 3.1 + wobble, 3.2 + wobble),
    };
    RatesView { accepted_per_s, delivered_per_s, attempts_per_s }
}

fn attempt(index: u64, number: u32, verdict: VerdictKind, reason: &str, at_ms: i64) -> AttemptRecord {
    let status = reason.strip_prefix("http ").and_then(|code| code.parse().ok());
    let top = 500.0 * 3f64.powi(number.min(6) as i32);
    let delay_ms = (500.0 + share(index * 13 + u64::from(number)) * (top - 500.0)).min(30_000.0) as u64;
    AttemptRecord {
        number,
        at: UnixMillis(at_ms),
        verdict,
        reason: reason.to_owned(),
        status,
        latency_ms: 20 + (mix(index) % 400) as u32,
        delay_ms: (verdict != VerdictKind::Delivered && verdict != VerdictKind::Terminal).then_some(delay_ms),
        bytes_sent: status.is_some(),
        charged: true,
        answer: String::new(),
    }
}

impl Demo {
    fn answer(&self, request: Request) -> Result<Answer, FetchError> {
        let now_s = self.now_s();
        Ok(match request {
            Request::Status => Answer::Status(Box::new(self.status(now_s))),
            Request::Access => Answer::Access(AccessView { way: Way::Socket, changes: true }),
            Request::History => Answer::History(self.history(now_s)),
            Request::Attempts => Answer::Attempts(self.attempts(now_s)),
            Request::Log => Answer::Log(self.log(now_s)),
            Request::Map(part) => Answer::Map(self.map(part, now_s)),
            Request::DeadLetters(query) => Answer::DeadLetters(self.dead_page(&query, now_s)),
            Request::DeadLetter(wanted) => Answer::DeadLetter(Box::new(self.dead_one(&wanted, now_s)?)),
            Request::Outbox { endpoint, area: _, cursor } => {
                Answer::Outbox(self.outbox(endpoint.as_deref(), cursor.as_deref(), now_s))
            }
            Request::Story(wanted) => Answer::Story(Box::new(self.story(&wanted, now_s)?)),
            Request::Count(verb, selection) | Request::Dead(verb, selection) => {
                Answer::Dead(self.order(verb, &selection))
            }
            Request::CountExport(selection) => {
                let found = self
                    .matching(selection.class, selection.endpoint.as_deref(), selection.bbox, u64::MAX)
                    .count();
                Answer::Counted(DeadLetterCount { matched: found as u64 })
            }
            Request::Export(_) => {
                return Err(FetchError::Refused("not with made-up data".to_owned()));
            }
            Request::Endpoint(verb, name) => self.endpoint_order(verb, name, now_s),
        })
    }

    fn attempts(&self, now_s: u64) -> AttemptsView {
        if self.scene == Some(Scene::Empty) {
            return AttemptsView::default();
        }
        let recent = (0..240u64)
            .map(|index| {
                let number = 1 + (share(index + 300) * share(index + 600) * 6.0) as u32;
                let verdict = if index % 3 == 0 { VerdictKind::Delivered } else { VerdictKind::Retry };
                let reason = if index % 3 == 0 { "http 200" } else { "http 503" };
                let mut one = attempt(index, number, verdict, reason, EPOCH_MS + now_s as i64 * 1000);
                if index == 100 {
                    // A receiver that asked for more time than the law would give.
                    one.delay_ms = Some(120_000);
                    one.number = 1;
                }
                RecentAttempt { endpoint: "hq".to_owned(), event_id: id(index), attempt: one }
            })
            .collect();
        AttemptsView { recent }
    }

    fn log(&self, now_s: u64) -> LogView {
        if self.scene == Some(Scene::Empty) {
            return LogView::default();
        }
        let lines = [
            (2_900, "info", "endpoint up; endpoint=hq"),
            (2_100, "warn", "throttled; endpoint=city retry_after_s=30"),
            (1_240, "info", "dead letter; class=invalid_geometry device=truck-112 reason=Self-intersection"),
            (725, "warn", "attempt failed; endpoint=hq verdict=hold reason=\"connection refused\""),
            (721, "error", "endpoint held; endpoint=hq reason=refused faults=5"),
            (420, "warn", "probe failed; endpoint=hq next_in_s=41"),
            (62, "warn", "probe failed; endpoint=hq next_in_s=60"),
            (10, "info", "summary; accepted=164 delivered=104 pending=4180"),
        ];
        let lines = lines
            .iter()
            .map(|(ago_s, level, text)| LogLine {
                at_ms: EPOCH_MS + (now_s as i64 - ago_s) * 1000,
                level: (*level).to_owned(),
                text: (*text).to_owned(),
            })
            .collect();
        LogView { lines }
    }

    /// The day before: by the second for five minutes, by the minute before that.
    fn history(&self, now_s: u64) -> HistoryView {
        if self.scene == Some(Scene::Empty) {
            return HistoryView::default();
        }
        let mut history = History::default();
        let past_s = (1..86_400u64).rev().filter(|ago_s| *ago_s < 300 || *ago_s % 60 == 0);
        for ago_s in past_s {
            // Shifted by a day so that the past of the first second is not before zero.
            let status = self.status(now_s + CYCLE_S * 48 - ago_s);
            let oldest_s = status.endpoints.iter().map(|one| one.oldest_pending_age_s).max().unwrap_or(0);
            let sample = Sample { pending: status.ledger.pending, oldest_s };
            history.record((86_400 - ago_s) * 1000, sample);
        }
        HistoryView { spans: history.traces(86_400_000) }
    }

    fn map(&self, part: Option<[f64; 4]>, now_s: u64) -> MapView {
        let status = self.status(now_s);
        let cell_degrees = if part.is_some() { 0.0625 } else { 0.5 };
        let mut cells: BTreeMap<(i64, i64), (u64, u64)> = BTreeMap::new();
        let mut extent = [180.0f64, 90.0, -180.0, -90.0];
        let pending = (0..status.ledger.pending.min(4_000)).map(|index| (place(index), (1, 0)));
        // As the appliance does: over a hundred thousand, some are enough for a picture.
        let dead = (0..self.dead_count().min(5_000)).map(|index| (dead_traits(index).2, (0, 1)));
        for ((lon, lat), (pending, dead)) in pending.chain(dead) {
            extent = [extent[0].min(lon), extent[1].min(lat), extent[2].max(lon), extent[3].max(lat)];
            if part.is_none_or(|part| meets(&part, &[lon, lat, lon, lat])) {
                let index = |value: f64| (value / cell_degrees).floor() as i64;
                let cell = cells.entry((index(lon), index(lat))).or_default();
                *cell = (cell.0 + pending, cell.1 + dead);
            }
        }
        let centre = |index: i64| (index as f64 + 0.5) * cell_degrees;
        let extent = (extent[0] <= extent[2]).then_some(extent);
        let cells = cells
            .into_iter()
            .map(|((x, y), (pending, dead))| MapCell { lon: centre(x), lat: centre(y), pending, dead })
            .collect();
        let zone = |endpoint: &str, bbox| ZoneView { endpoint: endpoint.to_owned(), bbox };
        let zones = vec![zone("city", [12.9, 52.2, 13.9, 52.8]), zone("archive", [-10.0, 35.0, 30.0, 60.0])];
        MapView { cells, unplaced: status.ledger.pending / 400, cell_degrees, extent, zones }
    }

    fn endpoint_order(&self, verb: EndpointVerb, name: String, now_s: u64) -> Answer {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        match verb {
            EndpointVerb::Pause => {
                paused.insert(name.clone());
            }
            EndpointVerb::Resume => {
                paused.remove(&name);
            }
            EndpointVerb::Probe => {}
        }
        drop(paused);
        let endpoints = self.status(now_s).endpoints;
        let state = endpoints.iter().find(|one| one.name == name).map_or(EndpointState::Up, |one| one.state);
        Answer::Endpoint(EndpointActionView { name, state })
    }
}

impl Source for Demo {
    async fn fetch(&self, request: Request) -> Result<Answer, FetchError> {
        self.answer(request)
    }
}
