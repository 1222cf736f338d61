//! System V and POSIX IPC of a thread's transaction, seen by a process outside of it: what is sent and removed happens at
//! the commit, what is made and taken is given back by an abort.

use txos_calls::{Does, rows};
use txos_testkit::{Done, Lab};

use crate::program::Linked;
use crate::{cases, start};

/// It takes at once, so others see it at once.
const TAKE: &[&str] = &["semop_that_takes", "semop_that_locks"];
/// It can't be held: it waits for an answer.
const WAITS: &str = "semop_that_waits";

fn run(lab: &Lab, call: &str, how: &str) -> Done {
    let linked = if how == "natively" { Linked::Natively } else { Linked::WithLibrary };
    start(lab, "ipc", linked).args([call, how]).run().expect(0)
}

/// What is seen: before, meanwhile, by the process itself afterwards, afterwards; and the answers.
fn seen(done: &Done) -> [String; 5] {
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    lines.try_into().unwrap_or_else(|_| panic!("{done:?}"))
}

fn all() -> impl Iterator<Item = String> {
    cases("ipc").into_keys().filter(|call| call != WAITS)
}

#[test]
fn ipc_of_a_thread_is_as_natively_after_the_commit() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for call in all() {
        let (natively, done) = (run(&lab, &call, "natively"), run(&lab, &call, "commit"));
        let ([before, _, own, after, answers], ours) = (seen(&natively), seen(&done));
        if [&ours[0], &ours[2], &ours[3], &ours[4]] != [&before, &own, &after, &answers] {
            wrong.push(format!("{call}: {done:?}, natively {natively:?}"));
        }
        let is_held = |row: &txos_calls::Row| row.in_thread() == Does::Held;
        let held = rows().any(|row| call.starts_with(row.name) && is_held(row));
        if held && !TAKE.contains(&call.as_str()) && ours[1] != before {
            wrong.push(format!("{call} was not held: {done:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ipc_of_a_thread_that_aborts_leaves_nothing() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for call in all() {
        let (natively, done) = (run(&lab, &call, "natively"), run(&lab, &call, "abort"));
        let [before, _, own, after, answers] = seen(&done);
        let expected = &seen(&natively)[4];
        if before != after || own != "told 0, waits 1" || answers != *expected {
            wrong.push(format!("{call}: {done:?}, natively {natively:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_held_of_ipc_goes_out_before_its_answer_is_waited_for() {
    let lab = Lab::in_memory();
    let done = run(&lab, WAITS, "commit");
    assert_eq!(seen(&done)[4].trim(), "0 0", "{done:?}");
    assert_eq!(
        done.stderr.matches("(semop) is not part of the transaction").count(),
        1,
        "{done:?}"
    );
    // With TX_STRICT the transaction ends instead, and nothing has gone out.
    let strict = run(&lab, WAITS, "strict");
    let text = strict.text();
    let looks: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(looks[0], looks[1], "{strict:?}");
    let _ = strict.says("can't be part of a strict transaction");
}
