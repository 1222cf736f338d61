//! Processes that run already enter a program's own transaction.
//!
//! `txos_share` in a transaction with TX_PROCESSES gives one end of a pair of sockets, the *door*, of which the keeper
//! ([`super::host`]) has the other. Who holds it can ask to enter. The kernel names the sender, and a process is let in only with the
//! identity of the one that began. A process that has joined is served as a child is, with these differences:
//!
//! | | a child | a process that joined |
//! |---|---|---|
//! | what it had open before | the parent's, known to the transaction | handed over when it enters: the keeper gets a copy of each descriptor of a file or directory |
//! | an abort | kills it | is told by its calls (ECANCELED), until it leaves |
//! | its working directory, file mode mask | stay as they are when it leaves | after an abort, as before it joined |
//! | another program in it | goes on as a member | the same, and from there on it is as a child |
#![allow(unsafe_code)] // windows, unmapped when the process leaves

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::identities::Ids;
use super::lent::Lent;
use super::link::{Link, Process};
use super::server::{Desk, descriptor_of, transaction};
use super::wire::{self, Answer, Ask, How, Received, Request};
use super::{client, identities};
use crate::front::in_process;
use crate::front::report::reason;
use crate::front::signals::{self, Masks};
use crate::front::thread::{self, Thread};
use crate::front::tls::Tls;
use crate::raw::{Errno, Sys};
use crate::tx::Failure;
use crate::tx::kernel::{self, OwnedFd, Side};
use crate::tx::spaces::Outlet;
use txos_engine::object::FileKind;

/// What the keeper's end of a door is called, in the abstract namespace, before the process and the transaction's number.
const NAME: &[u8] = b"\0txos transaction ";

/// Whether a thread of this process has joined another process's transaction.
static JOINED: AtomicBool = AtomicBool::new(false);

// --- The door ----------------------------------------------------------------------------------

/// A pair of sockets by which others can enter a transaction.
#[derive(Debug)]
pub struct Door {
    ours: i32,
    theirs: i32,
    /// Nobody can come any more.
    shut: AtomicBool,
}

impl Drop for Door {
    fn drop(&mut self) {
        // Copies of it may be in other processes, and outlive it.
        wire::shut(self.ours);
        kernel::close(self.ours);
        kernel::close(self.theirs);
    }
}

impl Door {
    /// One that leads to the transaction that `token` stands for.
    ///
    /// # Errors
    /// As `socketpair(2)`, `bind(2)` and `setsockopt(2)`.
    pub(super) fn new(token: u64) -> Sys<Door> {
        let [ours, theirs] = wire::new_pair()?;
        let door = Door { ours, theirs, shut: AtomicBool::new(false) };
        let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
        address.extend(NAME);
        address.extend(format!("{} {token:016x}", std::process::id()).bytes());
        kernel::bind(ours, &address)?;
        wire::ask_for_senders(ours)?;
        Ok(door)
    }

    /// Whether somebody may come.
    pub(super) fn is_open(&self) -> bool {
        !self.shut.load(Ordering::Acquire)
    }

    /// Both ends.
    pub(super) fn ends(&self) -> [i32; 2] {
        [self.ours, self.theirs]
    }

    /// The keeper's end.
    pub(super) fn ours(&self) -> i32 {
        self.ours
    }

    /// A number for the program, which closes it.
    ///
    /// # Errors
    /// EMFILE.
    pub(super) fn for_program(&self) -> Sys<i32> {
        kernel::duplicate(self.theirs, 0, true)
    }
}

/// The process and the transaction that a descriptor is the door of. `None`: it is none.
#[must_use]
pub fn leads_to(fd: i32) -> Option<(u32, u64)> {
    let (name, size) = kernel::socket_address(fd, Side::Peer).ok()?;
    let name = name.get(size_of::<u16>()..size as usize)?.strip_prefix(NAME)?;
    let (process, token) = std::str::from_utf8(name).ok()?.split_once(' ')?;
    Some((process.parse().ok()?, u64::from_str_radix(token, 16).ok()?))
}

