//! What a transaction touches is acquired in the realm and remembered in the read set.
//!
//! Order: acquire, then look, then check that nobody has won meanwhile (at the end of every call,
//! before the program sees the answer). A second, closer touch of what was looked at before looks
//! again, and the transaction is doomed if that has changed: so no answer ever mixes two commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use txos_engine::commit::conflict;
use txos_engine::object::{Facets, FileId, FileKind};
use txos_engine::readset::Outcome;
use txos_engine::readset::validate::{OwnWrites, ValidationRules};
use txos_engine::realm::{AbortCause, Access, Begin, Facet, TxHandle, WaitDecision, WaitInfo};
use txos_engine::{sys, version};

use super::deadlock::{self, FoundDeadlock, Known};
use super::kernel::{self, Errno, Stat, Sys, look_at};
use super::node::{Id, Looked, Stable, held};
use super::pipes::Pipes;
use super::succession::Succession;
use super::tree::ShadowTree;
use super::{Failure, Tx, flags, reason};

/// Pages of a file that are acquired one by one before the whole file is.
const PAGES_MAX: u32 = 64;

/// What a call's failure means when the transaction is doomed.
pub const DOOMED: Errno = Errno::CANCELED;

/// What of a stable object is acquired.
#[derive(Clone, Copy, Debug)]
enum Part {
    Entry,
    Attributes,
    Extent,
    Xattrs,
    Listing,
}

impl Part {
    fn of(self, stable: &Stable) -> Facet<'_> {
        let file = stable.stat.id;
        match self {
            Part::Entry => Facet::Entry { dir: stable.dir_id, name: &stable.name },
            Part::Attributes => Facet::Attributes(file),
            Part::Extent => Facet::Extent(file),
            Part::Xattrs => Facet::Xattrs(file),
            Part::Listing => Facet::Listing(file),
        }
    }
}

impl Tx {
    /// Whether another transaction has won against it, as far as the realm knows: it has not been told yet.
    #[must_use]
    pub fn has_lost_meanwhile(&self) -> bool {
        self.locks.handle.as_ref().is_some_and(TxHandle::is_doomed)
    }

    /// Acquires a facet in the realm.
    ///
    /// # Errors
    /// [`DOOMED`]: another transaction won.
    pub fn acquire(&mut self, facet: &Facet<'_>, access: Access, path: &[u8]) -> Sys<()> {
        if self.start.acquires_later(facet, access, path) {
            return Ok(());
        }
        if self.locks.handle.is_none() {
            self.join()?;
        }
        let Some(handle) = self.locks.handle.as_mut() else { return Ok(()) };
        match handle.acquire(facet, access) {
            Ok(_) => Ok(()),
            Err(stop) => Err(self.lose_over(facet, &stop, path)),
        }
    }

    /// Acquires a part of a stable object in the realm; nothing of one that is new.
    fn acquire_part(&mut self, id: Id, part: Part, access: Access) -> Sys<()> {
        let Some(stable) = self.tree.nodes[id].stable.as_ref() else { return Ok(()) };
        let facet = part.of(stable);
        if self.start.acquires_later(&facet, access, &stable.path) {
            return Ok(());
        }
        let stop = match self.locks.handle.as_mut().map(|handle| handle.acquire(&facet, access)) {
            Some(Ok(_)) => return Ok(()),
            Some(Err(stop)) => Some(stop),
            None => None,
        };
        // Rarely: what it is called is kept apart from the tree.
        let stable = stable.clone();
        match stop {
            Some(stop) => Err(self.lose_over(&part.of(&stable), &stop, &stable.path)),
            None => self.acquire(&part.of(&stable), access, &stable.path),
        }
    }

    /// Notes that another transaction won while this one wanted a facet.
    #[cold]
    pub fn lose_over(&mut self, facet: &Facet<'_>, stop: &AbortCause, path: &[u8]) -> Errno {
        let is_here = || self.locks.handle.as_ref().is_some_and(|h| h.watch().lost_at(facet));
        match stop {
            // Whatever it was that this one wanted.
            AbortCause::Doomed(_) if !is_here() => {
                let path = self.lost_path(stop);
                self.lose(&path, stop)
            }
            _ => self.lose(path, stop),
        }
    }

