//! Short transactions that check something and then use it, near the root and far from it.

use crate::bench::Bench;
use crate::figure::{Figure, Section, Unit};
use crate::program::{self, Place, Program};

/// Directories on the way below the benchmark's own, and what such a write may cost, in seconds.
const DEPTHS: [(usize, f64); 2] = [(3, 20e-6), (300, 150e-6)];

/// Measures all of it.
pub fn deep(bench: &Bench) -> Result<Section, String> {
    let program = Program::compile(bench, "deep")?;
    let rounds = bench.pairs();
    let transactions = if bench.quick() { "200" } else { "1000" };
    let mut figures = Vec::new();
    let mut number = 0;
    for place in Place::both(bench)? {
        for (depth, limit) in DEPTHS {
            for what in ["look", "write"] {
                let mut times: [Vec<f64>; 2] = Default::default();
                for round in 0..rounds {
                    for n in 0..times.len() {
                        // Not always in the same order.
                        let n = (n + round) % times.len();
                        let place = place.inside(&format!("deep{number}"))?;
                        number += 1;
                        let dir = place.at("work");
                        let words =
                            [&*dir.to_string_lossy(), &depth.to_string(), transactions, what];
                        let report = program::report(program.command(&place, n == 1, &words))?;
                        let ns = report.get("ns").copied().unwrap_or(f64::NAN);
                        if let Some(times) = times.get_mut(n) {
                            times.push(ns * 1e-9);
                        }
                    }
                }
                let [base, values] = times;
                let median = crate::measure::Stats::of(base.iter().copied()).median;
                let calls =
                    if what == "look" { "`lstat` twice" } else { "`lstat`, `open`, `pwrite`" };
                figures.push(Figure {
                    place: place.name.clone(),
                    what: format!("{calls}, {depth} directories"),
                    subject: "in a transaction".into(),
                    unit: Unit::Seconds,
                    base,
                    values,
                    papers: None,
                    asked: (what == "write").then(|| (limit / median * 10.0).round() / 10.0),
                });
            }
        }
    }
    let text = format!(
        "A file is looked at by `lstat`, opened, and 10 bytes of it are overwritten; or it is looked at twice. \
         {rounds} rounds of {transactions} transactions that are not durable, by turns; medians.\n"
    );
    Ok(Section {
        name: "deep".into(),
        title: "Check, then use".into(),
        text,
        base: "natively".into(),
        figures,
        ..Section::default()
    })
}
