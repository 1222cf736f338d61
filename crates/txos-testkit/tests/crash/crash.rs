//! Whatever happens at whatever instant, the tree is all old or all new afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use rustix::process::{Pid, Signal};
use txos_testkit::fault::{EVERYTHING, Fault, Outcome, Scenario, Sweep};
use txos_testkit::random::{self, Random};
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::tree::Tolerance;
use txos_testkit::wait::until;
use txos_testkit::{Lab, Rendezvous, Tree};

/// A few renames and nothing in place.
const RENAMES: Scenario<'_> = Scenario {
    prepare: "
        mkdir a; echo 1 > a/one; echo 2 > a/two; echo 3 > three
        find . -exec touch -h -d @1000000000 {} +",
    change: "echo new > a/one.new; mv a/one.new a/one; rm a/two; mv three a/three; echo 4 > four",
    options: &[],
    retains_links: false,
};

/// Objects of several names: changed by a name that then goes, in every way that it can go.
const LOST_NAMES: Scenario<'_> = Scenario {
    prepare: "
        mkdir d; echo 1 > a; ln a a2; echo 1 > b; ln b b2; echo 1 > d/c; ln d/c c2
        mkfifo p; ln p p2; echo 1 > m; ln m m2; echo x > x
        find . -exec touch -h -d @1000000000 {} +",
    change: "
        set -e
        echo 2 >> a; echo new > t; mv t a
        echo 2 >> b; rm b
        echo 2 >> d/c; rm -r d
        chmod 600 p; rm p
        mkdir n; mv m n/m; echo 2 >> n/m
        ln x n/x",
    options: &[],
    retains_links: true,
};

/// So many removed files that the store has several directories for them.
const MANY_REMOVED: Scenario<'_> = Scenario {
    prepare: "
        mkdir d e; for i in $(seq 70); do echo $i > d/$i; echo $i > e/$i; done
        echo 1 > stays
        find . -exec touch -h -d @1000000000 {} +",
    change: "rm d/*; rm -r e; echo 2 >> stays",
    options: &["--no-durable"],
    retains_links: false,
};

/// Each which of the removals is looked at.
const STRIDE: usize = 12;

#[test]
fn many_removed_files_are_killed_before_many_steps() {
    let lab = Lab::in_memory();
    Sweep::new(&lab, MANY_REMOVED).steps_by(STRIDE, Fault::Kill);
}

#[test]
fn lost_names_are_killed_before_every_step() {
    let lab = Lab::in_memory();
    Sweep::new(&lab, LOST_NAMES).every_step(Fault::Kill);
}

