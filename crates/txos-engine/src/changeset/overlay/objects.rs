//! Stable objects with several names.
//!
//! overlayfs copies such an object once, however many of its names are used: its index holds the copy
//! by the handle of the stable object, also when no name of the copy is left. So what becomes of the
//! object is decided for the object: it stays the inode that it is, and
//!
//! | names of the copy | the object | its changes are made |
//! |---|---|---|
//! | one that it had before | keeps it; new ones are links | there |
//! | new ones | is moved from those that it lost to as many of them; others are links | there |
//! | none | lives on by names that the transaction does not know | in the store, where whatever took one of its names has put it ([`Change::held`]) |

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use super::super::links;
use super::super::{Action, Change};
use super::{File, Scan};
use crate::error::{ConflictKind, Context, Error, Result};
use crate::object::FileKind;
use crate::path::layer::{child, split};
use crate::readset::Observation;
use crate::sys;
use crate::sys_handle::Handle;
use crate::version::{Version, stat_at};

/// A copy that overlayfs's index holds.
struct Indexed {
    /// Its name in the index.
    name: Vec<u8>,
    /// The stable object.
    of: Handle,
    /// The copy.
    copy: Version,
}

/// A stable name that the transaction takes away.
#[derive(Clone)]
struct Lost {
    path: Vec<u8>,
    version: Version,
}

/// The stable names that the transaction takes away, by object.
#[derive(Default)]
struct Names(HashMap<Handle, Vec<Lost>>);

impl Names {
    fn add(&mut self, scan: &Scan<'_>, path: Vec<u8>, version: Version) -> Result<()> {
        let (parent, name) = split(&path);
        let dir = scan.stable_dir(parent)?;
        if let Some(handle) = dir.and_then(|dir| Handle::of(dir.as_fd(), name)) {
            self.0.entry(handle).or_default().push(Lost { path, version });
        }
        Ok(())
    }

    fn of(&self, object: &Handle) -> &[Lost] {
        self.0.get(object).map_or(&[], |names| &names[..])
    }
}

