//! What others named or wrote does nothing to a terminal: names, contents and targets of links, at a
//! decision and wherever they are shown. And who stops a command from outside continues it.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use txos_testkit::pty::Pty;
use txos_testkit::{Lab, Rendezvous};

/// A title, a cleared screen, a bell, a return to the start of the line, a C1 byte, and no UTF-8 at all.
const HOSTILE: &str = r"x\033]0;title\007\033[2J\r\302\2332J\377";

/// What of it must never be shown, whatever else is.
fn expect_harmless(shown: &[u8], what: &str) {
    let text = String::from_utf8_lossy(shown).into_owned();
    for sequence in ["\x1b]", "\x1b[2J", "\x07", "\u{9b}"] {
        assert!(!text.contains(sequence), "{what}: {sequence:?} in {text:?}");
    }
    assert!(!shown.contains(&0xff), "{what}: a byte that is no text in {text:?}");
    let lone =
        shown.windows(2).any(|pair| pair[0] == b'\r' && pair[1] != b'\n' && pair[1] != b'\r');
    assert!(!lone, "{what}: a return to the start of the line in {text:?}");
}

/// Changes that hold it in every place.
fn change() -> String {
    format!(
        "name=$(printf '{HOSTILE}'); echo 1 > \"$name\"; printf '{HOSTILE}\\n' > content; \
         ln -s \"$name\" link; mkdir \"d$name\"; mv kept \"k$name\"; rm \"old$name\""
    )
}

fn prepare(lab: &Lab) {
    let _ = lab.native(&format!("echo k > kept; echo o > \"old$(printf '{HOSTILE}')\""));
}

#[test]
fn a_review_shows_what_it_is_about() {
    let lab = Lab::in_memory();
    prepare(&lab);
    let (mut pty, inner) = Pty::open(200, 60);
    let running = lab.script(&["--review", "--name", "n"], &change()).terminal(inner).start();
    pty.expect("[y/n/d/l/c/s/k/?]");
    pty.type_in("d\n");
    let shown = pty.until("[y/n/d/l/c/s/k/?]");
    expect_harmless(&shown, "the patch");
    let text = String::from_utf8_lossy(&shown).into_owned();
    assert!(text.contains(r"+x\033]0;title\007\033[2J\015\302\2332J\377"), "{text:?}");
    pty.type_in("n\n");
    expect_harmless(pty.rest().as_bytes(), "the end");
    let _ = running.wait().expect(1);
}

/// What is kept at a review can be reviewed again; only a clear answer decides.
#[test]
fn a_review_can_be_put_off() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo old > a");
    let (mut pty, inner) = Pty::open(80, 24);
    let running = lab.script(&["--review"], "echo new > a").terminal(inner).start();
    pty.expect("[y/n/d/l/c/s/k/?]");
    pty.type_in("k\n");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
    let reviewed = |answers: &[&str], status: i32| {
        let (mut pty, inner) = Pty::open(80, 24);
        let running = lab.txos(["review"]).terminal(inner).start();
        for answer in answers {
            pty.expect("[y/n/d/l/c/s/x/?]");
            pty.type_in(answer);
        }
        let _ = pty.rest();
        let _ = running.wait().expect(status);
        lab.read("a")
    };
    assert_eq!(reviewed(&["?\n", "n\n"], 1), "old\n");
    assert_eq!(reviewed(&["y\n"], 0), "new\n");
    let _ = lab.script(&["--keep"], "echo newer > a").run().expect(0);
    assert_eq!(reviewed(&["k\n"], 1), "new\n");
    assert_eq!(reviewed(&["x\n"], 0), "new\n");
    let nothing = lab.txos(["list"]).run().expect(0);
    assert!(nothing.stderr.contains("no pending"), "{nothing:?}");
    let blind = lab.txos(["review"]).run().expect(125);
    assert!(blind.stderr.contains("no terminal to ask on"), "{blind:?}");
}

/// Each command that shows something, on a terminal.
#[test]
fn lists_logs_and_patches_on_a_terminal() {
    let lab = Lab::in_memory();
    prepare(&lab);
    let hostile = "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}2J";
    let run = lab.txos(["run", "--keep", "--scope"]).arg(lab.tree());
    let run = run.args(["--name", hostile, "--message", hostile, "--", "sh", "-c"]);
    let _ = run.arg(change()).args(["sh", hostile]).run().expect(0);
    let missing = format!("no-such-{hostile}");
    let commands: [&[&str]; 9] = [
        &["list"],
        &["show", "@"],
        &["diff", "@"],
        &["diff", "@", "--stat"],
        &["diff", "@", "--name-status"],
        &["status"],
        &["show", &missing],
        &["exec", "@", &missing],
        &["list", &missing],
    ];
    for words in commands {
        let (mut pty, inner) = Pty::open(200, 60);
        let running = lab.txos(words).terminal(inner).start();
        let shown = pty.all();
        let _ = running.wait();
        expect_harmless(&shown, &words.join(" "));
    }
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    for words in [&["log"][..], &["log", "--oneline"], &["diff", "@"], &["show", "@"]] {
        let (mut pty, inner) = Pty::open(200, 60);
        let running = lab.txos(words).terminal(inner).start();
        let shown = pty.all();
        let _ = running.wait().expect(0);
        expect_harmless(&shown, &words.join(" "));
    }
}

