//! Pending transactions that are merged, and forks of one: the result is what one would have made after the
//! other, or they are refused by path, and nothing changes.

use txos_testkit::fault::stride;
use txos_testkit::random::Random;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous, require_some};

use crate::rootless::Place;
use crate::savepoints::{dump, seen};

const PREPARE: &str = "
    set -e
    echo old > a; ln a a2; echo b > b; ln b b2; mkdir -p d/e/deep gone f; echo x > d/x; echo y > d/e/y
    echo g > gone/g; ln -s a link; echo z > d/e/deep/z; echo c > c; echo h > f/h
    find . -exec touch -h -d @1000000000 {} +";

/// Both ways in which a transaction's changes are kept.
const VIEWS: [&str; 2] = ["overlay", "library"];

fn kept(lab: &Lab, script: &str) -> String {
    kept_in(lab, "overlay", script)
}

fn kept_in(lab: &Lab, view: &str, script: &str) -> String {
    let done = lab.script(&["--view", view, "--keep", "-q"], script).run().expect(0);
    done.stderr.trim().to_owned()
}

fn merge(lab: &Lab, ours: &str, theirs: &str) -> txos_testkit::Done {
    lab.txos(["merge", ours, theirs]).run()
}

/// What is left pending.
fn pending(lab: &Lab) -> Vec<String> {
    let list = lab.txos(["list", "-q"]).run().expect(0).text();
    list.lines().map(str::to_owned).collect()
}

/// Three transactions that share directories, files of several names, moves and attributes.
#[test]
fn the_sum_is_what_the_commands_make_one_after_the_other() {
    VIEWS.into_iter().for_each(the_sum_in);
}

fn the_sum_in(view: &str) {
    let scripts = [
        "set -e; echo new >> a; mkdir made; echo h > made/h; ln made/h made/h2; rm d/x; mv gone moved; chmod 751 f",
        "set -e; ln b b3; echo more >> b; echo n > d/n; rm d/e/y; mkdir -p d/e/k; mv d/e/deep/z d/e/k/z; ln -sf b link",
        "set -e; rm c; mkfifo c; setfattr -n user.first -v 1 f/h; chmod 600 f/h; echo q > d/e/q; ln f/h d/e/h; mkdir z",
    ];
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    for place in [&lab, &native] {
        let _ = place.native(PREPARE).expect(0);
    }
    let mut states = Vec::new();
    for script in scripts {
        let _ = native.native(script).expect(0);
        states.push(dump(native.tree()));
    }
    let ids: Vec<String> = scripts.iter().map(|script| kept_in(&lab, view, script)).collect();
    let all = lab.txos(["merge", &ids[0], &ids[1], &ids[2]]).run().expect(0);
    let _ = all.says(format!("merged {} into {}", ids[1], ids[0]));
    assert_eq!(pending(&lab), [ids[0].clone()]);
    assert_eq!(seen(&lab, &ids[0]), states[2]);
    // Each is a layer of it.
    let _ = lab.txos(["undo", &ids[0]]).run().expect(0);
    assert_eq!(seen(&lab, &ids[0]), states[1]);
    let _ = lab.txos(["redo", &ids[0]]).run().expect(0);
    let refused = lab.txos(["rebase", &ids[0]]).run().expect(125);
    let _ = refused.says(format!("layer 2 was merged from {}", ids[1])).says("stays pending");
    let shown = lab.txos(["diff", "--name-status", "--layer", "2", &ids[0]]).run().expect(0).text();
    assert!(shown.contains("d/n\n") && !shown.contains("made"), "{shown}");
    let _ = lab.txos(["commit", &ids[0]]).run().expect(0);
    let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
    assert_eq!(dump(lab.tree()), states[2]);
    lab.expect_clean();
}

/// What is refused, with the path that is named; and what is not.
#[test]
fn conflicts_are_named() {
    VIEWS.into_iter().for_each(conflicts_are_named_in);
}

