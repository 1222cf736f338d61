//! Karma's comparison with Polite's backoff: one turn for each facet of difference, few at most.
//!
//! Scherer and Scott (PODC 2005) join the two: as many turns as the difference of work, each twice
//! as long as the one before. Where the difference is small, patience is short; where it is
//! large it is cut off at [`MOST_TURNS`].
//!
//! | my work | turns | the other | decision |
//! |---|---|---|---|
//! | more, or equal and I am older | | | abort the other |
//! | less, or equal and I am younger | waited out | | abort the other |
//! | less, or equal and I am younger | not yet | runs | wait |
//! | less, or equal and I am younger | not yet | waits | abort myself |
//!
//! Against `karma`: there the time waited follows the work that an abort would throw away, here it
//! is 4.1 ms from a dozen facets on. Good where transactions are short and alike.
//!
//! # Who can starve
//!
//! Nobody is safe. Whoever holds a contended object for more than 4.1 ms is aborted by the first
//! that waits for it, however much it did: long transactions starve before short ones. Two that
//! both hold theirs longer can abort each other again and again.

use super::karma::is_richer;
use super::{Contender, Ruling, abort_other, abort_self, wait};

/// No difference of work is worth more turns: 4.1 ms.
const MOST_TURNS: u32 = 12;

/// How many turns a difference of work (in facets) is worth; one if there is none.
fn turns(difference: u64) -> u32 {
    u32::try_from(difference).unwrap_or(u32::MAX).clamp(1, MOST_TURNS)
}

/// The table above.
pub(super) fn rule(me: &Contender, other: &Contender, turn: u32) -> Ruling {
    let waited_out = turn >= turns(other.work.saturating_sub(me.work));
    match (is_richer(me, other), waited_out, other.waiting) {
        (true, _, _) => abort_other("more work"),
        (false, true, _) => abort_other("less work, and waited a turn for each facet"),
        (false, false, false) => wait("less work, and the other runs"),
        (false, false, true) => abort_self("less work, and the other waits"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decision::{self, AbortOther, AbortSelf, Wait};
    use super::super::tests::{ME, OTHER};
    use super::*;

    /// Whether I am richer, whether I waited the difference out, whether the other waits.
    const TABLE: [(bool, bool, bool, Decision); 8] = [
        (true, false, false, AbortOther),
        (true, false, true, AbortOther),
        (true, true, false, AbortOther),
        (true, true, true, AbortOther),
        (false, true, false, AbortOther),
        (false, true, true, AbortOther),
        (false, false, false, Wait),
        (false, false, true, AbortSelf),
    ];

    #[test]
    fn every_combination_is_decided_by_its_row() {
        for (richer, waited_out, waiting, decision) in TABLE {
            // By work, against age, five facets apart; and by age alone. The richer has nothing to
            // wait out: to it, one turn is always enough.
            let by_work = Contender { work: if richer { 6 } else { 1 }, slot: 3, ..ME };
            let by_age = Contender { slot: if richer { 1 } else { 3 }, ..ME };
            let cases =
                [(by_work, if richer { 1 } else { 6 }, if richer { 1 } else { 5 }), (by_age, 0, 1)];
            for (me, work, limit) in cases {
                let other = Contender { work, waiting, ..OTHER };
                let turn = if waited_out { limit } else { limit - 1 };
                let ruling = rule(&me, &other, turn);
                assert_eq!(ruling.decision, decision, "{me:?} {other:?} {turn}: {ruling:?}");
            }
        }
    }

    #[test]
    fn a_turn_for_each_facet_of_difference_up_to_the_most() {
        let expected = [(0, 1), (1, 1), (2, 2), (11, 11), (12, 12), (13, 12), (u64::MAX, 12)];
        for (difference, count) in expected {
            assert_eq!(turns(difference), count, "{difference}");
        }
    }
}
