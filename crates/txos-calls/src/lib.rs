//! The system calls of x86-64: one row each, for every part that treats calls by their number.
//!
//! | reader | what it takes from a row |
//! |---|---|
//! | the filter and the supervisor of `txos run` | [`Handler`], [`Unless`], the numbers of 32-bit programs |
//! | the recorder | where path and directory are, whether links are followed ([`look_of`]) |
//! | `libtxos.so` | [`Class`], descriptor arguments |
//! | `docs/syscalls.md` and its tests | all of it |
//!
//! # Adding a call
//!
//! 1. A row in `rows.rs`. A new kernel's call raises [`LAST`] and [`KERNEL`].
//! 2. A case in `crates/txos-testkit/tests/command/syscalls/c`, whose programs make every call in both front
//!    doors.
//! 3. If it is [`Class::Transactional`]: an arm in `crates/txos-runtime/src/tx/calls`, and for speed the C
//!    library's function in `front/interpose.rs`.
//! 4. `cargo run -p txos-testkit --bin syscalls` writes `docs/syscalls.md`.
//!
//! [`Handler::Change`] is only for what a change set can carry: content, mode, owner, times, extended
//! attributes. What it can't carry would be lost without a word, and is refused.
//!
//! The recorder is compiled without other crates and includes this file. So there is nothing here but data and
//! functions that can run at compile time. The arrays by number are made then; a part carries those it reads.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the table of system calls has the numbers of x86-64");

#[rustfmt::skip]
mod rows;

pub use rows::GROUPS;

/// The kernel that [`GROUPS`] has the calls of.
pub const KERNEL: &str = "Linux 6.18";
/// The number of its last call.
pub const LAST: i64 = 469;
/// Greater than every number.
pub const SIZE: usize = 512;
const _: () = assert!(LAST < SIZE as i64, "a call has a number beyond the arrays: raise SIZE");
/// Stands for every call of a 32-bit program in a thread's transaction.
pub const OF_32_BITS: i64 = -32;
/// What a message calls System V and POSIX IPC.
pub const IPC: &str = "System V or POSIX IPC";
/// What a message calls memory and descriptors of others.
pub const OTHER: &str = "another process's memory or descriptors";
/// What a message calls what goes through sockets.
pub const NET: &str = "network and socket traffic";
/// What is refused when file flags are changed, also by `ioctl(2)`.
pub const FLAGS: &str = "changing file flags (chattr)";
/// Flags of `sendmsg(2)` that no program uses together (`MSG_NOSIGNAL`, `MSG_CONFIRM`, `MSG_DONTROUTE`,
/// `MSG_EOR`): the filter lets this call through, because the listener can't be sent by a call that waits for
/// the listener's holder.
pub const LISTENER_FLAGS: u32 = 0x4000 | 0x800 | 0x4 | 0x80;

/// What a call does in a front door. Where it depends on arguments: the strongest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Does {
    /// It is part of the transaction: isolated, and published or gone with it.
    Transactional,
    /// It is of the process alone, or only looks, at what no transaction changes.
    Harmless,
    /// It happens if and when the transaction commits.
    Held,
    /// It happens at once, with a warning; under strictness the transaction ends instead.
    Passed,
    /// It fails, with an errno that programs know how to go on from.
    Refused,
}

/// Where a path comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The argument with the directory's descriptor; `None`: the working directory.
    pub dir: Option<usize>,
    /// The argument with the path's address.
    pub path: usize,
}

/// Whether a symbolic link at the end of the path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Always.
    Yes,
    /// Never.
    No,
    /// Unless this argument has this bit.
    Unless(usize, u64),
    /// If this argument has this bit.
    If(usize, u64),
}

impl Follow {
    /// Whether it is with these arguments.
    #[inline]
    #[must_use]
    pub const fn with(self, args: &[u64; 6]) -> bool {
        match self {
            Follow::Yes => true,
            Follow::No => false,
            Follow::Unless(i, bit) => args[i] & bit == 0,
            Follow::If(i, bit) => args[i] & bit != 0,
        }
    }
}

/// What of an object a call looks at or changes, as bits: those of the engine's `Facets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aspects(pub u8);

