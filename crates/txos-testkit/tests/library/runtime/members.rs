//! Transactions of several threads each. See `c/members.c` for what each does and what must hold.

use txos_testkit::{Lab, random};

use crate::place::{start, strays};
use crate::program::Linked;

#[test]
fn threads_of_one_transaction_count_together() {
    let lab = Lab::in_memory();
    let long = txos_testkit::skip::long("threads");
    let seconds = if long { "120" } else { "4" };
    let seed = (random::seed() % 1_000_000_000).to_string();
    let done = start(&lab, "members", Linked::WithLibrary).arg(lab.tree()).arg(seconds).arg(&seed);
    let done = done.run().expect(0);
    assert_eq!(done.text(), "done\n", "seed {seed}: {done:?}");
    // Everybody got somewhere, or the test shows nothing.
    let counted = format!(" {}", done.stderr.replace('\n', " "));
    for word in ["commits", "aborts", "losses", "looks", "joins"] {
        assert!(counted.contains(&format!(" {word} ")), "{counted}");
        assert!(!counted.contains(&format!(" {word} 0 ")), "{counted}");
    }
    assert_eq!(strays(&lab, |name| name.starts_with("count")), Vec::<std::path::PathBuf>::new());
}
