//! Made-up dead letters, pending events and their stories, each a function of its number.

use std::sync::PoisonError;

use crate::core::classify::VerdictKind;
use crate::core::delivery::{AttemptRecord, FailureClass, Stage};
use crate::wire::{
    DeadLetterActionView, DeadLetterPage, DeadLetterSelection, DeadLetterView, DeliveryView, EventStory,
    EventView, GeometryError, GeometryRef, OutboxEntry, OutboxPage,
};

use super::super::message::{DeadQuery, DeadVerb, FetchError};
use super::super::model::{CLASSES, PAGE_ROWS};
use super::super::viewport::meets;
use super::{Demo, EPOCH_MS, Scene, attempt, id, mix, place, rfc3339};

/// Class, endpoint and place: what filters look at, cheap to make.
pub(super) fn dead_traits(index: u64) -> (FailureClass, &'static str, (f64, f64)) {
    let class = match mix(index * 3 + 1) % 20 {
        0..8 => FailureClass::InvalidGeometry,
        8..13 => FailureClass::Rejected,
        13..16 => FailureClass::Transient,
        16 => FailureClass::CrsMismatch,
        17 => FailureClass::SchemaViolation,
        18 => FailureClass::Poison,
        _ => CLASSES[5],
    };
    let endpoint = if mix(index * 5 + 2).is_multiple_of(4) { "archive" } else { "hq" };
    (class, endpoint, place(index + 50_000))
}

fn dead_letter(index: u64, now_s: u64, full: bool) -> DeadLetterView {
    let (class, endpoint, (lon, lat)) = dead_traits(index);
    let round = |value: f64| (value * 10_000.0).round() / 10_000.0;
    let (lon, lat) = (round(lon), round(lat));
    let died_ms = EPOCH_MS + now_s as i64 * 1000 - (1_284i64 - index as i64).max(1) * 47_000;
    let (stage, message) = match class {
        FailureClass::InvalidGeometry => (Stage::Geometry, "polygon ring crosses itself".to_owned()),
        FailureClass::Rejected => (Stage::Delivery, "http 422: zone is unknown".to_owned()),
        FailureClass::Transient => (Stage::Delivery, "6 attempts used, last: http 500".to_owned()),
        FailureClass::CrsMismatch => (Stage::Crs, "crs is EPSG:25833, only WGS 84 is sent".to_owned()),
        FailureClass::SchemaViolation => (Stage::Delivery, "http 400: speed must be a number".to_owned()),
        FailureClass::Poison => (Stage::Delivery, "failed 3 times while 5 others passed".to_owned()),
        _ => (Stage::Delivery, "older than the retry window of 72 h".to_owned()),
    };
    let geometric = class == FailureClass::InvalidGeometry;
    let history = if geometric || class == FailureClass::CrsMismatch {
        Vec::new()
    } else {
        dead_history(index, class, died_ms)
    };
    let body = dead_body(index, geometric, lon, lat);
    DeadLetterView {
        schema: "dlq.v1".to_owned(),
        id: format!("{}.{endpoint}", id(index)),
        event_id: id(index),
        idempotency_key: format!("idem:v2:{:016x}{:016x}", mix(index + 3), mix(index + 4)),
        failure_class: class,
        failed_stage: stage,
        error_message: message,
        geometry_error: geometric.then(|| GeometryError {
            reason: "Self-intersection".to_owned(),
            location: Some([round(lon + 0.005), round(lat + 0.005)]),
            epsg: 4326,
        }),
        source_crs: "EPSG:4326".to_owned(),
        geometry: Some(GeometryRef {
            byte_size: body.len() as u64,
            sha256: format!("{:016x}", mix(index + 9)),
        }),
        body_bytes: body.len() as u64,
        raw_payload: full.then_some(body),
        endpoint: endpoint.to_owned(),
        device: format!("truck-{:03}", mix(index + 8) % 240),
        event_type: if geometric { "zone" } else { "position" }.to_owned(),
        attempts: history.len() as u32,
        history,
        bbox: Some([lon, lat, lon + 0.01, lat + 0.01]),
        first_seen_at: rfc3339(died_ms - 90_000),
        dead_lettered_at: rfc3339(died_ms),
        redrive_count: (mix(index + 6) % 3) as u32,
    }
}

