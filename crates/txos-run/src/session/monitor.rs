//! The monitor's side of a transaction: start the reaper, watch, stop with the command, end.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use txos_engine::TxId;
use txos_engine::changeset::Renamed;
use txos_engine::object::Facets;
use txos_engine::readset::{Coverage, ReadSet};
use txos_engine::store::{Home, Transaction};

use super::channel::{self, Channel, News, Order};
use super::command::Prepared;
use super::reaper::Reaper;
use super::sweep::Sweep;
use super::{output, tree};
use crate::error::{Error, Result, Step};
use crate::inside::{Given, Heard, Terms};
use crate::library::HeldSignals;
use crate::limits::{Guard, Stop};
use crate::memory::{self, Group};
use crate::options::{Leftover, RunOptions};
use crate::participant::{Handle, Left};
use crate::question::Questions;
use crate::report::{CommandStatus, Ran};
use crate::supervisor::path_class::PathClasses;
use crate::supervisor::recorder::Recorder;
use crate::supervisor::view_renames::ViewRenames;
use crate::supervisor::{self, filter};
use crate::sys::{fork, signals};
use crate::view::plan;
use crate::warning::{WarningKind, Warnings, say};

/// How long background processes are waited for without a word.
const QUIET: Duration = Duration::from_secs(1);

/// How many of them the message names.
const NAMED_MAX: usize = 5;

/// Runs the command of a transaction, from which these paths are hidden.
///
/// # Errors
/// If it could not be run, or its processes could not be kept together. None of them is left.
pub fn run(
    home: &Home,
    tx: &mut Transaction,
    mut reads: ReadSet,
    options: &RunOptions,
    handle: Option<Handle>,
    hidden: &[Vec<u8>],
) -> Result<Ran> {
    let begins = tx.meta.before.is_none() && options.given.is_none();
    let plan = plan::view(home, tx, options, begins)?;
    if tx.meta.before.is_some() {
        reads.goes_by(&plan.coverage);
    }
    if !hidden.is_empty() {
        reads.leave_out(hidden);
    }
    let path_classes = PathClasses::of_plan(&plan);
    let root_is_local = plan.root_is_local;
    // What a pending transaction has moved is looked at where it was.
    let renames = if begins { ViewRenames::default() } else { Renamed::read(tx)?.into() };
    let warnings = Arc::new(Warnings::default());
    // Of one inside of another it was said before.
    for pattern in plan.unmatched.iter().filter(|_| options.given.is_none()) {
        say(&crate::unmatched(pattern));
    }
    let given = options.given.clone();
    let group = match &given {
        Some(given) => given.group,
        None => txos_engine::process_group(),
    };
    let (ends, command_output) = output::prepare(options.hold_output, tx.dir())?;
    let directory = options.working_directory()?;
    let (mut memory, address_space) = memory::limit(tx, options.limits.memory);
    let recorder = options.recorder.then(Recorder::new).flatten();
    let prepared = Prepared {
        argv: c_strings(&options.command)?,
        environment: environment(tx.id(), options.directory.as_deref(), given.as_deref()),
        directory: directory.clone(),
        memory: memory.as_mut().and_then(Group::take_procs),
        address_space,
        group,
        is_orphaned: signals::is_orphaned(),
        program: filter::program(recorder.is_some()),
        output: command_output,
        given,
    };
    let (channel, reapers_end) = channel::pair().step("making a socket pair")?;
    let _subreaper = Subreaper::become_one()?;
    let others = children();
    let signals = signals::Guard::take().step("collecting signals")?;
    let reaper = match fork::fork().step("forking")? {
        fork::Fork::Child => {
            // It is the monitor's.
            std::mem::forget(handle);
            // Who writes is told when the monitor reads no more.
            drop((channel, ends));
            let reaper = Reaper {
                id: tx.id(),
                layers: tx.layers(),
                plan,
                staging: tx.dir().to_owned(),
                channel: reapers_end,
                prepared,
                signals,
            };
            reaper.run()
        }
        fork::Fork::Parent(pid) => pid,
    };
    drop((reapers_end, prepared));
    // Nothing is to be done here until the view is there.
    let sweep = Sweep::begin(home.dir());
    let uppers = tx.layers().into_iter().map(|layer| layer.upper).collect();
    let mut monitor = Monitor {
        tx,
        options,
        channel,
        signals,
        reaper: Some(reaper),
        reaper_pid: reaper,
        others,
        warnings,
        path_classes,
        root_is_local,
        renames,
        recorder,
        reads: Some(reads),
        handle,
        supervisor: None,
        mount_namespace: 0,
        status: None,
        not_executed: None,
        exited_at: None,
        reported_waiting: false,
        all_gone: false,
        asker_gone: false,
        interrupted: None,
        passed_on: None,
        guard: Guard::new(&options.limits, uppers, options.after.clone()),
        directory,
    };
    let holding = ends.collect();
    let outcome = holding.and_then(|holding| {
        let outcome = monitor.watch();
        sweep.stop();
        let held = holding.finish();
        outcome.and(held)
    });
    let end = monitor.end();
    drop(sweep);
    if let Some(killed) = memory.map(Group::end).filter(|&killed| killed > 0) {
        let plural = if killed == 1 { "" } else { "es" };
        say(&format!(
            "the kernel ended {killed} process{plural} of the command, which needed more than --memory allows"
        ));
    }
    let held_output = outcome?;
    end?.into_ran(held_output)
}

