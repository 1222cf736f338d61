//! Calls that make or end threads and processes.
//!
//! With TX_THREADS, a thread that they make is in the transaction ([`members`]), if it shares everything with its
//! process. All else is not: under TX_STRICT it aborts the transaction, else there
//! is one warning for each kind. How the child starts depends on what it shares with its parent:
//!
//! | child | how |
//! |---|---|
//! | a copy (`fork`) | comes out of the trap like the parent, but outside of the transaction |
//! | `vfork`, on the parent's stack | becomes a copy, for which the parent waits as well |
//! | a stack of its own (a thread, `posix_spawn`) | registers are taken from its stack, see [`Birth`] |
#![allow(unsafe_code)] // system calls, and memory that the program points at

use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

use super::classify::Class;
use super::dispatch::fail;
use super::entry::{self, Birth};
use super::processes::{client, host};
use super::report::reason;
use super::session::{self, Next, Session};
use super::thread::{self, Thread};
use super::tls::here;
use super::trap::Context;
use super::{alloc, api, members, signals};
use crate::call::Call;
use crate::raw::{self, Errno, Sys, syscall};
use crate::tx::{Failure, flags};
use crate::user::UserPtr;

/// What there was a warning of, a bit each.
static WARNED: AtomicU32 = AtomicU32::new(0);

/// A call that goes past the transaction. Under TX_STRICT it is not made: how to go on then.
pub fn outside_call(thread: &mut Thread, what: &'static str, number: i64) -> Option<Next> {
    let name = txos_calls::name(number).unwrap_or_default();
    let session = thread.session.as_ref()?;
    session.tx.as_ref()?;
    if session.plan.flags & flags::STRICT != 0 {
        let why = Failure {
            reason: reason::UNSUPPORTED,
            errno: libc::ECANCELED,
            what: format!("{what} ({name}) can't be part of a transaction"),
            ..Failure::default()
        };
        return Some(fail(thread, why));
    }
    thread.counters.unsupported += 1;
    let bit = 1 << (what.len() % 32);
    if WARNED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        api::tell(&format!("{what} ({name}) is not part of the transaction"));
    }
    None
}

/// The thread, or the process, ends.
pub fn exit(thread: &mut Thread, class: Class, args: [u64; 6]) -> Next {
    let mut status = args[0];
    let command = thread.session.as_mut().and_then(|session| session.command.take());
    let number = match (class, command) {
        (Class::ExitGroup, Some(command)) => {
            // What waits for others to decide is held by a process of its own.
            status = command.end(thread, status as i32, None).0 as u64;
            libc::SYS_exit_group
        }
        (Class::ExitGroup, None) => {
            session::abort_in(thread, session::ended());
            libc::SYS_exit_group
        }
        _ => {
            session::abort_in(thread, session::ended());
            libc::SYS_exit
        }
    };
    kill_processes(thread);
    if let Some(mut session) = thread.session.take() {
        session.checkpoint = None;
        if let Some(succession) = session.plan.succession.take() {
            succession.aborted(&session::ended().what);
        }
        // This thread has the turn, and leaves with it.
        session.forget();
    }
    thread::disarm(here());
    // SAFETY: nothing comes after it.
    Next::Answer(unsafe { syscall(number, [status, 0, 0, 0, 0, 0]) })
}

