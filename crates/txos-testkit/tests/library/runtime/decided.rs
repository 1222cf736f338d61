//! `txos run` in the library's view where `txos` decides when the command has ended: what is kept pending, shown,
//! asked about, limited or run again is the same as in the overlay's view.

use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use txos_testkit::pty::Pty;
use txos_testkit::random::Random;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::tree::Tolerance;
use txos_testkit::user::User;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous, Tree, binary};

use super::processes::contained;
use super::program::{Linked, program};

pub const PREPARE: &str = "
    echo old > a; ln a a2; echo b > b; mkdir -p d/e gone; echo x > d/x; echo g > gone/g; ln -s a link; seq 9 > log
    find . -exec touch -h -d @1000000000 {} +";
pub const CHANGE: &str = "
    set -e
    echo new >> a; mkdir made; echo h > made/h; ln made/h made/h2; mv d moved; rm -r gone; echo 10 >> log
    ln -s made to; mkfifo fifo; chmod 751 b; setfattr -n user.first -v 1 b
    truncate -s 3M sparse; echo end >> sparse; chown 7:8 made/h; chmod 4755 made/h";

/// A run of a script in the library's view.
pub fn run(lab: &Lab, options: &[&str], script: &str) -> Invocation {
    lab.txos([&["run", "--view", "library"], options, &["--", "sh", "-c", script]].concat())
}

/// Keeps a transaction pending; gives its id.
pub fn keep(lab: &Lab, script: &str) -> String {
    run(lab, &["--keep", "-q"], script).run().expect(0).stderr.trim().to_owned()
}

/// Differences but for times that are the present in both.
pub fn expect_as_natively(lab: &Lab, native: &Lab) {
    let now_from = Tolerance { now_from: Some(1_000_000_001), times: false, links: true };
    Tree::of(native.tree()).expect(&Tree::of(lab.tree()), now_from, "not as natively");
}

/// The lock of the transaction is the watching process's and that of the process that has the transaction: whoever else had it could
/// still be ending when the command is over, and the transaction would seem to be in use.
#[test]
fn no_other_process_of_the_command_has_its_lock() {
    let lab = Lab::in_memory();
    let looks = "ls -l /proc/$PPID/fd | grep -c /tx/.*/lock";
    for first in ["", "echo a > a; "] {
        let script = format!(
            "{first}(true); (sh -c '{looks}'; :); sh -c '{looks}'; (sh -c '{looks}' & wait); echo b > b"
        );
        let done = run(&lab, &["--keep", "-q"], &script).run().expect(0);
        assert_eq!(done.text(), "0\n0\n0\n", "{first}: {done:?}");
        let _ = lab.txos(["commit", done.stderr.trim()]).run().expect(0);
    }
}

#[test]
fn a_pending_one_is_as_an_overlays() {
    let (lab, overlay) = (Lab::in_memory(), Lab::in_memory());
    let native = lab.nested("native");
    for place in [&lab, &overlay, &native] {
        let _ = place.native(PREPARE);
    }
    let before = Tree::of(lab.tree());
    let id = keep(&lab, CHANGE);
    before.expect_same(&Tree::of(lab.tree()));
    let theirs = overlay.script(&["--keep", "-q"], CHANGE).run().expect(0).stderr;
    let theirs = theirs.trim();
    let names = |lab: &Lab, id: &str| {
        let done = lab.txos(["diff", id, "--name-status"]).run().expect(0);
        done.text().replace(lab.tree().to_str().unwrap(), "TREE")
    };
    assert_eq!(names(&lab, &id), names(&overlay, theirs));
    assert!(lab.txos(["list"]).run().expect(0).text().contains(&id));
    assert!(lab.txos(["show", &id]).run().expect(0).text().contains("made/h2"));
    let _ = lab.txos(["status"]).run().expect(0);
    let _ = native.native(CHANGE);
    let _ = lab.txos(["commit", &id]).run().expect(0).says("committed");
    expect_as_natively(&lab, &native);
    let _ = lab.txos(["revert", &id]).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
}

