//! What the library tells people on standard error.
//!
//! Standard error may lead to a file to which the program writes in its transaction as well. What the library wrote there meanwhile
//! would be an outsider's change, and so a conflict. So from then on it waits until no transaction runs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use txos_engine::object::FileId;

use super::kernel;

/// How many transactions of this process run.
static RUNNING: AtomicU32 = AtomicU32::new(0);
/// Whether one of them has changed the file of standard error.
static CHANGED: AtomicBool = AtomicBool::new(false);
/// What waits.
static WAITING: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// As long as one lives, a transaction runs.
#[derive(Debug)]
pub struct Running;

impl Running {
    /// One begins.
    pub fn begins() -> Running {
        RUNNING.fetch_add(1, Ordering::AcqRel);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // (A child that ends its parent's has none.)
        let less = |running: u32| running.checked_sub(1);
        let last = RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1);
        if last
            && CHANGED.load(Ordering::Acquire)
            && let Some(mut waiting) = at_last(&WAITING)
        {
            CHANGED.store(false, Ordering::Release);
            let lines = std::mem::take(&mut *waiting);
            drop(waiting);
            write(&lines);
        }
    }
}

/// A lock that others have for a moment only. `None`: for ever, it seems: a thread had it that is not in this child.
pub fn at_last<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    const TRIES: u32 = 10_000;
    for _ in 0..TRIES {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// In a child: what runs, and what waits, is its parent's.
pub fn after_fork() {
    RUNNING.store(0, Ordering::Release);
    CHANGED.store(false, Ordering::Release);
    // Another thread may have held the lock when the process was copied.
    if let Ok(mut waiting) = WAITING.try_lock() {
        waiting.clear();
    }
}

/// A transaction of the program's is about to change a file that is open since before.
pub fn before_change(file: FileId) {
    if !CHANGED.load(Ordering::Acquire) && kernel::identify_fd(2).is_ok_and(|at| at.id == file) {
        CHANGED.store(true, Ordering::Release);
    }
}

/// Tells the user something, past everything.
pub fn say(text: &str) {
    // One call, so that nobody's output gets in between; and it can't be told if that fails.
    let line = format!("txos: {text}\n");
    // Who ends the last transaction looks what waits after it has ended.
    if CHANGED.load(Ordering::Acquire)
        && let Some(mut waiting) = at_last(&WAITING)
        && RUNNING.load(Ordering::Acquire) != 0
    {
        waiting.extend(line.bytes());
        return;
    }
    write(line.as_bytes());
}

fn write(mut bytes: &[u8]) {
    // None is no call.
    while !bytes.is_empty()
        && let Ok(written @ 1..) = kernel::write(2, bytes)
    {
        bytes = bytes.get(written..).unwrap_or_default();
    }
}
