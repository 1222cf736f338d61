//! Modes, owners, times, extended attributes.

use txos_engine::version::Stamp;

use super::{CPath, CWD, Errno, Sys, is_magic, step, sys, with_paths};
use crate::user::UserSlice;

/// A call of which the kernel has two forms: the one that follows a link at the end of the path for magic ones, else
/// the one that does not.
macro_rules! itself {
    ($path:expr, $follows:ident, $stays:ident, $($arg:expr),*) => {
        match is_magic($path) {
            true => sys!($follows, $($arg),*),
            false => sys!($stays, $($arg),*),
        }
    };
}

/// Whether a path of what is not versioned means a link that it ends with: one that was to be followed was. In `/proc` only the
/// kernel follows.
#[must_use]
pub fn stays_at_link(path: &[u8]) -> bool {
    !path.starts_with(b"/proc/")
}

/// `fchmodat(2)`: a link is followed.
///
/// # Errors
/// As the system call.
pub fn chmod_live(path: &[u8], mode: u32) -> Sys<u64> {
    // SAFETY: the path ends with its zero.
    CPath::with(path, |p| unsafe { sys!(SYS_fchmodat, CWD, p.at(), mode) })
}

/// `fchmodat(2)`; links are not followed where that can be said (they have no mode).
///
/// # Errors
/// As the system call.
pub fn chmod(path: &[u8], mode: u32) -> Sys<()> {
    step("staged chmod", || chmod_live(path, mode & 0o7777)).map(drop)
}

/// `fchmod(2)`.
///
/// # Errors
/// As the system call.
pub fn fchmod(fd: i32, mode: u32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_fchmod, fd, mode) }
}

/// `fchownat(2)`, with its flags.
///
/// # Errors
/// As the system call.
pub fn chown_live(path: &[u8], uid: u32, gid: u32, flags: i32) -> Sys<u64> {
    // SAFETY: the path ends with its zero.
    CPath::with(path, |p| unsafe { sys!(SYS_fchownat, CWD, p.at(), uid, gid, flags) })
}

/// `lchown(2)`.
///
/// # Errors
/// As the system call.
pub fn chown(path: &[u8], uid: u32, gid: u32) -> Sys<()> {
    step("staged chown", || chown_live(path, uid, gid, libc::AT_SYMLINK_NOFOLLOW)).map(drop)
}

/// `fchown(2)`.
///
/// # Errors
/// As the system call.
pub fn fchown(fd: i32, uid: u32, gid: u32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_fchown, fd, uid, gid) }
}

/// `utimensat(2)` by a path from the working directory.
///
/// # Errors
/// As the system call.
pub fn utimes_live(path: &[u8], times: &[libc::timespec; 2], flags: i32) -> Sys<u64> {
    // SAFETY: the path ends with its zero, and the kernel reads both times.
    CPath::with(path, |p| unsafe { sys!(SYS_utimensat, CWD, p.at(), times.as_ptr(), flags) })
}

/// `futimens(3)`.
///
/// # Errors
/// As `utimensat(2)`.
pub fn futimes(fd: i32, times: &[libc::timespec; 2]) -> Sys<u64> {
    // SAFETY: the kernel reads both times; without a path the descriptor is meant.
    unsafe { sys!(SYS_utimensat, fd, 0, times.as_ptr(), 0) }
}

fn time(stamp: Option<Stamp>) -> libc::timespec {
    match stamp {
        Some(stamp) => libc::timespec { tv_sec: stamp.sec, tv_nsec: i64::from(stamp.nsec) },
        None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
    }
}

/// `utimensat(2)`, not following; `None` leaves a time as it is.
///
/// # Errors
/// As the system call.
pub fn utimes(path: &[u8], atime: Option<Stamp>, mtime: Option<Stamp>) -> Sys<()> {
    let times = [time(atime), time(mtime)];
    step("staged utimens", || utimes_live(path, &times, libc::AT_SYMLINK_NOFOLLOW)).map(drop)
}

/// Sets the time of last change of the data of what a magic link leads to.
///
/// # Errors
/// As `utimensat(2)`.
pub fn utimes_through(path: &[u8], mtime: Stamp) -> Sys<()> {
    let times = [time(None), time(Some(mtime))];
    step("staged utimens", || utimes_live(path, &times, 0)).map(drop)
}

