//! What the store knows, and the one function that changes it.
//!
//! [`State::apply`] is used by live traffic and by recovery alike. It sets absolute state and never decides, so a
//! suffix of the log applied over an index that already has part of it ends in the same state. Counters are the
//! exception: they move once per record, and so belong to an LSN; a checkpoint and every segment header carry them
//! as absolute numbers.
//!
//! Invariants: of one delivery at most one of `pending` and `dead` is set; `waiting` and `returned` are disjoint
//! parts of `pending`. Details (attempts, reasons) are kept out of line: in the overlay since the last checkpoint,
//! in the index before, so memory does not grow with the backlog.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::overlay::Overlay;
use super::records::{EndpointState, Header, Held, Letter, Record, Slip};
use super::seqset::SeqSet;
use super::types::{EndpointRecord, Ledger};
use crate::clock::Watermark;
use crate::core::delivery::{DeadReason, End, Progress, State as DeliveryState};
use crate::core::ids::{EndpointId, EndpointName, Seq, StoreSalt};
use crate::core::time::{StoreTime, UnixMillis};

/// Ended deliveries whose story is kept for `event show`: some seconds of full traffic, under 1 MiB.
const RECENT_ENDS: usize = 512;

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: u32,
    /// Whole frame.
    pub(super) bytes: u32,
}

/// Counters while records move them: a damaged log can bring them below zero for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) accepted: i64,
    pub(super) ended: [i64; 6],
    pub(super) pending: i64,
    pub(super) dead: i64,
    pub(super) duplicates: i64,
}

pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn slot(end: End) -> usize {
    match end {
        End::Delivered => 0,
        End::Expired => 1,
        End::Discarded => 2,
        End::Dropped => 3,
        End::Superseded => 4,
        End::Lost => 5,
    }
}

impl Counts {
    pub(super) fn ended(&mut self, end: End) -> &mut i64 {
        &mut self.ended[slot(end)]
    }

    pub(super) fn ledger(&self) -> Ledger {
        let up = |count: i64| u64::try_from(count).unwrap_or(0);
        let [delivered, expired, discarded, dropped, superseded, lost] = self.ended.map(up);
        Ledger {
            accepted: up(self.accepted),
            delivered,
            pending: up(self.pending),
            dead: up(self.dead),
            expired,
            discarded,
            dropped,
            superseded,
            lost,
            duplicates: up(self.duplicates),
        }
    }

    fn of(ledger: &Ledger) -> Self {
        Self {
            accepted: signed(ledger.accepted),
            ended: [
                ledger.delivered,
                ledger.expired,
                ledger.discarded,
                ledger.dropped,
                ledger.superseded,
                ledger.lost,
            ]
            .map(signed),
            pending: signed(ledger.pending),
            dead: signed(ledger.dead),
            duplicates: signed(ledger.duplicates),
        }
    }
}

/// One endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoint {
    pub(super) name: Option<EndpointName>,
    pub(super) record: Option<EndpointRecord>,
    pub(super) counts: Counts,
    pub(super) pending: SeqSet,
    pub(super) dead: SeqSet,
    /// Pending deliveries between attempts, by sequence and by due time.
    pub(super) waiting: BTreeMap<Seq, StoreTime>,
    pub(super) due: BTreeSet<(StoreTime, Seq)>,
    /// Pending deliveries in line again that have attempts behind them.
    pub(super) returned: SeqSet,
    /// Store time of the oldest pending delivery, with its sequence; looked up by the log thread.
    pub(super) oldest: Option<(Seq, StoreTime)>,
}

impl Endpoint {
    fn has_slip(&self, seq: Seq) -> bool {
        self.waiting.contains_key(&seq) || self.returned.contains(seq)
    }

    fn forget_slip(&mut self, seq: Seq) -> bool {
        match self.waiting.remove(&seq) {
            Some(due) => self.due.remove(&(due, seq)),
            None => self.returned.remove(seq),
        }
    }