impl Scan<'_> {
    /// Decides which files are several names of one stable object, and moves it where it has only new
    /// ones. Gives those of which no name is left: they are published last ([`Scan::held`]).
    pub(super) fn objects(&mut self, files: &mut [File]) -> Result<Vec<File>> {
        if !self.layer.work.join("index").is_dir() {
            self.refuse_lost_changes(files)?;
            return Ok(Vec::new());
        }
        let index = self.index()?;
        if index.is_empty() {
            return Ok(Vec::new());
        }
        let mut members: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, file) in files.iter().enumerate() {
            members.entry(file.upper.id.ino).or_default().push(at);
        }
        let mut open = Vec::new();
        for object in index {
            let mut kept = false;
            let mut new = Vec::new();
            for at in members.remove(&object.copy.id.ino).unwrap_or_default() {
                let Some(file) = files.get_mut(at) else { continue };
                file.indexed = file.stable.is_some()
                    && !file.in_new
                    && self.is_at(&object.of, &file.stable_path)?;
                if file.indexed { kept = true } else { new.push(at) }
            }
            if !kept || !new.is_empty() {
                // What is in a new directory is moved there only for want of another.
                new.sort_by_key(|&at| files.get(at).map(|f| f.in_new));
                open.push((object, kept, new));
            }
        }
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let direct = self.lost_names(files)?;
        let mut below: Option<Names> = None;
        let mut held = Vec::new();
        for (object, kept, new) in open {
            let mut lost = direct.of(&object.of).to_vec();
            if lost.is_empty() && !kept {
                let below = match &mut below {
                    Some(below) => below,
                    none => none.insert(self.lost_below(files)?),
                };
                lost = below.of(&object.of).to_vec();
            }
            if new.is_empty() {
                match lost.first().cloned() {
                    // Those were all its names.
                    Some(first) if first.version.nlink as usize <= lost.len() => {}
                    Some(first) => held.push(self.homeless(object, first)?),
                    None => return self.conflict(b"", ConflictKind::NotFound),
                }
                continue;
            }
            if let Some(&at) = new.first()
                && !kept
                && lost.is_empty()
            {
                return self
                    .conflict(files.get(at).map_or(b"", |f| &f.path), ConflictKind::NotFound);
            }
            // As many as can be: a name that is moved is retained by none.
            for (at, lost) in new.into_iter().zip(lost) {
                self.move_object(files, at, lost);
            }
        }
        Ok(held)
    }

    /// Without an index, as in a user namespace, a copy whose name goes leaves no trace: what was changed in
    /// it would be lost to the names that the object keeps. Whether it was changed is known from the read set
    /// only; if it may have been, the commit is refused.
    fn refuse_lost_changes(&self, files: &[File]) -> Result<()> {
        let mut lost = self.lost_names(files)?;
        for names in lost.0.values_mut() {
            names.retain(|lost| lost.version.nlink > 1);
        }
        let taken: HashSet<&[u8]> = lost.0.values().flatten().map(|lost| &lost.path[..]).collect();
        let mut kept = HashSet::new();
        for file in files.iter().filter(|f| !f.in_new && taken.contains(&f.stable_path[..])) {
            if self.is_unmarked_copy(file) || self.is_copy(file)? {
                kept.insert(&file.stable_path[..]);
            }
        }
        for names in lost.0.values_mut() {
            names.retain(|lost| !kept.contains(&lost.path[..]));
        }
        for (object, names) in self.lost_below(files)?.0 {
            lost.0.entry(object).or_default().extend(names);
        }
        for names in lost.0.values() {
            let altered = names.iter().find(|lost| {
                self.reads.get(&self.stable_abs(&lost.path)).is_some_and(Observation::is_altered)
            });
            if let Some(lost) = altered
                && lost.version.nlink as usize > names.len()
            {
                return Err(Error::Unsupported {
                    what: format!(
                        "{} has other names, and may have been changed by this one before it was \
                         removed or replaced",
                        crate::show::quoted_bytes(&self.stable_abs(&lost.path))
                    ),
                    advice:
                        "An ordinary user's transaction can't publish such a change. Change the \
                             file by a name that stays."
                            .into(),
                });
            }
        }
        Ok(())
    }

    /// The copies that overlayfs's index holds.
    fn index(&self) -> Result<Vec<Indexed>> {
        let index = self.layer.work.join("index");
        let entries = match sys::look("readdir", || std::fs::read_dir(&index)) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).at("listing the index of", &self.layer.target),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.at("listing the index of", &self.layer.target)?;
            let name = entry.file_name().as_bytes().to_vec();
            let Some(of) = unhex(&name).as_deref().and_then(Handle::stored) else { continue };
            let path = entry.path();
            let copy = stat_at(CWD, path.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW)
                .at("looking at the index of", &self.layer.target)?;
            // (A whiteout says that all its names are gone.)
            let gone = copy.kind() == FileKind::CharDevice && copy.rdev == 0;
            if !gone && copy.kind() != FileKind::Dir {
                found.push(Indexed { name, of, copy });
            }
        }
        // As they come out of the directory is no order.
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// A directory of the stable tree; `None` if it is not there, or may not be looked into. That a look
    /// fails for want of descriptors or memory is no answer.
    fn stable_dir(&self, path: &[u8]) -> Result<Option<OwnedFd>> {
        match sys::open_dir_beneath(self.stable_root.as_fd(), path) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS) => {
                Ok(None)
            }
            Err(e) => Err(Error::io("looking at", self.show(path), e)),
        }
    }

    /// Whether an object is at a path of the stable tree.
    pub(super) fn is_at(&self, object: &Handle, stable_path: &[u8]) -> Result<bool> {
        let (parent, name) = split(stable_path);
        let mut last = self.last_dir.borrow_mut();
        if last.as_ref().is_none_or(|(path, _)| path != parent) {
            *last = Some((parent.to_vec(), self.stable_dir(parent)?));
        }
        let dir = last.as_ref().and_then(|(_, dir)| dir.as_ref());
        Ok(dir.is_some_and(|dir| Handle::of(dir.as_fd(), name).as_ref() == Some(object)))
    }

    /// Names of what is no directory that the transaction removes or puts something else in place of.
    fn lost_names(&self, files: &[File]) -> Result<Names> {
        let mut names = Names::default();
        let is_file = |v: &Version| v.kind() != FileKind::Dir;
        let taken = self.changes.iter().filter(|c| {
            !c.action.is_in_place() && !self.moved_from.contains_key(&c.stable_path[..])
        });
        for change in taken {
            if let Some(version) = change.base.filter(is_file) {
                names.add(self, change.stable_path.to_vec(), version)?;
            }
        }
        for file in files.iter().filter(|f| !f.in_new && !f.indexed) {
            if let Some(version) = file.stable.filter(is_file) {
                names.add(self, file.stable_path.clone(), version)?;
            }
        }
        Ok(names)
    }

    /// Names of objects with several that go with a directory.
    fn lost_below(&self, files: &[File]) -> Result<Names> {
        let mut names = Names::default();
        let is_dir = |v: &Option<Version>| v.is_some_and(|v| v.kind() == FileKind::Dir);
        let taken = self.changes.iter().filter(|c| !c.action.is_in_place() && is_dir(&c.base));
        let mut stable = Vec::new();
        for change in taken {
            if self.is_stable(change)? {
                stable.push(change.stable_path.to_vec());
            }
        }
        let replaced = files.iter().filter(|f| !f.in_new && is_dir(&f.stable));
        let mut queue: Vec<Vec<u8>> = stable
            .into_iter()
            .chain(replaced.map(|f| f.stable_path.clone()))
            .filter(|path| !self.moved_from.contains_key(&path[..]))
            .collect();
        while let Some(dir) = queue.pop() {
            let io = |e: Errno| Error::io("looking through the removed", self.show(&dir), e);
            let fd = match sys::open_dir_beneath(self.stable_root.as_fd(), &dir) {
                Ok(fd) => fd,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(e) => return Err(io(e)),
            };
            for (name, kind) in sys::names_in(fd.as_fd()).map_err(io)? {
                let path = child(&dir, &name);
                if self.moved_from.contains_key(&path) {
                    continue;
                }
                if kind == rustix::fs::FileType::Directory {
                    queue.push(path);
                    continue;
                }
                match stat_at(fd.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(version) if version.nlink > 1 => names.add(self, path, version)?,
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(e) => return Err(io(e)),
                }
            }
        }
        Ok(names)
    }

    /// Whether what a change takes away is in the stable tree: a name in a new directory is not.
    pub(super) fn is_stable(&self, change: &Change) -> Result<bool> {
        let (parent, name) = split(&change.stable_path);
        let Some(dir) = self.stable_dir(parent)? else { return Ok(false) };
        match stat_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => Ok(change.base.is_some_and(|base| now.id == base.id)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(false),
            Err(e) => Err(Error::io("looking at", self.show(&change.stable_path), e)),
        }
    }

    /// A stable object that has only new names: it is moved to one of them.
    fn move_object(&mut self, files: &mut [File], at: usize, lost: Lost) {
        let Lost { path: from, version: source } = lost;
        self.moved_from.insert(from.clone(), ());
        // What took its place comes to a free one.
        for other in files.iter_mut().filter(|f| f.stable_path == from && f.path == from) {
            other.stable = None;
        }
        let slot = self.slot();
        let Some(file) = files.get_mut(at) else { return };
        // In a new directory the copy is published with that, and then exchanged for the object.
        let base = if file.in_new { Some(file.upper) } else { file.stable };
        let action = Action::Move { from: from.clone().into(), source };
        let (path, stable_path) = (file.path.clone(), file.stable_path.clone());
        let upper = file.upper;
        if file.in_new {
            file.staged.clone_from(&slot);
            self.shells.insert(path.clone());
        }
        (file.stable, file.stable_path, file.indexed) = (Some(source), from, true);
        self.push(action, path, stable_path, base, Some(upper), slot, Vec::new());
    }

    /// A stable object of which the transaction has changed the copy, and left no name that it knows.
    fn homeless(&self, object: Indexed, lost: Lost) -> Result<File> {
        let copy = self.layer.work.join("index").join(std::ffi::OsStr::from_bytes(&object.name));
        let xattrs = sys::xattrs(copy.as_os_str().as_bytes())
            .at("reading the index of", &self.layer.target)?;
        Ok(File {
            staged: [b"work/index/", &object.name[..]].concat(),
            upper: object.copy,
            stable: Some(lost.version),
            path: lost.path.clone(),
            stable_path: lost.path,
            xattrs,
            in_new: false,
            indexed: true,
            in_index: Some(object.name),
        })
    }

    /// Publishes the changes of objects of which no name is left. Everything that takes names away is
    /// decided by now.
    pub(super) fn held(&mut self, files: Vec<File>) -> Result<()> {
        for file in files {
            let Some(action) = links::in_place(self, &file)? else { continue };
            let layer = self.layer.index;
            let mut failed = None;
            let really = |c: &Change| self.is_stable(c).map_err(|e| failed = Some(e)) == Ok(true);
            let taken = links::taken_to(&self.changes, layer, &file.stable_path, really);
            if let Some(error) = failed {
                return Err(error);
            }
            let Some((place, path)) = taken else {
                return self.conflict(&file.stable_path, ConflictKind::NameLost);
            };
            let (stable, upper) = (file.stable, Some(file.upper));
            self.push(action, path, file.stable_path, stable, upper, file.staged, Vec::new());
            if let Some(change) = self.changes.last_mut() {
                change.held = Some(place);
            }
        }
        Ok(())
    }
}

/// The bytes that a name in the index spells.
pub(in crate::changeset) fn unhex(name: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16);
    name.chunks(2)
        .map(|pair| match pair {
            [a, b] => u8::try_from(digit(*a)? * 16 + digit(*b)?).ok(),
            _ => None,
        })
        .collect()
}

/// Takes the copy of a stable object out of overlayfs's index.
pub(crate) fn forget_indexed(layer: &crate::store::Layer, object: &Handle) {
    for entry in std::fs::read_dir(layer.work.join("index")).into_iter().flatten().flatten() {
        let of = unhex(entry.file_name().as_bytes()).as_deref().and_then(Handle::stored);
        if of.as_ref() == Some(object) {
            let _ = sys::step("store unlink", || std::fs::remove_file(entry.path()));
        }
    }
}
