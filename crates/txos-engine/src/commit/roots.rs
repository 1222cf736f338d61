//! The field of a commit: its layers' roots, held open, and what is at the two ends of an operation.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use rustix::fs::{AtFlags, OFlags, RenameFlags};
use rustix::io::Errno;

use super::rescued;
use crate::error::{Context, Error, Result};
use crate::path::layer::split;
use crate::plan::{Held, Op, Plan};
use crate::sys;
use crate::sys_tree::OpenTree;
use crate::version::{Version, stat_at};

/// One layer's tree and store.
struct LayerRoot {
    target: OpenTree,
    store: OpenTree,
}

/// The roots that a plan works between.
pub(super) struct Roots {
    /// By layer; those that the plan does not touch are not opened.
    grounds: Vec<Option<LayerRoot>>,
}

/// One end of an operation: an open directory and a name in it.
#[derive(Clone)]
pub(super) struct EntryRef {
    pub dir: Rc<OwnedFd>,
    pub name: Vec<u8>,
}

impl EntryRef {
    /// What is there; `None` for nothing.
    pub fn look(&self) -> std::result::Result<Option<Version>, Errno> {
        match stat_at(self.dir.as_fd(), &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(v) => Ok(Some(v)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Renames it to another entry, where nothing may be.
    pub fn rename_to(&self, to: &EntryRef) -> std::result::Result<(), Errno> {
        let flags = RenameFlags::NOREPLACE;
        sys::rename(self.dir.as_fd(), &self.name, to.dir.as_fd(), &to.name, flags)
    }

    /// Opens it without following and without an access that a gate would hold.
    pub fn open_path(&self) -> std::result::Result<OwnedFd, Errno> {
        sys::open_at(self.dir.as_fd(), &self.name, OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// Opens a regular file. A lease that somebody has on it is waited out.
    pub fn open(&self, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        crate::lease::waited_out(|| self.open_now(flags))
    }

    /// Opens a regular file; `EAGAIN` if somebody has a lease on it.
    pub fn open_now(&self, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        sys::open_at(self.dir.as_fd(), &self.name, flags | OFlags::NOFOLLOW | OFlags::NONBLOCK)
    }
}

impl Roots {
    /// Opens the roots of a plan's layers.
    ///
    /// # Errors
    /// [`Error::Io`]: a file system of the transaction is not mounted, or its store is gone.
    pub fn open(plan: &Plan) -> Result<Roots> {
        let open = |path: &std::path::Path| {
            sys::open_dir_canonical(path.as_os_str().as_bytes()).at("opening", path)
        };
        let mut used = vec![false; plan.layers.len()];
        for op in &plan.ops {
            if let Some(used) = used.get_mut(usize::from(op.layer)) {
                *used = true;
            }
        }
        let grounds = plan
            .layers
            .iter()
            .zip(used)
            .map(|(l, used)| {
                let ground = || {
                    let (target, store) = (open(&l.target)?, open(&l.store)?);
                    crate::store::check_root(&l.target, l.root, target.as_fd())?;
                    crate::store::check_trusted(&l.store, store.as_fd())?;
                    Ok(LayerRoot { target: OpenTree::new(target), store: OpenTree::new(store) })
                };
                used.then(ground).transpose()
            })
            .collect::<Result<_>>()?;
        Ok(Roots { grounds })
    }

    fn ground(&self, layer: u16) -> std::result::Result<&LayerRoot, Errno> {
        self.grounds.get(usize::from(layer)).and_then(Option::as_ref).ok_or(Errno::INVAL)
    }

    fn end(tree: &OpenTree, path: &[u8]) -> std::result::Result<EntryRef, Errno> {
        let (dir, name) = split(path);
        // The layer's root itself is the entry "." of itself.
        let name = if name.is_empty() { b".".to_vec() } else { name.to_vec() };
        Ok(EntryRef { dir: tree.dir(dir)?, name })
    }

    /// Forgets what was opened: others may have moved directories.
    pub fn forget(&self) {
        for ground in self.grounds.iter().flatten() {
            ground.target.forget();
            ground.store.forget();
        }
    }

    /// Forgets what was opened at or below the two ends of an operation that has moved a directory.
    pub fn forget_ends(&self, op: &Op) {
        if let Ok(ground) = self.ground(op.layer) {
            ground.target.forget_below(&op.target);
            ground.store.forget_below(op.slot());
        }
    }

    /// The target of an operation.
    pub fn target(&self, op: &Op) -> std::result::Result<EntryRef, Errno> {
        self.place(op, &op.target, |_| true)
    }

    /// Where the object at an operation's target is before its plan begins.
    pub fn before(&self, op: &Op) -> std::result::Result<EntryRef, Errno> {
        self.place(op, &op.before, |held| held.before)
    }

    /// Where it is when the plan is done.
    pub fn after(&self, op: &Op) -> std::result::Result<EntryRef, Errno> {
        self.place(op, &op.after, |held| held.after)
    }

    /// A place in the tree, unless the object is held in the store then.
    fn place(
        &self,
        op: &Op,
        path: &[u8],
        when: impl Fn(&Held) -> bool,
    ) -> std::result::Result<EntryRef, Errno> {
        match op.held() {
            Some(held) if when(held) => self.slot_at(op.layer, &held.place),
            _ => self.target_at(op.layer, path),
        }
    }

    /// A place in a layer's tree.
    pub fn target_at(&self, layer: u16, path: &[u8]) -> std::result::Result<EntryRef, Errno> {
        Self::end(&self.ground(layer)?.target, path)
    }

    /// A place in a layer's tree or in its store, by its absolute path.
    pub fn at(&self, plan: &Plan, layer: u16, path: &[u8]) -> std::result::Result<EntryRef, Errno> {
        match (plan.in_tree(layer, path), plan.in_store(layer, path)) {
            (Some(path), _) => self.target_at(layer, &path),
            (None, Some(path)) => self.slot_at(layer, &path),
            (None, None) => Err(Errno::NOENT),
        }
    }

    /// The slot of an operation.
    pub fn slot(&self, op: &Op) -> std::result::Result<EntryRef, Errno> {
        self.slot_at(op.layer, op.slot())
    }

    /// A place in a layer's store.
    pub fn slot_at(&self, layer: u16, path: &[u8]) -> std::result::Result<EntryRef, Errno> {
        Self::end(&self.ground(layer)?.store, path)
    }

    /// A place in a layer's store for something that is put there. Makes the directory that it lies in.
    pub fn new_slot_at(&self, layer: u16, path: &[u8]) -> std::result::Result<EntryRef, Errno> {
        match self.slot_at(layer, path) {
            Err(Errno::NOENT) => {}
            found => return found,
        }
        let dir = self.slot_at(layer, split(path).0)?;
        match sys::mkdir(dir.dir.as_fd(), &dir.name, 0o700) {
            Ok(()) | Err(Errno::EXIST) => self.slot_at(layer, path),
            Err(e) => Err(e),
        }
    }

    /// One store per file system of the plan.
    pub fn stores(&self) -> impl Iterator<Item = &OpenTree> {
        let mut seen = Vec::new();
        self.grounds.iter().flatten().filter_map(move |g| {
            let dev = rustix::fs::fstat(&g.store).ok()?.st_dev;
            if seen.contains(&dev) {
                return None;
            }
            seen.push(dev);
            Some(&g.store)
        })
    }

    /// Flushes every file system of the plan.
    ///
    /// # Errors
    /// [`Error::Io`] with the errno of `syncfs(2)`.
    pub fn flush(&self) -> Result<()> {
        if sys::mistake("tree-not-flushed") {
            return Ok(());
        }
        for store in self.stores() {
            let readable = sys::open_at(store.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
                .at("opening the store", "for flushing")?;
            sys::syncfs(readable.as_fd()).at("flushing the file system of", "the store")?;
        }
        Ok(())
    }

    /// Keeps a copy of a regular file at a place where nothing deletes it, and says where.
    pub fn rescue_copy(
        &self,
        op: &Op,
        id: crate::TxId,
        from: &EntryRef,
    ) -> std::result::Result<Vec<u8>, Errno> {
        let store = &self.ground(op.layer)?.store;
        rescued::keep(store.as_fd(), id, &from.name, |dir, name| {
            let to = sys::create(dir.as_fd(), name)?;
            crate::sys_copy::content(&from.open(OFlags::RDONLY)?, &to)?;
            rescued::like(from, &EntryRef { dir: dir.clone(), name: name.to_vec() })
        })
    }

    /// Moves what is in a slot to a place where nothing deletes it, and says where.
    pub fn rescue(&self, op: &Op, id: crate::TxId) -> std::result::Result<Vec<u8>, Errno> {
        let name = split(&op.target).1;
        self.rescue_entry(op.layer, id, &self.slot(op)?, name)
    }

    /// Moves what is at a place of a store to where nothing deletes it, with `name` in its new name, and says where.
    pub fn rescue_entry(
        &self,
        layer: u16,
        id: crate::TxId,
        from: &EntryRef,
        name: &[u8],
    ) -> std::result::Result<Vec<u8>, Errno> {
        let store = &self.ground(layer)?.store;
        rescued::keep(store.as_fd(), id, name, |dir, to| {
            sys::rename(from.dir.as_fd(), &from.name, dir.as_fd(), to, RenameFlags::NOREPLACE)
        })
    }
}

/// Adds the operation's target to an errno.
pub(super) fn at_target(plan: &Plan, op: &Op, step: &'static str, e: Errno) -> Error {
    let path = crate::path::from_bytes(&plan.target_path(op));
    crate::lease::conflict(&path, e).unwrap_or_else(|| Error::io(step, path, e))
}
