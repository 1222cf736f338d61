//! Recovery: finishing or undoing what a crash interrupted.

use std::path::Path;

use super::roots::Roots;
use super::{Phase, Progress, publish, reads_after_undo, record};
use crate::error::Result;
use crate::id::TxId;
use crate::journal::{self, Journal};
use crate::store::Home;
use crate::sys_owner;

/// What recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Transactions whose interrupted publish was undone.
    pub undone: Vec<TxId>,
    /// Transactions whose finished publish only lacked its record.
    pub finished: Vec<TxId>,
    /// Things a person should know: objects changed by others after a crash, and where they are.
    pub notes: Vec<String>,
}

/// The transaction whose publish was interrupted, or is going on, if there is one that can be told.
/// Reads only.
#[must_use]
pub fn interrupted(home: &Home) -> Option<TxId> {
    journal::holds(home).unwrap_or_default()
}

/// Whether a store may hold commits that a power cut, or another end of the machine, kept from being in place. What reads in a
/// transaction asks this before the first time; `store` need not exist. Reads only, and little.
///
/// # Errors
/// [`crate::Error::Io`]: it can't be told.
pub fn is_left_from_an_earlier_boot(store: &Path) -> Result<bool> {
    Ok(journal::is_of_an_earlier_boot(store)? || super::light::is_of_an_earlier_boot(store)?)
}

/// Finishes or undoes what a crash interrupted. Idempotent; called first by everything that writes.
///
/// # Errors
/// [`crate::Error::Format`] if the journal is damaged or newer; it is then left alone.
pub fn recover(home: &Home, progress: &dyn Progress) -> Result<Recovered> {
    let _rights = sys_owner::rights();
    let _lock = home.lock_commits()?;
    Ok(recover_locked(home, progress)?.1)
}

/// [`recover`] for a holder of the commit lock, who goes on with the journal.
pub(super) fn recover_locked(home: &Home, progress: &dyn Progress) -> Result<(Journal, Recovered)> {
    let (mut journal, found) = Journal::open(home)?;
    let mut recovered = Recovered::default();
    // Whoever publishes, reverts or recovers finds every light commit in place and flushed.
    super::light::resolve_all(home, false, &mut recovered)?;
    let Some(mut found) = found else { return Ok((journal, recovered)) };
    found.plan.renumber();
    let id = found.plan.id;
    // What is noted of owners would be compared with other numbers.
    if let Ok(meta) = home.meta(id) {
        meta.check_same_numbering()?;
    }
    let same_boot =
        found.plan.boot == crate::machine::boot_id() || crate::sys::mistake("boot-not-compared");
    // The decision table at the top of the journal module.
    match (found.progress, same_boot) {
        (journal::Progress::Planning, _) => {
            if found.plan.is_sound() {
                let roots = Roots::open(&found.plan)?;
                if publish::anything_done(&found.plan, &roots)? {
                    return Err(journal.contradicts_tree());
                }
            }
            journal.idle(false)?;
        }
        (journal::Progress::Ready | journal::Progress::Undoing, _)
        | (journal::Progress::Applied, false) => {
            progress.phase(Phase::Undoing, Some(found.plan.ops.len() as u64));
            let roots = Roots::open(&found.plan)?;
            let touched = reads_after_undo::Touched::seen(&found.plan, &roots);
            recovered.notes = publish::undo(&found.plan, &roots, publish::Extent::Unknown)?;
            roots.flush()?;
            reads_after_undo::update_pending(home, &found.plan, &roots, &touched);
            if let Some(reverted) = reverts(home, id)? {
                super::revert::note_versions_after_undo(home, reverted, &found.plan)?;
            }
            journal.idle(true)?;
            recovered.undone.push(id);
        }
        // It was recorded and then discarded, which is done only once the journal is empty: a power cut
        // has taken the journal back, and nothing is left to do.
        (journal::Progress::Done, false)
            if matches!(home.meta(id), Err(crate::Error::NoSuchTransaction(_))) =>
        {
            journal.idle(false)?;
        }
        (journal::Progress::Applied, true) | (journal::Progress::Done, _) => {
            let roots = Roots::open(&found.plan)?;
            if found.progress == journal::Progress::Applied {
                if found.plan.durable {
                    roots.flush()?;
                }
                journal.done(found.plan.durable)?;
            }
            match record::finish(
                home,
                &mut journal,
                &mut found.plan,
                &roots,
                found.commit_stamp,
                None,
            ) {
                Ok(()) => recovered.finished.push(id),
                // Its directory is gone: nothing is left to record it in.
                Err(crate::Error::NoSuchTransaction(_)) => {
                    journal.idle(false)?;
                    recovered
                        .notes
                        .push(format!("transaction {id} was published; its record is gone"));
                }
                Err(e) => return Err(e),
            }
        }
    }
    Ok((journal, recovered))
}

/// The transaction that this one reverts; none if there is no record of it any more.
fn reverts(home: &Home, id: TxId) -> Result<Option<TxId>> {
    match home.meta(id) {
        Ok(meta) => Ok(meta.reverts),
        // Damaged is as good as gone: its publish is undone all the same.
        Err(crate::Error::NoSuchTransaction(_) | crate::Error::Format { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}
