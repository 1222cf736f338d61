//! Looking at what pipes hold, and taking it.

use std::time::Duration;

use super::{Errno, OwnedFd, Sys, check, events, is_ready, move_pair_high, sys};
use crate::raw;

/// No look copies more, bytes.
const LOOK_MAX: usize = 4 << 20;

/// `fcntl(2)`: how many bytes a pipe can hold.
///
/// # Errors
/// EBADF: it is no pipe.
pub fn pipe_size(pipe: i32) -> Sys<u64> {
    // SAFETY: nothing is read or written.
    unsafe { sys!(SYS_fcntl, pipe, libc::F_GETPIPE_SZ) }
}

/// What a look at a pipe has found.
#[derive(Debug)]
pub struct InPipe {
    /// What it holds, from the front on.
    pub bytes: Vec<u8>,
    /// It may have no room for more.
    pub full: bool,
    /// Whether somebody has it open for writing; `None`: the look does not tell.
    pub writers: Option<bool>,
}

/// A pipe of the library's own, to which what other pipes hold is copied. It is empty but for the time of a look.
#[derive(Debug)]
pub struct Scratch {
    reads: OwnedFd,
    writes: OwnedFd,
    size: u64,
}

impl Scratch {
    /// Makes one.
    ///
    /// # Errors
    /// As `pipe2(2)`.
    pub fn new() -> Sys<Scratch> {
        Scratch::with(libc::O_NONBLOCK)
    }

    /// Makes one to which `tee(2)` copies, and waits as its own flags and the other pipe's have it.
    ///
    /// # Errors
    /// As `pipe2(2)`.
    pub fn that_waits() -> Sys<Scratch> {
        Scratch::with(0)
    }

    fn with(flags: i32) -> Sys<Scratch> {
        let (mut pair, flags) = ([0_i32; 2], libc::O_CLOEXEC | flags);
        // SAFETY: there is room for both numbers.
        unsafe { sys!(SYS_pipe2, pair.as_mut_ptr(), flags) }?;
        let [reads, writes] = move_pair_high(pair)?;
        let size = pipe_size(reads.number())?;
        Ok(Scratch { reads, writes, size })
    }

    /// Where it is written to.
    #[must_use]
    pub fn input(&self) -> i32 {
        self.writes.number()
    }

