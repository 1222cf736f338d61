//! The realm's protocol under the model checker: every interleaving of a few small transactions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/model \
//!     cargo test -p txos-engine --release --lib realm::model
//! ```
//!
//! Compiled with `--cfg loom` only. The table here has a handful of slots and records, made of
//! loom's atomics; everything else is the code that runs in production. loom runs a scene again and
//! again, with another interleaving each time, and with every value that the memory model lets a
//! load see. Each process of a scene is one of its threads.
//!
//! # What is checked in every interleaving
//!
//! - The transactions that committed fit one serial order, which also respects which of them had
//!   ended before which began; the cells are as that order leaves them ([`history`]).
//! - While a transaction publishes, nobody who commits touches what it writes.
//! - Who is doomed is doomed over a record that it holds.
//! - At the end nothing is held, pinned or locked, and nobody waits.
//! - Nobody sleeps for ever. Here time does not pass: a sleep ends by a bell only, so a wake-up
//!   that is lost shows as a deadlock, though in production it would cost a slice of sleep.
//!   Only once a process has died may sleeps end by themselves, as they do in production.
//!
//! # How somebody dies
//!
//! Before its *n*th write to shared memory, for every *n*; to die before a read looks the same to
//! everybody else. Its stack is unwound, and nothing it does on the way has any effect
//! ([`world::step`]).
//!
//! # What is not modelled
//!
//! - loom knows sequential consistency of fences only, and takes accesses with that order for
//!   acquiring and releasing ones: it tries more than there can be, never less.
//! - Interleavings with more preemptions than a scene's bound. A switch where a thread sleeps,
//!   yields or ends is none. The ignored tests have higher bounds (`long.rs`).
//! - Notes (`layout`) show what was written to them last.
//!
//! | file | what lives there |
//! |---|---|
//! | `mod.rs` | the table |
//! | `sync.rs` | atomics, fences, bells and time of the model |
//! | `world.rs` | processes, deaths, what is left out |
//! | `scene.rs` | programs of transactions, and how they are run |
//! | `history.rs` | what they did, and whether that is right |
//! | `explore.rs` | loom |
//! | `peace.rs` | scenes in which nobody dies |
//! | `deaths.rs` | scenes in which somebody does |
//! | `long.rs` | the same with more preemptions, for a quiet hour |
//! | `sabotage.rs` | steps left out, which the model finds |
#![cfg_attr(not(test), allow(dead_code, reason = "the model is made of tests"))]

#[cfg(test)]
mod deaths;
#[cfg(test)]
mod explore;
#[cfg(test)]
mod history;
#[cfg(test)]
mod long;
#[cfg(test)]
mod peace;
#[cfg(test)]
mod sabotage;
#[cfg(test)]
mod scene;
pub(super) mod sync;
mod world;

use super::layout::{Board, Group, Slot};
use sync::{AtomicU32, AtomicU64, Role};
pub(super) use world::is_dead;

/// The segment, in the model's memory.
#[derive(Debug)]
pub(super) struct Table {
    board: Board,
    slots: Vec<Slot>,
    group: Group,
    orecs: Vec<AtomicU64>,
    /// Whoever meets a soft holder takes it for one of something else.
    pub all_collide: bool,
}

impl Table {
    /// A table with so many slots and records.
    pub fn new(slots: usize, orecs: usize, all_collide: bool) -> Table {
        Table {
            all_collide,
            board: Board {
                policy: AtomicU32::of(Role::Fact),
                slot_bell: AtomicU32::default(),
                slots_wanted: AtomicU32::default(),
                collisions: Default::default(),
                conflicts: Default::default(),
                dooms: Default::default(),
                yields: Default::default(),
                waits: Default::default(),
                takeovers: Default::default(),
                full: Default::default(),
                names: AtomicU64::default(),
                ended: AtomicU64::of(Role::Ended),
            },
            slots: (0..slots).map(|_| slot()).collect(),
            group: Group {
                key: AtomicU64::default(),
                next: AtomicU64::default(),
                waiters: AtomicU64::default(),
                reserved: Default::default(),
            },
            orecs: (0..orecs).map(|_| AtomicU64::of(Role::Orec)).collect(),
        }
    }

    pub fn board(&self) -> &Board {
        &self.board
    }

    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn slot(&self, number: u32) -> &Slot {
        &self.slots[number as usize]
    }

    pub fn group(&self, number: usize) -> &Group {
        assert_eq!(number, 0, "the model has one group");
        &self.group
    }

    pub fn orecs(&self) -> u32 {
        self.orecs.len() as u32
    }

    pub fn index(&self, hash: u64) -> u32 {
        hash as u32
    }

    pub fn orec(&self, index: u32) -> &AtomicU64 {
        &self.orecs[index as usize]
    }
}

fn slot() -> Slot {
    Slot {
        owner: AtomicU64::of(Role::Owner),
        status: AtomicU64::of(Role::Status),
        bell: AtomicU32::default(),
        waiting_for: AtomicU32::of(Role::WaitingFor),
        waiters: AtomicU64::of(Role::Waiters),
        pins: AtomicU64::of(Role::Pins),
        taker: AtomicU64::of(Role::Taker),
        thread: Default::default(),
        flags: AtomicU32::of(Role::Fact),
        outside_at: Default::default(),
        start_ns: AtomicU64::of(Role::Fact),
        work: Default::default(),
        size: Default::default(),
        restarts: Default::default(),
        group: AtomicU32::of(Role::Fact),
        sequence: AtomicU64::of(Role::Fact),
        id: Default::default(),
        began_ns: Default::default(),
        dressed: Default::default(),
        doomed_by: Default::default(),
        doomed_by_pid: Default::default(),
        doomed_over: Default::default(),
        doomed_under: Default::default(),
        waiting_at: Default::default(),
        waiting_since_ns: Default::default(),
        commits: Default::default(),
        aborts: Default::default(),
        yields_ns: Default::default(),
        outside_call: Default::default(),
        label: Default::default(),
        home: Default::default(),
    }
}
