//! `txos run`: a command in a new transaction, from beginning to end.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use txos_engine::changeset::{ChangeSet, Entry};
use txos_engine::commit::{Isolation, Options, Phase, Summary};
use txos_engine::contention::backoff::before_restart;
use txos_engine::readset::validate::ValidationRules;
use txos_engine::realm::{RetryHistory, TxHandle};
use txos_engine::show::{quoted, signal_name};
use txos_engine::store::{Home, State, Transaction};
use txos_engine::txn::{Engine, Failed};
use txos_engine::{Conflict, TxId};
use txos_run::library::{End, Library};
use txos_run::participant::Handle;
use txos_run::{CommandStatus, Hold, Limit, Live, Ran};

use crate::app::{App, tell};
use crate::args::{CommitOn, Ending, IsolationArg, RunArgs, WaitArgs, WhichView};
use crate::changes::{Counts, paths};
use crate::commit::Review;
use crate::exit::{DECLINED, Failure, conflict_message, of_command, of_signal};
use crate::log::command_line;
use crate::order::{Awaited, Order};
use crate::realm::Waiting;
use crate::report::Outcome;
use crate::review::Decision;
use crate::signals::Deferred;
use crate::streams::Marks;
use crate::{in_process, inside, keep, review, space, trash};

/// What to say of a transaction that is gone.
const ROLLED_BACK: &str = "rolled back, nothing changed";

/// `off` is the same as `--no-preload`.
const RECORDER: &str = "TXOS_RECORDER";

/// `off` is the same as `--no-record-args`.
const RECORD_ARGS: &str = "TXOS_RECORD_ARGS";

/// How often a command of which nobody has noticed anything is run again by itself at least, and at most: in
/// between, for as long as others are waited for (`--wait`).
const SILENT_RETRIES: std::ops::Range<u32> = 3..100;

/// Why a command is not run again that was, or may have been, noticed.
const PRINTED: &str = "it may have printed something, or read its input";

/// How one attempt ended.
enum Attempt {
    /// With this exit status.
    Ended(u8),
    /// Somebody else was first; it is rolled back.
    Conflict {
        /// What got in the way.
        conflicts: Vec<Conflict>,
        /// What the next attempt goes by.
        again: Option<RetryHistory>,
        /// Whether it concerns nothing that the command changed.
        only_read: bool,
    },
    /// A run that it comes after failed; it is rolled back. What to say.
    Bereft(String),
}

/// What becomes of a conflict.
enum Next {
    /// It is run again, and that is said.
    Announced,
    /// It is run again without a word.
    Silent,
    /// It was asked for no more attempts.
    Enough,
    /// It was run again by itself as often as that is done.
    InVain,
    /// It is not run again by itself: this could be noticed.
    Noticeable(&'static str),
}

/// The attempts so far.
struct Attempts {
    retries: u32,
    began: Instant,
    /// What they did that could not be rolled back.
    live: Live,
}

impl Attempts {
    fn goes_on_silently(&self, patience: Duration) -> bool {
        self.retries < SILENT_RETRIES.start
            || self.retries < SILENT_RETRIES.end && self.began.elapsed() < patience
    }

