//! A process whose transaction another process has.
#![allow(unsafe_code)] // the program's memory, windows, processes that begin to run

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use txos_engine::object::{FileId, FileKind};

use super::server;
use super::wire::{self, Answer, Ask, How, Part, Request, Shape, Size};
use crate::call::Call;
use crate::front::classify::Class;
use crate::front::entry::Regs;
use crate::front::process::Made;
use crate::front::report::reason;
use crate::front::session::{Next, Session};
use crate::front::signals::{self, Changed, Masks};
use crate::front::thread::{self, Thread};
use crate::front::tls::{Tls, here};
use crate::front::trap::Context;
use crate::front::{alloc, api, dispatch, in_process, members};
use crate::raw::{self, Errno, Sys, check, syscall};
use crate::tx::spaces::{Moved, Outlet};
use crate::tx::{self, Failure, How as Plan, kernel};
use crate::user::{UserPtr, UserSlice};

/// Says to a program which descriptor leads to its transaction.
pub const VARIABLE: &str = "TXOS_MEMBER";
/// How long a process waits before it asks again.
const NAP_NS: i64 = 1_000_000;
/// txos itself failed.
const FAILED: i32 = 125;

/// What a process has of its transaction; all its threads share it.
#[derive(Debug)]
pub struct Process {
    link: Mutex<Link>,
    window: *mut u8,
    /// It began the transaction.
    first: bool,
    /// What can't be part of the transaction ends it.
    strict: bool,
}

#[derive(Debug)]
struct Link {
    socket: i32,
    window: *mut u8,
    window_fd: i32,
    /// What keeps a number.
    placeholder: i32,
    space: i32,
    /// The numbers that are the transaction's.
    numbers: BTreeSet<i32>,
    /// What was open before the transaction, and others may read.
    outlets: Vec<Outlet>,
    /// User and groups.
    ids: members::Ids,
}

// SAFETY: the window belongs to the process, and who has the lock has the window.
unsafe impl Send for Link {}
// SAFETY: without the lock only the word is used that says whether the transaction is over.
unsafe impl Send for Process {}
// SAFETY: as above.
unsafe impl Sync for Process {}

/// What a child begins with.
#[derive(Debug)]
pub struct Child {
    socket: i32,
    window_fd: i32,
    space: i32,
    numbers: BTreeSet<i32>,
    outlets: Vec<Outlet>,
    /// The parent's, which are not the child's.
    parents: [i32; 2],
    placeholder: i32,
}

impl Process {
    /// Aborts the transaction, for all its processes.
    pub fn abort(&self) {
        self.link().ask_plainly(&Request::new(Ask::Abort, 0));
    }

    /// Whether the server has said that the transaction is over.
    fn is_over(&self) -> bool {
        // SAFETY: the window is mapped as long as the process is.
        unsafe { wire::is_over(self.window) }.load(Ordering::Acquire) != 0
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Sends a request, and waits for the answer. If the transaction is over the process ends.
    fn ask(&self, request: &Request) -> (Answer, [Option<i32>; 2]) {
        let _ = wire::send(self.socket, request, &[]);
        self.take_answer()
    }

    fn take_answer(&self) -> (Answer, [Option<i32>; 2]) {
        match wire::receive::<Answer>(self.socket) {
            Ok(Some((answer, beside))) if answer.how() == Some(How::Over) => {
                beside.into_iter().flatten().for_each(kernel::close);
                end(answer.answer as i32)
            }
            Ok(Some(answered)) => answered,
            _ => {
                api::tell(
                    "the process that has the transaction is gone, and with it the transaction: what is not \
                     published yet never will be (`txos recover` finishes what is)",
                );
                end(FAILED)
            }
        }
    }

    /// An answer to a request that takes nothing along.
    fn ask_plainly(&self, request: &Request) -> i64 {
        let (answer, beside) = self.ask(request);
        beside.into_iter().flatten().for_each(kernel::close);
        answer.answer
    }

    /// The lowest number that is free, kept by a placeholder.
    fn reserve(&self, least: i32, cloexec: bool) -> Sys<i32> {
        kernel::duplicate(self.placeholder, least, cloexec)
    }

    fn is_own(&self, number: i32) -> bool {
        number == self.socket || number == self.window_fd || number == self.placeholder
    }

    /// Whether a descriptor of a call is the transaction's.
    fn has_of_ours(&self, call: &Call) -> bool {
        txos_calls::descriptors(call.number()).any(|at| self.is_ours(call.int(at)))
    }

    fn is_ours(&self, number: i32) -> bool {
        self.numbers.contains(&number)
    }

    /// A path that the server has put into the window.
    fn path(&self, size: u64) -> Vec<u8> {
        let place = wire::Layout::default().place(0).unwrap_or(0);
        let size = (size as usize).min(wire::WINDOW - place);
        let mut bytes = vec![0; size];
        // SAFETY: it is inside, and the server is done with it.
        unsafe { std::ptr::copy(self.window.add(place), bytes.as_mut_ptr(), size) };
        bytes
    }

    /// Puts bytes into the window: where they are.
    fn put(&self, layout: &mut wire::Layout, bytes: &[u8]) -> Sys<usize> {
        let place = layout.place(bytes.len())?;
        // SAFETY: the place is inside, and the server does not look before it is asked.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.window.add(place), bytes.len()) };
        Ok(place)
    }

    /// Why the transaction can't go on.
    fn fail(&self, what: &str) {
        let mut request = Request::new(Ask::Fail, 0);
        if let Ok(place) = self.put(&mut wire::Layout::default(), what.as_bytes()) {
            request.words = [place as u64, what.len() as u64, 0, 0, 0, 0];
        }
        self.ask_plainly(&request);
    }

    /// Whether a message takes along what is open at a number of the transaction's.
    fn sends_ours(&self, call: &Call) -> bool {
        const HEADER: u64 = size_of::<libc::msghdr>() as u64;
        // `struct mmsghdr` is a header and a number.
        let (count, step) = match call.number() {
            libc::SYS_sendmmsg => (u64::from(call.uint(2)).min(1024), HEADER + 8),
            _ => (1, HEADER),
        };
        (0..count).any(|at| {
            // SAFETY: the program has given it for this call.
            let header = unsafe { UserPtr::<[u64; 7]>::new(call.word(1) + at * step) };
            let Ok(header) = header.read() else { return false };
            // SAFETY: as above.
            let control = unsafe { UserSlice::new(header[4], header[5].min(1 << 16)) };
            control.read().is_ok_and(|bytes| self.has_rights_of_ours(&bytes))
        })
    }

    fn has_rights_of_ours(&self, mut control: &[u8]) -> bool {
        const HEADER: usize = 16;
        while let Some((header, _)) = control.split_at_checked(HEADER) {
            let word = |at: usize| header[at..at + 4].try_into().map_or(0, i32::from_ne_bytes);
            let size = header[..8].try_into().map_or(0, usize::from_ne_bytes);
            let Some(all) = control.get(HEADER..size) else { return false };
            if (word(8), word(12)) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
                && all.as_chunks::<4>().0.iter().any(|n| self.is_ours(i32::from_ne_bytes(*n)))
            {
                return true;
            }
            control = control.get(size.next_multiple_of(8)..).unwrap_or_default();
        }
        false
    }

    /// Tells of what a call writes to something that was open before the transaction.
    fn note_output(&self, call: &Call) {
        let number = match call.number() {
            libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_sendfile
            | libc::SYS_vmsplice => call.int(0),
            libc::SYS_tee => call.int(1),
            libc::SYS_splice => call.int(2),
            _ => return,
        };
        if number <= libc::STDERR_FILENO || self.is_ours(number) {
            return;
        }
        let outlet = Outlet::of(number).filter(|outlet| self.outlets.contains(outlet));
        if let Some(outlet) = outlet {
            let mut request = Request::new(Ask::Output, call.number());
            request.words[0] = outlet.kind.into();
            self.ask_plainly(&request);
        }
    }

    /// Something is done that is not part of the transaction.
    fn live(&self, number: i64) {
        self.ask_plainly(&Request::new(Ask::Live, number));
    }
}

/// The process ends.
fn end(status: i32) -> ! {
    loop {
        // SAFETY: nothing comes after it.
        unsafe { syscall(libc::SYS_exit_group, [status as u64, 0, 0, 0, 0, 0]) };
    }
}

fn number_of_process() -> u64 {
    // SAFETY: it takes nothing.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as u64 }
}

/// What a process says of itself.
fn here_words(ids: &members::Ids, other_program: bool) -> [u64; 6] {
    [number_of_process(), other_program.into(), ids.word(), 0, 0, 0]
}

fn process_of(thread: &Thread) -> Option<Arc<Process>> {
    thread.session.as_ref()?.process.clone()
}

// --- The transaction moves ---------------------------------------------------------------------

/// Moves a command's transaction to a process of its own.
///
/// # Errors
/// Why that failed.
fn start(thread: &mut Thread) -> Result<Arc<Process>, String> {
    let failed = |what: &str, errno: Errno| format!("{what} failed: {}", wire::words_of(errno));
    let tx = thread.session.as_mut().and_then(|session| session.tx.as_deref_mut());
    let tx = tx.ok_or("there is no transaction")?;
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return Err(format!("the command has {threads} threads, of which only the first is in it"));
    }
    let moved = tx.numbers_to_move();
    let outlets: Vec<Outlet> = moved.iter().filter_map(Moved::outlet).collect();
    let placeholder = wire::new_placeholder().map_err(|e| failed("memfd_create", e))?;
    let window_fd = wire::new_window();
    let window_fd = window_fd.map_err(|e| failed("memfd_create", e))?;
    let window = wire::map_window(window_fd).map_err(|e| failed("mmap", e))?;
    let [socket, theirs] = wire::new_pair().map_err(|e| failed("socketpair", e))?;
    // No signal: the command does not know of this child, and does not wait for it.
    // SAFETY: the child is a copy that goes on here, on its own copy of this stack.
    let child = check(unsafe { syscall(libc::SYS_clone, [0; 6]) });
    if child.map_err(|e| failed("clone", e))? == 0 {
        alloc::after_fork();
        kernel::close(socket);
        server::run(thread, theirs, window_fd, &moved, outlets);
    }
    kernel::close(theirs);
    let answer = wire::receive::<Answer>(socket);
    let answer = answer.ok().flatten().map_or(-i64::from(libc::EIO), |(answer, _)| answer.answer);
    if answer != 0 {
        return Err(failed("moving it", Errno::from_raw_os_error(-answer as i32)));
    }
    let session = thread.session.as_mut().ok_or("there is no transaction")?;
    signals::let_all_in();
    (session.masks.live, session.masks.at_once) = (0, signals::SENT);
    here().at_once.set(session.masks.handled());
    let tx = session.tx.take();
    session.command = None;
    let numbers = take_numbers(placeholder, &moved);
    if let Some(tx) = tx {
        tx.private_numbers().into_iter().for_each(kernel::close);
        // It is the server's now.
        std::mem::forget(tx);
    }
    let ids = members::Ids::now();
    let link = Link { socket, window, window_fd, placeholder, space: 0, numbers, outlets, ids };
    let strict = session.plan.flags & tx::flags::STRICT != 0;
    let process = Arc::new(Process { link: Mutex::new(link), window, first: true, strict });
    session.process = Some(Arc::clone(&process));
    Ok(process)
}