impl Aspects {
    /// That the path leads to it: identity and kind.
    pub const ENTRY: Aspects = Aspects(1);
    /// Its attributes.
    pub const ATTRS: Aspects = Aspects(2);
    /// Its bytes, or a link's target.
    pub const DATA: Aspects = Aspects(4);
    /// The names in it.
    pub const LISTING: Aspects = Aspects(8);
    /// Its extended attributes.
    pub const XATTRS: Aspects = Aspects(16);
    /// It is changed.
    pub const WRITE: Aspects = Aspects(32);

    /// These, and those of `other`.
    #[must_use]
    pub const fn and(self, other: Aspects) -> Aspects {
        Aspects(self.0 | other.0)
    }
}

/// Where an open call's flags are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFlags {
    /// In this argument.
    Arg(usize),
    /// In the first word of the structure that this argument points to.
    How(usize),
    /// `creat(2)`: they are fixed.
    Creat,
}

/// What `txos run` does about a call: what its supervisor does, if the filter stops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Not stopped: what it does is in the view, or an earlier call has been stopped for it.
    View,
    /// Not stopped: it is of the process alone, or a look at what no transaction changes.
    Own,
    /// Not stopped: kernels have no such call (any more).
    Gone,
    /// A file is opened.
    Open(At, OpenFlags),
    /// Something is looked at.
    Look(At, Follow, Aspects),
    /// Something is altered by its name.
    Change(At, Follow, Aspects),
    /// Something is made.
    Make(At),
    /// `unlinkat(2)`: a file, or a directory, which then was empty.
    Unlink(At, Option<usize>),
    /// Something is moved; the argument with the flags.
    Rename(At, At, Option<usize>),
    /// A second name is made.
    Link(At, At, Follow),
    /// A symbolic link is made.
    Symlink(At),
    /// A program is executed.
    Execute(At),
    /// The directory open as this argument is listed.
    List(usize),
    /// The root directory changes.
    Chroot(At),
    /// Another mount namespace is entered, or the root of this one changed.
    NewRoot,
    /// Credentials are taken or given up.
    NewIds(Ids),
    /// A socket is connected.
    Connect,
    /// A socket is given a name.
    Bind,
    /// A datagram is sent to an address.
    SendTo,
    /// A message is sent, perhaps to an address.
    SendMessage,
    /// Messages are sent, perhaps to addresses.
    SendMessages,
    /// A signal to a process or a group: `kill(2)`.
    Kill,
    /// A signal with a value to a process: `rt_sigqueueinfo(2)`.
    Queue,
    /// A signal to a thread: `tkill(2)`.
    KillThread,
    /// A signal to a thread of a process: `tgkill(2)`.
    KillThreadOf,
    /// The same with a value: `rt_tgsigqueueinfo(2)`.
    QueueThreadOf,
    /// A signal through a descriptor.
    KillDescriptor,
    /// A process is traced.
    Trace,
    /// Something of a process is changed or taken; how.
    OfProcess(Whose, &'static str),
    /// A System V object is got; the argument with the flags.
    SysvGet(Sysv, usize),
    /// The same is changed or removed; the argument with the command.
    SysvControl(Sysv, usize),
    /// Namespaces of a descriptor are entered.
    EnterNamespaces,
    /// Another process's memory is written.
    WriteMemory,
    /// Mounts are changed.
    Mount,
    /// A clock is adjusted, if the structure at this argument says so.
    AdjustClock(usize),
    /// Can't be rolled back, whatever the arguments; how.
    Beyond(System, &'static str),
    /// Refused by the filter itself, with this errno.
    Refuse(i32),
}

/// Which process a call concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The one with this argument's number.
    Number(usize),
    /// A process, a group, or all of a user: the argument that says which, its value for a process (the
    /// others follow), and the argument with the number.
    Kind(usize, i32, usize),
    /// The one of this descriptor.
    Descriptor(usize),
}

/// Which credentials a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The users in so many of its first arguments.
    Users(usize),
    /// The groups in so many of its first arguments.
    Groups(usize),
    /// Others.
    Others,
}

/// A kind of System V object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sysv {
    /// A shared memory segment.
    Memory,
    /// A set of semaphores.
    Semaphores,
    /// A message queue.
    Queue,
}

/// What of the running system a call changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Process accounting or quotas.
    Accounting,
    /// A clock.
    Clock,
    /// A terminal.
    Device,
    /// The machine's name.
    Hostname,
    /// A queue for messages.
    Ipc,
    /// A setting of the kernel.
    KernelSetting,
    /// The kernel's key store.
    Keyring,
    /// A kernel module, or another kernel.
    Module,
    /// A mount's settings.
    Mount,
    /// Whether the machine runs.
    Reboot,
    /// Swap space.
    Swap,
}

