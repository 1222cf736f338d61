//! Crash states, block by block: whatever of the writes that were not flushed a power cut leaves, after
//! recovery every transaction that was acknowledged is there, and every other whole or not at all.
//!
//! `./test --long blocks` goes on with random workloads, `$TXOS_TEST_SECONDS` on each file system (1800).
//! A seed (`$TXOS_TEST_SEED`) repeats the workloads and what is drawn; what a file system writes when is
//! not repeated by it, so a violation is told with the state in full.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code)]
#[path = "../../library/runtime/program.rs"]
mod program;
mod rig;
mod workload;

use std::time::{Duration, Instant};

use rig::{Extent, Tally};
use txos_testkit::block::{Cut, Kind};
use txos_testkit::random::{self, Random};
use txos_testkit::{require, skip};
use workload::Step::{Full, Light, Loaded, Names, Outside, Run};
use workload::{Bench, Workload};

/// Images of each file system in the short mode.
const IMAGES: usize = 200;

/// Runs the short mode, or the long one, on a file system.
fn crash_states(kind: Kind) {
    require!(kind.is_here(), "no {} on this machine", kind.name());
    let bench = Bench::new(kind);
    let long = skip::long("blocks");
    let seed =
        if long || std::env::var_os("TXOS_TEST_SEED").is_some() { random::seed() } else { 1 };
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    let begun = Instant::now();
    let seconds = std::env::var("TXOS_TEST_SECONDS").ok().and_then(|s| s.parse().ok());
    let until = begun + Duration::from_secs(if long { seconds.unwrap_or(1800) } else { 3600 });
    let mut workloads = vec![
        Workload { steps: vec![Run, Light, Light, Full, Run], before: vec![Light], mistake: None },
        // A store that is only being made.
        Workload { steps: vec![Light, Run, Full, Light, Full], before: vec![], mistake: None },
        Workload { steps: vec![Loaded, Light, Loaded, Loaded], before: vec![Light], mistake: None },
        Workload {
            steps: vec![Outside, Names, Light, Outside, Names, Names, Run],
            before: vec![Light],
            mistake: None,
        },
    ];
    let images = if long { 300 } else { IMAGES / workloads.len() };
    let mut recorded = 0;
    while let Some(workload) =
        workloads.pop().or_else(|| long.then(|| Workload::random(&mut random)))
    {
        if Instant::now() > until || !tally.wrong.is_empty() {
            break;
        }
        let recording = bench.record(workload);
        recorded += 1;
        let progress = long.then_some(Duration::from_secs(30));
        let extent = Extent { images, cuts: &Cut::ALL, until, progress, first: false };
        bench.explore(&recording, extent, &mut tally, &mut random);
    }
    println!(
        "blocks: {}: {recorded} workloads, {tally}; {:.0} s",
        kind.name(),
        begun.elapsed().as_secs_f64()
    );
    assert!(
        tally.wrong.is_empty(),
        "{} violations:\n{}",
        tally.wrong.len(),
        tally.wrong.join("\n")
    );
    assert!(tally.is_broad(), "something was not tried: {tally}");
}

#[test]
fn crash_states_on_ext4() {
    crash_states(Kind::Ext4);
}

#[test]
fn crash_states_on_xfs() {
    crash_states(Kind::Xfs);
}

#[test]
fn crash_states_on_btrfs() {
    crash_states(Kind::Btrfs);
}

/// What was acknowledged of commands that run as one transaction stays in the history, too.
fn commands_stay_in_the_history(kind: Kind) {
    require!(kind.is_here(), "no {} on this machine", kind.name());
    let bench = Bench::new(kind);
    let (mut tally, mut random) = (Tally::default(), Random::new(1));
    let until = Instant::now() + Duration::from_secs(120);
    let workload = Workload { steps: vec![Loaded; 4], before: vec![Light], mistake: None };
    let recording = bench.record(workload);
    let cuts = &[Cut::Prefix, Cut::Subset];
    let extent = Extent { images: 80, cuts, until, progress: None, first: true };
    bench.explore(&recording, extent, &mut tally, &mut random);
    println!("blocks: {}: commands in their process: {tally}", kind.name());
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
}

