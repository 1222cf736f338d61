//! How a transaction ends: the one commit protocol of both front doors.
//!
//! A front door intercepts and answers. Which way a commit takes ([`Route::of`]), what is acquired before
//! it, what happens when an opponent goes first, when a publish can be neither finished nor undone, and
//! how the participant leaves the realm is decided here, for commands, `commit`, `revert` and programs alike.
//!
//! # Around the steps of [`crate::commit`]
//!
//! | step | what may go wrong | what follows |
//! |---|---|---|
//! | acquire all that the plan changes | an opponent goes first | let go of everything, wait for its end, begin again as old as before, acquire again; a conflict once the time is over |
//! | commit | a conflict, an error | nothing has changed; the participant has aborted |
//! | | the publish is neither finished nor undone | recovery, at once. It undoes the publish: the error is the publish's. It fails too: until this process has ended nobody touches what the publish holds |
//! | flush the record (durable) | an error | everything is published; [`Summary::unrecorded`] says so |
//! | end | | the participant has committed |

mod delivery;
#[cfg(not(loom))]
mod engine;
mod keep;
mod route;

use std::time::{Duration, Instant};

pub use delivery::{Delivery, Ended, Lost};
#[cfg(not(loom))]
pub use engine::{Engine, join};
pub use keep::keep;
pub use route::{Outcome, Promises, Route};

use crate::changeset::{ChangeSet, Delta};
use crate::commit::{self, AcquireError, Options, Progress, Silent, Summary};
use crate::error::Error;
use crate::id::TxId;
use crate::readset::ReadSet;
use crate::readset::validate::ValidationRules;
use crate::realm::{AbortCause, Begin, RetryHistory, TxHandle, WaitDecision, WaitInfo, Watch};
use crate::store::{Home, State, Transaction};

/// Attends a wait: it is asked again and again while the wait lasts.
pub type Attendant = Box<dyn FnMut(&WaitInfo) -> WaitDecision + Send>;

/// How a front door waits for opponents when it commits.
pub trait Waits {
    /// How long it acquires at the most, counting all attempts. None: it gives way at once.
    fn patience(&self) -> Option<Duration>;

    /// Attends the waits of one attempt.
    fn attendant(&self) -> Attendant;

    /// Between two attempts, `waited` after the first: whether there is to be another.
    fn goes_on(&self, waited: Duration) -> bool;
}

/// Why a transaction did not commit. Nothing of it has happened, unless the error is
/// [`Error::Unfinished`].
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: Error,
    /// The opponent's process, if one went first.
    pub opponent: Option<u32>,
    /// What the next attempt begins with, so that it does not look young.
    pub again: Option<RetryHistory>,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        failed.error
    }
}

/// A transaction that is about to end, as the realm knows it.
pub struct Participant<'l> {
    /// None: there is no realm. What others changed is found when the transaction validates.
    handle: Option<TxHandle<'static>>,
    /// Where the handle is put once the transaction has committed.
    left: Option<&'l mut Option<TxHandle<'static>>>,
}

impl<'l> Participant<'l> {
    /// Takes part with `handle`, if there is a realm.
    #[must_use]
    pub fn new(handle: Option<TxHandle<'static>>) -> Participant<'l> {
        Participant { handle, left: None }
    }

    /// Once the transaction has committed it keeps what it holds, and nobody can doom it, until the front door has made the rest:
    /// that lets go of it by [`TxHandle::finish_validated`].
    #[must_use]
    pub fn leaving(self, left: Option<&'l mut Option<TxHandle<'static>>>) -> Participant<'l> {
        Participant { left, ..self }
    }

    /// [`Route::Nothing`]: what the transaction read was so at one moment, now. Then `progress` decides.
    ///
    /// # Errors
    /// [`Failed`] with [`Error::Conflict`], or with the error of [`Progress::decide`].
    pub fn commit_nothing(
        mut self,
        reads: &ReadSet,
        progress: &dyn Progress,
    ) -> Result<(), Failed> {
        if let Err(stop) = self.handle.as_mut().map_or(Ok(()), TxHandle::await_turn) {
            return Err(self.lose(&stop));
        }
        let conflicts = reads
            .validate_beside(ValidationRules::default(), self.handle.as_ref().map(TxHandle::watch));
        if !conflicts.is_empty() {
            return Err(self.abort(Error::Conflict(conflicts)));
        }
        if let Err(stop) = self.stays() {
            return Err(self.lose(&stop));
        }
        // Not doomed by now, it read what nobody had begun to publish over.
        if let Some(watch) = self.handle.as_ref().map(TxHandle::watch).filter(Watch::is_doomed) {
            return Err(self.lose(&AbortCause::Doomed(watch.winner())));
        }
        if let Err(error) = progress.decide() {
            return Err(self.abort(error));
        }
        self.finish();
        Ok(())
    }