/// Another program: outside of the transaction, which is aborted. A whole command goes on in it.
pub fn exec(thread: &mut Thread, call: &Call) -> Next {
    let whole = thread.session.as_ref().is_some_and(|session| session.command.is_some());
    if whole {
        return client::run_program(thread, call);
    }
    let (mut call, number) = (*call, call.number());
    // In the transaction: its working directory, and what it has made, moved and taken away.
    let tx = thread.session.as_mut().and_then(|session| session.tx.as_mut());
    let program = tx.map(|tx| thread::guarded(|| tx.program(&call)));
    let doom = thread.session.as_ref().and_then(|session| session.tx.as_ref()?.doomed().cloned());
    if let Some(why) = doom {
        return fail(thread, why);
    }
    let program = match program {
        Some(Ok(Err(errno))) => return Next::Answer(raw::answer(Err(errno))),
        Some(Ok(Ok(program))) => program,
        // It failed before, or what is wrong is found by the kernel.
        _ => None,
    };
    let program = program.and_then(|path| CString::new(path).ok());
    if let Some(path) = &program {
        let at = usize::from(number == libc::SYS_execveat);
        // SAFETY: the path ends with its zero, and lives until the answer.
        call = unsafe { call.with_word(at, path.as_ptr() as u64) };
    }
    if let Err(error) = executable(&call) {
        return Next::Answer(error); // a search along PATH tries many
    }
    if let Some(next) = outside_call(thread, "running another program", number) {
        return next;
    }
    if let Some(tx) = thread.session.as_mut().and_then(|session| session.tx.as_mut()) {
        // The program goes on reading there.
        let why = "another program takes the place of this one";
        let _ = thread::guarded(|| tx.take_pipes_before(Some(number), why).is_ok());
    }
    let why = Failure {
        reason: reason::UNSUPPORTED,
        errno: libc::ECANCELED,
        what: "another program took the place of this one (exec)".into(),
        ..Failure::default()
    };
    // What the thread has become it stays for the new program: that must not get what was given up.
    let restored = thread.session.as_mut().map(|session| std::mem::take(&mut session.restored));
    let mut restored = restored.unwrap_or_default();
    restored.as_before(|| session::abort_in(thread, why));
    restored.committed().iter().for_each(|failure| api::tell(failure));
    restored.give_up();
    kill_processes(thread);
    if let Some(session) = thread.session.as_mut() {
        // Who keeps memory would stay, as the new program's child.
        session.checkpoint = None;
    }
    let mask = thread.session.as_ref().map_or(0, |session| session.masks.before);
    let blocked = signals::set_mask(mask);
    // If it succeeds nothing of this is left.
    let answer = call.make();
    signals::set_mask(blocked);
    Next::Answer(answer)
}

/// The transaction is over, and nobody will wait for its processes.
fn kill_processes(thread: &Thread) {
    if let Some(member) = thread.session.as_ref().and_then(|session| session.member.as_ref()) {
        member.kills_processes();
    }
}

/// Whether there is such a program, as far as that can be told without running it.
fn executable(call: &Call) -> Result<(), i64> {
    let (dir, path, flags) = if call.number() == libc::SYS_execveat {
        (call.word(0), call.word(1), call.word(4))
    } else {
        (libc::AT_FDCWD as u64, call.word(0), 0)
    };
    let flags = flags | libc::AT_EACCESS as u64;
    let asked = [dir, path, libc::X_OK as u64, flags, 0, 0];
    // SAFETY: the path is the program's own.
    match unsafe { syscall(libc::SYS_faccessat2, asked) } {
        0 => Ok(()),
        error => Err(error),
    }
}

