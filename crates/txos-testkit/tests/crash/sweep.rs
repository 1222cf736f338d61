//! Every fault at every step of what the command does: a sample of them in the short mode, as many as
//! there is time for in the long one (`./test --long sweep`). One that failed is tried again with its
//! name: `TXOS_TEST_POINT=EIO@look:17+`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use txos_testkit::fault::EVERYTHING;
use txos_testkit::fault_matrix::{Budget, Case, Matrix, nothing_more};
use txos_testkit::image::Image;
use txos_testkit::random::{self, Random};
use txos_testkit::tree::Tolerance;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Tree, require_some, skip};

const PREPARE: &str = EVERYTHING.prepare;
const CHANGE: &str = EVERYTHING.change;

/// txos failed, or says that others were first.
const REFUSALS: [i32; 2] = [125, 75];

/// Where private copies are made by the command's own calls, a call may fail, and the command ends with what `sh` or its
/// programs say of that.
const REFUSALS_OF_THE_COMMAND: [i32; 4] = [125, 75, 1, 2];

fn budget(points: usize) -> Budget {
    Budget { points, time: Duration::from_secs(240) }
}

fn prepare(lab: &Lab) {
    let _ = lab.native(PREPARE);
}

#[test]
fn run() {
    let lab = Lab::in_memory();
    let operation = |place: &Lab| -> Invocation { place.script(&[], CHANGE) };
    let case = Case {
        name: "run",
        prepare: &prepare,
        operation: &operation,
        native: Some((PREPARE, CHANGE)),
        half: false,
        dead: false,
        refusals: &REFUSALS,
        afterwards: &nothing_more,
    };
    Matrix::new(&lab, case).sweep(budget(28));
}

/// A process outside that notes which signals it gets.
const LISTENER: &str = "
    trap 'echo >> got' USR1; trap 'echo >> asked' USR2; trap 'exit 0' TERM
    : > got; : > asked; echo > ready; while :; do sleep 0.01; done";

/// How many lines a file of the listener's has.
fn lines(outside: &Lab, name: &str) -> usize {
    outside.read(name).lines().count()
}

/// A signal to a process outside and output are held: what is not committed sends neither, what says that it is has sent both.
#[test]
fn run_with_effects_that_are_held() {
    let lab = Lab::in_memory();
    let outside = lab.nested("outside");
    let listener = Invocation::shell(LISTENER).dir(outside.tree()).start();
    until("the listener is ready", || outside.path("ready").exists());
    let change = format!("{CHANGE}; echo said; kill -USR1 {}", listener.pid().as_raw_nonzero());
    let before = Cell::new(0);
    let case = Case {
        name: "effects",
        prepare: &prepare,
        operation: &|place| {
            before.set(lines(&outside, "got"));
            place.script(&["--hold-output"], &change)
        },
        native: Some((PREPARE, CHANGE)),
        half: false,
        dead: false,
        refusals: &REFUSALS,
        afterwards: &|place, done| {
            // A signal with a higher number, after which the first one has been handled.
            let asked = lines(&outside, "asked");
            listener.signal(Signal::USR2);
            until("the listener answers", || lines(&outside, "asked") > asked);
            let sent = lines(&outside, "got") - before.get();
            let said = done.text() == "said\n";
            let right = match (place.path("new/deep/file").exists(), done.killed(), done.code()) {
                (true, false, 0) => sent == 1 && said,
                (true, true, _) => sent <= 1,
                (true, ..) => false,
                (false, ..) => sent == 0 && done.text().is_empty(),
            };
            right.then_some(()).ok_or(format!("{sent} signals were sent"))
        },
    };
    let mut matrix = Matrix::new(&lab, case);
    // Around the end of the commit, when they are sent.
    matrix.killed_at_the_last(6);
    matrix.sweep(budget(16));
    listener.signal(Signal::TERM);
    let _ = listener.wait().expect(0);
}

