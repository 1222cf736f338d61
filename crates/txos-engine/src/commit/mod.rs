//! Commit: validate, gate, publish, verify, undo; recovery; revert.
//!
//! # The steps, and what a failure or a crash at each leaves
//!
//! | step | in the tree | after a failure | after a crash |
//! |---|---|---|---|
//! | 1 stage: merge appends, save what is overwritten in place | nothing | nothing | nothing |
//! | 2 flush private copies (if durable) | nothing | nothing | nothing |
//! | 3 validate the read set | nothing | nothing | nothing |
//! | 4 write the plan to the journal, flush it | nothing | nothing | nothing |
//! | 5 close the gate (root) | nothing | nothing | nothing |
//! | 6 publish: permissions tightened, verified renames, in place, permissions loosened | partly new | undone | undone by recovery |
//! | 7 validate the read set again; ask what decides with it ([`Progress::decide`]) | new | undone | undone by recovery |
//! | 8 journal: APPLIED; open the gate | new | undone | finished (same boot) or undone |
//! | 9 flush, journal: DONE (if durable, flushed) | new | undone | as 8, then finished |
//! | 10 record: plan, meta | new | finished later | finished by recovery |
//!
//! What it changes is acquired in the realm before ([`acquire`]); with step 4 it can't be doomed any
//! more, and until it has ended no participant touches what it publishes.
//!
//! The commit lock is held from 3 to 10. What somebody else changed between the observation and
//! step 3 is found in 3; between 3 and 6 by the verification of each rename or, if it is only
//! read, in 7. After 7 their change is simply later than this commit.

mod acquire;
mod copied_up;
#[cfg(all(feature = "fuzzing", not(loom)))]
pub(crate) mod fuzz;
mod gate;
mod history_entries;
mod inplace;
mod left;
mod light;
mod merge;
mod partial;
mod permissions;
mod publish;
mod reads_after_undo;
mod rebuilt;
mod record;
mod recover;
mod rescued;
mod restore;
mod retained;
mod revert;
mod roots;
mod stage;

use std::os::fd::AsFd;
use std::path::PathBuf;

pub use acquire::{
    AcquireError, acquire, acquire_for_log, acquire_for_revert, conflict, explain,
    resolve_dead_publish,
};
pub use copied_up::copy_up;
pub use history_entries::committed_entries;
pub use left::Left;
#[cfg(all(feature = "fuzzing", not(loom)))]
pub(crate) use light::fuzz as light_fuzz;
pub use light::{Ground, checkpoint, discard_dead_staging, finish_dead, light};
pub use recover::{Recovered, interrupted, is_left_from_an_earlier_boot, recover};
pub use restore::{Restored, Wanted, acquire_for_restore, restore};
pub use revert::{RevertPreview, preview_revert, revert};

use crate::changeset::ChangeSet;
use crate::error::{Error, Result};
use crate::hash::Map;
use crate::id::TxId;
use crate::journal::Journal;
use crate::object::FileKind;
use crate::path;
use crate::path::LayerPath;
use crate::path::layer::split;
use crate::places::Places;
use crate::plan::{Does, Op, Plan, Rebuilt, in_place};
use crate::readset::ReadSet;
pub use crate::readset::validate::Isolation;
use crate::readset::validate::{OwnWrites, ValidationRules};
use crate::realm::TxHandle;
use crate::store::{Home, State, Transaction};
use crate::sys_owner;
use crate::version::{Stamp, Version};
use gate::Gate;
use roots::{Roots, at_target};

