//! Output to pipes, FIFOs, terminals and sockets: held until the commit and dropped by an abort. See `c/effects.c` for what each
//! scenario does.

use txos_testkit::{Done, Invocation, Lab, require, skip};

use crate::place::{start, strays};
use crate::program::{Linked, program};

/// What is said when held output is sent before the end.
const RELEASED: &str = "so output that was held is sent before the commit, and stays";

fn ran(scenario: &str) -> Done {
    ended_with(scenario, |done| done.code() == 0)
}

/// Without `TXOS_HOLD_OUTPUT`, or with another value than 1.
fn ran_by_default(scenario: &str, hold: Option<&str>) -> Done {
    let lab = Lab::in_memory();
    let program = start(&lab, "effects", Linked::WithLibrary).arg(scenario);
    let program = match hold {
        Some(hold) => program.env("TXOS_HOLD_OUTPUT", hold),
        None => program,
    };
    let done = program.run().expect(0);
    assert_eq!(strays(&lab, |_| false), Vec::<std::path::PathBuf>::new(), "{scenario}: {done:?}");
    lab.expect_clean();
    done
}

fn ended_with(scenario: &str, is_right: impl Fn(&Done) -> bool) -> Done {
    ended_with_seed(scenario, 1, is_right)
}

fn ended_with_seed(scenario: &str, seed: u64, is_right: impl Fn(&Done) -> bool) -> Done {
    let lab = Lab::in_memory();
    let done = start(&lab, "effects", Linked::WithLibrary)
        .env("SEED", seed.to_string())
        .env("TXOS_HOLD_OUTPUT", "1")
        .env("TXOS_HELD_MAX", if scenario == "limit" { "200000" } else { "10000000" })
        .arg(scenario)
        .run();
    assert!(is_right(&done), "{done:?}");
    assert_eq!(strays(&lab, |_| false), Vec::<std::path::PathBuf>::new(), "{done:?}");
    lab.expect_clean();
    done
}

/// The same with a pipe as standard output, which somebody reads. What the program ends with is the last line of
/// standard error.
fn piped(lab: &Lab, scenario: &str) -> Invocation {
    const PIPE: &str = r#"{ "$0" "$@"; echo "ended with $?" >&2; } | cat"#;
    Invocation::new("/bin/sh")
        .args(["-c", PIPE])
        .arg(program("effects", Linked::WithLibrary))
        .arg(scenario)
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
}

/// How often something is said.
fn said(done: &Done, words: &str) -> usize {
    done.stderr.matches(words).count()
}

#[test]
fn it_is_out_after_the_commit_and_not_before() {
    let all = [
        "commit", "order", "moved", "teed", "messages", "logged", "large", "paused", "nested",
        "forked", "prepared", "mixed", "settings",
    ];
    for scenario in all {
        let done = ran(scenario);
        assert_eq!(said(&done, RELEASED), 0, "{scenario}: {done:?}");
    }
}

#[test]
fn an_abort_drops_it_and_a_restart_does_not_double_it() {
    for scenario in ["abort", "restart", "checkpoint"] {
        let done = ran(scenario);
        assert_eq!(done.stderr, "", "{scenario}");
    }
    for scenario in ["killed", "replaced"] {
        let done = ran(scenario);
        assert_eq!(said(&done, RELEASED), 0, "{scenario}: {done:?}");
    }
}

#[test]
fn a_look_for_a_child_is_no_wait_and_an_abort_names_the_signals_that_were_sent() {
    let done = ran("looks-for-child");
    // Five of the seven transactions have sent something.
    assert_eq!(
        said(&done, "what is held for a child that the transaction waits for"),
        5,
        "{done:?}"
    );
}

#[test]
fn without_a_descriptor_a_write_fails_and_nothing_is_sent() {
    let done = ran("no-descriptor");
    assert_eq!(said(&done, "no descriptor is left to hold output by"), 2, "{done:?}");
}

