//! Signals: the mask and the dispositions as the program sees them, and the SIGSYS handler.
//!
//! In a transaction every signal that somebody sends is blocked, and delivered after the end: its
//! handler would run in the middle of the transaction and see, and do, what belongs to neither
//! side. Signals that an instruction raises stay as they are. The mask that the program sets
//! meanwhile is kept here, and put in force at the end (of an abort: the one of before).
//!
//! A signal that would end the process does so while the transaction waits ([`while_waiting`]), as Ctrl-C natively does.
//!
//! The exception are signals with which a language's runtime stops its own threads
//! ([`set_at_once`]): it would wait for a thread that does not answer. Their handlers run in the
//! program's code only. While runtime code runs they are blocked like the others.
#![allow(unsafe_code)] // raw system calls, and memory that the program points at

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::loader::memory;
use super::tls::here;
use super::{entry, outside};
use crate::call::Call;
use crate::raw::syscall;
use crate::tx::was_something_live;
use crate::user::{Plain, UserPtr};

/// A set of signals, as the kernel has it.
pub type Set = u64;

/// A disposition, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// SIG_DFL, SIG_IGN, or a function.
    pub handler: usize,
    /// SA_*.
    pub flags: u64,
    /// How a handler returns.
    pub restorer: usize,
    /// Blocked meanwhile.
    pub mask: Set,
}

// SAFETY: every pattern of bits is a number.
unsafe impl Plain for Action {}

/// There is a way for a handler to return.
pub const SA_RESTORER: u64 = 0x0400_0000;
/// The size of a set, which the calls want to know.
pub const SET: u64 = 8;

/// The set of one signal.
pub const fn of(signal: i32) -> Set {
    1 << (signal - 1)
}

/// Raised by instructions, or by the program for itself.
pub const SYNCHRONOUS: Set = of(libc::SIGSEGV)
    | of(libc::SIGBUS)
    | of(libc::SIGFPE)
    | of(libc::SIGILL)
    | of(libc::SIGTRAP)
    | of(libc::SIGSYS)
    | of(libc::SIGABRT);

/// All others, of those that can be blocked.
pub const SENT: Set = !(SYNCHRONOUS | of(libc::SIGKILL) | of(libc::SIGSTOP));

/// What does nothing by itself, or stops and continues a process.
const HARMLESS: [i32; 7] = [
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// What ends a command that runs as one transaction at once, if nobody handles it.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The set of those.
pub fn all_ending() -> Set {
    ENDING.iter().fold(0, |set, &signal| set | of(signal))
}

/// The program's own handler of SIGSYS.
static PROGRAMS: Mutex<Action> =
    Mutex::new(Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 });
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// What [`set_at_once`] was asked for.
static AT_ONCE: AtomicU64 = AtomicU64::new(0);

/// Has a signal's handler run at once in transactions that begin later. Whether there is such a signal.
pub fn set_at_once(signal: i32, at_once: bool) -> bool {
    let possible = (1..=64).contains(&signal)
        && of(signal) & (SYNCHRONOUS | of(libc::SIGKILL) | of(libc::SIGSTOP)) == 0;
    if possible && at_once {
        let_traps_through(of(signal));
        AT_ONCE.fetch_or(of(signal), Ordering::Relaxed);
    } else if possible {
        AT_ONCE.fetch_and(!of(signal), Ordering::Relaxed);
    }
    possible
}

/// The signals whose handlers run at once in a transaction that begins now.
pub fn at_once() -> Set {
    AT_ONCE.load(Ordering::Relaxed)
}

/// Whether a call sends a signal that is handled at once to a thread of this process: a language's
/// runtime at work, which nobody else notices.
pub fn stops_own_thread(call: &Call) -> bool {
    let signal = call.int(2);
    call.number() == libc::SYS_tgkill
        && (1..=64).contains(&signal)
        && at_once() & of(signal) != 0
        // SAFETY: it takes nothing.
        && unsafe { syscall(libc::SYS_getpid, [0; 6]) } == i64::from(call.int(0))
}

