//! Scheduling classes; the process group.
//!
//! # Safety
//!
//! System calls on numbers, one of which writes to a structure on the stack.
#![allow(unsafe_code)]

use rustix::process::Pid;

/// The process group of this process. `None` if it has no number here: its leader is outside of this
/// PID namespace, or it is the one of the kernel, in which everything begins. (`rustix::process::getpgrp` knows
/// of no such thing.)
#[must_use]
pub fn process_group() -> Option<Pid> {
    // SAFETY: no memory is involved.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

/// How a thread is scheduled, as far as it says how important it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// SCHED_FIFO, SCHED_RR (priority 1 to 99) or SCHED_DEADLINE (above them).
    Realtime(i32),
    /// Everything between.
    Normal,
    /// SCHED_IDLE.
    Idle,
}

/// The class of a thread (sched_getscheduler(2)); of one that is gone: normal.
pub(crate) fn class(thread: u32) -> Class {
    let thread = thread.cast_signed();
    // SAFETY: no memory is involved.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    match policy {
        libc::SCHED_DEADLINE => Class::Realtime(100),
        libc::SCHED_FIFO | libc::SCHED_RR => {
            let mut param = libc::sched_param { sched_priority: 0 };
            // SAFETY: `param` is a valid sched_param for the kernel to fill in.
            unsafe { libc::sched_getparam(thread, &raw mut param) };
            Class::Realtime(param.sched_priority)
        }
        libc::SCHED_IDLE => Class::Idle,
        _ => Class::Normal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_is_no_realtime_thread() {
        assert!(!matches!(class(0), Class::Realtime(_)));
        assert_eq!(class(u32::MAX), Class::Normal);
    }
}
