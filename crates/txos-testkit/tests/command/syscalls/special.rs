//! Calls of a thread in a transaction that start or end threads, processes and programs, or that certain
//! arguments lead past the transaction.

use txos_testkit::Lab;

use crate::program::Linked;
use crate::{cases, start};

#[test]
fn what_starts_or_ends_threads_and_programs_is_outside() {
    let lab = Lab::in_memory();
    for call in cases("special").into_keys() {
        let done = start(&lab, "special", Linked::WithLibrary).arg(&call).run();
        // Each says 7 in its way.
        let last = done.text().split_whitespace().last().map(str::to_owned);
        let ended = call == "exit_group";
        assert!(done.code() == if ended { 7 } else { 0 }, "{call}: {done:?}");
        assert!(ended || last.as_deref() == Some("7"), "{call}: {done:?}");
        if call.contains("_with_") {
            let (name, _) = call.split_once("_with_").unwrap();
            let _ = done.says(format!("({name}) is not possible in a transaction"));
        } else if !call.starts_with("exit") {
            let done = done.says(format!("({call}) is not part of the transaction"));
            assert!(lab.path("by-the-child").exists(), "{call}: {done:?}");
        }
        assert!(!lab.path("private").exists() && !lab.path("private-of-the-thread").exists());
        let _ = std::fs::remove_dir(lab.path("by-the-child"));
    }
    lab.expect_clean();
}
