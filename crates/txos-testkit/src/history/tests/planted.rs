//! Simulated histories: nothing is found in them, and what is planted into them is.

use super::super::{Kind, NEVER};
use super::simulate::{SMALL, Size, simulate};
use super::*;
use crate::random::Random;

/// Histories of each test.
const ROUNDS: u64 = 200;

#[test]
fn correct_systems_are_clean() {
    for seed in 0..ROUNDS {
        let few = Size { keys: 2, processes: 12, ..SMALL };
        let calm = Size { aborts: 0, kills: 0, writes: 40, ..SMALL };
        for size in [SMALL, few, calm] {
            let history = simulate(seed, size);
            let report = check(&history);
            assert!(report.is_clean(), "seed {seed}, {size:?}, order known: {report}");
            let report = check(&without_order(history));
            assert!(report.is_clean(), "seed {seed}, {size:?}: {report}");
            assert!(report.summary.ww > 0 && report.summary.wr > 0 && report.summary.rw > 0);
        }
    }
}

fn without_order(history: History) -> History {
    History { orders: BTreeMap::new(), ..history }
}

/// Where an operation is.
type At = (usize, usize);

/// All reads of committed transactions.
fn reads(history: &History) -> Vec<At> {
    let mut all = Vec::new();
    for (n, transaction) in history.transactions.iter().enumerate() {
        if transaction.outcome == Outcome::Committed {
            let ops = transaction.ops.iter().enumerate();
            all.extend(ops.filter(|(_, op)| op.found().is_some()).map(|(m, _)| (n, m)));
        }
    }
    all
}

fn writer(history: &History, key: u64, value: u64) -> Option<&Transaction> {
    let wrote = |op: &Op| op.key() == key && op.written() == Some(value);
    history.transactions.iter().find(|transaction| transaction.ops.iter().any(wrote))
}

/// Plants a fault where it can be, at a random one of the places; whether there was any.
fn planted(history: &mut History, seed: u64, fault: impl Fn(&History, At) -> Option<Op>) -> bool {
    let all = reads(history);
    let places: Vec<(At, Op)> =
        all.into_iter().filter_map(|at| Some((at, fault(history, at)?))).collect();
    if places.is_empty() {
        return false;
    }
    let ((n, m), op) = Random::new(seed).pick(&places).clone();
    history.transactions[n].ops[m] = op;
    true
}

#[track_caller]
fn always_found(name: &str, fault: impl Fn(&History, At) -> Option<Op>) {
    let mut rounds = 0;
    for seed in 0..ROUNDS {
        let mut history = without_order(simulate(seed, SMALL));
        if planted(&mut history, seed, &fault) {
            rounds += 1;
            assert!(!check(&history).is_clean(), "{name}, seed {seed}: not found");
        }
    }
    assert!(rounds > ROUNDS / 2, "{name}: planted in {rounds} only");
}

/// The list read at a place, if another transaction has read as much of it.
fn shared_list(history: &History, (n, m): At) -> Option<(u64, Vec<u64>)> {
    let Op::ReadList { key, values } = &history.transactions[n].ops[m] else { return None };
    let shared = history.transactions.iter().enumerate().any(|(other, transaction)| {
        other != n
            && transaction.outcome == Outcome::Committed
            && transaction.ops.iter().any(
                |op| matches!(op, Op::ReadList { key: k, values: v } if k == key && v.starts_with(values)),
            )
    });
    shared.then(|| (*key, values.clone()))
}

#[test]
fn swapped_elements() {
    always_found("swap", |history, at| {
        let (key, mut values) = shared_list(history, at)?;
        let last = values.len().checked_sub(2)?;
        values.swap(last, last + 1);
        Some(Op::ReadList { key, values })
    });
}

#[test]
fn dropped_element() {
    always_found("an element but the last", |history, at| {
        let (key, mut values) = shared_list(history, at)?;
        (values.len() >= 2).then(|| values.remove(values.len() / 2 - 1))?;
        Some(Op::ReadList { key, values })
    });
    always_found("the last element", |history, at| {
        let transaction = &history.transactions[at.0];
        let Op::ReadList { key, values } = &transaction.ops[at.1] else { return None };
        let mut values = values.clone();
        let last = values.pop()?;
        let end = writer(history, *key, last)?.end();
        (end < transaction.invoked).then_some(Op::ReadList { key: *key, values })
    });
}

#[test]
fn stale_register() {
    always_found("stale", |history, at| {
        let transaction = &history.transactions[at.0];
        let Op::ReadRegister { key, value } = transaction.ops[at.1] else { return None };
        let newest = writer(history, key, value)?;
        if newest.end() >= transaction.invoked {
            return None;
        }
        let older = history.transactions.iter().find(|older| {
            older.outcome == Outcome::Committed
                && older.end() < newest.invoked
                && older.ops.iter().any(|op| op.key() == key && op.written().is_some())
        })?;
        let value = older.ops.iter().rev().filter(|op| op.key() == key).find_map(Op::written)?;
        Some(Op::ReadRegister { key, value })
    });
}

#[test]
fn aborted_value() {
    always_found("aborted", |history, at| {
        let mut op = history.transactions[at.0].ops[at.1].clone();
        let aborted = history.transactions.iter().filter(|t| t.outcome == Outcome::Aborted);
        let written = aborted.flat_map(|t| &t.ops).filter(|w| w.key() == op.key());
        let new = written.filter_map(Op::written).next()?;
        match &mut op {
            Op::ReadList { values, .. } => values.push(new),
            Op::ReadRegister { value, .. } => *value = new,
            _ => return None,
        }
        Some(op)
    });
}

#[test]
fn garbage_value() {
    always_found("garbage", |history, at| {
        let mut op = history.transactions[at.0].ops[at.1].clone();
        match &mut op {
            Op::ReadList { values, .. } => values.push(NEVER),
            Op::ReadRegister { value, .. } => *value = NEVER,
            _ => return None,
        }
        Some(op)
    });
}

#[test]
fn rolled_back_after_being_seen() {
    let mut found = 0;
    for seed in 0..ROUNDS {
        let mut history = without_order(simulate(seed, SMALL));
        let (n, m) = *Random::new(seed).pick(&reads(&history));
        let op = &history.transactions[n].ops[m];
        let Some(value) = op.found().and_then(|found| found.last()) else { continue };
        let seen = writer(&history, op.key(), *value).unwrap().id as usize;
        if seen == n {
            continue;
        }
        history.transactions[seen].outcome = Outcome::Aborted;
        history.transactions[seen].completed = NEVER;
        let report = check(&history);
        assert!(report.kinds().contains(&Kind::G1a), "seed {seed}: {report}");
        found += 1;
    }
    assert!(found > ROUNDS / 2);
}

#[test]
fn clocks_that_disagree() {
    // One process's stamps are late by much: what it read was long overwritten then.
    let mut found = 0;
    for seed in 0..ROUNDS {
        let mut history = without_order(simulate(seed, Size { aborts: 0, kills: 0, ..SMALL }));
        for transaction in history.transactions.iter_mut().filter(|t| t.process == 0) {
            transaction.invoked += 50;
            transaction.completed += 50;
        }
        let kinds = check(&history).kinds();
        assert!(kinds.iter().all(|kind| *kind >= Kind::G0Realtime || *kind == Kind::LostAppend));
        found += u64::from(!kinds.is_empty());
    }
    assert!(found > ROUNDS * 9 / 10, "{found}");
}
