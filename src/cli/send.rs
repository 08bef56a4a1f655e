//! `waypost send`: posts a file or stdin to a running appliance, with a progress bar on a terminal.
//!
//! NDJSON and text sequences are cut into posts of some thousand features, so a file of any size goes through in
//! constant memory and a refused line is named by its line in the file. When the appliance says "later" (429, 503,
//! 507) the same post is sent again after the time that it asks for: events have keys, so nothing doubles.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::Connect;
use super::output::{self, count};
use crate::client::{AdminClient, EventMedia, PostOptions, Posted};
use crate::core::text::visible;
use crate::wire::{IngestResponse, IngestStatus};

/// Bytes per post of a sequence: a few thousand pings, well under a second of work.
const CHUNK_BYTES: usize = 1 << 20;
/// Longest line or element that is looked for before giving up.
const ELEMENT_BYTES_MAX: usize = 64 << 20;
/// Refused features that are printed one by one.
const SHOWN_MAX: usize = 20;
/// Times a post is repeated when the appliance asks to wait.
const WAITS_MAX: u32 = 60;

/// Arguments of `send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// File to send; `-` or nothing: stdin
    file: Option<PathBuf>,
    /// Device of every event (else the events say)
    #[arg(long)]
    device: Option<String>,
    /// Type of every event (else the events say)
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    #[command(flatten)]
    connect: Connect,
    /// Print the totals as JSON
    #[arg(long)]
    json: bool,
}

/// Runs it. Exit code 1 if anything was refused.
pub async fn run(args: SendArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(args.connect.target()?)?;
    let options = PostOptions { device: args.device.clone(), event_type: args.event_type.clone() };
    let (mut reader, length): (Box<dyn AsyncRead + Unpin + Send>, Option<u64>) = match &args.file {
        Some(path) if path != Path::new("-") => {
            let file = tokio::fs::File::open(path)
                .await
                .with_context(|| format!("cannot read {}", path.display()))?;
            let length = file.metadata().await.ok().map(|metadata| metadata.len());
            (Box::new(file), length)
        }
        _ => (Box::new(tokio::io::stdin()), None),
    };
    let mut sender =
        Sender { client, options, bar: bar(length), totals: IngestResponse::default(), base: 0, shown: 0 };
    let sent = sender.send_all(&mut reader, args.file.as_deref()).await;
    sender.bar.finish_and_clear();
    let totals = &sender.totals;
    if args.json {
        output::json(&serde_json::json!({
            "accepted": totals.accepted, "duplicates": totals.duplicates,
            "dead_lettered": totals.dead_lettered, "rejected": totals.rejected,
        }))?;
    } else {
        output::line(&format!(
            "accepted {}, duplicates {}, dead-lettered {}, rejected {}",
            count(totals.accepted),
            count(totals.duplicates),
            count(totals.dead_lettered),
            count(totals.rejected)
        ))?;
    }
    sent?;
    Ok(ExitCode::from(u8::from(totals.rejected > 0)))
}

