//! Revert: undoing a committed transaction by another.
//!
//! The plan of a revert is the old plan backwards, each operation turned round; what the old
//! commit retained is what the revert publishes, and the other way about. So a revert can be
//! reverted.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::history_entries::entries_of;
use super::roots::{Roots, at_target};
use super::{
    ExecContext, Left, Options, Progress, Summary, execute, left, merge, record, recorded, recover,
    stage,
};
use crate::changeset::Entry;
use crate::error::{Conflict, ConflictKind, Error, Result};
use crate::id::TxId;
use crate::object::{FileId, FileKind};
use crate::path::{self, LayerPath, StorePath};
use crate::plan::{self, Does, Exchanged, Held, Op, Plan, Staged, Write};
use crate::realm::TxHandle;
use crate::store::{Begin, Home, LayerRequest, Meta, State};
use crate::sys;
use crate::version::{Stamp, Version, stat_at};

/// Undoes a committed transaction, as a transaction of its own.
///
/// `handle` as for [`super::commit`], with [`super::acquire_for_revert`].
///
/// # Errors
/// [`Error::Conflict`] if something it published was changed since, [`Error::WrongState`] if it
/// is not committed or was reverted already.
pub fn revert(
    home: &Home,
    id: TxId,
    options: &Options,
    handle: Option<&mut TxHandle<'_>>,
    progress: &dyn Progress,
) -> Result<Summary> {
    let _rights = crate::sys_owner::rights();
    let _lock = home.lock_commits()?;
    let mut journal = recover::recover_locked(home, progress)?.0;
    let (old, whole) = committed(home, id)?;
    let commit_stamp = old.commit_stamp.unwrap_or(old.begun);
    let mut done = whole.clone();
    left::keep_only(&mut done, &options.paths)?;
    let roots = Roots::open(&whole)?;
    let mut conflicts = changed_since(home, &done, &roots, commit_stamp, left::most(options));
    let merged = match options.merge {
        true => merge::merge(home, &done, &roots, &mut conflicts)?,
        false => Vec::new(),
    };
    let left = left::take_out(&mut done, conflicts, &options.skip_changed)?;
    // (A whole revert that leaves something is the end of the transaction all the same.)
    let mut rest = (!options.paths.is_empty()).then(|| left::without(&whole, &done)).flatten();
    if !options.paths.is_empty() && rest.is_none() {
        done = whole;
    }
    let merged_texts: Vec<_> =
        merged.iter().map(|file| path::from_bytes(&done.after_path(&file.op))).collect();
    done.ops.retain(|op| !merged.iter().any(|file| file.op == *op));
    let (command, arguments_hidden) = old.first_command();
    let mut tx = home.begin(Begin {
        layers: done
            .layers
            .iter()
            .map(|l| LayerRequest { target: l.target.clone(), store: l.store.clone() })
            .collect(),
        name: None,
        message: Some(format!(
            "Revert {}{}",
            if rest.is_some() { "a part of " } else { "" },
            old.message.as_deref().or(old.name.as_deref()).unwrap_or(id.as_str())
        )),
        command,
        arguments_hidden,
        directory: old.directory.clone(),
        scope: std::path::PathBuf::new(),
        durable: options.durable,
    })?;
    tx.meta.reverts = Some(id);
    tx.meta.reverts_part = rest.is_some();
    // On the disk before anything is published: recovery must know of which commit it is, and what is left of
    // that.
    if let Some(rest) = &mut rest {
        rest.durable = options.durable;
        plan::save_rest(home, tx.id(), rest)?;
    }
    tx.save(options.durable)?;
    let mut context = ExecContext { gate: options.gate, handle, progress };
    let result = (|| {
        let mut plan = Plan::empty(&tx, options.durable);
        for (number, file) in merged.iter().enumerate() {
            let slot = format!("tx/{}/l{}/old/merged-{number}", tx.id(), file.op.layer);
            plan.ops.push(merge::put(&done, &roots, file, slot.into_bytes().into())?);
        }
        plan.ops.extend(reversed(&done, &roots, tx.id())?);
        let give_back = super::retained::give_back(home, &done, &roots, &mut plan.ops)?;
        plan.ops.extend(give_back);
        if plan.ops.is_empty() {
            return Err(Error::Conflict(only_times(&done)));
        }
        plan.find_places();
        let again = |plan: &Plan| unseen_inside(plan, &roots, commit_stamp);
        let done = execute(home, &mut journal, &mut plan, &roots, &mut context, &again);
        let commit_stamp = match done {
            Ok(commit_stamp) => commit_stamp,
            Err(error) => {
                if !matches!(error, Error::Unfinished { .. }) {
                    note_versions_after_undo(home, id, &plan)?;
                }
                return Err(error);
            }
        };
        let record = record::finish(
            home,
            &mut journal,
            &mut plan,
            &roots,
            Some(commit_stamp),
            Some(&mut tx),
        );
        let complete = rest.is_none();
        let summary =
            Summary { left, complete, merged_texts, ..Summary::new(tx.id(), plan.shown()) };
        Ok(recorded(summary, record))
    })();
    if result.is_err() && !matches!(result, Err(Error::Unfinished { .. })) {
        home.discard(tx)?;
    }
    result
}

