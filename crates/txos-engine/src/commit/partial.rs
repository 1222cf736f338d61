//! Committing a part of a pending transaction: `txos commit ID PATH…`.
//!
//! The part becomes a transaction of its own in the history. Its plan works on the pending
//! transaction's private copies; afterwards what it retained is moved out of the pending upper, or
//! its deltas are taken out of the [record](crate::changeset::record), so that what stays pending is
//! exactly the rest.
//!
//! # Invariant
//!
//! While that is going on the pending record names the part (`splitting`). If it is interrupted,
//! whoever next touches the pending transaction finishes it: a committed part is moved out (each
//! step can be repeated), one that was not committed is dropped.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::roots::{EntryRef, Roots};
use super::{ExecContext, Options, Summary, prepare_and_execute, published_by, record, recorded};
use crate::changeset::{
    Action, AttrChange, Change, ChangeSet, Delta, move_on, record as record_deltas, recorded_deltas,
};
use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::object::{FileId, FileKind};
use crate::path::layer::split;
use crate::path::{self, is_at_or_below, join};
use crate::plan::{self, Does, Op, Plan};
use crate::readset::{Outcome, ReadSet};
use crate::show::quoted_bytes;
use crate::store::{Begin, Home, Layer, LayerRequest, State, Transaction};
use crate::sys;
use crate::sys_handle::Handle;
use crate::version::{Stamp, Version, observe};

/// The changes at or below `paths`; `None` if that is all of them.
///
/// # Errors
/// [`Error::Unsupported`] if nothing is there, or if a path can't be committed without another.
pub(super) fn select(
    tx: &Transaction,
    changes: &ChangeSet,
    paths: &[PathBuf],
) -> Result<Option<ChangeSet>> {
    if paths.is_empty() {
        return Ok(None);
    }
    let layers = tx.layers();
    let mut part = Vec::new();
    let mut rest = Vec::new();
    for change in changes.changes.iter().filter(|c| c.shown) {
        let path = place(&layers, change.layer, &change.path);
        if paths.iter().any(|p| is_at_or_below(&path, p.as_os_str().as_bytes())) {
            goes_alone(changes, &layers, change, &path)?;
            part.push(change.clone());
            continue;
        }
        let whole = matches!(change.action, Action::Install | Action::Replace | Action::Rewrite);
        if let Some(inner) = paths.iter().find(|p| is_at_or_below(p.as_os_str().as_bytes(), &path))
            && whole
        {
            let was_dir = change.base.is_some_and(|base| base.kind() == FileKind::Dir);
            let problem = format!(
                "lies in {}, which is {} and can only be committed as a whole",
                quoted_bytes(&path),
                if was_dir { "replaced" } else { "new" }
            );
            return Err(unsupported(inner.as_os_str().as_bytes(), &problem));
        }
        rest.push(change);
    }
    for change in &part {
        let object = change.base.filter(|v| v.kind() != FileKind::Dir).map(|v| v.id);
        let inode = |c: &Change| match &c.action {
            Action::Move { source, .. } => Some(source.id),
            Action::Link { to } => linked_inode(&layers, changes, c.layer, to),
            _ => c.base.map(|v| v.id),
        };
        let other = |c: &&Change| {
            c.layer == change.layer && inode(c) == object && !part.iter().any(|p| p.path == c.path)
        };
        if object.is_some()
            && let Some(other) = changes.changes.iter().find(other)
        {
            return Err(one_file(
                &place(&layers, change.layer, &change.path),
                &place(&layers, other.layer, &other.path),
            ));
        }
    }
    names_are_all(&layers, &part, &rest)?;
    for change in part.iter().filter(|c| c.held.is_some()) {
        let held = change.held.as_deref().unwrap_or_default();
        let takes = |c: &Change| c.layer == change.layer && is_at_or_below(held, &c.staged);
        if !part.iter().any(takes) {
            return Err(unsupported(
                &place(&layers, change.layer, &change.path),
                "has other names, and goes with a directory: both have to be committed together",
            ));
        }
    }
    // The times of directories whose entries are committed go with them.
    let times = changes.changes.iter().filter(|time| {
        part.iter().all(|c| (c.layer, &c.path) != (time.layer, &time.path))
            && part.iter().any(|c| c.layer == time.layer && split(&c.path).0 == &time.path[..])
    });
    let times: Vec<Change> = times.filter_map(only_time).collect();
    if part.is_empty() {
        let path = paths.first().map(|p| p.as_os_str().as_bytes()).unwrap_or_default();
        return Err(unsupported(path, &what_became_of(&layers, changes, path)));
    }
    if rest.is_empty() {
        return Ok(None);
    }
    part.extend(times);
    Ok(Some(ChangeSet {
        changes: part,
        layers: changes.layers.clone(),
        last_slot: changes.last_slot,
        explicit: changes.explicit,
    }))
}

