//! Things planted where root's stores would be: in a directory that everybody can write.

use rustix::mount::MountFlags;
use txos_testkit::{Invocation, Lab, Tree};

use crate::{STRANGER, Scene};

/// What may be at the place of a store, made by a stranger; `$secret` is a directory of root's.
const PLANTS: [(&str, &str); 11] = [
    ("a store whose format is a pipe", "mkdir .txos; mkfifo .txos/format"),
    ("a pipe", "mkfifo .txos"),
    ("a file", "echo 'txos-store 1' > .txos"),
    ("a link to a directory of root's", "ln -s $secret .txos"),
    ("a link to an empty directory of root's", "ln -s $empty .txos"),
    ("a link to nothing", "ln -s $secret/new .txos"),
    ("a link to itself", "ln -s .txos .txos"),
    ("a store", "mkdir .txos; echo 'txos-store 1' > .txos/format; mkdir .txos/tx .txos/trash"),
    (
        "a store of links",
        "mkdir .txos; echo 'txos-store 1' > .txos/format; ln -s $secret .txos/tx; ln -s $secret .txos/trash",
    ),
    ("a store open to all", "mkdir -m 777 .txos; ln -s $secret/file .txos/format"),
    ("a store without an end", "mkdir .txos; ln -s /dev/zero .txos/format"),
];

#[test]
fn what_is_planted_at_the_place_of_a_store_is_refused() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let shared = lab.path("shared");
    let top = lab.tree().parent().unwrap().to_owned();
    std::fs::create_dir(&shared).unwrap();
    std::fs::create_dir(top.join("empty")).unwrap();
    let flags = MountFlags::empty();
    rustix::mount::mount("tmpfs", &shared, "tmpfs", flags, Some(c"mode=1777")).unwrap();
    let _ = lab.native("echo old > file; echo old > shared/file");
    let (secret, empty) = (scene.secret(), Tree::of(top.join("empty")));
    for (n, (what, script)) in PLANTS.iter().enumerate() {
        println!("{what}");
        let secret_at = top.join("secret").display().to_string();
        let empty_at = top.join("empty").display().to_string();
        scene.plant(&format!("secret={secret_at} empty={empty_at}; cd ../shared; {script}"));
        let planted = Tree::of(&shared);
        // Where it can be left out, it is; where it was asked for, it is refused by name.
        let _ = lab.script(&[], &format!("echo {n} > file")).run().expect(0);
        assert_eq!(lab.read("file"), format!("{n}\n"));
        let only = lab.txos(["run", "--scope"]).arg(&shared);
        let only = only.args(["--", "sh", "-c", "echo new > shared/file"]).run().expect(125);
        assert!(only.stderr.contains(".txos"), "{what}: {only:?}");
        for command in [&["status"][..], &["doctor"], &["recover"], &["gc"]] {
            let done = lab.txos(command).run();
            assert!(matches!(done.code(), 0 | 1), "{what}: {done:?}");
        }
        planted.expect_same(&Tree::of(&shared));
        secret.expect_same(&scene.secret());
        empty.expect_same(&Tree::of(top.join("empty")));
        scene.plant("rm -rf ../shared/.txos");
    }
    let _ = lab.script(&[], "echo all > shared/file").run().expect(0);
    assert_eq!(lab.read("shared/file"), "all\n");
    lab.expect_clean();
}

/// A store of root's that was there, and is not there now: its file system is not mounted, and in the
/// directory below somebody has put something else.
#[test]
fn what_is_planted_under_an_unmounted_store_is_left_alone() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let shared = lab.path("shared");
    std::fs::create_dir(&shared).unwrap();
    rustix::fs::chmod(&shared, rustix::fs::Mode::from_raw_mode(0o1777)).unwrap();
    let flags = MountFlags::empty();
    rustix::mount::mount("tmpfs", &shared, "tmpfs", flags, Some(c"mode=1777")).unwrap();
    let _ = lab.script(&["--keep"], "echo new > file; echo new > shared/file").run().expect(0);
    let id = lab.newest();
    rustix::mount::unmount(&shared, rustix::mount::UnmountFlags::DETACH).unwrap();
    let secret_at = lab.tree().parent().unwrap().join("secret").display().to_string();
    scene.plant(&format!(
        "cd ../shared; mkdir .txos; echo 'txos-store 1' > .txos/format
        mkdir -p .txos/tx/{id}/l0/upper .txos/tx/{id}/l1/upper; echo evil > .txos/tx/{id}/l1/upper/file
        ln -s {secret_at} .txos/trash"
    ));
    let (planted, secret) = (Tree::of(&shared), scene.secret());
    let commit = lab.txos(["commit", "@"]).run();
    assert!(commit.code() != 0, "{commit:?}");
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    let _ = lab.txos(["gc"]).run().expect(0);
    planted.expect_same(&Tree::of(&shared));
    secret.expect_same(&scene.secret());
    assert!(!lab.path("file").exists() && !lab.path("shared/file").exists());
}

/// A mount below a directory of a stranger's: he could put another directory in its place.
#[test]
fn no_store_is_made_below_a_directory_of_a_strangers() {
    let scene = Scene::new();
    let lab = &scene.lab;
    scene.plant("mkdir -p mine/mnt");
    let point = lab.path("theirs/mine/mnt");
    rustix::mount::mount("tmpfs", &point, "tmpfs", MountFlags::empty(), Some(c"mode=755")).unwrap();
    let done = lab.txos(["run", "--scope"]).arg(&point);
    let done = done.args(["--", "sh", "-c", "echo new > theirs/mine/mnt/file"]).run().expect(125);
    assert!(done.stderr.contains("can't hold a store"), "{done:?}");
    assert_eq!(std::fs::read_dir(&point).unwrap().count(), 0);
    // With the directory above in scope it is left as it is, live.
    let _ = lab.script(&[], "echo new > file").run().expect(0);
    assert_eq!(std::fs::read_dir(&point).unwrap().count(), 0);
    assert_eq!(
        STRANGER,
        std::os::unix::fs::MetadataExt::uid(&lab.path("theirs").metadata().unwrap())
    );
}

/// A stranger was first at the place of root's realm: root meets nobody there, and commits what is right.
#[test]
fn what_is_planted_at_the_place_of_a_realm_is_not_used() {
    let lab = Lab::in_memory();
    crate::without_run();
    rustix::mount::mount("tmpfs", "/dev/shm", "tmpfs", MountFlags::empty(), Some(c"mode=1777"))
        .unwrap();
    let plants = [
        "mkdir -m 777 /dev/shm/txos-0",
        "mkdir /dev/shm/mine; ln -s mine /dev/shm/txos-0",
        "echo planted > /dev/shm/txos-0",
        "mkdir -m 700 /dev/shm/txos-0",
        "mkfifo -m 666 /dev/shm/txos-0",
        "ln -s /dev/zero /dev/shm/txos-0",
        "ln -s txos-0 /dev/shm/txos-0",
        "mkdir -m 777 /dev/shm/txos-0; mkfifo -m 666 /dev/shm/txos-0/realm /dev/shm/txos-0/lock",
    ];
    for plant in plants {
        let _ = Invocation::shell(plant).user(STRANGER, STRANGER).run().expect(0);
        let before = Tree::of("/dev/shm");
        let run = lab.script(&[], "echo done > made").without_env("TXOS_REALM").run().expect(0);
        assert!(!run.stderr.contains("panicked"), "{plant}: {run:?}");
        assert_eq!(lab.read("made"), "done\n");
        before.expect_same(&Tree::of("/dev/shm"));
        let _ = lab.native("rm -r /dev/shm/* made");
    }
}
