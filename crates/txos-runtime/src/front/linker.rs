//! What the dynamic linker of the C library reads for itself, in the middle of a transaction of a program's own.
//!
//! It loads libraries when the program asks for one (`dlopen`), and when the C library needs a part of itself: for
//! converters of characters, or for where accounts are kept. What it has loaded stays loaded when the transaction is
//! aborted, and it has locks and lists of its own meanwhile that nobody puts back. So what it opens to read, and the
//! transaction has not changed, is no part of the transaction: it is in no conflict, and is found by one that has failed as
//! well. What it finds changed it reads as ever; but a transaction that has lost does not begin again in the middle of that.
//!
//! Its calls are known by the code that makes them. Constructors of libraries are the libraries' code: what they do is part of
//! the transaction.
#![allow(unsafe_code)] // reads the headers of a loaded object

use std::ops::Range;
use std::sync::OnceLock;

use super::classify::{Class, classify};
use super::session::{Next, Session};
use super::thread::{self, Thread};
use super::trap::Context;
use super::{excluded, members};
use crate::call::Call;
use crate::tx::flags;

/// What the allocator of the C library looks at, with the lock of an arena, before it gives memory back for the first time.
const OVERCOMMIT: &[u8] = b"/proc/sys/vm/overcommit_memory";

/// Where the code of the dynamic linker is, if that is another object than the C library.
fn code() -> &'static Range<u64> {
    static CODE: OnceLock<Range<u64>> = OnceLock::new();
    CODE.get_or_init(|| {
        // SAFETY: it takes a number.
        let base = unsafe { libc::getauxval(libc::AT_BASE) };
        // SAFETY: the kernel has mapped it there, whole, before the program began, and it stays.
        let found = if base == 0 { None } else { unsafe { code_of(base) } };
        let of_library = libc::getauxval as *const () as u64;
        found.filter(|code| !code.contains(&of_library)).unwrap_or_default()
    })
}

/// The code of a loaded object.
///
/// # Safety
/// Its headers are in memory there.
unsafe fn code_of(base: u64) -> Option<Range<u64>> {
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
    let is_code = |segment: &&libc::Elf64_Phdr| {
        segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0
    };
    let code = segments.iter().find(is_code)?;
    let start = base + code.p_vaddr;
    Some(start..start + code.p_memsz)
}

/// A call that is no part of the transaction, or by which it does not begin again. `None`: it is like any other.
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
    let is_linkers = code().contains(&context?.instruction());
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

/// A path of a call, if it begins at the root or at the working directory. What is asked about a descriptor has none.
fn path_of(call: &Call, at: usize) -> Option<Vec<u8>> {
    let path = call.path(at).ok()?;
    let begins = at == 0 || call.int(0) == libc::AT_FDCWD || path.starts_with(b"/");
    (begins && !path.is_empty()).then_some(path)
}

fn answer(session: &mut Session, call: &Call) -> Option<Next> {
    // What comes after others sees what those change.
    const SEES_OTHERS: u32 = flags::AFTER | flags::ORDERED | flags::PROCESSES;
    let opens = opened(call).is_some() && session.loading.is_none();
    let by_path = if opens { opened(call) } else { asked_about(call) };
    let is_apart = session.plan.flags & SEES_OTHERS == 0 && !session.restored.has_credentials();
    if is_apart
        && let Some(path) = by_path.and_then(|at| path_of(call, at))
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
    // It has locks, and memory stays as it is: it begins again by the next call of somebody else's.
    if !session.restarts() || session.checkpoint.is_some() || session.restored.has_credentials() {
        return None;
    }
    let class = classify(call.number(), call.words());
    if !matches!(class, Class::Transactional | Class::Descriptor) {
        return None;
    }
    let tx = session.tx.as_mut()?;
    let answer = thread::guarded(|| tx.call(call)).unwrap_or(-i64::from(libc::ECANCELED));
    Some(Next::Answer(match tx.doomed() {
        None => answer,
        Some(_) if call.number() == libc::SYS_close => 0,
        Some(_) => -i64::from(libc::ECANCELED),
    }))
}
