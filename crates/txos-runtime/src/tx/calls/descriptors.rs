//! Calls about descriptors: numbers, flags, locks, polling, pipes, sockets and messages.
#![allow(unsafe_code)] // a message whose parts are replaced

use txos_engine::object::FileKind;

use super::{CWD, NOFOLLOW};
use crate::call::Call;
use crate::tx::Tx;
use crate::tx::kernel::{self, Errno, Sys};
use crate::tx::put_back::settings_of_option;
use crate::tx::sockets::Header;

/// The level of options of a connection that the kernel encrypts (kTLS).
const SOL_TLS: i32 = 282;

impl Tx {
    /// Calls about descriptors; all others are what the table says.
    #[inline]
    pub(super) fn descriptor_call(&mut self, call: &Call) -> Sys<u64> {
        let a = *call.words();
        let int = |i: usize| call.int(i);
        match call.number() {
            libc::SYS_close => self.close_number(int(0)).map(|()| 0),
            libc::SYS_close_range => self.close_range(a[0] as u32, a[1] as u32, a[2] as u32),

            libc::SYS_dup => self.dup(int(0), 0, false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => match int(0) == int(1) {
                true => self.file(int(0)).map(|_| a[0] & 0xffff_ffff),
                false => self.dup_to(int(0), int(1), false),
            },
            libc::SYS_dup3 => {
                if int(2) & !libc::O_CLOEXEC != 0 || int(0) == int(1) {
                    return Err(Errno::INVAL);
                }
                self.dup_to(int(0), int(1), int(2) & libc::O_CLOEXEC != 0)
            }
            libc::SYS_fcntl if self.holds() => match at_once(call) {
                Some(tried) => match self.fcntl(&tried) {
                    Err(Errno::AGAIN | Errno::ACCESS) => {
                        self.release()?;
                        self.fcntl(call)
                    }
                    done => done,
                },
                None => self.fcntl(call),
            },
            libc::SYS_fcntl => self.fcntl(call),
            libc::SYS_flock if self.holds() && int(1) & libc::LOCK_NB == 0 => {
                match self.flock(int(0), int(1) | libc::LOCK_NB) {
                    Err(Errno::AGAIN) => {
                        self.release()?;
                        self.flock(int(0), int(1))
                    }
                    done => done,
                }
            }
            libc::SYS_flock => self.flock(int(0), int(1)),
            libc::SYS_ioctl => self.ioctl(call),

            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => self.poll(call),
            libc::SYS_ppoll => self.poll(call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => self.select(call),
            libc::SYS_pselect6 => self.select(call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_signalfd if int(0) != -1 => self.on_descriptor(call).map(|_| a[0]),
            libc::SYS_signalfd4 if int(0) != -1 => self.on_descriptor(call).map(|_| a[0]),
            libc::SYS_waitid => {
                let real = self.real(int(1))?;
                call.with_descriptor(1, real).answer()
            }
            libc::SYS_pidfd_getfd => self.take_descriptor(call),
            libc::SYS_kcmp => {
                const KCMP_FILE: i32 = 0;
                let own = std::process::id();
                if int(2) != KCMP_FILE || a[0] as u32 != own || a[1] as u32 != own {
                    return call.answer();
                }
                let (one, other) = (self.real(int(3))?, self.real(int(4))?);
                call.with_descriptor(3, one).with_descriptor(4, other).answer()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_pipe => self.new_pair(call, 0),
            libc::SYS_pipe2 => self.new_pair(call, 0),
            libc::SYS_socketpair => self.new_pair(call, 3),
            libc::SYS_socket => self.new_descriptor(call),
            libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg | libc::SYS_shutdown => {
                match self.hold_message(call)? {
                    Some(held) => Ok(held),
                    None => {
                        let real = self.real(int(0))?;
                        if kernel::look_fd(real)?.kind() != FileKind::Socket {
                            // It fails, and nothing is sent.
                            return self.on_descriptor(call);
                        }
                        if let Some(sent) = self.send_to_log(call, real)? {
                            return Ok(sent);
                        }
                        self.before_live(int(0))?;
                        self.talks_by_any_way()?;
                        if let Some(len) = bytes_to_wait_with(call) {
                            self.before_room(real, len)?;
                        }
                        let sent = self.send_live(call)?;
                        self.talks(int(0));
                        self.went_live(int(0), bytes_sent(call, sent));
                        Ok(sent)
                    }
                }
            }
            libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => {
                self.receive_message(call)
            }
            libc::SYS_setsockopt => self.set_option(call),
            libc::SYS_timerfd_settime => self.set_open_timer(call),
            libc::SYS_connect => {
                self.before_connecting(int(0))?;
                match self.connect_to_log(call)? {
                    Some(done) => Ok(done),
                    None => self.to_address(call),
                }
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => self.wait_for_events(call),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => self.wait_for_events(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_getsockname | libc::SYS_getpeername => self.socket_name(call),
            libc::SYS_inotify_add_watch => {
                let real = self.real(int(0))?;
                let link = a[2] as u32 & libc::IN_DONT_FOLLOW != 0;
                let flags = if link { NOFOLLOW } else { 0 };
                let object = self.object(CWD, &call.path(1)?, flags)?;
                let path = self.tree.kernel_path(&object)?;
                kernel::watch(real, &path, a[2] as u32)
            }

            libc::SYS_seccomp if a[0] as u32 > libc::SECCOMP_SET_MODE_FILTER => call.answer(),
            libc::SYS_prctl => self.refuse(Errno::INVAL, "a sandbox of the program's own"),
            _ => self.the_rest(call),
        }
    }

    /// `setsockopt(2)`.
    fn set_option(&mut self, call: &Call) -> Sys<u64> {
        let (socket, level, name) = (call.int(0), call.int(1), call.int(2));
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
                self.before_taking_past_looks(socket)?;
                self.talks(socket);
            }
            // What is held would be encrypted by the kernel from here on, as what follows is.
            (SOL_TLS, _) | (libc::SOL_TCP, libc::TCP_ULP) => self.before_live(socket)?,
            // Such as through which interface, and in how many parts.
            (libc::IPPROTO_IP | libc::IPPROTO_IPV6 | libc::IPPROTO_UDP, _) => {
                self.before_option(socket)?;
            }
            _ => {}
        }
        let settings = settings_of_option(level, name);
        self.set_at_once(socket, &settings, |tx| tx.the_rest(call))
    }

    /// Calls that send and can't be held.
    fn send_live(&mut self, call: &Call) -> Sys<u64> {
        match call.number() {
            libc::SYS_sendto => self.to_address(call),
            libc::SYS_sendmsg => self.send_message(call),
            libc::SYS_sendmmsg => {
                // Each header is followed by the length of what was sent.
                let messages = call.pointer::<[u64; 8]>(1);
                for i in 0..call.word(2).min(1024) {
                    let Ok(header) = Header::read(messages.item(i).part(0)) else { continue };
                    if !header.control().is_empty() {
                        return self.unsupported_errno("handing descriptors over by many messages");
                    }
                    if self.is_elsewhere(&header) {
                        return self.unsupported_errno("many messages to sockets by path");
                    }
                }
                self.the_rest(call)
            }
            _ => self.the_rest(call),
        }
    }

    /// `epoll_wait(2)` and its relatives.
    fn wait_for_events(&mut self, call: &Call) -> Sys<u64> {
        let real = self.real(call.int(0))?;
        // The kernel would go on telling of what the program has closed.
        self.close_ends("closing a descriptor that epoll may know")?;
        self.close_held_ends()?;
        let real_call = call.with_descriptor(0, real);
        let blind = self.blind_interests(real)?;
        let may_hold = self.may_hold() || self.has_left();
        let found = if blind.is_empty() {
            match self.answer_wait(&real_call, may_hold, || {})? {
                // The kernel has nothing, and was not waited for.
                0 if may_hold => match self.ready_events(call, real)? {
                    0 => self.answer_wait(&real_call, false, || {})?,
                    ready => ready,
                },
                found => found,
            }
        } else {
            let held = |tx: &mut Tx| match may_hold {
                true => tx.ready_events(call, real),
                false => Ok(0),
            };
            self.events_past_looks(&real_call, &blind, held)?
        };
        if self.keeps_others_waiting() {
            const ROOM: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
            let events = call.pointer::<libc::epoll_event>(1);
            let is_room = |at| events.item(at).read().is_ok_and(|one| one.events & !ROOM == 0);
            self.has_found(found, (0..found).all(is_room))?;
        }
        Ok(found)
    }

    /// The descriptors that an epoll descriptor tells of, and that a write to would be held for, or an earlier attempt has left
    /// something for.
    fn ready_events(&mut self, call: &Call, real: i32) -> Sys<u64> {
        let room = u64::from(call.uint(2));
        let out = call.pointer::<libc::epoll_event>(1);
        let mut ready = 0;
        // Without /proc the kernel alone tells.
        for (number, event) in kernel::interests(real).unwrap_or_default() {
            // Those that tell of a change, or once, have told.
            let told = libc::EPOLLET | libc::EPOLLONESHOT;
            let asked = event.events as i32;
            if ready == room || self.real(number) != Ok(number) {
                // The number is the kernel's, of when it was added.
                continue;
            }
            let mut events = 0;
            if asked & libc::EPOLLOUT != 0 && asked & told == 0 && self.is_writable(number) {
                events |= libc::EPOLLOUT;
            }
            // Of what is left, nothing has told this attempt. (One that tells once has told an earlier one, and asks for nothing now.)
            const ASKS: i32 = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP;
            let has_told = asked & libc::EPOLLONESHOT != 0 && asked & ASKS == 0;
            if (asked & libc::EPOLLIN != 0 || has_told) && self.left_for(number).is_some() {
                events |= libc::EPOLLIN;
            }
            if events != 0 {
                let events = events as u32;
                out.item(ready).write(libc::epoll_event { events, u64: event.u64 })?;
                ready += 1;
            }
        }
        Ok(ready)
    }

    /// `sendmsg(2)`: the descriptors in it are numbers of the program's.
    fn send_message(&mut self, call: &Call) -> Sys<u64> {
        /// `struct cmsghdr`, before its data; each begins at a multiple of a word.
        const HEAD: usize = 16;
        let Ok(mut header) = Header::read(call.pointer(1)) else {
            return self.the_rest(call);
        };
        let mut control = header.control().first(1 << 20).read()?;
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, i32::from_ne_bytes)
        };
        let mut at = 0;
        while at + HEAD <= control.len() {
            let len = word(&control, at) as usize;
            if len < HEAD || len > control.len() - at {
                break; // The kernel says that it is wrong.
            }
            let rights = word(&control, at + 8) == libc::SOL_SOCKET
                && word(&control, at + 12) == libc::SCM_RIGHTS;
            let mut place = at + HEAD;
            while rights && place + 4 <= at + len {
                let fd = word(&control, place);
                let file = self.file(fd)?;
                if self.fds.get(file).node.is_some() {
                    // Who gets it would see what is not committed.
                    return self.unsupported_errno("handing a versioned file to others");
                }
                self.take_pipe_of(fd)?;
                control[place..place + 4].copy_from_slice(&self.real(fd)?.to_ne_bytes());
                place += 4;
            }
            at += len.next_multiple_of(8);
        }
        // It is kept until the call is made.
        let _address = self.address_in_header(&mut header)?;
        header.set_control(&control);
        // SAFETY: the header, and the address and control data that it leads to, live until the answer.
        let call = unsafe { call.with_word(1, header.at()) };
        self.the_rest(&call)
    }
}

/// With how many bytes a call that sends may wait for room; `None`: it does not wait.
fn bytes_to_wait_with(call: &Call) -> Option<u64> {
    let (flags, len) = match call.number() {
        libc::SYS_sendto => (call.int(3), call.word(2)),
        libc::SYS_sendmsg => (call.int(2), Header::length(call.pointer(1)).unwrap_or(0)),
        libc::SYS_sendmmsg => {
            let messages = call.pointer::<[u64; 8]>(1);
            let each = |i| Header::length(messages.item(i).part(0)).unwrap_or(0);
            (call.int(3), (0..call.word(2).min(1024)).map(each).fold(0, u64::saturating_add))
        }
        _ => return None,
    };
    (flags & libc::MSG_DONTWAIT == 0).then_some(len)
}

/// How many bytes a call that sends has sent, by its answer.
fn bytes_sent(call: &Call, answer: u64) -> u64 {
    /// Where the length of what was sent is, after the header of a message.
    const LENGTH_AT: usize = 56;
    match call.number() {
        libc::SYS_sendmmsg => {
            let messages = call.pointer::<[u64; 8]>(1);
            let len = |at: u64| messages.item(at).part::<u32>(LENGTH_AT).read();
            (0..answer).map(|at| u64::from(len(at).unwrap_or(0))).sum()
        }
        libc::SYS_shutdown => 0,
        _ => answer,
    }
}

/// The same call for a record lock, if it waits for that, without waiting.
fn at_once(call: &Call) -> Option<Call> {
    let command = match call.int(1) {
        libc::F_SETLKW => libc::F_SETLK,
        libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
        _ => return None,
    };
    // SAFETY: it says what is done, and is no pointer; the lock is used alike.
    Some(unsafe { call.with_word(1, command as u64) })
}
