//! One run of one workload, and what comes of it.

use std::time::{Duration, Instant};

use metatm::machine::{Config, Ended, Error, Images, Machine, bus::Ending};
use metatm::symbols::Symbols;
use metatm::tm::stats::Stats;

/// A kernel with the names of its functions.
#[derive(Debug)]
pub struct Kernel {
    /// The Image.
    pub image: Vec<u8>,
    /// Its System.map.
    pub symbols: Symbols,
}

/// What is booted.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The initial file system.
    pub initrd: &'a [u8],
    /// What is on the disk.
    pub disk: &'a [u8],
    /// The end of the kernel's command line.
    pub line: &'a str,
    /// Cycles after which a workload is taken for one that hangs.
    pub cycles: u64,
    /// Real time after which it is taken for one that hangs.
    pub time: Duration,
}

/// What one run gave.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Result {
    /// Microseconds of simulated time.
    pub us: u64,
    /// Seconds of all harts in programs, in the kernel, and idle, as the kernel counts them (in ticks of a hundredth).
    pub user: f64,
    /// In the kernel.
    pub system: f64,
    /// Idle.
    pub idle: f64,
    /// Cycles in the kernel while the workload ran.
    pub kernel_cycles: u64,
    /// Of these, waiting for locks, stalled, waiting to start again, or in attempts that were restarted.
    pub sync_cycles: u64,
    /// Of these, waiting for locks.
    pub spin_cycles: u64,
    /// Instructions, all in all.
    pub instructions: u64,
    /// Transactions.
    pub tm: Stats,
    /// Misses of the second level.
    pub l2_misses: u64,
    /// Traffic of the bus for coherence.
    pub coherence: u64,
}

/// Functions in which a kernel waits for a spinlock.
#[must_use]
pub fn waits(name: &str) -> bool {
    name.starts_with("_raw_spin_lock")
        || name.starts_with("cx_lock")
        || name.starts_with("cx_exclusive")
}

/// Runs a workload.
///
/// # Errors
/// If it does not come to its end, with the end of what the console said.
pub fn run(
    config: &Config,
    guest: &Guest<'_>,
    workload: &str,
) -> std::result::Result<Result, String> {
    let mut machine =
        Machine::new(config, guest.disk.to_vec()).map_err(|e: Error| e.to_string())?;
    machine.deadline = Instant::now().checked_add(guest.time);
    machine.bus.watched.ranges = guest.kernel.symbols.ranges(waits);
    let line = format!("console=ttyS0 quiet workload={workload} {}", guest.line);
    machine
        .boot(&Images { kernel: &guest.kernel.image, initrd: guest.initrd, command_line: &line })
        .map_err(|e| e.to_string())?;
    let mut text = String::new();
    // Until the workload begins; what was counted until then is not its own.
    let begins = format!("BEGIN {workload}");
    let mut ended = machine.run(guest.cycles, |output| {
        text.push_str(&String::from_utf8_lossy(output));
        !text.contains(&begins)
    });
    let busy = |machine: &Machine| -> (u64, u64) {
        let kernel = machine.harts.iter().map(|h| h.clock.saturating_sub(h.idle + h.user)).sum();
        (kernel, machine.harts.iter().map(|h| h.visit.cycles).sum())
    };
    let before = busy(&machine);
    machine.bus.tm.stats = Stats { traced: machine.bus.tm.stats.traced, ..Stats::default() };
    if ended == Ended::Cycles {
        ended = machine.run(guest.cycles, |output| {
            text.push_str(&String::from_utf8_lossy(output));
            true
        });
    }
    let after = busy(&machine);
    let last = || {
        text.lines()
            .rev()
            .take(8)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join("\n  ")
    };
    if ended != Ended::Asked(Ending::PowerOff) {
        return Err(format!("{workload} did not end ({ended:?}):\n  {}", last()));
    }
    let wanted = format!("END {workload} ");
    let line = text.lines().find_map(|l| l.strip_prefix(&wanted));
    let line = line.ok_or_else(|| format!("{workload} gave no figures:\n  {}", last()))?;
    let field = |name: &str| -> f64 {
        let found = line.split_whitespace().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
        found.and_then(|v| v.parse().ok()).unwrap_or(0.0)
    };
    let tm = machine.bus.tm.stats.clone();
    let caches = machine.bus.caches.as_ref().map(|c| c.stats.clone()).unwrap_or_default();
    Ok(Result {
        us: field("us") as u64,
        user: field("user") / 100.0,
        system: field("system") / 100.0,
        idle: field("idle") / 100.0,
        kernel_cycles: after.0 - before.0,
        spin_cycles: after.1 - before.1,
        sync_cycles: after.1 - before.1 + tm.stall_cycles + tm.backoff_cycles + tm.wasted_cycles,
        instructions: machine.harts.iter().map(|h| h.instret).sum(),
        tm,
        l2_misses: caches.l2_misses,
        coherence: caches.coherence,
    })
}
