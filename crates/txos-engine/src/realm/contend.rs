//! A conflict with a holder: arbitrate, doom, seize.
//!
//! # Why a seized facet is safe
//!
//! The record's word says *slots*, and a slot may belong to another transaction by the time the
//! word is taken. So the winner first **pins** each holder's slot: a slot with a pin takes no next
//! generation. It then reads the slot's status, then the word again. If the word still shows the
//! slot, it is held by the generation that was read (earlier ones released everything before they
//! ended, later ones can't begin). That generation is then doomed, or found to have ended, and stays
//! so. If the word is still the same when it is exchanged, nobody who could commit lost anything.
//!
//! The winner does not wait for the loser to notice: the loser's bit is gone from the word, and its
//! release later finds nothing to release.

use std::time::Duration;

use super::layout::Slot;
use super::outside::{self, WAITED_OUTSIDE};
use super::status::{State, Status};
use super::sync::{self, AcqRel, Acquire, Note64, Relaxed, Release, SeqCst, Step};
use super::tx_handle::{SINGLE, TxHandle, depth};
use super::word::{Access, Word, bits};
use super::{Realm, WAITS_FOR_TURN};
use crate::contention::{self, Contender, Decision, Policy, Ruling};
use crate::id::TxId;

/// Why a transaction can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AbortCause {
    /// Another transaction won a conflict with this one.
    #[error("another transaction won a conflict: {0}")]
    Doomed(Opponent),
    /// By the realm's policy it gives way to one that holds what it wants.
    #[error("it gave way to another transaction: {0}")]
    Lost(Opponent),
    /// It would have to wait, and was not to (TX_NONBLOCK).
    #[error("it would have to wait for another transaction: {0}")]
    Busy(Opponent),
    /// Whoever attended its waiting called it off.
    #[error("it was called off while it waited for another transaction: {0}")]
    CalledOff(Opponent),
    /// Its turn among the ordered transactions is over: somebody else used its number.
    #[error("its turn is over: sequence number {sequence} was used by another transaction")]
    TurnOver {
        /// The number.
        sequence: u64,
    },
}

impl AbortCause {
    /// The other one, if there is one.
    #[must_use]
    pub fn opponent(&self) -> Option<&Opponent> {
        match self {
            AbortCause::Doomed(opponent)
            | AbortCause::Lost(opponent)
            | AbortCause::Busy(opponent)
            | AbortCause::CalledOff(opponent) => Some(opponent),
            AbortCause::TurnOver { .. } => None,
        }
    }
}

/// The other transaction of a conflict, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opponent {
    /// Its name, if it has one.
    pub id: Option<TxId>,
    /// Its process; 0 if unknown.
    pub pid: u32,
    /// What it runs.
    pub label: String,
    /// Why it won.
    pub reason: String,
    /// Its slot and generation, for [`Realm::wait_for`].
    pub(super) place: Option<(u32, u64)>,
}

impl std::fmt::Display for Opponent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.id {
            Some(id) => write!(f, "{id}")?,
            None if self.pid != 0 => write!(f, "of process {}", self.pid)?,
            None => write!(f, "which has ended")?,
        }
        if !self.label.is_empty() {
            write!(f, " ({})", self.label)?;
        }
        if !self.reason.is_empty() {
            write!(f, ": {}", self.reason)?;
        }
        Ok(())
    }
}

pub(super) fn id_of(word: u64) -> Option<TxId> {
    std::str::from_utf8(&word.to_le_bytes()).ok()?.parse().ok()
}