/// How to commit.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which observations must still hold.
    pub isolation: Isolation,
    /// Merge files to which both this transaction and somebody else only appended.
    pub merge_append: bool,
    /// Globs of files whose inode must stay (changed in place).
    pub keep_inode: Vec<String>,
    /// Hold back opens of the write set during the publish (needs root; ignored otherwise).
    pub gate: bool,
    /// Flush private copies, journal and publish.
    pub durable: bool,
    /// The transaction stays in the history, with its record. Else what it took out of the tree is kept only
    /// until the commit has ended, and the caller discards it.
    pub kept: bool,
    /// If not empty: publish, or undo, only what lies at or below these paths; the rest stays pending, or
    /// committed. For a revert they may be globs.
    pub paths: Vec<PathBuf>,
    /// Of a revert: globs of the paths that it leaves as they are if others have changed them since.
    pub skip_changed: Vec<String>,
    /// Of a revert: merge texts that others have changed since.
    pub merge: bool,
    /// Whether another commit of the same store is a conflict instead of waited for.
    pub nonblock: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            isolation: Isolation::Serializable,
            merge_append: true,
            keep_inode: Vec::new(),
            gate: true,
            durable: true,
            kept: true,
            paths: Vec::new(),
            skip_changed: Vec::new(),
            merge: false,
            nonblock: false,
        }
    }
}

/// A stage of long work, for a progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Reading what changed.
    Scanning,
    /// Looking again at what was read.
    Validating,
    /// Flushing private copies.
    Flushing,
    /// Renaming into place.
    Publishing,
    /// Undoing.
    Undoing,
}

/// Told about long work, and asked before the commit. All methods default to nothing.
pub trait Progress {
    /// A stage begins; `total` steps if known.
    fn phase(&self, _phase: Phase, _total: Option<u64>) {}
    /// So many steps more are done.
    fn advance(&self, _steps: u64) {}
    /// Everything is published and validated, and no participant can touch it. What remains is to write into the journal
    /// that it stays: what decides with this transaction decides here. Other commits of the store wait meanwhile.
    ///
    /// # Errors
    /// Why the publish is to be undone; the commit fails with it.
    fn decide(&self) -> Result<()> {
        Ok(())
    }
}

/// No display.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The transaction.
    pub id: TxId,
    /// Number of changed paths.
    pub changes: u64,
    /// Number of files of which an append was merged.
    pub merged: u64,
    /// Nothing of the transaction is left to commit.
    pub complete: bool,
    /// Everything is published, but its record could not be written; recovery will.
    pub unrecorded: Option<String>,
    /// What a revert has left as others have changed it.
    pub left: Vec<Left>,
    /// What a revert has merged with what others have changed.
    pub merged_texts: Vec<PathBuf>,
}

impl Summary {
    /// Of what changed nothing.
    pub(crate) fn nothing(id: TxId) -> Self {
        Summary::new(id, 0)
    }

    fn new(id: TxId, changes: u64) -> Self {
        Summary {
            id,
            changes,
            merged: 0,
            complete: true,
            unrecorded: None,
            left: Vec::new(),
            merged_texts: Vec::new(),
        }
    }
}

/// A publish that is complete stays so, whether or not its record could be written.
fn recorded(summary: Summary, recorded: Result<()>) -> Summary {
    match recorded {
        Ok(()) => summary,
        Err(error) => Summary { unrecorded: Some(error.to_string()), ..summary },
    }
}

/// What is to be acquired, and then published: the one plan of a commit.
#[derive(Debug)]
pub struct Planned {
    plan: Plan,
    /// The rest of the change set stays pending.
    is_part: bool,
}

/// Plans a commit of a change set, or of the part of it that `options` name. Looks at nothing but the
/// change set and its private copies.
///
/// # Errors
/// [`Error::Unsupported`] if nothing is there, or if a path can't be committed without another.
pub fn plan(tx: &Transaction, changes: &ChangeSet, options: &Options) -> Result<Planned> {
    Ok(match partial::select(tx, changes, &options.paths)? {
        Some(part) => Planned { plan: Plan::build(tx, &part, options.durable), is_part: true },
        None => Planned { plan: Plan::build(tx, changes, options.durable), is_part: false },
    })
}

