//! Reading the memory of a stopped process.
//!
//! # Safety
//!
//! `process_vm_readv(2)` writes only into the local buffer whose length it is given, and fails
//! with an errno for whatever the remote address is.

#![allow(unsafe_code)]

use rustix::io::Errno;

/// Longest path the kernel takes, with its terminating zero.
pub const PATH_MAX: usize = 4096;

const PAGE: usize = 4096;

/// How much of a path is read at first.
const FIRST: usize = 256;

/// Reads up to `into.len()` bytes at `address`; gives how many could be read.
///
/// # Errors
/// `EFAULT` if nothing is mapped there, `ESRCH` or `EPERM` for the process.
pub fn read(pid: u32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote =
        libc::iovec { iov_base: address as usize as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: one local and one remote segment of the same length; see the module's heading.
    let got = unsafe {
        libc::process_vm_readv(pid.cast_signed(), &raw const local, 1, &raw const remote, 1, 0)
    };
    usize::try_from(got)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::FAULT))
}

/// Reads exactly `N` bytes.
///
/// # Errors
/// `EFAULT` if not all of them are mapped; else as [`read`].
pub fn read_exact<const N: usize>(pid: u32, address: u64) -> Result<[u8; N], Errno> {
    let mut bytes = [0; N];
    if read(pid, address, &mut bytes)? == N { Ok(bytes) } else { Err(Errno::FAULT) }
}

/// Reads a C string of at most [`PATH_MAX`] bytes into `into` (replacing what was there), page by
/// page, so that a string just before unmapped memory is read whole.
///
/// # Errors
/// `EFAULT`, and `ENAMETOOLONG` if there is no end.
pub fn read_path(pid: u32, address: u64, into: &mut Vec<u8>) -> Result<(), Errno> {
    into.clear();
    let mut at = address;
    while into.len() < PATH_MAX {
        let to_page_end = PAGE - (at as usize & (PAGE - 1));
        // Most paths are short; a second read of the same page is cheaper than always taking it all.
        let want = to_page_end.min(if at == address { FIRST } else { PATH_MAX - into.len() });
        let start = into.len();
        into.resize(start + want, 0);
        let got = read(pid, at, into.get_mut(start..).unwrap_or_default())?;
        into.truncate(start + got);
        let piece = into.get(start..).unwrap_or_default();
        if let Some(end) = piece.iter().position(|&b| b == 0) {
            into.truncate(start + end);
            return Ok(());
        }
        if got < want {
            return Err(Errno::FAULT);
        }
        at += got as u64;
    }
    Err(Errno::NAMETOOLONG)
}
