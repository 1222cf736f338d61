//! What a command may use, where it runs and what it does not find there: `--time`, `--max-bytes`, `--memory`,
//! `--no-network`, `--dir`, `--hide`.

use std::path::PathBuf;

use rustix::process::Signal;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::user::User;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous, Tree, binary, require};

/// The same lab, for root in a user namespace: there a transaction is an ordinary user's.
fn rootless(lab: &Lab, options: &[&str], script: &str) -> Invocation {
    Invocation::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(binary::txos())
        .args(["run", "--scope"])
        .arg(lab.tree())
        .args(options)
        .args(["--", "sh", "-c", script])
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
}

fn namespaces() -> bool {
    Invocation::shell("unshare -Ur unshare -n true").run().code() == 0
}

#[test]
fn time_is_bounded_as_by_timeout() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo old > f");
    let before = Tree::of(lab.tree());
    let endless = "echo new > f; tail -f /dev/null & wait";
    let status = Invocation::new("timeout").args(["0.2", "sh", "-c", endless]).dir(lab.dir()).run();
    let done = lab.script(&["--time", "0.2"], endless).run().expect(status.code());
    let _ = done.expect(124).says("was stopped after 0.2 s (--time)").says("rolled back");
    // All is asked to end, so also what has lost its parent.
    let left = "(tail -f /dev/null &) ; echo new > f";
    let _ = lab.script(&["--time", "0.2", "--commit-on", "always"], left).run().expect(124);
    // And then ended.
    let stubborn = "trap '' TERM; echo new > f; while :; do tail -f /dev/null; done";
    let _ = lab.script(&["--time", "0.2"], stubborn).run().expect(124);
    before.expect_same(&Tree::of(lab.tree()));
    // Who is quicker is not concerned.
    let _ = lab.script(&["--time", "1h"], "exit 3").run().expect(3);
    let _ = lab.script(&["--keep", "--time", "1h"], "echo new > f").run().expect(0);
    let exec = |args: &[&str]| lab.txos(["exec", "@"].iter().chain(args)).run();
    let done = exec(&["--time", "0.2", "--", "sh", "-c", "echo newer > f; tail -f /dev/null"]);
    let _ = done.expect(124).says("stays pending, as it was before");
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert_eq!(lab.read("f"), "new\n");
    lab.expect_clean();
}

#[test]
fn private_copies_are_bounded() {
    let lab = Lab::in_memory();
    let _ = lab.native("head -c 300k /dev/zero > a; ln a b");
    let before = Tree::of(lab.tree());
    let bound = ["--max-bytes", "1M"];
    for script in [
        "head -c 3M /dev/zero > big",
        "head -c 3M /dev/zero > big; exit 3",
        // It would never end by itself.
        "while :; do head -c 64k /dev/zero >> big; done",
        "for i in 1 2 3 4 5 6; do cp a copy$i; done",
    ] {
        let done = lab.script(&bound, script).run().expect(153);
        let _ = done.says("--max-bytes").says("rolled back");
        before.expect_same(&Tree::of(lab.tree()));
    }
    // What is gone again is not counted, nor is a file of two names twice.
    let fits = "for i in 1 2 3 4 5 6; do cp a copy; rm copy; done; echo x >> a; cat b > c; rm c";
    let _ = lab.script(&bound, fits).run().expect(0);
    // Of a pending transaction all copies count, and what does not fit is taken back.
    let _ = lab.script(&["--keep"], "head -c 700k /dev/zero > big").run().expect(0);
    let more =
        ["exec", "@", "--max-bytes", "1M", "--", "sh", "-c", "head -c 600k /dev/zero > more"];
    let _ = lab.txos(more).run().expect(153).says("stays pending, as it was before");
    let shown = lab.txos(["diff", "@", "--name-status"]).run().expect(0).text();
    assert_eq!(shown.lines().count(), 1, "{shown}");
    lab.expect_clean();
}

/// Where the cgroup of the only transaction is.
fn cgroup(lab: &Lab) -> Option<PathBuf> {
    let (id, _) = lab.held().transactions.pop()?;
    let note = lab.store().join("tx").join(id).join("cgroup");
    std::fs::read_to_string(note).ok().map(PathBuf::from)
}