#[test]
fn lost_names_fail_at_every_step_with_an_io_error() {
    let lab = Lab::in_memory();
    Sweep::new(&lab, LOST_NAMES).every_step(Fault::Fail("EIO"));
}

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
    let mut sweep =
        Sweep::new(&lab, if txos_testkit::skip::long("crash") { EVERYTHING } else { RENAMES });
    let mut wrong = Vec::new();
    let mut tried = 0;
    for step in 1..=sweep.steps.len() {
        // Housekeeping leaves nothing to recover; `sweep.rs` has a sample of it.
        if !txos_testkit::skip::long("crash") && sweep.steps[step - 1].contains(' ') {
            continue;
        }
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

/// The front is killed while the command runs, at many points of its life.
#[test]
fn the_front_is_killed_while_the_command_runs() {
    let lab = Lab::in_memory();
    let _ = lab.native(EVERYTHING.prepare);
    let before = Tree::of(lab.tree());
    for round in 0..8 {
        let mut meeting = Rendezvous::new();
        // Some of its processes have left its session, some its parent.
        let script = format!("{}\nsetsid sleep 1000 & (sleep 1000 &); {PAUSE}", EVERYTHING.change);
        let running = lab.script(&[], &script).in_own_group().meeting(&mut meeting).start();
        assert!(meeting.arrived());
        if round % 2 == 1 {
            // Both at once: nobody is left who would end the command.
            let keeper = children(running.pid().as_raw_nonzero().get());
            running.signal(Signal::STOP);
            keeper.iter().for_each(|&pid| kill(pid));
        }
        running.signal(Signal::KILL);
        assert!(running.wait().killed());
        before.expect_same(&Tree::of(lab.tree()));
        if round == 0 {
            // The keeper ends the rest when its front is gone.
            until("no process is left", || processes_of(&lab).is_empty());
        }
        // The transaction is held until the last of its two processes has ended.
        until("doctor tells that it is dead", || {
            let doctor = lab.txos(["doctor", "--json"]).run().json();
            let checks = doctor["checks"].as_array().unwrap();
            checks.iter().any(|c| c["name"] == "dead" && c["ok"] == false)
        });
        lab.expect_clean();
        assert!(processes_of(&lab).is_empty());
        assert_eq!(lab.held().transactions, []);
        let doctor = lab.txos(["doctor", "--json"]).run().json();
        let bad: Vec<_> =
            doctor["checks"].as_array().unwrap().iter().filter(|c| c["ok"] == false).collect();
        let ours = ["dead", "mounts", "processes", "transactions"];
        assert!(!bad.iter().any(|c| ours.iter().any(|n| c["name"] == *n)), "{bad:?}");
    }
}

#[test]
fn the_keeper_is_killed_while_the_command_runs() {
    let lab = Lab::in_memory();
    let _ = lab.native(EVERYTHING.prepare);
    let before = Tree::of(lab.tree());
    for _ in 0..5 {
        let mut meeting = Rendezvous::new();
        let script = format!("{}\nsetsid sleep 1000 & {PAUSE}", EVERYTHING.change);
        let running = lab.script(&[], &script).in_own_group().meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let keepers = children(running.pid().as_raw_nonzero().get());
        assert!(!keepers.is_empty());
        keepers.iter().for_each(|&pid| kill(pid));
        let _ = running.wait().expect(125);
        before.expect_same(&Tree::of(lab.tree()));
        assert_eq!(processes_of(&lab), [0; 0]);
        lab.expect_clean();
        assert_eq!(lab.held().transactions, []);
    }
}

/// SIGKILL at any instant at all, from the first to the last microsecond of a run.
#[test]
fn the_front_is_killed_at_any_instant() {
    let lab = Lab::in_memory();
    let scenario = RENAMES;
    let mut sweep = Sweep::new(&lab, scenario);
    let seed = random::seed();
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let rounds = if txos_testkit::skip::long("crash") { 2000 } else { 60 };
    let (mut old, mut new) = (0, 0);
    for _ in 0..rounds {
        let delay = std::time::Duration::from_micros(random.below(40_000));
        let attempt = sweep.killed_after(delay);
        match sweep.recovered(&attempt) {
            Ok(Outcome::Old) => old += 1,
            Ok(Outcome::New) => new += 1,
            Err(what) => panic!("killed after {delay:?}: {what}"),
        }
        until("no process is left", || processes_of(&attempt.place).is_empty());
    }
    println!("{old} old, {new} new");
}

/// Everybody who sees a leftover of a publish finishes it first: nobody builds on half of it.
#[test]
fn the_next_command_recovers() {
    let lab = Lab::in_memory();
    let mut sweep = Sweep::new(&lab, RENAMES);
    let middle = sweep.steps.iter().rposition(|step| step == "rename").unwrap();
    for next in [&["run", "--scope", ".", "--", "true"][..], &["gc"], &["recover"]] {
        let attempt = sweep.with_fault(Fault::Kill, middle);
        assert!(attempt.run.killed());
        assert!(sweep.outcome(&attempt).is_err(), "the fault was not in the middle");
        let _ = attempt.place.txos(next).run().expect(0).says("undone");
        assert_eq!(sweep.outcome(&attempt), Ok(Outcome::Old), "{next:?}");
    }
}

#[test]
fn revert_is_killed_at_every_step() {
    revert_is_killed(EVERYTHING, 1);
}

#[test]
fn revert_of_many_removed_files_is_killed_at_many_steps() {
    revert_is_killed(MANY_REMOVED, STRIDE);
}

#[test]
fn revert_of_lost_names_is_killed_at_every_step() {
    revert_is_killed(LOST_NAMES, 1);
}

fn revert_is_killed(scenario: Scenario<'_>, stride: usize) {
    let lab = Lab::in_memory();
    let count = lab.dir().join("count");
    let mut steps = usize::MAX;
    let mut wrong = Vec::new();
    for step in 0.. {
        if step > steps {
            break;
        }
        if step % stride != 0 {
            continue;
        }
        let place = lab.nested(&format!("revert{step}"));
        let _ = place.native(scenario.prepare);
        let old = Tree::of(place.tree());
        let _ = place.script(&[], scenario.change).run().expect(0);
        let new = Tree::of(place.tree());
        let revert = place.txos(["revert", "@"]);
        if step == 0 {
            let _ = revert.env("TXOS_FAULT_COUNT", &count).run().expect(0);
            old.expect_same(&Tree::of(place.tree()));
            steps = txos_testkit::fault::steps_in(&count).len();
            continue;
        }
        let killed = revert.env("TXOS_FAULT", format!("kill@{step}")).run();
        let _ = place.txos(["recover"]).run().expect(0);
        let found = Tree::of(place.tree());
        let (from_old, from_new) = (
            old.difference(&found, Tolerance::default()),
            new.difference(&found, Tolerance::default()),
        );
        if !from_old.is_empty() && !from_new.is_empty() {
            wrong.push(format!(
                "kill@{step}: from before the commit:\n{from_old}from after:\n{from_new}"
            ));
        } else if killed.killed() && place.txos(["gc"]).run().code() != 0 {
            wrong.push(format!("kill@{step}: gc fails"));
        } else if from_old.is_empty() {
            // Undone: nothing more to revert.
            if place.txos(["revert", &first_id(&place)]).run().code() != 125 {
                wrong.push(format!("kill@{step}: undone, but can be undone again"));
            }
        } else {
            let again = place.txos(["revert", &first_id(&place)]).run();
            if again.code() != 0 {
                wrong.push(format!("kill@{step}: not undone, and can't be: {again:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {steps}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The oldest transaction on record.
fn first_id(place: &Lab) -> String {
    let log = place.txos(["log", "--json"]).run().expect(0).json();
    let last = log["transactions"].as_array().and_then(|t| t.last()).unwrap();
    last["id"].as_str().unwrap().to_owned()
}

/// A store or journal that is not ours, damaged, or newer is left as it is, bit for bit.
#[test]
fn a_damaged_or_foreign_store_is_refused_and_left() {
    let lab = Lab::in_memory();
    // In the middle of a publish, so that the journal holds a plan.
    let mut sweep = Sweep::new(&lab, RENAMES);
    let middle = sweep.steps.iter().rposition(|step| step == "rename").unwrap();
    let attempt = sweep.with_fault(Fault::Kill, middle);
    let place = &attempt.place;
    let journal = place.store().join("journal");
    let good = std::fs::read(&journal).unwrap();
    let format = std::fs::read(place.store().join("format")).unwrap();
    let flip = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    let mut newer = good.clone();
    newer[8] = 99;
    let cases: Vec<(&str, &str, Vec<u8>)> = vec![
        ("journal", "another magic", flip(0)),
        ("journal", "another version", newer),
        ("journal", "a damaged header", flip(13)),
        ("journal", "a damaged first frame", flip(512 + 30)),
        ("journal", "text", b"This is somebody's diary.\n".repeat(100)),
        ("journal", "shorter than its header", good[..7].to_vec()),
        ("format", "a newer format", b"txos-store 99\n".to_vec()),
        ("format", "a foreign file", b"hello\n".to_vec()),
        ("format", "an empty file", Vec::new()),
    ];
    let mut wrong = Vec::new();
    for (file, what, bytes) in cases {
        std::fs::write(place.store().join(file), &bytes).unwrap();
        let store = Tree::of(place.store());
        let tree = Tree::of(place.tree());
        for command in
            [&["recover"][..], &["run", "--scope", ".", "--", "sh", "-c", "echo > new"], &["gc"]]
        {
            let done = place.txos(command).run();
            let named = done.stderr.contains(&place.store().join(file).display().to_string());
            if done.code() != 125 || !named {
                wrong.push(format!("{what}: expected 125 and the file's name: {done:?}"));
            }
        }
        for (tree, now) in [(&store, Tree::of(place.store())), (&tree, Tree::of(place.tree()))] {
            let difference = tree.difference(&now, Tolerance::default());
            if !difference.is_empty() {
                wrong.push(format!("{what}: not left as it was:\n{difference}"));
            }
        }
        std::fs::write(&journal, &good).unwrap();
        std::fs::write(place.store().join("format"), &format).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(sweep.recovered(&attempt), Ok(Outcome::Old), "with the right files back");
}

#[test]
fn a_damaged_record_concerns_no_other() {
    let lab = Lab::in_memory();
    let _ = lab.script(&["--keep"], "echo > one").run().expect(0);
    let id = lab.newest();
    let _ = lab.script(&["--keep"], "echo > two").run().expect(0);
    let record = lab.store().join("tx").join(&id).join("meta.json");
    for bytes in [&b"{"[..], b"{\"format\": 99}", b"\xff\xfe"] {
        std::fs::write(&record, bytes).unwrap();
        let _ = lab.txos(["commit", &id]).run().expect(125).says("meta.json");
        let _ = lab.txos(["doctor"]).run().expect(1);
        let list = lab.txos(["list", "--json"]).run().expect(0).json();
        assert_eq!(list["transactions"].as_array().map(Vec::len), Some(1), "{list}");
        assert_eq!(list["unreadable"].as_array().map(Vec::len), Some(1), "{list}");
        let _ = lab.txos(["gc"]).run().expect(0);
        assert_eq!(
            std::fs::read(&record).unwrap(),
            bytes,
            "a damaged record is never deleted unasked"
        );
    }
    let _ = lab.txos(["gc", "--force", &id]).run().expect(0);
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert!(lab.path("two").exists());
    lab.expect_clean();
}

/// Direct children of a process.
fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        if parent.and_then(|p| p.parse().ok()) == Some(pid) {
            found.push(child);
        }
    }
    found
}

fn kill(pid: i32) {
    // A child of ours or of a child of ours, just seen: the number is not another's yet.
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Processes that see the lab's store as an upper directory: those in a view.
fn processes_of(lab: &Lab) -> Vec<i32> {
    let store = lab.store().display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let table = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        let view = table.lines().any(|l| l.contains(" - overlay txos-") && l.contains(&store));
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if view && !stat.contains(") Z ") {
            found.push(pid);
        }
    }
    found
}
