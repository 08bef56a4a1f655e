//! A compressed set of sequences: what is pending (or dead) at one endpoint.
//!
//! Sequences are dense and end roughly in order, so the set is kept in chunks of 1,024: a bitmap of 128 bytes, or a
//! short sorted list where few are left. A million pending events are a thousand chunks, about 200 KB of memory and
//! as many values of at most 130 bytes in the index. It knows nothing of events; it only counts exactly.

use std::collections::BTreeMap;

use crate::core::ids::Seq;

/// Sequences per chunk: one index value stays far below the 4 KiB that sled keeps inline.
pub(super) const CHUNK: u64 = 1024;
const WORDS: usize = (CHUNK / 64) as usize;
/// Longest list before a bitmap is smaller.
const FEW_MAX: usize = 48;
/// Format of a stored chunk.
const VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq)]
enum Chunk {
    Few(Vec<u16>),
    Many(Box<[u64; WORDS]>, u16),
}

impl Chunk {
    fn len(&self) -> usize {
        match self {
            Chunk::Few(list) => list.len(),
            Chunk::Many(_, len) => usize::from(*len),
        }
    }

    fn contains(&self, at: u16) -> bool {
        match self {
            Chunk::Few(list) => list.binary_search(&at).is_ok(),
            Chunk::Many(words, _) => words[usize::from(at / 64)] >> (at % 64) & 1 == 1,
        }
    }

    fn insert(&mut self, at: u16) -> bool {
        match self {
            Chunk::Few(list) => match list.binary_search(&at) {
                Ok(_) => false,
                Err(place) if list.len() < FEW_MAX => {
                    list.insert(place, at);
                    true
                }
                Err(_) => {
                    let mut words = Box::new([0; WORDS]);
                    for &one in list.iter().chain([&at]) {
                        words[usize::from(one / 64)] |= 1 << (one % 64);
                    }
                    *self = Chunk::Many(words, list.len() as u16 + 1);
                    true
                }
            },
            Chunk::Many(words, len) => {
                let word = &mut words[usize::from(at / 64)];
                let new = *word >> (at % 64) & 1 == 0;
                *word |= 1 << (at % 64);
                *len += u16::from(new);
                new
            }
        }
    }

    fn remove(&mut self, at: u16) -> bool {
        match self {
            Chunk::Few(list) => list.binary_search(&at).is_ok_and(|place| {
                list.remove(place);
                true
            }),
            Chunk::Many(words, len) => {
                let word = &mut words[usize::from(at / 64)];
                let had = *word >> (at % 64) & 1 == 1;
                *word &= !(1 << (at % 64));
                *len -= u16::from(had);
                if had && usize::from(*len) <= FEW_MAX / 2 {
                    *self = Chunk::Few(self.iter().collect());
                }
                had
            }
        }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = u16> + '_> {
        match self {
            Chunk::Few(list) => Box::new(list.iter().copied()),
            Chunk::Many(words, _) => Box::new(words.iter().enumerate().flat_map(|(index, &word)| {
                let mut left = word;
                std::iter::from_fn(move || {
                    (left != 0).then(|| {
                        let bit = left.trailing_zeros() as u16;
                        left &= left - 1;
                        index as u16 * 64 + bit
                    })
                })
            })),
        }
    }

    /// Smallest member at or after `from`.
    fn at_or_after(&self, from: u16) -> Option<u16> {
        match self {
            Chunk::Few(list) => list.get(list.partition_point(|&one| one < from)).copied(),
            Chunk::Many(words, _) => {
                let first = usize::from(from / 64);
                (first..WORDS).find_map(|index| {
                    let mask = if index == first { u64::MAX << (from % 64) } else { u64::MAX };
                    let word = words[index] & mask;
                    (word != 0).then(|| index as u16 * 64 + word.trailing_zeros() as u16)
                })
            }
        }
    }
}

/// The set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SeqSet {
    chunks: BTreeMap<u64, Chunk>,
    len: u64,
}

fn split(seq: Seq) -> (u64, u16) {
    (seq.0 / CHUNK, (seq.0 % CHUNK) as u16)
}

