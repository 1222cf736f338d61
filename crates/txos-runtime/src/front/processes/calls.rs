//! The calls of a process of a transaction: what is sent to the server, and what the process makes itself.
#![allow(unsafe_code)] // the program's memory, windows

use super::descriptors::{close, close_range, duplicate, duplicate_to, map};
use super::link::{Link, Process, here_request, number_of_process, process_of};
use super::paths::{Place, in_directory, look_up, own_descriptor, own_program, places};
use super::wire::{self, Ask, How, Part, Request, Shape, Size};
use super::{answers, client, identities, images, lent, programs, signalling, sockets};
use crate::call::Call;
use crate::front::api;
use crate::front::classify::Class;
use crate::front::dispatch;
use crate::front::session::Next;
use crate::front::signals;
use crate::front::thread::{self, Thread};
use crate::front::tls::here;
use crate::front::trap::Context;
use crate::raw::{self, Errno, Sys, check, syscall};
use crate::tx::held::sends_signal;
use crate::tx::kernel::{self, OwnedFd};
use crate::tx::spaces::Outlet;
use crate::tx::waits::polls;
use crate::user::UserSlice;
use txos_engine::object::FileKind;

/// How long a process waits before it asks again, in nanoseconds.
const NAP_NS: i64 = 1_000_000;

/// Carries out a call of a process of the transaction.
pub fn dispatch(
    thread: &mut Thread,
    call: &Call,
    class: Class,
    context: Option<&mut Context>,
) -> Next {
    let Some(process) = process_of(thread) else {
        return Next::Answer(-i64::from(libc::ECANCELED));
    };
    let is_over = process.is_over();
    if is_over && !process.has_joined() {
        // It has said so in an answer, too, with the status to end with.
        process.link().ask_plainly(&Request::new(Ask::IsMember, 0));
    }
    match (class, context) {
        (Class::Exit | Class::ExitGroup, _) => client::exit(thread, &process, call, class),
        (Class::Exec, _) if is_over => Next::Answer(-i64::from(libc::ECANCELED)),
        (Class::Exec, _) => programs::exec(thread, &process, call),
        (Class::Suspend, _) => {
            let mask = mask_of(thread);
            let size = size_of::<signals::Set>() as u64;
            let words = [(&raw const mask) as u64, size, 0, 0, 0, 0];
            Next::Answer(match call.number() {
                libc::SYS_pause => {
                    // SAFETY: the set lives until the answer.
                    let call = unsafe { Call::new(libc::SYS_rt_sigsuspend, words) };
                    thread::make_in_program(here(), mask, &call)
                }
                _ => thread::make_in_program(here(), mask, call),
            })
        }
        (Class::Wait, _) => Next::Answer(thread::make_in_program(here(), mask_of(thread), call)),
        (Class::Harmless, _) if may_wait(call.number()) => {
            Next::Answer(thread::make_in_program(here(), mask_of(thread), call))
        }
        (Class::Prctl, _) if call.word(0) == thread::PR_SET_SYSCALL_USER_DISPATCH => {
            Next::Answer(-i64::from(libc::EBUSY))
        }
        // A filter could refuse what the library needs.
        (Class::Prctl, _) if call.word(0) == libc::PR_SET_SECCOMP as u64 => {
            Next::Answer(-i64::from(libc::EINVAL))
        }
        (Class::Prctl, _) => {
            let answer = call.make();
            if identities::limits(call) {
                process.link().ask_plainly(&here_request(false));
            }
            Next::Answer(answer)
        }
        (
            Class::Transactional
            | Class::Descriptor
            | Class::Passed(_)
            | Class::Held(_)
            | Class::Restored(_)
            | Class::Refused(..)
            | Class::Unknown
            | Class::Map,
            _,
        ) => {
            if is_over {
                return Next::Answer(after_the_end(&process, call));
            }
            let mut done = carry_out(&process, call, class);
            while let Ok(Done::Later) = done {
                done = match nap(mask_of(thread)) {
                    Ok(()) => carry_out(&process, call, class),
                    Err(errno) => {
                        // With that it does not wait any more.
                        process.link().ask_plainly(&Request::new(Ask::IsMember, 0));
                        Err(errno)
                    }
                };
            }
            if let Err(Errno::MFILE) = done
                && !process.has_joined()
                && !has_a_number_made(call)
            {
                process.link().fail_for_descriptors();
            }
            let answer = match done {
                Ok(Done::Answer(answer)) => Ok(answer as u64),
                Ok(Done::LiveAfter) => {
                    let answer = thread::make_in_program(here(), mask_of(thread), call);
                    if answer >= 0 {
                        process.link().live(call.number());
                    }
                    check(answer)
                }
                Ok(Done::Natively) if may_wait(call.number()) => {
                    check(thread::make_in_program(here(), mask_of(thread), call))
                }
                Ok(Done::Natively) => call.answer(),
                Ok(Done::Open(path, flags, _through)) => {
                    let mode = 0;
                    let words =
                        [libc::AT_FDCWD as u64, path.as_ptr() as u64, flags as u64, mode, 0, 0];
                    // SAFETY: the path lives until the answer.
                    let call = unsafe { Call::new(libc::SYS_openat, words) };
                    check(thread::make_in_program(here(), mask_of(thread), &call))
                }
                Ok(Done::Make(call)) => {
                    check(thread::make_in_program(here(), mask_of(thread), &call))
                }
                Ok(Done::To(prepared)) => prepared.make(thread, &process),
                Ok(Done::With(path, call)) => with_path(thread, &process, &path, &call),
                Ok(Done::Later) => Err(Errno::AGAIN),
                Err(errno) => Err(errno),
            };
            Next::Answer(raw::answer(answer))
        }
        (class, context) => dispatch::by_class(thread, call, class, context),
    }
}

