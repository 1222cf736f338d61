//! Where the program enters the runtime and leaves it, in assembly.
//!
//! | symbol | what it does |
//! |---|---|
//! | `sys_xbegin` | saves what a restart needs, as `setjmp` does, and begins |
//! | [`again`] | begins again: returns from that `sys_xbegin` once more |
//! | [`on_stack`] | calls a function on the runtime's own stack |
//! | [`trap`], [`trap_beside`] | the SIGSYS handler |
//! | [`restore`] | how that handler returns to the kernel |
//! | [`exempt_syscall`] | a system call that is never dispatched |
//! | [`clone_child`] | a system call whose child goes on where the program made it |
//!
//! Runtime code never runs on the program's stack, which may be as small as the program likes.
#![allow(unsafe_code)] // assembly

use std::arch::naked_asm;
use std::ffi::c_void;

use super::{members, session, trap as trapping};

/// What `sys_xbegin` returns to: the registers that a function keeps for its caller.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Regs {
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    /// The stack pointer after the return.
    pub rsp: u64,
    rip: u64,
    mxcsr: u32,
    fcw: u32,
}

const _: () = assert!(size_of::<Regs>() == 72);

/// See txos.h. (Its argument list is variable; the caller puts the second argument where a fixed
/// one would be.)
///
/// # Safety
/// The function that calls it must not return before the transaction ends, if it may restart.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn sys_xbegin(flags: i32, sequence: u64) -> i32 {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 72",
        ".cfi_adjust_cfa_offset 72",
        "mov [rsp], rbx",
        "mov [rsp + 8], rbp",
        "mov [rsp + 16], r12",
        "mov [rsp + 24], r13",
        "mov [rsp + 32], r14",
        "mov [rsp + 40], r15",
        "lea rax, [rsp + 80]",
        "mov [rsp + 48], rax",
        "mov rax, [rsp + 72]",
        "mov [rsp + 56], rax",
        "stmxcsr [rsp + 64]",
        "fnstcw [rsp + 68]",
        "mov rdx, rsp",
        "call {begin}",
        "add rsp, 72",
        ".cfi_adjust_cfa_offset -72",
        "ret",
        ".cfi_endproc",
        begin = sym session::begin,
    )
}

/// Begins again, with nothing of the runtime left on any stack, and returns from `sys_xbegin`. Before, memory
/// is put back if it was kept: on the runtime's own stack, as the program's is part of it.
///
/// # Safety
/// `regs` is what the thread's own `sys_xbegin` saved, in memory that stays; the transaction is
/// aborted, the signal mask is the program's, and no signal handler is being run by the runtime.
#[unsafe(naked)]
pub unsafe extern "C" fn again(regs: *const Regs) -> ! {
    naked_asm!(
        "cld",
        "mov rbx, rdi",
        "mov rax, [rip + txos_tls@GOTTPOFF]",
        "mov rsp, fs:[rax + 16]",
        "call {put_back}",
        "mov rsp, [rbx + 48]",
        "call {begin_again}",
        "mov rdi, rbx",
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rsp, [rdi + 48]",
        "ldmxcsr [rdi + 64]",
        "fldcw [rdi + 68]",
        "jmp [rdi + 56]",
        put_back = sym session::put_back,
        begin_again = sym session::begin_again,
    )
}

