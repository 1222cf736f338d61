//! Random system calls answer alike natively and in transactions, and leave the same behind; aborted
//! ones leave nothing. See `c/differ/`.
//!
//! `TXOS_DIFFER_SEEDS=n` tries as many sequences, `TXOS_TEST_SEED` says where they begin, and
//! `TXOS_DIFFER_OPTIONS` is handed to `differ` (`--without mmap,xattr`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use txos_testkit::image::Image;
use txos_testkit::tree::Tolerance;
use txos_testkit::{Invocation, Lab, Tree, random, require, skip};

use crate::program::{Linked, program, transactions_exist};

/// Calls before, in and after the transaction, as `c/differ/main.c` has them.
const BEFORE: u32 = 12;
const CALLS: u32 = 80;
const AFTER: u32 = 8;

/// Failures that are cut down and told of; `TXOS_DIFFER_TOLD` may say more.
const TOLD_MAX: usize = 3;

/// Lines of a log that a message shows.
const SHOWN_MAX: usize = 40;

/// Nobody has this number.
const ORDINARY: u32 = 64_321;

/// A place for one sequence after the other.
struct Field {
    lab: Lab,
    options: Vec<String>,
    /// An ordinary user runs it, not root.
    ordinary: bool,
    /// All output is held.
    holds_all: bool,
    /// Mounts that may be written to.
    writable: Vec<PathBuf>,
    _image: Option<Image>,
}

/// What a run of a sequence has left.
struct Run {
    log: String,
    tree: Tree,
}

impl Run {
    /// What is to be compared.
    fn lines(&self) -> Vec<&str> {
        self.log.lines().filter(|line| !line.starts_with('#')).collect()
    }

    /// The process at a point: its descriptors, working directory, umask.
    fn state(&self, when: &str) -> Vec<&str> {
        let head = format!("state {when}");
        let lines = self.lines().into_iter().skip_while(|line| *line != head).skip(1);
        lines.take_while(|line| line.starts_with("  ")).collect()
    }
}

/// One run of `differ`.
#[derive(Clone, Copy)]
struct How<'a> {
    mode: &'a str,
    linked: Linked,
    seed: u64,
    skipped: &'a [u32],
    options: &'a [&'a str],
}

impl Field {
    fn new(ordinary: bool) -> Field {
        let lab = Lab::in_memory();
        let writable = vec![lab.dir().to_owned(), PathBuf::from("/dev/shm")];
        Self::of(lab, ordinary, writable, None)
    }

    /// On a file system of another kind, if this machine can have it.
    fn on(kind: &str) -> Option<Field> {
        let lab = Lab::in_memory();
        let image = Image::mount(&lab, kind, 300, kind)?;
        let writable = vec![lab.dir().to_owned(), PathBuf::from("/dev/shm"), image.point.clone()];
        let lab = lab.at(&image.point);
        let mut field = Self::of(lab, false, writable, Some(image));
        // It gives numbers of removed inodes to new ones, and directories links as it likes; xfs lists
        // what it stores access lists as (docs/limits.md).
        field.options.extend(["--without", "ino,dirlinks,dirends,rawacl"].map(str::to_owned));
        Some(field)
    }

    fn of(lab: Lab, ordinary: bool, writable: Vec<PathBuf>, image: Option<Image>) -> Field {
        let given = std::env::var("TXOS_DIFFER_OPTIONS").unwrap_or_default();
        let options = given.split_whitespace().map(str::to_owned).collect();
        // The margin around the tree, where the sequence gets by "..", is the test's as well.
        std::fs::create_dir_all(lab.store()).unwrap();
        std::fs::create_dir_all(lab.realm()).unwrap();
        let mut options: Vec<String> = options;
        if ordinary {
            options.extend(["--without", "locked"].map(str::to_owned));
            for dir in [lab.store(), lab.realm()] {
                std::os::unix::fs::chown(dir, Some(ORDINARY), Some(ORDINARY)).unwrap();
            }
        }
        Field { lab, options, ordinary, holds_all: false, writable, _image: image }
    }

    fn base(&self) -> PathBuf {
        self.lab.path("1/2/3/base")
    }

    /// `differ`, contained in this place.
    fn differ(&self, linked: Linked) -> Invocation {
        let owner = format!("{ORDINARY}:{ORDINARY}");
        let mut contain = Invocation::new(program("contain", Linked::Natively))
            .env("TXOS_STORE", self.lab.store())
            .env("TXOS_REALM", self.lab.realm());
        if self.holds_all {
            contain = contain.env("TXOS_HOLD_OUTPUT", "1");
        }
        if self.ordinary {
            contain = contain.args(["--user", &owner]);
        }
        contain.args(&self.writable).arg("--").arg(program("differ", linked))
    }

