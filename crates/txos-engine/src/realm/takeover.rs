//! What becomes of the slots of dead processes.
//!
//! Whoever meets one takes over: there is no daemon that would. The `taker` word of the slot is
//! the lock, and holds the taker's identity, so a taker that dies is found dead by the next one.
//! All steps can be repeated.
//!
//! | the dead one was | what is done |
//! |---|---|
//! | about to begin | the slot becomes free |
//! | active, preparing, doomed | nothing of it can be seen: what it held is released |
//! | publishing | its journal decides ([`ResolvePublish`]): the publish is finished or undone, then as above |
//! | committed, aborted | what it still held is released |
//!
//! A process that is stopped (SIGSTOP) is not dead, and is not overtaken, whatever it does.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::contend::{bytes_of, id_of};
use super::layout::Slot;
use super::status::{State, Status};
use super::sync::{self, AcqRel, Acquire, Relaxed, Release, Step};
use super::tx_handle::{AT_ONCE, owner};
use super::word::{HOLDERS, bits};
use super::{Identity, Realm};
use crate::id::TxId;

/// What a process left that died while it published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadPublish {
    /// The transaction, if it has a name.
    pub id: Option<TxId>,
    /// The process.
    pub pid: u32,
    /// The home store whose journal knows; empty if it is not known.
    pub home: PathBuf,
}

/// What became of a publish whose process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishFate {
    /// It is complete.
    Committed,
    /// It never happened.
    Undone,
}

/// It can't be said now what became of a publish; those who need what it held wait on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved(pub String);

/// Whoever knows the journals.
pub trait ResolvePublish: Send + Sync {
    /// Finishes or undoes the publish of a dead process. Called again if the caller dies: it must
    /// be possible to repeat.
    ///
    /// # Errors
    /// [`Unresolved`] if neither can be done now.
    fn resolve(&self, remains: &DeadPublish) -> Result<PublishFate, Unresolved>;
}

impl<F: Fn(&DeadPublish) -> Result<PublishFate, Unresolved> + Send + Sync> ResolvePublish for F {
    fn resolve(&self, remains: &DeadPublish) -> Result<PublishFate, Unresolved> {
        self(remains)
    }
}

impl Realm {
    /// Takes over from every dead owner. Gives the number of slots that were cleared.
    pub fn sweep(&self) -> u32 {
        (0..self.table().slots()).map(|n| u32::from(self.take_over_if_dead(n))).sum()
    }

    /// Takes pins off that nobody set: after a segment was scribbled on, they would keep free slots from
    /// being taken for ever. Who has the slot of a free place has no pins, and nobody pins in its name
    /// as long as it is held here, without a next generation.
    pub(super) fn unpin_free(&self) {
        // The model's participants do not scribble.
        if cfg!(loom) {
            return;
        }
        let table = self.table();
        let slots = || (0..table.slots()).map(|number| table.slot(number));
        let pinned = slots().fold(0, |all, slot| all | slot.pins.load(Acquire));
        if pinned & !HOLDERS != 0 {
            for slot in slots() {
                slot.pins.fetch_and(HOLDERS, AcqRel);
            }
        }
        for number in bits(pinned & HOLDERS) {
            let place = table.slot(number);
            if place.owner.compare_exchange(0, self.me().word(), AcqRel, Relaxed).is_ok() {
                for slot in slots() {
                    slot.pins.fetch_and(!(1 << number), AcqRel);
                }
                place.owner.store(0, Release);
            }
        }
    }

    /// The same for the members of an order group.
    pub(super) fn sweep_group(&self, group: u32) {
        for number in 0..self.table().slots() {
            if self.table().slot(number).group.load(Relaxed) == group {
                self.take_over_if_dead(number);
            }
        }
    }

    /// Clears the slot if its owner is dead. Whether it did.
    pub(super) fn take_over_if_dead(&self, number: u32) -> bool {
        let slot = self.table().slot(number);
        let Some(dead) = owner(slot).filter(|o| o.is_dead()) else { return false };
        if !self.lock(slot) {
            return false;
        }
        // Somebody else may have been faster, and the slot may have a new, living owner.
        let cleared = owner(slot) == Some(dead) && self.clear(slot, 1 << number, dead);
        slot.taker.store(0, Release);
        if cleared {
            self.table().board().takeovers.fetch_add(1, Relaxed);
            self.slot_is_free();
        }
        cleared
    }

    /// Becomes the slot's taker, unless one lives.
    fn lock(&self, slot: &Slot) -> bool {
        let before = slot.taker.load(Acquire);
        if Identity::from_word(before).is_some_and(|taker| !taker.is_dead()) {
            return false;
        }
        slot.taker.compare_exchange(before, self.me().word(), AcqRel, Relaxed).is_ok()
    }

    /// A publish has ended: said before what it holds is released ([`Realm::publishes_ended`]).
    pub(super) fn count_publish(&self) {
        if !sync::left_out(Step::CountPublish) {
            self.table().board().ended.fetch_add(1, AcqRel);
        }
    }

    /// The steps. `false`: its journal can't be asked now.
    fn clear(&self, slot: &Slot, bit: u64, dead: Identity) -> bool {
        let status = Status(slot.status.load(Acquire));
        let mut committed = status.state() == State::Committed;
        let at_once = slot.flags.load(Relaxed) & AT_ONCE != 0;
        if status.state() == State::Publishing && !at_once {
            let remains = DeadPublish {
                id: id_of(slot.id.load(Relaxed)),
                pid: dead.pid(),
                home: PathBuf::from(std::ffi::OsString::from_vec(bytes_of(&slot.home))),
            };
            match self.resolver.resolve(&remains) {
                Ok(fate) => committed = fate == PublishFate::Committed,
                Err(Unresolved(why)) => {
                    // Once, not each time that somebody who waits looks.
                    if self.unresolved.swap(dead.word(), Relaxed) != dead.word() {
                        let pid = dead.pid();
                        tracing::warn!("the publish of process {pid} can't be resolved now: {why}");
                    }
                    return false;
                }
            }
        }
        // Counted before it has ended: see [`Realm::quiet`].
        if status.state() == State::Publishing {
            let count = if committed { &slot.commits } else { &slot.aborts };
            count.fetch_add(1, Relaxed);
            self.count_publish();
        }
        let ended = if committed { State::Committed } else { State::Aborted };
        slot.status.swap(Status::new(status.generation(), ended).0, AcqRel);
        if committed {
            self.pass_turn_of(slot);
        }
        self.ring_waiters(slot);
        let table = self.table();
        for index in 0..table.orecs() {
            let orec = table.orec(index);
            if orec.load(Relaxed) & bit != 0 {
                orec.fetch_and(!bit, Release);
            }
        }
        for number in 0..table.slots() {
            let other = table.slot(number);
            other.pins.fetch_and(!bit, AcqRel);
            other.waiters.fetch_and(!bit, AcqRel);
        }
        slot.waiting_for.store(0, Relaxed);
        slot.status.store(Status::new(status.generation(), State::Idle).0, Release);
        slot.owner.store(0, Release);
        true
    }
}