/// A new process or thread.
pub fn create(thread: &mut Thread, class: Class, call: &Call, context: &mut Context) -> Next {
    let made = match class {
        Class::Clone => Made::of_clone(*call.words()),
        Class::Clone3 => match Made::of_clone3(call) {
            Ok(made) => made,
            Err(errno) => return Next::Answer(raw::answer(Err(errno))),
        },
        Class::Vfork => Made::vfork(),
        _ => Made::fork(),
    };
    let is_thread = made.is_thread();
    let is_command = thread.session.as_ref().is_some_and(Session::is_command);
    if is_command {
        return client::create(thread, &made, context);
    }
    if !is_thread && let Some(next) = host::create(thread, &made, context) {
        return next;
    }
    if is_thread {
        // From its first instruction on it may have a transaction of its own.
        let shared = members::with(thread, |thread| {
            let tx = thread.session.as_mut().and_then(|session| session.tx.as_mut());
            tx.map_or(Ok(()), |tx| thread::guarded(|| tx.numbers_are_shared()))
        });
        if let Err(panic) = shared {
            return fail(thread, session::defect(&panic));
        }
    }
    if is_thread
        && made.is_whole_thread()
        && let Some(next) = create_member(thread, &made, context)
    {
        return next;
    }
    // One of a language's runtime may be about to join.
    let may_join = is_thread && members::is_shown(thread);
    let outside = match may_join {
        true => None,
        false => members::with(thread, |thread| may_create(thread, class, is_thread)),
    };
    if let Some(next) = outside {
        return next;
    }
    if let Some(tx) = thread.session.as_mut().and_then(|session| session.tx.as_mut()) {
        tx.child_shares_table(made.flags & libc::CLONE_FILES as u64 != 0);
        // It may read there as well. (Under TX_STRICT it is not made.)
        let why = "a new process or thread may read from a pipe";
        if let Err(panic) =
            thread::guarded(|| tx.take_pipes_before(Some(call.number()), why).is_ok())
        {
            return fail(thread, session::defect(&panic));
        }
        if !is_thread && let Err(panic) = thread::guarded(|| tx.release_before_child(call.number()))
        {
            return fail(thread, session::defect(&panic));
        }
    }
    if let Some(session) = thread.session.as_mut() {
        session.restored.before_child(is_thread);
    }
    let mask = thread.session.as_ref().map_or(0, |session| session.masks.programs);
    let next = match made.stack {
        // The kernel would make a child that dies of it; here it would be this thread.
        Some(top) if !is_stack(top) => Next::Answer(-i64::from(libc::EINVAL)),
        // It is the program's from its first instruction on. The C library goes on without it, as on an older kernel.
        Some(_) if made.clears_handlers => Next::Answer(-i64::from(libc::EINVAL)),
        Some(top) => Next::Answer(made.with_stack(top, context.birth(mask))),
        None => Next::Answer(made.copy(mask, context)),
    };
    if let Next::Answer(child) = next
        && !is_thread
        && child > 0
        && let (Ok(child), Some(session)) = (i32::try_from(child), thread.session.as_mut())
    {
        session.restored.groups.has_made(child);
    }
    next
}

/// Whether a stack can end there.
fn is_stack(top: u64) -> bool {
    (1 << 16..=1 << 47).contains(&top)
}

/// A new thread that is in the transaction. `None`: it can't be.
fn create_member(thread: &mut Thread, made: &Made, context: &Context) -> Option<Next> {
    let top = made.stack.filter(|&top| is_stack(top))?;
    let newborn = match members::expect(thread) {
        Ok(newborn) => Box::into_raw(newborn?),
        Err(errno) => return Some(Next::Answer(-i64::from(errno))),
    };
    let birth = Birth { newborn: newborn as u64, ..context.birth(!signals::SYNCHRONOUS) };
    let answer = made.clone().with_stack(top, birth);
    if answer < 0 {
        // SAFETY: there is no such thread, and nobody else has it.
        members::never_born(unsafe { Box::from_raw(newborn) });
    }
    Some(Next::Answer(answer))
}

/// Whether something new outside of the transaction can be made; else how to go on.
fn may_create(thread: &mut Thread, class: Class, is_thread: bool) -> Option<Next> {
    let what = if is_thread { "a new thread" } else { "a new process" };
    // What it did would happen, and stay. (A thread is the language's runtime's perhaps.)
    if !is_thread && thread.session.as_ref().is_some_and(|session| session.tx.is_none()) {
        return Some(Next::Answer(-i64::from(libc::ECANCELED)));
    }
    let number = match class {
        Class::Clone => libc::SYS_clone,
        Class::Clone3 => libc::SYS_clone3,
        Class::Vfork => libc::SYS_vfork,
        _ => libc::SYS_fork,
    };
    outside_call(thread, what, number)
}

/// The child is to have no handlers.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;

/// `struct clone_args`, as large as we know it.
type CloneArgs = [u64; 11];
/// Its fields.
const FLAGS: usize = 0;
const CHILD_TID: usize = 2;
const EXIT_SIGNAL: usize = 4;
const STACK: usize = 5;
const STACK_SIZE: usize = 6;
const TLS: usize = 7;
/// The first size that a kernel took.
const CLONE_ARGS_LEAST: usize = 64;

