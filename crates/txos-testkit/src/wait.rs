//! Waiting for something to become true, never for time to pass.

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(120);

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
