//! A user fills the file system that root's store or realm is on.

use rustix::mount::MountFlags;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Tree};

use crate::STRANGER;

/// Everything that is free in a directory, as the stranger.
fn fill(dir: &std::path::Path) {
    let all =
        "cat /dev/zero > full 2>/dev/null; while echo x >> rest; do :; done 2>/dev/null; true";
    let _ = Invocation::shell(all).dir(dir).user(STRANGER, STRANGER).run().expect(0);
}

/// A tmpfs at this place that all can write.
fn small(at: &std::path::Path, data: &std::ffi::CStr) {
    rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(data)).unwrap();
}

/// A run, a commit, a revert, and recovery on a file system that is full: refused by name, and nothing half
/// done; all of them work once there is room.
#[test]
fn a_full_store_is_named_and_nothing_is_half_done() {
    let lab = Lab::in_memory();
    let place = lab.dir().join("small");
    std::fs::create_dir(&place).unwrap();
    small(&place, c"mode=1777,size=8m,nr_inodes=4k");
    let lab = lab.at(&place);
    let _ = lab.native("echo old > file; mkdir -p d/e; echo old > d/e/f; echo gone > gone");
    let change = "echo new > file; echo new > d/e/f; rm gone; mkdir -p n/m; echo made > n/m/made";
    let _ = lab.script(&["--keep"], change).run().expect(0);
    let before = Tree::of(lab.tree());
    fill(&place);
    let run = lab.script(&[], change).run();
    // There may be room for what needs no page.
    assert!(matches!(run.code(), 0 | 1 | 2 | 125), "{run:?}");
    assert!(run.code() == 0 || run.stderr.contains("space"), "{run:?}");
    if run.code() != 0 {
        before.expect_same(&Tree::of(lab.tree()));
    }
    let commit = lab.txos(["commit", "@"]).run();
    assert!(matches!(commit.code(), 0 | 75 | 125), "{commit:?}");
    assert!(commit.code() != 125 || commit.stderr.contains("space"), "{commit:?}");
    if run.code() != 0 && commit.code() != 0 {
        before.expect_same(&Tree::of(lab.tree()));
    }
    for command in [&["recover"][..], &["status"], &["list"], &["gc"]] {
        let done = lab.txos(command).run();
        assert!(!done.stderr.contains("panicked") && !done.killed(), "{done:?}");
    }
    let _ = lab.native("rm -f ../full ../rest");
    let _ = lab.txos(["recover"]).run().expect(0);
    if commit.code() == 125 {
        let _ = lab.txos(["commit", "@"]).run().expect(0);
    }
    let after = lab.native("cat file d/e/f n/m/made; [ ! -e gone ]").text();
    if matches!(commit.code(), 0 | 125) {
        assert_eq!(after, "new\nnew\nmade\n");
    }
    let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
}

/// Root's realm is to be where nothing is free: root's transactions run, without a realm if need be.
#[test]
fn a_full_place_of_the_realm_stops_nobody() {
    let lab = Lab::in_memory();
    crate::without_run();
    for (n, data) in [c"mode=1777,size=64k", c"mode=1777,size=1m", c"mode=1777,nr_inodes=2"]
        .into_iter()
        .enumerate()
    {
        small("/dev/shm".as_ref(), data);
        fill("/dev/shm".as_ref());
        let run = |what: &str| lab.script(&[], what).without_env("TXOS_REALM").run();
        let first = run(&format!("echo {n} > file")).expect(0);
        assert_eq!(lab.read("file"), format!("{n}\n"), "{first:?}");
        // And beside another one.
        let mut meeting = txos_testkit::Rendezvous::new();
        let script = format!("cat file; {}; echo {n} > other", txos_testkit::rendezvous::PAUSE);
        let paused = lab.script(&[], &script).without_env("TXOS_REALM");
        let paused = paused.meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let _ = run("echo beside > beside").expect(0);
        meeting.go();
        let _ = paused.wait().expect(0);
        assert_eq!(lab.read("other"), format!("{n}\n"));
        // Filled after it was made.
        let _ = lab.native("rm -rf /dev/shm/full /dev/shm/rest");
        let _ = run("echo free > file").expect(0);
        fill("/dev/shm".as_ref());
        let _ = run(&format!("echo again{n} > file")).expect(0);
        assert_eq!(lab.read("file"), format!("again{n}\n"));
        until("it is unmounted", || {
            rustix::mount::unmount("/dev/shm", rustix::mount::UnmountFlags::DETACH).is_ok()
        });
    }
}