/// What is to be made.
#[derive(Clone, Debug)]
pub struct Made {
    flags: u64,
    /// The end of its stack, if it has one of its own.
    stack: Option<u64>,
    /// It begins without the handlers of who makes it.
    pub clears_handlers: bool,
    how: How,
}

#[derive(Clone, Debug)]
enum How {
    Clone([u64; 6]),
    Clone3(CloneArgs, u64),
}

impl Made {
    fn fork() -> Made {
        Made::of_clone([libc::SIGCHLD as u64, 0, 0, 0, 0, 0])
    }

    fn vfork() -> Made {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        Made::of_clone([flags as u64, 0, 0, 0, 0, 0])
    }

    /// What `clone(2)` is asked for.
    fn of_clone(args: [u64; 6]) -> Made {
        let stack = (args[1] != 0).then_some(args[1]);
        Made { flags: args[0], stack, clears_handlers: false, how: How::Clone(args) }
    }

    fn of_clone3(call: &Call) -> Sys<Made> {
        let size = call.word(1) as usize;
        if !(CLONE_ARGS_LEAST..=4096).contains(&size) {
            return Err(Errno::INVAL);
        }
        let mut all: CloneArgs = [0; 11];
        let known = size.min(size_of::<CloneArgs>());
        let given = call.buffer(0, size as u64);
        let there = given.readable()?;
        if there.len() < size {
            return Err(Errno::FAULT);
        }
        // What we don't know must be zero.
        if !given.after(known as u64).is_zero()? {
            return Err(Errno::TOOBIG);
        }
        let mut bytes = [0; size_of::<CloneArgs>()];
        there.copy(0, &mut bytes[..known]);
        for (word, bytes) in all.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        // It would take our handler away as well: the child does it itself.
        let clears_handlers = all[FLAGS] & CLONE_CLEAR_SIGHAND != 0;
        if clears_handlers && all[FLAGS] & libc::CLONE_SIGHAND as u64 != 0 {
            return Err(Errno::INVAL);
        }
        all[FLAGS] &= !CLONE_CLEAR_SIGHAND;
        let stack = (all[STACK] != 0).then(|| all[STACK] + all[STACK_SIZE]);
        let how = How::Clone3(all, known as u64);
        Ok(Made { flags: all[FLAGS], stack, clears_handlers, how })
    }

    /// Whether it is a thread of the process.
    pub fn is_thread(&self) -> bool {
        self.flags & libc::CLONE_THREAD as u64 != 0
    }

    /// Whether who makes it waits until it runs a program or ends.
    pub fn is_waited_for(&self) -> bool {
        self.flags & libc::CLONE_VFORK as u64 != 0
    }

    /// Whether it is to have its parent's memory until it runs a program or ends, while its parent waits.
    pub fn has_its_parents_memory_first(&self) -> bool {
        self.is_waited_for() && self.flags & libc::CLONE_VM as u64 != 0
    }

    /// Whether it is a process of its own that is to have its parent's memory while that goes on.
    pub fn shares_memory_beside_its_parent(&self) -> bool {
        const VM: u64 = libc::CLONE_VM as u64;
        self.flags & VM != 0 && !self.is_thread() && !self.is_waited_for()
    }

    /// Whether it is to have namespaces of its own.
    pub fn has_namespaces(&self) -> bool {
        const NAMESPACES: i32 = libc::CLONE_NEWNS
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP;
        // CLONE_NEWTIME is a signal's number of `clone`.
        let time = matches!(self.how, How::Clone3(..)) && self.flags & 0x80 != 0;
        self.flags & NAMESPACES as u64 != 0 || time
    }

    /// The end of the stack that it begins on, if it has one of its own.
    pub fn stack(&self) -> Option<u64> {
        self.stack.filter(|&top| is_stack(top))
    }

    /// The same, with a copy of the memory instead of the memory itself.
    pub fn apart(mut self) -> Made {
        const SHARED: i32 =
            libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_SIGHAND;
        let not_shared = !(SHARED as u64);
        match &mut self.how {
            How::Clone(args) => args[0] &= not_shared,
            How::Clone3(all, _) => all[FLAGS] &= not_shared,
        }
        self.flags &= not_shared;
        self
    }

