//! Whatever bytes they are given, the parsers of stored, shared and outside data return: the targets
//! of `fuzz/`, over the corpora kept there and over mutations, without a fuzzer.
//!
//! `TXOS_TEST_SEED` says where the mutations begin; an input that fails is written to a file.
//! `./test --long parse` goes on for ten minutes with every target (`TXOS_PARSE_SECONDS`).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use txos_engine::fuzzing::Target;
use txos_testkit::random::{self, Random};
use txos_testkit::skip;

/// Mutations in the short mode: fewer where each takes system calls, or waits.
fn rounds(name: &str) -> u64 {
    match name {
        "realm" => 100,
        "publish" | "redo" => 500,
        _ => 20_000,
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Some bytes changed, added, removed, or taken from another input.
fn mutated(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let at = |random: &mut Random, len: usize| random.below(len as u64 + 1) as usize;
    let mut bytes = random.pick(inputs).clone();
    for _ in 0..=random.below(4) {
        let place = at(random, bytes.len());
        match random.below(6) {
            0 if place < bytes.len() => bytes[place] ^= 1 << random.below(8),
            1 if place < bytes.len() => {
                bytes[place] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'/', b'.', b'"', b' '])
            }
            2 => bytes.insert(place, random.bits() as u8),
            3 => {
                let end = place + at(random, (bytes.len() - place).min(16));
                bytes.drain(place..end);
            }
            4 => {
                let other = random.pick(inputs);
                let start = at(random, other.len());
                let end = start + at(random, (other.len() - start).min(64));
                bytes.splice(place..place, other[start..end].iter().copied());
            }
            _ => {
                let word = match random.below(3) {
                    0 => random.bits(),
                    1 => u64::MAX >> random.below(64),
                    _ => 1 << random.below(64),
                };
                let end = (place + 8).min(bytes.len());
                bytes.splice(place..end, word.to_le_bytes());
            }
        }
    }
    bytes.truncate(1 << 16);
    bytes
}

fn give(target: &Target, bytes: &[u8], how: &str) {
    if catch_unwind(|| (target.run)(bytes)).is_err() {
        let file = std::env::temp_dir().join(format!("txos-test-parse-{}", target.name));
        std::fs::write(&file, bytes).unwrap();
        panic!("{}: {how}; the input is {}", target.name, file.display());
    }
}

fn parse(targets: &[Target]) {
    let long = skip::long("parse");
    let given = std::env::var_os("TXOS_TEST_SEED").is_some();
    let seed = if long || given { random::seed() } else { 1 };
    println!("TXOS_TEST_SEED={seed}");
    for target in targets {
        let mut inputs = (target.seeds)();
        inputs.extend(corpus(target.name));
        inputs.push(Vec::new());
        for (n, input) in inputs.iter().enumerate() {
            give(target, input, &format!("input {n}"));
        }
        let seconds = std::env::var("TXOS_PARSE_SECONDS").ok().and_then(|s| s.parse().ok());
        let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(600));
        let mut random = Random::new(seed);
        let mut n = 0;
        while if long { Instant::now() < end } else { n < rounds(target.name) } {
            let input = mutated(&inputs, &mut random);
            give(target, &input, &format!("TXOS_TEST_SEED={seed}, mutation {n}"));
            n += 1;
        }
        println!("{}: {} inputs, {n} mutations", target.name, inputs.len());
    }
    txos_engine::fuzzing::clean_up();
}

/// By name, so that each target is a test.
fn one(name: &str) {
    let mut all = txos_engine::fuzzing::TARGETS.iter().chain(txos_run::fuzzing::TARGETS);
    let target = all.find(|t| t.name == name).expect("a target of that name");
    parse(std::slice::from_ref(target));
}

macro_rules! targets {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            one(stringify!($name));
        })+

        #[test]
        fn each_target_is_tested() {
            let tested = [$(stringify!($name)),+];
            let all = txos_engine::fuzzing::TARGETS.iter().chain(txos_run::fuzzing::TARGETS);
            let missing: Vec<_> = all.map(|t| t.name).filter(|n| !tested.contains(n)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    };
}

targets! { journal plan publish light redo reads meta patch realm segment proc text execute supervisor channel }
