//! Opening a store: whatever is on the disk, it starts.
//!
//! The index gives the state at its last checkpoint; the log behind it is replayed through [`State::apply`]. Without
//! a usable index the whole log is replayed, which gives the same state, because the log is freed from its head only
//! and every segment header repeats the counters. Bytes that are no record are copied to `quarantine/`. In the end
//! the counters must agree with what is there: what they have more is what damage took, and is counted as `lost`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use bytes::Bytes;

use super::checkpoint::{self, Checkpoints};
use super::disk::{Disk, FileDisk, segment_name};
use super::error::OpenError;
use super::home::{FORMAT, Format, Home, dir_bytes, io_error};
use super::keys::{KeyLimits, Known};
use super::log::Log;
use super::records::{Header, Held, Letter, Moved, Slip};
use super::replay::{Recovered, recover, salt_of_segment};
use super::shared::{Shared, Tuning};
use super::state::State;
use super::types::{Recovery, StoreConfig};
use super::witness::WitnessFile;
use super::writer::{Timers, Writer};
use super::{LINE_REQUESTS, Outbox};
use crate::clock::{Clock, Watermark};
use crate::core::delivery::State as DeliveryState;
use crate::core::ids::{EndpointId, EndpointName, Identity, Seq, StoreSalt};
use crate::core::time::{StoreTime, UnixMillis};

/// Name of the endpoint of events that no route wants; no config can name one so.
const UNROUTED_NAME: &str = "(unrouted)";

/// Opens a store; a test brings its own disk.
pub(super) fn open(
    config: StoreConfig,
    clock: Clock,
    tuning: Tuning,
    disk: Option<Arc<dyn Disk>>,
) -> Result<(Outbox, Recovery), OpenError> {
    let home = Home::enter(&config.dir)?;
    let disk = disk.unwrap_or_else(|| Arc::new(FileDisk::new(&home.log_dir())));
    let listed = |disk: &dyn Disk| disk.list().map_err(|source| io_error("read", &home.log_dir(), source));
    let mut recovery = Recovery::default();
    let salt = establish_salt(&home, &*disk, &listed(&*disk)?, &mut recovery)?;
    let segments = listed(&*disk)?;
    let limits = KeyLimits {
        ttl: config.key_ttl,
        window: config.window_without_time,
        bytes_max: config.keys_bytes_max,
        generation_keys: tuning.generation_keys,
    };
    let recovered = recover(&home, &disk, salt, limits, &segments, recovery);
    let Recovered {
        mut state,
        keys,
        mut recovery,
        reader,
        index,
        lsn,
        checkpoint_lsn,
        covered_segment,
        watermark,
    } = recovered;
    state.overlay.recovering = false;
    if let Some(watermark) = watermark {
        clock.resume(watermark);
    }
    let newest_segment = segments.last().map_or(0, |(id, _)| *id).max(covered_segment);
    let log = Log::new(disk, salt, newest_segment + 1, lsn + 1, tuning.segment_bytes);
    let (quarantined, index_dir) = (dir_bytes(&home.dir.join("quarantine")), home.index_dir());
    let shared = Arc::new(Shared::new(config, clock, tuning, reader, state, index));
    shared.figures.quarantined_bytes.store(quarantined, Ordering::Relaxed);
    shared.figures.index_bytes.store(dir_bytes(&index_dir), Ordering::Relaxed);
    recovery.warnings.dedup();
    recovery.warnings.iter().for_each(|text| shared.warn(text.clone()));
    let thread_fault =
        |source| OpenError::Io { doing: "start a thread for", path: shared.config.dir.clone(), source };
    let (jobs, done) = checkpoint::spawn(Arc::clone(&shared), index_dir).map_err(thread_fault)?;
    // As many places as permits, and some for requests that need none (close).
    let (line, requests) = sync_channel(LINE_REQUESTS + 16);
    let checkpoints = Checkpoints {
        jobs,
        done,
        running: false,
        lsn: checkpoint_lsn,
        log_bytes: 0,
        at_ms: shared.clock.now().store.0,
        freed: Vec::new(),
        failed: false,
        urgent: false,
    };
    let mut writer = Writer {
        shared: Arc::clone(&shared),
        log,
        keys,
        requests,
        timers: Timers::default(),
        checkpoints,
        admitted_bytes: 0,
        witness: WitnessFile::open(&home.dir),
        home,
    };
    writer.begin(recovery.created || recovery.rebuilt || recovery.replayed > 0);
    std::thread::Builder::new()
        .name("waypost-log".to_owned())
        .spawn(move || writer.run())
        .map_err(thread_fault)?;
    Ok((Outbox::new(shared, line), recovery))
}

/// The salt from `FORMAT`, else from a segment, else a new one. Old files without a readable salt are set aside.
fn establish_salt(
    home: &Home,
    disk: &dyn Disk,
    segments: &[(u64, u64)],
    recovery: &mut Recovery,
) -> Result<StoreSalt, OpenError> {
    if let Some(format) = Format::read(&home.dir) {
        return Ok(format.salt);
    }
    let salt = segments.iter().find_map(|&(id, _)| salt_of_segment(disk, id));
    let has_index = home.index_dir().exists();
    let salt = if let Some(salt) = salt {
        recovery.warnings.push("the FORMAT file was missing or damaged; it was written again".to_owned());
        salt
    } else {
        if segments.is_empty() && !has_index {
            recovery.created = true;
        } else {
            recovery.warnings.push(
                    "no file of the store could be read; the old files are in quarantine/ and the store starts empty"
                        .to_owned(),
                );
            for &(id, bytes) in segments {
                recovery.quarantined_bytes += bytes;
                move_segment_aside(home, id)?;
            }
            if has_index {
                let path = home.index_dir();
                home.move_aside(&path).map_err(|source| io_error("move", &path, source))?;
            }
        }
        StoreSalt(crate::entropy::random_u64())
    };
    Format { version: FORMAT, salt }.write(&home.dir)?;
    Ok(salt)
}

