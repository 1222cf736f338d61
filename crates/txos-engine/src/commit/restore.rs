//! Restore: putting a retained version of single paths back, as a transaction of its own.
//!
//! The state of a path at a transaction is found in the history: the first operation on it that came later
//! retains what it found there. If no later one changed the path, what the tree has is the state. That nobody
//! else changed the path in between is told by the versions; if somebody did, what the transaction left is
//! kept nowhere, and that is said.
//!
//! What is put in place is always a copy. So what the history retains stays for reverts, and a restore can be
//! reverted like anything else.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::acquire::{AcquireError, acquire_plan};
use super::roots::{EntryRef, Roots};
use super::{
    ExecContext, Options, Progress, Summary, execute, inplace, record, recorded, recover, retained,
    stage,
};
use crate::changeset::AttrChange;
use crate::error::{Error, Result};
use crate::id::TxId;
use crate::object::FileKind;
use crate::path::{self, LayerPath, StorePath, layer};
use crate::plan::{self, Does, Exchanged, Op, Plan, Staged};
use crate::realm::TxHandle;
use crate::show::{quoted, quoted_bytes};
use crate::store::{Begin, Home, LayerMeta, LayerRequest, State};
use crate::sys;
use crate::version::{Stamp, Version};

/// Which versions of which paths.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The transaction.
    pub source: TxId,
    /// As they were before it, instead of as it left them.
    pub before: bool,
    /// The paths, as paths of the stable tree.
    pub paths: Vec<PathBuf>,
    /// The command, for the history.
    pub command: Vec<String>,
    /// Where it was given.
    pub directory: PathBuf,
}

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Restored {
    /// As of every commit; none if everything was as wanted.
    pub summary: Option<Summary>,
    /// What was as wanted already.
    pub same: Vec<PathBuf>,
}

/// One path to put in order.
#[derive(Debug)]
struct Item {
    layer: LayerMeta,
    /// Relative to the layer.
    path: LayerPath,
    state: Found,
}

/// The state of a path at a point of the history.
#[derive(Clone, Debug)]
enum Found {
    /// Nothing was there.
    Absent,
    /// This was there, and is retained.
    Kept(Box<Kept>),
    /// What is there now.
    AsItIs,
}

/// A retained object.
#[derive(Clone, Debug)]
struct Kept {
    /// Whose record says what it may do.
    by: TxId,
    store: PathBuf,
    number: u16,
    /// In the store.
    slot: StorePath,
    /// Below the slot.
    below: Vec<u8>,
    /// What it was in the tree, if that is known.
    was: Option<Version>,
    /// Extended attributes that were changed later.
    changed: Vec<AttrChange>,
}

/// A committed plan, with when it was committed.
struct Step {
    stamp: Stamp,
    plan: Plan,
}

/// The committed plans that can be read, oldest first.
fn history(home: &Home) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for meta in home.transactions()?.into_iter().flatten() {
        let published = matches!(meta.state, State::Committed | State::Reverted);
        let Some(stamp) = meta.commit_stamp.filter(|_| published) else { continue };
        if let Some(plan) = plan::load(home, meta.id)? {
            steps.push(Step { stamp, plan });
        }
    }
    steps.sort_by_key(|step| step.stamp);
    Ok(steps)
}

/// Looks for the wanted versions.
fn find(home: &Home, wanted: &Wanted) -> Result<Vec<Item>> {
    let meta = home.meta(wanted.source)?;
    let Some(stamp) = meta.commit_stamp else {
        return Err(Error::WrongState {
            id: wanted.source,
            state: meta.state.to_string(),
            advice: "only what was committed has left versions".into(),
        });
    };
    let steps = history(home)?;
    let mut items = Vec::new();
    for asked in &wanted.paths {
        let asked = asked.as_os_str().as_bytes();
        let mut paths = changed_below(&steps, stamp, wanted.before, asked);
        if paths.is_empty() {
            paths.push(asked.to_vec());
        }
        for path in paths {
            let found = state(&steps, stamp, wanted, &path)?;
            let Some(layer) = layer_of(&meta.layers, &steps, &path) else {
                return Err(not_known(
                    &path,
                    "lies in no tree that a transaction of the history versioned",
                ));
            };
            let below = relative(&path, layer.target.as_os_str().as_bytes());
            items.push(Item { layer, path: below.into(), state: found });
        }
    }
    Ok(items)
}

