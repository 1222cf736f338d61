//! The supervisor: is told of every call that the [`filter`] stops before the kernel makes it, records what
//! is looked at, and takes care of what leads out of the transaction.
//!
//! # Invariants
//!
//! - An observation is complete before the call is let through (see [`txos_engine::readset`]).
//! - Nothing here may wait for a process of the transaction: all of them may be waiting for us.
//!   What can block is done on a thread of its own, which then answers the call.
//! - A call that can't be looked at is let through: the kernel will say what is wrong with it. This
//!   is a recorder, not a jail; a program that races with its own arguments fools only itself.
//!
//! | module | what lives there |
//! |---|---|
//! | [`filter`] | which calls are stopped: the table of [`txos_calls`] as a seccomp program |
//! | [`process`] | looking at a stopped process |
//! | [`caller`] | on whose behalf something is done |
//! | [`record`] | observations |
//! | [`view_renames`] | paths that the transaction itself changed |
//! | [`path_class`], [`side_effects`] | changes that can't be rolled back |
//! | [`deferred_signals`] | signals to outsiders |
//! | [`outsiders`] | other people's processes and objects |
//! | [`sockets`] | connections |
//! | [`recorder`] | looks that were told already |
//! | [`ahead`] | looks that come next |
//! | [`execute`] | what executing a file reads besides the file |

pub mod ahead;
pub mod caller;
pub mod deferred_signals;
pub mod execute;
pub mod filter;
pub mod outsiders;
pub mod path_class;
pub mod process;
pub mod record;
pub mod recorder;
pub mod side_effects;
pub mod sockets;
pub mod view_renames;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use txos_calls::{Follow, Handler};
use txos_engine::commit::Isolation;
use txos_engine::object::Facets;
use txos_engine::readset::ReadSet;
use txos_engine::runs::Predecessors;

use crate::error::{Result, Step};
use crate::participant::{Handle, Left, Participant, Watcher};
use crate::question::Questions;
use crate::session::channel::{Channel, Order};
use crate::sys::seccomp::{Buffer, Call, Listener};
use crate::sys::signals::wake;
use crate::warning::{WarningKind, Warnings};

/// What becomes of a stopped call.
#[derive(Debug)]
pub enum Verdict {
    /// The kernel makes it.
    Through,
    /// It is answered without being made.
    Answer(std::result::Result<i64, Errno>),
    /// It is answered with a descriptor of this file.
    Give(Arc<OwnedFd>),
    /// Somebody else answers it.
    Later,
    /// Nobody answers it: the transaction is being ended, for this reason.
    Stop(String),
}

/// What the supervisor starts with.
pub struct Setup {
    /// What was seen so far.
    pub reads: ReadSet,
    /// Ancestor of every process of the transaction.
    pub reaper: Pid,
    /// Mount namespace of the view.
    pub mount_namespace: u64,
    /// Whether to stop at what can't be rolled back.
    pub strict: bool,
    /// Whether the command's network is this machine's.
    pub has_network: bool,
    /// Where warnings go.
    pub warnings: Arc<Warnings>,
    /// To the reaper, for [`Order::Kill`].
    pub orders: Channel,
    /// What lies where.
    pub path_classes: path_class::PathClasses,
    /// What the transaction has moved so far.
    pub renames: view_renames::ViewRenames,
    /// What is preloaded into programs, if it is.
    pub recorder: Option<recorder::Recorder>,
    /// Whether the kernel alone serves the file system of the root directory.
    pub root_is_local: bool,
    /// The transaction's handle in the realm, if it has one.
    pub handle: Option<Handle>,
    /// Whether what is only read is acquired there.
    pub isolation: Isolation,
    /// How long a call waits for another transaction at the most.
    pub patience: Duration,
    /// The runs that it comes after.
    pub after: Predecessors,
    /// What answers questions about the store.
    pub questions: Option<Questions>,
}

/// What the supervisor leaves.
#[derive(Debug, Default)]
pub struct Finished {
    /// What was seen.
    pub reads: ReadSet,
    /// Why it ended the transaction, if it did.
    pub stopped: Option<String>,
    /// Signals that wait for the commit.
    pub deferred: Vec<deferred_signals::DeferredSignal>,
    /// The transaction's handle in the realm, and why it lost if it did.
    pub left: Left,
}

/// A supervisor on its own thread, which waits for the listener and then is at work.
pub struct Running {
    thread: JoinHandle<Finished>,
    /// Where the listener goes; none once it has gone there.
    listener: Option<SyncSender<OwnedFd>>,
    over: Arc<AtomicBool>,
    watcher: Option<Watcher>,
    _limit: Descriptors,
}

