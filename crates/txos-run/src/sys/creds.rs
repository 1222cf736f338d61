//! Credentials of one thread, and signals sent with those of another process.
//!
//! # Safety
//!
//! The raw system calls change the calling thread only (the C library's wrappers change the whole
//! process). [`assume`] is called on a thread that does nothing else but what the assumed identity asks
//! for, and ends with it. A child of [`send_as`] makes system calls with numbers and live slices only,
//! allocates nothing, and ends in `_exit`.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::WaitOptions;

use super::fork::{self, Fork};

/// Whatever the kernel asks for when it checks what a process may do, as `/proc/PID/status` says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective, saved and file-system user.
    pub users: [u32; 4],
    /// Real, effective, saved and file-system group.
    pub groups: [u32; 4],
    /// Supplementary groups, sorted.
    pub supplementary: Vec<u32>,
    /// Effective capabilities.
    pub capabilities: u64,
}

const CAP_KILL: u64 = 1 << 5;
const CAP_SETGID: u64 = 1 << 6;
const CAP_SETUID: u64 = 1 << 7;

impl Credentials {
    /// Whether the kernel decides alike for both, whatever is asked of files and sockets.
    #[must_use]
    pub fn acts_like(&self, other: &Credentials) -> bool {
        let of = |c: &Credentials| {
            let [_, user, _, files] = c.users;
            let [_, group, _, group_of_files] = c.groups;
            (user, files, group, group_of_files, c.capabilities)
        };
        of(self) == of(other) && self.supplementary == other.supplementary
    }

    /// Whether a thread with these can take those of anybody.
    #[must_use]
    pub fn can_switch(&self) -> bool {
        let needed = CAP_SETGID | CAP_SETUID;
        self.capabilities & needed == needed
    }

    /// Effective user.
    #[must_use]
    pub fn user(&self) -> u32 {
        let [_, user, ..] = self.users;
        user
    }

    /// Whether the kernel lets a process with these signal one with those (`kill(2)`), leaving out that
    /// SIGCONT may be sent within a session.
    #[must_use]
    pub fn may_signal(&self, target: &Credentials) -> bool {
        let [real, effective, ..] = self.users;
        let [target_real, _, target_saved, _] = target.users;
        self.capabilities & CAP_KILL != 0
            || [real, effective].iter().any(|user| [target_real, target_saved].contains(user))
    }
}

/// Gives this thread the credentials that count when it opens, connects or asks. Its real and saved user
/// stay: so the assumed user can neither signal nor trace it.
///
/// # Errors
/// `EPERM` if we may not. The thread may have some of them then, and must do nothing.
pub fn assume(wanted: &Credentials) -> Result<(), Errno> {
    let keep = u32::MAX; // -1: leave as it is
    let ([_, user, _, user_of_files], [_, group, _, group_of_files]) =
        (wanted.users, wanted.groups);
    let groups = &wanted.supplementary;
    // SAFETY: the pointer and length are of one live slice; the other arguments are numbers.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, keep, group, keep))?;
        libc::syscall(libc::SYS_setfsgid, group_of_files);
        check(libc::syscall(libc::SYS_setresuid, keep, user, keep))?;
        libc::syscall(libc::SYS_setfsuid, user_of_files);
        // These two say nothing of having failed but what is so now.
        if libc::syscall(libc::SYS_setfsgid, keep) != i64::from(group_of_files)
            || libc::syscall(libc::SYS_setfsuid, keep) != i64::from(user_of_files)
        {
            return Err(Errno::PERM);
        }
    }
    limit_capabilities(wanted.capabilities)
}

/// The effective capabilities of this thread become those of `wanted` that it may have; the others of
/// its sets stay as they are.
fn limit_capabilities(wanted: u64) -> Result<(), Errno> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: version 3 reads one header and reads or writes two structures.
    unsafe {
        check(libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()))?;
        for (data, half) in data.iter_mut().zip([wanted as u32, (wanted >> 32) as u32]) {
            data.effective = half & data.permitted;
        }
        check(libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()))
    }
}

