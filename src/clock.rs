//! The only reader of time.
//!
//! [`Clock::now`] gives both kinds of time at once: *store time*, which follows the boot-time clock (it runs through
//! suspend and never steps) from where the store left off, and the wall clock with a word on whether it can be
//! believed. Nothing else in the program reads a clock; tests use [`Clock::manual`].
//!
//! **Trust** (DESIGN 5.9): the year is not before this version was made, no step over two seconds in the last ten
//! minutes, and where the system says whether it is synchronised (systemd-timesyncd) it must say so. The config can
//! overrule with `clock_trust`. While the wall clock is not trusted nothing expires and stamps are marked.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::core::time::{Now, StoreTime, UnixMillis};

/// 2026-11-01T00:00:00Z: no release of this version can honestly see an earlier wall clock.
const BUILD_UNIX_MS: i64 = 1_793_491_200_000;
/// A difference between wall and boot clock that counts as a step (DESIGN 5.9).
const STEP_MS: i64 = 2_000;
/// How long a step makes the wall clock suspect (DESIGN 5.9).
const STEP_SETTLE: Duration = Duration::from_mins(10);
/// Kept by systemd-timesyncd once it has synchronised; its directory tells that the daemon is in use at all.
const TIMESYNC_DIR: &str = "/run/systemd/timesync";

/// How long the system's word on its synchronisation is taken for still true.
const SYNC_KNOWN_MS: u64 = 1_000;

/// What a config may say about the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockTrust {
    /// Judge by the rules above.
    #[default]
    Auto,
    /// This box has a battery clock or a time source of its own.
    Always,
    /// Never believe it.
    Never,
}

/// Where store time stood, with the wall clock at that moment; kept by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// Store time.
    pub store: StoreTime,
    /// Wall clock.
    pub wall: UnixMillis,
    /// Whether it was trusted.
    pub wall_trusted: bool,
}

/// A shared clock.
#[derive(Clone)]
pub struct Clock(Arc<Inner>);

struct Inner {
    source: Source,
    trust: ClockTrust,
    state: Mutex<State>,
}

enum Source {
    System,
    Manual(Arc<Mutex<ManualState>>),
}

/// A raw reading: boot-time milliseconds and wall milliseconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    boot_ms: u64,
    wall_ms: i64,
}

#[derive(Default)]
struct State {
    /// Store time minus boot time.
    base_ms: i128,
    /// Wall minus boot at the last reading, to see steps.
    offset_ms: Option<i64>,
    /// Boot time of the last step.
    stepped_at: Option<u64>,
    /// What the system last said of its synchronisation, and the boot time of that question.
    synchronised: Option<(bool, u64)>,
}

#[derive(Clone, Copy)]
struct ManualState {
    reading: Reading,
}

/// Moves a manual clock.
#[derive(Clone)]
pub struct ManualClock(Arc<Mutex<ManualState>>);

impl ManualClock {
    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        state.reading.boot_ms = state.reading.boot_ms.saturating_add(ms);
        state.reading.wall_ms = state.reading.wall_ms.saturating_add_unsigned(ms);
    }

    /// Sets the wall clock, as a person or NTP would.
    pub fn set_wall(&self, wall: UnixMillis) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).reading.wall_ms = wall.0;
    }
}

impl Clock {
    /// The machine's clocks.
    pub fn system(trust: ClockTrust) -> Self {
        Self::with(Source::System, trust)
    }

    /// A clock that moves only when told, starting on a believable day.
    pub fn manual() -> (Self, ManualClock) {
        let state =
            ManualState { reading: Reading { boot_ms: 1_000_000, wall_ms: BUILD_UNIX_MS + 86_400_000 } };
        let shared = Arc::new(Mutex::new(state));
        (Self::with(Source::Manual(Arc::clone(&shared)), ClockTrust::Auto), ManualClock(shared))
    }

    fn with(source: Source, trust: ClockTrust) -> Self {
        let clock = Self(Arc::new(Inner { source, trust, state: Mutex::default() }));
        let boot = clock.0.source.read().boot_ms;
        clock.0.state.lock().unwrap_or_else(PoisonError::into_inner).base_ms = -i128::from(boot);
        clock
    }

