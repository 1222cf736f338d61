//! A command in the library's view, with this process watching: the library that is loaded into the command has the
//! transaction, and this process decides what becomes of it.
//!
//! ```text
//! watcher     the txos process; has begun the transaction in the store
//! └─ command    has the transaction, or has moved it to a copy of itself that serves it; and whatever it starts
//! ```
//!
//! # Invariants
//!
//! - A socket stays open as long as there is a process that has the transaction, or the signals that it holds. What became of it
//!   is left in the transaction's directory before that process ends, or says that it waits to send them
//!   ([`txos_engine::txn::Delivery`]). It sends them when it is told to, and not if this end of the socket is closed.
//! - The watcher holds the transaction's lock all the time. When it dies, nothing is published: the kernel kills the
//!   command's process, and with that the transaction ends.
//! - No process of the command's that is in the transaction outlives it: the watcher kills those of one that is lost.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, socketpair};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use txos_engine::Conflict;
use txos_engine::error::{ConflictKind, Party};
use txos_engine::program;
use txos_engine::readset::ReadSet;
use txos_engine::realm::RetryHistory;
use txos_engine::runs::Predecessors;
use txos_engine::scope::{Scope, joined};
use txos_engine::store::{Begin, Home, Transaction};
use txos_engine::txn::{Delivery, Ended, Lost};

use crate::error::{Result, Step};
use crate::limits::{Guard, Limits, Stop};
use crate::options::{Leftover, RunOptions};
use crate::report::{CommandStatus, Ran};
use crate::session::monitor::{Subreaper, ViewEnd, children};
use crate::session::output::{self, Hold, Output};
use crate::session::tree;
use crate::sys::{fork, signals};
use crate::warning::{Live, say};

/// What tells the library what to do; it takes it out of the environment.
const VARIABLE: &str = "TXOS_IN_PROCESS";
/// Where in the transaction a command that goes on is to run, likewise.
const DIRECTORY: &str = "TXOS_IN_PROCESS_DIRECTORY";
/// What of the tree it versions, and what not.
const SCOPE: &str = "TXOS_IN_PROCESS_SCOPE";
const EXCLUDE: &str = "TXOS_IN_PROCESS_EXCLUDE";

/// How the library gets into a command.
#[derive(Clone, Debug)]
pub enum Entry {
    /// It is preloaded: what `LD_PRELOAD` is to be, the library first.
    Preload(OsString),
    /// It is the program that is run, and runs the command.
    Program {
        /// The library.
        library: PathBuf,
        /// What loads the library, if not the dynamic linker that it names ([`program::linker_beside`]).
        linker: Option<PathBuf>,
        /// The command's file.
        command: PathBuf,
    },
}

impl Entry {
    /// Runs a command so: its name, and its arguments.
    #[must_use]
    pub fn command(&self, name: &OsStr, arguments: &[OsString]) -> Command {
        let mut started = match self {
            Entry::Preload(list) => {
                let mut command = Command::new(name);
                command.env("LD_PRELOAD", list);
                command
            }
            Entry::Program { library, linker, command } => {
                let mut started = match linker {
                    Some(linker) => {
                        let mut started = Command::new(linker);
                        started.args(program::arguments_of_linker(library, name));
                        started
                    }
                    None => {
                        let mut started = Command::new(library);
                        started.arg0(name);
                        started
                    }
                };
                started.env(program::FIRST, command);
                for (variable, value) in std::env::vars_os() {
                    let text = [variable.as_bytes(), b"="].concat();
                    if program::is_hidden(&text) {
                        let mut hidden = OsString::from(program::HIDDEN);
                        hidden.push(&variable);
                        started.env_remove(variable).env(hidden, value);
                    }
                }
                started
            }
        };
        started.args(arguments);
        started
    }
}

/// Has a command version only a part of the tree.
pub fn set_scope(command: &mut Command, scope: &Scope) {
    for (variable, paths) in [(SCOPE, &scope.only), (EXCLUDE, &scope.without)] {
        if !paths.is_empty() {
            command.env(variable, OsString::from_vec(joined(paths)));
        }
    }
}

/// How a command is run with the library.
#[derive(Clone, Debug)]
pub struct Library {
    /// How it gets in.
    pub entry: Entry,
    /// What it is asked for, as words.
    pub words: String,
    /// The store, if it is not the usual one.
    pub store: Option<PathBuf>,
    /// What of the tree it versions.
    pub scope: Scope,
    /// It goes on in what was kept: its directory may be there and nowhere else, and so may its program. This runs that
    /// program then, when it is in the transaction.
    pub goes_on: Option<Vec<OsString>>,
}