    pub(super) fn place_slip(&mut self, seq: Seq, due: Option<StoreTime>) {
        self.forget_slip(seq);
        if let Some(due) = due {
            self.waiting.insert(seq, due);
            self.due.insert((due, seq));
        } else {
            self.returned.insert(seq);
        }
    }
}

/// One log segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first_seq: Seq,
    /// Sequences from `first_seq` that have their first record here.
    pub(super) count: u32,
    /// Frame bytes of accepted events.
    pub(super) event_bytes: u64,
    /// Bytes written.
    pub(super) used: u64,
    /// Size of the file.
    pub(super) capacity: u64,
    /// Where its index record is; zero if it has none.
    pub(super) index_at: u64,
    pub(super) last_lsn: u64,
    /// Events whose current copy is here and that are still needed.
    pub(super) live: u32,
    pub(super) live_bytes: u64,
    /// Newest record that ended one of its events; the file may go when a checkpoint covers it.
    pub(super) ended_lsn: u64,
}

/// What a record did to the need for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) seq: Seq,
    pub(super) was: Need,
    pub(super) is: Need,
}

/// Whether an event is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Need {
    pub(super) live: bool,
    pub(super) dead: bool,
}

/// An ended delivery whose story is still known.
#[derive(Clone, Debug)]
pub(super) struct RecentEnd {
    pub(super) seq: Seq,
    pub(super) endpoint: EndpointId,
    pub(super) end: End,
    pub(super) progress: Progress,
    pub(super) reason: Option<DeadReason>,
}

/// Everything in memory.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) salt: StoreSalt,
    pub(super) next_seq: Seq,
    /// Newest applied record.
    pub(super) lsn: u64,
    pub(super) endpoints: BTreeMap<EndpointId, Endpoint>,
    pub(super) segments: BTreeMap<u64, Segment>,
    /// Segments that have events, by their first sequence.
    pub(super) by_seq: BTreeMap<Seq, u64>,
    /// Current place of events that were copied to the tail.
    pub(super) moved: BTreeMap<Seq, Place>,
    pub(super) overlay: Overlay,
    pub(super) live: u64,
    pub(super) live_bytes: u64,
    pub(super) dead_bytes: u64,
    pub(super) recent_ends: VecDeque<RecentEnd>,
}

impl State {
    pub(super) fn new(salt: StoreSalt) -> Self {
        Self {
            salt,
            next_seq: Seq(1),
            lsn: 0,
            endpoints: BTreeMap::new(),
            segments: BTreeMap::new(),
            by_seq: BTreeMap::new(),
            moved: BTreeMap::new(),
            overlay: Overlay::default(),
            live: 0,
            live_bytes: 0,
            dead_bytes: 0,
            recent_ends: VecDeque::new(),
        }
    }

    /// Absolute state, as it goes into a segment header or a checkpoint.
    pub(super) fn header(&self, segment: u64, watermark: Watermark) -> Header {
        Header {
            salt: self.salt,
            segment,
            head: self.segments.keys().next().copied().unwrap_or(segment),
            next_seq: self.next_seq,
            watermark,
            endpoints: self
                .endpoints
                .iter()
                .filter_map(|(&id, endpoint)| {
                    let name = endpoint.name.clone()?;
                    Some(EndpointState {
                        id,
                        name,
                        record: endpoint.record,
                        ledger: endpoint.counts.ledger(),
                    })
                })
                .collect(),
        }
    }

