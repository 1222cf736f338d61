//! What a transaction has to take before its end: the next attempt is given it. See `c/kept.c` for what each scenario does.

use txos_testkit::{Done, Lab};

use crate::place::start;
use crate::program::Linked;

/// What is said when something is taken that nobody is given again.
const TAKEN: &str = "is taken before the commit, and is not given back";
/// What is said of what was not read again.
const LOST: &str = "that an earlier attempt had read were not read again, and are lost";

/// What is said of the counter that scenarios with TX_CHECKPOINT have.
const SHARED: &str = "txos: TX_CHECKPOINT: memory that is shared with others, or is a device's, stays as it is: /dev/zero (deleted)\n";

fn ran(scenario: &str, give_back: Option<&str>) -> Done {
    let lab = Lab::in_memory();
    let run = start(&lab, "kept", Linked::WithLibrary).env("TXOS_HOLD_OUTPUT", "0").arg(scenario);
    let run = match give_back {
        Some(value) => run.env("TXOS_GIVE_BACK", value),
        None => run,
    };
    let done = run.run().expect(0);
    lab.expect_clean();
    done
}

/// How often something is said.
fn said(done: &Done, words: &str) -> usize {
    done.stderr.matches(words).count()
}

#[test]
fn the_next_attempt_reads_more_than_there_is_room_for() {
    for scenario in [
        "all_again",
        "in_the_middle",
        "moved",
        "by_a_number_that_is_closed",
        "by_two_open_files",
        "the_rest_as_well",
        "told_once",
    ] {
        let done = ran(scenario, Some("pipes"));
        assert_eq!(done.stderr, "", "{scenario}");
    }
}

#[test]
fn what_no_attempt_reads_again_is_told() {
    let done = ran("less", None);
    assert_eq!(said(&done, "1999000 bytes from a socket"), 1, "{done:?}");
    assert_eq!(said(&done, LOST), 1, "{done:?}");
    let done = ran("for_good", None);
    assert_eq!(done.stderr, "");
}

#[test]
fn an_answer_is_not_kept() {
    let done = ran("conversation", None);
    assert_eq!(said(&done, TAKEN), 0, "{done:?}");
}

#[test]
fn what_was_typed_is_read_again() {
    let done = ran("typed", None);
    assert_eq!(done.stderr, SHARED);
    // It types itself, once.
    let done = ran("typed_by_calls", Some("all"));
    assert_eq!(
        (said(&done, "output to a terminal or device"), done.stderr.lines().count()),
        (1, 1),
        "{done:?}"
    );
    let done = ran("line_by_line", Some("all"));
    assert_eq!(done.stderr, "");
    let done = ran("prompted", Some("all"));
    assert_eq!(done.stderr, "question? question? ");
    let done = ran("prompted_late", Some("all"));
    assert_eq!(done.stderr, "question? ");
}

#[test]
fn a_filter_reads_its_pipe_again_if_its_memory_is_put_back() {
    for scenario in ["filtered", "filtered_for_good"] {
        let done = ran(scenario, None);
        let shared = if scenario == "filtered" { SHARED } else { "" };
        assert_eq!(done.stderr, shared, "{scenario}");
    }
}
