//! What is kept for each thread that began a transaction, and for the process.
#![allow(unsafe_code)] // raw system calls, thread-specific data, memory that outlives its scope

use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::entry::{self, Regs};
use super::joint::Prepared;
use super::loader::memory;
use super::processes::{host, joining};
use super::report::{Counters, Report};
use super::session::{self, Session};
use super::tls::{ALLOW, BLOCK, IDLE, LINGERING, Tls, here};
use super::{alloc, interrupted, linker, signals};
use crate::raw::syscall;
use crate::tx::succession::Succession;
use crate::tx::{messages, numbers, shared};

/// The runtime's stack: what a commit with long paths needs, several times over. Only what is
/// touched takes memory.
const STACK: usize = 1 << 20;
const GUARD: usize = 4096;

/// Native calls of a thread before dispatch is switched off after a transaction: an armed thread
/// pays for the slow way into the kernel on each call, and a switch costs as much as a few calls.
/// Only interposed calls are counted; a thread that makes no others stays armed.
const LINGER: u32 = 8;

/// `prctl`: Syscall User Dispatch.
pub const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const PR_SYS_DISPATCH_OFF: u64 = 0;
const PR_SYS_DISPATCH_ON: u64 = 1;

/// A thread.
#[derive(Debug, Default)]
pub struct Thread {
    /// Where the transaction began. (Assembly holds its address across a restart.)
    pub regs: Regs,
    /// The transaction.
    pub session: Option<Session>,
    /// What happened last.
    pub report: Report,
    /// What happened so far.
    pub counters: Counters,
    /// Calls in which it waits while handlers may run, the last one in a handler of the one before.
    pub waits: Vec<Wait>,
    /// The program's stack for handlers, if it is too small for what the kernel puts there for each call.
    pub small: Option<Alternate>,
    /// The end of a second stack for the runtime, for calls of handlers that interrupt a call of the program's.
    pub spare: Option<Spare>,
    /// A transaction of the thread's that waits to be decided.
    pub prepared: Option<Box<Prepared>>,
    /// The name of its next transaction, for those that are to come after that.
    pub name: Option<String>,
    /// The place of a transaction that has not committed, and that the program itself begins again (TX_RETRY).
    pub between: Option<Arc<Succession>>,
    /// Whether a conflict that it loses by its present call is put off.
    pub patience: linker::Patience,
    /// For tests: at which call for a file from here its transaction loses a conflict; 0: at none.
    pub loses_at: i64,
}

impl Thread {
    /// The runtime's stack on which a handler runs that interrupts a call that waits, by the program's stack pointer, as the one that
    /// the program has for handlers: that would natively be in use now. `None`: it has none, or does not run there.
    pub fn stack_of_handler(&self, pointer: usize) -> Option<libc::stack_t> {
        let at = self.waits.iter().rposition(|wait| wait.own_stack().contains(&pointer))?;
        let entered = self.waits.get(..=at)?;
        let Range { start, end } = entered.last()?.own_stack();
        let has_one = entered.iter().any(|wait| wait.alternate.is_some());
        has_one.then(|| Alternate(start, libc::SS_ONSTACK, end - start).described())
    }
}

/// The program's stack for handlers: where, with which flags, how large.
#[derive(Clone, Copy, Debug)]
pub struct Alternate(usize, i32, usize);

impl Alternate {
    /// As the kernel describes it.
    pub fn of(stack: &libc::stack_t) -> Alternate {
        Alternate(stack.ss_sp as usize, stack.ss_flags, stack.ss_size)
    }

    /// For the kernel.
    pub fn described(self) -> libc::stack_t {
        let Alternate(start, ss_flags, ss_size) = self;
        libc::stack_t { ss_sp: start as *mut c_void, ss_flags, ss_size }
    }
}

/// A call in which a thread waits while handlers may run.
#[derive(Debug)]
pub struct Wait {
    /// The program's stack for handlers before it.
    alternate: Option<Alternate>,
    /// So far up from its beginning they have it meanwhile.
    limit: usize,
    /// The program's stack pointer.
    pointer: usize,
    /// The end of the stack on which the runtime is at work on the call; handlers that have no other run there.
    own: *mut u8,
}