/// Whether a call opens something: the kernel, too, answers such a one that there are too many open files.
fn has_a_number_made(call: &Call) -> bool {
    matches!(call.number(), libc::SYS_dup | libc::SYS_pidfd_getfd)
        || wire::shape_with(call.number(), call.words()).is_some_and(|shape| shape.opens)
}

/// A call of a process that joined a transaction, which is over: until it leaves.
fn after_the_end(process: &Process, call: &Call) -> i64 {
    if call.number() == libc::SYS_close {
        let closed = close(&mut process.link(), call);
        return match closed {
            // What there was of it in the transaction is gone.
            Err(Errno::CANCELED) => 0,
            closed => raw::answer(closed.map(|answer| answer as u64)),
        };
    }
    match dispatch::is_of_the_process(call) {
        true => call.make(),
        false => -i64::from(libc::ECANCELED),
    }
}

/// Waits a little, as a call that waits for others: a signal ends it unless its handler has it go on (`SA_RESTART`).
/// Reading from a timer does that; `nanosleep` always ends.
///
/// # Errors
/// EINTR; EMFILE.
fn nap(mask: signals::Set) -> Sys<()> {
    let after = |tv_nsec| libc::timespec { tv_sec: 0, tv_nsec };
    let time = libc::itimerspec { it_interval: after(0), it_value: after(NAP_NS) };
    let how = [libc::CLOCK_MONOTONIC as u64, libc::TFD_CLOEXEC as u64, 0, 0, 0, 0];
    // SAFETY: it takes numbers.
    let timer = check(unsafe { syscall(libc::SYS_timerfd_create, how) })?;
    let timer = OwnedFd::of(kernel::move_high(timer as i32)?);
    let number = timer.number() as u64;
    let words = [number, 0, (&raw const time) as u64, 0, 0, 0];
    // SAFETY: the kernel reads the time.
    check(unsafe { syscall(libc::SYS_timerfd_settime, words) })?;
    let mut passed = 0_u64;
    // SAFETY: there is room for the number until the answer.
    let read = unsafe { Call::new(libc::SYS_read, [number, (&raw mut passed) as u64, 8, 0, 0, 0]) };
    check(thread::make_in_program(here(), mask, &read)).map(drop)
}

/// How a call ends.
pub enum Done {
    Answer(i64),
    /// The kernel's answer is the program's.
    Natively,
    /// The same; if it succeeds, it is live.
    LiveAfter,
    /// The process opens this, and may wait for its other end.
    Open(Vec<u8>, i32, Option<OwnedFd>),
    /// The process makes this call, with this path.
    With(Vec<u8>, Call),
    /// It makes this call.
    Make(Call),
    /// It makes a call with another address.
    To(sockets::Prepared),
    /// It is to be asked again.
    Later,
}

/// Makes a call with a path that is not versioned, for a process that may not have it made.
fn with_path(thread: &Thread, process: &Process, path: &[u8], call: &Call) -> Sys<u64> {
    let Some(shape) = wire::shape_with(call.number(), call.words()) else { return Err(Errno::IO) };
    let paths = shape.parts.iter().filter(|(_, part)| *part == Part::Path);
    let Some(at) = paths.map(|&(at, _)| at).next() else { return Err(Errno::IO) };
    // SAFETY: the path ends with its zero, and lives until the answer.
    let mut call = unsafe { call.with_word(at, path.as_ptr() as u64) };
    if let Some(dir) = at.checked_sub(1).filter(|at| shape.descriptors.contains(at)) {
        // SAFETY: it is no address.
        call = unsafe { call.with_word(dir, libc::AT_FDCWD as u64) };
    }
    let answer = thread::make_in_program(here(), mask_of(thread), &call);
    let answer = check(answer)?;
    if shape.opens
        && let Some(outlet) = Outlet::written_by(answer as i32)
    {
        let mut request = Request::new(Ask::Output, call.number());
        request.words[0] = outlet.kind.into();
        process.link().ask_plainly(&request);
    }
    Ok(answer)
}

pub fn mask_of(thread: &Thread) -> signals::Set {
    thread.session.as_ref().map_or(0, |session| session.masks.real())
}

