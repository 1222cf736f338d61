//! Directories on the way of a path, each looked at once.
//!
//! - A directory that is merely passed is acquired (its entry in the one above), and not noted in the read
//!   set: what the program is told at the end of the way is validated by the whole path, which passes it.
//! - The directory in which names are looked up one after the other is *held* by a descriptor, so that each
//!   look is one step of the kernel's. That saves time and proves nothing: the validation goes by paths.
//! - What a transaction that has committed found on the way to a directory is *known* to the process. The
//!   next one takes it on trust: one look by the directory's whole path shows that the way leads there still
//!   and passes no link, and the entries on it are acquired, if no participant has published names since
//!   ([`txos_engine::readset::Way`]). Its directories have no nodes: the node at its end has the whole way
//!   for a name. A call that needs more than that makes the nodes ([`Tx::unfold_ways`]).

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use txos_engine::object::{Facets, FileId};
use txos_engine::readset::Way;
use txos_engine::realm::{Access, Realm, TxHandle};
use txos_engine::version;

use super::kernel::{self, Errno, OwnedFd, Stat, Sys};
use super::node::{Id, Map, Node, Stable};
use super::perm::mask;
use super::tree::ShadowTree;
use super::walk::{Place, Spot};
use super::{Tx, flags, shared};
use crate::call::Call;

/// Paths of directories longer than this many bytes are walked by held descriptors.
const FAR: usize = 192;
/// The longest path that the kernel takes.
const PATH_MAX: usize = 4095;
/// Most directories that are known on all ways together.
const STEPS_MAX: usize = 16_384;
/// Most ways that one transaction makes known.
const LEARNT_MAX: usize = 8;

/// A moment in the life of a realm: which realm, by its address, and its count of publishes of names. Zeros
/// without a realm.
type Moment = (usize, u64);

/// What the transactions of this process have found.
struct Known {
    /// For when it holds.
    moment: Moment,
    /// The root directory and its mount.
    root: (FileId, u64),
    /// What [`FORGOTTEN`] was.
    forgotten: u64,
    ways: Map<Box<[u8]>, Arc<Way>>,
    steps: usize,
}

/// No thread waits for this lock: after a fork the child may inherit it locked by a thread that the child
/// does not have. A thread that does not get the lock goes on as if nothing were known.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// How often something that was known turned out to be wrong: what was known before counts no more.
static FORGOTTEN: AtomicU64 = AtomicU64::new(0);

/// What a transaction knows of the ways that it takes.
#[derive(Debug, Default)]
pub struct Ways {
    /// Before it acquired anything.
    began: Option<Moment>,
    /// It has made no call but those that [`keeps_ways`] names.
    plain: bool,
    /// Nodes at the end of ways that have no nodes of their own.
    folded: Vec<Id>,
    /// Directories that were walked to, to be made known.
    learnt: Vec<Id>,
    /// The directory that is held, and its descriptor.
    held: Option<(Id, i32)>,
}

impl Ways {
    /// Of a transaction that begins.
    #[must_use]
    pub fn new(how: u32) -> Ways {
        Ways { plain: how & flags::COMMAND == 0, ..Ways::default() }
    }
}

/// Whether a call needs no more of the directories on the way than that it passes them.
fn keeps_ways(call: &Call) -> bool {
    const CREATES: i32 = libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY;
    match call.number() {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => call.int(1) & CREATES == 0,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_access | libc::SYS_stat | libc::SYS_lstat | libc::SYS_readlink => true,
        libc::SYS_openat => call.int(2) & CREATES == 0,
        libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_fstat
        | libc::SYS_readlinkat
        | libc::SYS_close => true,
        _ => call.is_read_write_or_seek(),
    }
}

