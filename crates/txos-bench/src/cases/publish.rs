//! Commits of very many files, and very many recorded reads.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{at, remove, thousands};
use crate::bench::{Bench, output, run};
use crate::measure::{Limit, Pair, Row, Stats};
use crate::work;

const ONE_DIRECTORY_MAX: Duration = Duration::from_millis(50);
const MANY_DIRECTORIES_MAX: Duration = Duration::from_millis(2500);
const MEMORY_MAX_KIB: u64 = 64 << 10;

/// 100,000 new files, under one new directory and in 1,000 that exist.
pub fn publish(bench: &Bench) -> Result<Vec<Row>, String> {
    let n = bench.files(100_000);
    let dir = bench.at("publish");
    let count = n.to_string();
    let tree = bench.work(&["tree".as_ref(), dir.as_os_str(), count.as_ref()]);
    let nothing = [OsStr::new("true")];

    let pairs = pairs(bench, &nothing, &tree, || remove(&dir))?;
    let what = format!(
        "publishing {} files under one new directory (plain: committing nothing), not flushed",
        thousands(n)
    );
    let one = Row::new(what, &pairs, Limit::Plus(ONE_DIRECTORY_MAX));

    let directories = || {
        remove(&dir)?;
        at(&dir, work::directories(&dir, n))
    };
    let pairs = self::pairs(bench, &nothing, &tree, directories)?;
    let what = format!(
        "publishing {} files in {} directories (plain: committing nothing), not flushed",
        thousands(n),
        thousands(n / 100)
    );
    let many = Row::new(what, &pairs, Limit::Total(MANY_DIRECTORIES_MAX));
    remove(&dir)?;
    Ok(vec![one, many])
}

/// Commits of what two commands did.
fn pairs(
    bench: &Bench,
    plain: &[&OsStr],
    txos: &[&OsStr],
    reset: impl Fn() -> Result<(), String>,
) -> Result<Vec<Pair>, String> {
    bench.pair_up("publish", |bench| {
        reset()?;
        let plain = commit(bench, plain)?;
        let txos = commit(bench, txos)?;
        Ok(plain.zip(txos).map(|(plain, txos)| Pair { plain, txos }))
    })
}

/// Time of the commit of a kept transaction; `None` on a conflict.
fn commit(bench: &Bench, words: &[&OsStr]) -> Result<Option<Duration>, String> {
    let mut keep = bench.transaction(&["--keep", "--no-durable"]);
    run(keep.args(words))?;
    bench.flush()?;
    let mut commit: Command = bench.txos(&["commit", "--no-durable", "@"]);
    let start = Instant::now();
    let status = run(&mut commit)?;
    let time = start.elapsed();
    if status != 0 {
        run(&mut bench.txos(&["abort", "@"]))?;
    }
    bench.tidy()?;
    Ok((status == 0).then_some(time))
}

/// Peak memory of the supervisor when 100,000 paths have been looked at.
pub fn memory(bench: &Bench) -> Result<Vec<Row>, String> {
    let n = bench.files(100_000);
    let dir = bench.at("memory");
    at(&dir, work::tree(&dir, n))?;
    let few = (0..bench.pairs()).map(|_| peak(bench, &dir, 1)).collect::<Result<Vec<_>, _>>()?;
    let many = (0..bench.pairs()).map(|_| peak(bench, &dir, n)).collect::<Result<Vec<_>, _>>()?;
    remove(&dir)?;
    let stats = |peaks: &[u64]| Stats::of(peaks.iter().map(|&kib| kib as f64));
    let (few, many) = (stats(&few), stats(&many));
    Ok(vec![Row {
        what: format!("memory of the supervisor, {} reads (plain: one)", thousands(n)),
        plain: mib(few.median),
        txos: mib(many.median),
        figure: mib(many.median),
        spread: format!("{} … {}", mib(many.min), mib(many.max)),
        limit: mib(MEMORY_MAX_KIB as f64),
        kept: many.median < MEMORY_MAX_KIB as f64,
    }])
}

fn mib(kib: f64) -> String {
    format!("{:.1} MiB", kib / 1024.0)
}

/// The command's grandparent is the monitor, which supervises: its parent is the reaper.
fn peak(bench: &Bench, dir: &Path, n: u64) -> Result<u64, String> {
    eprintln!("memory: {n} reads");
    let count = n.to_string();
    let mut command = bench.transaction(&[]);
    command.args(bench.work(&["look".as_ref(), dir.as_os_str(), count.as_ref()]));
    let ended = output(command.stdout(Stdio::piped()))?;
    let text = String::from_utf8_lossy(&ended.stdout);
    let front = text.lines().nth(1).and_then(|line| line.rsplit_once(' '));
    front.and_then(|(_, kib)| kib.parse().ok()).ok_or_else(|| {
        format!("the command did not run: {}", String::from_utf8_lossy(&ended.stderr))
    })
}
