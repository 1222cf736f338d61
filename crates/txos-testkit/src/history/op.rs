//! What a history is made of: transactions of operations on keys. A key holds either a list or a
//! register, the same one for the whole history; the values written to a key are all different, so
//! that whoever reads one tells whose it is.

use std::collections::BTreeMap;

/// The completion stamp of what never completed.
pub const NEVER: u64 = u64::MAX;

/// One operation, with what it wrote or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A value is put at the end of a list.
    Append {
        /// The list.
        key: u64,
        /// No other append to the key has it.
        value: u64,
    },
    /// A whole list is read.
    ReadList {
        /// The list.
        key: u64,
        /// All that is in it, first to last.
        values: Vec<u64>,
    },
    /// A register is overwritten.
    Write {
        /// The register.
        key: u64,
        /// No other write to the key has it, and it is not 0.
        value: u64,
    },
    /// A register is read.
    ReadRegister {
        /// The register.
        key: u64,
        /// What is in it; 0 before the first write.
        value: u64,
    },
}

impl Op {
    /// What it is about.
    #[must_use]
    pub fn key(&self) -> u64 {
        match self {
            Op::Append { key, .. }
            | Op::ReadList { key, .. }
            | Op::Write { key, .. }
            | Op::ReadRegister { key, .. } => *key,
        }
    }

    /// The value that it writes, if it does.
    #[must_use]
    pub fn written(&self) -> Option<u64> {
        match self {
            Op::Append { value, .. } | Op::Write { value, .. } => Some(*value),
            Op::ReadList { .. } | Op::ReadRegister { .. } => None,
        }
    }

    /// The values that it found, if it reads: those of the list; that of the register, if it was
    /// written.
    #[must_use]
    pub fn found(&self) -> Option<&[u64]> {
        match self {
            Op::ReadList { values, .. } => Some(values),
            Op::ReadRegister { value: 0, .. } => Some(&[]),
            Op::ReadRegister { value, .. } => Some(std::slice::from_ref(value)),
            Op::Append { .. } | Op::Write { .. } => None,
        }
    }

    /// Whether the key is a list.
    #[must_use]
    pub fn of_list(&self) -> bool {
        matches!(self, Op::Append { .. } | Op::ReadList { .. })
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect.
    Committed,
    /// It did not, and nobody may have seen anything of it.
    Aborted,
    /// It was killed, or nobody knows: it may take effect at any time after its invocation, or
    /// never.
    Indeterminate,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// No other transaction has it.
    pub id: u64,
    /// Who ran it: one at a time.
    pub process: u64,
    /// When it was about to start: nanoseconds of a clock that all processes share.
    pub invoked: u64,
    /// When its end was known; [`NEVER`] counts for what is indeterminate, whatever is here.
    pub completed: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order. Of one that did not commit: all that it may have written. What such
    /// a one read counts only if it turns out to have taken effect.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// When its end was known, if ever.
    #[must_use]
    pub fn end(&self) -> u64 {
        if self.outcome == Outcome::Indeterminate { NEVER } else { self.completed }
    }
}

/// All transactions of a run, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The transactions.
    pub transactions: Vec<Transaction>,
    /// Version orders of registers that are known from elsewhere: the values that a key had, first
    /// to last, without the initial 0. What is in one has taken effect. Values may be left out;
    /// those are ordered only as far as the reads tell.
    pub orders: BTreeMap<u64, Vec<u64>>,
}

impl History {
    /// The number of operations.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.transactions.iter().map(|t| t.ops.len()).sum()
    }
}
