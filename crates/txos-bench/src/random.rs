//! Random numbers that repeat: SplitMix64.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream that differs between seeds.
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        random.next();
        random
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// One below `n`; 0 if there is none.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// `k` different ones below `n`, in random order; all of them if there are no more.
    pub fn pick(&mut self, k: usize, n: u64) -> Vec<u64> {
        let mut seen = std::collections::HashSet::new();
        let k = k.min(usize::try_from(n).unwrap_or(usize::MAX));
        let mut picked = Vec::with_capacity(k);
        while picked.len() < k {
            let one = self.below(n);
            if seen.insert(one) {
                picked.push(one);
            }
        }
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_are_different_and_repeat() {
        let picked = Random::new(1).pick(90, 100);
        assert_eq!(picked, Random::new(1).pick(90, 100));
        assert_ne!(picked, Random::new(2).pick(90, 100));
        let set: std::collections::BTreeSet<_> = picked.iter().collect();
        assert_eq!(set.len(), 90);
        assert!(picked.iter().all(|&n| n < 100));
        assert_eq!(Random::new(1).pick(9, 3).len(), 3);
        assert_eq!(Random::new(1).below(0), 0);
    }
}