/// The same of signals in the library's view: the process that has the transaction sends them, when the command has ended or when
/// `txos` has decided.
#[test]
fn run_in_the_librarys_view_with_signals_that_are_held() {
    for (name, options) in [("signals", &[][..]), ("signals decided", &["--retry", "0"])] {
        let lab = Lab::in_memory();
        let outside = lab.nested("outside");
        let listener = Invocation::shell(LISTENER).dir(outside.tree()).start();
        until("the listener is ready", || outside.path("ready").exists());
        let change = format!("kill -USR1 {}; {CHANGE}", listener.pid().as_raw_nonzero());
        let before = Cell::new(0);
        let case = Case {
            name,
            prepare: &prepare,
            operation: &|place| {
                before.set(lines(&outside, "got"));
                let words = ["--", "sh", "-c", &change];
                place.txos([&["run", "--view", "library"], options, &words].concat())
            },
            native: Some((PREPARE, CHANGE)),
            half: false,
            dead: false,
            refusals: &REFUSALS_OF_THE_COMMAND,
            afterwards: &|place, done| {
                let asked = lines(&outside, "asked");
                listener.signal(Signal::USR2);
                until("the listener answers", || lines(&outside, "asked") > asked);
                let sent = lines(&outside, "got") - before.get();
                // One that ends with a status of its own has failed by itself, and that is said.
                if let status @ (1 | 2) = done.code()
                    && !done.stderr.contains(&format!("exited with status {status}; rolled back"))
                {
                    return Err(format!("it does not say that the command failed: {done:?}"));
                }
                let right = match (place.path("new/deep/file").exists(), done.killed(), done.code())
                {
                    (true, false, 0) => sent == 1,
                    // The process that has the transaction is killed right after the commit.
                    (true, ..) => sent <= 1,
                    (false, ..) => sent == 0,
                };
                right.then_some(()).ok_or(format!("{sent} signals were sent"))
            },
        };
        let mut matrix = Matrix::new(&lab, case);
        matrix.killed_at_the_last(6);
        matrix.sweep(budget(12));
        listener.signal(Signal::TERM);
        let _ = listener.wait().expect(0);
    }
}

/// Directories of an image that are removed, moved and replaced, with what is in them.
const PREPARE_IMAGE: &str = "mkdir -p gone/e/deep moved/in/deep replaced/x; echo x > gone/e/x; echo y > gone/y; ln -s y gone/link; mkfifo gone/e/fifo; \
    echo f > moved/in/f; echo g > moved/g; echo z > replaced/x/z; chmod 2750 gone/e moved/in; setfattr -n user.k -v v gone/e moved/in; \
    find . -depth -exec touch -h -d @1000000000 {} +";
const CHANGE_IMAGE: &str = "rm -r gone; mv moved other; chmod 700 other/in; echo more >> other/in/f; rm other/g; rm -r replaced; mkdir replaced; \
    echo new > replaced/new";

/// What is there before is in the lower layer of an overlay, as in a container: the kernel refuses to rename its directories.
fn of_an_image(run: impl Fn(&Lab, &dyn Fn(&Lab))) {
    let lab = Lab::in_memory();
    let overlay =
        require_some!(Image::overlay(&lab, "ext4", 200, ":"), "no overlay can be mounted here");
    run(&lab.at(&overlay.top.point), &|place| {
        let _ = place.native(PREPARE_IMAGE);
        overlay.sink();
    });
}

fn in_the_librarys_view(place: &Lab) -> Invocation {
    place.script(&["--view", "library"], CHANGE_IMAGE)
}

#[test]
fn directories_of_an_image() {
    of_an_image(|lab, prepare| {
        let case = |name| Case {
            name,
            prepare,
            operation: &in_the_librarys_view,
            native: Some((PREPARE_IMAGE, CHANGE_IMAGE)),
            half: false,
            dead: false,
            refusals: &REFUSALS_OF_THE_COMMAND,
            afterwards: &nothing_more,
        };
        Matrix::new(lab, case("image")).sweep(budget(36));
        Matrix::new(lab, case("image undo")).sweep_after("EIO", budget(24));
    });
}

#[test]
fn recovery_of_directories_of_an_image() {
    of_an_image(|lab, prepare| {
        let sample = lab.nested("sample");
        prepare(&sample);
        let count = sample.dir().join("count");
        let _ = in_the_librarys_view(&sample).env("TXOS_FAULT_COUNT", &count).run().expect(0);
        let steps = txos_testkit::fault::steps_in(&count);
        // Where directories are made anew, and where the rest is published.
        let removed = steps.iter().position(|step| step == "unlink").unwrap() + 1;
        let last = steps.iter().rposition(|step| step == "rename").unwrap() + 1;
        for (name, at) in [("image early", removed), ("image late", (removed + last) / 2)] {
            let case = Case {
                name,
                prepare: &|place| {
                    prepare(place);
                    let fault = format!("kill@{at}");
                    let _ = in_the_librarys_view(place).env("TXOS_FAULT", fault).run();
                },
                operation: &|place| place.txos(["recover"]),
                native: Some((PREPARE_IMAGE, CHANGE_IMAGE)),
                half: true,
                dead: true,
                refusals: &REFUSALS,
                afterwards: &nothing_more,
            };
            Matrix::new(lab, case).sweep(budget(10));
        }
    });
}

