//! A thread's transaction from begin to end: masks, attempts, nesting, failures, pauses.
#![allow(unsafe_code)] // called from assembly, and jumps back to where a transaction began

use std::ffi::CStr;
use std::ptr::null;
use std::sync::atomic::AtomicI32;
use std::sync::{Arc, Mutex, Once};

use super::checkpoint::{self, Checkpoint};
use super::entry::{self, Regs};
use super::given_up;
use super::joint::{self, Enlisted};
use super::processes::{client, host, link};
use super::report::reason;
use super::restored::Restored;
use super::signals::{self, Changed, Masks};
use super::thread::{self, Thread, leave_program, linger, on_own_stack, to_program};
use super::tls::{ACTIVE, Tls, here};
use super::{api, in_process, members};
use crate::raw::{Errno, Sys};
use crate::tx::held::Held;
use crate::tx::succession::Succession;
use crate::tx::{Committed, Failure, How, Tx, flags, kernel};
use crate::user::UserPtr;

/// A transaction of a thread.
#[derive(Debug)]
pub struct Session {
    /// How it was begun.
    pub plan: How,
    /// None if it has failed, which the program learns from each call until it ends it.
    pub tx: Option<Box<Tx>>,
    /// Begins within it.
    pub depth: u32,
    /// What the program sets to have it aborted, while it is paused.
    pub abort_if: *const AtomicI32,
    /// The signal masks.
    pub masks: Masks,
    /// Dispositions to put back.
    pub actions: Changed,
    /// What it has changed of the thread and the process.
    pub restored: Restored,
    /// What of that could not be put back: it does not begin again.
    pub lost: Vec<&'static str>,
    /// Signals to be handled at the end, or given back.
    pub kept: signals::Kept,
    /// Memory as it was, with TX_CHECKPOINT.
    pub checkpoint: Option<Box<Checkpoint>>,
    /// Once memory is put back, the program goes on outside.
    pub gives_up: bool,
    /// The thread's frame it began in, if it is still the same thread.
    pub restartable: bool,
    /// It is a whole command.
    pub command: Option<in_process::Command>,
    /// Other threads are in it: the transaction, the command and the dispositions are there.
    pub member: Option<members::Membership>,
    /// Another process has the transaction.
    pub process: Option<Arc<link::Process>>,
    /// Serves processes that are made in it, with TX_PROCESSES.
    pub keeper: Option<Arc<host::Reserved>>,
    /// What decides with it.
    pub enlisted: Enlisted,
}

/// How the program goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// After the call, with this answer.
    Answer(i64),
    /// Where the transaction began.
    Again,
}

impl Session {
    /// In a child: it is the parent's.
    pub fn forget(mut self) {
        if let Some(tx) = self.tx.as_mut() {
            tx.forget_held();
        }
        std::mem::forget(self.tx.take());
        std::mem::forget(self.checkpoint.take());
        std::mem::forget(self.process.take());
        std::mem::forget(self.keeper.take());
        if let Some(member) = self.member.take() {
            member.forget();
        }
    }

    /// Whether it may begin again by itself.
    pub fn restarts(&self) -> bool {
        self.restartable
            && self.lost.is_empty()
            && self.plan.flags & flags::RESTART != 0
            && self.member.as_ref().is_none_or(members::Membership::may_restart)
    }

    /// Whether the program goes on where it began, whatever becomes of it: memory was kept. `again`: it begins
    /// again there if it may.
    pub fn goes_back(&mut self, again: bool) -> bool {
        self.gives_up = !(again && self.restarts());
        !self.gives_up || self.checkpoint.is_some()
    }

    /// Whether the process was made in a program's own transaction, or runs a program in it.
    pub fn hosted(&self) -> Option<Arc<link::Process>> {
        self.process.clone().filter(|process| process.is_hosted())
    }

    /// Whether it is a whole command.
    pub fn is_command(&self) -> bool {
        self.command.is_some() || self.process.is_some()
    }

    /// Whether all signals are the program's meanwhile.
    pub fn are_signals_its_own(&self) -> bool {
        self.process.is_some() || self.masks.waits_here
    }

    /// What decides with it, which is told at the end.
    fn take_enlisted(&mut self) -> Enlisted {
        std::mem::take(&mut self.enlisted)
    }

    /// Whether it can still be committed, as far as is known.
    pub fn lives(&self) -> bool {
        match &self.member {
            Some(member) => member.lives(),
            None => self.tx.is_some() || self.process.is_some(),
        }
    }

    /// Aborts what there is of it, and remembers why.
    pub fn abort(&mut self, thread: &mut (impl Books + ?Sized), mut why: Failure) {
        // First: the private copies are of who began.
        self.undo_settings(&mut why);
        if let Some(tx) = self.tx.take() {
            let (counters, report) = thread.books();
            counters.aborted += 1;
            counters.unsupported += tx.unsupported();
            (report.live, report.live_by_kind) = (tx.was_live(), tx.live_by_kind());
            self.plan.goes_by(&tx);
            let mut why = tx.naming_released(why);
            match thread::guarded(|| tx.abort()) {
                Ok(again) => self.plan.again = again.or(self.plan.again.take()),
                Err(panic) => tell_defect(&panic),
            }
            why.again = self.plan.again;
            report.say(&why.what);
            report.abort = why;
        }
        self.undo_actions();
    }

