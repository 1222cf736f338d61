//! The realm as commands use it: join, begin, publish as a participant.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use txos_engine::changeset::ChangeSet;
use txos_engine::commit::{self, Lost, Options, Progress, Summary};
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
        again: Option<Again>,
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

/// How somebody takes part who is about to publish.
#[derive(Debug)]
pub struct Part<'a> {
    /// How to publish.
    pub options: &'a Options,
    /// Its place in the realm, if there is one.
    pub place: Option<Place>,
    /// How long it waits for others.
    pub patience: Duration,
    /// Called once it has waited for so long that somebody may be waiting for the end of its output.
    pub leave: Option<fn()>,
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
    part: Part<'_>,
    progress: &dyn Progress,
) -> Result<Summary, Error> {
    let Part { options, place, patience, leave } = part;
    let Some(place) = place else {
        let done = commit::commit(home, tx, changes, reads, options, None, progress);
        return flush_records(home, None, options, done);
    };
    let claimed = claim(place, patience, leave, |place| {
        let watch = place.watch();
        commit::claim(place, tx, changes, reads)
            .map_err(|lost| if watch.is_doomed() { Lost::at(explain(&watch, reads)) } else { lost })
    });
    let mut place = claimed?;
    let done = commit::commit(home, tx, changes, reads, options, Some(&mut place), progress);
    flush_records(home, None, options, end(place, done))
}

/// Reverts as a participant, likewise.
///
/// # Errors
/// As [`commit::revert`], and [`Error::Conflict`] if another transaction won.
pub fn revert(
    home: &Home,
    id: TxId,
    part: Part<'_>,
    progress: &dyn Progress,
) -> Result<Summary, Error> {
    let Part { options, place, patience, leave } = part;
    let Some(place) = place else {
        let done = commit::revert(home, id, options, None, progress);
        return flush_records(home, Some(id), options, done);
    };
    let mut place = claim(place, patience, leave, |place| commit::claim_revert(place, home, id))?;
    let done = commit::revert(home, id, options, Some(&mut place), progress);
    flush_records(home, Some(id), options, end(place, done))
}

/// What was published durably stays in the history as well. Its journal is empty by now, so nothing
/// else would bring the record back after a power cut.
fn flush_records(
    home: &Home,
    reverted: Option<TxId>,
    options: &Options,
    done: Result<Summary, Error>,
) -> Result<Summary, Error> {
    let mut summary = done?;
    if options.durable && summary.changes > 0 && summary.unrecorded.is_none() {
        let mut records = std::iter::once(summary.id).chain(reverted);
        summary.unrecorded =
            records.find_map(|id| home.flush_record(id).err()).map(|error| error.to_string());
    }
    Ok(summary)
}

/// Acquires all that is to be changed. One that has to give way to somebody who waits lets go of
/// everything, waits for that one's end, and begins again, as old as before: nothing that it read
/// depends on what it held, because the commit validates it.
fn claim(
    mut place: Place,
    patience: Duration,
    leave: Option<fn()>,
    mut acquire: impl FnMut(&mut Place) -> Result<(), Lost>,
) -> Result<Place, Error> {
    let realm = place.realm();
    let id = place.id();
    let deadline = Instant::now() + patience;
    loop {
        let mut attendant = tell_once(patience, move |standstill| {
            if standstill.waited >= LEAVE_AFTER {
                leave.iter().for_each(|leave| leave());
            }
            signals::asked().is_none()
        });
        place = place.attended(move |standstill| attendant(standstill));
        let lost = match acquire(&mut place) {
            Ok(()) => return Ok(place),
            Err(lost) => lost,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let Lost { rival: Some(rival), .. } = &lost else { return Err(lost.into()) };
        if left.is_zero() || signals::asked().is_some() {
            return Err(lost.into());
        }
        if patience.saturating_sub(left) >= LEAVE_AFTER {
            leave.iter().for_each(|leave| leave());
        }
        let again = place.abort();
        realm.wait_for(rival, left.min(STEP));
        let how = Begin { id, again: Some(again), soft: true, ..Begin::default() };
        place = realm
            .begin(&how)
            .map_err(|e| Error::Unsupported { what: e.to_string(), advice: "Try again.".into() })?;
    }
}

/// How long a transaction that could still be run again keeps its standard output while it waits.
const LEAVE_AFTER: Duration = Duration::from_millis(500);

/// How long it is waited for somebody without a look at whether to go on.
const STEP: Duration = Duration::from_millis(200);

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
