//! Publishing a plan, and undoing it.
//!
//! # Invariants
//!
//! - An operation looks at both of its ends first and does nothing if they are not as planned;
//!   after a rename it looks at what came out, and if an outsider was faster it says so.
//! - [`undo`] needs no memory of how far the publish got: the identities at the two ends of each
//!   operation tell. It serves a failed publish and recovery after a crash alike, and may itself
//!   be interrupted and repeated.
//! - What an outsider did to an object in between is kept: where undoing would overwrite or lose
//!   it, it is moved to the store's `rescued/` and reported.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags, RenameFlags};
use rustix::io::Errno;

use super::field::{End, Field, at_target};
use super::inplace;
use super::plan::{Kind, Op, Plan};
use crate::error::{Conflict, Error, Result};
use crate::object::FileKind;
use crate::store::path_from;
use crate::sys;
use crate::version::Version;

/// Files opened for writing in place before the gate closed, by operation.
pub(super) type Opened = std::collections::HashMap<usize, OwnedFd>;

fn conflict(plan: &Plan, op: &Op, what: &str, now: Option<Version>) -> Error {
    Error::Conflict(vec![Conflict {
        path: path_from(&plan.target_path(op)),
        what: what.to_owned(),
        when: now.map(|v| v.ctime),
    }])
}

/// Carries out every operation of a plan.
///
/// # Errors
/// [`Error::Conflict`] or [`Error::Io`] of the first that could not be done; the caller undoes.
pub(super) fn publish(
    plan: &Plan,
    field: &Field,
    opened: &Opened,
    progress: &dyn super::Progress,
) -> Result<()> {
    for (index, op) in plan.ops.iter().enumerate() {
        apply(plan, field, op, opened.get(&index))?;
        if index % 256 == 255 {
            progress.advance(256);
        }
    }
    Ok(())
}

/// Whether an object is still the version that was planned with. A directory's times and size move
/// with its entries, which other operations may change; its names are validated with the read set.
/// The ctime of an inode with several links moves when another operation renames another link.
fn unchanged(before: &Version, now: &Version) -> bool {
    if before.kind() == FileKind::Dir {
        before.same_owner_and_mode(now)
    } else if before.nlink > 1 {
        before.same_but_ctime(now) && before.nlink == now.nlink
    } else {
        before == now
    }
}

/// Whether what came out of the tree is what went in: a rename changes ctime and nothing else.
fn came_out_whole(before: &Version, now: &Version) -> bool {
    if before.kind() == FileKind::Dir {
        before.same_owner_and_mode(now)
    } else {
        before.same_but_ctime(now) && before.nlink == now.nlink
    }
}

fn apply(plan: &Plan, field: &Field, op: &Op, opened: Option<&OwnedFd>) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let target = match field.target(op) {
        Ok(end) => end,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
            return Err(conflict(plan, op, "its directory was removed or replaced", None));
        }
        Err(e) => return Err(io("opening the directory of", e)),
    };
    let slot = |op| field.slot(op).map_err(|e| io("opening the staged copy of", e));
    if let Some(base) = &op.base
        && op.kind != Kind::DirTime
    {
        let now = target.look().map_err(|e| io("looking at", e))?;
        match &now {
            Some(v) if unchanged(base, v) => {}
            Some(v) if v.id != base.id => {
                return Err(conflict(plan, op, "it was replaced", now));
            }
            Some(_) => return Err(conflict(plan, op, "it was changed", now)),
            None => return Err(conflict(plan, op, "it was removed", None)),
        }
    }
    let rename = |from: &End, to: &End, flags| {
        match sys::rename(from.dir.as_fd(), &from.name, to.dir.as_fd(), &to.name, flags) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(conflict(plan, op, "it was created", to.look().ok().flatten())),
            Err(Errno::NOENT) => Err(conflict(plan, op, "it was removed", None)),
            Err(e) => Err(io("renaming", e)),
        }
    };
    let verify = |slot: &End| match (&op.base, slot.look().map_err(|e| io("looking at", e))?) {
        (Some(base), Some(now)) if came_out_whole(base, &now) => Ok(()),
        (_, now) => Err(conflict(plan, op, "it was changed while it was being replaced", now)),
    };
    let parent = own_mtime(&target).filter(|_| matches!(op.kind, Kind::MoveOut | Kind::MoveIn));
    match op.kind {
        Kind::Install => {
            let slot = slot(op)?;
            strip(&slot, op).map_err(|e| io("preparing", e))?;
            rename(&slot, &target, RenameFlags::NOREPLACE)?;
        }
        Kind::Exchange => {
            let slot = slot(op)?;
            strip(&slot, op).map_err(|e| io("preparing", e))?;
            rename(&slot, &target, RenameFlags::EXCHANGE)?;
            verify(&slot)?;
        }
        Kind::Remove | Kind::MoveOut => {
            let slot = slot(op)?;
            rename(&target, &slot, RenameFlags::NOREPLACE)?;
            verify(&slot)?;
        }
        Kind::MoveIn => {
            let slot = slot(op)?;
            let flags =
                if op.base.is_some() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
            rename(&slot, &target, flags)?;
            if op.base.is_some() {
                verify(&slot)?;
            }
        }
        Kind::Link => link(plan, field, op, &target)?,
        Kind::Data => {
            let to = opened.ok_or_else(|| io("writing", Errno::BADF))?;
            let from = slot(op)?.open(OFlags::RDONLY).map_err(|e| io("reading the new", e))?;
            inplace::write_content(&from, to).map_err(|e| io("writing", e))?;
            if let Some(change) = &op.attrs {
                inplace::change_attrs(&target, change).map_err(|e| io("changing", e))?;
            }
        }
        Kind::Attrs | Kind::DirTime => {
            if let Some(change) = &op.attrs {
                inplace::change_attrs(&target, change).map_err(|e| io("changing", e))?;
            }
        }
    }
    if matches!(op.kind, Kind::Exchange | Kind::MoveIn) {
        keep_times(&target, &op.new).map_err(|e| io("keeping the time of", e))?;
        if let Ok(slot) = field.slot(op) {
            keep_times(&slot, &op.base).map_err(|e| io("keeping the time of the old", e))?;
        }
    }
    // The directory that a move leaves or enters may itself be retained or put back, as it was;
    // where the move is a change of that directory, its own operation sets the time.
    if let Some(mtime) = parent {
        sys::set_mtime(target.dir.as_fd(), b".", mtime)
            .map_err(|e| io("restoring the time of the directory of", e))?;
    }
    if moves_a_directory(op) {
        field.forget();
    }
    Ok(())
}

