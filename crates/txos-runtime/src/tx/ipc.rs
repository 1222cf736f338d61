//! System V and POSIX IPC: what is sent and removed is held, what is made and taken is given back by an abort.
//!
//! | what the transaction does | what happens |
//! |---|---|
//! | makes a segment, a set of semaphores or a queue | it is there at once, for others as well; an abort removes it |
//! | sends a message, adds to semaphores, sets them, removes an object or changes its owner or mode | held until the commit ([`super::deferred`]) |
//! | the same with an object that it has made itself | done at once: it goes with the object |
//! | takes from semaphores | at once; an abort adds it again |
//! | takes a message | passed on, with a warning: nothing puts it back where it was |
//!
//! A transaction that adds and then takes the same, as a lock is let go of and taken again, has it still: nothing is done. If it
//! is about to wait, what is held of this goes out before, as output does ([`Tx::release`]).
#![allow(unsafe_code)] // calls in other forms than the program's

use super::deferred::{Deferred, Place};
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::{Tx, say};
use crate::call::Call;

const PRIVATE: i32 = libc::IPC_PRIVATE;
const SYS_ADMIN: u64 = 1 << 21;
const IPC_LOCK: u64 = 1 << 14;
const IPC_OWNER: u64 = 1 << 15;
/// A `struct sembuf`: which semaphore, how much, how.
type Operation = [i16; 3];
/// How many operations a call can have: `SEMOPM`.
const OPERATIONS_MAX: u64 = 500;
/// What goes out before a wait, in words.
const SENT: &str =
    "System V or POSIX IPC that was held, before the transaction waits or uses what it is of,";

/// A kind of System V object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Memory,
    Semaphores,
    Queue,
}

impl Kind {
    /// Its call that controls objects, and which argument of that is the command and which the pointer.
    const fn control(self) -> (i64, usize, usize) {
        match self {
            Kind::Memory => (libc::SYS_shmctl, 1, 2),
            Kind::Semaphores => (libc::SYS_semctl, 2, 3),
            Kind::Queue => (libc::SYS_msgctl, 1, 2),
        }
    }

    /// Controls an object.
    ///
    /// # Safety
    /// `pointer` leads to what the command reads or writes.
    unsafe fn make(self, id: i32, command: i32, pointer: u64) -> Sys<u64> {
        let (number, at, to) = self.control();
        let mut words = [id as u64, 0, 0, 0, 0, 0];
        words[at] = command as u64;
        words[to] = pointer;
        // SAFETY: the caller says so.
        unsafe { Call::new(number, words) }.answer()
    }

    /// What the kernel keeps of an object: `struct shmid_ds` and its relatives.
    fn look(self, id: i32) -> Sys<[u32; 32]> {
        let mut all = [0_u32; 32];
        // SAFETY: there is room for the largest of them.
        unsafe { self.make(id, libc::IPC_STAT, all.as_mut_ptr() as u64) }?;
        Ok(all)
    }

    fn remove(self, id: i32) -> Sys<u64> {
        // SAFETY: nothing is read or written.
        unsafe { self.make(id, libc::IPC_RMID, 0) }
    }
}

/// A descriptor of the kernel's, with device and inode of its queue. There is no duplicate: when a process closes one, the kernel ends
/// its notice.
type Descriptor = (i32, (u64, u64));

/// What an abort takes back.
#[derive(Debug)]
enum Back {
    /// An object is removed.
    Object(Kind, i32),
    /// A queue's name is.
    Queue(Vec<u8>, (u64, u64)),
    /// A set of semaphores gets this again.
    Operations(i32, Vec<Operation>),
    /// A queue's descriptor has these attributes again.
    Attributes(Descriptor, [i64; 8]),
    /// A queue tells this process nothing any more.
    Notice(Descriptor),
}

