//! `waypost demo`: receiver, appliance and a small simulated fleet with an outage in the middle, in a throw-away
//! directory. It ends with the ledger, and with what the receiver saw, so that both sides can be compared.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::output::{self, count};
use super::{LogArgs, status};
use crate::app::{self, ADMIN_SOCKET, Appliance};
use crate::client::{AdminClient, EventMedia, PostOptions, Posted, Target};
use crate::clock::{Clock, ClockTrust};
use crate::config::Config;
use crate::config::units::Span;
use crate::dashboard::{self, DashArgs};
use crate::receiver::record::{Options, Totals};
use crate::receiver::script;
use crate::receiver::{Power, Receiver};
use crate::telemetry;
use crate::wire::StatusView;

/// Devices of the fleet.
const VEHICLES: u64 = 25;
/// Posts a second; each holds a few pings.
const POSTS_PER_S: f64 = 20.0;
/// Pings in a post.
const PINGS: u64 = 5;
/// Every n-th post brings a geofence, every second of them broken.
const GEOFENCE_EVERY: u64 = 15;
/// How long the backlog may take to drain after the fleet has stopped.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// The same after it was told to end.
const LEAVE_MAX: Duration = Duration::from_secs(3);

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How long the fleet drives; the receiver is down in the middle third
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    length: Duration,
    /// A line a second instead of the dashboard
    #[arg(long)]
    headless: bool,
    /// Seed of the fleet, for the same ride again
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn duration(text: &str) -> Result<Duration, String> {
    let Span(length) = text.parse()?;
    if (Duration::from_secs(3)..=Duration::from_hours(24)).contains(&length) {
        Ok(length)
    } else {
        Err("use 3s to 24h".to_owned())
    }
}

/// Runs it. Exit code 1 if the ledger does not balance or the receiver saw something else.
pub fn run(args: &DemoArgs, log: &LogArgs) -> anyhow::Result<ExitCode> {
    let clock = Clock::system(ClockTrust::Always);
    let screen = !args.headless && std::io::IsTerminal::is_terminal(&std::io::stdout());
    // On a screen the log is a pane, and lines on the same terminal would run across it.
    let hidden = screen && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let recent = telemetry::init(
        (!hidden).then_some(log.log_format),
        log.log_level.as_deref().unwrap_or(if screen { "info" } else { "warn" }),
        clock.clone(),
    );
    let runtime = app::runtime()?;
    let result = runtime.block_on(async {
        let dir = tempfile::tempdir().context("make a throw-away directory")?;
        let receiver = Receiver::start(
            ([127, 0, 0, 1], 0).into(),
            script::always(200),
            Options::default(),
            clock.clone(),
        )
        .await
        .context("start the receiver")?;
        let mut config =
            Config::for_endpoint(&receiver.url(), Some("127.0.0.1:0"), Some(&dir.path().join("data")))?;
        "demo".clone_into(&mut config.node);
        // A demo has no minute to wait for a probe.
        config.endpoints[0].policy.hold.probe_base = Duration::from_millis(500);
        config.endpoints[0].policy.hold.probe_cap = Duration::from_secs(2);
        let target = Target::Socket(config.data_dir.join(ADMIN_SOCKET));
        let stop = CancellationToken::new();
        let appliance = Appliance::start(config, clock, recent, stop.clone()).await?;
        let quit = CancellationToken::new();
        crate::shutdown::on_signal(quit.clone())?;
        let ride = Ride { args, receiver: &receiver, target, quit: quit.clone() };
        let status = if screen { ride.watched().await? } else { ride.drive(true).await? };
        let seen = receiver.stop().await.context("stop the receiver")?;
        stop.cancel();
        appliance.wait().await?;
        summary(&status, &seen)
    });
    runtime.shutdown_background();
    result
}

struct Ride<'a> {
    args: &'a DemoArgs,
    receiver: &'a Receiver,
    target: Target,
    quit: CancellationToken,
}

impl Ride<'_> {
    /// The ride under the dashboard. Leaving the dashboard ends the ride; the end of the ride closes the dashboard.
    async fn watched(&self) -> anyhow::Result<StatusView> {
        let args = DashArgs { allow_actions: true, ..DashArgs::default() };
        let screen = dashboard::run_with(&args, AdminClient::new(self.target.clone())?);
        let ride = self.drive(false);
        let (mut screen, mut ride) = (std::pin::pin!(screen), std::pin::pin!(ride));
        let mut watching = true;
        loop {
            tokio::select! {
                status = &mut ride => return status,
                left = &mut screen, if watching => {
                    left?;
                    watching = false;
                    self.quit.cancel();
                }
            }
        }
    }

    /// The fleet drives, the receiver goes down and comes back, the backlog drains; the last status.
    async fn drive(&self, lines: bool) -> anyhow::Result<StatusView> {
        let client = Arc::new(AdminClient::new(self.target.clone())?);
        let fleet =
            tokio::spawn(fleet(Arc::clone(&client), self.args.length, self.args.seed, self.quit.clone()));
        let start = Instant::now();
        let third = self.args.length / 3;
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.tick().await;
        let mut power = Power::Up;
        while !(fleet.is_finished() || self.quit.is_cancelled()) {
            let wanted = if (third..third * 2).contains(&start.elapsed()) { Power::Down } else { Power::Up };
            if wanted != power {
                power = wanted;
                self.receiver.set_power(power);
                if lines {
                    output::line(if power == Power::Down {
                        "-- the receiver goes down"
                    } else {
                        "-- the receiver is back"
                    })?;
                }
            }
            tokio::select! {
                _ = tick.tick() => {}
                () = self.quit.cancelled() => break,
            }
            if lines {
                line(start.elapsed(), &client.status().await?)?;
            }
        }
        self.receiver.set_power(Power::Up);
        fleet.await.context("the fleet")??;
        if lines {
            output::line("-- the fleet has stopped; the backlog drains")?;
        }
        let begin = Instant::now();
        loop {
            let status = client.status().await?;
            // Who leaves early waits for what is on its way, not for a long backlog.
            let drain_max = if self.quit.is_cancelled() { LEAVE_MAX } else { DRAIN_MAX };
            if status.ledger.pending == 0 || begin.elapsed() > drain_max {
                return Ok(status);
            }
            if lines {
                line(start.elapsed(), &status)?;
            }
            tick.tick().await;
        }
    }
}