/// The masks of a thread in a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Masks {
    /// In force before.
    pub before: Set,
    /// What the program has set since; in force after a commit.
    pub programs: Set,
    /// Delivered at once although they are sent.
    pub live: Set,
    /// Handled at once although they are sent.
    pub at_once: Set,
    /// The thread is new: the first mask that it sets is the one of before.
    pub fresh: bool,
    /// All signals are the program's, and the library waits for it in this process.
    pub waits_here: bool,
}

impl Masks {
    /// What is really blocked while the program's code runs.
    pub fn real(&self) -> Set {
        let own = SYNCHRONOUS | self.live | self.at_once;
        ((self.programs & own) | !own) & !of(libc::SIGSYS)
    }

    /// Of those that are handled at once: what the program has not blocked itself.
    pub fn handled(&self) -> Set {
        self.at_once & !self.programs
    }

    /// What may end the process while it waits: what the program has not blocked itself, and does not come at once anyway.
    pub fn ending(&self) -> Set {
        match self.waits_here {
            // It comes at once to the program's code, and waits like all others while the library's runs.
            true => SENT & !self.programs,
            false => all_ending() & !(self.programs | self.live | self.at_once),
        }
    }

    /// The only process of a command has changed what is to be done with a signal. With its first handler all signals are the program's
    /// from here on, but while the library's code runs: so the kernel's frames of handlers hold the program's mask, and never one with more.
    pub fn handles_at_once(&mut self, signal: i32) {
        let is_sent = (1..=64).contains(&signal) && of(signal) & SENT != 0;
        let has_handler =
            || kernel_action(signal, None).is_ok_and(|now| now.handler > libc::SIG_IGN);
        if self.at_once != SENT && is_sent && has_handler() {
            let_all_in();
            (self.at_once, self.live, self.waits_here) = (SENT, 0, true);
        }
    }

    /// What the program has blocked during a call.
    pub fn during(&self, call: &Call) -> Set {
        let own = match call.number() {
            libc::SYS_ppoll => call.pointer::<Set>(3),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => call.pointer::<Set>(4),
            libc::SYS_pselect6 => {
                let given = call.pointer::<[u64; 2]>(5);
                let set = if given.is_null() { Ok([0; 2]) } else { given.read() };
                // SAFETY: the program gave its place.
                unsafe { UserPtr::new(set.map_or(0, |[set, _]| set)) }
            }
            _ => return self.programs,
        };
        if own.is_null() { self.programs } else { own.read().unwrap_or(self.programs) }
    }

    /// Of signals that are the program's, the kernel knows best what it has blocked: in a handler that is more.
    pub fn are_now(&mut self, real: Set) {
        let own = if self.at_once == SENT { !0 } else { self.at_once } & !of(libc::SIGSYS);
        self.programs = real & own | self.programs & !own;
    }

    /// `rt_sigprocmask`: on what the program sees.
    pub fn change(&mut self, call: &Call) -> i64 {
        let (set, old) = (call.pointer::<Set>(1), call.pointer::<Set>(2));
        if call.word(3) != SET {
            return -i64::from(libc::EINVAL);
        }
        let before = self.programs;
        if !set.is_null() {
            let Ok(set) = set.read() else { return -i64::from(libc::EFAULT) };
            self.programs = match call.int(0) {
                libc::SIG_BLOCK => before | set,
                libc::SIG_UNBLOCK => before & !set,
                libc::SIG_SETMASK => set,
                _ => return -i64::from(libc::EINVAL),
            } & !(of(libc::SIGKILL) | of(libc::SIGSTOP));
            if std::mem::take(&mut self.fresh) {
                self.before = self.programs;
            }
        }
        if !old.is_null() && old.write(before).is_err() {
            // As in the kernel, the mask has been changed.
            return -i64::from(libc::EFAULT);
        }
        0
    }
}

