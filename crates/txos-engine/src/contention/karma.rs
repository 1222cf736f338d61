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
