//! What goes between a process of a transaction and the process that has the transaction.
//!
//! Each pair shares a *window* of memory and a socket. A call's paths and buffers are put into the window, and the
//! addresses among its arguments become places in it. The message has the rest. [`shape`] says which arguments are
//! what, to both sides: the one copies by it, the other checks by it.
#![allow(unsafe_code)] // messages are bytes, and descriptors go beside them

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::sync::atomic::AtomicU32;

use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::spaces::SPACE;

/// The size of a window, in bytes.
pub const WINDOW: usize = 1 << 20;
/// How much of it is for the bytes of one read or write, at most.
pub const BYTES: usize = WINDOW - (64 << 10);
/// The first place in it that is used: zero is a null pointer, and there are the word that is not zero once the
/// transaction is over, those of [`epoch`], [`standing`] and [`becomes`], the numbers that are closed later ([`super::closing`]), that of [`is_heard`], and a
/// mailbox ([`super::mailbox`]).
pub(super) const FIRST: usize = 512;
/// Where the mailbox is.
pub(super) const MAILBOX_AT: usize = 256;

/// Which word of a window is the first of those about numbers that are closed later, and how many these are.
const CLOSING_AT: usize = 4;
pub(super) const CLOSING_WORDS: usize = 36;

/// What is asked.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To carry out a call.
    Call = 1,
    /// What a mapping of a file is to be of.
    Map,
    /// The program to run.
    Program,
    /// A place for a child.
    Child,
    /// The first message of a process, or of another program in it, or of one that has other ids now.
    Here,
    /// The first process has ended, with this status: to commit.
    End,
    /// Something was done that is not part of the transaction.
    Live,
    /// Something is written to what was open before the transaction.
    Output,
    /// The transaction can't go on, for the reason in the window.
    Fail,
    /// Whether a process is in the transaction.
    IsMember,
    /// To abort; whether the transaction is to begin again.
    Abort,
    /// To bind the socket beside it to the path in the window, or where that leads.
    Address,
    /// The process goes on outside of the transaction.
    Leave,
    /// Through the door ([`super::joining`]): to enter, with the socket and the working directory beside it.
    Join,
    /// What a process that joined had open before at a number, beside it: whether that is the transaction's from here on.
    Adopt,
    /// To hold a signal to a process outside until the commit: what is said of it in the window, what its descriptor is of beside it.
    Signal,
    /// Who is in a process group: the numbers of those in the transaction in the window, and behind them of the others.
    Group,
    /// Whether the dynamic linker would find other libraries in the transaction than outside of it.
    Libraries,
    /// To carry out a call about the attributes or names of a FIFO or device that the process has open, beside it. The call has it at
    /// [`SPECIAL`].
    Special,
    /// To open a file for a number that stands for its image ([`super::images`]).
    Reopen,
    /// The first process, whose transaction is being decided, is there.
    Ready,
}

impl Ask {
    fn of(word: u64) -> Option<Ask> {
        use Ask::{
            Abort, Address, Adopt, Call, Child, End, Fail, Group, Here, IsMember, Join, Leave,
            Libraries, Live, Map, Output, Program, Ready, Reopen, Signal, Special,
        };
        let all = [
            Call, Map, Program, Libraries, Child, Here, End, Live, Output, Fail, IsMember, Abort,
            Address, Leave, Join, Adopt, Signal, Group, Special, Reopen, Ready,
        ];
        all.into_iter().find(|ask| *ask as u64 == word)
    }
}

/// A request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    ask: u64,
    /// The number of the call.
    pub number: i64,
    /// Its arguments.
    pub words: [u64; 6],
    /// The number that what is opened gets; -1: none.
    pub chosen: i64,
}

impl Request {
    /// A request without arguments.
    pub fn new(ask: Ask, number: i64) -> Request {
        Request { ask: ask as u64, number, words: [0; 6], chosen: -1 }
    }

    /// The same, asked otherwise.
    pub fn of(self, ask: Ask) -> Request {
        Request { ask: ask as u64, ..self }
    }

    /// The same with arguments.
    pub fn with(self, words: [u64; 6]) -> Request {
        Request { words, ..self }
    }

    /// What is asked.
    pub fn ask(&self) -> Option<Ask> {
        Ask::of(self.ask)
    }
}

