//! Transactions inside a program: the functions of `txos.h`, of the library that the program was
//! started with.
//!
//! # Safety
//!
//! Unsafe here is looking up functions by name, and calling them as the header declares them. None
//! takes a pointer, and the one that gives one gives a text of this thread that stays until its next
//! transaction. `sys_xbegin` returns twice only with `TX_RESTART`, which is not used.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::io;

/// `TX_DURABLE`.
pub const DURABLE: i32 = 0x02;
/// `TX_NONBLOCK`.
pub const NONBLOCK: i32 = 0x10;

/// The library's functions.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    begin: unsafe extern "C" fn(c_int, u64) -> c_int,
    end: unsafe extern "C" fn() -> c_int,
    abort: unsafe extern "C" fn(c_int),
    why: unsafe extern "C" fn() -> *const c_char,
}

fn function(name: &CStr) -> Option<*mut libc::c_void> {
    // SAFETY: dlsym with a name that ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Library {
    /// That of this program, if it has one.
    #[must_use]
    pub fn find() -> Option<Library> {
        let (begin, end, abort) =
            (function(c"sys_xbegin")?, function(c"sys_xend")?, function(c"sys_xabort")?);
        let why = function(c"txos_strerror")?;
        // SAFETY: the functions have these types in txos.h; the second argument of the first, which
        // is variable there, is handed over like a fixed one.
        unsafe {
            Some(Library {
                begin: std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn(c_int, u64) -> c_int,
                >(begin),
                end: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> c_int>(end),
                abort: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(c_int)>(abort),
                why: std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn() -> *const c_char,
                >(why),
            })
        }
    }

    /// Begins one in this thread.
    ///
    /// # Errors
    /// Those of `sys_xbegin`.
    pub fn begin(&self, flags: i32) -> io::Result<()> {
        // SAFETY: see the head of this file.
        answer(unsafe { (self.begin)(flags, 0) })
    }

    /// Ends it.
    ///
    /// # Errors
    /// Those of `sys_xend`: then nothing of it has happened, but with `EINPROGRESS`.
    pub fn end(&self) -> io::Result<()> {
        // SAFETY: see the head of this file.
        answer(unsafe { (self.end)() })
    }

    /// Aborts it.
    pub fn abort(&self) {
        // SAFETY: see the head of this file.
        unsafe { (self.abort)(1) }
    }

    /// Why this thread's last transaction failed.
    pub fn why(&self) -> String {
        // SAFETY: see the head of this file.
        unsafe { CStr::from_ptr((self.why)()) }.to_string_lossy().into_owned()
    }
}

fn answer(n: c_int) -> io::Result<()> {
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