/// Begins a transaction for a command in the library's view. Its layers are made when something is changed.
///
/// # Errors
/// As [`crate::begin`].
pub fn begin(home: &Home, options: &RunOptions, scope: &Scope) -> Result<Transaction> {
    let directory = options.working_directory()?;
    if options.directory.is_some() {
        crate::check_directory(&directory)?;
    }
    let scope = OsString::from_vec(joined(&scope.only)).into();
    Ok(home.begin(Begin { directory, scope, ..crate::labelled(options) })?)
}

/// Runs a command in a transaction that [`begin`] has begun, and waits until nobody has the transaction any more.
///
/// # Errors
/// If it can't be started or watched.
pub fn run(
    home: &Home,
    tx: &mut Transaction,
    options: &RunOptions,
    library: &Library,
) -> Result<Ran> {
    let (ends, [out, err]) = output::prepare(options.hold_output, tx.dir())?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None);
    let (mine, theirs) = pair.step("making a pair of sockets")?;
    let (failed, failing) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("making a pipe")?;
    let lock = tx.lock().ok_or(Errno::BADF).step("handing on the transaction's lock")?;
    let _subreaper = Subreaper::become_one()?;
    let others = children();
    let mut signals = signals::Guard::take().step("collecting signals")?;
    let me = rustix::process::getpid();
    let pid = match fork::fork().step("forking")? {
        fork::Fork::Child => {
            signals.restore(true);
            let streams = [(out, 1), (err, 2)];
            let error = match dies_with(me) {
                Ok(()) => become_command(tx, options, library, theirs.as_fd(), lock, streams),
                Err(errno) => errno.into(),
            };
            let _ = rustix::io::write(&failing, &error.raw_os_error().unwrap_or(0).to_ne_bytes());
            fork::exit(127)
        }
        fork::Fork::Parent(pid) => pid,
    };
    drop((theirs, failing, out, err));
    let holding = ends.collect()?;
    let mut guard = Guard::new(&options.limits, vec![tx.dir().to_owned()], options.after.clone());
    guard.begin();
    let mut watch = Watch { pid, others, signals, guard, status: None, interrupted: None };
    let watched = watch.until_over(mine);
    let held = holding.finish();
    let delivery = Delivery::take(tx);
    if !matches!(&delivery, Ok(Some(Delivery { ended: Ended::Recorded, .. }))) {
        // They learn that it is over with their next call, which may be long hence.
        watch.kill_all();
    }
    let signals = watched?;
    watch.reap()?;
    let delivery = delivery?;
    let mut number = [0; 4];
    let not_executed = matches!(rustix::io::read(&failed, &mut number), Ok(4));
    tx.meta = home.meta(tx.id())?;
    let (ended, live) =
        delivery.map_or((None, Live::default()), |d| (Some(d.ended), Live::of_library(d.live)));
    let status = match (watch.guard.end(), watch.interrupted) {
        _ if not_executed => CommandStatus::not_executed(i32::from_ne_bytes(number)),
        (Some((limit, text)), None) => CommandStatus::Exceeded { limit, text },
        (_, Some(signal)) => CommandStatus::Signaled(signal),
        (None, None) => status(ended.as_ref(), watch.status),
    };
    let is_lost = !matches!(ended, Some(Ended::Recorded));
    Ok(Ran {
        status,
        is_lost,
        reads: if is_lost { ReadSet::default() } else { tx.load_reads()? },
        warnings: Vec::new(),
        live,
        handle: None,
        output: held?,
        signals: Vec::new(),
        held_signals: signals,
        view: ViewEnd::default(),
    })
}

/// What became of the command, by what was left and how its process ended.
fn status(ended: Option<&Ended>, status: Option<i32>) -> CommandStatus {
    let of_process = status.map(CommandStatus::of);
    match ended {
        Some(Ended::Recorded) => of_process.unwrap_or(CommandStatus::Exited(0)),
        Some(Ended::Stopped(reason)) => CommandStatus::Stopped { reason: reason.clone() },
        Some(Ended::Conflict { path, what, pid }) => {
            let named = format!("{}: ", String::from_utf8_lossy(path));
            let what = what.strip_prefix(&named).unwrap_or(what);
            CommandStatus::Lost { conflict: conflict(path, what, *pid) }
        }
        None => match of_process {
            Some(signaled @ CommandStatus::Signaled(_)) => signaled,
            _ => CommandStatus::Stopped {
                reason: "the process that had its transaction ended without a word".into(),
            },
        },
    }
}

