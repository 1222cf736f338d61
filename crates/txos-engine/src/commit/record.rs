//! After the publish: the record of what was done. Run by the commit itself, or by recovery.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use super::inplace;
use super::roots::Roots;
use super::stage::create_anew;
use crate::error::{Context, Result};
use crate::id::TxId;
use crate::journal::Journal;
use crate::object::FileKind;
use crate::path::{LayerPath, StorePath};
use crate::plan::{self, Does, Op, Plan};
use crate::store::{Home, State, Transaction};
use crate::sys;
use crate::version::{Stamp, Version, stat_at};

/// Records a publish that is complete: detaches retained versions from live inodes, stores the
/// plan, marks the transaction committed, empties the journal.
///
/// # Errors
/// [`crate::Error::Io`]; the journal still says DONE, and recovery does this again.
pub(super) fn finish(
    home: &Home,
    journal: &mut Journal,
    plan: &mut Plan,
    roots: &Roots,
    commit_stamp: Option<Stamp>,
    tx: Option<&mut Transaction>,
) -> Result<()> {
    super::rebuilt::forget(plan);
    // Recovery has no one who waits; then the record is flushed before the journal forgets it.
    let recovers = tx.is_none();
    let mut loaded;
    let tx = match tx {
        Some(tx) => tx,
        None => {
            loaded = home.load_published(plan.id)?;
            &mut loaded
        }
    };
    if !plan.ops.is_empty() {
        detach_all(plan, roots, commit_stamp);
        plan::save(home, plan)?;
        super::merge::keep_left(home, plan, roots);
        super::retained::retire(home, plan, roots);
        tx.meta.commit_stamp = commit_stamp;
    }
    tx.meta.state = State::Committed;
    tx.meta.durable = plan.durable;
    tx.meta.ended = Some(Stamp::now());
    tx.meta.changes = Some(plan.shown());
    tx.save(plan.durable)?;
    let reverts = tx.meta.reverts;
    if let Some(old) = reverts {
        mark_reverted(home, old, tx, plan.durable)?;
    }
    if recovers && plan.durable {
        home.flush_record(plan.id)?;
        if let Some(old) = reverts {
            home.flush_record(old)?;
        }
    }
    journal.idle(false)?;
    tx.discard_work(|layer| plan.ops.iter().any(|op| usize::from(op.layer) == layer));
    if tx.meta.reverts_part {
        plan::forget_rest(home, tx.id());
    }
    Ok(())
}

/// Records with a transaction that `by` has undone it, or a part of it. Can be repeated.
fn mark_reverted(home: &Home, old: TxId, by: &Transaction, durable: bool) -> Result<()> {
    let mut meta = home.meta(old)?;
    if by.meta.reverts_part {
        let Some(rest) = plan::load_rest(home, by.id(), old)? else { return Ok(()) };
        plan::save(home, &rest)?;
        meta.changes = Some(rest.shown());
        if !meta.parts_reverted_by.contains(&by.id()) {
            meta.parts_reverted_by.push(by.id());
        }
    } else {
        meta.state = State::Reverted;
        meta.reverted_by = Some(by.id());
    }
    home.save_meta(&meta, durable)
}

/// Ends a publish that is complete and of which no record is kept: until the caller has discarded the
/// transaction, what it took out of the tree gives nobody rights.
///
/// # Errors
/// [`crate::Error::Io`]; the journal still says DONE, and recovery records the publish.
pub(super) fn forget(home: &Home, journal: &mut Journal, plan: &Plan, roots: &Roots) -> Result<()> {
    super::retained::retire(home, plan, roots);
    journal.idle(false)
}

