//! What is done with a system call of a thread in a transaction, wherever it came from.
#![allow(unsafe_code)] // system calls

use std::time::{Duration, Instant};

use super::classify::{Class, classify};
use super::report::reason;
use super::session::{self, Next, Session};
use super::thread::{self, Thread};
use super::tls::here;
use super::trap::Context;
use super::{api, members, naps, outside, process, restored, signals};
use super::{loader, processes};
use crate::call::Call;
use crate::raw::syscall;
use crate::tx::{Failure, Tx, flags, held, timers, waits};

/// What a call of a failed transaction is answered.
const CANCELED: Next = Next::Answer(-(libc::ECANCELED as i64));

/// For tests, in debug builds: an `ioctl` that makes the transaction lose a conflict.
const LOSE: u64 = 0x7458_054c;
/// The same at a later one: the third argument says at which call for a file from here. The answer is what was left.
const LOSE_AT: u64 = LOSE + 1;

/// Whether this call for a file is the one at which a test wants the transaction to lose.
fn loses_now(thread: &mut Thread) -> bool {
    let is_live = thread.session.as_ref().is_some_and(|session| session.tx.is_some());
    if !is_live || thread.loses_at == 0 {
        return false;
    }
    thread.loses_at -= 1;
    thread.loses_at == 0
}

fn lost() -> Failure {
    Failure {
        reason: reason::CONFLICT,
        errno: libc::ECANCELED,
        what: "a test wants it to lose".into(),
        ..Failure::default()
    }
}

/// Carries out a call. `context`: what the program goes on with, if the call was trapped.
pub fn dispatch(thread: &mut Thread, call: &Call, context: Option<&mut Context>) -> Next {
    let (number, args) = (call.number(), *call.words());
    thread.counters.calls += 1;
    if let Some(answer) = loader::call(here(), call) {
        return Next::Answer(answer);
    }
    outside::begins(call);
    if crate::reach::takes_away(number) {
        crate::reach::forget();
    }
    let class =
        if signals::stops_own_thread(call) { Class::Harmless } else { classify(number, &args) };
    if thread.session.as_ref().is_some_and(|session| session.process.is_some()) {
        return processes::dispatch(thread, call, class, context);
    }
    if processes::takes_rights(number)
        && thread.session.as_ref().is_some_and(Session::is_command)
        && !txos_calls::only_asks(number, &args)
        && !processes::identities::only_asks(call)
    {
        return processes::client::change_ids(thread, call, class, context);
    }
    // It is held by who has the transaction at the end.
    if held::sends_signal(number)
        && thread.session.as_ref().is_some_and(Session::is_command)
        && !txos_calls::only_asks(number, &args)
        && !held::is_for_this_process(call)
    {
        return processes::client::change_ids(thread, call, class, context);
    }
    if handlers_are_waited_with(thread, call) {
        return processes::client::wait(thread, call, class, context);
    }
    if let Some(answer) = before_checkpointed(thread, call, class) {
        return Next::Answer(answer);
    }
    if let Some(next) = before_any(thread, class, number) {
        return next;
    }
    if let Some(session) = thread.session.as_mut() {
        before_groups(session, call);
    }
    if may_wait(number)
        && let Some(next) = members::with(thread, |thread| before_waiting(thread, call))
    {
        return next;
    }
    if number == libc::SYS_uname
        && let Some(answer) = members::with(thread, |thread| machine_names(thread, call))
    {
        return Next::Answer(answer);
    }
    match thread.session.as_ref().and_then(|session| session.member.as_ref()) {
        Some(_) => members::dispatch(thread, call, class, context),
        None => by_class(thread, call, class, context),
    }
}

/// Before a call that depends on process groups, or waits while a child's waits for the commit: those are made.
#[inline]
fn before_groups(session: &mut Session, call: &Call) {
    if !session.restored.groups.any() {
        return;
    }
    let number = call.number();
    let Session { restored, tx, .. } = session;
    let waits = || {
        may_wait(number)
            || may_sleep(number, call.words())
            || tx
                .as_mut()
                .is_some_and(|tx| thread::guarded(|| tx.waits_outside(call)).unwrap_or(false))
    };
    restored.groups_before(call, waits);
}

