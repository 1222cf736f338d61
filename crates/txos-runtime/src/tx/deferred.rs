//! Calls that change the machine, and are held until the commit: its names and clocks, swap, accounting, quotas, modules,
//! its end. Calls on other processes' memory are held here as well; [`super::others`] says which.
//!
//! A call that is held is answered as if it was done. What the kernel would refuse at once is refused at once: whether the
//! caller may make it, the kernel is asked by the same call with arguments that it refuses after that. Memory that the call
//! leads to is copied, a descriptor is duplicated. A path is kept as the object that it leads to, and is the path that the
//! object has at the commit. After the commit the calls are made in order, with signals and output ([`super::held`]).
//!
//! | call | until the commit |
//! |---|---|
//! | `sethostname`, `setdomainname` | `uname` in the transaction answers the new name |
//! | `settimeofday`, `clock_settime` | the clock goes on as it was. After the commit it is set to the time that was asked for and what has passed since |
//! | `adjtimex`, `clock_adjtime` | the answer is the clock as it is |
//! | `syslog` that reads and clears | reads at once, clears after the commit |
//! | others | nothing of them is seen |
#![allow(unsafe_code)] // calls with copies of what the program's lead to

use std::sync::Arc;
use std::time::{Duration, Instant};

use txos_engine::object::FileKind;

use super::attrs::Object;
use super::content::Data;
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::Id;
use super::others::OfAnother;
use super::{Tx, effects, say};
use crate::call::Call;
use crate::user::UserSlice;

/// Longest name of a machine, without its zero: `__NEW_UTS_LEN`.
const NAME_MAX: i32 = 64;
/// Longest text that is copied for a call, bytes.
const TEXT_MAX: usize = 1 << 20;
/// `ADJ_TICK`, with a tick that no clock has.
const WRONG_TICK: [u64; 26] = {
    let mut words = [0; 26];
    words[0] = 0x4000;
    words[11] = 1;
    words
};
/// Capabilities, as bits.
const SYS_ADMIN: u64 = 1 << 21;
const SYS_TTY_CONFIG: u64 = 1 << 26;

/// How often a full queue is looked at again.
const LOOK: Duration = Duration::from_millis(10);
/// People are told of a wait that is longer.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// What `struct timex` has, word by word.
type Timex = [u64; 26];

/// A call that is held.
#[derive(Debug)]
pub struct Deferred {
    number: i64,
    words: [u64; 6],
    /// What its pointers lead to, by argument.
    memory: Vec<(usize, Vec<u8>)>,
    /// Its paths and descriptors, by argument.
    places: Vec<(usize, Place)>,
    /// What a table of buffers leads to: the segments of another kernel, or what is written to another process.
    segments: Vec<Vec<u8>>,
    /// The process outside that it concerns.
    process: Option<Arc<Outsider>>,
    /// When it was made, if the time that it sets goes on.
    since: Option<Duration>,
    /// It is made again as long as there is no room for it.
    waits: bool,
}

/// A process outside that calls concern: held, so that another with its number is not taken for it.
#[derive(Debug)]
pub struct Outsider {
    number: i32,
    process: Arc<OwnedFd>,
    /// Its memory, if calls write to it: gone as soon as it runs another program and no other process has the memory. And what
    /// the kernel told its program at the start (`/proc/PID/auxv`), with addresses that another one has elsewhere.
    memory: Option<(OwnedFd, Vec<u8>)>,
}

impl Outsider {
    /// A process that is held by this descriptor, with the memory that it has now, or without.
    ///
    /// # Errors
    /// As `open(2)`: its memory can't be opened.
    pub fn new(number: i32, process: Arc<OwnedFd>, with_memory: bool) -> Sys<Outsider> {
        let path = format!("/proc/{number}/mem");
        let open = || OwnedFd::open(path.as_bytes(), libc::O_RDONLY | libc::O_CLOEXEC)?.raised();
        let memory = if with_memory { Some((open()?, told_at_start(number)?)) } else { None };
        Ok(Outsider { number, process, memory })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Whether its memory is held as well.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether it is there, and runs the program that it ran then.
    #[must_use]
    pub fn is_the_same(&self) -> bool {
        // Nothing is at address 0: that is an error as long as there is any memory, and an end afterwards.
        let is_gone = |(memory, told): &(OwnedFd, Vec<u8>)| {
            kernel::pread(memory.number(), &mut [0], 0) == Ok(0)
                || told_at_start(self.number).as_ref() != Ok(told)
        };
        kernel::is_there(&self.process) && !self.memory.as_ref().is_some_and(is_gone)
    }
}

/// What the kernel has told the program of a process at its start.
fn told_at_start(process: i32) -> Sys<Vec<u8>> {
    let told = std::fs::read(format!("/proc/{process}/auxv"));
    told.map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
}

/// Something that a call names by a path or a descriptor.
#[derive(Debug)]
pub enum Place {
    /// By this path.
    Path(Vec<u8>),
    /// The path that this object has at the commit.
    Node(Id),
    /// This object, by a path that leads through the descriptor.
    Through(OwnedFd),
    /// This descriptor.
    Open(OwnedFd),
    /// A descriptor for reading what has this path.
    ToOpen(Vec<u8>),
    /// The same of an object.
    NodeToOpen(Id),
}

/// What is done with a call.
enum Asked {
    /// The kernel answers it at once: it only asks, or is wrong.
    Natively,
    /// There is nothing to do: this is the answer.
    Nothing(u64),
    /// It is held, and answered so.
    Later(Deferred, u64),
}

/// Names of the machine that are held: host and domain.
#[derive(Debug, Default)]
pub struct MachineNames([Option<Vec<u8>>; 2]);

impl Deferred {
    /// A call, whose pointers and descriptors are to be replaced.
    #[must_use]
    pub fn of(call: &Call) -> Deferred {
        Deferred {
            number: call.number(),
            words: *call.words(),
            memory: Vec::new(),
            places: Vec::new(),
            segments: Vec::new(),
            process: None,
            since: None,
            waits: false,
        }
    }