#[test]
fn a_program_that_waits_for_an_answer_gets_it() {
    let done = ran("answers");
    // One warning in each transaction.
    assert_eq!(said(&done, RELEASED), 18, "{done:?}");
    let done = ran("waits");
    assert_eq!(said(&done, RELEASED), 4, "{done:?}");
    let done = ran("both");
    assert_eq!(said(&done, RELEASED), 6, "{done:?}");
    for scenario in ["once", "child", "counter", "prompt", "signaled", "managed"] {
        let done = ran(scenario);
        assert_eq!(said(&done, RELEASED), 1, "{scenario}: {done:?}");
    }
}

/// Held or not.
#[test]
fn who_reads_until_the_end_is_closed_is_not_waited_for_in_vain() {
    /// What is said when an end is closed for good.
    const CLOSED: &str = "closing an end of a pipe before";
    let done = ran("until-closed");
    assert_eq!((said(&done, RELEASED), said(&done, CLOSED)), (8, 8), "{done:?}");
    for scenario in ["until-closed-by-members", "closed-once", "connection", "datagrams"] {
        ran(scenario);
    }
    let lab = Lab::in_memory();
    // Three of its ways are over sockets, of which output is held without being asked for.
    // Of the ways over pipes people are told once, where their output is held without being asked for.
    for (hold, released) in [("sockets", 3), ("", 4), ("0", 0)] {
        let program = start(&lab, "effects", Linked::WithLibrary).env("TXOS_HOLD_OUTPUT", hold);
        let done = program.arg("until-closed").run().expect(0);
        assert_eq!((said(&done, RELEASED), said(&done, CLOSED)), (released, 8), "{hold}: {done:?}");
    }
    let _ = start(&lab, "effects", Linked::WithLibrary).arg("closed-once").run().expect(0);
    lab.expect_clean();
}

#[test]
fn a_wait_for_a_message_or_a_semaphore_is_one() {
    let done = ran("queued");
    assert_eq!(said(&done, RELEASED), 2, "{done:?}");
}

