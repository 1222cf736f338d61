//! Signals: the mask and the dispositions as the program sees them, and the SIGSYS handler.
//!
//! In a transaction every signal that somebody sends is blocked, and delivered after the end: its
//! handler would run in the middle of the transaction and see, and do, what belongs to neither
//! side. Signals that an instruction raises stay as they are. The mask that the program sets
//! meanwhile is kept here, and put in force at the end (of an abort: the one of before).
//!
//! The exception are signals with which a language's runtime stops its own threads
//! ([`set_at_once`]): it would wait for a thread that does not answer. Their handlers run in the
//! program's code only. While runtime code runs they are blocked like the others.
#![allow(unsafe_code)] // raw system calls, and memory that the program points at

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::entry;
use crate::call::Call;
use crate::raw::syscall;
use crate::user::Plain;

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

/// What ends a command that runs as one transaction at once, if nobody handles it.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

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

/// Blocks these as well.
pub fn block(set: Set) {
    procmask(libc::SIG_BLOCK, set);
}

/// Blocks these no more.
pub fn unblock(set: Set) {
    procmask(libc::SIG_UNBLOCK, set);
}

/// Puts a mask in force; gives the one of before.
pub fn set_mask(mask: Set) -> Set {
    procmask(libc::SIG_SETMASK, mask)
}

fn kernel_action(signal: i32, new: Option<&Action>) -> Result<Action, i64> {
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
        handler: entry::trap as *const () as usize,
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
    let default = |&signal: &i32| {
        kernel_action(signal, None).is_ok_and(|action| action.handler == libc::SIG_DFL)
    };
    ENDING.iter().copied().filter(default).fold(0, |set, signal| set | of(signal))
}

/// Of the signals that end a process, one that has arrived and is held back, unless the program handles it.
pub fn ending_pending() -> Option<&'static str> {
    let mut pending: Set = 0;
    // SAFETY: the kernel writes the set.
    unsafe { syscall(libc::SYS_rt_sigpending, [(&raw mut pending) as u64, SET, 0, 0, 0, 0]) };
    let found = ENDING.into_iter().find(|&signal| pending & ending() & of(signal) != 0)?;
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

/// Dispositions that a transaction has changed, and what they were.
#[derive(Debug, Default)]
pub struct Changed(Vec<(i32, Action)>);

impl Changed {
    /// `rt_sigaction`.
    pub fn change(&mut self, masks: &mut Masks, call: &Call) -> i64 {
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
    pub fn undo(&mut self) {
        for (signal, action) in self.0.drain(..) {
            if signal == libc::SIGSYS {
                exchange_programs(Some(action));
            } else {
                let _ = kernel_action(signal, Some(&action));
            }
        }
    }
}