/// The kernel's table becomes what the program has seen, with placeholders for what is the transaction's.
fn take_numbers(placeholder: i32, moved: &[Moved]) -> BTreeSet<i32> {
    let mut numbers = BTreeSet::new();
    for entry in moved {
        match *entry {
            Moved::Closed { number } => kernel::close(number),
            Moved::Ours { number, cloexec } => {
                let _ = kernel::dup3(placeholder, number, cloexec);
                numbers.insert(number);
            }
            Moved::Kernels { number, real, cloexec, .. } if real != number => {
                let _ = kernel::dup3(real, number, cloexec);
            }
            Moved::Kernels { .. } => {}
        }
    }
    numbers
}

// --- A call ------------------------------------------------------------------------------------

/// Carries out a call of a process of the transaction.
pub fn dispatch(
    thread: &mut Thread,
    call: &Call,
    class: Class,
    context: Option<&mut Context>,
) -> Next {
    let Some(process) = process_of(thread) else {
        return Next::Answer(-i64::from(libc::ECANCELED));
    };
    if process.is_over() {
        // It has said so in an answer, too, with the status to end with.
        process.link().ask_plainly(&Request::new(Ask::IsMember, 0));
    }
    match (class, context) {
        (Class::Exit | Class::ExitGroup, _) => exit(thread, &process, call, class),
        (Class::Exec, _) => exec(thread, &process, call),
        (Class::Suspend, _) => {
            let mask = mask_of(thread);
            let size = size_of::<signals::Set>() as u64;
            let words = [(&raw const mask) as u64, size, 0, 0, 0, 0];
            Next::Answer(match call.number() {
                libc::SYS_pause => {
                    // SAFETY: the set lives until the answer.
                    let call = unsafe { Call::new(libc::SYS_rt_sigsuspend, words) };
                    thread::make_in_program(here(), mask, &call)
                }
                _ => thread::make_in_program(here(), mask, call),
            })
        }
        (Class::Wait, _) => Next::Answer(thread::make_in_program(here(), mask_of(thread), call)),
        (Class::Harmless, _) if may_wait(call.number()) => {
            Next::Answer(thread::make_in_program(here(), mask_of(thread), call))
        }
        (Class::Prctl, _) if call.word(0) == thread::PR_SET_SYSCALL_USER_DISPATCH => {
            Next::Answer(-i64::from(libc::EBUSY))
        }
        // A filter could refuse what the library needs.
        (Class::Prctl, _) if call.word(0) == libc::PR_SET_SECCOMP as u64 => {
            Next::Answer(-i64::from(libc::EINVAL))
        }
        (Class::Prctl, _) => Next::Answer(call.make()),
        (
            Class::Transactional
            | Class::Descriptor
            | Class::Passed(_)
            | Class::Refused(..)
            | Class::Unknown
            | Class::Map,
            _,
        ) => {
            let mut done = carry_out(&process, call, class);
            while let Ok(Done::Later) = done {
                let mut time = libc::timespec { tv_sec: 0, tv_nsec: NAP_NS };
                let words = [(&raw mut time) as u64, 0, 0, 0, 0, 0];
                // SAFETY: the time lives until the answer.
                let nap = unsafe { Call::new(libc::SYS_nanosleep, words) };
                done = match thread::make_in_program(here(), mask_of(thread), &nap) {
                    0 => carry_out(&process, call, class),
                    error => check(error).map(|_| Done::Answer(0)),
                };
            }
            let answer = match done {
                Ok(Done::Answer(answer)) => Ok(answer as u64),
                Ok(Done::LiveAfter) => {
                    let answer = thread::make_in_program(here(), mask_of(thread), call);
                    if answer >= 0 {
                        process.link().live(call.number());
                    }
                    check(answer)
                }
                Ok(Done::Natively) if may_wait(call.number()) => {
                    check(thread::make_in_program(here(), mask_of(thread), call))
                }
                Ok(Done::Natively) => call.answer(),
                Ok(Done::Open(path, flags)) => {
                    let mode = 0;
                    let words =
                        [libc::AT_FDCWD as u64, path.as_ptr() as u64, flags as u64, mode, 0, 0];
                    // SAFETY: the path lives until the answer.
                    let call = unsafe { Call::new(libc::SYS_openat, words) };
                    check(thread::make_in_program(here(), mask_of(thread), &call))
                }
                Ok(Done::Later) => Err(Errno::AGAIN),
                Err(errno) => Err(errno),
            };
            Next::Answer(raw::answer(answer))
        }
        (class, context) => dispatch::by_class(thread, call, class, context),
    }
}