    /// With a copy of what an argument leads to.
    #[must_use]
    pub fn memory(mut self, at: usize, bytes: Vec<u8>) -> Deferred {
        self.memory.push((at, bytes));
        self
    }

    /// With a text, which ends with a zero then.
    #[must_use]
    pub fn text(self, at: usize, mut text: Vec<u8>) -> Deferred {
        text.push(0);
        self.memory(at, text)
    }

    /// With what an argument names by a path or a descriptor.
    #[must_use]
    pub fn place(mut self, at: usize, place: Place) -> Deferred {
        self.places.push((at, place));
        self
    }

    /// With these bits in an argument that has flags.
    #[must_use]
    pub fn flag(mut self, at: usize, bits: u64) -> Deferred {
        self.words[at] |= bits;
        self
    }

    /// With another number for an argument that is one.
    #[must_use]
    pub fn number_at(mut self, at: usize, number: u64) -> Deferred {
        self.words[at] = number;
        self
    }

    /// With bytes that an argument leads to by a table of one buffer.
    #[must_use]
    pub fn buffer(mut self, at: usize, bytes: Vec<u8>) -> Deferred {
        let entry = [0, bytes.len() as u64].map(u64::to_ne_bytes).concat();
        self.segments = vec![bytes];
        self.memory.insert(0, (at, entry));
        self
    }

    /// It concerns this process.
    #[must_use]
    pub fn of_process(mut self, process: Arc<Outsider>) -> Deferred {
        self.process = Some(process);
        self
    }

    /// Whether it concerns a child of this process.
    #[must_use]
    pub fn is_for_child(&self, own: i32) -> bool {
        let process = self.process.as_ref().map(|process| process.number);
        process.is_some_and(|number| kernel::parent_of(number) == Some(own))
    }

    /// It does not wait, and is made again as long as there is no room for it.
    #[must_use]
    pub fn waiting(mut self) -> Deferred {
        self.waits = true;
        self
    }

    /// The number of the call.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.number
    }

