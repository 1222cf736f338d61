//! All attacks at once, in an order and with numbers drawn anew: `./test --long attack`, for `$TXOS_TEST_SECONDS`.

use std::process::Command;
use std::time::{Duration, Instant};

use txos_testkit::random::{self, Random};
use txos_testkit::skip;

/// How long, unless something else is said.
const SECONDS: u64 = 3600;

/// How many go on at a time.
const AT_ONCE: usize = 2;

/// The other tests of this program. Each is a process of its own, in its short mode.
fn attacks(me: &std::path::Path) -> Vec<String> {
    let listed = Command::new(me).args(["--list", "--format", "terse"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    tests.filter(|name| !name.starts_with("mixed::")).map(str::to_owned).collect()
}

#[test]
fn all_attacks_at_once_win_nothing() {
    txos_testkit::require!(skip::long("attack"), "the long mode `attack` was not asked for");
    let seconds = std::env::var("TXOS_TEST_SECONDS").ok().and_then(|s| s.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let me = std::env::current_exe().unwrap();
    let all = attacks(&me);
    let seed = random::seed();
    println!("TXOS_TEST_SEED={seed}, {} attacks", all.len());
    let turns: Vec<u32> = std::thread::scope(|scope| {
        let threads = (0..AT_ONCE as u64).map(|n| {
            let (me, all) = (&me, &all);
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_add(n));
                let mut turns = 0;
                while Instant::now() < until {
                    let (name, seed) = (random.pick(all), random.below(1 << 32).to_string());
                    // One that hangs has won as well.
                    let mut one = Command::new("timeout");
                    let one = one.args(["-k", "9", "1200"]).arg(me).args(["--exact", name]);
                    let one = one.env("TXOS_TEST_LONG", "").env("TXOS_TEST_SEED", &seed);
                    let done = one.output().unwrap();
                    let said = String::from_utf8_lossy(&done.stdout);
                    let status = done.status.code();
                    assert_eq!(status, Some(0), "{name}, TXOS_TEST_SEED={seed}: {said}");
                    turns += 1;
                }
                turns
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    println!("{turns:?} turns, nothing won");
}
