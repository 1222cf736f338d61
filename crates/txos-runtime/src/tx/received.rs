//! What is received from sockets: looked at until the commit, which takes it; an abort gives it back.
//!
//! What arrives at a socket from before the transaction stays in the kernel's queue. The transaction reads it by
//! looking (`MSG_PEEK`), each look from where the last one ended (`SO_PEEK_OFF`). The commit takes what was looked at. An abort
//! lets looks begin at the front again, so that the next read finds all of it: in this process or in another that has
//! the socket, also after `kill -9`.
//!
//! | socket | what happens |
//! |---|---|
//! | from before, Unix, IPv4 or IPv6: stream, datagrams, packets | looked at |
//! | made in the transaction | taken at once: an abort closes it |
//! | of a transaction of several threads or processes, or a command's; others; one whose `SO_PEEK_OFF` the program has set | taken at once, with a warning |
//!
//! # Conversations
//!
//! An answer to something that the transaction has sent before its end must not be given back: who begins again asks again,
//! and would take the old answer for the new one. So once something was sent on a socket before the commit, what was
//! received there is taken, and what comes is taken at once.
//!
//! # Room
//!
//! What is only looked at takes room. If it may be what keeps the other end from sending more, while the transaction waits
//! for that, it is taken before the commit, with one warning; with `TX_STRICT` the transaction is aborted. Of TCP and UDP that is
//! half of the receive buffer. Of Unix sockets the room is the sender's, and not known: it is half of a send buffer, or
//! a wait of [`PATIENCE`].
//!
//! [`super::pipes`] says what is other about pipes and FIFOs.
#![allow(unsafe_code)] // calls that look instead of taking

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use txos_engine::object::FileId;

use super::effects::is_to_end;
use super::files::{Descriptor, File};
use super::io::buffers;
use super::kept::{Kept, Origin};
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::Map;
use super::pipes::{Claims, Found, Handle, Pipes, are_asked_for, ends_of_process, loses_always};
use super::sockets::Header;
use super::{Failure, Tx, flags, reason, say};
use crate::call::{Call, while_waiting};
use crate::user::{MOVED_MAX, UserPtr, length_of};

/// After so long a wait for more, what a Unix socket has received, or was read from a pipe, is taken.
const PATIENCE: Duration = Duration::from_secs(1);
/// After so long without room in a pipe, the next call takes what was read there.
const FULL_FOR: Duration = Duration::from_millis(100);
/// Calls look for that so often.
const FULL_LOOK: Duration = Duration::from_millis(10);
/// How often a signal that ends the process is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// What a call may ask for and still only look.
const FLAGS: i32 = libc::MSG_DONTWAIT
    | libc::MSG_PEEK
    | libc::MSG_TRUNC
    | libc::MSG_WAITALL
    | libc::MSG_NOSIGNAL
    | libc::MSG_CMSG_CLOEXEC
    | libc::MSG_WAITFORONE;
/// What waits for something else as well looks after it so often.
const TURN: Duration = Duration::from_millis(5);
/// What `poll(2)` says of what can be read.
const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;
/// And of room.
const ROOM: i16 = libc::POLLOUT | libc::POLLWRNORM;
/// Why something is taken before the commit.
const FULL: &str = "who sends to a socket may wait for room there";
/// The same of pipes.
const FULL_PIPE: &str = "who writes to a pipe may wait for room there";
/// And why what was read from all pipes is.
const WAITS: &str =
    "the transaction waits for something else, and who writes to a pipe may wait for room there";
/// Why it is taken when something goes out.
const GOES_OUT: &str =
    "something goes out before the commit, and what comes from a pipe may be the answer";
/// Why what was read from a pipe is taken before `epoll_wait(2)`.
const UNCLEAR: &str = "epoll can't tell what is left in a pipe";
/// What people are told is taken.
const TAKEN: &str = "what was received from a socket before the end";
/// The same of pipes.
const TAKEN_PIPE: &str = "what was read from a pipe before the end";
/// Transactions that read live from what is no socket, and keep nothing for a next attempt.
pub(super) const LIVE: u32 = flags::COMMAND
    | flags::PROCESSES
    | flags::THREADS
    | flags::MANAGED
    | flags::ORDERED
    | flags::ORDER_RESET
    | flags::AFTER;
/// Longer than any look at how things are.
const LONG: Duration = Duration::from_secs(1 << 20);

/// How the transaction receives from an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiving {
    /// At once: it is no socket, or one of the transaction's own, which an abort closes.
    #[default]
    Own,
    /// It is a socket from before. Nobody has looked.
    Unknown,
    /// It is a pipe or FIFO from before, which the kernel has at this number. Nobody has looked.
    Pipe(i32),
    /// It is a device from before, perhaps a terminal. Nobody has looked.
    Device,
    /// At once, though an abort can't give it back.
    AtOnce,
    /// At once: something was sent there before the end, as people were told.
    Answers,
    /// From the source with this index.
    From(usize),
}

/// A socket, or a pipe, that is looked at.
#[derive(Debug)]
struct Source {
    /// What it is.
    socket: FileId,
    /// It is a pipe.
    pipe: Option<Handle>,
    /// The kernel's number.
    real: i32,
    /// The program's, for messages.
    number: i32,
    /// It keeps messages apart.
    messages: bool,
    /// It does so, and is connected.
    packets: bool,
    unix: bool,
    /// So many bytes were looked at,
    seen: u64,
    /// and so many urgent ones between them, over which the kernel steps without counting them,
    urgent: u64,
    /// in so many messages.
    count: u64,
    /// An empty message was found by a look that was not the program's: no second look finds it.
    empty_next: bool,
    /// What was looked at is taken, and so is what comes.
    at_once: bool,
    /// So many bytes were taken before the commit.
    taken: u64,
    /// Descriptors came with some of it.
    brings: bool,
    /// What was taken, and what comes, is kept there for the next attempt.
    kept: Option<usize>,
    /// Tells of arrivals.
    watch: Option<OwnedFd>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Received {
    sources: Vec<Source>,
    /// Where each is.
    known: Map<FileId, usize>,
    /// Sockets on which something was sent at once.
    talks: Vec<FileId>,
    /// The pipes among them; none before somebody needs them, as most transactions read from none.
    pipes: Option<Pipes>,
    /// There are some that may be looked at.
    has_pipes: bool,
    /// Something has gone out before the commit: what comes from pipes may be the answer.
    went_out: bool,
    /// Which ends of pipes the process has had, if it has other threads.
    ends: Option<Map<FileId, [bool; 2]>>,
    /// Those from which it takes at the commit; from the first look on, so that it needs no descriptor then.
    claims: Option<Claims>,
    /// When it was last looked whether pipes are full.
    full_looked: Option<Instant>,
    /// Pipes in which the transaction waits for more, and for nothing else.
    awaited: Vec<usize>,
    /// What was taken, and the next attempt is given.
    pub(super) kept: Kept,
}

impl Source {
    /// A stream of which nothing was looked at.
    fn of(socket: FileId, real: i32, number: i32) -> Source {
        Source {
            socket,
            pipe: None,
            real,
            number,
            messages: false,
            packets: false,
            unix: false,
            seen: 0,
            urgent: 0,
            count: 0,
            empty_next: false,
            at_once: false,
            taken: 0,
            brings: false,
            kept: None,
            watch: None,
        }
    }

    fn has_looked(&self) -> bool {
        match &self.pipe {
            Some(pipe) => pipe.has_looked(),
            None => !self.at_once && (self.seen > 0 || self.count > 0),
        }
    }

    /// Whether what comes is taken at once.
    fn takes_at_once(&self) -> bool {
        self.pipe.as_ref().map_or(self.at_once, Handle::is_at_once)
    }

    /// How far it was looked, in bytes of what is there.
    fn seen(&self) -> u64 {
        self.pipe.as_ref().map_or(self.seen + self.urgent, Handle::given)
    }

    /// Whether it is a stream of TCP, in which a byte may be urgent.
    fn may_have_urgent_bytes(&self) -> bool {
        self.pipe.is_none() && !self.unix && !self.messages
    }

    /// How many were taken.
    fn taken(&self) -> u64 {
        self.pipe.as_ref().map_or(self.taken, Handle::taken)
    }

    /// Whether somebody else has taken what was looked at.
    fn is_lost(&self) -> bool {
        match &self.pipe {
            Some(pipe) => !pipe.is_as_given(),
            None => self.is_there() && self.lost() > 0,
        }
    }

    /// Whether the room that it takes is not known exactly to who waits there.
    fn is_for_a_time(&self) -> bool {
        self.unix || self.pipe.is_some()
    }

    /// What it is, for people.
    fn name(&self) -> &'static str {
        if self.pipe.is_some() { "pipe" } else { "socket" }
    }

