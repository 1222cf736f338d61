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
//! | [`measure`] | pairs, medians, limits |
//! | [`nanos`] | what a realm's operations cost, measured within one process |
//! | [`program`] | programs in C, with the library and without |
//! | [`random`] | random numbers that repeat |
//! | [`table`] | the Markdown table, and the conditions above it |
//! | [`work`] | what the measured commands do, where no tool of the system does it |
//! | [`workloads`] | transactions of several processes that meet in a realm |
//!
//! `docs/performance.md` has the latest table and how to repeat it.

mod bench;
mod cases;
mod chart;
mod crew;
mod measure;
mod nanos;
mod program;
mod random;
mod table;
mod work;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::bench::Bench;
use crate::cases::{CASES, Run};

/// Measures txos against the plain commands and prints a Markdown table.
#[derive(Debug, Parser)]
#[command(name = "txos-bench", version)]
struct Args {
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
    /// List the benchmarks
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == work::WORD) {
        return work::main(words);
    }
    let args = Args::parse();
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
    let load = table::load();
    let mut rows = Vec::new();
    let mut sections = Vec::new();
    let mut skipped = Vec::new();
    for case in CASES {
        if !args.names.is_empty() && !args.names.iter().any(|name| name == case.name) {
            continue;
        }
        // One that can't run here takes nothing away from the others.
        let done = match case.run {
            Run::Rows(run) => run(&bench).map(|more| rows.extend(more)),
            Run::Section(run) => run(&bench).map(|text| sections.push((case.name, text))),
        };
        match done {
            Ok(()) => {}
            Err(why) => skipped.push(format!("{}: {why}", case.name)),
        }
        bench.tidy()?;
    }
    table::print(&bench, &load, &rows, &sections, &skipped);
    Ok(())
}
