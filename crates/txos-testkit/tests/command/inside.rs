//! `txos run` inside a transaction: one of its own, which is lost alone if it fails, and part of the outer one if
//! it succeeds.

use rustix::process::Signal;
use txos_testkit::pty::Pty;
use txos_testkit::random::Random;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, require, require_some, skip};

use crate::merging::change;
use crate::rootless::Place;
use crate::savepoints::dump;

const PREPARE: &str = "
    set -e
    echo old > a; ln a b; mkdir -p d/e gone f; echo x > d/x; echo y > d/e/y; ln d/x dx
    echo g > gone/g; ln -s a link; echo c > c; mkfifo pipe; echo h > f/h
    find . -exec touch -h -d @1000000000 {} +";

fn txos() -> String {
    txos_testkit::binary::txos().display().to_string()
}

/// A command for a shell that runs another script inside; neither may hold a single quote.
fn inner(script: &str) -> String {
    format!("{} run -- sh -c '{script}'", txos())
}

/// What fails inside is as if it had not been, to the outer command and to the commit; it has seen what the outer one
/// had changed.
#[test]
fn one_that_fails_loses_only_itself() {
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    for place in [&lab, &native] {
        let _ = place.native(PREPARE).expect(0);
    }
    let (first, last) = ("echo o > o; echo 1 >> a; mv f F; rm c", "cat a > seen; echo 2 >> b");
    let fails = "set -e; test $(cat o) = o; test ! -e c; cat F/h; echo x >> a; rm -r d gone; mv F G; echo n > new; ln b bb; \
                 chmod 600 o; exit 7";
    let script = format!("{first}; {}; test $? = 7 || exit 9; ls; {last}", inner(fails));
    let done = lab.script(&[], &script).run().expect(0);
    assert_eq!(done.text(), "h\nF\na\nb\nd\ndx\ngone\nlink\no\npipe\n");
    let _ = done.says("sh exited with status 7; rolled back, ").says("has nothing of it");
    let _ = native.native(&format!("{first}; {last}")).expect(0);
    assert_eq!(dump(lab.tree()), dump(native.tree()));
    lab.expect_clean();
}

/// What succeeds is part of the outer transaction: published with it, or rolled back with it.
#[test]
fn one_that_succeeds_is_part_of_the_outer_one() {
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    for place in [&lab, &native] {
        let _ = place.native(PREPARE).expect(0);
    }
    let before = dump(lab.tree());
    let inode = |path: &str| {
        let place = lab.tree().join(path);
        std::os::unix::fs::MetadataExt::ino(&std::fs::symlink_metadata(place).unwrap())
    };
    let was = [inode("d"), inode("d/e"), inode("d/x"), inode("a")];
    let (first, last) =
        ("echo o > o; mkdir n; echo n > n/n; ln o p", "cat D/E/y a > seen; rm -r n");
    let works = "set -e; mv d D; mv D/e D/E; echo 1 >> b; ln dx n/dx; rm c; mkdir c; echo in > c/in; rm -r gone; echo f > gone; \
                 chmod 751 f; touch -d @1100000000 f/h; echo 2 >> o; ln -s x n/link; mkfifo n/pipe; rm link; echo l > link; \
                 cp -a p q; mv p n/p; setfattr -n user.k -v v f/h";
    let fails = format!("{first}; {}; exit 3", inner(works));
    let _ = lab.script(&[], &fails).run().expect(3);
    assert_eq!(dump(lab.tree()), before, "the outer one failed");
    let done =
        lab.script(&[], &format!("{first}; {} || exit 9; {last}", inner(works))).run().expect(0);
    let _ = done.says(" now\n");
    let _ = native.native(&format!("{first}; {works}; {last}")).expect(0);
    assert_eq!(dump(lab.tree()), dump(native.tree()));
    // What was moved or written in place is what it was.
    assert_eq!([inode("D"), inode("D/E"), inode("D/x"), inode("a")], was);
    lab.expect_clean();
}

