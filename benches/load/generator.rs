//! Posts events over kept connections: closed loop (as fast as answers come) or open loop (at a fixed rate).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::receiver::whole_message;

/// Numbers every event of the process, so that no two are equal.
static NEXT: AtomicU64 = AtomicU64::new(1);

pub struct Sent {
    pub events: u64,
    pub bytes: u64,
    pub errors: u64,
    pub latency: Histogram<u64>,
}

impl Sent {
    fn new() -> Self {
        Self {
            events: 0,
            bytes: 0,
            errors: 0,
            latency: Histogram::new_with_bounds(1, 120_000_000, 3).unwrap(),
        }
    }

    fn merge(&mut self, other: &Sent) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency.add(&other.latency).unwrap();
    }
}

/// One vehicle ping of about 250 bytes.
pub fn feature(out: &mut String) {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let lon = 13.0 + (n % 10_007) as f64 * 1e-4;
    let lat = 52.0 + (n % 8_009) as f64 * 1e-4;
    write!(
        out,
        r#"{{"type":"Feature","id":"v{}-{n}","geometry":{{"type":"Point","coordinates":[{lon:.6},{lat:.6}]}},"properties":{{"device_id":"veh-{:03}","event_type":"position","seq":{n},"ts":"2026-12-01T00:00:00Z","speed_kmh":{:.1},"heading":{}}}}}"#,
        n % 40,
        n % 40,
        (n % 900) as f64 / 10.0,
        n % 360
    )
    .unwrap();
}

fn request(batch: usize) -> (Vec<u8>, u64) {
    let mut body = String::with_capacity(batch * 260);
    for index in 0..batch {
        if index > 0 {
            body.push('\n');
        }
        feature(&mut body);
    }
    let media = if batch == 1 { "application/geo+json" } else { "application/x-ndjson" };
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    ([head.as_bytes(), body.as_bytes()].concat(), body.len() as u64)
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::with_capacity(256 << 10) }
    }

    /// Sends one request and reads its answer; whether it was 202 with nothing but accepted features.
    async fn post(&mut self, bytes: &[u8], batch: usize) -> bool {
        self.stream.write_all(bytes).await.unwrap();
        loop {
            if let Some(length) = whole_message(&self.buffer) {
                let fine = self.buffer.starts_with(b"HTTP/1.1 202")
                    && contains(&self.buffer[..length], format!("\"accepted\":{batch},").as_bytes());
                self.buffer.drain(..length);
                return fine;
            }
            let read = self.stream.read_buf(&mut self.buffer).await.unwrap();
            assert!(read > 0, "the appliance closed a connection");
        }
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

pub async fn closed_loop(address: SocketAddr, connections: usize, batch: usize, length: Duration) -> Sent {
    let end = Instant::now() + length;
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        tasks.spawn(async move {
            let mut sent = Sent::new();
            let mut connection = Connection::open(address).await;
            while Instant::now() < end {
                let (bytes, body) = request(batch);
                let start = Instant::now();
                let fine = connection.post(&bytes, batch).await;
                sent.latency.saturating_record(start.elapsed().as_micros() as u64);
                if fine {
                    sent.events += batch as u64;
                    sent.bytes += body;
                } else {
                    sent.errors += 1;
                }
            }
            sent
        });
    }
    join(tasks).await
}

pub async fn open_loop(address: SocketAddr, connections: usize, rate: u64, length: Duration) -> Sent {
    let total = rate * length.as_secs();
    let next = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let next = Arc::clone(&next);
        tasks.spawn(async move {
            let mut sent = Sent::new();
            let mut connection = Connection::open(address).await;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= total {
                    return sent;
                }
                let intended = start + Duration::from_secs_f64(index as f64 / rate as f64);
                tokio::time::sleep_until(intended.into()).await;
                let (bytes, body) = request(1);
                let fine = connection.post(&bytes, 1).await;
                sent.latency.saturating_record(intended.elapsed().as_micros() as u64);
                if fine {
                    sent.events += 1;
                    sent.bytes += body;
                } else {
                    sent.errors += 1;
                }
            }
        });
    }
    join(tasks).await
}

async fn join(mut tasks: JoinSet<Sent>) -> Sent {
    let mut all = Sent::new();
    while let Some(part) = tasks.join_next().await {
        all.merge(&part.unwrap());
    }
    all
}
