//! The paper's evaluation, done again: tables 2 and 3, figures 1 and 2, penalties, and more harts.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use metatm::machine::Config;
use metatm::symbols::Symbols;
use metatm::tm::policy::{Backoff, Policy};
use rustc_hash::FxHasher;

use crate::experiment::{self, Guest, Kernel, Result as Figures};
use crate::options::Evaluate;
use crate::runs::Done;
use crate::{page, read};

/// The workloads, as the guest knows them.
pub const WORKLOADS: [&str; 8] =
    ["counter", "pmake", "netcat", "mab", "configure", "find", "bonnie", "dpunish"];
/// Penalties of a commit or a restart, in cycles.
pub const PENALTIES: [u64; 5] = [0, 100, 1000, 3000, 10_000];
/// Harts of the sweep.
pub const HARTS: [usize; 5] = [2, 4, 8, 16, 32];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
pub enum System {
    /// Linux
    Linux,
    /// TxLinux with transactions in chosen files only: the paper's TxLinux
    Ss,
    /// TxLinux with cooperative spinlocks everywhere: the paper's TxLinux-cx
    Cx,
}

impl System {
    /// Its name in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Linux => "Linux",
            System::Ss => "TxLinux-ss",
            System::Cx => "TxLinux-cx",
        }
    }

    /// The kernel's parameter that makes it.
    fn parameter(self) -> &'static str {
        match self {
            System::Linux => "",
            System::Ss => " txlinux=ss",
            System::Cx => " txlinux=cx",
        }
    }
}

/// Figures by workload.
pub type Row = BTreeMap<String, Figures>;

/// Everything that was measured.
#[derive(Debug, Default, serde::Serialize)]
pub struct Results {
    /// The tables.
    pub systems: BTreeMap<System, Row>,
    /// TxLinux-cx by policy.
    pub policies: BTreeMap<String, Row>,
    /// TxLinux-cx by backoff.
    pub backoffs: BTreeMap<String, Row>,
    /// TxLinux-cx by cycles of a commit.
    pub commit: BTreeMap<u64, Row>,
    /// TxLinux-cx by cycles of a restart.
    pub abort: BTreeMap<u64, Row>,
    /// All by harts.
    pub harts: BTreeMap<usize, BTreeMap<System, Row>>,
    /// Runs that came to no end.
    pub failed: Vec<String>,
    /// Runs for which there was no time.
    pub not_begun: usize,
}

struct Lab {
    linux: Kernel,
    txlinux: Kernel,
    initrd: Vec<u8>,
    disk: Vec<u8>,
    append: String,
    size: u32,
    workloads: Vec<String>,
    systems: Vec<System>,
    jobs: usize,
    cycles: u64,
    time: Duration,
    until: Option<Instant>,
    done: Done,
}

/// A row to be measured: its name, the machine, and what runs on it.
type Wanted = (String, Config, System);

