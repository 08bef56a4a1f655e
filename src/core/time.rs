//! Two kinds of time that must never be mixed.
//!
//! [`StoreTime`] is what due times, ages, windows and TTLs are counted in: milliseconds that the store has lived
//! through. It never steps; across a restart it goes on by the wall-clock gap only if the clock could be trusted at
//! both ends (DESIGN 5.9). [`UnixMillis`] is for stamps that others see, and for nothing else.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant in store time, in milliseconds since the store was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreTime(pub u64);

impl StoreTime {
    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: StoreTime) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for StoreTime {
    type Output = StoreTime;

    fn add(self, delay: Duration) -> StoreTime {
        StoreTime(self.0.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for StoreTime {
    type Output = StoreTime;

    fn sub(self, delay: Duration) -> StoreTime {
        StoreTime(self.0.saturating_sub(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// A wall-clock stamp: milliseconds since 1970, for people and for other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub i64);

/// What a clock reading gives: both kinds of time at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For waiting and ages.
    pub store: StoreTime,
    /// For stamps.
    pub wall: UnixMillis,
    /// Whether `wall` can be believed (DESIGN 5.9).
    pub wall_trusted: bool,
}
