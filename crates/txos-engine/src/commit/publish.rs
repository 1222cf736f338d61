//! Publishing a plan, and undoing it.
//!
//! # Invariants
//!
//! - Permissions are tightened before the first operation and loosened after the last one
//!   ([`super::permissions`]); undoing tightens first as well, and gives the old ones back at the end.
//! - An operation looks at both of its ends first and does nothing if they are not as planned;
//!   after a rename it looks at what came out, and if an outsider was faster it says so.
//! - [`undo`] needs no memory of how far the publish got: the identities at the two ends of each
//!   operation tell. It serves a failed publish and recovery after a crash alike, and may itself
//!   be interrupted and repeated.
//! - What an outsider did to an object in between is kept: where undoing would overwrite or lose
//!   it, it is moved to the store's `rescued/` and reported.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags, RenameFlags};
use rustix::io::Errno;

use super::inplace;
use super::permissions::{self, Passage, Tightened};
use super::rebuilt;
use super::rescued;
use super::roots::{EntryRef, Roots, at_target};
use crate::error::{Conflict, ConflictKind, Error, Result};
use crate::hash::{Map, Set};
use crate::object::{FileId, FileKind};
use crate::path;
use crate::plan::{Does, Op, Plan, Write, in_place};
use crate::sys;
use crate::version::{Stamp, Version};

/// Files opened for writing in place before the gate closed, by operation.
pub(super) type Opened = Map<usize, OwnedFd>;

fn conflict(plan: &Plan, op: &Op, what: ConflictKind, now: Option<Version>) -> Error {
    Error::Conflict(vec![Conflict {
        path: path::from_bytes(&plan.target_path(op)),
        what,
        when: now.map(|v| v.ctime),
    }])
}

/// How much of a plan may have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// So many operations were begun, and the inodes of so many tightened; known, as the process that
    /// published also undoes.
    Known {
        /// Operations.
        ops: usize,
        /// Operations whose inodes may have been tightened.
        tightened: usize,
    },
    /// Nobody knows: it was interrupted.
    Unknown,
}

/// Inodes that earlier operations of the same plan have moved or changed.
pub(super) type Touched = Set<crate::object::FileId>;

/// How far a publish has come.
#[derive(Debug, Default)]
pub(super) struct Reached {
    /// Operations whose inodes may have been tightened.
    pub tightened: Cell<usize>,
    /// Operations of which anything may be done.
    pub ops: Cell<usize>,
}

/// Carries out every operation of a plan, and counts what it has begun.
///
/// # Errors
/// [`Error::Conflict`] or [`Error::Io`] of the first that could not be done; the caller undoes.
pub(super) fn publish(
    plan: &Plan,
    roots: &Roots,
    opened: &Opened,
    gated: bool,
    reached: &Reached,
    progress: &dyn super::Progress,
) -> Result<()> {
    let (ours, mut touched) = (written_by_us(plan), Touched::default());
    rebuild(plan, roots, reached)?;
    let left = rebuilt::Left::by(plan);
    let tight = tighten(plan, roots, &reached.tightened, &left)?;
    touched.extend(tight.ids());
    let (placed, times) = (placed_dirs(plan), kept_times(plan, roots));
    let mut changed = ChangedByUs::new(plan);
    for (index, op) in plan.ops.iter().enumerate().filter(|(_, op)| !op.is_rebuild()) {
        let at = Instant {
            base: op
                .base
                .map(|base| match left.is_empty() {
                    true => base,
                    false => left.now(&plan.before_path(op), &base),
                })
                .map(|base| changed.now(op, tight.now(&base))),
            opened: opened.get(&index),
            touched: &touched,
            keeps_times: leaves_times(op) || is_below(&placed, op),
            time: times.get(&index).copied(),
        };
        apply(plan, roots, op, &at, &|| reached.ops.set(index + 1))?;
        let base = at.base;
        touched.extend(op.base.iter().chain(&op.new).map(|v| v.id));
        changed.note(op, roots);
        // Behind a gate nobody can have opened it since it was looked at.
        if !gated
            && op.yields_to_writers()
            && is_file(&op.new)
            && !op.base.is_some_and(|v| ours.contains(&v.id))
        {
            let slot = roots.slot(op).map_err(|e| at_target(plan, op, "looking at", e))?;
            if inplace::has_writer(&slot) {
                return Err(being_written(plan, op));
            }
            // Who wrote after the last look and had closed it by this one.
            if let Some(base) = &base {
                is_whole(plan, op, base, &slot)?;
            }
        }
        if index % 256 == 255 {
            progress.advance(256);
        }
    }
    rebuilt::list(plan, roots);
    loosen(plan, roots)
}

/// Rebuilds the directories that can't be renamed: the rest of the plan is about the new ones.
fn rebuild(plan: &Plan, roots: &Roots, reached: &Reached) -> Result<()> {
    let touched = &Touched::default();
    for (index, op) in plan.ops.iter().enumerate().take_while(|(_, op)| op.is_rebuild()) {
        let at = Instant { base: op.base, opened: None, touched, keeps_times: true, time: None };
        apply(plan, roots, op, &at, &|| reached.ops.set(index + 1))?;
    }
    Ok(())
}

impl Reached {
    /// As what is to be undone.
    pub fn extent(&self) -> Extent {
        Extent::Known { ops: self.ops.get(), tightened: self.tightened.get() }
    }
}

/// What in-place operations of a plan have made of inodes of which a link takes another name afterwards.
struct ChangedByUs {
    versions: Map<FileId, Option<Version>>,
}

impl ChangedByUs {
    fn new(plan: &Plan) -> ChangedByUs {
        let links = plan.ops.iter().filter(|op| op.is_link());
        let bases = links.filter_map(|op| Some((op.base?.id, None)));
        ChangedByUs { versions: bases.collect() }
    }

    /// What an operation must find: a link finds what was made of it.
    fn now(&self, op: &Op, base: Version) -> Version {
        let made = self.versions.get(&base.id).filter(|_| op.is_link());
        made.copied().flatten().unwrap_or(base)
    }