    /// Why something is taken before the commit, and what people are told that is.
    fn words(&self) -> (&'static str, &'static str) {
        if self.pipe.is_some() { (FULL_PIPE, TAKEN_PIPE) } else { (FULL, TAKEN) }
    }

    /// Whether the number is still that of the socket: another thread may have closed it.
    fn is_there(&self) -> bool {
        kernel::look_fd(self.real).is_ok_and(|stat| stat.id == self.socket)
    }

    /// Goes on by another number of the socket if the program has closed this one.
    fn find_again(&mut self) {
        if self.pipe.is_some() || !self.has_looked() || self.is_there() {
            return;
        }
        let is_it = |&number: &i32| kernel::look_fd(number).is_ok_and(|s| s.id == self.socket);
        let other = kernel::open_numbers().unwrap_or_default().into_iter().find(is_it);
        self.real = other.unwrap_or(self.real);
    }

    /// How many bytes that were looked at somebody else has taken.
    fn lost(&self) -> u64 {
        let offset = kernel::peek_offset(self.real).map_or(0, |at| u64::try_from(at).unwrap_or(0));
        self.seen().saturating_sub(offset)
    }

    /// What was taken is told of otherwise.
    fn forget_taken(&mut self) {
        self.taken = 0;
        if let Some(pipe) = &self.pipe {
            pipe.forget_taken();
        }
    }

