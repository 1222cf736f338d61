//! What a rename cannot say: content and attributes of an inode that stays.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use super::field::End;
use crate::changeset::AttrChange;
use crate::object::FileKind;
use crate::sys;
use crate::version::stat_at;

type Sys<T> = std::result::Result<T, Errno>;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// Makes the open file `to` hold what the open file `from` holds.
///
/// Nothing is cut off before everything is written, and room for what is longer is reserved first,
/// so that a full disk is found out while the old bytes are still there.
pub(super) fn write_content(from: &OwnedFd, to: &OwnedFd) -> Sys<()> {
    let len = |fd: &OwnedFd| {
        rustix::fs::fstat(fd).map(|s| u64::try_from(s.st_size).unwrap_or(0))
    };
    let (new_len, old_len) = (len(from)?, len(to)?);
    if new_len > old_len {
        sys::allocate(to.as_fd(), old_len, new_len - old_len)?;
    }
    let mut buffer = vec![0u8; CHUNK.min(usize::try_from(new_len).unwrap_or(CHUNK))];
    let mut at = 0;
    while at < new_len {
        let n = match rustix::io::pread(from, &mut buffer[..], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        sys::write_all_at(to.as_fd(), buffer.get(..n).unwrap_or_default(), at)?;
        at += n as u64;
    }
    if len(to)? != new_len {
        sys::truncate(to.as_fd(), new_len)?;
    }
    Ok(())
}

/// Copies a file's content into a new file of ours, sharing blocks where the file system can.
pub(super) fn copy_content(from: &OwnedFd, to: &OwnedFd) -> Sys<()> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let len = u64::try_from(rustix::fs::fstat(from)?.st_size).unwrap_or(0);
    // Only the data is copied: holes stay holes.
    let mut at = 0u64;
    while at < len {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(e) => return Err(e),
        };
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data)).unwrap_or(len).min(len);
        copy_range(from, to, data, hole)?;
        at = hole.max(data + 1);
    }
    sys::truncate(to.as_fd(), len)
}

fn copy_range(from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Sys<()> {
    let mut buffer = vec![0u8; CHUNK.min(usize::try_from(end - start).unwrap_or(CHUNK))];
    let mut at = start;
    while at < end {
        let want = buffer.len().min(usize::try_from(end - at).unwrap_or(CHUNK));
        let n = match rustix::io::pread(from, &mut buffer[..want], at) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        sys::write_all_at(to.as_fd(), buffer.get(..n).unwrap_or_default(), at)?;
        at += n as u64;
    }
    Ok(())
}

/// Applies a change of attributes to the object at `end` (not followed).
pub(super) fn change_attrs(end: &End, change: &AttrChange) -> Sys<()> {
    let fd = end.open_path()?;
    let version = stat_at(fd.as_fd(), b"", AtFlags::EMPTY_PATH)?;
    // chown first: it clears set-id bits and capabilities, which come after.
    if let Some((_, (uid, gid))) = change.owner {
        sys::chown(fd.as_fd(), uid, gid)?;
    }
    let is_link = version.kind() == FileKind::Symlink;
    if let Some((_, mode)) = change.mode
        && !is_link
    {
        sys::chmod(fd.as_fd(), mode)?;
    } else if change.owner.is_some() && !is_link {
        sys::chmod(fd.as_fd(), version.mode & 0o7777)?;
    }
    change_xattrs(end, change)?;
    if let Some((_, mtime)) = change.mtime {
        sys::set_mtime(end.dir.as_fd(), &end.name, mtime)?;
    }
    Ok(())
}

fn change_xattrs(end: &End, change: &AttrChange) -> Sys<()> {
    for x in &change.xattrs {
        match &x.new {
            Some(value) => sys::set_xattr(end.dir.as_fd(), &end.name, &x.name, value)?,
            None => match sys::remove_xattr(end.dir.as_fd(), &end.name, &x.name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(e) => return Err(e),
            },
        }
    }
    Ok(())
}

/// Gives a copy of ours the attributes of the object it is a copy of.
pub(super) fn copy_attrs(from: &End, to: &End) -> Sys<()> {
    let version = from.look()?.ok_or(Errno::NOENT)?;
    let fd = to.open_path()?;
    sys::chown(fd.as_fd(), version.uid, version.gid)?;
    for (name, value) in sys::xattrs(&sys::entry_path(from.dir.as_fd(), &from.name))? {
        if !name.starts_with(b"trusted.overlay.") && !name.starts_with(b"user.overlay.") {
            sys::set_xattr(to.dir.as_fd(), &to.name, &name, &value)?;
        }
    }
    sys::chmod(fd.as_fd(), version.mode & 0o7777)?;
    sys::set_mtime(to.dir.as_fd(), &to.name, version.mtime)
}

/// Whether some process has a regular file open for writing: then no read lease can be had on it
/// (fcntl(2), F_SETLEASE). Where leases are refused for another reason the answer is no.
pub(super) fn has_writer(end: &End) -> bool {
    let Ok(fd) = end.open(OFlags::RDONLY) else { return false };
    lease_refused(fd.as_fd())
}

#[allow(unsafe_code)]
fn lease_refused(fd: BorrowedFd<'_>) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: fcntl with F_SETLEASE takes an integer and touches no memory of ours. The lease ends
    // when the descriptor is closed, right after; SIGIO is ignored by whoever commits.
    unsafe {
        if libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == 0 {
            libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
            return false;
        }
    }
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

/// Makes sure that a lease broken under our hands does not end the process.
#[allow(unsafe_code)]
pub(super) fn ignore_lease_breaks() {
    // SAFETY: setting SIGIO to "ignore" installs no handler and cannot fail for this signal.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
    }
}
