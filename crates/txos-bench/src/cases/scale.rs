//! How the parts of a transaction grow: with what it changes, with what it has looked at, with how
//! many there are at a time, and with what a recovery finds.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::{at, remove, thousands};
use crate::bench::{Bench, run};
use crate::figure::Section;
use crate::measure::{Stats, time};
use crate::plot::{Line, Plot};
use crate::work;

/// Sizes up to this one, by tens, and it.
fn sizes(bench: &Bench, most: u64) -> Vec<u64> {
    let most = if bench.quick() { most / 100 } else { most };
    let tens = std::iter::successors(Some(10), |n| Some(n * 10)).take_while(|n| *n < most);
    tens.chain([most]).collect()
}

/// Points of a line: the median of some rounds for each size.
fn line(
    bench: &Bench,
    name: &str,
    sizes: &[u64],
    mut once: impl FnMut(u64) -> Result<f64, String>,
) -> Result<Line, String> {
    let mut points = Vec::new();
    for &size in sizes {
        eprintln!("scale: {name}, {}", thousands(size));
        let times = (0..bench.pairs()).map(|_| once(size)).collect::<Result<Vec<_>, _>>()?;
        points.push((size as f64, Stats::of(times.into_iter()).median));
    }
    Ok(Line { name: name.into(), points })
}

/// How long a command takes that must succeed.
fn timed(command: &mut Command) -> Result<f64, String> {
    let start = Instant::now();
    match run(command)? {
        0 => Ok(start.elapsed().as_secs_f64()),
        status => Err(format!("{command:?}: ended with {status}")),
    }
}

/// A kept transaction that does this work.
fn keep(bench: &Bench, word: &str, dir: &Path, n: u64) -> Result<(), String> {
    let count = n.to_string();
    let mut command = bench.transaction(&["--keep", "--no-durable"]);
    command.args(bench.work(&[word.as_ref(), dir.as_os_str(), count.as_ref()]));
    timed(&mut command)?;
    bench.flush()
}

/// Ends the kept transaction.
fn end(bench: &Bench, words: &[&str]) -> Result<f64, String> {
    let took = timed(&mut bench.txos(words))?;
    bench.tidy()?;
    Ok(took)
}

const COMMIT: [&str; 3] = ["commit", "--no-durable", "@"];

/// Small transactions at once: seconds for each of them.
fn at_once(bench: &Bench, dir: &Path, n: u64) -> Result<f64, String> {
    let one = |i: u64| -> Result<Child, String> {
        let mut command = bench.transaction(&["--no-durable"]);
        command.arg("touch").arg(dir.join(format!("d{i}/file")));
        command.spawn().map_err(|e| format!("{command:?}: {e}"))
    };
    for i in 0..n {
        let own = dir.join(format!("d{i}"));
        at(&own, std::fs::create_dir_all(&own))?;
    }
    let start = Instant::now();
    let children = (0..n).map(one).collect::<Result<Vec<_>, _>>()?;
    for child in children {
        let ended = child.wait_with_output().map_err(|e| e.to_string())?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            return Err(format!("one of {n}: {}: {}", ended.status, said.trim()));
        }
    }
    let each = start.elapsed().as_secs_f64() / n as f64;
    bench.tidy()?;
    remove(dir)?;
    Ok(each)
}

/// How often a publish is begun to find one that can be killed in its middle.
const TRIES: usize = 50;

/// A commit of `n` new files is killed (SIGKILL) when half of them are there: seconds that `txos recover`
/// takes then, to read the journal and take back what it says.
fn recovery(bench: &Bench, dir: &Path, n: u64) -> Result<f64, String> {
    for _ in 0..TRIES {
        at(dir, work::directories(dir, n))?;
        keep(bench, "tree", dir, n)?;
        let middle = work::file(dir, n / 2);
        let mut commit = bench.txos(&COMMIT);
        commit.stderr(Stdio::null());
        let mut child = commit.spawn().map_err(|e| format!("{commit:?}: {e}"))?;
        let ended = loop {
            if middle.exists() {
                child.kill().map_err(|e| format!("killing a commit: {e}"))?;
                break child.wait();
            }
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => std::hint::spin_loop(),
                Err(e) => break Err(e),
            }
        }
        .map_err(|e| format!("waiting for a commit: {e}"))?;
        let took = timed(&mut bench.txos(&["recover", "-q"]))?;
        let halfway = ended.signal().is_some();
        if halfway && middle.exists() != work::file(dir, 0).exists() {
            return Err(format!(
                "half of a killed commit of {n} files is there after the recovery"
            ));
        }
        // Which of the two it was makes no difference here.
        run(&mut bench.txos(&["abort", "-q", "@"]))?;
        bench.tidy()?;
        remove(dir)?;
        if halfway && took > 0.0 {
            return Ok(took);
        }
    }
    Err(format!("none of {TRIES} commits of {n} files could be killed in its middle"))
}