fn conflicts_are_named_in(view: &str) {
    let cases: [(&str, &str, Option<&str>); 23] = [
        ("echo 1 >> a", "echo 2 >> a2", Some("a: both have changed it")),
        ("echo 1 > new", "echo 2 > new", Some("new: both have changed it")),
        ("rm -r d", "echo 2 > d/x", Some("d")),
        ("mv d e", "echo 2 > d/x", Some("d")),
        ("rm -r d; mkdir d", "echo 2 > d/n", Some("d")),
        ("mv d e", "rm d/x", Some("d")),
        ("chmod 700 d", "chmod 750 d", Some("d: both have changed it")),
        ("rm a", "ln a a3", Some("a")),
        ("setfattr -n user.k -v 1 c", "chmod 600 c", Some("c: both have changed it")),
        // Each has looked at what the other changes.
        ("cat c > one", "cat b > two; echo > c", None),
        ("cat c > one; echo > b", "cat b > two; echo > c", Some("has looked at it, and")),
        ("ls d > one; echo > b", "cat b > two; echo > d/new", Some("d: ")),
        ("test -e new; echo > b", "cat b2 > two; echo > new", Some("has looked at it, and")),
        ("cat d/e/y > one; echo > b", "cat b > two; mv d e", Some("d/e")),
        ("stat -c %h b2 > one; echo > c", "cat c > two; ln b b3", Some("b2: ")),
        ("ls d > one; echo > b", "echo > d/new", None),
        ("echo 1 > d/one", "echo 2 > d/two", None),
        ("mv d/x d/e/x", "mv b d/b", None),
        ("rm b2", "ln a a3", None),
        ("echo 1 >> a", "echo 2 >> b", None),
        ("mv gone d/gone", "chmod 700 f; rm f/h", None),
        ("mkdir n; mv d/e n", "mkdir m; mv f m", None),
        ("true", "rm -r d; true", None),
    ];
    let lab = Lab::in_memory();
    for (number, (ours, theirs, conflict)) in cases.into_iter().enumerate() {
        let lab = lab.nested(&format!("case-{number}"));
        let _ = lab.native(PREPARE).expect(0);
        let (first, second) = (kept_in(&lab, view, ours), kept_in(&lab, view, theirs));
        if (view, ours) == ("library", "true") {
            // It has no private copies anywhere.
            let _ = merge(&lab, &first, &second).expect(125).says("where").says("as they were");
            let _ = merge(&lab, &second, &first).expect(0);
            let _ = lab.txos(["commit", &second]).run().expect(0);
            continue;
        }
        let before = [seen(&lab, &first), seen(&lab, &second)];
        let done = merge(&lab, &first, &second);
        let Some(named) = conflict else {
            let _ = done.expect(0);
            let _ = lab.txos(["commit", &first]).run().expect(0);
            continue;
        };
        let done = done.expect(75).says("both are as they were");
        let named = done.stderr.lines().skip(1).any(|line| line.contains(named));
        assert!(named, "{view}: {ours} with {theirs}: {}", done.stderr);
        let now = [seen(&lab, &first), seen(&lab, &second)];
        assert_eq!(now, before, "{view}: {ours} with {theirs}");
        // The other way round as well; and each by itself is good.
        let _ = merge(&lab, &second, &first).expect(75);
        let _ = lab.txos(["commit", &second]).run().expect(0);
        let _ = lab.txos(["abort", &first]).run().expect(0);
        lab.expect_clean();
    }
    let id = kept(&lab, "echo > x");
    let _ = merge(&lab, &id, &id).expect(125).says("with itself");
    let _ = merge(&lab, &id, "nosuchid").expect(125);
    let _ = lab.txos(["abort", &id]).run().expect(0);
}

/// The sum depends on what each of its parts has seen.
#[test]
fn what_either_has_read_must_not_have_changed() {
    VIEWS.into_iter().for_each(what_either_has_read_in);
}

