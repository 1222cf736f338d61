//! Receiving from sockets: looking at what has arrived, and taking it.

use super::{OwnedFd, Sys, option, sys};

/// Where a look (`MSG_PEEK`) at what has arrived begins, bytes from the first that nobody has taken; -1: at that, and
/// looks do not move it. See `SO_PEEK_OFF` in `socket(7)`.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn peek_offset(socket: i32) -> Sys<i32> {
    option(socket, libc::SO_PEEK_OFF)
}

/// The same, to be changed: looks move it from then on, unless it is -1.
///
/// # Errors
/// As `setsockopt(2)`: EOPNOTSUPP of TCP before Linux 6.9.
pub fn set_peek_offset(socket: i32, offset: i32) -> Sys<()> {
    let (level, name, len) = (libc::SOL_SOCKET, libc::SO_PEEK_OFF, size_of::<i32>());
    // SAFETY: the kernel reads one number.
    unsafe { sys!(SYS_setsockopt, socket, level, name, &raw const offset, len) }.map(drop)
}

/// Whether urgent bytes are read like others (`SO_OOBINLINE`).
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set_urgent_inline(socket: i32, inline: bool) -> Sys<()> {
    let (level, name, len) = (libc::SOL_SOCKET, libc::SO_OOBINLINE, size_of::<i32>());
    let word = i32::from(inline);
    // SAFETY: the kernel reads one number.
    unsafe { sys!(SYS_setsockopt, socket, level, name, &raw const word, len) }.map(drop)
}

/// How many bytes of a TCP stream a look would find from where the last one ended, up to the next urgent one. It moves
/// where the next look begins.
///
/// # Errors
/// As `recv(2)`: EAGAIN, if there are none.
pub fn bytes_ahead(socket: i32) -> Sys<u64> {
    const MOST: u64 = 1 << 30;
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with MSG_TRUNC a TCP stream writes nothing: tcp(7).
    unsafe { sys!(SYS_recvfrom, socket, 0, MOST, flags, 0, 0) }
}

/// How many bytes a socket waits for before it gives any.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn least_received(socket: i32) -> Sys<i32> {
    option(socket, libc::SO_RCVLOWAT)
}

/// How many bytes a Unix socket of this kind may have sent that nobody has taken.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn send_buffer(socket: i32) -> Sys<i32> {
    option(socket, libc::SO_SNDBUF)
}

/// Whether a call that receives waits for a time only (`SO_RCVTIMEO`).
#[must_use]
pub fn receives_for_a_time(socket: i32) -> bool {
    let (mut time, mut len) = ([0_i64; 2], size_of::<[i64; 2]>() as u32);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
    // SAFETY: there is room for a `struct timeval`, and its length is told.
    let told = unsafe { sys!(SYS_getsockopt, socket, level, name, &raw mut time, &raw mut len) };
    told.is_ok() && time != [0; 2]
}

/// How many bytes of memory what has arrived takes, and how many it may take. Of Unix sockets that is the sender's.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn receive_memory(socket: i32) -> Sys<(u32, u32)> {
    const SO_MEMINFO: i32 = 55;
    let (mut all, mut len) = ([0_u32; 9], size_of::<[u32; 9]>() as u32);
    let level = libc::SOL_SOCKET;
    // SAFETY: there is room for so many numbers, and their length is told.
    unsafe { sys!(SYS_getsockopt, socket, level, SO_MEMINFO, all.as_mut_ptr(), &raw mut len) }?;
    Ok((all[0], all[1]))
}