/// Sends a signal to each process as one with these credentials would: all of them are taken, by a process
/// made for it, so that the kernel decides as for the sender. Gives what became of each: `Err(None)` if that
/// process was ended before. The sender may stop that process, whose user it is: it is waited for no longer
/// than [`PATIENCE`] for each signal, and then ended.
///
/// # Errors
/// If no process can be made.
pub fn send_as(
    sender: &Credentials,
    signals: &[(BorrowedFd<'_>, i32)],
) -> std::io::Result<Vec<Result<(), Option<Errno>>>> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match fork::fork()? {
        Fork::Child => {
            let failed = become_sender(sender).err();
            for (target, number) in signals {
                let failed = failed.or_else(|| super::signals::send(*target, *number).err());
                let errno = failed.map_or(0, Errno::raw_os_error).to_ne_bytes();
                // SAFETY: four bytes of a live array.
                unsafe { libc::write(write.as_raw_fd(), errno.as_ptr().cast(), errno.len()) };
            }
            fork::exit(0)
        }
        Fork::Parent(pid) => {
            drop(write);
            let mut outcomes = Vec::with_capacity(signals.len());
            for _ in signals {
                if !is_readable(&read) {
                    // SIGKILL ends a stopped process, too; what it has not sent by then it does not send.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    break;
                }
                let mut errno = [0; 4];
                let got = rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut errno));
                if got != Ok(errno.len()) {
                    break;
                }
                outcomes.push(match i32::from_ne_bytes(errno) {
                    0 => Ok(()),
                    errno => Err(Some(Errno::from_raw_os_error(errno))),
                });
            }
            outcomes.resize(signals.len(), Err(None));
            let _ = rustix::io::retry_on_intr(|| {
                rustix::process::waitpid(Some(pid), WaitOptions::empty())
            });
            Ok(outcomes)
        }
    }
}

/// How long one signal may take.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Whether something, or the end, is there to be read before the patience is over.
fn is_readable(pipe: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&PATIENCE)));
    ready.is_ok_and(|n| n > 0)
}

/// Takes all credentials, for good. The process can't be traced: its memory is a copy of ours.
fn become_sender(sender: &Credentials) -> Result<(), Errno> {
    let ([real, effective, saved, _], [real_group, group, saved_group, _]) =
        (sender.users, sender.groups);
    let groups = &sender.supplementary;
    // SAFETY: the pointer and length are of one live slice; the other arguments are numbers.
    unsafe {
        check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0).into())?;
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0).into())?;
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, real_group, group, saved_group))?;
        check(libc::syscall(libc::SYS_setresuid, real, effective, saved))?;
        check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0).into())?;
    }
    limit_capabilities(sender.capabilities)
}

fn check(r: libc::c_long) -> Result<(), Errno> {
    if r == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(users: [u32; 4], capabilities: u64) -> Credentials {
        Credentials { users, groups: [0; 4], supplementary: Vec::new(), capabilities }
    }

    #[test]
    fn signals_as_the_kernel_decides() {
        let (user, root) = (of([7; 4], 0), of([0; 4], u64::MAX));
        assert!(root.may_signal(&user) && user.may_signal(&user) && !user.may_signal(&root));
        // A set-user-id program's real user may be signalled, its saved user may signal nobody.
        assert!(user.may_signal(&of([7, 0, 0, 0], 0)));
        assert!(!of([7, 7, 0, 7], 0).may_signal(&root));
        // Root without the capability is a user like others.
        assert!(!of([0; 4], 0).may_signal(&user));
    }

    #[test]
    fn capabilities_and_groups_count() {
        let (with, without) = (of([0; 4], u64::MAX), of([0; 4], 0));
        assert!(with.acts_like(&with.clone()) && !with.acts_like(&without));
        let grouped = Credentials { supplementary: vec![4], ..with.clone() };
        assert!(!with.acts_like(&grouped));
        // Who was somebody else before acts alike.
        assert!(with.acts_like(&of([5, 0, 5, 0], u64::MAX)));
        assert!(with.can_switch() && !without.can_switch());
    }
}
