//! Disk space: what transactions take, the bound of the store, and what could be freed.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use txos_engine::TxId;
use txos_engine::show::quoted;
use txos_engine::store::{Home, Meta, State, replace_file};
use txos_engine::sys;
use txos_run::limits::{disk_space, disk_space_until};

use crate::app::{App, tell};
use crate::exit::Failure;
use crate::list::find;
use crate::size::Size;
use crate::trash;
use crate::tx_status::TxStatus;

/// In a transaction's directory: how much it takes, in which state.
const NOTE: &str = "space";
/// In the home store: the bound.
const BOUND: &str = "bound";
/// First line of the bound.
const BOUND_MAGIC: &str = "txos-bound 1";

/// How long a list counts what has no note.
const COUNTING_MAX: Duration = Duration::from_millis(300);

/// How long a transaction that has just ended is counted.
const NOTING_MAX: Duration = Duration::from_millis(2);

/// How many changes are counted in that time.
const COUNTED_MAX: u64 = 500;

/// How long old history is removed after a commit. The next one goes on.
const REMOVING_MAX: Duration = Duration::from_millis(100);

/// Less than this is a full disk.
const FULL: u64 = 1 << 20;

/// A number of bytes as `du -h` writes it: `4.0K`, `12K`, `1.3G`; rounded up.
pub fn du(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut scale: u128 = 1024;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if u128::from(bytes).div_ceil(scale) < 1024 {
            break;
        }
        scale *= 1024;
        unit = *larger;
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(scale);
    if tenths < 100 {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    } else {
        format!("{}{unit}", tenths.div_ceil(10))
    }
}

/// The directories of a transaction.
fn dirs(home: &Home, meta: &Meta) -> Vec<PathBuf> {
    let stores: BTreeSet<PathBuf> = meta.layers.iter().map(|layer| layer.store.clone()).collect();
    let side = stores.into_iter().filter(|store| store != home.dir());
    let side = side.map(|store| store.join("tx").join(meta.id.as_str()));
    std::iter::once(home.tx_dir(meta.id)).chain(side).collect()
}

/// For which record a note is.
fn of_record(meta: &Meta) -> String {
    let ended = meta.ended.unwrap_or(meta.begun);
    format!("{} {}.{:09}", meta.state, ended.sec, ended.nsec)
}

/// Notes what a transaction that was kept or has ended takes, so that nobody has to count it again. What takes long to
/// count is counted by a process of its own.
pub fn note(app: &App, home: &Home, id: TxId) {
    if !is_noted(home, id) {
        trash::leave_to_another(app);
    }
}

/// Notes what a transaction takes. `false` if that takes too long to count now.
fn is_noted(home: &Home, id: TxId) -> bool {
    let Ok(meta) = home.meta(id) else { return true };
    let deadline = Instant::now() + NOTING_MAX;
    match disk_space_until(&dirs(home, &meta), Some(deadline)) {
        Some(bytes) => write_note(home, &meta, bytes),
        None => return false,
    }
    true
}

/// How many paths are counted in a time that a list has.
const LISTED_MAX: u64 = 50_000;

/// Leaves the counting of a pending transaction to those who list it; if it changes so many paths that this would
/// take long, [notes](note) what it takes.
pub fn note_small(app: &App, home: &Home, id: TxId, paths: u64) {
    if paths > LISTED_MAX {
        note(app, home, id);
    }
}

fn write_note(home: &Home, meta: &Meta, bytes: u64) {
    let text = format!("{bytes} {}\n", of_record(meta));
    let path = home.tx_dir(meta.id).join(NOTE);
    // Without it the space is counted when it is asked for.
    let _ = replace_file(&path, text.as_bytes(), false);
}

/// What was noted of a transaction, if that is still so.
fn noted(home: &Home, meta: &Meta) -> Option<u64> {
    let text = sys::read_text(&home.tx_dir(meta.id).join(NOTE)).ok()?;
    let (bytes, record) = text.trim_end().split_once(' ')?;
    if record == of_record(meta) { bytes.parse().ok() } else { None }
}

/// Notes what the transactions take of which it is not noted.
pub fn note_all(home: &Home) -> Result<(), Failure> {
    for meta in home.transactions()?.into_iter().flatten() {
        if meta.state == State::Active || noted(home, &meta).is_some() {
            continue;
        }
        let bytes = disk_space(&dirs(home, &meta));
        // It may be another one meanwhile; then somebody else notes it.
        if home.meta(meta.id).is_ok_and(|now| of_record(&now) == of_record(&meta)) {
            write_note(home, &meta, bytes);
        }
    }
    Ok(())
}

