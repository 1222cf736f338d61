//! Signals once the command has ended: noted, and acted upon where that leaves nothing half done.
//!
//! # Safety
//! The unsafe calls are `signal(2)` with `SIG_IGN`, with a handler that only stores a number in an
//! atomic (async-signal-safe), and with what it returned before. Its BSD semantics (glibc and
//! musl alike) restart interrupted calls, so that nothing else has to know.

use std::sync::atomic::{AtomicI32, Ordering};

/// The last signal that asked to end; 0 for none.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// While it lives, the signals with which a terminal or a service manager ends a process are noted
/// instead, and the one that stops it is ignored: a publish takes milliseconds and must not be
/// left half done in front of other programs. (SIGKILL leaves it to recovery.)
#[derive(Debug)]
pub struct Deferred {
    before: Vec<(libc::c_int, libc::sighandler_t)>,
}

impl Deferred {
    /// Begins to note them.
    pub fn begin() -> Self {
        ASKED.store(0, Ordering::Relaxed);
        let handler: extern "C" fn(libc::c_int) = note;
        let noted = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
        let dispositions = noted.map(|s| (s, handler as libc::sighandler_t));
        let before = dispositions
            .into_iter()
            .chain([(libc::SIGTSTP, libc::SIG_IGN)])
            .filter_map(|(signal, new)| Some((signal, set(signal, new)?)))
            .collect::<Vec<_>>();
        // nohup(1), and shells for background jobs, ignore some: that stays.
        for &(signal, disposition) in before.iter().filter(|(_, d)| *d == libc::SIG_IGN) {
            set(signal, disposition);
        }
        Deferred { before }
    }

    /// The signal that has asked to end, if one has.
    #[expect(clippy::unused_self, reason = "there is nothing to ask before it begins")]
    pub fn asked(&self) -> Option<i32> {
        asked()
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        for &(signal, disposition) in &self.before {
            set(signal, disposition);
        }
    }
}

/// The signal that has asked to end since the last [`Deferred`] began.
pub fn asked() -> Option<i32> {
    Some(ASKED.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// Does what leaves the terminal to another program, such as a pager or an editor: an interrupt that is typed
/// meanwhile is for that one.
pub fn lend_terminal<T>(work: impl FnOnce() -> T) -> T {
    let before = ASKED.load(Ordering::Relaxed);
    let deferred = Deferred::begin();
    let done = work();
    drop(deferred);
    if matches!(ASKED.load(Ordering::Relaxed), 0 | libc::SIGINT | libc::SIGQUIT) {
        ASKED.store(before, Ordering::Relaxed);
    }
    done
}

extern "C" fn note(signal: libc::c_int) {
    ASKED.store(signal, Ordering::Relaxed);
}

/// Takes every signal again. Who answers a question from inside a transaction is started by its monitor, which
/// collects them.
#[allow(unsafe_code)]
pub fn unblock() {
    // SAFETY: an empty set, which sigemptyset fills in, becomes this thread's mask; there is no other thread yet.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Sets a disposition; gives what was in force before.
#[allow(unsafe_code)]
fn set(signal: libc::c_int, disposition: libc::sighandler_t) -> Option<libc::sighandler_t> {
    // SAFETY: `disposition` is SIG_IGN, a handler that is async-signal-safe, or what signal(2)
    // returned for this signal.
    let before = unsafe { libc::signal(signal, disposition) };
    (before != libc::SIG_ERR).then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_noted_and_the_process_lives() {
        let deferred = Deferred::begin();
        assert_eq!(deferred.asked(), None);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
            .unwrap();
        while deferred.asked().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(deferred.asked(), Some(libc::SIGTERM));
        drop(deferred);
        for signal in [libc::SIGTERM, libc::SIGTSTP] {
            assert_eq!(set(signal, libc::SIG_DFL), Some(libc::SIG_DFL), "all is as it was");
        }
    }
}
