//! `waypost receive`: a scripted receiver for trials.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, ClockTrust};
use crate::config::secret;
use crate::config::units::Span;
use crate::receiver::record::{Keep, Options, Totals};
use crate::receiver::script::{Answer, Trial};
use crate::receiver::{Power, Receiver};
use crate::sender::SigningKey;
use crate::shutdown;

/// How often the summary line is renewed on a terminal.
const LIVE_EVERY: Duration = Duration::from_millis(250);
/// How often a summary line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Receives events, answers as told, and says what it saw.
#[derive(Debug, clap::Args)]
pub struct ReceiveArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    pub listen: SocketAddr,
    /// Write one JSON line per request to this file (it is overwritten)
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Status of the answers
    #[arg(long, value_name = "STATUS", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub status: u16,
    /// Wait before each answer
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    pub delay: Span,
    /// Body of the answers
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub body: String,
    /// Retry-After of answers that are not 2xx: seconds or an HTTP date
    #[arg(long, value_name = "VALUE")]
    pub retry_after: Option<String>,
    /// Every N-th request fails; 0: none
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub fail_every: u64,
    /// Status of those failures
    #[arg(long, value_name = "STATUS", default_value_t = 503, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub fail_status: u16,
    /// Go down once, so long after the start
    #[arg(long, value_name = "TIME", requires = "down_for")]
    pub down_after: Option<Span>,
    /// Stay down for so long
    #[arg(long, value_name = "TIME", requires = "down_after")]
    pub down_for: Option<Span>,
    /// What down means
    #[arg(long, value_enum, default_value_t = DownAs::Refuse)]
    pub down_as: DownAs,
    /// Require a Standard Webhooks signature by the secret in this file; repeat it for a rotation
    #[arg(long, value_name = "FILE")]
    pub secret_file: Vec<PathBuf>,
    /// Close connections that were idle for so long
    #[arg(long, value_name = "TIME")]
    pub idle_close: Option<Span>,
    /// Stop after so long
    #[arg(long = "for", value_name = "TIME")]
    pub stop_after: Option<Span>,
    /// Stop when so many distinct keys have been taken
    #[arg(long, value_name = "N")]
    pub until: Option<u64>,
    /// Print the final totals as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// What an outage looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DownAs {
    /// Connections are refused
    Refuse,
    /// Requests are taken and never answered
    Hang,
    /// Requests get the failure status
    Fail,
}

/// Runs until a signal, `--for` or `--until`.
pub async fn run(args: ReceiveArgs) -> anyhow::Result<ExitCode> {
    let stop = CancellationToken::new();
    shutdown::on_signal(stop.clone()).context("cannot listen for signals")?;
    let receiver = start(&args).await?;
    eprintln!("receiving at {}", receiver.url());
    let reason = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = pause(args.stop_after) => {}
            _ = receiver.wait(|totals| args.until.is_some_and(|keys| totals.distinct >= keys)) => {}
        }
    };
    tokio::select! {
        () = reason => {}
        () = outage(&args, &receiver) => {}
        () = live(&receiver) => {}
    }
    let totals = receiver.stop().await.context("cannot write the log")?;
    if args.json {
        println!("{}", serde_json::to_string(&totals)?);
    } else {
        // The summary is the result, so it goes to standard output; a reader that is gone is no failure.
        let _ = writeln!(std::io::stdout(), "{}", summary(&totals));
    }
    Ok(ExitCode::SUCCESS)
}

async fn start(args: &ReceiveArgs) -> anyhow::Result<Receiver> {
    let mut secrets = Vec::new();
    for path in &args.secret_file {
        let secret = secret::from_file(path)?;
        secrets.push(SigningKey::parse(secret.expose()).with_context(|| path.display().to_string())?);
    }
    let options = Options {
        log: args.log.clone(),
        secrets,
        keep: Keep::Nothing,
        idle_close: args.idle_close.map(|span| span.0),
    };
    let script = trial(args, args.status).script();
    Receiver::start(args.listen, script, options, Clock::system(ClockTrust::Auto)).await.with_context(|| {
        let log = args.log.as_ref().map(|path| format!(" and write {}", path.display()));
        format!("cannot listen on {}{}", args.listen, log.unwrap_or_default())
    })
}

fn trial(args: &ReceiveArgs, status: u16) -> Trial {
    let answer = |status: u16| {
        let success = (200..300).contains(&status);
        Answer {
            delay: args.delay.0,
            body: Bytes::from(args.body.clone()),
            retry_after: if success { None } else { args.retry_after.clone() },
            ..Answer::status(status)
        }
    };
    Trial { answer: answer(status), fail_every: args.fail_every, failure: answer(args.fail_status) }
}

/// Waits; for ever if there is nothing to wait for.
async fn pause(span: Option<Span>) {
    match span {
        Some(span) => tokio::time::sleep(span.0).await,
        None => std::future::pending().await,
    }
}

/// The one outage of the script, if there is one; never returns.
async fn outage(args: &ReceiveArgs, receiver: &Receiver) {
    pause(args.down_after).await;
    match args.down_as {
        DownAs::Refuse => receiver.set_power(Power::Down),
        DownAs::Hang => receiver.set_power(Power::Hanging),
        DownAs::Fail => receiver.set_script(trial(args, args.fail_status).script()),
    }
    pause(args.down_for).await;
    receiver.set_power(Power::Up);
    receiver.set_script(trial(args, args.status).script());
    std::future::pending::<()>().await;
}

/// One line that is kept up to date on a terminal, or one now and then elsewhere; never returns.
async fn live(receiver: &Receiver) {
    let terminal = std::io::stderr().is_terminal();
    let mut ticks = tokio::time::interval(if terminal { LIVE_EVERY } else { LINE_EVERY });
    let mut shown = Totals::default();
    loop {
        ticks.tick().await;
        let totals = receiver.book().totals();
        if totals == shown {
            continue;
        }
        shown = totals;
        let mut stderr = std::io::stderr();
        // Nobody may be looking; that is no reason to stop receiving.
        let _ = if terminal {
            write!(stderr, "\r\x1b[K{}", summary(&totals)).and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{}", summary(&totals))
        };
    }
}

fn summary(totals: &Totals) -> String {
    use std::fmt::Write as _;
    let mut text = format!(
        "{} requests: {} distinct events, {} repeats, {} refused, {} unanswered",
        totals.requests, totals.distinct, totals.duplicates, totals.refused, totals.unanswered
    );
    for (count, what) in [
        (totals.conflicts, "keys with two bodies"),
        (totals.without_key, "without a key"),
        (totals.bad_signatures, "with a bad signature"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}"); // writing to a String cannot fail
        }
    }
    text
}