    /// Credentials, limits and priorities after an abort: as before it, as far as the kernel lets a process do that.
    fn undo_settings(&mut self, why: &mut Failure) {
        // What is undecided may stand: then nothing is taken back of what it gave up for good.
        if why.errno == libc::EINPROGRESS {
            self.restored.give_up();
        }
        let lost = self.restored.put_back();
        if lost.is_empty() {
            return;
        }
        let names = lost.join(", ");
        why.what.push_str(&format!(
            "; the transaction gave up for good, and the abort could not put back: {names}"
        ));
        // What is undecided stays so.
        if why.errno != libc::EINPROGRESS {
            why.errno = libc::ECANCELED;
        }
        api::tell(&format!(
            "the abort could not put back what the transaction gave up for good: {names}; it does not begin again"
        ));
        self.lost = lost;
    }

    /// Handlers of signals after an abort: as before it, unless the language's runtime keeps books of its own.
    fn undo_actions(&mut self) {
        if self.plan.flags & flags::MANAGED != 0 {
            self.actions = signals::Changed::default();
        } else {
            self.actions.undo(&self.masks, &mut self.kept);
        }
        self.kept.give_back();
    }
}

/// Where a thread's counters and its last failure are.
pub trait Books {
    /// Both.
    fn books(&mut self) -> (&mut super::report::Counters, &mut super::report::Report);
}

impl Books for Thread {
    fn books(&mut self) -> (&mut super::report::Counters, &mut super::report::Report) {
        (&mut self.counters, &mut self.report)
    }
}

/// What a panic becomes.
pub fn defect(panic: &str) -> Failure {
    Failure {
        reason: reason::FAILED,
        errno: libc::EIO,
        what: format!("internal error: {panic}; this is a defect in txos, please report it"),
        ..Failure::default()
    }
}

/// Why a transaction can't go on after some of its work, if that doomed it or panicked.
pub fn end_of(tx: &Tx, done: Result<(), String>) -> Option<Failure> {
    match done {
        Ok(()) => tx.doomed().cloned(),
        Err(panic) => Some(defect(&panic)),
    }
}

fn tell_defect(panic: &str) {
    api::tell(&defect(panic).what);
}

/// Why something can't be begun.
fn refusal(errno: i32, what: impl Into<String>) -> Failure {
    Failure { errno, what: what.into(), ..Failure::default() }
}

/// Why a thread can't be in another transaction: it would wait for its own.
const UNDECIDED: &str = "this thread has prepared a transaction: txos_finish decides it, and then another one can follow";

/// `sys_xbegin`, with the caller's registers.
///
/// # Safety
/// For the assembly of `entry`: the registers are on the stack.
pub unsafe extern "C" fn begin(flags: i32, second: u64, regs: *const Regs) -> i32 {
    let tls = here();
    if tls.busy.get() != 0 {
        return api::fail(libc::EDEADLK);
    }
    if tls.state.get() == ACTIVE {
        return nested(tls, flags as u32);
    }
    let flags = flags as u32;
    let asked = flags & (flags::ORDERED | flags::ORDER_RESET) != 0;
    // Where both are asked for it is refused, and is no pointer.
    let producers = match flags & flags::AFTER != 0 && !asked && second != 0 {
        true => match names_at(second) {
            Ok(names) => words(&names),
            Err(errno) => return api::fail(errno.raw_os_error()),
        },
        false => Vec::new(),
    };
    let plan = How { flags, sequence: asked.then_some(second), producers, ..How::default() };
    // SAFETY: the assembly has put them there.
    let regs = unsafe { *regs };
    match outermost(tls, regs, plan, None) {
        Ok(()) => 0,
        Err(errno) => api::fail(errno),
    }
}

/// The string that the second argument of `sys_xbegin` is with `TX_AFTER`.
///
/// # Errors
/// EFAULT; E2BIG if it has no end for long.
fn names_at(at: u64) -> Sys<Vec<u8>> {
    const NAMES_MAX: usize = 1 << 20;
    // What was there in the transaction before may be there no more.
    crate::reach::forget();
    // SAFETY: with that flag the program gives the address of a string.
    unsafe { UserPtr::<u8>::new(at) }.text(NAMES_MAX, Errno::TOOBIG)
}

