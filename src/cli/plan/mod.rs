//! `waypost plan`: sizes retries, budget, disk and drain for outages by simulating them.

pub mod plot;
pub mod svg;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::output::{self, Table, Usage, count, size};
use crate::config::units::{Size, Span};
use crate::config::{Config, Endpoint};
use crate::core::policy::{EndpointPolicy, Jitter, PolicyKind};
use crate::sim::fleet::{self, Outage};
use crate::sim::plan::envelope::Envelope;
use crate::sim::plan::{self, Check, Inputs, Named, Plan, Row};

const EXAMPLES: &str = "\
Examples:
  One gateway, 10 events/s, a receiver that is away for ten minutes or six hours:
    waypost plan --rate 10 --outage 10m,6h

  The policy of a config against the article's and a usual queue, as an image:
    waypost plan --config waypost.toml --policy edge,article,ladder --svg outage.svg

  200 boxes and one receiver that serves 500 requests/s:
    waypost plan --rate 1 --boxes 200 --capacity 500 --outage 20m

  A metered link of 50 MB a day, a 256 MiB card, a receiver that remembers keys for a day:
    waypost plan --rate 0.1 --event-bytes 2KiB --link-per-day 50MB --disk 256MiB --key-ttl 24h --outage 3d

Policies:
  edge     hold the endpoint, probe it, drain with a ramp (the one of --config, or the default)
  article  at most six attempts and a retry budget; what it does not pay for is a dead letter
  ladder   every event retries for itself until it is delivered

Times are counted in the simulation from the end of the outage. Bytes are requests times (event + --request-bytes).
Exit code 1 if a check fails, a policy leaves dead letters while holding, or the disk is too small for it.";

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Examples and the meaning of each policy: waypost plan --help")]
pub struct PlanArgs {
    /// Take policy, timeout, disk limit and key lifetime from this config
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which endpoint of it [default: the first]
    #[arg(long, value_name = "NAME", requires = "config")]
    endpoint: Option<String>,
    /// Policies to compare
    #[arg(long, value_enum, value_delimiter = ',', default_value = "edge,article", value_name = "LIST")]
    policy: Vec<PolicyName>,

    /// Events a second and box
    #[arg(long, value_name = "EVENTS", default_value_t = 1.0, value_parser = positive, help_heading = "Load")]
    rate: f64,
    /// Boxes that share the receiver
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Load")]
    boxes: u32,
    /// Size of an event
    #[arg(long, value_name = "SIZE", default_value = "1KiB", help_heading = "Load")]
    event_bytes: Size,
    /// Size of what goes beside it: headers, answer, a share of TLS
    #[arg(long, value_name = "SIZE", default_value = "1KiB", help_heading = "Load")]
    request_bytes: Size,

    /// Lengths of outages, each simulated for itself
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "10m,6h",
        value_name = "LIST",
        help_heading = "Outage"
    )]
    outage: Vec<Span>,
    /// How the receiver fails
    #[arg(long, value_enum, default_value = "refuses", help_heading = "Outage")]
    fails: Fails,
    /// Requests a second that the receiver serves
    #[arg(long, value_name = "REQUESTS", default_value_t = 500.0, value_parser = positive, help_heading = "Outage")]
    capacity: f64,
    /// How long the receiver remembers idempotency keys [default: `idempotency.ttl` of the config, 78h]
    #[arg(long, value_name = "DURATION", help_heading = "Outage")]
    key_ttl: Option<Span>,

    /// Limit on a box's data directory [default: `store.disk_bytes_max` of the config, 1GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Box")]
    disk: Option<Size>,
    /// What a metered link of a box carries in a day
    #[arg(long, value_name = "SIZE", help_heading = "Box")]
    link_per_day: Option<Size>,

    /// Smallest delay of a retry
    #[arg(long, value_name = "DURATION", help_heading = "Policy (instead of the config's)")]
    base: Option<Span>,
    /// Largest delay of a retry
    #[arg(long, value_name = "DURATION", help_heading = "Policy (instead of the config's)")]
    cap: Option<Span>,
    /// Law of the delays
    #[arg(long, value_enum, help_heading = "Policy (instead of the config's)")]
    jitter: Option<Law>,
    /// Attempts that blame the event
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = "Policy (instead of the config's)")]
    attempts: Option<u32>,
    /// Retry window from acceptance
    #[arg(long, value_name = "DURATION", help_heading = "Policy (instead of the config's)")]
    window: Option<Span>,
    /// Largest delay between probes of a held endpoint
    #[arg(long, value_name = "DURATION", help_heading = "Policy (instead of the config's)")]
    probe_cap: Option<Span>,

    /// Seed of the simulation
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Simulation")]
    seed: u64,
    /// Most events of one run; a larger fleet is made smaller together with its receiver
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=200_000_000), help_heading = "Simulation")]
    events_max: u64,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Write the charts of the longest outage to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// Only the tables, no plots
    #[arg(long, help_heading = "Output")]
    no_plot: bool,
}

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    /// Hold, probe, drain
    Edge,
    /// The source article's
    Article,
    /// Every event for itself
    Ladder,
}

