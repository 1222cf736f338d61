//! Single system calls of a program: with the library and without, outside of transactions, within,
//! and as transactions of their own.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::bench::Bench;
use crate::figure::{Figure, Section, Unit};
use crate::measure::Stats;
use crate::program::{Place, Program, Session};
use crate::subject;

/// One call: its name, what it is in the table, and the papers' figures.
struct Call {
    name: &'static str,
    what: &'static str,
    /// NoTx, Bgnd Tx, In Tx and Tx: multiples of Linux.
    papers: [f64; 4],
}

const fn call(name: &'static str, what: &'static str, papers: [f64; 4]) -> Call {
    Call { name, what, papers }
}

const CALLS: [Call; 8] = [
    call("access", "`access`", [1.1, 1.4, 4.7, 7.8]),
    call("stat", "`stat`", [1.3, 1.3, 4.1, 7.3]),
    call("open", "`open`, `close`", [1.4, 1.3, 5.2, 8.0]),
    call("unlink", "`unlink`", [1.5, 1.7, 3.0, 7.3]),
    call("link", "`link`", [1.4, 2.2, 7.4, 10.7]),
    call("mkdir", "`mkdir`", [1.2, 1.3, 4.6, 4.9]),
    call("read", "`read`, 4 KiB", [1.3, 1.3, 4.3, 7.0]),
    call("write", "`write`, 4 KiB", [0.9, 1.1, 1.3, 3.0]),
];
/// Their geometric means.
const PAPERS: [f64; 4] = [1.29, 1.42, 3.93, 6.61];

/// Patterns of a batch.
const PATTERNS: [&str; 2] = ["same", "other"];
/// Calls in a batch.
const BATCH: usize = 900;
/// Directories in one: removing them takes long where the file system discards what it frees.
const DIRECTORIES: usize = 200;
/// At least that many where a call takes long, and about that long, in nanoseconds.
const LEAST: usize = 5;
const LONG: f64 = 2.5e7;

/// What a program runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    Nothing,
    /// A bare overlay.
    Overlay,
    /// `txos run`, with these options.
    Run(&'static [&'static str]),
}

/// A way to make calls.
struct Mode {
    /// Whether the library is there.
    with: bool,
    /// The word for the program.
    word: &'static str,
    around: Around,
}

const fn mode(with: bool, word: &'static str, around: Around) -> Mode {
    Mode { with, word, around }
}

const MODES: [Mode; 11] = [
    mode(false, "none", Around::Nothing),
    mode(false, "none", Around::Nothing),
    mode(true, "none", Around::Nothing),
    mode(true, "background", Around::Nothing),
    mode(true, "inside", Around::Nothing),
    mode(true, "each", Around::Nothing),
    mode(false, "none", Around::Overlay),
    mode(false, "none", Around::Run(&[])),
    mode(false, "none", Around::Run(&["--no-preload"])),
    mode(true, "shared", Around::Nothing),
    mode(false, "none", Around::Run(&["--view", "library"])),
];

/// Which mode a column is of, of which patterns, and what is asked of its geometric mean.
struct Column {
    name: &'static str,
    mode: usize,
    patterns: &'static [usize],
    limit: Option<f64>,
}

const COLUMNS: [Column; 13] = [
    Column { name: "native again", mode: 1, patterns: &[0, 1], limit: None },
    Column { name: "NoTx", mode: 2, patterns: &[0, 1], limit: Some(1.02) },
    Column { name: "Bgnd Tx", mode: 3, patterns: &[0, 1], limit: Some(1.03) },
    Column { name: "In Tx, same", mode: 4, patterns: &[0], limit: Some(1.2) },
    Column { name: "In Tx, other", mode: 4, patterns: &[1], limit: Some(1.2) },
    Column { name: "Tx, same", mode: 5, patterns: &[0], limit: Some(2.5) },
    Column { name: "Tx, other", mode: 5, patterns: &[1], limit: Some(2.5) },
    Column { name: "In Tx of processes, same", mode: 9, patterns: &[0], limit: None },
    Column { name: "In Tx of processes, other", mode: 9, patterns: &[1], limit: None },
    Column { name: "overlayfs", mode: 6, patterns: &[0, 1], limit: None },
    Column { name: "`txos run`", mode: 7, patterns: &[0, 1], limit: None },
    Column { name: "… without the preloaded recorder", mode: 8, patterns: &[0, 1], limit: None },
    Column { name: "`--view library`", mode: 10, patterns: &[0, 1], limit: None },
];