/// Bytes as a slot stores them.
pub(super) fn bytes_of(words: &[Note64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.load(Relaxed).to_le_bytes()).collect();
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

/// Text as a slot stores it. Others may be writing it: what is not UTF-8 is left out.
pub(super) fn text_of(words: &[Note64]) -> String {
    let mut text = String::from_utf8_lossy(&bytes_of(words)).into_owned();
    text.retain(|c| c != char::REPLACEMENT_CHARACTER && !c.is_control());
    text
}

impl Opponent {
    pub(super) fn of(slot: &Slot, number: u32, status: Status, reason: &str) -> Opponent {
        Opponent {
            id: id_of(slot.id.load(Relaxed)),
            pid: super::tx_handle::owner(slot).map_or(0, super::Identity::pid),
            label: text_of(&slot.label),
            reason: reason.to_owned(),
            place: Some((number, status.generation())),
        }
    }

    /// Who doomed the transaction in a slot.
    pub(super) fn who_doomed(realm: &Realm, slot: &Slot) -> Opponent {
        // The winner is about to write it down; killed before, it stays unknown.
        let written = || Some(slot.doomed_by_pid.load(Acquire)).filter(|&pid| pid != 0);
        let pid = (0..LOOKS_FOR_WINNER).find_map(|_| {
            written().or_else(|| {
                sync::sleep(Duration::from_micros(1));
                None
            })
        });
        let pid = pid.unwrap_or(0);
        // Written before the pid.
        let under = slot.doomed_under.load(Relaxed);
        let winner = (0..realm.table().slots())
            .map(|number| realm.table().slot(number))
            // It has no labels in the model, where every look costs.
            .filter(|_| !cfg!(loom))
            .find(|other| {
                pid != 0 && super::tx_handle::owner(other).is_some_and(|o| o.pid() == pid)
            });
        Opponent {
            id: id_of(slot.doomed_by.load(Relaxed)),
            pid,
            label: winner.map(|other| text_of(&other.label)).unwrap_or_default(),
            reason: match under {
                WAITED_OUTSIDE => {
                    "because this one waited for what no transaction holds".to_owned()
                }
                code => format!("by the policy {}", Policy::from_code(code).unwrap_or_default()),
            },
            place: None,
        }
    }
}

/// One conflict, over all its turns.
#[derive(Debug, Default)]
pub(super) struct ConflictWait {
    /// How often it waited.
    pub turn: u32,
    /// When it first waited; 0: it did not.
    pub since_ns: u64,
    /// How long it had waited when it last looked whether the other lives.
    pub looked_ns: u64,
    /// The conflict is counted.
    counted: bool,
    /// How often it waited for what takes an instant.
    instants: u32,
}

impl ConflictWait {
    pub fn has_waited(&self) -> bool {
        self.since_ns != 0
    }

    /// How long this turn is.
    pub fn pause(&self, seed: u64) -> Duration {
        if self.turn > TURNS_SHORT {
            return super::wait::SLICE_LONG;
        }
        contention::backoff::pause(self.turn, seed)
    }
}

/// How often what takes an instant is waited for as such: some 50 ms.
const INSTANTS_MAX: u32 = 1000;

/// Turns until waiting is for long: a second or so. No policy but the two that may wait for as long
/// as the other runs comes so far.
const TURNS_SHORT: u32 = 128;

/// How often a loser looks for who won before it is content not to know.
const LOOKS_FOR_WINNER: u32 = if cfg!(loom) { 1 } else { 50 };

/// How a conflict went.
pub(super) enum Resolution {
    /// The facet is ours.
    Seized,
    /// Something changed: look again.
    Again,
}

/// Slots pinned by a transaction; unpinned when dropped.
struct Pins<'r> {
    realm: &'r Realm,
    bit: u64,
    slots: u64,
}

impl Pins<'_> {
    /// The slot, whose generation does not change any more, and its status.
    fn pin(&mut self, number: u32) -> Status {
        let slot = self.realm.table().slot(number);
        self.slots |= 1 << number;
        slot.pins.fetch_or(self.bit, SeqCst);
        sync::fence_after_swap();
        Status(slot.status.load(SeqCst))
    }
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        for number in bits(self.slots) {
            self.realm.table().slot(number).pins.fetch_and(!self.bit, AcqRel);
        }
        // Its transaction may have ended meanwhile, and nobody could take it.
        if self.slots != 0 {
            self.realm.slot_is_free();
        }
    }
}

