//! Sockets from before a thread's transaction, seen by a process outside of it that has their other ends: what is received is
//! taken by the commit, and given back by an abort.

use txos_testkit::{Done, Lab};

use crate::program::Linked;
use crate::{are_as_natively_after_the_commit, cases, seen, start};

/// It prints what is seen, as [`seen`] says: last what the process itself still reads, and the answers.
fn run(lab: &Lab, call: &str, how: &str) -> Done {
    let linked = if how == "natively" { Linked::Natively } else { Linked::WithLibrary };
    start(lab, "sockets", linked).args([call, how]).run().expect(0)
}

#[test]
fn calls_of_sockets_of_a_thread_are_as_natively_after_the_commit() {
    let lab = Lab::in_memory();
    are_as_natively_after_the_commit("sockets", |call, how| run(&lab, call, how));
}

#[test]
fn calls_of_sockets_of_a_thread_that_aborts_leave_nothing() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for call in cases("sockets").into_keys() {
        let natively = run(&lab, &call, "natively");
        let done = run(&lab, &call, "abort");
        let ([before, .., answers], ours) = (seen(&natively), seen(&done));
        let all = "hello the world ! ";
        let right = ours[..3].iter().all(|seen| *seen == before)
            && ours[3].split(';').filter(|own| !own.is_empty()).all(|own| {
                let received: String = own.chars().filter(|c| *c != ' ').collect();
                received.contains(&all.replace(' ', ""))
            });
        if !right || ours[4] != answers || !done.stderr.is_empty() {
            wrong.push(format!("{call}: {done:?}, natively {natively:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
