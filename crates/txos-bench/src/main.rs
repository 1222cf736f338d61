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
//! | [`measure`] | pairs, medians, limits |
//! | [`table`] | the Markdown table, and the conditions above it |
//! | [`work`] | what the measured commands do, where no tool of the system does it |
//!
//! `docs/performance.md` has the latest table and how to repeat it.

mod bench;
mod cases;
mod measure;
mod table;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::bench::Bench;
use crate::cases::CASES;

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
    let bench = Bench::new(args.txos.clone(), &args.dir, args.quick, args.pairs)?;
    let load = table::load();
    let mut rows = Vec::new();
    let mut skipped = Vec::new();
    for case in CASES {
        if !args.names.is_empty() && !args.names.iter().any(|name| name == case.name) {
            continue;
        }
        // One that can't run here takes nothing away from the others.
        match (case.run)(&bench) {
            Ok(more) => rows.extend(more),
            Err(why) => skipped.push(format!("{}: {why}", case.name)),
        }
        bench.tidy()?;
    }
    table::print(&bench, &load, &rows, &skipped);
    Ok(())
}
