//! What happens to others if and when the transaction commits: signals to processes outside, output ([`super::effects`]), what
//! is received ([`super::received`]), and calls that change the machine ([`super::deferred`]).
//!
//! Whether there is the process, and whether the caller may signal it, the kernel is asked at once, so that
//! the call fails as it does natively. The process is held by a descriptor until then: another that gets its
//! number later is not hit. After the commit the signals are sent in the order of the calls, each with the credentials
//! that the thread had in its call: what it was not allowed to signal then it does not signal now. One that can't be
//! sent does not undo the commit; it is reported.
//!
//! A process of a transaction of several asks the kernel itself, as who it is, and has the signal held by whoever has the
//! transaction ([`Tx::hold_sent`]). After the commit it is sent with that process's rights, if need be by a process that is
//! made for it ([`kernel::in_other_process`]).
//!
//! # In order
//!
//! An ordered transaction (`TX_ORDERED`) lets its successor commit before it has sent what it held. So that the successor
//! does not send first, each has a place in the file of the realm: a byte by the process group and the sequence number, which
//! is locked before the commit and let go of when all is sent. Whoever sends waits first until no byte of its group before
//! its own is locked. Only those that hold something have a place, so nobody else waits. The kernel lets go of the places of a
//! process that ends. Nobody waits for a place behind its own, so not all can wait.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;

use txos_engine::object::FileKind;

use super::deferred::{Deferred, MachineNames, Outsider};
use super::effects::{Effects, LOOKS_MAX, SLEEP};
use super::ipc::{self, Ipc};
use super::kernel::{self, Credentials, Errno, Info, OwnedFd, Sys};
use super::put_back::PutBack;
use super::received::Received;
use super::{Failure, Tx, reason, say};
use crate::call::Call;

/// How many signals and calls a transaction holds. Each process that signals go to takes a descriptor.
pub const MOST: usize = 4096;

/// The kernel undoes an operation when the process ends.
const SEM_UNDO: i16 = 0x1000;

/// What waits for the commit.
#[derive(Debug, Default)]
pub struct Held {
    /// Signals, and calls that change the machine.
    later: Vec<Later>,
    /// What few transactions have.
    rare: Option<Box<Rare>>,
    /// How many calls of IPC are held.
    of_ipc: usize,
    /// How many calls that write to the memory of others.
    of_memory: usize,
    /// Output to the outside.
    pub output: Effects,
    /// What was received from it.
    pub input: Received,
    /// Who has sent it, by numbers, where that is not the thread as it is.
    senders: Vec<(u32, Sender)>,
    /// The processes that they go to.
    processes: Vec<(i32, Arc<OwnedFd>)>,
    /// Its place among ordered ones.
    place: Option<Place>,
    /// What was sent to children before the commit, and how often.
    sent: Vec<(String, u32)>,
    /// How many looks for a child have found none, in a row, and when the first of them was.
    looked: (u32, Option<Instant>),
    /// Senders for whom a process that was made did not do what it was to.
    stopped: Vec<u32>,
}

/// Whose rights are needed for what is held.
#[derive(Clone, Debug)]
enum Sender {
    /// The thread's own, with the credentials that it had then.
    Thread(Credentials),
    /// Another process's.
    Process(Credentials),
}

#[derive(Debug, Default)]
struct Rare {
    /// Names of the machine that the transaction sees already.
    names: MachineNames,
    /// What an abort takes back of IPC.
    ipc: Ipc,
    /// What it puts back.
    put_back: PutBack,
    /// The processes that calls concern.
    outsiders: Vec<Arc<Outsider>>,
}

/// A place among the transactions of a process group: bytes of a file.
#[derive(Debug)]
struct Place {
    file: OwnedFd,
    /// The place of number 0.
    first: u64,
    /// That of this one.
    own: u64,
}

impl Place {
    /// Takes a place.
    fn take(file: OwnedFd, group: i32, sequence: u64) -> Sys<Place> {
        /// So many bits of a sequence number count. The kernel's offsets have 63, the numbers of processes 22.
        const BITS: u32 = 40;
        let first = u64::from(group.cast_unsigned()) << BITS;
        let own = first + (sequence & ((1 << BITS) - 1));
        kernel::lock_bytes(file.number(), libc::F_WRLCK, own, 1)?;
        Ok(Place { file, first, own })
    }

    /// Waits until all those before have let go of theirs.
    fn wait(&self) -> Sys<()> {
        let before = self.own - self.first;
        if before == 0 {
            return Ok(());
        }
        kernel::lock_bytes(self.file.number(), libc::F_RDLCK, self.first, before)?;
        kernel::lock_bytes(self.file.number(), libc::F_UNLCK, self.first, before)
    }
}

/// One thing that is done after the commit.
#[derive(Debug)]
struct Later {
    /// So many were held before it.
    number: u64,
    /// The number of the credentials of the call.
    sender: u32,
    what: What,
}

#[derive(Debug)]
enum What {
    Signal(Signal),
    Call(Box<Deferred>),
}

/// One signal.
#[derive(Debug)]
struct Signal {
    signal: i32,
    to: Target,
    info: Option<Info>,
}

/// Where a signal goes.
#[derive(Debug)]
enum Target {
    /// A process.
    Process(i32, Arc<OwnedFd>),
    /// A thread of one, which is held by its own descriptor.
    Exactly(i32, OwnedFd, i32),
    /// A thread of one that is held: whichever has the number then.
    Thread(i32, Arc<OwnedFd>, i32),
    /// What a descriptor of the program's is of, with the flags of `pidfd_send_signal(2)`.
    Descriptor(OwnedFd, u32),
    /// A process group, with those that are in it.
    Group(i32, Vec<(i32, Arc<OwnedFd>)>),
    /// All that the caller may signal.
    All,
}

