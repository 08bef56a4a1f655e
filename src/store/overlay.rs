//! What has changed since the last checkpoint: the newest word on out-of-line values, and which parts of the sets
//! must be written again.
//!
//! Two layers: changes since the snapshot that is being written to the index, and that snapshot. A look-up asks them
//! in this order, then the index. If the write fails, the snapshot is merged back and written with the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::records::{Letter, Slip};
use super::seqset::SeqSet;
use super::state::Place;
use crate::core::ids::{EndpointId, Seq};

/// A changed value; `None` is a removal.
#[derive(Clone, Debug)]
pub(super) struct Change<T> {
    pub(super) value: Option<Arc<T>>,
    /// Nothing in the index or in an older layer has this key, so taking it out again leaves no trace.
    fresh: bool,
}

/// One layer of changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    pub(super) pending: BTreeSet<(EndpointId, u64)>,
    pub(super) dead: BTreeSet<(EndpointId, u64)>,
    pub(super) slips: BTreeMap<(EndpointId, Seq), Change<Slip>>,
    pub(super) letters: BTreeMap<(Seq, EndpointId), Change<Letter>>,
}

impl Layer {
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.dead.len() + self.slips.len() + self.letters.len()
    }
}

/// Changes not yet in the index.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    pub(super) newest: Layer,
    pub(super) writing: Option<Layer>,
    /// Events copied to the tail since the last snapshot.
    pub(super) moved: Vec<(Seq, Place)>,
    /// During recovery the index may hold parts of a checkpoint that was cut off, so no key counts as fresh.
    pub(super) recovering: bool,
}

impl Overlay {
    pub(super) fn len(&self) -> usize {
        self.newest.len() + self.moved.len()
    }

    pub(super) fn touch_pending(&mut self, id: EndpointId, seq: Seq) {
        self.newest.pending.insert((id, SeqSet::chunk_of(seq)));
    }

    pub(super) fn touch_dead(&mut self, id: EndpointId, seq: Seq) {
        self.newest.dead.insert((id, SeqSet::chunk_of(seq)));
    }

    pub(super) fn put_slip(&mut self, id: EndpointId, seq: Seq, slip: Arc<Slip>, fresh: bool) {
        let older = self.writing.as_ref().is_some_and(|layer| layer.slips.contains_key(&(id, seq)));
        put(&mut self.newest.slips, (id, seq), slip, fresh && !older && !self.recovering);
    }

    pub(super) fn put_letter(&mut self, seq: Seq, id: EndpointId, letter: Arc<Letter>, fresh: bool) {
        let older = self.writing.as_ref().is_some_and(|layer| layer.letters.contains_key(&(seq, id)));
        put(&mut self.newest.letters, (seq, id), letter, fresh && !older && !self.recovering);
    }

    pub(super) fn drop_slip(&mut self, id: EndpointId, seq: Seq) {
        drop_key(&mut self.newest.slips, (id, seq));
    }

    pub(super) fn drop_letter(&mut self, seq: Seq, id: EndpointId) {
        drop_key(&mut self.newest.letters, (seq, id));
    }

    /// The newest word on a slip; `None` if only the index can tell.
    #[expect(clippy::option_option, reason = "unknown here, known to be gone, known")]
    pub(super) fn slip(&self, id: EndpointId, seq: Seq) -> Option<Option<Arc<Slip>>> {
        let layers = [Some(&self.newest), self.writing.as_ref()];
        layers
            .into_iter()
            .flatten()
            .find_map(|layer| layer.slips.get(&(id, seq)))
            .map(|one| one.value.clone())
    }

    /// The newest word on a letter; `None` if only the index can tell.
    #[expect(clippy::option_option, reason = "unknown here, known to be gone, known")]
    pub(super) fn letter(&self, seq: Seq, id: EndpointId) -> Option<Option<Arc<Letter>>> {
        let layers = [Some(&self.newest), self.writing.as_ref()];
        layers
            .into_iter()
            .flatten()
            .find_map(|layer| layer.letters.get(&(seq, id)))
            .map(|one| one.value.clone())
    }

    /// Starts a snapshot. The caller copies what it needs of it; look-ups still see it until [`Overlay::written`].
    pub(super) fn snapshot(&mut self) -> (&Layer, Vec<(Seq, Place)>) {
        debug_assert!(self.writing.is_none(), "one checkpoint at a time");
        (self.writing.insert(std::mem::take(&mut self.newest)), std::mem::take(&mut self.moved))
    }

    /// The snapshot is in the index.
    pub(super) fn written(&mut self) {
        self.writing = None;
    }

    /// The snapshot did not get into the index (or only in part): it goes with the next one.
    pub(super) fn not_written(&mut self, moved: Vec<(Seq, Place)>) {
        let Some(old) = self.writing.take() else { return };
        self.newest.pending.extend(old.pending);
        self.newest.dead.extend(old.dead);
        // Part of it may be in the index, so a removal must be written.
        for (key, change) in old.slips {
            self.newest.slips.entry(key).or_insert(Change { fresh: false, ..change });
        }
        for (key, change) in old.letters {
            self.newest.letters.entry(key).or_insert(Change { fresh: false, ..change });
        }
        let newer = std::mem::replace(&mut self.moved, moved);
        self.moved.extend(newer);
    }
}

fn put<K: Ord, T>(map: &mut BTreeMap<K, Change<T>>, key: K, value: Arc<T>, fresh: bool) {
    match map.get_mut(&key) {
        Some(change) => change.value = Some(value),
        None => {
            map.insert(key, Change { value: Some(value), fresh });
        }
    }
}

fn drop_key<K: Ord, T>(map: &mut BTreeMap<K, Change<T>>, key: K) {
    if map.get(&key).is_some_and(|change| change.fresh) {
        map.remove(&key);
    } else {
        map.insert(key, Change { value: None, fresh: false });
    }
}
