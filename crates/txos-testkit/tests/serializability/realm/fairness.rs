//! Who gets through: a long transaction among short ones, and an important process among others.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use txos_engine::contention::Policy;
use txos_testkit::realm_stress::Site;
use txos_testkit::realm_stress::points::VARIABLE;
use txos_testkit::realm_stress::site::counts;
use txos_testkit::realm_stress::starve::ATTEMPTS_MAX;
use txos_testkit::{Invocation, Lab, Rendezvous, Running, skip};

use crate::WORKER;

/// Cells; the long transaction touches half of them.
const CELLS: usize = 1000;

/// Attempts within which a long one commits where nobody starves.
fn bound(policy: Policy) -> Option<u64> {
    match policy {
        Policy::OsPriority | Policy::Timestamp => Some(5),
        // By size until four restarts, then by age.
        Policy::SizeMatters => Some(10),
        Policy::Karma | Policy::Polka | Policy::Polite => None,
    }
}

fn short(site: &Site, cells: usize, seed: u64, yields: u32, nice: i32) -> Invocation {
    let words = [cells.to_string(), seed.to_string(), yields.to_string(), nice.to_string()];
    site.worker().arg("short").args(words)
}

/// How important this test is.
fn nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap()
}

/// Starts them, and lets none begin before all are there.
fn together(shorts: impl Iterator<Item = Invocation>) -> Vec<Running> {
    let all: Vec<(Running, Rendezvous)> = shorts
        .map(|short| {
            let mut meeting = Rendezvous::new();
            (short.env(VARIABLE, "meet:ready").meeting(&mut meeting).start(), meeting)
        })
        .collect();
    all.iter().for_each(|(_, meeting)| assert!(meeting.arrived()));
    all.iter().for_each(|(_, meeting)| meeting.go());
    all.into_iter().map(|(running, _)| running).collect()
}

fn ended(running: Running) -> (u32, BTreeMap<String, u64>) {
    let pid = running.pid().as_raw_nonzero().get().cast_unsigned();
    (pid, counts(&running.wait().expect(0)))
}

#[test]
fn a_long_transaction_gets_through_where_nobody_starves() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for policy in Policy::ALL {
        for round in 0..if skip::long("realm") { 20 } else { 1 } {
            let site = Site::new(&lab, &format!("{policy}-{round}"), WORKER, CELLS);
            site.realm.set_policy(policy);
            site.cells.budget().store(u64::MAX, Ordering::Relaxed);
            let shorts = together((0..4).map(|n| short(&site, CELLS, n, 0, nice())));
            let long = site.worker().arg("long").arg(CELLS.to_string()).start();
            let (_, counts) = ended(long);
            let (mut done, mut attempts) = (0, 0);
            for running in shorts {
                let (_, counts) = ended(running);
                done += counts.get("committed").unwrap_or(&0);
                attempts += counts.get("attempts").unwrap_or(&0);
            }
            let fate = if counts["committed"] == 1 { "committed" } else { "starved" };
            println!(
                "{policy:<12} the long one {fate} after {} attempts, while the short ones \
                 committed {}; those took {:.3} attempts each",
                counts["attempts"],
                counts["meanwhile"],
                attempts as f64 / done as f64
            );
            match bound(policy) {
                Some(most) if counts["committed"] != 1 || counts["attempts"] > most => {
                    wrong.push(format!("{policy}: {counts:?}"));
                }
                _ => assert!(counts["attempts"] <= u64::from(ATTEMPTS_MAX)),
            }
            let sum = |cells: std::ops::Range<usize>| {
                cells.fold(0u64, |sum, cell| {
                    sum.wrapping_add(site.cells.read(cell).first().copied().unwrap_or(0))
                })
            };
            assert_eq!((sum(0..CELLS / 2), sum(CELLS / 2..CELLS)), (0, 0), "{policy}");
            site.expect_idle();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_normal_process_never_loses_to_a_niced_one() {
    let lab = Lab::in_memory();
    let site = Site::new(&lab, "nice", WORKER, 8);
    site.realm.set_policy(Policy::OsPriority);
    let each = if skip::long("realm") { 1_000_000 } else { 30_000 };
    site.cells.budget().store(each, Ordering::Relaxed);
    // As important as this test, and less.
    let nice = nice().clamp(0, 9);
    let all = [nice, nice, nice + 10, nice + 10].into_iter().zip(0..);
    let mut all = together(all.map(|(nice, n)| short(&site, 8, n, 1, nice)));
    let niced = all.split_off(2);
    let lost = |counts: &BTreeMap<String, u64>, to: &[u32]| -> u64 {
        to.iter().filter_map(|pid| counts.get(&format!("lost-to-{pid}"))).sum()
    };
    let normal: Vec<_> = all.into_iter().map(ended).collect();
    let niced: Vec<_> = niced.into_iter().map(ended).collect();
    let pids =
        |of: &[(u32, BTreeMap<String, u64>)]| of.iter().map(|(pid, _)| *pid).collect::<Vec<_>>();
    let (normal_pids, niced_pids) = (pids(&normal), pids(&niced));
    let mut niced_lost = 0;
    for (_, counts) in &normal {
        assert_eq!(lost(counts, &niced_pids), 0, "{counts:?}");
    }
    for (_, counts) in &niced {
        niced_lost += lost(counts, &normal_pids);
    }
    println!("the niced ones lost {niced_lost} times to the normal ones: {normal:?} {niced:?}");
    assert!(niced_lost > 0, "they never met");
    site.expect_idle();
}
