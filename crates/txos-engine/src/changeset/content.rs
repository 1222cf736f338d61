//! Comparing what two objects hold.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::object::FileKind;
use crate::version::Version;

/// Bytes compared at a time.
const CHUNK: usize = 256 * 1024;

/// Whether two objects of the same kind and size hold the same: bytes, link target, device number.
pub(super) fn same(
    a: (BorrowedFd<'_>, &[u8]),
    b: (BorrowedFd<'_>, &[u8]),
    of: &Version,
) -> Result<bool, Errno> {
    match of.kind() {
        FileKind::File => same_bytes(&open(a)?, &open(b)?, of.size),
        FileKind::Symlink => {
            let read = |(dir, name): (BorrowedFd<'_>, &[u8])| {
                crate::sys::look("readlink", || {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW;
                    let link = crate::sys::open_at(dir, name, flags)?;
                    rustix::fs::readlinkat(link, c"", Vec::with_capacity(256))
                })
            };
            Ok(read(a)? == read(b)?)
        }
        FileKind::CharDevice | FileKind::BlockDevice => {
            let rdev = |(dir, name): (BorrowedFd<'_>, &[u8])| {
                crate::version::stat_at(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
                    .map(|v| v.rdev)
            };
            Ok(rdev(a)? == rdev(b)?)
        }
        FileKind::Fifo | FileKind::Socket => Ok(true),
        FileKind::Dir => Ok(false),
    }
}

fn open((dir, name): (BorrowedFd<'_>, &[u8])) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    crate::lease::waited_out(|| Ok(File::from(crate::sys::open_at(dir, name, flags)?)))
}

/// Whether the first `len` bytes of two files are the same. A short file is not.
///
/// # Errors
/// As `pread(2)`.
pub fn same_bytes(a: &File, b: &File, len: u64) -> Result<bool, Errno> {
    let errno = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    let size = CHUNK.min(usize::try_from(len).unwrap_or(CHUNK));
    let (mut left, mut right) = (vec![0u8; size], vec![0u8; size]);
    let mut at = 0;
    while at < len {
        let want = usize::try_from(len - at).unwrap_or(CHUNK).min(CHUNK);
        let (left, right) = (&mut left[..want], &mut right[..want]);
        for (file, buffer) in [(a, &mut *left), (b, &mut *right)] {
            match crate::sys::look("pread", || file.read_exact_at(buffer, at)) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
                Err(e) => return Err(errno(e)),
            }
        }
        if left != right {
            return Ok(false);
        }
        at += want as u64;
    }
    Ok(true)
}