    /// An argument that is a number.
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        self.words[at]
    }

    /// The copy of what an argument leads to.
    #[must_use]
    pub fn copied(&self, at: usize) -> Option<&[u8]> {
        self.memory.iter().find(|(argument, _)| *argument == at).map(|(_, bytes)| &**bytes)
    }

    fn since_now(mut self) -> Deferred {
        self.since = Some(running());
        self
    }

    fn later(self) -> Sys<Asked> {
        Ok(Asked::Later(self, 0))
    }

    /// How many bytes are held for it.
    fn size(&self) -> u64 {
        let memory = self.memory.iter().map(|(_, bytes)| bytes.len());
        memory.chain(self.segments.iter().map(Vec::len)).map(|len| len as u64).sum()
    }

    /// What it is.
    #[must_use]
    pub fn words(&self) -> String {
        match &self.process {
            Some(process) => format!("{} for process {}", self.name(), process.number),
            None => self.name().to_owned(),
        }
    }

    /// The name of the call.
    fn name(&self) -> &'static str {
        txos_calls::name(self.number).unwrap_or("?")
    }

    /// Makes it.
    fn make(mut self) -> Sys<u64> {
        if let Some(since) = self.since {
            self.move_on(running().saturating_sub(since));
        }
        let mut opened = Vec::new();
        let mut paths = Vec::new();
        for (at, place) in self.places {
            match place {
                Place::Path(path) => paths.push((at, path)),
                Place::Through(fd) => {
                    paths.push((at, kernel::magic_path(fd.number())));
                    opened.push(fd);
                }
                Place::Open(fd) => {
                    self.words[at] = descriptor_word(self.number, fd.number());
                    opened.push(fd);
                }
                Place::ToOpen(path) => {
                    let fd = OwnedFd::open(&path, libc::O_RDONLY | libc::O_CLOEXEC)?;
                    self.words[at] = descriptor_word(self.number, fd.number());
                    opened.push(fd);
                }
                // Every one has become a path before the commit.
                Place::Node(_) | Place::NodeToOpen(_) => return Err(Errno::NOENT),
            }
        }
        for (_, path) in &mut paths {
            path.push(0);
        }
        for (at, bytes) in self.memory.iter_mut().chain(&mut paths) {
            self.words[*at] = bytes.as_mut_ptr() as u64;
        }
        if let Some((_, table)) = self.memory.iter_mut().find(|_| !self.segments.is_empty()) {
            for (entry, from) in table.chunks_exact_mut(entry_size(self.number)).zip(&self.segments)
            {
                entry[..8].copy_from_slice(&(from.as_ptr() as u64).to_ne_bytes());
            }
        }
        // SAFETY: the pointers lead to the copies, which live until the answer and have the sizes that the arguments say.
        // (Where the kernel writes to one, as of `adjtimex(2)`, nobody else refers to it.)
        let call = unsafe { Call::new(self.number, self.words) };
        let since = Instant::now();
        let mut said = false;
        loop {
            match call.answer() {
                Err(Errno::AGAIN | Errno::TIMEDOUT) if self.waits => {}
                answer => return answer,
            }
            if effects::is_to_end() {
                return Err(Errno::INTR);
            }
            if !said && since.elapsed() >= TELL_AFTER {
                said = true;
                let name = txos_calls::name(self.number).unwrap_or("?");
                say(&format!("{name} was held until the commit, and waits for room in a queue"));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Moves the time on that it sets.
    fn move_on(&mut self, passed: Duration) {
        let (at, each) = match self.number {
            libc::SYS_settimeofday => (0, 1_000),
            _ => (1, 1),
        };
        let Some((_, bytes)) = self.memory.iter_mut().find(|(argument, _)| *argument == at) else {
            return;
        };
        let [seconds, rest] = [0, 8].map(|from| word_at(bytes, from));
        let time = Duration::from_secs(seconds)
            .saturating_add(Duration::from_nanos(rest.saturating_mul(each)))
            .saturating_add(passed);
        let rest = u64::from(time.subsec_nanos()) / each;
        *bytes = [time.as_secs().to_ne_bytes(), rest.to_ne_bytes()].concat();
    }

    /// Makes it: why that failed, in words.
    #[must_use]
    pub fn send(self) -> Option<String> {
        let name = self.name();
        if let Some(process) = &self.process
            && !process.is_the_same()
        {
            return Some(failed(name, "the process is there no more, or runs another program"));
        }
        let writes = self.number == libc::SYS_process_vm_writev;
        let wanted =
            if writes { self.segments.iter().map(Vec::len).sum::<usize>() as u64 } else { 0 };
        match self.make() {
            Ok(n) if n < wanted => {
                Some(failed(name, &format!("{n} of {wanted} bytes were written")))
            }
            Ok(_) => None,
            Err(errno) => Some(failed(name, &std::io::Error::from(errno).to_string())),
        }
    }

    /// That it can't be made, in words.
    #[must_use]
    pub fn refused(&self, why: &str) -> String {
        failed(self.name(), why)
    }
}

/// The size of a `struct kexec_segment`.
const SEGMENT: usize = 32;
/// The size of a `struct iovec`.
const BUFFER: usize = 16;

/// The size of what the table of buffers consists of that a call has.
fn entry_size(number: i64) -> usize {
    if number == libc::SYS_process_vm_writev { BUFFER } else { SEGMENT }
}

fn failed(name: &str, why: &str) -> String {
    format!("{name} was held until the commit, and failed then: {why}")
}

fn word_at(bytes: &[u8], from: usize) -> u64 {
    let word = bytes.get(from..from + 8).and_then(|bytes| bytes.try_into().ok());
    word.map_or(0, u64::from_ne_bytes)
}

/// How a call names a descriptor: clocks of devices have it in their numbers.
fn descriptor_word(number: i64, fd: i32) -> u64 {
    match number {
        libc::SYS_clock_settime | libc::SYS_clock_adjtime => {
            u64::from((!fd << 3 | 3).cast_unsigned())
        }
        _ => fd as u64,
    }
}

/// How long the machine has run, asleep or not.
fn running() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Asks the kernel whether the caller may make a call, by one that it refuses otherwise.
///
/// # Safety
/// With these arguments the call fails without doing anything.
unsafe fn may(number: i64, words: [u64; 6]) -> Sys<()> {
    // SAFETY: the kernel refuses it before it looks at memory, or the pointers lead to constants.
    match unsafe { Call::new(number, words) }.answer() {
        Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::NOSYS)) => Err(errno),
        _ => Ok(()),
    }
}

/// Whether the caller may set clocks.
fn may_set_clocks() -> Sys<()> {
    let mut wrong = WRONG_TICK;
    // SAFETY: no clock has such a tick. The structure lives until the answer.
    unsafe { may(libc::SYS_adjtimex, [wrong.as_mut_ptr() as u64, 0, 0, 0, 0, 0]) }
}

