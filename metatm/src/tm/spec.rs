//! The executable specification: the same transactional memory, written so that one sees that it is right. Each transaction works in
//! a whole copy of memory, and sets are sets of bytes. Random programs run on both and must see the same.
//!
//! It knows two policies, by age and by size, and neither time nor caches.

use std::collections::{BTreeMap, BTreeSet};

use super::policy::Policy;

/// What an access gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The byte that was there.
    Byte(u8),
    /// The transaction lost.
    Lost,
}

#[derive(Clone, Debug)]
struct Tx {
    hart: usize,
    number: u64,
    born: u64,
    depth: u32,
    restarts: u32,
    doomed: bool,
    copy: Vec<u8>,
    reads: BTreeSet<usize>,
    writes: BTreeSet<usize>,
}

/// The specification.
#[derive(Debug)]
pub struct Spec {
    policy: Policy,
    size_restarts: u32,
    /// What is committed.
    memory: Vec<u8>,
    txs: BTreeMap<u64, Tx>,
    current: Vec<Option<u64>>,
    stacks: Vec<Vec<Option<u64>>>,
    next: u64,
}

impl Spec {
    /// Memory of so many bytes, for so many harts.
    #[must_use]
    pub fn new(bytes: usize, harts: usize, policy: Policy, size_restarts: u32) -> Spec {
        Spec {
            policy,
            size_restarts,
            memory: vec![0; bytes],
            txs: BTreeMap::new(),
            current: vec![None; harts],
            stacks: vec![Vec::new(); harts],
            next: 1,
        }
    }

    /// `xbegin`.
    pub fn begin(&mut self, hart: usize, now: u64) {
        if let Some(tx) = self.current[hart].and_then(|n| self.txs.get_mut(&n)) {
            tx.depth += 1;
            return;
        }
        let number = self.next;
        self.next += 1;
        let tx = Tx {
            hart,
            number,
            born: now,
            depth: 1,
            restarts: 0,
            doomed: false,
            copy: self.memory.clone(),
            reads: BTreeSet::new(),
            writes: BTreeSet::new(),
        };
        self.txs.insert(number, tx);
        self.current[hart] = Some(number);
    }

    /// `xend`: whether that was a commit.
    pub fn end(&mut self, hart: usize) -> Option<bool> {
        let number = self.current[hart]?;
        let tx = self.txs.get_mut(&number)?;
        tx.depth -= 1;
        if tx.depth > 0 {
            return Some(false);
        }
        let tx = self.txs.remove(&number)?;
        for at in tx.writes {
            self.memory[at] = tx.copy[at];
        }
        self.current[hart] = None;
        Some(true)
    }

    /// `xpush`.
    pub fn push(&mut self, hart: usize) {
        let current = self.current[hart].take();
        self.stacks[hart].push(current);
    }

    /// `xpop`.
    pub fn pop(&mut self, hart: usize) {
        self.current[hart] = self.stacks[hart].pop().flatten();
    }

    /// Whether the hart's transaction must start again.
    #[must_use]
    pub fn doomed(&self, hart: usize) -> bool {
        self.current[hart].and_then(|n| self.txs.get(&n)).is_some_and(|tx| tx.doomed)
    }

    /// The next attempt.
    pub fn restart(&mut self, hart: usize) {
        let memory = self.memory.clone();
        if let Some(tx) = self.current[hart].and_then(|n| self.txs.get_mut(&n)) {
            tx.doomed = false;
            tx.depth = 1;
            tx.restarts += 1;
            tx.copy = memory;
        }
    }

    /// An access to a byte.
    pub fn access(&mut self, hart: usize, at: usize, write: Option<u8>) -> Outcome {
        let own = self.current[hart];
        let others: Vec<u64> = self
            .txs
            .values()
            .filter(|tx| Some(tx.number) != own && !tx.doomed)
            .filter(|tx| tx.writes.contains(&at) || write.is_some() && tx.reads.contains(&at))
            .map(|tx| tx.number)
            .collect();
        if let Some(own) = own
            && others.iter().any(|&other| !self.wins(own, other, hart))
        {
            self.lose(own);
            return Outcome::Lost;
        }
        for other in others {
            self.lose(other);
        }
        let Some(tx) = own.and_then(|n| self.txs.get_mut(&n)) else {
            let old = self.memory[at];
            if let Some(byte) = write {
                self.memory[at] = byte;
            }
            return Outcome::Byte(old);
        };
        if !tx.writes.contains(&at) {
            // Others may have committed since the copy was made: what is not in the sets is not protected.
            tx.copy[at] = self.memory[at];
        }
        let old = tx.copy[at];
        match write {
            Some(byte) => {
                tx.writes.insert(at);
                tx.copy[at] = byte;
            }
            None => {
                tx.reads.insert(at);
            }
        }
        Outcome::Byte(old)
    }

