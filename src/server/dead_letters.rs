//! The dead-letter queue: list, show, redrive, discard.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use serde::Deserialize;

use super::AppState;
use super::problem::{Failure, Kind};
use super::views::{self, Names};
use crate::core::delivery::{End, FailureClass};
use crate::core::dispatcher::REDRIVES_MAX;
use crate::core::event::GeometryGate;
use crate::core::ids::{EndpointId, Seq};
use crate::store::{DeadFilter, DeadLetter, EndRequest};
use crate::wire::{
    DeadLetterActionView, DeadLetterCount, DeadLetterPage, DeadLetterSelection, DeadLetterView,
};

/// Entries of a page, at most.
const PAGE_MAX: usize = 500;

/// Query of `GET /v1/dead-letters`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadLetterQuery {
    endpoint: Option<String>,
    class: Option<FailureClass>,
    since: Option<String>,
    until: Option<String>,
    bbox: Option<String>,
    pub(super) limit: Option<usize>,
    pub(super) cursor: Option<String>,
    pub(super) format: Option<String>,
    order: Option<Order>,
}

/// Order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Oldest,
    Newest,
}

impl DeadLetterQuery {
    pub fn filter(&self, names: &Names) -> Result<DeadFilter, Failure> {
        let bbox = self.bbox.as_deref().map(parse_bbox).transpose()?;
        let filter = filter(
            names,
            self.endpoint.as_deref(),
            self.class,
            self.since.as_deref(),
            self.until.as_deref(),
            bbox,
        )?;
        Ok(DeadFilter { newest_first: self.order == Some(Order::Newest), ..filter })
    }
}

pub(super) fn parse_bbox(text: &str) -> Result<[f64; 4], Failure> {
    let numbers: Vec<f64> = text.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    <[f64; 4]>::try_from(numbers)
        .ok()
        .filter(|bbox| bbox.iter().all(|number| number.is_finite()))
        .ok_or_else(|| Kind::BadRequest.because("bbox must be west,south,east,north"))
}

fn filter(
    names: &Names,
    endpoint: Option<&str>,
    class: Option<FailureClass>,
    since: Option<&str>,
    until: Option<&str>,
    bbox: Option<[f64; 4]>,
) -> Result<DeadFilter, Failure> {
    let endpoint = endpoint
        .map(|name| {
            names.id(name).ok_or_else(|| {
                let known = names.known();
                Kind::NotFound
                    .because(format!("there is no endpoint \"{}\"; there is {known}", name.escape_debug()))
            })
        })
        .transpose()?;
    let time = |text: Option<&str>| {
        text.map(|text| {
            views::stamp(text).ok_or_else(|| {
                Kind::BadRequest.because(format!(
                    "\"{}\" is no RFC 3339 time, for example 2026-12-01T08:00:00Z",
                    text.escape_debug()
                ))
            })
        })
        .transpose()
    };
    Ok(DeadFilter { endpoint, class, since: time(since)?, until: time(until)?, bbox, newest_first: false })
}

/// `<sequence>.<endpoint>`, both numbers.
pub(super) fn parse_cursor(text: &str) -> Result<(Seq, EndpointId), Failure> {
    text.split_once('.')
        .and_then(|(seq, endpoint)| Some((Seq(seq.parse().ok()?), EndpointId(endpoint.parse().ok()?))))
        .ok_or_else(|| Kind::BadRequest.because("the cursor is not one of ours"))
}

fn cursor_text((seq, endpoint): (Seq, EndpointId)) -> String {
    format!("{}.{}", seq.0, endpoint.0)
}

/// `GET /v1/dead-letters`
pub(super) async fn list(
    State(state): State<AppState>,
    query: Result<Query<DeadLetterQuery>, QueryRejection>,
) -> Result<Json<DeadLetterPage>, Failure> {
    let Query(query) = query.map_err(|err| Kind::BadRequest.because(err.body_text()))?;
    let names = Names::of(&state);
    let filter = query.filter(&names)?;
    let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let limit = query.limit.unwrap_or(100).clamp(1, PAGE_MAX);
    let page = state.outbox.dead_letters(filter, after, limit).await?;
    Ok(Json(DeadLetterPage {
        entries: page.letters.iter().map(|letter| views::dead_letter(letter, &names, None)).collect(),
        cursor: page.next.map(cursor_text),
        total: page.total,
    }))
}

