//! Another user's process in root's transaction, and what the supervisor does because of its calls.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, inotify};
use rustix::process::Signal;
use txos_testkit::process::Done;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous, Running};

use crate::STRANGER;

/// Root's place, with a directory of the stranger's, and a program for him to run.
struct Place {
    lab: Lab,
    program: PathBuf,
}

impl Place {
    fn new(program: &str) -> Place {
        let lab = Lab::in_memory();
        let path = lab.dir().join("program");
        std::fs::write(&path, program).unwrap();
        let _ = lab.native("mkdir theirs; echo TOPSECRET > secret; chmod 600 secret");
        std::os::unix::fs::chown(lab.path("theirs"), Some(STRANGER), Some(STRANGER)).unwrap();
        Place { lab, program: path }
    }

    /// As the stranger, in his directory: `what`.
    fn as_stranger(what: &str) -> String {
        let ids = format!("--reuid {STRANGER} --regid {STRANGER} --clear-groups");
        format!("cd theirs && setpriv {ids} {what}")
    }

    /// The program in root's transaction, as the stranger.
    fn attacks(&self, args: &str) -> Done {
        let program = self.program.display();
        let what = Self::as_stranger(&format!("/usr/bin/python3 {program} {args}"));
        self.lab.script(&[], &what).run()
    }
}

/// Whether an ordinary user may make user namespaces here, with Python to do it.
fn namespaces_for_users() -> bool {
    let try_it = "/usr/bin/python3 -c 'pass' && unshare -Urm true";
    Invocation::shell(try_it).user(STRANGER, STRANGER).run().code() == 0
}

/// With a user namespace, mounts and a root directory of its own, a process shows the supervisor any file
/// under the name of the one that the dynamic linker asks for.
#[test]
fn the_supervisor_reads_no_file_to_another_user() {
    txos_testkit::require!(namespaces_for_users(), "no user namespaces for ordinary users here");
    let place = Place::new(include_str!("programs/preload.py"));
    let secret = place.lab.path("secret").display().to_string();
    for how in ["mount", "user"] {
        let done = place.attacks(&format!("{secret} {how}")).expect(0);
        assert!(!done.text().contains("SECRET"), "{how}: {done:?}");
        // Nor is there a file for him that is not there.
        assert!(!done.text().contains("read"), "{how}: {done:?}");
        assert_eq!(done.text().lines().count(), 6, "{how}: {done:?}");
        assert!(done.stderr.contains("namespace of its own"), "{how}: {done:?}");
    }
}

/// A transaction is none of a sandbox's business: what makes namespaces of its own works in it, as root and
/// as another user.
#[test]
fn sandboxes_work_in_a_transaction() {
    txos_testkit::require!(namespaces_for_users(), "no user namespaces for ordinary users here");
    let place = Place::new("");
    let script =
        "echo in $(id -u) > made; mv made moved; ln -s moved link; cat link; echo more >> moved";
    let unshared = Place::as_stranger(&format!("unshare -Urm sh -c '{script}'"));
    let done = place.lab.script(&[], &unshared).run().expect(0);
    assert_eq!(done.text(), "in 0\n");
    assert_eq!(place.lab.read("theirs/moved"), "in 0\nmore\n");
    let _ = place.lab.native("rm theirs/*");
    txos_testkit::require!(
        Invocation::shell("command -v bwrap").run().code() == 0,
        "no bubblewrap here"
    );
    let sandbox = "bwrap --bind / / --dev /dev --proc /proc --unshare-all --die-with-parent";
    for (what, dir) in [(Place::as_stranger(sandbox), "theirs"), (sandbox.to_owned(), ".")] {
        let done = place.lab.script(&[], &format!("{what} sh -c '{script}'")).run().expect(0);
        assert!(done.text().starts_with("in "), "{done:?}");
        assert!(place.lab.read(&format!("{dir}/moved")).ends_with("\nmore\n"));
        let _ = place.lab.native(&format!("rm {dir}/moved {dir}/link"));
    }
}

