//! The appliance as a [`Source`]: each request is one call of the admin client.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use crate::client::{AdminClient, ClientError, EndpointAction};
use crate::wire::DeadLetterSelection;

use super::feed::Source;
use super::message::{Answer, DeadVerb, EndpointVerb, FetchError, Request};
use super::model::PAGE_ROWS;

/// Files of one name that are tried before giving up: nobody exports a thousand times into one directory.
const FILES_MAX: u32 = 1_000;

/// A running appliance.
#[derive(Clone, Debug)]
pub struct Live {
    client: AdminClient,
}

impl Live {
    /// Over this client.
    pub fn new(client: AdminClient) -> Self {
        Self { client }
    }

    async fn call(&self, request: Request) -> Result<Answer, Failure> {
        let client = &self.client;
        Ok(match request {
            Request::Status => Answer::Status(Box::new(client.status().await?)),
            Request::Access => Answer::Access(client.access().await?),
            Request::History => Answer::History(client.history().await?),
            Request::Attempts => Answer::Attempts(client.attempts().await?),
            Request::Log => Answer::Log(client.log().await?),
            Request::Map(part) => Answer::Map(client.map(part).await?),
            Request::DeadLetters(query) => {
                let selection = DeadLetterSelection {
                    endpoint: query.endpoint,
                    class: query.class,
                    bbox: query.bbox,
                    limit: Some(PAGE_ROWS),
                    ..DeadLetterSelection::default()
                };
                Answer::DeadLetters(client.newest_dead_letters(&selection, query.cursor.as_deref()).await?)
            }
            Request::DeadLetter(id) => Answer::DeadLetter(Box::new(client.dead_letter(&id).await?)),
            Request::Outbox { endpoint, area, cursor } => {
                Answer::Outbox(client.outbox(endpoint.as_deref(), area, PAGE_ROWS, cursor.as_deref()).await?)
            }
            Request::Story(id) => Answer::Story(Box::new(client.event(&id).await?)),
            Request::Count(verb, selection) | Request::Dead(verb, selection) => {
                let word = match verb {
                    DeadVerb::Redrive => "redrive",
                    DeadVerb::Discard => "discard",
                    DeadVerb::Repair => "repair",
                };
                Answer::Dead(client.dead_letter_action(word, &selection).await?)
            }
            Request::CountExport(selection) => Answer::Counted(client.dead_letter_count(&selection).await?),
            Request::Export(selection) => self.export(&selection).await?,
            Request::Endpoint(verb, name) => {
                let action = match verb {
                    EndpointVerb::Pause => EndpointAction::Pause,
                    EndpointVerb::Resume => EndpointAction::Resume,
                    EndpointVerb::Probe => EndpointAction::Probe,
                };
                Answer::Endpoint(client.endpoint(&name, action).await?)
            }
        })
    }

    /// Writes the selection as a GeoJSON text sequence into a new file here.
    async fn export(&self, selection: &DeadLetterSelection) -> Result<Answer, Failure> {
        let (path, file) = new_file().map_err(Failure::File)?;
        let mut out = Counted { inner: BufWriter::new(file), records: 0 };
        if selection.ids.is_empty() {
            self.client.export("geojsonseq", selection, &mut out).await?;
        }
        for id in &selection.ids {
            let letter = self.client.dead_letter(id).await?;
            // One record of a GeoJSON text sequence (RFC 8142), as the appliance writes them.
            writeln!(out, "\u{1e}{}", letter.to_feature()).map_err(Failure::File)?;
        }
        out.flush().map_err(Failure::File)?;
        Ok(Answer::Exported { file: path.display().to_string(), count: out.records })
    }
}

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write the export: {0}")]
    File(io::Error),
}

/// A file that did not exist: an export never overwrites another.
fn new_file() -> io::Result<(PathBuf, std::fs::File)> {
    for number in 1..=FILES_MAX {
        let path = PathBuf::from(format!("dead-letters-{number:03}.geojsonseq"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

/// Counts the records of a GeoJSON text sequence as they pass: each ends in a line feed (RFC 8142).
struct Counted<W> {
    inner: W,
    records: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.records += bytes[..written].iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The first cause that says something: connection errors are wrapped several times.
fn cause(error: &dyn std::error::Error) -> String {
    let mut last = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        last = inner.to_string();
        source = inner.source();
    }
    last
}

impl Source for Live {
    async fn fetch(&self, request: Request) -> Result<Answer, FetchError> {
        self.call(request).await.map_err(|error| match &error {
            Failure::Client(ClientError::Unreachable { source, target }) => {
                FetchError::Unreachable(format!("{target}: {}", cause(source)))
            }
            Failure::Client(ClientError::Broken { .. }) => FetchError::Unreachable(error.to_string()),
            Failure::Client(_) | Failure::File(_) => FetchError::Refused(error.to_string()),
        })
    }
}
