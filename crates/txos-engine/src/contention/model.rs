//! A small world in which transactions take objects, meet and arbitrate: what no table shows.
//!
//! A step is one transaction's: it takes its next object, or arbitrates with whoever holds it, or
//! commits and begins anew. Each round every transaction that does not sleep makes one step, in an
//! order drawn from a seed. Who waits is known to wait; it sleeps for a turn, or until the other
//! ends. Before a restart there is a pause.

use std::time::Duration;

use super::Decision::{AbortOther, AbortSelf, Wait};
use super::*;

/// Objects in the world.
const OBJECTS: u64 = 8;
/// The most objects that a transaction takes.
const LONGEST: u64 = 12;
/// Transactions at a time.
const RUNNING: usize = 6;
/// Rounds played with each seed.
const ROUNDS: u64 = 20_000;
/// A round of about what a facet costs.
const AS_LONG_AS_A_FACET: Duration = Duration::from_micros(10);
/// A round of the longest pause: every pause is over at the next.
const AS_LONG_AS_ANY_PAUSE: Duration = backoff::LONGEST;

/// A repeatable sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end
    }
}

/// A transaction: what counts about it, what it takes, how far it is, on whom it waits and has
/// waited how often, and until which round it sleeps.
struct Running {
    facts: Contender,
    takes: Vec<u64>,
    next: usize,
    waits_on: Option<(usize, u32)>,
    sleeps_until: u64,
}

struct World {
    policy: Policy,
    round: Duration,
    /// How many different priorities there are.
    priorities: u64,
    numbers: Numbers,
    now: u64,
    all: Vec<Running>,
    commits: u64,
    /// The most rounds from the first attempt to the commit, of any.
    slowest: u64,
}

impl World {
    fn new(policy: Policy, seed: u64, round: Duration, priorities: u64) -> World {
        let mut world = World {
            policy,
            round,
            priorities,
            numbers: Numbers(seed),
            now: 0,
            all: Vec::new(),
            commits: 0,
            slowest: 0,
        };
        for slot in 0..RUNNING {
            let fresh = world.fresh(slot);
            world.all.push(fresh);
        }
        world
    }

    fn fresh(&mut self, slot: usize) -> Running {
        // The last slot's are always long ones.
        let long = slot == RUNNING - 1;
        let length = if long { LONGEST } else { 1 + self.numbers.below(LONGEST) };
        let takes = (0..length).map(|_| self.numbers.below(OBJECTS)).collect();
        let facts = Contender {
            priority: i32::try_from(slot as u64 % self.priorities).unwrap(),
            start_ns: self.now,
            slot: u32::try_from(slot).unwrap(),
            work: 0,
            size: 0,
            restarts: 0,
            waiting: false,
        };
        Running { facts, takes, next: 0, waits_on: None, sleeps_until: 0 }
    }

    fn holder(&self, object: u64) -> Option<usize> {
        self.all.iter().position(|r| r.takes[..r.next].contains(&object))
    }

    /// The seed of a transaction's pauses.
    fn seed(&self, who: usize) -> u64 {
        self.now ^ (who as u64) << 32
    }

    /// The first round after a pause that begins now.
    fn after(&self, pause: Duration) -> u64 {
        self.now + u64::try_from(pause.as_nanos().div_ceil(self.round.as_nanos())).unwrap()
    }

    fn restart(&mut self, who: usize) {
        let restarts = self.all[who].facts.restarts + 1;
        let until = self.after(backoff::before_restart(restarts, self.seed(who)));
        let running = &mut self.all[who];
        (running.next, running.waits_on) = (0, None);
        (running.facts.size, running.facts.waiting) = (0, false);
        (running.facts.restarts, running.sleeps_until) = (restarts, until);
        self.wake(who);
    }

    /// Wakes those that wait on one that has ended.
    fn wake(&mut self, ended: usize) {
        for running in &mut self.all {
            if running.waits_on.is_some_and(|w| w.0 == ended) {
                running.sleeps_until = 0;
            }
        }
    }

