//! Files, FIFOs, sockets, symbolic links and devices that have several names: whatever a command does
//! to the object by one name and to its names, it leaves the tree that it would have left natively:
//! the same contents, attributes, and names that share an inode. A revert leaves the tree before, a
//! revert of that the new one again, and a rollback nothing. By either front door: `script.py` carries the
//! same scripts out in one process, for `txos run --in-process`.

use std::time::{SystemTime, UNIX_EPOCH};

use txos_testkit::tree::{Tolerance, overlay_traces};
use txos_testkit::{Done, Invocation, Lab, Tree, require, skip};

/// What is there, and what the command does.
struct Case(&'static str, &'static str);

/// A file `a` of two names.
const TWO: &str = "echo 1 >a; ln a b";
/// A file with names in several directories.
const SPREAD: &str = "mkdir d e; echo 1 >d/a; ln d/a e/b; echo z >z; echo x >e/x";

/// Content changed by a name that then goes.
const LOST: &[Case] = &[
    Case(TWO, "echo 2 >>a; rm a"),
    Case(TWO, "echo 2 >>a; echo n >t; mv t a"),
    Case(TWO, "echo 2 >>a; rm a; echo 5 >a"),
    Case(TWO, "echo 2 >>a; rm a; ln -s z a"),
    Case(TWO, "echo 2 >>a; rm a; mkdir a"),
    Case(TWO, "echo 2 >>a; rm a; mkdir a; echo 6 >a/a"),
    Case(TWO, "echo 2 >>a; rm a; mkfifo a"),
    Case("echo 1 >a; ln a b; echo 3 >c", "echo 2 >>a; mv c a"),
    Case("echo 1 >a; ln a b; echo 3 >c", "echo 2 >>a; ln -f c a"),
    Case("echo 1 >a; ln a b; echo 3 >c; ln c d", "echo 2 >>a; ln -f c a"),
    Case("echo 1 >a; ln a b; echo 3 >c; ln c d", "echo 2 >>a; echo 4 >>c; ln -f c a; rm c"),
    Case("echo 1 >a; ln a b; echo 3 >c; ln c d", "echo 2 >>a; echo 4 >>c; mv c a"),
    Case("echo 1 >a; ln a b; mkdir q; echo q >q/q", "echo 2 >>a; rm a; mv q a; echo 3 >a/q"),
    Case(TWO, "echo 2 >>a; ln -sf b a"),
    Case(TWO, ": >a; rm a"),
    Case(TWO, "printf 123456789 >a; rm a"),
    Case(
        "truncate -s 1M a; ln a b",
        "printf x | dd of=a bs=1 seek=500000 conv=notrunc status=none; rm a",
    ),
    Case("echo 1 >a; ln a b; ln a c", "echo 2 >>a; rm a b"),
    Case("echo 1 >a; ln a b; ln a c", "echo 2 >>a; rm a; echo 5 >b.n; mv b.n b"),
    Case("echo 1 >a; ln a b; ln a c", "echo 2 >>b; mv a b || true"),
    Case("echo 1 >a; ln a b; ln a c", "echo 2 >>b; mv a n; rm b"),
    Case("echo 1 >a; ln a b; ln a c", "echo 2 >>b; ln b n; rm a b"),
    Case("echo 1 >a; ln a b; ln a c", "echo 2 >>b; ln b n; rm b; mkdir b"),
    Case(TWO, "echo 2 >>a; rm a b"),
    Case(TWO, "echo 2 >>a; mv a c; rm b; echo 3 >b"),
    Case(TWO, "echo 2 >>a; mv a c; mv c a; rm a"),
    Case(SPREAD, "echo 2 >>d/a; rm -r d"),
    Case(SPREAD, "echo 2 >>d/a; rm -r d; mkdir d; echo k >d/k"),
    Case(SPREAD, "echo 2 >>d/a; rm -r d; mkdir d; echo k >d/a"),
    Case(SPREAD, "echo 2 >>d/a; rm -r d; echo now >d"),
    Case(SPREAD, "echo 2 >>d/a; rm -r d; mv e d; echo l >d/l"),
    Case(SPREAD, "echo 2 >>d/a; rm -r d; ln -s e d"),
    Case(SPREAD, "echo 2 >>d/a; mv d m; rm m/a"),
    Case(SPREAD, "mv d m; echo 2 >>m/a; rm m/a; echo k >m/a"),
    Case(SPREAD, "mv d m; echo 2 >>m/a; rm -r m"),
    Case(SPREAD, "mv d m; echo 2 >>m/a; mv z m/a"),
    Case("mkdir -p d/s/t; echo 1 >d/s/t/a; ln d/s/t/a b", "echo 2 >>d/s/t/a; rm -r d"),
    Case("mkdir -p d/s/t; echo 1 >d/s/t/a; ln d/s/t/a b", "echo 2 >>d/s/t/a; mv d/s s; rm -r s/t"),
    Case(
        "mkdir -p d/s/t; echo 1 >d/s/t/a; ln d/s/t/a b",
        "echo 2 >>d/s/t/a; mv d/s s; rm -r d s/t",
    ),
    Case(
        "mkdir -p d/s/t; echo 1 >d/s/t/a; ln d/s/t/a b",
        "echo 2 >>d/s/t/a; mv d/s/t/a d/k; rm -r d/s",
    ),
    Case(
        "mkdir -p d/s/t; echo 1 >d/s/t/a; ln d/s/t/a b",
        "echo 2 >>d/s/t/a; mv d/s/t/a k; rm -r d",
    ),
    Case(
        "mkdir -p d/s/t; echo 1 >d/s/t/a; ln d/s/t/a b",
        "mkdir n; mv d/s n/s; echo 2 >>n/s/t/a; rm n/s/t/a",
    ),
    Case(
        "mkdir -p d/s/t; echo 1 >d/s/t/a; ln d/s/t/a b",
        "mkdir n; mv d/s n/s; echo 2 >>n/s/t/a; rm n/s/t/a; echo 3 >n/s/t/a",
    ),
    Case(
        "mkdir -p d/s/t; echo 1 >d/s/t/a; ln d/s/t/a b",
        "mkdir n; mv d/s n/s; echo 2 >>n/s/t/a; rm -r n/s/t",
    ),
];

