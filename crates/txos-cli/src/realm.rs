//! The realm as commands use it: join, begin, wait.

use std::path::PathBuf;
use std::time::Duration;

use txos_engine::commit;
use txos_engine::realm::{self, Begin, BeginError, Realm, RetryHistory};
use txos_engine::store::Home;
use txos_engine::txn::{Attendant, Waits};
use txos_engine::{Error, TxId};
use txos_run::participant::{Place, tell_once};

use crate::app::App;
use crate::exit::Failure;
use crate::signals;

impl App {
    /// Where this user's realm is.
    #[expect(clippy::unused_self, reason = "like the store, it is the application's")]
    pub fn realm_dir(&self) -> Result<PathBuf, Failure> {
        Ok(realm::default_dir()?)
    }

    /// Joins it for as long as this process lives; `label` is what others are told that runs here.
    pub fn realm(&self, home: &Home, label: &str) -> Result<&'static Realm, Failure> {
        let dir = self.realm_dir()?;
        let realm = Realm::join(&dir, label, home.dir(), Box::new(commit::settle))?;
        Ok(Box::leak(Box::new(realm)))
    }

    /// The same for somebody who would rather go on without: where there is no place for a realm,
    /// others' changes are found at commit.
    ///
    /// # Errors
    /// If there is one that is damaged or newer: others may be in it.
    pub fn participate(&self, home: &Home, label: &str) -> Result<Option<&'static Realm>, Failure> {
        let dir = self.realm_dir()?;
        match Realm::join(&dir, label, home.dir(), Box::new(commit::settle)) {
            Ok(realm) => Ok(Some(Box::leak(Box::new(realm)))),
            Err(error @ Error::Format { .. }) => Err(error.into()),
            Err(error) => {
                self.warn(format_args!(
                    "{error}; without a realm conflicts with other transactions are found at commit"
                ));
                Ok(None)
            }
        }
    }

    /// Joins it to look at it, if there is one.
    pub fn realm_existing(&self) -> Result<Option<Realm>, Failure> {
        let home = self.store_dir()?;
        let settle = Box::new(commit::settle);
        Ok(Realm::join_existing(&self.realm_dir()?, "txos", &home, settle)?)
    }

    /// Begins a transaction of that name, which may have to wait for a free place.
    pub fn place(
        &self,
        realm: Option<&'static Realm>,
        id: TxId,
        again: Option<RetryHistory>,
    ) -> Result<Option<Place>, Failure> {
        let Some(realm) = realm else { return Ok(None) };
        let how = Begin { id: Some(id), again, nonblock: true, soft: true, ..Begin::default() };
        let begun = match realm.begin(&how) {
            Err(BeginError::Full) => {
                self.say(format_args!("{} transactions run already; waiting", realm::SLOTS));
                realm.begin(&Begin { nonblock: false, ..how })
            }
            other => other,
        };
        let mut place = begun.map_err(|e| Failure::new(e.to_string()))?;
        place.may_wait();
        Ok(Some(place))
    }
}

/// How a command waits for opponents when it commits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// How long.
    pub patience: Duration,
    /// Called once it has waited for so long that somebody may be waiting for the end of its output.
    pub leave: Option<fn()>,
}

impl Waits for Waiting {
    fn patience(&self) -> Option<Duration> {
        Some(self.patience)
    }

    fn attendant(&self) -> Attendant {
        let leave = self.leave;
        tell_once(self.patience, move |info| {
            if info.waited >= LEAVE_AFTER {
                leave.iter().for_each(|leave| leave());
            }
            signals::asked().is_none()
        })
    }

    fn goes_on(&self, waited: Duration) -> bool {
        if signals::asked().is_some() {
            return false;
        }
        if waited >= LEAVE_AFTER {
            self.leave.iter().for_each(|leave| leave());
        }
        true
    }
}

/// How long a transaction that could still be run again keeps its standard output while it waits.
const LEAVE_AFTER: Duration = Duration::from_millis(500);
