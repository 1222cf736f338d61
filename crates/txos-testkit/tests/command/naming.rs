//! How transactions are named on the command line, and found in the history.

use std::path::Path;

use txos_testkit::{Lab, require, skip};

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
    // Dates, in the local time zone or with one.
    let now =
        lab.native("date '+%Y-%m-%d %H:%M:%S' -d '+1 minute'; date +%FT%TZ -u -d '-1 hour'").text();
    let (soon, before) = now.trim().split_once('\n').unwrap();
    assert_eq!((log(&["--since", soon]), log(&["--until", soon])), (0, 33));
    assert_eq!((log(&["--since", before]), log(&["--until", before])), (33, 0));
    assert_eq!((log(&["--since", "2001-01-01"]), log(&["--until", "2001-01-01 12:30"])), (33, 0));
    let bad = lab.txos(["log", "--since", "yesterday"]).run().expect(125);
    assert!(bad.stderr.contains("2026-11-24 14:53"), "{bad:?}");
    // Quiet, the ids alone.
    let ids = lab.txos(["log", "-q"]).run().expect(0).text();
    assert!(ids.lines().count() == 3 && ids.lines().all(|id| id.len() == 8), "{ids}");
}

#[test]
fn a_command_knows_its_transaction() {
    let lab = Lab::in_memory();
    let done = lab.script(&["--keep", "-q"], "echo $TXOS_ID > id").run().expect(0);
    let id = done.stderr.trim();
    let inner = lab.txos(["exec", id, "--", "sh", "-c", "cat id; env | grep -c ^TXOS_ID="]);
    assert_eq!(inner.env("TXOS_ID", "another").run().expect(0).text(), format!("{id}\n1\n"));
}

/// A password among the arguments is in no record, and in no list of others.
#[test]
fn arguments_can_be_kept_out_of_the_history() {
    let lab = Lab::in_memory();
    let secret = "s3cr3t-word";
    let script =
        format!("\"$TXOS\" list --json; \"$TXOS\" top --once --json; : {secret}; echo x >> x");
    for (options, variable, hidden) in
        [(&["--no-record-args"][..], "", true), (&[], "off", true), (&[], "", false)]
    {
        let run = |more: &[&str]| {
            let options: Vec<&str> = options.iter().chain(more).copied().collect();
            lab.script(&options, &script)
                .env("TXOS_RECORD_ARGS", variable)
                .env("TXOS", txos_testkit::binary::txos())
        };
        let report = lab.dir().join("report");
        let done = run(&["--report", &report.display().to_string()]).run().expect(0);
        let shown = ["log", "show", "show --json", "log --json"]
            .map(|verb| lab.txos(verb.split(' ')).run().expect(0).text());
        let report = std::fs::read_to_string(&report).unwrap();
        let all = format!("{shown:?}{report}{}", done.stderr);
        assert_eq!(all.contains(secret), !hidden, "{options:?}: {all}");
        assert_eq!(shown[0].contains("(arguments not recorded)"), hidden, "{}", shown[0]);
        let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
    }
    // While it waits, for those who list it.
    let go = lab.dir().join("go");
    let wait = format!("until [ -e {} ]; do sleep .01; done; : {secret}", go.display());
    let running = lab.script(&["--no-record-args"], &wait).start();
    let listed = || {
        let list = lab.txos(["list", "--json"]).run().expect(0).text();
        list + &lab.txos(["top", "--once", "--json"]).run().expect(0).text()
    };
    txos_testkit::wait::until("it runs", || listed().contains("\"sh\""));
    let seen = listed();
    std::fs::write(&go, "").unwrap();
    let _ = running.wait().expect(0);
    assert!(!seen.contains(secret), "{seen}");
}

/// Others find a program under its own name, whatever loads it: the dynamic linker beside the library, or the library.
#[test]
fn a_program_that_the_library_loads_has_its_own_name() {
    let lab = Lab::in_memory();
    let beside = lab.dir().join("lib");
    std::fs::create_dir(&beside).unwrap();
    let copy = |from: &Path| {
        let to = beside.join(from.file_name().unwrap());
        std::fs::copy(from, to).unwrap();
    };
    copy(txos_testkit::binary::library());
    let library = beside.join("libtxos.so");
    for has_linker in [false, true] {
        if has_linker {
            copy(Path::new("/lib64/ld-linux-x86-64.so.2"));
            copy(Path::new("/lib/x86_64-linux-gnu/libc.so.6"));
        }
        require!(has_linker || skip::has("busybox"), "no static busybox");
        let words: &[&str] = if has_linker { &["sh"] } else { &["busybox", "sh"] };
        let go = lab.dir().join(format!("go-{has_linker}"));
        let ready = lab.dir().join(format!("ready-{has_linker}"));
        let script = format!(
            "echo x > a; echo > {}; until [ -e {} ]; do sleep .01; done",
            ready.display(),
            go.display()
        );
        let run = |wait: &str, words: &[&str], script: &str| {
            let run = lab.txos(["run", "--view", "library", wait, "--scope"]).arg(lab.tree());
            let run = run.arg("--").args(words).args(["-c", script]);
            run.env("TXOS_LIB", &library)
        };
        let running = run("--wait=60", words, &script).start();
        let listed = || lab.txos(["list"]).run().expect(0).text();
        let is_listed =
            |text: &str| text.lines().any(|l| l.starts_with("- ") && l.ends_with(words[0]));
        txos_testkit::wait::until("it runs", || ready.exists() && is_listed(&listed()));
        let told = run("--wait=0", &["sh"], "echo y > a").run().expect(75);
        std::fs::write(&go, "").unwrap();
        let done = running.wait().expect(0);
        assert!(told.stderr.contains(&format!("({})", words[0])), "{told:?} {done:?}");
        let log = lab.txos(["log", "-n1"]).run().expect(0).text();
        let command = format!("Command:  {} -c 'echo x > a", words.join(" "));
        assert!(log.contains(&command), "{log}");
    }
}
