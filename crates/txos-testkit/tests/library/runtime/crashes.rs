//! Whatever ends a process in a transaction, at whatever instant, and whatever fails at its end: all
//! of it has happened or nothing, and who comes next finds nothing in the way.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use txos_testkit::fault::{Fault, Outcome, Scenario, Sweep};
use txos_testkit::process::quote;
use txos_testkit::random::{self, Random};
use txos_testkit::user::User;
use txos_testkit::wait::{PATIENCE, until};
use txos_testkit::{Invocation, Lab, Rendezvous, Tree, skip};

use crate::place::start;
use crate::program::{Linked, program};

pub const PREPARE: &str = "
    umask 022
    mkdir -p d/inner gone/deep other turn known
    echo named > known/lost; ln known/lost kept; mkfifo known/pipe; ln known/pipe fifo
    echo content > changed; echo bye > removed; echo x > d/x; echo y > d/inner/y
    echo deep > gone/deep/file; echo owner > attributes; echo linked > other/one
    ln other/one other/two; ln -s changed link; echo file > turns
    echo t > turn/t; echo log > log; chmod 600 log
    head -c 200000 /dev/zero | tr '\\0' p > pages; head -c 9000 /dev/zero > mapped
    setfattr -n user.kept -v 1 changed
    find . -exec touch -h -d @1000000000 {} +";

/// What `c/change.c` does.
fn change(lab: &Lab, mode: &str) -> Invocation {
    start(lab, "change", Linked::WithLibrary).arg(mode)
}

/// Faults at every step of the commit.
fn sweep(mode: &'static str, fault: Fault) {
    let lab = Lab::in_memory();
    let native = quote(program("change", Linked::Natively)).into_string().unwrap();
    let script = format!("{native} plain");
    let scenario =
        Scenario { prepare: PREPARE, change: &script, options: &[], retains_links: false };
    Sweep::of(&lab, scenario, &|place| change(place, mode)).every_step(fault);
}

#[test]
fn killed_before_every_step_of_the_commit() {
    sweep("commit", Fault::Kill);
}

#[test]
fn killed_after_every_step_of_a_durable_commit() {
    sweep("durable", Fault::KillAfter);
}

#[test]
fn every_step_of_the_commit_fails_for_want_of_space() {
    sweep("commit", Fault::Fail("ENOSPC"));
}

#[test]
fn every_step_of_a_durable_commit_fails_with_an_io_error() {
    sweep("durable", Fault::Fail("EIO"));
}

#[test]
fn from_every_step_on_all_fail() {
    sweep("commit", Fault::FailFrom("EIO"));
}

/// A tree, and a place for the mark.
struct Scene {
    lab: Lab,
    mark: PathBuf,
    old: Tree,
}

impl Scene {
    fn new() -> Scene {
        let lab = Lab::in_memory();
        let _ = lab.native(PREPARE);
        let mark = lab.dir().join("mark");
        std::fs::write(&mark, [0]).unwrap();
        let old = Tree::of(lab.tree());
        Scene { lab, mark, old }
    }

    fn reached(&self) -> u8 {
        std::fs::read(&self.mark).unwrap()[0]
    }

    /// Nothing is left of it, and the next one can do the same.
    fn expect_old(&self) {
        self.old.expect_same(&Tree::of(self.lab.tree()));
        let _ = change(&self.lab, "commit").run().expect(0);
        assert_eq!(self.lab.read("changed"), "new\n");
        self.lab.expect_clean();
    }
}

#[test]
fn a_fault_of_its_own_aborts() {
    let scene = Scene::new();
    let _ = change(&scene.lab, "segv").run().expect(128 + 11);
    scene.expect_old();
}

#[test]
fn killed_within() {
    for stage in 1..=8_u8 {
        let scene = Scene::new();
        let victim = change(&scene.lab, "commit").arg(&scene.mark).arg(stage.to_string()).start();
        until("it has come so far", || scene.reached() == stage);
        scene.old.expect_same(&Tree::of(scene.lab.tree()));
        victim.signal(Signal::KILL);
        assert!(victim.wait().killed());
        scene.expect_old();
    }
}

