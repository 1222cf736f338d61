//! Light commits of names: small files that are new, replace another one, or go, and files that get another name.
//!
//! Each name is one rename, between its place in the tree and a place in the store, or between two places in the
//! tree. Which of the two ends holds which inode tells how far a commit got, so that whoever comes after a dead
//! process finishes what it began, or takes all of it back where somebody else is in the way. After a power cut the
//! inodes may be gone; then the record's content is what is put there ([`super::replay`]). A file that gets another
//! name is no durable commit's.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use super::log::{MoveRecord, NameRecord, NewFile, OldFile};
use super::{BYTES_MAX, conflict};
use crate::changeset::{Delta, What};
use crate::commit::roots::EntryRef;
use crate::commit::{inplace, rescued};
use crate::error::{ConflictKind, Error, Result};
use crate::id::TxId;
use crate::object::{FileId, FileKind};
use crate::path::{self, join, split};
use crate::sys;
use crate::version::{Version, stat_at};

/// Set-ID bits: a file that has them is left to the full commit.
const SET_ID: u32 = 0o6000;

/// A name in the tree, and its directory, which is opened before the read set is validated.
#[derive(Debug)]
pub(super) struct End {
    pub path: Vec<u8>,
    dir: OwnedFd,
    pub dir_id: FileId,
    pub name: Vec<u8>,
}

/// One name that is to be changed.
#[derive(Debug)]
pub(super) struct NameTarget {
    pub end: End,
    /// What is there.
    pub base: Option<Version>,
    /// Where in the store the new file is, and where the old one goes.
    aside: Vec<u8>,
    /// What the log says of it.
    pub record: NameRecord,
}

/// One file that is to have another name, where nothing is.
#[derive(Debug)]
pub(super) struct MoveTarget {
    pub from: End,
    pub to: End,
    /// It.
    pub source: Version,
    /// Opened so that it can be looked at (`O_PATH`).
    file: OwnedFd,
}

/// Everything that a commit does to names.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub names: Vec<NameTarget>,
    pub moves: Vec<MoveTarget>,
}

/// A layer of the transaction: its root in the tree, and where its private copies lie.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Canonical path of the root.
    pub root: PathBuf,
    /// The store, and the layer's directory in it; none if the transaction has no private copies there.
    pub copies: Option<(PathBuf, PathBuf)>,
}

/// What a commit does to names, if a light one can: files that are new, replace a file with one name, such files that
/// go, and files that get another name where nothing is.
pub(super) fn changes(grounds: &[Ground], deltas: &[&Delta]) -> Result<Option<Changes>> {
    // Owners are recorded by number.
    if !crate::rights::is_initial() {
        return Ok(None);
    }
    let mut all = Changes::default();
    for delta in deltas {
        let Some(ground) = grounds.get(delta.layer) else { return Ok(None) };
        if delta.path != delta.stable_path || delta.nameless || delta.path.is_empty() {
            return Ok(None);
        }
        if let What::Move { from, source, base: None } = &delta.what {
            let Some(target) = moved(ground, &delta.path, from, source)? else { return Ok(None) };
            all.moves.push(target);
        } else {
            let Some(target) = target(ground, delta, all.names.len())? else { return Ok(None) };
            if all.names.iter().any(|t| t.aside == target.aside) {
                return Ok(None);
            }
            all.names.push(target);
        }
    }
    // One change for each name: then their order says nothing.
    let mut paths: Vec<&[u8]> = all.ends().map(|end| &end.path[..]).collect();
    let count = paths.len();
    paths.sort_unstable();
    paths.dedup();
    Ok((paths.len() == count && all.bytes() <= BYTES_MAX).then_some(all))
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.moves.is_empty()
    }

    /// Every name that changes.
    pub fn ends(&self) -> impl Iterator<Item = &End> {
        let moved = self.moves.iter().flat_map(|target| [&target.from, &target.to]);
        self.names.iter().map(|target| &target.end).chain(moved)
    }

    /// How much the new files hold.
    pub fn bytes(&self) -> usize {
        let new = self.names.iter().filter_map(|target| target.record.after.as_ref());
        new.map(|new| new.content.len()).sum()
    }

    /// Publishes all names, or none: what was done is taken back if one can't be.
    ///
    /// # Errors
    /// Why not, and what became of taking it back.
    pub fn publish(
        &self,
        id: TxId,
    ) -> std::result::Result<(), (Error, std::result::Result<(), Errno>)> {
        for (done, target) in self.names.iter().enumerate() {
            if let Err((error, renamed)) = target.publish() {
                return Err((error, self.take_back_first(done + usize::from(renamed), id)));
            }
        }
        for (done, target) in self.moves.iter().enumerate() {
            if let Err((error, back)) = target.publish() {
                let others = self.take_back_first(self.names.len() + done, id);
                return Err((error, back.and(others)));
            }
        }
        Ok(())
    }

    /// Takes back all that [`Changes::publish`] has done.
    pub fn take_back(&self, id: TxId) -> std::result::Result<(), Errno> {
        self.take_back_first(usize::MAX, id)
    }

    /// The same for so many of them, in the order in which they were published.
    fn take_back_first(&self, count: usize, id: TxId) -> std::result::Result<(), Errno> {
        let moved = self.moves.iter().take(count.saturating_sub(self.names.len()));
        moved.rev().try_for_each(MoveTarget::take_back)?;
        for target in self.names.iter().take(count).rev() {
            target.take_back()?;
            if let Some(note) = target.record.rescue_if_touched(id, false)? {
                tracing::warn!("{note}");
            }
        }
        Ok(())
    }
}

