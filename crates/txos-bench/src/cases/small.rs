//! Small things done once, and small things done to many files.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{at, thousands};
use crate::bench::{Bench, output, run};
use crate::figure::{Figure, Section, Unit};
use crate::measure::{Limit, Pair, Row};
use crate::work;

const STARTUP_MAX: Duration = Duration::from_millis(10);
/// What 9,990 files more may add: half a microsecond each, for the kernel to forget them.
const ROLLBACK_MORE_MAX: Duration = Duration::from_millis(5);
const APPEND_MAX: Duration = Duration::from_millis(800);

/// `true`.
pub fn startup(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut pairs = Vec::new();
    // It is over in no time: many of them make up for the noise.
    for _ in 0..if bench.quick() { 1 } else { 3 } {
        let both = || bench.both(&["true".as_ref()]);
        pairs.extend(bench.alternate("startup", false, || Ok(()), both)?);
    }
    Ok(vec![Row::new("`true`", &pairs, Limit::Plus(STARTUP_MAX))])
}

/// The same beside others that isolate a command.
pub fn rivals(bench: &Bench) -> Result<Section, String> {
    let mut subjects: Vec<(&str, Vec<OsString>)> = Vec::new();
    let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
    if output(&mut quiet("bwrap", &["--version"])).is_ok() {
        subjects.push(("bubblewrap", words(&["bwrap", "--dev-bind", "/", "/", "true"])));
    }
    if let Some(checkout) = bench.rival() {
        subjects.push(("`try`", vec![checkout.join("try").into(), "-y".into(), "true".into()]));
    }
    let rounds = 3 * bench.pairs();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); subjects.len() + 4];
    for _ in 0..rounds {
        let [plain, txos] = bench.both(&["true".as_ref()]);
        let mut without = bench.transaction(&["--no-preload"]);
        without.arg("true");
        let mut library = bench.transaction(&["--view", "library"]);
        library.arg("true");
        let mut commands = vec![plain, txos, without, library];
        for (_, words) in &subjects {
            let mut command = quiet("env", &[]);
            command.args(words);
            commands.push(command);
        }
        for (command, times) in commands.iter_mut().zip(&mut times) {
            bench.flush()?;
            let start = Instant::now();
            run(command)?;
            times.push(start.elapsed().as_secs_f64());
        }
        bench.tidy()?;
    }
    let names = ["`txos run`", "… without the preloaded recorder", "`--view library`"];
    let names = names.into_iter().chain(subjects.iter().map(|(name, _)| *name));
    let base = times.first().cloned().unwrap_or_default();
    let figures = names.zip(times.into_iter().skip(1)).map(|(subject, values)| Figure {
        place: bench.file_system(),
        what: "start and end".into(),
        subject: subject.into(),
        unit: Unit::Seconds,
        base: base.clone(),
        values,
        papers: None,
        asked: None,
    });
    Ok(Section {
        name: "rivals".into(),
        title: "Starting a command that does nothing".into(),
        text: format!(
            "`true` by itself, in a transaction over the whole tree, and beside others that isolate a command: \
             bubblewrap binds the tree and records nothing. {rounds} rounds, by turns."
        ),
        base: "`true`".into(),
        figures: figures.collect(),
        ..Section::default()
    })
}

/// A command of which nothing is shown.
fn quiet(program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// From the end of a failing command to the end of txos; `plain` is that of 10 files.
pub fn rollback(bench: &Bench) -> Result<Vec<Row>, String> {
    let many = bench.files(10_000);
    let dir = bench.at("rolled-back");
    let after = |n: u64| -> Result<Duration, String> {
        bench.tidy()?;
        bench.flush()?;
        let count = n.to_string();
        let words = bench.work(&["fail".as_ref(), dir.as_os_str(), count.as_ref()]);
        let mut command = bench.transaction(&[]);
        let ended = output(command.args(words).stdout(Stdio::piped()))?;
        let now = work::now();
        let text = String::from_utf8_lossy(&ended.stdout);
        let stamp: u64 = text.trim().parse().map_err(|_| {
            format!("the command did not run: {}", String::from_utf8_lossy(&ended.stderr))
        })?;
        Ok(Duration::from_nanos(now.saturating_sub(stamp)))
    };
    let pairs =
        bench.pair_up("rollback", |_| Ok(Some(Pair { plain: after(10)?, txos: after(many)? })))?;
    let what = format!("rollback of {} files (plain: of 10), after the command", thousands(many));
    Ok(vec![Row::new(what, &pairs, Limit::Plus(ROLLBACK_MORE_MAX))])
}

/// One byte more in each of 10,000 files, commit included.
pub fn append(bench: &Bench) -> Result<Vec<Row>, String> {
    let n = bench.files(10_000);
    let dir = bench.at("append");
    at(&dir, work::tree(&dir, n))?;
    let count = n.to_string();
    let words = bench.work(&["append".as_ref(), dir.as_os_str(), count.as_ref()]);
    let mut rows = Vec::new();
    for durable in [true, false] {
        // Nothing is deleted between the pairs: ext4 looks at every inode that was deleted in the
        // last minutes before it hands out another, which would be measured instead.
        let pairs = bench.pair_up("append", |bench| {
            let [mut plain, _] = bench.both(&words);
            let start = Instant::now();
            run(&mut plain)?;
            if durable {
                bench.flush()?;
            }
            let plain = start.elapsed();
            bench.flush()?;
            let options: &[&str] = if durable { &[] } else { &["--no-durable"] };
            let start = Instant::now();
            let status = run(bench.transaction(options).args(&words))?;
            let txos = start.elapsed();
            bench.flush()?;
            Ok((status == 0).then_some(Pair { plain, txos }))
        })?;
        let how = if durable { "flushed" } else { "`--no-durable`" };
        let what = format!("a byte appended to {} files, {how}", thousands(n));
        rows.push(Row::new(what, &pairs, Limit::Total(APPEND_MAX)));
    }
    super::remove(&dir)?;
    Ok(rows)
}
