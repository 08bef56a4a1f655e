//! `waypost key`: the idempotency key of each feature on standard input, without an appliance.
//!
//! One line in, one line out, so that input and output can be pasted together: a key, the canonical text (`--blob`),
//! or `error: …`. A blank line stays blank. The labels come from the options, else from the members that the
//! default configuration names.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;

use crate::core::event::{
    Document, EventMeta, Feature, IntakeSettings, KeyPlan, document, identity_text, labels, prepare,
};
use crate::core::key::{Recipe, article_blob, article_key};

/// Prints the idempotency key of each GeoJSON Feature read from standard input, one line each
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// Device of all features; else the member that the default pointers find, else "unknown"
    #[arg(long)]
    pub device: Option<String>,
    /// Event type of all features; found in the same way, else "feature"
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// What makes the key
    #[arg(long, value_enum, default_value_t = RecipeArg::Event)]
    pub recipe: RecipeArg,
    /// Decimal places to which coordinates are rounded in the key
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=PRECISION_MAX))]
    pub precision: u8,
    /// Print the canonical text that is hashed instead of the key
    #[arg(long)]
    pub blob: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// No double has more significant decimal places near 1; the article's vectors go to 12.
const PRECISION_MAX: i64 = 17;

/// Recipe as an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RecipeArg {
    /// Device, type, id, place, properties (the appliance's default)
    Event,
    /// The source article's: device, type and place only
    Article,
}

/// Reads standard input to its end; the exit code is 1 if a line had no key.
pub fn run(args: &KeyArgs) -> anyhow::Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match keys(args, &mut io::stdin().lock(), &mut out).and_then(|all| out.flush().map(|()| all)) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        // Whoever read the output (`head`) has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).context("cannot read features or write keys"),
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Answers line by line; false if one had no key.
pub fn keys(args: &KeyArgs, input: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<bool> {
    let (mut line, mut number, mut all) = (Vec::new(), 0, true);
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(all);
        }
        number += 1;
        let answer = if line.trim_ascii().is_empty() { Ok(String::new()) } else { answer(args, &line) };
        all &= answer.is_ok();
        if !args.json {
            match answer {
                Ok(text) => writeln!(out, "{text}")?,
                Err(error) => writeln!(out, "error: {error}")?,
            }
            continue;
        }
        let text = answer.as_deref().ok();
        let (key, blob) = if args.blob { (None, text) } else { (text, None) };
        let error = answer.as_ref().err().map(String::as_str);
        serde_json::to_writer(&mut *out, &Answer { line: number, key, blob, error })?;
        writeln!(out)?;
    }
}

fn answer(args: &KeyArgs, line: &[u8]) -> Result<String, String> {
    let feature = feature(line)?;
    let recipe = match args.recipe {
        RecipeArg::Event => Recipe::Event,
        RecipeArg::Article => Recipe::Article,
    };
    let settings = IntakeSettings { recipe, precision: args.precision, ..IntakeSettings::default() };
    let meta = EventMeta {
        device: args.device.as_deref().map(Into::into),
        event_type: args.event_type.as_deref().map(Into::into),
        producer_key: None,
    };
    if recipe == Recipe::Article {
        match article_blob(feature.geometry_text(), args.precision) {
            Ok(blob) if args.blob => return Ok(blob),
            Ok(blob) => {
                let (device, event_type) =
                    labels(&settings, &feature, &meta).map_err(|error| error.to_string())?;
                return Ok(article_key(device.as_str(), event_type.as_str(), &blob).to_string());
            }
            // These have the key of recipe `event` in the appliance too.
            Err(error) if error.has_event_key() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    // What the appliance would refuse has no key.
    let settings = IntakeSettings { recipe: Recipe::Event, ..settings };
    let event = prepare(&settings, &feature, &meta).map_err(|error| error.to_string())?;
    if args.blob {
        return identity_text(&settings, &feature, &meta).map_err(|error| error.to_string());
    }
    match event.key {
        KeyPlan::Fixed(key) => Ok(key.to_string()),
        KeyPlan::WithSequence(_) => Err("no observation time".to_owned()),
    }
}

/// The Feature in a line. A record separator before it is passed over, so that text sequences can be piped in.
fn feature(line: &[u8]) -> Result<Feature, String> {
    let line = line.strip_prefix(b"\x1e").unwrap_or(line);
    let line = line.trim_ascii();
    match document(line.to_vec().into()) {
        Err(rejection) => Err(rejection.to_string()),
        Ok(Document::Collection(_)) => Err("a FeatureCollection; one Feature a line is wanted".to_owned()),
        Ok(Document::Feature(feature)) if feature.is_wrapped() => {
            Err("a bare geometry; one Feature a line is wanted".to_owned())
        }
        Ok(Document::Feature(feature)) => Ok(feature),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: KeyArgs,
    }

    fn answers(args: &[&str], input: &str) -> (String, bool) {
        let cli = Cli::parse_from([&["key"], args].concat());
        let mut out = Vec::new();
        let all = keys(&cli.args, &mut input.as_bytes(), &mut out).unwrap();
        (String::from_utf8(out).unwrap(), all)
    }

    const POINT: &str = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[13.40495400,52.520008]},"properties":{"device_id":"d","v":1}}"#;

    #[test]
    fn each_line_has_its_answer() {
        let timed = POINT.replace("\"v\"", "\"seq\"");
        let input =
            format!("{POINT}\n\n\u{1e}{timed}\r\nnonsense\n{{\"type\":\"Point\",\"coordinates\":[1,2]}}");
        let (out, all) = answers(&[], &input);
        let lines: Vec<_> = out.lines().collect();
        assert!(!all);
        assert_eq!(lines[0], "error: no observation time");
        assert_eq!(lines[1], "");
        assert!(lines[2].starts_with("idem:v2:") && lines[2].len() == 72);
        assert_eq!(lines[3], "error: not JSON: unexpected character at line 1, column 1");
        assert_eq!(lines[4], "error: a bare geometry; one Feature a line is wanted");
        assert_eq!(lines.len(), 5);
        let (out, all) = answers(&["--json"], &timed);
        assert!(all && out.starts_with("{\"line\":1,\"key\":\"idem:v2:"), "{out}");
    }

    #[test]
    fn blobs_are_the_hashed_texts() {
        let blob = "{\"coordinates\":[13.404954,52.520008],\"type\":\"Point\"}";
        assert_eq!(answers(&["--recipe", "article", "--blob"], POINT), (format!("{blob}\n"), true));
        let (out, _) = answers(&["--blob", "--type", "t:u", "--precision", "2"], POINT);
        assert_eq!(
            out,
            "[\"idem:v2\",\"event\",\"d\",\"t:u\",null,{\"coordinates\":[13.4,52.52],\"type\":\"Point\"},\
             {\"device_id\":\"d\",\"v\":1},{}]\n"
        );
        // sha256("d:feature:" + blob), as the article's Python gives it.
        let (key, all) = answers(&["--recipe", "article"], POINT);
        assert!(all && key.starts_with("idem:v1:"));
        let null = POINT.replace(r#"{"type":"Point","coordinates":[13.40495400,52.520008]}"#, "null");
        assert_eq!(answers(&["--recipe", "article"], &null).0, "error: no observation time\n");
        let text = POINT.replace("52.520008", "\"x\"");
        assert_eq!(
            answers(&["--recipe", "article"], &text).0,
            "error: coordinates hold something other than arrays of numbers\n"
        );
    }
}
