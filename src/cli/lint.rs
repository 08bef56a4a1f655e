//! `waypost lint`: judges the geometry of each feature, as the gate of the intake would.
//!
//! Lines and text sequences are read as a stream, so the memory is that of the longest feature; a single document (a
//! FeatureCollection over several lines) is read whole. With `--fix` standard output carries the features instead, one
//! a line, mended where that can be done; what is said of those that were not valid goes to standard error.
//!
//! What differs from the intake: positions that shapely cannot read (2D and 3D mixed, more than three numbers) are
//! called `reject`, as by the reference; the intake keeps such a feature as a dead letter.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};

use super::output::{self, count};
use crate::core::event::{Feature, Framing, Rejection, SequenceSplitter, document};
use crate::core::geometry::parse::{Limits, RefusalKind, geometry};
use crate::core::geometry::repair::{Change, repair};
use crate::core::geometry::{Geometry, GeometryVerdict, bbox, check};

/// Longest feature, and longest document that is read whole.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Begins an element of a text sequence (RFC 8142).
const RECORD_SEPARATOR: u8 = 0x1e;

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
    /// Print the features, one a line, invalid geometries mended; what is wrong goes to stderr. Features that
    /// cannot be mended are left out
    #[arg(long)]
    fix: bool,
    /// Say nothing of positions beyond 180 degrees of longitude or 90 of latitude
    #[arg(long)]
    no_range_warning: bool,
}

/// What is said of one feature.
struct Finding {
    verdict: &'static str,
    reason: Option<String>,
    location: Option<[f64; 2]>,
    /// The geometry, where it could be read.
    geometry: Option<Geometry>,
}

impl Finding {
    fn new(verdict: &'static str, reason: impl Into<Option<String>>, location: Option<[f64; 2]>) -> Self {
        Finding { verdict, reason: reason.into(), location, geometry: None }
    }

    /// Positions that no place on Earth has: not refused, other systems of coordinates are a producer's right.
    fn range_warning(&self) -> Option<&'static str> {
        let [west, south, east, north] = bbox(self.geometry.as_ref()?)?;
        let beyond = west < -180.0 || east > 180.0 || south < -90.0 || north > 90.0;
        beyond.then_some("positions beyond 180 degrees of longitude or 90 of latitude")
    }
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
        fix: args.fix,
        range_warning: !args.no_range_warning,
        out: BufWriter::new(Box::new(std::io::stdout())),
        layer: args.geojson.as_deref().map(Layer::create).transpose()?,
        counts: [0; 4],
        mended: 0,
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
    if start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&RECORD_SEPARATOR)
        || extension == "geojsonseq"
    {
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

/// The lines on which the elements of a stream begin: the splitter does not count blank ones.
struct Lines {
    delimiter: u8,
    line: u64,
    first: Option<u64>,
    begun: VecDeque<u64>,
}

impl Lines {
    fn new(framing: Framing) -> Self {
        let delimiter = if framing == Framing::Lines { b'\n' } else { RECORD_SEPARATOR };
        Lines { delimiter, line: 1, first: None, begun: VecDeque::new() }
    }

    fn push(&mut self, chunk: &[u8]) {
        for byte in chunk {
            // White space, separators and a byte order mark begin no element.
            let nothing =
                matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | &RECORD_SEPARATOR | 0xef | 0xbb | 0xbf);
            if *byte == self.delimiter {
                self.begun.extend(self.first.take());
            } else if !nothing {
                self.first.get_or_insert(self.line);
            }
            self.line += u64::from(*byte == b'\n');
        }
    }
}

struct Lint {
    limits: Limits,
    fix: bool,
    range_warning: bool,
    out: BufWriter<Box<dyn Write>>,
    layer: Option<Layer>,
    /// valid, empty, invalid, reject
    counts: [u64; 4],
    mended: u64,
}