fn procmask(how: i32, set: Set) -> Set {
    let mut before: Set = 0;
    let args = [how as u64, (&raw const set) as u64, (&raw mut before) as u64, SET, 0, 0];
    // SAFETY: both sets are there.
    unsafe { syscall(libc::SYS_rt_sigprocmask, args) };
    before
}

/// Blocks what others may send; gives the mask of before.
pub fn block_sent() -> Set {
    let before = procmask(libc::SIG_BLOCK, !SYNCHRONOUS);
    if before & of(libc::SIGSYS) != 0 {
        procmask(libc::SIG_UNBLOCK, of(libc::SIGSYS));
    }
    before
}

/// Blocks everything; gives the mask of before.
pub fn block_all() -> Set {
    procmask(libc::SIG_SETMASK, !0)
}

/// Blocks these as well; gives the mask of before.
pub fn block(set: Set) -> Set {
    procmask(libc::SIG_BLOCK, set)
}

/// Blocks these no more.
pub fn unblock(set: Set) {
    procmask(libc::SIG_UNBLOCK, set);
}

/// Puts a mask in force; gives the one of before.
pub fn set_mask(mask: Set) -> Set {
    procmask(libc::SIG_SETMASK, mask)
}

/// Of [`ENDING`]: those before which the library says what becomes of the command, whose process they end.
static SAID: AtomicU64 = AtomicU64::new(0);
/// What it says, and what where something was live, for each of [`ENDING`].
static WORDS: OnceLock<[[String; 2]; ENDING.len()]> = OnceLock::new();
/// The dispositions of those as the program sees them: it has no handler.
static DEFAULTS: Mutex<[Action; ENDING.len()]> = Mutex::new([DEFAULT; ENDING.len()]);
const DEFAULT: Action = Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };

fn defaults() -> MutexGuard<'static, [Action; ENDING.len()]> {
    DEFAULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on no signal ends the process that others send and that nobody handles, whatever thread would take it, but SIGKILL.
/// Gives those that did.
pub fn ignore_ends() -> Set {
    let ignore = Action { handler: libc::SIG_IGN, ..DEFAULT };
    let mut ignored = 0;
    for signal in 1..=64 {
        if SENT & of(signal) != 0
            && !HARMLESS.contains(&signal)
            && real_action(signal, None).is_ok_and(|now| now.handler == libc::SIG_DFL)
            && real_action(signal, Some(&ignore)).is_ok()
        {
            ignored |= of(signal);
        }
    }
    ignored
}

/// These end the process again.
pub fn heed_ends(ends: Set) {
    for signal in (1..=64).filter(|&signal| ends & of(signal) != 0) {
        let _ = real_action(signal, Some(&DEFAULT));
    }
}

/// Has the library say something before one of these signals, which nobody handles, ends the process.
pub fn say_before(signals: Set, words: impl Fn(i32) -> [String; 2]) {
    let signals = signals & all_ending();
    if signals == 0 || WORDS.set(ENDING.map(words)).is_err() {
        return;
    }
    let mut defaults = defaults();
    for (signal, default) in ENDING.into_iter().zip(defaults.iter_mut()) {
        if signals & of(signal) == 0 {
            continue;
        }
        if let Ok(before) = real_action(signal, None)
            && before.handler == libc::SIG_DFL
            && real_action(signal, Some(&saying())).is_ok()
        {
            *default = before;
            SAID.fetch_or(of(signal), Ordering::Relaxed);
        }
    }
}

/// As if [`say_before`] had not been: another process says it, or there is nothing to be said any more.
pub fn say_no_more() {
    let said = SAID.swap(0, Ordering::Relaxed);
    let defaults = defaults();
    for (signal, default) in ENDING.into_iter().zip(defaults.iter()) {
        let is_ours = || {
            real_action(signal, None)
                .is_ok_and(|action| action.handler == say as *const () as usize)
        };
        if said & of(signal) != 0 && is_ours() {
            let _ = real_action(signal, Some(default));
        }
    }
}