/// A stamp that every change after this commit has at least, and no change of this commit has.
pub(super) fn take_commit_stamp(home: &Home, id: TxId) -> Result<Stamp> {
    let path = home.tx_dir(id).join("fence");
    let touch = || -> std::io::Result<Version> {
        sys::step("store create", || std::fs::write(&path, b""))?;
        Ok(stat_at(CWD, path.as_os_str().as_bytes(), AtFlags::empty())?)
    };
    let touched = touch().at("writing", &path)?;
    let first = touched.ctime;
    if touched.is_fine(|| crate::mounts::mount_id(&path)) {
        // The first look marked the stamp as seen, so the next change gets a fine one, later than
        // every stamp handed out before.
        return Ok(touch().at("writing", &path)?.ctime);
    }
    // Coarse stamps: wait for the next tick, so that this commit's own are before the commit stamp.
    for _ in 0..100 {
        let now = touch().at("writing", &path)?.ctime;
        if now > first {
            return Ok(now);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(first)
}

/// A retained old version that is still a link of a live inode would show in that inode's link
/// count. Where the inode has another name in the same directory, the retained version becomes a
/// copy, and a revert links to that name again. Else it stays a link: better a count that is one
/// too high until `gc` than a revert that breaks the link. Failing to is no error either.
///
/// Taking the link away moves the live inode's ctime past the commit stamp; the version it leaves is noted
/// with the operations on that inode, if nobody had touched it since the commit stamp.
fn detach_all(plan: &mut Plan, roots: &Roots, commit_stamp: Option<Stamp>) {
    let untouched = |v: &Version| commit_stamp.is_some_and(|commit_stamp| v.ctime < commit_stamp);
    // Also by a name that the inode was given.
    let linked = |op: &Op| {
        let several = |v: Option<Version>| v.is_some_and(|v| v.nlink > 1);
        several(op.base)
            || several(op.new)
            || matches!(op.does, Does::Link { .. } | Does::MoveIn { .. })
    };
    let look = |op: &Op| roots.after(op).ok()?.look().ok()?;
    let before: Vec<Option<Version>> =
        plan.ops.iter().map(|op| linked(op).then(|| look(op)).flatten()).collect();
    // What this plan has put into the tree, a revert takes away before it links to anything.
    let put = plan.ops.iter().filter(|op| !op.is_in_place() && !op.takes_away());
    let put: HashSet<(u16, LayerPath)> = put.map(|op| (op.layer, op.after.clone())).collect();
    // What is changed in the store is looked for there by a revert.
    let held: Vec<(u16, StorePath)> =
        plan.ops.iter().filter_map(|op| Some((op.layer, op.held()?.place.clone()))).collect();
    let mut detached = false;
    for op in &mut plan.ops {
        let several = op.base.is_some_and(|b| b.kind() == FileKind::File && b.nlink > 1);
        let is_held = held.iter().any(|(layer, place)| *layer == op.layer && **place == *op.slot());
        if several && !is_held && matches!(op.does, Does::Remove { .. } | Does::Exchange { .. }) {
            match detach(op, roots, &put) {
                Ok(()) => detached = true,
                Err(error) => tracing::debug!(%error, "a retained version stays a link"),
            }
        }
    }
    if !detached {
        return;
    }
    for (op, before) in plan.ops.iter_mut().zip(before) {
        if let Some(before) = before.filter(untouched) {
            op.own_version = look(op).filter(|now| before.same_but_ctime(now));
        }
    }
}

fn detach(
    op: &mut Op,
    roots: &Roots,
    put: &HashSet<(u16, LayerPath)>,
) -> std::result::Result<(), Errno> {
    let end = roots.slot(op)?;
    let now = end.look()?.ok_or(Errno::NOENT)?;
    if now.nlink < 2 || op.base.is_none_or(|b| b.id != now.id) {
        return Ok(());
    }
    let Some(sibling) = other_name(op, roots, now.id.ino, put)? else { return Ok(()) };
    let mut copy = end.clone();
    copy.name = [&b".copy-"[..], &end.name].concat();
    copy.name.truncate(255);
    let from = end.open(OFlags::RDONLY)?;
    // A commit that was killed here has left its copy.
    let to = create_anew(&copy)?;
    crate::sys_copy::content(&from, &to)?;
    inplace::copy_attrs(&end, &copy)?;
    sys::rename(copy.dir.as_fd(), &copy.name, end.dir.as_fd(), &end.name, RenameFlags::empty())?;
    if let Does::Exchange { other, .. } | Does::Remove { other, .. } = &mut op.does {
        *other = Some(sibling);
    }
    Ok(())
}

/// Another name of an inode that was there before: one that is known already, or one in the directory
/// of the target.
fn other_name(
    op: &Op,
    roots: &Roots,
    ino: u64,
    put: &HashSet<(u16, LayerPath)>,
) -> std::result::Result<Option<LayerPath>, Errno> {
    if let Some(known) = op.other()
        && roots
            .target_at(op.layer, known)
            .and_then(|e| e.look())
            .ok()
            .flatten()
            .is_some_and(|v| v.id.ino == ino)
    {
        return Ok(Some(known.into()));
    }
    let target = roots.after(op)?;
    let readable = sys::open_at(target.dir.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let (dir, _) = crate::path::layer::split(&op.after);
    let mut found = None;
    sys::for_each_entry(readable.as_fd(), |entry| {
        if entry.ino == ino && found.is_none() {
            let path = crate::path::layer::child(dir, entry.name);
            found =
                Some(LayerPath::from(path)).filter(|path| !put.contains(&(op.layer, path.clone())));
        }
    })?;
    Ok(found)
}
