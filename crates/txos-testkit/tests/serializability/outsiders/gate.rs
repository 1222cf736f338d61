//! While a commit of several files is published, nobody who opens them sees new before old.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use txos_testkit::{Lab, require, skip};

/// Files of one commit.
const FILES: usize = 40;

fn number(path: &Path) -> u64 {
    let mut text = String::new();
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    // Between two commits a file always exists: it is exchanged, never missing.
    read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim().parse().unwrap_or_else(|_| panic!("{}: {text:?}", path.display()))
}

/// Readers open all files one after the other, over and over, while transactions give all of them
/// the next number. A reader that sees number n in one file must never see a smaller one in a file
/// that it opens later.
fn readers_never_see_time_go_back(lab: &Lab, options: &[&str], change: &str, commits: u64) -> u64 {
    let files: Vec<PathBuf> = (0..FILES).map(|n| lab.path(format!("dir{}/f{n}", n % 4))).collect();
    let _ = lab.native(&format!(
        "mkdir dir0 dir1 dir2 dir3; for n in $(seq 0 {}); do echo 0 > dir$((n % 4))/f$n; done",
        FILES - 1
    ));
    let over = AtomicBool::new(false);
    let backwards = AtomicU64::new(0);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (files, over, backwards, rounds) = (&files, &over, &backwards, &rounds);
            scope.spawn(move || {
                // Each in an order of its own.
                let order: Vec<&PathBuf> =
                    (0..FILES).map(|n| &files[(n * (2 * reader + 1) + reader) % FILES]).collect();
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    for path in &order {
                        let now = number(path);
                        if now < last {
                            backwards.fetch_add(1, Ordering::Relaxed);
                        }
                        last = last.max(now);
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for n in 1..=commits {
            let script = change.replace("NUMBER", &n.to_string());
            let done = lab.script(options, &script).run();
            if done.code() != 0 {
                over.store(true, Ordering::Relaxed);
            }
            let _ = done.expect(0);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(rounds.load(Ordering::Relaxed) > commits, "the readers hardly ran");
    backwards.load(Ordering::Relaxed)
}

const REPLACE: &str =
    "for f in dir*/f*; do echo NUMBER > $f.new; mv $f.new $f; done; echo NUMBER > other";
const WRITE: &str = "for f in dir*/f*; do echo NUMBER > $f; done";

#[test]
fn files_that_are_replaced() {
    let lab = Lab::in_memory();
    assert_eq!(readers_never_see_time_go_back(&lab, &[], REPLACE, 40), 0);
    lab.expect_clean();
}

#[test]
fn files_that_are_written() {
    let lab = Lab::new();
    assert_eq!(readers_never_see_time_go_back(&lab, &["--no-durable"], WRITE, 40), 0);
    lab.expect_clean();
}

#[test]
fn files_whose_inode_stays() {
    let lab = Lab::in_memory();
    let options = ["--keep-inode", "**/f*"];
    assert_eq!(readers_never_see_time_go_back(&lab, &options, WRITE, 40), 0);
    lab.expect_clean();
}

/// Without the gate the test sees it: so it can.
#[test]
fn without_the_gate_half_a_commit_is_seen() {
    let lab = Lab::in_memory();
    let seen = (0..5).any(|attempt| {
        let place = lab.nested(&format!("attempt{attempt}"));
        readers_never_see_time_go_back(&place, &["--no-gate"], REPLACE, 40) > 0
    });
    require!(seen, "no reader was fast enough to see half of a commit");
}

/// Opens of other files, in the same directories too, are never held back: an opener's longest wait
/// stays far below what a publish with a gate that blocked it would take.
#[test]
fn nothing_else_is_blocked() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir d; echo x > d/outside; seq 3000 | split -l 1 -a 4 - d/f");
    let over = AtomicBool::new(false);
    let waited: Duration = std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            let path = lab.path("d/outside");
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let start = Instant::now();
                drop(File::open(&path).unwrap());
                longest = longest.max(start.elapsed());
            }
            longest
        });
        let script = "for f in d/f*; do echo new > $f; done";
        let done = lab.script(&["--no-durable"], script).run();
        over.store(true, Ordering::Relaxed);
        let _ = done.expect(0);
        opener.join().unwrap()
    });
    println!("longest wait {waited:?}");
    assert!(waited < Duration::from_secs(2), "an open outside the write set waited {waited:?}");
}

/// The gate goes away with its holder: whoever waited at it goes on.
#[test]
fn a_killed_publisher_blocks_nobody() {
    let lab = Lab::in_memory();
    require!(skip::is_root(), "the gate needs root");
    let prepare = "seq 50 | split -l 1 -a 2 - f";
    let count = lab.dir().join("count");
    let _ = lab.native(prepare);
    let script = "for f in f*; do echo new > $f.n; mv $f.n $f; done";
    let _ = lab.script(&[], script).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = txos_testkit::fault::steps_in(&count);
    let middle = steps.iter().rposition(|s| s == "rename").unwrap() - 10;
    let place = lab.nested("killed");
    let _ = place.native(prepare);
    let killed = place.script(&[], script).env("TXOS_FAULT", format!("kill@{middle}")).run();
    assert!(killed.killed(), "{killed:?}");
    let _ = place.native("cat f* > /dev/null; for f in f*; do : >> $f; done");
    let _ = place.txos(["recover"]).run().expect(0).says("undone");
}
