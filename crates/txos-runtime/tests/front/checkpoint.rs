//! The scenarios of tests/c/checkpoint.c: memory after an abort.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use crate::build::{Link, command, compile, text, words};

fn program(link: Link) -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    static STATIC: OnceLock<PathBuf> = OnceLock::new();
    let made = match link {
        Link::Shared => &SHARED,
        Link::Archive => &ARCHIVE,
        Link::Static => &STATIC,
    };
    made.get_or_init(|| compile("checkpoint", link))
}

/// Runs one in a directory of its own. All functions are found at the start: one that is found at its first
/// call changes the program's memory.
fn run(arguments: &[&str], link: Link) -> Output {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("front/checkpoint");
    let dir = dir.join(format!("{}-{link:?}", arguments.join("-")));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let mut command = command(program(link));
    command.args(arguments).current_dir(&dir).env("LD_BIND_NOW", "1").output().unwrap()
}

fn passes(name: &str, link: Link) {
    let output = run(&[name], link);
    assert!(output.status.success(), "{name}, {link:?}: {}", words(&output));
}

macro_rules! scenarios {
    ($($name:ident,)*) => {
        $(#[test] fn $name() { passes(stringify!($name), Link::Shared); })*
    };
}

scenarios! {
    everything,
    restart,
    frames,
    state,
    calls,
    mappings,
    files,
    forks,
    nobody_is_left,
    refusals,
    random_calls,
    scattered,
}

#[test]
fn without_a_library_of_its_own() {
    passes("linked_in", Link::Archive);
    passes("linked_in", Link::Static);
}

#[test]
fn lost() {
    let output = run(&["lost"], Link::Shared);
    // `timeout` ends as its command did.
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert!(
        killed == Some(libc::SIGABRT) || output.status.code() == Some(134),
        "{}",
        words(&output)
    );
    let said = text(&output.stderr);
    assert!(said.contains("is rolled back, but memory could not be put back"), "{said}");
}
