//! Moving a file to another directory by `link` and `unlink` in a transaction, against `rename`.

use std::fmt::Write as _;

use super::calls::multiple;
use super::thousands;
use crate::bench::Bench;
use crate::measure::Stats;
use crate::program::{self, Place, Program};

/// Threads at a time.
const THREADS: [usize; 3] = [1, 2, 4];
/// Ways to move; the last is the one with the library.
const HOWS: [&str; 3] = ["rename", "pair", "transaction"];

/// Measures all of it; Markdown.
pub fn renames(bench: &Bench) -> Result<String, String> {
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
         with eight. Here are {} processors.\n\n\
         | file system | directories | threads | `rename` | `link`, `unlink` | transaction | begun again |\n\
         |---|---|---|---|---|---|---|",
        std::thread::available_parallelism().map_or(1, usize::from)
    );
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
                let first = rates.first().cloned().unwrap_or_default();
                let cells: Vec<String> = rates
                    .iter()
                    .enumerate()
                    .map(|(n, theirs)| {
                        let median = thousands(Stats::of(theirs.iter().copied()).median as u64);
                        if n == 0 {
                            return median;
                        }
                        let s = Stats::of(theirs.iter().zip(&first).map(|(a, b)| a / b));
                        let [median_, min, max] = [s.median, s.min, s.max].map(multiple);
                        format!("{median} ({median_}, {min} … {max})")
                    })
                    .collect();
                let _ = writeln!(
                    text,
                    "| {} | {directories} | {threads} | {} | {again:.0} |",
                    place.name,
                    cells.join(" | ")
                );
            }
        }
    }
    Ok(text)
}