fn moved(
    ground: &Ground,
    path: &[u8],
    from: &[u8],
    source: &Version,
) -> Result<Option<MoveTarget>> {
    if source.kind() != FileKind::File || from.is_empty() {
        return Ok(None);
    }
    let root = ground.root.as_os_str().as_encoded_bytes();
    let (Some(from), Some(to)) = (End::open(join(root, from))?, End::open(join(root, path))?)
    else {
        return Ok(None);
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    match sys::open_at(from.dir.as_fd(), &from.name, flags) {
        Ok(file) => Ok(Some(MoveTarget { from, to, source: *source, file })),
        Err(Errno::NOENT) => Err(conflict(&from.path, ConflictKind::NotThere)),
        Err(_) => Ok(None),
    }
}

fn target(ground: &Ground, delta: &Delta, number: usize) -> Result<Option<NameTarget>> {
    let Ground { root, copies: Some((store, copies)) } = ground else { return Ok(None) };
    let (staged, base) = match &delta.what {
        What::Put { staged, base } => (Some(staged), *base),
        What::Remove { base } => (None, Some(*base)),
        _ => return Ok(None),
    };
    let plain = |v: &Version| v.kind() == FileKind::File && v.nlink == 1 && v.mode & SET_ID == 0;
    if base.is_some_and(|base| !plain(&base)) {
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
    let Some(end) = End::open(path)? else { return Ok(None) };
    // The full commit waits for who has opened it for a moment.
    let is_replaced = after.is_some() && base.is_some();
    if is_replaced && inplace::has_writer_at(end.dir.as_fd(), &end.name) {
        return Ok(None);
    }
    let record = NameRecord {
        path: end.path.clone(),
        before: base.map(|base| base.id),
        old: base.as_ref().map(OldFile::of),
        after,
        store: store.as_os_str().as_encoded_bytes().to_vec(),
        aside: aside.clone(),
    };
    Ok(Some(NameTarget { end, base, aside, record }))
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

impl End {
    /// A name by its canonical path; `None` if its directory can't be opened.
    ///
    /// # Errors
    /// The directory is not there.
    fn open(path: Vec<u8>) -> Result<Option<End>> {
        let Some((parent, name)) = split(&path) else { return Ok(None) };
        let name = name.to_vec();
        let opened = sys::open_dir_canonical(parent)
            .and_then(|dir| Ok((stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH)?.id, dir)));
        match opened {
            Ok((dir_id, dir)) => Ok(Some(End { path, dir, dir_id, name })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                Err(conflict(&path, ConflictKind::DirectoryGone))
            }
            Err(_) => Ok(None),
        }
    }

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

    /// The directory.
    pub fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Opens a file here, to flush it; `None` if it is another one by now.
    pub fn open_file(&self, file: &Version) -> std::result::Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = match sys::open_at(self.dir.as_fd(), &self.name, flags) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        let now = stat_at(opened.as_fd(), b"", AtFlags::EMPTY_PATH)?;
        Ok((now.id == file.id).then_some(opened))
    }

    fn look(&self) -> std::result::Result<Version, Errno> {
        stat_at(self.dir.as_fd(), &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Why a rename to or from here failed.
    fn lost(&self, e: Errno) -> Error {
        match e {
            Errno::EXIST => conflict(&self.path, ConflictKind::CreatedMeanwhile),
            Errno::NOENT => conflict(&self.path, ConflictKind::NotThere),
            e => Error::io("publishing", path::from_bytes(&self.path), e),
        }
    }
}

/// Moves the file at one name to another, where nothing is.
fn rename_onto_nothing(from: &End, to: &End) -> std::result::Result<(), Errno> {
    let (old, new) = (from.dir.as_fd(), to.dir.as_fd());
    sys::rename(old, &from.name, new, &to.name, RenameFlags::NOREPLACE)
}

impl MoveTarget {
    /// What the log says of it.
    pub fn record(&self) -> MoveRecord {
        let (from, to) = (self.from.path.clone(), self.to.path.clone());
        MoveRecord { from, to, id: self.source.id }
    }

    /// An error comes with what became of taking it back.
    fn publish(&self) -> std::result::Result<(), (Error, std::result::Result<(), Errno>)> {
        rename_onto_nothing(&self.from, &self.to).map_err(|e| match e {
            Errno::NOENT => (self.from.lost(e), Ok(())),
            e => (self.to.lost(e), Ok(())),
        })?;
        match self.to.look() {
            Ok(now) if now.id == self.source.id => return Ok(()),
            // Somebody has moved it on.
            Err(Errno::NOENT) => return Ok(()),
            Ok(_) | Err(_) => {}
        }
        // Somebody has put another one over it; or had put another one in its place, which goes back.
        match stat_at(self.file.as_fd(), b"", AtFlags::EMPTY_PATH) {
            Ok(now) if now.id == self.source.id && now.nlink < self.source.nlink => Ok(()),
            _ => {
                let lost = conflict(&self.from.path, ConflictKind::ChangedWhileReplaced);
                Err((lost, rename_onto_nothing(&self.to, &self.from)))
            }
        }
    }

    /// Undoes [`MoveTarget::publish`], unless somebody has moved it since.
    fn take_back(&self) -> std::result::Result<(), Errno> {
        match self.to.look() {
            Ok(now) if now.id == self.source.id => rename_onto_nothing(&self.to, &self.from),
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

impl NameTarget {
    /// Whether what is there is what was found.
    pub fn is_as_before(&self) -> Result<()> {
        match self.end.look() {
            Ok(now) if self.base.is_some_and(|base| base.id == now.id) => Ok(()),
            Ok(_) if self.base.is_none() => {
                Err(conflict(&self.end.path, ConflictKind::CreatedMeanwhile))
            }
            Ok(_) => Err(conflict(&self.end.path, ConflictKind::Replaced)),
            Err(Errno::NOENT) if self.base.is_none() => Ok(()),
            Err(Errno::NOENT) => Err(conflict(&self.end.path, ConflictKind::NotThere)),
            Err(e) => Err(Error::io("looking at", path::from_bytes(&self.end.path), e)),
        }
    }

    /// Whether a power cut can be told from somebody's change here.
    pub fn keeps_order(&self) -> bool {
        // The tests of this module stand for a file system that does.
        cfg!(test) || super::settled::keeps_order(&self.end.dir, self.end.dir_id)
    }

    fn take_out(&self, flags: RenameFlags) -> std::result::Result<(), Errno> {
        sys::rename(self.end.dir.as_fd(), &self.end.name, CWD, &self.aside, flags)
    }

    fn put_in(&self, flags: RenameFlags) -> std::result::Result<(), Errno> {
        sys::rename(CWD, &self.aside, self.end.dir.as_fd(), &self.end.name, flags)
    }

    /// An error comes with whether the rename was done: then it has to be taken back.
    fn publish(&self) -> std::result::Result<(), (Error, bool)> {
        let renamed = match (&self.record.after, self.base) {
            (Some(_), None) => self.put_in(RenameFlags::NOREPLACE),
            (Some(_), Some(_)) => self.put_in(RenameFlags::EXCHANGE),
            (None, _) => self.take_out(RenameFlags::NOREPLACE),
        };
        renamed.map_err(|e| (self.end.lost(e), false))?;
        let Some(base) = self.base else { return Ok(()) };
        // Who has it open for writing would write to what nobody finds any more. This comes first: who has closed it by now
        // has left a mark.
        if self.record.after.is_some() && inplace::has_writer_at(CWD, &self.aside) {
            return Err((conflict(&self.end.path, ConflictKind::OpenedWhileReplaced), true));
        }
        match stat_at(CWD, &self.aside, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(taken) if taken.same_but_ctime(&base) && taken.nlink == base.nlink => Ok(()),
            Ok(_) => Err((conflict(&self.end.path, ConflictKind::ChangedWhileReplaced), true)),
            Err(e) => Err((Error::io("looking at", path::from_bytes(&self.end.path), e), true)),
        }
    }

    /// Undoes [`NameTarget::publish`].
    fn take_back(&self) -> std::result::Result<(), Errno> {
        match (&self.record.after, self.base) {
            (Some(new), base) => {
                match self.end.look() {
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

/// The directory of a path and the name in it, by no link on the way, which somebody may have put there since; `None` if
/// it is not there.
fn spot(path: &[u8]) -> Result<Option<(OwnedFd, &[u8])>> {
    let Some((parent, name)) = split(path) else { return Ok(None) };
    match sys::open_dir_canonical(parent) {
        Ok(dir) => Ok(Some((dir, name))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(Error::io("looking at", path::from_bytes(parent), e)),
    }
}

fn id_at(path: &[u8]) -> Result<Option<FileId>> {
    Ok(version_at(path)?.map(|version| version.id))
}

fn version_at(path: &[u8]) -> Result<Option<Version>> {
    let Some((dir, name)) = spot(path)? else { return Ok(None) };
    match stat_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(version) => Ok(Some(version)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(Error::io("looking at", path::from_bytes(path), e)),
    }
}

/// Renames from one path to another. Where somebody else was faster, in this moment, nothing is done.
fn rename(from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
    let (Some((old_dir, old)), Some((new_dir, new))) = (spot(from)?, spot(to)?) else {
        return Ok(());
    };
    match sys::rename(old_dir.as_fd(), old, new_dir.as_fd(), new, flags) {
        Ok(()) | Err(Errno::EXIST | Errno::NOENT) => Ok(()),
        Err(e) => Err(Error::io("finishing a commit on", path::from_bytes(to), e)),
    }
}

impl NameRecord {
    fn reached(&self) -> Result<Reached> {
        let there = version_at(&self.path)?;
        let id = there.map(|version| version.id);
        if id == self.before {
            // What was there must not have been changed since: the change would go with the file.
            let changed = there.zip(self.old).is_some_and(|(now, old)| !old.is(&now));
            // At neither end, the new file was published, and somebody has taken it away since.
            return match &self.after {
                Some(new) if id_at(&self.aside)? != Some(new.id) => Ok(Reached::After),
                _ => Ok(if changed { Reached::Foreign } else { Reached::Before }),
            };
        }
        // Whoever took the old file out of the tree may have died before its look at what came out. In that of a
        // file that was replaced nobody may write: the change would go with it as well. This is asked before the look.
        let written = self.after.is_some() && inplace::has_writer_at(CWD, &self.aside);
        let aside = version_at(&self.aside)?;
        if let Some(out) = aside.filter(|out| Some(out.id) == self.before)
            && (written || self.old.is_some_and(|old| !old.is(&out)))
        {
            return Ok(Reached::Foreign);
        }
        let new = self.after.as_ref().map(|new| new.id);
        let waits = new.is_some() && id != new && aside.map(|aside| aside.id) == new;
        Ok(if waits { Reached::Foreign } else { Reached::After })
    }

    /// Gives `false` if somebody else has changed the old file since it was looked at, has put another one in its place, or has it
    /// open for writing: then nothing is done.
    fn finish(&self) -> Result<bool> {
        let Some(before) = self.before else {
            rename(&self.aside, &self.path, RenameFlags::NOREPLACE)?;
            return Ok(true);
        };
        let (from, to, flags) = match self.after {
            Some(_) => (&self.aside, &self.path, RenameFlags::EXCHANGE),
            None => (&self.path, &self.aside, RenameFlags::NOREPLACE),
        };
        rename(from, to, flags)?;
        // Before the look at what came out: who has closed it by then has left a mark.
        let written = self.after.is_some() && inplace::has_writer_at(CWD, &self.aside);
        let out = version_at(&self.aside)?;
        let new = self.after.as_ref().map(|new| new.id);
        // Nothing was done: a name has gone meanwhile.
        let Some(out) = out.filter(|out| Some(out.id) != new) else { return Ok(true) };
        if out.id == before && !written && self.old.is_none_or(|old| old.is(&out)) {
            return Ok(true);
        }
        rename(to, from, flags)?;
        Ok(false)
    }

    /// Gives a note of what somebody else had written into the new file, which is kept.
    fn undo(&self, id: TxId) -> Result<Option<String>> {
        let (there, aside) = (id_at(&self.path)?, id_at(&self.aside)?);
        match (&self.after, self.before) {
            (Some(new), None) if there == Some(new.id) => {
                rename(&self.path, &self.aside, RenameFlags::NOREPLACE)?;
            }
            (Some(new), Some(_)) if there == Some(new.id) && aside == self.before => {
                rename(&self.path, &self.aside, RenameFlags::EXCHANGE)?;
            }
            (None, Some(_)) if there.is_none() && aside == self.before => {
                rename(&self.aside, &self.path, RenameFlags::NOREPLACE)?;
            }
            _ => {}
        }
        // Its process is dead: who has the file open is somebody else, who may yet write to it.
        let written = self.after.is_some() && inplace::has_writer_at(CWD, &self.aside);
        let io = |e| Error::io("rescuing", path::from_bytes(&self.path), e);
        self.rescue_if_touched(id, written).map_err(io)
    }

    /// Where what lies aside when a commit was taken back was written to by somebody else, it is kept at a place where nothing
    /// deletes it: a new file that was in the tree for a while, or an old one whose name another file has by now.
    /// Gives a note of that. `written`: somebody else has it open for writing.
    fn rescue_if_touched(
        &self,
        id: TxId,
        written: bool,
    ) -> std::result::Result<Option<String>, Errno> {
        let now = match stat_at(CWD, &self.aside, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => now,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(e),
        };
        let is_as_known = match &self.after {
            Some(new) if now.id == new.id => {
                now.size == new.content.len() as u64 && now.mtime == new.mtime
            }
            _ if Some(now.id) == self.before => self.old.is_none_or(|old| old.is(&now)),
            _ => return Ok(None),
        };
        if is_as_known && !written {
            return Ok(None);
        }
        let at = self.rescue(id, written)?;
        Ok(Some(rescued::note(&self.path, &at)))
    }

    /// Keeps a copy of what lies aside. Or the file itself, if somebody still writes to it, if it may not be read, or if there is
    /// no room for a copy. Says where.
    fn rescue(&self, id: TxId, written: bool) -> std::result::Result<Vec<u8>, Errno> {
        let store = sys::open(&self.store, OFlags::PATH | OFlags::DIRECTORY, 0)?;
        let base = split(&self.path).map_or(&[][..], |(_, name)| name);
        let from = match written {
            true => None,
            false => sys::open(&self.aside, OFlags::RDONLY | OFlags::NOFOLLOW, 0).ok(),
        };
        let (above, name) = split(&self.aside).ok_or(Errno::INVAL)?;
        let above = sys::open(above, OFlags::PATH | OFlags::DIRECTORY, 0)?;
        let aside = EntryRef { dir: Rc::new(above), name: name.to_vec() };
        rescued::keep(store.as_fd(), id, base, |dir, to| {
            let itself = || sys::rename(CWD, &self.aside, dir.as_fd(), to, RenameFlags::NOREPLACE);
            let Some(from) = &from else { return itself() };
            let copy = sys::create(dir.as_fd(), to)?;
            let place = EntryRef { dir: dir.clone(), name: to.to_vec() };
            let copied = crate::sys_copy::content(from, &copy).map(drop);
            copied.and_then(|()| rescued::like(&aside, &place)).or_else(|_| {
                sys::unlink(dir.as_fd(), to, AtFlags::empty())?;
                itself()
            })
        })
    }
}

impl MoveRecord {
    fn reached(&self) -> Result<Reached> {
        let (from, to) = (id_at(&self.from)?, id_at(&self.to)?);
        if to == Some(self.id) {
            return Ok(Reached::After);
        }
        if from == Some(self.id) {
            return Ok(if to.is_none() { Reached::Before } else { Reached::Foreign });
        }
        // At neither end, somebody has moved it since; or its directory, with it.
        Ok(if spot(&self.from)?.is_some() { Reached::After } else { Reached::Foreign })
    }

    fn undo(&self) -> Result<()> {
        match (id_at(&self.from)?, id_at(&self.to)?) {
            (None, Some(there)) if there == self.id => {
                rename(&self.to, &self.from, RenameFlags::NOREPLACE)
            }
            _ => Ok(()),
        }
    }
}

/// How often a name is tried that others change at the same time.
const ATTEMPTS: u32 = 8;

/// Finishes what a dead process has begun to publish. Gives whether something was missing; `None` where what somebody else has
/// done meanwhile can't be reconciled with it.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn finish(names: &[NameRecord], moves: &[MoveRecord]) -> Result<Option<bool>> {
    for attempt in 0..ATTEMPTS {
        let mut reached = Vec::with_capacity(names.len());
        for name in names {
            reached.push(name.reached()?);
        }
        let mut moved = Vec::with_capacity(moves.len());
        for name in moves {
            moved.push(name.reached()?);
        }
        let is = |what| reached.contains(&what) || moved.contains(&what);
        if is(Reached::Foreign) {
            return Ok(None);
        }
        if !is(Reached::Before) {
            return Ok(Some(attempt > 0));
        }
        for (name, _) in names.iter().zip(&reached).filter(|(_, r)| **r == Reached::Before) {
            if !name.finish()? {
                return Ok(None);
            }
        }
        for (name, _) in moves.iter().zip(&moved).filter(|(_, r)| **r == Reached::Before) {
            rename(&name.from, &name.to, RenameFlags::NOREPLACE)?;
        }
    }
    let path = names.first().map(|name| &name.path).or(moves.first().map(|name| &name.to));
    let path = path::from_bytes(path.map_or(b"", |path| path));
    Err(Error::io("finishing a commit on", path, Errno::BUSY))
}

/// Takes back what a dead process has published. Where somebody else has put something in its place that stays; what
/// somebody else has written into a new file is kept, and told in the notes.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn undo(
    names: &[NameRecord],
    moves: &[MoveRecord],
    id: TxId,
    notes: &mut Vec<String>,
) -> Result<()> {
    moves.iter().rev().try_for_each(MoveRecord::undo)?;
    for name in names.iter().rev() {
        notes.extend(name.undo(id)?);
    }
    Ok(())
}