impl Wait {
    /// Where handlers run that have no other stack.
    fn own_stack(&self) -> Range<usize> {
        let end = self.own as usize;
        end - STACK + GUARD..end
    }

    /// Whether the program is in a handler that runs meanwhile, by its stack pointer.
    fn is_interrupted_at(&self, pointer: usize) -> bool {
        let on_alternate = self
            .alternate
            .is_some_and(|Alternate(start, ..)| (start..self.limit).contains(&pointer));
        self.own_stack().contains(&pointer) || on_alternate
    }

    /// Whether a handler has jumped out of it, by the program's stack pointer: to a function that calls the one that waited, which
    /// is near. A program may also have several stacks, and leave a handler for another one for a while; with those nothing is
    /// done, as the handler may return.
    fn is_left_at(&self, pointer: usize) -> bool {
        const NEAR: usize = 256 << 10;
        let is_near = pointer.checked_sub(self.pointer).is_some_and(|above| above < NEAR);
        is_near && !self.is_interrupted_at(pointer)
    }
}

/// A stack that is kept.
#[derive(Debug)]
pub struct Spare(*mut u8);

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: it is one of `new_stack`, and nothing runs on a stack that is kept.
        unsafe { free_stack(self.0) };
    }
}

/// The thread's record can't be had.
#[derive(Debug)]
pub struct NoMemory;

/// The key whose destructor ends a thread; -1: none.
static KEY: AtomicI32 = AtomicI32::new(-1);
/// Set in this process, and zero in a child of it: the kernel wipes this page on fork.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
static STARTED: AtomicBool = AtomicBool::new(false);

/// The calling thread's record, made if there is none. All signals must be blocked.
///
/// # Errors
/// If there is no memory.
#[allow(clippy::mut_from_ref)] // see `existing`
pub fn record(tls: &Tls) -> Result<&mut Thread, NoMemory> {
    start_process(tls);
    if tls.thread.get().is_null() {
        install(tls, new_stack()?, Box::default());
        signals::let_traps_through(signals::SYNCHRONOUS | signals::at_once());
    }
    existing(tls).ok_or(NoMemory)
}

/// A new stack for the runtime: its end.
///
/// # Errors
/// If there is no memory.
pub fn new_stack() -> Result<*mut u8, NoMemory> {
    bury_abandoned();
    let stack = alloc::map(STACK);
    if stack.is_null() {
        return Err(NoMemory);
    }
    let guard = [stack as u64, GUARD as u64, libc::PROT_NONE as u64, 0, 0, 0];
    // SAFETY: the lowest page of the new stack, which nothing has been put in.
    unsafe { syscall(libc::SYS_mprotect, guard) };
    // SAFETY: the end of the mapping.
    Ok(unsafe { stack.add(STACK) })
}

/// Threads that ended with their records and stacks in use.
static ABANDONED: Mutex<Vec<Abandoned>> = Mutex::new(Vec::new());

struct Abandoned {
    thread: u64,
    /// The thread-local memory of the library's code, if that is not the program's.
    memory: Option<memory::Own>,
    record: *mut Thread,
    stack: *mut u8,
}

// SAFETY: nobody uses the record and the stack when the thread is gone.
unsafe impl Send for Abandoned {}

/// The calling thread ends now, on the runtime's stack. A later thread gives record and stack back.
pub fn abandon(tls: &Tls) {
    // SAFETY: it takes nothing.
    let thread = unsafe { syscall(libc::SYS_gettid, [0; 6]) } as u64;
    let record = tls.thread.get();
    let memory = memory::Own::of_thread(tls);
    let stack = tls.stack.get();
    memory::alone(|| {
        let mut all = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Abandoned { thread, memory, record, stack });
    });
}

fn bury_abandoned() {
    let process = u64::from(std::process::id());
    let is_there = |abandoned: &mut Abandoned| {
        let words = [process, abandoned.thread, 0, 0, 0, 0];
        // SAFETY: no signal is sent; it is asked whether there is such a thread.
        let is_gone = unsafe { syscall(libc::SYS_tgkill, words) } == -i64::from(libc::ESRCH);
        if is_gone && !abandoned.record.is_null() {
            // SAFETY: it was leaked by `install`, and its thread, which ran on that stack, is gone.
            unsafe {
                drop(Box::from_raw(abandoned.record));
                free_stack(abandoned.stack);
            }
            if let Some(memory) = &abandoned.memory {
                memory.free();
            }
        }
        !is_gone
    };
    memory::alone(|| {
        ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).retain_mut(is_there);
    });
}

