//! Where Syscall User Dispatch, or our assembly, is not available: nothing can be begun.
#![allow(unsafe_code)] // C calls these functions

use std::ffi::{c_char, c_int, c_long, c_void};

fn fail(errno: c_int) -> c_int {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xbegin(_flags: c_int) -> c_int {
    fail(libc::ENOSYS)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xend() -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xabort(_no_restart: c_int) {}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xpause() -> c_long {
    fail(libc::EINVAL).into()
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xresume(_id: c_long) -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_strerror() -> *const c_char {
    c"sys_xbegin: transactions within a program are available on x86-64 only".as_ptr()
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_in_transaction() -> c_int {
    0
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_abort_reason(_out: *mut c_void) -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_stats(_out: *mut c_void) -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_exclude(_path: *const c_char, _suffix: *const c_char) -> c_long {
    fail(libc::ENOSYS).into()
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_abort_if(_flag: *const c_int) -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_name(_name: *const c_char) -> c_int {
    fail(libc::ENOSYS)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_signal_at_once(_signal: c_int, _at_once: c_int) -> c_int {
    fail(libc::ENOSYS)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_share() -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xjoin(_fd: c_int) -> c_int {
    fail(libc::ENOSYS)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_enlist(_participant: *const c_void) -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_prepare() -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_finish(_commit: c_int) -> c_int {
    fail(libc::EINVAL)
}

/// See txos.h.
#[unsafe(no_mangle)]
pub extern "C" fn txos_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
