//! Wait, twice as long each turn; after eight turns abort whoever is in the way.
//!
//! Scherer and Scott's Polite (PODC 2005): nothing is compared, so nothing need be known about the
//! other but whether it waits.
//!
//! | the other | turns | I | decision |
//! |---|---|---|---|
//! | runs | below 8 | | wait |
//! | runs | 8 | | abort the other |
//! | waits | | run | abort the other |
//! | waits | | wait as well, and am older | abort the other |
//! | waits | | wait as well, and am younger | abort myself |
//!
//! Eight turns are 0.26 ms. The last two rows are for two that decided to wait at the same moment:
//! without them both would abort each other.
//!
//! # Who can starve
//!
//! Nobody is safe, and long transactions starve first: whoever holds a contended object for longer
//! than 0.26 ms is aborted by the first that waits for it, and whoever waits by the first that
//! comes. Two that both hold theirs longer can abort each other again and again, which only the
//! pauses before their restarts will end.

use super::{Contender, Ruling, abort_other, abort_self, wait};

/// Turns of patience: 0.26 ms.
const TURNS: u32 = 8;

/// The table above.
pub(super) fn rule(me: &Contender, other: &Contender, turn: u32) -> Ruling {
    match (other.waiting, turn < TURNS, me.waiting, me.is_older_than(other)) {
        (false, true, _, _) => wait("the other runs"),
        (false, false, _, _) => abort_other("waited long enough"),
        (true, _, false, _) => abort_other("the other waits"),
        (true, _, true, true) => abort_other("both wait, and older"),
        (true, _, true, false) => abort_self("both wait, and younger"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decision::{self, AbortOther, AbortSelf, Wait};
    use super::super::tests::{ME, OTHER};
    use super::*;

    /// Whether the other waits, whether I still wait, whether I am marked waiting, whether I am
    /// older.
    const TABLE: [(bool, bool, bool, bool, Decision); 16] = [
        (false, true, false, false, Wait),
        (false, true, false, true, Wait),
        (false, true, true, false, Wait),
        (false, true, true, true, Wait),
        (false, false, false, false, AbortOther),
        (false, false, false, true, AbortOther),
        (false, false, true, false, AbortOther),
        (false, false, true, true, AbortOther),
        (true, true, false, false, AbortOther),
        (true, true, false, true, AbortOther),
        (true, true, true, false, AbortSelf),
        (true, true, true, true, AbortOther),
        (true, false, false, false, AbortOther),
        (true, false, false, true, AbortOther),
        (true, false, true, false, AbortSelf),
        (true, false, true, true, AbortOther),
    ];

    #[test]
    fn every_combination_is_decided_by_its_row() {
        for (other_waits, patient, i_wait, older, decision) in TABLE {
            let me = Contender { slot: if older { 1 } else { 3 }, waiting: i_wait, ..ME };
            let other = Contender { waiting: other_waits, ..OTHER };
            let ruling = rule(&me, &other, if patient { 7 } else { 8 });
            assert_eq!(ruling.decision, decision, "{me:?} {other:?} {patient}: {ruling:?}");
        }
    }
}
