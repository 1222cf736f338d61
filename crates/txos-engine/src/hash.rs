//! Tables by path and name.
//!
//! Names are chosen by others, and some of them may want a table to be slow: so the hash has a secret, two random words
//! for each process. They are in the table itself: a transaction's memory may be mapped by several processes, each of which
//! has drawn words of its own. It takes a multiplication for eight bytes, and is not meant to withstand somebody who can
//! measure single look-ups.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A table that keeps its order, which is that of the insertions: what was seen is looked at again in the order in which it
/// was seen, which for a directory is that in which the kernel has it at hand.
pub(crate) type OrderedMap<K, V> = indexmap::IndexMap<K, V, Seeded>;
/// A table.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, Seeded>;
/// A set.
pub(crate) type Set<K> = std::collections::HashSet<K, Seeded>;

/// What hashes begin with.
#[derive(Clone, Copy, Debug)]
pub struct Seeded {
    start: u64,
    factor: u64,
}

impl Default for Seeded {
    fn default() -> Self {
        static SECRET: OnceLock<Seeded> = OnceLock::new();
        *SECRET.get_or_init(|| {
            let random = RandomState::new();
            // An even factor would lose bits.
            Seeded { start: random.hash_one(0_u8), factor: random.hash_one(1_u8) | 1 }
        })
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folding;

    fn build_hasher(&self) -> Folding {
        Folding { hash: self.start, factor: self.factor }
    }
}

/// A hash that is being made.
#[derive(Clone, Copy, Debug)]
pub struct Folding {
    hash: u64,
    factor: u64,
}

impl Folding {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.hash ^ word) * u128::from(self.factor);
        // The word once more: the two halves of a product are not enough to tell two words apart.
        self.hash = (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(23);
    }
}

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        let product = u128::from(self.hash) * u128::from(self.factor);
        (product as u64) ^ ((product >> 64) as u64)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        // Names of different lengths differ, also where the longer one ends in zeros.
        let rest = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        self.fold(rest ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, n: u8) {
        self.fold(n.into());
    }

    fn write_u16(&mut self, n: u16) {
        self.fold(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.fold(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.fold(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.fold(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of names that look alike are spread over a table, in its lowest bits and in its highest ones.
    #[test]
    fn names_that_look_alike_are_spread() {
        let seed = Seeded::default();
        let hashes: Vec<u64> =
            (0..4096).map(|i| seed.hash_one(format!("/a/dir/f{i:05}").as_bytes())).collect();
        for part in [|h: &u64| h & 0xfff, |h: &u64| h >> 52] {
            let used: std::collections::HashSet<u64> = hashes.iter().map(part).collect();
            // At random, 2,589 of 4,096 places are taken.
            assert!(used.len() > 2400, "{}", used.len());
        }
    }

    #[test]
    fn what_differs_has_another_hash() {
        let seed = Seeded::default();
        let names: [&[u8]; 8] =
            [b"", b"\0", b"\0\0", b"a", b"a\0", b"aaaaaaaa", b"aaaaaaaa\0", b"aaaaaaa"];
        let hashes: std::collections::HashSet<u64> =
            names.iter().map(|n| seed.hash_one(n)).collect();
        assert_eq!(hashes.len(), names.len());
    }
}
