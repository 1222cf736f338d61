//! What a thread's transaction sends on sockets from before it: sent by the commit, and never
//! if the transaction aborts. A process outside of it has the other ends.

use txos_testkit::{Done, Lab};

use crate::program::Linked;
use crate::{are_as_natively_after_the_commit, cases, seen, start};

/// It prints what is seen, as [`seen`] says: last the answers, and the end.
fn run(lab: &Lab, call: &str, how: &str) -> Done {
    let linked = if how == "natively" { Linked::Natively } else { Linked::WithLibrary };
    let program = start(lab, "sent", linked).args([call, how]);
    program.run().expect(0)
}

#[test]
fn what_a_thread_sends_on_sockets_is_sent_by_the_commit() {
    let lab = Lab::in_memory();
    are_as_natively_after_the_commit("sent", |call, how| run(&lab, call, how));
    lab.expect_clean();
}

#[test]
fn what_a_thread_that_aborts_has_sent_on_sockets_is_never_sent() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for call in cases("sent").into_keys() {
        let [before, .., answers, _] = seen(&run(&lab, &call, "natively"));
        let done = run(&lab, &call, "abort");
        let ours = seen(&done);
        let untouched = ours[..3].iter().all(|seen| *seen == before);
        if !untouched || ours[3] != answers || !done.stderr.is_empty() {
            wrong.push(format!("{call}: {done:?}, natively {answers}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lab.expect_clean();
}
