//! Atomics and waiting: what the model checker exchanges.
//!
//! Everything in the realm that more than one process touches goes through this module. Under
//! `--cfg loom` the same code runs on the model's atomics, and time, sleep and death are simulated.

#[cfg(loom)]
pub(super) use super::model::sync::*;
pub(super) use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64};
/// Words that no step's safety depends on.
pub(super) use std::sync::atomic::{AtomicU32 as Note32, AtomicU64 as Note64};

#[cfg(not(loom))]
pub(super) use real::*;

/// What the model leaves out, to see that it then finds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To look at a record again once its holder is pinned.
    LookAgain,
    /// To see at the publish that one is doomed.
    LookWhetherDoomed,
    /// To hold everything until the transaction has ended.
    HoldToTheEnd,
    /// To hold firmly what is about to be published.
    HoldFirmly,
    /// To count a publish before what it holds is released.
    CountPublish,
}

#[cfg(not(loom))]
mod real {
    use std::time::Duration;

    use rustix::event::Timespec;
    use rustix::thread::futex;

    use super::{AtomicU32, Ordering, Step};

    /// Below this, waiting is spinning: falling asleep and being woken costs more.
    const SPIN_MAX: Duration = Duration::from_micros(4);

    /// Orders what this thread wrote before against what it reads after, for both sides of a
    /// "write mine, then look at yours".
    pub fn full_fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// A full fence after a read-modify-write with `SeqCst`, which on x86 is one already.
    #[inline]
    pub fn fence_after_swap() {
        #[cfg(target_arch = "x86_64")]
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        full_fence();
    }

    /// Nanoseconds of a clock that all processes of a machine share.
    pub fn now_ns() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }

    /// Waits until the bell has rung since it showed `before`, or the time is over.
    pub fn wait(bell: &AtomicU32, before: u32, time: Duration) {
        if time <= SPIN_MAX {
            for _ in 0..time.as_nanos() / 16 {
                if bell.load(Ordering::Acquire) != before {
                    return;
                }
                std::hint::spin_loop();
            }
            return;
        }
        let Ok(timeout) = Timespec::try_from(time) else { return };
        // Whatever it answers, the caller looks at what it waits for again.
        let _ = futex::wait(bell, futex::Flags::empty(), before, Some(&timeout));
    }

    /// Wakes everybody who waits at the bell.
    pub fn ring(bell: &AtomicU32) {
        bell.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Sleeps, whatever happens.
    pub fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    /// Whether the model leaves a step out.
    #[inline]
    pub const fn left_out(_step: Step) -> bool {
        false
    }
}