/// The disposition by which that is said.
fn saying() -> Action {
    let (handler, flags) = (say as *const () as usize, libc::SA_ONSTACK as u64);
    returning(Action { handler, flags, ..DEFAULT })
}

/// Ends the process, as the signal does by itself. This may interrupt the program and the library wherever they are, so it takes
/// nothing of either but what never changes.
extern "C" fn say(signal: i32) {
    SAID.store(0, Ordering::Relaxed);
    let words = ENDING.iter().position(|&ending| ending == signal).zip(WORDS.get());
    if let Some(words) =
        words.and_then(|(at, words)| words[at].get(usize::from(was_something_live())))
    {
        let line = [2, words.as_ptr() as u64, words.len() as u64, 0, 0, 0];
        // SAFETY: the kernel reads it.
        unsafe { syscall(libc::SYS_write, line) };
    }
    take_default(signal);
}

/// `rt_sigaction`, of what the program sees.
fn kernel_action(signal: i32, new: Option<&Action>) -> Result<Action, i64> {
    if !(1..=64).contains(&signal) || SAID.load(Ordering::Relaxed) & of(signal) == 0 {
        return real_action(signal, new);
    }
    let Some(at) = ENDING.iter().position(|&ending| ending == signal) else {
        return real_action(signal, new);
    };
    let own = saying();
    let is_default = |action: &Action| action.handler == libc::SIG_DFL;
    let old = real_action(signal, new.map(|new| if is_default(new) { &own } else { new }))?;
    let mut defaults = defaults();
    let old = if old.handler == own.handler { defaults[at] } else { old };
    if let Some(new) = new.filter(|new| is_default(new)) {
        defaults[at] = *new;
    }
    Ok(old)
}

fn real_action(signal: i32, new: Option<&Action>) -> Result<Action, i64> {
    let mut old = Action::default();
    let new = new.map_or(0, |new| std::ptr::from_ref(new) as u64);
    let args = [signal as u64, new, (&raw mut old) as u64, SET, 0, 0];
    // SAFETY: both are there, or null.
    match unsafe { syscall(libc::SYS_rt_sigaction, args) } {
        0 => Ok(old),
        error => Err(error),
    }
}

fn programs() -> std::sync::MutexGuard<'static, Action> {
    PROGRAMS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the program wants to be done with a SIGSYS that is not ours.
pub fn programs_action() -> Action {
    *programs()
}

/// Whether the SIGSYS handler is ours by now.
pub fn trap_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Exchanges the program's disposition of SIGSYS.
pub fn exchange_programs(new: Option<Action>) -> Action {
    let mut own = programs();
    let old = *own;
    if let Some(new) = new {
        *own = new;
    }
    old
}

/// In a handler that blocks SIGSYS the first system call would end the process: Go's and Java's runtimes
/// install all of theirs so. Those of these signals let it through from here on.
pub fn let_traps_through(signals: Set) {
    let _one_at_a_time = programs();
    for signal in (1..=64).filter(|&signal| signals & of(signal) & !of(libc::SIGSYS) != 0) {
        let Ok(action) = kernel_action(signal, None) else { continue };
        if action.handler > libc::SIG_IGN && action.mask & of(libc::SIGSYS) != 0 {
            let _ = kernel_action(signal, Some(&with_traps(action)));
        }
    }
}

/// A handler in which system calls can be dispatched.
fn with_traps(action: Action) -> Action {
    Action { mask: action.mask & !of(libc::SIGSYS), ..action }
}

/// With the way in which our handlers return.
pub fn returning(action: Action) -> Action {
    let restorer = entry::restore as *const () as usize;
    Action { flags: action.flags | SA_RESTORER, restorer, ..action }
}

/// Exchanges a disposition; handlers return as ours do.
///
/// # Errors
/// The kernel's errno.
pub fn exchange(signal: i32, new: Option<Action>) -> Result<Action, i32> {
    let new = new.map(|action| returning(with_traps(action)));
    kernel_action(signal, new.as_ref())
        .map_err(|error| i32::try_from(-error).unwrap_or(libc::EINVAL))
}