fn dead_history(index: u64, class: FailureClass, died_ms: i64) -> Vec<AttemptRecord> {
    let (count, verdict, reason) = match class {
        FailureClass::Rejected => (1, VerdictKind::Terminal, "http 422"),
        FailureClass::SchemaViolation => (1, VerdictKind::Terminal, "http 400"),
        FailureClass::Poison => (3, VerdictKind::Poison, "timeout"),
        _ => (6, VerdictKind::Retry, "http 500"),
    };
    let mut history: Vec<AttemptRecord> = (1..=count)
        .map(|number| {
            let at_ms = died_ms - i64::from(count - number) * 11_000;
            attempt(index, number, verdict, reason, at_ms)
        })
        .collect();
    if let Some(last) = history.last_mut() {
        last.delay_ms = None;
        last.answer = String::from("{\"error\":\"zone is unknown\",\"zone\":\"Z-17\"}");
    }
    history
}

fn dead_body(index: u64, geometric: bool, lon: f64, lat: f64) -> String {
    let geometry = if geometric {
        let (x, y) = (lon + 0.01, lat + 0.01);
        format!(
            "{{\"type\":\"Polygon\",\"coordinates\":[[[{lon:.4},{lat:.4}],[{x:.4},{y:.4}],[{x:.4},{lat:.4}],[{lon:.4},{y:.4}],[{lon:.4},{lat:.4}]]]}}"
        )
    } else {
        format!("{{\"type\":\"Point\",\"coordinates\":[{lon:.4},{lat:.4}]}}")
    };
    format!(
        "{{\"type\":\"Feature\",\"geometry\":{geometry},\"properties\":{{\"device_id\":\"truck-{:03}\",\"speed\":{}.5,\"zone\":\"Z-17\"}}}}",
        mix(index + 8) % 240,
        mix(index) % 90
    )
}

