//! An ordinary user, without any privilege, on what the user can write.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use txos_testkit::rendezvous::PAUSE;
use txos_testkit::tree::{Tolerance, overlay_traces};
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Rendezvous, Tree, binary, require, require_some};

/// A user and a tree of theirs, on the mount of the root directory.
pub struct Place {
    pub lab: Lab,
    user: User,
}

impl Place {
    /// `None` if this kernel gives ordinary users no namespaces.
    pub fn new() -> Option<Place> {
        // The user first: it must not be removed before the lab that names it.
        let lab = Lab::new();
        let user = User::new();
        std::os::unix::fs::chown(lab.tree(), Some(user.uid), Some(user.gid)).unwrap();
        // Out of the way of the permissions of wherever the binary was built.
        txos_testkit::process::copy_program(binary::txos(), lab.dir().join("txos"));
        let place = Place { lab, user };
        let allowed = place.runs(Invocation::shell("unshare -Ur true")).run().code() == 0;
        allowed.then_some(place)
    }

    fn runs(&self, invocation: Invocation) -> Invocation {
        self.user.runs(invocation.dir(self.lab.tree()))
    }

    pub fn native(&self, script: &str) {
        let _ = self.runs(Invocation::shell(format!("set -e\n{script}"))).run().expect(0);
    }

    pub fn txos(&self, args: &[&str]) -> Invocation {
        self.runs(Invocation::new(self.lab.dir().join("txos")).args(args))
    }

