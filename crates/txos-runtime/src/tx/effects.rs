//! Effects on the outside: output to pipes, FIFOs, terminals and sockets is held until the commit.
//!
//! A write is copied into a queue and answered as if it was done. After the commit the queue is sent, in the order
//! of the program's calls; an abort drops it. A reader outside never sees output of a transaction that did not
//! commit, and output of one that is begun again is not doubled.
//!
//! | output | what happens |
//! |---|---|
//! | to an end that somebody outside may read | held |
//! | to a pipe or a pair of sockets that the transaction has made | flows at once ([`Reach::Inside`]) |
//! | to the process itself, which has other threads or does not wait; of a transaction of several threads or processes | live: another one may be waiting for it already |
//! | to standard error | live: it says why a program ends |
//!
//! All of that is held unless the program asks for something else ([`asked`]). What can't be held is live, after what is held;
//! only a program that has asked for it strictly has its write fail instead.
//!
//! A program with an end that does not wait (`O_NONBLOCK`) is one that goes on with something else while there is no
//! room. So for such an end no more is held than it surely takes at the commit: what does not fit is live, after what is
//! held ([`Tx::may_lack_room`]). A program that has asked for it strictly is not told of room, and its commits wait. By a counter
//! that does not wait an event loop is woken: unless that is asked for strictly it is live.
//!
//! # When the transaction waits for an answer
//!
//! A program that has written a request and waits for the answer would wait for ever. So what is held is *released*
//! before the transaction waits for something from outside: sent before the commit, with one warning. With
//! `TX_STRICT` the transaction is aborted instead. What was released can't be dropped: a later abort names it, and
//! the transaction does not begin again by itself.
//!
//! A release does not wait for who reads it while the transaction can go on: two that write to each other would wait
//! for each other. What there is no room for goes out by and by, as the program reads and waits. If something has to be
//! sent at once for one end, it goes past those that have no room ([`Tx::finish_end`]).
//!
//! An end has seen the beginning of what is being released. So an abort sends the rest of that, and drops what follows
//! ([`Effects::finish`]).
//!
//! # When the commit waits for a reader
//!
//! The files are committed by then, so nothing is undone. A commit waits for a socket as long as that takes something now and
//! then, and gives up after [`HELD_WAIT`] of nothing. What is lost is reported. A connection of which something is lost is shut
//! down ([`End::break_off`]): the other end must not take what follows for what came next. A wait before the commit loses nothing:
//! what has no room then stays held.
#![allow(unsafe_code)] // calls with timeouts and buffers of ours

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use txos_engine::object::{FileId, FileKind};

use super::files::File;
use super::io::{buffers, uses_offset, what_is_there};
use super::kernel::{self, Errno, OwnedFd, Scratch, Sys};
use super::pipes::Pipes;
use super::sockets::{self, Header};
use super::{Tx, flags, say, shared};
use crate::call::{Call, giving_way, while_waiting};
use crate::user::{Readable, UserSlice, length_of};

/// So much is held in memory, bytes. What follows lies in a file.
const MEMORY_MAX: usize = 1 << 20;
/// So much is held in all, bytes, unless `TXOS_HELD_MAX` says otherwise.
const HELD_MAX: u64 = 1 << 30;
/// Up to so many bytes a pipe takes as a whole: `PIPE_BUF`.
const PIPE_BUF: u64 = 4096;
/// What a terminal is given at once, bytes: more might wait for it where signals can't end the wait.
const TERMINAL_PIECE: usize = 512;
/// So much a terminal surely takes that takes something, bytes.
const TERMINAL_ROOM: u64 = 2048;
/// What is moved at once from a file to what is held, bytes.
const MOVED_AT_ONCE: u64 = 256 << 10;
/// After so many looks in a row that found nothing, a program that never waits is taken to be waiting.
pub(super) const LOOKS_MAX: u32 = 100;
/// When a transaction has slept so long, or waited at futexes, it is taken to be waiting.
pub(super) const SLEEP: Duration = Duration::from_millis(100);
/// How often a signal that ends the process is looked for while there is no room.
const LOOK: Duration = Duration::from_millis(50);
/// What waits for something else as well looks after it so often.
const TURN: Duration = Duration::from_millis(10);
/// People are told of a wait that is longer.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// An end that has taken nothing for so long does not keep what is released from others any more.
const STUCK: Duration = Duration::from_millis(100);
/// A commit waits for so long for a socket that takes nothing, unless `TXOS_HELD_WAIT` says otherwise.
const HELD_WAIT: Duration = Duration::from_secs(60);
/// Why output is released.
const WAITING: &str = "the transaction waits for something from outside";
/// What an abort names if something was released.
const RELEASED: &str = "output that was sent before the end";
/// Flags of `send(2)` that are kept until the message is sent.
const KEPT_FLAGS: i32 =
    libc::MSG_NOSIGNAL | libc::MSG_OOB | libc::MSG_EOR | libc::MSG_CONFIRM | libc::MSG_DONTROUTE;
/// Those that mean nothing for what is held.
const IDLE_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_MORE;

/// What output to an open file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// Both ends are the transaction's.
    Inside,
    /// It is done at once, and stays.
    Live,
    /// It is held, for the end with this index.
    Held(usize),
}

/// How an end takes what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A pipe or a FIFO: up to [`PIPE_BUF`] bytes at once stay together.
    Pipe,
    /// A pipe with `O_DIRECT`: each write is a packet.
    Packets,
    Terminal,
    /// A socket without borders between messages.
    Stream,
    /// A socket that keeps messages apart.
    Messages,
    /// A counter of `eventfd(2)`: what is written is added.
    Counter,
}

/// Something outside that output is held for.
#[derive(Debug)]
struct End {
    /// A duplicate: the program's own number may be closed by another thread. It is kept until the program has no number
    /// for the end any more and nothing is held for it: who reads there reads until it is closed.
    fd: Option<OwnedFd>,
    /// What it is.
    id: FileId,
    kind: Kind,
    /// The program's number when it was first written to, for messages.
    number: i32,
    /// The socket is connected.
    connected: bool,
    unix: bool,
    /// It has no connection: one message that is lost leaves the others as they are.
    datagrams: bool,
    /// Of a full queue of messages at the other end, which others fill as well, nothing tells beforehand.
    crowded: bool,
    /// Its sending side is to be shut down.
    shut: bool,
    /// Why nothing more is sent there.
    failed: Option<Errno>,
    /// So many bytes were not sent.
    unsent: u64,
    /// So many were sent before the commit.
    released: u64,
    /// Something was, if only an empty message.
    went: bool,
    /// The kernel can't say whether a write there would wait.
    waits: bool,
    /// The program has sent there with `MSG_DONTWAIT`: it asks whether there is room.
    at_once: bool,
    /// Something of it was lost, and so nothing follows.
    broken: bool,
    /// The last that was sent is a part of a datagram, and more follow.
    in_parts: bool,
    /// Why a part of a datagram was lost: the parts that follow are none.
    lost_part: Option<Errno>,
    /// Since when a release has found no room there.
    stuck_since: Option<Instant>,
}

#[derive(Debug)]
enum What {
    /// Bytes of a stream, or a message without more.
    Bytes,
    /// A message with flags and an address.
    Message(Box<Message>),
    /// `shutdown(2)`.
    ShutDown(i32),
}

#[derive(Debug, Default)]
struct Message {
    flags: i32,
    to: Vec<u8>,
    /// Descriptors that are handed over with its first byte.
    rights: Vec<OwnedFd>,
    /// They have been.
    handed: std::cell::Cell<bool>,
}

impl Message {
    /// The control data with which it is sent.
    fn control(&self) -> Vec<u8> {
        /// `struct cmsghdr`: the length with this, level and type.
        const HEAD: usize = 16;
        if self.rights.is_empty() || self.handed.get() {
            return Vec::new();
        }
        let len = HEAD + self.rights.len() * size_of::<i32>();
        let mut control = (len as u64).to_ne_bytes().to_vec();
        let numbers = self.rights.iter().map(OwnedFd::number);
        for word in [libc::SOL_SOCKET, libc::SCM_RIGHTS].into_iter().chain(numbers) {
            control.extend_from_slice(&word.to_ne_bytes());
        }
        control.resize(len.next_multiple_of(8), 0);
        control
    }
}

/// One thing that is held.
#[derive(Debug)]
struct Effect {
    end: usize,
    what: What,
    /// Where its bytes begin, in memory or in the file.
    from: u64,
    len: u64,
    in_file: bool,
    /// So many signals were held before it.
    after: u64,
    /// It is sent, or lost.
    over: bool,
}

impl Effect {
    /// Whether more of the same datagram follows.
    fn is_part(&self) -> bool {
        matches!(&self.what, What::Message(message) if message.flags & libc::MSG_MORE != 0)
    }
}

/// How what is held is sent.
#[derive(Default)]
struct Sending<'a> {
    /// What waits for room; without it, sending ends where there is none.
    wait: Option<Wait>,
    /// What waited in vain is lost. Otherwise it stays held.
    loses: bool,
    /// Only what is for this end, past what is for others.
    only: Option<FileId>,
    /// Sends the signals with a lower number than that. Without it, this is before the commit.
    signals: Option<&'a mut dyn FnMut(u64)>,
}

/// What is held.
#[derive(Debug, Default)]
pub struct Effects {
    queue: Vec<Effect>,
    ends: Vec<End>,
    memory: Vec<u8>,
    file: Option<OwnedFd>,
    /// Bytes in the file.
    filed: u64,
    /// So many of the first in the queue are being released.
    going: usize,
    /// How many signals were held, up to now.
    pub signals: u64,
    /// Something was sent before the commit.
    pub went_out: bool,
    /// Looks in a row that found nothing.
    looks: u32,
    /// How long the transaction has slept since something was sent.
    slept: Duration,
    /// A child of this process may have its table of descriptors.
    shares_table: bool,
    /// Bytes that are held for calls.
    for_calls: u64,
}

impl Effects {
    /// Whether something is held.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether there are duplicates of ends.
    fn has_ends(&self) -> bool {
        self.ends.iter().any(|end| end.fd.is_some())
    }

    /// What was sent before the commit, in words; empty if that is nothing.
    fn released(&self) -> String {
        let words = |(at, end): (usize, &End)| {
            // The rest of what is being released is sent by the abort.
            let going =
                || self.queue.iter().take(self.going).filter(move |effect| effect.end == at);
            let rest: u64 = going().map(|effect| effect.len).sum();
            let goes = end.went || going().next().is_some();
            goes.then(|| end.words(end.released + rest))
        };
        self.ends.iter().enumerate().filter_map(words).collect::<Vec<_>>().join(", ")
    }

