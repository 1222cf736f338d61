//! The smallest front door, for tests and measurements: runs a command in a transaction, writes
//! what became of it as JSON to a file, and discards the transaction. With `TXOS_RECORDER=off` nothing is preloaded.
//!
//! ```text
//! txos-run-session STORE REPORT [--scope DIR]… [--exclude GLOB]… [--hold] [--strict] [--kill]
//!                  [--release] [--keep] [--twice] -- COMMAND…
//! ```

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use txos_engine::store::Home;
use txos_run::{CommandStatus, Leftover, RunOptions};

fn main() -> ExitCode {
    match session() {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("txos-run-session: {e}");
            ExitCode::from(125)
        }
    }
}

fn session() -> Result<u8, Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let store = PathBuf::from(args.next().ok_or("no store")?);
    let report = PathBuf::from(args.next().ok_or("no report")?);
    let mut options = RunOptions::default();
    let (mut release, mut keep, mut twice) = (false, false, false);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--scope") => options.scope.push(args.next().ok_or("no directory")?.into()),
            Some("--exclude") => {
                let glob: OsString = args.next().ok_or("no pattern")?;
                options.exclude.push(glob.to_string_lossy().into_owned());
            }
            Some("--hold") => options.hold_output = txos_run::Hold::Fully,
            Some("--strict") => options.strict = true,
            Some("--kill") => options.leftover = Leftover::Kill,
            Some("--release") => release = true,
            Some("--keep") => keep = true,
            Some("--twice") => twice = true,
            Some("--") => break,
            _ => return Err(format!("unknown option {arg:?}").into()),
        }
    }
    options.recorder = std::env::var_os("TXOS_RECORDER").is_none_or(|value| value != "off");
    options.command = args.collect();
    let home = Home::open(&store)?;
    let mut tx = txos_run::begin(&home, &options)?;
    let reads = txos_run::new_reads(&home, &tx, &options)?;
    let mut run = |reads| txos_run::run(&home, &mut tx, reads, &options, None);
    let ran = match run(reads) {
        Ok(first) if twice => run(first.reads),
        other => other,
    };
    let mut ran = match ran {
        Ok(ran) => ran,
        Err(e) => {
            home.discard(tx)?;
            return Err(e.into());
        }
    };
    if release {
        ran.release();
    } else {
        ran.drop_held();
    }
    let reads: Vec<serde_json::Value> = ran
        .reads
        .iter()
        .map(|(path, seen)| {
            serde_json::json!({
                "path": txos_engine::show::quoted_bytes(&path),
                "outcome": format!("{:?}", seen.outcome),
                "facets": seen.facets().0,
            })
        })
        .collect();
    let warnings: Vec<String> =
        ran.warnings.iter().map(|w| format!("{:?}: {}", w.kind, w.text)).collect();
    let layers: Vec<String> =
        tx.layers().iter().map(|l| l.upper.to_string_lossy().into_owned()).collect();
    let json = serde_json::json!({
        "id": tx.id().as_str(),
        "status": format!("{:?}", ran.status),
        "warnings": warnings,
        "layers": layers,
        "reads": reads,
    });
    std::fs::write(&report, serde_json::to_vec_pretty(&json)?)?;
    let code = match ran.status {
        CommandStatus::Exited(code) => u8::try_from(code).unwrap_or(1),
        CommandStatus::Signaled(signal) => 128 + u8::try_from(signal).unwrap_or(0),
        CommandStatus::NotFound(_) => 127,
        CommandStatus::NotExecutable(_) => 126,
        CommandStatus::Stopped { .. } | CommandStatus::Refused { .. } => 125,
        CommandStatus::Exceeded { .. } => 124,
        CommandStatus::Lost { .. } => 75,
    };
    if !keep {
        home.discard(tx)?;
        while !home.empty_trash(None)? {}
    }
    Ok(code)
}
