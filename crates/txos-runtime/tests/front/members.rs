//! The scenarios of tests/c/members.c: several threads in one transaction.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use crate::build::{Link, command, compile, words};

fn program(link: Link) -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    static STATIC: OnceLock<PathBuf> = OnceLock::new();
    let made = if link == Link::Static { &STATIC } else { &SHARED };
    made.get_or_init(|| compile("members", link))
}

/// Runs one in a directory of its own.
fn run(name: &str, link: Link) -> Output {
    let link_name = format!("{link:?}");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("front/members").join(link_name);
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
    abort_waits_to_begin_again,
    abort_if,
    destructors,
    set_ids,
    join_with_own_tables,
    member_leaves,
    end_waits,
    member_ends,
    beginner_ends,
    main_ends_first,
    exit_by_member,
    fork_beside,
    interrupted,
    signals,
    paused,
    share_and_join,
    join_as_another,
    managed,
}
