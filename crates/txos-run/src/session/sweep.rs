//! Deleting what earlier transactions have left, while a command runs and its monitor has nothing to do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use txos_engine::store::Home;

/// Less urgent than what somebody waits for.
const NICE: i32 = 10;

/// A thread that empties the trash, entry by entry, until it is told to stop.
pub struct Sweep {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sweep {
    /// Begins, if there is a thread. What is not deleted is there for the next one, and for `gc`.
    #[must_use]
    pub fn begin(store: &Path) -> Sweep {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, store) = (Arc::clone(&stop), store.to_owned());
        let thread = std::thread::Builder::new().name("txos-sweep".into()).spawn(move || {
            // Of this thread alone.
            let _ = rustix::process::nice(NICE);
            txos_engine::sys::leave_thread_alone();
            if let Ok(Some(home)) = Home::open_existing(&store) {
                let _ = home.empty_trash_while(&|| !flag.load(Ordering::Acquire));
            }
        });
        Sweep { stop, thread: thread.ok() }
    }

    /// Tells it to stop, which it does after the entry that it is at.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
