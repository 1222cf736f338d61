//! `txos commit`, `txos abort` and `txos revert`: decisions about a whole transaction.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use txos_engine::changeset::{ChangeSet, Entry};
use txos_engine::commit::{self, Left, Options, Phase, RevertPreview};
use txos_engine::object::FileKind;
use txos_engine::readset::ReadSet;
use txos_engine::show::quoted;
use txos_engine::store::{Home, State, Transaction};
use txos_engine::{Error, TxId};
use txos_run::Live;

use crate::app::{App, tell};
use crate::args::{CommitArgs, IdArg, PublishArgs, RevertArgs, ReviewArgs, WaitArgs};
use crate::changes::{Counts, paths as count_of_paths, write_stat};
use crate::exit::{DECLINED, Failure};
use crate::pick::{Wanted, pick};
use crate::realm::Waiting;
use crate::report::Outcome;
use crate::review::Decision;
use crate::signals::Deferred;
use crate::{exec, keep, later, paths, review, run, show, space, trash};

/// Publishes a pending transaction, or the part of it below some paths.
pub fn commit(app: &App, args: &CommitArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Pending)?;
    publish(app, &home, id, args, paths::all_in_tree(&args.paths)?)
}

/// Publishes what of it lies at or below some paths of the tree; without any, all.
fn publish(
    app: &App,
    home: &Home,
    id: TxId,
    args: &CommitArgs,
    paths: Vec<PathBuf>,
) -> Result<u8, Failure> {
    app.report.note(|report| report.of(id));
    let mut tx = keep::load(app, home, id)?;
    let options = args.publish.options(tx.meta.durable, paths);
    let stays = |failure: Failure, advice: &str| {
        failure.with_aftermath(&format!(
            "nothing is published, {id} stays pending (`txos diff {id}`, `txos abort {id}`){advice}"
        ))
    };
    let advised = |error: Error, changes: &ChangeSet| {
        let only_read = run::only_read(&options, changes, &error);
        let passes = match &error {
            Error::Conflict(conflicts) => conflicts.iter().all(|conflict| conflict.what.passes()),
            _ => true,
        };
        let rebase = format!("; `txos rebase {id}` runs its command again on what is there now");
        let advice = match (only_read, passes) {
            (true, _) => format!("{rebase}{}", run::SNAPSHOT_ADVICE),
            (false, true) => String::new(),
            (false, false) => rebase,
        };
        stays(error.into(), &advice)
    };
    let mut reads = tx.load_reads()?;
    if args.dry_run {
        let (changes, counts) = read_changes(app, &tx, &reads, &options)?;
        commit::check(home, &tx, &changes, &reads, &options)
            .map_err(|error| advised(error, &changes))?;
        app.report.note(|report| report.ended(Outcome::DryRun, Some(counts)));
        app.say(format_args!("dry run: {id} can be committed now: {counts}"));
        return Ok(0);
    }
    let engine = app.join(home, &format!("txos commit {id}"))?;
    let handle = app.begin(engine, id, None, args.wait).map_err(|failure| stays(failure, ""))?;
    let waits = Waiting { patience: args.wait.patience(), leave: None };
    let txn = engine.txn(handle, &waits);
    let (changes, counts) = read_changes(app, &tx, &reads, &options).map_err(|f| stays(f, ""))?;
    check_slashes(&args.paths, &changes).map_err(|f| stays(f, ""))?;
    let published = app.with_progress(|progress| {
        let _signals = Deferred::begin();
        txn.commit(&mut tx, &changes, &mut reads, &options, progress)
    });
    let summary = published.map_err(|failed| advised(failed.error, &changes))?;
    run::committed(app, home, tx, &summary, &counts, &Live::default());
    Ok(0)
}

/// That only directories are named with a slash behind, as in any other command.
fn check_slashes(given: &[PathBuf], changes: &ChangeSet) -> Result<(), Failure> {
    let has_slash = |path: &&PathBuf| {
        let bytes = path.as_os_str().as_bytes();
        bytes.ends_with(b"/") || bytes.ends_with(b"/.")
    };
    let named: Vec<PathBuf> =
        given.iter().filter(has_slash).map(|p| paths::in_tree(p)).collect::<Result<_, _>>()?;
    if named.is_empty() {
        return Ok(());
    }
    let sides = |entry: &Entry| [entry.new, entry.old].into_iter().flatten().map(|side| side.kind);
    let entries = changes.entries()?;
    let files = entries.iter().filter(|entry| sides(entry).all(|kind| kind != FileKind::Dir));
    let Some(file) = files.into_iter().find(|entry| named.contains(&entry.path)) else {
        return Ok(());
    };
    let what = match sides(file).next() {
        Some(FileKind::Symlink) => "is a symbolic link; without the slash, the link is committed",
        _ => "is no directory; name it without the slash",
    };
    let path = quoted(&file.path);
    Err(Failure::new(format!("{path} {what}")))
}

