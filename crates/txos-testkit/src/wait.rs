//! Waiting for something to become true, never for time to pass.

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
///
/// It ends what hangs. It measures nothing: a test that only takes long, on a slow machine, doesn't reach it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How long a compiler may take that has kept nothing of an earlier build, beside other tests that build too.
pub const BUILD_PATIENCE: Duration = Duration::from_secs(1200);

/// How often a condition that nothing announces is looked at.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(PAUSE);
    }
}
