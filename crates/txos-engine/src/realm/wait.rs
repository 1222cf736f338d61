//! Waiting for a transaction to end.
//!
//! # Invariants
//!
//! - Who waits sleeps at the bell of **its own** slot; whoever dooms it, or ends what it waits for,
//!   rings there. No wake-up is lost: it reads the bell, registers with the other, looks whether
//!   the other still runs, whether that waits itself and whether it is doomed, and only then sleeps,
//!   if the bell is still as it was. The other's end is one exchange of its status, which tells it
//!   of waiters.
//! - A sleep is a slice at most: whoever should have rung may have been killed.
//! - Nobody waits on one who waits: see the realm's invariants.

use std::time::Duration;

use super::contend::{AbortCause, ConflictWait, Opponent};
use super::outside::{self, OutsideWait};
use super::status::{State, Status};
use super::sync::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use super::tx_handle::{TxHandle, owner};
use super::{Realm, WAITS_FOR_TURN};

/// The longest sleep without a look around.
pub(super) const SLICE_LONG: Duration = Duration::from_millis(50);

/// How often it is looked whether the other still lives.
const LOOK_AT_LIFE: Duration = Duration::from_millis(5);

/// Somebody waits.
#[derive(Clone, Debug)]
pub struct WaitInfo {
    /// For whom.
    pub holder: Opponent,
    /// For how long it has waited.
    pub waited: Duration,
    /// Whether a living process publishes the other, and waits for nobody, as no publish does: it will not
    /// take long, and who does not wait may see half of it.
    pub publishing: bool,
    /// What the holder itself waits for, if the realm does not know of that, and for how long it has.
    pub outside: Option<(OutsideWait, Duration)>,
    /// It waits for its turn among ordered transactions: that of this number comes first.
    pub turn_of: Option<u64>,
}

/// What is to be done about a standstill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitDecision {
    /// Wait on.
    Wait,
    /// Stop: the transaction aborts.
    CallOff,
}

impl TxHandle<'_> {
    /// Waits one turn for the transaction in a slot. Returns when it may be worth looking again.
    pub(super) fn wait_turn(
        &mut self,
        number: u32,
        status: Status,
        index: u32,
        waiting: &mut ConflictWait,
    ) -> Result<(), AbortCause> {
        let (realm, own) = (self.realm, self.own());
        let other = realm.table().slot(number);
        if !waiting.has_waited() {
            waiting.since_ns = sync::now_ns().max(1);
            realm.table().board().waits.fetch_add(1, Relaxed);
        }
        own.waiting_at.store(index, Relaxed);
        own.waiting_since_ns.store(waiting.since_ns, Relaxed);
        let bell = own.bell.load(Acquire);
        own.waiting_for.store(number + 1, SeqCst);
        other.waiters.fetch_or(self.bit, AcqRel);
        let runs = mark_waited_for(other, status);
        sync::full_fence();
        // It waits itself: let the policy decide again, knowing that.
        if status.state().is_doomable() && other.waiting_for.load(SeqCst) != 0 {
            own.waiting_for.store(0, Release);
            waiting.turn = waiting.turn.saturating_add(1);
            return Ok(());
        }
        if runs && !self.is_doomed() {
            sync::wait(&own.bell, bell, waiting.pause(self.seed()));
        }
        own.waiting_for.store(0, Release);
        waiting.turn = waiting.turn.saturating_add(1);
        if self.is_doomed() {
            return Err(self.defeat());
        }
        self.look_around(number, status, waiting)
    }

    /// After a turn: is the other dead? Does anybody want to know?
    fn look_around(
        &mut self,
        number: u32,
        status: Status,
        waiting: &mut ConflictWait,
    ) -> Result<(), AbortCause> {
        let waited_ns = sync::now_ns().saturating_sub(waiting.since_ns);
        if waited_ns.saturating_sub(waiting.looked_ns) < LOOK_AT_LIFE.as_nanos() as u64
            && !cfg!(loom)
        {
            return Ok(());
        }
        waiting.looked_ns = waited_ns;
        self.realm.take_over_if_dead(number);
        let other = self.realm.table().slot(number);
        let still = Status(other.status.load(Acquire)).generation() == status.generation();
        if let Some(attend) = self.attend.as_mut().filter(|_| still) {
            let holder = Opponent::of(other, number, status, "");
            let waited = Duration::from_nanos(waited_ns);
            let publishing = status.state() == State::Publishing && is_at_work(other);
            let outside = outside::outside(other);
            let info = WaitInfo { holder, waited, publishing, outside, turn_of: None };
            if attend(&info) == WaitDecision::CallOff {
                return Err(AbortCause::CalledOff(info.holder));
            }
        }
        Ok(())
    }

    /// Different for any two transactions that can meet.
    pub(super) fn seed(&self) -> u64 {
        u64::from(self.slot) << 48 ^ self.own().start_ns.load(Relaxed)
    }

    /// Waits until it is this ordered transaction's turn; others do not wait. [`TxHandle::publish`]
    /// does the same; who holds a lock that others publish under waits before.
    ///
    /// # Errors
    /// [`AbortCause`].
    pub fn await_turn(&mut self) -> Result<(), AbortCause> {
        let Some(turn) = self.turn else { return Ok(()) };
        let (realm, own) = (self.realm, self.own());
        let group = realm.table().group(turn.group as usize);
        let since_ns = sync::now_ns();
        loop {
            let bell = own.bell.load(Acquire);
            own.waiting_since_ns.store(since_ns, Relaxed);
            own.waiting_for.store(WAITS_FOR_TURN, SeqCst);
            group.waiters.fetch_or(self.bit, AcqRel);
            sync::full_fence();
            let next = group.next.load(Acquire);
            // Those that began to wait for it when it did not wait may close a cycle with whoever's
            // turn it is, which this one can't see. They look again.
            if next < turn.sequence && Status(own.status.load(Relaxed)).is_waited_for() {
                realm.ring_waiters(own);
            }
            if next < turn.sequence && !self.is_doomed() && !self.nonblock {
                sync::wait(&own.bell, bell, SLICE_LONG);
                realm.sweep_group(turn.group + 1);
            }
            own.waiting_for.store(0, Release);
            if self.is_doomed() {
                return Err(self.defeat());
            }
            match next.cmp(&turn.sequence) {
                std::cmp::Ordering::Equal => return Ok(()),
                std::cmp::Ordering::Greater => {
                    return Err(AbortCause::TurnOver { sequence: turn.sequence });
                }
                std::cmp::Ordering::Less => {}
            }
            let reason = format!("it is the turn of sequence number {next}");
            let now = if cfg!(loom) { None } else { realm.whose_turn(turn.group, next) };
            let slot = now.map(|(number, _)| realm.table().slot(number));
            let outside = slot.and_then(outside::outside);
            let holder = match (slot, now) {
                (Some(slot), Some((number, status))) => {
                    Opponent { place: None, ..Opponent::of(slot, number, status, &reason) }
                }
                _ => Opponent { reason, ..Opponent::default() },
            };
            if self.nonblock {
                realm.sweep_group(turn.group + 1);
                if group.next.load(Acquire) == next {
                    return Err(AbortCause::Busy(holder));
                }
                continue;
            }
            let waited = Duration::from_nanos(sync::now_ns().saturating_sub(since_ns));
            if let Some(attend) = self.attend.as_mut() {
                let turn_of = Some(next);
                let info = WaitInfo { holder, waited, publishing: false, outside, turn_of };
                if attend(&info) == WaitDecision::CallOff {
                    return Err(AbortCause::CalledOff(info.holder));
                }
            }
        }
    }
}