/// How a call ends.
enum Done {
    Answer(i64),
    /// The kernel's answer is the program's.
    Natively,
    /// The same; if it succeeds, it is live.
    LiveAfter,
    /// The process opens this, and may wait for its other end.
    Open(Vec<u8>, i32),
    /// It is to be asked again.
    Later,
}

fn mask_of(thread: &Thread) -> signals::Set {
    thread.session.as_ref().map_or(0, |session| session.masks.real())
}

/// Whether a call may wait, so that a signal is to end it.
fn may_wait(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_splice
            | libc::SYS_tee
            | libc::SYS_vmsplice
            | libc::SYS_sendfile
            | libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_fcntl
            | libc::SYS_flock
            | libc::SYS_ioctl
            | libc::SYS_poll
            | libc::SYS_ppoll
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_futex
            | libc::SYS_futex_waitv
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_semtimedop
            | libc::SYS_connect
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_kill
            | libc::SYS_tkill
            | libc::SYS_tgkill
            | libc::SYS_rt_sigqueueinfo
    )
}

fn carry_out(process: &Process, call: &Call, class: Class) -> Sys<Done> {
    let answered = |answer: Sys<i64>| answer.map(Done::Answer);
    let int = |i: usize| call.int(i);
    let number = call.number();
    let mut link = process.link();
    if !link.outlets.is_empty() {
        link.note_output(call);
    }
    if matches!(number, libc::SYS_sendmsg | libc::SYS_sendmmsg) && link.sends_ours(call) {
        link.fail("a process of the command sends an open file of the transaction to another one");
    }
    match number {
        libc::SYS_close => answered(close(&mut link, call)),
        libc::SYS_close_range => answered(close_range(&mut link, call)),
        libc::SYS_dup if link.is_ours(int(0)) => answered(duplicate(&mut link, int(0), 0, false)),
        libc::SYS_dup2 if int(0) == int(1) => Ok(Done::Natively),
        libc::SYS_dup3 if int(0) == int(1) || int(2) & !libc::O_CLOEXEC != 0 => Err(Errno::INVAL),
        libc::SYS_dup2 => answered(duplicate_to(&mut link, call, false)),
        libc::SYS_dup3 => answered(duplicate_to(&mut link, call, int(2) & libc::O_CLOEXEC != 0)),
        libc::SYS_fcntl if link.is_ours(int(0)) => match int(1) {
            libc::F_DUPFD => answered(duplicate(&mut link, int(0), int(2), false)),
            libc::F_DUPFD_CLOEXEC => answered(duplicate(&mut link, int(0), int(2), true)),
            libc::F_SETFD => {
                let flag = int(2) & libc::FD_CLOEXEC != 0;
                kernel::set_close_on_exec(int(0), flag)?;
                drop(link);
                by_shape(process, call)
            }
            _ => {
                drop(link);
                by_shape(process, call)
            }
        },
        libc::SYS_ioctl if link.is_ours(int(0)) => match call.word(1) {
            on @ (libc::FIOCLEX | libc::FIONCLEX) => {
                let on = on == libc::FIOCLEX;
                kernel::set_close_on_exec(int(0), on)?;
                drop(link);
                let words = [call.word(0), libc::F_SETFD as u64, on.into(), 0, 0, 0];
                // SAFETY: it has no pointers.
                by_shape(process, &unsafe { Call::new(libc::SYS_fcntl, words) })
            }
            _ if wire::shape_with(number, call.words()).is_some() => {
                drop(link);
                by_shape(process, call)
            }
            _ => Err(Errno::NOTTY),
        },
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 if link.is_ours(int(0)) => {
            drop(link);
            answered(in_parts(process, call, false))
        }
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 if link.is_ours(int(0)) => {
            drop(link);
            answered(in_parts(process, call, true))
        }
        libc::SYS_mmap if link.is_ours(int(4)) => answered(map(&link, call)),
        libc::SYS_umask => {
            // For what the process makes itself.
            kernel::set_umask(call.uint(0) & 0o777);
            drop(link);
            by_shape(process, call)
        }
        // Programs go on with reads and writes.
        libc::SYS_copy_file_range if link.is_ours(int(0)) != link.is_ours(int(2)) => {
            let other = if link.is_ours(int(0)) { int(2) } else { int(0) };
            let is_file = kernel::look_fd(other)?.kind() == FileKind::File;
            Err(if is_file { Errno::XDEV } else { Errno::INVAL })
        }
        libc::SYS_splice if link.is_ours(int(0)) || link.is_ours(int(2)) => Err(Errno::INVAL),
        libc::SYS_sendfile if link.is_ours(int(0)) != link.is_ours(int(1)) => Err(Errno::INVAL),
        _ => match class {
            Class::Passed(_) => passed(process, &link, call),
            Class::Refused(..) => {
                let request = Request::new(Ask::Call, number);
                answered(answer_of(link.ask_plainly(&request)))
            }
            Class::Unknown => Err(Errno::NOSYS),
            _ => {
                drop(link);
                by_shape(process, call)
            }
        },
    }
}

fn answer_of(answer: i64) -> Sys<i64> {
    check(answer).map(|n| n as i64)
}

/// What others may see at once.
fn passed(process: &Process, link: &Link, call: &Call) -> Sys<Done> {
    let number = call.number();
    let own = || u64::from(call.uint(0)) == number_of_process();
    let only_own = match number {
        libc::SYS_setpgid | libc::SYS_sched_setaffinity | libc::SYS_prlimit64 => {
            let mut request = Request::new(Ask::IsMember, number);
            request.words[0] = u64::from(call.uint(0));
            call.uint(0) == 0 || own() || link.ask_plainly(&request) == 1
        }
        libc::SYS_setsid | libc::SYS_setrlimit => true,
        libc::SYS_setpriority => call.word(0) == 0 && call.word(1) == 0,
        libc::SYS_kill | libc::SYS_tgkill | libc::SYS_rt_sigqueueinfo => {
            let mut request = Request::new(Ask::IsMember, number);
            request.words[0] = u64::from(call.uint(0));
            call.int(0) > 0 && (own() || link.ask_plainly(&request) == 1)
        }
        _ => txos_calls::only_asks(number, call.words()),
    };
    if only_own {
        return Ok(Done::Natively);
    }
    if matches!(number, libc::SYS_unshare | libc::SYS_setns) {
        link.fail("a process of the command is to have other namespaces");
    }
    // Nobody may be there to connect to.
    let is_told_after = number == libc::SYS_connect && !process.strict;
    if !is_told_after {
        link.live(number);
    }
    if is_told_after {
        return Ok(Done::LiveAfter);
    }
    if !takes_rights(number) {
        return Ok(Done::Natively);
    }
    let answer = answer_of(call.make());
    if answer.is_ok() && members::Ids::now() != link.ids {
        link.fail("a process of the command has taken another user, other groups or capabilities");
    }
    answer.map(Done::Answer)
}

/// Whether a call may change user, groups or capabilities.
fn takes_rights(number: i64) -> bool {
    txos_calls::row(number).is_some_and(|row| matches!(row.handler, txos_calls::Handler::NewIds(_)))
}

