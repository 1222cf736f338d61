//! What a transaction sets of descriptors from before and of timers: put back by an abort. See `c/put_back.c` for what each scenario
//! does.

use txos_testkit::{Done, Lab};

use crate::place::start;
use crate::program::Linked;

fn ran(scenario: &str) -> Done {
    ran_holding(scenario, "")
}

fn ran_holding(scenario: &str, hold: &str) -> Done {
    let lab = Lab::in_memory();
    let program = start(&lab, "put_back", Linked::WithLibrary).env("TXOS_HOLD_OUTPUT", hold);
    let done = program.arg(scenario).run().expect(0);
    lab.expect_clean();
    done
}

/// The same, of what nobody is told of.
fn ran_silently(scenarios: &[&str]) {
    for scenario in scenarios {
        let done = ran(scenario);
        assert_eq!(done.stderr, "", "{scenario}");
    }
}

#[test]
fn flags_options_and_terminals_are_as_they_were() {
    ran_silently(&["flags", "fifo", "options", "each", "terminals"]);
}

#[test]
fn timers_are_as_they_would_be() {
    ran_silently(&["intervals", "over", "own", "timers", "open_timers", "fast", "signalled"]);
}

#[test]
fn what_was_read_from_counters_and_of_signals_is_read_again() {
    ran_silently(&["expirations", "signals", "lock", "failing"]);
    // What it writes to a counter that it reads itself is live, or is sent before that.
    assert_eq!(ran_holding("counters", "0").stderr, "");
    let done = ran("counters");
    let said = "so output that was held is sent before the commit, and stays";
    assert_eq!(
        (done.stderr.lines().count(), done.stderr.matches(said).count()),
        (1, 1),
        "{done:?}"
    );
}

#[test]
fn what_another_thread_has_changed_since_stays() {
    ran_silently(&["changed"]);
}

#[test]
fn a_prepared_transaction_puts_back_when_it_is_decided() {
    ran_silently(&["prepared"]);
}

#[test]
fn what_others_keep_books_of_stays() {
    ran_silently(&["books"]);
}

#[test]
fn what_has_no_way_back_stays() {
    ran_silently(&["stays"]);
    ran("ended");
    ran("master");
    let done = ran_holding("full", "0");
    let said = "the abort could not put back the size of a pipe: Device or resource busy";
    assert_eq!(done.stderr.matches(said).count(), 1, "{done:?}");
}