/// The conflicts of a revert that has nothing left to undo but times of directories, which others have changed
/// since.
fn only_times(done: &Plan) -> Vec<Conflict> {
    let conflict = |op: &Op| Conflict {
        path: path::from_bytes(&done.after_path(op)),
        what: ConflictKind::AfterCommit(Box::new(ConflictKind::Attributes)),
        when: None,
    };
    done.ops.iter().filter(|op| op.shown).map(conflict).collect()
}

/// What a revert would do.
#[derive(Debug)]
pub struct RevertPreview {
    /// What it would change.
    pub entries: Vec<Entry>,
    /// What it would leave as others have changed it.
    pub left: Vec<Left>,
    /// What it would merge with what others have changed.
    pub merged_texts: Vec<std::path::PathBuf>,
}

/// Looks whether a revert could be carried out now, and what it would change.
///
/// # Errors
/// Those of [`revert`] that come before it changes anything.
pub fn preview_revert(home: &Home, id: TxId, options: &Options) -> Result<RevertPreview> {
    let _rights = crate::sys_owner::rights();
    let _lock = home.lock_commits()?;
    let (old, mut done) = committed(home, id)?;
    left::keep_only(&mut done, &options.paths)?;
    let roots = Roots::open(&done)?;
    let commit_stamp = old.commit_stamp.unwrap_or(old.begun);
    let mut conflicts = changed_since(home, &done, &roots, commit_stamp, left::most(options));
    let merged = match options.merge {
        true => merge::merge(home, &done, &roots, &mut conflicts)?,
        false => Vec::new(),
    };
    let left = left::take_out(&mut done, conflicts, &options.skip_changed)?;
    let merged_texts =
        merged.iter().map(|file| path::from_bytes(&done.after_path(&file.op))).collect();
    let mut entries: Vec<Entry> =
        entries_of(home, &done)?.into_iter().map(Entry::turned_round).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(RevertPreview { entries, left, merged_texts })
}

/// A transaction that can be reverted, and what it did.
fn committed(home: &Home, id: TxId) -> Result<(Meta, Plan)> {
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
    old.check_same_numbering()?;
    match plan::load(home, id)? {
        Some(mut done) => {
            if old.reverts.is_none() {
                keep_to_itself(&mut done);
            }
            Ok((old, done))
        }
        None => refuse("without changes", "there is nothing to undo.".into()),
    }
}

/// Has a revert put what was new into the transaction's own place. The plan of a part that an older txos has committed names that
/// of the pending transaction, which may be gone, or would have it as its own change again.
fn keep_to_itself(done: &mut Plan) {
    let own = format!("tx/{}/", done.id);
    for (index, op) in done.ops.iter_mut().enumerate() {
        let to = format!("{own}l{}/old/part-{index}", op.layer);
        if let Does::Install(staged) = &mut op.does
            && !staged.slot.starts_with(own.as_bytes())
        {
            staged.slot = to.into_bytes().into();
        }
    }
}