fn move_segment_aside(home: &Home, id: u64) -> Result<(), OpenError> {
    let path = home.log_dir().join(segment_name(id));
    home.move_aside(&path).map_err(|source| io_error("move", &path, source))
}

/// The configured endpoints that the store does not know yet, with their new numbers.
pub(super) fn new_endpoints(state: &State, configured: &[EndpointName]) -> Vec<(EndpointId, EndpointName)> {
    let known = |name: &EndpointName| state.endpoints.values().any(|one| one.name.as_ref() == Some(name));
    let mut next = state.endpoints.keys().next_back().map_or(1, |id| id.0 + 1);
    let unrouted = EndpointName::from(UNROUTED_NAME);
    let mut new = Vec::new();
    if !known(&unrouted) {
        new.push((EndpointId::UNROUTED, unrouted));
    }
    for name in configured {
        if !known(name) {
            new.push((EndpointId(next), name.clone()));
            next += 1;
        }
    }
    new
}

/// A store that is opened to be read whole: recovered in memory, locked, with no thread that writes.
pub(super) struct Offline {
    recovered: Recovered,
    _home: Home,
}

impl Offline {
    pub(super) fn open(dir: &Path) -> Result<Self, OpenError> {
        let home = Home::enter(dir)?;
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&home.log_dir()));
        let listed =
            |disk: &dyn Disk| disk.list().map_err(|source| io_error("read", &home.log_dir(), source));
        let mut recovery = Recovery::default();
        let salt = establish_salt(&home, &*disk, &listed(&*disk)?, &mut recovery)?;
        let segments = listed(&*disk)?;
        // Nothing is forgotten by being exported.
        let limits = KeyLimits {
            ttl: Duration::MAX,
            window: Duration::MAX,
            bytes_max: u64::MAX,
            generation_keys: Tuning::default().generation_keys,
        };
        Ok(Self { recovered: recover(&home, &disk, salt, limits, &segments, recovery), _home: home })
    }

    pub(super) fn header(&self) -> Header {
        let none = Watermark { store: StoreTime(0), wall: UnixMillis(0), wall_trusted: false };
        self.recovered.state.header(0, self.recovered.watermark.unwrap_or(none))
    }

    /// Sequences of events that are still needed.
    pub(super) fn needed(&self) -> Vec<Seq> {
        let endpoints = self.recovered.state.endpoints.values();
        let mut needed: Vec<Seq> = endpoints
            .flat_map(|one| one.pending.iter_from(Seq(0)).chain(one.dead.iter_from(Seq(0))))
            .collect();
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// An event with the state of its deliveries.
    pub(super) fn event(&self, seq: Seq) -> Option<(Moved, Bytes)> {
        let Recovered { state, reader, index, .. } = &self.recovered;
        let (id, known) = state.locate(seq)?;
        let segment = state.segments.get(&id)?;
        let place = known.or_else(|| reader.find(id, segment, seq).ok())?;
        let (event, body) = reader.read(place).ok()?;
        let slip = |id| match state.overlay.slip(id, seq) {
            Some(slip) => slip.map(|slip| (*slip).clone()),
            None => index.as_ref().and_then(|index| index.slip(id, seq)),
        };
        let letter = |id| match state.overlay.letter(seq, id) {
            Some(letter) => letter.map(|letter| (*letter).clone()),
            None => index.as_ref().and_then(|index| index.letter(seq, id)),
        };
        let held = state.endpoints.keys().filter_map(|&id| match state.delivery(id, seq)? {
            DeliveryState::Pending => {
                Some((id, Held::Pending(Slip { due: None, ..slip(id).unwrap_or_default() })))
            }
            DeliveryState::Waiting(due) => {
                Some((id, Held::Pending(Slip { due: Some(due), ..slip(id).unwrap_or_default() })))
            }
            DeliveryState::Dead => Some((id, Held::Dead(letter(id).unwrap_or_else(Letter::unknown)))),
            DeliveryState::Ended(_) => None,
        });
        Some((Moved { held: held.collect(), event }, body))
    }

    /// Every remembered identity, until the visitor says stop.
    pub(super) fn each_key(&self, visit: &mut dyn FnMut(Identity, &Known) -> bool) {
        self.recovered.keys.each(self.recovered.index.as_ref(), visit);
    }
}

/// Copies the index of a store that is not open into a fresh one and puts that in its place.
pub(super) fn rewrite_index(dir: &Path) -> Result<(), OpenError> {
    let home = Home::enter(dir)?;
    home.rewrite_index().map_err(|fault| {
        let source = std::io::Error::other(fault);
        OpenError::Io { doing: "rewrite", path: home.index_dir(), source }
    })
}