/// The value of an extended attribute; `None` if there is none, or none can be. Of the links, only a magic one is
/// followed.
///
/// # Errors
/// As `lgetxattr(2)`.
pub fn xattr(path: &[u8], name: &[u8]) -> Sys<Option<Vec<u8>>> {
    with_paths(path, name, |p, n| {
        let mut out = vec![0u8; 256];
        loop {
            // SAFETY: both end with their zeroes, and the kernel writes no more than there is room for.
            let got = unsafe {
                let (room, len) = (out.as_mut_ptr(), out.len());
                itself!(path, SYS_getxattr, SYS_lgetxattr, p.at(), n.at(), room, len)
            };
            match got {
                Ok(len) => {
                    out.truncate(len as usize);
                    return Ok(Some(out));
                }
                Err(Errno::RANGE) if out.len() < 1 << 16 => out.resize(1 << 16, 0),
                Err(Errno::NODATA) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    })
}

/// `lgetxattr(2)`, for the program.
///
/// # Errors
/// As the system call.
pub fn xattr_to(path: &[u8], name: &[u8], out: UserSlice) -> Sys<u64> {
    // SAFETY: both end with their zeroes, and the program wants the answer there.
    with_paths(path, name, |p, n| unsafe {
        itself!(path, SYS_getxattr, SYS_lgetxattr, p.at(), n.at(), out.address(), out.len())
    })
}

/// `fgetxattr(2)`, for the program.
///
/// # Errors
/// As the system call.
pub fn fxattr_to(fd: i32, name: &[u8], out: UserSlice) -> Sys<u64> {
    // SAFETY: the name ends with its zero, and the program wants the answer there.
    CPath::with(name, |n| unsafe { sys!(SYS_fgetxattr, fd, n.at(), out.address(), out.len()) })
}

/// The names of all extended attributes, but for second names of lists ([`txos_engine::sys::is_second_name`]).
///
/// # Errors
/// As `llistxattr(2)`.
pub fn xattr_names(path: &[u8]) -> Sys<Vec<Vec<u8>>> {
    CPath::with(path, |p| {
        let mut out = vec![0u8; 1 << 16];
        // SAFETY: the path ends with its zero, and the kernel writes no more than there is room for.
        let n = unsafe {
            itself!(path, SYS_listxattr, SYS_llistxattr, p.at(), out.as_mut_ptr(), out.len())
        }? as usize;
        let names = out.get(..n).unwrap_or_default().split(|&b| b == 0);
        let is_listed = |n: &&[u8]| !n.is_empty() && !txos_engine::sys::is_second_name(n);
        Ok(names.filter(is_listed).map(<[u8]>::to_vec).collect())
    })
}

/// `llistxattr(2)`, for the program.
///
/// # Errors
/// As the system call.
pub fn xattr_names_to(path: &[u8], out: UserSlice) -> Sys<u64> {
    // SAFETY: the path ends with its zero, and the program wants the answer there.
    CPath::with(path, |p| unsafe { sys!(SYS_llistxattr, p.at(), out.address(), out.len()) })
}

/// `flistxattr(2)`, for the program.
///
/// # Errors
/// As the system call.
pub fn fxattr_names_to(fd: i32, out: UserSlice) -> Sys<u64> {
    // SAFETY: the program wants the answer there.
    unsafe { sys!(SYS_flistxattr, fd, out.address(), out.len()) }
}

/// `setxattr(2)`: a link is followed.
///
/// # Errors
/// As the system call.
pub fn set_xattr_live(path: &[u8], name: &[u8], value: &[u8], flags: i32) -> Sys<u64> {
    let (at, len) = (value.as_ptr(), value.len());
    // SAFETY: path and name end with their zeroes, and the kernel reads the value.
    with_paths(path, name, |p, n| unsafe {
        match stays_at_link(path) {
            true => sys!(SYS_lsetxattr, p.at(), n.at(), at, len, flags),
            false => sys!(SYS_setxattr, p.at(), n.at(), at, len, flags),
        }
    })
}

/// `lsetxattr(2)`, without flags.
///
/// # Errors
/// As the system call.
pub fn set_xattr(path: &[u8], name: &[u8], value: &[u8]) -> Sys<()> {
    let (at, len) = (value.as_ptr(), value.len());
    step("staged setxattr", || {
        // SAFETY: path and name end with their zeroes, and the kernel reads the value.
        with_paths(path, name, |p, n| unsafe { sys!(SYS_lsetxattr, p.at(), n.at(), at, len, 0) })
    })
    .map(drop)
}

/// `removexattr(2)`: a link is followed.
///
/// # Errors
/// As the system call.
pub fn remove_xattr_live(path: &[u8], name: &[u8]) -> Sys<u64> {
    // SAFETY: path and name end with their zeroes.
    with_paths(path, name, |p, n| unsafe {
        match stays_at_link(path) {
            true => sys!(SYS_lremovexattr, p.at(), n.at()),
            false => sys!(SYS_removexattr, p.at(), n.at()),
        }
    })
}

/// `lremovexattr(2)`; that there is none is no error.
///
/// # Errors
/// As the system call.
pub fn remove_xattr(path: &[u8], name: &[u8]) -> Sys<()> {
    let done = step("staged removexattr", || {
        // SAFETY: path and name end with their zeroes.
        with_paths(path, name, |p, n| unsafe { sys!(SYS_lremovexattr, p.at(), n.at()) })
    });
    match done {
        Ok(_) | Err(Errno::NODATA) => Ok(()),
        Err(e) => Err(e),
    }
}

/// `file_getattr(2)`, not following: what the program gets is in `out`, as long as it says.
///
/// # Errors
/// As the system call.
pub fn file_attributes_to(path: &[u8], out: UserSlice) -> Sys<u64> {
    /// The C library's bindings do not name it yet.
    const SYS_FILE_GETATTR: i64 = 468;
    let flags = libc::AT_SYMLINK_NOFOLLOW as u64;
    CPath::with(path, |p| {
        let words = [CWD as u64, p.at() as u64, out.address(), out.len(), flags, 0];
        // SAFETY: the path ends with its zero, and the program wants the answer there.
        super::check(unsafe { crate::raw::syscall(SYS_FILE_GETATTR, words) })
    })
}
