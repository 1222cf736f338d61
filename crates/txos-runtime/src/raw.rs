//! System calls as the kernel takes them: numbers, words, and negative errnos for failures.
#![allow(unsafe_code)]

pub use rustix::io::Errno;

/// What a system call gives.
pub type Sys<T> = Result<T, Errno>;

/// Turns the kernel's answer around.
///
/// # Errors
/// The errno in it.
#[inline]
pub fn check(answer: i64) -> Sys<u64> {
    match answer {
        -4095..=-1 => Err(Errno::from_raw_os_error(-answer as i32)),
        _ => Ok(answer as u64),
    }
}

/// Makes a system call, past the C library. The answer is a value, or a negative errno.
///
/// # Safety
/// As the system call: pointers among the arguments must be what it wants.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn syscall(number: i64, a: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: it clobbers rcx and r11 only (and a word of the stack); the caller answers for the arguments.
    unsafe {
        std::arch::asm!(
            "call {exempt}",
            exempt = sym crate::front::entry::exempt_syscall,
            inlateout("rax") number => answer,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

/// The same on 64-bit ARM.
///
/// # Safety
/// As the system call: pointers among the arguments must be what it wants.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn syscall(number: i64, a: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: the kernel keeps all registers but x0; the caller answers for the arguments.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] as i64 => answer,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    answer
}

/// An answer as the kernel gives it: a value, or a negative errno.
#[inline]
#[must_use]
pub fn answer(result: Sys<u64>) -> i64 {
    match result {
        Ok(value) => value as i64,
        Err(errno) => -i64::from(errno.raw_os_error()),
    }
}