/// How many bytes have arrived and were not taken.
///
/// # Errors
/// As `ioctl(2)`.
pub fn arrived(socket: i32) -> Sys<u64> {
    let mut bytes = 0_i32;
    // SAFETY: there is room for the answer.
    unsafe { sys!(SYS_ioctl, socket, libc::FIONREAD, &raw mut bytes) }?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// How much a pipe surely takes at once: all that it can hold, if it is empty.
///
/// # Errors
/// As `fcntl(2)`.
pub fn room_in_pipe(pipe: i32) -> Sys<u64> {
    if arrived(pipe)? > 0 {
        return Ok(0);
    }
    // SAFETY: nothing is read or written.
    unsafe { sys!(SYS_fcntl, pipe, libc::F_GETPIPE_SZ) }
}

/// How much a pipe that takes something surely takes at once beside what is in it, in whole pages: each byte there may have a page
/// of its own.
///
/// # Errors
/// As `fcntl(2)`.
pub fn room_left_in_pipe(pipe: i32) -> Sys<u64> {
    const PAGE: u64 = 4096;
    // SAFETY: nothing is read or written.
    let pages = unsafe { sys!(SYS_fcntl, pipe, libc::F_GETPIPE_SZ) }? / PAGE;
    Ok(pages.saturating_sub(arrived(pipe)?).max(1) * PAGE)
}

/// How much a socket surely takes at once: half of its buffer, if nothing waits to be sent. (The kernel counts what it
/// needs for itself.)
///
/// # Errors
/// As `ioctl(2)`.
pub fn room_in_socket(socket: i32) -> Sys<u64> {
    let room = if unsent(socket)? > 0 { 0 } else { send_buffer(socket)? / 2 };
    Ok(u64::try_from(room).unwrap_or(0))
}

/// How much a socket takes at once beside what waits to be sent there: half of its buffer in all (the kernel counts what it needs for
/// itself), and of TCP no more than may wait unsent (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// As `ioctl(2)`: ENOTTY of kinds that can't say what waits.
pub fn room_left_in_socket(socket: i32) -> Sys<u64> {
    let room = (send_buffer(socket)? / 2).saturating_sub(unsent(socket)?);
    Ok(u64::try_from(room).unwrap_or(0).min(most_unsent(socket)))
}

/// How much waits to be sent there, bytes.
fn unsent(socket: i32) -> Sys<i32> {
    let mut bytes = 0;
    // SAFETY: there is room for the answer.
    unsafe { sys!(SYS_ioctl, socket, libc::TIOCOUTQ, &raw mut bytes) }?;
    Ok(bytes)
}

/// How much of a TCP connection may wait unsent, bytes.
fn most_unsent(socket: i32) -> u64 {
    let (mut most, mut len) = (0_u32, size_of::<u32>() as u32);
    let (level, name) = (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT);
    // SAFETY: there is room for one number, and its length is told.
    let told = unsafe { sys!(SYS_getsockopt, socket, level, name, &raw mut most, &raw mut len) };
    // 0: it was not set.
    if told.is_ok() && most > 0 { u64::from(most) } else { u64::MAX }
}

/// How long sending and connecting may wait (`SO_SNDTIMEO`), as a `struct timeval`: seconds and microseconds; 0: for ever.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn send_limit(socket: i32) -> Sys<[i64; 2]> {
    time_option(socket, libc::SO_SNDTIMEO)
}

/// How long receiving may wait (`SO_RCVTIMEO`), likewise.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn receive_limit(socket: i32) -> Sys<[i64; 2]> {
    time_option(socket, libc::SO_RCVTIMEO)
}

fn time_option(socket: i32, name: i32) -> Sys<[i64; 2]> {
    let (mut time, mut len) = ([0_i64; 2], size_of::<[i64; 2]>() as u32);
    let level = libc::SOL_SOCKET;
    // SAFETY: there is room for a `struct timeval`, and its length is told.
    unsafe { sys!(SYS_getsockopt, socket, level, name, &raw mut time, &raw mut len) }?;
    Ok(time)
}

/// How long sending may wait, to be changed.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set_send_limit(socket: i32, time: [i64; 2]) -> Sys<()> {
    let (level, name, len) = (libc::SOL_SOCKET, libc::SO_SNDTIMEO, size_of::<[i64; 2]>());
    // SAFETY: the kernel reads a `struct timeval`.
    unsafe { sys!(SYS_setsockopt, socket, level, name, &raw const time, len) }.map(drop)
}

