//! What a process has of its transaction: the connection to the server, and what is the transaction's of its numbers.
#![allow(unsafe_code)] // windows, the program's memory

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::answers::Table;
use super::images::Imaged;
use super::lent::Lent;
use super::mailbox::{self, Asked};
use super::sockets::Bound;
use super::vforked;
use super::wire::{self, Answer, Ask, How, Request};
use crate::call::Call;
use crate::front::thread::Thread;
use crate::front::{api, loader};
use crate::raw::{Errno, Sys, syscall};
use crate::tx::kernel::{self, OwnedFd};
use crate::tx::spaces::{Moved, Outlet};
use crate::user::{UserPtr, UserSlice};

/// txos itself failed.
pub const FAILED: i32 = 125;

/// What a process has of its transaction; all its threads share it.
#[derive(Debug)]
pub struct Process {
    pub(super) link: Mutex<Link>,
    pub(super) window: *mut u8,
    /// What the server has answered.
    pub(super) answers: Option<Table>,
    /// It began the transaction.
    pub(super) first: bool,
    /// What can't be part of the transaction ends it.
    pub(super) strict: bool,
    /// The transaction is a program's own ([`super::host`]).
    pub(super) hosted: bool,
    /// It ran already, and joined: what is its own, which it is given back after an abort.
    pub(super) joined: Option<super::joining::Joined>,
    /// How many of its threads are in the transaction.
    pub(super) inside: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: i32,
    pub(super) window: *mut u8,
    /// What keeps a number.
    pub(super) placeholder: i32,
    pub(super) space: i32,
    /// The numbers that are the transaction's.
    pub(super) numbers: BTreeSet<i32>,
    /// What was open before the transaction, and others may read.
    pub(super) outlets: Vec<Outlet>,
    /// Sockets that were bound to a name.
    pub(super) bound: Vec<Bound>,
    /// What the server has lent.
    pub(super) lent: Lent,
    /// What it has answered.
    pub(super) answers: Option<Table>,
    /// The numbers that stand for images.
    pub(super) imaged: Imaged,
    /// The server's numbers for stable files that are open here.
    pub(super) objects: BTreeMap<i32, u32>,
    /// What the kernel had open at numbers that are the transaction's, from before that: for when the process leaves.
    pub(super) kept: BTreeMap<i32, i32>,
    /// The process ran before it joined: it outlives an abort. A descriptor of the process that began.
    pub(super) began: Option<OwnedFd>,
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
    pub(super) socket: i32,
    pub(super) window_fd: i32,
    pub(super) space: i32,
    pub(super) numbers: BTreeSet<i32>,
    pub(super) outlets: Vec<Outlet>,
    pub(super) bound: Vec<Bound>,
    pub(super) lent: Lent,
    pub(super) answers: Option<Table>,
    pub(super) objects: BTreeMap<i32, u32>,
    /// The parent's, which are not the child's.
    pub(super) closes: Vec<i32>,
    pub(super) placeholder: i32,
    /// Of a child of the process that has the transaction: what the transaction says of each number.
    pub(super) moved: Option<Vec<Moved>>,
    /// That process, if its thread that began has made the child.
    pub(super) parent: Option<u64>,
    /// It begins without the handlers of its parent.
    pub(super) clears_handlers: bool,
    /// Its parent waits until it runs a program or ends.
    pub(super) is_waited_for: bool,
    /// Natively it would have its parent's memory meanwhile.
    pub(super) hands_back: Option<vforked::Place>,
}

impl Process {
    /// What a process has that enters with one thread. `kind`: whether the transaction is strict, and a program's own.
    pub(super) fn new(
        link: Link,
        first: bool,
        kind: (bool, bool),
        joined: Option<super::joining::Joined>,
    ) -> Arc<Process> {
        let (window, answers) = (link.window, link.answers);
        let (strict, hosted) = kind;
        let inside = AtomicUsize::new(1);
        let link = Mutex::new(link);
        Arc::new(Process { link, window, answers, first, strict, hosted, joined, inside })
    }

