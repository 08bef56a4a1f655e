//! Request bodies as bounded streams: media type, content encoding, limits and deadlines.
//!
//! A compressed body is inflated as it comes, so a bomb is stopped at the limit and not in memory. A plain body is
//! handed on in the pieces it came in, uncopied.

use std::io;
use std::time::Duration;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};
use tokio_util::io::StreamReader;

use super::problem::{Failure, Kind};
use super::room::Share;
use crate::core::event::Framing;

/// Longest silence inside a body (field fault 57).
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A body must keep up at least this many bytes a second over its whole length; a 2G uplink does ten times as much.
const RATE_BYTES_MIN: u64 = 512;
/// Time that every body gets, however short.
const GRACE: Duration = Duration::from_secs(20);
/// Largest window of a zstd body, as a power of two: 8 MiB is what decoders must take (RFC 8878, section 3.1.1.1.2).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
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
    source: Source,
    started: Instant,
    read: u64,
    /// `Content-Length`, if the body is not compressed.
    length: Option<u64>,
}

enum Source {
    Frames(BodyDataStream),
    Inflated(Box<dyn AsyncRead + Send + Unpin>),
}

/// Wraps a body by its `Content-Encoding`.
pub(super) fn plain(headers: &HeaderMap, body: Body) -> Result<Plain, Failure> {
    let length = body.size_hint().exact();
    let frames = body.into_data_stream();
    let inflated = |reader| (Source::Inflated(reader), None);
    let encoding = headers
        .get(header::CONTENT_ENCODING)
        .map(|value| value.to_str().unwrap_or("?").trim().to_ascii_lowercase());
    let (source, length) = match encoding.as_deref() {
        None | Some("" | "identity") => (Source::Frames(frames), length),
        Some("gzip" | "x-gzip") => {
            let mut decoder = GzipDecoder::new(StreamReader::new(frames.map_err(io::Error::other)));
            decoder.multiple_members(true);
            inflated(Box::new(decoder))
        }
        Some("zstd") => {
            let raw = StreamReader::new(frames.map_err(io::Error::other));
            // A frame may ask for a window of its choice; more than this would be memory on a stranger's word.
            let mut decoder =
                ZstdDecoder::with_params(raw, &[DParameter::window_log_max(ZSTD_WINDOW_LOG_MAX)]);
            decoder.multiple_members(true);
            inflated(Box::new(decoder))
        }
        Some(other) => {
            return Err(Kind::UnsupportedMedia.because(format!(
                "Content-Encoding \"{}\" is not taken; send gzip, zstd or none",
                other.escape_debug()
            )));
        }
    };
    Ok(Plain { source, started: Instant::now(), read: 0, length })
}

impl Plain {
    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let pace = self.started + GRACE + Duration::from_secs(self.read / RATE_BYTES_MIN);
        let deadline = pace.min(Instant::now() + SILENCE_MAX);
        let cut = || Kind::BadRequest.because("the body ended before its length");
        let chunk = match &mut self.source {
            Source::Frames(frames) => match timeout_at(deadline, frames.next()).await {
                Err(_) => return Err(too_slow()),
                Ok(None) => None,
                Ok(Some(Ok(bytes))) => Some(bytes),
                Ok(Some(Err(_))) => return Err(cut()),
            },
            Source::Inflated(reader) => {
                // A few packed bytes can be hundreds of megabytes, all at hand at once: others get their turn between.
                tokio::task::yield_now().await;
                let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
                match timeout_at(deadline, reader.read_buf(&mut buffer)).await {
                    Err(_) => return Err(too_slow()),
                    Ok(Ok(0)) => None,
                    Ok(Ok(_)) => Some(buffer.freeze()),
                    // Errors of the connection were wrapped as `Other` above; the decoder uses other kinds.
                    Ok(Err(err)) if err.kind() == io::ErrorKind::Other => return Err(cut()),
                    Ok(Err(_)) => {
                        return Err(
                            Kind::BadRequest.because("the body is not what its Content-Encoding says")
                        );
                    }
                }
            }
        };
        self.read += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(chunk)
    }

    /// The whole body, up to `bytes_max`, as long as the share in memory can hold it.
    pub async fn whole(&mut self, bytes_max: usize, share: &mut Share) -> Result<Bytes, Failure> {
        let too_large = || {
            Kind::TooLarge.because(format!(
                "the body is longer than body_bytes_max ({bytes_max} bytes); send a sequence (application/x-ndjson), where the limit is per feature"
            ))
        };
        if self.length.is_some_and(|length| length > bytes_max as u64) {
            return Err(too_large());
        }
        let told = self.length.map_or(0, |length| length as usize); // at most bytes_max
        share.set(told)?;
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > bytes_max {
                return Err(too_large());
            }
            share.set(told.max(whole.len() + chunk.len()))?;
            if whole.is_empty() && self.length == Some(chunk.len() as u64) {
                return Ok(chunk); // it came in one piece: nothing to copy
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }
}

fn too_slow() -> Failure {
    Kind::TooSlow.because("the body came too slowly; send it again")
}
