//! Revert: undoing a committed transaction by another.
//!
//! The plan of a revert is the old plan backwards, each operation turned round; what the old
//! commit retained is what the revert publishes, and the other way about. So a revert can be
//! reverted.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::field::{Field, at_target};
use super::{How, Options, Progress, Summary, execute, finish, inplace, recorded, recover, stage};
use crate::error::{Conflict, Error, Result};
use crate::id::TxId;
use crate::object::{FileId, FileKind};
use crate::plan::{self, Kind, Op, Plan};
use crate::realm::Ticket;
use crate::store::{Begin, Home, LayerRequest, State, path_from};
use crate::sys;
use crate::version::{Stamp, Version, stat_at};

/// Undoes a committed transaction, as a transaction of its own.
///
/// `ticket` as for [`super::commit`], with [`super::claim_revert`].
///
/// # Errors
/// [`Error::Conflict`] if something it published was changed since, [`Error::WrongState`] if it
/// is not committed or was reverted already.
pub fn revert(
    home: &Home,
    id: TxId,
    options: &Options,
    ticket: Option<&mut Ticket<'_>>,
    progress: &dyn Progress,
) -> Result<Summary> {
    inplace::ignore_lease_breaks();
    let _lock = home.lock_commits()?;
    let mut journal = recover::recover_locked(home, progress)?.0;
    let old = home.meta(id)?;
    let refuse = |state: &str, advice: String| {
        Err(Error::WrongState { id, state: state.to_owned(), advice })
    };
    match (old.state, old.reverted_by) {
        (State::Committed, _) => {}
        (State::Reverted, by) => {
            let by = by.map(|b| b.to_string()).unwrap_or_default();
            return refuse("reverted already", format!("to have it back, revert {by}."));
        }
        (State::Active | State::Pending, _) => {
            return refuse("not committed", format!("`txos abort {id}` drops it."));
        }
    }
    let Some(done) = plan::load(home, id)? else {
        return refuse("without changes", "there is nothing to undo.".into());
    };
    let mut tx = home.begin(Begin {
        layers: done
            .layers
            .iter()
            .map(|l| LayerRequest { target: l.target.clone(), store: l.store.clone() })
            .collect(),
        name: None,
        message: Some(format!(
            "Revert {}",
            old.message.as_deref().or(old.name.as_deref()).unwrap_or(id.as_str())
        )),
        command: old.command.clone(),
        directory: old.directory.clone(),
        durable: options.durable,
    })?;
    tx.meta.reverts = Some(id);
    // On the disk before anything is published: recovery must know of which commit it is.
    tx.save(options.durable)?;
    let mut how = How { gate: options.gate, ticket, progress };
    let result = (|| {
        let field = Field::open(&done)?;
        let fence = old.fence.unwrap_or(old.begun);
        let conflicts = changed_since(home, &done, &field, fence);
        if !conflicts.is_empty() {
            return Err(Error::Conflict(conflicts));
        }
        let mut plan = Plan::empty(&tx, options.durable);
        plan.ops = reversed(&done, &field, tx.id())?;
        let again = || unseen_inside(&plan, &field, fence);
        let fence = match execute(home, &mut journal, &plan, &field, &mut how, &again) {
            Ok(fence) => fence,
            Err(error) => {
                if !matches!(error, Error::Unfinished { .. }) {
                    settle(home, id, &plan)?;
                }
                return Err(error);
            }
        };
        let record =
            finish::finish(home, &mut journal, &mut plan, &field, Some(fence), Some(&mut tx));
        Ok(recorded(Summary::new(tx.id(), plan.shown()), record))
    })();
    if result.is_err() && !matches!(result, Err(Error::Unfinished { .. })) {
        home.discard(tx)?;
    }
    result
}

