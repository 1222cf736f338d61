//! Directories of an overlay's lower layers that a plan moves, replaces or takes away.
//!
//! Where the machine's own tree is an overlayfs, as in a container, the kernel refuses to rename a directory that is in a lower layer,
//! unless the overlay has `redirect_dir=on`. So the plan begins with an operation that rebuilds it: a directory with the same attributes
//! is made in the store, what is in the old one is moved there, the old one is removed, and the new one takes its place. Then it is a
//! directory of the upper layer, and can be renamed. What the rest of the plan says of the old directory, and of those in it, it says of
//! the new ones from here on.
//!
//! # What a crash leaves
//!
//! The old directory is removed by `rmdir(2)`, so only once all that was in it is in the new one. Hence three cases, and each can
//! be told from the two ends alone:
//!
//! | at the target | in the slot | |
//! |---|---|---|
//! | the old one | the new one | what is in the new one is moved back, and so is each directory in it whose old one is gone |
//! | nothing | the new one | the new one takes its place |
//! | the new one | nothing | done: it stays, and nobody can tell the two apart but by their inode numbers |

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::publish::{Touched, came_out_whole, unchanged};
use super::roots::{EntryRef, Roots, at_target};
use super::{copied_up, inplace};
use crate::error::{Conflict, ConflictKind, Error, Result};
use crate::object::{FileId, FileKind};
use crate::path::layer::{child, is_at_or_below, split};
use crate::path::{self, StorePath};
use crate::plan::{Does, Inside, Op, Plan, Rebuilt};
use crate::sys;
use crate::sys_tree::OpenTree;
use crate::version::{Stamp, Version, stat_at};

/// A directory that is to be rebuilt, with the new one made in the store.
pub(super) struct Rebuild {
    op: Op,
    /// The old directories, and their new ones.
    dirs: HashMap<FileId, Version>,
}

/// Finds the directories that the plan can't rename, and makes their new ones in the store. What they hold is what it is now: to be called
/// before the read set is validated.
///
/// # Errors
/// [`Error::Io`] if such a directory can't be read, or made anew with its attributes.
pub(super) fn find(plan: &Plan, roots: &Roots) -> Result<Vec<Rebuild>> {
    let mut found = Vec::new();
    let done = find_each(plan, roots, &mut found);
    if done.is_err() {
        discard(&found, roots);
    }
    done.map(|()| found)
}

