//! `txos run` inside a transaction: a transaction of its own, inside that one.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use txos_engine::TxId;
use txos_engine::changeset::Replay;
use txos_engine::readset::ReadSet;
use txos_engine::show::quoted;
use txos_engine::store::{Begin, Inside, InsideRecord, Transaction};
use txos_engine::version::Stamp;
use txos_run::inside::{Asked, Given, Terms};
use txos_run::{CommandStatus, Ran, RunOptions};

use crate::app::{App, tell};
use crate::args::{CommitOn, RunArgs};
use crate::exit::{self, Failure, of_command};
use crate::report::Outcome;
use crate::run::{refusal, tell_failure, was_run};
use crate::trash;

/// Has it run by the process that runs the outer transaction. Where that can't be, the command joins the outer one.
pub fn ask(app: &App, args: &RunArgs, outer: TxId) -> Result<u8, Failure> {
    let mut refused = args.only_outermost();
    if app.store_option().is_some() {
        refused.push("--store");
    }
    if !refused.is_empty() {
        return Err(cant_be_had(outer, &refused, "inside transaction"));
    }
    if args.command.is_empty() {
        return Err(Failure::new("there is no command to run"));
    }
    let words: Vec<_> =
        crate::launcher::arguments(std::env::args_os()).into_iter().skip(1).collect();
    let asked = txos_run::inside::ask(&words).map_err(|error| {
        Failure::from(error)
            .with_aftermath(&format!("{outer} has nothing of what the command changed"))
    })?;
    match asked {
        Asked::Ended { status, report } => {
            if let Some(text) = report {
                app.report.is_ready(text);
            }
            Ok(status)
        }
        Asked::Refused(why) => Err(join(app, args, outer, &why)),
    }
}

fn cant_be_had(outer: TxId, refused: &[&str], how: &str) -> Failure {
    Failure::new(format!(
        "this is {how} {outer}: {} can't be had here, only with the outermost `txos run`; nothing was run",
        refused.join(", ")
    ))
}

/// In a transaction in the library's view the command joins that.
pub fn join_librarys(app: &App, args: &RunArgs) -> Result<u8, Failure> {
    let refused = [args.only_outermost(), args.only_by_itself()].concat();
    if !refused.is_empty() {
        return Err(Failure::new(format!(
            "this is inside a transaction in the library's view: {} can't be had here, only with the outermost `txos run`; \
             nothing was run",
            refused.join(", ")
        )));
    }
    if let Some(program) = args.command.first() {
        app.warn(format_args!(
            "inside a transaction in the library's view, which `txos run` joins: what {} changes is not rolled back if it fails, \
             and is published or rolled back with all of that transaction",
            quoted(program.as_ref())
        ));
    }
    Err(become_command(args))
}

/// The command simply runs in the outer transaction.
fn join(app: &App, args: &RunArgs, outer: TxId, why: &str) -> Failure {
    let refused = args.only_by_itself();
    if !refused.is_empty() {
        let how = format!("inside transaction {outer}, and {why}, so that `txos run` joins");
        return cant_be_had(outer, &refused, &how);
    }
    let Some(program) = args.command.first() else {
        return Failure::new("there is no command to run");
    };
    app.warn(format_args!(
        "inside transaction {outer}, and {why}, so that `txos run` joins it: what {} changes is not rolled back if it \
         fails, and is published or rolled back with all of {outer}",
        quoted(program.as_ref())
    ));
    become_command(args)
}

/// Becomes the command. Returns only if that fails.
fn become_command(args: &RunArgs) -> Failure {
    let Some((program, rest)) = args.command.split_first() else {
        return Failure::new("there is no command to run");
    };
    let mut command = Command::new(program);
    if let Some(dir) = &args.place.dir {
        if let Err(error) = std::env::set_current_dir(dir) {
            return Failure::new(format!("entering {}: {error}; nothing was run", quoted(dir)));
        }
        command.env("PWD", std::env::current_dir().unwrap_or_default());
    }
    let status = exit::of_start_error(command.args(rest).exec());
    if let Some(why) = refusal(&status, CommitOn::Success, &args.command) {
        tell(format_args!("txos: {why}"));
    }
    Failure::Status(of_command(&status))
}

