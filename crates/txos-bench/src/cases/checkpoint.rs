//! TX_CHECKPOINT: what it costs to keep memory, and to put it back.

use crate::bench::Bench;
use crate::figure::{Figure, Section, Unit};
use crate::measure::Stats;
use crate::program::{self, Place, Program};

/// Pages in memory, and what beginning may cost with them, in seconds.
const PAGES: [(usize, f64); 3] = [(100, 40e-6), (10_000, 1030e-6), (100_000, 10_030e-6)];
/// What the first write to a page may cost, in seconds.
const TOUCH: f64 = 4e-6;

/// Measures all of it.
pub fn checkpoint(bench: &Bench) -> Result<Section, String> {
    let program = Program::compile(bench, "checkpoint")?;
    let rounds = bench.pairs();
    let place = Place::both(bench)?.into_iter().next().ok_or("no place to measure in")?;
    let mut figures = Vec::new();
    let mut number = 0;
    for (pages, limit) in PAGES {
        let transactions = if pages > 10_000 { 15 } else { 200 };
        let mut times: [[Vec<f64>; 4]; 2] = Default::default();
        for round in 0..rounds {
            for n in 0..times.len() {
                // Not always in the same order.
                let n = (n + round) % times.len();
                let place = place.inside(&format!("checkpoint{number}"))?;
                number += 1;
                let how = if n == 1 { "checkpoint" } else { "plain" };
                let words = [&*pages.to_string(), &*transactions.to_string(), how];
                let report = program::report(program.command(&place, true, &words))?;
                for (kind, what) in ["begin", "touch", "commit", "abort"].iter().enumerate() {
                    let ns = report.get(*what).copied().unwrap_or(f64::NAN);
                    if let Some(times) = times.get_mut(n).and_then(|times| times.get_mut(kind)) {
                        times.push(ns * 1e-9);
                    }
                }
            }
        }
        let [base, values] = times;
        let what = ["begin", "first write to a page", "commit", "abort"];
        for (kind, (base, values)) in base.into_iter().zip(values).enumerate() {
            let median = Stats::of(base.iter().copied()).median;
            let limit = [Some(limit), Some(TOUCH), None, None].get(kind).copied().flatten();
            figures.push(Figure {
                place: place.name.clone(),
                what: format!("{}, {pages} pages", what.get(kind).copied().unwrap_or_default()),
                subject: "with TX_CHECKPOINT".into(),
                unit: Unit::Seconds,
                base,
                values,
                papers: None,
                asked: limit.map(|limit| (limit / median * 10.0).round() / 10.0),
            });
        }
    }
    let text = format!(
        "A process that has so many pages in memory begins, writes to a hundredth of them (at most 1,000), and commits \
         or aborts. {rounds} rounds of 200 transactions (15 with 100,000 pages), by turns; medians.\n"
    );
    Ok(Section {
        name: "checkpoint".into(),
        title: "Memory that is put back".into(),
        text,
        base: "without".into(),
        figures,
        ..Section::default()
    })
}