fn close(link: &mut Link, call: &Call) -> Sys<i64> {
    let number = call.int(0);
    if link.is_own(number) {
        return Err(Errno::BADF);
    }
    if !link.numbers.remove(&number) {
        return answer_of(call.make());
    }
    let mut request = Request::new(Ask::Call, libc::SYS_close);
    request.words[0] = number as u64;
    let answer = link.ask_plainly(&request);
    kernel::close(number);
    answer_of(answer)
}

fn close_range(link: &mut Link, call: &Call) -> Sys<i64> {
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    let (first, last, flags) = (call.uint(0), call.uint(1), call.uint(2));
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
        return Err(Errno::INVAL);
    }
    let open = kernel::open_numbers()?.into_iter();
    for number in open.filter(|n| (first..=last).contains(&n.cast_unsigned())) {
        if link.is_own(number) {
            continue;
        }
        if flags & CLOEXEC != 0 {
            kernel::set_close_on_exec(number, true)?;
            if link.is_ours(number) {
                let mut request = Request::new(Ask::Call, libc::SYS_fcntl);
                request.words = [number as u64, libc::F_SETFD as u64, 1, 0, 0, 0];
                link.ask_plainly(&request);
            }
            continue;
        }
        // SAFETY: it has no pointers.
        let one = unsafe { Call::new(libc::SYS_close, [number as u64, 0, 0, 0, 0, 0]) };
        let _ = close(link, &one);
    }
    Ok(0)
}

/// A second number for one of the transaction's.
fn duplicate(link: &mut Link, number: i32, least: i32, cloexec: bool) -> Sys<i64> {
    if !(0..kernel::descriptor_limit()).contains(&least) {
        return Err(Errno::INVAL);
    }
    let new = link.reserve(least, cloexec)?;
    stand_for(link, number, new, cloexec)
}

/// The server has a new number stand for what another one does.
fn stand_for(link: &mut Link, number: i32, new: i32, cloexec: bool) -> Sys<i64> {
    let how = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let mut request = Request::new(Ask::Call, libc::SYS_fcntl);
    request.words = [number as u64, how as u64, 0, 0, 0, 0];
    request.chosen = new.into();
    match answer_of(link.ask_plainly(&request)) {
        Ok(_) => {
            link.numbers.insert(new);
            Ok(new.into())
        }
        Err(errno) => {
            kernel::close(new);
            Err(errno)
        }
    }
}

/// `dup2(2)`, `dup3(2)`.
fn duplicate_to(link: &mut Link, call: &Call, cloexec: bool) -> Sys<i64> {
    let (number, target) = (call.int(0), call.int(1));
    if link.is_own(number) || link.is_own(target) {
        return Err(Errno::BADF);
    }
    let ours = link.is_ours(number);
    if !ours {
        // Whether there is one, the kernel knows.
        kernel::close_on_exec(number)?;
    }
    if !(0..kernel::descriptor_limit()).contains(&target) {
        return Err(Errno::BADF);
    }
    if link.numbers.remove(&target) {
        let mut request = Request::new(Ask::Call, libc::SYS_close);
        request.words[0] = target as u64;
        link.ask_plainly(&request);
    }
    if !ours {
        return answer_of(call.make());
    }
    kernel::dup3(link.placeholder, target, cloexec)?;
    stand_for(link, number, target, cloexec)
}

/// A file of the transaction's is mapped.
fn map(link: &Link, call: &Call) -> Sys<i64> {
    let request = Request::new(Ask::Map, libc::SYS_mmap).with(*call.words());
    let (answer, beside) = link.ask(&request);
    let [Some(fd), _] = beside else { return answer_of(answer.answer.min(-1)) };
    let answer = call.with_descriptor(4, fd).make();
    kernel::close(fd);
    answer_of(answer)
}

/// A read or write of several buffers, one after the other.
fn in_parts(process: &Process, call: &Call, writes: bool) -> Sys<i64> {
    let at_place = call.number() != libc::SYS_readv && call.number() != libc::SYS_writev;
    if matches!(call.number(), libc::SYS_preadv2 | libc::SYS_pwritev2) && call.word(5) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let mut place = at_place.then(|| call.long(3)).filter(|&place| place != -1);
    if call.word(2) > 1024 {
        return Err(Errno::INVAL);
    }
    let parts = call.pointer::<[u64; 2]>(1);
    let mut all = Vec::new();
    for at in 0..call.word(2) {
        all.push(parts.item(at).read()?);
    }
    let sum = all.iter().fold(0_u64, |sum, part| sum.saturating_add(part[1]));
    if sum <= wire::BYTES as u64 {
        return at_once(process, call, &all, place, writes);
    }
    let mut total = 0;
    for [base, size] in all {
        if size == 0 {
            continue;
        }
        let words = [call.word(0), base, size, place.unwrap_or(0) as u64, 0, 0];
        // SAFETY: the buffer is one of the program's, for this.
        let done = by_shape(process, &unsafe { Call::new(plain(place, writes), words) });
        match done {
            Ok(Done::Answer(done)) => {
                total += done;
                place = place.map(|place| place + done);
                if done.cast_unsigned() < size {
                    break;
                }
            }
            Err(errno) if total == 0 => return Err(errno),
            _ => break,
        }
    }
    Ok(total)
}

/// The call with one buffer.
fn plain(place: Option<i64>, writes: bool) -> i64 {
    match (place.is_some(), writes) {
        (false, false) => libc::SYS_read,
        (false, true) => libc::SYS_write,
        (true, false) => libc::SYS_pread64,
        (true, true) => libc::SYS_pwrite64,
    }
}

/// A read or write of several buffers that fit into the window together: one call.
fn at_once(
    process: &Process,
    call: &Call,
    parts: &[[u64; 2]],
    place: Option<i64>,
    writes: bool,
) -> Sys<i64> {
    // SAFETY: the buffers are the program's, for this.
    let part = |[base, size]: [u64; 2]| unsafe { UserSlice::new(base, size) };
    let mut bytes = Vec::new();
    if writes {
        for &given in parts {
            bytes.extend(part(given).read()?);
        }
    } else {
        bytes.resize(parts.iter().map(|part| part[1] as usize).sum(), 0);
    }
    let (at, size) = (bytes.as_mut_ptr() as u64, bytes.len() as u64);
    let words = [call.word(0), at, size, place.unwrap_or(0) as u64, 0, 0];
    // SAFETY: the buffer lives until the answer, and nobody has a reference to it meanwhile.
    let done = by_shape(process, &unsafe { Call::new(plain(place, writes), words) })?;
    let Done::Answer(done) = done else { return Err(Errno::IO) };
    if !writes {
        let mut rest = &bytes[..(done as usize).min(bytes.len())];
        for &given in parts {
            let (now, later) = rest.split_at(rest.len().min(given[1] as usize));
            part(given).write(now)?;
            rest = later;
        }
    }
    Ok(done)
}

