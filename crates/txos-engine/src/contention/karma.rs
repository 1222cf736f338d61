//! Who did more work wins; the other waits about as long as that work took, then wins.
//!
//! Work is the number of facets acquired over all attempts: what was lost in a restart counts on,
//! as karma, for the next attempt (Scherer and Scott, PODC 2005).
//!
//! | my work | turns | the other | decision |
//! |---|---|---|---|
//! | more, or equal and I am older | | | abort the other |
//! | less, or equal and I am younger | waited out | | abort the other |
//! | less, or equal and I am younger | not yet | runs | wait |
//! | less, or equal and I am younger | not yet | waits | abort myself |
//!
//! Scherer and Scott wait one fixed interval for each unit of difference. Turns double here
//! ([`super::backoff::pause`]), so the same time is reached by counting the *digits* of the
//! difference: [`turns`] is its bit length plus three, that is 4 to 16 µs a facet, which is about
//! what acquiring a facet costs. From the 14th turn on pauses no longer double, and at 24 turns
//! (116 ms) it ends: the difference can grow while one waits, the turns must not.
//!
//! # Who can starve
//!
//! Nobody is safe. A restarted transaction comes back with more karma, so a long one prevails over
//! many short ones sooner or later, unless it needs an object for longer than the 116 ms that the
//! poorest newcomer waits for it. Two that both need longer than the other waits can abort each
//! other again and again. And a newcomer that finds richer ones waiting before it, at its
//! first object each time, earns nothing by it.

use super::{Contender, Ruling, abort_other, abort_self, wait};

/// No difference of work is worth more turns.
const MOST_TURNS: u32 = 24;

/// How many turns a difference of work (in facets) is worth: at least three, doubling the time
/// with each doubling of the difference.
fn turns(difference: u64) -> u32 {
    let bits = u64::BITS - difference.leading_zeros();
    (bits + 3).min(MOST_TURNS)
}

/// The table above.
pub(super) fn rule(me: &Contender, other: &Contender, turn: u32) -> Ruling {
    let waited_out = turn >= turns(other.work.saturating_sub(me.work));
    match (is_richer(me, other), waited_out, other.waiting) {
        (true, _, _) => abort_other("more work"),
        (false, true, _) => abort_other("less work, and waited for the difference"),
        (false, false, false) => wait("less work, and the other runs"),
        (false, false, true) => abort_self("less work, and the other waits"),
    }
}

/// Whether it did more work; of two that did as much, whether it is older.
pub(super) fn is_richer(me: &Contender, other: &Contender) -> bool {
    me.work > other.work || (me.work == other.work && me.is_older_than(other))
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
            // By work, against age; and by age alone. A hundred facets are ten turns, none three.
            let by_work = Contender { work: if richer { 101 } else { 1 }, slot: 3, ..ME };
            let by_work = (by_work, if richer { 1 } else { 101 }, 10);
            let by_age = (Contender { slot: if richer { 1 } else { 3 }, ..ME }, 0, 3);
            for (me, work, limit) in [by_work, by_age] {
                let other = Contender { work, waiting, ..OTHER };
                let turn = if waited_out { limit } else { limit - 1 };
                // The richer has nothing to wait out: to it, three turns are always enough.
                let turn = if richer { if waited_out { 3 } else { 2 } } else { turn };
                let ruling = rule(&me, &other, turn);
                assert_eq!(ruling.decision, decision, "{me:?} {other:?} {turn}: {ruling:?}");
            }
        }
    }

    #[test]
    fn turns_follow_the_digits_of_the_difference_up_to_the_most() {
        let expected = [(0, 3), (1, 4), (2, 5), (3, 5), (4, 6), (100, 10), (1 << 19, 23)];
        for (difference, count) in expected {
            assert_eq!(turns(difference), count, "{difference}");
        }
        assert_eq!(turns(1 << 20), MOST_TURNS);
        assert_eq!(turns(1 << 21), MOST_TURNS);
        assert_eq!(turns(u64::MAX), MOST_TURNS);
    }

    #[test]
    fn until_pauses_stop_doubling_the_wait_is_4_to_16_microseconds_a_facet() {
        use super::super::backoff::pause;
        for difference in 1..=1023_u32 {
            for seed in 0..20 {
                let waited: std::time::Duration =
                    (0..turns(u64::from(difference))).map(|turn| pause(turn, seed)).sum();
                // Half of 2^(n + 4) - 1 is just short of 4 µs a facet at the least.
                let a_facet = waited.as_nanos() / u128::from(difference);
                assert!((3_700..16_000).contains(&a_facet), "{difference}: {a_facet} ns");
            }
        }
    }
}