/// What is to be taken back by an abort, and what seems to be gone.
#[derive(Debug, Default)]
pub struct Ipc {
    back: Vec<Back>,
    /// Sets and queues whose removal is held.
    gone: Vec<(Kind, i32)>,
    /// The same of queues with names.
    gone_names: Vec<Vec<u8>>,
}

impl Ipc {
    /// Nothing.
    pub const NONE: Ipc = Ipc { back: Vec::new(), gone: Vec::new(), gone_names: Vec::new() };

    fn has_made(&self, kind: Kind, id: i32) -> bool {
        self.back.iter().any(|back| matches!(back, Back::Object(k, i) if (*k, *i) == (kind, id)))
    }

    fn is_gone(&self, kind: Kind, id: i32) -> bool {
        self.gone.contains(&(kind, id))
    }

    /// The queue of a descriptor was made in the transaction.
    fn has_made_queue(&self, real: i32) -> bool {
        let Some(own) = identity(real) else { return false };
        self.back.iter().any(|back| matches!(back, Back::Queue(_, id) if *id == own))
    }

    /// The transaction is aborted.
    pub fn take_back(&mut self) {
        for back in std::mem::take(&mut self.back).into_iter().rev() {
            let done = match &back {
                Back::Object(kind, id) => kind.remove(*id),
                Back::Queue(name, _) => unlink(name),
                Back::Operations(id, operations) => operate(*id, operations),
                Back::Attributes((fd, own), _) | Back::Notice((fd, own))
                    if identity(*fd) != Some(*own) =>
                {
                    Ok(0) // It was closed, and the notice ended with that.
                }
                // SAFETY: the attributes are there.
                Back::Attributes((fd, _), attributes) => unsafe {
                    let words = [*fd as u64, attributes.as_ptr() as u64, 0, 0, 0, 0];
                    Call::new(libc::SYS_mq_getsetattr, words).answer()
                },
                // SAFETY: it has no pointer.
                Back::Notice((fd, _)) => unsafe {
                    Call::new(libc::SYS_mq_notify, [*fd as u64, 0, 0, 0, 0, 0]).answer()
                },
            };
            let is_gone = |errno| matches!(errno, Errno::INVAL | Errno::IDRM | Errno::NOENT);
            if let Err(errno) = done
                && !is_gone(errno)
            {
                let what = match back {
                    Back::Object(..) => "an IPC object that the transaction has made",
                    Back::Queue(..) => "a message queue that the transaction has made",
                    Back::Operations(..) => "what the transaction has taken from semaphores",
                    Back::Attributes(..) => "the attributes of a message queue",
                    Back::Notice(_) => "a notice of a message queue",
                };
                let why = std::io::Error::from(errno);
                say(&format!("{what} could not be taken back: {why}"));
            }
        }
    }
}

fn unlink(name: &[u8]) -> Sys<u64> {
    let name = [name, b"\0"].concat();
    // SAFETY: the name ends with its zero.
    unsafe { Call::new(libc::SYS_mq_unlink, [name.as_ptr() as u64, 0, 0, 0, 0, 0]) }.answer()
}

/// Operates on semaphores, without waiting.
fn operate(id: i32, operations: &[Operation]) -> Sys<u64> {
    let at_once = |&[which, adds, how]: &Operation| [which, adds, how | libc::IPC_NOWAIT as i16];
    let operations: Vec<Operation> = operations.iter().map(at_once).collect();
    let words = [id as u64, operations.as_ptr() as u64, operations.len() as u64, 0, 0, 0];
    // SAFETY: there are so many operations.
    unsafe { Call::new(libc::SYS_semop, words) }.answer()
}

/// Device and inode of an open queue.
fn identity(real: i32) -> Option<(u64, u64)> {
    let stat = kernel::look_fd(real).ok()?;
    Some((stat.id.dev, stat.id.ino))
}

fn bytes_of(operations: &[Operation]) -> Vec<u8> {
    operations.iter().flatten().flat_map(|half| half.to_ne_bytes()).collect()
}

