//! The loop between the core and the world: tell the dispatcher what happened, carry out what it asks for.
//!
//! One task owns the [`Dispatcher`] and its random generator; nothing else decides about attempts. Each turn is
//! *select, handle, poll*: wait for one of the closed list of happenings (`Done`, a command, new events, the next
//! due time), hand it to the core, then carry out actions until there are none. Sending and disk run in their own
//! tasks and come back as `Done`, so a hanging receiver or a slow card delays nobody else.
//!
//! **Stop.** No new attempts; those that run may end within [`crate::shutdown::DRAIN_DEADLINE`], the rest are cut and
//! repeated after the next start under the same key. What an outcome settled is written before the loop returns.
//!
//! A settlement that cannot be written is tried again until it is: its slot stays taken, so an endpoint slows down
//! rather than sending an event twice.

mod bodies;
mod growth;
pub mod handle;
mod latency;
mod link;
mod notable;
mod redrive;
mod status;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::core::classify::{Outcome, VerdictKind};
use crate::core::delivery::{AttemptRecord, Progress, Settlement};
use crate::core::dispatcher::{Action, Dispatcher, EndpointMemory, EndpointStatus, Loaded, LoadedWaiting};
use crate::core::history::{History, Sample};
use crate::core::ids::{EndpointId, EndpointName, EventId, Seq};
use crate::core::policy::EndpointPolicy;
use crate::core::route::{Routes as Rules, Subject};
use crate::core::time::StoreTime;
use crate::metrics::Metrics;
use crate::sender::{Attempt, HttpSender, Sent};
use crate::shutdown::DRAIN_DEADLINE;
use crate::store::{EndpointRecord, Outbox, PendingPage, Scheduled, StoreError, StoredEvent};
use crate::wire::{AttemptsView, RecentAttempt, StatusView};

use bodies::Bodies;
use handle::{COMMANDS_MAX, Command, EndpointAction};
pub use handle::{Handle, UnknownEndpoint};
use latency::Latency;
use status::{EndpointPart, Reporter};

/// Status snapshots: fast enough for a screen, cheap enough for an idle box.
const STATUS_EVERY: Duration = Duration::from_millis(250);
/// One summary line in the log (DESIGN: rather than a line per event).
const SUMMARY_EVERY: Duration = Duration::from_secs(10);
/// Attempts that the dashboard can look back on.
const RECENT_ATTEMPTS_MAX: usize = 500;
/// Delivered first attempts kept for the dashboard per snapshot; failures are always kept.
const RECENT_SUCCESSES_PER_TICK: usize = 25;
/// Between tries to write a settlement that the disk refused.
const SETTLE_AGAIN: Duration = Duration::from_secs(1);
/// Finished tasks handled before the next poll; keeps one turn short.
const DONE_PER_TURN: usize = 64;

/// An endpoint as the driver sees it.
#[derive(Clone)]
pub struct Target {
    /// Number in this store.
    pub id: EndpointId,
    /// Name in the config.
    pub name: EndpointName,
    /// Scheme, host and port.
    pub url_shown: String,
    /// Delivery policy.
    pub policy: EndpointPolicy,
    /// Makes attempts.
    pub sender: HttpSender,
}

/// What the driver is made of.
pub struct Parts {
    /// Name of this box.
    pub node: String,
    /// The store.
    pub outbox: Outbox,
    /// Time.
    pub clock: Clock,
    /// Endpoints of the config.
    pub targets: Vec<Target>,
    /// Rules of the routes: what they say of a delivery beyond that it is wanted.
    pub rules: Rules,
    /// Fed with attempt durations.
    pub metrics: Arc<Metrics>,
    /// The configured limit, for forecasts.
    pub disk_bytes_max: u64,
    /// Free space that the intake leaves alone, for the same.
    pub disk_free_reserve: u64,
    /// Memory for bodies of loaded deliveries.
    pub bodies_bytes_max: u64,
    /// Seed of all jitter.
    pub seed: u64,
}