/// Whether a published directory that a revert has just taken away held something that was not
/// there when it was looked through.
fn unseen_inside(plan: &Plan, roots: &Roots, commit_stamp: Stamp) -> Result<()> {
    let detached = detached_inodes(plan);
    let ends = plan.ends();
    let taken = plan
        .ops
        .iter()
        .zip(&ends)
        .filter(|(o, _)| matches!(o.does, Does::Remove { .. }) && o.shown);
    for (op, ends) in taken.filter(|(o, _)| o.base.is_some_and(|v| v.kind() == FileKind::Dir)) {
        // A later operation may have taken the slot elsewhere, with the directory that it is in.
        let slot = roots
            .at(plan, op.layer, ends.slot.as_deref().unwrap_or_default())
            .map_err(|e| at_target(plan, op, "opening the retained", e))?;
        let newer = newer_below(&slot, None, commit_stamp, &|_, v| {
            detached.contains(&v.id) && v.mtime < commit_stamp
        })
        .map_err(|e| at_target(plan, op, "looking through", e))?;
        if let Some(below) = newer {
            return Err(Error::Conflict(vec![Conflict {
                path: path::from_bytes(&plan.target_path(op)),
                what: ConflictKind::AfterCommit(Box::new(ConflictKind::Below(below))),
                when: None,
            }]));
        }
    }
    Ok(())
}

/// After a revert was undone: notes the versions that the undoing left, so that they are not taken
/// for somebody else's changes when the revert is tried again. Only where nothing but ctime is
/// other than when the revert was planned: what somebody else has changed stays a conflict.
pub(super) fn note_versions_after_undo(home: &Home, reverted: TxId, undone: &Plan) -> Result<()> {
    let Some(mut plan) = plan::load(home, reverted)? else { return Ok(()) };
    let roots = Roots::open(&plan)?;
    // A name and what was held in the store when that name went are two. Of several operations on one
    // object, the first says how it was found.
    let mut planned: HashMap<(u16, bool, &[u8]), Version> = HashMap::new();
    // What was merged had been changed by others.
    let own = format!("tx/{}/", undone.id);
    let is_merge = |o: &Op| o.is_exchange() && o.slot().starts_with(own.as_bytes());
    let planned_ops = undone.ops.iter().filter(|o| !super::retained::gives_back(o) && !is_merge(o));
    for op in planned_ops {
        if let Some(base) = op.base {
            planned.entry((op.layer, op.held().is_some(), &op.before[..])).or_insert(base);
        }
    }
    for op in &mut plan.ops {
        let held = op.held().is_some();
        let Some(before) = planned.get(&(op.layer, held, &op.after[..])) else { continue };
        let now = roots.after(op).ok().and_then(|e| e.look().ok().flatten());
        op.own_version = now.filter(|now| before.same_but_ctime(now) && before.nlink == now.nlink);
    }
    plan::save(home, &plan)
}