/// As many descriptors as this process may have, while the supervisor runs: what the processes of the
/// transaction do must not leave it without one, because then it can't look at what they look at. The
/// command was started before and keeps the limit that it was given.
struct Descriptors(rustix::process::Rlimit);

impl Descriptors {
    fn raise() -> Descriptors {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let was = getrlimit(Resource::Nofile);
        // Refused, everything works but that.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: was.maximum, maximum: was.maximum });
        Descriptors(was)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // The next attempt of the command is to have what the first had.
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, self.0);
    }
}

/// The supervisor.
pub struct Supervisor {
    listener: Arc<Listener>,
    reads: ReadSet,
    processes: process::Processes,
    renames: view_renames::ViewRenames,
    scratch: record::Scratch,
    known: record::KnownLooks,
    heads: execute::Heads,
    reaper: Pid,
    mount_namespace: u64,
    /// What callers see and may, unless they changed it.
    view: caller::View,
    helpers: caller::Helpers,
    /// Some process may have other credentials than ours.
    identities_differ: bool,
    /// A process was found for which nothing is done; to be told.
    foreign: Option<u32>,
    strict: bool,
    has_network: bool,
    warnings: Arc<Warnings>,
    orders: Channel,
    path_classes: path_class::PathClasses,
    pid_namespace: u64,
    deferred: Vec<deferred_signals::DeferredSignal>,
    participant: Participant,
    recorder: Option<recorder::Recorder>,
    /// The process that is being looked at can't be.
    unreadable: bool,
    /// Where directories of the view are, at a revision of what was moved.
    real_dirs: (u64, std::collections::HashMap<Vec<u8>, Vec<u8>>),
    /// Some process changed its root directory: absolute paths need a look at it.
    roots_differ: bool,
    /// Held by each thread that connects somebody's socket: how many there are is how often it is held.
    connects: Arc<()>,
    questions: Option<Questions>,
}

/// Starts a supervisor.
///
/// # Errors
/// If no thread can be had.
pub fn start(setup: Setup) -> Result<Running> {
    wake::prepare();
    txos_engine::patience::begin();
    let over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&over);
    let pid_namespace =
        rustix::fs::stat("/proc/self/ns/pid").step("looking at our pid namespace")?.st_ino;
    let view = caller::View::of(setup.reaper, setup.root_is_local)?;
    // Executing a program reads its head, on such a thread.
    txos_engine::patience::prepare();
    let mut reads = setup.reads;
    reads.remember_touched();
    let watcher = match &setup.handle {
        Some(handle) => {
            let orders = setup.orders.duplicate().step("duplicating the channel")?;
            Some(Watcher::start(handle, &over, orders)?)
        }
        None => None,
    };
    let participant =
        Participant::new(setup.handle, setup.isolation, setup.patience, setup.after, &over);
    let (to_thread, from_starter) = sync_channel(1);
    let limit = Descriptors::raise();
    let run = move || {
        let Ok(listener) = from_starter.recv() else {
            // No program was started.
            let left = participant.leave(&mut reads);
            return Finished { reads, left, ..Finished::default() };
        };
        let supervisor = Supervisor {
            listener: Arc::new(Listener::new(listener)),
            reads,
            participant,
            processes: process::Processes::default(),
            renames: setup.renames,
            scratch: record::Scratch::default(),
            known: record::KnownLooks::default(),
            heads: execute::Heads::default(),
            view,
            helpers: caller::Helpers::default(),
            identities_differ: false,
            foreign: None,
            reaper: setup.reaper,
            mount_namespace: setup.mount_namespace,
            strict: setup.strict,
            has_network: setup.has_network,
            warnings: setup.warnings,
            orders: setup.orders,
            path_classes: setup.path_classes,
            pid_namespace,
            deferred: Vec::new(),
            recorder: setup.recorder,
            unreadable: false,
            real_dirs: Default::default(),
            roots_differ: false,
            connects: Arc::default(),
            questions: setup.questions,
        };
        supervisor.run(&flag)
    };
    let thread = std::thread::Builder::new()
        .name("txos-supervisor".into())
        .spawn(run)
        .step("starting the supervisor's thread")?;
    Ok(Running { thread, listener: Some(to_thread), over, watcher, _limit: limit })
}

impl Running {
    /// Begins with the filter's listener.
    pub fn listen(&mut self, listener: OwnedFd) {
        if let Some(thread) = self.listener.take() {
            // It waits for it, and there is room for one.
            let _ = thread.send(listener);
        }
    }

    /// Ends the supervisor; every process of the transaction has ended.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        self.listener = None;
        self.over.store(true, Ordering::Release);
        let stopped_for = self.watcher.and_then(Watcher::finish);
        wake::until_finished(&self.thread);
        let mut finished = self.thread.join().unwrap_or_default();
        finished.left.lost = finished.left.lost.or(stopped_for);
        finished
    }
}

