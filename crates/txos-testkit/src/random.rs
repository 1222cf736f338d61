//! Random numbers that a seed repeats (SplitMix64).

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// One of several.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).expect("a small number")]
    }
}

/// A seed for a run: `$TXOS_TEST_SEED`, or in a long mode a fresh one. All other runs have the same, so that
/// what they find is found again.
///
/// # Panics
/// If the variable is not a number.
pub fn seed() -> u64 {
    if let Ok(text) = std::env::var("TXOS_TEST_SEED") {
        return text.parse().expect("TXOS_TEST_SEED is a number");
    }
    if std::env::var_os("TXOS_TEST_LONG").is_none_or(|modes| modes.is_empty()) {
        return 2009;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.as_nanos() as u64)
}
