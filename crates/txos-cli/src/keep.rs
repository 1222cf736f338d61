//! Pending transactions: kept by `run --keep`, taken up again by `exec`, `diff` and `commit`.

use txos_engine::readset::ReadSet;
use txos_engine::store::{Home, Transaction};
use txos_engine::{Error, TxId, txn};

use crate::app::{App, tell as tell_line};
use crate::changes::Counts;
use crate::commit::end_leftovers;
use crate::exit::Failure;
use crate::tx_status::TxStatus;

/// Makes the transaction pending.
pub fn keep(app: &App, tx: &mut Transaction, reads: &ReadSet, changes: u64) -> Result<(), Failure> {
    Ok(app.with_progress(|progress| txn::keep(tx, reads, changes, progress))?)
}

/// Takes a transaction back to what it was before the command that was run in it last.
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