/// Whether a call may wait, so that a signal is to end it.
fn may_wait(number: i64) -> bool {
    polls(number)
        || matches!(
            number,
            libc::SYS_read
                | libc::SYS_readv
                | libc::SYS_write
                | libc::SYS_writev
                | libc::SYS_splice
                | libc::SYS_tee
                | libc::SYS_vmsplice
                | libc::SYS_sendfile
                | libc::SYS_open
                | libc::SYS_openat
                | libc::SYS_fcntl
                | libc::SYS_flock
                | libc::SYS_ioctl
                | libc::SYS_wait4
                | libc::SYS_waitid
                | libc::SYS_nanosleep
                | libc::SYS_clock_nanosleep
                | libc::SYS_futex
                | libc::SYS_futex_waitv
                | libc::SYS_rt_sigtimedwait
                | libc::SYS_semtimedop
                | libc::SYS_connect
                | libc::SYS_accept
                | libc::SYS_accept4
                | libc::SYS_recvfrom
                | libc::SYS_recvmsg
                | libc::SYS_recvmmsg
                | libc::SYS_sendto
                | libc::SYS_sendmsg
                | libc::SYS_sendmmsg
                | libc::SYS_kill
                | libc::SYS_tkill
                | libc::SYS_tgkill
                | libc::SYS_rt_sigqueueinfo
        )
}

fn carry_out(process: &Process, call: &Call, class: Class) -> Sys<Done> {
    let answered = |answer: Sys<i64>| answer.map(Done::Answer);
    if let Some(path) = own_program(call) {
        return Ok(Done::With(path, *call));
    }
    if client::stops_for_ever(call) {
        api::tell(
            "a process made by vfork can't be traced by its parent in a transaction of several processes: `ptrace` fails",
        );
        return Err(Errno::PERM);
    }
    if let Some(answer) = lent::make(process, call) {
        return answer.map(|answer| Done::Answer(answer as i64));
    }
    if let Some(answer) = images::make(process, call) {
        return answer.map(|answer| Done::Answer(answer as i64));
    }
    if let Some(answer) = answers::find(process, call) {
        return answer.map(|answer| Done::Answer(answer as i64));
    }
    images::hand_over_for(process, call)?;
    let int = |i: usize| call.int(i);
    let number = call.number();
    let mut link = process.link();
    if !link.outlets.is_empty() {
        link.note_output(call);
    }
    if matches!(number, libc::SYS_sendmsg | libc::SYS_sendmmsg) && link.sends_ours(call) {
        link.fail("a process of the command sends an open file of the transaction to another one");
    }
    match number {
        libc::SYS_bind | libc::SYS_connect | libc::SYS_sendto | libc::SYS_sendmsg
            if let Some(path) = sockets::path_of(call) =>
        {
            let prepared = sockets::prepare(&mut link, process.strict, call, path)?;
            Ok(prepared.map_or(Done::Answer(0), Done::To))
        }
        libc::SYS_getsockname | libc::SYS_getpeername if !link.bound.is_empty() => {
            Ok(sockets::name(&link.bound, call)?.map_or(Done::Natively, Done::Answer))
        }
        libc::SYS_close => answered(close(&mut link, call)),
        libc::SYS_close_range => answered(close_range(&mut link, call)),
        libc::SYS_dup if link.is_ours(int(0)) => answered(duplicate(&mut link, int(0), 0, false)),
        libc::SYS_pidfd_getfd if int(2) == 0 && link.is_ours(int(1)) && is_of_this(int(0)) => {
            answered(duplicate(&mut link, int(1), 0, true))
        }
        libc::SYS_dup2 if int(0) == int(1) => Ok(Done::Natively),
        libc::SYS_dup3 if int(0) == int(1) || int(2) & !libc::O_CLOEXEC != 0 => Err(Errno::INVAL),
        libc::SYS_dup2 => answered(duplicate_to(&mut link, call, false)),
        libc::SYS_dup3 => answered(duplicate_to(&mut link, call, int(2) & libc::O_CLOEXEC != 0)),
        libc::SYS_fcntl if link.is_ours(int(0)) => match int(1) {
            libc::F_DUPFD => answered(duplicate(&mut link, int(0), int(2), false)),
            libc::F_DUPFD_CLOEXEC => answered(duplicate(&mut link, int(0), int(2), true)),
            libc::F_SETFD => {
                let flag = int(2) & libc::FD_CLOEXEC != 0;
                kernel::set_close_on_exec(int(0), flag)?;
                drop(link);
                by_shape(process, call)
            }
            _ => {
                drop(link);
                by_shape(process, call)
            }
        },
        libc::SYS_ioctl if link.is_ours(int(0)) => match call.word(1) {
            on @ (libc::FIOCLEX | libc::FIONCLEX) => {
                let on = on == libc::FIOCLEX;
                kernel::set_close_on_exec(int(0), on)?;
                drop(link);
                let words = [call.word(0), libc::F_SETFD as u64, on.into(), 0, 0, 0];
                // SAFETY: it has no pointers.
                by_shape(process, &unsafe { Call::new(libc::SYS_fcntl, words) })
            }
            _ if wire::shape_with(number, call.words()).is_some() => {
                drop(link);
                by_shape(process, call)
            }
            // Programs go on with reads and writes.
            libc::FICLONE | kernel::FICLONERANGE => {
                let is_dir = kernel::look_fd(int(0))?.kind() == FileKind::Dir;
                Err(if is_dir { Errno::ISDIR } else { Errno::OPNOTSUPP })
            }
            _ => Err(Errno::NOTTY),
        },
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 if link.is_ours(int(0)) => {
            drop(link);
            answered(in_parts(process, call, false))
        }
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 if link.is_ours(int(0)) => {
            drop(link);
            answered(in_parts(process, call, true))
        }
        libc::SYS_mmap if link.is_ours(int(4)) => answered(map(&link, call)),
        libc::SYS_umask => {
            // For what the process makes itself.
            kernel::set_umask(call.uint(0) & 0o777);
            drop(link);
            by_shape(process, call)
        }
        // Programs go on with reads and writes.
        libc::SYS_copy_file_range if link.is_ours(int(0)) != link.is_ours(int(2)) => {
            let other = if link.is_ours(int(0)) { int(2) } else { int(0) };
            let is_file = kernel::look_fd(other)?.kind() == FileKind::File;
            Err(if is_file { Errno::XDEV } else { Errno::INVAL })
        }
        // They would lead past the transaction.
        libc::SYS_name_to_handle_at => Err(Errno::OPNOTSUPP),
        libc::SYS_open_by_handle_at => Err(Errno::PERM),
        // What the transaction has are files and directories.
        libc::SYS_epoll_ctl if link.is_ours(int(2)) => Err(Errno::PERM),
        libc::SYS_splice if link.is_ours(int(0)) || link.is_ours(int(2)) => Err(Errno::INVAL),
        libc::SYS_sendfile if link.is_ours(int(0)) != link.is_ours(int(1)) => Err(Errno::INVAL),
        _ => match class {
            Class::Passed(_) | Class::Held(_) | Class::Restored(_) => {
                passed(process, &mut link, call)
            }
            Class::Refused(..) => {
                let request = Request::new(Ask::Call, number);
                answered(answer_of(link.ask_plainly(&request)))
            }
            Class::Unknown => Err(Errno::NOSYS),
            _ => {
                drop(link);
                by_shape(process, call)
            }
        },
    }
}