/// Makes ours the handler of SIGSYS.
///
/// # Errors
/// The kernel's errno.
pub fn install_trap() -> Result<(), i32> {
    if trap_installed() {
        return Ok(());
    }
    let mut own = programs();
    if trap_installed() {
        return Ok(());
    }
    // Those that may end the process at any time may do so during a long call as well; they
    // are blocked by the transaction unless that is so.
    let ours = trap_with(ENDING.iter().fold(!0, |set, &signal| set & !of(signal)));
    *own = kernel_action(libc::SIGSYS, Some(&ours))
        .map_err(|error| i32::try_from(-error).unwrap_or(libc::EINVAL))?;
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Our handler of SIGSYS; what is blocked meanwhile.
fn trap_with(mask: Set) -> Action {
    Action {
        handler: match memory::is_loaded() {
            false => entry::trap as *const () as usize,
            true => entry::trap_beside as *const () as usize,
        },
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | SA_RESTORER,
        restorer: entry::restore as *const () as usize,
        mask,
    }
}

/// All signals that are sent are the program's, in the transaction: they are blocked only while the runtime's code
/// runs.
pub fn let_all_in() {
    let_traps_through(SENT);
    let _ = kernel_action(libc::SIGSYS, Some(&trap_with(!0)));
}

/// In a new process: what has a handler of the program's has none.
pub fn clear_handlers() {
    for signal in (1..=64).filter(|&signal| signal != libc::SIGSYS) {
        let handled = kernel_action(signal, None).is_ok_and(|now| now.handler > libc::SIG_IGN);
        if handled {
            let _ = kernel_action(signal, Some(&Action::default()));
        }
    }
    let mut own = programs();
    if own.handler > libc::SIG_IGN {
        *own = Action::default();
    }
}

/// Sends the thread a signal that it has no handler for any more.
pub fn take_default(signal: i32) {
    let _ = kernel_action(signal, Some(&Action::default()));
    // SAFETY: these take numbers only.
    unsafe {
        let ids = [libc::SYS_getpid, libc::SYS_gettid].map(|number| syscall(number, [0; 6]) as u64);
        syscall(libc::SYS_tgkill, [ids[0], ids[1], signal as u64, 0, 0, 0]);
    }
}

/// The signals that end a command as ever, since nobody has asked for anything else.
pub fn ending() -> Set {
    that_are_default(&ENDING)
}

/// Those of these signals of which nobody has asked for anything else than what they do by default.
pub fn that_are_default(signals: &[i32]) -> Set {
    let default = |&signal: &i32| {
        kernel_action(signal, None).is_ok_and(|action| action.handler == libc::SIG_DFL)
    };
    signals.iter().copied().filter(default).fold(0, |set, signal| set | of(signal))
}

/// Those of these signals that end the process by themselves.
fn that_end(signals: Set) -> Set {
    if signals & !all_ending() == 0 {
        return signals & ending();
    }
    let is_one = |signal: &i32| signals & of(*signal) != 0 && !HARMLESS.contains(signal);
    let all: Vec<i32> = (1..=64).filter(is_one).collect();
    that_are_default(&all)
}

/// Whether signals have come that would run handlers of the program's with this mask, and if so, whether all of these have
/// calls go on.
pub fn handlers_to_run(mask: Set) -> Option<bool> {
    let pending = pending() & SENT & !mask;
    let actions = (1..=64).filter(|&signal| pending & of(signal) != 0).filter_map(|signal| {
        kernel_action(signal, None).ok().filter(|action| action.handler > libc::SIG_IGN)
    });
    let restarts = |action: Action| action.flags & libc::SA_RESTART as u64 != 0;
    actions.map(restarts).reduce(|all, one| all && one)
}

/// The program has ended, and its process has not: no handler of it runs any more. What has been handled and ends a
/// command otherwise ends this one from now on. The others that have a handler: they are to be blocked.
pub fn without_handlers() -> Set {
    let is_function = |handler: usize| !matches!(handler, libc::SIG_DFL | libc::SIG_IGN);
    let mut handled = 0;
    for signal in 1..=64 {
        let is_ours = matches!(signal, libc::SIGSYS | libc::SIGKILL | libc::SIGSTOP);
        let action = kernel_action(signal, None);
        if is_ours || !action.is_ok_and(|action| is_function(action.handler)) {
            continue;
        }
        let ends = ENDING.contains(&signal) || SYNCHRONOUS & of(signal) != 0;
        if !ends || kernel_action(signal, Some(&Action::default())).is_err() {
            handled |= of(signal);
        }
    }
    handled
}

/// Does what may wait for long. Signals that would end the program natively, because it has no handler for them, end it
/// meanwhile in a transaction as well: Ctrl-C, above all. Nothing is being published, so that is an abort.
#[inline]
pub fn while_waiting<R>(work: impl FnOnce() -> R) -> R {
    let tls = here();
    let ends = match tls.ending.get() {
        0 => 0,
        some => that_end(some),
    };
    if ends == 0 {
        return outside::waiting(tls, work);
    }
    unblock(ends);
    let answer = outside::waiting(tls, work);
    block(ends);
    answer
}

/// Whether a signal has come that the program lets in with this mask.
pub fn has_come(mask: Set) -> bool {
    pending() & !mask != 0
}

/// What has arrived and is held back.
fn pending() -> Set {
    let mut pending: Set = 0;
    // SAFETY: the kernel writes the set.
    unsafe { syscall(libc::SYS_rt_sigpending, [(&raw mut pending) as u64, SET, 0, 0, 0, 0]) };
    pending
}

/// Of the signals that end a process, one that has arrived and is held back, unless the program handles it or has blocked
/// it itself.
pub fn ending_pending() -> Option<&'static str> {
    let ends = pending() & here().ending.get() & ending();
    let found = ENDING.into_iter().find(|&signal| ends & of(signal) != 0)?;
    Some(match found {
        libc::SIGINT => "SIGINT",
        libc::SIGTERM => "SIGTERM",
        libc::SIGHUP => "SIGHUP",
        _ => "SIGQUIT",
    })
}

