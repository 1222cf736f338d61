//! Processes, deaths, and what is left out.
//!
//! loom's threads share one thread of the system, so what belongs to a run of the model is in
//! that thread's locals. Tests run side by side, each in a thread of its own.
//!
//! # Invariants
//!
//! - Nothing here outlives a run: [`raise`] replaces it all.
//! - Who is dead is one atomic word, so loom tries every moment at which others can learn of it;
//!   whoever learns of it sees all that the dead one wrote.

#![allow(clippy::expect_used, reason = "used by tests only")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use loom::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::super::sync::Step;
use super::sync::{AtomicU32, Role};

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A step of the production code is left out.
    LeaveOut(Step),
    /// Words of this role read as zero, and take no bits.
    Hide(Role),
    /// Words of this role are written by exchanges whatever they were.
    Force(Role),
    /// Words of this role are accessed without any order.
    Relax(Role),
    /// Full fences do nothing.
    NoFence,
    /// Those after an exchange do nothing.
    NoFenceAfterSwap,
    /// Bells do not ring.
    NoBells,
    /// Whoever takes over does not ask the journal.
    NoJournal,
}

/// When a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Before this write, counted from one.
    pub write: u32,
    /// Counted from when it first takes over from another one.
    pub as_taker: bool,
}

/// A process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its number in the system: its priority, and where it looks for a slot first.
    pub pid: u32,
    /// When its transactions began.
    pub clock_ns: u64,
    /// When it dies.
    pub death: Option<Death>,
}

/// A run of the model.
struct World {
    processes: Vec<(Process, Cell<u32>)>,
    patience: Duration,
    /// Bit n: process n is dead; bit n + 8: it has ended.
    dead: AtomicU64,
    somebody_died: Cell<bool>,
    sleepers: RefCell<Vec<(*const AtomicU32, loom::thread::Thread)>>,
    /// Counts events.
    stamp: Cell<u64>,
}

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
    /// Deaths, and those of takers among them.
    static DEATHS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    /// A copy of the world's, which is asked for at every step.
    static SABOTAGE: Cell<Option<Sabotage>> = const { Cell::new(None) };
}

loom::thread_local! {
    static ME: Cell<Option<usize>> = Cell::new(None);
}

/// What a dying process's stack is unwound with.
pub struct Killed;

/// Begins a run.
pub fn raise(processes: &[Process], sabotage: Option<Sabotage>, patience: Duration) {
    SABOTAGE.set(sabotage);
    let world = World {
        processes: processes.iter().map(|p| (*p, Cell::new(0))).collect(),
        patience,
        dead: AtomicU64::new(0),
        somebody_died: Cell::new(false),
        sleepers: RefCell::default(),
        stamp: Cell::new(0),
    };
    WORLD.set(Some(Rc::new(world)));
}

fn world() -> Rc<World> {
    WORLD.with_borrow(|world| Rc::clone(world.as_ref().expect("a run has begun")))
}

/// This thread is that process.
pub fn become_process(number: usize) {
    ME.with(|me| me.set(Some(number)));
}

/// This thread is nobody's any more: it looks after what is left.
#[cfg(test)]
pub fn leave_process() {
    ME.with(|me| me.set(None));
}

/// The process of this thread; `None`: the one that looks after everything at the end.
pub fn me() -> Option<usize> {
    ME.with(Cell::get)
}

/// What is done wrong in this run.
pub fn sabotage() -> Option<Sabotage> {
    SABOTAGE.get()
}

/// Times up to this are over at once.
pub fn patience() -> Duration {
    world().patience
}

/// What a process's clock shows.
pub fn clock_ns() -> u64 {
    let world = world();
    me().and_then(|n| world.processes.get(n)).map_or(0, |(process, _)| process.clock_ns)
}

/// A number larger than all before.
pub fn stamp() -> u64 {
    let world = world();
    world.stamp.set(world.stamp.get() + 1);
    world.stamp.get()
}

/// Deaths so far, over all runs of this thread, and those of takers among them.
#[cfg(test)]
pub fn deaths() -> (u64, u64) {
    DEATHS.get()
}

/// Whether a process of this run has died.
pub fn somebody_died() -> bool {
    world().somebody_died.get()
}

/// The process of an identity has died.
pub(in super::super) fn is_dead(identity: u64) -> bool {
    let world = world();
    let mortal = world.processes.iter().any(|(process, _)| process.death.is_some());
    if !mortal || std::thread::panicking() {
        return false;
    }
    let pid = super::super::Identity::from_word(identity).map_or(0, super::super::Identity::pid);
    let number = world.processes.iter().position(|(process, _)| process.pid == pid);
    number.is_some_and(|number| world.dead.load(Acquire) & 1 << number != 0)
}

/// This thread's process has ended, if that may interest anybody.
#[cfg(test)]
pub fn end_process() {
    let world = world();
    if let Some(number) = me()
        && world.processes.iter().any(|(process, _)| process.death.is_some())
    {
        world.dead.fetch_or(1 << (number + 8), AcqRel);
        let sleepers = world.sleepers.borrow();
        let outlive = sleepers.iter().filter(|(at, _)| at.is_null());
        outlive.for_each(|(_, thread)| thread.unpark());
        drop(sleepers);
        world.sleepers.borrow_mut().retain(|(at, _)| !at.is_null());
    }
}

/// Waits until a process has ended or died.
#[cfg(test)]
pub fn outlive(number: usize) {
    // An exchange sees the newest value.
    while world().dead.fetch_or(0, AcqRel) & (0x101 << number) == 0 {
        sleep_at(std::ptr::null());
    }
}

/// A write is about to be made: a process whose time has come dies.
pub fn step(role: Role) {
    let world = world();
    if world.processes.iter().all(|(process, _)| process.death.is_none()) {
        return;
    }
    let Some((number, (process, writes))) = me().and_then(|n| Some((n, world.processes.get(n)?)))
    else {
        return;
    };
    let Some(death) = process.death else { return };
    if death.as_taker && writes.get() == 0 && role != Role::Taker {
        return;
    }
    writes.set(writes.get() + 1);
    if writes.get() == death.write {
        world.dead.fetch_or(1 << number, AcqRel);
        world.somebody_died.set(true);
        let (all, takers) = DEATHS.get();
        DEATHS.set((all + 1, takers + u64::from(death.as_taker)));
        let sleepers = world.sleepers.take();
        drop(world);
        sleepers.iter().for_each(|(_, thread)| thread.unpark());
        std::panic::resume_unwind(Box::new(Killed));
    }
}

/// Sleeps at a bell.
pub fn sleep_at(bell: *const AtomicU32) {
    world().sleepers.borrow_mut().push((bell, loom::thread::current()));
    loom::thread::park();
}

/// Wakes who sleeps at a bell. Whoever rings can die before.
pub fn wake_at(bell: *const AtomicU32) {
    let world = world();
    if world.sleepers.borrow().iter().all(|(at, _)| *at != bell) {
        return;
    }
    step(Role::Other);
    let all = world.sleepers.take();
    let (woken, rest) = all.into_iter().partition::<Vec<_>, _>(|(at, _)| *at == bell);
    world.sleepers.replace(rest);
    woken.iter().for_each(|(_, thread)| thread.unpark());
}

/// Nobody sleeps.
#[cfg(test)]
pub fn assert_all_awake() {
    assert!(world().sleepers.borrow().is_empty(), "somebody sleeps");
}
