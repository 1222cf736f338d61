//! A command in a transaction that wants more than it may.

use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Tree, binary};

use crate::{STRANGER, Scene};

/// In an ordinary user's transaction a set-user-id program gives no rights: it runs in a user namespace
/// in which nobody but the user exists.
#[test]
fn a_users_transaction_gains_nothing_by_set_user_id() {
    let lab = Lab::new();
    let user = User::new();
    let txos = lab.dir().join("txos");
    txos_testkit::process::copy_program(binary::txos(), &txos);
    let _ = lab.native("cp /usr/bin/id id; chmod 4755 id; mkdir mine; echo secret > secret; chmod 600 secret; cp /bin/cat cat; chmod 4755 cat");
    std::os::unix::fs::chown(lab.path("mine"), Some(user.uid), Some(user.gid)).unwrap();
    let possible = user.runs(Invocation::shell("unshare -Ur true")).run().code() == 0;
    txos_testkit::require!(possible, "no user namespaces for ordinary users here");
    let runs = |script: &str| {
        let scope = lab.tree().to_str().unwrap();
        let run = Invocation::new(&txos).args(["run", "--scope", scope, "--", "sh", "-c", script]);
        user.runs(run.dir(lab.tree())).run()
    };
    // It does, outside.
    let outside = user.runs(Invocation::shell("./id -u").dir(lab.tree())).run().expect(0);
    assert_eq!(outside.text(), "0\n");
    let inside = runs("./id -u; ./id -ru").expect(0);
    assert_eq!(inside.text(), format!("{0}\n{0}\n", user.uid));
    let inside = runs("./cat secret; echo > mine/done");
    assert!(!inside.text().contains("secret"), "{inside:?}");
    // And what it makes set-user-id is the user's own.
    let _ = runs("cp /usr/bin/id mine/id; chmod 4755 mine/id").expect(0);
    let made = std::fs::metadata(lab.path("mine/id")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), user.uid);
}

/// A user's program writes to another's set-user-id file, which only its owner can take the bits from: the kernel
/// does, when it is written. The commit does not fail half done for it, nor does recovery. (A command can't open
/// such a file in a user's transaction: docs/limits.md.)
#[test]
fn who_writes_to_anothers_set_user_id_file_does_not_wedge_the_store() {
    let lab = Lab::new();
    let user = User::new();
    let _ = lab.native("chmod 755 ..");
    let txos = lab.dir().join("txos");
    txos_testkit::process::copy_program(binary::txos(), &txos);
    let library = "libtxos.so";
    std::fs::copy(binary::txos().with_file_name(library), lab.dir().join(library)).unwrap();
    let change = "open(F, '>>', 'F') or die; print F \"x\\n\"; close F or die;
        open(M, '>', 'mine/f') or die; print M \"mine\\n\"; close M or die";
    let prepare = "rm -rf F G mine; echo old > F; ln F G; chmod 4777 F; mkdir -m 777 mine";
    let run = || {
        let run = Invocation::new(&txos).args(["run", "--in-process", "--", "perl", "-e", change]);
        user.runs(run.dir(lab.tree()))
    };
    let looks = || {
        let mode = std::os::unix::fs::MetadataExt::mode(&lab.path("G").metadata().unwrap());
        (lab.read("F"), mode & 0o7777, lab.path("mine/f").exists())
    };
    let _ = lab.native(prepare);
    let _ = run().run().expect(0);
    // As natively.
    let after = ("old\nx\n".to_owned(), 0o777, true);
    assert_eq!(looks(), after);
    for step in (1..60).step_by(7) {
        let _ = lab.native(prepare);
        drop(run().env("TXOS_FAULT", format!("kill@{step}")).run());
        let recover = Invocation::new(&txos).arg("recover").dir(lab.tree());
        let _ = user.runs(recover).run().expect(0);
        let (content, _, made) = looks();
        assert_eq!(made, content == after.0, "{step}: {content:?}");
    }
    let _ = lab.native(prepare);
    let _ = run().run().expect(0);
    assert_eq!(looks(), after);
}

/// A program with more rights than who started it does not let that one choose where it writes.
#[test]
fn what_is_set_user_id_takes_no_store_from_its_environment() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let txos = lab.dir().join("txos");
    txos_testkit::process::copy_program(binary::txos(), &txos);
    rustix::fs::chmod(&txos, rustix::fs::Mode::from_raw_mode(0o4755)).unwrap();
    let store = lab.path("theirs/store").display().to_string();
    let realm = lab.path("theirs/realm").display().to_string();
    let looked_at = |user: u32| {
        let doctor = Invocation::new(&txos).arg("doctor").env("TXOS_STORE", &store);
        doctor.env("TXOS_REALM", &realm).user(user, user).run().text()
    };
    let (theirs, roots) = (looked_at(STRANGER), looked_at(0));
    assert!(!theirs.contains(&store) && !theirs.contains(&realm), "{theirs}");
    assert!(theirs.contains("/var/lib/txos"), "{theirs}");
    // Root's own environment counts.
    assert!(roots.contains(&store) && roots.contains(&realm), "{roots}");
}