/// What a program opens has the lowest numbers that are free, whatever the library has open for itself.
#[test]
fn descriptors_have_their_native_numbers() {
    const SCRIPT: &str = "
import os, subprocess, sys
numbers = [os.open(name, os.O_RDWR | os.O_CREAT) for name in ('x', 'y', '/dev/null')] + list(os.pipe())
print(numbers, flush=True)
if len(sys.argv) < 2:
    subprocess.run([sys.executable, sys.argv[0], 'child'], check=True, close_fds=True)
    print(os.open('z', os.O_RDWR | os.O_CREAT))
";
    let lab = Lab::in_memory();
    std::fs::write(lab.path("numbers.py"), SCRIPT).unwrap();
    let words = ["python3", "numbers.py"];
    let natively = lab.native("python3 numbers.py").expect(0).text();
    let own = ["--dry-run", "--strict", "--report=report", "--commit-on=always", "--hold-output"];
    for option in own.into_iter().map(Some).chain([None]) {
        let run = ["run", "--view", "library"].into_iter().chain(option).chain(["--"]);
        let done = lab.txos(run.chain(words).collect::<Vec<_>>()).run().expect(0);
        let seen = done.text();
        assert!(
            seen.starts_with(natively.trim_end()),
            "{option:?}: {seen:?}, natively {natively:?}"
        );
    }
    lab.expect_clean();
}

/// A shell that answers for the environment itself does not lead the library to another store.
#[test]
fn a_shell_has_the_store_that_was_named() {
    let lab = Lab::in_memory();
    for options in [&["--keep", "-q"][..], &["--commit-on", "always"]] {
        let words = [&["run", "--view", "library"], options, &["--", "bash", "-c", "echo n > new"]];
        let _ = lab.txos(words.concat()).run().expect(0);
    }
    let _ = lab.txos(["abort", "--all"]).run();
    assert_eq!(lab.read("new"), "n\n");
}

#[test]
fn an_aborted_one_leaves_nothing() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    // Of one process, and of several.
    for script in ["echo more >> a; echo n > new", CHANGE] {
        let id = keep(&lab, script);
        let _ = lab.txos(["abort", &id]).run().expect(0);
        before.expect_same(&Tree::of(lab.tree()));
        lab.expect_clean();
    }
    let _ =
        run(&lab, &["--keep"], &format!("{CHANGE}\nexit 3")).run().expect(3).says("rolled back");
    let _ = run(&lab, &["--keep"], "echo n > new; kill -9 $$").run().expect(137);
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
}

/// Nothing is committed by a command whose `txos` is killed: of one process, and of several.
#[test]
fn a_command_ends_with_its_txos() {
    let lab = Lab::in_memory();
    for goes_on in ["while :; do :; done", "while :; do sleep 0.05; done"] {
        let running = run(&lab, &[], &format!("echo n > new; echo ready; {goes_on}")).start();
        until("it has changed something", || running.stdout() == "ready\n");
        let txos = running.pid().as_raw_nonzero();
        let children = format!("/proc/{txos}/task/{txos}/children");
        let command = std::fs::read_to_string(children).unwrap().trim().to_owned();
        assert!(!command.is_empty(), "it has no parent that waits");
        running.signal(Signal::KILL);
        let _ = running.wait();
        until("the command has ended", || {
            let stat = std::fs::read_to_string(format!("/proc/{command}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"))
        });
        assert!(!lab.path("new").exists());
    }
    let _ = lab.txos(["gc"]).run().expect(0);
}

/// A signal for `txos` is the command's, and `txos` ends by the one that ends the command.
#[test]
fn a_signal_for_txos_is_the_commands() {
    let lab = Lab::in_memory();
    for (begins, status) in [("trap 'echo caught > new; exit 0' TERM", 0), ("echo n > other", 143)]
    {
        let script = format!("{begins}; echo ready; while :; do sleep 0.05; done");
        let running = run(&lab, &[], &script).start();
        until("it waits", || running.stdout() == "ready\n");
        running.signal(Signal::TERM);
        assert_eq!(running.wait().code(), status, "{script}");
    }
    assert_eq!(lab.read("new"), "caught\n");
    assert!(!lab.path("other").exists());
    lab.expect_clean();
}

