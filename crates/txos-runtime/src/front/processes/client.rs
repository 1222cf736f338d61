//! Processes of a transaction come and go: it moves to its server, they begin, run other programs, and end.
#![allow(unsafe_code)] // processes that begin to run

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use txos_engine::object::FileId;

use super::answers::Table;
use super::calls::{answer_of, follow, mask_of};
use super::images::Imaged;
use super::joining::{self, Joined};
use super::lent::Lent;
use super::link::{Child, FAILED, Link, Process, born_request, end, here_request, process_of};
use super::wire::{self, Answer, Ask, How, Received, Request};
use super::{lent, programs, server, vforked};
use crate::call::Call;
use crate::front::classify::Class;
use crate::front::entry::{Birth, Regs};
use crate::front::joint::Enlisted;
use crate::front::loader::memory;
use crate::front::process::Made;
use crate::front::report::reason;
use crate::front::session::{Next, Session};
use crate::front::signals::{self, Changed, Masks};
use crate::front::thread::{self, Thread};
use crate::front::tls::{Tls, here};
use crate::front::trap::Context;
use crate::front::{alloc, api, dispatch, interrupted, members};
use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::spaces::{Moved, Outlet};
use crate::tx::{self, Failure, How as Plan, kernel};

/// Says to a program which descriptor leads to its transaction.
pub const VARIABLE: &str = "TXOS_MEMBER";

/// Whether this process's parent waits until it runs a program (`vfork`).
static IS_WAITED_FOR: AtomicBool = AtomicBool::new(false);

/// Whether a call asks for the parent to trace a process for which it waits. Each of its system calls, which come as signals, would
/// stop it, and the parent would never learn of that.
pub(super) fn stops_for_ever(call: &Call) -> bool {
    let traced = call.number() == libc::SYS_ptrace && call.int(0) == libc::PTRACE_TRACEME as i32;
    traced && IS_WAITED_FOR.load(Ordering::Relaxed)
}

// --- The transaction moves ---------------------------------------------------------------------

/// Moves a command's transaction to a process of its own.
///
/// # Errors
/// Why that failed.
fn start(thread: &mut Thread) -> Result<Arc<Process>, String> {
    let failed = |what: &str, errno: Errno| match errno {
        Errno::MFILE => {
            wire::too_few_descriptors("a command of several processes in the library's view")
        }
        errno => format!("{what} failed: {}", wire::words_of(errno)),
    };
    let tx = thread.session.as_mut().and_then(|session| session.tx.as_deref_mut());
    let tx = tx.ok_or("there is no transaction")?;
    // (Listing a directory takes memory of the C library's, whose lock the program may have here.)
    let threads = kernel::threads().unwrap_or(0);
    if threads != 1 {
        return Err(format!("the command has {threads} threads, of which only the first is in it"));
    }
    let moved = tx.numbers_to_move();
    let outlets: Vec<Outlet> = moved.iter().filter_map(Moved::outlet).collect();
    let bound = tx.bound();
    let has_moved = tx.has_moved();
    let placeholder = wire::new_placeholder().map_err(|e| failed("memfd_create", e))?;
    let window_fd = wire::new_window();
    let window_fd = window_fd.map_err(|e| failed("memfd_create", e))?;
    let window = wire::map_own_window(window_fd).map_err(|e| failed("mmap", e))?;
    // Without it every look is a message.
    let book_fd = Table::new_file().ok();
    let [socket, theirs] = wire::new_pair().map_err(|e| failed("socketpair", e))?;
    // What is sent has to arrive: a filter of system calls may forbid it, and each side waits for the other.
    wire::send(socket, &born_request(), &[socket]).map_err(|e| failed("sendmsg", e))?;
    let arrived = wire::receive::<Request>(theirs).map_err(|e| failed("recvmsg", e))?;
    arrived.into_iter().flat_map(|(_, beside)| beside).flatten().for_each(kernel::close);
    // The server says it from here on.
    signals::say_no_more();
    // No signal: the command does not know of this child, and does not wait for it.
    // SAFETY: the child is a copy that goes on here, on its own copy of this stack.
    let child = check(unsafe { syscall(libc::SYS_clone, [0; 6]) });
    if child.map_err(|e| failed("clone", e))? == 0 {
        alloc::after_fork();
        kernel::close(socket);
        server::run(thread, theirs, (window_fd, book_fd), &moved, outlets);
    }
    kernel::close(theirs);
    let answer = wire::receive::<Answer>(socket);
    let answer = answer.ok().flatten().map_or(-i64::from(libc::EIO), |(answer, _)| answer.answer);
    if answer != 0 {
        return Err(failed("moving it", Errno::from_raw_os_error(-answer as i32)));
    }
    // The server has a copy.
    kernel::close(window_fd);
    // Nobody can write to it any more but the server.
    let answers = book_fd.and_then(Table::take);
    let session = thread.session.as_mut().ok_or("there is no transaction")?;
    signals::let_all_in();
    (session.masks.live, session.masks.at_once) = (0, signals::SENT);
    session.masks.waits_here = false;
    here().goes_by(&session.masks);
    let tx = session.tx.take();
    if let Some(command) = session.command.take() {
        command.moved();
    }
    let numbers = take_numbers(placeholder, &moved);
    if let Some(tx) = tx {
        tx.private_numbers().into_iter().for_each(kernel::close);
        // It is the server's now.
        std::mem::forget(tx);
    }
    tx::shared::moved_away();
    tx::staging::given_away();
    let [socket, placeholder] = [socket, placeholder].map(kernel::set_aside);
    let (space, kept) = (0, BTreeMap::new());
    let link = Link {
        socket,
        window,
        placeholder,
        space,
        numbers,
        outlets,
        bound,
        lent: Lent::default(),
        answers,
        imaged: Imaged::default(),
        objects: BTreeMap::new(),
        kept,
        began: None,
    };
    let strict = session.plan.flags & tx::flags::STRICT != 0;
    let process = Process::new(link, true, (strict, false), None);
    session.process = Some(Arc::clone(&process));
    if has_moved {
        follow(&process.link());
    }
    Ok(process)
}

