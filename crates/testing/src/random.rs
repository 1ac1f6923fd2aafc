//! Reproducible pseudo-random numbers.

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// True with a probability of 1 / `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// An element of a non-empty slice.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// So many bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.number().to_ne_bytes());
        words.take(length).collect()
    }
}
