//! Contention management: which of two transactions goes on, and how long one waits that starts again.
//!
//! The policies are those of Scherer and Scott ("Contention management in dynamic software transactional memory", 2004), adapted
//! to hardware: a transaction can go on, start again, or stall, but it can't wait in a queue. SizeMatters is the paper's own.

use clap::ValueEnum;

use super::Tx;

/// What becomes of a conflict. The requester makes the access; the holder has the data in its sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Decision {
    /// The holder starts again.
    HolderLoses,
    /// The requester starts again.
    RequesterLoses,
    /// The requester makes its access again after so many cycles.
    Stall(u64),
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
pub enum Policy {
    /// Stalls longer and longer, eight times; then the holder loses.
    Polite,
    /// Whoever has done more work, over all attempts, goes on; each stall counts as work.
    Karma,
    /// As Karma; the work of who stalls is added to the holder's, so that it gets out of the way.
    Eruption,
    /// Gives way to each transaction once.
    Kindergarten,
    /// The older one goes on.
    Timestamp,
    /// Karma, with stalls that grow.
    Polka,
    /// The one with more unique bytes in its sets goes on; by age after too many restarts.
    SizeMatters,
    /// The one whose thread the operating system prefers goes on; the older one if they are equal.
    OsPriority,
}

/// Stalls of Polite before the holder loses.
const POLITE_STALLS: u32 = 8;
/// First stall, in cycles.
const STALL: u64 = 16;

impl Policy {
    /// Decides about a conflict of two transactions of different harts. `drawn` is a random number.
    pub fn decide(self, own: &mut Tx, holder: &mut Tx, size_restarts: u32, drawn: u64) -> Decision {
        let older = || {
            if (own.born, own.number) < (holder.born, holder.number) {
                Decision::HolderLoses
            } else {
                Decision::RequesterLoses
            }
        };
        let growing = |stalls: u32| {
            let most = STALL << stalls.min(10);
            Decision::Stall(most / 2 + drawn % (most / 2 + 1))
        };
        match self {
            Policy::Timestamp => older(),
            Policy::Polite if own.stalls < POLITE_STALLS => growing(own.stalls),
            Policy::Polite => Decision::HolderLoses,
            Policy::Karma => {
                if own.karma + u64::from(own.stalls) > holder.karma {
                    Decision::HolderLoses
                } else {
                    Decision::Stall(STALL)
                }
            }
            Policy::Eruption => {
                if own.karma + u64::from(own.stalls) > holder.karma {
                    Decision::HolderLoses
                } else {
                    if own.stalls == 0 {
                        holder.karma += own.karma;
                    }
                    Decision::Stall(STALL)
                }
            }
            Policy::Polka => {
                if own.karma + u64::from(own.stalls) > holder.karma {
                    Decision::HolderLoses
                } else {
                    growing(own.stalls)
                }
            }
            Policy::Kindergarten => {
                if own.enemies.contains(&holder.number) {
                    Decision::HolderLoses
                } else {
                    own.enemies.push(holder.number);
                    Decision::RequesterLoses
                }
            }
            Policy::SizeMatters => {
                if own.restarts > size_restarts
                    || holder.restarts > size_restarts
                    || own.size == holder.size
                {
                    older()
                } else if own.size > holder.size {
                    Decision::HolderLoses
                } else {
                    Decision::RequesterLoses
                }
            }
            Policy::OsPriority => match own.priority.cmp(&holder.priority) {
                std::cmp::Ordering::Less => Decision::HolderLoses,
                std::cmp::Ordering::Greater => Decision::RequesterLoses,
                std::cmp::Ordering::Equal => older(),
            },
        }
    }
}

/// How long a transaction waits before it starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
pub enum Backoff {
    /// Not at all.
    None,
    /// Up to 32 cycles for each restart.
    Linear,
    /// Up to twice as long after each restart, 16 to 8192 cycles.
    Exponential,
}

impl Backoff {
    /// Cycles before the attempt that follows so many restarts.
    #[must_use]
    pub fn cycles(self, restarts: u32, drawn: u64) -> u64 {
        let most = match self {
            Backoff::None => return 0,
            Backoff::Linear => 32 * u64::from(restarts.min(256)),
            Backoff::Exponential => 16 << restarts.min(9),
        };
        drawn % (most + 1)
    }
}
