//! A transaction that was kept is taken up again, for one more command in it: what its commands have changed becomes
//! shadow objects, as if this command's process had changed it.
//!
//! The record ([`txos_engine::changeset::record`]) says what comes to which name. Here that is done in four steps, each for
//! all changes, so that none of them meets a name that another one is still to take away:
//!
//! 1. The stable objects that are concerned are found at the names that they have now. One that somebody has changed
//!    since is a conflict.
//! 2. What is moved or goes is taken from its name.
//! 3. What is new or was moved gets its name, from above: its directory may have been one of them. Links come last.
//! 4. Content and attributes of what stays are changed.
//!
//! The private copies are the transaction's own, and are changed from then on. The store has a savepoint of them.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

use txos_engine::changeset::{AttrChange, Delta, What, recorded_deltas};
use txos_engine::object::{FileId, FileKind};
use txos_engine::readset::join;
use txos_engine::version::{Stamp, Version};

use super::content::{Data, xattrs_at};
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::{Id, Map, Name, Node, changed};
use super::staging::failed;
use super::{Failure, Tx, now_after, reason, single_call};

/// Where a change is, in the tree as it is now.
struct Found {
    dir: Id,
    name: Name,
    node: Id,
}

/// The stable objects that a change concerns.
struct Concerned {
    /// What is moved, or changed in place.
    object: Option<Found>,
    /// What goes from its name, because it is removed or something else comes there.
    goes: Option<Found>,
}

/// New objects that have several names among the private copies, by inode.
type Links = Map<FileId, Id>;

impl Tx {
    /// Goes on from what the transaction's commands have recorded.
    ///
    /// # Errors
    /// A conflict if somebody else has changed what they did; why the record or the copies can't be read.
    pub fn take_up(&mut self) -> Result<(), Failure> {
        self.start.first = single_call::First::Over;
        self.start.only_names = false;
        let kept = &self.staging()?.tx;
        let (reads, deltas) = (kept.load_reads(), recorded_deltas(kept));
        let (reads, deltas) = (reads.map_err(failed)?, deltas.map_err(failed)?);
        self.locks.reads = reads;
        self.ready().map_err(|errno| broken(b"/", errno))?;
        let here = kernel::working_directory();
        self.take_up_layers()?;
        let found = self.find_changed(&deltas)?;
        self.take_names_away(&deltas, &found)?;
        let mut dressed = Vec::new();
        self.give_names(&deltas, &found, &mut dressed)?;
        for (delta, found) in deltas.iter().zip(&found) {
            if let Some(object) = &found.object {
                let done = self.change_in_place(delta, object.node);
                done.map_err(|errno| self.not_taken_up(delta, errno))?;
                // What was granted on the way here was so by the rights from before.
                self.tree.forget_permissions(object.node);
            }
        }
        // Names that came have moved the times of new directories.
        for (id, mtime) in dressed {
            self.tree.nodes[id].stat.mtime = mtime;
        }
        self.enter_directory(here)
    }

    /// The command runs in the directory that its working directory's path leads to in the transaction, or in the one that
    /// was asked for.
    fn enter_directory(&mut self, here: Sys<Vec<u8>>) -> Result<(), Failure> {
        let asked = super::staging::asked_directory();
        let Some(path) = asked.clone().or(here.ok()) else { return Ok(()) };
        let is_kernels = |tx: &Tx, id: Id| {
            let real = kernel::statx(libc::AT_FDCWD, b".", 0).map(|stat| stat.id);
            let stable = tx.tree.nodes[id].stable.as_ref();
            stable.is_some_and(|stable| Ok(stable.stat.id) == real)
        };
        let entered = self.object(libc::AT_FDCWD, &path, 0).and_then(|object| match object {
            super::attrs::Object::Node(id) if is_kernels(self, id) => {
                self.tree.cwd = Some(id);
                Ok(0)
            }
            // What is not versioned is as the kernel has it.
            super::attrs::Object::Live(_) if asked.is_none() => Ok(0),
            object => self.chdir(object),
        });
        entered.map(drop).map_err(|errno| {
            self.doom.take().unwrap_or_else(|| Failure {
                reason: reason::FAILED,
                errno: errno.raw_os_error(),
                what: format!(
                    "entering the working directory {} in the transaction failed: {}",
                    txos_engine::show::quoted_bytes(&path),
                    std::io::Error::from(errno)
                ),
                ..Failure::default()
            })
        })
    }

