//! `txos rebase`: the command of a pending transaction once more, on what is there now.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use txos_engine::show::{quoted, unquoted};
use txos_engine::store::Meta;

use crate::app::App;
use crate::args::{Command, RebaseArgs, RunArgs};
use crate::exit::Failure;
use crate::pick::{Wanted, pick};
use crate::{help, keep, run, trash};

/// Runs it. The old transaction stays as it is until the new one is pending.
pub fn rebase(app: &App, args: &RebaseArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Pending)?;
    app.report.note(|report| report.of(id));
    // Held meanwhile: nobody commits it or runs anything in it.
    let old = keep::load(app, &home, id)?;
    let stays = format!("{id} stays pending, as it is");
    let again = again(&old.meta, args).map_err(|failure| failure.with_aftermath(&stays))?;
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
    home.discard(old)?;
    trash::clear(app, &home);
    app.say(format_args!("{new} takes the place of {id}, which is gone"));
    Ok(status)
}

/// How the command is run again.
fn again(meta: &Meta, args: &RebaseArgs) -> Result<RunArgs, Failure> {
    if meta.arguments_hidden {
        return Err(Failure::new(
            "the arguments of its command were not recorded (--no-record-args), so it can't be run again",
        ));
    }
    if meta.stack.at > 1 || meta.stack.layers.len() > 1 {
        return Err(Failure::new(
            "`txos exec` has run more commands in it, and only a transaction of one command is run again; \
             `txos show` lists them",
        ));
    }
    let mut words: Vec<OsString> = ["txos", "run", "--keep"].map(OsString::from).into();
    // With all there is, nothing is limited.
    if !meta.layers.iter().any(|layer| layer.target == Path::new("/")) {
        for layer in &meta.layers {
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
    words.push("--".into());
    for word in &meta.command {
        let Some(bytes) = unquoted(word) else {
            return Err(Failure::new(format!("a word of its command can't be read: {word}")));
        };
        words.push(OsString::from_vec(bytes));
    }
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
        let mut several = meta.clone();
        several.stack.at = 2;
        assert!(again(&several, &args).is_err());
        assert!(again(&Meta { arguments_hidden: true, ..meta }, &args).is_err());
    }
}