/// What a revert begins with.
fn committed(lab: &Lab) {
    prepare(lab);
    let _ = lab.script(&["--no-durable"], CHANGE).run().expect(0);
}

/// What `txos commit` and `txos abort` begin with.
fn pending(lab: &Lab) {
    prepare(lab);
    let _ = lab.script(&["--keep"], CHANGE).run().expect(0);
}

#[test]
fn revert() {
    let lab = Lab::in_memory();
    let case = Case {
        name: "revert",
        prepare: &committed,
        operation: &|place| place.txos(["revert", "@"]),
        native: Some((PREPARE, ":")),
        half: false,
        dead: false,
        refusals: &REFUSALS,
        afterwards: &nothing_more,
    };
    Matrix::new(&lab, case).sweep(budget(20));
}

#[test]
fn commit_of_a_pending_one() {
    let lab = Lab::in_memory();
    let case = Case {
        name: "commit pending",
        prepare: &pending,
        operation: &|place| place.txos(["commit", "@"]),
        native: Some((PREPARE, CHANGE)),
        half: false,
        dead: false,
        refusals: &REFUSALS,
        // It is committed, or pending and can be committed again.
        afterwards: &|place, done| {
            let states: Vec<String> = place.held().transactions.into_iter().map(|t| t.1).collect();
            match states.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["committed"] => Ok(()),
                ["pending"] => {
                    let again = place.txos(["commit", "@"]).run();
                    let committed = again.code() == 0 && place.path("new/deep/file").exists();
                    // docs/limits.md: it may then be in conflict with its own traces.
                    let twice = done.stderr.contains("undoing it failed as well");
                    let traces = "tree/attributes: its attributes were changed";
                    let traced = twice && again.code() == 75 && again.stderr.contains(traces);
                    (committed || traced).then_some(()).ok_or(format!("again: {again:?}"))
                }
                _ => Err(format!("in the store: {states:?}")),
            }
        },
    };
    Matrix::new(&lab, case).sweep(budget(14));
}

/// A publish that was undone, at once or by recovery, is nobody's change.
#[test]
fn what_was_undone_can_be_committed_again() {
    let lab = Lab::in_memory();
    let sample = lab.nested("sample");
    pending(&sample);
    let count = sample.dir().join("count");
    let _ = sample.txos(["commit", "@"]).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = txos_testkit::fault::steps_in(&count);
    let last = steps.iter().rposition(|step| step == "rename").unwrap() + 1;
    // Before the first object is touched, too: undoing touches it.
    let planned = steps.iter().position(|step| step == "fdatasync").unwrap();
    let first = planned + steps[planned..].iter().position(|step| step == "chmod").unwrap() + 1;
    for (name, fault) in [
        ("failed", format!("EIO@{last}")),
        ("killed", format!("kill@{last}")),
        ("killed-early", format!("kill@{first}")),
    ] {
        let place = lab.nested(name);
        pending(&place);
        let done = place.txos(["commit", "@"]).env("TXOS_FAULT", fault).run();
        if name == "failed" {
            let _ = done.expect(125).says("nothing is published");
        } else {
            assert!(done.killed());
        }
        assert!(place.path("gone/deep/file").exists() || name != "failed");
        let _ = place.txos(["commit", "@"]).run().expect(0);
        assert_eq!(place.read("changed"), "new\n");
        // What somebody else changes meanwhile is one.
        let place = lab.nested(&format!("{name}-outsider"));
        pending(&place);
        let fault = format!("EIO@{last}");
        let _ = place.txos(["commit", "@"]).env("TXOS_FAULT", fault).run().expect(125);
        let _ = place.native("chmod 600 changed");
        let _ = place.txos(["commit", "@"]).run().expect(75).says("changed");
    }
}

