//! User number 0 that is not the machine's root: in a user namespace, or without CAP_SYS_ADMIN, as in a
//! container. Its transactions run as an ordinary user's do, and no kind of root goes on with another's.

use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};
use txos_testkit::tree::overlay_traces;
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Tree, binary, require};

/// What Docker leaves a container's root by default.
const DOCKER: [&str; 14] = [
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "net_bind_service",
    "net_raw",
    "sys_chroot",
    "mknod",
    "audit_write",
    "setfcap",
];

/// A kind of root that is not the machine's.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Namespace,
    Docker,
}

const KINDS: [Kind; 2] = [Kind::Namespace, Kind::Docker];

impl Kind {
    /// A command of this kind of root.
    fn command(self) -> Invocation {
        match self {
            Kind::Namespace => Invocation::new("unshare").args(["--user", "--map-root-user"]),
            Kind::Docker => with_capabilities(&DOCKER),
        }
    }

    fn txos(self, lab: &Lab, args: &[&str]) -> Invocation {
        self.command()
            .arg(binary::txos())
            .args(args)
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
    }

    fn script(self, lab: &Lab, options: &[&str], script: &str) -> Invocation {
        let scope = lab.tree().to_str().unwrap();
        let mut words = vec!["run", "--scope", scope];
        words.extend(options);
        words.extend(["--", "sh", "-c", script]);
        self.txos(lab, &words)
    }
}

/// Root with these capabilities only.
fn with_capabilities(kept: &[&str]) -> Invocation {
    let kept: String = kept.iter().map(|name| format!(",+{name}")).collect();
    let bounding = format!("--bounding-set=-all{kept}");
    Invocation::new("setpriv").args([&bounding, "--inh-caps=-all"])
}

/// Whether this kernel gives namespaces to those who are not privileged.
fn possible() -> bool {
    KINDS.iter().all(|kind| kind.command().args(["unshare", "-Ur", "true"]).run().code() == 0)
}

const PREPARE: &str = "
    mkdir -p d/inner gone/deep full; echo content > changed; echo bye > removed
    echo x > d/x; echo deep > gone/deep/file; echo mode > mode; ln -s changed link; echo 1 > full/1
    find . -exec touch -h -d @1000000000 {} +";

const CHANGE: &str = "
    set -e; test $(id -u) = 0
    echo new > changed; rm removed; echo again > d/x; mkdir -p new/deep; echo f > new/deep/file
    rm -r gone; rm -r full; mkdir full; chmod 600 mode; rm link; ln -s elsewhere link";

#[test]
fn everything_lands() {
    for kind in KINDS {
        let lab = Lab::new();
        require!(possible(), "no user namespaces without privilege here");
        let _ = lab.native(PREPARE);
        let before = Tree::of(lab.tree());
        let _ = kind.script(&lab, &[], &format!("{CHANGE}\nexit 3")).run().expect(3);
        before.expect_same(&Tree::of(lab.tree()));
        let _ = kind.script(&lab, &[], CHANGE).run().expect(0).says("committed");
        assert_eq!(overlay_traces(lab.tree()), [""; 0], "{kind:?}");
        assert_eq!(lab.read("changed"), "new\n", "{kind:?}");
        assert_eq!(lab.read("new/deep/file"), "f\n", "{kind:?}");
        assert!(!lab.path("gone").exists() && !lab.path("full/1").exists(), "{kind:?}");
        let _ = kind.txos(&lab, &["revert", "@"]).run().expect(0);
        before.expect_same(&Tree::of(lab.tree()));
        let _ = kind.txos(&lab, &["gc", "--keep", "0"]).run().expect(0);
    }
}

