//! How transactions are named on the command line, and found in the history.

use txos_testkit::Lab;

#[test]
fn each_command_means_the_newest_that_it_can_be_applied_to() {
    let lab = Lab::in_memory();
    let _ = lab.script(&["--name", "first"], "echo 1 > first").run().expect(0);
    let _ = lab.script(&["--name", "second"], "echo 2 > second").run().expect(0);
    let _ = lab.script(&["--keep", "--name", "kept"], "echo 3 > kept").run().expect(0);
    let _ = lab.script(&["--keep", "--name", "kept too"], "echo 4 > too").run().expect(0);
    // Without an id, what is newest of all is shown.
    for verb in ["show", "diff"] {
        let shown = lab.txos([verb]).run().expect(0).text();
        assert!(shown.contains("too") && !shown.contains("tree/kept"), "{shown}");
    }
    // The newest committed ones lie before two that are pending.
    let _ = lab.txos(["revert", "@~1"]).run().expect(0);
    assert!(!lab.path("first").exists() && lab.path("second").exists());
    let _ = lab.txos(["revert", "second"]).run().expect(0);
    assert!(!lab.path("second").exists());
    let _ = lab.txos(["commit", "@~"]).run().expect(0);
    assert!(lab.path("kept").exists() && !lab.path("too").exists());
    let _ = lab.txos(["exec", "@", "--", "sh", "-c", "echo 5 > too"]).run().expect(0);
    let _ = lab.txos(["abort", "kept too"]).run().expect(0);
    let none = lab.txos(["commit", "@"]).run().expect(125);
    assert!(none.stderr.contains("there is no pending transaction"), "{none:?}");
    let few = lab.txos(["revert", "@~9"]).run().expect(125);
    assert!(few.stderr.contains("there are only 3 committed transactions"), "{few:?}");
    let unknown = lab.txos(["show", "no such name"]).run().expect(125);
    assert!(unknown.stderr.contains("no such name"), "{unknown:?}");
}

#[test]
fn a_name_used_twice_is_the_newest_that_fits() {
    let lab = Lab::in_memory();
    let _ = lab.script(&["--name", "n"], "echo 1 > a").run().expect(0);
    let _ = lab.script(&["--name", "n"], "echo 2 > b").run().expect(0);
    let _ = lab.txos(["revert", "n"]).run().expect(0);
    assert!(lab.path("a").exists() && !lab.path("b").exists());
    let _ = lab.txos(["revert", "n"]).run().expect(0);
    assert!(!lab.path("a").exists());
    let done = lab.txos(["revert", "n"]).run().expect(125);
    assert!(done.stderr.contains("reverted"), "{done:?}");
}

#[test]
fn the_history_of_a_path() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir etc var; echo 1 > etc/a");
    let _ = lab.script(&["--name", "one"], "echo 2 > etc/a; echo 2 > var/a").run().expect(0);
    let _ = lab.script(&["--name", "two"], "echo 3 > var/a").run().expect(0);
    let _ = lab.script(&["--name", "three"], "mv etc else").run().expect(0);
    let log = |args: &[&str]| {
        let shown = lab.txos(["log", "--oneline"].iter().chain(args)).run().expect(0).text();
        ["one", "two", "three"].iter().filter(|n| shown.contains(&format!("{n}: "))).count() * 10
            + shown.lines().count()
    };
    assert_eq!(log(&[]), 33);
    assert_eq!(log(&["etc"]), 22, "the change in it and the move");
    assert_eq!(log(&["var/a"]), 22);
    assert_eq!(log(&["else"]), 11);
    assert_eq!(log(&["nothing"]), 0);
    assert_eq!(log(&["--name", "two"]), 11);
    assert_eq!(log(&["--since", "1h"]), 33);
    assert_eq!(log(&["--until", "1h"]), 0);
    assert_eq!(log(&["--until", "0s", "-n", "1", "var"]), 11);
}

#[test]
fn a_command_knows_its_transaction() {
    let lab = Lab::in_memory();
    let done = lab.script(&["--keep", "-q"], "echo $TXOS_ID > id").run().expect(0);
    let id = done.stderr.trim();
    let inner = lab.txos(["exec", id, "--", "sh", "-c", "cat id; env | grep -c ^TXOS_ID="]);
    assert_eq!(inner.env("TXOS_ID", "another").run().expect(0).text(), format!("{id}\n1\n"));
}
