//! A history sorted by keys: who wrote what, and whether it is a history at all.

use std::collections::{HashMap, HashSet};

use super::op::{History, Outcome, Transaction};
use super::report::{Anomaly, Kind, Report};

/// A write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) value: u64,
    /// Which of the history's transactions.
    pub(super) by: usize,
    /// How many writes of its transaction to the key are before it.
    pub(super) place: u32,
    /// Whether it is its transaction's last to the key.
    pub(super) last: bool,
}

/// All writes to a key, whatever became of them.
#[derive(Debug)]
pub(super) struct Key<'a> {
    pub(super) key: u64,
    pub(super) list: bool,
    /// By value.
    pub(super) writes: Vec<Write>,
    /// Whether some are of indeterminate transactions.
    pub(super) doubtful: bool,
    /// The version order that the caller knows.
    pub(super) order: &'a [u64],
    /// Its order can't be told, so there are no edges from it.
    pub(super) broken: bool,
}

impl Key<'_> {
    /// Who wrote a value.
    pub(super) fn write(&self, value: u64) -> Option<&Write> {
        let n = self.writes.binary_search_by_key(&value, |write| write.value).ok()?;
        self.writes.get(n)
    }
}

/// The keys of a history.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    pub(super) keys: Vec<Key<'a>>,
    numbers: HashMap<u64, usize>,
}

impl<'a> Keys<'a> {
    /// Sorts a history, and reports what makes it none, and values written twice.
    pub(super) fn new(history: &'a History, report: &mut Report) -> Self {
        let mut all = Keys { keys: Vec::new(), numbers: HashMap::new() };
        let mut malformed = Malformed { report };
        malformed.stamps(&history.transactions);
        for (by, transaction) in history.transactions.iter().enumerate() {
            for op in &transaction.ops {
                let key = all.enter(op.key(), op.of_list());
                if key.list != op.of_list() {
                    malformed.tell(
                        transaction,
                        &format!("key {} is both a list and a register", key.key),
                    );
                }
                let Some(value) = op.written() else { continue };
                if value == 0 && !key.list {
                    malformed.tell(transaction, &format!("0 is written to key {}", key.key));
                }
                let mut place = 0;
                if let Some(before) = key.writes.last_mut()
                    && before.by == by
                {
                    before.last = false;
                    place = before.place + 1;
                }
                key.writes.push(Write { value, by, place, last: true });
                key.doubtful |= transaction.outcome == Outcome::Indeterminate;
            }
        }
        for key in &mut all.keys {
            key.writes.sort_by_key(|write| write.value);
            if let Some(twice) = key.writes.windows(2).find(|pair| pair[0].value == pair[1].value) {
                let (a, b) =
                    (&history.transactions[twice[0].by], &history.transactions[twice[1].by]);
                malformed.report.add(Anomaly {
                    kind: Kind::DuplicateValue,
                    transactions: vec![a.id, b.id],
                    cycle: Vec::new(),
                    text: format!(
                        "key {}: {} was written by T{} and once more by T{}",
                        key.key, twice[0].value, a.id, b.id
                    ),
                });
                key.broken = true;
            }
        }
        all.take_orders(history, &mut malformed);
        all
    }

    fn enter(&mut self, key: u64, list: bool) -> &mut Key<'a> {
        let number = *self.numbers.entry(key).or_insert_with(|| {
            self.keys.push(Key {
                key,
                list,
                writes: Vec::new(),
                doubtful: false,
                order: &[],
                broken: false,
            });
            self.keys.len() - 1
        });
        &mut self.keys[number]
    }

    /// The number of a key that some operation is about.
    pub(super) fn number(&self, key: u64) -> usize {
        self.numbers[&key]
    }

    fn take_orders(&mut self, history: &'a History, malformed: &mut Malformed<'_>) {
        for (key, order) in &history.orders {
            let Some(number) = self.numbers.get(key) else {
                malformed.order(*key, "which nothing is about");
                continue;
            };
            let entry = &mut self.keys[*number];
            let mut there = HashSet::new();
            if entry.list {
                malformed.order(*key, "which is a list");
            } else if let Some(value) = order.iter().find(|value| entry.write(**value).is_none()) {
                malformed.order(*key, &format!("with {value}, which nobody wrote"));
            } else if let Some(value) = order.iter().find(|value| !there.insert(**value)) {
                malformed.order(*key, &format!("with {value} twice"));
            } else {
                entry.order = order;
            }
        }
    }
}

/// Tells of what makes a history none.
struct Malformed<'a> {
    report: &'a mut Report,
}

impl Malformed<'_> {
    fn tell(&mut self, transaction: &Transaction, what: &str) {
        self.report.add(Anomaly {
            kind: Kind::Malformed,
            transactions: vec![transaction.id],
            cycle: Vec::new(),
            text: format!("T{}: {what}", transaction.id),
        });
    }

    fn order(&mut self, key: u64, what: &str) {
        self.report.add(Anomaly {
            kind: Kind::Malformed,
            transactions: Vec::new(),
            cycle: Vec::new(),
            text: format!("a version order is given for key {key}, {what}"),
        });
    }

    fn stamps(&mut self, transactions: &[Transaction]) {
        let mut ids = HashSet::with_capacity(transactions.len());
        for transaction in transactions {
            if transaction.end() < transaction.invoked {
                self.tell(transaction, "it was complete before it was invoked");
            }
            if !ids.insert(transaction.id) {
                self.tell(transaction, "another transaction has the same id");
            }
        }
    }
}
