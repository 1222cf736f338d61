//! What a commit changes, as facets of the realm: acquired before the commit lock is taken, so that
//! nobody ever waits for another transaction while it holds the lock.

use rustix::fs::{AtFlags, CWD};

use super::Planned;
use crate::changeset::{Delta, What};
use crate::error::{Conflict, ConflictKind, Error, Party};
use crate::hash::Map;
use crate::id::TxId;
use crate::object::{FileId, FileKind};
use crate::path;
use crate::path::layer::split;
use crate::plan::{Does, Op, Plan};
use crate::readset::{ReadSet, Touch};
use crate::realm::{
    AbortCause, Access, DeadPublish, Facet, Opponent, PublishFate, TxHandle, Unresolved, Watch,
};
use crate::store::{Home, State};
use crate::version::{Version, stat_at};

/// Not everything could be acquired.
#[derive(Debug)]
pub struct AcquireError {
    /// Why.
    pub error: Error,
    /// To whom it gave way, if trying again after that one's end may help.
    pub opponent: Option<Box<Opponent>>,
}

impl AcquireError {
    /// Lost for good.
    #[must_use]
    pub fn at(conflict: Conflict) -> AcquireError {
        AcquireError { error: Error::Conflict(vec![conflict]), opponent: None }
    }

    fn of(path: &[u8], stop: AbortCause) -> AcquireError {
        let error = Error::Conflict(vec![conflict(path, &stop)]);
        match stop {
            AbortCause::Lost(opponent) => {
                AcquireError { error, opponent: Some(Box::new(opponent)) }
            }
            _ => AcquireError { error, opponent: None },
        }
    }
}

impl From<AcquireError> for Error {
    fn from(lost: AcquireError) -> Error {
        lost.error
    }
}

/// Acquires everything that publishing a plan will change.
///
/// # Errors
/// [`AcquireError`]: another transaction won, or the realm's policy says to give way.
pub fn acquire(
    handle: &mut TxHandle<'_>,
    planned: &Planned,
    reads: &ReadSet,
) -> std::result::Result<(), AcquireError> {
    acquire_plan(handle, &planned.plan, Some(reads))
}

/// Acquires everything that a light commit will change: the pages it writes to, the files that it appends to, and the
/// names.
///
/// # Errors
/// As [`acquire`].
pub fn acquire_for_log(
    handle: &mut TxHandle<'_>,
    grounds: &[super::Ground],
    deltas: &[Delta],
) -> std::result::Result<(), AcquireError> {
    handle.prepare().map_err(|stop| AcquireError::of(b"/", stop))?;
    for delta in deltas {
        let Some(ground) = grounds.get(delta.layer) else { continue };
        let path = crate::path::join(ground.root.as_os_str().as_encoded_bytes(), &delta.path);
        let Some((dir, name)) = crate::path::split(&path) else { continue };
        let dir = stat_at(CWD, dir, AtFlags::SYMLINK_NOFOLLOW).ok().map(|dir| dir.id);
        let mut take = |facet: &Facet<'_>, access| {
            handle.acquire(facet, access).map(drop).map_err(|stop| AcquireError::of(&path, stop))
        };
        match &delta.what {
            What::Patch { base, writes, .. } => {
                if let Some(dir) = dir {
                    take(&Facet::Entry { dir, name }, Access::Read)?;
                }
                let patch = crate::changeset::patch::Patch::new(writes.clone(), None);
                if patch.len_after(base.size) != base.size {
                    take(&Facet::Attributes(base.id), Access::Write)?;
                    take(&Facet::Extent(base.id), Access::Write)?;
                    continue;
                }
                take(&Facet::Attributes(base.id), Access::Insert)?;
                take(&Facet::Extent(base.id), Access::Read)?;
                for number in patch.pages() {
                    take(&Facet::Page { file: base.id, number }, Access::Write)?;
                }
            }
            What::Move { from, source, base } => {
                let old = crate::path::join(ground.root.as_os_str().as_encoded_bytes(), from);
                if let Some((dir, name)) = crate::path::split(&old) {
                    let dir = stat_at(CWD, dir, AtFlags::SYMLINK_NOFOLLOW).ok().map(|dir| dir.id);
                    acquire_name(&mut take, dir, name, Some(source))?;
                }
                acquire_name(&mut take, dir, name, base.as_ref())?;
            }
            What::Put { base, .. } => acquire_name(&mut take, dir, name, base.as_ref())?,
            What::Remove { base } => acquire_name(&mut take, dir, name, Some(base))?,
            _ => {}
        }
    }
    // Not under a lock: the one whose turn it is needs that.
    handle.await_turn().map_err(|stop| AcquireError::of(b"/", stop))
}

