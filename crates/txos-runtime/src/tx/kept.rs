//! What was read before the end, and is kept for the next attempt.
//!
//! What a transaction reads from a socket or a pipe is left in the kernel until the commit, as far as that is possible
//! ([`super::received`], [`super::pipes`]). Where it is not, because who writes there may wait for room, and of terminals, whose
//! input nothing leaves where it is, the bytes are taken and kept here. An attempt that begins again (`TX_RESTART`) is given them before
//! what the kernel has.
//!
//! | taken from | kept |
//! |---|---|
//! | a stream socket, because what was only looked at takes room | always |
//! | a pipe, for that reason or because it can't be looked at any longer | if looks were asked for ([`super::pipes::are_asked_for`]) |
//! | a terminal from before | if input is asked to be given back |
//!
//! Only the next attempt finds them: no read outside of a transaction comes here for sure. So a transaction that does not begin
//! again keeps nothing, and an abort that is the last one names what was taken.
//!
//! # Conversations
//!
//! What comes after something went out may be the answer to it. From then on nothing is kept ([`Tx::close_kept`]). If something was given by then,
//! the transaction does not begin again by itself.
#![allow(unsafe_code)] // a header of the program's, and buffers that the kernel has filled

use txos_engine::object::FileId;

use super::effects::is_to_end;
use super::files::File;
use super::io::buffers;
use super::kernel::{self, Errno, Sys};
use super::received::{LENGTH_AT, LIVE, one_of_several};
use super::sockets::Header;
use super::{Tx, flags};
use crate::call::Call;
use crate::user::{UserPtr, UserSlice, length_of};

/// So much is kept in all, bytes.
const MOST: usize = 16 << 20;
/// Where a message's header has what the kernel tells of it.
const ADDRESS_LENGTH: usize = 8;
/// As above.
const CONTROL_LENGTH: usize = 40;
/// As above.
const TOLD_FLAGS: usize = 48;

/// What something is that bytes were taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A stream socket.
    Socket,
    /// A pipe or FIFO.
    Pipe,
    /// A terminal.
    Terminal,
}

impl Origin {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Origin::Socket => "socket",
            Origin::Pipe => "pipe",
            Origin::Terminal => "terminal",
        }
    }
}

/// What was taken from one of them.
#[derive(Clone, Debug)]
struct Taken {
    id: FileId,
    /// The program's number, for messages.
    number: i32,
    origin: Origin,
    bytes: Vec<u8>,
    /// So many of them this attempt was given.
    given: usize,
    /// Of a terminal, which gives a line at a time: where each read has ended. One that has found the end has no bytes.
    reads: Vec<usize>,
    /// The next of these.
    next: usize,
    /// The last of them had no room for all of its line.
    in_parts: bool,
    /// What comes now is not kept.
    closed: bool,
}

/// All that the attempts of a transaction have taken.
#[derive(Clone, Debug, Default)]
pub struct Kept(Vec<Taken>);

impl Kept {
    /// Whether nothing is.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was taken from this.
    #[must_use]
    pub fn find(&self, id: FileId) -> Option<usize> {
        self.0.iter().position(|one| one.id == id)
    }

    /// Keeps these bytes, which this attempt was given. Where.
    pub fn add(&mut self, id: FileId, number: i32, origin: Origin, bytes: Vec<u8>) -> usize {
        let (given, reads, next) = (bytes.len(), Vec::new(), 0);
        self.0.push(Taken {
            id,
            number,
            origin,
            bytes,
            given,
            reads,
            next,
            in_parts: false,
            closed: false,
        });
        self.0.len() - 1
    }

    fn has_room(&self, more: usize) -> bool {
        let all: usize = self.0.iter().map(|one| one.bytes.len()).sum();
        all.saturating_add(more) <= MOST
    }

    /// What this attempt was not given yet, and one read can have.
    #[must_use]
    pub fn left(&self, at: usize) -> &[u8] {
        let left = |one: &Taken| Some(one.given..one.end());
        let one = self.0.get(at);
        one.and_then(|one| one.bytes.get(left(one)?)).unwrap_or_default()
    }

    /// Whether there is something that this attempt was not given yet.
    #[must_use]
    pub fn is_left(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(Taken::is_left)
    }

