//! The older wins: wound-wait, by the start of the first attempt.
//!
//! | I am | the other | decision |
//! |---|---|---|
//! | older | | abort the other |
//! | younger | runs | wait |
//! | younger | waits | abort myself |
//!
//! # Who can starve
//!
//! Nobody: a restart keeps its age, so each transaction becomes the oldest some day, and the
//! oldest aborts whoever is in its way and waits on nobody. The price is that one that never ends
//! holds up all younger ones who meet it; a wait has no bound but the end of the other. In a kernel
//! a suspended older transaction can hold up the processor's current one for ever (MetaTM, IEEE
//! Micro 2008, "Contention management"); here who waits sleeps, and the older gets its processor.

use super::{Contender, Ruling, abort_other, abort_self, wait};

/// The table above.
pub(super) fn rule(me: &Contender, other: &Contender) -> Ruling {
    match (me.is_older_than(other), other.waiting) {
        (true, _) => abort_other("older"),
        (false, false) => wait("younger, and the other runs"),
        (false, true) => abort_self("younger, and the other waits"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decision::{self, AbortOther, AbortSelf, Wait};
    use super::super::tests::{ME, OTHER};
    use super::*;

    /// Whether I am older, whether the other waits.
    const TABLE: [(bool, bool, Decision); 4] = [
        (true, false, AbortOther),
        (true, true, AbortOther),
        (false, false, Wait),
        (false, true, AbortSelf),
    ];

    #[test]
    fn every_combination_is_decided_by_its_row() {
        for (older, waiting, decision) in TABLE {
            // Older by the start, against the slot; and by the slot alone.
            let by_start = Contender { slot: 3, start_ns: if older { 9 } else { 11 }, ..ME };
            let by_slot = Contender { slot: if older { 1 } else { 3 }, ..ME };
            for me in [by_start, by_slot] {
                let ruling = rule(&me, &Contender { waiting, ..OTHER });
                assert_eq!(ruling.decision, decision, "{me:?} {waiting}: {ruling:?}");
            }
        }
    }
}