/// A name that leads to something else afterwards, or to nothing, and what it led to.
fn acquire_name(
    take: &mut impl FnMut(&Facet<'_>, Access) -> std::result::Result<(), AcquireError>,
    dir: Option<FileId>,
    name: &[u8],
    base: Option<&Version>,
) -> std::result::Result<(), AcquireError> {
    if let Some(dir) = dir {
        take(&Facet::Entry { dir, name }, Access::Write)?;
        take(&Facet::Listing(dir), Access::Insert)?;
    }
    if let Some(base) = base {
        take(&Facet::Attributes(base.id), Access::Write)?;
        if base.kind() == FileKind::File {
            take(&Facet::Extent(base.id), Access::Write)?;
        }
    }
    Ok(())
}

/// Acquires everything that undoing a commit will change.
///
/// # Errors
/// As [`acquire`]; [`Error::Format`] if its plan can't be read.
pub fn acquire_for_revert(
    handle: &mut TxHandle<'_>,
    home: &Home,
    id: TxId,
) -> std::result::Result<(), AcquireError> {
    match crate::plan::load(home, id).map_err(|error| AcquireError { error, opponent: None })? {
        Some(plan) => acquire_plan(handle, &plan, None),
        None => Ok(()),
    }
}

pub(super) fn acquire_plan(
    handle: &mut TxHandle<'_>,
    plan: &Plan,
    reads: Option<&ReadSet>,
) -> std::result::Result<(), AcquireError> {
    let mut dirs = Dirs { plan, known: Map::default(), last: None };
    handle.prepare().map_err(|stop| AcquireError::of(b"/", stop))?;
    for op in plan.ops.iter().filter(|op| !op.is_dir_time()) {
        // Appends commute: the commit merges them.
        let appends = |path: &[u8]| {
            reads.and_then(|r| r.get(path)).is_some_and(|seen| seen.facets().is_append())
        };
        let target = plan.target_path(op);
        let access = match op.does {
            // The name stays as it is.
            Does::Patch { .. } => Access::Read,
            _ if appends(&target) => Access::Insert,
            _ => Access::Write,
        };
        let mut take = |facet: &Facet<'_>, access| {
            handle.acquire(facet, access).map(drop).map_err(|stop| AcquireError::of(&target, stop))
        };
        // Mostly it is one path, which need not be acquired three times.
        let before = (op.before != op.target).then_some(&op.before);
        let after = (op.after != op.target && op.after != op.before).then_some(&op.after);
        for path in [Some(&op.target), before, after].into_iter().flatten() {
            let (parent, name) = split(path);
            let Some(dir) = dirs.id(op.layer, parent) else { continue };
            take(&Facet::Entry { dir, name }, access)?;
            if !op.is_in_place() && !op.is_exchange() {
                take(&Facet::Listing(dir), Access::Insert)?;
            }
        }
        if let (Does::Patch { pages, .. }, Some(base)) = (&op.does, op.base) {
            acquire_patch(&mut take, op, pages, &base)?;
        } else if let Some(base) = op.base {
            take(&Facet::Attributes(base.id), access)?;
            if base.kind() == FileKind::File {
                take(&Facet::Extent(base.id), access)?;
            }
        }
    }
    // Not under the commit lock: the one whose turn it is needs that.
    handle.await_turn().map_err(|stop| AcquireError::of(b"/", stop))
}

/// A patch within the file's size meets only those who touch the same pages, or the whole file.
fn acquire_patch(
    take: &mut impl FnMut(&Facet<'_>, Access) -> std::result::Result<(), AcquireError>,
    op: &Op,
    pages: &[u64],
    base: &Version,
) -> std::result::Result<(), AcquireError> {
    let whole = op.attrs().is_some_and(|attrs| !attrs.is_only_mtime())
        || op.new.is_none_or(|new| new.size != base.size)
        || pages.is_empty()
        || pages.len() > PAGES_CLAIMED_MAX;
    if whole {
        take(&Facet::Attributes(base.id), Access::Write)?;
        return take(&Facet::Extent(base.id), Access::Write);
    }
    take(&Facet::Attributes(base.id), Access::Insert)?;
    take(&Facet::Extent(base.id), Access::Read)?;
    for &number in pages {
        take(&Facet::Page { file: base.id, number }, Access::Write)?;
    }
    Ok(())
}

/// A patch of more pages claims the file.
const PAGES_CLAIMED_MAX: usize = 256;

/// A directory by its layer and path.
type Place = (u16, Vec<u8>);

/// The directories of a plan's targets, as they are in the stable tree.
struct Dirs<'a> {
    plan: &'a Plan,
    known: Map<Place, Option<FileId>>,
    /// The last that was asked for: mostly it is the next as well.
    last: Option<(Place, Option<FileId>)>,
}

