//! The process that has the transaction: it makes the calls of all the others, one after the other.
//!
//! It is a copy of the process that began, made when that makes its first child. Nothing of the program runs in it.
//! It ends when the transaction does.
#![allow(unsafe_code)] // calls with addresses in windows, raw system calls

use std::hint::spin_loop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::answers::{self, About, Book, Changes, Question};
use super::closing::{self, Closing};
use super::decided::Awaited;
use super::identities::{self, Ids};
use super::images::{self, Image};
use super::locks::Locks;
use super::mailbox::{self, Wait, Worth};
use super::wire::{self, Answer, Ask, How, Loads, Part, Request, Shape, Size};
use crate::call::Call;
use crate::front::in_process::Command;
use crate::front::report::reason;
use crate::front::thread::{self, Thread};
use crate::front::{api, session, signals};
use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::held::{self, Sent};
use crate::tx::kernel::{Credentials, OwnedFd};
use crate::tx::spaces::{Moved, Outlet, Own, Program, SPACE, SPACES, has_two_paths};
use crate::tx::trace::Marks;
use crate::tx::waits::Step;
use crate::tx::{Failure, Tx, kernel};
use txos_calls::Class;
use txos_engine::object::{FileId, FileKind};

/// People are told of a wait that is longer.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// From here on are the numbers of those for whom a single call is judged.
const ONCE: u32 = 1 << 31;

/// A process of the transaction.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) socket: i32,
    window: *mut u8,
    /// The window's descriptor, for the program that the process runs next.
    pub(super) window_fd: i32,
    pub(super) space: i32,
    own: Own,
    /// Who it is, unless it is who began: the number for that.
    who: u32,
    /// No thread of it has ever changed who it is, nor of those that it comes from: a child is the same, and so is another program that gives no
    /// rights.
    unchanged: bool,
    /// Its number, and a descriptor of it.
    pub(super) process: Option<(u32, i32)>,
    /// It began the transaction.
    first: bool,
    /// Its parent, if that is a process of the transaction.
    parent: Option<u32>,
    /// It ran before it joined, and is not killed by an abort ([`super::joining`]).
    pub(super) joined: bool,
    /// What it has closed since its last request.
    closing: Closing,
    /// How many requests there had been, of all, with its last one.
    asked: u64,
}

/// Whose mailboxes are looked into ([`super::mailbox`]): their spaces, and which one next.
#[derive(Debug)]
struct Polled {
    spaces: Vec<i32>,
    next: usize,
}

/// What is known of the processes of a transaction.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) members: Vec<Member>,
    /// What was open before the transaction, and others may read.
    pub(super) outlets: Vec<Outlet>,
    /// The same, of processes that joined.
    handed_over: Vec<Outlet>,
    /// Who the processes are: who began, and others.
    ids: Vec<Ids>,
    /// Of which of them it is known whether this process can have one send signals that is they, and whether it can.
    senders: Vec<(u32, bool)>,
    /// How many calls were judged for others.
    judged: u32,
    locks: Locks,
    /// What was answered, for all of them.
    book: Option<Book>,
    /// Nobody has locked anything yet.
    is_unlocked: bool,
    /// Programs may have other libraries in the transaction.
    other_libraries: bool,
    /// How many requests there have been.
    requests: u64,
}

// SAFETY: a window belongs to who has the desk.
unsafe impl Send for Desk {}

impl Desk {
    /// Without processes yet, of a transaction that the calling process begins. `None`: who that is can't be found out.
    pub(super) fn new(outlets: Vec<Outlet>) -> Option<Desk> {
        let ids = vec![Ids::own()?];
        let (members, handed_over, locks) = (Vec::new(), Vec::new(), Locks::default());
        let senders = Vec::new();
        let (judged, book, is_unlocked, other_libraries, requests) = (0, None, true, false, 0);
        Some(Desk {
            members,
            outlets,
            handed_over,
            ids,
            senders,
            judged,
            locks,
            book,
            is_unlocked,
            other_libraries,
            requests,
        })
    }

    /// Nobody serves the processes any more: how many there were.
    pub(super) fn dismiss(&mut self) -> usize {
        let count = self.members.len();
        for member in self.members.drain(..) {
            if member.joined {
                wire::shut(member.socket);
            }
            kernel::close(member.socket);
            kernel::close(member.window_fd);
            // SAFETY: only this process's mapping goes, and nothing points into it.
            unsafe { wire::unmap_window(member.window) };
            if let Some((_, process)) = member.process {
                kernel::close(process);
            }
        }
        count
    }

    /// Whether a process is of the transaction. `None`: one that is about to say that it is there may be that one.
    ///
    /// `hosted`: the transaction is in the process that began, and this thread is of it.
    fn has(&self, number: i32, hosted: bool) -> Option<bool> {
        // This process blocks what can be blocked. Who ends it ends the transaction.
        let own = kernel::own_process();
        let known = |member: &Member| member.process.map(|(number, _)| number as i32);
        if number == own || self.members.iter().any(|member| known(member) == Some(number)) {
            return Some(true);
        }
        // A member's child: one that has not said anything yet, or that has ended and still has its number.
        let parent_of = |member: &Member| match member.parent {
            Some(parent) => Some(parent as i32),
            None if hosted => Some(own),
            None => None,
        };
        let is_member = |number: i32| {
            hosted && number == own || self.members.iter().any(|m| known(m) == Some(number))
        };
        let awaited = || self.members.iter().filter(|member| member.process.is_none());
        if let Some(parent) = kernel::parent_of(number)
            && is_member(parent)
        {
            let is_awaited = awaited().any(|member| parent_of(member) == Some(parent));
            return Some(is_awaited || status_of_zombie(number.cast_unsigned()).is_some());
        }
        // Nothing reaches that any more, and it may have been a member.
        if is_over(number) {
            return Some(true);
        }
        // Whose parent has ended is another's child, also while the parent is still known here.
        let orphaned = |member: &Member| {
            parent_of(member).is_some_and(|parent| {
                !is_member(parent) || is_over(parent) || kernel::group_of(parent).is_err()
            })
        };
        if awaited().any(orphaned) { None } else { Some(false) }
    }

    /// Whether a process of a group is making another one, which has not said yet that it is there. One that has ended may have been in
    /// the group.
    fn is_about_to_grow(&self, group: i32, hosted: bool) -> bool {
        let own = hosted.then(kernel::own_process);
        let makers = self.members.iter().filter(|member| member.process.is_none());
        makers
            .filter_map(|member| member.parent.map(|parent| parent as i32).or(own))
            .any(|maker| kernel::group_of(maker).map_or(true, |of| of == group))
    }

    /// Whether this process can have one send signals that is another user, or has other groups or capabilities. It is found
    /// out once: that user may stop the one that tries.
    fn can_send_as(&mut self, who: u32, credentials: &Credentials) -> bool {
        if let Some((_, can)) = self.senders.iter().find(|(known, _)| *known == who) {
            return *can;
        }
        let can = matches!(kernel::in_other_process(credentials, || Ok(0)), Ok(Ok(_)));
        self.senders.push((who, can));
        can
    }

    /// The transaction is over, for the reason that [`reason`] has a number for: kills the processes that the first one has
    /// started, and tells those that joined.
    pub(super) fn end_members(&self, reason: u32) {
        for member in self.members.iter().filter(|member| !member.first) {
            if member.joined {
                // SAFETY: the window is mapped as long as there is this member.
                let said = unsafe { wire::is_over(member.window) };
                let _ = said.compare_exchange(0, 1 + reason, Ordering::AcqRel, Ordering::Relaxed);
                wire::shut(member.socket);
                continue;
            }
            match member.process {
                Some((_, process)) => kill(process),
                None => member.end_newborn(),
            }
        }
    }

    /// From here on the mailboxes are looked into of those who have asked last.
    fn begin_to_poll(&self) -> Polled {
        /// A process is one of them whose last request is among so many.
        const RECENT: u64 = 8;
        let asked = |member: &Member| member.asked != 0 && member.asked + RECENT > self.requests;
        let polled = self.members.iter().filter(|member| asked(member) && member.may_be_polled());
        let spaces = polled.map(|member| {
            // SAFETY: the window is mapped as long as there is its member.
            unsafe { mailbox::poll(member.window, true) };
            member.space
        });
        Polled { spaces: spaces.collect(), next: 0 }
    }

    /// They are looked into once more, and then not any longer.
    fn stop_polling(&self, polled: &Polled) {
        for member in self.members.iter().filter(|member| polled.spaces.contains(&member.space)) {
            // SAFETY: as above.
            unsafe { mailbox::poll(member.window, false) };
        }
    }

    /// A request that is in a mailbox, and whose. Who has asked last is looked at last.
    fn look_into(&self, polled: &mut Polled) -> Option<(usize, Request)> {
        let count = polled.spaces.len();
        (0..count).find_map(|_| {
            let space = polled.spaces[polled.next % count];
            polled.next = (polled.next + 1) % count;
            // A process may be gone, or another user by now.
            let at = self.members.iter().position(|member| member.space == space)?;
            let member = &self.members[at];
            // SAFETY: the window is mapped as long as there is its member.
            let taken = || unsafe { mailbox::take(member.window) };
            member.may_be_polled().then(taken).flatten().map(|request| (at, request))
        })
    }

