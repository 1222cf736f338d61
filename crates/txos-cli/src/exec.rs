//! `txos exec`: one more command in a pending transaction.

use txos_engine::TxId;
use txos_engine::changeset::{ChangeSet, running_layer_entries};
use txos_engine::show::quoted;
use txos_engine::store::{Home, Transaction};
use txos_engine::version::Stamp;
use txos_run::{CommandStatus, RunOptions};

use crate::app::App;
use crate::args::{CommitOn, ExecArgs};
use crate::exit::{Failure, of_command};
use crate::log::command_line;
use crate::pick::{Wanted, pick};
use crate::report::Outcome;
use crate::run::{refusal, tell_failure};
use crate::signals::Deferred;
use crate::{keep, space, trash};

/// Runs it. The transaction stays pending: with what the command changed, or, if that failed or anything
/// died on the way, as it was before.
pub fn exec(app: &App, args: &ExecArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Pending)?;
    app.report.note(|report| report.of(id));
    let mut tx = keep::load_in_turn(app, &home, id, args.wait)?;
    let reads = tx.load_reads()?;
    let (directory, hide) = args.place.paths()?;
    let options = RunOptions {
        command: args.command.clone(),
        hide_arguments: crate::run::hides_arguments(args.no_record_args),
        exclude: args.exclude.clone(),
        strict: args.strict,
        recorder: crate::run::preloads(args.no_preload),
        leftover: args.leftover.into(),
        durable: tx.meta.durable,
        patience: args.wait.patience(),
        directory,
        hide,
        limits: (&args.limits).into(),
        answerer: Some(app.answerer()),
        ..RunOptions::default()
    };
    let words: Vec<String> = options.recorded().iter().map(|w| quoted(w.as_ref())).collect();
    let unchanged = format!("{id} stays pending, as it was before this command");
    let engine = app.join(&home, &command_line(&words))?;
    let handle = app
        .begin(engine, id, None, args.wait)
        .map_err(|failure| failure.with_aftermath(&unchanged))?;
    let command = txos_engine::store::Command {
        words: words.clone(),
        directory: match &options.directory {
            Some(directory) => directory.clone(),
            None => std::env::current_dir().unwrap_or_default(),
        },
        arguments_hidden: options.recorded().len() < options.command.len(),
        begun: Some(Stamp::now()),
        changes: None,
    };
    if let Err(error) = tx.save_before(command) {
        // What was copied until then makes room again, for the next attempt.
        if tx.discard_unnamed().is_ok() {
            trash::clear(app, &home);
        }
        return Err(Failure::from(error).with_aftermath(&unchanged));
    }
    let mut ran = match txos_run::run(&home, &mut tx, reads, &options, handle) {
        Ok(ran) => ran,
        Err(error) => {
            let failure = Failure::from(error);
            if matches!(failure, Failure::Unfinished(_)) {
                return Err(failure);
            }
            keep::fall_back(app, &mut tx)?;
            trash::clear(app, &home);
            return Err(failure.with_aftermath(&unchanged));
        }
    };
    app.report.note(|report| report.ran(&ran.warnings, &ran.live));
    // Others may make a view of it.
    ran.await_end_of_view();
    // Pending, it is validated when it is committed, and in nobody's way until then.
    drop(ran.handle.take());
    // Signals to processes outside belong to a commit, and they are not kept that long.
    ran.drop_held();
    let signals = Deferred::begin();
    let status = of_command(&ran.status);
    let unchanged = match ran.live.is_empty() {
        true => unchanged,
        false => format!("{unchanged}; live, and not undone: {}", ran.live),
    };
    let was_full = status != 0 && space::is_full(&tx.meta);
    if let Some(why) = refusal(&ran.status, args.commit_on, &options.command) {
        keep::fall_back(app, &mut tx)?;
        trash::clear(app, &home);
        if let CommandStatus::Lost { conflict } = &ran.status {
            let conflicts = vec![conflict.clone()];
            return Err(Failure::conflict(conflicts, unchanged));
        }
        tell_failure(app, &ran.status, &format!("{why}; {unchanged}"));
        if was_full {
            space::hint(&home);
        }
        return Ok(status);
    }
    tx.meta.exit_status = Some(i32::from(status));
    count(&mut tx);
    let kept = ChangeSet::read(&tx, &ran.reads, &[]).map_err(Failure::from).and_then(|changes| {
        let counts = changes.counts();
        keep::keep(app, &mut tx, &ran.reads, counts.total())?;
        app.report.note(|report| report.ended(Outcome::Kept, Some(counts)));
        Ok(())
    });
    if let Err(failure) = kept {
        // As long as its record names it, what it was before is there.
        drop(tx);
        let mut tx = home.load(id)?;
        if !Home::falls_back(&tx.meta) {
            let kept = format!("{id} is pending with what the command changed");
            return Err(failure.with_aftermath(&kept));
        }
        keep::fall_back(app, &mut tx)?;
        return Err(failure.with_aftermath(&unchanged));
    }
    drop(signals);
    // What can't be removed now is removed by `gc`.
    if tx.discard_unnamed().is_ok() {
        space::note(app, &home, id);
        trash::clear(app, &home);
    }
    Ok(status)
}

/// A shell inside a pending transaction, to look around. The transaction is as before when it has ended.
pub fn look_around(app: &App, home: &Home, id: TxId) -> Result<(), Failure> {
    let mut tx = keep::load(app, home, id)?;
    let reads = tx.load_reads()?;
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    let options = RunOptions {
        command: vec![shell.unwrap_or_else(|| "/bin/sh".into())],
        recorder: crate::run::preloads(false),
        leftover: txos_run::Leftover::Kill,
        durable: tx.meta.durable,
        answerer: Some(app.answerer()),
        ..RunOptions::default()
    };
    app.say(format_args!(
        "a shell inside {id}; what it changes of versioned files is not kept, and `exit` leads back"
    ));
    let command = txos_engine::store::Command {
        words: options.command.iter().map(|word| quoted(word.as_ref())).collect(),
        directory: std::env::current_dir().unwrap_or_default(),
        arguments_hidden: false,
        begun: Some(Stamp::now()),
        changes: None,
    };
    tx.save_before(command)?;
    let ran = txos_run::run(home, &mut tx, reads, &options, None);
    let live = match ran {
        Ok(mut ran) => {
            // Another view is made of it later.
            ran.await_end_of_view();
            ran.drop_held();
            if let Some(why) = refusal(&ran.status, CommitOn::Always, &options.command) {
                app.say(why);
            }
            ran.live.clone()
        }
        Err(error) => {
            let failure = Failure::from(error);
            if matches!(failure, Failure::Unfinished(_)) {
                return Err(failure);
            }
            app.warn(failure.message().unwrap_or_default());
            txos_run::Live::default()
        }
    };
    keep::fall_back(app, &mut tx)?;
    trash::clear(app, home);
    match live.is_empty() {
        true => app.say(format_args!("{id} is as it was before the shell")),
        false => app
            .say(format_args!("{id} is as it was before the shell; live, and not undone: {live}")),
    }
    Ok(())
}

/// Counts the paths that the command changed, for its layer. That they can't be counted is no reason to
/// lose them.
fn count(tx: &mut Transaction) {
    let counted = running_layer_entries(tx);
    let command = tx.meta.before.as_mut().and_then(|before| before.command.as_mut());
    if let (Some(command), Ok(entries)) = (command, counted) {
        command.changes = u64::try_from(entries.len()).ok();
    }
}
