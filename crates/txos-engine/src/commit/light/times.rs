//! Times of directories, in commits that are not durable: names came and went there, or files whose names stay were
//! replaced by others.
//!
//! A time is set last. The change of somebody else is later than the commit and is seen in the directory's time: a time
//! never goes back behind it. In the microseconds between the look at a directory and the setting of its time that can't
//! be held; no change is lost by it, only the sign of one.
//!
//! Of a dead process it isn't known which times it had set. Whoever comes after it sets those that are earlier than they
//! should be. Those that are later stay: who goes by them looks again. A log of another boot says nothing of them.

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
    /// The time that the transaction found, and the one that it gives.
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
        if delta.path != delta.stable_path || delta.nameless || base.kind() != FileKind::Dir {
            return Ok(None);
        }
        let path = join(root.as_os_str().as_encoded_bytes(), &delta.path);
        let dir = match sys::open_dir_canonical(&path) {
            Ok(dir) => dir,
            Err(e) if is_gone(e) => return Err(gone(&path)),
            Err(_) => return Ok(None),
        };
        let is_own = changes.ends().any(|end| end.dir_id == base.id);
        targets.push(TimeTarget { path, id: base.id, is_own, change: times, dir });
    }
    Ok(Some(targets))
}

fn is_gone(e: Errno) -> bool {
    matches!(e, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

fn gone(path: &[u8]) -> Error {
    conflict(path, ConflictKind::NotThere)
}

/// Sets the time of a directory; of another's it is what the kernel makes it.
fn set(dir: &OwnedFd, time: Stamp) -> std::result::Result<(), Errno> {
    not_ours(sys::set_mtime(dir.as_fd(), b".", time))
}

fn mtime(dir: &OwnedFd) -> std::result::Result<Stamp, Errno> {
    Ok(stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH)?.mtime)
}

impl TimeTarget {
    /// What the log says of it. Who was faster keeps his time, if it is the later one.
    ///
    /// # Errors
    /// Another directory is at the path.
    pub fn record(&self) -> Result<TimeRecord> {
        let io = |e| Error::io("looking at", path::from_bytes(&self.path), e);
        let before = match open(&self.path, self.id).map_err(io)? {
            Some(dir) => mtime(&dir).map_err(io)?,
            None => return Err(gone(&self.path)),
        };
        let (found, asked) = self.change;
        let after = if before == found { asked } else { asked.max(before) };
        Ok(TimeRecord { path: self.path.clone(), id: self.id, before, after })
    }

    /// Sets the time that the record says.
    ///
    /// # Errors
    /// The kernel's.
    pub fn publish(&self, record: &TimeRecord) -> std::result::Result<(), Errno> {
        match self.is_own || record.is_due(mtime(&self.dir)?) {
            true => set(&self.dir, record.after),
            false => Ok(()),
        }
    }

    /// Undoes [`TimeTarget::publish`], unless somebody has changed the directory since.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_back(&self, record: &TimeRecord) -> std::result::Result<(), Errno> {
        record.take_back(&self.dir)
    }
}

/// The directory at a path, if it is the one.
fn open(path: &[u8], id: FileId) -> std::result::Result<Option<OwnedFd>, Errno> {
    let dir = match sys::open_dir_canonical(path) {
        Ok(dir) => dir,
        Err(e) if is_gone(e) => return Ok(None),
        Err(e) => return Err(e),
    };
    let found = stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH)?.id;
    Ok((found == id).then_some(dir))
}

impl TimeRecord {
    /// Whether a directory that has some time now is to get the one that the record says.
    fn is_due(&self, now: Stamp) -> bool {
        now == self.before || now < self.after
    }

    fn take_back(&self, dir: &OwnedFd) -> std::result::Result<(), Errno> {
        if mtime(dir)? == self.after { set(dir, self.before) } else { Ok(()) }
    }

    fn io(&self, step: &'static str) -> impl Fn(Errno) -> Error {
        move |e| Error::io(step, path::from_bytes(&self.path), e)
    }
}

/// Sets the times that a dead process has not set. Gives whether there was one.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn finish(records: &[TimeRecord]) -> Result<bool> {
    let mut missing = false;
    for record in records {
        let io = record.io("finishing a commit on");
        let Some(dir) = open(&record.path, record.id).map_err(&io)? else { continue };
        let now = mtime(&dir).map_err(&io)?;
        if now != record.after && record.is_due(now) {
            set(&dir, record.after).map_err(&io)?;
            missing = true;
        }
    }
    Ok(missing)
}

/// Takes back the times that a dead process has set, where nobody else has changed the directory since.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn undo(records: &[TimeRecord]) -> Result<()> {
    for record in records {
        let io = record.io("undoing a commit on");
        if let Some(dir) = open(&record.path, record.id).map_err(&io)? {
            record.take_back(&dir).map_err(&io)?;
        }
    }
    Ok(())
}
