//! Scenes with all kinds of participants. `TXOS_TEST_SEED` repeats the plans, as far as threads
//! allow; `TXOS_HISTORIES_SECONDS` says how long the long mode takes.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use txos_testkit::history::Kind;
use txos_testkit::image::Image;
use txos_testkit::mixed_workload::keys::{Door, Kind as Thing};
use txos_testkit::mixed_workload::scene::{Cast, Scene, Told};
use txos_testkit::random::Random;
use txos_testkit::{Lab, random, skip};

use crate::WORKER;

/// Runs a scene in a place of its own, and tells of it in a line.
fn scene(lab: &Lab, name: &str, cast: &Cast, seed: u64) -> Told {
    let place = lab.nested(&format!("{name}-{seed}"));
    let started = Instant::now();
    let told = Scene::new(&place, WORKER).run(cast, seed);
    println!("{name} (seed {seed}), {:.1} s: {}", started.elapsed().as_secs_f64(), told.line());
    let mut surprises = told.surprises.clone();
    surprises.sort();
    surprises.dedup();
    for surprise in surprises.iter().take(20) {
        println!("    {surprise}");
    }
    if std::env::var_os("TXOS_HISTORIES_TOLD").is_some() {
        print!("{}", told.witnesses(&told.seen));
    }
    told
}

fn seed() -> u64 {
    let seed = random::seed();
    println!("TXOS_TEST_SEED={seed}");
    seed
}

/// That of a door committed at least so many.
fn expect_commits(told: &Told, least: &[(Door, usize)]) {
    let outcomes = told.outcomes();
    for (door, least) in least {
        let committed = outcomes.get(door).map_or(0, |n| n[0]);
        assert!(committed >= *least, "only {committed} of {}: {}", door.name(), told.line());
    }
}

#[test]
fn programs_among_themselves() {
    let lab = Lab::in_memory();
    let cast = Cast { inside: 3, single: 1, count: 1000, pauses: (200, 0), ..Cast::default() };
    let told = scene(&lab, "programs", &cast, seed());
    told.expect_serializable();
    assert!(told.seen.is_clean());
    expect_commits(&told, &[(Door::Inside, 1000), (Door::Single, 20)]);
}

/// Through both front doors at once.
fn doors() -> Cast {
    Cast { inside: 2, single: 1, command: 2, count: 25, pauses: (3000, 0), ..Cast::default() }
}

#[test]
fn commands_and_programs() {
    let lab = Lab::in_memory();
    let told = scene(&lab, "commands and programs", &doors(), seed());
    told.expect_serializable();
    expect_commits(&told, &[(Door::Inside, 20), (Door::Command, 5)]);
}

#[test]
fn with_outsiders() {
    let lab = Lab::in_memory();
    let cast = Cast { outside: 2, pauses: (3000, 5000), ..doors() };
    let told = scene(&lab, "with outsiders", &cast, seed());
    told.expect_serializable();
    expect_commits(&told, &[(Door::Inside, 20), (Door::Command, 5), (Door::Outside, 50)]);
}

/// Commands of both views, those of the library's of one process and of several, beside programs.
fn views() -> Cast {
    Cast { command: 1, library: 2, count: 10, ..doors() }
}

#[test]
fn commands_of_both_views() {
    let lab = Lab::in_memory();
    for outside in [0, 1] {
        let cast = Cast { outside, pauses: (3000, 5000), ..views() };
        let told = scene(&lab, &format!("both views, {outside} outside"), &cast, seed());
        told.expect_serializable();
        expect_commits(&told, &[(Door::Inside, 10), (Door::Command, 3), (Door::Library, 3)]);
    }
}

#[test]
fn commands_of_the_librarys_view_with_kills() {
    let lab = Lab::in_memory();
    // The scene waits for these.
    let cast = Cast { kills: (20, 40), command: 0, pauses: (1000, 0), delayed: true, ..views() };
    let told = scene(&lab, "the library's view, with kills", &cast, seed());
    told.expect_serializable();
    expect_commits(&told, &[(Door::Library, 3)]);
}

/// Of commits of several files, behind the gate, nobody who opens a file sees a half.
#[test]
fn behind_the_gate() {
    let lab = Lab::in_memory();
    let pauses = (3000, 2000);
    let cast = Cast { command: 3, outside: 3, count: 20, gated: true, pauses, ..Cast::default() };
    let told = scene(&lab, "behind the gate", &cast, seed());
    told.expect_serializable();
    let seen = told.seen_of(&[Thing::Register, Thing::List]);
    assert!(seen.is_clean(), "{}\n{}", told.line(), told.witnesses(&seen));
    expect_commits(&told, &[(Door::Command, 10), (Door::Outside, 50)]);
}

#[test]
fn with_delays() {
    let lab = Lab::in_memory();
    let cast = Cast { delayed: true, inside: 3, command: 3, count: 40, ..doors() };
    let told = scene(&lab, "with delays", &cast, seed());
    told.expect_serializable();
    expect_commits(&told, &[(Door::Inside, 20), (Door::Command, 5)]);
}