/// Commits a transaction: validates, publishes, retains. On success the record is committed and
/// saved. A transaction that changed nothing is validated, and there is nothing to record: it
/// stays as it is, for the caller to discard.
///
/// `handle` is its place in the realm, with what it changes acquired ([`acquire`]); the caller ends it:
/// by [`TxHandle::finish`] after success, by [`TxHandle::leave_publishing`] after
/// [`Error::Unfinished`], else by [`TxHandle::abort`].
///
/// # Errors
/// [`Error::Conflict`] if somebody was first, any other error if publishing was impossible. In
/// every case of error but [`Error::Unfinished`] the tree is as before and the transaction's private copies are intact.
#[expect(
    clippy::too_many_arguments,
    reason = "what is committed, by which rules, for whom: each has another owner"
)]
pub fn commit(
    home: &Home,
    tx: &mut Transaction,
    planned: Planned,
    reads: &ReadSet,
    options: &Options,
    handle: Option<&mut TxHandle<'_>>,
    progress: &dyn Progress,
) -> Result<Summary> {
    let Planned { mut plan, is_part } = planned;
    check_boot(tx)?;
    let _rights = sys_owner::rights();
    let _lock = lock(home, options)?;
    let mut journal = recover::recover_locked(home, progress)?.0;
    home.check_loaded(tx)?;
    if tx.meta.splitting.is_some() {
        return Err(Error::WrongState {
            id: tx.id(),
            state: "not in order: a commit of a part of it was interrupted".into(),
            advice: "its change set has to be read again after `put_in_order`.".into(),
        });
    }
    let mut context = ExecContext { gate: options.gate, handle, progress };
    if is_part {
        let reads = reads.clone();
        return partial::commit_part(home, &mut journal, tx, plan, reads, options, &mut context);
    }
    let (merged, roots, commit_stamp) =
        prepare_and_execute(home, &mut journal, tx, &mut plan, reads, options, &mut context)?;
    if plan.ops.is_empty() {
        return Ok(Summary::new(tx.id(), 0));
    }
    let record = match options.kept {
        true => record::finish(home, &mut journal, &mut plan, &roots, commit_stamp, Some(tx)),
        false => record::forget(home, &mut journal, &plan, &roots),
    };
    Ok(recorded(Summary { merged, ..Summary::new(tx.id(), plan.shown()) }, record))
}

/// The commit lock of the store.
fn lock(home: &Home, options: &Options) -> Result<crate::store::CommitLock> {
    if !options.nonblock {
        return home.lock_commits();
    }
    home.try_lock_commits()?.ok_or_else(|| {
        Error::Conflict(vec![crate::error::Conflict {
            path: home.dir().to_path_buf(),
            what: crate::error::ConflictKind::Committing,
            when: None,
        }])
    })
}

/// Puts a pending transaction in order whose part was being committed when something died. To be
/// called by whoever is about to use or drop its private copies.
///
/// # Errors
/// [`Error::Io`], [`Error::Format`]; can be repeated.
pub fn put_in_order(home: &Home, tx: &mut Transaction) -> Result<()> {
    if tx.meta.splitting.is_none() {
        return Ok(());
    }
    let _rights = sys_owner::rights();
    let _lock = home.lock_commits()?;
    recover::recover_locked(home, &Silent)?;
    home.check_loaded(tx)?;
    let reads = tx.load_reads()?;
    partial::finish_split(home, tx, &reads)
}

/// Looks whether a pending transaction could be committed now, as a commit does before it publishes: whether
/// everything still is as it was observed. Changes nothing.
///
/// # Errors
/// [`Error::Conflict`] if somebody was first.
pub fn check(
    home: &Home,
    tx: &Transaction,
    changes: &ChangeSet,
    reads: &ReadSet,
    options: &Options,
) -> Result<()> {
    let Planned { plan, .. } = plan(tx, changes, options)?;
    check_boot(tx)?;
    let _rights = sys_owner::rights();
    let _lock = home.lock_commits()?;
    first_validation(tx, &plan, reads, options)?;
    if options.merge_append && plan.ops.iter().any(|op| op.base.is_some()) {
        stage::check_appends(tx, &plan, &Roots::open(&plan)?, reads)?;
    }
    Ok(())
}

/// Step 3.
fn first_validation(
    tx: &Transaction,
    plan: &Plan,
    reads: &ReadSet,
    options: &Options,
) -> Result<()> {
    let unobserved = stage::check_unobserved(tx, plan, reads);
    if !unobserved.is_empty() {
        return Err(Error::Conflict(unobserved));
    }
    validate(reads, options, &OwnWrites::default())
}

