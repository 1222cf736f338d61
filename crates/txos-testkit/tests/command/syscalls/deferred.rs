//! Calls of a thread that change the machine: made after the commit, never before, and not at all after an abort. None
//! is made for real (see `deferred.c`), but for names of a machine in a namespace of the test's own.

use txos_testkit::{Done, Lab, require};

use crate::program::Linked;
use crate::{cases, start};

/// Everything that is held, but for signals.
fn all() -> impl Iterator<Item = String> {
    cases("deferred").into_keys()
}

fn lab() -> Lab {
    let lab = Lab::in_memory();
    std::fs::write(lab.path("file"), "of a call").unwrap();
    lab
}

fn run(lab: &Lab, call: &str, how: &str) -> Done {
    start(lab, "deferred", Linked::WithLibrary).args([call, how]).run()
}

/// The rest of the lines of a kind.
fn lines<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(kind)).collect()
}

/// Modules that there are not can't be removed; a kernel without any does not say so.
fn is_possible(call: &str) -> bool {
    call != "delete_module" || !std::path::Path::new("/sys/module").exists()
}

#[test]
fn what_changes_the_machine_is_made_after_the_commit_of_a_thread() {
    let lab = lab();
    let mut wrong = Vec::new();
    for call in all() {
        let done = run(&lab, &call, "commit").expect(0);
        let text = done.text();
        let [before, made, asked] = ["before", "made", "asked"].map(|kind| lines(&text, kind));
        let right = match is_possible(&call) {
            true => made == asked && lines(&text, "answer ") == ["0"],
            false => made.is_empty() && lines(&text, "answer ") == ["-2"],
        };
        if !(right && before.is_empty() && lines(&text, "end ") == ["0"]) {
            wrong.push(format!("{call}: {done:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_changes_the_machine_is_not_made_if_a_thread_aborts() {
    let lab = lab();
    let mut wrong = Vec::new();
    for call in all() {
        let done = run(&lab, &call, "abort").expect(0);
        let text = done.text();
        let never = ["before", "made"].iter().all(|kind| lines(&text, kind).is_empty());
        let answered = lines(&text, "answer ") == [if is_possible(&call) { "0" } else { "-2" }];
        if !(never && answered && lines(&text, "end ") == ["0"]) {
            wrong.push(format!("{call}: {done:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_changes_the_machine_and_fails_after_the_commit_is_reported() {
    let lab = lab();
    for call in all().filter(|call| is_possible(call)) {
        let done = run(&lab, &call, "fail").expect(0);
        let words = format!("{call} was held until the commit, and failed then: ");
        // Once at once, and once by `txos_strerror`.
        assert_eq!(done.stderr.matches(&words).count(), 2, "{done:?}");
        assert_eq!(lines(&done.text(), "end "), ["0"], "{done:?}");
    }
}

#[test]
fn no_more_calls_than_so_many_are_held() {
    let lab = lab();
    let done = run(&lab, "syslog", "many").expect(0);
    let text = done.text();
    assert_eq!(lines(&text, "answer "), [(-libc::EAGAIN).to_string()], "{:?}", done.stderr);
    assert_eq!(lines(&text, "made").len(), 4096);
    let _ = done.says("holds no more than 4096 signals and calls until its commit");
    // And no more bytes.
    let little = start(&lab, "deferred", Linked::WithLibrary).args(["init_module", "commit"]);
    let done = little.env("TXOS_HELD_MAX", "50").run().expect(0);
    assert_eq!(lines(&done.text(), "answer "), [(-libc::ENOMEM).to_string()], "{done:?}");
    assert_eq!(lines(&done.text(), "made").len(), 0, "{done:?}");
    let _ = done.says("so a call fails with ENOMEM");
}

#[test]
fn who_may_not_change_the_machine_is_told_at_once() {
    let lab = lab();
    require!(rustix::process::geteuid().is_root(), "another user is needed");
    let mut wrong = Vec::new();
    for call in all() {
        let [natively, inside] = ["natively", "refused"].map(|how| run(&lab, &call, how));
        let refused = natively.text().trim().starts_with('E');
        if !refused || natively.text() != inside.text() || inside.code() != 0 {
            wrong.push(format!("{call}: {inside:?}, natively {natively:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_machine_has_its_new_names_in_the_transaction_and_after_the_commit() {
    let lab = lab();
    let inside = "a-longer-name realm new other before";
    for (end, after) in [("abort", "before realm"), ("commit", "new other")] {
        let done = run(&lab, "names", end).expect(0);
        assert_eq!(done.text().trim(), format!("{inside} {after}"), "{end}: {done:?}");
    }
}
