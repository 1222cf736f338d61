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
#![allow(unsafe_code)] // calls that look instead of taking

use std::time::{Duration, Instant};

use txos_engine::object::FileId;

use super::effects::is_to_end;
use super::files::{Descriptor, File};
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::sockets::Header;
use super::{Failure, Tx, flags, reason, say};
use crate::call::{Call, while_waiting};
use crate::user::{MOVED_MAX, UserPtr};

/// After so long a wait for more, what a Unix socket has received is taken.
const PATIENCE: Duration = Duration::from_secs(1);
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
/// Why something is taken before the commit.
const FULL: &str = "who sends to a socket may wait for room there";
/// What people are told is taken.
const TAKEN: &str = "what was received from a socket before the end";

/// How the transaction receives from an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiving {
    /// At once: it is no socket, or one of the transaction's own, which an abort closes.
    #[default]
    Own,
    /// It is a socket from before. Nobody has looked.
    Unknown,
    /// At once, though an abort can't give it back.
    AtOnce,
    /// At once: something was sent there before the end, as people were told.
    Answers,
    /// From the source with this index.
    From(usize),
}

/// A socket that is looked at.
#[derive(Debug)]
struct Source {
    socket: FileId,
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
    /// in so many messages.
    count: u64,
    /// An empty message was found by a look that was not the program's: no second look finds it.
    empty_next: bool,
    /// What was looked at is taken, and so is what comes.
    at_once: bool,
    /// So many bytes were taken before the commit.
    taken: u64,
    /// Tells of arrivals.
    watch: Option<OwnedFd>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Received {
    sources: Vec<Source>,
    /// Sockets on which something was sent at once.
    talks: Vec<FileId>,
}

impl Source {
    fn has_looked(&self) -> bool {
        !self.at_once && (self.seen > 0 || self.count > 0)
    }

    /// Whether the number is still that of the socket: another thread may have closed it.
    fn is_there(&self) -> bool {
        kernel::look_fd(self.real).is_ok_and(|stat| stat.id == self.socket)
    }

    /// How many bytes that were looked at somebody else has taken.
    fn lost(&self) -> u64 {
        let offset = kernel::peek_offset(self.real).map_or(0, |at| u64::try_from(at).unwrap_or(0));
        self.seen.saturating_sub(offset)
    }

