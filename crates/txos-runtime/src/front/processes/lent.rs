//! What the server has lent to a process ([`crate::tx::lending`]): the process reads, writes, seeks and maps it itself.
#![allow(unsafe_code)] // the words of a window

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::link::{Link, Process};
use super::wire;
use crate::call::Call;
use crate::raw::Sys;
use crate::tx::kernel;
use crate::tx::lending::Words;

/// What was lent, by number; a stable file or not. It counts as long as nothing was recalled since.
#[derive(Clone, Debug, Default)]
pub struct Lent {
    numbers: BTreeMap<i32, bool>,
    epoch: u32,
}

impl Lent {
    /// What was lent when the window had this epoch.
    pub fn at(epoch: u32) -> Lent {
        Lent { numbers: BTreeMap::new(), epoch }
    }

    /// What stands at a number is lent.
    pub fn insert(&mut self, number: i32, stable: bool) {
        self.numbers.insert(number, stable);
    }

    /// The number is closed, or stands for something else.
    pub fn remove(&mut self, number: i32) {
        self.numbers.remove(&number);
    }
}

/// The words of a process's window.
fn words(window: *mut u8) -> Words {
    // SAFETY: the window is mapped as long as the process is in the transaction.
    unsafe { wire::lending(window) }
}

/// The number of recalls so far.
pub fn epoch(window: *mut u8) -> u32 {
    words(window).epoch.load(Ordering::SeqCst)
}

impl Link {
    /// Forgets what was lent if something was recalled since. Before anything is asked that may be answered with a loan.
    pub(super) fn forget_recalled(&mut self) {
        let now = epoch(self.window);
        if self.lent.epoch != now {
            self.lent = Lent::at(now);
        }
    }

    /// The transaction's own open file is here for a number, which has a placeholder.
    pub(super) fn take_loan(&mut self, number: i32, fd: i32, stable: bool) {
        let moved =
            kernel::close_on_exec(number).and_then(|cloexec| kernel::dup3(fd, number, cloexec));
        kernel::close(fd);
        if moved.is_ok() {
            self.lent.insert(number, stable);
        }
    }

    /// What keeps a second number for what stands at one.
    pub(super) fn carrier(&mut self, number: i32) -> i32 {
        self.forget_recalled();
        if self.lent_at(number).is_some() { number } else { self.placeholder }
    }

    /// Whether something is lent at a number; if so, whether it is a stable file.
    pub(super) fn lent_at(&self, number: i32) -> Option<bool> {
        self.lent.numbers.get(&number).copied()
    }
}

/// Whether a process may make a call itself on what was lent.
fn is_made_here(call: &Call, stable: bool) -> bool {
    const KIND: i32 = 0xf;
    match call.number() {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_pread64
        | libc::SYS_preadv
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwrite64
        | libc::SYS_pwritev => true,
        // Where a stable file ends is one of its attributes.
        libc::SYS_lseek => !stable || matches!(call.int(2), libc::SEEK_SET | libc::SEEK_CUR),
        libc::SYS_mmap => call.int(3) & KIND == libc::MAP_PRIVATE,
        _ => false,
    }
}

/// Makes a call on what was lent. `None`: the server is to be asked.
pub fn make(process: &Process, call: &Call) -> Option<Sys<u64>> {
    let number = match call.number() {
        libc::SYS_mmap => call.int(4),
        _ => call.int(0),
    };
    let link = process.link();
    if !is_made_here(call, link.lent_at(number)?) {
        return None;
    }
    let (words, epoch) = (words(link.window), link.lent.epoch);
    words.busy.fetch_add(1, Ordering::SeqCst);
    let counts = words.epoch.load(Ordering::SeqCst) == epoch;
    // Another thread need not wait for this one's disk.
    drop(link);
    let answer = counts.then(|| call.answer());
    words.busy.fetch_sub(1, Ordering::SeqCst);
    answer
}