impl TxHandle<'_> {
    /// Deals with those in the way, one after the other.
    pub(super) fn contend(
        &mut self,
        index: u32,
        word: Word,
        others: u64,
        access: Access,
        waiting: &mut ConflictWait,
    ) -> Result<Resolution, AbortCause> {
        let (realm, orec) = (self.realm, self.realm.table().orec(index));
        if self.is_doomed() {
            return Err(self.defeat());
        }
        if !std::mem::replace(&mut waiting.counted, true) {
            realm.table().board().conflicts.fetch_add(1, Relaxed);
        }
        let mut pins = Pins { realm, bit: self.bit, slots: 0 };
        for number in bits(others) {
            let slot = realm.table().slot(number);
            let status = pins.pin(number);
            if orec.load(Acquire) != word.0 && !sync::left_out(Step::LookAgain) {
                return Ok(Resolution::Again);
            }
            match status.state() {
                // Pinned, and nobody's: what releases a slot releases the records before. A bit that
                // is still there was never anybody's.
                State::Idle | State::Publishing
                    if slot.owner.load(Acquire) == 0 && orec.load(Acquire) == word.0 => {}
                // The word is newer than the status; or it is one that died as it began; or one that
                // is about to begin, and the bit was never anybody's: it is let go on.
                State::Idle => {
                    drop(pins);
                    if !realm.take_over_if_dead(number) {
                        self.wait_briefly(number, status, index, waiting)?;
                    }
                    return Ok(Resolution::Again);
                }
                State::Committed | State::Doomed | State::Aborted => {}
                State::Publishing => {
                    drop(pins);
                    if self.nonblock {
                        let opponent = Opponent::of(slot, number, status, "it is being published");
                        return self.give_way(number, AbortCause::Busy(opponent));
                    }
                    self.wait_turn(number, status, index, waiting)?;
                    return Ok(Resolution::Again);
                }
                State::Active | State::Preparing => {
                    let Some(ruling) = self.judge(slot, number, status, waiting.turn) else {
                        return Ok(Resolution::Again);
                    };
                    match ruling.decision {
                        Decision::AbortOther => {
                            let outside = outside::gives_way(slot, slot.flags.load(Relaxed));
                            let under =
                                if outside { WAITED_OUTSIDE } else { realm.policy().code() };
                            if !self.doom(slot, status, index, under) {
                                return Ok(Resolution::Again);
                            }
                        }
                        Decision::AbortSelf => {
                            let opponent = Opponent::of(slot, number, status, ruling.reason);
                            return self.give_way(number, AbortCause::Lost(opponent));
                        }
                        Decision::Wait if self.nonblock => {
                            let opponent = Opponent::of(slot, number, status, ruling.reason);
                            return self.give_way(number, AbortCause::Busy(opponent));
                        }
                        Decision::Wait => {
                            drop(pins);
                            self.wait_turn(number, status, index, waiting)?;
                            return Ok(Resolution::Again);
                        }
                    }
                }
            }
        }
        let seized = word.seized(self.bit, access, self.hold);
        let taken = orec.compare_exchange(word.0, seized.0, AcqRel, Acquire).is_ok();
        Ok(if taken { Resolution::Seized } else { Resolution::Again })
    }

    /// Waits for what takes an instant. Where it goes on for longer, somebody was stopped in
    /// between, or the segment was scribbled on: then it is a wait like any other.
    fn wait_briefly(
        &mut self,
        number: u32,
        status: Status,
        index: u32,
        waiting: &mut ConflictWait,
    ) -> Result<(), AbortCause> {
        waiting.instants = waiting.instants.saturating_add(1);
        if waiting.instants <= INSTANTS_MAX || cfg!(loom) {
            sync::sleep(Duration::from_micros(1));
            return Ok(());
        }
        if self.nonblock {
            let slot = self.realm.table().slot(number);
            return Err(AbortCause::Busy(Opponent::of(
                slot,
                number,
                status,
                "it is about to begin",
            )));
        }
        self.wait_turn(number, status, index, waiting)?;
        sync::sleep(waiting.pause(self.seed()));
        Ok(())
    }

    /// Gives way, unless the other is dead: nobody would ever take over from it if all gave way.
    fn give_way(&self, number: u32, stop: AbortCause) -> Result<Resolution, AbortCause> {
        if self.realm.take_over_if_dead(number) {
            return Ok(Resolution::Again);
        }
        if matches!(stop, AbortCause::Lost(_)) {
            self.realm.table().board().yields.fetch_add(1, Relaxed);
        }
        Err(stop)
    }

    /// Asks the policy; `None` if the other is no longer what it was.
    fn judge(&self, slot: &Slot, number: u32, status: Status, turn: u32) -> Option<Ruling> {
        let policy = self.realm.policy();
        let me = contender(self.own(), self.slot, policy);
        let other = contender(slot, number, policy);
        let ordered = ordered_before(self.own(), slot);
        let flags = slot.flags.load(Relaxed);
        let own_flags = self.own().flags.load(Relaxed);
        let depths = (depth(own_flags), depth(flags));
        if Status(slot.status.load(Acquire)).generation() != status.generation() {
            return None;
        }
        let decide = |decision, reason| Some(Ruling { decision, reason });
        match ordered {
            Some(true) => decide(Decision::AbortOther, "its turn comes first"),
            Some(false) if other.waiting => decide(Decision::AbortSelf, "its turn comes later"),
            Some(false) => decide(Decision::Wait, "its turn comes later"),
            None if own_flags & outside::BEHIND == 0 && outside::gives_way(slot, flags) => {
                decide(Decision::AbortOther, "the other waits for what no transaction holds")
            }
            None if depths.0 < depths.1 => decide(Decision::AbortOther, "the other defers"),
            // A single call costs nothing to begin again, and what it holds it holds for an instant.
            None if flags & SINGLE != 0 && !other.waiting => {
                decide(Decision::Wait, "the other is a single call")
            }
            None if depths.0 > depths.1 => match other.waiting {
                true => decide(Decision::AbortSelf, "it defers, and the other waits"),
                false => decide(Decision::Wait, "it defers"),
            },
            None => Some(contention::arbitrate(policy, &me, &other, turn)),
        }
    }

    /// Dooms the other, if it is still what it was.
    fn doom(&self, slot: &Slot, status: Status, index: u32, under: u32) -> bool {
        let own = self.own();
        let mut now = status;
        loop {
            let doomed = now.with(State::Doomed);
            match slot.status.compare_exchange(now.0, doomed.0, AcqRel, Acquire) {
                Ok(_) => break,
                // Preparing, or waited for, since it was looked at: still the same transaction.
                Err(other) => {
                    let other = Status(other);
                    let same = other.generation() == now.generation();
                    if !same || !other.state().is_doomable() {
                        return false;
                    }
                    now = other;
                }
            }
        }
        self.realm.table().board().dooms.fetch_add(1, Relaxed);
        slot.doomed_by.store(own.id.load(Relaxed), Relaxed);
        slot.doomed_over.store(index, Relaxed);
        slot.doomed_under.store(under, Relaxed);
        // The last word: until it is there the rest is not known.
        slot.doomed_by_pid.store(self.realm.me().pid(), Release);
        sync::ring(&slot.bell);
        // Those that wait for it need not.
        if now.is_waited_for() {
            self.realm.ring_waiters(slot);
        }
        true
    }
}

