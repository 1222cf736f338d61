//! `txos gc`: what dead transactions left behind, old history, the trash.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use txos_engine::store::{Home, Meta, State};
use txos_engine::version::Stamp;
use txos_engine::{Error, TxId, commit};

use crate::app::App;
use crate::args::GcArgs;
use crate::changes::size;
use crate::commit::end_leftovers;
use crate::duration::Age;
use crate::exit::Failure;
use crate::json;
use crate::keep;
use crate::list::find;
use crate::pick::{Wanted, pick};
use crate::realm_view::clear_dead;
use crate::space;
use crate::tx_status::TxStatus;

/// A transaction without a record is taken for half made, not for being made right now, once its
/// directory is this old.
const HALF_MADE_AGE: Duration = Duration::from_secs(60);

/// One transaction that was removed.
#[derive(Debug, Serialize)]
struct Removed {
    id: TxId,
    /// Why, in words.
    reason: String,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    removed: Vec<Removed>,
    /// Bytes of disk space that the trash gave back.
    freed: u64,
    /// Whether nothing is left in the trash.
    trash_empty: bool,
    /// What the store may take before the oldest history goes.
    bound: Option<u64>,
}

/// Cleans up.
pub fn gc(app: &App, args: &GcArgs) -> Result<u8, Failure> {
    let home = match args.bound {
        // It is remembered in the store.
        Some(_) => Some(app.open()?),
        None => app.open_existing()?,
    };
    let Some(home) = home else {
        app.say("there is no store, so there is nothing to remove");
        return Ok(0);
    };
    // What a crash interrupted may need what is about to be removed.
    drop(app.open_recovered()?);
    clear_dead(app);
    let mut removed = Vec::new();
    for text in &args.force {
        removed.push(force(app, &home, text)?);
    }
    fall_back(app, &home)?;
    remove_dead(app, &home, &mut removed)?;
    remove_half_made(&home, &mut removed)?;
    remove_left_over(&home)?;
    remove_history(&home, args, &mut removed)?;
    if let Some(bound) = args.bound {
        space::set_bound(&home, bound.0)?;
    }
    let bound = space::bound(&home)?;
    if let Some(bound) = bound {
        let reason = || "old history, above the bound".into();
        let gone = space::free(&home, bound, None)?;
        removed.extend(gone.into_iter().map(|id| Removed { id, reason: reason() }));
    }
    let before = trash_size(&home)?;
    let trash_empty = home.empty_trash(None)?;
    let freed = before.saturating_sub(trash_size(&home)?);
    let report = Report { removed, freed, trash_empty, bound };
    if args.json {
        json::write(&mut io::stdout().lock(), report)?;
        return Ok(0);
    }
    let mut out = io::stdout().lock();
    if !app.quiet() {
        let id = app.out.id();
        for Removed { id: tx, reason } in &report.removed {
            writeln!(out, "removed {id}{tx}{id:#}: {reason}")?;
        }
        let n = report.removed.len();
        let plural = if n == 1 { "" } else { "s" };
        writeln!(out, "{n} transaction{plural} removed, {} freed", size(report.freed))?;
    }
    if !report.trash_empty {
        app.warn("something in the trash could not be deleted; `txos doctor` tells where it is");
    }
    Ok(0)
}

/// Removes a transaction whatever its state, unless its command runs.
fn force(app: &App, home: &Home, text: &str) -> Result<Removed, Failure> {
    let id = match (pick(home, text, Wanted::Ended), text.parse()) {
        (Ok(id), _) => id,
        // It may have left something in a side store although the home store has forgotten it.
        (Err(_), Ok(id)) if !home.tx_dir(id).exists() => id,
        (Err(failure), _) => return Err(failure),
    };
    if home.tx_dir(id).exists() && home.is_held(id) {
        let (state, advice) = ("in use".into(), "end its command first".into());
        return Err(Error::WrongState { id, state, advice }.into());
    }
    if let Ok(meta) = home.meta(id)
        && meta.state == State::Active
    {
        end_leftovers(app, &home.tx_dir(id), &meta)?;
    }
    commit::finish_dead(home)?;
    let _commits = home.lock_commits()?;
    home.discard_id(id)?;
    home.forget_staging(id);
    Ok(Removed { id, reason: "forced".into() })
}

