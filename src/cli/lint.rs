//! `waypost lint`: judges the geometry of each feature, as the gate of the intake would.
//!
//! Lines and text sequences are read as a stream, so the memory is that of the longest feature; a single document (a
//! FeatureCollection over several lines) is read whole.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use serde_json::json;

use super::output::{self, count};
use crate::core::event::{Feature, Framing, Rejection, SequenceSplitter, document};
use crate::core::geometry::parse::{Limits, geometry};
use crate::core::geometry::{GeometryVerdict, check};

/// Longest feature, and longest document that is read whole.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Arguments of `lint`.
#[derive(Debug, Args)]
pub struct LintArgs {
    /// File to judge; `-` or nothing: stdin
    file: Option<PathBuf>,
    /// Write the defects to this file as a layer of points, with reason and line as properties
    #[arg(long, value_name = "FILE")]
    geojson: Option<PathBuf>,
    /// Vertices of one geometry
    #[arg(long, value_name = "COUNT", default_value_t = 250_000)]
    vertices_max: usize,
}

/// What is said of one feature.
struct Finding {
    verdict: &'static str,
    reason: Option<String>,
    location: Option<[f64; 2]>,
}

/// Runs it. Exit code 1 if any feature is not valid.
pub fn run(args: &LintArgs) -> anyhow::Result<ExitCode> {
    let mut input: Box<dyn Read> = match &args.file {
        Some(path) if path != Path::new("-") => {
            Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
        }
        _ => Box::new(std::io::stdin()),
    };
    let mut lint = Lint {
        limits: Limits { vertices_max: args.vertices_max, ..Limits::default() },
        out: BufWriter::new(Box::new(std::io::stdout())),
        layer: args.geojson.as_deref().map(Layer::create).transpose()?,
        counts: [0; 4],
    };
    let mut start = Vec::new();
    input.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut start).context("cannot read on")?;
    match framing(args.file.as_deref(), &start) {
        Some(framing) => lint.sequence(framing, start, &mut input)?,
        None => lint.whole(start, &mut input)?,
    }
    lint.finish()
}

/// How the input is cut; `None`: it is one document.
fn framing(file: Option<&Path>, start: &[u8]) -> Option<Framing> {
    let extension =
        file.and_then(|path| path.extension()).and_then(|extension| extension.to_str()).unwrap_or("");
    if start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&0x1e) || extension == "geojsonseq" {
        return Some(Framing::TextSequence);
    }
    let first = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let more = start[first.len()..].iter().any(|byte| !byte.is_ascii_whitespace());
    let alone = serde_json::from_slice::<serde::de::IgnoredAny>(start).is_ok();
    let first_alone = serde_json::from_slice::<serde::de::IgnoredAny>(first).is_ok();
    let named = ["ndjson", "jsonl", "geojsonl"].contains(&extension);
    // What is short and no document on its own is lines, one of which may be broken.
    let broken = !alone && start.len() < CHUNK_BYTES;
    (named || broken || (more && first_alone)).then_some(Framing::Lines)
}

struct Lint {
    limits: Limits,
    out: BufWriter<Box<dyn Write>>,
    layer: Option<Layer>,
    /// valid, empty, invalid, reject
    counts: [u64; 4],
}

impl Lint {
    fn sequence(&mut self, framing: Framing, start: Vec<u8>, input: &mut dyn Read) -> anyhow::Result<()> {
        let mut splitter = SequenceSplitter::new(framing, TEXT_BYTES_MAX);
        let mut chunk = start;
        loop {
            let end = chunk.is_empty();
            splitter.push(Bytes::from(std::mem::take(&mut chunk)));
            if end {
                splitter.finish();
            }
            for element in splitter.by_ref() {
                let text = element.text.map_err(Rejection::from);
                self.text(element.index + 1, text)?;
            }
            if end {
                return Ok(());
            }
            input.take(CHUNK_BYTES as u64).read_to_end(&mut chunk).context("cannot read on")?;
        }
    }

