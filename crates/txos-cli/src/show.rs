//! `txos show` and `txos diff`: one transaction, and what it changes.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use txos_engine::changeset::{ChangeSet, Entry, layer_entries};
use txos_engine::commit::{Phase, committed_entries, interrupted};
use txos_engine::show::quoted;
use txos_engine::store::{Home, Meta, State, Transaction};
use txos_engine::{Error, TxId};
use txos_run::question;

use crate::app::App;
use crate::args::{DiffArgs, ShowArgs};
use crate::changes::{Counts, write_name_status, write_stat};
use crate::exit::Failure;
use crate::git_patch::LeftOut;
use crate::log::write_entry;
use crate::pager::{self, Stream};
use crate::patch::{Reader, write_patch};
use crate::pick::{Wanted, pick};
use crate::space::Counting;
use crate::tx_status::TxStatus;
use crate::undo::{write_inside, write_layers};
use crate::{git_patch, html, json, keep, overview, paths};

/// A transaction to look at. While this lives, a pending one stays as it is.
struct Looked {
    meta: Meta,
    status: TxStatus,
    entries: Vec<Entry>,
    _held: Option<Transaction>,
}

/// Shows who, when, what and which paths.
pub fn show(app: &App, args: &ShowArgs) -> Result<u8, Failure> {
    let home = existing(app, &args.id)?;
    let id = pick(&home, &args.id, Wanted::Changed)?;
    let meta = home.meta(id)?;
    let status = TxStatus::of(&home, &meta);
    let looked = match status {
        // There is no change set to be read yet, or none that can be trusted.
        TxStatus::Dead | TxStatus::Lost => {
            Looked { meta, status, entries: Vec::new(), _held: None }
        }
        TxStatus::Active => look(app, &home, id).unwrap_or_else(|failure| {
            app.warn(failure.message().unwrap_or_default());
            Looked { meta, status, entries: Vec::new(), _held: None }
        }),
        _ => look(app, &home, id)?,
    };
    if args.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        write_json(&mut out, &looked)?;
        out.flush()?;
        return Ok(0);
    }
    let space = Counting::begin().of(&home, &looked.meta);
    // What is looked at is held no longer than it takes to write it.
    pager::show(Stream::Out, move |out| {
        let looked = looked;
        write_entry(out, &looked.meta, looked.status, space, app.out)?;
        write_layers(out, &looked.meta, app.out)?;
        write_inside(out, &looked.meta, app.out)?;
        if !looked.entries.is_empty() {
            writeln!(out)?;
            write_name_status(out, &looked.entries, app.out)?;
            writeln!(out, "{}", Counts::of(&looked.entries))?;
        }
        Ok(())
    })?;
    Ok(0)
}

/// Shows what changes, in one of four forms.
pub fn diff(app: &App, args: &DiffArgs) -> Result<u8, Failure> {
    let home = existing(app, &args.id)?;
    let id = pick(&home, &args.id, Wanted::Changed)?;
    let mut looked = match args.layer {
        None => look(app, &home, id)?,
        Some(number) => look_at_layer(app, &home, id, number)?,
    };
    let wanted = paths::all_in_tree(&args.paths)?;
    looked.entries.retain(|entry| paths::selects(&wanted, entry));
    let entries = &looked.entries;
    if args.relative || args.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        if args.relative {
            let base = paths::in_tree(Path::new("."))?;
            let left_out = git_patch::write(&mut out, entries, &base)?;
            out.flush()?;
            say_left_out(app, &left_out);
        } else {
            write_json(&mut out, &looked)?;
        }
        out.flush()?;
        return Ok(0);
    }
    pager::show(Stream::Out, move |out| {
        let looked = looked;
        let entries = &looked.entries;
        match (args.stat, args.name_status) {
            (true, _) => write_stat(out, entries, app.out),
            (_, true) => write_name_status(out, entries, app.out),
            _ => {
                let on_terminal = io::stdout().is_terminal();
                let reader = if on_terminal { Reader::Person } else { Reader::Program };
                write_patch(out, entries, app.out, reader)
            }
        }
    })?;
    Ok(0)
}

