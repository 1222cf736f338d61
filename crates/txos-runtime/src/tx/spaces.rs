//! Several processes in one transaction.
//!
//! The transaction lies in a process of its own, which makes the calls of all the others ([`crate::front`] has
//! the way there). What the kernel keeps for each process is kept for each here: descriptors, the working directory
//! and root, the umask. The numbers of a process are those of its *space*: a multiple of [`SPACE`], plus the number.
//! The process that began has space 0, so its numbers are what they were.

use txos_calls::{Effect, OpenFlags, effect};
use txos_engine::object::{FileId, FileKind};

use super::content::Data;
use super::files::{Descriptor, OpenFile};
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::Id;
use super::parts::ProcessGlobals;
use super::{Failure, Tx, acquire, perm, shared};
use crate::call::Call;

/// How many numbers a process can have, which is also the kernel's usual limit.
pub const SPACE: i32 = 1 << 20;
/// How many processes there can be at a time.
pub const SPACES: i32 = i32::MAX / SPACE;

fn is_terminal(fd: i32) -> bool {
    kernel::look_fd(fd).is_ok_and(|stat| {
        stat.kind() == FileKind::CharDevice && matches!(libc::major(stat.rdev), 4 | 5 | 136)
    })
}

/// Whether a call has two paths that are looked up.
#[must_use]
pub fn has_two_paths(number: i64) -> bool {
    effect(number) == Effect::TwoNames
}

/// What is a process's own, besides its numbers, while no call of it is carried out.
#[derive(Debug, Default)]
pub struct Own {
    process: ProcessGlobals,
    cwd: Option<Id>,
    root: Id,
}

impl Own {
    /// The number of the working directory's node, once it was looked at.
    #[must_use]
    pub fn directory(&self) -> Option<Id> {
        self.cwd
    }

    /// The process's numbers are those of this space, and it has no others.
    pub fn is_of_space(&mut self, space: i32) {
        self.process.space = Some(space);
    }
}

/// What an executable program is to a process of the transaction.
#[derive(Debug)]
pub enum Program {
    /// The kernel finds it by the name that was given.
    AsGiven,
    /// It is here in the stable tree.
    Stable(Vec<u8>),
    /// A descriptor of its private copy.
    Copy(i32),
}

/// A number of the process that began, when the transaction moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The transaction knows what it is, and carries out the calls on it.
    Ours {
        /// The program's number.
        number: i32,
        /// Its close-on-exec flag.
        cloexec: bool,
        /// It was open before the transaction, and the kernel has it open at this number.
        before: bool,
    },
    /// The kernel does: it has it open at this number.
    Kernels {
        /// The program's number.
        number: i32,
        /// The kernel's.
        real: i32,
        /// Its close-on-exec flag.
        cloexec: bool,
        /// It was open before the transaction: who else has it is not known.
        before: bool,
    },
    /// It is closed.
    Closed {
        /// The program's number.
        number: i32,
    },
}

impl Moved {
    /// What others may read of it.
    #[must_use]
    pub fn outlet(&self) -> Option<Outlet> {
        match *self {
            Moved::Kernels { number, before: true, .. } if number > 2 => Outlet::of(number),
            _ => None,
        }
    }
}

/// A file for record locks.
#[derive(Clone, Copy, Debug)]
pub struct Lockable {
    /// Which.
    pub id: Id,
    /// It is open for reading.
    pub reads: bool,
    /// It is open for writing.
    pub writes: bool,
    /// Where its offset is, in bytes.
    pub offset: i64,
    /// How long it is, in bytes.
    pub size: i64,
}

impl Lockable {
    /// A lock on it, with offsets from the start.
    ///
    /// # Errors
    /// EINVAL, EOVERFLOW.
    pub fn from_start(&self, lock: libc::flock) -> Sys<libc::flock> {
        let start = match i32::from(lock.l_whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => self.offset,
            libc::SEEK_END => self.size,
            _ => return Err(Errno::INVAL),
        };
        let l_start = lock.l_start.checked_add(start).ok_or(Errno::OVERFLOW)?;
        Ok(libc::flock { l_whence: libc::SEEK_SET as i16, l_start, l_pid: 0, ..lock })
    }
}

