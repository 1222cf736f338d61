//! Staging: everything a plan needs in the stores before the first name in the tree is touched.
//!
//! - A changed copy of a file that somebody has open for writing is not put in the file's place under
//!   their hands: it is turned into a change in place. A new object is exchanged all the same.
//! - A file to which both sides only appended is merged: a copy of what is there now, with the
//!   transaction's suffix.
//! - The old content of what is changed in place is saved.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::inplace;
use super::publish;
use super::roots::{EntryRef, Roots, at_target};
use crate::changeset::{AttrChange, Attrs, same_bytes};
use crate::error::{Conflict, ConflictKind, Error, Result};
use crate::object::{Facets, FileKind};
use crate::path::{self, LayerPath, Moves, StorePath};
use crate::plan::{Does, Exchanged, Op, Plan, Staged, Write};
use crate::readset::{Observation, Outcome, ReadSet};
use crate::store::{Transaction, old_place};
use crate::sys;
use crate::version::Version;

/// Stages a plan. Nothing in the tree is changed. Gives the number of files of which an append was merged.
///
/// # Errors
/// [`Error::Conflict`] for an append that can't be merged, [`Error::Io`] with step and path.
pub(super) fn stage(
    tx: &Transaction,
    plan: &mut Plan,
    roots: &Roots,
    reads: &ReadSet,
    merge_append: bool,
) -> Result<u64> {
    make_slots(plan, roots)?;
    let mut merged = 0;
    let mut writers = Writers::default();
    let mut next = 0;
    let others = others_of_links(plan);
    for index in 0..plan.ops.len() {
        let Some(op) = plan.ops.get(index) else { break };
        let path = plan.before_path(op);
        let appends =
            merge_append && reads.get(&path).is_some_and(|seen| seen.facets().is_append());
        // Of these nothing is staged.
        let only_named = match op.does {
            Does::Install(_)
            | Does::Remove { .. }
            | Does::MoveOut { .. }
            | Does::MoveIn { .. }
            | Does::Rebuild(_)
            | Does::Attrs { .. }
            | Does::DirTime { .. } => true,
            Does::Exchange { .. } | Does::Link { .. } | Does::Data(_) | Does::Patch { .. } => false,
        };
        if only_named && !appends {
            continue;
        }
        let mut op = op.clone();
        if appends {
            // The change set was read before the lock was taken; others append meanwhile.
            let now = roots.before(&op).and_then(|end| end.look());
            op.base = now.map_err(|e| at_target(plan, &op, "looking at", e))?.or(op.base);
        }
        if matches!(op.does, Does::Patch { .. })
            && reads.get(&path).is_some_and(Observation::is_by_pages)
        {
            take_newer_base(plan, roots, &mut op)?;
        }
        if merge_append && let Some(len) = to_be_merged(&op, reads.get(&path)) {
            let slot = slot_name(tx, &op, &mut next);
            merge(tx, plan, roots, &mut op, len, slot)?;
            merged += 1;
        }
        let is_file = |v: &Option<Version>| v.is_some_and(|v| v.kind() == FileKind::File);
        if op.is_exchange() && is_file(&op.base) && is_file(&op.new) {
            let target = before(plan, roots, &op)?;
            match &mut op.does {
                Does::Exchange { outsiders, .. } if inplace::has_writer(&target) => {
                    match outsiders {
                        Exchanged::Copy => stay_in_place(tx, plan, roots, &mut op, &target)?,
                        // Nobody who can write to the old inode gets a hand in the new one.
                        other if writers.stay(&target) => *other = Exchanged::FreshOverWriter,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let undo_copy = op.is_write().then(|| slot_name(tx, &op, &mut next));
        match &mut op.does {
            Does::Data(write) | Does::Patch { write, .. } => {
                write.undo_copy = undo_copy.unwrap_or_default();
                save_old(plan, roots, &op)?;
            }
            Does::Link { other, .. } => {
                let now = others.get(&index).unwrap_or(other);
                op.new = roots
                    .target_at(op.layer, now)
                    .and_then(|e| e.look())
                    .map_err(|e| at_target(plan, &op, "looking at the other name of", e))?;
                if op.new.is_none() {
                    return Err(conflict(&path, ConflictKind::OtherNameRemoved, None));
                }
            }
            _ => {}
        }
        if let Some(place) = plan.ops.get_mut(index) {
            *place = op;
        }
    }
    Ok(merged)
}

/// How long a commit waits in all for others to close the files that it replaces.
const WRITERS_WAIT: Duration = Duration::from_millis(2);
/// How long it sleeps between two looks.
const WRITERS_PAUSE: Duration = Duration::from_micros(200);

/// Waits for those who have a file open for writing that is to be replaced. Who adds a line to a log opens the file, writes and closes
/// it again: what was written then is there before the validation, and no conflict is missed. A daemon that keeps its
/// file open is not waited for any longer.
#[derive(Debug, Default)]
struct Writers {
    until: Option<Instant>,
}

impl Writers {
    /// Whether there still is one when the wait is over.
    fn stay(&mut self, file: &EntryRef) -> bool {
        let until = *self.until.get_or_insert_with(|| Instant::now() + WRITERS_WAIT);
        loop {
            if Instant::now() >= until {
                return inplace::has_writer(file);
            }
            std::thread::sleep(WRITERS_PAUSE);
            if !inplace::has_writer(file) {
                return false;
            }
        }
    }
}

/// Where the object at the other name of each link is before anything is published, by the link's index.
fn others_of_links(plan: &Plan) -> HashMap<usize, LayerPath> {
    let links = || {
        plan.ops.iter().enumerate().filter_map(|(index, op)| match &op.does {
            Does::Link { other, .. } => Some((index, op.layer, other)),
            _ => None,
        })
    };
    if links().next().is_none() {
        return HashMap::new();
    }
    // What says what is at a name when everything is published: not what takes away what was there before.
    let is_there = |o: &&Op| o.held().is_none() && !o.takes_away();
    let there: HashMap<(u16, &[u8]), &Op> =
        plan.ops.iter().filter(is_there).map(|o| ((o.layer, &o.target[..]), o)).collect();
    let mut moves: HashMap<u16, Moves<'_>> = HashMap::new();
    links()
        .map(|(index, layer, other)| {
            let now = match there.get(&(layer, &other[..])) {
                Some(o) => o.moved_from().unwrap_or(&o.before).into(),
                None => {
                    let moves = moves.entry(layer).or_insert_with(|| plan.moves(layer));
                    moves.mapped(other).map_or_else(|| other.clone(), LayerPath::from)
                }
            };
            (index, now)
        })
        .collect()
}

/// Checks that no change without an observation of its object overlooks somebody else's: such an
/// object must not have changed since the transaction began.
pub(super) fn check_unobserved(tx: &Transaction, plan: &Plan, reads: &ReadSet) -> Vec<Conflict> {
    plan.ops
        .iter()
        .filter(|op| {
            !matches!(op.does, Does::DirTime { .. } | Does::MoveIn { .. } | Does::Link { .. })
        })
        .filter_map(|op| {
            let base = op.base.filter(|base| tx.meta.may_be_changed(base))?;
            let from = plan.before_path(op);
            let seen = reads.get(&from);
            let overlooks = match &op.does {
                // Its times change with the names in it.
                Does::Attrs { change, .. } if base.kind() == FileKind::Dir => {
                    !change.is_only_mtime()
                        && tx.meta.may_be_changed_dir(&base)
                        && seen.is_none_or(|seen| !is_own(tx, change, seen, &base))
                }
                _ => seen.is_none(),
            };
            if !overlooks {
                return None;
            }
            Some(Conflict {
                path: path::from_bytes(&from),
                what: ConflictKind::ChangedSinceBegin,
                when: Some(base.ctime),
            })
        })
        .collect()
}

/// Whether a change of a directory's attributes is the transaction's own. overlayfs copies a directory with its attributes as soon
/// as something in it is changed: what differs from the stable one may be what others have changed since. It is not, if
/// the stable directory was looked at before anybody had changed it, and is as it was then.
fn is_own(tx: &Transaction, change: &AttrChange, seen: &Observation, base: &Version) -> bool {
    let Outcome::Present(first) = seen.outcome else { return false };
    let same_xattrs = first.ctime == base.ctime || seen.has_seen_xattrs();
    first.same_attributes(base)
        && !tx.meta.may_be_changed_dir(&first)
        && (change.xattrs.is_empty() || same_xattrs)
}

fn slot_name(tx: &Transaction, op: &Op, next: &mut u64) -> StorePath {
    *next += 1;
    let dir = format!("tx/{}/l{}", tx.id(), op.layer);
    crate::path::join(dir.as_bytes(), &old_place("staged-", *next)).into()
}

fn conflict(path: &[u8], what: ConflictKind, now: Option<Version>) -> Error {
    Error::Conflict(vec![Conflict {
        path: path::from_bytes(path),
        what,
        when: now.map(|v| v.ctime),
    }])
}

/// If the transaction only appended to a file that has changed since: how long it was then.
fn appended_beyond(seen: &Observation, now: &Version) -> Option<u64> {
    let facets = seen.facets();
    let read = Facets::DATA | Facets::ATTRS | Facets::XATTRS;
    let Outcome::Present(before) = seen.outcome else { return None };
    let only_append = facets.contains(Facets::APPEND) && !facets.intersects(read);
    let changed = only_append && before != *now && before.kind() == FileKind::File;
    changed.then(|| seen.appended_beyond.unwrap_or(before.size))
}

/// If an operation is an append that is to be merged with others': how long the file was before.
fn to_be_merged(op: &Op, seen: Option<&Observation>) -> Option<u64> {
    let writes = matches!(op.does, Does::Exchange { .. } | Does::Data(_));
    appended_beyond(seen?, &op.base?).filter(|_| writes)
}

/// The attributes of an object, as they are now.
fn attributes(end: &EntryRef) -> std::result::Result<Attrs, Errno> {
    let version = end.look()?.ok_or(Errno::NOENT)?;
    Attrs::read(&version, &sys::entry_path(end.dir.as_fd(), &end.name))
}

/// A file to which both sides have appended.
struct Appended {
    ours: OwnedFd,
    ours_len: u64,
    theirs: OwnedFd,
    target: EntryRef,
}

/// Looks whether both sides have only appended to a file that had `len` bytes before.
fn only_appended(
    tx: &Transaction,
    plan: &Plan,
    roots: &Roots,
    op: &Op,
    len: u64,
) -> Result<Appended> {
    let path = plan.before_path(op);
    let io = |step, e| Error::io(step, path::from_bytes(&path), std::io::Error::from(e));
    let target = before(plan, roots, op)?;
    let own = staged_now(tx, roots, op).map_err(|e| io("reading the new", e))?;
    let ours =
        publish::open_past_mode(&own, OFlags::RDONLY).map_err(|e| io("reading the new", e))?;
    let (theirs, _) = open_base(plan, op, &target)?;
    let size = |fd: &OwnedFd| sys::size(fd);
    let ours_len = size(&ours).map_err(|e| io("reading", e))?;
    let theirs_len = size(&theirs).map_err(|e| io("reading", e))?;
    let file = |fd: &OwnedFd| {
        fd.try_clone().map(File::from).map_err(|e| Error::io("reading", path::from_bytes(&path), e))
    };
    let common = ours_len >= len
        && theirs_len >= len
        && same_bytes(&file(&ours)?, &file(&theirs)?, len).map_err(|e| io("comparing", e))?;
    let now = || target.look().ok().flatten();
    if !common {
        return Err(conflict(&path, ConflictKind::NotOnlyAppended, now()));
    }
    // Whose they are can't be told. (A write takes capabilities away.)
    let change = attributes(&target)
        .and_then(|old| Ok(AttrChange::between(&old, &attributes(&own)?)))
        .map_err(|e| io("reading the attributes of", e))?;
    if change.xattrs.iter().any(|x| x.name != b"security.capability") {
        return Err(conflict(&path, ConflictKind::ExtendedAttributes, now()));
    }
    Ok(Appended { ours, ours_len, theirs, target })
}

/// Looks whether every append could be merged, as [`stage`] does.
///
/// # Errors
/// [`Error::Conflict`] if one can't; [`Error::Io`] with step and path.
pub(super) fn check_appends(
    tx: &Transaction,
    plan: &Plan,
    roots: &Roots,
    reads: &ReadSet,
) -> Result<()> {
    for op in &plan.ops {
        if let Some(len) = to_be_merged(op, reads.get(&plan.before_path(op))) {
            only_appended(tx, plan, roots, op, len)?;
        }
    }
    Ok(())
}

/// Replaces an operation's staged file by: what is in the tree now, plus what the transaction
/// appended beyond the first `len` bytes.
fn merge(
    tx: &Transaction,
    plan: &Plan,
    roots: &Roots,
    op: &mut Op,
    len: u64,
    slot: StorePath,
) -> Result<()> {
    let Appended { ours, ours_len, theirs, target } = only_appended(tx, plan, roots, op, len)?;
    let path = plan.before_path(op);
    let io = |step, e| Error::io(step, path::from_bytes(&path), std::io::Error::from(e));
    let size = |fd: &OwnedFd| sys::size(fd);
    let end = roots.new_slot_at(op.layer, &slot).map_err(|e| io("staging", e))?;
    // By its name it may be another one by now: what is copied is what is replaced.
    let (_, before) = open_base(plan, op, &target)?;
    let merged = create_anew(&end).map_err(|e| io("staging", e))?;
    crate::sys_copy::content(&theirs, &merged).map_err(|e| io("staging", e))?;
    let theirs_len = size(&merged).map_err(|e| io("staging", e))?;
    let mut at = len;
    let mut buffer = vec![0u8; 1 << 16];
    while at < ours_len {
        let n = sys::read_at(&ours, &mut buffer, at).map_err(|e| io("reading", e))?;
        if n == 0 {
            break;
        }
        sys::write_all_at(
            merged.as_fd(),
            buffer.get(..n).unwrap_or_default(),
            theirs_len + at - len,
        )
        .map_err(|e| io("staging", e))?;
        at += n as u64;
    }
    inplace::copy_attrs(&target, &end).map_err(|e| io("staging", e))?;
    // What the transaction itself did to owner, mode and attributes stays done.
    let own = staged_now(tx, roots, op)
        .and_then(|ours| Ok(AttrChange::between(&attributes(&end)?, &attributes(&ours)?)))
        .map_err(|e| io("reading the attributes of", e))?;
    let id = end.look().and_then(|v| v.ok_or(Errno::NOENT)).map_err(|e| io("staging", e))?.id;
    if !inplace::change_attrs(&end, id, &own).map_err(|e| io("staging", e))? {
        return Err(io("staging", Errno::STALE));
    }
    sys::set_mtime(end.dir.as_fd(), &end.name, crate::version::Stamp::now())
        .map_err(|e| io("staging", e))?;
    // Looked at before it was copied: if it grew since, the publish finds another version.
    op.base = Some(before);
    op.new = end.look().map_err(|e| io("looking at", e))?;
    match &mut op.does {
        Does::Exchange { staged, .. } => *staged = Staged { slot, ..Staged::default() },
        Does::Data(write) => {
            write.slot = slot;
            if let (Some(change), Some(base), Some(new)) = (&mut write.attrs, op.base, op.new) {
                change.mtime = Some((base.mtime, new.mtime));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Where a staged object is before the publish. Of what was moved into a new directory, and inside it,
/// the slot is filled only when the move is published; until then the object is in the upper.
fn staged_now(tx: &Transaction, roots: &Roots, op: &Op) -> std::result::Result<EntryRef, Errno> {
    match roots.slot(op) {
        Ok(end) if end.look()?.is_some() => return Ok(end),
        Ok(_) | Err(Errno::NOENT) => {}
        other => return other,
    }
    let upper = format!("tx/{}/l{}/upper/", tx.id(), op.layer);
    roots.slot_at(op.layer, &[upper.as_bytes(), &op.target].concat())
}

/// Turns an exchange with a changed copy into a change in place. Never for a new object: whoever has the
/// old inode open, or another name of it, would have what the transaction created.
fn stay_in_place(
    tx: &Transaction,
    plan: &Plan,
    roots: &Roots,
    op: &mut Op,
    target: &EntryRef,
) -> Result<()> {
    let (Some(base), Some(new)) = (op.base, op.new) else { return Ok(()) };
    let read = |end: &EntryRef, v: &Version| {
        Attrs::read(v, &sys::entry_path(end.dir.as_fd(), &end.name))
            .map_err(|e| at_target(plan, op, "reading the attributes of", e))
    };
    let slot = staged_now(tx, roots, op)
        .map_err(|e| at_target(plan, op, "opening the staged copy of", e))?;
    let mut change = AttrChange::between(&read(target, &base)?, &read(&slot, &new)?);
    change.mtime = Some((base.mtime, new.mtime));
    op.does = Does::Data(Write {
        slot: op.slot().into(),
        attrs: Some(Box::new(change)),
        ..Write::default()
    });
    Ok(())
}

/// Creates a file of ours, in place of what an earlier attempt may have left.
pub(super) fn create_anew(end: &EntryRef) -> std::result::Result<OwnedFd, Errno> {
    match sys::create(end.dir.as_fd(), &end.name) {
        Err(Errno::EXIST) => {
            sys::unlink(end.dir.as_fd(), &end.name, rustix::fs::AtFlags::empty())?;
            sys::create(end.dir.as_fd(), &end.name)
        }
        created => created,
    }
}

/// Others may have changed other pages of a file since the change set was made. Those that this
/// transaction depends on are compared by value when its read set is validated, which comes later.
fn take_newer_base(plan: &Plan, roots: &Roots, op: &mut Op) -> Result<()> {
    let now = roots.before(op).and_then(|end| end.look());
    let now = now.map_err(|e| at_target(plan, op, "looking at", e))?;
    if let (Some(base), Some(now)) = (op.base, now)
        && base.same_owner_and_mode(&now)
        && base.size == now.size
        && base.nlink == now.nlink
    {
        op.base = Some(now);
        if let Some(change) = op.write_mut().and_then(|write| write.attrs.as_mut()) {
            change.mtime = change.mtime.map(|(_, new)| (now.mtime, new.max(now.mtime)));
        }
    }
    Ok(())
}

/// Where an operation's object is before the publish.
fn before(plan: &Plan, roots: &Roots, op: &Op) -> Result<EntryRef> {
    roots.before(op).map_err(|e| match e {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => {
            conflict(&plan.before_path(op), ConflictKind::DirectoryGone, None)
        }
        e => at_target(plan, op, "opening", e),
    })
}

/// Opens the file that an operation replaces or writes to, with its version: the very one, not what
/// has its name by now.
fn open_base(plan: &Plan, op: &Op, target: &EntryRef) -> Result<(OwnedFd, Version)> {
    let replaced = || conflict(&plan.before_path(op), ConflictKind::Replaced, None);
    let file = match target.open(OFlags::RDONLY) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Err(replaced()),
        Err(e) => return Err(at_target(plan, op, "reading", e)),
    };
    let now = crate::version::stat_at(file.as_fd(), b"", rustix::fs::AtFlags::EMPTY_PATH)
        .map_err(|e| at_target(plan, op, "looking at", e))?;
    match op.base.is_some_and(|base| base.id == now.id) {
        true => Ok((file, now)),
        false => Err(replaced()),
    }
}

/// Makes the directories for what the publish takes out of the tree.
fn make_slots(plan: &Plan, roots: &Roots) -> Result<()> {
    let mut last = None;
    for op in plan.ops.iter().filter(|op| op.takes_away()) {
        let dir = Some((op.layer, path::layer::split(op.slot()).0));
        if last != dir {
            roots.new_slot_at(op.layer, op.slot()).map_err(|e| {
                at_target(plan, op, "making room in the store for the old version of", e)
            })?;
            last = dir;
        }
    }
    Ok(())
}

/// Saves the content that a Data or Patch operation will overwrite.
pub(super) fn save_old(plan: &Plan, roots: &Roots, op: &Op) -> Result<()> {
    let io = |step, e: Errno| at_target(plan, op, step, e);
    let Some(write) = op.write() else { return Ok(()) };
    if matches!(op.does, Does::Patch { .. }) {
        let (file, _) = open_base(plan, op, &before(plan, roots, op)?)?;
        let patch = inplace::read_patch(plan, roots, op, &write.slot)?;
        let old = inplace::overwritten(&file, &patch).map_err(|e| io("reading", e))?;
        let end = roots.new_slot_at(op.layer, &write.undo_copy).map_err(|e| io("saving", e))?;
        let to = create_anew(&end).map_err(|e| io("saving", e))?;
        return sys::write_all_at(to.as_fd(), &old.to_bytes(), 0).map_err(|e| io("saving", e));
    }
    let target = before(plan, roots, op)?;
    let (from, _) = open_base(plan, op, &target)?;
    let end = roots.new_slot_at(op.layer, &write.undo_copy).map_err(|e| io("saving", e))?;
    let to = create_anew(&end).map_err(|e| io("saving", e))?;
    crate::sys_copy::content(&from, &to).map_err(|e| io("saving", e))?;
    inplace::copy_attrs(&target, &end).map_err(|e| io("saving", e))
}
