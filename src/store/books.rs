//! The end of recovery: what has no bytes is taken out, the counters are made to agree with what is there, and what
//! is live is measured.
//!
//! The ledger must balance after any damage: a delivery that the counters have and the log has not is `lost`; one
//! that the log has and the counters have not was settled by a record that is gone, and will be repeated.

use std::collections::BTreeSet;

use super::read::{ReadFault, Reader};
use super::state::{Effect, Need, Place, Segment, State, signed};
use super::types::Recovery;
use super::writer::NOWHERE;
use crate::core::delivery::End;
use crate::core::ids::{EndpointId, Seq};

/// Takes out what has no bytes, makes the counters agree with what is there, and measures it.
pub(super) fn settle_books(
    state: &mut State,
    reader: &Reader,
    hurt: &BTreeSet<u64>,
    recovery: &mut Recovery,
) {
    sweep(state, reader, hurt);
    for endpoint in state.endpoints.values_mut() {
        let (pending, dead) = (signed(endpoint.pending.len()), signed(endpoint.dead.len()));
        let counts = &mut endpoint.counts;
        (counts.pending, counts.dead) = (pending, dead);
        let missing = counts.accepted - counts.pending - counts.dead - counts.ended.iter().sum::<i64>();
        if missing > 0 {
            *counts.ended(End::Lost) += missing;
            recovery.lost += missing as u64;
        } else if missing < 0 {
            // Settlements were lost: their deliveries are pending again and will be repeated under their key.
            let delivered = counts.ended(End::Delivered);
            *delivered += missing;
            let short = (-*delivered).max(0);
            *delivered += short;
            counts.accepted += short;
        }
    }
    if recovery.lost > 0 {
        recovery
            .warnings
            .push(format!("{} deliveries were lost to damage and are counted as lost", recovery.lost));
    }
    measure(state, reader);
}

/// Clears what is pending or dead without a record in the log.
fn sweep(state: &mut State, reader: &Reader, hurt: &BTreeSet<u64>) {
    let ends = |one: &Segment| (one.first_seq, Seq(one.first_seq.0 + u64::from(one.count)));
    let mut lost: Vec<(EndpointId, Seq)> = Vec::new();
    for (&id, one) in &state.endpoints {
        for set in [&one.pending, &one.dead] {
            let whole = state.segments.iter().filter(|(number, one)| one.count > 0 && !hurt.contains(number));
            let covered: usize =
                whole.map(|(_, one)| ends(one)).map(|(from, to)| set.range(from, to).count()).sum();
            if covered as u64 == set.len() {
                continue;
            }
            lost.extend(
                set.iter_from(Seq(0))
                    .filter(|&seq| !has_record(state, reader, hurt, seq))
                    .map(|seq| (id, seq)),
            );
        }
    }
    for (id, seq) in lost {
        state.clear(id, seq);
    }
}

fn has_record(state: &State, reader: &Reader, hurt: &BTreeSet<u64>, seq: Seq) -> bool {
    let Some((id, known)) = state.locate(seq) else { return false };
    let Some(segment) = state.segments.get(&id) else { return false };
    match known {
        Some(place) => u64::from(place.offset) + u64::from(place.bytes) <= segment.capacity,
        None if hurt.contains(&id) => {
            let read = reader.find(id, segment, seq).and_then(|place| reader.read(place));
            matches!(read, Ok(_) | Err(ReadFault::Unable(_)))
        }
        None => true,
    }
}

/// Counts what is live in each segment.
fn measure(state: &mut State, reader: &Reader) {
    let ids: Vec<u64> = state.segments.keys().copied().collect();
    for id in ids {
        let segment = state.segments[&id];
        if segment.count == 0 {
            continue;
        }
        let end = Seq(segment.first_seq.0 + u64::from(segment.count));
        let mut live: Vec<Seq> = Vec::new();
        for endpoint in state.endpoints.values() {
            live.extend(endpoint.pending.range(segment.first_seq, end));
            live.extend(endpoint.dead.range(segment.first_seq, end));
        }
        live.sort_unstable();
        live.dedup();
        let any_dead =
            state.endpoints.values().any(|one| one.dead.range(segment.first_seq, end).next().is_some());
        let any_moved = state.moved.range(segment.first_seq..end).next().is_some();
        if live.len() == segment.count as usize && !any_dead && !any_moved {
            count_live(state, id, segment.count, segment.event_bytes);
            continue;
        }
        for seq in live.into_iter().filter(|seq| !state.moved.contains_key(seq)).collect::<Vec<_>>() {
            let place = reader.find(id, &segment, seq).unwrap_or(Place { segment: id, ..NOWHERE });
            let effect = Effect { seq, was: Need::default(), is: state.need(seq) };
            state.account(effect, place, 0);
        }
    }
    let moved: Vec<(Seq, Place)> = state.moved.iter().map(|(&seq, &place)| (seq, place)).collect();
    for (seq, place) in moved {
        let is = state.need(seq);
        if is.live {
            state.account(Effect { seq, was: Need::default(), is }, place, 0);
        } else {
            state.moved.remove(&seq);
        }
    }
}

fn count_live(state: &mut State, id: u64, events: u32, bytes: u64) {
    if let Some(segment) = state.segments.get_mut(&id) {
        segment.live += events;
        segment.live_bytes += bytes;
    }
    state.live += u64::from(events);
    state.live_bytes += bytes;
}
