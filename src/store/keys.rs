//! The memory of identities: which event came first, for how long it counts.
//!
//! Owned by the log thread alone, so looking up and appending are one step without a lock. The newest generation (some
//! 65,000 identities) is in memory and, block by block, in the index. A full one is sealed: sorted blocks in the index
//! and a Bloom filter in memory, 1.5 bytes an identity. A whole generation goes when its youngest identity has
//! expired, or, oldest first, when `keys_bytes_max` is reached.
//!
//! Keys in the tree: generation, then `t` n (block of a growing generation), `b` first identity (block of a sealed
//! one), `f` n (piece of its filter), `z` (it is sealed). Only `z` makes a generation count as sealed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::bloom::Bloom;
use super::index::{Index, IndexFault, Op, Tree};
use super::records::VERSION;
use crate::core::event::Dedup;
use crate::core::ids::{BodyDigest, EventId, Identity, Seq, StoreSalt};
use crate::core::time::{StoreTime, UnixMillis};

/// Bytes of a packed identity with what is known of it.
const ENTRY: usize = 42;
/// Identities in one value: about 1 KiB. With 4 KiB sled held twice the memory and wrote a third more (measured with two
/// million keys: 44 against 22 MiB resident).
const BLOCK: usize = 24;
/// Bytes of one piece of a filter, for the same reason.
const PIECE: usize = 1024;
/// Bytes on disk and in filters that an identity is reckoned at.
pub(super) const COST: u64 = 64;

/// What is remembered of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) seq: Seq,
    pub(super) accepted: StoreTime,
    pub(super) accepted_at: UnixMillis,
    pub(super) digest: BodyDigest,
    pub(super) dedup: Dedup,
}

impl Known {
    pub(super) fn id(&self, salt: StoreSalt) -> EventId {
        EventId::new(self.accepted_at.0, self.seq, salt)
    }
}

/// Six bytes hold 8,900 years of milliseconds and more sequences than an event id can; the top bit of the first is the
/// kind of deduplication.
const SIX: u64 = (1 << 47) - 1;

fn pack(identity: Identity, known: &Known, out: &mut Vec<u8>) {
    let six = |number: u64, out: &mut Vec<u8>| out.extend_from_slice(&number.min(SIX).to_be_bytes()[2..]);
    out.extend(identity.0);
    let at = out.len();
    six(known.seq.0, out);
    if known.dedup == Dedup::Window {
        out[at] |= 0x80;
    }
    six(known.accepted.0, out);
    six(u64::try_from(known.accepted_at.0).unwrap_or(0), out);
    out.extend(known.digest.0);
}

fn unpack(entry: &[u8]) -> Option<(Identity, Known)> {
    let six = |at: usize| {
        let mut eight = [0; 8];
        eight[2..].copy_from_slice(entry.get(at..at + 6)?);
        Some(u64::from_be_bytes(eight))
    };
    let dedup = if entry.get(16)? & 0x80 == 0 { Dedup::Ttl } else { Dedup::Window };
    let known = Known {
        seq: Seq(six(16)? & SIX),
        accepted: StoreTime(six(22)?),
        accepted_at: UnixMillis(six(28)?.cast_signed()),
        digest: BodyDigest(entry.get(34..42)?.try_into().ok()?),
        dedup,
    };
    Some((Identity(entry.get(..16)?.try_into().ok()?), known))
}

fn unpack_block(value: &[u8]) -> Option<impl Iterator<Item = (Identity, Known)> + '_> {
    let (version, entries) = value.split_first()?;
    (*version == VERSION && entries.len() % ENTRY == 0)
        .then(|| entries.chunks_exact(ENTRY).filter_map(unpack))
}

fn key(generation: u64, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = generation.to_be_bytes().to_vec();
    key.push(kind);
    key.extend_from_slice(rest);
    key
}

fn op(key: Vec<u8>, value: Option<Vec<u8>>) -> Op {
    Op { tree: Tree::Identities, key, value }
}

type Map = HashMap<Identity, Known>;

