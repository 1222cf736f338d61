//! The realm's protocol under the model checker: every interleaving of a few small transactions.
//!
//! Compiled with `--cfg loom` only. The table here has a handful of slots and records, made of
//! loom's atomics; everything else is the code that runs in production.

use super::layout::{Board, GROUPS, Group, Slot};
use super::sync::{AtomicU32, AtomicU64};

/// Slots of the model.
const MODEL_SLOTS: u32 = 3;
/// Ownership records of the model.
const MODEL_ORECS: u32 = 2;

/// The segment, in the model's memory.
#[derive(Debug)]
pub(super) struct Table {
    board: Board,
    slots: Vec<Slot>,
    groups: Vec<Group>,
    orecs: Vec<AtomicU64>,
}

impl Table {
    pub fn new() -> Table {
        let zero = || AtomicU64::new(0);
        let word = || AtomicU32::new(0);
        Table {
            board: Board {
                policy: word(),
                slot_bell: word(),
                slots_wanted: word(),
                reserved: word(),
                conflicts: zero(),
                dooms: zero(),
                yields: zero(),
                waits: zero(),
                takeovers: zero(),
                full: zero(),
            },
            slots: (0..MODEL_SLOTS).map(|_| Slot::new()).collect(),
            groups: (0..GROUPS.min(1))
                .map(|_| Group {
                    key: zero(),
                    next: zero(),
                    waiters: zero(),
                    reserved: std::array::from_fn(|_| zero()),
                })
                .collect(),
            orecs: (0..MODEL_ORECS).map(|_| zero()).collect(),
        }
    }

    pub fn board(&self) -> &Board {
        &self.board
    }

    pub fn slots(&self) -> u32 {
        MODEL_SLOTS
    }

    pub fn slot(&self, number: u32) -> &Slot {
        &self.slots[number as usize]
    }

    pub fn group(&self, number: usize) -> &Group {
        &self.groups[number]
    }

    pub fn orecs(&self) -> u32 {
        MODEL_ORECS
    }

    pub fn orec(&self, index: u32) -> &AtomicU64 {
        &self.orecs[index as usize]
    }
}

/// Whether the process of an identity has died.
pub(super) fn is_dead(_identity: u64) -> bool {
    false
}

/// Whether any process has died.
pub(super) fn somebody_died() -> bool {
    false
}
