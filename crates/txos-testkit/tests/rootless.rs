//! An ordinary user, without any privilege, on what the user can write.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use txos_testkit::rendezvous::PAUSE;
use txos_testkit::tree::{Tolerance, overlay_traces};
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Rendezvous, Tree, binary, require};

/// A user and a tree of theirs, on the mount of the root directory.
struct Place {
    lab: Lab,
    user: User,
}

impl Place {
    /// `None`, told, if this kernel gives ordinary users no namespaces.
    fn new() -> Option<Place> {
        // The user first: it must not be removed before the lab that names it.
        let lab = Lab::new();
        let user = User::new();
        std::os::unix::fs::chown(lab.tree(), Some(user.uid), Some(user.gid)).unwrap();
        // Out of the way of the permissions of wherever the binary was built.
        txos_testkit::process::copy_program(binary::txos(), lab.dir().join("txos"));
        let place = Place { lab, user };
        let allowed = place.runs(Invocation::shell("unshare -Ur true")).run().code() == 0;
        if !allowed {
            txos_testkit::skip::say("no user namespaces for ordinary users here");
            return None;
        }
        Some(place)
    }

    fn runs(&self, invocation: Invocation) -> Invocation {
        self.user.runs(invocation.dir(self.lab.tree()))
    }

    fn native(&self, script: &str) {
        let _ = self.runs(Invocation::shell(format!("set -e\n{script}"))).run().expect(0);
    }

    fn txos(&self, args: &[&str]) -> Invocation {
        self.runs(Invocation::new(self.lab.dir().join("txos")).args(args))
    }

    fn script(&self, options: &[&str], script: &str) -> Invocation {
        let scope = self.lab.tree().to_str().unwrap();
        let mut words = vec!["run", "--scope", scope];
        words.extend(options);
        words.extend(["--", "sh", "-c", script]);
        self.txos(&words)
    }

    /// The default store, in the user's home directory.
    fn store(&self) -> std::path::PathBuf {
        self.user.home.join(".local/state/txos")
    }
}

const PREPARE: &str = "
    mkdir -p d/inner gone/deep other full; echo content > changed; echo bye > removed
    echo x > d/x; echo y > d/inner/y; echo deep > gone/deep/file; echo mode > mode
    echo linked > other/one; ln other/one other/two; ln -s changed link; mkfifo pipe
    echo 1 > full/1; setfattr -n user.kept -v 1 changed
    find . -exec touch -h -d @1000000000 {} +";

const CHANGE: &str = "
    set -e
    echo new > changed; rm removed; echo again > d/x
    mkdir -p new/deep; echo f > new/deep/file; ln -s ../x new/link; mkfifo new/pipe
    rm -r gone; rm -r full; mkdir full; chmod 600 mode; setfattr -n user.x -v y mode
    rm link; ln -s elsewhere link; ln mode mode2; touch -d @1100000000 other";

#[test]
fn everything_lands() {
    let Some(place) = Place::new() else { return };
    place.native(PREPARE);
    let before = Tree::of(place.lab.tree());
    let _ = place.script(&[], &format!("{CHANGE}\nexit 3")).run().expect(3);
    before.expect_same(&Tree::of(place.lab.tree()));
    let _ = place.script(&[], CHANGE).run().expect(0).says("committed");
    let after = Tree::of(place.lab.tree());
    assert_eq!(overlay_traces(place.lab.tree()), [""; 0]);
    assert!(place.store().is_dir());
    assert!(!place.lab.store().exists());

    let twin = place.lab.dir().join("twin");
    std::fs::create_dir(&twin).unwrap();
    std::os::unix::fs::chown(&twin, Some(place.user.uid), Some(place.user.gid)).unwrap();
    let native = place.user.runs(Invocation::shell(format!("{PREPARE}\n{CHANGE}")).dir(&twin));
    let _ = native.run().expect(0);
    let tolerance = Tolerance { now_from: Some(1_500_000_000), times: false, links: false };
    Tree::of(&twin).expect(&after, tolerance, "not as after a native run");

    let _ = place.txos(&["revert", "@"]).run().expect(0);
    before.expect_same(&Tree::of(place.lab.tree()));
    let _ = place.txos(&["gc", "--keep", "0"]).run().expect(0);
    assert_eq!(std::fs::read_dir(place.store().join("tx")).unwrap().count(), 0);
}

#[test]
fn hard_links_across_copy_up() {
    let Some(place) = Place::new() else { return };
    place.native("echo one > a; ln a b");
    // In a user namespace overlayfs copies one name only (docs/limits.md): inside, the other name
    // keeps its content. What is published is right again.
    let done = place.script(&[], "echo two >> a; cat a; echo; cat b").run().expect(0);
    assert_eq!(done.text(), "one\ntwo\n\none\n");
    assert_eq!(place.lab.read("a"), "one\ntwo\n");
    assert_eq!(place.lab.read("b"), "one\ntwo\n");
    assert_eq!(place.lab.path("a").metadata().unwrap().nlink(), 2);
    // A name that something else was put over is a file of its own, as natively.
    let _ = place.script(&[], "echo new > t; mv t a").run().expect(0);
    assert_eq!(place.lab.read("a"), "new\n");
    assert_eq!(place.lab.read("b"), "one\ntwo\n");
}

