//! Processes in a program's own transaction.
//!
//! The transaction stays in the process that began it, and so do that process's descriptors. Its children have a
//! socket and a window each, as those of a command have ([`super`]). A thread of the process serves them, the
//! *keeper*: it takes a turn for each of their calls, as a thread that is a member does ([`crate::front::members`]).
//!
//! A keeper is made by the first `sys_xbegin` with `TX_PROCESSES`, since the C library's `fork` may hold locks that
//! making a thread takes. It sleeps between transactions.
//!
//! | event | what happens |
//! |---|---|
//! | the process forks | its child's table becomes what the transaction says; the child has a connection of its own |
//! | a child forks, runs a program, ends | as in a command |
//! | a child calls `sys_xend` | it leaves: the keeper closes its numbers |
//! | `sys_xend` of the thread that began | it waits until no process is left, and commits |
//! | an abort | the keeper kills the processes; those of an attempt that begins again are waited for as well |
//! | the process dies | its children are killed by the kernel; theirs end with their next call |
#![allow(unsafe_code)] // processes and threads that begin to run

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use super::client;
use super::joining::{self, Door};
use super::link::Child;
use super::server::{Desk, Place, Server, descriptor_of, transaction};
use super::wire;
use crate::front::members::{self, Shared};
use crate::front::process::Made;
use crate::front::report::reason;
use crate::front::session::{self, Next};
use crate::front::thread::{self, Thread};
use crate::front::tls::{ACTIVE, here};
use crate::front::trap::Context;
use crate::front::{api, dispatch, in_process, signals};
use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::spaces::{Moved, Outlet};
use crate::tx::{Failure, Tx, flags, kernel};

/// How long it is waited for killed processes to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Keepers that sleep, at most.
const ASLEEP_MAX: usize = 4;

// --- Keepers -----------------------------------------------------------------------------------

/// A thread that serves one transaction after the other.
#[derive(Debug)]
struct Keeper {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug)]
enum Work {
    /// It sleeps.
    None,
    /// It is to serve the processes of a transaction.
    Serve(Arc<Host>, Arc<Shared>),
    /// It does.
    Serving,
    /// It is to end.
    Stop,
    /// It has ended.
    Stopped,
}

static ASLEEP: Mutex<VecDeque<Arc<Keeper>>> = Mutex::new(VecDeque::new());

impl Keeper {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start() -> Result<Arc<Keeper>, Errno> {
        let keeper = Arc::new(Keeper { work: Mutex::new(Work::None), changed: Condvar::new() });
        let its_own = Arc::clone(&keeper);
        // What arrives for the process is for the program's threads.
        let mask = signals::block_all();
        let started = std::thread::Builder::new()
            .name("txos".into())
            .stack_size(1 << 20)
            .spawn(move || its_own.live());
        signals::set_mask(mask);
        started.map(|_| keeper).map_err(|_| Errno::AGAIN)
    }

    fn live(&self) {
        // With that signal the C library has all threads change their ids, and waits for each.
        signals::unblock(members::SETXID);
        loop {
            let mut work = self.work();
            let (host, shared) = loop {
                match std::mem::replace(&mut *work, Work::Serving) {
                    Work::Serve(host, shared) => break (host, shared),
                    Work::Stop => {
                        *work = Work::Stopped;
                        self.changed.notify_all();
                        return;
                    }
                    other => *work = other,
                }
                work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
            };
            drop(work);
            let mut umask = Umask::default();
            if let Err(panic) = thread::guarded(|| host.serve(&shared, &mut umask)) {
                api::tell(&session::defect(&panic).what);
                // Its processes end by themselves when nobody has the other ends of their sockets.
                host.desk().end_members(reason::FAILED);
            }
            drop((host, shared));
            // One that has directories and a umask of its own serves no other transaction.
            let last = umask.apart;
            *self.work() = if last { Work::Stopped } else { Work::None };
            self.changed.notify_all();
            if last {
                return;
            }
        }
    }