impl Target {
    /// Sends a signal.
    fn send(&self, signal: i32, info: Option<&Info>) -> Sys<u64> {
        match self {
            Target::Process(_, process) => kernel::send_signal(process, signal, info, 0),
            Target::Exactly(_, thread, _) => kernel::send_signal(thread, signal, info, 0),
            Target::Descriptor(process, flags) => {
                kernel::send_signal(process, signal, info, *flags)
            }
            Target::Thread(number, process, thread) => {
                if !kernel::is_there(process) {
                    return Err(Errno::SRCH);
                }
                match info {
                    Some(info) => kernel::queue_to_thread(*number, *thread, signal, info),
                    None => kernel::kill_thread(*number, *thread, signal),
                }
            }
            Target::Group(group, members) => {
                // As long as one of them has been there, no other group has got the number.
                let same = |(number, process): &(i32, Arc<OwnedFd>)| {
                    kernel::is_there(process) && kernel::group_of(*number) == Ok(*group)
                };
                match members.iter().any(same) {
                    true => kernel::kill(-group, signal),
                    false => Err(Errno::SRCH),
                }
            }
            Target::All => kernel::kill(-1, signal),
        }
    }

    /// Whether it goes to a child of this process.
    fn is_child(&self, own: i32) -> bool {
        let is_child = |number: i32| kernel::parent_of(number) == Some(own);
        match self {
            Target::Process(number, _)
            | Target::Exactly(number, ..)
            | Target::Thread(number, ..) => is_child(*number),
            // One that can't be told may be one.
            Target::Descriptor(process, _) => {
                kernel::process_of_descriptor(process.number()).is_none_or(is_child)
            }
            Target::Group(_, members) => members.iter().any(|&(number, _)| is_child(number)),
            Target::All => true,
        }
    }

    /// In words.
    fn name(&self) -> String {
        match self {
            Target::Process(number, _) => format!("process {number}"),
            Target::Exactly(number, _, thread) | Target::Thread(number, _, thread) => {
                format!("thread {thread} of process {number}")
            }
            Target::Descriptor(..) => "the process of a descriptor".into(),
            Target::Group(group, _) => format!("process group {group}"),
            Target::All => "all processes".into(),
        }
    }
}