/// Asks for more memory than it is given, and touches it.
const HOG: &str = "python3 -c 'x = bytearray(300 << 20); print(\"had it\")'";

/// One process that has as much, and another that writes its copy of that while the first still has it.
const TWO_HOGS: &str = "exec python3 -c '
import os
x = bytearray(300 << 20)
print(\"had it\", flush=True)
other = os.fork()
if other == 0:
    for at in range(0, len(x), 4096):
        x[at] = 1
    print(\"had it\", flush=True)
    os._exit(0)
os.waitpid(other, 0)'";

#[test]
fn memory_is_bounded_by_a_cgroup() {
    let lab = Lab::in_memory();
    let mut meeting = Rendezvous::new();
    let running = lab.script(&["--memory", "64M"], PAUSE).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let group = cgroup(&lab).filter(|dir| dir.is_dir());
    let given = group.is_some();
    running.signal(Signal::KILL);
    assert!(running.wait().killed());
    require!(given, "no memory cgroup can be made here");
    let group = group.unwrap_or_default();
    // Who cleans up after the killed one removes its group, too.
    assert!(group.is_dir(), "{}", group.display());
    until("what the killed one has left has ended, and is removed", || {
        let _ = lab.txos(["gc"]).run().expect(0);
        !group.exists()
    });

    let done = lab.script(&["--memory", "64M"], &format!("echo x > f; exec {HOG}")).run();
    let _ = done.expect(137).says("the kernel ended 1 process").says("rolled back");
    assert!(!lab.path("f").exists());
    let done = lab.script(&["--memory", "1G"], HOG).run().expect(0);
    assert_eq!(done.text(), "had it\n");
    // All processes together are meant, each by itself has enough.
    let done = lab.script(&["--memory", "450M"], TWO_HOGS).run();
    assert!(done.stderr.contains("the kernel ended 1 process"), "{done:?}");
    let _ = lab.script(&["--keep", "--memory", "64M"], "echo x > f").run().expect(0);
    assert_eq!(cgroup(&lab), None);
    let done = lab.txos(["exec", "@", "--memory", "64M", "--", "sh", "-c", HOG]).run();
    let _ = done.expect(137).says("stays pending, as it was before");
    assert_eq!(cgroup(&lab), None);
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    lab.expect_clean();
}

/// An ordinary user can't make a cgroup, and is told what is bounded instead.
#[test]
fn memory_of_an_ordinary_user_is_bounded_for_each_process() {
    let lab = Lab::new();
    let user = User::new();
    std::os::unix::fs::chown(lab.tree(), Some(user.uid), Some(user.gid)).unwrap();
    let txos = lab.dir().join("txos");
    txos_testkit::process::copy_program(binary::txos(), &txos);
    require!(
        user.runs(Invocation::shell("unshare -Ur true")).run().code() == 0,
        "no user namespaces for ordinary users here"
    );
    let run = |memory: &str| {
        let invocation = Invocation::new(&txos).args(["run", "--scope"]).arg(lab.tree());
        let script = "dd if=/dev/zero of=/dev/null bs=200M count=1 && echo x > f";
        let invocation = invocation.args(["--memory", memory, "--", "sh", "-c", script]);
        user.runs(invocation.dir(lab.tree())).run()
    };
    let done = run("64M");
    assert_ne!(done.code(), 0, "{done:?}");
    let _ = done.says("no cgroup can be made here").says("address space").says("rolled back");
    let _ = run("2G").expect(0);
}

/// Reaches itself over the loopback interface, and not a server of the machine's, by port and by abstract name.
const CONNECT: &str = r#"
import socket, sys
own = socket.create_server(("127.0.0.1", 0))
socket.create_connection(own.getsockname()).close()
def reaches(family, address):
    try:
        socket.socket(family).connect(address)
        return True
    except OSError:
        return False
print(reaches(socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))),
      reaches(socket.AF_UNIX, "\0" + sys.argv[2]),
      reaches(socket.AF_UNIX, sys.argv[3]))
"#;