/// Takes pending transactions whose last command was interrupted back to what they were before it.
fn fall_back(app: &App, home: &Home) -> Result<(), Failure> {
    for meta in home.transactions()?.into_iter().flatten().filter(Home::falls_back) {
        // What is held runs.
        if let Ok(mut tx) = home.load(meta.id)
            && Home::falls_back(&tx.meta)
        {
            let id = meta.id;
            match keep::take_back(app, &mut tx) {
                Ok(()) => {}
                // The others are none the worse for it.
                Err(failure) => app.warn(format_args!(
                    "{id} is left as it is: {}",
                    failure.message().unwrap_or_default()
                )),
            }
        }
    }
    Ok(())
}

/// Removes transactions whose txos process is gone in the middle.
fn remove_dead(app: &App, home: &Home, removed: &mut Vec<Removed>) -> Result<(), Failure> {
    let (dead, unreadable) = find(Some(home), |status| status == TxStatus::Dead)?;
    unreadable.iter().for_each(|message| app.warn(message));
    for (meta, _) in dead {
        // Somebody may have been faster; what is held now is in good hands.
        let Ok(tx) = home.load(meta.id) else { continue };
        if tx.meta.state != State::Active {
            continue;
        }
        end_leftovers(app, tx.dir(), &tx.meta)?;
        // What a program was about to put into the tree when it died lies among its copies.
        commit::finish_dead(home)?;
        match home.discard(tx) {
            Err(Error::WrongState { .. }) => continue,
            discarded => discarded?,
        }
        home.forget_staging(meta.id);
        let reason = format!("its txos process is gone ({})", crate::log::one_line(&meta));
        removed.push(Removed { id: meta.id, reason });
    }
    Ok(())
}

/// Removes directories of transactions that never got their record.
fn remove_half_made(home: &Home, removed: &mut Vec<Removed>) -> Result<(), Failure> {
    for id in home.ids()? {
        let half_made = matches!(home.meta(id), Err(Error::NoSuchTransaction(_)));
        if half_made && is_old(&home.tx_dir(id)) && !home.is_held(id) {
            home.discard_id(id)?;
            removed.push(Removed { id, reason: "it was never begun completely".into() });
        }
    }
    Ok(())
}