/// What of a commit is no longer as it was published, with the number of its operation; `most` of it.
fn changed_since(
    home: &Home,
    done: &Plan,
    roots: &Roots,
    commit_stamp: Stamp,
    most: usize,
) -> Vec<(usize, Conflict)> {
    let mut conflicts = Vec::new();
    let own = done.ops.iter().filter_map(|op| op.own_version).map(|v| (v.id, v)).collect();
    let known = Known { detached: detached_inodes(done), own, later: OnceCell::new(), home };
    // Backwards, as the revert will go: what lies in a moved directory is looked up where it is.
    for (index, (op, ends)) in done.ops.iter().zip(&done.ends()).enumerate().rev() {
        // What was put in place with it is looked at by itself.
        if super::retained::gives_back(op) {
            continue;
        }
        let end = roots.at(done, op.layer, &ends.target);
        // What was done in a directory that the plan took away later went with that.
        let in_store = done.in_tree(op.layer, &ends.target).is_none();
        if in_store && op.held().is_none() && !op.takes_away() {
            continue;
        }
        let target = end.as_ref().map_err(|e| *e).and_then(super::roots::EntryRef::look);
        let what = match (&op.does, target) {
            (Does::DirTime { .. }, _) => continue,
            (Does::Remove { .. } | Does::MoveOut { .. }, _) if end.as_ref().is_err_and(is_gone) => {
                ConflictKind::DirectoryGone
            }
            (Does::MoveOut { .. }, Ok(None) | Err(Errno::NOENT | Errno::NOTDIR)) => continue,
            // The shell of a directory that was moved into a new one; it goes with the new one.
            (Does::Exchange { .. }, _)
                if !op.shown && op.new.is_some_and(|v| v.kind() == FileKind::Dir) =>
            {
                continue;
            }
            (Does::Remove { .. }, Ok(None) | Err(Errno::NOENT | Errno::NOTDIR)) => continue,
            // What this plan itself put there is checked with the operation that did.
            (_, Ok(Some(_))) if op.takes_away() && ends.is_taken => continue,
            (_, Ok(Some(_))) if op.takes_away() => ConflictKind::CreatedAgain,
            (_, Ok(None) | Err(Errno::NOENT | Errno::NOTDIR)) => ConflictKind::Removed,
            (_, Err(e)) => ConflictKind::NotKnown("it can't be looked at", e),
            (does, Ok(Some(now))) => {
                let expected = if op.is_in_place() { op.base } else { op.new };
                if expected.is_none_or(|e| e.id != now.id) {
                    ConflictKind::Replaced
                } else if matches!(does, Does::MoveIn { .. }) && now.kind() == FileKind::Dir {
                    // The directory's content is everybody's; only the directory was moved.
                    continue;
                } else if now.kind() == FileKind::Dir && op.sets_attributes() {
                    // A directory's ctime moves with its entries; its attributes are compared.
                    let same = op.new.is_none_or(|new| {
                        (new.mode, new.uid, new.gid) == (now.mode, now.uid, now.gid)
                    });
                    if same && xattrs_as_left(roots, op) {
                        continue;
                    }
                    ConflictKind::Attributes
                } else if now.kind() == FileKind::Dir {
                    match end.as_ref().map_err(|e| *e).and_then(|end| {
                        let top = done.after_path(op);
                        newer_below(end, Some(op.own_version), commit_stamp, &|below, v| {
                            known.explains(&top, below, v, commit_stamp)
                        })
                    }) {
                        Ok(None) => continue,
                        Ok(Some(below)) => ConflictKind::Below(below),
                        Err(e) => ConflictKind::NotKnown("it can't be looked through", e),
                    }
                } else if now.kind() != FileKind::Dir
                    && now.ctime >= commit_stamp
                    && op.own_version != Some(now)
                    && !put_back_since(home, done, op, &now)
                {
                    ConflictKind::Changed
                } else {
                    continue;
                }
            }
        };
        let conflict = Conflict {
            path: path::from_bytes(&done.after_path(op)),
            what: ConflictKind::AfterCommit(Box::new(what)),
            when: end.ok().and_then(|e| e.look().ok().flatten()).map(|v| v.ctime),
        };
        conflicts.push((index, conflict));
        if conflicts.len() >= most {
            break;
        }
    }
    conflicts
}

/// Whether the way to a name ends before it.
fn is_gone(error: &Errno) -> bool {
    matches!(*error, Errno::NOENT | Errno::NOTDIR)
}

/// What this realm itself did after a commit, which is nobody's change.
struct Known<'a> {
    detached: HashSet<FileId>,
    /// As undoing a revert of this commit left them.
    own: HashMap<FileId, Version>,
    /// The reverts that stand, with their commit stamps.
    later: OnceCell<Vec<(Stamp, Plan)>>,
    home: &'a Home,
}