impl Dirs<'_> {
    /// `None`: it is not there (yet), so nobody can have looked at a name in it.
    fn id(&mut self, layer: u16, dir: &[u8]) -> Option<FileId> {
        if let Some(((of, path), id)) = &self.last
            && (*of, &path[..]) == (layer, dir)
        {
            return *id;
        }
        let key = (layer, dir.to_vec());
        let id = match self.known.get(&key) {
            Some(known) => *known,
            None => {
                let path = self.plan.path_of(layer, dir);
                let id = stat_at(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).ok().map(|v| v.id);
                self.known.insert(key.clone(), id);
                id
            }
        };
        self.last = Some((key, id));
        id
    }
}

/// What a doomed transaction lost: the first thing it looked at that is what the winner wanted; `None` if
/// it is nothing of that.
#[must_use]
pub fn explain(watch: &Watch<'_>, reads: &mut ReadSet) -> Option<Conflict> {
    let all: Vec<Touch> = reads.all_touches().collect();
    let at = all.iter().find(|touch| {
        let found = reads
            .facets_of(touch, true, |facet, _| if watch.lost_at(facet) { Err(()) } else { Ok(()) });
        found.is_err()
    })?;
    Some(conflict(&reads.path_of(at), &AbortCause::Doomed(watch.winner())))
}

/// A lost conflict at a path, as people are told of conflicts.
#[must_use]
pub fn conflict(path: &[u8], stop: &AbortCause) -> Conflict {
    let who = |opponent: &crate::realm::Opponent| {
        let mut text = match (opponent.id, opponent.pid) {
            (Some(id), _) => format!("transaction {id}"),
            (None, 0) => "another transaction".to_owned(),
            (None, pid) => format!("a transaction of process {pid}"),
        };
        if !opponent.label.is_empty() {
            text.push_str(&format!(" ({})", opponent.label));
        }
        text
    };
    // Where it is not known what they met at.
    let it = if path.is_empty() { "what this one does" } else { "it" };
    let what = match stop {
        AbortCause::Doomed(opponent) => format!("{} touches {it} as well, and won", who(opponent)),
        AbortCause::Lost(opponent) => {
            format!("{} touches {it} as well, and goes first ({})", who(opponent), opponent.reason)
        }
        AbortCause::Busy(opponent) => {
            format!("{} touches {it} as well, and runs on", who(opponent))
        }
        AbortCause::CalledOff(opponent) => {
            let why = match &*opponent.reason {
                "" => String::new(),
                reason => format!(" ({reason})"),
            };
            format!("called off while it waited for {}{why}", who(opponent))
        }
        other => other.to_string(),
    };
    let by = stop.opponent().map_or_else(Party::default, |opponent| Party {
        id: opponent.id,
        pid: Some(opponent.pid).filter(|&pid| pid != 0),
        command: Some(opponent.label.clone()).filter(|label| !label.is_empty()),
    });
    let what = ConflictKind::Opponent { text: what, by };
    Conflict { path: path::from_bytes(path), what, when: None }
}

/// What became of a publish whose process died: recovery decides, then its record says.
///
/// # Errors
/// [`Unresolved`] if recovery fails, or the dead process's store is not known.
pub fn resolve_dead_publish(remains: &DeadPublish) -> std::result::Result<PublishFate, Unresolved> {
    // Who takes part says where its store is before it begins: this was no participant's publish.
    if !remains.home.is_absolute() {
        return Ok(PublishFate::Undone);
    }
    let unresolved = |e: Error| Unresolved(e.to_string());
    // It is looked for, not made.
    let Some(home) = Home::open_existing(&remains.home).map_err(unresolved)? else {
        let store = crate::show::quoted(&remains.home);
        return Err(Unresolved(format!("its store {store} is not there")));
    };
    super::recover(&home, &super::Silent).map_err(unresolved)?;
    let committed = remains
        .id
        .and_then(|id| home.meta(id).ok())
        .is_some_and(|meta| matches!(meta.state, State::Committed | State::Reverted))
        || remains.id.is_some_and(|id| super::light::holds(&home, id));
    Ok(if committed { PublishFate::Committed } else { PublishFate::Undone })
}