/// Measures all of it.
pub fn scale(bench: &Bench) -> Result<Section, String> {
    let dir = bench.at("scale");
    let changed = sizes(bench, 250_000);
    let commits = line(bench, "commit", &changed, |n| {
        at(&dir, work::directories(&dir, n))?;
        keep(bench, "tree", &dir, n)?;
        let took = end(bench, &COMMIT)?;
        remove(&dir)?;
        Ok(took)
    })?;
    let aborts = line(bench, "abort", &changed, |n| {
        keep(bench, "tree", &dir, n)?;
        end(bench, &["abort", "@"])
    })?;
    let reverts = line(bench, "revert", &changed, |n| {
        at(&dir, work::directories(&dir, n))?;
        keep(bench, "tree", &dir, n)?;
        timed(&mut bench.txos(&COMMIT))?;
        let took = end(bench, &["revert", "--no-durable", "@"])?;
        remove(&dir)?;
        Ok(took)
    })?;
    // Fewer are published faster than anybody can be killed for it.
    let published: Vec<u64> = changed.iter().copied().filter(|n| *n >= 1_000).collect();
    let recoveries = line(bench, "recover", &published, |n| recovery(bench, &dir, n))?;
    let looked = sizes(bench, 1_000_000);
    let most = looked.last().copied().unwrap_or_default();
    at(&dir, work::tree(&dir, most))?;
    let validations = line(bench, "validate", &looked, |n| {
        keep(bench, "look", &dir, n)?;
        end(bench, &COMMIT)
    })?;
    remove(&dir)?;
    let together: Vec<u64> =
        if bench.quick() { vec![1, 4, 16] } else { vec![1, 2, 4, 8, 16, 32, 64] };
    let beside = line(bench, "each of them", &together, |n| at_once(bench, &dir, n))?;

    let mut section = Section {
        name: "scale".into(),
        title: "How it grows".into(),
        text: format!(
            "A kept transaction is committed, aborted, or committed and reverted, for so many new files in directories \
             that exist, 100 in each; or is committed when it has changed nothing and looked at so many files: then all \
             that is left is validating. Recovery is that of a commit killed when half of the files were published; it \
             takes them back. Not flushed. Medians of {}. Growth is fitted to the upper half of the sizes.",
            bench.pairs()
        ),
        ..Section::default()
    };
    let _ = writeln!(
        section.more,
        "| | sizes | medians | grows with | each one more |\n|---|---|---|---|---|"
    );
    let plots = [
        ("Ends of a transaction", "changed files", vec![commits, aborts, reverts]),
        (
            "Recovery of a commit killed when half was published",
            "changed files in its journal",
            vec![recoveries],
        ),
        ("Validating", "files looked at", vec![validations]),
        ("Small transactions at once, begin to end", "at a time", vec![beside]),
    ];
    for (title, across, lines) in plots {
        for line in &lines {
            let of = |f: fn(&(f64, f64)) -> String| -> String {
                line.points.iter().map(f).collect::<Vec<_>>().join(", ")
            };
            let growth = line.growth();
            let _ = writeln!(
                section.more,
                "| {}, by {across} | {} | {} | {} | {} |",
                line.name,
                of(|p| thousands(p.0 as u64)),
                of(|p| time(p.1)),
                growth.map_or("–".into(), |g| format!("n^{:.2}", g.power)),
                growth.map_or("–".into(), |g| format!("{:.2} µs", g.each * 1e6))
            );
        }
        let plot = Plot { title: title.into(), across: across.into(), up: "seconds".into(), lines };
        section.pictures.push(plot.svg());
    }
    Ok(section)
}
