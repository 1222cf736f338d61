//! Calls in whose middle no transaction begins again: those of the dynamic linker, and of the C library's allocator (EuroSys 2012, §7.1).
//!
//! The dynamic linker holds a lock while it reads libraries, and so does the allocator while it asks for a setting of the kernel's, before it
//! gives memory back. A transaction that began again there would leave the lock taken, and other threads would wait for it for ever. These calls
//! are part of the transaction like any other. But if it loses a conflict by one, or is found to have lost before, that is put off to the next
//! call of the program's own. Until then they are answered from outside of it: what is loaded stays loaded, whatever becomes of the transaction.
//!
//! | calls of | are known by |
//! |---|---|
//! | the dynamic linker | the address of the instruction. It makes none by a function of the C library, so each is trapped |
//! | the allocator | the path and the flags of the file, and its number after that. Somebody else's call that looks so is put off as well: the next one is not |
//!
//! With `TX_CHECKPOINT` nothing is put off: memory is put back, and with it the lock.
#![allow(unsafe_code)] // the dynamic linker's headers

use std::sync::atomic::{AtomicU64, Ordering};

use super::thread::Thread;
use crate::call::Call;

/// Where the dynamic linker's code begins and ends; 0: there is none.
static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// What the C library's allocator looks at before it makes an arena smaller (glibc, `check_may_shrink_heap`).
const OVERCOMMIT: &[u8] = b"/proc/sys/vm/overcommit_memory";

/// Finds the dynamic linker's code. (In a program that was given to the dynamic linker as its argument it is not found.)
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

/// What a thread's call is to its transaction.
#[derive(Debug, Default)]
pub struct Patience {
    /// The loss of a conflict is put off while this call is carried out.
    now: bool,
    /// The number of the file in which the allocator finds the setting.
    setting: Option<i32>,
}

impl Patience {
    /// Whether a loss is put off.
    #[inline]
    pub fn is_asked_for(&self) -> bool {
        self.now
    }

    /// A call has been answered.
    pub fn over(&mut self, call: &Call, answer: i64) {
        if std::mem::replace(&mut self.now, false) && call.number() == libc::SYS_openat {
            let opened = i32::try_from(answer).ok().filter(|&number| number >= 0);
            self.setting = opened.filter(|_| is_of_allocator(call));
        }
    }
}

/// A call has been trapped, which was made by the instruction before an address.
pub fn begins(thread: &mut Thread, call: &Call, instruction: u64) {
    let by_linker =
        || (START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)).contains(&instruction);
    let reads_setting = || {
        matches!(call.number(), libc::SYS_read | libc::SYS_close)
            && thread.patience.setting == Some(call.int(0))
    };
    let session = thread.session.as_ref();
    thread.patience.now = session.is_some_and(|session| session.checkpoint.is_none())
        && (by_linker() || reads_setting() || is_of_allocator(call));
}

fn is_of_allocator(call: &Call) -> bool {
    call.number() == libc::SYS_openat
        && call.int(0) == libc::AT_FDCWD
        && call.int(2) & !libc::O_LARGEFILE == libc::O_RDONLY | libc::O_CLOEXEC
        && call.path(1).is_ok_and(|path| path == OVERCOMMIT)
}
