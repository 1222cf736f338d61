//! The way to a file: each directory on it is looked at once, and what becomes of it is found.

use std::path::Path;

use txos_testkit::{Invocation, Lab, require, skip};

use crate::program::{Linked, program};

/// A user to whom modes mean something: nobody has this number.
const USER: u32 = 64_323;

fn way(lab: &Lab, words: &[&str]) -> Invocation {
    let place = lab.path("tree");
    Invocation::new(program("way", Linked::WithLibrary))
        .args(words)
        .arg(place)
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
}

fn lab() -> Lab {
    let lab = Lab::in_memory();
    std::fs::create_dir(lab.path("tree")).unwrap();
    lab
}

/// All system calls of a process.
fn calls(depth: usize, rounds: usize, looks: usize) -> usize {
    let lab = lab();
    let counts = lab.path("counts");
    let words = [depth, rounds, looks].map(|n| n.to_string());
    // Where the program's memory lies must not be chance: its pages are asked about once, unless too many
    // of them have one place in what the thread keeps in mind.
    let _ = Invocation::new("setarch")
        .args(["-R", "strace"])
        .args(["-f", "-qq", "-c", "-U", "name,calls", "-o"])
        .arg(&counts)
        .arg(program("way", Linked::WithLibrary))
        .arg("count")
        .arg(lab.path("tree"))
        .args(words)
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .run()
        .expect(0);
    total(&counts)
}

/// The last line has the sum.
fn total(counts: &Path) -> usize {
    let text = std::fs::read_to_string(counts).unwrap();
    println!("{text}");
    let last = text.lines().rfind(|line| line.contains("total")).unwrap_or_default();
    let number = last.split_whitespace().find_map(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no total: {text}"))
}

/// System calls of one transaction, once the way is known; and of the first that takes it.
fn of_one(depth: usize, looks: usize) -> (usize, usize) {
    // The redo log is used at first, until it has been seen that nobody else uses it.
    let (none, first, few, many) = (
        calls(depth, 0, looks),
        calls(depth, 1, looks),
        calls(depth, 40, looks),
        calls(depth, 50, looks),
    );
    ((many - few) / 10, first - none)
}

#[test]
fn system_calls_do_not_grow_with_depth_and_looks() {
    require!(skip::has("strace"), "no strace here");
    let (near, far) = (of_one(3, 1), of_one(300, 1));
    let (near_often, far_often) = (of_one(3, 20), of_one(300, 20));
    println!("known, first: {near:?} {far:?} {near_often:?} {far_often:?}");
    assert!(near.0 <= 90, "a short transaction makes few: {near:?}");
    assert!(far.0 <= near.0 + 2, "the depth makes no difference: {near:?} {far:?}");
    assert!(near_often.0 <= near.0 + 2, "nor do looks: {near:?} {near_often:?}");
    assert!(far_often.0 <= near.0 + 2, "nor both: {near:?} {far_often:?}");
    // The first one looks at each directory once.
    assert!(far.1 <= near.1 + 300 * 8, "{near:?} {far:?}");
    assert!(far_often.1 <= far.1 + 20, "{far:?} {far_often:?}");
}

#[test]
fn what_changed_between_transactions_is_seen() {
    for how in ["nothing", "moved", "linked", "exchanged", "carried", "removed", "written"] {
        let lab = lab();
        let done = way(&lab, &["between", how]).run().expect(0);
        assert_eq!(done.text(), "natively committed\n", "{how}");
    }
}

#[test]
fn a_way_that_was_closed_between_transactions_is_closed() {
    require!(skip::is_root(), "only root can become another user");
    let lab = lab();
    std::os::unix::fs::chown(lab.path("tree"), Some(USER), Some(USER)).unwrap();
    let own = |name: &str| {
        let dir = lab.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(USER), Some(USER)).unwrap();
        dir
    };
    // A look that is refused, or the opening of the file to write it.
    let lost = &["Operation canceled\n", "Permission denied\n"][..];
    for (mode, told) in [("between", &["natively committed\n"][..]), ("during", lost)] {
        let _ = Invocation::shell("rm -rf \"$1\"/*").arg("sh").arg(lab.path("tree")).run();
        let done = way(&lab, &[mode, "closed"])
            .env("TXOS_STORE", own("store of another"))
            .env("TXOS_REALM", own("realm of another"))
            .user(USER, USER)
            .run()
            .expect(0);
        assert!(told.contains(&&*done.text()), "{mode}: {}", done.text());
    }
}

#[test]
fn what_changes_during_a_transaction_is_a_conflict() {
    for how in ["moved", "linked", "exchanged", "removed", "written"] {
        let lab = lab();
        let done = way(&lab, &["during", how]).run().expect(0);
        assert_eq!(done.text(), "Operation canceled\n", "{how}");
    }
    // Whatever lies between: the path leads to the same file.
    for how in ["nothing", "carried"] {
        let lab = lab();
        let done = way(&lab, &["during", how]).run().expect(0);
        assert_eq!(done.text(), "committed\n", "{how}");
    }
}

#[test]
fn a_mount_over_the_way_is_found() {
    require!(skip::is_root(), "only root can mount");
    for (mode, told) in [("between", "natively committed\n"), ("during", "Operation canceled\n")] {
        let lab = lab();
        let done = Invocation::new("unshare")
            .args(["-m", "--"])
            .arg(program("way", Linked::WithLibrary))
            .args([mode, "covered"])
            .arg(lab.path("tree"))
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .run()
            .expect(0);
        assert_eq!(done.text(), told, "{mode}");
    }
}
