//! A scripted receiver: what stands at the other end in tests, in `waypost demo` and behind `waypost receive`.
//!
//! It answers by a [`Script`], can be taken down and brought up again on the same port, and keeps a [`Book`] of what
//! it saw: totals, distinct keys, bodies that changed under a key. [`Receiver::wait`] waits on those totals, so a test
//! needs no sleep.
//!
//! **Invariants.** Memory is bounded: the last [`record::SEEN_MAX`] requests and the latest few million keys. It is
//! light, because it stands beside the load generator in measurements: no task per request, one short lock.

pub mod record;
pub mod script;

mod tap;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use record::{Book, Options, Seen, Totals};
use script::{Act, Script};
pub use tap::Fault;
use tap::{Brake, Tap};

/// How a receiver is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Answers by its script.
    Up,
    /// Nothing listens: connections are refused, existing ones cut.
    Down,
    /// Takes connections and requests and never answers.
    Hanging,
}

/// A running receiver; dropping the last clone does not stop it, [`Receiver::stop`] does.
#[derive(Clone)]
pub struct Receiver(Arc<Inner>);

struct Inner {
    addr: SocketAddr,
    book: Book,
    script: std::sync::Mutex<Script>,
    power: watch::Sender<Power>,
    idle_close: Option<Duration>,
    connections: AtomicU64,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Receiver {
    /// Listens on `addr` (port 0 for any) and answers by `script`.
    pub async fn start(addr: SocketAddr, script: Script, options: Options, clock: Clock) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let idle_close = options.idle_close;
        let receiver = Self(Arc::new(Inner {
            addr: listener.local_addr()?,
            book: Book::new(options, clock)?,
            script: std::sync::Mutex::new(script),
            power: watch::Sender::new(Power::Up),
            idle_close,
            connections: AtomicU64::new(0),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }));
        let running = receiver.clone();
        receiver.0.tasks.spawn(async move { running.accept(listener).await });
        let flushing = receiver.clone();
        receiver.0.tasks.spawn(async move { flushing.flush_log().await });
        Ok(receiver)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.0.addr
    }

    /// The address to give to an appliance.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.0.addr)
    }

    /// What it saw.
    pub fn book(&self) -> &Book {
        &self.0.book
    }

    /// Answers by another script from now on.
    pub fn set_script(&self, script: Script) {
        *self.0.script.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = script;
    }

    /// Takes it down or brings it up.
    pub fn set_power(&self, power: Power) {
        self.0.power.send_replace(power);
    }

    /// Waits until the totals are as wanted. Give it a deadline with `tokio::time::timeout`.
    pub async fn wait(&self, wanted: impl FnMut(&Totals) -> bool) -> Totals {
        self.0.book.wait(wanted).await
    }

    /// Waits until so many distinct keys were answered with success.
    pub async fn wait_distinct(&self, keys: u64) -> Totals {
        self.wait(|totals| totals.distinct >= keys).await
    }

    /// Stops listening, cuts connections and writes the log out.
    pub async fn stop(&self) -> io::Result<Totals> {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.book.flush()?;
        Ok(self.0.book.totals())
    }

    /// Serves until stopped; while down there is no listener at all, so that connections are refused.
    async fn accept(&self, first: TcpListener) {
        let mut power = self.0.power.subscribe();
        power.mark_changed(); // it may have been set before this task ran
        let mut listener = Some(first);
        let mut cut = self.0.stop.child_token();
        loop {
            let Some(open) = &listener else {
                tokio::select! {
                    () = self.0.stop.cancelled() => return,
                    changed = power.changed() => if changed.is_err() { return },
                }
                if *power.borrow_and_update() != Power::Down {
                    listener = self.listen_again().await;
                    cut = self.0.stop.child_token();
                }
                continue;
            };
            tokio::select! {
                () = self.0.stop.cancelled() => return,
                changed = power.changed() => {
                    if changed.is_err() { return; }
                    if *power.borrow_and_update() == Power::Down {
                        cut.cancel();
                        listener = None;
                    }
                }
                accepted = open.accept() => match accepted {
                    Ok((stream, _)) => self.take(stream, cut.clone()),
                    // Out of descriptors, or a connection that is gone already: let others finish first.
                    Err(_) => tokio::task::yield_now().await,
                },
            }
        }
    }

    /// Takes the port again; someone else may have it for a moment.
    async fn listen_again(&self) -> Option<TcpListener> {
        while !self.0.stop.is_cancelled() {
            match TcpListener::bind(self.0.addr).await {
                Ok(listener) => return Some(listener),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        None
    }

    fn take(&self, stream: TcpStream, cut: CancellationToken) {
        // Without it small answers wait for the peer's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let receiver = self.clone();
        let number = self.0.connections.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.tasks.spawn(async move {
            let brake = Arc::new(Brake::default());
            let io = TokioIo::new(Tap::new(stream, Arc::clone(&brake)));
            let service = service_fn(|request| receiver.answer(request, number, Arc::clone(&brake)));
            let mut http = http1::Builder::new();
            if let Some(idle) = receiver.0.idle_close {
                http.timer(TokioTimer::new()).header_read_timeout(idle);
            }
            let connection = http.serve_connection(io, service);
            tokio::select! {
                () = cut.cancelled() => brake.reset(),
                _ = connection => {}
            }
        });
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: u64,
        brake: Arc<Brake>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Cut>>, Cut> {
        let (head, body) = request.into_parts();
        let mut seen = Seen::of(&head, connection);
        let script = Arc::clone(&self.0.script.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let act = if *self.0.power.borrow() == Power::Hanging { Act::Hang } else { script(&seen) };
        if let Act::Reset { after_body_bytes } = act {
            seen.take_body(&read(body, after_body_bytes).await);
            self.0.book.enter(seen, &head.headers, None);
            brake.reset();
            return Err(Cut);
        }
        let bytes = read(body, u64::MAX).await;
        seen.take_body(&bytes);
        seen.body = Some(bytes);
        let signature = self.0.book.check_signature(&mut seen, &head.headers);
        match act {
            Act::Hang | Act::Reset { .. } => {
                self.0.book.enter(seen, &head.headers, None);
                std::future::pending().await
            }
            Act::Answer(answer) => {
                if !answer.delay.is_zero() {
                    tokio::time::sleep(answer.delay).await;
                }
                let status = if signature { answer.status } else { script::UNSIGNED_STATUS };
                self.0.book.enter(seen, &head.headers, Some(status));
                brake.set(answer.fault);
                Ok(answer.response(status))
            }
        }
    }

    /// Writes the log out every so often, so that it can be read while the receiver runs.
    async fn flush_log(&self) {
        let mut ticks = tokio::time::interval(record::FLUSH_EVERY);
        loop {
            tokio::select! {
                () = self.0.stop.cancelled() => return,
                _ = ticks.tick() => if self.0.book.flush().is_err() { return },
            }
        }
    }
}

/// The connection is cut here, on purpose.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cut by the script")]
pub struct Cut;

impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Reads a body, or its first `bytes_max` bytes and a little more.
async fn read(mut body: Incoming, bytes_max: u64) -> Bytes {
    let mut first = Bytes::new();
    let mut all = Vec::new();
    while (first.len() as u64).max(all.len() as u64) < bytes_max {
        let Some(Ok(frame)) = body.frame().await else { break };
        let Ok(data) = frame.into_data() else { break };
        if first.is_empty() && all.is_empty() {
            first = data; // nearly always the whole body: no copy
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
    }
    if all.is_empty() { first } else { all.into() }
}
