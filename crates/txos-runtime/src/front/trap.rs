//! System calls that come by Syscall User Dispatch, as SIGSYS.
#![allow(unsafe_code)] // called by the kernel, with its structures

use std::ffi::c_void;

use super::dispatch::dispatch;
use super::entry::{self, Birth};
use super::linker;
use super::loader::memory;
use super::session::{Next, Session};
use super::signals::{self, Set};
use super::thread::{self, Alternate, Thread, leave_program};
use super::tls::{ACTIVE, here};
use crate::call::Call;
use crate::raw::syscall;

/// The trapped program: what the kernel has put on the stack and takes from there in the end.
#[repr(transparent)]
#[derive(Debug)]
pub struct Context(libc::ucontext_t);

/// Of a kernel that had no such architecture: a 32-bit call of a 64-bit program.
const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;

/// How the thread goes on: the program's code in its transaction.
const IN_TRANSACTION: u8 = 1;
/// Elsewhere.
const OUTSIDE: u8 = 0;

/// How large a stack must be for the kernel to put there what it needs to go on after a trap.
fn least_for_a_trap() -> usize {
    /// Where the kernel does not tell (before Linux 5.14).
    const UNTOLD: u64 = 4096;
    const AT_MINSIGSTKSZ: u64 = 51;
    // SAFETY: it takes a number.
    let told = unsafe { libc::getauxval(AT_MINSIGSTKSZ) };
    (if told == 0 { UNTOLD } else { told }) as usize + 512
}

impl Context {
    fn register(&self, index: i32) -> u64 {
        self.0.uc_mcontext.gregs[index as usize] as u64
    }

    fn set_register(&mut self, index: i32, value: u64) {
        self.0.uc_mcontext.gregs[index as usize] = value as i64;
    }

    /// Where the program's stack ends, unless that is the alternate one for its handlers.
    pub fn stack_pointer(&self) -> Option<u64> {
        let (pointer, alternate) = (self.register(libc::REG_RSP), &self.0.uc_stack);
        let start = alternate.ss_sp as u64;
        let end = start.saturating_add(alternate.ss_size as u64);
        (!(start..=end).contains(&pointer)).then_some(pointer)
    }

    /// What is blocked while the program runs.
    pub fn mask(&self) -> Set {
        // SAFETY: the kernel's set is the first word of the C library's.
        unsafe { (&raw const self.0.uc_sigmask).cast::<Set>().read_unaligned() }
    }

    /// What is blocked when the program goes on.
    pub fn set_mask(&mut self, mask: Set) {
        // SAFETY: the kernel's set is the first word of the C library's.
        unsafe { (&raw mut self.0.uc_sigmask).cast::<Set>().write_unaligned(mask) };
    }

