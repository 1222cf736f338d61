//! Names: making, linking, renaming and removing objects. All of it happens in memory.

use txos_engine::object::{FileId, FileKind};

use super::kernel::{self, Errno, Stat, Sys};
use super::node::{Entry, Id, Node, Xattrs};
use super::tree::ShadowTree;
use super::walk::{Last, Place, Rules, Spot};
use super::{Tx, now, now_after};

/// New objects have inode numbers from here on until they have a place on disk.
const FIRST_INO: u64 = 0xffff_0000_0000;

/// Where a name is to come or go.
pub enum Target {
    /// In a versioned directory.
    Here(Spot),
    /// Elsewhere: by this path.
    Live(Vec<u8>),
}

const NOREPLACE: u32 = libc::RENAME_NOREPLACE;
const EXCHANGE: u32 = libc::RENAME_EXCHANGE;
const WHITEOUT: u32 = libc::RENAME_WHITEOUT;

/// A rename whose objects were found.
struct Rename<'a> {
    from: &'a Spot,
    to: &'a Spot,
    /// What is at the first name.
    source: Id,
    /// What is at the second name: it goes, or is exchanged.
    target: Option<Id>,
    exchange: bool,
    /// A whiteout takes the first name.
    whiteout: bool,
}

impl Tx {
    /// Walks to where a new name is to be.
    ///
    /// # Errors
    /// EEXIST if there is something, or the path ends in `.` or `..`; ENOENT for a trailing slash
    /// unless it is to be a directory.
    pub fn new_name(&mut self, dirfd: i32, path: &[u8], directory: bool) -> Sys<Target> {
        let base = self.base(dirfd, path)?;
        let spot = match self.walk_parent(base, path)? {
            Place::At(spot) => spot,
            Place::Live(path) => return Ok(Target::Live(path)),
        };
        if spot.last != Last::Name || spot.node.is_some() {
            return Err(Errno::EXIST);
        }
        if spot.slash && !directory {
            return Err(Errno::NOENT);
        }
        Ok(Target::Here(spot))
    }

    /// Attributes of a new object of the calling thread in `dir`.
    pub fn new_stat(&mut self, dir: Id, mode: u32, rdev: u64) -> Stat {
        let parent = self.tree.nodes[dir].stat;
        let cred = self.process.cred();
        let inherits = parent.mode & libc::S_ISGID != 0;
        let mut mode = mode;
        if inherits && mode & libc::S_IFMT == libc::S_IFDIR {
            mode |= libc::S_ISGID;
        }
        self.tree.next_ino += 1;
        let now = now();
        let dir = mode & libc::S_IFMT == libc::S_IFDIR;
        Stat {
            id: FileId { dev: parent.id.dev, ino: FIRST_INO + self.tree.next_ino },
            mode,
            nlink: if dir && parent.nlink > 1 { 2 } else { 1 },
            uid: cred.uid,
            gid: if inherits { parent.gid } else { cred.gid },
            size: if dir { parent.size.min(4096) } else { 0 },
            // As of a directory with one block.
            blocks: if dir { parent.blocks.min(8) } else { 0 },
            blksize: parent.blksize,
            rdev,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            mnt: parent.mnt,
            attributes: 0,
            attributes_mask: parent.attributes_mask,
        }
    }

    /// The mode of a new object: without what the umask says, or as the directory's default ACL
    /// says; and the ACLs that it inherits.
    pub fn new_mode(&mut self, dir: Id, mode: u32) -> (u32, Option<Xattrs>) {
        let default = self.tree.default_acl(dir);
        match default {
            None => (mode & !(self.umask() & 0o777), None),
            Some(acl) => {
                let (mode, access) = super::acl::inherit(&acl, mode);
                let mut xattrs = Xattrs::new();
                if let Some(access) = access {
                    xattrs.insert(b"system.posix_acl_access".to_vec(), access);
                }
                if mode & libc::S_IFMT == libc::S_IFDIR {
                    xattrs.insert(b"system.posix_acl_default".to_vec(), acl);
                }
                (mode, (!xattrs.is_empty()).then_some(xattrs))
            }
        }
    }