/// Writes a page about it.
pub fn page(app: &App, id: &str, file: &Path) -> Result<u8, Failure> {
    let home = existing(app, id)?;
    let id = pick(&home, id, Wanted::Pending)?;
    let looked = look(app, &home, id)?;
    let items = overview::items(&looked.entries);
    let write = |out: &mut dyn Write| {
        let mut out = io::BufWriter::new(out);
        html::write(&mut out, &looked.meta, looked.status, &items)?;
        out.flush()
    };
    if file == Path::new("-") {
        write(&mut io::stdout().lock())?;
        return Ok(0);
    }
    let written = std::fs::File::create(file).and_then(|mut file| write(&mut file));
    written.map_err(|error| Failure::new(format!("writing {}: {error}", quoted(file))))?;
    app.say(format_args!("{id} is written to {}; nothing is decided by it", quoted(file)));
    Ok(0)
}

/// Says what a patch leaves out: the first few, and how many.
fn say_left_out(app: &App, all: &[LeftOut]) {
    const SHOWN_MAX: usize = 10;
    for LeftOut { path, why } in all.iter().take(SHOWN_MAX) {
        app.warn(format_args!("not in the patch: {}: {why}", quoted(path)));
    }
    if let Some(more) = all.len().checked_sub(SHOWN_MAX).filter(|&more| more > 0) {
        app.warn(format_args!("not in the patch: {more} more"));
    }
}

/// The store; if there is none, there is no such transaction either.
fn existing(app: &App, id: &str) -> Result<Home, Failure> {
    app.open_existing()?.ok_or_else(|| Error::NoSuchTransaction(id.to_owned()).into())
}

fn look(app: &App, home: &Home, id: TxId) -> Result<Looked, Failure> {
    let meta = home.meta(id)?;
    let status = TxStatus::of(home, &meta);
    match meta.state {
        State::Committed | State::Reverted => {
            let entries = committed_entries(home, id)?;
            Ok(Looked { meta, status, entries, _held: None })
        }
        State::Active if status == TxStatus::Active => {
            let entries = so_far(home, &meta)?;
            // Its end may have come meanwhile.
            if home.meta(id)?.state != State::Active {
                return look(app, home, id);
            }
            // Inside, that is what was asked for.
            if question::asked_by() != Some(id) {
                app.say(format_args!(
                    "{id} runs: this is what it has changed so far, and goes on changing"
                ));
            }
            Ok(Looked { meta, status, entries, _held: None })
        }
        State::Active | State::Pending => {
            let tx = keep::load(app, home, id)?;
            let (mut meta, status) = (tx.meta.clone(), TxStatus::Pending);
            let reads = tx.load_reads()?;
            let entries = app.with_progress(|progress| {
                progress.phase(Phase::Scanning, None);
                let changes = ChangeSet::read(&tx, &reads, &[])?;
                meta.changes = Some(changes.counts().total());
                changes.entries()
            })?;
            Ok(Looked { meta, status, entries, _held: Some(tx) })
        }
    }
}

/// What a running transaction has changed so far.
fn so_far(home: &Home, meta: &Meta) -> Result<Vec<Entry>, Failure> {
    let id = meta.id;
    let published = || -> Result<(), Failure> {
        // What is published is moved out of what is looked at, path by path.
        if interrupted(home) != Some(id) {
            return Ok(());
        }
        let (state, advice) = ("being published", "look again when that is done");
        Err(Error::WrongState { id, state: state.into(), advice: advice.into() }.into())
    };
    published()?;
    let entries = ChangeSet::so_far(home, meta);
    published()?;
    entries.map_err(|error| {
        let why = Failure::from(error).message().unwrap_or_default();
        Failure::new(format!("{why}; {id} runs, and changes while it is looked at: try again"))
    })
}

/// What one layer of a pending transaction changed.
fn look_at_layer(app: &App, home: &Home, id: TxId, number: u32) -> Result<Looked, Failure> {
    let tx = keep::load(app, home, id)?;
    let entries = app.with_progress(|progress| {
        progress.phase(Phase::Scanning, None);
        layer_entries(&tx, number)
    })?;
    Ok(Looked { meta: tx.meta.clone(), status: TxStatus::Pending, entries, _held: Some(tx) })
}

fn write_json(out: &mut dyn Write, looked: &Looked) -> io::Result<()> {
    json::write(
        out,
        json::Changes {
            transaction: json::Transaction::new(&looked.meta, looked.status),
            counts: Counts::of(&looked.entries),
            changes: &looked.entries,
        },
    )
}