/// Counts for one list: not for longer than is bearable.
pub struct Counting {
    deadline: Instant,
}

impl Counting {
    /// Begins.
    pub fn begin() -> Counting {
        Counting { deadline: Instant::now() + COUNTING_MAX }
    }

    /// How much a transaction takes; `None` if that would take too long to count.
    pub fn of(&self, home: &Home, meta: &Meta) -> Option<u64> {
        if meta.state != State::Active
            && let Some(bytes) = noted(home, meta)
        {
            return Some(bytes);
        }
        disk_space_until(&dirs(home, meta), Some(self.deadline))
    }
}

/// The bound of a store, if it has one.
pub fn bound(home: &Home) -> Result<Option<u64>, Failure> {
    let path = home.dir().join(BOUND);
    let text = match sys::read_text(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::new(format!("reading {}: {e}", quoted(&path)))),
    };
    let bytes = text.strip_prefix(BOUND_MAGIC).and_then(|rest| rest.trim().parse().ok());
    bytes.map(Some).ok_or_else(|| {
        Failure::new(format!(
            "{} is damaged, or of a newer txos; `txos gc --bound SIZE` or `--bound none` writes it anew",
            quoted(&path)
        ))
    })
}

/// Sets the bound, or takes it away.
pub fn set_bound(home: &Home, bound: Option<Size>) -> Result<(), Failure> {
    let path = home.dir().join(BOUND);
    let failed = |e: std::io::Error| Failure::new(format!("writing {}: {e}", quoted(&path)));
    let Some(Size(bytes)) = bound else {
        return match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(e)),
            _ => Ok(()),
        };
    };
    Ok(replace_file(&path, format!("{BOUND_MAGIC}\n{bytes}\n").as_bytes(), true)?)
}

/// After a commit of `changes` paths: notes what the transaction takes, removes the oldest history if there is more
/// than the bound allows, and empties the trash. What takes long is left to one process of its own. That it can't be
/// done now is no failure of the commit.
pub fn after_commit(app: &App, home: &Home, id: TxId, changes: u64) {
    let is_noted = changes <= COUNTED_MAX && is_noted(home, id);
    keep_to_bound(app, home);
    match is_noted {
        true => trash::clear(app, home),
        false => trash::leave_to_another(app),
    }
}

/// Removes the oldest history if there is more than the bound allows.
fn keep_to_bound(app: &App, home: &Home) {
    let removed = match bound(home) {
        Ok(None) => return,
        Ok(Some(bound)) => free(home, bound, Some(Instant::now() + REMOVING_MAX)),
        Err(failure) => Err(failure),
    };
    match removed {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => tracing::info!("removed from the history, which has a bound: {removed:?}"),
        Err(failure) => app.warn(failure.message().unwrap_or_default()),
    }
}

/// Removes the oldest of the history until the store takes no more than `bound`, or until nothing is left to be
/// removed: the newest commit stays.
pub fn free(home: &Home, bound: u64, deadline: Option<Instant>) -> Result<Vec<TxId>, Failure> {
    // Nobody may revert, meanwhile, what is about to go. Who commits now does this afterwards.
    let Some(_commits) = home.try_lock_commits()? else { return Ok(Vec::new()) };
    let (found, _) = find(Some(home), |_| true)?;
    let counting = Counting { deadline: deadline.unwrap_or_else(|| Instant::now() + COUNTING_MAX) };
    let counted: Vec<(Meta, TxStatus, u64)> = found
        .into_iter()
        .map(|(meta, status)| {
            let bytes = counting.of(home, &meta).unwrap_or_default();
            (meta, status, bytes)
        })
        .collect();
    let all: u64 = counted.iter().map(|(_, _, bytes)| bytes).sum();
    let published = |s| matches!(s, TxStatus::Committed | TxStatus::Reverted);
    let history = counted.into_iter().filter(|(_, status, _)| published(*status));
    let history = history.map(|(meta, _, bytes)| (meta, bytes)).collect();
    let mut removed = Vec::new();
    for id in oldest(history, all.saturating_sub(bound)) {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        home.discard_id(id)?;
        removed.push(id);
    }
    Ok(removed)
}