/// Attributes alone.
const ATTRIBUTES: &[Case] = &[
    Case(TWO, "chmod 600 a; rm a"),
    Case("echo 1 >a; ln a b; echo 3 >c", "chmod 600 a; mv c a"),
    Case(TWO, "chown 1:2 a; rm a; mkdir a"),
    Case(TWO, "chown 1:2 a; chmod 4755 a; echo 5 >t; mv t a"),
    Case(TWO, "python3 -c \"import os; os.setxattr('a', 'user.k', b'1')\"; rm a"),
    Case(TWO, "touch -d @1200000000 a; rm a"),
    Case(TWO, "echo 2 >>a; chmod 4711 a; touch -d @1200000000 a; rm a"),
    Case(SPREAD, "chmod 600 d/a; rm -r d"),
    Case(TWO, "chmod 600 a; chmod 644 a; rm a"),
];

/// FIFOs, sockets, symbolic links, devices.
const SPECIAL: &[Case] = &[
    Case("mkfifo a; ln a b", "chmod 600 a; rm a"),
    Case("mkfifo a; ln a b", "mv a c"),
    Case("mkfifo a; ln a b", "chmod 600 a; mv a c"),
    Case("mkfifo a; ln a b", "chmod 600 a; rm a; mkdir a"),
    Case("mkfifo a; ln a b", "mkdir n; mv a n/c"),
    Case("mkfifo a; ln a b", "mkdir n; ln a n/c; chmod 611 b"),
    Case("mkfifo a; ln a b", "ln a c; chmod 600 c"),
    Case("ln -s to a; ln -P a b", "mv a c"),
    Case("ln -s to a; ln -P a b", "touch -h -d @1200000000 a; rm a"),
    Case("ln -s to a; ln -P a b", "chown -h 1:2 a; mv a c"),
    Case("ln -s to a; ln -P a b", "chown -h 1:2 a; rm a; echo 5 >a"),
    Case("ln -s to a; ln -P a b", "mkdir n; mv a n/c; chown -h 1:2 n/c"),
    Case("ln -s to a; ln -P a b", "ln -P a c; rm b"),
    Case("mknod a c 1 3; ln a b", "chmod 600 a; rm a"),
    Case("mknod a c 1 3; ln a b", "mkdir n; mv a n/c; chmod 600 n/c"),
    Case("mknod a b 7 200; ln a b", "mv a c; chmod 600 b"),
    Case(
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('a')\"; ln a b",
        "chmod 600 a; rm a",
    ),
    Case(
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('a')\"; ln a b",
        "mv a c; chmod 611 b",
    ),
];

