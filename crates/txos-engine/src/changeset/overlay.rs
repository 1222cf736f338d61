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

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;

use super::attrs::{AttrChange, Attrs};
use super::{Action, Change, Strip};
use crate::error::{Conflict, Context, Error, Result};
use crate::object::{Facets, FileKind};
use crate::readset::{ReadSet, join};
use crate::store::Layer;
use crate::sys;
use crate::version::{Version, stat_at};

/// The prefix of overlayfs's own extended attributes: root's overlays use `trusted.`, which nobody
/// else can set; in a user namespace it is `user.` (mount option `userxattr`). Never both: to
/// root's overlay `user.overlay.*` is data like any other, which any user can write.
fn overlay_prefix() -> &'static [u8] {
    if rustix::process::geteuid().is_root() { b"trusted.overlay." } else { b"user.overlay." }
}

/// Whether an extended attribute belongs to overlayfs.
pub(crate) fn is_overlay_xattr(name: &[u8]) -> bool {
    name.starts_with(overlay_prefix())
}

/// The value of one of overlayfs's attributes, in either namespace.
fn overlay_xattr<'a>(xattrs: &'a [(Vec<u8>, Vec<u8>)], which: &[u8]) -> Option<&'a [u8]> {
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
}

/// The scan of one layer.
pub(super) struct Scan<'a> {
    layer: &'a Layer,
    reads: &'a ReadSet,
    keep_inode: &'a dyn Fn(&[u8]) -> bool,
    upper_root: OwnedFd,
    stable_root: OwnedFd,
    queue: Vec<Merged>,
    files: Vec<File>,
    changes: Vec<Change>,
    moved_from: HashMap<Vec<u8>, ()>,
    next_slot: &'a mut u64,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        layer: &'a Layer,
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
            layer,
            reads,
            keep_inode,
            queue: vec![Merged { path: Vec::new(), stable: Vec::new(), staged: b"upper".to_vec() }],
            files: Vec::new(),
            changes: Vec::new(),
            moved_from: HashMap::new(),
            next_slot,
        })
    }

    /// The changes of the layer, in no particular order.
    pub(super) fn run(mut self) -> Result<Vec<Change>> {
        while let Some(dir) = self.queue.pop() {
            self.merged_dir(&dir)?;
        }
        let mut files = std::mem::take(&mut self.files);
        self.refuse_lost_names(&files)?;
        self.find_renamed_links(&mut files);
        super::links::classify(&mut self, files)?;
        let moved = std::mem::take(&mut self.moved_from);
        for change in &mut self.changes {
            // The name a moved directory left behind is a whiteout; the move takes it away.
            let stable_path = change.stable_path.clone();
            match &mut change.action {
                Action::Remove if moved.contains_key(&stable_path) => change.dropped = true,
                Action::Move { .. } | Action::Replace if moved.contains_key(&stable_path) => {
                    change.base = None;
                    if matches!(change.action, Action::Replace) {
                        change.action = Action::Install;
                    }
                }
                _ => {}
            }
        }
        self.changes.retain(|c| !c.dropped);
        Ok(self.changes)
    }

    /// A file with several names that was changed through one that was then removed lives on in
    /// overlayfs's index only, under its other, untouched names. There is no name by which to
    /// publish the change; it is refused rather than lost.
    fn refuse_lost_names(&self, files: &[File]) -> Result<()> {
        let index = self.layer.work.join("index");
        let entries = match sys::look("readdir", || std::fs::read_dir(&index)) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e).at("listing the index of", &self.layer.target),
        };
        for entry in entries {
            let entry = entry.at("listing the index of", &self.layer.target)?;
            let path = entry.path();
            let Ok(copy) =
                stat_at(rustix::fs::CWD, path.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            let Some(origin) = unhex(entry.file_name().as_bytes()) else { continue };
            let named = files.iter().any(|f| f.upper.id.ino == copy.id.ino);
            if named || copy.kind() != FileKind::File {
                continue;
            }
            let was = self.changes.iter().find(|c| {
                matches!(c.action, Action::Remove)
                    && c.base.is_some_and(|b| b.kind() == FileKind::File && b.nlink > 1)
                    && self.is_handle(&origin, &c.stable_path)
            });
            let Some((was, Some(base))) = was.map(|c| (c, c.base)) else { continue };
            let unchanged = (base.size, base.mtime, base.mode, base.uid, base.gid)
                == (copy.size, copy.mtime, copy.mode, copy.uid, copy.gid);
            if !unchanged {
                return Err(Error::Unsupported {
                    what: format!(
                        "{} has other names, and was changed by this one before it was removed",
                        crate::show::quoted_bytes(&self.stable_abs(&was.stable_path))
                    ),
                    advice: "Such a change can't be published. Change the file by a name that \
                             stays."
                        .into(),
                });
            }
        }
        Ok(())
    }

    /// A file with several links that was renamed is a copy in the upper, and a whiteout or something
    /// else at its old name. Publishing the copy would cut it off from its other names: the stable
    /// inode is moved.
    fn find_renamed_links(&mut self, files: &mut [File]) {
        let several = |v: &Version| v.kind() == FileKind::File && v.nlink > 1;
        // Names that such files no longer have.
        let gone = self.changes.iter().filter(|c| {
            matches!(c.action, Action::Remove | Action::Replace)
                && !self.moved_from.contains_key(&c.stable_path)
        });
        let mut left: Vec<(Vec<u8>, Version)> =
            gone.filter_map(|c| Some((c.stable_path.clone(), c.base.filter(several)?))).collect();
        let replaced = files.iter().filter(|f| f.stable.is_some_and(|v| several(&v)));
        for file in replaced.filter(|f| !f.in_new && !self.is_copy(f)) {
            left.extend(file.stable.map(|v| (file.stable_path.clone(), v)));
        }
        if left.is_empty() {
            return;
        }
        let mut moves = Vec::new();
        // (In a new directory it is published with that, as a copy: docs/limits.md.)
        for (at, file) in files.iter().enumerate().filter(|(_, f)| !f.in_new) {
            let Some(origin) = overlay_xattr(&file.xattrs, b"origin") else { continue };
            if file.stable.is_some() && self.is_copy(file) {
                continue;
            }
            let found = left.iter().position(|(path, _)| self.is_handle(origin, path));
            if let Some((from, source)) = found.map(|n| left.swap_remove(n)) {
                moves.push((at, from, source));
            }
        }
        for (at, from, source) in moves {
            self.moved_from.insert(from.clone(), ());
            // What took its place comes to a free one.
            for other in files.iter_mut().filter(|f| f.stable_path == from && f.path == from) {
                other.stable = None;
            }
            let Some(file) = files.get(at) else { continue };
            let (path, stable_path) = (file.path.clone(), file.stable_path.clone());
            let (stable, upper, slot) = (file.stable, file.upper, self.slot());
            let action = Action::Move { from: from.clone(), source };
            self.push(action, path, stable_path, stable, Some(upper), slot, Vec::new());
            if let Some(file) = files.get_mut(at) {
                (file.stable, file.stable_path) = (Some(source), from);
            }
        }
    }

    /// Whether a file of the upper is a copy of what is at its name, not something in its place.
    fn is_copy(&self, file: &File) -> bool {
        let origin = overlay_xattr(&file.xattrs, b"origin");
        origin.is_some_and(|origin| self.is_handle(origin, &file.stable_path))
    }

    fn is_handle(&self, origin: &[u8], stable_path: &[u8]) -> bool {
        let (parent, name) = split(stable_path);
        sys::open_dir_beneath(self.stable_root.as_fd(), parent)
            .is_ok_and(|dir| crate::sys_handle::is_handle_of(origin, dir.as_fd(), name))
    }

    fn stable_abs(&self, path: &[u8]) -> Vec<u8> {
        join(self.layer.target.as_os_str().as_bytes(), path)
    }

    fn slot(&mut self) -> Vec<u8> {
        *self.next_slot += 1;
        format!("old/{}", self.next_slot).into_bytes()
    }

    fn conflict<T>(&self, path: &[u8], what: &str) -> Result<T> {
        Err(Error::Conflict(vec![Conflict {
            path: crate::store::path_from(&self.stable_abs(path)),
            what: what.to_owned(),
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
                return self.conflict(&dir.stable, "the directory was removed");
            }
            // What this user may not enter, this user's transaction has not changed.
            Err(Errno::ACCESS) if names.is_empty() => return Ok(()),
            Err(e) => return Err(Error::io("opening", self.show(&dir.stable), e)),
        };
        let before = self.changes.len() + self.files.len();
        let own = sys::xattrs(&sys::entry_path(upper.as_fd(), b""))
            .at("reading", self.show(&dir.path))?;
        let impure = overlay_xattr(&own, b"impure").is_some();
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
        if dir.path.is_empty() && !user.is_root() && old.uid != user.as_raw() {
            return Ok(());
        }
        let at = |fd| sys::entry_path(fd, b"");
        let new_attrs = Attrs::read(&new, &at(upper)).at("reading", self.show(&dir.path))?;
        let old_attrs = Attrs::read(&old, &at(stable)).at("reading", self.show(&dir.stable))?;
        let mut change = AttrChange::between(&old_attrs, &new_attrs);
        // A directory's mtime moves with its entries. The transaction's is the one to leave,
        // unless somebody else has touched the directory since.
        let seen = self.reads.get(&self.stable_abs(&dir.stable)).and_then(|o| match o.outcome {
            crate::readset::Outcome::Present(v) => Some(v.mtime),
            crate::readset::Outcome::Absent(_) => None,
        });
        let undisturbed = seen == Some(old.mtime) || new.mtime > old.mtime;
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
            path: dir.path.clone(),
            stable_path: dir.stable.clone(),
            action: Action::Attrs(Box::new(change)),
            base: Some(old),
            new: Some(new),
            staged: dir.staged.clone(),
            strip: Vec::new(),
            shown: !only_follows,
            below: 0,
            dirs: Vec::new(),
            pages: Vec::new(),
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
            sys::xattrs(&sys::entry_path(upper_dir, name)).at("reading", self.show(&path))?
        };
        let staged = child(&dir.staged, name);
        if upper.kind() != FileKind::Dir {
            let in_new = false;
            self.files.push(File { path, staged, upper, stable, stable_path, xattrs, in_new });
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
            return self.conflict(&stable_path, "the directory was removed");
        }
        self.new_dir(path, stable_path, staged, stable, upper)
    }

    /// A stable directory that was moved to `path`.
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
                return self.conflict(&from, "the directory was removed or replaced");
            }
            Err(e) => return Err(Error::io("looking at", self.show(&from), e)),
        };
        self.moved_from.insert(from.clone(), ());
        let slot = self.slot();
        self.push(
            Action::Move { from: from.clone(), source },
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
    /// Only a directory marked `impure` can hold objects with attributes of overlayfs, so a
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
        let xattrs =
            sys::xattrs(&sys::entry_path(dir.as_fd(), b"")).at("reading", self.show(path))?;
        let impure = overlay_xattr(&xattrs, b"impure").is_some();
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
                let xattrs = sys::xattrs(&sys::entry_path(dir.as_fd(), &name))
                    .at("reading", self.show(&sub))?;
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
            let xattrs = sys::xattrs(&sys::entry_path(dir.as_fd(), &name))
                .at("reading", self.show(&path))?;
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

    #[allow(clippy::too_many_arguments)]
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
            path,
            stable_path,
            action,
            base,
            new,
            staged,
            strip,
            shown: true,
            below: 0,
            dirs: Vec::new(),
            pages: Vec::new(),
            dropped: false,
        });
    }

    fn show(&self, path: &[u8]) -> std::path::PathBuf {
        crate::store::path_from(&self.stable_abs(path))
    }
}