/// What arbitration is told of a slot's transaction.
fn contender(slot: &Slot, number: u32, policy: Policy) -> Contender {
    let priority = match policy {
        Policy::OsPriority => super::wait::priority(slot.thread.load(Relaxed)),
        _ => 0,
    };
    Contender {
        priority,
        start_ns: slot.start_ns.load(Relaxed),
        slot: number,
        work: slot.work.load(Relaxed),
        size: slot.size.load(Relaxed),
        restarts: slot.restarts.load(Relaxed),
        waiting: slot.waiting_for.load(SeqCst) != 0,
    }
}

/// Of two ordered transactions of one group: whether the first comes first.
fn ordered_before(a: &Slot, b: &Slot) -> Option<bool> {
    let group = a.group.load(Relaxed);
    if group == 0 || group != b.group.load(Relaxed) {
        return None;
    }
    Some(a.sequence.load(Relaxed) < b.sequence.load(Relaxed))
}

/// Whom a slot waits for.
pub(super) fn waits_for(slot: &Slot) -> Option<super::WaitsFor> {
    match slot.waiting_for.load(Acquire) {
        0 => None,
        WAITS_FOR_TURN => Some(super::WaitsFor::Turn),
        number => Some(super::WaitsFor::Slot(number - 1)),
    }
}