    /// Takes what was looked at, and looks no more: how many bytes of it somebody else had taken.
    fn take(&mut self) -> u64 {
        self.at_once = true;
        self.watch = None;
        if !self.is_there() {
            return 0;
        }
        let lost = self.lost();
        let mut rest = self.seen - lost;
        self.taken += rest;
        while rest > 0 || (self.messages && self.count > 0 && lost == 0) {
            match kernel::take(self.real, rest) {
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
        (self.seen, self.count) = (0, 0);
        let _ = kernel::set_peek_offset(self.real, -1);
        lost
    }

    /// The same in words, for people.
    fn take_and_tell(&mut self) -> Option<String> {
        let number = self.number;
        let lost = self.take();
        let s = if lost == 1 { "" } else { "s" };
        let words = || {
            format!(
                "{lost} byte{s} that the transaction has received from a socket (descriptor {number}) were taken by somebody else as well"
            )
        };
        (lost > 0).then(words)
    }

    /// Whether a read would find something, or the end.
    fn has_more(&mut self) -> bool {
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
        kernel::arrived(self.real).map_or(true, |n| n > self.seen) || self.has_ended()
    }

    /// Whether nothing more will come, or the socket has failed.
    fn has_ended(&self) -> bool {
        kernel::events(self.real, libc::POLLRDHUP, Duration::ZERO).is_ok_and(|found| found != 0)
    }

    fn look_from_here(&self) {
        let at = i32::try_from(self.seen).unwrap_or(i32::MAX);
        let _ = kernel::set_peek_offset(self.real, at);
    }

    /// What was looked at may be what keeps the other end from sending more.
    fn is_full(&self) -> bool {
        const MOST: u64 = 1 << 30;
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
        let sources = self.sources.iter_mut().filter(|source| !source.at_once);
        let lost = sources.filter_map(Source::take_and_tell);
        lost.map(|words| format!("the transaction has committed, but {words}")).collect()
    }

    /// The transaction is aborted: looks begin at the front again, and do not move on.
    pub fn give_back(&mut self) {
        for source in self.sources.iter().filter(|source| !source.at_once && source.is_there()) {
            let _ = kernel::set_peek_offset(source.real, -1);
        }
        self.sources.clear();
    }

    /// What was taken before the commit, in words; empty if that is nothing.
    #[must_use]
    pub fn taken(&self) -> String {
        let taken = self.sources.iter().filter(|source| source.taken > 0);
        let words = taken.map(|source| {
            let s = if source.taken == 1 { "" } else { "s" };
            format!("{} byte{s} from a socket (descriptor {})", source.taken, source.number)
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// In a child that was copied from the process: it is the parent's. `closes`: it has descriptors of its own.
    pub fn forget(&mut self, closes: bool) {
        if closes {
            self.sources.clear();
        }
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
            libc::SYS_recvmsg => {
                let header = Header::read(call.pointer(1))?;
                (2, header.buffers()?.iter().map(|buffer| buffer.len()).sum())
            }
            _ => {
                let buffers = call.pointer::<[u64; 2]>(1).buffers(call.word(2))?;
                *header = [0, 0, words[1], words[2], 0, 0, 0];
                words[1] = header.as_mut_ptr() as u64;
                (2, buffers.iter().map(|buffer| buffer.len()).sum())
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
            Receiving::Own | Receiving::AtOnce | Receiving::Answers => Ok(None),
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
            Receiving::Unknown | Receiving::AtOnce => false,
        };
        if !is_told {
            return self.the_rest(call);
        }
        self.before_taking(call, real)?;
        call.with_descriptor(0, real).answer_waiting()
    }

    #[cold]
    fn receive_later(&mut self, call: &Call, file: File, real: i32) -> Sys<Option<u64>> {
        let Some(at) = self.source(call.int(0), file, real)? else { return Ok(None) };
        match call.number() {
            libc::SYS_recvmmsg => self.receive_several(call, at),
            // It takes nothing.
            libc::SYS_read if call.word(2) == 0 => Ok(Some(0)),
            _ => self.receive_one(call, at),
        }
    }

    /// The source that an open file is; `None`: what it gives is taken at once.
    fn source(&mut self, number: i32, file: File, real: i32) -> Sys<Option<usize>> {
        if self.fds.get(file).receiving == Receiving::Unknown {
            let found = self.find_source(number, real)?;
            self.fds.get_mut(file).receiving = found;
        }
        let Receiving::From(at) = self.fds.get(file).receiving else { return Ok(None) };
        Ok(self.held.input.sources.get(at).is_some_and(|source| !source.at_once).then_some(at))
    }

    fn find_source(&mut self, number: i32, real: i32) -> Sys<Receiving> {
        const SEVERAL: u32 = flags::COMMAND | flags::PROCESSES | flags::THREADS;
        if self.how.flags & SEVERAL != 0 || self.waits.has_members() {
            return Ok(Receiving::AtOnce);
        }
        let socket = kernel::look_fd(real)?.id;
        let input = &mut self.held.input;
        if let Some(known) = input.sources.iter().position(|source| source.socket == socket) {
            return Ok(Receiving::From(known));
        }
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
        input.sources.push(Source {
            socket,
            real,
            number,
            messages: kind != libc::SOCK_STREAM,
            packets: kind == libc::SOCK_SEQPACKET,
            unix,
            seen: 0,
            count: 0,
            empty_next: false,
            at_once: false,
            taken: 0,
            watch: None,
        });
        Ok(Receiving::From(input.sources.len() - 1))
    }

    /// The source of a descriptor of which something was looked at.
    fn looked_at(&mut self, number: i32) -> Option<usize> {
        let file = self.file(number).ok()?;
        if self.fds.get(file).receiving == Receiving::Unknown {
            // It may be another number of a socket that is known.
            let real = self.real(number).ok()?;
            let socket = kernel::look_fd(real).ok()?.id;
            let known = self.held.input.sources.iter().position(|s| s.socket == socket)?;
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
            let found = match look.at_once() {
                Err(Errno::AGAIN) => match self.wait_for_more(&look, at) {
                    Ok(Some(found)) => Ok(found),
                    // The kernel takes the rest.
                    Ok(None) if done == 0 => return Ok(None),
                    Ok(None) => {
                        return Ok(Some(done + look.that_takes().answer_waiting().unwrap_or(0)));
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
                return look.call.answer_waiting().map(Some);
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
            match look.at_once() {
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
            self.name_descriptors(&Header::read(look.call.pointer(1))?)?;
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

    /// Descriptors that came with a message get their numbers, which an abort closes.
    fn name_descriptors(&mut self, header: &Header) -> Sys<()> {
        for place in descriptors_in(header)? {
            place.write(self.fds.plain(place.read()?)?)?;
        }
        Ok(())
    }

    fn receive_several(&mut self, call: &Call, at: usize) -> Sys<Option<u64>> {
        /// Where the length of what was received is, after the header.
        const LENGTH_AT: usize = 56;
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
            // SAFETY: it is the program's own header, as its call for one message would have it.
            let call = unsafe {
                let words = [call.word(0), item.address(), one as u64, 0, 0, 0];
                Call::new(libc::SYS_recvmsg, words)
            };
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
            source.take();
            return Ok(());
        }
        if self.how.flags & flags::STRICT != 0 {
            return self.unsupported_call("receiving more than can be given back", b"");
        }
        let lost = source.take_and_tell();
        self.held.output.went_out = true;
        let call = txos_calls::name(self.report.calling).unwrap_or("?");
        if self.report.note_live(TAKEN, b"") {
            say(&format!(
                "{why} ({call}), so what the transaction has received there is taken before the commit, and is not given back"
            ));
        }
        lost.iter().for_each(|words| say(words));
        Ok(())
    }

    /// Something is taken from a socket in a way that can't be a look.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn before_taking_past_looks(&mut self, number: i32) -> Sys<()> {
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
        let sources = input.sources.iter_mut().filter(|s| s.socket == socket && !s.at_once);
        let lost: Vec<String> = sources.filter_map(Source::take_and_tell).collect();
        lost.iter().for_each(|words| say(words));
    }

    /// From here on nothing is only looked at: other threads enter.
    pub fn take_received(&mut self) {
        for at in 0..self.held.input.sources.len() {
            // Under TX_STRICT the transaction is doomed then.
            let _ = self.take_now(at, "other threads enter the transaction");
        }
        for file in 0..self.fds.count() {
            let open = self.fds.get_mut(file);
            if open.receiving == Receiving::Unknown {
                open.receiving = Receiving::AtOnce;
            }
        }
    }

    /// A socket is closed before the commit: what was looked at there is taken first.
    pub fn take_before_closing(&mut self, real: i32) {
        let mut sources = self.held.input.sources.iter_mut();
        if let Some(source) = sources.find(|source| source.real == real && !source.at_once) {
            source.take();
        }
    }

    /// Before the commit: somebody else must not have taken what was looked at.
    ///
    /// # Errors
    /// Somebody has: a conflict.
    pub fn check_received(&self) -> Result<(), Failure> {
        let looked = self.held.input.sources.iter().filter(|source| source.has_looked());
        let mut lost = looked.filter(|source| source.is_there() && source.lost() > 0);
        match lost.next() {
            None => Ok(()),
            Some(source) => Err(Failure {
                reason: reason::CONFLICT,
                errno: libc::ECANCELED,
                what: format!(
                    "somebody else has taken what the transaction has received from a socket (descriptor {})",
                    source.number
                ),
                ..Failure::default()
            }),
        }
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
        if !self.held.input.any() {
            return None;
        }
        let at = self.looked_at(number)?;
        let source = self.held.input.sources.get_mut(at)?;
        // Of datagrams the kernel tells the length of the first.
        if !source.messages || source.packets {
            return Some(kernel::arrived(source.real).unwrap_or(0).saturating_sub(source.seen));
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
        let asked = asked.filter(|(_, one)| one.fd >= 0 && one.events & READABLE != 0);
        let asked = asked.map(|(place, one)| (place, one.fd, one.events));
        let found = asked.collect::<Vec<_>>().into_iter().filter_map(|(place, number, events)| {
            self.looked_at(number).map(|source| Blind { place, source, events })
        });
        found.collect()
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
        loop {
            list.truncate(count);
            let mut found = false;
            for one in blind {
                let arrives = self.arrivals(one.source, -1);
                let more = self.has_more(one.source);
                found |= more;
                list[one.place].events = if more { one.events } else { one.events & !READABLE };
                if arrives >= 0 && !more {
                    list.push(libc::pollfd { fd: arrives, events: libc::POLLIN, revents: 0 });
                }
            }
            let left = within.map(|within| within.saturating_sub(since.elapsed()));
            let waits = !(found || ready || left == Some(Duration::ZERO));
            let slice = match waits {
                true => self.before_waiting_for_more(blind, since)?,
                false => None,
            };
            let time = [left, slice].into_iter().flatten().min();
            let time = time.map(|time| [time.as_secs(), u64::from(time.subsec_nanos())]);
            let at = time.as_ref().map_or(0, |time| time.as_ptr() as u64);
            let words = [list.as_mut_ptr() as u64, list.len() as u64, at, 0, 8, 0];
            // SAFETY: the list and the time live until the answer.
            let call = unsafe { Call::new(libc::SYS_ppoll, words) };
            self.answer_wait(&call, ready || found, || {})?;
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

    /// Before a wait for more: what may keep others from sending it is taken. How long to wait at most.
    fn before_waiting_for_more(
        &mut self,
        blind: &[Blind],
        since: Instant,
    ) -> Sys<Option<Duration>> {
        let mut slice = None;
        for one in blind {
            let sources = &mut self.held.input.sources;
            let Some(source) = sources.get_mut(one.source).filter(|s| s.has_looked()) else {
                continue;
            };
            let over = PATIENCE.saturating_sub(since.elapsed());
            if source.is_full() || source.unix && over.is_zero() {
                self.take_now(one.source, FULL)?;
                // What is there now, the kernel tells.
                slice = Some(Duration::ZERO);
            } else if source.unix {
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
        for (number, event) in kernel::interests(epoll)? {
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
            if kept > 0 || left == Some(Duration::ZERO) {
                return Ok(kept);
            }
            if list.is_empty() {
                // Nothing is silent any more.
                return self.answer_wait(call, false, || {});
            }
            self.before_waiting_for_more(&sources, since)?;
            if self.keeps_others_waiting() {
                self.release()?;
            }
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
