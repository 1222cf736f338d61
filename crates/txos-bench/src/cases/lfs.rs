//! The LFS benchmark: many small files, and a large one; each phase one transaction.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::calls::multiple;
use crate::bench::Bench;
use crate::crew::Report;
use crate::measure::{Stats, time};
use crate::program::{self, Place, Program};

/// A benchmark: the word for the program, and its phases with what they are in the table and the
/// papers' multiples, not durable and durable.
type Kind = (&'static str, &'static [(&'static str, &'static str, Option<[f64; 2]>)]);

const KINDS: [Kind; 3] = [
    (
        "small",
        &[
            ("create", "create 10,000 × 1 KiB in a directory", Some([0.1, 0.1])),
            ("read", "… read them", Some([1.2, 1.3])),
            ("delete", "… delete them", Some([2.0, 2.4])),
        ],
    ),
    (
        "spread",
        &[
            ("create", "create 10,000 × 1 KiB in 100 new directories", None),
            ("read", "… read them", None),
            ("delete", "… delete them and the directories", None),
        ],
    ),
    (
        "large",
        &[
            ("write", "write 100 MiB", Some([0.2, 0.6])),
            ("read", "… read them", Some([1.1, 1.1])),
            ("write-random", "… write them in random order", Some([0.03, 0.05])),
            ("read-random", "… read them in random order", Some([0.9, 1.0])),
            ("reread", "… read them once more", None),
        ],
    ),
];

/// Measures all of it; Markdown.
pub fn lfs(bench: &Bench) -> Result<String, String> {
    let program = Program::compile(bench, "lfs")?;
    let rounds = bench.pairs();
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Each phase is one transaction, begin and end counted; durable ones against the same phase \
         followed by `syncfs`. The large file is read and written 8 KiB at a time; everything is in \
         the page cache when it is read. Each run is in a directory and (if it has one) with a store of \
         its own, apart from those of the others, because ext4 makes new files slowly where many were \
         deleted lately; one small transaction comes before what is measured. Medians and spread of {rounds} rounds, by turns. \"Papers\" are \
         theirs: time in a transaction as a multiple of that without, on ext2 and (durable) ext3.\n"
    );
    if bench.quick() {
        let _ = writeln!(text, "Quick: 1,000 files, and 10 MiB.\n");
    }
    for place in Place::both(bench)? {
        for durable in [false, true] {
            if durable && !place.durable {
                continue;
            }
            let _ = writeln!(
                text,
                "On {}{}:\n\n| phase | native | transaction | measured | spread | papers |\n\
                 |---|---|---|---|---|---|",
                place.name,
                if durable { ", durable" } else { "" }
            );
            for (word, phases) in KINDS {
                let mut pairs = Vec::new();
                for round in 0..rounds {
                    eprintln!("lfs: {word} on {}, round {} of {rounds}", place.name, round + 1);
                    let plain = || one(bench, &place, &program, word, durable, false);
                    let txos = || one(bench, &place, &program, word, durable, true);
                    // Not always in the same order.
                    pairs.push(if round % 2 == 0 {
                        let plain = plain()?;
                        (plain, txos()?)
                    } else {
                        let txos = txos()?;
                        (plain()?, txos)
                    });
                }
                for (key, what, papers) in phases {
                    let of = |f: fn(f64, f64) -> f64| {
                        Stats::of(pairs.iter().filter_map(|(plain, txos)| {
                            Some(f(*plain.get(*key)?, *txos.get(*key)?))
                        }))
                    };
                    let seconds = |stats: Stats| time(stats.median / 1e9);
                    let ratio = of(|plain, txos| txos / plain);
                    let papers = papers.map(|both| both[usize::from(durable)]);
                    let _ = writeln!(
                        text,
                        "| {what} | {} | {} | {} | {} … {} | {} |",
                        seconds(of(|plain, _| plain)),
                        seconds(of(|_, txos| txos)),
                        multiple(ratio.median),
                        multiple(ratio.min),
                        multiple(ratio.max),
                        papers.map_or("–".into(), |p| format!("{p}×"))
                    );
                }
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// All phases, in a new directory and with a new store.
fn one(
    bench: &Bench,
    place: &Place,
    program: &Program,
    word: &str,
    durable: bool,
    with: bool,
) -> Result<Report, String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let place = place.inside(&format!("lfs{}", NUMBER.fetch_add(1, Ordering::Relaxed)))?;
    let dir = place.at("work");
    let how = match (with, durable) {
        (true, true) => "durable",
        (true, false) => "transaction",
        (false, true) => "flushed",
        (false, false) => "plain",
    };
    bench.flush()?;
    // The device is still busy with what was discarded.
    std::thread::sleep(Duration::from_millis(100));
    let mut command = program.command(&place, with, &[&dir.to_string_lossy(), word, how]);
    if bench.quick() {
        command.env("count", "1000").env("size", (10 << 20).to_string());
    }
    program::report(command)
}