#[test]
fn with_kills() {
    let lab = Lab::in_memory();
    let cast = Cast { kills: (60, 50), count: 40, pauses: (1000, 0), ..doors() };
    let mut killed = 0;
    for delayed in [false, true] {
        let cast = Cast { delayed, ..cast.clone() };
        let told = scene(&lab, &format!("with kills, delayed: {delayed}"), &cast, seed());
        told.expect_serializable();
        killed += told.killed;
    }
    assert!(killed > 3, "only {killed} were killed");
}

/// Between a kill and the recovery outsiders act upon what is half there. What they append is in the tree in the end, or among
/// what the store has rescued.
#[test]
fn appends_of_outsiders_beside_kills() {
    let mut killed = 0;
    for n in 0..3 {
        let lab = Lab::in_memory();
        let cast = Cast {
            inside: 3,
            outside: 2,
            count: 500,
            kills: (40, 40),
            pauses: (300, 500),
            delayed: n % 2 == 1,
            ..Cast::default()
        };
        let told = scene(&lab, "appends, with kills", &cast, seed().wrapping_add(n));
        let lost = told.strict.counts.get(&Kind::LostAppend);
        assert!(lost.is_none(), "{}\n{}", told.line(), told.witnesses(&told.strict));
        killed += told.killed;
    }
    assert!(killed > 3, "only {killed} were killed");
}

/// What all this is worth: programs that begin no transactions are found out.
#[test]
fn carelessness_is_found_out() {
    let lab = Lab::in_memory();
    let cast = Cast { inside: 3, count: 700, careless: true, ..Cast::default() };
    let told = scene(&lab, "careless", &cast, seed());
    assert!(told.strict.counts.len() > 1, "{}", told.line());
}

/// Scenes of all sorts, one after the other, on file systems of several kinds.
#[test]
fn for_a_long_time() {
    txos_testkit::require!(skip::long("histories"), "a long mode: ./test --long histories");
    let seconds = std::env::var("TXOS_HISTORIES_SECONDS").ok().and_then(|n| n.parse().ok());
    let budget = Duration::from_secs(seconds.unwrap_or(900));
    let first = seed();
    let started = Instant::now();
    let mut seen: BTreeMap<Kind, usize> = BTreeMap::new();
    let mut sums: BTreeMap<Door, [usize; 3]> = BTreeMap::new();
    let mut halves: BTreeMap<Kind, usize> = BTreeMap::new();
    let (mut scenes, mut killed, mut aside, mut failed) = (0, 0, 0, Vec::new());
    while started.elapsed() < budget {
        let seed = first.wrapping_add(scenes);
        let mut random = Random::new(seed);
        let kind = *random.pick(&["tmpfs", "tmpfs", "ext3", "ext4", "xfs", "btrfs"]);
        let lab = Lab::in_memory();
        let image = (kind != "tmpfs").then(|| Image::mount(&lab, kind, 600, kind)).flatten();
        let lab = match &image {
            Some(image) => lab.at(&image.point),
            None => lab,
        };
        let kills = if random.below(2) == 0 { (40, 40) } else { (0, 0) };
        let cast = Cast {
            inside: 1 + random.below(3) as u32,
            single: random.below(2) as u32,
            command: random.below(4) as u32,
            outside: random.below(3) as u32,
            count: 40,
            kills,
            delayed: random.below(2) == 0,
            pauses: (*random.pick(&[100, 1000, 5000]), *random.pick(&[500, 5000])),
            ..Cast::default()
        };
        let cast = Cast { library: random.below(4) as u32, ..cast };
        let cast = match (cast.command, cast.library) {
            (0, 0) => Cast { count: 1500, ..cast },
            _ => cast,
        };
        // Between a kill and the recovery outsiders act upon what is half there, and what they have
        // changed stays: that is counted. What they append is not lost.
        let counted = cast.kills.0 > 0 && cast.outside > 0;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let told = scene(&lab, &format!("{kind} {cast:?}"), &cast, seed);
            if counted {
                print!("{}", told.witnesses(&told.strict));
                assert!(!told.strict.counts.contains_key(&Kind::LostAppend), "{}", told.line());
            } else {
                told.expect_serializable();
            }
            told
        }));
        scenes += 1;
        match ran {
            Ok(told) => {
                killed += told.killed;
                aside += told.aside;
                for (kind, n) in &told.strict.counts {
                    *halves.entry(*kind).or_default() += n;
                }
                for (kind, n) in told.seen_by_outsiders() {
                    *seen.entry(kind).or_default() += n;
                }
                for (door, outcomes) in told.outcomes() {
                    let sum = sums.entry(door).or_default();
                    sum.iter_mut().zip(outcomes).for_each(|(sum, n)| *sum += n);
                }
            }
            Err(_) => failed.push(seed),
        }
        eprintln!(
            "histories: {} of {} s, {scenes} scenes, {} failed, {killed} killed; {sums:?} (committed, \
             aborted, unknown); outsiders saw {seen:?}, {aside} of their changes were set aside; \
             after kills, with outsiders: {halves:?}",
            started.elapsed().as_secs(),
            budget.as_secs(),
            failed.len()
        );
    }
    assert!(failed.is_empty(), "scenes that failed, by TXOS_TEST_SEED: {failed:?}");
}
