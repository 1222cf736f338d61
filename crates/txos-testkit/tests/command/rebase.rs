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
    // Of more commands nothing is recorded; of hidden arguments neither.
    let _ = lab.txos(["exec", &id, "--", "true"]).run().expect(0);
    let refused = lab.txos(["rebase", &id]).run().expect(125);
    assert!(
        refused.stderr.contains("txos exec") && refused.stderr.contains("stays pending"),
        "{refused:?}"
    );
    let _ = lab.txos(["abort", &id]).run().expect(0);
    let _ = lab.script(&["--keep", "--no-record-args"], "echo x > x").run().expect(0);
    let refused = lab.txos(["rebase", "@"]).run().expect(125);
    assert!(refused.stderr.contains("--no-record-args"), "{refused:?}");
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    lab.expect_clean();
}