/// Whether the caller has a capability.
fn has(capability: u64) -> Sys<()> {
    if kernel::capabilities() & capability != 0 { Ok(()) } else { Err(Errno::PERM) }
}

/// A time that a clock can be set to: seconds, and the rest in nanoseconds.
fn is_settable(seconds: i64, nanoseconds: i64) -> bool {
    /// The kernel takes no later time: `TIME_SETTOD_SEC_MAX`.
    const SECONDS_MAX: i64 = 8_277_292_036;
    (0..SECONDS_MAX).contains(&seconds) && (0..1_000_000_000).contains(&nanoseconds)
}

impl Tx {
    /// A call that changes the machine. `None`: it is not held, the kernel answers it at once.
    ///
    /// # Errors
    /// As natively; EAGAIN or ENOMEM if no more can be held.
    pub fn hold_call(&mut self, call: &Call) -> Sys<Option<u64>> {
        match self.asked(call)? {
            Asked::Natively => Ok(None),
            Asked::Nothing(answer) => Ok(Some(answer)),
            Asked::Later(later, answer) => {
                let is_name =
                    matches!(call.number(), libc::SYS_sethostname | libc::SYS_setdomainname);
                let name = later.memory.first().filter(|_| is_name).map(|(_, name)| name.clone());
                self.hold_deferred(later, answer)?;
                match call.number() {
                    libc::SYS_sethostname => self.held.names_mut().0[0] = name,
                    libc::SYS_setdomainname => self.held.names_mut().0[1] = name,
                    _ => {}
                }
                Ok(Some(answer))
            }
        }
    }

    /// Holds a call, which is answered so.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM if no more can be held.
    pub fn hold_deferred(&mut self, later: Deferred, answer: u64) -> Sys<u64> {
        self.make_room(later.size())?;
        self.held.hold_call(self.process.who, later)?;
        Ok(answer)
    }

    /// Whether so many bytes can be held for a call. Said once if not.
    fn make_room(&mut self, bytes: u64) -> Sys<()> {
        let kept = self.held.output.keep_for_calls(bytes);
        if kept.is_err() && self.report.is_first("held calls") {
            say(
                "a transaction holds no more than TXOS_HELD_MAX bytes until its commit, so a call fails with ENOMEM",
            );
        }
        kept.map_err(|_| Errno::NOMEM)
    }

    fn asked(&mut self, call: &Call) -> Sys<Asked> {
        let later = Deferred::of(call);
        // SAFETY (of each `may`): what is refused is said beside it.
        match call.number() {
            libc::SYS_sethostname => Self::name_machine(call),
            libc::SYS_setdomainname => Self::name_machine(call),
            libc::SYS_reboot => reboot(call),
            libc::SYS_vhangup => has(SYS_TTY_CONFIG).and_then(|()| later.later()),
            libc::SYS_syslog => syslog(call),
            libc::SYS_settimeofday => set_time(call),
            libc::SYS_clock_settime => self.set_clock(call),
            libc::SYS_adjtimex => adjust(call, 0, None),
            libc::SYS_clock_adjtime => match self.clock(call.int(0))? {
                Some(place) => adjust(call, 1, place),
                None => Ok(Asked::Natively),
            },
            number @ (libc::SYS_swapon | libc::SYS_swapoff) => {
                let flags = if number == libc::SYS_swapon { call.word(1) } else { 0 };
                // SAFETY: there is nothing at an empty path.
                unsafe { may(number, [c"".as_ptr() as u64, flags, 0, 0, 0, 0]) }?;
                let known = number == libc::SYS_swapoff || flags & !0x7_ffff == 0;
                if !known {
                    return Ok(Asked::Natively);
                }
                let place = self.place(call, 0)?;
                later.place(0, place).later()
            }
            libc::SYS_acct => {
                // SAFETY: there is nothing at an empty path.
                unsafe { may(libc::SYS_acct, [c"".as_ptr() as u64, 0, 0, 0, 0, 0]) }?;
                if call.word(0) == 0 {
                    return later.later();
                }
                let place = self.place(call, 0)?;
                if let Place::Node(id) = place
                    && self.tree.nodes[id].kind() != FileKind::File
                {
                    return Err(Errno::ACCESS);
                }
                later.place(0, place).later()
            }
            libc::SYS_quotactl | libc::SYS_quotactl_fd => self.quota(call),
            libc::SYS_init_module => {
                // SAFETY: no module is that short.
                unsafe { may(libc::SYS_init_module, [0; 6]) }?;
                let image = call.buffer(0, call.word(1));
                if image.len() < 64 {
                    return Err(Errno::NOEXEC);
                }
                self.may_hold_bytes(image.len())?;
                let image = image.read()?;
                if !image.starts_with(b"\x7fELF") {
                    return Err(Errno::NOEXEC);
                }
                let parameters = call.pointer::<u8>(2).text(TEXT_MAX, Errno::TOOBIG)?;
                later.memory(0, image).text(2, parameters).later()
            }
            libc::SYS_finit_module => {
                const FLAGS: i32 = 7;
                // SAFETY: there are no such flags.
                unsafe { may(libc::SYS_finit_module, [u64::MAX, 0, u64::MAX, 0, 0, 0]) }?;
                if call.int(2) & !FLAGS != 0 {
                    return Err(Errno::INVAL);
                }
                let parameters = call.pointer::<u8>(1).text(TEXT_MAX, Errno::TOOBIG)?;
                let image = self.readable_place(call.int(0))?;
                later.place(0, image).text(1, parameters).later()
            }
            libc::SYS_delete_module => {
                const NAME: usize = 56;
                // SAFETY: no name is at address 0.
                unsafe { may(libc::SYS_delete_module, [0; 6]) }?;
                let name = call.pointer::<u8>(0).text(NAME, Errno::NOENT)?;
                let state = [&b"/sys/module/"[..], &name, b"/initstate"].concat();
                let has_modules = kernel::look(b"/sys/module").is_ok();
                if name.is_empty()
                    || name.contains(&b'/')
                    || has_modules && kernel::look(&state).is_err()
                {
                    return Err(Errno::NOENT);
                }
                later.text(0, name).later()
            }
            libc::SYS_process_vm_writev | libc::SYS_move_pages | libc::SYS_migrate_pages => {
                Ok(match self.of_another_process(call)? {
                    OfAnother::Natively => Asked::Natively,
                    OfAnother::Nothing => Asked::Nothing(0),
                    OfAnother::Later(later, answer) => Asked::Later(*later, answer),
                })
            }
            libc::SYS_kexec_load => self.other_kernel(call),
            libc::SYS_kexec_file_load => self.other_kernel_of_files(call),
            _ => Ok(Asked::Natively),
        }
    }

