//! Texts to stored events: batches are prepared on blocking threads, appended in order, answered by index.
//!
//! The preparation of one batch runs while the one before is being synced. Appends are made one after the other, so
//! events of one post are stored in their order. Every append runs in its own task: a client that hangs up loses the
//! answer, never half an event.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::AppState;
use super::problem::{Failure, Kind};
use crate::core::event::{Element, EventMeta, IntakeSettings, NewEvent, Rejection, document, prepare};
use crate::store::Appended;
use crate::wire::{IngestResponse, IngestResult, IngestStatus};

/// Above so many features only results that are not `accepted` are listed (CONTRACT).
pub(super) const RESULTS_LISTED_MAX: u64 = 10_000;
/// Results of one post that are kept in any case: some 25 MB of a process that has 256 MB. Further ones are counted.
const RESULTS_MAX: usize = 100_000;
/// Texts longer than this are prepared off the async threads: parsing them takes milliseconds.
const HEAVY_BYTES: usize = 32 << 10;
/// Features of a batch.
const BATCH_FEATURES_MAX: usize = 512;
/// Bytes of a batch.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A feature on its way, with its place in the post.
struct Slot {
    index: u64,
    fate: Result<NewEvent, Rejection>,
}

/// What became of a feature, in order.
enum Fate {
    /// With the reason if it is a dead letter.
    Stored(Appended, Option<String>),
    Rejected(Rejection),
}

/// A post that is being taken in.
pub(super) struct Intake {
    state: AppState,
    meta: Arc<EventMeta>,
    texts: Vec<Element>,
    bytes: usize,
    preparing: Option<JoinHandle<Vec<Slot>>>,
    response: IngestResponse,
    /// Whether any text came at all: collections without members are no empty body.
    any: bool,
    /// Status of the first rejection, for a post of which nothing is kept.
    first_rejection: Option<(Kind, String)>,
    key_reused: bool,
}

impl Intake {
    pub fn new(state: AppState, meta: EventMeta) -> Self {
        Self {
            state,
            meta: Arc::new(meta),
            texts: Vec::new(),
            bytes: 0,
            preparing: None,
            response: IngestResponse::default(),
            any: false,
            first_rejection: None,
            key_reused: false,
        }
    }

    /// Takes an element of a sequence; works when there are enough of them.
    pub async fn push(&mut self, element: Element) -> Result<(), Failure> {
        self.bytes += element.text.as_ref().map_or(0, Bytes::len);
        self.texts.push(element);
        self.any = true;
        if self.texts.len() >= BATCH_FEATURES_MAX || self.bytes >= BATCH_BYTES_MAX {
            self.turn().await?;
        }
        Ok(())
    }

    /// Starts to prepare what is there, and stores what was prepared before.
    async fn turn(&mut self) -> Result<(), Failure> {
        let texts = std::mem::take(&mut self.texts);
        self.bytes = 0;
        let (settings, meta) = (Arc::clone(&self.state.intake), Arc::clone(&self.meta));
        let next = (!texts.is_empty()).then(|| {
            tokio::task::spawn_blocking(move || {
                texts.into_iter().flat_map(|text| slots(&settings, &meta, text)).collect()
            })
        });
        if let Some(ready) = std::mem::replace(&mut self.preparing, next) {
            let slots = ready.await.map_err(|_| panicked())?;
            self.store(slots).await?;
        }
        Ok(())
    }

    /// The end of a sequence.
    pub async fn finish(mut self) -> Result<IngestResponse, Failure> {
        while !self.texts.is_empty() || self.preparing.is_some() {
            self.turn().await?;
        }
        self.answer()
    }

    /// A whole document.
    pub async fn document(mut self, text: Bytes) -> Result<IngestResponse, Failure> {
        let (settings, meta) = (Arc::clone(&self.state.intake), Arc::clone(&self.meta));
        let heavy = text.len() > HEAVY_BYTES;
        let work = move || members(&settings, &meta, text);
        let members =
            if heavy { tokio::task::spawn_blocking(work).await.map_err(|_| panicked())? } else { work() };
        let slots = members.map_err(|rejection| refusal(&rejection))?;
        if slots.is_empty() {
            return Ok(self.response); // an empty collection
        }
        let mut slots = slots.into_iter().peekable();
        while slots.peek().is_some() {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < BATCH_FEATURES_MAX && bytes < BATCH_BYTES_MAX {
                let Some(slot) = slots.next() else { break };
                bytes += slot.fate.as_ref().map_or(0, |event| event.body.len());
                batch.push(slot);
            }
            self.store(batch).await?;
        }
        self.answer()
    }

    /// Appends the events of a batch and notes every fate.
    async fn store(&mut self, slots: Vec<Slot>) -> Result<(), Failure> {
        let mut events = Vec::with_capacity(slots.len());
        let mut fates: Vec<(u64, Result<Option<String>, Rejection>)> = Vec::with_capacity(slots.len());
        for slot in slots {
            fates.push((
                slot.index,
                slot.fate.map(|event| {
                    let reason = event.dead.first().map(|(_, reason)| reason.message.clone());
                    events.push(event);
                    reason
                }),
            ));
        }
        let appended = if events.is_empty() { Vec::new() } else { self.append(events).await? };
        let mut appended = appended.into_iter();
        for (index, fate) in fates {
            match fate {
                Err(rejection) => self.note(index, Fate::Rejected(rejection)),
                Ok(reason) => {
                    let Some(fate) = appended.next() else { return Err(panicked()) };
                    self.note(index, Fate::Stored(fate, reason));
                }
            }
        }
        Ok(())
    }