    fn note(&mut self, op: &Op, roots: &Roots) {
        let base = op.base.filter(|_| op.is_in_place());
        if let Some(version) = base.and_then(|base| self.versions.get_mut(&base.id)) {
            // What can't be looked at now is told by whoever meets it.
            *version = roots.target(op).and_then(|target| target.look()).ok().flatten();
        }
    }
}

/// Gives every inode whose permissions change those that everybody has both before and after.
fn tighten(
    plan: &Plan,
    roots: &Roots,
    reached: &Cell<usize>,
    left: &rebuilt::Left,
) -> Result<Tightened> {
    let mut tight = Tightened::default();
    if permissions::is_alone(plan) {
        return Ok(tight);
    }
    for (index, op) in plan.ops.iter().enumerate() {
        let (Some(mut passage), Some(base)) = (Passage::of(op), op.base) else { continue };
        // What a revert gives back its rights is not in the tree yet.
        if super::retained::gives_back(op) {
            continue;
        }
        let end = match roots.before(op) {
            Ok(end) => end,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                return Err(conflict(plan, op, ConflictKind::DirectoryGone, None));
            }
            Err(e) => return Err(at_target(plan, op, "opening the directory of", e)),
        };
        // Another of its names may have been seen to already.
        let base = tight.now(&left.now(&plan.before_path(op), &base));
        let now = end.look().map_err(|e| at_target(plan, op, "looking at", e))?;
        let known =
            if tight.has(base.id) { Touched::from_iter([base.id]) } else { Touched::default() };
        check(plan, op, &base, now, &known)?;
        reached.set(index + 1);
        match passage.tighten(&end).map_err(|e| at_target(plan, op, "changing", e))? {
            true => tight.add(passage),
            false => return Err(conflict(plan, op, ConflictKind::Replaced, None)),
        }
    }
    Ok(tight)
}

/// Gives every inode whose permissions change its final ones.
fn loosen(plan: &Plan, roots: &Roots) -> Result<()> {
    let passages = plan.ops.iter().filter_map(|op| Some((op, Passage::of(op)?)));
    let mut lists = passages.filter(|(_, passage)| passage.takes_a_list(false)).peekable();
    if lists.peek().is_some() {
        for (op, passage) in lists {
            let end = roots.after(op);
            end.and_then(|end| passage.tighten_again(&end))
                .map_err(|e| at_target(plan, op, "changing", e))?;
        }
        sys::let_pass();
    }
    for op in &plan.ops {
        let Some(passage) = Passage::of(op) else { continue };
        let end =
            roots.after(op).map_err(|e| at_target(plan, op, "opening the directory of", e))?;
        if !passage.loosen(&end).map_err(|e| at_target(plan, op, "changing", e))? {
            return Err(conflict(plan, op, ConflictKind::Replaced, end.look().ok().flatten()));
        }
    }
    Ok(())
}

/// Compares what is at the target of an operation with what it was planned with.
fn check(
    plan: &Plan,
    op: &Op,
    base: &Version,
    now: Option<Version>,
    touched: &Touched,
) -> Result<()> {
    match &now {
        Some(v) if unchanged(base, v, touched) => Ok(()),
        Some(v) if v.id != base.id => Err(conflict(plan, op, ConflictKind::Replaced, now)),
        Some(_) => Err(conflict(plan, op, ConflictKind::Changed, now)),
        None => Err(conflict(plan, op, ConflictKind::Removed, None)),
    }
}

fn is_file(v: &Option<Version>) -> bool {
    v.is_some_and(|v| v.kind() == FileKind::File)
}

/// The inodes that a plan writes to in place: it has them open itself, before or after an operation
/// that takes them away.
pub(super) fn written_by_us(plan: &Plan) -> Touched {
    let in_place = plan.ops.iter().filter(|o| o.is_write());
    in_place.filter_map(|o| o.base.map(|v| v.id)).collect()
}

/// The conflict with somebody who has just opened a file that is being replaced.
pub(super) fn being_written(plan: &Plan, op: &Op) -> Error {
    conflict(plan, op, ConflictKind::OpenedWhileReplaced, None)
}

/// Whether an object is still the version that was planned with. A directory's times and size move
/// with its entries, which other operations may change; its names are validated with the read set.
/// The ctime of an inode with several links moves when another operation renames another link.
/// And so does that of an inode that this plan has itself moved already, or changed in place. The times
/// of a FIFO are those of what passes through it.
pub(super) fn unchanged(before: &Version, now: &Version, touched: &Touched) -> bool {
    if before.kind() == FileKind::Dir {
        before.same_owner_and_mode(now)
    } else if before.nlink > 1 || before.is_passage() || touched.contains(&before.id) {
        before.same_but_ctime(now) && before.nlink == now.nlink
    } else {
        before == now
    }
}

/// Whether what came out of the tree is what went in: a rename changes ctime and nothing else.
pub(super) fn came_out_whole(before: &Version, now: &Version) -> bool {
    if before.kind() == FileKind::Dir {
        before.same_owner_and_mode(now)
    } else {
        before.same_but_ctime(now) && before.nlink == now.nlink
    }
}

/// Fails if what came out of the tree is not what was expected there.
fn is_whole(plan: &Plan, op: &Op, base: &Version, slot: &EntryRef) -> Result<()> {
    match slot.look().map_err(|e| at_target(plan, op, "looking at", e))? {
        Some(now) if came_out_whole(base, &now) => Ok(()),
        now => Err(conflict(plan, op, ConflictKind::ChangedWhileReplaced, now)),
    }
}

/// What an operation finds when it is its turn.
struct Instant<'a> {
    /// What must be at its target.
    base: Option<Version>,
    /// What it writes to, opened before the gate closed.
    opened: Option<&'a OwnedFd>,
    /// What earlier operations have moved or changed.
    touched: &'a Touched,
    /// Whether the directory of its target keeps its time.
    keeps_times: bool,
    /// The time that its directory is to keep.
    time: Option<Stamp>,
}

