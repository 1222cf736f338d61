//! File systems: which of them each front door versions. Those that a transaction has nothing to do with may come
//! and go, and nothing is left on them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use txos_testkit::image::Image;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Lab, Rendezvous, require_some};

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

/// Where others could put something in a store's place there is none: that is said when a command changes something
/// there, not whenever one runs.
#[test]
fn a_mount_that_can_hold_no_store_is_told_of_when_it_matters() {
    let lab = Lab::in_memory();
    let open = lab.dir().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let below = mount(&lab, "open/below");
    let _ = lab.whole(&[], "echo 1 > f").run().expect(0).says_not("warning");
    let script = format!("echo 2 > f; echo 2 > {}/file; exit 3", below.display());
    let done = lab.whole(&[], &script).run().expect(3);
    let _ = done.says("takes effect at once").says("not rolled back");
    assert_eq!(lab.read("f"), "1\n");
    assert_eq!(std::fs::read_to_string(below.join("file")).unwrap(), "2\n");
    unmount(&below);
    lab.expect_clean();
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

/// The front doors: a command, and a program's transaction around the same.
const DOORS: [&[&str]; 2] = [&[], &["--in-process"]];

/// Whether what a transaction makes in a directory is gone when it fails. When it commits it is there.
fn versions(lab: &Lab, door: &[&str], dir: &Path) -> bool {
    let file = dir.join(format!("txos-scope-{}", std::process::id()));
    let make = format!("echo new > {}", file.display());
    let _ = lab.whole(door, &make).run().expect(0);
    assert!(file.exists(), "{door:?} {}", dir.display());
    std::fs::remove_file(&file).unwrap();
    let done = lab.whole(door, &format!("{make}; exit 1")).run().expect(1);
    let left = file.exists();
    if left {
        std::fs::remove_file(&file).unwrap();
        assert!(!done.stderr.contains("nothing changed"), "{done:?}");
    }
    !left
}

#[test]
fn both_doors_version_the_same_kinds_of_file_systems() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let lab = Lab::in_memory();
        let image = require_some!(Image::mount(&lab, kind, 300, kind), "no {kind} here");
        for door in DOORS {
            assert!(versions(&lab, door, &image.point), "{door:?} {kind}");
        }
    }
    let lab = Lab::in_memory();
    let memory = mount(&lab, "memory");
    let other = lab.dir().join("other");
    std::fs::create_dir(&other).unwrap();
    rustix::mount::mount("ramfs", &other, "ramfs", MountFlags::empty(), None).unwrap();
    for door in DOORS {
        assert!(versions(&lab, door, lab.tree()), "{door:?}");
        assert!(versions(&lab, door, &memory), "{door:?} tmpfs");
        assert!(!versions(&lab, door, &other), "{door:?} ramfs");
    }
    unmount(&other);
}

/// Whatever file system they are on.
#[test]
fn both_doors_leave_the_state_of_the_running_system_live() {
    let lab = Lab::in_memory();
    for door in DOORS {
        for dir in ["/run", "/dev/shm"] {
            assert!(!versions(&lab, door, Path::new(dir)), "{door:?} {dir}");
        }
        let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let file = format!("/proc/{}/coredump_filter", sleeper.id());
        let _ = lab.whole(door, &format!("echo 0x11 > {file}; exit 1")).run().expect(1);
        let now = std::fs::read_to_string(&file).unwrap();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(now.trim(), "00000011", "{door:?}");
    }
}