    async fn append(&mut self, events: Vec<NewEvent>) -> Result<Vec<Appended>, Failure> {
        let outbox = self.state.outbox.clone();
        let start = Instant::now();
        // Its own task: when the client hangs up this future is dropped, the append is not.
        let appended =
            tokio::spawn(async move { outbox.append(events).await }).await.map_err(|_| panicked())?;
        self.state.metrics.append_synced(start.elapsed());
        appended.map_err(|err| Failure::from(err).after(&self.response))
    }

    fn note(&mut self, index: u64, fate: Fate) {
        let result = match fate {
            Fate::Stored(Appended::Accepted { id, key, .. }, _) => {
                self.response.accepted += 1;
                let listed = self.total() <= RESULTS_LISTED_MAX;
                listed.then(|| {
                    result(index, IngestStatus::Accepted, Some(id.to_string()), Some(key.to_string()), None)
                })
            }
            Fate::Stored(Appended::DeadLettered { id, key, .. }, reason) => {
                self.response.dead_lettered += 1;
                Some(result(
                    index,
                    IngestStatus::DeadLettered,
                    Some(id.to_string()),
                    Some(key.to_string()),
                    reason,
                ))
            }
            Fate::Stored(Appended::Duplicate { id, key }, _) => {
                self.response.duplicates += 1;
                let key = key.map(|key| key.to_string());
                Some(result(index, IngestStatus::Duplicate, Some(id.to_string()), key, None))
            }
            Fate::Stored(Appended::KeyReused { id }, _) => {
                self.key_reused = true;
                self.response.rejected += 1;
                let reason =
                    "the Idempotency-Key came with another body before; nothing was stored".to_owned();
                Some(result(index, IngestStatus::Rejected, Some(id.to_string()), None, Some(reason)))
            }
            Fate::Rejected(rejection) => {
                self.response.rejected += 1;
                let failure = refusal(&rejection);
                let reason = failure.detail.clone();
                self.first_rejection.get_or_insert((failure.kind, failure.detail));
                Some(result(index, IngestStatus::Rejected, None, None, Some(reason)))
            }
        };
        if self.response.results.len() < RESULTS_MAX {
            self.response.results.extend(result);
        }
    }

    fn total(&self) -> u64 {
        let response = &self.response;
        response.accepted + response.duplicates + response.dead_lettered + response.rejected
    }

    /// 202 if anything was kept, known or dead-lettered; otherwise the problem.
    fn answer(mut self) -> Result<IngestResponse, Failure> {
        if self.total() > RESULTS_LISTED_MAX {
            self.response.results.retain(|result| result.status != IngestStatus::Accepted);
            self.response.results_omitted = Some(self.total() - self.response.results.len() as u64);
        }
        let response = self.response;
        if response.accepted + response.duplicates + response.dead_lettered > 0
            || (self.any && response.rejected == 0)
        {
            return Ok(response);
        }
        let mut failure = match self.first_rejection {
            _ if self.key_reused => Kind::KeyReused
                .because("this Idempotency-Key came with another body before; nothing was stored"),
            Some((kind, detail)) if response.rejected == 1 => kind.because(detail),
            Some((kind, detail)) => {
                // Many refusals of one kind keep their status; mixed ones are a bad request.
                let kind = if kind == Kind::TooLarge { Kind::TooLarge } else { Kind::NotGeoJson };
                kind.because(format!(
                    "none of {} features can be used; the first: {detail}",
                    response.rejected
                ))
            }
            None => Kind::NotGeoJson.because("the body is empty"),
        };
        failure.results = response.results;
        failure.results.truncate(usize::try_from(RESULTS_LISTED_MAX).unwrap_or(usize::MAX));
        Err(failure)
    }
}

fn result(
    index: u64,
    status: IngestStatus,
    id: Option<String>,
    key: Option<String>,
    reason: Option<String>,
) -> IngestResult {
    IngestResult { index, status, id, key, reason }
}

/// The problem that a rejection is on its own.
fn refusal(rejection: &Rejection) -> Failure {
    let kind = match rejection.http_status() {
        413 => Kind::TooLarge,
        422 => Kind::InvalidGeometry,
        _ => Kind::NotGeoJson,
    };
    kind.because(rejection.to_string())
}

fn panicked() -> Failure {
    Kind::Internal.because("this post could not be judged; it was not stored")
}

/// A text of a sequence to its features; they share its index.
fn slots(settings: &IntakeSettings, meta: &EventMeta, element: Element) -> Vec<Slot> {
    let index = element.index;
    let features = element.text.map_err(Rejection::from).and_then(document);
    match features {
        Err(rejection) => vec![Slot { index, fate: Err(rejection) }],
        Ok(document) => document
            .into_iter()
            .map(|feature| Slot {
                index,
                fate: feature.and_then(|feature| prepare(settings, &feature, meta)),
            })
            .collect(),
    }
}

/// A document to its features, numbered.
fn members(settings: &IntakeSettings, meta: &EventMeta, text: Bytes) -> Result<Vec<Slot>, Rejection> {
    let document = document(text)?;
    if document.is_collection() && meta.producer_key.is_some() {
        return Err(Rejection::Label {
            what: "header Idempotency-Key",
            problem: "is for a single feature; leave it out for a collection",
        });
    }
    let slots = document.into_iter().enumerate().map(|(index, feature)| Slot {
        index: index as u64,
        fate: feature.and_then(|feature| prepare(settings, &feature, meta)),
    });
    Ok(slots.collect())
}