/// Removes files that somebody wrote, or was about to remove, when he died.
fn remove_left_over(home: &Home) -> Result<(), Failure> {
    // Who has just ended may be recorded by another one.
    let Some(_commits) = home.try_lock_commits()? else { return Ok(()) };
    for id in home.ids()? {
        // Whoever holds it may be writing.
        if let Ok(tx) = home.load(id) {
            home.remove_left_over(&tx)?;
        }
    }
    for store in home.stores()? {
        for entry in fs::read_dir(&store).into_iter().flatten().flatten() {
            let is_half = entry.file_name().as_encoded_bytes().starts_with(b"format.");
            if is_half && is_old(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    Ok(())
}

fn is_old(dir: &Path) -> bool {
    let modified = fs::metadata(dir).and_then(|m| m.modified());
    modified.is_ok_and(|m| m.elapsed().is_ok_and(|age| age > HALF_MADE_AGE))
}

/// Removes committed transactions, with the old versions they retain.
fn remove_history(home: &Home, args: &GcArgs, removed: &mut Vec<Removed>) -> Result<(), Failure> {
    if args.older_than.is_none() && args.keep.is_none() {
        return Ok(());
    }
    // Nobody may revert, meanwhile, what is about to go.
    let _commits = home.lock_commits()?;
    let published = |s| matches!(s, TxStatus::Committed | TxStatus::Reverted);
    let (history, _) = find(Some(home), published)?;
    let history: Vec<Meta> = history.into_iter().map(|(meta, _)| meta).collect();
    for id in expired(history, args.older_than, args.keep, Stamp::now()) {
        home.discard_id(id)?;
        removed.push(Removed { id, reason: "old history".into() });
    }
    Ok(())
}

/// Which of the history to remove. A transaction and the one that undid it go together or stay
/// together: either alone would tell of the other.
fn expired(
    mut history: Vec<Meta>,
    older_than: Option<Age>,
    keep: Option<usize>,
    now: Stamp,
) -> Vec<TxId> {
    history.sort_by_key(|meta| std::cmp::Reverse(meta.ended));
    let present: HashSet<TxId> = history.iter().map(|meta| meta.id).collect();
    let old = |meta: &Meta| {
        older_than.is_none_or(|age| age.reached(meta.ended.unwrap_or(meta.begun), now))
    };
    let mut expired: HashSet<TxId> =
        history.iter().skip(keep.unwrap_or(0)).filter(|m| old(m)).map(|m| m.id).collect();
    loop {
        let before = expired.len();
        for meta in &history {
            let partners = meta.reverts.iter().chain(&meta.reverted_by);
            let mut partners = partners.chain(&meta.parts_reverted_by);
            if partners.any(|p| present.contains(p) && !expired.contains(p)) {
                expired.remove(&meta.id);
            }
        }
        if expired.len() == before {
            break;
        }
    }
    history.iter().map(|m| m.id).filter(|id| expired.contains(id)).collect()
}

/// Disk space below the trash of all stores.
fn trash_size(home: &Home) -> Result<u64, Failure> {
    let mut open: Vec<PathBuf> = home.stores()?.iter().map(|s| s.join("trash")).collect();
    let mut bytes = 0;
    // What can't be looked at is not counted: it is an account, not a decision.
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            // A file with other links lives on elsewhere.
            if meta.is_dir() || meta.nlink() == 1 {
                bytes += meta.blocks() * 512;
            }
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx_status::sample;

    fn id(n: u64) -> TxId {
        TxId::from_bits(n)
    }

    /// Number `n` was committed at second `n`.
    fn history() -> Vec<Meta> {
        let meta = |n: u64, reverts: Option<u64>, reverted_by: Option<u64>| Meta {
            id: id(n),
            state: if reverted_by.is_some() { State::Reverted } else { State::Committed },
            ended: Some(Stamp { sec: n as i64, nsec: 0 }),
            reverts: reverts.map(id),
            reverted_by: reverted_by.map(id),
            ..sample()
        };
        vec![
            meta(10, None, None),
            meta(20, None, Some(50)),
            meta(30, None, None),
            meta(40, None, None),
            meta(50, Some(20), None),
        ]
    }

    fn gone(older_than: Option<&str>, keep: Option<usize>) -> Vec<u64> {
        let age = older_than.map(|a| a.parse().unwrap());
        let ids = expired(history(), age, keep, Stamp { sec: 60, nsec: 0 });
        (1..=5).map(|n| n * 10).filter(|&n| ids.contains(&id(n))).collect()
    }

    #[test]
    fn history_goes_by_age_and_number_and_in_pairs() {
        assert_eq!(gone(Some("1s"), None), [10, 20, 30, 40, 50]);
        assert_eq!(gone(Some("20s"), None), [10, 30, 40], "20 stays with 50, which undid it");
        assert_eq!(gone(Some("1h"), None), [0u64; 0]);
        assert_eq!(gone(None, Some(2)), [10, 30]);
        assert_eq!(gone(None, Some(0)), [10, 20, 30, 40, 50]);
        assert_eq!(gone(Some("25s"), Some(4)), [10]);
    }
}