    /// Whether there is anything of which this attempt was not given all.
    #[inline]
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.0.iter().any(Taken::is_left)
    }

    fn give(&mut self, at: usize, bytes: usize) {
        let Some(one) = self.0.get_mut(at).filter(|_| bytes > 0) else { return };
        one.given = (one.given + bytes).min(one.bytes.len());
        if one.reads.get(one.next) == Some(&one.given) {
            one.next += 1;
        }
    }

    /// Whether the end comes next; then it was given.
    fn give_end(&mut self, at: usize) -> bool {
        let Some(one) = self.0.get_mut(at) else { return false };
        let ends = one.reads.get(one.next) == Some(&one.given);
        one.next += usize::from(ends);
        ends
    }

    /// The program has read these bytes from the kernel, after all that was kept. `filled`: it had room for no more. `false`: they
    /// are not kept.
    fn follow(&mut self, at: usize, bytes: &[u8], filled: bool) -> bool {
        let has_room = self.has_room(bytes.len());
        let one = self.0.get_mut(at).filter(|one| !one.closed && !one.is_left());
        let Some(one) = one.filter(|_| has_room) else { return false };
        one.bytes.extend_from_slice(bytes);
        one.given = one.bytes.len();
        if one.origin == Origin::Terminal {
            if std::mem::replace(&mut one.in_parts, filled && !bytes.ends_with(b"\n")) {
                one.reads.pop();
            }
            one.reads.push(one.given);
            one.next = one.reads.len();
        }
        true
    }

    /// From here on nothing more is kept of what comes from these. Whether this attempt was given some of it.
    fn close(&mut self, which: impl Fn(&Taken) -> bool) -> bool {
        let mut given = false;
        for one in self.0.iter_mut().filter(|one| !one.closed && which(one)) {
            one.closed = true;
            given |= one.given > 0;
        }
        given
    }

    fn is_of_terminal(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|one| one.origin == Origin::Terminal)
    }

    fn is_closed(&self, at: usize) -> bool {
        self.0.get(at).is_none_or(|one| one.closed)
    }

    /// As the next attempt finds it.
    #[must_use]
    pub fn for_next(&self) -> Kept {
        let next = |one: &Taken| Taken { given: 0, next: 0, closed: false, ..one.clone() };
        let is_some = |one: &&Taken| !(one.bytes.is_empty() && one.reads.is_empty());
        Kept(self.0.iter().filter(is_some).map(next).collect())
    }

    /// What was taken, in words: an abort that is the last one loses it.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let all = self.0.iter().filter(|one| !one.bytes.is_empty());
        all.map(|one| one.words(one.bytes.len()))
    }

    /// The transaction has committed: what an attempt before has taken, and this one has not read, in words.
    pub fn unread(&self) -> impl Iterator<Item = String> {
        let all = self.0.iter().filter(|one| one.given < one.bytes.len());
        all.map(|one| {
            let what = one.words(one.bytes.len() - one.given);
            format!("{what} that an earlier attempt had read were not read again, and are lost")
        })
    }
}

impl Taken {
    /// Where what one read can have ends.
    fn end(&self) -> usize {
        match self.origin {
            Origin::Terminal => self.reads.get(self.next).copied().unwrap_or(self.given),
            Origin::Socket | Origin::Pipe => self.bytes.len(),
        }
    }

    fn is_left(&self) -> bool {
        self.given < self.bytes.len() || self.next < self.reads.len()
    }

    fn words(&self, bytes: usize) -> String {
        let s = if bytes == 1 { "" } else { "s" };
        format!("{bytes} byte{s} from a {} (descriptor {})", self.origin.name(), self.number)
    }
}

/// A read of a stream, as the program has asked for it.
struct Read {
    pieces: Vec<UserSlice>,
    /// It only looks.
    peeks: bool,
    /// It waits until there is as much as it has room for.
    wants_all: bool,
    /// The header of a message, in which the kernel says what came.
    header: Option<UserPtr<[u64; 7]>>,
}