/// XFS gives a directory that is exchanged a new mtime; it keeps the one it had.
fn keep_times(end: &End, was: &Option<Version>) -> std::result::Result<(), Errno> {
    let Some(was) = was.filter(|v| v.kind() == FileKind::Dir) else { return Ok(()) };
    match end.look()? {
        Some(now) if now.id == was.id && now.mtime != was.mtime => {
            sys::set_mtime(end.dir.as_fd(), &end.name, was.mtime)
        }
        _ => Ok(()),
    }
}

/// mtime of the directory an entry is in.
pub(super) fn own_mtime(end: &End) -> Option<crate::version::Stamp> {
    crate::version::stat_at(end.dir.as_fd(), b".", AtFlags::SYMLINK_NOFOLLOW).ok().map(|v| v.mtime)
}

/// Whether paths may lead elsewhere after the operation.
fn moves_a_directory(op: &Op) -> bool {
    let is_dir = |v: &Option<Version>| v.is_some_and(|v| v.kind() == FileKind::Dir);
    !matches!(op.kind, Kind::Attrs | Kind::DirTime | Kind::Data)
        && (is_dir(&op.base) || is_dir(&op.new))
}

fn link(plan: &Plan, field: &Field, op: &Op, target: &End) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let from = op.from.as_deref().unwrap_or_default();
    let other = field.target_at(op.layer, from).map_err(|e| io("opening the directory of", e))?;
    if op.base.is_none() {
        return match sys::link(other.dir.as_fd(), &other.name, target.dir.as_fd(), &target.name) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                Err(conflict(plan, op, "it was created", target.look().ok().flatten()))
            }
            Err(Errno::NOENT) => Err(conflict(plan, op, "its other name was removed", None)),
            Err(e) => Err(io("linking", e)),
        };
    }
    let slot = field.slot(op).map_err(|e| io("opening the staged copy of", e))?;
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
    match (&op.base, slot.look().map_err(|e| io("looking at", e))?) {
        (Some(base), Some(now)) if came_out_whole(base, &now) => Ok(()),
        (_, now) => Err(conflict(plan, op, "it was changed while it was being replaced", now)),
    }
}

/// Takes overlayfs's attributes off a staged object and what is below it.
fn strip(slot: &End, op: &Op) -> std::result::Result<(), Errno> {
    for_each_strip(slot, op, |dir, name, s| match sys::remove_xattr(dir.as_fd(), name, &s.name) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(e) => Err(e),
    })
}

/// Puts them back.
fn unstrip(slot: &End, op: &Op) -> std::result::Result<(), Errno> {
    for_each_strip(slot, op, |dir, name, s| sys::set_xattr(dir.as_fd(), name, &s.name, &s.value))
}