    /// Where a change is, for people.
    fn shown(&self, layer: usize, path: &[u8]) -> Vec<u8> {
        let point = self.copies.layers.get(layer).map_or(&b"/"[..], |layer| &layer.point);
        join(point, path)
    }

    /// Somebody else has changed what a command of the transaction had changed, or what is on the way there.
    fn was_changed(&self, layer: usize, path: &[u8]) -> Failure {
        let path = self.shown(layer, path);
        Failure {
            reason: reason::CONFLICT,
            errno: libc::ECANCELED,
            what: format!(
                "{}: it, or the way to it, was changed after the transaction was kept (`txos rebase` runs its commands again)",
                txos_engine::show::quoted_bytes(&path)
            ),
            path,
            ..Failure::default()
        }
    }

    fn not_taken_up(&mut self, delta: &Delta, errno: Errno) -> Failure {
        let path = self.shown(delta.layer, &delta.path);
        self.doom.take().unwrap_or_else(|| broken(&path, errno))
    }

    /// What is at a name now, whoever may look there.
    fn at(&mut self, dir: Id, name: &[u8]) -> Sys<Option<Id>> {
        if self.leads_out(dir, name) && !self.leads_back(dir, name) {
            return Err(Errno::STALE);
        }
        let node = &self.tree.nodes[dir];
        match node.dir()?.entries.get(name) {
            Some(entry) => Ok(entry.now),
            None if node.stable.is_none() => Ok(None),
            None => self.lookup(dir, name),
        }
    }

    /// The directory of a path of a layer, and the name in it; of the layer's root itself that directory and a dot.
    fn place_in_tree(&mut self, layer: usize, path: &[u8]) -> Sys<Option<(Id, Name)>> {
        let point = self.copies.layers.get(layer).ok_or(Errno::IO)?.point.clone();
        let mut dir = self.tree.top;
        let names = [&point, path].into_iter().flat_map(|path| path.split(|&byte| byte == b'/'));
        let mut names = names.filter(|name| !name.is_empty());
        let Some(last) = names.next_back() else { return Ok(Some((dir, (*b".").into()))) };
        for name in names {
            match self.at(dir, name)? {
                Some(next) if self.tree.nodes[next].is_dir() => dir = next,
                _ => return Ok(None),
            }
        }
        Ok(Some((dir, last.into())))
    }

    /// The stable objects that are changed, at their names of now.
    fn find_changed(&mut self, deltas: &[Delta]) -> Result<Vec<Concerned>, Failure> {
        let mut vacated = HashSet::new();
        for delta in deltas {
            if let What::Move { from, .. } = &delta.what {
                vacated.insert((delta.layer, &from[..]));
            }
        }
        let mut all = Vec::with_capacity(deltas.len());
        for delta in deltas {
            let (object, goes) = match &delta.what {
                What::Move { from, source, base } => (Some((from, source)), base.as_ref()),
                What::Put { base, .. } | What::Link { base, .. } => (None, base.as_ref()),
                What::Remove { base } => (None, Some(base)),
                What::Rewrite { base, .. }
                | What::Data { base, .. }
                | What::Patch { base, .. }
                | What::Attrs { base, .. } => (Some((&delta.stable_path, base)), None),
            };
            // What is moved away from there goes by its own change.
            let goes = goes.filter(|_| !vacated.contains(&(delta.layer, &delta.stable_path)));
            let object = object.map(|(path, version)| self.find_one(delta, path, version));
            let goes = goes.map(|version| self.find_one(delta, &delta.stable_path, version));
            all.push(Concerned { object: object.transpose()?, goes: goes.transpose()? });
        }
        Ok(all)
    }

    fn find_one(
        &mut self,
        delta: &Delta,
        path: &[u8],
        version: &Version,
    ) -> Result<Found, Failure> {
        let found = self.place_in_tree(delta.layer, path).and_then(|place| {
            let Some((dir, name)) = place else { return Ok(None) };
            let node = if &name[..] == b"." { Some(dir) } else { self.at(dir, &name)? };
            Ok(node.map(|node| Found { dir, name, node }))
        });
        let found = match found {
            Ok(found) => found,
            Err(Errno::STALE | Errno::NOTDIR | Errno::NOENT) => None,
            Err(errno) => return Err(self.not_taken_up(delta, errno)),
        };
        let is_it = |found: &Found| {
            let stable = self.tree.nodes[found.node].stable.as_ref();
            stable.is_some_and(|stable| is_still(&stable.stat.version(), version))
        };
        found.filter(is_it).ok_or_else(|| self.was_changed(delta.layer, path))
    }