/// How the receiver fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fails {
    /// Connections are refused
    Refuses,
    /// It answers 503
    #[value(name = "503")]
    Answers503,
    /// It takes requests and never answers
    Hangs,
}

/// A law by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Law {
    /// uniform(0, min(cap, base * 2^n))
    Full,
    /// half of it, and uniform over the other half
    Equal,
    /// min(cap, uniform(base, 3 * previous))
    Decorrelated,
    /// min(cap, base * 2^n) + uniform(0, 1s)
    Additive,
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "a number is needed, for example 0.5".to_owned())?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("it must be above 0".to_owned()) }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct View<'a> {
    rate_per_s: f64,
    boxes: u32,
    event_bytes: u64,
    capacity_per_s: f64,
    key_ttl_s: u64,
    disk_bytes_max: u64,
    link_bytes_per_day: Option<u64>,
    seed: u64,
    ok: bool,
    rows: &'a [Row],
    full_after_h: f64,
    link_fresh_percent: Option<f64>,
    checks: &'a [Check],
    envelopes: &'a [Envelope],
}

/// Runs it.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let inputs = inputs(args)?;
    let plan = plan::run(&inputs).map_err(|err| Usage(err.to_string()))?;
    if let Some(path) = &args.svg {
        std::fs::write(path, svg::draw(&plan, &title(&inputs)))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        output::json(&View {
            rate_per_s: inputs.rate_per_s,
            boxes: inputs.boxes,
            event_bytes: inputs.event_bytes,
            capacity_per_s: inputs.capacity_per_s,
            key_ttl_s: inputs.key_ttl.as_secs(),
            disk_bytes_max: inputs.disk_bytes_max,
            link_bytes_per_day: inputs.link_bytes_per_day,
            seed: inputs.seed,
            ok: passes(&inputs, &plan),
            rows: &plan.rows,
            full_after_h: plan.full_after_h,
            link_fresh_percent: plan.link_fresh_percent,
            checks: &plan.checks,
            envelopes: &plan.envelopes,
        })?;
    } else {
        print(&inputs, &plan, !args.no_plot)?;
    }
    Ok(ExitCode::from(u8::from(!passes(&inputs, &plan))))
}

/// Whether what holds an endpoint does so without a loss, and every check.
fn passes(inputs: &Inputs, plan: &Plan) -> bool {
    let holds = |row: &Row| {
        inputs.policies.iter().any(|named| named.name == row.policy && named.policy.kind == PolicyKind::Edge)
    };
    plan.checks.iter().all(|check| check.ok)
        && plan.rows.iter().filter(|row| holds(row)).all(|row| row.dead_letters == 0 && row.disk_suffices)
}

