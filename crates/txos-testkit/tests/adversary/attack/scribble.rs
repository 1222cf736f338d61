//! A participant that writes anything anywhere into the realm, while others commit. It is the same
//! user, so it could as well kill them; but the realm is never what correctness rests on, and they
//! must not crash, publish wrongly, or wait for what is not there once it has ended.

use txos_testkit::{Invocation, Lab, skip};

use crate::Scene;

/// The realm's segment.
fn segment(lab: &Lab) -> String {
    let mut files = std::fs::read_dir(lab.realm()).unwrap().flatten();
    files.find(|entry| entry.path().is_file()).unwrap().path().display().to_string()
}

const INCREMENT: &str = "read n < counter; echo $((n + 1)) > counter; echo line >> log";

#[test]
fn others_commit_nothing_wrong() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let _ = lab.native("echo 0 > counter; : > log");
    let _ = lab.script(&[], "true").run().expect(0);
    let (seed, rounds) = (crate::seed(1), if skip::long("attack") { 200 } else { 4 });
    println!("TXOS_TEST_SEED={seed}");
    let mut committed = 0;
    for round in 0..rounds {
        let number = (seed + round).to_string();
        let scribbler =
            Invocation::new(&scene.attacker).args(["scribble", &segment(lab), &number]).start();
        txos_testkit::wait::until("it scribbles", || scribbler.stdout() == "attacking\n");
        let start = |view: [&str; 2]| {
            lab.script(&[&view[..], &["--wait", "1"]].concat(), INCREMENT).start()
        };
        let all = crate::VIEWS.map(start);
        // It ends when they have had some time: nobody has to end before.
        let _ = lab.native("sleep 0.5");
        drop(scribbler);
        for one in all {
            let done = one.wait();
            assert!(matches!(done.code(), 0 | 75 | 125), "{done:?}");
            assert!(!done.stderr.contains("panicked"), "{done:?}");
            committed += u32::from(done.code() == 0);
        }
        for command in [&["list"][..], &["status"], &["top", "--once"]] {
            let done = lab.txos(command).run();
            assert!(done.code() <= 2 && !done.stderr.contains("panicked"), "{done:?}");
        }
        assert_eq!(lab.read("counter"), format!("{committed}\n"), "round {round}");
        assert_eq!(lab.read("log").lines().count() as u32, committed, "round {round}");
        // What was left behind is nobody's; a person has it made anew.
        let _ = lab.txos(["doctor", "--rebuild"]).run();
    }
    println!("{committed} of {} committed", 2 * rounds);
    let _ = lab.script(&[], INCREMENT).run().expect(0);
    lab.expect_clean();
}