    /// Before anything is changed: a name is to be made in a directory.
    ///
    /// # Errors
    /// EACCES, EROFS; the transaction is doomed.
    pub fn prepare_name(&mut self, spot: &Spot) -> Sys<()> {
        self.read_only(spot.dir)?;
        self.may_change_names(spot.dir)?;
        self.touch_name(spot.dir, &spot.name)
    }

    /// `mkdirat(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn mkdir(&mut self, dirfd: i32, path: &[u8], mode: u32) -> Sys<u64> {
        let spot = match self.new_name(dirfd, path, true)? {
            Target::Here(spot) => spot,
            Target::Live(path) => {
                return self.live_change(&path, |path| super::kernel::mkdir_live(path, mode));
            }
        };
        self.prepare_name(&spot)?;
        let (mode, xattrs) = self.new_mode(spot.dir, libc::S_IFDIR | mode & 0o1777);
        let stat = self.new_stat(spot.dir, mode, 0);
        let mut node = Node::new(stat, None);
        node.xattrs = Some(xattrs.unwrap_or_default());
        let id = self.tree.add(node);
        self.tree.put(spot.dir, &spot.name, id)?;
        let parent = &mut self.tree.nodes[spot.dir].stat;
        if parent.nlink > 1 {
            parent.nlink += 1;
        }
        Ok(0)
    }

    /// `symlinkat(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn symlink(&mut self, target: &[u8], dirfd: i32, path: &[u8]) -> Sys<u64> {
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        let spot = match self.new_name(dirfd, path, false)? {
            Target::Here(spot) => spot,
            Target::Live(path) => {
                self.unsupported_call("a symbolic link outside of the versioned trees", &path)?;
                super::kernel::symlink(target, &path)?;
                return Ok(0);
            }
        };
        self.prepare_name(&spot)?;
        let mut stat = self.new_stat(spot.dir, libc::S_IFLNK | 0o777, 0);
        stat.size = target.len() as u64;
        let mut node = Node::new(stat, None);
        node.target = Some(target.to_vec());
        node.xattrs = Some(Xattrs::new());
        let id = self.tree.add(node);
        self.tree.put(spot.dir, &spot.name, id)?;
        Ok(0)
    }

    /// `mknodat(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn mknod(&mut self, dirfd: i32, path: Sys<Vec<u8>>, mode: u32, dev: u64) -> Sys<u64> {
        let kind = mode & libc::S_IFMT;
        // The type is looked at before the path.
        let spot = path.and_then(|path| self.new_name(dirfd, &path, false));
        match kind {
            0 | libc::S_IFREG | libc::S_IFIFO | libc::S_IFSOCK => {}
            libc::S_IFCHR | libc::S_IFBLK => {
                let here = matches!(spot.as_ref().map_err(|e| *e)?, Target::Here(_));
                // A whiteout (character device 0, 0) takes no capability.
                let whiteout = kind == libc::S_IFCHR && dev == 0;
                if here && !whiteout && !self.process.cred().may_mknod() {
                    return Err(Errno::PERM);
                }
            }
            libc::S_IFDIR => return Err(Errno::PERM),
            _ => return Err(Errno::INVAL),
        }
        let spot = match spot? {
            Target::Here(spot) => spot,
            Target::Live(path) => {
                return self.live_change(&path, |path| super::kernel::mknod_live(path, mode, dev));
            }
        };
        self.prepare_name(&spot)?;
        if kind == 0 || kind == libc::S_IFREG {
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
            let (_, fd) = self.create_file(&spot, flags, mode & 0o7777)?;
            super::kernel::close(fd);
            return Ok(0);
        }
        let (mode, xattrs) = self.new_mode(spot.dir, kind | mode & 0o7777);
        // dev_t as the call passes it is the kernel's 32-bit packing.
        let (major, minor) = ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xfff00));
        let rdev = match kind {
            libc::S_IFCHR | libc::S_IFBLK => libc::makedev(major as u32, minor as u32),
            _ => 0,
        };
        let stat = self.new_stat(spot.dir, mode, rdev);
        let mut node = Node::new(stat, None);
        node.xattrs = Some(xattrs.unwrap_or_default());
        let id = self.tree.add(node);
        self.tree.put(spot.dir, &spot.name, id)?;
        Ok(0)
    }

    /// `linkat(2)`, the source found.
    ///
    /// # Errors
    /// As the call.
    pub fn link(&mut self, source: Id, dirfd: i32, path: &[u8]) -> Sys<u64> {
        let spot = match self.new_name(dirfd, path, false)? {
            Target::Here(spot) => spot,
            Target::Live(path) => {
                let dir = txos_engine::readset::split(&path).map_or(&b"/"[..], |(dir, _)| dir);
                return Err(match no_link_there(&path) {
                    Errno::XDEV if super::kernel::is_read_only(dir) => Errno::ROFS,
                    other => other,
                });
            }
        };
        let (from, into) = (self.tree.nodes[source].stat, self.tree.nodes[spot.dir].stat);
        if self.tree.nodes[source].live || from.mnt != into.mnt {
            let dir = self.tree.real_path(spot.dir).unwrap_or_default();
            return Err(if super::kernel::is_read_only(&dir) { Errno::ROFS } else { Errno::XDEV });
        }
        self.read_only(spot.dir)?;
        self.protected_hardlinks(source)?;
        self.may_change_names(spot.dir)?;
        if from.attributes & (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64 != 0 {
            return Err(Errno::PERM);
        }
        if self.tree.nodes[source].is_dir() {
            return Err(Errno::PERM);
        }
        if self.tree.nodes[source].names.is_empty() && !self.tree.nodes[source].tmpfile() {
            return Err(Errno::NOENT);
        }
        self.touch_name(spot.dir, &spot.name)?;
        self.touch_write(source)?;
        self.tree.put(spot.dir, &spot.name, source)?;
        let node = &mut self.tree.nodes[source];
        node.stat.nlink += 1;
        node.stat.ctime = now_after(node.stat.ctime);
        self.tree.nodes[source].data.set_tmpfile(false);
        Ok(0)
    }

    /// /proc/sys/fs/protected_hardlinks: only of files that one owns or can read and write.
    fn protected_hardlinks(&mut self, source: Id) -> Sys<()> {
        let stat = self.tree.nodes[source].stat;
        if !super::settings::protected_hardlinks() || self.process.cred().owns(stat.uid) {
            return Ok(());
        }
        let set_id = stat.mode & libc::S_ISUID != 0
            || stat.mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
        if stat.kind() != FileKind::File
            || set_id
            || self.may(source, super::perm::mask::R | super::perm::mask::W).is_err()
        {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// `unlinkat(2)` without AT_REMOVEDIR.
    ///
    /// # Errors
    /// As the call.
    pub fn unlink(&mut self, dirfd: i32, path: &[u8]) -> Sys<u64> {
        let base = self.base(dirfd, path)?;
        let spot = match self.walk_parent(base, path)? {
            Place::At(spot) => spot,
            Place::Live(path) => {
                self.is_free(&path)?;
                return self.live_change(&path, |path| super::kernel::unlink_live(path, 0));
            }
        };
        if spot.last != Last::Name {
            return Err(Errno::ISDIR);
        }
        self.read_only(spot.dir)?;
        let Some(id) = spot.node else { return Err(Errno::NOENT) };
        let is_dir = self.tree.nodes[id].is_dir();
        if spot.slash {
            return Err(if is_dir { Errno::ISDIR } else { Errno::NOTDIR });
        }
        self.may_remove(spot.dir, id)?;
        if is_dir {
            return Err(Errno::ISDIR);
        }
        if self.tree.is_mount_point(id) {
            return Err(Errno::BUSY);
        }
        self.touch_name(spot.dir, &spot.name)?;
        self.touch_write(id)?;
        self.tree.take_away(spot.dir, &spot.name, id)?;
        Ok(0)
    }

    /// `unlinkat(2)` with AT_REMOVEDIR.
    ///
    /// # Errors
    /// As the call.
    pub fn rmdir(&mut self, dirfd: i32, path: &[u8]) -> Sys<u64> {
        let base = self.base(dirfd, path)?;
        let spot = match self.walk_parent(base, path)? {
            Place::At(spot) => spot,
            Place::Live(path) => {
                self.is_free(&path)?;
                let flags = libc::AT_REMOVEDIR;
                return self.live_change(&path, |path| super::kernel::unlink_live(path, flags));
            }
        };
        match spot.last {
            Last::Name => {}
            Last::Dot => return Err(Errno::INVAL),
            Last::DotDot => return Err(Errno::NOTEMPTY),
            Last::Root => return Err(Errno::BUSY),
        }
        self.read_only(spot.dir)?;
        let Some(id) = spot.node else { return Err(Errno::NOENT) };
        self.may_remove(spot.dir, id)?;
        if !self.tree.nodes[id].is_dir() {
            return Err(Errno::NOTDIR);
        }
        if self.tree.is_mount_point(id) || id == self.tree.root {
            return Err(Errno::BUSY);
        }
        if !self.is_empty_dir(id)? {
            return Err(Errno::NOTEMPTY);
        }
        self.touch_name(spot.dir, &spot.name)?;
        self.touch_write(id)?;
        self.tree.take_away(spot.dir, &spot.name, id)?;
        Ok(0)
    }

    /// Whether there is no name in a directory.
    ///
    /// # Errors
    /// If it can't be listed.
    pub fn is_empty_dir(&mut self, id: Id) -> Sys<bool> {
        let shadow = self.tree.nodes[id].dir()?;
        if shadow.entries.values().any(|e| e.now.is_some()) {
            return Ok(false);
        }
        if self.tree.nodes[id].stable.is_none() {
            return Ok(true);
        }
        let names = self.stable_names(id)?;
        let shadow = self.tree.nodes[id].dir()?;
        Ok(names.iter().all(|n| shadow.entries.contains_key(&n.name[..])))
    }

    /// `renameat2(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn rename(&mut self, old: (i32, &[u8]), new: (i32, Sys<Vec<u8>>), flags: u32) -> Sys<u64> {
        if flags & !(NOREPLACE | EXCHANGE | WHITEOUT) != 0
            || (flags & EXCHANGE != 0 && flags & (NOREPLACE | WHITEOUT) != 0)
        {
            return Err(Errno::INVAL);
        }
        // Both directories first, then the names in them.
        let blind = Rules { parent: true, blind: true, ..Rules::default() };
        let base = self.base(old.0, old.1)?;
        let from = self.walk_by(base, old.1, false, blind)?;
        if let Place::Live(path) = &from {
            // Its directory was not looked at yet.
            let dir = txos_engine::readset::split(path).map_or(&b"/"[..], |(dir, _)| dir);
            if kernel::look(dir)?.kind() != FileKind::Dir {
                return Err(Errno::NOTDIR);
            }
        }
        let new = (new.0, new.1?);
        let base = self.base(new.0, &new.1)?;
        let to = self.walk_by(base, &new.1, false, blind)?;
        let (from, to) = match (from, to) {
            (Place::At(from), Place::At(to)) => (from, to),
            (Place::Live(from), Place::Live(to)) => return self.live_rename(&from, &to, flags),
            (Place::Live(path), _) | (_, Place::Live(path)) => {
                self.is_free(&path)?;
                return Err(match no_link_there(&path) {
                    Errno::EXIST => Errno::XDEV,
                    other => other,
                });
            }
        };
        let Some(rename) = self.renamed_objects(&from, &to, flags)? else { return Ok(0) };
        self.may_rename(&rename)?;
        self.acquire_rename(&rename)?;
        self.apply_rename(&rename)?;
        Ok(0)
    }

    /// The objects at both names, if a rename of the one to the other makes sense. `None`: they are names
    /// of one object, and nothing is done.
    fn renamed_objects<'a>(
        &mut self,
        from: &'a Spot,
        to: &'a Spot,
        flags: u32,
    ) -> Sys<Option<Rename<'a>>> {
        if self.tree.nodes[from.dir].stat.mnt != self.tree.nodes[to.dir].stat.mnt {
            return Err(Errno::XDEV);
        }
        if from.last != Last::Name {
            return Err(Errno::BUSY);
        }
        if to.last != Last::Name {
            return Err(if flags & NOREPLACE != 0 { Errno::EXIST } else { Errno::BUSY });
        }
        self.read_only(from.dir)?;
        let source = self.lookup(from.dir, &from.name)?.ok_or(Errno::NOENT)?;
        let target = self.lookup(to.dir, &to.name)?;
        if flags & NOREPLACE != 0 && target.is_some() {
            return Err(Errno::EXIST);
        }
        let exchange = flags & EXCHANGE != 0;
        if exchange && target.is_none() {
            return Err(Errno::NOENT);
        }
        let source_dir = self.tree.nodes[source].is_dir();
        if !source_dir && (from.slash || (!exchange && to.slash)) {
            return Err(Errno::NOTDIR);
        }
        if let Some(target) = target.filter(|_| exchange)
            && to.slash
            && !self.tree.nodes[target].is_dir()
        {
            return Err(Errno::NOTDIR);
        }
        // A directory can't be moved to below itself, nor replace one above it.
        if source_dir && self.tree.is_in(to.dir, source) {
            return Err(Errno::INVAL);
        }
        if let Some(target) = target
            && self.tree.nodes[target].is_dir()
            && self.tree.is_in(from.dir, target)
        {
            return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        let whiteout = flags & WHITEOUT != 0;
        let rename = Rename { from, to, source, target, exchange, whiteout };
        Ok((target != Some(source)).then_some(rename))
    }

    /// Whether the thread may rename, and the objects can be renamed.
    fn may_rename(&mut self, rename: &Rename<'_>) -> Sys<()> {
        let Rename { from, to, source, target, exchange, .. } = rename;
        let (source, exchange) = (*source, *exchange);
        let source_dir = self.tree.nodes[source].is_dir();
        self.may_remove(from.dir, source)?;
        match *target {
            None => self.may_change_names(to.dir)?,
            Some(target) => {
                self.may_remove(to.dir, target)?;
                match (source_dir, self.tree.nodes[target].is_dir()) {
                    _ if exchange => {}
                    (true, false) => return Err(Errno::NOTDIR),
                    (false, true) => return Err(Errno::ISDIR),
                    _ => {}
                }
            }
        }
        // A directory that changes its parent is written to: `..` in it.
        if source_dir && from.dir != to.dir {
            self.may(source, super::perm::mask::W)?;
        }
        if let Some(target) = *target {
            if exchange && self.tree.nodes[target].is_dir() && from.dir != to.dir {
                self.may(target, super::perm::mask::W)?;
            }
            if self.tree.is_mount_point(target) {
                return Err(Errno::BUSY);
            }
        }
        if self.tree.is_mount_point(source) || source == self.tree.root {
            return Err(Errno::BUSY);
        }
        if let Some(target) = *target
            && !exchange
            && self.tree.nodes[target].is_dir()
            && !self.is_empty_dir(target)?
        {
            return Err(self.tree.not_empty(target));
        }
        Ok(())
    }

    /// Acquires what a rename changes.
    fn acquire_rename(&mut self, rename: &Rename<'_>) -> Sys<()> {
        let Rename { from, to, source, target, .. } = rename;
        self.touch_name(from.dir, &from.name)?;
        self.touch_name(to.dir, &to.name)?;
        self.touch_write(*source)?;
        target.map_or(Ok(()), |target| self.touch_write(target))
    }

    fn apply_rename(&mut self, rename: &Rename<'_>) -> Sys<()> {
        let Rename { from, to, source, target, exchange, whiteout } = rename;
        let source = *source;
        let source_dir = self.tree.nodes[source].is_dir();
        if let Some(target) = target.filter(|_| *exchange) {
            self.tree.set_entry(from.dir, &from.name, Some(target))?;
            self.tree.set_entry(to.dir, &to.name, Some(source))?;
            self.tree.renamed(source, from, to);
            self.tree.renamed(target, to, from);
            self.tree.move_nlink(source_dir, from.dir, to.dir);
            let target_dir = self.tree.nodes[target].is_dir();
            self.tree.move_nlink(target_dir, to.dir, from.dir);
            if from.dir != to.dir && (source_dir || target_dir) && self.tree.is_on_xfs(from.dir) {
                // Each directory has another parent, which xfs takes for a change of it.
                [source, target].into_iter().for_each(|id| self.tree.stamp_moved(id));
            }
        } else {
            if let Some(target) = *target {
                self.tree.take_away(to.dir, &to.name, target)?;
            }
            self.tree.set_entry(from.dir, &from.name, None)?;
            self.tree.set_entry(to.dir, &to.name, Some(source))?;
            self.tree.renamed(source, from, to);
            self.tree.move_nlink(source_dir, from.dir, to.dir);
            if *whiteout {
                let stat = self.new_stat(from.dir, libc::S_IFCHR, 0);
                let mut node = Node::new(stat, None);
                node.xattrs = Some(Xattrs::new());
                let id = self.tree.add(node);
                self.tree.put(from.dir, &from.name, id)?;
            }
        }
        self.tree.stamp_dir(from.dir);
        self.tree.stamp_dir(to.dir);
        Ok(())
    }
}

