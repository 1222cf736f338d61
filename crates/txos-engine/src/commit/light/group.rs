//! Group commit: those who wait for the log to be flushed share one `fdatasync`.
//!
//! Within a process one thread leads and the others sleep on a condition variable; leaders of several
//! processes queue for a byte of the control file, and find most of the time that what they waited
//! for was flushed by the one before. A process that dies lets go of the byte.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::control::{Control, FLUSH};
use super::log::Log;
use crate::error::Result;
use crate::sys;

#[derive(Debug, Default)]
struct Now {
    leading: bool,
    /// How much is known to be flushed.
    durable: u64,
}

/// The threads of a process that wait for one log.
#[derive(Debug, Default)]
pub(super) struct Group {
    now: Mutex<Now>,
    changed: Condvar,
    /// Number of flushes that this process has made.
    pub flushes: std::sync::atomic::AtomicU64,
}

impl Group {
    fn now(&self) -> MutexGuard<'_, Now> {
        // What it holds is a hint: a thread that panicked has left nothing half done.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the first `bytes` of the log are on the medium.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if flushing failed: then nothing is known of them.
    pub fn flush(&self, control: &Control, log: &Log, bytes: u64) -> Result<()> {
        let mut now = self.now();
        loop {
            if now.durable >= bytes {
                return Ok(());
            }
            if !now.leading {
                break;
            }
            now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        now.leading = true;
        drop(now);
        let led = self.lead(control, log, bytes);
        let mut now = self.now();
        now.leading = false;
        if let Ok(durable) = &led {
            now.durable = now.durable.max(*durable);
        }
        drop(now);
        self.changed.notify_all();
        led.map(drop)
    }

    fn lead(&self, control: &Control, log: &Log, bytes: u64) -> Result<u64> {
        control.lock(FLUSH)?;
        let flushed = self.flush_all(control, log, bytes);
        control.unlock(FLUSH);
        flushed
    }

    fn flush_all(&self, control: &Control, log: &Log, bytes: u64) -> Result<u64> {
        let durable = control.durable()?;
        if durable >= bytes {
            return Ok(durable);
        }
        // Everything that was appended by now goes along.
        let written = control.state()?.map_or(bytes, |state| state.written.max(bytes));
        self.flushes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if !sys::mistake("record-not-flushed") {
            log.flush()?;
        }
        control.set_durable(written)?;
        Ok(written)
    }
}
