//! A user makes a store and a journal to his liking, and waits for root to work on it.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Tree, binary};

/// Root works on root's store, whatever the environment says that sudo may have kept; a user's, named,
/// is refused before anything in it is read.
#[test]
fn root_does_not_work_on_a_users_store() {
    let lab = Lab::new();
    let user = User::new();
    std::os::unix::fs::chown(lab.tree(), Some(user.uid), Some(user.gid)).unwrap();
    let txos = lab.dir().join("txos");
    txos_testkit::process::copy_program(binary::txos(), &txos);
    let as_user = |script: &str| {
        user.runs(Invocation::shell(script.replace("txos", txos.to_str().unwrap())).dir(lab.tree()))
    };
    let possible = as_user("unshare -Ur true").run().code() == 0;
    txos_testkit::require!(possible, "no user namespaces for ordinary users here");
    let _ = as_user("for i in 1 2 3 4; do echo old > f$i; done").run().expect(0);
    // A publish that was killed in the middle, which recovery would have to undo.
    let scope = lab.tree().display().to_string();
    let store = user.home.join(".local/state/txos");
    let mut killed = false;
    for step in 1..200 {
        let run = user.runs(
            Invocation::new(&txos).dir(lab.tree()).env("TXOS_FAULT", format!("kill@{step}")).args(
                [
                    "run",
                    "--scope",
                    &scope,
                    "--",
                    "sh",
                    "-c",
                    "for i in 1 2 3 4; do echo new > f$i; done",
                ],
            ),
        );
        let _ = run.run();
        let read = |n: u32| lab.read(&format!("f{n}"));
        if (2..=4).any(|n| read(n) != read(1)) {
            killed = true;
            break;
        }
    }
    assert!(killed, "no publish was stopped half done");
    let (tree, theirs) = (Tree::of(lab.tree()), Tree::of(&store));
    let commands = [
        &["recover"][..],
        &["gc"],
        &["status"],
        &["list"],
        &["log"],
        &["doctor"],
        &["gc", "--keep", "0"],
    ];
    for command in commands {
        for named in [true, false] {
            let root = lab.txos(command);
            let root = if named {
                root.env("TXOS_STORE", &store)
            } else {
                root.env("HOME", &user.home).env("XDG_STATE_HOME", user.home.join(".local/state"))
            };
            let done = root.run();
            if named && command != ["doctor"] {
                assert!(
                    done.code() != 0 && done.stderr.contains("can't be trusted"),
                    "{command:?}: {done:?}"
                );
            }
            tree.expect_same(&Tree::of(lab.tree()));
            theirs.expect_same(&Tree::of(&store));
        }
    }
    // Nor if it is hidden behind a link of root's, or of the user's.
    let link = lab.dir().join("link");
    std::os::unix::fs::symlink(&store, &link).unwrap();
    let _ = lab.txos(["recover"]).env("TXOS_STORE", &link).run().expect(125);
    tree.expect_same(&Tree::of(lab.tree()));
    theirs.expect_same(&Tree::of(&store));
    // The user's own recovery puts it right.
    let _ = as_user("txos recover").run().expect(0);
    assert!((2..=4).all(|n| lab.read(&format!("f{n}")) == lab.read("f1")));
    let _ = as_user("txos gc").run().expect(0);
}

/// Nobody else can look into a store, or write to it.
#[test]
fn a_store_is_its_owners_alone() {
    let lab = Lab::in_memory();
    let _ = lab.script(&["--keep"], "echo secret > file").run().expect(0);
    for store in [lab.store().to_owned(), lab.realm().to_owned()] {
        let meta = store.metadata().unwrap();
        assert_eq!((meta.uid(), meta.permissions().mode() & 0o7777), (0, 0o700), "{store:?}");
    }
    let look = format!("ls {0} || cat {0}/journal || touch {0}/new", lab.store().display());
    let stranger = Invocation::shell(look).user(crate::STRANGER, crate::STRANGER).run();
    assert!(stranger.code() != 0 && stranger.text().is_empty(), "{stranger:?}");
    // Opened to others, it is not used any more.
    for mode in [0o770, 0o707, 0o777] {
        std::fs::set_permissions(lab.store(), std::fs::Permissions::from_mode(mode)).unwrap();
        let done = lab.txos(["commit", "@"]).run().expect(125);
        assert!(done.stderr.contains("can't be trusted"), "{done:?}");
    }
    std::fs::set_permissions(lab.store(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert_eq!(lab.read("file"), "secret\n");
}