/// A conflict, as the library says it.
fn conflict(path: &[u8], text: &str, pid: u32) -> Conflict {
    let by = Party { pid: Some(pid).filter(|pid| *pid != 0), ..Party::default() };
    let what = ConflictKind::Opponent { text: text.to_owned(), by };
    Conflict { path: PathBuf::from(OsString::from_vec(path.to_vec())), what, when: None }
}

/// How a command ended that decides by itself about its transaction.
#[derive(Debug)]
pub struct Followed {
    /// What became of it.
    pub end: End,
    /// A signal by which it was asked to end.
    pub asked: Option<i32>,
    output: Output,
}

/// What became of such a command.
#[derive(Debug)]
pub enum End {
    /// Its process ended so, as `waitpid(2)` says it. What there is to say of its transaction is said.
    Ended(CommandStatus),
    /// It lost a conflict, and has said nothing of that.
    Lost {
        /// What got in the way.
        conflicts: Vec<Conflict>,
        /// What it did that could not be rolled back.
        live: Live,
        /// What the next attempt goes by.
        again: Option<RetryHistory>,
        /// It changed none of what got in the way.
        only_read: bool,
    },
}

impl Followed {
    /// [`Output::has_printed`].
    #[must_use]
    pub fn has_printed(&self) -> bool {
        self.output.has_printed()
    }

    /// [`Output::pass_on`].
    pub fn pass_on(&mut self) {
        self.output.pass_on();
    }

    /// [`Output::forget_held`].
    #[must_use]
    pub fn forget_held(&mut self) -> bool {
        self.output.forget_held()
    }
}

/// Runs a command that decides by itself about its transaction, and waits for it. If it loses a conflict it is left to
/// the caller what follows. `words` are what the library is asked for; `hold` is not [`Hold::Fully`].
///
/// The command's process is made without a copy of this one: that would take longer than all else here. So it is the
/// library that has it killed when this process dies.
///
/// # Errors
/// If it can't be watched. Within: why it could not be started.
pub fn follow(
    command: &mut Command,
    words: &str,
    hold: Hold,
) -> Result<std::result::Result<Followed, std::io::Error>> {
    let (ends, [out, err]) = output::prepare(hold, Path::new("/"))?;
    let (said, saying) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("making a pipe")?;
    rustix::io::ioctl_fionbio(&said, true).step("making a pipe")?;
    let me = rustix::process::getpid();
    let started = {
        let inherited = rustix::io::fcntl_dupfd_cloexec(&saying, 10).step("making a pipe")?;
        drop(saying);
        rustix::io::fcntl_setfd(&inherited, FdFlags::empty()).step("making a pipe")?;
        let follower = format!("follower={}:{}", inherited.as_raw_fd(), me.as_raw_nonzero());
        let words = [words, &follower];
        let words: Vec<&str> = words.into_iter().filter(|words| !words.is_empty()).collect();
        command.env(VARIABLE, words.join(","));
        if let Some(out) = out {
            command.stdout(out);
        }
        if let Some(err) = err {
            command.stderr(err);
        }
        command.spawn()
    };
    // The writing ends are the command's alone.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let started = match started {
        Ok(started) => started,
        Err(error) => return Ok(Err(error)),
    };
    let pid = Pid::from_child(&started);
    let signals = signals::Guard::take().step("collecting signals")?;
    // Its thread is to take none of them.
    let holding = ends.collect()?;
    let guard = Guard::new(&Limits::default(), Vec::new(), Predecessors::default());
    let others = Vec::new();
    let mut watch = Watch { pid, others, signals, guard, status: None, interrupted: None };
    let heard = watch.until_ended(&said);
    let output = holding.finish()?;
    let heard = heard?;
    let end = match Lost::decode(&heard) {
        Some(lost) => End::Lost {
            conflicts: lost
                .conflicts
                .iter()
                .map(|(path, what)| conflict(path, what, lost.pid))
                .collect(),
            live: Live::of_library(lost.live),
            again: lost.again,
            only_read: lost.only_read,
        },
        None => End::Ended(watch.status.map_or(CommandStatus::Exited(0), CommandStatus::of)),
    };
    Ok(Ok(Followed { end, asked: watch.interrupted, output }))
}

