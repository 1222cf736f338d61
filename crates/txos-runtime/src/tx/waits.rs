//! Calls that may wait, of a transaction that several threads are in.
//!
//! A member holds the transaction for the time of its call. If it waited meanwhile, for bytes in a pipe or for
//! a lock, the member that it waits for could not make the call that ends the wait. So what only the kernel
//! can answer is worked out here, with the kernel's descriptors for the program's, and made by the member when
//! it holds the transaction no longer.

use std::time::Duration;

use txos_engine::object::FileKind;
use txos_engine::realm::TxHandle;

use super::deadlock::FoundDeadlock;
use super::files::Descriptor;
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::Id;
use super::{Tx, effects, io, ipc, passed, single_call, sockets};
use crate::call::{Call, while_waiting};
use crate::raw;
use crate::user::length_of;
use txos_calls::Class;

/// How a member goes on with a call.
#[derive(Debug)]
pub enum Step {
    /// By [`Tx::call`].
    Here,
    /// The kernel answers this call, without the transaction.
    Past(Past),
    /// The same; the answer is a descriptor, which is [`Tx::took`].
    PastNew(Past),
    /// The same; if it succeeds, this is not part of the transaction.
    PastLive(Past, &'static str),
    /// By [`Tx::call`] with this call, again and again as long as the answer is this errno.
    Try(Call, Errno),
    /// By [`Tx::call`], again and again with no time to wait, until there is an answer or the time is over.
    Poll,
    /// Nothing can be done yet.
    Later,
}

/// Whether a call that is none of the transaction's may wait for somebody else.
pub fn may_wait_outside(number: i64) -> bool {
    effects::takes(number)
        || matches!(
            number,
            libc::SYS_connect
                | libc::SYS_sendto
                | libc::SYS_sendmsg
                | libc::SYS_sendmmsg
                | libc::SYS_waitid
                | libc::SYS_semop
                | libc::SYS_semtimedop
                | libc::SYS_msgrcv
                | libc::SYS_msgsnd
                | libc::SYS_mq_timedreceive
                | libc::SYS_mq_timedsend
        )
}

/// `poll` and its relatives.
#[must_use]
pub fn polls(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_poll
            | libc::SYS_ppoll
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
    )
}

/// Whether a call may wait for what its descriptors tell of.
#[must_use]
pub fn may_wait_for_descriptor(number: i64) -> bool {
    polls(number)
        || effects::takes(number)
        || matches!(
            number,
            libc::SYS_read
                | libc::SYS_readv
                | libc::SYS_write
                | libc::SYS_writev
                | libc::SYS_connect
                | libc::SYS_sendto
                | libc::SYS_sendmsg
                | libc::SYS_sendmmsg
        )
}

/// Whether a call of a member is none of the transaction's.
fn is_live(call: &Call) -> bool {
    let number = call.number();
    let is_passed = matches!(txos_calls::class(number), Class::Passed(_));
    // Members send each other messages, and wait for each other's.
    ipc::is_ipc(number)
        || sockets::receives(number)
        || is_passed && !passed::has_paths(call) && !txos_calls::only_asks(number, call.words())
}

/// What waits outside of the turns.
#[derive(Debug, Default)]
pub struct Waits {
    /// There are several threads.
    members: bool,
    /// What the last call is to open.
    opening: Option<Opening>,
    /// Why it is aborted, if it waited for one that waits for it.
    pub deadlock: FoundDeadlock,
    /// For how long it has slept since it last acquired something, how much it held then, and after how long it was last
    /// looked whether what it has seen is still so.
    slept: (Duration, usize, Duration),
}

/// Who has slept so long in all, between looks at what it has seen already, may be waiting for that to change.
const SLEEPS: Duration = Duration::from_millis(500);

impl Waits {
    /// Whether other threads may be waiting for their turn.
    #[must_use]
    pub fn has_members(&self) -> bool {
        self.members
    }

    /// Leaves an opening to the member, if there are others.
    pub fn leave(&mut self, opening: &Opening) -> bool {
        if self.members {
            self.opening = Some(opening.clone());
        }
        self.members
    }
}

