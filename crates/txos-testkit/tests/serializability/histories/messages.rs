//! Transactions that take messages from outside, count in files, and send messages and signals outside that say what
//! they have counted: the files, and what arrives, tell of the same transactions, each once and in order. See
//! `c/messages.c` for what must hold, and for the outside that checks it.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use txos_testkit::{Done, Invocation, Lab, random, skip};

use crate::program::{Linked, compile};

/// How long a scene of the short mode may take, seconds: slow machines make fewer commits.
const SHORT_MAX: u64 = 12;

fn scene(seed: u64, commits: u64, kills: u64, hold: &str) -> Done {
    let lab = Lab::in_memory();
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || compile("tests/serializability/histories/c", "messages", Linked::WithLibrary);
    let program = BUILT.get_or_init(build);
    let started = Instant::now();
    let done = Invocation::new(program)
        .args([seed, commits, kills, SHORT_MAX].map(|n| n.to_string()))
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .env("TXOS_HOLD_OUTPUT", hold)
        .within(Duration::from_secs(240))
        .dir(lab.tree())
        .run();
    let took = started.elapsed().as_secs_f64();
    println!("TXOS_TEST_SEED={seed}, {took:.1} s: {}{}", done.text(), done.stderr);
    if done.code() == 0 {
        let left = std::fs::read_dir(lab.tree()).unwrap().flatten().map(|entry| entry.file_name());
        let strays = left.filter(|name| name.to_string_lossy().starts_with("temporary")).count();
        assert_eq!(strays, 0, "private names were published");
        if kills == 0 {
            lab.expect_clean();
        }
    }
    done
}

/// A number in what a scene said, by the word after it.
fn number(done: &Done, word: &str) -> u64 {
    let text = done.text();
    let before = text.split(&format!(" {word}")).next().unwrap_or_default();
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

fn expect(done: Done, commits: u64) -> Done {
    let done = done.expect(0).says_not("violation");
    assert!(number(&done, "commits") >= commits, "{done:?}");
    assert!(number(&done, "aborted") > 0 && number(&done, "messages") > commits, "{done:?}");
    assert!(number(&done, "as another group") > 0, "{done:?}");
    done
}

#[test]
fn messages_and_files_tell_of_the_same_transactions() {
    let _ = expect(scene(random::seed(), 1500, 0, "1"), 100);
}

#[test]
fn messages_and_files_tell_of_the_same_transactions_under_kills() {
    let done = expect(scene(random::seed(), 1200, 12, "1"), 100);
    assert!(number(&done, "killed") > 3, "{done:?}");
}

/// What this is worth: if output is not held, it is found out.
#[test]
fn messages_that_are_not_held_are_found_out() {
    let _ = scene(random::seed(), 1000, 0, "0").expect(1).says("violation");
}

#[test]
fn messages_for_a_long_time() {
    txos_testkit::require!(skip::long("histories"), "a long mode: ./test --long histories");
    let seconds = std::env::var("TXOS_HISTORIES_SECONDS").ok().and_then(|n| n.parse().ok());
    let budget = Duration::from_secs(seconds.unwrap_or(900));
    let (first, started) = (random::seed(), Instant::now());
    let (mut scenes, mut failed) = (0, Vec::new());
    while started.elapsed() < budget {
        let seed = first.wrapping_add(scenes);
        let kills = [0, 4, 20][scenes as usize % 3];
        let done = scene(seed, 4000, kills, "1");
        if done.code() != 0 {
            failed.push(seed);
        }
        scenes += 1;
    }
    println!("{scenes} scenes");
    assert!(failed.is_empty(), "scenes that failed, by TXOS_TEST_SEED: {failed:?}");
}