    /// Whether it is a thread like those of the C library: it shares everything with its process, and has its own
    /// thread-local memory, in which the C library keeps its number.
    pub fn is_whole_thread(&self) -> bool {
        const OWN: u64 = (libc::CLONE_SETTLS | libc::CLONE_CHILD_CLEARTID) as u64;
        /// More than the C library's description of a thread takes.
        const DESCRIPTION: u64 = 4096;
        let (child_tid, tls) = match &self.how {
            How::Clone(args) => (args[3], args[4]),
            How::Clone3(all, _) => (all[CHILD_TID], all[TLS]),
        };
        self.shares_all()
            && self.flags & OWN == OWN
            && (tls..tls.saturating_add(DESCRIPTION)).contains(&child_tid)
    }

    /// Whether it shares with its process what all threads do.
    pub fn shares_all(&self) -> bool {
        const ALL: i32 = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD;
        self.flags & ALL as u64 == ALL as u64
    }

    /// The thread pointer that it is to begin with, if it is not that of who makes it.
    pub fn pointer(&self) -> Option<u64> {
        let pointer = match &self.how {
            How::Clone(args) => args[4],
            How::Clone3(all, _) => all[TLS],
        };
        (self.flags & libc::CLONE_SETTLS as u64 != 0).then_some(pointer)
    }

    /// The same, with another thread pointer; `None`: with that of who makes it.
    pub fn with_pointer(mut self, pointer: Option<u64>) -> Made {
        const FLAG: u64 = libc::CLONE_SETTLS as u64;
        self.flags &= !FLAG;
        if pointer.is_some() {
            self.flags |= FLAG;
        }
        let (flags, tls) = match &mut self.how {
            How::Clone([flags, _, _, _, tls, _]) => (flags, tls),
            How::Clone3(all, _) => {
                let [flags, .., tls, _, _, _] = all;
                (flags, tls)
            }
        };
        *flags = self.flags;
        *tls = pointer.unwrap_or(0);
        self
    }

    /// With a stack: it may share the memory, and its parent may go on at the same time.
    pub fn with_stack(mut self, top: u64, birth: Birth) -> i64 {
        // The kernel wants no particular alignment; neither does what is put there.
        let place = top - size_of::<Birth>() as u64;
        // SAFETY: the program gives this stack away for the child to write on.
        if unsafe { UserPtr::new(place) }.write(birth).is_err() {
            // The kernel would make a child that dies of it.
            return -i64::from(libc::EFAULT);
        }
        match &mut self.how {
            How::Clone(args) => {
                args[1] = place;
                // SAFETY: the stack starts with a `Birth`.
                unsafe { entry::clone_child(libc::SYS_clone, args) }
            }
            How::Clone3(all, size) => {
                all[STACK_SIZE] -= size_of::<Birth>() as u64;
                let args = [all.as_ptr() as u64, *size, 0, 0, 0, 0];
                // SAFETY: the stack starts with a `Birth`.
                unsafe { entry::clone_child(libc::SYS_clone3, &raw const args) }
            }
        }
    }

    /// Without: the child gets a copy of everything. One that would share the memory and stand on
    /// the same stack would overwrite what the parent needs to go on.
    fn copy(self, mask: signals::Set, context: &mut Context) -> i64 {
        let clears_handlers = self.clears_handlers;
        let answer = self.copied();
        if answer == 0 {
            alloc::after_fork();
            thread::after_fork(here());
            context.set_mask(mask);
            if clears_handlers {
                signals::clear_handlers();
            }
        }
        answer
    }

    /// The same; the child has done nothing yet.
    pub fn copied(self) -> i64 {
        let mut made = self.apart();
        // SAFETY: the child is a copy that goes on here, on its own copy of this stack.
        unsafe {
            match &mut made.how {
                How::Clone(args) => syscall(libc::SYS_clone, *args),
                How::Clone3(all, size) => {
                    debug_assert!(all[EXIT_SIGNAL] < 65);
                    let args = [all.as_ptr() as u64, *size, 0, 0, 0, 0];
                    syscall(libc::SYS_clone3, args)
                }
            }
        }
    }
}
