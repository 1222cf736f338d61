//! The realm as commands use it: join, begin, publish as a participant.

use std::path::PathBuf;

use txos_engine::changeset::ChangeSet;
use txos_engine::commit::{self, Options, Progress, Summary};
use txos_engine::readset::ReadSet;
use txos_engine::realm::{self, Again, Begin, BeginError, Realm};
use txos_engine::store::{Home, Transaction};
use txos_engine::{Error, TxId};
use txos_run::meeting::{Place, explain, tell_once};

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

    /// Joins it to look at it, if there is one.
    pub fn realm_existing(&self) -> Result<Option<Realm>, Failure> {
        let home = self.store_dir()?;
        let settle = Box::new(commit::settle);
        Ok(Realm::join_existing(&self.realm_dir()?, "txos", &home, settle)?)
    }

    /// Begins a transaction of that name, which may have to wait for a free place.
    pub fn place(
        &self,
        realm: &'static Realm,
        id: TxId,
        again: Option<Again>,
    ) -> Result<Place, Failure> {
        let how = Begin { id: Some(id), again, nonblock: true, ..Begin::default() };
        let begun = match realm.begin(&how) {
            Err(BeginError::Full) => {
                self.say(format_args!("{} transactions run already; waiting", realm::SLOTS));
                realm.begin(&Begin { nonblock: false, ..how })
            }
            other => other,
        };
        let mut place = begun.map_err(|e| Failure::new(e.to_string()))?;
        place.may_wait();
        Ok(place)
    }
}

/// Commits as a participant: acquires what is to be changed, publishes, and ends its place.
///
/// # Errors
/// As [`commit::commit`], and [`Error::Conflict`] if another transaction won.
pub fn publish(
    home: &Home,
    tx: &mut Transaction,
    changes: &ChangeSet,
    reads: &mut ReadSet,
    options: &Options,
    place: Place,
    progress: &dyn Progress,
) -> Result<Summary, Error> {
    let mut place = attended(place);
    let watch = place.watch();
    let done = commit::claim(&mut place, tx, changes, reads).and_then(|()| {
        commit::commit(home, tx, changes, reads, options, Some(&mut place), progress)
    });
    let done = match done {
        Err(Error::Conflict(_)) if watch.is_doomed() => {
            Err(Error::Conflict(vec![explain(&watch, reads)]))
        }
        other => other,
    };
    end(place, done)
}

/// Reverts as a participant, likewise.
///
/// # Errors
/// As [`commit::revert`], and [`Error::Conflict`] if another transaction won.
pub fn revert(
    home: &Home,
    id: TxId,
    options: &Options,
    place: Place,
    progress: &dyn Progress,
) -> Result<Summary, Error> {
    let mut place = attended(place);
    let done = commit::claim_revert(&mut place, home, id)
        .and_then(|()| commit::revert(home, id, options, Some(&mut place), progress));
    end(place, done)
}

/// Waiting ends when somebody asks to end.
fn attended(place: Place) -> Place {
    let mut attendant = tell_once(|| signals::asked().is_none());
    place.attended(move |standstill| attendant(standstill))
}

fn end(place: Place, done: Result<Summary, Error>) -> Result<Summary, Error> {
    match &done {
        Ok(_) => {
            // What changed nothing was validated, and is as good as committed.
            let _ = place.finish();
        }
        Err(Error::Unfinished { .. }) => place.leave_publishing(),
        Err(_) => drop(place.abort()),
    }
    done
}