fn apply(plan: &Plan, roots: &Roots, op: &Op, at: &Instant<'_>, begun: &dyn Fn()) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let target = match roots.target(op) {
        Ok(end) => end,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
            return Err(conflict(plan, op, ConflictKind::DirectoryGone, None));
        }
        Err(e) => return Err(io("opening the directory of", e)),
    };
    if let Some(base) = &at.base
        && !op.is_dir_time()
    {
        check(plan, op, base, target.look().map_err(|e| io("looking at", e))?, at.touched)?;
    }
    begun();
    let parent = if at.keeps_times { own_mtime(&target) } else { None };
    Step { plan, roots, op, at, target: &target }.carry_out()?;
    if matches!(op.does, Does::Exchange { .. } | Does::MoveIn { .. } | Does::Link { .. }) {
        keep_times(&target, &op.new).map_err(|e| io("keeping the time of", e))?;
        if let Ok(slot) = roots.slot(op) {
            keep_times(&slot, &op.base).map_err(|e| io("keeping the time of the old", e))?;
        }
    }
    // The directory that a move leaves or enters may itself be retained or put back, as it was;
    // where the move is a change of that directory, its own operation sets the time.
    if let Some(mtime) = parent {
        inplace::not_ours(sys::set_mtime(target.dir.as_fd(), b".", mtime))
            .map_err(|e| io("restoring the time of the directory of", e))?;
    }
    if moves_a_directory(op) {
        roots.forget_ends(op);
    }
    Ok(())
}

/// An operation whose turn it is, with its target open.
struct Step<'a> {
    plan: &'a Plan,
    roots: &'a Roots,
    op: &'a Op,
    at: &'a Instant<'a>,
    target: &'a EntryRef,
}

impl Step<'_> {
    /// Does what the operation is for.
    fn carry_out(&self) -> Result<()> {
        match &self.op.does {
            Does::Install(_) => {
                let slot = self.prepared()?;
                self.rename(&slot, self.target, RenameFlags::NOREPLACE)
            }
            Does::Exchange { .. } => {
                let slot = self.prepared()?;
                self.rename(&slot, self.target, RenameFlags::EXCHANGE)?;
                self.verify(&slot)
            }
            Does::Remove { .. } | Does::MoveOut { .. } => {
                let slot = self.slot()?;
                self.rename(self.target, &slot, RenameFlags::NOREPLACE)?;
                self.verify(&slot)
            }
            Does::MoveIn { .. } if self.op.base.is_some() => {
                let slot = self.slot()?;
                self.rename(&slot, self.target, RenameFlags::EXCHANGE)?;
                self.verify(&slot)
            }
            Does::MoveIn { .. } => self.rename(&self.slot()?, self.target, RenameFlags::NOREPLACE),
            Does::Link { other, .. } => {
                link(self.plan, self.roots, self.op, &self.at.base, self.target, other)
            }
            Does::Data(write) => self.write(write),
            Does::Patch { write, .. } => self.patch(write),
            Does::Rebuild(directory) => {
                let ends = (self.target, &self.slot()?);
                rebuilt::carry_out(self.plan, self.op, directory, ends)
            }
            Does::Attrs { .. } | Does::DirTime { .. } => self.change_attrs(),
        }
    }

    fn io(&self, step: &'static str, e: Errno) -> Error {
        at_target(self.plan, self.op, step, e)
    }

    fn conflict(&self, what: ConflictKind, now: Option<Version>) -> Error {
        conflict(self.plan, self.op, what, now)
    }

    /// The operation's place in the store.
    fn slot(&self) -> Result<EntryRef> {
        self.roots.slot(self.op).map_err(|e| self.io("opening the staged copy of", e))
    }

    /// What is staged there, without what only overlayfs needs.
    fn prepared(&self) -> Result<EntryRef> {
        let slot = self.slot()?;
        strip(&slot, self.op).map_err(|e| self.io("preparing", e))?;
        Ok(slot)
    }

    fn rename(&self, from: &EntryRef, to: &EntryRef, flags: RenameFlags) -> Result<()> {
        match sys::rename(from.dir.as_fd(), &from.name, to.dir.as_fd(), &to.name, flags) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                Err(self.conflict(ConflictKind::CreatedMeanwhile, to.look().ok().flatten()))
            }
            Err(Errno::NOENT) => Err(self.conflict(ConflictKind::Removed, None)),
            Err(e) => Err(self.io("renaming", e)),
        }
    }

    /// What came out of the tree must be what was expected there.
    fn verify(&self, slot: &EntryRef) -> Result<()> {
        match &self.at.base {
            Some(base) => is_whole(self.plan, self.op, base, slot),
            None => Err(self.conflict(ConflictKind::ChangedWhileReplaced, None)),
        }
    }

    /// The file that is written to. It was opened by its name: what was looked at must be what is open.
    fn opened(&self) -> Result<&OwnedFd> {
        let to = self.at.opened.ok_or_else(|| self.io("writing", Errno::BADF))?;
        match is_open(to, &self.op.base) {
            Ok(true) => Ok(to),
            Ok(false) => Err(self.conflict(ConflictKind::Replaced, None)),
            Err(e) => Err(self.io("looking at", e)),
        }
    }

    /// Writes the whole content of the staged copy, or only what it appends.
    fn write(&self, write: &Write) -> Result<()> {
        let to = self.opened()?;
        let reading = |e| self.io("reading the new", e);
        let from = open_past_mode(&self.slot()?, OFlags::RDONLY).map_err(reading)?;
        let kept = inplace::Kept::of(to, self.op).map_err(|e| self.io("looking at", e))?;
        let old = self
            .roots
            .slot_at(self.op.layer, &write.undo_copy)
            .and_then(|e| e.open(OFlags::RDONLY))
            .map_err(|e| self.io("reading the saved content of", e))?;
        let written = match inplace::append_content(&from, &old, to) {
            Ok(true) => Ok(()),
            Ok(false) => inplace::write_content(&from, to),
            Err(e) => Err(e),
        };
        self.written(written, &kept, to)
    }

    /// Writes the pieces of the staged patch.
    fn patch(&self, write: &Write) -> Result<()> {
        let to = self.opened()?;
        let patch = inplace::read_patch(self.plan, self.roots, self.op, &write.slot)?;
        let kept = inplace::Kept::of(to, self.op).map_err(|e| self.io("looking at", e))?;
        let length = self.op.base.map_or(0, |base| base.size);
        self.written(inplace::patch_from(&patch, to, length), &kept, to)
    }

    /// After the content: what the kernel took away because of the write, and the attributes.
    fn written(
        &self,
        written: std::result::Result<(), Errno>,
        kept: &inplace::Kept,
        to: &OwnedFd,
    ) -> Result<()> {
        match written {
            Err(Errno::BUSY) => return Err(self.conflict(ConflictKind::Written, None)),
            other => other.map_err(|e| self.io("writing", e))?,
        }
        kept.restore(to).map_err(|e| self.io("changing", e))?;
        self.change_attrs()
    }

    /// Changes the attributes of the inode at the target, if there are any to change.
    fn change_attrs(&self) -> Result<()> {
        let (Some(change), Some(base)) = (self.op.attrs(), &self.op.base) else { return Ok(()) };
        let mut change = permissions::without_rights(change);
        if let (Some(time), Some((_, new))) = (self.at.time, &mut change.mtime) {
            *new = time;
        }
        if change.is_nothing() {
            return Ok(());
        }
        match inplace::change_attrs(self.target, base.id, &change) {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(self.conflict(ConflictKind::Replaced, self.target.look().ok().flatten()))
            }
            Err(e) => Err(self.io("changing", e)),
        }
    }
}