/// What tasks come back with.
enum Done {
    Attempt {
        endpoint: EndpointId,
        seq: Seq,
        number: u32,
        id: EventId,
        sent: Sent,
    },
    Unreadable {
        endpoint: EndpointId,
        seq: Seq,
    },
    Gone {
        endpoint: EndpointId,
        seq: Seq,
    },
    Settled {
        endpoint: EndpointId,
        seq: Seq,
    },
    Page {
        endpoint: EndpointId,
        page: Result<PendingPage, StoreError>,
    },
    Scheduled {
        endpoint: EndpointId,
        until: StoreTime,
        limit: usize,
        waits: Result<Vec<Scheduled>, StoreError>,
    },
    Redriven {
        endpoint: EndpointId,
        found: Option<Seq>,
    },
    Persisted,
    Link(link::Routes),
}

/// The driver. Made by [`Driver::new`], lives in [`Driver::run`].
pub struct Driver {
    outbox: Outbox,
    clock: Clock,
    metrics: Arc<Metrics>,
    targets: BTreeMap<EndpointId, Target>,
    latencies: BTreeMap<EndpointId, Latency>,
    dispatcher: Dispatcher,
    rng: Pcg64,
    bodies: Bodies,
    tasks: JoinSet<Done>,
    reporter: Reporter,
    recent: VecDeque<(EndpointId, EventId, AttemptRecord)>,
    recent_successes: usize,
    recent_changed: bool,
    routes: link::Routes,
    rules: Rules,
    /// Where each pass over the dead letters of an endpoint stands.
    redriven_to: BTreeMap<EndpointId, Seq>,
    commands: mpsc::Receiver<Command>,
    status: watch::Sender<Arc<StatusView>>,
    attempts: watch::Sender<Arc<AttemptsView>>,
    history: Arc<Mutex<History>>,
    stopping: bool,
}

impl Driver {
    /// A driver and its handle.
    pub fn new(parts: Parts) -> (Self, Handle) {
        let now = parts.clock.now().store;
        let (command_sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (status, status_view) = watch::channel(status::starting(&parts.node));
        let (attempts, attempts_view) = watch::channel(Arc::new(AttemptsView::default()));
        let mut dispatcher = Dispatcher::new();
        for target in &parts.targets {
            let memory =
                parts.outbox.endpoint_record(target.id).map_or_else(EndpointMemory::default, |record| {
                    EndpointMemory {
                        budget_tokens: Some(record.budget_tokens),
                        paused: record.paused,
                        disabled: record.disabled,
                    }
                });
            dispatcher.add_endpoint(target.id, target.policy.clone(), memory, now);
        }
        let history = Arc::default();
        let driver = Self {
            latencies: parts.targets.iter().map(|target| (target.id, Latency::new(now))).collect(),
            targets: parts.targets.into_iter().map(|target| (target.id, target)).collect(),
            outbox: parts.outbox,
            clock: parts.clock,
            metrics: parts.metrics,
            dispatcher,
            rng: Pcg64::seed_from_u64(parts.seed),
            bodies: Bodies::new(parts.bodies_bytes_max),
            tasks: JoinSet::new(),
            reporter: Reporter::new(parts.node, parts.disk_bytes_max, parts.disk_free_reserve, now),
            recent: VecDeque::new(),
            recent_successes: 0,
            recent_changed: false,
            routes: link::Routes::default(),
            rules: parts.rules,
            redriven_to: BTreeMap::new(),
            commands,
            status,
            attempts,
            history: Arc::clone(&history),
            stopping: false,
        };
        let handle =
            Handle { commands: command_sender, status: status_view, attempts: attempts_view, history };
        (driver, handle)
    }

    /// Runs until `stop`, then finishes what runs. Ends early only if the store has closed under it.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut appended = self.outbox.appended();
        let mut status_tick = tokio::time::interval(STATUS_EVERY);
        status_tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut summary_tick = tokio::time::interval(SUMMARY_EVERY);
        summary_tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        summary_tick.reset();
        self.publish();
        self.watch_link();
        while !stop.is_cancelled() {
            self.carry_out();
            let wake = self.wake();
            tokio::select! {
                () = stop.cancelled() => {}
                Some(command) = self.commands.recv() => self.command(command),
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.take(done),
                changed = appended.changed() => {
                    if changed.is_err() {
                        tracing::error!("the store has closed; deliveries stop");
                        return;
                    }
                    let newest = *appended.borrow_and_update();
                    self.dispatcher.handle_appended(newest, self.clock.now().store);
                }
                () = tokio::time::sleep_until(wake) => {}
                _ = status_tick.tick() => self.publish(),
                _ = summary_tick.tick() => self.summary(),
            }
            for _ in 0..DONE_PER_TURN {
                let Some(done) = self.tasks.try_join_next() else { break };
                self.take(done);
            }
        }
        self.finish().await;
    }

