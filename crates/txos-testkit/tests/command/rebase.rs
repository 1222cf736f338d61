//! The command of a pending transaction is run again on what is there by then.

use txos_testkit::Lab;

#[test]
fn what_others_have_changed_is_seen_by_the_second_run() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir d; echo 1 > d/file");
    let odd = "a\u{e9} \"b\"\n'";
    let script = "x=$(cat file); echo $((x + 1)) > file; printf %s \"$1\" > word";
    let run =
        lab.txos(["run", "--keep", "--name", "plus", "-m", "One more", "--scope"]).arg(lab.tree());
    let run = run.args(["--", "sh", "-c", script, "sh", odd]).dir(lab.path("d"));
    let _ = run.run().expect(0);
    let _ = lab.native("echo 10 > d/file");
    let refused = lab.txos(["commit", "plus"]).run().expect(75);
    assert!(refused.stderr.contains("txos rebase"), "{refused:?}");
    // In the directory and with the words of the first time.
    let report = lab.dir().join("report");
    let rebase = lab.txos(["rebase", "plus", "--report"]).arg(&report);
    let _ = rebase.run().expect(0).says("takes the place of");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!((&report["command"], &report["outcome"]), (&"rebase".into(), &"kept".into()));
    assert_eq!(report["transaction"]["message"], "One more");
    assert_eq!(lab.read("d/file"), "10\n");
    let list = lab.txos(["list", "-q"]).run().expect(0).text();
    assert_eq!(list.trim(), report["id"].as_str().unwrap(), "one is left");
    let _ = lab.txos(["commit", "plus"]).run().expect(0);
    assert_eq!((lab.read("d/file").as_str(), lab.read("d/word").as_str()), ("11\n", odd));
    lab.expect_clean();
}

#[test]
fn the_old_one_stays_until_the_new_one_has_succeeded() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo yes > ok");
    let _ = lab
        .script(&["--keep", "--name", "k"], "grep -q yes ok && echo made > made")
        .run()
        .expect(0);
    let _ = lab.native("echo no > ok");
    let id = lab.newest();
    let failed = lab.txos(["rebase", "k"]).run().expect(1);
    assert!(failed.stderr.contains(&format!("{id} stays pending, as it is")), "{failed:?}");
    let diff = lab.txos(["diff", &id]).run().expect(0).text();
    assert!(diff.contains("+made") && !lab.path("made").exists(), "{diff}");
    let _ = lab.txos(["abort", &id]).run().expect(0);
    // Hidden arguments are not recorded.
    let _ = lab.script(&["--keep", "--no-record-args"], "echo x > x").run().expect(0);
    let refused = lab.txos(["rebase", "@"]).run().expect(125);
    assert!(refused.stderr.contains("--no-record-args"), "{refused:?}");
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    lab.expect_clean();
}

/// Every layer is made again, in its directory; one that fails leaves the old transaction as it was.
#[test]
fn all_layers_are_made_again() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir d; echo 1 > n");
    let _ = lab.script(&["--keep", "--name", "k"], "cat n > first").run().expect(0);
    let exec = |options: &[&str], script: &str| {
        let run = lab.txos(["exec", "k"]).args(options).args(["--", "sh", "-c", script]);
        run.dir(lab.path("d")).run()
    };
    let _ = exec(&[], "cat ../first ../n > second").expect(0);
    let _ = exec(&["--commit-on", "always"], "cp second third; exit 3").expect(3);
    let _ = exec(&[], "echo undone > fourth").expect(0);
    let _ = lab.txos(["undo", "k"]).run().expect(0);
    let _ = lab.native("echo 2 > n");
    // All of them are counted.
    let rebased = lab.txos(["rebase", "k"]).run().expect(0);
    let _ = rebased.says("takes the place of").says(", which is gone, and changes 3 paths\n");
    let shown = lab.txos(["show", "k", "--json"]).run().expect(0).json();
    assert_eq!(shown["transaction"]["stack"].as_array().unwrap().len(), 3, "{shown}");
    // A layer that can't be made any more: nothing of the attempt is left.
    let _ = exec(&[], "test $(cat ../n) = 2").expect(0);
    let id = shown["transaction"]["id"].as_str().unwrap();
    let _ = lab.native("echo 3 > n");
    let failed = lab.txos(["rebase", "k"]).run().expect(1);
    let _ = failed.says("layer 4 failed").says(format!("{id} stays pending, as it is"));
    assert_eq!(lab.txos(["list", "-q"]).run().expect(0).text().trim(), id);
    let _ = lab.txos(["undo", "k"]).run().expect(0);
    let _ = lab.txos(["rebase", "k"]).run().expect(0);
    let _ = lab.txos(["commit", "k"]).run().expect(0);
    assert_eq!(lab.read("first") + &lab.read("d/third"), "3\n3\n3\n");
    assert!(!lab.path("d/fourth").exists());
    // Not with arguments that were not recorded.
    let _ = lab.script(&["--keep", "--name", "h"], "echo x > x").run().expect(0);
    let hidden = lab.txos(["exec", "h", "--no-record-args", "--", "sh", "-c", "echo y > y"]);
    let _ = hidden.run().expect(0);
    let refused = lab.txos(["rebase", "h"]).run().expect(125);
    let _ = refused.says("layer 2").says("--no-record-args").says("stays pending");
    let _ = lab.txos(["abort", "h"]).run().expect(0);
    lab.expect_clean();
}