/// Whether the directory that an operation is in keeps its time: if it is to have another, an operation
/// of its own says so.
fn leaves_times(op: &Op) -> bool {
    match op.does {
        Does::MoveOut { .. } | Does::MoveIn { .. } | Does::Rebuild(_) => true,
        Does::Exchange { .. } => !op.shown,
        Does::Install(_) | Does::Remove { .. } | Does::Link { .. } | in_place!() => false,
    }
}

/// Directories that a plan puts into place, or takes away: they have their times, and so have those in
/// them.
fn placed_dirs(plan: &Plan) -> Set<(u16, &[u8])> {
    let places =
        |o: &&Op| matches!(o.does, Does::Install(_) | Does::Exchange { .. } | Does::Remove { .. });
    let is_dir = |o: &&Op| [o.base, o.new].into_iter().flatten().any(|v| v.kind() == FileKind::Dir);
    plan.ops.iter().filter(places).filter(is_dir).map(|o| (o.layer, &o.target[..])).collect()
}

/// The times that directories have before a plan begins which are to keep them, whatever it does in them: others may have
/// given them since it was made.
fn kept_times(plan: &Plan, roots: &Roots) -> Map<usize, Stamp> {
    let kept = plan.ops.iter().enumerate().filter(|(_, op)| op.keeps_dir_time());
    let now = |op: &Op| roots.before(op).ok()?.look().ok()?.map(|now| now.mtime);
    kept.filter_map(|(index, op)| Some((index, now(op)?))).collect()
}

fn is_below(dirs: &Set<(u16, &[u8])>, op: &Op) -> bool {
    let mut rest = &op.target[..];
    while !dirs.is_empty() && !rest.is_empty() {
        rest = crate::path::layer::split(rest).0;
        if dirs.contains(&(op.layer, rest)) {
            return true;
        }
    }
    false
}

/// XFS gives a directory that is exchanged a new mtime; it keeps the one it had.
fn keep_times(end: &EntryRef, was: &Option<Version>) -> std::result::Result<(), Errno> {
    let Some(was) = was.filter(|v| v.kind() == FileKind::Dir) else { return Ok(()) };
    match end.look()? {
        Some(now) if now.id == was.id && now.mtime != was.mtime => {
            inplace::not_ours(sys::set_mtime(end.dir.as_fd(), &end.name, was.mtime))
        }
        _ => Ok(()),
    }
}

/// mtime of the directory an entry is in.
pub(super) fn own_mtime(end: &EntryRef) -> Option<Stamp> {
    crate::version::stat_at(end.dir.as_fd(), b".", AtFlags::SYMLINK_NOFOLLOW).ok().map(|v| v.mtime)
}

/// Whether paths may lead elsewhere after the operation.
fn moves_a_directory(op: &Op) -> bool {
    let is_dir = |v: &Option<Version>| v.is_some_and(|v| v.kind() == FileKind::Dir);
    !op.is_in_place() && (is_dir(&op.base) || is_dir(&op.new))
}

fn link(
    plan: &Plan,
    roots: &Roots,
    op: &Op,
    base: &Option<Version>,
    target: &EntryRef,
    other: &[u8],
) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let other = roots.target_at(op.layer, other).map_err(|e| io("opening the directory of", e))?;
    if op.base.is_none() {
        return match sys::link(other.dir.as_fd(), &other.name, target.dir.as_fd(), &target.name) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(conflict(
                plan,
                op,
                ConflictKind::CreatedMeanwhile,
                target.look().ok().flatten(),
            )),
            Err(Errno::NOENT) => Err(conflict(plan, op, ConflictKind::OtherNameRemoved, None)),
            Err(e) => Err(io("linking", e)),
        };
    }
    let slot = roots.slot(op).map_err(|e| io("opening the staged copy of", e))?;
    sys::link(other.dir.as_fd(), &other.name, slot.dir.as_fd(), &slot.name)
        .map_err(|e| io("linking", e))?;
    sys::rename(
        slot.dir.as_fd(),
        &slot.name,
        target.dir.as_fd(),
        &target.name,
        RenameFlags::EXCHANGE,
    )
    .map_err(|e| io("renaming", e))?;
    match (base, slot.look().map_err(|e| io("looking at", e))?) {
        (Some(base), Some(now)) if came_out_whole(base, &now) => Ok(()),
        (_, now) => Err(conflict(plan, op, ConflictKind::ChangedWhileReplaced, now)),
    }
}

/// Takes overlayfs's attributes off a staged object and what is below it.
fn strip(slot: &EntryRef, op: &Op) -> std::result::Result<(), Errno> {
    for_each_strip(slot, op, |dir, name, s| match sys::remove_xattr(dir.as_fd(), name, &s.name) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(e) => Err(e),
    })
}

