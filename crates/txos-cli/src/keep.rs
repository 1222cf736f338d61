//! Pending transactions: kept by `run --keep`, taken up again by `exec`, `diff` and `commit`.

use std::time::{Duration, Instant};

use txos_engine::readset::ReadSet;
use txos_engine::store::{Home, Transaction};
use txos_engine::{Error, TxId, txn};

use crate::app::{App, tell as tell_line};
use crate::args::WaitArgs;
use crate::changes::Counts;
use crate::commit::end_leftovers;
use crate::exit::Failure;
use crate::tx_status::TxStatus;

/// How long one waits for a command in the same transaction before one says so.
const SAY_AFTER: Duration = Duration::from_secs(1);
/// How often one looks whether it has ended: the kernel has no lock to wait for with a limit.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long others may look at a transaction before it counts as theirs.
const LOOK_MAX: Duration = Duration::from_millis(300);

/// Makes the transaction pending.
pub fn keep(
    app: &App,
    tx: &mut Transaction,
    reads: &ReadSet,
    counts: &Counts,
) -> Result<(), Failure> {
    Ok(app.with_progress(|progress| txn::keep(tx, reads, Some(counts), None, progress))?)
}

/// Takes a transaction to what its record names: what it was before the command that was run in it last, or
/// where layers were being undone or redone.
pub fn fall_back(app: &App, tx: &mut Transaction) -> Result<(), Failure> {
    end_leftovers(app, tx.dir(), &tx.meta)?;
    Ok(tx.fall_back()?)
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

/// Finishes what died in the middle of a command, an undo or a redo in a pending transaction, and says so. The
/// lock is ours, so that whoever ran it is gone.
pub fn take_back(app: &App, tx: &mut Transaction) -> Result<(), Failure> {
    let Some(before) = tx.meta.before.clone() else { return Ok(()) };
    fall_back(app, tx)?;
    let id = tx.id();
    match before.command {
        Some(_) => app.say(format_args!(
            "recovered: the last command in {id} was interrupted; {id} is as it was before it"
        )),
        None => app.say(format_args!(
            "recovered: an undo or redo in {id} was interrupted, and is complete now: it is at layer {}",
            tx.meta.stack.at
        )),
    }
    Ok(())
}

/// Takes hold of a pending transaction as soon as nobody else has it: a command that runs in it ends, or a
/// look at it.
pub fn load_in_turn(
    app: &App,
    home: &Home,
    id: TxId,
    wait: WaitArgs,
) -> Result<Transaction, Failure> {
    let began = Instant::now();
    let mut said = false;
    // Whoever else waits may be first when it is free.
    let tx = loop {
        if let Some(tx) = home.load_unless_held(id)? {
            break tx;
        }
        let waited = began.elapsed();
        if waited >= wait.patience() {
            return Err(Failure::new(format!(
                "a command runs in {id}, and did not end within {} s; wait for longer with --wait, or end it; \
                 nothing changed",
                wait.seconds
            )));
        }
        if !said && waited >= SAY_AFTER {
            said = true;
            app.say(format_args!("waiting for the command that runs in {id} to end"));
        }
        std::thread::sleep(LOOK_AGAIN);
    };
    in_order(app, home, tx)
}

/// Takes hold of a pending transaction. A process that only looks whether somebody has it, or at what it holds, has it for a moment.
pub fn load(app: &App, home: &Home, id: TxId) -> Result<Transaction, Failure> {
    let began = Instant::now();
    let tx = loop {
        match home.load_unless_held(id)? {
            Some(tx) => break tx,
            None if began.elapsed() < LOOK_MAX => std::thread::sleep(LOOK_AGAIN),
            None => break home.load(id)?,
        }
    };
    in_order(app, home, tx)
}

/// A transaction that is held, if it is pending: recovered, if a command in it was interrupted.
fn in_order(app: &App, home: &Home, mut tx: Transaction) -> Result<Transaction, Failure> {
    let id = tx.id();
    tx.meta.check_same_rights()?;
    if Home::falls_back(&tx.meta) {
        take_back(app, &mut tx)?;
    }
    let advice = match TxStatus::of(home, &tx.meta) {
        TxStatus::Pending => {
            txos_engine::commit::put_in_order(home, &mut tx)?;
            return Ok(tx);
        }
        // Held by ourselves now, so whoever ran it is gone.
        TxStatus::Active | TxStatus::Dead => {
            "its txos process is gone in the middle; `txos abort` removes what it left"
        }
        TxStatus::Lost => {
            "it was kept with --no-durable and the machine has restarted since, so its private \
             copies can't be trusted; `txos abort` removes them"
        }
        TxStatus::Committed => "it is published already; `txos revert` undoes it",
        TxStatus::Reverted => "it was published and undone",
    };
    let state = TxStatus::of(home, &tx.meta).to_string();
    Err(Error::WrongState { id, state, advice: advice.into() }.into())
}