/// What others change after it was kept is a conflict when it is committed, and it stays pending.
#[test]
fn a_pending_one_is_validated() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let id = keep(&lab, "cat b > copy; echo more >> log");
    let _ = lab.native("echo other > b");
    let _ = lab.txos(["commit", &id]).run().expect(75).says("/b");
    assert!(!lab.path("copy").exists());
    let _ = lab.txos(["commit", &id, "--isolation", "snapshot"]).run().expect(0);
    assert_eq!((lab.read("copy"), lab.read("log").lines().count()), ("b\n".into(), 10));
    // So are appends to the same file.
    let id = keep(&lab, "echo 11 >> log");
    let _ = lab.native("echo between >> log");
    let _ = lab.txos(["commit", &id]).run().expect(75).says("/log");
    assert!(lab.read("log").ends_with("between\n"));
    let _ = lab.txos(["abort", &id]).run().expect(0);
    // Once more, on what is there now.
    let id = keep(&lab, "cat b > copy");
    let _ = lab.native("echo last > b");
    let _ = lab.txos(["rebase", &id]).run().expect(0).says("takes the place of");
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert_eq!(lab.read("copy"), "last\n");
    lab.expect_clean();
}

#[test]
fn what_needs_an_overlay_is_refused_by_name() {
    let lab = Lab::in_memory();
    let id = keep(&lab, "echo n > new");
    let hide = ["exec", &id, "--hide", "/x", "--", "true"];
    let _ = lab.txos(hide).run().expect(125).says("can't hold --hide").says("stays pending");
    let _ = lab.txos(["abort", &id]).run().expect(0);
    let tree = lab.tree().to_str().unwrap();
    for (option, value) in [("--hide", tree), ("--memory", "1G"), ("--keep-inode", "**/x")] {
        let done = run(&lab, &[option, value], "echo > new").run().expect(125);
        let _ = done.says(format!("can't hold {option}")).says("nothing was run");
    }
    for option in ["--no-network", "--no-preload"] {
        let _ = run(&lab, &[option], "echo > new").run().expect(125).says("can't hold");
    }
    assert!(!lab.path("new").exists());
    lab.expect_clean();
}

#[test]
fn how_it_ends_is_asked_for() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    let done = run(&lab, &["--dry-run"], CHANGE).run().expect(0);
    let _ = done.says("made/h2").says("dry run");
    before.expect_same(&Tree::of(lab.tree()));
    let (mut pty, inner) = Pty::open(200, 60);
    let running = run(&lab, &["--review"], CHANGE).terminal(inner).start();
    pty.expect("[y/n/d/l/c/s/k/?]");
    pty.type_in("n\n");
    let _ = pty.rest();
    let _ = running.wait().expect(1);
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
    let (mut pty, inner) = Pty::open(200, 60);
    let running = run(&lab, &["--review"], "echo reviewed > a").terminal(inner).start();
    pty.expect("[y/n/d/l/c/s/k/?]");
    pty.type_in("y\n");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
    assert_eq!(lab.read("a2"), "reviewed\n");
    let always = ["--commit-on", "always"];
    let _ = run(&lab, &always, "/bin/echo failed > b; exit 4").run().expect(4).says("committed");
    assert_eq!(lab.read("b"), "failed\n");
    let done = run(&lab, &["--report", "FD:2", "-q"], "echo r > r; exit 0").run().expect(0);
    let report: serde_json::Value = serde_json::from_str(done.stderr.trim()).unwrap();
    assert_eq!(report["outcome"], "committed", "{report}");
    let _ = lab.txos(["show", report["id"].as_str().unwrap_or("@")]).run().expect(0);
    lab.expect_clean();
}