/// What `links::classify` needs of a scan.
impl super::links::Sink for Scan<'_> {
    type File = File;

    fn view<'f>(&self, file: &'f File) -> super::links::FileView<'f> {
        let copied_up = overlay_xattr(&file.xattrs, b"origin");
        // In a user namespace overlayfs may not look at file handles, so it stores none.
        let copied_unmarked = copied_up.is_none()
            && !rustix::process::geteuid().is_root()
            && self
                .reads
                .get(&self.stable_abs(&file.stable_path))
                .is_some_and(|seen| !seen.facets().contains(Facets::REPLACED));
        super::links::FileView {
            upper: file.upper,
            stable: file.stable,
            path: &file.path,
            copied_up,
            copied_unmarked,
        }
    }

    fn is_origin(&self, file: &File) -> bool {
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
        let (upper_dir, upper_name) =
            open(&self.upper_root, &file.path).at("opening", self.show(&file.path))?;
        let (stable_dir, stable_name) = match open(&self.stable_root, &file.stable_path) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return self.conflict(&file.stable_path, "its directory was removed or replaced");
            }
            Err(e) => return Err(Error::io("opening", self.show(&file.stable_path), e)),
        };
        super::content::same(
            (upper_dir.as_fd(), &upper_name),
            (stable_dir.as_fd(), &stable_name),
            &stable,
        )
        .at("comparing", self.show(&file.path))
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
        let mut strip = Vec::new();
        let staged = if matches!(action, Action::Link { .. }) {
            self.slot()
        } else {
            if matches!(action, Action::Install | Action::Replace) {
                strip_all(b"", &file.xattrs, &mut strip);
            }
            file.staged.clone()
        };
        self.push(
            action,
            file.path.clone(),
            file.stable_path.clone(),
            if file.in_new { Some(file.upper) } else { file.stable },
            Some(file.upper),
            staged,
            strip,
        );
    }
}

/// Notes every attribute of overlayfs on an object, to be taken off when it is published.
fn strip_all(path: &[u8], xattrs: &[(Vec<u8>, Vec<u8>)], strip: &mut Vec<Strip>) {
    for (name, value) in xattrs.iter().filter(|(n, _)| is_overlay_xattr(n)) {
        strip.push(Strip { below: path.to_vec(), name: name.clone(), value: value.clone() });
    }
}

/// The bytes that a name in the index spells.
fn unhex(name: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16);
    name.chunks(2)
        .map(|pair| match pair {
            [a, b] => u8::try_from(digit(*a)? * 16 + digit(*b)?).ok(),
            _ => None,
        })
        .collect()
}

/// Where a redirect points: an absolute path of the layer, or a name beside the directory.
fn redirect_source(stable_parent: &[u8], redirect: &[u8]) -> Vec<u8> {
    match redirect.strip_prefix(b"/") {
        Some(absolute) => absolute.to_vec(),
        None => child(stable_parent, redirect),
    }
}

/// `dir/name`, where the layer's root is the empty path.
pub(crate) fn child(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Splits a layer-relative path into directory (empty for the layer's root) and name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => {
            (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default())
        }
        None => (b"", path),
    }
}
