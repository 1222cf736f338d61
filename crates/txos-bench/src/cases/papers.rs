//! The papers' table of applications and file benchmarks: the same work by every subject.

use std::ffi::OsString;
use std::path::Path;

use super::{at, thousands};
use crate::bench::Bench;
use crate::figure::{Figure, Section, Unit};
use crate::program::{Place, Program};
use crate::subject::{Site, Subject};

/// A phase: its word, what it is in the table, and what the papers found, not durable and durable.
struct Phase {
    word: &'static str,
    what: String,
    papers: [Option<f64>; 2],
}

fn phase(word: &'static str, what: impl Into<String>, papers: [f64; 2]) -> Phase {
    Phase { word, what: what.into(), papers: papers.map(Some) }
}

/// Some work, phase by phase.
struct Work<'a> {
    phases: Vec<Phase>,
    /// Whether a program can do it in transactions of its own.
    inside: bool,
    /// What is made ready in a new tree, natively; not timed.
    prepare: &'a dyn Fn(&Site<'_>) -> Result<(), String>,
    /// The command of a phase.
    words: &'a dyn Fn(&Site<'_>, &str) -> Vec<OsString>,
    /// Its environment.
    settings: &'a [(&'a str, String)],
}

/// Does it in all places, durable and not, by all subjects in turn.
fn measure(bench: &Bench, name: &str, work: &Work<'_>) -> Result<Vec<Figure>, String> {
    let mut figures = Vec::new();
    let mut subjects = vec![Subject::Native, Subject::Overlay, Subject::Run, Subject::Library];
    subjects.extend(work.inside.then_some(Subject::Inside));
    subjects.extend(bench.rival().map(Subject::Try));
    for place in Place::disks(bench)? {
        for durable in [false, true] {
            if durable && bench.quick() && name == "make" {
                // The longest of all, and the one that flushes change least.
                continue;
            }
            // By subject, phase and round.
            let mut times = vec![vec![Vec::new(); work.phases.len()]; subjects.len()];
            for round in 0..bench.pairs() {
                eprintln!("{name}: {}, round {} of {}", place.name, round + 1, bench.pairs());
                for turn in 0..subjects.len() {
                    // Not always in the same order.
                    let n = (turn + round) % subjects.len();
                    let (Some(subject), Some(times)) = (subjects.get(n), times.get_mut(n)) else {
                        continue;
                    };
                    let site =
                        Site::new(bench, &place, &format!("{name}{round}-{n}"), subject, durable)?;
                    (work.prepare)(&site)?;
                    for (phase, times) in work.phases.iter().zip(times) {
                        times.push(site.time(&(work.words)(&site, phase.word), work.settings)?);
                    }
                }
            }
            let flushed = if durable { ", durable" } else { "" };
            let native = times.first().cloned().unwrap_or_default();
            for (n, phase) in work.phases.iter().enumerate() {
                for (subject, times) in subjects.iter().zip(&times).skip(1) {
                    figures.push(Figure {
                        place: format!("{}{flushed}", place.name),
                        what: phase.what.clone(),
                        subject: subject.name().into(),
                        unit: Unit::Seconds,
                        base: native.get(n).cloned().unwrap_or_default(),
                        values: times.get(n).cloned().unwrap_or_default(),
                        papers: phase.papers[usize::from(durable)],
                        asked: None,
                    });
                }
            }
        }
    }
    Ok(figures)
}

fn section(name: &str, title: &str, text: &str, figures: Vec<Figure>) -> Section {
    Section {
        name: name.into(),
        title: title.into(),
        text: text.into(),
        base: "native".into(),
        figures,
        ..Section::default()
    }
}

/// What all of these have in common.
const PHASES: &str = "Each phase is a command of its own, timed from outside, and one transaction; each round \
begins with a new tree (and a new store beside it). \"overlayfs\" is the same command in a bare overlay over the tree, \
whose changes are thrown away.";

/// The small and the large files of LFS.
pub fn files(bench: &Bench) -> Result<Section, String> {
    let program = Program::compile(bench, "lfs")?;
    let (count, size) = (bench.files(10_000), bench.files(100 << 20));
    let settings = [("count", count.to_string()), ("size", size.to_string())];
    let kinds = [
        (
            "small",
            vec![
                phase("create", format!("create {} files of 1 KiB", thousands(count)), [0.1, 0.1]),
                phase("read", "… read them", [1.2, 1.3]),
                phase("delete", "… delete them", [2.0, 2.4]),
            ],
        ),
        (
            "large",
            vec![
                phase("write", format!("write {} MiB in order", size >> 20), [0.2, 0.6]),
                phase("read", "… read them in order", [1.1, 1.1]),
                phase("write-random", "… write them in random order", [0.03, 0.05]),
                phase("read-random", "… read them in random order", [0.9, 1.0]),
            ],
        ),
    ];
    let mut figures = Vec::new();
    for (kind, phases) in kinds {
        let words = |site: &Site<'_>, phase: &str| {
            let mut words = vec![program.path(site.with_library()).into(), site.tree().into()];
            words.extend([kind, site.how(), phase].map(OsString::from));
            words
        };
        let work =
            Work { phases, inside: true, prepare: &|_| Ok(()), words: &words, settings: &settings };
        figures.extend(measure(bench, kind, &work)?);
    }
    Ok(section("files", "Small files and a large one (LFS)", PHASES, figures))
}