#[test]
fn a_network_of_its_own() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    require!(namespaces(), "no network namespaces here");
    let lab = Lab::in_memory();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    let name = format!("txos-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let hidden = UnixListener::bind_addr(&address).unwrap();
    let by_path = lab.dir().join("socket");
    let found = UnixListener::bind(&by_path).unwrap();
    std::fs::write(lab.path("connect.py"), CONNECT).unwrap();
    let script = format!("python3 connect.py {port} {name} {}", by_path.display());
    let done = lab.script(&[], &script).run().expect(0);
    assert_eq!(done.text(), "True True True\n");
    let done = lab.script(&["--no-network"], &script).run().expect(0);
    assert_eq!(done.text(), "False False True\n");
    let done = rootless(&lab, &["--no-network"], &script).run().expect(0);
    assert_eq!(done.text(), "False False True\n");
    // A real client, and nothing to warn of, or to stop for.
    let curl =
        format!("curl -s -m 5 http://127.0.0.1:{port}/; test $? = 7; curl -s http://10.1.2.3/");
    let done = lab.script(&["--no-network", "--strict"], &curl).run().expect(7);
    assert!(!done.stderr.contains("over the network"), "{done:?}");
    drop((server, hidden, found));
}

#[test]
fn it_starts_in_a_directory() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir -p d/e; echo x > d/e/x; echo f > f");
    let there = lab.path("d/e").display().to_string();
    let done = lab.script(&["--dir", "d/e"], "pwd; echo $PWD; echo y > y").run().expect(0);
    assert_eq!(done.text(), format!("{there}\n{there}\n"));
    assert_eq!(lab.read("d/e/y"), "y\n");
    for (dir, why) in [("none", "No such file"), ("f", "Not a directory")] {
        let done = lab.script(&["--dir", dir], "echo z > z").run().expect(125);
        let _ = done.says("entering the working directory").says(why);
    }
    assert!(!lab.path("z").exists());
    // In a pending transaction one that it has made itself.
    let _ = lab.script(&["--keep"], "mkdir made; echo m > made/m").run().expect(0);
    let done = lab.txos(["exec", "@", "--dir", "made", "--", "cat", "m"]).run().expect(0);
    assert_eq!(done.text(), "m\n");
    let done = lab.txos(["exec", "@", "--dir", "none", "--", "cat", "m"]).run().expect(125);
    let _ = done.says("entering the working directory").says("as it was before");
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    // Inside as well (`inside` has the rest).
    let script = format!("{} run --dir d/e -- cat x", binary::txos().display());
    assert_eq!(lab.script(&[], &script).run().expect(0).text(), "x\n");
}

/// A working directory that is gone, or that is not there in the view: nothing is run.
#[test]
fn a_working_directory_that_is_gone() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir d");
    let txos = binary::txos().display();
    let from = |then: &str| {
        let tree = lab.tree().display();
        let script = format!("cd d && {then} {txos} run --scope {tree} -- touch {tree}/made");
        let invocation = Invocation::shell(script).env("TXOS_STORE", lab.store());
        invocation.env("TXOS_REALM", lab.realm()).dir(lab.tree()).run()
    };
    let _ = from("rmdir ../d &&").expect(125).says("the working directory").says("--dir");
    let _ = lab.native("mkdir d");
    let _ = lab.script(&["--keep"], "rmdir d").run().expect(0);
    let script = format!("cd d && {txos} exec @ -- touch ../made");
    let done =
        Invocation::shell(script).env("TXOS_STORE", lab.store()).env("TXOS_REALM", lab.realm());
    let done = done.dir(lab.tree()).run().expect(125);
    let _ = done.says("working directory").says("as it was before");
    assert!(!lab.path("made").exists());
}

const PREPARE: &str = "
    mkdir -p d/e g; echo f > f; echo h > d/e/h; echo i > d/i; ln -s d/e link; echo k > g/k
    find . -exec touch -h -d @1000000000 {} +";

/// Looks in every way, and finds nothing; what is beside it is there.
const ABSENT: &str = r#"
    set -e
    ! test -e f; ! cat f 2>/dev/null; ! test -e d/e/h; ! ls link/ 2>/dev/null; ! test -L link
    python3 - <<'END'
import os
names = sorted(os.listdir("."))
assert names == ["d", "g"], names
assert os.listdir("d") == ["i"], os.listdir("d")
assert {e.name for e in os.scandir("d")} == {"i"}
for path in ["f", "d/e", "d/e/h", "link"]:
    try:
        os.lstat(path)
    except FileNotFoundError:
        continue
    raise SystemExit(path + " is there")