/// Random commands before, inside and after: the same as in a plain tree, with what was inside and without.
#[test]
fn random_scripts() {
    let lab = Lab::in_memory();
    let names = ["a", "b", "d", "d/x", "d/e", "d/e/y", "d/n", "f", "f/h", "p", "gone", "gone/g"];
    for seed in 0..16 {
        let mut random = Random::new(seed);
        let [before, inside, after] = [3, 5, 2].map(|count| {
            let changes: Vec<String> = (0..count).map(|_| change(&mut random, &names)).collect();
            format!("{{ {}; }} 2>/dev/null", changes.join("; "))
        });
        let works = seed % 3 != 0;
        let native = lab.nested(&format!("native-{seed}"));
        let lab = lab.nested(&format!("seed-{seed}"));
        for place in [&lab, &native] {
            let _ = place.native(PREPARE).expect(0);
        }
        let native_inside = if works { &inside[..] } else { ":" };
        let _ = native.native(&format!("set +e; {before}; {native_inside}; {after}; :")).expect(0);
        let status = if works { 0 } else { 5 };
        let run = inner(&format!("{inside}; exit {status}"));
        let script = format!("{before}; {run}; test $? = {status} || exit 9; {after}; :");
        let done = lab.script(&[], &script).run().expect(0);
        // A retained file may be a link of one in the tree.
        let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
        assert_eq!(dump(lab.tree()), dump(native.tree()), "seed {seed}: {script}\n{done:?}");
        lab.expect_clean();
    }
}

/// The command has what the asker has: environment, descriptors, mask, working directory, input; and its own id.
#[test]
fn the_command_has_what_its_caller_has() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir d; echo 5 > five").expect(0);
    let txos = txos();
    let script = format!(
        "cd d; umask 027; export V=1; exec 5< ../five 6> ../six; outer=$TXOS_ID
        echo in | {txos} run -- sh -c 'cat; cat <&5; echo 6 >&6; pwd; echo $V; : > new; test $TXOS_ID != '$outer
        {txos} run --dir .. -- sh -c 'pwd; echo $PWD; ls /proc/$$/fd | wc -l; exit 0' 5<&- 6>&-; stat -c %a new"
    );
    let tree = lab.tree().display();
    let done = lab.script(&[], &script).run().expect(0);
    assert_eq!(done.text(), format!("in\n5\n{tree}/d\n1\n{tree}\n{tree}\n3\n640\n"), "{done:?}");
    assert_eq!(lab.read("six"), "6\n");
    lab.expect_clean();
}

/// Either side is killed, or asked to end: the outer command goes on without what was done inside.
#[test]
fn one_that_is_killed_loses_only_itself() {
    let lab = Lab::in_memory();
    let inside = inner("echo > f; echo up; exec sleep 1000");
    for (signal, status) in [("KILL", 137), ("TERM", 143)] {
        let script = format!(
            "{{ {inside} & echo $!; wait $!; echo $? > status; }} | {{ read pid; read up; [ $pid != up ] || pid=$up; \
             kill -{signal} $pid; cat; }}; ls"
        );
        let done = lab.script(&[], &script).run().expect(0);
        assert_eq!(done.text(), "status\n", "{signal}: {done:?}");
        assert_eq!(lab.read("status"), format!("{status}\n"), "{signal}");
        assert!(!lab.path("f").exists(), "{signal}");
    }
    // The command itself.
    let script = format!("{}; echo $?; ls", inner("echo > f; kill -9 $$"));
    assert_eq!(lab.script(&[], &script).run().expect(0).text(), "137\nstatus\n");
    // The outer one: nothing is left of either.
    let outer = lab.script(&[], &format!("echo > f; {inside}")).start();
    until("it runs", || outer.stdout().contains("up"));
    outer.signal(Signal::KILL);
    let _ = outer.wait();
    until("both are gone", || {
        let _ = lab.txos(["gc"]).run().expect(0);
        lab.txos(["list", "-q"]).run().expect(0).text().is_empty()
    });
    assert!(!lab.path("f").exists());
    lab.expect_clean();
}