impl Held {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.later.is_empty() && !self.output.any()
    }

    /// Whether a signal is for all processes.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        let is_for_all =
            |one: &Later| matches!(&one.what, What::Signal(Signal { to: Target::All, .. }));
        self.later.iter().any(is_for_all)
    }

    /// A descriptor of a process, one for all of its signals.
    fn process(&mut self, number: i32) -> Sys<Arc<OwnedFd>> {
        // As long as it is there, the number is its own.
        self.processes.retain(|(known, fd)| *known != number || kernel::is_there(fd));
        if let Some((_, fd)) = self.processes.iter().find(|(known, _)| *known == number) {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(kernel::open_process(number)?);
        self.processes.push((number, Arc::clone(&fd)));
        Ok(fd)
    }

    /// A process that a call concerns, one for all such calls, with or without its memory.
    ///
    /// # Errors
    /// As `pidfd_open(2)`, and as `open(2)` of its memory; EAGAIN if no descriptor is left for it.
    pub fn outsider(&mut self, number: i32, with_memory: bool) -> Sys<Arc<Outsider>> {
        let found = self.find_outsider(number, with_memory);
        found.map_err(|errno| none_is_left(errno, "a call is for"))
    }

    fn find_outsider(&mut self, number: i32, with_memory: bool) -> Sys<Arc<Outsider>> {
        let process = self.process(number)?;
        let all = &mut self.rare.get_or_insert_default().outsiders;
        // One that runs another program since is held for the calls that were for that one.
        all.retain(|known| known.number() != number || known.is_the_same());
        let is_it =
            |known: &&Arc<Outsider>| known.number() == number && known.has_memory() == with_memory;
        if let Some(known) = all.iter().find(is_it) {
            return Ok(Arc::clone(known));
        }
        let new = Arc::new(Outsider::new(number, process, with_memory)?);
        all.push(Arc::clone(&new));
        Ok(new)
    }

    /// Sends all signals and all output, in the order of the calls: why any of it could not be sent.
    pub fn send(&mut self) -> Vec<String> {
        let place = self.place.take();
        let waited = place.as_ref().map_or(Ok(()), Place::wait);
        let mut output = std::mem::take(&mut self.output);
        let mut failed = output.send(&mut |before| self.send_those(|one| one.number < before));
        failed.extend(self.send_those(|_| true));
        if let Err(errno) = waited {
            let why = std::io::Error::from(errno);
            failed.push(format!(
                "what was held until the commit may have been sent before what earlier ordered transactions held: {why}"
            ));
        }
        failed
    }

    fn send_those(&mut self, which: impl Fn(&Later) -> bool) -> Vec<String> {
        let (now, later) = std::mem::take(&mut self.later).into_iter().partition(which);
        self.later = later;
        self.of_memory = self.later.iter().filter(|one| one.writes_memory()).count();
        let now: Vec<Later> = now;
        now.into_iter().filter_map(|one| self.send_one(one)).collect()
    }

    /// Sends what is for children of this process, before the commit: why any of it could not be sent.
    fn send_to_children(&mut self, own: i32) -> Vec<String> {
        self.looked = (0, None);
        let (now, later) =
            std::mem::take(&mut self.later).into_iter().partition(|one| one.is_for_child(own));
        self.later = later;
        let mut failed = Vec::new();
        let now: Vec<Later> = now;
        for one in now {
            let words = one.what.words();
            match self.send_one(one) {
                Some(why) => failed.push(why),
                None => match self.sent.iter_mut().find(|(known, _)| *known == words) {
                    Some((_, times)) => *times = times.saturating_add(1),
                    None => self.sent.push((words, 1)),
                },
            }
        }
        self.of_memory = self.later.iter().filter(|one| one.writes_memory()).count();
        failed
    }

    /// What was sent to children before the commit, in words; empty if that is nothing.
    #[must_use]
    pub fn sent_to_children(&self) -> String {
        /// So many are named.
        const NAMED: usize = 8;
        let words = |(what, times): &(String, u32)| match times {
            1 => what.clone(),
            times => format!("{what} ({times} times)"),
        };
        let mut all: Vec<String> = self.sent.iter().take(NAMED).map(words).collect();
        if self.sent.len() > NAMED {
            all.push(format!("{} more", self.sent.len() - NAMED));
        }
        all.join(", ")
    }

    /// Why one could not be sent.
    fn send_one(&mut self, one: Later) -> Option<String> {
        let Held { senders, stopped, .. } = self;
        let sender = senders.iter().find(|(number, _)| *number == one.sender);
        let Some((_, sender)) = sender else { return one.what.send() };
        let lost =
            one.what.failed("the thread can't have the credentials again that it had in its call");
        let What::Signal(signal) = &one.what else {
            let (Sender::Thread(sender) | Sender::Process(sender)) = sender;
            return sender.during(|| one.what.send()).unwrap_or(Some(lost));
        };
        match sender {
            Sender::Thread(sender) => sender.during(|| signal.send()).unwrap_or(Some(lost)),
            Sender::Process(sender) => {
                // That user may stop each of them.
                let was_stopped = stopped.contains(&one.sender);
                let sent =
                    (!was_stopped).then(|| kernel::in_other_process(sender, || signal.sent()));
                let Some(Ok(sent)) = sent else {
                    stopped.push(one.sender);
                    return Some(signal.failed(
                        "the process that was to send it with the rights of its sender was stopped or killed",
                    ));
                };
                signal.told(sent)
            }
        }
    }

    /// The thread's credentials have this number from here on.
    pub fn sent_by(&mut self, number: u32, credentials: &Credentials) {
        if !self.senders.iter().any(|(known, _)| *known == number) {
            // Only those of what is held are needed, and the present ones.
            let later = &self.later;
            self.senders.retain(|(known, _)| later.iter().any(|one| one.sender == *known));
            self.is_sender(number, || Sender::Thread(credentials.clone()));
        }
    }

    /// What has this number is sent by this one.
    fn is_sender(&mut self, number: u32, sender: impl FnOnce() -> Sender) {
        if !self.senders.iter().any(|(known, _)| *known == number) {
            self.senders.push((number, sender()));
        }
    }

    fn hold(&mut self, sender: u32, signal: i32, to: Target, info: Option<Info>) -> Sys<u64> {
        self.keep(sender, What::Signal(Signal { signal, to, info }))
    }

    /// A call is made after the commit.
    ///
    /// # Errors
    /// EAGAIN if no more can be held.
    pub fn hold_call(&mut self, sender: u32, call: Deferred) -> Sys<u64> {
        let of_ipc = usize::from(ipc::is_ipc(call.number()));
        self.keep(sender, What::Call(Box::new(call)))?;
        self.of_ipc += of_ipc;
        self.of_memory += usize::from(self.later.last().is_some_and(Later::writes_memory));
        Ok(0)
    }

    /// Whether calls that write to the memory of others are held.
    #[inline]
    #[must_use]
    pub fn holds_memory(&self) -> bool {
        self.of_memory > 0
    }

    /// Makes the calls that write to the memory of others: why any of them failed.
    pub fn send_memory(&mut self) -> Vec<String> {
        self.send_those(Later::writes_memory)
    }

    /// What an abort takes back of IPC.
    #[must_use]
    pub fn ipc(&self) -> &Ipc {
        static NONE: Ipc = Ipc::NONE;
        self.rare.as_ref().map_or(&NONE, |rare| &rare.ipc)
    }

    /// The same, to be changed.
    pub fn ipc_mut(&mut self) -> &mut Ipc {
        &mut self.rare.get_or_insert_default().ipc
    }

    /// What an abort puts back.
    pub fn put_back_mut(&mut self) -> &mut PutBack {
        &mut self.rare.get_or_insert_default().put_back
    }

    /// Signals that were read since this was last asked for.
    pub fn take_signals(&mut self) -> Vec<Info> {
        self.rare.as_mut().map_or(Vec::new(), |rare| rare.put_back.take_signals())
    }

    /// In a child that was copied from the process: what was set is the parent's to put back.
    pub fn forget_put_back(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.put_back = PutBack::default();
        }
    }

    /// The transaction is committed: what an abort would put back stays as it is.
    pub fn committed(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.put_back.committed();
        }
    }

    /// The transaction is aborted: what it has made and taken of IPC is taken back, what it has received is given back, what it has
    /// set is put back.
    pub fn take_back(&mut self) {
        self.input.give_back();
        if let Some(rare) = &mut self.rare {
            rare.put_back.put_back();
            rare.ipc.take_back();
        }
    }

    /// The machine's names in the transaction, if it has given it one.
    #[must_use]
    pub fn names(&self) -> Option<&MachineNames> {
        self.rare.as_ref().map(|rare| &rare.names)
    }

    /// The same, to be changed.
    pub fn names_mut(&mut self) -> &mut MachineNames {
        &mut self.rare.get_or_insert_default().names
    }

    /// Whether calls of IPC are held.
    #[inline]
    #[must_use]
    pub fn holds_ipc(&self) -> bool {
        self.of_ipc > 0
    }

    /// Makes the calls of IPC that are held: why any of them failed.
    pub fn send_ipc(&mut self) -> Vec<String> {
        self.of_ipc = 0;
        let is_ipc =
            |one: &Later| matches!(&one.what, What::Call(call) if ipc::is_ipc(call.number()));
        self.send_those(is_ipc)
    }

    /// The calls on a set of semaphores that are held, with their places.
    fn of_semaphores(&self, id: i32) -> impl Iterator<Item = (usize, &Deferred)> {
        self.later.iter().enumerate().filter_map(move |(place, one)| match &one.what {
            What::Call(call)
                if matches!(call.number(), libc::SYS_semop | libc::SYS_semctl)
                    && call.word(0) as i32 == id =>
            {
                Some((place, &**call))
            }
            _ => None,
        })
    }

    /// Whether something is to be added to a set of semaphores.
    #[must_use]
    pub fn adds_to_semaphores(&self, id: i32) -> bool {
        self.of_semaphores(id).any(|(_, call)| call.number() == libc::SYS_semop)
    }

    /// Whether a set of semaphores is to be set.
    #[must_use]
    pub fn sets_semaphores(&self, id: i32) -> bool {
        self.of_semaphores(id).any(|(_, call)| call.number() == libc::SYS_semctl)
    }

    /// If what an operation takes is what was last to be added: it is not added.
    pub fn takes_again(&mut self, id: i32, [which, takes, how]: [i16; 3]) -> bool {
        let undo = how & SEM_UNDO;
        let added = [which, takes.saturating_neg(), undo].map(i16::to_ne_bytes).concat();
        let last = self.of_semaphores(id).last();
        let Some((place, _)) = last.filter(|(_, call)| {
            let operation = call.copied(1).filter(|bytes| bytes.len() == added.len());
            // Whether it was to wait means nothing for what is added.
            operation.is_some_and(|bytes| {
                let how = i16::from_ne_bytes([bytes[4], bytes[5]]) & SEM_UNDO;
                bytes[..4] == added[..4] && how == undo
            })
        }) else {
            return false;
        };
        self.later.remove(place);
        self.of_ipc -= 1;
        true
    }

    fn keep(&mut self, sender: u32, what: What) -> Sys<u64> {
        if self.later.len() >= MOST {
            say(&format!(
                "a transaction holds no more than {MOST} signals and calls until its commit: the call fails with EAGAIN"
            ));
            return Err(Errno::AGAIN);
        }
        let number = self.output.signals;
        self.output.signals += 1;
        self.later.push(Later { number, sender, what });
        Ok(0)
    }

    /// The calls that are held.
    pub fn calls_mut(&mut self) -> impl Iterator<Item = &mut Deferred> {
        self.later.iter_mut().filter_map(|one| match &mut one.what {
            What::Call(call) => Some(&mut **call),
            What::Signal(_) => None,
        })
    }
}