/// A generation in the index.
struct Sealed {
    generation: u64,
    filter: Bloom,
    count: u64,
    newest: StoreTime,
}

/// A full generation on its way into the index.
#[derive(Clone)]
pub(super) struct Sealing {
    generation: u64,
    map: Arc<Map>,
    /// Generations whose growing blocks it replaces.
    tails: Vec<u64>,
}

/// What a checkpoint writes of the identities.
#[derive(Default)]
pub(super) struct KeyJob {
    tails: Vec<Op>,
    sealing: Option<Sealing>,
    dropped: Vec<u64>,
}

/// The memory.
pub(super) struct Keys {
    sealed: Vec<Sealed>,
    sealing: Option<Sealing>,
    current: Map,
    generation: u64,
    /// Generations that have growing blocks in the index which belong to `current`.
    tails: Vec<u64>,
    next_tail: u32,
    unsaved: Vec<(Identity, Known)>,
    /// Part of `unsaved` that the checkpoint on its way writes.
    saving: Vec<(Identity, Known)>,
    dropping: Vec<u64>,
    limits: KeyLimits,
}

/// Bounds of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLimits {
    pub(super) ttl: Duration,
    pub(super) window: Duration,
    pub(super) bytes_max: u64,
    pub(super) generation_keys: usize,
}

impl Keys {
    pub(super) fn new(limits: KeyLimits) -> Self {
        Self {
            sealed: Vec::new(),
            sealing: None,
            current: HashMap::new(),
            generation: 1,
            tails: Vec::new(),
            next_tail: 0,
            unsaved: Vec::new(),
            saving: Vec::new(),
            dropping: Vec::new(),
            limits,
        }
    }

    /// The first event of this identity, if it still counts for an event of this kind.
    pub(super) fn find(
        &self,
        identity: Identity,
        dedup: Dedup,
        now: StoreTime,
        index: impl FnOnce() -> Option<Index>,
    ) -> Option<Known> {
        let memory = match dedup {
            Dedup::Ttl => self.limits.ttl,
            Dedup::Window => self.limits.window,
        };
        let counts = |known: &Known| now.since(known.accepted) <= memory;
        let in_memory =
            self.current.get(&identity).or_else(|| self.sealing.as_ref()?.map.get(&identity)).copied();
        if let Some(known) = in_memory {
            return Some(known).filter(counts);
        }
        let mut maybe = self.sealed.iter().rev().filter(|one| one.filter.may_hold(identity)).peekable();
        maybe.peek()?;
        let index = index()?;
        maybe.find_map(|one| find_sealed(&index, one.generation, identity)).filter(counts)
    }

    pub(super) fn insert(&mut self, identity: Identity, known: Known) {
        self.current.insert(identity, known);
        self.unsaved.push((identity, known));
    }

    /// Every identity, until the visitor says stop.
    pub(super) fn each(&self, index: Option<&Index>, visit: &mut dyn FnMut(Identity, &Known) -> bool) {
        for one in index.into_iter().flat_map(|index| self.sealed.iter().map(move |one| (index, one))) {
            let blocks = one.0.identities().scan_prefix(key(one.1.generation, b'b', &[]));
            for (_, value) in blocks.filter_map(Result::ok) {
                for (identity, known) in unpack_block(&value).into_iter().flatten() {
                    if !visit(identity, &known) {
                        return;
                    }
                }
            }
        }
        let sealing = self.sealing.iter().flat_map(|one| one.map.iter());
        for (identity, known) in sealing.chain(&self.current) {
            if !visit(*identity, known) {
                return;
            }
        }
    }

    /// Forgets events from `from` on: they were never acknowledged.
    pub(super) fn undo_from(&mut self, from: Seq) {
        self.unsaved.retain(|(_, known)| known.seq < from);
        if self.current.values().any(|known| known.seq >= from) {
            self.current.retain(|_, known| known.seq < from);
        }
    }