    /// Copies bytes into the queue.
    fn hold(&mut self, end: usize, pieces: &[Readable], what: What) -> Sys<u64> {
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.check_room(len)?;
        let in_file = self.file.is_some() || self.memory.len() as u64 + len > MEMORY_MAX as u64;
        let from = match in_file {
            true => self.keep_in_file(pieces)?,
            false => {
                let from = self.memory.len();
                self.memory.try_reserve(len as usize).map_err(|_| Errno::NOMEM)?;
                self.memory.resize(from + len as usize, 0);
                let mut at = from;
                for piece in pieces {
                    piece.copy(0, &mut self.memory[at..at + piece.len()]);
                    at += piece.len();
                }
                from as u64
            }
        };
        self.queue_up(end, what, from, len, in_file);
        Ok(len)
    }

    /// Whether so many more bytes may be held. What is kept of each message counts as well.
    fn check_room(&self, len: u64) -> Sys<()> {
        let each = size_of::<Effect>() + size_of::<Message>();
        let kept = self.memory.len() as u64 + self.filed + (self.queue.len() * each) as u64;
        let kept = kept.saturating_add(self.for_calls);
        if kept.saturating_add(len) > held_max() { Err(Errno::NOBUFS) } else { Ok(()) }
    }

    /// A look has found something.
    pub fn found_something(&mut self) {
        self.looks = 0;
    }

    /// Whether so many more bytes may be held.
    #[must_use]
    pub fn has_room_for(&self, len: u64) -> bool {
        self.check_room(len).is_ok()
    }

    /// Something was sent: waits in vain are counted anew.
    pub fn forget_waits(&mut self) {
        self.looks = 0;
        self.slept = Duration::ZERO;
    }

    /// So many bytes are held for a call.
    ///
    /// # Errors
    /// ENOBUFS.
    pub fn keep_for_calls(&mut self, len: u64) -> Sys<()> {
        self.check_room(len)?;
        self.for_calls += len;
        Ok(())
    }

    /// What is held for an end, by whatever descriptor.
    fn queue_of(&self, end: usize) -> impl Iterator<Item = &Effect> {
        let id = self.ends.get(end).map(|end| end.id);
        let is_it = move |at: usize| self.ends.get(at).map(|end| end.id) == id;
        self.queue.iter().filter(move |effect| is_it(effect.end))
    }

    /// So much room is needed for what is held for an end.
    fn size_for(&self, end: usize) -> u64 {
        /// What the kernel needs for a message besides its bytes.
        const EACH: u64 = 1024;
        let size = |effect: &Effect| match self.ends.get(end).map(|end| end.kind) {
            // What is written at once takes so many pages at most.
            Some(Kind::Pipe | Kind::Packets) => effect.len.next_multiple_of(PIPE_BUF),
            _ => effect.len + EACH,
        };
        self.queue_of(end).map(size).sum()
    }

    /// So much room there is at an end.
    fn room_of(&self, end: usize) -> u64 {
        let Some(end) = self.ends.get(end) else { return 0 };
        let room = match end.kind {
            Kind::Pipe | Kind::Packets => kernel::room_left_in_pipe(end.fd()),
            // More than that not every terminal takes at once.
            Kind::Terminal => Ok(TERMINAL_ROOM),
            Kind::Stream | Kind::Messages => kernel::room_left_in_socket(end.fd()),
            Kind::Counter => Ok(0),
        };
        room.unwrap_or(0)
    }

    fn queue_up(&mut self, end: usize, what: What, from: u64, len: u64, in_file: bool) {
        let held = self.queue.len() > self.going;
        if let (Some(last), Some(there)) = (self.queue.last_mut(), self.ends.get(end)) {
            let alike = match (&last.what, &what) {
                (What::Bytes, What::Bytes) => true,
                (What::Message(one), What::Message(other)) => {
                    let is_plain = |message: &Message| {
                        message.flags == libc::MSG_NOSIGNAL && message.rights.is_empty()
                    };
                    is_plain(one) && is_plain(other)
                }
                _ => false,
            };
            let together = match there.kind {
                Kind::Pipe => last.len + len <= PIPE_BUF,
                Kind::Terminal | Kind::Stream => true,
                Kind::Packets | Kind::Messages | Kind::Counter => false,
            };
            let follows = last.after == self.signals
                && last.in_file == in_file
                && last.from + last.len == from;
            if alike && together && follows && held && last.end == end {
                last.len += len;
                return;
            }
        }
        self.queue.push(Effect { end, what, from, len, in_file, after: self.signals, over: false });
    }

    fn keep_in_file(&mut self, pieces: &[Readable]) -> Sys<u64> {
        let from = self.filed;
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        // The kernel would send SIGXFSZ for a write of the library's.
        if from + len > kernel::most_in_a_file() {
            return Err(Errno::FBIG);
        }
        let fd = match &self.file {
            Some(file) => file.number(),
            None => self.file.insert(new_file()?).number(),
        };
        for piece in pieces {
            if let Err(errno) = kernel::pwrite_all(fd, &piece.to_vec(), self.filed) {
                self.filed = from;
                return Err(errno);
            }
            self.filed += piece.len() as u64;
        }
        Ok(from)
    }

    /// After the commit: sends all that is held, in order. `signals` sends those with a lower number than that.
    /// What could not be sent, in words.
    pub fn send(&mut self, signals: &mut dyn FnMut(u64) -> Vec<String>) -> Vec<String> {
        self.going = self.queue.len();
        let mut failed = Vec::new();
        let mut before = |number| failed.extend(signals(number));
        let unsent = self.send_those(Sending {
            wait: Some(Wait::default()),
            loses: true,
            signals: Some(&mut before),
            ..Sending::default()
        });
        let unsent = unsent.into_iter();
        failed.extend(unsent.map(|words| format!("the transaction has committed, but {words}")));
        failed
    }

    /// Sends, in order, what there is room for of all that is held: it is released.
    fn release(&mut self) -> Vec<String> {
        self.going = self.queue.len();
        self.go_on()
    }

    /// Goes on with a release.
    fn go_on(&mut self) -> Vec<String> {
        if self.going == 0 { Vec::new() } else { self.send_those(Sending::default()) }
    }

    /// Nothing more is held. The rest of what is being released is sent, and a connection that does not take it ends there;
    /// what follows is dropped. What could not be sent, in words.
    pub fn finish(&mut self) -> Vec<String> {
        self.queue.truncate(self.going);
        self.send_those(Sending {
            wait: Some(Wait { bounded: true, ..Wait::default() }),
            loses: true,
            ..Sending::default()
        })
    }

    /// How far a release has come: how many effects and bytes are left.
    fn left(&self) -> (usize, u64) {
        (self.going, self.queue.iter().take(self.going).map(|effect| effect.len).sum())
    }

    /// What a release waits for: the first end without room.
    fn stuck(&self) -> Option<i32> {
        let first = self.queue.first().filter(|_| self.going > 0)?;
        self.ends.get(first.end).map(|end| end.fd())
    }

    /// Sends what is to go, the first in the queue.
    fn send_those(&mut self, mut how: Sending<'_>) -> Vec<String> {
        let before_commit = how.signals.is_none();
        let mut done = 0;
        let mut passed: Vec<FileId> = Vec::new();
        for effect in self.queue.iter_mut().take(self.going) {
            if let Some(signals) = &mut how.signals {
                signals(effect.after);
            }
            let end = self.ends.get_mut(effect.end);
            let is_it = |end: &&mut End| {
                how.only.is_none_or(|only| only == end.id) && !passed.contains(&end.id)
            };
            let Some(end) = end.filter(is_it) else { continue };
            done += 1;
            effect.over = true;
            let is_part = effect.is_part();
            let alone = end.kind == Kind::Messages;
            let is_over = |errno| !alone || matches!(errno, Errno::INTR | Errno::TIME);
            let lost = end.lost_part.or(end.failed.filter(|&errno| is_over(errno)));
            if let Some(errno) = lost {
                end.failed = Some(errno);
                end.unsent += effect.len;
                end.lost_part = end.lost_part.filter(|_| is_part);
                continue;
            }
            let sent = match effect.in_file {
                false => {
                    let from = effect.from as usize;
                    let bytes = self.memory.get(from..from + effect.len as usize);
                    end.send(&effect.what, bytes.unwrap_or_default(), how.wait.as_mut())
                }
                true => end.send_from_file(effect, self.file.as_ref(), how.wait.as_mut()),
            };
            let unsent = sent.err().map_or(0, |(_, unsent)| unsent);
            if sent.is_ok() || unsent < effect.len {
                end.stuck_since = None;
            }
            if before_commit {
                end.released += effect.len - unsent;
                end.went |= sent.is_ok() || unsent < effect.len;
            }
            match sent {
                Err((errno, _)) if how.stays(errno) => {
                    effect.from += effect.len - unsent;
                    effect.len = unsent;
                    effect.over = false;
                    done -= 1;
                    let since = *end.stuck_since.get_or_insert_with(Instant::now);
                    if how.wait.is_none() && since.elapsed() < STUCK {
                        break;
                    }
                    passed.push(end.id);
                }
                Err((errno, _)) => {
                    end.failed = Some(errno);
                    end.unsent += unsent;
                    end.lost_part = (alone && is_part).then_some(errno);
                    end.in_parts = false;
                    end.break_off(errno);
                }
                Ok(()) => end.in_parts = is_part,
            }
        }
        if done > 0 {
            self.queue.retain(|effect| !effect.over);
            self.going -= done;
        }
        if self.queue.is_empty() {
            self.memory = Vec::new();
            self.file = None;
            self.filed = 0;
        }
        self.ends.iter_mut().filter_map(End::take_failure).collect()
    }
}

impl Sending<'_> {
    /// Whether what could not be sent for this reason stays held.
    fn stays(&self, errno: Errno) -> bool {
        self.wait.is_none() && kernel::has_no_room(errno)
            || !self.loses && matches!(errno, Errno::TIME | Errno::INTR)
    }
}

/// Where `poll` and its relatives have their timeout, whether that is a pointer, and how long it is; `None`: they
/// wait for ever.
pub(super) fn waits(call: &Call) -> Sys<(usize, bool, Option<Duration>)> {
    let (at, nanoseconds) = match call.number() {
        libc::SYS_poll => (2, None),
        libc::SYS_ppoll => (2, Some(1)),
        libc::SYS_select => (4, Some(1000)),
        libc::SYS_pselect6 => (4, Some(1)),
        libc::SYS_epoll_pwait2 => (3, Some(1)),
        _ => (3, None),
    };
    let time = match nanoseconds {
        None => u64::try_from(call.int(at)).ok().map(Duration::from_millis),
        Some(each) => {
            let time = call.pointer::<[u64; 2]>(at);
            let told = if time.is_null() { None } else { Some(time.read()?) };
            told.map(|[seconds, rest]| {
                Duration::from_secs(seconds)
                    .saturating_add(Duration::from_nanos(rest.saturating_mul(each)))
            })
        }
    };
    Ok((at, nanoseconds.is_some(), time))
}