impl Read {
    /// `None`: it does more than to read bytes.
    fn of(call: &Call) -> Sys<Option<Read>> {
        const PLAIN: i32 = libc::MSG_DONTWAIT
            | libc::MSG_PEEK
            | libc::MSG_WAITALL
            | libc::MSG_NOSIGNAL
            | libc::MSG_CMSG_CLOEXEC;
        let (asked, header, pieces) = match call.number() {
            libc::SYS_read | libc::SYS_readv => (0, None, buffers(call)?),
            libc::SYS_preadv2 if call.word(5) == 0 => (0, None, buffers(call)?),
            libc::SYS_recvfrom => (call.int(3), None, vec![call.buffer(1, call.word(2))]),
            libc::SYS_recvmsg => {
                let header = call.pointer(1);
                (call.int(2), Some(header), Header::read(header)?.buffers()?)
            }
            _ => return Ok(None),
        };
        let peeks = asked & libc::MSG_PEEK != 0;
        let wants_all = asked & libc::MSG_WAITALL != 0 && asked & libc::MSG_DONTWAIT == 0 && !peeks;
        Ok((asked & !PLAIN == 0).then_some(Read { pieces, peeks, wants_all, header }))
    }

    /// The first bytes of what the kernel has just filled.
    fn filled(&self, bytes: u64) -> Vec<u8> {
        let mut rest = bytes;
        let mut all = Vec::new();
        for piece in &self.pieces {
            let part = piece.first(rest);
            rest -= part.len();
            // SAFETY: the kernel has just written all of it.
            all.extend_from_slice(&unsafe { part.known() }.to_vec());
        }
        all
    }
}

impl Tx {
    /// Whether so much that is taken before the end can be kept for another attempt.
    pub(super) fn may_keep(&self, origin: Origin, bytes: u64) -> bool {
        // Another thread would read what comes after it first.
        self.how.flags & flags::RESTART != 0
            && self.how.flags & LIVE == 0
            && !self.waits.has_members()
            && !self.went_out()
            && (origin == Origin::Socket || !self.held.input.has_gone_out())
            && self.held.input.kept.has_room(usize::try_from(bytes).unwrap_or(usize::MAX))
            && kernel::has_one_thread()
    }

    /// A call reads what is kept, or what comes after it. `None`: the kernel answers, and nothing of it is kept.
    pub(super) fn read_kept(
        &mut self,
        call: &Call,
        file: File,
        real: i32,
        at: usize,
    ) -> Sys<Option<u64>> {
        let several = call.number() == libc::SYS_recvmmsg && self.held.input.kept.is_left(at);
        if several {
            return self.read_kept_as_message(call, file, real, at).map(Some);
        }
        let Some(read) = Read::of(call)? else {
            self.close_kept_of(real)?;
            return Ok(None);
        };
        if !self.fds.get(file).reads() {
            return Err(Errno::BADF);
        }
        let room = length_of(&read.pieces);
        if room == 0 {
            return Ok(None);
        }
        if self.held.input.kept.is_left(at) {
            if self.held.input.kept.give_end(at) {
                return Ok(Some(0));
            }
            let given = self.give_kept(&read, at)?;
            let more = match read.wants_all && given < room {
                true => self.read_rest(call, (file, real), at, &read, given),
                false => 0,
            };
            return Ok(Some(given + more));
        }
        if self.held.input.kept.is_closed(at) {
            // What is taken now is not given back, nor is what was kept before it.
            self.held.output.went_out = true;
            return Ok(None);
        }
        self.before_taking(call, real)?;
        let bytes = call
            .with_descriptor(0, real)
            .answer_waiting_unless(&|| self.has_lost_meanwhile() || is_to_end());
        let bytes = bytes?;
        if read.peeks || bytes == 0 && !self.held.input.kept.is_of_terminal(at) {
            return Ok(Some(bytes));
        }
        self.held.output.found_something();
        let brings = match read.header {
            Some(header) => self.name_descriptors(&Header::read(header)?)?,
            None => false,
        };
        let is_kept = !brings && {
            let filled = read.filled(bytes);
            self.held.input.kept.follow(at, &filled, bytes == room)
        };
        if !is_kept {
            let id = kernel::look_fd(real)?.id;
            self.close_kept_from(id);
            self.held.output.went_out = true;
        }
        Ok(Some(bytes))
    }

