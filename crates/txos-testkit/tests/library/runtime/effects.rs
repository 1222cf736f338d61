//! Output to pipes, FIFOs, terminals and sockets: held until the commit and dropped by an abort, with
//! `TXOS_HOLD_OUTPUT=1`. See `c/effects.c` for what each scenario does.

use txos_testkit::{Done, Lab};

use crate::place::{start, strays};
use crate::program::Linked;

/// What is said when held output is sent before the end.
const RELEASED: &str = "so output that was held is sent before the commit, and stays";

fn ran(scenario: &str) -> Done {
    let lab = Lab::in_memory();
    let done = start(&lab, "effects", Linked::WithLibrary)
        .env("TXOS_HOLD_OUTPUT", "1")
        .env("TXOS_HELD_MAX", if scenario == "limit" { "200000" } else { "10000000" })
        .arg(scenario)
        .run()
        .expect(0);
    assert_eq!(strays(&lab, |_| false), Vec::<std::path::PathBuf>::new(), "{done:?}");
    lab.expect_clean();
    done
}

/// How often something is said.
fn said(done: &Done, words: &str) -> usize {
    done.stderr.matches(words).count()
}

#[test]
fn it_is_out_after_the_commit_and_not_before() {
    for scenario in ["commit", "order", "moved", "messages", "logged", "large"] {
        let done = ran(scenario);
        assert_eq!(said(&done, RELEASED), 0, "{scenario}: {done:?}");
    }
}

#[test]
fn an_abort_drops_it_and_a_restart_does_not_double_it() {
    for scenario in ["abort", "restart"] {
        let done = ran(scenario);
        assert_eq!(done.stderr, "", "{scenario}");
    }
}

#[test]
fn a_program_that_waits_for_an_answer_gets_it() {
    let done = ran("answers");
    // One warning in each transaction.
    assert_eq!(said(&done, RELEASED), 18, "{done:?}");
    for scenario in ["once", "child", "prompt"] {
        let done = ran(scenario);
        assert_eq!(said(&done, RELEASED), 1, "{scenario}: {done:?}");
    }
}

#[test]
fn strictness_ends_the_transaction_instead() {
    let done = ran("strict");
    assert_eq!(said(&done, RELEASED), 0, "{done:?}");
}

#[test]
fn what_can_not_be_sent_is_told_and_files_stay_committed() {
    let done = ran("gone");
    assert_eq!(said(&done, "could not be sent: Broken pipe"), 3, "{done:?}");
    let done = ran("limit");
    assert_eq!(said(&done, "holds no more than 200000 bytes of output"), 1, "{done:?}");
}

#[test]
fn pipes_of_the_transaction_s_own_flow_at_once() {
    let done = ran("inside");
    assert_eq!(said(&done, "output to a pipe"), 0, "{done:?}");
}

#[test]
fn standard_output_is_held_and_standard_error_is_not() {
    let done = ran("standard");
    assert_eq!(done.text(), "before\nkept\nafter\n");
    assert_eq!(done.stderr, "said\n");
    assert_eq!(ran("ends").text(), "");
}

#[test]
fn of_several_threads_nothing_is_held() {
    let done = ran("threads");
    assert_eq!(
        said(&done, "output to a pipe (write) is not part of the transaction"),
        2,
        "{done:?}"
    );
}

/// Who does not ask for it has what was there before.
#[test]
fn without_being_asked_for_output_is_live() {
    let lab = Lab::in_memory();
    let done = start(&lab, "effects", Linked::WithLibrary).arg("standard").run().expect(0);
    assert_eq!(done.text(), "before\ndropped\nkept\nkept\nafter\n");
    lab.expect_clean();
}