/// A publish that fails, and whose undo fails as well, is undone by recovery at once: nobody has to run
/// `txos recover`, and nobody waits for this transaction.
#[test]
fn an_undo_that_fails_once_leaves_nothing_to_recover() {
    let lab = Lab::in_memory();
    let sample = lab.nested("sample");
    pending(&sample);
    let before = Tree::of(sample.tree());
    let count = sample.dir().join("count");
    let _ = sample.txos(["commit", "@"]).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = txos_testkit::fault::steps_in(&count);
    let last = steps.iter().rposition(|step| step == "rename").unwrap() + 1;
    for (n, second) in (1..=12).enumerate() {
        let place = lab.nested(&format!("twice-{n}"));
        pending(&place);
        let fault = format!("EIO@{last},EIO@{}", last + second);
        let done = place.txos(["commit", "@"]).env("TXOS_FAULT", &fault).run().expect(125);
        assert!(!done.stderr.contains("recover"), "{fault}: {done:?}");
        let difference = before.difference(&Tree::of(place.tree()), Tolerance::default());
        assert!(difference.is_empty(), "{fault}: {difference}");
        let _ = place.txos(["recover"]).run().expect(0).says("nothing to recover");
    }
}

#[test]
fn commit_of_a_part() {
    part("overlay", 14);
}

#[test]
fn commit_of_a_part_from_the_librarys_view() {
    part("library", 14);
}

fn part(view: &str, share: usize) {
    let lab = Lab::in_memory();
    let change = "echo new > changed; mkdir -p new/deep; echo f > new/deep/file; ln new/deep/file new/link; rm -r gone";
    let case = Case {
        name: &format!("commit part, {view}"),
        prepare: &|place| {
            prepare(place);
            let kept = format!("{change}; rm removed; echo line >> log");
            let _ = place.script(&["--keep", "--view", view], &kept).run().expect(0);
        },
        operation: &|place| place.txos(["commit", "@", "changed", "new", "gone"]),
        native: Some((PREPARE, change)),
        half: false,
        dead: false,
        refusals: &REFUSALS,
        // The rest can be committed.
        afterwards: &|place, _| {
            let list = place.txos(["list", "--json"]).run().json();
            let pending = list["transactions"].as_array().and_then(|all| {
                all.iter().find(|t| t["state"] == "pending").and_then(|t| t["id"].as_str())
            });
            let Some(id) = pending else { return Err(format!("nothing is pending: {list}")) };
            let done = place.txos(["commit", id]).run();
            if done.code() != 0
                || place.path("removed").exists()
                || !place.path("new/deep").exists()
            {
                return Err(format!("the rest: {done:?}"));
            }
            Ok(())
        },
    };
    let mut matrix = Matrix::new(&lab, case);
    // What is left to do when the part is published, and may have to be done again.
    matrix.killed_at_the_last(9);
    matrix.sweep(budget(share));
}

#[test]
fn abort() {
    let lab = Lab::in_memory();
    let case = Case {
        name: "abort",
        prepare: &pending,
        operation: &|place| place.txos(["abort", "@"]),
        native: None,
        half: false,
        dead: false,
        refusals: &REFUSALS,
        // Still there, it can be aborted.
        afterwards: &|place, _| {
            if place.held().transactions.is_empty() {
                return Ok(());
            }
            let done = place.txos(["abort", "@"]).run();
            if done.code() != 0 || !place.held().transactions.is_empty() {
                return Err(format!("again: {done:?}, {:?}", place.held()));
            }
            Ok(())
        },
    };
    Matrix::new(&lab, case).sweep(budget(10));
}

