//! What a regular file holds, as the transaction sees it.
//!
//! A file is *stable* until it is written to. Small changes then become private *pages* in memory;
//! anything more becomes a *whole* private copy: a real file in the store, on which the kernel
//! itself carries out what the program does. New files are whole copies from the beginning.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

use txos_engine::object::FileKind;
use txos_engine::readset::join;
use txos_engine::realm::{Access, Facet};
use txos_engine::version::Stamp;

use super::kernel::{self, Errno, OwnedFd, Stat, Sys};
use super::node::{Id, Node, Xattrs, changed, held};
use super::perm::Cred;
use super::tree::ShadowTree;
use super::walk::Spot;
use super::{Tx, now_after};
use crate::user::{Readable, Writable};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// The rights of a program, as an attribute of its file (capabilities(7)).
const CAPABILITY: &[u8] = b"security.capability";

/// Private pages of one file, beyond which it is copied.
const PAGES_MAX: usize = 64;

/// Where a file's bytes are.
#[derive(Debug)]
pub enum Data {
    /// In the stable file.
    Stable,
    /// In the stable file, but for these pages.
    Pages(Box<Pages>),
    /// In a file of ours.
    Whole(Box<Backing>),
}

/// Pages that differ from the stable file's.
#[derive(Debug, Default)]
pub struct Pages {
    /// By number; bytes beyond the size are zero.
    pub pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    /// Bytes the file has; never less than the stable file.
    pub size: u64,
    /// What was written, in order of place, at the grain of bytes.
    pub writes: Vec<(u64, u64)>,
    /// The page with the stable file's end, if its old bytes could not be read.
    pub unread: Option<u64>,
}

/// A private copy.
#[derive(Debug)]
pub struct Backing {
    /// Where.
    pub path: Vec<u8>,
    /// In which layer.
    pub layer: usize,
    /// Made by O_TMPFILE, and not linked since.
    pub tmpfile: bool,
    /// Of a copy of a stable file: when it was last changed by us. If it still is, nothing was
    /// written to it.
    pub fresh: Option<Stamp>,
    /// It was made of pages that were changed before: the time of change that it got by that, and the one of the change.
    pub settled: Option<(Stamp, Stamp)>,
    /// When it was last changed by us before it was mapped to memory, which leaves no stamp on every
    /// file system.
    pub mapped: Option<Stamp>,
}

impl Pages {
    /// How many blocks of 512 bytes the file has, by those of the stable file and its size. None would say that all of it is
    /// a hole.
    #[must_use]
    pub fn blocks(&self, size: u64, blocks: u64) -> u64 {
        let first = if blocks == 0 { 0 } else { size.div_ceil(PAGE as u64) };
        blocks + self.pages.range(first..).count() as u64 * (PAGE as u64 / 512)
    }

