//! File systems that a transaction has nothing to do with: they may come and go, and nothing is left on
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Lab, Rendezvous};

/// Mounts a file system in the lab, which goes with it.
fn mount(lab: &Lab, name: &str) -> PathBuf {
    let point = lab.dir().join(name);
    std::fs::create_dir(&point).unwrap();
    rustix::mount::mount("tmpfs", &point, "tmpfs", MountFlags::empty(), Some(c"mode=755")).unwrap();
    std::fs::write(point.join("file"), "there\n").unwrap();
    point
}

fn unmount(point: &Path) {
    rustix::mount::unmount(point, UnmountFlags::empty()).unwrap();
}

/// What a side store holds in one of its directories.
fn names(point: &Path, dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(point.join(".txos").join(dir)).into_iter().flatten();
    entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Waits until a side store holds nothing: trash may be emptied in the background.
fn expect_empty(point: &Path) {
    assert!(names(point, "tx").is_empty(), "{:?}", names(point, "tx"));
    until("the trash is empty", || names(point, "trash").is_empty());
}

#[test]
fn an_unrelated_unmount_is_no_conflict() {
    for options in [&[][..], &["--keep"]] {
        let lab = Lab::in_memory();
        let other = mount(&lab, "other");
        let mut meeting = Rendezvous::new();
        let script = format!("echo x > f; {PAUSE}");
        let running = lab.whole(options, &script).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        unmount(&other);
        meeting.go();
        let _ = running.wait().expect(0);
        if !options.is_empty() {
            let _ = lab.txos(["commit", "@"]).run().expect(0);
        }
        assert_eq!(lab.read("f"), "x\n");
        lab.expect_clean();
    }
}

/// What was seen of it, or changed in it, counts.
#[test]
fn an_unmount_of_what_was_used_is_a_conflict() {
    for script in ["cat ../other/file", "echo more >> ../other/file"] {
        let lab = Lab::in_memory();
        let other = mount(&lab, "other");
        let mut meeting = Rendezvous::new();
        let script = format!("{script}; echo x > f; {PAUSE}");
        let running = lab.whole(&[], &script).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        unmount(&other);
        meeting.go();
        let done = running.wait();
        assert_ne!(done.code(), 0, "{done:?}");
        assert!(!lab.path("f").exists(), "{done:?}");
    }
}

#[test]
fn nothing_is_left_where_nothing_was_touched() {
    let lab = Lab::in_memory();
    let (used, unused) = (mount(&lab, "used"), mount(&lab, "unused"));
    let _ = lab.whole(&[], "echo x > f; echo new > ../used/file").run().expect(0);
    assert_eq!(names(&used, "tx"), [lab.newest()]);
    expect_empty(&unused);
    // What is retained of the others works.
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert_eq!(std::fs::read_to_string(used.join("file")).unwrap(), "there\n");
    expect_empty(&unused);
    let _ = lab.whole(&[], "echo x > f; exit 1").run().expect(1);
    expect_empty(&unused);
    // Killed, and cleaned up.
    let before = names(&used, "tx").len();
    let mut meeting = Rendezvous::new();
    let script = format!("echo x > f; {PAUSE}");
    let running = lab.whole(&[], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    assert_eq!(names(&unused, "tx").len(), 1, "while it runs there is something");
    running.signal(Signal::KILL);
    assert!(running.wait().killed());
    until("gc leaves nothing", || {
        let _ = lab.txos(["gc"]).run().expect(0);
        names(&unused, "tx").is_empty() && names(&used, "tx").len() == before
    });
    expect_empty(&unused);
    lab.expect_clean();
}
