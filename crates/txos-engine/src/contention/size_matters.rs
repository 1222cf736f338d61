//! Who holds more wins; once either side was restarted four times, the older.
//!
//! MetaTM's own policy (IEEE Micro 2008, "Contention management"): what an abort throws away is
//! what the loser holds, so the smaller one goes. It needs no history. Alone it can livelock,
//! because what a transaction holds is gone with its restart; so it reverts to the timestamp.
//!
//! | restarts of either | compared | turns | the other | decision |
//! |---|---|---|---|---|
//! | below 4 | larger, or equal and I am older | | | abort the other |
//! | below 4 | smaller, or equal and I am younger | below 8 | runs | wait |
//! | below 4 | smaller, or equal and I am younger | below 8 | waits | abort myself |
//! | below 4 | smaller, or equal and I am younger | 8 | | abort myself |
//! | 4 or more | older | | | abort the other |
//! | 4 or more | younger | below 64 | runs | wait |
//! | 4 or more | younger | below 64 | waits | abort myself |
//! | 4 or more | younger | 64 | | abort myself |
//!
//! The smaller waits 0.26 ms, in case the larger is about to end, and then restarts: it lets go of
//! what it holds, which is less than what the other would lose. By age it waits for half a second,
//! since a restart is no longer a step towards anything.
//!
//! # Who can starve
//!
//! Nobody: four restarts, and a transaction meets everybody by age, which it keeps; then it
//! becomes the oldest some day, whom nobody aborts and who waits on nobody. Before that
//! small transactions pay for large ones with at most four restarts.

use super::{Contender, Ruling, abort_other, abort_self, wait};

/// From so many restarts of either side on age decides.
const RESTARTS_BEFORE_AGE: u32 = 4;
/// Turns that the smaller waits: 0.26 ms.
const TURNS_BY_SIZE: u32 = 8;
/// Turns that the younger waits: 0.52 s.
const TURNS_BY_AGE: u32 = 64;

/// The table above.
pub(super) fn rule(me: &Contender, other: &Contender, turn: u32) -> Ruling {
    let by_age = me.restarts.max(other.restarts) >= RESTARTS_BEFORE_AGE;
    let older = me.is_older_than(other);
    let (wins, most) = if by_age {
        (older, TURNS_BY_AGE)
    } else {
        (me.size > other.size || (me.size == other.size && older), TURNS_BY_SIZE)
    };
    match (by_age, wins, turn < most, other.waiting) {
        (false, true, _, _) => abort_other("larger"),
        (false, false, true, false) => wait("smaller, and the other runs"),
        (false, false, true, true) => abort_self("smaller, and the other waits"),
        (false, false, false, _) => abort_self("smaller, and waited long enough"),
        (true, true, _, _) => abort_other("older, after restarts"),
        (true, false, true, false) => wait("younger, after restarts, and the other runs"),
        (true, false, true, true) => abort_self("younger, after restarts, and the other waits"),
        (true, false, false, _) => abort_self("younger, after restarts, and waited long enough"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decision::{self, AbortOther, AbortSelf, Wait};
    use super::super::tests::{ME, OTHER};
    use super::*;

    /// Whether age decides, whether I win, whether I still wait, whether the other waits.
    const TABLE: [(bool, bool, bool, bool, Decision); 16] = [
        (false, true, true, false, AbortOther),
        (false, true, true, true, AbortOther),
        (false, true, false, false, AbortOther),
        (false, true, false, true, AbortOther),
        (false, false, true, false, Wait),
        (false, false, true, true, AbortSelf),
        (false, false, false, false, AbortSelf),
        (false, false, false, true, AbortSelf),
        (true, true, true, false, AbortOther),
        (true, true, true, true, AbortOther),
        (true, true, false, false, AbortOther),
        (true, true, false, true, AbortOther),
        (true, false, true, false, Wait),
        (true, false, true, true, AbortSelf),
        (true, false, false, false, AbortSelf),
        (true, false, false, true, AbortSelf),
    ];

    #[test]
    fn every_combination_is_decided_by_its_row() {
        for (by_age, wins, patient, waiting, decision) in TABLE {
            let limit = if by_age { 64 } else { 8 };
            let turn = if patient { limit - 1 } else { limit };
            // By age it is against size; by size against age, or of equal size by age alone.
            let older = |older| Contender { slot: if older { 1 } else { 3 }, ..ME };
            let cases = if by_age {
                let size = if wins { 0 } else { 9 };
                let (mine, others) = (Contender { size, ..older(wins) }, 5);
                // Restarts of either side count.
                vec![
                    (Contender { restarts: 4, ..mine }, others, 0),
                    (Contender { restarts: 0, ..mine }, others, 4),
                    (Contender { restarts: u32::MAX, ..mine }, others, u32::MAX),
                ]
            } else {
                let size = if wins { 9 } else { 1 };
                vec![
                    (Contender { size, restarts: 3, ..older(!wins) }, 5, 3),
                    (Contender { size: 5, ..older(wins) }, 5, 0),
                ]
            };
            for (me, size, restarts) in cases {
                let other = Contender { size, restarts, waiting, ..OTHER };
                let ruling = rule(&me, &other, turn);
                assert_eq!(ruling.decision, decision, "{me:?} {other:?} {turn}: {ruling:?}");
            }
        }
    }
}