impl Known<'_> {
    /// Whether nobody but this realm has touched an object below `top` since this commit: a retained
    /// link was taken away, a revert of this commit was undone, a revert of a later commit has put back
    /// what that one had changed, or a revert of a part of this one has taken away another name of it.
    fn explains(&self, top: &[u8], below: &[u8], now: &Version, commit_stamp: Stamp) -> bool {
        if self.detached.contains(&now.id) && now.mtime < commit_stamp
            || self.own.get(&now.id) == Some(now)
        {
            return true;
        }
        let path = if below.is_empty() { top.to_vec() } else { crate::path::join(top, below) };
        let later = self.later.get_or_init(|| {
            let all = self.home.transactions().unwrap_or_default();
            all.into_iter()
                .filter_map(std::result::Result::ok)
                .filter(|m| m.reverts.is_some() && m.state == State::Committed)
                .filter_map(|m| Some((m.commit_stamp?, plan::load(self.home, m.id).ok()??)))
                .collect()
        });
        later.iter().any(|(later_stamp, plan)| {
            let in_time = now.ctime < *later_stamp;
            plan.ops.iter().any(|o| {
                let is = |v: &Option<Version>| v.is_some_and(|v| v.id == now.id);
                // It has taken away another name of the object, which was then as this commit had left it.
                let took_name = is(&o.base)
                    && !o.is_in_place()
                    && (in_time || o.other().is_some() && now.mtime < commit_stamp);
                took_name || in_time && (is(&o.new) || is(&o.base)) && plan.after_path(o) == path
            })
        })
    }
}

/// Inodes whose ctime this realm itself moved after the commit, when it took a retained link away.
fn detached_inodes(plan: &Plan) -> HashSet<FileId> {
    plan.ops
        .iter()
        .filter(|o| !o.is_link() && o.other().is_some())
        .filter_map(|o| o.base.map(|b| b.id))
        .collect()
}

/// Whether the extended attributes that an operation set are still as it set them.
fn xattrs_as_left(roots: &Roots, op: &Op) -> bool {
    let (Some(change), Ok(end)) = (op.attrs(), roots.after(op)) else { return true };
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
                && meta.commit_stamp.is_some_and(|commit_stamp| now.ctime < commit_stamp)
                && plan::load(home, meta.id).ok().flatten().is_some_and(|later| {
                    later.ops.iter().any(|o| {
                        let in_place = o.is_in_place() && !o.is_dir_time();
                        let left = if in_place { o.base } else { o.new };
                        left.is_some_and(|v| v.id == now.id) && later.after_path(o) == path
                    })
                })
        })
}

/// The first object below a published directory that changed after the commit stamp. With `dirs`,
/// directories count, and the published one itself unless it is the given version; without, as
/// when the revert's own operations have passed there, only what is no directory.
fn newer_below(
    end: &super::roots::EntryRef,
    dirs: Option<Option<Version>>,
    commit_stamp: Stamp,
    by_us: &dyn Fn(&[u8], &Version) -> bool,
) -> std::result::Result<Option<Vec<u8>>, Errno> {
    let top = end.open_path()?;
    let mut queue = vec![Vec::new()];
    while let Some(dir) = queue.pop() {
        let fd: OwnedFd = sys::open_dir_beneath(top.as_fd(), &dir)?;
        if let (false, Some(_)) = (dir.is_empty(), dirs) {
            let own = stat_at(fd.as_fd(), b"", rustix::fs::AtFlags::EMPTY_PATH)?;
            if own.ctime >= commit_stamp && !by_us(&dir, &own) {
                return Ok(Some(dir));
            }
        } else if let Some(known) = dirs {
            // The published directory itself: its ctime is that of its own publishing rename.
            let own = stat_at(fd.as_fd(), b"", rustix::fs::AtFlags::EMPTY_PATH)?;
            let as_known = known.is_some_and(|k| k.same_but_ctime(&own));
            if (own.mtime >= commit_stamp || own.ctime >= commit_stamp)
                && !as_known
                && !by_us(b"", &own)
            {
                return Ok(Some(b".".to_vec()));
            }
        }
        for (name, kind) in sys::names_in(fd.as_fd())? {
            let path = crate::path::layer::child(&dir, &name);
            if kind == rustix::fs::FileType::Directory {
                queue.push(path);
            } else {
                let v = stat_at(fd.as_fd(), &name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
                // Renames of our own move ctime and leave mtime.
                let renamed = dirs.is_none() && v.mtime < commit_stamp;
                if v.ctime >= commit_stamp && !renamed && !by_us(&path, &v) {
                    return Ok(Some(path));
                }
            }
        }
    }
    Ok(None)
}

/// The plan backwards.
fn reversed(done: &Plan, roots: &Roots, id: TxId) -> Result<Vec<Op>> {
    let mut back = Backwards { id, next: 0, slots: Vec::new(), ops: Vec::new() };
    for (op, ends) in done.ops.iter().zip(&done.ends()).rev() {
        // It is taken again when it is retained.
        if super::retained::gives_back(op) {
            continue;
        }
        let found = Done::find(done, roots, op, ends)?;
        // The time of a directory that others have changed since is not that of this commit.
        let here = found.here.map(|now| now.mtime);
        if let Does::DirTime { change } = &op.does
            && !op.keeps_dir_time()
            && change.mtime.map(|(_, set)| set) != here
        {
            continue;
        }
        let mut turned = back.turn(&found)?;
        if let (Does::DirTime { change }, Some(here)) = (&mut turned.does, here)
            && op.keeps_dir_time()
        {
            change.mtime = Some((here, here));
        }
        back.ops.push(turned);
    }
    let mut ops = back.ops;
    // Links follow what they link to, and directory times everything that moves them, as in a
    // forward plan.
    ops.sort_by_key(|o| match o.held() {
        _ if sets_a_directory(o) => 3,
        // A link may be what puts it into the store.
        Some(held) if !held.before => 2,
        _ if o.is_link() => 1,
        _ => 0,
    });
    Ok(ops)
}

/// Operations turned so far.
struct Backwards {
    /// The transaction that reverts.
    id: TxId,
    /// Number of the last place in its store that was given away.
    next: u64,
    /// Where what was in a slot goes, if it is not that slot: layer, from, to.
    slots: Vec<(u16, StorePath, StorePath)>,
    ops: Vec<Op>,
}

/// An operation that was carried out, as it is found now.
struct Done<'a> {
    plan: &'a Plan,
    roots: &'a Roots,
    op: &'a Op,
    ends: &'a plan::Ends,
    /// What is at its target, wherever that is by now.
    here: Option<Version>,
}