fn c_strings(words: &[OsString]) -> Result<Vec<CString>> {
    words
        .iter()
        .map(|w| {
            CString::new(w.as_bytes())
                .map_err(|_| std::io::Error::from_raw_os_error(libc::EINVAL))
                .step("preparing the command (a word of it has a zero byte)")
        })
        .collect()
}

/// The variable that names the transaction to its processes.
const ID: &str = "TXOS_ID";

/// This process's environment, with the transaction's id, and with the directory that was asked for. (No variable
/// has a zero byte.)
fn environment(
    id: TxId,
    directory: Option<&std::path::Path>,
    given: Option<&Given>,
) -> Vec<CString> {
    let names_it = |name: &OsString| name == ID || name == "PWD" && directory.is_some();
    let all: Vec<_> = match given {
        Some(given) => given.environment().collect(),
        None => std::env::vars_os().collect(),
    };
    let inherited = all.into_iter().filter(|(name, _)| !names_it(name));
    let directory = directory.map(|dir| ("PWD".into(), dir.as_os_str().to_owned()));
    inherited
        .chain([(ID.into(), id.as_str().into())])
        .chain(directory)
        .filter_map(|(name, value)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
        })
        .collect()
}

/// What holds for transactions inside of this one, or why there can be none.
fn terms(options: &RunOptions, coverage: Coverage) -> std::result::Result<Terms, String> {
    if options.given.is_some() {
        return Err("it is inside another one itself".into());
    }
    let limits = &options.limits;
    if limits.max_bytes.is_some() || limits.memory.is_some() || limits.no_network {
        return Err("its limits would not hold for one inside of it".into());
    }
    Ok(Terms { exclude: options.exclude.clone(), strict: options.strict, coverage })
}

/// Direct children that this process had before.
pub(crate) fn children() -> Vec<i32> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    tree::children(me).unwrap_or_else(|| {
        tree::descendants_by_scan(me).iter().filter(|p| p.parent == me).map(|p| p.pid).collect()
    })
}

/// Orphans of a dead reaper come to this process while this lives.
pub(crate) struct Subreaper {
    was: bool,
}

impl Subreaper {
    pub(crate) fn become_one() -> Result<Self> {
        let was = rustix::process::child_subreaper().is_ok_and(|p| p.is_some());
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .step("becoming the reaper of orphans")?;
        Ok(Subreaper { was })
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        if !self.was {
            let _ = rustix::process::set_child_subreaper(None);
        }
    }
}

struct Monitor<'a> {
    tx: &'a mut Transaction,
    options: &'a RunOptions,
    channel: Channel,
    signals: signals::Guard,
    /// `None` once it was waited for.
    reaper: Option<Pid>,
    reaper_pid: Pid,
    others: Vec<i32>,
    warnings: Arc<Warnings>,
    path_classes: PathClasses,
    root_is_local: bool,
    renames: ViewRenames,
    recorder: Option<Recorder>,
    reads: Option<ReadSet>,
    /// In the realm; `None` without one, and once the supervisor has it.
    handle: Option<Handle>,
    supervisor: Option<supervisor::Running>,
    mount_namespace: u64,
    status: Option<i32>,
    not_executed: Option<i32>,
    exited_at: Option<Instant>,
    reported_waiting: bool,
    /// The reaper has said that all others have ended.
    all_gone: bool,
    /// Whoever asked for a transaction inside another one is gone.
    asker_gone: bool,
    /// Told by a signal to stop waiting for background processes.
    interrupted: Option<i32>,
    /// The last signal that was passed on to the command's process.
    passed_on: Option<i32>,
    /// Over what it may use.
    guard: Guard,
    /// Where the command starts.
    directory: std::path::PathBuf,
}