    /// Takes what was looked at, and looks no more: how many bytes of it somebody else had taken. `to` is given all of it.
    fn take(&mut self, mut to: impl FnMut(&[u8])) -> u64 {
        self.at_once = true;
        self.watch = None;
        debug_assert!(self.pipe.is_none(), "pipes are taken by themselves");
        if !self.is_there() {
            return 0;
        }
        let lost = self.lost();
        let mut rest = self.seen() - lost;
        self.taken += rest.saturating_sub(self.urgent);
        // Each of them may be like any other by now, if another urgent one has come. So none is stepped over.
        let inline = self.urgent > 0 && kernel::set_urgent_inline(self.real, true).is_ok();
        while rest > 0 || (self.messages && self.count > 0 && lost == 0) {
            match kernel::take(self.real, rest, &mut to) {
                Ok(n) if !self.messages => {
                    rest = rest.saturating_sub(n);
                    if n == 0 {
                        break;
                    }
                }
                Ok(_) => {
                    self.count = self.count.saturating_sub(1);
                    let left = kernel::peek_offset(self.real).map_or(0, |at| at.max(0) as u64);
                    rest = left;
                    if self.count == 0 {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if inline {
            let _ = kernel::set_urgent_inline(self.real, false);
        }
        (self.seen, self.urgent, self.count) = (0, 0, 0);
        let _ = kernel::set_peek_offset(self.real, -1);
        lost
    }

    /// The same in words, for people.
    fn take_and_tell(&mut self) -> Option<String> {
        let number = self.number;
        if let Some(pipe) = &self.pipe {
            self.watch = None;
            return pipe.take().words(number);
        }
        let lost = self.take(|_| {});
        words_of_lost(lost, number)
    }

    /// Whether a read would find something, or the end.
    fn has_more(&mut self) -> bool {
        if let Some(pipe) = &self.pipe {
            // Its end is told by itself (`POLLHUP`).
            return pipe.ahead() > 0 || !matches!(pipe.look(), Found::Nothing | Found::End);
        }
        if self.messages {
            match kernel::look_at_message(self.real) {
                Ok(n) => {
                    self.look_from_here();
                    self.empty_next |= n == 0 && !self.has_ended();
                    return true;
                }
                Err(Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
        kernel::arrived(self.real).map_or(true, |n| n > self.seen())
            || self.has_ended()
            || self.ahead() > 0
    }

    /// How much there is beyond what was looked at in a stream of TCP: where a byte is urgent, the kernel tells of those before
    /// it only.
    fn ahead(&self) -> u64 {
        if !self.may_have_urgent_bytes() {
            return 0;
        }
        let found = kernel::bytes_ahead(self.real).unwrap_or(0);
        self.look_from_here();
        found
    }

    /// Whether nothing more will come, or the socket has failed.
    fn has_ended(&self) -> bool {
        kernel::events(self.real, libc::POLLRDHUP, Duration::ZERO).is_ok_and(|found| found != 0)
    }

    fn look_from_here(&self) {
        let at = i32::try_from(self.seen()).unwrap_or(i32::MAX);
        let _ = kernel::set_peek_offset(self.real, at);
    }

    /// What was looked at may be what keeps the other end from sending more.
    fn is_full(&self) -> bool {
        const MOST: u64 = 1 << 30;
        if let Some(pipe) = &self.pipe {
            return pipe.is_full();
        }
        let half = |(used, room): (u64, u64)| used * 2 >= room;
        self.seen >= MOST
            || match self.unix {
                true => kernel::send_buffer(self.real)
                    .is_ok_and(|room| half((self.seen, room.max(0) as u64))),
                false => kernel::receive_memory(self.real)
                    .is_ok_and(|(used, room)| half((used.into(), room.into()))),
            }
    }

    /// The descriptor that tells of the next arrival, which has told of those up to now.
    fn watch(&mut self) -> Sys<i32> {
        let watch = match self.watch.take() {
            Some(watch) => watch,
            None => kernel::watch_arrivals(self.real)?,
        };
        kernel::forget_arrivals(&watch);
        Ok(self.watch.insert(watch).number())
    }
}

impl Received {
    /// Whether something was looked at that is not taken.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        !self.sources.is_empty() && self.sources.iter().any(Source::has_looked)
    }

    /// The transaction has committed: takes all that was looked at. What could not be, in words.
    pub fn take(&mut self) -> Vec<String> {
        self.sources.iter_mut().for_each(Source::find_again);
        let sources = self.sources.iter_mut().filter(|source| !source.takes_at_once());
        let lost = sources.filter_map(Source::take_and_tell);
        let lost = lost.chain(self.kept.unread());
        let lost =
            lost.map(|words| format!("the transaction has committed, but {words}")).collect();
        self.claims = None;
        lost
    }

    /// The transaction is aborted: looks begin at the front again, and do not move on.
    pub fn give_back(&mut self) {
        self.sources.iter_mut().for_each(Source::find_again);
        let is_socket = |source: &&Source| source.pipe.is_none() && !source.at_once;
        for source in self.sources.iter().filter(is_socket).filter(|source| source.is_there()) {
            let _ = kernel::set_peek_offset(source.real, -1);
        }
        self.sources.clear();
        self.known.clear();
        self.pipes = None;
        self.has_pipes = false;
        self.claims = None;
    }

    /// The pipes of the transaction, if there may be any.
    #[must_use]
    pub fn pipes(&self) -> Option<&Pipes> {
        self.pipes.as_ref()
    }

    /// The pipes of the transaction, also those that it will read from.
    pub fn shared_pipes(&mut self) -> Pipes {
        self.pipes.get_or_insert_default().clone()
    }

    /// Whether pipes may be looked at, so that more is to be asked than the kernel.
    #[inline]
    #[must_use]
    pub fn has_pipes(&self) -> bool {
        self.has_pipes
    }

    /// Whether something has gone out before the commit.
    #[inline]
    #[must_use]
    pub fn has_gone_out(&self) -> bool {
        self.went_out
    }

    /// Whether somebody may be waiting for room in a pipe that is looked at, while the transaction waits for something else.
    #[inline]
    #[must_use]
    pub fn keeps_writers_waiting(&self) -> bool {
        self.has_pipes && self.next_looked_pipe(0).is_some()
    }

    /// The first pipe from there on that is looked at, and that is not waited for.
    fn next_looked_pipe(&self, from: usize) -> Option<usize> {
        let is_one = |at: &usize| {
            let source = self.sources.get(*at);
            source.is_some_and(|one| one.pipe.is_some() && one.has_looked())
                && !self.awaited.contains(at)
        };
        (from..self.sources.len()).find(is_one)
    }

    fn add(&mut self, source: Source) -> usize {
        self.known.insert(source.socket, self.sources.len());
        self.sources.push(source);
        self.sources.len() - 1
    }

    /// What was taken before the commit, in words; empty if that is nothing.
    #[must_use]
    pub fn taken(&self) -> String {
        let taken = self.sources.iter().filter(|source| source.taken() > 0);
        let words = taken.map(|source| {
            let (taken, what) = (source.taken(), source.name());
            let s = if taken == 1 { "" } else { "s" };
            format!("{taken} byte{s} from a {what} (descriptor {})", source.number)
        });
        words.chain(self.kept.words()).collect::<Vec<_>>().join(", ")
    }

    /// In a child that was copied from the process: it is the parent's. `closes`: it has descriptors of its own.
    pub fn forget(&mut self, closes: bool) {
        if closes {
            self.sources.clear();
            self.pipes.iter().for_each(Pipes::close);
            let _ = self.claims.take().map(Claims::close);
        }
        self.kept = Kept::default();
    }
}

/// A call that receives one message, or bytes, in a form that only looks.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// `recvfrom` or `recvmsg`, with `MSG_PEEK`.
    call: Call,
    /// Where its flags are.
    flags_at: usize,
    /// What the program asked for.
    asked: i32,
    /// How many bytes there is room for.
    room: u64,
}

impl Look {
    /// `read`, `readv` and `recvfrom`, `recvmsg`. `None`: it does something that no look does.
    fn of(call: &Call, real: i32, header: &mut [u64; 7], messages: bool) -> Sys<Option<Look>> {
        let (number, asked) = match call.number() {
            libc::SYS_recvfrom => (libc::SYS_recvfrom, call.int(3)),
            libc::SYS_recvmsg => (libc::SYS_recvmsg, call.int(2)),
            libc::SYS_read => (libc::SYS_recvfrom, 0),
            libc::SYS_preadv2 if call.word(5) != 0 => return Ok(None),
            _ => (libc::SYS_recvmsg, 0),
        };
        let all = asked & libc::MSG_WAITALL != 0 && !messages;
        if asked & !FLAGS != 0 || (all && number == libc::SYS_recvmsg) {
            return Ok(None);
        }
        let mut words = *call.words();
        words[0] = real as u64;
        let (flags_at, room) = match call.number() {
            libc::SYS_recvfrom => (3, words[2].min(MOVED_MAX)),
            libc::SYS_read => {
                words[3..].fill(0);
                (3, words[2].min(MOVED_MAX))
            }
            libc::SYS_recvmsg => (2, Header::length(call.pointer(1))?),
            _ => {
                let buffers = call.pointer::<[u64; 2]>(1).buffers(call.word(2))?;
                *header = [0, 0, words[1], words[2], 0, 0, 0];
                words[1] = header.as_mut_ptr() as u64;
                (2, length_of(&buffers))
            }
        };
        let more = if messages { libc::MSG_TRUNC } else { 0 };
        let look = (asked | libc::MSG_PEEK | more) & !libc::MSG_WAITALL;
        words[flags_at] = look as u64;
        // SAFETY: the program's own call, with its pointers, or with a header that the caller keeps until the answer.
        let call = unsafe { Call::new(number, words) };
        Ok(Some(Look { call, flags_at, asked, room }))
    }

    /// The answer if it need not wait.
    fn at_once(&self) -> Sys<u64> {
        let word = self.call.word(self.flags_at) | libc::MSG_DONTWAIT as u64;
        // SAFETY: flags are no pointer.
        unsafe { self.call.with_word(self.flags_at, word) }.answer()
    }

    /// What is left of one that has got so many bytes.
    fn after(&self, bytes: u64) -> Look {
        let [_, at, len, ..] = *self.call.words();
        // SAFETY: the rest of the program's buffer.
        let call = unsafe { self.call.with_word(1, at + bytes).with_word(2, len - bytes) };
        Look { call, room: self.room - bytes, ..*self }
    }

    /// The call that takes.
    fn that_takes(&self) -> Call {
        // SAFETY: flags are no pointer.
        unsafe { self.call.with_word(self.flags_at, self.asked as u64) }
    }

    /// Whether it waits for all that there is room for.
    fn wants_all(&self) -> bool {
        self.asked & libc::MSG_WAITALL != 0
            && self.asked & (libc::MSG_PEEK | libc::MSG_DONTWAIT) == 0
    }
}

impl Tx {
    /// Receives from a socket by looking. `None`: the kernel answers the call, and what it gives is taken.
    ///
    /// # Errors
    /// As the call; the transaction is doomed.
    #[inline]
    pub fn receive(&mut self, call: &Call, file: File, real: i32) -> Sys<Option<u64>> {
        match self.fds.get(file).receiving {
            Receiving::AtOnce | Receiving::Answers => Ok(None),
            // It may be another number of a pipe that is looked at.
            Receiving::Own if !self.held.input.has_pipes && self.held.input.kept.is_empty() => {
                Ok(None)
            }
            _ => self.receive_later(call, file, real),
        }
    }

    /// `recvfrom`, `recvmsg` and `recvmmsg`.
    ///
    /// # Errors
    /// As [`Tx::receive`].
    pub fn receive_message(&mut self, call: &Call) -> Sys<u64> {
        let number = call.int(0);
        let file = self.file(number)?;
        let real = self.real(number)?;
        if let Some(answer) = self.receive(call, file, real)? {
            return Ok(answer);
        }
        let input = &self.held.input;
        let is_told = match self.fds.get(file).receiving {
            Receiving::Own | Receiving::Answers => true,
            Receiving::From(at) => input.sources.get(at).is_some_and(|source| {
                source.at_once && (source.taken > 0 || input.talks.contains(&source.socket))
            }),
            Receiving::Unknown | Receiving::Pipe(_) | Receiving::Device | Receiving::AtOnce => {
                false
            }
        };
        let answer = match is_told {
            false => self.the_rest(call),
            true => {
                self.before_taking(call, real)?;
                call.with_descriptor(0, real).answer_waiting()
            }
        }?;
        self.name_received(call, answer)?;
        Ok(answer)
    }

    /// Descriptors that came with messages which were taken at once get their numbers. (A command's process receives its own.)
    fn name_received(&mut self, call: &Call, answer: u64) -> Sys<()> {
        if self.is_of_a_command() || self.process.space.is_some() {
            return Ok(());
        }
        match call.number() {
            libc::SYS_recvmsg => self.name_descriptors(&Header::read(call.pointer(1))?).map(drop),
            libc::SYS_recvmmsg => {
                let messages = call.pointer::<[u64; 8]>(1);
                (0..answer).try_for_each(|at| {
                    self.name_descriptors(&Header::read(messages.item(at).part(0))?).map(drop)
                })
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn receive_later(&mut self, call: &Call, file: File, real: i32) -> Sys<Option<u64>> {
        let Some(at) = self.source(call.int(0), file, real)? else { return Ok(None) };
        if self.kept_at(at).is_none() {
            let answer = self.receive_by_looking(call, file, real, at)?;
            if answer.is_some() || self.kept_at(at).is_none() {
                return Ok(answer);
            }
        }
        match self.kept_at(at) {
            Some(kept) => self.read_kept(call, file, real, kept),
            None => Ok(None),
        }
    }

    /// Where it is kept what was taken from a source.
    fn kept_at(&self, at: usize) -> Option<usize> {
        self.held.input.sources.get(at)?.kept
    }

    fn receive_by_looking(
        &mut self,
        call: &Call,
        file: File,
        real: i32,
        at: usize,
    ) -> Sys<Option<u64>> {
        if let Some(pipe) = self.pipe_of(at) {
            let answer = self.read_pipe(call, file, real, at, &pipe)?;
            if answer.is_none() && self.kept_at(at).is_none() {
                self.before_reading_at_once(call.int(0))?;
            }
            return Ok(answer);
        }
        match call.number() {
            libc::SYS_recvmmsg => self.receive_several(call, at),
            // It takes nothing.
            libc::SYS_read if call.word(2) == 0 => Ok(Some(0)),
            _ => self.receive_one(call, at),
        }
    }

    /// The source that an open file is; `None`: what it gives is taken at once.
    fn source(&mut self, number: i32, file: File, real: i32) -> Sys<Option<usize>> {
        let found = match self.fds.get(file).receiving {
            Receiving::Unknown => self.find_source(number, real)?,
            Receiving::Pipe(before) => self.find_pipe(before, real)?,
            Receiving::Device => self.find_terminal(number, real)?,
            Receiving::Own => match self.known_source(kernel::look_fd(real)?.id, number) {
                Some(known) => known,
                None => return Ok(None),
            },
            known => known,
        };
        self.fds.get_mut(file).receiving = found;
        let Receiving::From(at) = found else { return Ok(None) };
        if let Some(source) = self.held.input.sources.get_mut(at).filter(|s| s.pipe.is_none()) {
            // The number that it was looked at by may be closed by now.
            source.real = real;
        }
        let source = self.held.input.sources.get(at);
        match source {
            Some(source) if source.kept.is_some() || !source.takes_at_once() => {
                return Ok(Some(at));
            }
            Some(source) if source.pipe.is_some() && self.fds.get(file).reads() => {
                self.before_reading_at_once(number)?;
            }
            _ => {}
        }
        Ok(None)
    }

    /// Whether a pipe may be looked at, which the kernel has at the number `before` since before the transaction.
    fn find_pipe(&mut self, before: i32, real: i32) -> Sys<Receiving> {
        if self.how.flags & LIVE != 0 || !are_asked_for(self.how.flags) {
            return Ok(Receiving::Own);
        }
        let pipe = kernel::look_fd(real)?.id;
        if let Some(known) = self.known_source(pipe, before) {
            return Ok(known);
        }
        let is_there = || kernel::look_fd(before).is_ok_and(|stat| stat.id == pipe);
        let how = kernel::status_flags(real)?;
        let is_one = !self.waits.has_members()
            && !self.held.input.went_out
            && how & libc::O_DIRECT == 0
            && is_there()
            && !loses_always(pipe);
        let input = &mut self.held.input;
        // Its capacity may count for the program. (All are looked for once: there may be many.)
        let mut is_own = || {
            let ends = input.ends.get_or_insert_with(ends_of_process);
            ends.get(&pipe).map_or_else(|| kernel::is_own_pipe(real), |ends| *ends == [true; 2])
        };
        let looks = is_one && (kernel::has_one_thread() || !is_own());
        if looks
            && input.claims.is_none()
            && let Some(realm) = super::shared::realm()
        {
            input.claims = Claims::reserve(realm.path().as_os_str().as_bytes()).ok();
        }
        let looks = looks && (input.claims.is_some() || super::shared::realm().is_none());
        let handle = input.shared_pipes().add(pipe, before, looks);
        input.has_pipes |= !handle.is_at_once();
        let source = Source { pipe: Some(handle), ..Source::of(pipe, before, before) };
        Ok(Receiving::From(input.add(source)))
    }

    /// A source that is known, or of which an earlier attempt has taken something.
    fn known_source(&mut self, id: FileId, number: i32) -> Option<Receiving> {
        let input = &mut self.held.input;
        if let Some(&known) = input.known.get(&id) {
            return Some(Receiving::From(known));
        }
        let kept = input.kept.find(id)?;
        let source = Source { at_once: true, kept: Some(kept), ..Source::of(id, number, number) };
        Some(Receiving::From(input.add(source)))
    }

    /// Whether what comes from a device is kept: it is a terminal, and input is to be given back.
    fn find_terminal(&mut self, number: i32, real: i32) -> Sys<Receiving> {
        if !super::pipes::are_terminals_asked_for(self.how.flags) || !kernel::is_terminal(real) {
            return Ok(Receiving::Own);
        }
        let id = kernel::look_fd(real)?.id;
        if let Some(known) = self.known_source(id, number) {
            return Ok(known);
        }
        if !self.may_keep(Origin::Terminal, 0) {
            return Ok(Receiving::Own);
        }
        self.held.input.kept.add(id, number, Origin::Terminal, Vec::new());
        Ok(self.known_source(id, number).unwrap_or_default())
    }

    /// The pipe that a source is.
    fn pipe_of(&self, at: usize) -> Option<Handle> {
        self.held.input.sources.get(at)?.pipe.clone()
    }

    /// Reads from a pipe by looking. `None`: the kernel answers the call, and what it gives is taken.
    fn read_pipe(
        &mut self,
        call: &Call,
        file: File,
        real: i32,
        at: usize,
        pipe: &Handle,
    ) -> Sys<Option<u64>> {
        let is_plain = match call.number() {
            libc::SYS_read | libc::SYS_readv => true,
            libc::SYS_preadv2 if call.word(5) == 0 => true,
            libc::SYS_preadv2 => {
                self.take_now(at, "a call that can't only look follows")?;
                false
            }
            _ => false,
        };
        if !is_plain {
            return Ok(None);
        }
        if !self.fds.get(file).reads() {
            return Err(Errno::BADF);
        }
        let pieces = buffers(call)?;
        let total = length_of(&pieces);
        if total == 0 {
            return Ok(Some(0));
        }
        while pipe.ahead() < total {
            match pipe.look() {
                Found::Nothing if pipe.ahead() == 0 => {
                    if !self.wait_for_pipe(real, at, pipe)? {
                        return Ok(None);
                    }
                }
                Found::End if pipe.ahead() == 0 => return Ok(Some(0)),
                Found::More | Found::Nothing | Found::End => break,
                Found::Another => return Err(self.lose_input(at)),
                Found::NoLook => {
                    self.take_now(at, "it can't be looked at any longer")?;
                    return Ok(None);
                }
            }
        }
        self.held.output.found_something();
        let mut done = 0;
        for piece in pieces {
            let room = piece.first(pipe.ahead()).room();
            if room == 0 && !piece.is_empty() && pipe.ahead() > 0 {
                return if done == 0 { Err(Errno::FAULT) } else { Ok(Some(done)) };
            }
            let given = pipe.give(room, |bytes| piece.write(bytes).map(|()| bytes.len()))?;
            done += given as u64;
            if (given as u64) < piece.len() {
                break;
            }
        }
        Ok(Some(done))
    }

    /// A read finds nothing more in a pipe. `true`: it is to look again; `false`: from now on the kernel answers.
    fn wait_for_pipe(&mut self, real: i32, at: usize, pipe: &Handle) -> Sys<bool> {
        let waits = kernel::status_flags(real)? & libc::O_NONBLOCK == 0;
        let looked = pipe.has_looked();
        if looked && (pipe.is_full() || !waits && pipe.is_vague()) {
            let vague = "a FIFO does not tell whether somebody can still write there";
            self.take_now(at, if pipe.is_full() { FULL_PIPE } else { vague })?;
            return Ok(false);
        }
        let awaited = if waits { vec![at] } else { Vec::new() };
        self.awaiting(awaited, |tx| match tx.keeps_others_waiting() {
            true => tx.release_before_waiting(waits, real, Some(at)),
            false => Ok(()),
        })?;
        if pipe.is_at_once() {
            return Ok(false);
        }
        if !waits {
            return Err(Errno::AGAIN);
        }
        let since = Instant::now();
        loop {
            let (told, within) = match pipe.has_looked() {
                true => {
                    let source = self.held.input.sources.get_mut(at);
                    let watch = source.map_or(Err(Errno::IO), Source::watch);
                    if watch.is_err() || pipe.is_full() || since.elapsed() >= PATIENCE {
                        self.take_now(at, FULL_PIPE)?;
                        return Ok(false);
                    }
                    // After what was told was forgotten.
                    if pipe.look() != Found::Nothing {
                        return Ok(true);
                    }
                    (watch?, LOOK)
                }
                false => (real, LONG),
            };
            let found = while_waiting(|| kernel::events(told, libc::POLLIN, within))?;
            // What comes when it has lost is the next attempt's, or another reader's.
            if self.has_lost_meanwhile() {
                return Err(Errno::CANCELED);
            }
            if found != 0 {
                return Ok(true);
            }
            if is_to_end() {
                return Err(Errno::INTR);
            }
        }
    }

    /// Does what waits for more in these pipes only.
    fn awaiting<T>(&mut self, awaited: Vec<usize>, work: impl FnOnce(&mut Tx) -> T) -> T {
        let before = std::mem::replace(&mut self.held.input.awaited, awaited);
        let done = work(self);
        self.held.input.awaited = before;
        done
    }

    /// Somebody else has taken what the transaction has received: it has lost.
    fn lose_input(&mut self, at: usize) -> Errno {
        if let Some(source) = self.held.input.sources.get(at) {
            let why = taken_by_another(source);
            self.doom(why);
        }
        super::acquire::DOOMED
    }

    /// Before a read takes from a pipe what an abort can't give back.
    fn before_reading_at_once(&mut self, number: i32) -> Sys<()> {
        if self.is_strict() {
            return self.unsupported_call("reading what can't be given back from a pipe", b"");
        }
        self.held.output.went_out = true;
        if self.report.note_live(TAKEN_PIPE, b"") {
            say(&format!(
                "what the transaction reads from a pipe (descriptor {number}) is gone at once, and is not given back"
            ));
        }
        Ok(())
    }

    /// Whether a call has to look for pipes that are full.
    #[must_use]
    pub fn looks_at_pipes(&self) -> bool {
        self.held.input.keeps_writers_waiting()
    }

    /// Before any call: a writer that has had no room in a pipe for a time may be who the program waits for, by whatever calls.
    ///
    /// # Errors
    /// With TX_STRICT the transaction is doomed.
    pub fn take_full_pipes(&mut self, call: i64) -> Sys<()> {
        let input = &mut self.held.input;
        if input.full_looked.is_some_and(|then| then.elapsed() < FULL_LOOK) {
            return Ok(());
        }
        input.full_looked = Some(Instant::now());
        for at in 0..self.held.input.sources.len() {
            let pipe = self.pipe_of(at).filter(Handle::has_looked);
            if pipe.is_some_and(|pipe| pipe.is_full_for(FULL_FOR)) {
                self.report.calling = call;
                self.take_now(at, FULL_PIPE)?;
            }
        }
        Ok(())
    }

    /// Before the transaction waits for something else than more in pipes: what it has read from them is taken.
    ///
    /// # Errors
    /// With TX_STRICT the transaction is doomed.
    pub fn take_pipes(&mut self) -> Sys<()> {
        self.take_pipes_because(WAITS)
    }

    /// The same before this call; or, without one, before something that is no call in the transaction: for that it is not aborted.
    ///
    /// # Errors
    /// With TX_STRICT the transaction is doomed.
    pub fn take_pipes_before(&mut self, call: Option<i64>, why: &str) -> Sys<()> {
        if !self.held.input.has_pipes {
            return self.talks_by_any_way();
        }
        self.report.calling = call.unwrap_or(-1);
        if call.is_some() {
            self.take_pipes_because(why)?;
        } else {
            for at in 0..self.held.input.sources.len() {
                if self.pipe_of(at).is_some_and(|pipe| pipe.has_looked()) {
                    self.take_and_say(at, why);
                }
            }
        }
        // Whatever it does, what comes after it may be the answer.
        self.talks_by_any_way()
    }

    /// The same for another reason.
    ///
    /// # Errors
    /// With TX_STRICT the transaction is doomed.
    pub fn take_pipes_because(&mut self, why: &str) -> Sys<()> {
        if !self.held.input.has_pipes {
            return Ok(());
        }
        let mut from = 0;
        while let Some(at) = self.held.input.next_looked_pipe(from) {
            self.take_now(at, why)?;
            from = at + 1;
        }
        Ok(())
    }

    /// Something goes out before the commit: what comes from pipes from now on may be the answer.
    ///
    /// # Errors
    /// With TX_STRICT the transaction is doomed, if it has read from a pipe.
    #[inline]
    pub fn talks_by_any_way(&mut self) -> Sys<()> {
        if std::mem::replace(&mut self.held.input.went_out, true) {
            return Ok(());
        }
        if !self.held.input.kept.is_empty() {
            self.close_kept();
        }
        if self.held.input.has_pipes {
            return self.take_pipes_that_may_answer();
        }
        Ok(())
    }

    #[cold]
    fn take_pipes_that_may_answer(&mut self) -> Sys<()> {
        for at in 0..self.held.input.sources.len() {
            if self.held.input.sources.get(at).is_some_and(|source| source.pipe.is_some()) {
                // Also those that were only found: what they bring is taken at once.
                self.take_now(at, GOES_OUT)?;
            }
        }
        Ok(())
    }

    /// A descriptor of a pipe is to be used in a way that goes past looks, as by another process.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn take_pipe_of(&mut self, number: i32) -> Sys<()> {
        if !self.held.input.has_pipes {
            return Ok(());
        }
        match self.looked_at(number) {
            Some(at) if self.pipe_of(at).is_some() => {
                self.take_now(at, "a call that can't only look follows")
            }
            _ => Ok(()),
        }
    }

    fn find_source(&mut self, number: i32, real: i32) -> Sys<Receiving> {
        if self.is_of_several() {
            return Ok(Receiving::AtOnce);
        }
        let socket = kernel::look_fd(real)?.id;
        if let Some(known) = self.known_source(socket, number) {
            return Ok(known);
        }
        let input = &mut self.held.input;
        if input.talks.contains(&socket) {
            return Ok(Receiving::Answers);
        }
        let (domain, kind) = kernel::socket_kind(real)?;
        let unix = domain == libc::AF_UNIX;
        let is_one = (unix || matches!(domain, libc::AF_INET | libc::AF_INET6))
            && matches!(kind, libc::SOCK_STREAM | libc::SOCK_DGRAM | libc::SOCK_SEQPACKET)
            && kernel::peek_offset(real) == Ok(-1)
            && kernel::least_received(real) == Ok(1);
        if !is_one || kernel::set_peek_offset(real, 0).is_err() {
            return Ok(Receiving::AtOnce);
        }
        let source = Source {
            messages: kind != libc::SOCK_STREAM,
            packets: kind == libc::SOCK_SEQPACKET,
            unix,
            ..Source::of(socket, real, number)
        };
        Ok(Receiving::From(input.add(source)))
    }

    /// The source of a descriptor of which something was looked at.
    fn looked_at(&mut self, number: i32) -> Option<usize> {
        let file = self.file(number).ok()?;
        let input = &self.held.input;
        let is_other = match self.fds.get(file).receiving {
            Receiving::Unknown => true,
            Receiving::Pipe(_) | Receiving::Device | Receiving::Own => input.has_pipes,
            _ => false,
        };
        if is_other {
            // It may be another number of one that is known.
            let real = self.real(number).ok()?;
            let id = kernel::look_fd(real).ok()?.id;
            let known = *self.held.input.known.get(&id)?;
            self.fds.get_mut(file).receiving = Receiving::From(known);
        }
        let Receiving::From(at) = self.fds.get(file).receiving else { return None };
        self.held.input.sources.get(at).is_some_and(Source::has_looked).then_some(at)
    }

    fn receive_one(&mut self, call: &Call, at: usize) -> Sys<Option<u64>> {
        let mut header = [0; 7];
        let Some(source) = self.held.input.sources.get(at) else { return Ok(None) };
        let (real, messages, empty) = (source.real, source.messages, source.empty_next);
        let look = Look::of(call, real, &mut header, messages)?;
        let Some(mut look) = look.filter(|_| !empty) else {
            const BESIDE: i32 = libc::MSG_OOB | libc::MSG_ERRQUEUE;
            let flags = match call.number() {
                libc::SYS_recvfrom => call.int(3),
                libc::SYS_recvmsg => call.int(2),
                _ => 0,
            };
            if flags & BESIDE == 0 {
                self.take_now(at, "an empty datagram or a call that can't only look follows")?;
            }
            return Ok(None);
        };
        let mut done = 0;
        loop {
            let found = match self.look(&look, at, Look::at_once) {
                Err(Errno::AGAIN) => match self.wait_for_more(&look, at) {
                    Ok(Some(found)) => Ok(found),
                    // The kernel takes the rest.
                    Ok(None) if done == 0 => return Ok(None),
                    Ok(None) => {
                        let Ok(file) = self.file(call.int(0)) else { return Ok(Some(done)) };
                        let kept = self.kept_at(at);
                        return Ok(Some(
                            done + self.take_rest(&look.that_takes(), file, real, kept),
                        ));
                    }
                    Err(errno) => Err(errno),
                },
                found => found,
            };
            match found {
                Ok(found) if self.has_doubtful_descriptors(at, &look, found)? => {
                    self.take_now(at, "descriptors came with bytes of which it reads a part")?;
                    return Ok(None);
                }
                Ok(found) => {
                    let answer = self.saw(at, &look, found)?;
                    done += answer;
                    if !look.wants_all() || messages || answer == 0 || answer >= look.room {
                        return Ok(Some(done));
                    }
                    look = look.after(answer);
                }
                Err(_) if done > 0 => return Ok(Some(done)),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Looks. Where an urgent byte comes next in a stream of TCP, the kernel steps over it and counts one byte too few: the next
    /// look would begin too early. `FIONREAD` tells where one is: it counts the bytes before it.
    fn look(&mut self, look: &Look, at: usize, make: impl Fn(&Look) -> Sys<u64>) -> Sys<u64> {
        let source = self.held.input.sources.get_mut(at);
        let Some(source) = source.filter(|source| source.may_have_urgent_bytes()) else {
            return make(look);
        };
        loop {
            let before = kernel::arrived(source.real)?;
            let found = make(look)?;
            if found == 0 || before != source.seen() {
                return Ok(found);
            }
            if kernel::arrived(source.real)? == source.seen() {
                if look.asked & libc::MSG_PEEK == 0 {
                    source.urgent += 1;
                    let next = i32::try_from(source.seen() + found).unwrap_or(i32::MAX);
                    let _ = kernel::set_peek_offset(source.real, next);
                }
                return Ok(found);
            }
            // That has arrived meanwhile, or an urgent byte is none any more.
            source.look_from_here();
        }
    }

    /// Nothing more is there to be looked at. `None`: from now on it is taken at once.
    fn wait_for_more(&mut self, look: &Look, at: usize) -> Sys<Option<u64>> {
        let Some(source) = self.held.input.sources.get(at) else { return Ok(None) };
        let real = source.real;
        let waits = look.asked & libc::MSG_DONTWAIT == 0
            && kernel::status_flags(real)? & libc::O_NONBLOCK == 0;
        if self.keeps_others_waiting() {
            self.release_before_waiting(waits, real, Some(at))?;
            if self.held.input.sources.get(at).is_none_or(|source| source.at_once) {
                return Ok(None);
            }
        }
        if !waits {
            return Err(Errno::AGAIN);
        }
        let since = Instant::now();
        loop {
            let Some(source) = self.held.input.sources.get_mut(at) else { return Ok(None) };
            if !source.has_looked() || kernel::receives_for_a_time(real) {
                return self.look(look, at, |look| look.call.answer_waiting()).map(Some);
            }
            if source.is_full() {
                self.take_now(at, FULL)?;
                return Ok(None);
            }
            if source.unix && since.elapsed() >= PATIENCE {
                self.take_now(at, FULL)?;
                return Ok(None);
            }
            let watch = source.watch()?;
            match self.look(look, at, Look::at_once) {
                Err(Errno::AGAIN) => {}
                found => return found.map(Some),
            }
            while_waiting(|| kernel::events(watch, libc::POLLIN, LOOK))?;
            if is_to_end() {
                return Err(Errno::INTR);
            }
        }
    }

    /// Something was found by a look: the answer.
    fn saw(&mut self, at: usize, look: &Look, found: u64) -> Sys<u64> {
        self.held.output.found_something();
        let Some(source) = self.held.input.sources.get_mut(at) else { return Err(Errno::IO) };
        let answer = match source.messages {
            true if look.asked & libc::MSG_TRUNC == 0 => found.min(look.room),
            _ => found,
        };
        if look.asked & libc::MSG_PEEK != 0 {
            source.look_from_here();
        } else if source.messages {
            source.seen += found;
            source.count += 1;
            if found > look.room {
                source.look_from_here();
            }
        } else {
            source.seen += found;
        }
        if look.call.number() == libc::SYS_recvmsg {
            let brings = self.name_descriptors(&Header::read(look.call.pointer(1))?)?;
            if let Some(source) = self.held.input.sources.get_mut(at) {
                source.brings |= brings;
            }
        }
        Ok(answer)
    }

    /// Whether a look at a stream has brought descriptors of which it is not known whether they came with its bytes: a look that
    /// finds as much as there is room for goes on to those of the next message, and brings those of one that is read in parts
    /// again and again. They are closed, and the look is none.
    fn has_doubtful_descriptors(&mut self, at: usize, look: &Look, found: u64) -> Sys<bool> {
        let source = self.held.input.sources.get(at);
        let is_part = |source: &&Source| source.unix && !source.messages && found == look.room;
        let Some(source) = source.filter(is_part) else { return Ok(false) };
        if look.call.number() != libc::SYS_recvmsg {
            return Ok(false);
        }
        let header = Header::read(look.call.pointer(1))?;
        let places = descriptors_in(&header)?;
        if places.is_empty() && header.flags() & libc::MSG_CTRUNC == 0 {
            return Ok(false);
        }
        source.look_from_here();
        for place in places {
            kernel::close(place.read()?);
        }
        Ok(true)
    }

    /// Descriptors that came with a message get their numbers, which an abort closes. Whether anything came with it.
    pub(super) fn name_descriptors(&mut self, header: &Header) -> Sys<bool> {
        let places = descriptors_in(header)?;
        let fds: Vec<i32> = places.iter().map(|place| place.read()).collect::<Sys<_>>()?;
        let mut rest = fds.into_iter();
        for place in &places {
            let named = rest.next().map_or(Err(Errno::BADF), |fd| self.plain(fd));
            // Those that get none are nobody's.
            place.write(named.inspect_err(|_| rest.by_ref().for_each(kernel::close))?)?;
        }
        Ok(!places.is_empty() || !header.control().is_empty())
    }

    fn receive_several(&mut self, call: &Call, at: usize) -> Sys<Option<u64>> {
        let messages = call.pointer::<[u64; 8]>(1);
        let (count, asked) = (call.word(2) as u32 as u64, call.int(3));
        let within = match call.pointer::<[i64; 2]>(4) {
            time if time.is_null() => None,
            time => {
                let [seconds, rest] = time.read()?;
                let time = u64::try_from(seconds).ok().zip(u32::try_from(rest).ok());
                let (seconds, rest) = time.filter(|t| t.1 < 1_000_000_000).ok_or(Errno::INVAL)?;
                Some(Duration::new(seconds, rest))
            }
        };
        let since = Instant::now();
        let mut done = 0;
        while done < count.min(1024) {
            let item = messages.item(done);
            let once = done > 0 && asked & libc::MSG_WAITFORONE != 0;
            let one = asked & !libc::MSG_WAITFORONE | if once { libc::MSG_DONTWAIT } else { 0 };
            let call = one_of_several(call, item, one);
            let received = match self.held.input.sources.get(at).is_some_and(|s| !s.at_once) {
                true => self.receive_one(&call, at),
                false => Ok(None),
            };
            match received {
                Ok(Some(n)) => item.part::<u32>(LENGTH_AT).write(n as u32)?,
                Ok(None) if done == 0 => return Ok(None),
                Err(errno) if done == 0 => return Err(errno),
                _ => break,
            }
            done += 1;
            if within.is_some_and(|within| since.elapsed() >= within) {
                break;
            }
        }
        Ok(Some(done))
    }

    /// What was looked at can't be left any longer: it is taken before the commit.
    fn take_now(&mut self, at: usize, why: &str) -> Sys<()> {
        let Some(source) = self.held.input.sources.get_mut(at) else { return Ok(()) };
        if !source.has_looked() {
            // Nothing was taken yet that an abort would have to give back.
            let _ = source.take_and_tell();
            return Ok(());
        }
        if self.how.flags & flags::STRICT != 0 {
            return self.unsupported_call("receiving more than can be given back", b"");
        }
        if why == GOES_OUT || !self.take_and_keep(at) {
            self.take_and_say(at, why);
        }
        Ok(())
    }

    /// Takes what was looked at, and keeps it for the next attempt. `false`: nothing was done, as that is not possible.
    fn take_and_keep(&mut self, at: usize) -> bool {
        let Some(source) = self.held.input.sources.get(at) else { return false };
        let (id, number) = (source.socket, source.number);
        let is_plain = !source.messages && source.urgent == 0 && !source.brings;
        if !is_plain || source.is_lost() {
            return false;
        }
        let origin = if source.pipe.is_some() { Origin::Pipe } else { Origin::Socket };
        if !self.may_keep(origin, source.seen()) {
            return false;
        }
        let Some(source) = self.held.input.sources.get_mut(at) else { return false };
        let mut bytes = Vec::new();
        let words = match source.pipe.clone() {
            Some(pipe) => {
                bytes = pipe.was_given();
                source.watch = None;
                pipe.take().words(number)
            }
            None => words_of_lost(source.take(|more| bytes.extend_from_slice(more)), number),
        };
        // It is named as what is kept.
        source.forget_taken();
        words.iter().for_each(|words| say(words));
        self.held.output.went_out |= words.is_some();
        let kept = self.held.input.kept.add(id, number, origin, bytes);
        if let Some(source) = self.held.input.sources.get_mut(at) {
            source.kept = Some(kept);
        }
        true
    }

    /// The same, also under `TX_STRICT`.
    fn take_and_say(&mut self, at: usize, why: &str) {
        let Some(source) = self.held.input.sources.get_mut(at) else { return };
        let what = source.words().1;
        let lost = source.take_and_tell();
        self.held.output.went_out = true;
        let call = txos_calls::name(self.report.calling);
        let call = call.map_or(String::new(), |name| format!(" ({name})"));
        let done = if what == TAKEN { "received there" } else { "read from a pipe" };
        if self.report.note_live(what, b"") {
            say(&format!(
                "{why}{call}, so what the transaction has {done} is taken before the commit, and is not given back"
            ));
        }
        lost.iter().for_each(|words| say(words));
    }

    /// Something is taken from a socket in a way that can't be a look.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn before_taking_past_looks(&mut self, number: i32) -> Sys<()> {
        self.close_kept_at(number)?;
        if !self.held.input.any() {
            return Ok(());
        }
        match self.looked_at(number) {
            Some(at) => self.take_now(at, "a call that can't only look follows"),
            None => Ok(()),
        }
    }

    /// Something is sent on a socket at once: what is received there from now on may be the answer.
    #[inline]
    pub fn talks(&mut self, number: i32) {
        let Descriptor::Open { file, .. } = self.fds.descriptor(number) else { return };
        if matches!(self.fds.get(file).receiving, Receiving::Unknown | Receiving::From(_)) {
            self.talks_at_once(number, file);
        }
    }

    #[cold]
    fn talks_at_once(&mut self, number: i32, file: File) {
        let Ok(real) = self.real(number) else { return };
        if let Ok(stat) = kernel::look_fd(real) {
            self.talks_on(stat.id);
        }
        self.fds.get_mut(file).receiving = match self.fds.get(file).receiving {
            Receiving::Unknown => Receiving::Answers,
            known => known,
        };
    }

    /// The same of a socket that is known by what it is.
    pub fn talks_on(&mut self, socket: FileId) {
        let input = &mut self.held.input;
        if !input.talks.contains(&socket) {
            input.talks.push(socket);
        }
        let is_it = |s: &&mut Source| s.socket == socket && !s.takes_at_once();
        let sources = input.sources.iter_mut().filter(is_it);
        let lost: Vec<String> = sources.filter_map(Source::take_and_tell).collect();
        lost.iter().for_each(|words| say(words));
        self.close_kept_from(socket);
    }

    /// From here on nothing is only looked at: other threads enter.
    pub fn take_received(&mut self) {
        for at in 0..self.held.input.sources.len() {
            // Under TX_STRICT the transaction is doomed then.
            let _ = self.take_now(at, "other threads enter the transaction");
        }
        for file in 0..self.fds.count() {
            let open = self.fds.get_mut(file);
            open.receiving = match open.receiving {
                Receiving::Unknown => Receiving::AtOnce,
                Receiving::Pipe(_) | Receiving::Device => Receiving::Own,
                known => known,
            };
        }
        // They read at once, without this.
        self.held.output.went_out |= !self.held.input.kept.is_empty();
    }

    /// A socket is closed before the commit: what was looked at there is taken first.
    pub fn take_before_closing(&mut self, real: i32) {
        let mut sources = self.held.input.sources.iter_mut();
        let source = sources.find(|source| source.real == real && !source.takes_at_once());
        if let Some(words) = source.and_then(Source::take_and_tell) {
            say(&words);
        }
    }

    /// Another transaction that has read from the same pipes must not commit at the same time.
    fn claim_pipes(&mut self) -> Result<(), Failure> {
        let input = &self.held.input;
        if !input.has_pipes {
            return Ok(());
        }
        let is_one = |source: &&Source| source.pipe.is_some() && source.has_looked();
        let pipes: Vec<_> = input.sources.iter().filter(is_one).map(|one| one.socket).collect();
        let realm = super::shared::realm().filter(|_| !pipes.is_empty());
        let Some(realm) = realm else { return Ok(()) };
        let claims = match self.held.input.claims.take() {
            Some(claims) => Ok(claims),
            None => Claims::reserve(realm.path().as_os_str().as_bytes()),
        };
        let claimed = claims.and_then(|mut claims| {
            let all = claims.claim(pipes.into_iter())?;
            Ok((claims, all))
        });
        let (errno, what) = match claimed {
            Ok((claims, true)) => {
                self.held.input.claims = Some(claims);
                return Ok(());
            }
            Ok((_, false)) => (
                libc::ECANCELED,
                "another transaction takes what this one has read from a pipe as well".to_owned(),
            ),
            Err(errno) => (
                errno.raw_os_error(),
                format!(
                    "what was read from pipes can't be claimed: {}: {}",
                    realm.path().display(),
                    std::io::Error::from(errno)
                ),
            ),
        };
        let reason = if errno == libc::ECANCELED { reason::CONFLICT } else { reason::FAILED };
        Err(Failure { reason, errno, what, ..Failure::default() })
    }

    /// Before the commit: somebody else must not have taken what was looked at.
    ///
    /// # Errors
    /// Somebody has: a conflict.
    pub fn check_received(&mut self) -> Result<(), Failure> {
        self.claim_pipes()?;
        self.held.input.sources.iter_mut().for_each(Source::find_again);
        let looked = self.held.input.sources.iter().filter(|source| source.has_looked());
        match looked.into_iter().find(|source| source.is_lost()) {
            None => Ok(()),
            Some(source) => Err(taken_by_another(source)),
        }
    }

    /// Whether something of a source was looked at that is not taken.
    fn looks(&self, at: usize) -> bool {
        self.held.input.sources.get(at).is_some_and(Source::has_looked)
    }

    /// Whether a read from a source would find something.
    pub fn has_more(&mut self, at: usize) -> bool {
        self.held.input.sources.get_mut(at).is_none_or(|s| !s.has_looked() || s.has_more())
    }

    /// A descriptor that tells of the next arrival at a source; that of the socket if it tells of nothing else.
    pub fn arrivals(&mut self, at: usize, real: i32) -> i32 {
        let source = self.held.input.sources.get_mut(at).filter(|s| s.has_looked());
        source.and_then(|source| source.watch().ok()).unwrap_or(real)
    }

    /// `ioctl(FIONREAD)`. `None`: the kernel can say that.
    pub fn bytes_to_receive(&mut self, number: i32) -> Option<u64> {
        if let Some(left) = self.left_for(number) {
            // A terminal tells of one line.
            let real = self.real(number);
            let more = real.and_then(|real| match kernel::is_terminal(real) {
                true => Ok(0),
                false => kernel::arrived(real),
            });
            return Some(left as u64 + more.unwrap_or(0));
        }
        if !self.held.input.any() {
            return None;
        }
        let at = self.looked_at(number)?;
        let source = self.held.input.sources.get_mut(at)?;
        // Of datagrams the kernel tells the length of the first.
        if !source.messages || source.packets {
            let left = kernel::arrived(source.real).unwrap_or(0).saturating_sub(source.seen());
            let left = if left > 0 { left } else { source.ahead() };
            if let Some(pipe) = source.pipe.clone()
                && left == 0
                && (matches!(pipe.look(), Found::Another | Found::NoLook) || pipe.is_full())
            {
                // Who asks again and again may be waiting for more.
                let _ = self.take_now(at, FULL_PIPE);
            }
            return Some(left);
        }
        let next = kernel::look_at_message(source.real);
        source.look_from_here();
        source.empty_next |= next == Ok(0) && !source.has_ended();
        Some(next.unwrap_or(0))
    }

    /// Of the descriptors that a wait asks about, those of sources of which all that has arrived was looked at: the kernel
    /// would tell of it again.
    pub fn blind<'a>(
        &mut self,
        asked: impl Iterator<Item = (usize, &'a libc::pollfd)>,
    ) -> Vec<Blind> {
        if !self.held.input.any() {
            return Vec::new();
        }
        let asked: Vec<_> = asked.map(|(place, one)| (place, *one)).collect();
        for (_, one) in asked.iter().filter(|(_, one)| one.fd >= 0) {
            self.before_asking(one.fd, one.events & ROOM != 0);
        }
        let asked = asked.into_iter().filter(|(_, one)| one.fd >= 0 && one.events & READABLE != 0);
        let found = asked.filter_map(|(place, one)| {
            self.looked_at(one.fd).map(|source| Blind { place, source, events: one.events })
        });
        found.collect()
    }

    /// Before a wait asks about a descriptor what only the kernel can tell: for room in a pipe, or what another epoll descriptor
    /// tells of. What was read from pipes is taken then.
    pub fn before_asking(&mut self, number: i32, for_room: bool) {
        if !self.held.input.keeps_writers_waiting() {
            return;
        }
        // Under TX_STRICT the transaction is doomed then.
        if for_room {
            let _ = self.take_pipe_of(number);
        }
        if self.is_epoll(number) {
            let _ = self.take_pipes_because("what an epoll descriptor tells of pipes is asked");
        }
    }

    fn is_epoll(&mut self, number: i32) -> bool {
        let file = self.file(number);
        if !file.is_ok_and(|file| self.fds.get(file).receiving == Receiving::Own) {
            return false;
        }
        let real = self.real_without_offset(number);
        let path = real.and_then(kernel::path_of_fd);
        path.is_ok_and(|path| path == b"anon_inode:[eventpoll]")
    }

    /// `poll(2)` with the kernel's numbers, some of which are `blind`. `ready`: something is ready for the transaction
    /// already.
    ///
    /// # Errors
    /// As the call.
    pub fn wait_past_looks(
        &mut self,
        list: &mut Vec<libc::pollfd>,
        blind: &[Blind],
        within: Option<Duration>,
        ready: bool,
    ) -> Sys<u64> {
        let count = list.len();
        let since = Instant::now();
        let awaited: Vec<usize> = blind.iter().map(|one| one.source).collect();
        loop {
            list.truncate(count);
            let mut found = false;
            for one in blind {
                if !self.looks(one.source) {
                    // It was taken meanwhile, and what there is the kernel tells.
                    list[one.place].events = one.events;
                    continue;
                }
                let arrives = self.arrivals(one.source, -1);
                let more = self.has_more(one.source);
                found |= more;
                list[one.place].events = if more { one.events } else { one.events & !READABLE };
                if arrives >= 0 && !more {
                    list.push(libc::pollfd { fd: arrives, events: libc::POLLIN, revents: 0 });
                }
            }
            let left = within.map(|within| within.saturating_sub(since.elapsed()));
            let waits = left != Some(Duration::ZERO);
            let slice = match found || ready {
                true => None,
                false => self.before_waiting_for_more(blind, since, waits)?,
            };
            let time = [left, slice].into_iter().flatten().min();
            let time = time.map(|time| [time.as_secs(), u64::from(time.subsec_nanos())]);
            let at = time.as_ref().map_or(0, |time| time.as_ptr() as u64);
            let words = [list.as_mut_ptr() as u64, list.len() as u64, at, 0, 8, 0];
            // SAFETY: the list and the time live until the answer.
            let call = unsafe { Call::new(libc::SYS_ppoll, words) };
            let awaited = if waits { awaited.clone() } else { Vec::new() };
            self.awaiting(awaited, |tx| tx.answer_wait(&call, ready || found, || {}))?;
            let told = list[..count].iter().filter(|one| one.revents != 0).count() as u64;
            if told > 0 || ready || within.is_some_and(|within| since.elapsed() >= within) {
                list.truncate(count);
                return Ok(told);
            }
            if is_to_end() {
                return Err(Errno::INTR);
            }
        }
    }

    /// Before a wait for more: what may keep others from sending it is taken; of pipes also if nothing is waited for, as who asks
    /// again and again may wait so. How long to wait at most.
    fn before_waiting_for_more(
        &mut self,
        blind: &[Blind],
        since: Instant,
        waits: bool,
    ) -> Sys<Option<Duration>> {
        let mut slice = None;
        for one in blind {
            let sources = &mut self.held.input.sources;
            let Some(source) = sources.get_mut(one.source).filter(|s| s.has_looked()) else {
                continue;
            };
            let over = PATIENCE.saturating_sub(since.elapsed());
            if source.pipe.is_none() && !waits {
                continue;
            }
            if source.is_full() || source.is_for_a_time() && over.is_zero() {
                let why = source.words().0;
                self.take_now(one.source, why)?;
                // What is there now, the kernel tells.
                slice = Some(Duration::ZERO);
            } else if source.is_for_a_time() {
                slice = Some(slice.map_or(over, |slice: Duration| slice.min(over)));
            }
        }
        Ok(slice)
    }

    /// The descriptors that an epoll descriptor tells of, again and again, and that are of sources of which something was
    /// looked at.
    pub fn blind_interests(&mut self, epoll: i32) -> Sys<Vec<(Blind, u64)>> {
        if !self.held.input.any() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        let interests = match kernel::interests(epoll) {
            Err(_) if self.held.input.keeps_writers_waiting() => {
                self.take_pipes_because(UNCLEAR)?;
                Vec::new()
            }
            interests => interests?,
        };
        self.before_epoll(&interests)?;
        for (number, event) in interests {
            let asked = event.events as i32;
            // Those that tell of a change, or once, do not tell again.
            let told = libc::EPOLLET | libc::EPOLLONESHOT;
            let is_it = asked & libc::EPOLLIN != 0 && asked & told == 0;
            // The number is the kernel's, of when it was added.
            if is_it
                && self.real(number) == Ok(number)
                && let Some(source) = self.looked_at(number)
            {
                found.push((Blind { place: 0, source, events: libc::POLLIN }, event.u64));
            }
        }
        Ok(found)
    }

    /// What was read from pipes is taken if an epoll descriptor could not tell of them as of pipes that have been read from.
    fn before_epoll(&mut self, interests: &[(i32, libc::epoll_event)]) -> Sys<()> {
        const ONCE: i32 = libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE;
        const OTHER: i32 = libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLRDNORM;
        if !self.held.input.keeps_writers_waiting() {
            return Ok(());
        }
        for &(number, event) in interests {
            let is_it = self.real(number) == Ok(number);
            if !is_it || self.is_epoll(number) {
                return self.take_pipes_because(UNCLEAR);
            }
            let pipe = self.looked_at(number).filter(|&at| self.pipe_of(at).is_some());
            let Some(at) = pipe else { continue };
            let data = event.u64;
            let alike = interests.iter().filter(|(_, other)| { other.u64 } == data).count();
            if event.events as i32 & (ONCE | OTHER) != 0 || alike > 1 {
                self.take_now(at, UNCLEAR)?;
            }
        }
        Ok(())
    }

    /// `epoll_wait(2)` with the kernel's number, which tells of sources of which something was looked at. `more` answers for
    /// what the kernel can't tell of.
    ///
    /// # Errors
    /// As the call.
    pub fn events_past_looks(
        &mut self,
        call: &Call,
        blind: &[(Blind, u64)],
        mut more: impl FnMut(&mut Tx) -> Sys<u64>,
    ) -> Sys<u64> {
        let sources: Vec<Blind> = blind.iter().map(|one| one.0).collect();
        let (at, is_pointer, within) = super::effects::waits(call)?;
        let none = [0_u64; 2];
        let word = if is_pointer { none.as_ptr() as u64 } else { 0 };
        // SAFETY: the structure lives until the answer.
        let look = unsafe { call.with_word(at, word) };
        let out = call.pointer::<libc::epoll_event>(1);
        let since = Instant::now();
        loop {
            let mut list = Vec::new();
            let mut silent = Vec::new();
            for (one, data) in blind {
                let arrives = self.arrivals(one.source, -1);
                if arrives >= 0 && !self.has_more(one.source) {
                    list.push(libc::pollfd { fd: arrives, events: libc::POLLIN, revents: 0 });
                    silent.push(*data);
                }
            }
            let found = self.answer_wait(&look, true, || {})?;
            let mut kept = 0;
            for i in 0..found {
                let mut event = out.item(i).read()?;
                if silent.contains(&{ event.u64 }) {
                    event.events &= !((libc::EPOLLIN | libc::EPOLLRDNORM) as u32);
                }
                if event.events != 0 {
                    out.item(kept).write(event)?;
                    kept += 1;
                }
            }
            if kept == 0 {
                kept = more(self)?;
            }
            let left = within.map(|within| within.saturating_sub(since.elapsed()));
            if kept == 0 && left == Some(Duration::ZERO) {
                // Who asks again and again may be waiting for more.
                self.before_waiting_for_more(&sources, since, false)?;
                if self.held.input.keeps_writers_waiting() && self.looked_in_vain() {
                    self.take_pipes()?;
                }
            }
            if kept > 0 || left == Some(Duration::ZERO) {
                return Ok(kept);
            }
            if list.is_empty() {
                // Nothing is silent any more.
                return self.answer_wait(call, false, || {});
            }
            self.before_waiting_for_more(&sources, since, true)?;
            let awaited = sources.iter().map(|one| one.source).collect();
            self.awaiting(awaited, |tx| match tx.keeps_others_waiting() {
                true => tx.release(),
                false => Ok(()),
            })?;
            // Others of its descriptors are looked at again and again.
            let time = left.map_or(TURN, |left| left.min(TURN));
            while_waiting(|| kernel::any_event(&mut list, time))?;
            if is_to_end() {
                return Err(Errno::INTR);
            }
        }
    }
}

/// A descriptor of which the kernel would tell again what the transaction has looked at.
#[derive(Clone, Copy, Debug)]
pub struct Blind {
    /// Its place in the list.
    pub place: usize,
    source: usize,
    /// What was asked for.
    events: i16,
}

/// Why a transaction has lost whose input somebody else has taken.
fn taken_by_another(source: &Source) -> Failure {
    let done = if source.pipe.is_some() { "read" } else { "received" };
    // Not those that ordinary rivals make lose.
    if source.pipe.as_ref().is_some_and(Handle::is_changed) {
        super::pipes::has_lost(source.socket);
    }
    Failure {
        reason: reason::CONFLICT,
        errno: libc::ECANCELED,
        what: format!(
            "somebody else has taken what the transaction has {done} from a {} (descriptor {})",
            source.name(),
            source.number
        ),
        ..Failure::default()
    }
}

/// Where a message of `recvmmsg(2)` has the length of what was received, after the header.
pub(super) const LENGTH_AT: usize = 56;

/// The call for one message of a `recvmmsg(2)`, with these flags.
pub(super) fn one_of_several(call: &Call, item: UserPtr<[u64; 8]>, flags: i32) -> Call {
    let words = [call.word(0), item.address(), flags as u64, 0, 0, 0];
    // SAFETY: it is the program's own header, as its call for one message would have it.
    unsafe { Call::new(libc::SYS_recvmsg, words) }
}

/// So many bytes of what was looked at in a socket were lost, in words.
fn words_of_lost(lost: u64, number: i32) -> Option<String> {
    let s = if lost == 1 { "" } else { "s" };
    let words = || {
        format!(
            "{lost} byte{s} that the transaction has received from a socket (descriptor {number}) were taken by somebody else as well"
        )
    };
    (lost > 0).then(words)
}

/// Where the descriptors are that came with a message.
fn descriptors_in(header: &Header) -> Sys<Vec<UserPtr<i32>>> {
    /// `struct cmsghdr`, before its data; each begins at a multiple of a word.
    const HEAD: u64 = 16;
    let mut rest = header.control();
    let mut found = Vec::new();
    while rest.len() >= HEAD {
        // SAFETY: control data that the kernel has just written to where the program wants it.
        let head = unsafe { UserPtr::<[i32; 4]>::new(rest.address()) }.read()?;
        let len = u64::from(head[0].cast_unsigned());
        if len < HEAD || len > rest.len() {
            break;
        }
        if (head[2], head[3]) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let places = (HEAD..len).step_by(size_of::<i32>());
            // SAFETY: as above.
            found.extend(places.map(|at| unsafe { UserPtr::new(rest.address() + at) }));
        }
        rest = rest.after(len.next_multiple_of(8));
    }
    Ok(found)
}
