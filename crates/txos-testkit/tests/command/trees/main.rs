//! One list of random operations, one interpreter: natively, under `txos run`, and in a transaction of
//! the library it leaves the same tree and gets the same answers; an abort leaves the old tree, and
//! so does a revert. See `txos_testkit::trees`; `corpus/` has what failed once.
//!
//! `TXOS_TREES_SEEDS=n` tries as many seeds, `TXOS_TEST_SEED` says where they begin, and
//! `TXOS_TREES_CASE` names a file with a case, instead of the corpus. `TXOS_TREES_MODES=loaded,inside`
//! tries only these modes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod field;
#[path = "../../library/runtime/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use txos_testkit::trees::{Case, generate, shrink};
use txos_testkit::{random, require, skip};

use field::{Failure, Field, MODES, Mode};
use program::transactions_exist;

/// Failures that are cut down and told of before a test gives up.
const TOLD_MAX: usize = 3;

/// Seconds that each test has in the short mode, and all of them together in the long one.
const SHORT_S: u64 = 9;
/// Seeds that a short run tries at most, each in two modes.
const SHORT_SEEDS: u64 = 20;
const LONG_S: u64 = 1800;

/// Seconds between lines that tell of progress.
const PROGRESS_S: u64 = 20;

/// Modes that were asked for; all, if none was.
fn wanted(modes: &[Mode]) -> Vec<Mode> {
    let names = std::env::var("TXOS_TREES_MODES").unwrap_or_default();
    let is_wanted = |mode: &&Mode| names.is_empty() || names.split(',').any(|n| n == mode.name());
    modes.iter().filter(is_wanted).copied().collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// A failure, cut down to a case that can be put into the corpus.
fn told(field: &Field, case: &Case, failure: &Failure) -> String {
    let mode = failure.mode;
    let mut small = shrink::shrink(case, |case| {
        field.check(case, mode).is_err_and(|other| other.kind == failure.kind)
    });
    small.modes = vec![mode.name().to_owned()];
    let last = field.check(&small, mode).err().map_or_else(|| failure.text.clone(), |f| f.text);
    format!(
        "{}, {}: {}: {last}\n--- {}.ops\n{small}---",
        field.name(),
        mode.name(),
        failure.kind,
        mode.name()
    )
}

/// Tries seeds, each in some of the modes (in the long mode in all), and tells what failed.
fn tries(field: &Field, modes: &[Mode], share: u64) {
    require!(transactions_exist(), "the library has no transactions yet");
    let long = skip::long("trees");
    let given = std::env::var_os("TXOS_TEST_SEED").is_some();
    // The short mode begins at the same seed every time; the long one goes elsewhere.
    let first = if long || given { random::seed() } else { 1 };
    println!("{}: TXOS_TEST_SEED={first}", field.name());
    let modes = wanted(modes);
    let count = number("TXOS_TREES_SEEDS").unwrap_or(u64::MAX);
    let time = Duration::from_secs(if long { LONG_S * share / 100 } else { SHORT_S });
    let most = if long || count < u64::MAX { count } else { SHORT_SEEDS };
    let time = if count < u64::MAX { Duration::from_secs(3600) } else { time };
    let (start, mut shown) = (Instant::now(), Instant::now());
    let (mut seeds, mut runs) = (0, 0);
    let mut refused: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut failed: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    let mut wrong: Vec<(Mode, &'static str, String)> = Vec::new();
    let mut failures = 0;
    while seeds < most && start.elapsed() < time {
        let seed = first.wrapping_add(seeds);
        let case = generate::of_seed(seed, &field.limits());
        let chosen: Vec<Mode> = if long || count < u64::MAX {
            modes.to_vec()
        } else {
            (0..2).map(|n| modes[(seed as usize * 2 + n) % modes.len()]).collect()
        };
        for (mode, outcome) in field.check_all(&case, &chosen) {
            runs += 1;
            match outcome {
                Ok(None) => {}
                Ok(Some(message)) => *refused.entry((mode.name(), message)).or_default() += 1,
                Err(failure) => {
                    failures += 1;
                    failed.entry((mode.name(), failure.kind)).or_default().push(seed);
                    // One of each sort is enough to look at.
                    let known =
                        wrong.iter().any(|(m, kind, _)| *m == mode && *kind == failure.kind);
                    if wrong.len() < TOLD_MAX.max(number("TXOS_TREES_TOLD").unwrap_or(0) as usize)
                        && !known
                    {
                        let text = told(field, &case, &failure);
                        println!("seed {seed}: {text}");
                        wrong.push((mode, failure.kind, format!("seed {seed}: {text}")));
                    }
                }
            }
        }
        seeds += 1;
        if shown.elapsed() > Duration::from_secs(PROGRESS_S) {
            shown = Instant::now();
            let name = field.name();
            let seconds = start.elapsed().as_secs();
            let refused: u64 = refused.values().sum();
            println!(
                "{name}: {seconds} s, {seeds} seeds, {runs} runs, {refused} refused, {failures} failed"
            );
        }
    }
    let all: u64 = refused.values().sum();
    println!("{}: {seeds} seeds, {runs} runs, {all} refused, {failures} failed", field.name());
    for ((mode, message), count) in refused {
        println!("{}, {mode}: {count} times refused: {message}", field.name());
    }
    for ((mode, kind), seeds) in failed {
        println!("{}, {mode}: {kind}: {} failed: seeds {seeds:?}", field.name(), seeds.len());
    }
    let texts: Vec<&str> = wrong.iter().map(|(_, _, text)| text.as_str()).collect();
    assert!(failures == 0, "{failures} failed of {runs} runs:\n{}", texts.join("\n\n"));
    field.expect_clean();
}

fn corpus() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("TXOS_TREES_CASE") {
        return vec![path.into()];
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/trees/corpus");
    let mut list: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    list.retain(|path| path.extension().is_some_and(|e| e == "ops"));
    list.sort();
    list
}

fn remembered(field: &Field) {
    require!(transactions_exist(), "the library has no transactions yet");
    let mut wrong = Vec::new();
    for path in corpus() {
        let case = Case::parse(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let modes = wanted(MODES).into_iter().filter(|mode| field.can(*mode));
        let modes: Vec<Mode> = modes
            .filter(|mode| {
                case.modes.is_empty() || case.modes.iter().any(|name| name == mode.name())
            })
            .collect();
        for (mode, outcome) in field.check_all(&case, &modes) {
            if let Err(failure) = outcome {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                wrong.push(format!("{name}, {}: {}: {}", mode.name(), failure.kind, failure.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_corpus_as_root() {
    remembered(&Field::root());
}

#[test]
fn the_corpus_as_an_ordinary_user() {
    if let Some(field) = Field::ordinary() {
        remembered(&field);
    }
}

/// The test's own soundness: what differs is found.
#[test]
fn a_difference_is_found() {
    let field = Field::root();
    let case = generate::of_seed(1, &field.limits());
    for (_, outcome) in field.check_all(&case, &[Mode::Itself]) {
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    for (operations, kind) in [
        ("patch a 2 1 99", "the tree"),
        ("chmod a 0600", "the tree"),
        ("setxattr a user.b 1 1", "the tree"),
        ("link a e", "the tree"),
        ("ltimes b -2 5", "the tree"),
        ("acl a 1", "the tree"),
        ("lstat a", "the answers"),
    ] {
        let prepare = "prepare\nwrite a 10 1\nsymlink a b\nmkdir c 0755\n";
        let case = Case::parse(&format!("{prepare}transaction\nlist c")).unwrap();
        let other = Case::parse(&format!("{prepare}transaction\nlist c\n{operations}")).unwrap();
        let failure = field.compare_natively(&case, &other).unwrap_err();
        assert_eq!(failure.kind, kind, "{operations}: {}", failure.text);
    }
}

#[test]
fn random_trees_as_root() {
    tries(&Field::root(), MODES, 30);
}

#[test]
fn random_trees_as_an_ordinary_user() {
    if let Some(field) = Field::ordinary() {
        let modes: Vec<Mode> = MODES.iter().copied().filter(|mode| field.can(*mode)).collect();
        tries(&field, &modes, 25);
    }
}

fn on(kind: &str) {
    require!(skip::long("trees"), "only in the long mode `trees`");
    let field = Field::on(kind);
    require!(field.is_some(), "no {kind} can be made or mounted here");
    if let Some(field) = field {
        remembered(&field);
        tries(&field, MODES, 15);
    }
}

#[test]
fn random_trees_on_ext4() {
    on("ext4");
}

#[test]
fn random_trees_on_xfs() {
    on("xfs");
}

/// Without `txos run`'s own view, which can't have its layers there.
#[test]
fn random_trees_on_an_overlay() {
    let field = Field::on("overlay");
    require!(field.is_some(), "no overlay can be mounted here");
    if let Some(field) = field {
        let modes = [Mode::Inside, Mode::Aborted, Mode::Loaded, Mode::Child, Mode::Alone];
        tries(&field, &modes, 15);
    }
}

/// The same, with all that is there in the lower layer, as what an image brings.
#[test]
fn random_trees_of_an_image() {
    let field = Field::on("image");
    require!(field.is_some(), "no overlay can be mounted here");
    if let Some(field) = field {
        let modes = [
            Mode::Inside,
            Mode::Aborted,
            Mode::Loaded,
            Mode::Child,
            Mode::Alone,
            Mode::KeptInside,
            Mode::InPartsInside,
        ];
        tries(&field, &modes, 15);
    }
}

/// A directory takes the place of an object of the image, and goes with the directory that holds it. ext4 changes the
/// time of that when the kernel is asked whether it would rename such a directory.
#[test]
fn a_directory_in_the_place_of_an_images_object() {
    require!(transactions_exist(), "the library has no transactions yet");
    let field = Field::on("image");
    require!(field.is_some(), "no overlay can be mounted here");
    let modes = [Mode::Inside, Mode::Loaded, Mode::Alone, Mode::KeptInside];
    let replaced = "prepare\nmkdir a 0755\nmkdir a/d 0755\nsocket a/b 0755\nwrite a/d/c 10 1\n\
        transaction\nrename2 a/b b 1\nmkdir a/b 0755\nunlink a/d/c\nmkdir a/d/c 0755\ntimes a 5 5\ntimes a/d 6 6\ntransaction\n";
    for last in ["remove a", "rename a e", "rmdir a/b", "rename a/b e"] {
        let case = Case::parse(&format!("{replaced}{last}")).unwrap();
        for (mode, outcome) in field.as_ref().unwrap().check_all(&case, &modes) {
            assert_eq!(outcome.unwrap(), None, "{last}, {}", mode.name());
        }
    }
}

#[test]
fn random_trees_on_btrfs() {
    on("btrfs");
}