/// Whether a published directory that a revert has just taken away held something that was not
/// there when it was looked through.
fn unseen_inside(plan: &Plan, field: &Field, fence: Stamp) -> Result<()> {
    let detached = detached_inodes(plan);
    let taken = plan.ops.iter().filter(|o| o.kind == Kind::Remove && o.shown);
    for op in taken.filter(|o| o.base.is_some_and(|v| v.kind() == FileKind::Dir)) {
        let slot = field.slot(op).map_err(|e| at_target(plan, op, "opening the retained", e))?;
        let newer =
            newer_below(&slot, None, fence, &|_, v| detached.contains(&v.id) && v.mtime < fence)
                .map_err(|e| at_target(plan, op, "looking through", e))?;
        if let Some(below) = newer {
            return Err(Error::Conflict(vec![Conflict {
                path: path_from(&plan.target_path(op)),
                what: format!(
                    "{} in it was changed or created after the commit",
                    crate::show::quoted_bytes(&below)
                ),
                when: None,
            }]));
        }
    }
    Ok(())
}

/// After a revert was undone: notes the versions that the undoing left, so that they are not taken
/// for somebody else's changes when the revert is tried again. Only where nothing but ctime is
/// other than when the revert was planned: what somebody else has changed stays a conflict.
pub(super) fn settle(home: &Home, reverted: TxId, undone: &Plan) -> Result<()> {
    let Some(mut plan) = plan::load(home, reverted)? else { return Ok(()) };
    let field = Field::open(&plan)?;
    let planned: std::collections::HashMap<(u16, &[u8]), Version> =
        undone.ops.iter().filter_map(|o| Some(((o.layer, &o.before[..]), o.base?))).collect();
    for op in &mut plan.ops {
        let Some(before) = planned.get(&(op.layer, &op.after[..])) else { continue };
        let now = field.after(op).ok().and_then(|e| e.look().ok().flatten());
        op.settled = now.filter(|now| before.same_but_ctime(now) && before.nlink == now.nlink);
    }
    plan::save(home, &plan)
}

/// What of a commit is no longer as it was published.
fn changed_since(home: &Home, done: &Plan, field: &Field, fence: Stamp) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    let known = Known { detached: detached_inodes(done), later: OnceCell::new(), home };
    // Backwards, as the revert will go: what lies in a moved directory is looked up where it is.
    for op in done.ops.iter().rev() {
        let target = field.after(op).and_then(|e| e.look());
        let what = match (op.kind, target) {
            (Kind::DirTime, _) => continue,
            (Kind::MoveOut, Ok(None) | Err(Errno::NOENT | Errno::NOTDIR)) => continue,
            // The shell of a directory that was moved into a new one; it goes with the new one.
            (Kind::Exchange, _)
                if !op.shown && op.new.is_some_and(|v| v.kind() == FileKind::Dir) =>
            {
                continue;
            }
            (Kind::Remove, Ok(None) | Err(Errno::NOENT | Errno::NOTDIR)) => continue,
            // What this plan itself put there is checked with the operation that did.
            (Kind::Remove | Kind::MoveOut, Ok(Some(_)))
                if done.ops.iter().any(|o| {
                    o.layer == op.layer
                        && o.after == op.after
                        && !matches!(o.kind, Kind::Remove | Kind::MoveOut | Kind::DirTime)
                }) =>
            {
                continue;
            }
            (Kind::Remove | Kind::MoveOut, Ok(Some(_))) => "something was created there".to_owned(),
            (_, Ok(None) | Err(Errno::NOENT | Errno::NOTDIR)) => "it was removed".to_owned(),
            (_, Err(e)) => format!("it can't be looked at ({e})"),
            (kind, Ok(Some(now))) => {
                let expected = match kind {
                    Kind::Data | Kind::Patch | Kind::Attrs => op.base,
                    _ => op.new,
                };
                if expected.is_none_or(|e| e.id != now.id) {
                    "it was replaced".to_owned()
                } else if kind == Kind::MoveIn && now.kind() == FileKind::Dir {
                    // The directory's content is everybody's; only the directory was moved.
                    continue;
                } else if now.kind() == FileKind::Dir && kind == Kind::Attrs {
                    // A directory's ctime moves with its entries; its attributes are compared.
                    let same = op.new.is_none_or(|new| {
                        (new.mode, new.uid, new.gid) == (now.mode, now.uid, now.gid)
                    });
                    if same && xattrs_as_left(field, op) {
                        continue;
                    }
                    "its attributes were changed".to_owned()
                } else if now.kind() == FileKind::Dir {
                    match field.after(op).and_then(|end| {
                        let top = done.after_path(op);
                        newer_below(&end, Some(op.settled), fence, &|below, v| {
                            known.explains(&top, below, v, fence)
                        })
                    }) {
                        Ok(None) => continue,
                        Ok(Some(below)) => format!(
                            "{} in it was changed or created",
                            crate::show::quoted_bytes(&below)
                        ),
                        Err(e) => format!("it can't be looked through ({e})"),
                    }
                } else if now.kind() != FileKind::Dir
                    && now.ctime >= fence
                    && op.settled != Some(now)
                    && !put_back_since(home, done, op, &now)
                {
                    "it was changed".to_owned()
                } else {
                    continue;
                }
            }
        };
        conflicts.push(Conflict {
            path: path_from(&done.after_path(op)),
            what: format!("{what} after the commit"),
            when: field.after(op).ok().and_then(|e| e.look().ok().flatten()).map(|v| v.ctime),
        });
        if conflicts.len() >= 32 {
            break;
        }
    }
    conflicts
}