    /// Before memory is copied for a call: whether that much may be held.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn may_hold_bytes(&mut self, bytes: u64) -> Sys<()> {
        if self.held.output.has_room_for(bytes) { Ok(()) } else { self.make_room(bytes) }
    }

    /// `sethostname`, `setdomainname`.
    fn name_machine(call: &Call) -> Sys<Asked> {
        // SAFETY: no name has a negative length.
        unsafe { may(call.number(), [0, u64::MAX, 0, 0, 0, 0]) }?;
        let len = call.int(1);
        if !(0..=NAME_MAX).contains(&len) {
            return Err(Errno::INVAL);
        }
        let name = call.buffer(0, len as u64).read()?;
        Deferred::of(call).memory(0, name).later()
    }

    /// `uname(2)` while a name of the machine is held. `None`: the kernel's answer is right.
    pub fn machine_names(&self, call: &Call) -> Option<i64> {
        /// The fields of `struct utsname`: their size, and where host and domain are.
        const FIELD: u64 = 65;
        const AT: [u64; 2] = [FIELD, 5 * FIELD];
        let names = self.held.names()?;
        let answer = call.make();
        let out = call.buffer(0, 6 * FIELD);
        for (at, name) in AT.into_iter().zip(&names.0) {
            if let (0, Some(name)) = (answer, name) {
                let mut field = name.clone();
                field.resize(FIELD as usize, 0);
                if out.after(at).write(&field).is_err() {
                    return Some(-i64::from(libc::EFAULT));
                }
            }
        }
        Some(answer)
    }

    /// What a path leads to.
    fn place(&mut self, call: &Call, at: usize) -> Sys<Place> {
        match self.object(libc::AT_FDCWD, &call.path(at)?, 0)? {
            // Paths start elsewhere after the commit.
            Object::Node(_) if self.process.moved.1 => Err(self.no_path_later()),
            Object::Node(id) => Ok(Place::Node(id)),
            Object::Live(path) => Ok(Place::Path(path)),
            Object::Fd(fd) => Ok(Place::Through(OwnedFd::of(kernel::copy_high(fd)?))),
        }
    }

    fn no_path_later(&mut self) -> Errno {
        let what = "a held call with a path, after a change of the root directory,";
        self.unsupported_errno(what).err().unwrap_or(Errno::NOTSUP)
    }

    /// A descriptor that a call reads a file from.
    fn readable_place(&mut self, number: i32) -> Sys<Place> {
        let file = self.file(number)?;
        let open = self.fds.get(file);
        if open.flags & libc::O_ACCMODE == libc::O_WRONLY || open.flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        match open.node {
            Some(id) if !self.tree.nodes[id].live => {
                let node = &self.tree.nodes[id];
                let is_as_before = node.stable.is_some() && matches!(node.data, Data::Stable);
                if !is_as_before && self.process.moved.1 {
                    return Err(self.no_path_later());
                }
                if !is_as_before {
                    return Ok(Place::NodeToOpen(id));
                }
            }
            _ => {}
        }
        let real = self.real_without_offset(number)?;
        Ok(Place::Open(OwnedFd::of(kernel::copy_high(real)?)))
    }

    /// The clock of a number, if it can be set: of a device by its descriptor.
    fn clock(&mut self, clock: i32) -> Sys<Option<Option<Place>>> {
        /// Clocks that are the kernel's to keep and anybody's to set up: `CLOCK_AUX` (Linux 6.17).
        const AUXILIARY: std::ops::Range<i32> = 16..24;
        const OF_DEVICE: i32 = 3;
        match clock {
            libc::CLOCK_REALTIME => Ok(Some(None)),
            clock if AUXILIARY.contains(&clock) => {
                let mut time = [0_u64; 2];
                let words = [clock as u64, time.as_mut_ptr() as u64, 0, 0, 0, 0];
                // SAFETY: there is room for the time.
                let there = unsafe { Call::new(libc::SYS_clock_gettime, words) }.answer();
                Ok(there.is_ok().then_some(None))
            }
            clock if clock < 0 && clock & 7 == OF_DEVICE => {
                let real = self.real_without_offset(!(clock >> 3)).map_err(|_| Errno::INVAL)?;
                Ok(Some(Some(Place::Open(OwnedFd::of(kernel::copy_high(real)?)))))
            }
            _ => Ok(None),
        }
    }

    fn set_clock(&mut self, call: &Call) -> Sys<Asked> {
        let Some(place) = self.clock(call.int(0))? else { return Ok(Asked::Natively) };
        let time = call.pointer::<[i64; 2]>(1).read()?;
        let is_main = call.int(0) == libc::CLOCK_REALTIME;
        if !is_settable(time[0], time[1]) || is_main && is_before_start(time[0]) {
            return Err(Errno::INVAL);
        }
        if place.is_none() {
            may_set_clocks()?;
        }
        let later = Deferred::of(call).memory(1, bytes_of(&time)).since_now();
        match place {
            Some(place) => later.place(0, place).later(),
            None => later.later(),
        }
    }

    fn quota(&mut self, call: &Call) -> Sys<Asked> {
        const ON: u32 = 0x80_0002;
        const OFF: u32 = 0x80_0003;
        const GET_FORMAT: u32 = 0x80_0004;
        const SET_INFO: u32 = 0x80_0006;
        const SET: u32 = 0x80_0008;
        const XFS: u32 = 0x5800;
        /// On, off, remove: a word of flags.
        const XFS_FLAGS: [u32; 3] = [XFS + 1, XFS + 2, XFS + 6];
        const XFS_SET: u32 = XFS + 4;
        let by_descriptor = call.number() == libc::SYS_quotactl_fd;
        let (command, of) = if by_descriptor { (call.uint(1), 0) } else { (call.uint(0), 1) };
        let size = match command >> 8 {
            ON | OFF => 0,
            SET_INFO => 24,
            SET => 72,
            XFS_SET => 112,
            command if XFS_FLAGS.contains(&command) => 4,
            _ => return Ok(Asked::Natively),
        };
        let place = match by_descriptor {
            true => {
                let real = self.real_without_offset(call.int(0))?;
                Place::Open(OwnedFd::of(kernel::copy_high(real)?))
            }
            false => self.place(call, 1)?,
        };
        // Whether there are quotas at all, the kernel tells anybody.
        let asks = (GET_FORMAT << 8 | command & 0xff) as u64;
        let mut answer = [0_u8; 128];
        let out = answer.as_mut_ptr() as u64;
        let mut path = match &place {
            Place::Path(path) => path.clone(),
            Place::Node(id) => self.tree.kernel_path(&Object::Node(*id))?,
            Place::Through(fd) => kernel::magic_path(fd.number()),
            _ => Vec::new(),
        };
        path.push(0);
        let words = match &place {
            Place::Open(fd) => [fd.number() as u64, asks, 0, out, 0, 0],
            _ => [asks, path.as_ptr() as u64, 0, out, 0, 0],
        };
        // SAFETY: the path ends with its zero, and the answer is a word.
        match unsafe { Call::new(call.number(), words) }.answer() {
            Ok(_) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
        has(SYS_ADMIN)?;
        let later = Deferred::of(call).place(of, place);
        match command >> 8 {
            ON if by_descriptor => Ok(Asked::Natively),
            ON => {
                let file = self.place(call, 3)?;
                later.place(3, file).later()
            }
            OFF => later.later(),
            _ => later.memory(3, call.buffer(3, size).read()?).later(),
        }
    }

    fn other_kernel(&mut self, call: &Call) -> Sys<Asked> {
        const MOST: u64 = 16;
        // SAFETY: there can't be so many segments.
        unsafe { may(libc::SYS_kexec_load, [0, 99, 0, 0, 0, 0]) }?;
        let count = call.word(1);
        if count > MOST {
            return Err(Errno::INVAL);
        }
        let table = call.buffer(2, count * SEGMENT as u64).read()?;
        let mut later = Deferred::of(call);
        let mut total = 0_u64;
        for entry in table.chunks_exact(SEGMENT) {
            let len = word_at(entry, 8);
            total = total.saturating_add(len);
            self.may_hold_bytes(total)?;
            // SAFETY: the program gave it as a buffer that the call reads.
            let from = unsafe { UserSlice::new(word_at(entry, 0), len) };
            later.segments.push(from.read()?);
        }
        later.memory(2, table).later()
    }

    fn other_kernel_of_files(&mut self, call: &Call) -> Sys<Asked> {
        const UNLOAD: u64 = 1;
        const NO_INITRAMFS: u64 = 4;
        let nothing = [u64::MAX, u64::MAX, 0, 0, u64::MAX, 0];
        // SAFETY: there are no such flags.
        unsafe { may(libc::SYS_kexec_file_load, nothing) }?;
        let flags = call.word(4);
        if flags & !0x3f != 0 {
            return Ok(Asked::Natively);
        }
        let mut later = Deferred::of(call);
        if flags & UNLOAD != 0 {
            return later.later();
        }
        let kernel = self.readable_place(call.int(0))?;
        later = later.place(0, kernel);
        if flags & NO_INITRAMFS == 0 {
            let initramfs = self.readable_place(call.int(1))?;
            later = later.place(1, initramfs);
        }
        if call.word(2) > 0 {
            if call.word(2) > TEXT_MAX as u64 {
                return Err(Errno::INVAL);
            }
            let line = call.buffer(3, call.word(2)).read()?;
            if line.last() != Some(&0) {
                return Err(Errno::INVAL);
            }
            later = later.memory(3, line);
        }
        later.later()
    }

    /// Before the commit: paths are those that the objects have then.
    pub fn settle_held_places(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        for place in held.calls_mut().flat_map(|later| &mut later.places) {
            place.1 = match std::mem::replace(&mut place.1, Place::Path(Vec::new())) {
                Place::Node(id) => Place::Path(self.tree.path_of(id)),
                Place::NodeToOpen(id) => Place::ToOpen(self.tree.path_of(id)),
                place => place,
            };
        }
        self.held = held;
    }
}

