//! The log thread: the only one that writes the log and changes the state.
//!
//! It takes requests in groups. A group is planned against the state, written with one write, synced if it accepts
//! events, applied, and answered; so a request sees either all of another or nothing, and deduplication and append
//! are one step. Settlements are answered after the write, accepts after the sync.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::checkpoint::Checkpoints;
use super::error::StoreError;
use super::home::Home;
use super::keys::{Keys, Known};
use super::log::{Group, Log, Written};
use super::records::{Accepted, Event, Header, Letter, Moved, Record, Slip};
use super::shared::Shared;
use super::state::{Place, RecentEnd};
use super::types::{AppendError, Appended, EndRequest, EndpointRecord, EventHead, StoredEvent};
use super::witness::{Witness, WitnessFile};
use crate::core::delivery::{DeadReason, End, Progress, Settlement, State as DeliveryState, Transition};
use crate::core::event::{KeyPlan, NewEvent};
use crate::core::ids::{EndpointId, EventId, Identity, Seq};
use crate::core::key::with_sequence;
use crate::core::time::Now;

/// How long the log thread sleeps when nothing comes: the grain of its timers.
const TICK: Duration = Duration::from_millis(100);
/// What a producer is told to wait when a limit is reached: space comes back as deliveries and checkpoints go on.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A request with what holds its place in the bounded line.
pub(super) struct Queued {
    pub(super) request: Request,
    pub(super) permits: Vec<OwnedSemaphorePermit>,
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the log thread is asked to do.
pub(super) enum Request {
    Append {
        events: Vec<NewEvent>,
        reply: oneshot::Sender<Result<Vec<Appended>, AppendError>>,
    },
    Settle {
        endpoint: EndpointId,
        seq: Seq,
        settlement: Settlement,
        reply: Reply<()>,
    },
    Redrive {
        deliveries: Vec<(Seq, EndpointId)>,
        reply: Reply<u64>,
    },
    End {
        requests: Vec<EndRequest>,
        reply: Reply<u64>,
    },
    SetEndpoint {
        endpoint: EndpointId,
        record: EndpointRecord,
        reply: Reply<()>,
    },
    /// An event could not be read: what is pending or dead of it is lost.
    Damaged {
        seq: Seq,
        reply: Option<Reply<()>>,
    },
    /// Import: take over counters, registry and sequence of another store.
    Adopt {
        header: Box<Header>,
        reply: oneshot::Sender<bool>,
    },
    /// Import: events with the state of their deliveries, and identities.
    Restore {
        events: Vec<(Moved, bytes::Bytes)>,
        keys: Vec<(Identity, Known)>,
        reply: oneshot::Sender<bool>,
    },
    /// Checkpoint, sync, end.
    Close {
        reply: oneshot::Sender<()>,
    },
    /// End at once and leave everything as it is: a test's kill.
    #[cfg(test)]
    Crash {
        reply: oneshot::Sender<()>,
    },
}

/// A planned change of one delivery or endpoint.
struct Step {
    record: Record,
    /// Current place of its event.
    place: Place,
    /// For the story of recent ends.
    story: Option<(Progress, Option<DeadReason>)>,
}

enum Answer {
    Unit(Reply<()>),
    Count(Reply<u64>, u64),
}

impl Answer {
    fn send(self, result: Result<(), StoreError>) {
        // A caller that went away needs no answer.
        match self {
            Answer::Unit(reply) => drop(reply.send(result)),
            Answer::Count(reply, count) => drop(reply.send(result.map(|()| count))),
        }
    }
}

/// Changes that are written together.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    answers: Vec<Answer>,
    touched: HashSet<(EndpointId, Seq)>,
}

struct AppendCall {
    events: Vec<NewEvent>,
    reply: oneshot::Sender<Result<Vec<Appended>, AppendError>>,
}

/// An append that is planned: its answers, and the events to write.
struct PlannedAppend {
    reply: oneshot::Sender<Result<Vec<Appended>, AppendError>>,
    results: Vec<Appended>,
}

/// The thread's own things.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) log: Log,
    pub(super) keys: Keys,
    pub(super) requests: Receiver<Queued>,
    pub(super) timers: Timers,
    pub(super) checkpoints: Checkpoints,
    /// Bytes let in by the group that is being planned.
    pub(super) admitted_bytes: u64,
    pub(super) witness: WitnessFile,
    /// Holds the lock of the directory until the thread ends.
    pub(super) home: Home,
}

/// Store times of what is done now and then.
#[expect(clippy::struct_field_names, reason = "units last")]
#[derive(Default)]
pub(super) struct Timers {
    pub(super) dirty_since_ms: Option<u64>,
    pub(super) looked_at_disk_ms: Option<u64>,
    pub(super) looked_at_oldest_ms: Option<u64>,
}