impl SeqSet {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        let (chunk, at) = split(seq);
        self.chunks.get(&chunk).is_some_and(|chunk| chunk.contains(at))
    }

    /// Adds; says whether it was new.
    pub(super) fn insert(&mut self, seq: Seq) -> bool {
        let (chunk, at) = split(seq);
        let new = self.chunks.entry(chunk).or_insert_with(|| Chunk::Few(Vec::new())).insert(at);
        self.len += u64::from(new);
        new
    }

    /// Takes out; says whether it was there.
    pub(super) fn remove(&mut self, seq: Seq) -> bool {
        let (key, at) = split(seq);
        let Some(chunk) = self.chunks.get_mut(&key) else { return false };
        let had = chunk.remove(at);
        if chunk.len() == 0 {
            self.chunks.remove(&key);
        }
        self.len -= u64::from(had);
        had
    }

    /// Smallest member at or after `from`.
    pub(super) fn at_or_after(&self, from: Seq) -> Option<Seq> {
        let (first, at) = split(from);
        self.chunks.range(first..).find_map(|(&key, chunk)| {
            let found = chunk.at_or_after(if key == first { at } else { 0 })?;
            Some(Seq(key * CHUNK + u64::from(found)))
        })
    }

    pub(super) fn first(&self) -> Option<Seq> {
        self.at_or_after(Seq(0))
    }

    /// Members from `from` on, in order.
    pub(super) fn iter_from(&self, from: Seq) -> impl Iterator<Item = Seq> + '_ {
        let (first, at) = split(from);
        self.chunks.range(first..).flat_map(move |(&key, chunk)| {
            let skip = if key == first { at } else { 0 };
            chunk.iter().filter(move |&one| one >= skip).map(move |one| Seq(key * CHUNK + u64::from(one)))
        })
    }

    /// Members up to and with `to`, largest first. Reads one chunk at a time.
    pub(super) fn iter_down_from(&self, to: Seq) -> impl Iterator<Item = Seq> + '_ {
        let (last, at) = split(to);
        self.chunks.range(..=last).rev().flat_map(move |(&key, chunk)| {
            let end = if key == last { at } else { u16::MAX };
            let members: Vec<u16> = chunk.iter().filter(|&one| one <= end).collect();
            members.into_iter().rev().map(move |one| Seq(key * CHUNK + u64::from(one)))
        })
    }

    /// Members in `from..to`, in order.
    pub(super) fn range(&self, from: Seq, to: Seq) -> impl Iterator<Item = Seq> + '_ {
        self.iter_from(from).take_while(move |&seq| seq < to)
    }

    #[cfg(test)]
    pub(super) fn chunks(&self) -> impl Iterator<Item = u64> + '_ {
        self.chunks.keys().copied()
    }

    pub(super) fn chunk_of(seq: Seq) -> u64 {
        seq.0 / CHUNK
    }

    /// A chunk as it is stored; `None` when it is empty.
    pub(super) fn chunk_bytes(&self, chunk: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![VERSION];
        match self.chunks.get(&chunk)? {
            Chunk::Few(list) => {
                bytes.push(0);
                for one in list {
                    bytes.extend(one.to_le_bytes());
                }
            }
            Chunk::Many(words, _) => {
                bytes.push(1);
                for word in words.iter() {
                    bytes.extend(word.to_le_bytes());
                }
            }
        }
        Some(bytes)
    }

    /// Adds a stored chunk; `None` if the bytes are not one.
    pub(super) fn load_chunk(&mut self, chunk: u64, bytes: &[u8]) -> Option<()> {
        let (head, rest) = bytes.split_at_checked(2)?;
        match head {
            [VERSION, 0] => {
                for pair in rest.chunks_exact(2) {
                    let at = u16::from_le_bytes([pair[0], pair[1]]);
                    if u64::from(at) >= CHUNK {
                        return None;
                    }
                    self.insert(Seq(chunk * CHUNK + u64::from(at)));
                }
                Some(())
            }
            [VERSION, 1] if rest.len() == WORDS * 8 => {
                let mut words = Box::new([0; WORDS]);
                let mut len = 0;
                for (word, eight) in words.iter_mut().zip(rest.chunks_exact(8)) {
                    *word = u64::from_le_bytes(eight.try_into().ok()?);
                    len += word.count_ones() as u16;
                }
                if len > 0 {
                    self.len += u64::from(len);
                    self.chunks.insert(chunk, Chunk::Many(words, len));
                }
                Some(())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_sorted_set_and_survives_its_own_bytes(
            ops in proptest::collection::vec((any::<bool>(), 0u64..4096), 0..3000),
            from in 0u64..4100,
        ) {
            let (mut set, mut model) = (SeqSet::default(), BTreeSet::new());
            for (add, seq) in ops {
                if add {
                    prop_assert_eq!(set.insert(Seq(seq)), model.insert(seq));
                } else {
                    prop_assert_eq!(set.remove(Seq(seq)), model.remove(&seq));
                }
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            let listed: Vec<u64> = set.iter_from(Seq(from)).map(|seq| seq.0).collect();
            prop_assert_eq!(listed, model.range(from..).copied().collect::<Vec<_>>());
            let listed: Vec<u64> = set.iter_down_from(Seq(from)).map(|seq| seq.0).collect();
            prop_assert_eq!(listed, model.range(..=from).rev().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.at_or_after(Seq(from)).map(|seq| seq.0), model.range(from..).next().copied());
            let mut copy = SeqSet::default();
            for chunk in set.chunks() {
                copy.load_chunk(chunk, &set.chunk_bytes(chunk).unwrap()).unwrap();
            }
            prop_assert_eq!(copy.len(), set.len());
            prop_assert!(copy.iter_from(Seq(0)).eq(set.iter_from(Seq(0))));
        }
    }
}