fn read_changes(
    app: &App,
    tx: &Transaction,
    reads: &ReadSet,
    options: &Options,
) -> Result<(ChangeSet, Counts), Failure> {
    app.with_progress(|progress| {
        progress.phase(Phase::Scanning, None);
        let changes = ChangeSet::read(tx, reads, &options.keep_inode)?;
        let counts = changes.counts();
        Ok((changes, counts))
    })
}

/// Shows what a pending transaction changes, and asks what to do with it.
pub fn review(app: &App, args: &ReviewArgs) -> Result<u8, Failure> {
    if let Some(file) = &args.html {
        return show::page(app, &args.id, file);
    }
    if !review::possible() {
        return Err(Failure::new(
            "`txos review` asks, and there is no terminal to ask on; `txos diff` shows the changes, \
             `txos commit` and `txos abort` decide",
        ));
    }
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Pending)?;
    drop(home);
    let review = Review { id, publish: &args.publish, wait: args.wait, no: Decision::Keep };
    review.go_on(app, None)
}

/// What is to be decided about a pending transaction.
#[derive(Debug)]
pub struct Review<'a> {
    /// The transaction.
    pub id: TxId,
    /// How to publish.
    pub publish: &'a PublishArgs,
    /// How long to wait for others.
    pub wait: WaitArgs,
    /// What a no means.
    pub no: Decision,
}

impl Review<'_> {
    /// Asks, and does what is answered, until that ends it. `decided` is what was answered already.
    pub fn go_on(&self, app: &App, mut decided: Option<Decision>) -> Result<u8, Failure> {
        let id = self.id;
        let mut again = decided.is_some();
        loop {
            let decision = match decided.take() {
                Some(decision) => decision,
                None => self.ask(app, again)?,
            };
            again = true;
            let home = app.open_recovered()?;
            let (publish_args, wait) = (self.publish.clone(), self.wait);
            let args = CommitArgs { publish: publish_args, wait, ..CommitArgs::default() };
            match decision {
                Decision::Commit => return publish(app, &home, id, &args, Vec::new()),
                Decision::Part(paths) => match publish(app, &home, id, &args, paths) {
                    // What can't be split is asked about again.
                    Err(Failure::Txos(message) | Failure::NoSpace(message)) => {
                        tell(format_args!("txos: {message}"))
                    }
                    ended => return ended,
                },
                Decision::Shell => exec::look_around(app, &home, id)?,
                Decision::Discard => {
                    drop(home);
                    abort(app, &IdArg { id: id.to_string() })?;
                    return Ok(match self.no {
                        Decision::Discard => DECLINED,
                        _ => 0,
                    });
                }
                Decision::Keep => {
                    app.say(format_args!("{id} stays pending"));
                    return Ok(DECLINED);
                }
            }
        }
    }

    fn ask(&self, app: &App, again: bool) -> Result<Decision, Failure> {
        let home = app.open_recovered()?;
        // Held, so that it stays as it is shown.
        let tx = keep::load(app, &home, self.id)?;
        let reads = tx.load_reads()?;
        let (changes, _) = read_changes(app, &tx, &reads, &Options::default())?;
        let entries = changes.entries()?;
        let (id, no) = (self.id, self.no.clone());
        let question = review::Question { id, entries: &entries, no, can_keep: true, again };
        review::ask(app, &question, &Deferred::begin())
    }
}

/// Discards a pending transaction, or what a dead one left behind.
pub fn abort(app: &App, args: &IdArg) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Unpublished)?;
    let meta = home.meta(id)?;
    if meta.state == State::Active && home.is_held(id) {
        return Err(Error::WrongState {
            id,
            state: "running".into(),
            advice: "end its command, with Ctrl-C or `kill`, and it rolls back".into(),
        }
        .into());
    }
    let mut tx = home.load(id)?;
    match tx.meta.state {
        State::Pending => commit::put_in_order(&home, &mut tx)?,
        State::Active => end_leftovers(app, tx.dir(), &tx.meta)?,
        state @ (State::Committed | State::Reverted) => {
            let advice = match state {
                State::Committed => "`txos revert` undoes it",
                _ => "it was undone already",
            };
            let state = state.to_string();
            return Err(Error::WrongState { id, state, advice: advice.into() }.into());
        }
    }
    home.discard(tx)?;
    trash::clear(app, &home);
    let style = app.err.id();
    app.say(format_args!("aborted {style}{id}{style:#}: nothing changed"));
    Ok(0)
}