    /// Waits until it sleeps. Whether it can serve another transaction.
    fn rests(&self) -> bool {
        let mut work = self.work();
        loop {
            match *work {
                Work::None => return true,
                Work::Stopped => return false,
                _ => work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn stop(&self) {
        let mut work = self.work();
        if !matches!(*work, Work::Stopped) {
            *work = Work::Stop;
        }
        self.changed.notify_all();
        while !matches!(*work, Work::Stopped) {
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A keeper that is one transaction's.
#[derive(Debug)]
pub struct Reserved {
    keeper: Arc<Keeper>,
    /// The processes, once there was one.
    host: Mutex<Option<Arc<Host>>>,
}

impl Reserved {
    /// A keeper for a transaction that begins.
    ///
    /// # Errors
    /// EAGAIN: there can't be another thread.
    pub fn new() -> Result<Reserved, Errno> {
        static AT_FORK: Once = Once::new();
        in_process::find_library();
        // It is asked for during a fork, when the C library's allocator is locked.
        kernel::single_threaded();
        // Without it, what the library does meanwhile might wait for the C library's `fork`, and that for this.
        // SAFETY: the functions take nothing, and stay as long as the library.
        AT_FORK.call_once(|| unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), None);
        });
        let asleep = ASLEEP.try_lock().ok().and_then(|mut asleep| asleep.pop_front());
        let keeper = match asleep {
            Some(keeper) => keeper,
            None => Keeper::start()?,
        };
        Ok(Reserved { keeper, host: Mutex::default() })
    }

    /// Before the transaction begins again: nothing is left of the children that the process has made in it.
    pub fn reap(&self) {
        if let Some(host) = self.known().as_ref() {
            host.end(reason::EXITED);
            host.reap();
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Arc<Host>>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processes of the transaction, from now on.
    fn host(&self, shared: &Arc<Shared>) -> Sys<Arc<Host>> {
        let mut known = self.known();
        if let Some(host) = known.as_ref() {
            return Ok(Arc::clone(host));
        }
        let host = Arc::new(Host::new()?);
        *known = Some(Arc::clone(&host));
        shared.has_host(Arc::clone(&host));
        *self.keeper.work() = Work::Serve(Arc::clone(&host), Arc::clone(shared));
        self.keeper.changed.notify_all();
        Ok(host)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(host) = self.known().take() {
            host.end(reason::EXITED);
            host.closed.store(true, Ordering::Release);
            host.wake();
        }
        let usable = self.keeper.rests();
        let asleep = ASLEEP.try_lock().ok().filter(|asleep| usable && asleep.len() < ASLEEP_MAX);
        match asleep {
            Some(mut asleep) => asleep.push_front(Arc::clone(&self.keeper)),
            None => self.keeper.stop(),
        }
    }
}

/// How many threads the process has, the library's own excepted: its keepers that sleep are ended. `None`: /proc is not there.
pub fn threads_of_the_program() -> Option<u64> {
    let stopped = stop_sleepers();
    // The last that a thread does is the C library's and the kernel's: who has waited for it can still find it here.
    let began = Instant::now();
    while kernel::threads() != Some(1)
        && (stopped || kernel::has_ending_thread())
        && began.elapsed() < Duration::from_millis(200)
    {
        std::thread::yield_now();
    }
    kernel::threads()
}

/// Ends the keepers that sleep. Whether there were some.
fn stop_sleepers() -> bool {
    let sleepers = ASLEEP.try_lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
    let some = !sleepers.is_empty();
    sleepers.into_iter().for_each(|keeper| keeper.stop());
    some
}

/// Something with the session of the calling thread, if processes that it makes are members of its transaction.
fn if_members_are_made(work: impl FnOnce(&mut Thread)) {
    let tls = here();
    if tls.state.get() != ACTIVE {
        return;
    }
    thread::leave_program(tls);
    if let Some(thread) = thread::existing(tls)
        && let Some(session) = thread.session.as_ref()
        && session.plan.flags & flags::PROCESSES != 0
        && session.process.is_none()
    {
        let _ = thread::on_own_stack(tls, || work(thread));
    }
    thread::to_program(tls);
}

extern "C" fn before_fork() {
    if_members_are_made(members::before_fork);
}

extern "C" fn after_fork_in_parent() {
    if_members_are_made(|thread| members::after_fork(thread));
}

/// In a child that was forked: there are no keepers here.
pub fn after_fork() {
    // Another thread may have held the lock when the process was copied.
    if let Ok(mut asleep) = ASLEEP.try_lock() {
        std::mem::forget(std::mem::take(&mut *asleep));
    }
}

// --- The processes of a transaction ------------------------------------------------------------

/// The processes of a transaction besides the one that began it.
#[derive(Debug)]
pub struct Host {
    desk: Mutex<Desk>,
    /// Children of this process that it may not have waited for yet.
    children: Mutex<Vec<i32>>,
    /// A process is gone.
    changed: Condvar,
    /// An event for the keeper.
    wake: i32,
    /// What keeps a number in a child.
    placeholder: i32,
    /// The transaction is over, and there are no processes any more.
    closed: AtomicBool,
    /// Somebody waits for the processes to end.
    ending: AtomicBool,
    /// By which others enter, once somebody has asked for that.
    door: Mutex<Option<Arc<Door>>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        kernel::close(self.wake);
        kernel::close(self.placeholder);
        self.children().drain(..).for_each(kernel::close);
    }
}

/// What the keeper makes files with that are no part of the transaction.
#[derive(Debug, Default)]
pub struct Umask {
    /// What is in force for it.
    worn: Option<u32>,
    /// It has one of its own.
    apart: bool,
}

impl Umask {
    /// Puts that of the process whose call is carried out in force, for the calling thread only.
    pub fn wear(&mut self, tx: &mut Tx) {
        let wanted = tx.umask();
        let worn = *self.worn.get_or_insert_with(|| {
            kernel::umask_of_one_thread().unwrap_or_else(kernel::umask_as_told)
        });
        if wanted == worn {
            return;
        }
        if !self.apart {
            // SAFETY: it has no pointers.
            let apart = check(unsafe {
                syscall(libc::SYS_unshare, [libc::CLONE_FS as u64, 0, 0, 0, 0, 0])
            });
            self.apart = apart.is_ok();
        }
        if self.apart {
            tx.wear_umask();
            self.worn = Some(wanted);
        }
    }
}

impl Host {
    fn new() -> Sys<Host> {
        let desk = Desk::new(Vec::new()).ok_or(Errno::NOSYS)?;
        let flags = (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as u64;
        // SAFETY: it has no pointers.
        let wake = check(unsafe { syscall(libc::SYS_eventfd2, [0, flags, 0, 0, 0, 0]) })?;
        let wake = kernel::move_high(wake as i32)?;
        let placeholder = wire::new_placeholder().inspect_err(|_| kernel::close(wake))?;
        Ok(Host {
            desk: Mutex::new(desk),
            children: Mutex::default(),
            changed: Condvar::new(),
            wake,
            placeholder,
            closed: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            door: Mutex::default(),
        })
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn door(&self) -> Option<Arc<Door>> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn children(&self) -> MutexGuard<'_, Vec<i32>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a process is in the transaction.
    pub fn has(&self, number: u32) -> bool {
        let desk = self.desk();
        desk.members.iter().any(|member| member.process.is_some_and(|(known, _)| known == number))
    }

    /// Has the keeper look around.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        let _ = kernel::write(self.wake, &one);
    }

    /// Kills all processes, and does not wait for them.
    pub fn kill(&self, reason: u32) {
        self.desk().end_members(reason);
    }

    /// Kills all processes, and waits until they are gone.
    pub fn end(&self, reason: u32) {
        let began = Instant::now();
        let mut desk = self.desk();
        if desk.members.is_empty() {
            return;
        }
        self.ending.store(true, Ordering::Release);
        self.wake();
        while !desk.members.is_empty() {
            desk.end_members(reason);
            if began.elapsed() >= PATIENCE {
                let count = desk.members.len();
                drop(desk);
                return api::tell(&format!(
                    "{count} of the transaction's processes can't be killed; it goes on without them"
                ));
            }
            let waited = self.changed.wait_timeout(desk, Duration::from_millis(50));
            desk = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the process's own children, which have ended.
    fn reap(&self) {
        for child in self.children().drain(..) {
            let _ = wait_for(child, libc::WEXITED | libc::__WALL);
            kernel::close(child);
        }
    }

    /// A child of this process is to be waited for, unless the program does.
    fn has_child(&self, number: u32) {
        let mut children = self.children();
        let seen = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        children.retain(|&child| {
            let is_there = wait_for(child, seen).is_ok();
            if !is_there {
                kernel::close(child);
            }
            is_there
        });
        children.extend(descriptor_of(number));
    }

    /// Serves the processes until the transaction is over and they are gone.
    fn serve(&self, shared: &Arc<Shared>, umask: &mut Umask) {
        let session = Some(members::of_keeper(Arc::clone(shared)));
        let mut thread = Thread { session, ..Thread::default() };
        let mut killed = false;
        loop {
            let ready = self.wait();
            if !killed && (shared.is_over() || self.ending.load(Ordering::Acquire)) {
                killed = true;
                self.kill(shared.why_over().unwrap_or(reason::EXITED));
            }
            for socket in ready {
                if let Some(door) = self.door().filter(|door| door.ours() == socket) {
                    members::with(&mut thread, |thread| {
                        // In the turn: who ends the transaction sees it in, or it is not let in.
                        if joining::heed(&door, thread, &mut self.desk()) {
                            shared.process_enters();
                        }
                    });
                    continue;
                }
                let (before, now) = members::with(&mut thread, |thread| {
                    let mut desk = self.desk();
                    let before = desk.members.len();
                    let Some(at) = desk.members.iter().position(|m| m.socket == socket) else {
                        return (0, 0);
                    };
                    let hosted = Some(&mut *umask);
                    let desk = &mut *desk;
                    let mut server = Server { thread, desk, ended: None, hosted };
                    server.heed(at);
                    (before, server.desk.members.len())
                });
                // A call makes room for one child, or is the last of a process.
                if now > before {
                    shared.process_enters();
                } else if now < before {
                    shared.processes_left(before - now);
                    self.changed.notify_all();
                }
            }
            if self.closed.load(Ordering::Acquire) {
                // Those that can't be killed learn it when they go on.
                let left = self.desk().dismiss();
                shared.processes_left(left);
                return;
            }
        }
    }

    /// The sockets of the processes that have something to say.
    fn wait(&self) -> Vec<i32> {
        let polled = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut all = vec![polled(self.wake)];
        all.extend(self.door().filter(|door| door.is_open()).map(|door| polled(door.ours())));
        let sockets = all.len();
        let joined = {
            let desk = self.desk();
            all.extend(desk.members.iter().map(|member| polled(member.socket)));
            // A copy of its socket may be in another process, and outlive it.
            let joined = desk.members.iter().filter(|member| member.joined);
            let joined = joined.filter_map(|m| Some((m.process?.1, m.socket)));
            joined.collect::<Vec<_>>()
        };
        let processes = all.len();
        all.extend(joined.iter().map(|&(process, _)| polled(process)));
        let words = [all.as_mut_ptr() as u64, all.len() as u64, u64::MAX, 0, 0, 0];
        // SAFETY: the kernel writes to the array, whose length it is told.
        unsafe { syscall(libc::SYS_poll, words) };
        if all[0].revents != 0 {
            let mut count = [0_u8; 8];
            // SAFETY: the kernel writes the number.
            unsafe {
                syscall(libc::SYS_read, [self.wake as u64, count.as_mut_ptr() as u64, 8, 0, 0, 0])
            };
        }
        for (at, &(_, socket)) in joined.iter().enumerate() {
            if all[processes + at].revents != 0 {
                wire::shut(socket);
                let of_it = all[sockets..processes].iter_mut().find(|polled| polled.fd == socket);
                of_it.into_iter().for_each(|polled| polled.revents = libc::POLLHUP);
            }
        }
        let ready = all[1..processes].iter().filter(|polled| polled.revents != 0);
        ready.map(|polled| polled.fd).collect()
    }

    /// A place for a child of this process. The turn is the calling thread's.
    fn expect(&self, thread: &mut Thread) -> Sys<Child> {
        let tx = transaction(thread).ok_or(Errno::CANCELED)?;
        let (moved, bound) = (tx.numbers_to_move(), tx.bound());
        let outlets: Vec<Outlet> = moved.iter().filter_map(Moved::outlet).collect();
        let mut closes = tx.private_numbers();
        let mut desk = self.desk();
        desk.outlets = outlets.clone();
        let Place { space, socket, window } = desk.place(tx, 0, 0, None)?;
        closes.push(self.wake);
        closes.extend(self.door().map(|door| door.ends()).into_iter().flatten());
        for member in &desk.members {
            closes.extend([member.socket, member.window_fd]);
            closes.extend(member.process.map(|(_, process)| process));
        }
        closes.extend(self.children().iter());
        Ok(Child {
            socket,
            window_fd: window,
            space,
            numbers: std::collections::BTreeSet::new(),
            outlets,
            bound,
            lent: super::lent::Lent::default(),
            answers: None,
            objects: BTreeMap::new(),
            closes,
            placeholder: self.placeholder,
            moved: Some(moved),
            parent: None,
            clears_handlers: false,
            is_waited_for: false,
            hands_back: None,
        })
    }

    /// A descriptor by which others can enter: of the transaction that `token` stands for.
    fn show(&self, token: u64) -> Sys<i32> {
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        let door = match door.as_ref() {
            Some(door) => Arc::clone(door),
            None => Arc::clone(door.insert(Arc::new(Door::new(token)?))),
        };
        self.wake();
        door.for_program()
    }

    /// What is known of a child from its parent.
    fn born(&self, space: i32, number: u32) {
        let mut desk = self.desk();
        let member = desk.members.iter_mut().find(|member| member.space == space);
        if let Some(member) = member.filter(|member| member.process.is_none()) {
            member.process = descriptor_of(number).ok().map(|process| (number, process));
        }
        drop(desk);
        self.has_child(number);
    }
}

/// `waitid(2)` for a descriptor of a process.
fn wait_for(process: i32, how: i32) -> Sys<u64> {
    let words = [u64::from(libc::P_PIDFD), process as u64, 0, how as u64, 0, 0];
    // SAFETY: nothing is written.
    check(unsafe { syscall(libc::SYS_waitid, words) })
}

/// A descriptor by which processes that run already can join a transaction with TX_PROCESSES.
///
/// # Errors
/// As `socketpair(2)`; EAGAIN: nobody serves the processes.
pub fn show(shared: &Arc<Shared>, token: u64) -> Sys<i32> {
    let keeper = shared.keeper().ok_or(Errno::AGAIN)?;
    keeper.host(shared)?.show(token)
}

/// A new process in a program's own transaction. `None`: it is to be no member.
pub fn create(thread: &mut Thread, made: &Made, context: &mut Context) -> Option<Next> {
    let session = thread.session.as_ref()?;
    if session.plan.flags & flags::PROCESSES == 0 {
        return None;
    }
    if let Some(next) = client::refused(made) {
        return Some(next);
    }
    let failed = |errno: Errno| Some(Next::Answer(-i64::from(errno.raw_os_error())));
    let Some(shared) = members::shared_by(thread) else { return failed(Errno::CANCELED) };
    let session = thread.session.as_ref()?;
    let host = match shared.keeper().map(|keeper| keeper.host(&shared)) {
        Some(Ok(host)) => host,
        _ => return failed(Errno::AGAIN),
    };
    if made.has_namespaces() {
        let why = Failure {
            reason: reason::UNSUPPORTED,
            errno: libc::ECANCELED,
            what: "a process of the transaction is to have namespaces of its own".into(),
            ..Failure::default()
        };
        return Some(members::with(thread, |thread| dispatch::fail(thread, why)));
    }
    let began = session.member.as_ref().is_some_and(members::Membership::began);
    let child = members::with(thread, |thread| host.expect(thread));
    let mut child = match child {
        Ok(child) => child,
        Err(Errno::MFILE | Errno::NFILE | Errno::NOSPC) => return failed(Errno::AGAIN),
        Err(errno) => return failed(errno),
    };
    shared.process_enters();
    host.wake();
    if began {
        child.parent = Some(super::link::number_of_process());
    }
    let space = child.space;
    let answer = match client::give_birth(made, context, child) {
        Ok(child) => {
            client::begins(thread, child);
            context.set_mask(super::calls::mask_of(thread));
            return Some(Next::Answer(0));
        }
        Err(answer) => answer,
    };
    if let Ok(number) = u32::try_from(answer) {
        host.born(space, number);
    }
    Some(Next::Answer(answer))
}