impl Later {
    /// Whether it writes to the memory of another process.
    fn writes_memory(&self) -> bool {
        matches!(&self.what, What::Call(call) if call.number() == libc::SYS_process_vm_writev)
    }

    /// Whether it concerns a child of this process.
    fn is_for_child(&self, own: i32) -> bool {
        match &self.what {
            What::Signal(signal) => signal.to.is_child(own),
            What::Call(call) => call.is_for_child(own),
        }
    }
}

impl What {
    /// Why it could not be done.
    fn send(self) -> Option<String> {
        match self {
            What::Signal(signal) => signal.send(),
            What::Call(call) => call.send(),
        }
    }

    /// What it is.
    fn words(&self) -> String {
        match self {
            What::Signal(signal) => signal.words(),
            What::Call(call) => call.words(),
        }
    }

    fn failed(&self, why: &str) -> String {
        match self {
            What::Signal(signal) => signal.failed(why),
            What::Call(call) => call.refused(why),
        }
    }
}

impl Signal {
    fn sent(&self) -> Sys<u64> {
        self.to.send(self.signal, self.info.as_ref())
    }

    /// Why it could not be sent.
    fn send(&self) -> Option<String> {
        self.told(self.sent())
    }

    /// The same, in words.
    fn told(&self, sent: Sys<u64>) -> Option<String> {
        Some(match sent.err()? {
            Errno::SRCH => self.failed("it is there no more"),
            errno => self.failed(&std::io::Error::from(errno).to_string()),
        })
    }

    fn words(&self) -> String {
        format!("{} for {}", signal_name(self.signal), self.to.name())
    }

    fn failed(&self, why: &str) -> String {
        let (signal, to) = (signal_name(self.signal), self.to.name());
        format!("{signal} was held until the commit, and could not be sent to {to}: {why}")
    }
}

/// What is asked for by a call.
enum Asked {
    /// The kernel answers it at once: it only asks, is wrong, or is of the process itself.
    Natively,
    /// It is held.
    Later(i32, Target, Option<Info>),
    /// It can't be held: whom it is for is not known.
    Now,
}

impl Tx {
    /// Before the commit of an ordered transaction: its place among those that send something afterwards.
    ///
    /// # Errors
    /// It can't have one.
    pub fn take_place(&mut self) -> Result<(), Failure> {
        let Some(sequence) = self.how.sequence.filter(|_| !self.held.is_empty()) else {
            return Ok(());
        };
        let Some(realm) = super::shared::realm() else { return Ok(()) };
        let path = realm.path().as_os_str().as_bytes();
        let file = OwnedFd::open(path, libc::O_RDWR | libc::O_CLOEXEC);
        let group = self.process.group.unwrap_or(0);
        let place = file.and_then(|file| Place::take(file, group, sequence));
        self.held.place = Some(place.map_err(|errno| Failure {
            reason: reason::FAILED,
            errno: errno.raw_os_error(),
            what: format!(
                "what is held until the commit has no place in the order: {}: {}",
                realm.path().display(),
                std::io::Error::from(errno)
            ),
            ..Failure::default()
        })?);
        Ok(())
    }