/// What the machine is called in the transaction, if that is not what the kernel says.
fn machine_names(thread: &mut Thread, call: &Call) -> Option<i64> {
    thread.session.as_ref()?.tx.as_ref()?.machine_names(call)
}

/// What a call is to memory that was kept. `None`: it is to be carried out as ever.
#[inline]
fn before_checkpointed(thread: &mut Thread, call: &Call, class: Class) -> Option<i64> {
    let session = thread.session.as_mut()?;
    let checkpoint = session.checkpoint.as_mut()?;
    let done = thread::guarded(|| checkpoint.call(call, class));
    done.unwrap_or_else(|_| Some(-i64::from(libc::ENOMEM)))
}

/// Whether by this call the C library has all threads take the credentials that this one takes.
fn is_of_all_threads(thread: &mut Thread, call: &Call) -> bool {
    let it_is = call.number() == libc::SYS_tgkill
        && (1..=64).contains(&call.int(2))
        && signals::of(call.int(2)) == members::SETXID
        && call.int(0) == crate::tx::kernel::own_process();
    if it_is && let Some(session) = thread.session.as_mut() {
        session.restored.is_taken_by_all();
    }
    it_is
}

/// Carries out a call of a thread that has the transaction to itself.
pub fn by_class(
    thread: &mut Thread,
    call: &Call,
    class: Class,
    context: Option<&mut Context>,
) -> Next {
    let (number, args) = (call.number(), *call.words());
    if cfg!(debug_assertions) && number == libc::SYS_ioctl && args[1] == LOSE {
        return fail(thread, lost());
    }
    if cfg!(debug_assertions) && number == libc::SYS_ioctl && args[1] == LOSE_AT {
        return Next::Answer(std::mem::replace(&mut thread.loses_at, args[2] as i64));
    }
    let native = || Next::Answer(call.make());
    match (class, context) {
        (Class::Harmless, _) if number == libc::SYS_rt_sigtimedwait => {
            let Some(session) = thread.session.as_mut() else { return native() };
            Next::Answer(signals::take(&mut session.kept, call))
        }
        (Class::Harmless, _) if timers::is_of_timer(number) => {
            let tx = thread.session.as_mut().and_then(|session| session.tx.as_mut());
            match tx.map(|tx| thread::guarded(|| tx.timer_call(call))) {
                None => native(),
                Some(Ok(answer)) => Next::Answer(crate::raw::answer(answer)),
                Some(Err(panic)) => fail(thread, session::defect(&panic)),
            }
        }
        (Class::Harmless, _) if number == libc::SYS_getrlimit => match thread.session.as_ref() {
            Some(session) if restored::holds_limits(session) => {
                Next::Answer(restored::ask_limit(session, call))
            }
            _ => native(),
        },
        (Class::Harmless | Class::Held(_), _)
            if let Some(answer) =
                thread.session.as_ref().and_then(|session| restored::ask(session, call)) =>
        {
            Next::Answer(answer)
        }
        (Class::Harmless, _) if may_sleep(number, &args) => {
            if outside::is_sleep(number) {
                between_looks(thread, call)
            } else if is_wait_at_word(number, &args) {
                at_word(thread, call)
            } else {
                asleep(thread, call)
            }
        }
        (Class::Harmless, _) => native(),
        (Class::Restored(_), _) => {
            restored::call(thread, call).unwrap_or_else(|| transactional(thread, call))
        }
        (Class::Held(_), _) if is_of_all_threads(thread, call) => native(),
        (Class::Held(_), _) if members::concerns_a_member(thread, call) => native(),
        (
            Class::Transactional
            | Class::Descriptor
            | Class::Passed(_)
            | Class::Held(_)
            | Class::Refused(..)
            | Class::Unknown
            | Class::Map
            | Class::Wait,
            _,
        ) => transactional(thread, call),
        (Class::Absent, _) => Next::Answer(-i64::from(libc::ENOSYS)),
        (Class::Prctl, _) => {
            if args[0] == thread::PR_SET_SYSCALL_USER_DISPATCH {
                return Next::Answer(-i64::from(libc::EBUSY));
            }
            if args[0] == libc::PR_SET_SECCOMP as u64 {
                return transactional(thread, call);
            }
            processes::identities::note_limits(call);
            native()
        }
        (Class::Mask, context) => {
            let Some(session) = thread.session.as_mut() else { return native() };
            let answer = session.masks.change(call);
            here().goes_by(&session.masks);
            put_in_force(session.masks.real(), context);
            Next::Answer(answer)
        }
        (Class::Action, context) => {
            let Some(session) = thread.session.as_mut() else { return native() };
            let answer = session.actions.change(&mut session.masks, &mut session.kept, call);
            if session.command.is_some() && session.process.is_none() {
                session.masks.handles_at_once(call.int(0));
                here().goes_by(&session.masks);
            }
            put_in_force(session.masks.real(), context);
            Next::Answer(answer)
        }
        (Class::AlternateStack, Some(context)) => {
            Next::Answer(context.alternate_stack(thread, call))
        }
        (Class::Suspend, _) => suspended(thread, call),
        (Class::Exit | Class::ExitGroup, _) => process::exit(thread, class, args),
        (Class::Fork | Class::Vfork | Class::Clone | Class::Clone3, Some(context)) => {
            process::create(thread, class, call, context)
        }
        (Class::Exec, _) => process::exec(thread, call),
        // These come by the trap only, which handles the return from a signal handler itself.
        (_, None) | (Class::SignalReturn, _) => native(),
    }
}

