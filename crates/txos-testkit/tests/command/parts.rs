//! A part of a pending transaction is committed by itself (`txos commit ID PATH…`): what the words mean then, what is shown,
//! what can be had apart, and how each is undone.

use std::os::unix::fs::MetadataExt;

use txos_testkit::image::Image;
use txos_testkit::{Lab, require_some};

const VIEWS: [&str; 2] = ["overlay", "library"];

/// Keeps what a script does, under a name; gives the transaction's id.
fn keep(lab: &Lab, view: &str, name: &str, script: &str) -> String {
    let options = ["--view", view, "--keep", "-q", "--name", name];
    let _ = lab.script(&options, script).run().expect(0);
    lab.newest()
}

/// The id of the newest commit.
fn committed(lab: &Lab) -> String {
    lab.txos(["log", "-q", "-n1"]).run().expect(0).text().trim().to_owned()
}

#[test]
fn a_name_and_the_newest_are_the_rest() {
    for view in VIEWS {
        let lab = Lab::in_memory();
        let id = keep(&lab, view, "job", "echo 1 > a; echo 2 > b; echo 3 > c");
        let _ = lab.txos(["commit", "job", "a"]).run().expect(0);
        let part = committed(&lab);
        assert_ne!(part, id);
        for word in ["job", "@", &id] {
            let shown = lab.txos(["diff", "--name-status", word]).run().expect(0).text();
            assert!(shown.contains("/b\n") && !shown.contains("/a\n"), "{view}, {word}: {shown}");
            let shown = lab.txos(["show", word]).run().expect(0).text();
            assert!(shown.starts_with(&format!("transaction {id} (pending)")), "{view}: {shown}");
        }
        let shown = lab.txos(["diff", "--name-status", &part]).run().expect(0).text();
        assert!(shown.contains("/a\n") && !shown.contains("/b\n"), "{view}: {shown}");
        // What is committed later under the same name is not what `commit` would publish.
        let _ = lab.script(&["--name", "job"], "echo 4 > d").run().expect(0);
        let shown = lab.txos(["diff", "--name-status", "job"]).run().expect(0).text();
        assert!(shown.contains("/b\n") && !shown.contains("/d\n"), "{view}: {shown}");
        let _ = lab.txos(["commit", "job", "b"]).run().expect(0);
        let _ = lab.txos(["abort", "job"]).run().expect(0);
        assert!(!lab.path("c").exists());
        // Now it is the newest that was committed.
        let shown = lab.txos(["diff", "--name-status", "job"]).run().expect(0).text();
        assert!(shown.contains("/b\n"), "{view}: {shown}");
        for gone in ["b", "d", "a"] {
            let _ = lab.txos(["revert", "job"]).run().expect(0);
            assert!(!lab.path(gone).exists(), "{view}: {gone}");
        }
    }
}

#[test]
fn the_part_and_the_rest_show_all_commands() {
    for view in VIEWS {
        let lab = Lab::in_memory();
        let id = keep(&lab, view, "job", "echo 1 > a");
        for script in ["echo 2 > b", "echo 3 > c"] {
            let _ = lab.txos(["exec", "-q", "job", "--", "sh", "-c", script]).run().expect(0);
        }
        let _ = lab.txos(["commit", "job", "b"]).run().expect(0);
        let part = committed(&lab);
        let lines = ["'echo 1 > a'\n", "'echo 2 > b'\n", "'echo 3 > c'\n"];
        for tx in [&id, &part] {
            let shown = lab.txos(["show", tx]).run().expect(0).text();
            for line in lines {
                assert_eq!(shown.matches(line).count(), 2, "{view}: {shown}");
            }
            let stack = &lab.txos(["show", "--json", tx]).run().expect(0).json()["transaction"];
            let stack = stack["stack"].as_array().unwrap();
            assert_eq!(stack.len(), 1, "{stack:?}");
            assert_eq!(stack[0]["commands"].as_array().map(Vec::len), Some(3), "{stack:?}");
        }
        for verb in [&["list"][..], &["log", "--oneline"]] {
            let shown = lab.txos(verb).run().expect(0).text();
            assert!(shown.contains("(and 2 more)"), "{view}: {verb:?}: {shown}");
        }
        // One more is a layer of its own; of the others none can be undone without the rest.
        let _ = lab.txos(["exec", "-q", "job", "--", "sh", "-c", "echo 4 > d"]).run().expect(0);
        let _ = lab.txos(["undo", "job"]).run().expect(0);
        let _ = lab.txos(["commit", "job"]).run().expect(0);
        assert!(lab.path("c").exists() && !lab.path("d").exists());
        let log = lab.txos(["log", "-n1"]).run().expect(0).text();
        assert!(lines.iter().all(|line| log.contains(line)), "{view}: {log}");
    }
}