/// The paths below one that were changed by single operations since; without those below another one of them.
fn changed_below(steps: &[Step], stamp: Stamp, before: bool, top: &[u8]) -> Vec<Vec<u8>> {
    let since = |step: &&Step| step.stamp > stamp || before && step.stamp == stamp;
    let mut paths: Vec<Vec<u8>> = Vec::new();
    for step in steps.iter().filter(since) {
        for op in step.plan.ops.iter().filter(|op| op.shown) {
            for path in [step.plan.before_path(op), step.plan.after_path(op)] {
                if path::is_at_or_below(&path, top) {
                    paths.push(path);
                }
            }
        }
    }
    paths.sort();
    paths.dedup();
    let mut apart: Vec<Vec<u8>> = Vec::new();
    for path in paths {
        if !apart.last().is_some_and(|above| path::is_at_or_below(&path, above)) {
            apart.push(path);
        }
    }
    apart
}

/// The innermost layer that holds a path.
fn layer_of(own: &[LayerMeta], steps: &[Step], path: &[u8]) -> Option<LayerMeta> {
    let all = own.iter().chain(steps.iter().rev().flat_map(|step| &step.plan.layers));
    all.filter(|l| path::is_at_or_below(path, l.target.as_os_str().as_bytes()))
        .max_by_key(|l| l.target.as_os_str().len())
        .cloned()
}

fn relative(path: &[u8], top: &[u8]) -> Vec<u8> {
    let rest = if top == b"/" { path } else { path.get(top.len()..).unwrap_or_default() };
    rest.strip_prefix(b"/").unwrap_or(rest).to_vec()
}

fn not_known(path: &[u8], why: &str) -> Error {
    Error::Unsupported {
        what: format!("{} {why}", quoted_bytes(path)),
        advice: "`txos log PATH` shows the transactions that changed it; nothing was changed."
            .into(),
    }
}

/// The state of a path right after a transaction, or right before it.
fn state(steps: &[Step], stamp: Stamp, wanted: &Wanted, path: &[u8]) -> Result<Found> {
    let mut changed: Vec<AttrChange> = Vec::new();
    let mut was: Option<Version> = None;
    let left = left_by(steps, stamp, path);
    let unknown = |now: &Version| {
        let as_left = left.is_some_and(|left| {
            (left.size, left.mtime, left.mode) == (now.size, now.mtime, now.mode)
        });
        now.ctime >= stamp && !as_left && now.kind() != FileKind::Dir
    };
    let lost = || {
        not_known(
            path,
            &format!(
                "was changed by others after {}, who keep no versions: what it was then is gone",
                wanted.source
            ),
        )
    };
    for step in steps.iter().filter(|s| s.stamp > stamp || wanted.before && s.stamp == stamp) {
        let own = step.stamp == stamp;
        let Some((op, below)) = first_on(&step.plan, path) else { continue };
        let Some(base) = op.base else { return Ok(Found::Absent) };
        if below.is_empty() && !own && was.is_none() && unknown(&base) {
            return Err(lost());
        }
        let slot = match &op.does {
            Does::Attrs { change, .. } => {
                was.get_or_insert(base);
                changed.push((**change).clone());
                continue;
            }
            Does::DirTime { .. } | Does::Rebuild(_) => continue,
            Does::Patch { .. } => {
                return Err(not_known(
                    path,
                    "was changed in place by a program, of which only the overwritten bytes are kept",
                ));
            }
            Does::MoveIn { .. } | Does::MoveOut { .. }
                if !below.is_empty() || base.kind() == FileKind::Dir =>
            {
                return Err(not_known(path, "lay in a directory that was moved since"));
            }
            Does::MoveOut { .. } => {
                return Err(not_known(
                    path,
                    "was moved since; `txos revert` of the move brings it back",
                ));
            }
            Does::Data(write) => &write.undo_copy,
            Does::Exchange { .. }
            | Does::Remove { .. }
            | Does::Link { .. }
            | Does::MoveIn { .. }
            | Does::Install(_) => {
                return kept(steps, step, op, path, below, was, changed);
            }
        };
        let layer = step.plan.layers.get(usize::from(op.layer));
        let store = layer.map(|l| l.store.clone()).unwrap_or_default();
        let (by, number, slot) = (step.plan.id, op.layer, slot.clone());
        let was = Some(was.unwrap_or(base));
        return Ok(Found::Kept(Box::new(Kept { by, store, number, slot, below, was, changed })));
    }
    let now = crate::version::stat_at(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok();
    match now {
        Some(now) if was.is_none() && unknown(&now) => Err(lost()),
        None if left.is_some() => Err(lost()),
        _ => Ok(Found::AsItIs),
    }
}

/// The version that a transaction left at a path, if it changed that itself.
fn left_by(steps: &[Step], stamp: Stamp, path: &[u8]) -> Option<Version> {
    let step = steps.iter().find(|step| step.stamp == stamp)?;
    let ops = step.plan.ops.iter().filter(|op| step.plan.after_path(op) == path);
    ops.filter_map(|op| op.new).next_back()
}

/// The operation of a plan that first changed what is at a path, with what is below that operation's object.
fn first_on<'a>(plan: &'a Plan, path: &[u8]) -> Option<(&'a Op, Vec<u8>)> {
    let at = |op: &&Op| !op.is_dir_time() && plan.before_path(op) == path;
    if let Some(op) = plan.ops.iter().filter(|op| op.shown || op.takes_away()).find(at) {
        return Some((op, Vec::new()));
    }
    let above = plan.ops.iter().filter(|op| !op.is_in_place()).filter_map(|op| {
        let top = plan.before_path(op);
        let below = path.strip_prefix(&top[..])?.strip_prefix(b"/")?;
        Some((op, below.to_vec()))
    });
    above.max_by_key(|(_, below)| std::cmp::Reverse(below.len()))
}