/// A path of a layer as one of the tree.
fn place(layers: &[Layer], layer: usize, path: &[u8]) -> Vec<u8> {
    let target = layers.get(layer).map(|l| l.target.as_os_str().as_bytes()).unwrap_or(b"/");
    if path.is_empty() { target.to_vec() } else { join(target, path) }
}

/// Why a path at and below which nothing is listed can't be committed by itself.
fn what_became_of(layers: &[Layer], changes: &ChangeSet, path: &[u8]) -> String {
    let mut moved: Option<(Vec<u8>, Vec<u8>)> = None;
    let mut taken: Option<Vec<u8>> = None;
    let object = crate::version::stat_at(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok();
    let mut other = None;
    for change in &changes.changes {
        let here = place(layers, change.layer, &change.path);
        if let Action::Move { from, .. } = &change.action {
            let from = place(layers, change.layer, from);
            let is_nearer = moved.as_ref().is_none_or(|(known, _)| known.len() < from.len());
            if is_at_or_below(path, &from) && is_nearer {
                moved = Some((from, here.clone()));
            }
        }
        let is_dir = change.base.is_some_and(|base| base.kind() == FileKind::Dir);
        if is_dir && !change.action.is_in_place() {
            let was = place(layers, change.layer, &change.stable_path);
            if is_at_or_below(path, &was) && object.is_some() {
                taken = Some(here.clone());
            }
        }
        let id = object.filter(|v| v.kind() != FileKind::Dir && v.nlink > 1).map(|v| v.id);
        if change.action.is_in_place() && id.is_some() && change.base.map(|base| base.id) == id {
            other = Some(here);
        }
    }
    match (moved, taken, other) {
        (Some((from, _)), ..) if from == path => {
            "was moved, which can't be committed apart from the rest".to_owned()
        }
        (Some((from, to)), ..) => format!(
            "was moved with {} to {}, which can't be committed apart from the rest",
            quoted_bytes(&from),
            quoted_bytes(&to)
        ),
        (_, Some(dir), _) => {
            let dir = quoted_bytes(&dir);
            format!("was removed with {dir}, and can only be committed together with that")
        }
        (.., Some(other)) => {
            let other = quoted_bytes(&other);
            format!("is another name of {other}, by which the change of that file is committed")
        }
        _ => "is not changed by the transaction".to_owned(),
    }
}

/// That of each file that the part makes all names are in it: those that are left would share an inode with the stable tree.
fn names_are_all(layers: &[Layer], part: &[Change], rest: &[&Change]) -> Result<()> {
    let mut names: HashMap<FileId, (u64, Vec<Vec<u8>>)> = HashMap::new();
    for change in part {
        for (path, file) in linked_new(layers, change)? {
            names.entry(file.id).or_insert((file.nlink.into(), Vec::new())).1.push(path);
        }
    }
    names.retain(|_, (count, known)| (known.len() as u64) < *count);
    let Some((id, path)) = names
        .iter()
        .filter_map(|(id, (_, known))| Some((*id, known.iter().min()?)))
        .min_by_key(|(_, path)| *path)
    else {
        return Ok(());
    };
    for change in rest {
        let linked = linked_new(layers, change)?;
        if let Some((other, _)) = linked.into_iter().find(|(_, file)| file.id == id) {
            return Err(one_file(path, &other));
        }
    }
    Err(unsupported(
        path,
        "has other names, without which it can't be committed: commit all of the transaction",
    ))
}

/// The new files of a change that have several names, with the place that they get.
fn linked_new(layers: &[Layer], change: &Change) -> Result<Vec<(Vec<u8>, Version)>> {
    if !matches!(change.action, Action::Install | Action::Replace | Action::Rewrite) {
        return Ok(Vec::new());
    }
    let several = |v: &Version| v.kind() != FileKind::Dir && v.nlink > 1;
    let path = place(layers, change.layer, &change.path);
    match (change.new, layers.get(change.layer)) {
        (Some(v), _) if several(&v) => Ok(vec![(path, v)]),
        (Some(v), Some(layer)) if v.kind() == FileKind::Dir => {
            let top = layer.upper.parent().unwrap_or(&layer.upper);
            let top = join(top.as_os_str().as_bytes(), &change.staged);
            let found = crate::changeset::walk(&path::from_bytes(&top), &[])?.into_iter();
            Ok(found.filter(|(_, v)| several(v)).map(|(at, v)| (join(&path, &at), v)).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// Two names of which only the first is in a part.
fn one_file(path: &[u8], other: &[u8]) -> Error {
    let other = quoted_bytes(other);
    unsupported(
        path,
        &format!("and {other} are names of one file, and have to be committed together"),
    )
}

/// Whether a change at `path` can be committed without any other.
fn goes_alone(changes: &ChangeSet, layers: &[Layer], change: &Change, path: &[u8]) -> Result<()> {
    if matches!(change.action, Action::Move { .. } | Action::Link { .. }) {
        return Err(unsupported(
            path,
            "was moved there or is a new link, which can't be committed apart from the \
             rest",
        ));
    }
    let leaves =
        |c: &&Change| matches!(&c.action, Action::Move { from, .. } if from[..] == change.path[..]);
    if changes.changes.iter().filter(|c| c.layer == change.layer).any(|c| leaves(&c)) {
        return Err(unsupported(
            path,
            "takes the place of something that was moved, and can't be committed apart from it",
        ));
    }
    if let Some(from) = moved_out_of(changes, change) {
        let at = join(path, &from);
        let problem =
            "was moved out of what is replaced or removed there, and can't be left to the rest";
        return Err(unsupported(&at, problem));
    }
    if let Some(to) = moved_around(changes, change) {
        let problem = format!(
            "lies in {}, which was moved and can't be committed apart from the rest",
            quoted_bytes(&place(layers, change.layer, &to))
        );
        return Err(unsupported(path, &problem));
    }
    Ok(())
}

/// What a change set moves out of a stable directory that a change of it takes away; relative to that.
fn moved_out_of(changes: &ChangeSet, change: &Change) -> Option<Vec<u8>> {
    change.base.filter(|v| v.kind() == FileKind::Dir)?;
    if change.action.is_in_place() {
        return None;
    }
    let here = changes.changes.iter().filter(|c| c.layer == change.layer);
    let mut sources = here.filter_map(|c| match &c.action {
        Action::Move { from, .. } => Some(from),
        _ => None,
    });
    sources.find_map(|from| {
        from.strip_prefix(&change.stable_path[..])?.strip_prefix(b"/").map(<[u8]>::to_vec)
    })
}

/// The new place of a directory that a change set moves, if a change of it is made below.
fn moved_around(changes: &ChangeSet, change: &Change) -> Option<Vec<u8>> {
    let here = changes.changes.iter().filter(|c| c.layer == change.layer);
    let mut moves = here.filter(|c| matches!(c.action, Action::Move { .. }));
    let around = |top: &[u8]| change.path.strip_prefix(top).is_some_and(|r| r.starts_with(b"/"));
    moves.find(|c| around(&c.path)).map(|c| c.path.to_vec())
}

/// Of a directory's change of attributes, that of its time.
fn only_time(change: &Change) -> Option<Change> {
    let Action::Attrs(attrs) = &change.action else { return None };
    let time = AttrChange { mtime: Some(attrs.mtime?), ..AttrChange::default() };
    Some(Change { action: Action::Attrs(Box::new(time)), shown: false, ..change.clone() })
}

/// The inode that a new name is for.
fn linked_inode(
    layers: &[Layer],
    changes: &ChangeSet,
    layer: usize,
    to: &[u8],
) -> Option<crate::object::FileId> {
    let there = changes.changes.iter().find(|c| c.layer == layer && *c.path == *to);
    if let Some(Change { action: Action::Move { source, .. }, .. }) = there {
        return Some(source.id);
    }
    let path = join(layers.get(layer)?.target.as_os_str().as_bytes(), to);
    let found = crate::version::stat_at(rustix::fs::CWD, &path, AtFlags::SYMLINK_NOFOLLOW);
    found.ok().map(|v| v.id)
}

fn unsupported(path: &[u8], problem: &str) -> Error {
    Error::Unsupported {
        what: format!("{} {problem}", quoted_bytes(path)),
        advice: "`txos diff` shows what can be committed; nothing was changed.".into(),
    }
}

/// Commits a part of `pending`, which stays pending with the rest.
///
/// # Errors
/// As [`super::commit`]; then the pending transaction is as before.
#[expect(
    clippy::too_many_arguments,
    reason = "a commit, with the journal that the caller has locked"
)]
pub(super) fn commit_part(
    home: &Home,
    journal: &mut Journal,
    pending: &mut Transaction,
    mut plan: Plan,
    reads: ReadSet,
    options: &Options,
    context: &mut ExecContext<'_, '_>,
) -> Result<Summary> {
    let commands = pending.meta.commands();
    let (command, arguments_hidden) = pending.meta.first_command();
    if pending.meta.recorded {
        takes_no_link(&plan, &reads)?;
    }
    let mut tx = home.begin(Begin {
        layers: pending
            .meta
            .layers
            .iter()
            .map(|l| LayerRequest { target: l.target.clone(), store: l.store.clone() })
            .collect(),
        name: pending.meta.name.clone(),
        message: Some(match &pending.meta.message {
            Some(message) => format!("{message} (part of {})", pending.id()),
            None => format!("Part of {}", pending.id()),
        }),
        command,
        arguments_hidden,
        directory: pending.meta.directory.clone(),
        scope: std::path::PathBuf::new(),
        durable: options.durable,
    })?;
    if commands.len() > 1 {
        // Which of them made the part is not known.
        tx.meta.changes = Some(plan.shown());
        tx.meta.begin_with(commands);
        tx.save(options.durable)?;
    }
    pending.meta.splitting = Some(tx.id());
    // As they were found: publishing changes them.
    let found = plan.ops.iter().filter(|op| op.is_dir_time()).filter_map(|op| op.base);
    let untouched = found.filter(|base| !pending.meta.may_be_changed_dir(base)).collect();
    pending.meta.found_by_own = untouched;
    pending.save(options.durable)?;
    plan.id = tx.id();
    let times = upper_times(pending, &plan);
    let done = prepare_and_execute(home, journal, pending, &mut plan, &reads, options, context);
    let (merged, roots, commit_stamp) = match done {
        Ok(done) => done,
        Err(error @ Error::Unfinished { .. }) => return Err(error),
        Err(error) => {
            pending.meta.ends_split();
            // Undoing has stored what it has left.
            if let Ok(stored) = home.meta(pending.id()) {
                pending.meta.left_by_own = stored.left_by_own;
            }
            pending.save(options.durable)?;
            home.discard(tx)?;
            return Err(error);
        }
    };
    let links = untouched_links(&plan, &roots, commit_stamp);
    let record = record::finish(home, journal, &mut plan, &roots, commit_stamp, Some(&mut tx))
        .and_then(|()| move_out(home, pending, &mut plan, &roots, reads, &links));
    for (end, mtime) in times {
        let _ = sys::set_mtime(end.dir.as_fd(), b".", mtime);
    }
    let summary = Summary { merged, complete: false, ..Summary::new(tx.id(), plan.shown()) };
    Ok(recorded(summary, record))
}

/// The upper directories that publishing a part will touch, with the times that the command left
/// in them: they go on showing those.
fn upper_times(pending: &Transaction, plan: &Plan) -> Vec<(EntryRef, Stamp)> {
    let Ok(roots) = Roots::open(plan) else { return Vec::new() };
    let end = |op: &Op| {
        let end = roots.slot_at(op.layer, &upper_place(pending, op)?).ok()?;
        let mtime = super::publish::own_mtime(&end)?;
        Some((end, mtime))
    };
    plan.ops.iter().filter_map(end).collect()
}

/// Where an operation's target is in the pending transaction's upper directory; `None` if it has no overlay.
fn upper_place(pending: &Transaction, op: &Op) -> Option<Vec<u8>> {
    let upper = || format!("tx/{}/l{}/upper/", pending.id(), op.layer).into_bytes();
    (!pending.meta.recorded).then(|| [&upper()[..], &op.target].concat())
}

/// Puts a pending transaction in order whose part was being committed when something died.
///
/// # Errors
/// [`Error::Io`]; can be repeated.
pub(super) fn finish_split(home: &Home, pending: &mut Transaction, reads: &ReadSet) -> Result<()> {
    let Some(part) = pending.meta.splitting else { return Ok(()) };
    let committed = match home.meta(part) {
        Ok(meta) => Some(meta).filter(|meta| meta.state == State::Committed),
        Err(Error::NoSuchTransaction(_)) => None,
        Err(e) => return Err(e),
    };
    if let Some(meta) = committed
        && let Some(mut plan) = plan::load(home, part)?
    {
        let roots = Roots::open(&plan)?;
        // What was moved out meanwhile has a later ctime, and is not among them: the rest may be in conflict with that.
        let links = untouched_links(&plan, &roots, meta.commit_stamp);
        return move_out(home, pending, &mut plan, &roots, reads.clone(), &links);
    }
    pending.meta.ends_split();
    pending.save(pending.meta.durable)?;
    home.discard_id(part)
}

/// The library notes what it has seen of a file by one of its names only. A part that takes that name away would take along what the
/// rest depends on.
fn takes_no_link(plan: &Plan, reads: &ReadSet) -> Result<()> {
    let takes = |op: &&Op| !op.is_in_place() && op.base.is_some();
    let taken: Vec<Vec<u8>> =
        plan.ops.iter().filter(takes).map(|op| plan.before_path(op)).collect();
    let seen = reads.iter().find(|(path, seen)| {
        let several = matches!(seen.outcome, Outcome::Present(v)
            if v.nlink > 1 && v.kind() != FileKind::Dir);
        several && taken.iter().any(|top| is_at_or_below(path, top))
    });
    let problem = "has other names: in what was kept from the library's view it can't be committed \
                   apart from the rest";
    seen.map_or(Ok(()), |(path, _)| Err(unsupported(&path, problem)))
}

/// A file of several names on which a part has worked, and which nobody has changed since.
struct Linked {
    /// Which operation.
    index: usize,
    /// How the part found it.
    base: Version,
    /// How the part left it.
    left: Version,
}

/// The files from which operations have taken a name of several, or which they have changed in place.
fn untouched_links(plan: &Plan, roots: &Roots, commit_stamp: Option<Stamp>) -> Vec<Linked> {
    let link = |(index, op): (usize, &Op)| {
        let base = op.base.filter(|base| base.kind() != FileKind::Dir && base.nlink > 1)?;
        let end = match op.does {
            Does::Remove { .. } | Does::Exchange { .. } => roots.slot(op),
            Does::Data(_) | Does::Patch { .. } | Does::Attrs { .. } => roots.after(op),
            _ => return None,
        };
        let left = end.and_then(|end| end.look()).ok()??;
        let as_found = left.id == base.id && (op.is_in_place() || left.same_but_ctime(&base));
        let untouched = commit_stamp.is_some_and(|stamp| left.ctime < stamp);
        (untouched && as_found).then_some(Linked { index, base, left })
    };
    plan.ops.iter().enumerate().filter_map(link).collect()
}

/// The same files, as the part found them, and as they are now that what it retained is in its place.
fn links_left(plan: &Plan, roots: &Roots, links: &[Linked]) -> Vec<(Version, Version)> {
    let left = |link: &Linked| {
        let op = plan.ops.get(link.index)?;
        let end = match op.is_in_place() {
            true => roots.after(op).ok()?,
            false => retained_or_other(roots, op, &link.base)?,
        };
        let now = end.look().ok()??;
        (now.id == link.left.id && now.same_but_ctime(&link.left)).then_some((link.base, now))
    };
    links.iter().filter_map(left).collect()
}

/// The inode that an operation changes in more than its names.
fn changed_inode(op: &Op) -> Option<FileId> {
    match op.does {
        Does::Remove { .. } | Does::Exchange { .. } => None,
        Does::Link { .. } => op.new.map(|new| new.id),
        _ => op.base.map(|base| base.id),
    }
}

/// Moves what a committed part retained from the pending transaction's directories to the part's. `links`: as of
/// [`untouched_links`].
fn move_out(
    home: &Home,
    pending: &mut Transaction,
    plan: &mut Plan,
    roots: &Roots,
    mut reads: ReadSet,
    links: &[Linked],
) -> Result<()> {
    let mut published = published_by(plan, &reads);
    // Who has lost a name only is otherwise as it was: what the rest has seen of it by another one still has to hold.
    let changed: HashSet<FileId> = plan.ops.iter().filter_map(changed_inode).collect();
    published.inodes.retain(|inode| changed.contains(inode));
    let id = plan.id;
    if !pending.meta.recorded {
        for op in &plan.ops {
            forget_copies(pending, roots, op);
        }
    }
    for op in plan.ops.iter().filter(|op| op.is_dir_time()) {
        let look = |end: EntryRef| observe(end.dir.as_fd(), &end.name, AtFlags::SYMLINK_NOFOLLOW);
        if let Ok((now, false)) = roots.before(op).and_then(look)
            && pending.meta.found_by_own.iter().any(|found| found.same_attributes(&now))
        {
            pending.meta.left_by_own.push(now);
        }
    }
    let mut moved = Vec::new();
    for (index, op) in plan.ops.iter_mut().enumerate() {
        let was = op.slot().to_vec();
        let path = path::from_bytes(&op.target);
        let to = format!("tx/{id}/l{}/old/part-{index}", op.layer).into_bytes();
        let upper = upper_place(pending, op);
        let is_retained = !matches!(op.does, Does::Install(_)) && op.held().is_none();
        move_one(roots, op, upper.as_deref(), to)
            .map_err(|e| Error::io("moving the retained version of", path, e))?;
        if op.slot() != was && is_retained {
            moved.push((op.layer, was, op.slot().to_vec()));
        }
    }
    let mut moves: HashMap<u16, path::Moves<'_>> = HashMap::new();
    for (layer, from, to) in &moved {
        moves.entry(*layer).or_default().add(from, to);
    }
    for op in &mut plan.ops {
        let moves = moves.get(&op.layer);
        let Some(Some(held)) = op.held_mut() else { continue };
        if let Some(place) = moves.and_then(|moves| moves.mapped(&held.place)) {
            held.place = place.into();
        }
    }
    plan::save(home, plan)?;
    let links = links_left(plan, roots, links);
    if pending.meta.recorded {
        forget_deltas(pending, plan, roots, &links)?;
    }
    // Names were looked at before they were changed. If none of them is in the read set any more, the
    // run that was interrupted has stored it: names must not be counted twice.
    if published.verified.iter().any(|path| reads.get(path).is_some()) {
        reads.forget(&published);
        reads.moved_on(&links);
        pending.save_reads(&reads, plan.durable)?;
    }
    pending.meta.changes = pending.meta.changes.map(|all| all.saturating_sub(plan.shown()));
    pending.meta.ends_split();
    // From now on it is the rest: newer than the part.
    pending.meta.ended = Some(Stamp::now());
    // Its savepoints hold what is published now.
    pending.meta.flatten_stack();
    pending.save(plan.durable)?;
    // What can't be removed now is removed by `gc`.
    let _ = pending.discard_unnamed();
    Ok(())
}

/// overlayfs's index holds the copies of objects with several names. What was published of them the
/// pending transaction finds in the stable object; and of an object of which a name is gone now, it would
/// look for that name.
fn forget_copies(pending: &Transaction, roots: &Roots, op: &Op) {
    let Some(base) = op.base else { return };
    let is_dir = base.kind() == FileKind::Dir;
    let handle = |end: EntryRef| Handle::of(end.dir.as_fd(), &end.name);
    let objects: Vec<Handle> = match op.does {
        Does::Data(_) | Does::Attrs { .. } if !is_dir && base.nlink > 1 => {
            roots.after(op).ok().and_then(handle).into_iter().collect()
        }
        Does::Remove { .. } | Does::Exchange { .. } if is_dir => {
            linked_below(roots, op).unwrap_or_default()
        }
        Does::Remove { .. } | Does::Exchange { .. } if base.nlink > 1 => {
            retained_or_other(roots, op, &base).and_then(handle).into_iter().collect()
        }
        _ => return,
    };
    for layer in pending.layers().iter().filter(|l| l.index == usize::from(op.layer)) {
        for object in &objects {
            crate::changeset::forget_indexed(layer, object);
        }
    }
}

/// Where an object of which a name was taken is now. What is retained may be a copy; then another name of the object is known.
fn retained_or_other(roots: &Roots, op: &Op, base: &Version) -> Option<EntryRef> {
    let other = op.other().and_then(|other| roots.target_at(op.layer, other).ok());
    let slot = roots.slot(op).ok();
    let is_it = |end: &EntryRef| end.look().ok().flatten().is_some_and(|v| v.id == base.id);
    [slot, other].into_iter().flatten().find(is_it)
}

/// The objects with several names in a directory that was retained.
fn linked_below(roots: &Roots, op: &Op) -> std::result::Result<Vec<Handle>, Errno> {
    let top = roots.slot(op)?.open_path()?;
    let found = crate::changeset::walk(&path::from_bytes(&sys::entry_path(top.as_fd(), b".")), &[]);
    let found = found.map_err(|_| Errno::IO)?.into_iter();
    let several = found.filter(|(_, v)| v.kind() != FileKind::Dir && v.nlink > 1);
    Ok(several
        .filter_map(|(below, _)| {
            let (dir, name) = split(&below);
            let dir = sys::open_dir_beneath(top.as_fd(), dir).ok()?;
            Handle::of(dir.as_fd(), name)
        })
        .collect())
}

/// Takes what a committed part has published out of the list of changes. What stays may be a change of a directory in which
/// the part has changed names, and so moved the times; or it may take another name of a file on which the part has worked (`links`:
/// as of [`links_left`]).
fn forget_deltas(
    pending: &mut Transaction,
    plan: &Plan,
    roots: &Roots,
    links: &[(Version, Version)],
) -> Result<()> {
    let published: HashSet<(usize, &[u8], bool)> = plan
        .ops
        .iter()
        .filter(|op| op.shown)
        .map(|op| (usize::from(op.layer), &op.target[..], op.is_in_place()))
        .collect();
    let is_left = |delta: &Delta| {
        let key = (delta.layer, &delta.path[..], delta.what.is_in_place());
        delta.nameless || !published.contains(&key)
    };
    let touched: HashSet<(usize, &[u8])> =
        plan.ops.iter().map(|op| (usize::from(op.layer), split(&op.before).0)).collect();
    let mut rest = recorded_deltas(pending)?;
    rest.retain(is_left);
    for delta in &mut rest {
        if !touched.contains(&(delta.layer, &delta.stable_path[..])) {
            continue;
        }
        let Ok(layer) = u16::try_from(delta.layer) else { continue };
        let now = roots.target_at(layer, &delta.stable_path).and_then(|end| end.look());
        if let Ok(Some(now)) = now {
            delta.what.follow_directory(now);
        }
    }
    let _ = move_on(&mut rest, links);
    record_deltas(pending, &rest, plan.durable)
}

fn move_one(
    roots: &Roots,
    op: &mut Op,
    upper: Option<&[u8]>,
    to: Vec<u8>,
) -> std::result::Result<(), Errno> {
    let layer = op.layer;
    let relocate = |from: &[u8], to: &[u8]| {
        // The plan that was saved says so already: it was all done, but for the record.
        if from == to {
            return Ok(());
        }
        let (from, to) = (roots.slot_at(layer, from)?, roots.slot_at(layer, to)?);
        match from.rename_to(&to) {
            // Done already, by the run that was interrupted.
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    };
    // Of a merged append another file was published; the transaction's own goes as well.
    let own = upper.filter(|upper| op.slot() != *upper && op.held().is_none());
    let leave_upper = |to: &[u8]| match own {
        Some(upper) => relocate(upper, &[to, b"-own"].concat()),
        None => Ok(()),
    };
    let (is_dir, is_held) =
        (op.base.is_some_and(|b| b.kind() == FileKind::Dir), op.held().is_some());
    match &mut op.does {
        Does::Exchange { staged, .. } => {
            relocate(&staged.slot, &to)?;
            leave_upper(&to)?;
            staged.slot = to.into();
        }
        Does::Remove { slot, .. } => {
            relocate(slot, &to)?;
            *slot = to.into();
            // The whiteout: the name is gone below, and may come back without us.
            let Some(upper) = upper else { return Ok(()) };
            let whiteout = roots.slot_at(layer, upper)?;
            match sys::unlink(whiteout.dir.as_fd(), &whiteout.name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Does::Data(write) | Does::Patch { write, .. } => {
            relocate(&write.slot, &to)?;
            leave_upper(&to)?;
            let undo_copy = [&to[..], b"-saved"].concat();
            relocate(&write.undo_copy, &undo_copy)?;
            (write.slot, write.undo_copy) = (to.into(), undo_copy.into());
        }
        // A merged directory stays; the copy of a file would hide what comes later.
        Does::Attrs { .. } if is_dir || is_held => {}
        Does::Attrs { .. } => {
            if let Some(upper) = upper {
                relocate(upper, &to)?;
            }
        }
        // A revert puts it there: not back into the pending transaction, which may be gone by then.
        Does::Install(staged) => staged.slot = to.into(),
        Does::MoveOut { .. }
        | Does::MoveIn { .. }
        | Does::Link { .. }
        | Does::Rebuild(_)
        | Does::DirTime { .. } => {}
    }
    Ok(())
}
