//! `txos restore`: earlier versions of paths, put back by a transaction of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use txos_engine::TxId;
use txos_engine::commit::{Options, Wanted};
use txos_engine::show::quoted;
use txos_engine::store::Home;

use crate::app::App;
use crate::args::RestoreArgs;
use crate::changes::paths as count_of_paths;
use crate::exit::Failure;
use crate::pick::{self, pick};
use crate::realm::Waiting;
use crate::report::Outcome;
use crate::signals::Deferred;
use crate::{paths, run, trash};

/// Puts them back.
pub fn restore(app: &App, args: &RestoreArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let wanted = wanted(&home, args)?;
    let source = wanted.source;
    app.report.note(|report| report.of(source));
    let durable = home.meta(source)?.durable && !args.no_durable;
    let options = Options { gate: !args.no_gate, durable, ..Options::default() };
    let unchanged = |failure: Failure| {
        let again = match failure {
            Failure::Conflict { .. } => {
                "; `txos top` shows who runs, and the same command can be given again"
            }
            _ => "",
        };
        failure.with_aftermath(&format!("nothing is restored, nothing changed{again}"))
    };
    let engine = app.join(&home, &format!("txos restore {source}"))?;
    let handle = app.begin(engine, source, None, args.wait).map_err(unchanged)?;
    let waits = Waiting { patience: args.wait.patience(), leave: None };
    let txn = engine.txn(handle, &waits);
    let restored = {
        let _signals = Deferred::begin();
        app.with_progress(|progress| txn.restore(&wanted, &options, progress))
    };
    let restored = restored.map_err(|failed| unchanged(failed.error.into()))?;
    for path in &restored.same {
        let state = if wanted.before { "was before" } else { "was left by" };
        app.say(format_args!("{} is as it {state} {source}", quoted(path)));
    }
    let Some(summary) = restored.summary else {
        app.report.note(|report| report.ended(Outcome::Unchanged, None));
        let other = if wanted.before {
            format!("`txos log PATH` lists what changed it since {source}")
        } else {
            format!("--before brings back what {source} replaced or removed")
        };
        app.say(format_args!("nothing changed; {other}"));
        return Ok(0);
    };
    app.report.note(|report| report.published(Outcome::Restored, &summary, None));
    let style = app.err.id();
    app.say(format_args!(
        "restored by {style}{}{style:#}: {} as {} {style}{source}{style:#}",
        summary.id,
        count_of_paths(summary.changes),
        if wanted.before { "before" } else { "left by" },
    ));
    if !run::warn_unrecorded(app, &summary) {
        trash::clear(app, &home);
    }
    Ok(0)
}

/// What the words mean.
fn wanted(home: &Home, args: &RestoreArgs) -> Result<Wanted, Failure> {
    let mut source: Option<TxId> = None;
    let mut asked: Vec<PathBuf> = Vec::new();
    if let Some(text) = &args.source {
        source = Some(pick(home, text, pick::Wanted::Published)?);
        asked.clone_from(&args.paths);
    } else {
        for word in &args.paths {
            let Some((path, text)) = split(word.as_os_str()) else {
                return Err(Failure::new(format!(
                    "{}: which version? PATH@ID names one, or --source ID with paths; `txos log {0}` lists \
                     the transactions that changed it; nothing changed",
                    quoted(word)
                )));
            };
            let id = pick(home, &text, pick::Wanted::Published)?;
            if source.is_some_and(|known| known != id) {
                return Err(Failure::new(
                    "versions of one transaction are restored at a time; nothing changed",
                ));
            }
            source = Some(id);
            asked.push(path);
        }
    }
    let Some(source) = source else { return Err(Failure::new("no path is named")) };
    let mut command = vec!["txos".to_owned(), "restore".to_owned()];
    command.extend(args.before.then(|| "--before".to_owned()));
    command.extend(["--source".to_owned(), source.to_string()]);
    let paths = paths::all_in_tree(&asked)?;
    command.extend(paths.iter().map(|path| quoted(path)));
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    Ok(Wanted { source, before: args.before, paths, command, directory })
}

/// `PATH@ID`, where the id may be `@` or `@~N` as well.
fn split(word: &OsStr) -> Option<(PathBuf, String)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().rposition(|&b| b == b'@')?;
    let at = if bytes.get(at.checked_sub(1)?) == Some(&b'@') { at - 1 } else { at };
    let path = bytes.get(..at).filter(|path| !path.is_empty())?;
    let id = std::str::from_utf8(bytes.get(at + 1..)?).ok().filter(|id| !id.is_empty())?;
    let path = std::ffi::OsString::from_vec(path.to_vec());
    Some((Path::new(&path).to_owned(), id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_version() {
        let parts = |word: &str| {
            split(OsStr::new(word)).map(|(path, id)| (path.to_str().unwrap().to_owned(), id))
        };
        let of = |path: &str, id: &str| Some((path.to_owned(), id.to_owned()));
        assert_eq!(parts("/etc/a@3kq9w2ma"), of("/etc/a", "3kq9w2ma"));
        assert_eq!(parts("a@b@3kq9"), of("a@b", "3kq9"));
        assert_eq!(parts("a@@"), of("a", "@"));
        assert_eq!(parts("a@@~2"), of("a", "@~2"));
        for bad in ["a", "@", "a@", "@x"] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }
}