/// A call whose arguments go through the window; or the kernel's own, if it concerns nothing of the transaction's.
fn by_shape(process: &Process, call: &Call) -> Sys<Done> {
    let number = call.number();
    let Some(shape) = wire::shape_with(number, call.words()) else {
        return match txos_calls::class(number) {
            // There is no way for its arguments; programs go on with older ones.
            Class::Transactional if is_local(number) => Ok(Done::Natively),
            Class::Transactional if txos_calls::descriptors(number).next().is_none() => {
                Err(Errno::NOSYS)
            }
            _ if process.link().has_of_ours(call) => Err(Errno::INVAL),
            _ => Ok(Done::Natively),
        };
    };
    if places(&process.link(), call, &shape)?.is_none() {
        return Ok(Done::Natively);
    }
    let reads = matches!(number, libc::SYS_read | libc::SYS_pread64);
    let writes = matches!(number, libc::SYS_write | libc::SYS_pwrite64);
    if !(reads || writes) || call.word(2) <= wire::BYTES as u64 {
        return once(process, call, &shape);
    }
    // More than the window holds.
    let (mut done, all) = (0_u64, call.word(2).min(0x7fff_f000));
    while done < all {
        let size = (all - done).min(wire::BYTES as u64);
        let mut words = *call.words();
        words[1] += done;
        words[2] = size;
        if matches!(number, libc::SYS_pread64 | libc::SYS_pwrite64) {
            words[3] += done;
        }
        // SAFETY: a part of the program's buffer.
        match once(process, &unsafe { Call::new(number, words) }, &shape) {
            Ok(Done::Answer(moved)) => {
                done += moved.cast_unsigned();
                if moved.cast_unsigned() < size {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            _ => break,
        }
    }
    Ok(Done::Answer(done as i64))
}

/// Calls that make descriptors of the kernel's, or are about them.
fn is_local(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_pipe
            | libc::SYS_pipe2
            | libc::SYS_socket
            | libc::SYS_socketpair
            | libc::SYS_dup
            | libc::SYS_ioctl
    )
}

fn once(process: &Process, call: &Call, shape: &Shape) -> Sys<Done> {
    let mut link = process.link();
    match places(&link, call, shape)? {
        Some(places) => asked(&mut link, call, shape, &places),
        None => Ok(Done::Natively),
    }
}

/// Where the server looks a path up: the argument with the path, that with its directory, both as the server is to
/// see them.
struct Place {
    path_at: usize,
    dir_at: Option<usize>,
    dir: i32,
    path: Vec<u8>,
}

/// Where the server looks the paths of a call up. `None`: the call is the kernel's.
fn places(link: &Link, call: &Call, shape: &Shape) -> Sys<Option<Vec<Place>>> {
    let mut places = Vec::new();
    let (mut natively, mut missing) = (0, None);
    for &(path_at, part) in shape.parts {
        if part != Part::Path || call.word(path_at) == 0 {
            continue;
        }
        let dir_at = path_at.checked_sub(1).filter(|at| shape.descriptors.contains(at));
        let dir = dir_at.map_or(libc::AT_FDCWD, |at| call.int(at));
        match look_up(link, call.number(), dir, call.path(path_at)?) {
            Some((dir, path)) => places.push(Place { path_at, dir_at, dir, path }),
            None => {
                natively += 1;
                missing = missing.or(kernel::statx(dir, &call.path(path_at)?, 0).err());
            }
        }
    }
    // Descriptors without a path.
    for &at in shape.descriptors {
        let has_path = shape.parts.iter().any(|&(path_at, part)| {
            part == Part::Path && path_at == at + 1 && call.word(path_at) != 0
        });
        if !has_path && call.int(at) != libc::AT_FDCWD && !link.is_ours(call.int(at)) {
            natively += 1;
        }
    }
    match (natively, places.is_empty()) {
        (0, _) => Ok(Some(places)),
        (_, true) => Ok(None),
        // One path leads to the transaction, another one elsewhere.
        _ => Err(missing.unwrap_or(Errno::XDEV)),
    }
}

/// Directory and path for the server; `None`: it is the kernel's.
fn look_up(link: &Link, number: i64, dir: i32, path: Vec<u8>) -> Option<(i32, Vec<u8>)> {
    if !path.starts_with(b"/") {
        if dir < 0 || link.is_ours(dir) {
            return Some((dir, path));
        }
        return below(dir, path);
    }
    let mut parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    parts.retain(|part| !matches!(*part, b"" | b"."));
    let own = number_of_process().to_string();
    let is_own = |name: &[u8]| name == b"self" || name == b"thread-self" || name == own.as_bytes();
    let rest = match parts[..] {
        [b"dev", b"tty"] => return None,
        [b"dev", b"stdin"] => vec![&b"fd"[..], b"0"],
        [b"dev", b"stdout"] => vec![&b"fd"[..], b"1"],
        [b"dev", b"stderr"] => vec![&b"fd"[..], b"2"],
        [b"dev", b"fd", ref rest @ ..] => [&[&b"fd"[..]], rest].concat(),
        [b"proc", name, ref rest @ ..] if is_own(name) => rest.to_vec(),
        _ => return Some((dir, path)),
    };
    let joined = |parts: &[&[u8]]| parts.join(&b'/');
    let of_number = || {
        let place = [&b"proc"[..], own.as_bytes()];
        let all = [&place[..], &rest[..]].concat();
        (dir, [&b"/"[..], &joined(&all)].concat())
    };
    let is_ours = |name: &[u8]| {
        let text = std::str::from_utf8(name).ok()?;
        text.parse().ok().filter(|number| link.is_ours(*number))
    };
    if matches!(number, libc::SYS_chdir | libc::SYS_chroot) {
        return Some(of_number());
    }
    match rest[..] {
        [b"fd", name] => {
            is_ours(name).map(|n| (dir, format!("/proc/self/fd/{}", link.space + n).into_bytes()))
        }
        [b"cwd", ref rest @ ..] if !rest.is_empty() => Some((libc::AT_FDCWD, joined(rest))),
        [b"root", ref rest @ ..] if !rest.is_empty() => {
            Some((dir, [&b"/"[..], &joined(rest)].concat()))
        }
        [b"fd", name, ref rest @ ..] => match is_ours(name) {
            Some(number) => Some((number, joined(rest))),
            None => below(std::str::from_utf8(name).ok()?.parse().ok()?, joined(rest)),
        },
        _ if rest.contains(&&b".."[..]) => Some(of_number()),
        _ if rest.len() > 2 && rest[0] == b"task" => Some(of_number()),
        _ => None,
    }
}

/// A path below a directory that is open at a number of the kernel's.
fn below(dir: i32, path: Vec<u8>) -> Option<(i32, Vec<u8>)> {
    let upwards = path.split(|&byte| byte == b'/').any(|part| part == b"..");
    let start = kernel::path_of_fd(dir).ok().filter(|start| start.starts_with(b"/"))?;
    let kernels = [&b"/proc/"[..], b"/sys/", b"/dev/"].iter().any(|k| start.starts_with(k));
    if path.is_empty() || kernels && !upwards {
        return None;
    }
    Some((libc::AT_FDCWD, [&start[..], b"/", &path].concat()))
}

/// Asks once.
fn asked(link: &mut Link, call: &Call, shape: &Shape, places: &[Place]) -> Sys<Done> {
    let number = call.number();
    let mut layout = wire::Layout::default();
    let mut request = Request::new(Ask::Call, number).with(*call.words());
    for &(at, part) in shape.parts {
        if call.word(at) == 0 {
            continue;
        }
        let size = |size: Size| match size {
            Size::Of(size) => size,
            Size::Word(word) => (call.word(word) as usize).min(wire::BYTES),
        };
        let place = match part {
            Part::Path => {
                let place = places.iter().find(|place| place.path_at == at).ok_or(Errno::IO)?;
                match place.dir_at {
                    Some(dir_at) => request.words[dir_at] = place.dir as u64,
                    None if place.dir == libc::AT_FDCWD => {}
                    None => return Err(Errno::NOTDIR),
                }
                let path = [&place.path[..], b"\0"].concat();
                link.put(&mut layout, &path)?
            }
            Part::Text => {
                let mut text = call.path(at)?;
                text.push(0);
                link.put(&mut layout, &text)?
            }
            Part::In(bytes) | Part::Both(bytes) => {
                let size = size(bytes);
                let given = call.buffer(at, size as u64).readable()?;
                if given.len() < size {
                    return Err(Errno::FAULT);
                }
                let place = layout.place(size)?;
                // SAFETY: the place is inside, and nobody has a reference to it.
                let room = unsafe { std::slice::from_raw_parts_mut(link.window.add(place), size) };
                given.copy(0, room);
                place
            }
            Part::Out(bytes) => layout.place(size(bytes))?,
        };
        if let Part::In(Size::Word(word)) | Part::Out(Size::Word(word)) = part {
            request.words[word] = (call.word(word)).min(wire::BYTES as u64);
        }
        request.words[at] = place as u64;
    }
    let cloexec = shape.opens && opens_for_itself(call);
    let chosen = if shape.opens { Some(link.reserve(0, cloexec)?) } else { None };
    request.chosen = chosen.map_or(-1, i64::from);
    let (answer, beside) = link.ask(&request);
    match (answer.how(), chosen) {
        (Some(How::Later), chosen) => {
            chosen.into_iter().for_each(kernel::close);
            return Ok(Done::Later);
        }
        (Some(How::WithDescriptors), Some(chosen)) => {
            let [Some(fd), _] = beside else { return Err(Errno::IO) };
            let moved = kernel::dup3(fd, chosen, cloexec);
            kernel::close(fd);
            return moved.map(|_| Done::Answer(chosen.into()));
        }
        (Some(How::Yourself), Some(chosen)) => {
            kernel::close(chosen);
            let (mut path, flags) = (link.path(answer.more[0]), answer.more[1] as i32);
            path.push(0);
            if flags & libc::O_ACCMODE != libc::O_RDONLY {
                let mut request = Request::new(Ask::Output, number);
                request.words[0] = libc::S_IFIFO.into();
                link.ask_plainly(&request);
            }
            return Ok(Done::Open(path, flags));
        }
        _ => {}
    }
    let answered = answer_of(answer.answer);
    match (chosen, &answered) {
        (Some(chosen), Ok(_)) => {
            link.numbers.insert(chosen);
            return Ok(Done::Answer(chosen.into()));
        }
        (Some(chosen), Err(_)) => kernel::close(chosen),
        _ => {}
    }
    let answered = answered?;
    for &(at, part) in shape.parts {
        let (Part::Out(bytes) | Part::Both(bytes)) = part else { continue };
        if call.word(at) == 0 {
            continue;
        }
        let size = match bytes {
            Size::Of(size) => size,
            Size::Word(word) => {
                let room = (call.word(word) as usize).min(wire::BYTES);
                usize::try_from(answered).unwrap_or(0).min(room)
            }
        };
        // SAFETY: the place is inside; the server is done with it.
        let bytes = unsafe {
            std::slice::from_raw_parts(link.window.add(request.words[at] as usize), size)
        };
        let to = call.buffer(at, size as u64).writable()?;
        if to.len() < size {
            return Err(Errno::FAULT);
        }
        to.write(0, bytes);
    }
    if matches!(number, libc::SYS_chdir | libc::SYS_fchdir) {
        follow(link);
    }
    Ok(Done::Answer(answered))
}

/// The kernel's working directory becomes the transaction's, where there is one in the stable tree: other
/// programs show it, and what is looked up past the transaction begins there.
fn follow(link: &Link) {
    let mut layout = wire::Layout::default();
    let Ok(place) = layout.place(4096) else { return };
    let mut request = Request::new(Ask::Call, libc::SYS_getcwd);
    request.words = [place as u64, 4096, 0, 0, 0, 0];
    if let Ok(size) = answer_of(link.ask_plainly(&request)) {
        let path = link.path(size as u64);
        let _ = kernel::chdir(path.strip_suffix(b"\0").unwrap_or(&path));
    }
}

/// Whether what a call opens is closed when another program is run.
fn opens_for_itself(call: &Call) -> bool {
    let flags = match call.number() {
        libc::SYS_open => call.int(1),
        libc::SYS_openat => call.int(2),
        libc::SYS_openat2 => call.pointer::<u64>(2).read().unwrap_or(0) as i32,
        _ => 0,
    };
    flags & libc::O_CLOEXEC != 0
}

// --- Processes come and go ---------------------------------------------------------------------

fn exit(thread: &mut Thread, process: &Process, call: &Call, class: Class) -> Next {
    if class == Class::ExitGroup && process.first {
        let mut request = Request::new(Ask::End, call.number());
        request.words[0] = u64::from(call.uint(0));
        let socket = process.link().socket;
        let _ = wire::send(socket, &request, &[]);
        // Meanwhile a signal may end the process, and with it the transaction.
        let mut polled = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
        let words = [(&raw mut polled) as u64, 1, u64::MAX, 0, 0, 0];
        loop {
            // SAFETY: the structure lives until the answer.
            let poll = unsafe { Call::new(libc::SYS_poll, words) };
            if thread::make_in_program(here(), mask_of(thread), &poll) > 0 {
                break;
            }
        }
        process.link().take_answer();
    }
    thread.session = None;
    thread::disarm(here());
    if class == Class::Exit {
        thread::abandon(here());
    }
    // SAFETY: nothing comes after it.
    Next::Answer(unsafe { syscall(call.number(), *call.words()) })
}

/// A new process or thread of a command.
pub fn create(thread: &mut Thread, made: &Made, context: &mut Context) -> Next {
    let process = match process_of(thread) {
        Some(process) => process,
        None => match start(thread) {
            Ok(process) => process,
            Err(why) => return cannot_move(thread, &why),
        },
    };
    context.set_mask(mask_of(thread));
    if made.is_thread() {
        if !made.is_whole_thread() {
            process.link().fail("a thread of the command is not to share everything with it");
        }
        return create_thread(thread, made, context);
    }
    // Until there is the child, no other thread opens or closes anything: it gets the numbers as they are.
    let link = process.link();
    if made.has_namespaces() {
        link.fail("a process of the command is to have namespaces of its own");
    }
    let child = match expect(&link) {
        Ok(child) => child,
        Err(errno) => return Next::Answer(-i64::from(errno.raw_os_error())),
    };
    let (socket, window_fd) = (child.socket, child.window_fd);
    let answer = match made.stack() {
        Some(top) => {
            let newborn = Box::into_raw(members::Newborn::process(here().stack.get(), child));
            let birth = context.birth(!signals::SYNCHRONOUS);
            let birth = crate::front::entry::Birth { newborn: newborn as u64, ..birth };
            let answer = made.clone().apart().with_stack(top, birth);
            // SAFETY: the child has a copy of its own.
            drop(unsafe { Box::from_raw(newborn) });
            answer
        }
        None => {
            let answer = made.clone().copied();
            if answer == 0 {
                std::mem::forget(link);
                begins(thread, child);
                return Next::Answer(0);
            }
            answer
        }
    };
    kernel::close(socket);
    kernel::close(window_fd);
    drop(link);
    Next::Answer(answer)
}

/// A new thread: it has the connection of its process.
fn create_thread(thread: &mut Thread, made: &Made, context: &Context) -> Next {
    let (Some(top), Some(session)) = (made.stack(), thread.session.as_ref()) else {
        return Next::Answer(-i64::from(libc::EINVAL));
    };
    let masks = Masks { before: session.masks.programs, fresh: true, ..session.masks };
    let own = Session {
        process: session.process.clone(),
        ..Session::of_member(masks, session.plan.flags)
    };
    let Ok(stack) = thread::new_stack() else { return Next::Answer(-i64::from(libc::EAGAIN)) };
    let newborn = Box::into_raw(members::Newborn::thread(stack, own));
    let birth = context.birth(!signals::SYNCHRONOUS);
    let birth = crate::front::entry::Birth { newborn: newborn as u64, ..birth };
    let answer = made.clone().with_stack(top, birth);
    if answer < 0 {
        // SAFETY: there is no such thread, and nobody else has it.
        members::never_born(unsafe { Box::from_raw(newborn) });
    }
    Next::Answer(answer)
}

/// A place for a child at the server.
fn expect(link: &Link) -> Sys<Child> {
    let (answer, beside) = link.ask(&Request::new(Ask::Child, 0));
    answer_of(answer.answer)?;
    let [Some(socket), Some(window_fd)] = beside else { return Err(Errno::IO) };
    Ok(Child {
        socket: kernel::move_high(socket).unwrap_or(socket),
        window_fd: kernel::move_high(window_fd).unwrap_or(window_fd),
        space: answer.more[0] as i32,
        numbers: link.numbers.clone(),
        outlets: link.outlets.clone(),
        parents: [link.socket, link.window_fd],
        placeholder: link.placeholder,
    })
}

/// The first thing that a child does, in its copy of its parent's memory.
pub fn begins(thread: &mut Thread, child: Child) {
    alloc::after_fork();
    let tls = here();
    thread::after_fork_of_member(tls);
    let Child { socket, window_fd, space, numbers, outlets, parents, placeholder } = child;
    parents.into_iter().for_each(kernel::close);
    let window = wire::map_window(window_fd).unwrap_or_else(|_| end(FAILED));
    let ids = members::Ids::now();
    let link = Link { socket, window, window_fd, placeholder, space, numbers, outlets, ids };
    let request = Request::new(Ask::Here, 0).with(here_words(&link.ids, false));
    if link.ask_plainly(&request) < 0 {
        end(FAILED);
    }
    if let Some(session) = thread.session.as_mut() {
        let link = Mutex::new(link);
        let strict = session.plan.flags & tx::flags::STRICT != 0;
        let process = Some(Arc::new(Process { link, window, first: false, strict }));
        // Another thread of the parent may have held its lock.
        std::mem::forget(std::mem::replace(&mut session.process, process));
    }
    if thread::arm(tls).is_err() {
        end(FAILED);
    }
}

// --- Another program ---------------------------------------------------------------------------

/// A program that is to be run.
enum Found {
    /// By the name that was given, or a path of the stable tree.
    At(CString),
    /// A private copy.
    Copy(i32),
}

/// As many scripts interpreting each other as the kernel takes.
const SCRIPTS_MAX: usize = 5;

fn exec(thread: &mut Thread, process: &Process, call: &Call) -> Next {
    let link = process.link();
    match prepare(&link, call) {
        Ok(image) => Next::Answer(image.run(&link, thread, call)),
        Err(Stop::Errno(errno)) => Next::Answer(raw::answer(Err(errno))),
        Err(Stop::Cannot(what)) => {
            link.fail(&what);
            Next::Answer(-i64::from(libc::EACCES))
        }
    }
}

/// A command that is one process so far runs another program.
pub fn run_program(thread: &mut Thread, call: &Call) -> Next {
    let doom = thread.session.as_ref().and_then(|session| session.tx.as_ref()?.doomed().cloned());
    if let Some(why) = doom {
        return dispatch::fail(thread, why);
    }
    match start(thread) {
        Ok(process) => exec(thread, &process, call),
        Err(why) => cannot_move(thread, &why),
    }
}

/// The transaction can't move to a process of its own.
fn cannot_move(thread: &mut Thread, why: &str) -> Next {
    let why = Failure {
        reason: reason::FAILED,
        errno: libc::ECANCELED,
        what: format!("its transaction can't move to a process of its own: {why}"),
        ..Failure::default()
    };
    dispatch::fail(thread, why)
}

enum Stop {
    Errno(Errno),
    /// The transaction can't go on.
    Cannot(String),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Errno(errno)
    }
}