    /// Takes counters and registry from a header or checkpoint; what was read beyond its `next_seq` was never
    /// acknowledged (its sync failed and it was written again, or not at all) and is undone.
    pub(super) fn reset_to(&mut self, header: &Header) {
        let from = header.next_seq;
        let undone: Vec<(EndpointId, Seq)> = self
            .endpoints
            .iter()
            .flat_map(|(&id, one)| {
                one.pending.iter_from(from).chain(one.dead.iter_from(from)).map(move |seq| (id, seq))
            })
            .collect();
        for (id, seq) in undone {
            self.clear(id, seq);
        }
        for segment in self.segments.values_mut() {
            let kept = from.0.saturating_sub(segment.first_seq.0);
            segment.count = segment.count.min(u32::try_from(kept).unwrap_or(u32::MAX));
        }
        self.by_seq.split_off(&from);
        self.next_seq = header.next_seq;
        for one in &header.endpoints {
            let endpoint = self.endpoints.entry(one.id).or_default();
            endpoint.name = Some(one.name.clone());
            endpoint.record = one.record;
            endpoint.counts = Counts::of(&one.ledger);
        }
    }

    /// State of a delivery.
    pub(super) fn delivery(&self, endpoint: EndpointId, seq: Seq) -> Option<DeliveryState> {
        let known = self.endpoints.get(&endpoint)?;
        if known.pending.contains(seq) {
            return Some(
                known.waiting.get(&seq).map_or(DeliveryState::Pending, |&due| DeliveryState::Waiting(due)),
            );
        }
        if known.dead.contains(seq) {
            return Some(DeliveryState::Dead);
        }
        self.recent_ends
            .iter()
            .rev()
            .find(|one| one.seq == seq && one.endpoint == endpoint)
            .map(|one| DeliveryState::Ended(one.end))
    }

    pub(super) fn need(&self, seq: Seq) -> Need {
        let mut need = Need::default();
        for endpoint in self.endpoints.values() {
            need.dead |= endpoint.dead.contains(seq);
            need.live |= endpoint.pending.contains(seq);
        }
        need.live |= need.dead;
        need
    }

    /// The segment that holds the current copy of an event, and its place if that is known without its index.
    pub(super) fn locate(&self, seq: Seq) -> Option<(u64, Option<Place>)> {
        if let Some(&place) = self.moved.get(&seq) {
            return Some((place.segment, Some(place)));
        }
        let (_, id) = self.by_seq.range(..=seq).next_back()?;
        let segment = self.segments.get(id)?;
        (seq.0 - segment.first_seq.0 < u64::from(segment.count)).then_some((*id, None))
    }

    /// Takes a segment that is no longer needed out of the books.
    pub(super) fn free_segment(&mut self, id: u64) {
        if let Some(segment) = self.segments.remove(&id)
            && segment.count > 0
        {
            self.by_seq.remove(&segment.first_seq);
        }
    }

