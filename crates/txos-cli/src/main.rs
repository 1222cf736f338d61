//! `txos`: system transactions on the command line.
//!
//! A thin layer: [`args`] is the command line, each command has a file of its own name, and what
//! they do is done by `txos-run` (a command in a private view) and `txos-engine` (change sets,
//! commit, recovery).
//!
//! | module | what lives there |
//! |---|---|
//! | [`args`], [`help`], [`man`] | options, help, manual pages |
//! | [`run`], [`exec`], [`keep`], [`review`], [`choose`], [`report`], [`trash`] | a command in a transaction, and what becomes of it |
//! | [`in_process`], [`config`], [`runtime`] | programs with the library in them |
//! | [`commit`], [`undo`], [`rebase`], [`merge`], [`restore`] | commit, abort, revert; undo and redo of a pending transaction's layers; its command again; two of them as one; earlier versions of paths |
//! | [`mcp`], [`agent`] | agents |
//! | [`realm`] | being a participant while others run |
//! | [`list`], [`log`], [`show`], [`later`] | looking at transactions |
//! | [`realm_view`], [`status`], [`top`], [`policy`] | looking at who is in whose way, and deciding who gives way |
//! | [`order`] | a run after others |
//! | [`changes`], [`overview`], [`patch`], [`git_patch`], [`json`], [`html`], [`pager`] | how changes are written |
//! | [`recover`], [`gc`], [`space`], [`doctor`] | care |
//! | [`complete`] | what a shell completes |
//! | [`launcher`] | the checkout's `txos` script, which builds what it starts |
//! | [`app`], [`exit`], [`style`], [`progress`], [`signals`], [`paths`], [`pick`], [`duration`], [`size`], [`tx_status`], [`streams`] | what the commands share |
//!
//! Standard output carries what was asked for (and belongs to the command under `run` and `exec`);
//! everything txos has to say goes to standard error, each message starting with `txos: `.

mod agent;
mod app;
mod args;
mod changes;
mod choose;
mod commit;
mod complete;
mod config;
mod doctor;
mod duration;
mod exec;
mod exit;
mod gc;
mod git_patch;
mod help;
mod html;
mod in_process;
mod inside;
mod json;
mod keep;
mod later;
mod launcher;
mod list;
mod log;
mod man;
mod mcp;
mod merge;
mod order;
mod overview;
mod pager;
mod patch;
mod paths;
mod pick;
mod policy;
mod progress;
mod realm;
mod realm_view;
mod rebase;
mod recover;
mod report;
mod restore;
mod review;
mod run;
mod runtime;
mod show;
mod signals;
mod size;
mod space;
mod status;
mod streams;
mod style;
mod top;
mod trash;
mod tx_status;
mod undo;

use std::io::Write;
use std::process::ExitCode;

use txos_engine::TxId;
use txos_engine::show::visible;
use txos_run::question::asked_by;

use crate::app::{App, tell};
use crate::args::{Cli, Command};
use crate::exit::{FAILED, Failure};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(die_of_panic));
    if let Some(status) = in_process::run_inside() {
        return ExitCode::from(status);
    }
    let words = launcher::arguments(std::env::args_os());
    let is_hook = words.iter().skip(1).take(2).eq(["agent", "hook"]);
    let cli = match help::parse(words) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and are a success; the rest is our failure,
            // not the command's.
            // Words of the command line may come from a directory of somebody else's.
            let plain = error.render().to_string();
            let written = match visible(plain.as_bytes()) {
                shown if shown == plain => error.print(),
                shown => write!(std::io::stderr(), "{shown}"),
            };
            return ExitCode::from(match error.use_stderr() {
                true if is_hook => agent::BLOCKED,
                true => FAILED,
                false => written
                    .and_then(|()| std::io::stdout().flush())
                    .map_or_else(|error| told(&Failure::from(error)), |()| 0),
            });
        }
    };
    txos_engine::sys_owner::allow();
    if let Command::Complete { words } = &cli.command {
        return ExitCode::from(u8::from(!complete::complete(&complete::as_text(words))));
    }
    let app = match App::new(&cli.global) {
        Ok(app) => app,
        Err(failure) => return ExitCode::from(told(&failure)),
    };
    let ended = answer(&cli.command)
        .and_then(|()| open_report(&app, &cli.command))
        .and_then(|()| dispatch(&app, &cli))
        // What is still in the buffer would be lost without a word.
        .and_then(|status| std::io::stdout().flush().map(|()| status).map_err(Failure::from));
    let status = ended.as_ref().map_or_else(told, |status| *status);
    if ended.as_ref().err().is_some_and(space::tells_of_space)
        && let Ok(Some(home)) = app.open_existing()
    {
        space::hint(&home);
    }
    app.report.write(&app, &ended, status);
    ExitCode::from(status)
}

/// Says why it failed; gives the exit status.
fn told(failure: &Failure) -> u8 {
    if let Some(message) = failure.message() {
        tell(format_args!("txos: {message}"));
    }
    failure.status()
}

/// Makes sure that what was asked from inside a transaction only looks: whoever asks may have written the words
/// himself, and this process is outside.
fn answer(command: &Command) -> Result<(), Failure> {
    if let Some(id) = asked_by() {
        // What it runs is inside, too.
        if !matches!(command, Command::Run(_)) {
            may_be_asked(command).map_err(|why| refused_inside(id, why))?;
        }
        signals::unblock();
    }
    Ok(())
}

/// Whether this is in a transaction, or does what a process in one asks for.
fn is_inside() -> bool {
    txos_run::inside().is_some() || asked_by().is_some() || in_process::is_inside()
}