    /// What is left of a call that waits until it has all: how much came. It is kept if what came before it is.
    pub(super) fn take_rest(
        &mut self,
        rest: &Call,
        file: File,
        real: i32,
        kept: Option<usize>,
    ) -> u64 {
        let kept = kept.map_or(Ok(None), |at| self.read_kept(rest, file, real, at));
        let answer = kept.and_then(|more| match more {
            Some(more) => Ok(more),
            None => rest.with_descriptor(0, real).answer_waiting(),
        });
        answer.unwrap_or(0)
    }

    /// What follows what was kept in such a call: how much came.
    fn read_rest(
        &mut self,
        call: &Call,
        (file, real): (File, i32),
        at: usize,
        read: &Read,
        given: u64,
    ) -> u64 {
        let (mut skip, mut done) = (given, 0);
        for piece in &read.pieces {
            let part = piece.after(skip);
            skip = skip.saturating_sub(piece.len());
            if part.is_empty() {
                continue;
            }
            let words = [call.word(0), part.address(), part.len(), libc::MSG_WAITALL as u64, 0, 0];
            // SAFETY: a piece of the program's own buffers.
            let rest = unsafe { Call::new(libc::SYS_recvfrom, words) };
            let more = self.take_rest(&rest, file, real, Some(at));
            done += more;
            if more < part.len() {
                break;
            }
        }
        done
    }

    fn give_kept(&mut self, read: &Read, at: usize) -> Sys<u64> {
        self.held.output.found_something();
        let mut done = 0;
        for piece in &read.pieces {
            let left = self.held.input.kept.left(at).get(done..).unwrap_or_default();
            let next = &left[..left.len().min(usize::try_from(piece.len()).unwrap_or(usize::MAX))];
            match piece.write(next) {
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
                Ok(()) => done += next.len(),
            }
        }
        if let Some(header) = read.header {
            // A stream names no sender, and nothing came with these bytes.
            header.part::<u32>(ADDRESS_LENGTH).write(0)?;
            header.part::<u64>(CONTROL_LENGTH).write(0)?;
            header.part::<i32>(TOLD_FLAGS).write(0)?;
        }
        if !read.peeks {
            self.held.input.kept.give(at, done);
        }
        Ok(done as u64)
    }

    /// `recvmmsg(2)`: what is kept is its first message.
    fn read_kept_as_message(&mut self, call: &Call, file: File, real: i32, at: usize) -> Sys<u64> {
        if call.word(2) as u32 == 0 {
            return Ok(0);
        }
        let item = call.pointer::<[u64; 8]>(1).item(0);
        let one = one_of_several(call, item, call.int(3) & !libc::MSG_WAITFORONE);
        let bytes = self.read_kept(&one, file, real, at)?.unwrap_or(0);
        item.part::<u32>(LENGTH_AT).write(u32::try_from(bytes).unwrap_or(u32::MAX))?;
        Ok(1)
    }

    /// Something goes out, to whomever: what comes from pipes and terminals from now on is not kept.
    pub(super) fn close_kept(&mut self) {
        let given = self.held.input.kept.close(|one| one.origin != Origin::Socket);
        self.held.output.went_out |= given;
    }

    /// The same of one of them: something goes out there, or is read past this.
    pub(super) fn close_kept_from(&mut self, id: FileId) {
        let given = self.held.input.kept.close(|one| one.id == id);
        self.held.output.went_out |= given;
    }

    /// A call takes from a descriptor in a way that nothing is kept of, or lets somebody else do it.
    ///
    /// # Errors
    /// EINVAL if there is something of an earlier attempt, which the call would pass over.
    pub(super) fn close_kept_of(&mut self, real: i32) -> Sys<()> {
        if self.held.input.kept.is_empty() {
            return Ok(());
        }
        let Ok(stat) = kernel::look_fd(real) else { return Ok(()) };
        let Some(at) = self.held.input.kept.find(stat.id) else { return Ok(()) };
        if self.held.input.kept.is_left(at) {
            return Err(Errno::INVAL);
        }
        self.close_kept_from(stat.id);
        Ok(())
    }