    pub fn script(&self, options: &[&str], script: &str) -> Invocation {
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

/// Without overlayfs's index nothing tells of a copy whose name has gone: what may have been changed in it is not
/// lost to the other names unseen. What only takes a name away is published.
#[test]
fn a_change_by_a_name_that_goes_is_refused() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    place.native(
        "mkdir d; echo 1 > a; ln a b; echo 1 > d/c; ln d/c e; echo 1 > f; ln f g; mkfifo p; ln p q",
    );
    let before = Tree::of(place.lab.tree());
    for script in [
        "echo 2 >> a; echo n > t; mv t a",
        "echo 2 >> a; rm a",
        "echo 2 > a; rm a; echo 5 > a",
        "echo 2 >> a; rm a; mkdir a",
        "chmod 600 a; rm a",
        "echo 2 >> d/c; rm -r d",
        "chmod 600 p; rm p",
    ] {
        let done = place.script(&[], script).run().expect(125);
        let _ = done.says("has other names").says("name that stays");
        before.expect_same(&Tree::of(place.lab.tree()));
    }
    // A listing of what then has the name is no change of what had it.
    let _ = place.script(&[], "rm a; mkdir a; ls a; exit 3").run().expect(3);
    let _ = place.script(&["--keep"], "ls a; rm a; mkdir a; ls a").run().expect(0);
    let _ = place.txos(&["exec", "@", "--", "ls", "a"]).run().expect(0);
    let _ = place.txos(&["abort", "@"]).run().expect(0);
    let script = "rm a; echo n > t; mv t d/c; echo 2 >> f; rm f g; cat e > h; rm p; cat b";
    let _ = place.script(&[], script).run().expect(0);
    assert_eq!(place.lab.read("b"), "1\n");
    assert_eq!(place.lab.read("e"), "1\n");
    assert_eq!(place.lab.read("d/c"), "n\n");
}

/// Without `--scope` every directory of the user's in `/tmp` is a layer. That one goes concerns no transaction that had
/// nothing to do with it; what a command makes at its path is then versioned like anything else there.
#[test]
fn a_directory_that_others_remove_is_missed_by_nobody() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    place.native("mkdir -m 1777 shared");
    let path = place.lab.path("shared");
    std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
    let scope = path.to_str().unwrap();
    place.native("mkdir shared/mine shared/kept");
    let run = ["run", "--scope", scope, "--keep", "--", "sh", "-c", "echo 1 > shared/kept/a"];
    let _ = place.txos(&run).run().expect(0);
    place.native("rmdir shared/mine");
    let again = "echo 2 > shared/kept/b; mkdir shared/mine; echo 3 > shared/mine/c";
    let _ = place.txos(&["exec", "@", "--", "sh", "-c", again]).run().expect(0);
    assert!(!path.join("mine").exists() && !path.join("kept/a").exists());
    let _ = place.txos(&["commit", "@"]).run().expect(0);
    assert_eq!(place.lab.read("shared/kept/b"), "2\n");
    assert_eq!(place.lab.read("shared/mine/c"), "3\n");
    // So may one that others make anew at its path.
    let _ = place.txos(&run).run().expect(0);
    place.native("rm -r shared/mine; mkdir shared/mine");
    let again = "echo 5 > shared/kept/b; echo 6 > shared/mine/c";
    let _ = place.txos(&["exec", "@", "--", "sh", "-c", again]).run().expect(0);
    assert!(!path.join("mine/c").exists());
    let _ = place.txos(&["commit", "@"]).run().expect(0);
    assert_eq!(place.lab.read("shared/kept/b"), "5\n");
    assert_eq!(place.lab.read("shared/mine/c"), "6\n");
    // It can be undone to the beginning, forked, and begun again.
    let _ = place.txos(&run).run().expect(0);
    place.native("rm -r shared/mine");
    let _ = place.txos(&["exec", "--fork", "--name", "fork", "@", "--", "true"]).run().expect(0);
    let _ = place.txos(&["undo", "fork"]).run().expect(0);
    let _ = place.txos(&["undo", "fork"]).run().expect(0);
    let _ = place.txos(&["abort", "fork"]).run().expect(0);
    let _ = place.txos(&["rebase", "@"]).run().expect(0);
    let _ = place.txos(&["abort", "@"]).run().expect(0);
    place.native("mkdir shared/mine");
    // What the transaction has changed of it is a conflict.
    for change in ["chmod 700 shared/mine", "echo 4 > shared/mine/d", "ls shared/mine"] {
        let _ = place.txos(&[&run[..run.len() - 1], &[change][..]].concat()).run().expect(0);
        place.native("mv shared/mine elsewhere");
        let lost = place.txos(&["commit", "@"]).run();
        assert!(matches!(lost.code(), 75 | 125), "{change}: {lost:?}");
        place.native("mv elsewhere shared/mine");
        let _ = place.txos(&["commit", "@"]).run().expect(0);
    }
}

/// One that was asked for is missed: a command must not do at its path what would be live.
#[test]
fn a_scope_that_others_remove_is_missed() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    place.native("mkdir d");
    let path = place.lab.path("d");
    let scope = path.to_str().unwrap();
    let run = ["run", "--scope", scope, "--keep", "--", "touch", "d/x"];
    let _ = place.txos(&run).run().expect(0);
    let _ = place.txos(&["undo", "@"]).run().expect(0);
    place.native("rmdir d");
    let again = ["exec", "@", "--", "sh", "-c", "mkdir d; echo 1 > d/x"];
    let _ = place.txos(&again).run().expect(125);
    assert!(!path.exists());
}

#[test]
fn everything_lands() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
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
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
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

