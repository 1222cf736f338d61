//! What is said, and done, about waiting for a transaction that itself waits for something that only the kernel sees.
//!
//! Only one transaction is waited for so: an ordered one whose turn comes first. Whether it waits for what this one
//! holds, nobody can know, but for a mutex of the C library, which has its owner beside the word that is waited at. So
//! this is reported, and ends the wait only if the owner is the very thread that waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use txos_engine::realm::{OutsideWait, WaitInfo};

use super::{Tx, kernel};

/// After so long on both sides it is no wait like any other.
const LONG: Duration = Duration::from_secs(1);

/// A transaction can't end before one that waits for it.
#[derive(Clone, Debug)]
pub struct Deadlock {
    /// The process of that one.
    pub pid: i32,
    /// In words.
    pub what: String,
}

/// Why a transaction was aborted that waited for one that can't end before it, if so.
#[derive(Clone, Debug, Default)]
pub struct FoundDeadlock(Arc<Mutex<Option<Deadlock>>>);

impl FoundDeadlock {
    /// Why.
    #[must_use]
    pub fn take(&self) -> Option<Deadlock> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    fn set(&self, why: Deadlock) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(why);
    }
}

/// What is known of a wait that has lasted.
#[derive(Debug)]
pub enum Known {
    /// In words: who holds what.
    Report(String),
    /// The one that is waited for waits for this thread.
    Deadlock,
}

/// Looks at one that waits for another. `None`: it is a wait like any other.
pub fn look(info: &WaitInfo, deadlock: &FoundDeadlock) -> Option<Known> {
    let (wait, for_long) = info.outside?;
    if info.waited < LONG || for_long < LONG {
        return None;
    }
    let pid = info.holder.pid;
    let owner = owner_of_mutex(pid, wait);
    let held = describe(pid, wait, owner);
    let seconds = for_long.as_secs_f64();
    if owner.is_some_and(|owner| owner.cast_signed() == kernel::own_thread()) {
        let what = format!(
            "deadlock: it waited for transaction {}, which for {seconds:.1} s has waited for {held}, and that is this \
             thread",
            info.holder
        );
        deadlock.set(Deadlock { pid: i32::try_from(pid).unwrap_or(0), what });
        return Some(Known::Deadlock);
    }
    Some(Known::Report(format!(
        "waiting for transaction {}. That one has itself waited for {seconds:.1} s for {held}: if this process, or one \
         that waits for it, is to end that wait, neither goes on",
        info.holder
    )))
}

impl Tx {
    /// Before it waits at a futex, having begun again: the last attempt may have taken a mutex that nobody gives back.
    pub fn look_for_own_mutex(&mut self, at: u64) {
        if self.how.attempt == 0 {
            return;
        }
        let wait = OutsideWait { call: libc::SYS_futex as u32, argument: at };
        let own = kernel::own_process().cast_unsigned();
        let is_own = owner_of_mutex(own, wait).map(u32::cast_signed) == Some(kernel::own_thread());
        if is_own && self.report.is_first("a mutex of its own") {
            super::say(&format!(
                "the transaction has begun again and waits for the mutex at {at:#x}, which this thread itself took in an \
                 earlier attempt: with TX_RESTART no lock is given back, so it waits for ever"
            ));
        }
    }
}

/// What is waited for.
fn describe(pid: u32, wait: OutsideWait, owner: Option<u32>) -> String {
    let number = i64::from(wait.call);
    let name = txos_calls::name(number).unwrap_or("?");
    match (number, owner) {
        (libc::SYS_futex, Some(thread)) => {
            format!("the mutex at {:#x} (futex) of thread {thread}", wait.argument)
        }
        (libc::SYS_futex, None) => format!("the futex at {:#x}", wait.argument),
        _ if txos_calls::descriptors(number).next() == Some(0) => {
            let fd = wait.argument as u32;
            let what = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"));
            let what = what.map(|what| {
                use std::os::unix::ffi::OsStrExt;
                format!(", {}", txos_engine::show::quoted_bytes(what.as_os_str().as_bytes()))
            });
            format!("descriptor {fd} ({name}{})", what.unwrap_or_default())
        }
        _ => format!("something outside ({name})"),
    }
}

/// The thread that has the mutex which a thread waits for at a futex, if that is a mutex of the C library, and the
/// process lets itself be looked at.
fn owner_of_mutex(pid: u32, wait: OutsideWait) -> Option<u32> {
    if i64::from(wait.call) != libc::SYS_futex {
        return None;
    }
    // `struct __pthread_mutex_s` begins so on x86-64: lock, count, owner.
    let [lock, _, owner] = kernel::words_of(pid, wait.argument)?;
    let thread = lock & 0x3fff_ffff;
    let is_taken = matches!(lock, 1 | 2) || thread == owner;
    let lives = || std::path::Path::new(&format!("/proc/{owner}")).exists();
    (is_taken && owner != 0 && lives()).then_some(owner)
}