impl Supervisor {
    fn run(mut self, over: &AtomicBool) -> Finished {
        let mut buffer = Buffer::new();
        let mut stopped = None;
        while !over.load(Ordering::Acquire) {
            let call = match self.listener.receive(&mut buffer) {
                Ok(call) => call,
                Err(Errno::INTR | Errno::NOENT) => {
                    if self.is_hung_up() {
                        break; // No process is left that could be stopped.
                    }
                    continue;
                }
                Err(_) => break,
            };
            if stopped.is_some() {
                continue; // Everything is being killed; no call is made any more.
            }
            let row = match call.data.arch {
                filter::NATIVE => txos_calls::row(call.data.nr.into()),
                _ => txos_calls::row_of_32_bits(call.data.nr.cast_unsigned()),
            };
            let handler = row.map(|row| row.handler);
            let verdict = match handler {
                Some(handler) => {
                    let verdict = self.judge(&call, handler);
                    if std::mem::take(&mut self.unreadable) {
                        match self.warn_unreadable(&call) {
                            Verdict::Through => verdict,
                            stop => stop,
                        }
                    } else {
                        verdict
                    }
                }
                None => Verdict::Through,
            };
            let verdict = match handler {
                Some(handler) if self.reads.has_touched() || self.participant.is_lost() => {
                    let verdict = self.acquire_observed(&call, handler, verdict);
                    if matches!(verdict, Verdict::Through) {
                        self.read_ahead(&call, handler);
                    }
                    verdict
                }
                _ => verdict,
            };
            let verdict = match self.foreign.take() {
                Some(pid) if !matches!(verdict, Verdict::Stop(_)) => {
                    match self.beyond(WarningKind::Unrecorded, || Self::foreign_text(pid)) {
                        Verdict::Through => verdict,
                        stop => stop,
                    }
                }
                _ => verdict,
            };
            self.reads.end_round();
            if let Some(recorder) = &mut self.recorder {
                recorder.follow(self.renames.revision(), &mut self.reads);
            }
            match verdict {
                Verdict::Through => self.listener.let_through(call.id),
                Verdict::Give(file) => {
                    if self.listener.give(call.id, file.as_fd()).is_err() {
                        self.listener.let_through(call.id);
                    }
                }
                Verdict::Answer(result) => self.listener.answer(call.id, result),
                Verdict::Later => {}
                Verdict::Stop(reason) => {
                    // The reaper may be gone; then the monitor is killing everything already.
                    let _ = self.orders.send(&Order::Kill);
                    stopped = Some(reason);
                }
            }
        }
        let mut reads = self.reads;
        if let Some(recorder) = &mut self.recorder {
            recorder.flush_ahead(&mut reads);
        }
        let left = self.participant.leave(&mut reads);
        Finished { reads, stopped, deferred: self.deferred, left }
    }

    /// Acquires what was newly observed, unless the call is not made anyway.
    fn acquire_observed(&mut self, call: &Call, handler: Handler, verdict: Verdict) -> Verdict {
        if matches!(verdict, Verdict::Stop(_)) {
            return verdict;
        }
        self.participant.acquire_touched(&mut self.reads);
        if self.participant.is_lost() {
            return Verdict::Stop("another transaction won".into());
        }
        if matches!(handler, Handler::Open(..)) {
            self.note_lengths(call);
        }
        verdict
    }

    /// The caller, for opening something in its view; `None` for one for which nothing is opened, and once
    /// another transaction has won.
    ///
    /// What was observed is acquired first: overlayfs remembers what the kernel finds now, and would show
    /// it to the program still when somebody else, for whom was waited, has changed it.
    fn opener(&mut self, call: &Call) -> Option<caller::AsCaller> {
        if self.acquire_first() { self.caller(call) } else { None }
    }

    /// Acquires what was observed, for something that is about to be opened; `false` if another
    /// transaction has won.
    fn acquire_first(&mut self) -> bool {
        if self.reads.has_touched() {
            self.participant.acquire_touched(&mut self.reads);
            self.reads.seal_round();
        }
        !self.participant.is_lost()
    }

