//! What a revert leaves alone because others have changed it since.
//!
//! Operations of a plan depend on each other: they share a name, a place in the store or an object, or one
//! works in a directory that the other puts in place. A revert undoes such a group whole or leaves it whole.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use super::Options;
use crate::changeset::path_matcher;
use crate::conflict::Conflict;
use crate::error::{Error, Result};
use crate::object::{FileId, FileKind};
use crate::path::{self, layer::split};
use crate::plan::{Does, Op, Plan, in_place, on_names};
use crate::version::{Stamp, Version};

/// How many conflicts an error carries.
const CONFLICTS_MAX: usize = 32;

/// A changed path that a revert leaves as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which path.
    pub path: std::path::PathBuf,
    /// What others have done to it; `None` for what belongs together with another path that
    /// is left.
    pub conflict: Option<Conflict>,
}

/// How many conflicts are looked for: all that may be left, or enough to name.
pub(super) fn most(options: &Options) -> usize {
    if options.skip_changed.is_empty() { CONFLICTS_MAX } else { usize::MAX }
}

/// Takes the operations that `conflicts` are about out of a plan, each with its whole group, and gives
/// what is left so. `skip`: globs of the paths that may be left.
///
/// # Errors
/// [`Error::Conflict`] with the conflicts at paths that no glob matches, or with all of them if nothing
/// would be undone.
pub(super) fn take_out(
    plan: &mut Plan,
    conflicts: Vec<(usize, Conflict)>,
    skip: &[String],
) -> Result<Vec<Left>> {
    if conflicts.is_empty() {
        return Ok(Vec::new());
    }
    let matches = path_matcher("--skip-changed", skip)?;
    let refused = |c: &Conflict| !matches(c.path.as_os_str().as_bytes());
    if conflicts.iter().any(|(_, conflict)| refused(conflict)) {
        let all = conflicts.into_iter().map(|(_, conflict)| conflict);
        return Err(Error::Conflict(all.filter(refused).take(CONFLICTS_MAX).collect()));
    }
    let groups = groups(&plan.ops);
    let group_of = |index: usize| groups.get(index).copied();
    let out: HashSet<Option<usize>> = conflicts.iter().map(|(op, _)| group_of(*op)).collect();
    let stays = |index: usize| !out.contains(&group_of(index));
    if !plan.ops.iter().enumerate().any(|(index, op)| op.shown && stays(index)) {
        return Err(Error::Conflict(conflicts.into_iter().map(|(_, conflict)| conflict).collect()));
    }
    let conflicting: HashSet<usize> = conflicts.iter().map(|(op, _)| *op).collect();
    let mut left: Vec<Left> = conflicts
        .into_iter()
        .map(|(_, conflict)| Left { path: conflict.path.clone(), conflict: Some(conflict) })
        .collect();
    for (index, op) in plan.ops.iter().enumerate() {
        if op.shown && !stays(index) && !conflicting.contains(&index) {
            left.push(Left { path: path::from_bytes(&plan.after_path(op)), conflict: None });
        }
    }
    left.sort_by(|a, b| a.path.cmp(&b.path));
    left.dedup_by(|later, first| later.path == first.path);
    let mut index = 0..;
    plan.ops.retain(|_| index.next().is_some_and(stays));
    Ok(left)
}

/// What two operations may share.
#[derive(PartialEq, Eq, Hash)]
enum Shared<'a> {
    Name(u16, &'a [u8]),
    Place(u16, &'a [u8]),
    Object(FileId),
}

/// The group that each operation belongs to, as the number of one of its operations.
fn groups(ops: &[Op]) -> Vec<usize> {
    let mut groups = Groups((0..ops.len()).collect());
    let mut first: HashMap<Shared<'_>, usize> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        let names = names(op).into_iter().map(|name| Shared::Name(op.layer, name));
        let slot = Some(op.slot()).filter(|slot| !slot.is_empty());
        let slot = slot.map(|slot| Shared::Place(op.layer, slot));
        let objects = [op.base, op.new].into_iter().flatten().map(|v| Shared::Object(v.id));
        for shared in names.chain(slot).chain(objects) {
            groups.join(index, *first.entry(shared).or_insert(index));
        }
    }
    let mut removed: HashMap<(u64, Stamp), usize> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        let gone = if matches!(op.does, Does::Remove { .. }) { moved(op.base) } else { None };
        if let Some(gone) = gone {
            groups.join(index, *removed.entry(gone).or_insert(index));
        }
    }
    for (index, op) in ops.iter().enumerate() {
        let put = match op.does {
            Does::Install(_) | Does::Exchange { .. } => moved(op.new),
            Does::Remove { .. }
            | Does::MoveOut { .. }
            | Does::MoveIn { .. }
            | Does::Link { .. }
            | in_place!() => None,
        };
        if let Some(from) = put.and_then(|put| removed.get(&put)) {
            groups.join(index, *from);
        }
    }
    // What is done in a directory that comes, goes or moves.
    let moves = |op: &Op| matches!(op.does, on_names!());
    let renamed: HashMap<(u16, &[u8]), usize> = ops
        .iter()
        .enumerate()
        .filter(|(_, op)| moves(op))
        .flat_map(|(index, op)| names(op).into_iter().map(move |name| ((op.layer, name), index)))
        .collect();
    for (index, op) in ops.iter().enumerate() {
        for name in names(op) {
            let mut above = name;
            while !above.is_empty() {
                above = split(above).0;
                if let Some(dir) = renamed.get(&(op.layer, above)) {
                    groups.join(index, *dir);
                }
            }
        }
    }
    (0..ops.len()).map(|index| groups.of(index)).collect()
}

/// What tells a file that was moved from others: a view copies a file before it moves it, so that what goes and
/// what comes are two objects, equal in size and time. Files that happen to agree in both are left together,
/// which loses nothing.
fn moved(file: Option<Version>) -> Option<(u64, Stamp)> {
    let file = file.filter(|v| v.kind() == FileKind::File && v.size > 0)?;
    Some((file.size, file.mtime))
}

/// The names that an operation is about.
fn names(op: &Op) -> Vec<&[u8]> {
    let mut names: Vec<&[u8]> = vec![&op.target, &op.before, &op.after];
    names.extend(op.moved_from());
    names.extend(op.other());
    names
}

/// Disjoint sets of operations.
struct Groups(Vec<usize>);

impl Groups {
    fn of(&mut self, mut index: usize) -> usize {
        while let Some(&above) = self.0.get(index)
            && above != index
        {
            let higher = self.0.get(above).copied().unwrap_or(above);
            if let Some(entry) = self.0.get_mut(index) {
                *entry = higher;
            }
            index = higher;
        }
        index
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        if let Some(entry) = self.0.get_mut(a) {
            *entry = b;
        }
    }
}