/// In the child: it is killed when its parent dies, also if that has been just now.
fn dies_with(parent: Pid) -> std::result::Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH) }
}

/// In the child: becomes the command. Gives why that failed.
fn become_command(
    tx: &Transaction,
    options: &RunOptions,
    library: &Library,
    pipe: BorrowedFd<'_>,
    lock: BorrowedFd<'_>,
    streams: [(Option<OwnedFd>, i32); 2],
) -> std::io::Error {
    // The library takes them.
    let handed_on = |fd: BorrowedFd<'_>| {
        let copy = rustix::io::fcntl_dupfd_cloexec(fd, 10)?;
        rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
        Ok::<OwnedFd, Errno>(copy)
    };
    let (pipe, lock) = match (handed_on(pipe), handed_on(lock)) {
        (Ok(pipe), Ok(lock)) => (pipe, lock),
        (Err(errno), _) | (_, Err(errno)) => return errno.into(),
    };
    for (stream, number) in streams {
        let Some(stream) = stream else { continue };
        let put = match number {
            1 => rustix::stdio::dup2_stdout(&stream),
            _ => rustix::stdio::dup2_stderr(&stream),
        };
        if let Err(errno) = put {
            return errno.into();
        }
    }
    let mut words = options.command.clone();
    if let Some(before) = &library.goes_on {
        words.splice(0..0, before.iter().cloned());
    }
    let Some((program, arguments)) = words.split_first() else {
        return Errno::INVAL.into();
    };
    let (pipe, lock, id) = (pipe.as_raw_fd(), lock.as_raw_fd(), tx.id());
    let hand_over = format!("hand-over={pipe}:{lock}:{id}");
    let wishes = [library.words.as_str(), &hand_over];
    let wishes: Vec<&str> = wishes.into_iter().filter(|words| !words.is_empty()).collect();
    let mut command = library.entry.command(program, arguments);
    command.env(VARIABLE, wishes.join(",")).env("TXOS_ID", id.as_str());
    set_scope(&mut command, &library.scope);
    if let Some(store) = &library.store {
        command.env("TXOS_STORE", store);
    }
    if let Some(directory) = &options.directory {
        command.env("PWD", directory);
        match library.goes_on {
            Some(_) => command.env(DIRECTORY, directory),
            None => command.current_dir(directory),
        };
    }
    command.exec()
}

/// Signals that wait for the commit of a command in the library's view.
#[derive(Debug, Default)]
pub(crate) enum HeldSignals {
    /// There are none.
    #[default]
    None,
    /// The process at the other end of the socket sends them when it is told to.
    By(OwnedFd),
    /// There were some. Who held them is gone.
    Lost,
}

impl HeldSignals {
    /// After the commit: they are sent. What can't be sent is reported.
    pub fn deliver(&mut self) {
        const GONE: &str = "signals that were held until the commit may not all have been sent: \
                            the process that held them is gone";
        let socket = match std::mem::take(self) {
            HeldSignals::None => return,
            HeldSignals::Lost => return say(GONE),
            HeldSignals::By(socket) => socket,
        };
        let mut text = Vec::new();
        let told = rustix::net::send(&socket, b"S", SendFlags::NOSIGNAL);
        if told.is_err() || std::fs::File::from(socket).read_to_end(&mut text).is_err() {
            return say(GONE);
        }
        let done = text.pop() == Some(b'E');
        String::from_utf8_lossy(&text).lines().for_each(say);
        if !done {
            say(GONE);
        }
    }

    /// They are never sent. Whoever has held them has ended by then.
    pub fn forget(&mut self) {
        if let HeldSignals::By(socket) = std::mem::take(self) {
            let _ = rustix::net::shutdown(&socket, Shutdown::Write);
            let _ = std::fs::File::from(socket).read_to_end(&mut Vec::new());
        }
    }
}

/// A command that runs.
struct Watch {
    pid: Pid,
    /// Children that this process had before.
    others: Vec<i32>,
    signals: signals::Guard,
    guard: Guard,
    /// How its process ended, as `waitpid(2)` says it.
    status: Option<i32>,
    /// A signal that came for the transaction when its command had ended.
    interrupted: Option<i32>,
}