    /// What was written, at the grain of bytes: pieces that don't overlap, in order of place.
    #[must_use]
    pub fn pieces(&self) -> Vec<(u64, Vec<u8>)> {
        let mut spans = self.writes.clone();
        spans.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in spans {
            match merged.last_mut() {
                Some(last) if last.1 >= from => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        let bytes = |(from, to): (u64, u64)| {
            let mut out = Vec::with_capacity((to - from) as usize);
            let mut at = from;
            while at < to {
                let (number, inner) = (at / PAGE as u64, (at % PAGE as u64) as usize);
                let len = (PAGE - inner).min((to - at) as usize);
                match self.pages.get(&number) {
                    Some(page) => out.extend_from_slice(&page[inner..inner + len]),
                    None => out.resize(out.len() + len, 0),
                }
                at += len as u64;
            }
            (from, out)
        };
        merged.into_iter().map(bytes).collect()
    }
}

impl Data {
    /// A private copy, of which nothing is known but where it is.
    #[must_use]
    pub fn copy_at(path: Vec<u8>, layer: usize) -> Data {
        let (fresh, settled, mapped) = (None, None, None);
        Data::Whole(Box::new(Backing { path, layer, tmpfile: false, fresh, settled, mapped }))
    }

    /// The private copy.
    #[must_use]
    pub fn whole(&self) -> Option<&Backing> {
        match self {
            Data::Whole(backing) => Some(backing),
            _ => None,
        }
    }

    /// Marks a file as (not) made by O_TMPFILE.
    pub fn set_tmpfile(&mut self, is: bool) {
        if let Data::Whole(backing) = self {
            backing.tmpfile = is;
        }
    }
}

impl Backing {
    /// When the content was changed, by what the kernel says of the copy.
    #[must_use]
    pub fn changed_at(&self, ctime: Stamp) -> Stamp {
        match self.settled {
            Some((made, changed)) if made == ctime => changed,
            _ => ctime,
        }
    }

    /// Whether nothing was written to the copy of a stable file.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.fresh.is_some()
            && kernel::as_owner(|| kernel::look(&self.path)).ok().map(|s| s.ctime) == self.fresh
    }

    /// Whether a copy that was mapped to memory holds what the stable file holds: mapping alone is no
    /// change.
    #[must_use]
    pub fn is_same_as(&self, stable: &[u8]) -> bool {
        let open = |path: &[u8]| std::fs::File::open(std::ffi::OsStr::from_bytes(path));
        let (Ok(ours), Ok(theirs)) = (open(&self.path), open(stable)) else { return false };
        let len = |file: &std::fs::File| file.metadata().map(|meta| meta.len());
        matches!((len(&ours), len(&theirs)), (Ok(a), Ok(b)) if a == b
            && txos_engine::changeset::same_bytes(&ours, &theirs, a) == Ok(true))
    }
}

impl Node {
    /// Whether it was made by O_TMPFILE, and may still get a name.
    #[must_use]
    pub fn tmpfile(&self) -> bool {
        self.data.whole().is_some_and(|b| b.tmpfile)
    }
}

impl Tx {
    /// Makes a new file at a name where nothing is; gives its node and an open descriptor.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn create_file(&mut self, spot: &Spot, flags: i32, mode: u32) -> Sys<(Id, i32)> {
        let (layer, path) = self.place_in(spot.dir, &spot.name)?;
        let (id, fd) = self.make_file(spot.dir, layer, path, flags, mode)?;
        self.tree.put(spot.dir, &spot.name, id)?;
        Ok((id, fd))
    }

    /// Makes a new file without a name (O_TMPFILE).
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn create_unnamed(&mut self, dir: Id, flags: i32, mode: u32) -> Sys<(Id, i32)> {
        let (layer, path) = self.staged_path(self.tree.nodes[dir].stat.mnt)?;
        let flags = flags | libc::O_TMPFILE;
        let (id, fd) = self.make_file(dir, layer, path, flags, mode)?;
        self.tree.nodes[id].stat.nlink = 0;
        let name = format!("#{}", self.tree.nodes[id].stat.id.ino);
        self.tree.nodes[id].last_name = Some(join(&self.tree.path_of(dir), name.as_bytes()));
        self.tree.nodes[id].data.set_tmpfile(flags & libc::O_EXCL == 0);
        Ok((id, fd))
    }

    fn make_file(
        &mut self,
        dir: Id,
        layer: usize,
        path: Vec<u8>,
        flags: i32,
        mode: u32,
    ) -> Sys<(Id, i32)> {
        // Another owner takes set-id bits away, so the mode comes last.
        let exact = self.process.umask.is_some()
            || kernel::is_worn()
            || self.tree.new_mode_is_inherited(dir);
        // A program with a group's rights is not made by somebody else for that group, as its directory has it.
        let parent = self.tree.nodes[dir].stat;
        let set_id = libc::S_ISGID | libc::S_IXGRP;
        let is_given =
            parent.mode & libc::S_ISGID == 0 || self.process.cred().keeps_setgid(parent.gid);
        let mode = if mode & set_id == set_id && !is_given { mode & !libc::S_ISGID } else { mode };
        let cred = kernel::is_worn().then(|| self.process.cred());
        kernel::as_owner(|| self.make_file_of(cred, (dir, layer), path, (flags, mode, exact)))
    }