/// The kernel's table becomes what the program has seen, with placeholders for what is the transaction's.
fn take_numbers(placeholder: i32, moved: &[Moved]) -> BTreeSet<i32> {
    let mut numbers = BTreeSet::new();
    for entry in moved {
        match *entry {
            Moved::Closed { number } => kernel::close(number),
            Moved::Ours { number, cloexec, .. } => {
                let _ = kernel::dup3(placeholder, number, cloexec);
                numbers.insert(number);
            }
            Moved::Kernels { number, real, cloexec, .. } if real != number => {
                let _ = kernel::dup3(real, number, cloexec);
            }
            Moved::Kernels { .. } => {}
        }
    }
    numbers
}

// --- Processes come and go ---------------------------------------------------------------------

pub(super) fn exit(thread: &mut Thread, process: &Process, call: &Call, class: Class) -> Next {
    vforked::hand_back();
    if class == Class::ExitGroup && process.first {
        let mut request = Request::new(Ask::End, call.number());
        request.words[0] = u64::from(call.uint(0));
        // No other thread of the process does anything in the transaction any more.
        let link = process.link();
        link.settle_loans();
        let socket = link.socket;
        if let Err(errno) = wire::send(socket, &request, &[])
            && !wire::is_end(errno)
        {
            link.cannot_ask(errno);
        }
        link.let_go();
        // Meanwhile a signal may end the process, and with it the transaction.
        let mask = mask_of(thread) | signals::without_handlers();
        let mut polled = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
        let words = [(&raw mut polled) as u64, 1, u64::MAX, 0, 0, 0];
        let mut ignored = None;
        loop {
            // SAFETY: the structure lives until the answer.
            let poll = unsafe { Call::new(libc::SYS_poll, words) };
            let found = match ignored {
                None => thread::make_in_program(here(), mask, &poll),
                Some(_) => poll.make(),
            };
            if found <= 0 {
                continue;
            }
            match link.take_answer().0.how() {
                // What kills the process from here on would leave the status of one that was rolled back.
                Some(How::Deciding) => {
                    ignored = Some(signals::ignore_ends());
                    let _ = wire::send(socket, &Request::new(Ask::Ready, call.number()), &[]);
                }
                Some(How::Decided) => signals::heed_ends(ignored.take().unwrap_or_default()),
                _ => break,
            }
        }
    }
    let is_last = process.inside.fetch_sub(1, Ordering::AcqRel) == 1;
    if class == Class::Exit && is_last && process.has_joined() {
        let _ = joining::leave(process);
    }
    thread.session = None;
    thread::disarm(here());
    if class == Class::Exit {
        thread::abandon(here());
    }
    // SAFETY: nothing comes after it.
    Next::Answer(unsafe { syscall(call.number(), *call.words()) })
}

