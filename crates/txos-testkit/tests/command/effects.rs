//! What is not a file: held until the commit, told of, or a reason to stop.

use rustix::process::Signal;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous};

/// A process outside that tells by a file which signals it got.
const LISTENER: &str = "
    trap 'echo usr1 >> got' USR1; trap 'echo usr2 >> got' USR2; trap 'exit 0' TERM
    echo > ready; while :; do sleep 0.01; done";

fn with_listener(work: impl FnOnce(&Lab, i32)) -> Lab {
    let lab = Lab::in_memory();
    let outside = lab.nested("outside");
    let listener = Invocation::shell(LISTENER).dir(outside.tree()).start();
    until("the listener is ready", || outside.path("ready").exists());
    work(&lab, listener.pid().as_raw_nonzero().get());
    listener.signal(Signal::TERM);
    let _ = listener.wait().expect(0);
    std::fs::copy(outside.path("got"), lab.dir().join("got")).ok();
    lab
}

fn got(lab: &Lab) -> String {
    std::fs::read_to_string(lab.dir().join("got")).unwrap_or_default()
}

#[test]
fn signals_are_held_until_the_commit() {
    let lab = with_listener(|lab, pid| {
        let outside = lab.dir().join("outside/tree/got");
        let mut meeting = Rendezvous::new();
        let running = lab
            .script(&[], &format!("kill -USR1 {pid}; kill -USR2 {pid}; {PAUSE}"))
            .meeting(&mut meeting)
            .start();
        assert!(meeting.arrived());
        assert!(!outside.exists(), "a signal was not held");
        meeting.go();
        let _ = running.wait().expect(0);
        let text = || std::fs::read_to_string(&outside).unwrap_or_default();
        until("both signals are there", || text().lines().count() == 2);
    });
    assert!(got(&lab).contains("usr1") && got(&lab).contains("usr2"));
}

#[test]
fn signals_of_a_failed_command_are_never_sent() {
    let lab = with_listener(|lab, pid| {
        let _ = lab.script(&[], &format!("kill -USR1 {pid}; exit 1")).run().expect(1);
        // One that is sent later arrives later: if it is there, the first would be.
        let _ = lab.script(&[], &format!("kill -USR2 {pid}; echo > x")).run().expect(0);
        let outside = lab.dir().join("outside/tree/got");
        until("the second signal is there", || outside.exists());
    });
    assert_eq!(got(&lab), "usr2\n");
}

#[test]
fn signals_inside_are_sent_at_once() {
    let lab = Lab::in_memory();
    let script = "trap 'echo got > got; exit 0' USR1; (kill -USR1 $$) & wait; wait; exit 9";
    let _ = lab.script(&[], script).run().expect(0);
    assert_eq!(lab.read("got"), "got\n");
}

#[test]
fn a_signal_to_a_process_that_is_not_there_fails_at_once() {
    let lab = Lab::in_memory();
    let script = "kill -USR1 4194303 2>/dev/null && exit 1; kill -0 1 || exit 2";
    let _ = lab.script(&[], script).run().expect(0);
}