/// Makes a wait of which some time has passed: so much is left.
fn answer_within(call: &Call, at: usize, is_pointer: bool, left: Duration) -> Sys<u64> {
    if !is_pointer {
        let left = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: it is a number.
        return unsafe { call.with_word(at, left as u64) }.answer_waiting();
    }
    let selects = call.number() == libc::SYS_select;
    let rest = if selects { left.subsec_micros() } else { left.subsec_nanos() };
    let mut time = [left.as_secs(), u64::from(rest)];
    // SAFETY: the structure lives until the answer.
    let answer = unsafe { call.with_word(at, time.as_mut_ptr() as u64) }.answer_waiting();
    if call.number() != libc::SYS_epoll_pwait2 {
        // What is left the kernel tells if it can, and else says nothing.
        let _ = call.pointer::<[u64; 2]>(at).write(time);
    }
    answer
}

/// Whether so many bytes have arrived, or as many as there will be.
fn has_arrived(socket: i32, wanted: u64) -> bool {
    wanted <= 1 && kernel::is_ready(socket, libc::POLLIN)
        || wanted > 1
            && (kernel::arrived(socket).is_ok_and(|bytes| bytes >= wanted)
                || kernel::is_ready(socket, libc::POLLRDHUP))
}

/// A wait without the signal mask of its own: a handler that it lets in would run in the middle of the library, and what
/// it does would not be the transaction's.
fn under_own_mask(call: &Call) -> Call {
    let at = match call.number() {
        libc::SYS_ppoll => 3,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
        libc::SYS_pselect6 => 5,
        _ => return *call,
    };
    // SAFETY: no mask is one.
    unsafe { call.with_word(at, 0) }
}

/// Whether a call takes something from the socket that is its first argument, and may wait for it.
pub fn takes(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_accept
            | libc::SYS_accept4
    )
}

/// Whether writing so many bytes may wait for room: to a pipe or a socket, if its descriptor waits.
///
/// # Errors
/// As `fstat(2)`.
pub(super) fn may_wait_for_room(real: i32, len: u64) -> Sys<bool> {
    let takes = match kernel::look_fd(real)?.kind() {
        FileKind::Fifo => kernel::room_in_pipe(real),
        FileKind::Socket => kernel::room_in_socket(real),
        _ => return Ok(false),
    };
    let waits = kernel::status_flags(real)? & libc::O_NONBLOCK == 0;
    // Who reads it empties it.
    let fits = len <= PIPE_BUF && kernel::is_ready(real, libc::POLLOUT)
        || takes.is_ok_and(|room| len <= room);
    Ok(waits && !fits)
}

/// A file without a name in the store; in memory where there can't be one.
fn new_file() -> Sys<OwnedFd> {
    use std::os::unix::ffi::OsStrExt;
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    let fd = match shared::home() {
        Ok(home) => {
            let dir = home.dir().as_os_str().as_bytes();
            kernel::as_owner(|| kernel::open(dir, flags, 0o600))
        }
        Err(_) => Err(Errno::IO),
    };
    let fd = fd.or_else(|_| kernel::memory_file(c"txos held output"))?;
    OwnedFd::of(fd).raised()
}

/// What of the program's output is to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// What goes to sockets. What can't be held is live.
    Sockets,
    /// What goes to any end. What can't be held is live.
    All,
    /// The same, but that a write which can't be held fails.
    Strictly,
}

/// What `TXOS_HOLD_OUTPUT` says at the first output in a transaction; without it, all.
fn asked() -> Asked {
    static ASKED: std::sync::OnceLock<Asked> = std::sync::OnceLock::new();
    *ASKED.get_or_init(|| {
        let value = std::env::var_os("TXOS_HOLD_OUTPUT");
        let value = value.as_ref().map_or(&b""[..], |value| value.as_encoded_bytes());
        meant(value).unwrap_or_else(|| {
            say("TXOS_HOLD_OUTPUT is none of 0, none, sockets, all and 1: all output is held, as without it");
            Asked::All
        })
    })
}

/// What a value of the variable means.
fn meant(value: &[u8]) -> Option<Asked> {
    match value {
        b"" | b"all" => Some(Asked::All),
        b"1" => Some(Asked::Strictly),
        b"sockets" => Some(Asked::Sockets),
        b"0" | b"none" => Some(Asked::Nothing),
        _ => None,
    }
}

/// Whether a write that can't be held is to fail, and nothing may be sent instead.
pub fn is_strict() -> bool {
    asked() == Asked::Strictly
}

/// Whether any of the program's output is to be held.
fn is_asked_for() -> bool {
    asked() != Asked::Nothing
}

fn held_max() -> u64 {
    held_max_told().unwrap_or(HELD_MAX)
}

/// What `TXOS_HELD_MAX` says.
fn held_max_told() -> Option<u64> {
    static MAX: std::sync::OnceLock<Option<u64>> = std::sync::OnceLock::new();
    *MAX.get_or_init(|| std::env::var("TXOS_HELD_MAX").ok().and_then(|text| text.parse().ok()))
}

/// How long a commit waits for a socket that takes nothing.
fn held_wait() -> Duration {
    static WAIT: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
    *WAIT.get_or_init(|| {
        let told = std::env::var("TXOS_HELD_WAIT").ok();
        told.and_then(|text| text.parse().ok()).map_or(HELD_WAIT, Duration::from_secs)
    })
}

/// A wait for room, of which people are told once.
#[derive(Debug, Default)]
struct Wait {
    begun: Option<Instant>,
    /// The end that is waited for, and since when it has taken nothing.
    since: Option<(FileId, Instant)>,
    said: bool,
    /// It is not for ever, whatever it is for. For a socket it never is.
    bounded: bool,
    /// A call of the program's waits for it, and no longer than that would.
    for_call: bool,
}

impl Wait {
    /// Waits until an end takes something. `again`: it has said that it does, and did not.
    ///
    /// # Errors
    /// ETIME: nothing was taken for as long as may be waited. EINTR: a signal ends the process.
    fn for_room(&mut self, end: &End, again: bool) -> Sys<()> {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        // Each end has its own time.
        let same = self.since.filter(|(id, _)| *id == end.id);
        let (_, since) = *self.since.insert(same.unwrap_or_else(|| (end.id, Instant::now())));
        let limit = end.limit(self.for_call).or(self.bounded.then(held_wait));
        if again {
            // There is room, and not enough for this message.
            std::thread::sleep(Duration::from_millis(1));
        }
        loop {
            let takes = match giving_way(|| kernel::events(end.fd(), libc::POLLOUT, LOOK)) {
                Ok(0) | Err(Errno::INTR) => false,
                Ok(_) => true,
                Err(errno) => return Err(errno),
            };
            if is_to_end() {
                if self.for_call {
                    // Nothing is committed: it ends the process, as it does in other waits.
                    while_waiting(|| {});
                }
                return Err(Errno::INTR);
            }
            if takes && !again {
                return Ok(());
            }
            if limit.is_some_and(|limit| since.elapsed() >= limit) {
                self.since = None;
                return Err(Errno::TIME);
            }
            if !self.said && begun.elapsed() >= TELL_AFTER {
                self.said = true;
                let number = end.number;
                say(&format!(
                    "output that was held is waiting for the reader of descriptor {number}"
                ));
            }
            if takes {
                return Ok(());
            }
        }
    }

    /// Something was taken.
    fn goes_on(&mut self) {
        self.since = None;
    }
}

/// What a `struct timeval` of a socket says; `None`: no limit.
fn time_of([seconds, micros]: [i64; 2]) -> Option<Duration> {
    let told = u64::try_from(seconds).ok().zip(u64::try_from(micros).ok());
    let (seconds, micros) = told.filter(|told| *told != (0, 0))?;
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
}

/// Whether a signal that ends the process has arrived.
#[cfg(target_arch = "x86_64")]
pub fn is_to_end() -> bool {
    crate::front::signals::ending_pending().is_some()
}

/// The same where there are no transactions.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_to_end() -> bool {
    false
}

impl End {
    /// The duplicate's number; none after it was let go.
    fn fd(&self) -> i32 {
        self.fd.as_ref().map_or(-1, OwnedFd::number)
    }