/// Takes a signal back that has arrived and is held back.
pub fn take_back(signal: i32) {
    let (set, none) = (of(signal), [0_u64; 2]);
    let words = [(&raw const set) as u64, 0, none.as_ptr() as u64, SET, 0, 0];
    // SAFETY: the kernel reads the set and the time.
    unsafe { syscall(libc::SYS_rt_sigtimedwait, words) };
}

/// What the kernel tells of a signal: `siginfo_t`, word by word.
pub type Info = [u64; 16];

/// A signal that came while a handler was installed for it, and waits for the end: the program has taken the handler
/// away since.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    info: Info,
    action: Action,
}

/// Signals of a transaction that need more than a mask.
#[derive(Debug, Default)]
pub struct Kept {
    /// Handled at the end, by the handlers that there were.
    late: Vec<Late>,
    /// Taken by calls that wait for signals, with their handlers: an abort gives them back.
    taken: Vec<Late>,
}

impl Kept {
    /// Before a disposition changes: what has come for the handler that was there is the handler's.
    fn before(&mut self, signal: i32, new: &Action, blocked: Set) {
        if !(1..=64).contains(&signal) || of(signal) & SENT & !blocked == 0 {
            return;
        }
        let Ok(action) = kernel_action(signal, None) else { return };
        if action.handler <= libc::SIG_IGN || action.handler == new.handler {
            return;
        }
        while let Some(info) = wait_for(of(signal), Some(&[0; 2])) {
            self.late.push(Late { info, action });
        }
    }

    /// A signal was taken in the transaction.
    fn took(&mut self, info: Info) {
        let action = kernel_action(number(&info), None).unwrap_or_default();
        self.taken.push(Late { info, action });
    }