/// The thread waits for a signal, whose handler runs in the transaction.
fn suspended(thread: &mut Thread, call: &Call) -> Next {
    let Some(session) = thread.session.as_mut() else { return Next::Answer(call.make()) };
    let mask = match signals::suspend(&session.masks, &mut session.kept, call) {
        Ok(mask) => mask,
        Err(errno) => return Next::Answer(-i64::from(errno)),
    };
    let words = [(&raw const mask) as u64, signals::SET, 0, 0, 0, 0];
    // SAFETY: the set lives until the answer.
    let wait = unsafe { Call::new(libc::SYS_rt_sigsuspend, words) };
    Next::Answer(thread::make_in_program(here(), session.masks.real(), &wait))
}

/// What is blocked when the program goes on.
fn put_in_force(mask: signals::Set, context: Option<&mut Context>) {
    match context {
        Some(context) => context.set_mask(mask),
        None => {
            signals::set_mask(mask);
        }
    }
}

/// `pause(2)`, where there is such a call.
#[cfg(target_arch = "x86_64")]
const PAUSE: i64 = libc::SYS_pause;
#[cfg(not(target_arch = "x86_64"))]
const PAUSE: i64 = i64::MIN;

/// Whether operations on System V semaphores wait for nobody: they only add, or are not to wait.
fn never_waits(call: &Call) -> bool {
    let (operations, count) = (call.pointer::<[i16; 3]>(1), call.word(2).min(500));
    (0..count).all(|i| {
        let read = operations.item(i).read();
        read.is_ok_and(|[_, adds, how]| adds > 0 || i32::from(how) & libc::IPC_NOWAIT != 0)
    })
}

/// Whether a call waits for what others do, and has no descriptor that says so.
fn may_wait(number: i64) -> bool {
    matches!(
        number,
        PAUSE
            | libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_rt_sigsuspend
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_semop
            | libc::SYS_semtimedop
            | libc::SYS_msgrcv
            | libc::SYS_mq_timedreceive
    )
}

/// Whether a command that is one process so far waits by this call, or signals itself, and has handlers that would run then.
/// (A command begins without any.)
fn handlers_are_waited_with(thread: &mut Thread, call: &Call) -> bool {
    let session = thread.session.as_mut().filter(|session| session.is_command());
    let Some(session) = session else { return false };
    let number = call.number();
    let may_be = may_wait(number)
        || may_sleep(number, call.words())
        || waits::may_wait_for_descriptor(number)
        || held::sends_signal(number);
    if !may_be || !session.actions.has_handlers(session.masks.during(call)) {
        return false;
    }
    let Some(tx) = session.tx.as_mut().filter(|tx| tx.doomed().is_none()) else { return false };
    match number {
        libc::SYS_wait4 => call.int(2) & libc::WNOHANG == 0 && !is_over(call),
        libc::SYS_waitid => call.int(3) & libc::WNOHANG == 0 && !is_over(call),
        libc::SYS_semop | libc::SYS_semtimedop => !never_waits(call),
        libc::SYS_msgrcv => call.int(4) & libc::IPC_NOWAIT == 0,
        libc::SYS_mq_timedreceive => true,
        _ if may_sleep(number, call.words()) => true,
        _ if held::sends_signal(number) => held::is_for_this_process(call),
        _ => thread::guarded(|| tx.waits_outside(call)).unwrap_or(false),
    }
}