/// The names in a string, one a line.
fn words(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.split('\n').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// A begin within a transaction.
fn nested(tls: &Tls, flags: u32) -> i32 {
    leave_program(tls);
    let Some(thread) = thread::existing(tls) else { return api::fail(libc::EINVAL) };
    let kept = thread.session.as_ref().is_some_and(|session| session.checkpoint.is_some());
    let began_with = thread.session.as_ref().map_or(0, |session| session.plan.flags);
    if flags & !began_with & flags::KEEP_CREDENTIALS != 0 {
        thread.report.say(
            "sys_xbegin: TX_KEEP_CREDENTIALS: the transaction that this one is part of was begun without it",
        );
        to_program(tls);
        return api::fail(libc::EINVAL);
    }
    if flags & flags::CHECKPOINT != 0 && !kept {
        thread.report.say(
            "sys_xbegin: TX_CHECKPOINT: the transaction that this one is part of was begun without it",
        );
        to_program(tls);
        return api::fail(libc::EINVAL);
    }
    if flags & flags::AFTER != 0 {
        thread.report.say(
            "sys_xbegin: TX_AFTER: the transaction that this one is part of has begun already",
        );
        to_program(tls);
        return api::fail(libc::EINVAL);
    }
    let session = thread.session.as_mut();
    let began = session.filter(|session| session.lives()).map(|session| session.depth += 1);
    to_program(tls);
    began.map_or_else(|| api::fail(libc::ECANCELED), |()| 0)
}

/// Begins a transaction; the program's code goes on in it.
///
/// # Errors
/// The errno.
pub fn outermost(
    tls: &Tls,
    regs: Regs,
    plan: How,
    command: Option<in_process::Command>,
) -> Result<(), i32> {
    let before = signals::block_sent();
    let mut plan = plan;
    let begun = match thread::record(tls) {
        Ok(thread) => {
            if plan.flags & flags::RETRY != 0 && plan.succession.is_none() {
                plan.succession = thread.between.take();
            }
            let begun = place(tls, thread, &mut plan, before)
                .and_then(|()| begin_in(tls, thread, regs, plan.clone(), before, command));
            match begun {
                Ok(()) => {
                    thread.name = None;
                    Ok(())
                }
                Err(failure) => {
                    // As after a conflict.
                    if plan.flags & flags::RETRY != 0 && failure.errno == libc::EAGAIN {
                        thread.between = plan.succession.take();
                    }
                    give_up_place(tls, &mut plan, &failure.what);
                    thread.report.say(&failure.what);
                    Err(failure.errno)
                }
            }
        }
        Err(thread::NoMemory) => Err(libc::ENOMEM),
    };
    if begun.is_err() {
        linger(tls);
        signals::set_mask(before);
    }
    begun
}

/// The transaction's place among those that come after each other, if it is to have one: at its beginning, and before it
/// begins again. Signals are blocked; `mask` is what the program has blocked.
fn place(tls: &Tls, thread: &Thread, plan: &mut How, mask: signals::Set) -> Result<(), Failure> {
    let is_wanted = plan.flags & flags::AFTER != 0 || thread.name.is_some();
    let is_known = plan.flags & !flags::ALL == 0 && thread.prepared.is_none();
    if plan.succession.is_none() && !(is_wanted && is_known && plan.attempt == 0) {
        return Ok(());
    }
    leave_program(tls);
    // What the program has blocked ends no wait.
    tls.ending.set(signals::all_ending() & !mask);
    let placed = on_own_stack(tls, || match plan.succession.as_ref() {
        Some(succession) => succession.before_next(plan.flags & flags::RESTART != 0),
        None => {
            plan.succession = Succession::of(plan, thread.name.as_deref())?;
            Ok(())
        }
    });
    tls.ending.set(0);
    placed.unwrap_or_else(|panic| Err(defect(&panic)))
}

/// A transaction has not committed, and its program may begin it again: what comes after it goes on waiting.
fn keep_place(thread: &mut Thread, session: &mut Session) {
    let plan = &mut session.plan;
    // What is undecided may be committed.
    let may_follow = plan.flags & flags::RETRY != 0
        && session.lost.is_empty()
        && thread.report.abort.errno != libc::EINPROGRESS;
    if may_follow && plan.succession.as_ref().is_some_and(|one| one.is_of_this_thread()) {
        thread.between = plan.succession.take();
    }
}

/// The program does not begin again.
fn give_up_between(tls: &Tls, thread: &mut Thread) {
    if let Some(between) = thread.between.take() {
        let why = thread.report.abort.what.clone();
        let _ = on_own_stack(tls, move || between.aborted(&why));
    }
}

/// The transaction has ended without effect, for what comes after it.
fn give_up_place(tls: &Tls, plan: &mut How, why: &str) {
    if let Some(succession) = plan.succession.take() {
        let _ = on_own_stack(tls, move || succession.aborted(why));
    }
}

fn begin_in(
    tls: &Tls,
    thread: &mut Thread,
    regs: Regs,
    plan: How,
    before: signals::Set,
    command: Option<in_process::Command>,
) -> Result<(), Failure> {
    if plan.flags & !flags::ALL != 0 {
        return Err(refusal(
            libc::EINVAL,
            format!("sys_xbegin: flags {:#x} are not known", plan.flags & !flags::ALL),
        ));
    }
    if thread.prepared.is_some() {
        return Err(refusal(libc::EBUSY, UNDECIDED));
    }
    thread::arm(tls).map_err(|error| {
        refusal(
            libc::ENOSYS,
            format!(
                "sys_xbegin: this kernel can't redirect the system calls of a thread (Syscall User \
                 Dispatch, Linux 5.11 or later on x86-64): errno {error}"
            ),
        )
    })?;
    let own = if command.is_some() { flags::COMMAND } else { 0 };
    // The program's memory is another one than in the transaction before.
    crate::reach::forget();
    let how = How { flags: plan.flags | own, ..plan.clone() };
    thread::leave_program(tls);
    let kept = plan.flags & flags::CHECKPOINT != 0;
    if kept {
        checkpoint::may_keep(plan.flags)?;
    }
    let keeps_credentials = given_up::keeps(plan.flags, plan.attempt > 0)?;
    let tx = match on_own_stack(tls, || Tx::begin(how)) {
        Ok(begun) => begun?,
        Err(panic) => return Err(defect(&panic)),
    };
    if plan.flags & flags::RESTART != 0 && command.is_none() {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| kernel::at_exit(leaves));
    }
    let keeper = match plan.flags & flags::PROCESSES {
        0 => None,
        _ => match on_own_stack(tls, host::Reserved::new) {
            Ok(Ok(keeper)) => Some(Arc::new(keeper)),
            other => {
                let _ = on_own_stack(tls, || tx.abort());
                let why =
                    "TX_PROCESSES: no thread can be made to serve the processes of the transaction";
                return Err(other.err().map_or_else(|| refusal(libc::EAGAIN, why), |p| defect(&p)));
            }
        },
    };
    // Last, so that what is written to until here need not be copied.
    let (tx, checkpoint) = match kept {
        true => match on_own_stack(tls, || keep_memory(tx)) {
            Ok(kept) => kept?,
            Err(panic) => return Err(defect(&panic)),
        },
        false => (tx, None),
    };
    if plan.attempt == 0 {
        thread.counters.begun += 1;
    } else {
        thread.counters.restarted += 1;
    }
    // A write to a pipe that nobody reads any more ends a command as ever, as well.
    let live = match command {
        Some(_) => signals::ending() | signals::that_are_default(&[libc::SIGPIPE]),
        None => 0,
    };
    if let Some(command) = &command {
        command.foresees(live);
    }
    let at_once = signals::at_once();
    let masks = Masks { before, programs: before, live, at_once, fresh: false, waits_here: false };
    if live != 0 {
        signals::set_mask(masks.real() | masks.at_once);
    }
    tls.goes_by(&masks);
    thread.regs = regs;
    thread.session = Some(Session {
        plan,
        checkpoint,
        gives_up: false,
        tx: Some(tx),
        depth: 0,
        abort_if: null(),
        masks,
        actions: Changed::default(),
        restored: Restored::new(keeps_credentials),
        lost: Vec::new(),
        kept: signals::Kept::default(),
        restartable: command.is_none(),
        command,
        member: None,
        process: None,
        keeper,
        enlisted: Enlisted::default(),
    });
    to_program(tls);
    Ok(())
}

