//! The realm as commands use it: join, begin, wait.

use std::path::PathBuf;
use std::time::Duration;

use txos_engine::TxId;
use txos_engine::commit;
use txos_engine::realm::{self, BeginError, Realm, RetryHistory};
use txos_engine::runs::Predecessors;
use txos_engine::store::Home;
use txos_engine::txn::{self, Attendant, Engine, Waits};
use txos_run::participant::{Handle, report_once};

use crate::app::App;
use crate::args::WaitArgs;
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
        Ok(txn::join(&self.realm_dir()?, label, home.dir())?)
    }

    /// The same for somebody who would rather go on without: where there is no place for a realm,
    /// others' changes are found at commit.
    ///
    /// # Errors
    /// If there is one that is damaged or newer: others may be in it.
    pub fn join<'h>(&self, home: &'h Home, label: &str) -> Result<Engine<'h>, Failure> {
        let (engine, without) = Engine::join(home, &self.realm_dir()?, label)?;
        if let Some(error) = without {
            self.warn(format_args!(
                "{error}; without a realm conflicts with other transactions are found at commit"
            ));
        }
        Ok(engine)
    }

    /// Joins it to look at it, if there is one.
    pub fn realm_existing(&self) -> Result<Option<Realm>, Failure> {
        let home = self.store_dir()?;
        let resolver = Box::new(commit::resolve_dead_publish);
        Ok(Realm::join_existing(&self.realm_dir()?, "txos", &home, resolver)?)
    }

    /// Begins a transaction of that name in the realm.
    pub fn begin(
        &self,
        engine: Engine<'_>,
        id: TxId,
        again: Option<RetryHistory>,
        wait: WaitArgs,
    ) -> Result<Option<Handle>, Failure> {
        let full = || self.say(format_args!("{} transactions run already; waiting", realm::SLOTS));
        engine.begin(id, again, wait.patience(), full).map_err(|error| match error {
            BeginError::Full => Failure::new(format!(
                "{error}, and it got no place within {} s; end one (`txos top` shows them), or wait for \
                 longer with --wait",
                wait.seconds
            )),
            other => Failure::new(other.to_string()),
        })
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
        report_once(self.patience, Predecessors::default(), move |info| {
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