/// When a call is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unless {
    /// The low half of the argument is this.
    Int(usize, u32),
    /// The argument is a null pointer (or zero in all 64 bits).
    Null(usize),
    /// The low half of the argument is none of these.
    NoneOf(usize, &'static [u32]),
}

impl Unless {
    /// Whether it is with these arguments.
    #[must_use]
    pub fn holds(self, args: &[u64; 6]) -> bool {
        match self {
            Unless::Int(i, value) => args[i] as u32 == value,
            Unless::Null(i) => args[i] == 0,
            Unless::NoneOf(i, values) => !values.contains(&(args[i] as u32)),
        }
    }
}

/// What a call is to a thread's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The transaction's: it knows what the call means in it.
    Transactional,
    /// Touches nothing that a transaction isolates: goes to the kernel.
    Harmless,
    /// The same, but it has descriptors, or makes one, whose numbers only the transaction knows.
    Descriptor,
    /// Others can see it, and it can't be taken back: made, with a warning that says this.
    Passed(&'static str),
    /// Others can see it: done if and when the transaction commits. In a process of a transaction of several, and
    /// of a command, made at once, with a warning that says this.
    Held(&'static str),
    /// Changes the thread or the process: made at once, and put back by an abort. If it is of another process or of a
    /// member, it is made at once and stays, with a warning that says this.
    Restored(&'static str),
    /// Would reach files past the transaction, or break it: not made, but answered with this errno, and a
    /// message that says this.
    Refused(i32, &'static str),
    /// Kernels have no such call (any more); it is answered like that.
    Absent,
    /// Not in the table. It might change files past the transaction: refused.
    Unknown,
    /// A mapping: of a file the transaction's, else harmless.
    Map,
    /// Waits for a child: harmless, unless the child is named by a descriptor.
    Wait,
    /// The signal mask.
    Mask,
    /// A signal's disposition.
    Action,
    /// The alternate signal stack.
    AlternateStack,
    /// Return from a handler of the program's.
    SignalReturn,
    /// Waits for a signal, with another mask.
    Suspend,
    /// The thread ends.
    Exit,
    /// The process ends.
    ExitGroup,
    /// A new process or thread: `fork`.
    Fork,
    /// `vfork`.
    Vfork,
    /// `clone`.
    Clone,
    /// `clone3`.
    Clone3,
    /// Another program.
    Exec,
    /// `prctl`: harmless, but dispatch is the transaction's, and filters of calls are refused.
    Prctl,
}

/// What a call does with names and ids, for those who need no more of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Something else.
    Other,
    /// It opens a file.
    Opens(OpenFlags),
    /// It makes or alters something.
    Alters,
    /// It takes a name away.
    Unlinks,
    /// It concerns two names.
    TwoNames,
    /// It may change user, groups or capabilities.
    TakesIds,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its number.
    pub number: i64,
    /// Its name, without `sys_`.
    pub name: &'static str,
    /// What `txos run` does about it.
    pub handler: Handler,
    /// Why the filter of `txos run` stops it; empty if it doesn't.
    pub why: &'static str,
    /// With which arguments it changes nothing: let through in both front doors.
    pub asks: &'static [Unless],
    /// With which other arguments the filter of `txos run` lets it through.
    pub unless: &'static [Unless],
    /// What it is to a thread's transaction.
    pub class: Class,
    /// Which arguments are descriptors, of a call that can go to the kernel from a thread's transaction: one bit
    /// each.
    pub descriptors: u8,
    /// Whether it sends on sockets, and a thread's transaction holds that.
    pub held_on_sockets: bool,
    /// Whether it makes a descriptor that a thread's transaction is to know (it takes note of others at their
    /// first use).
    pub makes_descriptor: bool,
    /// Whether the recorder makes it at its gate, when it knows that the supervisor was asked for the same look
    /// before: it only looks, or opens for reading.
    pub gated: bool,
    /// Its numbers in 32-bit programs, with the arguments where the native call has them. Nobody outside may be
    /// reached or changed by a program for its being old, and a 64-bit program may make them as well (`int 0x80`).
    pub i386: &'static [u32],
    /// What depends on arguments, and the like, for the documentation.
    pub note: &'static str,
}

/// A group of calls, as the paper on TxOS (OLS 2010, table 1) counts them.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// How many the paper's system supported, wholly or in part.
    pub supported: usize,
    /// How many there were in Linux 2.6.22 on i386.
    pub known: usize,
    /// Its calls, by number.
    pub rows: &'static [Row],
}

impl Handler {
    /// Whether the filter stops the call.
    #[must_use]
    pub const fn stops(self) -> bool {
        !matches!(self, Handler::View | Handler::Own | Handler::Gone)
    }

    /// What the call does with names and ids.
    #[must_use]
    pub const fn effect(self) -> Effect {
        match self {
            Handler::Open(_, flags) => Effect::Opens(flags),
            Handler::Change(..) | Handler::Make(_) | Handler::Symlink(_) => Effect::Alters,
            Handler::Unlink(..) => Effect::Unlinks,
            Handler::Rename(..) | Handler::Link(..) => Effect::TwoNames,
            Handler::NewIds(_) => Effect::TakesIds,
            _ => Effect::Other,
        }
    }
}

impl Row {
    /// What it does in a command under `txos run`.
    #[must_use]
    pub fn in_command(&self) -> Does {
        match self.handler {
            // Only some requests.
            Handler::Refuse(_) if !self.unless.is_empty() => Does::Transactional,
            Handler::Refuse(_) | Handler::Gone => Does::Refused,
            // Stopped to be known; what it does is the process's, or the view's.
            Handler::Own | Handler::NewIds(_) | Handler::NewRoot => Does::Harmless,
            Handler::View
            | Handler::Open(..)
            | Handler::Look(..)
            | Handler::Change(..)
            | Handler::Make(_)
            | Handler::Unlink(..)
            | Handler::Rename(..)
            | Handler::Link(..)
            | Handler::Symlink(_)
            | Handler::Execute(_)
            | Handler::List(_)
            | Handler::Chroot(_) => Does::Transactional,
            Handler::Kill
            | Handler::Queue
            | Handler::KillThread
            | Handler::KillThreadOf
            | Handler::QueueThreadOf
            | Handler::KillDescriptor => Does::Held,
            Handler::Connect
            | Handler::Bind
            | Handler::SendTo
            | Handler::SendMessage
            | Handler::SendMessages
            | Handler::Trace
            | Handler::WriteMemory
            | Handler::OfProcess(..)
            | Handler::SysvGet(..)
            | Handler::SysvControl(..)
            | Handler::EnterNamespaces
            | Handler::Mount
            | Handler::AdjustClock(_)
            | Handler::Beyond(..) => Does::Passed,
        }
    }

    /// What it does in a thread's transaction of a program whose output is live (`TXOS_HOLD_OUTPUT=0`).
    #[must_use]
    pub fn in_thread_live(&self) -> Does {
        match self.class {
            Class::Transactional
            | Class::Map
            | Class::Mask
            | Class::Action
            | Class::Suspend
            | Class::Restored(_)
            | Class::Exit
            | Class::ExitGroup => Does::Transactional,
            Class::Held(_) => Does::Held,
            Class::Harmless
            | Class::Descriptor
            | Class::Wait
            | Class::AlternateStack
            | Class::SignalReturn
            | Class::Prctl => Does::Harmless,
            Class::Passed(_)
            | Class::Fork
            | Class::Vfork
            | Class::Clone
            | Class::Clone3
            | Class::Exec => Does::Passed,
            Class::Refused(..) | Class::Absent | Class::Unknown => Does::Refused,
        }
    }
}

impl Row {
    /// What it does in a thread's transaction.
    #[must_use]
    pub fn in_thread(&self) -> Does {
        if self.held_on_sockets { Does::Held } else { self.in_thread_live() }
    }
}

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().flat_map(|group| group.rows)
}

