//! Moving a file to another directory by `link` and `unlink` in a transaction, against `rename`.

use std::fmt::Write as _;

use crate::bench::Bench;
use crate::figure::{Figure, Section, Unit};
use crate::program::{self, Place, Program};

/// Threads at a time.
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// Ways to move; the last is the one with the library.
const HOWS: [&str; 3] = ["rename", "pair", "transaction"];

/// What they are in a table.
const SUBJECTS: [&str; 3] = ["`rename`", "`link`, `unlink`", "in a transaction"];

/// Measures all of it.
pub fn renames(bench: &Bench) -> Result<Section, String> {
    let program = Program::compile(bench, "renames")?;
    let rounds = bench.pairs();
    let span = if bench.quick() { 200 } else { 500 };
    let mut number = 0;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Moves a second, each thread a file of its own to another directory and back: by `rename`, by \
         `link` and `unlink` (which others see in between), and by these two in a transaction that is \
         not durable. The directories are each thread's own, or two common ones. {rounds} rounds of \
         {span} ms, by turns, medians; in brackets as a multiple of `rename`, with its spread over the \
         rounds. In the papers the transaction reaches 0.94× of `rename` with two processors and 3.9× \
         with eight, for 500,000 moves. Here are {} processors.\n",
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    let mut figures = Vec::new();
    let mut begun = String::new();
    for place in Place::both(bench)? {
        for directories in ["own", "common"] {
            for threads in THREADS {
                let mut rates: [Vec<f64>; HOWS.len()] = Default::default();
                let mut again = 0.0;
                for round in 0..rounds {
                    eprintln!(
                        "rename-pair: {threads} threads on {}, {directories} directories, round {} of {rounds}",
                        place.name,
                        round + 1
                    );
                    for n in 0..HOWS.len() {
                        // Not always in the same order.
                        let n = (n + round) % HOWS.len();
                        let (Some(how), Some(rates)) = (HOWS.get(n), rates.get_mut(n)) else {
                            continue;
                        };
                        let place = place.inside(&format!("renames{number}"))?;
                        number += 1;
                        let dir = place.at("work");
                        let words = [
                            &*dir.to_string_lossy(),
                            how,
                            directories,
                            &threads.to_string(),
                            &span.to_string(),
                        ];
                        let with = n + 1 == HOWS.len();
                        let report = program::report(program.command(&place, with, &words))?;
                        let value = |key| report.get(key).copied().unwrap_or(f64::NAN);
                        rates.push(value("rate"));
                        again += value("again");
                    }
                }
                let plural = if threads == 1 { "" } else { "s" };
                let what = format!("{threads} thread{plural}, {directories} directories");
                if again > 0.0 {
                    let _ = writeln!(begun, "- {}, {what}: {again:.0}", place.name);
                }
                let [base, others @ ..] = rates;
                for (subject, values) in SUBJECTS.iter().skip(1).zip(others) {
                    let papers = match threads {
                        2 => Some(0.94),
                        8 => Some(3.9),
                        _ => None,
                    };
                    figures.push(Figure {
                        place: place.name.clone(),
                        what: what.clone(),
                        subject: (*subject).into(),
                        unit: Unit::PerSecond,
                        base: base.clone(),
                        values,
                        papers: papers.filter(|_| *subject == "in a transaction"),
                        asked: (*subject == "in a transaction" && threads == 2).then_some(1.0),
                    });
                }
            }
        }
    }
    if !begun.is_empty() {
        begun.insert_str(0, "Transactions that began again:\n\n");
    }
    Ok(Section {
        name: "rename-pair".into(),
        title: "Moving a file by link and unlink (the papers' figure 4)".into(),
        text,
        base: "`rename`".into(),
        figures,
        more: begun,
        ..Section::default()
    })
}
