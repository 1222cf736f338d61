//! Random transactions of several processes, undisturbed and with random kills.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::process::Signal;
use txos_engine::contention::Policy;
use txos_testkit::random::{self, Random};
use txos_testkit::realm_stress::Site;
use txos_testkit::realm_stress::points::VARIABLE;
use txos_testkit::realm_stress::site::counts;
use txos_testkit::{Lab, Running, skip};

use crate::WORKER;

/// Keys that are used at a time.
const LANES: u64 = 12;

/// Where a worker may kill itself.
const POINTS: &[&str] = &[
    "begun", "acquired", "prepared", "early", "publish", "half", "record", "word", "words", "wait",
    "settling", "settle",
];

/// Transactions of a run under one policy; one has some five operations.
fn transactions() -> u64 {
    if skip::long("realm") { 300_000 } else { 8_000 }
}

/// Workers that are killed in it.
fn kills() -> u64 {
    if skip::long("realm") { 400 } else { 30 }
}

struct Run<'a> {
    lab: &'a Lab,
    /// `None`: another one again and again.
    policy: Option<Policy>,
    seed: u64,
    kills: bool,
    /// Where workers may kill themselves.
    points: &'static [&'static str],
    /// The workers' mode.
    mode: &'static str,
}

impl Run<'_> {
    fn start(&self, site: &Site, random: &mut Random, at: &str) -> Running {
        let (lanes, seed) = (LANES.to_string(), random.bits().to_string());
        // Mostly one.
        let threads = (1 + random.below(6) / 4 + random.below(6) / 5).to_string();
        site.worker().args([self.mode, &lanes, &seed, &threads]).env(VARIABLE, at).start()
    }

    /// Runs it, and gives the number of operations that were checked.
    fn run(&self) -> usize {
        let mut random = Random::new(self.seed);
        let policy = self.policy.map_or("changing", Policy::name);
        let name = format!("{policy}-{}", self.kills);
        // Each transaction writes some three values, of which half go to a quarter of the lanes.
        let most = if self.kills { transactions().max(60_000) } else { transactions() };
        let cells = LANES * (most / 64 + 8);
        let site = Site::new(self.lab, &name, WORKER, cells as usize);
        site.realm.set_policy(self.policy.unwrap_or_default());
        site.cells.budget().store(most, Ordering::Relaxed);
        let started = Instant::now();
        let count = 2 + random.below(7);
        let mut workers: Vec<Running> =
            (0..count).map(|_| self.start(&site, &mut random, "")).collect();
        let (mut killed, mut next) = (0, 0);
        // Whoever is killed may have taken one of the budget with it.
        while self.kills && killed < kills() && next + 500 < most {
            site.wait_for_progress(next);
            if self.policy.is_none() {
                site.realm.set_policy(*random.pick(&Policy::ALL));
            }
            // One of them goes on, so that all is run in the end.
            let victim = 1 + random.below(count - 1) as usize;
            // From outside, wherever it is; or by itself, where it matters.
            let at = match random.below(3) {
                0 => String::new(),
                _ => format!("kill:{}@{}", random.pick(self.points), 1 + random.below(40)),
            };
            let replacement = self.start(&site, &mut random, &at);
            let victim = std::mem::replace(&mut workers[victim], replacement);
            victim.signal(Signal::KILL);
            killed += u64::from(victim.wait().killed());
            next =
                site.cells.progress().load(Ordering::Relaxed) + random.below(transactions() / 40);
        }
        // The rest is run only where there is time for it.
        if self.kills && !skip::long("realm") {
            site.cells.budget().store(0, Ordering::Relaxed);
        }
        let (mut commits, mut aborts, mut full) = (0, 0, 0);
        for worker in workers {
            let done = worker.wait();
            if self.kills && done.killed() {
                killed += 1;
                continue;
            }
            let counts = counts(&done.expect(0));
            let of = |name: &str| counts.get(name).copied().unwrap_or(0);
            commits += of("commits");
            aborts += of("aborts");
            full += of("full");
        }
        let time = started.elapsed();
        let statistics = site.realm.statistics();
        site.expect_idle();
        let summary = site.expect_sound();
        println!(
            "{policy:<12} {count} processes, {killed} killed: {:.0} operations/s; {summary}; {} \
             conflicts, {} dooms, {} yields, {} waits, {} takeovers, {full} found no room",
            summary.operations as f64 / time.as_secs_f64(),
            statistics.conflicts,
            statistics.dooms,
            statistics.yields,
            statistics.waits,
            site.realm.statistics().takeovers,
        );
        if self.kills {
            assert!(killed >= 10, "only {killed} were killed");
        } else {
            assert_eq!(statistics.commits, commits, "every commit is counted once");
            // Single calls try again by themselves.
            assert!(statistics.aborts >= aborts, "{} < {aborts}", statistics.aborts);
            assert_eq!(site.realm.statistics().takeovers, 0);
        }
        let enough = if self.kills && !skip::long("realm") { 1000 } else { 2 * transactions() };
        assert!(summary.operations as u64 > enough, "too few operations: {summary}");
        let _ = std::fs::remove_dir_all(site.dir());
        summary.operations
    }
}

fn every_policy(kills: bool) {
    let lab = Lab::in_memory();
    let seed = random::seed();
    println!("TXOS_TEST_SEED={seed}");
    let mut operations = 0;
    let changing = kills.then_some(None);
    for (n, policy) in Policy::ALL.into_iter().map(Some).chain(changing).enumerate() {
        let seed = seed.wrapping_add(n as u64);
        operations += Run { lab: &lab, policy, seed, kills, points: POINTS, mode: "mix" }.run();
    }
    println!("{operations} operations");
}

#[test]
fn random_transactions_are_strictly_serializable() {
    every_policy(false);
}

#[test]
fn random_kills_leave_nothing_half_done() {
    every_policy(true);
}

/// What the check is worth: workers that do not acquire what they read, or that forget what dead
/// ones had made visible in part, are found out.
#[test]
fn carelessness_is_found_out() {
    let lab = Lab::in_memory();
    let seed = random::seed();
    println!("TXOS_TEST_SEED={seed}");
    let points = &["record", "word"];
    for (mode, kills) in [("careless", false), ("forgetful", true)] {
        let run = Run { lab: &lab, policy: Some(Policy::default()), seed, kills, points, mode };
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.run()));
        let what = found.expect_err(mode);
        let what = what.downcast_ref::<String>().expect("an explanation");
        println!("{mode}: {}", what.chars().take(300).collect::<String>());
        let expected = if kills { "which of its writes are there" } else { "wrong: " };
        assert!(what.contains(expected), "{mode}: {what}");
    }
}