/// Everything of a transaction that has ended.
struct End {
    status: CommandStatus,
    finished: supervisor::Finished,
    warnings: Arc<Warnings>,
    view: ViewEnd,
}

impl End {
    fn into_ran(self, output: output::Output) -> Result<Ran> {
        Ok(Ran {
            status: self.status,
            is_lost: false,
            reads: self.finished.reads,
            warnings: self.warnings.take(),
            live: self.warnings.live(),
            handle: self.finished.left.handle,
            output,
            signals: self.finished.deferred,
            held_signals: HeldSignals::None,
            view: self.view,
        })
    }
}

/// The end of a view: its last process ends, and the kernel takes its mounts down, which lasts as long as the
/// rest of a short transaction. Nothing in it changes any more. It is waited for when this is dropped, so that nothing of a
/// transaction outlives the process that ran it.
#[derive(Debug, Default)]
pub struct ViewEnd(Option<Pid>);

impl ViewEnd {
    /// Waits until the mounts are gone.
    pub fn wait(&mut self) {
        let Some(reaper) = self.0.take() else { return };
        let _ = rustix::io::retry_on_intr(|| {
            rustix::process::waitpid(Some(reaper), WaitOptions::empty())
        });
    }
}

impl Drop for ViewEnd {
    fn drop(&mut self) {
        self.wait();
    }
}

