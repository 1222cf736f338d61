//! Ordered transactions: those of one process group commit in the order of their numbers.
//!
//! As in TxOS+ (papers/003, "Ordered transactions"): each process group has a counter that begins
//! at zero and can be reset. A transaction with number *n* publishes when the counter is *n*, and its
//! commit makes it *n* + 1. An abort leaves the counter where it is: the number is begun again.
//! Where two of a group meet, the lower number wins, whatever the policy.
//!
//! # Invariants
//!
//! - The counter moves by exchange from *n* to *n* + 1, by the committer or by whoever takes over
//!   from it when it died after its commit; so it moves once.
//! - A group's place is taken under a lock that names its holder, and is complete before its key is
//!   written. A place whose process group is gone can be taken again.

use super::layout::{GROUPS, Group, Slot};
use super::sync::{self, AcqRel, Acquire, Relaxed, Release};
use super::ticket::{BeginError, Ticket};
use super::word::bits;
use super::{Identity, Realm};

/// A place in a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Number of the order group.
    pub group: u32,
    /// Sequence number.
    pub sequence: u64,
}

/// Index in `reserved` of group 0: the lock of the table of groups.
const LOCK: usize = 0;

impl Realm {
    /// A place in the sequence of this process group.
    pub(super) fn take_turn(&self, sequence: u64, reset: bool) -> Result<Turn, BeginError> {
        let key = group_key();
        let (number, group) = match self.find_group(key) {
            Some(found) => found,
            None => self.make_group(key)?,
        };
        if reset {
            group.next.store(sequence, Release);
            self.ring_turn(group);
        }
        let next = group.next.load(Acquire);
        if next > sequence {
            return Err(BeginError::TurnOver { asked: sequence, next });
        }
        Ok(Turn { group: number, sequence })
    }

    fn find_group(&self, key: u64) -> Option<(u32, &Group)> {
        (0..GROUPS as u32)
            .map(|n| (n, self.table().group(n as usize)))
            .find(|(_, group)| group.key.load(Acquire) == key)
    }

    #[cold]
    fn make_group(&self, key: u64) -> Result<(u32, &Group), BeginError> {
        let lock = self.table().group(0).reserved.get(LOCK);
        let Some(lock) = lock else { return Err(BeginError::TooManyGroups) };
        loop {
            let before = lock.load(Acquire);
            let free = Identity::from_word(before).is_none_or(Identity::is_dead);
            if free && lock.compare_exchange(before, self.me.word(), AcqRel, Relaxed).is_ok() {
                break;
            }
            sync::sleep(std::time::Duration::from_micros(50));
        }
        let found = self.find_group(key).or_else(|| {
            let (number, group) = (0..GROUPS as u32)
                .map(|n| (n, self.table().group(n as usize)))
                .find(|(_, group)| is_gone(group.key.load(Acquire)))?;
            group.next.store(0, Relaxed);
            group.waiters.store(0, Relaxed);
            group.key.store(key, Release);
            Some((number, group))
        });
        lock.store(0, Release);
        found.ok_or(BeginError::TooManyGroups)
    }

    fn ring_turn(&self, group: &Group) {
        for waiter in bits(group.waiters.swap(0, AcqRel)) {
            sync::ring(&self.table().slot(waiter).bell);
        }
    }

    /// The turn of a slot's committed transaction is over, if that is not known yet.
    pub(super) fn pass_turn_of(&self, slot: &Slot) {
        let Some(number) = slot.group.load(Relaxed).checked_sub(1) else { return };
        let sequence = slot.sequence.load(Relaxed);
        let group = self.table().group(number as usize);
        if group.next.compare_exchange(sequence, sequence + 1, AcqRel, Relaxed).is_ok() {
            self.ring_turn(group);
        }
    }
}

impl Ticket<'_> {
    pub(super) fn pass_turn(&self) {
        if self.turn.is_some() {
            self.realm.pass_turn_of(self.own());
        }
    }
}

/// This process group: its number, and when its leader started if it lives. A group outlives its
/// leader, so one that was known keeps its key: the number alone decides then.
fn group_key() -> u64 {
    u64::from(rustix::process::getpgrp().as_raw_nonzero().get().cast_unsigned())
}

/// Whether a group's place can be taken: nobody is in the process group any more.
fn is_gone(key: u64) -> bool {
    let pgid = rustix::process::Pid::from_raw(key as i32);
    pgid.is_none_or(|pgid| {
        rustix::process::test_kill_process_group(pgid) == Err(rustix::io::Errno::SRCH)
    })
}