    /// When the core wants to be polled though nothing happens.
    fn wake(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(3_600);
        self.dispatcher.next_wake().map_or(far, |at| Instant::now() + at.since(self.clock.now().store))
    }

    /// Attempts that run may end; what they settle is written.
    async fn finish(mut self) {
        self.stopping = true;
        self.publish();
        let deadline = Instant::now() + DRAIN_DEADLINE;
        while !self.tasks.is_empty() {
            tokio::select! {
                done = self.tasks.join_next() => {
                    if let Some(done) = done {
                        self.take(done);
                    }
                }
                () = tokio::time::sleep_until(deadline) => {
                    let cut = self.dispatcher.in_flight();
                    tracing::info!(cut, "stopping: attempts that still run are cut and repeated after the next start");
                    self.tasks.abort_all();
                    while self.tasks.join_next().await.is_some() {}
                }
            }
        }
        for target in self.targets.values() {
            let now = self.clock.now().store;
            let Some(snapshot) = self.dispatcher.snapshot(target.id, now) else { continue };
            let record = EndpointRecord {
                paused: snapshot.status == EndpointStatus::Paused,
                disabled: snapshot.status == EndpointStatus::Disabled,
                budget_tokens: snapshot.budget_tokens,
            };
            let _ = self.outbox.set_endpoint(target.id, record).await; // a full disk keeps the level of before
        }
        self.publish();
    }

    /// Polls the core dry.
    fn carry_out(&mut self) {
        let now = self.clock.now().store;
        while let Some(action) = self.dispatcher.poll(now, &mut self.rng) {
            match action {
                Action::Attempt { endpoint, seq, number, probe } => {
                    self.attempt(endpoint, seq, number, probe);
                }
                Action::LoadPage { endpoint, after, limit } => {
                    let outbox = self.outbox.clone();
                    self.tasks.spawn(async move {
                        Done::Page { endpoint, page: outbox.pending_page(endpoint, after, limit).await }
                    });
                }
                Action::LoadScheduled { endpoint, until, limit } => {
                    let outbox = self.outbox.clone();
                    self.tasks.spawn(async move {
                        let waits = outbox.scheduled(endpoint, until, limit).await;
                        Done::Scheduled { endpoint, until, limit, waits }
                    });
                }
                Action::Settle { endpoint, seq, settlement } => self.settle(endpoint, seq, settlement),
                Action::Redrive { endpoint } => self.redrive(endpoint),
                Action::Persist { endpoint, memory } => {
                    let outbox = self.outbox.clone();
                    self.tasks.spawn(async move {
                        if let Err(err) = outbox.set_endpoint(endpoint, record(memory)).await {
                            tracing::warn!(error = %err, "the state of an endpoint could not be kept");
                        }
                        Done::Persisted
                    });
                }
            }
        }
    }

    fn attempt(&mut self, endpoint: EndpointId, seq: Seq, number: u32, probe: bool) {
        let Some(target) = self.targets.get(&endpoint) else { return };
        let sender = target.sender.clone();
        let now = self.clock.now();
        let held = self.bodies.take(endpoint, seq);
        let outbox = self.outbox.clone();
        tracing::trace!(endpoint = %target.name, seq = seq.0, attempt = number, probe, "attempt starts");
        self.tasks.spawn(async move {
            let event = match held {
                Some(event) => event,
                None => match outbox.event(seq).await {
                    Ok(Some(event)) => event,
                    Ok(None) => return Done::Gone { endpoint, seq },
                    Err(_) => return Done::Unreadable { endpoint, seq },
                },
            };
            let id = event.head.id;
            let sent = sender.send(&attempt_of(&event, number), now).await;
            Done::Attempt { endpoint, seq, number, id, sent }
        });
    }