/// A process of the outer transaction changes what the inner one changes, or has looked at.
#[test]
fn what_others_change_meanwhile_is_a_conflict() {
    let lab = Lab::in_memory();
    for (inside, outside, status) in [
        ("echo in > f", "echo out > f", 75),
        ("echo in > f", "rm f", 75),
        ("cat f > g", "echo out > f", 75),
        ("rm -r d", "echo out > d/x", 75),
        ("mv d e", "echo out > d/new", 75),
        ("echo in > d/x", "mv d e", 75),
        ("ls . > g", "echo out > log", 0),
        ("echo in > d/x", "echo out > d/y", 0),
        ("echo in > f", "echo out > other; rm g", 0),
    ] {
        let lab = lab.nested(&format!("{inside}, {outside}").replace('/', "-"));
        let _ = lab.native("echo old > f; mkdir d; echo x > d/x; echo g > g").expect(0);
        // It holds still until the other one has done it.
        let run = inner(&format!("{inside}; echo up; read go; :"));
        let script = format!(
            "mkfifo /dev/shm/$TXOS_ID; {{ {run} <> /dev/shm/$TXOS_ID; echo $? > status; }} | {{ \
             read up; {outside}; echo go > /dev/shm/$TXOS_ID; cat > /dev/null; }}; rm /dev/shm/$TXOS_ID"
        );
        let done = lab.script(&[], &script).run().expect(0);
        assert_eq!(lab.read("status"), format!("{status}\n"), "{inside}, {outside}: {done:?}");
        if status == 75 {
            let _ = done.says("conflict: ").says("has nothing of it");
        }
        lab.expect_clean();
    }
}

/// What the inner command has seen counts for the outer commit, also if it failed.
#[test]
fn what_it_has_read_must_not_have_changed() {
    let lab = Lab::in_memory();
    for ending in ["true", "false"] {
        let _ = lab.native("echo 1 > read").expect(0);
        let script = format!("{}; echo > made", inner(&format!("cat read; {ending}")));
        let _ = lab.script(&["--keep", "--name", ending, "-q"], &script).run().expect(0);
        let _ = lab.native("echo 2 > read").expect(0);
        let _ = lab.txos(["commit", ending]).run().expect(75).says("/read");
        let _ = lab.txos(["abort", ending]).run().expect(0);
    }
    lab.expect_clean();
}

/// The asker dies, or fails, at each step of bringing the changes over: all of them are in the outer transaction, or
/// it is not committed.
#[test]
fn interrupted_at_each_step() {
    let lab = Lab::in_memory();
    for fault in ["kill", "ENOSPC"] {
        let (mut step, mut whole, mut not) = (1, 0, 0);
        loop {
            let lab = lab.nested(&format!("{fault}-{step}"));
            let _ = lab.native(PREPARE).expect(0);
            let before = dump(lab.tree());
            let count = lab.dir().join("steps");
            let script = format!(
                "TXOS_FAULT={fault}@{step} TXOS_FAULT_COUNT={} {}; :",
                count.display(),
                inner("mv d D; echo 1 >> b; rm -r gone; echo n > n; ln n D/n")
            );
            let done = lab.script(&[], &script).run();
            let what = std::fs::read_to_string(&count).unwrap_or_default();
            if !what.lines().any(|line| line.starts_with("fired ")) {
                let _ = done.expect(0);
                break;
            }
            if dump(lab.tree()) == before {
                // Before the steps it loses only itself.
                not += usize::from(done.code() != 0);
            } else {
                whole += 1;
                let _ = done.expect(0);
                let look = lab.native("cat a D/x n; stat -c %h n; test ! -e gone").expect(0).text();
                assert_eq!(look, "old\n1\nx\nn\n2\n", "{fault}@{step}");
            }
            lab.expect_clean();
            step += 1;
        }
        assert!(not > 5, "{fault}: whole {whole}, not {not}");
    }
}