/// Something to be opened by the kernel.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The kernel's path.
    pub path: Vec<u8>,
    /// As for `open(2)`.
    pub flags: i32,
    /// What it is in the transaction.
    pub node: Option<Id>,
}

impl Opening {
    /// Whether opening a FIFO so waits for its other end.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.flags & (libc::O_NONBLOCK | libc::O_PATH) == 0
            && self.flags & libc::O_ACCMODE != libc::O_RDWR
    }

    /// Opens it, if it is a FIFO still.
    ///
    /// # Errors
    /// As `open(2)`; EIO if it is something else by now.
    pub fn open_fifo(&self) -> Sys<i32> {
        let fd = while_waiting(|| kernel::open(&self.path, self.flags & !libc::O_TRUNC, 0))?;
        if kernel::look_fd(fd).is_ok_and(|stat| stat.kind() == FileKind::Fifo) {
            return Ok(fd);
        }
        kernel::close(fd);
        Err(Errno::IO)
    }

    /// Opens it.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(&self) -> Sys<i32> {
        kernel::open(&self.path, self.flags, 0)
    }
}

/// A call with the kernel's descriptors.
///
/// When it is made another member may just have aborted, and the number may be another thread's by now. So of
/// what an abort closes it has duplicates.
#[derive(Debug)]
pub struct Past {
    call: Call,
    kept: [Option<OwnedFd>; 2],
}

impl Past {
    /// Makes it.
    pub fn make(&self) -> i64 {
        raw::answer(self.call.answer_waiting())
    }
}

impl From<Call> for Past {
    fn from(call: Call) -> Past {
        Past { call, kept: [None, None] }
    }
}

impl Tx {
    /// Whether a call waits for something outside, as far as its descriptors say. (`poll` and its relatives are taken to wait
    /// if they may.)
    pub fn waits_outside(&mut self, call: &Call) -> bool {
        let flags_at = match call.number() {
            number if !may_wait_for_descriptor(number) => return false,
            number if polls(number) => {
                return effects::waits(call).is_ok_and(|(_, _, time)| time != Some(Duration::ZERO));
            }
            libc::SYS_recvmsg | libc::SYS_sendmsg => Some(2),
            libc::SYS_recvfrom | libc::SYS_recvmmsg | libc::SYS_sendto | libc::SYS_sendmmsg => {
                Some(3)
            }
            _ => None,
        };
        let at_once = flags_at.is_some_and(|at| call.int(at) & libc::MSG_DONTWAIT != 0);
        !at_once && self.descriptor_waits(call).unwrap_or(false)
    }

    fn descriptor_waits(&mut self, call: &Call) -> Sys<bool> {
        if !self.is_outside(call.int(0))? {
            return Ok(false);
        }
        let real = self.real(call.int(0))?;
        if kernel::status_flags(real)? & libc::O_NONBLOCK != 0 {
            return Ok(false);
        }
        let len = match call.number() {
            libc::SYS_connect => return Ok(kernel::is_tcp(real)),
            libc::SYS_write | libc::SYS_sendto => call.word(2),
            libc::SYS_writev => length_of(&io::buffers(call)?),
            libc::SYS_sendmsg => sockets::Header::length(call.pointer(1))?,
            libc::SYS_sendmmsg => 0,
            _ => return Ok(!kernel::is_ready(real, libc::POLLIN)),
        };
        Ok(effects::may_wait_for_room(real, len)? || !kernel::is_ready(real, libc::POLLOUT))
    }

    /// Before it sleeps: for how long it has, since it last acquired something.
    pub fn slept(&mut self) -> Duration {
        let held = self.locks.handle.as_ref().map_or(0, TxHandle::held);
        if self.waits.slept.1 != held {
            self.waits.slept = (Duration::ZERO, held, Duration::ZERO);
        }
        self.waits.slept.0
    }

    /// It has slept for so long. If it may be waiting for something to change that it has seen, it looks there again.
    pub fn has_slept_between_looks(&mut self, time: Duration) {
        let (slept, _, looked) = &mut self.waits.slept;
        *slept += time;
        if slept.saturating_sub(*looked) >= SLEEPS {
            *looked = *slept;
            self.look_at_all_again();
        }
    }