    fn make_file_of(
        &mut self,
        owner: Option<Cred>,
        (dir, layer): (Id, usize),
        path: Vec<u8>,
        (flags, mode, exact): (i32, u32, bool),
    ) -> Sys<(Id, i32)> {
        const UNNAMED: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
        let fd = if flags & UNNAMED != 0 {
            // Like that it has the flags it is expected to have; our own name for it comes after.
            let place = txos_engine::readset::split(&path).map_or(&b"/"[..], |(dir, _)| dir);
            let fd = kernel::open(place, flags & !libc::O_EXCL, mode & 0o7777)?;
            if let Err(e) = kernel::link_fd(fd, &path) {
                kernel::close(fd);
                return Err(e);
            }
            fd
        } else {
            let flags = flags & !libc::O_TRUNC | libc::O_CREAT | libc::O_EXCL;
            kernel::open(&path, flags, mode & 0o7777)?
        };
        let finish = |tx: &mut Tx| -> Sys<(Stat, Xattrs)> {
            let parent = tx.tree.nodes[dir].stat;
            if let Some(owner) = owner {
                kernel::fchown(fd, owner.uid, owner.gid)?;
            }
            if parent.mode & libc::S_ISGID != 0 {
                let made = kernel::look_fd(fd)?.mode;
                kernel::fchown(fd, u32::MAX, parent.gid)?;
                if made & 0o6000 != 0 {
                    // Which a change of the group takes away.
                    kernel::fchmod(fd, made & 0o7777)?;
                }
            }
            let mut xattrs = Xattrs::new();
            if exact {
                let (mode, acl) = tx.new_mode(dir, libc::S_IFREG | mode & 0o7777);
                kernel::fchmod(fd, mode & 0o7777)?;
                for (name, value) in acl.iter().flatten() {
                    kernel::set_xattr(&path, name, value)?;
                }
                xattrs = acl.unwrap_or_default();
            }
            let mut stat = kernel::look_fd(fd)?;
            stat.mnt = parent.mnt;
            stat.id.dev = parent.id.dev;
            Ok((stat, xattrs))
        };
        let (stat, xattrs) = match finish(self) {
            Ok(done) => done,
            Err(e) => {
                kernel::close(fd);
                let _ = kernel::unlink(&path);
                return Err(e);
            }
        };
        let mut node = Node::new(stat, None);
        node.xattrs = Some(xattrs);
        node.data = Data::copy_at(path, layer);
        Ok((self.tree.add(node), fd))
    }

    /// Makes a private copy of a file of which something is to be changed; empty if `empty`.
    ///
    /// # Errors
    /// As the system calls that it takes; the transaction is doomed.
    pub fn copy_up(&mut self, id: Id, empty: bool) -> Sys<()> {
        if self.tree.nodes[id].data.whole().is_some() {
            return Ok(());
        }
        kernel::as_owner(|| self.copy_whole(id, empty))
    }

    fn copy_whole(&mut self, id: Id, empty: bool) -> Sys<()> {
        self.before_change_from_before(id)?;
        self.touch_write(id)?;
        if !empty {
            self.touch_data(id)?;
        }
        let mnt = self.tree.nodes[id].stat.mnt;
        let (layer, path) = self.staged_path(mnt)?;
        let Some(stable) = self.tree.nodes[id].stable.as_ref() else { return Err(Errno::IO) };
        let (from_path, before) = (stable.path.clone(), stable.stat);
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        let to = OwnedFd::of(kernel::open(&path, flags, 0o600)?);
        let copied = self.fill(id, (&from_path, before), (to.number(), &path), empty);
        drop(to);
        if let Err(e) = copied {
            let _ = kernel::unlink(&path);
            return Err(e);
        }
        let untouched = matches!(self.tree.nodes[id].data, Data::Stable) && !empty;
        let was_pages = matches!(self.tree.nodes[id].data, Data::Pages(_)) && !empty;
        let changed = self.tree.nodes[id].stat.ctime;
        let place = path.clone();
        self.tree.nodes[id].data = Data::copy_at(path, layer);
        self.retarget(id)?;
        if was_pages
            && let Data::Whole(backing) = &mut self.tree.nodes[id].data
            && let Ok(now) = kernel::look(&place)
        {
            backing.settled = Some((now.ctime, changed));
        }
        // Where stamps follow the timer's tick, or are whole seconds, a write could leave none.
        if untouched
            && let Data::Whole(backing) = &mut self.tree.nodes[id].data
            && let Ok(now) = kernel::look(&place)
        {
            backing.fresh = now.version().is_fine(|| now.mount()).then_some(now.ctime);
        }
        Ok(())
    }