    /// What is moved, replaced or removed goes from its name.
    fn take_names_away(&mut self, deltas: &[Delta], found: &[Concerned]) -> Result<(), Failure> {
        for (delta, found) in deltas.iter().zip(found) {
            if let (What::Move { .. }, Some(found)) = (&delta.what, &found.object) {
                let moved = self.move_away(found);
                moved.map_err(|errno| self.not_taken_up(delta, errno))?;
            }
        }
        for (delta, found) in deltas.iter().zip(found) {
            if let Some(found) = &found.goes {
                let taken = self
                    .take_links_away(found.node)
                    .and_then(|()| self.tree.take_away(found.dir, &found.name, found.node));
                taken.map_err(|errno| self.not_taken_up(delta, errno))?;
            }
        }
        Ok(())
    }

    /// Files below a removed directory that have names elsewhere have one less.
    fn take_links_away(&mut self, removed: Id) -> Sys<()> {
        if !self.tree.nodes[removed].is_dir() {
            return Ok(());
        }
        let names = match self.stable_names(removed) {
            // Who removed it did not list it either.
            Err(Errno::ACCESS) => return Ok(()),
            names => names?,
        };
        for listed in names {
            let Some(node) = self.at(removed, &listed.name)? else { continue };
            if self.tree.nodes[node].is_dir() {
                self.take_links_away(node)?;
            } else if self.tree.nodes[node].stat.nlink > 1 {
                self.tree.take_away(removed, &listed.name, node)?;
            }
        }
        Ok(())
    }

    fn move_away(&mut self, found: &Found) -> Sys<()> {
        self.tree.set_entry(found.dir, &found.name, None)?;
        self.tree.stamp_dir(found.dir);
        let node = &mut self.tree.nodes[found.node];
        node.names.retain(|(dir, name)| !(*dir == found.dir && *name == found.name));
        node.stat.ctime = now_after(node.stat.ctime);
        let is_dir = node.is_dir();
        let parent = &mut self.tree.nodes[found.dir].stat;
        if is_dir && parent.nlink > 2 {
            parent.nlink -= 1;
        }
        Ok(())
    }

    /// What is new or was moved gets its name in the finished tree, from above; links of what is there get theirs last.
    /// Notes new directories with the times that they have.
    fn give_names(
        &mut self,
        deltas: &[Delta],
        found: &[Concerned],
        dressed: &mut Vec<(Id, Stamp)>,
    ) -> Result<(), Failure> {
        let depth = |delta: &Delta| delta.path.iter().filter(|&&byte| byte == b'/').count();
        let mut order: Vec<usize> = (0..deltas.len()).collect();
        order.sort_by_key(|&at| (matches!(deltas[at].what, What::Link { .. }), depth(&deltas[at])));
        let mut links = Links::default();
        for (delta, found) in deltas.iter().zip(found) {
            // A changed file's new names are links of its private copy.
            let linked = self.linked_copy(delta);
            let linked = linked.map_err(|errno| self.not_taken_up(delta, errno))?;
            if let (Some(copy), Some(found)) = (linked, &found.object) {
                links.insert(copy, found.node);
            }
        }
        for at in order {
            let (delta, found) = (&deltas[at], found[at].object.as_ref());
            let given = self.give_name(delta, found, &mut links, dressed);
            match given {
                Ok(true) => {}
                Ok(false) => return Err(self.was_changed(delta.layer, &delta.path)),
                Err(errno) => return Err(self.not_taken_up(delta, errno)),
            }
        }
        Ok(())
    }

    /// The private copy of a changed file, if that has several names.
    fn linked_copy(&self, delta: &Delta) -> Sys<Option<FileId>> {
        let (What::Rewrite { staged, .. } | What::Data { staged, .. }) = &delta.what else {
            return Ok(None);
        };
        let copy = kernel::look(&self.private_place(delta.layer, staged)?)?;
        Ok((copy.nlink > 1).then_some(copy.id))
    }