/// A program with mounts of its own replaces a file under a name that nobody can follow: what it made is a
/// new inode, in which whoever has the old one open has no hand.
#[test]
fn what_is_replaced_behind_mounts_of_its_own_is_new() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    let replace = "echo SECRET > mnt/F.new; chmod 600 mnt/F.new; mv mnt/F.new mnt/F";
    let remove = "rm mnt/F; umask 077; echo SECRET > mnt/F";
    let mounted = |what: &str| format!("unshare -rm sh -ec 'mount --bind d mnt; {what}'");
    let linked = |what: &str| format!("ln -s d mnt; unshare -r sh -ec '{what}'");
    let cases = [
        (mounted(replace), true),
        (mounted(remove), true),
        (linked(replace), false),
        (linked(remove), false),
    ];
    for (script, point) in cases {
        place.native("rm -rf d mnt; mkdir d; echo old > d/F; ln d/F other");
        if point {
            place.native("mkdir mnt");
        }
        // Somebody else has the old file open.
        let mut old = std::fs::File::open(place.lab.path("d/F")).unwrap();
        let kept = place.script(&["--keep"], &format!("set -e; cat d/F; {script}")).run().expect(0);
        let _ = place.txos(&["commit", "@"]).run().expect(0);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut old, &mut text).unwrap();
        assert_eq!(text, "old\n", "{script}: {kept:?}");
        assert_eq!(place.lab.read("d/F"), "SECRET\n", "{script}");
        assert_eq!(place.lab.read("other"), "old\n", "{script}");
        assert_eq!(place.lab.path("d/F").metadata().unwrap().mode() & 0o777, 0o600, "{script}");
        place.native("rm other");
    }
}

#[test]
fn everything_in_scope() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
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
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
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
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
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
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
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
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
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
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    let _ = place.lab.script(&[], "true").run().expect(0);
    let store = place.lab.store().to_str().unwrap();
    let done = place.txos(&["--store", store, "run", "--", "true"]).run().expect(125);
    assert!(done.stderr.contains(store), "{done:?}");
}

/// Where the kernel refuses user namespaces, the message says which setting it is. Here a namespace
/// of its own has the limit, so that nothing on the machine changes.
#[test]
fn without_user_namespaces_the_setting_is_named() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    let txos = place.lab.dir().join("txos").display().to_string();
    let tree = place.lab.tree().display().to_string();
    let (uid, gid) = (place.user.uid, place.user.gid);
    // The namespace has two users: its root, who sets the limit, and this one.
    let script = format!(
        "echo ready; read _; echo 0 > /proc/sys/user/max_user_namespaces || exit 77; \
         cd {tree} && HOME={} exec setpriv --reuid {uid} --regid {gid} --clear-groups \
         {txos} run --view overlay --scope . -- true",
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

/// What can't be versioned is told of when it changes, not whenever something runs.
#[test]
fn a_mount_below_is_told_of_when_it_matters() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    place.native("mkdir mnt d");
    let mnt = place.lab.path("mnt");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", &mnt, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
    for script in ["true", "echo in > d/file", "test ! -e direct; cat nothing; ls; cat d/file"] {
        let _ = place.script(&[], script).run().says_not("warning");
    }
    assert_eq!(place.lab.read("d/file"), "in\n");
    let done = place.script(&[], "echo out > direct; exit 3").run().expect(3);
    let _ = done.says("takes effect at once").says("/mnt is mounted below it").says("direct");
    assert_eq!(place.lab.read("direct"), "out\n");
    let done = place.script(&["--strict"], "mkdir other").run().expect(125);
    let _ = done.says("/mnt is mounted below it");
    assert!(!place.lab.path("other").exists());
    rustix::mount::unmount(&mnt, rustix::mount::UnmountFlags::DETACH).unwrap();
}