/// The directory part of an absolute path that names each directory once and plainly, and where the last
/// name begins.
fn plain_parent(path: &[u8]) -> Option<(&[u8], usize)> {
    let slash = path.iter().rposition(|&b| b == b'/').filter(|&at| at > 0)?;
    let (dir, name) = (path.get(..slash)?, path.get(slash + 1..)?);
    let is_plain = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    let plain = dir.first() == Some(&b'/') && dir[1..].split(|&b| b == b'/').all(is_plain);
    (plain && is_plain(name)).then_some((dir, slash + 1))
}

impl Tx {
    /// Notes how many publishes of names there have been, before anything is acquired.
    pub fn begin_ways(&mut self, realm: Option<&'static Realm>) {
        self.ways.began.get_or_insert_with(|| moment(realm));
    }

    /// Before a call is carried out: one that changes names, or asks for directories, finds their nodes.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn ways_for(&mut self, call: &Call) -> Sys<()> {
        if !self.ways.plain || keeps_ways(call) {
            return Ok(());
        }
        self.ways.plain = false;
        self.unfold_ways()
    }

    /// Whether ways may be taken on trust: nothing that the transaction did or asked for before makes a
    /// difference, and what it touches it acquires at once.
    fn trusts_ways(&self) -> bool {
        self.ways.plain
            && self.process.who == 0
            && self.tree.root == self.tree.top
            && !self.tree.beneath
            && !self.start.acquires_at_the_end()
    }

    /// The directory of a path's last name, if the way to it is known; and where that name begins.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn known_way(&mut self, path: &[u8]) -> Sys<Option<(Id, usize)>> {
        if !self.trusts_ways() || path.len() > PATH_MAX {
            return Ok(None);
        }
        let Some((dir, at)) = plain_parent(path) else { return Ok(None) };
        let is_it = |id: &&Id| self.tree.nodes[**id].stable.as_ref().is_some_and(|s| s.path == dir);
        if let Some(&id) = self.ways.folded.iter().find(is_it) {
            return Ok(Some((id, at)));
        }
        if self.locks.handle.is_none() {
            self.join()?;
            // Unless there is a realm.
            self.begin_ways(None);
        }
        let Some(way) = self.recall(dir) else { return Ok(None) };
        for entry in way.entries() {
            self.acquire(&entry, Access::Read, dir)?;
        }
        // Acquired first: who has published names since has done so by now.
        if Some(moment(self.locks.handle.as_ref().map(TxHandle::realm))) != self.ways.began {
            return Ok(None);
        }
        let Some((fd, stat)) = look_by_way(&way) else {
            forget();
            return Ok(None);
        };
        Ok(self.take_way(way, fd, stat).map(|id| (id, at)))
    }

    /// What was found on the way to a directory holds only for who found it.
    ///
    /// # Errors
    /// As [`Tx::unfold_ways`].
    pub fn distrust_ways(&mut self) -> Sys<()> {
        self.ways.plain = false;
        self.unfold_ways()
    }

    /// What is known of the way to a directory.
    fn recall(&self, dir: &[u8]) -> Option<Arc<Way>> {
        let known = KNOWN.try_lock().ok()?;
        let root = &self.tree.nodes[self.tree.top].stat;
        let known = known.as_ref().filter(|known| known.root == (root.id, root.mnt))?;
        if known.forgotten != FORGOTTEN.load(Ordering::Acquire) {
            return None;
        }
        (Some(known.moment) == self.ways.began).then(|| known.ways.get(dir).cloned())?
    }

    /// The node at the end of a way, whose directory is open as `fd`.
    fn take_way(&mut self, way: Arc<Way>, fd: i32, stat: Stat) -> Option<Id> {
        let id = match self.tree.by_id.get(&(stat.id, stat.mnt)).copied() {
            // It was walked to.
            Some(id) if self.tree.nodes[id].stable.as_ref().is_some_and(|s| s.path == way.path) => {
                id
            }
            None if self.copies.is_versioned(&way.path, &stat) => self.fold_way(&way, stat)?,
            _ => {
                kernel::close(fd);
                return None;
            }
        };
        self.locks.reads.trust(way);
        self.hold_as(id, fd);
        Some(id)
    }

    fn fold_way(&mut self, way: &Way, stat: Stat) -> Option<Id> {
        let (dir, name) = txos_engine::readset::split(&way.path)?;
        let stable = Stable {
            dir: Rc::from(dir),
            dir_id: way.steps.last()?.0,
            name: name.into(),
            path: way.path.clone(),
            stat,
        };
        let mut node = Node::new(stat, Some(stable));
        node.names.push((self.tree.top, way.path[1..].into()));
        node.may = mask::X;
        let id = self.tree.add(node);
        self.tree.by_id.insert((stat.id, stat.mnt), id);
        self.ways.folded.push(id);
        Some(id)
    }

    /// Whether a node stands at the end of a way without nodes. If so it gets a name of its own now.
    pub fn is_unfolded_by_name(&mut self, id: Id) -> bool {
        let before = self.ways.folded.len();
        self.ways.folded.retain(|&folded| folded != id);
        let folded = self.ways.folded.len() != before;
        if folded {
            self.tree.nodes[id].names.clear();
        }
        folded
    }

    /// Makes nodes for all directories on the ways that were taken on trust, and looks at each.
    ///
    /// # Errors
    /// The transaction is doomed: a way leads elsewhere by now.
    pub fn unfold_ways(&mut self) -> Sys<()> {
        let plain = std::mem::replace(&mut self.ways.plain, false);
        while let Some(&id) = self.ways.folded.first() {
            let path =
                self.tree.nodes[id].stable.as_ref().map(|s| s.path.clone()).unwrap_or_default();
            let found = self.walk(self.tree.top, &path, false);
            let same = matches!(found, Ok(Place::At(Spot { node: Some(node), .. })) if node == id);
            if !same || self.ways.folded.contains(&id) {
                return match found {
                    Err(super::acquire::DOOMED) => Err(super::acquire::DOOMED),
                    _ => Err(self.changed_outside(&path, "a directory on the way was replaced")),
                };
            }
        }
        self.ways.plain = plain;
        Ok(())
    }

    /// A directory was walked to: the way is made known when the transaction has committed.
    pub fn learn_way(&mut self, dir: Id) {
        let all = &mut self.ways.learnt;
        if self.ways.plain && all.len() < LEARNT_MAX && !all.contains(&dir) {
            all.push(dir);
        }
    }

    /// The transaction has committed, and changed no names: what it found on its ways is so.
    pub fn make_ways_known(&mut self) {
        let Some(began) = self.ways.began.filter(|_| self.ways.plain) else { return };
        // A single call has none.
        let Some(root) = self.tree.nodes.get(self.tree.top).map(|top| (top.stat.id, top.stat.mnt))
        else {
            return;
        };
        let ways: Vec<Way> = std::mem::take(&mut self.ways.learnt)
            .into_iter()
            .filter_map(|dir| self.way_to(dir))
            .collect();
        if ways.is_empty() || moment(shared::realm_as_known()) != began {
            return;
        }
        let Ok(mut known) = KNOWN.try_lock() else { return };
        let forgotten = FORGOTTEN.load(Ordering::Acquire);
        let fits = |k: &&mut Known| {
            k.moment == began && k.root == root && k.forgotten == forgotten && k.steps < STEPS_MAX
        };
        if known.as_mut().filter(fits).is_none() {
            let ways = Map::default();
            *known = Some(Known { moment: began, root, forgotten, ways, steps: 0 });
        }
        let Some(known) = known.as_mut() else { return };
        for way in ways {
            known.steps += way.steps.len();
            known.ways.insert(way.path.clone().into(), Arc::new(way));
        }
    }

    /// The way to a directory that was walked to.
    fn way_to(&self, dir: Id) -> Option<Way> {
        let stable = self.tree.nodes[dir].stable.as_ref().filter(|_| !self.tree.nodes[dir].live)?;
        let (mut steps, mut here) = (Vec::new(), dir);
        while here != self.tree.top {
            if self.ways.folded.contains(&here) {
                return None;
            }
            let (above, name) = self.tree.nodes[here].names.first()?;
            steps.push((self.tree.nodes[*above].stable.as_ref()?.stat.id, name.clone()));
            here = *above;
        }
        steps.reverse();
        (!steps.is_empty()).then(|| Way { path: stable.path.clone(), steps, end: stable.stat.id })
    }

    /// Holds a directory that is far from the root, for the looks at its names; where it can't be held, they go
    /// by paths.
    pub fn hold(&mut self, dir: Id) {
        const PLACE: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let Some(stable) = self.tree.nodes[dir].stable.as_ref() else { return };
        let (held, far) = (self.ways.held, stable.path.len() > FAR);
        if !far || stable.path.len() > PATH_MAX || held.is_some_and(|(id, _)| id == dir) {
            return;
        }
        let (from, path) = self.nearest(stable);
        let Ok(fd) = kernel::open_exact_at(from, path, PLACE) else { return };
        if self.tree.is_same_file(dir, fd) {
            self.hold_as(dir, fd);
        } else {
            kernel::close(fd);
        }
    }

    /// Holds a directory to which the path from the root is closed for whom the call is made: what is at its names is looked
    /// up from there, so that the kernel judges this directory alone, as natively. `false`: it was held before, or is closed
    /// in any case.
    ///
    /// # Errors
    /// EMFILE and its like, of this process.
    pub fn hold_beyond(&mut self, dir: Id) -> Sys<bool> {
        if self.ways.held.is_some_and(|(id, _)| id == dir) {
            return Ok(false);
        }
        let fd = match self.tree.beyond(dir) {
            Err(Errno::ACCESS) => return Ok(false),
            fd => fd?,
        };
        self.hold_as(dir, fd.into_number());
        match self.ways.held {
            Some((id, _)) if id == dir => Ok(true),
            _ => Err(Errno::MFILE),
        }
    }

    /// Opens a stable object anew by [`ShadowTree::beyond`]: the kernel judges it for whom the call is made, and no directory.
    ///
    /// # Errors
    /// As `open(2)`; EACCES if it is not to be had so.
    pub fn open_beyond(&self, id: Id, flags: i32) -> Sys<i32> {
        // What is opened gets the lowest number.
        let place = self.tree.beyond(id)?.raised()?;
        kernel::open(&kernel::magic_path(place.number()), flags & !libc::O_NOFOLLOW, 0)
    }

    fn hold_as(&mut self, dir: Id, fd: i32) {
        let Ok(high) = kernel::move_high(fd) else { return };
        self.let_go_of_held();
        self.fds.keep_private(high);
        self.ways.held = Some((dir, high));
    }

    fn let_go_of_held(&mut self) {
        if let Some((_, fd)) = self.ways.held.take() {
            self.fds.close_private(fd);
        }
    }

    /// From which directory, and by which path from there, an object of the stable tree is reached.
    #[must_use]
    pub fn nearest<'s>(&self, stable: &'s Stable) -> (i32, &'s [u8]) {
        match self.held_at(&stable.dir) {
            Some(fd) if stable.path.len() <= PATH_MAX => (fd, &stable.name),
            _ => (libc::AT_FDCWD, &stable.path),
        }
    }

    /// The descriptor of the directory at a path, if that is the one that is held.
    #[must_use]
    pub fn held_at(&self, dir: &[u8]) -> Option<i32> {
        let (id, fd) = self.ways.held?;
        self.tree.nodes[id].stable.as_ref().is_some_and(|s| s.path == dir).then_some(fd)
    }

    /// A directory that was only passed has been looked at for itself.
    pub fn note_passed(&mut self, id: Id) {
        if id != self.tree.top {
            self.note(id, Facets::ENTRY);
        }
    }
}

