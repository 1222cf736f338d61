//! Copying content from file to file.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::sys::{self, Sys};

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

/// Copies a file's content into a new file of ours, sharing blocks where the file system can.
pub(crate) fn content(from: &OwnedFd, to: &OwnedFd) -> Sys<()> {
    if sys::step("ficlone", || rustix::fs::ioctl_ficlone(to, from)).is_ok() {
        return Ok(());
    }
    let len = sys::size(from)?;
    // Only the data is copied: holes stay holes.
    let mut at = 0u64;
    while at < len {
        let data = match sys::look("lseek", || rustix::fs::seek(from, SeekFrom::Data(at))) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(e) => return Err(e),
        };
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data)).unwrap_or(len).min(len);
        range(from, to, data, hole)?;
        at = hole.max(data + 1);
    }
    sys::truncate(to.as_fd(), len)
}

fn range(from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Sys<()> {
    let mut buffer = vec![0u8; CHUNK.min(usize::try_from(end - start).unwrap_or(CHUNK))];
    let mut at = start;
    while at < end {
        let want = buffer.len().min(usize::try_from(end - at).unwrap_or(CHUNK));
        let n = match sys::read_at(from, &mut buffer[..want], at) {
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
