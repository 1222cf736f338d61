//! Reading the change set of one layer from its overlayfs upper directory.
//!
//! What overlayfs leaves in an upper directory (kernel documentation, filesystems/overlayfs.rst):
//!
//! | in the upper | means |
//! |---|---|
//! | character device 0:0 | a *whiteout*: the name is gone |
//! | directory with `overlay.opaque=y` | a new directory; nothing of a lower one shows through |
//! | directory with `overlay.redirect=P` | a directory that was moved here from P |
//! | any other directory | merged with the stable directory of that name |
//! | anything else | a new object, or a copy of a stable one (`overlay.origin` holds its handle) |
//!
//! Nothing here changes anything.

mod objects;
mod renamed;

pub(crate) use objects::forget_indexed;
pub(super) use objects::unhex;
pub use renamed::Renamed;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;

use super::attrs::{AttrChange, Attrs};
use super::{Action, Change, Strip};
use crate::error::{Conflict, ConflictKind, Context, Error, Result};
use crate::object::{Facets, FileKind};
use crate::path::join;
use crate::path::layer::{child, split};
use crate::readset::ReadSet;
use crate::store::{Layer, old_place};
use crate::sys;
use crate::version::{Stamp, Version, stat_at};

/// The prefix of overlayfs's own extended attributes: root's overlays use `trusted.`, which nobody
/// else can set; in a user namespace, also in that of a root who is not the machine's, it is `user.` (mount option `userxattr`). Never both: to
/// root's overlay `user.overlay.*` is data like any other, which any user can write.
fn overlay_prefix() -> &'static [u8] {
    if crate::rights::is_privileged_throughout() { b"trusted.overlay." } else { b"user.overlay." }
}

/// Whether an extended attribute belongs to overlayfs.
pub(crate) fn is_overlay_xattr(name: &[u8]) -> bool {
    name.starts_with(overlay_prefix())
}

/// The value of one of overlayfs's attributes, in either namespace.
pub(super) fn overlay_xattr<'a>(
    xattrs: &'a [(Vec<u8>, Vec<u8>)],
    which: &[u8],
) -> Option<&'a [u8]> {
    xattrs.iter().find_map(|(name, value)| {
        (name.strip_prefix(overlay_prefix())? == which).then_some(&value[..])
    })
}

/// A directory of the upper that is merged with a stable one.
struct Merged {
    /// Where it is, and where it will be published; relative to the layer.
    path: Vec<u8>,
    /// Where the stable directory is now; differs from `path` below a moved directory.
    stable: Vec<u8>,
    /// Where its upper part will be when its contents are published, relative to the layer's
    /// directory in the store.
    staged: Vec<u8>,
}

/// One non-directory of the upper, kept until links are known.
pub(super) struct File {
    path: Vec<u8>,
    staged: Vec<u8>,
    upper: Version,
    stable: Option<Version>,
    stable_path: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// It lies in a new directory and is published with it; it is here for its other links.
    in_new: bool,
    /// It is a copy of its stable counterpart, which has several names.
    indexed: bool,
    /// No name of it is left: its name in overlayfs's index.
    in_index: Option<Vec<u8>>,
}