    /// No answer that was written down holds any longer.
    fn void_answers(&mut self) {
        if let Some(book) = &mut self.book {
            book.changed(Marks::ALL);
        }
    }

    /// Whether that is who began the transaction.
    pub(super) fn is_who_began(&self, ids: &Ids) -> bool {
        self.ids.first() == Some(ids)
    }
}

impl Member {
    /// Whether what is in its mailbox counts as what it sends: the server knows who it is, and that is the owner.
    fn may_be_polled(&self) -> bool {
        self.process.is_some() && self.who == 0 && !self.joined
    }

    /// Ends a child of which no descriptor can be had.
    fn end_by_number(&self, number: Option<u32>) {
        // Of one that has ended somebody else may have the number.
        if let Some(number) = number.filter(|_| !wire::is_hung_up(self.socket)) {
            let words = [number.into(), libc::SIGKILL as u64, 0, 0, 0, 0];
            // SAFETY: it has no pointers.
            unsafe { syscall(libc::SYS_kill, words) };
        }
    }

    /// Ends a child that has not been heard yet. What it has said it waits for no answer to, and what it says from here on fails, which ends it.
    fn end_newborn(&self) {
        wire::shut_to_senders(self.socket);
        while let Ok(Some(received)) = wire::receive_at_once::<Request>(self.socket) {
            received.beside.into_iter().flatten().for_each(kernel::close);
            let Some(sender) = received.sender else { continue };
            let Ok(process) = descriptor_of(sender) else { continue };
            // Of one that has ended somebody else may have the number.
            if !wire::is_hung_up(self.socket) {
                kill(process);
            }
            kernel::close(process);
        }
    }
}

/// Kills a process, by its descriptor.
fn kill(process: i32) {
    let words = [process as u64, libc::SIGKILL as u64, 0, 0, 0, 0];
    // SAFETY: it has no pointers.
    unsafe { syscall(libc::SYS_pidfd_send_signal, words) };
}

/// Waits, a second at most, until a process has ended whose connection is gone: its descriptors are closed a little
/// earlier. Whether it has.
fn wait_for_end(process: i32) -> bool {
    has_ended(process, 1000)
}

/// Whether it has ended, after so many milliseconds at most.
fn has_ended(process: i32, patience: u64) -> bool {
    let mut polled = libc::pollfd { fd: process, events: libc::POLLIN, revents: 0 };
    let words = [(&raw mut polled) as u64, 1, patience, 0, 0, 0];
    // SAFETY: the structure lives until the answer.
    unsafe { syscall(libc::SYS_poll, words) };
    polled.revents != 0
}

/// The same of one that may be about to end: others can keep it from a processor for a while.
fn ends(number: u32, process: i32) -> bool {
    /// What it has open may keep it for good.
    const LOOKS_MAX: u32 = 30;
    (0..LOOKS_MAX).any(|_| wait_for_end(process) || !is_ending(number)) && has_ended(process, 0)
}

/// Whether a process, by its number, has begun to end: it runs nothing of its own any more (`PF_EXITING` in proc_pid_stat(5)).
fn is_ending(number: u32) -> bool {
    const FLAGS: usize = 9;
    const EXITING: u32 = 4;
    of_process::<u32>(number, FLAGS).is_some_and(|(_, flags)| flags & EXITING != 0)
}

/// Whether a process that has ended was killed, or ended as the dynamic linker ends one that it can't start (ld.so(8)).
/// Not, if that can't be found out any more.
fn ended_by_linker(number: u32, process: i32) -> bool {
    /// What ld.so ends with.
    const CANT_START: i32 = 127;
    status_of_ended(number, process)
        .is_some_and(|status| libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == CANT_START)
}

/// A field of what the kernel tells of a process that has ended and that nobody has waited for yet, by its number in
/// proc_pid_stat(5). `None`: it has not ended, or is gone.
fn of_zombie<T: std::str::FromStr>(number: u32, field: usize) -> Option<T> {
    of_process(number, field).filter(|(state, _)| state == "Z").map(|(_, told)| told)
}

/// The same of one in any state, beside its state.
fn of_process<T: std::str::FromStr>(number: u32, field: usize) -> Option<(String, T)> {
    const STATE: usize = 3;
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name before may have blanks.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(field - STATE - 1)?.parse().ok()?))
}

/// The signal that has killed a process; 0: it can't be found out any more. `None`: it has ended by itself.
pub(super) fn killed_by(number: u32, process: i32) -> Option<i32> {
    match status_of_ended(number, process) {
        Some(status) => libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        None => Some(0),
    }
}

/// The status of a process that has ended.
fn status_of_ended(number: u32, process: i32) -> Option<i32> {
    status_of_zombie(number).or_else(|| status_of_collected(process))
}

/// The status of a process that nobody has waited for yet.
fn status_of_zombie(number: u32) -> Option<i32> {
    const EXIT_CODE: usize = 52;
    of_zombie(number, EXIT_CODE)
}

/// Whether all of a process has ended, and nobody has waited for it yet. (Other threads may go on without the first.)
fn is_over(number: i32) -> bool {
    const THREADS: usize = 20;
    of_zombie(number.cast_unsigned(), THREADS).is_some_and(|threads: u32| threads <= 1)
}

/// The status of a process that somebody has waited for (`PIDFD_GET_INFO`, from Linux 6.15 on).
fn status_of_collected(process: i32) -> Option<i32> {
    // SAFETY: it is plain numbers.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = u64::from(libc::PIDFD_INFO_EXIT);
    let words = [process as u64, libc::PIDFD_GET_INFO, (&raw mut info) as u64, 0, 0, 0];
    // SAFETY: the kernel writes the structure, of the size that the request has in it.
    check(unsafe { syscall(libc::SYS_ioctl, words) }).ok()?;
    (info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0).then_some(info.exit_code)
}

/// A place for a child: its space, its end of the socket, and its window.
pub(super) struct Place {
    pub(super) space: i32,
    pub(super) socket: i32,
    pub(super) window: i32,
}

impl Desk {
    /// A space that no process has.
    fn free_space(&self) -> Sys<i32> {
        let taken = |space: i32| self.members.iter().any(|member| member.space == space);
        (1..SPACES).map(|n| n * SPACE).find(|&space| !taken(space)).ok_or(Errno::AGAIN)
    }

    /// A place for a child of the process in `from`, which is `who`, and whose own is in force: it begins as a copy of it.
    ///
    /// # Errors
    /// EAGAIN: there are too many processes; as `memfd_create(2)` and `socketpair(2)`.
    pub(super) fn place(
        &mut self,
        tx: &mut Tx,
        from: i32,
        who: u32,
        parent: Option<u32>,
    ) -> Sys<Place> {
        let space = self.free_space()?;
        let window_fd = wire::new_window()?;
        let pair = wire::new_pair().inspect_err(|_| kernel::close(window_fd))?;
        let [socket, theirs] = pair;
        let window = wire::ask_for_senders(socket).and_then(|()| wire::map_window(window_fd));
        let made = window.and_then(|window| {
            let own = tx.copy_of_process(from, space).and_then(|own| {
                let copy = kernel::copy_high(window_fd)?;
                Ok((window, own, copy))
            });
            own.inspect_err(|_| {
                tx.close_space(space, true);
                // SAFETY: nobody else knows of it.
                unsafe { wire::unmap_window(window) };
            })
        });
        let (window, own, copy) = made.inspect_err(|_| {
            [window_fd, socket, theirs].into_iter().for_each(kernel::close);
        })?;
        let (process, first) = (None, false);
        let member = Member {
            socket,
            window,
            window_fd,
            space,
            own,
            who,
            unchanged: false,
            process,
            first,
            parent,
            joined: false,
            closing: Closing::default(),
            asked: 0,
        };
        // What waits takes up descriptors here.
        let limit = kernel::descriptor_limit().cast_unsigned() / 8;
        let has_room = self.members.len() as u64 * u64::from(closing::ROOM) < u64::from(limit);
        Closing::allow(window, self.is_unlocked && has_room);
        self.members.push(member);
        Ok(Place { space, socket: theirs, window: copy })
    }

    /// A place for a process that runs already, at the other end of a socket: its space, and its window.
    ///
    /// # Errors
    /// EAGAIN: there are too many processes; EXDEV: its working directory is another one in the transaction; as
    /// `memfd_create(2)` and `chdir(2)`.
    pub(super) fn enter(
        &mut self,
        tx: &mut Tx,
        (sender, process): (u32, OwnedFd),
        mask: u32,
        socket: &OwnedFd,
        cwd: &OwnedFd,
    ) -> Sys<(i32, i32)> {
        let space = self.free_space()?;
        let own = tx.own_of_joiner(space, mask, cwd.number())?;
        let window_fd = OwnedFd::of(wire::new_window()?);
        let copy = OwnedFd::of(kernel::copy_high(socket.number())?);
        wire::ask_for_senders(copy.number())?;
        let window = wire::map_window(window_fd.number())?;
        let window_fd = window_fd.into_number();
        // SAFETY: the window is mapped as long as there is its member.
        unsafe { wire::is_heard(window) }.store(1, Ordering::Release);
        self.members.push(Member {
            socket: copy.into_number(),
            window,
            window_fd,
            space,
            own,
            who: 0,
            unchanged: false,
            process: Some((sender, process.into_number())),
            first: false,
            parent: None,
            joined: true,
            closing: Closing::default(),
            asked: 0,
        });
        Ok((space, window_fd))
    }
}