/// How a request was answered.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As the answer says.
    Done = 1,
    /// The same; the descriptors beside it are the process's, or are to be used once.
    WithDescriptors,
    /// By the process itself, with the path in the window.
    Yourself,
    /// The same call by the process itself, with the path in the window in place of the one that it has.
    Elsewhere,
    /// Not yet: to be asked again.
    Later,
    /// The transaction is over: the process ends with the answer as its status.
    Over,
    /// As the answer says; what is beside it the process has at the number that the call is about, and reads and writes it
    /// itself.
    Lent,
    /// Of the end of the first process: it says that it is there ([`Ask::Ready`]), and no signal ends it from then on.
    Deciding,
    /// And after that: the transaction is committed, and what was held is being sent. A signal ends the process again.
    Decided,
}

/// An answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    how: u64,
    /// As the kernel's.
    pub answer: i64,
    /// What else there is to say.
    pub more: [u64; 2],
}

impl Answer {
    /// An answer.
    pub fn new(how: How, answer: i64) -> Answer {
        Answer { how: how as u64, answer, more: [0; 2] }
    }

    /// How it was answered.
    pub fn how(&self) -> Option<How> {
        use How::{
            Decided, Deciding, Done, Elsewhere, Later, Lent, Over, WithDescriptors, Yourself,
        };
        let all =
            [Done, WithDescriptors, Yourself, Elsewhere, Later, Over, Lent, Deciding, Decided];
        all.into_iter().find(|how| *how as u64 == self.how)
    }
}

/// A message is one of these.
pub trait Message: Copy {}
impl Message for Request {}
impl Message for Answer {}

/// The number for what goes beside a call ([`Ask::Special`]). No process has so many.
pub const SPECIAL: i32 = SPACE - 1;

/// How many descriptors go beside a message at most.
pub const BESIDE: usize = 2;

#[repr(C, align(8))]
struct Control([u8; 128]);

/// Sends a message.
///
/// # Errors
/// As `sendmsg(2)`.
pub fn send<M: Message>(socket: i32, message: &M, beside: &[i32]) -> Sys<()> {
    send_with(socket, message, beside, 0)
}

/// Whether a message could not be sent because the other end is gone.
#[must_use]
pub fn is_end(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::CONNREFUSED)
}

/// Sends a message to somebody who may not take it, without a wait.
///
/// # Errors
/// As `sendmsg(2)`: EAGAIN if too much waits there already.
pub fn send_at_once<M: Message>(socket: i32, message: &M, beside: &[i32]) -> Sys<()> {
    send_with(socket, message, beside, libc::MSG_DONTWAIT)
}

fn send_with<M: Message>(socket: i32, message: &M, beside: &[i32], flags: i32) -> Sys<()> {
    let mut part = libc::iovec {
        iov_base: std::ptr::from_ref(message).cast_mut().cast(),
        iov_len: size_of::<M>(),
    };
    let mut control = Control([0; 128]);
    // SAFETY: zero is a value of all its fields.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if !beside.is_empty() {
        let size = size_of_val(beside);
        header.msg_control = (&raw mut control).cast();
        // SAFETY: the room is enough for the header and so many descriptors.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(size as u32) as usize;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size as u32) as usize;
            let to = libc::CMSG_DATA(first).cast::<i32>();
            std::ptr::copy_nonoverlapping(beside.as_ptr(), to, beside.len());
        }
    }
    let flags = libc::MSG_NOSIGNAL | flags;
    let words = [socket as u64, (&raw const header) as u64, flags as u64, 0, 0, 0];
    loop {
        // SAFETY: all that the header names lives until the answer.
        match check(unsafe { syscall(libc::SYS_sendmsg, words) }) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop),
        }
    }
}

/// Waits until there is a message at a socket, or its end; `false`: the process of a descriptor has ended, or it is not to wait
/// any longer, which is asked ten times a second.
pub fn await_message(socket: i32, process: i32, gives_up: impl Fn() -> bool) -> bool {
    let polled = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        let mut both = [polled(socket), polled(process)];
        let words = [both.as_mut_ptr() as u64, 2, 100, 0, 0, 0];
        // SAFETY: the kernel writes to the array, whose length it is told.
        unsafe { syscall(libc::SYS_poll, words) };
        if both[0].revents != 0 {
            return true;
        }
        if both[1].revents != 0 || gives_up() {
            return false;
        }
    }
}

/// What is sent to a socket from here on fails. What was sent before can still be received.
pub fn shut_to_senders(socket: i32) {
    let words = [socket as u64, libc::SHUT_RD as u64, 0, 0, 0, 0];
    // SAFETY: it has no pointers.
    unsafe { syscall(libc::SYS_shutdown, words) };
}