/// Whether a harmless call may wait for long.
fn may_sleep(number: i64, args: &[u64; 6]) -> bool {
    /// `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI`, `FUTEX_LOCK_PI2`.
    const FUTEX_WAITS: [u64; 5] = [0, 6, 9, 11, 13];
    const SYS_FUTEX_WAIT: i64 = 455;
    match number {
        libc::SYS_futex => FUTEX_WAITS.contains(&(args[1] & 0x7f)),
        libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_futex_waitv
        | SYS_FUTEX_WAIT => true,
        _ => false,
    }
}

/// In the middle of a sleep it is looked so often whether there is room for what was released.
const PART: Duration = Duration::from_millis(20);

/// Whether it is the plain wait at a futex: who ends it sends one of those that wait to look again.
fn is_wait_at_word(number: i64, args: &[u64; 6]) -> bool {
    number == libc::SYS_futex && args[1] & !PRIVATE == 0
}

/// `FUTEX_PRIVATE_FLAG`.
const PRIVATE: u64 = 128;

/// Such a wait. One that has lost meanwhile, and begins again, does so before it takes what it was woken for: a lock, which
/// nobody would give back. Another one that waits there is woken in its place. Not if processes can't share the word:
/// so are the locks of the C library's own, of which a thread may have one more while it waits.
fn at_word(thread: &mut Thread, call: &Call) -> Next {
    if let Some(tx) = thread.session.as_mut().and_then(|session| session.tx.as_mut()) {
        tx.look_for_own_mutex(call.word(0));
    }
    let next = asleep(thread, call);
    let Next::Answer(answer) = next else { return next };
    let Some(session) = thread.session.as_mut() else { return next };
    let restarts = session.restarts() && !session.plan.went_out;
    let goes_back = call.word(1) & PRIVATE == 0 && (restarts || session.checkpoint.is_some());
    let Some(tx) = session.tx.as_mut().filter(|_| goes_back) else { return next };
    let _ = thread::guarded(|| tx.check_doom());
    let Some(why) = tx.doomed().cloned() else { return next };
    if answer == 0 {
        const WAKE: u64 = 1;
        let words = [call.word(0), WAKE, 1, 0, 0, 0];
        // SAFETY: the word is only looked up.
        unsafe { syscall(libc::SYS_futex, words) };
    }
    match fail(thread, why) {
        Next::Again => Next::Again,
        // As far as the program can tell, somebody has woken it.
        Next::Answer(_) => next,
    }
}

/// A sleep. A program that sleeps between two looks for something that others are to do would never find it: what the
/// transaction has seen stays as it was.
fn between_looks(thread: &mut Thread, call: &Call) -> Next {
    if let Some(tx) = thread.session.as_mut().and_then(|session| session.tx.as_mut()) {
        outside::has_slept(tx.slept());
    }
    let since = Instant::now();
    let next = asleep(thread, call);
    let Next::Answer(_) = next else { return next };
    let Some(session) = thread.session.as_mut() else { return next };
    let Some(tx) = session.tx.as_mut() else { return next };
    let looked = thread::guarded(|| tx.has_slept_between_looks(since.elapsed()));
    let Some(why) = session::end_of(tx, looked) else { return next };
    match fail(thread, why) {
        Next::Again => Next::Again,
        // It is the next call for a file that fails.
        Next::Answer(_) => next,
    }
}

