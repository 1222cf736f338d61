//! What the transaction changed, for the engine: names first, then what stays in place.

use txos_engine::changeset::{AttrChange, Attrs, Delta, What, XattrChange};
use txos_engine::object::FileKind;
use txos_engine::readset::join;
use txos_engine::version::{Stamp, Version};

use super::Tx;
use super::content::Data;
use super::files::Descriptor;
use super::kernel::{self, Errno, Sys};
use super::node::{Entry, Id, Map, Name, Node, Xattrs, changed};
use super::perm::mask;
use super::tree::ShadowTree;

/// A name of a directory.
pub type Spot = (Id, Name);

/// Names of stable objects that are new, by object; and those that are gone of the same objects: of one that has only lost
/// names, nothing moved.
#[derive(Debug, Default)]
struct Turns {
    lost: Map<Id, Vec<Spot>>,
    gained: Map<Id, Vec<Spot>>,
}

/// A stable object that the transaction has changed, and that has other names than those that the
/// transaction knew and took away. They see the change.
#[derive(Debug)]
pub struct Nameless {
    /// It.
    pub id: Id,
    /// A stable name of it.
    pub was: Spot,
    /// A descriptor of its inode.
    pub inode: Option<i32>,
}

impl Tx {
    /// Changed objects of which no known name is left, though they have others; and the first of those that
    /// no path leads to.
    ///
    /// # Errors
    /// The last name of one that can't be found.
    pub fn find_nameless(&mut self) -> Result<(), Vec<u8>> {
        for id in 0..self.tree.nodes.len() {
            let node = &self.tree.nodes[id];
            let Some(stable) = &node.stable else { continue };
            let written = match &node.data {
                Data::Stable => false,
                Data::Pages(_) => true,
                Data::Whole(backing) => !backing.is_untouched(),
            };
            let changed = written || node.changed != 0;
            let lives = node.stat.nlink > 0 && stable.stat.nlink > 1 && !node.is_dir();
            if node.live || !node.names.is_empty() || !changed || !lives {
                continue;
            }
            let (expected, kept) = (stable.stat.id, node.kept);
            let Some(last) = node.last_name.clone() else { continue };
            let Some(was) = self.tree.lost_name(id) else {
                // By a descriptor from before it is changed all the same.
                if kept {
                    continue;
                }
                return Err(last);
            };
            let inode = self
                .tree
                .below(was.0, &was.1)
                .and_then(|path| {
                    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
                    kernel::open(&path, flags, 0).and_then(kernel::move_high).ok()
                })
                .inspect(|&fd| self.fds.private.extend([fd]));
            let is_it = |&fd: &i32| kernel::look_fd(fd).is_ok_and(|now| now.id == expected);
            let inode = inode.filter(is_it);
            self.tree.nameless.push(Nameless { id, was, inode });
        }
        Ok(())
    }

    /// Everything to be published. New directories are put together among the private copies.
    ///
    /// # Errors
    /// As the system calls that it takes.
    pub fn deltas(&mut self) -> Sys<Vec<Delta>> {
        self.tree.find_unwritten();
        self.find_open_files();
        self.find_unchangeable();
        let spots = self.tree.changed_spots();
        let mut turns = Turns::default();
        for (dir, name, now, _) in &spots {
            if let Some(now) = now.filter(|&now| self.tree.nodes[now].stable.is_some()) {
                turns.gained.entry(now).or_default().push((*dir, name.clone()));
            }
        }
        for (dir, name, _, base) in &spots {
            if let Some(base) = base.filter(|base| turns.gained.contains_key(base)) {
                turns.lost.entry(base).or_default().push((*dir, name.clone()));
            }
        }
        let new = self.build_new_directories()?;
        let mut out = Vec::with_capacity(spots.len());
        for (dir, name, now, base) in &spots {
            if let Some(what) = self.name_change(*dir, name, *now, *base, &turns)? {
                out.push(self.delta(*dir, name, what)?);
            }
        }
        // Changed copies of older files were put into them by now.
        self.dress_directories(&new)?;
        self.tree.find_kept_times();
        for id in 0..self.tree.nodes.len() {
            self.in_place(id, &turns, &mut out)?;
        }
        Ok(out)
    }

