//! Numbers that a process has closed, and that the server closes with its next request.
//!
//! No process of the transaction can tell when a stable file is closed that was opened to read, as long as none has locked anything. So the process
//! closes its number, writes it down in the window, and goes on. Before the server answers anything else that the process asks, it closes what
//! is written there; otherwise, within a quarter of a second, which outsiders may notice (leases, unmounting).
//!
//! | word of [`wire::closing`] | written by | what |
//! |---|---|---|
//! | [`MAY`] | server | not 0: numbers may be written down. 0 for ever after the first lock |
//! | [`DONE`] | server | how many numbers it has closed |
//! | [`COUNT`] | process | how many it has written down |
//! | [`RING`] and following | process | the last [`ROOM`] of them, in turn |
#![allow(unsafe_code)] // the words of a window

use std::sync::atomic::{Ordering, fence};

use super::link::Link;
use super::wire::{self, Ask, CLOSING_WORDS, Request};

const MAY: usize = 0;
const DONE: usize = 1;
const COUNT: usize = 2;
const RING: usize = 4;
/// How many numbers of a process may wait.
pub(super) const ROOM: u32 = (CLOSING_WORDS - RING) as u32;

/// The place of a number in the ring.
fn place(count: u32) -> usize {
    const { assert!(ROOM.is_power_of_two()) };
    RING + (count % ROOM) as usize
}

impl Link {
    /// Whether no process of the transaction has locked anything yet.
    pub(super) fn is_unlocked(&self) -> bool {
        // SAFETY: the window is mapped as long as the process is in the transaction.
        let words = unsafe { wire::closing(self.window) };
        words[MAY].load(Ordering::Acquire) != 0
    }

    /// Writes a number down that the server is to close. `false`: it has to be asked for that.
    pub(super) fn closes_later(&self, number: i32) -> bool {
        // SAFETY: the window is mapped as long as the process is in the transaction.
        let words = unsafe { wire::closing(self.window) };
        let (done, count) =
            (words[DONE].load(Ordering::Acquire), words[COUNT].load(Ordering::Relaxed));
        let is_plain = self.objects.contains_key(&number)
            && !self.is_lent(number)
            && self.began.is_none()
            && self.is_unlocked();
        let has_room = count.wrapping_sub(done) < ROOM;
        if !(is_plain && has_room) {
            return false;
        }
        words[place(count)].store(number.cast_unsigned(), Ordering::Relaxed);
        words[COUNT].store(count.wrapping_add(1), Ordering::Release);
        // Either this is seen by who forbids it, or that is seen here.
        fence(Ordering::SeqCst);
        if !self.is_unlocked() {
            self.ask_plainly(&Request::new(Ask::IsMember, 0));
        }
        true
    }
}

/// The server's side of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Closing {
    done: u32,
}

impl Closing {
    /// Says whether numbers may be written down in a window. Once they may not any more, what was written before is to be taken.
    pub(super) fn allow(window: *mut u8, may: bool) {
        // SAFETY: the window is mapped as long as there is its member.
        let words = unsafe { wire::closing(window) };
        words[MAY].store(may.into(), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// What was written down in the window since the last time.
    pub(super) fn take(&mut self, window: *mut u8) -> Vec<i32> {
        // SAFETY: as above.
        let words = unsafe { wire::closing(window) };
        let count = words[COUNT].load(Ordering::Acquire);
        // More than there is room for, no process of ours writes down.
        let new = count.wrapping_sub(self.done).min(ROOM);
        let first = count.wrapping_sub(new);
        let numbers =
            (0..new).map(|at| words[place(first.wrapping_add(at))].load(Ordering::Relaxed));
        let numbers = numbers.map(u32::cast_signed).collect();
        self.done = count;
        numbers
    }

    /// They are closed.
    pub(super) fn done(self, window: *mut u8) {
        // SAFETY: as above.
        let words = unsafe { wire::closing(window) };
        words[DONE].store(self.done, Ordering::Release);
    }
}