/// A sleep, or a wait at a futex. What is held is sent when such waits have lasted for some time:
/// somebody who is to end this one, or to do what a loop looks for, may be waiting for that.
fn asleep(thread: &mut Thread, call: &Call) -> Next {
    // Children have been seen to ([`before_waiting`]).
    let for_child = matches!(call.number(), libc::SYS_wait4 | libc::SYS_waitid);
    let session = thread.session.as_mut().filter(|_| !for_child);
    let tx = session.and_then(|session| session.tx.as_mut());
    let Some((tx, patience)) = tx.and_then(|tx| tx.patience().map(|time| (tx, time))) else {
        return Next::Answer(signals::while_waiting(|| call.make()));
    };
    let since = Instant::now();
    let mut rest = match naps::first(call, patience) {
        naps::First::Over(answer) => {
            tx.has_slept(since.elapsed());
            return Next::Answer(answer);
        }
        naps::First::Goes(rest) => Some(rest),
        naps::First::Whole => None,
    };
    // What there is no room for goes out by and by, while it sleeps; before a wait that can't be made in parts, all of it.
    let in_parts = rest.is_some();
    let mut done = thread::guarded(|| tx.release_until(call, || in_parts));
    // Under TX_STRICT the transaction is doomed then.
    while let (Ok(()), None, Some(part)) = (&done, tx.doomed(), &rest)
        && tx.has_more_to_send()
    {
        rest = match naps::first(&part.call(), PART) {
            naps::First::Over(answer) => return Next::Answer(answer),
            naps::First::Goes(rest) => Some(rest),
            naps::First::Whole => None,
        };
        done = thread::guarded(|| tx.go_on());
    }
    if let Some(why) = session::end_of(tx, done) {
        return fail(thread, why);
    }
    let call = rest.as_ref().map_or(*call, naps::Rest::call);
    Next::Answer(signals::while_waiting(|| call.make()))
}

/// Before any call: what was read from a pipe that has had no room for a time is taken.
fn before_any(thread: &mut Thread, class: Class, number: i64) -> Option<Next> {
    let is_patient = thread.patience.is_asked_for();
    if is_patient || matches!(class, Class::SignalReturn | Class::Exit | Class::ExitGroup) {
        return None;
    }
    let tx = thread.session.as_mut()?.tx.as_mut().filter(|tx| tx.looks_at_pipes())?;
    // Its error is that the transaction is doomed.
    let done = thread::guarded(|| {
        let _ = tx.take_full_pipes(number);
    });
    let why = session::end_of(tx, done)?;
    Some(fail(thread, why))
}

/// Before a wait for somebody who may be waiting for what is held: that is sent first. Under TX_STRICT the transaction
/// ends instead: how to go on then.
fn before_waiting(thread: &mut Thread, call: &Call) -> Option<Next> {
    let for_child = matches!(call.number(), libc::SYS_wait4 | libc::SYS_waitid);
    // A signal may tell of a child's end.
    let for_signal = !for_child
        && matches!(call.number(), libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait | PAUSE);
    let holds =
        |tx: &Tx| tx.keeps_others_waiting() || (for_child || for_signal) && tx.holds_for_children();
    let tx = thread.session.as_mut()?.tx.as_mut().filter(|tx| holds(tx))?;
    if for_child && is_over(call) {
        tx.found_child();
        return None;
    }
    let only_looks = match call.number() {
        libc::SYS_semop | libc::SYS_semtimedop => never_waits(call),
        libc::SYS_wait4 => call.int(2) & libc::WNOHANG != 0,
        libc::SYS_waitid => call.int(3) & libc::WNOHANG != 0,
        libc::SYS_msgrcv => call.int(4) & libc::IPC_NOWAIT != 0,
        libc::SYS_rt_sigtimedwait => {
            let time = call.pointer::<[u64; 2]>(2);
            !time.is_null() && time.read() == Ok([0; 2])
        }
        _ => false,
    };
    let done = thread::guarded(|| {
        let waits = !only_looks
            || if for_child { tx.looked_for_child() } else { tx.holds() && tx.looked_in_vain() };
        if !waits {
            return;
        }
        // Their error is that the transaction is doomed.
        let told = match call.number() {
            _ if for_child || for_signal => tx.before_waiting_for_child(call),
            _ if only_looks => Ok(()),
            _ => tx.close_ends("closing an end of a pipe before somebody is waited for"),
        };
        if told.is_ok() {
            tx.release_until(call, || for_child && is_over(call));
        }
    });
    let why = session::end_of(tx, done)?;
    Some(fail(thread, why))
}