/// Moved or linked into a new directory, or another one.
const ELSEWHERE: &[Case] = &[
    Case(TWO, "mkdir m; ln a m/c"),
    Case(TWO, "mkdir m; mv a m/c"),
    Case(TWO, "mkdir m; mv a m/c; echo 2 >>m/c"),
    Case(TWO, "mkdir m; mv a m/c; echo 2 >>b"),
    Case(TWO, "mkdir m; mv a m/c; chmod 600 b"),
    Case(TWO, "mkdir m; mv a b m; echo 2 >>m/a"),
    Case(TWO, "mkdir m; mv a m/c; ln m/c m/d; rm b"),
    Case(TWO, "mkdir m; mv a m/c; ln m/c m/d; ln b e"),
    Case(TWO, "mkdir m; mv a m/c; echo 5 >a"),
    Case(TWO, "mkdir -p m/n/o; mv a m/n/o/c; echo 2 >>m/n/o/c; mkdir a"),
    Case(TWO, "mkdir m; echo 2 >>a; ln a m/c; rm a"),
    Case(TWO, "mkdir m; echo 2 >>a; ln a m/c; rm a b"),
    Case(TWO, "mkdir m; echo 2 >>a; ln a m/c; rm m/c a"),
    Case(TWO, "rm b; mkdir b; mv a b/a; echo 2 >>b/a"),
    Case(TWO, "cp -al . /dev/null 2>/dev/null || true; mkdir m; cp -al a b m"),
    Case(SPREAD, "cp -al d n; cp -al e n"),
    Case(SPREAD, "cp -al d n; echo 2 >>n/a"),
    Case(SPREAD, "cp -al d n; echo 2 >>n/a; rm -r d"),
    Case(SPREAD, "cp -al d n; rm -r d; mv n d"),
    Case(SPREAD, "mkdir n; mv d n/d; echo 2 >>n/d/a"),
    Case(SPREAD, "mkdir n; mv d n/d; mv n/d/a n/c; echo 2 >>e/b"),
    Case(SPREAD, "mv d/a e/c; echo 2 >>e/c; rmdir d"),
    Case(SPREAD, "mv d m; ln m/a m/c; echo 2 >>m/c"),
    Case(SPREAD, "mv d m; mv e d; echo 2 >>d/b; rm m/a"),
    Case(SPREAD, "mv d m; mv m/a e/a; echo 2 >>e/a; rm e/b"),
    Case(
        "mkdir o; echo 1 >o/f; ln o/f o/g; echo s >o/s; mkdir o/i; ln o/f o/i/h",
        "cp -al o n; echo 2 >>n/i/h; rm o/f",
    ),
    Case("echo 1 >a", "mkdir m; ln a m/c"),
    Case("echo 1 >a", "ln a c; echo 2 >>c"),
    Case("mkdir d; for i in 1 2 3; do echo $i >d/$i; done", "cp -al d n"),
];

/// By which front door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// `txos run`, with these options.
    Run(&'static [&'static str]),
    /// `txos run --in-process`.
    InProcess,
}

impl Door {
    fn script(self, lab: &Lab, script: &str) -> Invocation {
        match self {
            Door::Run(options) => lab.script(options, script),
            Door::InProcess => lab
                .txos(["run", "--in-process", "--", PYTHON, "-I", "-S", "-c", PROGRAM])
                .arg(script),
        }
    }
}

/// One process that does what a script says.
const PROGRAM: &str = include_str!("script.py");
const PYTHON: &str = "/usr/bin/python3";

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    i64::try_from(now).unwrap_or(0) - 1
}