/// Nanoseconds by call, pattern, mode and round.
type Times = Vec<[[Vec<f64>; MODES.len()]; PATTERNS.len()]>;

/// Measures all of it.
pub fn calls(bench: &Bench) -> Result<Section, String> {
    let program = Program::compile(bench, "calls")?;
    let mut text = String::new();
    let rounds = if bench.quick() { 5 } else { 21 };
    let _ = writeln!(
        text,
        "Nanoseconds of a call by the kernel alone, and multiples of it:\n\n\
         - NoTx: the library is loaded, nobody is in a transaction\n\
         - Bgnd Tx: another thread of the process is in one\n\
         - In Tx: within a long transaction, whose begin and end are not counted\n\
         - In Tx of processes: the same once the process has had a child in it\n\
         - Tx: begin, call and end, not durable\n\
         - overlayfs, `txos run`: the program without the library in a bare overlay, or in a transaction as \
         a command; what it looks at and changes it has made itself, there\n\n\
         \"Same\" is again and again one object, \"other\" each time another one, {BATCH} in all (fewer where \
         a call takes long, {DIRECTORIES} directories); the columns that do not say so are of both. Each \
         column is a process that lives through all rounds, with a directory, a store and a realm of \
         its own, and uses absolute paths of six to eight names. \"Native again\" is a second one without the \
         library: what the machine adds. Medians of {rounds} rounds of a batch each, by turns; each call \
         is timed by itself. In parentheses the papers' multiples.\n"
    );
    let mut section = Section {
        name: "calls".into(),
        title: "Single system calls (the papers' table 4)".into(),
        base: "native".into(),
        tabled: true,
        ..Section::default()
    };
    for place in Place::both(bench)? {
        if place.dir().starts_with("/dev") {
            let _ = writeln!(
                section.more,
                "In memory: `txos run` does not version /dev; see `--memory`."
            );
            continue;
        }
        let times = measure(bench, &place, &program, rounds)?;
        table(&place, &times, &mut section.more);
        section.figures.extend(figures(&place, &times));
    }
    section.text = text;
    Ok(section)
}

/// The columns as data; rounds of both patterns one after the other.
fn figures(place: &Place, times: &Times) -> Vec<Figure> {
    let of_call = |(call, times): (&Call, &[[Vec<f64>; MODES.len()]; PATTERNS.len()])| {
        let figure = |column: &Column| {
            let of = |mode: usize| -> Vec<f64> {
                let rounds = column.patterns.iter().filter_map(|p| times.get(*p)?.get(mode));
                rounds.flatten().map(|ns| ns / 1e9).collect()
            };
            Figure {
                place: place.name.clone(),
                what: call.what.into(),
                subject: column.name.into(),
                unit: Unit::Seconds,
                base: of(0),
                values: of(column.mode),
                papers: column.mode.checked_sub(2).and_then(|n| call.papers.get(n)).copied(),
                asked: None,
            }
        };
        COLUMNS.iter().map(figure).collect::<Vec<_>>()
    };
    CALLS.iter().zip(times.iter()).flat_map(|(call, times)| of_call((call, times))).collect()
}