impl Realm {
    /// Waits for the end of the transaction that was in the way, for `time` at most: what an attempt
    /// that gave way does before the next. It holds nothing meanwhile.
    pub fn wait_for(&self, opponent: &Opponent, time: Duration) {
        let Some((number, generation)) = opponent.place else { return };
        let deadline = sync::now_ns().saturating_add(time.as_nanos() as u64);
        let slot = self.table().slot(number);
        let mut turn = 0;
        loop {
            let status = Status(slot.status.load(Acquire));
            let now = sync::now_ns();
            if status.generation() != generation || !status.state().is_running() || now >= deadline
            {
                return;
            }
            // Without a slot there is no bell to be rung at: look again, less and less often.
            let pause = crate::contention::backoff::pause(turn, u64::from(self.me().pid()));
            sync::sleep(pause.min(Duration::from_nanos(deadline - now)));
            turn += 1;
            if turn % 16 == 0 {
                self.take_over_if_dead(number);
            }
        }
    }
}

/// Whether a slot that says that it publishes is one that does. One whose owner has died, and whose
/// journal can't be asked, ends no sooner than somebody resolves it; one that waits, or is nobody's, was
/// scribbled on.
fn is_at_work(slot: &super::layout::Slot) -> bool {
    slot.waiting_for.load(Acquire) == 0 && owner(slot).is_some_and(|owner| !owner.is_dead())
}

/// Marks a transaction as waited for; `false` if it has ended.
fn mark_waited_for(slot: &super::layout::Slot, status: Status) -> bool {
    let mut now = Status(slot.status.load(Acquire));
    loop {
        if now.generation() != status.generation() || !now.state().is_running() {
            return false;
        }
        if now.is_waited_for() {
            return true;
        }
        match slot.status.compare_exchange(now.0, now.waited_for().0, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(other) => now = Status(other),
        }
    }
}

/// The scheduling priority of a thread, larger is more important: 100 and more for a realtime
/// class, 20 to -19 for nice -20 to 19, below that for SCHED_IDLE.
pub(super) fn priority(thread: u32) -> i32 {
    #[cfg(loom)]
    return thread as i32;
    #[cfg(not(loom))]
    {
        // What no kernel gives out was not written by a participant.
        let pid = i32::try_from(thread).ok().and_then(rustix::process::Pid::from_raw);
        let nice = pid.map_or(Ok(0), |pid| rustix::process::getpriority_process(Some(pid)));
        match crate::sys_sched::class(thread) {
            crate::sys_sched::Class::Realtime(priority) => 100 + priority,
            crate::sys_sched::Class::Idle => -100,
            crate::sys_sched::Class::Normal => -nice.unwrap_or(0),
        }
    }
}