/// Whoever comes next finishes or undoes it, also with a transaction of a single look at something else.
#[test]
fn a_single_look_finds_no_half_of_a_commit() {
    let mut found = 0;
    for step in (1..200).step_by(3) {
        let lab = Lab::in_memory();
        let _ = lab.native(PREPARE);
        let done = change(&lab, "commit").env("TXOS_FAULT", format!("kill@{step}")).run();
        if done.code() == 0 {
            break;
        }
        let halved = Tree::of(lab.tree());
        let _ = start(&lab, "mapped", Linked::WithLibrary).arg("look").run().expect(0);
        let seen = Tree::of(lab.tree());
        let _ = lab.txos(["recover"]).run().expect(0);
        seen.expect_same(&Tree::of(lab.tree()));
        found += u32::from(halved != seen);
    }
    assert!(found > 0, "no commit was killed half way");
}

/// Killed at any instant from `sys_xend` on.
#[test]
fn killed_at_the_end() {
    let rounds = if skip::long("crash") { 2000 } else { 60 };
    let seed = random::seed();
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let lab = Lab::in_memory();
    let native = quote(program("change", Linked::Natively)).into_string().unwrap();
    let script = format!("{native} plain");
    let scenario =
        Scenario { prepare: PREPARE, change: &script, options: &[], retains_links: false };
    let mark = lab.dir().join("mark");
    std::fs::write(&mark, [0]).unwrap();
    let started = |place: &Lab| change(place, "commit").arg(&mark);
    let mut sweep = Sweep::of(&lab, scenario, &started);
    // Later than the end takes at first; then it follows where the outcome changes.
    let mut longest = Duration::from_millis(20);
    let (mut old, mut new) = (0, 0);
    for round in 0..rounds {
        std::fs::write(&mark, [0]).unwrap();
        let after = longest.mul_f64(random.below(1000) as f64 / 1000.0);
        let attempt = sweep.killed_when(|| {
            let begun = Instant::now();
            while std::fs::read(&mark).unwrap().first().is_none_or(|n| *n < 100) {
                assert!(begun.elapsed() < PATIENCE, "it does not come to its end");
            }
            // Time is what is tried here: the instant of the kill.
            let from = Instant::now();
            while from.elapsed() < after {
                std::hint::spin_loop();
            }
        });
        let ended_well = attempt.run.code() == 0;
        match sweep.recovered(&attempt) {
            Ok(Outcome::New) => {
                new += 1;
                longest = longest.mul_f64(0.9).max(Duration::from_micros(100));
            }
            Ok(Outcome::Old) => {
                assert!(!ended_well, "round {round}: it said that it was committed");
                old += 1;
                longest = longest.mul_f64(1.15).min(Duration::from_millis(50));
            }
            Err(what) => panic!("round {round}, killed {after:?} after the mark: {what}"),
        }
    }
    assert!(old > 0 && new > 0, "{old} old, {new} new: killed at the wrong time");
}

/// A program that only reads recovers what was committed before a restart of the machine. Files that its user may not write to
/// any more, or never owned, keep it from nothing.
#[test]
fn files_that_are_others_keep_nobody_from_reading_after_a_restart() {
    let lab = Lab::in_memory();
    let user = User::new();
    let _ = lab.native("echo conf > conf; head -c 40960 /dev/zero > cells; chmod 666 cells");
    std::os::unix::fs::chown(lab.dir(), Some(user.uid), Some(user.gid)).unwrap();
    let blocks = |word: &str, boot: &str| {
        let run = start(&lab, "blocks", Linked::WithLibrary).arg(word);
        user.runs(run).env("TXOS_BOOT_ID", boot)
    };
    let mut meeting = Rendezvous::new();
    let running = blocks("l1", "before").meeting(&mut meeting).start();
    assert!(meeting.arrived(), "it commits");
    meeting.go();
    let _ = running.wait().expect(0);
    let written = std::fs::read(lab.path("cells")).unwrap();
    for mode in [0o666, 0o444, 0] {
        let boot = format!("after {mode}");
        std::fs::set_permissions(lab.path("cells"), PermissionsExt::from_mode(mode)).unwrap();
        let done = blocks("look", &boot).run().expect(0);
        assert_eq!(std::fs::read(lab.path("cells")).unwrap(), written, "{done:?}");
        // The first has told of everything.
        let _ = blocks("look", &boot).run().expect(0).says_not("missing");
    }
}