impl<'a> Done<'a> {
    fn find(
        plan: &'a Plan,
        roots: &'a Roots,
        op: &'a Op,
        ends: &'a plan::Ends,
    ) -> Result<Done<'a>> {
        let mut done = Done { plan, roots, op, ends, here: None };
        done.here = match roots.at(plan, op.layer, &ends.target) {
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            end => done.look(end)?,
        };
        Ok(done)
    }

    fn look(
        &self,
        end: std::result::Result<super::roots::EntryRef, Errno>,
    ) -> Result<Option<Version>> {
        end.and_then(|e| e.look()).map_err(|e| at_target(self.plan, self.op, "looking at", e))
    }

    /// What was retained: it lies in the slot, or went with the directory that the slot is in.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it is gone.
    fn kept(&self) -> Result<Version> {
        let (plan, op) = (self.plan, self.op);
        let slot = self.ends.slot.as_deref().unwrap_or_default();
        let kept = match self.roots.at(plan, op.layer, slot) {
            Err(Errno::NOENT) => None,
            // It will be as it was by then: what was done to it there is undone first.
            _ if plan.ops.iter().any(|o| o.held().is_some() && same_object(o, op)) => op.base,
            end => self.look(end)?,
        };
        kept.ok_or_else(|| {
            Error::Conflict(vec![Conflict {
                path: path::from_bytes(&plan.target_path(op)),
                what: ConflictKind::NotRetained,
                when: None,
            }])
        })
    }

    /// The operation that does `does` where this one was.
    fn back(&self, base: Option<Version>, new: Option<Version>, does: Does) -> Op {
        let op = self.op;
        let before = self.plan.in_tree(op.layer, &self.ends.target);
        Op {
            before: before.unwrap_or_else(|| op.after.clone()),
            after: op.before.clone(),
            base,
            new,
            does,
            ..op.clone()
        }
    }
}

fn staged(slot: &[u8]) -> Staged {
    Staged { slot: slot.into(), ..Staged::default() }
}

fn exchange(slot: &[u8], other: Option<LayerPath>) -> Does {
    Does::Exchange { staged: staged(slot), outsiders: Exchanged::default(), other }
}