END
    test "$(cat d/i)" = i
"#;
const HIDE: [&str; 6] = ["--hide", "f", "--hide", "d/e", "--hide", "link"];

fn hides(lab: &Lab, run: impl Fn(&[&str], &str) -> Invocation) {
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    let _ = run(&HIDE, ABSENT).run().expect(0).says("nothing changed");
    before.expect_same(&Tree::of(lab.tree()));
    // What it must not touch unseen: made, replaced, moved or removed with the directory above it.
    for script in [
        "echo mine > f",
        "mkdir d/e",
        "ln -s x link",
        "mkdir -p d/e/h/i",
        "echo mine > n; mv n f",
        "rm -r d",
        "rm -r d; mkdir d",
    ] {
        let done = run(&HIDE, script).run().expect(125);
        let _ = done.says("--hide").says("rolled back");
        before.expect_same(&Tree::of(lab.tree()));
    }
    // Made and gone again is nothing.
    let _ = run(&HIDE, "echo mine > f; rm f; echo new > d/new; echo j >> d/i").run().expect(0);
    assert_eq!((lab.read("f"), lab.read("d/e/h")), ("f\n".into(), "h\n".into()));
    assert_eq!((lab.read("d/new"), lab.read("d/i")), ("new\n".into(), "i\nj\n".into()));
    let _ = lab.native("rm d/new; printf 'i\\n' > d/i");
    for (path, why) in [("/proc/1", "not versioned"), ("none/x", "No such file")] {
        let _ = run(&["--hide", path], "true").run().expect(125).says("can't be hidden").says(why);
    }
    lab.expect_clean();
}

#[test]
fn hidden_paths_are_absent() {
    let lab = Lab::in_memory();
    hides(&lab, |options, script| lab.script(options, script));
    // Moved and moved back, a directory may have been changed meanwhile.
    let _ = lab.script(&HIDE, "mv d x").run().expect(125).says("--hide");
}

#[test]
fn hidden_paths_are_absent_for_ordinary_users() {
    require!(namespaces(), "no namespaces for ordinary users here");
    let lab = Lab::in_memory();
    hides(&lab, |options, script| rootless(&lab, options, script));
}

/// Others may do with what is hidden what they like; what is not hidden any more is read again.
#[test]
fn hidden_paths_are_not_in_the_read_set() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let looks = format!("cat f d/e/h; echo new > g/new; {PAUSE}");
    for (options, status) in [(&HIDE[..4], 0), (&[], 75)] {
        let mut meeting = Rendezvous::new();
        let running = lab.script(options, &looks).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let _ = lab.native("echo changed >> f; echo changed >> d/e/h");
        meeting.go();
        let _ = running.wait().expect(status);
    }
    let keep = [&["--keep"], &HIDE[..4]].concat();
    let _ = lab.script(&keep, "cat f d/e/h; echo x > g/x").run().expect(0);
    // Hidden once more, then found.
    let exec = |hidden: &[&str], script| {
        let invocation = lab.txos(["exec", "@"]).args(hidden).args(["--", "sh", "-c", script]);
        invocation.run()
    };
    let _ = exec(&HIDE[..4], "! test -e f; ! test -e d/e; cat g/x").expect(0);
    let _ = lab.native("echo changed >> f; echo changed >> d/e/h");
    let _ = lab.txos(["commit", "@", "--dry-run"]).run().expect(0);
    let _ = exec(&[], "cat f d/e/h; echo y > d/e/y").expect(0);
    let done = exec(&["--hide", "d/e/y"], "true").expect(125);
    let _ = done.says("this transaction has changed it").says("as it was before");
    let done = exec(&["--hide", "d"], "true").expect(125);
    let _ = done.says("this transaction has changed it, or something in it");
    let done = exec(&["--hide", "f"], "echo z > f").expect(125).says("as it was before");
    drop(done);
    let _ = lab.native("echo again >> d/e/h");
    let _ = lab.txos(["commit", "@"]).run().expect(75).says("d/e/h");
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    assert!(!lab.path("g/x").exists());
    lab.expect_clean();
}
