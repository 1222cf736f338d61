//! Extended attributes of a name in an open directory, by the calls that Linux has for it since 6.13: a path through
//! `/proc` costs several times as much.
//!
//! Each gives `None` where the path has to be taken: the kernel has no such call, a filter refuses it, or this process
//! may not do what the object's owner may.
//!
//! # Safety
//!
//! Each unsafe block makes one of `listxattrat(2)`, `getxattrat(2)`, `removexattrat(2)`, with NUL-terminated names and
//! with room of which the kernel is told the length; all of it outlives the call.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;
const SYS_REMOVEXATTRAT: libc::c_long = 466;

/// `struct xattr_args`.
#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

const _: () = assert!(std::mem::size_of::<XattrArgs>() == 16);

/// Whether the kernel was found to have no such calls.
static MISSING: AtomicBool = AtomicBool::new(false);

/// The names of the attributes, each with a NUL behind it. Gives their length.
pub(crate) fn list(
    dir: BorrowedFd<'_>,
    name: &[u8],
    room: &mut [u8],
) -> Option<Result<usize, Errno>> {
    let name = entry(name)?;
    // SAFETY: see the module.
    answer(|| unsafe {
        libc::syscall(
            SYS_LISTXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            room.as_mut_ptr(),
            room.len(),
        )
    })
}

/// The value of one of them. Gives its length.
pub(crate) fn get(
    dir: BorrowedFd<'_>,
    name: &[u8],
    attr: &[u8],
    room: &mut [u8],
) -> Option<Result<usize, Errno>> {
    let (name, attr) = (entry(name)?, CString::new(attr).ok()?);
    let args = XattrArgs {
        value: room.as_mut_ptr() as u64,
        size: u32::try_from(room.len()).ok()?,
        flags: 0,
    };
    // SAFETY: see the module.
    answer(|| unsafe {
        libc::syscall(
            SYS_GETXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            attr.as_ptr(),
            &raw const args,
            std::mem::size_of::<XattrArgs>(),
        )
    })
}

/// Takes one away.
pub(crate) fn remove(dir: BorrowedFd<'_>, name: &[u8], attr: &[u8]) -> Option<Result<(), Errno>> {
    let (name, attr) = (entry(name)?, CString::new(attr).ok()?);
    // SAFETY: see the module.
    let removed = answer(|| unsafe {
        libc::syscall(
            SYS_REMOVEXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            attr.as_ptr(),
        )
    });
    removed.map(|removed| removed.map(drop))
}

/// An empty name is the directory itself.
fn entry(name: &[u8]) -> Option<CString> {
    CString::new(if name.is_empty() { b"." } else { name }).ok()
}

fn answer(call: impl FnOnce() -> libc::c_long) -> Option<Result<usize, Errno>> {
    if MISSING.load(Ordering::Relaxed) {
        return None;
    }
    if let Ok(length) = usize::try_from(call()) {
        return Some(Ok(length));
    }
    let error = std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error)?;
    if error == Errno::NOSYS {
        MISSING.store(true, Ordering::Relaxed);
    }
    match error {
        Errno::NOSYS | Errno::PERM | Errno::ACCESS => None,
        error => Some(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn as_by_path() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        for (name, value) in [("user.a", "1"), ("user.b", "two")] {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&file, name, value.as_bytes(), flags).unwrap();
        }
        let open = std::fs::File::open(dir.path()).unwrap();
        let fd = open.as_fd();
        let mut room = [0; 64];
        let listed =
            txos_skip::require_some!(list(fd, b"file", &mut room), "the kernel has no listxattrat");
        let listed = room.get(..listed.unwrap()).unwrap();
        let mut names: Vec<&[u8]> = listed.split(|&b| b == 0).filter(|n| !n.is_empty()).collect();
        names.sort_unstable();
        names.retain(|name| name.starts_with(b"user."));
        assert_eq!(names, [&b"user.a"[..], b"user.b"]);
        assert_eq!(list(fd, b"file", &mut [0; 3]), Some(Err(Errno::RANGE)));
        assert_eq!(get(fd, b"file", b"user.b", &mut room), Some(Ok(3)));
        assert_eq!(room.get(..3), Some(&b"two"[..]));
        assert_eq!(get(fd, b"file", b"user.b", &mut [0; 2]), Some(Err(Errno::RANGE)));
        assert_eq!(get(fd, b"file", b"user.c", &mut room), Some(Err(Errno::NODATA)));
        // A link is not followed, and the directory is named by nothing.
        let of_link = list(fd, b"link", &mut room).unwrap().unwrap();
        assert!(!room.get(..of_link).unwrap().starts_with(b"user."));
        assert_eq!(list(fd, b"none", &mut room), Some(Err(Errno::NOENT)));
        rustix::fs::setxattr(dir.path(), "user.d", b"4", rustix::fs::XattrFlags::empty()).unwrap();
        assert_eq!(get(fd, b"", b"user.d", &mut room), Some(Ok(1)));
        assert_eq!(remove(fd, b"file", b"user.a"), Some(Ok(())));
        assert_eq!(remove(fd, b"file", b"user.a"), Some(Err(Errno::NODATA)));
        assert_eq!(get(fd, b"file", b"user.a", &mut room), Some(Err(Errno::NODATA)));
    }
}
