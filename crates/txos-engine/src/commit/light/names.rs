//! Light commits of names: small files that are new, replace another one, or go.
//!
//! Each name is one rename between its place in the tree and a place in the store. Which of the two ends
//! holds which inode tells how far a commit got, so that whoever comes after a dead process finishes what
//! it began, or takes all of it back where somebody else is in the way. After a power cut the inodes may be
//! gone; then the record's content is what is put there ([`super::replay`]).

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use super::log::{NameRecord, NewFile};
use super::{BYTES_MAX, conflict};
use crate::changeset::{Delta, What};
use crate::error::{ConflictKind, Error, Result};
use crate::object::{FileId, FileKind};
use crate::path::{self, join, split};
use crate::sys;
use crate::version::{Version, stat_at};

/// Set-ID bits: a file that has them is left to the full commit.
const SET_ID: u32 = 0o6000;

/// One name that is to be changed.
#[derive(Debug)]
pub(super) struct NameTarget {
    pub path: Vec<u8>,
    /// The directory, opened before the read set is validated.
    dir: OwnedFd,
    pub dir_id: FileId,
    pub name: Vec<u8>,
    /// What is there.
    pub base: Option<Version>,
    /// Where in the store the new file is, and where the old one goes.
    aside: Vec<u8>,
    /// What the log says of it.
    pub record: NameRecord,
}

/// A layer of the transaction: its root in the tree, and where its private copies lie.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Canonical path of the root.
    pub root: PathBuf,
    /// The store, and the layer's directory in it; none if the transaction has no private copies there.
    pub copies: Option<(PathBuf, PathBuf)>,
}

/// What a commit of names is about, if the deltas are one: files that are new, replace a file with one name,
/// or such files that go.
pub(super) fn targets(grounds: &[Ground], deltas: &[Delta]) -> Result<Option<Vec<NameTarget>>> {
    // Owners are recorded by number.
    if !crate::rights::is_initial() {
        return Ok(None);
    }
    let mut bytes = 0;
    let mut targets: Vec<NameTarget> = Vec::with_capacity(deltas.len());
    for delta in deltas {
        let Some(target) = target(grounds, delta, targets.len())? else { return Ok(None) };
        bytes += target.record.after.as_ref().map_or(0, |new| new.content.len());
        let twice = targets.iter().any(|t| t.path == target.path || t.aside == target.aside);
        if bytes > BYTES_MAX || twice {
            return Ok(None);
        }
        targets.push(target);
    }
    Ok((!targets.is_empty()).then_some(targets))
}

fn target(grounds: &[Ground], delta: &Delta, number: usize) -> Result<Option<NameTarget>> {
    let Some(Ground { root, copies: Some((store, copies)) }) = grounds.get(delta.layer) else {
        return Ok(None);
    };
    let (staged, base) = match &delta.what {
        What::Put { staged, base } => (Some(staged), *base),
        What::Remove { base } => (None, Some(*base)),
        _ => return Ok(None),
    };
    let plain = |v: &Version| v.kind() == FileKind::File && v.nlink == 1 && v.mode & SET_ID == 0;
    let elsewhere = delta.path != delta.stable_path || delta.nameless || delta.path.is_empty();
    if elsewhere || base.is_some_and(|base| !plain(&base)) {
        return Ok(None);
    }
    let copies = copies.as_os_str().as_encoded_bytes();
    let aside = match staged {
        Some(staged) => join(copies, staged),
        None => join(copies, format!("old/{number}").as_bytes()),
    };
    let after = match staged {
        Some(_) => match new_file(&aside, plain) {
            Ok(Some(new)) => Some(new),
            // Its mode may forbid what the full commit can do nevertheless.
            Ok(None) | Err(_) => return Ok(None),
        },
        None => None,
    };
    let path = join(root.as_os_str().as_encoded_bytes(), &delta.path);
    let Some((parent, name)) = split(&path) else { return Ok(None) };
    let opened = sys::open_dir_canonical(parent)
        .and_then(|dir| Ok((stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH)?.id, dir)));
    let (dir_id, dir) = match opened {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            return Err(conflict(&path, ConflictKind::DirectoryGone));
        }
        Err(_) => return Ok(None),
    };
    let record = NameRecord {
        path: path.clone(),
        before: base.map(|base| base.id),
        after,
        store: store.as_os_str().as_encoded_bytes().to_vec(),
        aside: aside.clone(),
    };
    let name = name.to_vec();
    Ok(Some(NameTarget { path, dir, dir_id, name, base, aside, record }))
}

