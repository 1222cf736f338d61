//! What people are shown of a realm.

use std::time::Duration;

use super::Realm;
use super::contend::{id_of, text_of, waits_for};
use super::status::{State, Status};
use super::sync::{self, Acquire, Relaxed};
use super::tx_handle::owner;
use super::wait::priority;
use super::word::Word;
use crate::contention::Policy;
use crate::id::TxId;

/// A transaction that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its slot.
    pub slot: u32,
    /// Its name, if it has one.
    pub id: Option<TxId>,
    /// Its process.
    pub pid: u32,
    /// What it runs.
    pub label: String,
    /// How far it has come.
    pub state: State,
    /// Scheduling priority, larger is more important.
    pub priority: i32,
    /// Time since its first attempt began.
    pub age: Duration,
    /// Facets it holds.
    pub held: u64,
    /// Facets acquired, over all attempts.
    pub work: u64,
    /// Attempts that failed.
    pub restarts: u32,
    /// For whom it waits, and for how long.
    pub waits: Option<(WaitsFor, Duration)>,
    /// Its process is dead; the next one to need what it holds clears it away.
    pub dead: bool,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// For the transaction in this slot.
    Slot(u32),
    /// For its turn.
    Turn,
}

/// Counters of a realm, since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The policy now.
    pub policy: Policy,
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that aborted.
    pub aborts: u64,
    /// Meetings with somebody in the way.
    pub conflicts: u64,
    /// Transactions that were doomed.
    pub dooms: u64,
    /// Times somebody gave way.
    pub yields: u64,
    /// Times somebody waited.
    pub waits: u64,
    /// Slots of dead processes that were cleared.
    pub takeovers: u64,
    /// Times all slots were taken.
    pub full: u64,
    /// Times somebody met a holder of something else on a record, and went on.
    pub collisions: u64,
    /// Ownership records.
    pub records: u64,
    /// Those that are held now. `held / records` is the chance that a facet nobody touches seems
    /// to be in use: a false conflict.
    pub held: u64,
}

impl Realm {
    /// Who is there now.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let now = sync::now_ns();
        let since = |ns: u64| Duration::from_nanos(now.saturating_sub(ns));
        (0..self.table().slots())
            .filter_map(|number| {
                let slot = self.table().slot(number);
                let owner = owner(slot)?;
                let status = Status(slot.status.load(Acquire));
                let waits =
                    waits_for(slot).map(|whom| (whom, since(slot.waiting_since_ns.load(Relaxed))));
                let member = Member {
                    slot: number,
                    id: id_of(slot.id.load(Relaxed)),
                    pid: owner.pid(),
                    label: text_of(&slot.label),
                    state: status.state(),
                    priority: priority(slot.thread.load(Relaxed)),
                    age: since(slot.start_ns.load(Relaxed)),
                    held: slot.size.load(Relaxed),
                    work: slot.work.load(Relaxed),
                    restarts: slot.restarts.load(Relaxed),
                    waits,
                    dead: owner.is_dead(),
                };
                // Another one by now: it is seen next time.
                let same = Status(slot.status.load(Acquire)).generation() == status.generation();
                (same && status.state() != State::Idle).then_some(member)
            })
            .collect()
    }

    /// What happened so far, and how full it is.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (table, board) = (self.table(), self.table().board());
        let slots = || (0..table.slots()).map(|n| table.slot(n));
        let held = (0..table.orecs())
            .filter(|&index| Word(table.orec(index).load(Relaxed)).holders() != 0)
            .count();
        Statistics {
            policy: self.policy(),
            commits: slots().fold(0, |n, s| n.wrapping_add(s.commits.load(Relaxed))),
            aborts: slots().fold(0, |n, s| n.wrapping_add(s.aborts.load(Relaxed))),
            conflicts: board.conflicts.load(Relaxed),
            dooms: board.dooms.load(Relaxed),
            yields: board.yields.load(Relaxed),
            waits: board.waits.load(Relaxed),
            takeovers: board.takeovers.load(Relaxed),
            full: board.full.load(Relaxed),
            collisions: u64::from(board.collisions.load(Relaxed)),
            records: u64::from(table.orecs()),
            held: held as u64,
        }
    }
}