    /// [`Route::Call`] and [`Route::Rename`]: makes one system call as a publish among those of others. No
    /// opponent that works on the same goes on without having seen it. What it changes is acquired. Gives
    /// what `call` gives.
    ///
    /// # Errors
    /// [`Failed`] with [`Error::Conflict`]: an opponent won before the call.
    pub fn commit_by_call<T>(mut self, call: impl FnOnce() -> T) -> Result<T, Failed> {
        if let Some(handle) = self.handle.as_mut()
            && let Err(stop) = handle.prepare().and_then(|()| handle.publish_at_once())
        {
            return Err(self.lose(&stop));
        }
        let done = call();
        // Whether it succeeded or not, it is over.
        self.finish();
        Ok(done)
    }

    fn lose(&mut self, stop: &AbortCause) -> Failed {
        let opponent = stop.opponent().map(|opponent| opponent.pid);
        Failed { opponent, ..self.abort(AcquireError::at(commit::conflict(b"", stop)).into()) }
    }

    fn abort(&mut self, error: Error) -> Failed {
        let again = self.handle.take().map(TxHandle::abort);
        Failed { error, opponent: None, again }
    }

    /// From here on nobody can doom it, if the front door has something left to make.
    fn stays(&mut self) -> Result<(), AbortCause> {
        match self.handle.as_mut().filter(|_| self.left.is_some()) {
            Some(handle) => handle.stays(),
            None => Ok(()),
        }
    }

    /// What is published is published, and what changed nothing was validated: nobody stops it any more.
    fn finish(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        match self.left.take() {
            Some(left) => *left = Some(handle),
            None => handle.finish_validated(),
        }
    }
}

/// A transaction of a home store that is about to end.
pub struct Txn<'w> {
    home: &'w Home,
    participant: Participant<'w>,
    waits: &'w dyn Waits,
}

impl<'w> Txn<'w> {
    /// A transaction of a home store that takes part with `handle`.
    #[must_use]
    pub fn new(home: &'w Home, handle: Option<TxHandle<'static>>, waits: &'w dyn Waits) -> Txn<'w> {
        Txn { home, participant: Participant::new(handle), waits }
    }

    /// As [`Participant::leaving`].
    #[must_use]
    pub fn leaving(self, left: Option<&'w mut Option<TxHandle<'static>>>) -> Txn<'w> {
        Txn { participant: self.participant.leaving(left), ..self }
    }

    /// Commits by the journal. Of a transaction that stays in the history and is durable, the record is
    /// flushed as well.
    ///
    /// # Errors
    /// [`Failed`], with the errors of [`commit::commit`].
    pub fn commit(
        mut self,
        tx: &mut Transaction,
        changes: &ChangeSet,
        reads: &mut ReadSet,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Summary, Failed> {
        let planned = match commit::plan(tx, changes, options) {
            Ok(planned) => planned,
            Err(error) => return Err(self.participant.abort(error)),
        };
        self = self.acquire(|handle| {
            let watch = handle.watch();
            commit::acquire(handle, &planned, reads).map_err(|lost| match watch.is_doomed() {
                true => commit::explain(&watch, reads).map_or(lost, AcquireError::at),
                false => lost,
            })
        })?;
        let handle = self.participant.handle.as_mut();
        let done = commit::commit(self.home, tx, planned, reads, options, handle, progress);
        let home = self.home;
        let summary = self.end(done)?;
        let flush = options.kept && options.durable;
        Ok(if flush { flushed(home, summary, None) } else { summary })
    }

    /// Commits by the redo log, if the change set fits into it; else the transaction, which may commit
    /// otherwise.
    ///
    /// # Errors
    /// [`Failed`], with the errors of [`commit::light`].
    pub fn commit_by_log(
        mut self,
        grounds: &[commit::Ground],
        deltas: &[Delta],
        reads: &ReadSet,
        options: &Options,
    ) -> Result<Result<Summary, Txn<'w>>, Failed> {
        self = self.acquire(|handle| commit::acquire_for_log(handle, grounds, deltas))?;
        let handle = self.participant.handle.as_mut();
        match commit::light(self.home, grounds, deltas, reads, handle, options) {
            Ok(None) => Ok(Err(self)),
            Ok(Some(summary)) => self.end(Ok(summary)).map(Ok),
            Err(error) => self.end(Err(error)).map(Ok),
        }
    }

