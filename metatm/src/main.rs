//! The `metatm` command.

mod evaluate;
mod experiment;
mod gdb;
mod options;
mod page;
mod runs;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use metatm::machine::bus::Ending;
use metatm::machine::{Ended, Images, Machine, sbi};
use metatm::symbols::Symbols;
use metatm::tm::policy::Decision;

use options::{Cli, Command, Run};
use rustc_hash::FxHashMap;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Run(args) => run(args),
        Command::Evaluate(args) => evaluate::evaluate(args).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("metatm: {error}");
        ExitCode::from(2)
    })
}

/// Reads a file, or says which one could not be read.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn run(args: &Run) -> Result<ExitCode, String> {
    let kernel = read(&args.kernel)?;
    let optional = |path: &Option<std::path::PathBuf>| match path {
        Some(path) => read(path),
        None => Ok(Vec::new()),
    };
    let (initrd, disk, map) =
        (optional(&args.initrd)?, optional(&args.disk)?, optional(&args.map)?);
    let symbols = Symbols::parse(&String::from_utf8_lossy(&map));
    let mut machine = Machine::new(&args.machine.config(), disk).map_err(|e| e.to_string())?;
    machine.profile = args.profile.then(Default::default);
    if args.profile {
        machine.bus.watched.ranges = symbols.ranges(experiment::waits);
    }
    machine.bus.tm.stats.traced = args.trace.unwrap_or(0);
    machine
        .boot(&Images { kernel: &kernel, initrd: &initrd, command_line: &args.append })
        .map_err(|e| e.to_string())?;
    let begun = Instant::now();
    machine.deadline =
        args.seconds.and_then(|seconds| begun.checked_add(Duration::from_secs(seconds)));
    let console = |output: &[u8]| {
        let mut out = std::io::stdout();
        out.write_all(output).and_then(|()| out.flush()).is_ok()
    };
    let ended = match &args.gdb {
        Some(address) => gdb::Client::wait(address)?.run(&mut machine, args.cycles, console),
        None => machine.run(args.cycles, console),
    };
    let seconds = begun.elapsed().as_secs_f64();
    let instructions: u64 = machine.harts.iter().map(|h| h.instret).sum();
    let how = match ended {
        Ended::Asked(Ending::PowerOff) => "powered off".to_owned(),
        Ended::Asked(Ending::Reboot) => "asked for a reboot".to_owned(),
        Ended::Asked(Ending::Failed) => "powered off after a failure".to_owned(),
        Ended::Cycles => format!("stopped after --cycles {}", args.cycles),
        Ended::TimeUp => format!("stopped after --seconds {}", args.seconds.unwrap_or(0)),
        Ended::Asleep => "stopped: every hart waits, and nothing will wake one".to_owned(),
        Ended::Debugger => "stopped by the debugger".to_owned(),
    };
    eprintln!(
        "metatm: {how}; {} cycles; {instructions} instructions in {seconds:.2} s, {:.1} million a second",
        machine.now(),
        instructions as f64 / seconds / 1e6
    );
    if args.trace.is_some() {
        trace(&machine, &symbols);
    }
    if let Some(profile) = &machine.profile {
        print_profile(profile, &symbols);
        print_waits(&machine, &symbols);
    }
    if args.json {
        let text =
            serde_json::to_string_pretty(&machine.bus.tm.stats).map_err(|e| e.to_string())?;
        println!("{text}");
    }
    Ok(match ended {
        Ended::Asked(Ending::Failed) => ExitCode::FAILURE,
        Ended::Asked(_) => ExitCode::SUCCESS,
        Ended::Cycles | Ended::TimeUp | Ended::Asleep | Ended::Debugger => ExitCode::from(3),
    })
}

/// Prints the functions in which the harts spent most cycles. Turns are told apart by where they begin, so that single figures are
/// those of a sample.
fn print_profile(profile: &FxHashMap<u64, u64>, symbols: &Symbols) {
    let mut functions: BTreeMap<String, u64> = BTreeMap::new();
    for (&pc, cycles) in profile {
        let name = if pc == 0 { "(programs)".to_owned() } else { symbols.function(pc) };
        *functions.entry(name).or_default() += cycles;
    }
    let all = functions.values().sum::<u64>().max(1);
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by_key(|(_, cycles)| std::cmp::Reverse(*cycles));
    println!("\n      cycles      %  function");
    for (name, cycles) in functions.into_iter().take(40) {
        println!("{cycles:>12}  {:>5.1}  {name}", 100.0 * cycles as f64 / all as f64);
    }
}

