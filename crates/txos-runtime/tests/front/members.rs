//! The scenarios of tests/c/members.c: several threads in one transaction.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use crate::build::{Link, command, compile, library, words};

fn program(link: Link) -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    static STATIC: OnceLock<PathBuf> = OnceLock::new();
    let made = if link == Link::Static { &STATIC } else { &SHARED };
    made.get_or_init(|| compile("members", link))
}

/// Runs one in a directory of its own.
fn run(name: &str, link: Link, as_command: bool) -> (Output, PathBuf) {
    let link_name = format!("{link:?}");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("front/members").join(link_name);
    let dir = dir.join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let mut command = if as_command {
        // The library must not be loaded into timeout(1).
        let mut command = command(Path::new("/usr/bin/env"));
        command.arg(format!("LD_PRELOAD={}", library("libtxos.so").display()));
        command.arg("TXOS_IN_PROCESS=quiet").arg(program(link));
        command
    } else {
        command(program(link))
    };
    (command.arg(name).current_dir(&dir).output().unwrap(), dir)
}

fn passes(name: &str, link: Link) {
    let (output, _) = run(name, link, false);
    assert!(output.status.success(), "{name}, {link:?}: {}", words(&output));
}

macro_rules! scenarios {
    ($($name:ident,)*) => {
        $(#[test] fn $name() { passes(stringify!($name), Link::Shared); })*

        #[test]
        fn all_in_one_file() {
            for name in [$(stringify!($name),)*] {
                passes(name, Link::Static);
            }
        }
    };
}

scenarios! {
    committed,
    aborted,
    many,
    again_and_again,
    pipes,
    pipes_with_other_numbers,
    fifos,
    sockets,
    file_locks,
    abort_by_member,
    begins_again,
    not_beside_members,
    waits_to_begin_again,
    abort_if,
    member_leaves,
    end_waits,
    member_ends,
    beginner_ends,
    exit_by_member,
    fork_beside,
    interrupted,
    signals,
    paused,
    share_and_join,
    join_as_another,
    managed,
}

/// A whole command commits when the process ends, whichever thread ends it.
#[test]
fn of_a_command() {
    let names = |dir: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    for (name, status, left) in [
        ("command", 0, &["by beginner", "by member"][..]),
        ("command_ended_by_member", 0, &["by beginner", "by member"]),
        ("command_whose_main_ends_first", 0, &["by beginner", "slowly"]),
        ("command_that_fails", 7, &[]),
    ] {
        let (output, dir) = run(name, Link::Shared, true);
        assert_eq!(output.status.code(), Some(status), "{name}: {}", words(&output));
        assert_eq!(names(&dir), left, "{name}: {}", words(&output));
    }
}