    /// Fills a private copy, which is open as `to` at `path`.
    fn fill(
        &mut self,
        id: Id,
        (from_path, before): (&[u8], Stat),
        (to, path): (i32, &[u8]),
        empty: bool,
    ) -> Sys<()> {
        if empty {
            self.drop_capabilities(id)?;
        } else {
            self.fill_unread(id)?;
            let from = match kernel::open_file_at(libc::AT_FDCWD, from_path, libc::O_CLOEXEC) {
                Ok(from) => from,
                // Somebody may write to it who may not read it: a descriptor may know better.
                Err(e) => self.readable_descriptor(id).ok_or(e)?,
            };
            let from = OwnedFd::of(from);
            if !self.tree.is_same_file(id, from.number()) {
                return Err(self.changed_outside(from_path, "it was replaced by another file"));
            }
            kernel::copy_content(from.number(), to, before.size)?;
            drop(from);
            if let Data::Pages(pages) = &self.tree.nodes[id].data {
                for (number, page) in &pages.pages {
                    let at = number * PAGE as u64;
                    let len = (pages.size.saturating_sub(at)).min(PAGE as u64) as usize;
                    kernel::pwrite_all(to, &page[..len], at)?;
                }
                kernel::ftruncate(to, pages.size)?;
            }
        }
        let stat = self.tree.nodes[id].stat;
        let owned = kernel::fchown(to, stat.uid, stat.gid).is_ok();
        if !owned {
            // It can't be given away by this user: its content will be written into the inode.
            self.tree.nodes[id].kept = true;
        }
        for (name, value) in self.all_xattrs(id)? {
            if kernel::set_xattr(path, &name, &value).is_err() {
                self.tree.nodes[id].kept = true;
            }
        }
        // After chown, which takes set-id bits.
        kernel::fchmod(to, stat.mode & 0o7777)?;
        let untouched = matches!(self.tree.nodes[id].data, Data::Stable) && !empty;
        let (atime, mtime) = (Some(stat.atime), Some(stat.mtime).filter(|_| untouched));
        kernel::utimes(path, atime, mtime.or(Some(stat.mtime).filter(|_| !empty)))
    }

    /// All extended attributes of an object, as the transaction sees them.
    ///
    /// # Errors
    /// As `listxattr(2)`.
    pub fn all_xattrs(&mut self, id: Id) -> Sys<Xattrs> {
        if let Some(xattrs) = &self.tree.nodes[id].xattrs {
            return Ok(xattrs.clone());
        }
        self.touch_xattrs(id)?;
        let Some(stable) = self.tree.nodes[id].stable.as_ref() else { return Ok(Xattrs::new()) };
        let (path, file) = (stable.path.clone(), stable.stat.id);
        if !kernel::is_worn() {
            return xattrs_at(&path);
        }
        // Also those that are hidden from whom the call is made for: they stay when it changes others.
        kernel::as_owner(|| {
            let is_it =
                || kernel::is_magic(&path) || kernel::look(&path).is_ok_and(|s| s.id == file);
            let there = is_it();
            let found = xattrs_at(&path);
            if there && is_it() {
                return found;
            }
            Err(self.changed_outside(&path, "it was replaced or removed"))
        })
    }

    /// A file's size as the transaction sees it.
    ///
    /// # Errors
    /// If it can't be asked.
    pub fn size(&mut self, id: Id) -> Sys<u64> {
        match &self.tree.nodes[id].data {
            Data::Stable => {
                self.touch_attrs(id)?;
                Ok(self.tree.nodes[id].stat.size)
            }
            Data::Pages(pages) => Ok(pages.size),
            Data::Whole(backing) => {
                kernel::as_owner(|| kernel::look(&backing.path)).map(|s| s.size)
            }
        }
    }

