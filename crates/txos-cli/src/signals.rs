//! Signals during a publish.
//!
//! # Safety
//! The unsafe calls are `signal(2)` with the constant dispositions `SIG_IGN` and what it returned
//! before; no handler of ours is ever installed.

/// While it lives, the signals that a terminal or a service manager sends to end or stop a
/// process are ignored: a publish takes milliseconds and must not be left half done in front of
/// other programs. (SIGKILL still leaves it to recovery.)
#[derive(Debug)]
pub struct Undisturbed {
    before: Vec<(libc::c_int, libc::sighandler_t)>,
}

impl Undisturbed {
    /// Begins to ignore them.
    pub fn begin() -> Self {
        let signals = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTSTP];
        let before = signals.into_iter().filter_map(|s| Some((s, ignore(s)?))).collect();
        Undisturbed { before }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        for &(signal, disposition) in &self.before {
            restore(signal, disposition);
        }
    }
}

/// Ignores a signal; gives what was in force before.
#[allow(unsafe_code)]
fn ignore(signal: libc::c_int) -> Option<libc::sighandler_t> {
    // SAFETY: SIG_IGN is a valid disposition for each of the signals, and runs no code.
    let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
    (before != libc::SIG_ERR).then_some(before)
}

#[allow(unsafe_code)]
fn restore(signal: libc::c_int, disposition: libc::sighandler_t) {
    // SAFETY: `disposition` is what signal(2) returned for this signal, hence valid for it.
    unsafe {
        libc::signal(signal, disposition);
    }
}