    /// What is to follow a conflict of an attempt.
    fn next(&self, args: &RunArgs, unnoticed: bool) -> Next {
        match args.retry {
            Some(n) if self.retries < n => Next::Announced,
            Some(_) => Next::Enough,
            None if args.ending() == Ending::Review => Next::Noticeable("it shows its changes"),
            None if !self.live.is_empty() => {
                Next::Noticeable("what it did where changes are live would be done twice")
            }
            None if !unnoticed => Next::Noticeable(PRINTED),
            None if self.goes_on_silently(args.wait.patience()) => Next::Silent,
            None => Next::InVain,
        }
    }
}

/// What to say of a transaction that is gone: no more than is known.
fn rolled_back_text(args: &RunArgs, live: &Live) -> String {
    let limited = !(args.view.scope.is_empty() && args.view.exclude.is_empty());
    if !live.is_empty() {
        format!("rolled back; live, and not rolled back: {live}")
    } else if limited {
        format!("{ROLLED_BACK} of what is versioned, and no change of anything else was seen")
    } else {
        ROLLED_BACK.into()
    }
}

/// Runs it.
pub fn run(app: &App, args: &RunArgs) -> Result<u8, Failure> {
    if let Some(outer) = txos_run::question::asked_by() {
        return inside::serve(app, args, outer);
    }
    if let Some(outer) = txos_run::inside() {
        return inside::ask(app, args, outer);
    }
    let mut in_library = args.which_view == WhichView::Library || args.in_process;
    if in_library {
        let refused = args.only_with_overlay();
        if !refused.is_empty() {
            let refused = refused.join(", ");
            return Err(Failure::new(format!(
                "--view library can't hold {refused}; nothing was run"
            )));
        }
    }
    if args.which_view == WhichView::Auto
        && txos_run::is_on_overlay(&args.view.scope)
        && in_process::can_take(args)
    {
        let what = match args.view.scope[..] {
            [] => "the root directory is",
            _ => "what --scope names is on",
        };
        tracing::info!("{what} an overlay: the view is the library's");
        in_library = true;
    }
    match args.which_view {
        WhichView::Library => tracing::info!("the view is the library's, as asked for"),
        _ if !in_library => tracing::info!("the view is an overlay, if namespaces are to be had"),
        _ => {}
    }
    if in_library && !args.needs_watcher() {
        return by_itself(app, args);
    }
    let ending = args.ending();
    if ending == Ending::Review && !review::possible() {
        return Err(Failure::new(
            "--review asks before it commits, and there is no terminal to ask on; \
             use --keep and decide with `txos diff` and `txos commit`",
        ));
    }
    if !args.after.is_empty() && args.publish.isolation != IsolationArg::default() {
        return Err(Failure::new(
            "--after goes by what CMD reads, which --isolation snapshot does not validate; nothing was run",
        ));
    }
    let home = app.open_recovered()?;
    let label = label(args);
    let mut order = Order::begin(app, args, &label)?;
    let ended = in_order(app, args, &home, &label, &mut order, in_library);
    order.end(app, &ended);
    ended
}

/// Runs it among the runs that it comes after.
fn in_order(
    app: &App,
    args: &RunArgs,
    home: &Home,
    label: &str,
    order: &mut Order,
    mut in_library: bool,
) -> Result<u8, Failure> {
    let ending = args.ending();
    order.find(app, home, args.wait.patience())?;
    let engine = app.join(home, label)?;
    let mut attempts = Attempts { retries: 0, began: Instant::now(), live: Live::default() };
    let mut again = None;
    loop {
        let library = in_library.then(|| in_process::watched(app, args)).transpose()?;
        let library = library.as_ref();
        let attempted = attempt(app, engine, args, ending, again, &mut attempts, library, order);
        if attempted.is_err()
            && !in_library
            && args.which_view == WhichView::Auto
            && in_process::can_take(args)
            && let Some(why) = txos_run::refuses_views()
        {
            // So it can't have run.
            tracing::info!("no namespaces are to be had ({why}): the view is the library's");
            if !args.needs_watcher() {
                return by_itself(app, args);
            }
            in_library = true;
            continue;
        }
        let refused = args.only_with_overlay();
        if attempted.is_err()
            && args.which_view == WhichView::Auto
            && !refused.is_empty()
            && let Some(why) = txos_run::refuses_views()
        {
            return Err(Failure::new(format!(
                "no namespaces are to be had ({why}), which {} needs; the library's view, which needs none, can't hold that; \
                 nothing was run",
                refused.join(", ")
            )));
        }
        let (ended, next) = attempted?;
        let (conflicts, only_read) = match ended {
            Attempt::Ended(status) => return Ok(status),
            Attempt::Conflict { conflicts, again: next, only_read } => {
                again = next.or(again);
                (conflicts, only_read)
            }
            Attempt::Bereft(why) => {
                let Next::Announced = next else {
                    let rolled_back = rolled_back_text(args, &attempts.live);
                    return Err(Failure::new(format!("{why}; {rolled_back}")));
                };
                attempts.retries += 1;
                let (n, of) = (attempts.retries, args.retry.unwrap_or_default());
                app.say(format_args!("{why}; rolled back"));
                app.say(format_args!("retry {n} of {of}, after the next run of that name"));
                order.forget_failed()?;
                order.find(app, home, args.wait.patience())?;
                continue;
            }
        };
        after_conflict(app, args, conflicts, only_read, &next, &mut attempts)?;
        // It would lose again to a producer that goes on. How that ended is told by the next attempt.
        let _ = order.await_end(app)?;
        std::thread::sleep(before_restart(attempts.retries, u64::from(std::process::id())));
    }
}

/// Says what is to be said of a conflict of an attempt; an error, if there is no other one.
fn after_conflict(
    app: &App,
    args: &RunArgs,
    conflicts: Vec<Conflict>,
    only_read: bool,
    next: &Next,
    attempts: &mut Attempts,
) -> Result<(), Failure> {
    let rolled_back = rolled_back_text(args, &attempts.live);
    let aftermath = match next {
        Next::Announced => {
            app.say(conflict_message(&conflicts, "rolled back"));
            let (n, of) = (attempts.retries + 1, args.retry.unwrap_or_default());
            app.say(format_args!("retry {n} of {of}"));
            None
        }
        Next::Silent => {
            tracing::info!("{}", conflict_message(&conflicts, "rolled back, and run again"));
            None
        }
        Next::Enough => Some(rolled_back),
        Next::InVain => Some(format!(
            "{rolled_back}; it was run again {} times, --retry N or a longer --wait goes on",
            attempts.retries
        )),
        Next::Noticeable(why) => {
            Some(format!("{rolled_back}; it was not run again, because {why}: --retry N does it"))
        }
    };
    if let Some(mut aftermath) = aftermath {
        if only_read {
            aftermath.push_str(SNAPSHOT_ADVICE);
        }
        return Err(Failure::conflict(conflicts, aftermath));
    }
    attempts.retries += 1;
    Ok(())
}

/// With fewer descriptors nobody waits for a command that could run without: what is said of the limit is the library's.
const DESCRIPTORS_MIN: u64 = 64;

/// Runs a command in the library's view that decides by itself about its transaction; after a conflict again, if nobody
/// can have noticed it. Where that can't be told in any case, this process becomes the command.
fn by_itself(app: &App, args: &RunArgs) -> Result<u8, Failure> {
    let mut attempts = Attempts { retries: 0, began: Instant::now(), live: Live::default() };
    let mut history = None;
    // Where ended children are waited for by nobody, how the command ended would be lost.
    let is_blind = txos_run::sys::signals::ignored().contains(&libc::SIGCHLD);
    // Nor is it begun with so few descriptors that waiting for it would need some of its own.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let is_alone = is_blind || limit.is_some_and(|limit| limit < DESCRIPTORS_MIN);
    loop {
        let (marks, hold) = mark();
        if is_alone || marks.are_useless() && attempts.retries == 0 {
            return in_process::run(app, args);
        }
        let mut followed = match in_process::follow(app, args, hold, history)? {
            Ok(Some(followed)) => followed,
            Ok(None) => return in_process::run(app, args),
            Err(status) => return Ok(status),
        };
        let asked = followed.asked;
        let (conflicts, live, again, only_read) = match &mut followed.end {
            End::Lost { conflicts, live, again, only_read } => {
                (std::mem::take(conflicts), std::mem::take(live), *again, *only_read)
            }
            End::Ended(status) => {
                let status = std::mem::replace(status, CommandStatus::Exited(0));
                followed.pass_on();
                if let CommandStatus::Signaled(signal) = status {
                    txos_run::sys::signals::end_by(signal);
                }
                return Ok(of_command(&status));
            }
        };
        history = again.or(history);
        attempts.live.add(&live);
        let unnoticed = marks.untouched() && !followed.has_printed();
        let next = match attempts.next(args, unnoticed) {
            Next::Silent if asked.is_none() && !followed.forget_held() => Next::Noticeable(PRINTED),
            next => next,
        };
        if let Some(signal) = asked {
            followed.pass_on();
            let gone = rolled_back_text(args, &attempts.live);
            app.say(format_args!("{}; {gone}", signal_name(signal)));
            return Ok(of_signal(signal));
        }
        if !matches!(next, Next::Silent) {
            followed.pass_on();
        }
        after_conflict(app, args, conflicts, only_read, &next, &mut attempts)?;
        std::thread::sleep(before_restart(attempts.retries, u64::from(std::process::id())));
    }
}

/// Whether the recorder is to be preloaded into the command's programs.
pub fn preloads(no_preload: bool) -> bool {
    !no_preload && std::env::var_os(RECORDER).is_none_or(|value| value != "off")
}

/// What others are told that runs here.
fn label(args: &RunArgs) -> String {
    let shown = if hides_arguments(args.no_record_args) { 1 } else { usize::MAX };
    let words: Vec<String> = args.command.iter().take(shown).map(|w| quoted(w.as_ref())).collect();
    command_line(&words)
}

/// Whether the command's arguments are to be recorded nowhere.
pub fn hides_arguments(no_record_args: bool) -> bool {
    no_record_args || std::env::var_os(RECORD_ARGS).is_some_and(|value| value == "off")
}

#[expect(clippy::too_many_arguments, reason = "all of one attempt")]
fn attempt(
    app: &App,
    engine: Engine<'_>,
    args: &RunArgs,
    ending: Ending,
    again: Option<RetryHistory>,
    attempts: &mut Attempts,
    library: Option<&Library>,
    order: &mut Order,
) -> Result<(Attempt, Next), Failure> {
    let home = engine.home();
    let mut options = txos_run::RunOptions {
        answerer: Some(app.answerer()),
        after: order.predecessors(),
        ..args.options(args.place.paths()?)
    };
    let mut tx = match library {
        Some(library) => txos_run::library::begin(home, &options, &library.scope)?,
        None => txos_run::begin(home, &options)?,
    };
    app.report.note(|report| report.attempt(tx.id()));
    order.attempt(tx.id());
    let was_behind = order.is_behind();
    let begun = match library {
        // The process that has it takes part; this one does when it commits.
        Some(_) => Ok(None),
        None => app.begin(engine, tx.id(), again, args.wait),
    };
    let handle = match begun {
        Ok(handle) => handle,
        Err(failure) => {
            trash::discard(app, home, tx);
            return Err(failure.with_aftermath(ROLLED_BACK));
        }
    };
    if let Some(handle) = handle.as_ref().filter(|_| was_behind) {
        handle.defer(true);
    }
    // Nothing else is asked of them than whether to run it again by itself.
    let may_retry = args.retry.is_none() && ending != Ending::Review;
    let marks = may_retry.then(|| {
        if options.hold_output == Hold::Fully {
            return Marks::set(|_| true);
        }
        let (marks, hold) = mark();
        options.hold_output = hold;
        marks
    });
    let ran = match library {
        Some(library) => txos_run::library::run(home, &mut tx, &options, library),
        None => txos_run::new_reads(home, &tx, &options)
            .and_then(|reads| txos_run::run(home, &mut tx, reads, &options, handle)),
    };
    let mut ran = match ran {
        Ok(ran) => ran,
        Err(error) => {
            let ran = matches!(error, txos_run::Error::ReaperLost);
            let failure = Failure::from(error);
            if !matches!(failure, Failure::Unfinished(_)) {
                trash::discard(app, home, tx);
            }
            let all = if ran { "rolled back, but for what was live" } else { ROLLED_BACK };
            return Err(failure.with_aftermath(all));
        }
    };
    attempts.live.add(&ran.live);
    app.report.note(|report| report.ran(&ran.warnings, &attempts.live));
    let unnoticed = marks.is_some_and(|marks| marks.untouched()) && !ran.has_printed();
    let next = attempts.next(args, unnoticed);
    let is_lost = matches!(ran.status, CommandStatus::Lost { .. });
    let is_decided = ending != Ending::Commit
        || refusal(&ran.status, commit_on(args, &ran), &args.command).is_some();
    if !matches!(next, Next::Silent) || !is_lost && is_decided {
        ran.pass_on();
    }
    let behind = was_behind.then_some(&*order);
    let ended = conclude(app, engine, args, ending, tx, &mut ran, &attempts.live, &next, behind);
    // Whatever was not released by now belongs to a transaction that never happened.
    let forgotten = match (&ended, &next) {
        (Ok(Attempt::Conflict { .. }), Next::Silent) => ran.forget_held(),
        _ => {
            ran.drop_held();
            true
        }
    };
    let next = match next {
        Next::Silent if !forgotten => Next::Noticeable(PRINTED),
        Next::Silent if output_is_gone() => Next::Noticeable(OUTPUT_IS_GONE),
        next => next,
    };
    Ok((ended?, next))
}

/// Marks what the command inherits, and holds what it prints into a pipe if that is all that could be noticed.
fn mark() -> (Marks, Hold) {
    let marks = Marks::set(txos_run::can_be_held);
    if marks.can_tell() {
        return (marks, Hold::Briefly);
    }
    (Marks::set(|_| false), Hold::No)
}

/// Says that nothing was committed because nothing was to be, and why nothing would have been.
fn end_dry_run(
    app: &App,
    status: &CommandStatus,
    command: &[std::ffi::OsString],
    counts: Counts,
    gone: &str,
) {
    let why = refusal(status, CommitOn::Success, command);
    let why = why.map(|why| format!("{why}; ")).unwrap_or_default();
    app.report.note(|report| report.ended(Outcome::DryRun, Some(counts)));
    app.say(format_args!("{why}dry run: {gone}"));
}

/// The command has ended: decides about the transaction, and does it.
#[expect(clippy::too_many_arguments, reason = "all of one attempt")]
fn conclude(
    app: &App,
    engine: Engine<'_>,
    args: &RunArgs,
    ending: Ending,
    mut tx: Transaction,
    ran: &mut Ran,
    live: &Live,
    next: &Next,
    behind: Option<&Order>,
) -> Result<Attempt, Failure> {
    let (home, gone, signals) = (engine.home(), rolled_back_text(args, live), Deferred::begin());
    if ending != Ending::Commit {
        // Others may make a view of a transaction that is kept.
        ran.await_end_of_view();
    }
    let mut handle = ran.handle.take();
    if let Some(ended) = stopped(args, &ran.status, &mut handle) {
        trash::discard(app, home, tx);
        return Ok(ended);
    }
    // Nobody is kept waiting while somebody thinks, or a producer works.
    let lets_go = ending != Ending::Commit || behind.is_some();
    let before = lets_go.then(|| handle.take().map(TxHandle::abort)).flatten();
    if let Some(ended) = after_producers(app, behind, args, ran, &signals, &gone).transpose() {
        trash::discard(app, home, tx);
        return ended;
    }
    let status = of_command(&ran.status);
    tx.meta.exit_status = Some(i32::from(status));
    let shows_always = ending == Ending::DryRun && was_run(&ran.status) && !ran.is_lost;
    let was_full = was_run(&ran.status) && status != 0 && space::is_full(&tx.meta);
    if !shows_always && let Some(why) = refusal(&ran.status, commit_on(args, ran), &args.command) {
        drop(handle.take());
        trash::discard(app, home, tx);
        tell_failure(app, &ran.status, &format!("{why}; {gone}"));
        if was_full {
            space::hint(home);
        }
        return Ok(Attempt::Ended(status));
    }
    let options = args.publish.options(true, Vec::new());
    let read = app.with_progress(|progress| {
        progress.phase(Phase::Scanning, None);
        let changes = ChangeSet::read(&tx, &ran.reads, &options.keep_inode)?;
        let listed = matches!(ending, Ending::Review | Ending::DryRun);
        let entries = if listed { changes.entries()? } else { Vec::new() };
        Ok::<_, txos_engine::Error>((changes, entries))
    });
    let (changes, entries) = match read {
        Ok(read) => read,
        Err(error) => return rolled_back(app, home, tx, error, None, &gone),
    };
    let counts = changes.counts();
    match ending {
        Ending::DryRun => {
            let shown = review::show(app, &entries);
            trash::discard(app, home, tx);
            shown?;
            end_dry_run(app, &ran.status, &args.command, counts, &gone);
            return Ok(Attempt::Ended(status));
        }
        Ending::Keep => {
            return kept(app, home, tx, ran, &counts, &gone).map(|()| Attempt::Ended(status));
        }
        Ending::Review if !entries.is_empty() => {
            let can_keep = !args.holds_output();
            match reviewed(app, &tx, &entries, can_keep, &signals) {
                Ok(Decision::Commit) => {}
                Ok(Decision::Keep) => {
                    return kept(app, home, tx, ran, &counts, &gone)
                        .map(|()| Attempt::Ended(status));
                }
                Ok(decision @ (Decision::Part(_) | Decision::Shell)) => {
                    let id = keep(app, home, tx, ran, &counts, &gone)?.id();
                    drop(signals);
                    let ended = go_on(app, args, id, decision)?;
                    return Ok(Attempt::Ended(if ended == 0 { status } else { ended }));
                }
                no => {
                    trash::discard(app, home, tx);
                    no?;
                    app.say(&gone);
                    return Ok(Attempt::Ended(signals.asked().map_or(DECLINED, of_signal)));
                }
            }
        }
        Ending::Review | Ending::Commit => {}
    }
    // The last moment to turn back.
    if let Some(signal) = signals.asked() {
        trash::discard(app, home, tx);
        app.say(format_args!("{}; {gone}", signal_name(signal)));
        return Ok(Attempt::Ended(of_signal(signal)));
    }
    let handle = match handle_for(app, engine, &tx, handle, before, args.wait) {
        Ok(handle) => handle,
        Err(failure) => {
            trash::discard(app, home, tx);
            return Err(failure.with_aftermath(&gone));
        }
    };
    // Who is run again prints again.
    let leaves = !args.holds_output();
    if leaves && matches!(next, Next::Enough | Next::InVain | Next::Noticeable(_)) {
        leave_output();
    }
    let leave = (leaves && matches!(next, Next::Silent)).then_some(leave_output as fn());
    let waits = Waiting { patience: args.wait.patience(), leave };
    let txn = engine.txn(handle, &waits);
    let published =
        app.with_progress(|p| txn.commit(&mut tx, &changes, &mut ran.reads, &options, p));
    match published {
        Ok(summary) => {
            ran.release();
            committed(app, home, tx, &summary, &counts, live);
            Ok(Attempt::Ended(status))
        }
        Err(Failed { error: txos_engine::Error::Conflict(_), .. }) if signals.asked().is_some() => {
            trash::discard(app, home, tx);
            let signal = signals.asked().unwrap_or_default();
            app.say(format_args!("{}; {gone}", signal_name(signal)));
            Ok(Attempt::Ended(of_signal(signal)))
        }
        Err(failed) => {
            let read = only_read(&options, &changes, &failed.error);
            let ended = rolled_back(app, home, tx, failed.error, failed.again, &gone)?;
            Ok(match ended {
                Attempt::Conflict { conflicts, again, .. } => {
                    Attempt::Conflict { conflicts, again, only_read: read }
                }
                ended @ (Attempt::Ended(_) | Attempt::Bereft(_)) => ended,
            })
        }
    }
}

/// Waits until the runs that it comes after have ended. How the attempt ended, if it is not to go on.
fn after_producers(
    app: &App,
    behind: Option<&Order>,
    args: &RunArgs,
    ran: &Ran,
    signals: &Deferred,
    gone: &str,
) -> Result<Option<Attempt>, Failure> {
    let behind = behind.filter(|_| goes_by_reads(&ran.status) && !ran.is_lost);
    let Some(order) = behind else { return Ok(None) };
    match order.await_end(app)? {
        Awaited::Committed => {}
        Awaited::Asked => {
            let signal = signals.asked().unwrap_or_default();
            app.say(format_args!("{}; {gone}", signal_name(signal)));
            return Ok(Some(Attempt::Ended(of_signal(signal))));
        }
        Awaited::Failed(why) => return Ok(Some(Attempt::Bereft(why))),
    }
    // It may have failed for want of what a producer has committed by now. What it commits is validated then.
    if refusal(&ran.status, commit_on(args, ran), &args.command).is_some() {
        let conflicts = ran.reads.validate_beside(ValidationRules::default(), None);
        if !conflicts.is_empty() {
            return Ok(Some(Attempt::Conflict { conflicts, again: None, only_read: true }));
        }
    }
    Ok(None)
}

/// How the attempt ended if its command was stopped for another transaction. It keeps others waiting no more.
fn stopped(args: &RunArgs, status: &CommandStatus, handle: &mut Option<Handle>) -> Option<Attempt> {
    match status {
        CommandStatus::Lost { conflict } => {
            let again = handle.take().map(TxHandle::abort);
            Some(Attempt::Conflict { conflicts: vec![conflict.clone()], again, only_read: false })
        }
        CommandStatus::Exceeded { limit: Limit::Predecessor, text } => {
            drop(handle.take());
            let name = args.command.first().map(|c| quoted(c.as_ref())).unwrap_or_default();
            Some(Attempt::Bereft(format!("{name} {text}")))
        }
        _ => None,
    }
}

/// Whether a command ended as it did because of what it has read.
fn goes_by_reads(status: &CommandStatus) -> bool {
    was_run(status)
        || matches!(status, CommandStatus::NotFound(_) | CommandStatus::NotExecutable(_))
}

/// The handle to commit with: where it was let go of, or another process had it, another one.
fn handle_for(
    app: &App,
    engine: Engine<'_>,
    tx: &Transaction,
    handle: Option<Handle>,
    before: Option<RetryHistory>,
    wait: WaitArgs,
) -> Result<Option<Handle>, Failure> {
    if handle.is_some() || before.is_none() && !tx.meta.recorded {
        return Ok(handle);
    }
    app.begin(engine, tx.id(), before, wait)
}

/// What to say where only that was changed which the transaction had read.
pub const SNAPSHOT_ADVICE: &str = "; it changes none of this itself: --isolation snapshot commits whatever others do to \
                                   what is only read";

/// Whether an error is a conflict about what the transaction has read and does not change.
pub fn only_read(options: &Options, changes: &ChangeSet, error: &txos_engine::Error) -> bool {
    let txos_engine::Error::Conflict(conflicts) = error else { return false };
    options.isolation == Isolation::Serializable && changes.has_none_of(conflicts)
}

/// Shows what would be committed, and asks.
fn reviewed(
    app: &App,
    tx: &Transaction,
    entries: &[Entry],
    can_keep: bool,
    signals: &Deferred,
) -> Result<Decision, Failure> {
    let (id, no) = (tx.id(), Decision::Discard);
    review::ask(app, &review::Question { id, entries, no, can_keep, again: false }, signals)
}

/// Goes on with what needs a pending transaction.
fn go_on(app: &App, args: &RunArgs, id: TxId, decision: Decision) -> Result<u8, Failure> {
    let (publish, wait, no) = (&args.publish, args.wait, Decision::Discard);
    Review { id, publish, wait, no }.go_on(app, Some(decision))
}

/// Leaves the transaction pending.
fn keep(
    app: &App,
    home: &Home,
    mut tx: Transaction,
    ran: &Ran,
    counts: &Counts,
    gone: &str,
) -> Result<Transaction, Failure> {
    if let Err(failure) = keep::keep(app, &mut tx, &ran.reads, counts) {
        trash::discard(app, home, tx);
        return Err(failure.with_aftermath(gone));
    }
    space::note(app, home, tx.id());
    app.report.note(|report| report.ended(Outcome::Kept, Some(*counts)));
    Ok(tx)
}

/// Leaves the transaction pending, and says so.
fn kept(
    app: &App,
    home: &Home,
    tx: Transaction,
    ran: &Ran,
    counts: &Counts,
    gone: &str,
) -> Result<(), Failure> {
    let tx = keep(app, home, tx, ran, counts, gone)?;
    keep::tell(app, &tx, counts);
    Ok(())
}

/// Whether [`leave_output`] was called: what is run again would print nowhere.
static OUTPUT_GONE: AtomicBool = AtomicBool::new(false);
const OUTPUT_IS_GONE: &str = "its output was closed while it waited to commit";

fn output_is_gone() -> bool {
    OUTPUT_GONE.load(Ordering::Relaxed)
}

/// Lets go of standard output, which was the command's: somebody at the other end of a pipe may be
/// another transaction, which waits for its end while this one waits for that.
fn leave_output() {
    if OUTPUT_GONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
    if let Ok(null) = null {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Discards a transaction that could not be committed, unless its publish is half undone.
fn rolled_back(
    app: &App,
    home: &Home,
    tx: Transaction,
    error: txos_engine::Error,
    again: Option<RetryHistory>,
    gone: &str,
) -> Result<Attempt, Failure> {
    match error {
        // What recovery needs lies in the transaction's directories.
        error @ txos_engine::Error::Unfinished { .. } => Err(error.into()),
        txos_engine::Error::Conflict(conflicts) => {
            trash::discard(app, home, tx);
            Ok(Attempt::Conflict { conflicts, again, only_read: false })
        }
        other => {
            trash::discard(app, home, tx);
            Err(Failure::from(other).with_aftermath(gone))
        }
    }
}

/// Says what was committed: `counts`, or, of a part, only how many. A transaction that changed
/// nothing has no place in the history.
pub fn committed(
    app: &App,
    home: &Home,
    tx: Transaction,
    summary: &Summary,
    counts: &Counts,
    live: &Live,
) {
    let counted = summary.complete.then_some(*counts);
    app.report.note(|report| report.published(Outcome::Committed, summary, counted));
    if summary.complete && summary.changes == 0 && tx.meta.state != State::Committed {
        app.report.note(|report| report.ended(Outcome::Unchanged, Some(*counts)));
        trash::discard_unchanged(app, home, tx);
        match live.is_empty() {
            true => app.say("nothing changed"),
            false => app.say(format_args!("nothing to commit; live: {live}")),
        }
        return;
    }
    let style = app.err.id();
    let id = summary.id;
    let merged = match summary.merged {
        0 => String::new(),
        n => format!("; merged appends to {n} file{}", if n == 1 { "" } else { "s" }),
    };
    let what = if summary.complete { counts.to_string() } else { paths(summary.changes) };
    app.say(format_args!("committed {style}{id}{style:#}: {what}{merged}"));
    if !summary.complete {
        let rest = tx.id();
        app.say(format_args!(
            "the rest stays pending as {style}{rest}{style:#} (`txos diff {rest}`, `txos commit {rest}`)"
        ));
    }
    if !warn_unrecorded(app, summary) {
        if !summary.complete {
            space::note(app, home, tx.id());
        }
        space::after_commit(app, home, id, summary.changes);
    }
}

/// Warns if everything is published and the record of it could not be written.
pub fn warn_unrecorded(app: &App, summary: &Summary) -> bool {
    if let Some(why) = &summary.unrecorded {
        app.warn(format_args!(
            "all of {} is published, but its record could not be written yet ({why}); the next \
             command that writes does it, or `txos recover`",
            summary.id
        ));
    }
    summary.unrecorded.is_some()
}

pub fn was_run(status: &CommandStatus) -> bool {
    matches!(status, CommandStatus::Exited(_) | CommandStatus::Signaled(_))
}

/// What is not there any more is not committed.
fn commit_on(args: &RunArgs, ran: &Ran) -> CommitOn {
    if ran.is_lost { CommitOn::Success } else { args.commit_on }
}

/// Why this ending of the command is not committed; `None` if it is.
pub fn refusal(
    status: &CommandStatus,
    commit_on: CommitOn,
    command: &[OsString],
) -> Option<String> {
    let name = command.first().map(|c| quoted(c.as_ref())).unwrap_or_default();
    match status {
        CommandStatus::NotFound(_) => Some(format!("{name}: command not found")),
        CommandStatus::NotExecutable(error) => Some(format!("{name} can't be executed: {error}")),
        CommandStatus::Lost { conflict } => Some(format!("{name} was stopped: {conflict}")),
        CommandStatus::Stopped { reason } => Some(format!("{name} was stopped: {reason}")),
        CommandStatus::Exceeded { text, .. } | CommandStatus::Refused { text } => {
            Some(format!("{name} {text}"))
        }
        CommandStatus::Exited(0) => None,
        _ if commit_on == CommitOn::Always => None,
        CommandStatus::Exited(code) => Some(format!("{name} exited with status {code}")),
        CommandStatus::Signaled(n) => Some(format!("{name} was killed by {}", signal_name(*n))),
    }
}

/// That a command failed is news it tells itself; that it never ran, or was stopped, is an error
/// of which only txos can tell.
pub fn tell_failure(app: &App, status: &CommandStatus, text: &str) {
    if was_run(status) {
        app.say(text);
    } else {
        tell(format_args!("txos: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> [OsString; 1] {
        ["make".into()]
    }

    #[test]
    fn what_is_committed() {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let stopped = || CommandStatus::Stopped { reason: "it wrote to /dev/sda".into() };
        let table = [
            (CommandStatus::Exited(0), true, true),
            (CommandStatus::Exited(2), false, true),
            (CommandStatus::Signaled(15), false, true),
            (CommandStatus::NotFound(missing()), false, false),
            (CommandStatus::NotExecutable(missing()), false, false),
            (stopped(), false, false),
        ];
        for (status, on_success, always) in table {
            let commits = |on| refusal(&status, on, &command()).is_none();
            assert_eq!(commits(CommitOn::Success), on_success, "{status:?}");
            assert_eq!(commits(CommitOn::Always), always, "{status:?}");
        }
    }

    #[test]
    fn why_not_is_told() {
        let why = |status| refusal(&status, CommitOn::Success, &command()).unwrap();
        assert_eq!(why(CommandStatus::Exited(2)), "make exited with status 2");
        assert_eq!(why(CommandStatus::Signaled(2)), "make was killed by SIGINT");
    }
}