/// Opens where the report of a command goes, if it has one.
fn open_report(app: &App, command: &Command) -> Result<(), Failure> {
    match command {
        // What a process in a transaction asks for it reports itself.
        Command::Run(_) if asked_by().is_some() => Ok(()),
        Command::Run(args) => app.report.open("run", args.report.as_ref()),
        Command::Exec(args) => app.report.open("exec", args.report.as_ref()),
        Command::Undo(args) => app.report.open("undo", args.report.as_ref()),
        Command::Redo(args) => app.report.open("redo", args.report.as_ref()),
        Command::Commit(args) => app.report.open("commit", args.report.as_ref()),
        Command::Revert(args) => app.report.open("revert", args.report.as_ref()),
        Command::Rebase(args) => app.report.open("rebase", args.report.as_ref()),
        Command::Restore(args) => app.report.open("restore", args.report.as_ref()),
        _ => Ok(()),
    }
}

fn dispatch(app: &App, cli: &Cli) -> Result<u8, Failure> {
    if in_process::is_inside() && txos_run::inside().is_none() {
        match &cli.command {
            Command::Run(args) => return inside::join_librarys(app, args),
            Command::Config(_) | Command::Completions { .. } | Command::Man { .. } => {}
            _ => {
                return Err(Failure::new(
                    "this is inside a transaction in the library's view, where the store is out of reach; the same command \
                     works outside of it",
                ));
            }
        }
    }
    match &cli.command {
        Command::Run(args) if args.in_process && !is_inside() => {
            return in_process::run(app, args);
        }
        Command::Run(args) => return run::run(app, args),
        Command::Config(args) => return config::config(args),
        Command::Completions { shell } => {
            std::io::stdout().write_all(complete::script(*shell).as_bytes())?;
            return Ok(0);
        }
        Command::Man { dir } => return man::write(dir),
        // Inside a transaction its shell is part of that.
        Command::Agent { action } => return agent::agent(app, action),
        Command::Gc(args) if args.trash => return trash::empty_detached(app),
        _ => {}
    }
    if let Some(id) = txos_run::inside() {
        return ask(id, &cli.command);
    }
    // What these hold meanwhile, others wait for.
    txos_engine::patience::begin();
    match &cli.command {
        Command::Exec(args) => exec::exec(app, args),
        Command::Undo(args) => undo::undo(app, args, undo::Way::Undo),
        Command::Redo(args) => undo::undo(app, args, undo::Way::Redo),
        Command::List(args) => list::list(app, args),
        Command::Show(args) => show::show(app, args),
        Command::Diff(args) => show::diff(app, args),
        Command::Log(args) => log::log(app, args),
        Command::Status(args) => status::status(app, args),
        Command::Top(args) => top::top(app, args),
        Command::Commit(args) => commit::commit(app, args),
        Command::Review(args) => commit::review(app, args),
        Command::Abort(args) => commit::abort(app, args),
        Command::Revert(args) => commit::revert(app, args),
        Command::Rebase(args) => rebase::rebase(app, args),
        Command::Merge(args) => merge::merge(app, args),
        Command::Restore(args) => restore::restore(app, args),
        Command::Recover(args) => recover::recover(app, args),
        Command::Mcp(args) => mcp::serve(app, args),
        Command::Gc(args) => gc::gc(app, args),
        Command::Policy(args) => policy::policy(app, args),
        Command::Doctor(args) => doctor::doctor(app, args),
        Command::Run(_)
        | Command::Agent { .. }
        | Command::Config(_)
        | Command::Completions { .. }
        | Command::Complete { .. }
        | Command::Man { .. } => Ok(0),
    }
}

/// What can be asked from inside a transaction: to look at its store.
fn may_be_asked(command: &Command) -> Result<Vec<std::ffi::OsString>, &'static str> {
    let looks = matches!(
        command,
        Command::Status(_)
            | Command::Diff(_)
            | Command::Show(_)
            | Command::List(_)
            | Command::Log(_)
    );
    if !looks {
        return Err(
            "the store is out of reach; `txos run`, `status`, `diff`, `show`, `list` and `log` work here, \
                    everything else in another terminal",
        );
    }
    let words: Vec<_> = launcher::arguments(std::env::args_os()).into_iter().skip(1).collect();
    if words.iter().any(|word| word.as_encoded_bytes().starts_with(b"--store")) {
        return Err("looks go to its store: --store can't be had here");
    }
    Ok(words)
}

fn refused_inside(id: TxId, why: &str) -> Failure {
    Failure::new(format!("this is inside transaction {id}, where {why}"))
}

/// Inside a transaction: the store is out of sight, and only looked at by the process that runs it.
fn ask(id: TxId, command: &Command) -> Result<u8, Failure> {
    let words = may_be_asked(command).map_err(|why| refused_inside(id, why))?;
    txos_run::question::ask(&words).map_err(|error| {
        Failure::new(format!(
            "this is inside transaction {id}, where the store is out of reach, and the process that runs the transaction \
             can't be asked: {error}; the same command works in another terminal"
        ))
    })
}

/// A defect of ours: says so in a line that can be reported, and ends. Whatever was being
/// published is in the journal, so the next call puts it right, as after a crash.
fn die_of_panic(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line()));
    let payload = info.payload();
    let what = payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tell(format_args!(
        "txos: internal error{}: {what}. This is a defect in txos, please report it with the command \
         that led to it; `txos recover` and `txos doctor` check that nothing is left half done",
        place.unwrap_or_default()
    ));
    std::process::exit(i32::from(FAILED));
}
