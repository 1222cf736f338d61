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
//! but the end of the other. A priority that changes between two meetings counts from the next.

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
