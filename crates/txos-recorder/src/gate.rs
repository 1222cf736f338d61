//! System calls: such as the kernel tells the supervisor of, and such as it lets through.
//!
//! # Safety
//!
//! A system call is as safe as its arguments, which are the program's own or made here. The gate is a
//! page at a fixed address that [`open`] has mapped; nobody calls it before `open` has said so.
#![allow(unsafe_code)]

use core::arch::asm;

use crate::{area, c};

const CODE: [u8; 3] = [0x0f, 0x05, 0xc3]; // syscall; ret

/// A system call that the kernel reports to the supervisor if the filter says so.
///
/// # Safety
/// As the system call.
#[inline]
pub unsafe fn reported(number: i64, a: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: it clobbers rcx and r11 only; the caller answers for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// A system call that is not reported.
///
/// # Safety
/// As the system call; the gate is open.
#[inline]
pub unsafe fn through(number: i64, a: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: the page has these instructions, which clobber rcx and r11 and a word of the stack.
    unsafe {
        asm!(
            "call {gate}",
            gate = in(reg) area::GATE,
            inlateout("rax") number => answer,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

/// Maps the page of the gate; whether it is there.
pub fn open() -> bool {
    const PAGE: u64 = 4096;
    let flags = c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_FIXED_NOREPLACE;
    let writable = c::PROT_READ | c::PROT_WRITE;
    let executable = c::PROT_READ | c::PROT_EXEC;
    // SAFETY: it maps only what is free, and what was mapped is ours alone.
    unsafe {
        let args = [area::GATE, PAGE, writable as u64, flags as u64, u64::MAX, 0];
        let at = reported(c::SYS_mmap, args);
        if at != area::GATE as i64 {
            // A kernel that doesn't know the flag maps it elsewhere.
            if at > 0 {
                reported(c::SYS_munmap, [at as u64, PAGE, 0, 0, 0, 0]);
            }
            return false;
        }
        (area::GATE as *mut [u8; 3]).write(CODE);
        if reported(c::SYS_mprotect, [area::GATE, PAGE, executable as u64, 0, 0, 0]) != 0 {
            reported(c::SYS_munmap, [area::GATE, PAGE, 0, 0, 0, 0]);
            return false;
        }
    }
    true
}