/// What the kernel is asked to run.
struct Image {
    path: CString,
    /// The arguments in front of those that were given from the second on; `None`: those that were given.
    arguments: Option<Vec<CString>>,
    copy: Option<i32>,
}

fn prepare(link: &Link, call: &Call) -> Result<Image, Stop> {
    let at = usize::from(call.number() == libc::SYS_execveat);
    let (dir, flags) = if at == 1 { (call.int(0), call.int(4)) } else { (libc::AT_FDCWD, 0) };
    let given = call.path(at)?;
    let mut name = given.clone();
    let mut found = find(link, dir, &name, flags)?;
    let first = match &found {
        Found::At(path) => Some(path.clone()),
        Found::Copy(_) => None,
    };
    let mut arguments: Vec<CString> = Vec::new();
    let mut all_stable = first.is_some();
    for _ in 0..=SCRIPTS_MAX {
        let fd = match &found {
            Found::Copy(fd) => *fd,
            Found::At(path) => {
                let flags = libc::O_RDONLY | libc::O_CLOEXEC;
                kernel::open(path.to_bytes(), flags, 0).map_err(|errno| match errno {
                    Errno::ACCESS => Stop::Cannot(format!(
                        "{} can be run but not read: the library can't be loaded into it",
                        String::from_utf8_lossy(&name)
                    )),
                    errno => Stop::Errno(errno),
                })?
            }
        };
        let kind = in_process::kind_of(fd);
        let rights = in_process::gains_rights(fd);
        if let Found::At(_) = found {
            kernel::close(fd);
        }
        let shown = String::from_utf8_lossy(&name).into_owned();
        if rights {
            return Err(Stop::Cannot(format!(
                "{shown} runs with other rights, so that it can't be part of the transaction"
            )));
        }
        match kind {
            in_process::Kind::Dynamic => {
                return Ok(match (all_stable, first, found) {
                    (true, Some(path), _) => Image { path, arguments: None, copy: None },
                    (_, _, Found::At(path)) => Image {
                        path,
                        arguments: (!arguments.is_empty()).then_some(arguments),
                        copy: None,
                    },
                    (_, _, Found::Copy(fd)) => {
                        let path = CString::new(kernel::magic_path(fd));
                        Image {
                            path: path.map_err(|_| Errno::INVAL)?,
                            arguments: (!arguments.is_empty()).then_some(arguments),
                            copy: Some(fd),
                        }
                    }
                });
            }
            in_process::Kind::Script(interpreter, argument) => {
                if let Found::Copy(fd) = found {
                    kernel::close(fd);
                }
                // The program's own name is the last that the interpreter gets.
                let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::NOEXEC);
                if arguments.is_empty() {
                    arguments.push(text(&given)?);
                }
                let mut before = vec![text(&interpreter)?];
                if !argument.is_empty() {
                    before.push(text(&argument)?);
                }
                arguments.splice(0..0, before);
                name = interpreter;
                found = find(link, libc::AT_FDCWD, &name, 0)?;
                all_stable &= matches!(&found, Found::At(path) if path.to_bytes() == name);
            }
            in_process::Kind::Static => {
                return Err(Stop::Cannot(format!(
                    "{shown} is statically linked or not a 64-bit program: the library can't be loaded into it"
                )));
            }
            in_process::Kind::Unknown => return Err(Errno::NOEXEC.into()),
        }
    }
    Err(Errno::LOOP.into())
}

