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

/// The figures of the policies and of the waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Figures {
    /// Cycles of a stall; of the first one, where they grow.
    pub stall_cycles: u64,
    /// Stalls of Polite before the holder loses.
    pub polite_stalls: u32,
    /// Restarts after which SizeMatters decides by age.
    pub size_restarts: u32,
    /// Most cycles of the first wait: of Linear's, to which each restart adds as many, and of Exponential's, which each restart
    /// doubles.
    pub backoff_cycles: u64,
    /// Doublings of Exponential's wait at most.
    pub backoff_doublings: u32,
}

impl Default for Figures {
    fn default() -> Self {
        Figures {
            stall_cycles: 16,
            polite_stalls: 8,
            size_restarts: 32,
            backoff_cycles: 32,
            backoff_doublings: 8,
        }
    }
}

impl Policy {
    /// Decides about a conflict of two transactions of different harts. `drawn` is a random number.
    pub fn decide(self, own: &mut Tx, holder: &mut Tx, figures: &Figures, drawn: u64) -> Decision {
        let older = || {
            if (own.born, own.number) < (holder.born, holder.number) {
                Decision::HolderLoses
            } else {
                Decision::RequesterLoses
            }
        };
        let growing = |stalls: u32| {
            let most = figures.stall_cycles << stalls.min(10);
            Decision::Stall(most / 2 + drawn % (most / 2 + 1))
        };
        match self {
            Policy::Timestamp => older(),
            Policy::Polite if own.stalls < figures.polite_stalls => growing(own.stalls),
            Policy::Polite => Decision::HolderLoses,
            Policy::Karma => {
                if own.karma + u64::from(own.stalls) > holder.karma {
                    Decision::HolderLoses
                } else {
                    Decision::Stall(figures.stall_cycles)
                }
            }
            Policy::Eruption => {
                if own.karma + u64::from(own.stalls) > holder.karma {
                    Decision::HolderLoses
                } else {
                    if own.stalls == 0 {
                        holder.karma += own.karma;
                    }
                    Decision::Stall(figures.stall_cycles)
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
                if own.restarts > figures.size_restarts
                    || holder.restarts > figures.size_restarts
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
    /// Longer by as much with each restart.
    Linear,
    /// Twice as long with each restart.
    Exponential,
}

impl Backoff {
    /// Cycles before the attempt that follows so many restarts.
    #[must_use]
    pub fn cycles(self, restarts: u32, figures: &Figures, drawn: u64) -> u64 {
        let most = match self {
            Backoff::None => return 0,
            Backoff::Linear => figures.backoff_cycles * u64::from(restarts.min(256)),
            Backoff::Exponential => {
                figures.backoff_cycles << restarts.saturating_sub(1).min(figures.backoff_doublings)
            }
        };
        drawn % (most + 1)
    }
}