/// Calls `function(argument)` on the stack that starts at `top`.
///
/// # Safety
/// Nobody else uses that stack; the function doesn't unwind, and takes that argument.
#[unsafe(naked)]
pub unsafe extern "C" fn on_stack(
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    top: *mut u8,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// The SIGSYS handler: lets system calls through, changes to the runtime's stack, and has
/// [`trapping::trap`] do the work, whose answer says how to go on.
///
/// # Safety
/// For the kernel only.
#[unsafe(naked)]
pub unsafe extern "C" fn trap(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    naked_asm!(
        "mov rax, [rip + txos_tls@GOTTPOFF]",
        "movzx r8d, word ptr fs:[rax]", // selector and state
        "mov byte ptr fs:[rax], 0",
        // Only calls of the thread that was dispatched are ours, and only from its own code.
        "cmp dword ptr [rsi + 8], 2", // si_code == SYS_USER_DISPATCH
        "jne 3f",
        "cmp byte ptr fs:[rax + 1], 1", // state == ACTIVE
        "jne 3f",
        "mov byte ptr fs:[rax + 1], 0",
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, fs:[rax + 16]",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "call {work}",
        "mov rsp, rbp",
        "pop rbp",
        "test al, al",
        "jz 2f",
        "mov rax, [rip + txos_tls@GOTTPOFF]",
        "mov word ptr fs:[rax], 0x0101", // BLOCK, ACTIVE
        "2:",
        "ret",
        // Somebody else's: to the program's own handler, in the state in which it was running.
        "3:",
        "mov word ptr fs:[rax], r8w",
        "jmp {foreign}",
        work = sym trapping::trap,
        foreign = sym trapping::foreign,
    )
}

/// The SIGSYS handler in a process into which a program was loaded beside the library: [`trap`], with the library's thread
/// pointer. Both pointers are in the thread's block, to which `gs` leads.
///
/// # Safety
/// For the kernel only, in a thread that has been prepared for it ([`super::loader::memory`]).
#[unsafe(naked)]
pub unsafe extern "C" fn trap_beside(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    naked_asm!(
        "rdfsbase rax",
        "mov gs:[32], rax",
        "mov rax, gs:[24]",
        "wrfsbase rax",
        "sub rsp, 8",
        "call {trap}",
        "add rsp, 8",
        "mov rax, gs:[32]",
        "wrfsbase rax",
        "ret",
        trap = sym trap,
    )
}

/// Returns from a signal handler. Its address is exempt from dispatch.
///
/// # Safety
/// The stack pointer must be at a signal frame.
#[unsafe(naked)]
#[unsafe(link_section = "txos_exempt")]
pub unsafe extern "C" fn restore() {
    naked_asm!("mov eax, 15", "syscall", "ud2")
}

/// Makes a system call; it is called with the registers of one. Its address is exempt from
/// dispatch: the kernel need not read the selector, which is half of what an armed thread pays.
///
/// # Safety
/// As the system call.
#[unsafe(naked)]
#[unsafe(link_section = "txos_exempt")]
pub unsafe extern "C" fn exempt_syscall() {
    naked_asm!("syscall", "ret")
}

/// Where the exempt code is, and how long it is. The linker knows: a section whose name is a word
/// of C has symbols at both ends.
pub fn exempt() -> (u64, u64) {
    unsafe extern "C" {
        static __start_txos_exempt: u8;
        static __stop_txos_exempt: u8;
    }
    let (start, stop) = (&raw const __start_txos_exempt, &raw const __stop_txos_exempt);
    (start as u64, stop as u64 - start as u64)
}

/// What a new thread starts with, at the top of its stack; [`clone_child`] takes it from there, as
/// the parent may be gone from its own stack by then.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // registers
pub struct Birth {
    /// The signal mask.
    pub mask: u64,
    /// The registers, in the order in which `clone_child` takes them.
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    /// Floating point control.
    pub mxcsr: u32,
    pub fcw: u32,
    /// Where the program goes on.
    pub rip: u64,
    /// What a thread that is in its maker's transaction starts with ([`members::Newborn`]); 0: it is in none.
    pub newborn: u64,
}

const _: () = assert!(size_of::<Birth>() == 128);

// SAFETY: every pattern of bits is a number.
unsafe impl crate::user::Plain for Birth {}

/// Makes a system call (`clone` or `clone3`) whose child has a new stack with a [`Birth`] on it.
/// Only the parent returns.
///
/// # Safety
/// As the system call; the new stack must start with a [`Birth`].
#[unsafe(naked)]
pub unsafe extern "C" fn clone_child(number: i64, args: *const [u64; 6]) -> i64 {
    naked_asm!(
        "mov rax, rdi",
        "mov r11, rsi",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "mov rdx, [r11 + 16]",
        "mov r10, [r11 + 24]",
        "mov r8, [r11 + 32]",
        "mov r9, [r11 + 40]",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "mov eax, 14", // rt_sigprocmask
        "mov edi, 2",  // SIG_SETMASK
        "mov rsi, rsp",
        "xor edx, edx",
        "mov r10d, 8",
        "syscall",
        "mov rdi, [rsp + 120]",
        "test rdi, rdi",
        "jz 3f",
        "mov r12, rsp",
        "mov rsp, [rdi]",
        "cld",
        "call {born}",
        "mov rsp, r12",
        // Signals come in when nothing of the runtime is on any stack.
        "mov [rsp], rax",
        "mov eax, 14",
        "mov edi, 2",
        "mov rsi, rsp",
        "xor edx, edx",
        "mov r10d, 8",
        "call {exempt}",
        "3:",
        "mov r8, [rsp + 8]",
        "mov r9, [rsp + 16]",
        "mov r10, [rsp + 24]",
        "mov r12, [rsp + 32]",
        "mov r13, [rsp + 40]",
        "mov r14, [rsp + 48]",
        "mov r15, [rsp + 56]",
        "mov rdi, [rsp + 64]",
        "mov rsi, [rsp + 72]",
        "mov rbp, [rsp + 80]",
        "mov rbx, [rsp + 88]",
        "mov rdx, [rsp + 96]",
        "ldmxcsr [rsp + 104]",
        "fldcw [rsp + 108]",
        "mov rcx, [rsp + 112]", // what a system call leaves there anyway
        "lea rsp, [rsp + 128]",
        "xor eax, eax",
        "jmp rcx",
        born = sym members::born,
        exempt = sym exempt_syscall,
    )
}