/// Where what an operation took out of the tree is now: reverts have carried it on.
#[expect(clippy::too_many_arguments, reason = "what is known of one object so far")]
fn kept(
    steps: &[Step],
    from: &Step,
    op: &Op,
    path: &[u8],
    below: Vec<u8>,
    was: Option<Version>,
    changed: Vec<AttrChange>,
) -> Result<Found> {
    let Some(base) = op.base else { return Ok(Found::Absent) };
    let is_it = |v: Version| {
        v.kind() == base.kind()
            && (v.kind() == FileKind::Dir && v.id == base.id
                || v.kind() != FileKind::Dir && (v.size, v.mtime) == (base.size, base.mtime))
    };
    let later = steps.iter().skip_while(|step| step.stamp < from.stamp);
    let places = later.flat_map(|step| {
        let same = |o: &&Op| o.base.is_some_and(|b| b.id == base.id) || o.slot() == op.slot();
        step.plan.ops.iter().filter(same).map(move |o| (step, o))
    });
    for (step, o) in places {
        let Some(layer) = step.plan.layers.get(usize::from(o.layer)) else { continue };
        let slot = match &o.does {
            Does::Data(write) => &write.undo_copy[..],
            _ => o.slot(),
        };
        if slot.is_empty() {
            continue;
        }
        let at = path::join(layer.store.as_os_str().as_bytes(), slot);
        let found = crate::version::stat_at(rustix::fs::CWD, &at, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(is_it) {
            let inside = if below.is_empty() { at } else { path::join(&at, &below) };
            let there =
                crate::version::stat_at(rustix::fs::CWD, &inside, AtFlags::SYMLINK_NOFOLLOW);
            if there.is_err() {
                return Ok(Found::Absent);
            }
            return Ok(Found::Kept(Box::new(Kept {
                by: step.plan.id,
                store: layer.store.clone(),
                number: o.layer,
                slot: slot.into(),
                was: was.or(below.is_empty().then_some(base)),
                below,
                changed,
            })));
        }
    }
    let now = crate::version::stat_at(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    if below.is_empty() && now.is_ok_and(is_it) {
        return Ok(Found::AsItIs);
    }
    Err(not_known(path, "is not retained any more in this version"))
}

/// Acquires everything that a restore will change.
///
/// # Errors
/// As [`super::acquire`]; those of [`restore`] that come before it changes anything.
pub fn acquire_for_restore(
    handle: &mut TxHandle<'_>,
    home: &Home,
    wanted: &Wanted,
) -> std::result::Result<(), AcquireError> {
    let failed = |error| AcquireError { error, opponent: None };
    let items = find(home, wanted).map_err(failed)?;
    let (layers, numbers) = layers(&items);
    let ops = items.iter().zip(numbers).filter_map(|(item, number)| {
        let top = item.layer.target.as_os_str().as_bytes();
        let path = path::join(top, &item.path);
        let now = crate::version::stat_at(rustix::fs::CWD, &path, AtFlags::SYMLINK_NOFOLLOW).ok();
        let does = Does::Remove { slot: StorePath::default(), other: None };
        (!matches!(item.state, Found::AsItIs)).then(|| op(number, &item.path, now, None, does))
    });
    let ops = ops.collect();
    let boot = crate::machine::boot_id();
    let draft = Plan { id: wanted.source, boot, made: Stamp::now(), durable: false, layers, ops };
    acquire_plan(handle, &draft, None)
}

/// The layers that items lie in, and the number of each item's.
fn layers(items: &[Item]) -> (Vec<LayerMeta>, Vec<u16>) {
    let mut layers: Vec<LayerMeta> = Vec::new();
    let mut numbers = Vec::new();
    for item in items {
        let same = |l: &LayerMeta| l.target == item.layer.target && l.store == item.layer.store;
        let number = layers.iter().position(same).unwrap_or_else(|| {
            layers.push(item.layer.clone());
            layers.len() - 1
        });
        numbers.push(u16::try_from(number).unwrap_or(u16::MAX));
    }
    (layers, numbers)
}

fn op(layer: u16, path: &LayerPath, base: Option<Version>, new: Option<Version>, does: Does) -> Op {
    Op {
        layer,
        target: path.clone(),
        before: path.clone(),
        after: path.clone(),
        base,
        new,
        shown: true,
        below: 0,
        own_version: None,
        does,
    }
}

/// Puts versions of paths back, as a transaction of its own.
///
/// `handle` as for [`super::commit`], with [`acquire_for_restore`].
///
/// # Errors
/// [`Error::Unsupported`] if a version is not retained, or can't be put in place by itself;
/// [`Error::Conflict`] if a path is changed at the last moment.
pub fn restore(
    home: &Home,
    wanted: &Wanted,
    options: &Options,
    handle: Option<&mut TxHandle<'_>>,
    progress: &dyn Progress,
) -> Result<Restored> {
    let _rights = crate::sys_owner::rights();
    let _lock = home.lock_commits()?;
    let mut journal = recover::recover_locked(home, progress)?.0;
    let items = find(home, wanted)?;
    let (requests, numbers) = layers(&items);
    let request = |l: &LayerMeta| LayerRequest { target: l.target.clone(), store: l.store.clone() };
    let mut tx = home.begin(Begin {
        layers: requests.iter().map(request).collect(),
        name: None,
        message: Some(message(wanted)),
        command: wanted.command.clone(),
        arguments_hidden: false,
        directory: wanted.directory.clone(),
        scope: std::path::PathBuf::new(),
        durable: options.durable,
    })?;
    let mut context = ExecContext { gate: options.gate, handle, progress };
    let result = (|| {
        let mut plan = Plan::empty(&tx, options.durable);
        // (Opened are the layers of what it does.)
        plan.ops = items
            .iter()
            .zip(&numbers)
            .map(|(item, number)| {
                op(
                    *number,
                    &item.path,
                    None,
                    None,
                    Does::Remove { slot: StorePath::default(), other: None },
                )
            })
            .collect();
        let roots = Roots::open(&plan)?;
        plan.ops.clear();
        let mut same = Vec::new();
        let mut staging = Staging { home, tx: tx.id(), roots: &roots, next: 0 };
        for (item, number) in items.iter().zip(&numbers) {
            match staging.stage(item, *number, &plan)? {
                Some(op) => plan.ops.push(op),
                None => same.push(path::from_bytes(&plan.path_of(*number, &item.path))),
            }
        }
        if plan.ops.is_empty() {
            return Ok(Restored { summary: None, same });
        }
        // New things appear before others go.
        plan.ops.sort_by_key(Op::takes_away);
        plan.find_places();
        let stamp = execute(home, &mut journal, &mut plan, &roots, &mut context, &|_| Ok(()))?;
        let record =
            record::finish(home, &mut journal, &mut plan, &roots, Some(stamp), Some(&mut tx));
        let summary = recorded(Summary::new(tx.id(), plan.shown()), record);
        Ok(Restored { summary: Some(summary), same })
    })();
    let published = matches!(&result, Ok(Restored { summary: Some(_), .. }));
    if !published && !matches!(result, Err(Error::Unfinished { .. })) {
        home.discard(tx)?;
    }
    result
}

fn message(wanted: &Wanted) -> String {
    let paths: Vec<String> = wanted.paths.iter().map(|path| quoted(path)).collect();
    let how = if wanted.before { "it was before" } else { "left by" };
    format!("Restore {} as {how} {}", paths.join(", "), wanted.source)
}

/// Makes the copies that are put in place.
struct Staging<'a> {
    home: &'a Home,
    tx: TxId,
    roots: &'a Roots,
    next: u64,
}

impl Staging<'_> {
    /// The operation that puts one path in order; `None` if it is.
    fn stage(&mut self, item: &Item, layer: u16, plan: &Plan) -> Result<Option<Op>> {
        let path = plan.path_of(layer, &item.path);
        let refuse = |why: &str| Err(not_known(&path, why));
        let end = self.roots.target_at(layer, &item.path);
        let now = match &end {
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(e) => return Err(Error::io("opening", path::from_bytes(&path), *e)),
            Ok(end) => {
                end.look().map_err(|e| Error::io("looking at", path::from_bytes(&path), e))?
            }
        };
        let is_dir = |v: &Option<Version>| v.is_some_and(|v| v.kind() == FileKind::Dir);
        let kept = match &item.state {
            Found::AsItIs => return Ok(None),
            Found::Absent if now.is_none() => return Ok(None),
            Found::Absent if is_dir(&now) => {
                return refuse(
                    "was not there, and is a directory now, which is not removed: others may have put something into it",
                );
            }
            Found::Absent => {
                let slot = self.slot(layer);
                let does = Does::Remove { slot, other: None };
                return Ok(Some(op(layer, &item.path, now, None, does)));
            }
            Found::Kept(kept) => kept,
        };
        if is_dir(&now) {
            return match kept.was.filter(|v| v.kind() == FileKind::Dir) {
                Some(_) => Ok(None),
                None => refuse("is a directory now, and was something else: move it away first"),
            };
        }
        if end.is_err() {
            return refuse(
                "can't be put back: its directory is not there; restore that, or make it",
            );
        }
        let slot = self.slot(layer);
        let to = self
            .roots
            .slot_at(layer, &slot)
            .map_err(|e| Error::io("staging", path::from_bytes(&path), e))?;
        let below = self.copy(kept, &to, &path)?;
        let look = || to.look().map_err(|e| Error::io("looking at", path::from_bytes(&path), e));
        let new = look()?;
        let same = |a: &Version, b: &Version| {
            (a.size, a.mtime, a.mode, a.uid, a.gid) == (b.size, b.mtime, b.mode, b.uid, b.gid)
        };
        if now.zip(new).is_some_and(|(now, new)| same(&now, &new)) {
            return Ok(None);
        }
        let staged = Staged { slot, ..Staged::default() };
        let does = match now {
            None => Does::Install(staged),
            Some(_) => Does::Exchange { staged, outsiders: Exchanged::Fresh, other: None },
        };
        Ok(Some(Op { below, ..op(layer, &item.path, now, new, does) }))
    }

    fn slot(&mut self, layer: u16) -> StorePath {
        self.next += 1;
        format!("tx/{}/l{layer}/old/{}", self.tx, self.next).into_bytes().into()
    }

    /// Copies a retained object as it was when it was in the tree; gives how many are below it.
    fn copy(&self, kept: &Kept, to: &EntryRef, path: &[u8]) -> Result<u64> {
        let io = |step, e: Errno| Error::io(step, path::from_bytes(path), e);
        let store = sys::open_dir_canonical(kept.store.as_os_str().as_bytes())
            .map_err(|e| io("opening the store for", e))?;
        crate::store::check_trusted(&kept.store, store.as_fd())?;
        let from = if kept.below.is_empty() {
            kept.slot.to_vec()
        } else {
            layer::child(&kept.slot, &kept.below)
        };
        let (dir, name) = layer::split(&from);
        let dir =
            sys::open_dir_beneath(store.as_fd(), dir).map_err(|e| io("opening the retained", e))?;
        let from = EntryRef { dir: std::rc::Rc::new(dir), name: name.to_vec() };
        let mut links = HashMap::new();
        let count = copy_tree(&from, to, &mut links).map_err(|e| io("copying the retained", e))?;
        // What it may do was taken from it when it was retained.
        retained::give_to_copy(self.home, kept.by, (kept.number, &kept.slot, &kept.below), to)?;
        let give_back = || -> std::result::Result<(), Errno> {
            for change in kept.changed.iter().rev().map(AttrChange::reversed) {
                let only = AttrChange { xattrs: change.xattrs, ..AttrChange::default() };
                let id = to.look()?.ok_or(Errno::NOENT)?.id;
                inplace::change_attrs(to, id, &only)?;
            }
            let Some(was) = kept.was.filter(|was| was.kind() != FileKind::Symlink) else {
                return Ok(());
            };
            let fd = to.open_path()?;
            let now = to.look()?.ok_or(Errno::NOENT)?;
            if (now.uid, now.gid) != (was.uid, was.gid) {
                sys::chown(fd.as_fd(), was.uid, was.gid)?;
            }
            sys::chmod(fd.as_fd(), was.mode & 0o7777)?;
            sys::set_mtime(to.dir.as_fd(), &to.name, was.mtime)
        };
        give_back().map_err(|e| io("restoring the attributes of", e))?;
        Ok(count)
    }
}

