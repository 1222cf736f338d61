//! Signals to other processes, and what keeps their numbers from being another's.

use super::{Errno, OwnedFd, Sys, sys};

/// What `sigqueue(3)` says of a signal: `siginfo_t`, word by word.
pub type Info = [u64; 16];

/// `kill(2)`; signal 0 only asks.
///
/// # Errors
/// As `kill(2)`.
pub fn kill(process: i32, signal: i32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_kill, process, signal) }
}

/// `tgkill(2)`; signal 0 only asks.
///
/// # Errors
/// As `tgkill(2)`.
pub fn kill_thread(process: i32, thread: i32, signal: i32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_tgkill, process, thread, signal) }
}

/// `rt_tgsigqueueinfo(2)`; signal 0 only asks.
///
/// # Errors
/// As `rt_tgsigqueueinfo(2)`.
pub fn queue_to_thread(process: i32, thread: i32, signal: i32, info: &Info) -> Sys<u64> {
    // SAFETY: the kernel reads what is there.
    unsafe { sys!(SYS_rt_tgsigqueueinfo, process, thread, signal, info.as_ptr()) }
}

/// `rt_sigqueueinfo(2)`; signal 0 only asks.
///
/// # Errors
/// As `rt_sigqueueinfo(2)`.
pub fn queue(process: i32, signal: i32, info: &Info) -> Sys<u64> {
    // SAFETY: the kernel reads what is there.
    unsafe { sys!(SYS_rt_sigqueueinfo, process, signal, info.as_ptr()) }
}

/// `pidfd_send_signal(2)`; signal 0 only asks.
///
/// # Errors
/// As `pidfd_send_signal(2)`.
pub fn send_signal(process: &OwnedFd, signal: i32, info: Option<&Info>, flags: u32) -> Sys<u64> {
    let info = info.map_or(std::ptr::null(), |info| info.as_ptr());
    // SAFETY: the kernel reads what is there, if there is something.
    unsafe { sys!(SYS_pidfd_send_signal, process.number(), signal, info, flags) }
}

/// `pidfd_open(2)`, with a number that is out of the program's way.
///
/// # Errors
/// As `pidfd_open(2)`; EMFILE.
pub fn open_process(process: i32) -> Sys<OwnedFd> {
    // SAFETY: it has no pointers.
    let fd = unsafe { sys!(SYS_pidfd_open, process, 0) }?;
    OwnedFd::of(fd as i32).raised()
}

/// `pidfd_open(2)` of one thread (Linux 6.9), as [`open_process`].
///
/// # Errors
/// As `pidfd_open(2)`; EINVAL with an older kernel.
pub fn open_thread(thread: i32) -> Sys<OwnedFd> {
    const PIDFD_THREAD: i32 = libc::O_EXCL;
    // SAFETY: it has no pointers.
    let fd = unsafe { sys!(SYS_pidfd_open, thread, PIDFD_THREAD) }?;
    OwnedFd::of(fd as i32).raised()
}

/// Whether a process that is held is there still, be it that it has ended and its parent has not asked for it yet:
/// so long nobody else gets its number.
#[must_use]
pub fn is_there(process: &OwnedFd) -> bool {
    !matches!(send_signal(process, 0, None, 0), Err(Errno::SRCH))
}

/// This process.
#[must_use]
pub fn own_process() -> i32 {
    // SAFETY: it takes nothing.
    unsafe { sys!(SYS_getpid) }.map_or(0, |number| number as i32)
}

/// The process group of a process; 0: of this one.
///
/// # Errors
/// As `getpgid(2)`.
pub fn group_of(process: i32) -> Sys<i32> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_getpgid, process) }.map(|number| number as i32)
}

/// `setpgid(2)` of this process; 0: a group of its own.
///
/// # Errors
/// As `setpgid(2)`.
pub fn set_group(group: i32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_setpgid, 0, group) }
}

/// `setsid(2)`.
///
/// # Errors
/// As `setsid(2)`.
pub fn new_session() -> Sys<u64> {
    // SAFETY: it takes nothing.
    unsafe { sys!(SYS_setsid) }
}

/// The session of a process; 0: of this one.
///
/// # Errors
/// As `getsid(2)`.
pub fn session_of(process: i32) -> Sys<i32> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_getsid, process) }.map(|number| number as i32)
}

/// All processes that can be seen.
#[must_use]
pub fn processes() -> Vec<i32> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// A number that `/proc` has in a line of a file, behind a name.
pub(super) fn number_in(path: &str, name: &str) -> Option<i32> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

/// The process that a thread is of.
#[must_use]
pub fn process_of_thread(thread: i32) -> Option<i32> {
    number_in(&format!("/proc/{thread}/status"), "Tgid:")
}

/// The parent of a process.
#[must_use]
pub fn parent_of(process: i32) -> Option<i32> {
    number_in(&format!("/proc/{process}/status"), "PPid:")
}

/// The process that a descriptor is of.
#[must_use]
pub fn process_of_descriptor(fd: i32) -> Option<i32> {
    number_in(&format!("/proc/self/fdinfo/{fd}"), "Pid:").filter(|&number| number > 0)
}

/// The process that `pidfd_send_signal(2)` sends to with these flags, if that is the only one.
#[must_use]
pub fn process_of_signal(fd: i32, flags: u32) -> Option<i32> {
    /// `PIDFD_SIGNAL_PROCESS_GROUP`, from Linux 6.9 on.
    const GROUP: u32 = 1 << 2;
    process_of_descriptor(fd).filter(|_| flags & GROUP == 0)
}
