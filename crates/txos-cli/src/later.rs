//! Which committed transactions changed a path.

use std::path::{Path, PathBuf};

use txos_engine::Error;
use txos_engine::changeset::Entry;
use txos_engine::commit::committed_entries;
use txos_engine::store::{Home, Meta, State};

use crate::exit::Failure;
use crate::paths::selects;

/// How many transactions are looked through for one that explains a conflict.
const LOOKED_AT_MAX: usize = 200;

/// Whether a committed transaction changed something at or below one of the paths.
///
/// # Errors
/// If the record of its changes can't be read.
pub fn touches(home: &Home, meta: &Meta, paths: &[PathBuf]) -> Result<bool, Error> {
    Ok(committed_entries(home, meta.id)?.iter().any(|entry| selects(paths, entry)))
}

/// A conflict of a revert of `reverted`, with the transactions of this store that came after it and changed the
/// same path.
pub fn named(home: &Home, reverted: &Meta, failure: Failure) -> Failure {
    let Failure::Conflict { conflicts, aftermath, .. } = failure else { return failure };
    let later = |meta: &Meta| {
        meta.state == State::Committed
            && meta.id != reverted.id
            && meta.commit_stamp.is_some_and(|stamp| Some(stamp) > reverted.commit_stamp)
    };
    let all = home.transactions().unwrap_or_default().into_iter().flatten();
    let mut suspects: Vec<(Meta, Vec<Entry>)> = all
        .filter(later)
        .take(LOOKED_AT_MAX)
        .map(|meta| (committed_entries(home, meta.id).unwrap_or_default(), meta))
        .map(|(entries, meta)| (meta, entries))
        .collect();
    suspects.sort_by_key(|(meta, _)| meta.commit_stamp);
    let changed = |entry: &Entry, path: &Path| {
        entry.path.starts_with(path) || entry.from.as_deref().is_some_and(|f| f.starts_with(path))
    };
    let came_after = suspects
        .iter()
        .filter(|(_, entries)| {
            entries.iter().any(|e| conflicts.iter().any(|c| changed(e, &c.path)))
        })
        .map(|(meta, _)| meta.id)
        .collect();
    Failure::Conflict { conflicts, aftermath, came_after }
}