/// Whether what was observed still is so, but for what the transaction itself has published.
fn validate(reads: &ReadSet, options: &Options, published: &OwnWrites) -> Result<()> {
    let terms =
        ValidationRules { isolation: options.isolation, merge_append: options.merge_append };
    // What the user could not look at was an observation as well.
    let mut conflicts = sys_owner::without(|| reads.validate(terms, published));
    conflicts.truncate(32);
    if conflicts.is_empty() { Ok(()) } else { Err(Error::Conflict(conflicts)) }
}

/// Stages, validates and publishes a plan: steps 1 to 9. Gives the number of merged appends, the
/// field, and the commit stamp if anything was published.
#[expect(
    clippy::too_many_arguments,
    reason = "a commit, with the journal that the caller has locked"
)]
fn prepare_and_execute(
    home: &Home,
    journal: &mut Journal,
    tx: &Transaction,
    plan: &mut Plan,
    reads: &ReadSet,
    options: &Options,
    context: &mut ExecContext<'_, '_>,
) -> Result<(u64, Roots, Option<Stamp>)> {
    tx.forget_seen()?;
    let roots = Roots::open(plan)?;
    let merged = stage::stage(tx, plan, &roots, reads, options.merge_append)?;
    context.progress.phase(Phase::Validating, None);
    let validate = |published: &OwnWrites| validate(reads, options, published);
    // What they hold is read before it is validated that nobody has changed it.
    let rebuilds = rebuilt::find(plan, &roots)?;
    if let Err(error) = first_validation(tx, plan, reads, options) {
        rebuilt::discard(&rebuilds, &roots);
        return Err(error);
    }
    rebuilt::put_first(plan, rebuilds);
    if !plan.ops.is_empty() {
        let again = |plan: &Plan| {
            let (published, left) = (published_by(plan, reads), rebuilt::Left::by(plan));
            if left.is_empty() {
                return validate(&published);
            }
            let mut reads = reads.clone();
            reads.each_present(|path, was| *was = left.now(path, was));
            self::validate(&reads, options, &published)
        };
        let commit_stamp = execute(home, journal, plan, &roots, context, &again)?;
        return Ok((merged, roots, Some(commit_stamp)));
    }
    context.progress.decide()?;
    Ok((merged, roots, None))
}

/// Private copies that were not flushed are lost with the boot in which they were made.
fn check_boot(tx: &Transaction) -> Result<()> {
    let flushed = tx.meta.state == State::Pending && tx.meta.durable;
    if tx.meta.boot == crate::machine::boot_id() || flushed {
        return Ok(());
    }
    Err(Error::WrongState {
        id: tx.id(),
        state: "from before the last reboot, and its private copies were not flushed".into(),
        advice: "they can't be trusted; remove it with `txos abort`.".into(),
    })
}

/// How a plan is executed.
struct ExecContext<'a, 'r> {
    gate: bool,
    /// Its place in the realm; none for those who are no participants.
    handle: Option<&'a mut TxHandle<'r>>,
    progress: &'a dyn Progress,
}