/// Whether nobody has the other end of a socket any more.
pub fn is_hung_up(socket: i32) -> bool {
    let mut polled = libc::pollfd { fd: socket, events: 0, revents: 0 };
    // SAFETY: the structure lives until the answer.
    unsafe { syscall(libc::SYS_poll, [(&raw mut polled) as u64, 1, 0, 0, 0, 0]) };
    polled.revents & (libc::POLLHUP | libc::POLLNVAL) != 0
}

/// Nothing goes through a socket any more, in neither direction: who waits for a message there learns that.
pub fn shut(socket: i32) {
    let words = [socket as u64, libc::SHUT_RDWR as u64, 0, 0, 0, 0];
    // SAFETY: it has no pointers.
    unsafe { syscall(libc::SYS_shutdown, words) };
}

/// Receives a message, and the descriptors beside it, with the close-on-exec flag. `None`: the other end is gone.
///
/// # Errors
/// As `recvmsg(2)`.
pub fn receive<M: Message>(socket: i32) -> Sys<Option<(M, [Option<i32>; BESIDE])>> {
    receive_from(socket)
        .map(|received| received.map(|Received { message, beside, .. }| (message, beside)))
}

/// A message, what goes beside it, and the process that the kernel names as its sender, if
/// [`ask_for_senders`] has asked for that.
#[derive(Debug)]
pub struct Received<M> {
    /// The message.
    pub message: M,
    /// Descriptors.
    pub beside: [Option<i32>; BESIDE],
    /// The sender's number.
    pub sender: Option<u32>,
    /// A descriptor that was sent could not be taken.
    pub lost: bool,
}

/// The kernel is to name the sender of each message.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn ask_for_senders(socket: i32) -> Sys<()> {
    let on = 1i32;
    let (level, option) = (libc::SOL_SOCKET as u64, libc::SO_PASSCRED as u64);
    let words = [socket as u64, level, option, (&raw const on) as u64, size_of::<i32>() as u64, 0];
    // SAFETY: the kernel reads the number.
    check(unsafe { syscall(libc::SYS_setsockopt, words) }).map(drop)
}

/// As [`receive`].
///
/// # Errors
/// As `recvmsg(2)`.
pub fn receive_from<M: Message>(socket: i32) -> Sys<Option<Received<M>>> {
    receive_with(socket, 0)
}

/// As [`receive_from`], of what is there already.
///
/// # Errors
/// As `recvmsg(2)`: EAGAIN if there is nothing.
pub fn receive_at_once<M: Message>(socket: i32) -> Sys<Option<Received<M>>> {
    receive_with(socket, libc::MSG_DONTWAIT)
}

fn receive_with<M: Message>(socket: i32, flags: i32) -> Sys<Option<Received<M>>> {
    let mut message = MaybeUninit::<M>::zeroed();
    let mut part = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: size_of::<M>() };
    let mut control = Control([0; 128]);
    // SAFETY: zero is a value of all its fields.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>();
    let flags = (libc::MSG_CMSG_CLOEXEC | flags) as u64;
    let words = [socket as u64, (&raw mut header) as u64, flags, 0, 0, 0];
    let size = loop {
        // SAFETY: all that the header names lives until the answer.
        match check(unsafe { syscall(libc::SYS_recvmsg, words) }) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => break 0,
            received => break received? as usize,
        }
    };
    let (mut beside, mut sender) = ([None; BESIDE], None);
    // SAFETY: the kernel has written the header and what it names.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(&raw const header);
        while !part.is_null() {
            let bytes = (*part).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let from = libc::CMSG_DATA(part).cast::<i32>();
            if (*part).cmsg_type == libc::SCM_RIGHTS {
                for at in 0..bytes / size_of::<i32>() {
                    let fd = from.add(at).read_unaligned();
                    match beside.iter_mut().find(|place| place.is_none()) {
                        Some(place) => *place = Some(fd),
                        None => crate::tx::kernel::close(fd),
                    }
                }
            }
            if (*part).cmsg_type == libc::SCM_CREDENTIALS && bytes >= size_of::<libc::ucred>() {
                sender = u32::try_from(from.cast::<libc::ucred>().read_unaligned().pid).ok();
            }
            part = libc::CMSG_NXTHDR(&raw const header, part);
        }
    }
    if size != size_of::<M>() {
        beside.into_iter().flatten().for_each(crate::tx::kernel::close);
        return Ok(None);
    }
    let lost = header.msg_flags & libc::MSG_CTRUNC != 0;
    // SAFETY: all of it was written, and every pattern of bits is one of it.
    Ok(Some(Received { message: unsafe { message.assume_init() }, beside, sender, lost }))
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A path that is looked up, which ends with a zero. Its directory is the argument before it, if that is a
    /// descriptor.
    Path,
    /// Other text that ends with a zero.
    Text,
    /// Bytes that the call reads; how many.
    In(Size),
    /// Bytes that the call writes; how many.
    Out(Size),
    /// Bytes that it reads and writes; how many.
    Both(Size),
}