fn inputs(args: &PlanArgs) -> anyhow::Result<Inputs> {
    let config = args.config.as_deref().map(Config::load).transpose()?;
    let endpoint = config.as_ref().map(|config| choose(config, args.endpoint.as_deref())).transpose()?;
    let edge = edge(args, endpoint)?;
    let mut policies: Vec<Named> = Vec::new();
    for name in &args.policy {
        let (name, policy) = match name {
            PolicyName::Edge => ("edge", edge.clone()),
            PolicyName::Article => ("article", fleet::article()),
            PolicyName::Ladder => ("ladder", fleet::ladder()),
        };
        if policies.iter().all(|known| known.name != name) {
            policies.push(Named { name: name.to_owned(), policy });
        }
    }
    if let Some(zero) = args.outage.iter().find(|outage| outage.0 < Duration::from_secs(1)) {
        return Err(Usage(format!("an outage of {:?} is none: give at least 1s", zero.0)).into());
    }
    Ok(Inputs {
        rate_per_s: args.rate,
        boxes: args.boxes,
        event_bytes: args.event_bytes.0,
        request_bytes: args.request_bytes.0,
        capacity_per_s: args.capacity,
        kind: match args.fails {
            Fails::Refuses => Outage::Refuses,
            Fails::Answers503 => Outage::Answers503,
            Fails::Hangs => Outage::Hangs,
        },
        outages: args.outage.iter().map(|outage| outage.0).collect(),
        timeout: endpoint.map_or(Duration::from_secs(10), |endpoint| endpoint.timeout),
        policies,
        disk_bytes_max: args
            .disk
            .map(|disk| disk.0)
            .or(config.as_ref().map(|config| config.store.disk_bytes_max))
            .unwrap_or(1 << 30),
        link_bytes_per_day: args.link_per_day.map(|link| link.0),
        key_ttl: args
            .key_ttl
            .map(|ttl| ttl.0)
            .or(config.as_ref().map(|config| config.idempotency.ttl))
            .unwrap_or(Duration::from_hours(78)),
        seed: args.seed,
        events_max: args.events_max,
    })
}

fn choose<'a>(config: &'a Config, name: Option<&str>) -> anyhow::Result<&'a Endpoint> {
    let mut endpoints = config.endpoints.iter();
    let found = match name {
        None => endpoints.next(),
        Some(name) => endpoints.find(|endpoint| endpoint.name.to_string() == name),
    };
    found.ok_or_else(|| {
        let names: Vec<_> = config.endpoints.iter().map(|endpoint| endpoint.name.to_string()).collect();
        Usage(format!("the config has no endpoint \"{}\"; it has {}", name.unwrap_or(""), names.join(", ")))
            .into()
    })
}

/// The policy that is planned: the config's, with what the flags say instead.
fn edge(args: &PlanArgs, endpoint: Option<&Endpoint>) -> anyhow::Result<EndpointPolicy> {
    let mut policy = match endpoint {
        Some(endpoint) if endpoint.policy.kind == PolicyKind::Edge => endpoint.policy.clone(),
        _ => EndpointPolicy::default(),
    };
    let retry = &mut policy.retry;
    let set = |value: &mut Duration, given: Option<Span>| *value = given.map_or(*value, |span| span.0);
    set(&mut retry.base, args.base);
    set(&mut retry.cap, args.cap);
    set(&mut retry.window, args.window);
    set(&mut policy.hold.probe_cap, args.probe_cap);
    retry.attempts_max = args.attempts.unwrap_or(retry.attempts_max);
    if let Some(law) = args.jitter {
        retry.jitter = match law {
            Law::Full => Jitter::Full,
            Law::Equal => Jitter::Equal,
            Law::Decorrelated => Jitter::Decorrelated,
            Law::Additive => Jitter::Additive,
        };
    }
    if retry.base.is_zero() || retry.base > retry.cap {
        return Err(Usage(format!(
            "base {:?} must be above 0 and at most the cap {:?}; change --base or --cap",
            retry.base, retry.cap
        ))
        .into());
    }
    policy.hold.probe_base = policy.hold.probe_base.min(policy.hold.probe_cap);
    Ok(policy)
}

