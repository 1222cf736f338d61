//! Reading, writing and copying what files hold, and their sizes.

use super::{CPath, Errno, Sys, step, sys};
use crate::user::Writable;

/// `lseek(2)`.
///
/// # Errors
/// As the system call.
#[inline]
pub fn seek(fd: i32, offset: i64, whence: i32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_lseek, fd, offset, whence) }
}

/// `pread64(2)` into a buffer of ours.
///
/// # Errors
/// As the system call.
pub fn pread(fd: i32, buffer: &mut [u8], at: u64) -> Sys<usize> {
    loop {
        // SAFETY: the kernel writes no more than the buffer has room for.
        match unsafe { sys!(SYS_pread64, fd, buffer.as_mut_ptr(), buffer.len(), at) } {
            Err(Errno::INTR) => {}
            other => return other.map(|n| n as usize),
        }
    }
}

/// `pread64(2)` into a buffer of the program's, from its place `from` on.
///
/// # Errors
/// As the system call.
pub fn pread_to(fd: i32, buffer: Writable, from: usize, at: u64) -> Sys<usize> {
    let room = buffer.slice().after(from as u64);
    loop {
        // SAFETY: the program wants the answer there, and the kernel writes no more than there is room for.
        match unsafe { sys!(SYS_pread64, fd, room.address(), room.len(), at) } {
            Err(Errno::INTR) => {}
            other => return other.map(|n| n as usize),
        }
    }
}

/// `write(2)`: as much as goes at once.
///
/// # Errors
/// As the system call.
pub fn write(fd: i32, bytes: &[u8]) -> Sys<usize> {
    // SAFETY: the kernel reads the buffer.
    unsafe { sys!(SYS_write, fd, bytes.as_ptr(), bytes.len()) }.map(|n| n as usize)
}

/// `pwrite64(2)`: as much as goes at once.
fn pwrite(fd: i32, bytes: &[u8], at: u64) -> Sys<u64> {
    // SAFETY: the kernel reads the buffer.
    unsafe { sys!(SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), at) }
}

/// Writes a whole buffer at an offset.
///
/// # Errors
/// As `pwrite64(2)`; ENOSPC if nothing could be written.
pub fn pwrite_all(fd: i32, mut bytes: &[u8], mut at: u64) -> Sys<()> {
    while !bytes.is_empty() {
        match step("staged pwrite", || pwrite(fd, bytes, at)) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => {
                bytes = bytes.get(n as usize..).unwrap_or_default();
                at += n;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// `truncate(2)`.
///
/// # Errors
/// As the system call.
pub fn truncate(path: &[u8], size: u64) -> Sys<u64> {
    // SAFETY: the path ends with its zero.
    CPath::with(path, |p| unsafe { sys!(SYS_truncate, p.at(), size) })
}

/// `ftruncate(2)`.
///
/// # Errors
/// As the system call.
pub fn ftruncate(fd: i32, size: u64) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_ftruncate, fd, size) }
}

/// `fdatasync(2)`.
///
/// # Errors
/// As the system call.
pub fn fdatasync(fd: i32) -> Sys<()> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_fdatasync, fd) }.map(drop)
}

/// `ioctl(FICLONE)`: one file holds what the other does, sharing its blocks.
///
/// # Errors
/// As the system call.
pub fn clone_file(to: i32, from: i32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_ioctl, to, libc::FICLONE, from) }
}

/// `ioctl(FICLONERANGE)`: `range` is its structure.
///
/// # Errors
/// As the system call.
pub fn clone_range(to: i32, range: &[u64; 4]) -> Sys<u64> {
    // SAFETY: the kernel reads the structure.
    unsafe { sys!(SYS_ioctl, to, FICLONERANGE, range.as_ptr()) }
}

/// The request of [`clone_range`].
pub const FICLONERANGE: u64 = 0x4020_940d;

/// Whether one of these events of `poll(2)` is there, or an error.
#[must_use]
pub fn is_ready(fd: i32, events: i16) -> bool {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: the kernel reads and writes the one structure.
    let found = unsafe { sys!(SYS_poll, &raw mut one, 1, 0) };
    found != Ok(0)
}

/// Copies what a file holds into an empty one, sharing blocks where the file system can and leaving
/// holes as they are.
///
/// # Errors
/// As the system calls.
pub fn copy_content(from: i32, to: i32, size: u64) -> Sys<()> {
    if size == 0 || step("staged ficlone", || clone_file(to, from)).is_ok() {
        return Ok(());
    }
    let mut at = 0;
    while at < size {
        let data = match seek(from, at as i64, libc::SEEK_DATA) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let hole = seek(from, data as i64, libc::SEEK_HOLE).unwrap_or(size).min(size);
        copy_range(from, to, data, hole)?;
        at = hole.max(data + 1);
    }
    step("staged ftruncate", || ftruncate(to, size)).map(drop)
}

/// `copy_file_range(2)`: moves both offsets on by what was copied.
fn copy_some(from: (i32, &mut u64), to: (i32, &mut u64), most: u64) -> Sys<u64> {
    let (source, target) = (std::ptr::from_mut(from.1), std::ptr::from_mut(to.1));
    // SAFETY: the kernel reads and writes both offsets.
    unsafe { sys!(SYS_copy_file_range, from.0, source, to.0, target, most, 0) }
}

fn copy_range(from: i32, to: i32, start: u64, end: u64) -> Sys<()> {
    let (mut source, mut target) = (start, start);
    while source < end {
        let want = (end - source).min(1 << 30);
        let copied =
            step("staged copy", || copy_some((from, &mut source), (to, &mut target), want));
        match copied {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF) => {
                break;
            }
            Err(e) => return Err(e),
        }
    }
    let mut buffer = vec![0u8; 1 << 17];
    while source < end {
        let want = buffer.len().min(usize::try_from(end - source).unwrap_or(usize::MAX));
        let n = pread(from, &mut buffer[..want], source)?;
        if n == 0 {
            break;
        }
        pwrite_all(to, &buffer[..n], source)?;
        source += n as u64;
    }
    Ok(())
}

/// Locks or unlocks bytes of a file for an open file description (`F_OFD_SETLKW` in fcntl(2)), and waits for that.
/// `kind`: `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
///
/// # Errors
/// As fcntl(2).
pub fn lock_bytes(fd: i32, kind: i32, from: u64, len: u64) -> Sys<()> {
    lock_bytes_by(libc::F_OFD_SETLKW, fd, kind, from, len)
}

/// The same without waiting (`F_OFD_SETLK`).
///
/// # Errors
/// As fcntl(2): EAGAIN if another one has a lock there.
pub fn lock_bytes_at_once(fd: i32, kind: i32, from: u64, len: u64) -> Sys<()> {
    lock_bytes_by(libc::F_OFD_SETLK, fd, kind, from, len)
}

fn lock_bytes_by(command: i32, fd: i32, kind: i32, from: u64, len: u64) -> Sys<()> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: from as i64,
        l_len: len as i64,
        l_pid: 0,
    };
    loop {
        // SAFETY: the kernel reads the lock.
        match unsafe { sys!(SYS_fcntl, fd, command, &raw const lock) } {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}