/// Somebody has come to the door: lets it in, or tells it why not. Whether it is in. The turn is the calling thread's.
pub(super) fn heed(door: &Door, thread: &mut Thread, desk: &mut Desk) -> bool {
    let received = match wire::receive_at_once::<Request>(door.ours) {
        Ok(Some(received)) => received,
        Err(Errno::AGAIN) => return false,
        Ok(None) => {
            // Either it was no message of ours, or nothing can be sent any more: that would be found again and again.
            let ended = kernel::is_ready(door.ours, libc::POLLRDHUP);
            door.shut.store(ended, Ordering::Release);
            return false;
        }
        Err(_) => {
            door.shut.store(true, Ordering::Release);
            return false;
        }
    };
    let [Some(socket), Some(cwd)] = received.beside.map(|fd| fd.map(OwnedFd::of)) else {
        return false;
    };
    if received.message.ask() != Some(Ask::Join) {
        return false;
    }
    let flags = thread.session.as_ref().map_or(0, |session| session.plan.flags);
    let mask = received.message.words[0] as u32;
    let done = received
        .sender
        .ok_or(Errno::PERM)
        .and_then(|sender| admit(thread, desk, sender, mask, &socket, &cwd));
    let (answer, window) = match done {
        Ok((space, window)) => {
            let mut answer = Answer::new(How::WithDescriptors, i64::from(flags));
            answer.more[0] = space as u64;
            (answer, Some(window))
        }
        Err(errno) => (Answer::new(How::Done, -i64::from(errno.raw_os_error())), None),
    };
    let _ = wire::send_at_once(socket.number(), &answer, window.as_slice());
    window.is_some()
}

/// A place for a process: its space, and the descriptor of its window.
fn admit(
    thread: &mut Thread,
    desk: &mut Desk,
    sender: u32,
    mask: u32,
    socket: &OwnedFd,
    cwd: &OwnedFd,
) -> Sys<(i32, i32)> {
    let tx = transaction(thread).filter(|tx| tx.doomed().is_none()).ok_or(Errno::CANCELED)?;
    let process = OwnedFd::of(descriptor_of(sender)?);
    let is_who_began = Ids::of(sender).is_some_and(|ids| desk.is_who_began(&ids));
    if !is_who_began || !sees_the_same(sender) || has_ended(&process) {
        return Err(Errno::PERM);
    }
    desk.enter(tx, (sender, process), mask, socket, cwd)
}

/// Whether a process has ended: what was found out by its number may have been of another one.
fn has_ended(process: &OwnedFd) -> bool {
    kernel::is_ready(process.number(), libc::POLLIN)
}

/// Whether paths and numbers mean to a process what they mean to the calling thread: it has the same root directory, in the same
/// namespaces of mounts, users and processes.
fn sees_the_same(process: u32) -> bool {
    let of = |process: &str| {
        let namespace = |kind| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
        let root = format!("/proc/{process}/root");
        let root = kernel::statx(libc::AT_FDCWD, root.as_bytes(), 0).ok()?;
        Some((namespace("mnt")?, namespace("pid")?, root.id, root.mnt))
    };
    let own = of("thread-self");
    own.is_some() && of(&process.to_string()) == own && identities::is_of_this_namespace(process)
}

// --- The process that joins --------------------------------------------------------------------

/// What a process had before it joined.
#[derive(Debug)]
pub struct Joined {
    cwd: Mutex<Option<OwnedFd>>,
    mask: u32,
}

impl Joined {
    fn now() -> Sys<Joined> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let cwd = kernel::move_high(OwnedFd::open(b".", flags)?.into_number())?;
        Ok(Joined { cwd: Mutex::new(Some(OwnedFd::of(cwd))), mask: kernel::umask_as_told() })
    }

    /// The descriptor of the working directory that it had.
    pub(super) fn directory(&self) -> Option<i32> {
        self.cwd().as_ref().map(OwnedFd::number)
    }

    fn cwd(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.cwd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process is where it was, and makes files as it did.
    fn put_back(&self) {
        if let Some(cwd) = self.cwd().as_ref() {
            let _ = kernel::fchdir(cwd.number());
        }
        kernel::set_umask(self.mask);
    }
}

fn refusal(errno: i32, what: impl std::fmt::Display) -> Failure {
    Failure { errno, what: format!("sys_xjoin: {what}"), ..Failure::default() }
}

fn failed(what: &str, errno: Errno) -> Failure {
    refusal(errno.raw_os_error(), format_args!("{what} failed: {}", wire::words_of(errno)))
}

/// `sys_xjoin`, of another process's transaction. Signals are blocked.
///
/// # Errors
/// Why the thread does not enter it.
pub fn join(
    tls: &Tls,
    thread: &mut Thread,
    door: i32,
    before: signals::Set,
) -> Result<(), Failure> {
    if JOINED.swap(true, Ordering::AcqRel) {
        let what = "another thread of this process has joined another process's transaction";
        return Err(refusal(libc::EBUSY, what));
    }
    // For programs that it runs.
    in_process::find_library();
    let entered = enter(tls, door);
    let (link, joined, flags) = entered.inspect_err(|_| JOINED.store(false, Ordering::Release))?;
    let masks = Masks {
        before,
        programs: before,
        live: 0,
        at_once: signals::SENT,
        fresh: false,
        waits_here: false,
    };
    signals::let_all_in();
    signals::set_mask(masks.real() | masks.at_once);
    crate::reach::forget();
    client::member_session(tls, thread, link, masks, flags, Some(joined));
    Ok(())
}

