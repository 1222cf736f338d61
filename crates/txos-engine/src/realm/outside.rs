//! Waits for what the realm does not know: a futex, a pipe, a child.
//!
//! A transaction that waits so may wait for somebody who needs what it holds, and nobody could see that circle. So
//! while it waits it *gives way*: it loses every conflict with a transaction that comes upon it, unless both are
//! ordered (papers/003 §6.1 calls that deferential). It begins to after a moment only, because most waits are short.
//!
//! # Invariants
//!
//! - The owner writes when it begins to give way, and what it waits for, *before* it sets the flag, and takes the
//!   flag back when it goes on. A stale look costs one arbitration that is decided the other way: an opponent is
//!   doomed, which any conflict may do, or is waited for for a turn more, at most 50 ms.
//! - Nobody is told: those who wait look again after each turn, and find it then.
//! - A transaction of several threads never gives way for the wait of one of them.

use std::time::Duration;

use super::Realm;
use super::layout::Slot;
use super::status::Status;
use super::sync::{self, AcqRel, Acquire, Relaxed};
use super::tx_handle::{SLOT_BITS, TxHandle};

/// In `flags`: it waits for what the realm does not know.
pub(super) const OUTSIDE: u32 = 64;

/// In `flags`: several threads are in it, and none's wait is the transaction's.
pub(super) const SEVERAL: u32 = 32;

/// In `flags`: it comes after another transaction that still runs, and never dooms one for waiting: that may be the one.
pub(super) const BEHIND: u32 = 128;

/// In `doomed_under`: by no policy, because it waited for what the realm does not know.
pub(super) const WAITED_OUTSIDE: u32 = u32::MAX;

/// Which transaction of the realm, as one word: for those who can't have its [`TxHandle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    /// As a number, which is not 0.
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }

    /// From a number; `None` for 0.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Place> {
        (word != 0).then_some(Place(word))
    }
}

/// What a transaction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideWait {
    /// The number of the system call in which it waits.
    pub call: u32,
    /// Its first argument: a futex's address, a descriptor.
    pub argument: u64,
}

impl TxHandle<'_> {
    /// Its place.
    #[must_use]
    pub fn place(&self) -> Place {
        Place(self.generation << SLOT_BITS | u64::from(self.slot))
    }

    /// Several threads are in it: the wait of one is not the transaction's.
    pub fn has_several_threads(&self) {
        self.own().flags.fetch_or(SEVERAL, AcqRel);
    }
}

impl Realm {
    fn slot_at(&self, place: Place) -> Option<&Slot> {
        let number = (place.0 & ((1 << SLOT_BITS) - 1)) as u32;
        let slot = (number < super::SLOTS).then(|| self.table().slot(number))?;
        let status = Status(slot.status.load(Acquire));
        let is_it = status.generation() == place.0 >> SLOT_BITS && status.state().is_running();
        is_it.then_some(slot)
    }

    /// The transaction is about to wait for what the realm does not know. If that takes longer than `patience`, it gives
    /// way to those who want what it holds, until it [goes on](Realm::goes_on).
    pub fn waits_outside(&self, place: Place, wait: OutsideWait, patience: Duration) {
        let Some(slot) = self.slot_at(place) else { return };
        if slot.flags.load(Relaxed) & SEVERAL != 0 {
            return;
        }
        let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        slot.outside_at.store(wait.argument, Relaxed);
        slot.outside_call.store(u64::from(wait.call), Relaxed);
        slot.yields_ns.store(sync::now_ns().saturating_add(patience), Relaxed);
        slot.flags.fetch_or(OUTSIDE, AcqRel);
    }

    /// The wait is over.
    pub fn goes_on(&self, place: Place) {
        if let Some(slot) = self.slot_at(place) {
            slot.flags.fetch_and(!OUTSIDE, AcqRel);
        }
    }

    /// The slot of the running transaction that has a sequence number in an order group.
    pub(super) fn whose_turn(&self, group: u32, sequence: u64) -> Option<(u32, Status)> {
        (0..self.table().slots()).find_map(|number| {
            let slot = self.table().slot(number);
            let status = Status(slot.status.load(Acquire));
            let is_it = status.state().is_running()
                && slot.group.load(Relaxed) == group + 1
                && slot.sequence.load(Relaxed) == sequence;
            is_it.then_some((number, status))
        })
    }
}

/// Whether a slot's transaction gives way now. `flags`: those of the slot.
pub(super) fn gives_way(slot: &Slot, flags: u32) -> bool {
    flags & (OUTSIDE | SEVERAL) == OUTSIDE && slot.yields_ns.load(Relaxed) <= sync::now_ns()
}

/// What a slot's transaction waits for outside, and for how long it has given way for that.
pub(super) fn outside(slot: &Slot) -> Option<(OutsideWait, Duration)> {
    let flags = slot.flags.load(Acquire);
    if flags & (OUTSIDE | SEVERAL) != OUTSIDE {
        return None;
    }
    let call = u32::try_from(slot.outside_call.load(Relaxed)).ok()?;
    let wait = OutsideWait { call, argument: slot.outside_at.load(Relaxed) };
    let waited = sync::now_ns().checked_sub(slot.yields_ns.load(Relaxed))?;
    Some((wait, Duration::from_nanos(waited)))
}
