//! The command line: clap types and one file per command.
//!
//! Every command that asks a running appliance is a client of the admin API ([`crate::client`]); it finds the appliance
//! by `--data-dir` (its `admin.sock`), by looking around, or by `--url` with a token. Results go to stdout, as text or with `--json` as
//! JSON; errors go to stderr. Exit codes: 0 done, 1 did not succeed, 2 usage or config. A closed pipe is no error.

mod check;
mod demo;
mod dlq;
mod endpoint;
mod event;
mod heap;
pub mod key;
mod lint;
mod outbox;
mod output;
mod plan;
pub mod receive;
mod run;
mod send;
mod status;
mod store;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::app::ADMIN_SOCKET;
use crate::client::Target;
use crate::config::ConfigError;
use crate::config::secret::{self, Secret};
use crate::telemetry::LogFormat;

/// Where an appliance keeps its data when nobody says.
const DATA_DIR: &str = "./waypost-data";
/// Exit code of a wrong command line or config.
pub const EXIT_USAGE: u8 = 2;

/// A store-and-forward outbox for GeoJSON events at the edge.
#[derive(Debug, Parser)]
#[command(name = "waypost", version, about, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

/// Logging, for every command.
#[derive(Debug, Args)]
struct LogArgs {
    /// Form of the log on stderr
    #[arg(
        long,
        value_enum,
        default_value_t,
        global = true,
        env = "WAYPOST_LOG_FORMAT",
        help_heading = "Log"
    )]
    log_format: LogFormat,
    /// What to log: error, warn, info, debug, trace, or a filter such as `waypost::driver=debug`
    #[arg(long, global = true, env = "WAYPOST_LOG", help_heading = "Log", value_name = "LEVEL")]
    log_level: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the appliance
    Run(run::RunArgs),
    /// Receiver, appliance and a small fleet with an outage in the middle, in a throw-away directory
    Demo(demo::DemoArgs),
    /// Post GeoJSON, NDJSON or a text sequence to a running appliance
    Send(send::SendArgs),
    /// Ledger and endpoints of a running appliance
    Status(status::StatusArgs),
    /// The terminal dashboard of a running appliance
    Dash(DashCommand),
    /// What is pending
    Outbox(outbox::OutboxArgs),
    /// One event's story, attempt by attempt
    Event(event::EventArgs),
    /// Dead letters: list, show, redrive, discard, export
    Dlq(dlq::DlqArgs),
    /// Endpoints: list, pause, resume, probe
    Endpoint(endpoint::EndpointArgs),
    /// Validate a config, and with --store and --net what it names
    Check(check::CheckArgs),
    /// Size retries, budget, disk and drain for an outage, by simulating it
    Plan(Box<plan::PlanArgs>),
    /// Print the idempotency key of each feature on stdin
    Key(key::KeyArgs),
    /// Judge the geometry of each feature
    Lint(lint::LintArgs),
    /// Look at, check, compact, export or import a data directory
    Store(store::StoreArgs),
    /// A scripted receiver for trials
    Receive(receive::ReceiveArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Arguments of `dash`, with the connection.
#[derive(Debug, Args)]
struct DashCommand {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    dash: crate::dashboard::DashArgs,
}

/// How to find a running appliance.
#[derive(Clone, Debug, Args)]
pub struct Connect {
    /// Data directory of the appliance, whose admin.sock is used [default: ./waypost-data, else the only directory
    /// here that has an admin.sock]
    #[arg(long, value_name = "DIR", help_heading = "Connection")]
    pub data_dir: Option<PathBuf>,
    /// URL of the appliance instead of a data directory, for example http://127.0.0.1:8070
    #[arg(long, value_name = "URL", help_heading = "Connection")]
    pub url: Option<String>,
    /// File with the bearer token for --url (or set WAYPOST_TOKEN)
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    pub token_file: Option<PathBuf>,
}

impl Connect {
    /// Where the admin client should go.
    fn target(&self) -> anyhow::Result<Target> {
        match &self.url {
            None => Ok(Target::Socket(self.socket()?)),
            Some(url) => Ok(Target::Url { url: url.parse()?, token: self.token()? }),
        }
    }

    /// The admin socket: of the directory that was named, else of the default one, else of the only one in sight. With
    /// several in sight nothing is guessed.
    fn socket(&self) -> Result<PathBuf, output::Usage> {
        if let Some(dir) = &self.data_dir {
            return Ok(dir.join(ADMIN_SOCKET));
        }
        let default = Path::new(DATA_DIR).join(ADMIN_SOCKET);
        if default.exists() {
            return Ok(default);
        }
        let mut found: Vec<PathBuf> = std::fs::read_dir(".")
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(Path::new(".").join(entry.ok()?.file_name()).join(ADMIN_SOCKET)))
            .filter(|socket| socket.exists())
            .collect();
        found.sort();
        match found.as_slice() {
            [] => Ok(default),
            [only] => Ok(only.clone()),
            several => {
                let names: Vec<_> = several
                    .iter()
                    .filter_map(|socket| Some(socket.parent()?.display().to_string()))
                    .collect();
                Err(output::Usage(format!(
                    "there is more than one appliance here ({}); say which with --data-dir",
                    names.join(", ")
                )))
            }
        }
    }

    fn token(&self) -> anyhow::Result<Option<Secret>> {
        match &self.token_file {
            Some(path) => Ok(Some(secret::from_file(path)?)),
            None if std::env::var_os("WAYPOST_TOKEN").is_some() => {
                Ok(Some(secret::from_env("WAYPOST_TOKEN")?))
            }
            None => Ok(None),
        }
    }
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(err) => {
            let _ = err.print();
            return if err.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match dispatch(cli) {
        Ok(code) => code,
        Err(err) if output::is_closed_pipe(&err) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {}", output::chain(&err));
            let usage =
                err.downcast_ref::<ConfigError>().is_some() || err.downcast_ref::<output::Usage>().is_some();
            ExitCode::from(if usage { EXIT_USAGE } else { 1 })
        }
    }
}

/// The table from command to function.
fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let log = cli.log;
    if matches!(cli.command, Command::Run(_) | Command::Demo(_) | Command::Store(_)) {
        // Before any thread or file: sled makes its files itself, with what the umask leaves.
        rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    }
    match cli.command {
        Command::Run(args) => run::run(&args, &log),
        Command::Demo(args) => demo::run(&args, &log),
        Command::Send(args) => block_on(send::run(args)),
        Command::Status(args) => block_on(status::run(args)),
        Command::Dash(args) => {
            let target = args.connect.target()?;
            block_on(async move { crate::dashboard::run(&args.dash, target).await })
        }
        Command::Outbox(args) => block_on(outbox::run(args)),
        Command::Event(args) => block_on(event::run(args)),
        Command::Dlq(args) => block_on(dlq::run(args)),
        Command::Endpoint(args) => block_on(endpoint::run(args)),
        Command::Check(args) => check::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Receive(args) => block_on(receive::run(args)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "waypost", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs a client command on a small runtime.
fn block_on(future: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        // `receive --log FILE` and the log of every command once shared a name, and only parsing showed it.
        let cli = Cli::try_parse_from(["waypost", "receive", "--log", "seen.jsonl", "--log-level", "debug"])
            .unwrap();
        assert_eq!(cli.log.log_level.as_deref(), Some("debug"));
    }
}
