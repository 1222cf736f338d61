//! Discarding a transaction: not while the journal needs its directories.

use super::holds;
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::store::{Home, Transaction};
use crate::sys;

impl Home {
    /// Moves a transaction's directories to the trash of their stores.
    ///
    /// # Errors
    /// [`Error::WrongState`] if an interrupted publish needs them; [`Error::Io`] if a directory can't be
    /// moved.
    pub fn discard(&self, tx: Transaction) -> Result<()> {
        check_not_needed(self, tx.id())?;
        self.check_loaded(&tx)?;
        self.move_to_trash(tx.id())
    }

    /// [`Home::discard`] for a transaction whose record may be unreadable. The caller makes sure
    /// that nobody holds it.
    ///
    /// # Errors
    /// As [`Home::discard`].
    pub fn discard_id(&self, id: TxId) -> Result<()> {
        check_not_needed(self, id)?;
        self.move_to_trash(id)
    }
}

/// What recovery needs to put the tree in order lies in a transaction's directories.
fn check_not_needed(home: &Home, id: TxId) -> Result<()> {
    if !needs(home, id)? {
        return Ok(());
    }
    Err(Error::WrongState {
        id,
        state: "named by the journal: its publish was interrupted".into(),
        advice: "run `txos recover` first.".into(),
    })
}

/// Whether the journal holds a publish that needs the directories of a transaction: its own, or
/// those of one whose retained versions or private copies it works with.
///
/// # Errors
/// If the journal can't be read.
fn needs(home: &Home, id: TxId) -> Result<bool> {
    let Some(holder) = holds(home)? else { return Ok(false) };
    if holder == id {
        return Ok(true);
    }
    let mark = format!("tx/{id}/").into_bytes();
    let path = home.dir().join("journal");
    let bytes = sys::read_record(&path).at("reading the journal", &path)?;
    Ok(bytes.windows(mark.len()).any(|w| w == mark))
}
