//! What the dynamic linker and the C library's allocator read in a thread's transaction: outside of it (EuroSys 2012, §5.3 and §7.1).
//!
//! The dynamic linker loads a library once and for all. An abort does not undo that, so isolating what it reads gains nothing. And it holds a
//! lock while it reads: a transaction that lost a conflict there would leave that lock taken, and other threads would wait for ever. The
//! allocator reads one setting of the kernel's while it gives memory back, and holds the lock of an arena. So these calls go to the kernel as
//! if the transaction were paused. Nothing of them is acquired, observed, or undone, and none of them finds that the transaction has lost.
//!
//! | calls of | that | in a transaction |
//! |---|---|---|
//! | the dynamic linker: by the address of the instruction | look for the working directory and for libraries, open, read, map and close them | of one thread or of several |
//! | the allocator: by the path and the flags | open, read and close `/proc/sys/vm/overcommit_memory` | the same |
//!
//! They stay part of the transaction if the dynamic linker might find another library there than outside: once the transaction has changed or
//! moved one, or has another root directory. A name without `.so` in it stays part of it, too. So do all calls with `TX_CHECKPOINT`, which puts
//! the lock back, and those of commands, in which no thread begins again by itself.
#![allow(unsafe_code)] // the dynamic linker's headers

use std::sync::atomic::{AtomicU64, Ordering};

use super::members;
use super::thread::{Thread, guarded};
use crate::call::Call;
use crate::reach;
use crate::tx::is_library;

/// Where the dynamic linker's code begins and ends; 0: there is none.
static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// What the C library's allocator looks at before it makes an arena smaller (glibc, `check_may_shrink_heap`).
const OVERCOMMIT: &[u8] = b"/proc/sys/vm/overcommit_memory";

/// Finds the dynamic linker's code.
pub fn resolve() {
    // SAFETY: it only reads what the kernel has told the process.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    if base == 0 {
        return;
    }
    // SAFETY: the kernel has mapped the dynamic linker there, which begins with its headers and stays.
    let code = unsafe {
        let header = &*(base as *const libc::Elf64_Ehdr);
        let first = (base + header.e_phoff) as *const libc::Elf64_Phdr;
        let segments = std::slice::from_raw_parts(first, header.e_phnum.into());
        segments
            .iter()
            .find(|segment| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0)
    };
    if let Some(code) = code {
        START.store(base + code.p_vaddr, Ordering::Relaxed);
        END.store(base + code.p_vaddr + code.p_memsz, Ordering::Relaxed);
    }
}

/// Whether an instruction is the dynamic linker's.
fn is_linkers(instruction: u64) -> bool {
    (START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)).contains(&instruction)
}

/// Descriptors that such calls have opened in the present transaction, and not closed yet.
#[derive(Debug, Default)]
pub struct Opened(Vec<i32>);

/// A call that is carried out outside of the thread's transaction: its answer. `instruction`: where it was made.
pub fn call(thread: &mut Thread, call: &Call, instruction: u64) -> Option<i64> {
    if let Some(at) = thread.outside.place_of(call) {
        if reach::takes_away(call.number()) {
            reach::forget();
        }
        let answer = call.make();
        if call.number() == libc::SYS_close {
            thread.outside.0.swap_remove(at);
        }
        return Some(answer);
    }
    let by_linker = is_linkers(instruction);
    let session = thread.session.as_ref().filter(|_| by_linker || may_be_allocators(call))?;
    if session.is_command() || session.checkpoint.is_some() {
        return None;
    }
    let look = Look::of(call)?;
    let is_outside = match by_linker {
        true => look.is_for_libraries() && members::with(thread, |all| finds_the_same(all, &look)),
        false => look.path == OVERCOMMIT,
    };
    if !is_outside {
        return None;
    }
    let answer = call.make();
    if look.opens
        && let Ok(number) = i32::try_from(answer)
        && number >= 0
    {
        thread.outside.0.push(number);
    }
    Some(answer)
}

impl Opened {
    /// Which of them a call reads, maps or closes.
    fn place_of(&self, call: &Call) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let number = by_descriptor(call)?;
        self.0.iter().position(|&opened| opened == number)
    }
}

/// The descriptor by which a call reads, maps or closes.
fn by_descriptor(call: &Call) -> Option<i32> {
    match call.number() {
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_lseek
        | libc::SYS_fstat
        | libc::SYS_close => Some(call.int(0)),
        libc::SYS_newfstatat if call.path(1).is_ok_and(|path| path.is_empty()) => Some(call.int(0)),
        libc::SYS_mmap if call.int(3) & libc::MAP_ANONYMOUS == 0 => Some(call.int(4)),
        _ => None,
    }
}

/// A call that only looks at what a path leads to, or where relative paths begin.
struct Look {
    /// Empty: none.
    path: Vec<u8>,
    /// The path begins at the working directory if it is relative.
    from_here: bool,
    flags: i32,
    opens: bool,
}

impl Look {
    fn of(call: &Call) -> Option<Look> {
        if call.number() == libc::SYS_getcwd {
            return Some(Look { path: Vec::new(), from_here: true, flags: 0, opens: false });
        }
        let (at, opens) = match call.number() {
            libc::SYS_openat => (1, true),
            libc::SYS_newfstatat | libc::SYS_faccessat | libc::SYS_readlinkat => (1, false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => (0, true),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat | libc::SYS_access | libc::SYS_readlink => (0, false),
            _ => return None,
        };
        let flags = if opens { call.int(at + 1) } else { 0 };
        let from_here = at == 0 || call.int(0) == libc::AT_FDCWD;
        Some(Look { path: call.path(at).ok()?, from_here, flags, opens })
    }

    fn only_reads(&self) -> bool {
        !self.opens || self.flags & !libc::O_LARGEFILE == libc::O_RDONLY | libc::O_CLOEXEC
    }

    /// Whether it looks for what [`Tx::has_other_libraries`](crate::tx::Tx::has_other_libraries) tells of.
    fn is_for_libraries(&self) -> bool {
        let name = self.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        self.only_reads() && (is_library(name) || !self.opens)
    }
}

/// Whether a file is opened as the allocator does it.
fn may_be_allocators(call: &Call) -> bool {
    call.number() == libc::SYS_openat
        && call.int(0) == libc::AT_FDCWD
        && call.int(2) & !libc::O_LARGEFILE == libc::O_RDONLY | libc::O_CLOEXEC
}

/// Whether the dynamic linker finds the same outside of the thread's transaction.
fn finds_the_same(thread: &mut Thread, look: &Look) -> bool {
    let tx = thread.session.as_mut().and_then(|session| session.tx.as_mut());
    // One that has failed has nothing of its own any more.
    let Some(tx) = tx else { return true };
    let (has_moved, has_other_root) = tx.has_moved_to();
    let is_reached = look.path.first() == Some(&b'/') || look.from_here && !has_moved;
    is_reached && !has_other_root && guarded(|| !tx.has_other_libraries()).unwrap_or(false)
}