/// In a container whose root directory is an overlay: what is on it is live, and that is said. A volume is versioned.
#[test]
fn on_an_overlay_changes_are_live_and_told_of() {
    let lab = Lab::new();
    require!(possible(), "no user namespaces without privilege here");
    let over = lab.dir().join("over");
    let base = lab.dir().join("base");
    for dir in [&over, &base] {
        std::fs::create_dir(dir).unwrap();
    }
    rustix::mount::mount("tmpfs", &base, "tmpfs", MountFlags::empty(), Some(c"mode=755")).unwrap();
    let of = |name: &str| {
        let dir = base.join(name);
        std::fs::create_dir_all(dir.join("d")).unwrap();
        dir.display().to_string()
    };
    let options = format!("lowerdir={},upperdir={},workdir={}", of("l"), of("u"), of("w"));
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount("overlay", &over, "overlay", MountFlags::empty(), Some(&*options))
        .unwrap();
    let file = over.join("d/file");
    for kind in KINDS {
        let script = format!("echo 1 > {}; echo 1 > versioned; exit 3", file.display());
        let done = kind.txos(&lab, &["run", "--", "sh", "-c", &script]).run().expect(3);
        let _ = done.says("takes effect at once").says("not rolled back");
        assert!(file.exists() && !lab.path("versioned").exists(), "{kind:?}");
        std::fs::remove_file(&file).unwrap();
        let strict = ["run", "--strict", "--", "sh", "-c", &script];
        let _ = kind.txos(&lab, &strict).run().expect(125).says("was stopped");
        assert!(!file.exists(), "{kind:?}");
        let scope = over.join("d").display().to_string();
        let done = kind
            .txos(&lab, &["run", "--view", "overlay", "--scope", &scope, "--", "true"])
            .run()
            .expect(125);
        let _ = done.says("is on an overlay file system");
    }
    for dir in [&over, &base] {
        rustix::mount::unmount(dir, UnmountFlags::DETACH).unwrap();
    }
}

/// What is not root's is out of reach in the view, and stays as it is.
#[test]
fn what_others_own_stays_theirs() {
    for kind in KINDS {
        let lab = Lab::new();
        require!(possible(), "no user namespaces without privilege here");
        let _ = lab.native(
            "mkdir -m 755 theirs; echo x > theirs/x; chmod 600 theirs/x; chown -R 4711:4711 theirs",
        );
        let before = Tree::of(lab.tree());
        for script in ["echo > theirs/x", "cat theirs/x", "rm theirs/x", "chown 0 theirs/x"] {
            let done = kind.script(&lab, &[], script).run();
            assert!(!matches!(done.code(), 0 | 125), "{kind:?} {script}: {done:?}");
        }
        before.expect_same(&Tree::of(lab.tree()));
    }
}

/// The private copies of one kind mean something else to the other: it is refused by name, before
/// anything is copied, and the one who began it goes on.
#[test]
fn no_kind_goes_on_with_anothers() {
    for kind in KINDS {
        let lab = Lab::new();
        require!(possible(), "no user namespaces without privilege here");
        let _ = lab.native("echo one > file; mkdir d; echo x > d/x");
        let script = "echo two > file; rm -r d; mkdir d; echo y > d/y";
        let machine = |args: &[&str]| lab.txos(args);
        let other = |args: &[&str]| kind.txos(&lab, args);
        let before = Tree::of(lab.tree());
        let refused = |run: &dyn Fn(&[&str]) -> Invocation, words: &str| {
            let files = Tree::of(lab.store().join("tx"));
            for args in [&["diff", "@"][..], &["commit", "@"], &["exec", "@", "--", "true"]] {
                let _ = run(args).run().expect(125).says(words);
            }
            before.expect_same(&Tree::of(lab.tree()));
            files.expect_same(&Tree::of(lab.store().join("tx")));
        };

        let _ = kind.script(&lab, &["--keep"], script).run().expect(0);
        refused(&machine, "root began in a user namespace, or without CAP_SYS_ADMIN");
        let _ = other(&["exec", "@", "--", "sh", "-c", "echo three >> file"]).run().expect(0);
        refused(&machine, "root began in a user namespace, or without CAP_SYS_ADMIN");
        let _ = other(&["commit", "@"]).run().expect(0);
        assert_eq!(lab.read("file"), "two\nthree\n");
        assert_eq!(lab.read("d/y"), "y\n");
        assert_eq!(overlay_traces(lab.tree()), [""; 0], "{kind:?}");

        let _ = lab.native("echo one > file; rm -r d; mkdir d; echo x > d/x");
        let before = Tree::of(lab.tree());
        let _ = lab.script(&["--keep"], script).run().expect(0);
        for args in [&["diff", "@"][..], &["commit", "@"], &["exec", "@", "--", "true"]] {
            let _ = other(args).run().expect(125).says("one that the machine's root began");
        }
        before.expect_same(&Tree::of(lab.tree()));
        let _ = machine(&["commit", "@"]).run().expect(0);
        assert_eq!(lab.read("file"), "two\n");

        // Nobody else's is discarded only.
        let _ = kind.script(&lab, &["--keep"], "echo four > file").run().expect(0);
        let _ = machine(&["abort", "@"]).run().expect(0);
        assert_eq!(lab.read("file"), "two\n");
    }
}

