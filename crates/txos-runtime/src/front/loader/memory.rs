//! Which thread-local memory a thread has: the program's, or the library's.
//!
//! Both C libraries find theirs by the register `fs`. The library finds its thread's block by `gs`, which neither uses, when
//! the program traps ([`super::super::entry::trap_beside`]): in the block are the values that `fs` has in turn.
//!
//! The library's memory of the first thread is what the dynamic linker has made. Threads that the program makes with its own
//! C library, or without one, get theirs from the dynamic linker as well, by the function by which the C library does.
#![allow(unsafe_code)] // thread pointers

use std::arch::asm;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::tls::{Tls, here};

/// Whether a program was loaded beside the library.
static LOADED: AtomicBool = AtomicBool::new(false);

/// Whether this process runs a program that was loaded beside the library.
#[inline]
pub fn is_loaded() -> bool {
    LOADED.load(Ordering::Relaxed)
}

fn set_pointer(pointer: u64) {
    // SAFETY: whoever calls this has seen that the processor and the kernel have the instruction; the code that follows
    // is made for that pointer.
    unsafe { asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags)) };
}

/// From here on, until [`to_library`], the thread has the program's memory: only system calls are made meanwhile.
#[inline]
pub fn to_program(tls: &Tls) {
    if is_loaded() {
        set_pointer(tls.programs_pointer.get());
    }
}

/// The thread has the library's memory again.
#[inline]
pub fn to_library(tls: &Tls) {
    if is_loaded() {
        let pointer: u64;
        // SAFETY: as in `set_pointer`; it reads a register.
        unsafe { asm!("rdfsbase {}", out(reg) pointer, options(nostack, preserves_flags)) };
        tls.programs_pointer.set(pointer);
        set_pointer(tls.own_pointer.get());
    }
}

/// Runs code of the program's.
pub fn in_program(tls: &Tls, code: impl FnOnce()) {
    to_program(tls);
    code();
    to_library(tls);
}

/// The calling thread is the first one, and a program is about to be loaded: it begins without thread-local memory.
pub fn begin(tls: &Tls) {
    let own: u64;
    // SAFETY: the thread's description begins with its own address.
    unsafe { asm!("mov {}, fs:[0]", out(reg) own, options(nostack, readonly)) };
    prepare(tls, own, 0);
    LOADED.store(true, Ordering::Relaxed);
}

/// In a thread with the library's memory: its traps find their way.
fn prepare(tls: &Tls, own: u64, programs: u64) {
    tls.own_pointer.set(own);
    tls.programs_pointer.set(programs);
    let block = std::ptr::from_ref(tls) as u64;
    // SAFETY: as in `set_pointer`. Nothing in the process but the trap's handler uses the register.
    unsafe { asm!("wrgsbase {}", in(reg) block, options(nostack, preserves_flags)) };
}

/// The library's thread-local memory for a thread of the program's.
#[derive(Debug)]
pub struct Own(u64);

/// What the C library has at the beginning of a thread's description: itself, and what compiled code and the C library
/// look at (`tcbhead_t`).
#[repr(C)]
struct Head {
    own: u64,
    vector: u64,
    this: u64,
    several: i32,
    _scope: i32,
    _information: u64,
    stack_guard: u64,
    pointer_guard: u64,
}

/// A function of the dynamic linker's.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with its zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Own {
    /// New memory, in a thread with the library's. `None`: there is none to be had.
    pub fn new() -> Option<Own> {
        let allocate = function(c"_dl_allocate_tls")?;
        is_of_several_threads();
        // SAFETY: the dynamic linker's function takes where the memory is to be, or null, and gives its place, or null: that is
        // the end of the variables, where the description begins, as zeroes but for the vector.
        let new = unsafe {
            let allocate: extern "C" fn(*mut c_void) -> *mut Head = std::mem::transmute(allocate);
            let new = allocate(std::ptr::null_mut());
            let head = new.as_mut()?;
            let present: *const Head;
            asm!("mov {}, fs:[0]", out(reg) present, options(nostack, readonly));
            head.own = new as u64;
            head.this = new as u64;
            head.several = 1;
            head.stack_guard = (*present).stack_guard;
            head.pointer_guard = (*present).pointer_guard;
            new
        };
        Some(Own(new as u64))
    }

    /// What a thread that ends has, unless the C library has made it.
    pub fn of_thread(tls: &Tls) -> Option<Own> {
        let is_first = crate::raw::check(
            // SAFETY: they take nothing.
            unsafe { crate::raw::syscall(libc::SYS_gettid, [0; 6]) },
        ) == crate::raw::check(
            // SAFETY: as above.
            unsafe { crate::raw::syscall(libc::SYS_getpid, [0; 6]) },
        );
        (is_loaded() && !is_first).then(|| Own(tls.own_pointer.get()))
    }

    /// The thread pointer with which a thread has it.
    pub fn pointer(&self) -> u64 {
        self.0
    }

    /// Gives it back: no thread has it.
    pub fn free(&self) {
        let Some(free) = function(c"_dl_deallocate_tls") else { return };
        // SAFETY: it is of `_dl_allocate_tls`, and nobody's any more.
        unsafe {
            let free: extern "C" fn(*mut c_void, bool) = std::mem::transmute(free);
            free(self.0 as *mut c_void, true);
        }
    }
}

/// The C library leaves out locks as long as it has made no thread.
fn is_of_several_threads() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(|| ()).map(|t| t.join());
    }
}

/// What a new thread or process of the program's begins with.
#[derive(Debug)]
pub struct Pointers {
    /// The library's; `None`: that of who makes it, of which it has a copy.
    pub own: Option<Own>,
    /// The program's.
    pub programs: u64,
}

impl Pointers {
    /// It has begun, with the library's memory.
    pub fn take(self) {
        let tls = here();
        let own = self.own.map_or_else(|| tls.own_pointer.get(), |own| own.pointer());
        prepare(tls, own, self.programs);
    }
}