/// The answer for a process that can't be made, because it is to have its parent's memory while that goes on. With a copy each would
/// wait for ever for what the other writes: that is how leak checkers stop the threads of a program.
pub(super) fn refused(made: &Made) -> Option<Next> {
    made.shares_memory_beside_its_parent().then(|| {
        api::tell(
            "a process that runs beside its parent in the same memory, as leak checkers make one, can't be part of a \
             transaction of several processes: `clone` fails (EPERM)",
        );
        Next::Answer(-i64::from(libc::EPERM))
    })
}

/// A new process or thread of a command.
pub fn create(thread: &mut Thread, made: &Made, context: &mut Context) -> Next {
    if let Some(next) = refused(made) {
        return next;
    }
    let process = match process_of(thread) {
        Some(process) => process,
        None => match start(thread) {
            Ok(process) => process,
            Err(why) => return cannot_move(thread, &why),
        },
    };
    context.set_mask(mask_of(thread));
    if made.is_thread() {
        let is_whole = match memory::is_loaded() {
            true => made.shares_all(),
            false => made.is_whole_thread(),
        };
        if !is_whole {
            process.link().fail("a thread of the command is not to share everything with it");
        }
        return create_thread(thread, &process, made, context);
    }
    // Until there is the child, no other thread opens or closes anything: it gets the numbers as they are.
    let mut link = process.link();
    if made.has_namespaces() {
        link.fail("a process of the command is to have namespaces of its own");
    }
    let child = match expect(&mut link) {
        Ok(mut child) => {
            child.closes.extend(process.joined.as_ref().and_then(Joined::directory));
            child
        }
        Err(errno) => return Next::Answer(-i64::from(errno.raw_os_error())),
    };
    if signals::has_come(mask_of(thread)) {
        // As natively: the signal first. One that kills a process group would miss a child that is made after it.
        [child.socket, child.window_fd].into_iter().for_each(kernel::close);
        return context.make_again();
    }
    match memory::alone(|| give_birth(made, context, child)) {
        Ok(child) => {
            std::mem::forget(link);
            if let Some(pointers) = pointers_of(made) {
                pointers.take();
            }
            begins(thread, child);
            Next::Answer(0)
        }
        Err(answer) => {
            drop(link);
            Next::Answer(answer)
        }
    }
}

/// Makes a process. In it, if it goes on here, what it begins with; in its parent, and if it begins elsewhere, the kernel's
/// answer.
pub(super) fn give_birth(made: &Made, context: &Context, mut child: Child) -> Result<Child, i64> {
    child.clears_handlers = made.clears_handlers;
    child.is_waited_for = made.is_waited_for();
    let stack = context.stack_pointer().filter(|_| made.has_its_parents_memory_first());
    let place = stack.and_then(vforked::Place::new);
    child.hands_back = place;
    let (socket, window_fd) = (child.socket, child.window_fd);
    let pointers = pointers_of(made);
    let made = match pointers {
        Some(_) => made.clone().with_pointer(None),
        None => made.clone(),
    };
    let answer = match made.stack() {
        Some(top) => {
            let mut newborn = members::Newborn::process(here().stack.get(), child);
            newborn.pointers = pointers;
            let newborn = Box::into_raw(newborn);
            let birth = context.birth(!signals::SYNCHRONOUS);
            let birth = Birth { newborn: newborn as u64, ..birth };
            let answer = made.apart().with_stack(top, birth);
            // SAFETY: the child has a copy of its own.
            drop(unsafe { Box::from_raw(newborn) });
            answer
        }
        None => match made.copied() {
            0 => return Ok(child),
            answer => answer,
        },
    };
    if let Some(place) = place {
        place.take();
    }
    kernel::close(socket);
    kernel::close(window_fd);
    Err(answer)
}