/// Owners are noted as numbers, which mean others in another user namespace: what was interrupted there is
/// recovered there.
#[test]
fn a_publish_is_recovered_where_it_was_made() {
    let lab = Lab::new();
    require!(possible(), "no user namespaces without privilege here");
    let _ = lab.native("for i in 1 2 3 4; do echo old > f$i; done");
    let script = "for i in 1 2 3 4; do echo new > t; mv t f$i; done";
    let count = lab.dir().join("count");
    let kind = Kind::Namespace;
    // Store and realm are made by the first.
    let _ = kind.script(&lab, &[], script).run().expect(0);
    let _ = kind.script(&lab, &[], script).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = txos_testkit::fault::steps_in(&count);
    let half = steps.iter().position(|step| step == "rename").expect("a publish") + 2;
    let _ = lab.native("for i in 1 2 3 4; do echo old > f$i; done");
    let fault = format!("kill@{half}");
    let done = kind.script(&lab, &[], script).env("TXOS_FAULT", fault).run();
    assert!(done.killed(), "{done:?}");
    let _ = lab.txos(["recover"]).run().expect(125).says("of another user namespace");
    let _ = kind.txos(&lab, &["recover"]).run().expect(0);
    let found: Vec<String> = (1..=4).map(|i| lab.read(&format!("f{i}"))).collect();
    assert!(found.iter().all(|text| text == "old\n"), "{found:?}");
    let _ = lab.txos(["recover"]).run().expect(0);
}

/// The machine root's store is not a user's who has made itself root of a namespace.
#[test]
fn a_users_namespace_uses_the_users_place() {
    let lab = Lab::new();
    let user = User::new();
    require!(possible(), "no user namespaces without privilege here");
    std::os::unix::fs::chown(lab.tree(), Some(user.uid), Some(user.gid)).unwrap();
    let txos = lab.dir().join("txos");
    txos_testkit::process::copy_program(binary::txos(), &txos);
    let run = |script: &str| {
        let inner = format!("unshare -Ur {} {script}", txos.display());
        user.runs(Invocation::shell(inner).dir(lab.tree()))
            .without_env("TXOS_STORE")
            .without_env("TXOS_REALM")
            .run()
    };
    let _ = run("run --scope . -- sh -c 'id -u > made'").expect(0);
    assert_eq!(lab.read("made"), "0\n");
    assert!(user.home.join(".local/state/txos/format").exists());
    let doctor = run("doctor");
    assert!(doctor.text().contains("/.local/state/txos"), "{doctor:?}");
    assert!(!Path::new("/dev/shm/txos-0").exists());
}

/// `doctor` says which root this is; a refusal names what is missing.
#[test]
fn the_cause_is_named() {
    let lab = Lab::new();
    require!(possible(), "no user namespaces without privilege here");
    let cases = [
        (Kind::Namespace, "root in a user namespace only, not the machine's root"),
        (Kind::Docker, "root without the capability CAP_SYS_ADMIN"),
    ];
    for (kind, words) in cases {
        let done = kind.txos(&lab, &["doctor"]).run();
        assert!(done.text().contains(words), "{done:?}");
        assert!(done.text().contains("user namespaces"), "{done:?}");
        assert!(!done.text().contains("root gate"), "{done:?}");
    }
    let done = lab.txos(["doctor"]).run();
    assert!(!done.text().contains("as an ordinary user's do"), "{done:?}");

    let scope = lab.tree().display().to_string();
    let none = |capabilities: &[&str]| {
        with_capabilities(capabilities)
            .arg(binary::txos())
            .args(["run", "--scope", &scope, "--", "true"])
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
            .run()
    };
    let _ = none(&[]).expect(125).says("CAP_SETFCAP").says("nothing changed");
}