    /// Aborts the transaction, for all its processes; it begins again if that was asked for when it began, and
    /// `again`. Of a program's own transaction, this is the end of the calling process.
    pub fn abort(&self, again: bool) {
        let mut request = Request::new(Ask::Abort, 0);
        request.words[0] = again.into();
        let link = self.link();
        if !self.hosted {
            link.ask_plainly(&request);
            return;
        }
        match wire::send(link.socket, &request, &[]) {
            // It is killed when the transaction has been aborted, so that nobody finds it dead before.
            Ok(()) => {
                let _ = wire::receive::<Answer>(link.socket);
            }
            Err(errno) if !wire::is_end(errno) => drop(link.cannot_ask(errno)),
            Err(_) => {}
        }
        if self.joined.is_none() {
            end_as_killed()
        }
    }

    /// Whether the transaction is a program's own.
    pub fn is_hosted(&self) -> bool {
        self.hosted
    }

    /// Whether it ran before it joined the transaction, and outlives that.
    pub fn has_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Whether the server has said that the transaction is over.
    pub(super) fn is_over(&self) -> bool {
        self.end_said() != 0
    }

    /// What the server has said of the transaction's end: 0, before that.
    pub(super) fn end_said(&self) -> u32 {
        // SAFETY: the window is mapped as long as the process is.
        unsafe { wire::is_over(self.window) }.load(Ordering::Acquire)
    }

    /// For which questions the table of answers counts ([`super::answers`]).
    pub(super) fn standing(&self) -> u32 {
        // SAFETY: the window is mapped as long as the process is.
        unsafe { wire::standing(self.window) }.load(Ordering::Acquire)
    }

    pub(super) fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Sends a request, and waits for the answer. If the transaction is over the process ends, or the answer says so to one
    /// that has joined.
    pub(super) fn ask(&self, request: &Request) -> (Answer, [Option<i32>; 2]) {
        // SAFETY: the window is mapped as long as the process is in the transaction, and who has the lock has the window.
        match unsafe { mailbox::ask(self.window, request) } {
            Asked::Here(answer) => return (answer, [None; 2]),
            Asked::Message => return self.take_answer(),
            Asked::Not => {}
        }
        match wire::send(self.socket, request, &[]) {
            Err(errno) if !wire::is_end(errno) => self.cannot_ask(errno),
            // What was said at the end may be there still.
            _ => self.take_answer(),
        }
    }

    /// A request with a descriptor beside it.
    pub(super) fn ask_about(&self, request: &Request, number: i32) -> (Answer, [Option<i32>; 2]) {
        match wire::send(self.socket, request, &[number]) {
            // Another thread has closed it.
            Err(errno @ Errno::BADF) => {
                (Answer::new(How::Done, -i64::from(errno.raw_os_error())), [None; 2])
            }
            Err(errno) if !wire::is_end(errno) => self.cannot_ask(errno),
            _ => self.take_answer(),
        }
    }

    /// Nothing can be asked any more, although the transaction is there: it fails, and this process ends. To one that has joined, it is over.
    pub(super) fn cannot_ask(&self, errno: Errno) -> (Answer, [Option<i32>; 2]) {
        if self.began.is_some() {
            return self.over();
        }
        let why = format!(
            "a process of it can't send to the process that has the transaction: sendmsg failed: {}\0",
            wire::words_of(errno)
        );
        let _ = self.put(&mut wire::Layout::default(), why.as_bytes());
        // SAFETY: the window is mapped as long as the process is in the transaction.
        unsafe { wire::becomes(self.window) }.store(wire::CANT_ASK, Ordering::SeqCst);
        end(FAILED)
    }

