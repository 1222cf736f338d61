//! Descriptors: the numbers as the program sees them, and the kernel's that carry them.
//!
//! - A descriptor that was opened in the transaction has the number that the kernel gave it, unless
//!   a lower one is free in the transaction (because the program closed it): then the kernel's is
//!   moved out of the way, to a high number, and the lower one stands for it.
//! - A descriptor from before is never closed, moved or replaced before the commit. One that leads to a
//!   versioned file serves as it is for reads at places that the call names. The first use of its offset,
//!   which others may share, opens the file anew, so that the offset is left alone; at commit it is set.
//! - Numbers from [`high_base`](super::kernel::high_base) on are ours.

use std::collections::BTreeSet;

use txos_engine::object::FileKind;

use super::Tx;
use super::content::Data;
use super::kernel::{self, Errno, Sys};
use super::list::Cursor;
use super::node::{Id, Map};
use super::numbers::Numbers;
use super::received::Receiving;
use super::spaces::SPACE;
use super::tree::ShadowTree;

/// Index of an open file.
pub type File = usize;

/// One number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Descriptor {
    /// The transaction has not touched it: it is as the kernel says.
    #[default]
    Untouched,
    /// The program closed it; the kernel still has it open.
    Closed,
    /// Open.
    Open {
        /// What.
        file: File,
        /// The kernel's number.
        real: i32,
        /// Close-on-exec flag.
        cloexec: bool,
        /// The kernel has what was there before the transaction open at this number.
        over: bool,
    },
}

impl Descriptor {
    /// Whether the program has another open file at this number than the kernel.
    fn was_given(&self, number: i32) -> bool {
        matches!(self, Descriptor::Open { real, over: true, .. } if *real != number)
    }
}

/// An open file description.
#[derive(Debug, Default)]
pub struct OpenFile {
    /// What it is open on; `None`: nothing that is versioned.
    pub node: Option<Id>,
    /// Access mode and status flags.
    pub flags: i32,
    /// The name by which it was opened.
    pub name: Option<(Id, super::node::Name)>,
    /// The program's numbers for it.
    pub numbers: Vec<i32>,
    /// Of a directory: what is still to be listed.
    pub cursor: Option<Box<Cursor>>,
    /// Numbers by which it was open before the transaction.
    pub before: Vec<i32>,
    /// Status flags and offset before the transaction.
    pub was: (i32, u64),
    /// Of one from before that the program has closed: its offset then.
    pub left: Option<u64>,
    /// It is one from before, whose offset was not used yet: the number itself still carries it.
    pub shares_offset: bool,
    /// The file could not be opened anew: the kernel's description is the one from before, and its
    /// offset is put back on abort.
    pub borrowed: bool,
    /// Of what is no versioned file: its number from before the transaction.
    pub older: Option<i32>,
    /// What is counted that is read from it.
    pub counter: super::put_back::Counter,
    /// What output to it is.
    pub reach: super::effects::Reach,
    /// How the transaction receives from it.
    pub receiving: Receiving,
    /// Its lock of flock(2): `LOCK_SH`, `LOCK_EX`, or 0.
    pub lock: i32,
    /// The open file that has the lock: the kernel's is one of the private copy by now.
    pub lock_holder: Option<i32>,
    /// It is lent ([`super::lending`]).
    pub lent: bool,
    /// What of it is the machine's log's.
    pub logs: super::log::Logs,
    /// An abort puts back what was set of it, which is known by its place: nothing else takes that.
    pub stays: bool,
}

impl OpenFile {
    /// Whether it may be read from.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.flags & libc::O_PATH == 0 && self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Whether it may be written to.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.flags & libc::O_PATH == 0
            && matches!(self.flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
    }
}

/// The descriptor table as the transaction sees it.
#[derive(Debug, Default)]
pub struct FdTable {
    descriptors: Vec<Descriptor>,
    /// Those of other processes of the transaction ([`super::spaces`]).
    of_others: Map<i32, Descriptor>,
    /// The number that the process of this call has chosen for what the call opens.
    pub chosen: Option<i32>,
    files: Vec<OpenFile>,
    /// Places in `files` of what was closed, for the next: a program opens no end of files.
    free: Vec<File>,
    /// Places that are in use again since the present call began.
    reused: Vec<File>,
    /// The open files on each node, closed ones of the transaction's own left out.
    on: Map<Id, Vec<File>>,
    closed: BTreeSet<i32>,
    /// What of the numbers is acquired.
    pub numbers: Numbers,
    /// Numbers of ours.
    pub private: BTreeSet<i32>,
    /// Numbers of ours that stand for what a process that joined had open before: none of the program's.
    pub adopted: BTreeSet<i32>,
    /// The close-on-exec flags that touched numbers from before have in the kernel.
    inherited: Map<i32, bool>,
    /// With TX_MANAGED, of numbers that the transaction gave the program: another number, of ours, for what the
    /// kernel has there. A collector on another thread may close the program's, and then it is anyone's.
    witnesses: Map<i32, i32>,
    /// Record locks of a command that is one process yet, each with offsets from the start: others are to respect them.
    record_locks: Vec<(Id, libc::flock)>,
}