/// Gives a stack back.
///
/// # Safety
/// It is one of [`new_stack`], and nothing runs on it.
pub unsafe fn free_stack(end: *mut u8) {
    // SAFETY: it has this size.
    unsafe { alloc::unmap(end.sub(STACK), STACK) };
}

/// Makes a record the calling thread's, which has none.
pub fn install(tls: &Tls, stack: *mut u8, thread: Box<Thread>) {
    tls.stack.set(stack);
    tls.thread.set(Box::into_raw(thread));
    if memory::is_loaded() {
        memory::alone(touch);
    } else {
        // It may wait for a lock of the C library that a thread has which is about to make a process.
        touch();
    }
    let key = KEY.load(Ordering::Relaxed);
    if let Ok(key) = libc::pthread_key_t::try_from(key) {
        // SAFETY: the key was created; the destructor takes this pointer. Without the value
        // the thread's end is only noticed in its last system call.
        unsafe { libc::pthread_setspecific(key, tls.thread.get().cast()) };
    }
}

/// The calling thread's record, if it has one.
///
/// Each entry into the runtime asks for it once, and the runtime is not entered again by the same
/// thread before it is left ([`Tls::busy`]), so there is one reference at a time.
#[allow(clippy::mut_from_ref)] // the record belongs to the thread, the reference stands for that
pub fn existing(tls: &Tls) -> Option<&mut Thread> {
    // SAFETY: null, or a leaked box that only the thread's end takes back.
    unsafe { tls.thread.get().as_mut() }
}

/// Whatever thread-local state the Rust library keeps for code that runs in a signal handler: it
/// registers destructors when it is first used, which may allocate.
fn touch() {
    txos_engine::realm::touch_thread();
    std::hint::black_box(crate::tx::kernel::is_worn());
    std::hint::black_box(std::thread::current().id());
    let _ = catch_unwind(|| std::hint::black_box(std::thread::panicking()));
}

/// Once in a process, and again in a child that was forked from one.
fn start_process(tls: &Tls) {
    // SAFETY: null, or a page that stays mapped.
    let mark = unsafe { MARK.load(Ordering::Acquire).as_ref() };
    if mark.is_some_and(|mark| mark.load(Ordering::Relaxed) != 0) {
        return;
    }
    if let Some(mark) = mark {
        // A child: dispatch is not inherited, and nothing of the parent's transactions is ours.
        mark.store(1, Ordering::Relaxed);
        alloc::after_fork();
        after_fork(tls);
        return;
    }
    if STARTED.swap(true, Ordering::AcqRel) {
        return; // another thread does it, with a page that says "child" to nobody yet
    }
    let page = alloc::map(GUARD).cast::<AtomicU32>();
    // SAFETY: a new page, or null, for which nothing is done; the key is created once.
    unsafe {
        if !page.is_null() {
            let wipe = [page as u64, GUARD as u64, libc::MADV_WIPEONFORK as u64, 0, 0, 0];
            syscall(libc::SYS_madvise, wipe);
            (*page).store(1, Ordering::Relaxed);
        }
        let mut key = 0;
        if libc::pthread_key_create(&raw mut key, Some(end_of_thread)) == 0 {
            KEY.store(i32::try_from(key).unwrap_or(-1), Ordering::Relaxed);
        }
    }
    MARK.store(page, Ordering::Release);
}

/// In a child that was forked: the thread's own transaction is the parent's alone, and so is the parent's place
/// in the realm.
pub fn after_fork(tls: &Tls) {
    tls.selector.set(ALLOW);
    tls.state.set(IDLE);
    tls.armed.set(0);
    tls.busy.set(0);
    tls.goes_by_none();
    tls.abort_if.set(null());
    session::forget_paused();
    shared::after_fork();
    messages::after_fork();
    numbers::after_fork();
    host::after_fork();
    joining::after_fork();
    memory::after_fork();
    if let Some(session) = existing(tls).and_then(|thread| thread.session.take()) {
        session.forget();
    }
    if let Some(prepared) = existing(tls).and_then(|thread| thread.prepared.take()) {
        prepared.forget();
    }
    // It is of another process, so nothing is said of its end.
    drop(existing(tls).and_then(|thread| thread.between.take()));
}

