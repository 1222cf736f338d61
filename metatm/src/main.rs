//! The `metatm` command.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use metatm::machine::{Config, Ended, Images, Machine};

/// Boots a kernel on a simulated RISC-V machine with transactional memory.
#[derive(Debug, Parser)]
#[command(name = "metatm", version)]
struct Cli {
    /// The kernel's Image
    kernel: PathBuf,
    /// Initial file system (cpio)
    #[arg(long)]
    initrd: Option<PathBuf>,
    /// What is on the disk
    #[arg(long)]
    disk: Option<PathBuf>,
    /// The kernel's command line
    #[arg(long, default_value = "earlycon=sbi console=ttyS0")]
    append: String,
    /// Harts
    #[arg(long, default_value_t = 8)]
    harts: usize,
    /// Without caches: each instruction takes a cycle
    #[arg(long)]
    fast: bool,
    /// Cycles after which it ends
    #[arg(long, default_value_t = 100_000_000_000)]
    cycles: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("metatm: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let kernel = read(&cli.kernel)?;
    let initrd = cli.initrd.as_ref().map(read).transpose()?.unwrap_or_default();
    let disk = cli.disk.as_ref().map(read).transpose()?.unwrap_or_default();
    let mut config = Config { harts: cli.harts, ..Config::default() };
    if cli.fast {
        config.caches = None;
        config.slice = 1000;
    }
    let mut machine = Machine::new(&config, disk)?;
    machine.boot(&Images { kernel: &kernel, initrd: &initrd, command_line: &cli.append })?;
    let begun = Instant::now();
    let ended = machine.run(cli.cycles, |output| std::io::stdout().write_all(output).is_ok());
    let instructions: u64 = machine.harts.iter().map(|h| h.instret).sum();
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!(
        "metatm: {ended:?} after {} cycles; {instructions} instructions in {seconds:.2} s, {:.1} million a second",
        machine.now(),
        instructions as f64 / seconds / 1e6
    );
    Ok(match ended {
        Ended::Asked(metatm::machine::bus::Ending::Failed) => ExitCode::FAILURE,
        Ended::Asked(_) => ExitCode::SUCCESS,
        Ended::Cycles | Ended::Asleep => ExitCode::from(3),
    })
}
