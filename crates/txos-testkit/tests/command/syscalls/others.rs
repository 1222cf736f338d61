//! Memory and descriptors of a process outside of a thread's transaction: what is written there is written after the commit,
//! what is taken from there an abort gives back.

use txos_testkit::{Done, Lab};

use crate::program::Linked;
use crate::{are_as_natively_after_the_commit, cases, seen, start};

fn lab() -> Lab {
    let lab = Lab::in_memory();
    std::fs::write(lab.path("file"), "what it holds").unwrap();
    lab
}

/// It prints what is seen, as [`seen`] says: last the answers; the end, and whether what was taken is open.
fn run(lab: &Lab, call: &str, how: &str) -> Done {
    let linked = if how == "natively" { Linked::Natively } else { Linked::WithLibrary };
    start(lab, "others", linked).args([call, how]).run().expect(0)
}

#[test]
fn what_is_of_others_is_as_natively_after_the_commit() {
    let lab = lab();
    are_as_natively_after_the_commit("others", |call, how| run(&lab, call, how));
    lab.expect_clean();
}

#[test]
fn what_is_of_others_is_left_alone_by_a_thread_that_aborts() {
    let lab = lab();
    let mut wrong = Vec::new();
    for call in cases("others").into_keys() {
        let natively = run(&lab, &call, "natively");
        let done = run(&lab, &call, "abort");
        let ([before, .., answers, _], ours) = (seen(&natively), seen(&done));
        let untouched = ours[..3].iter().all(|seen| *seen == before);
        if !untouched || ours[3] != answers || ours[4] != "end 0, closed" || !done.stderr.is_empty()
        {
            wrong.push(format!("{call}: {done:?}, natively {natively:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lab.expect_clean();
}

#[test]
fn what_can_not_be_written_to_others_after_the_commit_is_reported() {
    let lab = lab();
    let reasons = [("unmapped", "Bad address"), ("ended", "the process is there no more")];
    for (how, why) in reasons {
        let done = run(&lab, "process_vm_writev", how);
        let words = format!("process_vm_writev was held until the commit, and failed then: {why}");
        // Two writes are held, of which the last one is told by `txos_strerror` as well.
        assert!(done.stderr.matches(&words).count() >= 2, "{how}: {done:?}");
        assert!(done.text().contains("\nend 0, "), "{how}: {done:?}");
    }
    lab.expect_clean();
}
