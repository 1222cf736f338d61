//! Sending to what is outside: pipes, terminals, sockets.

use std::time::Duration;

use super::{Errno, Sys, sys};

/// A message, as `struct msghdr` has it: address, buffers, control data, flags.
type MessageHeader = [u64; 7];

/// What of `events` has happened to a descriptor within a time, and what is reported unasked: `POLLERR`, `POLLHUP`.
///
/// # Errors
/// As `poll(2)`.
pub fn events(fd: i32, events: i16, within: Duration) -> Sys<i16> {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    let milliseconds = i32::try_from(within.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the kernel reads and writes the one structure.
    unsafe { sys!(SYS_poll, &raw mut one, 1, milliseconds) }.map(|_| one.revents)
}

/// Waits until something has happened to one of several descriptors, or for a time.
///
/// # Errors
/// As `poll(2)`.
pub fn any_event(all: &mut [libc::pollfd], within: Duration) -> Sys<()> {
    let milliseconds = i32::try_from(within.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the kernel reads and writes so many structures.
    unsafe { sys!(SYS_poll, all.as_mut_ptr(), all.len(), milliseconds) }.map(drop)
}

/// What an epoll descriptor looks at: the numbers when they were added, events and data. See `proc_pid_fdinfo(5)`.
///
/// # Errors
/// If /proc can't be read.
pub fn interests(epoll: i32) -> Sys<Vec<(i32, libc::epoll_event)>> {
    let text = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{epoll}"));
    let text = text.map_err(|_| Errno::IO)?;
    let interest = |line: &str| {
        let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut after = |name| words.find(|&word| word == name).and_then(|_| words.next());
        let events = u32::from_str_radix(after("events:")?, 16).ok()?;
        let data = u64::from_str_radix(after("data:")?, 16).ok()?;
        Some((number, libc::epoll_event { events, u64: data }))
    };
    Ok(text.lines().filter_map(interest).collect())
}

/// `pwritev2(2)` at the end of a stream, with `RWF_NOWAIT`: as much as there is room for.
///
/// # Errors
/// As the system call: EAGAIN if there is no room, EOPNOTSUPP if the object can't say.
pub fn write_now(fd: i32, bytes: &[u8]) -> Sys<usize> {
    const HERE: i64 = -1;
    let buffer = [bytes.as_ptr() as u64, bytes.len() as u64];
    // SAFETY: the kernel reads the bytes, and the one structure that leads to them.
    unsafe { sys!(SYS_pwritev2, fd, buffer.as_ptr(), 1, HERE, HERE, libc::RWF_NOWAIT) }
        .map(|n| n as usize)
}

/// `sendmsg(2)`, with `MSG_DONTWAIT`. `to` and `control` may be empty.
///
/// # Errors
/// As the system call.
pub fn send_now(fd: i32, bytes: &[u8], flags: i32, to: &[u8], control: &[u8]) -> Sys<usize> {
    let at = |bytes: &[u8]| if bytes.is_empty() { 0 } else { bytes.as_ptr() as u64 };
    let buffer = [bytes.as_ptr() as u64, bytes.len() as u64];
    let header: MessageHeader =
        [at(to), to.len() as u64, buffer.as_ptr() as u64, 1, at(control), control.len() as u64, 0];
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the kernel reads the header, and what it leads to: all of it lives until the answer.
    unsafe { sys!(SYS_sendmsg, fd, header.as_ptr(), flags) }.map(|n| n as usize)
}

/// `shutdown(2)`.
///
/// # Errors
/// As the system call.
pub fn shut_down(fd: i32, how: i32) -> Sys<()> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_shutdown, fd, how) }.map(drop)
}

/// Whether a descriptor is of a terminal.
#[must_use]
pub fn is_terminal(fd: i32) -> bool {
    let mut settings = std::mem::MaybeUninit::<libc::termios2>::uninit();
    // SAFETY: there is room for the answer.
    unsafe { sys!(SYS_ioctl, fd, libc::TCGETS2, settings.as_mut_ptr()) }.is_ok()
}

