//! What each transaction read from others; and whether its reads agree with what itself wrote and
//! had read before.

use std::collections::HashMap;

use super::effect::Effects;
use super::graph::Node;
use super::keys::Keys;
use super::op::{Op, Transaction};
use super::report::{Anomaly, Kind, Report};

/// A read that agrees with its own transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read<'a> {
    pub(super) by: Node,
    /// What it found; of a register nothing, if it was the initial value.
    pub(super) found: &'a [u64],
    /// How many of them are from others; the rest are its own appends.
    pub(super) others: usize,
    /// Whether it is its transaction's first of the key.
    pub(super) first: bool,
}

impl Read<'_> {
    /// The value that tells the version it read, if any was there.
    pub(super) fn version(&self) -> Option<u64> {
        self.others.checked_sub(1).map(|n| self.found[n])
    }
}

/// What a transaction knows of a key.
#[derive(Debug, Default)]
struct Known<'a> {
    /// From others.
    found: Option<&'a [u64]>,
    /// By itself, until now.
    written: Vec<u64>,
    /// It has disagreed already.
    wrong: bool,
}

/// Of each key the reads of all that took effect.
pub(super) fn reads<'a>(
    keys: &Keys<'_>,
    effects: &Effects<'a>,
    report: &mut Report,
) -> Vec<Vec<Read<'a>>> {
    let mut reads = vec![Vec::new(); keys.keys.len()];
    for by in effects.all() {
        let transaction = effects.transaction(by);
        let mut known: HashMap<usize, Known<'a>> = HashMap::new();
        for (n, op) in transaction.ops.iter().enumerate() {
            let number = keys.number(op.key());
            let known = known.entry(number).or_default();
            if let Some(value) = op.written() {
                known.written.push(value);
                continue;
            }
            let Some(found) = op.found() else { continue };
            if known.wrong {
                continue;
            }
            let first = known.found.is_none();
            match known.agree(op, found, &transaction.ops[n..]) {
                Ok(Some(others)) => reads[number].push(Read { by, found, others, first }),
                Ok(None) => {}
                Err(what) => {
                    known.wrong = true;
                    report.add(wrong(transaction, op, found, &what));
                }
            }
        }
    }
    reads
}

fn wrong(transaction: &Transaction, op: &Op, found: &[u64], what: &str) -> Anomaly {
    let found = match op {
        Op::ReadRegister { value, .. } => format!("{value}"),
        _ => format!("{found:?}"),
    };
    Anomaly {
        kind: Kind::Internal,
        transactions: vec![transaction.id],
        cycle: Vec::new(),
        text: format!("key {}: T{} read {found}, {what}", op.key(), transaction.id),
    }
}

impl<'a> Known<'a> {
    /// How many of the values found are from others; nothing, if the transaction read its own.
    fn agree(&mut self, op: &Op, found: &'a [u64], rest: &[Op]) -> Result<Option<usize>, String> {
        let others = if op.of_list() {
            let Some(others) = found.strip_suffix(self.written.as_slice()) else {
                return Err(format!("but had appended {:?}", self.written));
            };
            others
        } else if let Some(last) = self.written.last() {
            if found != [*last] {
                return Err(format!("but had written {last}"));
            }
            return Ok(None);
        } else {
            found
        };
        match self.found {
            None => self.found = Some(others),
            Some(before) if before == others => {}
            Some([]) => return Err("but had found nothing there before".to_owned()),
            Some(before) => return Err(format!("but had found {before:?} before")),
        }
        let later = rest.iter().filter(|later| later.key() == op.key()).filter_map(Op::written);
        match self.written.iter().copied().chain(later).find(|own| others.contains(own)) {
            Some(own) => Err(format!("where its own {own} can't be yet")),
            None => Ok(Some(others.len())),
        }
    }
}