/// Its options hold, or are refused by name.
#[test]
fn options_hold_or_are_refused() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > f").expect(0);
    let txos = txos();
    let run = |options: &str, script: &str| {
        let script = format!("{txos} run {options} -- sh -c '{script}'; echo status $?; ls");
        lab.script(&["--keep"], &script).run().expect(0)
    };
    for (options, script, shown) in [
        ("--strict", "echo > /dev/shm/of-txos-test; echo > g", "status 125\nf\n"),
        ("--hide f", "ls; echo > g", "status 0\nf\ng\n"),
        ("--commit-on always", "echo > g; exit 3", "status 3\nf\ng\n"),
        ("--max-bytes 100K", "head -c 1000000 /dev/zero > g; sleep 5", "status 153\nf\n"),
        ("--time 1", "echo > g; exec sleep 1000", "status 124\nf\n"),
        ("--leftover kill", "echo > g; sleep 1000 & :", "status 0\nf\ng\n"),
        ("--no-network", "echo > g; grep -c : /proc/net/dev", "1\nstatus 0\nf\ng\n"),
        ("--no-preload --no-record-args", "echo > g", "status 0\nf\ng\n"),
        ("--dry-run", "echo > g; exit 4", "status 4\nf\n"),
    ] {
        let done = run(options, script);
        assert_eq!(done.text(), shown, "{options}: {done:?}");
        let _ = lab.txos(["abort", "@"]).run().expect(0);
    }
    for option in [
        "--review",
        "--keep",
        "--retry 1",
        "--scope .",
        "--exclude x",
        "--hold-output",
        "--isolation snapshot",
        "--no-merge-append",
        "--keep-inode x",
        "--no-gate",
        "--no-durable",
        "--wait 1",
        "--in-process",
    ] {
        let script = format!("{txos} run {option} -- sh -c 'echo x > made-by-refused'");
        let done = lab.script(&[], &script).run().expect(125);
        let name = option.split(' ').next().unwrap();
        assert!(done.stderr.contains(&format!(": {name} can't be had here")), "{done:?}");
        assert!(!lab.path("made-by-refused").exists());
    }
    lab.expect_clean();
}