fn for_each_strip(
    slot: &End,
    op: &Op,
    mut f: impl FnMut(&OwnedFd, &[u8], &crate::changeset::Strip) -> std::result::Result<(), Errno>,
) -> std::result::Result<(), Errno> {
    for s in &op.strip {
        if s.below.is_empty() {
            f(&slot.dir, &slot.name, s)?;
            continue;
        }
        let root = slot.open_path()?;
        let (dir, name) = crate::changeset::split(&s.below);
        let dir = sys::open_dir_beneath(root.as_fd(), dir)?;
        f(&dir, name, s)?;
    }
    Ok(())
}

/// Undoes whatever of a plan was done, last first. Gives notes for a person.
///
/// # Errors
/// [`Error::Io`] if something could not be undone; repeating may help, the journal stays.
pub(super) fn undo(plan: &Plan, field: &Field) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    field.forget();
    for op in plan.ops.iter().rev() {
        undo_one(plan, field, op, &mut notes)?;
        if moves_a_directory(op) {
            field.forget();
        }
    }
    // Undoing renames moved the directories' times once more.
    for op in plan.ops.iter().filter(|o| o.kind == Kind::DirTime) {
        if let (Some(change), Ok(end)) = (&op.attrs, field.before(op))
            && let (Some((old, _)), Ok(Some(now)), Some(base)) = (change.mtime, end.look(), op.base)
            && now.id == base.id
            && now.mtime != old
        {
            sys::set_mtime(end.dir.as_fd(), &end.name, old)
                .map_err(|e| at_target(plan, op, "restoring the time of", e))?;
        }
    }
    Ok(notes)
}

/// Whether any operation of a plan was visibly carried out.
pub(super) fn anything_done(plan: &Plan, field: &Field) -> bool {
    plan.ops.iter().any(|op| {
        let (target, slot) = ends(field, op);
        let (target, slot) = (seen(target.as_ref()), seen(slot.as_ref()));
        let is = |v: &Option<Version>, id: &Option<Version>| {
            matches!((v, id), (Some(a), Some(b)) if a.id == b.id)
        };
        match op.kind {
            Kind::Install | Kind::Exchange | Kind::MoveIn => is(&target, &op.new),
            Kind::Remove | Kind::MoveOut => is(&slot, &op.base),
            Kind::Link | Kind::Data | Kind::Attrs | Kind::DirTime => false,
        }
    })
}

fn ends(field: &Field, op: &Op) -> (Option<End>, Option<End>) {
    let slot = if op.slot.is_empty() { None } else { field.slot(op).ok() };
    (field.target(op).ok(), slot)
}

fn seen(end: Option<&End>) -> Option<Version> {
    end.and_then(|e| e.look().ok().flatten())
}