    /// Another thread enters: from here on no call is the only one.
    pub fn share(&mut self) {
        self.waits.members = true;
        if let Some(handle) = self.locks.handle.as_ref() {
            handle.has_several_threads();
        }
        self.release_before_members();
        self.before_pause();
        self.start.first = single_call::First::Over;
    }

    /// How a member goes on with a call.
    pub fn next_step(&mut self, call: &Call) -> Step {
        if self.doom.is_some() {
            return Step::Here;
        }
        self.report.calling = call.number();
        match self.step_of(call) {
            Ok(step) => step,
            // By the usual way it fails as it should.
            Err(_) => Step::Here,
        }
    }

    fn step_of(&mut self, call: &Call) -> Sys<Step> {
        const OFD_SETLK: i32 = 37;
        const OFD_SETLKW: i32 = 38;
        let int = |i: usize| call.int(i);
        Ok(match call.number() {
            libc::SYS_read | libc::SYS_readv => self.past(call, 0, false)?,
            libc::SYS_write | libc::SYS_writev => self.past(call, 0, true)?,
            libc::SYS_preadv2 if call.long(3) == -1 => self.past(call, 0, false)?,
            libc::SYS_pwritev2 if call.long(3) == -1 => self.past(call, 0, true)?,
            libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6 => {
                match self.fds.is_as_the_kernels() {
                    true => Step::Past((*call).into()),
                    false => Step::Poll,
                }
            }
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
                self.past(call, 0, false)?
            }
            libc::SYS_waitid => Step::Past(self.as_the_kernels(call)?),
            libc::SYS_splice => self.past_both(call, 0, 2)?,
            libc::SYS_tee => self.past_both(call, 0, 1)?,
            libc::SYS_sendfile => self.past_both(call, 1, 0)?,
            libc::SYS_vmsplice => match self.is_outside(int(0))? {
                true => self.when_ready(int(0), libc::POLLIN | libc::POLLOUT)?,
                false => Step::Here,
            },
            libc::SYS_flock if int(1) & libc::LOCK_NB == 0 => {
                let at_once = (int(1) | libc::LOCK_NB) as u64;
                Step::Try(with_number(call, 1, at_once), Errno::AGAIN)
            }
            libc::SYS_fcntl if int(1) == libc::F_SETLKW => {
                Step::Try(with_number(call, 1, libc::F_SETLK as u64), Errno::AGAIN)
            }
            libc::SYS_fcntl if int(1) == OFD_SETLKW => {
                Step::Try(with_number(call, 1, OFD_SETLK as u64), Errno::AGAIN)
            }
            libc::SYS_connect if !sockets::is_path(call.buffer(1, u64::from(call.uint(2)))) => {
                if self.how.flags & super::flags::STRICT != 0 {
                    return Ok(Step::Here);
                }
                Step::PastLive(self.as_the_kernels(call)?, "network and socket traffic")
            }
            libc::SYS_sendto if sockets::is_path(call.buffer(4, u64::from(call.uint(5)))) => {
                self.when_ready(int(0), libc::POLLOUT)?
            }
            libc::SYS_sendmsg if sockets::needs_translation(call.pointer(1)) => {
                self.when_ready(int(0), libc::POLLOUT)?
            }
            libc::SYS_bind | libc::SYS_connect | libc::SYS_sendmmsg => Step::Here,
            number => match txos_calls::class(number) {
                Class::Passed(what) | Class::Held(what) | Class::Restored(what)
                    if is_live(call) =>
                {
                    self.unsupported_call(what, b"")?;
                    if effects::takes(number) {
                        self.before_waiting_outside(int(0))?;
                    }
                    let past = self.as_the_kernels(call)?;
                    match txos_calls::makes_descriptor(number) {
                        true => Step::PastNew(past),
                        false => Step::Past(past),
                    }
                }
                _ => Step::Here,
            },
        })
    }

    /// A call with the kernel's descriptors.
    fn as_the_kernels(&mut self, call: &Call) -> Sys<Past> {
        let mut past = Past::from(*call);
        for (place, i) in txos_calls::descriptors(call.number()).enumerate() {
            let number = call.int(i);
            if number < 0 {
                continue;
            }
            let mut real = self.real(number)?;
            let closed_by_abort = match self.fds.descriptor(number) {
                Descriptor::Open { over, .. } => !over || real != number,
                _ => false,
            };
            if closed_by_abort && let Some(kept) = past.kept.get_mut(place) {
                let duplicate = kernel::copy_high(real)?;
                real = duplicate;
                *kept = Some(OwnedFd::of(duplicate));
            }
            past.call = past.call.with_descriptor(i, real);
        }
        Ok(past)
    }

    /// Whether a descriptor is of nothing whose content is the transaction's business. (Of a mere place, the usual way has no content either.)
    fn is_outside(&mut self, number: i32) -> Sys<bool> {
        let file = self.file(number)?;
        let open = self.fds.get(file);
        let is_place = open.flags & libc::O_PATH != 0;
        Ok(!is_place && open.node.is_none_or(|id| !self.tree.has_content(id)))
    }

    /// A call on one descriptor, if that is outside.
    fn past(&mut self, call: &Call, at: usize, writes: bool) -> Sys<Step> {
        let number = call.int(at);
        if !self.is_outside(number)? {
            return Ok(Step::Here);
        }
        if writes {
            let real = self.real(number)?;
            self.write_outside(number, real)?;
        } else {
            self.before_waiting_outside(number)?;
        }
        self.as_the_kernels(call).map(Step::Past)
    }

    /// Before a member waits for what is to be read: somebody may be reading until an end is closed.
    fn before_waiting_outside(&mut self, number: i32) -> Sys<()> {
        if !self.fds.has_closed() || kernel::is_ready(self.real(number)?, libc::POLLIN) {
            return Ok(());
        }
        self.close_ends("closing an end of a pipe before its other side is waited for")
    }

    /// A call that moves bytes from one descriptor to another.
    fn past_both(&mut self, call: &Call, from: usize, to: usize) -> Sys<Step> {
        let (source, target) = (call.int(from), call.int(to));
        match (self.is_outside(source)?, self.is_outside(target)?) {
            (true, true) => {
                let real = self.real(target)?;
                self.write_outside(target, real)?;
                self.as_the_kernels(call).map(Step::Past)
            }
            (true, false) => self.when_ready(source, libc::POLLIN),
            (false, true) => self.when_ready(target, libc::POLLOUT),
            (false, false) => Ok(Step::Here),
        }
    }

    /// By the usual way as soon as it does not have to wait for this descriptor.
    fn when_ready(&mut self, number: i32, events: i16) -> Sys<Step> {
        let real = self.real(number)?;
        Ok(if kernel::is_ready(real, events) { Step::Here } else { Step::Later })
    }

    /// What the last call left to be opened by the member.
    pub fn take_opening(&mut self) -> Option<Opening> {
        self.waits.opening.take()
    }

    /// Of something that only the transaction has: a descriptor of it, by which another process can open it.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn place_of(&self, opening: &Opening) -> Sys<Option<OwnedFd>> {
        let is_new = opening.node.is_some_and(|id| self.tree.nodes[id].stable.is_none());
        if !is_new {
            // Or to which the path is closed for that process.
            let reached = || kernel::look(&opening.path);
            let closed = kernel::is_worn() && matches!(reached(), Err(Errno::ACCESS));
            return opening.node.filter(|_| closed).map(|id| self.tree.beyond(id)).transpose();
        }
        let open = || OwnedFd::open(&opening.path, libc::O_PATH | libc::O_CLOEXEC);
        kernel::as_owner(open).map(Some)
    }

    /// A descriptor that the kernel gave a member past the transaction gets its number.
    pub fn took(&mut self, fd: i32) -> i64 {
        crate::raw::answer(self.plain(fd).map(|number| number as u64))
    }

    /// Something that is not part of the transaction has happened.
    pub fn happened(&mut self, what: &'static str) {
        // Under TX_STRICT it is not made in the first place.
        let _ = self.unsupported_call(what, b"");
    }
}

/// A call with another number, that is no pointer, as one of its arguments.
#[allow(unsafe_code)] // an argument is replaced
fn with_number(call: &Call, at: usize, value: u64) -> Call {
    // SAFETY: these arguments are flags, or what a lock is to do; the pointer is used alike.
    unsafe { call.with_word(at, value) }
}