/// In a child that goes on in its parent's transaction: dispatch is not inherited.
pub fn after_fork_of_member(tls: &Tls) {
    // SAFETY: null, or a page that stays mapped.
    if let Some(mark) = unsafe { MARK.load(Ordering::Acquire).as_ref() } {
        mark.store(1, Ordering::Relaxed);
    }
    tls.armed.set(0);
    session::forget_paused();
    shared::after_fork();
    messages::after_fork();
    numbers::after_fork();
    host::after_fork();
    joining::after_fork();
    memory::after_fork();
}

/// Has this thread's system calls dispatched.
///
/// # Errors
/// The kernel's errno if it can't.
pub fn arm(tls: &Tls) -> Result<(), i32> {
    if tls.armed.get() != 0 {
        return Ok(());
    }
    if cfg!(debug_assertions) && std::env::var_os("TXOS_DEBUG_NO_DISPATCH").is_some() {
        return Err(libc::EINVAL);
    }
    signals::install_trap()?;
    tls.selector.set(ALLOW);
    let (code, size) = entry::exempt();
    let selector = tls.selector.as_ptr() as u64;
    let args = [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, code, size, selector, 0];
    // SAFETY: the selector lives as long as the thread, and allows everything for now.
    let answer = unsafe { syscall(libc::SYS_prctl, args) };
    if answer < 0 {
        return Err(i32::try_from(-answer).unwrap_or(libc::EINVAL));
    }
    tls.armed.set(1);
    Ok(())
}

/// Has the kernel take this thread's calls directly again.
pub fn disarm(tls: &Tls) {
    if tls.armed.replace(0) != 0 {
        let args = [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0, 0];
        // SAFETY: nothing is dispatched any more.
        unsafe { syscall(libc::SYS_prctl, args) };
    }
    if tls.state.get() == LINGERING {
        tls.state.set(IDLE);
    }
}

/// The program's code goes on, outside of a transaction; maybe there is another one soon.
pub fn linger(tls: &Tls) {
    tls.selector.set(ALLOW);
    tls.goes_by_none();
    tls.abort_if.set(null());
    tls.linger.set(LINGER);
    tls.state.set(if tls.armed.get() != 0 { LINGERING } else { IDLE });
}

/// A native call of a lingering thread.
#[cold]
pub fn lingered(tls: &Tls) {
    let left = tls.linger.get().saturating_sub(1);
    tls.linger.set(left);
    if left == 0 {
        disarm(tls);
    }
}

/// Runtime code runs: its calls go to the kernel.
#[inline]
pub fn leave_program(tls: &Tls) {
    if tls.at_once.get() != 0 {
        // Until here such a handler finds the program's state, and from here on it waits.
        tls.entered_with.set(signals::block(tls.at_once.get()));
    }
    tls.state.set(IDLE);
    tls.selector.set(ALLOW);
}

/// The program has made a call with this stack pointer, and had this blocked then. `frame`: where the kernel has put what it needs
/// to go on with the program; 0: nowhere. What the kernel is to have as the program's stack for handlers, if that is another one now
/// ([`after_jump`]), and what [`carried_out`] takes.
pub fn entered(
    tls: &Tls,
    thread: &mut Thread,
    blocked: signals::Set,
    pointer: u64,
    frame: u64,
) -> (Option<libc::stack_t>, Entered) {
    let session = thread.session.as_mut();
    if let Some(session) = session.filter(|session| session.are_signals_its_own()) {
        session.masks.are_now(blocked);
        tls.goes_by(&session.masks);
    }
    let stack = after_jump(thread, pointer as usize);
    (stack, Entered { frame: tls.frame.replace(frame), pointer: tls.pointer.replace(pointer) })
}

/// Where the call came from in whose handler a call was made.
#[derive(Debug)]
pub struct Entered {
    frame: u64,
    pointer: u64,
}

/// The call is carried out.
pub fn carried_out(tls: &Tls, before: &Entered) {
    tls.frame.set(before.frame);
    tls.pointer.set(before.pointer);
}

