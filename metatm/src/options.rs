//! The command line: every parameter of the machine.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use metatm::machine::{Config, cache};
use metatm::tm::policy::{Backoff, Policy};

/// A RISC-V machine with transactional memory
#[derive(Debug, Parser)]
#[command(name = "metatm", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot a kernel; its console is the terminal
    Run(Run),
    /// Run the workloads on Linux and TxLinux, and write tables and plots beside the paper's
    Evaluate(Evaluate),
}

/// `metatm run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The kernel's Image
    pub kernel: PathBuf,
    /// Initial file system (cpio)
    #[arg(long)]
    pub initrd: Option<PathBuf>,
    /// What is on the disk
    #[arg(long)]
    pub disk: Option<PathBuf>,
    /// The kernel's command line
    #[arg(long, default_value = "console=ttyS0")]
    pub append: String,
    /// The kernel's System.map: names in the trace and in the figures
    #[arg(long)]
    pub map: Option<PathBuf>,
    /// Print the conflicts at the end: who conflicted with whom, and where
    #[arg(long)]
    pub trace: bool,
    /// Print the figures at the end as JSON
    #[arg(long)]
    pub json: bool,
    /// Cycles after which it ends
    #[arg(long, default_value_t = 200_000_000_000)]
    pub cycles: u64,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// `metatm evaluate`.
#[derive(Debug, Args)]
pub struct Evaluate {
    /// Directory with Image.linux, System.map.linux, Image.txlinux, System.map.txlinux and initrd.cpio
    pub images: PathBuf,
    /// Where to write index.html and results.json
    #[arg(long, default_value = "metatm-report")]
    pub report: PathBuf,
    /// Only this workload; may be repeated
    #[arg(long)]
    pub only: Vec<String>,
    /// How much the workloads do
    #[arg(long, default_value_t = 1)]
    pub size: u32,
    /// Only the tables, not the sweeps over policies, penalties and harts
    #[arg(long)]
    pub tables: bool,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// The machine's parameters. Latencies and sizes are the paper's where nothing else is said.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// Harts, 1 to 32
    #[arg(long, default_value_t = 8)]
    pub harts: usize,
    /// Memory in MiB
    #[arg(long, default_value_t = 1024)]
    pub memory: u64,
    /// Without caches: each instruction takes a cycle
    #[arg(long)]
    pub fast: bool,
    /// Cycles that a hart may be ahead of the others
    #[arg(long, default_value_t = 50)]
    pub slice: u64,
    /// First-level caches: size in bytes
    #[arg(long, default_value_t = 16384)]
    pub l1_bytes: usize,
    /// First-level caches: lines of a set
    #[arg(long, default_value_t = 4)]
    pub l1_ways: usize,
    /// First-level caches: cycles of a miss
    #[arg(long, default_value_t = 16)]
    pub l1_miss: u64,
    /// Second-level caches: size in bytes
    #[arg(long, default_value_t = 4 << 20)]
    pub l2_bytes: usize,
    /// Second-level caches: lines of a set
    #[arg(long, default_value_t = 8)]
    pub l2_ways: usize,
    /// Second-level caches: cycles of a miss
    #[arg(long, default_value_t = 200)]
    pub l2_miss: u64,
    /// Caches: cycles of a write to a line that others share
    #[arg(long, default_value_t = 200)]
    pub upgrade: u64,
    /// Disk: microseconds of a request
    #[arg(long, default_value_t = 5500)]
    pub disk_us: u64,
    /// Wire: microseconds of a frame
    #[arg(long, default_value_t = 100)]
    pub wire_us: u64,
    /// Transactions: which goes on in a conflict
    #[arg(long, value_enum, default_value_t = Policy::SizeMatters)]
    pub policy: Policy,
    /// Transactions: how long one waits before it starts again
    #[arg(long, value_enum, default_value_t = Backoff::Exponential)]
    pub backoff: Backoff,
    /// Transactions: bytes in which conflicts are detected, 1 or 64
    #[arg(long, default_value_t = 1)]
    pub granularity: u64,
    /// Transactions: cycles of a commit
    #[arg(long, default_value_t = 0)]
    pub commit_cycles: u64,
    /// Transactions: cycles of a restart
    #[arg(long, default_value_t = 0)]
    pub abort_cycles: u64,
    /// Transactions: stack that is dead is not released early
    #[arg(long)]
    pub no_early_release: bool,
    /// Seed of what is drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl MachineArgs {
    /// The machine's configuration.
    pub fn config(&self) -> Config {
        let mut config =
            Config { harts: self.harts, memory: self.memory << 20, ..Config::default() };
        config.caches = (!self.fast).then_some(cache::Config {
            l1_bytes: self.l1_bytes,
            l1_ways: self.l1_ways,
            l1_miss: self.l1_miss,
            l2_bytes: self.l2_bytes,
            l2_ways: self.l2_ways,
            l2_miss: self.l2_miss,
            upgrade: self.upgrade,
        });
        config.slice = if self.fast { self.slice.max(500) } else { self.slice };
        config.disk_us = self.disk_us;
        config.wire_us = self.wire_us;
        config.tm.policy = self.policy;
        config.tm.backoff = self.backoff;
        config.tm.granularity = self.granularity;
        config.tm.commit_cycles = self.commit_cycles;
        config.tm.abort_cycles = self.abort_cycles;
        config.tm.early_release = !self.no_early_release;
        config.tm.seed = self.seed;
        config
    }
}