/// All of its commands are run again, each where it ran, and what changed nothing but began it is none of them.
#[test]
fn the_rest_is_rebased_with_all_commands() {
    for view in VIEWS {
        let lab = Lab::in_memory();
        let _ = lab.native("mkdir d; echo old > base");
        let _ = keep(&lab, view, "job", "echo 1 > a");
        for (dir, script) in [("d", "cat ../base > b"), (".", "cat base > c; exit 3")] {
            let dir = lab.path(dir);
            let exec = lab.txos(["exec", "-q", "--commit-on", "always", "--dir"]).arg(dir);
            let _ = exec.args(["job", "--", "sh", "-c", script]).run();
        }
        let _ = lab.txos(["commit", "job", "a"]).run().expect(0);
        let _ = lab.native("echo new > base");
        let _ = lab.txos(["commit", "job"]).run().expect(75);
        let done = lab.txos(["rebase", "job"]).run();
        assert!(done.stderr.contains("takes the place of"), "{view}: {done:?}");
        let _ = lab.txos(["commit", "job"]).run().expect(0);
        assert_eq!(lab.read("d/b") + &lab.read("c"), "new\nnew\n", "{view}");
    }
}

#[test]
fn all_names_of_a_new_file_make_a_part() {
    for view in VIEWS {
        let lab = Lab::in_memory();
        let script = "mkdir n; echo x > n/a; ln n/a b; ln b old; echo c > c";
        let prepare = "rm -rf -- *; echo old > was; chmod 600 was";
        for (paths, missing) in [
            (&["n"][..], &["b", "old"][..]),
            (&["b"], &["n/a", "old"]),
            (&["n", "b"], &["old"]),
            (&["n", "b", "old"], &[]),
        ] {
            let _ = lab.native(prepare);
            let id = keep(&lab, view, "names", script);
            let done = lab.txos(["commit", "names"].iter().chain(paths)).run();
            if !missing.is_empty() {
                let done = done.expect(125).says("are names of one file, and have to be");
                let names = |other: &&str| {
                    done.stderr.contains(&format!("and {} are", lab.path(other).display()))
                };
                assert!(missing.iter().any(names), "{view}: {done:?}");
                assert!(!lab.path("n").exists() && !lab.path("b").exists());
                let _ = lab.txos(["abort", &id]).run().expect(0);
                continue;
            }
            let _ = done.expect(0);
            let inode = |name: &str| std::fs::metadata(lab.path(name)).unwrap();
            assert_eq!((inode("n/a").ino(), inode("b").nlink()), (inode("old").ino(), 3));
            let part = committed(&lab);
            let rest = lab.txos(["diff", "--name-status", "names"]).run().expect(0).text();
            assert!(rest.contains("/c\n") && !rest.contains("/b\n"), "{view}: {rest}");
            let _ = lab.txos(["commit", "names"]).run().expect(0);
            let _ = lab.txos(["revert", &part]).run().expect(0);
            assert_eq!(lab.native("ls").text(), "c\nwas\n", "{view}");
        }
    }
}

#[test]
fn what_a_part_lacks_is_said() {
    for view in VIEWS {
        let lab = Lab::in_memory();
        let _ = lab.native(
            "mkdir -p r/s m o d; echo > r/s/a; echo > m/a; echo > o/a; echo 1 > one; ln one two; echo > keep",
        );
        let script = "rm -r r; mv m q; echo > q/b; rm -r o; mkdir o; echo > o/b; mkdir -p n/m; echo > n/m/x; \
                      echo 2 >> two; cat keep; touch z; rm z; ln -s d l; echo > d/x; echo > f";
        let id = keep(&lab, view, "lacks", script);
        let refused = |path: &str, why: &str| {
            let done = lab.txos(["commit", "lacks", path]).run().expect(125);
            let why = why.replace("TREE", &lab.tree().display().to_string());
            assert!(done.stderr.contains(&why), "{view}: {path}: {done:?}");
            let _ = done.says("nothing is published");
        };
        refused("r/s/a", "TREE/r/s/a was removed with TREE/r, and can only be committed together");
        refused("r/s", "TREE/r/s was removed with TREE/r");
        refused("m", "TREE/m was moved, which can't be committed apart from the rest");
        refused("m/a", "TREE/m/a was moved with TREE/m to TREE/q");
        refused("q/b", "TREE/q/b lies in TREE/q, which was moved");
        refused(
            "o/a",
            "TREE/o/a lies in TREE/o, which is replaced and can only be committed as a whole",
        );
        refused(
            "n/m/x",
            "TREE/n/m/x lies in TREE/n, which is new and can only be committed as a whole",
        );
        refused("one", "TREE/one is another name of TREE/two, by which the change");
        refused("keep", "TREE/keep is not changed by the transaction");
        refused("z", "TREE/z is not changed by the transaction");
        // As natively, a slash is for directories.
        refused("f/", "TREE/f is no directory; name it without the slash");
        refused("f/.", "TREE/f is no directory; name it without the slash");
        refused("l/", "TREE/l is a symbolic link; without the slash, the link is committed");
        for (path, made) in
            [("d/", "d/x"), ("n/", "n/m/x"), ("two", "two"), ("r/", "."), ("f", "f")]
        {
            let _ = lab.txos(["commit", "lacks", path]).run().expect(0);
            assert!(lab.path(made).exists(), "{view}: {path}");
        }
        assert!(!lab.path("r").exists() && lab.read("one") == "1\n2\n");
        let _ = lab.txos(["abort", &id]).run().expect(0);
    }
}