pub fn answer_of(answer: i64) -> Sys<i64> {
    check(answer).map(|n| n as i64)
}

/// What others may see at once.
fn passed(process: &Process, link: &mut Link, call: &Call) -> Sys<Done> {
    let number = call.number();
    let only_own = txos_calls::only_asks(number, call.words())
        || match number {
            libc::SYS_setpgid | libc::SYS_sched_setaffinity | libc::SYS_prlimit64 => {
                call.int(0) == 0 || is_of_the_transaction(link, call.int(0))
            }
            libc::SYS_setsid | libc::SYS_setrlimit => true,
            libc::SYS_process_vm_writev | libc::SYS_move_pages | libc::SYS_migrate_pages => {
                call.int(0) == 0 || is_of_the_transaction(link, call.int(0))
            }
            libc::SYS_setpriority => call.word(0) == 0 && call.word(1) == 0,
            _ => false,
        };
    if only_own {
        return Ok(Done::Natively);
    }
    if sends_signal(number) {
        return signalling::send(link, call);
    }
    if matches!(number, libc::SYS_unshare | libc::SYS_setns) {
        link.fail("a process of the command is to have other namespaces");
    }
    if takes_rights(number) {
        // Who it is afterwards could not have them opened.
        link.hand_over_all()?;
        // Also if it has failed: another thread's may not have. The server looks who the process is.
        let answer = answer_of(call.make());
        let told = link.ask_plainly(&here_request(false));
        // What the owner was told is not another user's.
        answers::forget(process, link);
        answer_of(told)?;
        return answer.map(Done::Answer);
    }
    // Nobody may be there to connect to.
    let is_told_after = number == libc::SYS_connect && !process.strict;
    if !is_told_after {
        link.live(number);
    }
    if is_told_after {
        return Ok(Done::LiveAfter);
    }
    Ok(Done::Natively)
}

/// Whether a descriptor is of this process, or of a thread of it.
fn is_of_this(fd: i32) -> bool {
    kernel::process_of_descriptor(fd)
        .map(|number| kernel::process_of_thread(number).unwrap_or(number))
        .is_some_and(|number| number == kernel::own_process())
}

/// Whether a process is of the transaction, or is not there at all.
fn is_of_the_transaction(link: &Link, number: i32) -> bool {
    if number <= 1 {
        return false;
    }
    // A thread's number is its process's.
    let process = kernel::process_of_thread(number).unwrap_or(number).unsigned_abs().into();
    let request = Request::new(Ask::IsMember, 0).with([process, 0, 0, 0, 0, 0]);
    process == number_of_process()
        || link.ask_plainly(&request) == 1
        || kernel::kill(number, 0) == Err(Errno::SRCH)
}