/// Journals and publishes a staged plan: steps 2 and 4 to 9 of the table above. Gives the commit stamp.
///
/// `again` validates after the publish; its conflict undoes everything.
fn execute(
    home: &Home,
    journal: &mut Journal,
    plan: &mut Plan,
    roots: &Roots,
    context: &mut ExecContext<'_, '_>,
    again: &dyn Fn(&Plan) -> Result<()>,
) -> Result<Stamp> {
    if plan.durable {
        context.progress.phase(Phase::Flushing, None);
        roots.flush()?;
    }
    separate(plan, roots)?;
    let opened = open_in_place(plan, roots)?;
    let plan = &*plan;
    // From here on no participant can stop it, or touch what it changes.
    if let Some(handle) = context.handle.as_mut() {
        let first = plan.ops.first().map(|op| plan.target_path(op)).unwrap_or_default();
        handle.publish().map_err(|stop| Error::Conflict(vec![acquire::conflict(&first, &stop)]))?;
    }
    let unfinished = |cause: Error, undoing: Error| Error::Unfinished {
        id: plan.id,
        cause: Box::new(cause),
        undoing: Box::new(undoing),
    };
    if let Err(cause) = journal.write_plan(plan) {
        // Incomplete or complete, nothing of it was done: leave no plan behind.
        return Err(match journal.idle(false) {
            Ok(()) => cause,
            Err(undoing) => unfinished(cause, undoing),
        });
    }
    context.progress.phase(Phase::Publishing, Some(plan.ops.len() as u64));
    let reached = publish::Reached::default();
    let mut gate = None;
    let mut attempt = || -> Result<Stamp> {
        gate = if context.gate { close_gate(plan, roots)? } else { None };
        let gated = gate.is_some();
        publish::publish(plan, roots, &opened, gated, &reached, context.progress)?;
        again(plan)?;
        no_writer_waits(plan, gate.as_ref())?;
        context.progress.decide()?;
        let commit_stamp = record::take_commit_stamp(home, plan.id)?;
        journal.applied(commit_stamp)?;
        // Once more: writing the journal took a while.
        no_writer_waits(plan, gate.as_ref())?;
        // From here on everybody may see it: it is whole.
        if let Some(gate) = gate.take() {
            gate.open(true);
        }
        if plan.durable {
            roots.flush()?;
        }
        journal.done(plan.durable)?;
        Ok(commit_stamp)
    };
    let error = match attempt() {
        Ok(commit_stamp) => return Ok(commit_stamp),
        Err(error) => error,
    };
    drop(opened);
    context.progress.phase(Phase::Undoing, None);
    let extent = reached.extent();
    let undone = journal
        .undoing(plan.durable)
        .and_then(|()| publish::undo(plan, roots, extent))
        .and_then(|notes| {
            if plan.durable {
                roots.flush()?;
            }
            reads_after_undo::update_pending(
                home,
                plan,
                roots,
                &reads_after_undo::Touched::reached(plan, &reached),
            );
            journal.idle(plan.durable)?;
            Ok(notes)
        });
    // Nobody sees a half-undone publish either.
    match gate {
        Some(gate) if undone.is_ok() => gate.open(false),
        unsure => drop(unsure),
    }
    match undone {
        Ok(notes) => {
            for note in notes {
                tracing::warn!("{note}");
            }
            Err(error)
        }
        Err(undoing) => Err(unfinished(error, undoing)),
    }
}

/// Has names of files of an overlay's lower layers become files of their own that would with the plan's changes: the plan is about those from here on.
///
/// # Errors
/// [`Error::Io`] if such a name is to be changed in place and can't be opened for writing: what was done could not be undone.
fn separate(plan: &mut Plan, roots: &Roots) -> Result<()> {
    let mut separated = Vec::new();
    for op in plan.ops.iter().filter(|op| op.held().is_none()) {
        // A new name is made of another one, of which only the inode is known.
        let (end, seen, path) = match (&op.does, op.new) {
            (Does::Link { other, .. }, Some(new)) => {
                let path = stable_place(plan, op.layer, other);
                let Ok(end) = roots.target_at(op.layer, &path) else { continue };
                let Ok(Some(now)) = end.look() else { continue };
                (end, (now.id == new.id).then_some(now), path)
            }
            _ => {
                let Ok(end) = roots.before(op) else { continue };
                (end, op.base, op.before.clone())
            }
        };
        let Some(seen) = seen.filter(|seen| seen.nlink > 1) else { continue };
        match copied_up::separated(end.dir.as_fd(), &end.name, &seen) {
            Ok(None) => {}
            Ok(Some(after)) => separated.push((op.layer, path, seen, after)),
            Err(e) if matches!(op.does, in_place!() | Does::Link { .. }) => {
                return Err(at_target(plan, op, "copying a file of a lower layer", e));
            }
            Err(_) => {}
        }
    }
    for (layer, path, before, after) in separated {
        let is_of = |op: &Op| match &op.does {
            Does::MoveIn { from: Some(from), .. } => *from == path || op.before == path,
            Does::Link { other, .. } => stable_place(plan, layer, other) == path,
            _ => op.before == path,
        };
        let concerned: Vec<bool> =
            plan.ops.iter().map(|op| op.layer == layer && is_of(op)).collect();
        moved_on_inside(plan, layer, &path, (before, after));
        for (op, _) in plan.ops.iter_mut().zip(&concerned).filter(|(_, concerned)| **concerned) {
            if op.before == path && op.base == Some(before) {
                op.base = Some(after);
            }
            if let Some(new) = op.new.as_mut().filter(|new| new.id == before.id) {
                (new.id, new.nlink, new.ctime) = (after.id, after.nlink, after.ctime);
            }
        }
    }
    Ok(())
}