fn what_either_has_read_in(view: &str) {
    for (changed, code) in [("first", 75), ("second", 75), ("third", 0)] {
        let lab = Lab::in_memory();
        let _ = lab.native("echo 1 > first; echo 2 > second; echo 3 > third").expect(0);
        let (one, two) =
            (kept_in(&lab, view, "cat first > one"), kept_in(&lab, view, "cat second > two"));
        let _ = merge(&lab, &one, &two).expect(0);
        let _ = lab.native(&format!("echo other > {changed}")).expect(0);
        let done = lab.txos(["commit", &one]).run();
        assert_eq!(done.code(), code, "{view}, {changed} changed: {done:?}");
    }
    // One of the two is in conflict already.
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > first").expect(0);
    let one = kept_in(&lab, view, "cat first > one");
    let _ = lab.native("echo 2 > first").expect(0);
    let two = kept_in(&lab, view, "cat first > two");
    let _ = merge(&lab, &one, &two).expect(75).says("first: it was changed by others after one");
}

/// A fork begins as its transaction is, is kept or gone by itself, and comes back.
#[test]
fn a_fork_is_merged_or_dropped() {
    VIEWS.into_iter().for_each(a_fork_in);
}

fn a_fork_in(view: &str) {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE).expect(0);
    let script = "set -e; echo 1 > log; ln log log2; mv d moved; rm -r gone; chmod 700 f";
    let id = kept_in(&lab, view, script);
    let begun = seen(&lab, &id);
    let fork = |words: &[&str], script: &str| {
        let words = [&["exec", "--fork"], words, &[&id, "--", "sh", "-c", script]].concat();
        lab.txos(words).run()
    };
    let _ = fork(&[], "echo 2 > log; exit 3").expect(3).says("the fork is gone");
    assert_eq!(pending(&lab), [&id[..]]);
    let done =
        fork(&["--name", "side"], "set -e; echo 2 >> moved/x; ln log moved/log; rm b2").expect(0);
    let _ = done.says(format!("it is a fork of {id}"));
    assert_eq!(seen(&lab, &id), begun, "it has a life of its own");
    let _ = lab.txos(["exec", &id, "--", "sh", "-c", "echo n > n"]).run().expect(0);
    let _ = fork(&["--name", "same"], "echo 3 >> moved/x").expect(0);
    let _ = fork(&["--name", "gone"], "echo 4 > gone").expect(0);
    let _ = lab.txos(["rebase", "side"]).run().expect(125).says(format!("a fork of {id}"));
    let _ = merge(&lab, &id, "side").expect(0);
    let refused = merge(&lab, &id, "same").expect(75).says("moved/x: both have changed it");
    let _ = refused.says(format!("run its command in {id}"));
    let _ = lab.txos(["abort", "same"]).run().expect(0);
    // What it was a fork of is undone.
    let _ = lab.txos(["undo", &id, "-n", "2"]).run().expect(0);
    let _ = merge(&lab, &id, "gone").expect(125).says("undone or replaced");
    let _ = lab.txos(["redo", &id, "-n", "2"]).run().expect(0);
    let _ = merge(&lab, &id, "gone").expect(0);
    let _ = lab.txos(["commit", &id]).run().expect(0);
    let script = "cat moved/x log2 n gone; stat -c %h log; test ! -e b2; stat -c %a f";
    assert_eq!(lab.native(script).expect(0).text(), "x\n2\n1\nn\n4\n3\n700\n");
    lab.expect_clean();
}

/// While a command runs in the transaction, a fork does not wait for it.
#[test]
fn a_fork_beside_a_running_command() {
    let lab = Lab::in_memory();
    let id = kept(&lab, "echo 1 > a");
    let mut pause = Rendezvous::new();
    let script = format!("echo 2 >> a; echo b > b\n{PAUSE}");
    let running = lab.txos(["exec", &id, "--", "sh", "-c", &script]).meeting(&mut pause).start();
    assert!(pause.arrived());
    let words = [
        "exec",
        "--fork",
        "--name",
        "side",
        // The other one, which makes `b`, is in the way.
        "--wait",
        "1",
        &id,
        "--",
        "sh",
        "-c",
        "cat a; test ! -e b; echo c > c",
    ];
    assert_eq!(lab.txos(words).run().expect(0).text(), "1\n");
    // Merging waits for the command.
    let merging = lab.txos(["merge", &id, "side"]).start();
    until("it says that it waits", || merging.stderr().contains("waiting for the command"));
    pause.go();
    let _ = running.wait().expect(0);
    let _ = merging.wait().expect(0);
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(
        (lab.read("a"), lab.read("b"), lab.read("c")),
        ("1\n2\n".into(), "b\n".into(), "c\n".into())
    );
    lab.expect_clean();
}