/// Whether the caller may remove or change an object: it is its owner or maker.
fn may_control(object: &[u32; 32]) -> Sys<()> {
    let user = kernel::geteuid();
    let is_its = object[1] == user || object[3] == user;
    if is_its || kernel::capabilities() & SYS_ADMIN != 0 { Ok(()) } else { Err(Errno::PERM) }
}

/// Whether the caller may write to an object: as `ipcperms` of the kernel.
fn may_write(object: &[u32; 32]) -> Sys<()> {
    const WRITE: u32 = 2;
    let [_, user, group, maker, makers_group, mode] = [0, 1, 2, 3, 4, 5].map(|at| object[at]);
    let own = kernel::geteuid();
    let in_group = |group| kernel::getegid() == group || kernel::groups().contains(&group);
    let granted = if own == user || own == maker {
        mode >> 6
    } else if in_group(group) || in_group(makers_group) {
        mode >> 3
    } else {
        mode
    };
    let may = granted & WRITE != 0 || kernel::capabilities() & IPC_OWNER != 0;
    if may { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Whether a call is of IPC, and taken part in here.
#[must_use]
pub fn is_ipc(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_shmget
            | libc::SYS_shmctl
            | libc::SYS_semget
            | libc::SYS_semctl
            | libc::SYS_semop
            | libc::SYS_semtimedop
            | libc::SYS_msgget
            | libc::SYS_msgctl
            | libc::SYS_msgsnd
            | libc::SYS_mq_open
            | libc::SYS_mq_unlink
            | libc::SYS_mq_timedsend
            | libc::SYS_mq_notify
            | libc::SYS_mq_getsetattr
    )
}

impl Tx {
    /// A call of System V or POSIX IPC.
    ///
    /// # Errors
    /// As natively; EAGAIN or ENOMEM if no more can be held.
    pub fn ipc(&mut self, call: &Call) -> Sys<u64> {
        match call.number() {
            libc::SYS_shmget => self.get(call, Kind::Memory, 2),
            libc::SYS_semget => self.get(call, Kind::Semaphores, 2),
            libc::SYS_msgget => self.get(call, Kind::Queue, 1),
            libc::SYS_shmctl => self.control(call, Kind::Memory),
            libc::SYS_semctl => self.control(call, Kind::Semaphores),
            libc::SYS_msgctl => self.control(call, Kind::Queue),
            libc::SYS_semop | libc::SYS_semtimedop => self.operate(call),
            libc::SYS_msgsnd => self.send_to_id(call),
            libc::SYS_mq_open => self.open_queue(call),
            libc::SYS_mq_unlink => self.unlink_queue(call),
            libc::SYS_mq_timedsend => self.send_to_queue(call),
            libc::SYS_mq_notify => self.notify(call),
            _ => self.queue_attributes(call),
        }
    }

    /// What is held of IPC can't be held any longer, for the transaction waits, or uses what it is of: all of it is done, in
    /// order.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn release_ipc(&mut self) -> Sys<()> {
        if !self.held.holds_ipc() {
            return Ok(());
        }
        self.unsupported_call(SENT, b"")?;
        self.held.output.went_out = true;
        self.held.send_ipc().iter().for_each(|failure| say(failure));
        self.held.ipc_mut().gone.clear();
        self.held.ipc_mut().gone_names.clear();
        Ok(())
    }

    /// `shmget`, `semget`, `msgget`.
    fn get(&mut self, call: &Call, kind: Kind, at: usize) -> Sys<u64> {
        const MAKES: u64 = libc::IPC_CREAT as u64;
        const ONLY_NEW: u64 = libc::IPC_EXCL as u64;
        let (key, flags) = (call.int(0), call.word(at));
        if key == PRIVATE {
            let id = call.answer()?;
            self.held.ipc_mut().back.push(Back::Object(kind, id as i32));
            return Ok(id);
        }
        if !self.held.ipc().gone.is_empty() && self.is_key_gone(kind, key) {
            if flags & MAKES == 0 {
                return Err(Errno::NOENT);
            }
            self.release_ipc()?;
        }
        // SAFETY: flags are no pointer.
        let with = |flags: u64| unsafe { call.with_word(at, flags) }.answer();
        if flags & MAKES == 0 {
            return call.answer();
        }
        loop {
            match with(flags | ONLY_NEW) {
                Ok(id) => {
                    self.held.ipc_mut().back.push(Back::Object(kind, id as i32));
                    return Ok(id);
                }
                Err(Errno::EXIST) if flags & ONLY_NEW == 0 => {}
                Err(errno) => return Err(errno),
            }
            match with(flags & !MAKES) {
                // Somebody has removed it in between.
                Err(Errno::NOENT) => {}
                found => return found,
            }
        }
    }

    /// Whether the object with a key is one whose removal is held.
    fn is_key_gone(&self, kind: Kind, key: i32) -> bool {
        let gone = self.held.ipc().gone.iter().filter(|(of, _)| *of == kind);
        gone.copied()
            .any(|(_, id)| kind.look(id).is_ok_and(|object| object[0] == key.cast_unsigned()))
    }

    /// `shmctl`, `semctl`, `msgctl`.
    fn control(&mut self, call: &Call, kind: Kind) -> Sys<u64> {
        /// Of semaphores, and of memory.
        const SET_VALUE: i32 = 16;
        const SET_ALL: i32 = 17;
        const LOCK: i32 = 11;
        const UNLOCK: i32 = 12;
        let (_, at, pointer) = kind.control();
        let (id, command) = (call.int(0), call.int(at));
        let changes = matches!(
            (command, kind),
            (libc::IPC_RMID | libc::IPC_SET, _)
                | (SET_VALUE | SET_ALL, Kind::Semaphores)
                | (LOCK | UNLOCK, Kind::Memory)
        );
        if kind != Kind::Memory && self.held.ipc().is_gone(kind, id) {
            return Err(Errno::INVAL);
        }
        if !changes {
            return call.answer();
        }
        if self.held.ipc().has_made(kind, id) {
            let answer = call.answer()?;
            if command == libc::IPC_RMID {
                let is_it =
                    |back: &Back| matches!(back, Back::Object(k, i) if (*k, *i) == (kind, id));
                self.held.ipc_mut().back.retain(|back| !is_it(back));
            }
            return Ok(answer);
        }
        // Who may not look does not see whether more is allowed: the commit shows it.
        let object = match kind.look(id) {
            Err(Errno::ACCESS) => None,
            found => Some(found?),
        };
        let values = object.map_or(0, |object| u64::from(object[20]));
        let mut later = Deferred::of(call);
        match (command, object) {
            (SET_VALUE | SET_ALL, Some(object)) => may_write(&object)?,
            (LOCK | UNLOCK, Some(_)) if kernel::capabilities() & IPC_LOCK != 0 => {}
            (_, Some(object)) => may_control(&object)?,
            _ => {}
        }
        match command {
            libc::IPC_SET => {
                let size = match kind {
                    Kind::Memory => 112,
                    Kind::Semaphores => 104,
                    Kind::Queue => 120,
                };
                later = later.memory(pointer, call.buffer(pointer, size).read()?);
            }
            SET_VALUE => {
                let which = call.int(1);
                if object.is_some() && !(0..values as i64).contains(&i64::from(which)) {
                    return Err(Errno::INVAL);
                }
                if !(0..=32_767).contains(&call.int(3)) {
                    return Err(Errno::RANGE);
                }
            }
            SET_ALL => {
                if object.is_none() {
                    return Err(Errno::ACCESS);
                }
                let all = call.buffer(pointer, values * 2).read()?;
                if all.chunks_exact(2).any(|value| i16::from_ne_bytes([value[0], value[1]]) < 0) {
                    return Err(Errno::RANGE);
                }
                later = later.memory(pointer, all);
            }
            _ => {}
        }
        self.hold_deferred(later, 0)?;
        if command == libc::IPC_RMID {
            self.held.ipc_mut().gone.push((kind, id));
        }
        Ok(0)
    }

    /// `semop`, `semtimedop`: what is added is held, what is taken is given back by an abort.
    fn operate(&mut self, call: &Call) -> Sys<u64> {
        let (id, count) = (call.int(0), call.word(2));
        if self.held.ipc().is_gone(Kind::Semaphores, id) {
            return Err(Errno::INVAL);
        }
        if id < 0 || count == 0 || count > OPERATIONS_MAX {
            return call.answer();
        }
        let pointer = call.pointer::<Operation>(1);
        let operations = (0..count).map(|i| pointer.item(i).read()).collect::<Sys<Vec<_>>>()?;
        if self.held.ipc().has_made(Kind::Semaphores, id) {
            return self.take(call, id, &operations).map(|()| 0);
        }
        let object = match Kind::Semaphores.look(id) {
            Err(Errno::ACCESS) => None,
            found => Some(found?),
        };
        let adds = |operation: &&Operation| operation[1] > 0;
        let added: Vec<Operation> = operations.iter().filter(adds).copied().collect();
        let others: Vec<Operation> = operations.iter().filter(|one| !adds(one)).copied().collect();
        if let Some(object) = object {
            let values = object[20];
            if operations.iter().any(|one| u32::from(one[0].cast_unsigned()) >= values) {
                return Err(Errno::FBIG);
            }
            if operations.iter().any(|one| one[1] != 0) {
                may_write(&object)?;
            }
        }
        // What has been set since is not there yet.
        if self.held.sets_semaphores(id) {
            self.release_ipc()?;
        }
        if !others.is_empty() {
            if let ([one], true) = (&*others, added.is_empty())
                && self.held.takes_again(id, *one)
            {
                return Ok(0);
            }
            if others.iter().any(|one| one[1] == 0) && self.held.adds_to_semaphores(id) {
                self.release_ipc()?; // It would wait for nothing to be there, and there is something.
            }
            self.take(call, id, &others)?;
            let back = others.iter().filter(|one| one[1] < 0);
            let back: Vec<Operation> =
                back.map(|&[which, n, how]| [which, n.saturating_neg(), how]).collect();
            if !back.is_empty() {
                self.held.ipc_mut().back.push(Back::Operations(id, back));
            }
        }
        if added.is_empty() {
            return Ok(0);
        }
        let words = [id as u64, 0, added.len() as u64, 0, 0, 0];
        // SAFETY: its pointer is replaced before it is made.
        let later = Deferred::of(&unsafe { Call::new(libc::SYS_semop, words) });
        self.hold_deferred(later.memory(1, bytes_of(&added)), 0)
    }

    /// Operates on semaphores at once. Before it waits, what is held goes out.
    fn take(&mut self, call: &Call, id: i32, operations: &[Operation]) -> Sys<()> {
        let now = operate(id, operations);
        let waits = operations.iter().all(|one| i32::from(one[2]) & libc::IPC_NOWAIT == 0);
        if now == Err(Errno::AGAIN) && waits {
            self.release()?;
            let mut words = *call.words();
            (words[1], words[2]) = (operations.as_ptr() as u64, operations.len() as u64);
            // SAFETY: there are so many operations; the time is the program's.
            unsafe { Call::new(call.number(), words) }.answer_waiting()?;
        } else {
            now?;
        }
        Ok(())
    }

    fn send_to_id(&mut self, call: &Call) -> Sys<u64> {
        let (id, len) = (call.int(0), call.word(2));
        if self.held.ipc().is_gone(Kind::Queue, id) {
            return Err(Errno::INVAL);
        }
        let mut limits = [0_i32; 16];
        let pointer = limits.as_mut_ptr() as u64;
        // SAFETY: there is room for a `struct msginfo`.
        unsafe { Kind::Queue.make(0, libc::IPC_INFO, pointer) }?;
        if id < 0 || i64::try_from(len).map_or(true, |len| len > i64::from(limits[2])) {
            return Err(Errno::INVAL);
        }
        if self.held.ipc().has_made(Kind::Queue, id) {
            return call.answer_waiting();
        }
        let message = call.buffer(1, 8 + len).read()?;
        if message.first_chunk().is_none_or(|kind| i64::from_ne_bytes(*kind) < 1) {
            return Err(Errno::INVAL);
        }
        match Kind::Queue.look(id) {
            Err(Errno::ACCESS) => {}
            found => may_write(&found?)?,
        }
        let later = Deferred::of(call).memory(1, message).flag(3, libc::IPC_NOWAIT as u64);
        self.hold_deferred(later.waiting(), 0)
    }

    fn open_queue(&mut self, call: &Call) -> Sys<u64> {
        const MAKES: u64 = libc::O_CREAT as u64;
        const ONLY_NEW: u64 = libc::O_EXCL as u64;
        let flags = call.word(1);
        let name = call.pointer::<u8>(0).text(256, Errno::NAMETOOLONG)?;
        if self.held.ipc().gone_names.contains(&name) {
            if flags & MAKES == 0 {
                return Err(Errno::NOENT);
            }
            self.release_ipc()?;
        }
        if flags & MAKES == 0 {
            return self.new_descriptor(call);
        }
        let mode = call.word(2) & !u64::from(self.umask());
        loop {
            // SAFETY: flags and mode are no pointers.
            let new = unsafe { call.with_word(1, flags | ONLY_NEW).with_word(2, mode) };
            match self.new_descriptor(&new) {
                Ok(number) => {
                    let real = self.real_without_offset(number as i32)?;
                    let own = identity(real).unwrap_or_default();
                    self.held.ipc_mut().back.push(Back::Queue(name, own));
                    return Ok(number);
                }
                Err(Errno::EXIST) if flags & ONLY_NEW == 0 => {}
                Err(errno) => return Err(errno),
            }
            // SAFETY: flags are no pointer.
            let found = unsafe { call.with_word(1, flags & !MAKES) };
            match self.new_descriptor(&found) {
                Err(Errno::NOENT) => {}
                found => return found,
            }
        }
    }

    fn unlink_queue(&mut self, call: &Call) -> Sys<u64> {
        let name = call.pointer::<u8>(0).text(256, Errno::NAMETOOLONG)?;
        if self.held.ipc().gone_names.contains(&name) {
            return Err(Errno::NOENT);
        }
        let is_it = |back: &Back| matches!(back, Back::Queue(made, _) if *made == name);
        if self.held.ipc().back.iter().any(is_it) {
            let answer = call.answer()?;
            self.held.ipc_mut().back.retain(|back| !is_it(back));
            return Ok(answer);
        }
        // Whether there is one: no descriptor is opened, whose closing would end a notice.
        const NO_SUCH_MODE: u64 = 3;
        let text = [&*name, b"\0"].concat();
        let words = [text.as_ptr() as u64, NO_SUCH_MODE, 0, 0, 0, 0];
        // SAFETY: the name ends with its zero, and nothing is opened.
        match unsafe { Call::new(libc::SYS_mq_open, words) }.answer() {
            Ok(_) | Err(Errno::INVAL | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
        self.hold_deferred(Deferred::of(call).text(0, name.clone()), 0)?;
        self.held.ipc_mut().gone_names.push(name);
        Ok(0)
    }

    /// The kernel's descriptor of a queue, and its attributes: flags, how many messages, how long one may be.
    fn queue(&mut self, number: i32) -> Sys<(i32, [i64; 8])> {
        let real = self.real_without_offset(number)?;
        let mut attributes = [0_i64; 8];
        let words = [real as u64, 0, attributes.as_mut_ptr() as u64, 0, 0, 0];
        // SAFETY: there is room for a `struct mq_attr`.
        unsafe { Call::new(libc::SYS_mq_getsetattr, words) }.answer()?;
        Ok((real, attributes))
    }

    fn send_to_queue(&mut self, call: &Call) -> Sys<u64> {
        const PRIORITIES: u64 = 32_768;
        let (len, priority) = (call.word(2), u64::from(call.uint(3)));
        let (real, attributes) = self.queue(call.int(0))?;
        if priority >= PRIORITIES {
            return Err(Errno::INVAL);
        }
        if kernel::status_flags(real)? & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(Errno::BADF);
        }
        if i64::try_from(len).map_or(true, |len| len > attributes[2]) {
            return Err(Errno::MSGSIZE);
        }
        if self.held.ipc().has_made_queue(real) {
            return call.with_descriptor(0, real).answer_waiting();
        }
        if call.word(4) != 0 {
            let [seconds, rest] = call.pointer::<[i64; 2]>(4).read()?;
            if seconds < 0 || !(0..1_000_000_000).contains(&rest) {
                return Err(Errno::INVAL);
            }
        }
        let message = call.buffer(1, len).read()?;
        let place = Place::Open(OwnedFd::of(kernel::copy_high(real)?));
        // A time that is over: it does not wait.
        let later = Deferred::of(call).memory(1, message).memory(4, vec![0; 16]).place(0, place);
        self.hold_deferred(later.waiting(), 0)
    }

    fn notify(&mut self, call: &Call) -> Sys<u64> {
        let (real, _) = self.queue(call.int(0))?;
        let own = identity(real);
        let is_it = |back: &Back| matches!(back, Back::Notice((_, of)) if Some(*of) == own);
        let natively = call.with_descriptor(0, real);
        if call.word(1) != 0 {
            let mut answer = natively.answer();
            if answer == Err(Errno::BUSY) && self.held.holds_ipc() {
                self.release_ipc()?;
                answer = natively.answer();
            }
            let answer = answer?;
            self.held.ipc_mut().back.push(Back::Notice((real, own.unwrap_or_default())));
            return Ok(answer);
        }
        if self.held.ipc().back.iter().any(is_it) {
            let answer = natively.answer()?;
            self.held.ipc_mut().back.retain(|back| !is_it(back));
            return Ok(answer);
        }
        let place = Place::Open(OwnedFd::of(kernel::copy_high(real)?));
        self.hold_deferred(Deferred::of(call).place(0, place), 0)
    }

    /// `mq_getsetattr`.
    fn queue_attributes(&mut self, call: &Call) -> Sys<u64> {
        let (real, before) = self.queue(call.int(0))?;
        let answer = call.with_descriptor(0, real).answer()?;
        if call.word(1) != 0 {
            let own = identity(real).unwrap_or_default();
            self.held.ipc_mut().back.push(Back::Attributes((real, own), before));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_s_mode_says_who_may_write() {
        let own = kernel::geteuid();
        let group = kernel::getegid();
        let object = |user: u32, group: u32, mode: u32| {
            let mut all = [0; 32];
            (all[1], all[2], all[3], all[4], all[5]) = (user, group, user, group, mode);
            all
        };
        assert_eq!(may_write(&object(own, 0, 0o200)), Ok(()));
        assert_eq!(may_write(&object(own + 1, group, 0o020)), Ok(()));
        assert_eq!(may_write(&object(own + 1, group + 1, 0o002)), Ok(()));
        assert_eq!(may_control(&object(own, 0, 0)), Ok(()));
        if kernel::capabilities() & IPC_OWNER == 0 {
            assert_eq!(may_write(&object(own, 0, 0o022)), Err(Errno::ACCESS));
            assert_eq!(may_control(&object(own + 1, 0, 0o777)), Err(Errno::PERM));
        }
    }
}
