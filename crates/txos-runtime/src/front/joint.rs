//! What decides together with a transaction: participants, which are asked before its commit (`txos_enlist`), and the program
//! itself, where something else coordinates (`txos_prepare`, `txos_finish`).
//!
//! Both are the same step of the engine's commit ([`Progress::decide`](txos_engine::commit::Progress::decide)): everything is
//! published and validated, and what remains is to write into the journal that it stays. A participant is asked in
//! that step. `txos_prepare` makes the commit on a thread of its own, which waits there for `txos_finish`. A process that
//! dies before the step is over has aborted: recovery undoes what the journal does not call committed.
//!
//! The callbacks are the program's code. `prepare` runs on the runtime's stack, as the commit goes on after it; the others
//! run on the program's, after the end. Signals wait meanwhile: a handler that jumps out would leave a participant without
//! an answer.
#![allow(unsafe_code)] // calls what the program has named

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::report::reason;
use super::session::{self, Books, Session, called_off, defect};
use super::signals;
use super::thread::{self, Thread, leave_program, linger, on_own_stack, to_program};
use super::tls::{ACTIVE, Tls, here};
use super::{api, members};
use crate::tx::succession::Succession;
use crate::tx::{Committed, Decides, Failure, Tx, flags};

/// `struct txos_participant`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Participant {
    size: u32,
    flags: u32,
    name: *const c_char,
    prepare: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    commit: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    abort: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}

/// Those of one transaction, in the order in which they enlisted.
#[derive(Clone, Debug, Default)]
pub struct Enlisted(Vec<(String, Participant)>);

impl Enlisted {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks each of them.
    fn prepare(&self) -> Result<(), Failure> {
        for (name, participant) in &self.0 {
            let Some(prepare) = participant.prepare else { continue };
            // SAFETY: the program has promised that it can be called with that argument until the end.
            let errno = unsafe { prepare(participant.argument) };
            if errno == 0 {
                continue;
            }
            let lost = errno == libc::EAGAIN;
            let known = (1..4096).contains(&errno);
            return Err(Failure {
                reason: if lost { reason::CONFLICT } else { reason::REFUSED },
                errno: if lost || !known { libc::ECANCELED } else { errno },
                what: format!(
                    "{name} refused to commit with the transaction: {}",
                    std::io::Error::from_raw_os_error(errno)
                ),
                ..Failure::default()
            });
        }
        Ok(())
    }