    pub(super) fn len(&self) -> u64 {
        let sealing = self.sealing.as_ref().map_or(0, |one| one.map.len() as u64);
        self.sealed.iter().map(|one| one.count).sum::<u64>() + sealing + self.current.len() as u64
    }

    /// What the index holds of identities, roughly.
    pub(super) fn bytes(&self) -> u64 {
        self.len() * COST
    }

    /// Whether a generation and more wait for the index: a replay then writes them on the way.
    pub(super) fn is_large(&self) -> bool {
        self.unsaved.len() >= self.limits.generation_keys
    }

    /// Starts a checkpoint's part; gives also whether identities were dropped before their time.
    pub(super) fn job(&mut self, now: StoreTime) -> (KeyJob, bool) {
        let (ttl, window) = (self.limits.ttl, self.limits.window);
        self.dropping
            .extend(self.sealed.iter().filter(|one| now.since(one.newest) > ttl).map(|one| one.generation));
        self.sealed.retain(|one| now.since(one.newest) <= ttl);
        let mut early = false;
        while self.len() * COST > self.limits.bytes_max && !self.sealed.is_empty() {
            self.dropping.push(self.sealed.remove(0).generation);
            early = true;
        }
        if self.sealing.is_none() && self.current.len() >= self.limits.generation_keys {
            let mut map = std::mem::take(&mut self.current);
            map.retain(|_, known| {
                now.since(known.accepted) <= if known.dedup == Dedup::Window { window } else { ttl }
            });
            self.sealing = Some(Sealing {
                generation: self.generation,
                map: Arc::new(map),
                tails: std::mem::take(&mut self.tails),
            });
            self.generation += 1;
            self.next_tail = 0;
            self.unsaved.clear();
            self.saving.clear();
        }
        self.saving.append(&mut self.unsaved);
        let mut tails = Vec::new();
        for block in self.saving.chunks(BLOCK) {
            if self.tails.last() != Some(&self.generation) {
                self.tails.push(self.generation);
            }
            let mut value = vec![VERSION];
            for (identity, known) in block {
                pack(*identity, known, &mut value);
            }
            tails.push(op(key(self.generation, b't', &self.next_tail.to_be_bytes()), Some(value)));
            self.next_tail += 1;
        }
        (KeyJob { tails, sealing: self.sealing.clone(), dropped: self.dropping.clone() }, early)
    }

    /// The checkpoint is in the index.
    pub(super) fn written(&mut self, job: &KeyJob) {
        self.saving.clear();
        self.dropping.retain(|generation| !job.dropped.contains(generation));
        if let Some(done) = &job.sealing {
            self.sealing = None;
            if !done.map.is_empty() {
                self.sealed.push(Sealed {
                    generation: done.generation,
                    filter: Bloom::of(done.map.keys()),
                    count: done.map.len() as u64,
                    newest: done.map.values().map(|known| known.accepted).max().unwrap_or_default(),
                });
            }
        }
    }

    /// Reads what the index remembers; what it cannot read is left out and said.
    pub(super) fn load(&mut self, index: &Index) -> Result<(), IndexFault> {
        let mut generations: Vec<u64> = Vec::new();
        let mut next = 0_u64;
        while let Some((found, _)) = index.identities().get_gt(key(next, 0, &[]))? {
            let generation = generation_of(&found).ok_or(IndexFault::Unreadable("idempotency"))?;
            generations.push(generation);
            next = generation + 1;
        }
        for generation in generations {
            self.generation = self.generation.max(generation + 1);
            match index.identities().get(key(generation, b'z', &[]))? {
                Some(seal) => self.load_sealed(index, generation, &seal)?,
                None => self.load_growing(index, generation)?,
            }
        }
        Ok(())
    }