/// The scan of one layer.
pub(super) struct Scan<'a> {
    layer: &'a Layer,
    /// When the transaction began.
    begun: Stamp,
    reads: &'a ReadSet,
    keep_inode: &'a dyn Fn(&[u8]) -> bool,
    upper_root: OwnedFd,
    stable_root: OwnedFd,
    /// Whether overlayfs marks every directory (`impure`) that holds an object with marks of its own. In a
    /// user namespace it can't tell a copy from a new object, and marks no directory into which one is moved or linked.
    marks_impure: bool,
    queue: Vec<Merged>,
    files: Vec<File>,
    changes: Vec<Change>,
    moved_from: HashMap<Vec<u8>, ()>,
    /// What is published with a new directory and then exchanged: shells of moved directories, and names of
    /// files that are linked to. At their paths there is nothing stable.
    shells: HashSet<Vec<u8>>,
    /// The directory of the stable tree that was last asked for an object by its handle.
    last_dir: RefCell<Option<(Vec<u8>, Option<OwnedFd>)>>,
    next_slot: &'a mut u64,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        layer: &'a Layer,
        begun: Stamp,
        reads: &'a ReadSet,
        keep_inode: &'a dyn Fn(&[u8]) -> bool,
        next_slot: &'a mut u64,
    ) -> Result<Self> {
        let open = |path: &std::path::Path| {
            sys::open_dir_canonical(path.as_os_str().as_bytes()).at("opening", path)
        };
        let stable_root = open(&layer.target)?;
        layer.check_root(stable_root.as_fd())?;
        Ok(Scan {
            upper_root: open(&layer.upper)?,
            stable_root,
            marks_impure: crate::rights::is_privileged_throughout(),
            layer,
            begun,
            reads,
            keep_inode,
            queue: vec![Merged { path: Vec::new(), stable: Vec::new(), staged: b"upper".to_vec() }],
            files: Vec::new(),
            changes: Vec::new(),
            moved_from: HashMap::new(),
            shells: HashSet::new(),
            last_dir: RefCell::new(None),
            next_slot,
        })
    }

    /// The changes of the layer, in no particular order.
    pub(super) fn run(mut self) -> Result<Vec<Change>> {
        while let Some(dir) = self.queue.pop() {
            self.merged_dir(&dir)?;
        }
        let mut files = std::mem::take(&mut self.files);
        let held = self.objects(&mut files)?;
        super::links::classify(&mut self, files)?;
        let moved = std::mem::take(&mut self.moved_from);
        let shells = std::mem::take(&mut self.shells);
        let in_tree = |c: &&mut Change| !shells.contains(&c.path[..]);
        for change in self.changes.iter_mut().filter(in_tree) {
            // The name a moved directory left behind is a whiteout; the move takes it away.
            let stable_path = change.stable_path.clone();
            match &mut change.action {
                Action::Remove if moved.contains_key(&stable_path[..]) => change.dropped = true,
                Action::Move { .. } | Action::Link { .. } | Action::Replace | Action::Rewrite
                    if moved.contains_key(&stable_path[..]) =>
                {
                    change.base = None;
                    if matches!(change.action, Action::Replace | Action::Rewrite) {
                        change.action = Action::Install;
                    }
                }
                _ => {}
            }
        }
        self.changes.retain(|c| !c.dropped);
        self.held(held)?;
        Ok(self.changes)
    }

    /// Whether a file of the upper is a copy of what is at its name, not something in its place.
    fn is_copy(&self, file: &File) -> Result<bool> {
        overlay_xattr(&file.xattrs, b"origin")
            .and_then(crate::sys_handle::Handle::stored)
            .map_or(Ok(false), |origin| self.is_at(&origin, &file.stable_path))
    }

    /// Whether a file is a changed copy of what is at its name although it has no handle of that. In a user
    /// namespace overlayfs may not look at file handles, so it stores none; where a file system has none, it
    /// stores an empty one.
    fn is_unmarked_copy(&self, file: &File) -> bool {
        let origin = overlay_xattr(&file.xattrs, b"origin");
        origin.is_none_or(<[u8]>::is_empty)
            && (origin.is_some() || !crate::rights::is_privileged_throughout())
            && self.reads.kept(&self.stable_abs(&file.stable_path))
    }

    fn stable_abs(&self, path: &[u8]) -> Vec<u8> {
        join(self.layer.target.as_os_str().as_bytes(), path)
    }

    fn slot(&mut self) -> Vec<u8> {
        *self.next_slot += 1;
        old_place("", *self.next_slot)
    }

    fn conflict<T>(&self, path: &[u8], what: ConflictKind) -> Result<T> {
        Err(Error::Conflict(vec![Conflict {
            path: crate::path::from_bytes(&self.stable_abs(path)),
            what,
            when: None,
        }]))
    }

    /// One directory that exists on both sides.
    fn merged_dir(&mut self, dir: &Merged) -> Result<()> {
        let upper = sys::open_dir_beneath(self.upper_root.as_fd(), &dir.path)
            .at("opening", self.show(&dir.path))?;
        let readable = sys::open_at(upper.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
            .at("opening", self.show(&dir.path))?;
        let mut names = Vec::new();
        sys::for_each_name(readable.as_fd(), |name, kind| names.push((name.to_vec(), kind)))
            .at("listing", self.show(&dir.path))?;
        let stable = match sys::open_dir_beneath(self.stable_root.as_fd(), &dir.stable) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return self.conflict(&dir.stable, ConflictKind::DirectoryRemoved);
            }
            // What this user may not enter, this user's transaction has not changed.
            Err(Errno::ACCESS) if names.is_empty() => return Ok(()),
            Err(e) => return Err(Error::io("opening", self.show(&dir.stable), e)),
        };
        let before = self.changes.len() + self.files.len();
        let own = sys::xattrs_in(upper.as_fd(), b"").at("reading", self.show(&dir.path))?;
        let impure = !self.marks_impure || overlay_xattr(&own, b"impure").is_some();
        for (name, kind) in names {
            self.entry(dir, (upper.as_fd(), impure), stable.as_fd(), &name, kind)?;
        }
        let changed_names = self.changes.len() + self.files.len() > before;
        self.dir_attrs(dir, upper.as_fd(), stable.as_fd(), changed_names)
    }

    /// Attributes of a merged directory.
    fn dir_attrs(
        &mut self,
        dir: &Merged,
        upper: BorrowedFd<'_>,
        stable: BorrowedFd<'_>,
        changed_names: bool,
    ) -> Result<()> {
        let look = |fd| stat_at(fd, b"", AtFlags::EMPTY_PATH);
        let (new, old) = (
            look(upper).at("looking at", self.show(&dir.path))?,
            look(stable).at("looking at", self.show(&dir.stable))?,
        );
        // The root of a layer can't keep a foreign owner in a user namespace, and its user can't
        // change what is not his.
        let user = rustix::process::geteuid();
        if dir.path.is_empty()
            && !crate::rights::is_privileged_throughout()
            && old.uid != user.as_raw()
        {
            return Ok(());
        }
        let at = |fd| sys::entry_path(fd, b"");
        let new_attrs = Attrs::read(&new, &at(upper)).at("reading", self.show(&dir.path))?;
        let old_attrs = Attrs::read(&old, &at(stable)).at("reading", self.show(&dir.stable))?;
        let mut change = AttrChange::between(&old_attrs, &new_attrs);
        if dir.path.is_empty()
            && new.gid == rustix::process::getegid().as_raw()
            && cant_have(old.gid)
        {
            // Nor can it keep a group that is none of the user's, who could not give it back either.
            change.owner = None;
            if new.mode & 0o7777 == (old.mode | 0o400) & 0o7777 {
                change.mode = None;
            }
        }
        let seen = self.reads.get(&self.stable_abs(&dir.stable)).and_then(|o| match o.outcome {
            crate::readset::Outcome::Present(v) => Some(v),
            crate::readset::Outcome::Absent(_) => None,
        });
        // overlayfs copies a directory with its attributes. What the transaction has left as it was seen, and others have
        // changed since, is theirs.
        if let Some(seen) = seen {
            change.mode = change.mode.filter(|_| seen.mode != new.mode || seen.mode == old.mode);
            let owner = |v: &Version| (v.uid, v.gid);
            let is_own = owner(&seen) != owner(&new) || owner(&seen) == owner(&old);
            change.owner = change.owner.filter(|_| is_own);
        }
        // A directory's mtime moves with its entries. The transaction's is the one to leave,
        // unless somebody else has touched the directory since. One of before the transaction that is not the one it
        // has found was set by the command: as the commit comes after what others have done, it is the last.
        let is_set = seen.is_some_and(|v| v.mtime != new.mtime)
            && new.mtime.as_ns() + new.grain_ns() < self.begun.as_ns();
        let undisturbed =
            seen.is_some_and(|v| v.mtime == old.mtime) || new.mtime > old.mtime || is_set;
        change.mtime = (new.mtime != old.mtime && undisturbed || changed_names)
            .then_some((old.mtime, if undisturbed { new.mtime } else { old.mtime }));
        if changed_names && !undisturbed && new.mtime != old.mtime {
            change.mtime = None;
        }
        if change.is_nothing() {
            return Ok(());
        }
        let only_follows = changed_names && change.is_only_mtime();
        self.changes.push(Change {
            layer: self.layer.index,
            path: dir.path.clone().into(),
            stable_path: dir.stable.clone().into(),
            action: Action::Attrs(Box::new(change)),
            base: Some(old),
            new: Some(new),
            staged: dir.staged.clone(),
            strip: Vec::new(),
            shown: !only_follows,
            below: 0,
            dirs: Vec::new(),
            pages: Vec::new(),
            held: None,
            dropped: false,
        });
        Ok(())
    }

    fn entry(
        &mut self,
        dir: &Merged,
        (upper_dir, impure): (BorrowedFd<'_>, bool),
        stable_dir: BorrowedFd<'_>,
        name: &[u8],
        kind: FileType,
    ) -> Result<()> {
        let path = child(&dir.path, name);
        let stable_path = child(&dir.stable, name);
        let upper = stat_at(upper_dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .at("looking at", self.show(&path))?;
        let stable = match stat_at(stable_dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(v) => Some(v),
            Err(Errno::NOENT) => None,
            Err(e) => return Err(Error::io("looking at", self.show(&stable_path), e)),
        };
        if kind == FileType::CharacterDevice && upper.rdev == 0 {
            if stable.is_some() {
                let slot = self.slot();
                let below = match stable {
                    Some(v) if v.kind() == FileKind::Dir => self.count_stable(&stable_path),
                    _ => 0,
                };
                self.push(Action::Remove, path, stable_path, stable, None, slot, Vec::new());
                if let Some(change) = self.changes.last_mut() {
                    change.below = below;
                }
            }
            return Ok(());
        }
        // A plain new file in a directory into which nothing was copied has nothing to look for.
        let plain = !impure && stable.is_none() && upper.kind() != FileKind::Dir;
        let xattrs = if plain {
            Vec::new()
        } else {
            sys::xattrs_in(upper_dir, name).at("reading", self.show(&path))?
        };
        let staged = child(&dir.staged, name);
        if upper.kind() != FileKind::Dir {
            self.files.push(File {
                path,
                staged,
                upper,
                stable,
                stable_path,
                xattrs,
                in_new: false,
                indexed: false,
                in_index: None,
            });
            return Ok(());
        }
        if let Some(redirect) = overlay_xattr(&xattrs, b"redirect") {
            let from = redirect_source(&dir.stable, redirect);
            if from != stable_path {
                return self.moved_dir(path, stable_path, from, staged, stable, upper);
            }
        }
        let opaque = overlay_xattr(&xattrs, b"opaque") == Some(b"y");
        let merges = stable.is_some_and(|s| s.kind() == FileKind::Dir) && !opaque;
        if merges {
            self.queue.push(Merged { path, stable: stable_path, staged });
            return Ok(());
        }
        if stable.is_none() && !opaque && overlay_xattr(&xattrs, b"origin").is_some() {
            return self.conflict(&stable_path, ConflictKind::DirectoryRemoved);
        }
        self.new_dir(path, stable_path, staged, stable, upper)
    }

    /// A stable directory that was moved to `path`.
    #[expect(
        clippy::too_many_arguments,
        reason = "the names and versions of one directory, of which no two belong closer together"
    )]
    fn moved_dir(
        &mut self,
        path: Vec<u8>,
        stable_path: Vec<u8>,
        from: Vec<u8>,
        staged: Vec<u8>,
        stable: Option<Version>,
        upper: Version,
    ) -> Result<()> {
        let (parent, name) = split(&from);
        let source = sys::open_dir_beneath(self.stable_root.as_fd(), parent)
            .and_then(|fd| stat_at(fd.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW));
        let source = match source {
            Ok(v) if v.kind() == FileKind::Dir => v,
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return self.conflict(&from, ConflictKind::DirectoryNotThere);
            }
            Err(e) => return Err(Error::io("looking at", self.show(&from), e)),
        };
        self.moved_from.insert(from.clone(), ());
        let slot = self.slot();
        self.push(
            Action::Move { from: from.clone().into(), source },
            path.clone(),
            stable_path,
            stable,
            Some(upper),
            slot,
            Vec::new(),
        );
        self.queue.push(Merged { path, stable: from, staged });
        Ok(())
    }

    /// A new directory: everything below it comes with it, in one rename.
    fn new_dir(
        &mut self,
        path: Vec<u8>,
        stable_path: Vec<u8>,
        staged: Vec<u8>,
        stable: Option<Version>,
        upper: Version,
    ) -> Result<()> {
        let mut strip = Vec::new();
        let mut below = vec![path.clone()];
        let mut shells = Vec::new();
        let mut count = 0;
        let mut dirs = Vec::new();
        while let Some(dir) = below.pop() {
            count += self.survey(&dir, &mut below, &mut shells, &mut strip)?;
            if dir.len() > path.len() {
                dirs.push(dir.get(path.len() + 1..).unwrap_or_default().to_vec());
            }
        }
        // Attributes are noted relative to the object they are published with.
        for s in &mut strip {
            s.below.drain(..(path.len() + 1).min(s.below.len()));
        }
        let action = if stable.is_some() { Action::Replace } else { Action::Install };
        self.push(action, path, stable_path, stable, Some(upper), staged, strip);
        if let Some(change) = self.changes.last_mut() {
            change.below = count - shells.len() as u64;
            change.dirs = dirs;
        }
        for (path, redirect, shell) in shells {
            // A stable directory moved into the new one. Its shell is published with the new
            // directory and then exchanged for the real one, which is when the shell, with the
            // changes made inside, arrives in the move's slot.
            let from = redirect_source(b"", &redirect);
            let before = self.changes.len();
            self.shells.insert(path.clone());
            self.moved_dir(path.clone(), path, from, Vec::new(), Some(shell), shell)?;
            if let Some(moved) = self.changes.get(before) {
                let staged = moved.staged.clone();
                if let Some(inner) = self.queue.last_mut() {
                    inner.staged = staged;
                }
            }
        }
        Ok(())
    }

    /// One directory of a new tree: finds overlayfs's attributes and what was moved in. Gives the
    /// number of names in it.
    ///
    /// In root's view only a directory marked `impure` can hold objects with attributes of overlayfs, so a
    /// tree of plain new files costs one listing per directory and nothing per file.
    fn survey(
        &mut self,
        path: &[u8],
        below: &mut Vec<Vec<u8>>,
        shells: &mut Vec<(Vec<u8>, Vec<u8>, Version)>,
        strip: &mut Vec<Strip>,
    ) -> Result<u64> {
        let dir =
            sys::open_dir_beneath(self.upper_root.as_fd(), path).at("opening", self.show(path))?;
        let xattrs = sys::xattrs_in(dir.as_fd(), b"").at("reading", self.show(path))?;
        let impure = !self.marks_impure || overlay_xattr(&xattrs, b"impure").is_some();
        strip_all(path, &xattrs, strip);
        let readable = sys::open_at(dir.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
            .at("opening", self.show(path))?;
        let mut subdirs = Vec::new();
        let mut others = Vec::new();
        let mut count = 0;
        sys::for_each_name(readable.as_fd(), |name, kind| {
            count += 1;
            if kind == FileType::Directory {
                subdirs.push(name.to_vec());
            } else if impure {
                others.push(name.to_vec());
            }
        })
        .at("listing", self.show(path))?;
        for name in subdirs {
            let sub = child(path, &name);
            if impure {
                let xattrs = sys::xattrs_in(dir.as_fd(), &name).at("reading", self.show(&sub))?;
                if let Some(redirect) = overlay_xattr(&xattrs, b"redirect") {
                    let shell = stat_at(dir.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW)
                        .at("looking at", self.show(&sub))?;
                    shells.push((sub, redirect.to_vec(), shell));
                    continue;
                }
            }
            below.push(sub);
        }
        for name in others {
            let path = child(path, &name);
            let xattrs = sys::xattrs_in(dir.as_fd(), &name).at("reading", self.show(&path))?;
            strip_all(&path, &xattrs, strip);
            let upper = stat_at(dir.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW)
                .at("looking at", self.show(&path))?;
            if upper.nlink > 1 {
                self.files.push(File {
                    staged: Vec::new(),
                    upper,
                    stable: None,
                    stable_path: path.clone(),
                    path,
                    xattrs,
                    in_new: true,
                    indexed: false,
                    in_index: None,
                });
            }
        }
        Ok(count)
    }

    /// How many objects are below a stable directory; what can't be listed is not counted.
    fn count_stable(&self, path: &[u8]) -> u64 {
        let mut count = 0;
        let mut queue = vec![path.to_vec()];
        while let Some(path) = queue.pop() {
            let listed = sys::open_dir_beneath(self.stable_root.as_fd(), &path)
                .and_then(|fd| {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    sys::open_at(fd.as_fd(), b".", flags)
                })
                .and_then(|fd| {
                    sys::for_each_name(fd.as_fd(), |name, kind| {
                        count += 1;
                        if kind == FileType::Directory {
                            queue.push(child(&path, name));
                        }
                    })
                });
            if let Err(error) = listed {
                tracing::debug!(%error, "a removed directory is not counted");
            }
        }
        count
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a change that differ")]
    fn push(
        &mut self,
        action: Action,
        path: Vec<u8>,
        stable_path: Vec<u8>,
        base: Option<Version>,
        new: Option<Version>,
        staged: Vec<u8>,
        strip: Vec<Strip>,
    ) {
        self.changes.push(Change {
            layer: self.layer.index,
            path: path.into(),
            stable_path: stable_path.into(),
            action,
            base,
            new,
            staged,
            strip,
            shown: true,
            below: 0,
            dirs: Vec::new(),
            pages: Vec::new(),
            held: None,
            dropped: false,
        });
    }

    fn show(&self, path: &[u8]) -> std::path::PathBuf {
        crate::path::from_bytes(&self.stable_abs(path))
    }
}

/// What `links::classify` needs of a scan.
impl super::links::Sink for Scan<'_> {
    type File = File;

    fn view<'f>(&self, file: &'f File) -> super::links::FileView<'f> {
        let origin = overlay_xattr(&file.xattrs, b"origin");
        let copied_up = origin.filter(|handle| !handle.is_empty());
        let copied_unmarked = self.is_unmarked_copy(file);
        super::links::FileView {
            upper: file.upper,
            stable: file.stable,
            path: &file.path,
            indexed: file.indexed,
            copied_up,
            copied_unmarked,
        }
    }

    fn is_origin(&self, file: &File) -> Result<bool> {
        self.is_copy(file)
    }

    fn keeps_inode(&self, file: &File) -> bool {
        (self.keep_inode)(&self.stable_abs(&file.stable_path))
    }

    fn appended_meanwhile(&self, file: &File) -> bool {
        let Some(stable) = file.stable else { return false };
        self.reads.get(&self.stable_abs(&file.stable_path)).is_some_and(|seen| {
            seen.facets().contains(Facets::APPEND)
                && seen.outcome != crate::readset::Outcome::Present(stable)
        })
    }

    fn same_content(&self, file: &File) -> Result<bool> {
        let Some(stable) = file.stable else { return Ok(false) };
        if stable.kind() != file.upper.kind() || stable.size != file.upper.size {
            return Ok(false);
        }
        let open = |root: &OwnedFd, path: &[u8]| {
            let (parent, name) = split(path);
            sys::open_dir_beneath(root.as_fd(), parent).map(|dir| (dir, name.to_vec()))
        };
        let upper = match &file.in_index {
            Some(name) => {
                sys::open_dir_canonical(self.layer.work.join("index").as_os_str().as_bytes())
                    .map(|index| (index, name.clone()))
            }
            None => open(&self.upper_root, &file.path),
        };
        let (upper_dir, upper_name) = upper.at("opening", self.show(&file.path))?;
        let (stable_dir, stable_name) = match open(&self.stable_root, &file.stable_path) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return self.conflict(&file.stable_path, ConflictKind::DirectoryGone);
            }
            Err(e) => return Err(Error::io("opening", self.show(&file.stable_path), e)),
        };
        super::content::same(
            (upper_dir.as_fd(), &upper_name),
            (stable_dir.as_fd(), &stable_name),
            &stable,
        )
        .map_err(|e| {
            let path = self.show(&file.stable_path);
            crate::lease::conflict(&path, e).unwrap_or_else(|| Error::io("comparing", path, e))
        })
    }

    fn attrs(&self, file: &File) -> Result<AttrChange> {
        let Some(stable) = file.stable else { return Ok(AttrChange::default()) };
        let new = Attrs::from_parts(&file.upper, &file.xattrs);
        let (parent, name) = split(&file.stable_path);
        let old = sys::open_dir_beneath(self.stable_root.as_fd(), parent)
            .and_then(|dir| Attrs::read(&stable, &sys::entry_path(dir.as_fd(), name)))
            .at("reading", self.show(&file.stable_path))?;
        let mut change = AttrChange::between(&old, &new);
        if stable.mtime != file.upper.mtime {
            change.mtime = Some((stable.mtime, file.upper.mtime));
        }
        Ok(change)
    }

    fn emit(&mut self, file: &File, action: Action) {
        if file.in_new && matches!(action, Action::Install) {
            return;
        }
        if file.in_new {
            self.shells.insert(file.path.clone());
        }
        let mut strip = Vec::new();
        // The copy in a new directory is what another name of a stable object replaces.
        let base =
            if file.in_new && !action.is_in_place() { Some(file.upper) } else { file.stable };
        let staged = if matches!(action, Action::Link { .. }) {
            self.slot()
        } else {
            if matches!(action, Action::Install | Action::Replace | Action::Rewrite) {
                strip_all(b"", &file.xattrs, &mut strip);
            }
            file.staged.clone()
        };
        self.push(
            action,
            file.path.clone(),
            file.stable_path.clone(),
            base,
            Some(file.upper),
            staged,
            strip,
        );
    }
}

/// Whether this user can't make a group that of a file.
fn cant_have(gid: u32) -> bool {
    !crate::rights::is_privileged_throughout()
        && gid != rustix::process::getegid().as_raw()
        && !rustix::process::getgroups().is_ok_and(|all| all.iter().any(|one| one.as_raw() == gid))
}

/// Notes every attribute of overlayfs on an object, to be taken off when it is published.
fn strip_all(path: &[u8], xattrs: &[(Vec<u8>, Vec<u8>)], strip: &mut Vec<Strip>) {
    for (name, value) in xattrs.iter().filter(|(n, _)| is_overlay_xattr(n)) {
        strip.push(Strip { below: path.to_vec(), name: name.clone(), value: value.clone() });
    }
}

/// Where a redirect points: an absolute path of the layer, or a name beside the directory.
fn redirect_source(stable_parent: &[u8], redirect: &[u8]) -> Vec<u8> {
    match redirect.strip_prefix(b"/") {
        Some(absolute) => absolute.to_vec(),
        None => child(stable_parent, redirect),
    }
}