    /// Whether signals wait for the commit.
    #[must_use]
    pub fn holds_signals(&self) -> bool {
        self.held.later.iter().any(|one| matches!(one.what, What::Signal(_)))
    }

    /// A call that sends a signal.
    ///
    /// # Errors
    /// As natively; EAGAIN if no more can be held.
    pub fn hold_signal(&mut self, call: &Call) -> Sys<u64> {
        let asked = match call.number() {
            libc::SYS_kill => kill(&mut self.held, call.int(0), call.int(1)),
            libc::SYS_tkill => tkill(&mut self.held, call.int(0), call.int(1)),
            libc::SYS_tgkill => {
                let (process, thread) = (call.int(0), call.int(1));
                to_thread(&mut self.held, (process, thread), call.int(2), None, || {
                    kernel::kill_thread(process, thread, 0)
                })
            }
            libc::SYS_rt_sigqueueinfo => queue(&mut self.held, call),
            libc::SYS_rt_tgsigqueueinfo => queue_to_thread(&mut self.held, call),
            libc::SYS_pidfd_send_signal => {
                let real = self.real_without_offset(call.int(0))?;
                let (info, flags) = (call.pointer::<Info>(2), call.uint(3));
                let info = if info.is_null() { None } else { Some(info.read()?) };
                match through(real, call.int(1), info, flags)? {
                    Asked::Natively => return call.with_descriptor(0, real).answer(),
                    later => Ok(later),
                }
            }
            _ => Ok(Asked::Natively),
        };
        let held = match asked {
            Ok(Asked::Natively) => {
                // Another thread's handler may answer by a pipe.
                if !kernel::has_one_thread() {
                    self.talks_by_any_way()?;
                }
                return call.answer();
            }
            Ok(Asked::Now) => {
                self.unsupported_call("a signal to a thread that /proc does not show", b"")?;
                return call.answer();
            }
            Ok(Asked::Later(signal, to, info)) => {
                self.held.hold(self.process.who, signal, to, info)
            }
            Err(errno) => Err(errno),
        };
        held.map_err(|errno| none_is_left(errno, "a signal is for"))
    }

    /// A signal that another process of the transaction sends to one outside.
    ///
    /// # Errors
    /// ESRCH: the process is there no more; EAGAIN if no more can be held.
    pub fn hold_sent(&mut self, by: (u32, Option<Credentials>), sent: Sent) -> Sys<u64> {
        let held = &mut self.held;
        let Sent { number, words, info, through } = sent;
        let int = |at: usize| words[at] as i32;
        let thread_of =
            |held: &mut Held, process: i32, thread: i32| match kernel::open_thread(thread) {
                Ok(fd) => Ok(Target::Exactly(process, fd, thread)),
                Err(Errno::SRCH) => Err(Errno::SRCH),
                Err(_) => Ok(Target::Thread(process, held.process(process)?, thread)),
            };
        let process_of = |held: &mut Held, number: i32| {
            let leader = kernel::process_of_thread(number).unwrap_or(number);
            Ok(Target::Process(leader, held.process(leader)?))
        };
        let to = match (number, int(0)) {
            (libc::SYS_kill, -1) => Ok(Target::All),
            (libc::SYS_kill, group_number @ ..-1) => Ok(group(held, -group_number)),
            (libc::SYS_kill | libc::SYS_rt_sigqueueinfo, process @ 1..) => {
                process_of(held, process)
            }
            (libc::SYS_tkill, thread @ 1..) => {
                let process = kernel::process_of_thread(thread).ok_or(Errno::SRCH);
                process.and_then(|process| thread_of(held, process, thread))
            }
            (libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo, process @ 1..) if int(1) > 0 => {
                thread_of(held, process, int(1))
            }
            (libc::SYS_pidfd_send_signal, _) => {
                let through = through.ok_or(Errno::BADF)?;
                through.raised().map(|fd| Target::Descriptor(fd, words[3] as u32))
            }
            _ => Err(Errno::INVAL),
        };
        let signal = int(signal_at(number));
        if !is_signal(signal) {
            return Err(Errno::INVAL);
        }
        let (sender, credentials) = by;
        let info = info.map(|info| numbered(info, signal));
        let done = to.and_then(|to| held.hold(sender, signal, to, info));
        if done.is_ok()
            && let Some(credentials) = credentials
        {
            held.is_sender(sender, || Sender::Process(credentials));
        }
        done.map_err(|errno| none_is_left(errno, "a signal is for"))
    }

    /// What is held for a member is sent as who began, whatever the thread has become since.
    pub fn sends_as_began(&mut self, began: &Credentials) {
        if self.process.who != 0 {
            self.held.is_sender(0, || Sender::Thread(began.clone()));
        }
    }

    /// The signals that are held, for who sends them later: the transaction holds them no more.
    #[must_use]
    pub fn take_signals_held(&mut self) -> Held {
        let held = &mut self.held;
        let signals = |one: &Later| matches!(one.what, What::Signal(_));
        let (later, rest) = std::mem::take(&mut held.later).into_iter().partition(signals);
        held.later = rest;
        Held { later, senders: std::mem::take(&mut held.senders), ..Held::default() }
    }

    /// Whether something is held by which a child might end.
    #[must_use]
    pub fn holds_for_children(&self) -> bool {
        let own = kernel::own_process();
        self.holds_signals()
            || self.fds.has_closed()
            || self.held.later.iter().any(|one| one.is_for_child(own))
    }

