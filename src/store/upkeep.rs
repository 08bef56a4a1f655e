//! The log thread's other work: segments, syncs, limits, checkpoints.

use std::io;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::keys::Known;
use super::log::{Group, Written};
use super::records::{Header, Moved, Record};
use super::recover::new_endpoints;
use super::state::Segment;
use super::writer::{NOWHERE, Writer, is_full};
use crate::core::ids::{EndpointId, Identity, Seq};

/// How often ages of oldest deliveries are looked up.
const OLDEST_EVERY_MS: u64 = 250;

impl Writer {
    /// The first segment of this run, with the endpoints that the config names for the first time.
    pub(super) fn begin(&mut self, checkpoint: bool) {
        self.look_at_disk(self.shared.clock.now().store.0);
        let new = new_endpoints(&self.shared.state(), &self.shared.config.endpoints);
        let mut group = Group::default();
        let records: Vec<Record> =
            new.into_iter().map(|(id, name)| Record::Endpoint { id, name, record: None }).collect();
        for record in &records {
            group.push(record, &[]);
        }
        // Known in memory even if the disk is full now: the next segment header carries them.
        for record in &records {
            self.shared.state().apply(0, record, NOWHERE);
        }
        let begun = self.write(&mut group).and_then(|_| self.sync());
        if let Err(error) = begun {
            self.shared.warn(format!("the log cannot be written now: {error}"));
        } else if checkpoint {
            // So that the next start has an index to start from, whatever happens now.
            self.start_checkpoint(false);
            self.collect_checkpoint(true);
        }
    }

    /// Writes a group, beginning a new segment if it does not fit.
    pub(super) fn write(&mut self, group: &mut Group) -> io::Result<Vec<Written>> {
        let shared = std::sync::Arc::clone(&self.shared);
        shared.busy(|| {
            if !self.log.fits(group) {
                self.roll(group)?;
            }
            self.log.write(group)
        })
    }

    /// Ends the active segment (index record, sync, spare room given back) and begins one that has room for `group`.
    pub(super) fn roll(&mut self, group: &Group) -> io::Result<()> {
        self.end_segment();
        let header = self.shared.state().header(self.log.next_segment(), self.shared.clock.watermark());
        let written = self.log.begin_segment(header, group)?;
        let (id, tail, capacity) = self.log.position().expect("invariant: a segment has just begun");
        self.shared.reader.begin(id);
        self.timers.looked_at_disk_ms = None; // the file system has given room
        let segment = Segment { used: tail, capacity, last_lsn: written.lsn, ..Segment::default() };
        self.shared.state().segments.insert(id, segment);
        Ok(())
    }

    /// Makes the active segment a full one. If the disk fails at it, the segment is given up as it is: what was
    /// accepted is synced already, and the rest shall get into the index soon.
    pub(super) fn end_segment(&mut self) {
        let Some((id, tail, _)) = self.log.position() else { return };
        let mut index = Group::default();
        index.push(&Record::Index(self.shared.reader.growing()), &[]);
        let ended = self.log.write(&mut index).and_then(|_| self.log.sync());
        let end = self.log.position().map_or(tail, |(_, end, _)| end);
        self.log.abandon_segment();
        match ended {
            Ok(()) => {
                self.note_segment(id, end, tail);
                self.log.truncate(id, end);
            }
            Err(error) => {
                self.shared.warn(format!(
                    "a log segment could not be ended in order ({error}); going on in a new one"
                ));
                self.note_segment(id, end, 0);
                self.checkpoints.urgent = true;
            }
        }
    }

    fn note_segment(&self, id: u64, used: u64, index_at: u64) {
        let last_lsn = self.log.last_lsn();
        if let Some(segment) = self.shared.state().segments.get_mut(&id) {
            *segment = Segment { used, index_at, last_lsn, capacity: used, ..*segment };
        }
    }

