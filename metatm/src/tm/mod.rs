//! MetaTM: transactional memory of the machine.
//!
//! Version management is eager (a transaction writes in place and keeps what was there) and so is the detection of conflicts (at
//! the access). Isolation is strong: an access outside of transactions restarts every transaction that it conflicts with. Nesting
//! is flat; `xpush` and `xpop` make a stack of independent transactions of one hart.
//!
//! # Invariants
//!
//! - At each moment a byte is written by at most one transaction, and then no other one has it in its sets.
//! - A doomed transaction has empty sets, and memory holds what it would without it: what it wrote is taken back when it
//!   loses, not when it learns of it.
//! - The sets are what `granules` says; each granule of a transaction is in its `keys` exactly once, and `filter` counts the
//!   granules of a hash.
//!
//! | module | what lives there |
//! |---|---|
//! | [`policy`] | which of two transactions goes on |
//! | [`stats`] | what is counted, and the trace |
//! | [`spec`] | the same with whole copies of memory, to compare with |
//!
//! Source: Ramadan et al., "MetaTM/TxLinux: Transactional memory for an operating system", IEEE Micro 28(1), 2008.

pub mod policy;
pub mod spec;
pub mod stats;

use rustc_hash::FxHashMap;

use crate::machine::hart::Checkpoint;
use crate::machine::ram::Ram;
use policy::{Backoff, Decision, Figures, Policy};
use stats::Stats;

/// Why a transaction was restarted: the low byte of what `xbegin` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Reason {
    /// It lost a conflict.
    Conflict,
    /// It did what can't be rolled back: a device, firmware, a control register.
    Exclusive,
    /// A trap from user mode.
    Trap,
    /// `xrestart` with this number.
    Asked(u8),
}

impl Reason {
    /// As `xbegin` gives it.
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            Reason::Conflict => 1,
            Reason::Exclusive => 2,
            Reason::Trap => 3,
            Reason::Asked(n) => u64::from(n),
        }
    }
}

/// Parameters of the model.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Config {
    /// Which transaction goes on.
    pub policy: Policy,
    /// How long a transaction waits before it starts again.
    pub backoff: Backoff,
    /// The figures of both.
    pub figures: Figures,
    /// Bytes in which conflicts are detected: 1, or a line of 64.
    pub granularity: u64,
    /// Cycles that a commit costs.
    pub commit_cycles: u64,
    /// Cycles that a restart costs.
    pub abort_cycles: u64,
    /// Whether a trap suspends the transaction and a return takes it up, or only `xpush` and `xpop` do.
    pub traps_push: bool,
    /// Whether `xpush` releases what lies below the stack pointer.
    pub early_release: bool,
    /// Whether `xlivesp` looks at where suspended transactions restart, or gives what it is given.
    pub live_stack: bool,
    /// Size of a kernel stack in bytes, a power of two; stacks are aligned to it.
    pub stack_bytes: u64,
    /// Times that `xcas` gives way to a transaction.
    pub cas_patience: u32,
    /// Seed of what is drawn.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            policy: Policy::SizeMatters,
            backoff: Backoff::Exponential,
            figures: Figures::default(),
            granularity: 1,
            commit_cycles: 0,
            abort_cycles: 0,
            traps_push: true,
            early_release: true,
            live_stack: true,
            stack_bytes: 16384,
            cas_patience: 4,
            seed: 1,
        }
    }
}

/// What an access came to if it was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The transaction that made it is doomed.
    Lost,
    /// It is to be made again after so many cycles.
    Stall(u64),
}

/// Place of a transaction in the table.
pub type Slot = u16;

/// What a transaction has of a granule: one bit a byte.
#[derive(Clone, Copy, Debug)]
struct Holder {
    slot: Slot,
    read: u8,
    write: u8,
}

/// What a hart has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    /// Cycles in which it waited: what it waits in an attempt that fails is not counted as wasted, too.
    pub waited: u64,
    /// Instructions.
    pub instructions: u64,
}

