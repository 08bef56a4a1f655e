//! `waypost dlq list | show | redrive | discard | repair | export`: the dead-letter queue.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use super::Connect;
use super::event::attempts;
use super::output::{self, Table, Usage, count, size};
use crate::client::AdminClient;
use crate::core::delivery::FailureClass;
use crate::core::text::visible;
use crate::wire::{DeadLetterActionView, DeadLetterSelection, DeadLetterView, RepairedLetter};

/// Entries asked for at once.
const PAGE_MAX: u64 = 500;

const REPAIR_LONG: &str = "Mend invalid geometries, each as a new event that replaces its dead letter

What `waypost lint --fix` does to a geometry is done to a stored one: a bow-tie becomes two polygons, spikes and \
repeated points go, rings are closed. The new event carries a member \"repaired_from\" with the id of the dead letter, \
so it has its own bytes and its own key; it goes only to the endpoint of the letter, which ends as superseded. What \
cannot be mended stays a dead letter. --dry-run shows what would be done.";

/// Arguments of `dlq`.
#[derive(Debug, Args)]
pub struct DlqArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Dead letters with reason and place
    List(ListArgs),
    /// One dead letter whole: reason, attempts, exact bytes
    Show(ShowArgs),
    /// Send again with the first key, id and bytes
    Redrive(ActArgs),
    /// Give up for good; the ledger counts it as discarded
    Discard(ActArgs),
    /// Mend invalid geometries, each as a new event that replaces its dead letter
    #[command(long_about = REPAIR_LONG)]
    Repair(ActArgs),
    /// Write them as a layer, with the reason as a property
    Export(ExportArgs),
}

/// Which dead letters.
#[derive(Clone, Debug, Args)]
struct Filter {
    /// Only of this endpoint
    #[arg(long, help_heading = "Filter")]
    endpoint: Option<String>,
    /// Only of this class
    #[arg(long, value_parser = class, help_heading = "Filter",
          value_name = "CLASS", help = "Only of this class: transient, invalid_geometry, schema_violation, crs_mismatch, rejected, expired, poison, unrouted, unknown")]
    class: Option<FailureClass>,
    /// Died at or after this time (RFC 3339)
    #[arg(long, help_heading = "Filter", value_name = "TIME")]
    since: Option<String>,
    /// Died before this time (RFC 3339)
    #[arg(long, help_heading = "Filter", value_name = "TIME")]
    until: Option<String>,
    /// Meets this box: west,south,east,north in degrees (west > east spans the antimeridian)
    #[arg(long, value_parser = bbox, allow_hyphen_values = true, help_heading = "Filter", value_name = "W,S,E,N")]
    bbox: Option<[f64; 4]>,
    /// At most so many
    #[arg(long, help_heading = "Filter", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

impl Filter {
    fn selection(&self, ids: Vec<String>, dry_run: bool) -> DeadLetterSelection {
        DeadLetterSelection {
            ids,
            endpoint: self.endpoint.clone(),
            class: self.class,
            since: self.since.clone(),
            until: self.until.clone(),
            bbox: self.bbox,
            limit: self.limit,
            dry_run,
        }
    }

    fn is_empty(&self) -> bool {
        self.endpoint.is_none()
            && self.class.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.bbox.is_none()
            && self.limit.is_none()
    }
}

fn class(text: &str) -> Result<FailureClass, String> {
    serde_json::from_value(serde_json::Value::String(text.replace('-', "_")))
        .map_err(|_| "no such class; see --help".to_owned())
}

