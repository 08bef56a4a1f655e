//! Whole-process load: starts the release binary as a child, a receiver in this process, and measures from outside.
//!
//! `cargo bench --bench load` runs every scenario for a few seconds each; `cargo bench --bench load -- --seconds 20
//! single` picks by name. Every figure comes from one run: the article's Python (if python3 with shapely, aiohttp and
//! redis, and a redis-server are at hand) goes against the same receiver on the same machine. Latency is counted from
//! the intended send time, so a stall is not hidden by the generator waiting for it. Loops end by themselves.
#![allow(missing_docs, clippy::unwrap_used, reason = "a measuring program: a failed unwrap is a failed run")]
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

mod article;
mod child;
mod generator;
mod receiver;
mod report;

use std::time::{Duration, Instant};

use child::Appliance;
use report::{Figures, Report};

struct Options {
    seconds: u64,
    filter: Vec<String>,
}

fn options() -> Options {
    let mut options = Options { seconds: 6, filter: Vec::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => options.seconds = args.next().unwrap().parse().unwrap(),
            "--bench" | "--test" => {}
            name => options.filter.push(name.to_owned()),
        }
    }
    options
}

fn main() {
    let options = options();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(&options));
}

async fn run(options: &Options) {
    let wanted =
        |name: &str| options.filter.is_empty() || options.filter.iter().any(|part| name.contains(part));
    let mut report = Report::new();
    let length = Duration::from_secs(options.seconds);
    for connections in [1, 32, 256] {
        let name = format!("single, flat out, {connections} connections");
        if wanted(&name) {
            report.add(flat_out(&name, connections, 1, length).await);
        }
    }
    for rate in [1_000, 3_000] {
        let name = format!("single, {rate}/s, 32 connections");
        if wanted(&name) {
            report.add(fixed_rate(&name, rate, 32, length).await);
        }
    }
    for connections in [1, 32] {
        let name = format!("ndjson of 1000, flat out, {connections} connections");
        if wanted(&name) {
            report.add(flat_out(&name, connections, 1_000, length).await);
        }
    }
    if wanted("article python, 64 in flight") {
        match article::run("article python, 64 in flight", length).await {
            Ok(figures) => report.add(figures),
            Err(why) => println!("article python: skipped, {why}"),
        }
    }
    report.print();
}

/// As fast as the connections go; then waits until everything is delivered.
async fn flat_out(name: &str, connections: usize, batch: usize, length: Duration) -> Figures {
    let receiver = receiver::Receiver::start().await;
    let mut appliance = Appliance::start(&receiver.url());
    generator::closed_loop(appliance.address(), connections, batch, Duration::from_secs(1)).await; // warm-up
    receiver.wait_idle().await;
    let before = appliance.usage();
    let delivered_before = receiver.count();
    let start = Instant::now();
    let sent = generator::closed_loop(appliance.address(), connections, batch, length).await;
    let accepting = start.elapsed();
    let delivered_meanwhile = receiver.count() - delivered_before;
    receiver.wait_count(delivered_before + sent.events).await;
    let through = start.elapsed();
    let after = appliance.usage();
    let figures = Figures {
        name: name.to_owned(),
        accepted_per_s: sent.events as f64 / accepting.as_secs_f64(),
        delivered_per_s: sent.events as f64 / through.as_secs_f64(),
        delivered_meanwhile,
        latency: sent.latency,
        cpu_s_per_1000: after.cpu_since(&before) / sent.events as f64 * 1_000.0,
        rss_mib: after.rss_mib,
        written_per_event: after.written_since(&before) as f64 / sent.events as f64,
        body_bytes: sent.bytes as f64 / sent.events as f64,
        errors: sent.errors,
    };
    appliance.stop().await;
    figures
}

/// Open loop: one event every `1/rate`, whatever the answers do.
async fn fixed_rate(name: &str, rate: u64, connections: usize, length: Duration) -> Figures {
    let receiver = receiver::Receiver::start().await;
    let mut appliance = Appliance::start(&receiver.url());
    generator::open_loop(appliance.address(), connections, rate, Duration::from_secs(1)).await;
    receiver.wait_idle().await;
    let before = appliance.usage();
    let delivered_before = receiver.count();
    let start = Instant::now();
    let sent = generator::open_loop(appliance.address(), connections, rate, length).await;
    let accepting = start.elapsed();
    let delivered_meanwhile = receiver.count() - delivered_before;
    receiver.wait_count(delivered_before + sent.events).await;
    let through = start.elapsed();
    let after = appliance.usage();
    let figures = Figures {
        name: name.to_owned(),
        accepted_per_s: sent.events as f64 / accepting.as_secs_f64(),
        delivered_per_s: sent.events as f64 / through.as_secs_f64(),
        delivered_meanwhile,
        latency: sent.latency,
        cpu_s_per_1000: after.cpu_since(&before) / sent.events as f64 * 1_000.0,
        rss_mib: after.rss_mib,
        written_per_event: after.written_since(&before) as f64 / sent.events as f64,
        body_bytes: sent.bytes as f64 / sent.events as f64,
        errors: sent.errors,
    };
    appliance.stop().await;
    figures
}
