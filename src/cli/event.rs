//! `waypost event show ID`: one event's story.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::Connect;
use super::output::{self, Table, size};
use crate::client::AdminClient;
use crate::core::delivery::AttemptRecord;
use crate::core::text::visible;
use crate::wire::EventStory;

/// Arguments of `event`.
#[derive(Debug, Args)]
pub struct EventArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The event, its deliveries and every attempt that is still remembered
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Id of the event
    id: String,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only the exact bytes of the event
    #[arg(long, conflicts_with = "json")]
    body: bool,
}

/// Runs it.
pub async fn run(args: EventArgs) -> anyhow::Result<ExitCode> {
    let Action::Show(args) = args.action;
    let story = AdminClient::new(args.connect.target()?)?.event(&args.id).await?;
    if args.json {
        output::json(&story)?;
    } else if args.body {
        output::line(story.body.as_deref().unwrap_or_default())?;
    } else {
        print(&story)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(story: &EventStory) -> anyhow::Result<()> {
    let event = &story.event;
    for (name, value) in [
        ("event", event.id.clone()),
        ("key", event.key.clone()),
        ("device", event.device.clone()),
        ("type", event.event_type.clone()),
        ("accepted", event.accepted_at.clone()),
        ("observed", event.observed_at.clone().unwrap_or_else(|| "-".to_owned())),
        ("place", place(event.bbox)),
        ("size", size(event.body_bytes)),
    ] {
        output::line(&format!("{name:<10} {}", visible(&value)))?;
    }
    for delivery in &story.deliveries {
        let due = delivery.due_in_ms.map(|ms| format!(", next attempt in {:.1}s", ms as f64 / 1_000.0));
        let reason = delivery.reason.as_deref().map(|reason| format!(": {}", visible(reason)));
        output::line(&format!(
            "\n{}  {} after {} attempts ({} of {} charged){}{}",
            visible(&delivery.endpoint),
            delivery.state,
            delivery.attempts,
            delivery.charged,
            delivery.attempts_max,
            due.unwrap_or_default(),
            reason.unwrap_or_default()
        ))?;
        attempts(&delivery.history, delivery.attempts_max)?;
    }
    Ok(())
}

fn place(bbox: Option<[f64; 4]>) -> String {
    match bbox {
        None => "-".to_owned(),
        Some([west, south, east, north]) if west == east && south == north => format!("{west}, {south}"),
        Some([west, south, east, north]) => format!("{west}, {south} to {east}, {north}"),
    }
}

/// Attempts as a table, also used by `dlq show`.
pub fn attempts(history: &[AttemptRecord], attempts_max: u32) -> anyhow::Result<()> {
    if history.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["  ATTEMPT", "AT", "VERDICT", "CAUSE", "TOOK", "THEN WAITED", "CHARGED"]);
    for attempt in history {
        table.row(&[
            format!("  {} of {attempts_max}", attempt.number),
            crate::clock::rfc3339(attempt.at),
            format!("{:?}", attempt.verdict).to_lowercase(),
            attempt.reason.clone(),
            format!("{}ms", attempt.latency_ms),
            attempt.delay_ms.map_or_else(|| "-".to_owned(), |ms| format!("{:.2}s", ms as f64 / 1_000.0)),
            if attempt.charged { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table.print(&[4, 5])?;
    if let Some(answer) = history.last().map(|last| last.answer.as_str()).filter(|answer| !answer.is_empty())
    {
        output::line(&format!("  last answer: {}", visible(answer)))?;
    }
    Ok(())
}