    fn load_sealed(&mut self, index: &Index, generation: u64, seal: &[u8]) -> Result<(), IndexFault> {
        let unreadable = || IndexFault::Unreadable("idempotency");
        let number = |at: usize| Some(u64::from_be_bytes(seal.get(at..at + 8)?.try_into().ok()?));
        let (count, newest) = number(1).zip(number(9)).ok_or_else(unreadable)?;
        let mut bytes = Vec::new();
        for piece in index.identities().scan_prefix(key(generation, b'f', &[])) {
            bytes.extend_from_slice(&piece?.1);
        }
        let filter = Bloom::from_bytes(&bytes, count).ok_or_else(unreadable)?;
        self.sealed.push(Sealed { generation, filter, count, newest: StoreTime(newest) });
        Ok(())
    }

    fn load_growing(&mut self, index: &Index, generation: u64) -> Result<(), IndexFault> {
        for block in index.identities().scan_prefix(key(generation, b't', &[])) {
            let (_, value) = block?;
            let entries = unpack_block(&value).ok_or(IndexFault::Unreadable("idempotency"))?;
            self.current.extend(entries);
        }
        self.tails.push(generation);
        Ok(())
    }
}

fn generation_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(..8)?.try_into().ok()?))
}

fn find_sealed(index: &Index, generation: u64, identity: Identity) -> Option<Known> {
    let (from, to) = (key(generation, b'b', &[]), key(generation, b'b', &identity.0));
    let (_, value) = index.identities().range(from..=to).next_back()?.ok()?;
    unpack_block(&value)?.find(|(one, _)| *one == identity).map(|(_, known)| known)
}

impl KeyJob {
    /// Changes that go before the checkpoint record.
    pub(super) fn ops(&self, index: &Index) -> Result<Vec<Op>, IndexFault> {
        let mut ops = self.tails.clone();
        for &generation in &self.dropped {
            remove_all(index, &key(generation, 0, &[])[..8], &mut ops)?;
        }
        if let Some(sealing) = &self.sealing {
            sealing.ops(&mut ops);
            // After the seal: until it is there, the growing blocks are the memory.
            for &generation in &sealing.tails {
                let whole = key(generation, b't', &[]);
                let prefix = if generation == sealing.generation { &whole[..] } else { &whole[..8] };
                remove_all(index, prefix, &mut ops)?;
            }
        }
        Ok(ops)
    }
}

fn remove_all(index: &Index, prefix: &[u8], ops: &mut Vec<Op>) -> Result<(), IndexFault> {
    for found in index.identities().scan_prefix(prefix).keys() {
        ops.push(op(found?.to_vec(), None));
    }
    Ok(())
}

impl Sealing {
    fn ops(&self, ops: &mut Vec<Op>) {
        let mut sorted: Vec<(&Identity, &Known)> = self.map.iter().collect();
        sorted.sort_unstable_by_key(|(identity, _)| **identity);
        for block in sorted.chunks(BLOCK) {
            let mut value = vec![VERSION];
            for (identity, known) in block {
                pack(**identity, known, &mut value);
            }
            ops.push(op(key(self.generation, b'b', &block[0].0.0), Some(value)));
        }
        let filter = Bloom::of(self.map.keys()).to_bytes();
        for (number, piece) in filter.chunks(PIECE).enumerate() {
            ops.push(op(key(self.generation, b'f', &(number as u32).to_be_bytes()), Some(piece.to_vec())));
        }
        let newest = self.map.values().map(|known| known.accepted.0).max().unwrap_or(0);
        let mut seal = vec![VERSION];
        seal.extend((self.map.len() as u64).to_be_bytes());
        seal.extend(newest.to_be_bytes());
        ops.push(op(key(self.generation, b'z', &[]), (!self.map.is_empty()).then_some(seal)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_identity_reads_back() {
        let known = Known {
            seq: Seq(123_456_789_012),
            accepted: StoreTime(77),
            accepted_at: UnixMillis(1_793_491_200_123),
            digest: BodyDigest([1, 2, 3, 4, 5, 6, 7, 8]),
            dedup: Dedup::Window,
        };
        let mut bytes = Vec::new();
        pack(Identity([9; 16]), &known, &mut bytes);
        assert_eq!(bytes.len(), ENTRY);
        assert_eq!(unpack(&bytes), Some((Identity([9; 16]), known)));
    }
}