/// What this realm itself did after a commit, which is nobody's change.
struct Known<'a> {
    detached: HashSet<FileId>,
    /// The reverts that stand, with their fences.
    later: OnceCell<Vec<(Stamp, Plan)>>,
    home: &'a Home,
}

impl Known<'_> {
    /// Whether a revert of a later commit was the last to touch an object below `top`: it put
    /// back what that commit had changed, so the object is as this commit left it.
    fn explains(&self, top: &[u8], below: &[u8], now: &Version, fence: Stamp) -> bool {
        if self.detached.contains(&now.id) && now.mtime < fence {
            return true;
        }
        let path = if below.is_empty() { top.to_vec() } else { crate::readset::join(top, below) };
        let later = self.later.get_or_init(|| {
            let all = self.home.transactions().unwrap_or_default();
            all.into_iter()
                .filter_map(std::result::Result::ok)
                .filter(|m| m.reverts.is_some() && m.state == State::Committed)
                .filter_map(|m| Some((m.fence?, plan::load(self.home, m.id).ok()??)))
                .collect()
        });
        later.iter().any(|(later_fence, plan)| {
            now.ctime < *later_fence
                && plan.ops.iter().any(|o| {
                    let is = |v: &Option<Version>| v.is_some_and(|v| v.id == now.id);
                    (is(&o.new) || is(&o.base)) && plan.after_path(o) == path
                })
        })
    }
}

/// Inodes whose ctime this realm itself moved after the commit, when it took a retained link away.
fn detached_inodes(plan: &Plan) -> HashSet<FileId> {
    plan.ops
        .iter()
        .filter(|o| matches!(o.kind, Kind::Remove | Kind::Exchange) && o.from.is_some())
        .filter_map(|o| o.base.map(|b| b.id))
        .collect()
}

/// Whether the extended attributes that an operation set are still as it set them.
fn xattrs_as_left(field: &Field, op: &Op) -> bool {
    let (Some(change), Ok(end)) = (&op.attrs, field.after(op)) else { return true };
    change.xattrs.iter().all(|x| {
        sys::xattr(&sys::entry_path(end.dir.as_fd(), &end.name), &x.name).ok()
            == Some(x.new.clone())
    })
}

/// Whether it was this realm's own later transactions that moved an object's ctime: the last of
/// them left exactly this inode here, as this commit had left it, and nobody has touched it since.
fn put_back_since(home: &Home, done: &Plan, op: &Op, now: &Version) -> bool {
    let as_left = op.new.is_some_and(|new| {
        (new.size, new.mtime, new.mode, new.uid, new.gid)
            == (now.size, now.mtime, now.mode, now.uid, now.gid)
    });
    let path = done.after_path(op);
    let Ok(all) = home.transactions() else { return false };
    as_left
        && all.into_iter().filter_map(std::result::Result::ok).any(|meta| {
            meta.id != done.id
                && meta.fence.is_some_and(|fence| now.ctime < fence)
                && plan::load(home, meta.id).ok().flatten().is_some_and(|later| {
                    later.ops.iter().any(|o| {
                        let in_place = matches!(o.kind, Kind::Data | Kind::Patch | Kind::Attrs);
                        let left = if in_place { o.base } else { o.new };
                        left.is_some_and(|v| v.id == now.id) && later.after_path(o) == path
                    })
                })
        })
}