    /// Applies one record. `place` is where an accepted or moved event stands.
    pub(super) fn apply(&mut self, lsn: u64, record: &Record, place: Place) -> Option<Effect> {
        self.lsn = self.lsn.max(lsn);
        let seq = match record {
            Record::Accepted(accepted) => accepted.event.head.seq,
            Record::Moved(moved) => moved.event.head.seq,
            Record::Ended { seq, .. }
            | Record::Slip { seq, .. }
            | Record::Dead { seq, .. }
            | Record::Redriven { seq, .. } => *seq,
            Record::Endpoint { id, name, record } => {
                let endpoint = self.endpoints.entry(*id).or_default();
                endpoint.name = Some(name.clone());
                endpoint.record = *record;
                return None;
            }
            Record::Header(_) | Record::Index(_) | Record::Mark { .. } => return None,
        };
        let was = self.need(seq);
        match record {
            Record::Accepted(accepted) => {
                if seq < self.next_seq {
                    return None;
                }
                for &id in &accepted.deliver {
                    let counts = &mut self.endpoints.entry(id).or_default().counts;
                    counts.accepted += 1;
                    counts.pending += 1;
                    self.set_pending(id, seq);
                }
                for (id, reason) in &accepted.dead {
                    let counts = &mut self.endpoints.entry(*id).or_default().counts;
                    counts.accepted += 1;
                    counts.dead += 1;
                    let dead_at = accepted.event.head.accepted_at;
                    self.set_dead(*id, seq, at_intake(reason, dead_at));
                }
                self.next_seq = Seq(seq.0 + 1);
                self.note_event(seq, place);
            }
            Record::Ended { endpoint, end, was_dead, .. } => {
                let counts = &mut self.endpoints.entry(*endpoint).or_default().counts;
                *(if *was_dead { &mut counts.dead } else { &mut counts.pending }) -= 1;
                *counts.ended(*end) += 1;
                self.clear(*endpoint, seq);
            }
            Record::Slip { endpoint, slip, .. } => {
                self.set_pending(*endpoint, seq);
                self.set_slip(*endpoint, seq, slip.clone());
            }
            Record::Dead { endpoint, letter, .. } => {
                let counts = &mut self.endpoints.entry(*endpoint).or_default().counts;
                counts.pending -= 1;
                counts.dead += 1;
                self.set_dead(*endpoint, seq, letter.clone());
            }
            Record::Redriven { endpoint, slip, .. } => {
                let counts = &mut self.endpoints.entry(*endpoint).or_default().counts;
                counts.dead -= 1;
                counts.pending += 1;
                self.set_pending(*endpoint, seq);
                self.set_slip(*endpoint, seq, slip.clone());
            }
            Record::Moved(moved) => {
                self.moved.insert(seq, place);
                self.overlay.moved.push((seq, place));
                for (id, held) in &moved.held {
                    match held {
                        Held::Pending(slip) => {
                            self.set_pending(*id, seq);
                            if *slip != Slip::default() {
                                self.set_slip(*id, seq, slip.clone());
                            }
                        }
                        Held::Dead(letter) => self.set_dead(*id, seq, letter.clone()),
                    }
                }
            }
            Record::Endpoint { .. } | Record::Header(_) | Record::Index(_) | Record::Mark { .. } => {}
        }
        Some(Effect { seq, was, is: self.need(seq) })
    }

    pub(super) fn note_event(&mut self, seq: Seq, place: Place) {
        let segment = self.segments.entry(place.segment).or_default();
        if segment.count == 0 {
            segment.first_seq = seq;
            self.by_seq.insert(seq, place.segment);
        }
        segment.count = (seq.0 - segment.first_seq.0) as u32 + 1;
        segment.event_bytes += u64::from(place.bytes);
        segment.index_at = 0;
    }

    fn set_pending(&mut self, id: EndpointId, seq: Seq) {
        let endpoint = self.endpoints.entry(id).or_default();
        if endpoint.pending.insert(seq) {
            self.overlay.touch_pending(id, seq);
        }
        if endpoint.dead.remove(seq) {
            self.overlay.touch_dead(id, seq);
            self.overlay.drop_letter(seq, id);
        }
    }

    fn set_slip(&mut self, id: EndpointId, seq: Seq, slip: Slip) {
        let endpoint = self.endpoints.entry(id).or_default();
        let fresh = !endpoint.has_slip(seq);
        endpoint.place_slip(seq, slip.due);
        self.overlay.put_slip(id, seq, Arc::new(slip), fresh);
    }

    fn set_dead(&mut self, id: EndpointId, seq: Seq, letter: Letter) {
        let endpoint = self.endpoints.entry(id).or_default();
        if endpoint.pending.remove(seq) {
            self.overlay.touch_pending(id, seq);
        }
        if endpoint.forget_slip(seq) {
            self.overlay.drop_slip(id, seq);
        }
        let fresh = endpoint.dead.insert(seq);
        if fresh {
            self.overlay.touch_dead(id, seq);
        }
        self.overlay.put_letter(seq, id, Arc::new(letter), fresh);
    }