/// Runs it, outside of the view of the process that asks.
pub fn serve(app: &App, args: &RunArgs, outer: TxId) -> Result<u8, Failure> {
    let given = Given::receive().map_err(|error| {
        Failure::new(format!("hearing from the process that asks: {error}; nothing was run"))
    })?;
    let given = Arc::new(given);
    let refused = args.only_outermost();
    if !refused.is_empty() || args.command.is_empty() {
        return Err(cant_be_had(outer, &refused, "inside transaction"));
    }
    let terms = Terms::given();
    let home = app.open()?;
    let (directory, hide) = args.place.paths()?;
    let directory = match directory {
        Some(directory) => Some(directory),
        None => std::env::var_os(txos_run::question::ASKED_IN).map(Into::into),
    };
    let mut options =
        RunOptions { answerer: Some(app.answerer()), ..args.options((directory, hide)) };
    options.durable = false;
    options.exclude = terms.exclude;
    options.strict |= terms.strict;
    options.given = Some(Arc::clone(&given));
    let nothing = format!("{outer} has nothing of it");
    let words = options.recorded().iter().map(|w| quoted(w.as_ref())).collect();
    let begun = home.begin_inside(
        outer,
        Begin {
            layers: Vec::new(),
            name: args.name.clone(),
            message: args.message.clone(),
            command: words,
            arguments_hidden: options.recorded().len() < options.command.len(),
            directory: options.directory.clone().unwrap_or_default(),
            scope: std::path::PathBuf::new(),
            durable: false,
        },
    );
    let (mut tx, inside) = begun.map_err(|e| Failure::from(e).with_aftermath(&nothing))?;
    let id = tx.id();
    app.report.note(|report| report.inside(id, outer));
    let reads = ReadSet::new(terms.coverage);
    let ran = txos_run::run(&home, &mut tx, reads, &options, None);
    let (ended, exit_status, outcome) = match ran {
        Ok(mut ran) => {
            app.report.note(|report| report.ran(&ran.warnings, &ran.live));
            let exit_status = i32::from(of_command(&ran.status));
            let (ended, outcome) = conclude(app, args, &tx, &inside, &given, &mut ran);
            (ended, Some(exit_status), outcome)
        }
        Err(error) => {
            let failure = Failure::from(error).with_aftermath(&nothing);
            (Err(failure), None, Came::default())
        }
    };
    let (begun, end) = (tx.meta.begun, Stamp::now());
    let record = InsideRecord {
        id,
        name: tx.meta.name.clone(),
        message: tx.meta.message.clone(),
        command: tx.meta.command.clone(),
        arguments_hidden: tx.meta.arguments_hidden,
        begun,
        ended: end,
        exit_status,
        succeeded: outcome.succeeded,
        changes: outcome.changes,
    };
    // It is for people; the command has gone on by now.
    if let Err(error) = inside.leave_record(&record) {
        app.warn(Failure::from(error).message().unwrap_or_default());
    }
    trash::discard(app, &home, tx);
    if args.report.is_some() {
        app.report.note(|report| report.lasted(begun, end));
        let status = ended.as_ref().map_or_else(Failure::status, |status| *status);
        let sent = app.report.text(app, &ended, status).and_then(|text| given.report(&text));
        if let Err(error) = sent {
            app.warn(format_args!("the report could not be written: {error}"));
        }
    }
    ended
}

/// What came of a command.
#[derive(Clone, Copy, Default)]
struct Came {
    succeeded: bool,
    changes: u64,
}

/// The command has ended: brings what it changed into the outer transaction, or not.
fn conclude(
    app: &App,
    args: &RunArgs,
    tx: &Transaction,
    inside: &Inside,
    given: &Given,
    ran: &mut Ran,
) -> (Result<u8, Failure>, Came) {
    let mut came = Came::default();
    let ended = bring_in(app, args, tx, inside, given, ran, &mut came);
    (ended, came)
}

#[expect(clippy::too_many_arguments, reason = "all of one command")]
fn bring_in(
    app: &App,
    args: &RunArgs,
    tx: &Transaction,
    inside: &Inside,
    given: &Given,
    ran: &mut Ran,
    came: &mut Came,
) -> Result<u8, Failure> {
    let (id, outer) = (tx.id(), inside.outer());
    ran.await_end_of_view();
    ran.drop_held();
    let nothing = match ran.live.is_empty() {
        true => format!("rolled back, {outer} has nothing of it"),
        false => format!(
            "rolled back, {outer} has nothing of it; live, and not rolled back: {}",
            ran.live
        ),
    };
    // The outer command goes on with how this one ended.
    inside.hand_over_reads(id, &ran.reads)?;
    let status = of_command(&ran.status);
    let shows_always = args.dry_run && was_run(&ran.status);
    if !shows_always && let Some(why) = refusal(&ran.status, args.commit_on, &args.command) {
        if let CommandStatus::Lost { conflict } = &ran.status {
            return Err(Failure::conflict(vec![conflict.clone()], nothing));
        }
        tell_failure(app, &ran.status, &format!("{why}; {nothing}"));
        return Ok(status);
    }
    let replay = Replay::of(inside, tx, &ran.reads)
        .map_err(|e| Failure::from(e).with_aftermath(&nothing))?;
    let counts = replay.counts();
    if args.dry_run {
        app.report.note(|report| report.ended(Outcome::DryRun, Some(counts)));
        app.say(format_args!("dry run: {counts}; {nothing}"));
        return Ok(status);
    }
    let conflicts = replay.conflicts(inside, tx, &ran.reads);
    let conflicts = conflicts.map_err(|e| Failure::from(e).with_aftermath(&nothing))?;
    if !conflicts.is_empty() {
        return Err(Failure::conflict(conflicts, nothing));
    }
    if !given.is_there() {
        return Ok(status);
    }
    if replay.steps().next().is_some() {
        inside.begin_handover(id)?;
        for (step, content) in replay.with_content() {
            if let Err(why) = given.hand_over(step, content) {
                return Err(Failure::new(format!(
                    "{why}; a part of what the command changed is in {outer} now, which will not be committed"
                )));
            }
        }
        inside.end_handover(id)?;
    }
    *came = Came { succeeded: true, changes: counts.total() };
    if counts.total() == 0 {
        app.report.note(|report| report.ended(Outcome::Unchanged, Some(counts)));
        app.say("nothing changed");
    } else {
        app.report.note(|report| report.ended(Outcome::InOuter, Some(counts)));
        app.say(format_args!("{counts}, in {outer} now"));
    }
    Ok(status)
}
