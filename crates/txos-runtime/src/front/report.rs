//! What happened, in words and numbers, for the functions of txos.h.
#![allow(unsafe_code)] // structures whose size the program tells

use std::ffi::{CStr, c_char};

use crate::tx::Failure;
pub use crate::tx::reason;

/// Counters of a thread, as txos.h explains them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // see there
pub struct Counters {
    pub begun: u64,
    pub committed: u64,
    pub aborted: u64,
    pub restarted: u64,
    pub calls: u64,
    pub trapped: u64,
    pub unsupported: u64,
    pub short_cuts: u64,
}

/// `struct txos_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    size: u32,
    version: u32,
    counters: [u64; 8],
}

impl From<Counters> for Stats {
    fn from(c: Counters) -> Stats {
        let counters = [
            c.begun,
            c.committed,
            c.aborted,
            c.restarted,
            c.calls,
            c.trapped,
            c.unsupported,
            c.short_cuts,
        ];
        Stats { size: size_of::<Stats>() as u32, version: 1, counters }
    }
}

/// `struct txos_abort`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    size: u32,
    reason: u32,
    error: i32,
    pid: i32,
    what: [u8; 256],
    path: [u8; 4096],
}

impl From<&Failure> for Abort {
    fn from(failure: &Failure) -> Abort {
        let mut abort = Abort {
            size: size_of::<Abort>() as u32,
            reason: failure.reason,
            error: failure.errno,
            pid: failure.pid,
            what: [0; 256],
            path: [0; 4096],
        };
        put(&mut abort.what, failure.what.as_bytes());
        put(&mut abort.path, &failure.path);
        abort
    }
}

/// As much of it as fits before a final zero.
fn put(room: &mut [u8], text: &[u8]) {
    let length = text.len().min(room.len() - 1);
    room[..length].copy_from_slice(&text[..length]);
}

/// Fills in a structure of the program's whose first word says how large it is; an older, shorter
/// one gets what it has room for.
///
/// # Safety
/// `out` is null or points to at least as many bytes as its first word says.
pub unsafe fn fill<T: Copy>(out: *mut T, value: &T, least: usize) -> Result<(), i32> {
    if out.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller says so; what is beyond the size stays as it is.
    unsafe {
        let size = out.cast::<u32>().read_unaligned() as usize;
        if size < least {
            return Err(libc::EINVAL);
        }
        let from = std::ptr::from_ref(value).cast::<u8>();
        let length = size.min(size_of::<T>());
        out.cast::<u8>().add(4).copy_from_nonoverlapping(from.add(4), length - 4);
    }
    Ok(())
}

/// What the last failure was.
#[derive(Debug, Default)]
pub struct Report {
    /// Why the last transaction was aborted.
    pub abort: Failure,
    /// What that one did that could not be rolled back; empty if that is nothing.
    pub live: String,
    /// The same by kind, with the paths if it were paths.
    pub live_by_kind: Vec<(String, Vec<Vec<u8>>)>,
    /// What the last failed function said, with a final zero.
    words: Vec<u8>,
}

impl Report {
    /// Something failed.
    pub fn say(&mut self, words: &str) {
        self.words.clear();
        self.words.extend(words.bytes().filter(|&byte| byte != 0));
        self.words.push(0);
    }

    /// Whether a failed function has said something.
    pub fn has_words(&self) -> bool {
        self.words.len() > 1
    }

    /// What the last failure was, for C.
    pub fn words(&self) -> *const c_char {
        CStr::from_bytes_with_nul(&self.words).unwrap_or(c"no error").as_ptr()
    }
}
