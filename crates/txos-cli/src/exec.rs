//! `txos exec`: one more command in a pending transaction.

use std::ffi::OsString;

use txos_engine::TxId;
use txos_engine::changeset::{ChangeSet, Counts, RunningLayer, running_layer};
use txos_engine::show::quoted;
use txos_engine::store::{Home, Transaction};
use txos_engine::txn;
use txos_engine::version::Stamp;
use txos_run::library::Library;
use txos_run::{CommandStatus, Ran, RunOptions};

use crate::app::App;
use crate::args::{CommitOn, ExecArgs};
use crate::exit::{Failure, of_command};
use crate::log::command_line;
use crate::pick::{Wanted, pick};
use crate::report::Outcome;
use crate::run::{refusal, tell_failure};
use crate::signals::Deferred;
use crate::{help, in_process, keep, space, trash};

/// Where the command runs.
struct Place<'a> {
    app: &'a App,
    home: &'a Home,
    args: &'a ExecArgs,
    /// The transaction that was named.
    named: TxId,
}

/// Runs it. The transaction stays pending: with what the command changed, or, if that failed or anything
/// died on the way, as it was before. With `--fork` all of that is true of a fork, which is gone if the command fails.
pub fn exec(app: &App, args: &ExecArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let named = pick(&home, &args.id, Wanted::Pending)?;
    let place = Place { app, home: &home, args, named };
    let (directory, hide) = args.place.paths()?;
    let mut tx = place.take()?;
    let id = tx.id();
    app.report.note(|report| report.of(id));
    let library = match place.library(&tx) {
        Ok(library) => library,
        Err(failure) => {
            if args.fork {
                trash::discard(app, &home, tx);
            }
            return Err(failure.with_aftermath(&place.unchanged()));
        }
    };
    let reads = tx.load_reads()?;
    let directory = match (&library, &args.place.dir) {
        // Where that leads is the transaction's to say.
        (Some(_), Some(dir)) => Some(crate::paths::absolute(dir)?),
        _ => directory,
    };
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
    let unchanged = place.unchanged();
    let begun = match library {
        // The process that has the transaction takes part.
        Some(_) => Ok(None),
        None => app
            .join(&home, &command_line(&words))
            .and_then(|engine| app.begin(engine, id, None, args.wait)),
    };
    let handle = match begun {
        Ok(handle) => handle,
        Err(failure) => {
            if args.fork {
                trash::discard(app, &home, tx);
            }
            return Err(failure.with_aftermath(&unchanged));
        }
    };
    let command = txos_engine::store::Command {
        words: words.clone(),
        directory: match &options.directory {
            Some(directory) => directory.clone(),
            None => std::env::current_dir().unwrap_or_default(),
        },
        arguments_hidden: options.recorded().len() < options.command.len(),
        begun: Some(Stamp::now()),
        changes: None,
        is_same: false,
    };
    if let Err(error) = tx.save_before(command) {
        // What was copied until then makes room again, for the next attempt.
        if args.fork {
            trash::discard(app, &home, tx);
        } else if tx.discard_unnamed().is_ok() {
            trash::clear(app, &home);
        }
        return Err(Failure::from(error).with_aftermath(&unchanged));
    }
    let ran = match &library {
        Some(library) => txos_run::library::run(&home, &mut tx, &options, library),
        None => txos_run::run(&home, &mut tx, reads, &options, handle),
    };
    let ran = match ran {
        Ok(ran) => ran,
        Err(error) => {
            let failure = Failure::from(error);
            if matches!(failure, Failure::Unfinished(_)) {
                return Err(failure);
            }
            place.abandon(tx)?;
            return Err(failure.with_aftermath(&unchanged));
        }
    };
    place.conclude(tx, ran, &options)
}

