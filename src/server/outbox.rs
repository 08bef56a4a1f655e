//! One event's story, and the list of what is pending.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use serde::Deserialize;

use super::AppState;
use super::dead_letters::parse_bbox;
use super::problem::{Failure, Kind};
use super::views::{self, Names};
use crate::core::delivery::{Progress, State as DeliveryStateKind};
use crate::core::ids::{EndpointId, Seq};
use crate::core::route::touch;
use crate::core::time::StoreTime;
use crate::store::DeliveryState;
use crate::wire::{EventStory, OutboxEntry, OutboxPage};

/// Entries of a page, at most.
pub(super) const PAGE_MAX: usize = 500;
/// Waiting deliveries of an endpoint that are looked at; `retrying_max` keeps them fewer.
const WAITING_MAX: usize = 20_000;
/// Deliveries looked at for one page; an area that few lie in is read on with the cursor.
const SCANNED_MAX: usize = 5_000;

/// `GET /v1/events/{id}`
pub(super) async fn event(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<EventStory>, Failure> {
    let unknown =
        || Kind::NotFound.because("there is no such event here, or it has ended and its record is gone");
    let seq = views::seq(&state, &id).ok_or_else(unknown)?;
    let event = state.outbox.event(seq).await?.ok_or_else(unknown)?;
    let names = Names::of(&state);
    let deliveries = state.outbox.deliveries(seq).await?;
    Ok(Json(EventStory {
        event: views::event(&event.head),
        deliveries: deliveries
            .into_iter()
            .map(|delivery| views::delivery(&state, &names, delivery))
            .collect(),
        body: Some(String::from_utf8_lossy(&event.body).into_owned()),
    }))
}

/// Query of `GET /v1/outbox`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutboxQuery {
    endpoint: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    bbox: Option<String>,
}

/// Where a listing goes on: endpoint by endpoint, first what waits, then what is in line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cursor {
    endpoint: EndpointId,
    /// Waiting entries shown; `None` once they are all shown.
    waiting: Option<usize>,
    after: Seq,
}

impl Cursor {
    fn text(self) -> String {
        match self.waiting {
            Some(shown) => format!("{}.w.{shown}", self.endpoint.0),
            None => format!("{}.p.{}", self.endpoint.0, self.after.0),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let endpoint = EndpointId(parts.next()?.parse().ok()?);
        let kind = parts.next()?;
        let number = parts.next()?.parse::<u64>().ok()?;
        match kind {
            "w" => Some(Self { endpoint, waiting: Some(usize::try_from(number).ok()?), after: Seq(0) }),
            "p" => Some(Self { endpoint, waiting: None, after: Seq(number) }),
            _ => None,
        }
    }
}

/// `GET /v1/outbox`
pub(super) async fn list(
    State(state): State<AppState>,
    query: Result<Query<OutboxQuery>, QueryRejection>,
) -> Result<Json<OutboxPage>, Failure> {
    let Query(query) = query.map_err(|err| Kind::BadRequest.because(err.body_text()))?;
    let names = Names::of(&state);
    let endpoints = match &query.endpoint {
        None => names.ids(),
        Some(name) => vec![names.id(name).ok_or_else(|| {
            Kind::NotFound.because(format!(
                "there is no endpoint \"{}\"; there is {}",
                name.escape_debug(),
                names.known()
            ))
        })?],
    };
    let start = match &query.cursor {
        None => {
            endpoints.first().map(|endpoint| Cursor { endpoint: *endpoint, waiting: Some(0), after: Seq(0) })
        }
        Some(text) => Some(
            Cursor::parse(text).ok_or_else(|| Kind::BadRequest.because("the cursor is not one of ours"))?,
        ),
    };
    let limit = query.limit.unwrap_or(100).clamp(1, PAGE_MAX);
    let mut page = OutboxPage::default();
    let area = query.bbox.as_deref().map(parse_bbox).transpose()?;
    let (mut at, mut scanned) = (start, 0);
    while let Some(cursor) = at {
        if page.entries.len() >= limit || scanned >= SCANNED_MAX {
            page.cursor = Some(cursor.text());
            break;
        }
        let room = limit - page.entries.len();
        scanned += room;
        at = step(&state, &names, cursor, room, area, &mut page, &endpoints).await?;
    }
    Ok(Json(page))
}

/// Adds entries from the cursor on; where to go on.
async fn step(
    state: &AppState,
    names: &Names,
    cursor: Cursor,
    room: usize,
    area: Option<[f64; 4]>,
    page: &mut OutboxPage,
    endpoints: &[EndpointId],
) -> Result<Option<Cursor>, Failure> {
    if let Some(shown) = cursor.waiting {
        let waits = state.outbox.scheduled(cursor.endpoint, StoreTime(u64::MAX), WAITING_MAX).await?;
        let total = waits.len();
        for wait in waits.into_iter().skip(shown).take(room) {
            let kind = DeliveryStateKind::Waiting(wait.due);
            page.entries.extend(
                entry(state, names, (cursor.endpoint, wait.head.seq), kind, wait.progress, area).await?,
            );
        }
        let shown = (shown + room).min(total);
        let waiting = (shown < total).then_some(shown);
        return Ok(Some(Cursor { waiting, ..cursor }));
    }
    let found = state.outbox.pending_page(cursor.endpoint, cursor.after, room).await?;
    for delivery in found.deliveries {
        let id = (cursor.endpoint, delivery.event.head.seq);
        let kind = DeliveryStateKind::Pending;
        page.entries.extend(entry(state, names, id, kind, delivery.progress, area).await?);
    }
    if !found.end {
        return Ok(Some(Cursor { after: found.scanned_to, ..cursor }));
    }
    let next = endpoints.iter().find(|endpoint| **endpoint > cursor.endpoint);
    Ok(next.map(|endpoint| Cursor { endpoint: *endpoint, waiting: Some(0), after: Seq(0) }))
}

async fn entry(
    state: &AppState,
    names: &Names,
    (endpoint, seq): (EndpointId, Seq),
    kind: DeliveryStateKind,
    progress: Progress,
    area: Option<[f64; 4]>,
) -> Result<Option<OutboxEntry>, Failure> {
    // An event that ended meanwhile, or whose bytes are damaged, is left out: it is no longer pending.
    let Some(event) = state.outbox.event(seq).await? else { return Ok(None) };
    if area.is_some_and(|area| !event.head.bbox.is_some_and(|own| touch(area, own))) {
        return Ok(None);
    }
    let delivery = DeliveryState { endpoint, state: kind, progress, reason: None };
    Ok(Some(OutboxEntry {
        event: views::event(&event.head),
        delivery: views::delivery(state, names, delivery),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_back() {
        for cursor in [
            Cursor { endpoint: EndpointId(3), waiting: Some(17), after: Seq(0) },
            Cursor { endpoint: EndpointId(1), waiting: None, after: Seq(99) },
        ] {
            assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        }
        assert_eq!(Cursor::parse("x.y"), None);
    }
}
