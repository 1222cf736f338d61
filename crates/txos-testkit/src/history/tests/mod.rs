//! Tests of the checker: every anomaly by hand, good histories, simulated ones with and without a
//! planted fault, and small ones against all possible orders.

mod bad;
mod exhaustive;
mod good;
mod log;
mod planted;
mod scale;
mod simulate;

use std::collections::BTreeMap;

use super::{Anomaly, History, Kind, Op, Outcome, Transaction, check};

fn append(key: u64, value: u64) -> Op {
    Op::Append { key, value }
}

fn list(key: u64, values: &[u64]) -> Op {
    Op::ReadList { key, values: values.to_vec() }
}

fn write(key: u64, value: u64) -> Op {
    Op::Write { key, value }
}

fn read(key: u64, value: u64) -> Op {
    Op::ReadRegister { key, value }
}

/// A committed transaction of a process of its own.
fn at(id: u64, (invoked, completed): (u64, u64), ops: &[Op]) -> Transaction {
    let outcome = Outcome::Committed;
    Transaction { id, process: 1000 + id, invoked, completed, outcome, ops: ops.to_vec() }
}

/// A committed transaction at the same time as all others like it.
fn meanwhile(id: u64, ops: &[Op]) -> Transaction {
    at(id, (0, 1000), ops)
}

fn aborted(transaction: Transaction) -> Transaction {
    Transaction { outcome: Outcome::Aborted, ..transaction }
}

fn indeterminate(transaction: Transaction) -> Transaction {
    Transaction { outcome: Outcome::Indeterminate, ..transaction }
}

fn history(transactions: &[Transaction]) -> History {
    History { transactions: transactions.to_vec(), orders: BTreeMap::new() }
}

/// The only anomaly of a history.
#[track_caller]
fn only(history: &History, kind: Kind) -> Anomaly {
    let report = check(history);
    assert_eq!(report.anomalies.len(), 1, "{report}");
    assert_eq!(report.anomalies[0].kind, kind, "{report}");
    let anomaly = report.anomalies[0].clone();
    for (n, edge) in anomaly.cycle.iter().enumerate() {
        assert_eq!(edge.to, anomaly.cycle[(n + 1) % anomaly.cycle.len()].from, "{report}");
    }
    anomaly
}

/// Whether the witness is told in these words.
#[track_caller]
fn tells(anomaly: &Anomaly, words: &[&str]) {
    let text = anomaly.to_string();
    for words in words {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
}