    /// Undoes a committed transaction, by one of its own.
    ///
    /// # Errors
    /// [`Failed`], with the errors of [`commit::revert`].
    pub fn revert(
        mut self,
        id: TxId,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Summary, Failed> {
        let home = self.home;
        self = self.acquire(|handle| commit::acquire_for_revert(handle, home, id))?;
        let done = commit::revert(home, id, options, self.participant.handle.as_mut(), progress);
        let summary = self.end(done)?;
        Ok(if options.durable { flushed(home, summary, Some(id)) } else { summary })
    }

    /// Puts retained versions of paths back, as a transaction of its own.
    ///
    /// # Errors
    /// [`Failed`], with the errors of [`commit::restore`].
    pub fn restore(
        mut self,
        wanted: &commit::Wanted,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<commit::Restored, Failed> {
        let home = self.home;
        self = self.acquire(|handle| commit::acquire_for_restore(handle, home, wanted))?;
        let handle = self.participant.handle.as_mut();
        let mut same = Vec::new();
        let done = commit::restore(home, wanted, options, handle, progress).map(|restored| {
            same = restored.same;
            restored.summary.unwrap_or_else(|| Summary::nothing(wanted.source))
        });
        let summary = self.end(done)?;
        let summary = (summary.changes > 0).then_some(summary);
        let flush = |summary| if options.durable { flushed(home, summary, None) } else { summary };
        Ok(commit::Restored { summary: summary.map(flush), same })
    }

    /// Its participant, for a front door that goes on otherwise.
    #[must_use]
    pub fn into_handle(self) -> Option<TxHandle<'static>> {
        self.participant.handle
    }

    /// Acquires all that is to be changed. A transaction that has to give way lets go of everything, waits
    /// for the opponent's end, and begins again, as old as before. Nothing that it read depends on what it
    /// held: the commit validates it.
    fn acquire(
        mut self,
        mut acquire: impl FnMut(&mut TxHandle<'_>) -> Result<(), AcquireError>,
    ) -> Result<Self, Failed> {
        let began = Instant::now();
        loop {
            let Some(handle) = self.participant.handle.take() else { return Ok(self) };
            let mut handle = handle.attended(self.waits.attendant());
            let acquired = acquire(&mut handle);
            let realm = handle.realm();
            let Err(lost) = acquired else {
                self.participant.handle = Some(handle);
                return Ok(self);
            };
            let waited = began.elapsed();
            let left = self.waits.patience().map(|patience| patience.saturating_sub(waited));
            let left = left.filter(|left| !left.is_zero() && !handle.is_ordered());
            let opponent = lost.opponent.as_ref().map(|opponent| opponent.pid);
            let next = lost.opponent.as_ref().zip(left).filter(|_| self.waits.goes_on(waited));
            let Some((first, left)) = next else {
                self.participant.handle = Some(handle);
                return Err(Failed { opponent, ..self.participant.abort(lost.into()) });
            };
            let (again, how) = handle.abort_to_begin_again();
            realm.wait_for(first, left.min(STEP));
            match realm.begin(&Begin { patience: Some(left), ..how }) {
                Ok(handle) => self.participant.handle = Some(handle),
                Err(e) => {
                    let error =
                        Error::Unsupported { what: e.to_string(), advice: "Try again.".into() };
                    return Err(Failed { error, opponent, again: Some(again) });
                }
            }
        }
    }

    /// Leaves the realm as the commit went.
    fn end(mut self, done: Result<Summary, Error>) -> Result<Summary, Failed> {
        let error = match done {
            Ok(summary) => {
                // (It publishes, unless it has changed nothing.)
                if let Err(stop) = self.participant.stays() {
                    return Err(self.participant.lose(&stop));
                }
                // What changed nothing was validated, and is as good as committed; what is published is.
                self.participant.finish();
                return Ok(summary);
            }
            Err(error) => error,
        };
        let Error::Unfinished { id, cause, undoing } = error else {
            return Err(self.participant.abort(error));
        };
        // What was in the way of undoing it may be gone.
        let undone = commit::recover(self.home, &Silent).is_ok()
            && self.home.meta(id).is_ok_and(|meta| meta.state != State::Committed);
        if undone {
            return Err(self.participant.abort(*cause));
        }
        if let Some(handle) = self.participant.handle.take() {
            handle.leave_publishing();
        }
        Err(self.participant.abort(Error::Unfinished { id, cause, undoing }))
    }
}

impl std::fmt::Debug for Txn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Txn").field("home", &self.home.dir()).finish_non_exhaustive()
    }
}