impl Backwards {
    /// The operation that undoes this one.
    fn turn(&mut self, done: &Done<'_>) -> Result<Op> {
        let Done { plan, roots, op, ends, here } = *done;
        let turned = match &op.does {
            Does::Exchange { staged: Staged { slot: was, .. }, .. }
            | Does::Remove { slot: was, .. }
                if live_link(roots, op).is_some() =>
            {
                let slot = self.own_slot(op);
                let other = moved_back(plan, op, ends).unwrap_or_default();
                self.slots.push((op.layer, was.clone(), slot.clone()));
                let base = if op.is_exchange() { here.or(op.new) } else { None };
                let mut link = done.back(base, live_link(roots, op), Does::Link { slot, other });
                link.target.clone_from(&op.before);
                link
            }
            Does::Install(staged) => {
                done.back(here, None, Does::Remove { slot: staged.slot.clone(), other: None })
            }
            Does::Exchange { staged, other, .. } => {
                let does = exchange(&staged.slot, other.clone());
                if op.shown {
                    // In a new directory that is away it will be there when that is back.
                    done.back(here.or(op.new), Some(done.kept()?), does)
                } else {
                    // As it is now, or, of a shell, as it will be when its directory is back.
                    let there = here.filter(|h| op.new.is_some_and(|n| n.id == h.id));
                    done.back(there.or(op.new), op.base, does)
                }
            }
            Does::Remove { slot, .. } => {
                done.back(None, Some(done.kept()?), Does::Install(staged(slot)))
            }
            Does::MoveIn { slot, .. } => self.move_out(done, slot)?,
            Does::MoveOut { slot } => {
                let into = |m: &&Op| matches!(&m.does, Does::MoveIn { slot: s, .. } if s == slot && m.layer == op.layer);
                let from = plan.ops.iter().find(into).map(|m| m.target.clone());
                let does = Does::MoveIn { slot: slot.clone(), from };
                Op { shown: true, ..done.back(None, op.base, does) }
            }
            Does::Link { slot, other } => {
                // The other name stays noted: what is removed here is a link of it.
                let other = Some(plan.stable_of(op.layer, other));
                if op.base.is_none() {
                    done.back(here, None, Does::Remove { slot: slot.clone(), other })
                } else {
                    done.back(here, Some(done.kept()?), exchange(slot, other))
                }
            }
            Does::Data(write) | Does::Patch { write, .. } => self.write_back(done, write)?,
            Does::Attrs { change, .. } => {
                let change = Box::new(change.reversed());
                let held = self.held_back(op);
                set_back(done, Does::Attrs { change, held, retained: None })
            }
            Does::DirTime { change } => {
                set_back(done, Does::DirTime { change: Box::new(change.reversed()) })
            }
            // No record of a commit has one.
            Does::Rebuild(_) => return Err(at_target(plan, op, "undoing", Errno::INVAL)),
        };
        Ok(turned)
    }

    /// A place in the store of the transaction that reverts.
    fn own_slot(&mut self, op: &Op) -> StorePath {
        self.next += 1;
        format!("tx/{}/l{}/old/{}", self.id, op.layer, self.next).into_bytes().into()
    }

    /// Where an object is in the store while the operation on it is undone.
    fn held_back(&self, op: &Op) -> Option<Held> {
        op.held().map(|held| {
            let other = self.slots.iter().filter(|(layer, ..)| *layer == op.layer);
            let other = other.map(|(_, from, to)| (&from[..], &to[..]));
            let moves: path::Moves<'_> = other.collect();
            let place = moves.mapped(&held.place).filter(|_| !held.after);
            let place = place.map_or_else(|| held.place.clone(), StorePath::from);
            Held { place, before: held.after, after: held.before }
        })
    }

