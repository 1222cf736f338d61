//! `txos rebase`: the commands of a pending transaction once more, on what is there now.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use txos_engine::TxId;
use txos_engine::scope;
use txos_engine::show::{quoted, unquoted};
use txos_engine::store::{JoinedCommand, LayerMeta, Meta, StackLayer};

use crate::app::{App, tell};
use crate::args::{Command, ExecArgs, RebaseArgs, RunArgs};
use crate::exit::Failure;
use crate::pick::{Wanted, pick};
use crate::{changes, exec, help, keep, run, trash};

/// Runs it. The old transaction stays as it is until the new one is pending.
pub fn rebase(app: &App, args: &RebaseArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Pending)?;
    app.report.note(|report| report.of(id));
    // Held meanwhile: nobody commits it or runs anything in it.
    let old = keep::load(app, &home, id)?;
    let stays = format!("{id} stays pending, as it is");
    if let Some(fork) = &old.meta.fork {
        let of = fork.of;
        return Err(Failure::new(format!(
            "{id} is a fork of {of}, and what it began with is no command; run its commands in {of} (`txos exec {of}`); \
             {stays}"
        )));
    }
    if old.meta.stack.is_undone() {
        return Err(Failure::new(format!(
            "every layer of {id} is undone, so there is nothing to run again; `txos redo {id} -n {}` puts them \
             back; {stays}",
            old.meta.stack.undone()
        )));
    }
    let again = again(&old.meta, args).map_err(|failure| failure.with_aftermath(&stays))?;
    let above = above(&old.meta, args).map_err(|failure| failure.with_aftermath(&stays))?;
    std::env::set_current_dir(&old.meta.directory).map_err(|e| {
        let directory = quoted(&old.meta.directory);
        Failure::new(format!("its command ran in {directory}: {e}; {stays}"))
    })?;
    let status = run::run(app, &again).map_err(|failure| match failure {
        Failure::Conflict { ref aftermath, .. } => {
            let aftermath = format!("{aftermath}; {stays}");
            failure.with_aftermath(&aftermath)
        }
        failure => failure.with_aftermath(&stays),
    })?;
    let Some(new) = app.report.kept() else {
        app.say(&stays);
        return Ok(status);
    };
    for layer in &above {
        let ended = exec::exec(app, &layer.in_transaction(new)?);
        if matches!(ended, Ok(0)) || layer.may_fail && ended.is_ok() {
            continue;
        }
        let status = match ended {
            Ok(status) => status,
            Err(failure) => {
                if let Some(message) = failure.message() {
                    tell(format_args!("txos: {message}"));
                }
                failure.status()
            }
        };
        trash::discard(app, &home, home.load(new)?);
        app.say(format_args!("layer {} failed: {new} is discarded again; {stays}", layer.number));
        return Err(Failure::Status(status));
    }
    home.discard(old)?;
    trash::clear(app, &home);
    // The first command's count was told when it was kept.
    let mut meta = home.meta(new)?;
    changes::count(&home, &mut meta);
    let all = meta.changes.filter(|_| !above.is_empty());
    let all = all.map_or_else(String::new, |n| format!(", and changes {}", changes::paths(n)));
    app.say(format_args!("{new} takes the place of {id}, which is gone{all}"));
    Ok(status)
}

/// A layer above the first, to be made again.
struct Above {
    number: usize,
    /// What comes before the transaction's id, and after it.
    words: (Vec<OsString>, Vec<OsString>),
    /// It failed the first time, and what it changed was kept.
    may_fail: bool,
}

impl Above {
    fn in_transaction(&self, id: TxId) -> Result<ExecArgs, Failure> {
        let (before, after) = self.words.clone();
        let words = before.into_iter().chain([id.as_str().into()]).chain(after);
        match help::parse(words).map(|cli| cli.command) {
            Ok(Command::Exec(exec)) => Ok(exec),
            _ => Err(Failure::new(format!("the command of layer {} can't be read", self.number))),
        }
    }
}

fn failed(ran: Option<&JoinedCommand>) -> bool {
    ran.and_then(|ran| ran.exit_status).is_some_and(|status| status != 0)
}

/// The words of a command, as they were given.
fn command_words(command: &[String]) -> Result<Vec<OsString>, Failure> {
    let word = |word: &String| match unquoted(word) {
        Some(bytes) => Ok(OsString::from_vec(bytes)),
        None => Err(Failure::new(format!("a word of its command can't be read: {word}"))),
    };
    command.iter().map(word).collect()
}

/// The commands in force after the first, each with the number of its layer. What was undone is not run again.
fn above(meta: &Meta, args: &RebaseArgs) -> Result<Vec<Above>, Failure> {
    let layers = meta.stack.layers.iter().enumerate().take(meta.stack.at as usize);
    let commands = layers.flat_map(|(index, layer)| {
        let from = (index + 1, !layer.joined.is_empty());
        layer.commands().into_iter().map(move |command| (from, command))
    });
    commands.skip(1).map(|(from, command)| once_more(from, &command, args)).collect()
}

