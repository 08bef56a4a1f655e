//! A hierarchical timer wheel: insert, cancel and fire in constant time, for a million timers.
//!
//! Six levels of 64 slots. Level 0 resolves single milliseconds, each level above 64 times coarser; a timer sits on
//! the level where its due time first differs from the wheel's own time, and falls towards level 0 as that time comes
//! near. One bit per slot says whether it is empty, so that an idle hour costs nothing. Six levels reach two years;
//! timers beyond that sit in the last slot and are placed again when it comes up.
//!
//! Invariants: a timer fires once, never before its due time, in order of due time; a cancelled one never fires; a
//! [`TimerId`] of a timer that is gone matches nothing. The wheel knows no clock: time only comes through
//! [`Wheel::advance`].

use super::time::StoreTime;

/// Six bits of the due time per level.
const SLOT_BITS: u32 = 6;
/// Slots of a level; one `u64` holds their occupancy.
const SLOTS: usize = 1 << SLOT_BITS;
/// `64^6` ms is 2.2 years, far beyond any delay that a policy allows.
const LEVELS: usize = 6;
/// Farthest ahead that a timer is placed: one slot less than a whole round of the top level, so that the slot of the
/// present moment never holds timers of the next round.
const REACH: u64 = ((SLOTS as u64) - 1) << (SLOT_BITS * (LEVELS as u32 - 1));
/// End of a list.
const NONE: u32 = u32::MAX;

/// Names a timer until it fires or is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// Where a timer is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the free list.
    Free,
    /// Due already when it was inserted.
    Overdue,
    /// In a slot.
    Slot { level: u8, slot: u8 },
}

#[derive(Debug)]
struct Node<T> {
    due: u64,
    generation: u32,
    place: Place,
    previous: u32,
    next: u32,
    value: Option<T>,
}

/// A doubly linked list through the nodes, so that cancelling needs no search.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NONE, tail: NONE };

#[derive(Debug)]
struct Level {
    occupied: u64,
    slots: [List; SLOTS],
}

/// The wheel. `T` is what a timer is for.
#[derive(Debug)]
pub struct Wheel<T> {
    /// Everything due up to here has fired.
    elapsed: u64,
    levels: Vec<Level>,
    overdue: List,
    nodes: Vec<Node<T>>,
    free: u32,
    len: usize,
}

impl<T> Wheel<T> {
    /// An empty wheel whose time is `now`.
    pub fn new(now: StoreTime) -> Self {
        let levels = (0..LEVELS).map(|_| Level { occupied: 0, slots: [EMPTY; SLOTS] }).collect();
        Self { elapsed: now.0, levels, overdue: EMPTY, nodes: Vec::new(), free: NONE, len: 0 }
    }

    /// Timers that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Set a timer. One that is due already fires at the next [`Wheel::advance`].
    pub fn insert(&mut self, due: StoreTime, value: T) -> TimerId {
        let index = self.allocate(due.0, value);
        self.link(index);
        self.len += 1;
        TimerId { index, generation: self.nodes[index as usize].generation }
    }