/// Dies, or fails, at each step: the transaction is what it was, or what the two are together, and the other one is
/// there as long as it is not part of it.
#[test]
fn interrupted_at_each_step() {
    VIEWS.into_iter().for_each(interrupted_in);
}

fn interrupted_in(view: &str) {
    let lab = Lab::in_memory();
    for fault in ["kill", "ENOSPC"] {
        let (mut step, mut merged, mut not) = (1, 0, 0);
        loop {
            let lab = lab.nested(&format!("{fault}-{step}"));
            let _ = lab.native("echo old > a; ln a b; mkdir d; echo d > d/d").expect(0);
            let ours = kept_in(&lab, view, "echo new > n; echo 1 >> a");
            let theirs = kept_in(&lab, view, "mv d/d d/e; echo t > t; ln t d/t");
            let alone = seen(&lab, &ours);
            let count = lab.dir().join("steps");
            let done = lab
                .txos(["merge", &ours, &theirs])
                .env("TXOS_FAULT", format!("{fault}@{step}"))
                .env("TXOS_FAULT_COUNT", &count)
                .run();
            let what = std::fs::read_to_string(&count).unwrap_or_default();
            let Some(fired) = what.lines().find(|line| line.starts_with("fired ")) else {
                let _ = done.expect(0);
                break;
            };
            until("it is free", || {
                lab.txos(["show", &ours, "--json"]).run().json()["transaction"]["state"]
                    == "pending"
            });
            let now = seen(&lab, &ours);
            if now == alone {
                not += 1;
                assert_ne!(done.code(), 0, "{fault}@{step} ({fired})");
                assert!(pending(&lab).contains(&theirs), "{fault}@{step} ({fired})");
                // It can be tried again, or the layer is there to be redone.
                let redone = lab.txos(["redo", &ours]).run();
                if redone.code() != 0 {
                    let _ = merge(&lab, &ours, &theirs).expect(0);
                }
            } else {
                merged += 1;
            }
            let _ = lab.txos(["commit", &ours]).run().expect(0);
            let look = "cat a b n d/e t d/t; stat -c %h a t";
            let text = lab.native(look).expect(0).text();
            assert_eq!(text, "old\n1\nold\n1\nnew\nd\nt\nt\n2\n2\n", "{fault}@{step} ({fired})");
            if pending(&lab).contains(&theirs) {
                let _ = lab.txos(["abort", &theirs]).run().expect(0);
            }
            lab.expect_clean();
            // Most steps are alike.
            step += if step < 4 { 1 } else { stride(9, 17) };
        }
        assert!(merged > 0 && not > 2, "{view}, {fault}: merged {merged}, not {not}");
    }
}

/// One random change, of names that the two share in part.
pub fn change(random: &mut Random, names: &[&str]) -> String {
    let (p, q, n) = (*random.pick(names), *random.pick(names), random.below(1000));
    match random.below(11) {
        0..3 => format!("echo {n} >> {p}"),
        3 => format!("rm -rf {p}"),
        4 => format!("mkdir -p {p}"),
        5 => format!("mv -T {p} {q}"),
        6 => format!("ln {p} {q}"),
        7 => format!("chmod {:o} {p}", 0o700 | random.below(0o100)),
        8 => format!("cp -a {p} {q}.{n}"),
        9 => format!("echo {n} > {p}.{n}"),
        _ => format!("touch -h -d @{}0000 {p}", 1000 + n),
    }
}