#[test]
fn gc() {
    let lab = Lab::in_memory();
    let before = |place: &Lab| {
        prepare(place);
        let _ = place.script(&["--no-durable"], "echo new > changed").run().expect(0);
        let _ = place.script(&["--keep"], "echo kept > changed").run().expect(0);
    };
    let sample = lab.nested("before");
    before(&sample);
    let steps = steps(&sample);
    let at_flush = format!("kill@{}", steps.iter().position(|s| s == "syncfs").unwrap() + 1);
    let case = Case {
        name: "gc",
        prepare: &|place| {
            before(place);
            // One that died in its middle, and one that nothing knows of.
            let died = place.script(&[], CHANGE).env("TXOS_FAULT", &at_flush).run();
            assert!(died.killed());
            std::fs::create_dir(place.store().join("tx/zzzzzzzz")).unwrap();
            place.age_half_made();
            let _ = place.native(&format!(
                "mkdir -p '{0}/trash/old/a/b'; echo > '{0}/trash/old/a/b/c'; chmod 0 '{0}/trash/old/a'",
                place.store().display()
            ));
        },
        operation: &|place| place.txos(["gc"]),
        native: None,
        half: false,
        dead: true,
        refusals: &REFUSALS,
        // What is history stays: it can be reverted, and what is pending committed.
        afterwards: &|place, _| {
            for args in [["abort", "@"], ["revert", "@"]] {
                let done = place.txos(args).run();
                if done.code() != 0 {
                    return Err(format!("{done:?}"));
                }
            }
            (place.read("changed") == "content\n").then_some(()).ok_or("not reverted".into())
        },
    };
    Matrix::new(&lab, case).sweep(budget(14));
}

/// The steps of a commit of everything.
fn steps(place: &Lab) -> Vec<String> {
    let count = place.dir().join("count");
    let _ = place.script(&[], CHANGE).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    txos_testkit::fault::steps_in(&count)
}

/// A commit is killed in the middle of its publish, and what recovers is killed, or fails.
#[test]
fn recovery() {
    let lab = Lab::in_memory();
    let sample = lab.nested("sample");
    prepare(&sample);
    let steps = steps(&sample);
    for (name, part) in [("recover early", 0.5), ("recover late", 0.75), ("recover done", 0.95)] {
        let at = format!("kill@{}", (steps.len() as f64 * part) as usize);
        let case = Case {
            name,
            prepare: &|place| {
                prepare(place);
                assert!(place.script(&[], CHANGE).env("TXOS_FAULT", &at).run().killed());
            },
            operation: &|place| place.txos(["recover"]),
            native: Some((PREPARE, CHANGE)),
            half: true,
            dead: true,
            refusals: &REFUSALS,
            afterwards: &nothing_more,
        };
        Matrix::new(&lab, case).sweep(budget(8));
    }
}

/// The publish fails at some step, and undoing it is killed, or fails, at a later one.
#[test]
fn undoing() {
    let lab = Lab::in_memory();
    let operation = |place: &Lab| place.script(&[], CHANGE);
    let case = Case {
        name: "undo",
        prepare: &prepare,
        operation: &operation,
        native: Some((PREPARE, CHANGE)),
        half: false,
        dead: false,
        refusals: &REFUSALS,
        afterwards: &nothing_more,
    };
    Matrix::new(&lab, case).sweep_after("EIO", budget(24));
}

/// A commit is killed, what recovers is killed, and so is what recovers then.
#[test]
fn recovery_of_the_recovery() {
    let lab = Lab::in_memory();
    let killed = |place: &Lab, at: &[usize]| {
        prepare(place);
        let run = place.script(&[], CHANGE).env("TXOS_FAULT", format!("kill@{}", at[0])).run();
        // How many steps there are after the publish depends on how much time there is.
        assert!(run.killed() || run.code() == 0, "{run:?}");
        for step in &at[1..] {
            let _ = place.txos(["recover"]).env("TXOS_FAULT", format!("kill@{step}")).run();
        }
    };
    let sample = lab.nested("sample");
    prepare(&sample);
    let steps = steps(&sample);
    let seed = if skip::long("sweep") { random::seed() } else { 1 };
    let mut random = Random::new(seed);
    let begun = Instant::now();
    let first = steps.iter().position(|s| s == "rename").unwrap();
    let mut rounds = 0;
    while if skip::long("sweep") { begun.elapsed() < budget(0).time } else { rounds < 8 } {
        rounds += 1;
        let mut below = |n: usize| random.below(n as u64) as usize + 1;
        let at = [first + below(steps.len() - first), below(40), below(40)];
        let case = Case {
            name: &format!("recover {rounds}"),
            prepare: &|place| killed(place, &at),
            operation: &|place| place.txos(["recover"]),
            native: Some((PREPARE, CHANGE)),
            half: true,
            dead: true,
            refusals: &REFUSALS,
            afterwards: &nothing_more,
        };
        println!("TXOS_TEST_SEED={seed} {at:?}");
        Matrix::new(&lab, case).sweep(Budget { points: 1, time: Duration::from_secs(2) });
    }
}
