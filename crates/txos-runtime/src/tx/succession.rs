//! What comes after what: producers and consumers (papers/001 §3.1), among programs' transactions and commands.
//!
//! A transaction that has a name (`txos_name`), or comes after others (`TX_AFTER`), has a record among the runs
//! ([`txos_engine::order`]), from its first attempt to its end. Any other has none, and pays nothing.
//!
//! - While a producer runs, the consumer gives way to all others in the realm, and waits as long as it takes for what a
//!   producer holds.
//! - Its end waits until all producers have committed, and validates what it has read after that. While it waits, it gives
//!   way to those that only give way as well: a producer of its own may be waiting for one of them.
//! - An attempt that has lost a conflict is followed by the next one when no producer runs: it would lose again.
//! - If a producer does not commit, neither does the consumer. With `TX_RESTART` it begins again, after the next run of that
//!   name.
//! - With `TX_RETRY` the program itself begins the next attempt. Between the two the thread has the record, so that those that
//!   come after it go on waiting.
//!
//! The record says how the transaction has ended before its lock is let go of. In a process that dies the kernel lets go of
//! it, and it says nothing: the transaction has not committed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use txos_engine::order::{Order, Pause, Refused};
use txos_engine::realm;
use txos_engine::runs::{End, Predecessors, Progress};
use txos_engine::show::quoted_bytes;

use super::acquire::{TELL_AFTER, patience};
use super::{Failure, How, Tx, flags, kernel, reason, say, shared};

/// The place of a transaction among those that come after each other, through all of its attempts.
#[derive(Debug)]
pub struct Succession {
    /// The process that began it: what a child has of it is the parent's.
    process: u32,
    /// The thread that began it.
    thread: u32,
    /// `None`: it has ended.
    order: Mutex<Option<Order>>,
    predecessors: Predecessors,
}

impl Succession {
    /// For a transaction of the calling thread that begins: makes its record, if it has a name or comes after others, and
    /// finds those.
    ///
    /// # Errors
    /// Why it can't begin.
    pub fn of(how: &How, name: Option<&str>) -> Result<Option<Arc<Succession>>, Failure> {
        if how.flags & flags::AFTER == 0 && name.is_none() || shared::in_a_view() {
            return Ok(None);
        }
        if how.flags & flags::AFTER != 0 {
            const OTHER: u32 = flags::ORDERED | flags::ORDER_RESET;
            if how.flags & OTHER != 0 {
                let what =
                    "TX_AFTER and TX_ORDERED can't be together: both have the second argument";
                return Err(refusal(libc::EINVAL, what));
            }
            if how.producers.is_empty() {
                return Err(refusal(libc::EINVAL, "TX_AFTER names nothing to come after"));
            }
        }
        txos_engine::sys::keep_descriptors_above(kernel::high_base());
        let thread = own_thread();
        let begun = realm::default_dir().and_then(|dir| {
            let label = quoted_bytes(&super::staging::program_name());
            Order::begin(&dir, name, &label, &how.producers, Some(thread))
        });
        let order = begun.map_err(|error| {
            refusal(libc::EIO, format!("its record among the runs can't be made: {error}"))
        })?;
        let succession = Succession {
            process: std::process::id(),
            thread,
            predecessors: order.predecessors.clone(),
            order: Mutex::new(Some(order)),
        };
        match succession.find(thread) {
            Ok(()) => Ok(Some(Arc::new(succession))),
            Err(failure) => {
                succession.aborted(&failure.what);
                Err(failure)
            }
        }
    }

