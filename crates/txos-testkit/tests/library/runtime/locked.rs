//! Locks that transactions share with processes outside: nobody's update is lost. See `c/locked.c`.

use std::process::{Child, Command, Stdio};

use txos_testkit::Lab;

use crate::program::{Linked, program};

fn count(lab: &Lab, place: &str, kind: &str, rounds: u32) -> Child {
    Command::new(program("locked", Linked::WithLibrary))
        .args([place, kind, &rounds.to_string()])
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .current_dir(lab.tree())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn is_exact(kind: &str) {
    const INSIDE: u32 = 400;
    const OUTSIDE: u32 = 20_000;
    let lab = Lab::new();
    std::fs::write(lab.path("counter"), "0000000000\n").unwrap();
    let children = [("in", INSIDE), ("in", INSIDE), ("out", OUTSIDE)]
        .map(|(place, rounds)| count(&lab, place, kind, rounds));
    for child in children {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    assert_eq!(lab.read("counter"), format!("{:010}\n", 2 * INSIDE + OUTSIDE));
    lab.expect_clean();
}

#[test]
fn no_update_is_lost_under_a_record_lock() {
    is_exact("record");
}

#[test]
fn no_update_is_lost_under_a_lock_of_the_file() {
    is_exact("file");
}
