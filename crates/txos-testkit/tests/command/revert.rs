//! A commit can be undone, as a whole, as long as nothing of it was changed since.

use txos_testkit::tree::Tolerance;
use txos_testkit::{Lab, Tree};

const PREPARE: &str = "
    mkdir -p d/inner gone/deep other; echo content > changed; echo bye > removed; echo x > d/x
    echo deep > gone/deep/file; echo owner > attributes; echo linked > other/one
    ln other/one other/two; ln -s changed link; echo log > log; setfattr -n user.kept -v 1 changed
    find . -exec touch -h -d @1000000000 {} +";

/// A change, and what an outsider does after it that is in the way of undoing it.
const CHANGES: &[(&str, &str, &str)] = &[
    ("written", "echo new > changed", "echo theirs > changed"),
    ("written, then removed", "echo new > changed", "rm changed"),
    ("written, then replaced", "echo new > changed", "echo x > t; mv t changed"),
    ("written, then its mode", "echo new > changed", "chmod 600 changed"),
    ("made", "echo new > made", "echo theirs > made"),
    ("removed", "rm removed", "echo theirs > removed"),
    ("directory made", "mkdir made; echo > made/x", "echo theirs > made/y"),
    ("directory made, file in it changed", "mkdir made; echo > made/x", "echo theirs > made/x"),
    ("directory removed", "rm -r gone", "mkdir gone"),
    ("file moved", "mv removed moved", "echo theirs > moved"),
    ("file moved, old name taken", "mv removed moved", "echo theirs > removed"),
    ("directory moved, old name taken", "mv d moved", "mkdir d"),
    ("mode", "chmod 600 attributes", "chmod 640 attributes"),
    ("owner", "chown 3 attributes", "chown 4 attributes"),
    ("xattr", "setfattr -n user.a -v 1 changed", "setfattr -n user.a -v 2 changed"),
    ("link", "ln -sfn other link", "ln -sfn d link"),
    ("hard link", "ln removed second", "rm second; echo theirs > second"),
    ("several links written", "echo new > other/one", "echo theirs > other/two"),
    ("appended", "echo more >> log", "echo theirs >> log"),
    ("type", "rm removed; mkdir removed", "touch removed/x"),
];

