//! Light commits that give a file another name.
//!
//! The file stays the inode it is. One `renameat2(2)` takes the old name away and makes the new one, where nothing
//! may be. So each of the two names tells how far a commit got:
//!
//! | the old name leads to | the new name leads to | the commit |
//! |---|---|---|
//! | the file | nothing | has not got there: its successor finishes it |
//! | the file | something else | met an outsider, who was first: all of it is taken back |
//! | anything else, or nothing | the file | has got there |
//! | anything else, or nothing | anything else, or nothing | has got there, and an outsider has moved or removed the file since |
//!
//! In the last case the outsider may as well have taken the file away before. The commit looks like one that came
//! first, as a removal does.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use super::log::MoveRecord;
use super::names::{Ground, Reached, id_at};
use super::{Base, conflict};
use crate::changeset::{Delta, What};
use crate::error::{ConflictKind, Error, Result};
use crate::object::{FileId, FileKind};
use crate::path::{self, join, split};
use crate::sys;
use crate::version::{Version, stat_at};

type Sys<T> = std::result::Result<T, Errno>;

/// One end of a move.
#[derive(Debug)]
pub(super) struct End {
    pub path: Vec<u8>,
    /// The directory, opened before the read set is validated.
    dir: OwnedFd,
    pub dir_id: FileId,
    pub name: Vec<u8>,
}

/// A file that is to get another name.
#[derive(Debug)]
pub(super) struct MoveTarget {
    pub from: End,
    pub to: End,
    /// The file as the transaction saw it.
    pub source: Version,
}

/// What a delta moves, if a light commit may: a regular file with one name, to a name that leads to nothing.
pub(super) fn target(grounds: &[Ground], delta: &Delta) -> Option<MoveTarget> {
    let (What::Move { from, source, base: None }, Some(Ground { root, .. })) =
        (&delta.what, grounds.get(delta.layer))
    else {
        return None;
    };
    let elsewhere = delta.path != delta.stable_path || delta.nameless || delta.path.is_empty();
    if elsewhere || from.is_empty() || source.kind() != FileKind::File || source.nlink != 1 {
        return None;
    }
    let root = root.as_os_str().as_encoded_bytes();
    let (from, to) = (End::open(join(root, from))?, End::open(join(root, &delta.path))?);
    Some(MoveTarget { from, to, source: *source })
}