/// What others may read that a process writes to: an object that it had open before the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlet {
    /// Which.
    pub id: FileId,
    /// Its kind, as `st_mode` has it.
    pub kind: u32,
}

impl Outlet {
    /// What a descriptor leads to, if that is something of this kind.
    #[must_use]
    pub fn of(number: i32) -> Option<Outlet> {
        let stat = kernel::look_fd(number).ok()?;
        let null = stat.kind() == FileKind::CharDevice && libc::major(stat.rdev) == 1;
        let kind = stat.mode & libc::S_IFMT;
        (kind != 0 && kind != libc::S_IFDIR && !null).then_some(Outlet { id: stat.id, kind })
    }

    /// What a descriptor leads to that can be written to and is no terminal.
    #[must_use]
    pub fn written_by(number: i32) -> Option<Outlet> {
        let writes = kernel::status_flags(number).is_ok_and(|flags| flags & libc::O_ACCMODE != 0);
        Outlet::of(number).filter(|_| writes && !is_terminal(number))
    }
}

impl Tx {
    /// Whether the working directory was changed in the transaction, where the kernel's has stayed.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.process.moved.0
    }

    /// Every number of the process that began, before the transaction moves to another process.
    pub fn numbers_to_move(&mut self) -> Vec<Moved> {
        self.share();
        // There it is not looked for. Where it can't be found here either, each call that asks for it fails as it does now.
        let _ = self.cwd();
        let mask = self.umask();
        self.process.umask.get_or_insert(mask);
        let mut moved = Vec::new();
        let mut numbers = kernel::open_numbers().unwrap_or_default();
        numbers.extend(self.fds.touched().into_iter().map(|(number, _)| number));
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let is_untouched = self.fds.descriptor(number) == Descriptor::Untouched;
            if is_untouched && self.fds.is_ours(number) || self.fds.adopted.contains(&number) {
                continue;
            }
            // The offset of one from before is the transaction's from here on.
            let real = self.real(number);
            moved.push(match self.fds.descriptor(number) {
                Descriptor::Untouched => continue,
                Descriptor::Closed => Moved::Closed { number },
                Descriptor::Open { file, cloexec, .. } if self.is_of_the_transaction(number) => {
                    let before = self.fds.get(file).before.contains(&number);
                    Moved::Ours { number, cloexec, before }
                }
                Descriptor::Open { cloexec, over, .. } => {
                    let real = real.unwrap_or(number);
                    Moved::Kernels { number, real, cloexec, before: over && real == number }
                }
            });
        }
        self.fds.unwatch_all();
        moved
    }

    /// Numbers of ours: the process that began closes them when the transaction has moved. The lock of its place in the store is
    /// one: this process's children would inherit it, and who has the transaction when its command is over would find it held
    /// until the last of them is gone.
    #[must_use]
    pub fn private_numbers(&self) -> Vec<i32> {
        let lock = self.copies.staging.as_ref().and_then(super::staging::Staging::lock_number);
        self.fds.private.iter().copied().chain(lock).collect()
    }

    /// The transaction goes on in the calling process, a copy of the one that began it.
    ///
    /// # Errors
    /// Why it can't.
    pub fn moved_here(&mut self) -> Result<(), Failure> {
        let moved = self.locks.handle.as_ref().map_or(Ok(true), |handle| handle.move_here());
        shared::moved_here();
        match moved {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure {
                reason: super::reason::FAILED,
                errno: libc::ECANCELED,
                what: "the process that began the transaction has died".into(),
                ..Failure::default()
            }),
            Err(error) => Err(Failure {
                reason: super::reason::FAILED,
                errno: error.raw_os_error().unwrap_or(libc::EIO),
                what: format!("the transaction can't move to a process of its own: {error}"),
                ..Failure::default()
            }),
        }
    }

    /// In that process: a number is none of the transaction's.
    pub fn forget_number(&mut self, number: i32) {
        if let Descriptor::Open { file, real, over, .. } = self.fds.descriptor(number) {
            self.fds.get_mut(file).numbers.retain(|&other| other != number);
            if over && real != number {
                self.fds.close_private(real);
            }
        }
        self.fds.set(number, Descriptor::Untouched);
    }

    /// Whether the calls on a number are the transaction's to carry out: it leads to a file or a directory of a
    /// versioned tree, or to another of its objects.
    #[must_use]
    pub fn is_of_the_transaction(&self, number: i32) -> bool {
        match self.fds.descriptor(number) {
            Descriptor::Open { file, .. } => {
                let open = self.fds.get(file);
                // What the bytes of a device or FIFO are, the kernel knows.
                let path_only = open.flags & libc::O_PATH != 0;
                open.node.is_some_and(|id| {
                    !self.tree.nodes[id].live && (path_only || self.tree.has_content(id))
                })
            }
            _ => false,
        }
    }

    /// The process whose calls are carried out is somebody else from here on: `who` is a number for that.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn becomes(&mut self, own: &mut Own, who: u32) -> Sys<()> {
        own.process.who = who;
        own.process.cred = None;
        if who == 0 {
            own.process.own_user = None;
            return Ok(());
        }
        own.process.own_user = Some(true);
        // What was found on the way to a directory was found by who began.
        self.distrust_ways()
    }

    /// The thread is to have other credentials: what is opened once and for all is opened as who began. What can't be
    /// opened then is found out by the first call that needs it.
    pub fn before_identity(&mut self, began: &kernel::Credentials) {
        // Its call was made by who began.
        self.settle_foreseen();
        self.held.sent_by(0, began);
        if self.locks.handle.is_none() {
            let _ = self.join();
        }
        let _ = super::shared::home();
    }

    /// The thread has other credentials from here on: `who` is a number for that, 0 for those with which it began.
    pub fn takes_identity(&mut self, who: u32, now: &kernel::Credentials) {
        self.held.sent_by(who, now);
        self.process.who = who;
        self.process.cred = None;
        self.process.own_user = (who != 0).then_some(now.is_own_user());
        if who != 0 {
            // What was found on the way to a directory was found by who began. If that fails, it is doomed.
            let _ = self.distrust_ways();
        }
    }

    /// Whether the thread has taken other credentials in the transaction, and may not search everywhere.
    #[must_use]
    pub fn has_other_rights(&mut self) -> bool {
        const DAC_READ_SEARCH: u64 = 1 << 2;
        self.process.who != 0 && self.process.cred().caps & DAC_READ_SEARCH == 0
    }

    /// Whether a process has another root directory than the transaction.
    #[must_use]
    pub fn has_other_root(&self, own: &Own) -> bool {
        own.root != self.tree.top
    }

    /// From here on, what a path leads to that is not versioned is not this process's to look at or to change: its own
    /// directory in `/proc` is another one than the caller's, and would lead another user to everything. The call fails,
    /// and [`Tx::take_elsewhere`] has the path.
    pub fn delegate(&mut self, delegates: bool) {
        self.process.delegates = delegates;
        self.process.elsewhere = None;
    }

    /// The path to what is not versioned, if one has led there.
    pub fn take_live(&mut self) -> Option<Vec<u8>> {
        self.process.elsewhere.take()
    }

    /// The addresses of sockets that were bound to a name: the kernel's, and the program's path.
    #[must_use]
    pub fn bound(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.process.bound.clone()
    }

    /// The path that a process is to make its call with by itself, if the call has led out of the transaction.
    ///
    /// # Errors
    /// EXDEV: the call has two paths. What can't be live has doomed the transaction.
    pub fn take_elsewhere(&mut self, call: &Call) -> Sys<Option<Vec<u8>>> {
        let Some(path) = self.process.elsewhere.take() else { return Ok(None) };
        let effect = effect(call.number());
        let makes = match effect {
            Effect::Opens(OpenFlags::Arg(at)) => call.int(at) & libc::O_CREAT != 0,
            Effect::Opens(OpenFlags::Creat) => true,
            _ => false,
        };
        match effect {
            Effect::TwoNames => return Err(Errno::XDEV),
            _ if makes && kernel::statx(libc::AT_FDCWD, &path, 0).is_err() => {
                self.unsupported_call("a new file outside of the versioned trees", &path)?;
            }
            Effect::Alters | Effect::Unlinks => {
                if effect == Effect::Unlinks {
                    self.is_free(&path)?;
                }
                self.unsupported_call("a change outside of the versioned trees", &path)?;
            }
            _ => {}
        }
        Ok(Some(path))
    }

    /// Puts what is a process's own in force, and what was in force into its place.
    pub fn exchange(&mut self, own: &mut Own) {
        std::mem::swap(&mut self.process, &mut own.process);
        std::mem::swap(&mut self.tree.cwd, &mut own.cwd);
        std::mem::swap(&mut self.tree.root, &mut own.root);
    }

    /// A copy of the process whose calls are carried out, in another space: what `fork(2)` makes.
    ///
    /// # Errors
    /// As `getcwd(2)` and `fcntl(2)` with F_DUPFD.
    pub fn copy_of_process(&mut self, from: i32, to: i32) -> Sys<Own> {
        for (number, descriptor) in self.fds.of_space(from) {
            let Descriptor::Open { file, cloexec, .. } = descriptor else { continue };
            if !self.is_of_the_transaction(from + number) {
                continue;
            }
            let real = self.real(from + number)?;
            let real = self.fds.keep_private(kernel::copy_high(real)?);
            self.fds.set(to + number, Descriptor::Open { file, real, cloexec, over: true });
            self.fds.get_mut(file).numbers.push(to + number);
        }
        let umask = Some(self.umask());
        let cwd = Some(self.cwd()?);
        let process = ProcessGlobals {
            umask,
            umask_was: self.process.umask_was,
            moved: self.process.moved,
            space: Some(to),
            who: self.process.who,
            own_user: self.process.own_user,
            ..ProcessGlobals::default()
        };
        Ok(Own { process, cwd, root: self.tree.root })
    }

    /// What a process that runs already begins with in the transaction: its working directory is what `cwd` leads to.
    ///
    /// # Errors
    /// As `chdir(2)`; EXDEV: its directory is another one in the transaction.
    pub fn own_of_joiner(&mut self, space: i32, umask: u32, cwd: i32) -> Sys<Own> {
        let stat = kernel::look_fd(cwd)?;
        let path = kernel::path_of_fd(cwd)?;
        let process = ProcessGlobals {
            umask: Some(umask),
            umask_was: self.process.umask_was,
            space: Some(space),
            ..ProcessGlobals::default()
        };
        let mut own = Own { process, cwd: None, root: self.tree.top };
        self.exchange(&mut own);
        let entered = self.enter(&path, stat.id);
        self.exchange(&mut own);
        entered.map(|()| own)
    }

    /// The working directory becomes one of the stable tree.
    fn enter(&mut self, path: &[u8], id: FileId) -> Sys<()> {
        let object = self.object(libc::AT_FDCWD, path, 0)?;
        self.chdir(object)?;
        let cwd = self.tree.cwd.ok_or(Errno::NOENT)?;
        if self.tree.nodes[cwd].stat.id == id { Ok(()) } else { Err(Errno::XDEV) }
    }

    /// What a process that joins has open at a number becomes known: whether it is the transaction's. The caller's own is in
    /// force. What is the transaction's stays open here until that ends.
    ///
    /// # Errors
    /// The transaction is doomed; EMFILE; as `open(2)`.
    pub fn adopt_for(&mut self, space: i32, number: i32, fd: OwnedFd, cloexec: bool) -> Sys<bool> {
        let file = self.adopt_open(fd.number())?;
        // The number is ours, and stays as long as the transaction.
        if !self.is_of_the_transaction(fd.number()) {
            self.forget_number(fd.number());
            return Ok(false);
        }
        let original = self.fds.keep_private(fd.into_number());
        self.fds.adopted.insert(original);
        self.separate_offset(file)?;
        let real = self.fds.real(original)?;
        let real = self.fds.keep_private(kernel::copy_high(real)?);
        let number = space + number;
        self.fds.set(number, Descriptor::Open { file, real, cloexec, over: true });
        self.fds.get_mut(file).numbers.push(number);
        Ok(true)
    }

    /// A number stands for a FIFO or device that a process has open itself, until it is closed. `false`: it is not the
    /// transaction's.
    ///
    /// # Errors
    /// EINVAL: it is something else. The transaction is doomed.
    pub fn stands_for_special(&mut self, number: i32, fd: OwnedFd) -> Sys<bool> {
        let stat = kernel::look_fd(fd.number())?;
        if matches!(stat.kind(), FileKind::File | FileKind::Dir | FileKind::Symlink) {
            return Err(Errno::INVAL);
        }
        let Some(id) = self.special_node(&fd)? else { return Ok(false) };
        let file = self.fds.add(OpenFile { node: Some(id), ..OpenFile::default() });
        let real = self.fds.keep_private(fd.into_number());
        self.fds.set(number, Descriptor::Open { file, real, cloexec: true, over: true });
        self.fds.get_mut(file).numbers.push(number);
        Ok(true)
    }

    /// It does so no longer.
    pub fn closes_special(&mut self, number: i32) {
        let _ = self.fds.close_number(number);
    }

    /// The numbers of a process that the transaction knows.
    #[must_use]
    pub fn numbers_of(&self, space: i32) -> Vec<i32> {
        let numbers = self.fds.of_space(space).into_iter().map(|(number, _)| number);
        numbers.filter(|number| self.is_of_the_transaction(space + number)).collect()
    }

    /// A process ends, or runs another program: its numbers are closed, or those with the close-on-exec flag.
    pub fn close_space(&mut self, space: i32, all: bool) {
        for (number, descriptor) in self.fds.of_space(space) {
            match descriptor {
                Descriptor::Open { cloexec, .. } if all || cloexec => {
                    let _ = self.fds.close_number(space + number);
                }
                _ => {}
            }
        }
    }

    /// The kernel's umask becomes that of the process whose calls are carried out, for what is made at once.
    pub fn wear_umask(&mut self) {
        let mask = self.umask();
        kernel::set_umask(mask);
        self.process.umask_was = Some(mask);
    }

    /// What record locks want to know of a file of the transaction's.
    ///
    /// # Errors
    /// EBADF: it is none.
    pub fn lockable(&mut self, number: i32) -> Sys<Lockable> {
        let file = self.file(number)?;
        let real = self.real(number)?;
        let open = self.fds.get(file);
        let id = open.node.filter(|&id| !self.tree.nodes[id].live).ok_or(Errno::BADF)?;
        Ok(Lockable {
            id,
            reads: open.reads(),
            writes: open.writes(),
            offset: kernel::seek(real, 0, libc::SEEK_CUR).map_or(0, |offset| offset as i64),
            size: self.tree.nodes[id].stat.size as i64,
        })
    }

    /// The record locks that a command has which is one process yet.
    pub fn take_record_locks(&mut self) -> Vec<(Id, libc::flock)> {
        self.fds.take_record_locks()
    }

    /// Whether a process has a file open.
    #[must_use]
    pub fn has_open(&self, space: i32, id: Id) -> bool {
        let is_on = |descriptor: &Descriptor| match *descriptor {
            Descriptor::Open { file, .. } => self.fds.get(file).node == Some(id),
            _ => false,
        };
        self.fds.of_space(space).iter().any(|(_, descriptor)| is_on(descriptor))
    }

    /// A call for a process that has chosen the number for what it opens.
    pub fn call_with(&mut self, call: &Call, chosen: Option<i32>) -> i64 {
        self.fds.chosen = chosen;
        let answer = self.call(call);
        self.fds.chosen = None;
        answer
    }

    /// What was opened is nothing of the transaction's: the kernel's descriptor of it, which the caller closes.
    /// One that can be written to counts as output: the writes will not be seen.
    pub fn take_kernels(&mut self, number: i32) -> Option<i32> {
        let Descriptor::Open { file, real, .. } = self.fds.descriptor(number) else { return None };
        let is_terminal = is_terminal(real);
        if self.fds.get(file).writes() && !is_terminal {
            let _ = self.write_outside(number, real);
        }
        let copy = kernel::copy_high(real).ok()?;
        let _ = self.fds.close_number(number);
        self.fds.get_mut(file).numbers.clear();
        self.fds.set(number, Descriptor::Untouched);
        Some(copy)
    }

    /// The program that a process is to run.
    ///
    /// # Errors
    /// As `execveat(2)`.
    pub fn program_of_member(&mut self, dir: i32, path: &[u8], flags: i32) -> Sys<Program> {
        use super::attrs::Object;
        if path.is_empty() && flags & libc::AT_EMPTY_PATH == 0 {
            return Err(Errno::NOENT);
        }
        let flags = flags & (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH);
        let id = match self.object(dir, path, flags)? {
            Object::Node(id) => id,
            Object::Live(found) => return Ok(Program::Stable(found)),
            Object::Fd(_) => return Ok(Program::AsGiven),
        };
        self.may(id, perm::mask::X)?;
        if self.tree.nodes[id].kind() != FileKind::File {
            return Err(Errno::ACCESS);
        }
        let node = &self.tree.nodes[id];
        if let (Data::Stable, Some(stable), 0) = (&node.data, &node.stable, node.changed) {
            let stable = stable.path.clone();
            self.touch_data(id)?;
            // By itself where its path is closed for the process.
            if kernel::is_worn() && matches!(kernel::look(&stable), Err(Errno::ACCESS)) {
                match self.open_beyond(id, libc::O_RDONLY | libc::O_CLOEXEC) {
                    // It can be run and not read: the process finds that out.
                    Err(Errno::ACCESS) => {}
                    fd => return fd.map(Program::Copy),
                }
            }
            return Ok(Program::Stable(stable));
        }
        if kernel::is_worn() {
            // The descriptor can be read.
            self.may(id, perm::mask::R)?;
        }
        self.copy_up(id, false)?;
        let fd = self.tree.open_backing(id, libc::O_RDONLY)?;
        kernel::as_owner(|| self.tree.write_attributes(id, &kernel::magic_path(fd)));
        Ok(Program::Copy(fd))
    }

    /// Something is done that is not part of the transaction.
    ///
    /// # Errors
    /// It may not be: the transaction is doomed.
    pub fn done_live(&mut self, number: i64, what: &'static str) -> Sys<()> {
        self.report.calling = number;
        if self.doom.is_some() {
            return Err(acquire::DOOMED);
        }
        self.unsupported_call(what, b"")
    }

    /// A process writes to something from before the transaction that is not the transaction's.
    ///
    /// # Errors
    /// It may not: the transaction is doomed.
    pub fn output(&mut self, number: i64, kind: u32) -> Sys<()> {
        self.report.calling = number;
        if self.doom.is_some() {
            return Err(acquire::DOOMED);
        }
        self.output_of_kind(FileKind::from_mode(kind))
    }

    /// It can't go on: why.
    pub fn cannot_go_on(&mut self, why: Failure) {
        self.doom(why);
    }
}