/// What the server has.
pub(super) struct Server<'t> {
    pub(super) thread: &'t mut Thread,
    pub(super) desk: &'t mut Desk,
    /// The status of the process that began, once it has ended.
    pub(super) ended: Option<i32>,
    /// It is a thread of the process that began ([`super::host`]): with what umask that makes files.
    pub(super) hosted: Option<&'t mut super::host::Umask>,
}

/// Serves the transaction of a thread, of which this process is a copy, until it is over.
pub fn run(
    thread: &mut Thread,
    socket: i32,
    files: (i32, Option<i32>),
    moved: &[Moved],
    outlets: Vec<Outlet>,
) -> ! {
    signals::block_all();
    let served = thread::guarded(|| serve(thread, socket, files, moved, outlets));
    if let Err(panic) = served {
        api::tell(&session::defect(&panic).what);
    }
    end()
}

/// The process ends.
fn end() -> ! {
    loop {
        // SAFETY: nothing comes after it.
        unsafe { syscall(libc::SYS_exit_group, [0; 6]) };
    }
}

fn serve(
    thread: &mut Thread,
    socket: i32,
    (window_fd, book_fd): (i32, Option<i32>),
    moved: &[Moved],
    outlets: Vec<Outlet>,
) {
    let Some(tx) = transaction(thread) else { return };
    let there = tx.moved_here();
    let locks = tx.take_record_locks();
    for number in moved {
        let Moved::Kernels { number, real, .. } = *number else { continue };
        tx.forget_number(number);
        leave(number);
        if real != number {
            leave(real);
        }
    }
    let Ok(window) = wire::map_window(window_fd) else { return };
    // Before the first message comes.
    let (Some(mut desk), Ok(())) = (Desk::new(outlets), wire::ask_for_senders(socket)) else {
        return;
    };
    // As long as it waits for the answer it is surely there.
    // SAFETY: it takes nothing.
    let parent = unsafe { syscall(libc::SYS_getppid, [0; 6]) } as u32;
    let process = descriptor_of(parent).ok().map(|process| (parent, process));
    let answer = there.as_ref().map_or_else(|failure| -i64::from(failure.errno), |()| 0);
    if wire::send(socket, &Answer::new(How::Done, answer), &[]).is_err() || there.is_err() {
        return;
    }
    // SAFETY: the name ends with its zero.
    unsafe { syscall(libc::SYS_prctl, [15, c"txos".as_ptr() as u64, 0, 0, 0, 0]) };
    let first = Member {
        socket,
        window,
        window_fd,
        space: 0,
        own: Own::default(),
        who: 0,
        unchanged: !identities::are_limited(),
        process,
        first: true,
        parent: None,
        joined: false,
        closing: Closing::default(),
        asked: 0,
    };
    // All files of all processes are open here.
    kernel::raise_descriptor_limit();
    desk.is_unlocked = locks.is_empty();
    desk.locks.begins_with(locks);
    Closing::allow(window, desk.is_unlocked);
    // SAFETY: the window is mapped as long as there is its member.
    unsafe { wire::is_heard(window) }.store(1, Ordering::Release);
    desk.book = book_fd.and_then(|fd| Book::of(fd).ok());
    // SAFETY: the window is mapped until `Tx::lends_no_more`, or the end of the process.
    tx.lends_to(first.space, unsafe { wire::epoch(window) });
    desk.members.push(first);
    let mut server = Server { thread, desk: &mut desk, ended: None, hosted: None };
    server.take_own_out();
    server.run();
}

/// A descriptor of a process.
///
/// # Errors
/// As `pidfd_open(2)`.
pub(super) fn descriptor_of(number: u32) -> Sys<i32> {
    // SAFETY: it has no pointers.
    let process =
        check(unsafe { syscall(libc::SYS_pidfd_open, [u64::from(number), 0, 0, 0, 0, 0]) })?;
    kernel::move_high(process as i32)
}

/// A descriptor of the program's that is none of the transaction's: nobody waits for this process to close it.
/// Messages go to standard error.
fn leave(number: i32) {
    match number {
        2 => {}
        0 | 1 => {
            if let Ok(null) = kernel::open(b"/dev/null", libc::O_RDWR | libc::O_CLOEXEC, 0) {
                let _ = kernel::dup3(null, number, true);
                kernel::close(null);
            }
        }
        _ => kernel::close(number),
    }
}

/// The program's streams are none of this process's any more.
pub(super) fn leave_streams() {
    if let Ok(null) = kernel::open(b"/dev/null", libc::O_RDWR | libc::O_CLOEXEC, 0) {
        for number in 0..=2 {
            let _ = kernel::dup3(null, number, true);
        }
        kernel::close(null);
    }
}

pub(super) fn transaction(thread: &mut Thread) -> Option<&mut Tx> {
    thread.session.as_mut()?.tx.as_deref_mut()
}

