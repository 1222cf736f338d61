//! The scenarios of tests/c/processes.c: several processes in a program's own transaction.

use crate::build::{Link, run, words};

scenarios_of! {
    "processes", without ["programs", "descriptors"],
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
    let said = words(&run("processes", "end_waits", Link::Archive));
    assert!(said.contains("sys_xend waits for 1 process of the transaction"), "{said}");
}

#[test]
fn programs_need_the_shared_library() {
    let said = words(&run("processes", "programs", Link::Static));
    assert!(said.contains("into which libtxos.so can't be loaded"), "{said}");
}