impl FdTable {
    /// An open file.
    #[must_use]
    pub fn get(&self, file: File) -> &OpenFile {
        &self.files[file]
    }

    /// The same, to change.
    pub fn get_mut(&mut self, file: File) -> &mut OpenFile {
        &mut self.files[file]
    }

    /// What is known of a number.
    #[must_use]
    pub fn descriptor(&self, number: i32) -> Descriptor {
        if number >= SPACE {
            return self.of_others.get(&number).copied().unwrap_or_default();
        }
        usize::try_from(number)
            .ok()
            .and_then(|n| self.descriptors.get(n))
            .copied()
            .unwrap_or_default()
    }

    /// Whether a number is as the kernel has it, and none of the library's.
    #[must_use]
    pub fn is_untouched(&self, number: i32) -> bool {
        self.descriptor(number) == Descriptor::Untouched && !self.is_ours(number)
    }

    /// A call begins: how many places for open files there are, for [`FdTable::close_opened_since`].
    pub fn begin_call(&mut self) -> usize {
        self.reused.clear();
        self.count()
    }

    /// The program does not get to know the numbers of what the last call has opened: files from this one on, and those in
    /// places that are used again, but for the number that it knows already.
    pub fn close_opened_since(&mut self, first: File, known: Option<i32>) {
        let reused = std::mem::take(&mut self.reused);
        for file in reused.into_iter().chain(first..self.count()) {
            for number in self.get(file).numbers.clone() {
                if known == Some(number) {
                    continue;
                }
                let Descriptor::Open { real, over, .. } = self.descriptor(number) else { continue };
                if !(over && (real == number || self.get(file).before.contains(&number))) {
                    let _ = self.close_number(number);
                }
            }
        }
    }

    /// After an abort: what was closed stays closed, and what was opened keeps its number until the program
    /// closes it: what was never part of the transaction as it is, everything else on an object that can't
    /// be read or written. Numbers of the kernel's that have been taken care of.
    pub fn leave_as_seen(&self, is_live: impl Fn(&OpenFile, i32) -> bool) -> BTreeSet<i32> {
        let mut done = BTreeSet::new();
        let Some(dead) = kernel::dead() else { return done };
        for (number, descriptor) in self.touched() {
            let Descriptor::Open { file, real, cloexec, over } = descriptor else {
                if descriptor == Descriptor::Closed {
                    kernel::close(number);
                }
                continue;
            };
            let open = self.get(file);
            if over && (real == number || open.before.contains(&number)) {
                continue; // What was there before is there still.
            }
            let carrier = if is_live(open, real) { real } else { dead.number() };
            if carrier == number || kernel::dup3(carrier, number, cloexec).is_ok() {
                done.insert(number);
            }
        }
        done
    }

    /// Keeps in mind what the kernel has at a number that the program gets to know.
    ///
    /// Not for pipes, sockets and the like: whoever is at the other end is to feel when they are closed.
    pub fn watch(&mut self, number: i32) {
        if let Ok(witness) = kernel::copy_high(number) {
            self.unwatch(number);
            self.keep_private(witness);
            self.witnesses.insert(number, witness);
        }
    }

    /// The program closes the number.
    pub fn unwatch(&mut self, number: i32) {
        if let Some(witness) = self.witnesses.remove(&number) {
            self.close_private(witness);
        }
    }

    /// Whether the kernel still has at a number what it had when the program got to know it: no other thread
    /// has closed it. `true` if that is not known.
    #[must_use]
    pub fn is_still(&self, number: i32) -> bool {
        match self.witnesses.get(&number) {
            Some(&witness) => kernel::is_still_same(witness, number),
            None => true,
        }
    }

    /// No number is watched any more: the transaction moves to another process.
    pub fn unwatch_all(&mut self) {
        for (_, witness) in std::mem::take(&mut self.witnesses) {
            self.close_private(witness);
        }
    }

    /// Another thread has closed a number past the transaction.
    fn was_closed_elsewhere(&mut self, number: i32) {
        let Descriptor::Open { file, real, over, .. } = self.descriptor(number) else { return };
        if !self.get(file).before.is_empty() && real != number {
            self.get_mut(file).left = kernel::seek(real, 0, libc::SEEK_CUR).ok();
        }
        let before = &mut self.get_mut(file).before;
        if let Some(at) = before.iter().position(|&n| n == number) {
            // Others may have the same open file: what the commit does to it goes by the witness.
            before.remove(at);
            if let Some(witness) = self.witnesses.remove(&number) {
                self.get_mut(file).before.push(witness);
            }
        }
        self.unwatch(number);
        if over && real != number {
            self.close_private(real);
        }
        self.set(number, Descriptor::Untouched);
        self.lose_number(file, number);
    }