/// Goes through the door: what the process has of the transaction, what it had before, and the transaction's flags.
fn enter(tls: &Tls, door: i32) -> Result<(Link, Joined, u32), Failure> {
    let (began, number) = who_began(door)?;
    let joined = Joined::now().map_err(|e| failed("opening the working directory", e))?;
    let placeholder = wire::new_placeholder().map_err(|e| failed("memfd_create", e))?;
    let placeholder = OwnedFd::of(placeholder);
    let [socket, theirs] = wire::new_pair().map_err(|e| failed("socketpair", e))?;
    let (socket, theirs) = (OwnedFd::of(socket), OwnedFd::of(theirs));
    wire::ask_for_senders(socket.number()).map_err(|e| failed("setsockopt", e))?;
    let request = Request::new(Ask::Join, 0).with([joined.mask.into(), 0, 0, 0, 0, 0]);
    let cwd =
        joined.directory().ok_or_else(|| failed("opening the working directory", Errno::BADF))?;
    let beside = [theirs.number(), cwd];
    wire::send_at_once(door, &request, &beside).map_err(|errno| match errno {
        Errno::AGAIN => refusal(libc::EAGAIN, "too many others wait to join the transaction"),
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::CONNREFUSED => is_over(),
        errno => failed("asking to join", errno),
    })?;
    drop(theirs);
    let interrupted = || signals::ending_pending().is_some();
    if !wire::await_message(socket.number(), began.number(), interrupted) {
        return Err(match has_ended(&began) {
            true => is_over(),
            false => {
                refusal(libc::EINTR, "a signal arrived before the process that began has answered")
            }
        });
    }
    let (answer, window_fd) = match wire::receive_from::<Answer>(socket.number()) {
        Ok(Some(Received { message, beside: [window_fd, other], sender, .. })) => {
            let [window_fd, _other] = [window_fd, other].map(|fd| fd.map(OwnedFd::of));
            if sender != Some(number) {
                return Err(stranger());
            }
            match window_fd.filter(|_| message.answer >= 0) {
                Some(window_fd) => (message, window_fd),
                None => return Err(not_let_in(message.answer)),
            }
        }
        Ok(None) | Err(_) => return Err(is_over()),
    };
    let window = wire::map_own_window(window_fd.number()).map_err(|e| failed("mmap", e))?;
    drop(window_fd);
    let mut link = Link {
        socket: socket.into_number(),
        window,
        placeholder: placeholder.into_number(),
        space: answer.more[0] as i32,
        numbers: BTreeSet::new(),
        outlets: Vec::new(),
        bound: Vec::new(),
        lent: Lent::default(),
        answers: None,
        imaged: super::images::Imaged::default(),
        objects: BTreeMap::new(),
        kept: BTreeMap::new(),
        began: Some(began),
    };
    let armed = hand_over(&mut link).and_then(|()| {
        thread::arm(tls)
            .map_err(|errno| failed("dispatching calls", Errno::from_raw_os_error(errno)))
    });
    match armed {
        Ok(()) => Ok((link, joined, answer.answer as u32)),
        Err(why) => {
            close(&mut link);
            Err(why)
        }
    }
}

/// The process that a door leads to, by descriptor and number: the kernel says who has made it. The door is not trusted before
/// that: who enters hands over all that it has open.
fn who_began(door: i32) -> Result<(OwnedFd, u32), Failure> {
    let maker = kernel::peer_process(door);
    if leads_to(door).is_none_or(|(named, _)| named != maker) {
        return Err(stranger());
    }
    let process = descriptor_of(maker).map_err(|errno| match errno {
        Errno::SRCH => is_over(),
        errno => failed("pidfd_open", errno),
    })?;
    let process = OwnedFd::of(process);
    let own = Ids::of_thread();
    // The kernel names the process, and not the thread, to the other side.
    let same = own.is_some() && own == Ids::own() && own == Ids::of(maker);
    if !same || !sees_the_same(maker) || !sees_the_same(std::process::id()) {
        return Err(stranger());
    }
    if has_ended(&process) {
        return Err(is_over());
    }
    Ok((process, maker))
}

/// One side is not who the other one is.
fn stranger() -> Failure {
    refusal(
        libc::EPERM,
        "the process has another user, other groups or capabilities, other namespaces or another root directory than the \
         one that began, or one of them may not be looked at (prctl(2), PR_SET_DUMPABLE)",
    )
}

fn is_over() -> Failure {
    refusal(libc::EINVAL, "that transaction is over")
}

