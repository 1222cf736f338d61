//! How a process takes part in the machine's transactions.

use std::path::Path;
use std::time::Duration;

use super::{Txn, Waits};
use crate::commit;
use crate::error::{Error, Result};
use crate::id::TxId;
use crate::realm::{Begin, BeginError, Realm, RetryHistory, TxHandle};
use crate::store::Home;

/// A home store, and the realm whose transactions this process takes part with.
///
/// Without a realm transactions still commit whole or not at all. They find what others changed when
/// they validate.
#[derive(Clone, Copy, Debug)]
pub struct Engine<'h> {
    home: &'h Home,
    realm: Option<&'static Realm>,
}

/// Joins the realm in `dir` for as long as this process lives. `label` is what others are told that runs
/// here; `home` is the store whose journal says what became of this process's commits.
///
/// # Errors
/// Those of [`Realm::join`].
pub fn join(dir: &Path, label: &str, home: &Path) -> Result<&'static Realm> {
    let realm = Realm::join(dir, label, home, Box::new(commit::resolve_dead_publish))?;
    Ok(Box::leak(Box::new(realm)))
}

impl<'h> Engine<'h> {
    /// Joins the realm in `dir`. Where there is no place for a realm the process goes on without one, and
    /// gets the reason as well.
    ///
    /// # Errors
    /// [`Error::Format`]: the realm is damaged, foreign or newer, and others may be in it.
    pub fn join(home: &'h Home, dir: &Path, label: &str) -> Result<(Engine<'h>, Option<Error>)> {
        match join(dir, label, home.dir()) {
            Ok(realm) => Ok((Engine { home, realm: Some(realm) }, None)),
            Err(error @ Error::Format { .. }) => Err(error),
            Err(error) => Ok((Engine { home, realm: None }, Some(error))),
        }
    }

    /// Its home store.
    #[must_use]
    pub fn home(&self) -> &'h Home {
        self.home
    }

    /// Begins a command's transaction in the realm, if there is one. Where every place is taken it calls
    /// `full`, and waits for a place for `patience` at the most. From then on it may wait for opponents.
    ///
    /// # Errors
    /// [`BeginError::Full`] when the time is over.
    pub fn begin(
        &self,
        id: TxId,
        again: Option<RetryHistory>,
        patience: Duration,
        full: impl FnOnce(),
    ) -> std::result::Result<Option<TxHandle<'static>>, BeginError> {
        let Some(realm) = self.realm else { return Ok(None) };
        let how = Begin { id: Some(id), again, nonblock: true, soft: true, ..Begin::default() };
        let begun = realm.begin(&how).or_else(|error| {
            if error != BeginError::Full {
                return Err(error);
            }
            full();
            realm.begin(&Begin { nonblock: false, patience: Some(patience), ..how })
        });
        let mut handle = begun?;
        handle.may_wait();
        Ok(Some(handle))
    }

    /// A transaction of the home store that is about to end, and takes part with `handle`.
    #[must_use]
    pub fn txn<'w>(&self, handle: Option<TxHandle<'static>>, waits: &'w dyn Waits) -> Txn<'w>
    where
        'h: 'w,
    {
        Txn::new(self.home, handle, waits)
    }
}