#[test]
fn everything_comes_back_as_it_was() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for (n, (name, change, _)) in CHANGES.iter().enumerate() {
        let place = lab.nested(&n.to_string());
        let _ = place.native(PREPARE);
        let before = Tree::of(place.tree());
        let _ = place.script(&[], change).run().expect(0);
        let after = Tree::of(place.tree());
        let reverted = place.txos(["revert", "@"]).run();
        let difference = before.difference(&Tree::of(place.tree()), Tolerance::default());
        if reverted.code() != 0 || !difference.is_empty() {
            wrong.push(format!("{name}: {reverted:?}\n{difference}"));
            continue;
        }
        // And the undoing can be undone.
        let again = place.txos(["revert", "@"]).run();
        let difference = after.difference(&Tree::of(place.tree()), Tolerance::default());
        if again.code() != 0 || !difference.is_empty() {
            wrong.push(format!("{name}, undone twice: {again:?}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CHANGES.len(), wrong.join("\n"));
}

/// What others have changed stays as they have left it, the rest is undone, and a dry run says so before.
#[test]
fn what_changed_since_is_left_when_asked() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for (n, (name, change, theirs)) in CHANGES.iter().enumerate() {
        let place = changed_since(lab.nested(&n.to_string()), change, theirs);
        let _ = place.native("cp -p also ../also; touch -r . ../times");
        let before = Tree::of(place.tree());
        let shown = place.txos(["revert", "@", "--skip-changed", "--dry-run"]).run();
        let difference = before.difference(&Tree::of(place.tree()), Tolerance::default());
        if shown.code() != 0 || !difference.is_empty() || !shown.stdout.starts_with(b" D ") {
            wrong.push(format!("{name}, dry run: {shown:?}\n{difference}"));
        }
        let reverted = place.txos(["revert", "@", "--skip-changed"]).run();
        let also = place.tree().join("also").exists();
        let _ = place.native("cp -p ../also also; touch -r ../times .");
        let difference = before.difference(&Tree::of(place.tree()), Tolerance::default());
        let difference = difference.to_string();
        let left = reverted.stderr.contains("left as it is: ");
        if reverted.code() != 0 || also || !left || !difference.is_empty() {
            wrong.push(format!("{name}: {reverted:?}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CHANGES.len(), wrong.join("\n"));
}

#[test]
fn only_what_matches_is_left() {
    let lab = Lab::in_memory();
    let place = lab.nested("some");
    let _ = place.native("mkdir log etc; echo 1 > log/a; echo 1 > etc/a; echo 1 > etc/b");
    let all = "echo 2 > log/a; echo 2 > etc/a; echo 2 > etc/b";
    let _ = place.script(&["--name", "upgrade"], all).run().expect(0);
    let _ = place.script(&["--name", "rotate"], "echo 3 > log/a").run().expect(0);
    let read = || place.native("cat log/a etc/a etc/b").stdout;
    // The message names who came after, and what to do.
    let refused = place.txos(["revert", "upgrade"]).run().expect(75);
    assert!(
        refused.stderr.contains("came after it") && refused.stderr.contains("--skip-changed"),
        "{refused:?}"
    );
    assert_eq!(read(), b"3\n2\n2\n");
    let logs = format!("--skip-changed={}/log/**", place.tree().display());
    let _ = place.native("echo 4 > etc/a");
    let refused = place.txos(["revert", "upgrade", &logs]).run().expect(75);
    assert!(refused.stderr.contains("/etc/a") && !refused.stderr.contains("/log/a"), "{refused:?}");
    assert_eq!(read(), b"3\n4\n2\n");
    let bad = place.txos(["revert", "upgrade", "--skip-changed=a["]).run().expect(125);
    assert!(
        bad.stderr.contains("--skip-changed") && bad.stderr.contains("not a pattern"),
        "{bad:?}"
    );
    // Other patterns than these are relative to the working directory.
    let (logs, etc) = ("--skip-changed=log/*", "--skip-changed=../etc/a");
    let wrong = place.txos(["revert", "upgrade", logs, etc]).run().expect(75);
    assert!(wrong.stderr.contains("/etc/a") && !wrong.stderr.contains("/log/a"), "{wrong:?}");
    let (logs, dir) = ("--skip-changed=**/log/a", place.tree().join("log"));
    let reverted = place.txos(["revert", "upgrade", logs, etc]).dir(&dir).run().expect(0);
    assert_eq!(reverted.stderr.matches("left as it is").count(), 2, "{reverted:?}");
    assert_eq!(read(), b"3\n4\n1\n");
    // What was done can be undone.
    let _ = place.txos(["revert", "@"]).run().expect(0);
    assert_eq!(read(), b"3\n4\n2\n");
}

#[test]
fn nothing_is_left_to_undo() {
    let lab = Lab::in_memory();
    let place = lab.nested("all");
    let _ = place.native("echo 1 > a");
    let _ = place.script(&[], "echo 2 > a").run().expect(0);
    let _ = place.native("echo 3 > a");
    let refused = place.txos(["revert", "--skip-changed"]).run().expect(75);
    assert!(refused.stderr.contains("is not reverted, nothing changed"), "{refused:?}");
    assert_eq!(place.native("cat a").stdout, b"3\n");
}

/// Commits a change and something else, and has an outsider change the same.
fn changed_since(place: Lab, change: &str, theirs: &str) -> Lab {
    let _ = place.native(PREPARE);
    let _ = place.script(&[], &format!("{change}; echo also > also")).run().expect(0);
    let _ = place.native(theirs);
    place
}

#[test]
fn what_changed_since_is_a_conflict() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for (n, (name, change, theirs)) in CHANGES.iter().enumerate() {
        let place = changed_since(lab.nested(&n.to_string()), change, theirs);
        let before = Tree::of(place.tree());
        let reverted = place.txos(["revert", "@"]).run();
        let difference = before.difference(&Tree::of(place.tree()), Tolerance::default());
        if reverted.code() != 75 || !difference.is_empty() {
            wrong.push(format!("{name}: {reverted:?}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CHANGES.len(), wrong.join("\n"));
}

#[test]
fn unrelated_changes_since_stay() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let _ = lab.script(&[], "echo new > changed; rm -r gone; echo > d/new").run().expect(0);
    let _ = lab.native("echo theirs > d/theirs; echo theirs > removed; mkdir mine");
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert_eq!(lab.read("changed"), "content\n");
    assert_eq!(lab.read("gone/deep/file"), "deep\n");
    assert!(!lab.path("d/new").exists());
    assert_eq!(lab.read("d/theirs"), "theirs\n");
    assert_eq!(lab.read("removed"), "theirs\n");
    assert!(lab.path("mine").is_dir());
    lab.expect_clean();
}

#[test]
fn commits_are_undone_newest_first() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > file");
    let mut ids = Vec::new();
    for n in 1..=3 {
        let _ = lab.script(&[], &format!("echo {n} > file")).run().expect(0);
        ids.push(lab.newest());
    }
    let _ = lab.txos(["revert", &ids[0]]).run().expect(75).says("/file");
    assert_eq!(lab.read("file"), "3\n");
    for (n, id) in ids.iter().enumerate().rev() {
        let _ = lab.txos(["revert", id]).run().expect(0);
        assert_eq!(lab.read("file"), format!("{n}\n"));
    }
    let _ = lab.txos(["revert", &ids[2]]).run().expect(125).says("undone already");
    let log = lab.txos(["log", "--json"]).run().expect(0).json();
    let states: Vec<_> =
        log["transactions"].as_array().unwrap().iter().map(|t| t["state"].clone()).collect();
    assert_eq!(states.len(), 6);
    assert_eq!(states.iter().filter(|s| **s == "reverted").count(), 3);
    lab.expect_clean();
}

#[test]
fn history_can_be_forgotten() {
    let lab = Lab::in_memory();
    let _ = lab.native("head -c 100000 /dev/urandom > big");
    for _ in 0..5 {
        let _ = lab
            .script(&[], "head -c 100000 /dev/urandom > big.new; mv big.new big")
            .run()
            .expect(0);
    }
    let json = lab.txos(["gc", "--keep", "2", "--json"]).run().expect(0).json();
    assert_eq!(json["removed"].as_array().map(Vec::len), Some(3));
    assert!(json["freed"].as_u64() > Some(250_000), "{json}");
    let log = lab.txos(["log", "--json"]).run().expect(0).json();
    assert_eq!(log["transactions"].as_array().map(Vec::len), Some(2));
    let _ = lab.txos(["gc", "--older-than", "1h"]).run().expect(0);
    assert_eq!(lab.held().transactions.len(), 2);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    lab.expect_clean();
}

/// Only what is named is undone; what is left stays in the history, and is undone by the transaction's id.
#[test]
fn a_part_is_undone_and_the_rest_later() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir etc log; for i in 1 2 3; do echo 1 > etc/$i; done; echo 1 > log/a");
    let all = "for i in 1 2 3; do echo 2 > etc/$i; done; echo 2 > log/a; echo 2 > etc/new";
    let _ = lab.script(&["--name", "upgrade"], all).run().expect(0);
    let read = || lab.native("cd etc; cat 1 2 3 ../log/a; ls").stdout;
    let inside = |words: &[&str]| lab.txos(words).dir(lab.tree()).run();
    let shown = inside(&["revert", "-n", "upgrade", "etc/1"]).expect(0);
    assert!(shown.text().contains("etc/1") && !shown.text().contains("etc/2"), "{shown:?}");
    let done = inside(&["revert", "upgrade", "etc/1", "log"]).expect(0);
    let _ = done.says("reverted a part of").says("stays committed: 3 paths");
    assert_eq!(read(), b"1\n2\n2\n1\n1\n2\n3\nnew\n");
    // The history says what happened, and what is left.
    let id = lab.txos(["show", "upgrade", "--json"]).run().expect(0).json();
    assert_eq!(id["transaction"]["state"], "committed");
    assert_eq!(id["transaction"]["changes"], 3);
    assert_eq!(id["changes"].as_array().map(Vec::len), Some(3));
    assert_eq!(id["transaction"]["parts_reverted_by"].as_array().map(Vec::len), Some(1));
    let part = lab.newest();
    let log = lab.txos(["log"]).run().expect(0).text();
    assert!(log.contains("Reverts:  a part of") && log.contains("in part by"), "{log}");
    // Of this, nothing is left to undo.
    let _ = inside(&["revert", "upgrade", "etc/1"]).expect(125).says("was not changed by");
    // By a pattern, as if it were quoted from the shell.
    let _ = inside(&["revert", "upgrade", "etc/n*"]).expect(0);
    assert_eq!(read(), b"1\n2\n2\n1\n1\n2\n3\n");
    // The part can be undone, and the rest by its id.
    let _ = lab.txos(["revert", &part]).run().expect(0);
    assert_eq!(read(), b"2\n2\n2\n2\n1\n2\n3\n");
    let _ = lab.txos(["revert", "upgrade"]).run().expect(0);
    assert_eq!(read(), b"2\n1\n1\n2\n1\n2\n3\n");
    let _ = lab.txos(["revert", "upgrade"]).run().expect(125).says("undone already");
    // What belongs together in the history goes together.
    let _ = lab.txos(["gc", "--keep", "1"]).run().expect(0);
    assert_eq!(
        lab.txos(["log", "--json"]).run().json()["transactions"].as_array().map(Vec::len),
        Some(5)
    );
    lab.expect_clean();
}

#[test]
fn what_belongs_together_is_refused_by_name() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir d gone; echo 1 > d/a; ln d/a d/b; echo 1 > from; echo x > gone/x");
    let all = "echo 2 > d/a; mv from to; mkdir new; echo n > new/n; rm -r gone; echo 1 > free";
    let _ = lab.script(&["--name", "all"], all).run().expect(0);
    let before = Tree::of(lab.tree());
    let refused = |path: &str, what: &str| {
        let done = lab.txos(["revert", "all", path]).dir(lab.tree()).run().expect(125);
        assert!(done.stderr.contains(what) && done.stderr.contains("nothing changed"), "{done:?}");
        let difference = before.difference(&Tree::of(lab.tree()), Tolerance::default());
        assert!(difference.is_empty(), "{path}: {difference}");
    };
    refused("from", "/to, and can't be undone without");
    refused("to", "/from, and can't be undone without");
    refused("new/n", "new, which came, went or moved as a whole");
    refused("gone/x", "gone, which came, went or moved as a whole");
    refused("other", "was not changed by");
    refused("a[", "was not changed by");
    // All of it can.
    for paths in [&["from", "to"][..], &["d"], &["new"], &["gone", "free"]] {
        let done = lab.txos(["revert", "all"]).args(paths).dir(lab.tree()).run();
        assert_eq!(done.code(), 0, "{paths:?}: {done:?}");
    }
    let _ = lab.txos(["revert", "all"]).run().expect(125).says("undone already");
    assert_eq!(lab.native("cat from d/a d/b gone/x; ls").stdout, b"1\n1\n1\nx\nd\nfrom\ngone\n");
    lab.expect_clean();
}

/// A text that others have edited is merged: their lines stay, the transaction's go. Nothing is done if any can't be.
#[test]
fn texts_are_merged() {
    let lab = Lab::in_memory();
    let _ = lab.native(
        "printf '%s\\n' a b c d e f g > conf; cp conf other; chmod 640 conf; echo x > gone",
    );
    let change = "sed -i s/^b/B/ conf; sed -i s/^b/B/ other; chmod 600 other; rm gone";
    let _ = lab.script(&["--name", "t"], change).run().expect(0);
    // An editor that writes a new file, and one that writes in place.
    let _ = lab.native("sed -i s/^f/F/ conf; echo h >> other");
    let before = Tree::of(lab.tree());
    let refused = lab.txos(["revert", "t"]).run().expect(75);
    assert!(refused.stderr.contains("--merge"), "{refused:?}");
    let shown = lab.txos(["revert", "t", "--merge", "--dry-run"]).run().expect(0);
    assert_eq!(
        shown.stderr.matches("merged with what others have changed").count(),
        2,
        "{shown:?}"
    );
    assert!(before.difference(&Tree::of(lab.tree()), Tolerance::default()).is_empty());
    let done = lab.txos(["revert", "t", "--merge"]).run().expect(0);
    assert_eq!(done.stderr.matches("merged with what others have changed").count(), 2, "{done:?}");
    let read = || {
        lab.native("tr -d '\\n' < conf; echo; tr -d '\\n' < other; echo; stat -c %a conf other; ls")
            .text()
    };
    assert_eq!(read(), "abcdeFg\nabcdefgh\n640\n644\nconf\ngone\nother\n");
    // It can be undone like anything else.
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    // (The time of the directory is the merge's.)
    let tolerance = Tolerance { times: true, ..Tolerance::default() };
    let difference = before.difference(&Tree::of(lab.tree()), tolerance);
    assert!(difference.is_empty(), "{difference}");
    lab.expect_clean();
}

#[test]
fn what_can_not_be_merged_is_named_and_nothing_done() {
    let lab = Lab::in_memory();
    let _ = lab.native(
        "printf '%s\\n' a b c d e > same; cp same fine; cp same two; ln two name; printf 'a\\0b' > data; echo x > along",
    );
    let change = "sed -i s/^b/B/ same; sed -i s/^b/B/ fine; echo 1 >> two; printf 'A\\0b' > data; echo y > along";
    let _ = lab.script(&["--name", "t"], change).run().expect(0);
    let _ =
        lab.native("sed -i s/^B/X/ same; echo more >> fine; echo 2 >> name; printf 'C\\0b' > data");
    let before = Tree::of(lab.tree());
    let refused = lab.txos(["revert", "t", "--merge"]).run().expect(75);
    for (path, why) in [
        ("/same", "both changed the same lines, from line 2 on"),
        ("/two", "not merged"),
        ("/data", "not merged"),
    ] {
        let line = refused.stderr.lines().find(|line| line.contains(path)).unwrap_or_default();
        assert!(line.contains(why), "{path}: {refused:?}");
    }
    assert!(!refused.stderr.contains("/fine") && !refused.stderr.contains("/along"), "{refused:?}");
    let difference = before.difference(&Tree::of(lab.tree()), Tolerance::default());
    assert!(difference.is_empty(), "{difference}");
    // With those left, the rest is merged and undone.
    let top = lab.tree().display();
    let skip = [format!("--skip-changed={top}/{{same,two,name,data}}")];
    let _ = lab.txos(["revert", "t", "--merge"]).args(skip).run().expect(0).says("left as it is");
    assert_eq!(
        lab.native("tr -d '\\n' < fine; echo; cat along; head -2 same").text(),
        "abcdemore\nx\na\nX\n"
    );
    lab.expect_clean();
}

/// A change of owner takes capabilities away, in the library's view as natively; the revert gives them back.
#[test]
fn a_revert_of_a_change_of_owner_gives_capabilities_back() {
    for view in ["library", "overlay"] {
        let lab = Lab::new();
        let capability = "0x0100000200200000000000000000000000000000";
        let show = "stat -c %u:%g f; getfattr -d -m security.capability -e hex f";
        let _ =
            lab.native(&format!("echo x > f; setfattr -n security.capability -v {capability} f"));
        let before = lab.native(show).text();
        assert!(before.contains(capability), "{before}");
        let _ = lab.script(&["--view", view, "--name", "owner"], "chown 4:5 f").run().expect(0);
        let between = lab.native(show).text();
        assert!(between.contains("4:5") && !between.contains(capability), "{view}: {between}");
        let _ = lab.txos(["revert", "owner"]).run().expect(0);
        assert_eq!(lab.native(show).text(), before, "{view}");
    }
}