    /// `sigaltstack`. The kernel puts what the frame says in force when the handler returns, but not
    /// always: Linux 6.18 leaves things as they are if the frame lies on the very stack that is to be
    /// changed. So it is changed here, too, where the runtime's own stack is in use.
    pub fn alternate_stack(&mut self, thread: &mut Thread, call: &Call) -> i64 {
        let (new, old) = (call.pointer::<libc::stack_t>(0), call.pointer::<libc::stack_t>(1));
        let pointer = self.register(libc::REG_RSP);
        let lent = thread.stack_of_handler(pointer as usize);
        let small = &mut thread.small;
        let mut now = small.map_or(self.0.uc_stack, Alternate::described);
        let (start, end) = (now.ss_sp as u64, now.ss_sp as u64 + now.ss_size as u64);
        let inside = (start..end).contains(&pointer);
        now.ss_flags &= !libc::SS_ONSTACK;
        if inside {
            now.ss_flags |= libc::SS_ONSTACK;
        }
        if now.ss_size == 0 {
            // Go ends the process if its handler runs on a stack that is not said to be one for handlers.
            match lent {
                Some(lent) => now = lent,
                None => now.ss_flags |= libc::SS_DISABLE,
            }
        }
        if !new.is_null() {
            let Ok(mut new) = new.read() else { return -i64::from(libc::EFAULT) };
            // The smallest that the kernel takes.
            const LEAST: usize = 2048;
            if inside {
                return -i64::from(libc::EPERM);
            }
            match new.ss_flags & !(1 << 31) {
                libc::SS_DISABLE => (new.ss_sp, new.ss_size) = (std::ptr::null_mut(), 0),
                0 | libc::SS_ONSTACK if new.ss_size < LEAST => return -i64::from(libc::ENOMEM),
                0 | libc::SS_ONSTACK => {}
                _ => return -i64::from(libc::EINVAL),
            }
            *small = None;
            if new.ss_flags & libc::SS_DISABLE == 0 && new.ss_size < least_for_a_trap() {
                // Natively it would do until a signal comes. Here each call is one.
                *small = Some(Alternate::of(&new));
                (new.ss_sp, new.ss_size, new.ss_flags) =
                    (std::ptr::null_mut(), 0, libc::SS_DISABLE);
            }
            let arguments = [(&raw const new) as u64, 0, 0, 0, 0, 0];
            // SAFETY: the kernel reads what is described here; the stack is the program's to name.
            let answer = unsafe { syscall(libc::SYS_sigaltstack, arguments) };
            if answer < 0 {
                return answer;
            }
            self.0.uc_stack = new;
        }
        if !old.is_null() && old.write(now).is_err() {
            return -i64::from(libc::EFAULT);
        }
        0
    }

    /// What a child with a stack of its own starts with.
    pub fn birth(&self, mask: Set) -> Birth {
        let fp = self.0.uc_mcontext.fpregs;
        // SAFETY: the kernel's frame has the floating point state, or null.
        let (mxcsr, fcw) = unsafe { fp.as_ref() }.map_or((0x1f80, 0x37f), |f| (f.mxcsr, f.cwd));
        Birth {
            mask,
            r8: self.register(libc::REG_R8),
            r9: self.register(libc::REG_R9),
            r10: self.register(libc::REG_R10),
            r12: self.register(libc::REG_R12),
            r13: self.register(libc::REG_R13),
            r14: self.register(libc::REG_R14),
            r15: self.register(libc::REG_R15),
            rdi: self.register(libc::REG_RDI),
            rsi: self.register(libc::REG_RSI),
            rbp: self.register(libc::REG_RBP),
            rbx: self.register(libc::REG_RBX),
            rdx: self.register(libc::REG_RDX),
            mxcsr,
            fcw: fcw.into(),
            rip: self.register(libc::REG_RIP),
            newborn: 0,
        }
    }

    /// The program makes its call once more, after the handlers of what has come meanwhile.
    pub fn make_again(&mut self) -> Next {
        /// The instruction has so many bytes. The kernel has put the call's number back to where the program had it.
        const SYSCALL: u64 = 2;
        self.set_register(libc::REG_RIP, self.register(libc::REG_RIP) - SYSCALL);
        Next::Answer(self.register(libc::REG_RAX) as i64)
    }

    /// The program goes on where the transaction began.
    fn go_again(&mut self, regs: *const entry::Regs) {
        // SAFETY: the thread's record has them.
        let rsp = unsafe { (*regs).rsp };
        // Until it has begun again no handler may come in between.
        self.set_mask(!signals::SYNCHRONOUS);
        self.set_register(libc::REG_RIP, entry::again as *const () as u64);
        self.set_register(libc::REG_RDI, regs as u64);
        self.set_register(libc::REG_RSP, rsp - 8);
    }
}

