//! The contention policies, each under the same workloads: how often transactions begin again, how
//! many get on, and how bad it gets for the unluckiest.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use txos_engine::contention::Policy;

use super::{at, remove, thousands};
use crate::bench::Bench;
use crate::chart::{Chart, Group, Panel};
use crate::crew;
use crate::measure::Stats;
use crate::workloads::{self, WORK_NS, Workload};

/// Numbers of processes.
const PROCESSES: [usize; 2] = [4, 8];
/// The policy that the picture compares with, and another if that one has no restarts.
const COMPARED: [Policy; 2] = [Policy::SizeMatters, Policy::OsPriority];

/// One policy under one workload, so many processes, one round.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    commits: f64,
    restarts: f64,
    worst: f64,
    special_commits: f64,
    special_worst: f64,
    killed: f64,
}

/// All rounds of a cell.
#[derive(Clone, Debug, Default)]
struct Cells(Vec<Cell>);

impl Cells {
    /// Restarts for each commit; infinite if nothing committed.
    fn rate(&self) -> f64 {
        Stats::of(self.0.iter().map(|c| c.restarts / c.commits)).median
    }

    fn median(&self, of: fn(&Cell) -> f64) -> f64 {
        Stats::of(self.0.iter().map(of)).median
    }

    fn most(&self, of: fn(&Cell) -> f64) -> f64 {
        Stats::of(self.0.iter().map(of)).max
    }
}

/// Measures all of it; Markdown, and the picture.
pub fn policies(bench: &Bench) -> Result<String, String> {
    let rounds = if bench.quick() { 1 } else { bench.pairs() };
    let time = Duration::from_millis(if bench.quick() { 200 } else { 1_000 });
    let base =
        PathBuf::from("/dev/shm").join(format!("txos-bench-{}-policies", std::process::id()));
    // By workload, number of processes, policy.
    let mut all =
        vec![vec![vec![Cells::default(); Policy::ALL.len()]; PROCESSES.len()]; Workload::ALL.len()];
    let measured: Result<(), String> = (0..rounds).try_for_each(|round| {
        for (workload, by_count) in Workload::ALL.into_iter().zip(&mut all) {
            eprintln!("policies: round {} of {rounds}, {}", round + 1, workload.name());
            for (count, by_policy) in PROCESSES.into_iter().zip(by_count) {
                for (policy, cells) in Policy::ALL.into_iter().zip(by_policy) {
                    cells.0.push(cell(bench, &base, workload, count, policy, time)?);
                }
            }
        }
        Ok(())
    });
    remove(&base)?;
    measured?;
    if let Some(path) = bench.picture("policies.svg") {
        at(&path, std::fs::write(&path, picture(&all).svg()))?;
        eprintln!("policies: {} is written", path.display());
    }
    Ok(tables(&all, rounds, time))
}

/// Measures one cell in a realm of its own.
fn cell(
    bench: &Bench,
    dir: &PathBuf,
    workload: Workload,
    count: usize,
    policy: Policy,
    time: Duration,
) -> Result<Cell, String> {
    remove(dir)?;
    at(dir, std::fs::create_dir(dir))?;
    let realm = at(dir, crew::join(dir))?;
    realm.set_policy(policy);
    let members: Vec<Vec<String>> = (0..count)
        .map(|n| {
            let words = ["play", workload.name(), &dir.to_string_lossy(), &n.to_string()];
            words.map(str::to_owned).to_vec()
        })
        .collect();
    let reports = crew::run(bench, &members, time)?;
    let mut cell = Cell::default();
    for report in &reports {
        let Some(report) = report else {
            cell.killed += 1.0;
            continue;
        };
        let value = |key: &str| report.get(key).copied().unwrap_or_default();
        if value("wrong") != 0.0 {
            return Err(format!("{}, {policy}: a sum was wrong", workload.name()));
        }
        let (commits, worst) = (value("commits") / time.as_secs_f64(), value("worst"));
        cell.commits += commits;
        cell.restarts += value("restarts") / time.as_secs_f64();
        cell.worst = cell.worst.max(worst);
        if value("special") != 0.0 {
            cell.special_commits += commits;
            cell.special_worst = cell.special_worst.max(worst);
        }
    }
    if workload == Workload::Counter && cell.killed == 0.0 {
        let counted = at(dir, workloads::counted(dir))? as f64;
        let commits = (cell.commits * time.as_secs_f64()).round();
        if counted != commits {
            return Err(format!("counter, {policy}: {commits} commits made {counted}"));
        }
    }
    Ok(cell)
}