#[test]
fn output_is_held() {
    let lab = Lab::in_memory();
    let script = "echo out; (/bin/echo err >&2); echo x > new; exit $STATUS";
    let held =
        |status: &str| run(&lab, &["--hold-output", "-q"], script).env("STATUS", status).run();
    let failed = held("3").expect(3);
    assert_eq!((failed.text().as_str(), failed.stderr.as_str()), ("", "err\n"));
    assert!(!lab.path("new").exists());
    let done = held("0").expect(0);
    assert_eq!((done.text().as_str(), done.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(lab.read("new"), "x\n");
    lab.expect_clean();
}

#[test]
fn a_conflict_is_run_again() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > f; mkfifo ready go");
    let script =
        "read x < f; if test $x = 1; then echo > ready; read y < go; fi; sh -c 'cat f > g'; cat g";
    let running = run(&lab, &["--retry", "2"], script).start();
    let _ = std::fs::read_to_string(lab.path("ready")).unwrap();
    std::fs::write(lab.path("f"), "2\n").unwrap();
    std::fs::write(lab.path("go"), "go\n").unwrap();
    let done = running.wait().expect(0).says("conflict: ").says("retry 1 of 2");
    assert!(done.text().ends_with("2\n"), "{done:?}");
    assert_eq!(lab.read("g"), "2\n");
    lab.expect_clean();
}

#[test]
fn what_it_may_use_is_limited() {
    let lab = Lab::in_memory();
    let _ =
        run(&lab, &["--time", "0.5s"], "echo > new; sleep 1000").run().expect(124).says("--time");
    let large = "head -c 3000000 /dev/zero > large; sleep 1000";
    let _ = run(&lab, &["--max-bytes", "1M"], large).run().expect(153).says("--max-bytes");
    let _ = run(&lab, &["--leftover", "kill"], "(sleep 1000; echo late > late) & echo > early")
        .run()
        .expect(0);
    assert!(lab.path("early").exists() && !lab.path("late").exists());
    assert!(!lab.path("new").exists() && !lab.path("large").exists());
    lab.expect_clean();
}

/// Whatever is killed, nothing is published, and no process goes on.
#[test]
fn killed_while_it_runs() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    for whom in ["txos", "command", "interrupt"] {
        let mut meeting = Rendezvous::new();
        let script = format!("{CHANGE}\n{PAUSE}");
        let running = run(&lab, &["--keep"], &script).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let child = || {
            let of = running.pid().as_raw_nonzero();
            let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
            let first = list.split_whitespace().next().unwrap().parse().unwrap();
            rustix::process::Pid::from_raw(first).unwrap()
        };
        let command = child();
        match whom {
            "txos" => {
                running.signal(Signal::KILL);
                assert!(running.wait().killed());
                drop(meeting);
            }
            "command" => {
                rustix::process::kill_process(command, Signal::KILL).unwrap();
                let _ = running.wait().expect(137).says("SIGKILL");
            }
            _ => {
                running.signal(Signal::INT);
                let _ = running.wait().expect(130).says("SIGINT");
            }
        }
        until("the command has ended", || rustix::process::test_kill_process(command).is_err());
        let _ = lab.txos(["gc"]).run().expect(0);
        before.expect_same(&Tree::of(lab.tree()));
    }
}

/// As root and as an ordinary user, where a container's rules hold.
#[test]
fn in_a_container() {
    let lab = Lab::in_memory();
    let program = program("contained", Linked::Natively);
    for user in [None, Some(User::new())] {
        let place = lab.nested(if user.is_some() { "users" } else { "roots" });
        let _ = place.native("echo a > a; mkdir d; echo x > d/x; chmod -R a+rwX .");
        if let Some(user) = &user {
            std::os::unix::fs::chown(lab.dir(), Some(user.uid), Some(user.gid)).unwrap();
            let _ = place.native(&format!("chown -R {}:{} .", user.uid, user.gid));
        }
        let runs = |words: &[&str]| match &user {
            None => contained(&place, words),
            Some(user) => {
                let run = Invocation::new("env").arg(&program).arg(binary::txos()).args(words);
                user.runs(run.dir(place.tree()))
            }
        };
        let before = Tree::of(place.tree());
        let script = "sed -i s/a/b/ a; mkdir n; cp a n; mv d moved; ls | sort > list";
        let keep = ["run", "--keep", "-q", "--", "sh", "-c", script];
        for end in ["abort", "commit"] {
            let id = runs(&keep).run().expect(0).stderr.trim().to_owned();
            before.expect_same(&Tree::of(place.tree()));
            let patch = runs(&["diff", &id]).run().expect(0);
            assert!(patch.text().contains("+b"), "{patch:?}");
            let _ = runs(&[end, &id]).run().expect(0);
        }
        assert_eq!((place.read("a"), place.read("n/a")), ("b\n".into(), "b\n".into()));
        assert!(place.path("moved/x").exists());
        let _ = runs(&["revert", "@"]).run().expect(0);
        before.expect_same(&Tree::of(place.tree()));
    }
}