/// The outer one's record says what ran inside of which of its commands, and how that ended; a report says it as well.
#[test]
fn it_is_told_of_in_the_record_of_the_outer_one() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > f").expect(0);
    let run = format!("{} run", txos());
    let script = format!(
        "{run} --name first -m 'The first.' --report one -- sh -c 'echo > g; echo > h'
        {run} --report FD:7 7> two -- sh -c 'echo > i; exit 3'
        {run} --dry-run --report three -- rm f
        {run} --no-record-args -- sh -c true secret
        grep -c . one two three"
    );
    let kept = lab.script(&["--keep", "--name", "outer"], &script).run().expect(0);
    let _ = kept.says("dry run: 1 path (1 deleted); rolled back, ");
    let text = |name: &str| {
        lab.txos(["exec", "outer", "--", "cat", name]).dir(lab.tree()).run().expect(0).json()
    };
    let id = lab.txos(["list", "-q"]).run().expect(0).text();
    let (one, two, three) = (text("one"), text("two"), text("three"));
    for (report, outcome, status) in
        [(&one, "in-outer", 0), (&two, "rolled-back", 3), (&three, "dry-run", 0)]
    {
        assert_eq!((&report["outcome"], &report["exit_status"]), (&outcome.into(), &status.into()));
        assert_eq!((&report["command"], &report["inside"]), (&"run".into(), &id.trim().into()));
        assert!(report["begun"]["sec"].is_u64() && report["ended"]["sec"].is_u64(), "{report}");
    }
    assert_eq!((&one["counts"]["added"], &three["counts"]["deleted"]), (&2.into(), &1.into()));
    // One more command with one inside, one that fails, and one that is undone.
    let exec =
        |script: &str| lab.txos(["exec", "outer", "--", "sh", "-c", script]).dir(lab.tree()).run();
    let _ = exec(&format!("{run} --name second -- touch s; {run} -- touch t")).expect(0);
    let _ = exec(&format!("{run} --name lost -- touch u; false")).expect(1);
    let _ = exec(&format!("{run} --name undone -- touch v")).expect(0);
    let _ = lab.txos(["undo", "outer"]).run().expect(0);
    let inside = |verb: &str| {
        let shown = lab.txos([verb, "--json", "outer"]).run().expect(0).json();
        let all = shown["transaction"]["inside"].as_array().unwrap().clone();
        let word = |i: &serde_json::Value| {
            let name = i["name"].as_str().unwrap_or("-").to_owned();
            let words = i["command"].as_array().unwrap().len();
            format!(
                "{} {name} {} {} {} {words}",
                i["layer"], i["exit_status"], i["succeeded"], i["changes"]
            )
        };
        let list: Vec<String> = all.iter().map(word).collect();
        (list, all)
    };
    let (list, all) = inside("show");
    // (Each `cat` of above is a layer.)
    assert_eq!(
        list,
        [
            "1 first 0 true 2 3",
            "1 - 3 false 0 3",
            "1 - 0 false 0 2",
            "1 - 0 true 0 1",
            "5 second 0 true 1 2",
            "5 - 0 true 1 2",
            "6 undone 0 true 1 2"
        ]
    );
    assert_eq!((&all[0]["message"], &all[6]["undone"]), (&"The first.".into(), &true.into()));
    let _ = lab.txos(["commit", "outer"]).run().expect(0);
    assert_eq!(inside("show").0[..6], list[..6]);
    let shown = lab.txos(["show", "outer"]).run().expect(0).text();
    for line in
        ["Inside:", "2 paths  first: sh -c", "rolled back  sh -c 'echo > i; exit 3' (status 3)"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("lost"), "{shown}");
    lab.expect_clean();
}

/// What the outer one hides or leaves alone is hidden and left alone inside, and said once.
#[test]
fn the_terms_of_the_outer_one_hold() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo s > secret; echo 1 > f; echo l > live").expect(0);
    let script = format!("{}; :", inner("ls; echo 2 >> f; echo 2 >> live; exit 3"));
    let options = ["--hide", "secret", "--exclude", "live", "--exclude", "none"];
    let done = lab.script(&options, &script).run().expect(0);
    assert_eq!(done.text(), "f\nlive\n");
    assert_eq!(done.stderr.matches("--exclude none: nothing").count(), 1, "{done:?}");
    assert_eq!(lab.native("cat secret f live").expect(0).text(), "s\n1\nl\n2\n");
    let script = format!("{}; :", inner("echo > /dev/shm/$TXOS_ID; echo > made"));
    let done = lab.script(&["--strict"], &script).run().expect(0);
    let _ = done.says("was stopped: ");
    assert!(!lab.path("made").exists());
    lab.expect_clean();
}

/// Where no transaction of its own can be had, it says so, and joins the one above.
#[test]
fn what_is_deeper_joins_the_one_above() {
    let lab = Lab::in_memory();
    let txos = txos();
    let deeper = format!("{txos} run -- sh -c \"echo > deeper; exit 3\"; echo > inside");
    let done = lab.script(&[], &format!("{}; :", inner(&deeper))).run().expect(0);
    assert_eq!(done.stderr.matches("warning: ").count(), 1, "{done:?}");
    let _ = done.says("it is inside another one itself, so that `txos run` joins it");
    assert!(lab.path("deeper").exists() && lab.path("inside").exists());
    let script = format!("{}; :", inner("echo > limited; exit 3"));
    let done = lab.script(&["--max-bytes", "10M"], &script).run().expect(0);
    let _ =
        done.says("its limits would not hold for one inside of it, so that `txos run` joins it");
    assert!(lab.path("limited").exists());
    let script = format!("{txos} run --strict -- true");
    let done = lab.script(&["--max-bytes", "10M"], &script).run().expect(125);
    let _ = done.says("--strict can't be had here");
    lab.expect_clean();
}