    /// Makes the tree of a seed afresh.
    fn prepare(&self, seed: u64) {
        for entry in std::fs::read_dir(self.lab.tree()).unwrap() {
            let path = entry.unwrap().path();
            let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
        }
        std::fs::create_dir_all(self.base()).unwrap();
        let owner = if self.ordinary { ORDINARY } else { 0 };
        let differ = Invocation::new(program("contain", Linked::Natively))
            .args(&self.writable)
            .arg("--")
            .arg(program("differ", Linked::Natively))
            .args(["prepare", &seed.to_string()])
            .arg(self.base())
            .args(["--owner", &format!("{owner}:{owner}")])
            .args(&self.options);
        let _ = differ.run().expect(0);
    }

    fn run(&self, how: &How<'_>) -> Result<Run, String> {
        self.prepare(how.seed);
        self.run_prepared(how)
    }

    fn run_prepared(&self, how: &How<'_>) -> Result<Run, String> {
        let mut differ = self
            .differ(how.linked)
            .args([how.mode, &how.seed.to_string()])
            .arg(self.base())
            .args(&self.options)
            .args(how.options);
        if !how.skipped.is_empty() {
            differ = differ.args(["--skip", &ranges(how.skipped)]);
        }
        let done = differ.run();
        let log = done.text().trim_end_matches('\0').to_owned();
        if done.code() != 0 {
            let last = log.lines().last().unwrap_or_default().to_owned();
            return Err(format!(
                "{} ended with {}\n{}\n  last: {last}",
                how.mode,
                done.status,
                done.stderr.trim()
            ));
        }
        Ok(Run { log, tree: Tree::of(self.lab.tree()) })
    }
}

/// Numbers as `--skip` takes them.
fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < numbers.len() {
        let mut end = at;
        while end + 1 < numbers.len() && numbers[end + 1] == numbers[end] + 1 {
            end += 1;
        }
        let _ = write!(text, "{}{}", if at == 0 { "" } else { "," }, numbers[at]);
        if end > at {
            let _ = write!(text, "-{}", numbers[end]);
        }
        at = end + 1;
    }
    text
}

/// The same calls, the same answers.
fn same_lines(what: &str, mine: &[&str], theirs: &[&str]) -> Result<(), String> {
    let at = mine.iter().zip(theirs).position(|(a, b)| a != b);
    match at {
        None if mine.len() == theirs.len() => Ok(()),
        None => Err(format!("{what}: {} lines, not {}", theirs.len(), mine.len())),
        Some(at) => Err(format!("{what}:\n  - {}\n  + {}", mine[at], theirs[at])),
    }
}

fn same_tree(what: &str, mine: &Tree, theirs: &Tree, tolerance: Tolerance) -> Result<(), String> {
    let difference = mine.difference(theirs, tolerance);
    if difference.is_empty() { Ok(()) } else { Err(format!("{what}:\n{difference}")) }
}

/// Times that the test's own calls have set by being made now.
const NOW: Tolerance = Tolerance { now_from: Some(1_500_000_000), times: false, links: true };

/// What a sequence is tried for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// Twice natively: the test's own soundness.
    Itself,
    /// Without a transaction, but through the library.
    Linked,
    /// In one transaction.
    Commit,
    /// In several, one after the other.
    Split,
    /// In one that is aborted.
    Abort,
}

impl Field {
    fn check(&self, trial: Trial, seed: u64, skipped: &[u32]) -> Result<(), String> {
        // Durability changes the way to the end, not what is there at the end; restarting is not
        // needed as there is nobody else.
        let flags = ["0", "1", "2", "3"][(seed % 4) as usize];
        let native = How { mode: "native", linked: Linked::Natively, seed, skipped, options: &[] };
        let given = ["--flags", flags];
        let with = |mode| How { mode, linked: Linked::WithLibrary, options: &given, ..native };
        let other = match trial {
            Trial::Abort => return self.check_abort(seed, skipped, flags),
            Trial::Itself => native,
            Trial::Linked => with("native"),
            Trial::Commit => with("commit"),
            Trial::Split => with("split"),
        };
        let (expected, found) = (self.run(&native)?, self.run(&other)?);
        let what = format!("natively (-), {trial:?} (+)");
        same_lines(&what, &expected.lines(), &found.lines())?;
        same_tree(&what, &expected.tree, &found.tree, NOW)
    }