/// Tells the rebuild of a directory that what was found at a path in it has another version by now.
fn moved_on_inside(plan: &mut Plan, layer: u16, path: &[u8], (before, after): (Version, Version)) {
    for op in plan.ops.iter_mut().filter(|op| op.layer == layer) {
        let Does::Rebuild(rebuilt) = &mut op.does else { continue };
        let inside = rebuilt.inside.iter_mut().filter(|one| one.version == before);
        inside
            .filter(|one| path::layer::child(&op.target, &one.below) == *path)
            .for_each(|one| one.version = after);
    }
}

/// Where an object is before the plan begins that has a name in the course of it: where that was moved from, or what it was made a name of.
fn stable_place(plan: &Plan, layer: u16, name: &LayerPath) -> LayerPath {
    let mut name = name;
    for op in plan.ops.iter().rev().filter(|op| op.layer == layer) {
        match &op.does {
            Does::MoveIn { from: Some(from), .. } if op.target == *name => name = from,
            Does::Link { other, .. } if op.target == *name => name = other,
            _ => {}
        }
    }
    name.clone()
}

/// Opens what is written in place before the gate closes on it. What a file's owner may not write to has another ctime then, and so
/// has what an overlayfs copies first: the plan has it from here on.
fn open_in_place(plan: &mut Plan, roots: &Roots) -> Result<publish::Opened> {
    let mut opened = Map::default();
    let mut touched = Vec::new();
    for (index, op) in plan.ops.iter().enumerate().filter(|(_, o)| o.is_write()) {
        if let (Ok(end), Some(base)) = (roots.before(op), &op.base) {
            let after = copied_up::copied_up(end.dir.as_fd(), &end.name, base);
            touched.extend(after.map(|after| (*base, after)));
        }
        let open = |end: roots::EntryRef| match end.open(rustix::fs::OFlags::WRONLY) {
            Err(rustix::io::Errno::ACCESS) => {
                let before = end.look()?;
                let fd = publish::open_past_mode(&end, rustix::fs::OFlags::WRONLY)?;
                touched.extend(before.zip(end.look()?));
                Ok(fd)
            }
            opened => opened,
        };
        let fd = roots
            .before(op)
            .and_then(open)
            .map_err(|e| at_target(plan, op, "opening for writing", e))?;
        opened.insert(index, fd);
    }
    for (before, after) in touched {
        let rebuilt = plan.ops.iter_mut().filter_map(|op| match &mut op.does {
            Does::Rebuild(rebuilt) => Some(&mut rebuilt.inside),
            _ => None,
        });
        if before.same_but_ctime(&after) && before.nlink == after.nlink {
            let inside = rebuilt.flatten().filter(|one| one.version == before);
            inside.for_each(|one| one.version = after);
        }
        let bases = plan.ops.iter_mut().filter_map(|op| op.base.as_mut());
        // What anybody else has changed is a conflict.
        if before.same_but_ctime(&after) && before.nlink == after.nlink {
            bases.filter(|base| **base == before).for_each(|base| *base = after);
        }
    }
    Ok(opened)
}