fn undo_one(plan: &Plan, field: &Field, op: &Op, notes: &mut Vec<String>) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let (target, slot) = ends(field, op);
    let (at_target, at_slot) = (seen(target.as_ref()), seen(slot.as_ref()));
    let is = |v: &Option<Version>, id: &Option<Version>| {
        matches!((v, id), (Some(a), Some(b)) if a.id == b.id)
    };
    let shown = || crate::show::quoted_bytes(&plan.target_path(op));
    let rename = |from: &End, to: &End, flags| {
        sys::rename(from.dir.as_fd(), &from.name, to.dir.as_fd(), &to.name, flags)
    };
    match op.kind {
        Kind::Install | Kind::Exchange => {
            let Some(slot) = &slot else { return Ok(()) };
            if is(&at_target, &op.new) {
                let Some(target) = &target else { return Ok(()) };
                let exchange = op.kind == Kind::Exchange && at_slot.is_some();
                let flags =
                    if exchange { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
                rename(target, slot, flags).map_err(|e| io("undoing", e))?;
                keep_times(slot, &op.new).map_err(|e| io("undoing", e))?;
                keep_times(target, &op.base).map_err(|e| io("undoing", e))?;
                unstrip(slot, op).map_err(|e| io("restoring the staged copy of", e))?;
                rescue_if_touched(field, plan, op, slot, notes)?;
            } else if is(&at_slot, &op.new) {
                unstrip(slot, op).map_err(|e| io("restoring the staged copy of", e))?;
            } else if op.kind == Kind::Exchange && is(&at_slot, &op.base) {
                // Somebody has replaced or removed what we put there. Theirs is later: it stays.
                let at = field.rescue(op, plan.id).map_err(|e| io("rescuing the old", e))?;
                notes.push(format!(
                    "{} was changed by somebody else while it was being published; the version \
                     before is {} in the store",
                    shown(),
                    crate::show::quoted_bytes(&at)
                ));
            }
        }
        Kind::Remove | Kind::MoveOut => {
            if !is(&at_slot, &op.base) {
                return Ok(());
            }
            let (Some(target), Some(slot)) = (&target, &slot) else { return Ok(()) };
            match rename(slot, target, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    let at = field.rescue(op, plan.id).map_err(|e| io("rescuing the old", e))?;
                    notes.push(format!(
                        "{} was created by somebody else while it was being removed; what was \
                         removed is {} in the store",
                        shown(),
                        crate::show::quoted_bytes(&at)
                    ));
                }
                Err(e) => return Err(io("undoing", e)),
            }
        }
        Kind::MoveIn => {
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
        Kind::Link => {
            let Some(target) = &target else { return Ok(()) };
            let unlink = |end: &End| sys::unlink(end.dir.as_fd(), &end.name, AtFlags::empty());
            if op.base.is_none() {
                // Done, if the name is the same inode as its other name.
                let other = field
                    .target_at(op.layer, op.from.as_deref().unwrap_or_default())
                    .ok()
                    .and_then(|e| e.look().ok().flatten());
                if at_target.is_some() && is(&at_target, &other) && is(&at_target, &op.new) {
                    unlink(target).map_err(|e| io("undoing", e))?;
                }
                return Ok(());
            }
            let Some(slot) = &slot else { return Ok(()) };
            if is(&at_target, &op.new) && is(&at_slot, &op.base) {
                rename(slot, target, RenameFlags::EXCHANGE).map_err(|e| io("undoing", e))?;
                unlink(slot).map_err(|e| io("undoing", e))?;
            } else if is(&at_slot, &op.new) {
                unlink(slot).map_err(|e| io("undoing", e))?;
            }
        }
        Kind::Data => undo_data(plan, field, op, at_target, target.as_ref())?,
        Kind::Attrs | Kind::DirTime => {
            let (Some(target), Some(change)) = (&target, &op.attrs) else { return Ok(()) };
            if !is(&at_target, &op.base) || at_target == op.base {
                return Ok(());
            }
            inplace::change_attrs(target, &change.reversed()).map_err(|e| io("undoing", e))?;
        }
    }
    Ok(())
}

/// Writes the saved content back, unless the inode was never touched.
fn undo_data(
    plan: &Plan,
    field: &Field,
    op: &Op,
    now: Option<Version>,
    target: Option<&End>,
) -> Result<()> {
    let io = |step, e| at_target(plan, op, step, e);
    let (Some(base), Some(now), Some(target)) = (op.base, now, target) else { return Ok(()) };
    if now.id != base.id || now == base {
        return Ok(());
    }
    let saved = field
        .slot_at(op.layer, &op.saved)
        .and_then(|e| e.open(OFlags::RDONLY))
        .map_err(|e| io("reading the saved content of", e))?;
    let to = open_writable(target).map_err(|e| io("undoing", e))?;
    inplace::write_content(&saved, &to).map_err(|e| io("undoing", e))?;
    drop(to);
    let mut change = op.attrs.as_deref().map(crate::changeset::AttrChange::reversed);
    // The time goes back even if the attributes were not to change it: writing did.
    change.get_or_insert_default().mtime = Some((now.mtime, base.mtime));
    if let Some(change) = change {
        inplace::change_attrs(target, &change).map_err(|e| io("undoing", e))?;
    }
    Ok(())
}

/// Opens a file for writing in place, whatever its mode: the owner may lack the write bit.
pub(super) fn open_writable(end: &End) -> std::result::Result<OwnedFd, Errno> {
    match end.open(OFlags::WRONLY) {
        Err(Errno::ACCESS) => {
            let fd = end.open_path()?;
            let mode = rustix::fs::fstat(&fd)?.st_mode & 0o7777;
            sys::chmod(fd.as_fd(), mode | 0o200)?;
            let opened = end.open(OFlags::WRONLY);
            sys::chmod(fd.as_fd(), mode)?;
            opened
        }
        other => other,
    }
}

/// What came back out of the tree may carry an outsider's change: then it is kept aside.
fn rescue_if_touched(
    field: &Field,
    plan: &Plan,
    op: &Op,
    slot: &End,
    notes: &mut Vec<String>,
) -> Result<()> {
    let (Some(new), Ok(Some(now))) = (&op.new, slot.look()) else { return Ok(()) };
    if new.kind() != FileKind::File || (new.size, new.mtime) == (now.size, now.mtime) {
        return Ok(());
    }
    let at = field.rescue(op, plan.id).map_err(|e| at_target(plan, op, "rescuing", e))?;
    notes.push(format!(
        "{} was written by somebody else while it was being published; what they wrote is {} in \
         the store",
        crate::show::quoted_bytes(&plan.target_path(op)),
        crate::show::quoted_bytes(&at)
    ));
    Ok(())
}
