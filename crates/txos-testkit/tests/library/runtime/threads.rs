//! Threads of one process, sharing descriptors, some in transactions and others not. See
//! `c/threads.c` for what each does and what none may see.

use txos_testkit::Lab;

use crate::place::{start, strays};
use crate::program::Linked;

#[test]
fn threads_share_descriptors_but_no_uncommitted_state() {
    let lab = Lab::in_memory();
    let seconds = if txos_testkit::skip::long("threads") { "120" } else { "4" };
    let done =
        start(&lab, "threads", Linked::WithLibrary).arg(lab.tree()).arg(seconds).run().expect(0);
    assert_eq!(done.text(), "done\n", "{done:?}");
    // Everybody got somewhere: nobody was starved, or the test shows nothing.
    for word in ["commits", "aborts", "reads", "looks", "lists", "left", "kept"] {
        let counted = format!(" {}", done.stderr.replace('\n', " "));
        assert!(!counted.contains(&format!(" {word} 0 ")), "{counted}");
    }
    let writers = |name: &str| name == "shared" || (name.len() == 2 && "ab".contains(&name[..1]));
    assert_eq!(strays(&lab, writers), Vec::<std::path::PathBuf>::new());
}
