//! `txos undo` and `txos redo`: layers of a pending transaction taken back, and put back.

use txos_engine::show::quoted;
use txos_engine::store::{Home, Meta, StackLayer, Transaction};

use crate::app::App;
use crate::args::UndoArgs;
use crate::exit::Failure;
use crate::log::command_line;
use crate::pick::{Wanted, pick};
use crate::report::Outcome;
use crate::signals::Deferred;
use crate::{keep, trash};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Take back.
    Undo,
    /// Put back.
    Redo,
}

/// Does it.
pub fn undo(app: &App, args: &UndoArgs, way: Way) -> Result<u8, Failure> {
    let home = app.open_recovered()?;
    let id = pick(&home, &args.id, Wanted::Pending)?;
    app.report.note(|report| report.of(id));
    let mut tx = keep::load_in_turn(app, &home, id, args.wait)?;
    let stack = tx.meta.stack_or_first();
    let at = stack.at;
    let to = match way {
        Way::Undo => at.checked_sub(args.count),
        Way::Redo => Some(at.saturating_add(args.count)).filter(|_| args.count <= stack.undone()),
    };
    let Some(to) = to else { return Err(refused(&tx.meta, way, at, stack.undone())) };
    let moved = {
        // Halfway it would be left to the next who touches it.
        let _signals = Deferred::begin();
        tx.go_to(to)
    };
    if let Err(error) = moved {
        let failure = Failure::from(error);
        drop(tx);
        let under_way = home.meta(id).is_ok_and(|meta| Home::falls_back(&meta));
        return Err(failure.with_aftermath(&match under_way {
            true => format!("the next command that touches {id} finishes it"),
            false => format!("{id} is as it was"),
        }));
    }
    let outcome = if way == Way::Undo { Outcome::Undone } else { Outcome::Redone };
    app.report.note(|report| report.ended(outcome, None));
    tell(app, &tx, way, at, to);
    if tx.discard_unnamed().is_ok() {
        trash::clear(app, &home);
    }
    Ok(0)
}

fn refused(meta: &Meta, way: Way, undoable: u32, redoable: u32) -> Failure {
    let id = meta.id;
    let layers = |n: u32| if n == 1 { "1 layer".to_owned() } else { format!("{n} layers") };
    Failure::new(match way {
        Way::Undo if undoable == 0 => format!(
            "{id} has nothing to undo: no layer is left (`txos abort {id}` discards the transaction); nothing \
             changed"
        ),
        Way::Undo => format!("{id} has only {} to undo; nothing changed", layers(undoable)),
        Way::Redo if redoable == 0 => {
            format!(
                "{id} has nothing to redo: nothing was undone since its last command; nothing changed"
            )
        }
        Way::Redo => format!("{id} has only {} to redo; nothing changed", layers(redoable)),
    })
}

fn tell(app: &App, tx: &Transaction, way: Way, at: u32, to: u32) {
    let (low, high) = (at.min(to), at.max(to));
    let layers = &tx.meta.stack.layers;
    let which = match high - low {
        1 => format!("layer {high}"),
        n => format!("{n} layers, {} to {high}", low + 1),
    };
    let shown = |layer: &StackLayer| command_line(&layer.command);
    let command = match (high - low, layers.get(low as usize)) {
        (1, Some(layer)) => format!(" ({})", shown(layer)),
        _ => String::new(),
    };
    let id = tx.id();
    let done = if way == Way::Undo { "undone" } else { "redone" };
    let back = match tx.meta.stack.undone() {
        0 => String::new(),
        1 => format!("; `txos redo {id}` puts it back"),
        _ => format!("; `txos redo {id} -n {}` puts all of them back", tx.meta.stack.undone()),
    };
    let style = app.err.id();
    app.say(format_args!(
        "{done}: {which} of {style}{id}{style:#}{command}; it is at layer {to} of {}{back}",
        layers.len()
    ));
}

/// What ran inside, one a line, in order.
pub fn write_inside(
    out: &mut dyn std::io::Write,
    meta: &Meta,
    paint: crate::style::Paint,
) -> std::io::Result<()> {
    let stack = meta.stack_or_first();
    let mut first = true;
    for record in &meta.inside {
        let Some(layer) = record.layer_in(&stack) else { continue };
        if std::mem::take(&mut first) {
            writeln!(out)?;
            writeln!(out, "Inside:")?;
        }
        let undone = layer >= stack.at as usize;
        let gone = undone || !record.succeeded;
        let faint = if gone { paint.faint() } else { paint.plain() };
        let paths = match record.succeeded {
            true => crate::changes::paths(record.changes),
            false => "rolled back".to_owned(),
        };
        let name = record.name.as_ref().map(|name| format!("{}: ", quoted(name.as_ref())));
        let status = match record.exit_status {
            Some(0) | None => String::new(),
            Some(status) => format!(" (status {status})"),
        };
        let mark = if undone { " (undone)" } else { "" };
        writeln!(
            out,
            "{faint}{:>4}  {}  {paths:>11}  {}{}{status}{mark}{faint:#}",
            layer + 1,
            crate::log::date(record.ended),
            name.unwrap_or_default(),
            command_line(&record.command)
        )?;
    }
    Ok(())
}

/// The layers, one a line, the last one first.
pub fn write_layers(
    out: &mut dyn std::io::Write,
    meta: &Meta,
    paint: crate::style::Paint,
) -> std::io::Result<()> {
    let stack = &meta.stack;
    if stack.layers.len() < 2 && stack.layers.iter().all(|layer| layer.joined.is_empty()) {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(out, "Layers:")?;
    for (index, layer) in stack.layers.iter().enumerate().rev() {
        let undone = index >= stack.at as usize;
        let faint = if undone { paint.faint() } else { paint.plain() };
        let when = layer.ended.or(meta.ended).map(crate::log::date).unwrap_or_default();
        let paths = layer.counts.map(crate::changes::paths).unwrap_or_default();
        let status = match layer.exit_status {
            Some(0) | None => String::new(),
            Some(status) => format!(" (status {status})"),
        };
        let mark = if undone { " (undone)" } else { "" };
        writeln!(
            out,
            "{faint}{:>4}  {when}  {paths:>10}  {}{status}{mark}{faint:#}",
            index + 1,
            command_line(&layer.command)
        )?;
        // What a layer of several commands changed can't be told apart.
        for ran in layer.joined.iter().skip(1) {
            writeln!(out, "{faint}{:39}{}{faint:#}", "", command_line(&ran.command))?;
        }
    }
    Ok(())
}