#[test]
fn commands_stay_in_the_history_on_ext4() {
    commands_stay_in_the_history(Kind::Ext4);
}

#[test]
fn commands_stay_in_the_history_on_xfs() {
    commands_stay_in_the_history(Kind::Xfs);
}

/// The rig is able to see: txos makes a mistake on purpose, and is found out.
fn found(mistake: &'static str, kind: Kind, steps: &[workload::Step], cuts: &'static [Cut]) {
    require!(kind.is_here(), "no {} on this machine", kind.name());
    let bench = Bench::new(kind);
    let mut tally = Tally::default();
    let mut random = Random::new(1);
    let until = Instant::now() + Duration::from_secs(120);
    let workload =
        Workload { steps: steps.to_vec(), before: vec![Light, Full], mistake: Some(mistake) };
    let recording = bench.record(workload);
    let extent = Extent { images: 600, cuts, until, progress: None, first: true };
    bench.explore(&recording, extent, &mut tally, &mut random);
    println!("blocks: {mistake}: {tally}");
    assert_eq!(tally.wrong.len(), 1, "{mistake} was not found: {tally}");
}

#[test]
fn a_plan_that_is_not_flushed_is_found() {
    found(
        "plan-not-flushed",
        Kind::Xfs,
        &[Full, Run, Full],
        &[Cut::Prefix, Cut::Subset, Cut::Torn],
    );
}

#[test]
fn a_publish_before_its_plan_is_complete_is_found() {
    found(
        "publish-before-plan",
        Kind::Xfs,
        &[Full, Run, Full],
        &[Cut::Prefix, Cut::Subset, Cut::Torn],
    );
}

#[test]
fn a_publish_that_is_not_flushed_is_found() {
    found("tree-not-flushed", Kind::Ext4, &[Full, Run, Full], &Cut::ALL);
}

#[test]
fn an_acknowledgement_before_its_flush_is_found() {
    found("done-not-flushed", Kind::Ext4, &[Full, Run, Full], &Cut::ALL);
}

#[test]
fn a_frame_whose_checksum_is_not_looked_at_is_found() {
    found("frame-not-checked", Kind::Ext4, &[Full, Run, Full], &[Cut::Torn]);
}

#[test]
fn a_rename_that_is_not_verified_is_found() {
    found("rename-not-verified", Kind::Ext4, &[Full, Run, Full], &Cut::ALL);
}

#[test]
fn a_boot_that_is_not_compared_is_found() {
    found("boot-not-compared", Kind::Ext4, &[Full, Run, Full], &Cut::ALL);
}

#[test]
fn a_record_that_is_not_flushed_is_found() {
    found("record-not-flushed", Kind::Ext4, &[Light, Light, Light], &Cut::ALL);
}

#[test]
fn a_record_whose_checksum_is_not_looked_at_is_found() {
    found("record-not-checked", Kind::Ext4, &[Light, Light, Light, Light], &[Cut::Torn]);
}

#[test]
fn a_log_that_is_emptied_before_its_flush_is_found() {
    found("place-not-flushed", Kind::Ext4, &[Light, Run, Light, Full], &Cut::ALL);
}

#[test]
fn a_record_of_names_that_is_not_flushed_is_found() {
    found("record-not-flushed", Kind::Ext4, &[Names, Names, Names], &Cut::ALL);
}

#[test]
fn names_that_are_forgotten_before_their_flush_are_found() {
    found("place-not-flushed", Kind::Ext4, &[Names, Run, Names, Full], &Cut::ALL);
}

#[test]
fn an_outsiders_change_that_is_not_flushed_is_found() {
    found("directory-not-flushed", Kind::Ext4, &[Outside, Names, Names], &Cut::ALL);
}
