//! Arbitration: which of two transactions gives way where they meet.
//!
//! Two transactions meet when one wants an object that the other holds in a way that excludes it.
//! The one that arrives asks [`arbitrate`]; the answer is to abort itself, to abort the other, or
//! to wait and ask again. Pure decisions: no shared memory, no system calls, no clock; whoever
//! asks brings the facts ([`Contender`]) and carries out the answer ([`Ruling`]).
//!
//! | file | policy | who wins | who can starve |
//! |---|---|---|---|
//! | `os_priority.rs` | `os-priority` | the higher scheduling priority, then the older | lower priorities |
//! | `timestamp.rs` | `timestamp` | the older | nobody |
//! | `karma.rs` | `karma` | who did more work; the other after waiting about as long | anybody |
//! | `polka.rs` | `polka` | as karma, but for a few milliseconds at the most | anybody |
//! | `size_matters.rs` | `size-matters` | who holds more; after some restarts the older | nobody |
//! | `polite.rs` | `polite` | who waited eight turns | anybody, long transactions first |
//! | [`backoff`] | | how long a turn is, and the pause before a restart | |
//!
//! MetaTM/TxLinux (IEEE Micro 2008, "Contention management") measured these policies inside a
//! kernel and adds SizeMatters and the scheduler's priority; the others are Scherer and Scott's
//! (PODC 2005).
//!
//! # Invariants
//!
//! - Every policy is a total table: each combination of facts has exactly one row, and each row
//!   its reason. Tests walk all of them.
//! - **Nobody waits on one who waits**: no policy answers [`Decision::Wait`] when the other is
//!   waiting. So there is no deadlock, and nobody has to search for cycles: whoever would close a
//!   cycle finds a waiting transaction before it.
//! - The two sides of a conflict, asked with the same facts, never both abort themselves; and at
//!   turn 0 they never abort each other.
//! - Under `timestamp` and `os-priority` the contenders are in a strict total order, and a winner
//!   never waits. Under all others a wait is bounded: from some turn on the answer is not
//!   [`Decision::Wait`] whatever the other does.
//!
//! # What the caller owes
//!
//! - Before it sleeps it publishes that it waits, *then* reads the other's facts once more and
//!   asks again (both sequentially consistent). Two that begin to wait on each other at the same
//!   moment so see it, at least one of them.
//! - Aborting the other is one atomic step from "running". It fails if the other was aborted or
//!   passed the point of its commit meanwhile; then the object is about to be free, and the caller
//!   asks again. Whoever was aborted notices before it aborts anybody. From later turns on two
//!   may answer [`Decision::AbortOther`] about each other: the first step wins.
//! - `start_ns` and `work` survive a restart. A restart that looks younger can starve anywhere.

pub mod backoff;
mod karma;
#[cfg(test)]
mod model;
mod os_priority;
mod polite;
mod polka;
mod size_matters;
#[cfg(test)]
mod tests;
mod timestamp;

use std::fmt;
use std::str::FromStr;

/// How a conflict is arbitrated. The number is the one in shared memory; it never changes meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Policy {
    /// The higher scheduling priority wins, then the older.
    #[default]
    OsPriority = 0,
    /// The older wins (wound-wait).
    Timestamp = 1,
    /// Who did more work wins; the other gets its turn after waiting in proportion.
    Karma = 2,
    /// As [`Policy::Karma`], with few turns however large the difference.
    Polka = 3,
    /// Who holds more wins; after some restarts the older.
    SizeMatters = 4,
    /// Waits some turns, then aborts the other.
    Polite = 5,
}

impl Policy {
    /// All policies, by number.
    pub const ALL: [Policy; 6] = [
        Policy::OsPriority,
        Policy::Timestamp,
        Policy::Karma,
        Policy::Polka,
        Policy::SizeMatters,
        Policy::Polite,
    ];

    /// Its number in shared memory.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The policy of a number; `None` if there is none.
    pub fn from_code(code: u32) -> Option<Policy> {
        Policy::ALL.into_iter().find(|p| p.code() == code)
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::OsPriority => "os-priority",
            Policy::Timestamp => "timestamp",
            Policy::Karma => "karma",
            Policy::Polka => "polka",
            Policy::SizeMatters => "size-matters",
            Policy::Polite => "polite",
        }
    }

    /// What it does, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Policy::OsPriority => "the higher scheduling priority wins, among equals the older",
            Policy::Timestamp => "the older wins; nobody starves",
            Policy::Karma => "who did more work wins; the other waits about as long, then wins",
            Policy::Polka => "as karma, but nobody waits longer than a few milliseconds",
            Policy::SizeMatters => "who holds more wins; after some restarts the older",
            Policy::Polite => "wait a little, longer each time, then abort whoever is in the way",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{name}' is not a contention policy; there are: {}",
    Policy::ALL.map(Policy::name).join(", ")
)]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = Policy::ALL.into_iter().find(|p| p.name() == name);
        named.ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

/// What counts about one side of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Scheduling priority, larger is more important: realtime above nice -20 above nice 19.
    pub priority: i32,
    /// Start of the first attempt, in nanoseconds of a clock that all contenders share; kept over
    /// restarts.
    pub start_ns: u64,
    /// Its place in the transaction table: the last tie-break, the lower wins. Differs between any
    /// two contenders.
    pub slot: u32,
    /// Facets acquired, over all attempts.
    pub work: u64,
    /// Facets held now.
    pub size: u64,
    /// How often it was restarted.
    pub restarts: u32,
    /// Whether it is itself blocked on somebody.
    pub waiting: bool,
}

impl Contender {
    /// Whether it began earlier; of two that began at once, whether its slot is lower.
    pub fn is_older_than(&self, other: &Contender) -> bool {
        (self.start_ns, self.slot) < (other.start_ns, other.slot)
    }
}

/// What the one that asked does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Abort and restart itself.
    AbortSelf,
    /// Abort the other and take the object.
    AbortOther,
    /// Wait for the other to end, [`backoff::pause`] at the most, then ask again.
    Wait,
}

/// A decision, and the row of the table it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ruling {
    /// What to do.
    pub decision: Decision,
    /// Why, about the one that asked: "younger, and the other runs".
    pub reason: &'static str,
}

const fn abort_self(reason: &'static str) -> Ruling {
    Ruling { decision: Decision::AbortSelf, reason }
}

const fn abort_other(reason: &'static str) -> Ruling {
    Ruling { decision: Decision::AbortOther, reason }
}

const fn wait(reason: &'static str) -> Ruling {
    Ruling { decision: Decision::Wait, reason }
}

/// Decides a conflict for `me`, who wants what `other` holds. `turn` is how many times `me` has
/// already waited at this very conflict: 0 at the first conflict.
pub fn arbitrate(policy: Policy, me: &Contender, other: &Contender, turn: u32) -> Ruling {
    match policy {
        Policy::OsPriority => os_priority::rule(me, other),
        Policy::Timestamp => timestamp::rule(me, other),
        Policy::Karma => karma::rule(me, other, turn),
        Policy::Polka => polka::rule(me, other, turn),
        Policy::SizeMatters => size_matters::rule(me, other, turn),
        Policy::Polite => polite::rule(me, other, turn),
    }
}