    /// Files that this process has open since before the transaction, and that it has not touched by
    /// that descriptor: their inodes stay as well.
    fn find_open_files(&mut self) {
        if !self.tree.nodes.iter().any(|n| n.stable.is_some() && n.data.whole().is_some()) {
            return;
        }
        for number in kernel::open_numbers().unwrap_or_default() {
            let before = match self.fds.descriptor(number) {
                Descriptor::Untouched => !self.fds.private.contains(&number),
                Descriptor::Closed => false,
                Descriptor::Open { over, .. } => over,
            };
            if before
                && let Ok(stat) = kernel::look_fd(number)
                && let Some(&id) = self.tree.by_id.get(&(stat.id, stat.mnt))
            {
                self.tree.nodes[id].kept = true;
            }
        }
    }

    /// Files in directories whose names this user may not change: what is written to them is written
    /// into the inode.
    fn find_unchangeable(&mut self) {
        for id in 0..self.tree.nodes.len() {
            if self.tree.nodes[id].stable.is_none() || self.tree.nodes[id].data.whole().is_none() {
                continue;
            }
            if let Some((dir, _)) = self.tree.kept_name(id)
                && self.may_change_names(dir).is_err()
            {
                self.tree.nodes[id].kept = true;
            }
        }
    }

    /// What is to be done about one name.
    fn name_change(
        &mut self,
        dir: Id,
        name: &Name,
        now: Option<Id>,
        base: Option<Id>,
        turns: &Turns,
    ) -> Sys<Option<What>> {
        let base_version = base.and_then(|id| self.tree.version(id));
        let in_new = self.tree.is_in_new(dir);
        let Some(id) = now else {
            // Something else, or something moved from here.
            let Some(base) = base else { return Ok(None) };
            let (lost, gained) = self.tree.moves(base, turns);
            let moved = lost.iter().take(gained.len()).any(|m| m.0 == dir && m.1 == *name);
            if moved || self.tree.is_gone(dir) {
                return Ok(None);
            }
            return Ok(base_version.map(|base| What::Remove { base }));
        };
        if self.tree.nodes[id].stable.is_none() {
            if in_new {
                // It is in its directory's place already.
                return Ok(None);
            }
            let staged = self.staged_place(id, dir, name)?;
            return Ok(Some(What::Put { staged, base: base_version }));
        }
        if self.tree.is_replaced(id) {
            if in_new {
                self.place_content_in(id, dir, name)?;
                return Ok(None);
            }
            let staged = self.staged_place(id, dir, name)?;
            return Ok(Some(What::Put { staged, base: base_version }));
        }
        let (lost, gained) = self.tree.moves(id, turns);
        let place = gained.iter().position(|g| g.0 == dir && g.1 == *name).ok_or(Errno::IO)?;
        if let Some(home) = lost.get(place) {
            let from = self.stable_spot(home.0, &home.1)?;
            let source = self.tree.version(id).ok_or(Errno::IO)?;
            return Ok(Some(What::Move { from, source, base: base_version }));
        }
        // One more name of it: beside one that it has kept, or the first that it was moved to.
        let other = self.tree.kept_name(id).or_else(|| gained.first().cloned()).ok_or(Errno::IO)?;
        let (_, to) = self.spot_path(other.0, &other.1)?;
        Ok(Some(What::Link { to, base: base_version }))
    }

    /// A changed name as the engine is told of it.
    fn delta(&mut self, dir: Id, name: &[u8], what: What) -> Sys<Delta> {
        let (layer, path) = self.spot_path(dir, name)?;
        let stable_path = match self.tree.nodes[dir].stable.is_some() {
            true => self.stable_spot(dir, name)?,
            false => path.clone(),
        };
        Ok(Delta { layer, path, stable_path, nameless: false, what })
    }