    /// The program is to wait for a child: what it has sent to its children can't be held any longer, the child may
    /// be ending by that; nor can ends of pipes and sockets be kept open that the program has closed, the child may
    /// be reading until their end.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn before_waiting_for_child(&mut self, call: &Call) -> Sys<()> {
        self.report.calling = call.number();
        self.close_ends("closing an end of a pipe before a child is waited for")?;
        let own = kernel::own_process();
        if !self.held.later.iter().any(|one| one.is_for_child(own)) {
            return Ok(());
        }
        self.unsupported_call("what is held for a child that the transaction waits for", b"")?;
        self.talks_by_any_way()?;
        for failure in self.held.send_to_children(own) {
            say(&failure);
        }
        // It would be sent again.
        self.held.output.went_out = true;
        Ok(())
    }

    /// Counts a look for a child that found none. Whether there were so many in a row, or for so long, that the program is taken
    /// to be waiting for one, whatever it does between them.
    pub fn looked_for_child(&mut self) -> bool {
        let (looks, since) = &mut self.held.looked;
        *looks += 1;
        *looks >= LOOKS_MAX || since.get_or_insert_with(Instant::now).elapsed() >= SLEEP
    }

    /// A look for a child has found one.
    pub fn found_child(&mut self) {
        self.held.output.found_something();
        self.held.looked = (0, None);
    }

    /// Closes the ends of pipes and sockets for good that the program has closed: somebody may be reading until then. An
    /// abort can't open them again. `what` this is, for the one warning.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn close_ends(&mut self, what: &'static str) -> Sys<()> {
        for number in self.fds.closed_numbers() {
            let kind = kernel::look_fd(number).map(|stat| stat.kind());
            if matches!(kind, Ok(FileKind::Fifo | FileKind::Socket)) {
                self.unsupported_call(what, b"")?;
                self.take_before_closing(number);
                self.fds.close_for_good(number);
                if self.fds.descriptor(number) != super::files::Descriptor::Untouched {
                    self.number_is_new(number);
                }
                // Begun again, the program would find the number closed.
                self.held.output.went_out = true;
            }
        }
        Ok(())
    }
}

/// The errno of a call, for whose process there may be no descriptor.
fn none_is_left(errno: Errno, what_for: &str) -> Errno {
    match errno {
        Errno::MFILE | Errno::NFILE => {
            say(&format!(
                "no descriptor is left to hold the process that {what_for}: the call fails with EAGAIN"
            ));
            Errno::AGAIN
        }
        errno => errno,
    }
}

fn is_signal(signal: i32) -> bool {
    (1..=64).contains(&signal)
}

/// Whether the caller may send a signal to a process, whose existence is asked for as well.
fn may_kill(process: i32, signal: i32) -> Sys<()> {
    match kernel::kill(process, 0) {
        // Within a session anybody may be continued.
        Err(Errno::PERM) if signal == libc::SIGCONT => {
            let is_of_session = |number| kernel::session_of(number) == kernel::session_of(0);
            let is_of_group =
                |number: &i32| kernel::group_of(*number) == Ok(process.wrapping_neg());
            let may = match process {
                1.. => is_of_session(process),
                _ => kernel::processes().into_iter().filter(is_of_group).any(is_of_session),
            };
            if may { Ok(()) } else { Err(Errno::PERM) }
        }
        answer => answer.map(drop),
    }
}

/// A signal of another process of the transaction.
#[derive(Debug)]
pub struct Sent {
    /// The call.
    pub number: i64,
    /// Its arguments.
    pub words: [u64; 6],
    /// What it says of the signal.
    pub info: Option<Info>,
    /// What its descriptor is of.
    pub through: Option<OwnedFd>,
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// A process, or a thread of one.
    Process(i32),
    /// A process group.
    Group(i32),
    /// All that the caller may signal.
    All,
    /// `/proc` does not say.
    Unknown,
}

/// Which argument is the signal.
fn signal_at(number: i64) -> usize {
    match number {
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => 2,
        _ => 1,
    }
}

/// Which argument says something of the signal, if one does.
#[must_use]
pub fn info_at(number: i64) -> Option<usize> {
    match number {
        libc::SYS_rt_sigqueueinfo | libc::SYS_pidfd_send_signal => Some(2),
        libc::SYS_rt_tgsigqueueinfo => Some(3),
        _ => None,
    }
}

/// Whom a call sends a signal to. `None`: to nobody, the kernel answers it.
///
/// # Errors
/// As `getpgid(2)`.
pub fn aim(call: &Call) -> Sys<Option<Aim>> {
    let leader = |number: i32| Aim::Process(kernel::process_of_thread(number).unwrap_or(number));
    if !is_signal(call.int(signal_at(call.number()))) {
        return Ok(None);
    }
    Ok(match (call.number(), call.int(0)) {
        (libc::SYS_kill, i32::MIN) => None,
        (libc::SYS_kill, -1) => Some(Aim::All),
        (libc::SYS_kill, 0) => Some(Aim::Group(kernel::group_of(0)?)),
        (libc::SYS_kill, group @ ..0) => Some(Aim::Group(-group)),
        (libc::SYS_kill | libc::SYS_rt_sigqueueinfo, number @ 1..) => Some(leader(number)),
        (libc::SYS_tkill, thread @ 1..) => {
            Some(kernel::process_of_thread(thread).map_or(Aim::Unknown, Aim::Process))
        }
        (libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo, process @ 1..) if call.int(1) > 0 => {
            Some(Aim::Process(process))
        }
        (libc::SYS_pidfd_send_signal, fd) => Some(match kernel::process_of_descriptor(fd) {
            Some(number) if call.uint(3) & PIDFD_SIGNAL_PROCESS_GROUP != 0 => Aim::Group(number),
            Some(number) => leader(number),
            None => process_of_directory(fd).map_or(Aim::Unknown, Aim::Process),
        }),
        _ => None,
    })
}