impl Monitor<'_> {
    /// Until the reaper says that all are gone, or is gone itself.
    fn watch(&mut self) -> Result<()> {
        loop {
            let asker = self.options.given.as_ref().filter(|_| !self.asker_gone);
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.channel.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
            ];
            fds.extend(asker.map(|asker| PollFd::from_borrowed_fd(asker.socket(), PollFlags::IN)));
            let left = [self.quiet_left(), self.guard.left()].into_iter().flatten().min();
            let timeout = left.and_then(|d| Timespec::try_from(d).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e).step("waiting for the command"),
            }
            self.report_waiting();
            match self.guard.look() {
                Some(Stop::Terminate) => self.order(&Order::Terminate)?,
                Some(Stop::Kill) => self.order(&Order::Kill)?,
                None => {}
            }
            while let Some(signal) = self.signals.next() {
                self.pass_on(signal);
            }
            self.hear_asker()?;
            loop {
                match self.channel.receive::<News>(false) {
                    Ok(Some((News::AllGone, _))) => {
                        self.all_gone = true;
                        return Ok(());
                    }
                    Ok(Some((news, fd))) => self.hear(news, fd)?,
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                    Ok(None) => return Err(Error::ReaperLost),
                    Err(e) => return Err(e).step("hearing from the reaper"),
                }
            }
        }
    }

    /// What the asker says of a transaction that is inside another one.
    fn hear_asker(&mut self) -> Result<()> {
        let Some(asker) = self.options.given.as_ref().filter(|_| !self.asker_gone) else {
            return Ok(());
        };
        loop {
            match asker.hear() {
                Heard::Nothing => return Ok(()),
                Heard::Signal(number) => {
                    self.passed_on = Some(number);
                    self.order(&Order::Signal(number))?;
                }
                Heard::Resumed => self.order(&Order::Continue)?,
                Heard::Gone => {
                    self.asker_gone = true;
                    self.interrupted = Some(libc::SIGKILL);
                    return self.order(&Order::Kill);
                }
            }
        }
    }

    fn hear(&mut self, news: News, fd: Option<std::os::fd::OwnedFd>) -> Result<()> {
        match news {
            News::Failed(failure) => return Err(failure.into()),
            News::Ready { mount_namespace, left_live } => {
                for (path, why) in left_live {
                    self.left_live(&path, &why);
                }
                // The command enters it in the view before any of its calls is told.
                if let Some(reads) = self.reads.as_mut() {
                    reads.note(self.directory.as_os_str().as_bytes(), true, Facets::ENTRY);
                }
                self.mount_namespace = mount_namespace;
                // Should this process die, recovery looks for processes in the view only if the record names a namespace.
                if self.tx.meta.mount_namespace.replace(mount_namespace).is_none() {
                    self.tx.save(false)?;
                }
                self.order(&Order::Go)?;
                self.guard.begin();
                // The command's process needs longer to get ready than this does.
                self.start_supervisor()?;
            }
            News::Listener => {
                let Some(listener) = fd else {
                    return Err(std::io::Error::from_raw_os_error(libc::EMFILE))
                        .step("receiving the seccomp listener");
                };
                if let Some(supervisor) = &mut self.supervisor {
                    supervisor.listen(listener);
                }
            }
            News::NotPrepared { step, errno } => {
                return Err(Error::View {
                    step,
                    path: self.directory.clone(),
                    source: std::io::Error::from_raw_os_error(errno),
                    detail: String::new(),
                });
            }
            News::NotExecuted { errno } => self.not_executed = Some(errno),
            News::Stopped => self.stop_too()?,
            News::Exited { status } => {
                self.status = Some(status);
                self.exited_at = Some(Instant::now());
                // Whoever ended it by a signal to us waits for nobody that it has started.
                let signal = Some(status & 0x7f).filter(|signal| Some(*signal) == self.passed_on);
                self.interrupted = self.interrupted.or(signal);
                if self.options.leftover == Leftover::Kill
                    || self.not_executed.is_some()
                    || signal.is_some()
                {
                    self.order(&Order::Kill)?;
                } else {
                    // From now on there is nobody whom an interrupt would be for.
                    self.signals.collect_interrupt();
                }
            }
            News::AllGone => {}
        }
        Ok(())
    }

    /// Starts the supervisor, which waits for the filter's listener.
    fn start_supervisor(&mut self) -> Result<()> {
        let coverage = self.reads.as_ref().map(|r| r.coverage().clone());
        let terms = terms(self.options, coverage.unwrap_or_default());
        let started = supervisor::start(supervisor::Setup {
            reads: self.reads.take().unwrap_or_default(),
            reaper: self.reaper_pid,
            mount_namespace: self.mount_namespace,
            strict: self.options.strict,
            has_network: !self.options.limits.no_network,
            warnings: Arc::clone(&self.warnings),
            path_classes: std::mem::take(&mut self.path_classes),
            root_is_local: self.root_is_local,
            renames: std::mem::take(&mut self.renames),
            recorder: self.recorder.take(),
            handle: self.handle.take(),
            isolation: self.options.isolation,
            patience: self.options.patience,
            after: self.options.after.clone(),
            questions: self
                .options
                .answerer
                .clone()
                .map(|answerer| Questions::new(answerer, self.tx.id(), terms)),
            orders: self.channel.duplicate().step("duplicating the channel")?,
        });
        match started {
            Ok(started) => self.supervisor = Some(started),
            Err(error) => return Err(self.last_words(error)?),
        }
        Ok(())
    }

    /// Why the supervisor could not be started. If the reaper is at its end, it has said why that is.
    ///
    /// # Errors
    /// What it has said.
    fn last_words(&mut self, error: Error) -> Result<Error> {
        loop {
            match self.channel.receive::<News>(false) {
                Ok(Some((news, fd))) => self.hear(news, fd)?,
                Ok(None) => return Ok(Error::ReaperLost),
                Err(_) => break,
            }
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = rustix::process::waitid(WaitId::Pid(self.reaper_pid), options);
        Ok(if matches!(ended, Ok(Some(_))) { Error::ReaperLost } else { error })
    }

    /// A file system in scope that overlayfs refused.
    fn left_live(&mut self, path: &str, why: &str) {
        self.warnings.warn_of(
            WarningKind::Unversioned,
            path,
            None,
            format!("{path} can't be versioned and changes at once: {why}"),
        );
        let Some(bytes) = txos_engine::show::unquoted(path) else { return };
        self.path_classes.is_live(&bytes);
        if let Some(reads) = self.reads.as_ref().filter(|r| r.is_empty()) {
            let mut coverage = reads.coverage().clone();
            coverage.never_under.push(bytes);
            self.reads = Some(ReadSet::new(coverage));
        }
    }

    /// The command was stopped: so are we, until the shell lets us go on, or somebody the command.
    fn stop_too(&self) -> Result<()> {
        if let Some(asker) = &self.options.given {
            asker.stopped();
            return Ok(());
        }
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)
            .step("stopping with the command")?;
        self.order(&Order::Continue)
    }

    fn order(&self, order: &Order) -> Result<()> {
        match self.channel.send(order) {
            // It has ended; its last words, or that there are none, are about to be received.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.step("ordering the reaper"),
        }
    }

    fn pass_on(&mut self, signal: signals::Arrived) {
        match signal.number {
            libc::SIGCHLD => {}
            number if self.exited_at.is_some() => {
                self.interrupted = Some(number);
                let _ = self.order(&Order::Kill);
            }
            number => {
                self.passed_on = Some(number);
                // A lost reaper is noticed in the next round.
                let _ = self.order(&Order::Signal(number));
            }
        }
    }

    fn quiet_left(&self) -> Option<Duration> {
        let since = self.exited_at.filter(|_| !self.reported_waiting)?;
        Some((since + QUIET).saturating_duration_since(Instant::now()))
    }

    /// Says for whom we wait.
    fn report_waiting(&mut self) {
        if !self.quiet_left().is_some_and(|d| d.is_zero()) {
            return;
        }
        self.reported_waiting = true;
        let mut left = tree::descendants(self.reaper_pid.as_raw_nonzero().get());
        left.retain(|p| !p.zombie);
        if left.is_empty() {
            return;
        }
        let named: Vec<String> =
            left.iter().take(NAMED_MAX).map(|p| format!("{} ({})", p.pid, p.name)).collect();
        let more = left.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        say(&format!(
            "the command has ended; waiting for what it left in the background: {}{more} (interrupt to kill and roll back, --leftover kill not to wait)",
            named.join(", ")
        ));
    }

    /// Ends what is left, whatever happened, and says what became of the command.
    fn end(mut self) -> Result<End> {
        let view = self.end_processes();
        let finished = match self.supervisor.take() {
            Some(running) => running.finish(),
            None => supervisor::Finished {
                reads: self.reads.take().unwrap_or_default(),
                left: Left { handle: self.handle.take(), lost: None },
                ..supervisor::Finished::default()
            },
        };
        let lost = finished.left.lost.clone().filter(|_| self.interrupted.is_none());
        if let Some(conflict) = lost {
            let status = CommandStatus::Lost { conflict };
            return Ok(End { status, finished, warnings: Arc::clone(&self.warnings), view });
        }
        let ended = (&finished.stopped, self.not_executed, self.interrupted, self.status);
        let status = match (ended, self.guard.end()) {
            ((None, None, None, _), Some((limit, text))) => CommandStatus::Exceeded { limit, text },
            _ => Self::status_of(ended)?,
        };
        Ok(End { status, finished, warnings: Arc::clone(&self.warnings), view })
    }

    fn status_of(
        ended: (&Option<String>, Option<i32>, Option<i32>, Option<i32>),
    ) -> Result<CommandStatus> {
        Ok(match ended {
            (Some(reason), ..) => CommandStatus::Stopped { reason: reason.clone() },
            (_, Some(errno), ..) => CommandStatus::not_executed(errno),
            (_, _, Some(signal), _) => CommandStatus::Signaled(signal),
            (.., Some(status)) => CommandStatus::of(status),
            (.., None) => return Err(Error::ReaperLost),
        })
    }

    /// Waits for the reaper, which ends after its descendants; kills those of a dead one. A reaper that has said
    /// that all others have ended is waited for later: the kernel takes the view's mounts down as it ends.
    fn end_processes(&mut self) -> ViewEnd {
        let Some(reaper) = self.reaper.take() else { return ViewEnd(None) };
        if self.all_gone {
            return ViewEnd(Some(reaper));
        }
        // Idle or at work on the view: the closed channel or this order ends it.
        let _ = self.channel.send(&Order::Kill);
        loop {
            match rustix::process::waitpid(Some(reaper), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                // It ended as it should, after everybody else.
                Ok(Some((_, status))) if status.exit_status() == Some(0) => return ViewEnd(None),
                _ => break,
            }
        }
        let me = rustix::process::getpid().as_raw_nonzero().get();
        while tree::kill_descendants(me, &self.others) > 0 {
            std::thread::sleep(Duration::from_millis(1));
            tree::reap_orphans(me, &self.others);
        }
        tree::reap_orphans(me, &self.others);
        ViewEnd(None)
    }
}