/// A table for each workload.
fn tables(all: &[Vec<Vec<Cells>>], rounds: usize, time: Duration) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Each figure is from {rounds} × {} ms, the policies by turns: restarts for each commit and commits \
         in a second are medians of the rounds; \"worst\" is the largest number of attempts of any \
         transaction in all rounds, the last one of a process included, which may not have committed. \
         With each facet a transaction works for {} µs. 4 and 8 are processes.",
        time.as_millis(),
        WORK_NS / 1_000
    );
    for (workload, by_count) in Workload::ALL.into_iter().zip(all) {
        let _ = writeln!(text, "\n**{}**: {}.\n", workload.name(), workload.about());
        let mut columns = vec!["restarts per commit", "commits/s", "worst"];
        let special =
            workload.special().map(|who| [format!("{who}: commits/s"), format!("{who}: worst")]);
        columns.extend(special.iter().flatten().map(String::as_str));
        let head: String = columns
            .iter()
            .map(|column| PROCESSES.map(|n| format!(" {column}, {n} |")).concat())
            .collect();
        let _ = writeln!(
            text,
            "| policy |{head}\n|---|{}",
            "---|".repeat(PROCESSES.len() * columns.len())
        );
        for (at, policy) in Policy::ALL.into_iter().enumerate() {
            let cells: Vec<&Cells> = by_count.iter().filter_map(|c| c.get(at)).collect();
            let row = |show: &dyn Fn(&Cells) -> String| -> String {
                cells.iter().map(|c| format!(" {} |", show(c))).collect()
            };
            let mut line = row(&|c| rate(c.rate()));
            line += &row(&|c| whole(c.median(|c| c.commits)));
            line += &row(&|c| whole(c.most(|c| c.worst)));
            if special.is_some() {
                line += &row(&|c| small(c.median(|c| c.special_commits)));
                line += &row(&|c| whole(c.most(|c| c.special_worst)));
            }
            let _ = writeln!(text, "| `{policy}` |{line}");
        }
        let killed: f64 =
            by_count.iter().flatten().map(|c| c.0.iter().map(|c| c.killed).sum::<f64>()).sum();
        if killed > 0.0 {
            let _ = writeln!(text, "\nProcesses that did not end and were killed: {killed}.");
        }
    }
    text
}

fn rate(rate: f64) -> String {
    match rate {
        r if !r.is_finite() => "no commit".into(),
        0.0 => "0".into(),
        r if r < 0.0095 => format!("{r:.4}"),
        r if r < 9.95 => format!("{r:.2}"),
        r => format!("{r:.0}"),
    }
}

fn whole(n: f64) -> String {
    thousands(n.round() as u64)
}

fn small(n: f64) -> String {
    if n > 0.0 && n < 9.95 { format!("{n:.1}") } else { whole(n) }
}

/// Restart rates, against those of the policy compared with: that one is the line, not a bar.
fn picture(all: &[Vec<Vec<Cells>>]) -> Chart {
    let drawn: Vec<Policy> = Policy::ALL.into_iter().filter(|p| *p != COMPARED[0]).collect();
    let panels = PROCESSES.iter().enumerate().map(|(at, count)| {
        let groups = Workload::ALL.into_iter().zip(all).map(|(workload, by_count)| {
            let rates: Vec<f64> = by_count.get(at).into_iter().flatten().map(Cells::rate).collect();
            let of = |policy: Policy| rates.get(policy.code() as usize).copied().unwrap_or(0.0);
            let base = COMPARED.into_iter().find(|p| of(*p) > 0.0 && of(*p).is_finite());
            let ratio = |policy: &Policy| Some(of(*policy) / of(base?));
            let unit = match base {
                Some(policy) if policy == COMPARED[0] => format!("1 = {}", rate(of(policy))),
                Some(policy) => format!("1 = {policy}'s {}", rate(of(policy))),
                None => "no restarts".into(),
            };
            let bars = drawn.iter().map(ratio).collect();
            Group { name: workload.name().into(), unit, bars }
        });
        Panel { title: format!("{count} processes"), groups: groups.collect() }
    });
    Chart {
        title: "How often transactions begin again under each policy".into(),
        axis: format!("restarts per commit, {} = 1", COMPARED[0]),
        line: COMPARED[0].name().into(),
        series: drawn.iter().map(|p| p.name().to_owned()).collect(),
        panels: panels.collect(),
    }
}