impl Server<'_> {
    /// What is the first process's own, which is in force when the transaction moves here.
    fn take_own_out(&mut self) {
        if let (Some(tx), Some(first)) = (transaction(self.thread), self.desk.members.first_mut()) {
            tx.exchange(&mut first.own);
            first.own.is_of_space(0);
        }
    }

    fn run(&mut self) {
        const CLOSES_AFTER: Duration = Duration::from_millis(250);
        let mut waiting_since = None;
        let mut said = false;
        let mut closed = Instant::now();
        let mut worth = Worth::default();
        loop {
            if let Some(status) = self.ended {
                if self.desk.members.len() == 1 {
                    return self.commit(status);
                }
                if self.kills_left() {
                    self.desk.end_members(reason::EXITED);
                }
                let since = *waiting_since.get_or_insert_with(Instant::now);
                if !said && since.elapsed() >= TELL_AFTER {
                    said = true;
                    let count = self.desk.members.len() - 1;
                    let (es, s) = if count == 1 { ("", "s") } else { ("es", "") };
                    api::tell(&format!(
                        "the command has ended; its transaction waits for {count} process{es} that \
                         still run{s}"
                    ));
                }
            }
            let Some(patience) = self.poll(&mut worth) else { return };
            let ready = self.wait(patience);
            if closed.elapsed() >= CLOSES_AFTER {
                self.close_what_waits();
                closed = Instant::now();
            }
            if ready.is_empty() && self.has_lost() {
                return;
            }
            for at in ready.into_iter().rev() {
                if !self.heed(at) {
                    return;
                }
            }
        }
    }

    /// Carries out what processes ask by their mailboxes, as long as that is worth it and nobody has sent a message: how long to wait for
    /// one, then. `None`: the transaction is over.
    fn poll(&mut self, worth: &mut Worth) -> Option<Duration> {
        /// There is more to be done now and then.
        const TURN: Duration = Duration::from_millis(10);
        /// Whether there are messages is looked at once in so many looks.
        const LOOKS: u32 = 64;
        // A process may find all that it asks by itself, and not learn that the transaction has lost.
        const QUIET: Duration = Duration::from_millis(250);
        let is_quiet = worth.has_seen(self.desk.requests);
        if self.ended.is_some() || is_quiet || !worth.polls() {
            return Some(QUIET);
        }
        let mut polled = self.desk.begin_to_poll();
        if polled.spaces.is_empty() {
            return Some(QUIET);
        }
        let (mut taken, mut kept, mut looks) = (0, 0, 0_u32);
        let (mut waiting, began) = (Wait::new(), Instant::now());
        let mut is_awaited = false;
        while !is_awaited && !waiting.is_over() {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) {
                // Somebody else may wait for this processor.
                std::thread::yield_now();
                is_awaited = began.elapsed() >= TURN || !self.wait(Duration::ZERO).is_empty();
            }
            let Some((at, request)) = self.desk.look_into(&mut polled) else {
                spin_loop();
                continue;
            };
            taken += 1;
            kept += u32::from(self.heed_mailbox(at, &request)?);
            waiting = Wait::new();
        }
        // Whoever asks from here on sends it. Each of them may have asked once before it could see that.
        self.desk.stop_polling(&polled);
        for _ in 0..polled.spaces.len() {
            let Some((at, request)) = self.desk.look_into(&mut polled) else { break };
            taken += 1;
            kept += u32::from(self.heed_mailbox(at, &request)?);
        }
        worth.was(2 * kept > taken);
        Some(if is_awaited { Duration::ZERO } else { QUIET })
    }

    /// Carries out a request from a mailbox, and answers it: whether the process was still looking there. `None`: the transaction is over.
    fn heed_mailbox(&mut self, at: usize, request: &Request) -> Option<bool> {
        let member = &self.desk.members[at];
        let (window, socket) = (member.window, member.socket);
        let sender = member.process.map(|(number, _)| number);
        let mut is_there = true;
        let goes_on = self.carry(at, request, (sender, None), |answer, beside| {
            // SAFETY: the window is mapped as long as there is its member.
            if beside.is_empty() && unsafe { mailbox::answer(window, answer) } {
                return Ok(());
            }
            let sent = wire::send_at_once(socket, answer, beside);
            // SAFETY: as above.
            is_there = unsafe { mailbox::is_sent(window) };
            sent
        });
        goes_on.then_some(is_there)
    }

    /// Which members have something to say.
    fn wait(&self, patience: Duration) -> Vec<usize> {
        let mut polled: Vec<libc::pollfd> = self
            .desk
            .members
            .iter()
            .map(|member| libc::pollfd { fd: member.socket, events: libc::POLLIN, revents: 0 })
            .collect();
        let time = patience.as_millis();
        let words = [polled.as_mut_ptr() as u64, polled.len() as u64, time as u64, 0, 0, 0];
        // SAFETY: the kernel writes to the array, whose length it is told.
        unsafe { syscall(libc::SYS_poll, words) };
        let ready = polled.iter().enumerate().filter(|(_, polled)| polled.revents != 0);
        ready.map(|(at, _)| at).collect()
    }

    /// Takes one request of a member, and answers it. `false`: the transaction is over.
    pub(super) fn heed(&mut self, at: usize) -> bool {
        let socket = self.desk.members[at].socket;
        let received = match wire::receive_at_once::<Request>(socket) {
            Ok(Some(received)) => received,
            // Somebody else has taken it.
            Err(Errno::AGAIN) => return true,
            _ => return self.gone(at, false),
        };
        if received.lost && wire::is_full() {
            self.runs_out();
        }
        // A socket, to be bound; what else is sent is not wanted.
        let [beside, other] = received.beside.map(|fd| fd.map(OwnedFd::of));
        drop(other);
        self.carry(at, &received.message, (received.sender, beside), |answer, beside| {
            wire::send_at_once(socket, answer, beside)
        })
    }

    /// Carries out a request, and replies. `false`: the transaction is over.
    fn carry(
        &mut self,
        at: usize,
        request: &Request,
        (sender, beside): (Option<u32>, Option<OwnedFd>),
        reply: impl FnOnce(&Answer, &[i32]) -> Sys<()>,
    ) -> bool {
        self.desk.requests += 1;
        self.desk.members[at].asked = self.desk.requests;
        self.close_for(at);
        let answered = self.answer(at, request, sender, beside);
        if self.is_over_by_now() {
            return false;
        }
        match answered {
            Some((answer, descriptors)) => {
                let sent = reply(&answer, &descriptors.numbers());
                descriptors.close();
                let left = request.ask() == Some(Ask::Leave);
                match sent {
                    Ok(()) if !left => true,
                    // All others would wait for that one.
                    Err(Errno::AGAIN) => {
                        let what = "a process of the command goes on asking, and takes no answers";
                        self.over(unsupported(what.into()));
                        false
                    }
                    _ => self.gone(at, left),
                }
            }
            None => true,
        }
    }

    /// Closes what a process has closed since its last request.
    fn close_for(&mut self, at: usize) {
        let member = &mut self.desk.members[at];
        let (numbers, window) = (member.closing.take(member.window), member.window);
        if numbers.is_empty() {
            return;
        }
        for number in numbers {
            let words = [number.cast_unsigned().into(), 0, 0, 0, 0, 0];
            let request = Request::new(Ask::Call, libc::SYS_close).with(words);
            // It was open; of a number that was not, nobody waits for an answer.
            let _ = self.carry_out(at, &request);
        }
        self.desk.members[at].closing.done(window);
    }

    /// Closes what any process has closed.
    fn close_what_waits(&mut self) {
        (0..self.desk.members.len()).for_each(|at| self.close_for(at));
    }

    /// Before a call is carried out: once one may lock something, closing a file can make a difference to others.
    fn heed_locks(&mut self, request: &Request) {
        let locks = match request.number {
            libc::SYS_flock => true,
            libc::SYS_fcntl => !matches!(
                request.words[1] as i32,
                libc::F_DUPFD
                    | libc::F_DUPFD_CLOEXEC
                    | libc::F_GETFD
                    | libc::F_SETFD
                    | libc::F_GETFL
                    | libc::F_SETFL
            ),
            _ => false,
        };
        if !locks || !std::mem::take(&mut self.desk.is_unlocked) {
            return;
        }
        self.desk.members.iter().for_each(|member| Closing::allow(member.window, false));
        self.close_what_waits();
    }

    /// A process is gone, or has `left` and goes on outside. `false`: with it the transaction.
    fn gone(&mut self, at: usize, left: bool) -> bool {
        let member = self.desk.members.swap_remove(at);
        // SAFETY: the window is mapped as long as there is this member.
        let becomes = unsafe { wire::becomes(member.window) }.load(Ordering::SeqCst);
        if let Some(tx) = transaction(self.thread) {
            tx.lends_no_more(member.space);
        }
        if member.joined {
            wire::shut(member.socket);
        }
        kernel::close(member.socket);
        kernel::close(member.window_fd);
        let said = match becomes {
            wire::CANT_ASK => {
                Some(member.path(wire::Layout::default().place(0).unwrap_or(0) as u64))
            }
            _ => None,
        };
        let said = said.map(|path| shown(&path.unwrap_or_default()));
        // SAFETY: only this process's mapping goes, and nothing points into it.
        unsafe { wire::unmap_window(member.window) };
        let mut runs_without = becomes != 0;
        let mut killed = None;
        if let Some((number, process)) = member.process {
            if runs_without {
                // A program that goes on without its connection is not let go on.
                let ended = ends(number, process) || {
                    kill(process);
                    false
                };
                let loads = becomes == Loads::Surely as u32;
                let has_ended = || match member.first {
                    true => killed_by(number, process).is_some_and(|signal| signal != 0),
                    false => ended_by_linker(number, process),
                };
                runs_without = !(ended && loads && has_ended());
            }
            if self.hosted.is_some() && !left && !member.joined {
                wait_for_end(process);
            }
            if member.first && !left && !runs_without && ends(number, process) {
                killed = killed_by(number, process);
            }
            kernel::close(process);
        }
        if runs_without {
            let what = said.unwrap_or_else(|| {
                "a program has ended before the library was loaded into it, or has run without"
                    .into()
            });
            self.over(unsupported(what));
            return false;
        }
        if member.first {
            session::abort_in(self.thread, session::ended());
            if let (Some(signal), Some(command)) = (killed, self.command()) {
                command.was_killed(signal, &self.thread.report);
            }
            self.desk.end_members(reason::EXITED);
            return false;
        }
        if let Some(tx) = transaction(self.thread) {
            tx.close_space(member.space, true);
        }
        self.desk.locks.closed_all(member.space, |_| true);
        true
    }

    /// Whether the transaction has lost meanwhile: then it is over.
    fn has_lost(&mut self) -> bool {
        if let Some(tx) = transaction(self.thread) {
            tx.check_doom();
        }
        self.is_over_by_now()
    }

    /// Whether the transaction can't be committed any more: then it is over.
    fn is_over_by_now(&mut self) -> bool {
        let doom = transaction(self.thread).and_then(|tx| tx.doomed().cloned());
        match doom {
            Some(why) => {
                self.over(why);
                true
            }
            None => false,
        }
    }

    /// The transaction can't be committed any more: all its processes end.
    fn over(&mut self, why: Failure) {
        let number = why.reason;
        session::abort_in(self.thread, why);
        let command = self.command();
        let is_followed = command.as_ref().is_some_and(Command::is_followed);
        let status = command.map_or(125, |command| command.failed(&self.thread.report));
        for member in self.desk.members.iter().filter(|member| member.first) {
            let _ = wire::send_at_once(member.socket, &Answer::new(How::Over, status.into()), &[]);
            // It learns that before its next call of any kind.
            // SAFETY: the window is mapped as long as there is this member.
            unsafe { wire::is_over(member.window) }.store(1 + number, Ordering::Release);
        }
        self.desk.end_members(number);
        if is_followed {
            // What it does until it ends is not to be done beside the command that is run again.
            for member in self.desk.members.iter().filter(|member| !member.first) {
                if let Some((_, process)) = member.process {
                    wait_for_end(process);
                }
            }
        }
    }

    fn kills_left(&self) -> bool {
        let session = self.thread.session.as_ref();
        session.and_then(|session| session.command.as_ref()).is_some_and(Command::kills_left)
    }

    fn command(&mut self) -> Option<Command> {
        self.thread.session.as_mut().and_then(|session| session.command.take())
    }

    /// Only the first process is left, and has ended.
    fn commit(&mut self, status: i32) {
        let Some(mut first) = self.desk.members.pop() else { return };
        if let Some(tx) = transaction(self.thread) {
            tx.exchange(&mut first.own);
        }
        let command = self.command();
        let awaited = Awaited::by(first.socket, first.process);
        let (status, held) =
            command.map_or((125, None), |command| command.end(self.thread, status, Some(&awaited)));
        let _ = wire::send_at_once(first.socket, &Answer::new(How::Over, status.into()), &[]);
        if let Some(held) = held {
            self.desk.dismiss();
            kernel::close(first.socket);
            if let Some((_, process)) = first.process {
                while !wait_for_end(process) {}
            }
            held.wait();
        }
    }

    fn answer(
        &mut self,
        at: usize,
        request: &Request,
        sender: Option<u32>,
        beside: Option<OwnedFd>,
    ) -> Option<(Answer, Beside)> {
        let done = |answer: i64| Some((Answer::new(How::Done, answer), Beside::default()));
        let failed = |errno: Errno| done(-i64::from(errno.raw_os_error()));
        let known = self.desk.members[at].process.map(|(number, _)| number);
        self.desk.locks.goes_on(self.desk.members[at].space);
        let answered = match request.ask() {
            // The connection is one process's.
            _ if sender.is_none() || known.is_some() && known != sender => Err(Errno::PERM),
            Some(Ask::Here) => {
                let goes_on = request.words[1] != 0;
                let answered = self.here(at, request, sender.unwrap_or(0));
                if goes_on {
                    // One that has ended meanwhile has no more to say.
                    if let Err(errno) = answered
                        && errno != Errno::SRCH
                    {
                        self.cannot_follow(errno)?;
                        self.desk.members[at].end_by_number(sender);
                    }
                    return None;
                }
                answered
            }
            _ if known.is_none() => Err(Errno::PERM),
            Some(Ask::Call) => self.as_member(at, request, |server| server.call(at, request)),
            Some(Ask::Map) => self.as_member(at, request, |server| server.map(at, request)),
            Some(Ask::Program) => self.as_member(at, request, |server| server.program(at, request)),
            Some(Ask::Libraries) => {
                let tx = transaction(self.thread)?;
                Ok(Answered::of(tx.has_other_libraries().into()))
            }
            Some(Ask::Address) => self.as_member(at, request, |s| s.address(at, request, beside)),
            Some(Ask::Child) => self.child(at),
            Some(Ask::Reopen) => self.reopen(at, request),
            Some(Ask::End) if self.desk.members[at].first => {
                self.ended = Some(request.words[0] as i32);
                // Others may wait for its locks, and for the ends of what it has open.
                let space = self.desk.members[at].space;
                if let Some(tx) = transaction(self.thread) {
                    tx.close_space(space, true);
                }
                self.desk.locks.closed_all(space, |_| true);
                return None;
            }
            Some(Ask::Live) => match txos_calls::class(request.number) {
                Class::Passed(what) | Class::Held(what) | Class::Restored(what) => {
                    let tx = transaction(self.thread)?;
                    tx.done_live(request.number, what).map(|()| Answered::of(0))
                }
                _ => Err(Errno::INVAL),
            },
            Some(Ask::Output) => {
                let tx = transaction(self.thread)?;
                tx.output(request.number, request.words[0] as u32).map(|()| Answered::of(0))
            }
            Some(Ask::IsMember) => {
                let number = request.words[0] as i32;
                Ok(match self.desk.has(number, self.hosted.is_some()) {
                    Some(is_it) => Answered::of(is_it.into()),
                    None => Answered(Answer::new(How::Later, 0), Beside::default()),
                })
            }
            Some(Ask::Special) => self.as_member(at, request, |s| s.special(at, request, beside)),
            Some(Ask::Signal) => self.signal(at, request, beside),
            Some(Ask::Group) => self.group(at, request.words[0] as i32),
            Some(Ask::Fail) => {
                let what = text(&self.desk.members[at], request.words[0], request.words[1]);
                transaction(self.thread)?.cannot_go_on(unsupported(what));
                Err(Errno::CANCELED)
            }
            Some(Ask::Leave) if transaction(self.thread).is_none() => Err(Errno::CANCELED),
            Some(Ask::Leave) => Ok(Answered::of(0)),
            Some(Ask::Adopt) if self.desk.members[at].joined => self.adopt(at, request, beside),
            Some(Ask::Abort) => {
                let session = self.thread.session.as_mut();
                if let Some(member) = session.and_then(|session| session.member.as_mut()) {
                    member.wants_again(request.words[0] != 0);
                }
                let why = Failure {
                    reason: reason::ASKED,
                    errno: libc::ECANCELED,
                    what: "the program aborted the transaction".into(),
                    ..Failure::default()
                };
                transaction(self.thread)?.cannot_go_on(why);
                Err(Errno::CANCELED)
            }
            Some(Ask::End | Ask::Join | Ask::Adopt | Ask::Ready) | None => Err(Errno::INVAL),
        };
        let errno = match &answered {
            Ok(Answered(answer, _)) => -answer.answer,
            Err(errno) => errno.raw_os_error().into(),
        };
        if errno == i64::from(libc::EMFILE) {
            self.runs_out();
        }
        match answered {
            Ok(Answered(answer, beside)) => Some((answer, beside)),
            Err(errno) => failed(errno),
        }
    }

    /// A process is not known from here on.
    fn cannot_follow(&mut self, errno: Errno) -> Option<()> {
        if errno == Errno::MFILE {
            self.runs_out();
        }
        let what = format!("a process of the command can't be followed: {}", wire::words_of(errno));
        transaction(self.thread)?.cannot_go_on(unsupported(what));
        Some(())
    }

    /// The server has no room for another descriptor. A process that asks has room for its own number, and natively nothing would fail: the
    /// transaction can't go on. (A program's own process has its own limit, which its members share.)
    fn runs_out(&mut self) {
        if self.hosted.is_none()
            && let Some(tx) = transaction(self.thread)
        {
            let who = "the process that has the transaction: it has all files open that any process of it has, and some 40 descriptors of its own";
            tx.cannot_go_on(unsupported(wire::too_few_descriptors(who)));
        }
    }

    /// Does something with the identity of a member.
    fn as_member<T>(
        &mut self,
        at: usize,
        request: &Request,
        f: impl FnOnce(&mut Self) -> Sys<T>,
    ) -> Sys<T> {
        let ids = match self.desk.members[at].who {
            0 => return f(self),
            who => &self.desk.ids[who as usize],
        };
        let identity = ids.for_call(request.number, &request.words);
        // What was found for one call may be forbidden by now, and may never have been allowed to the real user. The
        // transaction's owner could open it still.
        self.desk.judged = self.desk.judged.wrapping_add(1);
        let who = self.desk.judged | ONCE;
        let tx = transaction(self.thread).ok_or(Errno::CANCELED)?;
        tx.becomes(&mut self.desk.members[at].own, who)?;
        match kernel::as_other(&identity, || f(self)) {
            Ok(done) => done,
            Err(errno) => {
                let what = "a call of a process with another user, other groups or capabilities can't be made as that";
                transaction(self.thread).ok_or(errno)?.cannot_go_on(unsupported(what.into()));
                Err(Errno::CANCELED)
            }
        }
    }

    /// A call, with the descriptors and addresses of this process.
    fn call(&mut self, at: usize, request: &Request) -> Sys<Answered> {
        self.heed_locks(request);
        if let Some(tx) = transaction(self.thread) {
            tx.begin_trace();
        }
        let answered = self.carry_out(at, request);
        self.note_answer(at, request, &answered);
        answered
    }

    /// What a call has changed makes answers void. Its own answer is written down, if it is one to a question.
    fn note_answer(&mut self, at: usize, request: &Request, answered: &Sys<Answered>) {
        let (desk, Some(tx)) = (&mut *self.desk, transaction(self.thread)) else { return };
        let (Some(book), member) = (desk.book.as_mut(), &desk.members[at]) else { return };
        let (number, words) = (request.number, &request.words);
        let changes = Changes::of(number, words);
        match changes {
            Changes::Nothing => {}
            Changes::Traced => {
                let chosen = i32::try_from(request.chosen).ok();
                let number = chosen.filter(|&n| n >= 0).or(Changes::number(number, words));
                let number = number.filter(|number| (0..SPACE).contains(number));
                book.changed(tx.has_changed(number.map(|number| member.space + number)));
            }
            Changes::Any => book.changed(Marks::ALL),
        }
        if changes != Changes::Nothing || tx.has_found_libraries() {
            note_libraries(book, &mut desk.other_libraries, tx);
        }
        let standing = member.stands(tx);
        let Some(question) = Question::of(number, words) else { return };
        let Ok(Answered(answer, _)) = answered else { return };
        if answer.how() != Some(How::Done) {
            return;
        }
        let (from, path, marks) = match question.about() {
            About::Path(at) => {
                let Ok(path) = member.path(words[at]) else { return };
                (answers::from_path(&path, standing), path, tx.rests_on(answer.answer))
            }
            About::Number(at) => {
                let is_empty = |at: usize| member.path(words[at]).is_ok_and(|path| path.is_empty());
                if !at.is_none_or(is_empty) {
                    return;
                }
                let object = member.number(words[0]).ok().and_then(|n| tx.object_at(n as i32));
                let from = object
                    .and_then(|(id, _)| answers::from_object(u32::try_from(id).ok()?, standing));
                (from, Vec::new(), object.map(|(_, marks)| marks))
            }
        };
        if question.opens()
            && answer.answer >= 0
            && let (Some(marks), Some(from)) = (marks, from)
        {
            let image = chosen_by(request)
                .and_then(|n| image(book, tx, member.space + n, question.flags()));
            if let Some(image) = image {
                book.write(&question, (from, &path), 0, &image.to_bytes(), marks);
            }
            return;
        }
        if let (Some((place, size)), Some(marks), Some(from)) =
            (question.data(answer.answer), marks, from)
        {
            let data = match size {
                0 => Vec::new(),
                _ => member.bytes(words[place] as usize, size),
            };
            book.write(&question, (from, &path), answer.answer, &data, marks);
        }
    }

    fn carry_out(&mut self, at: usize, request: &Request) -> Sys<Answered> {
        let (thread, member) = (&mut *self.thread, &mut self.desk.members[at]);
        let tx = transaction(thread).ok_or(Errno::CANCELED)?;
        let refused = matches!(txos_calls::class(request.number), Class::Refused(..));
        let (call, opens) = match shape_of(request) {
            Some(shape) => (member.call(request, &shape)?, shape.opens),
            // SAFETY: it is answered without a look at its arguments.
            None if refused => (unsafe { Call::new(request.number, [0; 6]) }, false),
            None => return Err(Errno::NOSYS),
        };
        let chosen = chosen_by(request).map(|number| member.space + number);
        tx.exchange(&mut member.own);
        let moves = matches!(request.number, libc::SYS_chdir | libc::SYS_chroot);
        let has_two = has_two_paths(request.number);
        tx.delegate(!moves && (member.who != 0 || !has_two));
        match self.hosted.as_mut() {
            Some(umask) => umask.wear(tx),
            None => tx.wear_umask(),
        }
        let closes = (call.number() == libc::SYS_close && !self.desk.locks.is_empty())
            .then(|| tx.lockable(call.int(0)).ok().map(|file| file.id))
            .flatten();
        if let Some(command) = lock_command(&call)
            && let Some(locked) = lock(self.desk, at, tx, &call, command).transpose()
        {
            tx.delegate(false);
            tx.exchange(&mut self.desk.members[at].own);
            return locked;
        }
        let member = &mut self.desk.members[at];
        let answer = match tx.next_step(&call) {
            Step::Here => Some(tx.call_with(&call, chosen)),
            Step::Try(call, errno) => {
                let answer = tx.call_with(&call, chosen);
                (answer != -i64::from(errno.raw_os_error())).then_some(answer)
            }
            Step::Later => None,
            _ => Some(-i64::from(libc::EINVAL)),
        };
        let opening = tx.take_opening();
        let way = opening.as_ref().map_or(Ok(None), |opening| tx.place_of(opening));
        let elsewhere = tx.take_elsewhere(&call);
        tx.delegate(false);
        tx.exchange(&mut member.own);
        if let Some(path) = elsewhere? {
            let mut answer = Answer::new(How::Elsewhere, 0);
            answer.more[0] = member.put(&path)?;
            return Ok(Answered(answer, Beside::default()));
        }
        if matches!(answer, Some(0..))
            && call.number() == libc::SYS_close
            && let Some(id) = closes
        {
            self.desk.locks.closed(member.space, id);
        }
        if let Some(opening) = opening {
            let size = member.put(&opening.path)?;
            let mut answer = Answer::new(How::Yourself, 0);
            answer.more = [size, opening.flags as u64];
            let way = way?.map(OwnedFd::into_number);
            return Ok(Answered(answer, Beside::to_close(way.as_slice())));
        }
        let Some(answer) = answer else {
            return Ok(Answered(Answer::new(How::Later, 0), Beside::default()));
        };
        match (opens, chosen) {
            (true, Some(number)) if answer >= 0 && !tx.is_of_the_transaction(number) => {
                let fd = tx.take_kernels(number).ok_or(Errno::MFILE)?;
                Ok(Answered(Answer::new(How::WithDescriptors, 0), Beside::to_close(&[fd])))
            }
            _ if answer >= 0 && member.who == 0 && self.hosted.is_none() => {
                let number = match request.number {
                    _ if opens => chosen,
                    libc::SYS_read
                    | libc::SYS_pread64
                    | libc::SYS_write
                    | libc::SYS_pwrite64
                    | libc::SYS_lseek => Some(call.int(0)),
                    _ => None,
                };
                Ok(match number.and_then(|number| tx.lend(number)) {
                    Some(real) => Answered(Answer::new(How::Lent, answer), Beside::kept(real)),
                    None => {
                        let object = number.filter(|_| opens).and_then(|n| tx.object_at(n));
                        let mut answer = Answer::new(How::Done, answer);
                        answer.more[0] = object.map_or(0, |(id, _)| 1 + id as u64);
                        Answered(answer, Beside::default())
                    }
                })
            }
            _ => Ok(Answered::of(answer)),
        }
    }

    /// Opens the file of an image for a number of a process that began with the owner's identity.
    fn reopen(&mut self, at: usize, request: &Request) -> Sys<Answered> {
        let (thread, member) = (&mut *self.thread, &mut self.desk.members[at]);
        let tx = transaction(thread).ok_or(Errno::CANCELED)?;
        let id = request.words[0] as usize;
        let has_image = self.desk.book.as_ref().is_some_and(|book| book.had_image(id));
        let (true, 0, Some(number)) = (has_image, member.who, chosen_by(request)) else {
            return Err(Errno::PERM);
        };
        let (flags, offset) = (request.words[1] as i32, request.words[2]);
        if !images::may_open(flags) {
            return Err(Errno::PERM);
        }
        tx.exchange(&mut member.own);
        let opened = tx.open_for(id, flags, member.space + number, offset);
        tx.exchange(&mut member.own);
        opened.map(|()| Answered::of(0))
    }

    /// A call about a FIFO or device that a process has open itself, and that the call has at the number for that.
    fn special(&mut self, at: usize, request: &Request, beside: Option<OwnedFd>) -> Sys<Answered> {
        let fd = OwnedFd::of(kernel::move_high(beside.ok_or(Errno::BADF)?.into_number())?);
        let number = self.desk.members[at].space + wire::SPECIAL;
        let tx = transaction(self.thread).ok_or(Errno::CANCELED)?;
        if !tx.stands_for_special(number, fd)? {
            return Ok(Answered(Answer::new(How::Yourself, 0), Beside::default()));
        }
        let mut about_it = *request;
        about_it.chosen = -1;
        let answered = self.call(at, &about_it);
        transaction(self.thread).ok_or(Errno::CANCELED)?.closes_special(number);
        answered
    }

    /// A signal to a process outside.
    fn signal(&mut self, at: usize, request: &Request, through: Option<OwnedFd>) -> Sys<Answered> {
        let member = &self.desk.members[at];
        let who = member.who;
        let credentials =
            (who != 0 || self.hosted.is_some()).then(|| self.desk.ids[who as usize].credentials());
        let info = match held::info_at(request.number).map(|at| request.words[at]) {
            None | Some(0) => None,
            Some(place) => Some(member.info(place)?),
        };
        let Request { number, words, .. } = *request;
        let tx = transaction(self.thread).ok_or(Errno::CANCELED)?;
        let by = match credentials {
            // The thread that began sends it. Members are who it was then.
            Some(credentials) if self.hosted.is_some() => {
                tx.sends_as_began(&credentials);
                (0, None)
            }
            Some(credentials) => {
                if !self.desk.can_send_as(who, &credentials) {
                    return Ok(Answered(Answer::new(How::Yourself, 0), Beside::default()));
                }
                (who, Some(credentials))
            }
            None => (0, None),
        };
        tx.hold_sent(by, Sent { number, words, info, through }).map(|_| Answered::of(0))
    }

    /// The processes of a group: those that are in the transaction, then the others.
    fn group(&mut self, at: usize, group: i32) -> Sys<Answered> {
        let (own, hosted) = (kernel::own_process(), self.hosted.is_some());
        let later = || Ok(Answered(Answer::new(How::Later, 0), Beside::default()));
        if self.desk.is_about_to_grow(group, hosted) {
            return later();
        }
        let (mut all, mut others) = (Vec::new(), Vec::new());
        for number in kernel::processes() {
            // The server is no process of the command's.
            let is_server = number == own && !hosted;
            if kernel::group_of(number) != Ok(group) || is_server || is_over(number) {
                continue;
            }
            match self.desk.has(number, hosted) {
                Some(true) => all.push(number),
                Some(false) => others.push(number),
                None => return later(),
            }
        }
        let mut answer = Answer::new(How::Done, all.len() as i64);
        all.extend(others);
        let bytes: Vec<u8> = all.into_iter().flat_map(i32::to_ne_bytes).collect();
        answer.more[0] = self.desk.members[at].put(&bytes)?;
        Ok(Answered(answer, Beside::default()))
    }

    /// Where the address of a socket leads, or what it is bound to.
    fn address(&mut self, at: usize, request: &Request, socket: Option<OwnedFd>) -> Sys<Answered> {
        let (thread, member) = (&mut *self.thread, &mut self.desk.members[at]);
        let tx = transaction(thread).ok_or(Errno::CANCELED)?;
        let path = member.path(request.words[0])?;
        tx.exchange(&mut member.own);
        tx.delegate(true);
        match self.hosted.as_mut() {
            Some(umask) => umask.wear(tx),
            None => tx.wear_umask(),
        }
        let bound = match socket {
            Some(socket) => {
                let before = request.words[1] != 0;
                tx.bind_of_member(socket.number(), &path, before).map(Err)
            }
            None => tx.peer_of_member(&path).map(Ok),
        };
        let elsewhere = tx.take_live();
        tx.delegate(false);
        tx.exchange(&mut member.own);
        self.desk.void_answers();
        let member = &self.desk.members[at];
        if let Some(path) = elsewhere {
            let mut answer = Answer::new(How::Elsewhere, 0);
            answer.more[0] = member.put(&path)?;
            return Ok(Answered(answer, Beside::default()));
        }
        match bound? {
            Err(kept) => {
                let mut answer = Answer::new(How::Done, 0);
                answer.more[0] = member.put(&kept)?;
                Ok(Answered(answer, Beside::default()))
            }
            Ok((fd, new)) => {
                let mut answer = Answer::new(How::WithDescriptors, 0);
                answer.more[1] = new.into();
                Ok(Answered(answer, Beside::to_close(&[fd.into_number()])))
            }
        }
    }

    /// What a process that joined has open: whether that is the transaction's.
    fn adopt(&mut self, at: usize, request: &Request, beside: Option<OwnedFd>) -> Sys<Answered> {
        let (thread, member) = (&mut *self.thread, &mut self.desk.members[at]);
        let tx = transaction(thread).ok_or(Errno::CANCELED)?;
        let number = i32::try_from(request.words[0]).ok().filter(|n| (0..SPACE).contains(n));
        let Some(fd) = beside else {
            let id = FileId { dev: request.words[2], ino: request.words[3] };
            let new = Outlet { id, kind: request.words[4] as u32 };
            if !self.desk.handed_over.contains(&new) {
                self.desk.handed_over.push(new);
            }
            return Ok(Answered::of(0));
        };
        let number = number.ok_or(Errno::BADF)?;
        let fd = OwnedFd::of(kernel::move_high(fd.into_number())?);
        if !matches!(kernel::look_fd(fd.number())?.kind(), FileKind::File | FileKind::Dir) {
            return Err(Errno::INVAL);
        }
        let is_ours = tx.adopt_for(member.space, number, fd, request.words[1] != 0)?;
        Ok(Answered::of(is_ours.into()))
    }

    fn map(&mut self, at: usize, request: &Request) -> Sys<Answered> {
        let (thread, member) = (&mut *self.thread, &mut self.desk.members[at]);
        let tx = transaction(thread).ok_or(Errno::CANCELED)?;
        let mut words = request.words;
        words[4] = member.number(words[4])?;
        // SAFETY: it is not made; the address in it is only looked at.
        let call = unsafe { Call::new(libc::SYS_mmap, words) };
        tx.exchange(&mut member.own);
        let real = tx.to_be_mapped(&call);
        tx.exchange(&mut member.own);
        // By a mapping of what is open to read nothing can be written, shared or not.
        if call.int(3) & libc::MAP_PRIVATE == 0 && tx.is_open_to_write(call.int(4)) {
            self.desk.void_answers();
        }
        Ok(Answered(Answer::new(How::WithDescriptors, 0), Beside::kept(real?)))
    }

    fn program(&mut self, at: usize, request: &Request) -> Sys<Answered> {
        let (thread, member) = (&mut *self.thread, &mut self.desk.members[at]);
        let tx = transaction(thread).ok_or(Errno::CANCELED)?;
        let path = member.path(request.words[1])?;
        let dir = member.number(request.words[0])? as i32;
        let flags = request.words[2] as i32;
        tx.exchange(&mut member.own);
        tx.begin_trace();
        let program = tx.program_of_member(dir, &path, flags);
        tx.exchange(&mut member.own);
        if let Some(book) = &mut self.desk.book {
            note_libraries(book, &mut self.desk.other_libraries, tx);
            if !self.desk.other_libraries {
                note_program(book, member, tx, (dir, &path, flags), &program);
            }
        }
        let (mut answer, beside) = match program? {
            Program::AsGiven => (Answer::new(How::Done, 0), Beside::default()),
            Program::Copy(fd) => (Answer::new(How::WithDescriptors, 0), Beside::to_close(&[fd])),
            Program::Stable(path) => {
                let mut answer = Answer::new(How::Yourself, 0);
                answer.more[0] = member.put(&path)?;
                (answer, Beside::default())
            }
        };
        // What it would ask next.
        answer.more[1] = 1 + u64::from(tx.has_other_libraries());
        Ok(Answered(answer, beside))
    }

    /// A place for a child of a process.
    fn child(&mut self, at: usize) -> Sys<Answered> {
        let (thread, desk) = (&mut *self.thread, &mut *self.desk);
        let tx = transaction(thread).ok_or(Errno::CANCELED)?;
        let parent = &mut desk.members[at];
        let (from, who, unchanged) = (parent.space, parent.who, parent.unchanged);
        let number = parent.process.map(|(number, _)| number);
        tx.exchange(&mut parent.own);
        let place = desk.place(tx, from, who, number);
        tx.exchange(&mut self.desk.members[at].own);
        let Place { space, socket, window } = place?;
        // The answers count for another one when it is known who that is.
        let counts = self.desk.book.is_some() && unchanged;
        if let Some(child) = self.desk.members.last().filter(|_| counts) {
            child.stands(tx);
        }
        if self.hosted.is_none()
            && let Some(child) = self.desk.members.last_mut()
        {
            child.unchanged = unchanged;
            // SAFETY: the window is mapped until `Tx::lends_no_more`, or the end of the process.
            tx.lends_to(space, unsafe { wire::epoch(child.window) });
        }
        let mut answer = Answer::new(How::WithDescriptors, 0);
        answer.more[0] = space as u64;
        Ok(Answered(answer, Beside::to_close(&[socket, window])))
    }

    /// Looks who a process is. From there on its calls are made as that.
    fn identify(&mut self, at: usize, process: u32) -> Sys<()> {
        let tx = transaction(self.thread).ok_or(Errno::CANCELED)?;
        let ids = Ids::of(process).ok_or(Errno::SRCH)?;
        let known = self.desk.ids.iter().position(|known| *known == ids);
        let member = &self.desk.members[at];
        let before = &self.desk.ids[member.who as usize];
        let why = if !identities::is_of_this_namespace(process) {
            Some("a process of the command has a user namespace of its own")
        } else if known.is_none() && self.hosted.is_some() {
            // A thread of a program's can't go by others: its own are the program's.
            Some(
                "a process of the transaction has taken another user, other groups or capabilities",
            )
        } else if known.is_none() && !ids.can_be_served() {
            Some(
                "a process of the command has a user, groups or capabilities that the one that began can't have",
            )
        } else if !before.can_become(&ids) {
            Some("a process of the command runs a program that gives it other rights")
        } else if tx.has_other_root(&member.own) && !ids.can_leave_its_root() {
            Some(
                "a process of the command is to stay in a root directory of its own, which only the transaction knows",
            )
        } else {
            None
        };
        if let Some(why) = why {
            tx.cannot_go_on(unsupported(why.into()));
            return Err(Errno::CANCELED);
        }
        let who = known.unwrap_or(self.desk.ids.len());
        if who == self.desk.ids.len() {
            self.desk.ids.push(ids);
        }
        let member = &mut self.desk.members[at];
        member.who = who as u32;
        if self.desk.book.is_some() {
            member.stands(tx);
        }
        tx.becomes(&mut member.own, member.who)
    }

    /// A process is there, has other ids now, or runs another program.
    fn here(&mut self, at: usize, request: &Request, sender: u32) -> Sys<Answered> {
        const NONE: FileId = FileId { dev: 0, ino: 0 };
        let member = &mut self.desk.members[at];
        let (is_new, runs_program) = (member.process.is_none(), request.words[0] != 0);
        if runs_program {
            // SAFETY: the window is mapped as long as there is this member.
            unsafe { wire::becomes(member.window) }.store(0, Ordering::SeqCst);
            // SAFETY: as above. What a thread of the program before has asked, exec has ended.
            unsafe { mailbox::empty(member.window) };
        }
        // A child has its parent's ids, and the client runs no program that gives rights. From one program to the next nothing else changes
        // (capabilities(7): what is found after the first is found after the second).
        let is_known = member.unchanged && member.who == 0 && (is_new || runs_program);
        if is_new {
            let process = descriptor_of(sender)?;
            if wire::is_hung_up(member.socket) {
                // It has ended, and somebody else may have its number.
                kernel::close(process);
                return Err(Errno::SRCH);
            }
            if !is_known {
                // What is no process of the transaction's is not ended with it.
                self.identify(at, sender).inspect_err(|_| kernel::close(process))?;
            }
            let member = &mut self.desk.members[at];
            member.process = Some((sender, process));
            // SAFETY: the window is mapped as long as there is this member.
            unsafe { wire::is_heard(member.window) }.store(1, Ordering::Release);
        } else if !is_known {
            self.identify(at, sender)?;
            // Nor its children, nor what they run.
            self.desk.members[at].unchanged = false;
        }
        if !runs_program {
            return Ok(Answered::of(0));
        }
        let member = &mut self.desk.members[at];
        // That program has not asked to join, and does not know how to go on after an abort.
        member.joined = false;
        let space = member.space;
        let flags = self.thread.session.as_ref().map_or(0, |session| session.plan.flags);
        let tx = transaction(self.thread).ok_or(Errno::CANCELED)?;
        tx.close_space(space, false);
        self.desk.locks.closed_all(space, |id| !tx.has_open(space, id));
        let numbers = tx.numbers_of(space);
        let mut words = vec![space as u64, tx.taken_back().into(), numbers.len() as u64];
        for number in numbers {
            let lent = tx.lent_at(space + number).unwrap_or(NONE);
            words.extend([number as u64, lent.dev, lent.ino]);
        }
        let outlets = self.desk.outlets.iter().chain(&self.desk.handed_over);
        words.extend(outlets.flat_map(|o| [o.id.dev, o.id.ino, u64::from(o.kind)]));
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let mut answer = Answer::new(How::WithDescriptors, i64::from(flags));
        let member = &self.desk.members[at];
        answer.more[0] = member.put(&bytes)?;
        // What was answered to the owner is nobody else's.
        let book = self.desk.book.as_ref().filter(|_| member.who == 0);
        let numbers = [Some(member.window_fd), book.map(|book| book.fd)];
        Ok(Answered(answer, Beside::all_kept(numbers.into_iter().flatten())))
    }
}

