//! What the dynamic linker of the C library reads for itself, in the middle of a transaction of a program's own.
//!
//! It loads libraries when the program asks for one (`dlopen`), and when the C library needs a part of itself: for
//! converters of characters, or for where accounts are kept. What it has loaded stays loaded when the transaction is
//! aborted, and it has locks and lists of its own meanwhile that nobody puts back. So what it opens to read, and the
//! transaction has not changed, is no part of the transaction: it is in no conflict, and is found by one that has failed as
//! well. What it finds changed it reads as ever.
//!
//! Its calls are known by the code that makes them. Constructors of libraries are the libraries' code: what they do is part of
//! the transaction. But as long as the linker is at work, a transaction that has lost does not begin again.
#![allow(unsafe_code)] // reads the headers of a loaded object

use std::ops::Range;
use std::sync::OnceLock;

use super::session::{Next, Session};
use super::thread::Thread;
use super::trap::Context;
use super::{excluded, members};
use crate::call::Call;
use crate::tx::flags;

/// What the allocator of the C library looks at, with the lock of an arena, before it gives memory back for the first time.
const OVERCOMMIT: &[u8] = b"/proc/sys/vm/overcommit_memory";

/// Where the dynamic linker is, if that is another object than the C library.
#[derive(Debug, Default)]
struct Linker {
    code: Range<u64>,
    data: Range<u64>,
}

fn linker() -> &'static Linker {
    static LINKER: OnceLock<Linker> = OnceLock::new();
    LINKER.get_or_init(|| {
        // SAFETY: it takes a number.
        let base = unsafe { libc::getauxval(libc::AT_BASE) };
        // SAFETY: the kernel has mapped it there, whole, before the program began, and it stays.
        let found = if base == 0 { None } else { unsafe { object_at(base) } };
        let of_library = libc::getauxval as *const () as u64;
        found.filter(|linker| !linker.code.contains(&of_library)).unwrap_or_default()
    })
}

/// The code and the variables of a loaded object.
///
/// # Safety
/// Its headers are in memory there.
unsafe fn object_at(base: u64) -> Option<Linker> {
    // SAFETY: as the caller says.
    let header = unsafe { &*(base as *const libc::Elf64_Ehdr) };
    let is_one = header.e_ident[..4] == *b"\x7fELF"
        && usize::from(header.e_phentsize) == size_of::<libc::Elf64_Phdr>();
    if !is_one {
        return None;
    }
    let first = (base + header.e_phoff) as *const libc::Elf64_Phdr;
    // SAFETY: as the caller says; the headers of segments follow those of the file.
    let segments = unsafe { std::slice::from_raw_parts(first, header.e_phnum.into()) };
    let part = |flag: u32| {
        let is_it = |segment: &&libc::Elf64_Phdr| {
            segment.p_type == libc::PT_LOAD && segment.p_flags & flag != 0
        };
        let segment = segments.iter().find(is_it)?;
        let start = base + segment.p_vaddr;
        Some(start..start + segment.p_memsz)
    };
    Some(Linker { code: part(libc::PF_X)?, data: part(libc::PF_W)? })
}

/// Whether this thread has a lock of the linker's: it loads or unloads a library, or runs a constructor of one. Where among the
/// linker's variables they are, each version of the C library knows for itself; but a recursive mutex says whose it is.
fn has_lock() -> bool {
    /// `PTHREAD_MUTEX_RECURSIVE_NP`.
    const RECURSIVE: u32 = 1;
    // SAFETY: it asks for a number.
    let own = unsafe { crate::raw::syscall(libc::SYS_gettid, [0; 6]) } as u32;
    // Lock, how often, by whom, users, kind.
    let is_ours = |at: u64| {
        // SAFETY: these are the linker's variables, which stay; what other threads write meanwhile is not this thread's number.
        let [lock, count, owner, users, kind] =
            [0, 1, 2, 3, 4].map(|n| unsafe { (at as *const u32).add(n).read_volatile() });
        lock != 0 && count != 0 && owner == own && users != 0 && kind == RECURSIVE
    };
    let data = &linker().data;
    let last = data.end.saturating_sub(size_of::<libc::pthread_mutex_t>() as u64);
    (data.start.next_multiple_of(8)..=last).step_by(8).filter(|_| data.start != 0).any(is_ours)
}

/// Whether a transaction can't begin again now, as nobody would put back what the linker is in the middle of.
pub fn is_in_the_way(session: &Session) -> bool {
    session.restarts() && session.checkpoint.is_none() && has_lock()
}

/// The answer to a call that is no part of the transaction.
pub fn call(thread: &mut Thread, call: &Call, context: Option<&Context>) -> Option<Next> {
    let session = thread.session.as_mut()?;
    if let Some(open) = session.loading
        && excluded::number_of(call).is_some_and(|at| call.int(at) == open)
    {
        if call.number() == libc::SYS_close {
            session.loading = None;
        }
        return Some(Next::Answer(call.make()));
    }
    // Neither goes through a function that somebody else could have in its place.
    let is_linkers = linker().code.contains(&context?.instruction());
    if !is_linkers && !opens_overcommit(call) || session.is_command() {
        return None;
    }
    members::with(thread, |thread| answer(thread.session.as_mut()?, call))
}

/// Whether a call opens what the allocator looks at.
fn opens_overcommit(call: &Call) -> bool {
    opened(call).is_some_and(|at| call.path(at).is_ok_and(|path| path == OVERCOMMIT))
}

/// Which argument is the path, if a call only opens something to read.
fn opened(call: &Call) -> Option<usize> {
    match call.number() {
        libc::SYS_open if excluded::opens_to_read(call.int(1)) => Some(0),
        libc::SYS_openat if excluded::opens_to_read(call.int(2)) => Some(1),
        _ => None,
    }
}

/// Which argument is the path of a call that asks about what is there.
fn asked_about(call: &Call) -> Option<usize> {
    match call.number() {
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => Some(0),
        libc::SYS_newfstatat | libc::SYS_faccessat => Some(1),
        _ => None,
    }
}

/// The path that a call only reads of, if it begins at the root or at the working directory. What is asked about a descriptor
/// has none.
fn path_of(call: &Call, opens: bool) -> Option<Vec<u8>> {
    // What a library is told of its own place (`$ORIGIN`) begins with that.
    if call.number() == libc::SYS_getcwd {
        return Some(b".".to_vec());
    }
    let at = if opens { opened(call) } else { asked_about(call) }?;
    let path = call.path(at).ok()?;
    let begins = at == 0 || call.int(0) == libc::AT_FDCWD || path.starts_with(b"/");
    (begins && !path.is_empty()).then_some(path)
}

fn answer(session: &mut Session, call: &Call) -> Option<Next> {
    // What comes after others sees what those change.
    const SEES_OTHERS: u32 = flags::AFTER | flags::ORDERED | flags::PROCESSES;
    let opens = opened(call).is_some() && session.loading.is_none();
    let is_apart = session.plan.flags & SEES_OTHERS == 0 && !session.restored.has_credentials();
    if is_apart
        && let Some(path) = path_of(call, opens)
        && session.tx.as_ref().is_none_or(|tx| tx.finds_as_outside(&path))
    {
        let answer = call.make();
        if opens
            && let Ok(number) = i32::try_from(answer)
            && number >= 0
        {
            session.loading = Some(number);
        }
        return Some(Next::Answer(answer));
    }
    None
}