    /// Sends one thing. On failure: why, and how much was not sent.
    fn send(
        &mut self,
        what: &What,
        bytes: &[u8],
        mut wait: Option<&mut Wait>,
    ) -> Result<(), (Errno, u64)> {
        let none = Message::default();
        let message = match what {
            What::ShutDown(how) => {
                return match kernel::shut_down(self.fd(), *how) {
                    // The other end was first.
                    Err(Errno::NOTCONN) => Ok(()),
                    done => done.map_err(|errno| (errno, 0)),
                };
            }
            What::Message(message) => message,
            What::Bytes => &none,
        };
        let mut rest = bytes;
        let (mut again, mut asked) = (false, false);
        loop {
            match self.send_some(rest, message) {
                Ok(n) => {
                    rest = rest.get(n..).unwrap_or_default();
                    again = false;
                    if let Some(wait) = wait.as_deref_mut() {
                        wait.goes_on();
                    }
                }
                Err(Errno::INTR) => continue,
                Err(errno) if kernel::has_no_room(errno) => {
                    let waited = match wait.as_deref_mut() {
                        Some(wait) => wait.for_room(self, again),
                        None => Err(errno),
                    };
                    waited.map_err(|errno| (errno, rest.len() as u64))?;
                    again = true;
                }
                Err(Errno::OPNOTSUPP) if !self.waits && !self.is_socket() => {
                    self.waits = true;
                    continue;
                }
                // It may be told of what was sent before. (The parts before this one the kernel has forgotten then.)
                Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH)
                    if self.datagrams && !self.in_parts && !asked =>
                {
                    asked = true;
                    continue;
                }
                Err(errno) => return Err((errno, rest.len() as u64)),
            }
            if rest.is_empty() && !again {
                return Ok(());
            }
        }
    }

    fn is_socket(&self) -> bool {
        matches!(self.kind, Kind::Stream | Kind::Messages)
    }

    /// How long is waited in vain for a socket, and for an end that does not wait: for a call of the program's no longer than
    /// that would wait.
    fn limit(&self, for_call: bool) -> Option<Duration> {
        if !self.is_socket() {
            // What waits natively waits for as long as its reader likes.
            return (asked() == Asked::All && self.never_waits()).then(held_wait);
        }
        let own = if for_call { self.own_limit() } else { None };
        Some(own.map_or(held_wait(), |own| own.min(held_wait())))
    }

    /// Whether its descriptor does not wait.
    fn never_waits(&self) -> bool {
        kernel::status_flags(self.fd()).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
    }

    /// How long its own calls wait for room (`SO_SNDTIMEO`); `None`: for ever.
    fn own_limit(&self) -> Option<Duration> {
        kernel::send_limit(self.fd()).ok().and_then(time_of)
    }

    /// Something of it was lost: what follows must not look as if it came next. The other end reads the end of the connection, and
    /// the program is told that it has ended (EPIPE).
    fn break_off(&mut self, errno: Errno) {
        if self.kind == Kind::Stream || errno == Errno::TIME && !self.datagrams && self.is_socket()
        {
            self.broken = true;
            let _ = kernel::shut_down(self.fd(), libc::SHUT_WR);
        }
    }

    /// Whether a program that writes there waits for room, as far as is known.
    fn waits_for_room(&self) -> bool {
        !self.at_once
            && kernel::status_flags(self.fd()).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0)
            && (!self.is_socket() || self.own_limit().is_none())
    }

    /// A message of so many bytes is too long, whatever the room. (Of another family's address the kernel says so at the commit.)
    fn is_too_long(&self, len: u64) -> bool {
        /// What UDP can send by IPv4, and by IPv6.
        const UDP: u64 = 65_507;
        const UDP6: u64 = 65_527;
        /// What the kernel keeps free of a buffer.
        const KEPT: u64 = 32;
        /// No socket has a smaller buffer for what it sends (`SOCK_MIN_SNDBUF`).
        const ALWAYS: u64 = 4096;
        if self.kind != Kind::Messages || len <= ALWAYS {
            return false;
        }
        match kernel::socket_kind(self.fd()) {
            Ok((libc::AF_UNIX, _)) => kernel::send_buffer(self.fd())
                .is_ok_and(|room| len > u64::try_from(room).unwrap_or(0).saturating_sub(KEPT)),
            Ok((libc::AF_INET, libc::SOCK_DGRAM)) => len > UDP,
            Ok((libc::AF_INET6, libc::SOCK_DGRAM)) => len > UDP6,
            _ => false,
        }
    }

    /// Sends as much as there is room for.
    fn send_some(&self, bytes: &[u8], message: &Message) -> Sys<usize> {
        let fd = self.fd();
        if self.is_socket() {
            let control = message.control();
            let sent = kernel::send_now(fd, bytes, message.flags, &message.to, &control)?;
            message.handed.set(true);
            return Ok(sent);
        }
        let piece = match self.kind {
            Kind::Terminal => TERMINAL_PIECE,
            _ if self.waits => PIPE_BUF as usize,
            _ => return kernel::write_now(fd, bytes),
        };
        // It takes a piece without waiting if it takes anything.
        match kernel::events(fd, libc::POLLOUT, Duration::ZERO)? {
            0 => Err(Errno::AGAIN),
            _ => kernel::write(fd, bytes.get(..piece).unwrap_or(bytes)),
        }
    }

    /// The same of bytes in the file. A message is sent as a whole.
    fn send_from_file(
        &mut self,
        effect: &Effect,
        file: Option<&OwnedFd>,
        mut wait: Option<&mut Wait>,
    ) -> Result<(), (Errno, u64)> {
        let most = match self.kind {
            Kind::Messages | Kind::Packets | Kind::Counter => effect.len,
            _ => effect.len.min(64 << 10),
        };
        let mut buffer = vec![0; most as usize];
        let mut at = 0;
        loop {
            let rest = effect.len - at;
            let piece = &mut buffer[..rest.min(most) as usize];
            let read = match file {
                Some(file) => kernel::pread(file.number(), piece, effect.from + at),
                None => Err(Errno::IO),
            };
            if read != Ok(piece.len()) {
                return Err((read.err().unwrap_or(Errno::IO), rest));
            }
            let after = rest - piece.len() as u64;
            let sent = self.send(&effect.what, piece, wait.as_deref_mut());
            sent.map_err(|(errno, unsent)| (errno, unsent + after))?;
            at = effect.len - after;
            if after == 0 {
                return Ok(());
            }
        }
    }

    /// What could not be sent, in words.
    fn take_failure(&mut self) -> Option<String> {
        let errno = self.failed.take()?;
        let unsent = std::mem::take(&mut self.unsent);
        let words = self.words(unsent);
        Some(match errno {
            Errno::INTR => format!("{words} were not sent: a signal ended the wait for the reader"),
            Errno::TIME => format!(
                "{words} were not sent: the reader took nothing for as long as is waited for it (TXOS_HELD_WAIT)"
            ),
            _ => format!("{words} could not be sent: {}", std::io::Error::from(errno)),
        })
    }

    /// So many bytes for this end, in words.
    fn words(&self, bytes: u64) -> String {
        let what = match self.kind {
            Kind::Pipe | Kind::Packets => "pipe",
            Kind::Terminal => "terminal",
            Kind::Counter => "counter",
            Kind::Stream | Kind::Messages => "socket",
        };
        let s = if bytes == 1 { "" } else { "s" };
        format!("{bytes} byte{s} for a {what} (descriptor {})", self.number)
    }

    /// Whether nothing can be sent any more: the kernel says so at once, and so it is asked.
    fn is_gone(&self) -> bool {
        let gone = match self.kind {
            Kind::Pipe | Kind::Packets => libc::POLLERR,
            Kind::Terminal => libc::POLLERR | libc::POLLHUP,
            Kind::Stream | Kind::Messages => libc::POLLHUP,
            Kind::Counter => 0,
        };
        self.broken
            || kernel::events(self.fd(), libc::POLLOUT, Duration::ZERO)
                .is_ok_and(|events| events & gone != 0)
    }
}

/// How a release goes on while the transaction waits for something else.
#[derive(Debug)]
struct Pace {
    began: Instant,
    /// When something was sent for the last time.
    sent: Instant,
}

impl Default for Pace {
    fn default() -> Pace {
        let now = Instant::now();
        Pace { began: now, sent: now }
    }
}