    /// Undoes a move in: what was moved goes to its slot.
    fn move_out(&self, done: &Done<'_>, slot: &[u8]) -> Result<Op> {
        let Done { roots, op, here, .. } = *done;
        // A shell that was exchanged out goes back by an exchange of its own.
        // A file is by then as it was before: what was done to it in place is undone first.
        let is_dir = here.is_some_and(|v| v.kind() == FileKind::Dir);
        let same = |o: &Op| matches!((o.base, op.new), (Some(a), Some(b)) if a.id == b.id);
        let changed = self.ops.iter().any(|o| o.is_in_place() && !o.is_dir_time() && same(o));
        // (But for the links that were taken from it since.)
        let links = |v: Version| Version { nlink: here.map_or(v.nlink, |h| h.nlink), ..v };
        let as_before = if changed && !is_dir { op.new.map(links) } else { here };
        let shell = match (op.base, roots.slot(op)) {
            (None, _) => None,
            (shell, Err(Errno::NOENT)) => shell,
            // (As it is: overlayfs's index has let go of it.)
            (Some(shell), end) => {
                Some(done.look(end)?.filter(|now| now.id == shell.id).unwrap_or(shell))
            }
        };
        let out = match shell {
            Some(shell) => done.back(as_before, Some(shell), exchange(slot, None)),
            None => done.back(as_before, None, Does::MoveOut { slot: slot.into() }),
        };
        Ok(Op { shown: false, ..out })
    }

    /// Undoes a write: the content that was saved goes back, and what is there now is saved.
    fn write_back(&mut self, done: &Done<'_>, write: &Write) -> Result<Op> {
        let Done { plan, roots, op, here, .. } = *done;
        let mut attrs = write.attrs.as_deref().map(crate::changeset::AttrChange::reversed);
        if let (Some(here), Some(old)) = (here, op.base) {
            attrs.get_or_insert_default().mtime = Some((here.mtime, old.mtime));
        }
        let back_to = Write {
            slot: write.undo_copy.clone(),
            undo_copy: self.own_slot(op),
            attrs: attrs.map(Box::new),
            held: self.held_back(op),
        };
        let in_place = if let Does::Patch { pages, .. } = &op.does {
            // What it will be like: as before the commit, at another time.
            done.back(here, op.base, Does::Patch { write: back_to, pages: pages.clone() })
        } else {
            let new = done.look(roots.slot_at(op.layer, &back_to.slot))?;
            done.back(here, new, Does::Data(back_to))
        };
        stage::save_old(plan, roots, &in_place)?;
        Ok(in_place)
    }
}

/// Undoes a change of attributes.
fn set_back(done: &Done<'_>, does: Does) -> Op {
    let mut attrs = done.back(done.here, done.op.base, does);
    if sets_a_directory(done.op) {
        attrs.target.clone_from(&done.op.before);
    }
    attrs
}

/// Whether two operations are about the same object, as it was before.
fn same_object(a: &Op, b: &Op) -> bool {
    a.layer == b.layer && matches!((a.base, b.base), (Some(a), Some(b)) if a.id == b.id)
}

/// Whether an operation sets attributes, and so perhaps the time, of a directory.
fn sets_a_directory(op: &Op) -> bool {
    op.sets_attributes() && op.base.is_some_and(|v| v.kind() == FileKind::Dir)
}

/// Where another name of an operation's object is once the moves are undone.
fn moved_back(done: &Plan, op: &Op, ends: &plan::Ends) -> Option<LayerPath> {
    let from = op.other()?;
    let (dir, name) = crate::path::layer::split(from);
    let is_moved =
        |o: &Op| o.layer == op.layer && matches!(o.does, Does::MoveIn { .. }) && *o.target == *from;
    // (If the name's directory has gone into the store, another one has its path.)
    let is_there = done.in_tree(op.layer, &ends.target).is_some();
    if is_there && dir == crate::path::layer::split(&op.after).0 && !done.ops.iter().any(is_moved) {
        let (before, _) = crate::path::layer::split(&op.before);
        return Some(crate::path::layer::child(before, name).into());
    }
    Some(done.stable_of(op.layer, from))
}

/// The inode that a removed or replaced name was a link of, if another of its names still is one.
fn live_link(roots: &Roots, op: &Op) -> Option<Version> {
    let other = roots.target_at(op.layer, op.other()?).ok()?.look().ok()??;
    op.base.filter(|b| b.id == other.id).map(|_| other)
}