/// A call of a thread in a transaction, on the runtime's stack. The answer says how it goes on.
///
/// # Safety
/// For the assembly of `entry`, with what the kernel gives a signal handler.
pub unsafe extern "C" fn trap(info: *const libc::siginfo_t, context: *mut Context) -> u8 {
    /// What the kernel tells of the call: behind three words of the signal.
    #[repr(C)]
    struct Trapped {
        _signal: [i32; 4],
        _address: u64,
        number: i32,
        architecture: u32,
    }
    let tls = here();
    let Some(thread) = thread::existing(tls) else { return OUTSIDE };
    // SAFETY: the kernel has filled them in, and nobody else knows of them.
    let (trapped, context) = unsafe { (&*info.cast::<Trapped>(), &mut *context) };
    // 32-bit calls have other numbers: none of them is known.
    let native = trapped.architecture == AUDIT_ARCH_X86_64;
    let number = if native { i64::from(trapped.number) } else { txos_calls::OF_32_BITS };
    if number == libc::SYS_rt_sigreturn {
        // The frame of the program's handler is where its stack pointer is: it returns from there.
        context.set_register(libc::REG_RIP, entry::restore as *const () as u64);
        return IN_TRANSACTION;
    }
    let args =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9]
            .map(|register| context.register(register));
    tls.busy.set(1);
    let is_member = |session: &Session| session.process.is_some();
    let was_member = thread.session.as_ref().is_some_and(is_member);
    let (pointer, frame) = (context.register(libc::REG_RSP), std::ptr::from_ref(context) as u64);
    let instruction = context.register(libc::REG_RIP);
    let (stack, before) = thread::entered(tls, thread, context.mask(), pointer, frame);
    if let Some(stack) = stack {
        // The kernel puts in force what it finds here.
        context.0.uc_stack = stack;
    }
    thread.counters.trapped += 1;
    // SAFETY: the C library's errno of this thread.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the program has made this call, and waits for this handler.
    let mut call = unsafe { Call::new(number, args) };
    if number == libc::SYS_munmap && memory::is_loaded() && call.takes(context) {
        // A thread takes its own stack away: all that it can do then is to end.
        let _ = call.make();
        // SAFETY: it has no pointers.
        call = unsafe { Call::new(libc::SYS_exit, [0; 6]) };
    }
    linker::begins(thread, &call, instruction);
    let next = dispatch(thread, &call, Some(context));
    if let Next::Answer(answer) = next {
        thread.patience.over(&call, answer);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if let Some(session) = thread.session.as_ref().filter(|session| is_member(session))
        && !was_member
    {
        // So far all signals were held back.
        context.set_mask(session.masks.real());
    }
    thread::carried_out(tls, &before);
    tls.busy.set(0);
    match next {
        Next::Answer(answer) => {
            context.set_register(libc::REG_RAX, answer as u64);
            // A child, or a program that goes on outside.
            if thread.session.is_some() { IN_TRANSACTION } else { OUTSIDE }
        }
        Next::Again => {
            context.go_again(&raw const thread.regs);
            OUTSIDE
        }
    }
}

/// A SIGSYS that is not ours: what the program wants to be done.
///
/// # Safety
/// For the assembly of `entry`, with what the kernel gives a signal handler.
pub unsafe extern "C" fn foreign(signal: i32, info: *mut libc::siginfo_t, context: *mut Context) {
    let tls = here();
    let active = tls.state.get() == ACTIVE;
    if active {
        leave_program(tls);
    }
    let action = signals::programs_action();
    let fallback = action.handler == libc::SIG_DFL || action.handler == libc::SIG_IGN;
    if action.handler == libc::SIG_DFL {
        // The process ends of it when the handler returns, as it would have without us.
        signals::take_default(signal);
    } else {
        // SAFETY: the kernel's set is the first word of the C library's.
        let before = unsafe { (&raw const (*context).0.uc_sigmask).cast::<Set>().read_unaligned() };
        signals::set_mask(before | action.mask | signals::of(signal));
    }
    if active {
        thread::to_program(tls);
    }
    if !fallback {
        // SAFETY: the program has given this function as its handler; one that takes fewer
        // arguments does not look at the others.
        unsafe {
            let handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(action.handler);
            memory::in_program(tls, || handler(signal, info, context.cast()));
        }
    }
}