/// What a private copy is, if it is a small file that its bytes, mode, owner and time say all of.
fn new_file(
    path: &[u8],
    plain: impl Fn(&Version) -> bool,
) -> std::result::Result<Option<NewFile>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = sys::open(path, flags, 0)?;
    let version = stat_at(file.as_fd(), b"", AtFlags::EMPTY_PATH)?;
    let length = usize::try_from(version.size).unwrap_or(usize::MAX);
    if !plain(&version) || length > BYTES_MAX {
        return Ok(None);
    }
    let listed = sys::look("listxattr", || rustix::fs::flistxattr(&file, &mut [0u8; 16][..]));
    if !matches!(listed, Ok(0) | Err(Errno::OPNOTSUPP)) {
        return Ok(None);
    }
    let Some(content) = super::read_whole(&file, 0, length)? else { return Ok(None) };
    let Version { id, mode, uid, gid, mtime, .. } = version;
    Ok(Some(NewFile { id, mode: mode & 0o7777, uid, gid, mtime, content }))
}

/// Publishes all names, or none: what was done is taken back if one can't be.
///
/// # Errors
/// Why not, and what became of taking it back.
pub(super) fn publish(
    names: &[NameTarget],
) -> std::result::Result<(), (Error, std::result::Result<(), Errno>)> {
    for (done, target) in names.iter().enumerate() {
        if let Err((error, renamed)) = target.publish() {
            let done = done + usize::from(renamed);
            let back = names.iter().take(done).rev().try_for_each(NameTarget::take_back);
            return Err((error, back));
        }
    }
    Ok(())
}

impl NameTarget {
    /// Whether the path still leads to the directory that was opened.
    pub fn is_reached(&self) -> Result<()> {
        let Some((parent, _)) = split(&self.path) else { return Ok(()) };
        let now = stat_at(CWD, parent, AtFlags::SYMLINK_NOFOLLOW);
        match now {
            Ok(now) if now.id == self.dir_id => Ok(()),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                Err(conflict(&self.path, ConflictKind::DirectoryGone))
            }
            Err(e) => Err(Error::io("looking at", path::from_bytes(parent), e)),
        }
    }

    /// Whether what is there is what was found.
    pub fn is_as_before(&self) -> Result<()> {
        match stat_at(self.dir.as_fd(), &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) if self.base.is_some_and(|base| base.id == now.id) => Ok(()),
            Ok(_) if self.base.is_none() => {
                Err(conflict(&self.path, ConflictKind::CreatedMeanwhile))
            }
            Ok(_) => Err(conflict(&self.path, ConflictKind::Replaced)),
            Err(Errno::NOENT) if self.base.is_none() => Ok(()),
            Err(Errno::NOENT) => Err(conflict(&self.path, ConflictKind::NotThere)),
            Err(e) => Err(Error::io("looking at", path::from_bytes(&self.path), e)),
        }
    }

    /// The directory.
    pub fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Whether a power cut can be told from somebody's change here.
    pub fn keeps_order(&self) -> bool {
        // The tests of this module stand for a file system that does.
        cfg!(test) || super::settled::keeps_order(&self.dir, self.dir_id)
    }

    fn take_out(&self, flags: RenameFlags) -> std::result::Result<(), Errno> {
        sys::rename(self.dir.as_fd(), &self.name, CWD, &self.aside, flags)
    }

    fn put_in(&self, flags: RenameFlags) -> std::result::Result<(), Errno> {
        sys::rename(CWD, &self.aside, self.dir.as_fd(), &self.name, flags)
    }

    /// An error comes with whether the rename was done: then it has to be taken back.
    fn publish(&self) -> std::result::Result<(), (Error, bool)> {
        let lost = |e| match e {
            Errno::EXIST => conflict(&self.path, ConflictKind::CreatedMeanwhile),
            Errno::NOENT => conflict(&self.path, ConflictKind::NotThere),
            e => Error::io("publishing", path::from_bytes(&self.path), e),
        };
        let renamed = match (&self.record.after, self.base) {
            (Some(_), None) => self.put_in(RenameFlags::NOREPLACE),
            (Some(_), Some(_)) => self.put_in(RenameFlags::EXCHANGE),
            (None, _) => self.take_out(RenameFlags::NOREPLACE),
        };
        renamed.map_err(|e| (lost(e), false))?;
        let Some(base) = self.base else { return Ok(()) };
        // Nothing can have been written to it that is not seen here, except through a descriptor.
        match stat_at(CWD, &self.aside, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(taken) if taken.same_but_ctime(&base) && taken.nlink == base.nlink => Ok(()),
            Ok(_) => Err((conflict(&self.path, ConflictKind::ChangedWhileReplaced), true)),
            Err(e) => Err((Error::io("looking at", path::from_bytes(&self.path), e), true)),
        }
    }

    /// Undoes [`NameTarget::publish`].
    fn take_back(&self) -> std::result::Result<(), Errno> {
        match (&self.record.after, self.base) {
            (Some(new), base) => {
                let there = stat_at(self.dir.as_fd(), &self.name, AtFlags::SYMLINK_NOFOLLOW);
                match there {
                    Ok(there) if there.id == new.id => {}
                    // Somebody else has taken it away, or put another there: it stays as it is now.
                    Ok(_) | Err(Errno::NOENT) => return Ok(()),
                    Err(e) => return Err(e),
                }
                match base {
                    None => self.take_out(RenameFlags::NOREPLACE),
                    Some(_) => self.put_in(RenameFlags::EXCHANGE),
                }
            }
            // If another one has that name by now, it is neither done nor undone.
            (None, _) => self.put_in(RenameFlags::NOREPLACE),
        }
    }

    /// Deletes what was taken out of the tree. Left over, it goes with the transaction's directory.
    pub fn forget_old(&self) {
        if self.base.is_some() {
            let _ = sys::unlink(CWD, &self.aside, AtFlags::empty());
        }
    }
}