/// Why the keeper did not let it in.
fn not_let_in(answer: i64) -> Failure {
    match Errno::from_raw_os_error(-answer as i32) {
        Errno::CANCELED => is_over(),
        Errno::PERM => stranger(),
        Errno::AGAIN => refusal(libc::EAGAIN, "there are too many processes in the transaction"),
        errno @ (Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::XDEV) => {
            refusal(
                errno.raw_os_error(),
                format_args!(
                    "the working directory can't be reached in the transaction: {}",
                    wire::words_of(errno)
                ),
            )
        }
        errno => failed("entering", errno),
    }
}

/// Hands over what the process has open: files and directories are the transaction's from here on.
fn hand_over(link: &mut Link) -> Result<(), Failure> {
    let numbers = kernel::open_numbers().map_err(|e| failed("listing descriptors", e))?;
    for number in numbers {
        let Ok(cloexec) = kernel::close_on_exec(number) else { continue };
        if link.is_own(number) || cloexec && number >= kernel::high_base() {
            continue;
        }
        let Ok(stat) = kernel::look_fd(number) else { continue };
        let is_file = matches!(stat.kind(), FileKind::File | FileKind::Dir);
        let outlet = Outlet::of(number).filter(|_| is_file || number > libc::STDERR_FILENO);
        let mut request = Request::new(Ask::Adopt, 0);
        request.words = [number as u64, cloexec.into(), 0, 0, 0, 0];
        let sent = match (is_file, outlet) {
            (true, _) => wire::send(link.socket, &request, &[number]),
            (false, Some(outlet)) => {
                let words = [outlet.id.dev, outlet.id.ino, outlet.kind.into()];
                request.words[2..5].copy_from_slice(&words);
                wire::send(link.socket, &request, &[])
            }
            (false, None) => continue,
        };
        let answer = match sent {
            Ok(()) => link.take_answer().0.answer,
            // Another thread has closed it.
            Err(Errno::BADF) => continue,
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(is_over()),
            Err(errno) => return Err(failed("handing over a descriptor", errno)),
        };
        match answer {
            1 => drop(link.numbers.insert(number)),
            0 => link.outlets.extend(outlet),
            answer => match Errno::from_raw_os_error(-answer as i32) {
                Errno::CANCELED => return Err(is_over()),
                errno => return Err(failed("handing over a descriptor", errno)),
            },
        }
    }
    Ok(())
}

/// Nothing of the transaction is left in the process. What stood at numbers that are the transaction's is there again; those at
/// which the kernel has something else are another thread's by now, or are what they were.
pub(super) fn close(link: &mut Link) {
    let kept = std::mem::take(&mut link.kept);
    let mut numbers = std::mem::take(&mut link.numbers);
    numbers.extend(kept.keys());
    for number in numbers {
        if !wire::is_placeholder(number) {
            continue;
        }
        match kept.get(&number) {
            Some(&before) => {
                let cloexec = kernel::close_on_exec(number).unwrap_or(false);
                let _ = kernel::dup3(before, number, cloexec);
            }
            None => kernel::close(number),
        }
    }
    let own = [link.socket, link.placeholder];
    own.into_iter().chain(kept.into_values()).for_each(kernel::close);
    // SAFETY: nothing uses it any more: the process has left.
    unsafe { wire::unmap_window(link.window) };
    link.began = None;
}

/// The process leaves a transaction that it has joined. Whether that goes on, else why not.
pub(super) fn leave(process: &Process) -> Result<(), Failure> {
    let mut link = process.link();
    let answer = link.ask_plainly(&Request::new(Ask::Leave, 0));
    let said = process.end_said();
    close(&mut link);
    let goes_on = answer == 0 && said == 0;
    if let Some(joined) = process.joined.as_ref() {
        if !goes_on {
            joined.put_back();
        }
        *joined.cwd() = None;
    }
    JOINED.store(false, Ordering::Release);
    if goes_on { Ok(()) } else { Err(ended(said)) }
}

/// The transaction that a process had joined was aborted.
pub(super) fn ended(said: u32) -> Failure {
    let reason = match said {
        0 => reason::EXITED,
        said => said - 1,
    };
    let why = match reason {
        reason::ASKED => "a member or the program that began it aborted it",
        reason::CONFLICT => "somebody else changed, or won, what it touched",
        reason::UNSUPPORTED => "a call can't be made transactional",
        reason::EXITED => "the thread or process that began it has ended",
        _ => "it failed; the thread that began it knows why",
    };
    Failure {
        reason,
        errno: libc::ECANCELED,
        what: format!("the transaction that this process joined was aborted: {why}"),
        ..Failure::default()
    }
}

/// In a child: it has joined nothing.
pub fn after_fork() {
    JOINED.store(false, Ordering::Release);
}
