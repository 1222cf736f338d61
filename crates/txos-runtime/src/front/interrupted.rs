//! A signal that came while the library was at work on a call of the program's that waits.
//!
//! Natively the kernel ends such a call with EINTR, once it waits. Here the call is the kernel's only after the library has
//! seen to it, with all signals held back: handlers of those that came meanwhile would run, and then the call would wait, for a
//! program that has nothing more to wait for. So their handlers run, and the call ends as if they had come
//! in its middle.
#![allow(unsafe_code)] // the program's own calls, in forms that do not wait

use super::dispatch::is_over;
use crate::call::Call;
use crate::raw::{Errno, check, syscall};
use crate::tx::waits::polls;

const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// Whether a signal ends a call also if its handler has calls go on (`SA_RESTART`), as signal(7) says.
pub fn never_restarts(number: i64) -> bool {
    polls(number)
        || matches!(
            number,
            libc::SYS_nanosleep
                | libc::SYS_clock_nanosleep
                | libc::SYS_semop
                | libc::SYS_semtimedop
                | libc::SYS_msgrcv
        )
}

/// Makes a call after handlers have run. `restarts`: all of them have calls go on. EINTR, if it would wait now.
pub fn answer(call: &Call, restarts: bool) -> i64 {
    let number = call.number();
    if restarts && !never_restarts(number) {
        return call.make();
    }
    let waits = match number {
        libc::SYS_wait4 => call.int(2) & libc::WNOHANG == 0 && !is_over(call),
        libc::SYS_waitid => call.int(3) & libc::WNOHANG == 0 && !is_over(call),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => {
            return left_to_sleep(call).unwrap_or(INTERRUPTED);
        }
        libc::SYS_accept | libc::SYS_accept4 => !is_nonblocking(call) && !is_ready(call),
        number if polls(number) => has_time(call),
        _ => return at_once(call).unwrap_or_else(|| call.make()),
    };
    if waits { INTERRUPTED } else { call.make() }
}

/// Tells how long a relative sleep has left: all of it. `Some`: it can't be told.
pub fn left_to_sleep(call: &Call) -> Option<i64> {
    let (asked, left) = match call.number() {
        libc::SYS_nanosleep => (0, 1),
        libc::SYS_clock_nanosleep if call.int(1) & libc::TIMER_ABSTIME == 0 => (2, 3),
        _ => return None,
    };
    let (asked, left) = (call.pointer::<[u64; 2]>(asked), call.pointer::<[u64; 2]>(left));
    let told = left.is_null() || asked.read().and_then(|time| left.write(time)).is_ok();
    (!told).then_some(-i64::from(libc::EFAULT))
}

/// Whether one of the calls of `poll` may wait at all.
fn has_time(call: &Call) -> bool {
    let pointed = |index: usize| {
        let time = call.pointer::<[u64; 2]>(index);
        time.is_null() || time.read().is_ok_and(|time| time != [0, 0])
    };
    match call.number() {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => call.int(2) != 0,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => call.int(3) != 0,
        libc::SYS_epoll_pwait => call.int(3) != 0,
        libc::SYS_epoll_pwait2 => pointed(3),
        libc::SYS_ppoll => pointed(2),
        _ => pointed(4),
    }
}

/// Whether its descriptor doesn't wait anyway.
fn is_nonblocking(call: &Call) -> bool {
    let words = [call.word(0), libc::F_GETFL as u64, 0, 0, 0, 0];
    // SAFETY: it takes numbers.
    let flags = unsafe { syscall(libc::SYS_fcntl, words) };
    flags < 0 || flags & i64::from(libc::O_NONBLOCK) != 0
}

/// Whether its descriptor has something for it, or room.
fn is_ready(call: &Call) -> bool {
    let writes = matches!(
        call.number(),
        libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
    );
    let events = if writes { libc::POLLOUT } else { libc::POLLIN };
    let mut one = libc::pollfd { fd: call.int(0), events, revents: 0 };
    let now = [0_u64; 2];
    let words = [(&raw mut one) as u64, 1, now.as_ptr() as u64, 0, 0, 0];
    // SAFETY: the kernel reads the time, and reads and writes the one structure.
    unsafe { syscall(libc::SYS_ppoll, words) != 0 }
}

/// Makes a call that moves bytes as far as it goes without a wait. `None`: it is another kind of call.
fn at_once(call: &Call) -> Option<i64> {
    const HERE: u64 = u64::MAX;
    const NOWAIT: u64 = libc::RWF_NOWAIT as u64;
    let [fd, at, count, ..] = *call.words();
    let buffer = [at, count];
    let one = [fd, buffer.as_ptr() as u64, 1, HERE, HERE, NOWAIT];
    let many = [fd, at, count, HERE, HERE, NOWAIT];
    let with = |index: usize| {
        let mut words = *call.words();
        words[index] |= libc::MSG_DONTWAIT as u64;
        (call.number(), words)
    };
    let (number, words) = match call.number() {
        libc::SYS_read if count > 0 => (libc::SYS_preadv2, one),
        libc::SYS_readv => (libc::SYS_preadv2, many),
        libc::SYS_write if count > 0 => (libc::SYS_pwritev2, one),
        libc::SYS_writev => (libc::SYS_pwritev2, many),
        libc::SYS_recvfrom | libc::SYS_sendto | libc::SYS_recvmmsg | libc::SYS_sendmmsg => with(3),
        libc::SYS_recvmsg | libc::SYS_sendmsg => with(2),
        _ => return None,
    };
    if words == *call.words() || is_nonblocking(call) {
        return Some(call.make());
    }
    // SAFETY: the program's own call in a form that does not wait, with its pointers.
    Some(match check(unsafe { syscall(number, words) }) {
        Ok(done) => done as i64,
        // It would wait; or it has no such form here, or is one of a file, whose disk no signal interrupts.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::SPIPE) => {
            if is_ready(call) {
                call.make()
            } else {
                INTERRUPTED
            }
        }
        Err(errno) => -i64::from(errno.raw_os_error()),
    })
}
