//! `waypost store`: looks at, checks, rewrites and moves the data directory itself.
//!
//! `info` and `verify` change nothing and work beside a running appliance; the others need it stopped (they take the
//! lock and say who holds it).

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::output;
use crate::clock::{Clock, ClockTrust};
use crate::store::{self, StoreConfig, WhenFull};

/// Looks at, checks, compacts, exports and imports a data directory
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// What to do
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// What to do with a data directory.
#[derive(Debug, clap::Subcommand)]
pub enum StoreCommand {
    /// Sizes and counters, from the files alone
    Info(Place),
    /// Reads every record and reports each damage; changes nothing; exit code 1 if there is any
    Verify(Place),
    /// Frees what can be freed and rewrites the index without its dead space (appliance stopped)
    Compact(Place),
    /// Writes every event, key, dead letter and counter as JSON lines (appliance stopped)
    Export {
        /// Which store
        #[command(flatten)]
        place: Place,
        /// Write to this file instead of stdout
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Makes a new store of an export
    Import {
        /// Where to
        #[command(flatten)]
        place: Place,
        /// The export; `-` is stdin
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Which data directory, and how to print.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "./waypost-data")]
    pub data_dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Carries it out.
pub fn run(args: &StoreArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        StoreCommand::Info(place) => info(place),
        StoreCommand::Verify(place) => verify(place),
        StoreCommand::Compact(place) => compact(place),
        StoreCommand::Export { place, out } => export(place, out.as_deref()),
        StoreCommand::Import { place, file } => import(place, file),
    }
}

/// Settings under which nothing of a store is refused or forgotten while it is only moved.
fn keeping(dir: &Path) -> StoreConfig {
    StoreConfig {
        dir: dir.to_owned(),
        disk_bytes_max: u64::MAX,
        disk_free_reserve: 0,
        dead_letter_share: 1.0,
        cache_bytes_max: 0,
        when_full: WhenFull::Reject,
        key_ttl: Duration::MAX,
        window_without_time: Duration::MAX,
        keys_bytes_max: u64::MAX,
        endpoints: Vec::new(),
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn info(place: &Place) -> anyhow::Result<ExitCode> {
    let info = store::info(&place.data_dir)?;
    if place.json {
        output::json(&info)?;
        return Ok(ExitCode::SUCCESS);
    }
    let state = if info.running { "in use by an appliance" } else { "not in use" };
    output::line(&format!("{}: format {}, {state}", place.data_dir.display(), info.format))?;
    output::line(&format!(
        "{} on disk: {} of log in {} segments, {} of index, {} set aside",
        mib(info.disk_bytes),
        mib(info.log_bytes),
        info.segments,
        mib(info.index_bytes),
        mib(info.quarantined_bytes)
    ))?;
    output::line(&format!(
        "next sequence {} and these counters when the newest segment began:",
        info.next_seq
    ))?;
    for one in &info.endpoints {
        let ledger = &one.ledger;
        output::line(&format!(
            "  {}: accepted {}, delivered {}, pending {}, dead {}, lost {}",
            crate::core::text::visible(&one.name),
            ledger.accepted,
            ledger.delivered,
            ledger.pending,
            ledger.dead,
            ledger.lost
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(place: &Place) -> anyhow::Result<ExitCode> {
    let report = store::verify(&place.data_dir)?;
    if place.json {
        output::json(&report)?;
    } else {
        output::line(&format!(
            "{} segments, {} records, {} read; index {}",
            report.segments,
            report.records,
            mib(report.log_bytes),
            match (report.index_checked, report.running) {
                (true, _) => "compared with the log",
                (false, true) => "not looked at: an appliance has it open",
                (false, false) => "unreadable",
            }
        ))?;
        for damage in &report.damages {
            let at = damage.offset.map_or(String::new(), |offset| format!(" at {offset}"));
            output::line(&format!("{}{at}: {} ({} bytes)", damage.file, damage.what, damage.bytes))?;
        }
        let verdict =
            if report.is_sound() { "sound" } else { "damaged: the next start sets it aside and counts it" };
        output::line(verdict)?;
    }
    Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compact(place: &Place) -> anyhow::Result<ExitCode> {
    let (before, after) = store::compact(keeping(&place.data_dir), Clock::system(ClockTrust::Auto))?;
    if place.json {
        output::json(&json!({"bytes_before": before, "bytes_after": after}))?;
    } else {
        output::line(&format!("{} before, {} after", mib(before), mib(after)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn export(place: &Place, out: Option<&Path>) -> anyhow::Result<ExitCode> {
    let ported = match out {
        None => store::export(&place.data_dir, &mut BufWriter::new(io::stdout().lock()))?,
        Some(path) => {
            let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
            let mut out = BufWriter::new(file);
            let ported = store::export(&place.data_dir, &mut out)?;
            out.flush()?;
            out.get_ref().sync_all()?;
            ported
        }
    };
    report(place, ported, out.is_none())
}

fn import(place: &Place, path: &Path) -> anyhow::Result<ExitCode> {
    let mut input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(path).with_context(|| format!("open {}", path.display()))?))
    };
    let ported = store::import(keeping(&place.data_dir), Clock::system(ClockTrust::Auto), &mut *input)?;
    report(place, ported, false)
}

/// Says what went through; on stderr when stdout carries the export.
fn report(place: &Place, ported: store::Ported, aside: bool) -> anyhow::Result<ExitCode> {
    let text = if place.json {
        serde_json::to_string(&ported)?
    } else {
        format!("{} events, {} keys, {} unreadable", ported.events, ported.keys, ported.unreadable)
    };
    if aside {
        eprintln!("{text}");
    } else {
        output::line(&text)?;
    }
    Ok(if ported.unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
