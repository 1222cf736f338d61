//! After a publish was undone: a pending transaction can be committed again.
//!
//! Publishing and undoing moves the ctime of what was published, and nothing else. The read set of the
//! pending transaction whose private copies it was is told so, and so is the list of its changes, if it
//! has one, or it would find those objects changed by somebody else. Only objects that this publish had touched, and only if nothing but ctime is
//! other than in the version it found there: what others changed stays a conflict.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use rustix::fs::AtFlags;

use super::permissions::Passage;
use super::publish;
use super::roots::{EntryRef, Roots};
use crate::error::Result;
use crate::id::TxId;
use crate::plan::{Op, Plan};
use crate::store::Home;
use crate::version::{Version, observe};

/// What of a plan is carried out, before it is undone.
pub(super) struct Touched(Vec<usize>);

impl Touched {
    /// What a publish has come to.
    pub fn reached(plan: &Plan, reached: &publish::Reached) -> Touched {
        let (ops, tightened) = (reached.ops.get(), reached.tightened.get());
        let is_touched = |&(index, op): &(usize, &Op)| {
            index < ops || (index < tightened && Passage::of(op).is_some())
        };
        Touched(plan.ops.iter().enumerate().filter(is_touched).map(|(index, _)| index).collect())
    }

    /// Those of which it can be seen: in place, by anything but ctime that is other than before. What
    /// somebody else has changed there is not put back, and so not taken for ours. And those that undoing is
    /// about to touch though nothing was done to them: it tightens their permissions first.
    pub fn seen(plan: &Plan, roots: &Roots) -> Touched {
        let is_done = |&index: &usize| {
            let Some(op) = plan.ops.get(index) else { return false };
            let there = || roots.before(op).and_then(|end| end.look()).ok().flatten().zip(op.base);
            if Passage::of(op).is_some() && there().is_some_and(|(now, base)| now == base) {
                return true;
            }
            if op.is_in_place() {
                return there()
                    .is_some_and(|(now, base)| now.id == base.id && !base.same_but_ctime(&now));
            }
            publish::is_done(plan, roots, op).unwrap_or(false)
        };
        Touched((0..plan.ops.len()).filter(is_done).collect())
    }
}

/// Tells the pending transactions whose private copies were published of what undoing has left.
/// If this fails, a pending transaction later reports a false conflict; the undo still completes.
pub(super) fn update_pending(home: &Home, plan: &Plan, roots: &Roots, touched: &Touched) {
    let mut versions: Vec<(Version, Version)> = Vec::new();
    for op in touched.0.iter().filter_map(|&index| plan.ops.get(index)) {
        versions.extend(super::rebuilt::left(roots, op));
        let Some(base) = op.base.filter(|_| !op.is_rebuild()) else { continue };
        // Waited out: a stamp that could stand for two changes would hide the second.
        let look = |end: EntryRef| observe(end.dir.as_fd(), &end.name, AtFlags::SYMLINK_NOFOLLOW);
        if let Ok((now, false)) = roots.before(op).and_then(look)
            && base.same_but_ctime(&now)
            && base.nlink == now.nlink
        {
            versions.push((base, now));
        }
    }
    let copies: BTreeSet<TxId> = plan.ops.iter().filter_map(|op| owner(op.slot())).collect();
    for id in copies {
        if let Err(error) = update_reads(home, id, &versions) {
            tracing::warn!(%error, "{id} may find what was undone in its way");
        }
    }
}

/// The transaction in whose directory a slot is.
fn owner(slot: &[u8]) -> Option<TxId> {
    let id = slot.strip_prefix(b"tx/")?.split(|&b| b == b'/').next()?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

fn update_reads(home: &Home, id: TxId, versions: &[(Version, Version)]) -> Result<()> {
    // Only a pending one keeps its read set.
    let Some(mut reads) = home.reads(id)? else { return Ok(()) };
    if !versions.is_empty() {
        crate::changeset::moved_on(home, id, versions)?;
    }
    if reads.moved_on(versions) {
        home.save_reads(id, &reads)?;
    }
    let mut meta = home.meta(id)?;
    let before = meta.left_by_own.len();
    versions.iter().for_each(|(was, now)| meta.has_left(was, now));
    if meta.left_by_own.len() != before {
        home.save_meta(&meta, true)?;
    }
    home.each_saved_reads(id, |reads| reads.moved_on(versions))
}