    /// Take a timer back. `None` if it has fired or was cancelled.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let node = self.nodes.get(id.index as usize)?;
        if node.generation != id.generation || node.place == Place::Free {
            return None;
        }
        self.unlink(id.index);
        self.len -= 1;
        self.release(id.index)
    }

    /// Let time pass and append what is due up to and including `now` to `fired`, in order of due time.
    pub fn advance(&mut self, now: StoreTime, fired: &mut Vec<(StoreTime, T)>) {
        let overdue = Self::take(&mut self.overdue);
        self.fire_list(overdue, fired);
        while let Some((level, slot, at)) = self.next_slot() {
            if at > now.0 {
                break;
            }
            self.elapsed = at;
            let list = Self::take(&mut self.levels[level].slots[slot]);
            self.levels[level].occupied &= !(1 << slot);
            if level == 0 {
                self.fire_list(list, fired);
            } else {
                self.cascade(list, fired);
            }
        }
        self.elapsed = self.elapsed.max(now.0);
    }

    /// No timer is due before this instant. Exact within the last 64 ms before a timer; further out it may be earlier
    /// than the timer itself, by less than the distance, so waking then always makes progress.
    pub fn next_deadline(&self) -> Option<StoreTime> {
        if self.overdue.head != NONE {
            return Some(StoreTime(self.elapsed));
        }
        self.next_slot().map(|(_, _, at)| StoreTime(at))
    }

    /// The first occupied slot in time: its level, index and start.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // A lower level always holds nearer timers than a higher one, so the first hit is the nearest.
        for (level, state) in self.levels.iter().enumerate() {
            if state.occupied == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            let here = (self.elapsed >> shift) as usize % SLOTS;
            let ahead = state.occupied.rotate_right(here as u32).trailing_zeros() as usize;
            let slot = (here + ahead) % SLOTS;
            let round = u64::from(SLOT_BITS) + u64::from(shift);
            let base = (self.elapsed >> round) << round;
            let mut at = base + ((slot as u64) << shift);
            if slot < here {
                // Only the top level wraps: its slots behind the present one belong to the next round.
                at += 1 << round;
            }
            return Some((level, slot, at));
        }
        None
    }

    /// Place the timers of a coarse slot again, now that its start has come.
    fn cascade(&mut self, list: List, fired: &mut Vec<(StoreTime, T)>) {
        let mut index = list.head;
        while index != NONE {
            let next = self.nodes[index as usize].next;
            if self.nodes[index as usize].due <= self.elapsed {
                self.fire(index, fired);
            } else {
                self.link(index);
            }
            index = next;
        }
    }

    fn fire_list(&mut self, list: List, fired: &mut Vec<(StoreTime, T)>) {
        let mut index = list.head;
        while index != NONE {
            let next = self.nodes[index as usize].next;
            self.fire(index, fired);
            index = next;
        }
    }

    fn fire(&mut self, index: u32, fired: &mut Vec<(StoreTime, T)>) {
        let due = StoreTime(self.nodes[index as usize].due);
        self.len -= 1;
        if let Some(value) = self.release(index) {
            fired.push((due, value));
        }
    }

    fn take(list: &mut List) -> List {
        std::mem::replace(list, EMPTY)
    }

    fn allocate(&mut self, due: u64, value: T) -> u32 {
        if self.free == NONE {
            let index = u32::try_from(self.nodes.len()).expect("invariant: fewer than 2^32 timers");
            self.nodes.push(Node {
                due,
                generation: 0,
                place: Place::Free,
                previous: NONE,
                next: NONE,
                value: Some(value),
            });
            return index;
        }
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        node.due = due;
        node.value = Some(value);
        index
    }

    /// Put a node, already out of its list, into the free list.
    fn release(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        node.place = Place::Free;
        node.generation = node.generation.wrapping_add(1);
        node.next = self.free;
        self.free = index;
        node.value.take()
    }

    fn link(&mut self, index: u32) {
        let due = self.nodes[index as usize].due;
        let place = if due <= self.elapsed {
            Place::Overdue
        } else {
            // Beyond the reach the farthest slot holds it until that comes up.
            let at = due.min(self.elapsed + REACH);
            let top_bit = (self.elapsed ^ at | (SLOTS as u64 - 1)).ilog2();
            let level = ((top_bit / SLOT_BITS) as usize).min(LEVELS - 1);
            let slot = (at >> (SLOT_BITS * level as u32)) as usize % SLOTS;
            Place::Slot { level: level as u8, slot: slot as u8 }
        };
        let list = match place {
            Place::Slot { level, slot } => {
                let level = &mut self.levels[usize::from(level)];
                level.occupied |= 1 << slot;
                &mut level.slots[usize::from(slot)]
            }
            Place::Overdue | Place::Free => &mut self.overdue,
        };
        let tail = std::mem::replace(&mut list.tail, index);
        if tail == NONE {
            list.head = index;
        } else {
            self.nodes[tail as usize].next = index;
        }
        let node = &mut self.nodes[index as usize];
        node.place = place;
        node.previous = tail;
        node.next = NONE;
    }

    fn unlink(&mut self, index: u32) {
        let node = &self.nodes[index as usize];
        let (place, previous, next) = (node.place, node.previous, node.next);
        let list = match place {
            Place::Slot { level, slot } => &mut self.levels[usize::from(level)].slots[usize::from(slot)],
            Place::Overdue | Place::Free => &mut self.overdue,
        };
        if previous == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = previous;
        }
        let empty = list.head == NONE;
        if previous != NONE {
            self.nodes[previous as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if let (true, Place::Slot { level, slot }) = (empty, place) {
            self.levels[usize::from(level)].occupied &= !(1 << slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn fire(wheel: &mut Wheel<u64>, now: u64) -> Vec<(u64, u64)> {
        let mut fired = Vec::new();
        wheel.advance(StoreTime(now), &mut fired);
        fired.into_iter().map(|(due, value)| (due.0, value)).collect()
    }

    #[test]
    fn a_timer_fires_once_at_its_time_and_not_before() {
        for due in [1, 63, 64, 65, 4095, 4096, 100_000, 1 << 36, (1 << 36) + 77, 1 << 40] {
            let mut wheel = Wheel::new(StoreTime(0));
            wheel.insert(StoreTime(due), due);
            assert!(fire(&mut wheel, due - 1).is_empty(), "{due} fired early");
            assert_eq!(fire(&mut wheel, due), [(due, due)]);
            assert!(fire(&mut wheel, due + (1 << 41)).is_empty());
            assert!(wheel.is_empty());
        }
    }

    #[test]
    fn waking_at_the_next_deadline_always_ends_at_the_timer() {
        let mut wheel = Wheel::new(StoreTime(12_345));
        let due = 12_345 + 259_200_000; // a retry window of 72 h
        wheel.insert(StoreTime(due), 1);
        let mut wakes = 0;
        loop {
            let at = wheel.next_deadline().unwrap();
            assert!(at.0 <= due);
            wakes += 1;
            if !fire(&mut wheel, at.0).is_empty() {
                assert_eq!(at.0, due);
                break;
            }
            assert!(wakes <= LEVELS, "a wake without progress");
        }
    }

    #[test]
    fn a_stale_id_cancels_nothing() {
        let mut wheel = Wheel::new(StoreTime(0));
        let first = wheel.insert(StoreTime(5), 1);
        assert_eq!(wheel.cancel(first), Some(1));
        let second = wheel.insert(StoreTime(5), 2);
        assert_eq!(wheel.cancel(first), None, "the node was used again");
        assert_eq!(fire(&mut wheel, 5), [(5, 2)]);
        assert_eq!(wheel.cancel(second), None);
    }

    #[test]
    fn a_million_timers() {
        let mut wheel = Wheel::new(StoreTime(0));
        let ids: Vec<_> = (0..1_000_000u64)
            .map(|n| {
                let due = n.wrapping_mul(2_654_435_761) % 600_000;
                (due, wheel.insert(StoreTime(due), n))
            })
            .collect();
        let cancelled = ids.iter().skip(1).step_by(2).filter(|(_, id)| wheel.cancel(*id).is_some()).count();
        assert_eq!((cancelled, wheel.len()), (500_000, 500_000));
        let mut last = 0;
        let mut count = 0;
        for now in (0..=600_000).step_by(1000) {
            for (due, _) in fire(&mut wheel, now) {
                assert!(due <= now && due >= last, "out of order");
                last = due;
                count += 1;
            }
        }
        assert_eq!((count, wheel.len()), (500_000, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Cancel(usize),
        Advance(u64),
        AdvanceToDeadline,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let distance = prop_oneof![0u64..70, 0u64..5000, 0u64..10_000_000, 0u64..(1 << 38)];
        let step = prop_oneof![
            4 => distance.clone().prop_map(Step::Insert),
            2 => any::<usize>().prop_map(Step::Cancel),
            2 => distance.prop_map(Step::Advance),
            1 => Just(Step::AdvanceToDeadline),
        ];
        prop::collection::vec(step, 1..120)
    }

    proptest! {
        #[test]
        fn equals_a_sorted_list(start in 0u64..(1 << 40), steps in steps()) {
            let mut wheel = Wheel::new(StoreTime(start));
            let mut model: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let mut ids: Vec<(u64, u64, TimerId)> = Vec::new();
            let (mut now, mut serial) = (start, 0u64);
            for step in steps {
                let to = match step {
                    Step::Insert(distance) => {
                        // Some are overdue when they are set.
                        let due = (now + distance).saturating_sub(10);
                        ids.push((due, serial, wheel.insert(StoreTime(due), serial)));
                        model.entry(due).or_default().push(serial);
                        serial += 1;
                        continue;
                    }
                    Step::Cancel(pick) if !ids.is_empty() => {
                        let (due, value, id) = ids.swap_remove(pick % ids.len());
                        let waits = model.get(&due).is_some_and(|values| values.contains(&value));
                        prop_assert_eq!(wheel.cancel(id), waits.then_some(value));
                        if let Some(values) = model.get_mut(&due) {
                            values.retain(|other| *other != value);
                        }
                        continue;
                    }
                    Step::Cancel(_) => continue,
                    Step::Advance(distance) => now + distance,
                    Step::AdvanceToDeadline => wheel.next_deadline().map_or(now, |at| at.0.max(now)),
                };
                model.retain(|_, values| !values.is_empty());
                if let (Some(deadline), Some((earliest, _))) = (wheel.next_deadline(), model.first_key_value()) {
                    prop_assert!(deadline.0 <= *earliest.max(&now), "the deadline is late");
                }
                let late = now;
                now = to;
                let mut fired = fire(&mut wheel, now);
                prop_assert!(fired.is_sorted_by_key(|(due, _)| *due.max(&late)));
                fired.sort_unstable();
                let rest = model.split_off(&(now + 1));
                let mut due: Vec<(u64, u64)> = std::mem::replace(&mut model, rest)
                    .into_iter()
                    .flat_map(|(due, values)| values.into_iter().map(move |value| (due, value)))
                    .collect();
                due.sort_unstable();
                prop_assert_eq!(fired, due);
            }
            prop_assert_eq!(wheel.len(), model.values().map(Vec::len).sum::<usize>());
        }
    }
}
