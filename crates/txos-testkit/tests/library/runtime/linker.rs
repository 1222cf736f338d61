//! No transaction begins again within the dynamic linker or the C library's allocator, the log is told at once, and `exit` ends one.
//! See `c/linker.c`.

use txos_testkit::{Invocation, Lab};

use crate::place::start;
use crate::program::{Linked, program};

/// Libraries without a constructor that say which one they are.
const PREPARED: &str = r"
    set -e
    mkdir -p lib new
    ln -sfn lib link
    for which in one=1 two=2 four=4; do
        echo 'int one(void) { return '${which#*=}'; }' > one.c
        cc -shared -fPIC one.c -o lib/lib${which%=*}.so
    done
    rm one.c";

fn runs(lab: &Lab, scenario: &str) -> String {
    let _ = lab.native(PREPARED);
    let done = start(lab, "linker", Linked::WithLibrary).arg(scenario).run().expect(0);
    lab.expect_clean();
    done.text()
}

fn lost_at_each_call(scenario: &str) -> u32 {
    runs(&Lab::in_memory(), scenario).trim().parse().unwrap()
}

/// A transaction that loses there begins again when the dynamic linker is done, so that its lock is free.
#[test]
fn no_transaction_begins_again_within_the_dynamic_linker() {
    assert!(lost_at_each_call("linker") > 5);
}

#[test]
fn no_transaction_begins_again_within_the_allocator() {
    assert_eq!(lost_at_each_call("allocator"), 3);
}

/// Whatever the program does after it, the transaction has lost.
#[test]
fn a_loss_that_is_put_off_is_not_forgotten() {
    runs(&Lab::in_memory(), "ended");
}

#[test]
fn a_library_that_the_transaction_has_made_is_loaded() {
    runs(&Lab::new(), "made");
}

#[test]
fn a_path_begins_at_the_transactions_directory() {
    runs(&Lab::new(), "elsewhere");
}

#[test]
fn a_transaction_that_has_failed_keeps_no_library_from_being_loaded() {
    runs(&Lab::in_memory(), "failed");
}

#[test]
fn the_linkers_descriptors_take_none_of_the_transactions() {
    runs(&Lab::new(), "numbers");
}

#[test]
fn threads_of_one_transaction_load_what_it_has_made() {
    runs(&Lab::new(), "threads");
}

/// A program that returns from `main` in its transaction ends, and does not go on in a function that has returned.
#[test]
fn a_transaction_that_the_program_ends_in_does_not_begin_again() {
    let lab = Lab::in_memory();
    runs(&lab, "left");
    assert!(!lab.path("changed").exists() && !lab.path("stream").exists());
    runs(&lab, "left with memory");
    assert!(lab.path("changed").exists() && !lab.path("stream").exists());
}

/// A `/dev` of its own, so that the machine's log is told nothing.
const OWN_DEVICES: &str = r#"
    set -e
    mount --make-rprivate /
    mount -t tmpfs none "$1"
    mkdir "$1/shm"
    mount --rbind /dev/shm "$1/shm"
    mknod "$1/null" c 1 3
    mount --rbind "$1" /dev
    shift
    exec "$@""#;

fn runs_with_log(scenario: &str, hold: &str) {
    let lab = Lab::new();
    let _ = lab.native(&format!("{PREPARED}; mkdir dev"));
    let done = Invocation::new("unshare")
        .args(["-m", "--", "sh", "-c", OWN_DEVICES, "sh", "dev"])
        .arg(program("linker", Linked::WithLibrary))
        .arg(scenario)
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .env("TXOS_HOLD_OUTPUT", hold)
        .dir(lab.tree())
        .run();
    let done = done.expect(0);
    // Where it is held, connecting is as live as ever.
    assert!(hold == "1" || scenario == "kept" || done.stderr.is_empty(), "{}", done.stderr);
    lab.expect_clean();
}

#[test]
fn the_log_is_told_of_each_attempt() {
    runs_with_log("logged", "all");
}

#[test]
fn messages_to_the_logs_path_are_sent_at_once() {
    runs_with_log("addressed", "all");
    runs_with_log("addressed", "none");
}

#[test]
fn an_abort_leaves_connections_to_the_log() {
    runs_with_log("kept", "all");
}

#[test]
fn messages_to_the_log_are_held_if_that_is_asked_for() {
    runs_with_log("held", "1");
}
