//! What is read from pipes and FIFOs: taken by the commit and left there by an abort. See `c/pipes.c` for what each scenario
//! does.

use txos_testkit::{Done, Lab};

use crate::place::start;
use crate::program::Linked;

/// What is said when something is taken before the end.
const TAKEN: &str = "so what the transaction has read from a pipe is taken before the commit";
/// What is said when something is read at once.
const AT_ONCE: &str = "is gone at once, and is not given back";
/// What is said of output that goes out at once.
const LIVE: &str = "is not part of the transaction: it happens at once, and stays";

fn ran(scenario: &str) -> Done {
    ran_holding(scenario, "0")
}

/// With that output held.
fn ran_holding(scenario: &str, held: &str) -> Done {
    ran_with(scenario, held, "pipes")
}

fn ran_with(scenario: &str, held: &str, give_back: &str) -> Done {
    let lab = Lab::in_memory();
    let done = start(&lab, "pipes", Linked::WithLibrary)
        .env("TXOS_HOLD_OUTPUT", held)
        .env("TXOS_GIVE_BACK", give_back)
        .arg(scenario)
        .run()
        .expect(0);
    lab.expect_clean();
    done
}

#[test]
fn it_is_live_unless_it_is_asked_for() {
    let wrong = "TXOS_GIVE_BACK is none of 0, none, pipes and all";
    for (value, times) in [("", 0), ("0", 0), ("none", 0), ("sockets", 1)] {
        let done = ran_with("not_asked", "0", value);
        assert_eq!((said(&done, wrong), said(&done, TAKEN)), (times, 0), "{value}: {done:?}");
        assert_eq!(done.stderr.lines().count(), times, "{value}: {done:?}");
    }
}

/// How often something is said.
fn said(done: &Done, words: &str) -> usize {
    done.stderr.matches(words).count()
}

#[test]
fn what_was_read_is_there_after_an_abort() {
    for scenario in [
        "restart", "killed", "ended", "awaited", "nested", "twice", "closed", "many", "grown",
        "spliced", "used_up",
    ] {
        let done = ran(scenario);
        let times = [TAKEN, LIVE, AT_ONCE].map(|words| said(&done, words));
        assert_eq!(times, [0, 0, 0], "{scenario}: {done:?}");
    }
}

#[test]
fn calls_are_answered_as_natively() {
    let done = ran("native");
    assert_eq!(said(&done, TAKEN), 0, "{done:?}");
}

#[test]
fn a_fifo_that_does_not_tell_of_its_writers_is_read_at_once() {
    let done = ran("fifo");
    // And when another one is opened.
    assert_eq!(said(&done, TAKEN), 2, "{done:?}");
}

#[test]
fn who_writes_is_not_kept_waiting_for_room() {
    let done = ran("full");
    assert_eq!(said(&done, TAKEN), 5, "{done:?}");
    let done = ran("elsewhere");
    assert_eq!(said(&done, TAKEN), 5, "{done:?}");
    let done = ran("opponent");
    let others = "the transaction waits for another one, so what it has read from pipes is taken";
    assert_eq!(said(&done, others), 1, "{done:?}");
    let done = ran("spins");
    assert_eq!(said(&done, TAKEN), 3, "{done:?}");
    let done = ran("vain");
    assert_eq!(said(&done, TAKEN), 2, "{done:?}");
}

#[test]
fn what_somebody_else_has_taken_is_a_conflict() {
    for (scenario, at_once) in [("stolen", 0), ("rivals", 0), ("outrun", 0), ("changed", 1)] {
        let done = ran(scenario);
        let times = [TAKEN, "as well", AT_ONCE].map(|words| said(&done, words));
        assert_eq!(times, [0, 0, at_once], "{scenario}: {done:?}");
    }
    let done = ran("shifted");
    assert_eq!(said(&done, "4 bytes that the transaction has read from a pipe"), 1, "{done:?}");
    assert_eq!(said(&done, "the transaction takes nothing there"), 1, "{done:?}");
}

#[test]
fn an_answer_is_not_left_for_the_next_attempt() {
    let done = ran("conversation");
    assert_eq!((said(&done, TAKEN), said(&done, LIVE)), (2, 2), "{done:?}");
    for (held, live, released) in [("sockets", 1, 1), ("1", 0, 2)] {
        let done = ran_holding("conversation", held);
        let sent = "so output that was held is sent before the commit, and stays";
        let times = [TAKEN, LIVE, sent].map(|words| said(&done, words));
        assert_eq!(times, [2, live, released], "{done:?}");
    }
    let done = ran("answer");
    assert_eq!((said(&done, TAKEN), said(&done, AT_ONCE)), (0, 2), "{done:?}");
    let done = ran("logged");
    assert_eq!((said(&done, TAKEN), said(&done, AT_ONCE)), (1, 1), "{done:?}");
}

#[test]
fn what_can_not_be_left_there_is_taken() {
    for (scenario, times) in [
        ("child", 1),
        ("told_once", 5),
        ("live", 6),
        ("prepared", 1),
        ("no_number", 0),
        ("threads", 0),
        ("strict", 1),
    ] {
        let done = ran(scenario);
        assert_eq!(said(&done, TAKEN), times, "{scenario}: {done:?}");
    }
    let done = ran("packets");
    assert_eq!((said(&done, TAKEN), said(&done, AT_ONCE)), (0, 1), "{done:?}");
}
