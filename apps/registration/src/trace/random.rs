//! The generator's random numbers. They are integers, so that a seed gives the same trace on every platform.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
///
/// The generator is implemented here because libraries keep their streams only within a version, and a seed must name the same trace forever. Not for secrets.
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `end` - 1; 0 if `end` is 0. The bias of `end` / 2⁶⁴ does not matter here.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        let scaled = u128::from(self.next()) * u128::from(end);
        u32::try_from(scaled >> 64).expect("a product of a 64-bit and a 32-bit number has at most 96 bits")
    }

    /// Returns a number from `first` to `last`, inclusive; `first` if `last` is smaller.
    pub(super) fn between(&mut self, first: u32, last: u32) -> u32 {
        first + self.below(last.saturating_sub(first).saturating_add(1))
    }

    /// True once in `times` on average.
    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }

    /// Returns an index into a list of `length` elements; 0 if it is empty.
    pub(super) fn index(&mut self, length: usize) -> usize {
        self.below(u32::try_from(length).unwrap_or(u32::MAX)) as usize
    }

    /// Shuffles the elements uniformly (Fisher-Yates).
    pub(super) fn shuffle<T>(&mut self, elements: &mut [T]) {
        for last in (1..elements.len()).rev() {
            elements.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_splitmix64() {
        let mut random = Random::seeded(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut random = Random::seeded(1);
        let drawn: Vec<u32> = (0..1_000).map(|_| random.between(3, 7)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&7)));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(9, 2), 9);
    }

    #[test]
    fn a_shuffle_keeps_every_element() {
        let mut elements: Vec<u32> = (0..100).collect();
        Random::seeded(1).shuffle(&mut elements);
        assert_ne!(elements, (0..100).collect::<Vec<_>>());
        elements.sort_unstable();
        assert_eq!(elements, (0..100).collect::<Vec<_>>());
    }
}
