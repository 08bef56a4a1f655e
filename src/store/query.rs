//! Questions to the store. They take the lock for a moment and read the disk outside it; all may block.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::error::StoreError;
use super::read::{ReadFault, stored};
use super::records::Letter;
use super::shared::Shared;
use super::state::Place;
use super::types::{
    DeadFilter, DeadLetter, DeadPage, DeliveryState, PendingDelivery, PendingPage, Scheduled, StoreStats,
    StoredEvent,
};
use crate::core::delivery::{Progress, State};
use crate::core::ids::{EndpointId, Seq};
use crate::core::time::StoreTime;

/// Longest page: a request stays within some megabytes and milliseconds.
const PAGE_MAX: usize = 4096;
/// Dead letters looked at for one page; a filter that few pass gives a short page, or an empty one, and where to go on.
const LOOKED_AT_MAX: usize = 8_192;
/// Body bytes of a page; a page of huge events is cut short.
const PAGE_BYTES: u64 = 16 << 20;

/// An answer, and the events that turned out damaged on the way.
type Found<T> = Result<(T, Vec<Seq>), StoreError>;

impl Shared {
    /// Events by sequence, with those that turned out damaged. `None` stands for one that is gone.
    fn events(&self, seqs: &[Seq]) -> Found<Vec<Option<Arc<StoredEvent>>>> {
        let mut found: Vec<Option<Arc<StoredEvent>>> = seqs.iter().map(|&seq| self.recent(seq)).collect();
        let missing: Vec<usize> = (0..seqs.len()).filter(|&at| found[at].is_none()).collect();
        let mut damaged = Vec::new();
        let mut places: Vec<(usize, Place)> = Vec::with_capacity(missing.len());
        for at in missing {
            match self.place(seqs[at]) {
                Ok(place) => places.push((at, place)),
                Err(ReadFault::Unable(error)) => return Err(StoreError::Io(Arc::new(error))),
                Err(_) if self.state().need(seqs[at]).live => damaged.push(seqs[at]),
                Err(_) => {}
            }
        }
        let only: Vec<Place> = places.iter().map(|(_, place)| *place).collect();
        for ((at, _), read) in places.into_iter().zip(self.reader.read_many(&only)) {
            match read {
                Ok(event) if event.0.head.seq == seqs[at] => found[at] = Some(stored(event)),
                Ok(_) | Err(ReadFault::Damaged) => damaged.push(seqs[at]),
                // Freed or copied to the tail since its place was looked up: look once more.
                Err(ReadFault::Unable(error)) => return Err(StoreError::Io(Arc::new(error))),
                Err(ReadFault::Gone) => match self.read(seqs[at]) {
                    Ok(event) => found[at] = Some(stored(event)),
                    Err(ReadFault::Unable(error)) => return Err(StoreError::Io(Arc::new(error))),
                    Err(_) if self.state().need(seqs[at]).live => damaged.push(seqs[at]),
                    Err(_) => {}
                },
            }
        }
        Ok((found, damaged))
    }

    pub(super) fn event(&self, seq: Seq) -> Found<Option<Arc<StoredEvent>>> {
        let (mut found, damaged) = self.events(&[seq])?;
        Ok((found.pop().flatten(), damaged))
    }

