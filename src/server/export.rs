//! Dead letters as a layer for a GIS: GeoJSON, a text sequence, or CSV, streamed page by page.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::AppState;
use super::dead_letters::DeadLetterQuery;
use super::problem::{Failure, Kind};
use super::views::{self, Names};
use crate::core::ids::{EndpointId, Seq};
use crate::store::{DeadFilter, DeadLetter, StoredEvent};
use crate::wire::DeadLetterView;

/// Letters read at once.
const PAGE: usize = 100;
/// Pages that wait for the client.
const PAGES_WAITING_MAX: usize = 2;
/// Columns of the CSV form.
const CSV_HEADER: &str = "id,endpoint,failure_class,failed_stage,error_message,longitude,latitude,device,event_type,attempts,first_seen_at,dead_lettered_at,redrive_count,idempotency_key,body_bytes\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    GeoJson,
    Sequence,
    Csv,
}

/// `GET /v1/dead-letters/export?format=…`
pub(super) async fn export(
    State(state): State<AppState>,
    query: Result<Query<DeadLetterQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(query) = query.map_err(|err| Kind::BadRequest.because(err.body_text()))?;
    let (format, media) = match query.format.as_deref().unwrap_or("geojson") {
        "geojson" => (Format::GeoJson, "application/geo+json"),
        "geojsonseq" => (Format::Sequence, "application/geo+json-seq"),
        "csv" => (Format::Csv, "text/csv; charset=utf-8"),
        other => {
            return Err(Kind::BadRequest.because(format!(
                "\"{}\" is no format; there is geojson, geojsonseq and csv",
                other.escape_debug()
            )));
        }
    };
    let names = Names::of(&state);
    let filter = query.filter(&names)?;
    let limit = query.limit.unwrap_or(usize::MAX);
    let (pages, waiting) = mpsc::channel::<Result<Bytes, Infallible>>(PAGES_WAITING_MAX);
    // A client that goes away closes the channel, and the walk ends.
    tokio::spawn(walk(state, names, filter, format, limit, pages));
    let body = Body::from_stream(ReceiverStream::new(waiting));
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(media))], body).into_response())
}

async fn walk(
    state: AppState,
    names: Names,
    filter: DeadFilter,
    format: Format,
    limit: usize,
    pages: mpsc::Sender<Result<Bytes, Infallible>>,
) -> Option<()> {
    let mut after: Option<(Seq, EndpointId)> = None;
    let mut left = limit;
    let mut out = match format {
        Format::GeoJson => "{\"type\":\"FeatureCollection\",\"features\":[".to_owned(),
        Format::Sequence => String::new(),
        Format::Csv => CSV_HEADER.to_owned(),
    };
    let mut first = true;
    while left > 0 {
        let page = state.outbox.dead_letters(filter.clone(), after, PAGE.min(left)).await.ok()?;
        for letter in &page.letters {
            let event = state.outbox.event(letter.head.seq).await.ok()?;
            write(&mut out, format, letter, &names, event.as_deref(), &mut first);
        }
        left -= page.letters.len().min(left);
        after = page.next;
        if after.is_none() {
            break;
        }
        pages.send(Ok(Bytes::from(std::mem::take(&mut out)))).await.ok()?;
    }
    if format == Format::GeoJson {
        out.push_str("]}\n");
    }
    pages.send(Ok(Bytes::from(out))).await.ok()
}

fn write(
    out: &mut String,
    format: Format,
    letter: &DeadLetter,
    names: &Names,
    event: Option<&StoredEvent>,
    first: &mut bool,
) {
    let view = views::dead_letter(letter, names, event);
    match format {
        Format::Csv => out.push_str(&csv(&view)),
        Format::Sequence => {
            out.push('\u{1e}');
            out.push_str(&view.to_feature().to_string());
            out.push('\n');
        }
        Format::GeoJson => {
            out.push_str(if std::mem::take(first) { "\n" } else { ",\n" });
            out.push_str(&view.to_feature().to_string());
        }
    }
}

fn csv(view: &DeadLetterView) -> String {
    let place = view.geometry_error.as_ref().and_then(|error| error.location).or_else(|| {
        view.bbox.map(|[west, south, east, north]| [f64::midpoint(west, east), f64::midpoint(south, north)])
    });
    let word = |value: Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let fields = [
        view.id.clone(),
        view.endpoint.clone(),
        word(json!(view.failure_class)),
        word(json!(view.failed_stage)),
        view.error_message.clone(),
        place.map(|[lon, _]| lon.to_string()).unwrap_or_default(),
        place.map(|[_, lat]| lat.to_string()).unwrap_or_default(),
        view.device.clone(),
        view.event_type.clone(),
        view.attempts.to_string(),
        view.first_seen_at.clone(),
        view.dead_lettered_at.clone(),
        view.redrive_count.to_string(),
        view.idempotency_key.clone(),
        view.body_bytes.to_string(),
    ];
    fields.map(|field| quoted(&field)).join(",") + "\r\n"
}

/// Quoted where CSV needs it (RFC 4180). A text that a spreadsheet would run as a formula is made plain text.
fn quoted(field: &str) -> String {
    let number = field.parse::<f64>().is_ok();
    let field = if !number && field.starts_with(['=', '+', '-', '@']) {
        format!("'{field}")
    } else {
        field.to_owned()
    };
    if field.contains([',', '"', '\r', '\n']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_fields_are_quoted_where_needed() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(quoted("-13.5"), "-13.5");
        assert_eq!(quoted("=1+1"), "'=1+1");
    }
}