    /// The same of every number that another thread has closed.
    pub fn find_closed_elsewhere(&mut self) {
        let gone = |number: &i32| !self.is_still(*number);
        let numbers: Vec<i32> = self.witnesses.keys().copied().filter(gone).collect();
        for number in numbers {
            self.was_closed_elsewhere(number);
        }
    }

    /// An open file has one number less.
    fn lose_number(&mut self, file: File, number: i32) {
        let open = self.get_mut(file);
        open.numbers.retain(|&n| n != number);
        // fcntl(2): whatever else is open of it.
        if let Some(id) = open.node
            && !self.record_locks.is_empty()
        {
            self.record_locks.retain(|(on, _)| *on != id);
        }
        let open = self.get(file);
        if open.numbers.is_empty() && open.before.is_empty() {
            self.forget(file);
        }
    }

    /// Numbers that the program has closed, or has given to something else since, and that the kernel has open still.
    #[must_use]
    pub fn closed_numbers(&self) -> Vec<i32> {
        let given = self.descriptors.iter().zip(0..).filter(|(d, number)| d.was_given(*number));
        self.closed.iter().copied().chain(given.map(|(_, number)| number)).collect()
    }

    /// Whether there are such numbers.
    #[inline]
    #[must_use]
    pub fn has_closed(&self) -> bool {
        !self.closed.is_empty()
            || self.descriptors.iter().zip(0..).any(|(d, number)| d.was_given(number))
    }

    /// Closes such a number for the kernel as well: an abort can't open it again. What has it now is there from now on.
    pub fn close_for_good(&mut self, number: i32) {
        let now = match self.descriptor(number) {
            Descriptor::Open { file, real, cloexec, over: true } => {
                if real == number || kernel::dup3(real, number, cloexec).is_err() {
                    return;
                }
                self.close_private(real);
                Descriptor::Open { file, real: number, cloexec, over: false }
            }
            _ => {
                kernel::close(number);
                Descriptor::Untouched
            }
        };
        self.unwatch(number);
        for file in 0..self.count() {
            self.get_mut(file).before.retain(|&n| n != number);
        }
        self.set(number, now);
    }

    /// Whether all numbers are as the kernel has them.
    #[must_use]
    pub fn is_as_the_kernels(&self) -> bool {
        self.closed.is_empty()
            && self.descriptors.iter().zip(0..).all(|(descriptor, number)| match descriptor {
                Descriptor::Open { real, .. } => *real == number,
                _ => true,
            })
    }

    /// Sets what is known of a number.
    pub fn set(&mut self, number: i32, descriptor: Descriptor) {
        if number >= SPACE {
            match descriptor {
                Descriptor::Open { .. } => self.of_others.insert(number, descriptor),
                _ => self.of_others.remove(&number),
            };
            return;
        }
        let Ok(at) = usize::try_from(number) else { return };
        if self.descriptors.len() <= at {
            self.descriptors.resize(at + 1, Descriptor::Untouched);
        }
        self.descriptors[at] = descriptor;
        if descriptor == Descriptor::Closed {
            self.closed.insert(number);
        } else {
            self.closed.remove(&number);
        }
    }

    /// The numbers of another process, without what makes them its own, and what they are.
    #[must_use]
    pub fn of_space(&self, space: i32) -> Vec<(i32, Descriptor)> {
        let own = |number: i32| number / SPACE == space / SPACE;
        if space == 0 {
            return self.touched();
        }
        self.of_others.iter().filter(|(n, _)| own(**n)).map(|(n, d)| (*n - space, *d)).collect()
    }

    /// Every number of the program's that was touched.
    pub fn touched(&self) -> Vec<(i32, Descriptor)> {
        let numbered = self.descriptors.iter().enumerate();
        numbered
            .filter(|(_, s)| **s != Descriptor::Untouched)
            .map(|(n, s)| (i32::try_from(n).unwrap_or(i32::MAX), *s))
            .filter(|(n, _)| !self.adopted.contains(n))
            .collect()
    }

    /// Every open file on a node.
    pub fn on(&self, id: Id) -> Vec<File> {
        let on = self.on.get(&id).into_iter().flatten().copied();
        on.filter(|&file| !self.get(file).numbers.is_empty()).collect()
    }

    fn lowest_closed(&self, min: i32) -> Option<i32> {
        self.closed.range(min..).next().copied()
    }