fn measure(
    bench: &Bench,
    place: &Place,
    program: &Program,
    rounds: usize,
) -> Result<Times, String> {
    // Sessions end before their places do.
    let mut places = Vec::new();
    let mut sessions = Vec::new();
    for (n, mode) in MODES.iter().enumerate() {
        // A realm of its own: a name that by chance shares a record with one that the transaction in
        // the background holds would wait for its end, which never comes.
        let place = place.apart(&format!("mode{n}"))?;
        let dir = place.at("work");
        let words = [&*dir.to_string_lossy(), mode.word];
        let command = match mode.around {
            Around::Nothing => program.command(&place, mode.with, &words),
            Around::Overlay => {
                let mut command = subject::overlay(place.dir(), &overlay_of(&place)?);
                command.arg(program.path(mode.with)).args(words);
                command
            }
            Around::Run(options) => {
                let mut command = bench.transaction_at(place.dir(), options);
                command.arg(program.path(mode.with)).args(words);
                place.keep(&mut command);
                command
            }
        };
        sessions.push(Session::start(command)?);
        places.push(place);
    }
    let mut times: Times = CALLS.iter().map(|_| Default::default()).collect();
    for (call, times) in CALLS.iter().zip(&mut times) {
        for (pattern, times) in PATTERNS.iter().zip(times) {
            eprintln!("calls: {} {} on {}", call.name, pattern, place.name);
            let mut ask = |mode: usize, count: usize| -> Result<f64, String> {
                let session = sessions.get_mut(mode).ok_or("no session")?;
                session.ask(&format!("{} {pattern} {count}", call.name))
            };
            let most = if call.name == "mkdir" { DIRECTORIES } else { BATCH };
            let mut counts = Vec::new();
            for mode in 0..MODES.len() {
                // The first batch only warms up, and says how many calls are enough.
                let took = ask(mode, LEAST)?;
                let inside =
                    MODES.get(mode).is_some_and(|m| ["inside", "shared"].contains(&m.word));
                let enough = if inside { most } else { (LONG / took.max(1.0)) as usize };
                counts.push(enough.clamp(LEAST, most));
            }
            for round in 0..rounds {
                for n in 0..MODES.len() {
                    // Not always in the same order.
                    let mode = (n + round) % MODES.len();
                    let (Some(count), Some(times)) = (counts.get(mode), times.get_mut(mode)) else {
                        continue;
                    };
                    times.push(ask(mode, *count)?);
                }
            }
        }
    }
    Ok(times)
}

/// A directory beside a place, for what an overlay over it needs.
fn overlay_of(place: &Place) -> Result<PathBuf, String> {
    let mut aside = place.dir().as_os_str().to_owned();
    aside.push("-overlay");
    let aside = PathBuf::from(aside);
    for part in ["upper", "work"] {
        let path = aside.join(part);
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(aside)
}

/// The multiples of a column, all of its rounds and patterns.
fn ratios(times: &[[Vec<f64>; MODES.len()]; PATTERNS.len()], column: &Column) -> Vec<f64> {
    let of_pattern = |pattern: &usize| {
        let modes = times.get(*pattern);
        let of = |mode: usize| modes.and_then(|m| m.get(mode)).map_or(&[][..], |t| &t[..]);
        of(column.mode).iter().zip(of(0)).map(|(a, b)| a / b).collect::<Vec<_>>()
    };
    column.patterns.iter().flat_map(of_pattern).collect()
}

fn geometric(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0);
    for value in values {
        sum += value.ln();
        n += 1.0;
    }
    f64::exp(sum / n)
}

/// Between which the middle half of them is: what interrupts a batch makes the extremes, and they
/// say nothing.
fn middle_half(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |quarter: usize| values.get(values.len() * quarter / 4).copied().unwrap_or(f64::NAN);
    [at(1), at(3)]
}

