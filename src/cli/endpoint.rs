//! `waypost endpoint list | pause | resume | probe`.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{Connect, output, status};
use crate::client::{AdminClient, EndpointAction};

/// Arguments of `endpoint`.
#[derive(Debug, Args)]
pub struct EndpointArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Every endpoint with its state
    List(ListArgs),
    /// Stop attempts; the data is kept
    Pause(NameArgs),
    /// Start attempts again, also after a hold or a 410
    Resume(NameArgs),
    /// Probe a held endpoint now
    Probe(NameArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// Name of the endpoint
    name: String,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub async fn run(args: EndpointArgs) -> anyhow::Result<ExitCode> {
    let (args, action) = match args.action {
        Action::List(args) => {
            let view = AdminClient::new(args.connect.target()?)?.status().await?;
            if args.json {
                output::json(&view.endpoints)?;
            } else {
                status::endpoints(&view.endpoints)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Action::Pause(args) => (args, EndpointAction::Pause),
        Action::Resume(args) => (args, EndpointAction::Resume),
        Action::Probe(args) => (args, EndpointAction::Probe),
    };
    let view = AdminClient::new(args.connect.target()?)?.endpoint(&args.name, action).await?;
    if args.json {
        output::json(&view)?;
    } else {
        output::line(&format!("{} is {}", view.name, format!("{:?}", view.state).to_lowercase()))?;
    }
    Ok(ExitCode::SUCCESS)
}
