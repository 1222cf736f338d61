//! Times of directories, in commits that are not durable: of those in which names came and went, and of those in which
//! files that keep their names were replaced by others. A time that a program has asked for is for the full commit.
//!
//! Times are set last. They never hide what somebody else does in the directory: a directory that has another time than was
//! found keeps the later one, and one in which the commit itself changes names keeps what it shows if that isn't the commit's
//! own doing. Between the last look at a directory and the setting of its time lie microseconds.
//!
//! Of a dead process it isn't known which times it had set. Those of directories that are as they were found are set. All
//! others stay: who goes by them looks again. A log of another boot says nothing of them.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::conflict;
use super::log::TimeRecord;
use super::names::{Changes, Ground};
use crate::changeset::{Delta, What};
use crate::commit::inplace::not_ours;
use crate::error::{ConflictKind, Error, Result};
use crate::object::{FileId, FileKind};
use crate::path::{self, join};
use crate::show::quoted_bytes;
use crate::sys;
use crate::version::{Stamp, stat_at};

/// A directory that gets a time.
#[derive(Debug)]
pub(super) struct TimeTarget {
    /// Canonical path.
    pub path: Vec<u8>,
    /// Which it is.
    pub id: FileId,
    /// The commit changes names in it, and with them its time.
    pub is_own: bool,
    /// The time that the transaction found, and the one that it leaves it with.
    change: (Stamp, Stamp),
    dir: OwnedFd,
}

/// The directories that get a time, if all that becomes of them is that.
///
/// # Errors
/// One is not there any more.
pub(super) fn targets(
    grounds: &[Ground],
    deltas: &[&Delta],
    changes: &Changes,
) -> Result<Option<Vec<TimeTarget>>> {
    let mut targets: Vec<TimeTarget> = Vec::with_capacity(deltas.len());
    for delta in deltas {
        let (What::Attrs { base, change }, Some(Ground { root, .. })) =
            (&delta.what, grounds.get(delta.layer))
        else {
            return Ok(None);
        };
        let Some(times) = change.mtime.filter(|_| change.is_only_mtime()) else { return Ok(None) };
        if delta.path != delta.stable_path
            || delta.nameless
            || base.kind() != FileKind::Dir
            || targets.iter().any(|target| target.id == base.id)
        {
            return Ok(None);
        }
        let path = join(root.as_os_str().as_encoded_bytes(), &delta.path);
        let dir = match open(&path, base.id) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Err(gone(&path)),
            Err(_) => return Ok(None),
        };
        let is_own = changes.ends().any(|end| end.dir_id == base.id);
        targets.push(TimeTarget { path, id: base.id, is_own, change: times, dir });
    }
    Ok(Some(targets))
}

fn gone(path: &[u8]) -> Error {
    conflict(path, ConflictKind::NotThere)
}

/// The directory at a path, if it is the one.
fn open(path: &[u8], id: FileId) -> std::result::Result<Option<OwnedFd>, Errno> {
    let dir = match sys::open_dir_canonical(path) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(e) => return Err(e),
    };
    let found = stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH)?.id;
    Ok((found == id).then_some(dir))
}

fn mtime(dir: &OwnedFd) -> std::result::Result<Stamp, Errno> {
    Ok(stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH)?.mtime)
}

impl TimeTarget {
    /// What the log says of it.
    ///
    /// # Errors
    /// Another directory is at the path.
    pub fn record(&self) -> Result<TimeRecord> {
        let io = |e| Error::io("looking at", path::from_bytes(&self.path), e);
        let before = match open(&self.path, self.id).map_err(io)? {
            Some(dir) => mtime(&dir).map_err(io)?,
            None => return Err(gone(&self.path)),
        };
        let (found, left) = self.change;
        let after = match left == found {
            // It keeps its time.
            true => before,
            false if before == found => left,
            false => left.max(before),
        };
        Ok(TimeRecord { path: self.path.clone(), id: self.id, before, after })
    }

    /// The time that the directory shows.
    ///
    /// # Errors
    /// The kernel's.
    pub fn now(&self) -> Result<Stamp> {
        let io = |e| Error::io("looking at", path::from_bytes(&self.path), e);
        mtime(&self.dir).map_err(io)
    }

    /// Gives the directory its time, unless it has another one than `expected` because of somebody else. Gives the time that
    /// it has then, if it was set.
    ///
    /// # Errors
    /// The kernel's.
    pub fn publish(
        &self,
        record: &TimeRecord,
        expected: Stamp,
    ) -> std::result::Result<Option<Stamp>, Errno> {
        let now = mtime(&self.dir)?;
        let is_between = !self.is_own && record.before < now && now < record.after;
        if (now != expected && !is_between) || now == record.after {
            return Ok(None);
        }
        // Of another's it is what the kernel makes it.
        not_ours(sys::set_mtime_of(self.dir.as_fd(), record.after))?;
        mtime(&self.dir).map(Some)
    }

    /// Undoes [`TimeTarget::publish`], unless the directory has another time than it was given.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_back(&self, record: &TimeRecord, given: Stamp) -> std::result::Result<(), Errno> {
        match mtime(&self.dir)? == given {
            true => not_ours(sys::set_mtime_of(self.dir.as_fd(), record.before)),
            false => Ok(()),
        }
    }
}

impl TimeRecord {
    /// Gives the directory one time if it has the other. Nothing else depends on it: where it can't be, a note says so.
    fn replace(&self, from: Stamp, to: Stamp, notes: &mut Vec<String>) -> bool {
        let replaced = open(&self.path, self.id).and_then(|dir| match dir {
            Some(dir) if from != to && mtime(&dir)? == from => {
                sys::set_mtime_of(dir.as_fd(), to)?;
                Ok(true)
            }
            Some(_) | None => Ok(false),
        });
        match replaced {
            Ok(replaced) => replaced,
            // Another's has the time that the kernel gave it.
            Err(Errno::PERM | Errno::ACCESS) => false,
            Err(e) => {
                let path = quoted_bytes(&self.path);
                notes.push(format!("the time of {path} could not be set: {e}"));
                false
            }
        }
    }
}

/// Sets the times that a dead process has not set. Gives whether there was one.
pub(super) fn finish(records: &[TimeRecord], notes: &mut Vec<String>) -> bool {
    let mut missing = false;
    for record in records {
        missing |= record.replace(record.before, record.after, notes);
    }
    missing
}

/// Takes back the times that a dead process has set, where nobody else has changed the directory since.
pub(super) fn undo(records: &[TimeRecord], notes: &mut Vec<String>) {
    for record in records {
        let _ = record.replace(record.after, record.before, notes);
    }
}
