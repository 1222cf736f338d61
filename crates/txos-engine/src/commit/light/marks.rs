//! Which names are published on the disk.
//!
//! A store has a file for each slot of the log. Its time of modification is the number of the last record of
//! that slot whose names are all in place, taken for nanoseconds. It is set after the renames, and in the same
//! file system, which carries out changes of names and times in order, also when they reach the disk. So
//! recovery knows of a name that is not as a record says: if the mark has come as far as the record, the name
//! was there, and somebody has removed or moved the file since; if not, a power cut took it away.
//!
//! A mark that could not be set, or is lost, has recovery redo what nobody else has changed.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use crate::path::join;
use crate::sys;
use crate::version::{Stamp, stat_at};

/// Where the files are in a store.
const DIRECTORY: &[u8] = b"light.marks";

/// Marks kept open for the next commit.
const KEPT_MAX: usize = 4;

/// The marks that a session has set, open.
#[derive(Debug, Default)]
pub(super) struct Marks {
    kept: Vec<(Vec<u8>, u32, OwnedFd)>,
}

impl Marks {
    /// Notes that all names of a record are in place.
    pub fn set(&mut self, store: &[u8], slot: u32, number: u64) {
        let known = self.kept.iter().find(|(of, at, _)| of == store && *at == slot);
        let set = match known {
            Some((_, _, file)) => sys::set_own_mtime(file.as_fd(), stamp(number)),
            None => open(store, slot).and_then(|file| {
                sys::set_own_mtime(file.as_fd(), stamp(number))?;
                if self.kept.len() >= KEPT_MAX {
                    self.kept.clear();
                }
                self.kept.push((store.to_vec(), slot, sys::kept(file)));
                Ok(())
            }),
        };
        if let Err(error) = set {
            tracing::debug!(%error, "a mark of light commits could not be set");
        }
    }
}

fn stamp(number: u64) -> Stamp {
    const SECOND: u64 = 1_000_000_000;
    let nsec = u32::try_from(number % SECOND).unwrap_or(0);
    Stamp { sec: i64::try_from(number / SECOND).unwrap_or(i64::MAX), nsec }
}

fn place(store: &[u8], slot: u32) -> Vec<u8> {
    join(&join(store, DIRECTORY), slot.to_string().as_bytes())
}

fn open(store: &[u8], slot: u32) -> Result<OwnedFd, Errno> {
    let path = place(store, slot);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW;
    match sys::open(&path, flags, 0o600) {
        Err(Errno::NOENT) => match sys::mkdir(CWD, &join(store, DIRECTORY), 0o700) {
            Ok(()) | Err(Errno::EXIST) => sys::open(&path, flags, 0o600),
            Err(e) => Err(e),
        },
        other => other,
    }
}

/// The last record of a slot whose names are in place on the disk; 0 if none is known to be.
pub(super) fn reached(store: &[u8], slot: u32) -> u64 {
    let found = stat_at(CWD, &place(store, slot), AtFlags::SYMLINK_NOFOLLOW);
    found.map_or(0, |version| u64::try_from(version.mtime.as_ns()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_set() {
        let dir = std::env::temp_dir().join(format!("txos-marks-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let store = dir.as_os_str().as_encoded_bytes();
        assert_eq!(reached(store, 3), 0);
        let mut marks = Marks::default();
        for number in [1, 999_999_999, 1_800_000_000_123_456_789] {
            marks.set(store, 3, number);
            assert_eq!((reached(store, 3), reached(store, 4)), (number, 0));
        }
        // In a store that is gone there is nothing to set, and no harm in it.
        std::fs::remove_dir_all(&dir).unwrap();
        Marks::default().set(store, 3, 5);
        assert_eq!(reached(store, 3), 0);
    }
}
