//! The command line: every parameter of the machine.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use metatm::machine::{Config, cache};
use metatm::tm::policy::{Backoff, Figures, Policy};

use crate::evaluate::System;

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
    /// Print the last conflicts at the end, 10,000 if it is not said how many: who conflicted with whom, and where
    #[arg(long, value_name = "CONFLICTS", num_args = 0..=1, default_missing_value = "10000", require_equals = true)]
    pub trace: Option<usize>,
    /// Print at the end in which functions the harts spent their cycles
    #[arg(long)]
    pub profile: bool,
    /// Print the figures at the end as JSON
    #[arg(long)]
    pub json: bool,
    /// Wait for gdb at this address, such as 127.0.0.1:1234, and run as it says
    #[arg(long, value_name = "ADDRESS")]
    pub gdb: Option<String>,
    /// Cycles after which it ends
    #[arg(long, default_value_t = 200_000_000_000)]
    pub cycles: u64,
    /// Seconds of real time after which it ends
    #[arg(long)]
    pub seconds: Option<u64>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// `metatm evaluate`.
#[derive(Debug, Args)]
pub struct Evaluate {
    /// Directory with Image.linux, System.map.linux, Image.txlinux, System.map.txlinux, initrd.cpio and disk.ext2
    pub images: PathBuf,
    /// Where to write index.html and results.json
    #[arg(long, default_value = "metatm-report")]
    pub report: PathBuf,
    /// Only this workload; may be repeated
    #[arg(long)]
    pub only: Vec<String>,
    /// Only this system; may be repeated
    #[arg(long, value_enum)]
    pub system: Vec<System>,
    /// Go on with an evaluation that was interrupted: what the report has is not measured again
    #[arg(long)]
    pub resume: bool,
    /// Runs at a time
    #[arg(long, short, default_value_t = 1)]
    pub jobs: usize,
    /// How much the workloads do
    #[arg(long, default_value_t = 1)]
    pub size: u32,
    /// More of the kernels' command line, such as txlinux=all
    #[arg(long, default_value = "")]
    pub append: String,
    /// Cycles after which a run is taken for one that hangs, for each step of the size
    #[arg(long, default_value_t = 3_000_000_000)]
    pub cycles: u64,
    /// Seconds of real time after which a run is taken for one that hangs
    #[arg(long, default_value_t = 600)]
    pub seconds: u64,
    /// Minutes of real time after which no run is begun any more; `--resume` goes on later
    #[arg(long)]
    pub minutes: Option<u64>,
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
    /// Millions of cycles a second
    #[arg(long, default_value_t = 1000)]
    pub mhz: u64,
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
    /// Transactions: what suspends one when a trap is taken, and takes it up at the return
    #[arg(long, value_enum, default_value_t = Traps::Hardware)]
    pub traps: Traps,
    /// Transactions: stack that is dead is not released early
    #[arg(long)]
    pub no_early_release: bool,
    /// Transactions: handlers of interrupts may overwrite the stack to which one would restart
    #[arg(long)]
    pub no_live_stack: bool,
    /// Transactions: bytes of a kernel's stack, a power of two
    #[arg(long, default_value_t = 16384)]
    pub stack_bytes: u64,
    /// Transactions: times that `xcas` gives way to one that has the word in its sets
    #[arg(long, default_value_t = 4)]
    pub cas_patience: u32,
    /// Policies: cycles of a stall, of the first one where they grow
    #[arg(long, default_value_t = Figures::default().stall_cycles)]
    pub stall_cycles: u64,
    /// Policies: stalls of `polite` before the holder restarts
    #[arg(long, default_value_t = Figures::default().polite_stalls)]
    pub polite_stalls: u32,
    /// Policies: restarts after which `size-matters` decides by age
    #[arg(long, default_value_t = Figures::default().size_restarts)]
    pub size_restarts: u32,
    /// Backoff: most cycles of the first wait
    #[arg(long, default_value_t = Figures::default().backoff_cycles)]
    pub backoff_cycles: u64,
    /// Backoff: how often `exponential` doubles it
    #[arg(long, default_value_t = Figures::default().backoff_doublings)]
    pub backoff_doublings: u32,
    /// Seed of what is drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What suspends a transaction when a trap is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Traps {
    /// The trap itself; `sret` takes the transaction up
    Hardware,
    /// The handler, by `xpush` and `xpop`
    Software,
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
        config.hertz = self.mhz.saturating_mul(1_000_000);
        config.disk_us = self.disk_us;
        config.wire_us = self.wire_us;
        config.tm.policy = self.policy;
        config.tm.backoff = self.backoff;
        config.tm.granularity = self.granularity;
        config.tm.commit_cycles = self.commit_cycles;
        config.tm.abort_cycles = self.abort_cycles;
        config.tm.traps_push = self.traps == Traps::Hardware;
        config.tm.early_release = !self.no_early_release;
        config.tm.live_stack = !self.no_live_stack;
        config.tm.stack_bytes = self.stack_bytes;
        config.tm.cas_patience = self.cas_patience;
        config.tm.figures = Figures {
            stall_cycles: self.stall_cycles,
            polite_stalls: self.polite_stalls,
            size_restarts: self.size_restarts,
            backoff_cycles: self.backoff_cycles,
            backoff_doublings: self.backoff_doublings,
        };
        config.tm.seed = self.seed;
        config
    }
}