/// What a process begins with that a program makes which was loaded beside the library: it has a copy of the library's memory.
fn pointers_of(made: &Made) -> Option<memory::Pointers> {
    let programs = made.pointer().unwrap_or_else(|| here().programs_pointer.get());
    memory::is_loaded().then_some(memory::Pointers { own: None, programs })
}

/// A new thread: it has the connection of its process.
fn create_thread(
    thread: &mut Thread,
    process: &Arc<Process>,
    made: &Made,
    context: &Context,
) -> Next {
    let (Some(top), Some(session)) = (made.stack(), thread.session.as_ref()) else {
        return Next::Answer(-i64::from(libc::EINVAL));
    };
    let masks = Masks { before: session.masks.programs, fresh: true, ..session.masks };
    let own = Session {
        process: Some(Arc::clone(process)),
        ..Session::of_member(masks, session.plan.flags)
    };
    let Ok(stack) = thread::new_stack() else { return Next::Answer(-i64::from(libc::EAGAIN)) };
    let mut made = made.clone();
    let mut pointers = pointers_of(&made);
    if let Some(pointers) = &mut pointers {
        let own = memory::alone(memory::Own::new);
        let Some(own) = own else {
            // SAFETY: nothing has run on it.
            unsafe { thread::free_stack(stack) };
            return Next::Answer(-i64::from(libc::EAGAIN));
        };
        made = made.with_pointer(Some(own.pointer()));
        pointers.own = Some(own);
    }
    process.inside.fetch_add(1, Ordering::AcqRel);
    let mut newborn = members::Newborn::thread(stack, own);
    newborn.pointers = pointers;
    let newborn = Box::into_raw(newborn);
    let birth = context.birth(!signals::SYNCHRONOUS);
    let birth = Birth { newborn: newborn as u64, ..birth };
    let answer = made.with_stack(top, birth);
    if answer < 0 {
        // SAFETY: there is no such thread, and nobody else has it.
        members::never_born(unsafe { Box::from_raw(newborn) });
        process.inside.fetch_sub(1, Ordering::AcqRel);
    }
    Next::Answer(answer)
}

/// A place for a child at the server.
fn expect(link: &mut Link) -> Sys<Child> {
    link.hand_over_all()?;
    let (answer, beside) = link.ask(&Request::new(Ask::Child, 0));
    answer_of(answer.answer)?;
    let [Some(socket), Some(window_fd)] = beside else {
        beside.into_iter().flatten().for_each(kernel::close);
        return Err(Errno::IO);
    };
    Ok(Child {
        socket: kernel::set_aside(socket),
        window_fd: kernel::set_aside(window_fd),
        space: answer.more[0] as i32,
        numbers: link.numbers.clone(),
        outlets: link.outlets.clone(),
        bound: link.bound.clone(),
        lent: link.lent.clone(),
        answers: link.answers,
        objects: link.objects.clone(),
        closes: std::iter::once(link.socket).chain(link.kept.values().copied()).collect(),
        placeholder: link.placeholder,
        moved: None,
        parent: None,
        clears_handlers: false,
        is_waited_for: false,
        hands_back: None,
    })
}