enum Turn {
    GoOn,
    /// Ended; this is told once the directory is released.
    End(oneshot::Sender<()>),
}

impl Writer {
    /// Runs until closed or until every handle is gone.
    pub(super) fn run(mut self) {
        loop {
            let first = match self.requests.recv_timeout(TICK) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.close();
                    return;
                }
            };
            if let Some(first) = first
                && let Turn::End(reply) = self.turn(first)
            {
                drop(self);
                let _ = reply.send(());
                return;
            }
            self.housekeeping();
        }
    }

    /// One group of requests.
    fn turn(&mut self, first: Queued) -> Turn {
        let mut plan = Plan::default();
        let mut appends = Vec::new();
        let mut permits = Vec::new();
        let (mut requests, mut bytes) = (0, 0_u64);
        let mut next = Some(first);
        let mut end = None;
        while let Some(queued) = next.take() {
            permits.extend(queued.permits);
            requests += 1;
            match queued.request {
                Request::Append { events, reply } => {
                    bytes += events.iter().map(|event| event.body.len() as u64).sum::<u64>();
                    appends.push(AppendCall { events, reply });
                }
                Request::Close { reply } => end = Some((reply, true)),
                #[cfg(test)]
                Request::Crash { reply } => end = Some((reply, false)),
                other => self.plan(other, &mut plan),
            }
            if end.is_none()
                && requests < self.shared.tuning.group_requests
                && bytes < self.shared.tuning.group_bytes
            {
                next = self.requests.try_recv().ok();
            }
        }
        self.commit(plan, appends);
        drop(permits);
        match end {
            None => Turn::GoOn,
            Some((reply, orderly)) => {
                if orderly {
                    self.close();
                } else {
                    // A process that dies takes sled along; inside one process it must be let go.
                    self.collect_checkpoint(true);
                    self.shared.set_index(None);
                }
                self.shared.closed.store(true, Ordering::SeqCst);
                Turn::End(reply)
            }
        }
    }

    /// Carries out a request of the thread's own.
    pub(super) fn now(&mut self, request: Request) {
        let mut plan = Plan::default();
        self.plan(request, &mut plan);
        self.commit(plan, Vec::new());
    }

    /// Plans a request that is not an append. Two changes of one delivery never stand in one plan.
    fn plan(&mut self, request: Request, plan: &mut Plan) {
        match request {
            Request::Settle { endpoint, seq, settlement, reply } => {
                self.make_way(&[(seq, endpoint)], plan);
                if let Some(step) = self.settle_step(endpoint, seq, settlement) {
                    plan.push(endpoint, seq, step);
                }
                plan.answers.push(Answer::Unit(reply));
            }
            Request::Redrive { deliveries, reply } => {
                self.make_way(&deliveries, plan);
                let mut count = 0;
                for (seq, endpoint) in deliveries {
                    if let Some(step) = self.redrive_step(endpoint, seq)
                        && plan.push(endpoint, seq, step)
                    {
                        count += 1;
                    }
                }
                plan.answers.push(Answer::Count(reply, count));
            }
            Request::End { requests, reply } => {
                let deliveries: Vec<_> = requests.iter().map(|one| (one.seq, one.endpoint)).collect();
                self.make_way(&deliveries, plan);
                let mut count = 0;
                for EndRequest { seq, endpoint, end } in requests {
                    if let Some(step) = self.end_step(endpoint, seq, end, Progress::default())
                        && plan.push(endpoint, seq, step)
                    {
                        count += 1;
                    }
                }
                plan.answers.push(Answer::Count(reply, count));
            }
            Request::SetEndpoint { endpoint, record, reply } => {
                let name = self.shared.state().endpoints.get(&endpoint).and_then(|one| one.name.clone());
                if let Some(name) = name {
                    let record = Record::Endpoint { id: endpoint, name, record: Some(record) };
                    plan.steps.push(Step { record, place: NOWHERE, story: None });
                }
                plan.answers.push(Answer::Unit(reply));
            }
            Request::Damaged { seq, reply } => {
                self.plan_loss(seq, plan);
                plan.answers.extend(reply.map(Answer::Unit));
            }
            Request::Adopt { header, reply } => drop(reply.send(self.adopt(&header))),
            Request::Restore { events, keys, reply } => drop(reply.send(self.restore(events, keys))),
            Request::Append { .. } | Request::Close { .. } => {}
            #[cfg(test)]
            Request::Crash { .. } => {}
        }
    }

    /// Commits what is planned if it touches one of these deliveries already.
    fn make_way(&mut self, deliveries: &[(Seq, EndpointId)], plan: &mut Plan) {
        if deliveries.iter().any(|&(seq, endpoint)| plan.touched.contains(&(endpoint, seq))) {
            self.commit(std::mem::take(plan), Vec::new());
        }
    }

    fn plan_loss(&mut self, seq: Seq, plan: &mut Plan) {
        let ids: Vec<EndpointId> = self.shared.state().endpoints.keys().copied().collect();
        let mut count = 0;
        for endpoint in ids {
            self.make_way(&[(seq, endpoint)], plan);
            if let Some(step) = self.end_step(endpoint, seq, End::Lost, Progress::default()) {
                count += u64::from(plan.push(endpoint, seq, step));
            }
        }
        if count > 0 {
            if let Ok(place) = self.shared.place(seq)
                && let Some(bytes) = self.shared.reader.raw(place)
            {
                let aside = self.home.set_aside(place.segment, u64::from(place.offset), &bytes);
                self.shared.figures.quarantined_bytes.fetch_add(aside, Ordering::Relaxed);
            }
            self.shared.warn(format!(
                "event {seq} could not be read back: its bytes are damaged; {count} deliveries are counted as lost",
                seq = seq.0
            ));
        }
    }

    fn delivery(&self, endpoint: EndpointId, seq: Seq) -> Option<DeliveryState> {
        self.shared.state().delivery(endpoint, seq)
    }

    /// What a settlement writes; `None` if the delivery has ended or is dead meanwhile, or nothing would change.
    fn settle_step(&self, endpoint: EndpointId, seq: Seq, settlement: Settlement) -> Option<Step> {
        let state = self.delivery(endpoint, seq)?;
        match settlement {
            Settlement::Delivered { progress } => self.end_of(state, endpoint, seq, End::Delivered, progress),
            Settlement::Expired => self.end_of(state, endpoint, seq, End::Expired, Progress::default()),
            Settlement::Superseded => self.end_of(state, endpoint, seq, End::Superseded, Progress::default()),
            Settlement::RetryAt { due, progress } => {
                state.apply(Transition::RetryAt(due)).ok()?;
                let slip = Slip { due: Some(due), progress };
                Some(Step { record: Record::Slip { endpoint, seq, slip }, place: NOWHERE, story: None })
            }
            Settlement::Returned { progress } => {
                state.apply(Transition::Returned).ok()?;
                if state == DeliveryState::Pending && progress == self.shared.slip(endpoint, seq).progress {
                    return None;
                }
                let slip = Slip { due: None, progress };
                Some(Step { record: Record::Slip { endpoint, seq, slip }, place: NOWHERE, story: None })
            }
            Settlement::Dead { reason, progress } => {
                state.apply(Transition::Dead).ok()?;
                let letter = Letter { reason, progress, dead_at: self.shared.clock.now().wall };
                let place = self.place(seq);
                Some(Step { record: Record::Dead { endpoint, seq, letter }, place, story: None })
            }
        }
    }

    fn end_step(&self, endpoint: EndpointId, seq: Seq, end: End, progress: Progress) -> Option<Step> {
        self.end_of(self.delivery(endpoint, seq)?, endpoint, seq, end, progress)
    }

    fn end_of(
        &self,
        state: DeliveryState,
        endpoint: EndpointId,
        seq: Seq,
        end: End,
        progress: Progress,
    ) -> Option<Step> {
        state.apply(Transition::End(end)).ok()?;
        let was_dead = state == DeliveryState::Dead;
        let letter = if was_dead { self.shared.letter(seq, endpoint) } else { None };
        let story = match letter {
            Some(letter) => (letter.progress, Some(letter.reason)),
            None => (progress, None),
        };
        let record = Record::Ended { endpoint, seq, end, was_dead };
        Some(Step { record, place: self.place(seq), story: Some(story) })
    }

    fn redrive_step(&self, endpoint: EndpointId, seq: Seq) -> Option<Step> {
        self.delivery(endpoint, seq)?.apply(Transition::Redriven).ok()?;
        let before = self.shared.letter(seq, endpoint).map(|letter| letter.progress).unwrap_or_default();
        let progress = Progress {
            redrives: before.redrives.saturating_add(1),
            charged: 0,
            previous_delay: Duration::ZERO,
            ..before
        };
        let slip = Slip { due: None, progress };
        Some(Step { record: Record::Redriven { endpoint, seq, slip }, place: self.place(seq), story: None })
    }

    /// Current place of a live event. One whose place cannot be told any more still belongs to its segment.
    fn place(&self, seq: Seq) -> Place {
        self.shared.place(seq).unwrap_or_else(|_| {
            let segment = self.shared.state().locate(seq).map_or(0, |(segment, _)| segment);
            Place { segment, ..NOWHERE }
        })
    }

    /// Writes a group: changes first, then accepts.
    fn commit(&mut self, plan: Plan, calls: Vec<AppendCall>) {
        if plan.steps.is_empty() && calls.is_empty() {
            plan.answer(&Ok(()));
            return;
        }
        let now = self.shared.clock.now();
        let (planned, events) = self.plan_appends(calls, now);
        let mut group = Group::default();
        for step in &plan.steps {
            group.push(&step.record, &[]);
        }
        for (record, body) in &events {
            group.push(record, body);
        }
        let vital = events.is_empty();
        match self.write_or_make_way(&mut group, vital) {
            Ok(written) => {
                let (changes, accepts) = written.split_at(plan.steps.len());
                self.apply_steps(plan, changes);
                self.finish_appends(planned, events, accepts.to_vec(), now);
            }
            Err(error) if !plan.steps.is_empty() && !events.is_empty() => {
                // The accepts may be what does not fit; the changes are small and make room.
                self.commit(plan, Vec::new());
                refuse(planned, &append_error(&error));
            }
            Err(error) => {
                refuse(planned, &append_error(&error));
                plan.answer(&Err(store_error(&error)));
            }
        }
    }

    /// Deduplicates and numbers; gives the answers and the records to write.
    fn plan_appends(
        &mut self,
        calls: Vec<AppendCall>,
        now: Now,
    ) -> (Vec<PlannedAppend>, Vec<(Record, bytes::Bytes)>) {
        let (mut next_seq, salt) = {
            let state = self.shared.state();
            (state.next_seq, state.salt)
        };
        let mut in_group: HashMap<Identity, Known> = HashMap::new();
        self.admitted_bytes = 0;
        let (mut planned, mut records) = (Vec::new(), Vec::new());
        for AppendCall { events, reply } in calls {
            if let Err(error) = self.admit(&events) {
                let _ = reply.send(Err(error));
                continue;
            }
            let mut results = Vec::with_capacity(events.len());
            for event in events {
                let known = in_group.get(&event.identity).copied().or_else(|| {
                    self.keys.find(event.identity, event.dedup, now.store, || self.shared.index())
                });
                if let Some(known) = known {
                    results.push(self.duplicate(&event, known));
                    continue;
                }
                let seq = next_seq;
                next_seq = Seq(seq.0 + 1);
                let id = EventId::new(now.wall.0, seq, salt);
                let key = match &event.key {
                    KeyPlan::Fixed(key) => key.clone(),
                    KeyPlan::WithSequence(digest) => with_sequence(*digest, salt, seq),
                };
                let known = Known {
                    seq,
                    accepted: now.store,
                    accepted_at: now.wall,
                    digest: event.digest,
                    dedup: event.dedup,
                };
                in_group.insert(event.identity, known);
                results.push(if event.deliver.is_empty() {
                    Appended::DeadLettered { seq, id, key: key.clone() }
                } else {
                    Appended::Accepted { seq, id, key: key.clone() }
                });
                let head = EventHead {
                    seq,
                    id,
                    key,
                    device: event.device,
                    event_type: event.event_type,
                    accepted: now.store,
                    accepted_at: now.wall,
                    clock_trusted: now.wall_trusted,
                    observed_at: event.observed_at,
                    bbox: event.bbox,
                    identity: event.identity,
                    digest: event.digest,
                    body_bytes: event.body.len() as u32,
                };
                let accepted = Accepted {
                    event: Event { head, dedup: event.dedup },
                    deliver: event.deliver,
                    dead: event.dead,
                };
                records.push((Record::Accepted(Box::new(accepted)), event.body));
            }
            planned.push(PlannedAppend { reply, results });
        }
        (planned, records)
    }

    fn duplicate(&self, event: &NewEvent, known: Known) -> Appended {
        let mut state = self.shared.state();
        let id = known.id(state.salt);
        if event.producer_keyed && event.digest != known.digest {
            return Appended::KeyReused { id };
        }
        for endpoint in event.deliver.iter().chain(event.dead.iter().map(|(endpoint, _)| endpoint)) {
            if let Some(endpoint) = state.endpoints.get_mut(endpoint) {
                endpoint.counts.duplicates += 1;
            }
        }
        let key = match &event.key {
            KeyPlan::Fixed(key) => key.clone(),
            KeyPlan::WithSequence(digest) => with_sequence(*digest, state.salt, known.seq),
        };
        Appended::Duplicate { id, key: Some(key) }
    }

    /// Applies written changes and answers their callers.
    fn apply_steps(&mut self, plan: Plan, written: &[Written]) {
        let mut gone = Vec::new();
        {
            let mut state = self.shared.state();
            for (step, at) in plan.steps.iter().zip(written) {
                if let Some(effect) = state.apply(at.lsn, &step.record, step.place) {
                    state.account(effect, step.place, at.lsn);
                    if effect.was.live && !effect.is.live {
                        gone.push(effect.seq);
                    }
                }
                if let (Record::Ended { endpoint, seq, end, .. }, Some((progress, reason))) =
                    (&step.record, &step.story)
                {
                    state.note_end(RecentEnd {
                        seq: *seq,
                        endpoint: *endpoint,
                        end: *end,
                        progress: progress.clone(),
                        reason: reason.clone(),
                    });
                }
            }
        }
        for seq in gone {
            self.shared.forget(seq);
        }
        plan.answer(&Ok(()));
    }

    /// Syncs, applies and answers accepts that have been written.
    fn finish_appends(
        &mut self,
        planned: Vec<PlannedAppend>,
        events: Vec<(Record, bytes::Bytes)>,
        mut written: Vec<Written>,
        now: Now,
    ) {
        if !events.is_empty() {
            let synced = match self.sync() {
                Ok(()) => Ok(()),
                Err(_) => self.write_again(&events).map(|again| written = again),
            };
            if let Err(error) = synced {
                refuse(planned, &append_error(&error));
                return;
            }
            self.apply_accepts(events, &written, now);
        }
        for PlannedAppend { reply, results } in planned {
            let _ = reply.send(Ok(results));
        }
    }

    fn apply_accepts(&mut self, events: Vec<(Record, bytes::Bytes)>, written: &[Written], now: Now) {
        // The table first: once the state shows an event, a reader may ask for its place.
        for ((record, _), at) in events.iter().zip(written) {
            if let Record::Accepted(accepted) = record {
                self.shared.reader.note(accepted.event.head.seq, at.place);
            }
        }
        let (newest, witness, salt) = {
            let mut state = self.shared.state();
            for ((record, _), at) in events.iter().zip(written) {
                if let Some(effect) = state.apply(at.lsn, record, at.place) {
                    state.account(effect, at.place, at.lsn);
                }
            }
            let witness = Witness::of(&state);
            (Seq(state.next_seq.0 - 1), witness, state.salt)
        };
        self.witness.write(&witness, salt);
        for (record, body) in events {
            let Record::Accepted(accepted) = record else { continue };
            let Accepted { event: Event { head, dedup }, deliver, .. } = *accepted;
            let (accepted, accepted_at, digest) = (now.store, now.wall, head.digest);
            self.keys.insert(head.identity, Known { seq: head.seq, accepted, accepted_at, digest, dedup });
            if !deliver.is_empty() {
                // A copy, so that a small body does not hold the large request that it came in.
                let body = bytes::Bytes::copy_from_slice(&body);
                self.shared.remember(Arc::new(StoredEvent { head, body }));
            }
        }
        self.shared.appended.send_replace(newest);
    }
}

