//! The source article's dispatcher in Python, against the same kind of receiver, for comparison in the same run.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::receiver::Receiver;
use super::report::Figures;

/// Runs `article.py` for about `length`; `Err` says what is not at hand.
pub async fn run(name: &str, length: Duration) -> Result<Figures, String> {
    let probe = Command::new("python3")
        .args(["-c", "import shapely, aiohttp, redis"])
        .stderr(Stdio::null())
        .status()
        .map_err(|_| "python3 is not here".to_owned())?;
    if !probe.success() {
        return Err("python3 lacks shapely, aiohttp or redis".to_owned());
    }
    let dir = tempfile::tempdir().map_err(|err| err.to_string())?;
    let socket = dir.path().join("redis.sock");
    let mut redis = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn()
        .map_err(|_| "redis-server is not here".to_owned())?;
    for _ in 0..100 {
        if socket.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let receiver = Receiver::start().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/load/article.py");
    let url = receiver.url();
    let output = tokio::task::spawn_blocking(move || {
        Command::new("python3").arg(script).arg(url).arg(socket).arg(length.as_secs().to_string()).output()
    })
    .await
    .map_err(|err| err.to_string())?;
    let _ = redis.kill();
    let _ = redis.wait();
    let output = output.map_err(|err| err.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // The script prints: events, seconds, CPU seconds, resident MiB.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [events, elapsed_s, cpu_s, rss_mib] = numbers[..] else { return Err(format!("it printed {text}")) };
    let figures = Figures {
        name: name.to_owned(),
        accepted_per_s: events / elapsed_s,
        delivered_per_s: events / elapsed_s,
        delivered_meanwhile: receiver.count(),
        latency: hdrhistogram::Histogram::new(3).map_err(|err| err.to_string())?,
        cpu_s_per_1000: cpu_s / events * 1_000.0,
        rss_mib,
        written_per_event: 0.0,
        body_bytes: 250.0,
        errors: (events as u64).abs_diff(receiver.count()),
    };
    Ok(figures)
}