/// Tries to connect to each path.
const CONNECTS: &str = "
import socket, sys
for path in sys.argv[1:]:
    try: socket.socket(socket.AF_UNIX).connect(path); print(path, 'connected')
    except OSError as e: print(path, e.strerror)
";

/// The supervisor connects for the caller: where the caller can't go, it does not go either.
#[test]
fn directories_protect_sockets_in_a_transaction() {
    let place = Place::new(CONNECTS);
    let lab = &place.lab;
    let _ = lab.native("mkdir -p private/in open theirs/in; chmod 700 private");
    let listen = |path: &str, mode: u32| {
        let listener = UnixListener::bind(lab.path(path)).unwrap();
        std::fs::set_permissions(lab.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
        listener
    };
    let (open, _shut) = (listen("open/s", 0o666), listen("open/root", 0o600));
    let _private = [listen("private/s", 0o666), listen("private/in/s", 0o666)];
    let _theirs = [listen("theirs/in/s", 0o600)];
    let paths = "../open/s ../open/root ../private/s ../private/in/s";
    let want = "../open/s connected\n../open/root Permission denied\n../private/s Permission denied\n\
                ../private/in/s Permission denied\n";
    assert_eq!(place.attacks(paths).expect(0).text(), want);
    // What the service sees is the caller, but for the number of its process (docs/limits.md).
    let (peer, _) = open.accept().unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&peer).unwrap();
    assert_eq!((peer.uid.as_raw(), peer.gid.as_raw()), (STRANGER, STRANGER));
    // What the transaction changed counts as well.
    let program = place.program.display();
    let script = format!(
        "chmod 700 open; {}",
        Place::as_stranger(&format!("/usr/bin/python3 {program} ../open/s"))
    );
    let done = lab.script(&[], &script).run().expect(0);
    assert_eq!(done.text(), "../open/s Permission denied\n");
    let _ = lab.native(&format!(
        "chmod 755 open; chown {STRANGER} theirs/in theirs/in/s; chmod 700 theirs/in"
    ));
    // Root that gave up its capabilities is a user like others.
    let paths = "theirs/in/s private/s";
    let weak = "setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all";
    let done = lab.script(&[], &format!("{weak} /usr/bin/python3 {program} {paths}")).run();
    let want = "theirs/in/s Permission denied\nprivate/s connected\n";
    assert_eq!(done.expect(0).text(), want);
    let done = lab.script(&[], &format!("/usr/bin/python3 {program} {paths}")).run();
    assert_eq!(done.expect(0).text(), "theirs/in/s connected\nprivate/s connected\n");
}

/// A process that a stranger may signal, and that is root as soon as it is told; says what it got.
const BECOMES_ROOT: &str = "
import os, signal, sys, time
name = sys.argv[1]
def write(what): open(name + '.' + what, 'w').close()
def end(*_): write('end'); os._exit(0)
signal.signal(signal.SIGUSR1, lambda *_: write('got')); signal.signal(signal.SIGTERM, end)
os.setresuid(int(sys.argv[2]), int(sys.argv[2]), 0); write('ready')
while not os.path.exists(name + '.become'): time.sleep(0.005)
os.setresuid(0, 0, 0); write('became')
while True: time.sleep(0.005)
";