    /// Layer, and path in the finished tree.
    fn spot_path(&mut self, dir: Id, name: &[u8]) -> Sys<(usize, Vec<u8>)> {
        if self.tree.is_gone(dir) {
            return Err(Errno::IO);
        }
        let path = join(&self.tree.path_of(dir), name);
        let layer = self.layer(self.tree.nodes[dir].stat.mnt)?;
        Ok((layer, self.copies.relative(layer, &path)))
    }

    /// Path in the tree as it is now.
    fn stable_spot(&mut self, dir: Id, name: &[u8]) -> Sys<Vec<u8>> {
        let layer = self.layer(self.tree.nodes[dir].stat.mnt)?;
        let path = self.tree.below(dir, name).ok_or(Errno::IO)?;
        Ok(self.copies.relative(layer, &path))
    }

    /// The private copy that is put at a name of a stable directory. A second name of one object is
    /// another link of it among the copies.
    fn staged_place(&mut self, id: Id, dir: Id, name: &[u8]) -> Sys<Vec<u8>> {
        let mnt = self.tree.nodes[dir].stat.mnt;
        let layer = self.layer(mnt)?;
        let first = self.tree.first_put(id);
        let path = if self.tree.nodes[id].is_dir() {
            self.staged_dir(id)?.1
        } else if first.as_ref().is_some_and(|f| f.0 == dir && f.1[..] == *name) {
            self.own_copy(id)?
        } else {
            let source = self.own_copy(id)?;
            let (_, place) = self.staged_path(mnt)?;
            kernel::link(&source, &place)?;
            place
        };
        Ok(self.copies.staged(layer, &path))
    }

    /// The place of an object's private copy; made for those that had none: links, nodes.
    ///
    /// # Errors
    /// As the system calls that make it.
    pub fn own_copy(&mut self, id: Id) -> Sys<Vec<u8>> {
        if let Some(backing) = self.tree.nodes[id].data.whole() {
            return Ok(backing.path.clone());
        }
        if let Some(place) = self.tree.made.get(&id).cloned() {
            kernel::as_owner(|| self.tree.dress(id, &place))?;
            return Ok(place);
        }
        let (_, place) = self.staged_path(self.tree.nodes[id].stat.mnt)?;
        kernel::as_owner(|| self.tree.make_at(id, &place))?;
        self.tree.made.insert(id, place.clone());
        Ok(place)
    }

    /// Puts everything that is in new directories where it belongs among the private copies. Gives the
    /// directories, deepest first.
    fn build_new_directories(&mut self) -> Sys<Vec<Id>> {
        let new: Vec<Id> = (0..self.tree.nodes.len())
            .filter(|&id| {
                let node = &self.tree.nodes[id];
                node.is_dir() && node.stable.is_none() && !node.live && !self.tree.is_gone(id)
            })
            .collect();
        for &id in &new {
            self.staged_dir(id)?;
        }
        self.clear_places(&new)?;
        for &id in &new {
            self.fill_directory(id)?;
        }
        // Deepest first: each is still in its own place when it is moved into the one above.
        let depth = |tx: &Tx, id: Id| tx.tree.path_of(id).iter().filter(|&&b| b == b'/').count();
        let mut by_depth: Vec<(usize, Id)> = new.iter().map(|&id| (depth(self, id), id)).collect();
        by_depth.sort_unstable_by(|a, b| b.cmp(a));
        for &(_, id) in &by_depth {
            let (_, place) = self.staged_dir(id)?;
            let Some((parent, name)) = self.tree.nodes[id].names.first().cloned() else { continue };
            if self.tree.is_in_new(parent) {
                let (_, above) = self.staged_dir(parent)?;
                let target = join(&above, &name);
                kernel::rename(&place, &target)?;
                self.tree.nodes[id].dir_mut()?.staged = Some(target);
            }
        }
        Ok(by_depth.into_iter().map(|(_, id)| id).collect())
    }