    /// Takes what it holds, or one packet of it.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn next(&self, bytes: &mut [u8]) -> Sys<usize> {
        self.read(bytes)
    }

    /// Gives it exactly this size: as many pieces fill it as fill the other one.
    ///
    /// # Errors
    /// As `fcntl(2)`; EPERM also if it has another size then.
    pub fn resize(&mut self, size: u64) -> Sys<()> {
        if self.size == size {
            return Ok(());
        }
        // SAFETY: nothing is read or written.
        self.size = unsafe { sys!(SYS_fcntl, self.reads.number(), libc::F_SETPIPE_SZ, size) }?;
        if self.size == size { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Looks at what a pipe of the same size holds, which stays there.
    ///
    /// # Errors
    /// As `tee(2)`; EOPNOTSUPP of packets, which a look can't tell apart.
    pub fn look(&mut self, pipe: i32) -> Sys<InPipe> {
        let none = |writers| InPipe { bytes: Vec::new(), full: false, writers: Some(writers) };
        let count = match self.copy(pipe, 1 << 30) {
            Err(Errno::AGAIN) => return Ok(none(true)),
            Ok(0) => return Ok(none(false)),
            done => done?,
        };
        let full = !is_ready(self.writes.number(), libc::POLLOUT);
        let read = self.drain(count as usize).and_then(|bytes| {
            self.has_no_packet(pipe, bytes.len())?;
            Ok(bytes)
        });
        match read {
            Ok(bytes) => Ok(InPipe { bytes, full, writers: None }),
            Err(errno) => {
                self.empty();
                Err(errno)
            }
        }
    }

    /// Takes up to so many bytes from a pipe; what they were.
    ///
    /// # Errors
    /// As `splice(2)`: EAGAIN if there is nothing.
    pub fn take(&mut self, pipe: i32, most: usize) -> Sys<Vec<u8>> {
        let count = loop {
            let (to, flags) = (self.writes.number(), libc::SPLICE_F_NONBLOCK);
            // SAFETY: it has no pointers.
            match unsafe { sys!(SYS_splice, pipe, 0, to, 0, most, flags) } {
                Err(Errno::INTR) => {}
                done => break done? as usize,
            }
        };
        let mut bytes = vec![0; count];
        let done = self.read(&mut bytes);
        self.empty();
        bytes.truncate(done?);
        // They are taken in any case.
        bytes.resize(count, 0);
        Ok(bytes)
    }

    /// Copies the beginning of what a pipe holds, up to so many bytes.
    fn copy(&self, pipe: i32, most: u64) -> Sys<u64> {
        loop {
            let (to, flags) = (self.writes.number(), libc::SPLICE_F_NONBLOCK);
            // SAFETY: it has no pointers.
            match unsafe { sys!(SYS_tee, pipe, to, most, flags) } {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    fn drain(&self, count: usize) -> Sys<Vec<u8>> {
        if count > LOOK_MAX {
            return Err(Errno::OPNOTSUPP);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(count).map_err(|_| Errno::NOMEM)?;
        bytes.resize(count, 0);
        // A read ends with a packet: of several, this is not all.
        if self.read(&mut bytes)? == count { Ok(bytes) } else { Err(Errno::OPNOTSUPP) }
    }

    /// What one read has brought ends with a packet if a read that is short of its last byte drops that. The writer's flags,
    /// which nobody else sees, make packets, so each look asks.
    fn has_no_packet(&self, pipe: i32, count: usize) -> Sys<()> {
        // Of one byte it makes no difference.
        if count < 2 {
            return Ok(());
        }
        let count = match self.copy(pipe, count as u64) {
            // Somebody has taken it in this instant.
            Err(Errno::AGAIN) => return Ok(()),
            count => count? as usize,
        };
        let Some(before) = count.checked_sub(1).filter(|&n| n > 0) else {
            self.empty();
            return Ok(());
        };
        let mut bytes = vec![0; before];
        let whole = self.read(&mut bytes) == Ok(before) && self.read(&mut [0]) == Ok(1);
        if whole { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    fn read(&self, to: &mut [u8]) -> Sys<usize> {
        loop {
            let words = [self.reads.number() as u64, to.as_mut_ptr() as u64, to.len() as u64];
            let [fd, at, len] = words;
            // SAFETY: there is room for so many bytes.
            match check(unsafe { raw::syscall(libc::SYS_read, [fd, at, len, 0, 0, 0]) }) {
                Err(Errno::INTR) => {}
                done => return done.map(|n| n as usize),
            }
        }
    }

    /// Drops what is left in it.
    fn empty(&self) {
        let mut rest = [0; 4096];
        while self.read(&mut rest).is_ok_and(|n| n > 0) {}
    }
}

/// Whether nobody has a pipe open for writing any more, as `poll(2)` tells.
#[must_use]
pub fn is_hung_up(pipe: i32) -> bool {
    events(pipe, 0, Duration::ZERO).is_ok_and(|found| found & libc::POLLHUP != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_look_leaves_everything_in_the_pipe() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let mut scratch = Scratch::new().unwrap();
        let fd = reader.as_raw_fd();
        scratch.resize(pipe_size(fd).unwrap()).unwrap();
        let found = scratch.look(fd).unwrap();
        assert_eq!((found.bytes.len(), found.writers), (0, Some(true)));
        writer.write_all(b"hello").unwrap();
        for _ in 0..3 {
            let found = scratch.look(fd).unwrap();
            assert_eq!((&found.bytes[..], found.full, found.writers), (&b"hello"[..], false, None));
        }
        assert_eq!(scratch.take(fd, 3), Ok(b"hel".to_vec()));
        assert_eq!(scratch.look(fd).unwrap().bytes, b"lo");
        assert!(!is_hung_up(fd));
        drop(writer);
        assert!(is_hung_up(fd));
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "lo");
        assert_eq!(scratch.look(fd).unwrap().writers, Some(false));
    }

    #[test]
    fn a_pipe_is_full_by_its_pieces() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut scratch = Scratch::new().unwrap();
        let fd = reader.as_raw_fd();
        let size = pipe_size(fd).unwrap();
        scratch.resize(size).unwrap();
        // Each of these takes a page.
        for piece in 1..=size / 4096 {
            writer.write_all(&[7; 2049]).unwrap();
            assert_eq!(scratch.look(fd).unwrap().full, piece == size / 4096, "{piece}");
        }
        assert!(!is_ready(writer.as_raw_fd(), libc::POLLOUT));
    }

    #[test]
    fn packets_are_not_looked_at() {
        let mut pair = [0; 2];
        // SAFETY: there is room for both numbers.
        assert_eq!(unsafe { libc::pipe2(pair.as_mut_ptr(), libc::O_DIRECT) }, 0);
        let [reads, writes] = pair.map(OwnedFd::of);
        let mut scratch = Scratch::new().unwrap();
        super::super::write(writes.number(), b"packet").unwrap();
        assert_eq!(scratch.look(reads.number()).map(drop), Err(Errno::OPNOTSUPP));
        // Also those of one byte, by the writer's flag alone.
        let (reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: nothing is read or written.
        assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT) }, 0);
        writer.write_all(b"a").unwrap();
        for more in [&b"bcd"[..], b"e"] {
            writer.write_all(more).unwrap();
            assert_eq!(scratch.look(reader.as_raw_fd()).map(drop), Err(Errno::OPNOTSUPP));
        }
        // And it is there still.
        assert_eq!(scratch.take(reads.number(), 100).map(|bytes| bytes.len()), Ok(6));
    }
}
