//! What calls a transaction off when its time is over.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Shared {
    /// The library looks at it.
    over: AtomicI32,
    ended: Mutex<bool>,
    end: Condvar,
}

/// A thread that waits, and ends with this.
#[derive(Debug)]
pub struct Timer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Timer {
    /// Begins to count.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start(limit: Duration) -> std::io::Result<Timer> {
        let shared = Arc::<Shared>::default();
        let deadline = Instant::now().checked_add(limit);
        let theirs = Arc::clone(&shared);
        let wait = move || {
            let Some(deadline) = deadline else { return };
            let mut ended = theirs.ended.lock().unwrap_or_else(PoisonError::into_inner);
            while !*ended {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    theirs.over.store(1, Ordering::Relaxed);
                    return;
                }
                let woken = theirs.end.wait_timeout(ended, left);
                ended = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        let thread = std::thread::Builder::new().name("txos-timer".into()).spawn(wait)?;
        Ok(Timer { shared, thread: Some(thread), process: std::process::id() })
    }

    /// What is not 0 when the time is over; it stays where it is as long as this lives.
    pub fn flag(&self) -> *const i32 {
        self.shared.over.as_ptr()
    }

    /// Whether the time was over.
    pub fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // A child of the process has no such thread.
        let Some(thread) = self.thread.take().filter(|_| std::process::id() == self.process) else {
            return;
        };
        *self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.end.notify_one();
        let _ = thread.join();
    }
}
