//! What deliveries in memory have to do with each other: order within a device, newer ones that replace older ones, and
//! when each stops being worth sending.
//!
//! It only keeps these three relations. An ordered device has one *head*, its oldest delivery in memory; nothing else
//! of it may be taken. A delivery that is dead or ended has left its lane. A redriven one is in none: its turn is past.

use std::collections::{BTreeMap, BTreeSet};

use super::super::ids::Seq;
use super::super::route::{Lane, Terms};
use super::super::time::StoreTime;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    order: BTreeMap<Lane, BTreeSet<Seq>>,
    latest: BTreeMap<Lane, Seq>,
    ends: BTreeSet<(StoreTime, Seq)>,
    /// Deliveries that a newer one has replaced and that nobody has settled so yet.
    replaced: Vec<Seq>,
}

impl Lanes {
    /// A delivery comes into memory.
    pub(super) fn enter(&mut self, seq: Seq, accepted: StoreTime, terms: &Terms) {
        if let Some(lane) = terms.order {
            self.order.entry(lane).or_default().insert(seq);
        }
        if let Some(ttl) = terms.ttl {
            self.ends.insert((accepted + ttl, seq));
        }
        if let Some(lane) = terms.replaces {
            match self.latest.get(&lane).copied() {
                Some(newer) if newer > seq => self.replaced.push(seq),
                older => {
                    self.latest.insert(lane, seq);
                    self.replaced.extend(older);
                }
            }
        }
    }

    /// It leaves memory. Gives the delivery of its device that is next, if it was the one before it.
    pub(super) fn leave(&mut self, seq: Seq, accepted: StoreTime, terms: &Terms) -> Option<Seq> {
        if let Some(ttl) = terms.ttl {
            self.ends.remove(&(accepted + ttl, seq));
        }
        if let Some(lane) = terms.replaces
            && self.latest.get(&lane) == Some(&seq)
        {
            self.latest.remove(&lane);
        }
        let lane = terms.order?;
        let line = self.order.get_mut(&lane)?;
        let was_head = line.first() == Some(&seq);
        line.remove(&seq);
        let next = line.first().copied();
        if next.is_none() {
            self.order.remove(&lane);
        }
        next.filter(|_| was_head)
    }

    /// The oldest delivery of the same device.
    pub(super) fn head(&self, terms: &Terms) -> Option<Seq> {
        self.order.get(&terms.order?)?.first().copied()
    }

    /// Whether an older delivery of its device has to go first.
    pub(super) fn blocked(&self, seq: Seq, terms: &Terms) -> bool {
        self.head(terms).is_some_and(|head| head < seq)
    }

    /// The next delivery that a newer one has replaced.
    pub(super) fn next_replaced(&mut self) -> Option<Seq> {
        self.replaced.pop()
    }

    /// It could not be settled as replaced yet, or it came back into line since.
    pub(super) fn replaced_again(&mut self, seq: Seq) {
        self.replaced.push(seq);
    }

    /// Whether a newer delivery of its device on its route is pending.
    pub(super) fn is_replaced(&self, seq: Seq, terms: &Terms) -> bool {
        terms.replaces.and_then(|lane| self.latest.get(&lane)).is_some_and(|latest| *latest > seq)
    }

    /// The delivery that is the first to be worth nothing any more, and when.
    pub(super) fn first_end(&self) -> Option<(StoreTime, Seq)> {
        self.ends.first().copied()
    }

    /// The end of this one has been seen to; it comes up again only by [`Lanes::watch_end`].
    pub(super) fn end_seen(&mut self, at: StoreTime, seq: Seq) {
        self.ends.remove(&(at, seq));
    }

    /// It is in line again.
    pub(super) fn watch_end(&mut self, seq: Seq, accepted: StoreTime, terms: &Terms) {
        if let Some(ttl) = terms.ttl {
            self.ends.insert((accepted + ttl, seq));
        }
    }
}
