//! Atomics, fences, bells and time of the model.
//!
//! # Invariants
//!
//! - Every operation is one step of the model; a write is also where its process may die.
//! - While a stack is unwound, because its process died or because a check failed, nothing has
//!   any effect: destructors may run.
//! - loom remembers one access to a word, the last, to find those that it must try the other way
//!   round. Who loads a word and then exchanges it hides from it that another one's load came
//!   before. So two loads are made to count as well: each passes a gate, which is written.
//! - A bell is a futex: to look at it and fall asleep is one step, and wakes nobody by chance.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::sync::Step;
use super::world::{self, Sabotage};

/// What a word of the table is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// No role that a test asks for.
    #[default]
    Other,
    /// Written by one, before others can look.
    Fact,
    /// An ownership record.
    Orec,
    /// A slot's owner.
    Owner,
    /// A slot's status.
    Status,
    /// Whom a slot waits for.
    WaitingFor,
    /// Who waits for a slot.
    Waiters,
    /// Who pins a slot.
    Pins,
    /// Who clears a slot up.
    Taker,
    /// The count of publishes that have ended.
    Ended,
    /// A cell of the tiny database.
    Cell,
}

/// The order that an operation has after sabotage.
fn ordering(role: Role, asked: Ordering) -> Ordering {
    if world::sabotage() == Some(Sabotage::Relax(role)) { Ordering::Relaxed } else { asked }
}

macro_rules! atomic {
    ($name:ident, $int:ty) => {
        /// An atomic word of the model.
        #[derive(Debug)]
        pub struct $name {
            word: loom::sync::atomic::$name,
            /// Passed by every load; see above.
            gate: Option<loom::sync::atomic::AtomicU32>,
            role: Role,
        }

        impl Default for $name {
            fn default() -> $name {
                $name::of(Role::Other)
            }
        }

        #[allow(dead_code, reason = "each width has its uses")]
        impl $name {
            /// Zero.
            pub fn of(role: Role) -> $name {
                let gate = (role != Role::Fact).then(|| loom::sync::atomic::AtomicU32::new(0));
                $name { word: loom::sync::atomic::$name::new(0), gate, role }
            }

            /// Does a step, of whose result a dead process learns nothing.
            fn step<R>(&self, write: bool, dead: R, step: impl FnOnce() -> R) -> R {
                if std::thread::panicking() {
                    return dead;
                }
                if write {
                    world::step(self.role);
                }
                step()
            }

            pub fn load(&self, order: Ordering) -> $int {
                if world::sabotage() == Some(Sabotage::Hide(self.role)) {
                    return 0;
                }
                self.step(false, 0, || {
                    if let Some(gate) = &self.gate {
                        gate.fetch_add(1, Ordering::Relaxed);
                    }
                    self.word.load(ordering(self.role, order))
                })
            }

            pub fn store(&self, value: $int, order: Ordering) {
                self.step(true, (), || self.word.store(value, ordering(self.role, order)));
            }

            pub fn swap(&self, value: $int, order: Ordering) -> $int {
                self.step(true, 0, || self.word.swap(value, ordering(self.role, order)))
            }

            pub fn compare_exchange(
                &self,
                before: $int,
                after: $int,
                order: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                if world::sabotage() == Some(Sabotage::Force(self.role)) {
                    self.step(true, (), || self.word.store(after, order.max_store()));
                    return Ok(before);
                }
                self.step(true, Err(0), || {
                    let order = ordering(self.role, order);
                    self.word.compare_exchange(before, after, order, ordering(self.role, failure))
                })
            }

            pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.step(true, 0, || self.word.fetch_add(value, ordering(self.role, order)))
            }

            pub fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                self.step(true, 0, || self.word.fetch_and(value, ordering(self.role, order)))
            }

            pub fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                if world::sabotage() == Some(Sabotage::Hide(self.role)) {
                    return 0;
                }
                self.step(true, 0, || self.word.fetch_or(value, ordering(self.role, order)))
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// The part of an exchange's order that a store can have.
trait MaxStore {
    fn max_store(self) -> Ordering;
}

impl MaxStore for Ordering {
    fn max_store(self) -> Ordering {
        match self {
            Ordering::AcqRel => Ordering::Release,
            Ordering::Acquire => Ordering::Relaxed,
            other => other,
        }
    }
}

/// See the real one.
pub fn full_fence() {
    if !std::thread::panicking() && world::sabotage() != Some(Sabotage::NoFence) {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// See the real one.
pub fn fence_after_swap() {
    if !std::thread::panicking() && world::sabotage() != Some(Sabotage::NoFenceAfterSwap) {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// The clock stands still, at another time for each process.
pub fn now_ns() -> u64 {
    world::clock_ns()
}

/// Sleeps until the bell rings. Times that the scene calls short are over at once, and once
/// somebody has died, every time may be.
pub fn wait(bell: &AtomicU32, before: u32, time: Duration) {
    if std::thread::panicking() || time <= world::patience() {
        return;
    }
    world::step(Role::Other);
    let silent = bell.word.fetch_or(0, Ordering::Relaxed) == before;
    // Nobody comes between from here on.
    if world::somebody_died() {
        loom::thread::yield_now();
    } else if silent {
        world::sleep_at(&raw const *bell);
    }
}

/// Rings a bell. Between the two steps its ringer can die.
pub fn ring(bell: &AtomicU32) {
    if std::thread::panicking() || world::sabotage() == Some(Sabotage::NoBells) {
        return;
    }
    bell.fetch_add(1, Ordering::AcqRel);
    world::wake_at(&raw const *bell);
}

/// Lets others go on.
pub fn sleep(_time: Duration) {
    if !std::thread::panicking() {
        loom::thread::yield_now();
    }
}

/// Whether a step is left out.
pub fn left_out(step: Step) -> bool {
    world::sabotage() == Some(Sabotage::LeaveOut(step))
}