impl ShadowTree {
    /// The default ACL of a directory.
    pub fn default_acl(&mut self, dir: Id) -> Option<Vec<u8>> {
        const NAME: &[u8] = b"system.posix_acl_default";
        let node = &self.nodes[dir];
        if let Some(xattrs) = &node.xattrs {
            return xattrs.get(NAME).cloned();
        }
        let stable = node.stable.as_ref()?;
        let fs = (stable.stat.id, stable.stat.mnt);
        if let Some(known) = self.default_acls.get(&fs) {
            return known.clone();
        }
        let found = self.ask(dir, &stable.path, |path| super::kernel::xattr(path, NAME));
        // That this one may not look, or that there was no descriptor, says nothing to the next.
        let is_certain =
            !matches!(found, Err(Errno::ACCESS | Errno::MFILE | Errno::NFILE | Errno::NOMEM));
        let found = found.ok().flatten();
        if is_certain {
            self.default_acls.insert(fs, found.clone());
        }
        found
    }

    /// Puts a new node at a name where nothing is.
    pub fn put(&mut self, dir: Id, name: &[u8], node: Id) -> Sys<()> {
        self.set_entry(dir, name, Some(node))?;
        self.nodes[node].names.push((dir, name.into()));
        self.stamp_dir(dir);
        Ok(())
    }