/// The process whose directory in `/proc` is open at a descriptor: that leads to it as well.
fn process_of_directory(fd: i32) -> Option<i32> {
    let path = kernel::path_of_fd(fd).ok()?;
    std::str::from_utf8(path.strip_prefix(b"/proc/")?).ok()?.parse().ok()
}

/// Whether the caller may send the signal that a call sends, and whom it is for is there: the kernel says.
///
/// # Errors
/// As the call.
pub fn may_send(call: &Call) -> Sys<()> {
    let (number, signal) = (call.number(), call.int(signal_at(call.number())));
    let info = |at: usize| call.pointer::<Info>(at).read();
    let (to, answer, may_continue) = match number {
        libc::SYS_kill => return may_kill(call.int(0), signal),
        libc::SYS_tkill => {
            let thread = call.int(0);
            let process = kernel::process_of_thread(thread);
            let answer = match process {
                Some(process) => kernel::kill_thread(process, thread, 0),
                None => kernel::kill(thread, 0),
            };
            (process.unwrap_or(thread), answer, true)
        }
        libc::SYS_tgkill => {
            let (process, thread) = (call.int(0), call.int(1));
            (process, kernel::kill_thread(process, thread, 0), true)
        }
        libc::SYS_rt_sigqueueinfo => {
            let info = info(2)?;
            (call.int(0), kernel::queue(call.int(0), 0, &info), code(&info) < 0)
        }
        libc::SYS_rt_tgsigqueueinfo => {
            let (process, thread, info) = (call.int(0), call.int(1), info(3)?);
            (process, kernel::queue_to_thread(process, thread, 0, &info), code(&info) < 0)
        }
        libc::SYS_pidfd_send_signal => {
            let given = if call.word(2) == 0 { None } else { Some(info(2)?) };
            is_well_formed(given, signal)?;
            let kept = OwnedFd::of(kernel::copy_high(call.int(0))?);
            let to = kernel::process_of_descriptor(kept.number()).unwrap_or(0);
            (to, kernel::send_signal(&kept, 0, None, call.uint(3)), to > 0)
        }
        _ => return Err(Errno::NOSYS),
    };
    match answer {
        Err(Errno::PERM) if signal == libc::SIGCONT && may_continue => may_kill(to, signal),
        answer => answer.map(drop),
    }
}

/// Whether the kernel takes what is said of a signal through a descriptor.
fn is_well_formed(info: Option<Info>, signal: i32) -> Sys<()> {
    // A directory of /proc leads to a process as well, and has no number: the kernel says whether it is one.
    if info.is_some_and(|info| info != numbered(info, signal)) {
        return Err(Errno::INVAL);
    }
    // Nobody may say of a signal that the kernel has sent it.
    if info.is_some_and(|info| code(&info) >= 0 || code(&info) == libc::SI_TKILL) {
        return Err(Errno::PERM);
    }
    Ok(())
}

/// The signal is for the group that the process leads (Linux 6.9).
const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 4;

/// Whether a call sends a signal.
pub fn sends_signal(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_kill
            | libc::SYS_tkill
            | libc::SYS_tgkill
            | libc::SYS_rt_sigqueueinfo
            | libc::SYS_rt_tgsigqueueinfo
            | libc::SYS_pidfd_send_signal
    )
}

/// Whether a call sends a signal to its own process only.
pub fn is_for_this_process(call: &Call) -> bool {
    let process = match call.number() {
        libc::SYS_kill
        | libc::SYS_tgkill
        | libc::SYS_rt_sigqueueinfo
        | libc::SYS_rt_tgsigqueueinfo => {
            let number = call.int(0);
            // It may be that of any of its threads.
            let leader = if number > 0 { kernel::process_of_thread(number) } else { None };
            Some(leader.unwrap_or(number))
        }
        libc::SYS_tkill => kernel::process_of_thread(call.int(0)),
        libc::SYS_pidfd_send_signal => kernel::process_of_signal(call.int(0), call.uint(3)),
        _ => None,
    };
    process == Some(kernel::own_process())
}

fn kill(held: &mut Held, process: i32, signal: i32) -> Sys<Asked> {
    // There is no group of the last number: the kernel says so.
    if !is_signal(signal) || process == kernel::own_process() || process == i32::MIN {
        return Ok(Asked::Natively);
    }
    may_kill(process, signal)?;
    let to = match process {
        -1 => Target::All,
        0 => group(held, kernel::group_of(0)?),
        ..0 => group(held, -process),
        _ => {
            // The number may be that of any of its threads.
            let leader = kernel::process_of_thread(process).unwrap_or(process);
            if leader == kernel::own_process() {
                return Ok(Asked::Natively);
            }
            Target::Process(leader, held.process(leader)?)
        }
    };
    Ok(Asked::Later(signal, to, None))
}

fn tkill(held: &mut Held, thread: i32, signal: i32) -> Sys<Asked> {
    if !is_signal(signal) || thread <= 0 {
        return Ok(Asked::Natively);
    }
    match kernel::process_of_thread(thread) {
        Some(process) => to_thread(held, (process, thread), signal, None, || {
            kernel::kill_thread(process, thread, 0)
        }),
        None if kernel::kill(thread, 0) == Err(Errno::SRCH) => Err(Errno::SRCH),
        None => Ok(Asked::Now),
    }
}

/// A group, with its members.
fn group(held: &mut Held, group: i32) -> Target {
    let members = kernel::processes().into_iter().filter(|&n| kernel::group_of(n) == Ok(group));
    let members = members.filter_map(|number| Some((number, held.process(number).ok()?)));
    // One that stays is enough; a descriptor for each of many would be too much.
    Target::Group(group, members.take(64).collect())
}