    /// Sends the next transient dead letter of an endpoint again.
    fn redrive(&mut self, endpoint: EndpointId) {
        let outbox = self.outbox.clone();
        let after = self.redriven_to.get(&endpoint).map(|seq| (*seq, endpoint));
        self.tasks.spawn(async move {
            let found = redrive::next_transient(&outbox, endpoint, after).await;
            let found = found.unwrap_or_else(|err| {
                tracing::warn!(error = %err, "the dead letters could not be read; they wait for the next recovery");
                None
            });
            Done::Redriven { endpoint, found }
        });
    }

    /// Writes a settlement, however often it takes.
    fn settle(&mut self, endpoint: EndpointId, seq: Seq, settlement: Settlement) {
        let outbox = self.outbox.clone();
        self.tasks.spawn(async move {
            loop {
                match outbox.settle(endpoint, seq, settlement.clone()).await {
                    Ok(()) => return Done::Settled { endpoint, seq },
                    Err(StoreError::Closed) => return Done::Settled { endpoint, seq },
                    Err(err) => {
                        tracing::warn!(error = %err, seq = seq.0, "a settlement could not be written; trying again");
                        tokio::time::sleep(SETTLE_AGAIN).await;
                    }
                }
            }
        });
    }

    fn take(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let now = self.clock.now();
        match done {
            Ok(Done::Attempt { endpoint, seq, number, id, sent }) => {
                self.ended(endpoint, seq, number, id, &sent.outcome, sent.latency);
            }
            Ok(Done::Settled { endpoint, seq }) => self.dispatcher.handle_settled(endpoint, seq, now.store),
            Ok(Done::Page { endpoint, page: Ok(page) }) => self.page(endpoint, page, now.store),
            Ok(Done::Page { endpoint, page: Err(err) }) => {
                tracing::warn!(error = %err, "the backlog could not be read; trying again");
                self.dispatcher.handle_page_failed(endpoint, now.store);
            }
            Ok(Done::Scheduled { endpoint, until, limit, waits: Ok(waits) }) => {
                let complete =
                    if waits.len() < limit { until } else { waits.last().map_or(until, |wait| wait.due) };
                let waits = waits.into_iter().map(|wait| waiting(endpoint, wait, &self.rules)).collect();
                self.dispatcher.handle_scheduled(endpoint, waits, complete, now.store);
            }
            Ok(Done::Scheduled { endpoint, waits: Err(err), .. }) => {
                tracing::warn!(error = %err, "the schedule could not be read; trying again");
                self.dispatcher.handle_scheduled_failed(endpoint, now.store);
            }
            Ok(Done::Unreadable { endpoint, seq }) => self.dispatcher.handle_unread(endpoint, seq, now.store),
            Ok(Done::Gone { endpoint, seq }) => self.dispatcher.handle_lost(endpoint, seq, now.store),
            Ok(Done::Redriven { endpoint, found }) => {
                self.dispatcher.handle_redrive(endpoint, found, now.store);
                match found {
                    Some(seq) => self.redriven_to.insert(endpoint, seq),
                    None => self.redriven_to.remove(&endpoint),
                };
            }
            Ok(Done::Persisted) => {}
            Ok(Done::Link(routes)) => self.link(routes),
            Err(err) if err.is_cancelled() => {}
            Err(err) => {
                // A task of ours panicked: its delivery would hang for ever. End the process; the store is safe.
                tracing::error!(error = %err, "a delivery task panicked");
                std::panic::resume_unwind(err.into_panic());
            }
        }
    }