/// The Reimplemented Andrew Benchmark.
pub fn andrew(bench: &Bench) -> Result<Section, String> {
    let program = Program::compile(bench, "rab")?;
    let (files, dirs) = (if bench.quick() { 50 } else { 500 }, bench.files(20_000));
    let settings = [("files", files), ("dirs", dirs), ("filled", files)];
    let settings = settings.map(|(key, n)| (key, n.to_string()));
    let words = |site: &Site<'_>, phase: &str, how: &str| -> Vec<OsString> {
        vec![program.path(site.with_library()).into(), site.tree().into(), phase.into(), how.into()]
    };
    let prepare = |site: &Site<'_>| {
        let mut make = std::process::Command::new(program.path(false));
        make.args(words(site, "files", "plain").iter().skip(1));
        make.envs(settings.iter().map(|(k, v)| (k, v)));
        crate::bench::run(&mut make).map(drop)
    };
    let work = Work {
        phases: vec![
            phase("mkdir", format!("make {} directories", thousands(dirs)), [0.3, 0.2]),
            phase("cp", format!("copy {0} files into {0} of them", thousands(files)), [0.2, 0.2]),
            phase("du", "add up what they take", [1.0, 0.8]),
            phase("grep", "search them and add up their bytes", [1.4, 0.9]),
        ],
        inside: true,
        prepare: &prepare,
        words: &|site, phase| words(site, phase, site.how()),
        settings: &settings,
    };
    let figures = measure(bench, "andrew", &work)?;
    Ok(section("andrew", "The Reimplemented Andrew Benchmark", PHASES, figures))
}

/// PostMark.
pub fn postmark(bench: &Bench) -> Result<Section, String> {
    let program = Program::compile(bench, "postmark")?;
    let (pool, plays) = (bench.files(5_000), bench.files(20_000));
    let settings = [("pool", pool.to_string()), ("plays", plays.to_string())];
    let words = |site: &Site<'_>, phase: &str| -> Vec<OsString> {
        let how = site.how();
        vec![program.path(site.with_library()).into(), site.tree().into(), phase.into(), how.into()]
    };
    let none = [None; 2];
    let work = Work {
        phases: vec![
            Phase { word: "make", what: format!("make {} files", thousands(pool)), papers: none },
            phase(
                "play",
                format!("read, append, make, remove: {} times", thousands(plays)),
                [0.2, 0.9],
            ),
            Phase { word: "remove", what: "remove what is left".into(), papers: none },
        ],
        inside: true,
        prepare: &|_| Ok(()),
        words: &words,
        settings: &settings,
    };
    let text = format!(
        "{PHASES} Sizes of 500 to 10,000 bytes, blocks of 512, all choices even. The papers have one figure for all of it, \
         and do not say how many of its transactions were one of theirs; it stands beside the middle phase."
    );
    let figures = measure(bench, "postmark", &work)?;
    Ok(section("postmark", "PostMark", &text, figures))
}

/// Processes that a command begins.
pub fn processes(bench: &Bench) -> Result<Section, String> {
    let program = Program::compile(bench, "forks")?;
    let count = bench.files(2_000);
    let settings = [("count", count.to_string())];
    let none = [None; 2];
    let (forks, runs) = (thousands(count), thousands(count));
    let work = Work {
        phases: vec![
            Phase { word: "fork", what: format!("fork, exit, wait: {forks} times"), papers: none },
            Phase {
                word: "exec",
                what: format!("fork, exec of `/bin/true`, exit, wait: {runs} times"),
                papers: none,
            },
        ],
        inside: false,
        prepare: &|_| Ok(()),
        words: &|_, phase| vec![program.path(false).into(), phase.into()],
        settings: &settings,
    };
    let figures = measure(bench, "processes", &work)?;
    Ok(section("processes", "Processes that a command begins", PHASES, figures))
}

/// A package, a build and its installation.
pub fn programs(bench: &Bench) -> Result<Section, String> {
    let package = super::packages::openssh(bench);
    let mut figures = Vec::new();
    let mut more = String::new();
    match &package {
        Ok(package) => {
            let prepare = |site: &Site<'_>| super::packages::empty_root(&site.tree());
            let words = |site: &Site<'_>, _: &str| super::packages::install(&site.tree(), package);
            let work = Work {
                phases: vec![phase("dpkg", "`dpkg -i openssh-server`", [1.1, 1.1])],
                inside: false,
                prepare: &prepare,
                words: &words,
                settings: &[],
            };
            figures.extend(measure(bench, "dpkg", &work)?);
        }
        Err(why) => more = format!("`dpkg`: not measured: {why}\n\n"),
    }
    match super::build::sources(bench) {
        Ok(sources) => {
            let prepare = |site: &Site<'_>| copy(&sources, &site.tree());
            let words = |_: &Site<'_>, phase: &str| -> Vec<OsString> {
                ["make", "-s", phase, "DESTDIR=installed"].map(OsString::from).into()
            };
            let work = Work {
                phases: vec![
                    phase("all", "`make` of nano", [1.0, 1.1]),
                    phase("install", "`make install` of it", [1.4, 1.7]),
                ],
                inside: false,
                prepare: &prepare,
                words: &words,
                settings: &[],
            };
            figures.extend(measure(bench, "make", &work)?);
        }
        Err(why) => more += &format!("`make`: not measured: {why}\n"),
    }
    let text = format!(
        "{PHASES} The package is installed into a root of its own, and without its maintainer's scripts; nano is \
         Debian's source, configured before."
    );
    let mut section = section("programs", "A package, a build, its installation", &text, figures);
    section.more = more;
    Ok(section)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let mut cp = std::process::Command::new("cp");
    cp.arg("-a").arg(from.join(".")).arg(to);
    crate::bench::run(&mut cp).map(drop)?;
    at(to, std::fs::metadata(to)).map(drop)
}