/// The first thing that a child does, in its copy of its parent's memory.
pub fn begins(thread: &mut Thread, child: Child) {
    alloc::after_fork();
    lent::after_fork();
    let tls = here();
    thread::after_fork_of_member(tls);
    let Child {
        socket,
        window_fd,
        space,
        mut numbers,
        outlets,
        bound,
        lent,
        answers,
        objects,
        closes,
        placeholder,
        moved,
        parent,
        clears_handlers,
        is_waited_for,
        hands_back,
    } = child;
    IS_WAITED_FOR.store(is_waited_for, Ordering::Relaxed);
    vforked::begins(hands_back);
    if clears_handlers {
        signals::clear_handlers();
    }
    let mut kept = BTreeMap::new();
    if let Some(moved) = moved {
        dies_with(parent);
        kept = keep(&moved);
        numbers = take_numbers(placeholder, &moved);
        go_on_as_member(thread);
    }
    closes.into_iter().for_each(kernel::close);
    let window = wire::map_own_window(window_fd).unwrap_or_else(|_| end(FAILED));
    kernel::close(window_fd);
    let link = Link {
        socket,
        window,
        placeholder,
        space,
        numbers,
        outlets,
        bound,
        lent,
        answers,
        imaged: Imaged::default(),
        objects,
        kept,
        began: None,
    };
    let kind = kind(thread.session.as_ref().map_or(0, |session| session.plan.flags));
    let (_, hosted) = kind;
    // In a command the server learns of it in time: before anything else that this process says.
    let is_there = match hosted {
        true => link.ask_plainly(&here_request(false)) >= 0,
        false => match wire::send(link.socket, &born_request(), &[]) {
            Err(errno) if !wire::is_end(errno) => link.cannot_ask(errno).0.answer >= 0,
            sent => sent.is_ok(),
        },
    };
    if !is_there {
        end(FAILED);
    }
    if let Some(session) = thread.session.as_mut() {
        let process = Some(Process::new(link, false, kind, None));
        // Another thread of the parent may have held its lock.
        std::mem::forget(std::mem::replace(&mut session.process, process));
    }
    if thread::arm(tls).is_err() {
        end(FAILED);
    }
}

/// Whether a transaction is strict, and a program's own, by its flags.
fn kind(flags: u32) -> (bool, bool) {
    (flags & tx::flags::STRICT != 0, flags & tx::flags::PROCESSES != 0)
}

/// The child of a thread that began a transaction is killed when that thread ends, and with it the transaction.
fn dies_with(parent: Option<u64>) {
    let Some(parent) = parent else { return };
    let words = [libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64, 0, 0, 0, 0];
    // SAFETY: they take numbers only.
    let parent_now = unsafe {
        syscall(libc::SYS_prctl, words);
        syscall(libc::SYS_getppid, [0; 6])
    };
    if parent_now as u64 != parent {
        end(FAILED);
    }
}

/// What is open from before at numbers that are the transaction's: duplicates.
fn keep(moved: &[Moved]) -> BTreeMap<i32, i32> {
    let before = moved.iter().filter_map(|entry| match *entry {
        Moved::Ours { number, before: true, .. } => Some(number),
        _ => None,
    });
    before.filter_map(|number| Some((number, kernel::copy_high(number).ok()?))).collect()
}

/// What the thread's session is in a child of the process that has the transaction: all of its own is the parent's.
fn go_on_as_member(thread: &mut Thread) {
    let Some(session) = thread.session.take() else { return };
    let (programs, flags) = (session.masks.programs, session.plan.flags);
    session.forget();
    signals::let_all_in();
    let at_once = signals::SENT;
    let masks =
        Masks { before: programs, programs, live: 0, at_once, fresh: false, waits_here: false };
    here().goes_by(&masks);
    here().abort_if.set(std::ptr::null());
    thread.session = Some(Session::of_member(masks, flags));
}

/// `sys_xend` of a process in a program's own transaction that did not begin it: it goes on outside.
pub fn leave(tls: &Tls, thread: &mut Thread, process: &Arc<Process>) -> i32 {
    if process.inside.load(Ordering::Acquire) > 1 {
        thread.report.say("sys_xend: other threads of this process are in the transaction");
        thread::to_program(tls);
        return api::fail(libc::EBUSY);
    }
    let left = thread::on_own_stack(tls, || {
        if process.has_joined() {
            return joining::leave(process);
        }
        let mut link = process.link();
        let answer = link.ask_plainly(&Request::new(Ask::Leave, 0));
        joining::close(&mut link);
        dies_alone();
        if answer == 0 {
            Ok(())
        } else {
            Err(Failure { errno: libc::ECANCELED, ..Failure::default() })
        }
    });
    let mask = thread.session.take().map(|session| session.masks.programs);
    thread::linger(tls);
    let left = match left {
        Ok(Ok(())) => 0,
        Ok(Err(why)) => {
            if !why.what.is_empty() {
                thread.report.say(&why.what);
                thread.report.abort = why;
            }
            api::fail(libc::ECANCELED)
        }
        Err(_) => api::fail(libc::ECANCELED),
    };
    if let Some(mask) = mask {
        signals::set_mask(mask);
    }
    left
}