    /// Signals were read from a descriptor in the transaction.
    pub fn took_all(&mut self, all: Vec<Info>) {
        all.into_iter().for_each(|info| self.took(info));
    }

    /// What was taken is there again. It waits, as everything does until the end. If only the transaction had a
    /// handler for it, that is the one to handle it: without one it would end the process.
    pub fn give_back(&mut self) {
        for one in self.taken.drain(..) {
            let now = kernel_action(number(&one.info), None).unwrap_or_default();
            if now.handler == libc::SIG_DFL && one.action.handler > libc::SIG_IGN {
                self.late.push(one);
            } else {
                give_back(&one.info);
            }
        }
    }

    /// What is to be handled at the end.
    pub fn take_late(&mut self) -> Vec<Late> {
        std::mem::take(&mut self.late)
    }
}

/// `si_signo`.
fn number(info: &Info) -> i32 {
    info[0] as i32
}

/// Waits for one of these signals, which are blocked, and takes it. `None`: the time is over, or something else came.
fn wait_for(set: Set, time: Option<&[u64; 2]>) -> Option<Info> {
    let mut info: Info = [0; 16];
    let time = time.map_or(0, |time| time.as_ptr() as u64);
    let words = [(&raw const set) as u64, (&raw mut info) as u64, time, SET, 0, 0];
    // SAFETY: the kernel reads the set and the time, and writes what it tells.
    let answer = unsafe { syscall(libc::SYS_rt_sigtimedwait, words) };
    (answer > 0).then_some(info)
}

/// Sends the thread a signal that it has taken.
fn queue_to_self(info: &Info) {
    let signal = info[0] & 0xffff_ffff;
    // SAFETY: the kernel reads what is there.
    unsafe {
        let ids = [libc::SYS_getpid, libc::SYS_gettid].map(|number| syscall(number, [0; 6]) as u64);
        let words = [ids[0], ids[1], signal, info.as_ptr() as u64, 0, 0];
        syscall(libc::SYS_rt_tgsigqueueinfo, words);
    }
}

/// A signal that was taken waits again: for the process, if it was not sent to the thread. (That only its first thread
/// may say of a signal that the kernel, or another process, has sent.)
fn give_back(info: &Info) {
    let (signal, code) = (info[0] & 0xffff_ffff, info[1] as i32);
    // SAFETY: the kernel reads what is there.
    let answer = unsafe {
        let process = syscall(libc::SYS_getpid, [0; 6]) as u64;
        syscall(libc::SYS_rt_sigqueueinfo, [process, signal, info.as_ptr() as u64, 0, 0, 0])
    };
    if code == libc::SI_TKILL || answer < 0 {
        queue_to_self(info);
    }
}

/// Ends a transaction's hold on signals: those that are late are handled, and all others as this mask says.
pub fn release(late: Vec<Late>, mask: Set) {
    for Late { info, action } in late {
        let signal = number(&info);
        let Ok(present) = kernel_action(signal, Some(&action)) else { continue };
        queue_to_self(&info);
        set_mask(mask & !of(signal) & !of(libc::SIGSYS));
        block_sent();
        let used_up = action.flags & libc::SA_RESETHAND as u64 != 0;
        // A handler may have installed another.
        let stays = kernel_action(signal, None)
            .is_ok_and(|now| now == action || used_up && now.handler == libc::SIG_DFL);
        if stays {
            let _ = kernel_action(signal, Some(&present));
        }
    }
    set_mask(mask);
}

/// The signals that end a wait with this mask: a handler takes them, or they end the process.
fn waking(mask: Set) -> Set {
    let wakes = |&signal: &i32| {
        of(signal) & SENT & !mask != 0
            && kernel_action(signal, None).is_ok_and(|action| match action.handler {
                libc::SIG_DFL => !HARMLESS.contains(&signal),
                handler => handler != libc::SIG_IGN,
            })
    };
    (1..=64).filter(wakes).fold(0, |set, signal| set | of(signal))
}

