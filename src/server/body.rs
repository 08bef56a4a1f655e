//! Request bodies as bounded streams: media type, content encoding, limits and deadlines.
//!
//! A compressed body is inflated as it comes, so a bomb is stopped at the limit and not in memory. After a refusal a
//! bounded rest is read and dropped, so that the client gets to read the answer instead of a reset.

use std::io;
use std::time::Duration;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};
use tokio_util::io::StreamReader;

use super::problem::{Failure, Kind};
use crate::core::event::Framing;

/// Longest silence inside a body (field fault 57).
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A body must keep up at least this many bytes a second over its whole length; a 2G uplink does ten times as much.
const RATE_BYTES_MIN: u64 = 512;
/// Time that every body gets, however short.
const GRACE: Duration = Duration::from_secs(20);
/// Bytes that are read and dropped after a refusal.
const DRAIN_BYTES_MAX: usize = 64 << 20;
/// Time for that.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One GeoJSON text.
    Document,
    /// Many.
    Sequence(Framing),
}

/// The form by the media type.
pub(super) fn form(headers: &HeaderMap) -> Result<Form, Failure> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(Form::Document) };
    let media =
        value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "application/geo+json" | "application/json" | "application/vnd.geo+json" => Ok(Form::Document),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => {
            Ok(Form::Sequence(Framing::Lines))
        }
        "application/geo+json-seq" | "application/json-seq" => Ok(Form::Sequence(Framing::TextSequence)),
        _ => Err(Kind::UnsupportedMedia.because(format!(
            "\"{}\" is not taken; send application/geo+json, application/x-ndjson or application/geo+json-seq",
            media.escape_debug()
        ))),
    }
}

/// A body as a stream of plain bytes.
pub(super) struct Plain {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    started: Instant,
    read: u64,
}

/// Wraps a body by its `Content-Encoding`.
pub(super) fn plain(headers: &HeaderMap, body: Body) -> Result<Plain, Failure> {
    let stream = body.into_data_stream().map_err(io::Error::other);
    let raw = StreamReader::new(stream.boxed());
    let encoding = headers
        .get(header::CONTENT_ENCODING)
        .map(|value| value.to_str().unwrap_or("?").trim().to_ascii_lowercase());
    let reader: Box<dyn AsyncRead + Send + Unpin> = match encoding.as_deref() {
        None | Some("" | "identity") => Box::new(raw),
        Some("gzip" | "x-gzip") => {
            let mut decoder = GzipDecoder::new(raw);
            decoder.multiple_members(true);
            Box::new(decoder)
        }
        Some("zstd") => {
            let mut decoder = ZstdDecoder::new(raw);
            decoder.multiple_members(true);
            Box::new(decoder)
        }
        Some(other) => {
            return Err(Kind::UnsupportedMedia.because(format!(
                "Content-Encoding \"{}\" is not taken; send gzip, zstd or none",
                other.escape_debug()
            )));
        }
    };
    Ok(Plain { reader, started: Instant::now(), read: 0 })
}

impl Plain {
    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        let now = Instant::now();
        let pace = self.started + GRACE + Duration::from_secs(self.read / RATE_BYTES_MIN);
        let read = match timeout_at(pace.min(now + SILENCE_MAX), self.reader.read_buf(&mut buffer)).await {
            Ok(Ok(read)) => read,
            Ok(Err(err)) if err.kind() == io::ErrorKind::Other => {
                return Err(Kind::BadRequest.because("the body ended before its length"));
            }
            Ok(Err(_)) => {
                return Err(Kind::BadRequest.because("the body is not what its Content-Encoding says"));
            }
            Err(_) => return Err(Kind::TooSlow.because("the body came too slowly; send it again")),
        };
        self.read += read as u64;
        Ok((read > 0).then(|| buffer.freeze()))
    }

    /// The whole body, up to `bytes_max`.
    pub async fn whole(&mut self, bytes_max: usize, length: Option<u64>) -> Result<Bytes, Failure> {
        let expected =
            length.map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX)).min(bytes_max);
        let mut whole = BytesMut::with_capacity(expected);
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > bytes_max {
                return Err(Kind::TooLarge.because(format!(
                    "the body is longer than body_bytes_max ({bytes_max} bytes); send a sequence (application/x-ndjson), where the limit is per feature"
                )));
            }
            if whole.is_empty() && chunk.len() as u64 == length.unwrap_or(0) {
                return Ok(chunk); // it came in one piece: nothing to copy
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// Reads on and drops, within bounds, so that the client can read the answer.
    pub async fn drain(&mut self) {
        let end = Instant::now() + DRAIN_MAX;
        let mut left = DRAIN_BYTES_MAX;
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        while left > 0 {
            buffer.clear();
            match timeout_at(end, self.reader.read_buf(&mut buffer)).await {
                Ok(Ok(read)) if read > 0 => left = left.saturating_sub(read),
                _ => return,
            }
        }
    }
}