/// In `exit(3)`: the function in which the transaction began may have returned, as `main` does. A jump to it would go on with what is
/// on the stack by now, and commit that. So from here on a transaction whose stack is not put back begins again no more.
extern "C" fn leaves() {
    thread::aside(|| {
        if let Some(session) = thread::existing(here()).and_then(|thread| thread.session.as_mut()) {
            session.restartable &= session.checkpoint.is_some();
        }
    });
}

/// Keeps memory as it is, for a transaction that has just begun; if that can't be, it has not.
fn keep_memory(tx: Box<Tx>) -> Result<(Box<Tx>, Option<Box<Checkpoint>>), Failure> {
    match Checkpoint::begin() {
        Ok(checkpoint) => Ok((tx, Some(checkpoint))),
        Err(failure) => {
            let _ = tx.abort();
            Err(failure)
        }
    }
}

/// Before [`begin_again`]: puts memory back, if it was kept.
///
/// # Safety
/// For the assembly of `entry`: on the runtime's own stack, which is not in use. Nothing on the program's is.
pub unsafe extern "C" fn put_back() {
    let tls = here();
    let session = thread::existing(tls).and_then(|thread| thread.session.as_mut());
    let Some(checkpoint) = session.and_then(|session| session.checkpoint.as_mut()) else { return };
    tls.busy.set(1);
    // SAFETY: as the caller says; the checkpoint is the runtime's own memory.
    if let Err(panic) = thread::guarded(|| unsafe { checkpoint.put_back() }) {
        super::checkpoint::end_process(&panic);
    }
    tls.busy.set(0);
}

/// Begins again; what it returns is what `sys_xbegin` returns. Signals are still blocked.
///
/// # Safety
/// For the assembly of `entry`.
pub unsafe extern "C" fn begin_again() -> i32 {
    let tls = here();
    let Some(thread) = thread::existing(tls) else { return api::fail(libc::EINVAL) };
    // All that a signal handler could overwrite is here, where it can't.
    let regs = thread.regs;
    let mut waits = std::mem::take(&mut thread.waits);
    let Some(mut session) = thread.session.take() else { return api::fail(libc::EINVAL) };
    let enlisted = session.take_enlisted();
    let mut plan = session.plan.clone();
    let late = session.kept.take_late();
    let (before, gives_up) = (session.masks.before, session.gives_up);
    let _ = on_own_stack(tls, || {
        if let Some(keeper) = session.keeper.as_ref().filter(|_| !gives_up) {
            keeper.reap();
        }
        drop(session);
    });
    thread::leave_wait(&mut waits);
    if gives_up {
        give_up_place(tls, &mut plan, &thread.report.abort.what);
        linger(tls);
        signals::release(late, before);
        return api::fail(libc::ECANCELED);
    }
    plan.attempt = plan.attempt.saturating_add(1);
    plan.went_out = false;
    linger(tls);
    // What came meanwhile is delivered between two attempts.
    // Before signals are let in: a handler may jump out.
    enlisted.abort();
    signals::release(late, before);
    let attempt = i32::try_from(plan.attempt).unwrap_or(i32::MAX);
    match outermost(tls, regs, plan, None) {
        Ok(()) => attempt,
        Err(errno) => {
            // The assembly goes by them, also if a handler has had its own transaction.
            if let Some(thread) = thread::existing(tls) {
                thread.regs = regs;
            }
            api::fail(errno)
        }
    }
}