    /// Takes a delivery out of everything but the counters.
    pub(super) fn clear(&mut self, id: EndpointId, seq: Seq) {
        let endpoint = self.endpoints.entry(id).or_default();
        if endpoint.pending.remove(seq) {
            self.overlay.touch_pending(id, seq);
        }
        if endpoint.forget_slip(seq) {
            self.overlay.drop_slip(id, seq);
        }
        if endpoint.dead.remove(seq) {
            self.overlay.touch_dead(id, seq);
            self.overlay.drop_letter(seq, id);
        }
    }

    /// Keeps the sizes of what is needed. `place` is the current place of the event (the old one, for a move).
    pub(super) fn account(&mut self, effect: Effect, place: Place, lsn: u64) {
        let Effect { was, is, .. } = effect;
        let bytes = u64::from(place.bytes);
        if let Some(segment) = self.segments.get_mut(&place.segment) {
            if is.live && !was.live {
                segment.live += 1;
                segment.live_bytes += bytes;
                self.live += 1;
                self.live_bytes += bytes;
            } else if was.live && !is.live {
                segment.live = segment.live.saturating_sub(1);
                // The size of an event whose place cannot be told any more is not known: it goes with the last one.
                let gone = if segment.live == 0 { segment.live_bytes } else { bytes.min(segment.live_bytes) };
                segment.live_bytes -= gone;
                segment.ended_lsn = segment.ended_lsn.max(lsn);
                self.live = self.live.saturating_sub(1);
                self.live_bytes = self.live_bytes.saturating_sub(gone);
            }
        }
        if is.dead && !was.dead {
            self.dead_bytes += bytes;
        } else if was.dead && !is.dead {
            self.dead_bytes = self.dead_bytes.saturating_sub(bytes);
        }
        if was.live && !is.live {
            self.moved.remove(&effect.seq);
        }
    }

    /// A live event's current copy went from one place to another.
    pub(super) fn account_move(&mut self, seq: Seq, from: Place, to: Place, lsn: u64) {
        if self.need(seq).dead {
            self.dead_bytes = (self.dead_bytes + u64::from(to.bytes)).saturating_sub(u64::from(from.bytes));
        }
        if let Some(segment) = self.segments.get_mut(&from.segment) {
            segment.live = segment.live.saturating_sub(1);
            segment.live_bytes = segment.live_bytes.saturating_sub(u64::from(from.bytes));
            segment.ended_lsn = segment.ended_lsn.max(lsn);
        }
        if let Some(segment) = self.segments.get_mut(&to.segment) {
            segment.live += 1;
            segment.live_bytes += u64::from(to.bytes);
        }
        let (from, to) = (u64::from(from.bytes), u64::from(to.bytes));
        self.live_bytes = (self.live_bytes + to).saturating_sub(from);
    }

    pub(super) fn note_end(&mut self, end: RecentEnd) {
        if self.recent_ends.len() == RECENT_ENDS {
            self.recent_ends.pop_front();
        }
        self.recent_ends.push_back(end);
    }
}

fn at_intake(reason: &DeadReason, dead_at: UnixMillis) -> Letter {
    Letter { reason: reason.clone(), progress: Progress::default(), dead_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a failed sync the pages of events may be gone, and with them their sizes; the store once took these bytes for
    /// needed until a restart, and copied less than it should.
    #[test]
    fn live_bytes_of_events_whose_place_is_lost_go_with_the_last_of_their_segment() {
        let mut state = State::new(StoreSalt(1));
        state.segments.insert(7, Segment::default());
        let place = |bytes| Place { segment: 7, offset: 64, bytes };
        let (live, ended) = (Need { live: true, dead: false }, Need::default());
        for seq in 1..=3 {
            state.account(Effect { seq: Seq(seq), was: ended, is: live }, place(100), seq);
        }
        for (seq, bytes) in [(1, 100), (2, 0), (3, 100)] {
            state.account(Effect { seq: Seq(seq), was: live, is: ended }, place(bytes), 10);
        }
        assert_eq!((state.live, state.live_bytes), (0, 0));
        assert_eq!((state.segments[&7].live, state.segments[&7].live_bytes), (0, 0));
    }
}
