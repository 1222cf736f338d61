//! The ownership record ("orec"): one 64-bit word that says who holds a facet, and how.
//!
//! ```text
//!  63 62 61 60 59                                             0
//! ┌─────┬─────┬────────────────────────────────────────────────┐
//! │  0  │mode │ holders: bit n is the transaction in slot n     │
//! └─────┴─────┴────────────────────────────────────────────────┘
//! mode: 0 read (any number of holders) · 1 insert (any number) · 2 write (exactly one)
//! ```
//!
//! # Invariants
//!
//! - A word without holders is free, whatever its mode bits say: so releasing is one `fetch_and`.
//! - Readers commute with readers, inserters with inserters; everything else excludes each other.
//! - All holders of a word hold it in the word's mode. Who holds it in one mode and needs another
//!   needs it alone, as a writer (inserting after listing *upgrades*).

use super::SLOTS;

/// How a facet is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is depended on.
    Read,
    /// It is changed in a way that commutes with others of the same kind: a name is added to a
    /// directory, a page of a file is changed.
    Insert,
    /// It is changed.
    Write,
}

/// Shift of the mode.
const MODE_SHIFT: u32 = 60;
/// The bits of all holders.
pub(super) const HOLDERS: u64 = (1 << SLOTS) - 1;

/// An ownership record's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub u64);

/// What a request for a facet meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// It is held already, in a mode that suffices.
    Held,
    /// It can be had by making the word this.
    Take(Word),
    /// These holders are in the way.
    Blocked(u64),
}

impl Word {
    fn mode(self) -> Access {
        match self.0 >> MODE_SHIFT & 3 {
            0 => Access::Read,
            1 => Access::Insert,
            _ => Access::Write,
        }
    }

    fn of(holders: u64, mode: Access) -> Word {
        let mode = match mode {
            Access::Read => 0,
            Access::Insert => 1,
            Access::Write => 2,
        };
        Word(holders & HOLDERS | mode << MODE_SHIFT)
    }

    /// The holders' bits.
    pub fn holders(self) -> u64 {
        self.0 & HOLDERS
    }

    /// What the transaction with the bit `me` meets when it wants the facet.
    #[inline]
    pub fn request(self, me: u64, access: Access) -> Request {
        let others = self.holders() & !me;
        if self.holders() & me == 0 {
            return match (self.mode(), access) {
                _ if others == 0 => Request::Take(Word::of(me, access)),
                (Access::Read, Access::Read) | (Access::Insert, Access::Insert) => {
                    Request::Take(Word(self.0 | me))
                }
                _ => Request::Blocked(others),
            };
        }
        match (self.mode(), access) {
            (Access::Write, _)
            | (Access::Read, Access::Read)
            | (Access::Insert, Access::Insert) => Request::Held,
            _ if others == 0 => Request::Take(Word::of(me, Access::Write)),
            _ => Request::Blocked(others),
        }
    }

    /// The word once everybody else in it is out of the race.
    pub fn seized(self, me: u64, access: Access) -> Word {
        // Held in another mode before: both are needed now.
        let mode = if self.holders() & me == 0 { access } else { Access::Write };
        Word::of(me, mode)
    }

    /// Whether a call that touches the facet without holding it would disturb somebody.
    #[inline]
    pub fn is_in_the_way_of(self, access: Access) -> bool {
        self.holders() != 0
            && !matches!(
                (self.mode(), access),
                (Access::Read, Access::Read) | (Access::Insert, Access::Insert)
            )
    }
}

/// The numbers of the bits that are set.
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(lowest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Insert, Read, Write};
    use Request::{Blocked, Held, Take};

    const ME: u64 = 1;
    const A: u64 = 2;
    const B: u64 = 4;

    #[test]
    fn every_combination() {
        let w = Word::of;
        let table = [
            (w(0, Read), Read, Take(w(ME, Read))),
            (w(0, Read), Insert, Take(w(ME, Insert))),
            (w(0, Read), Write, Take(w(ME, Write))),
            // Left behind by a release: the mode of a free word means nothing.
            (w(0, Write), Read, Take(w(ME, Read))),
            (w(0, Insert), Write, Take(w(ME, Write))),
            (w(A, Read), Read, Take(w(ME | A, Read))),
            (w(A, Read), Insert, Blocked(A)),
            (w(A | B, Read), Write, Blocked(A | B)),
            (w(A, Insert), Read, Blocked(A)),
            (w(A, Insert), Insert, Take(w(ME | A, Insert))),
            (w(A, Insert), Write, Blocked(A)),
            (w(A, Write), Read, Blocked(A)),
            (w(A, Write), Insert, Blocked(A)),
            (w(A, Write), Write, Blocked(A)),
            (w(ME, Read), Read, Held),
            (w(ME, Read), Insert, Take(w(ME, Write))),
            (w(ME, Read), Write, Take(w(ME, Write))),
            (w(ME, Insert), Insert, Held),
            (w(ME, Insert), Read, Take(w(ME, Write))),
            (w(ME, Insert), Write, Take(w(ME, Write))),
            (w(ME, Write), Read, Held),
            (w(ME, Write), Insert, Held),
            (w(ME, Write), Write, Held),
            (w(ME | A, Read), Read, Held),
            (w(ME | A, Read), Insert, Blocked(A)),
            (w(ME | A, Read), Write, Blocked(A)),
            (w(ME | A, Insert), Read, Blocked(A)),
            (w(ME | A, Insert), Insert, Held),
            (w(ME | A, Insert), Write, Blocked(A)),
        ];
        for (word, access, expected) in table {
            assert_eq!(word.request(ME, access), expected, "{word:?} {access:?}");
        }
    }

    #[test]
    fn a_seized_word_has_one_holder() {
        assert_eq!(Word::of(A | B, Read).seized(ME, Write), Word::of(ME, Write));
        assert_eq!(Word::of(A, Write).seized(ME, Read), Word::of(ME, Read));
        assert_eq!(Word::of(A | ME, Read).seized(ME, Insert), Word::of(ME, Write));
        assert_eq!(Word::of(A, Insert).seized(ME, Read), Word::of(ME, Read));
    }

    #[test]
    fn who_is_in_the_way() {
        assert!(!Word::of(0, Write).is_in_the_way_of(Write));
        assert!(!Word::of(A, Read).is_in_the_way_of(Read));
        assert!(Word::of(A, Read).is_in_the_way_of(Insert));
        assert!(!Word::of(A, Insert).is_in_the_way_of(Insert));
        assert!(Word::of(A, Write).is_in_the_way_of(Read));
    }

    #[test]
    fn bits_are_counted_from_zero() {
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(bits(0).count(), 0);
        assert_eq!(bits(HOLDERS).count(), SLOTS as usize);
    }
}