/// What arrives outside are the writes of what has committed, in order; killed, a beginning of that.
#[test]
fn random_blocks_arrive_as_they_committed() {
    let seeds = if skip::long("differ") { 300 } else { 2 };
    for seed in 0..seeds {
        for scenario in ["random", "random-killed"] {
            let done = ended_with_seed(scenario, seed, |done| done.code() == 0);
            assert_eq!(done.stderr, "", "{scenario} with seed {seed}");
        }
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
    ran("broken");
    let done = ran("limit");
    assert_eq!(said(&done, "holds no more than 200000 bytes of output"), 1, "{done:?}");
}

#[test]
fn a_commit_that_waits_for_its_reader_is_done_and_can_be_ended() {
    ran("told");
    let done = ran("ended");
    assert_eq!(said(&done, "were not sent: a signal ended the wait for the reader"), 4, "{done:?}");
}

/// libcurl, where it is installed.
#[test]
fn a_client_gets_its_answer_and_a_request_is_sent_once() {
    let done = ended_with("client", |done| [0, 77].contains(&done.code()));
    require!(done.code() != 77, "no libcurl.so.4");
    assert_eq!(said(&done, RELEASED), 2, "{done:?}");
}

#[test]
fn what_is_held_does_not_wait_for_room() {
    let done = ran("ready");
    assert_eq!(said(&done, RELEASED), 0, "{done:?}");
}

#[test]
fn what_can_not_be_held_is_not_overtaken() {
    let done = ran("live");
    assert_eq!(said(&done, "what follows it can't be held"), 1, "{done:?}");
    assert_eq!(said(&done, RELEASED), 1, "{done:?}");
}

#[test]
fn threads_of_the_process_wake_each_other() {
    let done = ran("own");
    assert_eq!(said(&done, RELEASED), 0, "{done:?}");
}

#[test]
fn pipes_of_the_transaction_s_own_flow_at_once() {
    let done = ran("inside");
    assert_eq!(said(&done, "output to a pipe"), 0, "{done:?}");
}

#[test]
fn standard_output_is_held_and_standard_error_is_not() {
    let lab = Lab::in_memory();
    let held = |scenario| piped(&lab, scenario).env("TXOS_HOLD_OUTPUT", "1").run().expect(0);
    let done = held("standard");
    assert_eq!(done.text(), "before\nkept\nafter\n");
    assert_eq!(done.stderr, "said\nended with 0\n");
    let done = held("ends");
    assert_eq!((done.text(), &*done.stderr), (String::new(), "ended with 0\n"));
    lab.expect_clean();
}

#[test]
fn of_several_threads_or_processes_nothing_is_held() {
    ran("several");
    let done = ran("threads");
    assert_eq!(
        said(&done, "output to a pipe (write) is not part of the transaction"),
        2,
        "{done:?}"
    );
}

#[test]
fn what_is_held_is_what_the_variable_says() {
    let cases = [
        (None, "ptcs"),
        (Some(""), "ptcs"),
        (Some("all"), "ptcs"),
        (Some("1"), "ptcs"),
        (Some("sockets"), "---s"),
        (Some("0"), "----"),
        (Some("none"), "----"),
        (Some("other"), "ptcs"),
    ];
    for (hold, held) in cases {
        let done = ran_by_default("kinds", hold);
        assert_eq!(done.text(), format!("{held}\n"), "{hold:?}");
        let is_wrong = done.stderr.contains("TXOS_HOLD_OUTPUT is none of");
        assert_eq!(is_wrong, hold == Some("other"), "{hold:?}: {done:?}");
    }
}

#[test]
fn by_default_it_is_out_after_the_commit_and_not_before() {
    let all = [
        "commit",
        "abort",
        "restart",
        "checkpoint",
        "order",
        "moved",
        "messages",
        "logged",
        "large",
        "paused",
        "nested",
        "prepared",
        "mixed",
        "settings",
        "own",
        "inside",
        "killed",
        "replaced",
        "broken",
        "told",
        "wakers",
    ];
    for scenario in all {
        let done = ran_by_default(scenario, None);
        assert_eq!(said(&done, RELEASED), 0, "{scenario}: {done:?}");
    }
    // Waits, of which people are told once in each process.
    for scenario in ["child", "prompt", "prompts", "signaled", "managed"] {
        let done = ran_by_default(scenario, None);
        assert_eq!(said(&done, RELEASED), 1, "{scenario}: {done:?}");
    }
    for scenario in
        ["answers", "waits", "both", "gone", "threads", "several", "closed-once", "live"]
    {
        ran_by_default(scenario, None);
    }
}

#[test]
fn by_default_standard_output_is_held_and_standard_error_is_not() {
    let lab = Lab::in_memory();
    let done = piped(&lab, "standard").run().expect(0);
    assert_eq!(
        (done.text(), &*done.stderr),
        ("before\nkept\nafter\n".into(), "said\nended with 0\n")
    );
    let done = piped(&lab, "ends").run().expect(0);
    assert_eq!((done.text(), &*done.stderr), (String::new(), "ended with 0\n"));
    let done = piped(&lab, "children").run().expect(0);
    assert_eq!(done.text(), "before\nchild\nafter\n");
    assert_eq!(said(&done, "a new process may send there"), 1, "{done:?}");
    lab.expect_clean();
}

#[test]
fn by_default_what_can_not_be_held_is_live() {
    let done = ran_by_default("beyond", None);
    assert_eq!(said(&done, "no more output can be held"), 1, "{done:?}");
    let done = ran_by_default("never-waits", None);
    assert_eq!(said(&done, "a descriptor that does not wait may have no room"), 1, "{done:?}");
}

/// Who asks for it has it live.
#[test]
fn who_asks_for_it_has_live_output() {
    let lab = Lab::in_memory();
    for hold in ["0", "none", "sockets"] {
        let done = piped(&lab, "standard").env("TXOS_HOLD_OUTPUT", hold).run().expect(0);
        assert_eq!(done.text(), "before\ndropped\nkept\nkept\nafter\n", "{hold}");
    }
    lab.expect_clean();
}