/// Once programs may have other libraries in the transaction, the table no longer says where they are: its readers take them for those of outside.
fn note_libraries(book: &mut Book, other_libraries: &mut bool, tx: &mut Tx) {
    if !*other_libraries && tx.has_other_libraries() {
        *other_libraries = true;
        book.changed(Marks::ALL);
    }
}

/// Writes down where a program was found, for the next process that runs it.
fn note_program(
    book: &Book,
    member: &Member,
    tx: &Tx,
    (dir, path, flags): (i32, &[u8], i32),
    found: &Sys<Program>,
) {
    let (place, answer) = match found {
        Ok(Program::Stable(place)) => (place.as_slice(), 0),
        Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => (&[][..], -i64::from(errno.raw_os_error())),
        _ => return,
    };
    let counts = dir == libc::AT_FDCWD && Question::can_tell(place);
    let from = answers::from_path(path, member.stands(tx));
    if let (true, Some(from), Some(marks)) = (counts, from, tx.rests_on(answer)) {
        book.write(&Question::program(flags), (from, path), answer, place, marks);
    }
}

/// What a call does about a record lock of the process, if that is what it is about.
fn lock_command(call: &Call) -> Option<i32> {
    let command = call.int(1);
    let is_one = [libc::F_GETLK, libc::F_SETLK, libc::F_SETLKW].contains(&command);
    (call.number() == libc::SYS_fcntl && is_one).then_some(command)
}