    fn whole(&mut self, start: Vec<u8>, input: &mut dyn Read) -> anyhow::Result<()> {
        let mut text = start;
        input.take(TEXT_BYTES_MAX as u64).read_to_end(&mut text).context("cannot read on")?;
        anyhow::ensure!(
            text.len() <= TEXT_BYTES_MAX,
            "the document is over {}; send it as lines or a text sequence",
            output::size(TEXT_BYTES_MAX as u64)
        );
        match document(Bytes::from(text)) {
            Err(rejection) => self.tell(1, &rejected(&rejection)),
            Ok(document) => {
                // In a collection "line" counts its members: they have no lines of their own.
                for (index, feature) in document.into_iter().enumerate() {
                    let finding =
                        feature.as_ref().map_or_else(rejected, |feature| judge(feature, &self.limits));
                    self.tell(index as u64 + 1, &finding)?;
                }
                Ok(())
            }
        }
    }

    fn text(&mut self, line: u64, text: Result<Bytes, Rejection>) -> anyhow::Result<()> {
        match text.and_then(document) {
            Err(rejection) => self.tell(line, &rejected(&rejection)),
            Ok(document) => {
                for feature in document {
                    let finding =
                        feature.as_ref().map_or_else(rejected, |feature| judge(feature, &self.limits));
                    self.tell(line, &finding)?;
                }
                Ok(())
            }
        }
    }

    fn tell(&mut self, line: u64, finding: &Finding) -> anyhow::Result<()> {
        let kinds = ["valid", "empty", "invalid", "reject"];
        if let Some(index) = kinds.iter().position(|kind| *kind == finding.verdict) {
            self.counts[index] += 1;
        }
        let text = json!({
            "line": line, "verdict": finding.verdict, "reason": finding.reason, "location": finding.location,
        });
        writeln!(self.out, "{text}")?;
        if let Some(layer) = &mut self.layer {
            layer.add(line, finding)?;
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<ExitCode> {
        self.out.flush()?;
        if let Some(layer) = self.layer {
            layer.finish()?;
        }
        let [valid, empty, invalid, reject] = self.counts;
        if std::io::stderr().is_terminal() {
            eprintln!(
                "{} valid, {} empty, {} invalid, {} not acceptable",
                count(valid),
                count(empty),
                count(invalid),
                count(reject)
            );
        }
        Ok(ExitCode::from(u8::from(empty + invalid + reject > 0)))
    }
}

fn rejected(rejection: &Rejection) -> Finding {
    Finding { verdict: "reject", reason: Some(rejection.to_string()), location: None }
}

fn judge(feature: &Feature, limits: &Limits) -> Finding {
    let text = feature.geometry_text();
    if text == "null" {
        return Finding { verdict: "valid", reason: None, location: None }; // legal: an event without a place
    }
    let parsed = match geometry(text, limits) {
        Ok(parsed) => parsed,
        Err(refusal) => {
            return match refusal.defect() {
                Some(defect) => Finding {
                    verdict: "invalid",
                    reason: Some(defect.kind.as_str().to_owned()),
                    location: defect.location,
                },
                None => Finding {
                    verdict: "reject",
                    reason: Some(refusal.to_string()),
                    location: refusal.location,
                },
            };
        }
    };
    match check(&parsed) {
        GeometryVerdict::Valid => Finding { verdict: "valid", reason: None, location: None },
        GeometryVerdict::Empty => {
            Finding { verdict: "empty", reason: Some("empty geometry".to_owned()), location: None }
        }
        GeometryVerdict::Invalid(defect) => Finding {
            verdict: "invalid",
            reason: Some(defect.kind.as_str().to_owned()),
            location: defect.location,
        },
    }
}

/// The defects as a FeatureCollection of points.
struct Layer {
    out: BufWriter<File>,
    first: bool,
}

impl Layer {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut out = BufWriter::new(file);
        out.write_all(b"{\"type\":\"FeatureCollection\",\"features\":[")?;
        Ok(Self { out, first: true })
    }

    fn add(&mut self, line: u64, finding: &Finding) -> anyhow::Result<()> {
        if finding.verdict == "valid" {
            return Ok(());
        }
        let geometry = finding.location.map(|place| json!({ "type": "Point", "coordinates": place }));
        let feature = json!({
            "type": "Feature", "geometry": geometry,
            "properties": { "line": line, "verdict": finding.verdict, "reason": finding.reason },
        });
        let separator = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        write!(self.out, "{separator}{feature}")?;
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.out.write_all(b"]}\n")?;
        self.out.flush()?;
        Ok(())
    }
}