impl Lint {
    fn sequence(&mut self, framing: Framing, start: Vec<u8>, input: &mut dyn Read) -> anyhow::Result<()> {
        let mut splitter = SequenceSplitter::new(framing, TEXT_BYTES_MAX);
        let mut lines = Lines::new(framing);
        let mut chunk = start;
        loop {
            let end = chunk.is_empty();
            lines.push(&chunk);
            splitter.push(Bytes::from(std::mem::take(&mut chunk)));
            if end {
                splitter.finish();
                lines.begun.extend(lines.first.take());
            }
            for element in splitter.by_ref() {
                let line = lines.begun.pop_front().unwrap_or(element.index + 1);
                let text = element.text.map_err(Rejection::from);
                self.text(line, text)?;
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
            Err(rejection) => self.tell(1, &rejected(&rejection), None),
            Ok(document) => {
                // In a collection "line" counts its members: they have no lines of their own.
                for (index, feature) in document.into_iter().enumerate() {
                    self.feature(index as u64 + 1, feature.as_ref())?;
                }
                Ok(())
            }
        }
    }

    fn text(&mut self, line: u64, text: Result<Bytes, Rejection>) -> anyhow::Result<()> {
        match text.and_then(document) {
            Err(rejection) => self.tell(line, &rejected(&rejection), None),
            Ok(document) => {
                for feature in document {
                    self.feature(line, feature.as_ref())?;
                }
                Ok(())
            }
        }
    }

    fn feature(&mut self, line: u64, feature: Result<&Feature, &Rejection>) -> anyhow::Result<()> {
        let finding = feature.map_or_else(rejected, |feature| judge(feature, &self.limits));
        self.tell(line, &finding, feature.ok())
    }

    fn tell(&mut self, line: u64, finding: &Finding, feature: Option<&Feature>) -> anyhow::Result<()> {
        let kinds = ["valid", "empty", "invalid", "reject"];
        if let Some(index) = kinds.iter().position(|kind| *kind == finding.verdict) {
            self.counts[index] += 1;
        }
        let mut said = Map::new();
        said.insert("line".to_owned(), line.into());
        said.insert("verdict".to_owned(), finding.verdict.into());
        said.insert("reason".to_owned(), finding.reason.clone().into());
        said.insert("location".to_owned(), json!(finding.location));
        if let Some(warning) = finding.range_warning().filter(|_| self.range_warning) {
            said.insert("warning".to_owned(), warning.into());
        }
        if let Some(layer) = &mut self.layer {
            layer.add(line, finding)?;
        }
        if !self.fix {
            writeln!(self.out, "{}", Value::Object(said))?;
            return Ok(());
        }
        if let Some(feature) = feature
            && let Some(text) = self.mend(feature, finding, &mut said)
        {
            writeln!(self.out, "{text}")?;
        }
        if finding.verdict != "valid" {
            writeln!(std::io::stderr(), "{}", Value::Object(said))?;
        }
        Ok(())
    }

    /// The feature's text with a geometry that is valid, if there is one; says what was done.
    fn mend(
        &mut self,
        feature: &Feature,
        finding: &Finding,
        said: &mut Map<String, Value>,
    ) -> Option<String> {
        if finding.verdict == "valid" {
            return Some(on_one_line(feature.text()));
        }
        match repair(finding.geometry.as_ref()?) {
            Err(why) => {
                said.insert("not_mended".to_owned(), why.to_string().into());
                None
            }
            Ok(repaired) => {
                let changes: Vec<&str> = repaired.changes.iter().copied().map(Change::as_str).collect();
                said.insert("mended".to_owned(), json!(changes));
                self.mended += 1;
                Some(on_one_line(&feature.with_geometry(&repaired.geometry.to_json())))
            }
        }
    }

    fn finish(mut self) -> anyhow::Result<ExitCode> {
        self.out.flush()?;
        if let Some(layer) = self.layer {
            layer.finish()?;
        }
        let [valid, empty, invalid, reject] = self.counts;
        if std::io::stderr().is_terminal() {
            let mended = if self.fix { format!(", {} mended", count(self.mended)) } else { String::new() };
            eprintln!(
                "{} valid, {} empty, {} invalid, {} not acceptable{mended}",
                count(valid),
                count(empty),
                count(invalid),
                count(reject)
            );
        }
        Ok(ExitCode::from(u8::from(empty + invalid + reject > self.mended)))
    }
}

/// JSON text without line breaks: they can only be white space between tokens.
fn on_one_line(text: &str) -> String {
    text.trim().replace(['\r', '\n'], " ")
}

fn rejected(rejection: &Rejection) -> Finding {
    Finding::new("reject", rejection.to_string(), None)
}

fn judge(feature: &Feature, limits: &Limits) -> Finding {
    let text = feature.geometry_text();
    if text == "null" {
        return Finding::new("valid", None, None); // legal: an event without a place
    }
    let parsed = match geometry(text, limits) {
        Ok(parsed) => parsed,
        Err(refusal) if matches!(refusal.kind, RefusalKind::TooManyVertices { .. }) => {
            return Finding::new("invalid", refusal.kind.to_string(), refusal.location);
        }
        Err(refusal) => return Finding::new("reject", refusal.to_string(), refusal.location),
    };
    let finding = match check(&parsed) {
        GeometryVerdict::Valid => Finding::new("valid", None, None),
        GeometryVerdict::Empty => Finding::new("empty", "empty geometry".to_owned(), None),
        GeometryVerdict::Invalid(defect) => {
            Finding::new("invalid", defect.kind.as_str().to_owned(), defect.location)
        }
    };
    Finding { geometry: Some(parsed), ..finding }
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
