//! Random operations agree with a native run; see `txos_testkit::fuzz`. What failed once is tried
//! for ever.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use txos_testkit::fuzz::Case;
use txos_testkit::{Lab, random, skip};

/// What has failed, cut down: before the transaction, and in it.
const REMEMBERED: &[(&str, &str)] = &[
    // Names looked up through a link, to what the transaction then makes or changes.
    ("mkdir a; ln -s c a/d", "mv -T a/d/f b; mkdir -p a/c/a"),
    ("mkdir -p c/c/b; ln -s c e", "mkdir e/f; echo 28 > e/f/c"),
    ("ln -s d a", "mkdir a/b; echo 0 > d"),
    ("ln -s b a", "echo 16 > b; echo 19 >> a/f"),
    ("ln -s a c; ln -s c a", "rm -r c/c/d; rm -r a"),
    ("echo 10 > a; ln -s a f", "chmod 4711 f/d/a; rm -r a"),
    ("ln -s d e", "mkdir -p d/c/e/e/a/b; move_over d/e/f e/c"),
    // A name of a file whose other names are in other directories.
    ("echo 13 > c; mkdir -p b/c; ln c b/c/d", "rm -r c"),
    ("echo 7 > d; ln d b", "echo 13 >> b; rm -r b"),
    ("mkdir -p a/f/b; ln -s d e", "rm -r e; move_over a/f e"),
    ("mkdir -p a/f/b; mkdir -p e/d/c", "rm -r e; move_over a/f e"),
    // Times of directories of which attributes and entries were changed.
    ("mkdir b", "echo 1 > b/c; setfattr -h -n user.2 -v 23 b"),
    ("mkdir d", "echo 12 > d/a; chown -h 2:2 d"),
    ("mkdir -p d/a; ln -s d c", "ln -s f c/b; chmod 600 c"),
    ("mkdir c", "mkdir b; mv -T c b/f"),
];

/// Failures that are cut down and told of before a test gives up.
const TOLD_MAX: usize = 3;

fn tell(lab: &Lab, case: &Case, what: &str) -> String {
    let case = case.minimised(lab);
    let last = case.check(lab).err().unwrap_or_else(|| what.to_owned());
    format!(
        "{last}\n  before: {}\n  in the transaction: {}",
        case.prepare.join("; "),
        case.operations.join("; ")
    )
}

#[test]
fn cases_that_have_failed() {
    let lab = Lab::in_memory();
    let list = |text: &str| text.split("; ").map(str::to_owned).collect();
    let mut wrong = Vec::new();
    for (prepare, operations) in REMEMBERED {
        let case = Case { prepare: list(prepare), operations: list(operations) };
        if let Err(what) = case.check(&lab) {
            wrong.push(format!("{prepare} | {operations}: {what}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), REMEMBERED.len(), wrong.join("\n\n"));
}

#[test]
fn random_operations_agree() {
    let lab = Lab::in_memory();
    let time = Duration::from_secs(if skip::long("fuzz") { 1800 } else { 30 });
    // The short mode is the same every time; the long one, or TXOS_TEST_SEED, goes elsewhere.
    let given = std::env::var_os("TXOS_TEST_SEED").is_some();
    let first = if skip::long("fuzz") || given { random::seed() } else { 1 };
    println!("TXOS_TEST_SEED={first}");
    let start = Instant::now();
    let mut rounds = 0u64;
    let mut wrong = Vec::new();
    while start.elapsed() < time && wrong.len() < TOLD_MAX {
        let seed = first.wrapping_add(rounds);
        let case = Case::of_seed(seed);
        if let Err(what) = case.check(&lab) {
            wrong.push(format!("TXOS_TEST_SEED={seed}: {}", tell(&lab, &case, &what)));
        }
        rounds += 1;
    }
    println!("{rounds} rounds");
    assert!(wrong.is_empty(), "in {rounds} rounds:\n{}", wrong.join("\n\n"));
}
