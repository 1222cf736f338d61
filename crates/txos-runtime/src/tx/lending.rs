//! Open files that processes of a transaction read and write themselves.
//!
//! A private copy, or a new file, is changed by this transaction only. So the server lends what it has open of one: the process has the
//! same open file description (`open(2)`) at its own number, and reads, writes, seeks and maps without a message. The offset
//! and the flags are the kernel's, and the same for all who have it.
//!
//! A word in each process's window counts how often something was taken back: what was lent before that is asked for again
//! (`front/processes/lent.rs`). A call that is being made then comes before it.

use std::sync::atomic::{AtomicU32, Ordering};

use txos_engine::object::{FileId, FileKind};

use super::Tx;
use super::files::Descriptor;
use super::kernel;
use super::node::Id;

/// A process to which files are lent.
#[derive(Debug)]
struct Borrower {
    space: i32,
    epoch: &'static AtomicU32,
}

/// To whom files are lent.
#[derive(Debug, Default)]
pub struct Lending {
    epoch: u32,
    borrowers: Vec<Borrower>,
}

impl Tx {
    /// Files may be lent to a process whose numbers are in this space, and whose window has this word.
    pub fn lends_to(&mut self, space: i32, epoch: &'static AtomicU32) {
        epoch.store(self.lending.epoch, Ordering::SeqCst);
        self.lending.borrowers.push(Borrower { space, epoch });
    }

    /// That process has ended: its window goes.
    pub fn lends_no_more(&mut self, space: i32) {
        self.lending.borrowers.retain(|borrower| borrower.space != space);
    }

    /// How often something was taken back.
    #[must_use]
    pub fn taken_back(&self) -> u32 {
        self.lending.epoch
    }

    /// Lends what is open at a number, if that can be: the server's descriptor.
    pub fn lend(&mut self, number: i32) -> Option<i32> {
        let Descriptor::Open { file, real, .. } = self.fds.descriptor(number) else { return None };
        let open = self.fds.get(file);
        let id = open.node.filter(|&id| self.tree.has_content(id))?;
        let node = &self.tree.nodes[id];
        // What a write takes away of a mode, the shadow tells.
        let changes_mode = node.stat.mode & (libc::S_ISUID | libc::S_ISGID) != 0;
        let kept = libc::O_ACCMODE | libc::O_APPEND | libc::O_PATH;
        let as_opened =
            || kernel::status_flags(real).is_ok_and(|now| (now ^ open.flags) & kept == 0);
        if node.kind() != FileKind::File
            || node.data.whole().is_none()
            || changes_mode
            || open.flags & libc::O_PATH != 0
            || !open.before.is_empty()
            || open.lock_holder.is_some()
            || !as_opened()
        {
            return None;
        }
        self.tree.nodes[id].lent = true;
        self.fds.get_mut(file).lent = true;
        Some(real)
    }

    /// Which file is lent at a number: a process that runs another program now has it open still.
    #[must_use]
    pub fn lent_at(&self, number: i32) -> Option<FileId> {
        let Descriptor::Open { file, real, .. } = self.fds.descriptor(number) else { return None };
        let lent = self.fds.get(file).lent;
        lent.then(|| kernel::identify_fd(real).ok().map(|stat| stat.id)).flatten()
    }

    /// From now on a file is read and written by the server only.
    pub fn take_back(&mut self, id: Id) {
        if !std::mem::take(&mut self.tree.nodes[id].lent) {
            return;
        }
        for file in self.fds.on(id) {
            self.fds.get_mut(file).lent = false;
        }
        self.lending.epoch = self.lending.epoch.wrapping_add(1);
        for borrower in &self.lending.borrowers {
            borrower.epoch.store(self.lending.epoch, Ordering::SeqCst);
        }
    }
}