/// A transaction.
#[derive(Debug)]
pub struct Tx {
    /// The hart that runs it.
    pub hart: usize,
    /// Its number, from 1.
    pub number: u64,
    /// Levels that are open.
    pub depth: u32,
    /// Where it starts again.
    pub checkpoint: Checkpoint,
    /// Why it must start again.
    pub doomed: Option<Reason>,
    /// When it began for the first time, in cycles.
    pub born: u64,
    /// Restarts so far.
    pub restarts: u32,
    /// Unique bytes in its sets.
    pub size: u64,
    /// Work done over all its attempts, for the policies that count it.
    pub karma: u64,
    /// Times that it has stalled at its present access.
    pub stalls: u32,
    /// That access: address of its instruction, address of the data, whether it writes.
    stalled: (u64, u64, bool),
    /// Those it gave way to (Kindergarten).
    pub enemies: Vec<u64>,
    /// The priority of its thread, as the operating system has set it; lower goes first.
    pub priority: i32,
    /// Whether it began in an interrupt.
    pub in_interrupt: bool,
    /// When its present attempt began, in cycles.
    pub attempt: u64,
    /// What its hart had done by then.
    mark: Mark,
    /// Instructions of attempts that were restarted.
    pub lost: u64,
    undo: Vec<(u64, u64, u64)>,
    keys: Vec<u64>,
}

/// One access to memory.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The hart.
    pub hart: usize,
    /// Physical address.
    pub at: u64,
    /// Bytes: 1, 2, 4 or 8.
    pub len: u64,
    /// Whether it writes.
    pub write: bool,
    /// Address of the instruction.
    pub pc: u64,
    /// The hart's clock.
    pub now: u64,
}

impl Access {
    fn what(&self) -> (u64, u64, bool) {
        (self.pc, self.at, self.write)
    }
}

const FILTER: usize = 1 << 16;

/// The transactional memory.
#[derive(Debug)]
pub struct Tm {
    /// Parameters.
    pub config: Config,
    /// What was counted.
    pub stats: Stats,
    /// Transactions whose sets are not empty or that run: while it is 0, no access needs a look.
    pub live: u32,
    txs: Vec<Tx>,
    free: Vec<Slot>,
    current: Vec<Option<Slot>>,
    stacks: Vec<Vec<Option<Slot>>>,
    granules: FxHashMap<u64, Vec<Holder>>,
    filter: Vec<u16>,
    next: u64,
    shift: u32,
    rng: u64,
}

impl Tm {
    /// One for so many harts.
    #[must_use]
    pub fn new(config: Config, harts: usize) -> Tm {
        let shift = if config.granularity == 1 { 3 } else { 6 };
        Tm {
            stats: Stats::default(),
            live: 0,
            txs: Vec::new(),
            free: Vec::new(),
            current: vec![None; harts],
            stacks: vec![Vec::new(); harts],
            granules: FxHashMap::default(),
            filter: vec![0; FILTER],
            next: 1,
            shift,
            rng: config.seed | 1,
            config,
        }
    }

    /// The transaction that a hart runs.
    #[must_use]
    pub fn running(&self, hart: usize) -> Option<&Tx> {
        self.current[hart].map(|slot| &self.txs[usize::from(slot)])
    }

    /// Whether a hart runs a transaction.
    #[must_use]
    #[inline]
    pub fn in_tx(&self, hart: usize) -> bool {
        self.current[hart].is_some()
    }