    fn order(&self) -> MutexGuard<'_, Option<Order>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds what it comes after, at its beginning.
    fn find(&self, thread: u32) -> Result<(), Failure> {
        let mut order = self.order();
        let Some(order) = order.as_mut() else { return Ok(()) };
        for word in order.words().map_err(record_failed)? {
            order.check_cycle().map_err(refused)?;
            if !seek(order, &word)? {
                return Err(refusal(
                    libc::ESRCH,
                    format!(
                        "TX_AFTER: {}: no run or transaction that goes on has this name or id, nor has a command \
                         that has committed",
                        quoted_bytes(word.as_bytes())
                    ),
                ));
            }
        }
        order.sweep();
        order.check_cycle().map_err(refused)?;
        if let Some(word) = self.predecessors.of_thread(self.process, thread) {
            let what =
                format!("TX_AFTER: {word} is a transaction of this thread, which has paused it");
            return Err(refusal(libc::EDEADLK, what));
        }
        match self.predecessors.look().map_err(record_failed)? {
            Progress::Failed { text, .. } => {
                Err(Failure { reason: reason::PRODUCER, ..refusal(libc::ECANCELED, text) })
            }
            _ => Ok(()),
        }
    }

    /// Whether one that it comes after goes on, or how that has ended is to be told.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.predecessors.is_empty() && !matches!(self.predecessors.look(), Ok(Progress::Over))
    }

    /// Whether it comes after others.
    #[must_use]
    pub fn comes_after(&self) -> bool {
        !self.predecessors.is_empty()
    }

    /// Whether it comes after a transaction of this process, as far as is known.
    #[must_use]
    pub fn waits_for(&self, pid: u32) -> bool {
        self.predecessors.pids().contains(&pid)
    }

    /// Whether a producer has failed whose name another run may have.
    #[must_use]
    pub fn has_successor(&self) -> bool {
        matches!(self.predecessors.look(), Ok(Progress::Failed { by_name: true, .. }))
    }

    fn look(&self) -> Result<Progress, Failure> {
        match self.order().as_ref() {
            Some(order) => order.look().map_err(refused),
            None => Ok(Progress::Over),
        }
    }

    /// Waits for the end of its producers. `ends`: why it is to wait no longer, asked again and again.
    fn await_end(
        &self,
        who: &str,
        mut ends: impl FnMut(&str) -> Option<Failure>,
    ) -> Result<Progress, Failure> {
        let (began, mut said, mut pause) = (Instant::now(), false, Pause::default());
        loop {
            let which = match self.look()? {
                Progress::Runs(which) => which,
                ended => return Ok(ended),
            };
            if let Some(why) = ends(&which) {
                return Err(why);
            }
            if !said && began.elapsed() >= TELL_AFTER {
                said = true;
                say(&format!("{who} waits for {which}, which the transaction comes after"));
            }
            pause.sleep();
        }
    }

    /// Whether the calling thread began it.
    #[must_use]
    pub fn is_of_this_thread(&self) -> bool {
        self.process == std::process::id() && self.thread == own_thread()
    }

    /// Between two attempts, when nothing is held: waits until no producer runs; or, if one has failed and `awaits_next`, for
    /// the next run of its name, for as long as transactions wait for each other.
    ///
    /// # Errors
    /// Why the next attempt can't begin.
    pub fn before_next(&self, awaits_next: bool) -> Result<(), Failure> {
        let ends = |_: &str| interruption(libc::EINTR, "sys_xbegin waited for what it comes after");
        let Progress::Failed { text, .. } = self.await_end("sys_xbegin", ends)? else {
            return Ok(());
        };
        if !awaits_next {
            return Err(Failure { reason: reason::PRODUCER, ..refusal(libc::ECANCELED, text) });
        }
        let mut order = self.order();
        let Some(order) = order.as_mut() else { return Ok(()) };
        order.forget_failed().map_err(record_failed)?;
        for word in order.words().map_err(record_failed)? {
            let shown = quoted_bytes(word.as_bytes());
            let (began, mut said, mut pause) = (Instant::now(), false, Pause::default());
            while !seek(order, &word)? {
                order.check_cycle().map_err(refused)?;
                let ended = || {
                    interruption(libc::EINTR, "sys_xbegin waited for the next run of a producer")
                };
                if let Some(why) = ended() {
                    return Err(why);
                }
                if began.elapsed() >= patience() {
                    let seconds = patience().as_secs();
                    let what = format!(
                        "TX_AFTER: {shown} has failed, and no other run of that name has begun within {seconds} s"
                    );
                    return Err(refusal(libc::ESRCH, what));
                }
                if !said && began.elapsed() >= TELL_AFTER {
                    said = true;
                    say(&format!("sys_xbegin waits for the next run of the name {shown}"));
                }
                pause.sleep();
            }
        }
        order.check_cycle().map_err(refused)
    }

    /// It has committed.
    pub fn committed(&self) {
        self.end(|order| match order.key().and_then(|key| key.parse().ok()) {
            Some(id) => End::Committed(id),
            None => End::Unchanged,
        });
    }

    /// It has ended without effect.
    pub fn aborted(&self, why: &str) {
        self.end(|_| End::Aborted(why.to_owned()));
    }

    fn end(&self, how: impl FnOnce(&Order) -> End) {
        // A child's copy says nothing.
        if self.process != std::process::id() {
            return;
        }
        let Some(order) = self.order().take() else { return };
        let end = how(&order);
        if let Err(error) = order.end(end) {
            say(&format!("what comes after this transaction takes it for killed: {error}"));
        }
    }
}