/// Whether a call may change user, groups or capabilities.
pub fn takes_rights(number: i64) -> bool {
    txos_calls::effect(number) == txos_calls::Effect::TakesIds
}

/// A read or write of several buffers, one after the other.
fn in_parts(process: &Process, call: &Call, writes: bool) -> Sys<i64> {
    let at_place = call.number() != libc::SYS_readv && call.number() != libc::SYS_writev;
    // What is only said of how it is done is as it is: nothing is on its way to a disk, and nothing waits for one.
    const RWF_DONTCACHE: i32 = 0x80;
    const WAYS: i32 =
        libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT | RWF_DONTCACHE;
    if matches!(call.number(), libc::SYS_preadv2 | libc::SYS_pwritev2) && call.int(5) & !WAYS != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let here =
        matches!(call.number(), libc::SYS_preadv2 | libc::SYS_pwritev2) && call.long(3) == -1;
    let mut place = (at_place && !here).then(|| call.long(3));
    if call.word(2) > 1024 || place.is_some_and(|place| place < 0) {
        return Err(Errno::INVAL);
    }
    let parts = call.pointer::<[u64; 2]>(1);
    let mut all = Vec::new();
    for at in 0..call.word(2) {
        let part = parts.item(at).read()?;
        if i64::try_from(part[1]).is_err() {
            return Err(Errno::INVAL);
        }
        all.push(part);
    }
    let sum = all.iter().fold(0_u64, |sum, part| sum.saturating_add(part[1]));
    if sum <= wire::BYTES as u64 {
        return at_once(process, call, &all, place, writes);
    }
    let mut total = 0;
    for [base, size] in all {
        if size == 0 {
            continue;
        }
        let words = [call.word(0), base, size, place.unwrap_or(0) as u64, 0, 0];
        // SAFETY: the buffer is one of the program's, for this.
        let done = by_shape(process, &unsafe { Call::new(plain(place, writes), words) });
        match done {
            Ok(Done::Answer(done)) => {
                total += done;
                place = place.map(|place| place + done);
                if done.cast_unsigned() < size {
                    break;
                }
            }
            Err(errno) if total == 0 => return Err(errno),
            _ => break,
        }
    }
    Ok(total)
}

/// The call with one buffer.
fn plain(place: Option<i64>, writes: bool) -> i64 {
    match (place.is_some(), writes) {
        (false, false) => libc::SYS_read,
        (false, true) => libc::SYS_write,
        (true, false) => libc::SYS_pread64,
        (true, true) => libc::SYS_pwrite64,
    }
}

/// A read or write of several buffers that fit into the window together: one call.
fn at_once(
    process: &Process,
    call: &Call,
    parts: &[[u64; 2]],
    place: Option<i64>,
    writes: bool,
) -> Sys<i64> {
    // SAFETY: the buffers are the program's, for this.
    let part = |[base, size]: [u64; 2]| unsafe { UserSlice::new(base, size) };
    let mut bytes = Vec::new();
    if writes {
        for &given in parts {
            bytes.extend(part(given).read()?);
        }
    } else {
        bytes.resize(parts.iter().map(|part| part[1] as usize).sum(), 0);
    }
    let (at, size) = (bytes.as_mut_ptr() as u64, bytes.len() as u64);
    let words = [call.word(0), at, size, place.unwrap_or(0) as u64, 0, 0];
    // SAFETY: the buffer lives until the answer, and nobody has a reference to it meanwhile.
    let done = by_shape(process, &unsafe { Call::new(plain(place, writes), words) })?;
    let Done::Answer(done) = done else { return Err(Errno::IO) };
    if !writes {
        let mut rest = &bytes[..(done as usize).min(bytes.len())];
        for &given in parts {
            let (now, later) = rest.split_at(rest.len().min(given[1] as usize));
            part(given).write(now)?;
            rest = later;
        }
    }
    Ok(done)
}