    /// Goes on from where the store left off: by the wall-clock gap if the clock was trusted at both ends, by nothing
    /// otherwise. Called once, when the store opens.
    pub fn resume(&self, last: Watermark) {
        let now = self.now();
        let gap_ms =
            if last.wall_trusted && now.wall_trusted { (now.wall.0 - last.wall.0).max(0) } else { 0 };
        let boot = self.0.source.read().boot_ms;
        let start = i128::from(last.store.0) + i128::from(gap_ms);
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).base_ms = start - i128::from(boot);
    }

    /// Both times now.
    pub fn now(&self) -> Now {
        let reading = self.0.source.read();
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = reading.wall_ms.saturating_sub_unsigned(reading.boot_ms);
        if state.offset_ms.is_some_and(|before| (offset - before).abs() > STEP_MS) {
            state.stepped_at = Some(reading.boot_ms);
        }
        // Slow slewing must not add up to a "step": the reference follows.
        state.offset_ms = Some(offset);
        let settled = state
            .stepped_at
            .is_none_or(|at| Duration::from_millis(reading.boot_ms.saturating_sub(at)) >= STEP_SETTLE);
        let store = u64::try_from(i128::from(reading.boot_ms) + state.base_ms).unwrap_or(0);
        let wall_trusted = match self.0.trust {
            ClockTrust::Always => true,
            ClockTrust::Never => false,
            ClockTrust::Auto => {
                settled
                    && reading.wall_ms >= BUILD_UNIX_MS
                    && state.synchronised(&self.0.source, reading.boot_ms)
            }
        };
        Now { store: StoreTime(store), wall: UnixMillis(reading.wall_ms), wall_trusted }
    }

    /// What the store keeps.
    pub fn watermark(&self) -> Watermark {
        let now = self.now();
        Watermark { store: now.store, wall: now.wall, wall_trusted: now.wall_trusted }
    }
}

impl State {
    /// Whether the system says that its clock is synchronised, asked at most once a second: a reading of the clock must
    /// not cost a walk through the file system (it was 6 % of the CPU under load).
    fn synchronised(&mut self, source: &Source, boot_ms: u64) -> bool {
        match self.synchronised {
            Some((known, at)) if boot_ms.saturating_sub(at) < SYNC_KNOWN_MS => known,
            _ => {
                let known = source.synchronised();
                self.synchronised = Some((known, boot_ms));
                known
            }
        }
    }
}

impl Source {
    fn read(&self) -> Reading {
        match self {
            Source::System => {
                let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let boot_ms = boot.tv_sec.cast_unsigned() * 1_000 + boot.tv_nsec.cast_unsigned() / 1_000_000;
                Reading { boot_ms, wall_ms: system_wall_ms() }
            }
            Source::Manual(state) => state.lock().unwrap_or_else(PoisonError::into_inner).reading,
        }
    }

    fn synchronised(&self) -> bool {
        match self {
            Source::System => {
                let dir = Path::new(TIMESYNC_DIR);
                !dir.exists() || dir.join("synchronized").exists()
            }
            Source::Manual(_) => true,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this module is the only reader of time")]
fn system_wall_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    }
}

/// RFC 3339 text of a stamp, to the millisecond, for people and headers.
pub fn rfc3339(stamp: UnixMillis) -> String {
    jiff::Timestamp::from_millisecond(stamp.0)
        .map_or_else(|_| format!("{}ms", stamp.0), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_time_ignores_steps_of_the_wall_clock() {
        let (clock, hand) = Clock::manual();
        let start = clock.now();
        assert_eq!(start.store, StoreTime(0));
        assert!(start.wall_trusted);
        hand.advance(Duration::from_secs(5));
        hand.set_wall(UnixMillis(0));
        let after = clock.now();
        assert_eq!(after.store, StoreTime(5_000));
        assert!(!after.wall_trusted, "1970 is before this version was made");
        hand.set_wall(UnixMillis(BUILD_UNIX_MS + 1));
        assert!(!clock.now().wall_trusted, "just stepped");
        hand.advance(STEP_SETTLE);
        assert!(clock.now().wall_trusted);
    }

    #[test]
    fn a_restart_counts_the_gap_only_with_a_trusted_clock_at_both_ends() {
        let (clock, hand) = Clock::manual();
        hand.advance(Duration::from_secs(7));
        let mark = clock.watermark();
        let (next, hand) = Clock::manual();
        hand.set_wall(UnixMillis(mark.wall.0 + 60_000));
        next.resume(mark);
        assert_eq!(next.now().store, StoreTime(67_000));
        let (next, hand) = Clock::manual();
        hand.set_wall(UnixMillis(1_000));
        next.resume(mark);
        assert_eq!(next.now().store, StoreTime(7_000), "the gap is unknown, so it is zero");
        let (next, _hand) = Clock::manual();
        next.resume(Watermark { wall_trusted: false, ..mark });
        assert_eq!(next.now().store, StoreTime(7_000));
    }

    #[test]
    fn stamps_read_as_rfc_3339() {
        assert_eq!(rfc3339(UnixMillis(1_764_547_200_123)), "2025-12-01T00:00:00.123Z");
    }
}