impl Lab {
    /// Measures a run, or takes what is known of it; `None` if there is no time to begin it.
    fn measure(&self, wanted: &Wanted, workload: &str) -> Result<Option<Figures>, String> {
        let (what, config, system) = wanted;
        let name = format!("{what} {workload} on {}", system.name());
        if let Some(figures) = self.done.get(&name) {
            return Ok(Some(figures));
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
        let line = format!("size={}{} {}", self.size, system.parameter(), self.append);
        let guest = Guest {
            kernel: if *system == System::Linux { &self.linux } else { &self.txlinux },
            initrd: &self.initrd,
            disk: &self.disk,
            line: line.trim_end(),
            cycles: self.cycles,
            time: self.time,
        };
        let done = experiment::run(config, &guest, workload);
        match &done {
            Ok(figures) => eprintln!(
                "{name:<50}{:>9} us  {:>6.3} s system  {:>8} transactions  {:>5.2} % restarted",
                figures.us,
                figures.kernel_cycles as f64 / config.hertz as f64,
                figures.tm.begun,
                figures.tm.restart_percent()
            ),
            Err(why) => eprintln!("{name:<50}{why}"),
        }
        let figures = done.map_err(|why| format!("{name}: {why}"))?;
        self.done.add(&name, &figures)?;
        Ok(Some(figures))
    }

    /// Measures rows, several runs at a time. What comes to no end, and what is not begun, is noted.
    fn rows(&self, wanted: &[Wanted], results: &mut Results) -> Vec<Row> {
        let (runs, next) = (wanted.len() * self.workloads.len(), AtomicUsize::new(0));
        let done: Vec<OnceLock<Result<Option<Figures>, String>>> =
            (0..runs).map(|_| OnceLock::new()).collect();
        let work = || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = done.get(n) else { return };
                let (row, column) = (n / self.workloads.len(), n % self.workloads.len());
                place.get_or_init(|| self.measure(&wanted[row], &self.workloads[column]));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.jobs {
                scope.spawn(work);
            }
            work();
        });
        let mut rows = vec![Row::new(); wanted.len()];
        for (n, figures) in done.into_iter().enumerate() {
            let column = n % self.workloads.len();
            match figures.into_inner() {
                Some(Ok(Some(figures))) => {
                    rows[n / self.workloads.len()].insert(self.workloads[column].clone(), figures);
                }
                Some(Err(why)) => results.failed.push(why),
                Some(Ok(None)) | None => results.not_begun += 1,
            }
        }
        rows
    }

    /// A number that changes with all that the figures follow from.
    fn identity(&self, config: &Config) -> Result<u64, String> {
        let mut hasher = FxHasher::default();
        let config = serde_json::to_string(config).map_err(|e| e.to_string())?;
        let images = [&self.linux.image, &self.txlinux.image, &self.initrd, &self.disk];
        (config, images, &self.append, self.size, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn wanted(&self, what: &str, config: &Config) -> Vec<Wanted> {
        self.systems.iter().map(|&system| (what.to_owned(), config.clone(), system)).collect()
    }
}

/// Measures, and writes the report.
///
/// # Errors
/// If images can't be read, the report can't be written, or a run comes to no end.
pub fn evaluate(args: &Evaluate) -> Result<(), String> {
    let kernel = |name: &str| -> Result<Kernel, String> {
        let map = read(&args.images.join(format!("System.map.{name}")))?;
        Ok(Kernel {
            image: read(&args.images.join(format!("Image.{name}")))?,
            symbols: Symbols::parse(&String::from_utf8_lossy(&map)),
        })
    };
    for name in &args.only {
        if !WORKLOADS.contains(&name.as_str()) {
            return Err(format!("there is no workload {name}; there are {}", WORKLOADS.join(", ")));
        }
    }
    let all = WORKLOADS.iter().map(|w| (*w).to_owned());
    let config = args.machine.config();
    std::fs::create_dir_all(&args.report).map_err(|e| format!("{}: {e}", args.report.display()))?;
    let mut lab = Lab {
        linux: kernel("linux")?,
        txlinux: kernel("txlinux")?,
        initrd: read(&args.images.join("initrd.cpio"))?,
        disk: read(&args.images.join("disk.ext2"))?,
        append: args.append.clone(),
        size: args.size,
        workloads: all.filter(|w| args.only.is_empty() || args.only.contains(w)).collect(),
        systems: System::value_variants()
            .iter()
            .copied()
            .filter(|s| args.system.is_empty() || args.system.contains(s))
            .collect(),
        jobs: args.jobs.max(1),
        cycles: args.cycles.saturating_mul(args.size.max(1).into()),
        time: Duration::from_secs(args.seconds),
        until: args.minutes.and_then(|minutes| {
            Instant::now().checked_add(Duration::from_secs(minutes.saturating_mul(60)))
        }),
        done: Done::default(),
    };
    lab.done = Done::open(&args.report.join("runs.jsonl"), args.resume, lab.identity(&config)?)?;
    let mut results = Results::default();
    let rows = lab.rows(&lab.wanted("table", &config), &mut results);
    results.systems = lab.systems.iter().copied().zip(rows).collect();
    let save = |results: &Results| write(&args.report, results, &config);
    save(&results)?;
    if !args.tables {
        sweeps(&lab, &config, &mut results);
        save(&results)?;
        for harts in HARTS {
            by_harts(&lab, &config, &mut results, harts);
            save(&results)?;
        }
    }
    eprintln!("metatm: the report is {}", args.report.join("index.html").display());
    match (results.failed.len(), results.not_begun) {
        (0, 0) => Ok(()),
        (0, n) => Err(format!("{n} runs were not begun in --minutes; --resume goes on")),
        (n, 0) => Err(format!("{n} runs came to no end; the report has the others")),
        (n, m) => Err(format!(
            "{n} runs came to no end, and {m} were not begun in --minutes; --resume goes on"
        )),
    }
}

/// The sweeps over TxLinux-cx alone. What the tables have is not measured again.
fn sweeps(lab: &Lab, config: &Config, results: &mut Results) {
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut want = |what: String, change: &dyn Fn(&mut Config)| {
        let mut with = config.clone();
        change(&mut with);
        wanted.push((what, with, System::Cx));
    };
    let policies = Policy::value_variants();
    let backoffs = Backoff::value_variants();
    for &policy in policies.iter().filter(|p| **p != config.tm.policy) {
        want(format!("{policy:?}"), &|with| with.tm.policy = policy);
    }
    for &backoff in backoffs.iter().filter(|b| **b != config.tm.backoff) {
        want(format!("{backoff:?}"), &|with| with.tm.backoff = backoff);
    }
    for cycles in PENALTIES.into_iter().filter(|c| *c != config.tm.commit_cycles) {
        want(format!("commit {cycles}"), &|with| with.tm.commit_cycles = cycles);
    }
    for cycles in PENALTIES.into_iter().filter(|c| *c != config.tm.abort_cycles) {
        want(format!("restart {cycles}"), &|with| with.tm.abort_cycles = cycles);
    }
    let mut rows = lab.rows(&wanted, results).into_iter();
    let measured = results.systems.get(&System::Cx).cloned().unwrap_or_default();
    let mut row = |known: bool| {
        let next = if known { None } else { rows.next() };
        next.unwrap_or_else(|| measured.clone())
    };
    for policy in policies {
        let known = *policy == config.tm.policy;
        results.policies.insert(format!("{policy:?}"), row(known));
    }
    for backoff in backoffs {
        let known = *backoff == config.tm.backoff;
        results.backoffs.insert(format!("{backoff:?}"), row(known));
    }
    for cycles in PENALTIES {
        results.commit.insert(cycles, row(cycles == config.tm.commit_cycles));
    }
    for cycles in PENALTIES {
        results.abort.insert(cycles, row(cycles == config.tm.abort_cycles));
    }
}

/// All systems with so many harts.
fn by_harts(lab: &Lab, config: &Config, results: &mut Results, harts: usize) {
    let with = Config { harts, ..config.clone() };
    let rows = if harts == config.harts {
        results.systems.clone()
    } else {
        let rows = lab.rows(&lab.wanted(&format!("{harts} harts"), &with), results);
        lab.systems.iter().copied().zip(rows).collect()
    };
    results.harts.insert(harts, rows);
}

fn write(dir: &Path, results: &Results, config: &Config) -> Result<(), String> {
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    put("results.json", &serde_json::to_string_pretty(results).map_err(|e| e.to_string())?)?;
    put("index.html", &page::page(results, config))
}