impl Pace {
    /// It was tried once more.
    fn turn(&mut self, went_on: bool) {
        if went_on {
            self.sent = Instant::now();
        } else {
            // An end may say that it has room, and have none for this.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Nothing was taken for as long as a commit would wait: the rest stays held, and the program goes on.
    fn is_over(&self) -> bool {
        self.sent.elapsed() >= held_wait()
    }
}

impl Tx {
    /// What output to an open file is.
    fn reach(&mut self, number: i32, file: File, real: i32) -> Sys<Reach> {
        if number == libc::STDERR_FILENO {
            return Ok(Reach::Live);
        }
        let open = self.fds.get(file);
        let (known, made) = (open.reach, open.node);
        if known != Reach::Unknown {
            return Ok(known);
        }
        let made = made.is_some_and(|id| self.tree.nodes[id].stable.is_none());
        let reach = match self.find_reach(file, number, real, made) {
            // No number is left for a duplicate, of which the program knows nothing. One that has all output held is to know.
            Err(errno @ (Errno::MFILE | Errno::NFILE)) if asked() == Asked::Strictly => {
                if self.report.is_first("no descriptor to hold output by") {
                    say(
                        "no descriptor is left to hold output by, so a write fails with EMFILE or ENFILE, and nothing of it is sent",
                    );
                }
                return Err(errno);
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::INVAL) => {
                if self.report.is_first("no descriptor to hold output by") {
                    say(
                        "no descriptor is left to hold output by, so it is sent at once, and stays",
                    );
                }
                return Ok(Reach::Live);
            }
            found => found?,
        };
        self.fds.get_mut(file).reach = reach;
        Ok(reach)
    }

    fn find_reach(&mut self, file: File, number: i32, real: i32, made: bool) -> Sys<Reach> {
        // Other processes of a transaction write by themselves, and what they write must not overtake this. And
        // another thread of it may be waiting for this already.
        if self.is_of_several() {
            return Ok(Reach::Live);
        }
        let runtime = self.how.flags & flags::MANAGED != 0;
        let has_others = || runtime || !kernel::has_one_thread();
        let never_waits = || kernel::status_flags(real).is_ok_and(|f| f & libc::O_NONBLOCK != 0);
        let (mut connected, mut unix, mut datagrams, mut crowded) = (false, false, false, false);
        let stat = kernel::look_fd(real)?;
        let kind = match stat.kind() {
            FileKind::Fifo if made => return Ok(Reach::Inside),
            kind if kind != FileKind::Socket && asked() == Asked::Sockets => {
                return Ok(Reach::Live);
            }
            // What has no type of file: eventfd, epoll, timerfd and others.
            _ if stat.mode & libc::S_IFMT == 0 => {
                let wakes = || has_others() || asked() == Asked::All && never_waits();
                if kernel::path_of_fd(real)? != b"anon_inode:[eventfd]" || wakes() {
                    return Ok(Reach::Live);
                }
                Kind::Counter
            }
            // Its capacity may count for the program, and nobody else would read it at the commit.
            FileKind::Fifo if (has_others() || never_waits()) && kernel::is_own_pipe(real) => {
                return Ok(Reach::Live);
            }
            FileKind::Fifo if kernel::status_flags(real)? & libc::O_DIRECT != 0 => Kind::Packets,
            FileKind::Fifo => Kind::Pipe,
            FileKind::CharDevice if kernel::is_terminal(real) => Kind::Terminal,
            FileKind::Socket => {
                let (domain, kind) = kernel::socket_kind(real)?;
                let own = domain == libc::AF_UNIX
                    && has_others()
                    && kernel::peer_process(real) == std::process::id();
                if own || !matches!(domain, libc::AF_UNIX | libc::AF_INET | libc::AF_INET6) {
                    return Ok(Reach::Live);
                }
                connected = kernel::socket_address(real, kernel::Side::Peer).is_ok();
                unix = domain == libc::AF_UNIX;
                if unix && connected && self.logs_by(file, real) {
                    return Ok(Reach::Live);
                }
                datagrams = kind == libc::SOCK_DGRAM;
                // Two that were made as a pair have each other only.
                crowded = unix && datagrams && kernel::peer_process(real) == 0;
                match kind {
                    libc::SOCK_STREAM => Kind::Stream,
                    libc::SOCK_DGRAM | libc::SOCK_SEQPACKET => Kind::Messages,
                    _ => return Ok(Reach::Live),
                }
            }
            _ => return Ok(Reach::Live),
        };
        let fd = kernel::copy_high(real).map_err(|errno| match errno {
            // No number may be as high as is asked for.
            Errno::INVAL => Errno::MFILE,
            errno => errno,
        });
        let fd = OwnedFd::of(fd?);
        self.held.output.ends.push(End {
            fd: Some(fd),
            id: stat.id,
            kind,
            number,
            connected,
            unix,
            datagrams,
            crowded,
            shut: false,
            failed: None,
            unsent: 0,
            released: 0,
            went: false,
            waits: false,
            at_once: false,
            broken: false,
            in_parts: false,
            lost_part: None,
            stuck_since: None,
        });
        Ok(Reach::Held(self.held.output.ends.len() - 1))
    }

    /// The end that output to a descriptor is held for. `None`: the kernel answers the call.
    fn end_for(&mut self, number: i32, has_address: bool) -> Sys<Option<usize>> {
        if !is_asked_for() {
            return Ok(None);
        }
        let file = self.file(number)?;
        if !self.fds.get(file).writes() {
            return Ok(None);
        }
        let real = self.real(number)?;
        let Reach::Held(at) = self.reach(number, file, real)? else { return Ok(None) };
        let Some(end) = self.held.output.ends.get_mut(at) else { return Ok(None) };
        if end.is_socket() && !end.connected && !has_address {
            end.connected = kernel::socket_address(real, kernel::Side::Peer).is_ok();
            if !end.connected {
                return Ok(None);
            }
        }
        Ok(Some(at))
    }

    /// Whether output to a descriptor stays within the transaction.
    pub fn is_inside(&mut self, number: i32) -> bool {
        if !is_asked_for() {
            return false;
        }
        let Ok(file) = self.file(number) else { return false };
        let Ok(real) = self.real(number) else { return false };
        matches!(self.reach(number, file, real), Ok(Reach::Inside))
    }

    /// Holds a write to a pipe, a terminal or a socket. `None`: the kernel answers it.
    ///
    /// # Errors
    /// EFAULT; ENOSPC if too much is held; EPIPE.
    #[inline]
    pub fn hold_write(&mut self, call: &Call) -> Sys<Option<u64>> {
        if is_asked_for() { self.hold_asked_write(call) } else { Ok(None) }
    }

    fn hold_asked_write(&mut self, call: &Call) -> Sys<Option<u64>> {
        let special = call.number() == libc::SYS_pwritev2 && call.word(5) != 0;
        if special || !uses_offset(call) {
            if special {
                self.before_live(call.int(0))?;
            }
            return Ok(None);
        }
        let Some(end) = self.end_for(call.int(0), false)? else { return Ok(None) };
        let bytes = match self.held.output.ends.get(end).map(|end| end.kind) {
            Some(Kind::Counter) => {
                let number = call.pointer::<u64>(1);
                // What the kernel would not add it is to say itself.
                if call.number() != libc::SYS_write
                    || call.word(2) < 8
                    || number.read()? == u64::MAX
                {
                    return Ok(None);
                }
                vec![call.buffer(1, 8)]
            }
            _ => buffers(call)?,
        };
        let len = length_of(&bytes);
        if len == 0 && call.number() != libc::SYS_write {
            // The kernel makes no message of no bytes in several pieces.
            return Ok(Some(0));
        }
        if self.held.output.ends.get(end).is_some_and(|end| end.is_too_long(len)) {
            return Err(Errno::MSGSIZE);
        }
        if self.may_lack_room(end, len, false)? {
            return Ok(None);
        }
        self.hold_bytes(Some(call), end, bytes, What::Bytes)
    }

    /// Whether an end that is not to wait, by its flags or for this call (`at_once`), may lack room for so much more at the
    /// commit. Then what is held is sent, and the kernel is to answer the call. Not if that is asked for strictly.
    ///
    /// # Errors
    /// EAGAIN if it has no room for what is held; as [`Tx::release`].
    fn may_lack_room(&mut self, end: usize, len: u64, at_once: bool) -> Sys<bool> {
        if asked() == Asked::Strictly {
            return Ok(false);
        }
        let there = self.held.output.ends.get_mut(end).ok_or(Errno::IO)?;
        there.at_once |= at_once;
        // (How sending fails where the other end is gone, the kernel says.) A counter takes numbers, which add up.
        if there.kind == Kind::Counter || there.shut {
            return Ok(false);
        }
        let (fd, crowded, connected) = (there.fd(), there.crowded, there.connected);
        let never_waits = at_once || kernel::status_flags(fd)? & libc::O_NONBLOCK != 0;
        // One that does not wait for ever tells the program what it has not taken.
        if !never_waits && (!there.is_socket() || there.own_limit().is_none()) || there.is_gone() {
            return Ok(false);
        }
        let why = match there.is_socket() {
            true => "a socket that does not wait for ever may have no room",
            false => "a descriptor that does not wait may have no room",
        };
        let held = self.held.output.size_for(end);
        // In a queue that others fill as well there is room for one message if there is any.
        let takes = kernel::is_ready(fd, libc::POLLOUT)
            && (!crowded || connected && self.held.output.queue_of(end).next().is_none());
        if takes && held.saturating_add(len) <= self.held.output.room_of(end) {
            return Ok(false);
        }
        self.release_because(why)?;
        self.finish_end(end, !never_waits)?;
        Ok(true)
    }

    /// Sends the rest of what is released for an end, past others that have no room. `waits` for room.
    ///
    /// # Errors
    /// EAGAIN: there is no room for all of it, and the rest is held.
    fn finish_end(&mut self, end: usize, waits: bool) -> Sys<()> {
        let only = self.held.output.ends.get(end).map(|end| end.id);
        let wait = waits.then(|| Wait { for_call: true, ..Wait::default() });
        self.send_on(Sending { wait, only, ..Sending::default() });
        if self.held.output.queue_of(end).next().is_some() { Err(Errno::AGAIN) } else { Ok(()) }
    }

    /// Goes on with a release, and says what could not be sent.
    fn send_on(&mut self, how: Sending<'_>) {
        if self.held.output.going > 0 {
            self.held.output.send_those(how).iter().for_each(|words| say(words));
            self.talks_where_released();
        }
    }

    /// Whether what can't be held for an end is sent at once: unless the program asks for something else. How much may be held it
    /// can ask for (`TXOS_HELD_MAX`).
    fn is_live_beyond(&self, errno: Errno) -> bool {
        let too_much = errno == Errno::NOBUFS && held_max_told().is_some();
        asked() != Asked::Strictly && !too_much
    }

    /// No more can be held for an end: what is held is sent.
    ///
    /// # Errors
    /// EAGAIN: there is no room for it; as [`Tx::release`].
    fn release_for_more(&mut self, end: usize) -> Sys<()> {
        self.release_because("no more output can be held")?;
        let waits = self.held.output.ends.get(end).is_some_and(End::waits_for_room);
        self.finish_end(end, waits)
    }

    /// `call` is made by the kernel if nothing can be sent there any more; without one that is EPIPE. `None`: it can't be held,
    /// and is to be sent at once.
    fn hold_bytes(
        &mut self,
        call: Option<&Call>,
        end: usize,
        bytes: Vec<UserSlice>,
        what: What,
    ) -> Sys<Option<u64>> {
        let there = self.held.output.ends.get(end).ok_or(Errno::IO)?;
        if there.shut {
            return Err(Errno::PIPE);
        }
        if there.is_gone() {
            // How it fails, the kernel says.
            let call = call.ok_or(Errno::PIPE)?;
            return call.with_descriptor(0, there.fd()).answer().map(Some);
        }
        let empty = there.kind != Kind::Messages;
        let pieces = what_is_there(bytes)?;
        if empty && pieces.iter().all(|piece| piece.is_empty()) {
            return Ok(Some(0));
        }
        match self.held.output.hold(end, &pieces, what) {
            Err(errno) if self.is_live_beyond(errno) => {
                self.release_for_more(end)?;
                Ok(None)
            }
            held => self.no_more(held).map(Some),
        }
    }

    /// Whether so much can be held for an end. If not, and nothing is wrong, it is to be sent at once.
    fn room_for(&mut self, end: usize, len: u64) -> Sys<bool> {
        let there = self.held.output.ends.get(end).ok_or(Errno::IO)?;
        if there.shut || there.is_gone() {
            return Err(Errno::PIPE);
        }
        match self.held.output.check_room(len) {
            Err(errno) if self.is_live_beyond(errno) => {
                self.release_for_more(end)?;
                Ok(self.held.output.has_room_for(len))
            }
            room => self.no_more(room.map(|()| 0)).map(|_| true),
        }
    }

    /// Sends at once what was read for an end, and can't be given back: how much.
    fn send_at_once(&mut self, end: usize, bytes: &[u8]) -> Sys<u64> {
        let there = self.held.output.ends.get_mut(end).ok_or(Errno::IO)?;
        let mut wait = Wait { for_call: true, ..Wait::default() };
        let sent = there.send(&What::Bytes, bytes, Some(&mut wait));
        let done = bytes.len() as u64 - sent.err().map_or(0, |(_, unsent)| unsent);
        there.released += done;
        there.went |= done > 0;
        self.held.output.went_out |= done > 0;
        match sent {
            Err((Errno::TIME, _)) if done == 0 => Err(Errno::AGAIN),
            Err((errno, _)) if done == 0 => Err(errno),
            _ => Ok(done),
        }
    }

    /// Says once that no more is held.
    fn no_more(&mut self, held: Sys<u64>) -> Sys<u64> {
        self.held.output.looks = 0;
        if held != Err(Errno::NOBUFS) {
            return held;
        }
        if self.report.is_first("held output") {
            say(&format!(
                "a transaction holds no more than {} bytes of output (TXOS_HELD_MAX), so a write fails with ENOSPC",
                held_max()
            ));
        }
        Err(Errno::NOSPC)
    }

    /// `sendto`, `sendmsg`, `sendmmsg` and `shutdown`, whose addresses are no paths. `None`: the kernel answers it.
    ///
    /// # Errors
    /// As the call, and as [`Tx::hold_write`].
    pub fn hold_message(&mut self, call: &Call) -> Sys<Option<u64>> {
        if !is_asked_for() {
            return Ok(None);
        }
        match call.number() {
            libc::SYS_sendto => {
                let to = call.buffer(4, u64::from(call.uint(5)));
                let bytes = call.buffer(1, call.word(2).min(crate::user::MOVED_MAX));
                self.hold_one(call, vec![bytes], call.int(3), to, Vec::new())
            }
            libc::SYS_sendmsg => {
                let Ok(header) = Header::read(call.pointer(1)) else {
                    // What is held is not sent for a call that fails.
                    let end = self.end_for(call.int(0), true)?;
                    return end.map_or(Ok(None), |_| Err(Errno::FAULT));
                };
                let Some(rights) = self.rights_of(call.int(0), &header)? else { return Ok(None) };
                self.hold_one(call, header.buffers()?, call.int(2), header.address(), rights)
            }
            libc::SYS_sendmmsg => self.hold_several(call),
            libc::SYS_shutdown => {
                let Some(end) = self.end_for(call.int(0), false)? else { return Ok(None) };
                let how = call.int(1);
                let there = self.held.output.ends.get_mut(end).ok_or(Errno::IO)?;
                if !there.is_socket() {
                    return Ok(None);
                }
                if !(0..=2).contains(&how) {
                    return Err(Errno::INVAL);
                }
                there.shut |= how != libc::SHUT_RD;
                self.held.output.queue_up(end, What::ShutDown(how), 0, 0, false);
                Ok(Some(0))
            }
            _ => Ok(None),
        }
    }

    /// The descriptors that a message hands over, as duplicates that are kept until it is sent. `None`: it has other control
    /// data, or the kernel is to say what is wrong.
    fn rights_of(&mut self, number: i32, header: &Header) -> Sys<Option<Vec<OwnedFd>>> {
        /// `struct cmsghdr`, before its data; each begins at a multiple of a word.
        const HEAD: usize = 16;
        /// `SCM_MAX_FD`.
        const MOST: usize = 253;
        if header.control().is_empty() {
            return Ok(Some(Vec::new()));
        }
        // What is live is made so as ever.
        let Some(end) = self.end_for(number, header.address().address() != 0)? else {
            return Ok(None);
        };
        let control = header.control().first(1 << 20).read()?;
        let word = |at: usize| {
            let bytes = control.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, i32::from_ne_bytes)
        };
        let is_unix = self.held.output.ends.get(end).is_some_and(|end| {
            kernel::socket_kind(end.fd()).is_ok_and(|(domain, _)| domain == libc::AF_UNIX)
        });
        let mut numbers = Vec::new();
        let mut at = 0;
        while at + HEAD <= control.len() {
            let len = word(at) as usize;
            let are_rights = (word(at + 8), word(at + 12)) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            if len < HEAD || len > control.len() - at || !are_rights || !is_unix {
                return Ok(None);
            }
            numbers.extend((at + HEAD..at + len - 3).step_by(4).map(word));
            at += len.next_multiple_of(8);
        }
        if numbers.len() > MOST {
            return Ok(None);
        }
        let mut rights = Vec::new();
        for number in numbers {
            let file = self.file(number)?;
            if self.fds.get(file).node.is_some() {
                // Who gets it would see what is not committed.
                return self.unsupported_errno("handing a versioned file to others").map(|_| None);
            }
            self.take_pipe_of(number)?;
            let real = self.real(number)?;
            // Without a number for it the message is live.
            let Ok(kept) = kernel::copy_high(real) else { return Ok(None) };
            rights.push(OwnedFd::of(kept));
        }
        Ok(Some(rights))
    }

    fn hold_one(
        &mut self,
        call: &Call,
        bytes: Vec<UserSlice>,
        send_flags: i32,
        to: UserSlice,
        rights: Vec<OwnedFd>,
    ) -> Sys<Option<u64>> {
        if send_flags & !(KEPT_FLAGS | IDLE_FLAGS) != 0 || sockets::is_path(to) {
            return Ok(None);
        }
        let has_address = to.address() != 0 && !to.is_empty();
        let Some(end) = self.end_for(call.int(0), has_address)? else { return Ok(None) };
        let there = self.held.output.ends.get(end).ok_or(Errno::IO)?;
        if !there.is_socket() {
            return Ok(None);
        }
        let keeps_apart = there.kind == Kind::Messages;
        if keeps_apart && there.unix && send_flags & libc::MSG_OOB != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // What it thinks of urgent messages, the kernel says.
        if keeps_apart && send_flags & libc::MSG_OOB != 0 {
            return Ok(None);
        }
        // A message of UDP may come in parts, which the kernel puts together.
        let kept_flags = if keeps_apart { KEPT_FLAGS | libc::MSG_MORE } else { KEPT_FLAGS };
        if has_address && !keeps_apart && there.unix {
            return Err(if there.connected { Errno::ISCONN } else { Errno::OPNOTSUPP });
        }
        let len = length_of(&bytes);
        if there.is_too_long(len) {
            return Err(Errno::MSGSIZE);
        }
        if self.may_lack_room(end, len, send_flags & libc::MSG_DONTWAIT != 0)? {
            return Ok(None);
        }
        // A connected stream takes no notice of an address.
        let to = match has_address && keeps_apart {
            true if to.len() > 128 => return Ok(None),
            true => to.read()?,
            false => Vec::new(),
        };
        let what = match send_flags & kept_flags {
            0 if to.is_empty() && rights.is_empty() => What::Bytes,
            flags => What::Message(Box::new(Message { flags, to, rights, handed: false.into() })),
        };
        self.hold_bytes(Some(call), end, bytes, what)
    }

    fn hold_several(&mut self, call: &Call) -> Sys<Option<u64>> {
        /// Where the length of what was sent is, after the header.
        const LENGTH_AT: usize = 56;
        let messages = call.pointer::<[u64; 8]>(1);
        let count = call.word(2).min(1024);
        let mut done = 0;
        while done < count {
            let at = messages.item(done);
            let header = Header::read(at.part(0)).ok();
            let rights = match &header {
                Some(header) => self.rights_of(call.int(0), header),
                None => Ok(None),
            };
            let (header, rights) = match (header, rights) {
                (Some(header), Ok(Some(rights))) => (header, rights),
                _ if done > 0 => break,
                (_, Err(errno)) => return Err(errno),
                _ => return Ok(None),
            };
            // SAFETY: it is the program's own header, as its call for one message would have it.
            let one = unsafe {
                let words = [call.word(0), at.address(), call.word(3), 0, 0, 0];
                Call::new(libc::SYS_sendmsg, words)
            };
            let sent = header.buffers().and_then(|bytes| {
                self.hold_one(&one, bytes, call.int(3), header.address(), rights)
            });
            match sent {
                Ok(Some(n)) => at.part::<u32>(LENGTH_AT).write(n as u32)?,
                Ok(None) if done == 0 => return Ok(None),
                Err(errno) if done == 0 => return Err(errno),
                _ => break,
            }
            done += 1;
        }
        Ok((count > 0).then_some(done))
    }

    /// `splice`, `sendfile` and `vmsplice` to an end that output is held for: what they would move is copied.
    /// `None`: the kernel moves it.
    ///
    /// # Errors
    /// As the call.
    pub fn hold_moved(&mut self, call: &Call) -> Sys<Option<u64>> {
        let number = call.number();
        if number == libc::SYS_vmsplice {
            let Some(end) = self.end_for(call.int(0), false)? else { return Ok(None) };
            let kind = self.held.output.ends.get(end).map(|end| end.kind);
            if !matches!(kind, Some(Kind::Pipe | Kind::Packets)) {
                // The kernel says that it is no pipe.
                return self.on_descriptor(call).map(Some);
            }
            let bytes = call.pointer::<[u64; 2]>(1).buffers(call.word(2))?;
            if self.may_lack_room(end, length_of(&bytes), false)? {
                return Ok(None);
            }
            return self.hold_bytes(None, end, bytes, What::Bytes);
        }
        let (from, to, offset, count) = match number {
            libc::SYS_sendfile => (1, 0, call.pointer::<u64>(2), call.word(3)),
            libc::SYS_splice if call.word(3) == 0 => (0, 2, call.pointer(1), call.word(4)),
            _ => return Ok(None),
        };
        let Some(end) = self.end_for(call.int(to), false)? else { return Ok(None) };
        self.take_pipe_of(call.int(from))?;
        let source = self.file(call.int(from))?;
        if !self.fds.get(source).reads() {
            return Err(Errno::BADF);
        }
        if self.held.output.ends.get(end).is_some_and(End::is_gone) {
            return Ok(None); // How it fails, the kernel says.
        }
        let at_once = call.word(5) & u64::from(libc::SPLICE_F_NONBLOCK) != 0;
        if number == libc::SYS_splice && at_once {
            let source = self.real(call.int(from))?;
            if !kernel::is_ready(source, libc::POLLIN) {
                return Err(Errno::AGAIN);
            }
        }
        if self.may_lack_room(end, count, false)? {
            return Ok(None);
        }
        let mut at = if offset.is_null() { None } else { Some(offset.read()?) };
        let mut buffer = vec![0_u8; count.min(MOVED_AT_ONCE) as usize];
        let mut done = 0;
        while done < count {
            let most = (count - done).min(MOVED_AT_ONCE);
            // What was read can't be given back.
            match self.room_for(end, most) {
                Ok(true) => {}
                Ok(false) if done == 0 => return Ok(None),
                Err(errno) if done == 0 => return Err(errno),
                _ => break,
            }
            let (number, place) = match at {
                Some(at) => (libc::SYS_pread64, at),
                None => (libc::SYS_read, 0),
            };
            let words = [call.word(from), buffer.as_mut_ptr() as u64, most, place, 0, 0];
            // SAFETY: the buffer has that much room, and nobody refers to it until the answer.
            let read = unsafe { Call::new(number, words) };
            let moved = match self.read(&read) {
                Ok(0) => break,
                Ok(n) => {
                    let there = read.buffer(1, n);
                    match self.hold_bytes(None, end, vec![there], What::Bytes) {
                        Ok(Some(_)) => Ok(n),
                        Ok(None) => {
                            self.send_at_once(end, buffer.get(..n as usize).unwrap_or_default())
                        }
                        Err(errno) => Err(errno),
                    }
                }
                Err(errno) => Err(errno),
            };
            match moved {
                Ok(n) => {
                    done += n;
                    at = at.map(|at| at + n);
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            if number == libc::SYS_read && most > 0 && call.number() == libc::SYS_splice {
                break; // More may have to be waited for.
            }
        }
        if let Some(at) = at {
            offset.write(at)?;
        }
        Ok(Some(done))
    }

    /// `tee` to an end that output is held for: what the kernel would copy there is copied to memory. `None`: the kernel answers
    /// the call. `from` is the kernel's number of the first pipe.
    ///
    /// # Errors
    /// As the call, and as [`Tx::hold_write`].
    pub fn hold_teed(&mut self, call: &Call, from: i32) -> Sys<Option<u64>> {
        let Some(end) = self.end_for(call.int(1), false)? else { return Ok(None) };
        let source = kernel::look_fd(from)?;
        let there = self.held.output.ends.get(end).ok_or(Errno::IO)?;
        // How it fails to another file or to the same pipe, and where nobody reads any more, the kernel says.
        if !matches!(there.kind, Kind::Pipe | Kind::Packets)
            || source.kind() != FileKind::Fifo
            || there.id == source.id
            || there.is_gone()
            || call.word(2) == 0
        {
            return Ok(None);
        }
        let most = kernel::arrived(from).unwrap_or(u64::MAX).min(call.word(2));
        if self.may_lack_room(end, most, false)? {
            return Ok(None);
        }
        self.before_taking_past_looks(call.int(0))?;
        self.before_taking(call, from)?;
        let scratch = Scratch::that_waits()?;
        let copied = call.with_descriptor(0, from).with_descriptor(1, scratch.input());
        let count = copied.answer_waiting()?;
        let mut buffer = vec![0_u8; usize::try_from(count).map_err(|_| Errno::NOMEM)?];
        let mut done = 0;
        while done < count {
            let n = scratch.next(&mut buffer)? as u64;
            if n == 0 {
                break;
            }
            // SAFETY: the buffer has these bytes, and nobody refers to it until they are copied.
            let there = unsafe { UserSlice::new(buffer.as_mut_ptr() as u64, n) };
            match self.hold_bytes(None, end, vec![there], What::Bytes) {
                Ok(Some(_)) => done += n,
                // The pipe still has what is not held.
                Ok(None) | Err(_) if done > 0 => break,
                Ok(None) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Some(done))
    }

    /// Sends what is held, before the commit: the transaction waits for something from outside.
    ///
    /// # Errors
    /// With TX_STRICT the transaction is doomed.
    pub fn release(&mut self) -> Sys<()> {
        self.no_longer_keeps_waiting()?;
        self.go_on_to_the_end();
        self.let_ends_go();
        Ok(())
    }

    /// Before a call that is none of the transaction's, and waits until `over`.
    pub fn release_until(&mut self, call: &Call, mut over: impl FnMut() -> bool) {
        self.report.calling = call.number();
        // Under TX_STRICT the transaction is doomed then.
        let _ = self.take_pipes();
        let _ = self.release_memory();
        let _ = self.release_because(WAITING);
        // Operations on semaphores are tried first.
        if !matches!(call.number(), libc::SYS_semop | libc::SYS_semtimedop) {
            let _ = self.release_ipc();
        }
        let mut pace = Pace::default();
        while let Some(end) = self.held.output.stuck() {
            let _ = giving_way(|| kernel::events(end, libc::POLLOUT, TURN));
            if over() || is_to_end() || pace.is_over() {
                break;
            }
            self.go_on_at(&mut pace);
        }
        self.let_ends_go();
    }

    /// Goes on with a release while something else is waited for.
    fn go_on_at(&mut self, pace: &mut Pace) {
        let before = self.held.output.left();
        self.go_on();
        pace.turn(self.held.output.left() != before);
    }

    /// Before the kernel is asked what goes on at many descriptors: what the program has closed must not be among them, though
    /// it is kept until what is held for it is sent.
    ///
    /// # Errors
    /// As [`Tx::release`].
    pub fn close_held_ends(&mut self) -> Sys<()> {
        if !self.held.output.has_ends() {
            return Ok(());
        }
        self.let_ends_go();
        let is_closed = |at: &usize| {
            self.held.output.ends.get(*at).is_some_and(|end| end.fd.is_some())
                && !self.is_open_end(*at)
        };
        let closed: Vec<usize> = (0..self.held.output.ends.len()).filter(is_closed).collect();
        if closed.is_empty() {
            return Ok(());
        }
        self.release_because("a descriptor that epoll may know is closed")?;
        for at in closed {
            // As the write would have waited for its reader.
            let _ = self.finish_end(at, true);
        }
        self.let_ends_go();
        Ok(())
    }

    /// Whether the program has a number for an end.
    fn is_open_end(&self, at: usize) -> bool {
        (0..self.fds.count()).any(|file| {
            let open = self.fds.get(file);
            open.reach == Reach::Held(at) && !(open.numbers.is_empty() && open.before.is_empty())
        })
    }

    /// Closes the ends for which the program has no number any more, and for which nothing is held.
    fn let_ends_go(&mut self) {
        for at in 0..self.held.output.ends.len() {
            let output = &self.held.output;
            let is_there = output.ends.get(at).is_some_and(|end| end.fd.is_some());
            let is_kept = is_there
                && (output.queue.iter().any(|effect| effect.end == at) || self.is_open_end(at));
            if !is_kept && let Some(end) = self.held.output.ends.get_mut(at) {
                end.fd = None;
            }
        }
    }

    /// Whether something that was released waits for room.
    #[must_use]
    pub fn has_more_to_send(&self) -> bool {
        self.held.output.stuck().is_some()
    }

    /// Sends what was released, as far as there is room.
    pub fn go_on(&mut self) {
        self.send_on(Sending::default());
    }

    /// The rest of what is released, as soon as there is room for it. What waits in vain stays held.
    fn go_on_to_the_end(&mut self) {
        self.send_on(Sending { wait: Some(Wait::default()), ..Sending::default() });
    }

    /// Other threads enter: from here on nothing is held.
    pub fn release_before_members(&mut self) {
        // Under TX_STRICT the transaction is doomed then.
        let _ = self.release_because("other threads enter the transaction");
        let _ = self.release_ipc();
        self.held.output.finish().iter().for_each(|words| say(words));
        self.talks_where_released();
        self.take_received();
        for file in 0..self.fds.count() {
            if let Reach::Held(_) = self.fds.get(file).reach {
                self.fds.get_mut(file).reach = Reach::Live;
            }
        }
    }

    /// Output that can't be held follows: what is held for the same end goes before it.
    ///
    /// # Errors
    /// EAGAIN: what is held has no room, and is waited for no longer than the socket waits; as [`Tx::release`].
    pub fn before_live(&mut self, number: i32) -> Sys<()> {
        if !self.held.output.any() {
            return Ok(());
        }
        let Some(at) = self.end_for(number, true)? else { return Ok(()) };
        if self.held.output.queue_of(at).next().is_some() {
            self.release_because("what follows it can't be held")?;
            let waits = self.held.output.ends.get(at).is_some_and(|end| {
                let flags = kernel::status_flags(end.fd());
                !end.is_socket() || flags.is_ok_and(|flags| flags & libc::O_NONBLOCK == 0)
            });
            self.finish_end(at, waits)?;
        }
        Ok(())
    }

    /// Before an option of a socket is set by which messages are sent: where to, from where, in which form. (A stream's bytes arrive
    /// whatever it is.)
    ///
    /// # Errors
    /// As [`Tx::before_live`].
    pub fn before_option(&mut self, number: i32) -> Sys<()> {
        let output = &self.held.output;
        let keeps_apart = |end: &End| end.kind == Kind::Messages;
        if !output.queue.iter().any(|effect| output.ends.get(effect.end).is_some_and(keeps_apart)) {
            return Ok(());
        }
        match self.known_end(number)? {
            Some(at) if self.held.output.ends.get(at).is_some_and(keeps_apart) => {
                self.before_live(number)
            }
            _ => Ok(()),
        }
    }

    /// Before a child outside is made: what is held for an end that the child has as well is sent, so that what the child
    /// sends there comes after it. It may make any of them the standard output of a program, whatever `FD_CLOEXEC` says.
    pub fn release_before_child(&mut self, number: i64) {
        // Numbers that are added have no order. A program that has asked for it strictly has its pipes held on.
        let has_order = |end: &&End| match end.kind {
            Kind::Stream | Kind::Messages => true,
            Kind::Pipe | Kind::Packets | Kind::Terminal => asked() == Asked::All,
            Kind::Counter => false,
        };
        let is_inherited = |at: &usize| {
            let Some(end) = self.held.output.ends.get(*at).filter(has_order) else {
                return false;
            };
            let is_standard =
                |number: i32| kernel::look_fd(number).is_ok_and(|stat| stat.id == end.id);
            self.held.output.queue_of(*at).next().is_some()
                && (self.is_open_end(*at) || (0..=2).any(is_standard))
        };
        let ends: Vec<usize> = match self.held.output.any() {
            true => (0..self.held.output.ends.len()).filter(is_inherited).collect(),
            false => return,
        };
        self.report.calling = number;
        // Under TX_STRICT no child is made.
        if !ends.is_empty() && self.release_because("a new process may send there").is_ok() {
            for end in ends {
                let _ = self.finish_end(end, true);
            }
        }
    }

    /// So many bytes were sent at once to an end that others are held for: an abort names them, and nothing begins again by
    /// itself.
    pub fn went_live(&mut self, number: i32, bytes: u64) {
        // It does more than to look.
        self.held.output.looks = 0;
        let Ok(Some(at)) = self.end_for(number, true) else { return };
        let output = &mut self.held.output;
        let is_held = |end: &&mut End| end.is_socket() || asked() == Asked::All;
        if let Some(end) = output.ends.get_mut(at).filter(is_held) {
            end.released += bytes;
            end.went = true;
            output.went_out = true;
        }
    }

    /// Before a socket is connected, perhaps to another peer than before.
    ///
    /// # Errors
    /// As [`Tx::release`].
    pub fn before_connecting(&mut self, number: i32) -> Sys<()> {
        self.before_live(number)?;
        if let Ok(Some(at)) = self.known_end(number)
            && let Some(end) = self.held.output.ends.get_mut(at)
        {
            end.connected = false;
        }
        Ok(())
    }

    /// Sends what there is room for, and says so. The rest is for who waits to go on with.
    fn release_because(&mut self, why: &str) -> Sys<()> {
        if !self.held.output.any() {
            return Ok(());
        }
        if self.how.flags & flags::STRICT != 0 {
            return self.unsupported_call("waiting for the outside while output is held", b"");
        }
        let call = txos_calls::name(self.report.calling).unwrap_or("?");
        self.held.output.went_out = true;
        self.talks_by_any_way()?;
        #[cfg(target_arch = "x86_64")]
        crate::front::outside::has_sent();
        self.held.output.looks = 0;
        self.held.output.slept = Duration::ZERO;
        let is_first = self.report.note_live(RELEASED, b"");
        if is_first && self.is_to_be_told() {
            say(&format!(
                "{why} ({call}), so output that was held is sent before the commit, and stays"
            ));
        }
        self.held.output.release().iter().for_each(|words| say(words));
        self.talks_where_released();
        Ok(())
    }

    /// Whether people are told that the first output of this transaction is released. A program may prompt in each of its
    /// transactions: of pipes and terminals they are told once in each process, unless the program has asked for anything.
    fn is_to_be_told(&self) -> bool {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let output = &self.held.output;
        let to_socket = |effect: &Effect| output.ends.get(effect.end).is_some_and(End::is_socket);
        asked() != Asked::All
            || output.queue.iter().any(to_socket)
            || !TOLD.swap(true, Ordering::Relaxed)
    }

    /// What was released may be answered: what is received there is taken from now on.
    fn talks_where_released(&mut self) {
        let ends = self.held.output.ends.iter();
        let sockets = ends.filter(|end| end.is_socket() && end.went).map(|end| end.id);
        let sockets: Vec<FileId> = sockets.collect();
        sockets.into_iter().for_each(|socket| self.talks_on(socket));
        // What is read from a counter may be what was added.
        let has_added = |reach: Reach| match reach {
            Reach::Held(at) => {
                let end = self.held.output.ends.get(at);
                end.is_some_and(|end| end.kind == Kind::Counter && end.went)
            }
            _ => false,
        };
        let all = 0..self.fds.count();
        let counters: Vec<File> = all.filter(|&file| has_added(self.fds.get(file).reach)).collect();
        counters.into_iter().for_each(|file| self.has_written_open_counter(file));
    }

    /// A call that takes something from the outside, and may wait for it: what is held is released before it does.
    ///
    /// # Errors
    /// As [`Tx::release`].
    #[inline]
    pub fn before_taking(&mut self, call: &Call, real: i32) -> Sys<()> {
        match self.keeps_others_waiting() {
            true => self.release_before_taking(call, real),
            false => Ok(()),
        }
    }

    /// Whether somebody outside may be waiting for what the program has done: output that is held, or an end that it
    /// has closed, perhaps, and that is still open.
    #[inline]
    pub fn keeps_others_waiting(&self) -> bool {
        self.held.output.any()
            || self.held.holds_ipc()
            || self.held.holds_memory()
            || self.held.output.has_ends()
            || self.held.input.keeps_writers_waiting()
            || self.fds.has_closed()
    }

    /// Before the transaction waits: what others may be waiting for is done.
    fn no_longer_keeps_waiting(&mut self) -> Sys<()> {
        self.take_pipes()?;
        self.close_ends("closing an end of a pipe before its other side is waited for")?;
        self.release_ipc()?;
        self.release_memory()?;
        self.release_because(WAITING)?;
        self.let_ends_go();
        Ok(())
    }

    #[cold]
    fn release_before_taking(&mut self, call: &Call, real: i32) -> Sys<()> {
        self.go_on();
        let all = |flags: i32, len: u64| if flags & libc::MSG_WAITALL != 0 { len } else { 1 };
        let wanted = match call.number() {
            libc::SYS_recvfrom => all(call.int(3), call.word(2)),
            libc::SYS_recvmsg => all(call.int(2), Header::length(call.pointer(1)).unwrap_or(0)),
            // It waits for all of its messages.
            libc::SYS_recvmmsg if call.int(3) & libc::MSG_WAITFORONE == 0 && call.word(2) > 1 => {
                u64::MAX
            }
            _ => 1,
        };
        if wanted <= 1 && kernel::is_ready(real, libc::POLLIN) {
            self.held.output.looks = 0;
            return Ok(());
        }
        let splice_at_once = libc::SPLICE_F_NONBLOCK as i32;
        let may_not_wait = match call.number() {
            libc::SYS_recvfrom | libc::SYS_recvmmsg => call.int(3) & libc::MSG_DONTWAIT != 0,
            libc::SYS_recvmsg => call.int(2) & libc::MSG_DONTWAIT != 0,
            libc::SYS_splice => call.int(5) & splice_at_once != 0,
            libc::SYS_tee => call.int(3) & splice_at_once != 0,
            _ => false,
        };
        let waits = !may_not_wait && kernel::status_flags(real)? & libc::O_NONBLOCK == 0;
        self.release_before_waiting_for(waits, real, None, wanted)
    }

    /// A read finds nothing, and waits for it or does not. `source` is what of it was looked at before.
    ///
    /// # Errors
    /// EAGAIN after as long as reads of this socket wait (`SO_RCVTIMEO`); as [`Tx::release`].
    pub fn release_before_waiting(
        &mut self,
        waits: bool,
        real: i32,
        source: Option<usize>,
    ) -> Sys<()> {
        self.release_before_waiting_for(waits, real, source, 1)
    }

    /// The same of a read that waits for so many bytes.
    fn release_before_waiting_for(
        &mut self,
        waits: bool,
        real: i32,
        source: Option<usize>,
        wanted: u64,
    ) -> Sys<()> {
        self.go_on();
        // The runtime of a language waits elsewhere.
        let managed = self.how.flags & flags::MANAGED != 0;
        if !(waits || managed || self.holds_for(real) || self.looked_in_vain()) {
            return Ok(());
        }
        self.no_longer_keeps_waiting()?;
        let mut pace = Pace::default();
        let limit = kernel::receive_limit(real).ok().and_then(time_of);
        while waits
            && !pace.is_over()
            && let Some(end) = self.held.output.stuck()
        {
            if limit.is_some_and(|limit| pace.began.elapsed() >= limit) {
                return Err(Errno::AGAIN);
            }
            let arrives = source.map_or(real, |at| self.arrivals(at, real));
            let is_there = |tx: &mut Tx| match source {
                Some(at) => arrives != real && tx.has_more(at),
                None => false,
            };
            if is_there(self) {
                break;
            }
            // What has arrived may be less than what is waited for.
            let (first, turn) = if wanted > 1 { (-1, TURN) } else { (arrives, LOOK) };
            let two = [(first, libc::POLLIN), (end, libc::POLLOUT)];
            let mut two = two.map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
            let _ = giving_way(|| kernel::any_event(&mut two, turn));
            if is_there(self) || arrives == real && has_arrived(real, wanted) {
                break;
            }
            if is_to_end() {
                return Err(Errno::INTR);
            }
            self.go_on_at(&mut pace);
            self.let_ends_go();
        }
        Ok(())
    }

    /// Whether something is held for the socket that a descriptor is of: who looks for something there waits for the answer.
    fn holds_for(&self, real: i32) -> bool {
        let output = &self.held.output;
        if !output.any() {
            return false;
        }
        let Ok(stat) = kernel::look_fd(real) else { return false };
        let is_it = |effect: &Effect| {
            output.ends.get(effect.end).is_some_and(|end| end.is_socket() && end.id == stat.id)
        };
        output.queue.iter().any(is_it)
    }

    /// Before output that is live, of so many bytes: if it may have to wait for room, what is held is sent first. Who reads there
    /// may be waiting for that.
    ///
    /// # Errors
    /// As [`Tx::release`].
    pub fn before_room(&mut self, real: i32, len: u64) -> Sys<()> {
        if !self.holds() {
            return Ok(());
        }
        if may_wait_for_room(real, len)? {
            self.release()?;
        }
        Ok(())
    }

    /// How long the transaction may still sleep, or wait at futexes, before what is held is released; `None`: nothing is held.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.holds().then(|| SLEEP.saturating_sub(self.held.output.slept))
    }

    /// It has slept for so long.
    pub fn has_slept(&mut self, time: Duration) {
        if self.holds() {
            self.held.output.slept += time;
        }
    }

    /// Counts a look that found nothing. Whether there were so many in a row that the program is taken to be waiting.
    pub fn looked_in_vain(&mut self) -> bool {
        self.held.output.looks += 1;
        self.held.output.looks >= LOOKS_MAX
    }

    /// Whether a write to a descriptor is held, and so does not wait. Whether an end that does not wait has room, the kernel
    /// says, but where all output is held strictly.
    pub fn is_writable(&mut self, number: i32) -> bool {
        let end = match asked() {
            Asked::Nothing => return false,
            Asked::Strictly => self.end_for(number, false),
            Asked::Sockets | Asked::All => self.known_end(number),
        };
        let Ok(Some(end)) = end else { return false };
        self.held.output.ends.get(end).is_some_and(|end| {
            !end.shut && !end.is_gone() && (asked() == Asked::Strictly || end.waits_for_room())
        })
    }

    /// The end that something sent on a descriptor was held for.
    fn known_end(&mut self, number: i32) -> Sys<Option<usize>> {
        let file = self.file(number)?;
        Ok(match self.fds.get(file).reach {
            Reach::Held(at) => Some(at),
            _ => None,
        })
    }

    /// Whether some writes may not wait because they are held. Unless that is asked for strictly, it is said of ends that something
    /// was held for, and that wait.
    #[must_use]
    pub fn may_hold(&self) -> bool {
        match asked() {
            Asked::Nothing => false,
            Asked::Sockets | Asked::All => {
                self.held.output.ends.iter().any(|end| end.fd.is_some() && end.waits_for_room())
            }
            Asked::Strictly => true,
        }
    }

    /// Answers `poll` and its relatives, with the kernel's numbers: what is held is released before they wait.
    /// `ready`: something is ready for the transaction already. `restore` is called between two tries.
    ///
    /// # Errors
    /// As the call.
    pub fn answer_wait(&mut self, call: &Call, ready: bool, mut restore: impl FnMut()) -> Sys<u64> {
        let call = &under_own_mask(call);
        if !ready && !self.keeps_others_waiting() {
            return call.answer_waiting();
        }
        self.go_on();
        let (at, is_pointer, within) = waits(call)?;
        let mut none = [0_u64; 2];
        let word = if is_pointer { none.as_mut_ptr() as u64 } else { 0 };
        // SAFETY: the structure lives until the answer. (`select` writes the time that is left: none.)
        let look = unsafe { call.with_word(at, word) };
        let found = look.answer()?;
        if found != 0 || ready {
            return Ok(found);
        }
        let waits = within != Some(Duration::ZERO);
        if !(waits || self.looked_in_vain()) {
            return Ok(0);
        }
        self.no_longer_keeps_waiting()?;
        let mut pace = Pace::default();
        while waits
            && !pace.is_over()
            && let Some(end) = self.held.output.stuck()
        {
            let left = within.map_or(TURN, |within| within.saturating_sub(pace.began.elapsed()));
            let _ = giving_way(|| kernel::events(end, libc::POLLOUT, left.min(TURN)));
            self.go_on_at(&mut pace);
            self.let_ends_go();
            restore();
            let found = look.answer()?;
            if found != 0 || left.is_zero() {
                return Ok(found);
            }
            if is_to_end() {
                return Err(Errno::INTR);
            }
        }
        restore();
        let spent = pace.began.elapsed();
        match within {
            Some(within) if waits && spent > TURN => {
                answer_within(call, at, is_pointer, within.saturating_sub(spent))
            }
            _ => call.answer_waiting(),
        }
    }

    /// `poll` or a relative has found so much for the program. `only_room`: no more than that it may write, though it asks for
    /// more. After so many of those in a row it is taken to be waiting for the rest.
    ///
    /// # Errors
    /// As [`Tx::release`].
    pub fn has_found(&mut self, found: u64, only_room: bool) -> Sys<()> {
        if found > 0 && !only_room {
            self.held.output.looks = 0;
        }
        if found > 0 && only_room && self.keeps_others_waiting() && self.looked_in_vain() {
            self.no_longer_keeps_waiting()?;
        }
        Ok(())
    }

    /// Whether something is held, so that a wait is to be told.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.held.output.any()
            || self.held.holds_memory()
            || self.held.input.keeps_writers_waiting()
    }

    /// Whether something was sent before the commit.
    #[must_use]
    pub fn went_out(&self) -> bool {
        self.held.output.went_out || self.held.input.pipes().is_some_and(Pipes::went_out)
    }

    /// Adds to why it is aborted what was sent before.
    #[must_use]
    pub fn naming_released(&self, mut why: super::Failure) -> super::Failure {
        let sent = [self.held.output.released(), self.held.sent_to_children()];
        let sent = sent.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>();
        let of = [("sent", sent.join(", ")), ("taken", self.held.input.taken())];
        for (done, what) in of.iter().filter(|(_, what)| !what.is_empty()) {
            let words = format!("; {done} before that: {what}");
            why.what.push_str(&words);
            why.before.push_str(&words);
        }
        why
    }

    /// In a child that was copied from the process: what is held is the parent's. Without this the child would keep
    /// the ends open. With a table of descriptors that is the parent's as well nothing is closed.
    pub fn forget_held(&mut self) {
        if !self.held.output.shares_table {
            self.held.output.ends.clear();
            self.held.output.file = None;
            self.held.output.queue.clear();
            self.held.forget_put_back();
        }
        // (Descriptors that are to be handed over are the parent's.)
        std::mem::forget(std::mem::take(&mut self.held.output.queue));
        self.held.input.forget(!self.held.output.shares_table);
    }

    /// Before a child is made: whether it has the table of descriptors in common with this process.
    pub fn child_shares_table(&mut self, shares: bool) {
        self.held.output.shares_table = shares;
    }
}
