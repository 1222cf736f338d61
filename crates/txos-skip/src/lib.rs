//! Tests that can't run here say so: `./test` counts the lines that start with `SKIP: `.
//!
//! A crate of its own, which depends on nothing, so that the tests of every crate can use it. It is the
//! only way to leave a test: `./test` fails for any other one.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// Says that a test was skipped. The line reaches the log of a test that passes as well: the test
/// harness captures what `print!` writes, and not what is written to the stream itself.
pub fn say(reason: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let mut out = std::io::stdout().lock();
    // A skip that can't be told fails the count, not the test.
    let _ = out.write_all(format!("\nSKIP: {test}: {reason}\n").as_bytes());
    let _ = out.flush();
}

/// Leaves the test, counted as skipped, unless the condition holds.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            $crate::say(&format!($($reason)+));
            return;
        }
    };
}

/// What an option holds; leaves the test, counted as skipped, if it is empty.
#[macro_export]
macro_rules! require_some {
    ($option:expr, $($reason:tt)+) => {
        match $option {
            Some(value) => value,
            None => {
                $crate::say(&format!($($reason)+));
                return;
            }
        }
    };
}

/// Whether a long mode is on: `./test --long NAME`, or `$TXOS_TEST_LONG`, a comma-separated list.
#[must_use]
pub fn long(name: &str) -> bool {
    let modes = std::env::var("TXOS_TEST_LONG").unwrap_or_default();
    modes.split(',').any(|mode| mode == name || mode == "all")
}

/// Whether this process is root.
#[must_use]
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;

    /// Run by the other one.
    #[test]
    fn leaves() {
        let Some(option) = std::env::var_os("TXOS_TEST_SKIP") else { return };
        require!(option != "first", "one {}", "reason");
        let _left: u8 = require_some!(None, "another reason");
        unreachable!();
    }

    #[test]
    fn the_line_of_a_test_that_passes_reaches_the_log() {
        for (option, reason) in [("first", "one reason"), ("second", "another reason")] {
            let test = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::leaves"])
                .env("TXOS_TEST_SKIP", option)
                .output()
                .unwrap();
            let text = String::from_utf8(test.stdout).unwrap();
            assert!(test.status.success(), "{text}");
            let line = format!("SKIP: tests::leaves: {reason}");
            assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{text}");
        }
    }
}
