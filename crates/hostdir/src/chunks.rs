//! Values by index, in chunks of doubling size that are never moved or freed: readers take no lock.

use std::ops::{Deref, Range};
use std::sync::OnceLock;

/// Chunk `k` is a slice of `FIRST << k` values, on the heap or in shared memory.
pub(crate) struct Chunks<C, const FIRST: u32, const COUNT: usize>([OnceLock<C>; COUNT]);

impl<T, C: Deref<Target = [T]>, const FIRST: u32, const COUNT: usize> Chunks<C, FIRST, COUNT> {
    pub(crate) const fn new() -> Self {
        Chunks([const { OnceLock::new() }; COUNT])
    }

    /// How many values `chunks` chunks have.
    pub(crate) const fn values(chunks: usize) -> u64 {
        ((FIRST as u64) << chunks) - FIRST as u64
    }

    /// The chunk of an index, and the place in it.
    #[inline]
    fn place(index: u32) -> (usize, usize) {
        let chunk = (u64::from(index) / u64::from(FIRST) + 1).ilog2() as usize;
        (chunk, (u64::from(index) - Self::values(chunk)) as usize)
    }

    /// How many values the chunk of an index has.
    pub(crate) fn length_at(index: u32) -> u64 {
        u64::from(FIRST) << Self::place(index).0
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, offset) = Self::place(index);
        self.0.get(chunk)?.get()?.get(offset)
    }

    /// As [`get`](Self::get), with a chunk that `make` makes for these indices if there is none. Of two that are made
    /// at once, one is dropped.
    pub(crate) fn get_or_make(
        &self,
        index: u32,
        make: impl FnOnce(usize, Range<u64>) -> Option<C>,
    ) -> Option<&T> {
        let (chunk, offset) = Self::place(index);
        let place = self.0.get(chunk)?;
        if place.get().is_none() {
            let made = make(chunk, Self::values(chunk)..Self::values(chunk + 1))?;
            let _ = place.set(made);
        }
        place.get()?.get(offset)
    }

    /// All values that there are, with their indices.
    pub(crate) fn iter<'a>(&'a self) -> impl Iterator<Item = (u32, &'a T)>
    where
        T: 'a,
    {
        let chunks = (0..).zip(&self.0);
        chunks.flat_map(|(k, chunk)| {
            let values = chunk.get().into_iter().flat_map(|values| values.iter());
            (Self::values(k) as u32..).zip(values)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_indices() {
        type Some = Chunks<Box<[()]>, 64, 27>;
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(Some::place(index), expected, "index {index}");
            expected.1 += 1;
            if expected.1 as u64 == Some::length_at(index) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(Some::values(27) > u64::from(u32::MAX));
        assert!(Some::place(u32::MAX).0 < 27);
    }
}