fn table(place: &Place, times: &Times, text: &mut String) {
    let native = |call: usize, pattern: usize| {
        let times = times.get(call).and_then(|t| t.get(pattern)).and_then(|t| t.first());
        nanos(Stats::of(times.into_iter().flatten().copied()).median)
    };
    let names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
    let line = "---|".repeat(COLUMNS.len());
    let _ = writeln!(
        text,
        "On {}:\n\n| call | native, same | native, other | {} |\n|---|---|---|{line}",
        place.name,
        names.join(" | ")
    );
    let paper = |papers: &[f64; 4], mode: usize| {
        mode.checked_sub(2).and_then(|n| papers.get(n)).copied().unwrap_or(f64::NAN)
    };
    for (n, call) in CALLS.iter().enumerate() {
        let cells = COLUMNS.iter().map(|column| {
            let median =
                times.get(n).map_or(f64::NAN, |t| Stats::of(ratios(t, column).into_iter()).median);
            cell(median, paper(&call.papers, column.mode))
        });
        let cells: Vec<String> = cells.collect();
        let (same, other) = (native(n, 0), native(n, 1));
        let _ = writeln!(text, "| {} | {same} | {other} | {} |", call.what, cells.join(" | "));
    }
    let means: Vec<f64> = COLUMNS
        .iter()
        .map(|column| {
            geometric(times.iter().map(|t| Stats::of(ratios(t, column).into_iter()).median))
        })
        .collect();
    let row = |cell: &dyn Fn(&Column, f64) -> String| {
        let cells: Vec<String> = COLUMNS.iter().zip(&means).map(|(c, m)| cell(c, *m)).collect();
        cells.join(" | ")
    };
    let _ = writeln!(
        text,
        "| geometric mean | | | {} |\n| asked | | | {} |\n| | | | {} |\n",
        row(&|column, mean| cell(mean, paper(&PAPERS, column.mode))),
        row(&|column, _| column.limit.map_or(String::new(), |limit| format!("≤ {limit:.2}×"))),
        row(&|column, mean| match column.limit {
            Some(limit) if mean <= limit => "kept".into(),
            Some(_) => "**missed**".into(),
            None => String::new(),
        }),
    );
    let _ = writeln!(
        text,
        "The middle half of the rounds:\n\n| call | {} |\n|---|{line}",
        names.join(" | ")
    );
    for (call, times) in CALLS.iter().zip(times) {
        let cells: Vec<String> = COLUMNS
            .iter()
            .map(|column| {
                let [low, high] = middle_half(ratios(times, column));
                format!("{} … {}", multiple(low), multiple(high))
            })
            .collect();
        let _ = writeln!(text, "| {} | {} |", call.what, cells.join(" | "));
    }
    text.push('\n');
}

fn cell(ratio: f64, paper: f64) -> String {
    if paper.is_nan() { multiple(ratio) } else { format!("{} ({paper}×)", multiple(ratio)) }
}

/// With three digits or so.
pub fn multiple(ratio: f64) -> String {
    match ratio {
        r if r < 0.0995 => format!("{r:.3}×"),
        r if r < 9.995 => format!("{r:.2}×"),
        r if r < 99.95 => format!("{r:.1}×"),
        r => format!("{r:.0}×"),
    }
}

fn nanos(ns: f64) -> String {
    match ns {
        t if t < 9_950.0 => format!("{t:.0} ns"),
        t if t < 99_950.0 => format!("{:.1} µs", t / 1e3),
        t => format!("{:.0} µs", t / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_compared_with_the_kernel_alone() {
        let mut times: [[Vec<f64>; MODES.len()]; PATTERNS.len()] = Default::default();
        times[0][0] = vec![100.0, 200.0];
        times[0][4] = vec![150.0, 150.0];
        times[1][0] = vec![10.0, 10.0];
        times[1][2] = vec![11.0, 10.0];
        assert_eq!(ratios(&times, &COLUMNS[3]), [1.5, 0.75]);
        assert_eq!(ratios(&times, &COLUMNS[1]), [1.1, 1.0]);
        assert!((geometric([2.0, 8.0].into_iter()) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn the_middle_half_leaves_out_extremes() {
        assert_eq!(middle_half(vec![9.0, 1.0, 2.0, 3.0, 100.0]), [2.0, 9.0]);
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.00456, 1.234, 12.34].map(multiple), ["0.005×", "1.23×", "12.3×"]);
        assert_eq!([531.2, 35_987.0].map(nanos), ["531 ns", "36.0 µs"]);
    }
}
