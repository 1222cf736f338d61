//! What is received from sockets: taken by the commit and given back by an abort. See `c/received.c` for what each scenario
//! does.

use txos_testkit::{Done, Lab};

use crate::place::start;
use crate::program::Linked;

/// What is said when something is taken before the end, for there may be no room.
const TAKEN: &str = "so what the transaction has received there is taken before the commit";
/// What is said of what goes over a socket at once.
const LIVE: &str = "network and socket traffic";

fn ran(scenario: &str, held: &str) -> Done {
    let lab = Lab::in_memory();
    let done = start(&lab, "received", Linked::WithLibrary)
        .env("TXOS_HOLD_OUTPUT", held)
        .arg(scenario)
        .run()
        .expect(0);
    lab.expect_clean();
    done
}

/// How often something is said.
fn said(done: &Done, words: &str) -> usize {
    done.stderr.matches(words).count()
}

#[test]
fn what_was_received_is_read_again_after_an_abort() {
    for scenario in ["restart", "ended", "killed", "twice", "closed"] {
        let done = ran(scenario, "0");
        assert_eq!((said(&done, TAKEN), said(&done, LIVE)), (0, 0), "{scenario}: {done:?}");
    }
}

#[test]
fn bytes_around_an_urgent_one_are_read_once() {
    let done = ran("urgent", "0");
    assert_eq!(said(&done, TAKEN), 0, "{done:?}");
}

#[test]
fn an_answer_is_not_given_back() {
    let done = ran("conversation", "0");
    assert_eq!((said(&done, TAKEN), said(&done, LIVE)), (0, 2), "{done:?}");
    let done = ran("conversation", "1");
    let released = said(&done, "so output that was held is sent before the commit, and stays");
    assert_eq!((said(&done, TAKEN), said(&done, LIVE), released), (0, 0, 2), "{done:?}");
}

#[test]
fn who_sends_is_not_kept_waiting_for_room() {
    let done = ran("full", "0");
    assert_eq!(said(&done, TAKEN), 2, "{done:?}");
    let done = ran("small", "0");
    assert_eq!(said(&done, TAKEN), 1, "{done:?}");
    let done = ran("strict", "0");
    assert_eq!(said(&done, TAKEN), 0, "{done:?}");
}

#[test]
fn what_somebody_else_has_taken_is_a_conflict() {
    ran("stolen", "0");
    let done = ran("shared", "0");
    assert!(said(&done, LIVE) >= 1, "{done:?}");
}

/// By a process that was killed (docs/runtime.md).
#[test]
fn what_a_killed_process_has_left_at_a_socket_is_told() {
    let done = ran("left", "0");
    assert!(said(&done, LIVE) >= 1, "{done:?}");
}

#[test]
fn what_can_not_be_given_back_is_read_at_once() {
    let done = ran("live", "0");
    assert!(said(&done, LIVE) >= 1, "{done:?}");
    ran("accepted", "0");
}

#[test]
fn paused_code_sees_what_nobody_has_taken() {
    ran("paused", "0");
}