/// A record lock, between the processes of the transaction and towards others. `None`: none of them has one, and the
/// call asks who has.
fn lock(
    desk: &mut Desk,
    at: usize,
    tx: &mut Tx,
    call: &Call,
    command: i32,
) -> Sys<Option<Answered>> {
    let (space, locks) = (desk.members[at].space, &mut desk.locks);
    let file = tx.lockable(call.int(0))?;
    let place = call.pointer::<libc::flock>(2);
    let mut lock = place.read()?;
    if command == libc::F_GETLK {
        locks.ask(space, &file, command, &mut lock)?;
        if i32::from(lock.l_type) == libc::F_UNLCK {
            return Ok(None);
        }
        let holder = locks.holder(space, &file, &lock);
        let holder = desk.members.iter().find(|member| Some(member.space) == holder);
        let number = holder.and_then(|member| member.process).map_or(0, |(number, _)| number);
        lock.l_pid = number as i32;
        place.write(lock)?;
        return Ok(Some(Answered::of(0)));
    }
    let waits = command == libc::F_SETLKW;
    let later = || Ok(Some(Answered(Answer::new(How::Later, 0), Beside::default())));
    // SAFETY: the arguments are those of the call.
    let at_once = unsafe { call.with_word(1, libc::F_SETLK as u64) };
    match check(tx.call_with(&at_once, None)) {
        Err(Errno::AGAIN | Errno::ACCESS) if waits => return later(),
        done => done?,
    };
    match locks.ask(space, &file, command, &mut lock) {
        Err(Errno::AGAIN | Errno::ACCESS) if waits => {
            locks.waits(space, &file, &lock)?;
            later()
        }
        done => done.map(|()| Some(Answered::of(0))),
    }
}

