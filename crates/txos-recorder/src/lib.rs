//! What `txos run` preloads into the programs of a transaction, so that a look which was recorded
//! already need not be reported to the supervisor again.
//!
//! | module | what lives there |
//! |---|---|
//! | [`area`] | the memory shared with the supervisor: its layout, and how keys are made |
//! | `gate` | system calls, reported and not |
//! | `seen` | whether a look was recorded already |
//! | `interpose` | the functions of the C library that ask |
//! | `realpath` | one that makes many looks |
//! | `c` | numbers of the kernel and the C library |
//!
//! The source is compiled twice: as this crate, for [`area`] and [`LIBRARY`], and by the build script as
//! that library (`--cfg txos_preload`), which includes the table of system calls ([`txos_calls`]). There it is a library of its own, apart from `libtxos.so`,
//! because it is loaded into every program of a command: it has no code of Rust's library, and needs
//! nothing but what programs have anyway.
//!
//! # Invariants
//!
//! - A call goes through the gate only if its key is in the area. Every other one is made as the C
//!   library would make it, and the kernel reports it.
//! - Nothing here allocates, locks, panics or unwinds, or uses thread-local memory but `errno`: the
//!   functions are called from signal handlers and between `vfork` and `exec` as well. `realpath` without room for
//!   the answer is the exception, as in the C library: it asks the program's allocator.
//! - Whatever is missing (the area, the page of the gate) leaves the program as it would
//!   be without this library.

#![cfg_attr(txos_preload, no_std)]
// The functions of the library are called by nobody in the crate.
#![cfg_attr(not(txos_preload), allow(dead_code))]

pub mod area;
#[cfg(txos_preload)]
#[path = "calls/lib.rs"]
mod calls;
#[cfg(not(txos_preload))]
use txos_calls as calls;
#[cfg(target_arch = "x86_64")]
mod c;
#[cfg(target_arch = "x86_64")]
mod gate;
#[cfg(target_arch = "x86_64")]
mod interpose;
#[cfg(target_arch = "x86_64")]
mod realpath;
#[cfg(target_arch = "x86_64")]
mod seen;

/// The shared library; empty where there is none for this processor.
#[cfg(not(txos_preload))]
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtxosrecorder.so"));

#[cfg(txos_preload)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