/// Somebody else's process in root's transaction has no more rights than outside: not to the store, not
/// to the processes that keep the transaction.
#[test]
fn another_users_process_in_roots_transaction_reaches_nothing() {
    let lab = Lab::in_memory();
    let store = lab.store().display().to_string();
    let _ = lab.native("echo old > file; mkdir theirs");
    std::os::unix::fs::chown(lab.path("theirs"), Some(STRANGER), Some(STRANGER)).unwrap();
    let tries = format!(
        "for f in {store}/journal {store}/tx; do ls $f 2>/dev/null && echo reached $f; done
        p=$$; while [ $p -gt 1 ]; do
            if [ $(stat -c %u /proc/$p) = 0 ]; then
                ls /proc/$p/fd/ 2>/dev/null && echo reached fd of $p
                ls /proc/$p/root/ 2>/dev/null && echo reached root of $p
                ls /proc/$p/cwd/ 2>/dev/null && echo reached cwd of $p
                kill -STOP $p 2>/dev/null && echo stopped $p
                head -c 1 /proc/$p/mem 2>/dev/null && echo read $p
            fi
            p=$(sed 's/.*) . \\([0-9]*\\) .*/\\1/' /proc/$p/stat 2>/dev/null || echo 0)
        done
        mount --bind /etc theirs 2>/dev/null && echo mounted
        echo evil > file 2>/dev/null && echo wrote
        setfattr -n trusted.overlay.opaque -v y theirs 2>/dev/null && echo marked
        echo fine > theirs/made; echo end"
    );
    let script =
        format!("setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups sh theirs/try");
    for view in crate::VIEWS {
        // What has other rights is no part of a transaction in the library's view: there it is a copy without.
        let _ = lab.native("rm -f theirs/made; cp /usr/bin/mount ../mount; chmod 755 ../mount");
        let mount = if view[1] == "library" { "../mount" } else { "mount" };
        let tries = tries.replace("mount --bind", &format!("{mount} --bind"));
        std::fs::write(lab.path("theirs/try"), tries).unwrap();
        let done = lab.script(&view, &script).run().expect(0);
        assert_eq!(done.text(), "end\n", "{view:?}: {done:?}");
        assert_eq!((lab.read("file"), lab.read("theirs/made")), ("old\n".into(), "fine\n".into()));
    }
}

/// Marks of overlayfs that a command makes in its view stay what they are: attributes and devices like
/// others, or refused. None is acted on, none leads out.
#[test]
fn marks_of_overlayfs_made_in_the_view_mean_nothing() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let secret = scene.secret();
    let _ = lab.native("mkdir -p d/e; echo f > d/e/f; echo g > g");
    let script = "
        for n in trusted user; do
            setfattr -n $n.overlay.redirect -v ../../../secret d
            setfattr -n $n.overlay.opaque -v y d/e
            setfattr -n $n.overlay.metacopy g
            setfattr -n $n.overlay.origin -v 0x00fb g
            setfattr -n $n.overlay.whiteout g
            mkdir -p new; setfattr -n $n.overlay.redirect -v /../../secret new
        done 2>/dev/null
        mknod g.white c 0 0 2>/dev/null
        mkdir d/sub; touch new/x; exit 0";
    let _ = lab.script(&[], script).run().expect(0);
    secret.expect_same(&scene.secret());
    assert_eq!((lab.read("d/e/f"), lab.read("g")), ("f\n".into(), "g\n".into()));
    assert!(lab.path("d/sub").is_dir() && lab.path("new/x").is_file());
    // Again, on top of what is there now.
    let _ = lab.script(&[], "mv d moved; echo more >> moved/e/f; rm -r new").run().expect(0);
    assert_eq!(lab.read("moved/e/f"), "f\nmore\n");
    secret.expect_same(&scene.secret());
}

/// Marks written straight into the private copies, by whoever could: the commit takes none for a way
/// out of the tree.
#[test]
fn forged_private_copies_lead_nowhere() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let _ = lab.native("mkdir -p d/e; echo f > d/e/f; echo g > g");
    let secret = scene.secret();
    let forgeries = [
        "setfattr -n trusted.overlay.redirect -v ../../secret d",
        "setfattr -n trusted.overlay.redirect -v /../secret d",
        "setfattr -n trusted.overlay.redirect -v .. d",
        "setfattr -n trusted.overlay.redirect -v / d",
        "setfattr -n trusted.overlay.redirect -v '' d",
        "setfattr -n trusted.overlay.redirect -v d/e new",
        "setfattr -n trusted.overlay.redirect -v ../tree/d new/in; setfattr -n trusted.overlay.impure -v y new",
        "setfattr -n trusted.overlay.redirect -v /d new/in; setfattr -n trusted.overlay.impure -v y new",
        "setfattr -n trusted.overlay.opaque -v x d",
        "setfattr -n trusted.overlay.metacopy g; setfattr -n trusted.overlay.redirect -v /../secret/file g",
        "setfattr -n trusted.overlay.origin -v 0x00fb21000101 g",
        "rm g; mknod g c 0 0; rm -r d; mknod d c 0 0",
        "rm -rf d; ln -s ../../../../../../secret d",
        "rm -rf new; ln -s /etc new; ln g g2; ln g d/g3",
        "mknod dev b 7 99; mkfifo pipe",
    ];
    for forgery in forgeries {
        println!("{forgery}");
        let script = "mkdir -p d/made new/in; echo x >> d/e/f; echo x >> g; echo x > new/x";
        let _ = lab.script(&["--keep"], script).run().expect(0);
        let upper = lab.store().join("tx").join(lab.newest()).join("l0/upper");
        let _ = Invocation::shell(format!("set -e; {forgery}")).dir(&upper).run().expect(0);
        let _ = lab.txos(["diff", "@"]).run();
        let done = lab.txos(["commit", "@"]).run();
        assert!(matches!(done.code(), 0 | 75 | 125), "{forgery}: {done:?}");
        assert!(!done.stderr.contains("panicked"), "{forgery}: {done:?}");
        secret.expect_same(&scene.secret());
        let _ = lab.txos(["abort", "@"]).run();
        let _ = lab.txos(["recover"]).run().expect(0);
        let _ = lab.native("rm -rf ./*; mkdir -p d/e theirs; echo f > d/e/f; echo g > g");
        drop(Tree::of(lab.tree()));
    }
    let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
    secret.expect_same(&scene.secret());
}