/// Copies an object, with everything below it. Names of one file stay names of one file.
fn copy_tree(
    from: &EntryRef,
    to: &EntryRef,
    links: &mut HashMap<crate::object::FileId, EntryRef>,
) -> std::result::Result<u64, Errno> {
    let version = from.look()?.ok_or(Errno::NOENT)?;
    if version.kind() != FileKind::Dir && version.nlink > 1 {
        if let Some(first) = links.get(&version.id) {
            sys::link(first.dir.as_fd(), &first.name, to.dir.as_fd(), &to.name)?;
            return Ok(0);
        }
        links.insert(version.id, to.clone());
    }
    match version.kind() {
        FileKind::File => {
            let file = stage::create_anew(to)?;
            crate::sys_copy::content(&from.open(rustix::fs::OFlags::RDONLY)?, &file)?;
            inplace::copy_attrs(from, to)?;
            Ok(0)
        }
        FileKind::Symlink => {
            let target = rustix::fs::readlinkat(&from.dir, &from.name[..], Vec::new())?;
            sys::step("symlink", || rustix::fs::symlinkat(&target, &to.dir, &to.name[..]))?;
            let fd = to.open_path()?;
            sys::chown(fd.as_fd(), version.uid, version.gid)?;
            sys::set_mtime(to.dir.as_fd(), &to.name, version.mtime)?;
            Ok(0)
        }
        FileKind::Dir => {
            sys::mkdir(to.dir.as_fd(), &to.name, 0o700)?;
            let open = |end: &EntryRef| -> std::result::Result<std::rc::Rc<_>, Errno> {
                let flags = rustix::fs::OFlags::RDONLY
                    | rustix::fs::OFlags::DIRECTORY
                    | rustix::fs::OFlags::NOFOLLOW;
                sys::open_at(end.dir.as_fd(), &end.name, flags).map(std::rc::Rc::new)
            };
            let (inside, made) = (open(from)?, open(to)?);
            let mut count = 0;
            for (name, _) in sys::names_in(inside.as_fd())? {
                let from = EntryRef { dir: inside.clone(), name: name.clone() };
                let to = EntryRef { dir: made.clone(), name };
                count += 1 + copy_tree(&from, &to, links)?;
            }
            inplace::copy_attrs(from, to)?;
            Ok(count)
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}