    /// Tells each of them that it is committed, with signals blocked. Those that fail in it are in doubt.
    ///
    /// # Errors
    /// Which have failed.
    pub fn commit(self) -> Result<(), Failure> {
        let mut failed = Vec::new();
        for (name, participant) in &self.0 {
            let Some(commit) = participant.commit else { continue };
            // SAFETY: as above.
            let errno = unsafe { commit(participant.argument) };
            if errno != 0 {
                failed.push(format!("{name} ({})", std::io::Error::from_raw_os_error(errno)));
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure {
            reason: reason::IN_DOUBT,
            errno: libc::EREMOTEIO,
            what: format!(
                "the transaction is committed, and all its changes of files are published; of what was to be committed with it \
                 this failed: {}. Commit that again: it must not be rolled back",
                failed.join(", ")
            ),
            ..Failure::default()
        })
    }

    /// Tells each of them that it is aborted, the last one first.
    pub fn abort(self) {
        for (_, participant) in self.0.iter().rev() {
            if let Some(abort) = participant.abort {
                // SAFETY: as above.
                unsafe { abort(participant.argument) };
            }
        }
    }
}

impl Decides for Enlisted {
    fn decide(&self) -> Result<(), Failure> {
        self.prepare()
    }
}

fn refusal(errno: i32, what: &str) -> Failure {
    Failure { errno, what: what.into(), ..Failure::default() }
}

/// Why a transaction can't be decided with others.
fn refuse(session: &Session, call: &str) -> Result<(), Failure> {
    let plan = session.plan.flags;
    if session.is_command() {
        let what = "only a program's own transaction, in the process that began it, can be decided with others";
        return Err(refusal(libc::EPERM, &format!("{call}: {what}")));
    }
    if plan & flags::PROCESSES != 0 {
        let what = "a transaction with TX_PROCESSES can't be decided with others: it ends in a process of its own";
        return Err(refusal(libc::ENOTSUP, &format!("{call}: {what}")));
    }
    if plan & flags::CHECKPOINT != 0 {
        let what = "a transaction with TX_CHECKPOINT can't be decided with others: an abort puts back their memory as well";
        return Err(refusal(libc::ENOTSUP, &format!("{call}: {what}")));
    }
    if plan & flags::KEEP_CREDENTIALS != 0 {
        let what = "a transaction with TX_KEEP_CREDENTIALS can't be decided with others: they would have what it only seems to have given up";
        return Err(refusal(libc::ENOTSUP, &format!("{call}: {what}")));
    }
    if session.member.as_ref().is_some_and(|member| !member.began()) {
        let what = "only the thread that began the transaction can do that";
        return Err(refusal(libc::EPERM, &format!("{call}: {what}")));
    }
    Ok(())
}

/// `txos_enlist`.
///
/// # Safety
/// `participant` is null or points to as many bytes as its first word says; what it names stays valid until the end.
pub unsafe fn enlist(tls: &Tls, participant: *const Participant) -> i32 {
    if participant.is_null() || tls.state.get() != ACTIVE {
        return api::fail(libc::EINVAL);
    }
    // SAFETY: as the caller says; not more than it has is read.
    let participant = unsafe {
        if (participant.cast::<u32>().read() as usize) < size_of::<Participant>() {
            return api::fail(libc::EINVAL);
        }
        participant.read()
    };
    leave_program(tls);
    let Some(thread) = thread::existing(tls) else { return api::fail(libc::EINVAL) };
    let done = on_own_stack(tls, || {
        let Some(session) = thread.session.as_mut() else {
            return Err(refusal(libc::EINVAL, "txos_enlist: not in a transaction"));
        };
        if participant.flags != 0 {
            return Err(refusal(
                libc::EINVAL,
                "txos_enlist: these flags of the participant are not known",
            ));
        }
        refuse(session, "txos_enlist")?;
        if !session.lives() {
            return Err(refusal(libc::ECANCELED, "txos_enlist: the transaction has failed"));
        }
        let name = match participant.name.is_null() {
            true => "a participant".to_owned(),
            // SAFETY: as the caller says.
            false => unsafe { CStr::from_ptr(participant.name) }.to_string_lossy().into_owned(),
        };
        session.enlisted.0.push((name, participant));
        Ok(())
    });
    let done = done.unwrap_or_else(|panic| Err(defect(&panic)));
    let answer = match done {
        Ok(()) => 0,
        Err(failure) => {
            thread.report.say(&failure.what);
            api::fail(failure.errno)
        }
    };
    to_program(tls);
    answer
}

/// What the thread that commits says.
enum Stage {
    /// It waits for the decision.
    Prepared,
    /// It has ended.
    Over(Box<Result<Committed, Failure>>),
}

/// A transaction that is committed as soon as the program says so.
#[derive(Debug)]
pub struct Prepared {
    decision: Sender<bool>,
    stages: Receiver<Stage>,
    committer: JoinHandle<()>,
    enlisted: Enlisted,
    /// Signals that it has taken: an abort gives them back.
    taken: signals::Kept,
    /// Its place among those that come after each other.
    succession: Option<Arc<Succession>>,
    /// The program itself begins again (TX_RETRY).
    retries: bool,
}

/// The transaction, on its way to the thread that commits it.
struct Parcel(Box<Tx>);

// SAFETY: the transaction is used by one thread at a time: by this one until it is sent, and then by the other, which ends it.
unsafe impl Send for Parcel {}

/// Waits for the program's decision.
struct Asking {
    stages: Sender<Stage>,
    decision: RefCell<Option<Receiver<bool>>>,
}

impl Decides for Asking {
    fn decide(&self) -> Result<(), Failure> {
        let decision = self.decision.borrow_mut().take();
        let _ = self.stages.send(Stage::Prepared);
        match decision.map(|decision| decision.recv()) {
            Some(Ok(true)) => Ok(()),
            _ => Err(Failure {
                reason: reason::ASKED,
                errno: libc::ECANCELED,
                what: "the program decided to abort the prepared transaction".into(),
                ..Failure::default()
            }),
        }
    }
}

impl Prepared {
    /// Starts the commit, and waits until it is prepared.
    fn start(tx: Box<Tx>, enlisted: Enlisted) -> Result<Prepared, Failure> {
        let (said, stages) = channel();
        let (decision, decided) = channel();
        let parcel = Arc::new(Mutex::new(Some(Parcel(tx))));
        let sent = Arc::clone(&parcel);
        let flag = here().abort_if.get() as usize;
        let commit = move || {
            let taken = sent.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(Parcel(tx)) = taken else { return };
            here().abort_if.set(flag as *const _);
            let asking = Asking { stages: said.clone(), decision: RefCell::new(Some(decided)) };
            let done = thread::guarded(|| tx.commit(Some(&asking)));
            here().abort_if.set(std::ptr::null());
            let over = done.unwrap_or_else(|panic| Err(defect(&panic)));
            let _ = said.send(Stage::Over(Box::new(over)));
        };
        let started = std::thread::Builder::new()
            .name("txos-prepared".into())
            .stack_size(1 << 20)
            .spawn(commit);
        let committer = match started {
            Ok(committer) => committer,
            Err(error) => {
                let left = parcel.lock().unwrap_or_else(PoisonError::into_inner).take();
                let again = left.and_then(|Parcel(tx)| tx.abort());
                let what = format!("txos_prepare: no thread can be made for the commit: {error}");
                let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
                return Err(Failure { reason: reason::FAILED, again, ..refusal(errno, &what) });
            }
        };
        let taken = signals::Kept::default();
        let prepared = Prepared {
            decision,
            stages,
            committer,
            enlisted,
            taken,
            succession: None,
            retries: false,
        };
        match prepared.stages.recv() {
            Ok(Stage::Prepared) => {}
            Ok(Stage::Over(over)) => {
                let _ = prepared.committer.join();
                return Err(over
                    .err()
                    .unwrap_or_else(|| defect("a commit ended without a decision")));
            }
            Err(_) => return Err(defect("a commit ended without a decision")),
        }
        match prepared.enlisted.prepare() {
            Ok(()) => Ok(prepared),
            Err(refused) => {
                let undone = prepared.decide(false).over;
                Err(undone.err().filter(is_undecided).unwrap_or(refused))
            }
        }
    }