impl ShadowTree {
    /// A stable object itself, open with `O_PATH` by the owner of the transaction: no other one that has come in its place.
    ///
    /// # Errors
    /// As `openat2(2)`; ENOENT if another one is there.
    pub fn itself(&self, id: Id) -> Sys<OwnedFd> {
        const ITSELF: i32 = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let stable = self.nodes[id].stable.as_ref().ok_or(Errno::NOENT)?;
        // Where it has no name, the magic link is what is to be followed.
        let flags =
            if kernel::is_magic(&stable.path) { ITSELF & !libc::O_NOFOLLOW } else { ITSELF };
        let opened = kernel::as_owner(|| kernel::open_exact(&stable.path, flags));
        let fd = OwnedFd::of(opened?);
        if self.is_same_file(id, fd.number()) { Ok(fd) } else { Err(Errno::NOENT) }
    }

    /// [`ShadowTree::itself`] for a call that is made for somebody else who may not search a directory on
    /// the object's path from the root. Natively that is no hindrance below a working directory or a descriptor, so what is
    /// asked by the path and answered with EACCES is asked again by this.
    ///
    /// # Errors
    /// EACCES if nobody else makes the call, or the object is not there; EMFILE and its like, of this process.
    pub fn beyond(&self, id: Id) -> Sys<OwnedFd> {
        let stable = self.nodes[id].stable.as_ref().filter(|_| kernel::is_worn());
        if stable.is_none_or(|stable| kernel::is_magic(&stable.path)) {
            return Err(Errno::ACCESS);
        }
        self.itself(id).map_err(|errno| match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => errno,
            _ => Errno::ACCESS,
        })
    }

    /// Asks for something by the path of a stable object, and if that is closed to whom the call is made for, by the magic
    /// path of [`ShadowTree::beyond`]. That one asks both times: the kernel judges the object.
    ///
    /// # Errors
    /// As `ask`.
    pub fn ask<T>(&self, id: Id, path: &[u8], ask: impl Fn(&[u8]) -> Sys<T>) -> Sys<T> {
        match ask(path) {
            Err(Errno::ACCESS) if kernel::is_worn() => {
                let place = self.beyond(id)?;
                ask(&kernel::magic_path(place.number()))
            }
            other => other,
        }
    }
}