impl Place<'_> {
    /// Takes hold of the transaction, or makes a fork of it.
    fn take(&self) -> Result<Transaction, Failure> {
        let in_turn = || keep::load_in_turn(self.app, self.home, self.named, self.args.wait);
        if !self.args.fork {
            return in_turn();
        }
        let mut fork = match self.home.fork_running(self.named)? {
            Some(fork) => fork,
            None => in_turn()?.fork(self.home)?,
        };
        fork.meta.name.clone_from(&self.args.name);
        Ok(fork)
    }

    /// How the library gets into the command, if the transaction is in its view.
    fn library(&self, tx: &Transaction) -> Result<Option<Library>, Failure> {
        if !tx.meta.recorded {
            return Ok(None);
        }
        let (id, refused) = (self.named, self.args.only_with_overlay());
        if !refused.is_empty() {
            return Err(Failure::new(format!(
                "{id} was kept from the library's view, which can't hold {}",
                refused.join(", ")
            )));
        }
        in_process::watched_again(self.app, self.args, tx).map(Some)
    }

    /// What has become of everything if nothing came of the command.
    fn unchanged(&self) -> String {
        let id = self.named;
        match self.args.fork {
            true => format!("the fork is gone, and {id} is as it was"),
            false => format!("{id} stays pending, as it was before this command"),
        }
    }

    /// Takes the transaction to what it was before the command; a fork is gone.
    fn abandon(&self, mut tx: Transaction) -> Result<(), Failure> {
        if self.args.fork {
            trash::discard(self.app, self.home, tx);
            return Ok(());
        }
        keep::fall_back(self.app, &mut tx)?;
        trash::clear(self.app, self.home);
        Ok(())
    }

    /// The command has ended.
    fn conclude(
        &self,
        mut tx: Transaction,
        mut ran: Ran,
        options: &RunOptions,
    ) -> Result<u8, Failure> {
        let (app, home, args, id) = (self.app, self.home, self.args, tx.id());
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
            true => self.unchanged(),
            false => format!("{}; live, and not undone: {}", self.unchanged(), ran.live),
        };
        let was_full = status != 0 && space::is_full(&tx.meta);
        if let Some(why) = refusal(&ran.status, args.commit_on, &options.command) {
            self.abandon(tx)?;
            if let CommandStatus::Lost { conflict } = &ran.status {
                let conflicts = vec![conflict.clone()];
                return Err(Failure::conflict(conflicts, unchanged));
            }
            tell_failure(app, &ran.status, &format!("{why}; {unchanged}"));
            if was_full {
                space::hint(home);
            }
            return Ok(status);
        }
        tx.meta.exit_status = Some(i32::from(status));
        let layer = running_layer(&tx).ok();
        let kept = self.keep(&mut tx, &ran, layer);
        let counts = match kept {
            Ok(counts) => counts,
            Err(failure) => {
                // As long as its record names it, what it was before is there.
                drop(tx);
                let tx = home.load(id)?;
                if !Home::falls_back(&tx.meta) {
                    let kept = format!("{id} is pending with what the command changed");
                    return Err(failure.with_aftermath(&kept));
                }
                self.abandon(tx)?;
                return Err(failure.with_aftermath(&unchanged));
            }
        };
        drop(signals);
        // What can't be removed now is removed by `gc`.
        if tx.discard_unnamed().is_ok() {
            space::note_small(app, home, id, counts.map_or(0, |counts| counts.total()));
            trash::clear(app, home);
        }
        if let Some(counts) = counts {
            keep::tell(app, &tx, &counts);
            let of = self.named;
            app.say(format_args!(
                "it is a fork of {of}: `txos merge {of} {id}` adds what it changed to {of}"
            ));
        }
        Ok(status)
    }

    /// Makes what the command changed a layer of the transaction. What the transaction changes in all is counted for
    /// a fork only: that takes a look at everything that it has changed, and `list` and `show` do it when they are asked.
    fn keep(
        &self,
        tx: &mut Transaction,
        ran: &Ran,
        layer: Option<RunningLayer>,
    ) -> Result<Option<Counts>, Failure> {
        let counts = match self.args.fork {
            true => Some(ChangeSet::read(tx, &ran.reads, &[])?.counts()),
            false => None,
        };
        let app = self.app;
        let changed = layer.as_ref().map(|layer| Counts::of(&layer.entries));
        app.with_progress(|progress| txn::keep(tx, &ran.reads, counts.as_ref(), layer, progress))?;
        app.report.note(|report| {
            report.ended(Outcome::Kept, counts);
            report.of_layer(changed);
        });
        Ok(counts)
    }
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
    let library = match tx.meta.recorded {
        true => {
            let words = ["txos", "exec", id.as_str(), "--leftover=kill", "--", "sh"];
            match help::parse(words.map(OsString::from)).map(|cli| cli.command) {
                Ok(crate::args::Command::Exec(args)) => {
                    Some(in_process::watched_again(app, &args, &tx)?)
                }
                _ => return Err(Failure::new(format!("no shell can be had inside {id}"))),
            }
        }
        false => None,
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
        is_same: false,
    };
    tx.save_before(command)?;
    let ran = match &library {
        Some(library) => txos_run::library::run(home, &mut tx, &options, library),
        None => txos_run::run(home, &mut tx, reads, &options, None),
    };
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
