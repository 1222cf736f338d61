//! Shell scripts, each command a process of its own: natively, in a transaction that is rolled back, and in
//! one that is committed, reverted, and reverted back, they get the same answers and leave the same tree.
//! `trees` tries random operations; here are scripts that failed once, and one for each tool.

use txos_testkit::tree::{Tolerance, Tree, overlay_traces};
use txos_testkit::{Done, Lab};

/// What is there before, and what the transaction does. Operations may fail; they must fail alike.
const SCRIPTS: &[(&str, &str)] = &[
    // Names looked up through a link, to what the transaction then makes or changes.
    ("mkdir a; ln -s c a/d", "mv -T a/d/f b; mkdir -p a/c/a"),
    ("mkdir -p c/c/b; ln -s c e", "mkdir e/f; echo 28 > e/f/c"),
    ("ln -s d a", "mkdir a/b; echo 0 > d"),
    ("ln -s b a", "echo 16 > b; echo 19 >> a/f"),
    ("ln -s a c; ln -s c a", "rm -r c/c/d; rm -r a"),
    ("echo 10 > a; ln -s a f", "chmod 4711 f/d/a; rm -r a"),
    ("ln -s d e", "mkdir -p d/c/e/e/a/b; move_over d/e/f e/c"),
    // A name of a file whose other names are in other directories.
    ("echo 13 > c; mkdir -p b/c; ln c b/c/d", "rm -r c"),
    ("echo 7 > d; ln d b", "echo 13 >> b; rm -r b"),
    ("mkdir -p a/f/b; ln -s d e", "rm -r e; move_over a/f e"),
    ("mkdir -p a/f/b; mkdir -p e/d/c", "rm -r e; move_over a/f e"),
    // Times of directories of which attributes and entries were changed.
    ("mkdir b", "echo 1 > b/c; setfattr -h -n user.2 -v 23 b"),
    ("mkdir d", "echo 12 > d/a; chown -h 2:2 d"),
    ("mkdir -p d/a; ln -s d c", "ln -s f c/b; chmod 600 c"),
    ("mkdir c", "mkdir b; mv -T c b/f"),
    // Each tool on each type of object, there and missing, by its own name and through links.
    (
        "mkdir -p d/e f; echo 1 > d/a; ln d/a b; ln -s d l; ln -s a d/s; ln -s none n; mkfifo p",
        "cat l/a; echo 2 >> l/s; cat b; chmod 600 l/s; chmod 755 n; chown -h 1:1 n; chown -h 2:2 d/a; \
         touch -c -h -d @1000000101 l; touch -c -h -d @1000000102 b; touch -c -h -d @1000000103 none; \
         setfattr -h -n user.1 -v 4 d/a; setfattr -h -n user.1 -v 5 l; truncate -c -s 300 b; \
         truncate -c -s 9 n; mkfifo l/e/p; mkfifo p; cat d/e",
    ),
    (
        "mkdir -p d/e/g f; echo 1 > d/a; echo 2 > d/e/a; ln d/a f/b; ln -s ../d f/l; mkfifo d/e/p",
        "mv -T d/e f/l/x; mv -T f/l/x/g d; mv -T f/l y; move_over d/a f/b; move_over d/x f; \
         move_over d/x/p d/a; rm d; rmdir f; rmdir d/x/g; rm -r d/x; cat y/a; mkdir -p d/x/a/b; \
         mv -T f d/x/a/b/f; cat d/x/a/b/f/b",
    ),
    (
        "mkdir -p d/e; echo 1 > d/a; ln d/a d/e/a; ln d/a d/b; ln -s e d/l; mkfifo d/p",
        "ln d/l/a d/e/c; echo 3 >> d/l/c; rm d/a; ln d/p d/e/p; rm d/p; ln d/l d/m; rm -r d/e; cat d/b; \
         mkdir d/e; ln d/b d/m/b; rm d/b; cat d/e/b; rm -r d; ln -s d d; cat d; echo 4 > d",
    ),
];

/// A script that says of each operation how it ended.
fn script(operations: &str) -> String {
    // rename(2) itself: mv would copy where it is refused.
    let mut text =
        "move_over() { perl -e 'exit(!rename $ARGV[0], $ARGV[1])' \"$1\" \"$2\"; }\n".to_owned();
    for (n, operation) in operations.split(';').map(str::trim).enumerate() {
        text.push_str(&format!("({operation}) 2>/dev/null </dev/null; echo {n} $?\n"));
    }
    text
}

/// # Errors
/// What did not agree.
fn check(lab: &Lab, n: usize, prepare: &str, operations: &str) -> Result<(), String> {
    let [native, ours] = ["native", "ours"].map(|name| lab.nested(&format!("{name}-{n}")));
    for place in [&native, &ours] {
        let times = "find . -exec touch -h -d @1000000000 {} +";
        let _ = place.native(&format!("set +e\n{}\n{times}\ntrue", script(prepare)));
    }
    let script = script(operations);
    let before = Tree::of(ours.tree());
    let same = |what: &str, was: &Tree, tolerance| match was
        .difference(&Tree::of(ours.tree()), tolerance)
    {
        difference if difference.is_empty() => Ok(()),
        difference => Err(format!("{what}:\n{difference}")),
    };
    let ended = |what: &str, done: &Done, code: i32| match done.code() {
        ended if ended == code => Ok(()),
        other => Err(format!("{what} ({other})\n{}", done.stderr)),
    };
    ended("rolled back", &ours.script(&[], &format!("{script}\nexit 9")).run(), 9)?;
    same("what was rolled back has left", &before, Tolerance::default())?;

    let expected = native.native(&format!("set +e\n{script}\ntrue")).text();
    let done = ours.script(&[], &format!("{script}\ntrue")).run();
    ended("commit", &done, 0)?;
    if done.text() != expected {
        return Err(format!("natively\n{expected}\nin a transaction\n{}", done.text()));
    }
    let tolerance = Tolerance { now_from: Some(1_500_000_000), times: false, links: true };
    same("natively (-), here (+)", &Tree::of(native.tree()), tolerance)?;
    let traces = overlay_traces(ours.tree());
    if !traces.is_empty() {
        return Err(format!("traces of overlayfs: {traces:?}"));
    }
    let after = Tree::of(ours.tree());
    if done.stderr.contains("committed") {
        for (target, what) in [(&before, "revert"), (&after, "revert of the revert")] {
            ended(what, &ours.txos(["revert", "@"]).run(), 0)?;
            let tolerance = Tolerance { links: true, ..Tolerance::default() };
            same(&format!("{what} has left"), target, tolerance)?;
        }
    }
    Ok(())
}

#[test]
fn each_script_does_as_natively() {
    let lab = Lab::in_memory();
    let mut wrong = Vec::new();
    for (n, (prepare, operations)) in SCRIPTS.iter().enumerate() {
        if let Err(what) = check(&lab, n, prepare, operations) {
            wrong.push(format!("{prepare} | {operations}: {what}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SCRIPTS.len(), wrong.join("\n\n"));
}
