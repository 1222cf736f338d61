//! Open files that processes of a transaction read and write themselves.
//!
//! What the server has open of a file that nobody else changes, it lends: the process has the same open file description
//! (`open(2)`) at its own number, and reads, writes and seeks without a message. The offset is the kernel's, and the same for
//! all. What is lent is
//!
//! - a private copy or a new file, which is changed by this transaction only;
//! - a stable file that was opened for reading and whose content is in the read set. Before the transaction has a version of
//!   its own, which is another open file, it is *recalled*.
//!
//! A window has two words for that, the borrower's half of which is in `front/processes/lent.rs`:
//!
//! | word | written by | says |
//! |---|---|---|
//! | `epoch` | the server | counts recalls: what was lent before the last one is asked for again |
//! | `busy` | the process | how many of its threads are making a call on what was lent |
//!
//! A thread counts itself in `busy`, then looks at `epoch`, then makes the call. The server counts the `epoch` on, then waits
//! until `busy` is zero. Both are sequentially consistent, so either the thread sees the new epoch and asks, or the server
//! waits for it: no offset moves after the server has copied it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use txos_engine::object::{FileId, FileKind};

use super::content::Data;
use super::files::Descriptor;
use super::kernel::{self, Sys};
use super::node::Id;
use super::{Failure, Tx, acquire, reason};

/// How long a process that is stopped within a call on what was lent is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const NAP: Duration = Duration::from_micros(50);

/// The words of a window.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Counts recalls.
    pub epoch: &'static AtomicU32,
    /// How many calls are being made.
    pub busy: &'static AtomicU32,
}

/// A process to which files are lent.
#[derive(Debug)]
struct Borrower {
    space: i32,
    words: Words,
    /// The server's end of its connection.
    socket: i32,
}

impl Borrower {
    fn is_busy(&self) -> bool {
        self.words.busy.load(Ordering::SeqCst) != 0 && !self.is_gone()
    }

    /// Whether the process has ended: it was killed within a call.
    fn is_gone(&self) -> bool {
        kernel::events(self.socket, 0, Duration::ZERO).is_ok_and(|found| found & libc::POLLHUP != 0)
    }
}

/// To whom files are lent.
#[derive(Debug, Default)]
pub struct Lending {
    epoch: u32,
    borrowers: Vec<Borrower>,
}

/// What is lent at a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// The server's descriptor.
    pub real: i32,
    /// It is a stable file.
    pub stable: bool,
}

impl Tx {
    /// Files may be lent to a process whose numbers are in this space.
    pub fn lends_to(&mut self, space: i32, words: Words, socket: i32) {
        words.epoch.store(self.lending.epoch, Ordering::SeqCst);
        self.lending.borrowers.push(Borrower { space, words, socket });
    }

    /// That process has ended: its window goes.
    pub fn lends_no_more(&mut self, space: i32) {
        self.lending.borrowers.retain(|borrower| borrower.space != space);
    }

    /// How often something was recalled.
    #[must_use]
    pub fn recalls(&self) -> u32 {
        self.lending.epoch
    }

    /// Lends what is open at a number, if that can be.
    pub fn lend(&mut self, number: i32) -> Option<Loan> {
        let Descriptor::Open { file, real, .. } = self.fds.descriptor(number) else { return None };
        let open = self.fds.get(file);
        let id = open.node.filter(|&id| self.tree.has_content(id))?;
        let (before, flags, lock) = (!open.before.is_empty(), open.flags, open.lock_holder);
        let node = &self.tree.nodes[id];
        let stable = match node.data {
            // What a write takes away of the mode is told by the shadow.
            Data::Whole(_) => {
                if node.stat.mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
                    return None;
                }
                false
            }
            Data::Stable | Data::Pages(_) => return None,
        };
        let kept = libc::O_ACCMODE | libc::O_APPEND | libc::O_PATH;
        let as_opened = kernel::status_flags(real).is_ok_and(|now| now & kept == flags & kept)
            && flags & libc::O_PATH == 0;
        if before || lock.is_some() || node.kind() != FileKind::File || !as_opened {
            return None;
        }
        self.tree.nodes[id].lent = true;
        self.fds.get_mut(file).lent = true;
        Some(Loan { real, stable })
    }

    /// Which file is lent at a number, and whether it is a stable one. A process that runs another program now has it open
    /// still.
    #[must_use]
    pub fn lent_at(&self, number: i32) -> Option<(FileId, bool)> {
        let Descriptor::Open { file, real, .. } = self.fds.descriptor(number) else { return None };
        let open = self.fds.get(file);
        let id = open.node.filter(|_| open.lent)?;
        let stable = matches!(self.tree.nodes[id].data, Data::Stable);
        kernel::identify_fd(real).ok().map(|stat| (stat.id, stable))
    }

    /// Nobody reads or writes a file past the server any more.
    ///
    /// # Errors
    /// [`acquire::DOOMED`]: a process goes on for too long.
    pub fn take_back(&mut self, id: Id) -> Sys<()> {
        if !std::mem::take(&mut self.tree.nodes[id].lent) {
            return Ok(());
        }
        for file in self.fds.on(id) {
            self.fds.get_mut(file).lent = false;
        }
        self.lending.epoch = self.lending.epoch.wrapping_add(1);
        for borrower in &self.lending.borrowers {
            borrower.words.epoch.store(self.lending.epoch, Ordering::SeqCst);
        }
        let since = Instant::now();
        while self.lending.borrowers.iter().any(Borrower::is_busy) {
            if since.elapsed() > PATIENCE {
                self.doom(Failure {
                    reason: reason::UNSUPPORTED,
                    errno: libc::ECANCELED,
                    what: "a process of the command was stopped while it read a file that another one changes".into(),
                    ..Failure::default()
                });
                return Err(acquire::DOOMED);
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }
}