    /// `false` if there is no such place, or something at that name.
    fn give_name(
        &mut self,
        delta: &Delta,
        found: Option<&Found>,
        links: &mut Links,
        dressed: &mut Vec<(Id, Stamp)>,
    ) -> Sys<bool> {
        if !matches!(delta.what, What::Put { .. } | What::Move { .. } | What::Link { .. }) {
            return Ok(true);
        }
        let Some((dir, name)) = self.place_in_tree(delta.layer, &delta.path)? else {
            return Ok(false);
        };
        if self.at(dir, &name)?.is_some() {
            return Ok(false);
        }
        let node = match &delta.what {
            What::Put { staged, .. } => {
                let path = self.private_place(delta.layer, staged)?;
                self.take_up_new(delta.layer, (dir, false), path, links, dressed)?
            }
            What::Link { to, .. } => {
                let Some((to, other)) = self.place_in_tree(delta.layer, to)? else {
                    return Ok(false);
                };
                let Some(node) = self.at(to, &other)? else { return Ok(false) };
                self.tree.nodes[node].stat.nlink += 1;
                node
            }
            _ => match found {
                Some(found) => found.node,
                None => return Ok(false),
            },
        };
        self.tree.put(dir, &name, node)?;
        self.count_directory(dir, node);
        Ok(true)
    }

    /// A directory has come into another one.
    fn count_directory(&mut self, dir: Id, node: Id) {
        let is_dir = self.tree.nodes[node].is_dir();
        let parent = &mut self.tree.nodes[dir].stat;
        if is_dir && parent.nlink > 1 {
            parent.nlink += 1;
        }
    }

    /// The path of a private copy.
    fn private_place(&self, layer: usize, staged: &[u8]) -> Sys<Vec<u8>> {
        let dir = self.copies.layers.get(layer).and_then(|layer| layer.dir.as_ref());
        dir.map(|dir| join(dir, staged)).ok_or(Errno::IO)
    }