/// Prints what synchronization cost, and which critical regions waited longest for their locks.
fn print_waits(machine: &Machine, symbols: &Symbols) {
    let stats = &machine.bus.tm.stats;
    let locks: u64 = machine.harts.iter().map(|h| h.visit.cycles).sum();
    let busy = machine.harts.iter().map(|h| h.clock.saturating_sub(h.idle + h.user)).sum();
    for (cycles, what) in [
        (busy, "in the kernel, of which"),
        (locks, "waiting for locks"),
        (stats.stall_cycles, "in stalls"),
        (stats.backoff_cycles, "waiting to start again"),
        (stats.wasted_cycles, "in attempts that were restarted"),
    ] {
        println!("{cycles:>12}  cycles {what}");
    }
    let mut regions: BTreeMap<String, u64> = BTreeMap::new();
    for (pc, cycles) in &machine.bus.watched.regions {
        *regions.entry(symbols.name(*pc)).or_default() += cycles;
    }
    let mut regions: Vec<_> = regions.into_iter().collect();
    regions.sort_by_key(|(_, cycles)| std::cmp::Reverse(*cycles));
    println!("\n      cycles      %  region that waited for its lock");
    for (name, cycles) in regions.into_iter().take(20) {
        println!("{cycles:>12}  {:>5.1}  {name}", 100.0 * cycles as f64 / locks.max(1) as f64);
    }
}

/// Prints the last conflicts, who conflicted most with whom, and the regions that were restarted most.
fn trace(machine: &Machine, symbols: &Symbols) {
    let stats = &machine.bus.tm.stats;
    println!(
        "{:>14}  {:<44}  {:<5}  {:<30}  {:<30}  outcome",
        "cycle", "access", "", "data", "holder"
    );
    for event in &stats.trace {
        let outcome = match event.decision {
            Decision::HolderLoses => "holder restarts".to_owned(),
            Decision::RequesterLoses => "restarts itself".to_owned(),
            Decision::Stall(cycles) => format!("stalls for {cycles}"),
        };
        println!(
            "{:>14}  {:<44}  {:<5}  {:<30}  {:<30}  {outcome}",
            event.at,
            format!("hart {} {}", event.hart, symbols.name(event.pc)),
            if event.write { "write" } else { "read" },
            symbols.data(event.data, sbi::KERNEL),
            format!("hart {} {}", event.holder, symbols.name(event.holder_pc)),
        );
    }
    println!("\n{} conflicts, of which the last {} are above", stats.seen, stats.trace.len());
    println!("\nconflicts  {:<44}  region of the holder", "access");
    let mut pairs: BTreeMap<(String, String), u64> = BTreeMap::new();
    for ((pc, holder), n) in &stats.pairs {
        *pairs.entry((symbols.function(*pc), symbols.name(*holder))).or_default() += n;
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    for ((access, holder), n) in pairs.into_iter().take(20) {
        println!("{n:>9}  {access:<44}  {holder}");
    }
    let mut most: Vec<_> = stats.restarts_by_pc.iter().collect();
    most.sort_by_key(|(pc, n)| (std::cmp::Reverse(**n), **pc));
    println!("\nrestarts  not to be rolled back  transactions  region");
    for (pc, n) in most.into_iter().take(20) {
        let begun = stats.begun_by_pc.get(pc).copied().unwrap_or(0);
        let exclusive = stats.exclusive_by_pc.get(pc).copied().unwrap_or(0);
        println!("{n:>8}  {exclusive:>21}  {begun:>12}  {}", symbols.name(*pc));
    }
    println!("\nhart  where it is at the end");
    for hart in &machine.harts {
        let tx = machine.bus.tm.running(hart.id).map_or(String::new(), |tx| {
            let region = symbols.name(tx.checkpoint.x[1]);
            format!("  in a transaction of {region}, {} restarts", tx.restarts)
        });
        println!("{:>4}  {}{tx}", hart.id, symbols.name(hart.pc));
    }
}