/// How far a commit got with a name, by the inodes at its two ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    Before,
    After,
    /// Somebody else has put something else there first.
    Foreign,
}

fn id_at(path: &[u8]) -> Result<Option<FileId>> {
    match stat_at(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(version) => Ok(Some(version.id)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(Error::io("looking at", path::from_bytes(path), e)),
    }
}

impl NameRecord {
    fn reached(&self) -> Result<Reached> {
        let there = id_at(&self.path)?;
        let Some(new) = &self.after else {
            return Ok(if there == self.before { Reached::Before } else { Reached::After });
        };
        // At neither end, it was published, and somebody has taken it away since.
        if there == Some(new.id) || id_at(&self.aside)? != Some(new.id) {
            return Ok(Reached::After);
        }
        Ok(if there == self.before { Reached::Before } else { Reached::Foreign })
    }

    fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
        match sys::rename(CWD, from, CWD, to, flags) {
            // Somebody else was faster, in this moment.
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io("finishing a commit on", path::from_bytes(&self.path), e)),
        }
    }

    fn finish(&self) -> Result<()> {
        match (&self.after, self.before) {
            (Some(_), None) => self.rename(&self.aside, &self.path, RenameFlags::NOREPLACE),
            (Some(_), Some(_)) => self.rename(&self.aside, &self.path, RenameFlags::EXCHANGE),
            (None, _) => self.rename(&self.path, &self.aside, RenameFlags::NOREPLACE),
        }
    }

    fn undo(&self) -> Result<()> {
        let (there, aside) = (id_at(&self.path)?, id_at(&self.aside)?);
        match (&self.after, self.before) {
            (Some(new), None) if there == Some(new.id) => {
                self.rename(&self.path, &self.aside, RenameFlags::NOREPLACE)
            }
            (Some(new), Some(_)) if there == Some(new.id) && aside == self.before => {
                self.rename(&self.path, &self.aside, RenameFlags::EXCHANGE)
            }
            (None, Some(_)) if there.is_none() && aside == self.before => {
                self.rename(&self.aside, &self.path, RenameFlags::NOREPLACE)
            }
            _ => Ok(()),
        }
    }
}

/// What became of a commit whose process died while it published names, in this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Everything is in place; whether something was missing.
    Finished(bool),
    /// Somebody else was in the way: nothing of it is there.
    Undone,
}

/// Finishes what a dead process has begun to publish; or takes it back, where what somebody else has done
/// meanwhile can't be reconciled with it.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn finish_or_undo(names: &[NameRecord]) -> Result<Fate> {
    let mut reached = Vec::with_capacity(names.len());
    for name in names {
        reached.push(name.reached()?);
    }
    if reached.contains(&Reached::Foreign) {
        for name in names.iter().rev() {
            name.undo()?;
        }
        return Ok(Fate::Undone);
    }
    for (name, reached) in names.iter().zip(&reached) {
        if *reached == Reached::Before {
            name.finish()?;
        }
    }
    Ok(Fate::Finished(reached.contains(&Reached::Before)))
}
