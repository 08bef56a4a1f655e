//! `waypost check`: reads a config without starting anything; with `--store` looks into the store read-only, with
//! `--net` tries names, connections and TLS.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::output;
use crate::clock::{Clock, rfc3339};
use crate::config::Config;
use crate::config::units::{duration_text, size_text};
use crate::core::classify::Outcome;
use crate::core::policy::{Jitter, PolicyKind};
use crate::sender::{HttpSender, Settings};

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Config file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Read the whole store and report damage; changes nothing, also beside a running appliance
    #[arg(long)]
    store: bool,
    /// Resolve and reach every endpoint (one HEAD-like connection each, no event is sent)
    #[arg(long)]
    net: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line of the report.
#[derive(serde::Serialize)]
struct Finding {
    what: String,
    ok: bool,
    detail: String,
}

/// Runs it. Exit code 2 for a wrong config, 1 if something it names is not right.
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    let mut findings = vec![Finding {
        what: "config".to_owned(),
        ok: true,
        detail: format!("{} is well-formed", args.config.display()),
    }];
    settings(&config, &mut findings);
    clock(&config, &mut findings);
    disk(&config, &mut findings);
    if args.store {
        findings.push(store(&config));
    }
    if args.net {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(net(&config, &mut findings));
    }
    if args.json {
        output::json(&findings)?;
    } else {
        for finding in &findings {
            let mark = if finding.ok { "ok   " } else { "WRONG" };
            output::line(&format!("{mark}  {:<18} {}", finding.what, finding.detail))?;
        }
    }
    Ok(ExitCode::from(u8::from(findings.iter().any(|finding| !finding.ok))))
}

fn settings(config: &Config, findings: &mut Vec<Finding>) {
    let mut fine = |what: String, detail: String| findings.push(Finding { what, ok: true, detail });
    fine(
        "ingest".to_owned(),
        format!(
            "{}, {} per feature, producers {}, admin {}",
            config.ingest.listen,
            size_text(config.ingest.body_bytes_max as u64),
            if config.ingest.token.is_some() { "with a token" } else { "without a token" },
            if config.ingest.admin_token.is_some() { "with a token" } else { "over the Unix socket only" },
        ),
    );
    for endpoint in &config.endpoints {
        let retry = &endpoint.policy.retry;
        fine(
            format!("endpoint {}", endpoint.name),
            format!(
                "{}, policy {}, {} at once, {} attempts ({} jitter, {} to {}, at most {} between them), window {}",
                endpoint.url_shown,
                match endpoint.policy.kind {
                    PolicyKind::Edge => "edge",
                    PolicyKind::Article => "article",
                },
                endpoint.policy.in_flight_max,
                retry.attempts_max,
                match retry.jitter {
                    Jitter::Full => "full",
                    Jitter::Equal => "equal",
                    Jitter::Decorrelated => "decorrelated",
                    Jitter::Additive => "additive",
                },
                duration_text(retry.base),
                duration_text(retry.cap),
                duration_text(retry.cap * (retry.attempts_max - 1)),
                duration_text(retry.window),
            ),
        );
    }
}

fn clock(config: &Config, findings: &mut Vec<Finding>) {
    let now = Clock::system(config.clock_trust).now();
    let word = if now.wall_trusted { "believed" } else { "not believed: nothing will expire until it is" };
    findings.push(Finding {
        what: "clock".to_owned(),
        ok: now.wall_trusted,
        detail: format!("{} is {word}", rfc3339(now.wall)),
    });
}

/// What `waypost store verify` tells, in a line.
fn store(config: &Config) -> Finding {
    let dir = config.data_dir.display();
    let (ok, detail) = if config.data_dir.join("log").exists() {
        match crate::store::verify(&config.data_dir) {
            Ok(report) if report.is_sound() => {
                (true, format!("{dir} is sound: {} records in {} segments", report.records, report.segments))
            }
            Ok(report) => {
                let places = report.damages.len();
                (
                    false,
                    format!(
                        "{dir} is damaged in {places} places; `waypost store verify --data-dir {dir}` names them"
                    ),
                )
            }
            Err(error) => (false, error.to_string()),
        }
    } else {
        (true, format!("none in {dir} yet; the first start makes it"))
    };
    Finding { what: "store".to_owned(), ok, detail }
}

/// The limit must fit what the file system has.
fn disk(config: &Config, findings: &mut Vec<Finding>) {
    let mut dir = config.data_dir.as_path();
    while !dir.exists() {
        match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => dir = parent,
            _ => dir = std::path::Path::new("."),
        }
    }
    let (ok, detail) = match rustix::fs::statvfs(dir) {
        Ok(stat) => {
            let free = stat.f_bavail * stat.f_frsize;
            let used = if dir == config.data_dir { directory_bytes(dir) } else { 0 };
            let wanted = config.store.disk_bytes_max.saturating_sub(used) + config.store.disk_free_reserve;
            let fits = free >= wanted;
            let word = if fits { "fits" } else { "does not fit: lower store.disk_bytes_max, or free space" };
            (
                fits,
                format!(
                    "{} free; the limit of {} {word}",
                    output::size(free),
                    size_text(config.store.disk_bytes_max)
                ),
            )
        }
        Err(err) => (false, format!("cannot look at {}: {err}", dir.display())),
    };
    findings.push(Finding { what: "disk".to_owned(), ok, detail });
}

async fn net(config: &Config, findings: &mut Vec<Finding>) {
    for endpoint in &config.endpoints {
        let what = format!("reach {}", endpoint.name);
        let sender = Settings::of(endpoint).and_then(HttpSender::new);
        let (ok, detail) = match sender {
            Err(err) => (false, err.to_string()),
            Ok(sender) => {
                let sent = sender.reach().await;
                match sent.outcome {
                    Outcome::Response(answer) => (
                        true,
                        format!(
                            "{} answers ({}) in {}",
                            endpoint.url_shown,
                            answer.status,
                            millis(sent.latency)
                        ),
                    ),
                    Outcome::Transport { kind, .. } => {
                        (false, format!("{}: {}", endpoint.url_shown, format!("{kind:?}").to_lowercase()))
                    }
                }
            }
        };
        findings.push(Finding { what, ok, detail });
    }
}

fn millis(latency: Duration) -> String {
    format!("{} ms", latency.as_millis())
}

/// Size of the files below a directory; what cannot be read counts as nothing.
fn directory_bytes(dir: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