/// Ends the processes that a dead transaction left behind.
pub fn end_leftovers(
    app: &App,
    dir: &Path,
    meta: &txos_engine::store::Meta,
) -> Result<(), Failure> {
    let id = meta.id;
    let ended = txos_run::end_orphans(meta)
        .map_err(|e| Failure::new(format!("ending the processes of {id}: {e}")))?;
    if ended > 0 {
        let plural = if ended == 1 { "" } else { "es" };
        app.say(format_args!("ended {ended} process{plural} of {id}"));
    }
    txos_run::remove_group(dir, id);
    Ok(())
}

/// Shows what a revert would do.
fn show_preview(app: &App, id: TxId, preview: RevertPreview) -> Result<u8, Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    write_stat(&mut out, &preview.entries, app.out)?;
    out.flush()?;
    say_merged(app, &preview.merged_texts);
    say_left(app, &preview.left);
    app.report.note(|report| {
        report.ended(Outcome::DryRun, Some(Counts::of(&preview.entries)));
        report.left(&preview.left);
        report.merged(&preview.merged_texts);
    });
    app.say(format_args!("dry run: {id} is not reverted, nothing changed"));
    Ok(0)
}

/// Names what a revert merges.
fn say_merged(app: &App, merged: &[std::path::PathBuf]) {
    for path in merged {
        app.say(format_args!("merged with what others have changed: {}", quoted(path)));
    }
}

/// Names what a revert leaves.
fn say_left(app: &App, left: &[Left]) {
    for left in left {
        match &left.conflict {
            Some(conflict) => app.say(format_args!("left as it is: {conflict}")),
            None => app.say(format_args!(
                "left as it is: {}: it belongs together with what others have changed",
                quoted(&left.path)
            )),
        }
    }
}

/// Undoes a committed transaction, by a transaction of its own.
pub fn revert(app: &App, args: &RevertArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Committed)?;
    app.report.note(|report| report.of(id));
    let meta = home.meta(id)?;
    let advice = match meta.state {
        State::Committed => None,
        State::Reverted => Some("it was undone already"),
        State::Active => Some("its command has not ended"),
        State::Pending => Some("nothing of it is published; `txos abort` discards it"),
    };
    if let Some(advice) = advice {
        let state = meta.state.to_string();
        return Err(Error::WrongState { id, state, advice: advice.into() }.into());
    }
    let skip = args.skip_changed.iter().map(|text| paths::pattern("--skip-changed", text));
    let options = Options {
        gate: !args.no_gate,
        durable: meta.durable && !args.no_durable,
        skip_changed: skip.collect::<Result<_, _>>()?,
        merge: args.merge,
        paths: paths::all_in_tree(&args.paths)?,
        ..Options::default()
    };
    let unchanged = |failure: Failure| {
        let advice = match failure {
            Failure::Conflict { .. } if options.skip_changed.is_empty() => {
                let merge = if options.merge { "" } else { ", --merge keeps their lines of texts" };
                format!(
                    "; `txos revert --skip-changed {id}` leaves what others have changed as it is{merge}"
                )
            }
            _ => String::new(),
        };
        let failure = later::named(&home, &meta, failure);
        failure.with_aftermath(&format!("{id} is not reverted, nothing changed{advice}"))
    };
    if args.dry_run {
        let preview = commit::preview_revert(&home, id, &options);
        return show_preview(app, id, preview.map_err(|error| unchanged(error.into()))?);
    }
    let engine = app.join(&home, &format!("txos revert {id}"))?;
    let handle = app.begin(engine, id, None, args.wait).map_err(unchanged)?;
    let waits = Waiting { patience: args.wait.patience(), leave: None };
    let txn = engine.txn(handle, &waits);
    let reverted = {
        let _signals = Deferred::begin();
        app.with_progress(|progress| txn.revert(id, &options, progress))
    };
    let summary = reverted.map_err(|failed| unchanged(failed.error.into()))?;
    app.report.note(|report| report.published(Outcome::Reverted, &summary, None));
    let style = app.err.id();
    let changes = count_of_paths(summary.changes);
    let part = if summary.complete { "" } else { "a part of " };
    app.say(format_args!(
        "reverted {part}{style}{id}{style:#} by {style}{}{style:#}: {changes}",
        summary.id
    ));
    if !summary.complete {
        let rest = count_of_paths(home.meta(id)?.changes.unwrap_or_default());
        app.say(format_args!(
            "the rest of {style}{id}{style:#} stays committed: {rest} (`txos show {id}`, `txos revert {id}`)"
        ));
    }
    say_merged(app, &summary.merged_texts);
    say_left(app, &summary.left);
    if !run::warn_unrecorded(app, &summary) {
        space::after_commit(app, &home, summary.id, summary.changes);
    }
    Ok(0)
}