/// Whatever became of the rest, and without the rest having it as its own again.
#[test]
fn a_part_is_reverted_by_itself() {
    for view in VIEWS {
        for rest in ["pending", "aborted", "committed"] {
            let lab = Lab::in_memory();
            let _ = lab.native("echo 1 > changed; echo 1 > gone");
            let script =
                "echo 2 > changed; rm gone; echo new > new; mkdir dir; echo > dir/f; echo > rest";
            let id = keep(&lab, view, "part", script);
            let _ = lab.txos(["commit", &id, "changed", "gone", "new", "dir"]).run().expect(0);
            let part = committed(&lab);
            match rest {
                "aborted" => drop(lab.txos(["abort", &id]).run().expect(0)),
                "committed" => drop(lab.txos(["commit", &id]).run().expect(0)),
                _ => {}
            }
            let _ = lab.txos(["gc"]).run().expect(0);
            let _ = lab.txos(["revert", &part]).run().expect(0);
            let here = |more: &str| format!("changed\ngone\n{more}");
            let after = if rest == "committed" { here("rest\n") } else { here("") };
            assert_eq!(lab.native("ls").text(), after, "{view}, {rest}");
            assert_eq!(lab.read("changed") + &lab.read("gone"), "1\n1\n");
            if rest == "pending" {
                let shown = lab.txos(["diff", "--name-status", &id]).run().expect(0).text();
                assert!(
                    shown.ends_with("/rest\n") && shown.lines().count() == 1,
                    "{view}: {shown}"
                );
                let _ = lab.txos(["commit", &id]).run().expect(0);
                assert_eq!(lab.native("ls").text(), here("rest\n"), "{view}");
            }
            // It can be had again.
            let undo = lab.txos(["log", "-q", "-n2"]).run().expect(0).text();
            let undo = undo.lines().nth(usize::from(rest == "pending")).unwrap().to_owned();
            let _ = lab.txos(["revert", &undo]).run().expect(0);
            assert_eq!(lab.read("new") + &lab.read("changed"), "new\n2\n", "{view}, {rest}");
            assert!(lab.path("dir/f").exists() && !lab.path("gone").exists());
        }
    }
}

/// New names in the root directory of another file system, whole and as a part: nothing else is in the store there.
#[test]
fn new_names_on_another_file_system_are_reverted() {
    let lab = Lab::new();
    let image = require_some!(Image::mount(&lab, "ext4", 32, "a"), "no ext4 images here");
    let place = |name: &str| image.point.join(name);
    let run = |options: &[&str], script: &str| {
        let run = lab.txos(["run", "--view", "overlay", "--scope"]).arg(lab.tree());
        let run = run.arg("--scope").arg(&image.point).args(options);
        run.args(["--", "sh", "-c", script]).run()
    };
    let _ = run(&[], "echo > ../a/new; echo > here").expect(0);
    let _ = lab.txos(["gc"]).run().expect(0);
    let _ = lab.txos(["revert"]).run().expect(0);
    assert!(!place("new").exists() && !lab.path("here").exists());
    std::fs::write(place("old"), "1\n").unwrap();
    let _ = run(&["--keep"], "echo > ../a/new; echo 2 > ../a/old; echo > here").expect(0);
    let done = lab.txos(["commit", "@"]).arg(&image.point).run().expect(0);
    assert!(!done.stderr.contains("warning"), "{done:?}");
    assert!(place("new").exists() && !lab.path("here").exists());
    let _ = lab.txos(["revert"]).run().expect(0);
    assert!(!place("new").exists());
    assert_eq!(std::fs::read_to_string(place("old")).unwrap(), "1\n");
}
