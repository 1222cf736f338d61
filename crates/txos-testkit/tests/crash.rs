//! Whatever happens at whatever instant, the tree is all old or all new afterwards.

use txos_testkit::Lab;
use txos_testkit::fault::{Fault, Outcome, Scenario, Sweep};

/// One of everything that a commit does.
const EVERYTHING: Scenario<'_> = Scenario {
    prepare: "
        mkdir -p d/inner gone/deep other turn
        echo content > changed; echo bye > removed; echo x > d/x; echo y > d/inner/y
        echo deep > gone/deep/file; echo owner > attributes; echo linked > other/one
        ln other/one other/two; ln -s changed link; mkfifo pipe; echo file > turns
        echo t > turn/t; echo log > log; chmod 600 log
        setfattr -n user.kept -v 1 changed
        find . -exec touch -h -d @1000000000 {} +",
    change: "
        set -e
        echo new > changed
        rm removed
        mv d moved
        echo again > moved/x
        mkdir -p new/deep; echo f > new/deep/file; ln -s ../x new/link; mkfifo new/pipe
        rm -r gone
        chmod 4750 attributes; chown 1:2 attributes; setfattr -n user.x -v y attributes
        echo more >> other/one
        rm link; ln -s elsewhere link
        rm turns; mkdir turns; echo in > turns/in
        rm -r turn; echo now a file > turn
        ln log log2
        echo line >> log
        touch -d @1100000000 other",
    options: &[],
};

/// A few renames and nothing in place.
const RENAMES: Scenario<'_> = Scenario {
    prepare: "
        mkdir a; echo 1 > a/one; echo 2 > a/two; echo 3 > three
        find . -exec touch -h -d @1000000000 {} +",
    change: "echo new > a/one.new; mv a/one.new a/one; rm a/two; mv three a/three; echo 4 > four",
    options: &[],
};

#[test]
fn killed_before_every_step() {
    let lab = Lab::in_memory();
    Sweep::new(&lab, EVERYTHING).every_step(Fault::Kill);
}

#[test]
fn killed_after_every_step() {
    let lab = Lab::in_memory();
    Sweep::new(&lab, EVERYTHING).every_step(Fault::KillAfter);
}

#[test]
fn killed_at_every_step_without_flushing() {
    let lab = Lab::in_memory();
    let scenario = Scenario { options: &["--no-durable"], ..RENAMES };
    Sweep::new(&lab, scenario).every_step(Fault::Kill);
}

#[test]
fn every_step_fails_for_want_of_space() {
    let lab = Lab::in_memory();
    Sweep::new(&lab, EVERYTHING).every_step(Fault::Fail("ENOSPC"));
}

#[test]
fn every_step_fails_with_an_io_error() {
    let lab = Lab::in_memory();
    Sweep::new(&lab, EVERYTHING).every_step(Fault::Fail("EIO"));
}

#[test]
fn everything_fails_from_some_step_on() {
    let lab = Lab::in_memory();
    Sweep::new(&lab, RENAMES).every_step(Fault::FailFrom("EIO"));
}

/// Recovery is killed at each of its own steps, after a kill at each step of the commit (a sample
/// of them in the short mode), and then recovers.
#[test]
fn recovery_is_killed_at_every_step() {
    let lab = Lab::in_memory();
    let mut sweep = Sweep::new(&lab, if txos_testkit::skip::long("crash") { EVERYTHING } else { RENAMES });
    let mut wrong = Vec::new();
    let mut tried = 0;
    for step in 1..=sweep.steps.len() {
        let mut expected: Option<Outcome> = None;
        for recovery_step in 1.. {
            let attempt = sweep.with_fault(Fault::Kill, step);
            let recovery = attempt
                .place
                .txos(["recover"])
                .env("TXOS_FAULT", format!("kill@{recovery_step}"))
                .run();
            tried += 1;
            match sweep.recovered(&attempt) {
                Ok(outcome) if expected.is_none_or(|e| e == outcome) => expected = Some(outcome),
                Ok(outcome) => wrong.push(format!("{step}, {recovery_step}: now {outcome:?}")),
                Err(what) => wrong.push(format!("{step}, {recovery_step}: {what}")),
            }
            if !recovery.killed() {
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {tried} went wrong:\n{}", wrong.len(), wrong.join("\n"));
}