/// Why the transaction can't go on.
fn unsupported(what: String) -> Failure {
    Failure { reason: reason::UNSUPPORTED, errno: libc::ECANCELED, what, ..Failure::default() }
}

/// An answer, and what goes beside it.
struct Answered(Answer, Beside);

impl Answered {
    fn of(answer: i64) -> Answered {
        Answered(Answer::new(How::Done, answer), Beside::default())
    }
}

/// Descriptors beside an answer.
#[derive(Default)]
struct Beside {
    numbers: Vec<i32>,
    /// They are closed when the answer is sent.
    closed: bool,
}

impl Beside {
    fn to_close(numbers: &[i32]) -> Beside {
        Beside { numbers: numbers.to_vec(), closed: true }
    }

    fn kept(number: i32) -> Beside {
        Beside::all_kept([number])
    }

    fn all_kept(numbers: impl IntoIterator<Item = i32>) -> Beside {
        Beside { numbers: numbers.into_iter().collect(), closed: false }
    }

    fn numbers(&self) -> Vec<i32> {
        self.numbers.clone()
    }

    fn close(self) {
        if self.closed {
            self.numbers.into_iter().for_each(kernel::close);
        }
    }
}

/// The image of what is open at a number: made, if it was read before.
fn image(book: &mut Book, tx: &mut Tx, number: i32, flags: i32) -> Option<Image> {
    let has_room = kernel::descriptor_limit() >= images::LEAST_DESCRIPTORS;
    let id = tx.imageable(number, images::LARGEST);
    let id = id.filter(|_| has_room && images::may_open(flags))?;
    if let Some(image) = book.image(id) {
        return Some(image);
    }
    let content = book.has_room(images::LARGEST).then(|| tx.content_of(number)).flatten()?;
    book.add_image(id, &content)
}