#[test]
fn everything_in_scope() {
    let Some(place) = Place::new() else { return };
    place.native("echo old > file");
    let home = place.user.home.display().to_string();
    let script = format!("echo new > file; echo > {home}/made; id -u; id -g; umask; pwd");
    let done = place.txos(&["run", "--", "sh", "-c", &script]).run().expect(0);
    let (uid, gid) = (place.user.uid, place.user.gid);
    let first: Vec<String> = done.text().lines().take(2).map(str::to_owned).collect();
    assert_eq!(first, [uid.to_string(), gid.to_string()]);
    assert_eq!(place.lab.read("file"), "new\n");
    let made = Path::new(&home).join("made").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (uid, gid));
    let script = format!("rm -f {home}/made; exit 1");
    let _ = place.txos(&["run", "--", "sh", "-c", &script]).run().expect(1);
    assert!(Path::new(&home).join("made").exists());
}

#[test]
fn what_others_own_stays_theirs() {
    let Some(place) = Place::new() else { return };
    let _ = place
        .lab
        .native("echo secret > secret; chmod 600 secret; mkdir -m 755 theirs; echo x > theirs/x");
    let before = Tree::of(place.lab.path("theirs"));
    for script in [
        "cat secret",
        "echo > theirs/new",
        "echo > theirs/x",
        "rm theirs/x",
        "chown 0 mine",
        "cat /etc/shadow",
        "mknod null c 1 3",
        "echo > /etc/passwd",
    ] {
        let done = place.script(&[], &format!("touch mine; {script}")).run();
        assert!(done.code() != 0 && done.code() != 125, "{done:?}");
    }
    before.expect_same(&Tree::of(place.lab.path("theirs")));
    assert!(!place.lab.path("mine").exists());
}

#[test]
fn a_directory_is_renamed() {
    let Some(place) = Place::new() else { return };
    place.native("mkdir -p d/inner; echo x > d/x; echo y > d/inner/y");
    let done = place.script(&[], "mv d moved && mv moved/inner inner").run();
    // coreutils copy when a rename says that it crosses devices; programs that don't see that error.
    let _ = done.expect(0);
    assert_eq!(place.lab.read("moved/x"), "x\n");
    assert_eq!(place.lab.read("inner/y"), "y\n");
    assert!(!place.lab.path("d").exists());
}

#[test]
fn conflicts_are_found() {
    let Some(place) = Place::new() else { return };
    place.native("echo one > file; echo log > log");
    for (script, theirs, code) in [
        ("cat file; echo > new", "echo two > file", 75),
        ("echo mine > file", "echo two > file", 75),
        ("test -e nothing || echo > new", "echo > nothing; rm -f new", 75),
        ("cat file; echo > new", "echo unrelated > other", 0),
        ("echo mine >> log", "echo theirs >> log", 0),
    ] {
        let mut meeting = Rendezvous::new();
        let running =
            place.script(&[], &format!("{script}; {PAUSE}")).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        place.native(theirs);
        meeting.go();
        let _ = running.wait().expect(code);
        place.native("rm -f nothing new");
    }
    assert_eq!(place.lab.read("log"), "log\ntheirs\nmine\n");
}

#[test]
fn a_crash_is_recovered() {
    let Some(place) = Place::new() else { return };
    place.native("for i in 1 2 3 4 5 6; do echo old > f$i; done");
    let count = place.user.home.join("count");
    let script = "for i in 1 2 3 4 5 6; do echo new > f$i; done";
    let _ = place.script(&[], script).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = txos_testkit::fault::steps_in(&count).len();
    assert!(steps > 6);
    for step in 1..=steps {
        place.native("for i in 1 2 3 4 5 6; do echo old > f$i; done");
        let run = place.script(&[], script).env("TXOS_FAULT", format!("kill@{step}")).run();
        assert!(run.killed() || run.code() == 0, "{run:?}");
        let _ = place.txos(&["recover"]).run().expect(0);
        let found: Vec<String> = (1..=6).map(|i| place.lab.read(&format!("f{i}"))).collect();
        assert!(found.iter().all(|f| *f == found[0]), "kill@{step}: {found:?}");
    }
    let _ = place.txos(&["gc"]).run().expect(0);
}

#[test]
fn the_store_of_another_is_refused() {
    let Some(place) = Place::new() else { return };
    let _ = place.lab.script(&[], "true").run().expect(0);
    let store = place.lab.store().to_str().unwrap();
    let done = place.txos(&["--store", store, "run", "--", "true"]).run().expect(125);
    assert!(done.stderr.contains(store), "{done:?}");
}

/// Where the kernel refuses user namespaces, the message says which setting it is. Here a namespace
/// of its own has the limit, so that nothing on the machine changes.
#[test]
fn without_user_namespaces_the_setting_is_named() {
    let Some(place) = Place::new() else { return };
    let txos = place.lab.dir().join("txos").display().to_string();
    let tree = place.lab.tree().display().to_string();
    let (uid, gid) = (place.user.uid, place.user.gid);
    // The namespace has two users: its root, who sets the limit, and this one.
    let script = format!(
        "echo ready; read _; echo 0 > /proc/sys/user/max_user_namespaces || exit 77; \
         cd {tree} && HOME={} exec setpriv --reuid {uid} --regid {gid} --clear-groups \
         {txos} run --scope . -- true",
        place.user.home.display()
    );
    let map = format!(
        "unshare -U --keep-caps sh -c '{script}' < ../to > ../from & read _ < ../from; \
         echo '0 0 65536' > /proc/$!/uid_map; echo '0 0 65536' > /proc/$!/gid_map; echo > ../to; wait $!"
    );
    let map = format!("mkfifo ../to ../from; exec 3<>../to 4<>../from; {map}");
    let done = Invocation::shell(map).dir(place.lab.tree()).run();
    require!(done.code() != 77 && done.code() != 1, "the limit can't be set here: {done:?}");
    let _ = done.expect(125).says("user.max_user_namespaces");
}
