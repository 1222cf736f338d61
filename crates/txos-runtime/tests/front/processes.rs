//! The scenarios of tests/c/processes.c: several processes in a program's own transaction.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use crate::build::{Link, command, compile, words};

fn program(link: Link) -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    static STATIC: OnceLock<PathBuf> = OnceLock::new();
    let made = if link == Link::Static { &STATIC } else { &SHARED };
    made.get_or_init(|| compile("processes", link))
}

/// Runs one in a directory of its own.
fn run(name: &str, link: Link) -> Output {
    let link_name = format!("{link:?}");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("front/processes").join(link_name);
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
            let programs = ["programs", "descriptors"];
            for name in [$(stringify!($name),)*].into_iter().filter(|name| !programs.contains(name)) {
                passes(name, Link::Static);
            }
        }
    };
}

scenarios! {
    committed,
    aborted,
    kinds,
    programs,
    descriptors,
    own_directory_and_mask,
    leaves,
    abort_by_child,
    abort_kills,
    begins_again,
    conflict_of_child,
    child_killed,
    beginner_killed,
    beginner_exits,
    beginner_runs_a_program,
    end_waits,
    beside_threads,
    many,
    signals,
    refused,
}

#[test]
fn the_end_says_what_it_waits_for() {
    let said = words(&run("end_waits", Link::Archive));
    assert!(said.contains("sys_xend waits for 1 process of the transaction"), "{said}");
}

#[test]
fn programs_need_the_shared_library() {
    let said = words(&run("programs", Link::Static));
    assert!(said.contains("into which libtxos.so can't be loaded"), "{said}");
}
