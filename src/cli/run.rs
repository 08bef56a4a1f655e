//! `waypost run`: the appliance, until told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::{LogArgs, output};
use crate::app::{self, Appliance};
use crate::config::Config;
use crate::{shutdown, telemetry};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Config file
    #[arg(long, value_name = "FILE", conflicts_with = "to", required_unless_present = "to")]
    config: Option<PathBuf>,
    /// Run without a file: deliver everything to this URL, under the endpoint name `default`
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Where to listen, with --to [default: 127.0.0.1:8070]
    #[arg(long, value_name = "ADDR", requires = "to")]
    listen: Option<String>,
    /// Where to keep everything, with --to [default: ./waypost-data]
    #[arg(long, value_name = "DIR", requires = "to")]
    data_dir: Option<PathBuf>,
}

impl RunArgs {
    fn config(&self) -> anyhow::Result<Config> {
        let config = match (&self.config, &self.to) {
            (Some(path), _) => Config::load(path)?,
            (None, Some(url)) => Config::for_endpoint(url, self.listen.as_deref(), self.data_dir.as_deref())?,
            (None, None) => anyhow::bail!("name a config file or an endpoint"),
        };
        Ok(config)
    }
}

/// Runs it.
pub fn run(args: &RunArgs, log: &LogArgs) -> anyhow::Result<ExitCode> {
    super::heap::tidy();
    let config = args.config()?;
    let clock = crate::clock::Clock::system(config.clock_trust);
    let recent =
        telemetry::init(Some(log.log_format), log.log_level.as_deref().unwrap_or("info"), clock.clone());
    let runtime = app::runtime()?;
    let result = runtime.block_on(async {
        let stop = CancellationToken::new();
        shutdown::on_signal(stop.clone()).context("install signal handlers")?;
        let appliance = Appliance::start(config, clock, recent, stop.clone()).await?;
        // The first line of stdout tells scripts where to post; logs go to stderr.
        output::line(&format!("listening on {}", appliance.address()))?;
        appliance.wait().await
    });
    // Reads of a hanging disk must not hold the exit up.
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}