/// What the random scripts change.
const SMALL: &str = "
    set -e; echo a > a; ln a b; mkdir -p d/e f/g; echo x > d/x; echo z > d/e/z; echo h > f/g/h; ln d/x d/y
    find . -exec touch -h -d @1000000000 {} +";

/// Two scripts of random changes, each of its own names.
fn random_scripts(seed: u64, sets: [&[&str]; 2], changes: usize) -> [String; 2] {
    let mut random = Random::new(seed);
    sets.map(|names| {
        let changes: Vec<String> = (0..changes).map(|_| change(&mut random, names)).collect();
        format!("set +e; {{ {}; }} 2>/dev/null; :", changes.join("; "))
    })
}

/// What two scripts leave after `before`, one after the other, in either order.
fn in_both_orders(lab: &Lab, seed: u64, before: &[&str], scripts: &[String; 2]) -> Vec<String> {
    let left = |order: [usize; 2]| {
        let native = lab.nested(&format!("native-{seed}-{}", order[0]));
        for script in before {
            let _ = native.native(script).expect(0);
        }
        for number in order {
            let _ = native.native(&scripts[number]).expect(0);
        }
        dump(native.tree())
    };
    vec![left([0, 1]), left([1, 0])]
}

/// Random commands: what is merged is what one makes after the other.
#[test]
fn random_pairs() {
    VIEWS.into_iter().for_each(random_pairs_in);
}

fn random_pairs_in(view: &str) {
    let lab = Lab::in_memory();
    let sets: [&[&str]; 2] =
        [&["a", "d/x", "d/e", "d/e/z", "d/n", "p"], &["b", "f", "f/g", "f/g/h", "d/y", "q"]];
    let (mut merged, mut refused) = (0, 0);
    for seed in 0..24 {
        let scripts = random_scripts(seed, sets, 3);
        let states = in_both_orders(&lab, seed, &[SMALL], &scripts);
        let lab = lab.nested(&format!("seed-{seed}"));
        let _ = lab.native(SMALL).expect(0);
        let [ours, theirs] = [&scripts[0], &scripts[1]].map(|script| kept_in(&lab, view, script));
        let done = merge(&lab, &ours, &theirs);
        if done.code() == 125 && view == "library" {
            // Of three commands all have failed.
            let _ = done.says("changes nothing: merge it the other way round");
            continue;
        }
        if done.code() == 75 {
            refused += 1;
            continue;
        }
        let done = done.expect(0);
        merged += 1;
        let now = seen(&lab, &ours);
        assert!(
            states.contains(&now),
            "{view}, seed {seed}: {scripts:?}\n{now}\n{states:?}\n{done:?}"
        );
        let _ = lab.txos(["commit", &ours]).run().expect(0);
        let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
        assert_eq!(dump(lab.tree()), now, "seed {seed}");
        lab.expect_clean();
    }
    assert!(merged > 4 && refused > 2, "{view}: merged {merged}, refused {refused}");
}

/// The same of a transaction and its fork, which have new files, new directories and moves in common.
#[test]
fn random_forks() {
    VIEWS.into_iter().for_each(random_forks_in);
}