impl Watch {
    /// Until nobody has the transaction, or the command's process has ended and nobody is to be waited for. Gives the signals
    /// that are held.
    fn until_over(&mut self, socket: OwnedFd) -> Result<HeldSignals> {
        let mut held = HeldSignals::None;
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
            ];
            let timeout = self.guard.left().and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e).step("waiting for the command"),
            }
            let [said, _] = &fds;
            if !said.revents().is_empty() {
                let mut byte = [0];
                match rustix::io::read(&socket, &mut byte) {
                    Ok(1) if byte == *b"H" => held = HeldSignals::Lost,
                    Ok(1) => return Ok(HeldSignals::By(socket)),
                    Err(Errno::INTR) => {}
                    _ => return Ok(held),
                }
            }
            match self.guard.look() {
                Some(Stop::Terminate) => self.signal_all(Signal::TERM),
                Some(Stop::Kill) => self.kill_all(),
                None => {}
            }
            while let Some(signal) = self.signals.next() {
                self.take(signal)?;
            }
        }
    }

    /// Until the command's process has ended, and, if it says that it has lost, until nobody has its transaction. Gives
    /// what it said.
    fn until_ended(&mut self, said: &OwnedFd) -> Result<Vec<u8>> {
        let (mut heard, mut room, mut over) = (Vec::new(), [0; 4096], false);
        // It may have ended before its end was a signal for us.
        self.look_at_child()?;
        loop {
            // What was said was said before it ended.
            let has_ended = self.status.is_some();
            while !over {
                match rustix::io::read(said, &mut room) {
                    Ok(0) => over = true,
                    Ok(count) => heard.extend_from_slice(room.get(..count).unwrap_or_default()),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(e) => return Err(e).step("waiting for the command"),
                }
            }
            // What a signal has ended, the process that has the transaction says so before it ends itself.
            let is_to_be_said =
                matches!(self.status.map(CommandStatus::of), Some(CommandStatus::Signaled(_)));
            if has_ended && (over || heard.is_empty() && !is_to_be_said) {
                return Ok(heard);
            }
            let signals = self.signals.fd();
            let mut fds = vec![PollFd::from_borrowed_fd(signals, PollFlags::IN)];
            if !over {
                fds.push(PollFd::new(said, PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e).step("waiting for the command"),
            }
            while let Some(signal) = self.signals.next() {
                if matches!(
                    signal.number,
                    libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT
                ) {
                    self.interrupted = Some(signal.number);
                }
                // What comes when it has ended ends nothing any more.
                if signal.number == libc::SIGCHLD || self.status.is_none() {
                    self.take(signal)?;
                }
            }
        }
    }

    fn take(&mut self, signal: signals::Arrived) -> Result<()> {
        match signal.number {
            libc::SIGCHLD => self.look_at_child(),
            number if self.status.is_some() => {
                self.interrupted = Some(number);
                self.kill_all();
                Ok(())
            }
            number => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // It may have ended just now.
                    let _ = rustix::process::kill_process(self.pid, signal);
                }
                Ok(())
            }
        }
    }

    /// Whether the command's process has ended, or was stopped: then so are we, until the shell lets us go on.
    fn look_at_child(&mut self) -> Result<()> {
        let how = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        match rustix::process::waitpid(Some(self.pid), how) {
            Ok(Some((_, status))) if status.stopped() => {
                rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)
                    .step("stopping with the command")?;
                let _ = rustix::process::kill_process(self.pid, Signal::CONT);
            }
            Ok(Some((_, status))) => {
                self.status = Some(status.as_raw());
                self.signals.collect_interrupt();
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for the command's process, and asks for the status of orphans that came to us.
    fn reap(&mut self) -> Result<()> {
        while self.status.is_none() {
            let how = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
            match rustix::process::waitid(WaitId::Pid(self.pid), how) {
                Ok(_) => self.look_at_child()?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).step("waiting for the command"),
            }
        }
        tree::reap_orphans(rustix::process::getpid().as_raw_nonzero().get(), &self.others);
        Ok(())
    }

    fn signal_all(&self, signal: Signal) {
        tree::signal_descendants(self.pid.as_raw_nonzero().get(), signal);
        let _ = rustix::process::kill_process(self.pid, signal);
    }

    /// Kills all processes of the command.
    fn kill_all(&self) {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        while tree::kill_descendants(me, &self.others) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Leftover {
    /// The word for the library.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        (self == Leftover::Kill).then_some("kill-leftover")
    }
}