    fn step(&mut self, me: usize) {
        let running = &self.all[me];
        if self.now < running.sleeps_until {
            return;
        }
        let Some(&object) = running.takes.get(running.next) else {
            self.slowest = self.slowest.max(self.now - running.facts.start_ns);
            self.commits += 1;
            self.all[me] = self.fresh(me);
            self.wake(me);
            return;
        };
        let waited = self.all[me].waits_on.take();
        if let Some(other) = self.holder(object).filter(|&other| other != me) {
            let turn = waited.filter(|w| w.0 == other).map_or(0, |w| w.1);
            let (mine, others) = (&self.all[me].facts, &self.all[other].facts);
            match arbitrate(self.policy, mine, others, turn).decision {
                Wait => {
                    assert!(!others.waiting);
                    self.all[me].waits_on = Some((other, turn + 1));
                    self.all[me].facts.waiting = true;
                    self.all[me].sleeps_until = self.after(backoff::pause(turn, self.seed(me)));
                    self.assert_no_deadlock();
                    return;
                }
                AbortSelf => return self.restart(me),
                AbortOther => self.restart(other),
            }
        }
        let running = &mut self.all[me];
        running.facts.waiting = false;
        running.next += 1;
        running.facts.work += 1;
        running.facts.size += 1;
    }

    /// Who follows the waits from anybody comes to somebody who runs.
    fn assert_no_deadlock(&self) {
        for from in 0..RUNNING {
            let mut at = from;
            for steps in 0.. {
                assert!(steps < RUNNING, "{}: a cycle of waits", self.policy);
                match self.all[at].waits_on {
                    Some((next, _)) => at = next,
                    None => break,
                }
            }
        }
    }

    fn play(mut self) -> World {
        for _ in 0..ROUNDS {
            self.now += 1;
            let mut order: Vec<usize> = (0..RUNNING).collect();
            for i in (1..RUNNING).rev() {
                let j = self.numbers.below(i as u64 + 1);
                order.swap(i, usize::try_from(j).unwrap());
            }
            for me in order {
                self.step(me);
            }
        }
        // Those that never got to their end count as well.
        for running in &self.all {
            self.slowest = self.slowest.max(self.now - running.facts.start_ns);
        }
        self
    }
}

/// Plays with some seeds.
fn play(policy: Policy, round: Duration, priorities: u64, check: impl Fn(&World, u64)) {
    for seed in 0..20 {
        check(&World::new(policy, seed, round, priorities).play(), seed);
    }
}

#[test]
fn no_policy_deadlocks_and_some_always_commit() {
    for policy in Policy::ALL {
        play(policy, AS_LONG_AS_A_FACET, 2, |world, seed| {
            // One that nobody disturbs takes seven rounds on average.
            let enough = ROUNDS / 7 / 2;
            assert!(world.commits > enough, "{policy}, seed {seed}: {}", world.commits);
        });
        // Here nobody has the patience to let a long one end. Still no deadlock.
        play(policy, AS_LONG_AS_ANY_PAUSE, 2, |world, seed| {
            assert!(world.commits > 0, "{policy}, seed {seed}");
        });
    }
}

#[test]
fn nobody_starves_where_it_is_said() {
    // The oldest takes an object a round, after a pause and before the round of its commit; and at
    // most all others were older when it began.
    let once_oldest = LONGEST + 2;
    let by_age = RUNNING as u64 * once_oldest;
    // By size it may lose every attempt up to the fourth restart, with eight turns at each object.
    let by_size_first = RUNNING as u64 * (4 * LONGEST * 9 + once_oldest);
    for (policy, bound) in [
        (Policy::Timestamp, by_age),
        (Policy::OsPriority, by_age),
        (Policy::SizeMatters, by_size_first),
    ] {
        play(policy, AS_LONG_AS_ANY_PAUSE, 1, |world, seed| {
            assert!(world.slowest <= bound, "{policy}, seed {seed}: {} rounds", world.slowest);
        });
    }
}

#[test]
fn lower_priorities_starve_under_os_priority_as_is_said() {
    play(Policy::OsPriority, AS_LONG_AS_A_FACET, 2, |world, seed| {
        assert!(world.slowest > ROUNDS / 4, "seed {seed}: {} rounds", world.slowest);
    });
}