/// Puts them back.
fn unstrip(slot: &EntryRef, op: &Op) -> std::result::Result<(), Errno> {
    // What an outsider has removed meanwhile needs no mark.
    let result = for_each_strip(slot, op, |dir, name, s| {
        match sys::set_xattr(dir.as_fd(), name, &s.name, &s.value) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(e) => Err(e),
        }
    });
    match result {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        other => other,
    }
}

fn for_each_strip(
    slot: &EntryRef,
    op: &Op,
    mut f: impl FnMut(&OwnedFd, &[u8], &crate::changeset::Strip) -> std::result::Result<(), Errno>,
) -> std::result::Result<(), Errno> {
    let (Does::Install(staged) | Does::Exchange { staged, .. }) = &op.does else { return Ok(()) };
    for s in &staged.strip {
        if s.below.is_empty() {
            f(&slot.dir, &slot.name, s)?;
            continue;
        }
        let root = slot.open_path()?;
        let (dir, name) = crate::path::layer::split(&s.below);
        match sys::open_dir_beneath(root.as_fd(), dir) {
            Ok(dir) => f(&dir, name, s)?,
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Undoes whatever of a plan was done, last first. Gives notes for a person.
///
/// # Errors
/// [`Error::Io`] if something could not be undone; repeating may help, the journal stays.
pub(super) fn undo(plan: &Plan, roots: &Roots, extent: Extent) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    roots.forget();
    let done = match extent {
        Extent::Known { ops, .. } => ops.min(plan.ops.len()),
        Extent::Unknown => plan.ops.len(),
    };
    let tightened = match extent {
        Extent::Known { ops, tightened } => ops.max(tightened).min(plan.ops.len()),
        Extent::Unknown => plan.ops.len(),
    };
    let begun = plan.ops.iter().take(tightened);
    let passages: Vec<(&Op, Passage)> =
        begun.filter_map(|op| Some((op, Passage::of(op)?))).collect();
    for (op, passage) in passages.iter().rev() {
        // Everything was published before anything was loosened, and the other way about.
        for end in [roots.after(op), roots.before(op)] {
            let end = there(end).map_err(|e| at_target(plan, op, "looking at", e))?;
            let Some(end) = end else { continue };
            passage.take_back(&end).map_err(|e| at_target(plan, op, "undoing", e))?;
        }
    }
    for op in plan.ops.iter().take(done).rev() {
        undo_surely(plan, roots, op, &mut notes)?;
        if moves_a_directory(op) {
            roots.forget();
        }
    }
    restore_dir_times(plan, roots, done)?;
    if passages.iter().any(|(_, passage)| passage.takes_a_list(true)) {
        sys::let_pass();
    }
    for (op, passage) in passages.iter().rev() {
        let end = there(roots.before(op)).map_err(|e| at_target(plan, op, "looking at", e))?;
        if let Some(end) = end {
            passage
                .put_back(&end)
                .map_err(|e| at_target(plan, op, "restoring the permissions of", e))?;
        }
    }
    Ok(notes)
}

/// Undoing renames moves the times of directories once more: each gets back the one that it had. A
/// directory that the plan keeps has an operation for it. One that the plan takes away has not, but what
/// the plan moved out of it has been moved back in.
fn restore_dir_times(plan: &Plan, roots: &Roots, done: usize) -> Result<()> {
    let renames = |o: &&Op| !o.is_in_place();
    let parents: Set<(u16, &[u8])> = plan
        .ops
        .iter()
        .take(done)
        .filter(renames)
        .map(|op| (op.layer, crate::path::layer::split(&op.before).0))
        .collect();
    for op in &plan.ops {
        let is_dir = |v: &Version| v.kind() == FileKind::Dir;
        // Of one that was rebuilt, the new one stays.
        let base = if op.is_rebuild() { op.new } else { op.base };
        let Some(base) = base.filter(is_dir) else { continue };
        let old = match &op.does {
            Does::DirTime { change } | Does::Attrs { change, .. } => change.mtime.map(|m| m.0),
            Does::Remove { .. }
            | Does::MoveOut { .. }
            | Does::Exchange { .. }
            | Does::MoveIn { .. }
            | Does::Rebuild(_) => {
                parents.contains(&(op.layer, &op.before[..])).then_some(base.mtime)
            }
            Does::Install(_) | Does::Link { .. } | Does::Data(_) | Does::Patch { .. } => None,
        };
        let Some(old) = old else { continue };
        let look = |e| at_target(plan, op, "looking at", e);
        // Somebody may have moved it; that it can't be looked at is something else.
        let Some(end) = there(roots.before(op)).map_err(look)? else { continue };
        if let Some(now) = end.look().map_err(look)?
            && now.id == base.id
            && now.mtime != old
        {
            // Another's directory keeps the time of what was undone in it: only its owner can set another.
            inplace::not_ours(sys::set_mtime(end.dir.as_fd(), &end.name, old))
                .map_err(|e| at_target(plan, op, "restoring the time of", e))?;
        }
    }
    Ok(())
}

/// Whether any operation of a plan was visibly carried out.
///
/// # Errors
/// [`Error::Io`] where it can't be looked at.
pub(super) fn anything_done(plan: &Plan, roots: &Roots) -> Result<bool> {
    for op in &plan.ops {
        if is_done(plan, roots, op)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether one operation was visibly carried out.
///
/// # Errors
/// [`Error::Io`] where it can't be looked at.
pub(super) fn is_done(plan: &Plan, roots: &Roots, op: &Op) -> Result<bool> {
    let look = |e| at_target(plan, op, "looking at", e);
    let (target, slot) = ends(roots, op).map_err(look)?;
    let target = seen(target.as_ref()).map_err(look)?;
    let slot = seen(slot.as_ref()).map_err(look)?;
    let is = |v: &Option<Version>, id: &Option<Version>| matches!((v, id), (Some(a), Some(b)) if a.id == b.id);
    Ok(match op.does {
        Does::Install(_) | Does::Exchange { .. } | Does::MoveIn { .. } | Does::Rebuild(_) => {
            is(&target, &op.new)
        }
        Does::Remove { .. } | Does::MoveOut { .. } => is(&slot, &op.base),
        // Changes in place, and further names, are not looked for.
        Does::Link { .. } | in_place!() => false,
    })
}

/// An end, where its directory exists.
fn there(
    end: std::result::Result<EntryRef, Errno>,
) -> std::result::Result<Option<EntryRef>, Errno> {
    match end {
        Ok(end) => Ok(Some(end)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The two ends of an operation, where they exist. That a directory can't be looked at is not the
/// same as that it is not there.
fn ends(
    roots: &Roots,
    op: &Op,
) -> std::result::Result<(Option<EntryRef>, Option<EntryRef>), Errno> {
    let slot = if op.slot().is_empty() { None } else { there(roots.slot(op))? };
    Ok((where_it_is(roots, op)?, slot))
}

/// The target of an operation. An object that is held in the store may still be at its name in the tree:
/// what was written to it has reached the disk, and the rename that took the name away has not.
fn where_it_is(roots: &Roots, op: &Op) -> std::result::Result<Option<EntryRef>, Errno> {
    let target = there(roots.target(op))?;
    if op.held().is_none() {
        return Ok(target);
    }
    let is_it = |end: &EntryRef| -> std::result::Result<bool, Errno> {
        Ok(matches!((end.look()?, op.base), (Some(now), Some(base)) if now.id == base.id))
    };
    if let Some(end) = &target
        && is_it(end)?
    {
        return Ok(target);
    }
    for path in [&op.before, &op.after] {
        if let Some(end) = there(roots.target_at(op.layer, path))?
            && is_it(&end)?
        {
            return Ok(Some(end));
        }
    }
    Ok(target)
}

fn seen(end: Option<&EntryRef>) -> std::result::Result<Option<Version>, Errno> {
    end.map_or(Ok(None), EntryRef::look)
}

/// [`undo_one`], again where an outsider has taken away in the same moment what it had just looked at.
fn undo_surely(plan: &Plan, roots: &Roots, op: &Op, notes: &mut Vec<String>) -> Result<()> {
    for _ in 1..LOOKS_MAX {
        match undo_one(plan, roots, op, notes) {
            Err(crate::Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                roots.forget();
            }
            undone => return undone,
        }
    }
    undo_one(plan, roots, op, notes)
}

fn undo_one(plan: &Plan, roots: &Roots, op: &Op, notes: &mut Vec<String>) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let look = |e| io("looking at", e);
    let (target, slot) = ends(roots, op).map_err(look)?;
    let at_target = seen(target.as_ref()).map_err(look)?;
    let at_slot = seen(slot.as_ref()).map_err(look)?;
    let is = |v: &Option<Version>, id: &Option<Version>| matches!((v, id), (Some(a), Some(b)) if a.id == b.id);
    let shown = || crate::show::quoted_bytes(&plan.target_path(op));
    let rename = |from: &EntryRef, to: &EntryRef, flags| {
        sys::rename(from.dir.as_fd(), &from.name, to.dir.as_fd(), &to.name, flags)
    };
    match &op.does {
        Does::Install(_) | Does::Exchange { .. } => {
            let Some(slot) = &slot else { return Ok(()) };
            if is(&at_target, &op.new) || sys::mistake("rename-not-verified") {
                let Some(target) = &target else { return Ok(()) };
                let exchange = op.is_exchange() && at_slot.is_some();
                let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
                rename(target, slot, flags).map_err(|e| io("undoing", e))?;
                keep_times(slot, &op.new).map_err(|e| io("undoing", e))?;
                keep_times(target, &op.base).map_err(|e| io("undoing", e))?;
                unstrip(slot, op).map_err(|e| io("restoring the staged copy of", e))?;
                rescue_if_touched(roots, plan, op, slot, notes)?;
            } else if is(&at_slot, &op.new) {
                unstrip(slot, op).map_err(|e| io("restoring the staged copy of", e))?;
            } else if op.is_exchange() && is(&at_slot, &op.base) {
                // Somebody has replaced or removed what we put there. Theirs is later: it stays.
                let at = roots.rescue(op, plan.id).map_err(|e| io("rescuing the old", e))?;
                notes.push(format!(
                    "{} was changed by somebody else while it was being published; the version \
                     before is {} in the store",
                    shown(),
                    crate::show::quoted_bytes(&at)
                ));
            }
        }
        Does::Remove { .. } | Does::MoveOut { .. } => {
            // Whatever is in the slot came out of the tree: what was planned, or what an outsider
            // had put in its place a moment before. It goes back, or is kept.
            let Some(slot) = slot.as_ref().filter(|_| at_slot.is_some()) else { return Ok(()) };
            let back = match &target {
                Some(target) => rename(slot, target, RenameFlags::NOREPLACE),
                None => Err(Errno::EXIST),
            };
            match back {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    let at = roots.rescue(op, plan.id).map_err(|e| io("rescuing the old", e))?;
                    notes.push(format!(
                        "{} could not be put back, because somebody else created something there \
                         or moved its directory; it is {} in the store",
                        shown(),
                        crate::show::quoted_bytes(&at)
                    ));
                }
                Err(e) => return Err(io("undoing", e)),
            }
        }
        Does::MoveIn { .. } => {
            let (Some(target), Some(slot)) = (&target, &slot) else { return Ok(()) };
            if is(&at_target, &op.new) {
                let flags = if op.base.is_some() && at_slot.is_some() {
                    RenameFlags::EXCHANGE
                } else {
                    RenameFlags::NOREPLACE
                };
                rename(target, slot, flags).map_err(|e| io("undoing", e))?;
                keep_times(slot, &op.new).map_err(|e| io("undoing", e))?;
                keep_times(target, &op.base).map_err(|e| io("undoing", e))?;
            }
        }
        Does::Link { other, .. } => {
            let Some(target) = &target else { return Ok(()) };
            let unlink = |end: &EntryRef| sys::unlink(end.dir.as_fd(), &end.name, AtFlags::empty());
            if op.base.is_none() {
                // Done, if the name is the same inode as its other name.
                let other = roots.target_at(op.layer, other);
                let other = seen(there(other).map_err(look)?.as_ref()).map_err(look)?;
                if at_target.is_some() && is(&at_target, &other) && is(&at_target, &op.new) {
                    unlink(target).map_err(|e| io("undoing", e))?;
                }
                return Ok(());
            }
            let Some(slot) = &slot else { return Ok(()) };
            if is(&at_target, &op.new) && is(&at_slot, &op.base) {
                rename(slot, target, RenameFlags::EXCHANGE).map_err(|e| io("undoing", e))?;
                keep_times(target, &op.base).map_err(|e| io("undoing", e))?;
                unlink(slot).map_err(|e| io("undoing", e))?;
            } else if is(&at_slot, &op.new) {
                unlink(slot).map_err(|e| io("undoing", e))?;
            }
        }
        Does::Rebuild(directory) => {
            let (Some(target), Some(slot)) = (&target, &slot) else { return Ok(()) };
            rebuilt::undo(plan, roots, op, directory, (target, slot), notes)?;
        }
        Does::Data(write) => {
            undo_data(plan, roots, op, write, at_target.zip(target.as_ref()), notes)?;
        }
        Does::Patch { write, .. } => {
            undo_patch(plan, roots, op, write, at_target.zip(target.as_ref()), notes)?;
        }
        Does::Attrs { change, .. } | Does::DirTime { change } => {
            let Some(target) = &target else { return Ok(()) };
            if !is(&at_target, &op.base) || at_target == op.base {
                return Ok(());
            }
            let mut back = inplace::still_ours(target, change).map_err(|e| io("looking at", e))?;
            let Some(base) = &op.base else { return Ok(()) };
            match change_back(target, base, &back) {
                // Nobody's later commits are to fail for that.
                Err(Errno::PERM) if back.owner.is_some() => {
                    back.owner = None;
                    change_back(target, base, &back).map_err(|e| io("undoing", e))?;
                    notes.push(format!(
                        "{} keeps the group that it was given: only root can give it back to group {}",
                        crate::show::quoted_bytes(&plan.target_path(op)),
                        base.gid
                    ));
                }
                done => done.map_err(|e| io("undoing", e))?,
            }
        }
    }
    Ok(())
}

/// Puts attributes back. What was replaced in the meantime is later, and stays.
fn change_back(
    target: &EntryRef,
    base: &Version,
    back: &crate::changeset::AttrChange,
) -> std::result::Result<(), Errno> {
    inplace::change_attrs(target, base.id, back).map(|_is_there| ())
}

/// Writes the saved content back, unless every byte is the old one. What is in it that neither was there
/// before nor is ours is kept aside first.
///
/// Only the bytes tell: after a power cut they may be new although the inode's times are not.
fn undo_data(
    plan: &Plan,
    roots: &Roots,
    op: &Op,
    write: &Write,
    found: Option<(Version, &EntryRef)>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let (Some(base), Some((now, target))) = (op.base, found) else { return Ok(()) };
    if now.id != base.id {
        return Ok(());
    }
    let saved = roots
        .slot_at(op.layer, &write.undo_copy)
        .and_then(|e| e.open(OFlags::RDONLY))
        .map_err(|e| io("reading the saved content of", e))?;
    let ours = there(roots.slot(op))
        .and_then(|end| end.map(|e| open_past_mode(&e, OFlags::RDONLY)).transpose())
        .or_else(|e| if e == Errno::NOENT { Ok(None) } else { Err(e) })
        .map_err(|e| io("reading the new content of", e))?;
    let look = |file: &OwnedFd| inplace::content(file, &saved, ours.as_ref());
    for _ in 0..LOOKS_MAX {
        let current = open_past_mode(target, OFlags::RDONLY).map_err(|e| io("reading", e))?;
        let content = look(&current).map_err(|e| io("reading", e))?;
        drop(current);
        // Old: only attributes, or somebody's look alike: no byte is other than before.
        if content == inplace::Content::Old && now == base {
            return Ok(());
        }
        let put_back_with = |to: &OwnedFd| inplace::write_content(&saved, to);
        if content == inplace::Content::Old
            || put_back(plan, roots, op, target, content, notes, &look, &put_back_with)?
        {
            return undo_attrs(plan, op, target, &base, &now);
        }
    }
    Err(io("undoing", Errno::BUSY))
}

/// How often something that outsiders change at the same time is looked at.
const LOOKS_MAX: u32 = 8;

/// Writes old bytes back into an inode that holds others, while nobody else can open it if nobody has.
/// What neither was there before nor is ours is kept aside first, and told of.
///
/// `false`: somebody has written to it since it was looked at, and nothing was done.
#[expect(
    clippy::too_many_arguments,
    reason = "what is undone, how it was found, and how it is done"
)]
fn put_back(
    plan: &Plan,
    roots: &Roots,
    op: &Op,
    target: &EntryRef,
    content: inplace::Content,
    notes: &mut Vec<String>,
    look: &dyn Fn(&OwnedFd) -> std::result::Result<inplace::Content, Errno>,
    write: &dyn Fn(&OwnedFd) -> std::result::Result<(), Errno>,
) -> Result<bool> {
    let io = |step, e| at_target(plan, op, step, e);
    if content == inplace::Content::Foreign {
        let at = roots.rescue_copy(op, plan.id, target).map_err(|e| io("rescuing", e))?;
        notes.push(rescued::note(&plan.target_path(op), &at));
    }
    let to = open_past_mode(target, OFlags::RDWR).map_err(|e| io("undoing", e))?;
    // Another one by now: it is later, and nothing of ours is in it.
    if !is_open(&to, &op.base).map_err(|e| io("looking at", e))? {
        return Ok(true);
    }
    let _alone = inplace::Alone::with(&to);
    if look(&to).map_err(|e| io("looking at", e))? != content {
        return Ok(false);
    }
    let kept = inplace::Kept::of(&to, op).map_err(|e| io("looking at", e))?;
    write(&to).map_err(|e| io("undoing", e))?;
    kept.restore(&to).map_err(|e| io("undoing", e))?;
    Ok(true)
}

/// Whether an open file is the one that an operation is about.
fn is_open(file: &OwnedFd, base: &Option<Version>) -> std::result::Result<bool, Errno> {
    let now = crate::version::stat_at(file.as_fd(), b"", AtFlags::EMPTY_PATH)?;
    Ok(base.is_some_and(|v| v.id == now.id))
}

/// The attributes and the time of an inode whose content has just been put back.
fn undo_attrs(
    plan: &Plan,
    op: &Op,
    target: &EntryRef,
    base: &Version,
    now: &Version,
) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let mut back = match op.attrs() {
        Some(change) => inplace::still_ours(target, change).map_err(|e| io("looking at", e))?,
        None => crate::changeset::AttrChange::default(),
    };
    // The time goes back even if the attributes were not to change it: writing did.
    back.mtime = Some((now.mtime, base.mtime));
    change_back(target, base, &back).map_err(|e| io("undoing", e))
}

/// Writes what a patch overwrote back, as [`undo_data`] does. If there is something that neither was there
/// before nor is ours, the file as it is is kept aside first.
fn undo_patch(
    plan: &Plan,
    roots: &Roots,
    op: &Op,
    write: &Write,
    found: Option<(Version, &EntryRef)>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let (Some(base), Some((now, target))) = (op.base, found) else { return Ok(()) };
    if now.id != base.id {
        return Ok(());
    }
    let old = inplace::read_patch(plan, roots, op, &write.undo_copy)?;
    let new = inplace::read_patch(plan, roots, op, &write.slot)?;
    let look = |file: &OwnedFd| inplace::patched(file, &old, &new);
    // What was only added is taken out of what others have added by now, or instead.
    let added = old.writes.is_empty().then(|| inplace::appended(&new, base.size)).flatten();
    for _ in 0..LOOKS_MAX {
        let current = open_past_mode(target, OFlags::RDONLY).map_err(|e| io("reading", e))?;
        let content = look(&current).map_err(|e| io("reading", e))?;
        drop(current);
        match (content, &added) {
            (inplace::Content::Old, _) if now == base => return Ok(()),
            (inplace::Content::Foreign, Some(tail)) => {
                return take_out_added(plan, op, target, &base, tail);
            }
            _ => {}
        }
        let put_back_with = |to: &OwnedFd| inplace::write_patch(&old, to);
        if content == inplace::Content::Old
            || put_back(plan, roots, op, target, content, notes, &look, &put_back_with)?
        {
            return undo_attrs(plan, op, target, &base, &now);
        }
    }
    Err(io("undoing", Errno::BUSY))
}

/// Of a file to which others append as well: theirs stays, and only what is ours is taken out.
fn take_out_added(
    plan: &Plan,
    op: &Op,
    target: &EntryRef,
    base: &Version,
    tail: &[u8],
) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let file = open_past_mode(target, OFlags::RDWR).map_err(|e| io("undoing", e))?;
    // Another one by now: it is later, and nothing of ours is in it.
    if !is_open(&file, &op.base).map_err(|e| io("looking at", e))? {
        return Ok(());
    }
    let alone = inplace::Alone::with(&file);
    let found = inplace::find_appended(&file, base.size, tail).map_err(|e| io("reading", e))?;
    if let Some(at) = found {
        inplace::take_out(&file, at, tail.len() as u64).map_err(|e| io("undoing", e))?;
    }
    drop(alone);
    let Some(change) = op.attrs() else { return Ok(()) };
    let mut back = inplace::still_ours(target, change).map_err(|e| io("looking at", e))?;
    back.mtime = None;
    change_back(target, base, &back).map_err(|e| io("undoing", e))
}

/// Opens a regular file, whatever its mode: its owner may have taken his own rights away. Its mode is another one meanwhile, and
/// its ctime.
pub(super) fn open_past_mode(end: &EntryRef, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
    match end.open(flags) {
        Err(Errno::ACCESS) => {
            let fd = end.open_path()?;
            let mode = sys::look("fstat", || rustix::fs::fstat(&fd))?.st_mode & 0o7777;
            sys::chmod(fd.as_fd(), mode | 0o600)?;
            let opened = end.open(flags);
            sys::chmod(fd.as_fd(), mode)?;
            opened
        }
        other => other,
    }
}

/// What came back out of the tree may carry an outsider's change: a copy of it is kept aside. Of
/// a directory, everything in it that is newer than the publish and not of our making.
fn rescue_if_touched(
    roots: &Roots,
    plan: &Plan,
    op: &Op,
    slot: &EntryRef,
    notes: &mut Vec<String>,
) -> Result<()> {
    let io = |e| at_target(plan, op, "rescuing", e);
    let (Some(new), Some(now)) = (&op.new, slot.look().map_err(io)?) else { return Ok(()) };
    let mut note = |path: &[u8], at: Vec<u8>| notes.push(rescued::note(path, &at));
    if new.kind() == FileKind::File && (new.size, new.mtime) != (now.size, now.mtime) {
        let at = roots.rescue_copy(op, plan.id, slot).map_err(io)?;
        note(&plan.target_path(op), at);
    }
    if new.kind() == FileKind::Dir {
        for (below, end) in newer_than(slot, plan.made).map_err(io)? {
            let at = roots.rescue_copy(op, plan.id, &end).map_err(io)?;
            note(&crate::path::join(&plan.target_path(op), &below), at);
        }
    }
    Ok(())
}

/// Regular files below a directory whose content changed after a stamp.
fn newer_than(
    top: &EntryRef,
    stamp: crate::version::Stamp,
) -> std::result::Result<Vec<(Vec<u8>, EntryRef)>, Errno> {
    let mut found = Vec::new();
    let root = top.open_path()?;
    let mut queue = vec![Vec::new()];
    while let Some(dir) = queue.pop() {
        let fd = std::rc::Rc::new(sys::open_dir_beneath(root.as_fd(), &dir)?);
        for (name, kind) in sys::names_in(fd.as_fd())? {
            let path = crate::path::layer::child(&dir, &name);
            if kind == rustix::fs::FileType::Directory {
                queue.push(path);
                continue;
            }
            let end = EntryRef { dir: fd.clone(), name };
            if end.look()?.is_some_and(|v| v.kind() == FileKind::File && v.mtime > stamp) {
                found.push((path, end));
            }
        }
    }
    Ok(found)
}