    /// Attributes of new directories, deepest first, by their final places. Times come last of all.
    fn dress_directories(&mut self, new: &[Id]) -> Sys<()> {
        for &id in new {
            let place = self.final_place(id)?;
            self.tree.dress(id, &place)?;
        }
        Ok(())
    }

    /// Where a new directory is when all are put together.
    fn final_place(&mut self, id: Id) -> Sys<Vec<u8>> {
        match self.tree.nodes[id].names.first().cloned() {
            Some((parent, name)) if self.tree.is_in_new(parent) => {
                Ok(join(&self.final_place(parent)?, &name))
            }
            _ => Ok(self.staged_dir(id)?.1),
        }
    }

    /// Takes private copies out of new directories that are not to be there under that name.
    fn clear_places(&mut self, new: &[Id]) -> Sys<()> {
        let mut wanted: Map<Vec<u8>, ()> = Map::default();
        let mut dirs = Vec::new();
        for &dir in new {
            dirs.push(self.staged_dir(dir)?.1);
        }
        for id in 0..self.tree.nodes.len() {
            let Some(backing) = self.tree.nodes[id].data.whole() else { continue };
            let path = backing.path.clone();
            let in_dir = txos_engine::readset::split(&path)
                .is_some_and(|(dir, _)| dirs.iter().any(|d| d == dir));
            if !in_dir {
                continue;
            }
            let right = self.tree.nodes[id].names.iter().any(|(dir, name)| {
                self.tree.is_in_new(*dir)
                    && self.tree.nodes[*dir]
                        .dir()
                        .ok()
                        .and_then(|d| d.staged.as_ref())
                        .is_some_and(|d| join(d, name) == path)
            });
            if right {
                wanted.insert(path, ());
                continue;
            }
            if self.tree.nodes[id].names.is_empty() {
                kernel::unlink(&path)?;
                // Something else takes its place.
                if let Data::Whole(backing) = &mut self.tree.nodes[id].data {
                    backing.path.clear();
                }
                continue;
            }
            let (layer, place) = self.staged_path(self.tree.nodes[id].stat.mnt)?;
            kernel::rename(&path, &place)?;
            if let Data::Whole(backing) = &mut self.tree.nodes[id].data {
                (backing.layer, backing.path) = (layer, place);
            }
        }
        Ok(())
    }

    /// Files, links and nodes of one new directory.
    fn fill_directory(&mut self, dir: Id) -> Sys<()> {
        let (_, top) = self.staged_dir(dir)?;
        let entries: Vec<(Name, Id)> = self.tree.nodes[dir]
            .dir()?
            .entries
            .iter()
            .filter_map(|(name, e)| e.now.map(|id| (name.clone(), id)))
            .collect();
        for (name, id) in entries {
            let node = &self.tree.nodes[id];
            if node.is_dir() || (node.stable.is_some() && !self.tree.is_replaced(id)) {
                // Directories follow; what is stable is moved or linked by the engine.
                continue;
            }
            let place = join(&top, &name);
            self.place_at(id, dir, &name, &place)?;
        }
        Ok(())
    }

    /// Puts the copy of an object at a name of a new directory.
    fn place_at(&mut self, id: Id, dir: Id, name: &[u8], place: &[u8]) -> Sys<()> {
        let copy = match (self.tree.nodes[id].data.whole(), self.tree.made.get(&id)) {
            (Some(backing), _) => Some(backing.path.clone()),
            (None, Some(made)) => Some(made.clone()),
            (None, None) => None,
        };
        if self.tree.made.contains_key(&id)
            && let Some(made) = &copy
        {
            self.tree.dress(id, made)?;
        }
        // The copy itself goes to the name that is published by it.
        let first = self.tree.first_put(id);
        let only_here = first.is_some_and(|f| f.0 == dir && f.1[..] == *name);
        let copy = match copy {
            Some(copy) => copy,
            None if only_here => {
                self.tree.make_at(id, place)?;
                self.tree.made.insert(id, place.to_vec());
                return Ok(());
            }
            None => self.own_copy(id)?,
        };
        if copy == place {
            return self.keep_outside(id, &copy);
        }
        let lies_in_new = self.tree.lies_in_new(&copy);
        if only_here && !lies_in_new {
            kernel::rename(&copy, place)?;
            if let Data::Whole(backing) = &mut self.tree.nodes[id].data {
                backing.path = place.to_vec();
            } else {
                self.tree.made.insert(id, place.to_vec());
            }
            return Ok(());
        }
        kernel::link(&copy, place)
    }