/// The first thing that is not as it should be.
fn check(Case(prepare, change): &Case, door: Door) -> Result<(), String> {
    let all = format!("{prepare}; find . -exec touch -h -d @1000000000 {{}} +");
    let from = now();
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    let _ = native.native(&all);
    let _ = native.native(change);
    let _ = lab.native(&all);
    let before = Tree::of(lab.tree());
    let after = Tree::of(native.tree());
    let new = Tolerance { now_from: Some(from), times: false, links: true };
    let old = Tolerance { links: true, ..Tolerance::default() };
    let same = |what: &str, expected: &Tree, tolerance| {
        let difference = expected.difference(&Tree::of(lab.tree()), tolerance);
        match difference.is_empty() {
            true => Ok(()),
            false => Err(format!("{what}:\n{difference}")),
        }
    };
    let ended = |done: Done, code: i32, what: &str| match done.code() == code {
        true => Ok(done.stderr),
        false => Err(format!("{what} ended with {}: {}", done.code(), done.stderr)),
    };
    let id_after = |text: &str, words: &str| -> String {
        let rest = text.split(words).nth(1).unwrap_or_default();
        rest.chars().take_while(char::is_ascii_alphanumeric).collect()
    };
    let rolled_back = format!("{change}\nexit 3");
    let _ = ended(door.script(&lab, &rolled_back).run(), 3, "rolling back")?;
    same("after a rollback", &before, Tolerance::default())?;
    let told = ended(door.script(&lab, change).run(), 0, "the commit")?;
    same("natively (-), committed (+)", &after, new)?;
    let traces = overlay_traces(lab.tree());
    if !traces.is_empty() {
        return Err(format!("overlayfs has left traces: {traces:?}"));
    }
    if before == after {
        return Ok(());
    }
    // In-process nothing is told of a commit.
    let mut id = match door {
        Door::Run(_) => id_after(&told, "txos: committed "),
        Door::InProcess => lab.newest(),
    };
    for (turn, tree, tolerance) in [("reverted", &before, old), ("and back", &after, new)] {
        let told = ended(lab.txos(["revert", &id]).run(), 0, turn)?;
        id = id_after(&told, " by ");
        same(turn, tree, tolerance)?;
    }
    lab.expect_clean();
    Ok(())
}

fn all_of(cases: &[Case], door: Door) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let error = check(case, door).err()?;
            Some(format!("{}\n  {}\n{error}", case.0, case.1))
        })
        .collect();
    let (count, of) = (wrong.len(), cases.len());
    assert!(wrong.is_empty(), "{count} of {of} are wrong:\n{}", wrong.join("\n"));
}

fn by_run(cases: &[Case]) {
    all_of(cases, Door::Run(&[]));
}

fn in_process(cases: &[Case]) {
    require!(skip::has(PYTHON), "no {PYTHON}");
    all_of(cases, Door::InProcess);
}

#[test]
fn changed_by_a_name_that_is_lost() {
    by_run(LOST);
}

#[test]
fn changed_by_a_name_that_is_lost_in_process() {
    in_process(LOST);
}

#[test]
fn attributes_changed_by_a_name_that_is_lost() {
    by_run(ATTRIBUTES);
}

#[test]
fn attributes_changed_by_a_name_that_is_lost_in_process() {
    in_process(ATTRIBUTES);
}

#[test]
fn special_files_with_several_names() {
    by_run(SPECIAL);
}

#[test]
fn special_files_with_several_names_in_process() {
    in_process(SPECIAL);
}

#[test]
fn moved_and_linked_elsewhere() {
    by_run(ELSEWHERE);
}

#[test]
fn moved_and_linked_elsewhere_in_process() {
    in_process(ELSEWHERE);
}

#[test]
fn without_gate_and_flushes() {
    let cases = [LOST, ATTRIBUTES, SPECIAL, ELSEWHERE].into_iter().flatten();
    for case in cases.step_by(5) {
        check(case, Door::Run(&["--no-durable", "--no-gate"]))
            .unwrap_or_else(|error| panic!("{}\n  {}\n{error}", case.0, case.1));
    }
}
