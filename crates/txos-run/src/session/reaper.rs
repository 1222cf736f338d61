//! The reaper: builds the view, lives in it, and is the parent to which every orphan of the
//! transaction comes back.

use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitOptions};
use txos_engine::TxId;
use txos_engine::store::Layer;

use super::channel::{Channel, News, Order};
use super::command::{Prepared, become_command};
use super::tree;
use crate::sys::{fork, signals};
use crate::view::{build, plan::Plan};

/// How often killing is repeated while descendants remain.
const KILL_AGAIN_MS: u64 = 5;

/// What the reaper works with.
pub struct Reaper {
    /// The transaction.
    pub id: TxId,
    /// What it versions.
    pub layers: Vec<Layer>,
    /// What else the view consists of.
    pub plan: Plan,
    /// Where the new root is put together.
    pub staging: PathBuf,
    /// To the monitor.
    pub channel: Channel,
    /// The command.
    pub prepared: Prepared,
    /// Signals as they were.
    pub signals: signals::Guard,
}

impl Reaper {
    /// Runs in a freshly forked process; never returns.
    pub fn run(mut self) -> ! {
        let status = i32::from(self.keep().is_none());
        fork::exit(status)
    }

    fn keep(&mut self) -> Option<()> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok()?;
        let built = match build::build(self.id, &self.layers, &self.plan, &self.staging) {
            Ok(built) => built,
            Err(failure) => {
                let _ = self.channel.send(&News::Failed(failure));
                return None;
            }
        };
        let left_live = built
            .left_live
            .into_iter()
            .map(|(path, why)| (txos_engine::show::quoted(&path), why))
            .collect();
        let namespace = std::fs::metadata("/proc/self/ns/mnt").ok()?;
        let mount_namespace = std::os::unix::fs::MetadataExt::ino(&namespace);
        self.channel.send(&News::Ready { mount_namespace, left_live }).ok()?;
        // While the monitor notes that, the command's process is made, which waits at the gate.
        let (gate, opener) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
        let command = match fork::fork().ok()? {
            fork::Fork::Child => {
                drop(opener);
                let mut passed = [0u8; 1];
                match rustix::io::retry_on_intr(|| rustix::io::read(&gate, &mut passed)) {
                    Ok(1) => drop(gate),
                    // The reaper is gone, or told not to go on.
                    _ => fork::exit(127),
                }
                become_command(&self.prepared, &self.channel, &mut self.signals)
            }
            fork::Fork::Parent(pid) => pid,
        };
        drop(gate);
        // Out of the way of signals to the command's group.
        if self.prepared.is_orphaned {
            // And of the kernel's question whether somebody of its session could continue that group once it is stopped.
            let _ = rustix::process::setsid();
        } else {
            let _ = rustix::process::setpgid(None, None);
        }
        if let Some(failure) = built.old_root.and_then(|old| old.detach().err()) {
            let _ = self.channel.send(&News::Failed(failure));
            return None;
        }
        match self.channel.receive(true) {
            Ok(Some((Order::Go, _))) => {}
            _ => return None,
        }
        rustix::io::write(&opener, b"x").ok()?;
        drop(opener);
        self.prepared.output = [None, None];
        self.watch(command)
    }

    /// Until every descendant has ended.
    fn watch(&mut self, command: Pid) -> Option<()> {
        let mut killing = false;
        let mut running = true;
        loop {
            while self.signals.next().is_some() {}
            if self.reap(command, &mut running) {
                let _ = self.channel.send(&News::AllGone);
                return Some(());
            }
            if killing {
                tree::kill_descendants(rustix::process::getpid().as_raw_nonzero().get(), &[]);
            }
            let mut fds = [
                PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.channel_fd(killing), PollFlags::IN),
            ];
            let pause = Timespec::try_from(Duration::from_millis(KILL_AGAIN_MS)).ok();
            let _ = poll(&mut fds, if killing { pause.as_ref() } else { None });
            if killing {
                continue;
            }
            match self.channel.receive::<Order>(false) {
                Ok(Some((order, _))) => killing = self.obey(&order, running.then_some(command)),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                // The monitor is gone: nobody will commit.
                Ok(None) | Err(_) => killing = true,
            }
        }
    }

    /// While killing, the channel (which may be at its end) is no longer of interest.
    fn channel_fd(&self, killing: bool) -> std::os::fd::BorrowedFd<'_> {
        if killing { self.signals.fd() } else { self.channel.fd() }
    }

    /// Whether everything is to be killed.
    fn obey(&self, order: &Order, command: Option<Pid>) -> bool {
        match order {
            Order::Go => {}
            Order::Kill => return true,
            Order::Terminate => {
                let me = rustix::process::getpid().as_raw_nonzero().get();
                tree::signal_descendants(me, Signal::TERM);
                // What is stopped hears nothing.
                tree::signal_descendants(me, Signal::CONT);
            }
            Order::Continue => {
                if let Some(pid) = command {
                    // A shell that stopped itself leads a group of its own.
                    let _ = rustix::process::kill_process_group(pid, Signal::CONT);
                    let _ = rustix::process::kill_process(pid, Signal::CONT);
                }
            }
            Order::Signal(number) => {
                if let Some(pid) = command
                    && let Some(signal) = Signal::from_named_raw(*number)
                {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        }
        false
    }

    /// Asks for the status of everything that changed; whether nobody is left.
    fn reap(&self, command: Pid, running: &mut bool) -> bool {
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
            match rustix::process::wait(options) {
                Ok(None) => return false,
                Ok(Some((pid, status))) => {
                    if pid != command || !*running {
                        continue;
                    }
                    if status.continued() {
                        // Who has stopped with it goes on with it.
                        if let Some(front) = rustix::process::getppid() {
                            let _ = rustix::process::kill_process(front, Signal::CONT);
                        }
                        continue;
                    }
                    let news = if status.stopped() {
                        News::Stopped
                    } else {
                        *running = false;
                        News::Exited { status: status.as_raw() }
                    };
                    let _ = self.channel.send(&news);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }
}
