//! TX_KEEP_CREDENTIALS: what a thread gives up for good, it gives up by the commit.
//!
//! Once a process has given up a privilege, nothing gives it back: an abort after `setuid` of root to a user could not put
//! back what was there. With this flag the kernel's credentials of the thread are those that the program has taken,
//! but for one thing: what was *permitted* to the thread at the beginning stays permitted (capabilities(7)). Nothing of it is
//! effective, so the kernel decides each call as it would without. The library can make it effective, to put everything
//! back; so can code that an attacker has the program run before the commit. That is why it has to be asked for.
//!
//! - What a call changes is found out by a child of the library's that makes it: it has exactly the program's
//!   credentials, and ends. So the rules are the kernel's.
//! - The commit gives up for good, when what was held has gone out. So does another program (`execve`) before it runs, and
//!   a new process or thread before it is made: a kept privilege never goes over `exec`.
//! - A thread that could not have its privileges back so (without CAP_SETUID and CAP_SETGID), or whose process can't make a
//!   child, gives up at once, as without the flag.
#![allow(unsafe_code)] // system calls, and memory that a child shares

use crate::call::Call;
use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::kernel::{self, Credentials};
use crate::tx::{Failure, flags};

use super::processes::host;
use super::{alloc, restored, signals};

/// Room for what a child finds, in bytes: its answer, how many words follow, and the words, of which there are fewer than
/// groups (65,536) and a page.
const ROOM: u64 = 4 * 65_536 + 4096;

/// Whether a transaction of these flags keeps credentials.
///
/// # Errors
/// EINVAL with other threads or processes as members; EBUSY if there are other threads, unless it begins again.
pub fn keeps(asked: u32, again: bool) -> Result<bool, Failure> {
    let refusal = |errno, why: &str| {
        let what = format!("sys_xbegin: TX_KEEP_CREDENTIALS: {why}; no transaction was begun");
        Err(Failure { errno, what, ..Failure::default() })
    };
    if asked & flags::KEEP_CREDENTIALS == 0 {
        return Ok(false);
    }
    if asked & (flags::THREADS | flags::PROCESSES) != 0 {
        return refusal(libc::EINVAL, "it can't be had together with TX_THREADS or TX_PROCESSES");
    }
    match host::threads_of_the_program() {
        Some(1) => Ok(true),
        _ if again => Ok(false),
        Some(_) => refusal(
            libc::EBUSY,
            "the process has other threads, which would give up for good what this one keeps",
        ),
        None => refusal(libc::ENOTSUP, "/proc/self is not there"),
    }
}

/// Makes a call that changes credentials, for a program that has those which it has `seen` (`None`: the kernel's). Gives its
/// answer, and what the program has now if the kernel has more for it. `None`: it is to be made as it is; nothing has changed.
pub fn call(
    call: &Call,
    seen: Option<&Credentials>,
    began: &Credentials,
) -> Option<(i64, Option<Credentials>)> {
    if !began.can_take_others() || !kernel::can_keep_capabilities() {
        return None;
    }
    let present = Credentials::now();
    let seen = seen.unwrap_or(&present);
    let (answer, found) = try_out(call, seen).ok()?;
    if !found.is_within(began) {
        return None;
    }
    let kept = found.permitting_as(began);
    if kept.put_in_force().is_err() {
        have_or_end(&present);
        return None;
    }
    Some((answer, (kept != found).then_some(found)))
}

/// The thread has these from here on; else the process ends.
pub fn have_or_end(credentials: &Credentials) {
    if credentials.put_in_force().is_err() {
        restored::end("the thread can't have the credentials that it is to have");
    }
}

/// `capget(2)` of the thread itself: what was given up is not permitted.
pub fn ask(seen: &Credentials, call: &Call) -> i64 {
    const ONE_HALF: u32 = 0x1998_0330;
    let answer = call.make();
    let (header, sets) = (call.pointer::<[u32; 2]>(0), call.pointer::<[u32; 3]>(1));
    let Ok([version, thread]) = header.read() else { return answer };
    let is_own = thread == 0 || thread as i32 == kernel::own_thread();
    if answer != 0 || sets.is_null() || !is_own {
        return answer;
    }
    let halves = if version == ONE_HALF { 1 } else { 2 };
    for (at, permitted) in seen.permitted().into_iter().enumerate().take(halves) {
        let set = sets.item(at as u64);
        let told = set.read().and_then(|[e, _, i]| set.write([e, permitted, i]));
        if told.is_err() {
            return -i64::from(libc::EFAULT);
        }
    }
    answer
}

/// What a call answers, and makes of these credentials: a child makes it, that has a copy of the memory.
fn try_out(call: &Call, seen: &Credentials) -> Sys<(i64, Credentials)> {
    let shared = Shared::new()?;
    // SAFETY: the child is a copy that goes on here, on its own copy of this stack. The process has no other thread, so
    // that nobody holds a lock that the child needs. Nobody is told of its end.
    let child = check(unsafe { syscall(libc::SYS_clone, [0; 6]) })?;
    if child == 0 {
        signals::block_all();
        alloc::after_fork();
        let tried = seen.put_in_force().map(|()| call.make());
        let done = tried.is_ok_and(|answer| shared.tell(answer, &Credentials::now().to_words()));
        loop {
            // SAFETY: nothing comes after it.
            unsafe { syscall(libc::SYS_exit_group, [u64::from(!done), 0, 0, 0, 0, 0]) };
        }
    }
    let mut status = 0_i32;
    let words = [child, &raw mut status as u64, libc::__WALL as u64, 0, 0, 0];
    loop {
        // SAFETY: the kernel writes the status.
        match check(unsafe { syscall(libc::SYS_wait4, words) }) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) if status != 0 => return Err(Errno::PERM),
            Ok(_) => return shared.told().ok_or(Errno::IO),
        }
    }
}

/// Memory in which the child says what it has found.
struct Shared(*mut u8);

impl Shared {
    fn new() -> Sys<Shared> {
        let (kind, access) =
            (libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        let words = [0, ROOM, access as u64, kind as u64, u64::MAX, 0];
        // SAFETY: new memory.
        let at = check(unsafe { syscall(libc::SYS_mmap, words) })?;
        Ok(Shared(at as *mut u8))
    }

    /// In the child: whether there was room.
    fn tell(&self, answer: i64, words: &[u32]) -> bool {
        if 16 + 4 * words.len() as u64 > ROOM {
            return false;
        }
        // SAFETY: there is room for two numbers, and so many words; only the child uses it now.
        unsafe {
            self.0.cast::<i64>().write(answer);
            self.0.cast::<u64>().add(1).write(words.len() as u64);
            let to = self.0.cast::<u32>().add(4);
            to.copy_from_nonoverlapping(words.as_ptr(), words.len());
        }
        true
    }

    /// When the child has ended.
    fn told(&self) -> Option<(i64, Credentials)> {
        // SAFETY: two numbers are there, and as many words as were checked; nobody else has the memory any more.
        let (answer, words) = unsafe {
            let count = self.0.cast::<u64>().add(1).read();
            let count = usize::try_from(count).ok().filter(|&n| 16 + 4 * n as u64 <= ROOM)?;
            let words = std::slice::from_raw_parts(self.0.cast::<u32>().add(4), count);
            (self.0.cast::<i64>().read(), words.to_vec())
        };
        Some((answer, Credentials::from_words(&words)?))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it is this one's, and nothing leads there any more.
        unsafe { syscall(libc::SYS_munmap, [self.0 as u64, ROOM, 0, 0, 0, 0]) };
    }
}
