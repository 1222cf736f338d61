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
    if options.skip_changed.is_empty() && !options.merge { CONFLICTS_MAX } else { usize::MAX }
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

/// Keeps of a plan that was carried out what was done at or below `paths`, or where one of them matches as a
/// pattern. Without paths it stays whole.
///
/// # Errors
/// [`Error::Unsupported`], with the names: a path at which nothing was done, one that is only a part of what
/// was done as a whole, or one that can't be undone without another.
pub(super) fn keep_only(plan: &mut Plan, paths: &[std::path::PathBuf]) -> Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    let wanted = Wanted::new(paths)?;
    let mut used = vec![false; paths.len()];
    let ends = |op: &Op| {
        let mut ends = vec![plan.after_path(op), plan.before_path(op)];
        ends.extend(op.moved_from().map(|from| plan.path_of(op.layer, from)));
        ends
    };
    let asked: Vec<bool> = plan
        .ops
        .iter()
        .map(|op| {
            let mut by = vec![false; paths.len()];
            let asked = ends(op).iter().filter(|end| wanted.takes(end, &mut by)).count() > 0;
            if op.shown {
                used.iter_mut().zip(by).for_each(|(used, by)| *used |= by);
            }
            asked
        })
        .collect();
    if let Some(unused) = used.iter().position(|used| !used).and_then(|n| paths.get(n)) {
        return Err(not_apart(plan, unused));
    }
    let groups = groups(&plan.ops);
    let group_of = |index: usize| groups.get(index).copied();
    let is_asked = |index: usize| asked.get(index).copied().unwrap_or_default();
    let chosen: HashSet<Option<usize>> =
        (0..plan.ops.len()).filter(|&index| is_asked(index)).map(group_of).collect();
    let is_chosen = |index: usize| chosen.contains(&group_of(index));
    let numbered = plan.ops.iter().enumerate();
    let mut along: Vec<Vec<u8>> = numbered
        .filter(|(index, op)| is_chosen(*index) && !is_asked(*index) && op.shown)
        .map(|(_, op)| plan.after_path(op))
        .collect();
    along.sort();
    along.dedup();
    if let Some(first) = along.first() {
        let quoted: Vec<String> =
            along.iter().map(|path| crate::show::quoted_bytes(path)).collect();
        return Err(Error::Unsupported {
            what: format!(
                "what is asked for belongs together with {}, and can't be undone without {}",
                quoted.join(", "),
                if along.len() == 1 { crate::show::quoted_bytes(first) } else { "these".into() }
            ),
            advice: "Name them as well, to undo all of it.".into(),
        });
    }
    let mut index = 0..;
    plan.ops.retain(|_| index.next().is_some_and(is_chosen));
    Ok(())
}

/// What is left of a plan without a part of it, in its order; `None` if nothing of that would be shown.
pub(super) fn without(whole: &Plan, part: &Plan) -> Option<Plan> {
    let mut rest = whole.clone();
    let mut taken = part.ops.iter().peekable();
    rest.ops.retain(|op| taken.next_if_eq(&op).is_none());
    rest.ops.iter().any(|op| op.shown).then_some(rest)
}

/// Whether a path matches.
type Matcher = Box<dyn Fn(&[u8]) -> bool>;

/// Paths, each of which takes what lies at or below it, or matches it as a pattern.
struct Wanted<'a> {
    paths: Vec<(&'a [u8], Matcher)>,
}

impl<'a> Wanted<'a> {
    fn new(paths: &'a [std::path::PathBuf]) -> Result<Wanted<'a>> {
        let one = |path: &'a std::path::PathBuf| -> Result<(&'a [u8], Matcher)> {
            let bytes = path.as_os_str().as_bytes();
            let pattern = path.to_str().filter(|text| text.contains(['*', '?', '[', '{']));
            // A name with such a character that is no pattern is a name.
            let matches = pattern.map(|text| path_matcher("revert", &[text.to_owned()]));
            Ok(match matches {
                Some(Ok(matches)) => (bytes, Box::new(matches)),
                _ => (bytes, Box::new(|_| false)),
            })
        };
        Ok(Wanted { paths: paths.iter().map(one).collect::<Result<_>>()? })
    }

    /// Whether a path is taken; notes by which ones.
    fn takes(&self, path: &[u8], used: &mut [bool]) -> bool {
        let mut taken = false;
        for ((top, matches), used) in self.paths.iter().zip(used) {
            let mut above = path;
            let matched = crate::path::is_at_or_below(path, top)
                || loop {
                    if matches(above) {
                        break true;
                    }
                    match crate::path::split(above) {
                        Some((dir, _)) if dir.len() < above.len() && dir != b"/" => above = dir,
                        _ => break false,
                    }
                };
            *used |= matched;
            taken |= matched;
        }
        taken
    }
}

/// Why a path at which no operation was done can't be undone by itself.
fn not_apart(plan: &Plan, asked: &std::path::Path) -> Error {
    let bytes = asked.as_os_str().as_bytes();
    let above = plan.ops.iter().filter(|op| matches!(op.does, on_names!())).find_map(|op| {
        let ends = [plan.after_path(op), plan.before_path(op)];
        ends.into_iter().find(|end| crate::path::is_at_or_below(bytes, end))
    });
    let (what, advice) = match above {
        Some(above) => {
            let above = crate::show::quoted_bytes(&above);
            (
                format!(
                    "{} lies in {above}, which came, went or moved as a whole",
                    crate::show::quoted(asked)
                ),
                format!("Name {above}, to undo all of it; `txos restore` brings back one path."),
            )
        }
        None => (
            format!("{} was not changed by {}", crate::show::quoted(asked), plan.id),
            format!("`txos show {}` lists what was.", plan.id),
        ),
    };
    Error::Unsupported { what, advice }
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
            | Does::Rebuild(_)
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

/// How many operations the group of each has.
pub(super) fn group_sizes(ops: &[Op]) -> Vec<usize> {
    let groups = groups(ops);
    let mut sizes: HashMap<usize, usize> = HashMap::new();
    for group in &groups {
        *sizes.entry(*group).or_default() += 1;
    }
    groups.iter().map(|group| sizes.get(group).copied().unwrap_or_default()).collect()
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
