//! A socket whose answers can be slowed to a trickle or cut at a byte.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// What goes wrong while an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The connection is reset after so many bytes of the answer, status line included.
    ResetAfter(usize),
    /// After so many bytes the rest goes out one byte at a time.
    Trickle {
        /// Bytes that go out at once.
        after: usize,
        /// Pause before each further byte.
        every: Duration,
    },
}

/// Shared between a connection's service, which sets it, and its socket, which obeys.
#[derive(Default)]
pub struct Brake {
    active: AtomicBool,
    fault: Mutex<Fault>,
    reset: AtomicBool,
}

impl Brake {
    /// For the answer that comes next.
    pub fn set(&self, fault: Fault) {
        if fault != Fault::None {
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
            self.active.store(true, Ordering::Release);
        }
    }

    /// The connection ends with a reset instead of an orderly close.
    pub fn reset(&self) {
        self.reset.store(true, Ordering::Release);
    }
}

/// The socket.
pub struct Tap {
    stream: TcpStream,
    brake: Arc<Brake>,
    written: usize,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Tap {
    /// Wraps a socket.
    pub fn new(stream: TcpStream, brake: Arc<Brake>) -> Self {
        Self { stream, brake, written: 0, pause: None }
    }

    /// How much may be written now.
    fn allowance(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let fault = *self.brake.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match fault {
            Fault::None => Poll::Ready(Ok(usize::MAX)),
            Fault::ResetAfter(limit) if self.written >= limit => {
                self.brake.reset();
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            Fault::ResetAfter(limit) => Poll::Ready(Ok(limit - self.written)),
            Fault::Trickle { after, .. } if self.written < after => Poll::Ready(Ok(after - self.written)),
            Fault::Trickle { every, .. } => {
                let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(every)));
                if pause.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
                Poll::Ready(Ok(1))
            }
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if self.brake.reset.load(Ordering::Acquire) {
            // A lingering time of zero makes the close a reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.brake.active.load(Ordering::Acquire) {
            return Pin::new(&mut self.stream).poll_write(cx, buf);
        }
        let allowed = match self.allowance(cx) {
            Poll::Ready(Ok(bytes)) => bytes.min(buf.len()),
            Poll::Ready(Err(err)) => return Poll::Ready(Err(err)),
            Poll::Pending => return Poll::Pending,
        };
        let written = Pin::new(&mut self.stream).poll_write(cx, &buf[..allowed]);
        if let Poll::Ready(Ok(bytes)) = written {
            self.written += bytes;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