/// How one of them is run again.
fn once_more(
    (number, is_joined): (usize, bool),
    ran: &JoinedCommand,
    args: &RebaseArgs,
) -> Result<Above, Failure> {
    if let [txos, merge, _, from] = &ran.command[..]
        && (txos.as_str(), merge.as_str()) == ("txos", "merge")
    {
        let out = match is_joined {
            true => "commit the rest, or abort it",
            false => "`txos undo` takes it out",
        };
        return Err(Failure::new(format!(
            "layer {number} was merged from {from}, and can't be run again; {out}"
        )));
    }
    if ran.arguments_hidden {
        return Err(Failure::new(format!(
            "the arguments of the command of layer {number} were not recorded (--no-record-args), so it \
             can't be run again"
        )));
    }
    let may_fail = failed(Some(ran));
    let mut before: Vec<OsString> = vec!["txos".into(), "exec".into()];
    for pattern in &args.exclude {
        before.push(format!("--exclude={pattern}").into());
    }
    before.extend(args.strict.then(|| "--strict".into()));
    before.extend(may_fail.then(|| "--commit-on=always".into()));
    before.push(format!("--wait={}", args.wait.seconds).into());
    before.extend(["--dir".into(), ran.directory.clone().into_os_string()]);
    let mut after: Vec<OsString> = vec!["--".into()];
    after.extend(command_words(&ran.command)?);
    Ok(Above { number, words: (before, after), may_fail })
}

/// How the first command is run again.
fn again(meta: &Meta, args: &RebaseArgs) -> Result<RunArgs, Failure> {
    if meta.arguments_hidden {
        return Err(Failure::new(
            "the arguments of its command were not recorded (--no-record-args), so it can't be run again",
        ));
    }
    let mut words: Vec<OsString> = ["txos", "run", "--keep"].map(OsString::from).into();
    // With all there is, nothing is limited.
    if meta.recorded {
        words.push("--view=library".into());
        for tree in scope::split(meta.scope.as_os_str().as_bytes()) {
            words.extend(["--scope".into(), OsString::from_vec(tree)]);
        }
    } else if !meta.layers.iter().any(|layer| layer.target == Path::new("/")) {
        // Nobody asked for one that others have removed: the search for the user's directories had found it.
        let found = |target: &Path| {
            let outer = |l: &LayerMeta| l.target != target && target.starts_with(&l.target);
            !target.exists() && meta.layers.iter().any(outer)
        };
        for layer in meta.layers.iter().filter(|layer| !found(&layer.target)) {
            words.extend(["--scope".into(), layer.target.clone().into_os_string()]);
        }
    }
    for (option, value) in [("--name", &meta.name), ("--message", &meta.message)] {
        words.extend(value.iter().map(|value| OsString::from(format!("{option}={value}"))));
    }
    for pattern in &args.exclude {
        words.push(format!("--exclude={pattern}").into());
    }
    words.extend(args.strict.then(|| "--strict".into()));
    words.extend((!meta.durable).then(|| "--no-durable".into()));
    words.push(format!("--wait={}", args.wait.seconds).into());
    let first = meta.stack.layers.first().map(StackLayer::commands).unwrap_or_default();
    words.extend(failed(first.first()).then(|| "--commit-on=always".into()));
    words.push("--".into());
    words.extend(command_words(&meta.command)?);
    match help::parse(words).map(|cli| cli.command) {
        Ok(Command::Run(run)) => Ok(run),
        _ => Err(Failure::new("its command can't be read")),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::tx_status::sample;

    #[test]
    fn the_command_is_given_again_to_the_byte() {
        let odd = OsStr::from_bytes(b"a\xff \"b\n");
        let words = [OsStr::new("sh"), OsStr::new("--"), OsStr::new("-c"), odd, OsStr::new("")];
        let meta = Meta {
            command: words.iter().map(|word| quoted(Path::new(word))).collect(),
            name: Some("--odd name".into()),
            ..sample()
        };
        let args = RebaseArgs::default();
        let run = again(&meta, &args).unwrap();
        assert_eq!(run.command, words);
        assert_eq!(run.name.as_deref(), Some("--odd name"));
        assert!(run.keep && run.view.scope.is_empty());
        let mut several = Meta { stack: meta.stack_or_first(), ..meta.clone() };
        let upper = StackLayer { arguments_hidden: true, ..several.stack.layers[0].clone() };
        several.stack.layers.push(upper);
        assert!(above(&several, &args).unwrap().is_empty(), "it was undone");
        several.stack.at = 2;
        assert!(above(&several, &args).is_err());
        several.stack.layers[1].arguments_hidden = false;
        let exec = above(&several, &args).unwrap()[0].in_transaction(TxId::from_bits(7)).unwrap();
        assert_eq!(exec.command, words);
        assert!(again(&Meta { arguments_hidden: true, ..meta }, &args).is_err());
    }
}