    /// A copy that lies in a new directory under its name there goes away with the directory when that is
    /// published. What has a name elsewhere as well is published from a link beside it.
    fn keep_outside(&mut self, id: Id, copy: &[u8]) -> Sys<()> {
        if self.tree.first_put(id).is_none_or(|(dir, _)| self.tree.is_in_new(dir)) {
            return Ok(());
        }
        let (layer, place) = self.staged_path(self.tree.nodes[id].stat.mnt)?;
        kernel::link(copy, &place)?;
        if let Data::Whole(backing) = &mut self.tree.nodes[id].data {
            (backing.layer, backing.path) = (layer, place);
        } else {
            self.tree.made.insert(id, place);
        }
        Ok(())
    }

    /// A changed stable file that is put into a new directory.
    fn place_content_in(&mut self, id: Id, dir: Id, name: &[u8]) -> Sys<()> {
        let place = join(&self.final_place(dir)?, name);
        if kernel::look(&place).is_ok() {
            return Ok(());
        }
        let copy = self.own_copy(id)?;
        kernel::link(&copy, &place)
    }

    /// If all that was done to a file is that bytes were put behind its end: a descriptor from before that can do so.
    pub fn only_appends(&self, id: Id) -> Option<i32> {
        let node = &self.tree.nodes[id];
        let (Some(stable), Data::Pages(pages)) = (&node.stable, &node.data) else { return None };
        if !node.kept || node.changed & !(changed::ATIME | changed::MTIME) != 0 {
            return None;
        }
        let appender = self.appender(id)?;
        matches!(&pages.pieces()[..], [(at, bytes)]
            if *at == stable.stat.size && at + bytes.len() as u64 == pages.size)
        .then_some(appender)
    }

    /// A descriptor from before by which a file can be appended to, and only that.
    pub fn appender(&self, id: Id) -> Option<i32> {
        let mut of_file = self.fds.every().filter(|open| open.node == Some(id));
        of_file.find_map(|open| {
            let number = *open.before.first()?;
            let flags = kernel::status_flags(number).ok()?;
            let writes = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
            (writes && flags & (libc::O_APPEND | libc::O_DIRECT) == libc::O_APPEND)
                .then_some(number)
        })
    }

    /// Whether the kernel does not let this user open a file to write to it, as it is now.
    fn may_not_write(&self, node: &Node) -> bool {
        let path = node.stable.as_ref().map(|stable| stable.path.clone());
        path.is_some_and(|path| kernel::access(&path, mask::W) == Err(Errno::ACCESS))
    }