fn random_forks_in(view: &str) {
    let lab = Lab::in_memory();
    let common = "set -e; echo n > n; ln n m; mkdir -p k/l; echo 1 > k/f; ln k/f k/l/f; echo o > k/o; ln k/o o; mv f f2; rm b
        find n m k o f2 -exec touch -h -d @1100000000 {} +";
    let sets: [&[&str]; 2] = [
        &["a", "d/x", "d/e", "n", "k/l", "f2/g", "p"],
        &["m", "k/o", "o", "d/y", "d", "f2/h", "q"],
    ];
    let (mut merged, mut refused) = (0, 0);
    for seed in 1000..1000 + stride(12, 6) {
        let scripts = random_scripts(seed, sets, 2);
        let states = in_both_orders(&lab, seed, &[SMALL, common], &scripts);
        let lab = lab.nested(&format!("seed-{seed}"));
        let _ = lab.native(SMALL).expect(0);
        let id = kept_in(&lab, view, common);
        let words = ["exec", "--fork", "--name", "side", &id, "--", "sh", "-c", &scripts[1]];
        let _ = lab.txos(words).run().expect(0);
        let _ = lab.txos(["exec", &id, "--", "sh", "-c", &scripts[0]]).run().expect(0);
        let before = seen(&lab, &id);
        let done = merge(&lab, &id, "side");
        if done.code() == 75 {
            refused += 1;
            assert_eq!(seen(&lab, &id), before, "{view}, seed {seed}");
            continue;
        }
        let done = done.expect(0);
        merged += 1;
        let now = seen(&lab, &id);
        assert!(
            states.contains(&now),
            "{view}, seed {seed}: {scripts:?}\n{now}\n{states:?}\n{done:?}"
        );
        let _ = lab.txos(["undo", &id]).run().expect(0);
        assert_eq!(seen(&lab, &id), before, "{view}, seed {seed}");
        let _ = lab.txos(["redo", &id]).run().expect(0);
        let _ = lab.txos(["commit", &id]).run().expect(0);
        let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
        assert_eq!(dump(lab.tree()), now, "{view}, seed {seed}");
        lab.expect_clean();
    }
    assert!(merged > 2 && refused > 0, "{view}: merged {merged}, refused {refused}");
}

/// Names of one new file stay names of one file, from whichever side the changes come that put them.
#[test]
fn names_of_a_new_file_stay_together() {
    VIEWS.into_iter().for_each(names_stay_together_in);
}

fn names_stay_together_in(view: &str) {
    let base = "set -e; mkdir k; echo f > k/f; ln k/f m; echo c > c; echo n > n";
    let cases = [
        // The new directory comes from the fork, and its file's other name with it.
        ("echo 1 > c2", "echo g > k/g", Some("k/f")),
        ("echo g > k/g", "echo 1 > c2", Some("k/f")),
        // One more name is a change of that name alone: c was new before the fork, too.
        ("echo 1 > c", "ln n n2", Some("n")),
        ("ln n n2", "echo 1 > c", Some("n")),
        // Both have another set of names, or content.
        ("ln m m2", "ln m m3", None),
        ("echo more >> m", "ln m m3", None),
        ("rm m", "echo g > k/g", None),
    ];
    for (ours, theirs, name) in cases {
        let lab = Lab::in_memory();
        let native = lab.nested("native");
        let id = kept_in(&lab, view, base);
        let words = ["exec", "--fork", "--name", "side", &id, "--", "sh", "-c", theirs];
        let _ = lab.txos(words).run().expect(0);
        let _ = lab.txos(["exec", &id, "--", "sh", "-c", ours]).run().expect(0);
        let before = [seen(&lab, &id), seen(&lab, "side")];
        let done = merge(&lab, &id, "side");
        let Some(name) = name else {
            if view == "overlay" && ours == "rm m" {
                // There a new directory is not one change with everything in it.
                let _ = done.expect(0);
                continue;
            }
            let _ = done.expect(75).says("both are as they were");
            assert_eq!([seen(&lab, &id), seen(&lab, "side")], before, "{ours}; {theirs}");
            continue;
        };
        let _ = done.expect(0);
        for script in [base, ours, theirs] {
            let _ = native.native(script).expect(0);
        }
        assert_eq!(seen(&lab, &id), dump(native.tree()), "{view}: {ours}; {theirs}");
        // They are one file for the next command as well.
        let script = format!("echo end >> {name}");
        let _ = lab.txos(["exec", &id, "--", "sh", "-c", &script]).run().expect(0);
        let _ = native.native(&script).expect(0);
        let _ = lab.txos(["commit", &id]).run().expect(0);
        let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
        assert_eq!(dump(lab.tree()), dump(native.tree()), "{view}: {ours}; {theirs}");
        lab.expect_clean();
    }
}

/// A time that one has given a directory is later than what the other does in it, and is no less kept if the other only changes
/// files there. Not both can be the later one.
#[test]
fn times_of_directories() {
    VIEWS.into_iter().for_each(times_of_directories_in);
}

