//! A correct system: transactions take effect one at a time, each at some instant between its
//! invocation and its completion; of those that are killed some never do, and some long after.

use std::collections::{BTreeMap, HashMap};

use super::super::{History, NEVER, Op, Outcome, Transaction};
use crate::random::Random;

/// How large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) transactions: usize,
    pub(super) processes: u64,
    /// In use at a time. Even ones are lists.
    pub(super) keys: u64,
    /// Operations of one transaction, at most.
    pub(super) ops: u64,
    /// Writes to a key before another takes its place.
    pub(super) writes: u64,
    /// Of a hundred transactions those that abort, and those that are killed.
    pub(super) aborts: u64,
    pub(super) kills: u64,
}

pub(super) const SMALL: Size =
    Size { transactions: 300, processes: 6, keys: 6, ops: 5, writes: 12, aborts: 10, kills: 5 };

/// What a process is at.
enum State {
    Idle,
    Invoked(usize),
    Done(usize),
}

struct Simulation {
    random: Random,
    size: Size,
    now: u64,
    transactions: Vec<Transaction>,
    /// The keys in use, and how often each was written.
    keys: Vec<(u64, u64)>,
    lists: HashMap<u64, Vec<u64>>,
    registers: HashMap<u64, u64>,
    orders: BTreeMap<u64, Vec<u64>>,
    /// Killed, may still take effect.
    killed: Vec<usize>,
    values: u64,
}

/// A history of such a system, with the order of the registers' versions.
pub(super) fn simulate(seed: u64, size: Size) -> History {
    let mut simulation = Simulation {
        random: Random::new(seed),
        size,
        now: 0,
        transactions: Vec::with_capacity(size.transactions),
        keys: (0..size.keys).map(|key| (key, 0)).collect(),
        lists: HashMap::new(),
        registers: HashMap::new(),
        orders: BTreeMap::new(),
        killed: Vec::new(),
        values: 0,
    };
    simulation.run();
    History { transactions: simulation.transactions, orders: simulation.orders }
}

impl Simulation {
    fn run(&mut self) {
        let mut processes: Vec<(u64, State)> =
            (0..self.size.processes).map(|process| (process, State::Idle)).collect();
        let mut fresh = self.size.processes;
        while self.transactions.len() < self.size.transactions
            || processes.iter().any(|(_, state)| !matches!(state, State::Idle))
        {
            // Now and then two things happen in the same instant.
            self.now += self.random.below(8).min(1);
            let n = self.random.below(processes.len() as u64) as usize;
            let (process, state) = &mut processes[n];
            let kills = self.random.below(100) < self.size.kills;
            *state = match *state {
                State::Idle if self.transactions.len() == self.size.transactions => continue,
                State::Idle => State::Invoked(self.invoke(*process)),
                State::Invoked(at) | State::Done(at) if kills => {
                    if matches!(state, State::Invoked(_)) {
                        self.killed.push(at);
                    }
                    self.transactions[at].ops.retain(|op| op.written().is_some());
                    self.transactions[at].outcome = Outcome::Indeterminate;
                    *process = fresh;
                    fresh += 1;
                    State::Idle
                }
                State::Invoked(at) => {
                    let commits = self.random.below(100) >= self.size.aborts;
                    self.perform(at, commits);
                    State::Done(at)
                }
                State::Done(at) => {
                    self.transactions[at].completed = self.now;
                    self.now += 1;
                    State::Idle
                }
            };
            if !self.killed.is_empty() && self.random.below(50) == 0 {
                let n = self.random.below(self.killed.len() as u64) as usize;
                let at = self.killed.swap_remove(n);
                self.perform(at, true);
                self.transactions[at].outcome = Outcome::Indeterminate;
            }
        }
    }

    fn invoke(&mut self, process: u64) -> usize {
        let mut ops = Vec::new();
        for _ in 0..=self.random.below(self.size.ops) {
            let n = self.random.below(self.size.keys) as usize;
            let (key, writes) = &mut self.keys[n];
            let key = *key;
            let reads = self.random.below(2) == 0;
            if !reads {
                *writes += 1;
                self.values += 1;
                if *writes > self.size.writes {
                    self.keys[n] = (key + self.size.keys, 0);
                }
            }
            ops.push(match (key % 2, reads) {
                (0, true) => Op::ReadList { key, values: Vec::new() },
                (0, false) => Op::Append { key, value: self.values },
                (_, true) => Op::ReadRegister { key, value: 0 },
                (_, false) => Op::Write { key, value: self.values },
            });
        }
        self.transactions.push(Transaction {
            id: self.transactions.len() as u64,
            process,
            invoked: self.now,
            completed: NEVER,
            outcome: Outcome::Indeterminate,
            ops,
        });
        self.transactions.len() - 1
    }

    fn perform(&mut self, at: usize, commits: bool) {
        let transaction = &mut self.transactions[at];
        let mut lists: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut registers: HashMap<u64, u64> = HashMap::new();
        for op in &mut transaction.ops {
            let key = op.key();
            let mut list = || self.lists.get(&key).cloned().unwrap_or_default();
            match op {
                Op::Append { value, .. } => {
                    lists.entry(key).or_insert_with(&mut list).push(*value);
                }
                Op::ReadList { values, .. } => {
                    *values = lists.get(&key).cloned().unwrap_or_else(list);
                }
                Op::Write { value, .. } => {
                    registers.insert(key, *value);
                    if commits {
                        self.orders.entry(key).or_default().push(*value);
                    }
                }
                Op::ReadRegister { value, .. } => {
                    let stable = self.registers.get(&key).copied().unwrap_or(0);
                    *value = registers.get(&key).copied().unwrap_or(stable);
                }
            }
        }
        transaction.outcome = if commits { Outcome::Committed } else { Outcome::Aborted };
        if commits {
            self.lists.extend(lists);
            self.registers.extend(registers);
        }
    }
}