impl Drop for Succession {
    fn drop(&mut self) {
        self.aborted("");
    }
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

/// Looks for what a word means.
fn seek(order: &mut Order, word: &str) -> Result<bool, Failure> {
    if order.find_runs(word).map_err(record_failed)? {
        return Ok(true);
    }
    order.find_committed(shared::home()?, word).map_err(refused)
}

/// Why it is to wait no longer, if so.
fn interruption(errno: i32, while_what: &str) -> Option<Failure> {
    let asked = |errno, what| Failure { reason: reason::ASKED, ..refusal(errno, what) };
    if super::acquire::is_called_off() {
        return Some(asked(libc::ECANCELED, "the program called the transaction off".to_owned()));
    }
    let arrived = || "a signal that ends the process arrived while ".to_owned() + while_what;
    super::effects::is_to_end().then(|| asked(errno, arrived()))
}

impl Tx {
    /// Before its end: waits until all producers have committed.
    ///
    /// # Errors
    /// One has not; or it is to wait no longer.
    pub fn come_after(&mut self) -> Result<(), Failure> {
        let Some(succession) = self.how.succession.clone().filter(|one| one.comes_after()) else {
            return Ok(());
        };
        let is_behind = succession.is_behind();
        if is_behind && let Some(handle) = self.locks.handle.as_ref() {
            handle.stand_back(true);
        }
        let nonblock = self.how.flags & flags::NONBLOCK != 0;
        let awaited = succession.await_end("sys_xend", |which| {
            self.check_doom();
            if let Some(lost) = self.doom.take() {
                return Some(lost);
            }
            if nonblock {
                let what = format!("{which}, which it comes after, still runs, and it was not to wait (TX_NONBLOCK)");
                return Some(Failure { reason: reason::CONFLICT, ..refusal(libc::ECANCELED, what) });
            }
            interruption(libc::ECANCELED, "sys_xend waited for what the transaction comes after")
        });
        match awaited? {
            Progress::Failed { text, .. } => {
                Err(Failure { reason: reason::PRODUCER, ..refusal(libc::ECANCELED, text) })
            }
            _ => {
                if let Some(handle) = self.locks.handle.as_ref() {
                    handle.stand_back(false);
                    handle.defer(false);
                }
                Ok(())
            }
        }
    }
}

fn refusal(errno: i32, what: impl Into<String>) -> Failure {
    Failure { errno, what: what.into(), ..Failure::default() }
}

fn record_failed(error: txos_engine::Error) -> Failure {
    Failure { reason: reason::FAILED, ..refusal(libc::EIO, error.to_string()) }
}

fn refused(refused: Refused) -> Failure {
    let errno = match refused {
        Refused::Cycle(_) => libc::EDEADLK,
        Refused::Pending(_) => libc::EBUSY,
        _ => libc::EIO,
    };
    Failure { reason: reason::FAILED, ..refusal(errno, format!("TX_AFTER: {refused}")) }
}