/// The program's code goes on, in a transaction.
#[inline]
pub fn to_program(tls: &Tls) {
    tls.state.set(super::tls::ACTIVE);
    tls.selector.set(BLOCK);
    if tls.let_in.get() != 0 {
        signals::unblock(tls.let_in.get());
    }
}

/// The C library runs code of this library among the program's, as at its exit: the calls that it makes go to the kernel, in a
/// transaction as well. Where the library itself is at work, nothing is done.
pub fn aside(work: impl FnOnce()) {
    let tls = here();
    if tls.busy.get() != 0 {
        return;
    }
    if tls.state.get() != super::tls::ACTIVE {
        return work();
    }
    leave_program(tls);
    if existing(tls).is_some() {
        let _ = on_own_stack(tls, work);
    }
    to_program(tls);
}

/// Makes a call of the program's that may wait, in a process all of whose signals are the program's: their handlers
/// run meanwhile, in the transaction, as the program's code does.
///
/// Their own calls come here again, by a second stack. They don't have the program's alternate stack: what the kernel has put
/// there for this call would be overwritten. In a process into which the library has loaded a program they have what lies
/// below that, unless it is little: Go's handlers end the process on another stack.
///
/// One that jumps out never comes back here: that is found with the next call ([`after_jump`]).
pub fn make_in_program(tls: &Tls, mask: signals::Set, call: &crate::call::Call) -> i64 {
    let spare = existing(tls).and_then(|thread| thread.spare.take());
    let Some(spare) = spare.or_else(|| new_stack().ok().map(Spare)) else {
        // Without memory for it the signals wait.
        return call.make();
    };
    let own = tls.stack.replace(spare.0);
    let frame = tls.frame.replace(0);
    let alternate = exchange_alternate(None);
    let free = alternate.filter(|_| memory::is_loaded()).and_then(|whole| below(whole, frame));
    let (mut depth, mut masks) = (0, None);
    if let Some(thread) = existing(tls) {
        let session = thread.session.as_ref().filter(|session| session.are_signals_its_own());
        masks = session.map(|session| session.masks);
        depth = thread.waits.len();
        let alternate = alternate.as_ref().map(Alternate::of);
        let limit = free.map_or(0, |free| free.ss_sp as usize + free.ss_size);
        let pointer = tls.pointer.get() as usize;
        thread.waits.push(Wait { alternate, limit, pointer, own });
    }
    if let Some(free) = free {
        exchange_alternate(Some(free));
    }
    tls.busy.set(0);
    tls.state.set(super::tls::ACTIVE);
    tls.selector.set(BLOCK);
    let come = signals::handlers_to_run(mask);
    let in_program = |answer: &dyn Fn() -> i64| {
        memory::to_program(tls);
        let blocked = signals::set_mask(mask);
        let answer = answer();
        signals::set_mask(blocked);
        memory::to_library(tls);
        answer
    };
    let answer = match come {
        None => in_program(&|| call.make()),
        // They run; whatever comes then is in time for a wait.
        Some(restarts) if !memory::is_loaded() => {
            in_program(&|| interrupted::answer(call, restarts).unwrap_or_else(|| call.make()))
        }
        // The library looks at the program's memory with its own thread pointer only.
        Some(restarts) => {
            in_program(&|| 0);
            interrupted::answer(call, restarts).unwrap_or_else(|| in_program(&|| call.make()))
        }
    };
    tls.selector.set(ALLOW);
    tls.state.set(IDLE);
    tls.busy.set(1);
    if let Some(alternate) = alternate {
        exchange_alternate(Some(alternate));
    }
    tls.stack.set(own);
    tls.frame.set(frame);
    if let Some(thread) = existing(tls) {
        thread.spare = Some(spare);
        thread.waits.truncate(depth);
        if let (Some(session), Some(masks)) = (thread.session.as_mut(), masks) {
            // What handlers had blocked meanwhile they have no more.
            session.masks = masks;
            tls.goes_by(&masks);
        }
    }
    answer
}

/// The program's stack for handlers is in use again, after a handler has jumped out of a wait ([`make_in_program`]), or
/// has lost the transaction.
pub fn leave_wait(waits: &mut Vec<Wait>) {
    if let Some(alternate) = waits.drain(..).next().and_then(|wait| wait.alternate) {
        exchange_alternate(Some(alternate.described()));
    }
}

