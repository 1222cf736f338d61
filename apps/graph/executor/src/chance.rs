//! Numbers that look random and are the same everywhere for one seed: replicas make the same graph from it.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`; 0 if that is 0.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u32
    }

    /// True in so many of a million.
    pub fn millionths(&mut self, of: u32) -> bool {
        self.below(1_000_000) < of
    }
}