    /// What is changed in an inode that stays.
    fn in_place(&mut self, id: Id, turns: &Turns, out: &mut Vec<Delta>) -> Sys<()> {
        let node = &self.tree.nodes[id];
        let Some(stable) = &node.stable else { return Ok(()) };
        let untouched = node.data.whole().is_some_and(super::content::Backing::is_untouched);
        let content = !matches!(node.data, Data::Stable) && !untouched;
        if node.live || (!content && node.changed & !changed::ATIME == 0) {
            return Ok(());
        }
        let base = stable.stat.version();
        if self.only_appends(id).is_some() && self.may_not_write(&self.tree.nodes[id]) {
            self.tree.nodes[id].appended = true;
            return Ok(());
        }
        let node = &self.tree.nodes[id];
        let nameless = self.tree.nameless.iter().find(|o| o.id == id).map(|o| o.was.clone());
        let is_nameless = nameless.is_some();
        let place = match nameless {
            _ if id == self.tree.top => Some((self.tree.top, (*b".").into())),
            Some(was) => Some(was),
            None => node.names.first().cloned(),
        };
        let Some((dir, name)) = place else { return Ok(()) };
        if self.tree.is_gone(dir) && !is_nameless {
            return Ok(());
        }
        let replaced = self.tree.is_replaced(id);
        let named = self.tree.kept_name(id);
        let (lost, gained) = self.tree.moves(id, turns);
        let moved = lost.first().cloned().filter(|_| named.is_none());
        let (dir, name) = match (&named, gained.first()) {
            (Some(kept), _) => kept.clone(),
            (None, Some(first)) => first.clone(),
            (None, None) => (dir, name),
        };
        if replaced {
            // A kept name gets the copy in exchange; the others were seen to with the names.
            if let Some((dir, name)) = named {
                let staged = self.staged_place(id, dir, &name)?;
                let what = What::Rewrite { staged, base };
                out.push(self.delta(dir, &name, what)?);
            }
            return Ok(());
        }
        let attrs = self.tree.attr_change(id)?;
        let what = match &self.tree.nodes[id].data {
            Data::Whole(backing) if !untouched => {
                let (layer, path) = (backing.layer, backing.path.clone());
                What::Data { staged: self.copies.staged(layer, &path), base, attrs }
            }
            Data::Pages(pages) => {
                let writes = pages.pieces();
                let size = Some(pages.size).filter(|&size| size != base.size);
                What::Patch { base, writes, size, attrs }
            }
            _ if attrs.is_nothing() => return Ok(()),
            _ => What::Attrs { base, change: attrs },
        };
        if id == self.tree.top {
            let layer = self.layer(self.tree.nodes[id].stat.mnt)?;
            let (path, stable_path) = (Vec::new(), Vec::new());
            out.push(Delta { layer, path, stable_path, nameless: false, what });
            return Ok(());
        }
        if is_nameless {
            let stable_path = self.stable_spot(dir, &name)?;
            let layer = self.layer(self.tree.nodes[dir].stat.mnt)?;
            let path = stable_path.clone();
            out.push(Delta { layer, path, stable_path, nameless: true, what });
            return Ok(());
        }
        let (layer, path) = self.spot_path(dir, &name)?;
        let stable_path = match moved {
            Some((dir, name)) => self.stable_spot(dir, &name)?,
            None => self.stable_spot(dir, &name)?,
        };
        out.push(Delta { layer, path, stable_path, nameless: false, what });
        Ok(())
    }
}

impl ShadowTree {
    /// Whether an object is one of those.
    #[must_use]
    pub fn is_nameless(&self, id: Id) -> bool {
        self.nameless.iter().any(|object| object.id == id)
    }

    /// A stable name that an object has lost.
    fn lost_name(&self, id: Id) -> Option<Spot> {
        let lost = self.nodes.iter().enumerate().filter_map(|(dir, node)| {
            let mut entries = node.dir.as_ref()?.entries.iter();
            let (name, _) = entries.find(|(_, e)| e.base == Some(id) && e.now != Some(id))?;
            Some((dir, name.clone()))
        });
        // One, whatever the order of a table.
        lost.min()
    }