/// Times before the machine's start can't be set.
fn is_before_start(seconds: i64) -> bool {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    seconds <= time.tv_sec
}

fn bytes_of(words: &[i64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn reboot(call: &Call) -> Sys<Asked> {
    const MAGIC: u32 = 0xfee1_dead;
    const MORE_MAGIC: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];
    const WITH_TEXT: u32 = 0xa1b2_c3d4;
    /// Restart, halt, Ctrl-Alt-Del on and off, power off, with a text, suspend, another kernel.
    const COMMANDS: [u32; 8] = [
        0x0123_4567,
        0xcdef_0123,
        0x89ab_cdef,
        0,
        0x4321_fedc,
        WITH_TEXT,
        0xd000_fce2,
        0x4558_4543,
    ];
    // SAFETY: without the magic numbers nothing is done.
    unsafe { may(libc::SYS_reboot, [0; 6]) }?;
    let [magic, more, command] = [0, 1, 2].map(|at| call.uint(at));
    if magic != MAGIC || !MORE_MAGIC.contains(&more) || !COMMANDS.contains(&command) {
        return Err(Errno::INVAL);
    }
    let later = Deferred::of(call);
    if command != WITH_TEXT {
        return later.later();
    }
    // The kernel takes what fits.
    let text = match call.pointer::<u8>(3).text(256, Errno::TOOBIG) {
        Err(Errno::TOOBIG) => call.buffer(3, 255).read()?,
        text => text?,
    };
    later.text(3, text).later()
}

fn syslog(call: &Call) -> Sys<Asked> {
    const READ_ALL: u64 = 3;
    const READ_CLEAR: i32 = 4;
    const CLEAR: u64 = 5;
    const LEVEL: i32 = 8;
    // SAFETY: there is no such level.
    unsafe { may(libc::SYS_syslog, [LEVEL as u64, 0, 99, 0, 0, 0]) }?;
    let later = Deferred::of(call);
    match call.int(0) {
        READ_CLEAR => {
            // SAFETY: as the program's own call, which reads as much.
            let read = unsafe { call.with_word(0, READ_ALL) }.answer()?;
            let words = [CLEAR, 0, 0, 0, 0, 0];
            Ok(Asked::Later(Deferred { words, ..later }, read))
        }
        5..=7 => later.later(),
        LEVEL if (1..=8).contains(&call.int(2)) => later.later(),
        _ => Ok(Asked::Natively),
    }
}

fn set_time(call: &Call) -> Sys<Asked> {
    let (time, zone) = (call.pointer::<[i64; 2]>(0), call.pointer::<[i32; 2]>(1));
    if time.is_null() && zone.is_null() {
        return Ok(Asked::Natively);
    }
    let mut later = Deferred::of(call);
    if !time.is_null() {
        let [seconds, microseconds] = time.read()?;
        let nanoseconds = microseconds.checked_mul(1_000).unwrap_or(-1);
        if !is_settable(seconds, nanoseconds) || is_before_start(seconds) {
            return Err(Errno::INVAL);
        }
        later = later.memory(0, bytes_of(&[seconds, microseconds])).since_now();
    }
    if !zone.is_null() {
        let [west, kind] = zone.read()?;
        if !(-15 * 60..=15 * 60).contains(&west) {
            return Err(Errno::INVAL);
        }
        later = later.memory(1, [west.to_ne_bytes(), kind.to_ne_bytes()].concat());
    }
    may_set_clocks()?;
    later.later()
}

/// `adjtimex`, `clock_adjtime`: the answer is the clock as it is.
fn adjust(call: &Call, at: usize, place: Option<Place>) -> Sys<Asked> {
    const FREQUENCY_TO_TIME: u32 = 0x8000;
    const OFFSET: u32 = 1;
    const ASKS_OFFSET: u32 = 0xa001;
    const TICK: u32 = 0x4000;
    const SET_OFFSET: u32 = 0x100;
    const NANOSECONDS: u32 = 0x2000;
    let out = call.pointer::<Timex>(at);
    let words = out.read()?;
    let modes = words[0] as u32;
    if modes == 0 || modes == ASKS_OFFSET {
        return Ok(Asked::Natively);
    }
    let unit = if modes & NANOSECONDS != 0 { 1_000_000_000 } else { 1_000_000 };
    let wrong = modes & FREQUENCY_TO_TIME != 0 && modes & OFFSET == 0
        || modes & TICK != 0 && !(9_000..=11_000).contains(&words[11])
        || modes & SET_OFFSET != 0 && words[10] >= unit;
    if place.is_none() {
        may_set_clocks()?;
    }
    if wrong {
        return Err(Errno::INVAL);
    }
    let mut now: Timex = [0; 26];
    let pointer = now.as_mut_ptr() as u64;
    // SAFETY: the structure lives until the answer.
    let asks = unsafe { call.with_word(at, pointer) };
    let asks = match &place {
        // SAFETY: it is no pointer.
        Some(Place::Open(fd)) => unsafe {
            asks.with_word(0, descriptor_word(call.number(), fd.number()))
        },
        _ => asks,
    };
    let state = asks.answer()?;
    now[0] = words[0];
    out.write(now)?;
    let mut later =
        Deferred::of(call).memory(at, words.iter().flat_map(|word| word.to_ne_bytes()).collect());
    if let Some(place) = place {
        later = later.place(0, place);
    }
    Ok(Asked::Later(later, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deferred(number: i64, words: [u64; 6]) -> Deferred {
        // SAFETY: it is not made.
        Deferred::of(&unsafe { Call::new(number, words) })
    }

    #[test]
    fn a_time_that_is_set_has_gone_on_by_the_commit() {
        let time = bytes_of(&[1_000, 999_999_000]);
        let mut later = deferred(libc::SYS_clock_settime, [0; 6]).memory(1, time);
        later.move_on(Duration::from_millis(1_500));
        assert_eq!(later.memory[0].1, bytes_of(&[1_002, 499_999_000]));
        let mut later = deferred(libc::SYS_settimeofday, [0; 6]).memory(0, bytes_of(&[7, 999_999]));
        later.move_on(Duration::from_micros(2));
        assert_eq!(later.memory[0].1, bytes_of(&[8, 1]));
        // A time zone alone has no time.
        let mut zone = deferred(libc::SYS_settimeofday, [0; 6]).memory(1, vec![0; 8]);
        zone.move_on(Duration::from_secs(1));
        assert_eq!(zone.memory[0].1, vec![0; 8]);
    }

    #[test]
    fn a_call_that_fails_after_the_commit_is_named() {
        // No magic numbers: it does nothing.
        let said = deferred(libc::SYS_reboot, [0; 6]).send().unwrap_or_default();
        assert!(said.starts_with("reboot was held until the commit, and failed then: "), "{said}");
    }

    #[test]
    fn clocks_of_devices_have_their_descriptor_in_their_number() {
        let clock = descriptor_word(libc::SYS_clock_settime, 9) as i32;
        assert_eq!((!(clock >> 3), clock & 7), (9, 3));
        assert_eq!(descriptor_word(libc::SYS_finit_module, 9), 9);
    }

    #[test]
    fn only_times_that_the_kernel_takes_are_held() {
        assert!(is_settable(0, 0) && is_settable(8_277_292_035, 999_999_999));
        for (seconds, nanoseconds) in [(-1, 0), (8_277_292_036, 0), (0, -1), (0, 1_000_000_000)] {
            assert!(!is_settable(seconds, nanoseconds), "{seconds} {nanoseconds}");
        }
        assert!(is_before_start(0));
    }
}
