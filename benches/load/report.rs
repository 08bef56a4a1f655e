//! One JSON line per scenario and a table at the end.

use hdrhistogram::Histogram;

pub struct Figures {
    pub name: String,
    pub accepted_per_s: f64,
    /// Events over the time from the first post to the last delivery.
    pub delivered_per_s: f64,
    /// Deliveries seen while posts were still going on.
    pub delivered_meanwhile: u64,
    pub latency: Histogram<u64>,
    pub cpu_s_per_1000: f64,
    pub rss_mib: f64,
    pub written_per_event: f64,
    pub body_bytes: f64,
    pub errors: u64,
}

pub struct Report(Vec<Figures>);

impl Report {
    pub fn new() -> Self {
        println!("machine: {}", machine());
        Self(Vec::new())
    }

    pub fn add(&mut self, figures: Figures) {
        let ms = |quantile: f64| figures.latency.value_at_quantile(quantile) as f64 / 1_000.0;
        let line = serde_json::json!({
            "name": figures.name,
            "accepted_per_s": figures.accepted_per_s.round(),
            "delivered_per_s": figures.delivered_per_s.round(),
            "delivered_meanwhile": figures.delivered_meanwhile,
            "p50_ms": ms(0.5), "p99_ms": ms(0.99), "p999_ms": ms(0.999), "max_ms": ms(1.0),
            "cpu_s_per_1000": figures.cpu_s_per_1000,
            "rss_mib": figures.rss_mib,
            "written_bytes_per_event": figures.written_per_event,
            "body_bytes": figures.body_bytes,
            "errors": figures.errors,
        });
        println!("{line}");
        self.0.push(figures);
    }

    pub fn print(&self) {
        println!(
            "\n{:<38} {:>10} {:>10} {:>8} {:>8} {:>8} {:>9} {:>8} {:>9}",
            "scenario",
            "accepted/s",
            "through/s",
            "p50 ms",
            "p99 ms",
            "p99.9",
            "CPU s/1k",
            "RSS MiB",
            "disk B/ev"
        );
        for figures in &self.0 {
            let ms = |quantile: f64| figures.latency.value_at_quantile(quantile) as f64 / 1_000.0;
            println!(
                "{:<38} {:>10.0} {:>10.0} {:>8.2} {:>8.2} {:>8.2} {:>9.3} {:>8.1} {:>9.0}",
                figures.name,
                figures.accepted_per_s,
                figures.delivered_per_s,
                ms(0.5),
                ms(0.99),
                ms(0.999),
                figures.cpu_s_per_1000,
                figures.rss_mib,
                figures.written_per_event,
            );
        }
    }
}

fn machine() -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo")
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?.split(':').nth(1).map(|text| text.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown CPU".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}