/// Modes that forbid their owner something are published, undone, reverted and recovered like any others.
#[test]
fn modes_that_forbid_their_owner_something() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    let prepare = "mkdir -p d/in e shut gone/in; echo x > d/x; echo y > d/in/y; echo z > locked; chmod 555 shut
        chmod 555 gone/in gone; find . -exec touch -h -d @1000000000 {} +";
    let cases = [
        "chmod 0640 d",
        "chmod 0640 d; echo more > other",
        "echo y > d/new; rm d/x; chmod 0640 d",
        "echo y > d/x; chmod 0550 d",
        "echo y > d/x; chmod 0000 d/in d",
        "mkdir new; chmod 555 new",
        "mkdir -p new/in; echo f > new/in/f; chmod 000 new/in/f; chmod 500 new/in; chmod 600 new",
        "mkdir new; echo f > new/f; chmod 000 new/f new",
        "rmdir e; mkdir e; echo f > e/f; chmod 555 e",
        "rm -r d; mkdir d; echo f > d/f; chmod 000 d",
        "rmdir shut",
        "chmod 755 shut; touch shut/made; chmod 555 shut",
        "chmod 755 gone; chmod 755 gone/in; rm -r gone",
        "chmod 000 locked",
        "echo more >> locked; chmod 000 locked",
        "rm locked; echo again > locked; chmod 000 locked",
        "mv d/x d/in/y e; chmod 555 d/in; chmod 111 d",
    ];
    for script in cases {
        let reset = "chmod -R u+rwx . && rm -rf d e shut gone new other locked";
        place.native(&format!("{reset}; {prepare}"));
        let before = Tree::of(place.lab.tree());
        let _ = place.script(&[], &format!("set -e; {script}; exit 3")).run().expect(3);
        before.expect_same(&Tree::of(place.lab.tree()));
        let _ = place.script(&["--keep"], &format!("set -e; {script}")).run().expect(0);
        let _ = place.txos(&["commit", "@"]).run().expect(0).says("committed");
        let after = Tree::of(place.lab.tree());
        assert_eq!(overlay_traces(place.lab.tree()), [""; 0], "{script}");
        let _ = place.txos(&["revert", "@"]).run().expect(0);
        before.expect_same(&Tree::of(place.lab.tree()));

        place.native(&format!("{reset}; {prepare}; {script}"));
        let native = Tree::of(place.lab.tree());
        let tolerance = Tolerance { now_from: Some(1_500_000_000), times: false, links: false };
        native.expect(&after, tolerance, &format!("not as after a native run of: {script}"));
    }
    place.native("chmod -R u+rwx .");
    let _ = place.txos(&["gc", "--keep", "0"]).run().expect(0);
    assert_eq!(std::fs::read_dir(place.store().join("tx")).unwrap().count(), 0);
}

/// Killed at any step, and made to fail at any: what can't be opened is put back like anything else.
#[test]
fn what_forbids_its_owner_something_is_recovered() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    let prepare = "mkdir -p d/in e shut; echo x > d/x; echo y > d/in/y; chmod 555 shut
        find . -exec touch -h -d @1000000000 {} +";
    let script =
        "echo y > d/x; rmdir e; mkdir e; echo f > e/f; chmod 000 e; rmdir shut; chmod 0640 d";
    let reset = "chmod -R u+rwx . && rm -rf d e shut";
    place.native(prepare);
    let count = place.user.home.join("count");
    let _ = place.script(&[], script).run().expect(0);
    let after = Tree::of(place.lab.tree());
    place.native(&format!("{reset}; {prepare}"));
    let before = Tree::of(place.lab.tree());
    let _ = place.script(&[], script).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = txos_testkit::fault::steps_in(&count).len();
    let tolerance = Tolerance { now_from: Some(1_500_000_000), times: false, links: true };
    for step in 1..=steps {
        for fault in [format!("kill@{step}"), format!("EIO@{step}")] {
            place.native(&format!("{reset}; {prepare}"));
            let run = place.script(&[], script).env("TXOS_FAULT", &fault).run();
            let _ = place.txos(&["recover"]).run().expect(0);
            let now = Tree::of(place.lab.tree());
            let is_before = std::fs::metadata(place.lab.path("shut")).is_ok();
            if is_before {
                before.expect(&now, tolerance, &format!("{fault}: {run:?}"));
            } else {
                after.expect(&now, tolerance, &format!("{fault}: {run:?}"));
            }
        }
    }
    place.native("chmod -R u+rwx .");
    let _ = place.txos(&["gc", "--keep", "0"]).run().expect(0);
}

