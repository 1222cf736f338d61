//! What the realm costs: one process that meets nobody, two that do not meet each other, and how
//! often a facet seems to be in use that is not.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{at, remove, thousands};
use crate::bench::Bench;
use crate::crew::{self, Report};
use crate::measure::Stats;

/// Where a file system in memory is.
const MEMORY: &str = "/dev/shm";
/// One operation of the table: its key in a report, its description, and what it may cost.
type Operation = (&'static str, &'static str, Option<f64>);

const OPERATIONS: [Operation; 18] = [
    ("one", "begin, acquire one facet, commit", Some(300.0)),
    ("empty", "begin, commit", None),
    ("single", "`Realm::single` with one facet", None),
    ("read warm alone", "acquire a fresh facet to read, in cache", Some(40.0)),
    ("read warm released", "… and its release", Some(40.0)),
    ("write warm alone", "acquire a fresh facet to write, in cache", Some(40.0)),
    ("write warm released", "… and its release", Some(40.0)),
    ("read cold alone", "acquire a fresh facet to read, out of cache", Some(40.0)),
    ("read cold released", "… and its release", Some(40.0)),
    ("write cold alone", "acquire a fresh facet to write, out of cache", Some(40.0)),
    ("write cold released", "… and its release", Some(40.0)),
    ("in use warm", "`Realm::is_in_use`, in cache", Some(10.0)),
    ("in use cold", "`Realm::is_in_use`, out of cache", None),
    ("doomed", "`TxHandle::is_doomed`", None),
    ("hash", "of these: the hash of a name", None),
    ("hash chained", "… waited for", None),
    ("clock", "of these: one look at the clock", None),
    ("memory", "one word at random out of 8 MiB, waited for", None),
];

/// How many times what one process commits two have to commit.
const TWICE_MIN: f64 = 1.8;

/// Measures all of it; Markdown.
pub fn realm(bench: &Bench) -> Result<String, String> {
    let places = Places::new(bench)?;
    let mut text = String::new();
    operations(bench, &places, &mut text)?;
    throughput(bench, &places, &mut text)?;
    false_conflicts(bench, &places, &mut text)?;
    Ok(text)
}

/// A directory in memory and one of the disk's file system.
struct Places {
    memory: PathBuf,
    disk: PathBuf,
}

impl Places {
    fn new(bench: &Bench) -> Result<Self, String> {
        let memory = Path::new(MEMORY).join(format!("txos-bench-{}", std::process::id()));
        remove(&memory)?;
        at(&memory, std::fs::create_dir(&memory))?;
        let disk = bench.at("realms");
        at(&disk, std::fs::create_dir_all(&disk))?;
        Ok(Places { memory, disk })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.memory);
        let _ = std::fs::remove_dir_all(&self.disk);
    }
}

/// One member alone; it must not hang.
fn alone(bench: &Bench, words: &[&str], dir: &Path) -> Result<Report, String> {
    Ok(both(bench, words, &[dir], Duration::from_secs(60))?.swap_remove(0))
}

/// A member for each directory, each told its number.
fn both(
    bench: &Bench,
    words: &[&str],
    dirs: &[&Path],
    time: Duration,
) -> Result<Vec<Report>, String> {
    let members: Vec<Vec<String>> = dirs
        .iter()
        .enumerate()
        .map(|(n, dir)| {
            let [first, rest @ ..] = words else { return Vec::new() };
            let mut all = vec![(*first).to_owned(), dir.to_string_lossy().into_owned()];
            all.extend(rest.iter().map(|word| (*word).to_owned()));
            if rest.is_empty() {
                all.push(n.to_string());
            }
            all
        })
        .collect();
    let reports: Option<Vec<Report>> = crew::run(bench, &members, time)?.into_iter().collect();
    reports.ok_or_else(|| "a process did not end".into())
}

fn value(report: &Report, key: &str) -> f64 {
    report.get(key).copied().unwrap_or(f64::NAN)
}

fn operations(bench: &Bench, places: &Places, text: &mut String) -> Result<(), String> {
    let rounds = if bench.quick() { 3 } else { 15 };
    let (mut memory, mut disk) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        eprintln!("realm: round {} of {rounds}", round + 1);
        let cpu = round.to_string();
        let one = |place: &Path, reports: &mut Vec<Report>| -> Result<(), String> {
            reports.push(alone(bench, &["nanos", &cpu], place)?);
            Ok(())
        };
        if round % 4 < 2 {
            one(&places.memory, &mut memory)?;
            one(&places.disk, &mut disk)?;
        } else {
            one(&places.disk, &mut disk)?;
            one(&places.memory, &mut memory)?;
        }
    }
    let names = memory.first().map_or(0.0, |report| value(report, "names"));
    let _ = writeln!(
        text,
        "Nanoseconds of one operation, measured in {rounds} processes in memory ({MEMORY}) and {rounds} \
         on {}, by turns; each gives the median of 31 batches, and the median and spread are those of \
         the processes. The names have {names:.0} bytes on average. \"In cache\" \
         are 1,024 facets in turn (64 for `is_in_use`), \"out of cache\" 1,048,576.\n",
        bench.file_system()
    );
    let _ = writeln!(
        text,
        "| operation | asked | in memory | spread | on {} | spread | |\n|---|---|---|---|---|---|---|",
        bench.file_system()
    );
    for (key, what, asked) in OPERATIONS {
        let of = |reports: &[Report]| Stats::of(reports.iter().map(|r| value(r, key)));
        let (memory, disk) = (of(&memory), of(&disk));
        let verdict = asked.map_or("", |asked| verdict(memory.median <= asked));
        let asked = asked.map(|asked| format!("≤ {asked:.0} ns")).unwrap_or_default();
        let cells = |s: Stats| format!("{} | {} … {}", ns(s.median), ns(s.min), ns(s.max));
        let _ = writeln!(
            text,
            "| {what} | {asked} | {} | {} | {verdict} |",
            cells(memory),
            cells(disk)
        );
    }
    text.push('\n');
    Ok(())
}