/// Place of nothing.
pub(super) const NOWHERE: Place = Place { segment: 0, offset: 0, bytes: 0 };

impl Plan {
    /// Adds a step; a second one for the same delivery is left out.
    fn push(&mut self, endpoint: EndpointId, seq: Seq, step: Step) -> bool {
        let new = self.touched.insert((endpoint, seq));
        if new {
            self.steps.push(step);
        }
        new
    }

    fn answer(self, result: &Result<(), StoreError>) {
        self.answers.into_iter().for_each(|answer| answer.send(result.clone()));
    }
}

fn refuse(planned: Vec<PlannedAppend>, error: &AppendError) {
    for PlannedAppend { reply, .. } in planned {
        let _ = reply.send(Err(error.clone()));
    }
}

pub(super) fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

fn copy(error: &std::io::Error) -> Arc<std::io::Error> {
    let same = error.raw_os_error().map_or_else(|| error.kind().into(), std::io::Error::from_raw_os_error);
    Arc::new(same)
}

fn append_error(error: &std::io::Error) -> AppendError {
    if is_full(error) {
        AppendError::Full { what: "disk", retry_after: RETRY_AFTER }
    } else {
        AppendError::Io(copy(error))
    }
}

fn store_error(error: &std::io::Error) -> StoreError {
    if is_full(error) { StoreError::Full { retry_after: RETRY_AFTER } } else { StoreError::Io(copy(error)) }
}