    fn ended(
        &mut self,
        endpoint: EndpointId,
        seq: Seq,
        number: u32,
        id: EventId,
        outcome: &Outcome,
        latency: Duration,
    ) {
        let now = self.clock.now();
        if let Some(target) = self.targets.get(&endpoint) {
            self.metrics.attempt_ended(target.name.as_str(), latency);
        }
        if let Some(window) = self.latencies.get_mut(&endpoint) {
            window.record(latency, now.store);
        }
        let settlement = self.dispatcher.handle_outcome(endpoint, seq, outcome, latency, now, &mut self.rng);
        let Some(settlement) = settlement else { return };
        if let Some(record) = progress(&settlement).and_then(|progress| progress.history.last()) {
            self.log_attempt(endpoint, id, number, record);
            self.remember(endpoint, id, record.clone());
        }
        self.settle(endpoint, seq, settlement);
    }

    fn log_attempt(&self, endpoint: EndpointId, id: EventId, number: u32, record: &AttemptRecord) {
        if record.verdict == VerdictKind::Delivered || !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let Some(target) = self.targets.get(&endpoint) else { return };
        tracing::debug!(
            endpoint = %target.name,
            event_id = %id,
            attempt = number,
            attempts_max = target.policy.retry.attempts_max,
            verdict = ?record.verdict,
            reason = %record.reason.escape_debug(),
            delay_ms = record.delay_ms,
            "attempt failed"
        );
    }

    /// Keeps an attempt for the dashboard: every failure, and some successes.
    fn remember(&mut self, endpoint: EndpointId, id: EventId, record: AttemptRecord) {
        if record.verdict == VerdictKind::Delivered && record.number == 1 {
            if self.recent_successes >= RECENT_SUCCESSES_PER_TICK {
                return;
            }
            self.recent_successes += 1;
        }
        if self.recent.len() == RECENT_ATTEMPTS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((endpoint, id, record));
        self.recent_changed = true;
    }

    fn page(&mut self, endpoint: EndpointId, page: PendingPage, now: StoreTime) {
        let mut loaded = Vec::with_capacity(page.deliveries.len());
        for delivery in page.deliveries {
            let head = &delivery.event.head;
            let subject = Subject {
                device: head.device.as_str(),
                event_type: head.event_type.as_str(),
                bbox: head.bbox,
            };
            loaded.push(Loaded {
                seq: head.seq,
                accepted: head.accepted,
                progress: delivery.progress,
                terms: self.rules.terms(endpoint, &subject, delivery.event.body.len()),
            });
            self.bodies.keep(endpoint, delivery.event);
        }
        self.dispatcher.handle_page(endpoint, loaded, page.scanned_to, page.end, now);
    }

    fn command(&mut self, command: Command) {
        let now = self.clock.now().store;
        match command {
            Command::Endpoint { name, action, answer } => {
                let target = self.targets.values().find(|target| target.name.as_str() == name);
                let done = target.and_then(|target| match action {
                    EndpointAction::Pause => self.dispatcher.handle_pause(target.id, now),
                    EndpointAction::Resume => self.dispatcher.handle_resume(target.id, now),
                    EndpointAction::Probe => self.dispatcher.handle_probe(target.id, now),
                });
                let known = || {
                    self.targets.values().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ")
                };
                let reply = done
                    .map(status::state_view)
                    .ok_or_else(|| UnknownEndpoint { name: name.clone(), known: known() });
                if reply.is_ok() {
                    tracing::info!(endpoint = %name.escape_debug(), action = ?action, "an operator acted on an endpoint");
                }
                let _ = answer.send(reply); // the asker may have gone
            }
            Command::Refresh(taken) => {
                self.publish();
                let _ = taken.send(()); // the asker may have gone
                return;
            }
            Command::Redriven(items) => {
                let mut lowest: BTreeMap<EndpointId, Seq> = BTreeMap::new();
                for (seq, endpoint) in items {
                    lowest.entry(endpoint).and_modify(|low| *low = (*low).min(seq)).or_insert(seq);
                }
                for (endpoint, seq) in lowest {
                    self.dispatcher.handle_redriven(endpoint, seq, now);
                }
            }
        }
        self.publish();
    }

    fn watch_link(&mut self) {
        self.tasks.spawn(async {
            tokio::time::sleep(link::POLL_EVERY).await;
            Done::Link(link::Routes::read().await)
        });
    }