/// How many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many.
    Of(usize),
    /// As many as another argument says.
    Word(usize),
}

/// A call's arguments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Which are descriptors.
    pub descriptors: &'static [usize],
    /// Which are addresses.
    pub parts: &'static [(usize, Part)],
    /// It opens something.
    pub opens: bool,
}

const fn shaped(descriptors: &'static [usize], parts: &'static [(usize, Part)]) -> Option<Shape> {
    Some(Shape { descriptors, parts, opens: false })
}

const fn opening(descriptors: &'static [usize], parts: &'static [(usize, Part)]) -> Option<Shape> {
    Some(Shape { descriptors, parts, opens: true })
}

/// The arguments of a call; `None`: it is not one that is sent.
pub fn shape(number: i64) -> Option<Shape> {
    use Part::{Both, In, Out, Path, Text};
    use Size::{Of, Word};
    const STAT: Part = Out(Of(size_of::<libc::stat>()));
    const STATX: Part = Out(Of(size_of::<libc::statx>()));
    const STATFS: Part = Out(Of(size_of::<libc::statfs>()));
    match number {
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_getdents | libc::SYS_getdents64 => {
            shaped(&[0], &[(1, Out(Word(2)))])
        }
        libc::SYS_write | libc::SYS_pwrite64 => shaped(&[0], &[(1, In(Word(2)))]),
        libc::SYS_open | libc::SYS_creat => opening(&[], &[(0, Path)]),
        libc::SYS_openat => opening(&[0], &[(1, Path)]),
        libc::SYS_openat2 => opening(&[0], &[(1, Path), (2, In(Word(3)))]),
        libc::SYS_close
        | libc::SYS_lseek
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_syncfs
        | libc::SYS_sync_file_range
        | libc::SYS_flock
        | libc::SYS_fchdir
        | libc::SYS_fchmod
        | libc::SYS_fchown
        | libc::SYS_fadvise64
        | libc::SYS_readahead => shaped(&[0], &[]),
        libc::SYS_copy_file_range => shaped(&[0, 2], &[(1, Both(Of(8))), (3, Both(Of(8)))]),
        libc::SYS_sendfile => shaped(&[0, 1], &[(2, Both(Of(8)))]),
        libc::SYS_sync | libc::SYS_umask => shaped(&[], &[]),
        libc::SYS_stat | libc::SYS_lstat => shaped(&[], &[(0, Path), (1, STAT)]),
        libc::SYS_fstat => shaped(&[0], &[(1, STAT)]),
        libc::SYS_newfstatat => shaped(&[0], &[(1, Path), (2, STAT)]),
        libc::SYS_statx => shaped(&[0], &[(1, Path), (4, STATX)]),
        libc::SYS_statfs => shaped(&[], &[(0, Path), (1, STATFS)]),
        libc::SYS_fstatfs => shaped(&[0], &[(1, STATFS)]),
        libc::SYS_access
        | libc::SYS_truncate
        | libc::SYS_chdir
        | libc::SYS_mkdir
        | libc::SYS_rmdir
        | libc::SYS_unlink
        | libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_lchown
        | libc::SYS_mknod
        | libc::SYS_chroot => shaped(&[], &[(0, Path)]),
        libc::SYS_rename | libc::SYS_link => shaped(&[], &[(0, Path), (1, Path)]),
        libc::SYS_symlink => shaped(&[], &[(0, Text), (1, Path)]),
        libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_mkdirat
        | libc::SYS_unlinkat
        | libc::SYS_fchmodat
        | libc::SYS_fchmodat2
        | libc::SYS_fchownat
        | libc::SYS_mknodat => shaped(&[0], &[(1, Path)]),
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => {
            shaped(&[0, 2], &[(1, Path), (3, Path)])
        }
        libc::SYS_symlinkat => shaped(&[1], &[(0, Text), (2, Path)]),
        libc::SYS_readlink => shaped(&[], &[(0, Path), (1, Out(Word(2)))]),
        libc::SYS_readlinkat => shaped(&[0], &[(1, Path), (2, Out(Word(3)))]),
        libc::SYS_getcwd => shaped(&[], &[(0, Out(Word(1)))]),
        libc::SYS_utime => shaped(&[], &[(0, Path), (1, In(Of(16)))]),
        libc::SYS_utimes => shaped(&[], &[(0, Path), (1, In(Of(32)))]),
        libc::SYS_futimesat | libc::SYS_utimensat => shaped(&[0], &[(1, Path), (2, In(Of(32)))]),
        libc::SYS_setxattr | libc::SYS_lsetxattr => {
            shaped(&[], &[(0, Path), (1, Text), (2, In(Word(3)))])
        }
        libc::SYS_fsetxattr => shaped(&[0], &[(1, Text), (2, In(Word(3)))]),
        libc::SYS_getxattr | libc::SYS_lgetxattr => {
            shaped(&[], &[(0, Path), (1, Text), (2, Out(Word(3)))])
        }
        libc::SYS_fgetxattr => shaped(&[0], &[(1, Text), (2, Out(Word(3)))]),
        libc::SYS_listxattr | libc::SYS_llistxattr => shaped(&[], &[(0, Path), (1, Out(Word(2)))]),
        libc::SYS_flistxattr => shaped(&[0], &[(1, Out(Word(2)))]),
        libc::SYS_removexattr | libc::SYS_lremovexattr => shaped(&[], &[(0, Path), (1, Text)]),
        libc::SYS_fremovexattr => shaped(&[0], &[(1, Text)]),
        _ => None,
    }
}

