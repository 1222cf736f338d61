//! Programs that flush each file, as careful ones do.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{at, remove, thousands};
use crate::bench::{Bench, output};
use crate::figure::{Figure, Section, Unit};
use crate::measure::Pair;

/// Files that are written one after the other.
const FILES: u64 = 300;
/// What was asked for: a multiple of the plain program.
const ASKED: f64 = 0.3;

/// A program that flushes.
struct Program {
    what: String,
    words: Vec<OsString>,
}

/// Natively each flush is waited for; in a transaction the one at the commit does.
pub fn flushes(bench: &Bench) -> Result<Section, String> {
    let dir = bench.at("flushed");
    let mut figures = Vec::new();
    for program in programs(bench, &dir) {
        let words: Vec<&OsStr> = program.words.iter().map(OsString::as_os_str).collect();
        let afresh = || {
            remove(&dir)?;
            at(&dir, fs::create_dir_all(&dir))
        };
        // It flushes by itself.
        let pairs = bench.alternate("flush", false, afresh, || bench.both(&words))?;
        let seconds = |half: fn(&Pair) -> Duration| {
            pairs.iter().map(|pair| half(pair).as_secs_f64()).collect()
        };
        figures.push(Figure {
            place: format!("{}, durable", bench.file_system()),
            what: program.what,
            subject: "`txos run`".into(),
            unit: Unit::Seconds,
            base: seconds(|pair| pair.plain),
            values: seconds(|pair| pair.txos),
            papers: None,
            asked: Some(ASKED),
        });
    }
    remove(&dir)?;
    Ok(Section {
        name: "flush".into(),
        title: "Programs that flush".into(),
        text: "Natively a program waits for each flush. In a transaction it does not: what it flushes is not \
               there yet, and the commit flushes all of it once. Both are durable at their end."
            .into(),
        base: "native".into(),
        figures,
        ..Section::default()
    })
}

fn programs(bench: &Bench, dir: &Path) -> Vec<Program> {
    let mails = bench.files(1_000);
    let [file_count, mail_count] = [FILES, mails].map(|n| n.to_string());
    let own = |words: &[&OsStr]| bench.work(words).iter().map(OsString::from).collect();
    let mut programs = vec![
        Program {
            what: format!("{FILES} files written, flushed, renamed, and their directory flushed"),
            words: own(&["replace".as_ref(), dir.as_os_str(), file_count.as_ref()]),
        },
        Program {
            what: format!("{} mails delivered", thousands(mails)),
            words: own(&["deliver".as_ref(), dir.as_os_str(), mail_count.as_ref()]),
        },
    ];
    if output(Command::new("git").arg("--version")).is_ok() {
        let script = format!(
            "cd {} && git init -q . && i=0 && while [ $i -lt 100 ]; do echo $i >f$i; i=$((i+1)); done && \
             git -c core.fsync=all -c core.fsyncMethod=fsync add . && \
             git -c core.fsync=all -c core.fsyncMethod=fsync -c user.name=n -c user.email=e commit -q -m m",
            dir.display()
        );
        programs.push(Program {
            what: "100 files added and committed by git with `core.fsync=all`".into(),
            words: ["sh", "-c", &script].map(OsString::from).to_vec(),
        });
    }
    programs
}