    /// Writes to a file without a private copy; `false` if it has to have one.
    ///
    /// # Errors
    /// As `pwrite(2)`; the transaction is doomed.
    pub fn write_pages(&mut self, id: Id, bytes: &[Readable], at: u64) -> Sys<bool> {
        let len: usize = bytes.iter().map(|piece| piece.len()).sum();
        if !self.tree.fits_in_pages(id, at, len) {
            return Ok(false);
        }
        if len == 0 {
            return Ok(true);
        }
        let end = at.checked_add(len as u64).ok_or(Errno::FBIG)?;
        self.acquire_pages(id, at, end)?;
        let (first, last) = (at / PAGE as u64, (end - 1) / PAGE as u64);
        for number in first..=last {
            let from = number * PAGE as u64;
            let whole = at <= from && end >= from + PAGE as u64;
            self.private_page(id, number, whole)?;
        }
        let Data::Pages(pages) = &mut self.tree.nodes[id].data else { return Err(Errno::IO) };
        let mut offset = at;
        for piece in bytes {
            let mut done = 0;
            while done < piece.len() {
                let (number, inner) = (offset / PAGE as u64, (offset % PAGE as u64) as usize);
                let n = (piece.len() - done).min(PAGE - inner);
                if let Some(page) = pages.pages.get_mut(&number) {
                    piece.copy(done, &mut page[inner..inner + n]);
                }
                done += n;
                offset += n as u64;
            }
        }
        pages.size = pages.size.max(end);
        pages.writes.push((at, end));
        let size = pages.size;
        self.written(id);
        self.tree.nodes[id].stat.size = size;
        Ok(true)
    }

    /// Before pages of a stable file are written.
    fn acquire_pages(&mut self, id: Id, at: u64, end: u64) -> Sys<()> {
        let node = &self.tree.nodes[id];
        if node.held & held::WRITE == 0
            && let Some(stable) = &node.stable
        {
            let (file, path, size) = (stable.stat.id, stable.path.clone(), stable.stat.size);
            let extent = if end > size { Access::Insert } else { Access::Read };
            self.acquire(&Facet::Attributes(file), Access::Insert, &path)?;
            self.acquire(&Facet::Extent(file), extent, &path)?;
            for number in at / PAGE as u64..=(end - 1) / PAGE as u64 {
                self.acquire(&Facet::Page { file, number }, Access::Write, &path)?;
            }
        }
        self.note(id, txos_engine::object::Facets::WRITE | txos_engine::object::Facets::ENTRY);
        Ok(())
    }

    /// Makes a page private; its old bytes are fetched unless all of it is overwritten.
    fn private_page(&mut self, id: Id, number: u64, whole: bool) -> Sys<()> {
        if matches!(self.tree.nodes[id].data, Data::Stable) {
            self.before_change_from_before(id)?;
            self.drop_capabilities(id)?;
            let size = self.tree.nodes[id].stat.size;
            self.tree.nodes[id].data = Data::Pages(Box::new(Pages { size, ..Pages::default() }));
        }
        if let Data::Pages(pages) = &self.tree.nodes[id].data
            && pages.pages.contains_key(&number)
        {
            return Ok(());
        }
        let mut page = Box::new([0u8; PAGE]);
        let mut unread = None;
        let at = number * PAGE as u64;
        let size = self.tree.nodes[id].stable.as_ref().map_or(0, |s| s.stat.size);
        if !whole && at < size {
            self.acquire_page(id, number)?;
            let want = usize::try_from(size - at).unwrap_or(PAGE).min(PAGE);
            let read = match self.fds.opened_to_read(id) {
                Some(fd) => kernel::pread(fd, &mut page[..want], at),
                None => self
                    .stable_fd(id)
                    .and_then(|fd| kernel::pread(fd.number(), &mut page[..want], at)),
            };
            match read {
                Ok(read) => self.note_page(id, number, &page[..read]),
                // Opened before the program gave up the right to read it: to append, nothing of it need be known.
                Err(Errno::ACCESS)
                    if number == size / PAGE as u64 && self.appender(id).is_some() =>
                {
                    unread = Some(number);
                }
                Err(errno) => return Err(errno),
            }
        }
        if let Data::Pages(pages) = &mut self.tree.nodes[id].data {
            pages.pages.insert(number, page);
            pages.unread = unread.or(pages.unread);
        }
        Ok(())
    }