/// An option of a socket's own level that is a number.
pub(super) fn option(fd: i32, option: i32) -> Sys<i32> {
    let (mut value, mut len) = (0_i32, size_of::<i32>() as u32);
    let level = libc::SOL_SOCKET;
    // SAFETY: there is room for one number, and its length is told.
    unsafe { sys!(SYS_getsockopt, fd, level, option, &raw mut value, &raw mut len) }?;
    Ok(value)
}

/// Domain and type of a socket.
///
/// # Errors
/// ENOTSOCK.
pub fn socket_kind(fd: i32) -> Sys<(i32, i32)> {
    Ok((option(fd, libc::SO_DOMAIN)?, option(fd, libc::SO_TYPE)?))
}

/// Whether a connection is one of TCP, or of several (MPTCP).
#[must_use]
pub fn is_tcp(fd: i32) -> bool {
    matches!(option(fd, libc::SO_PROTOCOL), Ok(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP))
}

/// The process that has made a Unix socket's other end, or listened there; 0: it is not known.
#[must_use]
pub fn peer_process(fd: i32) -> u32 {
    let mut peer = [0_u32; 3];
    let mut len = size_of::<[u32; 3]>() as u32;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: there is room for the structure, and its length is told.
    let told = unsafe { sys!(SYS_getsockopt, fd, level, option, peer.as_mut_ptr(), &raw mut len) };
    told.map_or(0, |_| peer[0])
}

/// Whether the process is known to have one thread only.
#[must_use]
pub fn has_one_thread() -> bool {
    // It stays as it is when other threads have ended.
    has_had_one_thread() || super::threads() == Some(1)
}

/// Whether the C library knows that the process has never had another thread.
#[must_use]
pub fn has_had_one_thread() -> bool {
    match super::single_threaded() {
        0 => false,
        // SAFETY: it is a `char` of the C library's, which stays.
        flag => (unsafe { std::ptr::read_volatile(flag as *const libc::c_char) }) != 0,
    }
}

/// What a failed send is to who sends again: to be waited for, or an end.
#[must_use]
pub fn has_no_room(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::kernel::OwnedFd;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn a_full_pipe_takes_nothing_and_says_so() {
        let (reader, writer) = std::io::pipe().unwrap();
        let fd = writer.as_raw_fd();
        let block = [7; 4096];
        let mut sent = 0;
        let full = loop {
            match write_now(fd, &block) {
                Ok(n) => sent += n,
                Err(errno) => break errno,
            }
        };
        assert!(has_no_room(full), "{full:?}");
        assert!(sent >= 4096, "{sent}");
        assert_eq!(events(fd, libc::POLLOUT, Duration::ZERO), Ok(0));
        drop(reader);
        let gone = events(fd, libc::POLLOUT, Duration::ZERO).unwrap();
        assert!(gone & libc::POLLERR != 0, "{gone:#x}");
    }

    #[test]
    fn an_epoll_descriptor_s_interests_are_told() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let mut event = libc::epoll_event { events: libc::EPOLLOUT as u32, u64: 0xfeed_beef_0102 };
        // SAFETY: it has no pointers, or one to a structure that lives.
        let epoll = unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            let added =
                libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, writer.as_raw_fd(), &raw mut event);
            assert_eq!(added, 0);
            OwnedFd::of(epoll)
        };
        let all = interests(epoll.number()).unwrap();
        assert_eq!(all.len(), 1);
        let (number, told) = all[0];
        let (events, data) = (told.events as i32, told.u64);
        assert_eq!((number, data), (writer.as_raw_fd(), 0xfeed_beef_0102));
        assert!(events & libc::EPOLLOUT != 0, "{events:#x}");
    }

    #[test]
    fn a_pair_of_sockets_is_the_process_s_own() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = one.as_raw_fd();
        assert_eq!(socket_kind(fd), Ok((libc::AF_UNIX, libc::SOCK_STREAM)));
        assert_eq!(peer_process(fd), std::process::id());
        assert_eq!(send_now(fd, b"word", 0, b"", b""), Ok(4));
        assert!(!is_terminal(fd));
        shut_down(fd, libc::SHUT_WR).unwrap();
        let failed = send_now(fd, b"word", libc::MSG_NOSIGNAL, b"", b"");
        assert_eq!(failed, Err(Errno::PIPE));
        drop(OwnedFd::of(other.into_raw_fd()));
    }
}