    /// Decides, and waits for the end.
    fn decide(self, commit: bool) -> Decided {
        let _ = self.decision.send(commit);
        let over = match self.stages.recv() {
            Ok(Stage::Over(over)) => *over,
            _ => Err(defect("a commit has no end")),
        };
        let _ = self.committer.join();
        let between = self.succession.and_then(|succession| match &over {
            Ok(_) => {
                succession.committed();
                None
            }
            Err(failure)
                if self.retries && !is_undecided(failure) && succession.is_of_this_thread() =>
            {
                Some(succession)
            }
            Err(failure) => {
                succession.aborted(&failure.what);
                None
            }
        });
        Decided { over, enlisted: self.enlisted, taken: self.taken, between }
    }

    /// In a child: it is the parent's.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

/// How a prepared transaction ended, and who is to be told.
struct Decided {
    over: Result<Committed, Failure>,
    enlisted: Enlisted,
    taken: signals::Kept,
    /// The place of one that the program begins again.
    between: Option<Arc<Succession>>,
}

impl Decided {
    fn defect(panic: &str) -> Decided {
        let over = Err(defect(panic));
        let enlisted = Enlisted::default();
        Decided { over, enlisted, taken: signals::Kept::default(), between: None }
    }
}

fn is_undecided(failure: &Failure) -> bool {
    failure.errno == libc::EINPROGRESS
}

/// `txos_prepare`.
pub fn prepare(tls: &Tls) -> i32 {
    if tls.state.get() != ACTIVE {
        return api::fail(libc::EINVAL);
    }
    leave_program(tls);
    let Some(thread) = thread::existing(tls) else { return api::fail(libc::EINVAL) };
    let Some(session) = thread.session.as_ref() else { return api::fail(libc::EINVAL) };
    let allowed = match refuse(session, "txos_prepare") {
        Ok(()) if session.restored.has_changed() => Err(refusal(
            libc::ENOTSUP,
            "txos_prepare: a transaction that has changed credentials, limits or priorities can't be prepared",
        )),
        Ok(()) if session.depth > 0 => Err(refusal(
            libc::EINVAL,
            "txos_prepare: the transaction within another one is to be ended before",
        )),
        other => other,
    };
    if let Err(failure) = allowed {
        thread.report.say(&failure.what);
        to_program(tls);
        return api::fail(failure.errno);
    }
    let asked_again = on_own_stack(tls, || members::gather(thread)).unwrap_or(false);
    let result =
        on_own_stack(tls, || prepare_in(thread)).unwrap_or_else(|panic| Err(defect(&panic)));
    match result {
        Ok(mut prepared) => {
            thread::leave_wait(&mut thread.waits);
            let ended = thread.session.take().map(|mut session| {
                prepared.taken = std::mem::take(&mut session.kept);
                (prepared.taken.take_late(), session.masks.programs)
            });
            thread.prepared = Some(Box::new(prepared));
            linger(tls);
            if let Some((late, mask)) = ended {
                signals::release(late, mask);
            }
            0
        }
        Err(failure) => session::failed_end(tls, thread, failure, asked_again),
    }
}

fn prepare_in(thread: &mut Thread) -> Result<Prepared, Failure> {
    session::come_after(thread)?;
    let Some(session) = thread.session.as_mut() else { return Err(Failure::default()) };
    session.plan.went_out |= session.tx.as_ref().is_some_and(|tx| tx.went_out());
    // Those that are told of an abort are told where the session ends, whichever way.
    let enlisted = session.enlisted.clone();
    let Some(tx) = session.tx.take() else { return Err(thread.report.abort.clone()) };
    thread.counters.aborted += 1; // Unless it can be prepared.
    if here().is_called_off() {
        let why = tx.naming_released(called_off());
        let _ = tx.abort();
        return Err(why);
    }
    let (unsupported, live) = (tx.unsupported(), tx.was_live());
    let started = Prepared::start(tx, enlisted);
    let (counters, report) = thread.books();
    counters.unsupported += unsupported;
    report.live = live;
    match started {
        Ok(mut prepared) => {
            thread.counters.aborted -= 1;
            if let Some(session) = thread.session.as_mut() {
                prepared.succession = session.plan.succession.take();
                prepared.retries = session.plan.flags & flags::RETRY != 0;
                session.enlisted = Enlisted::default();
            }
            Ok(prepared)
        }
        Err(failure) if failure.reason == reason::CONFLICT && here().is_called_off() => {
            Err(session::called_off_not(&failure))
        }
        Err(failure) => {
            if let Some(session) = thread.session.as_mut()
                && failure.again.is_some()
            {
                session.plan.again = failure.again;
            }
            Err(failure)
        }
    }
}

/// `txos_finish`.
pub fn finish(tls: &Tls, commit: bool) -> i32 {
    if tls.busy.get() != 0 || tls.state.get() == ACTIVE || tls.thread.get().is_null() {
        return api::fail(libc::EINVAL);
    }
    let before = signals::block_sent();
    // (In a child it is the parent's, and asking for the record forgets it.)
    let thread = thread::record(tls).ok();
    let Some((prepared, thread)) =
        thread.and_then(|thread| Some((thread.prepared.take()?, thread)))
    else {
        signals::set_mask(before);
        return api::fail(libc::EINVAL);
    };
    let ended = on_own_stack(tls, || prepared.decide(commit));
    let ended = ended.unwrap_or_else(|panic| Decided::defect(&panic));
    let Decided { over, enlisted, mut taken, between } = ended;
    thread.between = between;
    let answer = match over {
        Ok(committed) => {
            thread.counters.committed += 1;
            session::after_commit(tls, thread, committed, enlisted, before)
        }
        Err(failure) => {
            let undecided = is_undecided(&failure);
            if !undecided {
                thread.counters.aborted += 1;
                enlisted.abort();
            }
            taken.give_back();
            let asked = !commit && !undecided;
            let errno = if failure.errno == 0 { libc::ECANCELED } else { failure.errno };
            if !asked {
                thread.report.say(&failure.what);
            }
            thread.report.abort = failure;
            if asked { Ok(()) } else { Err(errno) }
        }
    };
    signals::release(taken.take_late(), before);
    answer.map_or_else(api::fail, |()| 0)
}

/// The thread ends before it has decided: that is an abort.
pub fn end_of_thread(thread: &mut Thread) {
    if let Some(prepared) = thread.prepared.take() {
        prepared.decide(false).enlisted.abort();
    }
}
