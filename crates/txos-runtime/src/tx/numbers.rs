//! Descriptor numbers between the transactions of one process's threads.
//!
//! The kernel has one table of descriptors for all threads, and each thread's transaction has private changes of it. So a number is an
//! object of the realm ([`Facet::Descriptor`]): its first use acquires it to read, whether it is open or not; to close it, to replace
//! it, to change its close-on-exec flag or to open something there acquires it to write. It is held until the commit has made the
//! kernel's table what the program has seen, or the abort has closed what the transaction had opened.
//!
//! | process | what is acquired |
//! |---|---|
//! | has never had a second thread, and has paused no transaction | nothing |
//! | makes a thread in a transaction, or pauses one | all numbers that this transaction has touched, before there is another one |
//! | else | each number at its first use |
//! | a whole command, or another process of a transaction of several | nothing: all that use its numbers are in the transaction |
//!
//! What a transaction opens is in the kernel's table at once, at a number that the kernel has chosen. Two things follow:
//!
//! - *Marks.* Who wins a conflict does not wait for the loser, which may have such a number open still. So the number is marked, with
//!   whose it is, until it is everybody's or closed: a number with another's mark is not open.
//! - *Stepping aside.* The kernel may give a number that another transaction holds: it has seen that it is closed, or a thread outside
//!   of transactions has closed it. What was opened then gets the next number that nobody holds. So nobody waits and nobody loses
//!   because something is opened.
//!
//! Between the kernel's answer to an open and the mark nothing says whose a number is. A transaction that closes or replaces a number that
//! it was never given can hit another one's new file there, as a thread natively does. What it was given, or was open before, the
//! kernel gives to nobody else as long as somebody holds it.
//!
//! # Invariants
//!
//! - A mark is set from nothing only, and taken away only by who has set it.
//! - A mark is set before the number is acquired, and taken away after what was open there is closed or is published.
//! - What is opened and closed again in one transaction leaves nothing: its number is released at once.
#![allow(unsafe_code)] // marks, by the address at which they stay

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use txos_engine::realm::{Access, Facet};

use super::acquire::DOOMED;
use super::files::Descriptor;
use super::kernel::{self, Errno, Sys};
use super::node::Map;
use super::spaces::SPACE;
use super::{Tx, flags};

/// Numbers of a part of the table of marks.
const PART: usize = 1024;
/// A part of it.
type Marks = [AtomicU64; PART];

/// Whose each number is that a transaction has opened and not committed: its [`Numbers::mark`], or 0. Parts are made when they are needed.
static MARKS: [AtomicPtr<Marks>; SPACE as usize / PART] =
    [const { AtomicPtr::new(null_mut()) }; SPACE as usize / PART];
/// The next mark.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Smaller ones are of the process that this one was copied from.
static FIRST: AtomicU64 = AtomicU64::new(1);
/// A transaction of this process has made a thread, or was paused.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Of numbers that are closed so many are acquired: a program may try each that there could be, and would keep others from much else.
const CLOSED_MAX: usize = 1024;

/// Whether another transaction of this process may use the same numbers.
fn may_meet() -> bool {
    SEVERAL.load(Ordering::Relaxed) || !kernel::has_had_one_thread()
}

/// In a child that was forked: its numbers are its own, and it has one thread.
pub fn after_fork() {
    SEVERAL.store(false, Ordering::Relaxed);
    FIRST.store(NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Where a number's mark is. `makes`: also if nobody has set one there.
fn mark_of(number: i32, makes: bool) -> Option<&'static AtomicU64> {
    let number = usize::try_from(number).ok()?;
    let part = MARKS.get(number / PART)?;
    let mut there = part.load(Ordering::Acquire);
    if there.is_null() {
        if !makes {
            return None;
        }
        let new = Box::into_raw(Box::new([const { AtomicU64::new(0) }; PART]));
        there = match part.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(others) => {
                // SAFETY: it was made just now, and nobody else has it.
                drop(unsafe { Box::from_raw(new) });
                others
            }
        };
    }
    // SAFETY: a part, once it is there, stays as long as the process.
    unsafe { there.as_ref() }?.get(number % PART)
}