/// Closes the gate on everything that is about to change or appear.
///
/// # Errors
/// [`Error::Conflict`] if somebody opened a file for writing since it was staged as a replacement.
fn close_gate(plan: &Plan, roots: &Roots) -> Result<Option<Gate>> {
    // One change alone is seen before or after, never half.
    let objects = plan.ops.iter().filter(|o| !o.sets_attributes());
    if objects.clone().count() < 2 {
        return Ok(None);
    }
    let Some(gate) = Gate::new(plan) else { return Ok(None) };
    let ours = publish::written_by_us(plan);
    for op in objects {
        let gated = |v: &Option<Version>| {
            v.map(|v| v.kind()).filter(|k| matches!(k, FileKind::File | FileKind::Dir))
        };
        if let (Some(kind), Ok(end)) = (gated(&op.base), roots.before(op)) {
            // Opened before the mark, asked for a lease after it: no writer comes in between.
            let replaced = op.yields_to_writers() && !op.base.is_some_and(|v| ours.contains(&v.id));
            let lease = replaced.then(|| end.open_now(rustix::fs::OFlags::RDONLY));
            // Who has a lease on it may be a writer.
            let held = matches!(lease, Some(Err(rustix::io::Errno::AGAIN)));
            let lease = lease.and_then(std::result::Result::ok);
            let _ = gate.hold(end.dir.as_fd(), &end.name, kind == FileKind::Dir);
            if held || lease.is_some_and(|fd| inplace::lease_refused(fd.as_fd())) {
                return Err(publish::being_written(plan, op));
            }
        }
        if let Does::Rebuild(directory) = &op.does {
            hold_rebuilt(&gate, roots, op, directory);
        }
        if let Does::Install(staged) | Does::Exchange { staged, .. } = &op.does
            && let (Some(kind), Ok(end)) = (gated(&op.new), roots.slot(op))
        {
            let _ = gate.hold(end.dir.as_fd(), &end.name, kind == FileKind::Dir);
            for below in &staged.dirs {
                let (dir, name) = split(below);
                let inner =
                    end.open_path().and_then(|top| crate::sys::open_dir_beneath(top.as_fd(), dir));
                if let Ok(inner) = inner {
                    let _ = gate.hold(inner.as_fd(), name, true);
                }
            }
        }
    }
    Ok(Some(gate))
}

/// Closes the gate on the directories that are made anew in another one, and on the new ones.
fn hold_rebuilt(gate: &Gate, roots: &Roots, op: &Op, directory: &Rebuilt) {
    let ends = [roots.before(op), roots.slot(op)];
    for end in ends.into_iter().flatten() {
        let _ = gate.hold(end.dir.as_fd(), &end.name, true);
        let Ok(top) = end.open_path() else { continue };
        for one in directory.inside.iter().filter(|one| one.anew) {
            let (dir, name) = split(&one.below);
            if let Ok(dir) = crate::sys::open_dir_beneath(top.as_fd(), dir) {
                let _ = gate.hold(dir.as_fd(), name, true);
            }
        }
    }
}

/// A process that waits at the gate to write to an inode that has been taken out of the tree would
/// write to nowhere: the publish gives way to it.
fn no_writer_waits(plan: &Plan, gate: Option<&Gate>) -> Result<()> {
    let Some(pid) = gate.and_then(Gate::writer_waits) else { return Ok(()) };
    let path = plan.ops.first().map(|op| plan.target_path(op)).unwrap_or_default();
    Err(Error::Conflict(vec![crate::error::Conflict {
        path: path::from_bytes(&path),
        what: crate::error::ConflictKind::WriterWaits(pid),
        when: None,
    }]))
}

