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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::hart::Hart;
    use crate::tm::Tm;

    /// Two transactions of two harts, the first of which is older.
    fn pair() -> [Tx; 2] {
        [(1, 0), (2, 10)].map(|(number, born)| {
            let mut tx = Tm::transaction(Hart::new(0).checkpoint(0, 0), 0, born);
            tx.number = number;
            tx
        })
    }

    fn decide(policy: Policy, own: &mut Tx, holder: &mut Tx) -> Decision {
        policy.decide(own, holder, &Figures::default(), 0)
    }

    #[test]
    fn the_older_one_goes_on_under_timestamp() {
        let [mut old, mut young] = pair();
        assert_eq!(decide(Policy::Timestamp, &mut old, &mut young), Decision::HolderLoses);
        assert_eq!(decide(Policy::Timestamp, &mut young, &mut old), Decision::RequesterLoses);
    }

    #[test]
    fn size_matters_until_one_has_been_restarted_too_often() {
        let [mut old, mut young] = pair();
        (old.size, young.size) = (8, 16);
        assert_eq!(decide(Policy::SizeMatters, &mut young, &mut old), Decision::HolderLoses);
        assert_eq!(decide(Policy::SizeMatters, &mut old, &mut young), Decision::RequesterLoses);
        old.restarts = Figures::default().size_restarts + 1;
        assert_eq!(decide(Policy::SizeMatters, &mut young, &mut old), Decision::RequesterLoses);
        assert_eq!(decide(Policy::SizeMatters, &mut old, &mut young), Decision::HolderLoses);
    }

    #[test]
    fn the_operating_system_s_priority_comes_before_age() {
        let [mut old, mut young] = pair();
        (old.priority, young.priority) = (120, 100);
        assert_eq!(decide(Policy::OsPriority, &mut young, &mut old), Decision::HolderLoses);
        assert_eq!(decide(Policy::OsPriority, &mut old, &mut young), Decision::RequesterLoses);
        young.priority = 120;
        assert_eq!(decide(Policy::OsPriority, &mut young, &mut old), Decision::RequesterLoses);
    }

    #[test]
    fn polite_stalls_longer_and_longer_and_then_goes_on() {
        let [mut own, mut holder] = pair();
        let mut last = 0;
        for stalls in 0..Figures::default().polite_stalls {
            own.stalls = stalls;
            let decision = decide(Policy::Polite, &mut own, &mut holder);
            let Decision::Stall(cycles) = decision else { panic!("{decision:?}") };
            assert!(cycles > last, "{cycles} after {last}");
            last = cycles;
        }
        own.stalls = Figures::default().polite_stalls;
        assert_eq!(decide(Policy::Polite, &mut own, &mut holder), Decision::HolderLoses);
    }

    #[test]
    fn kindergarten_gives_way_to_each_once() {
        let [mut own, mut holder] = pair();
        assert_eq!(decide(Policy::Kindergarten, &mut own, &mut holder), Decision::RequesterLoses);
        assert_eq!(decide(Policy::Kindergarten, &mut own, &mut holder), Decision::HolderLoses);
        let [_, mut another] = pair();
        another.number = 3;
        assert_eq!(decide(Policy::Kindergarten, &mut own, &mut another), Decision::RequesterLoses);
    }

    #[test]
    fn work_counts_under_karma_eruption_and_polka() {
        for policy in [Policy::Karma, Policy::Eruption, Policy::Polka] {
            let [mut own, mut holder] = pair();
            (own.karma, holder.karma) = (2, 4);
            let decision = decide(policy, &mut own, &mut holder);
            assert!(matches!(decision, Decision::Stall(_)), "{policy:?}: {decision:?}");
            // The holder inherits the work of who waits for it, once.
            assert_eq!(holder.karma, if policy == Policy::Eruption { 6 } else { 4 });
            own.stalls = 2;
            assert!(matches!(decide(policy, &mut own, &mut holder), Decision::Stall(_)));
            own.stalls = 5;
            assert_eq!(decide(policy, &mut own, &mut holder), Decision::HolderLoses, "{policy:?}");
        }
    }

    #[test]
    fn backoff_grows_as_it_is_called() {
        let figures = Figures::default();
        let most = |backoff: Backoff, restarts| {
            let most = |drawn| backoff.cycles(restarts, &figures, drawn);
            (0..100_000).map(most).max()
        };
        for (restarts, linear, exponential) in [(1, 32, 32), (2, 64, 64), (4, 128, 256)] {
            assert_eq!(most(Backoff::None, restarts), Some(0));
            assert_eq!(most(Backoff::Linear, restarts), Some(linear));
            assert_eq!(most(Backoff::Exponential, restarts), Some(exponential));
        }
        assert_eq!(most(Backoff::Exponential, 30), Some(32 << 8));
    }
}