/// What a command says of a file, and what txos says of it, in messages.
#[test]
fn messages_on_a_terminal() {
    let lab = Lab::in_memory();
    let script = format!("name=$(printf '{HOSTILE}'); echo > \"../out$name\"; exit 1");
    let (mut pty, inner) = Pty::open(200, 60);
    let running = lab.script(&[], &script).terminal(inner).start();
    let shown = pty.all();
    let _ = running.wait().expect(1);
    expect_harmless(&shown, "a warning");
    assert!(String::from_utf8_lossy(&shown).contains("outside the scope"));
}

/// A patch that is piped is for `git apply`: byte by byte what was written.
#[test]
fn a_patch_in_a_pipe_is_exact() {
    let lab = Lab::in_memory();
    let _ = lab.native("printf 'a\\n' > content");
    let _ = lab.script(&["--keep"], &format!("printf '{HOSTILE}\\n' > content")).run().expect(0);
    let patch = lab.txos(["diff", "@"]).run().expect(0).stdout;
    let expected = b"+x\x1b]0;title\x07\x1b[2J\r\xc2\x9b2J\xff\n";
    assert!(patch.windows(expected.len()).any(|w| w == expected));
}

/// Whether a process is stopped, or stops within some time.
fn is_stopped(pid: Pid, within: Duration) -> bool {
    let start = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('T'));
        if state == Some(true) || start.elapsed() > within {
            return state == Some(true);
        }
        std::thread::yield_now();
    }
}

/// A process and its descendants.
fn tree(pid: Pid) -> Vec<Pid> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
        let children: String = children.map(Result::unwrap_or_default).collect();
        let numbers = children.split_whitespace().filter_map(|n| n.parse().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
        at += 1;
    }
    found
}

/// The shell among a process's descendants.
fn shell_of(pid: Pid) -> Pid {
    let is_shell =
        |pid: &Pid| std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"sh\n");
    tree(pid).into_iter().find(is_shell).unwrap_or_else(|| panic!("no shell below {pid}"))
}

/// Who continues the command continues `txos`, which has stopped with it.
#[test]
fn a_command_that_is_stopped_alone_goes_on() {
    let lab = Lab::in_memory();
    let mut met = Rendezvous::new();
    let script = "echo >&8; read _ <&9; echo 1 > a";
    let running = lab.script(&["--view", "overlay"], script).meeting(&mut met).start();
    assert!(met.arrived());
    let command = shell_of(running.pid());
    kill_process(command, Signal::STOP).unwrap();
    assert!(is_stopped(running.pid(), Duration::from_secs(10)));
    kill_process(command, Signal::CONT).unwrap();
    met.go();
    let _ = running.wait().expect(0);
    assert_eq!(lab.read("a"), "1\n");
}

/// Where no shell could continue `txos`, Ctrl-Z stops nobody, as natively: it leads its session, the leader's group has no other parent, or
/// the session began outside of the PID namespace.
#[test]
fn without_a_shell_nobody_is_stopped_by_the_terminal() {
    let ways = [
        "",
        "sh -c '\"$@\"; exit $?' sh",
        "unshare --pid --fork --mount-proc --wd . sh -c '\"$@\"; exit $?' sh",
    ];
    for (view, way) in ["overlay", "library"].iter().flat_map(|v| ways.map(|way| (v, way))) {
        let lab = Lab::in_memory();
        let mut met = Rendezvous::new();
        let (mut pty, inner) = Pty::open(80, 24);
        let script = "echo 1 > a; echo >&8; read _ <&9; echo 2 > a";
        let txos = txos_testkit::binary::txos();
        let running = txos_testkit::Invocation::shell(format!("exec {way} \"$@\""))
            .arg("sh")
            .arg(txos)
            .args(["run", "--scope", ".", "--view", view, "--", "sh", "-c", script])
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
            .meeting(&mut met)
            .terminal(inner)
            .start();
        assert!(met.arrived());
        pty.type_in("\x1a");
        assert!(!is_stopped(running.pid(), Duration::from_millis(300)), "{view}, {way}");
        assert!(!tree(running.pid()).into_iter().any(|pid| is_stopped(pid, Duration::ZERO)));
        met.go();
        let said = pty.rest();
        let done = running.wait();
        assert_eq!(done.code(), 0, "{view}, {way}: {said}");
        assert_eq!(lab.read("a"), "2\n", "{view}, {way}");
    }
}