    /// Every file that is open, or was.
    pub fn every(&self) -> impl Iterator<Item = &OpenFile> {
        self.files.iter()
    }

    /// How many open files there are, and were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Gives a number from before the close-on-exec flag that it has in the transaction.
    pub fn install_close_on_exec(&self, number: i32, cloexec: bool) {
        if self.inherited.get(&number) != Some(&cloexec) {
            let _ = kernel::set_close_on_exec(number, cloexec);
        }
    }

    /// Adds an open file, without a number yet.
    pub fn add(&mut self, file: OpenFile) -> File {
        let free = self.free.pop();
        self.reused.extend(free);
        let place = free.unwrap_or(self.files.len());
        if let Some(id) = file.node {
            self.on.entry(id).or_default().push(place);
        }
        match self.files.get_mut(place) {
            Some(free) => *free = file,
            None => self.files.push(file),
        }
        place
    }

    /// The process has got a record lock, or given one up.
    pub fn note_record_lock(&mut self, id: Id, lock: libc::flock) {
        let end = |lock: &libc::flock| match lock.l_len {
            0 => Some(i64::MAX),
            len => lock.l_start.checked_add(len).filter(|_| len > 0),
        };
        let is_in = |known: &libc::flock| {
            lock.l_start <= known.l_start
                && end(known).zip(end(&lock)).is_some_and(|(known, new)| known <= new)
        };
        self.record_locks.retain(|(on, known)| *on != id || !is_in(known));
        let frees = i32::from(lock.l_type) == libc::F_UNLCK;
        if !frees || self.record_locks.iter().any(|(on, _)| *on == id) {
            self.record_locks.push((id, lock));
        }
    }

    /// The record locks that the process has, in the order in which it has got them, with what it has given up.
    pub fn take_record_locks(&mut self) -> Vec<(Id, libc::flock)> {
        std::mem::take(&mut self.record_locks)
    }

    /// A file is to be open on its private copy, no longer by `real`. If that has a lock of flock(2), it keeps it:
    /// others look for it at the stable file.
    ///
    /// # Errors
    /// EMFILE.
    fn keep_lock(&mut self, file: File, real: i32) -> Sys<()> {
        let open = self.get(file);
        // The open file from before has its lock itself.
        if open.lock != 0 && open.before.is_empty() && open.lock_holder.is_none() {
            let holder = kernel::copy_high(real)?;
            self.keep_private(holder);
            self.get_mut(file).lock_holder = Some(holder);
        }
        Ok(())
    }

    /// The program has closed the last number of an open file of the transaction's own.
    fn forget(&mut self, file: File) {
        if let Some(id) = self.get(file).node
            && let Some(on) = self.on.get_mut(&id)
        {
            on.retain(|&other| other != file);
            if on.is_empty() {
                self.on.remove(&id);
            }
        }
        if let Some(holder) = self.get_mut(file).lock_holder.take() {
            self.close_private(holder);
        }
        // What pipes and the like were for is still asked.
        if self.get(file).node.is_some() && !self.get(file).stays {
            *self.get_mut(file) = OpenFile::default();
            self.free.push(file);
        }
    }
}

impl Tx {
    /// The open file of a number.
    ///
    /// # Errors
    /// EBADF; the transaction is doomed.
    pub fn file(&mut self, number: i32) -> Sys<File> {
        let is_its_own = |space: i32| (0..SPACE).contains(&number.wrapping_sub(space));
        if !self.process.space.is_none_or(is_its_own) {
            return Err(Errno::BADF);
        }
        match self.fds.descriptor(number) {
            Descriptor::Open { .. } if self.fds.adopted.contains(&number) => Err(Errno::BADF),
            Descriptor::Open { file, .. } => Ok(file),
            Descriptor::Closed => Err(Errno::BADF),
            // What else this process has open belongs to none of the others.
            Descriptor::Untouched if self.process.space.is_some() => Err(Errno::BADF),
            Descriptor::Untouched => self.adopt_number(number),
        }
    }

    /// The kernel's number for one of the program's.
    ///
    /// # Errors
    /// EBADF; as `open(2)` of the file.
    pub fn real(&mut self, number: i32) -> Sys<i32> {
        let file = self.file(number)?;
        self.separate_offset(file)?;
        self.fds.real(number)
    }

    /// The same for a call that neither uses nor moves the offset, nor changes the open file.
    ///
    /// # Errors
    /// EBADF.
    pub fn real_without_offset(&mut self, number: i32) -> Sys<i32> {
        self.file(number)?;
        self.fds.real(number)
    }

