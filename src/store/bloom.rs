//! A Bloom filter over identities, which are hashes already.

use crate::core::ids::Identity;

/// Bits per identity and probes: one false alarm in 320, so that a filter asks the index in vain but rarely.
const BITS_PER_KEY: u64 = 12;
const PROBES: u64 = 8;

/// The filter.
pub(super) struct Bloom {
    words: Vec<u64>,
}

fn words_for(count: u64) -> usize {
    usize::try_from((count * BITS_PER_KEY).div_ceil(64).max(1)).unwrap_or(1)
}

impl Bloom {
    pub(super) fn of<'a>(identities: impl ExactSizeIterator<Item = &'a Identity>) -> Self {
        let mut words = vec![0; words_for(identities.len() as u64)];
        let bits = words.len() as u64 * 64;
        for identity in identities {
            for bit in probes(*identity, bits) {
                words[(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
        Self { words }
    }

    /// Whether the identity may be among them; a `false` is certain.
    pub(super) fn may_hold(&self, identity: Identity) -> bool {
        let bits = self.words.len() as u64 * 64;
        probes(identity, bits).all(|bit| self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads it back; `None` if the size is not that of `count` identities.
    pub(super) fn from_bytes(bytes: &[u8], count: u64) -> Option<Self> {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|eight| u64::from_le_bytes(eight.try_into().unwrap_or_default()))
            .collect();
        (words.len() == words_for(count)).then_some(Self { words })
    }
}

fn probes(identity: Identity, bits: u64) -> impl Iterator<Item = u64> {
    let half = |at: usize| u64::from_le_bytes(identity.0[at..at + 8].try_into().unwrap_or_default());
    let (first, step) = (half(0), half(8) | 1);
    (0..PROBES).map(move |probe| first.wrapping_add(step.wrapping_mul(probe)) % bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_it_was_made_of_and_little_else() {
        let mix = |number: u64| {
            let half = |salt: u64| {
                (number ^ salt)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(31)
                    .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            };
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&half(1).to_le_bytes());
            bytes[8..].copy_from_slice(&half(2).to_le_bytes());
            Identity(bytes)
        };
        let inside: Vec<Identity> = (0..10_000).map(mix).collect();
        let filter = Bloom::of(inside.iter());
        let filter = Bloom::from_bytes(&filter.to_bytes(), 10_000).unwrap();
        assert!(inside.iter().all(|one| filter.may_hold(*one)));
        let alarms = (10_000..110_000).filter(|&number| filter.may_hold(mix(number))).count();
        assert!(alarms < 1_000, "{alarms} false alarms in 100,000");
    }
}