fn times_of_directories_in(view: &str) {
    let lab = Lab::in_memory();
    let old = "touch -d @1000000000";
    for (number, (ours, theirs, code)) in [
        (format!("{old} one; echo > two/o"), format!("{old} two; echo > one/t"), 75),
        (format!("{old} .; echo > one/o"), format!("{old} one; echo > t"), 75),
        (format!("{old} one"), "echo > one/f".to_owned(), 0),
        ("echo > one/f".to_owned(), format!("{old} one"), 0),
        (format!("{old} one"), "mkdir two/t".to_owned(), 0),
    ]
    .into_iter()
    .enumerate()
    {
        let lab = lab.nested(&format!("case-{number}"));
        let _ = lab.native("mkdir one two; echo f > one/f").expect(0);
        let ids = [&ours, &theirs].map(|script| kept_in(&lab, view, script));
        if code != 0 {
            // An upper directory's time does not say whether it was set, or names came; the later one stays.
            if view == "library" {
                let _ = merge(&lab, &ids[0], &ids[1]).expect(code).says("has looked at it, and");
            }
            continue;
        }
        let _ = merge(&lab, &ids[0], &ids[1]).expect(0);
        let _ = lab.txos(["commit", &ids[0]]).run().expect(0);
        let time = lab.native("stat -c %Y one").expect(0).text();
        assert_eq!(time, "1000000000\n", "{view}: {ours}; {theirs}");
    }
}

/// Into a transaction whose every layer was undone, and from one.
#[test]
fn all_undone_is_nothing_changed() {
    for view in VIEWS {
        let lab = Lab::in_memory();
        let _ = lab.native("echo a > a; mkdir d").expect(0);
        let [one, two, three] = ["echo 1 > one; rm a", "echo 2 > d/two; mv d e", "echo 3 > three"]
            .map(|script| kept_in(&lab, view, script));
        let _ = lab.txos(["undo", &one]).run().expect(0);
        let _ = merge(&lab, &one, &two).expect(0);
        let _ = lab.txos(["undo", &three]).run().expect(0);
        let _ = merge(&lab, &one, &three).expect(0);
        let _ = lab.txos(["commit", &one]).run().expect(0);
        let shown = lab.native("cat a e/two; ls").expect(0).text();
        assert_eq!(shown, "a\n2\na\ne\n", "{view}");
        lab.expect_clean();
    }
}

/// Private copies in an upper directory have nothing in common with recorded changes.
#[test]
fn one_view_is_not_merged_with_the_other() {
    let lab = Lab::in_memory();
    let ids = VIEWS.map(|view| kept_in(&lab, view, &format!("echo {view} > {view}")));
    let before = [seen(&lab, &ids[0]), seen(&lab, &ids[1])];
    let [overlay, library] = &ids;
    let words = "kept from the library's view";
    let done = merge(&lab, overlay, library).expect(125).says(format!("{library} is {words}"));
    let _ = done.says(format!("and {overlay} from the overlay's view")).says("commit one");
    let _ =
        merge(&lab, library, overlay).expect(125).says("of different views").says("as they were");
    assert_eq!([seen(&lab, overlay), seen(&lab, library)], before);
    // Nor are two of the library's view of which the one that stays versions less.
    let words = ["--view", "library", "--keep", "-q"];
    let wide = lab.whole(&words, "echo w > wide").run().expect(0).stderr.trim().to_owned();
    let _ = merge(&lab, library, &wide).expect(125).says("one of another scope");
    let _ = merge(&lab, &wide, library).expect(0);
    let _ = lab.txos(["commit", &wide]).run().expect(0);
    assert_eq!((lab.read("library"), lab.read("wide")), ("library\n".into(), "w\n".into()));
    let _ = lab.txos(["abort", overlay]).run().expect(0);
    lab.expect_clean();
}