    fn link(&mut self, routes: link::Routes) {
        if self.routes.changed_to(&routes) {
            tracing::info!("the network routes changed; held endpoints are probed soon");
            self.dispatcher.handle_link_change(self.clock.now().store, &mut self.rng);
        }
        self.routes = routes;
        if !self.stopping {
            self.watch_link();
        }
    }

    fn publish(&mut self) {
        let now = self.clock.now();
        self.dispatcher.handle_clock(now.wall_trusted);
        let stats = self.outbox.stats();
        let mut parts = Vec::with_capacity(self.targets.len());
        for target in self.targets.values() {
            let Some(snapshot) = self.dispatcher.snapshot(target.id, now.store) else { continue };
            let latency =
                self.latencies.get_mut(&target.id).map(|window| window.view(now.store)).unwrap_or_default();
            parts.push(EndpointPart { target, snapshot, latency });
        }
        let newest = *self.outbox.appended().borrow();
        let view = self.reporter.view(&stats, newest, &parts, self.stopping, now);
        drop(parts);
        let oldest_s = view.endpoints.iter().map(|one| one.oldest_pending_age_s).max().unwrap_or(0);
        let sample = Sample { pending: view.ledger.pending, oldest_s };
        self.history.lock().unwrap_or_else(PoisonError::into_inner).record(now.store.0, sample);
        notable::log_changes(&self.status.borrow(), &view);
        self.status.send_replace(Arc::new(view));
        self.recent_successes = 0;
        if std::mem::take(&mut self.recent_changed) {
            let recent = self.recent.iter().filter_map(|(endpoint, id, attempt)| {
                let endpoint = self.targets.get(endpoint)?.name.to_string();
                Some(RecentAttempt { endpoint, event_id: id.to_string(), attempt: attempt.clone() })
            });
            self.attempts.send_replace(Arc::new(AttemptsView { recent: recent.collect() }));
        }
    }

    fn summary(&self) {
        let status = self.status.borrow();
        let held = status.endpoints.iter().filter(|endpoint| endpoint.hold_reason.is_some()).count();
        let quiet = status.rates.accepted_per_s == 0.0 && status.rates.attempts_per_s == 0.0;
        if quiet && held == 0 && status.ledger.pending == 0 {
            return;
        }
        tracing::info!(
            accepted = status.ledger.accepted,
            delivered = status.ledger.delivered,
            pending = status.ledger.pending,
            dead = status.ledger.dead,
            held,
            accepted_per_s = format_args!("{:.1}", status.rates.accepted_per_s),
            delivered_per_s = format_args!("{:.1}", status.rates.delivered_per_s),
            "summary"
        );
    }
}

fn attempt_of(event: &StoredEvent, number: u32) -> Attempt {
    Attempt {
        number,
        id: event.head.id,
        key: event.head.key.clone(),
        device: event.head.device.clone(),
        event_type: event.head.event_type.clone(),
        accepted_at: event.head.accepted_at,
        body: event.body.clone(),
    }
}

fn waiting(endpoint: EndpointId, wait: Scheduled, rules: &Rules) -> LoadedWaiting {
    let head = &wait.head;
    let subject =
        Subject { device: head.device.as_str(), event_type: head.event_type.as_str(), bbox: head.bbox };
    let terms = rules.terms(endpoint, &subject, wait.body_bytes);
    LoadedWaiting { seq: head.seq, due: wait.due, accepted: head.accepted, progress: wait.progress, terms }
}

fn record(memory: EndpointMemory) -> EndpointRecord {
    EndpointRecord {
        paused: memory.paused,
        disabled: memory.disabled,
        budget_tokens: memory.budget_tokens.unwrap_or_default(),
    }
}

/// The history that a settlement carries.
fn progress(settlement: &Settlement) -> Option<&Progress> {
    match settlement {
        Settlement::Delivered { progress }
        | Settlement::RetryAt { progress, .. }
        | Settlement::Returned { progress }
        | Settlement::Dead { progress, .. } => Some(progress),
        Settlement::Expired | Settlement::Superseded => None,
    }
}