/// An array by number: of each row what the expression says, and the first value where there is none.
macro_rules! by_number {
    ($none:expr, |$row:ident| $value:expr) => {{
        let mut all = [$none; SIZE];
        let (mut g, mut r) = (0, 0);
        while g < GROUPS.len() {
            if r < GROUPS[g].rows.len() {
                let $row = &GROUPS[g].rows[r];
                all[$row.number as usize] = $value;
                r += 1;
            } else {
                (g, r) = (g + 1, 0);
            }
        }
        all
    }};
}

static ROWS: [Option<&'static Row>; SIZE] = by_number!(None, |row| Some(row));
// The library for programs reads these, and is loaded into every program that a command starts. Each page with an address in it
// costs the program a page fault then: so there are few.
static CLASSES: [Class; SIZE] = by_number!(Class::Unknown, |row| row.class);
static EFFECTS: [Effect; SIZE] = by_number!(Effect::Other, |row| row.handler.effect());
static DESCRIPTORS: [u8; SIZE] = by_number!(0, |row| row.descriptors);
static MAKES: [bool; SIZE] = by_number!(false, |row| row.makes_descriptor);

const LETTERS: usize = {
    let lengths: [usize; SIZE] = by_number!(0, |row| row.name.len());
    let (mut sum, mut number) = (0, 0);
    while number < SIZE {
        (sum, number) = (sum + lengths[number], number + 1);
    }
    sum
};
const ALL_NAMES: [&str; SIZE] = by_number!("", |row| row.name);
/// All names, one behind the other.
static NAMES: [u8; LETTERS] = {
    let mut all = [0; LETTERS];
    let (mut at, mut number) = (0, 0);
    while number < SIZE {
        let (name, mut letter) = (ALL_NAMES[number].as_bytes(), 0);
        while letter < name.len() {
            all[at] = name[letter];
            (at, letter) = (at + 1, letter + 1);
        }
        number += 1;
    }
    all
};
/// Where a call's begins, and so that of the number before ends.
static NAMES_AT: [u16; SIZE + 1] = {
    let mut all = [0; SIZE + 1];
    let mut number = 0;
    while number < SIZE {
        all[number + 1] = all[number] + ALL_NAMES[number].len() as u16;
        number += 1;
    }
    all
};

const HOW_MANY_ASK: usize = {
    let asks: [bool; SIZE] = by_number!(false, |row| !row.asks.is_empty());
    let (mut count, mut number) = (0, 0);
    while number < SIZE {
        (count, number) = (count + asks[number] as usize, number + 1);
    }
    count
};
const ALL_ASKS: [&[Unless]; SIZE] = by_number!(&[] as &[Unless], |row| row.asks);
/// What calls ask with, of those that can.
static ASKS: [&[Unless]; HOW_MANY_ASK] = {
    let mut all: [&[Unless]; HOW_MANY_ASK] = [&[]; HOW_MANY_ASK];
    let (mut at, mut number) = (0, 0);
    while number < SIZE {
        if !ALL_ASKS[number].is_empty() {
            all[at] = ALL_ASKS[number];
            at += 1;
        }
        number += 1;
    }
    all
};
/// More than a call's place among them by one; 0: it has none.
static ASKS_AT: [u8; SIZE] = {
    let mut all = [0; SIZE];
    let (mut count, mut number) = (0, 0);
    while number < SIZE {
        if !ALL_ASKS[number].is_empty() {
            count += 1;
            all[number] = count;
        }
        number += 1;
    }
    all
};

#[inline]
fn at<T: Copy>(all: &[T; SIZE], number: i64) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
}