/// The same, of calls whose arguments depend on each other as well.
pub fn shape_with(number: i64, words: &[u64; 6]) -> Option<Shape> {
    const SIZE: Size = Size::Of(size_of::<libc::flock>());
    match (number, words[1] as i32) {
        (libc::SYS_fcntl, libc::F_GETLK | libc::F_OFD_GETLK) => {
            shaped(&[0], &[(2, Part::Both(SIZE))])
        }
        (
            libc::SYS_fcntl,
            libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW,
        ) => shaped(&[0], &[(2, Part::In(SIZE))]),
        (libc::SYS_fcntl, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => opening(&[0], &[]),
        (
            libc::SYS_fcntl,
            libc::F_GETFL
            | libc::F_SETFL
            | libc::F_GETFD
            | libc::F_SETFD
            | libc::F_GETLEASE
            | libc::F_GETOWN
            | libc::F_SETOWN
            | F_GETSIG
            | F_SETSIG
            | libc::F_GETPIPE_SZ
            | libc::F_GET_SEALS,
        ) => shaped(&[0], &[]),
        (libc::SYS_ioctl, _) => request(words[1] as u32),
        _ => shape(number),
    }
}

const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

/// Requests of `ioctl(2)` to a file or a directory, each with what the kernel writes there or reads, whatever size the request's
/// number tells.
static REQUESTS: [(u32, [(usize, Part); 1]); 13] = {
    const fn out(size: usize) -> [(usize, Part); 1] {
        [(2, Part::Out(Size::Of(size)))]
    }
    [
        (0x5421, [(2, Part::In(Size::Of(4)))]), // FIONBIO
        (1, [(2, Part::Both(Size::Of(4)))]),    // FIBMAP
        (0x541b, out(4)),                       // FIONREAD
        (2, out(4)),                            // FIGETBSZ
        (0x5460, out(8)),                       // FIOQSIZE
        (0x8008_6601, out(4)),                  // FS_IOC_GETFLAGS
        (0x8004_6601, out(4)),                  // the same of 32 bits
        (0x8008_7601, out(4)),                  // FS_IOC_GETVERSION
        (0x8004_7601, out(4)),                  // the same of 32 bits
        (0x801c_581f, out(28)),                 // FS_IOC_FSGETXATTR
        (0x8100_9431, out(256)),                // FS_IOC_GETFSLABEL
        (0x8011_1500, out(17)),                 // FS_IOC_GETFSUUID
        (0x8081_1501, out(129)),                // FS_IOC_GETFSSYSFSPATH
    ]
};

fn request(number: u32) -> Option<Shape> {
    let (_, parts) = REQUESTS.iter().find(|(known, _)| *known == number)?;
    shaped(&[0], parts)
}

/// What goes where in a window.
#[derive(Debug)]
pub struct Layout {
    next: usize,
    /// How much may still be left out for the sake of [`SECTOR`].
    spare: usize,
}

/// What is of whole sectors lies as a file that was opened with `O_DIRECT` may want it (open(2)).
const SECTOR: usize = 512;

impl Default for Layout {
    fn default() -> Layout {
        Layout { next: FIRST, spare: 32 << 10 }
    }
}

impl Layout {
    /// A place for so many bytes.
    ///
    /// # Errors
    /// E2BIG if they don't fit.
    pub fn place(&mut self, size: usize) -> Sys<usize> {
        let at = self.next;
        let end = at.checked_add(size).filter(|&end| end <= WINDOW).ok_or(Errno::TOOBIG)?;
        self.next = end.next_multiple_of(16);
        Ok(at)
    }

    /// A place for what is read or written.
    ///
    /// # Errors
    /// E2BIG if it does not fit.
    pub fn place_for_data(&mut self, size: usize) -> Sys<usize> {
        let gap = self.next.next_multiple_of(SECTOR) - self.next;
        if size != 0 && size.is_multiple_of(SECTOR) && gap <= self.spare {
            (self.next, self.spare) = (self.next + gap, self.spare - gap);
        }
        self.place(size)
    }
}

/// Whether so many bytes at a place are in a window.
pub fn is_inside(place: u64, size: u64) -> bool {
    place >= FIRST as u64 && place.checked_add(size).is_some_and(|end| end <= WINDOW as u64)
}

/// A new window: its descriptor.
///
/// # Errors
/// As `memfd_create(2)`.
pub fn new_window() -> Sys<i32> {
    sealed(c"txos window", WINDOW as u64, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)
}

/// A file that keeps a number, and holds nothing: its descriptor.
///
/// # Errors
/// As `memfd_create(2)`.
pub fn new_placeholder() -> Sys<i32> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    sealed(c"txos: open in a transaction", 0, seals)
}