    /// Where another transaction has won, as far as that can be found again; empty if it can't.
    #[cold]
    fn lost_path(&mut self, stop: &AbortCause) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        /// Of a longer file its pages are not gone through.
        const PAGES_LOOKED_AT: u64 = 4096;
        // A winner that was killed at once has not written down what it wanted.
        let is_known = stop.opponent().is_some_and(|winner| winner.pid != 0);
        let Some(watch) = self.locks.handle.as_ref().map(TxHandle::watch).filter(|_| is_known)
        else {
            return Vec::new();
        };
        if let Some(number) = self.lost_number() {
            return super::numbers::name_of(number).into_bytes();
        }
        let stable = self.tree.nodes.iter().filter_map(|node| Some((node, node.stable.as_ref()?)));
        for (node, stable) in stable.filter(|(node, _)| node.held != 0) {
            let file = stable.stat.id;
            let pages =
                if node.held & held::EXTENT == 0 { 0 } else { stable.stat.size.div_ceil(4096) };
            let is_it = [
                Facet::Attributes(file),
                Facet::Extent(file),
                Facet::Listing(file),
                Facet::Xattrs(file),
            ];
            let page = |number| watch.lost_at(&Facet::Page { file, number });
            if is_it.iter().any(|facet| watch.lost_at(facet))
                || pages <= PAGES_LOOKED_AT && (0..pages).any(page)
            {
                return stable.path.clone();
            }
        }
        let found = txos_engine::commit::explain(&watch, &mut self.locks.reads);
        found.map_or_else(Vec::new, |found| found.path.as_os_str().as_bytes().to_vec())
    }

    /// Takes a place in the realm, where there is one.
    pub fn join(&mut self) -> Sys<()> {
        if self.locks.alone {
            return Ok(());
        }
        let Some(realm) = super::shared::realm() else {
            self.locks.alone = true;
            return Ok(());
        };
        let how = Begin {
            id: super::staging::given_id(),
            nonblock: self.how.flags & flags::NONBLOCK != 0,
            patience: Some(patience()),
            again: self.how.again,
            sequence: self.how.sequence,
            reset_sequence: self.how.flags & flags::ORDER_RESET != 0,
            thread: self.locks.thread,
            soft: false,
        };
        self.begin_ways(Some(realm));
        match realm.begin(&how) {
            Ok(handle) => {
                let after = self.how.succession.clone().filter(|one| one.comes_after());
                if after.as_ref().is_some_and(|one| one.is_behind()) {
                    handle.defer(true);
                }
                // A command's other processes may come at any time.
                if self.waits.has_members() || self.how.flags & flags::COMMAND != 0 {
                    handle.has_several_threads();
                }
                takes_part(&handle, self.how.flags & flags::MANAGED != 0);
                let deadlock = self.waits.deadlock.clone();
                let (pipes, strict) = (Some(self.held.input.shared_pipes()), self.is_strict());
                let attend = attend(after, deadlock, pipes, strict);
                self.locks.handle = Some(handle.attended(attend));
            }
            Err(e) => {
                self.doom(Failure {
                    reason: reason::CONFLICT,
                    errno: libc::EAGAIN,
                    what: e.to_string(),
                    ..Failure::default()
                });
                return Err(DOOMED);
            }
        }
        Ok(())
    }

    /// The calling thread goes on with it.
    pub fn takes_part(&mut self) {
        self.locks.thread = kernel::own_thread().cast_unsigned();
        if let Some(handle) = self.locks.handle.as_ref() {
            handle.goes_on_in(self.locks.thread);
            takes_part(handle, self.how.flags & flags::MANAGED != 0);
        }
    }

    /// Notes that another transaction won at `path`.
    pub fn lose(&mut self, path: &[u8], stop: &AbortCause) -> Errno {
        let conflict = conflict(path, stop);
        let pid = stop.opponent().map_or(0, |r| r.pid);
        let deadlock = self.waits.deadlock.take();
        if self.locks.handle.as_ref().is_some_and(|handle| handle.again().defers) {
            has_lost();
        }
        self.doom(Failure {
            reason: reason::CONFLICT,
            errno: libc::ECANCELED,
            pid: i32::try_from(pid).unwrap_or(0),
            gives_up: deadlock.is_some(),
            what: deadlock.map_or_else(|| conflict.to_string(), |deadlock| deadlock.what),
            path: path.to_vec(),
            ..Failure::default()
        });
        DOOMED
    }

    /// An outsider changed what was looked at.
    pub fn changed_outside(&mut self, path: &[u8], what: &str) -> Errno {
        self.doom(Failure {
            reason: reason::CONFLICT,
            errno: libc::ECANCELED,
            what: match path {
                b"" => what.to_owned(),
                path => format!("{}: {what}", String::from_utf8_lossy(path)),
            },
            path: path.to_vec(),
            ..Failure::default()
        });
        DOOMED
    }

    /// It can't commit any more; the first reason is kept.
    pub fn doom(&mut self, failure: Failure) {
        if self.doom.is_none() {
            self.doom = Some(failure);
        }
    }

    /// Remembers facets of a stable object in the read set.
    pub fn note(&mut self, id: Id, facets: Facets) {
        let node = &mut self.tree.nodes[id];
        let Some(stable) = node.stable.as_ref() else { return };
        if node.noted & facets.0 == facets.0 || stable.dir.is_empty() {
            return;
        }
        node.noted |= facets.0;
        let seen = Outcome::Present(stable.stat.version());
        self.locks.reads.note_seen(&stable.dir, stable.dir_id, &stable.name, seen, facets);
    }

    /// An object was looked at before it was acquired: it is looked at again, unless that was in this call and no
    /// participant can have changed it in between.
    fn same_as_seen(&mut self, id: Id) -> Sys<()> {
        let node = &self.tree.nodes[id];
        let Some(stable) = node.stable.as_ref() else { return Ok(()) };
        let now = self.looking();
        if stable.dir.is_empty() || now.is_none() || node.looked == now {
            return Ok(());
        }
        let (dir, path) = self.nearest(stable);
        let now = kernel::past_closed_directories(|| look_at(dir, path)).map(|s| s.version());
        if now.as_ref() == Ok(&stable.stat.version()) {
            return Ok(());
        }
        let path = stable.path.clone();
        Err(self.changed_outside(&path, "it was changed while the transaction ran"))
    }

    /// When a look is made, once the transaction has a place in the realm
    /// ([`txos_engine::realm::Realm::publishes_ended`]).
    fn looking(&self) -> Option<Looked> {
        let handle = self.locks.handle.as_ref()?;
        Some(Looked { call: self.locks.calls, ended: handle.publishes_ended() })
    }

    /// Before a node's attributes are told.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn touch_attrs(&mut self, id: Id) -> Sys<()> {
        let node = &self.tree.nodes[id];
        let Some(stable) = node.stable.as_ref() else { return Ok(()) };
        if node.held & (held::ATTRS | held::WRITE) == 0 && !node.live {
            let kind = stable.stat.kind();
            self.acquire_part(id, Part::Attributes, Access::Read)?;
            if kind == FileKind::File {
                self.same_as_seen(id)?;
            }
            self.tree.nodes[id].held |= held::ATTRS;
        }
        self.note(id, Facets::ATTRS | Facets::ENTRY);
        Ok(())
    }

    /// Before extended attributes are told.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn touch_xattrs(&mut self, id: Id) -> Sys<()> {
        let node = &self.tree.nodes[id];
        if node.stable.is_none() {
            return Ok(());
        }
        if node.held & (held::XATTRS | held::WRITE) == 0 && !node.live {
            self.acquire_part(id, Part::Xattrs, Access::Read)?;
            self.tree.nodes[id].held |= held::XATTRS;
        }
        // A change of any of them moves ctime, which the attributes of a version include.
        self.note(id, Facets::ATTRS | Facets::ENTRY);
        self.note_attributes_of_directory(id);
        Ok(())
    }

    /// A directory's ctime moves with each name in it: so its extended attributes are compared themselves, by a digest. What
    /// changes between the digest and the answer is a conflict.
    fn note_attributes_of_directory(&mut self, id: Id) {
        let node = &mut self.tree.nodes[id];
        let Some(stable) = node.stable.as_ref() else { return };
        let is_noted = node.noted & Facets::XATTRS.0 != 0;
        if is_noted || node.live || stable.stat.kind() != FileKind::Dir || stable.dir.is_empty() {
            return;
        }
        // Validation is the owner's. A file system without them has none that could change.
        let Ok(digest) = kernel::as_owner(|| sys::xattr_digest(&stable.path)) else { return };
        node.noted |= Facets::XATTRS.0;
        self.locks.reads.note_xattrs(&stable.dir, &stable.name, digest);
    }

    /// Before all of a file's content is told, or a link's target.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn touch_data(&mut self, id: Id) -> Sys<()> {
        let node = &self.tree.nodes[id];
        if node.stable.is_none() {
            return Ok(());
        }
        if node.held & (held::DATA | held::WRITE) == 0 && !node.live {
            if node.held & held::EXPECTED == 0 {
                self.acquire_data(id)?;
                self.same_as_seen(id)?;
            }
            self.tree.nodes[id].held |= held::DATA | held::ATTRS;
        }
        self.note(id, Facets::DATA | Facets::ENTRY);
        Ok(())
    }

    fn acquire_data(&mut self, id: Id) -> Sys<()> {
        self.acquire_part(id, Part::Extent, Access::Read)?;
        self.acquire_part(id, Part::Attributes, Access::Read)
    }

    /// Before a stable file is opened for reading. The content of a small one is acquired here and not at its first read: so one
    /// look at the descriptor is enough for both. Whether that is so; then [`Tx::is_as_expected`] has to follow.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn expect_data(&mut self, id: Id) -> Sys<bool> {
        const KNOWN: u8 = held::DATA | held::WRITE | held::EXPECTED;
        let node = &self.tree.nodes[id];
        if node.live || node.held & KNOWN != 0 || !self.is_read_whole(id) {
            return Ok(false);
        }
        self.acquire_data(id).map(|()| true)
    }

    /// Whether a descriptor that was opened after [`Tx::expect_data`] is of the file that was looked at, in the same version. Nobody
    /// who takes part changes it before it is read.
    pub fn is_as_expected(&mut self, id: Id, fd: i32) -> bool {
        let now = self.looking();
        let node = &mut self.tree.nodes[id];
        let is_as_seen = match (&node.stable, now) {
            // It was looked at in this call, and no publish has ended since.
            (_, Some(_)) if node.looked == now => self.tree.is_same_file(id, fd),
            (Some(stable), Some(_)) => {
                kernel::look_fd(fd).map(|stat| stat.version()) == Ok(stable.stat.version())
            }
            _ => return self.tree.is_same_file(id, fd),
        };
        if is_as_seen {
            self.tree.nodes[id].held |= held::EXPECTED;
        }
        is_as_seen
    }

    /// Whether a stable file is so small that any read of it counts as one of the whole.
    pub fn is_read_whole(&self, id: Id) -> bool {
        let stable = self.tree.nodes[id].stable.as_ref();
        stable.is_some_and(|stable| stable.stat.size <= 4096 * 2)
    }

    /// Before some pages of a stable file are told.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn touch_pages(&mut self, id: Id, at: u64, len: u64) -> Sys<()> {
        let node = &self.tree.nodes[id];
        let Some(stable) = node.stable.as_ref() else { return Ok(()) };
        if node.live || node.held & (held::DATA | held::WRITE) != 0 || len == 0 {
            return Ok(());
        }
        let (first, last) = (at >> 12, (at + len - 1) >> 12);
        let count = u32::try_from(last - first + 1).unwrap_or(u32::MAX);
        if self.is_read_whole(id) || node.pages.saturating_add(count) > PAGES_MAX {
            return self.touch_data(id);
        }
        let (file, path, first_time) =
            (stable.stat.id, stable.path.clone(), node.held & held::EXTENT == 0);
        if first_time {
            self.acquire(&Facet::Extent(file), Access::Read, &path)?;
            self.tree.nodes[id].held |= held::EXTENT;
        }
        for number in first..=last {
            self.acquire(&Facet::Page { file, number }, Access::Read, &path)?;
        }
        self.tree.nodes[id].pages += count;
        self.same_as_seen(id)?;
        self.note(id, Facets::DATA | Facets::ENTRY);
        Ok(())
    }

    /// Before a page of a stable file is read, to change part of it.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn acquire_page(&mut self, id: Id, number: u64) -> Sys<()> {
        let node = &self.tree.nodes[id];
        let Some(stable) = node.stable.as_ref() else { return Ok(()) };
        if node.live || node.held & (held::DATA | held::WRITE) != 0 {
            return Ok(());
        }
        let (file, path) = (stable.stat.id, stable.path.clone());
        if node.held & held::EXTENT == 0 {
            self.acquire(&Facet::Extent(file), Access::Read, &path)?;
            self.tree.nodes[id].held |= held::EXTENT;
        }
        self.acquire(&Facet::Page { file, number }, Access::Read, &path)
    }

    /// A page was read: what it held is what the read set remembers of it.
    pub fn note_page(&mut self, id: Id, number: u64, bytes: &[u8]) {
        self.note(id, Facets::ENTRY);
        if let Some(stable) = self.tree.nodes[id].stable.as_ref()
            && !stable.dir.is_empty()
        {
            let digest = txos_engine::readset::page_digest(bytes);
            self.locks.reads.note_pages(&stable.dir, &stable.name, &[(number, digest)]);
        }
    }

    /// Before a directory's names are told.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn touch_listing(&mut self, id: Id) -> Sys<()> {
        let node = &self.tree.nodes[id];
        if node.stable.is_none() {
            return Ok(());
        }
        if node.held & held::LISTING == 0 && !node.live {
            self.acquire_part(id, Part::Listing, Access::Read)?;
            self.tree.nodes[id].held |= held::LISTING;
        }
        Ok(())
    }

    /// Before an object that exists in the stable tree is changed.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn touch_write(&mut self, id: Id) -> Sys<()> {
        let node = &self.tree.nodes[id];
        let Some(stable) = node.stable.as_ref() else { return Ok(()) };
        if node.held & held::WRITE == 0 && !node.live {
            let (kind, named) = (stable.stat.kind(), !stable.dir.is_empty());
            if named {
                self.acquire_part(id, Part::Entry, Access::Write)?;
            }
            self.acquire_part(id, Part::Attributes, Access::Write)?;
            if kind == FileKind::File {
                self.acquire_part(id, Part::Extent, Access::Write)?;
                self.same_as_seen(id)?;
            }
            self.tree.nodes[id].held |= held::WRITE;
        }
        self.note(id, Facets::WRITE | Facets::ATTRS | Facets::ENTRY);
        Ok(())
    }

    /// Before a name comes or goes in a directory of the stable tree.
    ///
    /// # Errors
    /// [`DOOMED`].
    pub fn touch_name(&mut self, dir: Id, name: &[u8]) -> Sys<()> {
        let node = &self.tree.nodes[dir];
        let Some(stable) = node.stable.as_ref() else { return Ok(()) };
        if node.live {
            return Ok(());
        }
        let (id, path) = (stable.stat.id, stable.path.clone());
        self.acquire(&Facet::Entry { dir: id, name }, Access::Write, &path)?;
        self.acquire(&Facet::Listing(id), Access::Insert, &path)
    }

    /// Looks up a name in a stable directory for the first time: what is there, and when it was looked at. A
    /// directory that is only passed is not remembered.
    ///
    /// # Errors
    /// [`DOOMED`], or as `lstat`; that a name is absent is no error.
    pub fn first_look(
        &mut self,
        dir: &std::rc::Rc<[u8]>,
        id: FileId,
        name: &[u8],
        path: &[u8],
        passing: bool,
    ) -> Sys<Option<(Stat, Option<Looked>)>> {
        self.acquire(&Facet::Entry { dir: id, name }, Access::Read, path)?;
        let looked = self.looking();
        let (from, at) = match self.held_at(dir) {
            Some(fd) => (fd, name),
            None => (libc::AT_FDCWD, path),
        };
        // What was changed just now may change again and leave the same stamps: it is looked at later.
        let again =
            |stat| version::unambiguous(stat, Stat::version, Stat::mount, || look_at(from, at));
        match look_at(from, at).and_then(again) {
            Ok((stat, _)) if passing && stat.kind() == FileKind::Dir => Ok(Some((stat, looked))),
            Ok((stat, kept_changing)) => {
                let seen = Outcome::Present(stat.version());
                self.locks.reads.note_seen(dir, id, name, seen, Facets::ENTRY);
                if kept_changing {
                    self.locks.reads.note_ambiguous(dir, name);
                }
                Ok(Some((stat, looked)))
            }
            Err(Errno::NOENT) => {
                self.locks.reads.note_seen(
                    dir,
                    id,
                    name,
                    Outcome::Absent(libc::ENOENT),
                    Facets::ENTRY,
                );
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// What was seen is looked at again, by one that sleeps between its looks: as what it looks at stays as it was, it
    /// would sleep for ever.
    pub fn look_at_all_again(&mut self) {
        self.check_doom();
        if self.doom.is_some() {
            return;
        }
        let conflicts =
            self.locks.reads.validate(ValidationRules::default(), &OwnWrites::default());
        if let Some(conflict) = conflicts.first() {
            use std::os::unix::ffi::OsStrExt;
            let path = conflict.path.as_os_str().as_bytes().to_vec();
            let _ = self.changed_outside(&path, &conflict.what.to_string());
        }
    }

    /// Whether another transaction has won meanwhile.
    pub fn check_doom(&mut self) {
        if self.doom.is_none()
            && let Some(handle) = self.locks.handle.as_ref()
            && handle.is_doomed()
        {
            let stop = AbortCause::Doomed(handle.watch().winner());
            let path = self.lost_path(&stop);
            let _ = self.lose(&path, &stop);
        }
    }
}

impl ShadowTree {
    /// What a stable file is now, by a descriptor of it.
    pub fn is_same_file(&self, id: Id, fd: i32) -> bool {
        let known = self.nodes[id].stable.as_ref().map(|s| s.stat.id);
        kernel::identify_fd(fd).ok().map(|s| s.id) == known
    }
}

/// Whether the program wants the calling thread's transaction to be aborted.
#[cfg(target_arch = "x86_64")]
pub fn is_called_off() -> bool {
    crate::front::tls::here().is_called_off()
}

/// The same where there are no transactions.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_called_off() -> bool {
    false
}

/// When it is said for whom a call waits, and when it gives up: the transaction is lost then.
pub const TELL_AFTER: Duration = Duration::from_secs(2);
/// When what was read from pipes is taken.
const TAKE_AFTER: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);
/// The same in seconds, if something else was asked for; else more than there are.
static SECONDS: AtomicU64 = AtomicU64::new(u64::MAX);