fn ns(nanos: f64) -> String {
    if nanos < 99.95 { format!("{nanos:.1} ns") } else { format!("{nanos:.0} ns") }
}

fn verdict(kept: bool) -> &'static str {
    if kept { "kept" } else { "**missed**" }
}

/// Two processes against one, on facets of their own.
fn throughput(bench: &Bench, places: &Places, text: &mut String) -> Result<(), String> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        let _ =
            writeln!(text, "Two processes against one: not measured, there is one processor.\n");
        return Ok(());
    }
    // Many short rounds: some of them meet a quiet machine.
    let pairs = bench.pairs().max(if bench.quick() { 7 } else { 31 });
    let time = Duration::from_millis(100);
    let other = places.memory.join("other");
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    let mut failed = 0.0;
    for pair in 0..pairs {
        eprintln!("realm: one process and two, pair {} of {pairs}", pair + 1);
        let mut of = |dirs: &[&Path]| -> Result<(f64, f64), String> {
            let reports = both(bench, &["throughput"], dirs, time)?;
            failed += reports.iter().map(|r| value(r, "failed")).sum::<f64>();
            let commits = reports.iter().map(|r| value(r, "commits")).sum::<f64>();
            let each = reports.iter().map(|r| value(r, "commits") / value(r, "cpu")).sum();
            Ok((commits / time.as_secs_f64(), each))
        };
        let shared = places.memory.as_path();
        let (one, apart, two) = (of(&[shared])?, of(&[shared, &other])?, of(&[shared, shared])?);
        walls.push([one.0, apart.0, two.0]);
        cpus.push([one.1, apart.1, two.1]);
    }
    let _ = writeln!(
        text,
        "Two processes against one, each on a processor and on facets of its own: transactions of ten \
         facets to write, {pairs} rounds of {} ms in memory: one process, two in realms of their own \
         (what the machine can do), two in one realm, by turns. The second line counts by the time that \
         a process really had its processor: what else runs on the machine is not in it. \"Best\" \
         compares the fastest round of two with the fastest of one.\n\n\
         | | asked | one process | two, two realms | two, one realm | measured | spread | best | |\n\
         |---|---|---|---|---|---|---|---|---|",
        time.as_millis()
    );
    for (what, rounds) in [("by the clock", walls), ("by processor time", cpus)] {
        let rate = |rates: &dyn Fn(&[f64; 3]) -> f64| {
            format!("{:.2} million/s", Stats::of(rounds.iter().map(rates)).median / 1e6)
        };
        let ratio = Stats::of(rounds.iter().map(|[one, _, two]| two / one));
        let apart = Stats::of(rounds.iter().map(|[one, apart, _]| apart / one));
        let most = |rates: fn(&[f64; 3]) -> f64| Stats::of(rounds.iter().map(rates)).max;
        let best = most(|r| r[2]) / most(|r| r[0]);
        let _ = writeln!(
            text,
            "| {what} | ≥ {TWICE_MIN:.2}× | {} | {} ({:.2}×) | {} | {:.2}× | {:.2}× … {:.2}× | {best:.2}× | {} |",
            rate(&|r| r[0]),
            rate(&|r| r[1]),
            apart.median,
            rate(&|r| r[2]),
            ratio.median,
            ratio.min,
            ratio.max,
            verdict(ratio.median >= TWICE_MIN)
        );
    }
    let _ = writeln!(
        text,
        "\nTransactions that met the other one's because two names share a record: {failed:.0}.\n"
    );
    Ok(())
}

/// How often a facet that nobody touches seems to be in use.
fn false_conflicts(bench: &Bench, places: &Places, text: &mut String) -> Result<(), String> {
    let _ = writeln!(
        text,
        "False conflicts: one transaction holds facets with random names, and 500,000 other names are \
         looked at.\n\n\
         | facets held | records held | expected: of all records | measured: names that seem to be in use |\n|---|---|---|---|"
    );
    for facets in [1_000, 10_000, 100_000, 500_000] {
        let report = alone(bench, &["false-conflicts", &facets.to_string()], &places.memory)?;
        let (held, records) = (value(&report, "held"), value(&report, "records"));
        let _ = writeln!(
            text,
            "| {} | {} | {:.3} % | {:.3} % |",
            thousands(facets),
            thousands(held as u64),
            100.0 * held / records,
            100.0 * value(&report, "seen")
        );
    }
    Ok(())
}