    /// Where a file is opened for appending only, the private copy is made now, and its length noted:
    /// others append to the stable one at any time, and only what comes after is the transaction's.
    fn note_lengths(&mut self, call: &Call) {
        for touch in self.reads.touched() {
            if !self.reads.begins_to_append(&touch) {
                continue;
            }
            let path = self.reads.path_of(&touch);
            // The caller's right to write is asked for before anything is copied: it is the caller that
            // opens.
            let length = self.opener(call).map(|caller| {
                let found = caller.find(&path, OFlags::NOFOLLOW, ResolveFlags::empty())?;
                let copy = caller.open(found, OFlags::WRONLY | OFlags::NONBLOCK)?;
                rustix::fs::fstat(&copy)
            });
            match length {
                Some(Ok(copy)) => {
                    self.reads.appends_beyond(&touch, u64::try_from(copy.st_size).unwrap_or(0));
                }
                // It will not be opened by the call either.
                Some(Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT)) => {}
                _ => self.reads.appends_to_all(&touch),
            }
        }
    }

    fn is_hung_up(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let fd = self.listener.fd();
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0)
            && fds.iter().any(|f| f.revents().contains(PollFlags::HUP))
    }

    fn judge(&mut self, call: &Call, handler: Handler) -> Verdict {
        if let Some(recorder) = &mut self.recorder
            && !matches!(handler, Handler::Look(..) | Handler::Open(..) | Handler::Execute(_))
        {
            recorder.forget(call.pid);
        }
        if matches!(
            handler,
            Handler::Chroot(_) | Handler::NewRoot | Handler::Mount | Handler::EnterNamespaces
        ) {
            self.record_everything();
        }
        // From now on a path may lead elsewhere than its letters and links say.
        if matches!(handler, Handler::NewRoot | Handler::Mount | Handler::EnterNamespaces) {
            self.reads.misses_replacements();
        }
        match handler {
            Handler::Open(at, flags) => self.open(call, at, flags),
            Handler::Look(at, follow, aspects) => {
                self.look(call, at, follow, record::facets(aspects))
            }
            Handler::Change(at, follow, aspects) => {
                self.change(call, at, follow, record::facets(aspects), side_effects::Intent::Alter)
            }
            Handler::Make(at) => {
                let facets = Facets::ENTRY | Facets::WRITE;
                self.change(call, at, Follow::No, facets, side_effects::Intent::Make)
            }
            Handler::Unlink(at, flags) => self.unlink(call, at, flags),
            Handler::Rename(from, to, flags) => self.rename(call, from, to, flags),
            Handler::Link(from, to, follow) => self.link(call, from, to, follow),
            Handler::Symlink(at) => self.symlink(call, at),
            Handler::Execute(at) => self.execute(call, at),
            Handler::List(fd) => self.list(call, fd),
            Handler::Chroot(at) => {
                self.roots_differ = true;
                self.look(call, at, Follow::Yes, Facets::ENTRY)
            }
            Handler::NewRoot => {
                self.roots_differ = true;
                Verdict::Through
            }
            Handler::NewIds(ids) => self.new_ids(call, ids),
            Handler::Connect => self.connect(call),
            Handler::Bind => self.bind(call),
            Handler::SendTo => self.send_to(call),
            Handler::SendMessage => self.send_message(call),
            Handler::SendMessages => self.send_messages(call),
            Handler::Kill => self.kill(call),
            Handler::Queue => self.queue(call),
            Handler::KillThread => self.kill_thread(call),
            Handler::KillThreadOf => self.kill_thread_of(call),
            Handler::QueueThreadOf => self.queue_thread_of(call),
            Handler::KillDescriptor => self.kill_descriptor(call),
            Handler::OfProcess(whose, what) => self.of_process(call, whose, what),
            Handler::SysvGet(kind, flags) => self.sysv_get(call, kind, flags),
            Handler::SysvControl(kind, command) => self.sysv_control(call, kind, command),
            Handler::EnterNamespaces => self.enter_namespaces(call),
            Handler::Trace => self.trace(call),
            Handler::WriteMemory => self.write_memory(call),
            Handler::Mount => self.mount(call),
            Handler::AdjustClock(at) => self.adjust_clock(call, at),
            Handler::Beyond(system, what) => self.always_beyond(system.into(), what),
            // The filter has answered.
            Handler::Refuse(_) | Handler::View | Handler::Own | Handler::Gone => Verdict::Through,
        }
    }

    /// What the recorder knows is no longer so for every process.
    fn record_everything(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.turn_off();
        }
    }

    fn warn_unreadable(&mut self, call: &Call) -> Verdict {
        self.record_everything();
        self.reads.misses_replacements();
        let name = crate::session::tree::name(call.pid.cast_signed());
        self.beyond(WarningKind::Unrecorded, || {
            format!(
                "process {} ({name}) can't be looked at; what it reads is not recorded",
                call.pid,
            )
        })
    }

    /// Something can't be rolled back: told once, or the end of the transaction.
    fn beyond(&mut self, kind: WarningKind, text: impl FnOnce() -> String) -> Verdict {
        if self.strict {
            return Verdict::Stop(text());
        }
        if !self.warnings.has(kind) {
            self.warnings.warn(kind, text());
        }
        Verdict::Through
    }
}
