//! The edges that a vertical line meets, from the bottom up: a sorted list cut into chunks.
//!
//! An insertion moves at most one chunk's entries, so the list costs little more than a plain vector while it is short
//! and stays near the square root of its length when it is long.

/// Entries of a chunk at which it is cut in two: moving half of that (2.5 KiB of edges) costs about as much as a few
/// comparisons of edges. Measured: 96 to 512 differ by less than the noise.
const CHUNK_MAX: usize = 128;

/// A sorted sequence. The order itself is the caller's.
pub(super) struct Status<T> {
    chunks: Vec<Vec<T>>,
}

/// A place between entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    chunk: usize,
    at: usize,
}

impl<T: Copy> Status<T> {
    pub(super) fn new() -> Self {
        Status { chunks: Vec::new() }
    }

    /// The place of the first entry for which `below` is false.
    pub(super) fn seek(&self, mut below: impl FnMut(&T) -> bool) -> Place {
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_some_and(&mut below));
        let at = self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(&mut below));
        Place { chunk, at }
    }

    /// The entry at a place.
    pub(super) fn get(&self, place: Place) -> Option<T> {
        self.chunks.get(place.chunk)?.get(place.at).copied()
    }

    /// The place after.
    pub(super) fn after(&self, place: Place) -> Place {
        match self.chunks.get(place.chunk) {
            Some(chunk) if place.at + 1 >= chunk.len() => Place { chunk: place.chunk + 1, at: 0 },
            _ => Place { chunk: place.chunk, at: place.at + 1 },
        }
    }

    /// The entry before a place.
    pub(super) fn before(&self, place: Place) -> Option<T> {
        if place.at > 0 {
            return self.chunks.get(place.chunk)?.get(place.at - 1).copied();
        }
        self.chunks.get(place.chunk.checked_sub(1)?)?.last().copied()
    }

    /// Puts `with` in place of the `count` entries from `place` on.
    pub(super) fn splice(&mut self, place: Place, count: usize, with: &[T]) {
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            return self.append(with);
        };
        let here = count.min(chunk.len() - place.at);
        if here == with.len() {
            chunk[place.at..place.at + here].copy_from_slice(with);
        } else {
            chunk.splice(place.at..place.at + here, with.iter().copied());
        }
        if chunk.len() > CHUNK_MAX {
            let tail = chunk.split_off(chunk.len() / 2);
            self.chunks.insert(place.chunk + 1, tail);
            return self.remove(place.chunk + 2, count - here);
        }
        let emptied = chunk.is_empty();
        self.remove(place.chunk + 1, count - here);
        if emptied {
            self.chunks.remove(place.chunk);
        }
    }

    fn append(&mut self, with: &[T]) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() + with.len() <= CHUNK_MAX => chunk.extend_from_slice(with),
            _ if with.is_empty() => {}
            _ => self.chunks.push(with.to_vec()),
        }
    }

    /// Removes entries from the front of a chunk and those after it.
    fn remove(&mut self, chunk: usize, mut count: usize) {
        while count > 0 {
            let Some(entries) = self.chunks.get_mut(chunk) else { return };
            let here = count.min(entries.len());
            entries.drain(..here);
            count -= here;
            if entries.is_empty() {
                self.chunks.remove(chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_one_sorted_vector() {
        let (mut status, mut model) = (Status::new(), Vec::<u32>::new());
        let mut state = 7_u64;
        for round in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (state >> 40) as u32;
            let place = status.seek(|entry| *entry < key);
            let at = model.partition_point(|entry| *entry < key);
            let growing = (round / 4_000).is_multiple_of(2);
            let count = (state >> 33) as usize % if growing { 2 } else { 900 };
            let with: Vec<u32> = if growing { vec![key, key] } else { vec![] };
            let count = count.min(model.len() - at);
            model.splice(at..at + count, with.iter().copied());
            status.splice(place, count, &with);
            if round % 500 == 0 {
                assert_eq!(status.chunks.concat(), model);
                assert!(status.chunks.iter().all(|chunk| !chunk.is_empty()));
            }
            let place = status.seek(|entry| *entry < key);
            let at = model.partition_point(|entry| *entry < key);
            assert_eq!(status.get(place), model.get(at).copied());
            assert_eq!(status.before(place), at.checked_sub(1).map(|at| model[at]));
            if status.get(place).is_some() {
                assert_eq!(status.get(status.after(place)), model.get(at + 1).copied());
            }
        }
    }
}
