//! Named points in a worker's life, at which the test may have it die, stop, or meet it.
//!
//! `TXOS_REALM_AT=ACTION:POINT[@N],…` — at the *N*th time (1 without it) that the point is reached:
//!
//! | action | |
//! |---|---|
//! | `kill` | SIGKILL to itself |
//! | `stop` | SIGSTOP to itself |
//! | `meet` | a line to descriptor 8, one from descriptor 9 ([`crate::Rendezvous`]) |
//!
//! | point | when |
//! |---|---|
//! | `ready` | one of the short ones of [`super::starve`] is about to start |
//! | `begun` | a transaction has begun |
//! | `acquired` | it has acquired something |
//! | `prepared` | it has said that it is about to publish |
//! | `early` | a redo record written before that is complete |
//! | `publish` | it is publishing; nothing is written, unless `early` |
//! | `half` | a redo record is written to its half |
//! | `record` | it is complete, and no word set |
//! | `word` | one more word is set |
//! | `words` | all are |
//! | `wait` | it is told that it waits |
//! | `settling`, `settle` | it settles for a dead one: at first, after each word |

use std::io::{Read, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// The variable's name.
pub const VARIABLE: &str = "TXOS_REALM_AT";

struct Point {
    action: String,
    name: String,
    left: AtomicU32,
}

fn points() -> &'static [Point] {
    static POINTS: OnceLock<Vec<Point>> = OnceLock::new();
    POINTS.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        text.split(',').filter(|one| !one.is_empty()).map(parse).collect()
    })
}

fn parse(text: &str) -> Point {
    let (action, rest) = text.split_once(':').expect("ACTION:POINT");
    let (name, count) = rest.split_once('@').unwrap_or((rest, "1"));
    let left = AtomicU32::new(count.parse().expect("the number of a time"));
    Point { action: action.to_owned(), name: name.to_owned(), left }
}

/// Whether something is to happen somewhere.
#[must_use]
pub fn any() -> bool {
    !points().is_empty()
}

/// A point is reached.
///
/// # Panics
/// If the variable is wrong.
pub fn reach(name: &str) {
    for point in points().iter().filter(|point| point.name == name) {
        let less = |left: u32| left.checked_sub(1);
        if point.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) != Ok(1) {
            continue;
        }
        match point.action.as_str() {
            "kill" => signal(Signal::KILL),
            "stop" => signal(Signal::STOP),
            "meet" => meet(),
            other => panic!("{VARIABLE}: there is no action {other}"),
        }
    }
}

fn signal(signal: Signal) {
    kill_process(getpid(), signal).expect("a signal to itself");
}

/// Tells the test that it is here, and waits to be told to go on.
///
/// # Panics
/// If there is nobody to meet.
pub fn meet() {
    let open = |write: bool, number: u32| {
        let path = format!("/proc/self/fd/{number}");
        std::fs::OpenOptions::new().read(!write).write(write).open(path).expect("a rendezvous")
    };
    open(true, 8).write_all(b"\n").expect("meeting the test");
    let mut line = [0];
    // The end of the test is an end too; the parent's death ends this process then.
    let _ = open(false, 9).read(&mut line).expect("being told to go on");
}
