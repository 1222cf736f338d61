//! Programs that flush each file, as careful ones do.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::remove;
use crate::bench::{Bench, output, run};
use crate::figure::{Figure, Section, Unit};

/// A program that flushes.
struct Program {
    what: String,
    words: Vec<OsString>,
    asked: f64,
}

/// Natively each flush is waited for; in a transaction the one at the commit does.
pub fn flushes(bench: &Bench) -> Result<Section, String> {
    let dir = bench.at("flushed");
    let mut figures = Vec::new();
    for program in programs(bench, &dir) {
        let [mut base, mut values] = [Vec::new(), Vec::new()];
        for _ in 0..bench.pairs() {
            for (transaction, times) in [(false, &mut base), (true, &mut values)] {
                remove(&dir)?;
                std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
                bench.flush()?;
                let words: Vec<&OsStr> = program.words.iter().map(OsString::as_os_str).collect();
                let [mut plain, mut txos] = bench.both(&words);
                let command = if transaction { &mut txos } else { &mut plain };
                let start = Instant::now();
                run(command)?;
                times.push(start.elapsed().as_secs_f64());
                bench.tidy()?;
            }
        }
        figures.push(Figure {
            place: format!("{}, durable", bench.file_system()),
            what: program.what,
            subject: "`txos run`".into(),
            unit: Unit::Seconds,
            base,
            values,
            papers: None,
            asked: Some(program.asked),
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
    let (files, mails) = (bench.files(3_000).min(300), bench.files(1_000));
    let [file_count, mail_count] = [files, mails].map(|n| n.to_string());
    let own = |words: &[&OsStr]| bench.work(words).iter().map(OsString::from).collect();
    let mut programs = vec![
        Program {
            what: format!("{files} files written, flushed, renamed, and their directory flushed"),
            words: own(&["replace".as_ref(), dir.as_os_str(), file_count.as_ref()]),
            asked: 0.3,
        },
        Program {
            what: format!("{mails} mails delivered"),
            words: own(&["deliver".as_ref(), dir.as_os_str(), mail_count.as_ref()]),
            asked: 0.3,
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
            asked: 0.3,
        });
    }
    programs
}