/// No longer killed when its parent's thread ends.
fn dies_alone() {
    // SAFETY: it takes numbers only.
    unsafe { syscall(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, 0, 0, 0, 0, 0]) };
}

// --- Another program ---------------------------------------------------------------------------

/// A command that is one process so far runs another program.
pub fn run_program(thread: &mut Thread, call: &Call) -> Next {
    let doom = thread.session.as_ref().and_then(|session| session.tx.as_ref()?.doomed().cloned());
    if let Some(why) = doom {
        return dispatch::fail(thread, why);
    }
    match start(thread) {
        Ok(process) => programs::exec(thread, &process, call),
        Err(why) => cannot_move(thread, &why),
    }
}

/// A command that is one process so far takes another user, other groups or capabilities: the store is not theirs.
pub fn change_ids(
    thread: &mut Thread,
    call: &Call,
    class: Class,
    context: Option<&mut Context>,
) -> Next {
    match start(thread) {
        Ok(_) => super::dispatch(thread, call, class, context),
        Err(why) => cannot_move(thread, &why),
    }
}

/// A command that is one process so far waits, or signals itself, and has handlers: they are to run, as natively, and as in a
/// command of several.
pub fn wait(
    thread: &mut Thread,
    call: &Call,
    class: Class,
    mut context: Option<&mut Context>,
) -> Next {
    match start(thread) {
        Ok(_) => {
            if let Some(context) = &mut context {
                context.set_mask(mask_of(thread));
            }
            match handle_what_has_come(thread, call) {
                Some(answer) => Next::Answer(answer),
                None => super::dispatch(thread, call, class, context),
            }
        }
        Err(why) => cannot_move(thread, &why),
    }
}

/// Runs the handlers of signals that came while they were held back, as if they had come when the wait had begun: a program
/// that looks for what its handler says looks again. The call's answer, if that ends it.
fn handle_what_has_come(thread: &Thread, call: &Call) -> Option<i64> {
    let masks = &thread.session.as_ref()?.masks;
    let mask = masks.real() & !signals::SENT | masks.during(call) & signals::SENT;
    let restarts = signals::handlers_to_run(mask)?;
    let words = [(&raw const mask) as u64, signals::SET, 0, 0, 0, 0];
    // SAFETY: the set lives until the answer.
    let suspend = unsafe { Call::new(libc::SYS_rt_sigsuspend, words) };
    thread::make_in_program(here(), mask | signals::SENT, &suspend);
    if let Some(answer) = interrupted::left_to_sleep(call) {
        return Some(answer);
    }
    let ends = !restarts || interrupted::never_restarts(call.number());
    (ends && !tx::held::sends_signal(call.number())).then_some(-i64::from(libc::EINTR))
}

/// The transaction can't move to a process of its own.
fn cannot_move(thread: &mut Thread, why: &str) -> Next {
    let why = Failure {
        reason: reason::FAILED,
        errno: libc::ECANCELED,
        what: format!("its transaction can't move to a process of its own: {why}"),
        ..Failure::default()
    };
    dispatch::fail(thread, why)
}

/// Goes on with a transaction in a new program.
///
/// # Errors
/// Why it can't.
pub fn go_on(tls: &Tls, socket: i32) -> Result<(), String> {
    let before = signals::block_sent();
    let thread = thread::record(tls).map_err(|thread::NoMemory| "there is no memory")?;
    kernel::set_close_on_exec(socket, true).map_err(|e| wire::words_of(e).to_string())?;
    let sent = wire::send(socket, &here_request(true), &[]);
    sent.map_err(|e| wire::words_of(e).to_string())?;
    enter(tls, thread, socket, before).inspect_err(|_| {
        // Who waits for this process may take no notice of how it ends.
        if wire::send(socket, &Request::new(Ask::Fail, 0), &[]).is_ok() {
            let _ = wire::receive::<Answer>(socket);
        }
    })
}