fn to_thread(
    held: &mut Held,
    (process, thread): (i32, i32),
    signal: i32,
    info: Option<Info>,
    ask: impl FnOnce() -> Sys<u64>,
) -> Sys<Asked> {
    if !is_signal(signal) || process <= 0 || thread <= 0 || process == kernel::own_process() {
        return Ok(Asked::Natively);
    }
    // Asked afterwards: what is held is what may be signalled.
    let exactly = kernel::open_thread(thread);
    match ask() {
        Err(Errno::PERM) if signal == libc::SIGCONT => may_kill(process, signal)?,
        answer => answer.map(drop)?,
    }
    let to = match exactly {
        Ok(fd) => Target::Exactly(process, fd, thread),
        Err(_) => Target::Thread(process, held.process(process)?, thread),
    };
    Ok(Asked::Later(signal, to, info))
}

fn queue(held: &mut Held, call: &Call) -> Sys<Asked> {
    let (process, signal) = (call.int(0), call.int(1));
    if !is_signal(signal) || process <= 0 || process == kernel::own_process() {
        return Ok(Asked::Natively);
    }
    let info = call.pointer::<Info>(2).read()?;
    match kernel::queue(process, 0, &info) {
        Err(Errno::PERM) if signal == libc::SIGCONT && code(&info) < 0 => {
            may_kill(process, signal)?;
        }
        answer => answer.map(drop)?,
    }
    let leader = kernel::process_of_thread(process).unwrap_or(process);
    if leader == kernel::own_process() {
        return Ok(Asked::Natively);
    }
    let to = Target::Process(leader, held.process(leader)?);
    Ok(Asked::Later(signal, to, Some(numbered(info, signal))))
}

fn queue_to_thread(held: &mut Held, call: &Call) -> Sys<Asked> {
    let (process, thread, signal) = (call.int(0), call.int(1), call.int(2));
    if !is_signal(signal) || process <= 0 || process == kernel::own_process() {
        return Ok(Asked::Natively);
    }
    let info = call.pointer::<Info>(3).read()?;
    let ask = || kernel::queue_to_thread(process, thread, 0, &info);
    to_thread(held, (process, thread), signal, Some(numbered(info, signal)), ask)
}

fn through(real: i32, signal: i32, info: Option<Info>, flags: u32) -> Sys<Asked> {
    let process = kernel::process_of_descriptor(real);
    let is_own = process == Some(kernel::own_process()) && flags & PIDFD_SIGNAL_PROCESS_GROUP == 0;
    if !is_signal(signal) || is_own {
        return Ok(Asked::Natively);
    }
    is_well_formed(info, signal)?;
    let kept = OwnedFd::of(kernel::copy_high(real)?);
    match kernel::send_signal(&kept, 0, None, flags) {
        Err(Errno::PERM) if signal == libc::SIGCONT => may_kill(process.unwrap_or(0), signal)?,
        answer => answer.map(drop)?,
    }
    Ok(Asked::Later(signal, Target::Descriptor(kept, flags), info))
}

/// With the signal's number in it, which the kernel wants to be right.
fn numbered(mut info: Info, signal: i32) -> Info {
    info[0] = info[0] & !0xffff_ffff | u64::from(signal.cast_unsigned());
    info
}

/// `si_code`.
fn code(info: &Info) -> i32 {
    info[1] as i32
}

/// The name of a signal.
fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let place = usize::try_from(signal - 1).unwrap_or(usize::MAX);
    NAMES.get(place).map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        let some = [libc::SIGHUP, libc::SIGTERM, libc::SIGSYS, 40].map(signal_name);
        assert_eq!(some, ["SIGHUP", "SIGTERM", "SIGSYS", "signal 40"]);
    }

    #[test]
    fn what_goes_to_the_process_itself_is_not_held() {
        let own = kernel::own_process();
        let mut held = Held::default();
        assert!(matches!(kill(&mut held, own, libc::SIGTERM), Ok(Asked::Natively)));
        assert!(matches!(kill(&mut held, 1, 0), Ok(Asked::Natively)));
        assert!(matches!(kill(&mut held, 1, 65), Ok(Asked::Natively)));
        assert_eq!(kill(&mut held, 0x3fff_ffff, libc::SIGTERM).err(), Some(Errno::SRCH));
        assert_eq!(tkill(&mut held, 0x3fff_ffff, libc::SIGTERM).err(), Some(Errno::SRCH));
    }

    #[test]
    fn a_process_that_has_ended_is_not_hit() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("sleep");
        let number = child.id() as i32;
        let mut held = Held::default();
        let Ok(Asked::Later(signal, to, info)) = kill(&mut held, number, libc::SIGTERM) else {
            panic!("not held")
        };
        assert_eq!(held.hold(0, signal, to, info), Ok(0));
        assert!(child.kill().is_ok() && child.wait().is_ok());
        let failed = held.send();
        assert_eq!(failed.len(), 1);
        let words = format!("could not be sent to process {number}: it is there no more");
        assert!(failed[0].starts_with("SIGTERM ") && failed[0].ends_with(&words), "{failed:?}");
        assert!(held.is_empty());
    }

    #[test]
    fn no_more_than_so_many_are_held() {
        let mut held = Held::default();
        for _ in 0..MOST {
            assert_eq!(held.hold(0, libc::SIGCONT, Target::Group(0, Vec::new()), None), Ok(0));
        }
        let one_more = held.hold(0, libc::SIGCONT, Target::Group(0, Vec::new()), None);
        assert_eq!(one_more, Err(Errno::AGAIN));
    }
}