/// A call whose arguments go through the window; or the kernel's own, if it concerns nothing of the transaction's.
fn by_shape(process: &Process, call: &Call) -> Sys<Done> {
    let number = call.number();
    if number == libc::SYS_fchdir && !process.link().is_ours(call.int(0)) {
        return into_live_directory(process, call);
    }
    let Some(shape) = wire::shape_with(number, call.words()) else {
        return match txos_calls::class(number) {
            // There is no way for its arguments; programs go on with older ones.
            Class::Transactional if is_local(number) => Ok(Done::Natively),
            Class::Transactional if txos_calls::descriptors(number).next().is_none() => {
                Err(Errno::NOSYS)
            }
            _ if process.link().has_of_ours(call) => Err(Errno::INVAL),
            _ => Ok(Done::Natively),
        };
    };
    let reads = matches!(number, libc::SYS_read | libc::SYS_pread64);
    let writes = matches!(number, libc::SYS_write | libc::SYS_pwrite64);
    if !(reads || writes) || call.word(2) <= wire::BYTES as u64 {
        return once(process, call, &shape);
    }
    if !process.link().is_ours(call.int(0)) {
        return Ok(Done::Natively);
    }
    // More than the window holds.
    let (mut done, all) = (0_u64, call.word(2).min(0x7fff_f000));
    while done < all {
        let size = (all - done).min(wire::BYTES as u64);
        let mut words = *call.words();
        words[1] += done;
        words[2] = size;
        if matches!(number, libc::SYS_pread64 | libc::SYS_pwrite64) {
            words[3] += done;
        }
        // SAFETY: a part of the program's buffer.
        match once(process, &unsafe { Call::new(number, words) }, &shape) {
            Ok(Done::Answer(moved)) => {
                done += moved.cast_unsigned();
                if moved.cast_unsigned() < size {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            _ => break,
        }
    }
    Ok(Done::Answer(done as i64))
}

/// `fchdir` to a directory that is not the transaction's: it is where paths begin from now on.
fn into_live_directory(process: &Process, call: &Call) -> Sys<Done> {
    // Where there is none, the kernel says so.
    kernel::close_on_exec(call.int(0))?;
    let mut path = kernel::path_of_fd(call.int(0))?;
    if !path.starts_with(b"/") {
        return Err(Errno::NOTDIR);
    }
    path.push(0);
    let words = [path.as_ptr() as u64, 0, 0, 0, 0, 0];
    // SAFETY: the path ends with its zero, and lives until the answer.
    by_shape(process, &unsafe { Call::new(libc::SYS_chdir, words) })
}

/// Calls that make descriptors of the kernel's, or are about them.
fn is_local(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_pipe
            | libc::SYS_pipe2
            | libc::SYS_socket
            | libc::SYS_socketpair
            | libc::SYS_dup
            | libc::SYS_ioctl
    )
}

fn once(process: &Process, call: &Call, shape: &Shape) -> Sys<Done> {
    let mut link = process.link();
    let found = places(&link, call, shape);
    if let Ok(Some(places)) = &found {
        return asked(&mut link, call, shape, places, None);
    }
    if let Some(special) = special_of(&link, call) {
        let done = asked(&mut link, &special.call, shape, &special.places, Some(special.number))?;
        if !matches!(done, Done::Natively) {
            return Ok(done);
        }
    }
    match found {
        Err(Errno::XDEV) => {
            drop(link);
            Err(new_name(process, call).err().unwrap_or(Errno::XDEV))
        }
        found => found.map(|_| Done::Natively),
    }
}

/// Whether the new name of a link can be made: that is asked before what it is to lead to.
fn new_name(process: &Process, call: &Call) -> Sys<()> {
    let (dir, path) = match call.number() {
        libc::SYS_link => (libc::AT_FDCWD as u64, call.word(1)),
        libc::SYS_linkat => (call.word(2), call.word(3)),
        _ => return Ok(()),
    };
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW as u64;
    let words = [dir, path, found.as_mut_ptr() as u64, flags, 0, 0];
    // SAFETY: the path is the program's; there is room for the answer until that.
    match by_shape(process, &unsafe { Call::new(libc::SYS_newfstatat, words) }) {
        Ok(Done::Answer(_)) => Err(Errno::EXIST),
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// A call about a FIFO or device with a name in the tree that the process has open itself, and about its attributes or names. What
/// its bytes are, the kernel knows, and the process has the descriptor; its attributes and names are the transaction's.
struct Special {
    /// Where it is open.
    number: i32,
    /// The call as the server is to have it: there the number is [`wire::SPECIAL`].
    call: Call,
    /// Where the server looks paths up.
    places: Vec<Place>,
}

fn special_of(link: &Link, call: &Call) -> Option<Special> {
    let (number, mut places) = by_number(call).or_else(|| by_own_path(link, call))?;
    let kind = kernel::look_fd(number).ok()?.kind();
    if !matches!(kind, FileKind::Fifo | FileKind::CharDevice | FileKind::BlockDevice) {
        return None;
    }
    let path = kernel::path_of_fd(number).ok()?;
    if !path.starts_with(b"/") || txos_engine::scope::is_never(&path) {
        return None;
    }
    if call.number() == libc::SYS_linkat {
        places.push(new_place(link, call)?);
    }
    let call = match places.first() {
        Some(Place { dir_at: Some(0), dir: wire::SPECIAL, .. }) => {
            // SAFETY: it is no address.
            unsafe { call.with_word(0, wire::SPECIAL as u64) }
        }
        _ => *call,
    };
    Some(Special { number, call, places })
}

/// The descriptor that a call is about, and where the server finds it.
fn by_number(call: &Call) -> Option<(i32, Vec<Place>)> {
    let is_empty = |flags: i32| {
        flags & libc::AT_EMPTY_PATH != 0 && call.path(1).is_ok_and(|path| path.is_empty())
    };
    let is_about_it = match call.number() {
        libc::SYS_fstat
        | libc::SYS_fchmod
        | libc::SYS_fchown
        | libc::SYS_fsetxattr
        | libc::SYS_fgetxattr
        | libc::SYS_flistxattr
        | libc::SYS_fremovexattr => true,
        libc::SYS_futimesat => call.word(1) == 0,
        libc::SYS_utimensat => call.word(1) == 0 || is_empty(call.int(3)),
        libc::SYS_newfstatat | libc::SYS_fchmodat2 => is_empty(call.int(3)),
        libc::SYS_statx => is_empty(call.int(2)),
        libc::SYS_fchownat | libc::SYS_linkat => is_empty(call.int(4)),
        _ => false,
    };
    // Where there is a path it is empty.
    let empty = Place { path_at: 1, dir_at: Some(0), dir: wire::SPECIAL, path: Vec::new() };
    (is_about_it && call.int(0) >= 0).then(|| (call.int(0), vec![empty]))
}

/// The same by the path that a descriptor has in `/proc`.
fn by_own_path(link: &Link, call: &Call) -> Option<(i32, Vec<Place>)> {
    let follows = |flags: i32| flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let path_at = match call.number() {
        libc::SYS_stat
        | libc::SYS_access
        | libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_setxattr
        | libc::SYS_getxattr
        | libc::SYS_listxattr
        | libc::SYS_removexattr
        | libc::SYS_readlink => 0,
        libc::SYS_faccessat | libc::SYS_fchmodat | libc::SYS_futimesat | libc::SYS_readlinkat => 1,
        libc::SYS_newfstatat | libc::SYS_faccessat2 | libc::SYS_fchmodat2 | libc::SYS_utimensat
            if follows(call.int(3)) =>
        {
            1
        }
        libc::SYS_statx if follows(call.int(2)) => 1,
        libc::SYS_fchownat if follows(call.int(4)) => 1,
        libc::SYS_linkat if call.int(4) & libc::AT_SYMLINK_FOLLOW != 0 => 1,
        _ => return None,
    };
    if call.word(path_at) == 0 {
        return None;
    }
    let number = own_descriptor(&call.path(path_at).ok()?)?;
    let (dir_at, dir) = (path_at.checked_sub(1), libc::AT_FDCWD);
    let path = format!("/proc/self/fd/{}", link.space + wire::SPECIAL).into_bytes();
    Some((number, vec![Place { path_at, dir_at, dir, path }]))
}

/// Where the server makes the new name of a link. `None`: nowhere.
fn new_place(link: &Link, call: &Call) -> Option<Place> {
    let (path_at, dir_at) = (3, Some(2));
    let (dir, path) = (call.int(2), call.path(path_at).ok()?);
    let (dir, path) =
        look_up(link, call.number(), dir, path.clone()).or_else(|| in_directory(dir, &path))?;
    Some(Place { path_at, dir_at, dir, path })
}

/// A call as a request, with its paths and buffers in the window.
fn request_of(link: &Link, call: &Call, shape: &Shape, places: &[Place]) -> Sys<Request> {
    let mut layout = wire::Layout::default();
    let mut request = Request::new(Ask::Call, call.number()).with(*call.words());
    for &(at, part) in shape.parts {
        if call.word(at) == 0 {
            continue;
        }
        let size = |size: Size| match size {
            Size::Of(size) => size,
            Size::Word(word) => (call.word(word) as usize).min(wire::BYTES),
        };
        let place = match part {
            Part::Path => {
                let place = places.iter().find(|place| place.path_at == at).ok_or(Errno::IO)?;
                match place.dir_at {
                    Some(dir_at) => request.words[dir_at] = place.dir as u64,
                    None if place.dir == libc::AT_FDCWD => {}
                    None => return Err(Errno::NOTDIR),
                }
                let path = [&place.path[..], b"\0"].concat();
                link.put(&mut layout, &path)?
            }
            Part::Text => {
                let mut text = call.path(at)?;
                text.push(0);
                link.put(&mut layout, &text)?
            }
            Part::In(bytes) | Part::Both(bytes) => {
                let size = size(bytes);
                let given = call.buffer(at, size as u64).readable()?;
                if given.len() < size {
                    return Err(Errno::FAULT);
                }
                let place = layout.place_for_data(size)?;
                // SAFETY: the place is inside, and nobody has a reference to it.
                let room = unsafe { std::slice::from_raw_parts_mut(link.window.add(place), size) };
                given.copy(0, room);
                place
            }
            Part::Out(bytes) => layout.place_for_data(size(bytes))?,
        };
        if let Part::In(Size::Word(word)) | Part::Out(Size::Word(word)) = part {
            request.words[word] = (call.word(word)).min(wire::BYTES as u64);
        }
        request.words[at] = place as u64;
    }
    Ok(request)
}

/// Asks once. `special`: about the FIFO or device that is open at that number.
fn asked(
    link: &mut Link,
    call: &Call,
    shape: &Shape,
    places: &[Place],
    special: Option<i32>,
) -> Sys<Done> {
    let number = call.number();
    link.forget_what_was_taken_back();
    let mut request = request_of(link, call, shape, places)?;
    let cloexec = shape.opens && opens_for_itself(call);
    let chosen = if shape.opens { Some(link.reserve(0, cloexec)?) } else { None };
    request.chosen = chosen.map_or(-1, i64::from);
    let (answer, beside) = match special {
        Some(number) => link.ask_about(&request.of(Ask::Special), number),
        None => link.ask(&request),
    };
    match (answer.how(), chosen) {
        (Some(How::Yourself), _) if special.is_some() => return Ok(Done::Natively),
        (Some(How::Later), chosen) => {
            chosen.into_iter().for_each(kernel::close);
            return Ok(Done::Later);
        }
        (Some(How::Lent), chosen) => {
            // At the limit of descriptors nothing comes along.
            if let [Some(fd), _] = beside {
                link.take_loan(chosen.unwrap_or_else(|| call.int(0)), fd);
            }
        }
        (Some(How::WithDescriptors), Some(chosen)) => {
            let [Some(fd), _] = beside else { return Err(Errno::IO) };
            let moved = kernel::dup3(fd, chosen, cloexec);
            kernel::close(fd);
            return moved.map(|_| Done::Answer(chosen.into()));
        }
        (Some(How::Elsewhere), chosen) => {
            chosen.into_iter().for_each(kernel::close);
            // The path may lead to a number.
            link.hand_over_all()?;
            let mut path = link.path(answer.more[0]);
            // Links may lead back, by the process's directory in /proc.
            if let [Place { path_at, dir_at, .. }] = *places
                && let Some((dir, back)) = look_up(link, number, libc::AT_FDCWD, path.clone())
                && back != path
            {
                return asked(
                    link,
                    call,
                    shape,
                    &[Place { path_at, dir_at, dir, path: back }],
                    None,
                );
            }
            path.push(0);
            return Ok(Done::With(path, *call));
        }
        (Some(How::Yourself), Some(chosen)) => {
            kernel::close(chosen);
            let (path, flags) = (link.path(answer.more[0]), answer.more[1] as i32);
            let [through, other] = beside.map(|fd| fd.map(OwnedFd::of));
            drop(other);
            let mut path = through.as_ref().map_or(path, |fd| kernel::magic_path(fd.number()));
            path.push(0);
            // A magic link is to be followed; what it leads to is no link.
            let flags = if through.is_some() { flags & !libc::O_NOFOLLOW } else { flags };
            if flags & libc::O_ACCMODE != libc::O_RDONLY {
                let mut request = Request::new(Ask::Output, number);
                request.words[0] = libc::S_IFIFO.into();
                link.ask_plainly(&request);
            }
            return Ok(Done::Open(path, flags, through));
        }
        _ => {}
    }
    let answered = answer_of(answer.answer);
    match (chosen, &answered) {
        (Some(chosen), Ok(_)) => {
            link.numbers.insert(chosen);
            link.stands_for(chosen, answer.more[0]);
            return Ok(Done::Answer(chosen.into()));
        }
        (Some(chosen), Err(_)) => kernel::close(chosen),
        _ => {}
    }
    let answered = answered?;
    for &(at, part) in shape.parts {
        let (Part::Out(bytes) | Part::Both(bytes)) = part else { continue };
        if call.word(at) == 0 {
            continue;
        }
        let size = match bytes {
            Size::Of(size) => size,
            Size::Word(word) => {
                let room = (call.word(word) as usize).min(wire::BYTES);
                usize::try_from(answered).unwrap_or(0).min(room)
            }
        };
        // SAFETY: the place is inside; the server is done with it.
        let bytes = unsafe {
            std::slice::from_raw_parts(link.window.add(request.words[at] as usize), size)
        };
        let to = call.buffer(at, size as u64).writable()?;
        if to.len() < size {
            return Err(Errno::FAULT);
        }
        to.write(0, bytes);
    }
    if matches!(number, libc::SYS_chdir | libc::SYS_fchdir) {
        follow(link);
    }
    Ok(Done::Answer(answered))
}

/// The kernel's working directory becomes the transaction's, where there is one in the stable tree: other
/// programs show it, and what is looked up past the transaction begins there.
pub(super) fn follow(link: &Link) {
    if let Ok(path) = working_directory(link) {
        let _ = kernel::chdir(&path);
    }
}

/// The transaction's working directory of this process.
pub(super) fn working_directory(link: &Link) -> Sys<Vec<u8>> {
    let place = wire::Layout::default().place(4096)?;
    let mut request = Request::new(Ask::Call, libc::SYS_getcwd);
    request.words = [place as u64, 4096, 0, 0, 0, 0];
    let size = answer_of(link.ask_plainly(&request))?;
    let mut path = link.path(size as u64);
    path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(path.len()));
    Ok(path)
}

/// Whether what a call opens is closed when another program is run.
fn opens_for_itself(call: &Call) -> bool {
    let flags = match call.number() {
        libc::SYS_open => call.int(1),
        libc::SYS_openat => call.int(2),
        libc::SYS_openat2 => call.pointer::<u64>(2).read().unwrap_or(0) as i32,
        _ => 0,
    };
    flags & libc::O_CLOEXEC != 0
}