    /// Opens the file of a descriptor from before anew, if it was not yet: its offset is to be used.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn separate_offset(&mut self, file: File) -> Sys<()> {
        let open = self.fds.get(file);
        if !open.shares_offset {
            return Ok(());
        }
        let (Some(id), Some(&number)) = (open.node, open.before.first()) else { return Ok(()) };
        let mut open = std::mem::take(self.fds.get_mut(file));
        let opened = self.reopen(id, number, &mut open);
        open.shares_offset = opened.is_err();
        *self.fds.get_mut(file) = open;
        let opened = opened?;
        let Descriptor::Open { file, cloexec, over, .. } = self.fds.descriptor(number) else {
            return Err(Errno::BADF);
        };
        self.fds.set(number, Descriptor::Open { file, real: opened, cloexec, over });
        Ok(())
    }

    /// Takes note of a descriptor from before the transaction.
    fn adopt_number(&mut self, number: i32) -> Sys<File> {
        if number < 0 || self.fds.is_ours(number) {
            return Err(Errno::BADF);
        }
        self.claim_used(number)?;
        self.adopt_open(number)
    }

    /// The same, of a number that is open.
    ///
    /// # Errors
    /// As `fcntl(2)` and `open(2)`.
    pub fn adopt_open(&mut self, number: i32) -> Sys<File> {
        let flags = kernel::status_flags(number)?;
        let cloexec = kernel::close_on_exec(number)?;
        let stat = kernel::look_fd(number)?;
        let mut open = OpenFile { flags, numbers: vec![number], ..OpenFile::default() };
        match stat.kind() {
            FileKind::Socket => open.receiving = Receiving::Unknown,
            FileKind::Fifo => open.receiving = Receiving::Pipe(number),
            FileKind::CharDevice => open.receiving = Receiving::Device,
            _ => {}
        }
        let mut real = number;
        let mut watched = false;
        // A command's own messages are live, wherever they go.
        let command = self.how.flags & super::flags::COMMAND != 0;
        if command && number <= 2 {
            // As in `txos run`.
        } else if matches!(stat.kind(), FileKind::File | FileKind::Dir) {
            let id = self.adopt_fd(number, stat)?;
            if !self.tree.nodes[id].live {
                let is_file = stat.kind() == FileKind::File;
                self.tree.nodes[id].kept |= is_file && open.flags & libc::O_PATH == 0;
                if let Some(shared) = self.fds.shared_with(id, number) {
                    if !self.fds.get(shared).numbers.is_empty() {
                        self.separate_offset(shared)?;
                    }
                    let theirs = self.fds.get(shared).numbers.first().copied();
                    let real = match theirs.map(|n| self.fds.descriptor(n)) {
                        Some(Descriptor::Open { real: theirs, .. }) => {
                            self.fds.keep_private(kernel::copy_high(theirs)?)
                        }
                        Some(_) => return Err(Errno::BADF),
                        // All its other numbers were closed; it goes on where they were.
                        None => {
                            open.flags = self.fds.get(shared).flags;
                            let real = self.reopen(id, number, &mut open)?;
                            let file = self.fds.get_mut(shared);
                            file.borrowed |= open.borrowed;
                            if std::mem::take(&mut file.shares_offset) {
                                file.was = open.was;
                            }
                            if let Some(left) = file.left {
                                let _ = kernel::seek(real, left as i64, libc::SEEK_SET);
                            }
                            real
                        }
                    };
                    let file = self.fds.get_mut(shared);
                    file.numbers.push(number);
                    file.before.push(number);
                    self.fds
                        .set(number, Descriptor::Open { file: shared, real, cloexec, over: true });
                    if self.closes_late() {
                        self.fds.watch(number);
                    }
                    return Ok(shared);
                }
                open.node = Some(id);
                open.before.push(number);
                watched = self.closes_late();
                let serves = matches!(self.tree.nodes[id].data, Data::Stable) && open.reads();
                if is_file && serves {
                    open.was.0 = open.flags;
                    open.shares_offset = true;
                } else {
                    real = self.reopen(id, number, &mut open)?;
                }
            } else if stat.kind() == FileKind::Dir {
                // Paths begin there.
                open.node = Some(self.tree.live_dir(&kernel::magic_path(number))?);
            }
        } else if kernel::path_of_fd(number).is_ok_and(|path| path.starts_with(b"/")) {
            let id = self.adopt_fd(number, stat)?;
            open.node = Some(id).filter(|&id| !self.tree.nodes[id].live);
        }
        open.older = open.before.is_empty().then_some(number);
        let file = self.fds.add(open);
        self.fds.inherited.insert(number, cloexec);
        self.fds.set(number, Descriptor::Open { file, real, cloexec, over: true });
        if watched {
            self.fds.watch(number);
        }
        Ok(file)
    }

    /// Opens the file of a descriptor from before anew, with an offset of its own.
    fn reopen(&mut self, id: Id, number: i32, open: &mut OpenFile) -> Sys<i32> {
        let offset = kernel::seek(number, 0, libc::SEEK_CUR).unwrap_or(0);
        open.was = (open.flags, offset);
        if open.flags & libc::O_PATH != 0 {
            return Ok(number);
        }
        let path = kernel::magic_path(number);
        // What is written goes to private copies: reading is all that the stable file is for.
        let flags = libc::O_CLOEXEC | (open.flags & libc::O_DIRECT);
        let fd = kernel::as_owner(|| {
            kernel::open(&path, flags | libc::O_RDONLY, 0)
                .or_else(|_| kernel::open(&path, flags | (open.flags & libc::O_ACCMODE), 0))
        });
        let Ok(fd) = fd else {
            open.borrowed = true;
            let fd = kernel::copy_high(number)?;
            return Ok(self.fds.keep_private(fd));
        };
        let fd = self.fds.keep_private(kernel::move_high(fd)?);
        let _ = kernel::seek(fd, offset as i64, libc::SEEK_SET);
        if let Data::Whole(_) = self.tree.nodes[id].data {
            return self.tree.reopen_whole(id, fd, open.flags, offset);
        }
        Ok(fd)
    }

    /// A file has a private copy now: the descriptors that lead to it have to lead there.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn retarget(&mut self, id: Id) -> Sys<()> {
        for file in self.fds.on(id) {
            let open = self.fds.get(file);
            if open.flags & libc::O_PATH != 0 {
                continue;
            }
            let (flags, numbers) = (open.flags, open.numbers.clone());
            let new = self.tree.open_backing(id, flags)?;
            for (i, number) in numbers.into_iter().enumerate() {
                if !self.fds.is_still(number) {
                    self.fds.was_closed_elsewhere(number);
                    continue;
                }
                let Descriptor::Open { file, real, cloexec, over } = self.fds.descriptor(number)
                else {
                    continue;
                };
                if i == 0 {
                    let offset = kernel::seek(real, 0, libc::SEEK_CUR).unwrap_or(0);
                    let _ = kernel::seek(new, offset as i64, libc::SEEK_SET);
                    self.fds.keep_lock(file, real)?;
                    let open = self.fds.get_mut(file);
                    if std::mem::take(&mut open.shares_offset) {
                        open.was.1 = offset;
                    }
                }
                // A number from before that is its own carrier stays as it is.
                let own = over && real == number;
                let place = if own { kernel::copy_high(new)? } else { real };
                if own {
                    self.fds.keep_private(place);
                    self.fds.set(number, Descriptor::Open { file, real: place, cloexec, over });
                } else {
                    kernel::dup3(new, place, cloexec || real != number)?;
                    if !over && let Some(&witness) = self.fds.witnesses.get(&number) {
                        kernel::dup3(new, witness, true)?;
                    }
                }
            }
            kernel::close(new);
        }
        Ok(())
    }

    /// A descriptor of ours from which the stable file of a node can be read: a duplicate.
    pub fn readable_descriptor(&mut self, id: Id) -> Option<i32> {
        for file in self.fds.on(id) {
            let open = self.fds.get(file);
            let Some(&number) = open.numbers.first() else { continue };
            let Descriptor::Open { real, over, .. } = self.fds.descriptor(number) else { continue };
            if !over && !self.fds.is_still(number) {
                continue;
            }
            let flags = kernel::status_flags(real).unwrap_or(0);
            if flags & libc::O_PATH == 0
                && flags & libc::O_ACCMODE != libc::O_WRONLY
                && !matches!(self.tree.nodes[id].data, Data::Whole(_))
                && let Ok(fd) = kernel::copy_high(real)
            {
                return Some(fd);
            }
        }
        None
    }

    /// Gives an open file a number that the program sees: the lowest that is free to it.
    ///
    /// # Errors
    /// EMFILE; the transaction is doomed.
    pub fn number(&mut self, file: File, real: i32, cloexec: bool, min: i32) -> Sys<i32> {
        let real = match self.fds.takes_closed(real, min) {
            true => real,
            false => self.claim_new(real, cloexec)?,
        };
        let number = self.fds.number(file, real, cloexec, min)?;
        if number != real {
            // It was moved out of the way after all.
            self.let_go_of_number(real);
        }
        Ok(number)
    }

    /// `close(2)`.
    ///
    /// # Errors
    /// EBADF; the transaction is doomed.
    pub fn close_number(&mut self, number: i32) -> Sys<()> {
        match self.fds.descriptor(number) {
            Descriptor::Open { over: false, .. } => {
                self.fds.close_number(number)?;
                self.let_go_of_number(number);
                Ok(())
            }
            Descriptor::Untouched if self.fds.is_ours(number) => Err(Errno::BADF),
            _ => {
                self.claim_changed(number)?;
                self.fds.close_number(number)
            }
        }
    }

    /// `dup(2)`, and `fcntl(F_DUPFD)`.
    ///
    /// # Errors
    /// EBADF, EMFILE, EINVAL.
    pub fn dup(&mut self, number: i32, min: i32, cloexec: bool) -> Sys<u64> {
        let file = self.file(number)?;
        let real = self.real(number)?;
        let new = kernel::duplicate(real, min, cloexec)?;
        let watched = self.fds.witnesses.contains_key(&number);
        let new = self.number(file, new, cloexec, min)?;
        if watched {
            self.fds.watch(new);
        }
        Ok(new as u64)
    }

    /// `dup3(2)`, the numbers being different.
    ///
    /// # Errors
    /// EBADF.
    pub fn dup_to(&mut self, number: i32, target: i32, cloexec: bool) -> Sys<u64> {
        let file = self.file(number)?;
        let real = self.real(number)?;
        if target < 0 || self.fds.private.contains(&target) || target >= kernel::descriptor_limit()
        {
            return Err(Errno::BADF);
        }
        self.claim_target(target)?;
        let over = match self.fds.descriptor(target) {
            Descriptor::Untouched if kernel::close_on_exec(target).is_err() => {
                !self.put_at(real, target, cloexec)?
            }
            Descriptor::Untouched => {
                self.fds.close_number(target)?;
                true
            }
            Descriptor::Closed => true,
            Descriptor::Open { over: true, .. } => {
                self.fds.close_number(target)?;
                true
            }
            Descriptor::Open { file: old, over: false, .. } => {
                // At once: closed first, the number could be given to another thread.
                kernel::dup3(real, target, cloexec)?;
                self.fds.replaced(old, target);
                false
            }
        };
        let carrier = if over {
            let high = kernel::copy_high(real)?;
            self.fds.keep_private(high)
        } else {
            target
        };
        self.fds.set(target, Descriptor::Open { file, real: carrier, cloexec, over });
        self.fds.get_mut(file).numbers.push(target);
        Ok(target as u64)
    }
}

