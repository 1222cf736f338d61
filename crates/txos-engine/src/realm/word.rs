//! The ownership record ("orec"): one 64-bit word that says who holds a facet, and how.
//!
//! ```text
//!  63 62 61 60 59                                             0
//! ┌──┬──┬─────┬────────────────────────────────────────────────┐
//! │0 │s │mode │ holders: bit n is the transaction in slot n     │
//! └──┴──┴─────┴────────────────────────────────────────────────┘
//! mode: 0 read (any number of holders) · 1 insert (any number) · 2 write (exactly one)
//! s: soft: every holder can do without it
//! ```
//!
//! # Invariants
//!
//! - A word without holders is free, whatever its mode bits say: so releasing is one `fetch_and`.
//! - Readers commute with readers, inserters with inserters; everything else excludes each other.
//! - A soft word protects nobody's commit: whoever holds it validates what it read, and acquires what
//!   it publishes again, firmly. So others may take a holder out of it without dooming that one,
//!   by one exchange. A word that has a firm holder is firm, and stays so until it is free.
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

/// How a facet is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Whoever takes it away dooms its holder first.
    Firm,
    /// It only lets others meet its holder early.
    Soft,
}

/// The bit of a soft word.
const SOFT: u64 = 1 << 62;
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

    fn of(holders: u64, mode: Access, hold: Hold) -> Word {
        let mode = match mode {
            Access::Read => 0,
            Access::Insert => 1,
            Access::Write => 2,
        };
        let soft = if hold == Hold::Soft { SOFT } else { 0 };
        Word(holders & HOLDERS | mode << MODE_SHIFT | soft)
    }

    /// The holders' bits.
    pub fn holders(self) -> u64 {
        self.0 & HOLDERS
    }

    /// Whether all holders can do without it.
    #[inline]
    pub fn is_soft(self) -> bool {
        self.0 & SOFT != 0
    }

    /// The word with one more holder, or the same one anew: soft only if all are.
    fn joined(self, me: u64, hold: Hold) -> Word {
        match hold {
            Hold::Firm => Word((self.0 | me) & !SOFT),
            Hold::Soft => Word(self.0 | me),
        }
    }

    /// The word without these holders.
    pub fn without(self, holders: u64) -> Word {
        Word(self.0 & !(holders & HOLDERS))
    }

    /// What the transaction with the bit `me` meets when it wants the facet.
    #[inline]
    pub fn request(self, me: u64, access: Access, hold: Hold) -> Request {
        let others = self.holders() & !me;
        if self.holders() & me == 0 {
            return match (self.mode(), access) {
                _ if others == 0 => Request::Take(Word::of(me, access, hold)),
                (Access::Read, Access::Read) | (Access::Insert, Access::Insert) => {
                    Request::Take(self.joined(me, hold))
                }
                _ => Request::Blocked(others),
            };
        }
        match (self.mode(), access) {
            (Access::Write, _)
            | (Access::Read, Access::Read)
            | (Access::Insert, Access::Insert) => {
                if hold == Hold::Firm && self.is_soft() {
                    Request::Take(self.joined(me, hold))
                } else {
                    Request::Held
                }
            }
            _ if others == 0 => Request::Take(self.seized(me, access, hold)),
            _ => Request::Blocked(others),
        }
    }

    /// The word once everybody else in it is out of the race.
    pub fn seized(self, me: u64, access: Access, hold: Hold) -> Word {
        if self.holders() & me == 0 {
            return Word::of(me, access, hold);
        }
        // Held in another mode before: both are needed now. What was held firmly stays so.
        let hold = if self.is_soft() { hold } else { Hold::Firm };
        Word::of(me, Access::Write, hold)
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
    use Hold::{Firm, Soft};
    use Request::{Blocked, Held, Take};

    const ME: u64 = 1;
    const A: u64 = 2;
    const B: u64 = 4;

    #[test]
    fn every_combination() {
        let w = |holders, mode| Word::of(holders, mode, Firm);
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
            assert_eq!(word.request(ME, access, Firm), expected, "{word:?} {access:?}");
        }
    }

    #[test]
    fn a_seized_word_has_one_holder() {
        assert_eq!(Word::of(A | B, Read, Firm).seized(ME, Write, Firm), Word::of(ME, Write, Firm));
        assert_eq!(Word::of(A, Write, Firm).seized(ME, Read, Firm), Word::of(ME, Read, Firm));
        assert_eq!(
            Word::of(A | ME, Read, Firm).seized(ME, Insert, Firm),
            Word::of(ME, Write, Firm)
        );
        assert_eq!(Word::of(A, Insert, Firm).seized(ME, Read, Firm), Word::of(ME, Read, Firm));
    }

    #[test]
    fn a_word_is_soft_if_all_its_holders_are() {
        let soft = |holders, mode| Word::of(holders, mode, Soft);
        let firm = |holders, mode| Word::of(holders, mode, Firm);
        let table = [
            (soft(0, Write), Read, Soft, Take(soft(ME, Read))),
            (soft(0, Write), Read, Firm, Take(firm(ME, Read))),
            (firm(0, Write), Read, Soft, Take(soft(ME, Read))),
            (soft(A, Read), Read, Soft, Take(soft(ME | A, Read))),
            (soft(A, Read), Read, Firm, Take(firm(ME | A, Read))),
            (firm(A, Read), Read, Soft, Take(firm(ME | A, Read))),
            (soft(ME | A, Read), Read, Soft, Held),
            (soft(ME | A, Read), Read, Firm, Take(firm(ME | A, Read))),
            (soft(ME, Write), Read, Firm, Take(firm(ME, Write))),
            (firm(ME, Write), Write, Soft, Held),
            (soft(ME, Read), Write, Soft, Take(soft(ME, Write))),
            (soft(ME, Read), Write, Firm, Take(firm(ME, Write))),
            // It may have been read firmly.
            (firm(ME, Read), Write, Soft, Take(firm(ME, Write))),
            (soft(A, Write), Read, Firm, Blocked(A)),
        ];
        for (word, access, hold, expected) in table {
            assert_eq!(word.request(ME, access, hold), expected, "{word:?} {access:?} {hold:?}");
        }
        assert_eq!(soft(A | B, Read).without(A), soft(B, Read));
        assert!(soft(A, Read).is_soft() && !firm(A, Read).is_soft());
    }

    #[test]
    fn who_is_in_the_way() {
        assert!(!Word::of(0, Write, Firm).is_in_the_way_of(Write));
        assert!(!Word::of(A, Read, Firm).is_in_the_way_of(Read));
        assert!(Word::of(A, Read, Firm).is_in_the_way_of(Insert));
        assert!(!Word::of(A, Insert, Firm).is_in_the_way_of(Insert));
        assert!(Word::of(A, Write, Firm).is_in_the_way_of(Read));
    }

    #[test]
    fn bits_are_counted_from_zero() {
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(bits(0).count(), 0);
        assert_eq!(bits(HOLDERS).count(), SLOTS as usize);
    }
}