impl End {
    /// `None`: the full commit decides. The directory may be one that the transaction makes.
    fn open(path: Vec<u8>) -> Option<End> {
        let (parent, name) = split(&path)?;
        let name = name.to_vec();
        let dir = sys::open_dir_canonical(parent).ok()?;
        let dir_id = stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH).ok()?.id;
        Some(End { path, dir, dir_id, name })
    }

    /// What recovery has to find as it was.
    pub fn base(&self) -> Base<'_> {
        Base::directory(self.dir_id, self.dir.as_fd(), &self.path)
    }

    fn look(&self) -> Sys<Option<FileId>> {
        match stat_at(self.dir.as_fd(), &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok(Some(there.id)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn rename_to(&self, other: &End) -> Sys<()> {
        let flags = RenameFlags::NOREPLACE;
        sys::rename(self.dir.as_fd(), &self.name, other.dir.as_fd(), &other.name, flags)
    }
}

impl MoveTarget {
    /// What the log says of it.
    pub fn record(&self) -> MoveRecord {
        let (from, to) = (self.from.path.clone(), self.to.path.clone());
        MoveRecord { from, to, id: self.source.id }
    }

    /// Its two ends.
    pub fn ends(&self) -> [&End; 2] {
        [&self.from, &self.to]
    }

    /// Flushes the file: the log may hold bytes of it that are durable by that alone, and recovery looks for them at
    /// the old name.
    pub fn flush(&self) -> Result<()> {
        let io = |e| Error::io("flushing", path::from_bytes(&self.from.path), e);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match sys::open_at(self.from.dir.as_fd(), &self.from.name, flags) {
            Ok(file) => sys::fdatasync(file.as_fd()).map_err(io),
            Err(Errno::ACCESS | Errno::PERM) => {
                rustix::fs::sync();
                Ok(())
            }
            // Then it is not there to be moved either.
            Err(Errno::NOENT | Errno::LOOP) => Ok(()),
            Err(e) => Err(io(e)),
        }
    }

    /// Whether both names lead to what was found there.
    pub fn is_as_before(&self) -> Result<()> {
        let io = |e| Error::io("looking at", path::from_bytes(&self.from.path), e);
        if self.from.look().map_err(io)? != Some(self.source.id) {
            return Err(conflict(&self.from.path, ConflictKind::NotThere));
        }
        match self.to.look().map_err(io)? {
            None => Ok(()),
            Some(_) => Err(conflict(&self.to.path, ConflictKind::CreatedMeanwhile)),
        }
    }

    /// Gives the file its new name. An error comes with what has it now, and is to be moved back.
    fn publish(&self) -> std::result::Result<(), (Error, Option<FileId>)> {
        let lost = |e| match e {
            Errno::EXIST => conflict(&self.to.path, ConflictKind::CreatedMeanwhile),
            Errno::NOENT => conflict(&self.from.path, ConflictKind::NotThere),
            e => Error::io("publishing", path::from_bytes(&self.to.path), e),
        };
        self.from.rename_to(&self.to).map_err(|e| (lost(e), None))?;
        match stat_at(self.to.dir.as_fd(), &self.to.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) if now.same_but_ctime(&self.source) && now.nlink == self.source.nlink => Ok(()),
            // Somebody has moved or removed it since.
            Err(Errno::NOENT) => Ok(()),
            Ok(now) => {
                Err((conflict(&self.from.path, ConflictKind::ChangedWhileReplaced), Some(now.id)))
            }
            Err(e) => {
                let error = Error::io("looking at", path::from_bytes(&self.to.path), e);
                Err((error, Some(self.source.id)))
            }
        }
    }

    /// Gives what was moved the old name again.
    fn take_back(&self, moved: FileId) -> Sys<()> {
        match self.to.look()? == Some(moved) {
            true => self.to.rename_to(&self.from),
            // Somebody has moved or removed it since, or put another there.
            false => Ok(()),
        }
    }
}

/// Moves all files, or none.
///
/// # Errors
/// Why not, and what became of moving them back.
pub(super) fn publish(moves: &[MoveTarget]) -> std::result::Result<(), (Error, Sys<()>)> {
    for (done, target) in moves.iter().enumerate() {
        if let Err((error, moved)) = target.publish() {
            let last = moved.map_or(Ok(()), |moved| target.take_back(moved));
            let earlier = moves.get(..done).unwrap_or_default();
            return Err((error, last.and_then(|()| take_back(earlier))));
        }
    }
    Ok(())
}

/// Moves files back.
pub(super) fn take_back(moves: &[MoveTarget]) -> Sys<()> {
    moves.iter().rev().try_for_each(|target| target.take_back(target.source.id))
}

impl MoveRecord {
    /// How far a dead process got with it: the table of this module.
    pub(super) fn reached(&self) -> Result<Reached> {
        if id_at(&self.from)? != Some(self.id) {
            return Ok(Reached::After);
        }
        Ok(match id_at(&self.to)? {
            None => Reached::Before,
            Some(_) => Reached::Foreign,
        })
    }

    /// Gives the file its new name.
    pub(super) fn finish(&self) -> Result<()> {
        self.rename(&self.from, &self.to)
    }

    /// Gives it the old one again.
    pub(super) fn undo(&self) -> Result<()> {
        match id_at(&self.to)? == Some(self.id) {
            true => self.rename(&self.to, &self.from),
            false => Ok(()),
        }
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        match sys::rename(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Somebody else was faster, in this moment.
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io("finishing a commit on", path::from_bytes(&self.to), e)),
        }
    }
}