impl ShadowTree {
    /// A private copy was made before this descriptor was first used.
    fn reopen_whole(&mut self, id: Id, old: i32, flags: i32, offset: u64) -> Sys<i32> {
        let fd = self.open_backing(id, flags)?;
        let _ = kernel::seek(fd, offset as i64, libc::SEEK_SET);
        kernel::dup3(fd, old, true)?;
        kernel::close(fd);
        Ok(old)
    }

    /// Opens a file's private copy as the program has it open.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_backing(&mut self, id: Id, flags: i32) -> Sys<i32> {
        const KEPT: i32 = libc::O_ACCMODE
            | libc::O_APPEND
            | libc::O_DIRECT
            | libc::O_NONBLOCK
            | libc::O_NOATIME
            | libc::O_NOFOLLOW
            | libc::O_SYNC
            | libc::O_PATH;
        let Some(backing) = self.nodes[id].data.whole() else { return Err(Errno::IO) };
        let path = backing.path.clone();
        let flags = (flags & KEPT) | libc::O_CLOEXEC;
        kernel::as_owner(|| kernel::open_past_mode(&path, || kernel::open(&path, flags, 0)))
    }
}

impl FdTable {
    /// An open file from before that is the same description as `number`'s (dup(2)).
    fn shared_with(&self, id: Id, number: i32) -> Option<File> {
        self.on.get(&id).into_iter().flatten().copied().find(|&file| {
            let other = self.get(file).before.first();
            other.is_some_and(|&other| kernel::is_same_description(other, number))
        })
    }

