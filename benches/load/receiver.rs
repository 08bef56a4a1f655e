//! The cheapest receiver there is: reads a request, answers 200, counts. It stands beside what is measured, so it must
//! not take its CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

#[derive(Default)]
struct Shared {
    count: AtomicU64,
    arrived: Notify,
}

pub struct Receiver {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let for_loop = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&for_loop)));
            }
        });
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Waits until so many requests have been seen; gives up after two minutes.
    pub async fn wait_count(&self, count: u64) {
        let end = Instant::now() + Duration::from_secs(120);
        while self.count() < count {
            assert!(Instant::now() < end, "only {} of {count} were delivered in two minutes", self.count());
            let _ = tokio::time::timeout(Duration::from_millis(20), self.shared.arrived.notified()).await;
        }
    }

    /// Waits until nothing arrives for a third of a second.
    pub async fn wait_idle(&self) {
        let mut last = self.count();
        loop {
            tokio::time::sleep(Duration::from_millis(333)).await;
            if self.count() == last {
                return;
            }
            last = self.count();
        }
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    stream.set_nodelay(true).ok();
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        while let Some(length) = whole_message(&buffer) {
            buffer.drain(..length);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                return;
            }
            shared.count.fetch_add(1, Ordering::Relaxed);
            shared.arrived.notify_one();
        }
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Length of the first whole HTTP message with a content-length in the buffer.
pub fn whole_message(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let body = text
        .lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        })
        .unwrap_or(0);
    (buffer.len() >= head + body).then_some(head + body)
}