    /// Fetches the old bytes of a page that could not be read when it was made private.
    fn fill_unread(&mut self, id: Id) -> Sys<()> {
        let node = &self.tree.nodes[id];
        let (Data::Pages(pages), Some(stable)) = (&node.data, &node.stable) else { return Ok(()) };
        let Some(number) = pages.unread else { return Ok(()) };
        let (at, size, written) = (number * PAGE as u64, stable.stat.size, pages.pieces());
        let mut page = [0u8; PAGE];
        let want = usize::try_from(size.saturating_sub(at)).unwrap_or(PAGE).min(PAGE);
        let read = kernel::pread(self.stable_fd(id)?.number(), &mut page[..want], at)?;
        self.note_page(id, number, &page[..read]);
        let Data::Pages(pages) = &mut self.tree.nodes[id].data else { return Err(Errno::IO) };
        for (from, bytes) in &written {
            for (byte, place) in bytes.iter().zip(*from..) {
                if let Some(kept) = place.checked_sub(at).and_then(|i| page.get_mut(i as usize)) {
                    *kept = *byte;
                }
            }
        }
        pages.unread = None;
        if let Some(private) = pages.pages.get_mut(&number) {
            **private = page;
        }
        Ok(())
    }

    /// A descriptor from which a stable file can be read.
    fn stable_fd(&mut self, id: Id) -> Sys<OwnedFd> {
        if let Some(fd) = self.readable_descriptor(id) {
            return Ok(OwnedFd::of(fd));
        }
        let path = self.tree.nodes[id].stable.as_ref().map(|s| s.path.clone()).unwrap_or_default();
        // Whether it may be read was judged when it was opened.
        let open = || kernel::open_file_at(libc::AT_FDCWD, &path, libc::O_CLOEXEC);
        let fd = OwnedFd::of(kernel::as_owner(open)?);
        if !self.tree.is_same_file(id, fd.number()) {
            return Err(self.changed_outside(&path, "it was replaced by another file"));
        }
        Ok(fd)
    }

    /// Reads from a file that has private pages.
    ///
    /// # Errors
    /// As `pread(2)`; the transaction is doomed.
    pub fn read_pages(&mut self, id: Id, out: Writable, at: u64) -> Sys<usize> {
        self.fill_unread(id)?;
        let Data::Pages(pages) = &self.tree.nodes[id].data else { return Err(Errno::IO) };
        let size = pages.size;
        if at >= size {
            return Ok(0);
        }
        let len = out.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
        let out = out.first(len);
        if len == 0 {
            return Ok(0);
        }
        let (first, last) = (at / PAGE as u64, (at + len as u64 - 1) / PAGE as u64);
        let all_private = (first..=last).all(|n| pages.pages.contains_key(&n));
        if !all_private {
            self.touch_pages(id, at, len as u64)?;
            out.clear();
            let fd = self.stable_fd(id)?;
            let mut done = 0;
            while done < len {
                match kernel::pread_to(fd.number(), out, done, at + done as u64)? {
                    0 => break,
                    n => done += n,
                }
            }
        }
        let Data::Pages(pages) = &self.tree.nodes[id].data else { return Err(Errno::IO) };
        for (number, page) in pages.pages.range(first..=last) {
            let start = number * PAGE as u64;
            let (from, to) = (start.max(at), (start + PAGE as u64).min(at + len as u64));
            let bytes = &page[(from - start) as usize..(to - start) as usize];
            out.write((from - at) as usize, bytes);
        }
        Ok(len)
    }