fn line(elapsed: Duration, status: &StatusView) -> anyhow::Result<()> {
    let ledger = &status.ledger;
    let mut text = format!(
        "{:>4}s  accepted {:>7}  delivered {:>7}  pending {:>6}  dead {:>3}",
        elapsed.as_secs(),
        count(ledger.accepted),
        count(ledger.delivered),
        count(ledger.pending),
        ledger.dead
    );
    if let Some(endpoint) = status.endpoints.iter().find(|endpoint| endpoint.hold_reason.is_some()) {
        let why = endpoint.hold_detail.as_deref().or(endpoint.hold_reason.as_deref()).unwrap_or_default();
        let _ = write!(text, "  held {}s: {why}", endpoint.held_for_s.unwrap_or(0));
    }
    output::line(&text)
}

/// Posts pings of vehicles that drive round Berlin, now and then a geofence, now and then the same post again.
async fn fleet(
    client: Arc<AdminClient>,
    length: Duration,
    seed: u64,
    quit: CancellationToken,
) -> anyhow::Result<()> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / POSTS_PER_S));
    let end = Instant::now() + length;
    let mut number = 0;
    let mut last = Bytes::new();
    while Instant::now() < end && !quit.is_cancelled() {
        tick.tick().await;
        number += 1;
        let body = match number % GEOFENCE_EVERY {
            0 => Bytes::from(geofence(number, number % (GEOFENCE_EVERY * 2) == 0)),
            1 => last.clone(),
            _ => Bytes::from(pings(number, &mut rng)),
        };
        if body.is_empty() {
            continue;
        }
        last = body.clone();
        while let Posted::Later { retry_after, .. } =
            client.post_events(body.clone(), EventMedia::Ndjson, &PostOptions::default()).await?
        {
            tokio::time::sleep(retry_after).await;
        }
    }
    Ok(())
}

fn pings(number: u64, rng: &mut Pcg64) -> String {
    let mut lines = String::new();
    for _ in 0..PINGS {
        let vehicle = rng.random_range(0..VEHICLES);
        let angle = (number as f64 / 60.0 + vehicle as f64) % std::f64::consts::TAU;
        let radius = 0.02 + vehicle as f64 * 0.004;
        let _ = writeln!(
            lines,
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{:.6},{:.6}]}},"properties":{{"device_id":"veh-{vehicle:02}","event_type":"position","seq":{},"speed_kmh":{:.1}}}}}"#,
            13.4 + radius * angle.cos() * 1.6,
            52.52 + radius * angle.sin(),
            number * 1_000 + rng.random_range(0..1_000u64),
            rng.random_range(0.0..90.0)
        );
    }
    lines
}

/// A square, or a bow-tie that can never be delivered.
fn geofence(number: u64, broken: bool) -> String {
    let (west, south) = (13.3 + (number % 10) as f64 * 0.02, 52.45 + (number % 7) as f64 * 0.02);
    let (east, north) = (west + 0.01, south + 0.01);
    let (second, third) = if broken { (north, south) } else { (south, north) };
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Polygon","coordinates":[[[{west:.4},{south:.4}],[{east:.4},{second:.4}],[{east:.4},{third:.4}],[{west:.4},{north:.4}],[{west:.4},{south:.4}]]]}},"properties":{{"device_id":"dispatch","event_type":"geofence","seq":{number}}}}}
"#
    )
}

fn summary(status: &StatusView, seen: &Totals) -> anyhow::Result<ExitCode> {
    output::line("")?;
    status::print(status)?;
    output::line("")?;
    output::line(&format!(
        "the receiver saw {} requests: {} distinct keys, {} repeats, {} keys with two bodies",
        count(seen.requests),
        count(seen.distinct),
        count(seen.duplicates),
        count(seen.conflicts)
    ))?;
    // What is still pending may be there already, its answer on the way.
    let delivered = status.ledger.delivered;
    let agrees =
        (delivered..=delivered + status.ledger.pending).contains(&seen.distinct) && seen.conflicts == 0;
    output::line(match (status.ledger.balanced, agrees) {
        (true, true) => {
            "the ledger balances, and the receiver has every delivered event exactly under its key"
        }
        (false, _) => "THE LEDGER DOES NOT BALANCE",
        (true, false) => "THE RECEIVER DISAGREES WITH THE LEDGER",
    })?;
    Ok(ExitCode::from(u8::from(!(status.ledger.balanced && agrees && status.ledger.pending == 0))))
}
