//! The scenarios of tests/c/joint.c, in a program linked in each way.

use crate::build::{Link, command, compile, words};

#[test]
fn participants_decide() {
    for link in [Link::Shared, Link::Archive, Link::Static] {
        let program = compile("joint", link);
        for name in
            ["enlisted", "refused", "refusals_of_calls", "prepared", "killed", "held", "ordered"]
        {
            // TX_CHECKPOINT is refused with the archive.
            if name == "refusals_of_calls" && link != Link::Shared {
                continue;
            }
            let output = command(&program).arg(name).output().unwrap();
            assert!(output.status.success(), "{name}, {link:?}: {}", words(&output));
        }
    }
}