/// `sys_xend`.
pub fn end(tls: &Tls) -> i32 {
    if tls.state.get() != ACTIVE {
        return api::fail(libc::EINVAL);
    }
    leave_program(tls);
    let Some(thread) = thread::existing(tls) else { return api::fail(libc::EINVAL) };
    let Some(session) = thread.session.as_mut() else { return api::fail(libc::EINVAL) };
    if session.depth > 0 {
        session.depth -= 1;
        let failed = !session.lives();
        to_program(tls);
        return if failed { api::fail(libc::ECANCELED) } else { 0 };
    }
    if session.member.as_ref().is_some_and(|member| !member.began()) {
        return members::leave(tls, thread);
    }
    if let Some(process) = session.hosted() {
        return client::leave(tls, thread, &process);
    }
    if session.is_command() {
        // The command's end is the process's.
        to_program(tls);
        return api::fail(libc::EPERM);
    }
    let asked_again = on_own_stack(tls, || members::gather(thread)).unwrap_or(false);
    let result = on_own_stack(tls, || commit(thread)).unwrap_or_else(|panic| Err(defect(&panic)));
    match result {
        Ok(committed) => {
            let Some(mut session) = thread.session.take() else { return api::fail(libc::EINVAL) };
            let (mask, enlisted) = (session.masks.programs, session.take_enlisted());
            let (late, given_up) = (session.kept.take_late(), session.restored.take_given_up());
            thread::leave_wait(&mut thread.waits);
            drop(session);
            linger(tls);
            // Before signals are let in: a handler may jump out.
            let answer = after_commit(tls, thread, committed, enlisted, mask);
            // What was held goes out as who the thread was in its calls.
            given_up.iter().for_each(|seen| given_up::have_or_end(seen));
            signals::release(late, mask);
            answer.map_or_else(api::fail, |()| 0)
        }
        Err(failure) => failed_end(tls, thread, failure, asked_again),
    }
}

/// What follows a commit, in this order: the participants commit, and what was held goes out. Signals are blocked; `mask` is
/// what the program has blocked. Nothing here undoes the commit; what fails is reported.
///
/// # Errors
/// EREMOTEIO if a participant has failed.
pub fn after_commit(
    tls: &Tls,
    thread: &mut Thread,
    committed: Committed,
    enlisted: Enlisted,
    mask: signals::Set,
) -> Result<(), i32> {
    let Committed { mut held, mut failed, .. } = committed;
    let joint = enlisted.commit();
    // What the program has blocked ends no wait.
    tls.ending.set(signals::all_ending() & !mask);
    let sent = if held.is_empty() { Ok(Vec::new()) } else { on_own_stack(tls, || held.send()) };
    tls.ending.set(0);
    failed.extend(sent.unwrap_or_else(|panic| vec![defect(&panic).what]));
    failed.iter().for_each(|failure| api::tell(failure));
    match joint {
        Ok(()) if failed.is_empty() => Ok(()),
        Ok(()) => {
            thread.report.say(&failed.join("; "));
            Ok(())
        }
        Err(in_doubt) => {
            let errno = in_doubt.errno;
            failed.insert(0, in_doubt.what.clone());
            thread.report.say(&failed.join("; "));
            thread.report.abort = in_doubt;
            Err(errno)
        }
    }
}

/// The transaction could not be committed, and nothing of it has happened.
pub fn failed_end(tls: &Tls, thread: &mut Thread, mut failure: Failure, asked_again: bool) -> i32 {
    if let Some(session) = thread.session.as_mut() {
        session.undo_settings(&mut failure);
    }
    let errno = if failure.errno == 0 { libc::ECANCELED } else { failure.errno };
    let lost = failure.reason == reason::CONFLICT
        || failure.reason == reason::PRODUCER && has_successor(tls, thread);
    let went_out = thread.session.as_ref().is_some_and(|session| session.plan.went_out);
    let again = (lost && !went_out && !failure.gives_up) || asked_again;
    thread.report.say(&failure.what);
    thread.report.abort = failure;
    let Some(session) = thread.session.as_mut() else { return api::fail(errno) };
    session.undo_actions();
    // What is undecided is not taken back.
    if errno == libc::EINPROGRESS {
        session.checkpoint = None;
        session.enlisted = Enlisted::default();
    }
    if session.goes_back(again) {
        restart(thread);
    }
    outside(tls, thread);
    api::fail(errno)
}

/// Whether a producer has failed, and another run of its name may follow.
fn has_successor(tls: &Tls, thread: &Thread) -> bool {
    let succession = thread.session.as_ref().and_then(|session| session.plan.succession.as_ref());
    succession.is_some_and(|one| on_own_stack(tls, || one.has_successor()).unwrap_or(false))
}