    fn wins(&self, own: u64, other: u64, hart: usize) -> bool {
        let (Some(own), Some(other)) = (self.txs.get(&own), self.txs.get(&other)) else {
            return true;
        };
        if other.hart == hart {
            return true;
        }
        let older = (own.born, own.number) < (other.born, other.number);
        let size = |tx: &Tx| tx.reads.union(&tx.writes).count();
        let by_age = self.policy == Policy::Timestamp
            || own.restarts > self.size_restarts
            || other.restarts > self.size_restarts
            || size(own) == size(other);
        if by_age { older } else { size(own) > size(other) }
    }

    fn lose(&mut self, number: u64) {
        if let Some(tx) = self.txs.get_mut(&number) {
            tx.doomed = true;
            tx.reads.clear();
            tx.writes.clear();
        }
    }

    /// What memory holds: what is committed, and what transactions have written in place.
    #[must_use]
    pub fn in_place(&self) -> Vec<u8> {
        let mut memory = self.memory.clone();
        for tx in self.txs.values() {
            for &at in &tx.writes {
                memory[at] = tx.copy[at];
            }
        }
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::hart::Hart;
    use crate::machine::ram::{BASE, Ram};
    use crate::tm::policy::Figures;
    use crate::tm::{Access, Config, Refused, Tm};

    const BYTES: usize = 24;
    const HARTS: usize = 4;

    struct Pair {
        spec: Spec,
        tm: Tm,
        ram: Ram,
        harts: Vec<Hart>,
        now: u64,
    }

    impl Pair {
        fn new(policy: Policy, seed: u64) -> Pair {
            let config = Config {
                policy,
                early_release: false,
                figures: Figures { size_restarts: 3, ..Figures::default() },
                seed,
                ..Config::default()
            };
            Pair {
                spec: Spec::new(BYTES, HARTS, policy, 3),
                tm: Tm::new(config, HARTS),
                ram: Ram::new(4096),
                harts: (0..HARTS).map(Hart::new).collect(),
                now: 0,
            }
        }

        fn restart_if_doomed(&mut self, hart: usize) {
            assert_eq!(self.tm.doomed(hart).is_some(), self.spec.doomed(hart), "hart {hart}");
            if self.spec.doomed(hart) {
                self.spec.restart(hart);
                assert!(self.tm.restart(hart, self.now, crate::tm::Mark::default()).is_some());
            }
        }

        fn access(&mut self, hart: usize, at: usize, write: Option<u8>) {
            let access = Access {
                hart,
                at: BASE + at as u64,
                len: 1,
                write: write.is_some(),
                pc: 0,
                now: self.now,
            };
            let got = match self.tm.access(&mut self.ram, &access) {
                Ok(()) => {
                    let old = self.ram.load(access.at, 1) as u8;
                    if let Some(byte) = write {
                        self.ram.store(access.at, 1, byte.into());
                    }
                    Outcome::Byte(old)
                }
                Err(Refused::Lost) => Outcome::Lost,
                Err(Refused::Stall(_)) => panic!("these policies don't stall"),
            };
            assert_eq!(got, self.spec.access(hart, at, write), "hart {hart} at {at}: {write:?}");
        }

        fn step(&mut self, r: u64) {
            self.now += 1;
            let hart = (r % HARTS as u64) as usize;
            let at = (r >> 8) as usize % BYTES;
            self.restart_if_doomed(hart);
            match r >> 16 & 31 {
                0..4 => {
                    let checkpoint = self.harts[hart].checkpoint(0, 0);
                    self.tm.begin(checkpoint, hart, self.now, false, 0);
                    self.spec.begin(hart, self.now);
                }
                4..7 => assert_eq!(self.tm.end(hart, self.now), self.spec.end(hart)),
                7 => {
                    self.tm.push(hart, None);
                    self.spec.push(hart);
                }
                8 | 9 => {
                    self.tm.pop(hart);
                    self.spec.pop(hart);
                }
                10..20 => self.access(hart, at, None),
                _ => self.access(hart, at, Some((r >> 32) as u8)),
            }
            let memory = self.ram.slice(BASE, BYTES as u64).expect("it is in memory");
            assert_eq!(memory, self.spec.in_place(), "after step {}", self.now);
        }
    }

    #[test]
    fn random_programs_see_the_same() {
        for policy in [Policy::Timestamp, Policy::SizeMatters] {
            for seed in 1..60u64 {
                let mut pair = Pair::new(policy, seed);
                let mut r = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for _ in 0..2000 {
                    r ^= r << 13;
                    r ^= r >> 7;
                    r ^= r << 17;
                    pair.step(r.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8);
                }
                assert!(pair.tm.stats.conflicts > 0 && pair.tm.stats.committed > 0, "seed {seed}");
            }
        }
    }

    /// What a transaction has done so far: place, byte, whether it wrote.
    type Log = Vec<(usize, u8, bool)>;

    /// Harts with histories, and memory as it would be if transactions came one after the other.
    struct Histories {
        tm: Tm,
        ram: Ram,
        serial: [u8; BYTES],
        logs: Vec<Vec<Option<Log>>>,
        harts: Vec<Hart>,
        now: u64,
        commits: u64,
    }

    impl Histories {
        fn new(policy: Policy, seed: u64) -> Histories {
            let config = Config { policy, early_release: false, seed, ..Config::default() };
            Histories {
                tm: Tm::new(config, HARTS),
                ram: Ram::new(4096),
                serial: [0; BYTES],
                logs: vec![vec![None]; HARTS],
                harts: (0..HARTS).map(Hart::new).collect(),
                now: 0,
                commits: 0,
            }
        }

        /// The hart's transaction, whose history begins anew if it has lost.
        fn log(&mut self, hart: usize) -> &mut Option<Log> {
            let lost = self.tm.doomed(hart).is_some();
            if lost {
                assert!(self.tm.restart(hart, self.now, crate::tm::Mark::default()).is_some());
            }
            let log = self.logs[hart].last_mut().expect("there is one");
            if lost {
                *log = Some(Log::new());
            }
            log
        }

        fn access(&mut self, hart: usize, at: usize, byte: Option<u8>) {
            let (place, now) = (BASE + at as u64, self.now);
            let access = Access { hart, at: place, len: 1, write: byte.is_some(), pc: 0, now };
            if self.tm.access(&mut self.ram, &access).is_err() {
                return;
            }
            let seen = self.ram.load(place, 1) as u8;
            if let Some(byte) = byte {
                self.ram.store(place, 1, byte.into());
            }
            let entry = (at, byte.unwrap_or(seen), byte.is_some());
            match self.logs[hart].last_mut().expect("there is one") {
                Some(log) => log.push(entry),
                None => self.replay(&[entry]),
            }
        }

        /// What was seen is what memory holds if this comes now, as a whole.
        fn replay(&mut self, log: &[(usize, u8, bool)]) {
            for &(at, byte, write) in log {
                if write {
                    self.serial[at] = byte;
                }
                assert_eq!(self.serial[at], byte, "step {}: byte {at} of {log:?}", self.now);
            }
        }

        fn step(&mut self, r: u64) {
            self.now += 1;
            let hart = (r % HARTS as u64) as usize;
            let at = (r >> 8) as usize % BYTES;
            let runs = self.log(hart).is_some();
            match r >> 16 & 31 {
                0..6 if !runs => {
                    let checkpoint = self.harts[hart].checkpoint(0, 0);
                    self.tm.begin(checkpoint, hart, self.now, false, (r >> 40 & 3) as i32);
                    *self.logs[hart].last_mut().expect("there is one") = Some(Log::new());
                }
                0..4 => {
                    assert_eq!(self.tm.end(hart, self.now), Some(true));
                    let log = self.logs[hart].last_mut().and_then(Option::take);
                    self.replay(&log.expect("it runs"));
                    self.commits += 1;
                }
                6 => {
                    self.tm.push(hart, None);
                    self.logs[hart].push(None);
                }
                7 | 8 if !runs && self.logs[hart].len() > 1 => {
                    self.tm.pop(hart);
                    self.logs[hart].pop();
                }
                9..20 => self.access(hart, at, None),
                _ => self.access(hart, at, Some((r >> 32) as u8)),
            }
        }
    }

    #[test]
    fn histories_are_those_of_one_transaction_after_the_other() {
        use clap::ValueEnum;
        for &policy in Policy::value_variants() {
            for seed in 1..20u64 {
                let mut histories = Histories::new(policy, seed);
                let mut r = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for _ in 0..3000 {
                    r ^= r << 13;
                    r ^= r >> 7;
                    r ^= r << 17;
                    histories.step(r.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8);
                }
                let lost = histories.tm.stats.conflicts;
                assert!(histories.commits > 20 && lost > 0, "{policy:?}: {}", histories.commits);
            }
        }
    }
}