fn bar(length: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = if length.is_some() {
        "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg}"
    } else {
        "{spinner} {bytes} {bytes_per_sec} {msg}"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

struct Sender {
    client: AdminClient,
    options: PostOptions,
    bar: ProgressBar,
    totals: IngestResponse,
    /// Features of the posts before, so that indexes count through the file.
    base: u64,
    shown: usize,
}

impl Sender {
    async fn send_all(
        &mut self,
        reader: &mut (dyn AsyncRead + Unpin + Send),
        file: Option<&Path>,
    ) -> anyhow::Result<()> {
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES * 2);
        let mut kind = None;
        loop {
            let read = reader.read_buf(&mut buffer).await.context("cannot read on")?;
            let end = read == 0;
            if kind.is_none() && (end || buffer.len() >= CHUNK_BYTES) {
                kind = Some(guess(file, &buffer));
            }
            let Some(kind) = kind else { continue };
            match kind.delimiter() {
                None if end => {
                    if !buffer.is_empty() {
                        self.post(buffer.split().freeze(), kind).await?;
                    }
                    return Ok(());
                }
                None => anyhow::ensure!(
                    buffer.len() <= ELEMENT_BYTES_MAX,
                    "the document is over {} MiB; send it as NDJSON or a text sequence",
                    ELEMENT_BYTES_MAX >> 20
                ),
                Some(delimiter) => self.cut(&mut buffer, delimiter, kind, end).await?,
            }
            if end {
                return Ok(());
            }
        }
    }

    /// Posts whole elements once there are enough of them.
    async fn cut(
        &mut self,
        buffer: &mut BytesMut,
        delimiter: u8,
        kind: EventMedia,
        end: bool,
    ) -> anyhow::Result<()> {
        if buffer.len() < CHUNK_BYTES && !end {
            return Ok(());
        }
        let cut = match buffer.iter().rposition(|byte| *byte == delimiter) {
            _ if end => buffer.len(),
            // A record separator begins an element, a line feed ends one.
            Some(position) if delimiter == b'\n' => position + 1,
            Some(position) => position,
            None => 0,
        };
        anyhow::ensure!(
            cut > 0 || buffer.len() <= ELEMENT_BYTES_MAX,
            "one element is over {} MiB",
            ELEMENT_BYTES_MAX >> 20
        );
        if cut > 0 {
            let chunk = buffer.split_to(cut).freeze();
            if !chunk.iter().all(u8::is_ascii_whitespace) {
                self.post(chunk, kind).await?;
            }
        }
        Ok(())
    }

    async fn post(&mut self, body: Bytes, kind: EventMedia) -> anyhow::Result<()> {
        let length = body.len() as u64;
        for _ in 0..WAITS_MAX {
            match self.client.post_events(body.clone(), kind, &self.options).await? {
                Posted::Done(response) => {
                    self.take(&response);
                    self.bar.inc(length);
                    return Ok(());
                }
                Posted::Later { retry_after, problem } => {
                    self.bar.set_message(format!(
                        "waiting {}s: {}",
                        retry_after.as_secs(),
                        visible(&problem.detail)
                    ));
                    tokio::time::sleep(retry_after.max(Duration::from_millis(200))).await;
                }
            }
        }
        anyhow::bail!("the appliance has asked to wait {WAITS_MAX} times; it is full")
    }

    fn take(&mut self, response: &IngestResponse) {
        let totals = &mut self.totals;
        totals.accepted += response.accepted;
        totals.duplicates += response.duplicates;
        totals.dead_lettered += response.dead_lettered;
        totals.rejected += response.rejected;
        for result in &response.results {
            if result.status != IngestStatus::Rejected {
                continue;
            }
            if self.shown == SHOWN_MAX {
                self.bar.suspend(|| eprintln!("… more refused features are not shown"));
            }
            self.shown += 1;
            if self.shown <= SHOWN_MAX {
                let place = self.base + result.index + 1;
                let reason = result.reason.as_deref().unwrap_or("no reason given");
                self.bar.suspend(|| eprintln!("feature {place}: {}", visible(reason)));
            }
        }
        self.base += response.accepted + response.duplicates + response.dead_lettered + response.rejected;
        self.bar.set_message(format!(
            "{} accepted, {} refused",
            count(totals.accepted),
            count(totals.rejected)
        ));
    }
}

/// What the input is, from its first byte, its name, and whether more than one line of it is JSON on its own.
fn guess(file: Option<&Path>, start: &[u8]) -> EventMedia {
    let extension =
        file.and_then(|path| path.extension()).and_then(|extension| extension.to_str()).unwrap_or("");
    if start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&0x1e) || extension == "geojsonseq" {
        return EventMedia::Sequence;
    }
    if ["ndjson", "jsonl", "geojsonl"].contains(&extension) {
        return EventMedia::Ndjson;
    }
    let first_line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let several = start[first_line.len()..].iter().any(|byte| !byte.is_ascii_whitespace());
    if several && serde_json::from_slice::<serde::de::IgnoredAny>(first_line).is_ok() {
        return EventMedia::Ndjson;
    }
    EventMedia::Document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_input_is_told_by_its_start() {
        let none = None;
        assert_eq!(guess(none, b"\x1e{}\n"), EventMedia::Sequence);
        assert_eq!(guess(none, b"{\"a\":1}\n{\"a\":2}\n"), EventMedia::Ndjson);
        assert_eq!(guess(none, b"{\n\"a\":1}\n"), EventMedia::Document);
        assert_eq!(guess(none, b"{\"a\":1}\n"), EventMedia::Document);
        assert_eq!(guess(Some(Path::new("x.ndjson")), b"{\"a\":1}"), EventMedia::Ndjson);
    }
}