/// What is told of, once a kind, and stops the command under `--strict`. Nothing here does any harm.
const UNDOABLE: &[(&str, &str, &str)] = &[
    (
        "network",
        "python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
            s.sendto(b\"x\", (\"192.0.2.1\", 9))' || true",
        "192.0.2.1",
    ),
    ("device", "echo > /dev/full 2>/dev/null || true; : > /dev/kmsg", "/dev/kmsg"),
    ("mount", "mkdir m; mount -t tmpfs none m; umount m", "mount"),
    ("clock", "date -s \"$(date)\" >/dev/null", "clock"),
    ("host name", "hostname \"$(hostname)\"", "name"),
    ("live directory", "echo > /run/txos-test-$$; rm /run/txos-test-$$", "/run"),
    ("kernel setting", "cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness", "/proc/sys"),
];

#[test]
fn what_can_not_be_rolled_back_is_told() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for (name, script, word) in UNDOABLE {
        let done = lab.script(&[], script).run();
        if !(done.code() == 0 && done.stderr.contains("warning") && done.stderr.contains(word)) {
            wrong.push(format!("{name}: expected a warning with {word:?}: {done:?}"));
        }
        let done = lab.script(&["--strict"], &format!("{script}; echo > made")).run();
        if !(done.code() == 125 && done.stderr.contains(word)) {
            wrong.push(format!("{name}: expected --strict to stop it: {done:?}"));
        }
        if lab.path("made").exists() {
            wrong.push(format!("{name}: stopped by --strict, and yet committed"));
        }
        let _ = std::fs::remove_file(lab.path("made"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lab.expect_clean();
}

#[test]
fn a_kind_is_told_once() {
    let lab = Lab::in_memory();
    let script = "for i in 1 2 3; do : > /dev/kmsg; done; true";
    let done = lab.script(&[], script).run().expect(0);
    assert_eq!(done.stderr.matches("warning").count(), 1, "{done:?}");
}

#[test]
fn ordinary_commands_cause_no_warning() {
    let lab = Lab::in_memory();
    let script = "ls -l / >/dev/null 2>/dev/null; date >/dev/null; id >/dev/null; \
        python3 -c 'import os, socket; print(os.getpid())'; echo x | sort | cat; \
        git --version; hostname; mktemp -d -p .; getent passwd root";
    let done = lab.script(&["--strict"], script).run().expect(0);
    assert!(!done.stderr.contains("warning"), "{done:?}");
}

#[test]
fn a_commit_waits_for_the_background() {
    let lab = Lab::in_memory();
    let mut meeting = Rendezvous::new();
    let script = format!("echo > first; ({PAUSE}; echo > second) & exit 0");
    let mut running = lab.script(&[], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    until("it says that it waits", || running.stderr().contains("waiting"));
    assert!(!running.ended());
    assert!(!lab.path("first").exists());
    meeting.go();
    let _ = running.wait().expect(0);
    assert!(lab.path("first").exists() && lab.path("second").exists());
    lab.expect_clean();
}

#[test]
fn the_background_is_killed_when_told_so() {
    let lab = Lab::in_memory();
    let script = "echo > first; setsid sh -c 'sleep 1000; echo > second' & \
        (sh -c 'trap \"\" TERM HUP INT; sleep 1000' &) ; exit 0";
    let _ = lab.script(&["--leftover", "kill"], script).run().expect(0);
    assert!(lab.path("first").exists() && !lab.path("second").exists());
    lab.expect_clean();
}

#[test]
fn no_process_of_a_failed_command_survives() {
    let lab = Lab::in_memory();
    let script = "setsid sleep 1000 & (sleep 1000 &); sleep 1000 & exit 3";
    let _ = lab.script(&["--leftover", "kill"], script).run().expect(3);
    lab.expect_clean();
}

#[test]
fn output_is_held_until_the_commit() {
    let lab = Lab::in_memory();
    let mut meeting = Rendezvous::new();
    let script = format!("echo out; echo err >&2; {PAUSE}; echo more");
    let running = lab.script(&["--hold-output"], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    assert_eq!(running.stdout(), "");
    assert!(!running.stderr().contains("err"));
    meeting.go();
    let done = running.wait().expect(0).says("err");
    assert_eq!(done.text(), "out\nmore\n");
    let done = lab.script(&["--hold-output"], "echo out; echo err >&2; exit 1").run().expect(1);
    assert_eq!(done.text(), "");
    // What a failing command has to say of its failure is no change.
    let _ = done.says("err\n");
    // Live without it.
    let mut meeting = Rendezvous::new();
    let running = lab.script(&[], &format!("echo out; {PAUSE}")).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    assert_eq!(running.stdout(), "out\n");
    meeting.go();
    let _ = running.wait().expect(0);
}

#[test]
fn much_output_is_held_in_order() {
    let lab = Lab::in_memory();
    let done = lab.script(&["--hold-output"], "seq 200000").run().expect(0);
    let expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert!(done.text() == expected, "held output is not what was written");
}

/// Where changes are live although most of the machine is versioned: told once for each kind and top
/// directory, summed up at the end, and stopped under `--strict`. Nothing says that nothing changed.
#[test]
fn what_is_left_out_is_live_and_said_to_be() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir left; echo 1 > left/file; ln -s ../outside out; mkdir ../outside");
    let _ = lab.native("ln -s ../outside/new l; ln -s $PWD/l m; ln -s out/../outside/far far");
    let outside = lab.dir().join("outside");
    let left = lab.path("left");
    let excluded = ["--exclude", "left"];
    // Options, what is done, what is live by it, and the kind as it is summed up.
    let cases: [(&[&str], &str, std::path::PathBuf, &str); 10] = [
        (&[], "echo x > ../outside/made", outside.join("made"), "outside the scope: 1 path ("),
        // By the letter, this is in the scope.
        (&[], "echo x > out/through", outside.join("through"), "outside the scope: 1 path ("),
        (&[], "rm -rf out/sub; mkdir out/sub", outside.join("sub"), "outside the scope: 1 path ("),
        // A link that leads to nothing: what is opened by it is made there.
        (
            &[],
            "rm -f ../outside/new; echo x > m",
            outside.join("new"),
            "outside the scope: 1 path (",
        ),
        (
            &[],
            "rm -f ../outside/far; echo x > far",
            outside.join("far"),
            "outside the scope: 1 path (",
        ),
        (
            &[],
            "echo x > /proc/self/cwd/../outside/cwd",
            outside.join("cwd"),
            "outside the scope: 1 path (",
        ),
        (
            &[],
            "echo x > /proc/self/root/$PWD/../outside/root",
            outside.join("root"),
            "outside the scope: 1 path (",
        ),
        (&excluded, "echo x >> left/file", left.join("file"), "what is excluded: 1 path ("),
        (&excluded, "echo x > left/new; rm left/new", left.join("new"), "what is excluded: 1 path"),
        (
            &[],
            "echo x > /dev/shm/txos-test-$$; rm /dev/shm/txos-test-$$",
            "/dev/shm/txos-test-".into(),
            "what is never versioned: 1 path (/dev/shm/",
        ),
    ];
    let mut wrong = Vec::new();
    for (options, script, path, kind) in cases {
        let shown = path.display().to_string();
        let strict: Vec<&str> = options.iter().copied().chain(["--strict"]).collect();
        let before = std::fs::read(&path).ok();
        let done = lab.script(&strict, script).run();
        let said = done.code() == 125 && done.stderr.contains(&shown);
        if !said || std::fs::read(&path).ok() != before {
            wrong.push(format!("{script}: --strict does not stop it: {done:?}"));
        }
        let done = lab.script(options, &format!("{script}; {script}; echo > in; exit 1")).run();
        let told = done.stderr.matches("warning: ").count();
        let last = done.stderr.lines().last().unwrap_or_default().to_owned();
        let summed_up = last.contains("rolled back; live, and not rolled back: ")
            && last.contains(kind)
            && last.contains(&shown);
        if done.code() != 1 || told != 1 || !summed_up || done.stderr.contains("nothing changed") {
            wrong.push(format!("{script}: {told} warnings: {done:?}"));
        }
        assert!(!lab.path("in").exists(), "what is versioned is rolled back");
        // A transaction that changed nothing else.
        let done = lab.script(options, script).run();
        if done.code() != 0 || !done.stderr.contains("nothing to commit; live: ") {
            wrong.push(format!("{script}: {done:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The same, by a link of the transaction's own.
    let done =
        lab.script(&["--strict"], "ln -s ../outside/own own; echo x > own").run().expect(125);
    assert!(done.stderr.contains("outside/own") && !outside.join("own").exists(), "{done:?}");
    // Nothing live: nothing of it is said.
    let done = lab.script(&[], "echo > in; ls / >/dev/null; exit 1").run().expect(1);
    assert!(!done.stderr.contains("live") && done.stderr.contains("nothing changed"), "{done:?}");
    lab.expect_clean();
}

/// Each kind and top directory has a warning of its own, and the end names some paths of each kind.
#[test]
fn kinds_and_top_directories_are_told_apart() {
    let lab = Lab::in_memory();
    let name = format!("txos-test-{}", std::process::id());
    let script = format!(
        "for i in 1 2 3 4 5; do : > /dev/shm/{name}$i; : > /run/{name}$i; done; \
         rm /dev/shm/{name}* /run/{name}*; : > /dev/kmsg; exit 1"
    );
    let done = lab.script(&[], &script).run().expect(1);
    assert_eq!(done.stderr.matches("warning: ").count(), 3, "{done:?}");
    let last = done.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("what is never versioned: 10 paths (/dev/shm/"), "{last}");
    assert!(last.contains(", …)") && last.contains("a device"), "{last}");
}

/// All below a directory is left out, whether it is a directory, and whether it is there yet.
#[test]
fn an_exclude_of_all_below_a_directory() {
    for view in ["overlay", "library"] {
        let lab = Lab::in_memory();
        let _ = lab.native("mkdir -p d/sub e; echo 1 > d/h; echo 1 > e/f; echo 1 > f");
        let script =
            "echo x >> d/h; echo n > d/new; echo n > d/sub/new; echo x >> e/f; echo x >> f; exit 3";
        let options = ["--view", view, "--exclude", "d/**", "--exclude", "e/**"];
        let done = lab.script(&options, script).run().expect(3);
        assert!(!done.stderr.contains("nothing that is there now matches"), "{done:?}");
        let left = lab.native("cat d/h d/new d/sub/new e/f f").expect(0).text();
        assert_eq!(left, "1\nx\nn\nn\n1\nx\n1\n", "{view}");
    }
}

#[test]
fn an_exclude_that_matches_nothing_is_told() {
    let lab = Lab::in_memory();
    let script = "mkdir later; echo > later/x; exit 1";
    let done = lab.script(&["--exclude", "later"], script).run().expect(1);
    let _ = done.says("--exclude later: nothing that is there now matches");
    assert!(!lab.path("later").exists(), "what is made later is versioned");
}