/// `GET /v1/dead-letters/count`: how many a filter means, for a question before an export. Changes nothing, so a reader
/// may ask it, unlike a dry run.
pub(super) async fn count(
    State(state): State<AppState>,
    query: Result<Query<DeadLetterQuery>, QueryRejection>,
) -> Result<Json<DeadLetterCount>, Failure> {
    let Query(query) = query.map_err(|err| Kind::BadRequest.because(err.body_text()))?;
    let filter = query.filter(&Names::of(&state))?;
    if filter == DeadFilter::default() {
        let matched = state.outbox.stats().ledgers.values().map(|ledger| ledger.dead).sum();
        return Ok(Json(DeadLetterCount { matched }));
    }
    let (mut matched, mut after) = (0, None);
    loop {
        let page = state.outbox.dead_letters(filter.clone(), after, PAGE_MAX).await?;
        matched += page.letters.len() as u64;
        after = page.next;
        if after.is_none() {
            return Ok(Json(DeadLetterCount { matched }));
        }
    }
}

/// `GET /v1/dead-letters/{id}`; an event id alone means its first dead letter.
pub(super) async fn show(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<DeadLetterView>, Failure> {
    let names = Names::of(&state);
    let letters = by_id(&state, &names, &id).await?;
    let letter = letters.first().ok_or_else(|| Kind::NotFound.because("there is no such dead letter"))?;
    let event = state.outbox.event(letter.head.seq).await?;
    Ok(Json(views::dead_letter(letter, &names, event.as_deref())))
}

/// The dead letters that an id means.
async fn by_id(state: &AppState, names: &Names, id: &str) -> Result<Vec<DeadLetter>, Failure> {
    let (event, endpoint) = match id.split_once('.') {
        Some((event, endpoint)) => (event, Some(endpoint)),
        None => (id, None),
    };
    let Some(seq) = views::seq(state, event) else { return Ok(Vec::new()) };
    let mut endpoints = match endpoint {
        Some(name) => names.id(name).into_iter().collect(),
        None => names.ids(),
    };
    if endpoint.is_none() {
        endpoints.push(EndpointId::UNROUTED);
    }
    let mut letters = Vec::new();
    for endpoint in endpoints {
        letters.extend(state.outbox.dead_letter(seq, endpoint).await?);
    }
    Ok(letters)
}

/// `POST /v1/dead-letters/redrive`
pub(super) async fn redrive(
    State(state): State<AppState>,
    body: Bytes,
) -> Result<Json<DeadLetterActionView>, Failure> {
    let selection = selection(&body)?;
    let mut view = DeadLetterActionView { dry_run: selection.dry_run, ..Default::default() };
    let mut walk = Walk::new(&state, &selection)?;
    while let Some(letters) = walk.page(&state).await? {
        view.matched += letters.len() as u64;
        let mut chosen = Vec::new();
        for letter in &letters {
            match why_not(&state, letter) {
                None => chosen.push((letter.head.seq, letter.endpoint)),
                Some(why) => {
                    view.skipped += 1;
                    view.skipped_reason.get_or_insert(why);
                }
            }
        }
        if selection.dry_run || chosen.is_empty() {
            continue;
        }
        view.done += state.outbox.redrive(chosen.clone()).await?;
        state.driver.redriven(chosen).await;
    }
    Ok(Json(view))
}

/// Why a dead letter is not sent again.
fn why_not(state: &AppState, letter: &DeadLetter) -> Option<String> {
    let gate = state.intake.gate(letter.endpoint);
    match letter.reason.class {
        FailureClass::Unrouted => Some("no route wants it; change the routes and post it again".to_owned()),
        FailureClass::CrsMismatch => {
            Some("its coordinates are not WGS 84; convert and post it again".to_owned())
        }
        FailureClass::InvalidGeometry if gate == GeometryGate::Valid => {
            Some("an invalid geometry is never sent; `waypost dlq repair` mends it as a new event".to_owned())
        }
        _ if letter.progress.redrives >= REDRIVES_MAX => {
            Some(format!("it was sent again {REDRIVES_MAX} times already"))
        }
        _ => None,
    }
}

/// `POST /v1/dead-letters/discard`
pub(super) async fn discard(
    State(state): State<AppState>,
    body: Bytes,
) -> Result<Json<DeadLetterActionView>, Failure> {
    let selection = selection(&body)?;
    let mut view = DeadLetterActionView { dry_run: selection.dry_run, ..Default::default() };
    let mut walk = Walk::new(&state, &selection)?;
    while let Some(letters) = walk.page(&state).await? {
        view.matched += letters.len() as u64;
        if selection.dry_run {
            continue;
        }
        let ends = letters.iter().map(|letter| EndRequest {
            seq: letter.head.seq,
            endpoint: letter.endpoint,
            end: End::Discarded,
        });
        view.done += state.outbox.end(ends.collect()).await?;
    }
    view.skipped = if view.dry_run { 0 } else { view.matched - view.done };
    Ok(Json(view))
}

pub(super) fn selection(body: &[u8]) -> Result<DeadLetterSelection, Failure> {
    if body.trim_ascii().is_empty() {
        return Err(Kind::BadRequest.because("say which dead letters: {} means all of them"));
    }
    serde_json::from_slice(body)
        .map_err(|err| Kind::BadRequest.because(format!("the selection cannot be read: {err}")))
}

/// Walks the selected dead letters page by page. What an action takes out of the queue cannot come again, and what it
/// leaves lies behind the cursor, so every walk ends (field fault 33): letters that die while it walks have had their turn.
pub(super) struct Walk {
    names: Names,
    ids: std::vec::IntoIter<String>,
    by_filter: Option<DeadFilter>,
    after: Option<(Seq, EndpointId)>,
    left: u64,
    /// Letters that died after the walk began are not its business.
    newest: Seq,
}

impl Walk {
    pub fn new(state: &AppState, selection: &DeadLetterSelection) -> Result<Self, Failure> {
        let names = Names::of(state);
        let filter = filter(
            &names,
            selection.endpoint.as_deref(),
            selection.class,
            selection.since.as_deref(),
            selection.until.as_deref(),
            selection.bbox,
        )?;
        Ok(Self {
            names,
            ids: selection.ids.clone().into_iter(),
            by_filter: selection.ids.is_empty().then_some(filter),
            after: None,
            left: selection.limit.unwrap_or(u64::MAX),
            newest: *state.outbox.appended().borrow(),
        })
    }

    pub async fn page(&mut self, state: &AppState) -> Result<Option<Vec<DeadLetter>>, Failure> {
        if self.left == 0 {
            return Ok(None);
        }
        let room = usize::try_from(self.left).unwrap_or(PAGE_MAX).min(PAGE_MAX);
        let mut letters = if let Some(filter) = &self.by_filter {
            let page = state.outbox.dead_letters(filter.clone(), self.after, room).await?;
            match page.next {
                Some(next) => self.after = Some(next),
                None => self.left = 0,
            }
            page.letters
        } else {
            let Some(id) = self.ids.next() else { return Ok(None) };
            let letters = by_id(state, &self.names, &id).await?;
            if letters.is_empty() {
                return Err(
                    Kind::NotFound.because(format!("there is no dead letter \"{}\"", id.escape_debug()))
                );
            }
            letters
        };
        letters.retain(|letter| letter.head.seq <= self.newest);
        letters.truncate(room);
        self.left = self.left.saturating_sub(letters.len() as u64);
        Ok(Some(letters))
    }
}
