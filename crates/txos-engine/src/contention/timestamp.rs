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
