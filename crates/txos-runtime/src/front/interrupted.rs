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
                | libc::SYS_rt_sigsuspend
        )
}

/// The answer of a call after handlers have run. `restarts`: all of them have calls go on. EINTR, if it would wait now;
/// `None`: it is to be made as ever.
pub fn answer(call: &Call, restarts: bool) -> Option<i64> {
    let number = call.number();
    if restarts && !never_restarts(number) {
        return None;
    }
    let waits = match number {
        // Another signal than the one that it waits for ends it, too.
        libc::SYS_rt_sigsuspend => true,
        libc::SYS_wait4 => call.int(2) & libc::WNOHANG == 0 && !is_over(call),
        libc::SYS_waitid => {
            call.uint(0) != libc::P_PIDFD && call.int(3) & libc::WNOHANG == 0 && !is_over(call)
        }
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => {
            return has_time_to_sleep(call).then(|| left_to_sleep(call).unwrap_or(INTERRUPTED));
        }
        libc::SYS_accept | libc::SYS_accept4 => !is_nonblocking(call) && !is_ready(call),
        number if polls(number) => return Some(polled(call)),
        _ => return at_once(call),
    };
    waits.then_some(INTERRUPTED)
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

/// Whether a time is one to wait for.
fn has_time_to_sleep(call: &Call) -> bool {
    let (clock, absolute, at) = match call.number() {
        libc::SYS_nanosleep => (0, false, 0),
        _ => (call.word(0), call.int(1) & libc::TIMER_ABSTIME != 0, 2),
    };
    let Ok(time) = call.pointer::<[i64; 2]>(at).read() else { return false };
    let mut now = [0_i64; 2];
    if absolute {
        // SAFETY: the kernel writes the time.
        let told =
            unsafe { syscall(libc::SYS_clock_gettime, [clock, (&raw mut now) as u64, 0, 0, 0, 0]) };
        if told != 0 {
            return false;
        }
    }
    time[0] >= 0 && (0..1_000_000_000).contains(&time[1]) && time > now
}

/// Makes one of the calls of `poll`: what is there counts before the signal.
fn polled(call: &Call) -> i64 {
    let now = [0_u64; 2];
    let (index, is_number) = match call.number() {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => (2, true),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => (3, true),
        libc::SYS_epoll_pwait => (3, true),
        libc::SYS_epoll_pwait2 => (3, false),
        libc::SYS_ppoll => (2, false),
        // `select` takes away what it does not find: after a signal it is to be as it was.
        _ => return if has_time(call, 4) { INTERRUPTED } else { call.make() },
    };
    let waits = if is_number { call.int(index) != 0 } else { has_time(call, index) };
    if !waits {
        return call.make();
    }
    let word = if is_number { 0 } else { now.as_ptr() as u64 };
    // SAFETY: the time lives until the answer.
    match unsafe { call.with_word(index, word) }.make() {
        0 => INTERRUPTED,
        found => found,
    }
}

/// Whether the time that an argument leads to is one to wait for.
fn has_time(call: &Call, index: usize) -> bool {
    let time = call.pointer::<[u64; 2]>(index);
    time.is_null() || time.read().is_ok_and(|time| time != [0, 0])
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

/// Whether its descriptor leads to what no signal interrupts: a file, a directory, a disk.
fn is_of_a_disk(call: &Call) -> bool {
    // SAFETY: plain numbers.
    let mut there: libc::stat = unsafe { std::mem::zeroed() };
    let words = [call.word(0), (&raw mut there) as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes the structure.
    let looked = unsafe { syscall(libc::SYS_fstat, words) };
    looked != 0
        || matches!(there.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK)
}

/// Makes a call that moves bytes, or takes a lock, as far as it goes without a wait. `None`: it is another kind of call.
fn at_once(call: &Call) -> Option<i64> {
    const HERE: u64 = u64::MAX;
    const NOWAIT: u64 = libc::RWF_NOWAIT as u64;
    /// Whether these wait is another matter.
    const OTHER: i32 = libc::MSG_ERRQUEUE | libc::MSG_OOB | libc::MSG_FASTOPEN;
    let [fd, at, count, ..] = *call.words();
    let buffer = [at, count];
    let one = [fd, buffer.as_ptr() as u64, 1, HERE, HERE, NOWAIT];
    let many = [fd, at, count, HERE, HERE, NOWAIT];
    let with = |index: usize, flags: i32| {
        let mut words = *call.words();
        words[index] |= flags as u64;
        (call.number(), words)
    };
    let of_message = |index: usize| match call.int(index) & OTHER {
        0 => with(index, libc::MSG_DONTWAIT),
        _ => (call.number(), *call.words()),
    };
    let lock = |command: i32| (libc::SYS_fcntl, [fd, command as u64, count, 0, 0, 0]);
    let (number, words) = match call.number() {
        libc::SYS_read if count > 0 => (libc::SYS_preadv2, one),
        libc::SYS_readv => (libc::SYS_preadv2, many),
        libc::SYS_write if count > 0 => (libc::SYS_pwritev2, one),
        libc::SYS_writev => (libc::SYS_pwritev2, many),
        libc::SYS_recvfrom | libc::SYS_sendto | libc::SYS_recvmmsg | libc::SYS_sendmmsg => {
            of_message(3)
        }
        libc::SYS_recvmsg | libc::SYS_sendmsg => of_message(2),
        libc::SYS_flock => with(1, libc::LOCK_NB),
        libc::SYS_fcntl if call.int(1) == libc::F_SETLKW => lock(libc::F_SETLK),
        libc::SYS_fcntl if call.int(1) == libc::F_OFD_SETLKW => lock(libc::F_OFD_SETLK),
        _ => return None,
    };
    let locks = matches!(call.number(), libc::SYS_flock | libc::SYS_fcntl);
    let as_asked = number == call.number() && words == *call.words();
    if as_asked || !locks && (is_nonblocking(call) || is_of_a_disk(call)) {
        return Some(call.make());
    }
    // SAFETY: the program's own call in a form that does not wait, with its pointers.
    Some(match check(unsafe { syscall(number, words) }) {
        Ok(done) => done as i64,
        Err(Errno::AGAIN | Errno::ACCESS) if locks => INTERRUPTED,
        // It would wait, or has no such form here.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE) if !is_ready(call) => {
            INTERRUPTED
        }
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE | Errno::INVAL) => {
            call.make()
        }
        Err(errno) => -i64::from(errno.raw_os_error()),
    })
}