    pub(super) fn take_answer(&self) -> (Answer, [Option<i32>; 2]) {
        if let Some(began) = self.began.as_ref()
            && !wire::await_message(self.socket, began.number(), || false)
        {
            return self.over();
        }
        let mut lost = false;
        let received = wire::receive_from::<Answer>(self.socket).map(|received| {
            received.map(|received| {
                lost = received.lost;
                (received.message, received.beside)
            })
        });
        match received {
            Ok(Some((answer, _))) if self.began.is_some() && answer.how() == Some(How::Over) => {
                self.over()
            }
            Ok(None) | Err(_) if self.began.is_some() => self.over(),
            Ok(Some((answer, beside))) if answer.how() == Some(How::Over) => {
                beside.into_iter().flatten().for_each(kernel::close);
                end(answer.answer as i32)
            }
            // It is what the answer is about. (What is lent is used where there is room for it.)
            Ok(Some((answer, beside)))
                if lost && self.began.is_none() && answer.how() == Some(How::WithDescriptors) =>
            {
                beside.into_iter().flatten().for_each(kernel::close);
                match wire::is_full() {
                    true => self.fail_for_descriptors(),
                    false => self.fail("a process of it can't take a descriptor that it is sent"),
                }
                (Answer::new(How::Done, -i64::from(libc::EMFILE)), [None; 2])
            }
            Ok(Some(answered)) => answered,
            _ => {
                api::tell(
                    "the process that has the transaction is gone, and with it the transaction: what is not \
                     published yet never will be (`txos recover` finishes what is), and signals that it held for others may \
                     not have been sent",
                );
                end(FAILED)
            }
        }
    }

    /// What a process that has joined is told of everything once the transaction is over.
    pub(super) fn over(&self) -> (Answer, [Option<i32>; 2]) {
        (Answer::new(How::Done, -i64::from(libc::ECANCELED)), [None; 2])
    }

    /// An answer to a request that takes nothing along.
    pub(super) fn ask_plainly(&self, request: &Request) -> i64 {
        let (answer, beside) = self.ask(request);
        beside.into_iter().flatten().for_each(kernel::close);
        answer.answer
    }

    /// The server's answer to a call without addresses.
    pub(super) fn call(&self, number: i64, words: [u64; 6]) -> i64 {
        self.ask_plainly(&Request::new(Ask::Call, number).with(words))
    }

    /// Has the server close a number.
    pub(super) fn close(&self, number: i32) -> i64 {
        self.call(libc::SYS_close, [number as u64, 0, 0, 0, 0, 0])
    }

    /// The process has ended, but for its status: what it has open is closed, as natively, but for the connection and for the standard streams
    /// that were there before the transaction. Others may wait for the end of a pipe.
    pub(super) fn let_go(&self) {
        for number in libc::STDIN_FILENO..=libc::STDERR_FILENO {
            let is_others = |outlet: &Outlet| self.outlets.contains(outlet);
            let is_pipe = |outlet: &Outlet| matches!(outlet.kind, libc::S_IFIFO | libc::S_IFSOCK);
            if Outlet::of(number).is_some_and(|outlet| is_pipe(&outlet) && !is_others(&outlet)) {
                kernel::close(number);
            }
        }
        let socket = self.socket.unsigned_abs();
        let above = libc::STDERR_FILENO.unsigned_abs() + 1;
        for (from, to) in [(above, socket.saturating_sub(1)), (socket + 1, u32::MAX)] {
            if from <= to {
                // SAFETY: nothing of the process's is used any more but the connection.
                unsafe { syscall(libc::SYS_close_range, [from.into(), to.into(), 0, 0, 0, 0]) };
            }
        }
    }

    /// The lowest number that is free, kept by a placeholder.
    pub(super) fn reserve(&self, least: i32, cloexec: bool) -> Sys<i32> {
        kernel::duplicate(self.placeholder, least, cloexec)
    }

    pub(super) fn is_own(&self, number: i32) -> bool {
        [self.socket, self.placeholder].contains(&number) || loader::is_programs(number)
    }

    /// Gives the program a number that it wants: what is there of ours goes to another one. `false`: it can't.
    pub(super) fn makes_way(&mut self, number: i32) -> bool {
        let own = [&mut self.socket, &mut self.placeholder];
        for own in own.into_iter().filter(|own| **own == number) {
            let Ok(other) = kernel::duplicate(number, number, true) else { return false };
            kernel::close(number);
            *own = other;
        }
        loader::makes_way(number)
    }

