//! `txos exec`: one more command in a pending transaction.

use txos_engine::changeset::ChangeSet;
use txos_engine::show::quoted;
use txos_engine::store::State;
use txos_run::{CommandStatus, RunOptions};

use crate::app::{App, tell};
use crate::args::{CommitOn, ExecArgs};
use crate::exit::{Failure, of_command};
use crate::log::command_line;
use crate::run::refusal;
use crate::{keep, trash};

/// Runs it. The transaction stays pending, whatever the command's status.
///
/// While the command runs the transaction is active: were it pending and txos killed, private
/// copies would be left that depend on reads which nobody recorded.
pub fn exec(app: &App, args: &ExecArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = home.resolve(&args.id)?;
    let mut tx = keep::load(&home, id)?;
    let reads = tx.load_reads()?;
    let options = RunOptions {
        command: args.command.clone(),
        name: None,
        message: None,
        scope: Vec::new(),
        exclude: args.exclude.clone(),
        hold_output: false,
        strict: args.strict,
        recorder: crate::run::preloads(args.no_preload),
        leftover: args.leftover.into(),
        durable: tx.meta.durable,
        isolation: Default::default(),
        patience: args.wait.patience(),
    };
    let words: Vec<String> = options.command.iter().map(|w| quoted(w.as_ref())).collect();
    let realm = app.participate(&home, &command_line(&words))?;
    let place = app.place(realm, id, None)?;
    tx.meta.state = State::Active;
    tx.save(false)?;
    let mut ran = match txos_run::run(&home, &mut tx, reads, &options, place) {
        Ok(ran) => ran,
        Err(error @ (txos_run::Error::View { .. } | txos_run::Error::Unsupported { .. })) => {
            // Nothing ran: it is as it was.
            tx.meta.state = State::Pending;
            tx.save(tx.meta.durable)?;
            return Err(Failure::from(error).with_aftermath(&format!("{id} stays pending")));
        }
        Err(error) => {
            let failure = Failure::from(error);
            if matches!(failure, Failure::Unfinished(_)) {
                return Err(failure);
            }
            trash::discard(app, &home, tx);
            let aftermath = format!("{id} is discarded, nothing changed");
            return Err(failure.with_aftermath(&aftermath));
        }
    };
    // Pending, it is validated when it is committed, and in nobody's way until then.
    drop(ran.place.take());
    // Signals to processes outside belong to a commit, and they are not kept that long.
    ran.drop_held();
    let status = of_command(&ran.status);
    // What the command itself ended with it tells itself.
    if let Some(why) = refusal(&ran.status, CommitOn::Always, &options) {
        if let CommandStatus::Lost { conflict } = &ran.status {
            let conflicts = vec![conflict.clone()];
            trash::discard(app, &home, tx);
            let aftermath = format!("{id} is discarded, nothing changed");
            return Err(Failure::Conflict { conflicts, aftermath });
        }
        if matches!(ran.status, CommandStatus::Stopped { .. }) {
            trash::discard(app, &home, tx);
            return Err(Failure::new(format!("{why}; {id} is discarded, nothing changed")));
        }
        tell(format_args!("txos: {why}; {id} stays pending"));
    }
    tx.meta.exit_status = Some(i32::from(status));
    let changes = ChangeSet::read(&tx, &ran.reads, &[])
        .map_or(tx.meta.changes, |changes| changes.counts().total());
    keep::keep(app, &mut tx, &ran.reads, changes)?;
    Ok(status)
}