/// The number that the process has chosen for what is opened.
fn chosen_by(request: &Request) -> Option<i32> {
    i32::try_from(request.chosen).ok().filter(|number| (0..SPACE).contains(number))
}

/// What the arguments of a request are.
fn shape_of(request: &Request) -> Option<Shape> {
    wire::shape_with(request.number, &request.words)
}

/// Words that a process has put into its window.
fn text(member: &Member, place: u64, size: u64) -> String {
    if !wire::is_inside(place, size) {
        return "a process of the transaction can't go on".into();
    }
    shown(&member.bytes(place as usize, size as usize))
}

/// What a process has said, as it may be shown, on a terminal as a rule.
fn shown(bytes: &[u8]) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

impl Member {
    /// The transaction's number for one of the process's.
    fn number(&self, word: u64) -> Sys<u64> {
        match word as i32 {
            number @ 0..SPACE => Ok((self.space + number) as u64),
            SPACE.. => Err(Errno::BADF),
            none => Ok(none as u64),
        }
    }

    /// The call that a request asks for.
    fn call(&self, request: &Request, shape: &Shape) -> Sys<Call> {
        let mut words = request.words;
        for &at in shape.descriptors {
            words[at] = self.number(words[at])?;
        }
        for &(at, part) in shape.parts {
            if words[at] == 0 {
                continue;
            }
            match part {
                Part::Path | Part::Text => drop(self.path(words[at])?),
                Part::In(size) | Part::Out(size) | Part::Both(size) => {
                    let size = match size {
                        Size::Of(size) => size as u64,
                        Size::Word(word) => request.words[word],
                    };
                    if !wire::is_inside(words[at], size) {
                        return Err(Errno::FAULT);
                    }
                }
            }
            words[at] += self.window as u64;
        }
        // SAFETY: the addresses are in the window, where there is as much as the call reads or writes, and to
        // which there is no reference.
        Ok(unsafe { Call::new(request.number, words) })
    }

    /// Says in the window for which questions of the process the table of answers counts, and what that is. No call of the process is being
    /// carried out.
    fn stands(&self, tx: &Tx) -> u32 {
        let standing = match self.who {
            0 if !tx.has_other_root(&self.own) => answers::standing(self.own.directory()),
            _ => 0,
        };
        // SAFETY: the window is mapped as long as there is this member.
        unsafe { wire::standing(self.window) }.store(standing, Ordering::Release);
        standing
    }

    /// A path in the window.
    fn path(&self, place: u64) -> Sys<Vec<u8>> {
        if !wire::is_inside(place, 1) {
            return Err(Errno::FAULT);
        }
        let room = self.bytes(place as usize, wire::WINDOW - place as usize);
        let end = room.iter().position(|&byte| byte == 0).ok_or(Errno::FAULT)?;
        Ok(room[..end].to_vec())
    }

    /// Bytes in the window.
    fn bytes(&self, place: usize, size: usize) -> Vec<u8> {
        let size = size.min(wire::WINDOW - place);
        let mut bytes = vec![0; size.min(8192)];
        // SAFETY: they are inside; the process may change them meanwhile, which a copy by words does not mind.
        unsafe {
            std::ptr::copy(self.window.add(place), bytes.as_mut_ptr(), bytes.len());
        }
        bytes
    }

    /// What the window says of a signal.
    fn info(&self, place: u64) -> Sys<kernel::Info> {
        if !wire::is_inside(place, size_of::<kernel::Info>() as u64) {
            return Err(Errno::FAULT);
        }
        let bytes = self.bytes(place as usize, size_of::<kernel::Info>());
        let mut info: kernel::Info = [0; 16];
        for (word, bytes) in info.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Ok(info)
    }

    /// Puts bytes into the window, and a zero after them: how many they are.
    fn put(&self, bytes: &[u8]) -> Sys<u64> {
        let place = wire::Layout::default().place(bytes.len() + 1)?;
        // SAFETY: the place is inside.
        unsafe {
            std::ptr::copy(bytes.as_ptr(), self.window.add(place), bytes.len());
            self.window.add(place + bytes.len()).write(0);
        }
        Ok(bytes.len() as u64)
    }
}