fn find_each(plan: &Plan, roots: &Roots, found: &mut Vec<Rebuild>) -> Result<()> {
    let mut candidates: Vec<&Op> = plan.ops.iter().filter(|op| takes_a_directory(op)).collect();
    // What is in a directory follows it.
    candidates.sort_by_cached_key(|op| {
        (op.layer, op.before.split(|&c| c == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>())
    });
    let mut probe: Option<Probe> = None;
    for op in candidates {
        let is_in =
            |one: &Rebuild| one.op.layer == op.layer && is_at_or_below(&op.before, &one.op.before);
        if found.last().is_some_and(is_in) {
            continue;
        }
        let end = match roots.before(op) {
            // That is found when the read set is validated.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => continue,
            end => end.map_err(|e| at_target(plan, op, "opening the directory of", e))?,
        };
        if !copied_up::is_overlay(end.dir.as_fd()) {
            continue;
        }
        if probe.as_ref().is_none_or(|probe| probe.layer != op.layer) {
            let new = Probe::new(plan, roots, op.layer);
            probe = Some(new.map_err(|e| at_target(plan, op, "making room to move", e))?);
        }
        let Some(probe) = &probe else { continue };
        let refused = probe.refuses(end.dir.as_fd(), &end.name);
        if refused.map_err(|e| at_target(plan, op, "renaming", e))? {
            let slot = place(plan, op.layer, &format!("rebuilt-{}", found.len()));
            found.push(make(plan, roots, op, &end, slot, probe)?);
        }
    }
    Ok(())
}

/// Whether an operation renames the directory that is at its target.
fn takes_a_directory(op: &Op) -> bool {
    let Some(base) = op.base.filter(|base| base.kind() == FileKind::Dir) else { return false };
    // No file system with a device of its own is an overlayfs.
    rustix::fs::major(base.id.dev) == 0 && !op.is_in_place() && op.held().is_none()
}

/// A place of the plan's transaction in a layer's store.
fn place(plan: &Plan, layer: u16, name: &str) -> StorePath {
    format!("tx/{}/l{layer}/old/{name}", plan.id).into_bytes().into()
}

/// A directory that is not empty, so that nothing is ever renamed to it.
struct Probe {
    layer: u16,
    /// Where it is.
    end: EntryRef,
}

impl Probe {
    fn new(plan: &Plan, roots: &Roots, layer: u16) -> std::result::Result<Probe, Errno> {
        let end = roots.new_slot_at(layer, &place(plan, layer, "occupied"))?;
        let probe = Probe { layer, end };
        make_dir(&probe.end)?;
        let inner = sys::open_dir_beneath(probe.end.dir.as_fd(), &probe.end.name)?;
        make_dir(&EntryRef { dir: Rc::new(inner), name: b"by".to_vec() })?;
        Ok(probe)
    }

    /// Whether the kernel refuses to rename a directory, as it does on an overlay where it is in a lower layer. It looks at that before
    /// it looks at what is in the way.
    ///
    /// A directory that hides an object of a lower layer can be renamed, and leaves a whiteout then. ext4 makes that, and takes it back
    /// again, before it looks at what is in the way, so the directory that holds both has another time by now. It gets its own back: the
    /// time tells whether somebody has changed the names in it, and nobody has.
    fn refuses(&self, dir: BorrowedFd<'_>, name: &[u8]) -> std::result::Result<bool, Errno> {
        let look = || stat_at(dir, b"", AtFlags::EMPTY_PATH);
        let before = look()?;
        let refused = sys::why_not_renamed(dir, name, self.end.dir.as_fd(), &self.end.name);
        if look()?.mtime != before.mtime {
            // (What somebody else does to the names in just this instant shows in them, and in the time of change.)
            inplace::not_ours(sys::set_mtime(dir, b".", before.mtime))?;
        }
        match refused {
            Err(Errno::XDEV) => Ok(true),
            // Gone, or something else by now: that is found when the read set is validated.
            Ok(())
            | Err(
                Errno::NOTEMPTY
                | Errno::EXIST
                | Errno::NOENT
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::LOOP,
            ) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // What stays goes with the transaction's other places.
        let _ = remove_empty(&self.end);
    }
}

fn make_dir(end: &EntryRef) -> std::result::Result<(), Errno> {
    match sys::mkdir(end.dir.as_fd(), &end.name, 0o700) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// Makes the new directory, with all directories in it that have to be made anew.
fn make(
    plan: &Plan,
    roots: &Roots,
    of: &Op,
    old: &EntryRef,
    slot: StorePath,
    probe: &Probe,
) -> Result<Rebuild> {
    let mut at = Vec::new();
    let mut build = || -> std::result::Result<Rebuild, Errno> {
        let end = roots.new_slot_at(of.layer, &slot)?;
        // A commit that was killed here, or that others were faster than, has left it.
        remove_empty(&end)?;
        sys::mkdir(end.dir.as_fd(), &end.name, 0o700)?;
        let from = OpenTree::new(sys::open_dir_beneath(old.dir.as_fd(), &old.name)?);
        let to = OpenTree::new(sys::open_dir_beneath(end.dir.as_fd(), &end.name)?);
        let base = stat_at(old.dir.as_fd(), &old.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (mut inside, mut queue) = (Vec::new(), vec![Vec::new()]);
        while let Some(dir) = queue.pop() {
            at.clone_from(&dir);
            let (here, there) = (from.dir(&dir)?, to.dir(&dir)?);
            for (name, kind) in sys::names_in(here.as_fd())? {
                let below = child(&dir, &name);
                at.clone_from(&below);
                let version = stat_at(here.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_dir = kind == FileType::Directory;
                let anew = is_dir && probe.refuses(here.as_fd(), &name)?;
                if anew {
                    sys::mkdir(there.as_fd(), &name, 0o700)?;
                    queue.push(below.clone());
                }
                inside.push(Inside { below, version, anew, left: Cell::default() });
            }
        }
        // What is in a directory comes before it.
        inside.reverse();
        let mut dirs = HashMap::new();
        for one in inside.iter().filter(|one| one.anew) {
            at.clone_from(&one.below);
            let (dir, name) = split(&one.below);
            let ends = [from.dir(dir)?, to.dir(dir)?];
            let [old, new] = ends.map(|dir| EntryRef { dir, name: name.to_vec() });
            dirs.insert(one.version.id, made_like(&old, &new)?);
        }
        at.clear();
        let new = made_like(old, &end)?;
        dirs.insert(base.id, new);
        let anew = inside.iter().filter(|one| one.anew);
        let times = anew.map(|one| (one.below.clone(), one.version.mtime)).collect();
        let op = Op {
            layer: of.layer,
            target: of.before.clone(),
            before: of.before.clone(),
            after: of.before.clone(),
            base: Some(base),
            new: Some(new),
            shown: false,
            below: 0,
            own_version: None,
            does: Does::Rebuild(Rebuilt {
                slot: slot.clone(),
                times,
                inside,
                left: Cell::default(),
            }),
        };
        Ok(Rebuild { op, dirs })
    };
    build().map_err(|e| {
        let path = path::from_bytes(&beneath(plan.before_path(of), &at));
        match e {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE if !at.is_empty() => {
                let what = ConflictKind::Changed;
                Error::Conflict(vec![Conflict { path, what, when: None }])
            }
            e => Error::io("making anew the overlay's lower directory", path, e),
        }
    })
}

/// Gives a new directory the attributes of the old one. Gives its version.
fn made_like(old: &EntryRef, new: &EntryRef) -> std::result::Result<Version, Errno> {
    inplace::copy_attrs(old, new)?;
    let look = |end: &EntryRef| end.look()?.ok_or(Errno::NOENT);
    let (was, is) = (look(old)?, look(new)?);
    let owned = (was.uid, was.gid, was.mode) == (is.uid, is.gid, is.mode);
    if owned { Ok(is) } else { Err(Errno::PERM) }
}

/// Puts the operations that rebuild before those that need it, and has these be about the new directories.
pub(super) fn put_first(plan: &mut Plan, rebuilds: Vec<Rebuild>) {
    let mut first = Vec::with_capacity(rebuilds.len() + plan.ops.len());
    for Rebuild { op, dirs } in rebuilds {
        for other in plan.ops.iter_mut().filter(|other| other.layer == op.layer) {
            for version in [&mut other.base, &mut other.new].into_iter().flatten() {
                if let Some(new) = dirs.get(&version.id) {
                    (version.id, version.nlink, version.size) = (new.id, new.nlink, new.size);
                    version.ctime = new.ctime;
                }
            }
        }
        first.push(op);
    }
    if !first.is_empty() {
        first.append(&mut plan.ops);
        plan.ops = first;
    }
}

/// Removes new directories that no plan was carried out with. What can't be removed goes with the transaction.
pub(super) fn discard(rebuilds: &[Rebuild], roots: &Roots) {
    for rebuild in rebuilds {
        if let Ok(end) = roots.slot(&rebuild.op) {
            let _ = remove_empty(&end);
        }
    }
}

/// Takes the operations that have rebuilt something out of a plan that is done: they have changed no name.
pub(super) fn forget(plan: &mut Plan) {
    plan.ops.retain(|op| !op.is_rebuild());
}

/// A path in a directory; the directory itself for the empty one.
fn beneath(top: Vec<u8>, below: &[u8]) -> Vec<u8> {
    if below.is_empty() { top } else { child(&top, below) }
}

/// Removes directories that hold nothing but directories.
fn remove_empty(top: &EntryRef) -> std::result::Result<(), Errno> {
    let Some(now) = top.look()? else { return Ok(()) };
    if now.kind() != FileKind::Dir {
        return Err(Errno::NOTDIR);
    }
    let tree = OpenTree::new(sys::open_dir_beneath(top.dir.as_fd(), &top.name)?);
    let (mut dirs, mut next) = (vec![Vec::new()], 0);
    while let Some(dir) = dirs.get(next).cloned() {
        for (name, kind) in sys::names_in(tree.dir(&dir)?.as_fd())? {
            if kind != FileType::Directory {
                return Err(Errno::NOTEMPTY);
            }
            dirs.push(child(&dir, &name));
        }
        next += 1;
    }
    for dir in dirs.iter().skip(1).rev() {
        let (above, name) = split(dir);
        sys::unlink(tree.dir(above)?.as_fd(), name, AtFlags::REMOVEDIR)?;
    }
    sys::unlink(top.dir.as_fd(), &top.name, AtFlags::REMOVEDIR)
}

/// What stands in the way of a rebuild.
enum Stop {
    /// Somebody was faster.
    Conflict(ConflictKind, Option<Stamp>),
    Failed(&'static str, Errno),
}

fn failed(step: &'static str) -> impl Fn(Errno) -> Stop {
    move |e| match e {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Stop::Conflict(ConflictKind::Removed, None),
        Errno::EXIST => Stop::Conflict(ConflictKind::CreatedMeanwhile, None),
        Errno::NOTEMPTY => Stop::Conflict(ConflictKind::Names, None),
        e => Stop::Failed(step, e),
    }
}

/// Rebuilds a directory, and notes as what it leaves each object.
///
/// # Errors
/// [`Error::Conflict`] if what it holds is not as it was found; any [`Error::Io`]. The caller undoes.
pub(super) fn carry_out(
    plan: &Plan,
    op: &Op,
    rebuilt: &Rebuilt,
    (target, slot): (&EntryRef, &EntryRef),
) -> Result<()> {
    let mut at = &[][..];
    let mut rebuild = || -> std::result::Result<(), Stop> {
        let Some(base) = op.base else { return Ok(()) };
        let open = |end: &EntryRef| {
            let opened = sys::open_dir_beneath(end.dir.as_fd(), &end.name);
            opened.map(OpenTree::new).map_err(failed("opening"))
        };
        let (from, to) = (open(target)?, open(slot)?);
        let ends = |below: &[u8]| -> std::result::Result<(EntryRef, EntryRef), Stop> {
            let (dir, name) = split(below);
            let end = |tree: &OpenTree| {
                let dir = tree.dir(dir).map_err(failed("opening"))?;
                Ok(EntryRef { dir, name: name.to_vec() })
            };
            Ok((end(&from)?, end(&to)?))
        };
        // Later their times are those of what is moved out of them.
        is_as_found(target, &base)?;
        for one in rebuilt.inside.iter().filter(|one| one.anew) {
            at = &one.below;
            is_as_found(&ends(at)?.0, &one.version)?;
        }
        for one in &rebuilt.inside {
            at = &one.below;
            let (old, new) = ends(at)?;
            one.left.set(Some(if one.anew {
                from.forget_below(at);
                to.forget_below(at);
                take_over(&old, &new, &one.version)?
            } else {
                move_one(&old, &new, &one.version)?
            }));
        }
        at = &[];
        drop((from, to));
        take_over(target, slot, &base)?;
        slot.rename_to(target).map_err(failed("renaming"))?;
        rebuilt.left.set(target.look().map_err(failed("looking at"))?);
        Ok(())
    };
    rebuild().map_err(|stop| {
        let path = path::from_bytes(&beneath(plan.target_path(op), at));
        match stop {
            Stop::Failed(step, e) => Error::io(step, path, e),
            Stop::Conflict(what, when) => Error::Conflict(vec![Conflict { path, what, when }]),
        }
    })
}

fn look(end: &EntryRef) -> std::result::Result<Version, Stop> {
    let now = end.look().map_err(failed("looking at"))?;
    now.ok_or(Stop::Conflict(ConflictKind::Removed, None))
}

/// Whether nobody has changed an old directory, or the names in it, since it was found.
fn is_as_found(old: &EntryRef, found: &Version) -> std::result::Result<(), Stop> {
    let now = look(old)?;
    let what = if now.id != found.id {
        ConflictKind::Replaced
    } else if !found.same_owner_and_mode(&now) {
        ConflictKind::OwnerOrMode
    } else if found.mtime != now.mtime {
        ConflictKind::Names
    } else {
        return Ok(());
    };
    Err(Stop::Conflict(what, Some(now.ctime)))
}

/// Removes an old directory, of which the new one has all that was in it. What others have changed of its attributes meanwhile is a conflict; if they
/// do so in the last moment, the new one has them.
fn take_over(
    old: &EntryRef,
    new: &EntryRef,
    found: &Version,
) -> std::result::Result<Version, Stop> {
    let open = sys::open_dir_beneath(old.dir.as_fd(), &old.name).map_err(failed("opening"))?;
    same_attributes(&open, new)?;
    sys::set_mtime(new.dir.as_fd(), &new.name, found.mtime)
        .map_err(failed("keeping the time of"))?;
    sys::unlink(old.dir.as_fd(), &old.name, AtFlags::REMOVEDIR).map_err(failed("removing"))?;
    if let Err(stop) = same_attributes(&open, new) {
        let _ = give(&open, new);
        return Err(stop);
    }
    look(new)
}

/// The extended attributes of a directory, but those that are the overlay's own.
fn xattrs(dir: BorrowedFd<'_>, name: &[u8]) -> sys::Sys<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = sys::xattrs_in(dir, name)?;
    all.retain(|(name, _)| !crate::changeset::is_overlay_xattr(name));
    Ok(all)
}

/// Whether a new directory has the attributes of the old one, be that still in the tree or not.
fn same_attributes(old: &OwnedFd, new: &EntryRef) -> std::result::Result<(), Stop> {
    let was = stat_at(old.as_fd(), b"", AtFlags::EMPTY_PATH).map_err(failed("looking at"))?;
    let is = look(new)?;
    if (was.uid, was.gid, was.mode) != (is.uid, is.gid, is.mode) {
        return Err(Stop::Conflict(ConflictKind::OwnerOrMode, Some(was.ctime)));
    }
    let all = [xattrs(old.as_fd(), b""), xattrs(new.dir.as_fd(), &new.name)];
    let [of_old, of_new] = all.map(|all| all.map_err(failed("looking at the attributes of")));
    if of_old? != of_new? {
        return Err(Stop::Conflict(ConflictKind::ExtendedAttributes, Some(was.ctime)));
    }
    Ok(())
}

/// Gives a new directory the attributes of the old one, which is in no tree any more.
fn give(old: &OwnedFd, new: &EntryRef) -> std::result::Result<(), Errno> {
    let was = stat_at(old.as_fd(), b"", AtFlags::EMPTY_PATH)?;
    let fd = new.open_path()?;
    inplace::not_ours(sys::chown(fd.as_fd(), was.uid, was.gid))?;
    let theirs = xattrs(old.as_fd(), b"")?;
    for (name, _) in xattrs(new.dir.as_fd(), &new.name)? {
        if !theirs.iter().any(|(other, _)| *other == name) {
            sys::remove_xattr(new.dir.as_fd(), &new.name, &name)?;
        }
    }
    for (name, value) in &theirs {
        sys::set_xattr(new.dir.as_fd(), &new.name, name, value)?;
    }
    sys::chmod(fd.as_fd(), was.mode & 0o7777)
}

/// Moves one object of the old directory to the new one, if it is as it was found. Gives its version there.
fn move_one(old: &EntryRef, new: &EntryRef, found: &Version) -> std::result::Result<Version, Stop> {
    let now = look(old)?;
    if !unchanged(found, &now, &Touched::default()) {
        let what = if found.id == now.id { ConflictKind::Changed } else { ConflictKind::Replaced };
        return Err(Stop::Conflict(what, Some(now.ctime)));
    }
    // A name of several becomes a file of its own.
    let separated = copied_up::separated(old.dir.as_fd(), &old.name, &now).ok().flatten();
    let base = separated.unwrap_or(now);
    old.rename_to(new).map_err(failed("renaming"))?;
    let moved = look(new)?;
    if came_out_whole(&base, &moved) {
        Ok(moved)
    } else {
        Err(Stop::Conflict(ConflictKind::ChangedWhileReplaced, Some(moved.ctime)))
    }
}

/// What the rebuilding has made of objects that were found: as they were, and as they were left.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// By their identity.
    objects: HashMap<FileId, (Version, Version)>,
    /// By where they were: each name of a file that had several is a file of its own by now.
    names: HashMap<Vec<u8>, (Version, Version)>,
}

impl Left {
    /// By all rebuilding of a plan, as far as it was carried out.
    pub fn by(plan: &Plan) -> Left {
        let mut left = Left::default();
        for op in &plan.ops {
            let Does::Rebuild(rebuilt) = &op.does else { continue };
            let target = plan.target_path(op);
            let top = op.base.zip(rebuilt.left.get());
            left.objects.extend(top.map(|(found, now)| (found.id, (found, now))));
            for one in &rebuilt.inside {
                let (found, Some(now)) = (one.version, one.left.get()) else { continue };
                // (The time of change of one that stays a file of several names is that of the last that was moved.)
                if found.kind() != FileKind::Dir && found.id != now.id {
                    left.names.insert(path::join(&target, &one.below), (found, now));
                } else {
                    left.objects.insert(found.id, (found, now));
                }
            }
        }
        left
    }

    /// Whether nothing was rebuilt.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.names.is_empty()
    }

    /// The version that an object has, of which this one was seen at an absolute path. Of a directory that somebody has changed since, the other
    /// one's with its identity.
    pub fn now(&self, path: &[u8], was: &Version) -> Version {
        let object = self.objects.get(&was.id);
        match object.or_else(|| self.names.get(path)) {
            Some((found, left)) if found == was => *left,
            Some((found, left)) if was.kind() == FileKind::Dir && found.id == was.id => {
                Version { id: left.id, ..*was }
            }
            _ => *was,
        }
    }
}

/// Lists the new directories that are in the tree when the plan is carried out. An overlayfs marks a directory to which a file of a lower layer was
/// moved, and takes the mark away, with another time of change, when somebody lists it and no such file is there any more: it does so now, before the commit's stamp.
pub(super) fn list(plan: &Plan, roots: &Roots) {
    let new = plan.ops.iter().filter(|op| op.is_rebuild()).filter_map(|op| op.new);
    let new: Vec<FileId> = new.map(|new| new.id).collect();
    let placed = |op: &&Op| {
        !op.is_rebuild() && !op.takes_away() && op.new.is_some_and(|v| new.contains(&v.id))
    };
    for op in plan.ops.iter().filter(placed) {
        // Where that fails a revert may find that another time was set.
        let _ = roots.after(op).and_then(|end| list_below(&end));
    }
}

fn list_below(top: &EntryRef) -> std::result::Result<(), Errno> {
    let tree = OpenTree::new(sys::open_dir_beneath(top.dir.as_fd(), &top.name)?);
    let mut queue = vec![Vec::new()];
    while let Some(dir) = queue.pop() {
        for (name, kind) in sys::names_in(tree.dir(&dir)?.as_fd())? {
            if kind == FileType::Directory {
                queue.push(child(&dir, &name));
            }
        }
    }
    Ok(())
}

/// Undoes as much of a rebuild as was done. Can be repeated.
///
/// # Errors
/// [`Error::Io`] if something can't be moved back.
pub(super) fn undo(
    plan: &Plan,
    roots: &Roots,
    op: &Op,
    rebuilt: &Rebuilt,
    (target, slot): (&EntryRef, &EntryRef),
    notes: &mut Vec<String>,
) -> Result<()> {
    let io = |e| at_target(plan, op, "undoing", e);
    if slot.look().map_err(io)?.is_none() {
        return Ok(());
    }
    let now = target.look().map_err(io)?;
    if now.is_none() {
        match slot.rename_to(target) {
            Err(Errno::EXIST) => {}
            back => return back.map_err(io),
        }
    }
    // By inode numbers alone it can't be told after the overlay was mounted again. Nothing is overwritten, whoever's it is.
    let is_new = |now: &Version| op.new.is_some_and(|new| new.id == now.id);
    let is_old = now.is_some_and(|now| {
        let rights = |v: &Version| (v.uid, v.gid, v.mode);
        let same = op.base.is_some_and(|base| rights(&base) == rights(&now));
        op.base.is_some_and(|base| base.id == now.id) || same && !is_new(&now)
    });
    if is_old {
        move_back(roots, plan, op, rebuilt, (target, slot), notes).map_err(io)?;
        return remove_empty(slot).map_err(io);
    }
    if remove_empty(slot).is_ok() {
        return Ok(());
    }
    let at = roots.rescue(op, plan.id).map_err(io)?;
    notes.push(format!(
        "{} was replaced by somebody else while it was being published; what was in it is {} in the store",
        crate::show::quoted_bytes(&plan.target_path(op)),
        crate::show::quoted_bytes(&at)
    ));
    Ok(())
}

/// Moves what is in the new directory back to the old one, and gives that its times.
fn move_back(
    roots: &Roots,
    plan: &Plan,
    op: &Op,
    rebuilt: &Rebuilt,
    (target, slot): (&EntryRef, &EntryRef),
    notes: &mut Vec<String>,
) -> std::result::Result<(), Errno> {
    let open =
        |end: &EntryRef| sys::open_dir_beneath(end.dir.as_fd(), &end.name).map(OpenTree::new);
    let (old, new) = (open(target)?, open(slot)?);
    let times: HashMap<&[u8], Stamp> =
        rebuilt.times.iter().map(|(below, time)| (&below[..], *time)).collect();
    let mut queue = vec![Vec::new()];
    let mut walked = Vec::new();
    while let Some(dir) = queue.pop() {
        let (here, there) = (new.dir(&dir)?, old.dir(&dir)?);
        for (name, kind) in sys::names_in(here.as_fd())? {
            let below = child(&dir, &name);
            let is_dir = |v: Version| v.kind() == FileKind::Dir;
            let in_old = match stat_at(there.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => None,
                looked => Some(looked?),
            };
            if kind == FileType::Directory && in_old.is_some_and(is_dir) {
                queue.push(below);
                continue;
            }
            let from = EntryRef { dir: here.clone(), name };
            let to = EntryRef { dir: there.clone(), name: from.name.clone() };
            match from.rename_to(&to) {
                Err(Errno::EXIST) => {
                    let at = roots.rescue_entry(op.layer, plan.id, &from, &from.name)?;
                    notes.push(format!(
                        "{} could not be put back, because somebody else created something there; it is {} in the store",
                        crate::show::quoted_bytes(&path::join(&plan.target_path(op), &below)),
                        crate::show::quoted_bytes(&at)
                    ));
                }
                moved => moved?,
            }
        }
        walked.push(dir);
    }
    for dir in walked.iter().rev() {
        let known = times.get(&dir[..]).copied();
        let time = if dir.is_empty() { op.base.map(|base| base.mtime) } else { known };
        if let Some(time) = time {
            inplace::not_ours(sys::set_mtime_of(old.dir(dir)?.as_fd(), time))?;
        }
    }
    Ok(())
}

/// The versions that the objects of a directory had, and those that they have after its rebuild was undone or stays: only the inode of a directory, and
/// the time of change, are other.
pub(super) fn left(roots: &Roots, op: &Op) -> Vec<(Version, Version)> {
    let Does::Rebuild(rebuilt) = &op.does else { return Vec::new() };
    let look = |below: &[u8]| {
        let end = roots.target_at(op.layer, &beneath(op.before.to_vec(), below)).ok()?;
        let seen = crate::version::observe(end.dir.as_fd(), &end.name, AtFlags::SYMLINK_NOFOLLOW);
        seen.ok().filter(|(_, keeps_changing)| !keeps_changing).map(|(now, _)| now)
    };
    let inside = rebuilt.inside.iter().map(|one| (&one.below[..], one.version));
    let all = op.base.map(|base| (&[][..], base)).into_iter().chain(inside);
    let made = rebuilt.inside.iter().map(|one| &one.left).chain([&rebuilt.left]);
    let made = made.filter_map(|left| left.get().map(|v| v.id));
    let ours: HashSet<FileId> = made.chain(op.new.map(|v| v.id)).collect();
    all.filter_map(|(below, was)| {
        let now = look(below)?;
        let is_known = now.id == was.id || ours.contains(&now.id);
        let as_was = match was.kind() {
            FileKind::Dir => Version { id: was.id, nlink: was.nlink, size: was.size, ..now },
            _ => now,
        };
        (is_known && was.same_but_ctime(&as_was) && was.nlink == as_was.nlink).then_some((was, now))
    })
    .collect()
}
