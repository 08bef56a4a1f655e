//! `waypost outbox list`: what is pending.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Connect;
use super::output::{self, Table, size};
use crate::client::AdminClient;

/// Arguments of `outbox`.
#[derive(Debug, Args)]
pub struct OutboxArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Pending deliveries in the order of acceptance
    List(ListArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    connect: Connect,
    /// Only of this endpoint
    #[arg(long)]
    endpoint: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Print JSON, one entry a line
    #[arg(long)]
    json: bool,
}

/// Pages of the admin API.
const PAGE_MAX: u64 = 500;

/// Runs it.
pub async fn run(args: OutboxArgs) -> anyhow::Result<ExitCode> {
    let Action::List(args) = args.action;
    let client = AdminClient::new(args.connect.target()?)?;
    let mut table =
        Table::new(&["ID", "ENDPOINT", "STATE", "ATTEMPTS", "DUE IN", "DEVICE", "TYPE", "ACCEPTED", "SIZE"]);
    let (mut left, mut cursor, mut shown) = (args.limit, None, 0u64);
    loop {
        let page =
            client.outbox(args.endpoint.as_deref(), None, left.min(PAGE_MAX), cursor.as_deref()).await?;
        for entry in &page.entries {
            shown += 1;
            if args.json {
                output::line(&serde_json::to_string(entry)?)?;
                continue;
            }
            let due = entry.delivery.due_in_ms.map(Duration::from_millis);
            table.row(&[
                entry.event.id.clone(),
                entry.delivery.endpoint.clone(),
                entry.delivery.state.clone(),
                entry.delivery.attempts.to_string(),
                due.map_or_else(|| "-".to_owned(), output::delay),
                entry.event.device.clone(),
                entry.event.event_type.clone(),
                entry.event.accepted_at.clone(),
                size(entry.event.body_bytes),
            ]);
        }
        left = left.saturating_sub(page.entries.len() as u64);
        cursor = page.cursor;
        if cursor.is_none() || left == 0 {
            break;
        }
    }
    if !args.json {
        if shown == 0 {
            output::line("nothing is pending")?;
        } else {
            table.print(&[3, 4, 8])?;
            if cursor.is_some() {
                output::line(&format!("… and more; raise --limit (now {}) to see them", args.limit))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