    fn check_abort(&self, seed: u64, skipped: &[u32], flags: &str) -> Result<(), String> {
        let begun = How {
            mode: "native",
            linked: Linked::Natively,
            seed,
            skipped,
            options: &["--calls", "0", "--after", "0"],
        };
        let aborted = How {
            mode: "abort",
            linked: Linked::WithLibrary,
            options: &["--flags", flags, "--after", "0"],
            ..begun
        };
        let (expected, found) = (self.run(&begun)?, self.run(&aborted)?);
        let what = "before (-), after an abort (+)";
        same_lines(what, &expected.state("before"), &found.state("before"))?;
        same_lines(what, &found.state("before"), &found.state("after"))?;
        same_lines(what, &expected.state("outside"), &found.state("outside"))?;
        same_tree(what, &expected.tree, &found.tree, NOW)?;
        // Without calls before it nothing has been "now": to the last bit, then.
        let alone = ["--flags", flags, "--after", "0"];
        let early: Vec<u32> = (0..BEFORE).chain(skipped.iter().copied()).collect();
        self.prepare(seed);
        let before = Tree::of(self.lab.tree());
        let _ = self.run_prepared(&How { skipped: &early, options: &alone, ..aborted })?;
        let after = Tree::of(self.lab.tree());
        same_tree(what, &before, &after, Tolerance::default())
    }