/// Where a program is.
fn find(link: &Link, dir: i32, path: &[u8], flags: i32) -> Result<Found, Stop> {
    let given = || CString::new(path).map_err(|_| Stop::Errno(Errno::INVAL));
    if path.is_empty() && !link.is_ours(dir) {
        return given().map(Found::At);
    }
    let Some((seen_from, mut text)) = look_up(link, 0, dir, path.to_vec()) else {
        return given().map(Found::At);
    };
    text.push(0);
    let place = link.put(&mut wire::Layout::default(), &text)?;
    let mut request = Request::new(Ask::Program, 0);
    request.words = [seen_from as u64, place as u64, flags as u64, 0, 0, 0];
    let (answer, beside) = link.ask(&request);
    check(answer.answer)?;
    match (answer.how(), beside) {
        (Some(How::WithDescriptors), [Some(fd), _]) => Ok(Found::Copy(fd)),
        (Some(How::Yourself), _) => {
            let stable = link.path(answer.more[0]);
            // The name that was given is seen in the process: it is kept where it leads there.
            let same = kernel::statx(dir, path, flags).map(|stat| stat.id)
                == kernel::look(&stable).map(|stat| stat.id);
            if same && dir == libc::AT_FDCWD {
                return given().map(Found::At);
            }
            CString::new(stable).map(Found::At).map_err(|_| Stop::Errno(Errno::INVAL))
        }
        _ => given().map(Found::At),
    }
}