/// The row of a call.
#[must_use]
pub fn row(number: i64) -> Option<&'static Row> {
    at(&ROWS, number)?
}

/// The row that a call of a 32-bit program is treated by.
#[must_use]
pub fn row_of_32_bits(number: u32) -> Option<&'static Row> {
    rows().find(|row| row.i386.contains(&number))
}

/// What a call is to a thread's transaction.
#[inline]
#[must_use]
pub fn class(number: i64) -> Class {
    at(&CLASSES, number).unwrap_or(Class::Unknown)
}

/// The name of a call.
#[must_use]
pub fn name(number: i64) -> Option<&'static str> {
    if number == OF_32_BITS {
        return Some("of 32 bits");
    }
    let number = usize::try_from(number).ok()?;
    let (from, to) = (*NAMES_AT.get(number)?, *NAMES_AT.get(number + 1)?);
    let name = core::str::from_utf8(NAMES.get(from.into()..to.into())?).ok()?;
    (!name.is_empty()).then_some(name)
}

/// Which arguments of a call are descriptors, of those calls that can go to the kernel.
#[inline]
pub fn descriptors(number: i64) -> impl Iterator<Item = usize> {
    let bits = at(&DESCRIPTORS, number).unwrap_or(0);
    (0..6).filter(move |i| bits >> i & 1 != 0)
}

