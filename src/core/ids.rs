//! Newtypes for everything that identifies something, so that two bare integers never meet in one signature.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Sequence of an accepted event in this store: from 1, dense, never reused. Storage order and delivery order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

/// Number of an endpoint in this store; never reused, so a renamed or removed endpoint keeps its history.
/// [`EndpointId::UNROUTED`] stands for events that no route wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndpointId(pub u32);

impl EndpointId {
    /// The endpoint of dead letters that no route wanted (class `unrouted`).
    pub const UNROUTED: EndpointId = EndpointId(0);
}

/// Random value made once per store. It goes into record checksums and event ids, so that records and ids of another
/// store (or forged inside a body) are never taken for this store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSalt(pub u64);

/// Public id of an event: a UUIDv7 whose random bits carry the sequence and part of the salt, so that the first
/// event's id can be given again for a duplicate and an id leads straight to its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub Uuid);

/// Sequences fit 44 bits of the id: 1.7e13 events, 500 years at 1,000 a second.
const SEQ_BITS: u32 = 44;

impl EventId {
    /// The id of sequence `seq`, accepted at `accepted_ms` (Unix time) by the store with this salt.
    pub fn new(accepted_ms: i64, seq: Seq, salt: StoreSalt) -> Self {
        let low18 = salt.0 & 0x3ffff;
        let rand_a = (salt.0 >> 18) & 0xfff;
        let rand_b = (low18 << SEQ_BITS) | (seq.0 & ((1 << SEQ_BITS) - 1));
        let millis = accepted_ms.max(0) as u64 & 0xffff_ffff_ffff;
        let high = (millis << 16) | 0x7000 | rand_a;
        let low = (0b10 << 62) | rand_b;
        Self(Uuid::from_u64_pair(high, low))
    }

    /// The sequence inside the id, if it is an id of the store with this salt.
    pub fn seq(self, salt: StoreSalt) -> Option<Seq> {
        let (high, low) = self.0.as_u64_pair();
        let seq = Seq(low & ((1 << SEQ_BITS) - 1));
        let stamp = (high >> 16).cast_signed();
        (Self::new(stamp, seq, salt) == self).then_some(seq)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for EventId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// Name of an endpoint in the config: `[A-Za-z0-9_.-]`, 1 to 64 characters.
    EndpointName
);
text_id!(
    /// The device that made an event, as its header or a configured pointer says; `unknown` otherwise.
    Device
);
text_id!(
    /// Type of an event, as its header or a configured pointer says; `feature` otherwise.
    EventType
);
text_id!(
    /// The `Idempotency-Key` of an event: made once at acceptance, stored, never recomputed.
    IdempotencyKey
);

/// First 16 bytes of the SHA-256 of an event's identity: what deduplication compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; 16]);

/// First 8 bytes of the SHA-256 of a body: tells a repeat from a reused producer key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BodyDigest(pub [u8; 8]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_gives_its_sequence_back_to_its_own_store_only() {
        let salt = StoreSalt(0x1234_5678_9abc_def0);
        for seq in [1, 2, 77_777, (1 << 44) - 1] {
            let id = EventId::new(1_764_547_200_000, Seq(seq), salt);
            assert_eq!(id.seq(salt), Some(Seq(seq)));
            assert_eq!(id.seq(StoreSalt(salt.0 ^ 1)), None);
            assert_eq!(id.0.get_version_num(), 7);
            assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
        }
    }
}