/// Whether there is a placeholder at a number.
#[must_use]
pub fn is_placeholder(number: i32) -> bool {
    let name = crate::tx::kernel::path_of_fd(number);
    name.is_ok_and(|name| name == b"/memfd:txos: open in a transaction (deleted)")
}

fn sealed(name: &std::ffi::CStr, size: u64, seals: i32) -> Sys<i32> {
    let fd = new_file(name, size)?;
    seal(fd, seals)?;
    Ok(fd)
}

/// A file in memory, of a size in bytes, that can be sealed.
pub(super) fn new_file(name: &std::ffi::CStr, size: u64) -> Sys<i32> {
    let kind = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    // SAFETY: the name ends with its zero.
    let fd = check(unsafe {
        syscall(libc::SYS_memfd_create, [name.as_ptr() as u64, kind, 0, 0, 0, 0])
    })? as i32;
    crate::tx::kernel::ftruncate(fd, size)?;
    Ok(crate::tx::kernel::raised(fd))
}

/// Seals a file in memory for good.
pub(super) fn seal(fd: i32, seals: i32) -> Sys<()> {
    let seals = seals | libc::F_SEAL_SEAL;
    let words = [fd as u64, libc::F_ADD_SEALS as u64, seals as u64, 0, 0, 0];
    // SAFETY: it has no pointers.
    check(unsafe { syscall(libc::SYS_fcntl, words) }).map(drop)
}

/// Behind a window there is nothing: who reads text in it, whose end the other side may take away meanwhile, reads no
/// further.
const BEHIND: usize = 64 << 10;

/// Maps a window.
///
/// # Errors
/// As `mmap(2)`.
pub fn map_window(fd: i32) -> Sys<*mut u8> {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (all, none) = ((WINDOW + BEHIND) as u64, libc::PROT_NONE as u64);
    // SAFETY: it is mapped where nothing is.
    let place =
        check(unsafe { syscall(libc::SYS_mmap, [0, all, none, nothing as u64, u64::MAX, 0]) })?;
    let shared = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
    // SAFETY: it takes the place of a part of the mapping that was just made.
    let window = check(unsafe {
        syscall(libc::SYS_mmap, [place, WINDOW as u64, prot, shared, fd as u64, 0])
    });
    if window.is_err() {
        // SAFETY: nobody knows of it.
        unsafe { unmap_window(place as *mut u8) };
    }
    window.map(|at| at as *mut u8)
}

