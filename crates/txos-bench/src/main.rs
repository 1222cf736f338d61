//! `txos-bench`: what transactions cost, as ratios against the plain command.
//!
//! Every figure is measured in alternation within one run (plain, transaction, plain, …), so that
//! what else happens on the machine meets both, and is given as median and spread over the pairs.
//! Each stands beside the limit it has to keep; those that miss it are shown like the rest.
//!
//! | module | what lives there |
//! |---|---|
//! | [`bench`] | where a benchmark runs: the built `txos`, a store and a directory of its own |
//! | [`cases`] | the benchmarks |
//! | [`chart`] | a picture of bars |
//! | [`crew`] | several processes of this program that begin at once |
//! | [`figure`] | what was measured, as data: subjects against what they are compared with |
//! | [`measure`] | pairs, medians, limits |
//! | [`nanos`] | what a realm's operations cost, measured within one process |
//! | [`plot`] | a picture of growth |
//! | [`program`] | programs in C, with the library and without |
//! | [`report`] | one page, data and text of everything |
//! | [`subject`] | who does the same work: the kernel, an overlay, `txos run`, a program, `try` |
//! | [`table`] | the Markdown table, and the conditions above it |
//! | [`work`] | what the measured commands do, where no tool of the system does it |
//! | [`workloads`] | transactions of several processes that meet in a realm |
//!
//! `docs/performance.md` has the latest table and how to repeat it.

mod bench;
mod cases;
mod chart;
mod crew;
mod figure;
mod measure;
mod nanos;
mod plot;
mod program;
mod report;
mod subject;
mod table;
mod work;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::bench::Bench;
use crate::cases::{CASES, Run};
use crate::figure::Section;
use crate::report::{FORMAT, Report};

/// Measures txos against the plain commands and prints a Markdown table.
#[derive(Debug, Parser)]
#[command(name = "txos-bench", version, subcommand_precedence_over_arg = true)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Benchmarks to run [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Fewer pairs and smaller trees: for a look while working, not for publishing
    #[arg(long)]
    quick: bool,
    /// pairs of each benchmark [default: 5, or 3 with --quick]
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,
    /// The txos to measure [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    txos: Option<PathBuf>,
    /// Where to make the trees; on a real file system
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Where to write pictures [default: docs/pictures of the source; nowhere with --quick]
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Another file system to run the papers' benchmarks on; may be repeated
    #[arg(long, value_name = "NAME=DIR", value_parser = named)]
    also: Vec<(String, PathBuf)>,
    /// A file system in memory; /dev/shm can't be versioned
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory: PathBuf,
    /// A checkout of `try` to measure beside
    #[arg(long = "try", value_name = "DIR")]
    rival: Option<PathBuf>,
    /// Write index.html, report.json and report.md there
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// List the benchmarks
    #[arg(long)]
    list: bool,
}

/// What this program does as one process of a benchmark.
#[derive(Debug, Subcommand)]
enum Part {
    /// Does a part of a benchmark
    #[command(subcommand, hide = true)]
    Work(work::Work),
}

/// `NAME=DIR`.
fn named(text: &str) -> Result<(String, PathBuf), String> {
    let (name, dir) = text.split_once('=').ok_or("it is to be NAME=DIR")?;
    let dir = std::path::Path::new(dir).canonicalize().map_err(|e| format!("{dir}: {e}"))?;
    Ok((name.to_owned(), dir))
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Part::Work(work)) = &args.part {
        return work::main(work);
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("txos-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    if args.list {
        CASES.iter().for_each(|case| println!("{:10}  {}", case.name, case.about));
        return Ok(());
    }
    if let Some(name) = args.names.iter().find(|n| !CASES.iter().any(|c| c.name == **n)) {
        return Err(format!("there is no benchmark {name:?}; --list shows them"));
    }
    let mut bench = Bench::new(args.txos.clone(), &args.dir, args.quick, args.pairs)?;
    bench.draw_in(args.pictures.clone());
    bench.compare_with(args.also.clone(), args.rival.clone());
    bench.remember_in(args.memory.clone());
    let load = table::load();
    let mut rows = Vec::new();
    let mut sections = Vec::new();
    let mut skipped = Vec::new();
    for case in CASES {
        if !args.names.is_empty() && !args.names.iter().any(|name| name == case.name) {
            continue;
        }
        let begun = std::time::Instant::now();
        // One that can't run here takes nothing away from the others.
        let done = match case.run {
            Run::Rows(run) => run(&bench).map(|more| rows.extend(more)),
            Run::Figures(run) => run(&bench).map(|section| sections.push(section)),
            Run::Section(run) => run(&bench).map(|text| {
                sections.push(Section {
                    name: case.name.into(),
                    title: case.name.into(),
                    text,
                    ..Section::default()
                });
            }),
        };
        match done {
            Ok(()) => {}
            Err(why) => skipped.push(format!("{}: {why}", case.name)),
        }
        bench.tidy()?;
        eprintln!("{}: {} s", case.name, begun.elapsed().as_secs());
    }
    if !rows.is_empty() {
        let text = table::rows(&rows);
        let (name, title) = ("commands".into(), "Single commands".into());
        sections.insert(0, Section { name, title, text, ..Section::default() });
    }
    let conditions = table::conditions(&bench, &load);
    let report = Report { format: FORMAT, conditions, sections, missing: skipped };
    println!("{}", report.text());
    args.report.as_ref().map_or(Ok(()), |dir| report.write(dir))
}