/// A signal is held for its sender: what the sender could not signal any more when it commits gets none.
#[test]
fn a_held_signal_is_its_senders() {
    let place = Place::new(BECOMES_ROOT);
    let outside = place.lab.nested("outside");
    let _ = outside.native("chmod 777 .");
    let start = |name: &str| {
        let program = Invocation::new("/usr/bin/python3").arg(&place.program).dir(outside.tree());
        let running = program.args([name, &STRANGER.to_string()]).start();
        until("it is ready", || outside.path(format!("{name}.ready")).exists());
        running
    };
    let (root, user) = (start("root"), start("user"));
    let pid = |running: &Running| running.pid().as_raw_nonzero().get();
    let kill = format!("sh -c \"kill -USR1 {}; kill -USR1 {}\"", pid(&root), pid(&user));
    let mut meeting = Rendezvous::new();
    let script = format!("({}); {PAUSE}", Place::as_stranger(&kill));
    let running = place.lab.script(&[], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let _ = outside.native("echo > root.become");
    until("it is root", || outside.path("root.became").exists());
    meeting.go();
    let done = running.wait().expect(0);
    assert!(done.stderr.contains("could not be delivered"), "{done:?}");
    until("the other one has got it", || outside.path("user.got").exists());
    for running in [root, user] {
        running.signal(Signal::TERM);
        let _ = running.wait().expect(0);
    }
    assert!(outside.path("root.end").exists() && !outside.path("root.got").exists());
    // Nor is it root's right that counts when it is sent.
    let init = Place::as_stranger("sh -c 'kill -USR1 1 2>&1 && echo sent'");
    let done = place.lab.script(&[], &format!("{init}; true")).run().expect(0);
    assert!(!done.text().contains("sent"), "{done:?}");
}

/// A device that only root may open, gone at the end.
struct Device(PathBuf);

impl Device {
    fn new() -> Option<Device> {
        let path = PathBuf::from(format!("/dev/txos-test-{}", std::process::id()));
        let null = rustix::fs::makedev(1, 3);
        let mode = rustix::fs::Mode::from_raw_mode(0o700);
        let made = rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, mode, null);
        made.is_ok().then_some(Device(path))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whoever has a device executed has it opened by nobody: opening one may do something.
#[test]
fn no_device_is_opened_because_somebody_executes_it() {
    let place = Place::new("");
    let device = Device::new();
    txos_testkit::require!(device.is_some(), "no device can be made here");
    let device = device.unwrap();
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let watch = inotify::init(flags).unwrap();
    inotify::add_watch(&watch, &device.0, inotify::WatchFlags::OPEN).unwrap();
    let execute = format!("sh -c \"{} 2>&1; true\"", device.0.display());
    for script in [Place::as_stranger(&execute), execute] {
        let done = place.lab.script(&[], &script).run().expect(0);
        assert!(done.text().contains("Permission denied"), "{done:?}");
    }
    let mut events = [0; 256];
    assert_eq!(rustix::io::read(&watch, &mut events), Err(rustix::io::Errno::AGAIN));
    drop(std::fs::File::open(&device.0).unwrap());
    assert!(rustix::io::read(&watch, &mut events).is_ok(), "the watch sees an open");
}

/// Nothing is copied into the store for a process that may not open the file.
#[test]
fn who_may_not_write_has_nothing_copied() {
    let place = Place::new("");
    let lab = &place.lab;
    let tries = "sh -c 'echo x >> ../secret; echo mine >> log; echo x > ../secret; true'";
    let _ = lab.native(&format!("echo old > theirs/log; chown {STRANGER} theirs/log"));
    let mut meeting = Rendezvous::new();
    let script = format!("({}); {PAUSE}", Place::as_stranger(tries));
    let running = lab.script(&["--keep"], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let _ = lab.native("echo others >> theirs/log");
    meeting.go();
    let done = running.wait().expect(0);
    assert!(done.stderr.contains("Permission denied"), "{done:?}");
    let copies = Invocation::shell("find . -name secret").dir(lab.store()).run().expect(0);
    assert_eq!(copies.text(), "");
    // What it may write is merged as ever with what others append.
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert_eq!(
        (lab.read("theirs/log"), lab.read("secret")),
        ("old\nothers\nmine\n".into(), "TOPSECRET\n".into())
    );
}

/// What the recorder's memory says need not be told. A process of another user writes into it that root's
/// program has been told of a look: then nobody would notice that what it looked at has changed.
#[test]
fn another_user_does_not_switch_off_what_root_validates() {
    let place = Place::new(include_str!("programs/forge.py"));
    let lab = &place.lab;
    let watched = lab.path("watched").display().to_string();
    for (how, says) in [("open", "No such file or directory"), ("inherit", "forged")] {
        let _ = lab.native("echo old > watched");
        let program = place.program.display();
        let script = format!("/usr/bin/python3 {program} victim {watched} {how} {STRANGER}");
        let mut meeting = Rendezvous::new();
        let running = lab.script(&[], &script).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let _ = lab.native("echo much longer > watched");
        meeting.go();
        let done = running.wait();
        assert_eq!(done.text(), format!("recorder True\n{says}\n"), "{done:?}");
        assert_eq!(done.code(), 75, "{how}: {done:?}");
        assert!(!lab.path("copy").exists(), "{how}");
    }
}

/// Calls itself by a name that moves the cursor and sets the title; says where it is; goes on, or makes namespaces.
const NAMED: &str = r"
import os, sys, time
with open('/proc/self/comm', 'wb') as comm: comm.write(b'\x1b]0;x\x07\n\xff\x9b2J')
if sys.argv[1] == 'sandbox':
    os.unshare(os.CLONE_NEWUSER) if hasattr(os, 'unshare') else __import__('ctypes').CDLL(None).unshare(0x10000000)
    try: os.execv('/etc/passwd', ['x'])
    except OSError: sys.exit(0)
open('ready', 'w').close()
while True: time.sleep(0.01)
";

/// What a process calls itself is shown, and does nothing to a terminal.
#[test]
fn names_of_processes_forge_nothing() {
    let place = Place::new(NAMED);
    let outside = place.lab.nested("outside");
    let _ = outside.native("chmod 777 .");
    let program = Invocation::new("/usr/bin/python3").arg(&place.program).arg("wait");
    let running = program.dir(outside.tree()).user(STRANGER, STRANGER).start();
    until("it has its name", || outside.path("ready").exists());
    let pid = running.pid().as_raw_nonzero().get();
    let limits = format!("prlimit --pid {pid} --nofile=512:512 2>/dev/null; true");
    let mut outcomes = vec![place.lab.script(&[], &limits).run().expect(0)];
    running.signal(Signal::KILL);
    let _ = running.wait();
    if namespaces_for_users() {
        outcomes.push(place.attacks("sandbox").expect(0));
    }
    for done in outcomes {
        assert!(done.stderr.contains(r"\033]0;x\007"), "{done:?}");
        assert!(!done.stderr.chars().any(|c| c.is_control() && c != '\n'), "{done:?}");
    }
}

/// Root of a user namespace is whoever the map says, range by range: the supervisor gives such a caller nothing
/// that the kernel would not give it.
#[test]
fn a_caller_with_several_ranges_is_who_it_is_outside() {
    let place = Place::new(include_str!("programs/ranges.py"));
    let outside = place.lab.nested("outside");
    let _ = outside.native("chmod 777 .");
    let waits = "trap 'echo > $0.got; exit' USR1; echo > $0.ready; while :; do sleep 0.01; done";
    let start = |name: &str, user: u32| {
        let target = Invocation::new("sh").args(["-c", waits, name]).dir(outside.tree());
        let target = target.user(user, user).start();
        until("it is ready", || outside.path(format!("{name}.ready")).exists());
        target
    };
    // Root; the users that root and user 1000 of the namespace are outside; a number that means nobody there.
    let targets =
        [("root", 0), ("first", 100_000), ("second", 1000), ("nobody", 101_000), ("other", 2000)];
    let targets = targets.map(|(name, user)| (name, start(name, user)));
    let pids = targets.each_ref().map(|(_, t)| t.pid().as_raw_nonzero().get().to_string());
    let (secret, pids) = (place.lab.path("secret"), pids.join(" "));
    let attack =
        format!("/usr/bin/python3 {} {} {pids}", place.program.display(), secret.display());
    let natively = place.lab.native(&format!("chmod 711 .; {attack}"));
    txos_testkit::require!(!natively.text().contains("unshare"), "no user namespaces here");
    for (name, _) in &targets {
        until("natively they are signalled", || {
            outside.path(format!("{name}.got")).exists() == matches!(*name, "first" | "second")
        });
    }
    let said = natively.text();
    assert!(!said.contains("TOPSECRET"), "{said}");
    for (_, target) in targets {
        target.signal(Signal::KILL);
        let _ = target.wait();
    }
    let _ = outside.native("rm -f *");
    let targets = [("root", 0), ("second", 1000), ("nobody", 101_000), ("other", 2000)];
    let targets = targets.map(|(name, user)| (name, start(name, user)));
    let pids = targets.each_ref().map(|(_, t)| t.pid().as_raw_nonzero().get().to_string());
    let attack = format!(
        "/usr/bin/python3 {} {} {}",
        place.program.display(),
        secret.display(),
        pids.join(" ")
    );
    let done = place.lab.script(&[], &attack).run().expect(0);
    assert!(!done.text().contains("TOPSECRET"), "{done:?}");
    let signalled: Vec<_> =
        said_of(&done.text()).into_iter().filter(|(_, said)| said == "signalled").collect();
    // User 1000 of the namespace is user 1000; its root has no rights outside but those of user 100000.
    assert_eq!(signalled, [("1000 1".to_owned(), "signalled".to_owned())], "{done:?}");
    until("the one has got it", || outside.path("second.got").exists());
    for (name, target) in targets {
        assert_eq!(outside.path(format!("{name}.got")).exists(), name == "second", "{name}");
        target.signal(Signal::KILL);
        let _ = target.wait();
    }
}

/// What was said of each target: "who number" and the rest of the line.
fn said_of(text: &str) -> Vec<(String, String)> {
    let of = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (who, number, said) = (words.next()?, words.next()?, words.next()?);
        number.parse::<u32>().ok()?;
        Some((format!("{who} {number}"), said.to_owned()))
    };
    text.lines().filter_map(of).collect()
}

/// A 64-bit program makes 32-bit calls: what it reads so is validated as well.
#[test]
fn calls_by_the_old_gate_are_recorded() {
    let place = Place::new(include_str!("programs/old.c"));
    let lab = &place.lab;
    let source = lab.dir().join("old.c");
    std::fs::rename(&place.program, &source).unwrap();
    let built = Invocation::new("cc").args(["-O1", "-static", "-no-pie", "-o"]).arg(&place.program);
    let built = built.arg(&source).run();
    txos_testkit::require!(built.code() == 0, "no C compiler with static libraries here");
    let _ = lab.native("echo old > file");
    let natively = lab.native(&format!("{} file; true", place.program.display())).text();
    txos_testkit::require!(natively == "old\n", "no 32-bit calls here");
    let mut meeting = Rendezvous::new();
    let script = format!("{} file > copy; {PAUSE}", place.program.display());
    let run = lab.script(&[], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let _ = lab.native("echo new > file");
    meeting.go();
    let done = run.wait().expect(75);
    assert!(done.stderr.contains("/file"), "{done:?}");
    assert!(!lab.path("copy").exists());
    let _ = lab.script(&[], &format!("{} file > copy", place.program.display())).run().expect(0);
    assert_eq!(lab.read("copy"), "new\n");
}

/// Connects from many threads to a service that accepts nobody; tells how many were turned away.
const CONNECTS_ALL: &str = "
import socket, sys, threading
away, lock = [0], threading.Lock()
def connect():
    try: socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    except BlockingIOError:
        with lock: away[0] += 1
    except OSError: pass
threads = [threading.Thread(target=connect) for _ in range(320)]
for thread in threads: thread.start()
while True:
    with lock:
        if away[0] >= 320 - 257 - 2: break
open('enough', 'w').close()
for thread in threads: thread.join()
";

/// A user has the supervisor connect as often as the user likes, to a service that accepts nobody: no more than some
/// hundred wait at a time, and others are served.
#[test]
fn connects_that_wait_are_bounded() {
    let place = Place::new(CONNECTS_ALL);
    let lab = &place.lab;
    let _ = lab.native("mkdir -m 755 open");
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(lab.path("open/s")).unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    std::fs::set_permissions(lab.path("open/s"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let mut meeting = Rendezvous::new();
    let program = place.program.display();
    let attack = Place::as_stranger(&format!("/usr/bin/python3 {program} ../open/s"));
    let script = format!(
        "({attack}) & until [ -e theirs/enough ]; do :; done; echo served > made; {PAUSE}; wait"
    );
    let run = lab.script(&[], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    drop(listener);
    meeting.go();
    let _ = run.wait().expect(0);
    assert_eq!(lab.read("made"), "served\n");
}
