//! What a front end can do with the window.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// It maps beyond the end of a file, so that a file may grow and may end within a page.
    pub(crate) map_beyond_end: bool,
    /// It maps what it is sent open for reading.
    pub(crate) map_read_only: bool,
    /// It adds what it maps to the guest's memory, by ADD_MEM_REG, after it has answered.
    pub(crate) announces: bool,
}

impl Abilities {
    /// Not 0.
    pub(super) fn encode(self) -> u64 {
        let bits = [self.map_beyond_end, self.map_read_only, self.announces];
        bits.iter().fold(1, |word, &bit| word << 1 | u64::from(bit))
    }

    pub(super) fn decode(word: u64) -> Option<Abilities> {
        let bit = |number: u32| word >> number & 1 != 0;
        (word >> 3 == 1).then(|| Abilities {
            map_beyond_end: bit(2),
            map_read_only: bit(1),
            announces: bit(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_recorded_as_a_word() {
        for bits in 0..8 {
            let can = Abilities {
                map_beyond_end: bits & 1 != 0,
                map_read_only: bits & 2 != 0,
                announces: bits & 4 != 0,
            };
            assert_eq!(Abilities::decode(can.encode()), Some(can));
        }
        assert_eq!(Abilities::decode(0), None);
    }
}
