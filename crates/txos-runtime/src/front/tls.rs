//! What a thread looks at on every call: a block of thread-local memory with a fixed layout, at a
//! fixed distance from the thread pointer ("initial exec").
//!
//! The kernel reads the selector, the interposed functions test `state` with two instructions, and
//! the signal handler finds its stack here. A Rust `thread_local!` would be reached through
//! `__tls_get_addr`, which may allocate, and which assembly can't call at these places. The block
//! is small enough for what the C library keeps free for libraries that are loaded late.
#![allow(unsafe_code)] // thread-local memory that is defined in assembly

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

use txos_engine::realm::Realm;

use super::signals::Masks;
use super::thread::Thread;

/// System calls go to the kernel.
pub const ALLOW: u8 = 0;
/// System calls become SIGSYS.
pub const BLOCK: u8 = 1;

/// Not in a transaction.
pub const IDLE: u8 = 0;
/// In a transaction, and the program's code is running.
pub const ACTIVE: u8 = 1;
/// Not in a transaction, and dispatch is still armed in case there is another one soon.
pub const LINGERING: u8 = 2;

/// The block. The offsets of the first fields are written out in the assembly of `entry`.
#[repr(C)]
#[derive(Debug)]
pub struct Tls {
    /// The byte that Syscall User Dispatch goes by.
    pub selector: Cell<u8>,
    /// [`IDLE`], [`ACTIVE`] or [`LINGERING`]. While runtime code runs it is not [`ACTIVE`].
    pub state: Cell<u8>,
    /// Whether runtime code is running, on the runtime's stack.
    pub busy: Cell<u8>,
    /// Whether Syscall User Dispatch is on for this thread.
    pub armed: Cell<u8>,
    /// Calls until it is switched off.
    pub linger: Cell<u32>,
    /// All the rest; null before the first transaction.
    pub thread: Cell<*mut Thread>,
    /// Where the runtime's stack begins.
    pub stack: Cell<*mut u8>,
    /// In a process into which a program was loaded beside the library: the thread pointer of the library's code, from which
    /// this block is reached ([`super::loader::memory`]).
    pub own_pointer: Cell<u64>,
    /// That of the program's code.
    pub programs_pointer: Cell<u64>,
    /// Where the kernel has put what it needs to go on with the program, while a trapped call is carried out; 0: nowhere.
    pub frame: Cell<u64>,
    /// Where the program's stack pointer is while a call is carried out.
    pub pointer: Cell<u64>,
    /// Pages of the program's that were there when they were asked about ([`crate::reach`]).
    pub known: [Cell<u64>; KNOWN],
    /// Signals whose handlers run at once in this transaction, although they are sent: they are blocked while runtime code
    /// runs.
    pub at_once: Cell<u64>,
    /// Of these: what the program lets in.
    pub let_in: Cell<u64>,
    /// What was blocked when runtime code was last entered by a function.
    pub entered_with: Cell<u64>,
    /// Signals that may end the process while this transaction waits, if it has no handler for them.
    pub ending: Cell<u64>,
    /// What the program sets to have this transaction aborted; null: nothing.
    pub abort_if: Cell<*const AtomicI32>,
    /// The realm that this transaction takes part in; null: none.
    pub realm: Cell<*const Realm>,
    /// Its place there ([`txos_engine::realm::Place`]); 0: none.
    pub place: Cell<u64>,
    /// The number and the first argument of the call that is being carried out, and when it first waited (ns since some
    /// moment); 0: it has not.
    pub call: Cell<u64>,
    /// As above.
    pub argument: Cell<u64>,
    /// As above.
    pub waits_since: Cell<u64>,
    /// For how long this transaction has slept since it last found something new, in ns.
    pub slept: Cell<u64>,
    /// How often in a row this thread's transactions have lost because they waited so.
    pub lost: Cell<u64>,
    /// 1: this transaction gives way only after a wait that lasts for long.
    pub gives_way_late: Cell<u64>,
}

impl Tls {
    /// As a new thread's.
    pub fn clear(&self) {
        // SAFETY: zeroes are a valid block; it is reached by its own thread only, and nothing has a reference into it.
        unsafe { std::ptr::from_ref(self).cast_mut().write(std::mem::zeroed()) };
    }

    /// What the masks of this transaction let through.
    pub fn goes_by(&self, masks: &Masks) {
        self.at_once.set(masks.at_once);
        self.let_in.set(masks.handled());
        self.ending.set(masks.ending());
    }

    /// There is no transaction any more.
    pub fn goes_by_none(&self) {
        self.at_once.set(0);
        self.let_in.set(0);
        self.ending.set(0);
        self.place.set(0);
        self.slept.set(0);
        self.gives_way_late.set(0);
    }

    /// Whether the program wants the transaction to be aborted.
    pub fn is_called_off(&self) -> bool {
        // SAFETY: null, or the program's, which has promised to leave it there until the end.
        unsafe { self.abort_if.get().as_ref() }
            .is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
    }
}

/// How many pages are kept in mind.
pub const KNOWN: usize = 16;

global_asm!(
    ".pushsection .tbss.txos_tls,\"awT\",@nobits",
    ".balign 16",
    ".globl txos_tls",
    ".hidden txos_tls",
    ".type txos_tls,@object",
    ".size txos_tls,288",
    "txos_tls:",
    ".zero 288",
    ".popsection",
);

const _: () = assert!(size_of::<Tls>() <= 288 && std::mem::offset_of!(Tls, stack) == 16);
const _: () = assert!(std::mem::offset_of!(Tls, own_pointer) == 24);
const _: () = assert!(std::mem::offset_of!(Tls, programs_pointer) == 32);

/// The calling thread's block.
#[inline(always)]
pub fn here() -> &'static Tls {
    let block: *const Tls;
    // SAFETY: reads the thread pointer and the block's distance from it, which never change for a
    // thread. The block lives as long as the thread, starts as zeroes, which is a valid `Tls`, and
    // is reached by its own thread only (cells are not `Sync`).
    unsafe {
        asm!(
            "mov {block}, qword ptr fs:[0]",
            "add {block}, qword ptr [rip + txos_tls@GOTTPOFF]",
            block = out(reg) block,
            options(pure, readonly, nostack),
        );
        &*block
    }
}
