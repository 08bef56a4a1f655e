//! `waypost status`: the ledger and each endpoint, once or again and again.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::Connect;
use super::output::{self, Table, age, count, size};
use crate::client::AdminClient;
use crate::core::text::visible;
use crate::wire::{EndpointState, EndpointView, StatusView};

/// Shorter drains are no news: what is in flight is a backlog, too.
const DRAIN_SHOWN_S: u64 = 10;

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print again every so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

/// Runs it. Exit code 1 if the ledger does not balance or the appliance is not ready.
pub async fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(args.connect.target()?)?;
    loop {
        let status = client.status().await?;
        if args.json {
            output::json(&status)?;
        } else {
            print(&status)?;
        }
        let Some(seconds) = args.watch else {
            return Ok(ExitCode::from(u8::from(!status.ledger.balanced || !status.ready)));
        };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        if !args.json {
            output::line("")?;
        }
    }
}

/// The text form, also used at the end of `demo`.
pub fn print(status: &StatusView) -> anyhow::Result<()> {
    let ready = match &status.not_ready_reason {
        None => "ready".to_owned(),
        Some(reason) => format!("NOT READY: {}", visible(reason)),
    };
    output::line(&format!(
        "{}  waypost {}  {ready}  up {}",
        visible(&status.node),
        status.version,
        age(status.uptime_s)
    ))?;
    output::line(&format!("ledger     {}", ledger(status)))?;
    if status.endpoints.iter().any(|endpoint| endpoint.state != EndpointState::Up) {
        for endpoint in &status.endpoints {
            if let Some(sentence) = held(endpoint) {
                output::line(&format!("held       {sentence}"))?;
            }
        }
    }
    for endpoint in &status.endpoints {
        if let Some(sentence) = drain(endpoint) {
            output::line(&format!("drain      {sentence}"))?;
        }
    }
    for warning in &status.warnings {
        output::line(&format!("warning    {}", visible(warning)))?;
    }
    output::line(&format!("store      {}", store(status)))?;
    output::line("")?;
    endpoints(&status.endpoints)
}

fn ledger(status: &StatusView) -> String {
    let ledger = &status.ledger;
    let mut text = format!("accepted {} =", count(ledger.accepted));
    let parts = [
        ("delivered", ledger.delivered),
        ("pending", ledger.pending),
        ("dead", ledger.dead),
        ("expired", ledger.expired),
        ("discarded", ledger.discarded),
        ("dropped", ledger.dropped),
        ("superseded", ledger.superseded),
        ("lost", ledger.lost),
    ];
    // The first three always stand there; the others only when they say something.
    let shown = parts.iter().enumerate().filter(|(index, (_, number))| *index < 3 || *number > 0);
    let sum: Vec<_> = shown.map(|(_, (name, number))| format!("{name} {}", count(*number))).collect();
    text += &format!(" {}", sum.join(" + "));
    text += if ledger.balanced { "  balanced" } else { "  DOES NOT BALANCE" };
    if ledger.duplicates > 0 {
        text += &format!("  ({} duplicates answered)", count(ledger.duplicates));
    }
    text
}

fn held(endpoint: &EndpointView) -> Option<String> {
    let why =
        endpoint.hold_detail.as_deref().or(endpoint.hold_reason.as_deref()).unwrap_or("no reason given");
    let since = endpoint.held_for_s.map(|seconds| format!(" for {}", age(seconds))).unwrap_or_default();
    let probe =
        endpoint.next_probe_in_s.map(|seconds| format!("; next probe in {seconds:.0}s")).unwrap_or_default();
    let word = match endpoint.state {
        EndpointState::Up => return None,
        EndpointState::Held => "held",
        EndpointState::Paused => "paused",
        EndpointState::Disabled => "disabled",
    };
    let drain = endpoint
        .drained_in_s
        .map(|seconds| format!("; drains in {} once back", age(seconds)))
        .unwrap_or_default();
    Some(format!("{} {word}{since}: {}{probe}{drain}", visible(&endpoint.name), visible(why)))
}

/// A backlog that takes a while though its endpoint is up.
fn drain(endpoint: &EndpointView) -> Option<String> {
    let seconds = endpoint.drained_in_s.filter(|seconds| *seconds >= DRAIN_SHOWN_S)?;
    (endpoint.state == EndpointState::Up).then(|| {
        format!("{} {} pending, gone in {}", visible(&endpoint.name), count(endpoint.pending), age(seconds))
    })
}

fn store(status: &StatusView) -> String {
    let store = &status.store;
    let mut text = format!("{} on disk of {}", size(store.disk_bytes), size(store.disk_bytes_max));
    text += &format!(", {} live in {} events", size(store.live_bytes), count(store.events));
    text += &format!(", {} free", size(store.disk_free_bytes));
    if store.quarantined_bytes > 0 {
        text += &format!(", {} in quarantine", size(store.quarantined_bytes));
    }
    if let Some(seconds) = store.full_in_s {
        text += &format!(", full in {}", age(seconds));
    }
    text
}

/// The table of endpoints, also used by `endpoint list`.
pub fn endpoints(endpoints: &[EndpointView]) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        "ENDPOINT",
        "STATE",
        "PENDING",
        "OLDEST",
        "FLIGHT",
        "WINDOW",
        "BUDGET",
        "DELIVERED",
        "DEAD",
        "P50",
        "P99",
        "LAST",
        "URL",
    ]);
    for endpoint in endpoints {
        table.row(&[
            endpoint.name.clone(),
            format!("{:?}", endpoint.state).to_lowercase(),
            count(endpoint.pending),
            if endpoint.pending == 0 { "-".to_owned() } else { age(endpoint.oldest_pending_age_s) },
            endpoint.in_flight.to_string(),
            endpoint.window.to_string(),
            format!("{:.0}/{:.0}", endpoint.budget.tokens, endpoint.budget.ceiling),
            count(endpoint.delivered),
            count(endpoint.dead),
            millis(endpoint.latency_ms.p50),
            millis(endpoint.latency_ms.p99),
            endpoint.last_outcome.clone().unwrap_or_else(|| "-".to_owned()),
            endpoint.url.clone(),
        ]);
    }
    table.print(&[2, 3, 4, 5, 6, 7, 8, 9, 10])
}

fn millis(ms: f64) -> String {
    if ms == 0.0 {
        "-".to_owned()
    } else if ms < 10.0 {
        format!("{ms:.1}ms")
    } else {
        format!("{ms:.0}ms")
    }
}
