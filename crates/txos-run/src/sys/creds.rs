//! Credentials of one thread.
//!
//! # Safety
//!
//! The raw system calls change the calling thread only (the C library's wrappers change the whole
//! process). [`assume`] is called on a thread made for one call, which ends afterwards.

#![allow(unsafe_code)]

use rustix::io::Errno;

/// Effective identity of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Gives this thread the effective identity of another process, for what is done in its name.
///
/// # Errors
/// `EPERM` if we may not.
pub fn assume(identity: &Identity) -> Result<(), Errno> {
    let keep = u32::MAX; // -1: leave as it is
    // SAFETY: the pointer and length are of one live slice; the other arguments are numbers.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, identity.groups.len(), identity.groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, keep, identity.gid, keep))?;
        check(libc::syscall(libc::SYS_setresuid, keep, identity.uid, keep))
    }
}

fn check(r: libc::c_long) -> Result<(), Errno> {
    if r == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM))
}