    /// Syncs the log. After a failed sync the pages may be gone, and a second sync of that file would say that all is
    /// well: the segment is given up, and what stands only in memory and there shall get into the index soon.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let shared = std::sync::Arc::clone(&self.shared);
        if let Err(error) = shared.busy(|| self.log.sync()) {
            shared.warn(format!("the disk could not sync the log ({error}); going on in a new segment"));
            if let Some((id, tail)) = self.log.abandon_segment() {
                self.note_segment(id, tail, 0);
            }
            self.checkpoints.urgent = true;
            return Err(error);
        }
        self.timers.dirty_since_ms = None;
        Ok(())
    }

    /// Events whose sync failed go to a new segment, whose header undoes what may survive of them in the old one.
    pub(super) fn write_again(&mut self, events: &[(Record, Bytes)]) -> io::Result<Vec<Written>> {
        let mut group = Group::default();
        for (record, body) in events {
            group.push(record, body);
        }
        let written = self.write(&mut group)?;
        self.sync()?;
        Ok(written)
    }

    /// Writes a group. Changes that must not wait for space take the ballast's.
    pub(super) fn write_or_make_way(&mut self, group: &mut Group, vital: bool) -> io::Result<Vec<Written>> {
        match self.write(group) {
            Err(error) if vital && is_full(&error) && self.drop_ballast() => self.write(group),
            other => other,
        }
    }

    /// What is due between groups.
    pub(super) fn housekeeping(&mut self) {
        let now_ms = self.shared.clock.now().store.0;
        if self.log.dirty() {
            let since = *self.timers.dirty_since_ms.get_or_insert(now_ms);
            if now_ms.saturating_sub(since) >= self.shared.tuning.sync_ms && self.sync().is_ok() {
                self.mark();
            }
        }
        self.checkpoint_if_due(now_ms);
        self.make_room();
        self.look_at_disk(now_ms);
        self.find_oldest(now_ms);
        let figures = &self.shared.figures;
        figures.log_written_bytes.store(self.log.written_bytes, Ordering::Relaxed);
        figures.syncs.store(self.log.syncs, Ordering::Relaxed);
        figures.keys.store(self.keys.len(), Ordering::Relaxed);
    }

    /// Looks up the age of each endpoint's oldest pending delivery, when it is another one than before.
    fn find_oldest(&mut self, now_ms: u64) {
        if self.timers.looked_at_oldest_ms.is_some_and(|at| now_ms.saturating_sub(at) < OLDEST_EVERY_MS) {
            return;
        }
        self.timers.looked_at_oldest_ms = Some(now_ms);
        let changed: Vec<(EndpointId, Option<Seq>)> = {
            let state = self.shared.state();
            let firsts = state.endpoints.iter().map(|(&id, one)| (id, one.pending.first(), one.oldest));
            firsts
                .filter(|(_, first, known)| known.map(|(seq, _)| seq) != *first)
                .map(|(id, first, _)| (id, first))
                .collect()
        };
        for (id, first) in changed {
            let accepted = first.and_then(|seq| {
                let recent = self.shared.recent(seq).map(|event| event.head.accepted);
                let read = || Some(self.shared.read(seq).ok()?.0.head.accepted);
                Some((seq, recent.or_else(read)?))
            });
            if let Some(endpoint) = self.shared.state().endpoints.get_mut(&id) {
                endpoint.oldest = accepted;
            }
        }
    }

    /// Says in the log what has just been synced, so that recovery can tell damage to it from a torn tail. Not synced
    /// itself: if it is missing, nothing is known, which is the truth.
    fn mark(&mut self) {
        let next_seq = self.shared.state().next_seq;
        let mut group = Group::default();
        group.push(&Record::Mark { next_seq }, &[]);
        if self.log.fits(&group) && self.log.write(&mut group).is_ok() {
            self.log.marked();
        }
    }

    /// Import: another store's counters become this one's; a new segment's header makes them so in the log too.
    pub(super) fn adopt(&mut self, header: &Header) -> bool {
        self.shared.state().reset_to(header);
        self.roll(&Group::default()).is_ok()
    }

    /// Import: events go into the log as if they had been copied to its tail.
    pub(super) fn restore(&mut self, events: Vec<(Moved, Bytes)>, keys: Vec<(Identity, Known)>) -> bool {
        for (identity, known) in keys {
            self.keys.insert(identity, known);
        }
        let records: Vec<(Record, Bytes)> =
            events.into_iter().map(|(moved, body)| (Record::Moved(Box::new(moved)), body)).collect();
        let mut group = Group::default();
        for (record, body) in &records {
            group.push(record, body);
        }
        let Ok(written) = self.write(&mut group) else { return false };
        let mut state = self.shared.state();
        for ((record, _), at) in records.iter().zip(written) {
            if let Some(effect) = state.apply(at.lsn, record, at.place) {
                state.account(effect, at.place, at.lsn);
            }
        }
        true
    }

    /// The orderly end: everything in the index, nothing to replay.
    pub(super) fn close(&mut self) {
        self.collect_checkpoint(true);
        self.end_segment();
        self.start_checkpoint(true);
        self.collect_checkpoint(true);
        // Twice, so that the index also forgets the segments that the first one freed.
        if !self.checkpoints.freed.is_empty() {
            self.start_checkpoint(true);
            self.collect_checkpoint(true);
        }
        self.shared.set_index(None);
        self.drop_ballast();
    }
}
