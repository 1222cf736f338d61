//! `txos merge`: what other pending transactions change, as layers of one.

use txos_engine::changeset::{ChangeSet, layer_entries};
use txos_engine::show::quoted;
use txos_engine::store::{Command, Home, Transaction};
use txos_engine::version::Stamp;
use txos_engine::{Error, TxId};

use crate::app::{App, tell};
use crate::args::MergeArgs;
use crate::exit::{CONFLICT, Failure};
use crate::pick::{Wanted, pick};
use crate::signals::Deferred;
use crate::{keep, space, trash};

/// Merges them, one after the other.
pub fn merge(app: &App, args: &MergeArgs) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Pending)?;
    let others: Vec<TxId> = args
        .others
        .iter()
        .map(|other| pick(&home, other, Wanted::Pending))
        .collect::<Result<_, _>>()?;
    let mut all = others.clone();
    all.push(id);
    all.sort();
    if all.windows(2).any(|two| two.first() == two.last()) {
        return Err(Failure::new(
            "a transaction can't be merged with itself, or twice; nothing changed",
        ));
    }
    let mut tx = keep::load_in_turn(app, &home, id, args.wait)?;
    for other in others {
        let other = keep::load_in_turn(app, &home, other, args.wait)?;
        merge_one(app, &home, &mut tx, other)?;
    }
    space::note(app, &home, id);
    Ok(0)
}

fn merge_one(
    app: &App,
    home: &Home,
    tx: &mut Transaction,
    mut other: Transaction,
) -> Result<(), Failure> {
    let (id, from) = (tx.id(), other.id());
    let command = Command {
        words: vec!["txos".into(), "merge".into(), id.to_string(), from.to_string()],
        directory: std::env::current_dir().unwrap_or_default(),
        arguments_hidden: false,
        begun: Some(Stamp::now()),
        changes: None,
        is_same: false,
    };
    // Halfway it would be left to the next process that touches it.
    let signals = Deferred::begin();
    let layers = tx.meta.stack.layers.len();
    if let Err(error) = txos_engine::changeset::merge(tx, &mut other, command) {
        let lost = tx.meta.stack.layers.len() < layers;
        return Err(refused(home, tx, &other, error, lost));
    }
    number(tx)?;
    trash::discard(app, home, other);
    drop(signals);
    let counts = ChangeSet::read(tx, &tx.load_reads()?, &[])?.counts();
    tx.meta.changes = Some(counts.total());
    if let Some(layer) = tx.meta.stack.layers.last_mut() {
        layer.changes = Some(counts.total());
    }
    tx.save(tx.meta.durable)?;
    if tx.discard_unnamed().is_ok() {
        trash::clear(app, home);
    }
    let style = app.err.id();
    app.say(format_args!(
        "merged {from} into {style}{id}{style:#}, which changes {} now; `txos undo {id}` takes it out again",
        crate::changes::paths(counts.total())
    ));
    Ok(())
}

/// Notes how many paths the new layer changes.
fn number(tx: &mut Transaction) -> Result<(), Failure> {
    let entries = layer_entries(tx, tx.meta.stack.at)?;
    if let Some(layer) = tx.meta.stack.layers.last_mut() {
        layer.counts = u64::try_from(entries.len()).ok();
    }
    Ok(())
}

/// `lost`: what could be redone can't be any more.
fn refused(
    home: &Home,
    tx: &Transaction,
    other: &Transaction,
    error: Error,
    lost: bool,
) -> Failure {
    let (id, from) = (tx.id(), other.id());
    let conflicts = match error {
        Error::Conflict(conflicts) => conflicts,
        error => {
            let under_way = home.meta(id).is_ok_and(|meta| Home::falls_back(&meta));
            return Failure::from(error).with_aftermath(&match under_way {
                true => {
                    format!("the next command that touches {id} finishes it; {from} is as it was")
                }
                false if lost => format!(
                    "{id} and {from} are as they were, but what was undone in {id} can't be redone any more"
                ),
                false => format!("{id} and {from} are as they were"),
            });
        }
    };
    let advice = match &other.meta.fork {
        Some(fork) => {
            format!("run its command in {of} (`txos exec {of}`), or drop it", of = fork.of)
        }
        None => "commit one, and `txos rebase` the other".to_owned(),
    };
    tell(format_args!(
        "txos: conflict: {from} can't be merged into {id}; both are as they were; {advice}"
    ));
    for conflict in &conflicts {
        let (path, what) = (quoted(&conflict.path), &conflict.what);
        tell(format_args!("  {path}: {what}"));
    }
    Failure::Status(CONFLICT)
}