    /// Whether a descriptor of a call is the transaction's.
    pub(super) fn has_of_ours(&self, call: &Call) -> bool {
        txos_calls::descriptors(call.number()).any(|at| self.is_ours(call.int(at)))
    }

    pub(super) fn is_ours(&self, number: i32) -> bool {
        self.numbers.contains(&number)
    }

    /// What was opened at a number: more than the server's number for it by one, or 0.
    pub(super) fn stands_for(&mut self, number: i32, object: u64) {
        match object.checked_sub(1).and_then(|id| u32::try_from(id).ok()) {
            Some(object) => self.objects.insert(number, object),
            None => self.objects.remove(&number),
        };
    }

    /// A path that the server has put into the window.
    pub(super) fn path(&self, size: u64) -> Vec<u8> {
        let place = wire::Layout::default().place(0).unwrap_or(0);
        let size = (size as usize).min(wire::WINDOW - place);
        let mut bytes = vec![0; size];
        // SAFETY: it is inside, and the server is done with it.
        unsafe { std::ptr::copy(self.window.add(place), bytes.as_mut_ptr(), size) };
        bytes
    }

    /// Puts bytes into the window: where they are.
    pub(super) fn put(&self, layout: &mut wire::Layout, bytes: &[u8]) -> Sys<usize> {
        let place = layout.place(bytes.len())?;
        // SAFETY: the place is inside, and the server does not look before it is asked.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.window.add(place), bytes.len()) };
        Ok(place)
    }

    /// Why the transaction can't go on.
    pub(super) fn fail(&self, what: &str) {
        let mut request = Request::new(Ask::Fail, 0);
        if let Ok(place) = self.put(&mut wire::Layout::default(), what.as_bytes()) {
            request.words = [place as u64, what.len() as u64, 0, 0, 0, 0];
        }
        self.ask_plainly(&request);
    }

    /// The transaction can't go on: for the library's own needs there are too few descriptors.
    pub(super) fn fail_for_descriptors(&self) {
        self.fail(&wire::too_few_descriptors(
            "a process of it, in which the library has two descriptors and opens more for a moment",
        ));
    }

    /// Whether a message takes along what is open at a number of the transaction's.
    pub(super) fn sends_ours(&self, call: &Call) -> bool {
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

    pub(super) fn has_rights_of_ours(&self, mut control: &[u8]) -> bool {
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
    pub(super) fn note_output(&self, call: &Call) {
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
    pub(super) fn live(&self, number: i64) {
        self.ask_plainly(&Request::new(Ask::Live, number));
    }
}

/// The process ends.
pub fn end(status: i32) -> ! {
    loop {
        // SAFETY: nothing comes after it.
        unsafe { syscall(libc::SYS_exit_group, [status as u64, 0, 0, 0, 0, 0]) };
    }
}

/// The process ends as others of an aborted transaction do.
fn end_as_killed() -> ! {
    let words = [number_of_process(), libc::SIGKILL as u64, 0, 0, 0, 0];
    // SAFETY: it takes numbers only.
    unsafe { syscall(libc::SYS_kill, words) };
    end(FAILED)
}

/// The number of this process.
pub(super) fn number_of_process() -> u64 {
    // SAFETY: it takes nothing.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as u64 }
}

/// What a process says when it is there; or another program in it.
pub(super) fn here_request(other_program: bool) -> Request {
    Request::new(Ask::Here, 0).with([other_program.into(), 0, 0, 0, 0, 0])
}

/// What a child of a command says, which goes on without an answer.
pub(super) fn born_request() -> Request {
    Request::new(Ask::Here, 0).with([0, 1, 0, 0, 0, 0])
}

/// Has the transaction of this thread's process fail, if it is in one.
pub fn fail(thread: &Thread, what: &str) {
    if let Some(process) = process_of(thread) {
        process.link().fail(what);
    }
}

pub(super) fn process_of(thread: &Thread) -> Option<Arc<Process>> {
    thread.session.as_ref()?.process.clone()
}
