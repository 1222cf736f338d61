//! What the checker is told of directories. Each name is made once, so it is a register of its own:
//! 0 before it is made, 1 when it is there, and, when it was removed, a mark of who removed it.
//! Whoever lists a directory reads the registers of all the names that it ever had.
//!
//! Participants log the making of a name as an append to the set, listing as reading the set, and
//! removal as a write to the name. Who finds a name missing can't tell whether it is not there yet or
//! no longer. Where times and outcomes do not tell either, that is left out: nothing is guessed, so
//! whatever the checker reports is wrong.

use std::collections::HashMap;

use crate::history::{History, Op, Outcome, Transaction};

use super::keys::{self, Kind};
use super::plan::of_name;

/// What is there.
const THERE: u64 = 1;

/// Who made a name, and who may have removed it: mark and transaction.
#[derive(Default)]
struct Life {
    made: Option<usize>,
    /// Nobody knows whether it was: it is the new name of what another name may not have been any
    /// more, and whose transaction was killed before it could say what it found.
    doubtful: bool,
    removals: Vec<(u64, usize)>,
}

struct Names<'a> {
    all: &'a [Transaction],
    lives: HashMap<u64, Life>,
    /// Of each set its names.
    of_set: HashMap<u64, Vec<u64>>,
}

fn is(key: u64, kind: Kind) -> bool {
    keys::kind(key) == Some(kind)
}

/// A history in which sets are registers.
#[must_use]
pub fn as_registers(history: &History) -> History {
    let mut names =
        Names { all: &history.transactions, lives: HashMap::new(), of_set: HashMap::new() };
    for (n, transaction) in history.transactions.iter().enumerate() {
        let mut before = None;
        for op in &transaction.ops {
            match *op {
                Op::Append { key, value } if is(key, Kind::Set) => {
                    names.of_set.entry(key).or_default().push(value);
                    let life = names.lives.entry(value).or_default();
                    life.made = Some(n);
                    // As a move is logged; see `Step::writes`.
                    life.doubtful = transaction.outcome == Outcome::Indeterminate
                        && matches!(before, Some(&Op::Write { key, .. }) if is(key, Kind::Name));
                }
                Op::Write { key, value } if is(key, Kind::Name) => {
                    let life = names.lives.entry(keys::number(key)).or_default();
                    life.removals.push((value, n));
                }
                _ => {}
            }
            before = Some(op);
        }
    }
    let translated = |transaction: &Transaction| Transaction {
        ops: names.ops(transaction),
        ..transaction.clone()
    };
    History {
        transactions: history.transactions.iter().map(translated).collect(),
        orders: history.orders.clone(),
    }
}

impl Names<'_> {
    fn ops(&self, by: &Transaction) -> Vec<Op> {
        let mut ops: Vec<Op> = Vec::with_capacity(by.ops.len());
        for op in &by.ops {
            match op {
                Op::Append { key, value } if is(*key, Kind::Set) => {
                    ops.push(Op::Write { key: of_name(*value), value: THERE });
                }
                // What aborted ones read does not count.
                Op::ReadList { key, .. }
                    if is(*key, Kind::Set) && by.outcome == Outcome::Aborted => {}
                Op::ReadList { key, values } if is(*key, Kind::Set) => {
                    for value in values {
                        ops.push(Op::ReadRegister { key: of_name(*value), value: THERE });
                    }
                    for value in self.of_set.get(key).into_iter().flatten() {
                        if values.binary_search(value).is_err() {
                            self.absent(by, *value, &mut ops);
                        }
                    }
                }
                Op::ReadRegister { key, value: 0 } if is(*key, Kind::Name) => {
                    self.absent(by, keys::number(*key), &mut ops);
                }
                _ => ops.push(op.clone()),
            }
        }
        ops
    }

    /// A name was not there: which version of it that is, if that is certain.
    fn absent(&self, by: &Transaction, name: u64, ops: &mut Vec<Op>) {
        let key = of_name(name);
        let own = ops.iter().rev().find_map(|op| match op {
            Op::Write { key: written, value } if *written == key => Some(*value),
            _ => None,
        });
        if let Some(own) = own {
            // Unless it made the name itself: then this can't be, and the checker says so.
            let value = if own == THERE { 0 } else { own };
            ops.push(Op::ReadRegister { key, value });
            return;
        }
        let Some(life) = self.lives.get(&name) else { return };
        let Some(made) = life.made.map(|n| &self.all[n]) else { return };
        if made.outcome == Outcome::Aborted || life.doubtful {
            return;
        }
        let mut possible = life.removals.iter().filter(|(_, n)| {
            let other = &self.all[*n];
            other.id != by.id && other.outcome != Outcome::Aborted && other.invoked <= by.end()
        });
        // It was there before this one began.
        let was_there = made.outcome == Outcome::Committed && made.completed < by.invoked;
        match (possible.next(), possible.next()) {
            (None, _) => ops.push(Op::ReadRegister { key, value: 0 }),
            (Some((mark, _)), None) if was_there => {
                ops.push(Op::ReadRegister { key, value: *mark });
            }
            _ => {}
        }
    }
}