/// The length of the message that the next look would find, which moves the offset of looks on.
///
/// # Errors
/// As `recv(2)`: EAGAIN if there is none.
pub fn look_at_message(socket: i32) -> Sys<u64> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let mut none = 0_u8;
    // SAFETY: no byte of the message is written.
    unsafe { sys!(SYS_recvfrom, socket, &raw mut none, 0, flags, 0, 0) }
}

/// Takes a message, or up to so many bytes of a stream, and passes them on: how many. Descriptors among them are closed.
///
/// # Errors
/// As `recv(2)`: EAGAIN if there is nothing.
pub fn take(socket: i32, most: u64, to: impl FnOnce(&[u8])) -> Sys<u64> {
    let mut taken = [0_u8; 16 << 10];
    let len = most.min(taken.len() as u64);
    let (at, flags) = (taken.as_mut_ptr(), libc::MSG_DONTWAIT);
    // SAFETY: there is room for so many bytes.
    let n = unsafe { sys!(SYS_recvfrom, socket, at, len, flags, 0, 0) }?;
    to(taken.get(..n as usize).unwrap_or_default());
    Ok(n)
}

/// A descriptor that `poll(2)` tells of once for each time that something arrives at a socket.
///
/// # Errors
/// As `epoll_create(2)` and `epoll_ctl(2)`.
pub fn watch_arrivals(socket: i32) -> Sys<OwnedFd> {
    // SAFETY: it has no pointer.
    let made = unsafe { sys!(SYS_epoll_create1, libc::EPOLL_CLOEXEC) }?;
    let watch = OwnedFd::of(made as i32).raised()?;
    let events = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
    let mut event = libc::epoll_event { events: events as u32, u64: 0 };
    let (number, add) = (watch.number(), libc::EPOLL_CTL_ADD);
    // SAFETY: the kernel reads the structure.
    unsafe { sys!(SYS_epoll_ctl, number, add, socket, &raw mut event) }?;
    Ok(watch)
}

/// Forgets what such a descriptor has to tell.
pub fn forget_arrivals(watch: &OwnedFd) {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: there is room for one event.
    let _ = unsafe { sys!(SYS_epoll_pwait, watch.number(), &raw mut event, 1, 0, 0, 8) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::kernel::Errno;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn what_was_looked_at_is_there_until_it_is_taken() {
        let (mut one, other) = UnixStream::pair().unwrap();
        let fd = other.as_raw_fd();
        assert_eq!(peek_offset(fd), Ok(-1));
        set_peek_offset(fd, 0).unwrap();
        one.write_all(b"hello").unwrap();
        assert_eq!(arrived(fd), Ok(5));
        assert_eq!(take(fd, 3, |_| {}), Ok(3));
        assert_eq!((peek_offset(fd), arrived(fd)), (Ok(0), Ok(2)));
        set_peek_offset(fd, 2).unwrap();
        assert_eq!(take(fd, 9, |_| {}), Ok(2));
        // What is taken moves the offset back.
        assert_eq!((peek_offset(fd), take(fd, 9, |_| {})), (Ok(0), Err(Errno::AGAIN)));
    }

    #[test]
    fn a_message_is_looked_at_as_a_whole() {
        let (one, other) = UnixDatagram::pair().unwrap();
        let fd = other.as_raw_fd();
        assert_eq!(look_at_message(fd), Err(Errno::AGAIN));
        one.send(b"hello").unwrap();
        assert_eq!(look_at_message(fd), Ok(5));
        assert_eq!(take(fd, 2, |_| {}), Ok(2));
        assert_eq!(take(fd, 2, |_| {}), Err(Errno::AGAIN));
    }

    #[test]
    fn an_arrival_is_told_once() {
        let (mut one, other) = UnixStream::pair().unwrap();
        let watch = watch_arrivals(other.as_raw_fd()).unwrap();
        let tells = || super::super::is_ready(watch.number(), libc::POLLIN);
        assert!(!tells());
        for _ in 0..2 {
            one.write_all(b"x").unwrap();
            assert!(tells());
            forget_arrivals(&watch);
            assert!(!tells());
        }
    }
}
