//! Memory for bodies that are being read: bounded for all requests together.
//!
//! A document is judged as a whole, so it is in memory as a whole, and so is the start of a long feature of a sequence.
//! Four thousand clients with a few megabytes each would be more than a gateway has. What does not fit is answered 429
//! at once, before its body is read where its length was told; what is short is never refused.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Failure, Kind};

/// Memory is counted in pieces of so many bytes; a body shorter than one costs nothing. With the most connections
/// (4,096 by default) of such bodies that is another 64 MiB at worst.
const PIECE_BYTES: usize = 16 << 10;
/// When a refused client should come again: bodies take well under a second once they are read.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The memory of all.
#[derive(Clone)]
pub struct Room {
    pieces: Arc<Semaphore>,
    bytes: usize,
}

/// The share of one request; given back when dropped.
pub(super) struct Share {
    room: Room,
    held: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { pieces: Arc::new(Semaphore::new(bytes.div_ceil(PIECE_BYTES))), bytes }
    }

    /// Nothing yet.
    pub(super) fn share(&self) -> Share {
        Share { room: self.clone(), held: None }
    }
}

impl Share {
    /// Changes the share to what so many bytes take, or refuses and leaves it.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), Failure> {
        let wanted = bytes / PIECE_BYTES;
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if wanted <= held {
            // What is split off is given back right here.
            drop(self.held.as_mut().and_then(|permit| permit.split(held - wanted)));
            return Ok(());
        }
        let more = u32::try_from(wanted - held).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.room.pieces).try_acquire_many_owned(more).map_err(|_| self.busy())?;
        match &mut self.held {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    fn busy(&self) -> Failure {
        Failure {
            retry_after: Some(RETRY_AFTER),
            ..Kind::Busy.because(format!(
                "bodies that are being read fill ingest.memory_bytes_max ({} bytes); send it again in a moment",
                self.room.bytes
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_given_back_fits_again() {
        let room = Room::new(10 * PIECE_BYTES);
        let (mut one, mut other) = (room.share(), room.share());
        one.set(6 * PIECE_BYTES).unwrap();
        other.set(PIECE_BYTES - 1).unwrap();
        assert_eq!(other.set(5 * PIECE_BYTES).unwrap_err().kind, Kind::Busy);
        other.set(4 * PIECE_BYTES).unwrap();
        one.set(0).unwrap();
        other.set(10 * PIECE_BYTES).unwrap();
        one.set(PIECE_BYTES - 1).unwrap();
        drop(other);
        one.set(10 * PIECE_BYTES).unwrap();
    }
}