/// Maps the window of this process. A child does not inherit it, and the descriptor is not needed any longer.
///
/// # Errors
/// As `mmap(2)` and `madvise(2)`.
pub fn map_own_window(fd: i32) -> Sys<*mut u8> {
    let window = map_window(fd)?;
    let size = (WINDOW + BEHIND) as u64;
    let words = [window as u64, size, libc::MADV_DONTFORK as u64, 0, 0, 0];
    // SAFETY: it is about what was just mapped.
    let advised = check(unsafe { syscall(libc::SYS_madvise, words) });
    // SAFETY: nobody knows of it.
    advised.inspect_err(|_| unsafe { unmap_window(window) })?;
    Ok(window)
}

/// The word that says whether the transaction is over.
///
/// # Safety
/// The window is mapped as long as the reference lives.
pub unsafe fn is_over<'w>(window: *mut u8) -> &'w AtomicU32 {
    // SAFETY: it is in the window, which is aligned, and both sides use it like that.
    unsafe { &*window.cast::<AtomicU32>() }
}

/// The word that counts how often something was taken back that the server has lent ([`crate::tx::lending`]).
///
/// # Safety
/// The window is mapped as long as the reference lives.
pub unsafe fn epoch<'w>(window: *mut u8) -> &'w AtomicU32 {
    // SAFETY: it is in the window, which is aligned, and both sides use it like that.
    unsafe { &*window.cast::<AtomicU32>().add(1) }
}

/// The word that says for which questions of the process the table of answers counts ([`super::answers`]).
///
/// # Safety
/// The window is mapped as long as the reference lives.
pub unsafe fn standing<'w>(window: *mut u8) -> &'w AtomicU32 {
    // SAFETY: it is in the window, which is aligned, and both sides use it like that.
    unsafe { &*window.cast::<AtomicU32>().add(2) }
}

/// The word that says whether the process begins to run another program, into which the library is not loaded yet: 0, or a [`Loads`]. That program says
/// with [`Ask::Here`] that it is there, or has run without the library.
///
/// # Safety
/// The window is mapped as long as the reference lives.
pub unsafe fn becomes<'w>(window: *mut u8) -> &'w AtomicU32 {
    // SAFETY: it is in the window, which is aligned, and both sides use it like that.
    unsafe { &*window.cast::<AtomicU32>().add(3) }
}

/// How a program will have the library.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// The dynamic linker will load it, or end the process.
    Surely = 1,
    /// The program might go on without.
    Perhaps = 2,
}

/// What [`becomes`] holds of a process that ends because it can't ask any more: why is in the window, as a path would be.
pub const CANT_ASK: u32 = 3;

/// The word that is not zero once the server has heard the process, and has a descriptor of it.
///
/// # Safety
/// The window is mapped as long as the reference lives.
pub unsafe fn is_heard<'w>(window: *mut u8) -> &'w AtomicU32 {
    const { assert!(4 * (CLOSING_AT + CLOSING_WORDS + 1) <= MAILBOX_AT) };
    // SAFETY: it is in the window, which is aligned, and both sides use it like that.
    unsafe { &*window.cast::<AtomicU32>().add(CLOSING_AT + CLOSING_WORDS) }
}

/// The words about numbers that are closed later ([`super::closing`]).
///
/// # Safety
/// The window is mapped as long as the reference lives.
pub unsafe fn closing<'w>(window: *mut u8) -> &'w [AtomicU32; CLOSING_WORDS] {
    const { assert!(4 * (CLOSING_AT + CLOSING_WORDS) <= MAILBOX_AT) };
    // SAFETY: they are in the window, which is aligned, and both sides use them like that.
    unsafe { &*window.cast::<AtomicU32>().add(CLOSING_AT).cast() }
}

/// Unmaps one.
///
/// # Safety
/// Nobody uses it any more.
pub unsafe fn unmap_window(window: *mut u8) {
    // SAFETY: as the caller says.
    unsafe { syscall(libc::SYS_munmap, [window as u64, (WINDOW + BEHIND) as u64, 0, 0, 0, 0]) };
}