/// Keys at the terminal stop, continue and interrupt the command of a shell's job that is inside.
#[test]
fn jobs_of_a_shell_inside_stop_and_go_on() {
    let lab = Lab::in_memory();
    require!(skip::has("bash"), "no bash");
    let txos = txos();
    let (mut pty, terminal) = Pty::open(80, 24);
    let shell = Invocation::new(&txos)
        .args(["run", "--scope", ".", "--", "bash", "--norc", "--noprofile", "-i"])
        .env("PS1", "PROMPT>")
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
        .terminal(terminal)
        .start();
    pty.expect("PROMPT>");
    pty.type_in(&format!("{txos} run -- sh -c 'echo rea''dy; read x; echo $x > made'\n"));
    pty.expect("ready");
    pty.type_in("\x1a");
    pty.expect("Stopped");
    pty.expect("PROMPT>");
    pty.type_in("fg\n");
    pty.expect("made");
    pty.type_in("typed\n");
    pty.expect(" now");
    pty.expect("PROMPT>");
    pty.type_in(&format!("{txos} run -- sh -c 'echo > lost; echo rea''dy; exec sleep 1000'\n"));
    pty.expect("ready");
    pty.type_in("\x03");
    pty.expect("PROMPT>");
    pty.type_in("echo status $?; ls; exit\n");
    pty.expect("status 130");
    pty.expect("committed");
    let _ = pty.rest();
    let _ = shell.wait().expect(0);
    assert_eq!(lab.native("ls; cat made").expect(0).text(), "made\ntyped\n");
    lab.expect_clean();
}

/// In a pending transaction, too; and one after the other, and at the same time.
#[test]
fn several_of_one() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > f").expect(0);
    let _ = lab.script(&["--keep", "--name", "n", "-q"], "echo 1 >> f").run().expect(0);
    let script = format!("{}; {}; cat f", inner("echo 2 >> f"), inner("echo 3 >> f; false"));
    let done = lab.txos(["exec", "n", "--", "sh", "-c", &script]).run().expect(0);
    assert_eq!(done.text(), "0\n1\n2\n");
    let both = format!("{} & {} & wait", inner("echo > one"), inner("echo > two"));
    let _ = lab.txos(["exec", "n", "--", "sh", "-c", &both]).run().expect(0);
    let _ = lab.txos(["undo", "n", "-n", "2"]).run().expect(0);
    let _ = lab.txos(["redo", "n", "-n", "2"]).run().expect(0);
    let _ = lab.txos(["commit", "n"]).run().expect(0);
    assert_eq!(lab.native("ls; cat f").expect(0).text(), "f\none\ntwo\n0\n1\n2\n");
    lab.expect_clean();
}

#[test]
fn an_ordinary_user_has_one() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    place.native("mkdir d; echo x > d/x; echo a > a; ln a a2");
    let script = format!(
        "echo o > o; {}; {}; :",
        inner("rm -r d; echo lost > a; exit 3"),
        inner("echo 1 >> a2; rm d/x; echo y > d/y; chmod 500 d; mkdir n; mv o n/o")
    );
    let _ = place.script(&[], &script).run().expect(0);
    let shown = Invocation::new("sh")
        .args(["-c", "cat a d/y n/o; stat -c '%a %h' d a; ls d"])
        .dir(place.lab.tree())
        .run()
        .expect(0)
        .text();
    assert_eq!(shown, "a\n1\ny\no\n500 2\n644 2\ny\n");
}
