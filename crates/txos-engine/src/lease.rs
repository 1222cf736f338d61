//! Leases that others have on files (fcntl(2), F_SETLEASE).
//!
//! The kernel lets an open that conflicts with a lease wait until its holder gives it up, at most
//! `lease-break-time` seconds; then it breaks it. A commit opens without waiting in the kernel, since it may have a
//! FIFO before it; so it waits here, as long as the kernel would. An ordinary user can take a lease on
//! files of his own only.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::{Conflict, ConflictKind, Error};

/// How long a holder is waited for between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// How long the kernel waits for a holder; the default where it does not say.
fn break_time() -> Duration {
    let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time");
    Duration::from_secs(text.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(45))
}

/// Opens a file, as often as somebody has a lease on it, until the kernel must have broken it.
///
/// # Errors
/// The errno of the last try: `EAGAIN` if a holder has taken another lease each time.
pub(crate) fn waited_out<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut until = None;
    loop {
        match open() {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
        // The first try told the holder.
        let until = *until.get_or_insert_with(|| Instant::now() + break_time() + 20 * PAUSE);
        if Instant::now() >= until {
            return Err(Errno::AGAIN);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The conflict with somebody who has a lease on a file, if that is what the errno of opening it says.
pub(crate) fn conflict(path: &Path, errno: Errno) -> Option<Error> {
    let what = ConflictKind::Leased((errno == Errno::AGAIN).then(|| holder(path))?);
    Some(Error::Conflict(vec![Conflict { path: path.to_owned(), what, when: None }]))
}

/// Who has a lease on a file, if `/proc/locks` tells (fields of a line: number, LEASE, state, kind, pid,
/// MAJOR:MINOR:INODE, start, end).
fn holder(path: &Path) -> Option<u32> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, meta.dev(), meta.ino())
}

fn holder_in(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let inode = format!("{major:02x}:{minor:02x}:{ino}");
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_lease = words.next() == Some("LEASE");
        let (pid, of) = (words.nth(2)?, words.next()?);
        (is_lease && of == inode).then(|| pid.parse().ok()).flatten()
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 12 08:01:99 0 EOF\n\
                     2: LEASE  ACTIVE    WRITE 34 08:01:99 0 EOF\n\
                     3: LEASE  BREAKER   READ 56 00:1f:7 0 EOF\n";
        let dev = rustix::fs::makedev(8, 1);
        assert_eq!(holder_in(locks, dev, 99), Some(34));
        assert_eq!(holder_in(locks, dev, 98), None);
        assert_eq!(holder_in(locks, rustix::fs::makedev(0, 0x1f), 7), Some(56));
    }
}
