//! Locks on single bytes of a file that belong to an open file description: the kernel lets go of
//! them when the last descriptor of it is closed, however its process ended.
//!
//! # Safety
//!
//! The one unsafe block calls `fcntl(2)` with `F_OFD_SETLK` or `F_OFD_SETLKW` and a `struct flock`
//! that lives on the stack for the time of the call.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

fn byte_lock(fd: BorrowedFd<'_>, byte: u64, kind: i32, wait: bool) -> Result<(), Errno> {
    let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    // A short's worth of flags, as the libc crate types them.
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: i64::try_from(byte).map_err(|_| Errno::INVAL)?,
        l_len: 1,
        l_pid: 0,
    };
    loop {
        let locked = crate::sys::look("fcntl", || {
            // SAFETY: `lock` is a valid `struct flock` with `l_pid` 0, as OFD locks ask for, and
            // outlives the call, which only reads it.
            if unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw const lock) } == 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        });
        match locked {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Waits for one byte, for itself alone.
pub fn lock(fd: BorrowedFd<'_>, byte: u64) -> Result<(), Errno> {
    byte_lock(fd, byte, libc::F_WRLCK, true)
}

/// Takes one byte for itself alone, if nobody has it.
pub fn try_lock(fd: BorrowedFd<'_>, byte: u64) -> Result<bool, Errno> {
    match byte_lock(fd, byte, libc::F_WRLCK, false) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Lets go of one byte.
pub fn unlock(fd: BorrowedFd<'_>, byte: u64) -> Result<(), Errno> {
    byte_lock(fd, byte, libc::F_UNLCK, false)
}