/// How long the opponent's end is waited for without a look at whether to go on.
const STEP: Duration = Duration::from_millis(200);

/// What was published durably stays in the history as well. Its journal is empty by now, so nothing else
/// would bring the record back after a power cut.
fn flushed(home: &Home, mut summary: Summary, reverted: Option<TxId>) -> Summary {
    if summary.changes > 0 && summary.unrecorded.is_none() {
        let mut records = std::iter::once(summary.id).chain(reverted);
        summary.unrecorded =
            records.find_map(|id| home.flush_record(id).err()).map(|error| error.to_string());
    }
    summary
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::path::PathBuf;
    use std::sync::Mutex;

    use super::*;
    use crate::object::FileId;
    use crate::realm::{Access, DeadPublish, Facet, Opponent, PublishFate, Realm, Unresolved};

    struct Patient(Option<Duration>);

    impl Waits for Patient {
        fn patience(&self) -> Option<Duration> {
            self.0
        }

        fn attendant(&self) -> Attendant {
            Box::new(|_| WaitDecision::Wait)
        }

        fn goes_on(&self, _: Duration) -> bool {
            true
        }
    }

    fn place(name: &str) -> (PathBuf, &'static Realm) {
        let dir = std::env::temp_dir().join(format!("txos-txn-{name}-{}", std::process::id()));
        let resolver =
            |_: &DeadPublish| -> Result<PublishFate, Unresolved> { Ok(PublishFate::Undone) };
        let realm = Realm::join(&dir, "test", &dir, Box::new(resolver)).unwrap();
        (dir, Box::leak(Box::new(realm)))
    }

    #[test]
    fn who_gives_way_begins_again_as_old_as_before() {
        let (dir, realm) = place("age");
        let home = Home::open(&dir.join("store")).unwrap();
        let minute = Some(Duration::from_secs(60));
        for (ordered, patience, attempts) in
            [(false, minute, 3), (false, None, 1), (true, minute, 1)]
        {
            let how = Begin { sequence: ordered.then_some(0), ..Begin::default() };
            let handle = realm.begin(&how).unwrap();
            let age = handle.again().start_ns;
            let waits = Patient(patience);
            let mut seen = Vec::new();
            let acquired = Txn::new(&home, Some(handle), &waits).acquire(|handle| {
                seen.push((handle.held(), handle.again().start_ns));
                let error = Error::Conflict(Vec::new());
                let mut opponent = Box::new(Opponent::default());
                opponent.pid = 7;
                if seen.len() < 3 {
                    Err(AcquireError { error, opponent: Some(opponent) })
                } else {
                    Ok(())
                }
            });
            assert_eq!(seen, vec![(0, age); attempts], "ordered: {ordered}");
            match acquired {
                Ok(txn) => {
                    assert_eq!(attempts, 3);
                    drop(txn.into_handle());
                }
                Err(failed) => {
                    assert_eq!((attempts, failed.opponent), (1, Some(7)));
                    assert_eq!(failed.again.unwrap().start_ns, age);
                }
            }
        }
        assert!(realm.members().is_empty(), "nobody stays");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// An opponent that wins at the last moment.
    struct Wins(Mutex<TxHandle<'static>>, Facet<'static>);

    impl Progress for Wins {
        fn decide(&self) -> crate::Result<()> {
            self.0.lock().unwrap().acquire(&self.1, Access::Write).unwrap();
            Ok(())
        }
    }

    /// Else the ones after it wait for ever.
    #[test]
    fn a_turn_ends_with_the_commit_of_who_only_looked() {
        let (dir, realm) = place("turn");
        let facet = Facet::Page { file: FileId { dev: 1, ino: 1 }, number: 1 };
        let opponent = Wins(Mutex::new(realm.begin(&Begin::default()).unwrap()), facet);
        let turn =
            |sequence| Begin { sequence: Some(sequence), nonblock: true, ..Begin::default() };
        let mut reader = realm.begin(&turn(0)).unwrap();
        reader.acquire(&facet, Access::Read).unwrap();
        let watch = reader.watch();
        Participant::new(Some(reader)).commit_nothing(&ReadSet::default(), &opponent).unwrap();
        assert!(!watch.is_doomed(), "it has ended");
        drop(opponent);
        realm.begin(&turn(1)).unwrap().await_turn().unwrap();
        assert!(realm.members().is_empty(), "nobody stays");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
