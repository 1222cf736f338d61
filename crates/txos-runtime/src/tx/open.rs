//! `open(2)` and its relatives.

use txos_engine::object::FileKind;

use super::content::Data;
use super::effects::Reach;
use super::files::OpenFile;
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::Id;
use super::perm::mask;
use super::tree::ShadowTree;
use super::waits::Opening;
use super::walk::{Last, Place, Rules, Spot};
use super::{Tx, settings};
use crate::call::while_waiting;

/// What openat2(2) was told about the walk.
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const RESOLVE_NO_XDEV: u64 = 0x01;
const RESOLVE_BENEATH: u64 = 0x08;
const RESOLVE_IN_ROOT: u64 = 0x10;

impl Tx {
    /// `openat2(2)`, and with `resolve` 0 `openat(2)`.
    ///
    /// # Errors
    /// As the call; the transaction is doomed.
    pub fn open(
        &mut self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        mode: u32,
        resolve: u64,
    ) -> Sys<u64> {
        let mut flags = flags;
        if flags & libc::O_PATH != 0 {
            flags &= libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        }
        if resolve != 0
            && !self.process.delegates
            && let Some(opened) = self.open_live_by(dirfd, path, flags, mode, resolve)?
        {
            return Ok(opened);
        }
        if resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) != 0 {
            return self.open_scoped(dirfd, path, flags, mode, resolve);
        }
        if let Some(number) = self.tree.descriptor_path(path) {
            return self.open_descriptor(number, flags, resolve);
        }
        const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
        if flags & TMPFILE != 0 && flags & libc::O_PATH == 0 {
            return self.open_tmpfile(dirfd, path, flags, mode);
        }
        if flags & libc::O_CREAT != 0 {
            if flags & libc::O_DIRECTORY != 0 {
                return Err(Errno::INVAL);
            }
            return self.open_creating(dirfd, path, flags, mode, resolve);
        }
        let base = self.base(dirfd, path)?;
        let follow = flags & libc::O_NOFOLLOW == 0;
        let place = self.walk_by(base, path, follow, rules(resolve))?;
        match place {
            Place::Live(path) => match descriptor_path(&path) {
                Some(number) => self.open_descriptor(number, flags, resolve),
                None => self.open_live(&path, flags, mode),
            },
            Place::At(Spot { node: None, .. }) => Err(Errno::NOENT),
            Place::At(Spot { node: Some(id), dir, name, .. }) => {
                self.tree.opened_as = Some((dir, name.into()));
                self.open_node(id, flags)
            }
        }
    }

    /// openat2(2) in a directory that is not versioned: the kernel goes by its rules. `None`: it begins elsewhere.
    fn open_live_by(
        &mut self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        mode: u32,
        resolve: u64,
    ) -> Sys<Option<u64>> {
        const SCOPES: u64 = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
        let is_whole = path.starts_with(b"/");
        // What is wrong with it is said where it is looked at otherwise.
        if is_whole && resolve & SCOPES != RESOLVE_IN_ROOT || resolve & SCOPES == SCOPES {
            return Ok(None);
        }
        let Ok(base) = self.base(dirfd, if is_whole { b"." } else { path }) else {
            return Ok(None);
        };
        let Some(stable) = self.tree.nodes[base]
            .stable
            .as_ref()
            .filter(|_| self.tree.nodes[base].live && self.tree.unreachable != Some(base))
        else {
            return Ok(None);
        };
        let dir = OwnedFd::open(&stable.path, libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC)?;
        if let Some(path) = self.versioned_by(dir.number(), path, flags, resolve)? {
            return self.open(libc::AT_FDCWD, &path, flags, mode, 0).map(Some);
        }
        let looks = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        if flags & libc::O_CREAT != 0 {
            match kernel::open_by(dir.number(), path, looks, 0, resolve) {
                Ok(fd) => kernel::close(fd),
                Err(_) => {
                    self.unsupported_call("a new file outside of the versioned trees", path)?;
                }
            }
        }
        let fd = kernel::open_by(dir.number(), path, flags, mode, resolve)?;
        let whole = kernel::path_of_fd(fd)?;
        self.opened_live(fd, &whole, flags).map(Some)
    }

    /// Where a path leads from a directory that is not versioned, by the rules of openat2(2), if that is versioned.
    fn versioned_by(
        &mut self,
        dir: i32,
        path: &[u8],
        flags: i32,
        resolve: u64,
    ) -> Sys<Option<Vec<u8>>> {
        if self.copies.within.is_none() {
            return Ok(None);
        }
        let mut found = |path: &[u8], flags: i32| -> Sys<Option<Vec<u8>>> {
            let flags = libc::O_PATH | libc::O_CLOEXEC | flags;
            let Ok(fd) = kernel::open_by(dir, path, flags, 0, resolve).map(OwnedFd::of) else {
                return Ok(None);
            };
            let is_versioned =
                self.copies.is_versioned_open(fd.number(), &kernel::look_fd(fd.number())?);
            Ok(kernel::path_of_fd(fd.number()).ok().filter(|_| is_versioned))
        };
        if let Some(whole) = found(path, flags & libc::O_NOFOLLOW)? {
            return Ok(Some(whole));
        }
        // It may be in the transaction only, or is to be made.
        let (parent, last) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(at) => path.split_at(at + 1),
            None => (&b"."[..], path),
        };
        Ok(found(parent, libc::O_DIRECTORY)?.map(|dir| txos_engine::readset::join(&dir, last)))
    }

    /// openat2(2) that is to stay at or below its directory.
    fn open_scoped(
        &mut self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        mode: u32,
        resolve: u64,
    ) -> Sys<u64> {
        const SCOPES: u64 = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
        if flags & libc::O_CREAT != 0 && flags & libc::O_DIRECTORY != 0 {
            return Err(Errno::INVAL);
        }
        if resolve & SCOPES == SCOPES {
            return Err(Errno::INVAL);
        }
        if resolve & RESOLVE_BENEATH != 0 && path.starts_with(b"/") {
            return Err(Errno::XDEV);
        }
        let base = self.base(dirfd, if path.starts_with(b"/") { b"." } else { path })?;
        if !self.tree.nodes[base].is_dir() {
            return Err(Errno::NOTDIR);
        }
        // The directory is the root meanwhile.
        let (root, scope) = (self.tree.root, self.tree.beneath);
        self.tree.root = base;
        self.tree.beneath = resolve & RESOLVE_BENEATH != 0;
        let opened = self.open(dirfd, path, flags, mode, resolve & !SCOPES);
        (self.tree.root, self.tree.beneath) = (root, scope);
        opened
    }

    fn open_tmpfile(&mut self, dirfd: i32, path: &[u8], flags: i32, mode: u32) -> Sys<u64> {
        if flags & libc::O_DIRECTORY == 0 || flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(Errno::INVAL);
        }
        if flags & libc::O_CREAT != 0 {
            return Err(Errno::INVAL);
        }
        let base = self.base(dirfd, path)?;
        let dir = match self.walk(base, path, flags & libc::O_NOFOLLOW == 0)? {
            Place::Live(path) => return self.open_live(&path, flags, mode),
            Place::At(Spot { node: None, .. }) => return Err(Errno::NOENT),
            Place::At(Spot { node: Some(id), .. }) => id,
        };
        if !self.tree.nodes[dir].is_dir() {
            return Err(Errno::NOTDIR);
        }
        self.may_change_names(dir)?;
        let (id, fd) = self.create_unnamed(dir, flags, mode & 0o7777)?;
        self.install(id, fd, flags)
    }

    fn open_creating(
        &mut self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        mode: u32,
        resolve: u64,
    ) -> Sys<u64> {
        let exclusive = flags & libc::O_EXCL != 0;
        let mut base = self.base(dirfd, path)?;
        let mut path = path.to_vec();
        for _ in 0..=40 {
            let rules = Rules { parent: true, ..rules(resolve) };
            // A link that is not versioned may lead to what is.
            let follow = !exclusive && flags & libc::O_NOFOLLOW == 0;
            let spot = match self.walk_by(base, &path, follow, rules)? {
                Place::Live(path) => return self.open_live(&path, flags, mode),
                Place::At(spot) => spot,
            };
            if spot.last != Last::Name {
                return Err(if exclusive { Errno::EXIST } else { Errno::ISDIR });
            }
            if spot.slash {
                return Err(Errno::ISDIR);
            }
            let Some(id) = spot.node else {
                self.prepare_name(&spot)?;
                let (id, fd) = self.create_file(&spot, flags, mode & 0o7777)?;
                return self.install(id, fd, flags);
            };
            if exclusive {
                return Err(Errno::EXIST);
            }
            if self.tree.nodes[id].live && self.tree.nodes[id].kind() != FileKind::Symlink {
                let path = self.tree.path_of(id);
                return self.open_live(&path, flags, mode);
            }
            match self.tree.nodes[id].kind() {
                FileKind::Symlink if flags & libc::O_NOFOLLOW != 0 => return Err(Errno::LOOP),
                FileKind::Symlink if resolve & RESOLVE_NO_SYMLINKS != 0 => return Err(Errno::LOOP),
                FileKind::Symlink => {
                    self.protected_symlinks(spot.dir, id)?;
                    path = self.target(id)?;
                    base = if path.starts_with(b"/") { self.tree.root } else { spot.dir };
                }
                FileKind::Dir => return Err(Errno::ISDIR),
                _ => {
                    self.protected_regular(spot.dir, id)?;
                    return self.open_node(id, flags);
                }
            }
        }
        Err(Errno::LOOP)
    }

    /// /proc/sys/fs/protected_symlinks: links in sticky, world-writable directories are followed
    /// only by their owner, or if the directory's owner made them.
    fn protected_symlinks(&mut self, dir: Id, link: Id) -> Sys<()> {
        let (dir, link) = (self.tree.nodes[dir].stat, self.tree.nodes[link].stat);
        let open = libc::S_ISVTX | libc::S_IWOTH;
        if settings::protected_symlinks()
            && dir.mode & open == open
            && self.process.cred().uid != link.uid
            && dir.uid != link.uid
        {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// The same of a link that is not versioned.
    ///
    /// # Errors
    /// EACCES.
    pub fn protected_link(&mut self, dir: &[u8], link: &[u8]) -> Sys<()> {
        const OPEN: u32 = libc::S_ISVTX | libc::S_IWOTH;
        let dir = kernel::statx(libc::AT_FDCWD, dir, 0)?;
        let link = kernel::statx(libc::AT_FDCWD, link, libc::AT_SYMLINK_NOFOLLOW)?;
        let is_protected = settings::protected_symlinks()
            && dir.mode & OPEN == OPEN
            && self.process.cred().uid != link.uid
            && dir.uid != link.uid;
        if is_protected { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// /proc/sys/fs/protected_regular: O_CREAT of somebody else's file in a sticky directory.
    fn protected_regular(&mut self, dir: Id, file: Id) -> Sys<()> {
        let (dir, file) = (self.tree.nodes[dir].stat, self.tree.nodes[file].stat);
        let level = settings::protected_regular();
        let open = dir.mode & libc::S_IWOTH != 0 || (dir.mode & libc::S_IWGRP != 0 && level >= 2);
        if level > 0
            && dir.mode & libc::S_ISVTX != 0
            && open
            && matches!(file.kind(), FileKind::File | FileKind::Fifo)
            && file.uid != dir.uid
            && self.process.cred().uid != file.uid
        {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// Opens an object that was found.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_node(&mut self, id: Id, flags: i32) -> Sys<u64> {
        let kind = self.tree.nodes[id].kind();
        if flags & libc::O_DIRECTORY != 0 && kind != FileKind::Dir {
            return Err(Errno::NOTDIR);
        }
        if flags & libc::O_PATH != 0 {
            let fd = self.placeholder(id, flags)?;
            return self.install(id, fd, flags);
        }
        let access = flags & libc::O_ACCMODE;
        let writes = access != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        match kind {
            FileKind::Symlink => return Err(Errno::LOOP),
            FileKind::Dir if writes => return Err(Errno::ISDIR),
            FileKind::Socket => return Err(Errno::NXIO),
            _ => {}
        }
        let mut wanted = match access {
            libc::O_RDONLY => mask::R,
            libc::O_WRONLY => mask::W,
            _ => mask::R | mask::W,
        };
        if flags & libc::O_TRUNC != 0 {
            wanted |= mask::W;
        }
        let opening_decides = kind == FileKind::File
            && wanted == mask::R
            && flags & libc::O_NOATIME == 0
            && matches!(self.tree.nodes[id].data, Data::Stable)
            && !self.tree.nodes[id].has_own_permissions();
        if !opening_decides {
            self.may(id, wanted)?;
        }
        let stat = self.tree.nodes[id].stat;
        if writes && stat.attributes & libc::STATX_ATTR_IMMUTABLE as u64 != 0 {
            return Err(Errno::PERM);
        }
        if stat.attributes & libc::STATX_ATTR_APPEND as u64 != 0
            && (flags & libc::O_TRUNC != 0 || (writes && flags & libc::O_APPEND == 0))
        {
            return Err(Errno::PERM);
        }
        if flags & libc::O_NOATIME != 0 && !self.process.cred().owns(stat.uid) {
            return Err(Errno::PERM);
        }
        match kind {
            FileKind::File => self.open_file(id, flags, !opening_decides),
            FileKind::Dir => {
                let fd = self.placeholder(id, flags)?;
                self.install(id, fd, flags)
            }
            _ => self.open_special(id, flags),
        }
    }

    /// `judged`: whether it may be opened so was asked before.
    fn open_file(&mut self, id: Id, flags: i32, judged: bool) -> Sys<u64> {
        if flags & libc::O_TRUNC != 0 {
            self.truncate_to_nothing(id)?;
        }
        if self.tree.nodes[id].data.whole().is_some() {
            let fd = self.tree.open_backing(id, flags)?;
            let fd = with_cloexec(fd, flags)?;
            return self.install(id, fd, flags);
        }
        let Some(stable) = self.tree.nodes[id].stable.as_ref() else { return Err(Errno::IO) };
        let path = stable.path.clone();
        let is_expected = flags & libc::O_ACCMODE == libc::O_RDONLY && self.expect_data(id)?;
        let Some(stable) = self.tree.nodes[id].stable.as_ref() else { return Err(Errno::IO) };
        let kept = flags
            & (libc::O_CLOEXEC
                | libc::O_DIRECT
                | libc::O_NOATIME
                | libc::O_NOFOLLOW
                | libc::O_NONBLOCK
                | libc::O_APPEND
                | libc::O_SYNC);
        // What is written goes to private copies: reading is all that the stable file is for.
        let (dir, name) = self.nearest(stable);
        // The process that has the transaction of several waits for no one of them.
        let serves = self.process.space.is_some();
        let open = || match serves {
            true => kernel::open_file_at(dir, name, kept),
            false => kernel::open_exact_at(dir, name, kept | libc::O_RDONLY),
        };
        let opened = match if judged { kernel::as_owner(open) } else { open() } {
            // It is judged by itself where its path is closed.
            Err(Errno::ACCESS) if !judged && kernel::is_worn() => {
                self.tree.beyond(id).and_then(|place| kernel::open_file_through(&place, kept))
            }
            opened => opened,
        };
        let opened = match opened {
            Err(Errno::ACCESS | Errno::PERM) if flags & libc::O_ACCMODE == libc::O_WRONLY => {
                kernel::open(&path, libc::O_PATH | libc::O_NOFOLLOW | kept & libc::O_CLOEXEC, 0)
            }
            // The transaction gave itself the permission.
            Err(Errno::ACCESS) if self.tree.nodes[id].has_own_permissions() => {
                return self.unsupported_errno(
                    "reading a file that only a change of mode in the same transaction allows",
                );
            }
            Err(Errno::LOOP | Errno::NOENT) => {
                return Err(self.changed_outside(&path, "it was replaced or removed"));
            }
            other => other,
        };
        let fd = opened?;
        let is_it = match is_expected {
            true => self.is_as_expected(id, fd),
            false => self.tree.is_same_file(id, fd),
        };
        if !is_it {
            kernel::close(fd);
            return Err(self.changed_outside(&path, "it was changed or replaced by another file"));
        }
        self.note(id, txos_engine::object::Facets::ENTRY);
        self.install(id, fd, flags)
    }

    /// Opens a file again that a process has open by itself, for its number, with its offset.
    ///
    /// # Errors
    /// As `open(2)`; the file was replaced outside, so the transaction is doomed.
    pub fn open_for(&mut self, id: Id, flags: i32, number: i32, offset: u64) -> Sys<()> {
        self.tree.opened_as = None;
        self.fds.chosen = Some(number);
        let opened = self.open_file(id, flags, true);
        self.fds.chosen = None;
        opened?;
        let real = self.real(number)?;
        kernel::seek(real, offset.cast_signed(), libc::SEEK_SET).map(drop)
    }

    /// A file is opened with O_TRUNC, or truncated to nothing.
    ///
    /// # Errors
    /// As `truncate(2)`.
    pub fn truncate_to_nothing(&mut self, id: Id) -> Sys<()> {
        self.written(id);
        if self.tree.nodes[id].data.whole().is_some() {
            let fd = OwnedFd::of(self.tree.open_backing(id, libc::O_WRONLY)?);
            return kernel::ftruncate(fd.number(), 0).map(drop);
        }
        if let Data::Pages(_) = self.tree.nodes[id].data {
            self.tree.nodes[id].data = Data::Stable;
        }
        self.copy_up(id, true)
    }

    /// A kernel descriptor for an object whose content is not read or written by it: a directory, or
    /// anything with O_PATH.
    ///
    /// # Errors
    /// As `open(2)`; the transaction is doomed.
    pub fn placeholder(&mut self, id: Id, flags: i32) -> Sys<i32> {
        const KEPT: i32 = libc::O_PATH
            | libc::O_DIRECTORY
            | libc::O_NOFOLLOW
            | libc::O_CLOEXEC
            | libc::O_NONBLOCK
            | libc::O_NOATIME
            | libc::O_APPEND
            | libc::O_SYNC;
        let node = &self.tree.nodes[id];
        let stable = matches!(node.data, Data::Stable) && node.stable.is_some();
        let at = match (&node.data, &node.stable) {
            (Data::Whole(backing), _) => backing.path.clone(),
            (_, Some(stable)) => stable.path.clone(),
            _ if node.is_dir() => self.staged_dir(id)?.1,
            _ => self.own_copy(id)?,
        };
        // The last name of a canonical path is a link only if the link itself is wanted.
        let link = self.tree.nodes[id].kind() == FileKind::Symlink;
        if !stable || link {
            let open = || kernel::open(&at, flags & KEPT, 0);
            if !stable {
                return kernel::as_owner(open);
            }
            return match open() {
                Err(Errno::ACCESS) if kernel::is_worn() => {
                    with_cloexec(self.tree.beyond(id)?.into_number(), flags)
                }
                opened => opened,
            };
        }
        let opened = match kernel::open_exact(&at, flags & KEPT) {
            // It was judged, by the owner and mode that it has in the transaction.
            Err(Errno::ACCESS)
                if kernel::is_worn() && self.tree.nodes[id].has_own_permissions() =>
            {
                let place = self.tree.beyond(id)?.raised()?;
                let path = kernel::magic_path(place.number());
                kernel::as_owner(|| kernel::open(&path, flags & KEPT & !libc::O_NOFOLLOW, 0))
            }
            Err(Errno::ACCESS) if kernel::is_worn() => self.open_beyond(id, flags & KEPT),
            opened => opened,
        };
        let fd = match opened {
            Err(Errno::LOOP | Errno::NOENT) => {
                return Err(self.changed_outside(&at, "it was replaced or removed"));
            }
            other => other?,
        };
        if !self.tree.is_same_file(id, fd) {
            kernel::close(fd);
            return Err(self.changed_outside(&at, "it was replaced by another"));
        }
        Ok(fd)
    }

    /// FIFOs and devices of versioned file systems.
    fn open_special(&mut self, id: Id, flags: i32) -> Sys<u64> {
        let path = match self.tree.nodes[id].stable.as_ref() {
            Some(stable) => stable.path.clone(),
            // A new one: its private copy, which only this transaction can reach.
            None => self.own_copy(id)?,
        };
        let is_fifo = self.tree.nodes[id].kind() == FileKind::Fifo;
        let opening =
            Opening { path, flags: flags & !(libc::O_CREAT | libc::O_EXCL), node: Some(id) };
        self.open_in_turn(opening, is_fifo)
    }

    /// Opens what the kernel reads and writes; if that waits for the other end of a FIFO, between two turns of
    /// the member.
    fn open_in_turn(&mut self, opening: Opening, is_fifo: bool) -> Sys<u64> {
        if is_fifo {
            // Who has its other end may answer by another pipe.
            self.talks_by_any_way()?;
        }
        if is_fifo && opening.waits() {
            self.release()?;
        }
        if is_fifo && opening.waits() && self.waits.leave(&opening) {
            return Err(Errno::AGAIN);
        }
        let is_new = opening.node.is_some_and(|id| self.tree.nodes[id].stable.is_none());
        // One of the private copies, whose mode was judged.
        let open = || if is_new { kernel::as_owner(|| opening.open()) } else { opening.open() };
        let fd = if is_fifo && opening.waits() { while_waiting(open) } else { open() };
        let fd = match (fd, opening.node) {
            (Err(Errno::ACCESS), Some(id)) if kernel::is_worn() && !is_new => {
                self.open_beyond(id, opening.flags)
            }
            (fd, _) => fd,
        };
        self.opened(&opening, fd?)
    }

    /// Takes note of what was opened.
    ///
    /// # Errors
    /// EMFILE.
    pub fn opened(&mut self, opening: &Opening, fd: i32) -> Sys<u64> {
        let cloexec = opening.flags & libc::O_CLOEXEC != 0;
        let flags = opening.flags & !(libc::O_CLOEXEC | libc::O_NOCTTY);
        let file = self.fds.add(OpenFile { node: opening.node, flags, ..OpenFile::default() });
        self.number(file, fd, cloexec, 0).map(|n| n as u64)
    }

    /// What is not versioned is opened as it is.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_live(&mut self, path: &[u8], flags: i32, mode: u32) -> Sys<u64> {
        if let Some(number) = descriptor_path(path) {
            return self.open_descriptor(number, flags, 0);
        }
        if flags & libc::O_CREAT != 0 && kernel::statx(libc::AT_FDCWD, path, 0).is_err() {
            self.unsupported_call("a new file outside of the versioned trees", path)?;
        }
        if (self.waits.has_members() || self.holds())
            && kernel::statx(libc::AT_FDCWD, path, 0).is_ok_and(|s| s.kind() == FileKind::Fifo)
        {
            return self.open_in_turn(Opening { path: path.to_vec(), flags, node: None }, true);
        }
        let fd = kernel::open(path, flags, mode)?;
        self.opened_live(fd, path, flags)
    }

    /// Takes note of what is not versioned and was opened.
    fn opened_live(&mut self, fd: i32, path: &[u8], flags: i32) -> Sys<u64> {
        let mut open = OpenFile { flags: flags & !libc::O_CLOEXEC, ..OpenFile::default() };
        match kernel::look_fd(fd)?.kind() {
            FileKind::Dir => open.node = Some(self.tree.live_dir(path)?),
            // Under TX_STRICT the transaction is doomed then.
            FileKind::Fifo => drop(self.talks_by_any_way()),
            // As of each process of several: what it is written to by is perhaps a standard stream by then.
            FileKind::File
                if self.how.flags & super::flags::COMMAND != 0
                    && flags & libc::O_ACCMODE != libc::O_RDONLY
                    && flags & libc::O_PATH == 0
                    && !path.starts_with(b"/proc/")
                    && !path.starts_with(b"/sys/") =>
            {
                self.output_of_kind(FileKind::File).inspect_err(|_| kernel::close(fd))?;
            }
            _ => {}
        }
        let file = self.fds.add(open);
        self.number(file, fd, flags & libc::O_CLOEXEC != 0, 0).map(|n| n as u64)
    }

    /// `/proc/self/fd/N` and `/dev/fd/N`: the object anew, as the kernel does it.
    fn open_descriptor(&mut self, number: i32, flags: i32, resolve: u64) -> Sys<u64> {
        let file = self.file(number).map_err(|_| Errno::NOENT)?;
        let itself = libc::O_PATH | libc::O_NOFOLLOW;
        if resolve & (RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS) != 0 && flags & itself != itself
        {
            return Err(Errno::LOOP);
        }
        if flags & libc::O_NOFOLLOW != 0 && flags & libc::O_PATH == 0 {
            return Err(Errno::LOOP);
        }
        match self.fds.get(file).node {
            Some(id) if !self.tree.nodes[id].live => {
                if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
                    return Err(Errno::EXIST);
                }
                self.open_node(id, flags & !libc::O_CREAT)
            }
            _ => {
                let real = self.real(number)?;
                let path = kernel::magic_path(real);
                let fd = kernel::open(&path, flags & !(libc::O_CREAT | libc::O_EXCL), 0)?;
                let reach = match self.fds.get(file).reach {
                    Reach::Inside => Reach::Inside,
                    _ => Reach::Unknown,
                };
                let flags_seen = flags & !libc::O_CLOEXEC;
                let open = OpenFile { flags: flags_seen, reach, ..OpenFile::default() };
                let file = self.fds.add(open);
                self.number(file, fd, flags & libc::O_CLOEXEC != 0, 0).map(|n| n as u64)
            }
        }
    }

    /// Gives a versioned object that was opened a number.
    fn install(&mut self, id: Id, fd: i32, flags: i32) -> Sys<u64> {
        const STATUS: i32 = libc::O_ACCMODE
            | libc::O_APPEND
            | libc::O_NONBLOCK
            | libc::O_DSYNC
            | libc::O_SYNC
            | libc::O_DIRECT
            | libc::O_NOATIME
            | libc::O_PATH
            | libc::O_DIRECTORY
            | libc::O_TMPFILE
            | libc::O_NOFOLLOW
            | libc::O_LARGEFILE;
        let name = self.tree.opened_as.take();
        let open = OpenFile { node: Some(id), flags: flags & STATUS, name, ..OpenFile::default() };
        let file = self.fds.add(open);
        let number = self.number(file, fd, flags & libc::O_CLOEXEC != 0, 0)?;
        if self.closes_late() {
            self.fds.watch(number);
        }
        Ok(number as u64)
    }
}

impl ShadowTree {
    /// The number in the path of a descriptor, if the directory for such paths is there.
    pub fn descriptor_path(&self, path: &[u8]) -> Option<i32> {
        descriptor_path(path).filter(|_| self.root == self.top)
    }
}

/// What openat2(2) was told, for the walk.
fn rules(resolve: u64) -> Rules {
    Rules {
        no_links: resolve & RESOLVE_NO_SYMLINKS != 0,
        no_magic: resolve & RESOLVE_NO_MAGICLINKS != 0,
        no_mounts: resolve & RESOLVE_NO_XDEV != 0,
        ..Rules::default()
    }
}

/// Private copies are opened close-on-exec; the program may not have asked for that.
fn with_cloexec(fd: i32, flags: i32) -> Sys<i32> {
    if flags & libc::O_CLOEXEC == 0 {
        kernel::set_close_on_exec(fd, false)?;
    }
    Ok(fd)
}

/// Whether a path may lead to descriptors, or to a directory of this process.
#[must_use]
pub fn leads_to_descriptor(path: &[u8]) -> bool {
    path.starts_with(b"/proc") || path.starts_with(b"/dev/fd") || path.starts_with(b"/dev/std")
}

/// The number in `/proc/self/fd/N`, `/dev/fd/N` and their like.
#[must_use]
pub fn descriptor_path(path: &[u8]) -> Option<i32> {
    if !leads_to_descriptor(path) {
        return None;
    }
    let own = std::process::id().to_string();
    let rest = path.strip_prefix(b"/dev/fd/").or_else(|| {
        let rest = path.strip_prefix(b"/proc/")?;
        let rest = rest
            .strip_prefix(b"self/")
            .or_else(|| rest.strip_prefix(b"thread-self/"))
            .or_else(|| rest.strip_prefix(own.as_bytes())?.strip_prefix(b"/"))?;
        rest.strip_prefix(b"fd/")
    });
    match (path, rest) {
        (b"/dev/stdin", _) => Some(0),
        (b"/dev/stdout", _) => Some(1),
        (b"/dev/stderr", _) => Some(2),
        (_, Some(digits)) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}