/// Before its end: a thread's transaction waits for what it comes after.
///
/// # Errors
/// Why nothing of it has happened: it is aborted.
pub fn come_after(thread: &mut Thread) -> Result<(), Failure> {
    let Some(session) = thread.session.as_mut() else { return Ok(()) };
    let Some(tx) = session.tx.as_mut() else { return Ok(()) };
    // The records are of who began.
    let Err(failure) = session.restored.as_before(|| tx.come_after()) else { return Ok(()) };
    session.plan.goes_by(tx);
    thread.counters.unsupported += tx.unsupported();
    thread.counters.aborted += 1;
    (thread.report.live, thread.report.live_by_kind) = (tx.was_live(), tx.live_by_kind());
    if let Some(tx) = session.tx.take() {
        let failure = tx.naming_released(failure);
        let again = session.restored.as_before(|| tx.abort());
        session.plan.again = again.or(session.plan.again.take());
        return Err(failure);
    }
    Err(failure)
}

/// Commits the thread's transaction. What it has held is not sent yet.
///
/// # Errors
/// Why nothing of it has happened.
pub fn commit(thread: &mut Thread) -> Result<Committed, Failure> {
    commit_if(thread, None)
}

/// The same for a command, about which `decides` has the last word.
///
/// # Errors
/// As there.
pub fn commit_if(
    thread: &mut Thread,
    decides: Option<&dyn crate::tx::Decides>,
) -> Result<Committed, Failure> {
    come_after(thread)?;
    let Some(session) = thread.session.as_mut() else { return Err(thread.report.abort.clone()) };
    let Some(tx) = session.tx.take() else { return Err(thread.report.abort.clone()) };
    let enlisted = session.enlisted.clone();
    if here().is_called_off() {
        thread.counters.aborted += 1;
        let why = tx.naming_released(called_off());
        let _ = tx.abort();
        return Err(why);
    }
    thread.counters.unsupported += tx.unsupported();
    (thread.report.live, thread.report.live_by_kind) = (tx.was_live(), tx.live_by_kind());
    if let Some(session) = thread.session.as_mut() {
        session.plan.goes_by(&tx);
    }
    let restored = thread.session.as_mut().map(|session| std::mem::take(&mut session.restored));
    let mut restored = restored.unwrap_or_default();
    let asked = restored.asking(&enlisted);
    let decides = if enlisted.is_empty() { decides } else { Some(&asked as _) };
    let done = restored.as_before(|| tx.commit(decides));
    if done.is_err()
        && let Some(session) = thread.session.as_mut()
    {
        session.restored = std::mem::take(&mut restored);
    }
    match done {
        Ok(mut committed) => {
            if let Some(succession) =
                thread.session.as_ref().and_then(|session| session.plan.succession.as_ref())
            {
                restored.as_before(|| succession.committed());
            }
            committed.failed.extend(restored.committed());
            if let Some(session) = thread.session.as_mut() {
                session.restored = restored.left();
            }
            super::outside::has_committed();
            thread.counters.committed += 1;
            thread.counters.short_cuts += u64::from(committed.short_cut);
            Ok(committed)
        }
        Err(failure) => {
            thread.counters.aborted += 1;
            if failure.reason == reason::CONFLICT && here().is_called_off() {
                return Err(called_off_not(&failure));
            }
            if let Some(session) = thread.session.as_mut()
                && failure.again.is_some()
            {
                session.plan.again = failure.again;
            }
            Err(failure)
        }
    }
}

/// Hands the thread's transaction to the process that has started its command.
///
/// # Errors
/// Why nothing of it is there any more.
pub fn hand_over(thread: &mut Thread) -> Result<Held, Failure> {
    let tx = thread.session.as_mut().and_then(|session| session.tx.take());
    let Some(mut tx) = tx else { return Err(thread.report.abort.clone()) };
    thread.counters.unsupported += tx.unsupported();
    (thread.report.live, thread.report.live_by_kind) = (tx.was_live(), tx.live_by_kind());
    let held = tx.take_signals_held();
    tx.hand_over().map(|()| held)
}

/// Why a transaction is aborted whose program has asked for it by a flag.
pub fn called_off() -> Failure {
    Failure {
        reason: reason::ASKED,
        errno: libc::ECANCELED,
        what: "the program called the transaction off".into(),
        ..Failure::default()
    }
}

/// The same instead of another reason, with what that says was sent and taken before.
pub fn called_off_not(other: &Failure) -> Failure {
    let mut why = called_off();
    why.before.clone_from(&other.before);
    why.what.push_str(&why.before);
    why
}

/// `txos_abort_if`.
pub fn abort_if(tls: &Tls, flag: *const AtomicI32) -> i32 {
    if tls.state.get() != ACTIVE {
        return api::fail(libc::EINVAL);
    }
    leave_program(tls);
    tls.abort_if.set(flag);
    if let Some(thread) = thread::existing(tls) {
        members::abort_if(thread, flag);
    }
    to_program(tls);
    0
}