    /// The same of one of the program's numbers.
    ///
    /// # Errors
    /// As [`Tx::close_kept_of`].
    pub(super) fn close_kept_at(&mut self, number: i32) -> Sys<()> {
        match self.held.input.kept.is_empty() {
            true => Ok(()),
            false => self.real(number).and_then(|real| self.close_kept_of(real)),
        }
    }

    /// What is kept, as the next attempt finds it.
    #[must_use]
    pub fn kept_for_next(&self) -> Kept {
        self.held.input.kept.for_next()
    }

    /// Whether an earlier attempt has left something for any.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.held.input.kept.has_left()
    }

    /// How much an earlier attempt has left for a descriptor; 0: only the end. `None`: nothing.
    pub fn left_for(&mut self, number: i32) -> Option<usize> {
        if !self.held.input.kept.has_left() {
            return None;
        }
        let id = self.real(number).and_then(kernel::look_fd).map(|stat| stat.id);
        let at = id.ok().and_then(|id| self.held.input.kept.find(id))?;
        self.held.input.kept.is_left(at).then(|| self.held.input.kept.left(at).len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FileId = FileId { dev: 1, ino: 1 };
    const OTHER: FileId = FileId { dev: 1, ino: 2 };

    fn all_of(kept: &Kept) -> Vec<String> {
        kept.words().collect()
    }

    #[test]
    fn the_next_attempt_is_given_it_before_what_follows() {
        let mut kept = Kept::default();
        let at = kept.add(ONE, 5, Origin::Socket, b"first".to_vec());
        assert!(!kept.has_left() && kept.follow(at, b" second", false));
        let mut next = kept.for_next();
        assert_eq!((next.left(at), next.find(OTHER)), (&b"first second"[..], None));
        // What comes now would be out of its place.
        assert!(!next.follow(at, b"third", false));
        next.give(at, 6);
        assert_eq!((next.left(at), next.unread().count()), (&b"second"[..], 1));
        next.give(at, 6);
        assert!(next.unread().next().is_none() && next.follow(at, b" third", false));
        assert_eq!(all_of(&next), ["18 bytes from a socket (descriptor 5)"]);
        assert_eq!(next.for_next().left(at), b"first second third");
    }

    #[test]
    fn nothing_is_kept_of_an_answer() {
        let mut kept = Kept::default();
        let terminal = kept.add(ONE, 0, Origin::Terminal, Vec::new());
        let socket = kept.add(OTHER, 3, Origin::Socket, b"x".to_vec());
        assert!(kept.close(|one| one.id == OTHER) && !kept.close(|one| one.id == OTHER));
        assert!(!kept.follow(socket, b"y", false) && kept.follow(terminal, b"z", false));
        assert_eq!(kept.for_next().left(terminal), b"z");
        // What no attempt was given is no loss.
        let mut next = kept.for_next();
        assert!(!next.close(|_| true) && next.has_left());
    }

    #[test]
    fn a_terminal_gives_line_by_line_and_its_end() {
        let mut kept = Kept::default();
        let at = kept.add(ONE, 0, Origin::Terminal, Vec::new());
        assert!(
            kept.follow(at, b"on", true)
                && kept.follow(at, b"e\n", false)
                && kept.follow(at, b"", false)
                && kept.follow(at, b"two\n", false)
        );
        let mut next = kept.for_next();
        assert!(!next.give_end(at));
        assert_eq!(next.left(at), b"one\n");
        next.give(at, 3);
        assert_eq!(next.left(at), b"\n");
        next.give(at, 1);
        assert!(next.left(at).is_empty() && next.is_left(at) && next.give_end(at));
        assert!(!next.give_end(at));
        assert_eq!(next.left(at), b"two\n");
        next.give(at, 4);
        assert!(!next.has_left() && next.follow(at, b"three\n", false));
    }

    #[test]
    fn what_is_nothing_is_not_told() {
        let mut kept = Kept::default();
        kept.add(ONE, 0, Origin::Terminal, Vec::new());
        assert!(all_of(&kept).is_empty() && kept.for_next().is_empty());
        let most = vec![0; MOST];
        let at = kept.add(OTHER, 1, Origin::Pipe, most);
        assert!(!kept.follow(at, b"x", false));
    }
}