/// Whether a call makes a descriptor that a thread's transaction is to know.
#[must_use]
pub fn makes_descriptor(number: i64) -> bool {
    at(&MAKES, number).unwrap_or(false)
}

/// What a call does with names and ids.
#[must_use]
pub fn effect(number: i64) -> Effect {
    at(&EFFECTS, number).unwrap_or(Effect::Other)
}

/// Whether a call changes nothing with these arguments.
#[must_use]
pub fn only_asks(number: i64, args: &[u64; 6]) -> bool {
    let place = at(&ASKS_AT, number).and_then(|place| usize::from(place).checked_sub(1));
    let asks = place.and_then(|place| ASKS.get(place)).copied().unwrap_or_default();
    asks.iter().any(|unless| unless.holds(args))
}

/// Where and how a call of the recorder's looks.
///
/// # Panics
/// The call is not let through at the gate, or doesn't look at a path.
#[must_use]
pub const fn look_of(number: i64) -> (At, Follow, Aspects) {
    let rows: [Option<&Row>; SIZE] = by_number!(None, |row| Some(row));
    match rows[number as usize] {
        Some(Row { gated: true, handler: Handler::Look(at, follow, aspects), .. }) => {
            (*at, *follow, *aspects)
        }
        _ => panic!("no look of the recorder's"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_there_once_and_is_stopped_with_a_reason() {
        let mut numbers: Vec<i64> = rows().map(|row| row.number).collect();
        numbers.sort_unstable();
        // The kernel left out what is in between. After a new kernel's call LAST is another.
        let expected: Vec<i64> = (0..=336).chain(424..=LAST).collect();
        assert_eq!(numbers, expected);
        let mut names: Vec<&str> = rows().map(|row| row.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] < two[1]));
        let mut foreign: Vec<u32> = rows().flat_map(|row| row.i386).copied().collect();
        foreign.sort_unstable();
        assert!(foreign.windows(2).all(|two| two[0] < two[1]));
        for row in rows() {
            assert_eq!(row.handler.stops(), row.why.len() > 10, "{row:?}");
            assert!(row.handler.stops() || row.unless.is_empty() && row.i386.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn calls_are_found_by_their_numbers() {
        for want in rows() {
            assert_eq!(row(want.number).map(|row| row.name), Some(want.name));
            assert_eq!(class(want.number), want.class);
            assert_eq!(name(want.number), Some(want.name));
            assert_eq!(effect(want.number), want.handler.effect());
            for args in [[0; 6], [1; 6], [3; 6], [5; 6], [u64::MAX; 6]] {
                let asks = want.asks.iter().any(|unless| unless.holds(&args));
                assert_eq!(only_asks(want.number, &args), asks, "{want:?}");
            }
        }
        for number in [-1, 400, LAST + 1, SIZE as i64, libc::SYS_getpid | 0x4000_0000, i64::MIN] {
            assert!(row(number).is_none() && name(number).is_none(), "{number}");
            assert_eq!(class(number), Class::Unknown);
            assert_eq!(descriptors(number).count(), 0);
        }
        assert!(descriptors(libc::SYS_splice).eq([0, 2]));
        assert_eq!(row_of_32_bits(5).map(|row| row.name), Some("open"));
    }

    /// What the two front doors do about a call must fit together.
    #[test]
    fn both_doors_agree_on_what_is_a_call_of_the_transaction() {
        for row in rows() {
            assert_eq!(row.handler == Handler::Gone, row.class == Class::Absent, "{row:?}");
            if row.handler == Handler::View && row.name != "mmap" {
                // What it works on was found by a call that was stopped, or is the process's.
                assert_ne!(row.in_thread(), Does::Harmless, "{row:?}");
            }
        }
    }

    #[test]
    fn the_gate_is_for_looks_only() {
        for row in rows().filter(|row| row.gated) {
            let looks = match row.handler {
                Handler::Look(_, _, aspects) => aspects.0 & Aspects::WRITE.0 == 0,
                Handler::Open(_, OpenFlags::Arg(_)) => true,
                _ => false,
            };
            assert!(looks, "{row:?}");
        }
    }

    #[test]
    fn constants_are_those_of_the_c_library() {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_CONFIRM | libc::MSG_DONTROUTE | libc::MSG_EOR;
        assert_eq!(LISTENER_FLAGS, flags.cast_unsigned());
        rows::constants_are_those_of_the_c_library();
    }
}