/// How long a transaction waits for another one.
pub fn patience() -> Duration {
    match SECONDS.load(Ordering::Relaxed) {
        u64::MAX => PATIENCE,
        seconds => Duration::from_secs(seconds),
    }
}

/// Says for how long transactions of this process wait for others.
pub fn set_patience(seconds: u64) {
    SECONDS.store(seconds.min(u64::MAX - 1), Ordering::Relaxed);
}

/// The calling thread's transaction has a place in the realm.
#[cfg(target_arch = "x86_64")]
fn takes_part(handle: &TxHandle<'static>, managed: bool) {
    crate::front::outside::takes_part(handle.realm(), handle.place(), managed);
}

/// The same where there are no transactions.
#[cfg(not(target_arch = "x86_64"))]
fn takes_part(_: &TxHandle<'static>, _: bool) {}

#[cfg(target_arch = "x86_64")]
use crate::front::outside::has_lost;

/// As above.
#[cfg(not(target_arch = "x86_64"))]
fn has_lost() {}

/// Looks after waiting: nobody waits for ever for one that does nothing, unless it comes `after` that.
pub fn attend(
    after: Option<Arc<Succession>>,
    deadlock: FoundDeadlock,
    pipes: Option<Pipes>,
    strict: bool,
) -> impl FnMut(&WaitInfo) -> WaitDecision + Send {
    let (mut said, mut reported) = (false, false);
    move |info| {
        // The other one may itself wait for room in a pipe.
        if info.waited >= TAKE_AFTER
            && !info.publishing
            && let Some(pipes) = pipes.as_ref().filter(|pipes| pipes.any_looked())
        {
            if strict {
                return WaitDecision::CallOff;
            }
            pipes.take_all().iter().for_each(|words| super::say(words));
        }
        // Who comes after the holder waits for its end, however long that takes.
        let follows = after.as_ref().is_some_and(|one| one.waits_for(info.holder.pid));
        match deadlock::look(info, &deadlock) {
            Some(Known::Deadlock) => return WaitDecision::CallOff,
            Some(Known::Report(words)) if !reported => {
                (said, reported) = (true, true);
                let seconds = patience().as_secs();
                let end = if follows {
                    String::new()
                } else {
                    format!(". It gives up after {seconds} s")
                };
                super::say(&format!("{words}{end}"));
            }
            _ => {}
        }
        if !said && info.waited >= TELL_AFTER {
            said = true;
            super::say(&format!("waiting for transaction {}", info.holder));
        }
        // Ctrl-C ends the wait, and after the abort the program.
        let waits = || follows || info.waited < patience();
        let goes_on = || waits() && !is_called_off() && !super::effects::is_to_end();
        let patient = info.publishing || goes_on();
        if patient { WaitDecision::Wait } else { WaitDecision::CallOff }
    }
}