    /// Changes what is at a name.
    pub fn set_entry(&mut self, dir: Id, name: &[u8], now: Option<Id>) -> Sys<()> {
        self.note_name(dir, name, now);
        let before = self.nodes[dir].dir_mut()?.entries.get(name).and_then(|entry| entry.now);
        let changed = &mut self.trace.changed;
        changed.insert(dir);
        changed.insert_name(dir, name);
        for id in [before, now].into_iter().flatten() {
            changed.insert(id);
            // A directory may have another one above it now.
            changed.insert_name(id, b"..");
        }
        let entries = self.nodes[dir].dir_mut()?;
        match entries.entries.get_mut(name) {
            Some(entry) => entry.now = now,
            None => {
                entries.entries.insert(name.into(), Entry { now, base: None });
            }
        }
        entries.changes += 1;
        Ok(())
    }

    /// Names in a directory have changed: it has the time of that.
    pub fn stamp_dir(&mut self, dir: Id) {
        let node = &mut self.nodes[dir];
        let at = now_after(node.stat.ctime);
        (node.stat.mtime, node.stat.ctime) = (at, at);
        // What was set by utimensat(2) before is over.
        node.changed &= !super::node::changed::MTIME;
    }

    /// Adds a node.
    pub fn add(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Takes a name away from a node.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn take_away(&mut self, dir: Id, name: &[u8], id: Id) -> Sys<()> {
        self.set_entry(dir, name, None)?;
        self.stamp_dir(dir);
        let path = txos_engine::readset::join(&self.path_of(dir), name);
        let node = &mut self.nodes[id];
        node.last_name = Some(path);
        node.names.retain(|(d, n)| !(*d == dir && &n[..] == name));
        node.stat.nlink = node.stat.nlink.saturating_sub(1);
        node.stat.ctime = now_after(node.stat.ctime);
        if node.is_dir() {
            node.stat.nlink = 0;
            if let Ok(removed) = node.dir_mut() {
                removed.removed = true;
                removed.above = Some(dir);
            }
            let parent = &mut self.nodes[dir].stat;
            if parent.nlink > 2 {
                parent.nlink -= 1;
            }
        }
        Ok(())
    }

    /// Whether something is mounted there.
    fn is_mount_point(&self, id: Id) -> bool {
        let stat = self.nodes[id].stat;
        self.nodes[id].stable.is_some() && stat.attributes & 0x2000 /* STATX_ATTR_MOUNT_ROOT */ != 0
    }

    /// What a rename onto a directory that is not empty is answered with: xfs has its own mind.
    fn not_empty(&self, dir: Id) -> Errno {
        if self.is_on_xfs(dir) { Errno::EXIST } else { Errno::NOTEMPTY }
    }

    fn is_on_xfs(&self, dir: Id) -> bool {
        const XFS: i64 = 0x5846_5342;
        let path = self.real_path(dir).unwrap_or_default();
        super::kernel::file_system(&path, &self.nodes[dir].stat) == XFS
    }

    fn stamp_moved(&mut self, id: Id) {
        let node = &mut self.nodes[id];
        if node.is_dir() {
            node.stat.mtime = now_after(node.stat.ctime);
            node.changed |= super::node::changed::MTIME;
        }
    }

    fn renamed(&mut self, id: Id, from: &Spot, to: &Spot) {
        let node = &mut self.nodes[id];
        if let Some(name) =
            node.names.iter_mut().find(|(d, n)| *d == from.dir && n[..] == from.name[..])
        {
            *name = (to.dir, to.name[..].into());
        }
        node.stat.ctime = now_after(node.stat.ctime);
    }

    fn move_nlink(&mut self, is_dir: bool, from: Id, to: Id) {
        if is_dir && from != to {
            let nlink = &mut self.nodes[from].stat.nlink;
            if *nlink > 2 {
                *nlink -= 1;
            }
            let nlink = &mut self.nodes[to].stat.nlink;
            if *nlink > 1 {
                *nlink += 1;
            }
        }
    }

    /// Whether a directory is `top` or lies below it.
    fn is_in(&self, mut dir: Id, top: Id) -> bool {
        loop {
            if dir == top {
                return true;
            }
            let parent = self.parent(dir);
            if parent == dir || dir == self.top {
                return false;
            }
            dir = parent;
        }
    }
}

/// Why there can be no link at a place that is not versioned.
fn no_link_there(path: &[u8]) -> Errno {
    let dir = txos_engine::readset::split(path).map_or(&b"/"[..], |(dir, _)| dir);
    match (super::kernel::statx(libc::AT_FDCWD, dir, 0), super::kernel::look(path)) {
        (Err(e), _) => e,
        // A working directory that was removed gets no more names, whatever the mount.
        (Ok(dir), _) if dir.nlink == 0 && !path.starts_with(b"/") => Errno::NOENT,
        (_, Ok(_)) => Errno::EXIST,
        _ => Errno::XDEV,
    }
}