/// What a pending transaction holds is saved before one more command runs in it, also what its owner can't
/// read, and is there again if the command fails.
#[test]
fn what_cannot_be_read_is_saved() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    place.native("echo old > file; mkdir d; echo in > d/in");
    let script = "echo secret > file; chmod 000 file; mkdir new; echo f > new/f; ln new/f link; chmod 000 new/f new; chmod 600 d";
    let _ = place.script(&["--keep"], script).run().expect(0);
    let _ = place
        .txos(&["exec", "@", "--", "sh", "-c", "chmod 700 file; echo lost > file; exit 3"])
        .run()
        .expect(3);
    let _ = place.txos(&["exec", "@", "--", "sh", "-c", "echo more > other"]).run().expect(0);
    let _ = place.txos(&["commit", "@"]).run().expect(0);
    assert_eq!(place.lab.read("file"), "secret\n");
    assert_eq!(place.lab.read("other"), "more\n");
    assert_eq!(place.lab.read("new/f"), "f\n");
    for (path, mode) in [("file", 0), ("new", 0), ("new/f", 0), ("d", 0o600)] {
        assert_eq!(place.lab.path(path).metadata().unwrap().mode() & 0o7777, mode, "{path}");
    }
    assert_eq!(place.lab.path("link").metadata().unwrap().nlink(), 2);
    place.native("chmod -R u+rwx .");
}

/// A mount that the user can't even reach keeps a directory from being covered whole, like any other.
#[test]
fn a_mount_out_of_reach_is_in_nobodys_way() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    place.native("mkdir d; echo old > d/file");
    let _ = place.lab.native("mkdir -p theirs/mnt; chmod 700 theirs");
    let mnt = place.lab.path("theirs/mnt");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", &mnt, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
    let _ = place.script(&[], "echo new > d/file; exit 3").run().expect(3);
    assert_eq!(place.lab.read("d/file"), "old\n");
    let _ = place.script(&[], "echo new > d/file").run().expect(0).says_not("warning");
    assert_eq!(place.lab.read("d/file"), "new\n");
    rustix::mount::unmount(&mnt, rustix::mount::UnmountFlags::DETACH).unwrap();
}

/// A user looks at a transaction from inside; whom root's transaction has become a user is shown nothing of it.
#[test]
fn looks_from_inside_are_the_users_own() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users");
    let txos = place.lab.dir().join("txos").display().to_string();
    let script = format!("echo 1 > mine; {txos} diff --name-status; {txos} status | grep ^running");
    let done = place.script(&[], &script).run().expect(0);
    assert!(done.text().lines().any(|line| line.ends_with("/mine")), "{done:?}");
    assert!(done.text().contains("1 path (1 added) so far"), "{done:?}");
    let name = &place.user.name;
    let become_user = format!(
        "echo 1 > secret; chmod 600 secret; setpriv --reuid={name} --clear-groups {txos} diff; echo status $?"
    );
    let done = place.lab.script(&["--keep"], &become_user).run().expect(0);
    assert_eq!(done.text(), "status 125\n", "{done:?}");
    assert!(done.stderr.contains("can't be asked: Operation not permitted"), "{done:?}");
    let _ = place.lab.txos(["abort", "@"]).run().expect(0);
}

/// A home directory that can't be written: where else the store could be is said, and works.
#[test]
fn a_read_only_home_directory() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users");
    place.native("mkdir home; chmod 555 home; mkdir elsewhere");
    let home = place.lab.path("home");
    let done = place.script(&[], "echo 1 > a").env("HOME", &home).run().expect(125);
    let _ = done.says("home/.local").says("--store or TXOS_STORE");
    let elsewhere = place.lab.path("elsewhere");
    let done = place.script(&[], "echo 1 > a").env("HOME", &home).env("TXOS_STORE", &elsewhere);
    let _ = done.run().expect(0);
    assert_eq!(place.lab.read("a"), "1\n");
}
