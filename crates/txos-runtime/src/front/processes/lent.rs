//! What the server has lent to a process ([`crate::tx::lending`]): the process reads, writes, seeks and maps it itself.
#![allow(unsafe_code)] // the word of a window

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::link::{Link, Process};
use super::wire;
use crate::call::Call;
use crate::raw::Sys;
use crate::tx::kernel;

/// The numbers at which something is lent. They count as long as nothing was taken back since.
#[derive(Clone, Debug, Default)]
pub struct Lent {
    numbers: BTreeSet<i32>,
    epoch: u32,
}

impl Lent {
    /// What was lent when the window had this epoch.
    pub fn at(epoch: u32) -> Lent {
        Lent { numbers: BTreeSet::new(), epoch }
    }

    /// What stands at a number is lent.
    pub fn insert(&mut self, number: i32) {
        self.numbers.insert(number);
    }

    /// The number is closed, or stands for something else.
    pub fn remove(&mut self, number: i32) {
        self.numbers.remove(&number);
    }
}

/// How many calls are being made on what is lent. They begin under the lock of the process's [`Link`].
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// In a child: its parent's threads are not here.
pub fn after_fork() {
    CALLS.store(0, Ordering::Release);
}

impl Link {
    /// Waits until no call is being made on what is lent; none begins, since the caller has the link. Before a number gets
    /// another meaning, or the command ends.
    pub(super) fn settle_loans(&self) {
        const NAP: Duration = Duration::from_micros(50);
        while CALLS.load(Ordering::Acquire) != 0 {
            std::thread::sleep(NAP);
        }
    }

    /// Forgets what was lent if something was taken back since. Before anything is asked that may be answered with a loan.
    pub(super) fn forget_what_was_taken_back(&mut self) {
        // SAFETY: the window is mapped as long as the process is in the transaction.
        let now = unsafe { wire::epoch(self.window) }.load(Ordering::SeqCst);
        if self.lent.epoch != now {
            self.lent = Lent::at(now);
        }
    }

    /// The transaction's own open file is here for a number, which has a placeholder.
    pub(super) fn take_loan(&mut self, number: i32, fd: i32) {
        let moved =
            kernel::close_on_exec(number).and_then(|cloexec| kernel::dup3(fd, number, cloexec));
        kernel::close(fd);
        if moved.is_ok() {
            self.lent.insert(number);
        }
    }

    /// Whether something is lent at a number.
    pub(super) fn is_lent(&self, number: i32) -> bool {
        self.lent.numbers.contains(&number)
    }

    /// What keeps a second number for what stands at one.
    pub(super) fn carrier(&mut self, number: i32) -> i32 {
        self.forget_what_was_taken_back();
        if self.is_lent(number) { number } else { self.placeholder }
    }
}

/// The number that a call is about, if the process may make the call itself where that is lent.
fn number_of(call: &Call) -> Option<i32> {
    const KIND: i32 = 0xf;
    if call.is_read_write_or_seek() {
        return Some(call.int(0));
    }
    let maps = call.number() == libc::SYS_mmap && call.int(3) & KIND == libc::MAP_PRIVATE;
    maps.then(|| call.int(4))
}

/// Makes a call on what was lent. `None`: the server is to be asked.
pub fn make(process: &Process, call: &Call) -> Option<Sys<u64>> {
    let number = number_of(call)?;
    let mut link = process.link();
    link.forget_what_was_taken_back();
    if !link.is_lent(number) {
        return None;
    }
    CALLS.fetch_add(1, Ordering::AcqRel);
    // Another thread need not wait for this one's disk.
    drop(link);
    let answer = call.answer();
    CALLS.fetch_sub(1, Ordering::AcqRel);
    Some(answer)
}