    /// The calls that can be left out without curing it.
    fn shrunk(&self, trial: Trial, seed: u64) -> Vec<u32> {
        let mut needed: Vec<u32> = (0..BEFORE + CALLS + AFTER).collect();
        let all = needed.clone();
        let left_out = |needed: &[u32]| -> Vec<u32> {
            all.iter().copied().filter(|n| !needed.contains(n)).collect()
        };
        let mut size = 32;
        while size > 0 {
            let mut at = 0;
            while at < needed.len() {
                let mut fewer = needed.clone();
                fewer.drain(at..(at + size).min(needed.len()));
                if self.check(trial, seed, &left_out(&fewer)).is_err() {
                    needed = fewer;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
        left_out(&needed)
    }

    /// A failure, with as few calls as it takes.
    fn told(&self, trial: Trial, seed: u64, what: &str) -> String {
        let skipped = self.shrunk(trial, seed);
        let last = self.check(trial, seed, &skipped).err().unwrap_or_else(|| what.to_owned());
        let native =
            How { mode: "native", linked: Linked::Natively, seed, skipped: &skipped, options: &[] };
        let log = self.run(&native).map_or_else(|e| e, |run| run.log);
        let lines: Vec<&str> =
            log.lines().filter(|l| !l.starts_with(['#', ' '])).take(SHOWN_MAX).collect();
        let who = if self.ordinary { "an ordinary user" } else { "root" };
        format!(
            "seed {seed}, {trial:?}, as {who}: {last}\n  natively, with --skip {}:\n    {}",
            ranges(&skipped),
            lines.join("\n    ")
        )
    }
}

/// How many sequences of a kind are tried: a share of the short mode's.
fn seeds(short: u64) -> (u64, u64) {
    let given = std::env::var("TXOS_DIFFER_SEEDS").ok();
    let long = skip::long("differ");
    let count =
        given.map_or(if long { short * 20 } else { short }, |n| n.parse().expect("a number"));
    // The short mode is the same every time; the long one goes elsewhere.
    let fixed = !long && std::env::var_os("TXOS_TEST_SEED").is_none();
    (if fixed { 1 } else { random::seed() }, count)
}

fn tries(trial: Trial, ordinary: bool, short: u64) {
    tries_in(&Field::new(ordinary), trial, short);
}

fn tries_in(field: &Field, trial: Trial, short: u64) {
    require!(transactions_exist(), "the library has no transactions yet");
    let (first, count) = seeds(short);
    println!("TXOS_TEST_SEED={first}");
    let all: Vec<u64> = (0..count).map(|n| first.wrapping_add(n)).collect();
    try_each(field, trial, &all);
}

fn try_each(field: &Field, trial: Trial, seeds: &[u64]) {
    let count = seeds.len();
    let told = std::env::var("TXOS_DIFFER_TOLD").ok();
    let told_max = told.map_or(TOLD_MAX, |n| n.parse().expect("a number"));
    let mut wrong = Vec::new();
    let mut failures = 0;
    for &seed in seeds {
        if let Err(what) = field.check(trial, seed, &[]) {
            failures += 1;
            if wrong.len() < told_max {
                wrong.push(field.told(trial, seed, &what));
            }
        }
    }
    assert!(failures == 0, "{failures} of {count}:\n{}", wrong.join("\n\n"));
}

/// Sequences of the long mode that were answered otherwise than by the kernel once.
#[test]
fn what_was_found_stays_mended() {
    require!(transactions_exist(), "the library has no transactions yet");
    for (ordinary, seeds) in [
        (true, &[880_111, 880_164, 880_185, 880_227, 880_238][..]),
        (false, &[880_111, 880_133, 880_164, 880_238]),
    ] {
        try_each(&Field::new(ordinary), Trial::Commit, seeds);
    }
}

#[test]
fn the_sequence_is_a_sound_measure() {
    let field = Field::new(false);
    let mut kinds = BTreeSet::new();
    let mut answers = BTreeSet::new();
    for seed in 1..=40 {
        field.check(Trial::Itself, seed, &[]).unwrap();
        let how =
            How { mode: "native", linked: Linked::Natively, seed, skipped: &[], options: &[] };
        let run = field.run(&how).unwrap();
        for line in run.lines() {
            let call = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
            kinds.insert(call.split('(').next().unwrap_or_default().to_owned());
            let error = line.split(" = -1 ").nth(1).and_then(|rest| rest.split(' ').next());
            answers.extend(error.map(str::to_owned));
        }
        assert!(run.log.lines().count() as u32 > CALLS, "{}", run.log);
    }
    assert!(kinds.len() >= 80, "{} kinds of calls: {kinds:?}", kinds.len());
    assert!(answers.len() >= 15, "{} kinds of failures: {answers:?}", answers.len());
    Field::new(true).check(Trial::Itself, 1, &[]).unwrap();
}

#[test]
fn calls_through_the_library_are_as_ever() {
    tries(Trial::Linked, false, 20);
}

#[test]
fn committed_as_root() {
    tries(Trial::Commit, false, 60);
}

#[test]
fn committed_as_an_ordinary_user() {
    tries(Trial::Commit, true, 40);
}

/// With effects on others, and as others: sockets, pipes, signals, credentials, limits, priorities.
fn with_effects(ordinary: bool) -> Field {
    let mut field = Field::new(ordinary);
    field.options.extend(["--with", "outside,identity"].map(str::to_owned));
    field
}

#[test]
fn effects_are_sound_to_measure() {
    let field = with_effects(false);
    let mut kinds = BTreeSet::new();
    for seed in 1..=20 {
        field.check(Trial::Itself, seed, &[]).unwrap();
        let how =
            How { mode: "native", linked: Linked::Natively, seed, skipped: &[], options: &[] };
        let run = field.run(&how).unwrap();
        let outside = run.state("outside");
        assert!(outside.len() == 7, "{outside:?}");
        kinds.extend(run.lines().iter().filter_map(|line| {
            let call = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
            call.split('(').next().map(str::to_owned)
        }));
    }
    for kind in ["send", "sendmmsg", "recv", "kill", "setreuid", "setgroups", "setpriority"] {
        assert!(kinds.contains(kind), "no {kind} in {kinds:?}");
    }
}

#[test]
fn effects_committed_as_root() {
    tries_in(&with_effects(false), Trial::Commit, 40);
}

#[test]
fn effects_committed_as_an_ordinary_user() {
    tries_in(&with_effects(true), Trial::Commit, 20);
}

/// Pipes are held as well, as far as it is asked for.
#[test]
fn effects_of_an_abort_are_none() {
    let mut field = with_effects(false);
    field.options.extend(["--without", "liveflags"].map(str::to_owned));
    field.holds_all = true;
    tries_in(&field, Trial::Abort, 25);
}

#[test]
fn committed_in_several_transactions() {
    let mut field = Field::new(false);
    // A file that is replaced has another inode in the next transaction; and in a root directory
    // without /proc, what descriptors from before lead to can't be found. A file that has no name any
    // more had its last one in the store, which is what the kernel says of it from then on.
    field.options.extend(["--without", "ino,chroot,gone"].map(str::to_owned));
    tries_in(&field, Trial::Split, 25);
}

fn committed_on(kind: &str) {
    let field = Field::on(kind);
    require!(field.is_some(), "no {kind} can be made or mounted here");
    if let Some(field) = field {
        field.check(Trial::Itself, 1, &[]).unwrap();
        tries_in(&field, Trial::Commit, 10);
        tries_in(&field, Trial::Abort, 5);
    }
}

#[test]
fn committed_on_ext4() {
    committed_on("ext4");
}

#[test]
fn committed_on_xfs() {
    committed_on("xfs");
}

#[test]
fn committed_on_btrfs() {
    committed_on("btrfs");
}

#[test]
fn aborted_as_root() {
    tries(Trial::Abort, false, 25);
}

#[test]
fn aborted_as_an_ordinary_user() {
    tries(Trial::Abort, true, 15);
}