fn moment(realm: Option<&'static Realm>) -> Moment {
    realm.map_or((0, 0), |realm| (std::ptr::from_ref(realm).addr(), realm.names_published()))
}

/// Opens the directory at the end of a way by its whole path, which may pass no link.
fn look_by_way(way: &Way) -> Option<(i32, Stat)> {
    const PLACE: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = kernel::open_exact(&way.path, PLACE).ok()?;
    let stat = kernel::look_fd(fd).and_then(|stat| {
        version::unambiguous(stat, Stat::version, Stat::mount, || kernel::look_fd(fd))
    });
    match stat {
        Ok((stat, _)) if stat.id == way.end => Some((fd, stat)),
        _ => {
            kernel::close(fd);
            None
        }
    }
}

/// Something on a way was not as it was known: nothing is known any more.
pub fn forget() {
    FORGOTTEN.fetch_add(1, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_ways_name_each_directory_once() {
        assert_eq!(plain_parent(b"/a/b/file"), Some((&b"/a/b"[..], 5)));
        assert_eq!(plain_parent(b"/a/..b"), Some((&b"/a"[..], 3)));
        for path in [
            &b"/file"[..],
            b"a/file",
            b"/a//file",
            b"//a/file",
            b"/a/./file",
            b"/a/../file",
            b"/a/",
            b"/a/.",
            b"/a/..",
            b"/",
            b"",
        ] {
            assert_eq!(plain_parent(path), None, "{}", String::from_utf8_lossy(path));
        }
    }
}