    /// Makes pages private with what was written to them before the transaction was kept.
    ///
    /// # Errors
    /// As [`Tx::write_pages`].
    pub fn take_up_pages(
        &mut self,
        id: Id,
        writes: &[(u64, Vec<u8>)],
        size: Option<u64>,
    ) -> Sys<()> {
        let was = self.tree.nodes[id].stat.size;
        for (at, bytes) in writes.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let end = at + bytes.len() as u64;
            self.acquire_pages(id, *at, end)?;
            for number in at / PAGE as u64..=(end - 1) / PAGE as u64 {
                self.private_page(id, number, false)?;
            }
            let Data::Pages(pages) = &mut self.tree.nodes[id].data else { return Err(Errno::IO) };
            for (byte, place) in bytes.iter().zip(*at..) {
                if let Some(page) = pages.pages.get_mut(&(place / PAGE as u64)) {
                    page[(place % PAGE as u64) as usize] = *byte;
                }
            }
            pages.writes.push((*at, end));
            pages.size = pages.size.max(end);
        }
        if matches!(self.tree.nodes[id].data, Data::Stable) {
            self.tree.nodes[id].data =
                Data::Pages(Box::new(Pages { size: was, ..Pages::default() }));
        }
        let Data::Pages(pages) = &mut self.tree.nodes[id].data else { return Err(Errno::IO) };
        pages.size = size.unwrap_or(pages.size);
        let size = pages.size;
        self.written(id);
        self.tree.nodes[id].stat.size = size;
        Ok(())
    }

    /// A file's content changed: times, set-id bits.
    pub fn written(&mut self, id: Id) {
        let node = &mut self.tree.nodes[id];
        let at = now_after(node.stat.ctime);
        (node.stat.mtime, node.stat.ctime) = (at, at);
        node.changed &= !changed::MTIME;
        self.drop_set_id(id);
    }

    /// What a program is given by its file goes with the first byte that is written to it. (Of a private copy the kernel
    /// itself takes it.)
    pub(super) fn drop_capabilities(&mut self, id: Id) -> Sys<()> {
        let node = &self.tree.nodes[id];
        let known = node.xattrs.as_ref().map(|xattrs| xattrs.contains_key(CAPABILITY));
        let has = match (known, &node.stable) {
            (Some(has), _) => has,
            (None, Some(stable)) => {
                let path = stable.path.clone();
                self.tree
                    .ask(id, &path, |path| kernel::xattr(path, CAPABILITY))
                    .ok()
                    .flatten()
                    .is_some()
            }
            (None, None) => false,
        };
        if !has {
            return Ok(());
        }
        let mut xattrs = self.all_xattrs(id)?;
        xattrs.remove(CAPABILITY);
        let node = &mut self.tree.nodes[id];
        node.xattrs = Some(xattrs);
        node.changed |= changed::XATTRS;
        Ok(())
    }

    /// What a change of the content takes away.
    pub fn drop_set_id(&mut self, id: Id) {
        let mode = self.tree.nodes[id].stat.mode;
        if mode & (libc::S_ISUID | libc::S_ISGID) != 0 && !self.process.cred().keeps_setid() {
            let node = &mut self.tree.nodes[id];
            let mut new = mode & !libc::S_ISUID;
            if mode & libc::S_IXGRP != 0 {
                new &= !libc::S_ISGID;
            }
            if new != mode {
                node.stat.mode = new;
                node.changed |= changed::MODE;
            }
        }
    }
}

/// The extended attributes of an object of the stable tree.
pub fn xattrs_at(path: &[u8]) -> Sys<Xattrs> {
    let mut out = Xattrs::new();
    let names = match kernel::xattr_names(path) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP) => return Ok(out),
        Err(e) => return Err(e),
    };
    for name in names {
        if let Ok(Some(value)) = kernel::xattr(path, &name) {
            out.insert(name, value);
        }
    }
    Ok(out)
}

impl ShadowTree {
    /// Whether a write can be kept as pages in memory.
    fn fits_in_pages(&self, id: Id, at: u64, len: usize) -> bool {
        let node = &self.nodes[id];
        let Some(stable) = &node.stable else { return false };
        let (held, size) = match &node.data {
            Data::Stable => (0, stable.stat.size),
            Data::Pages(pages) => (pages.pages.len(), pages.size),
            Data::Whole(_) => return false,
        };
        let far = at > size.saturating_add(PAGE as u64 * 4);
        !far && held + len / PAGE + 2 <= PAGES_MAX && node.kind() == FileKind::File
    }

    /// The path at which the kernel finds an object's attributes and content now: its private copy,
    /// or the stable object.
    #[must_use]
    pub fn real_path(&self, id: Id) -> Option<Vec<u8>> {
        let node = &self.nodes[id];
        match (&node.data, &node.stable) {
            (Data::Whole(backing), _) => Some(backing.path.clone()),
            (_, Some(stable)) => Some(stable.path.clone()),
            _ => None,
        }
    }

    /// The canonical path below a directory of the stable tree.
    #[must_use]
    pub fn below(&self, dir: Id, name: &[u8]) -> Option<Vec<u8>> {
        self.nodes[dir].stable.as_ref().map(|s| join(&s.path, name))
    }
}