impl Demo {
    /// Numbers of the dead letters that a filter lets through, up to one (without it).
    pub(super) fn matching<'a>(
        &self,
        class: Option<FailureClass>,
        endpoint: Option<&'a str>,
        bbox: Option<[f64; 4]>,
        to: u64,
    ) -> impl DoubleEndedIterator<Item = u64> + use<'a> {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let end = if self.scene == Some(Scene::Empty) { 0 } else { self.dead_total };
        (0..end.min(to)).filter(move |index| {
            let (has_class, has_endpoint, (lon, lat)) = dead_traits(*index);
            !gone.contains(index)
                && class.is_none_or(|class| class == has_class)
                && endpoint.is_none_or(|endpoint| endpoint == has_endpoint)
                && bbox.is_none_or(|bbox| meets(&bbox, &[lon, lat, lon + 0.01, lat + 0.01]))
        })
    }

    pub(in super::super) fn dead_page(&self, query: &DeadQuery, now_s: u64) -> DeadLetterPage {
        let to = query.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(u64::MAX);
        let mut found = self.matching(query.class, query.endpoint.as_deref(), query.bbox, to).rev();
        let entries =
            found.by_ref().take(PAGE_ROWS as usize).map(|index| dead_letter(index, now_s, false)).collect();
        DeadLetterPage {
            entries,
            cursor: found.next().map(|index| (index + 1).to_string()),
            total: self.dead_count(),
        }
    }

    pub(super) fn dead_one(&self, wanted: &str, now_s: u64) -> Result<DeadLetterView, FetchError> {
        let mut all = self.matching(None, None, None, u64::MAX);
        all.find(|index| wanted.starts_with(&id(*index)))
            .map(|index| dead_letter(index, now_s, true))
            .ok_or_else(|| FetchError::Refused(format!("no dead letter {wanted}")))
    }

    pub(super) fn order(&self, verb: DeadVerb, selection: &DeadLetterSelection) -> DeadLetterActionView {
        let chosen: Vec<u64> = self
            .matching(selection.class, selection.endpoint.as_deref(), selection.bbox, u64::MAX)
            .filter(|index| {
                selection.ids.is_empty() || selection.ids.iter().any(|wanted| wanted.starts_with(&id(*index)))
            })
            .collect();
        let matched = chosen.len() as u64;
        if !selection.dry_run {
            self.gone.lock().unwrap_or_else(PoisonError::into_inner).extend(chosen);
        }
        let skipped = if verb == DeadVerb::Redrive && matched > 100 { 3 } else { 0 };
        DeadLetterActionView {
            matched,
            done: if selection.dry_run { 0 } else { matched - skipped },
            skipped,
            skipped_reason: (skipped > 0).then(|| "redriven 3 times already".to_owned()),
            dry_run: selection.dry_run,
            ..DeadLetterActionView::default()
        }
    }

    pub(super) fn event(index: u64, now_s: u64) -> EventView {
        let (lon, lat) = place(index);
        let accepted_ms = EPOCH_MS + (now_s as i64 - 700) * 1000 + index as i64 * 170;
        EventView {
            id: id(index + 200_000),
            seq: 365_000 + index,
            key: format!("idem:v2:{:016x}{:016x}", mix(index), mix(index + 1)),
            device: format!("truck-{:03}", mix(index + 5) % 240),
            event_type: "position".to_owned(),
            accepted_at: rfc3339(accepted_ms),
            observed_at: Some(rfc3339(accepted_ms - 400)),
            bbox: Some([lon, lat, lon, lat]),
            body_bytes: 231,
        }
    }

    pub(super) fn delivery(index: u64, now_s: u64) -> DeliveryView {
        let attempts = (mix(index) % 4) as u32;
        let at_ms = EPOCH_MS + now_s as i64 * 1000;
        DeliveryView {
            endpoint: "hq".to_owned(),
            state: if attempts > 0 { "waiting" } else { "pending" }.to_owned(),
            attempts,
            charged: attempts,
            attempts_max: 6,
            due_in_ms: (attempts > 0).then(|| mix(index) % 30_000),
            history: (1..=attempts)
                .map(|number| attempt(index, number, VerdictKind::Retry, "http 503", at_ms))
                .collect(),
            reason: None,
        }
    }

    pub(super) fn outbox(&self, endpoint: Option<&str>, cursor: Option<&str>, now_s: u64) -> OutboxPage {
        let from: u64 = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let pending = self.status(now_s).endpoints.first().map_or(0, |hq| hq.pending);
        if endpoint.is_some_and(|name| name != "hq") {
            return OutboxPage::default();
        }
        let to = pending.min(from + PAGE_ROWS);
        let entries = (from..to)
            .map(|index| OutboxEntry {
                event: Self::event(index, now_s),
                delivery: Self::delivery(index, now_s),
            })
            .collect();
        OutboxPage { entries, cursor: (to < pending).then(|| to.to_string()) }
    }

    pub(super) fn story(&self, wanted: &str, now_s: u64) -> Result<EventStory, FetchError> {
        let pending = self.status(now_s).ledger.pending;
        let index = (0..pending.max(1)).find(|index| id(index + 200_000) == wanted);
        let index = index.ok_or_else(|| FetchError::Refused(format!("no event {wanted}")))?;
        let (lon, lat) = place(index);
        Ok(EventStory {
            event: Self::event(index, now_s),
            deliveries: vec![Self::delivery(index, now_s)],
            body: Some(dead_body(index, false, lon, lat)),
        })
    }
}