/// Takes what the answer to the first message of a new program has.
fn enter(tls: &Tls, thread: &mut Thread, socket: i32, before: signals::Set) -> Result<(), String> {
    let in_words = |errno: Errno| match errno {
        Errno::MFILE => wire::too_few_descriptors("the library in this program"),
        errno => wire::words_of(errno).to_string(),
    };
    let received = wire::receive_from::<Answer>(socket).map_err(in_words)?;
    let (answer, window_fd, book_fd) = match received {
        Some(Received { message, beside: [Some(window_fd), book_fd], .. }) => {
            (message, window_fd, book_fd)
        }
        // Another process has ended the transaction while this one began to run the program.
        Some(Received { message, .. }) if message.how() == Some(How::Over) => {
            end(message.answer as i32)
        }
        Some(Received { lost: true, .. }) if wire::is_full() => return Err(in_words(Errno::MFILE)),
        Some(Received { lost: true, .. }) => {
            return Err("a descriptor that it is sent can't be taken".into());
        }
        Some(Received { message, .. }) if message.answer < 0 => {
            return Err(in_words(Errno::from_raw_os_error(-message.answer as i32)));
        }
        _ => return Err("the process that has the transaction is gone".into()),
    };
    let window = wire::map_own_window(window_fd).map_err(in_words);
    kernel::close(window_fd);
    let window = window?;
    let answers = book_fd.and_then(Table::take);
    let placeholder = wire::new_placeholder().map_err(in_words)?;
    let placeholder = kernel::set_aside(placeholder);
    let (space, numbers, outlets) = (0, BTreeSet::new(), Vec::new());
    let (bound, kept) = (Vec::new(), BTreeMap::new());
    let mut link = Link {
        socket,
        window,
        placeholder,
        space,
        numbers,
        outlets,
        bound,
        lent: Lent::default(),
        answers,
        imaged: Imaged::default(),
        objects: BTreeMap::new(),
        kept,
        began: None,
    };
    let told = link.path(answer.more[0]);
    let mut words = told.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    link.space = words.next().unwrap_or(0) as i32;
    link.lent = Lent::at(words.next().unwrap_or(0) as u32);
    let count = words.next().unwrap_or(0) as usize;
    for _ in 0..count {
        let [Some(number), Some(dev), Some(ino)] = [(); 3].map(|()| words.next()) else {
            break;
        };
        let number = number as i32;
        link.numbers.insert(number);
        // What this process had before it ran the program may be a placeholder.
        let lent = FileId { dev, ino };
        if ino != 0 && kernel::identify_fd(number).is_ok_and(|found| found.id == lent) {
            link.lent.insert(number);
        }
    }
    while let (Some(dev), Some(ino), Some(kind)) = (words.next(), words.next(), words.next()) {
        link.outlets.push(Outlet { id: FileId { dev, ino }, kind: kind as u32 });
    }
    thread::arm(tls).map_err(|errno| {
        format!("this kernel can't redirect the system calls of a thread: errno {errno}")
    })?;
    signals::let_all_in();
    let at_once = signals::SENT;
    let masks =
        Masks { before, programs: before, live: 0, at_once, fresh: false, waits_here: false };
    signals::set_mask(masks.real() | masks.at_once);
    member_session(tls, thread, link, masks, answer.answer as u32, None);
    thread::to_program(tls);
    Ok(())
}

/// The thread goes on as a member of a transaction with these flags, which is elsewhere.
pub(super) fn member_session(
    tls: &Tls,
    thread: &mut Thread,
    link: Link,
    masks: Masks,
    flags: u32,
    joined: Option<Joined>,
) {
    tls.goes_by(&masks);
    tls.abort_if.set(std::ptr::null());
    thread.regs = Regs::default();
    let first = link.space == 0;
    let process = Some(Process::new(link, first, kind(flags), joined));
    thread.session = Some(Session { process, ..Session::of_member(masks, flags) });
}

impl Session {
    /// The session of a thread whose transaction is elsewhere.
    fn of_member(masks: Masks, flags: u32) -> Session {
        Session {
            plan: Plan { flags: flags & tx::flags::ALL, ..Plan::default() },
            tx: None,
            depth: 0,
            abort_if: std::ptr::null(),
            masks,
            actions: Changed::default(),
            restored: Default::default(),
            lost: Vec::new(),
            kept: signals::Kept::default(),
            restartable: false,
            command: None,
            member: None,
            process: None,
            keeper: None,
            enlisted: Enlisted::default(),
            checkpoint: None,
            gives_up: false,
        }
    }
}
