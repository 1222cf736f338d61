//! Random operations on a random tree: the same list is carried out natively and in a transaction,
//! and the results must be equal. Operations may fail; they must fail alike. What fails is cut down
//! to the operations that matter.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Lab;
use crate::random::Random;
use crate::tree::{Tolerance, Tree, overlay_traces};

/// Names are few, so that operations meet.
const NAMES: &[&str] = &["a", "b", "c", "d", "e", "f"];

/// Nothing is deeper than this many names.
const DEPTH_MAX: u64 = 4;

/// What makes a tree, and a transaction on it; each operation a line of shell.
#[derive(Clone, Debug)]
pub struct Case {
    /// Done before, natively.
    pub prepare: Vec<String>,
    /// Done in a transaction.
    pub operations: Vec<String>,
}

impl Case {
    /// The case of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Case {
        let mut random = Random::new(seed);
        let mut list = |n| (0..n).map(|n| operation(&mut random, n)).collect();
        Case { prepare: list(60), operations: list(30) }
    }

    fn text(list: &[String]) -> String {
        // rename(2) itself: mv would copy where it is refused.
        let mut text =
            "move_over() { perl -e 'exit(!rename $ARGV[0], $ARGV[1])' \"$1\" \"$2\"; }\n"
                .to_owned();
        for (n, operation) in list.iter().enumerate() {
            text.push_str(&format!("({operation}) 2>/dev/null </dev/null; echo {n} $?\n"));
        }
        text
    }

    /// Natively, in a transaction that is rolled back, in one that is committed, reverted, and
    /// reverted back: all must agree.
    ///
    /// # Errors
    /// What did not.
    pub fn check(&self, lab: &Lab) -> Result<(), String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let native = lab.nested(&format!("native-{n}"));
        let ours = lab.nested(&format!("ours-{n}"));
        let prepare = Self::text(&self.prepare);
        for place in [&native, &ours] {
            let script =
                format!("set +e\n{prepare}\nfind . -exec touch -h -d @1000000000 {{}} +\ntrue");
            let _ = place.native(&script);
        }
        let script = Self::text(&self.operations);
        let before = Tree::of(ours.tree());
        let same = |what: &str, was: &Tree, tolerance| {
            let difference = was.difference(&Tree::of(ours.tree()), tolerance);
            if difference.is_empty() { Ok(()) } else { Err(format!("{what}:\n{difference}")) }
        };
        let ended = |what: &str, done: &crate::Done, code: i32| {
            if done.code() == code {
                Ok(())
            } else {
                Err(format!("{what} ({})\n{}", done.code(), done.stderr))
            }
        };
        let done = ours.script(&[], &format!("{script}\nexit 9")).run();
        ended("rolled back", &done, 9)?;
        same("what was rolled back has left", &before, Tolerance::default())?;

        let expected = native.native(&format!("set +e\n{script}\ntrue")).text();
        let done = ours.script(&[], &format!("{script}\ntrue")).run();
        if done.code() == 125
            && done.stderr.contains("has other names, and was changed by this one")
        {
            // Refused, as docs/limits.md says; and then nothing is changed.
            return same("what was refused has left", &before, Tolerance::default());
        }
        ended("commit", &done, 0)?;
        let text = done.text();
        if let Some((theirs, mine)) = expected.lines().zip(text.lines()).find(|(a, b)| a != b) {
            return Err(format!(
                "an operation ended otherwise: natively {theirs:?}, here {mine:?}"
            ));
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
                let done = ours.txos(["revert", "@"]).run();
                ended(what, &done, 0)?;
                let tolerance = Tolerance { links: true, ..Tolerance::default() };
                same(&format!("{what} has left"), target, tolerance)?;
            }
        }
        Ok(())
    }

    /// The same failure with fewer operations, as far as leaving out one at a time leads.
    #[must_use]
    pub fn minimised(&self, lab: &Lab) -> Case {
        let mut case = self.clone();
        let mut step = 16;
        while step > 0 {
            for operations in [false, true] {
                let mut at = 0;
                loop {
                    let mut smaller = case.clone();
                    let list =
                        if operations { &mut smaller.operations } else { &mut smaller.prepare };
                    if at >= list.len() {
                        break;
                    }
                    list.drain(at..(at + step).min(list.len()));
                    if smaller.check(lab).is_err() {
                        case = smaller;
                    } else {
                        at += step;
                    }
                }
            }
            step /= 2;
        }
        case
    }
}

fn operation(random: &mut Random, n: u64) -> String {
    let (p, q) = (path(random), path(random));
    let name = *random.pick(NAMES);
    let small = random.below(3);
    match random.below(24) {
        // Opening a FIFO would wait for ever.
        0..=2 => format!("test ! -p {p} && echo {n} > {p}"),
        3 | 4 => format!("test ! -p {p} && echo {n} >> {p}"),
        5 | 6 => format!("mkdir {p}"),
        7 => format!("mkdir -p {p}/a/b && echo {n} > {p}/a/b/c"),
        8 | 9 => format!("mv -T {p} {q}"),
        10 | 11 => format!("move_over {p} {q}"),
        12 => format!("rm {p}"),
        13 => format!("rmdir {p}"),
        14 => format!("rm -r {p}"),
        15 => format!("ln {p} {q}"),
        16 => format!("ln -s {name} {p}"),
        17 => format!("chmod {} {p}", ["600", "755", "4711"][small as usize]),
        18 => format!("chown -h {small}:{small} {p}"),
        19 => format!("touch -c -h -d @{} {p}", 1_000_000_100 + n),
        20 => format!("setfattr -h -n user.{small} -v {n} {p}"),
        21 => format!("mkfifo {p}"),
        22 => format!("truncate -c -s {} {p}", n * 100),
        _ => format!("test ! -p {p} && cat {p}"),
    }
}

fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(DEPTH_MAX);
    let names: Vec<&str> = (0..depth).map(|_| *random.pick(NAMES)).collect();
    names.join("/")
}