/// [`published_by`] of a plan that leaves paths: the entry at a target is the target, and what it leads to has that name.
///
/// `walks`: whether paths are walked through the tree as it was. Otherwise nobody asks where in a store files went to or
/// came from: nothing was observed there, and nothing is below them.
fn published_at_targets(plan: &Plan, walks: bool) -> OwnWrites {
    let names = plan.ops.iter().filter(|op| !op.is_in_place()).count();
    let mut places = if walks { Places::for_renames(names) } else { Places::for_names(names) };
    let mut published = OwnWrites::default();
    published.verified.reserve(plan.ops.len());
    for op in &plan.ops {
        let linked = |v: &Version| v.nlink > 1 && v.kind() != FileKind::Dir;
        published.inodes.extend(op.base.filter(linked).map(|v| v.id));
        let target = plan.target_path(op);
        match (walks, &op.does) {
            (_, in_place!()) => {}
            (true, _) => plan.carry_out_at(op, target.clone(), &mut places),
            (false, does) => {
                let exists = !matches!(does, Does::Remove { .. });
                places.set(target.clone(), op.base.is_some(), exists);
            }
        }
        if !op.is_dir_time() {
            published.verified.insert(target);
        }
    }
    published.names_from(places);
    published
}

/// What a plan changes, for the second validation of what was read.
fn published_by(plan: &Plan, reads: &ReadSet) -> OwnWrites {
    if plan.leaves_paths() {
        published_at_targets(plan, reads.walks_paths())
    } else {
        published_along_paths(plan)
    }
}

/// [`published_by`] of a plan in the course of which paths may lead elsewhere.
fn published_along_paths(plan: &Plan) -> OwnWrites {
    let mut places = Places::default();
    let mut published = OwnWrites::default();
    let entry = |places: &Places, layer, path: &[u8]| places.entry(&plan.path_of(layer, path));
    for op in &plan.ops {
        let linked = |v: &Version| v.nlink > 1 && v.kind() != FileKind::Dir;
        published.inodes.extend(op.base.filter(linked).map(|v| v.id));
        let target = entry(&places, op.layer, &op.target);
        if let Does::Link { other, .. } = &op.does {
            published.inodes.extend(op.new.map(|v| v.id));
            published.verified.insert(entry(&places, op.layer, other));
        }
        // (What is in a directory that is made anew can be reached until another operation takes it away.)
        if !op.is_dir_time() && !op.is_rebuild() {
            // What is changed in place was observed where it was at the beginning.
            published.verified.extend(places.object(&target));
            published.verified.insert(target);
        }
        plan.carry_out(op, &mut places);
    }
    published.names_from(places);
    published
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::plan::tests::{op, plan};

    /// What is known of a plan that leaves paths without walking any is what the walk finds.
    #[test]
    fn what_a_plan_published_is_the_same_by_both_ways() {
        let kinds = ['i', 'x', 'r', 'a', 't'];
        let mut ops: Vec<Op> = (0..60u64)
            .map(|n| {
                let what = kinds[(n % 5) as usize];
                let mode = if what == 't' { 0o40_755 } else { 0o100_644 };
                op(n + 1, what, &format!("d{}/{n}", n % 7), mode)
            })
            .collect();
        ops.push(op(100, 'a', "", 0o40_755));
        let plan = plan(ops);
        assert!(plan.leaves_paths());
        let long = published_along_paths(&plan);
        let walked = published_at_targets(&plan, true);
        assert_eq!(walked.places, long.places);
        let in_store = |dir: &[u8]| {
            let mut stores = plan.layers.iter().map(|layer| layer.store.as_os_str().as_bytes());
            stores.any(|store| crate::path::is_at_or_below(dir, store))
        };
        let changed = |published: &OwnWrites| {
            let mut names: Vec<_> = published
                .places
                .changed_names()
                .filter(|(dir, ..)| !in_store(dir))
                .map(|(dir, name, exists)| (dir.to_vec(), name.to_vec(), exists))
                .collect();
            names.sort();
            names
        };
        for short in [walked, published_at_targets(&plan, false)] {
            assert_eq!(short.verified, long.verified);
            assert_eq!(short.inodes, long.inodes);
            assert_eq!(changed(&short), changed(&long));
            for path in plan.ops.iter().map(|op| plan.target_path(op)) {
                assert_eq!(short.places.existed(&path), long.places.existed(&path));
            }
            for dir in (0..7).map(|n| plan.path_of(0, format!("d{n}").as_bytes())) {
                assert_eq!(short.places.now(&dir), dir);
            }
        }
    }
}