    pub(super) fn pending_page(&self, endpoint: EndpointId, after: Seq, limit: usize) -> Found<PendingPage> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (seqs, mut end, newest) = {
            let state = self.state();
            let newest = Seq(state.next_seq.0 - 1);
            let Some(one) = state.endpoints.get(&endpoint) else {
                let none = PendingPage { deliveries: Vec::new(), scanned_to: newest, end: true };
                return Ok((none, Vec::new()));
            };
            let mut seqs = Vec::with_capacity(limit.min(1024));
            let mut end = true;
            for seq in one.pending.iter_from(Seq(after.0 + 1)) {
                if seqs.len() == limit {
                    end = false;
                    break;
                }
                if !one.waiting.contains_key(&seq) {
                    seqs.push(seq);
                }
            }
            (seqs, end, newest)
        };
        let mut scanned_to = if end { newest } else { seqs.last().copied().unwrap_or(newest) };
        let (mut deliveries, mut damaged, mut bytes) = (Vec::with_capacity(seqs.len()), Vec::new(), 0);
        // In parts, so that a page of huge events is cut before it is read.
        for part in seqs.chunks(64) {
            let (events, bad) = self.events(part)?;
            damaged.extend(bad);
            for (seq, event) in part.iter().zip(events) {
                let Some(event) = event else { continue };
                bytes += event.body.len() as u64;
                deliveries.push(PendingDelivery { progress: self.slip(endpoint, *seq).progress, event });
            }
            if bytes >= PAGE_BYTES && part.last() != seqs.last() {
                (end, scanned_to) = (false, part.last().copied().unwrap_or(scanned_to));
                break;
            }
        }
        Ok((PendingPage { deliveries, scanned_to: scanned_to.max(after), end }, damaged))
    }

    pub(super) fn scheduled(
        &self,
        endpoint: EndpointId,
        until: StoreTime,
        limit: usize,
    ) -> Found<Vec<Scheduled>> {
        let due: Vec<(StoreTime, Seq)> = {
            let state = self.state();
            let Some(one) = state.endpoints.get(&endpoint) else { return Ok(Default::default()) };
            one.due.range(..=(until, Seq(u64::MAX))).take(limit.min(PAGE_MAX)).copied().collect()
        };
        let (mut page, mut damaged) = (Vec::with_capacity(due.len()), Vec::new());
        for part in due.chunks(64) {
            let seqs: Vec<Seq> = part.iter().map(|(_, seq)| *seq).collect();
            let (events, bad) = self.events(&seqs)?;
            damaged.extend(bad);
            for (&(due, seq), event) in part.iter().zip(events) {
                if let Some(event) = event {
                    let progress = self.slip(endpoint, seq).progress;
                    let (head, body_bytes) = (event.head.clone(), event.body.len());
                    page.push(Scheduled { head, body_bytes, due, progress });
                }
            }
        }
        Ok((page, damaged))
    }

    pub(super) fn deliveries(&self, seq: Seq) -> Vec<DeliveryState> {
        let (states, ended) = {
            let state = self.state();
            let states: Vec<(EndpointId, State)> = state
                .endpoints
                .keys()
                .filter_map(|&endpoint| Some((endpoint, state.delivery(endpoint, seq)?)))
                .collect();
            let ended: Vec<_> = state.recent_ends.iter().filter(|one| one.seq == seq).cloned().collect();
            (states, ended)
        };
        let describe = |(endpoint, state): (EndpointId, State)| {
            let (progress, reason) = match state {
                State::Pending | State::Waiting(_) => (self.slip(endpoint, seq).progress, None),
                State::Dead => match self.letter(seq, endpoint) {
                    Some(letter) => (letter.progress, Some(letter.reason)),
                    None => (Progress::default(), None),
                },
                State::Ended(_) => ended
                    .iter()
                    .rev()
                    .find(|one| one.endpoint == endpoint)
                    .map_or((Progress::default(), None), |one| (one.progress.clone(), one.reason.clone())),
            };
            DeliveryState { endpoint, state, progress, reason }
        };
        states.into_iter().map(describe).collect()
    }

    pub(super) fn dead_letter(&self, seq: Seq, endpoint: EndpointId) -> Found<Option<DeadLetter>> {
        if self.state().delivery(endpoint, seq) != Some(State::Dead) {
            return Ok((None, Vec::new()));
        }
        let (event, damaged) = self.event(seq)?;
        let letter = event.map(|event| dead_letter(&event, endpoint, self.letter_or_blank(seq, endpoint)));
        Ok((letter, damaged))
    }

    /// A dead letter whose details the index lost is still one.
    fn letter_or_blank(&self, seq: Seq, endpoint: EndpointId) -> Letter {
        self.letter(seq, endpoint).unwrap_or_else(Letter::unknown)
    }

    pub(super) fn dead_letters(
        &self,
        filter: &DeadFilter,
        after: Option<(Seq, EndpointId)>,
        limit: usize,
    ) -> Found<DeadPage> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut page, mut damaged) = (DeadPage::default(), Vec::new());
        let (mut after, mut looked_at) = (after, 0);
        loop {
            let (candidates, total) = self.dead_after(filter, after, PAGE_MAX.min(limit * 4));
            page.total = total;
            for &(seq, endpoint) in &candidates {
                if page.letters.len() == limit || looked_at == LOOKED_AT_MAX {
                    page.next = after;
                    return Ok((page, damaged));
                }
                after = Some((seq, endpoint));
                looked_at += 1;
                let letter = self.letter_or_blank(seq, endpoint);
                let fits = filter.class.is_none_or(|class| letter.reason.class == class)
                    && filter.since.is_none_or(|since| letter.dead_at >= since)
                    && filter.until.is_none_or(|until| letter.dead_at < until);
                if !fits {
                    continue;
                }
                let (event, bad) = self.event(seq)?;
                damaged.extend(bad);
                if let Some(event) = event
                    && filter.bbox.is_none_or(|bbox| event.head.bbox.is_some_and(|own| meets(own, bbox)))
                {
                    page.letters.push(dead_letter(&event, endpoint, letter));
                }
            }
            if candidates.is_empty() {
                return Ok((page, damaged));
            }
        }
    }

    /// The next dead deliveries in the order of (sequence, endpoint), or against it.
    fn dead_after(
        &self,
        filter: &DeadFilter,
        after: Option<(Seq, EndpointId)>,
        limit: usize,
    ) -> (Vec<(Seq, EndpointId)>, u64) {
        let state = self.state();
        let mut found = Vec::new();
        for (&id, one) in &state.endpoints {
            if filter.endpoint.is_some_and(|only| only != id) {
                continue;
            }
            if filter.newest_first {
                let from = after.map_or(Seq(u64::MAX), |(seq, _)| seq);
                let beyond = |seq: &Seq| after.is_none_or(|after| (*seq, id) < after);
                found.extend(one.dead.iter_down_from(from).filter(beyond).take(limit).map(|seq| (seq, id)));
            } else {
                let from = after.map_or(Seq(0), |(seq, _)| seq);
                let beyond = |seq: &Seq| after.is_none_or(|after| (*seq, id) > after);
                found.extend(one.dead.iter_from(from).filter(beyond).take(limit).map(|seq| (seq, id)));
            }
        }
        found.sort_unstable();
        if filter.newest_first {
            found.reverse();
        }
        found.truncate(limit);
        (found, state.endpoints.values().map(|one| one.dead.len()).sum())
    }

    pub(super) fn stats(&self) -> StoreStats {
        let state = self.state();
        let figures = &self.figures;
        let number = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        let each = || state.endpoints.iter().map(|(id, one)| (id.0, one));
        StoreStats {
            ledgers: each().map(|(id, one)| (id, one.counts.ledger())).collect(),
            names: each().filter_map(|(id, one)| Some((id, one.name.as_ref()?.to_string()))).collect(),
            oldest_pending: each().filter_map(|(id, one)| Some((id, one.oldest?.1))).collect(),
            disk_bytes: number(&figures.disk_bytes),
            live_bytes: state.live_bytes,
            dead_bytes: state.dead_bytes,
            events: state.live,
            quarantined_bytes: number(&figures.quarantined_bytes),
            disk_free_bytes: number(&figures.free_bytes),
            written_bytes: number(&figures.log_written_bytes) + number(&figures.index_written_bytes),
            syncs: number(&figures.syncs),
            keys: number(&figures.keys),
            warnings: self.warnings(),
            full: self.full(),
        }
    }
}

fn dead_letter(event: &StoredEvent, endpoint: EndpointId, letter: Letter) -> DeadLetter {
    let Letter { reason, progress, dead_at } = letter;
    DeadLetter { head: event.head.clone(), endpoint, reason, progress, dead_at }
}

/// Whether an extent meets a box; west > east spans the antimeridian, in either of them.
fn meets([west, south, east, north]: [f64; 4], [w, s, e, n]: [f64; 4]) -> bool {
    let spans = |w: f64, e: f64| if w <= e { vec![(w, e)] } else { vec![(w, 180.0), (-180.0, e)] };
    let other = spans(w, e);
    south <= n
        && s <= north
        && spans(west, east).iter().any(|a| other.iter().any(|b| a.0 <= b.1 && b.0 <= a.1))
}