/// What a transaction has acquired of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// It has used it, or has seen that it is closed.
    Used,
    /// It has changed it.
    Changed,
    /// It has opened something where nothing was, which is marked.
    New,
}

/// The numbers that a transaction has acquired.
#[derive(Debug, Default)]
pub struct Numbers {
    claims: Map<i32, Claim>,
    /// Marks its numbers; 0: it has none yet.
    mark: u64,
}

impl Numbers {
    fn has(&self, number: i32, claim: Claim) -> bool {
        self.claims.get(&number).is_some_and(|&has| has >= claim)
    }

    fn is_new(&self, number: i32) -> bool {
        self.claims.get(&number) == Some(&Claim::New)
    }

    /// Marks a number as the transaction's. `false`: it is another one's still.
    fn set_mark(&mut self, number: i32) -> bool {
        if self.mark == 0 {
            self.mark = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        let Some(mark) = mark_of(number, true) else { return true };
        let mut now = mark.load(Ordering::Acquire);
        loop {
            if now == self.mark {
                return true;
            }
            if now != 0 && now >= FIRST.load(Ordering::Relaxed) {
                return false;
            }
            match mark.compare_exchange(now, self.mark, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    fn clear_mark(&self, number: i32) {
        if let Some(mark) = mark_of(number, false) {
            let _ = mark.compare_exchange(self.mark, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether another transaction has opened a number, and not committed it.
    fn is_anothers(&self, number: i32) -> bool {
        mark_of(number, false).is_some_and(|mark| {
            let mark = mark.load(Ordering::Acquire);
            mark != 0 && mark != self.mark && mark >= FIRST.load(Ordering::Relaxed)
        })
    }

    /// What the transaction has opened is closed, or is everybody's.
    pub fn clear_marks(&mut self) {
        for (&number, claim) in &mut self.claims {
            if *claim == Claim::New {
                *claim = Claim::Changed;
                if let Some(mark) = mark_of(number, false) {
                    let _ =
                        mark.compare_exchange(self.mark, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.clear_marks();
    }
}

impl Tx {
    /// Whether numbers are acquired.
    #[inline]
    fn claims_numbers(&self) -> bool {
        may_meet() && self.how.flags & flags::COMMAND == 0 && self.process.space.is_none()
    }

    /// Whether a number is one that can be acquired: one of the program's, in this process's table.
    fn is_claimed(&self, number: i32) -> bool {
        self.claims_numbers() && (0..SPACE).contains(&number)
    }

    /// Before a number is used, or is told to be closed.
    ///
    /// # Errors
    /// EBADF: another transaction has opened it, and has lost. The transaction is doomed.
    #[inline]
    pub fn claim_used(&mut self, number: i32) -> Sys<()> {
        if !self.is_claimed(number) {
            return Ok(());
        }
        let is_one_more = self.fds.numbers.claims.len() >= CLOSED_MAX
            && !self.fds.numbers.claims.contains_key(&number);
        if !(is_one_more && kernel::close_on_exec(number).is_err()) {
            self.claim(number, Claim::Used)?;
        }
        if self.fds.numbers.is_anothers(number) { Err(Errno::BADF) } else { Ok(()) }
    }

    /// Before a number that is open is closed or replaced, or changed otherwise.
    ///
    /// # Errors
    /// As [`Tx::claim_used`].
    pub fn claim_changed(&mut self, number: i32) -> Sys<()> {
        if !self.is_claimed(number) {
            return Ok(());
        }
        let is_known = self.fds.descriptor(number) != Descriptor::Untouched;
        if !is_known && kernel::close_on_exec(number).is_err() {
            // It stays what it is.
            return self.claim_used(number);
        }
        self.claim(number, Claim::Changed)?;
        if self.fds.numbers.is_anothers(number) { Err(Errno::BADF) } else { Ok(()) }
    }

    fn claim(&mut self, number: i32, claim: Claim) -> Sys<()> {
        if self.fds.numbers.has(number, claim) {
            return Ok(());
        }
        let Some(process) = self.process_in_realm()? else { return Ok(()) };
        let access = if claim == Claim::Used { Access::Read } else { Access::Write };
        let facet = facet(process, number);
        let Some(handle) = self.locks.handle.as_mut() else { return Ok(()) };
        if let Err(stop) = handle.acquire(&facet, access) {
            return Err(self.lose_over(&facet, &stop, name_of(number).as_bytes()));
        }
        self.fds.numbers.claims.insert(number, claim);
        Ok(())
    }

    /// The process, as the realm knows it; `None` where there is no realm.
    fn process_in_realm(&mut self) -> Sys<Option<u64>> {
        if self.locks.handle.is_none() {
            self.join()?;
        }
        Ok(self.locks.handle.as_ref().map(|handle| handle.realm().this_process()))
    }

    /// The kernel has opened something, at this number: it gets one that no other transaction holds, and that is the transaction's
    /// until its end. If it can't get any, it is closed.
    ///
    /// # Errors
    /// EMFILE; the transaction is doomed.
    pub fn claim_new(&mut self, fd: i32, cloexec: bool) -> Sys<i32> {
        if !self.is_claimed(fd) {
            return Ok(fd);
        }
        let mut now = fd;
        loop {
            match self.claim_if_free(now) {
                Ok(true) => return Ok(now),
                Ok(false) => {}
                Err(errno) => {
                    kernel::close(now);
                    return Err(errno);
                }
            }
            let next = kernel::duplicate(now, now + 1, cloexec);
            kernel::close(now);
            now = next.map_err(|_| Errno::MFILE)?;
        }
    }

    fn claim_if_free(&mut self, number: i32) -> Sys<bool> {
        let process = self.process_in_realm()?;
        if !self.fds.numbers.set_mark(number) {
            return Ok(false);
        }
        if let (Some(process), Some(handle)) = (process, self.locks.handle.as_mut()) {
            let facet = facet(process, number);
            match handle.acquire_if_free(&facet) {
                Ok(true) => {}
                Ok(false) => {
                    self.fds.numbers.clear_mark(number);
                    return Ok(false);
                }
                Err(stop) => {
                    self.fds.numbers.clear_mark(number);
                    return Err(self.lose_over(&facet, &stop, name_of(number).as_bytes()));
                }
            }
        }
        self.fds.numbers.claims.insert(number, Claim::New);
        Ok(true)
    }

    /// What the transaction had opened at a number is closed: the number is as before.
    pub fn let_go_of_number(&mut self, number: i32) {
        if !self.fds.numbers.is_new(number) {
            return;
        }
        let handle = self.locks.handle.as_mut();
        let released = handle.is_none_or(|handle| {
            let facet = facet(handle.realm().this_process(), number);
            handle.release(&facet)
        });
        self.fds.numbers.clear_mark(number);
        match released {
            true => self.fds.numbers.claims.remove(&number),
            // Something else falls on its record.
            false => self.fds.numbers.claims.insert(number, Claim::Changed),
        };
    }

    /// What was at a number before is closed for good, and something of the transaction's is there.
    pub fn number_is_new(&mut self, number: i32) {
        if self.fds.numbers.has(number, Claim::Changed) && self.fds.numbers.set_mark(number) {
            self.fds.numbers.claims.insert(number, Claim::New);
        }
    }

    /// Before something is put at a number (dup2(2)).
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn claim_target(&mut self, number: i32) -> Sys<()> {
        /// One that has lost closes what it has opened by its next call.
        const PATIENCE: Duration = Duration::from_millis(500);
        if !self.is_claimed(number) {
            return Ok(());
        }
        self.claim(number, Claim::Changed)?;
        let since = Instant::now();
        while self.fds.numbers.is_anothers(number) {
            self.check_doom();
            if self.doom.is_some() {
                return Err(DOOMED);
            }
            if since.elapsed() > PATIENCE {
                let what = "another transaction of this process has lost it, and has it open still";
                return Err(self.changed_outside(name_of(number).as_bytes(), what));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Puts a duplicate at a number that is closed, and that [`Tx::claim_target`] has acquired. `false`: a thread outside of
    /// transactions has opened something there meanwhile.
    ///
    /// # Errors
    /// As `dup3(2)`.
    pub fn put_at(&mut self, real: i32, number: i32, cloexec: bool) -> Sys<bool> {
        /// An opener that got the number from the kernel steps aside.
        const TRIES: u32 = 100;
        if !self.is_claimed(number) {
            return kernel::dup3(real, number, cloexec).map(|_| true);
        }
        for _ in 0..TRIES {
            if self.fds.numbers.set_mark(number) {
                // It replaces nothing.
                match kernel::duplicate(real, number, cloexec) {
                    Ok(there) if there == number => {
                        self.fds.numbers.claims.insert(number, Claim::New);
                        return Ok(true);
                    }
                    Ok(elsewhere) => kernel::close(elsewhere),
                    Err(errno) => {
                        self.fds.numbers.clear_mark(number);
                        return Err(errno);
                    }
                }
                self.fds.numbers.clear_mark(number);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(false)
    }

    /// Whether another transaction has opened a number, and not committed it.
    pub fn is_number_anothers(&self, number: i32) -> bool {
        self.claims_numbers() && self.fds.numbers.is_anothers(number)
    }

    /// From here on other transactions of this process may use the numbers that this one has touched. (There is none yet.)
    pub fn numbers_are_shared(&mut self) {
        SEVERAL.store(true, Ordering::Relaxed);
        if !self.claims_numbers() || self.doom.is_some() {
            return;
        }
        // If it is doomed meanwhile, its next call finds that.
        for (number, descriptor) in self.fds.touched() {
            let claimed = match descriptor {
                Descriptor::Untouched => Ok(()),
                Descriptor::Open { over: false, .. } => self.claim_opened(number),
                Descriptor::Open { over: true, .. } if !self.fds.is_changed(number) => {
                    self.claim(number, Claim::Used)
                }
                Descriptor::Closed | Descriptor::Open { .. } => self.claim(number, Claim::Changed),
            };
            if claimed.is_err() {
                return;
            }
        }
        if let Some(number) = self.start.open() {
            let _ = self.claim_opened(number);
        }
    }

    /// A number that the transaction has opened when there was no other one.
    fn claim_opened(&mut self, number: i32) -> Sys<()> {
        if !self.claim_if_free(number)? {
            // Something else falls on its record.
            self.claim(number, Claim::Changed)?;
            self.number_is_new(number);
        }
        Ok(())
    }

    /// Whether the commit changes the kernel's table, or what it has from before.
    pub fn installs_numbers(&self) -> bool {
        let numbers = &self.fds.numbers.claims;
        !numbers.is_empty()
            && (numbers.values().any(|&claim| claim > Claim::Used) || self.fds.installs_originals())
    }

    /// The kernel's table is what the program has seen: others may use its numbers.
    pub fn let_go_of_numbers(&mut self) {
        self.fds.numbers.clear_marks();
        if let Some(handle) = self.locks.left.take() {
            handle.finish_validated();
        }
    }

    /// The number at which the transaction has lost; `None`: it was not at one.
    pub fn lost_number(&self) -> Option<i32> {
        let handle = self.locks.handle.as_ref()?;
        let (watch, process) = (handle.watch(), handle.realm().this_process());
        let mut numbers = self.fds.numbers.claims.keys().copied();
        numbers.find(|&number| watch.lost_at(&facet(process, number)))
    }
}

fn facet(process: u64, number: i32) -> Facet<'static> {
    Facet::Descriptor { process, number: number.cast_unsigned() }
}

/// A number, as people are told of it.
pub fn name_of(number: i32) -> String {
    format!("descriptor {number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_set_from_nothing_and_cleared_by_its_own() {
        const NUMBER: i32 = SPACE - 7;
        let (mut one, mut other) = (Numbers::default(), Numbers::default());
        assert!(!one.is_anothers(NUMBER));
        assert!(one.set_mark(NUMBER) && one.set_mark(NUMBER));
        assert!(!other.set_mark(NUMBER));
        assert!(other.is_anothers(NUMBER) && !one.is_anothers(NUMBER));
        other.clear_mark(NUMBER);
        assert!(other.is_anothers(NUMBER));
        one.claims.insert(NUMBER, Claim::New);
        drop(one);
        assert!(other.set_mark(NUMBER));
        other.clear_mark(NUMBER);
    }

    #[test]
    fn numbers_beyond_all_tables_are_never_anothers() {
        let mut numbers = Numbers::default();
        for number in [-1, SPACE, i32::MAX] {
            assert!(numbers.set_mark(number));
            assert!(!Numbers::default().is_anothers(number));
        }
    }
}