    /// A descriptor that the transaction itself has opened to read the stable file of a node.
    #[must_use]
    pub fn opened_to_read(&self, id: Id) -> Option<i32> {
        self.on(id).into_iter().find_map(|file| {
            let open = self.get(file);
            // Opened by path for reading, unless that was refused, which is so only for writing alone.
            let readable = open.before.is_empty()
                && open.flags & (libc::O_PATH | libc::O_DIRECT) == 0
                && open.flags & libc::O_ACCMODE != libc::O_WRONLY;
            let number = *open.numbers.first()?;
            match self.descriptor(number) {
                Descriptor::Open { real, over, .. } if readable => {
                    (over || self.is_still(number)).then_some(real)
                }
                _ => None,
            }
        })
    }

    /// Whether a number is the library's: one of the transaction's, or of the engine's, which keeps
    /// its own from the same number on and closes them on exec.
    #[must_use]
    pub fn is_ours(&self, number: i32) -> bool {
        self.private.contains(&number)
            || (number >= kernel::high_base() && kernel::close_on_exec(number) == Ok(true))
    }

    /// The kernel's number for one of the program's that is open.
    ///
    /// # Errors
    /// EBADF.
    pub fn real(&self, number: i32) -> Sys<i32> {
        match self.descriptor(number) {
            Descriptor::Open { real, .. } => Ok(real),
            _ => Err(Errno::BADF),
        }
    }

