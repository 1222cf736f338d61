//! The stable side: what the kernel answers about real objects.
//!
//! One function for each system call that the runtime makes by itself. What the program asks for as it is
//! goes to the kernel as a [`Call`](crate::call::Call).
//!
//! | module | what lives there |
//! |---|---|
//! | [`stat`] | looking at objects and file systems |
//! | [`open`] | opening, and descriptors: numbers, flags, duplicates |
//! | [`content`] | reading, writing, copying, sizes |
//! | [`names`] | directories and names |
//! | [`attrs`] | modes, owners, times, extended attributes |
//! | [`credentials`] | all credentials of a thread, limits, priorities |
//! | [`identity`] | making calls for others |
//! | [`outside`] | sending to pipes, terminals and sockets |
//! | [`pipes`] | looking at what pipes hold, and taking it |
//! | [`process`] | who and where the process is |
//! | [`settings`] | settings of what descriptors lead to, to know them and to have them again |
//! | [`signals`] | signals to other processes |
//! | [`sockets`] | looking at what sockets have received, and taking it |
//! | [`timers`] | timers and counters |
//!
//! # Safety
//!
//! Unsafe code is in this folder because system calls take addresses. Each function takes its arguments by
//! type: paths of ours come as slices and are ended with a zero ([`CPath`]), buffers of ours as slices,
//! memory of the program's as [`UserPtr`](crate::user::UserPtr) and [`UserSlice`](crate::user::UserSlice).
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

pub use crate::raw::{Errno, Sys, check};

mod attrs;
mod content;
mod credentials;
mod identity;
mod names;
mod open;
mod outside;
mod pipes;
mod process;
mod settings;
mod signals;
mod sockets;
mod stat;
mod timers;

pub use attrs::*;
pub use content::*;
pub use credentials::*;
pub use identity::*;
pub use names::*;
pub use open::*;
pub use outside::*;
pub use pipes::*;
pub use process::*;
pub use settings::*;
pub use signals::*;
pub use sockets::*;
pub use stat::*;
pub use timers::*;

/// Makes a system call: an unsafe function whose arguments are cast to words.
macro_rules! sys {
    ($number:ident $(, $arg:expr)* $(,)?) => {{
        #[allow(unused_mut)]
        let mut words = [0u64; 6];
        let mut _n = 0;
        $( #[allow(clippy::cast_sign_loss)] { words[_n] = $arg as u64; } _n += 1; )*
        $crate::raw::check($crate::raw::syscall(libc::$number, words))
    }};
}
use sys;

/// The directory from which relative paths start.
pub const CWD: i32 = libc::AT_FDCWD;

/// One step of staging, or a publish of one call: a call that changes something. Tests put faults here.
pub fn step<T>(what: &str, f: impl FnOnce() -> Sys<T>) -> Sys<T> {
    txos_engine::sys::step(what, f)
}

/// A path as the kernel wants it, on the stack.
struct CPath {
    bytes: MaybeUninit<[u8; 4100]>,
}

impl CPath {
    /// Copies a path and ends it with a zero.
    ///
    /// # Errors
    /// ENAMETOOLONG over 4,095 bytes.
    #[inline]
    fn with<T>(path: &[u8], f: impl FnOnce(&CPath) -> Sys<T>) -> Sys<T> {
        if path.len() > 4095 {
            return Err(Errno::NAMETOOLONG);
        }
        let mut here = CPath { bytes: MaybeUninit::uninit() };
        let to = here.bytes.as_mut_ptr().cast::<u8>();
        // SAFETY: there is room for 4,095 bytes and the final zero.
        unsafe {
            std::ptr::copy_nonoverlapping(path.as_ptr(), to, path.len());
            to.add(path.len()).write(0);
        }
        f(&here)
    }

    /// Where it begins: it has a zero at its end, and lives as long as this.
    #[inline]
    fn at(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }
}

/// As [`CPath::with`], of two paths.
#[inline]
fn with_paths<T>(one: &[u8], other: &[u8], f: impl FnOnce(&CPath, &CPath) -> Sys<T>) -> Sys<T> {
    CPath::with(one, |one| CPath::with(other, |other| f(one, other)))
}