/// The first object below a published directory that changed after the fence. With `dirs`,
/// directories count, and the published one itself unless it is the given version; without, as
/// when the revert's own operations have passed there, only what is no directory.
fn newer_below(
    end: &super::field::End,
    dirs: Option<Option<Version>>,
    fence: Stamp,
    by_us: &dyn Fn(&[u8], &Version) -> bool,
) -> std::result::Result<Option<Vec<u8>>, Errno> {
    let top = end.open_path()?;
    let mut queue = vec![Vec::new()];
    while let Some(dir) = queue.pop() {
        let fd: OwnedFd = sys::open_dir_beneath(top.as_fd(), &dir)?;
        if let (false, Some(_)) = (dir.is_empty(), dirs) {
            let own = stat_at(fd.as_fd(), b"", rustix::fs::AtFlags::EMPTY_PATH)?;
            if own.ctime >= fence && !by_us(&dir, &own) {
                return Ok(Some(dir));
            }
        } else if let Some(known) = dirs {
            // The published directory itself: its ctime is that of its own publishing rename.
            let own = stat_at(fd.as_fd(), b"", rustix::fs::AtFlags::EMPTY_PATH)?;
            let as_known = known.is_some_and(|k| k.same_but_ctime(&own));
            if (own.mtime >= fence || own.ctime >= fence) && !as_known && !by_us(b"", &own) {
                return Ok(Some(b".".to_vec()));
            }
        }
        for (name, kind) in sys::names_in(fd.as_fd())? {
            let path = crate::changeset::child(&dir, &name);
            if kind == rustix::fs::FileType::Directory {
                queue.push(path);
            } else {
                let v = stat_at(fd.as_fd(), &name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
                // Renames of our own move ctime and leave mtime.
                let renamed = dirs.is_none() && v.mtime < fence;
                if v.ctime >= fence && !renamed && !by_us(&path, &v) {
                    return Ok(Some(path));
                }
            }
        }
    }
    Ok(None)
}

/// The plan backwards.
fn reversed(done: &Plan, field: &Field, id: TxId) -> Result<Vec<Op>> {
    let mut ops = Vec::with_capacity(done.ops.len());
    let mut next = 0u64;
    for op in done.ops.iter().rev() {
        let look = |end: std::result::Result<super::field::End, Errno>| -> Result<Option<Version>> {
            end.and_then(|e| e.look()).map_err(|e| at_target(done, op, "looking at", e))
        };
        // What was retained lies in the slot, or, inside a directory that moved into a new one,
        // will lie there by the time it is needed.
        let kept = || -> Result<Option<Version>> {
            match field.slot(op) {
                Err(Errno::NOENT) => Ok(op.base),
                end => look(end),
            }
        };
        let gone = || {
            Error::Conflict(vec![Conflict {
                path: path_from(&done.target_path(op)),
                what: "its retained version is gone from the store".into(),
                when: None,
            }])
        };
        let mut back = op.clone();
        back.strip.clear();
        (back.before, back.after) = (op.after.clone(), op.before.clone());
        let here = match field.after(op) {
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            end => look(end)?,
        };
        match op.kind {
            Kind::Exchange | Kind::Remove if live_link(field, op).is_some() => {
                next += 1;
                back.kind = Kind::Link;
                (back.target, back.from) = (op.before.clone(), moved_back(op));
                back.slot = format!("tx/{id}/l{}/old/{next}", op.layer).into_bytes();
                back.base = if op.kind == Kind::Remove { None } else { here };
                back.new = live_link(field, op);
            }
            Kind::Install => {
                (back.kind, back.base, back.new) = (Kind::Remove, here, None);
            }
            Kind::Exchange if !op.shown => {
                // As it is now, or, of a shell, as it will be when its directory is back.
                let there = here.filter(|h| op.new.is_some_and(|n| n.id == h.id));
                (back.base, back.new) = (there.or(op.new), op.base);
            }
            Kind::Exchange => {
                let kept = kept()?.ok_or_else(gone)?;
                (back.base, back.new) = (here, Some(kept));
            }
            Kind::Remove => {
                let kept = kept()?.ok_or_else(gone)?;
                (back.kind, back.base, back.new) = (Kind::Install, None, Some(kept));
            }
            Kind::MoveIn => {
                // A shell that was exchanged out goes back by an exchange of its own.
                // A file is by then as it was before: what was done to it in place is undone first.
                let is_dir = here.is_some_and(|v| v.kind() == FileKind::Dir);
                let in_place = |o: &Op| matches!(o.kind, Kind::Data | Kind::Patch | Kind::Attrs);
                let same = |o: &Op| matches!((o.base, op.new), (Some(a), Some(b)) if a.id == b.id);
                let changed = ops.iter().any(|o| in_place(o) && same(o));
                (back.kind, back.base, back.new) =
                    (Kind::MoveOut, if changed && !is_dir { op.new } else { here }, None);
                back.shown = false;
                back.from = None;
                if let Some(shell) = op.base {
                    let mut swap = back.clone();
                    (swap.kind, swap.new) = (Kind::Exchange, Some(shell));
                    ops.push(swap);
                    continue;
                }
            }
            Kind::MoveOut => {
                (back.kind, back.base, back.new) = (Kind::MoveIn, None, op.base);
                back.from = done
                    .ops
                    .iter()
                    .find(|m| m.kind == Kind::MoveIn && m.slot == op.slot && m.layer == op.layer)
                    .map(|m| m.target.clone());
                back.shown = true;
            }
            Kind::Link => {
                back.from = op.from.as_deref().map(|from| done.stable_of(op.layer, from));
                if op.base.is_none() {
                    // The other name stays noted: what is removed here is a link of it.
                    (back.kind, back.base, back.new) = (Kind::Remove, here, None);
                } else {
                    let kept = kept()?.ok_or_else(gone)?;
                    (back.kind, back.base, back.new) = (Kind::Exchange, here, Some(kept));
                }
            }
            Kind::Data | Kind::Patch => {
                back.slot = op.saved.clone();
                next += 1;
                back.saved = format!("tx/{id}/l{}/old/{next}", op.layer).into_bytes();
                back.base = here;
                back.new = match op.kind {
                    Kind::Data => look(field.slot_at(op.layer, &back.slot))?,
                    // What it will be like: as before the commit, at another time.
                    _ => op.base,
                };
                let mut change = op.attrs.as_deref().map(crate::changeset::AttrChange::reversed);
                if let (Some(here), Some(old)) = (here, op.base) {
                    change.get_or_insert_default().mtime = Some((here.mtime, old.mtime));
                }
                back.attrs = change.map(Box::new);
                stage::save_old(done, field, &back)?;
            }
            Kind::Attrs | Kind::DirTime => {
                if sets_a_directory(op) {
                    back.target = op.before.clone();
                }
                back.base = here;
                back.new = op.base;
                back.attrs = op.attrs.as_deref().map(|a| Box::new(a.reversed()));
            }
        }
        ops.push(back);
    }
    // Links follow what they link to, and directory times everything that moves them, as in a
    // forward plan.
    ops.sort_by_key(|o| match o.kind {
        Kind::DirTime | Kind::Attrs if sets_a_directory(o) => 2,
        Kind::Link => 1,
        _ => 0,
    });
    Ok(ops)
}

/// Whether an operation sets attributes, and so perhaps the time, of a directory.
fn sets_a_directory(op: &Op) -> bool {
    matches!(op.kind, Kind::DirTime | Kind::Attrs)
        && op.base.is_some_and(|v| v.kind() == FileKind::Dir)
}

/// Where another name in the same directory is once the moves are undone.
fn moved_back(op: &Op) -> Option<Vec<u8>> {
    let from = op.from.as_deref()?;
    let (dir, name) = crate::changeset::split(from);
    if dir == crate::changeset::split(&op.after).0 {
        let (before, _) = crate::changeset::split(&op.before);
        return Some(crate::changeset::child(before, name));
    }
    Some(from.to_vec())
}

/// The inode that a removed or replaced name was a link of, if another of its names still is one.
fn live_link(field: &Field, op: &Op) -> Option<Version> {
    let other = field.target_at(op.layer, op.from.as_deref()?).ok()?.look().ok()??;
    op.base.filter(|b| b.id == other.id).map(|_| other)
}
