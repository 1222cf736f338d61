//! Mappings and standard error of a program from before its transaction. See `c/mapped.c` for what each scenario does.

use std::fs::File;
use std::process::Command;

use txos_testkit::Lab;

use crate::place::start;
use crate::program::{Linked, program};

fn ran(scenario: &str) {
    let lab = Lab::new();
    let done = start(&lab, "mapped", Linked::WithLibrary).arg(scenario).run().expect(0);
    assert_eq!(done.stderr, "", "{scenario}");
    lab.expect_clean();
}

#[test]
fn a_file_that_is_mapped_and_written_to_is_refused() {
    ran("reads");
}

#[test]
fn a_file_that_is_mapped_and_locked_for_a_write_elsewhere_is_refused() {
    ran("locks");
}

#[test]
fn other_mappings_are_in_nobodys_way() {
    ran("others");
}

/// The slave that the C library opens by its master is the transaction's own.
#[test]
fn a_terminal_ends_when_its_last_user_closes_it() {
    let lab = Lab::new();
    let _ = start(&lab, "mapped", Linked::WithLibrary).arg("terminal").run().expect(0);
}

#[test]
fn a_warning_in_the_file_of_standard_error_is_no_conflict() {
    let (lab, elsewhere) = (Lab::new(), Lab::in_memory());
    let outside =
        std::path::Path::new("/dev/shm").join(format!("txos-warned-{}", std::process::id()));
    let log = lab.tree().join("log");
    let ended = Command::new(program("mapped", Linked::WithLibrary))
        .arg("warned")
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .env("OUTSIDE", &outside)
        .current_dir(lab.tree())
        .stderr(File::create(&log).unwrap())
        .status()
        .unwrap();
    let _ = std::fs::remove_file(outside);
    drop(elsewhere);
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(ended.success(), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"within"), "{said}");
    assert!(lines.get(1).is_some_and(|line| line.starts_with("txos: ")), "{said}");
    assert!(!said.contains("aborted") && lab.tree().join("made").exists(), "{said}");
}
