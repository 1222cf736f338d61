//! The paper's evaluation, done again: tables 2 and 3, figures 1 and 2, penalties, and more harts.

use std::collections::BTreeMap;
use std::path::Path;

use clap::ValueEnum;
use metatm::machine::Config;
use metatm::symbols::Symbols;
use metatm::tm::policy::Policy;

use crate::experiment::{self, Kernel, Result as Figures};
use crate::options::Evaluate;
use crate::{page, read};

/// The workloads, as the guest knows them.
pub const WORKLOADS: [&str; 7] =
    ["counter", "pmake", "netcat", "mab", "configure", "find", "dpunish"];
/// Penalties of a commit or a restart, in cycles.
pub const PENALTIES: [u64; 5] = [0, 100, 1000, 3000, 10_000];
/// Harts of the sweep.
pub const HARTS: [usize; 5] = [2, 4, 8, 16, 32];

/// Everything that was measured.
#[derive(Debug, Default, serde::Serialize)]
pub struct Results {
    /// Linux, by workload.
    pub linux: BTreeMap<String, Figures>,
    /// TxLinux, by workload.
    pub txlinux: BTreeMap<String, Figures>,
    /// TxLinux by policy and workload.
    pub policies: BTreeMap<String, BTreeMap<String, Figures>>,
    /// TxLinux by cycles of a commit.
    pub commit: BTreeMap<u64, BTreeMap<String, Figures>>,
    /// TxLinux by cycles of a restart.
    pub abort: BTreeMap<u64, BTreeMap<String, Figures>>,
    /// Both by harts: Linux, TxLinux.
    pub harts: BTreeMap<usize, BTreeMap<String, (Figures, Figures)>>,
    /// Runs that came to no end.
    pub failed: Vec<String>,
}

struct Lab {
    linux: Kernel,
    txlinux: Kernel,
    initrd: Vec<u8>,
    size: u32,
    workloads: Vec<String>,
    failed: Vec<String>,
}

impl Lab {
    fn measure(
        &mut self,
        what: &str,
        config: &Config,
        tx: bool,
        workload: &str,
    ) -> Option<Figures> {
        let kernel = if tx { &self.txlinux } else { &self.linux };
        let name = format!("{what} {workload} on {}", if tx { "TxLinux" } else { "Linux" });
        eprint!("{name:<50}");
        match experiment::run(config, kernel, &self.initrd, workload, self.size) {
            Ok(figures) => {
                eprintln!(
                    "{:>9} us  {:>6.3} s system  {:>8} transactions  {:>5.2} % restarted",
                    figures.us,
                    figures.kernel_cycles as f64 / config.hertz as f64,
                    figures.tm.begun,
                    figures.tm.restart_percent()
                );
                Some(figures)
            }
            Err(why) => {
                eprintln!("{why}");
                self.failed.push(format!("{name}: {why}"));
                None
            }
        }
    }

    fn sweep(&mut self, what: &str, config: &Config) -> BTreeMap<String, Figures> {
        let workloads = self.workloads.clone();
        let all = workloads.into_iter();
        all.filter_map(|w| self.measure(what, config, true, &w).map(|figures| (w, figures)))
            .collect()
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
    let mut lab = Lab {
        linux: kernel("linux")?,
        txlinux: kernel("txlinux")?,
        initrd: read(&args.images.join("initrd.cpio"))?,
        size: args.size,
        workloads: all.filter(|w| args.only.is_empty() || args.only.contains(w)).collect(),
        failed: Vec::new(),
    };
    let config = args.machine.config();
    let mut results = Results::default();
    for workload in lab.workloads.clone() {
        if let Some(figures) = lab.measure("table", &config, false, &workload) {
            results.linux.insert(workload.clone(), figures);
        }
        if let Some(figures) = lab.measure("table", &config, true, &workload) {
            results.txlinux.insert(workload, figures);
        }
    }
    if !args.tables {
        sweeps(&mut lab, &config, &mut results);
    }
    results.failed = std::mem::take(&mut lab.failed);
    write(&args.report, &results, &config)?;
    match results.failed.len() {
        0 => Ok(()),
        n => Err(format!("{n} runs came to no end; the report has the others")),
    }
}

fn sweeps(lab: &mut Lab, config: &Config, results: &mut Results) {
    for &policy in Policy::value_variants() {
        let mut config = config.clone();
        config.tm.policy = policy;
        let name = format!("{policy:?}");
        let figures = lab.sweep(&name, &config);
        results.policies.insert(name, figures);
    }
    for cycles in PENALTIES {
        let mut with = config.clone();
        with.tm.commit_cycles = cycles;
        let figures = lab.sweep(&format!("commit {cycles}"), &with);
        results.commit.insert(cycles, figures);
        let mut with = config.clone();
        with.tm.abort_cycles = cycles;
        let figures = lab.sweep(&format!("restart {cycles}"), &with);
        results.abort.insert(cycles, figures);
    }
    for harts in HARTS {
        let config = Config { harts, ..config.clone() };
        let what = format!("{harts} harts");
        let mut row = BTreeMap::new();
        for workload in lab.workloads.clone() {
            let linux = lab.measure(&what, &config, false, &workload);
            if let (Some(linux), Some(tx)) = (linux, lab.measure(&what, &config, true, &workload)) {
                row.insert(workload, (linux, tx));
            }
        }
        results.harts.insert(harts, row);
    }
}

fn write(dir: &Path, results: &Results, config: &Config) -> Result<(), String> {
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    put("results.json", &serde_json::to_string_pretty(results).map_err(|e| e.to_string())?)?;
    put("index.html", &page::page(results, config))?;
    eprintln!("metatm: the report is {}", dir.join("index.html").display());
    Ok(())
}