/// `sys_xabort`.
pub fn abort(tls: &Tls, no_restart: bool) {
    if tls.state.get() != ACTIVE {
        return;
    }
    leave_program(tls);
    let Some(thread) = thread::existing(tls) else { return };
    if let Some(process) = thread.session.as_ref().and_then(|session| session.process.clone()) {
        let _ = on_own_stack(tls, || process.abort(!no_restart));
        if process.has_joined() {
            client::leave(tls, thread, &process);
            return;
        }
        return to_program(tls);
    }
    let why = Failure {
        reason: reason::ASKED,
        errno: libc::ECANCELED,
        what: "the program aborted the transaction".into(),
        ..Failure::default()
    };
    let aborted = on_own_stack(tls, || {
        members::abort(thread, why, !no_restart);
        let session = thread.session.as_ref();
        if let Some(command) = session.and_then(|session| session.command.as_ref()) {
            command.end_failed(&thread.report);
        }
        match thread.session.as_ref().and_then(|session| session.member.as_ref()) {
            Some(member) if !no_restart && member.began() => members::gather(thread),
            Some(member) => {
                member.ends_processes(reason::ASKED);
                false
            }
            None => !no_restart,
        }
    });
    let again = aborted.unwrap_or_else(|_| {
        tell_defect("an abort did not finish");
        !no_restart
    });
    if thread.session.as_mut().is_some_and(|session| session.goes_back(again)) {
        restart(thread);
    }
    outside(tls, thread);
}

/// Aborts the thread's transaction, which remains as a failed one.
pub fn abort_in(thread: &mut Thread, why: Failure) {
    if let Some(mut session) = thread.session.take() {
        session.abort(thread, why);
        thread.session = Some(session);
    }
}

/// The program goes on outside, as before the transaction.
pub fn outside(tls: &Tls, thread: &mut Thread) {
    thread::leave_wait(&mut thread.waits);
    let Some(mut session) = thread.session.take() else { return linger(tls) };
    let (mask, enlisted) = (session.masks.before, session.take_enlisted());
    let late = session.kept.take_late();
    keep_place(thread, &mut session);
    give_up_place(tls, &mut session.plan, &thread.report.abort.what);
    drop(session);
    linger(tls);
    // Before signals are let in: a handler may jump out.
    enlisted.abort();
    signals::release(late, mask);
}

/// The program goes on where the transaction began, which is aborted. Nothing on the stack may wait
/// to be dropped.
pub fn restart(thread: &Thread) -> ! {
    // SAFETY: `begin` has saved them, and the program has promised that the frame is there; the
    // record stays as long as the thread.
    unsafe { entry::again(&raw const thread.regs) }
}

/// The thread ends.
pub fn end_of_thread(tls: &Tls) {
    let Some(thread) = thread::existing(tls) else { return };
    if thread.session.is_some() {
        let _ = on_own_stack(tls, || members::leave_at_end(thread));
        if let Some(mut session) = thread.session.take() {
            give_up_place(tls, &mut session.plan, &ended().what);
            session.take_enlisted().abort();
        }
    }
    joint::end_of_thread(thread);
    give_up_between(tls, thread);
}

/// What a thread's, or the process's, end is to its transaction.
pub fn ended() -> Failure {
    Failure {
        reason: reason::EXITED,
        errno: libc::ECANCELED,
        what: "the thread ended within the transaction".into(),
        ..Failure::default()
    }
}

fn has_prepared(tls: &Tls) -> bool {
    thread::existing(tls).is_some_and(|thread| thread.prepared.is_some())
}

/// `txos_name`.
pub fn name(tls: &Tls, name: Option<&CStr>) -> i32 {
    /// As for the name of a file.
    const LONGEST: usize = 255;
    if tls.state.get() == ACTIVE || tls.busy.get() != 0 {
        return api::fail(libc::EBUSY);
    }
    let name = match name.map(CStr::to_str) {
        None => None,
        Some(Ok(name))
            if !name.is_empty() && name.len() <= LONGEST && !name.contains(char::is_control) =>
        {
            Some(name.to_owned())
        }
        Some(_) => return api::fail(libc::EINVAL),
    };
    let before = signals::block_sent();
    let named = thread::record(tls).map(|thread| {
        thread.name = name;
        give_up_between(tls, thread);
    });
    signals::set_mask(before);
    named.map_or_else(|_| api::fail(libc::ENOMEM), |()| 0)
}

/// `txos_share`.
pub fn share(tls: &Tls) -> i32 {
    if tls.state.get() != ACTIVE {
        return api::fail(libc::EINVAL);
    }
    leave_program(tls);
    let Some(thread) = thread::existing(tls) else { return api::fail(libc::EINVAL) };
    if thread.session.as_ref().is_some_and(|session| session.hosted().is_some()) {
        thread.report.say("txos_share: only the process that began the transaction can show it");
        to_program(tls);
        return api::fail(libc::EPERM);
    }
    if thread.session.as_ref().is_some_and(Session::is_command) {
        thread.report.say("txos_share: this command runs as one transaction as a whole");
        to_program(tls);
        return api::fail(libc::EPERM);
    }
    if thread.session.as_ref().is_some_and(|session| session.checkpoint.is_some()) {
        thread.report.say("txos_share: no thread can join a transaction with TX_CHECKPOINT");
        to_program(tls);
        return api::fail(libc::EPERM);
    }
    let shown = on_own_stack(tls, || members::show(thread));
    let answer = match shown.unwrap_or_else(|panic| Err(defect(&panic))) {
        Ok(fd) => fd,
        Err(failure) => {
            thread.report.say(&failure.what);
            api::fail(failure.errno)
        }
    };
    to_program(tls);
    answer
}