impl Image {
    /// Runs it in place of the present program; comes back if that fails.
    fn run(self, link: &Link, thread: &Thread, call: &Call) -> i64 {
        let answer = self.try_run(link, thread, call);
        if let Some(fd) = self.copy {
            kernel::close(fd);
        }
        raw::answer(answer)
    }

    fn try_run(&self, link: &Link, thread: &Thread, call: &Call) -> Sys<u64> {
        let at = usize::from(call.number() == libc::SYS_execveat);
        let given = strings(call.word(at + 1))?;
        let mut arguments: Vec<u64> = match &self.arguments {
            None => given,
            Some(front) => {
                let front = front.iter().map(|text| text.as_ptr() as u64);
                front.chain(given.into_iter().skip(1)).collect()
            }
        };
        arguments.push(0);
        let environment = strings(call.word(at + 2))?;
        let (mut kept, preload) = split_environment(&environment)?;
        let library = in_process::library();
        let mut list = b"LD_PRELOAD=".to_vec();
        list.extend(library.to_bytes());
        if !preload.is_empty() {
            list.push(b':');
            list.extend(preload);
        }
        let list = CString::new(list).map_err(|_| Errno::INVAL)?;
        let member =
            CString::new(format!("{VARIABLE}={}", link.socket)).map_err(|_| Errno::INVAL)?;
        kept.extend([list.as_ptr() as u64, member.as_ptr() as u64, 0]);
        kernel::set_close_on_exec(link.socket, false)?;
        link.ask_plainly(&Request::new(Ask::Becomes, 1));
        let mask = thread.session.as_ref().map_or(0, |session| session.masks.programs);
        let blocked = signals::set_mask(mask);
        let words =
            [self.path.as_ptr() as u64, arguments.as_ptr() as u64, kept.as_ptr() as u64, 0, 0, 0];
        // SAFETY: all strings and lists live until the answer; if it succeeds nothing of this is left.
        let answer = unsafe { syscall(libc::SYS_execve, words) };
        signals::set_mask(blocked);
        link.ask_plainly(&Request::new(Ask::Becomes, 0));
        kernel::set_close_on_exec(link.socket, true)?;
        check(answer)
    }
}

/// The addresses in a list of strings that ends with a zero.
fn strings(list: u64) -> Sys<Vec<u64>> {
    /// More than the kernel takes.
    const MAX: u64 = 1 << 20;
    let mut all = Vec::new();
    if list == 0 {
        return Ok(all);
    }
    // SAFETY: the program has given it for this call.
    let list = unsafe { UserPtr::<u64>::new(list) };
    for at in 0..MAX {
        match list.item(at).read()? {
            0 => return Ok(all),
            address => all.push(address),
        }
    }
    Err(Errno::TOOBIG)
}

/// The environment without what the library adds to it, and what is to be preloaded.
fn split_environment(all: &[u64]) -> Sys<(Vec<u64>, Vec<u8>)> {
    const PRELOAD: &[u8] = b"LD_PRELOAD=";
    let member = format!("{VARIABLE}=");
    let (mut kept, mut preload) = (Vec::new(), Vec::new());
    for &address in all {
        let mut start = [0; 16];
        for (at, byte) in start.iter_mut().enumerate() {
            // SAFETY: the program has given it for this call.
            *byte = unsafe { UserPtr::<u8>::new(address + at as u64) }.read()?;
            if *byte == 0 {
                break;
            }
        }
        if start.starts_with(PRELOAD) {
            // SAFETY: as above; it was found to be there.
            preload = unsafe { CStr::from_ptr(address as *const libc::c_char) }.to_bytes()
                [PRELOAD.len()..]
                .to_vec();
        } else if !start.starts_with(member.as_bytes()) {
            kept.push(address);
        }
    }
    Ok((kept, preload))
}

/// Goes on with a transaction in a new program.
///
/// # Errors
/// Why it can't.
pub fn go_on(tls: &Tls, socket: i32) -> Result<(), String> {
    let before = signals::block_sent();
    let thread = thread::record(tls).map_err(|thread::NoMemory| "there is no memory")?;
    kernel::set_close_on_exec(socket, true).map_err(|e| wire::words_of(e).to_string())?;
    let request = Request::new(Ask::Here, 0).with(here_words(&members::Ids::now(), true));
    let sent = wire::send(socket, &request, &[]);
    sent.map_err(|e| wire::words_of(e).to_string())?;
    let received = wire::receive::<Answer>(socket).map_err(|e| wire::words_of(e).to_string())?;
    let Some((answer, [Some(window_fd), _])) = received else {
        return Err("the process that has the transaction is gone".into());
    };
    let window_fd = kernel::move_high(window_fd).unwrap_or(window_fd);
    let window = wire::map_window(window_fd).map_err(|e| wire::words_of(e).to_string())?;
    let placeholder = wire::new_placeholder().map_err(|e| wire::words_of(e).to_string())?;
    let ids = members::Ids::now();
    let (numbers, outlets) = (BTreeSet::new(), Vec::new());
    let mut link = Link { socket, window, window_fd, placeholder, space: 0, numbers, outlets, ids };
    let told = link.path(answer.more[0]);
    let mut words = told.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    link.space = words.next().unwrap_or(0) as i32;
    let count = words.next().unwrap_or(0) as usize;
    link.numbers = words.by_ref().take(count).map(|number| number as i32).collect();
    while let (Some(dev), Some(ino), Some(kind)) = (words.next(), words.next(), words.next()) {
        link.outlets.push(Outlet { id: FileId { dev, ino }, kind: kind as u32 });
    }
    thread::arm(tls).map_err(|errno| {
        format!("this kernel can't redirect the system calls of a thread: errno {errno}")
    })?;
    signals::let_all_in();
    let at_once = signals::SENT;
    let masks = Masks { before, programs: before, live: 0, at_once, fresh: false };
    signals::set_mask(masks.real() | masks.at_once);
    tls.at_once.set(masks.handled());
    thread.regs = Regs::default();
    let first = link.space == 0;
    let flags = answer.answer as u32;
    let strict = flags & tx::flags::STRICT != 0;
    let process = Some(Arc::new(Process { link: Mutex::new(link), window, first, strict }));
    thread.session = Some(Session { process, ..Session::of_member(masks, flags) });
    thread::to_program(tls);
    Ok(())
}

impl Session {
    /// The session of a thread whose transaction is elsewhere.
    fn of_member(masks: Masks, flags: u32) -> Session {
        Session {
            plan: Plan { flags: flags & tx::flags::ALL, ..Plan::default() },
            tx: None,
            depth: 0,
            abort_if: std::ptr::null(),
            masks,
            actions: Changed::default(),
            restartable: false,
            command: None,
            member: None,
            process: None,
            checkpoint: None,
            gives_up: false,
        }
    }
}