/// Whether there is such a child as a wait is for, or the wait is wrong.
pub fn is_over(call: &Call) -> bool {
    let (kind, id, flags) = match call.number() {
        libc::SYS_waitid => (call.uint(0), call.word(1), call.int(3)),
        _ => match call.int(0) {
            -1 => (libc::P_ALL, 0, call.int(2) | libc::WEXITED),
            0 => (libc::P_PGID, 0, call.int(2) | libc::WEXITED),
            pid if pid < 0 => {
                (libc::P_PGID, u64::from(pid.unsigned_abs()), call.int(2) | libc::WEXITED)
            }
            pid => (libc::P_PID, pid as u64, call.int(2) | libc::WEXITED),
        },
    };
    // (The number of a descriptor is the program's.)
    if kind == libc::P_PIDFD {
        return false;
    }
    let mut found = [0_u32; 32];
    let looks = (flags | libc::WNOHANG | libc::WNOWAIT) as u64;
    let words = [u64::from(kind), id, found.as_mut_ptr() as u64, looks, 0, 0];
    // SAFETY: there is room for a `siginfo_t`, of 128 bytes.
    let answer = unsafe { syscall(libc::SYS_waitid, words) };
    // Its first word is SIGCHLD, or zero.
    answer != 0 || found[0] != 0
}

fn transactional(thread: &mut Thread, call: &Call) -> Next {
    let session = thread.session.as_ref();
    let tx = session.and_then(|session| session.tx.as_ref());
    let is_stable = |number| tx.is_none_or(|tx| tx.is_untouched(number));
    if let Some(answer) = super::excluded::answer(call, is_stable) {
        return Next::Answer(answer);
    }
    // The numbers are as the program has them already.
    let managed = session.is_some_and(|session| session.plan.flags & flags::MANAGED != 0);
    if tx.is_none() && managed && call.number() == libc::SYS_close {
        return Next::Answer(call.make());
    }
    match carry_out(thread, call) {
        // Nothing was closed before the transaction lost; the numbers are as the program has them now.
        CANCELED if call.number() == libc::SYS_close && managed => Next::Answer(call.make()),
        CANCELED if managed && is_for_itself(call) => Next::Answer(call.make()),
        CANCELED if super::excluded::is_on_the_way(call) => Next::Answer(call.make()),
        // What was opened is closed by now, and what was closed is open again: there is nothing left to
        // do, and nobody expects `close` to fail. (Rust's library panics if `closedir` does.)
        CANCELED if call.number() == libc::SYS_close => Next::Answer(0),
        next => next,
    }
}

fn carry_out(thread: &mut Thread, call: &Call) -> Next {
    let is_patient = thread.patience.is_asked_for();
    let loses = cfg!(debug_assertions) && loses_now(thread);
    if loses && !is_patient {
        return fail(thread, lost());
    }
    let Some(session) = thread.session.as_mut() else { return CANCELED };
    let Some(tx) = session.tx.as_mut() else {
        return match is_patient || is_of_the_process(call) {
            true => Next::Answer(call.make()),
            false => CANCELED,
        };
    };
    if loses {
        tx.doom(lost());
    }
    if is_patient {
        return with_patience(session, call);
    }
    if here().is_called_off() {
        return match fail(thread, session::called_off()) {
            CANCELED if is_of_the_process(call) => Next::Answer(call.make()),
            next => next,
        };
    }
    // What is no file's business the thread does as who it is now.
    let of_files = || matches!(txos_calls::class(call.number()), Class::Transactional | Class::Map);
    let called = thread::guarded(|| match session.restored.has_credentials() && of_files() {
        true => session.restored.carry_out(tx, |tx| tx.call(call)),
        false => tx.call(call),
    });
    if call.number() == libc::SYS_read {
        session.kept.took_all(tx.take_signals());
    }
    let doomed = match called {
        Ok(answer) => match tx.doomed() {
            None => return Next::Answer(answer),
            Some(why) => {
                // A wait that was called off looks like a conflict that was lost.
                let off = here().is_called_off();
                let why = if off { session::called_off() } else { why.clone() };
                return match fail(thread, why) {
                    CANCELED if is_of_the_process(call) => Next::Answer(answered(call, answer)),
                    // It was closed; the number may be another thread's by now.
                    CANCELED if call.number() == libc::SYS_close && answer == 0 => Next::Answer(0),
                    next => next,
                };
            }
        },
        Err(panic) => {
            let why = session::defect(&panic);
            api::tell(&why.what);
            why
        }
    };
    fail(thread, doomed)
}