/// `sys_xjoin`.
pub fn join(tls: &Tls, fd: i32) -> i32 {
    if tls.state.get() == ACTIVE || tls.busy.get() != 0 || has_prepared(tls) {
        return api::fail(libc::EBUSY);
    }
    let before = signals::block_sent();
    let joined = match thread::record(tls) {
        Ok(thread) => {
            leave_program(tls);
            let joined = on_own_stack(tls, || members::join(tls, thread, fd, before));
            let joined = joined.unwrap_or_else(|panic| Err(defect(&panic)));
            joined.map_err(|failure| {
                thread.report.say(&failure.what);
                failure.errno
            })
        }
        Err(thread::NoMemory) => Err(libc::ENOMEM),
    };
    match joined {
        Ok(()) => {
            to_program(tls);
            0
        }
        Err(errno) => {
            linger(tls);
            signals::set_mask(before);
            api::fail(errno)
        }
    }
}

/// A transaction that is not being run.
#[derive(Debug)]
struct Paused {
    id: i64,
    /// Its thread's record.
    thread: usize,
    regs: Regs,
    session: Session,
}

// SAFETY: a transaction is used by one thread at a time; here it is used by none.
unsafe impl Send for Paused {}

#[derive(Debug)]
struct Shelf {
    last: i64,
    paused: Vec<Paused>,
}

static SHELF: Mutex<Shelf> = Mutex::new(Shelf { last: 0, paused: Vec::new() });

fn shelf() -> std::sync::MutexGuard<'static, Shelf> {
    SHELF.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// In a child: the paused ones are the parent's.
pub fn forget_paused() {
    // Another thread may have held the lock when the process was copied.
    if let Ok(mut shelf) = SHELF.try_lock() {
        for paused in shelf.paused.drain(..) {
            paused.session.forget();
        }
    }
}

/// `sys_xpause`.
pub fn pause(tls: &Tls) -> i64 {
    if tls.state.get() != ACTIVE {
        return api::fail(libc::EINVAL).into();
    }
    leave_program(tls);
    let Some(thread) = thread::existing(tls) else { return api::fail(libc::EINVAL).into() };
    let Some(session) = thread.session.take() else { return api::fail(libc::EINVAL).into() };
    if session.is_command() {
        let why = match session.hosted() {
            Some(_) => "sys_xpause: only the process that began the transaction can pause it",
            None => "sys_xpause: this command runs as one transaction as a whole",
        };
        thread.session = Some(session);
        thread.report.say(why);
        to_program(tls);
        return api::fail(libc::EPERM).into();
    }
    if session.restored.has_changed() {
        thread.session = Some(session);
        thread.report.say(
            "sys_xpause: a transaction that has changed credentials, limits or priorities can't be paused",
        );
        to_program(tls);
        return api::fail(libc::EPERM).into();
    }
    if session.checkpoint.is_some() {
        thread.session = Some(session);
        thread.report.say("sys_xpause: a transaction with TX_CHECKPOINT can't be paused");
        to_program(tls);
        return api::fail(libc::EPERM).into();
    }
    let mut session = session;
    if let Some(tx) = session.tx.as_mut() {
        // On a panic it is as it was: the next call finds out.
        let _ = on_own_stack(tls, || {
            tx.before_pause();
            tx.numbers_are_shared();
            // Under TX_STRICT as well: what paused code does is not the transaction's.
            tx.take_pipes_before(None, "the transaction is paused").is_ok()
        });
    }
    session.abort_if = tls.abort_if.get();
    let mask = session.masks.before;
    let id = {
        let mut shelf = shelf();
        shelf.last += 1;
        let (id, regs) = (shelf.last, thread.regs);
        let thread = std::ptr::from_ref(thread) as usize;
        shelf.paused.push(Paused { id, thread, regs, session });
        id
    };
    linger(tls);
    signals::set_mask(mask);
    id
}

/// `sys_xresume`.
pub fn resume(tls: &Tls, id: i64) -> i32 {
    if tls.state.get() == ACTIVE || tls.busy.get() != 0 || has_prepared(tls) {
        return api::fail(libc::EBUSY);
    }
    let before = signals::block_sent();
    let resumed = resume_in(tls, id, before);
    if resumed.is_err() {
        signals::set_mask(before);
    }
    resumed.map_or_else(api::fail, |()| 0)
}

fn resume_in(tls: &Tls, id: i64, before: signals::Set) -> Result<(), i32> {
    let thread = thread::record(tls).map_err(|_| libc::ENOMEM)?;
    thread::arm(tls).map_err(|_| libc::ENOSYS)?;
    let paused = {
        let mut shelf = shelf();
        let place = shelf.paused.iter().position(|paused| paused.id == id);
        place.map(|place| shelf.paused.swap_remove(place))
    };
    let Some(mut paused) = paused else {
        thread.report.say("sys_xresume: this process has not paused a transaction with that id");
        return Err(libc::EINVAL);
    };
    // Where it began is on another thread's stack: it can't begin again there.
    paused.session.restartable &= paused.thread == std::ptr::from_ref(thread) as usize;
    paused.session.masks.before = before;
    thread.regs = paused.regs;
    crate::reach::forget();
    tls.goes_by(&paused.session.masks);
    if let Some(tx) = paused.session.tx.as_mut() {
        tx.takes_part();
    }
    tls.abort_if.set(paused.session.abort_if);
    thread.session = Some(paused.session);
    to_program(tls);
    Ok(())
}