/// New directories, changes of a few bytes and files of several names of both, and another command and another merge in
/// what they are together.
#[test]
fn what_was_merged_goes_on() {
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    let prepare = "seq 9000 > log; seq 9000 > log2; mkdir -p d/e; echo x > d/x; ln d/x d/e/x";
    for place in [&lab, &native] {
        let _ = place.native(prepare).expect(0);
    }
    let patch =
        |file: &str| format!("printf zz | dd of={file} conv=notrunc bs=1 seek=10 2>/dev/null");
    let scripts = [
        format!("set -e; mkdir -p one/in; echo 1 > one/in/f; ln one/in/f one/g; {}", patch("log")),
        format!("set -e; mkdir -p two/in; echo 2 > two/in/f; ln two/in/f two.g; {}", patch("log2")),
        "set -e; echo more >> two/in/f; echo more >> one/g; mv two one/two; cat log log2 > both"
            .to_owned(),
        "set -e; echo 3 >> d/x; ln -s d link; mv d/e e".to_owned(),
    ];
    let mut states = vec![dump(native.tree())];
    for script in &scripts {
        let _ = native.native(script).expect(0);
        states.push(dump(native.tree()));
    }
    let [one, two] = [0, 1].map(|at| kept_in(&lab, "library", &scripts[at]));
    let _ = merge(&lab, &one, &two).expect(0);
    let _ = lab.txos(["exec", &one, "--", "sh", "-c", &scripts[2]]).run().expect(0);
    let three = kept_in(&lab, "library", &scripts[3]);
    let _ = merge(&lab, &one, &three).expect(0);
    assert_eq!(seen(&lab, &one), states[4]);
    for at in [3, 2, 1] {
        let _ = lab.txos(["undo", &one]).run().expect(0);
        assert_eq!(seen(&lab, &one), states[at], "at layer {at}");
    }
    let shown = lab.txos(["diff", "--layer", "2", &one]).run().expect(0).text();
    assert!(
        shown.contains("two/in/f") && shown.contains("zz") && !shown.contains("one/"),
        "{shown}"
    );
    let _ = lab.txos(["redo", &one, "-n", "3"]).run().expect(0);
    let before = dump(lab.tree());
    let _ = lab.txos(["commit", &one]).run().expect(0);
    assert_eq!(dump(lab.tree()), states[4]);
    let _ = lab.txos(["revert", &one]).run().expect(0);
    assert_eq!(dump(lab.tree()), before);
    lab.expect_clean();
}

#[test]
fn an_ordinary_user_forks_and_merges() {
    VIEWS.into_iter().for_each(an_ordinary_user_in);
}

fn an_ordinary_user_in(view: &str) {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    let library = place.lab.dir().join("libtxos.so");
    txos_testkit::process::copy_program(txos_testkit::binary::library(), library);
    place.native("mkdir d; echo x > d/x; echo a > a; ln a a2");
    let id = place
        .script(&["--view", view, "--keep", "-q"], "echo 1 > d/n; chmod 0 d/n; echo m >> a")
        .run();
    let id = id.expect(0).stderr.trim().to_owned();
    let words = [
        "exec",
        "--fork",
        "--name",
        "side",
        &id,
        "--",
        "sh",
        "-c",
        "echo 2 > d/m; chmod 500 d; rm d/x || :",
    ];
    let _ = place.txos(&words).run().expect(0);
    let other =
        place.script(&["--view", view, "--keep", "-q"], "mkdir k; echo k > k/k; chmod 555 k").run();
    let other = other.expect(0).stderr.trim().to_owned();
    let _ = place.txos(&["merge", &id, "side", &other]).run().expect(0);
    let _ = place.txos(&["commit", &id]).run().expect(0);
    let shown = Invocation::new("sh")
        .args(["-c", "cat a d/m k/k; stat -c '%a %h' d/n d k a; test ! -e d/x || echo x"])
        .dir(place.lab.tree())
        .run()
        .expect(0)
        .text();
    assert!(shown.starts_with("a\nm\n2\nk\n0 1\n500 2\n555 2\n644 "), "{shown}");
}