/// `rt_sigsuspend` and `pause` in a transaction. The signal is taken first, so that it can be given back; then the
/// thread waits with the mask that the program wants, and its handler runs in the transaction.
///
/// # Errors
/// The errno of a call that is wrong.
pub fn suspend(masks: &Masks, kept: &mut Kept, call: &Call) -> Result<Set, i32> {
    let mask = match call.number() {
        libc::SYS_pause => masks.programs,
        _ if call.word(1) != SET => return Err(libc::EINVAL),
        _ => call.pointer::<Set>(0).read().map_err(|_| libc::EFAULT)?,
    };
    let mask = mask & !(of(libc::SIGKILL) | of(libc::SIGSTOP) | of(libc::SIGSYS));
    loop {
        // What another thread, or a handler, installs meanwhile is found when the next second begins.
        if let Some(info) = outside::waiting(here(), || wait_for(waking(mask), Some(&[1, 0]))) {
            kept.took(info);
            // Its handler runs in the transaction.
            let_traps_through(of(number(&info)));
            queue_to_self(&info);
            return Ok(mask);
        }
    }
}

/// `rt_sigtimedwait`: what it takes is given back by an abort.
pub fn take(kept: &mut Kept, call: &Call) -> i64 {
    let mut info: Info = [0; 16];
    let told = call.pointer::<Info>(1);
    // SAFETY: the kernel writes there what the program wants to be told.
    let own = unsafe { call.with_word(1, (&raw mut info) as u64) };
    let answer = outside::waiting(here(), || own.make());
    if answer <= 0 {
        return answer;
    }
    if !told.is_null() && told.write(info).is_err() {
        // As in the kernel, the signal is gone.
        kept.took(info);
        return -i64::from(libc::EFAULT);
    }
    kept.took(info);
    answer
}

/// Dispositions that a transaction has changed, and what they were.
#[derive(Debug, Default)]
pub struct Changed(Vec<(i32, Action)>);

impl Changed {
    /// Whether a signal that somebody sends would run a handler that the transaction has installed. `mask`: what is blocked.
    pub fn has_handlers(&self, mask: Set) -> bool {
        self.0.iter().any(|&(signal, _)| {
            of(signal) & SENT & !mask != 0
                && kernel_action(signal, None).is_ok_and(|action| action.handler > libc::SIG_IGN)
        })
    }

    /// `rt_sigaction`.
    pub fn change(&mut self, masks: &mut Masks, kept: &mut Kept, call: &Call) -> i64 {
        let (new, old) = (call.pointer::<Action>(1), call.pointer::<Action>(2));
        let signal = call.int(0);
        if call.word(3) != SET {
            return -i64::from(libc::EINVAL);
        }
        let new = match new.is_null() {
            true => None,
            false => match new.read() {
                Ok(new) => Some(new),
                Err(_) => return -i64::from(libc::EFAULT),
            },
        };
        let before = if signal == libc::SIGSYS {
            exchange_programs(new)
        } else {
            if let Some(new) = &new {
                kept.before(signal, new, masks.programs);
            }
            match kernel_action(signal, new.map(with_traps).as_ref()) {
                Ok(before) => before,
                Err(error) => return error,
            }
        };
        if let Some(new) = new {
            if !self.0.iter().any(|(changed, _)| *changed == signal) {
                self.0.push((signal, before));
            }
            if new.handler > libc::SIG_IGN {
                masks.live &= !of(signal);
            }
        }
        if !old.is_null() && old.write(before).is_err() {
            // As in the kernel, the disposition has been changed.
            return -i64::from(libc::EFAULT);
        }
        0
    }

    /// As it was before.
    pub fn undo(&mut self, masks: &Masks, kept: &mut Kept) {
        for (signal, action) in self.0.drain(..) {
            if signal == libc::SIGSYS {
                exchange_programs(Some(action));
            } else {
                kept.before(signal, &action, masks.before);
                let _ = kernel_action(signal, Some(&action));
            }
        }
    }
}
