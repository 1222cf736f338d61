//! The higher scheduling priority wins; among equals the older.
//!
//! The default: a transaction is not to be an exception from what the administrator asked the
//! scheduler for. A realtime process that meets a background job aborts it instead of waiting for
//! it, so priority inversion ends where it begins (TxLinux, IEEE Micro 2008, "TxLinux
//! developments").
//!
//! | my priority | I am | the other | decision |
//! |---|---|---|---|
//! | higher | | | abort the other |
//! | equal | older | | abort the other |
//! | equal | younger | runs | wait |
//! | equal | younger | waits | abort myself |
//! | lower | | runs | wait |
//! | lower | | waits | abort myself |
//!
//! # Who can starve
//!
//! Lower priorities, for as long as higher ones keep coming: it is what priority means. Among
//! equals nobody, as under `timestamp`, and of all transactions the oldest one of the highest
//! priority always makes progress: nobody aborts it, and it waits on nobody. A wait has no bound
//! but the end of the other. A priority that changes between two conflicts counts from the next.

use std::cmp::Ordering::{Equal, Greater, Less};

use super::{Contender, Ruling, abort_other, abort_self, wait};

/// The table above.
pub(super) fn rule(me: &Contender, other: &Contender) -> Ruling {
    match (me.priority.cmp(&other.priority), me.is_older_than(other), other.waiting) {
        (Greater, _, _) => abort_other("higher priority"),
        (Equal, true, _) => abort_other("equal priority and older"),
        (Equal, false, false) => wait("equal priority and younger, and the other runs"),
        (Equal, false, true) => abort_self("equal priority and younger, and the other waits"),
        (Less, _, false) => wait("lower priority, and the other runs"),
        (Less, _, true) => abort_self("lower priority, and the other waits"),
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::super::Decision::{self, AbortOther, AbortSelf, Wait};
    use super::super::tests::{ME, OTHER};
    use super::*;

    /// My priority against the other's, whether I am older, whether the other waits.
    const TABLE: [(Ordering, bool, bool, Decision); 12] = [
        (Greater, true, false, AbortOther),
        (Greater, true, true, AbortOther),
        (Greater, false, false, AbortOther),
        (Greater, false, true, AbortOther),
        (Equal, true, false, AbortOther),
        (Equal, true, true, AbortOther),
        (Equal, false, false, Wait),
        (Equal, false, true, AbortSelf),
        (Less, true, false, Wait),
        (Less, true, true, AbortSelf),
        (Less, false, false, Wait),
        (Less, false, true, AbortSelf),
    ];

    #[test]
    fn every_combination_is_decided_by_its_row() {
        for (priority, older, waiting, decision) in TABLE {
            let me =
                Contender { priority: priority as i32, start_ns: if older { 9 } else { 11 }, ..ME };
            let other = Contender { waiting, ..OTHER };
            let ruling = rule(&me, &other);
            assert_eq!(ruling.decision, decision, "{priority:?} {older} {waiting}: {ruling:?}");
        }
    }

    #[test]
    fn the_ends_of_the_range_compare() {
        let me = Contender { priority: i32::MIN, ..ME };
        let other = Contender { priority: i32::MAX, ..OTHER };
        assert_eq!(rule(&me, &other).decision, Wait);
        assert_eq!(rule(&other, &me).decision, AbortOther);
    }
}
