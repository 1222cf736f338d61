//! Asking the kernel what it can, without leaving anything behind.
//!
//! # Safety
//!
//! Each probe makes one system call with numbers only; a descriptor that comes of it is closed.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::process::WaitOptions;

use super::fork::{self, Fork};

/// Whether fanotify can hold back opens: the root gate.
///
/// # Errors
/// `EPERM` without privilege, `EINVAL` or `ENOSYS` without support.
pub fn fanotify_permission() -> io::Result<()> {
    // SAFETY: numbers only.
    let fd = unsafe { libc::fanotify_init(libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now; dropping it closes the group.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Whether this process may make the namespaces of a view: tried in a child.
///
/// # Errors
/// The errno of the child's `unshare(2)`.
pub fn namespaces(user: bool) -> io::Result<()> {
    match fork::fork()? {
        Fork::Child => {
            let errno = match fork::unshare(user, false) {
                Ok(()) => 0,
                Err(e) => e.raw_os_error().unwrap_or(libc::EIO),
            };
            fork::exit(errno.min(255))
        }
        Fork::Parent(pid) => loop {
            match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
                Ok(status) => {
                    let status = status.and_then(|(_, s)| s.exit_status());
                    return match status {
                        Some(0) => Ok(()),
                        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                        None => Err(io::Error::other("the probe was killed")),
                    };
                }
            }
        },
    }
}
