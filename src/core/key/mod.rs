//! The idempotency key: one identity for each event, made once at acceptance and never again.
//!
//! Two things are kept apart. The **identity** is what deduplication compares: a producer's own key, or what the
//! event says (device, type, id, place, properties). The **wire key** is what receivers see. They differ where an
//! event has no time of its own (two equal posts may be two heartbeats, so the acceptance sequence goes into the
//! wire key too) and under the recipe `article`, which changes the wire key only.
//!
//! **Texts.** Every hashed text is one JSON array that begins with the version and what it is, so no two kinds can
//! meet and no separator can be forged: device `a:b` with type `c` is not device `a` with type `b:c`.
//!
//! ```text
//! ["idem:v2","event",device,type,id,geometry,properties,others]
//! ["idem:v2","producer",device,key]
//! ["idem:v2","sequence",hex of the identity's digest,store salt,sequence]
//! ```
//!
//! `id` keeps its type (`7` is not `"7"`); `geometry` is the article's rounded blob; `properties` and `others` (the
//! feature's foreign members, so that a time kept outside `properties` counts) are canonical JSON
//! without the configured volatile members. `bbox` is left out: it follows from the geometry.
//!
//! **Invariant.** A text, once released, never changes: a new one gets a new version. `tests/it/keys.rs` pins some.

pub mod canonical;
pub mod geometry;
pub mod number;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ids::{BodyDigest, IdempotencyKey, Identity, Seq, StoreSalt};
use super::json::{Scanner, SyntaxError};
use canonical::{Path, push_scalar, push_string, push_value};
use geometry::{NoText, push_article, push_event};

/// Which recipe makes the wire key (identity and deduplication are the same for both).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recipe {
    /// Device, type, id, rounded place, properties: `idem:v2:`.
    #[default]
    Event,
    /// The source article's Python, bit for bit: device, type and rounded place only: `idem:v1:`. Readings of a
    /// sensor that does not move share one key there.
    Article,
}

/// The parts of a feature that go into its identity, as spans of JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Who made it.
    pub device: &'a str,
    /// What it is.
    pub event_type: &'a str,
    /// `id`, where it is a string or a number.
    pub id: Option<&'a str>,
    /// `geometry`, `null` included.
    pub geometry: &'a str,
    /// `properties`, `null` included.
    pub properties: &'a str,
    /// Other members, names with their quotes, in any order.
    pub others: &'a [(&'a str, &'a str)],
}

/// A SHA-256.
pub type Digest32 = [u8; 32];

/// SHA-256 of a text.
pub fn sha256(bytes: &[u8]) -> Digest32 {
    Sha256::digest(bytes).into()
}

/// The text that the recipe `event` hashes.
pub fn event_text(parts: &Parts<'_>, precision: u8, volatile: &[Path<'_>]) -> Result<String, SyntaxError> {
    // The parts once more, and the frame: one allocation for nearly every event.
    let room =
        parts.geometry.len() + parts.properties.len() + parts.device.len() + parts.event_type.len() + 96;
    let mut out = String::with_capacity(room);
    out.push_str("[\"idem:v2\",\"event\",");
    push_string(parts.device, &mut out);
    out.push(',');
    push_string(parts.event_type, &mut out);
    out.push(',');
    match parts.id {
        Some(id) if !names(volatile, "id") => {
            let span = Scanner::new(id).value()?;
            push_scalar(span.kind, span.of(id), &mut out);
        }
        _ => out.push_str("null"),
    }
    out.push(',');
    push_event(parts.geometry, precision, &mut out)?;
    out.push(',');
    if names(volatile, "properties") {
        out.push_str("null");
    } else {
        push_value(&mut Scanner::new(parts.properties), &inside(volatile, "properties"), &mut out)?;
    }
    out.push(',');
    push_others(parts.others, volatile, &mut out)?;
    out.push(']');
    Ok(out)
}

fn push_others(others: &[(&str, &str)], volatile: &[Path<'_>], out: &mut String) -> Result<(), SyntaxError> {
    if others.is_empty() {
        out.push_str("{}");
        return Ok(());
    }
    let mut object = String::from("{");
    for (index, (name, value)) in others.iter().enumerate() {
        if index > 0 {
            object.push(',');
        }
        object.push_str(name);
        object.push(':');
        object.push_str(value);
    }
    object.push('}');
    push_value(&mut Scanner::new(&object), volatile, out)
}

fn names(paths: &[Path<'_>], member: &str) -> bool {
    paths.iter().any(|path| path.len() == 1 && path[0] == member)
}

fn inside<'p>(paths: &[Path<'p>], member: &str) -> Vec<Path<'p>> {
    paths.iter().filter(|path| path.len() > 1 && path[0] == member).map(|path| &path[1..]).collect()
}

/// The article's canonical blob of a geometry.
pub fn article_blob(geometry: &str, precision: u8) -> Result<String, NoText> {
    let mut out = String::with_capacity(geometry.len());
    push_article(geometry, precision, &mut out)?;
    Ok(out)
}

/// The article's key: `idem:v1:` and the SHA-256 of `device:type:blob`.
pub fn article_key(device: &str, event_type: &str, blob: &str) -> IdempotencyKey {
    let mut hash = Sha256::new();
    for part in [device, ":", event_type, ":", blob] {
        hash.update(part.as_bytes());
    }
    spell("idem:v1:", hash.finalize().into())
}

/// The wire key of an identity's digest.
pub fn event_key(digest: Digest32) -> IdempotencyKey {
    spell("idem:v2:", digest)
}

/// The wire key of an event without a time of its own: the acceptance sequence in this store tells equal ones apart.
pub fn with_sequence(digest: Digest32, salt: StoreSalt, seq: Seq) -> IdempotencyKey {
    let mut text = String::with_capacity(128);
    text.push_str("[\"idem:v2\",\"sequence\",\"");
    push_hex(&digest, &mut text);
    text.push_str("\",");
    text.push_str(&salt.0.to_string());
    text.push(',');
    text.push_str(&seq.0.to_string());
    text.push(']');
    event_key(sha256(text.as_bytes()))
}

/// The digest of a producer's own key, which holds for its device only.
pub fn producer_digest(device: &str, key: &str) -> Digest32 {
    let mut text = String::with_capacity(device.len() + key.len() + 40);
    text.push_str("[\"idem:v2\",\"producer\",");
    push_string(device, &mut text);
    text.push(',');
    push_string(key, &mut text);
    text.push(']');
    sha256(text.as_bytes())
}

/// The part of a digest that deduplication compares.
pub fn identity(digest: Digest32) -> Identity {
    let mut part = [0; 16];
    part.copy_from_slice(&digest[..16]);
    Identity(part)
}

/// The digest that tells a repeat from a reused producer key.
pub fn body_digest(body: &[u8]) -> BodyDigest {
    let mut part = [0; 8];
    part.copy_from_slice(&sha256(body)[..8]);
    BodyDigest(part)
}

fn spell(prefix: &str, digest: Digest32) -> IdempotencyKey {
    let mut text = String::with_capacity(prefix.len() + 64);
    text.push_str(prefix);
    push_hex(&digest, &mut text);
    IdempotencyKey(text.into())
}

fn push_hex(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}
