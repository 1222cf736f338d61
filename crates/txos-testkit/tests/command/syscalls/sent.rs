//! What a thread's transaction sends on sockets from before it, with `TXOS_HOLD_OUTPUT=sockets`: sent by the commit, and never
//! if the transaction aborts. A process outside of it has the other ends.

use txos_testkit::{Done, Lab};

use crate::program::Linked;
use crate::{cases, start};

fn run(lab: &Lab, call: &str, how: &str) -> Done {
    let linked = if how == "natively" { Linked::Natively } else { Linked::WithLibrary };
    let program = start(lab, "sent", linked).args([call, how]);
    program.env("TXOS_HOLD_OUTPUT", "sockets").run().expect(0)
}

/// What is seen: before, meanwhile, afterwards; the answers, and the end.
fn seen(done: &Done) -> [String; 5] {
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    lines.try_into().unwrap_or_else(|_| panic!("{done:?}"))
}

#[test]
fn what_a_thread_sends_on_sockets_is_sent_by_the_commit_if_asked() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for call in cases("sent").into_keys() {
        let natively = run(&lab, &call, "natively");
        let [before, _, after, answers, end] = seen(&natively);
        for how in ["commit", "strict"] {
            let done = run(&lab, &call, how);
            let expected = [&before, &before, &after, &answers, &end].map(String::clone);
            if seen(&done) != expected || !done.stderr.is_empty() {
                wrong.push(format!("{call} {how}: {done:?}, natively {natively:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lab.expect_clean();
}

#[test]
fn what_a_thread_that_aborts_has_sent_on_sockets_is_never_sent_if_asked() {
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
