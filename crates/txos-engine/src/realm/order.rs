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
//! - Of the realm's slots one is always left to transactions that need not wait for their turn: the
//!   one whose turn it is can always begin.
//! - A group's place is taken under a lock that names its holder, and is complete before its key is
//!   written. A place whose process group is gone can be taken again, once what is left of its
//!   transactions is resolved.

use super::layout::{GROUPS, Group, Slot};
use super::status::{State, Status};
use super::sync::{self, AcqRel, Acquire, Relaxed, Release};
use super::tx_handle::{BeginError, TxHandle, owner};
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

/// How often the lock of the table of groups is tried. It is held for microseconds; who still has it
/// after some seconds was stopped, or is none who took it.
const LOCK_TRIES_MAX: u32 = 50_000;

impl Realm {
    /// A place in the sequence of this process group.
    pub(super) fn take_turn(&self, sequence: u64, reset: bool) -> Result<Turn, BeginError> {
        let key = Key::of_self().ok_or(BeginError::NoGroup)?;
        let (number, group) = match self.find_group(key) {
            Some(found) => found,
            None => self.make_group(key)?,
        };
        if reset {
            group.next.store(sequence, Release);
            self.ring_turn(group);
            // Some wait for a slot until it is their turn.
            self.slot_is_free();
        }
        // A dead one may have been publishing with this number: it is known first whether it did.
        self.sweep_group(number + 1);
        let next = group.next.load(Acquire);
        if next > sequence {
            return Err(BeginError::TurnOver { asked: sequence, next });
        }
        Ok(Turn { group: number, sequence })
    }

    fn find_group(&self, key: Key) -> Option<(u32, &Group)> {
        (0..GROUPS as u32)
            .map(|n| (n, self.table().group(n as usize)))
            .find(|(_, group)| key.is(group.key.load(Acquire)))
    }

    #[cold]
    fn make_group(&self, key: Key) -> Result<(u32, &Group), BeginError> {
        let lock = self.table().group(0).reserved.get(LOCK);
        let Some(lock) = lock else { return Err(BeginError::TooManyGroups) };
        let mut tries = 0;
        loop {
            let before = lock.load(Acquire);
            let free = Identity::from_word(before).is_none_or(Identity::is_dead);
            if free && lock.compare_exchange(before, self.me().word(), AcqRel, Relaxed).is_ok() {
                break;
            }
            tries += 1;
            if tries > LOCK_TRIES_MAX {
                return Err(BeginError::TooManyGroups);
            }
            sync::sleep(std::time::Duration::from_micros(50));
        }
        let found = self.find_group(key).or_else(|| self.take_place(key));
        lock.store(0, Release);
        found.ok_or(BeginError::TooManyGroups)
    }

    /// Takes the place of a group that is gone, under the lock.
    fn take_place(&self, key: Key) -> Option<(u32, &Group)> {
        let (number, group) = (0..GROUPS as u32)
            .map(|n| (n, self.table().group(n as usize)))
            .find(|(n, group)| key.replaces(group.key.load(Acquire)) && self.is_left(*n))?;
        group.next.store(0, Relaxed);
        group.waiters.store(0, Relaxed);
        group.key.store(key.word(), Release);
        Some((number, group))
    }

    /// Whether no transaction belongs to a place any more. A dead one whose commit is not known yet
    /// would end the turn of whoever has the place then.
    fn is_left(&self, number: u32) -> bool {
        self.sweep_group(number + 1);
        (0..self.table().slots()).map(|n| self.table().slot(n)).all(|slot| {
            owner(slot).is_none()
                || slot.group.load(Relaxed) != number + 1
                || Status(slot.status.load(Acquire)).state() == State::Idle
        })
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
        if group.next.compare_exchange(sequence, sequence.wrapping_add(1), AcqRel, Relaxed).is_ok()
        {
            self.ring_turn(group);
        }
    }
}

impl TxHandle<'_> {
    pub(super) fn pass_turn(&self) {
        if self.turn.is_some() {
            self.realm.pass_turn_of(self.own());
        }
    }
}

/// A process group: its number, and its leader as long as that lives. The number alone would not do:
/// it is given out again when the group is gone.
#[derive(Clone, Copy, Debug)]
struct Key {
    number: u32,
    leader: Option<Identity>,
}

impl Key {
    /// This process's group, if it has a number in this PID namespace.
    fn of_self() -> Option<Key> {
        // The model has one group, and asks for it often.
        #[cfg(loom)]
        return Some(Key { number: 1, leader: None });
        #[cfg(not(loom))]
        crate::process_group().map(|group| {
            let number = group.as_raw_nonzero().get().cast_unsigned();
            Key { number, leader: Identity::of(number) }
        })
    }

    /// As it is stored: the leader's identity, without a start if it had ended.
    fn word(self) -> u64 {
        self.leader.map_or(u64::from(self.number), Identity::word)
    }

    /// Whether a stored key is this group's. A group outlives its leader, and is known by its number
    /// alone then; a leader that lives was its leader from the beginning.
    fn is(self, stored: u64) -> bool {
        match self.leader {
            Some(leader) => leader.word() == stored,
            None => Identity::from_word(stored).is_some_and(|known| known.pid() == self.number),
        }
    }

    /// Whether the place of a stored key, which is another group's, can be taken: nobody is in that
    /// group any more.
    fn replaces(self, stored: u64) -> bool {
        let Some(known) = Identity::from_word(stored) else { return true };
        let pgid = rustix::process::Pid::from_raw(known.pid().cast_signed());
        known.pid() == self.number
            || pgid.is_none_or(|pgid| {
                rustix::process::test_kill_process_group(pgid) == Err(rustix::io::Errno::SRCH)
            })
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_known_by_its_leader_as_long_as_that_lives() {
        let leader = Identity::of_self().ok();
        let number = std::process::id();
        let (led, left) = (Key { number, leader }, Key { number, leader: None });
        assert!(led.is(led.word()) && left.is(led.word()) && left.is(left.word()));
        // It had ended when the place was taken: this one has the same number, and is another.
        assert!(!led.is(left.word()) && led.replaces(left.word()));
        let earlier = led.word() ^ 1 << 40;
        assert!(!led.is(earlier) && led.replaces(earlier));
        assert!(!led.is(0) && !left.is(0) && led.replaces(0));
        let other = Key { number: 1, leader: None };
        let mine = crate::process_group().unwrap().as_raw_nonzero().get().cast_unsigned();
        assert!(!other.is(led.word()) && !other.replaces(u64::from(mine)));
    }
}