/// Carries out a call in whose middle the transaction does not begin again ([`super::linker`]).
fn with_patience(session: &mut Session, call: &Call) -> Next {
    let Some(tx) = session.tx.as_mut() else { return CANCELED };
    let answered = thread::guarded(|| {
        let answer = tx.call(call);
        if tx.doomed().is_none() { answer } else { tx.answer_lost(call, answer) }
    });
    match answered {
        Ok(answer) => Next::Answer(answer),
        Err(panic) => {
            let why = session::defect(&panic);
            api::tell(&why.what);
            tx.doom(why);
            CANCELED
        }
    }
}

/// Calls that a lost transaction must not keep from the rest of the process: with event descriptors the
/// threads of a language's runtime wake each other (Go's, and libuv's, end the process if that fails),
/// and what is written to standard error says why the program ends. Both are live in any case.
pub fn is_of_the_process(call: &Call) -> bool {
    let fd = call.int(0);
    let (message, event) = match call.number() {
        libc::SYS_write => (fd == libc::STDERR_FILENO, true),
        libc::SYS_read
        | libc::SYS_epoll_ctl
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2 => (false, true),
        _ => (false, false),
    };
    if !message && !event {
        return false;
    }
    // The descriptors are again those of before the transaction.
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: there is room for the answer.
    let answer =
        unsafe { syscall(libc::SYS_fstat, [fd as u64, stat.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    // SAFETY: it was zeroed, which is a valid one.
    let kind = unsafe { stat.assume_init() }.st_mode & libc::S_IFMT;
    // What has no type of file has no place either: eventfd, epoll, timerfd, signalfd.
    answer == 0
        && (kind == 0 || message && [libc::S_IFIFO, libc::S_IFCHR, libc::S_IFSOCK].contains(&kind))
}

/// The answer to such a call, which found the transaction lost. A call that failed may not have reached the kernel, so it is
/// made now. EINTR and EAGAIN stand: a call that was interrupted, or had nothing to take, is not to wait again.
fn answered(call: &Call, answer: i64) -> i64 {
    let stands = [libc::EINTR, libc::EAGAIN].map(|errno| -i64::from(errno)).contains(&answer);
    if answer >= 0 || stands { answer } else { call.make() }
}

/// What the runtime of a language does for itself, also in a lost transaction: nothing else notices. Much of it
/// is made or found out once and for all. (Java never initializes a class again for which that has failed.)
fn is_for_itself(call: &Call) -> bool {
    match call.number() {
        libc::SYS_prlimit64 => call.word(2) == 0,
        libc::SYS_epoll_create
        | libc::SYS_epoll_create1
        | libc::SYS_eventfd
        | libc::SYS_eventfd2
        | libc::SYS_timerfd_create
        | libc::SYS_pipe
        | libc::SYS_pipe2
        | libc::SYS_socketpair => true,
        // With pipes to itself libuv locks and wakes its own threads.
        libc::SYS_read | libc::SYS_write => crate::tx::kernel::is_own_pipe(call.int(0)),
        _ => false,
    }
}

/// The transaction can't commit any more.
pub fn fail(thread: &mut Thread, why: Failure) -> Next {
    let conflict = why.is_worth_another_try();
    session::abort_in(thread, why);
    let Some(session) = thread.session.as_mut() else { return CANCELED };
    if let Some(command) = &session.command {
        // A command that runs as one transaction has nobody to tell.
        command.end_failed(&thread.report);
    }
    // What was sent before the end would be sent again.
    let again = conflict && !session.plan.went_out;
    if session.goes_back(again) { Next::Again } else { CANCELED }
}
