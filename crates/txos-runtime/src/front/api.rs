//! The functions of txos.h.
#![allow(unsafe_code)] // C calls them

use std::ffi::{CStr, c_char, c_int, c_long};
use std::sync::atomic::AtomicI32;

use super::dispatch;
use super::entry;
use super::excluded;
use super::joint;
use super::report::{self, Abort, Stats};
use super::session::{self, Next};
use super::signals;
use super::thread::{self, leave_program, on_own_stack, to_program};
use super::tls::{ACTIVE, Tls, here};
use crate::call::Call;

/// Sets `errno`; gives -1.
pub fn fail(errno: i32) -> i32 {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

pub use crate::tx::messages::say as tell;

/// A system call of the program that came without a trap. The answer is as the kernel's.
pub fn call(tls: &Tls, call: &Call) -> i64 {
    leave_program(tls);
    let Some(thread) = thread::existing(tls) else { return -i64::from(libc::EINVAL) };
    // This runs on the program's stack.
    let near = std::ptr::from_ref(&call) as u64;
    let (_, before) = thread::entered(tls, thread, tls.entered_with.get(), near, 0);
    // SAFETY: the C library's errno of this thread.
    let errno = unsafe { *libc::__errno_location() };
    let next = on_own_stack(tls, || dispatch::dispatch(thread, call, None));
    thread::carried_out(tls, &before);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    match next {
        Ok(Next::Answer(answer)) => {
            if thread.session.is_some() {
                to_program(tls);
            }
            answer
        }
        Ok(Next::Again) => session::restart(thread),
        Err(_) => {
            to_program(tls);
            -i64::from(libc::EIO)
        }
    }
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xend() -> c_int {
    session::end(here())
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xabort(no_restart: c_int) {
    session::abort(here(), no_restart != 0);
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xpause() -> c_long {
    session::pause(here())
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xresume(id: c_long) -> c_int {
    session::resume(here(), id)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_strerror() -> *const c_char {
    thread::existing(here()).map_or(c"no error".as_ptr(), |thread| thread.report.words())
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_in_transaction() -> c_int {
    (here().state.get() == ACTIVE).into()
}

/// See txos.h.
///
/// # Safety
/// `out` is null or points to as many bytes as its first word says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_abort_reason(out: *mut Abort) -> c_int {
    // The fixed part.
    const LEAST: usize = 16;
    let failure = thread::existing(here()).map(|thread| &thread.report.abort);
    let abort = failure.map_or_else(|| Abort::from(&crate::tx::Failure::default()), Abort::from);
    // SAFETY: as the caller says.
    unsafe { report::fill(out, &abort, LEAST) }.map_or_else(fail, |()| 0)
}

/// See txos.h.
///
/// # Safety
/// `out` is null or points to as many bytes as its first word says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_stats(out: *mut Stats) -> c_int {
    const LEAST: usize = 8;
    let counters = thread::existing(here()).map(|thread| thread.counters).unwrap_or_default();
    // SAFETY: as the caller says.
    unsafe { report::fill(out, &Stats::from(counters), LEAST) }.map_or_else(fail, |()| 0)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_abort_if(flag: *const AtomicI32) -> c_int {
    session::abort_if(here(), flag)
}

/// See txos.h.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_name(name: *const c_char) -> c_int {
    // SAFETY: as the caller says.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
    session::name(here(), name)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_signal_at_once(signal: c_int, at_once: c_int) -> c_int {
    if signals::set_at_once(signal, at_once != 0) { 0 } else { fail(libc::EINVAL) }
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_share() -> c_int {
    session::share(here())
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xjoin(fd: c_int) -> c_int {
    session::join(here(), fd)
}

/// See txos.h.
///
/// # Safety
/// `participant` is null or points to as many bytes as its first word says; what it names stays valid until the
/// transaction has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_enlist(participant: *const joint::Participant) -> c_int {
    // SAFETY: as the caller says.
    unsafe { joint::enlist(here(), participant) }
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_prepare() -> c_int {
    joint::prepare(here())
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_finish(commit: c_int) -> c_int {
    joint::finish(here(), commit != 0)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// See txos.h.
///
/// # Safety
/// `path` is null or a string; so is `suffix`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_exclude(path: *const c_char, suffix: *const c_char) -> c_long {
    if path.is_null() {
        return fail(libc::EFAULT).into();
    }
    if here().state.get() == ACTIVE {
        return fail(libc::EBUSY).into();
    }
    // SAFETY: as the caller says.
    let text = |at: *const c_char| unsafe { CStr::from_ptr(at) }.to_bytes();
    let suffix = if suffix.is_null() { &[][..] } else { text(suffix) };
    match excluded::exclude(&excluded::path_of(text(path)), suffix) {
        Ok(count) => c_long::try_from(count).unwrap_or(c_long::MAX),
        Err(errno) => fail(errno.raw_os_error()).into(),
    }
}

/// Keeps what only assembly and C call in the library, whichever way it is linked.
#[used]
static ENTRY: unsafe extern "C" fn(i32, u64) -> i32 = entry::sys_xbegin;
