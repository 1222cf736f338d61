//! A hostile process, for the tests in `tests/adversary/attack`:
//!
//! - `attacker exchange A B`: swaps two names, over and over;
//! - `attacker scribble FILE SEED`: writes words anywhere into a mapped file, over and over;
//! - `attacker read FILE…`: opens files over and over, until one says SECRET: then it says which, and ends.
//!
//! It says "attacking" when it has begun, and ends when it is killed.

// A test's process that can't go on says why.
#![allow(clippy::expect_used)]

use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use txos_testkit::random::Random;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["exchange", a, b] => exchange(a, b),
        ["scribble", file, seed] => scribble(file, seed.parse().expect("a seed")),
        ["read", ref files @ ..] => read(files),
        _ => panic!("exchange A B | scribble FILE SEED | read FILE…"),
    }
}

fn exchange(a: &str, b: &str) {
    let mut told = false;
    let mut random = Random::new(std::process::id().into());
    loop {
        // There and back; others may have either of them away for a moment.
        let mut done = false;
        for _ in 0..2 {
            done = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).is_ok();
            std::thread::sleep(Duration::from_micros(random.below(40)));
        }
        if done && !std::mem::replace(&mut told, true) {
            println!("attacking");
        }
        // Who is attacked without a rest sees it, and stops before it gets anywhere.
        if random.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(150_000)));
        }
    }
}

fn read(files: &[&str]) {
    println!("attacking");
    loop {
        for file in files {
            if std::fs::read_to_string(file).is_ok_and(|text| text.contains("SECRET")) {
                println!("read {file}");
                return;
            }
        }
    }
}

/// The places of a realm (docs/realm-format.md): slots, groups, ownership records.
fn scribble(file: &str, seed: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).expect("the segment");
    let mut random = Random::new(seed);
    let slot = |random: &mut Random| 4096 + 1024 * random.below(60);
    for round in 0u64.. {
        let word = match random.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << random.below(64),
            3 => random.below(1 << 12),
            _ => random.bits(),
        };
        let at = match random.below(8) {
            0..4 => slot(&mut random) + 8 * random.below(24),
            4 => slot(&mut random) + 8 * random.below(128),
            5 => 65536 + 8 * random.below(512),
            6 => 128 + 8 * random.below(8),
            _ => 69632 + 8 * random.below(1 << 20),
        };
        file.write_all_at(&word.to_le_bytes(), at).expect("writing to the segment");
        if round == 0 {
            println!("attacking");
        }
        std::thread::yield_now();
    }
}