/// The program makes a call with this stack pointer: it may have jumped out of handlers, and so out of calls in which it waited.
/// Its stack for handlers is as it was before these. That, if it is another one now. (The stacks that the runtime had for these calls
/// are left to the process.)
fn after_jump(thread: &mut Thread, pointer: usize) -> Option<libc::stack_t> {
    let mut alternate = None;
    while let Some(wait) = thread.waits.pop_if(|wait| wait.is_left_at(pointer)) {
        alternate = wait.alternate;
    }
    let alternate = alternate.map(Alternate::described);
    if let Some(alternate) = alternate {
        exchange_alternate(Some(alternate));
    }
    alternate
}

/// What of a stack for handlers lies below a frame that the kernel has put there. `None`: too little, or nobody knows how far it
/// is in use. All of it, if the frame is elsewhere.
fn below(whole: libc::stack_t, frame: u64) -> Option<libc::stack_t> {
    /// What a call that comes while a handler runs takes there, and what the handler needs itself.
    const LEAST: usize = 16 << 10;
    /// Below the frame's description of the program lies an address, and there may be a red zone.
    const BESIDE: usize = 8 + 128;
    let (start, frame) = (whole.ss_sp as usize, frame as usize);
    if frame == 0 {
        return None;
    }
    if !(start..start + whole.ss_size).contains(&frame) {
        return Some(whole);
    }
    let size = (frame - start).saturating_sub(BESIDE) & !15;
    (size >= LEAST).then_some(libc::stack_t { ss_size: size, ..whole })
}

/// Has handlers run on this stack, or on none of their own; gives the one of before, if there was one.
fn exchange_alternate(new: Option<libc::stack_t>) -> Option<libc::stack_t> {
    let none = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    let (new, mut old) = (new.unwrap_or(none), none);
    let words = [(&raw const new) as u64, (&raw mut old) as u64, 0, 0, 0, 0];
    // SAFETY: the kernel reads one description and writes the other; the stack is the program's.
    let answer = unsafe { syscall(libc::SYS_sigaltstack, words) };
    (answer == 0 && old.ss_flags & libc::SS_DISABLE == 0).then_some(old)
}

/// Does some work on the runtime's stack. A panic ends there.
///
/// # Errors
/// What a panic said.
pub fn on_own_stack<R, F: FnOnce() -> R>(tls: &Tls, work: F) -> Result<R, String> {
    struct Job<F, R> {
        work: Option<F>,
        result: Option<Result<R, String>>,
    }
    unsafe extern "C" fn go<F: FnOnce() -> R, R>(job: *mut c_void) {
        // SAFETY: it is the job below, which waits for this function.
        let job = unsafe { &mut *job.cast::<Job<F, R>>() };
        job.result = job.work.take().map(guarded);
    }
    let mut job = Job { work: Some(work), result: None };
    tls.busy.set(1);
    // SAFETY: the stack is the thread's, and not in use: the thread was not busy.
    unsafe { entry::on_stack(go::<F, R>, (&raw mut job).cast(), tls.stack.get()) };
    tls.busy.set(0);
    job.result.unwrap_or_else(|| Err(String::new()))
}

/// Does some work; a panic ends here.
///
/// # Errors
/// What a panic said.
pub fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| words_of(&*panic))
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The thread ends: its transaction is aborted, and its record goes.
extern "C" fn end_of_thread(_: *mut c_void) {
    let tls = here();
    if tls.busy.get() != 0 {
        return;
    }
    let session = existing(tls).and_then(|thread| thread.session.as_ref());
    let stays = |session: &Session| {
        session.process.is_some() || session.member.as_ref().is_some_and(|m| !m.began())
    };
    if session.is_some_and(stays) {
        // Other destructors are part of the transaction, too: it leaves when it ends.
        return;
    }
    leave_program(tls);
    let mask = signals::block_all();
    session::end_of_thread(tls);
    disarm(tls);
    tls.state.set(IDLE);
    let thread = tls.thread.replace(null_mut());
    if !thread.is_null() {
        // SAFETY: it was leaked by `record`, and the only way to it is gone. Nothing runs on its
        // stack: this runs on the thread's.
        unsafe {
            drop(Box::from_raw(thread));
            free_stack(tls.stack.replace(null_mut()));
        }
    }
    signals::set_mask(mask);
}