/// Two sockets that are connected, at high numbers.
///
/// # Errors
/// As `socketpair(2)`.
pub fn new_pair() -> Sys<[i32; 2]> {
    let mut pair = [-1i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let words = [libc::AF_UNIX as u64, kind as u64, 0, (&raw mut pair) as u64, 0, 0];
    // SAFETY: the kernel writes the two numbers.
    check(unsafe { syscall(libc::SYS_socketpair, words) })?;
    Ok(crate::tx::kernel::move_pair_high(pair)?.map(crate::tx::kernel::OwnedFd::into_number))
}

/// Whether this process has no room for another descriptor.
#[must_use]
pub fn is_full() -> bool {
    match crate::tx::kernel::duplicate(libc::STDERR_FILENO, 0, true) {
        Ok(fd) => {
            crate::tx::kernel::close(fd);
            false
        }
        Err(errno) => errno == Errno::MFILE,
    }
}

/// That the limit of descriptors is too low for the library, and what to do: for people. `who` needs more of them.
#[must_use]
pub fn too_few_descriptors(who: &str) -> String {
    let limit = crate::tx::kernel::descriptor_limit();
    format!(
        "the limit of open descriptors (`ulimit -n`: {limit}) is too low for {who}; raise it (`ulimit -n 1024`)"
    )
}

/// The reason for people.
pub fn words_of(errno: Errno) -> io::Error {
    io::Error::from(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_take_descriptors_along() {
        let [one, other] = new_pair().unwrap();
        let window = new_window().unwrap();
        let request = Request { chosen: 7, ..Request::new(Ask::Child, 5) };
        send(one, &request, &[window, one]).unwrap();
        let (got, beside) = receive::<Request>(other).unwrap().unwrap();
        assert_eq!((got.ask(), got.number, got.chosen), (Some(Ask::Child), 5, 7));
        let [Some(copy), Some(second)] = beside else { panic!("{beside:?}") };
        assert_eq!(crate::tx::kernel::look_fd(copy).unwrap().size, WINDOW as u64);
        for fd in [one, second, window, copy] {
            crate::tx::kernel::close(fd);
        }
        assert!(receive::<Request>(other).unwrap().is_none());
        crate::tx::kernel::close(other);
    }

    #[test]
    fn no_text_goes_on_behind_a_window() {
        let fd = new_window().unwrap();
        let window = map_window(fd).unwrap();
        let beside = map_window(fd).unwrap();
        // SAFETY: the bytes are in the window, to which there is no reference.
        let text = unsafe {
            window.add(WINDOW - 16).write_bytes(b'x', 16);
            crate::user::UserPtr::<u8>::new(window as u64 + WINDOW as u64 - 16)
        };
        assert_eq!(text.path(), Err(Errno::FAULT));
        // SAFETY: nobody uses them any more.
        unsafe {
            unmap_window(window);
            unmap_window(beside);
        }
        crate::tx::kernel::close(fd);
    }

    #[test]
    fn descriptors_that_nobody_expects_are_closed() {
        let [one, other] = new_pair().unwrap();
        let [end, held] = new_pair().unwrap();
        send(one, &Request::new(Ask::Child, 5), &[held, held, held, held, held]).unwrap();
        crate::tx::kernel::close(held);
        let (_, beside) = receive::<Request>(other).unwrap().unwrap();
        beside.into_iter().flatten().for_each(crate::tx::kernel::close);
        assert!(receive::<Request>(end).unwrap().is_none(), "one is still open");
        [one, other, end].into_iter().for_each(crate::tx::kernel::close);
    }

    #[test]
    fn who_takes_no_answers_is_not_waited_for() {
        let [one, other] = new_pair().unwrap();
        let sent =
            (0..1_000_000).find_map(|_| send_at_once(one, &Answer::new(How::Done, 0), &[]).err());
        assert_eq!(sent, Some(Errno::AGAIN));
        [one, other].into_iter().for_each(crate::tx::kernel::close);
    }

    #[test]
    fn places_are_inside() {
        let mut layout = Layout::default();
        let at = layout.place(5000).unwrap();
        assert!(is_inside(at as u64, 5000) && at > 0);
        assert_eq!(layout.place(WINDOW), Err(Errno::TOOBIG));
        for (place, size) in [(0, 1), (WINDOW as u64, 1), (u64::MAX, 2), (64, u64::MAX)] {
            assert!(!is_inside(place, size), "{place} {size}");
        }
    }

    #[test]
    fn what_is_sent_is_the_transactions() {
        use txos_calls::{Class, class};
        for number in 0..txos_calls::LAST {
            if let Some(shape) = shape(number) {
                let harmless = [libc::SYS_fadvise64, libc::SYS_readahead].contains(&number);
                assert!(class(number) == Class::Transactional || harmless, "{number}");
                assert!(shape.descriptors.iter().all(|i| shape.parts.iter().all(|p| p.0 != *i)));
            }
        }
    }
}