fn bbox(text: &str) -> Result<[f64; 4], String> {
    let numbers: Vec<f64> = text
        .split(',')
        .map(|part| part.trim().parse::<f64>())
        .collect::<Result<_, _>>()
        .map_err(|err| err.to_string())?;
    let bbox: [f64; 4] = numbers.try_into().map_err(|_| "write west,south,east,north".to_owned())?;
    if bbox.iter().any(|number| !number.is_finite()) || bbox[1] > bbox[3] {
        return Err("write west,south,east,north with south below north".to_owned());
    }
    Ok(bbox)
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON, one envelope a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Id of the dead letter or of its event
    id: String,
    #[command(flatten)]
    connect: Connect,
    /// Print the envelope as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ActArgs {
    /// Ids of dead letters or of events
    ids: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Every dead letter
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Only count
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExportArgs {
    #[command(flatten)]
    filter: Filter,
    /// Form of the export
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// File to write; stdout without it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// One FeatureCollection
    #[default]
    Geojson,
    /// A text sequence (RFC 8142)
    Geojsonseq,
    /// A table with the place as longitude and latitude
    Csv,
}

/// Runs it.
pub async fn run(args: DlqArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List(args) => list(args).await,
        Action::Show(args) => show(args).await,
        Action::Redrive(args) => act(args, "redrive").await,
        Action::Discard(args) => act(args, "discard").await,
        Action::Repair(args) => act(args, "repair").await,
        Action::Export(args) => export(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(args.connect.target()?)?;
    let mut table =
        Table::new(&["ID", "ENDPOINT", "CLASS", "REASON", "PLACE", "DEVICE", "ATTEMPTS", "DIED", "SIZE"]);
    let mut left = args.filter.limit.unwrap_or(if args.json { u64::MAX } else { 1_000 });
    let (mut cursor, mut shown, mut total) = (None, 0u64, 0);
    loop {
        let selection = DeadLetterSelection {
            limit: Some(left.min(PAGE_MAX)),
            ..args.filter.selection(Vec::new(), false)
        };
        let page = client.dead_letters(&selection, cursor.as_deref()).await?;
        total = total.max(page.total);
        for entry in &page.entries {
            shown += 1;
            if args.json {
                output::line(&serde_json::to_string(entry)?)?;
            } else {
                table.row(&row(entry));
            }
        }
        left = left.saturating_sub(page.entries.len() as u64);
        cursor = page.cursor;
        if cursor.is_none() || left == 0 {
            break;
        }
    }
    if args.json {
        return Ok(ExitCode::SUCCESS);
    }
    if shown == 0 {
        output::line(if total == 0 {
            "there are no dead letters"
        } else {
            "no dead letter matches the filter"
        })?;
    } else {
        table.print(&[6, 8])?;
        if cursor.is_some() {
            output::line(&format!(
                "… {} shown of {}; raise --limit to see more",
                count(shown),
                count(total)
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &DeadLetterView) -> Vec<String> {
    let place = entry.geometry_error.as_ref().and_then(|error| error.location).or_else(|| {
        entry.bbox.map(|[west, south, east, north]| [f64::midpoint(west, east), f64::midpoint(south, north)])
    });
    vec![
        entry.id.clone(),
        entry.endpoint.clone(),
        serde_json::to_value(entry.failure_class)
            .ok()
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default(),
        entry.error_message.clone(),
        place.map_or_else(|| "-".to_owned(), |[lon, lat]| format!("{lon:.6}, {lat:.6}")),
        entry.device.clone(),
        entry.attempts.to_string(),
        entry.dead_lettered_at.clone(),
        size(entry.body_bytes),
    ]
}

async fn show(args: ShowArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(args.connect.target()?)?;
    let entry = client.dead_letter(&args.id).await?;
    if args.json {
        output::json(&entry)?;
        return Ok(ExitCode::SUCCESS);
    }
    let location = entry.geometry_error.as_ref().and_then(|error| error.location);
    for (name, value) in [
        ("dead letter", entry.id.clone()),
        ("event", entry.event_id.clone()),
        ("key", entry.idempotency_key.clone()),
        ("endpoint", entry.endpoint.clone()),
        ("class", format!("{:?}", entry.failure_class)),
        ("stage", format!("{:?}", entry.failed_stage)),
        ("reason", entry.error_message.clone()),
        ("place", location.map_or_else(|| "-".to_owned(), |[lon, lat]| format!("{lon}, {lat}"))),
        ("device", entry.device.clone()),
        ("type", entry.event_type.clone()),
        ("first seen", entry.first_seen_at.clone()),
        ("died", entry.dead_lettered_at.clone()),
        ("redriven", format!("{} times", entry.redrive_count)),
    ] {
        output::line(&format!("{name:<12} {}", visible(&value)))?;
    }
    attempts(&entry.history, 0)?;
    if let Some(body) = &entry.raw_payload {
        output::line(&format!("\n{}", visible(body)))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn act(args: ActArgs, verb: &'static str) -> anyhow::Result<ExitCode> {
    if args.ids.is_empty() && args.filter.is_empty() && !args.all {
        return Err(Usage(format!(
            "say which dead letters to {verb}: ids, a filter such as --class, or --all"
        ))
        .into());
    }
    let client = AdminClient::new(args.connect.target()?)?;
    let selection = args.filter.selection(args.ids.clone(), true);
    let dry = client.dead_letter_action(verb, &selection).await?;
    if args.dry_run {
        report(&dry, verb, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if dry.matched == dry.skipped {
        report(&DeadLetterActionView { dry_run: false, ..dry }, verb, args.json)?;
        return Ok(ExitCode::FAILURE);
    }
    let able = count(dry.matched - dry.skipped);
    let question = match (verb, dry.skipped) {
        ("repair", 0) => format!("repair {able} dead letters as new events?"),
        ("repair", _) => format!("repair {able} of {} dead letters as new events?", count(dry.matched)),
        _ => format!("{verb} {} dead letters?", count(dry.matched)),
    };
    if !args.yes && !output::confirm(&question)? {
        return Err(anyhow::anyhow!("nothing was done"));
    }
    let done = client.dead_letter_action(verb, &DeadLetterSelection { dry_run: false, ..selection }).await?;
    report(&done, verb, args.json)?;
    Ok(if done.done == done.matched { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(view: &DeadLetterActionView, verb: &str, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(view);
    }
    let past = match verb {
        "redrive" => "redriven",
        "repair" => "repaired",
        _ => "discarded",
    };
    for letter in &view.repaired {
        output::line(&visible(&repaired(letter)))?;
    }
    let mut text = if view.dry_run {
        format!("{} dead letters would be {past}", count(view.matched - view.skipped))
    } else {
        format!("{} of {} dead letters {past}", count(view.done), count(view.matched))
    };
    if view.skipped > 0 {
        let why = view.skipped_reason.as_deref().unwrap_or("no reason given");
        text += &format!("; {} left alone: {}", count(view.skipped), visible(why));
    }
    output::line(&text)
}

/// One repaired letter in a line: what became of what, and how.
fn repaired(letter: &RepairedLetter) -> String {
    let new = if letter.event_id.is_empty() { "a new event" } else { &letter.event_id };
    let mut text = format!("{} -> {new}: {}", letter.id, letter.changes.join(", "));
    if letter.type_before != letter.type_after {
        text += &format!(" ({} to {})", letter.type_before, letter.type_after);
    }
    text
}

async fn export(args: ExportArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(args.connect.target()?)?;
    let format = match args.format {
        Format::Geojson => "geojson",
        Format::Geojsonseq => "geojsonseq",
        Format::Csv => "csv",
    };
    let selection = args.filter.selection(Vec::new(), false);
    let mut out: Box<dyn Write + Send> = match &args.out {
        Some(path) => Box::new(std::io::BufWriter::new(
            std::fs::File::create(path)
                .map_err(|err| anyhow::anyhow!("cannot write {}: {err}", path.display()))?,
        )),
        None => Box::new(std::io::stdout()),
    };
    let bytes = client.export(format, &selection, &mut out).await?;
    out.flush()?;
    if let Some(path) = &args.out {
        eprintln!("{} written to {}", size(bytes), path.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_read_as_documented() {
        assert_eq!(bbox("-10,-5.5, 10,5").unwrap(), [-10.0, -5.5, 10.0, 5.0]);
        assert!(bbox("1,2,3").is_err());
        assert!(bbox("0,5,1,-5").is_err());
        assert_eq!(class("invalid-geometry").unwrap(), FailureClass::InvalidGeometry);
        assert!(class("nonsense").is_err());
    }
}