/// The inputs in one line.
pub fn title(inputs: &Inputs) -> String {
    let boxes = if inputs.boxes == 1 { "1 box".to_owned() } else { format!("{} boxes", inputs.boxes) };
    let longest = inputs.outages.iter().max().copied().unwrap_or_default();
    format!(
        "{boxes}, {} events/s each, receiver {} requests/s, down for {}",
        inputs.rate_per_s,
        inputs.capacity_per_s,
        time(longest.as_secs_f64())
    )
}

fn print(inputs: &Inputs, plan: &Plan, plots: bool) -> anyhow::Result<()> {
    let event = size(inputs.event_bytes);
    output::line(&format!("{}; events of {event}", title(inputs)))?;
    output::line("")?;
    table(&plan.rows)?;
    output::line("")?;
    output::line(&format!(
        "disk       {} are full after {} if nothing leaves the box",
        size(inputs.disk_bytes_max),
        time(plan.full_after_h * 3600.0)
    ))?;
    if let Some(percent) = plan.link_fresh_percent {
        output::line(&format!("link       fresh events take {percent:.0} % of it"))?;
    }
    for check in &plan.checks {
        output::line(&format!(
            "check      {}: {} {}",
            if check.ok { "ok" } else { "NOT MET" },
            check.policy,
            check.text
        ))?;
    }
    if let Some(row) = plan.rows.iter().find(|row| row.boxes_simulated < inputs.boxes) {
        output::line(&format!(
            "note       simulated {} of {} boxes with as large a part of the receiver; --events-max takes more",
            row.boxes_simulated, inputs.boxes
        ))?;
    }
    if plan.rows.iter().any(|row| row.cut_short) {
        output::line(
            "note       rows with > were stopped after 20 attempts per event; they would have gone on",
        )?;
    }
    if plots {
        output::line("")?;
        output::line(&plot::backlog(plan))?;
        output::line(&plot::load(plan))?;
        output::line(&plot::envelopes(plan))?;
    }
    Ok(())
}

fn table(rows: &[Row]) -> anyhow::Result<()> {
    let link = rows.iter().any(|row| row.drain_link_s.is_some());
    let mut header = vec![
        "OUTAGE", "POLICY", "EVENTS", "ATTEMPTS", "BYTES", "DEAD", "DEAD %", "1ST DEAD", "NOTICED",
        "DRAINED", "IDEAL", "PEAK", "DISK/BOX",
    ];
    if link {
        header.push("BY LINK");
    }
    let mut table = Table::new(&header);
    for row in rows {
        let maybe = |seconds: Option<f64>| seconds.map_or("-".to_owned(), time);
        let more = if row.cut_short { ">" } else { "" };
        let noticed = match (row.noticed_mean_s, row.noticed_last_s) {
            (Some(mean), Some(last)) => format!("{} (last {})", time(mean), time(last)),
            _ => "-".to_owned(),
        };
        let mut cells = vec![
            time(row.outage_s),
            row.policy.clone(),
            count(row.events),
            format!("{more}{}", count(row.attempts_in_outage)),
            format!("{more}{}", size(row.bytes_in_outage)),
            count(row.dead_letters),
            format!("{:.1}", row.dead_percent),
            maybe(row.first_dead_after_s),
            noticed,
            row.drained_s.map_or("never seen".to_owned(), time),
            time(row.drain_ideal_s),
            format!("{:.2} x", row.peak_per_capacity),
            format!("{}{}", size(row.disk_bytes_needed), if row.disk_suffices { "" } else { " FULL" }),
        ];
        if link {
            cells.push(maybe(row.drain_link_s));
        }
        table.row(&cells);
    }
    table.print(&[0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13])
}

/// Seconds for people: `0.4s`, `46s`, `13m 20s`, `3d 2h`.
pub fn time(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1}s") } else { output::age(seconds.round() as u64) }
}
