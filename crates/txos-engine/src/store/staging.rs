//! Places where a program's transactions put private copies, kept from one transaction to the next.
//!
//! Such a place is a transaction of the store that is never published as long as the log of light commits takes
//! what the program commits. `staging/` in the home store names each, so that nobody takes it for a
//! transaction that is of interest, and so that whoever makes another one finds those of the dead.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use super::{Home, Transaction};
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::sys;

/// How many places are looked at for whether their process has died.
const LOOKS_MAX: usize = 32;

impl Home {
    fn staging(&self) -> PathBuf {
        self.dir().join("staging")
    }

    /// Notes that a transaction is a place for private copies, to be kept.
    ///
    /// # Errors
    /// [`Error::Io`]: it is none then.
    pub fn keep_staging(&self, id: TxId) -> Result<()> {
        let dir = self.staging();
        let path = dir.join(id.as_str());
        let create = || sys::step("store create", || fs::write(&path, b""));
        let created = match create() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let mut made = fs::DirBuilder::new();
                made.recursive(true).mode(0o700);
                sys::step("store mkdir", || made.create(&dir)).at("creating", &dir)?;
                create()
            }
            other => other,
        };
        created.at("creating", &path)
    }

    /// Whether a transaction is such a place.
    #[must_use]
    pub fn is_staging(&self, id: TxId) -> bool {
        self.staging().join(id.as_str()).exists()
    }

    /// Discards such a place.
    ///
    /// # Errors
    /// As [`Home::discard`]; whoever makes another one tries again.
    pub fn discard_staging(&self, tx: Transaction) -> Result<()> {
        let id = tx.id();
        self.discard(tx)?;
        self.forget_staging(id);
        Ok(())
    }

    /// A transaction is a place for private copies no more, but one like others.
    pub fn forget_staging(&self, id: TxId) {
        // Left over, it names nothing, and is removed by whoever looks for the dead.
        let _ = sys::step("store unlink", || fs::remove_file(self.staging().join(id.as_str())));
    }

    /// Transactions that are such places, as far as is known; not more than some.
    ///
    /// # Errors
    /// If they can't be listed.
    pub fn staging_places(&self) -> Result<Vec<TxId>> {
        let dir = self.staging();
        let names = match sys::look("readdir", || fs::read_dir(&dir)) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("listing", &dir, e)),
        };
        let ids = names.flatten().filter_map(|name| name.file_name().to_str()?.parse().ok());
        Ok(ids.take(LOOKS_MAX).collect())
    }
}