    /// The node of a new object, by its private copy: everything in it as well, if it is a directory. The copies are
    /// what they are while a command runs: each directory in a place of its own, files in it, and nothing else made
    /// yet.
    fn take_up_new(
        &mut self,
        layer: usize,
        (dir, is_inside): (Id, bool),
        mut path: Vec<u8>,
        links: &mut Links,
        dressed: &mut Vec<(Id, Stamp)>,
    ) -> Sys<Id> {
        let mut stat = kernel::look(&path)?;
        let parent = self.tree.nodes[dir].stat;
        (stat.mnt, stat.id.dev) = (parent.mnt, parent.id.dev);
        let kind = stat.kind();
        if kind != FileKind::Dir
            && let Some(&known) = links.get(&stat.id)
        {
            // Its names are made links of each other anew when it is recorded.
            kernel::unlink(&path)?;
            self.tree.nodes[known].stat.nlink += 1;
            return Ok(known);
        }
        let xattrs = xattrs_at(&path)?;
        if kind == FileKind::Dir {
            // As it was before it was dressed for the record: what is made in it is not to inherit anything, and it is
            // dressed again with what it has then. (What the system gives by itself may stay.)
            for name in xattrs.keys() {
                let _ = kernel::remove_xattr(&path, name);
            }
            kernel::chmod(&path, 0o700)?;
            if is_inside {
                let (_, place) = self.staged_path(parent.mnt)?;
                kernel::rename(&path, &place)?;
                path = place;
            }
        }
        let (own_link, several) = (stat.id, stat.nlink > 1);
        stat.nlink = match kind {
            FileKind::Dir if parent.nlink > 1 => 2,
            _ => 1,
        };
        let mut node = Node::new(stat, None);
        node.xattrs = Some(xattrs);
        match kind {
            FileKind::File => node.data = Data::copy_at(path.clone(), layer),
            FileKind::Symlink => {
                node.target = Some(kernel::read_link(libc::AT_FDCWD, &path)?);
            }
            FileKind::Dir => node.dir_mut()?.staged = Some(path.clone()),
            _ => {}
        }
        let id = self.tree.add(node);
        if kind != FileKind::Dir {
            if several {
                links.insert(own_link, id);
            }
            if kind != FileKind::File {
                kernel::unlink(&path)?;
            }
            return Ok(id);
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let names = kernel::list(OwnedFd::open(&path, flags)?.number())?;
        for name in names.into_iter().map(|entry| entry.name) {
            if matches!(&name[..], b"." | b"..") {
                continue;
            }
            let inside = self.take_up_new(layer, (id, true), join(&path, &name), links, dressed)?;
            self.tree.put(id, &name, inside)?;
            self.count_directory(id, inside);
        }
        dressed.push((id, stat.mtime));
        Ok(id)
    }

    /// Content and attributes of a stable object.
    fn change_in_place(&mut self, delta: &Delta, id: Id) -> Sys<()> {
        match &delta.what {
            What::Rewrite { staged, .. } => {
                let path = self.private_place(delta.layer, staged)?;
                self.take_up_copy(delta.layer, id, path)
            }
            What::Data { staged, attrs, .. } => {
                let path = self.private_place(delta.layer, staged)?;
                self.take_up_copy(delta.layer, id, path)?;
                self.tree.nodes[id].kept = true;
                self.take_up_attributes(id, attrs)
            }
            What::Patch { writes, size, attrs, .. } => {
                self.take_up_pages(id, writes, *size)?;
                self.take_up_attributes(id, attrs)
            }
            What::Attrs { change, .. } => self.take_up_attributes(id, change),
            What::Put { .. } | What::Remove { .. } | What::Move { .. } | What::Link { .. } => {
                Ok(())
            }
        }
    }

    /// A changed copy of a stable file, with the attributes that it has.
    fn take_up_copy(&mut self, layer: usize, id: Id, path: Vec<u8>) -> Sys<()> {
        let (copy, xattrs) = (kernel::look(&path)?, xattrs_at(&path)?);
        let was = self.tree.nodes[id].stat;
        let before = self.all_xattrs(id)?;
        let node = &mut self.tree.nodes[id];
        if copy.mode != was.mode {
            node.changed |= changed::MODE;
        }
        if (copy.uid, copy.gid) != (was.uid, was.gid) {
            node.changed |= changed::OWNER;
        }
        if xattrs != before {
            node.changed |= changed::XATTRS;
        }
        let stat = &mut node.stat;
        (stat.mode, stat.uid, stat.gid) = (copy.mode, copy.uid, copy.gid);
        (stat.mtime, stat.ctime) = (copy.mtime, now_after(stat.ctime));
        node.xattrs = Some(xattrs);
        node.data = Data::copy_at(path, layer);
        Ok(())
    }

    fn take_up_attributes(&mut self, id: Id, change: &AttrChange) -> Sys<()> {
        if !change.xattrs.is_empty() {
            let mut xattrs = self.all_xattrs(id)?;
            for one in &change.xattrs {
                match &one.new {
                    Some(value) => xattrs.insert(one.name.clone(), value.clone()),
                    None => xattrs.remove(&one.name),
                };
            }
            let node = &mut self.tree.nodes[id];
            node.xattrs = Some(xattrs);
            node.changed |= changed::XATTRS;
        }
        let node = &mut self.tree.nodes[id];
        if let Some((_, mode)) = change.mode {
            node.stat.mode = node.stat.mode & !0o7777 | mode & 0o7777;
            node.changed |= changed::MODE;
        }
        if let Some((_, owner)) = change.owner {
            (node.stat.uid, node.stat.gid) = owner;
            node.changed |= changed::OWNER;
        }
        match change.mtime {
            // Names came and went in it.
            Some((_, Stamp::PRESENT)) => {
                node.stat.mtime = now_after(node.stat.ctime);
                node.changed |= changed::NAMES_MTIME;
            }
            Some((_, mtime)) => {
                node.stat.mtime = mtime;
                node.changed |= changed::MTIME;
            }
            None => {}
        }
        node.stat.ctime = now_after(node.stat.ctime);
        Ok(())
    }
}

/// Whether an object is what it was. Names that come and go in a directory are its entries' changes, not its own, and what
/// passes through a FIFO or a device is none of it.
fn is_still(now: &Version, then: &Version) -> bool {
    match now.kind() {
        FileKind::Dir => now.id == then.id,
        _ if now.is_passage() => now.same_owner_and_mode(then) && now.nlink == then.nlink,
        _ => now.id == then.id && now.ctime == then.ctime,
    }
}

fn broken(path: &[u8], errno: Errno) -> Failure {
    Failure {
        reason: reason::FAILED,
        errno: errno.raw_os_error(),
        what: format!(
            "{}: going on with what was kept failed: {}",
            std::path::Path::new(std::ffi::OsStr::from_bytes(path)).display(),
            std::io::Error::from(errno)
        ),
        ..Failure::default()
    }
}