    /// A number that is drawn.
    fn draw(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    /// A transaction that begins, without a number.
    fn transaction(checkpoint: Checkpoint, hart: usize, now: u64) -> Tx {
        Tx {
            hart,
            number: 0,
            depth: 1,
            checkpoint,
            doomed: None,
            born: now,
            restarts: 0,
            size: 0,
            karma: 0,
            stalls: 0,
            stalled: (0, 0, false),
            enemies: Vec::new(),
            priority: 0,
            in_interrupt: false,
            attempt: now,
            mark: Mark::default(),
            lost: 0,
            undo: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Begins a transaction, or one level more.
    pub fn begin(
        &mut self,
        checkpoint: Checkpoint,
        hart: usize,
        now: u64,
        in_interrupt: bool,
        priority: i32,
    ) {
        if let Some(slot) = self.current[hart] {
            self.txs[usize::from(slot)].depth += 1;
            return;
        }
        let number = self.next;
        self.next += 1;
        let tx = Tx { number, priority, in_interrupt, ..Tm::transaction(checkpoint, hart, now) };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.txs[usize::from(slot)] = tx;
                slot
            }
            None => {
                self.txs.push(tx);
                (self.txs.len() - 1) as Slot
            }
        };
        self.current[hart] = Some(slot);
        self.live += 1;
        self.stats.begun += 1;
        *self.stats.begun_by_pc.entry(self.txs[usize::from(slot)].checkpoint.x[1]).or_default() +=
            1;
        self.stats.in_interrupts += u64::from(in_interrupt);
    }

    /// A transaction has begun, and its hart has done so much so far.
    pub fn mark(&mut self, hart: usize, mark: Mark) {
        if let Some(slot) = self.current[hart]
            && self.txs[usize::from(slot)].depth == 1
        {
            self.txs[usize::from(slot)].mark = mark;
        }
    }

    /// Ends a level. Gives `None` without a transaction, else whether that was a commit.
    pub fn end(&mut self, hart: usize, now: u64) -> Option<bool> {
        let slot = self.current[hart]?;
        let tx = &mut self.txs[usize::from(slot)];
        tx.depth -= 1;
        if tx.depth > 0 {
            return Some(false);
        }
        self.stats.committed += 1;
        self.stats.cycles += now.saturating_sub(tx.born);
        self.stats.bytes += tx.size;
        if tx.restarts > 0 {
            self.stats.restarted += 1;
        }
        self.release(slot);
        self.current[hart] = None;
        self.retire(slot);
        Some(true)
    }

    fn retire(&mut self, slot: Slot) {
        self.free.push(slot);
        self.live -= 1;
    }

    /// Suspends a hart's transaction. Gives the bytes that were released early.
    pub fn push(&mut self, hart: usize, dead: Option<(u64, u64)>) -> u64 {
        let slot = self.current[hart].take();
        let mut released = 0;
        if let Some(slot) = slot {
            self.stats.interrupted += 1;
            if let (true, Some((low, high))) = (self.config.early_release, dead) {
                released = self.release_range(slot, low, high);
                self.stats.released_bytes += released;
            }
        }
        self.stacks[hart].push(slot);
        // What is at the bottom and suspends nothing says nothing.
        if self.stacks[hart].len() > 64 && self.stacks[hart].iter().all(Option::is_none) {
            self.stacks[hart].clear();
        }
        released
    }

    /// Ends a hart's transaction, which has just started again and done nothing.
    pub fn abandon(&mut self, hart: usize) {
        if let Some(slot) = self.current[hart].take() {
            self.release(slot);
            self.retire(slot);
        }
    }

    /// Takes up what was suspended last.
    pub fn pop(&mut self, hart: usize) {
        self.current[hart] = self.stacks[hart].pop().flatten();
    }

    /// The lowest of a stack pointer and those to which suspended transactions would restart on the same stack.
    pub fn live_sp(&mut self, hart: usize, sp: u64) -> u64 {
        let bottom = sp & !(self.config.stack_bytes - 1);
        let suspended = self.stacks[hart].iter().flatten();
        let live = suspended
            .map(|&slot| self.txs[usize::from(slot)].checkpoint.x[2])
            .filter(|at_begin| (bottom..sp).contains(at_begin))
            .min();
        let Some(live) = live else { return sp };
        self.stats.live_stack += 1;
        if self.config.live_stack { live } else { sp }
    }

    /// The reason for which the hart's transaction must start again.
    #[must_use]
    pub fn doomed(&self, hart: usize) -> Option<Reason> {
        self.running(hart)?.doomed
    }

    /// Dooms a hart's own transaction. Gives whether there was one.
    pub fn doom(&mut self, ram: &mut Ram, hart: usize, reason: Reason) -> bool {
        let Some(slot) = self.current[hart] else { return false };
        self.lose(ram, slot, reason);
        true
    }

    /// Makes the next attempt of a hart's doomed transaction: gives where it starts, what `xbegin` gives there, and
    /// for how many cycles it waits. `mark` is what the hart has done so far.
    pub fn restart(&mut self, hart: usize, now: u64, mark: Mark) -> Option<(Checkpoint, u64, u64)> {
        let slot = usize::from(self.current[hart]?);
        let reason = self.txs[slot].doomed.take()?;
        let tx = &mut self.txs[slot];
        tx.restarts += 1;
        tx.depth = 1;
        tx.stalls = 0;
        let (restarts, checkpoint) = (tx.restarts, tx.checkpoint.clone());
        let drawn = self.draw();
        let wait = if reason == Reason::Conflict {
            self.config.backoff.cycles(restarts, &self.config.figures, drawn)
        } else {
            0
        };
        let cycles = self.config.abort_cycles + wait;
        self.stats.backoff_cycles += cycles;
        let tx = &mut self.txs[slot];
        let waited = mark.waited.saturating_sub(tx.mark.waited);
        self.stats.wasted_cycles += now.saturating_sub(tx.attempt).saturating_sub(waited);
        tx.lost += mark.instructions.saturating_sub(tx.mark.instructions);
        tx.mark = mark;
        let lost = tx.lost.min(0x7fff_ffff) << 32;
        tx.attempt = now + cycles;
        Some((checkpoint, reason.code() | u64::from(restarts.min(0xff_ffff)) << 8 | lost, cycles))
    }

    /// Looks at an access before it is made: conflicts are decided, and the sets grow.
    ///
    /// # Errors
    /// [`Refused`], if the transaction that makes the access gives way.
    pub fn access(&mut self, ram: &mut Ram, access: &Access) -> Result<(), Refused> {
        let own = self.current[access.hart];
        let mut at = access.at;
        let end = access.at + access.len;
        while at < end {
            let key = at >> self.shift;
            let next = (key + 1) << self.shift;
            let to = end.min(next);
            let mask =
                if self.shift == 3 { (((1u32 << (to - at)) - 1) << (at & 7)) as u8 } else { 1 };
            if self.filter[key as usize % FILTER] > 0 {
                self.conflicts(ram, access, own, key, mask)?;
            }
            if let Some(slot) = own {
                self.note(slot, key, mask, access.write);
            }
            at = to;
        }
        if let Some(slot) = own {
            let tx = &mut self.txs[usize::from(slot)];
            // An instruction of several accesses makes the first ones again after each stall of a later one: an atomic
            // operation reads before it writes.
            if tx.stalls > 0 && (tx.stalled.0 != access.pc || tx.stalled == access.what()) {
                tx.stalls = 0;
            }
            if access.write {
                // Just these bytes: the others of the word may be another one's.
                tx.undo.push((access.at, access.len, ram.load(access.at, access.len)));
            }
        }
        Ok(())
    }

    /// What a device writes: every transaction that has it in its sets starts again.
    pub fn device_writes(&mut self, ram: &mut Ram, at: u64, len: u64) {
        if self.live == 0 {
            return;
        }
        for key in at >> self.shift..=(at + len.max(1) - 1) >> self.shift {
            let holders = self.granules.get(&key).cloned().unwrap_or_default();
            for holder in holders {
                self.lose(ram, holder.slot, Reason::Conflict);
            }
        }
    }

    /// Whether a transaction has a word in its sets.
    #[must_use]
    pub fn holds(&self, at: u64) -> bool {
        self.granules.get(&(at >> self.shift)).is_some_and(|holders| !holders.is_empty())
    }

    /// Whether no transaction has the granule of an address in its sets. May say no for another one's sake.
    #[must_use]
    #[inline(always)]
    pub fn is_quiet(&self, at: u64) -> bool {
        self.filter[(at >> self.shift) as usize % FILTER] == 0
    }

    fn conflicts(
        &mut self,
        ram: &mut Ram,
        access: &Access,
        own: Option<Slot>,
        key: u64,
        mask: u8,
    ) -> Result<(), Refused> {
        let Some(holders) = self.granules.get(&key) else { return Ok(()) };
        let in_the_way = |h: &&Holder| {
            let taken = if access.write { h.read | h.write } else { h.write };
            Some(h.slot) != own && taken & mask != 0
        };
        let others: Vec<Slot> = holders.iter().filter(in_the_way).map(|h| h.slot).collect();
        // Nobody is restarted by an access that is not made.
        for &holder in &others {
            let decision = self.decide(own, holder, access.hart);
            self.stats.conflict(access, &self.txs[usize::from(holder)], decision);
            let Some(slot) = own else { continue };
            match decision {
                Decision::HolderLoses => {}
                Decision::RequesterLoses => {
                    self.lose(ram, slot, Reason::Conflict);
                    return Err(Refused::Lost);
                }
                Decision::Stall(cycles) => {
                    let tx = &mut self.txs[usize::from(slot)];
                    tx.stalls = if tx.stalled == access.what() { tx.stalls + 1 } else { 1 };
                    tx.stalled = access.what();
                    self.stats.stall_cycles += cycles;
                    return Err(Refused::Stall(cycles));
                }
            }
        }
        for holder in others {
            self.lose(ram, holder, Reason::Conflict);
        }
        Ok(())
    }

    fn decide(&mut self, own: Option<Slot>, holder: Slot, hart: usize) -> Decision {
        // Of one hart's transactions the newest goes on: the others are suspended until it has ended, so
        // that giving way to one of them would never end.
        let Some(own) = own else { return Decision::HolderLoses };
        if self.txs[usize::from(holder)].hart == hart {
            return Decision::HolderLoses;
        }
        let drawn = self.draw();
        let policy = self.config.policy;
        let (a, b) = (usize::from(own), usize::from(holder));
        // Both are in the table, at two places.
        let (low, high) = self.txs.split_at_mut(a.max(b));
        let (own, holder) =
            if a < b { (&mut low[a], &mut high[0]) } else { (&mut high[0], &mut low[b]) };
        policy.decide(own, holder, &self.config.figures, drawn)
    }

    fn note(&mut self, slot: Slot, key: u64, mask: u8, write: bool) {
        let holders = self.granules.entry(key).or_default();
        let holder = match holders.iter_mut().position(|h| h.slot == slot) {
            Some(at) => &mut holders[at],
            None => {
                self.filter[key as usize % FILTER] += 1;
                self.txs[usize::from(slot)].keys.push(key);
                holders.push(Holder { slot, read: 0, write: 0 });
                let last = holders.len() - 1;
                &mut holders[last]
            }
        };
        let was = (holder.read | holder.write).count_ones();
        if write {
            holder.write |= mask;
        } else {
            holder.read |= mask;
        }
        let more = (holder.read | holder.write).count_ones() - was;
        let bytes = if self.shift == 3 { u64::from(more) } else { u64::from(more) * 64 };
        let tx = &mut self.txs[usize::from(slot)];
        tx.size += bytes;
        tx.karma += u64::from(more > 0);
    }

    /// Takes back what a transaction wrote, and empties its sets.
    fn lose(&mut self, ram: &mut Ram, slot: Slot, reason: Reason) {
        let tx = &mut self.txs[usize::from(slot)];
        if tx.doomed.is_some() {
            return;
        }
        tx.doomed = Some(reason);
        for (at, len, old) in std::mem::take(&mut tx.undo).into_iter().rev() {
            ram.store(at, len, old);
        }
        self.stats.restart(reason, &self.txs[usize::from(slot)]);
        self.release(slot);
        self.txs[usize::from(slot)].size = 0;
    }

    fn release(&mut self, slot: Slot) {
        for key in std::mem::take(&mut self.txs[usize::from(slot)].keys) {
            self.drop_key(slot, key);
        }
        self.txs[usize::from(slot)].undo.clear();
    }

    fn drop_key(&mut self, slot: Slot, key: u64) {
        let Some(holders) = self.granules.get_mut(&key) else { return };
        if let Some(at) = holders.iter().position(|h| h.slot == slot) {
            holders.swap_remove(at);
            self.filter[key as usize % FILTER] -= 1;
        }
        if holders.is_empty() {
            self.granules.remove(&key);
        }
    }

    /// Releases what a transaction has in a range that is dead for it: it neither conflicts there nor is what it wrote
    /// there taken back.
    fn release_range(&mut self, slot: Slot, low: u64, high: u64) -> u64 {
        let (from, to) = ((low + 7) >> self.shift, high >> self.shift);
        let tx = &mut self.txs[usize::from(slot)];
        let (dead, kept): (Vec<u64>, Vec<u64>) =
            std::mem::take(&mut tx.keys).into_iter().partition(|key| (from..to).contains(key));
        tx.keys = kept;
        let (low, high) = (from << self.shift, to << self.shift);
        tx.undo.retain(|&(at, ..)| !(low..high).contains(&at));
        let mut bytes = 0;
        for key in dead {
            let of = self.granules.get(&key).and_then(|h| h.iter().find(|h| h.slot == slot));
            bytes += of.map_or(0, |h| u64::from((h.read | h.write).count_ones()));
            self.drop_key(slot, key);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::machine::hart::Hart;
    use crate::machine::ram::BASE;

    fn writes(tm: &mut Tm, ram: &mut Ram, hart: usize, at: u64, len: u64) -> bool {
        tm.access(ram, &Access { hart, at, len, write: true, pc: 0, now: 0 }).is_ok()
    }

    #[test]
    fn neighbours_conflict_by_line_and_not_by_byte() {
        for (granularity, conflict) in [(1, false), (64, true)] {
            let mut tm = Tm::new(Config { granularity, ..Config::default() }, 2);
            let mut ram = Ram::new(4096);
            for hart in 0..2 {
                tm.begin(Hart::new(hart).checkpoint(0, 0), hart, hart as u64, false, 0);
            }
            // Two bytes of one word; then the first of the next line.
            assert!(writes(&mut tm, &mut ram, 0, BASE, 1));
            assert!(writes(&mut tm, &mut ram, 0, BASE + 64, 1));
            let went_on = writes(&mut tm, &mut ram, 1, BASE + 1, 1);
            assert_eq!(!went_on || tm.doomed(0).is_some(), conflict, "{granularity} bytes");
            if !conflict {
                let overlaps = writes(&mut tm, &mut ram, 1, BASE, 2);
                assert!(!overlaps || tm.doomed(0).is_some(), "the same byte");
            }
        }
    }

    #[test]
    fn of_one_hart_s_transactions_the_newest_goes_on_under_every_policy() {
        for &policy in Policy::value_variants() {
            let mut tm = Tm::new(Config { policy, ..Config::default() }, 1);
            let mut ram = Ram::new(4096);
            tm.begin(Hart::new(0).checkpoint(0, 0), 0, 0, false, 0);
            // The older one is larger, and has higher priority.
            for i in 0..8 {
                assert!(writes(&mut tm, &mut ram, 0, BASE + 8 * i, 8));
            }
            tm.push(0, None);
            tm.begin(Hart::new(0).checkpoint(0, 0), 0, 100, true, 139);
            assert!(writes(&mut tm, &mut ram, 0, BASE, 8), "{policy:?}");
            assert_eq!(tm.doomed(0), None, "{policy:?}");
            assert_eq!(tm.end(0, 200), Some(true));
            tm.pop(0);
            assert_eq!(tm.doomed(0), Some(Reason::Conflict), "{policy:?}");
        }
    }

    /// Both have read the word that both write: one of them must give way, however often each makes its read again.
    #[test]
    fn atomic_operations_on_one_word_come_to_an_end_under_every_policy() {
        for &policy in Policy::value_variants() {
            let mut tm = Tm::new(Config { policy, ..Config::default() }, 2);
            let mut ram = Ram::new(4096);
            let mut commits = 0;
            let mut has_read = [false; 2];
            for now in 0..2000 {
                let hart = now as usize % 2;
                if !tm.in_tx(hart) {
                    tm.begin(Hart::new(hart).checkpoint(0, 0), hart, now, false, 0);
                    has_read[hart] = false;
                }
                if tm.restart(hart, now, Mark::default()).is_some() {
                    has_read[hart] = false;
                }
                let access = |pc, write| Access { hart, at: BASE, len: 8, write, pc, now };
                if !has_read[hart] {
                    // Another instruction, a turn before.
                    has_read[hart] = tm.access(&mut ram, &access(0x1000, false)).is_ok();
                    continue;
                }
                let read = tm.access(&mut ram, &access(0x1004, false));
                if read.and_then(|()| tm.access(&mut ram, &access(0x1004, true))).is_ok() {
                    assert_eq!(tm.end(hart, now), Some(true));
                    commits += 1;
                }
            }
            assert!(commits > 20, "{policy:?}: {commits}");
        }
    }
}