    /// Whether anything is to be published.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.nodes.iter().any(|node| {
            let stable = node.stable.is_some() && !node.live;
            // Names that came and went leave the directory's time behind.
            let names = node.dir.as_ref().is_some_and(|d| d.changes > 0);
            let content = !matches!(node.data, Data::Stable);
            stable && (names || content || node.changed & !changed::ATIME != 0)
        })
    }

    /// Files that were mapped to memory for writing, and not written to.
    fn find_unwritten(&mut self) {
        for node in &mut self.nodes {
            let (Data::Whole(backing), Some(stable)) = (&mut node.data, &node.stable) else {
                continue;
            };
            let now = kernel::look(&backing.path).ok().map(|s| s.ctime);
            if backing.mapped.is_some() && now == backing.mapped && backing.is_same_as(&stable.path)
            {
                backing.fresh = now;
            }
        }
    }

    /// Names of stable directories, and of new ones, at which there is something else than before.
    pub fn changed_spots(&self) -> Vec<(Id, Name, Option<Id>, Option<Id>)> {
        let names = self.changed_names();
        let mut out: Vec<_> =
            names.map(|(id, name, entry)| (id, name.clone(), entry.now, entry.base)).collect();
        out.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        out
    }

    /// The same, in no order.
    pub fn changed_names(&self) -> impl Iterator<Item = (Id, &Name, &Entry)> {
        let dirs = self.nodes.iter().enumerate().filter_map(|(id, node)| {
            let dir = node.dir.as_deref()?;
            (dir.changes != 0 && !node.live).then_some((id, dir))
        });
        dirs.flat_map(|(id, dir)| {
            let changed = dir.entries.iter().filter(|(_, entry)| entry.now != entry.base);
            changed.map(move |(name, entry)| (id, name, entry))
        })
    }

    /// Whether a directory exists in the finished tree only because a new one above it does.
    fn is_in_new(&self, dir: Id) -> bool {
        self.nodes[dir].stable.is_none()
    }

    fn is_gone(&self, dir: Id) -> bool {
        let mut dir = dir;
        while dir != self.top {
            if self.nodes[dir].names.is_empty() {
                return true;
            }
            dir = self.parent(dir);
        }
        false
    }

    /// Whether the object at a home is to be published as a new one: the old inode goes.
    fn is_replaced(&self, id: Id) -> bool {
        let node = &self.nodes[id];
        node.data.whole().is_some_and(|b| !b.is_untouched()) && !self.stays(id)
    }

    /// Whether a changed file's inode stays: others may have it open, or know it by another name.
    #[must_use]
    pub fn stays(&self, id: Id) -> bool {
        let node = &self.nodes[id];
        match &node.stable {
            Some(stable) => node.kept || stable.stat.nlink > 1,
            None => false,
        }
    }

    /// The version that a stable node was.
    fn version(&self, id: Id) -> Option<Version> {
        self.nodes[id].stable.as_ref().map(|s| s.stat.version())
    }

    /// Names that a stable object lost and gained: each gained one is a lost one that was moved, as
    /// long as there are any.
    fn moves(&self, id: Id, turns: &Turns) -> (Vec<Spot>, Vec<Spot>) {
        if self.nodes[id].stable.is_none() || self.is_replaced(id) {
            return (Vec::new(), Vec::new());
        }
        let of = |all: &Map<Id, Vec<Spot>>| all.get(&id).cloned().unwrap_or_default();
        (of(&turns.lost), of(&turns.gained))
    }

    /// A name that a stable object had and has.
    fn kept_name(&self, id: Id) -> Option<Spot> {
        let is_kept = |(dir, name): &&Spot| {
            self.nodes[*dir]
                .dir()
                .ok()
                .and_then(|d| d.entries.get(name))
                .is_some_and(|e| e.base == Some(id) && e.now == Some(id))
        };
        self.nodes[id].names.iter().find(is_kept).cloned()
    }

    /// The name of an object that its own private copy is renamed to.
    fn first_put(&self, id: Id) -> Option<Spot> {
        let names = &self.nodes[id].names;
        // One in a new directory has been linked there.
        names.iter().find(|(dir, _)| !self.is_in_new(*dir)).or(names.first()).cloned()
    }

    /// Makes a symbolic link or node at a place among the private copies.
    fn make_at(&mut self, id: Id, place: &[u8]) -> Sys<()> {
        let node = &self.nodes[id];
        let stat = node.stat;
        match stat.kind() {
            FileKind::Symlink => {
                kernel::symlink(node.target.as_deref().unwrap_or_default(), place)?
            }
            _ => kernel::mknod(place, stat.mode, stat.rdev)?,
        }
        self.dress(id, place)
    }

    /// Gives a new object among the private copies its attributes.
    fn dress(&mut self, id: Id, place: &[u8]) -> Sys<()> {
        let node = &self.nodes[id];
        let stat = node.stat;
        let now = kernel::look(place)?;
        if (now.uid, now.gid) != (stat.uid, stat.gid) {
            kernel::chown(place, stat.uid, stat.gid)?;
        }
        let link = stat.kind() == FileKind::Symlink;
        if let Some(xattrs) = &node.xattrs {
            for (name, value) in xattrs {
                kernel::set_xattr(place, name, value)?;
            }
        }
        let now = kernel::look(place)?;
        if !link && now.mode & 0o7777 != stat.mode & 0o7777 {
            kernel::chmod(place, stat.mode)?;
        }
        kernel::utimes(place, Some(stat.atime), Some(stat.mtime))
    }

    /// Whether a private copy lies in the place of a new directory already.
    fn lies_in_new(&self, copy: &[u8]) -> bool {
        let Some((dir, _)) = txos_engine::readset::split(copy) else { return false };
        self.nodes.iter().any(|n| {
            n.stable.is_none()
                && n.dir.as_ref().and_then(|d| d.staged.as_ref()).is_some_and(|s| s == dir)
        })
    }

    /// Directories in which names came and went: they get the time of the commit. (Those in which only the content of
    /// files changes keep theirs, which is the engine's to see to.)
    fn find_kept_times(&mut self) {
        for node in &mut self.nodes {
            if node.stable.is_some()
                && !node.live
                && node.dir.as_ref().is_some_and(|d| {
                    d.changes > 0 && !d.removed && d.entries.values().all(|e| e.now == e.base)
                })
            {
                node.changed |= changed::NAMES_MTIME;
            }
        }
    }

    /// Whether the program has set the time of a directory that stays. It gets that, whatever others do in it.
    pub fn sets_time_of_directory(&self) -> bool {
        let is_set = |node: &Node| node.dir.is_some() && node.changed & changed::MTIME != 0;
        self.nodes.iter().any(|node| node.stable.is_some() && is_set(node))
    }

    /// What became of a stable object's attributes.
    fn attr_change(&mut self, id: Id) -> Sys<AttrChange> {
        let node = &self.nodes[id];
        let (Some(stable), now, bits) = (&node.stable, node.stat, node.changed) else {
            return Ok(AttrChange::default());
        };
        let was = stable.stat;
        let path = stable.path.clone();
        let mut change = AttrChange::default();
        let (old, new) = (was.mode & 0o7777, now.mode & 0o7777);
        if bits & changed::MODE != 0 && old != new {
            change.mode = Some((old, new));
        }
        let (old, new) = ((was.uid, was.gid), (now.uid, now.gid));
        if bits & changed::OWNER != 0 && old != new {
            change.owner = Some((old, new));
        }
        // A private copy has its own, which the content takes along.
        let copied = node.data.whole().is_some_and(|b| !b.is_untouched());
        if bits & (changed::MTIME | changed::NAMES_MTIME) != 0 && !copied {
            let set = bits & changed::MTIME != 0;
            change.mtime = Some((was.mtime, if set { now.mtime } else { Stamp::PRESENT }));
        }
        if bits & changed::XATTRS != 0 {
            let new = node.xattrs.clone().unwrap_or_default();
            change.xattrs = xattr_changes(&path, &new)?;
        }
        Ok(change)
    }
}

/// What leads from an object's extended attributes to these.
fn xattr_changes(path: &[u8], new: &Xattrs) -> Sys<Vec<XattrChange>> {
    let only = |xattrs| Attrs { mode: 0, uid: 0, gid: 0, xattrs };
    let old = txos_engine::sys::xattrs(path)?;
    let new = new.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(AttrChange::between(&only(old), &only(new)).xattrs)
}
