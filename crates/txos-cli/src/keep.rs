//! Pending transactions: kept by `run --keep`, taken up again by `exec`, `diff` and `commit`.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::OFlags;
use txos_engine::readset::ReadSet;
use txos_engine::store::{Home, Transaction};
use txos_engine::version::Stamp;
use txos_engine::{Context, Error, TxId, sys};

use crate::app::{App, tell as tell_line};
use crate::changes::Counts;
use crate::commit::end_leftovers;
use crate::exit::Failure;
use crate::standing::Standing;

/// Makes the transaction pending: its private copies are stable before its record says so.
pub fn keep(app: &App, tx: &mut Transaction, reads: &ReadSet, changes: u64) -> Result<(), Failure> {
    let flush = tx.meta.durable;
    tx.save_reads(reads, flush)?;
    tx.stay();
    tx.meta.ended = Some(Stamp::now());
    tx.meta.changes = changes;
    if flush {
        app.with_progress(|progress| {
            progress.phase(txos_engine::commit::Phase::Flushing, None);
            flush_layers(tx)
        })?;
    }
    tx.save(flush)?;
    if flush {
        // The record was put in place by a rename; that is stable with its directory.
        let dir = open_dir(tx.dir())?;
        sys::fsync(dir.as_fd()).at("flushing", tx.dir())?;
    }
    Ok(())
}

/// Takes a transaction back to what it was before the command that was run in it last.
pub fn fall_back(app: &App, tx: &mut Transaction) -> Result<(), Failure> {
    end_leftovers(app, &tx.meta)?;
    Ok(tx.fall_back()?)
}

fn flush_layers(tx: &Transaction) -> Result<(), Error> {
    let _rights = txos_engine::sys_owner::rights();
    for layer in tx.layers() {
        // Unmounted by somebody, and, as the changes say, not concerned.
        if !layer.upper.try_exists().at("looking at", &layer.upper)? {
            continue;
        }
        let upper = open_dir(&layer.upper)?;
        sys::syncfs(upper.as_fd()).at("flushing", &layer.upper)?;
    }
    Ok(())
}

fn open_dir(path: &Path) -> Result<std::os::fd::OwnedFd, Error> {
    sys::open(path.as_os_str().as_encoded_bytes(), OFlags::RDONLY | OFlags::DIRECTORY, 0)
        .at("opening", path)
}

/// Prints the id, and what can be done with it. Quiet, the id alone.
pub fn tell(app: &App, tx: &Transaction, counts: &Counts) {
    let id = tx.id();
    if app.quiet() {
        tell_line(id);
        return;
    }
    let style = app.err.id();
    app.say(format_args!("kept {style}{id}{style:#}: {counts}; nothing is published yet"));
    for (command, what) in
        [("diff", "show the changes"), ("commit", "publish them"), ("abort", "discard them")]
    {
        let command = format!("{command} {id}");
        tell_line(format_args!("  txos {command:15}  {what}"));
    }
}

/// Takes hold of a pending transaction.
pub fn load(app: &App, home: &Home, id: TxId) -> Result<Transaction, Failure> {
    let mut tx = home.load(id)?;
    tx.meta.check_same_rights()?;
    // The lock is ours, so that whoever ran a command in it is gone.
    if Home::falls_back(&tx.meta) {
        fall_back(app, &mut tx)?;
        app.say(format_args!(
            "recovered: the last command in {id} was interrupted; {id} is as it was before it"
        ));
    }
    let advice = match Standing::of(home, &tx.meta) {
        Standing::Pending => {
            txos_engine::commit::put_in_order(home, &mut tx)?;
            return Ok(tx);
        }
        // Held by ourselves now, so whoever ran it is gone.
        Standing::Active | Standing::Dead => {
            "its txos process is gone in the middle; `txos abort` removes what it left"
        }
        Standing::Lost => {
            "it was kept with --no-durable and the machine has restarted since, so its private \
             copies can't be trusted; `txos abort` removes them"
        }
        Standing::Committed => "it is published already; `txos revert` undoes it",
        Standing::Reverted => "it was published and undone",
    };
    let state = Standing::of(home, &tx.meta).to_string();
    Err(Error::WrongState { id, state, advice: advice.into() }.into())
}