/// Which of the history to remove to free `bytes`: the oldest, a transaction together with the one that undid it. The newest,
/// and what belongs together with it, stays.
fn oldest(mut history: Vec<(Meta, u64)>, bytes: u64) -> Vec<TxId> {
    history.sort_by_key(|(meta, _)| meta.ended);
    let newest = history.last().map(|(meta, _)| meta.id);
    let mut gone = Vec::new();
    let mut seen = HashSet::new();
    let mut freed = 0;
    for (meta, _) in &history {
        if freed >= bytes {
            break;
        }
        let mut group = vec![meta.id];
        let mut next = 0;
        while let Some(id) = group.get(next).copied() {
            next += 1;
            let partners = history.iter().find(|(m, _)| m.id == id);
            let partners = partners.map(|(m, _)| [m.reverts, m.reverted_by]).unwrap_or_default();
            for partner in partners.into_iter().flatten() {
                let present = history.iter().any(|(m, _)| m.id == partner);
                if present && !group.contains(&partner) {
                    group.push(partner);
                }
            }
        }
        if group.iter().any(|id| Some(*id) == newest || !seen.insert(*id)) {
            continue;
        }
        let of_group = history.iter().filter(|(m, _)| group.contains(&m.id));
        freed += of_group.map(|(_, bytes)| bytes).sum::<u64>();
        gone.extend(group);
    }
    gone
}

/// Whether one of the stores of a transaction is on a file system that is full.
pub fn is_full(meta: &Meta) -> bool {
    meta.layers.iter().any(|layer| {
        rustix::fs::statvfs(&layer.store)
            .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) < FULL)
    })
}

/// Whether a failure is that a file system is full.
pub fn tells_of_space(failure: &Failure) -> bool {
    matches!(failure, Failure::NoSpace(_))
}

/// Says how space could be had, if the history takes any.
pub fn hint(home: &Home) {
    let published = |s| matches!(s, TxStatus::Committed | TxStatus::Reverted);
    let Ok((history, _)) = find(Some(home), published) else { return };
    let counting = Counting::begin();
    let bytes: u64 = history.iter().filter_map(|(meta, _)| counting.of(home, meta)).sum();
    if history.is_empty() || bytes < FULL {
        return;
    }
    let (n, plural) = (history.len(), if history.len() == 1 { "" } else { "s" });
    tell(format_args!(
        "txos: a file system is full; the history of {n} transaction{plural} takes {}: `txos gc --keep N` removes all but \
         the newest N (they can't be reverted then), `txos gc --bound SIZE` keeps it small from now on",
        du(bytes)
    ));
}

#[cfg(test)]
mod tests {
    use txos_engine::version::Stamp;

    use super::*;
    use crate::tx_status::sample;

    #[test]
    fn sizes_are_shown_as_by_du() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (4096, "4.0K"),
            (10_200, "10K"),
            (12_288, "12K"),
            (1 << 20, "1.0M"),
            ((1 << 20) - 1, "1.0M"),
            (1_363_149, "1.4M"),
            (10 << 30, "10G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(du(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn the_oldest_goes_first_and_pairs_stay_together() {
        let id = TxId::from_bits;
        let meta = |n: u64, reverts: Option<u64>, reverted_by: Option<u64>| Meta {
            id: id(n),
            ended: Some(Stamp { sec: n as i64, nsec: 0 }),
            reverts: reverts.map(id),
            reverted_by: reverted_by.map(id),
            ..sample()
        };
        let history = || {
            vec![
                (meta(50, Some(20), None), 1),
                (meta(20, None, Some(50)), 10),
                (meta(10, None, None), 100),
                (meta(30, None, None), 1000),
                (meta(60, None, None), 10_000),
            ]
        };
        let gone = |bytes| -> Vec<u64> {
            let ids = oldest(history(), bytes);
            (1..=6).map(|n| n * 10).filter(|&n| ids.contains(&id(n))).collect()
        };
        assert_eq!(gone(0), [0u64; 0]);
        assert_eq!(gone(1), [10]);
        assert_eq!(gone(101), [10, 20, 50]);
        assert_eq!(gone(112), [10, 20, 30, 50]);
        assert_eq!(gone(u64::MAX), [10, 20, 30, 50], "the newest stays");
    }
}
