//! What is counted, as in table 3 of the paper, and the trace of conflicts.

use std::collections::{BTreeMap, VecDeque};

use super::policy::Decision;
use super::{Access, Reason, Tx};

/// A conflict.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Event {
    /// Cycle.
    pub at: u64,
    /// The hart that made the access, and the address of its instruction.
    pub hart: usize,
    /// Address of the instruction.
    pub pc: u64,
    /// Physical address of the data.
    pub data: u64,
    /// Whether the access was a write.
    pub write: bool,
    /// The hart of the transaction that has the data.
    pub holder: usize,
    /// Its critical region: the address to which the function returns that began it.
    pub holder_pc: u64,
    /// What became of it.
    pub decision: Decision,
}

/// Counters.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Stats {
    /// Transactions begun, without restarts.
    pub begun: u64,
    /// Transactions committed.
    pub committed: u64,
    /// Restarts after a lost conflict.
    pub conflicts: u64,
    /// Restarts because of what can't be rolled back.
    pub exclusive: u64,
    /// Other restarts.
    pub other_restarts: u64,
    /// Committed transactions that had been restarted.
    pub restarted: u64,
    /// Transactions that began in an interrupt.
    pub in_interrupts: u64,
    /// Transactions that were suspended.
    pub interrupted: u64,
    /// Interrupts that would have overwritten live stack.
    pub live_stack: u64,
    /// Bytes of stack released early.
    pub released_bytes: u64,
    /// Cycles from the first begin to the commit, summed up.
    pub cycles: u64,
    /// Unique bytes in the sets at commit, summed up.
    pub bytes: u64,
    /// Cycles lost in stalls.
    pub stall_cycles: u64,
    /// Cycles lost in restarts and backoff.
    pub backoff_cycles: u64,
    /// Cycles of attempts that were restarted.
    pub wasted_cycles: u64,
    /// Restarts by the address to which the function returns that began the transaction: the critical region.
    pub restarts_by_pc: BTreeMap<u64, u64>,
    /// Of these, because of what can't be rolled back.
    pub exclusive_by_pc: BTreeMap<u64, u64>,
    /// Transactions by the same.
    pub begun_by_pc: BTreeMap<u64, u64>,
    /// The last conflicts, oldest first.
    #[serde(skip)]
    pub trace: VecDeque<Event>,
    /// Conflicts that the trace keeps; 0 without a trace.
    #[serde(skip)]
    pub traced: usize,
    /// Conflicts that the trace has seen.
    #[serde(skip)]
    pub seen: u64,
    /// Conflicts by who made the access and whose region it hit, while there is a trace.
    #[serde(skip)]
    pub pairs: BTreeMap<(u64, u64), u64>,
}

impl Stats {
    pub(super) fn restart(&mut self, reason: Reason, tx: &Tx) {
        match reason {
            Reason::Conflict => self.conflicts += 1,
            Reason::Exclusive => {
                self.exclusive += 1;
                *self.exclusive_by_pc.entry(tx.checkpoint.x[1]).or_default() += 1;
            }
            Reason::Trap | Reason::Asked(_) => self.other_restarts += 1,
        }
        *self.restarts_by_pc.entry(tx.checkpoint.x[1]).or_default() += 1;
    }

    pub(super) fn conflict(&mut self, access: &Access, holder: &Tx, decision: Decision) {
        if self.traced == 0 {
            return;
        }
        self.seen += 1;
        *self.pairs.entry((access.pc, holder.checkpoint.x[1])).or_default() += 1;
        if self.trace.len() == self.traced {
            self.trace.pop_front();
        }
        self.trace.push_back(Event {
            at: access.now,
            hart: access.hart,
            pc: access.pc,
            data: access.at,
            write: access.write,
            holder: holder.hart,
            holder_pc: holder.checkpoint.x[1],
            decision,
        });
    }

    /// Restarts for each 100 transactions begun.
    #[must_use]
    pub fn restart_percent(&self) -> f64 {
        let all = self.conflicts + self.exclusive + self.other_restarts;
        if self.begun == 0 { 0.0 } else { 100.0 * all as f64 / (self.begun + all) as f64 }
    }
}