    /// Remembers that a number is ours.
    pub fn keep_private(&mut self, fd: i32) -> i32 {
        self.private.insert(fd);
        fd
    }

    /// Closes a number of ours.
    pub fn close_private(&mut self, fd: i32) {
        self.private.remove(&fd);
        kernel::close(fd);
    }

    /// Gives an open file a number that the program sees: the lowest that is free to it.
    ///
    /// # Errors
    /// EMFILE.
    pub fn number(&mut self, file: File, real: i32, cloexec: bool, min: i32) -> Sys<i32> {
        if self.chosen.is_none() {
            // The kernel gives no number that is open.
            self.was_closed_elsewhere(real);
        }
        let lower = self.lowest_closed(min).filter(|&n| n < real);
        let (number, real, over) = match self.chosen.or(lower) {
            Some(number) => {
                let high = kernel::move_high(real)?;
                (number, self.keep_private(high), true)
            }
            None => (real, real, false),
        };
        self.set(number, Descriptor::Open { file, real, cloexec, over });
        self.get_mut(file).numbers.push(number);
        Ok(number)
    }

    /// Whether an open file will get the lowest number that the program has closed.
    #[must_use]
    pub fn takes_closed(&self, real: i32, min: i32) -> bool {
        self.chosen.is_some() || self.lowest_closed(min).is_some_and(|number| number < real)
    }

    /// The kernel has something else at a number that the transaction had opened.
    fn replaced(&mut self, old: File, number: i32) {
        self.unwatch(number);
        self.set(number, Descriptor::Untouched);
        self.lose_number(old, number);
    }

    /// Whether a number from before is not what it was: it has something else, or another close-on-exec flag.
    #[must_use]
    pub fn is_changed(&self, number: i32) -> bool {
        match self.descriptor(number) {
            Descriptor::Untouched => false,
            Descriptor::Closed => true,
            Descriptor::Open { file, real, cloexec, .. } => {
                let is_original = real == number || self.get(file).before.contains(&number);
                !is_original || self.inherited.get(&number).is_some_and(|&was| was != cloexec)
            }
        }
    }

    /// Whether the commit changes the offset or the flags of something that was open before.
    #[must_use]
    pub fn installs_originals(&self) -> bool {
        self.files.iter().any(|open| {
            !open.before.is_empty() && (!open.shares_offset || open.flags != open.was.0)
        })
    }

    /// Gives an open file of the transaction's the number of a descriptor that the transaction has
    /// opened past its own table.
    ///
    /// # Errors
    /// As `dup3(2)`.
    pub fn replace_number(&mut self, number: i32, target: i32) -> Sys<()> {
        let Descriptor::Open { file, real, cloexec, over } = self.descriptor(number) else {
            return Err(Errno::BADF);
        };
        kernel::dup3(real, target, cloexec)?;
        self.unwatch(number);
        if over {
            self.close_private(real);
            self.set(number, Descriptor::Closed);
        } else {
            kernel::close(real);
            self.set(number, Descriptor::Untouched);
        }
        if self.witnesses.contains_key(&target) {
            self.watch(target);
        }
        self.set(target, Descriptor::Open { file, real: target, cloexec, over: false });
        self.get_mut(file).numbers = vec![target];
        Ok(())
    }

    /// `close(2)`.
    ///
    /// # Errors
    /// EBADF.
    pub fn close_number(&mut self, number: i32) -> Sys<()> {
        match self.descriptor(number) {
            Descriptor::Closed => return Err(Errno::BADF),
            Descriptor::Open { .. } if self.adopted.contains(&number) => return Err(Errno::BADF),
            Descriptor::Untouched => {
                if number < 0 || self.is_ours(number) {
                    return Err(Errno::BADF);
                }
                kernel::close_on_exec(number)?;
                self.set(number, Descriptor::Closed);
            }
            Descriptor::Open { file, real, over, .. } => {
                self.unwatch(number);
                if !self.get(file).before.is_empty() {
                    // Others of its numbers may be open still, and not have been touched.
                    self.get_mut(file).left = kernel::seek(real, 0, libc::SEEK_CUR).ok();
                }
                if over {
                    if real != number {
                        self.close_private(real);
                    }
                    self.set(number, Descriptor::Closed);
                } else {
                    kernel::close(real);
                    self.set(number, Descriptor::Untouched);
                }
                self.lose_number(file, number);
            }
        }
        Ok(())
    }
}
