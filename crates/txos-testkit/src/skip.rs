//! Tests that can't run here say so: `./test` counts the lines that start with `SKIP: `.

use std::io::Write;
use std::process::{Command, Stdio};

/// Says that a test was skipped. Straight to the descriptor: the test harness would swallow it.
pub fn say(reason: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let line = format!("\nSKIP: {test}: {reason}\n");
    // `./test` reads standard output; a skip that can't be told fails the count, not the test.
    let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
    let _ = std::io::stdout().flush();
}

/// Leaves the test, counted as skipped, unless the condition holds.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            $crate::skip::say(&format!($($reason)+));
            return;
        }
    };
}

/// Whether a long mode is on: `./test --long NAME`, or `$TXOS_TEST_LONG`, a comma-separated list.
pub fn long(name: &str) -> bool {
    let modes = std::env::var("TXOS_TEST_LONG").unwrap_or_default();
    modes.split(',').any(|mode| mode == name || mode == "all")
}

/// Whether this process is root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program can be found.
#[must_use]
pub fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$0\" >/dev/null"])
        .arg(program)
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
