//! Descriptor numbers that the transactions of several threads of one process use: each is an object of its own, of which no
//! transaction sees, closes or replaces what another one has not committed. See `c/numbers.c` for the scenes.

use txos_testkit::rendezvous::Rendezvous;
use txos_testkit::{Invocation, Lab, skip};

use crate::place::start;
use crate::program::Linked;

fn program(lab: &Lab, arguments: &[&str]) -> Invocation {
    start(lab, "numbers", Linked::WithLibrary).args(arguments)
}

/// Plays a scene; nothing of it is left in the realm.
fn scene(arguments: &[&str]) {
    let lab = Lab::in_memory();
    let _ = program(&lab, arguments).run().expect(0).says_not("waiting for");
    // It clears what a killed process has left.
    let _ = lab.txos(["recover"]).run().expect(0);
    let realm = lab.txos(["status", "--json"]).run().expect(0).json()["realm"].clone();
    assert_eq!((&realm["running"], &realm["held"]), (&0.into(), &0.into()), "{realm}");
}

#[test]
fn one_that_two_close_is_closed_once() {
    scene(&["close"]);
    scene(&["close-nonblock"]);
}

#[test]
fn one_that_is_used_is_not_closed_or_replaced() {
    scene(&["use"]);
    scene(&["replace"]);
    scene(&["flag"]);
}

/// Each has those that it has sent to itself, and what it has not kept is closed.
#[test]
fn descriptors_that_come_with_messages_are_its_own() {
    scene(&["received", "300"]);
}

#[test]
fn uses_of_one_are_in_nobodys_way() {
    scene(&["reads"]);
}

/// The point of papers/003, 7.3: conflicts are of a descriptor, not of the table.
#[test]
fn opening_and_closing_others_aborts_nobody() {
    scene(&["others", if skip::long("threads") { "200000" } else { "2000" }]);
}

#[test]
fn what_is_opened_is_not_open_to_others_before_the_commit() {
    scene(&["fresh"]);
}

#[test]
fn an_abort_gives_it_back() {
    scene(&["aborted"]);
    scene(&["exit"]);
}

#[test]
fn one_that_has_lost_begins_again() {
    scene(&["restart"]);
}

#[test]
fn the_turn_decides() {
    scene(&["order"]);
}

#[test]
fn a_thread_that_is_made_inside_finds_what_was_touched_before() {
    scene(&["born"]);
}

#[test]
fn a_paused_transaction_keeps_its_numbers() {
    scene(&["paused"]);
}

#[test]
fn what_is_opened_where_another_one_has_seen_nothing_gets_another_number() {
    scene(&["aside"]);
}

#[test]
fn dup2_leaves_alone_what_is_opened_at_the_same_time() {
    scene(&["dup-over", if skip::long("threads") { "100000" } else { "2000" }]);
}

/// A number and a file are of one state in every transaction.
#[test]
fn what_is_there_and_what_is_said_of_it_agree() {
    scene(&["agree", if skip::long("threads") { "20000" } else { "100" }]);
}

#[test]
fn a_killed_process_holds_none() {
    scene(&["killed"]);
}

/// What is held of the realm by a transaction that uses numbers, in a process that has had so many other threads.
fn held(threads: &str) -> u64 {
    let lab = Lab::in_memory();
    let mut test = Rendezvous::new();
    let running = program(&lab, &["single", threads]).meeting(&mut test).start();
    assert!(test.arrived());
    let status = lab.txos(["status", "--json"]).run().expect(0).json();
    test.go();
    let _ = running.wait().expect(0);
    status["realm"]["held"].as_u64().unwrap()
}

#[test]
fn a_process_of_one_thread_acquires_none() {
    // Both ends of a pipe, a duplicate that stays, a file, and the test's two; of the file the transaction holds its path as well.
    assert_eq!(held("1") - held("0"), 6);
}
