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

/// What a descriptor of `signalfd(2)` has told of a signal, as the kernel tells it elsewhere.
#[must_use]
pub fn told_by_descriptor(told: &Info) -> Info {
    const SI_KERNEL: i32 = 0x80;
    let high = |word: usize| told[word] >> 32;
    let low = |word: usize| told[word] & 0xffff_ffff;
    let (signal, code) = (told[0] as i32, told[1] as i32);
    let sender = high(1) | told[2] << 32;
    let rest = match (code, signal) {
        (libc::SI_TIMER, _) => [low(3) | told[4] << 32, told[6], 0, 0],
        (libc::SI_SIGIO, _) | (1..SI_KERNEL, libc::SIGIO) => [high(3), high(2), 0, 0],
        (1..SI_KERNEL, libc::SIGCHLD) => [sender, low(5), told[7], told[8]],
        (
            1..SI_KERNEL,
            libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP,
        ) => [told[9], 0, 0, 0],
        _ => [sender, told[6], 0, 0],
    };
    let mut info: Info = [0; 16];
    (info[0], info[1]) = (told[0], low(1));
    info[2..6].copy_from_slice(&rest);
    info
}

/// Whether a signal waits for the calling thread or its process; 0 is none.
#[must_use]
pub fn is_pending(signal: i32) -> bool {
    let mut pending = 0_u64;
    // SAFETY: the kernel writes the set.
    let _ = unsafe { sys!(SYS_rt_sigpending, &raw mut pending, size_of::<u64>()) };
    (1..=64).contains(&signal) && pending >> (signal - 1) & 1 != 0
}

/// Takes those signals away that wait, and of which `is_it` says so: they have a number, which the calling thread has blocked. The
/// others with that number wait again.
pub fn drop_pending(signal: i32, is_it: impl Fn(&Info) -> bool) {
    if !is_pending(signal) {
        return;
    }
    let (set, now) = (1_u64 << (signal - 1), [0_u64; 2]);
    /// More than can wait at once by default: others may go on sending.
    const MOST: usize = 100_000;
    let mut others = Vec::new();
    for _ in 0..MOST {
        let mut info: Info = [0; 16];
        // SAFETY: the kernel reads the set and the time, and writes what it tells.
        let taken = unsafe {
            sys!(SYS_rt_sigtimedwait, &raw const set, info.as_mut_ptr(), now.as_ptr(), 8)
        };
        match taken {
            Ok(_) if is_it(&info) => {}
            Ok(_) => others.push(info),
            Err(_) => break,
        }
    }
    for info in others {
        // Only the first thread may say of a signal to its process that the kernel, or another process, has sent it.
        let own = own_process();
        if info[1] as i32 == libc::SI_TKILL || queue(own, signal, &info).is_err() {
            let _ = queue_to_thread(own, super::own_thread(), signal, &info);
        }
    }
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

/// `getppid(2)`.
#[must_use]
pub fn parent() -> i32 {
    // SAFETY: it takes nothing.
    unsafe { sys!(SYS_getppid) }.map_or(0, |number| number as i32)
}

/// This signal comes when the thread of the parent that made this process ends (`PR_SET_PDEATHSIG`).
///
/// # Errors
/// As `prctl(2)`.
pub fn die_with_parent(signal: i32) -> Sys<()> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_prctl, libc::PR_SET_PDEATHSIG, signal) }.map(drop)
}

/// The process group of a process; 0: of this one.
///
/// # Errors
/// As `getpgid(2)`.
pub fn group_of(process: i32) -> Sys<i32> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_getpgid, process) }.map(|number| number as i32)
}

/// `setpgid(2)`; 0: this process, a group of its own.
///
/// # Errors
/// As `setpgid(2)`.
pub fn set_group_of(process: i32, group: i32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_setpgid, process, group) }
}

/// Whether a process has run a program since it was forked. `None`: `/proc` does not say.
#[must_use]
pub fn runs_another_program(process: i32) -> Option<bool> {
    /// `PF_FORKNOEXEC`.
    const AS_FORKED: u64 = 1 << 6;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name is in brackets, and may have any in it. State, parent, group, session, terminal and its group come before the flags.
    let flags = text.rsplit_once(')')?.1.split_ascii_whitespace().nth(6)?;
    Some(flags.parse::<u64>().ok()? & AS_FORKED == 0)
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
pub(super) fn number_in<T: std::str::FromStr>(path: &str, name: &str) -> Option<T> {
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
    number_in(&format!("/proc/self/fdinfo/{fd}"), "Pid:").filter(|&number: &i32| number > 0)
}

/// The process that `pidfd_send_signal(2)` sends to with these flags, if that is the only one.
#[must_use]
pub fn process_of_signal(fd: i32, flags: u32) -> Option<i32> {
    /// `PIDFD_SIGNAL_PROCESS_GROUP`, from Linux 6.9 on.
    const GROUP: u32 = 1 << 2;
    process_of_descriptor(fd).filter(|_| flags & GROUP == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_descriptor_tells_of_a_signal_is_where_others_look_for_it() {
        let told = |signal: i32, code: i32| {
            let mut all: Info = std::array::from_fn(|i| (i as u64) << 32 | 0x100 | i as u64);
            all[0] = signal as u64;
            all[1] = 7 << 32 | u64::from(code.cast_unsigned());
            told_by_descriptor(&all)
        };
        const LOW: u64 = 0xffff_ffff;
        let sender = 7 | 0x102 << 32;
        assert_eq!(told(libc::SIGUSR1, 0)[2..5], [sender, 6 << 32 | 0x106, 0]);
        assert_eq!(
            told(libc::SIGUSR1, libc::SI_QUEUE)[1],
            u64::from(libc::SI_QUEUE.cast_unsigned())
        );
        let child = told(libc::SIGCHLD, libc::CLD_EXITED);
        assert_eq!(child[2..6], [sender, 0x105, 7 << 32 | 0x107, 8 << 32 | 0x108]);
        assert_eq!(told(40, libc::SI_TIMER)[2..4], [0x103 | 0x104 << 32, 6 << 32 | 0x106]);
        assert_eq!(told(libc::SIGIO, 1)[2..4], [3, 2]);
        assert_eq!(told(libc::SIGBUS, 1)[2..4], [9 << 32 | 0x109, 0]);
        assert_eq!(told(libc::SIGTERM, 0)[0] & LOW, libc::SIGTERM as u64);
    }
}