/// Where the command's own process commits, the same is said as where `txos` does.
#[test]
fn what_is_committed_is_said_as_in_the_overlays_view() {
    let (ours, theirs) = (Lab::in_memory(), Lab::in_memory());
    let scripts = [
        ("exec > out; echo x", 0),
        (CHANGE, 0),
        ("true", 0),
        ("(echo y > by-a-child); cat by-a-child > also; rm log", 0),
        ("exec 2> errors; echo x > beside", 0),
        ("exec 2> errors; (echo x > besides); cat besides > again", 0),
        ("echo x > lost; exit 3", 3),
    ];
    for (number, (script, status)) in scripts.into_iter().enumerate() {
        for quiet in [&[][..], &["-q"]] {
            let said = |lab: &Lab, view: &str| {
                let place = lab.nested(&format!("{number}{}", quiet.concat()));
                let _ = place.native(PREPARE);
                let mut run = place.txos(["run", "--view", view]).args(quiet);
                if view == "overlay" {
                    run = run.arg("--scope").arg(place.tree());
                }
                let said = run.args(["--", "sh", "-c", script]).run().expect(status).stderr;
                let own = place.native("cat errors 2> /dev/null || true").text();
                assert_eq!(own, "", "{script}: what it wrote there is its own");
                // Ids differ.
                match said.strip_prefix("txos: committed ") {
                    Some(rest) => rest[8..].to_owned(),
                    None => said,
                }
            };
            let here = said(&ours, "library");
            let there = said(&theirs, "overlay");
            assert_eq!(here.is_empty(), !quiet.is_empty(), "{script}: {here}");
            let there = match there.contains("of what is versioned") {
                // It says more carefully what it knows where a scope was named.
                true => "txos: sh exited with status 3; rolled back, nothing changed\n".to_owned(),
                false => there,
            };
            assert_eq!(here, there, "{script}");
        }
    }
}

/// It has no record while it runs, and is listed nevertheless.
#[test]
fn one_that_waits_is_listed() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > a");
    let mut at = Rendezvous::new();
    let first = lab.script(&[], &format!("echo 1 >> a; {PAUSE}")).meeting(&mut at).start();
    assert!(at.arrived(), "the first has it");
    let list = lab.txos(["list", "--json"]).run().expect(0).json();
    let id = list["transactions"][0]["id"].as_str().unwrap().to_owned();
    let second = run(&lab, &[], "echo 2 >> a").start();
    let running = || lab.txos(["list", "--json"]).run().expect(0).json()["running"].clone();
    until("the second waits", || running()[0]["waits_for"]["id"] == id.as_str());
    assert_eq!(running().as_array().unwrap().len(), 1, "{}", running());
    let list = lab.txos(["list"]).run().expect(0).text();
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines.len() == 3 && lines[1].starts_with("-         active "), "{list}");
    assert!(
        lines[1].contains("  sh (waits ") && lines[1].ends_with(&format!("for {id})")),
        "{list}"
    );
    assert!(lines[2].starts_with(&id), "{list}");
    assert_eq!(lab.txos(["list", "-q"]).run().expect(0).text(), format!("{id}\n"));
    at.go();
    let _ = first.wait().expect(0);
    let _ = second.wait().expect(0);
    assert_eq!(running(), serde_json::json!([]));
    assert_eq!(lab.read("a"), "0\n1\n2\n");
    lab.expect_clean();
}

/// A command of several processes decides by itself. A signal that ends its process, at whatever instant, has all rolled back; one
/// that comes when all is decided does nothing: the status says what became of the transaction.
#[test]
fn the_status_after_a_signal_is_that_of_the_transaction() {
    let mut random = Random::new(7);
    let (mut killed, mut committed) = (0, 0);
    for attempt in 0..80 {
        let lab = Lab::in_memory();
        let (pid, tree) = (lab.path("../pid"), lab.tree().to_str().unwrap().to_owned());
        let script =
            "sh -c 'echo one > one'; echo two > two; echo $$ > ../pid.new; mv ../pid.new ../pid";
        let running = run(&lab, &["--scope", &tree, "--no-durable"], script)
            .env("TXOS_FAULT_DELAYS", (attempt + 1).to_string())
            .start();
        until("it is about to end", || pid.exists());
        let number = std::fs::read_to_string(&pid).unwrap().trim().parse::<i32>().unwrap();
        let process = Pid::from_raw(number).unwrap();
        // It has not been waited for, or is gone. No later process has its number by then.
        if let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) {
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            let _ = pidfd_send_signal(&handle, Signal::TERM);
        }
        let done = running.wait();
        let there = ["one", "two"].map(|name| lab.path(name).exists());
        match done.code() {
            0 => committed += 1,
            143 => killed += 1,
            _ => panic!("{attempt}: {done:?}"),
        }
        assert_eq!(there, [done.code() == 0; 2], "{attempt}: {done:?}");
    }
    println!("{committed} committed, {killed} killed");
    assert!(committed > 0 && killed > 0, "{committed} committed, {killed} killed");
}
