//! The scenarios of tests/c/joining.c: processes that run already join a program's own transaction.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use crate::build::{Link, command, compile, words};

fn program(link: Link) -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    static STATIC: OnceLock<PathBuf> = OnceLock::new();
    let made = if link == Link::Static { &STATIC } else { &SHARED };
    made.get_or_init(|| compile("joining", link))
}

/// Runs one in a directory of its own.
fn run(name: &str, link: Link) -> Output {
    let link_name = format!("{link:?}");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("front/joining").join(link_name);
    let dir = dir.join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    command(program(link)).arg(name).current_dir(&dir).output().unwrap()
}

fn passes(name: &str, link: Link) {
    let output = run(name, link);
    assert!(output.status.success(), "{name}, {link:?}: {}", words(&output));
}

macro_rules! scenarios {
    ($($name:ident,)*) => {
        $(#[test] fn $name() { passes(stringify!($name), Link::Shared); })*

        /// Other programs can't be run there: the library can't be loaded into them.
        #[test]
        fn all_in_one_file() {
            let programs = ["programs"];
            for name in [$(stringify!($name),)*].into_iter().filter(|name| !programs.contains(name)) {
                passes(name, Link::Static);
            }
        }
    };
}

scenarios! {
    committed,
    aborted,
    abort_by_other,
    begins_again,
    other_killed,
    ends_inside,
    beginner_killed,
    programs,
    refused,
    many,
    socket_race,
    beside_threads,
    thread_of_who_began,
    numbers,
    taken_number,
    signals_after_abort,
}
