//! What a slot's transaction holds, facet by facet: a Bloom filter beside its slot.
//!
//! A record says that a slot holds *some* facet of that record. The list tells whether it is the facet
//! somebody wants, or another one whose hash ends alike. What it says sways whether somebody is
//! taken out of a soft word at most ([`super::word`]), which is safe whatever it says: a facet that it
//! seems to have costs a wait, and one that it seems not to have costs early notice.

use super::layout::LIST_LOG2;
use super::sync::{Note64, Relaxed};

/// Words of a list.
const WORDS: usize = 1 << (LIST_LOG2 - 6);

/// Written by the slot's owner only.
#[derive(Debug)]
#[repr(C)]
pub(super) struct List {
    words: [Note64; WORDS],
}

/// The three bits of a hash. Hashes with one record have their low bits in common; those are not
/// used for two of the bits.
fn places(hash: u64) -> [(usize, u64); 3] {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [hash >> 20, hash >> 39, mixed >> (64 - LIST_LOG2)].map(|bits| {
        let bit = bits & ((1 << LIST_LOG2) - 1);
        ((bit >> 6) as usize, 1 << (bit & 63))
    })
}

impl List {
    /// Forgets all.
    pub fn clear(&self) {
        for word in &self.words {
            word.store(0, Relaxed);
        }
    }

    /// Adds a facet.
    pub fn add(&self, hash: u64) {
        for (at, bit) in places(hash) {
            if let Some(word) = self.words.get(at) {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    /// Whether a facet was added; now and then one that was not seems to be.
    pub fn has(&self, hash: u64) -> bool {
        places(hash)
            .into_iter()
            .all(|(at, bit)| self.words.get(at).is_some_and(|word| word.load(Relaxed) & bit != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes as they are: the low 20 bits say the record.
    fn hash(n: u64) -> u64 {
        crate::realm::Facet::Attributes(crate::object::FileId { dev: 1, ino: n })
            .hash(crate::realm::Seed([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]))
    }

    #[test]
    fn what_was_added_is_there_and_hardly_anything_else() {
        let list = List { words: std::array::from_fn(|_| Note64::new(0)) };
        for n in 0..10_000 {
            list.add(hash(n));
        }
        assert!((0..10_000).all(|n| list.has(hash(n))));
        let wrong = (10_000..1_010_000).filter(|&n| list.has(hash(n))).count();
        // (30,000 / 2^19)^3 = 0.00019 of a million.
        assert!(wrong < 400, "{wrong} of a million");
        list.clear();
        assert!(!(0..10_000).any(|n| list.has(hash(n))));
    }
}
