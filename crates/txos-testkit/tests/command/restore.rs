//! Earlier versions of paths come back from what the history retains, as a transaction of its own.

use txos_testkit::tree::Tolerance;
use txos_testkit::{Lab, Tree};

/// A directory in which something is put back has the time of that.
const DIRECTORY_TIMES: Tolerance = Tolerance { now_from: None, times: true, links: false };

/// One file through three commits: "0" before, "1", "2" and "3" after them, by names one to three.
fn three(lab: &Lab, write: &str) {
    let _ = lab.native("echo 0 > file; chmod 640 file; echo beside > beside");
    for (n, name) in ["one", "two", "three"].iter().enumerate() {
        let script = write.replace("N", &(n + 1).to_string());
        let _ = lab.script(&["--name", name], &script).run().expect(0);
    }
}

#[test]
fn every_version_of_a_file_can_be_had() {
    let lab = Lab::in_memory();
    for (n, write) in
        ["echo N > file", "echo N > new; chmod 64N new; mv new file", "rm file; echo N > file"]
            .iter()
            .enumerate()
    {
        let place = lab.nested(&n.to_string());
        three(&place, write);
        let restore =
            |words: &[&str]| place.txos(["restore"].iter().chain(words)).dir(place.tree()).run();
        let _ = restore(&["file@three"]).expect(0).says("nothing changed").says("--before");
        for (words, content) in [
            (&["file@one"][..], "1\n"),
            (&["--before", "file@one"], "0\n"),
            (&["file@two"], "2\n"),
            (&["-s", "two", "--before", "file"], "1\n"),
            (&["file@three"], "3\n"),
        ] {
            let before = Tree::of(place.tree());
            let _ = restore(words).expect(0).says("restored by");
            assert_eq!(place.read("file"), content, "{write}: {words:?}");
            // It is in the history, and can be undone and done again.
            let after = Tree::of(place.tree());
            let _ = place.txos(["revert", "@"]).run().expect(0);
            let difference = before.difference(&Tree::of(place.tree()), DIRECTORY_TIMES);
            assert!(difference.is_empty(), "{write}: {words:?}: {difference}");
            let _ = place.txos(["revert", "@"]).run().expect(0);
            let difference = after.difference(&Tree::of(place.tree()), DIRECTORY_TIMES);
            assert!(difference.is_empty(), "{write}: {words:?}: {difference}");
        }
        assert_eq!(place.read("beside"), "beside\n");
    }
    lab.expect_clean();
}

/// Owner, mode, set-id bits, extended attributes and time are those of then.
#[test]
fn attributes_come_back_as_well() {
    let lab = Lab::in_memory();
    let _ = lab.native(
        "echo x > a; chown 3:4 a; chmod 4755 a; setfattr -n user.a -v 1 a; touch -d @1000000000 a",
    );
    let state = || lab.native("stat -c '%u %g %a %Y' a; getfattr -d a 2>/dev/null; cat a").stdout;
    let first = state();
    let _ = lab.script(&["--name", "w"], "echo y > b; chown 1 b; mv b a").run().expect(0);
    let second = state();
    let _ = lab.script(&[], "chmod 600 a; setfattr -n user.b -v 2 a").run().expect(0);
    let restore = |words: &[&str]| lab.txos(["restore"].iter().chain(words)).dir(lab.tree()).run();
    let _ = restore(&["--before", "a@w"]).expect(0);
    assert_eq!(String::from_utf8_lossy(&state()), String::from_utf8_lossy(&first));
    let _ = restore(&["a@w"]).expect(0);
    assert_eq!(String::from_utf8_lossy(&state()), String::from_utf8_lossy(&second));
    lab.expect_clean();
}

#[test]
fn what_was_removed_comes_back_and_what_was_not_there_goes() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir -p d/in; echo 1 > d/a; ln d/a d/b; ln -s a d/l; echo 2 > d/in/c; chmod 750 d/in; echo x > x");
    let before = Tree::of(lab.tree());
    let _ = lab
        .script(&["--name", "gone"], "rm -r d; rm x; echo new > new; mkdir made")
        .run()
        .expect(0);
    let restore = |words: &[&str]| {
        lab.txos(["restore", "--before"].iter().chain(words)).dir(lab.tree()).run()
    };
    let _ = restore(&["d@gone", "x@gone", "new@gone"]).expect(0).says("restored by");
    let _ = lab.native("rmdir made; touch -r d d");
    let difference =
        before.difference(&Tree::of(lab.tree()), Tolerance { times: true, ..Tolerance::default() });
    assert!(difference.is_empty(), "{difference}");
    assert_eq!(lab.native("stat -c %h d/a; readlink d/l").stdout, b"2\na\n");
    // Below a directory, everything that was changed since.
    let _ = lab
        .script(&["--name", "more"], "echo 9 > d/a; echo 9 > d/in/c; echo 9 > x")
        .run()
        .expect(0);
    let _ = restore(&["d@more"]).expect(0).says("2 paths");
    assert_eq!(lab.native("cat d/a d/in/c x").stdout, b"1\n2\n9\n");
    lab.expect_clean();
}

#[test]
fn what_is_not_retained_is_said() {
    let lab = Lab::in_memory();
    three(&lab, "echo N > file");
    let _ = lab.native("echo theirs > file; mkdir -p d");
    let _ = lab.script(&["--name", "made"], "mkdir made; echo x > made/x").run().expect(0);
    let before = Tree::of(lab.tree());
    let refused = |words: &[&str], what: &str| {
        let done = lab.txos(["restore"].iter().chain(words)).dir(lab.tree()).run().expect(125);
        assert!(done.stderr.contains(what) && done.stderr.contains("nothing changed"), "{done:?}");
        let difference = before.difference(&Tree::of(lab.tree()), Tolerance::default());
        assert!(difference.is_empty(), "{words:?}: {difference}");
    };
    refused(&["file@three"], "was changed by others after");
    refused(&["file"], "which version?");
    refused(&["--before", "made@made"], "is a directory now");
    let unknown = lab.txos(["restore", "file@nobody"]).dir(lab.tree()).run().expect(125);
    assert!(unknown.stderr.contains("nobody"), "{unknown:?}");
    refused(&["file@one", "file@two"], "of one transaction");
    // What others have changed is retained by the restore itself.
    let _ = lab.txos(["restore", "file@two"]).dir(lab.tree()).run().expect(0);
    assert_eq!(lab.read("file"), "2\n");
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert_eq!(lab.read("file"), "theirs\n");
    lab.expect_clean();
}
